//! What watches the interfaces of the links, and routes their packets: for all workers.

use std::{
    error::Error,
    net::IpAddr,
    time::{Duration, Instant},
};

use sennit_engine::LEAST_PAYLOAD;
use sennit_linux::netlink::{Family, Interface, LinkEvent, LinkState, Monitor, Netlink};

use super::{causes::explain, ground::Host, running::Running};
use crate::{
    config::{self, Match},
    exit::Failure,
    status::LinkCause,
};

/// Between two looks because of routes, which a routing daemon may change all the time. It is
/// nothing beside the seconds that a link needs to come up.
const REST: Duration = Duration::from_millis(250);

/// All interfaces that links of the config are on.
pub(super) struct Watch {
    netlink: Netlink,
    monitor: Monitor,
    /// By their numbers.
    links: Vec<Option<config::Link>>,
    /// What is known of each.
    seen: Vec<Seen>,
    /// Numbers of our TUN devices.
    devices: Vec<u32>,
    /// Routes that others put into the main table are copied for classes.
    follows_main_table: bool,
    /// UDP payload of the tunnel's packets.
    payload: u32,
    pace: Pace,
}

/// What is known of a link since it was looked at last.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The number of its interface; 0 if there was none.
    interface: u32,
    /// The addresses that it had last, IPv4 and IPv6.
    sources: [Option<IpAddr>; 2],
    /// What the log knows of the interface's MTU.
    told_mtu: Option<u32>,
    /// Its packets could not be routed, as the log knows.
    told_unrouted: bool,
}

/// When to look at interfaces for what may change often.
#[derive(Debug, Default)]
struct Pace {
    look_at: Option<Instant>,
    rests_until: Option<Instant>,
}

impl Pace {
    /// There may be something to see: now, or after a rest.
    fn want_look(&mut self, now: Instant) {
        let at = self.rests_until.map_or(now, |until| until.max(now));
        self.look_at.get_or_insert(at);
    }

    fn note_look(&mut self, now: Instant) {
        self.look_at = None;
        self.rests_until = Some(now + REST);
    }
}

/// What the kernel has reported, the weightiest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Also what happens to interfaces that are no business of ours.
    Nothing,
    /// Something of this host that is ours, or that it is made of.
    Ours,
    /// Routes of links, or interfaces that may be theirs: to be looked at, but not each time.
    Ways,
    /// Interfaces of links, or their addresses: to be looked at now.
    Links,
}

/// What was found at a link's interface.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Addresses that packets may leave from, IPv4 and IPv6.
    pub(super) sources: [Option<IpAddr>; 2],
    /// The number of the interface, which another one of the same name does not have; 0 if there
    /// is none.
    pub(super) interface: u32,
    /// What is wrong with it, if anything.
    pub(super) complaint: Option<Complaint>,
    /// Largest IP packet that it sends.
    pub(super) mtu: Option<u32>,
    /// Its packets could not be routed to it.
    pub(super) is_unrouted: bool,
}

/// Why a link cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) cause: LinkCause,
    pub(super) text: String,
}

impl Found {
    /// In a place without a link.
    const NOTHING: Self = Self {
        sources: [None; 2],
        interface: 0,
        complaint: None,
        mtu: None,
        is_unrouted: false,
    };
}

impl Watch {
    /// `devices` are the numbers of our own, and `payload` is that of the tunnel's packets.
    pub(super) fn open(
        running: &Running,
        devices: Vec<u32>,
        payload: u16,
    ) -> Result<Self, Failure> {
        Ok(Self {
            netlink: Netlink::open()?,
            monitor: Monitor::open()?,
            links: running.links.clone(),
            seen: vec![Seen::default(); running.links.len()],
            devices,
            follows_main_table: follows_main_table(running),
            payload: payload.into(),
            pace: Pace::default(),
        })
    }

    /// Goes on with the links of another config, each in its place.
    pub(super) fn change(&mut self, running: &Running, host: &Host) {
        let links = &running.links;
        for (index, before) in self.links.iter().enumerate() {
            let after = links.get(index).and_then(Option::as_ref);
            let same =
                |link: &config::Link| after.is_some_and(|after| after.interface == link.interface);
            if before.as_ref().is_some_and(|before| !same(before)) {
                // There may be nothing to forget.
                let _ = host.ask(move |host| host.unroute_link(index));
            }
        }
        self.links = links.clone();
        self.follows_main_table = follows_main_table(running);
        self.seen.resize_with(links.len(), Seen::default);
        for seen in &mut self.seen {
            (seen.told_mtu, seen.told_unrouted) = (None, false);
        }
    }

