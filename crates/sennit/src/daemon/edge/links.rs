//! The edge's links: which interface has what address, and the sockets bound to them.

use std::{error::Error, iter, net::IpAddr, time::Instant};

use sennit_engine::{Edge, LinkLabel, LinkUpdate, SocketId};
use sennit_linux::{
    Footprint,
    netlink::{Family, Interface, LinkState as Carrier, Monitor, Netlink},
    udp::{LinkBinding, LinkSocket},
};

use super::super::worker::Io;
use crate::{
    cli::Failure,
    config,
    status::{LinkState, LinkStatus},
};

/// All links of the config, and what watches them.
pub(super) struct Links {
    netlink: Netlink,
    monitor: Monitor,
    links: Vec<Link>,
    /// UDP payload that a link must carry in one packet.
    payload: u32,
}

struct Link {
    config: config::Link,
    /// Addresses that its sockets are bound to, IPv4 and IPv6.
    bound: [Option<IpAddr>; 2],
    /// What is wrong with it, if anything.
    reason: Option<String>,
}

impl Links {
    pub(super) fn open(links: &[config::Link], payload: u16) -> Result<Self, Failure> {
        let links = links.iter().map(|config| Link {
            config: config.clone(),
            bound: [None; 2],
            reason: Some("not looked at yet".into()),
        });
        Ok(Self {
            netlink: Netlink::open()?,
            monitor: Monitor::open()?,
            links: links.collect(),
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

    /// Looks at every interface anew, and binds and routes what has changed.
    pub(super) fn refresh(
        &mut self,
        edge: &mut Edge,
        footprint: &mut Footprint,
        io: &mut Io,
        now: Instant,
    ) {
        for (index, link) in self.links.iter_mut().enumerate() {
            let interface = Interface::lookup(&mut self.netlink, &link.config.interface);
            let before = (link.bound, link.reason.clone());
            link.examine(interface, self.payload, index, footprint, io);
            if before != (link.bound, link.reason.clone()) {
                link.log();
                edge.handle_link(link.update(index), now);
            }
        }
    }

    /// Tells a new engine of all links.
    pub(super) fn announce(&self, edge: &mut Edge, now: Instant) {
        for (index, link) in self.links.iter().enumerate() {
            edge.handle_link(link.update(index), now);
        }
    }

    pub(super) fn status(&self) -> Vec<LinkStatus> {
        self.links.iter().map(Link::status).collect()
    }
}

impl Link {
    /// Brings sockets and routes in line with the interface.
    fn examine(
        &mut self,
        interface: Result<Interface, sennit_linux::Error>,
        payload: u32,
        index: usize,
        footprint: &mut Footprint,
        io: &mut Io,
    ) {
        let interface = match interface {
            Ok(interface) => interface,
            Err(error) => {
                self.unbind(index, io);
                self.reason = Some(explain(&error));
                // There may be nothing to forget.
                let _ = footprint.unroute_link(index);
                return;
            }
        };
        let wanted = [Family::V4, Family::V6].map(|family| {
            let fits = |address: &IpAddr| interface.mtu >= packet(payload, *address);
            source(&interface, family).filter(fits)
        });
        self.reason = match wanted {
            [None, None] => Some(complaint(&interface, payload)),
            [Some(_), _] | [_, Some(_)] => None,
        };
        if let Err(error) = footprint.route_link(index, interface) {
            let error = &error as &dyn Error;
            tracing::warn!(
                link = self.config.name,
                error,
                "cannot route the link's packets"
            );
        }
        for address in wanted.into_iter().flatten() {
            self.bind(address, index, footprint, io);
        }
        for (family, any) in [(0, IpAddr::from([0; 4])), (1, IpAddr::from([0; 16]))] {
            if wanted[family].is_none() && self.bound[family].take().is_some() {
                drop_socket(index, any, io);
            }
        }
    }

    /// Binds a socket to `address` unless there is one.
    fn bind(&mut self, address: IpAddr, index: usize, footprint: &Footprint, io: &mut Io) {
        let family = usize::from(address.is_ipv6());
        if self.bound[family] == Some(address) {
            return;
        }
        let device = &self.config.interface;
        let bound = footprint.link_mark(index).and_then(|mark| {
            LinkSocket::bind(&LinkBinding {
                device,
                address,
                mark: Some(mark),
            })
        });
        match bound {
            Ok(socket) => {
                if let Err(error) = io.set_socket(SocketId(index as u32), address, Some(socket)) {
                    self.reason = Some(format!("cannot watch the socket: {error}"));
                    return;
                }
                self.bound[family] = Some(address);
            }
            Err(error) => {
                self.bound[family] = None;
                self.reason = Some(explain(&error));
            }
        }
    }

    fn unbind(&mut self, index: usize, io: &mut Io) {
        for address in std::mem::take(&mut self.bound).into_iter().flatten() {
            drop_socket(index, address, io);
        }
    }

    fn update(&self, index: usize) -> LinkUpdate {
        LinkUpdate {
            socket: SocketId(index as u32),
            label: LinkLabel {
                name: self.config.name.clone(),
                tier: self.config.tier,
                weight: self.config.weight,
            },
            v4: self.bound[0].is_some(),
            v6: self.bound[1].is_some(),
        }
    }

    fn log(&self) {
        let config::Link {
            name, interface, ..
        } = &self.config;
        match &self.reason {
            Some(reason) => tracing::warn!(link = name, interface, reason, "link is down"),
            None => tracing::info!(link = name, interface, "link is up"),
        }
    }

    fn status(&self) -> LinkStatus {
        let up = self.bound.iter().any(Option::is_some);
        LinkStatus {
            name: self.config.name.clone(),
            interface: self.config.interface.clone(),
            address: self.bound[0].or(self.bound[1]),
            tier: self.config.tier,
            weight: self.config.weight,
            state: if up { LinkState::Up } else { LinkState::Down },
            reason: self.reason.clone(),
        }
    }
}

/// The address that packets of a family may leave from.
fn source(interface: &Interface, family: Family) -> Option<IpAddr> {
    let source = interface.source(family);
    source.filter(|_| interface.state == Carrier::Up)
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
        _ if *state != Carrier::Up => format!("interface {name} is {state}"),
        None => format!("interface {name} has no address"),
        Some(address) => {
            let need = packet(payload, address);
            format!("the MTU of interface {name}, {mtu}, is too small: the tunnel needs {need}")
        }
    }
}

/// An error and what caused it.
fn explain(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn drop_socket(index: usize, family_of: IpAddr, io: &mut Io) {
    if let Err(error) = io.set_socket(SocketId(index as u32), family_of, None) {
        tracing::warn!(link = index, %error, "cannot stop watching a socket");
    }
}
