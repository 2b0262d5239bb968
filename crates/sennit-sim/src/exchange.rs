//! What passes between machines and links at one instant.

use std::{net::SocketAddr, time::Instant};

use bytes::BytesMut;
use sennit_engine::{EdgeEvent, Grant, HubEvent, Local, Received, SocketId};
use sennit_netem::Direction;

use crate::{
    Arrival, CREDENTIAL, EDGE, TooBig, World,
    cable::{Cable, Wire},
    setup::hub_address,
};

impl World {
    /// Hands out what the links deliver now.
    pub(crate) fn deliver_to_edge(&mut self) {
        for index in 0..self.cables.len() {
            while let Some((at, wire)) = self.cables[index]
                .down
                .poll_output(self.repeats_after, self.now)
            {
                if self.cables[index].admits(&wire, self.now) {
                    let local = Local {
                        socket: SocketId(index as u32),
                        ip: None,
                    };
                    let (at, now) = (self.edge_turns.stamp(at), self.edge_turns.now());
                    self.edge
                        .handle_datagrams(received(local, &wire, at), wire.bytes, now);
                }
            }
        }
    }

    pub(crate) fn deliver_to_hub(&mut self) {
        for index in 0..self.cables.len() {
            while let Some((at, wire)) = self.cables[index]
                .up
                .poll_output(self.repeats_after, self.now)
            {
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

    /// Drains both machines, or has them drained at their next turn.
    pub(crate) fn settle(&mut self) {
        if self.edge_turns.ask() {
            self.settle_edge(self.edge_turns.clock_at(self.now));
        }
        if self.hub_turns.ask() {
            self.settle_hub(self.hub_turns.clock_at(self.now));
        }
    }

    /// Drains the edge, which takes it to be `now`.
    pub(crate) fn settle_edge(&mut self, now: Instant) {
        while let Some(event) = self.edge.poll_event(now) {
            if let EdgeEvent::NewPort { socket, .. } = event {
                self.rebind(socket.0 as usize);
            }
            self.edge_events.push((self.elapsed(), event));
        }
        while let Some((_, packet)) = self.edge.poll_packet() {
            self.at_edge.push_back(Arrival {
                at: self.now,
                packet: packet.bytes,
                checksum: packet.checksum,
            });
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.edge.poll_transmit(&mut buffer, now) {
            let link = transmit.local.socket.0 as usize;
            let cable = &mut self.cables[link];
            let same_family = cable.address.is_ipv4() == transmit.remote.is_ipv4();
            if !same_family || self.lost_to == Some(transmit.remote) {
                buffer.clear();
                continue;
            }
            if let Some(from) = cable.source(transmit.remote, self.now) {
                let told = cable.up.offer(from, &transmit, &buffer, self.now);
                self.told_mtu.extend(told.map(|mtu| TooBig {
                    link,
                    direction: Direction::Up,
                    mtu,
                }));
            }
            buffer.clear();
        }
        self.buffer = buffer;
    }

    /// Drains the hub, which takes it to be `now`.
    pub(crate) fn settle_hub(&mut self, now: Instant) {
        while let Some(event) = self.hub.poll_event(now) {
            if let HubEvent::Connect { request, .. } = event {
                let grant = Grant {
                    site: "site".into(),
                    addresses: vec![EDGE.into()],
                    credential: CREDENTIAL,
                    next: None,
                };
                match self.refuses {
                    Some((status, reason)) => self.hub.refuse(request, status, reason, now),
                    None => self.hub.grant(request, grant, now),
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
            let cables = self.cables.iter_mut().enumerate();
            let to = |cable: &Cable| cable.address.ip() == transmit.remote.ip();
            if let Some((link, cable)) = cables.into_iter().find(|(_, cable)| to(cable)) {
                let hub = hub_address();
                let from = transmit
                    .local
                    .ip
                    .map_or(hub, |ip| SocketAddr::new(ip, hub.port()));
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

pub(crate) fn received(local: Local, wire: &Wire, arrived: Instant) -> Received {
    Received {
        local,
        remote: wire.from,
        ecn: wire.ecn,
        segment: wire.bytes.len(),
        arrived,
    }
}
