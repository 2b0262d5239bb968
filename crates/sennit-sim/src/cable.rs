//! Both directions of an emulated link, and what travels on it.

use std::{
    collections::{BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_engine::Transmit;
use sennit_netem::{Config, Link, Nat, Reason};

use crate::LinkSpec;

/// IPv4 and UDP headers around every QUIC packet.
pub(crate) const UDP_OVERHEAD: usize = 28;

/// A UDP packet on an emulated link.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) bytes: BytesMut,
}

/// ECN fields: of a transport that knows no marks, and of a packet that has one.
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;
/// The number of UDP.
const UDP: u8 = 17;
/// Hosts behind a NAT box have addresses that nobody sees.
const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 2));

/// One link.
pub(crate) struct Cable {
    pub(crate) up: Way,
    pub(crate) down: Way,
    /// What the hub sees without a NAT box, and the address of that.
    pub(crate) address: SocketAddr,
    /// How often the edge got another address there.
    pub(crate) moves: u32,
    /// Between the edge and the link.
    pub(crate) nat: Option<Nat>,
    /// What leaves from this port or goes to it is swallowed.
    pub(crate) wedged: Option<u16>,
}

impl Cable {
    pub(crate) fn new(index: usize, link: &LinkSpec, seed: u64, start: Instant) -> Self {
        let seed = self::seed(seed, index);
        Self {
            up: Way::new(link.up.clone(), seed, start),
            down: Way::new(link.down.clone(), seed + 1, start),
            address: SocketAddr::from(([198, 51, 100, index as u8 + 1], 5000)),
            moves: 0,
            nat: None,
            wedged: None,
        }
    }

    /// The source address with which a packet of the edge leaves; `None` if a NAT box swallows it.
    pub(crate) fn source(&mut self, to: SocketAddr, now: Instant) -> Option<SocketAddr> {
        if self.wedged == Some(self.address.port()) {
            return None;
        }
        let inside = SocketAddr::new(INSIDE, self.address.port());
        match &mut self.nat {
            None => Some(self.address),
            Some(nat) => {
                let port = nat.outbound(UDP, inside, to, now)?;
                Some(SocketAddr::new(self.address.ip(), port))
            }
        }
    }

    /// Whether a packet that arrived reaches the edge.
    pub(crate) fn admits(&mut self, wire: &Wire, now: Instant) -> bool {
        if self.wedged == Some(self.address.port()) {
            return false;
        }
        let inside = SocketAddr::new(INSIDE, self.address.port());
        match &mut self.nat {
            None => wire.to == self.address,
            Some(nat) => {
                let ours = wire.to.ip() == self.address.ip();
                ours && nat.inbound(UDP, wire.from, wire.to.port(), now) == Some(inside)
            }
        }
    }
}

/// The chance of the way up of a world's link; the next number is that of the way down.
pub(crate) fn seed(world: u64, index: usize) -> u64 {
    world.wrapping_mul(1000) + 2 * index as u64
}

/// The source connection ID of an Initial packet of version 1 that is large enough to carry a part
/// of a ClientHello, and its padding (RFC 9000 §17.2.2).
fn hello_of(packet: &[u8]) -> Option<&[u8]> {
    let (&[first, 0, 0, 0, 1, length], rest) = packet.split_first_chunk()? else {
        return None;
    };
    let (&length, rest) = rest.get(usize::from(length)..)?.split_first()?;
    let (source, rest) = rest.split_at_checked(usize::from(length))?;
    // Without a token, and a length in two bytes.
    let &[0, high, low, ..] = rest else {
        return None;
    };
    let length = u16::from_be_bytes([high & 0x3f, low]);
    (first & 0xf0 == 0xc0 && length > 600).then_some(source)
}

/// One direction of a link.
pub(crate) struct Way {
    link: Link<Wire>,
    /// What arrived and will once more, and when.
    repeats: VecDeque<(Instant, Wire)>,
    /// Bytes of all IP packets that were put on it.
    pub(crate) offered: u64,
    /// The last packets that were put on it, if somebody writes them down.
    pub(crate) seen: VecDeque<Vec<u8>>,
    /// How many of them are kept.
    pub(crate) keeps: usize,
    /// Connections of which a part of a ClientHello passed, if a box drops the rest.
    pub(crate) hellos: Option<BTreeSet<Vec<u8>>>,
    /// So many of the next packets are lost.
    pub(crate) loses: u32,
    /// One of so many that can be marked leaves as having met congestion; 0 for none.
    pub(crate) marks_each: u32,
    /// Such packets since the last one.
    unmarked: u32,
    /// Type of service of the packets that were put on it: code point and ECN field.
    pub(crate) services: BTreeSet<u8>,
}

