//! Policy routing: tunnel packets leave by their own link, everyone else's go into the tunnel.
//!
//! For each link there is a routing table that holds what the main table holds for the link's
//! interface, and nothing else; the link's socket marks its packets, and a rule leads the mark to
//! that table. So the packets of a tunnel leave by their link whatever the default route says,
//! also where links share a gateway or a subnet.
//!
//! Prefixes routed into the tunnel go to the main table, where the longest prefix wins and where
//! everybody looks. Only a default route goes to a table of its own, behind a rule that first asks
//! the main table for anything better than a default: local networks stay local, and the main
//! table's own default stays as it was. A second rule lets what is sent *from* a link's address
//! leave by that link, so that the host stays reachable there.
//!
//! [`Routing`] holds what is wanted, and each change makes the kernel's state equal to it. What a
//! crash left behind is one more difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use sennit_packet::Prefix;

use crate::{
    DeviceName, Error, Instance,
    netlink::{Family, Interface, LinkState, Netlink, PROTOCOL, Route, Rule, TABLE_MAIN},
};

/// A prefix to be reached through a TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelRoute {
    pub prefix: Prefix,
    /// Interface index of the TUN device.
    pub device: u32,
    /// Our address in the tunnel, for what this host itself sends.
    pub source: Option<IpAddr>,
}

/// Wanted and applied routes and rules of one instance.
#[derive(Debug)]
pub(crate) struct Routing {
    netlink: Netlink,
    device: DeviceName,
    instance: Instance,
    /// Links by number, each with its table.
    links: BTreeMap<u32, Interface>,
    tunnel: Vec<TunnelRoute>,
    /// Interface indices by which marked routes of the main table are known to be ours.
    devices: BTreeSet<u32>,
}

/// The routes and rules that there are, or should be.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    routes: BTreeSet<Route>,
    rules: BTreeSet<Rule>,
}

impl Routing {
    pub(crate) fn open(device: &DeviceName) -> Result<Self, Error> {
        Ok(Self {
            netlink: Netlink::open()?,
            device: device.clone(),
            instance: Instance::of(device),
            links: BTreeMap::new(),
            tunnel: Vec::new(),
            devices: BTreeSet::new(),
        })
    }

    pub(crate) fn netlink(&mut self) -> &mut Netlink {
        &mut self.netlink
    }

    /// Keeps link number `link` on `interface`, as that is now.
    pub(crate) fn set_link(&mut self, link: usize, interface: Interface) -> Result<(), Error> {
        let table = self.instance.link_mark(link)?;
        self.links.insert(table, interface);
        self.apply()
    }

    pub(crate) fn remove_link(&mut self, link: usize) -> Result<(), Error> {
        let table = self.instance.link_mark(link)?;
        self.links.remove(&table);
        self.apply()
    }

    /// Routes exactly these prefixes into the tunnel.
    pub(crate) fn set_tunnel(&mut self, routes: Vec<TunnelRoute>) -> Result<(), Error> {
        self.tunnel = routes;
        self.apply()
    }

