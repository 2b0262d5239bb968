//! What passes between machines and links at one instant.

use std::{net::SocketAddr, time::Instant};

use bytes::BytesMut;
use sennit_engine::{EdgeEvent, Grant, HubEvent, Local, Origin, Received, RequestId, SocketId};
use sennit_netem::Direction;
use sennit_packet::gso::VirtioNetHdr;

use crate::{
    Arrival, CREDENTIAL, TooBig, World,
    cable::{Cable, Wire},
    happenings::REVOKED,
    setup::{hub_address, inner_address, site_name},
};

impl World {
    /// Hands the edge an inner packet, as its TUN device would.
    pub fn send_from_edge(&mut self, packet: &[u8]) {
        self.offload_from_edge(&VirtioNetHdr::default(), packet);
    }

    /// Hands the edge an inner packet of which the kernel left something to do.
    pub fn offload_from_edge(&mut self, header: &VirtioNetHdr, packet: &[u8]) {
        self.enter_edge(header, packet);
        self.settle();
    }

    /// Hands the hub an inner packet.
    pub fn send_from_hub(&mut self, packet: &[u8]) {
        self.enter(false, packet);
        self.settle();
    }

    /// Hands the edge (`up`) or the hub one inner packet of a batch, after which the world
    /// [settles](Self::settle).
    pub(crate) fn enter(&mut self, up: bool, packet: &[u8]) {
        let header = VirtioNetHdr::default();
        if up {
            return self.enter_edge(&header, packet);
        }
        let now = self.hub_turns.clock_at(self.now);
        self.hub.handle_packet(&header, packet, now);
    }

    fn enter_edge(&mut self, header: &VirtioNetHdr, packet: &[u8]) {
        let now = self.edge_turns.clock_at(self.now);
        self.edge
            .handle_packet(header, packet, Origin::Main, now)
            .expect("the edge carries all classes");
    }

    /// Hands the hub what the links deliver now.
    pub(crate) fn deliver_to_hub(&mut self) {
        let now = self.now;
        let sites = self.sites.iter_mut();
        let due = sites.filter(|site| site.next_up.is_some_and(|at| at <= now));
        let cables = due.flat_map(|site| {
            site.foreseen = false;
            &mut site.cables
        });
        for cable in cables {
            while let Some((at, wire)) = cable.up.poll_output(self.repeats_after, self.now) {
                if wire.to == hub_address() || self.more_hubs.contains(&wire.to) {
                    if let Some(tapped) = &mut self.tapped {
                        tapped.push(wire.bytes.clone());
                    }
                    let local = Local {
                        socket: SocketId(0),
                        ip: Some(wire.to.ip()),
                    };
                    let (at, now) = (self.hub_turns.stamp(at), self.hub_turns.now());
                    self.hub
                        .handle_datagrams(received(local, &wire, at), wire.bytes, now);
                }
            }
        }
    }

    /// Drains the edge and the hub, or has them drained at their next turn.
    pub(crate) fn settle(&mut self) {
        if self.edge_turns.ask() {
            self.settle_edge(self.site, self.edge_turns.clock_at(self.now));
        }
        if self.hub_turns.ask() {
            self.settle_hub(self.hub_turns.clock_at(self.now));
        }
    }

    /// Drains the edge of a site, which takes it to be `now`.
    pub(crate) fn settle_edge(&mut self, site: usize, now: Instant) {
        let elapsed = self.elapsed();
        let site = &mut self.sites[site];
        site.foreseen = false;
        while let Some(event) = site.edge.poll_event(now) {
            if let EdgeEvent::NewPort { socket, .. } = event {
                site.rebind(socket.0 as usize);
            }
            site.edge_events.push((elapsed, event));
        }
        while let Some((_, packet)) = site.edge.poll_packet() {
            site.at_edge.push_back(Arrival {
                at: self.now,
                packet: packet.bytes,
                checksum: packet.checksum,
            });
        }
        while let Some(transmit) = site.edge.poll_transmit(&mut self.buffer, now) {
            let link = transmit.local.socket.0 as usize;
            let cable = &mut site.cables[link];
            let same_family = cable.address.is_ipv4() == transmit.remote.is_ipv4();
            if !same_family || self.lost_to == Some(transmit.remote) {
                self.buffer.clear();
                continue;
            }
            if let Some(from) = cable.source(transmit.remote, self.now) {
                let told = cable.up.offer(from, &transmit, &self.buffer, self.now);
                self.told_mtu.extend(told.map(|mtu| TooBig {
                    link,
                    direction: Direction::Up,
                    mtu,
                }));
            }
            self.buffer.clear();
        }
    }

    /// Grants a site a tunnel, unless it is revoked.
    fn admit(&mut self, request: RequestId, site: u8, now: Instant) {
        match self.revoked == Some(site.into()) {
            true => self.hub.refuse(request, 403, REVOKED, now),
            false => self.hub.grant(request, grant(site), now),
        }
    }

    /// Drains the hub, which takes it to be `now`.
    pub(crate) fn settle_hub(&mut self, now: Instant) {
        while let Some(event) = self.hub.poll_event(now) {
            if let HubEvent::Connect {
                request,
                ref bearer,
                ..
            } = event
            {
                match self.refuses {
                    _ if self.is_slow_to_grant => {}
                    Some((status, reason)) => self.hub.refuse(request, status, reason, now),
                    None => self.admit(request, site_number(bearer.as_deref()), now),
                }
            }
            self.hub_events.push((self.elapsed(), event));
        }
        while let Some(packet) = self.hub.poll_packet(now) {
            self.at_hub.push_back(Arrival {
                at: self.now,
                packet: packet.bytes,
                checksum: packet.checksum,
            });
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.hub.poll_transmit(&mut buffer, now) {
            let to = |cable: &Cable| cable.address.ip() == transmit.remote.ip();
            let mut sites = self.sites.iter_mut();
            let found = sites.find_map(|site| Some((site.cables.iter().position(to)?, site)));
            if let Some((link, site)) = found {
                site.foreseen = false;
                let cable = &mut site.cables[link];
                let hub = hub_address();
                let from = transmit
                    .local
                    .ip
                    .map_or(hub, |ip| SocketAddr::new(ip, hub.port()));
                if self.lost_from == Some(from) {
                    buffer.clear();
                    continue;
                }
                let told = cable.down.offer(from, &transmit, &buffer, self.now);
                self.told_mtu.extend(told.map(|mtu| TooBig {
                    link,
                    direction: Direction::Down,
                    mtu,
                }));
            } else if let Some(heard) = &mut self.to_strangers {
                let size = transmit.segment.unwrap_or(buffer.len()).max(1);
                heard.extend(buffer.chunks(size).map(BytesMut::from));
            }
            buffer.clear();
        }
        self.buffer = buffer;
    }
}

/// The number that the edge of a site shows, or nothing if it is the first.
fn site_number(bearer: Option<&str>) -> u8 {
    bearer.map_or(0, |number| number.parse().expect("a site shows its number"))
}

/// What the edge of a site gets.
fn grant(number: u8) -> Grant {
    let mut credential = CREDENTIAL;
    credential[0] += number;
    Grant {
        site: site_name(number.into()),
        addresses: vec![inner_address(number.into()).into()],
        credential,
        next: None,
    }
}

pub(crate) fn received(local: Local, wire: &Wire, arrived: Instant) -> Received {
    Received {
        local,
        remote: wire.from,
        ecn: wire.ecn,
        segment: wire.bytes.len(),
        arrived,
    }
}