impl Way {
    fn new(config: Config, seed: u64, start: Instant) -> Self {
        let mut link = Link::new(config, seed);
        link.begin(start);
        Self {
            link,
            repeats: VecDeque::new(),
            offered: 0,
            seen: VecDeque::new(),
            keeps: 0,
            hellos: None,
            loses: 0,
            marks_each: 0,
            unmarked: 0,
            services: BTreeSet::new(),
        }
    }

    /// Changes it while it runs.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Config), now: Instant) {
        let mut config = self.link.config().clone();
        change(&mut config);
        self.link.set_config(config, now);
    }

    /// Puts a batch on it, packet by packet; gives the size that fits if one did not and its sender
    /// is told.
    pub(crate) fn offer(
        &mut self,
        from: SocketAddr,
        transmit: &Transmit,
        bytes: &[u8],
        now: Instant,
    ) -> Option<usize> {
        let mut told = None;
        self.services.insert(transmit.dscp << 2 | transmit.ecn);
        for packet in bytes.chunks(transmit.segment.unwrap_or(bytes.len()).max(1)) {
            let wire = Wire {
                from,
                to: transmit.remote,
                ecn: self.marked(transmit.ecn),
                bytes: BytesMut::from(packet),
            };
            let len = packet.len() + UDP_OVERHEAD;
            self.offered += len as u64;
            self.note_seen(packet);
            if self.loses > 0 {
                self.loses -= 1;
                continue;
            }
            if !self.passes_box(packet) {
                continue;
            }
            let Err(dropped) = self.link.handle_packet(len, wire, now) else {
                continue;
            };
            // Other drops are what the link is for.
            let Config { mtu, tells_mtu, .. } = *self.link.config();
            if dropped.reason == Reason::Size && tells_mtu {
                told = Some(mtu);
            }
        }
        told
    }

    /// The ECN field with which a packet travels on (RFC 3168 §5).
    fn marked(&mut self, ecn: u8) -> u8 {
        if self.marks_each == 0 || ecn == NOT_ECT {
            return ecn;
        }
        self.unmarked += 1;
        if self.unmarked < self.marks_each {
            return ecn;
        }
        self.unmarked = 0;
        CE
    }

    fn note_seen(&mut self, packet: &[u8]) {
        if self.keeps == 0 {
            return;
        }
        let is_full = self.seen.len() == self.keeps;
        let oldest = self.seen.pop_front_if(|_| is_full);
        let mut seen = oldest.unwrap_or_default();
        seen.clear();
        seen.extend_from_slice(packet);
        self.seen.push_back(seen);
    }

    /// Puts what somebody else sends on it.
    pub(crate) fn inject(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8], now: Instant) {
        let wire = Wire {
            from,
            to,
            ecn: 0,
            bytes: BytesMut::from(bytes),
        };
        // A link that drops it does so with anybody's.
        let _ = self
            .link
            .handle_packet(bytes.len() + UDP_OVERHEAD, wire, now);
    }

    /// Whether the box, if there is one, lets a packet pass.
    fn passes_box(&mut self, packet: &[u8]) -> bool {
        let (Some(hellos), Some(id)) = (&mut self.hellos, hello_of(packet)) else {
            return true;
        };
        hellos.insert(id.to_vec())
    }

    /// What has arrived by now, and when; all of it does a second time after `repeats_after`.
    pub(crate) fn poll_output(
        &mut self,
        repeats_after: Option<Duration>,
        now: Instant,
    ) -> Option<(Instant, Wire)> {
        if let Some(repeat) = self.repeats.pop_front_if(|(at, _)| *at <= now) {
            return Some(repeat);
        }
        let (at, wire) = self.link.poll_arrival(now)?;
        if let Some(after) = repeats_after {
            self.repeats.push_back((at + after, wire.clone()));
        }
        Some((at, wire))
    }

    /// When something may arrive.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let repeat = self.repeats.front().map(|(at, _)| *at);
        self.link.poll_timeout().into_iter().chain(repeat).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of what a busy machine found was stamped with the least delay that it could have.
    #[test]
    fn a_machine_that_looks_late_hears_when_packets_arrived() {
        let start = Instant::now();
        let ms = Duration::from_millis(1);
        let link: LinkSpec = "10/40±20".parse().expect("a link");
        let [mut quick, mut late] = [(); 2].map(|()| {
            let mut way = Way::new(link.up.clone(), 1, start);
            let ends = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            (0..5).for_each(|number| way.inject(ends, ends, &[0; 100], start + ms * number));
            way
        });
        let mut in_time = Vec::new();
        while let Some(now) = quick.poll_timeout() {
            in_time.extend(quick.poll_output(None, now).map(|(at, _)| at));
        }
        let found = std::iter::from_fn(|| late.poll_output(None, start + ms * 1000));
        let found: Vec<Instant> = found.map(|(at, _)| at).collect();
        assert_eq!(found, in_time);
    }
}
