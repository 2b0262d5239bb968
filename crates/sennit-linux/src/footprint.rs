//! Everything that a daemon adds to its host, in one place that takes it away again.
//!
//! A [`Footprint`] belongs to one TUN device. Beginning one removes what an earlier run with the
//! same device left behind (`kill -9`, power loss), and refuses to begin while another daemon has
//! it. Ending it, also by dropping it, removes every route, rule, address and nftables table, and
//! puts the kernel's switches back. [`cleanup`] does the same without running. How instances are
//! told apart says [`crate::Instance`].
//!
//! What is blocked ([`Footprint::begin_blocking`]) is the exception: what belongs into the tunnel
//! is to leave by no other way because a daemon failed. It goes by [`Footprint::remove`] and by
//! [`cleanup`], and is taken over by the next start without a gap.
//!
//! The nftables table of an earlier run is taken over without a gap too: it stays until there are
//! other rules ([`Footprint::set_rules`]). While there is none that translates, the host answers
//! what comes for a translated connection itself, with a TCP reset. So are the kernel's switches:
//! a host that stopped to forward for a moment would do so for everybody who relies on it by then.
//!
//! A process that has no file descriptors left can still take everything away: a few are held for
//! that from the beginning.

mod holding;
mod order;

use std::{os::fd::AsFd as _, path::Path};

use ipnet::IpNet;
use sennit_packet::Prefix;
use serde::de::DeserializeOwned;

pub(crate) use self::{
    holding::Holding,
    order::{End, Order},
};
use crate::{
    ClassRoute, DeviceName, Error, Filter, Instance, Lost, Masquerade, Rules, TunnelRoute,
    helper::{self, Line, Task},
    netlink::Family,
    privilege,
    routing::Routing,
};

/// What one daemon has changed on its host. The helper of this process keeps it, if there is one.
#[derive(Debug)]
pub struct Footprint {
    device: DeviceName,
    /// Nothing once it is removed.
    keeper: Option<Keeper>,
}

/// Who changes the host.
#[derive(Debug)]
enum Keeper {
    Own(Box<Holding>),
    Helper(Line),
}

/// Removes what a daemon with `device` left behind; fails if it still runs.
pub fn cleanup(device: &DeviceName, directory: &Path) -> Result<(), Error> {
    Footprint::begin(device, directory)?.remove()
}

/// Removes what a daemon with `device` left behind, but what was unreachable without a tunnel stays
/// so, and is the result; so do the nftables table and the kernel's switches. Fails if it still
/// runs.
pub fn cleanup_but_block(device: &DeviceName, directory: &Path) -> Result<Vec<Prefix>, Error> {
    privilege::require_net_admin()?;
    let blocked = Routing::open(device)?.find_left_blocked()?;
    Footprint::begin_blocking(device, directory, &blocked)?.remove_for_restart()?;
    Ok(blocked)
}

/// What is unreachable on this host unless it is routed into the tunnel of `device`, whoever made
/// it so: a daemon that runs, one that was killed, or a guard.
pub fn find_blocked(device: &DeviceName) -> Result<Vec<Prefix>, Error> {
    Routing::open(device)?.find_blocked()
}

impl Footprint {
    /// Takes possession of `device` and of all that is named after it.
    ///
    /// `directory` (such as `/run/sennit`) is where changed kernel switches are remembered. All
    /// daemons of a host share it.
    pub fn begin(device: &DeviceName, directory: &Path) -> Result<Self, Error> {
        Self::begin_blocking(device, directory, &[])
    }

    /// Begins like [`Self::begin`]; from now on `blocked` is unreachable unless it is routed into
    /// the tunnel.
    pub fn begin_blocking(
        device: &DeviceName,
        directory: &Path,
        blocked: &[Prefix],
    ) -> Result<Self, Error> {
        let keeper = match helper::engaged() {
            None => Keeper::Own(Box::new(Holding::begin(device, directory, blocked)?)),
            Some(helper) => {
                let (ours, theirs) = Line::pair()?;
                let begin = Task::Begin {
                    device: device.clone(),
                    directory: directory.into(),
                    blocked: blocked.to_vec(),
                };
                helper.ask::<()>(&begin, Some(theirs.as_fd()))?;
                Keeper::Helper(ours)
            }
        };
        Ok(Self {
            device: device.clone(),
            keeper: Some(keeper),
        })
    }

    /// From now on what is blocked stays so if the daemon fails.
    pub fn hold_block(&mut self) -> Result<(), Error> {
        self.order(Order::HoldBlock)
    }

    /// Exactly these are unreachable unless they are routed into the tunnel, also if the daemon
    /// fails.
    pub fn set_blocked(&mut self, blocked: &[Prefix]) -> Result<(), Error> {
        self.order(Order::SetBlocked(blocked.to_vec()))
    }

    /// The mark that the socket of link number `link` has to put on its packets.
    pub fn link_mark(&self, link: usize) -> Result<u32, Error> {
        Instance::of(&self.device).link_mark(link)
    }

