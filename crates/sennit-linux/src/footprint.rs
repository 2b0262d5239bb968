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

use std::{
    fs::{self, File},
    iter,
    path::Path,
};

use ipnet::IpNet;
use sennit_packet::Prefix;

use crate::{
    ClassRoute, DeviceName, Error, Filter, Instance, Masquerade, Rules, TunnelRoute,
    instance::InstanceLock,
    netlink::{Family, Interface, Netlink},
    nft::{self, Table},
    privilege,
    routing::Routing,
    sysctl::{self, Sysctls},
};

/// Descriptors held for taking everything away: `nft` needs three pipes, and then a switch of the
/// kernel two files at a time.
const RESERVED: usize = 8;

/// What one daemon has changed on its host.
#[derive(Debug)]
pub struct Footprint {
    device: DeviceName,
    routing: Routing,
    sysctls: Sysctls,
    table: Table,
    /// Our addresses in the tunnel, with the index of the device that has them.
    addresses: Vec<(u32, IpNet)>,
    /// What is unreachable while there is no tunnel.
    blocked: Vec<Prefix>,
    /// What stays so if this is dropped: at first what an earlier run left, so that a start that
    /// fails changes nothing.
    left: Vec<Prefix>,
    /// Closed before everything is taken away.
    reserve: Vec<File>,
    removed: bool,
    _lock: InstanceLock,
}

/// Removes what a daemon with `device` left behind; fails if it still runs.
pub fn cleanup(device: &DeviceName, directory: &Path) -> Result<(), Error> {
    Footprint::begin(device, directory)?.remove()
}

