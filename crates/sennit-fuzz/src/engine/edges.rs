//! An edge with all that must hold of it.

use std::time::Instant;

use sennit_core::{ClassId, Classifier, Policy};
use sennit_engine::{
    Edge, EdgeConfig, EdgeEvent, LinkLabel, LinkUpdate, Origin, Purpose, SocketId,
};
use sennit_packet::Prefix;
use sennit_packet::gso::VirtioNetHdr;
use sennit_sim::{EDGE, HUB_NAME, SERVER, class, udp};

use super::scene::{HUB, LINKS, Machine, Wire, arrival, check, sent, settings};
use crate::input::Input;
use crate::packet::mend;

pub(super) struct EdgeSide {
    pub(super) edge: Edge,
    addresses: Vec<Prefix>,
    /// How often its host was changed for what the hub said.
    pub(super) changes: usize,
}

impl EdgeSide {
    /// An edge whose first `links` links are up.
    pub(super) fn new(links: usize, purpose: Purpose) -> Self {
        let config = EdgeConfig {
            hubs: vec![HUB],
            hub_names: Vec::new(),
            server_name: HUB_NAME.into(),
            classes: [(ClassId(0), class("default", Policy::Bond))].into(),
            classifier: Classifier::default(),
            sharing: None,
            classic: None,
            lan: vec!["192.168.8.0/24".parse().expect("a prefix")],
            bearer: None,
            steering: 0,
        };
        let tls = super::peer::AUTHORITY.with(sennit_sim::Authority::client);
        let start = super::scene::START.with(|start| *start);
        let edge = Edge::new(settings(1), config, tls, purpose, start);
        let mut side = Self {
            edge: edge.expect("QUIC's initial suite is there"),
            addresses: Vec::new(),
            changes: 0,
        };
        for link in 0..links {
            side.set_link(link, true, start);
        }
        side
    }

    pub(super) fn is_up(&mut self) -> bool {
        self.edge.status()[0].up
    }

    fn set_link(&mut self, link: usize, up: bool, now: Instant) {
        let socket = u32::try_from(link).expect("there are two links");
        let label = LinkLabel {
            name: format!("link-{link}"),
            tier: 1,
            weight: 1,
        };
        let update = LinkUpdate {
            socket: SocketId(socket),
            label,
            v4: up,
            v6: false,
            moves: 0,
            mtu: None,
            paused: false,
        };
        self.edge.handle_link(update, now);
    }

    /// A step of the edge's owner.
    pub(super) fn act(&mut self, step: u8, input: &mut Input<'_>, now: Instant) {
        let mut packet = match step % 4 {
            0 => udp(EDGE, SERVER, 7, 1, 100),
            1 => input.block().to_vec(),
            2 => return self.set_link(1, true, now),
            _ => return self.set_link(1, false, now),
        };
        mend(&mut packet);
        self.edge
            .handle_packet(&VirtioNetHdr::default(), &packet, Origin::Main, now)
            .expect("there is one class");
    }

    fn handle_event(&mut self, event: EdgeEvent) {
        match event {
            EdgeEvent::Addresses(addresses) => {
                self.addresses = addresses;
                self.changes += 1;
            }
            EdgeEvent::LanRefused(_) | EdgeEvent::HubInside(_) => self.changes += 1,
            EdgeEvent::Authority(_) => {}
            EdgeEvent::Enrolled(_)
            | EdgeEvent::TunnelUp { .. }
            | EdgeEvent::TunnelMoved { .. }
            | EdgeEvent::TunnelDown { .. }
            | EdgeEvent::Refused { .. }
            | EdgeEvent::Path { .. }
            | EdgeEvent::NewPort { .. }
            | EdgeEvent::PathClosed { .. } => {}
        }
    }
}

impl Machine for EdgeSide {
    fn handle(&mut self, wire: Wire, now: Instant) {
        let socket = u32::from(wire.to == LINKS[1]);
        let (mut from, bytes) = arrival(socket, &wire, now);
        from.local.ip = None;
        self.edge.handle_datagrams(from, bytes, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.edge.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.edge.poll_timeout().map(|due| due.at)
    }

    fn drain(&mut self, now: Instant) -> Vec<Wire> {
        while let Some(event) = self.edge.poll_event(now) {
            self.handle_event(event);
        }
        assert_eq!(self.edge.addresses(), self.addresses);
        while let Some((_, packet)) = self.edge.poll_packet() {
            check(&packet);
        }
        let from = |socket: SocketId| LINKS[socket.0 as usize];
        sent(
            |buffer| self.edge.poll_transmit(buffer, now),
            |transmit| from(transmit.local.socket),
        )
    }
}