    /// Keeps the packets of link number `link` on its interface, as that is now. To be repeated
    /// whenever the interface's state, addresses or routes have changed.
    pub fn route_link(&mut self, link: usize, interface: &str) -> Result<(), Error> {
        let interface = interface.into();
        self.order(Order::RouteLink { link, interface })
    }

    /// Forgets a link.
    pub fn unroute_link(&mut self, link: usize) -> Result<(), Error> {
        self.order(Order::UnrouteLink(link))
    }

    /// Routes exactly these prefixes into the tunnel.
    pub fn route_into_tunnel(&mut self, routes: Vec<TunnelRoute>) -> Result<(), Error> {
        self.route_into_classes(routes, Vec::new())
    }

    /// Routes exactly these prefixes into the tunnel, and these packets of them to the devices of
    /// classes, the first that fits.
    pub fn route_into_classes(
        &mut self,
        routes: Vec<TunnelRoute>,
        classes: Vec<ClassRoute>,
    ) -> Result<(), Error> {
        self.order(Order::Route { routes, classes })
    }

    /// Keeps the packets of sockets with the returned mark out of the tunnel, whatever is routed
    /// there.
    pub fn keep_outside(&mut self) -> Result<u32, Error> {
        self.order(Order::KeepOutside)
    }

    /// Puts back what others have taken away of addresses, routes and rules, also what was refused
    /// when it was asked for, and follows what they have changed in the main table; how much was
    /// missing. To be repeated now and then. After a refusal, what was put back is told next time.
    pub fn refresh_routes(&mut self) -> Result<Lost, Error> {
        self.order(Order::RefreshRoutes)
    }

    /// The networks that this host is attached to, by whatever device.
    pub fn networks(&mut self) -> Result<Vec<IpNet>, Error> {
        self.order(Order::Networks)
    }

    /// Gives the TUN device with this interface index exactly these addresses.
    pub fn set_addresses(&mut self, index: u32, addresses: &[IpNet]) -> Result<(), Error> {
        let addresses = addresses.to_vec();
        self.order(Order::SetAddresses { index, addresses })
    }

    /// Makes the host forward packets of one family between its interfaces, if it has that family.
    pub fn forward(&mut self, family: Family) -> Result<(), Error> {
        self.order(Order::Forward(family))
    }

    /// Translates the addresses of what leaves the host elsewhere than by our devices.
    pub fn masquerade(&mut self, masquerade: &Masquerade) -> Result<(), Error> {
        self.set_rules(&Rules {
            masquerade: Some(masquerade.clone()),
            filter: Filter::default(),
        })
    }

    /// Translates addresses, and lets pass only what these rules say.
    pub fn set_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        self.order(Order::SetRules(rules.clone()))
    }

    /// Puts the rules back if another program has taken or changed them; true then. To be repeated
    /// now and then, and before somebody is let in whom they have to hold.
    pub fn restore_rules(&mut self) -> Result<bool, Error> {
        self.order(Order::RestoreRules)
    }

    /// Keeps the host from telling those behind our device of better ways, which there are none
    /// of: packets between them come in and leave by the same one (RFC 1812 §5.2.7.2). The kernel
    /// sends redirects if either switch is on; those of the other interfaces stay as they are.
    pub fn silence_redirects(&mut self) -> Result<(), Error> {
        self.order(Order::SilenceRedirects)
    }

    /// Lets an interface receive packets whose answers would leave by another one: strict reverse
    /// path filtering (RFC 3704 §2.2) drops all of a tunnel's when the default route is elsewhere.
    pub fn loosen_reverse_path(&mut self, interface: &str) -> Result<(), Error> {
        self.order(Order::LoosenReversePath(interface.into()))
    }

    /// Removes all of it. The first refusal is returned, after everything has been tried.
    pub fn remove(self) -> Result<(), Error> {
        self.end(End::Remove)
    }

    /// Removes all of it, but what was to be unreachable without a tunnel is so from now on, and
    /// the nftables table stays.
    pub fn remove_but_block(self) -> Result<(), Error> {
        self.end(End::KeepBlock)
    }

    /// The same before a restart: the kernel's switches stay for the next start too.
    pub fn remove_for_restart(self) -> Result<(), Error> {
        self.end(End::Restart)
    }

    fn order<T: DeserializeOwned>(&mut self, order: Order) -> Result<T, Error> {
        match self.keeper.as_mut().expect("it is there until it ends") {
            Keeper::Own(holding) => order::read(holding.follow(order)?),
            Keeper::Helper(line) => line.ask(&order, None),
        }
    }

    fn end(mut self, end: End) -> Result<(), Error> {
        match self.keeper.take() {
            None => Ok(()),
            Some(Keeper::Own(holding)) => holding.end(end),
            Some(Keeper::Helper(mut line)) => line.ask(&Order::End(end), None),
        }
    }
}

impl Drop for Footprint {
    fn drop(&mut self) {
        if let Some(Keeper::Helper(line)) = &mut self.keeper {
            // What goes wrong is in the helper's log.
            let _ = line.ask::<()>(&Order::End(End::Drop), None);
        }
    }
}
