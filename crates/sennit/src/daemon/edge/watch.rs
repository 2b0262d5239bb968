//! What watches the interfaces of the links, and routes their packets: for all workers.

use std::{error::Error, net::IpAddr};

use sennit_engine::LEAST_PAYLOAD;
use sennit_linux::netlink::{Family, Interface, LinkEvent, LinkState, Monitor, Netlink};

use super::{causes::explain, ground::Host};
use crate::{config, exit::Failure, status::LinkCause};

/// All interfaces that links of the config are on.
pub(super) struct Watch {
    netlink: Netlink,
    monitor: Monitor,
    /// By their numbers.
    links: Vec<Option<config::Link>>,
    /// UDP payload of the tunnel's packets.
    payload: u32,
    /// What the log knows of the MTUs of their interfaces.
    told: Vec<Option<u32>>,
    /// Those whose packets could not be routed, as the log knows.
    unrouted: Vec<bool>,
}

/// What the kernel has reported, the weightiest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    Nothing,
    /// Routes or rules of this host with our mark were deleted.
    Ours,
    /// Interfaces, addresses or routes that links stand on.
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
    pub(super) fn open(links: &[Option<config::Link>], payload: u16) -> Result<Self, Failure> {
        Ok(Self {
            netlink: Netlink::open()?,
            monitor: Monitor::open()?,
            links: links.to_vec(),
            told: vec![None; links.len()],
            unrouted: vec![false; links.len()],
            payload: payload.into(),
        })
    }

    /// Goes on with other links, each in its place.
    pub(super) fn set_links(&mut self, links: &[Option<config::Link>], host: &Host) {
        for (index, before) in self.links.iter().enumerate() {
            let after = links.get(index).and_then(Option::as_ref);
            let same =
                |link: &config::Link| after.is_some_and(|after| after.interface == link.interface);
            if before.as_ref().is_some_and(|before| !same(before)) {
                // There may be nothing to forget.
                let _ = host.ask(move |host| host.unroute_link(index));
            }
        }
        self.links = links.to_vec();
        self.told = vec![None; links.len()];
        self.unrouted = vec![false; links.len()];
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
                    change = change.max(match event {
                        LinkEvent::OursDeleted => Change::Ours,
                        LinkEvent::Up { .. }
                        | LinkEvent::Down { .. }
                        | LinkEvent::MtuChanged { .. }
                        | LinkEvent::Gone { .. }
                        | LinkEvent::AddressAdded { .. }
                        | LinkEvent::AddressRemoved { .. }
                        | LinkEvent::RouteChanged { .. }
                        | LinkEvent::Overflow => Change::Links,
                    });
                }
                Ok(None) => return change,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the kernel's messages");
                    return Change::Links;
                }
            }
        }
    }

    /// Looks at every interface anew, and routes what has changed.
    pub(super) fn look(&mut self, host: &Host) -> Vec<Found> {
        let looks = self.links.iter().enumerate().map(|(index, link)| {
            let Some(link) = link else {
                return Found::NOTHING;
            };
            let interface = match Interface::lookup(&mut self.netlink, &link.interface) {
                Ok(interface) => interface,
                Err(error) => {
                    // There may be nothing to forget.
                    let _ = host.ask(move |host| host.unroute_link(index));
                    return Found {
                        complaint: Some(missing(&error)),
                        ..Found::NOTHING
                    };
                }
            };
            let mut found = examine(&interface);
            let told = std::mem::replace(&mut self.told[index], found.mtu);
            if told != found.mtu {
                tell_size(link, &interface, &found, self.payload);
            }
            let routed = host.ask(move |host| host.route_link(index, &interface.name));
            found.is_unrouted = routed.is_err();
            let told = std::mem::replace(&mut self.unrouted[index], found.is_unrouted);
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

fn examine(interface: &Interface) -> Found {
    let sources = [Family::V4, Family::V6].map(|family| {
        let fits = |address: &IpAddr| interface.mtu >= packet(LEAST_PAYLOAD.into(), *address);
        source(interface, family).filter(fits)
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

/// The address that packets of a family may leave from.
fn source(interface: &Interface, family: Family) -> Option<IpAddr> {
    let source = interface.source(family);
    source.filter(|_| interface.state == LinkState::Up)
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
    let any = [Family::V4, Family::V6]
        .into_iter()
        .find_map(|family| source(interface, family));
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
