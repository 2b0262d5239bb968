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
//! A hub's sockets belong to no link. Their packets are marked too, and for each prefix that leads
//! into the tunnel a table has the ways that the main table would have without it: so a tunnel's
//! own packets never go into a tunnel, whatever a site says is behind it. Where the main table
//! knows no other way, the prefix is unreachable for them. A single host in the tunnel, like the
//! hub, is also in a table for what is sent from our own address there: two daemons of a host may
//! have tunnels to one hub, and the main table knows but one way.
//!
//! Classes to which packets belong by what only the kernel knows have a device and a table each.
//! Rules lead what belongs to the class to its table, which holds the prefixes of the tunnel by the
//! device of the class, and what the main table knows better than these.
//!
//! What belongs into the tunnel can be *blocked* while there is none: for each prefix there is a
//! second route behind the tunnel's, by a worse metric, that says unreachable. The tunnel's routes
//! vanish with its device; these, and the rules that lead to them, do not, and so they hold from
//! before the first tunnel on and after a crash.
//!
//! [`Routing`] holds what is wanted, and each change makes the kernel's state equal to it. What a
//! crash left behind is one more difference.

mod classes;
mod lost;
mod passage;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use sennit_packet::Prefix;
use serde::{Deserialize, Serialize};

use crate::{
    DeviceName, Error, Instance,
    netlink::{Family, Interface, LinkState, Netlink, PROTOCOL, Route, Rule, Selector, TABLE_MAIN},
};

pub use self::{classes::ClassRoute, lost::Lost, passage::Passage};

/// Metric of the routes that keep a hub's own packets out of the tunnels: the worst there is, so
/// that any way that the main table knows comes first.
const NOWHERE_METRIC: u32 = u32::MAX;

/// A prefix to be reached through a TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelRoute {
    #[serde(with = "crate::wire::prefix")]
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
    /// In the order in which they are asked.
    classes: Vec<ClassRoute>,
    /// The mark of packets that never go into the tunnel, and their table.
    outer: Option<u32>,
    /// What others have put into the main table, while it matters.
    main: Vec<Route>,
    /// What is unreachable while no route of the tunnel leads there.
    blocked: Vec<Prefix>,
    /// Interface indices by which marked routes of the main table are known to be ours.
    devices: BTreeSet<u32>,
    /// What of all that is wanted was there after the last change.
    held: State,
    /// What of it was found missing by a later one, and nobody has asked for yet.
    lost: Lost,
}

/// The routes and rules that there are, or should be.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    routes: BTreeSet<Route>,
    rules: BTreeSet<Rule>,
}

impl State {
    /// What is in both.
    fn and(&self, other: &Self) -> Self {
        Self {
            routes: &self.routes & &other.routes,
            rules: &self.rules & &other.rules,
        }
    }
}

impl Routing {
    pub(crate) fn open(device: &DeviceName) -> Result<Self, Error> {
        Ok(Self {
            netlink: Netlink::open()?,
            device: device.clone(),
            instance: Instance::of(device),
            links: BTreeMap::new(),
            tunnel: Vec::new(),
            classes: Vec::new(),
            outer: None,
            main: Vec::new(),
            blocked: Vec::new(),
            devices: BTreeSet::new(),
            held: State::default(),
            lost: Lost::default(),
        })
    }

    pub(crate) fn netlink(&mut self) -> &mut Netlink {
        &mut self.netlink
    }

    /// Keeps link number `link` on `interface`, as that is now. What is refused of other links is
    /// theirs to report.
    pub(crate) fn set_link(&mut self, link: usize, interface: Interface) -> Result<(), Error> {
        let table = self.instance.link_mark(link)?;
        self.links.insert(table, interface);
        self.apply(|changed| changed == table)
    }

    pub(crate) fn remove_link(&mut self, link: usize) -> Result<(), Error> {
        let table = self.instance.link_mark(link)?;
        self.links.remove(&table);
        self.apply(|changed| changed == table)
    }

