//! A process that keeps rights which another one has given up.
//!
//! Whatever reads what strangers send is not to have the right to change the network of its host.
//! So a daemon starts its own program a second time ([`engage`]), as a helper that hears it over a
//! socket of which nobody else has an end, and then gives its rights up for good
//! ([`crate::confine`]). From then on this crate has the helper do what needs them: keep the
//! [`crate::Footprint`], tie sockets to links, attach queues to TUN devices, read what firewalls
//! say. Who calls it notices nothing of that. The descriptor that an order is about goes with it.
//!
//! The helper reads nothing but these orders. It follows one only as far as a daemon needs it:
//! there is one footprint in its life, addresses and routes are for devices that were attached
//! through it, and marks are those of Sennit's own tables.
//!
//! It ends with its daemon. Where that was killed, the host stays as it is, as with one process.
//! What else was tried is in decision 0033.

mod line;

use std::{
    env,
    net::IpAddr,
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use sennit_packet::Prefix;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use self::line::Hook;
pub(crate) use self::line::Line;
use crate::{DeviceName, Error, error::Doing};

/// The one of this process.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// Another process, and the socket that it hears orders by.
#[derive(Debug)]
pub(crate) struct Helper {
    line: Mutex<Line>,
    hook: Hook,
}

/// What a helper may be asked for, beside the orders of a footprint.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// A footprint, whose orders come by the socket that goes with this.
    Begin {
        device: DeviceName,
        directory: PathBuf,
        #[serde(with = "crate::wire::prefixes")]
        blocked: Vec<Prefix>,
    },
    /// The socket that goes with this sends and receives by this device alone.
    BindToLink {
        device: String,
        address: IpAddr,
        mark: Option<u32>,
    },
    /// What the socket sends has this mark.
    Mark(u32),
    /// The socket has larger buffers than others may have.
    GrowBuffers,
    /// The file is a queue of a TUN device, which has so many.
    Attach {
        device: DeviceName,
        queues: usize,
        first: bool,
    },
    /// The TUN device, which has a queue, is up; the answer is its interface index.
    Raise { device: DeviceName, mtu: u32 },
    /// The host is told of name servers behind the footprint's device, as wished by the socket that
    /// goes with this.
    TellNames,
    /// Answered with [`crate::forward_blockers`].
    ForwardBlockers,
}

/// Starts the helper of this process: this program with `arguments`, which has it call
/// [`crate::service::serve`]. To be called once, before anything is given up. The process that
/// comes back ends with this one; if it ends before that, nothing can be changed any more.
pub fn engage(arguments: &[&str]) -> Result<Child, Error> {
    let (ours, theirs) = Line::pair()?;
    let program = env::current_exe().doing(|| "find this program".into())?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    let child = command.spawn().doing(|| "start the helper".into())?;
    let hook = ours.end()?;
    let line = Mutex::new(ours);
    if HELPER.set(Helper { line, hook }).is_err() {
        tracing::error!("a process has one helper");
    }
    Ok(child)
}

/// Ends the helper. What it keeps of a footprint that is not removed stays on the host.
pub fn dismiss() {
    if let Some(helper) = engaged() {
        helper.hook.hang_up();
    }
}

/// The helper, if this process has one.
pub(crate) fn engaged() -> Option<&'static Helper> {
    HELPER.get()
}

impl Helper {
    /// Has a task done with a descriptor, and waits until that is done.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        task: &Task,
        about: Option<BorrowedFd<'_>>,
    ) -> Result<T, Error> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.ask(task, about)
    }
}
