//! Both directions of an emulated link, and what travels on it.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_engine::Transmit;
use sennit_netem::{Config, Link};

use crate::LinkSpec;

/// IPv4 and UDP headers around every QUIC packet.
const UDP_OVERHEAD: usize = 28;

/// A UDP packet on an emulated link.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) bytes: BytesMut,
}

/// One link.
pub(crate) struct Cable {
    pub(crate) up: Way,
    pub(crate) down: Way,
    pub(crate) address: SocketAddr,
}

impl Cable {
    pub(crate) fn new(index: usize, link: &LinkSpec, seed: u64, start: Instant) -> Self {
        let seed = seed.wrapping_mul(1000) + 2 * index as u64;
        Self {
            up: Way::new(link.up.clone(), seed, start),
            down: Way::new(link.down.clone(), seed + 1, start),
            address: SocketAddr::from(([198, 51, 100, index as u8 + 1], 5000)),
        }
    }
}

/// One direction of a link.
pub(crate) struct Way {
    link: Link<Wire>,
    /// What arrived and will once more, and when.
    repeats: VecDeque<(Instant, Wire)>,
}

impl Way {
    fn new(config: Config, seed: u64, start: Instant) -> Self {
        let mut link = Link::new(config, seed);
        link.begin(start);
        Self {
            link,
            repeats: VecDeque::new(),
        }
    }

    /// Changes it while it runs.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Config), now: Instant) {
        let mut config = self.link.config().clone();
        change(&mut config);
        self.link.set_config(config, now);
    }

    /// Puts a batch on it, packet by packet.
    pub(crate) fn offer(
        &mut self,
        from: SocketAddr,
        transmit: &Transmit,
        bytes: &[u8],
        now: Instant,
    ) {
        for packet in bytes.chunks(transmit.segment.unwrap_or(bytes.len()).max(1)) {
            let wire = Wire {
                from,
                to: transmit.remote,
                ecn: transmit.ecn,
                bytes: BytesMut::from(packet),
            };
            // A dropped packet is what the link is for.
            let _ = self
                .link
                .handle_packet(packet.len() + UDP_OVERHEAD, wire, now);
        }
    }

    /// What arrives now; all of it does a second time after `repeats_after`.
    pub(crate) fn poll_output(
        &mut self,
        repeats_after: Option<Duration>,
        now: Instant,
    ) -> Option<Wire> {
        if let Some((_, wire)) = self.repeats.pop_front_if(|(at, _)| *at <= now) {
            return Some(wire);
        }
        let wire = self.link.poll_output(now)?;
        if let Some(after) = repeats_after {
            self.repeats.push_back((now + after, wire.clone()));
        }
        Some(wire)
    }

    /// When something may arrive.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let repeat = self.repeats.front().map(|(at, _)| *at);
        self.link.poll_timeout().into_iter().chain(repeat).min()
    }
}