    pub(super) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Takes the kernel's messages; what they are about.
    pub(super) fn changed(&mut self) -> Change {
        let mut change = Change::Nothing;
        loop {
            match self.monitor.poll_event() {
                Ok(Some(event)) => {
                    tracing::debug!(?event, "the kernel reports a change");
                    change = change.max(self.weigh(&event));
                }
                Ok(None) => return change,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the kernel's messages");
                    return Change::Ways;
                }
            }
        }
    }

    /// What an event means to us. Most that happens on a router with containers, or with a routing
    /// daemon, means nothing.
    fn weigh(&self, event: &LinkEvent) -> Change {
        match event {
            LinkEvent::OursDeleted => Change::Ours,
            // It may have been anything.
            LinkEvent::Overflow => Change::Ways,
            LinkEvent::Up { index, name }
            | LinkEvent::Down { index, name, .. }
            | LinkEvent::Gone { index, name } => self.has(*index).max(self.may_be(name)),
            LinkEvent::MtuChanged { index, .. }
            | LinkEvent::AddressAdded { index, .. }
            | LinkEvent::AddressRemoved { index, .. } => self.has(*index),
            LinkEvent::RouteChanged { index } => {
                let copied = match self.follows_main_table {
                    true => Change::Ours,
                    false => Change::Nothing,
                };
                self.has(*index).min(Change::Ways).max(copied)
            }
        }
    }

    /// Whose an interface is.
    fn has(&self, index: u32) -> Change {
        // 0 is none.
        if index != 0 && self.seen.iter().any(|seen| seen.interface == index) {
            Change::Links
        } else if self.devices.contains(&index) {
            Change::Ours
        } else {
            Change::Nothing
        }
    }

    /// Whose an interface with this name may be.
    fn may_be(&self, name: &str) -> Change {
        let mut links = self.links.iter().flatten();
        if links.any(|link| link.interface == name) {
            return Change::Links;
        }
        // A link may call its interface by another of that one's names.
        let mut places = self.links.iter().zip(&self.seen);
        match places.any(|(link, seen)| link.is_some() && seen.interface == 0) {
            true => Change::Ways,
            false => Change::Nothing,
        }
    }

    /// Has [`Self::is_to_look`] say when to look because of [`Change::Ways`].
    pub(super) fn want_look(&mut self, now: Instant) {
        self.pace.want_look(now);
    }

    pub(super) fn is_to_look(&self, now: Instant) -> bool {
        self.pace.look_at.is_some_and(|at| at <= now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.pace.look_at
    }

    /// Looks at every interface anew, and routes what has changed.
    pub(super) fn look(&mut self, host: &Host, now: Instant) -> Vec<Found> {
        self.pace.note_look(now);
        let (netlink, payload) = (&mut self.netlink, self.payload);
        let places = self.links.iter().zip(&mut self.seen).enumerate();
        let looks = places.map(|(index, (link, seen))| {
            let Some(link) = link else {
                seen.interface = 0;
                return Found::NOTHING;
            };
            let interface = match Interface::lookup(netlink, &link.interface) {
                Ok(interface) => interface,
                Err(error) => {
                    seen.interface = 0;
                    // There may be nothing to forget.
                    let _ = host.ask(move |host| host.unroute_link(index));
                    return Found {
                        complaint: Some(missing(&error)),
                        ..Found::NOTHING
                    };
                }
            };
            let mut found = examine(&interface, seen);
            let told = std::mem::replace(&mut seen.told_mtu, found.mtu);
            if told != found.mtu {
                tell_size(link, &interface, &found, payload);
            }
            let routed = host.ask(move |host| host.route_link(index, &interface.name));
            found.is_unrouted = routed.is_err();
            let told = std::mem::replace(&mut seen.told_unrouted, found.is_unrouted);
            if let Err(error) = routed
                && !told
            {
                let error = &error as &dyn Error;
                tracing::warn!(link = link.name, error, "cannot route the link's packets");
            }
            found
        });
        looks.collect()
    }
}

/// Whether classes have ways of their own, in which others' routes of the main table come first.
fn follows_main_table(running: &Running) -> bool {
    let mut rules = running.config.classes.iter().flat_map(|it| &it.matches);
    rules.any(Match::is_kernel)
}

/// What an interface is good for, which is remembered. Its addresses stay while they are good.
fn examine(interface: &Interface, seen: &mut Seen) -> Found {
    seen.interface = interface.index;
    let sources = [(Family::V4, 0), (Family::V6, 1)].map(|(family, place)| {
        let kept = &mut seen.sources[place];
        let source = interface.source_or_kept(family, *kept);
        *kept = source.or(*kept);
        source.filter(|address| {
            let enough = packet(LEAST_PAYLOAD.into(), *address);
            interface.state == LinkState::Up && interface.mtu >= enough
        })
    });
    let usable = sources.iter().any(Option::is_some);
    Found {
        sources,
        interface: interface.index,
        complaint: (!usable).then(|| complaint(interface)),
        mtu: Some(interface.mtu),
        is_unrouted: false,
    }
}

