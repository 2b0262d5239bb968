//! What one daemon has changed on its host, as who may change it keeps it.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    iter,
    path::Path,
};

use ipnet::IpNet;
use sennit_packet::Prefix;
use serde_json::Value;

use super::{End, Order};
use crate::{
    ClassRoute, DeviceName, Error, Lost, Rules, TunnelRoute,
    instance::InstanceLock,
    netlink::{Family, Interface, Netlink},
    nft::{self, Table},
    privilege,
    routing::Routing,
    sysctl::{self, Sysctls},
    wire,
};

/// Descriptors held for taking everything away: `nft` needs three pipes, and then a switch of the
/// kernel two files at a time.
const RESERVED: usize = 8;

/// What one daemon has changed on its host.
#[derive(Debug)]
pub(crate) struct Holding {
    device: DeviceName,
    routing: Routing,
    sysctls: Sysctls,
    table: Table,
    /// Our addresses in the tunnel, with the index of the device that has them.
    addresses: Vec<(u32, IpNet)>,
    /// How many of them were found missing and put back since somebody asked.
    addresses_lost: u64,
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

impl Holding {
    /// Takes possession of `device`, and removes what an earlier run left.
    pub(crate) fn begin(
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
            addresses_lost: 0,
            blocked: blocked.to_vec(),
            left: Vec::new(),
            reserve: Vec::new(),
            removed: false,
            _lock: lock,
        };
        footprint.addresses = footprint.leftover_addresses()?;
        footprint.left = footprint.routing.find_left_blocked()?;
        footprint.clear_network()?;
        let reserve = iter::repeat_with(|| File::open("/dev/null")).take(RESERVED);
        footprint.reserve = reserve.flatten().collect();
        Ok(footprint)
    }

    /// Does what is asked; the answer, as it is written. An end is no business of this.
    pub(crate) fn follow(&mut self, order: Order) -> Result<Value, Error> {
        match order {
            Order::HoldBlock => self.hold_block(),
            Order::SetBlocked(blocked) => self.set_blocked(&blocked)?,
            Order::RouteLink { link, interface } => self.route_link(link, &interface)?,
            Order::UnrouteLink(link) => self.unroute_link(link)?,
            Order::Route { routes, classes } => self.route_into_classes(routes, classes)?,
            Order::KeepOutside => return wire::value(self.keep_outside()?),
            Order::RefreshRoutes => return wire::value(self.refresh_routes()?),
            Order::Networks => return wire::value(self.networks()?),
            Order::SetAddresses { index, addresses } => self.set_addresses(index, &addresses)?,
            Order::Forward(family) => self.forward(family)?,
            Order::SetRules(rules) => self.set_rules(&rules)?,
            Order::RestoreRules => return wire::value(self.restore_rules()?),
            Order::SilenceRedirects => self.silence_redirects()?,
            Order::LoosenReversePath(interface) => self.loosen_reverse_path(&interface)?,
            Order::End(_) => {}
        }
        Ok(Value::Null)
    }

    fn hold_block(&mut self) {
        self.left.clone_from(&self.blocked);
    }

    fn set_blocked(&mut self, blocked: &[Prefix]) -> Result<(), Error> {
        if self.blocked == blocked {
            return Ok(());
        }
        self.blocked = blocked.to_vec();
        self.hold_block();
        self.routing.set_blocked(blocked)
    }

    fn route_link(&mut self, link: usize, name: &str) -> Result<(), Error> {
        let interface = Interface::lookup(self.routing.netlink(), name)?;
        let loosened = self.loosen_reverse_path(&interface.name);
        self.routing.set_link(link, interface).and(loosened)
    }

    fn unroute_link(&mut self, link: usize) -> Result<(), Error> {
        self.routing.remove_link(link)
    }

    fn route_into_classes(
        &mut self,
        routes: Vec<TunnelRoute>,
        classes: Vec<ClassRoute>,
    ) -> Result<(), Error> {
        self.routing.set_tunnel(routes, classes)
    }

    fn keep_outside(&mut self) -> Result<u32, Error> {
        self.routing.keep_outside()
    }

    /// Addresses come first: the kernel refuses routes with a source that it does not have.
    fn refresh_routes(&mut self) -> Result<Lost, Error> {
        self.restore_addresses().and(self.routing.restore())?;
        let mut lost = self.routing.take_lost();
        lost.addresses = std::mem::take(&mut self.addresses_lost);
        Ok(lost)
    }

    fn restore_addresses(&mut self) -> Result<(), Error> {
        let netlink = self.routing.netlink();
        let devices: BTreeSet<u32> = self.addresses.iter().map(|(index, _)| *index).collect();
        let mut there = BTreeSet::new();
        for index in devices {
            let found = netlink.addresses(index)?;
            there.extend(found.into_iter().map(|found| (index, found.net)));
        }
        let mut outcome = Ok(());
        for (index, address) in self.addresses.iter().filter(|it| !there.contains(it)) {
            match netlink.add_address(*index, *address) {
                Ok(is_there) => self.addresses_lost += u64::from(is_there),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    fn networks(&mut self) -> Result<Vec<IpNet>, Error> {
        let addresses = self.routing.netlink().host_addresses()?;
        Ok(addresses.iter().map(|it| it.network).collect())
    }

    fn set_addresses(&mut self, index: u32, addresses: &[IpNet]) -> Result<(), Error> {
        let mut outcome = Ok(());
        for address in addresses {
            let added = self.routing.netlink().add_address(index, *address);
            outcome = outcome.and(added.map(drop));
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

    fn forward(&mut self, family: Family) -> Result<(), Error> {
        match family {
            Family::V4 => self.sysctls.set("net/ipv4/ip_forward", "1"),
            Family::V6 if !Path::new("/proc/sys/net/ipv6").exists() => Ok(()),
            Family::V6 => {
                self.keep_router_advertisements()?;
                self.sysctls.set("net/ipv6/conf/all/forwarding", "1")
            }
        }
    }

    fn set_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        self.table.set(rules)
    }

    fn restore_rules(&mut self) -> Result<bool, Error> {
        self.table.restore()
    }

    fn silence_redirects(&mut self) -> Result<(), Error> {
        for interface in ["all", self.device.clone().as_str()] {
            let key = format!("net/ipv4/conf/{interface}/send_redirects");
            self.sysctls.set(&key, "0")?;
        }
        Ok(())
    }

    fn loosen_reverse_path(&mut self, interface: &str) -> Result<(), Error> {
        const LOOSE: &str = "2";
        let key = sysctl::reverse_path(interface);
        let strictest = [
            sysctl::read("net/ipv4/conf/all/rp_filter")?,
            sysctl::read(&key)?,
        ];
        if strictest.iter().max().is_some_and(|mode| mode == "1") {
            self.sysctls.set(&key, LOOSE)?;
        }
        Ok(())
    }

    /// Takes away what does not stay. The first refusal is returned, after everything was tried.
    pub(crate) fn end(mut self, end: End) -> Result<(), Error> {
        if end == End::Drop {
            return Ok(());
        }
        self.removed = true;
        match end {
            End::Remove => {
                self.blocked.clear();
                self.clear()
            }
            End::KeepBlock => self.clear_network().and(self.sysctls.restore()),
            End::Restart | End::Drop => self.clear_network(),
        }
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.reserve.clear();
        // A command may hang, and be killed after a while; so it comes last.
        let outcome = self.clear_network().and(self.sysctls.restore());
        outcome.and(nft::remove(&self.device))
    }

    fn clear_network(&mut self) -> Result<(), Error> {
        self.reserve.clear();
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

impl Drop for Holding {
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