    /// Leaves nothing of ours.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        self.links.clear();
        self.tunnel.clear();
        self.apply()
    }

    /// Makes the kernel's state the wanted one: first adds, then deletes, so that no packet falls
    /// through. One refused change does not stop the others; the first refusal is returned.
    fn apply(&mut self) -> Result<(), Error> {
        self.learn_devices();
        let wanted = self.wanted();
        let present = self.present()?;
        let mut outcome = Ok(());
        for route in wanted.routes.difference(&present.routes) {
            outcome = outcome.and(self.netlink.add_route(route));
        }
        for rule in wanted.rules.difference(&present.rules) {
            outcome = outcome.and(self.netlink.add_rule(rule));
        }
        for rule in present.rules.difference(&wanted.rules) {
            outcome = outcome.and(self.netlink.delete_rule(rule));
        }
        for route in present.routes.difference(&wanted.routes) {
            outcome = outcome.and(self.netlink.delete_route(route));
        }
        outcome
    }

    /// Every device that a route was ever wanted for, and the one that an earlier run had.
    fn learn_devices(&mut self) {
        self.devices
            .extend(self.tunnel.iter().map(|route| route.device));
        if let Ok(device) = Interface::lookup(&mut self.netlink, self.device.as_str()) {
            self.devices.insert(device.index);
        }
    }

    fn present(&mut self) -> Result<State, Error> {
        let (tables, priorities) = (self.instance.tables(), self.instance.priorities());
        let own_priorities = priorities.main..=priorities.tunnel;
        let mut state = State::default();
        for family in Family::BOTH {
            let routes = self.netlink.our_routes(family)?.into_iter();
            state.routes.extend(routes.filter(|route| {
                let in_main = route.table == TABLE_MAIN && self.devices.contains(&route.device);
                in_main || tables.contains(&route.table)
            }));
            let rules = self.netlink.rules(family)?.into_iter();
            state.rules.extend(rules.filter(|rule| {
                let own = tables.contains(&rule.table) || own_priorities.contains(&rule.priority);
                rule.is_ours() && own
            }));
        }
        Ok(state)
    }

    fn wanted(&self) -> State {
        let mut state = State::default();
        for route in &self.tunnel {
            self.want_tunnel_route(route, &mut state);
        }
        for (table, interface) in &self.links {
            for family in Family::BOTH {
                // Without an address, or switched off, it has no use for routes, nor takes any.
                let usable = interface.state != LinkState::AdminDown;
                if usable && interface.source(family).is_some() {
                    self.want_link(*table, interface, family, &mut state);
                }
            }
        }
        state
    }

    fn want_tunnel_route(&self, wanted: &TunnelRoute, state: &mut State) {
        let destination = wanted.prefix.net();
        let family = Family::of(destination.addr());
        let mut route = Route::via_device(destination, wanted.device, TABLE_MAIN);
        route.metric = self.instance.metric();
        route.source = wanted.source.filter(|source| Family::of(*source) == family);
        if route.is_default() {
            let priorities = self.instance.priorities();
            route.table = self.instance.tunnel_table();
            state.rules.insert(Rule {
                suppress_prefix_len: Some(0),
                ..Rule::lookup(family, priorities.main, TABLE_MAIN)
            });
            state
                .rules
                .insert(Rule::lookup(family, priorities.tunnel, route.table));
        }
        state.routes.insert(route);
    }

    fn want_link(&self, table: u32, interface: &Interface, family: Family, state: &mut State) {
        state.routes.extend(link_table(table, interface, family));
        let priorities = self.instance.priorities();
        state.rules.insert(Rule {
            mark: Some(table),
            ..Rule::lookup(family, priorities.link, table)
        });
        if self.takes_default(family) {
            let addresses = interface
                .addresses
                .iter()
                .filter(|address| !address.is_link_local());
            let own = addresses.filter(|address| Family::of(address.address()) == family);
            state.rules.extend(own.map(|address| Rule {
                from: Some(IpNet::from(address.address())),
                ..Rule::lookup(family, priorities.from_link, table)
            }));
        }
    }

    fn takes_default(&self, family: Family) -> bool {
        let mut prefixes = self.tunnel.iter().map(|route| route.prefix.net());
        prefixes.any(|prefix| prefix == family.default_prefix())
    }
}

/// The main table as seen from one interface, with a default route in any case.
fn link_table(table: u32, interface: &Interface, family: Family) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for route in interface
        .routes
        .iter()
        .filter(|route| route.family() == family)
    {
        let same =
            |other: &Route| (other.destination, other.metric) == (route.destination, route.metric);
        // Of several next hops with one metric the first will do; the table holds only one.
        if !routes.iter().any(same) {
            routes.push(Route {
                table,
                protocol: PROTOCOL,
                ..route.clone()
            });
        }
    }
    if !routes.iter().any(Route::is_default) {
        let everything = family.default_prefix();
        routes.push(Route::via_device(everything, interface.index, table));
    }
    routes
}