    /// Routes exactly these prefixes into the tunnel, and these packets of them to classes.
    pub(crate) fn set_tunnel(
        &mut self,
        routes: Vec<TunnelRoute>,
        classes: Vec<ClassRoute>,
    ) -> Result<(), Error> {
        self.tunnel = routes;
        self.classes = classes;
        let tunnel = self.instance.tunnel_table();
        let classes = self.instance.class_table(0)..self.instance.hub_table();
        self.apply(|changed| {
            changed == tunnel || changed == TABLE_MAIN || classes.contains(&changed)
        })
    }

    /// Keeps packets out of the tunnel that have this mark from now on.
    pub(crate) fn keep_outside(&mut self) -> Result<u32, Error> {
        let mark = self.instance.link_mark(0)?;
        self.outer = Some(mark);
        self.apply(|_| true)?;
        Ok(mark)
    }

    /// Exactly these prefixes are unreachable where they are not routed into the tunnel.
    pub(crate) fn set_blocked(&mut self, blocked: &[Prefix]) -> Result<(), Error> {
        self.blocked = blocked.to_vec();
        self.apply(|changed| changed == TABLE_MAIN)
    }

    /// Leaves nothing of ours but that exactly these prefixes are unreachable.
    pub(crate) fn reset(&mut self, blocked: Vec<Prefix>) -> Result<(), Error> {
        self.links.clear();
        self.outer = None;
        self.tunnel.clear();
        self.classes.clear();
        self.blocked = blocked;
        self.apply(|_| true)
    }

    /// The prefixes that are unreachable without a tunnel: there are routes that say so, and the
    /// rules that lead to them.
    pub(crate) fn find_blocked(&mut self) -> Result<Vec<Prefix>, Error> {
        let present = self.present()?;
        let mut blocked = self.blocked_in(&present);
        blocked.retain(|prefix| {
            let mut needed = State::default();
            self.want_blocked(*prefix, &mut needed);
            needed.rules.is_subset(&present.rules)
        });
        Ok(blocked)
    }

    /// The prefixes that an earlier run has made unreachable, though somebody may have taken away
    /// the rules that lead there.
    pub(crate) fn find_left_blocked(&mut self) -> Result<Vec<Prefix>, Error> {
        let present = self.present()?;
        Ok(self.blocked_in(&present))
    }

    fn blocked_in(&self, present: &State) -> Vec<Prefix> {
        let metric = self.instance.block_metric();
        let routes = present.routes.iter();
        let blocking = routes.filter(|route| route.unreachable && route.metric == metric);
        let blocked = blocking.map(|route| {
            let net = route.destination;
            Prefix::around(net.network(), net.prefix_len())
        });
        blocked.collect()
    }

    /// Makes the kernel's state the wanted one: first adds, then deletes, so that no packet falls
    /// through. One refused change does not stop the others; the first refusal in a table of
    /// `interest` is returned.
    fn apply(&mut self, interest: impl Fn(u32) -> bool) -> Result<(), Error> {
        self.learn_devices();
        self.learn_main_table()?;
        let wanted = self.wanted();
        let present = self.present()?;
        self.count_lost(&wanted, &present);
        self.held = wanted.and(&present);
        let mut outcome = Ok(());
        let mut note = |table, done: Result<bool, Error>| match done {
            Err(error) if !interest(table) => {
                tracing::debug!(%error, "refused elsewhere");
                false
            }
            Err(error) => {
                if outcome.is_ok() {
                    outcome = Err(error);
                }
                false
            }
            Ok(is_there) => is_there,
        };
        for route in wanted.routes.difference(&present.routes) {
            if note(route.table, self.netlink.add_route(route)) {
                self.held.routes.insert(route.clone());
            }
        }
        for rule in wanted.rules.difference(&present.rules) {
            if note(rule.table, self.netlink.add_rule(rule)) {
                self.held.rules.insert(rule.clone());
            }
        }
        for rule in present.rules.difference(&wanted.rules) {
            note(rule.table, self.netlink.delete_rule(rule).map(|()| false));
        }
        for route in present.routes.difference(&wanted.routes) {
            note(
                route.table,
                self.netlink.delete_route(route).map(|()| false),
            );
        }
        outcome
    }

