//! Name servers behind a tunnel, which the host asks while there is one.
//!
//! Three ways, the first that the host has: systemd-resolved, which is told of the device's
//! servers; resolvconf, which is given a record; or `/etc/resolv.conf` itself. What was in that
//! file stays in it as comments, so that it can be put back whatever happens in between: a crash, a
//! reboot, a lost state directory. What somebody else has written there since is left alone at the
//! end, and until then it is replaced in its turn.

mod host;

use std::{net::IpAddr, os::fd::AsFd as _};

use serde::{Deserialize, Serialize};

use self::host::Host;
pub(crate) use self::host::try_file;
pub use self::host::{FILE, before, owner, restore};
use crate::{
    DeviceName, Error,
    helper::{self, Line, Task},
};

/// What the host was told. The helper of this process tells it, if there is one. Dropped, it has
/// the host forget that.
pub struct NameServers(Keeper);

enum Keeper {
    Own(Box<Host>),
    Helper(Line),
}

/// What an operator should know of how it stands; nothing where no servers are wanted.
pub type Standing = Option<String>;

/// What may be asked of another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Wish {
    /// From now on these are asked.
    Set(Vec<IpAddr>),
    /// The host is told, if it has still to be, or again.
    Tell,
    /// The host is as it was.
    Forget,
}

impl NameServers {
    /// Takes over from an earlier run with this device, which is that of the footprint: what that
    /// left behind is put back.
    pub fn begin(device: &DeviceName) -> Result<Self, Error> {
        let Some(helper) = helper::engaged() else {
            return Ok(Self(Keeper::Own(Box::new(Host::new(device)))));
        };
        let (ours, theirs) = Line::pair()?;
        helper.ask::<()>(&Task::TellNames, Some(theirs.as_fd()))?;
        Ok(Self(Keeper::Helper(ours)))
    }

    /// From now on these are asked; none means that the host is left as it was.
    pub fn set(&mut self, servers: &[IpAddr]) -> Result<Standing, Error> {
        self.wish(Wish::Set(servers.to_vec()))
    }

    /// Tells the host once more, if it was not told, or another program has undone it.
    pub fn tell(&mut self) -> Result<Standing, Error> {
        self.wish(Wish::Tell)
    }

    fn wish(&mut self, wish: Wish) -> Result<Standing, Error> {
        match &mut self.0 {
            Keeper::Own(host) => Ok(host.follow(wish)),
            Keeper::Helper(line) => line.ask(&wish, None),
        }
    }
}

impl Drop for NameServers {
    fn drop(&mut self) {
        // What goes wrong is in the log.
        let _ = self.wish(Wish::Forget);
    }
}

impl Host {
    fn follow(&mut self, wish: Wish) -> Standing {
        match wish {
            Wish::Set(servers) => self.set(&servers),
            Wish::Tell => self.tell(),
            Wish::Forget => self.set(&[]),
        }
        self.note()
    }
}

/// Does what the daemon at the other end wants. Where that was killed, the host stays as it is.
pub(crate) fn serve(device: &DeviceName, mut line: Line) {
    let mut host = Host::new(device);
    while let Ok(Some((text, _))) = line.receive() {
        let Ok(wish) = serde_json::from_slice(&text) else {
            break;
        };
        let standing: Result<Standing, Error> = Ok(host.follow(wish));
        if line.send(&standing, None).is_err() {
            break;
        }
    }
    std::mem::forget(host);
}