/// Removes what a daemon with `device` left behind, but what was unreachable without a tunnel stays
/// so, and so do the nftables table and the kernel's switches; fails if it still runs.
pub fn cleanup_but_block(device: &DeviceName, directory: &Path) -> Result<(), Error> {
    privilege::require_net_admin()?;
    let blocked = Routing::open(device)?.find_blocked()?;
    Footprint::begin_blocking(device, directory, &blocked)?.remove_for_restart()
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
        privilege::require_net_admin()?;
        let lock = InstanceLock::acquire(device)?;
        let mut footprint = Self {
            device: device.clone(),
            routing: Routing::open(device)?,
            sysctls: Sysctls::open(directory, device)?,
            table: Table::of(device),
            addresses: Vec::new(),
            blocked: blocked.to_vec(),
            left: Vec::new(),
            reserve: Vec::new(),
            removed: false,
            _lock: lock,
        };
        footprint.addresses = footprint.leftover_addresses()?;
        footprint.left = footprint.routing.find_blocked()?;
        footprint.clear_network()?;
        let reserve = iter::repeat_with(|| File::open("/dev/null")).take(RESERVED);
        footprint.reserve = reserve.flatten().collect();
        Ok(footprint)
    }

    /// From now on what is blocked stays so if the daemon fails.
    pub fn hold_block(&mut self) {
        self.left.clone_from(&self.blocked);
    }

    /// Exactly these are unreachable unless they are routed into the tunnel, also if the daemon
    /// fails.
    pub fn set_blocked(&mut self, blocked: &[Prefix]) -> Result<(), Error> {
        if self.blocked == blocked {
            return Ok(());
        }
        self.blocked = blocked.to_vec();
        self.hold_block();
        self.routing.set_blocked(blocked)
    }

    /// The mark that the socket of link number `link` has to put on its packets.
    pub fn link_mark(&self, link: usize) -> Result<u32, Error> {
        Instance::of(&self.device).link_mark(link)
    }

    /// Keeps the packets of link number `link` on its interface, as that is now. To be repeated
    /// whenever the interface's state, addresses or routes have changed.
    pub fn route_link(&mut self, link: usize, interface: Interface) -> Result<(), Error> {
        let loosened = self.loosen_reverse_path(&interface.name);
        self.routing.set_link(link, interface).and(loosened)
    }

    /// Forgets a link.
    pub fn unroute_link(&mut self, link: usize) -> Result<(), Error> {
        self.routing.remove_link(link)
    }

    /// Routes exactly these prefixes into the tunnel.
    pub fn route_into_tunnel(&mut self, routes: Vec<TunnelRoute>) -> Result<(), Error> {
        self.routing.set_tunnel(routes, Vec::new())
    }

    /// Routes exactly these prefixes into the tunnel, and these packets of them to the devices of
    /// classes, the first that fits.
    pub fn route_into_classes(
        &mut self,
        routes: Vec<TunnelRoute>,
        classes: Vec<ClassRoute>,
    ) -> Result<(), Error> {
        self.routing.set_tunnel(routes, classes)
    }

    /// Keeps the packets of sockets with the returned mark out of the tunnel, whatever is routed
    /// there.
    pub fn keep_outside(&mut self) -> Result<u32, Error> {
        self.routing.keep_outside()
    }

    /// Follows what others have changed in the main table; to be repeated now and then.
    pub fn refresh_routes(&mut self) -> Result<(), Error> {
        self.routing.refresh()
    }

    /// The networks that this host is attached to, by whatever device.
    pub fn networks(&mut self) -> Result<Vec<IpNet>, Error> {
        let addresses = self.routing.netlink().host_addresses()?;
        Ok(addresses.iter().map(|it| it.network).collect())
    }

    /// Gives the TUN device with this interface index exactly these addresses.
    pub fn set_addresses(&mut self, index: u32, addresses: &[IpNet]) -> Result<(), Error> {
        let mut outcome = Ok(());
        for address in addresses {
            outcome = outcome.and(self.routing.netlink().add_address(index, *address));
        }
        let wanted: Vec<_> = addresses.iter().map(|address| (index, *address)).collect();
        let (stale, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.addresses)
            .into_iter()
            .filter(|entry| !wanted.contains(entry))
            .partition(|(owner, _)| *owner == index);
        for (owner, address) in stale {
            outcome = outcome.and(self.routing.netlink().delete_address(owner, address));
        }
        self.addresses = wanted.into_iter().chain(others).collect();
        outcome
    }

    /// Makes the host forward packets of one family between its interfaces, if it has that family.
    pub fn forward(&mut self, family: Family) -> Result<(), Error> {
        match family {
            Family::V4 => self.sysctls.set("net/ipv4/ip_forward", "1"),
            Family::V6 if !Path::new("/proc/sys/net/ipv6").exists() => Ok(()),
            Family::V6 => {
                self.keep_router_advertisements()?;
                self.sysctls.set("net/ipv6/conf/all/forwarding", "1")
            }
        }
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
        self.table.set(rules)
    }

    /// Puts the rules back if another program has taken or changed them; true then. To be repeated
    /// now and then, and before somebody is let in whom they have to hold.
    pub fn restore_rules(&mut self) -> Result<bool, Error> {
        self.table.restore()
    }

    /// Keeps the host from telling those behind our device of better ways, which there are none
    /// of: packets between them come in and leave by the same one (RFC 1812 §5.2.7.2). The kernel
    /// sends redirects if either switch is on; those of the other interfaces stay as they are.
    pub fn silence_redirects(&mut self) -> Result<(), Error> {
        for interface in ["all", self.device.clone().as_str()] {
            let key = format!("net/ipv4/conf/{interface}/send_redirects");
            self.sysctls.set(&key, "0")?;
        }
        Ok(())
    }

    /// Lets an interface receive packets whose answers would leave by another one: strict reverse
    /// path filtering (RFC 3704 §2.2) drops all of a tunnel's when the default route is elsewhere.
    pub fn loosen_reverse_path(&mut self, interface: &str) -> Result<(), Error> {
        const LOOSE: &str = "2";
        let key = format!("net/ipv4/conf/{interface}/rp_filter");
        let strictest = [
            sysctl::read("net/ipv4/conf/all/rp_filter")?,
            sysctl::read(&key)?,
        ];
        if strictest.iter().max().is_some_and(|mode| mode == "1") {
            self.sysctls.set(&key, LOOSE)?;
        }
        Ok(())
    }

    /// Removes all of it. The first refusal is returned, after everything has been tried.
    pub fn remove(mut self) -> Result<(), Error> {
        self.blocked.clear();
        self.removed = true;
        self.clear()
    }

    /// Removes all of it, but what was to be unreachable without a tunnel is so from now on, and
    /// the nftables table stays.
    pub fn remove_but_block(mut self) -> Result<(), Error> {
        self.removed = true;
        self.reserve.clear();
        self.clear_network().and(self.sysctls.restore())
    }

    /// The same before a restart: the kernel's switches stay for the next start too.
    pub fn remove_for_restart(mut self) -> Result<(), Error> {
        self.removed = true;
        self.reserve.clear();
        self.clear_network()
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.reserve.clear();
        let outcome = nft::remove(&self.device).and(self.clear_network());
        outcome.and(self.sysctls.restore())
    }

    fn clear_network(&mut self) -> Result<(), Error> {
        let mut outcome = self.routing.reset(self.blocked.clone());
        for (index, address) in std::mem::take(&mut self.addresses) {
            outcome = outcome.and(self.routing.netlink().delete_address(index, address));
        }
        outcome
    }

    /// A TUN device made beforehand outlives us, and so do its addresses.
    fn leftover_addresses(&mut self) -> Result<Vec<(u32, IpNet)>, Error> {
        let netlink: &mut Netlink = self.routing.netlink();
        let Ok(Interface { index, .. }) = Interface::lookup(netlink, self.device.as_str()) else {
            return Ok(Vec::new());
        };
        let addresses = netlink.our_addresses(index)?;
        Ok(addresses
            .into_iter()
            .map(|address| (index, address))
            .collect())
    }

    /// A host that forwards IPv6 ignores router advertisements, and so would lose the default
    /// route of its own links, unless it is told otherwise per interface.
    fn keep_router_advertisements(&mut self) -> Result<(), Error> {
        const ALSO_WHEN_FORWARDING: &str = "2";
        let Ok(interfaces) = fs::read_dir("/proc/sys/net/ipv6/conf") else {
            return Ok(());
        };
        for interface in interfaces.flatten() {
            let Ok(name) = interface.file_name().into_string() else {
                continue;
            };
            let key = format!("net/ipv6/conf/{name}/accept_ra");
            let listens = sysctl::read(&key).is_ok_and(|mode| mode == "1");
            if listens && name != "all" && name != "lo" {
                self.sysctls.set(&key, ALSO_WHEN_FORWARDING)?;
            }
        }
        Ok(())
    }
}

impl Drop for Footprint {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        self.blocked = std::mem::take(&mut self.left);
        if let Err(error) = self.clear() {
            tracing::warn!(device = %self.device, error = &error as &dyn std::error::Error,
                "could not remove everything from the host; `sennit cleanup` tries again");
        }
    }
}
