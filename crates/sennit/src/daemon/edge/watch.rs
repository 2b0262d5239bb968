//! What watches the interfaces of the links, and routes their packets: for all workers.

use std::{error::Error, net::IpAddr};

use sennit_linux::{
    Footprint,
    netlink::{Family, Interface, LinkState, Monitor, Netlink},
};

use super::links::explain;
use crate::{cli::Failure, config};

/// All interfaces that links of the config are on.
pub(super) struct Watch {
    netlink: Netlink,
    monitor: Monitor,
    links: Vec<config::Link>,
    /// UDP payload that a link must carry in one packet.
    payload: u32,
}

/// What was found at a link's interface.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Addresses that packets may leave from, IPv4 and IPv6.
    pub(super) sources: [Option<IpAddr>; 2],
    /// What is wrong with it, if anything.
    pub(super) complaint: Option<String>,
}

impl Watch {
    pub(super) fn open(links: &[config::Link], payload: u16) -> Result<Self, Failure> {
        Ok(Self {
            netlink: Netlink::open()?,
            monitor: Monitor::open()?,
            links: links.to_vec(),
            payload: payload.into(),
        })
    }

    pub(super) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Takes the kernel's messages; true if anything changed.
    pub(super) fn changed(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.monitor.poll_event() {
                Ok(Some(event)) => {
                    tracing::debug!(?event, "the kernel reports a change");
                    changed = true;
                }
                Ok(None) => return changed,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the kernel's messages");
                    return true;
                }
            }
        }
    }

    /// Looks at every interface anew, and routes what has changed.
    pub(super) fn look(&mut self, footprint: &mut Footprint) -> Vec<Found> {
        let looks = self.links.iter().enumerate().map(|(index, link)| {
            let interface = match Interface::lookup(&mut self.netlink, &link.interface) {
                Ok(interface) => interface,
                Err(error) => {
                    // There may be nothing to forget.
                    let _ = footprint.unroute_link(index);
                    return Found {
                        sources: [None; 2],
                        complaint: Some(explain(&error)),
                    };
                }
            };
            let found = examine(&interface, self.payload);
            if let Err(error) = footprint.route_link(index, interface) {
                let error = &error as &dyn Error;
                tracing::warn!(link = link.name, error, "cannot route the link's packets");
            }
            found
        });
        looks.collect()
    }
}

fn examine(interface: &Interface, payload: u32) -> Found {
    let sources = [Family::V4, Family::V6].map(|family| {
        let fits = |address: &IpAddr| interface.mtu >= packet(payload, *address);
        source(interface, family).filter(fits)
    });
    let usable = sources.iter().any(Option::is_some);
    Found {
        sources,
        complaint: (!usable).then(|| complaint(interface, payload)),
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

/// Why an interface cannot be used.
fn complaint(interface: &Interface, payload: u32) -> String {
    let Interface {
        name, state, mtu, ..
    } = interface;
    let any = [Family::V4, Family::V6]
        .into_iter()
        .find_map(|family| source(interface, family));
    match any {
        _ if *state != LinkState::Up => format!("interface {name} is {state}"),
        None => format!("interface {name} has no address"),
        Some(address) => {
            let need = packet(payload, address);
            format!(
                "the MTU of interface {name}, {mtu}, is too small: the tunnel needs {need}; \
                 set mtu lower by {} at the hub and here",
                need.saturating_sub(*mtu)
            )
        }
    }
}