    /// Every device that a route was ever wanted for, and the one that an earlier run had.
    fn learn_devices(&mut self) {
        self.devices
            .extend(self.tunnel.iter().map(|route| route.device));
        self.devices
            .extend(self.classes.iter().map(|route| route.device));
        if let Ok(device) = Interface::lookup(&mut self.netlink, self.device.as_str()) {
            self.devices.insert(device.index);
        }
    }

    fn learn_main_table(&mut self) -> Result<(), Error> {
        self.main.clear();
        if self.outer.is_none() && self.classes.is_empty() || self.tunnel.is_empty() {
            return Ok(());
        }
        for family in Family::BOTH {
            let mut routes = self.netlink.main_routes(family)?;
            routes.retain(|route| !self.devices.contains(&route.device));
            self.main.append(&mut routes);
        }
        Ok(())
    }

    fn present(&mut self) -> Result<State, Error> {
        let (tables, priorities) = (self.instance.tables(), self.instance.priorities());
        let own_priorities = priorities.main..=priorities.tunnel;
        let mut state = State::default();
        for family in Family::BOTH {
            let routes = self.netlink.our_routes(family)?.into_iter();
            state.routes.extend(routes.filter(|route| {
                let own = self.devices.contains(&route.device)
                    || route.unreachable && route.metric == self.instance.block_metric();
                let in_main = route.table == TABLE_MAIN && own;
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
        if let Some(table) = self.outer {
            self.want_outside(table, &mut state);
        }
        for (priority, class) in (self.instance.priorities().class..).zip(&self.classes) {
            self.want_class(priority, class, &mut state);
        }
        for prefix in &self.blocked {
            self.want_blocked(*prefix, &mut state);
        }
        self.want_links(&mut state);
        state
    }

    fn want_blocked(&self, prefix: Prefix, state: &mut State) {
        let metric = self.instance.block_metric();
        let route = Route::unreachable(prefix.net(), TABLE_MAIN, metric);
        self.want_into_tunnel(route, state);
    }

    fn want_links(&self, state: &mut State) {
        for (table, interface) in &self.links {
            for family in Family::BOTH {
                // Without an address, or switched off, it has no use for routes, nor takes any.
                let usable = interface.state != LinkState::AdminDown;
                if usable && interface.source(family).is_some() {
                    self.want_link(*table, interface, family, state);
                }
            }
        }
    }

    fn want_tunnel_route(&self, wanted: &TunnelRoute, state: &mut State) {
        let destination = wanted.prefix.net();
        let family = Family::of(destination.addr());
        let mut route = Route::via_device(destination, wanted.device, TABLE_MAIN);
        route.metric = self.instance.metric();
        route.source = wanted.source.filter(|source| Family::of(*source) == family);
        let host = destination.prefix_len() == destination.max_prefix_len();
        if let Some(source) = route.source.filter(|_| host) {
            let table = self.instance.hub_table();
            state.routes.insert(Route {
                table,
                ..route.clone()
            });
            state.rules.insert(Rule {
                only: Selector::from(source),
                ..Rule::lookup(family, self.instance.priorities().link, table)
            });
        }
        self.want_into_tunnel(route, state);
    }

    /// A route for what belongs into the tunnel: in the main table, but a default route in the
    /// tunnel's own, with the rules that lead there.
    fn want_into_tunnel(&self, mut route: Route, state: &mut State) {
        if route.is_default() {
            let (family, priorities) = (route.family(), self.instance.priorities());
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

    fn want_outside(&self, table: u32, state: &mut State) {
        for family in Family::BOTH {
            state.rules.insert(Rule {
                only: Selector::marked(table),
                ..Rule::lookup(family, self.instance.priorities().link, table)
            });
        }
        let place = |route: &Route| (route.destination, route.metric);
        let there = state.routes.iter().filter(|it| it.table == table);
        let mut taken: BTreeSet<(IpNet, u32)> = there.map(place).collect();
        for route in &self.tunnel {
            let nowhere = Route::unreachable(route.prefix.net(), table, NOWHERE_METRIC);
            taken.insert(place(&nowhere));
            state.routes.insert(nowhere);
            for way in ways_without(route.prefix.net(), &self.main, table) {
                if taken.insert(place(&way)) {
                    state.routes.insert(way);
                }
            }
        }
    }

    fn want_link(&self, table: u32, interface: &Interface, family: Family, state: &mut State) {
        state.routes.extend(link_table(table, interface, family));
        let priorities = self.instance.priorities();
        state.rules.insert(Rule {
            only: Selector::marked(table),
            ..Rule::lookup(family, priorities.link, table)
        });
        if self.takes_default(family) {
            let addresses = interface
                .addresses
                .iter()
                .filter(|address| !address.is_link_local());
            let own = addresses.filter(|address| Family::of(address.address()) == family);
            state.rules.extend(own.map(|address| Rule {
                only: Selector::from(address.address()),
                ..Rule::lookup(family, priorities.from_link, table)
            }));
        }
    }

    fn takes_default(&self, family: Family) -> bool {
        let tunnel = self.tunnel.iter().map(|route| &route.prefix);
        let mut prefixes = tunnel.chain(&self.blocked).map(Prefix::net);
        prefixes.any(|prefix| prefix == family.default_prefix())
    }
}

/// How `prefix` is reached by `main`: by what it has inside the prefix, and else by the longest
/// prefix around it.
fn ways_without(prefix: IpNet, main: &[Route], table: u32) -> Vec<Route> {
    let inside = |route: &&Route| prefix.contains(&route.destination);
    let around = |route: &&Route| route.destination.contains(&prefix) && !inside(route);
    let longest = main.iter().filter(around).max_by_key(|route| {
        (
            route.destination.prefix_len(),
            std::cmp::Reverse(route.metric),
        )
    });
    let narrowed = longest.map(|route| Route {
        destination: prefix,
        ..route.clone()
    });
    let whole = |route: &Route| route.destination == prefix;
    let inside: Vec<Route> = main.iter().filter(inside).cloned().collect();
    let narrowed = narrowed.filter(|_| !inside.iter().any(whole));
    let ways = inside.into_iter().chain(narrowed);
    ways.map(|route| Route {
        table,
        protocol: PROTOCOL,
        ..route
    })
    .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, device: u32) -> Route {
        Route {
            protocol: 4,
            ..Route::via_device(destination.parse().unwrap(), device, TABLE_MAIN)
        }
    }

    #[test]
    fn an_announced_prefix_is_reached_from_outside_as_if_it_had_not_been_announced() {
        let main = [
            route("0.0.0.0/0", 1),
            route("10.0.0.0/8", 2),
            route("10.9.5.0/24", 3),
            route("::/0", 4),
        ];
        let ways = |prefix: &str| -> Vec<(String, u32)> {
            let ways = ways_without(prefix.parse().unwrap(), &main, 7);
            assert!(ways.iter().all(|way| way.table == 7 && way.is_ours()));
            let seen = ways
                .iter()
                .map(|way| (way.destination.to_string(), way.device));
            seen.collect()
        };
        let is = |destination: &str, device| (destination.to_owned(), device);

        assert_eq!(ways("1.1.1.1/32"), [is("1.1.1.1/32", 1)]);
        assert_eq!(
            ways("10.9.0.0/16"),
            [is("10.9.5.0/24", 3), is("10.9.0.0/16", 2)]
        );
        assert_eq!(ways("10.9.5.0/24"), [is("10.9.5.0/24", 3)]);
        assert_eq!(ways("fd08::/64"), [is("fd08::/64", 4)]);
    }
}