/// Says that the tunnel's packets leave a link in halves, if they do.
fn tell_size(link: &config::Link, interface: &Interface, found: &Found, payload: u32) {
    let mut sources = found.sources.iter().flatten();
    let need = sources.clone().map(|source| packet(payload, *source)).max();
    if sources.any(|source| interface.mtu < packet(payload, *source)) {
        let (link, mtu) = (&link.name, interface.mtu);
        tracing::info!(
            link,
            interface = interface.name,
            mtu,
            need,
            "the interface's MTU is less than a full packet of the tunnel: those go in two halves there"
        );
    }
}

/// Size of an IP packet with this UDP payload.
fn packet(payload: u32, source: IpAddr) -> u32 {
    payload + if source.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

/// Why an interface could not be looked at.
fn missing(error: &sennit_linux::Error) -> Complaint {
    let cause = match error {
        sennit_linux::Error::NoInterface(_) => LinkCause::NoInterface,
        _ => LinkCause::Unusable,
    };
    let text = explain(error);
    Complaint { cause, text }
}

/// Why an interface cannot be used.
fn complaint(interface: &Interface) -> Complaint {
    let Interface {
        name, state, mtu, ..
    } = interface;
    let any = Family::BOTH.into_iter();
    let any = any.filter_map(|family| interface.source(family)).next();
    let (cause, text) = match any {
        _ if *state != LinkState::Up => (
            LinkCause::InterfaceDown,
            format!("interface {name} is {state}"),
        ),
        None => (
            LinkCause::NoAddress,
            format!("interface {name} has no address"),
        ),
        Some(address) => {
            let need = packet(LEAST_PAYLOAD.into(), address);
            let text =
                format!("the MTU of interface {name}, {mtu}, is too small: QUIC needs {need}");
            (LinkCause::MtuTooSmall, text)
        }
    };
    Complaint { cause, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::edge::tests::config;

    const WWAN: u32 = 7;
    const OURS: u32 = 9;
    const OTHER: u32 = 12;

    /// The watch over the link `lte` on `wwan0`.
    fn watch() -> Watch {
        let running = Running::new(config("", &["all"]), Vec::new());
        let mut watch = Watch::open(&running, vec![OURS], 1400).unwrap();
        watch.seen[0].interface = WWAN;
        watch
    }

    fn up(index: u32, name: &str) -> LinkEvent {
        let name = name.into();
        LinkEvent::Up { index, name }
    }

    fn down(index: u32, name: &str) -> LinkEvent {
        LinkEvent::Down {
            index,
            name: name.into(),
            state: LinkState::NoCarrier,
        }
    }

    fn address(index: u32) -> LinkEvent {
        let address = [192, 0, 2, 1].into();
        LinkEvent::AddressRemoved { index, address }
    }

    #[test]
    fn what_happens_to_a_link_is_looked_at_now_and_its_routes_soon() {
        let watch = watch();
        for event in [down(WWAN, "wwan0"), address(WWAN), up(OTHER, "wwan0")] {
            assert_eq!(watch.weigh(&event), Change::Links, "{event:?}");
        }
        let route = LinkEvent::RouteChanged { index: WWAN };
        assert_eq!(watch.weigh(&route), Change::Ways);
        assert_eq!(watch.weigh(&LinkEvent::Overflow), Change::Ways);
    }

    #[test]
    fn what_happens_to_interfaces_of_others_is_nothing_to_us() {
        let mut watch = watch();
        let route = LinkEvent::RouteChanged { index: OTHER };
        let unreachable = LinkEvent::RouteChanged { index: 0 };
        let others = [
            up(OTHER, "veth1"),
            down(OTHER, "veth1"),
            address(OTHER),
            route,
            unreachable,
        ];
        for event in &others {
            assert_eq!(watch.weigh(event), Change::Nothing, "{event:?}");
        }
        assert_eq!(watch.weigh(&address(OURS)), Change::Ours);
        assert_eq!(watch.weigh(&LinkEvent::OursDeleted), Change::Ours);

        watch.follows_main_table = true;
        assert_eq!(watch.weigh(&others[3]), Change::Ours);
        watch.seen[0].interface = 0;
        assert_eq!(
            watch.weigh(&others[0]),
            Change::Ways,
            "wwan0 may be its other name"
        );
        assert_eq!(
            watch.weigh(&others[4]),
            Change::Ours,
            "no interface is not the missing one"
        );
    }

    #[test]
    fn the_first_look_is_at_once_and_there_is_a_rest_before_the_next() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.want_look(now);
        assert_eq!(pace.look_at, Some(now));

        pace.note_look(now);
        assert_eq!(pace.look_at, None);
        for millis in [1, 100, 200] {
            pace.want_look(now + Duration::from_millis(millis));
            assert_eq!(pace.look_at, Some(now + REST));
        }
        pace.note_look(now + REST);
        pace.want_look(now + REST * 3);
        assert_eq!(pace.look_at, Some(now + REST * 3));
    }
}
