//! Inner packets that can be told apart.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use sennit_packet::checksum::Sum;

use crate::{Arrival, World};

/// The edge's inner address.
pub const EDGE: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
/// A host behind the hub.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

const IP: usize = 20;
const UDP: usize = 8;

/// A UDP packet of `len` bytes in all from `source` to `destination`, with a number in its payload.
/// UDP checksum 0 means none (RFC 768).
pub fn udp(source: Ipv4Addr, destination: Ipv4Addr, port: u16, number: u32, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len.max(IP + UDP + 4)];
    let len = packet.len();
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    let checksum = Sum::of(&packet[..IP]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet[24..26].copy_from_slice(&((len - IP) as u16).to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number in a packet that [`udp`] made.
pub fn number(packet: &[u8]) -> Option<u32> {
    packet
        .get(28..32)
        .map(|n| u32::from_be_bytes([n[0], n[1], n[2], n[3]]))
}

/// The port of the first flow of a [`Stream`].
const FIRST_PORT: u16 = 7;

/// A steady stream of numbered packets from the edge to the server, and what became of it.
pub struct Stream {
    interval: Duration,
    len: usize,
    /// Sizes that follow each other, and by how much they grow.
    places: u32,
    step: usize,
    /// The greatest number that arrived of each flow; the packets are of these in turn.
    newest: Vec<u32>,
    sent: u32,
    begun: Instant,
    next: Instant,
    /// How long each packet took.
    arrived: BTreeMap<u32, Duration>,
    last_arrival: Instant,
    /// Longest time without an arrival, that at the end of a run included.
    pub longest_gap: Duration,
    /// Packets that arrived a second time.
    pub duplicates: u32,
    /// Packets that arrived after one of their flow that was sent later.
    pub disordered: u32,
}

impl Stream {
    /// Packets of `len` bytes, one per `interval`.
    pub fn new(interval: Duration, len: usize, now: Instant) -> Self {
        Self {
            interval,
            len,
            places: 1,
            step: 0,
            newest: vec![0],
            sent: 0,
            begun: now,
            next: now,
            arrived: BTreeMap::new(),
            last_arrival: now,
            longest_gap: Duration::ZERO,
            duplicates: 0,
            disordered: 0,
        }
    }

    /// This stream as so many flows, whose packets take turns.
    #[must_use]
    pub fn with_flows(self, flows: u16) -> Self {
        Self {
            newest: vec![0; flows.max(1).into()],
            ..self
        }
    }

    /// This stream with sizes by which each packet's place among `places` shows from outside: the
    /// next one is larger by `step`.
    #[must_use]
    pub fn with_places(self, places: u32, step: usize) -> Self {
        Self {
            places,
            step,
            ..self
        }
    }

    /// Sends and receives for `span`.
    pub fn run(&mut self, world: &mut World, span: Duration) {
        let end = world.now() + span;
        while self.next <= end {
            world.run(self.next - world.now());
            let len = self.len + self.step * (self.sent % self.places) as usize;
            let port = FIRST_PORT + self.flow(self.sent) as u16;
            world.send_from_edge(&udp(EDGE, SERVER, port, self.sent, len));
            self.sent += 1;
            self.next += self.interval;
            self.take(world);
        }
        world.run(end - world.now());
        self.take(world);
        self.longest_gap = self.longest_gap.max(end - self.last_arrival);
    }

    /// Waits for what is still on its way.
    pub fn finish(&mut self, world: &mut World) {
        world.run(Duration::from_secs(1));
        self.take(world);
    }

    fn take(&mut self, world: &mut World) {
        while let Some(Arrival { at, packet, .. }) = world.at_hub.pop_front() {
            self.longest_gap = self.longest_gap.max(at - self.last_arrival);
            self.last_arrival = at;
            let Some(number) = number(&packet) else {
                continue;
            };
            let flow = self.flow(number);
            let newest = &mut self.newest[flow];
            self.disordered += u32::from(number < *newest);
            *newest = number.max(*newest);
            let took = at - (self.begun + self.interval * number);
            if self.arrived.insert(number, took).is_some() {
                self.duplicates += 1;
            }
        }
    }

    /// The flow that a packet is of.
    fn flow(&self, number: u32) -> usize {
        number as usize % self.newest.len()
    }

    /// Packets that have not arrived.
    pub fn lost(&self) -> usize {
        self.sent as usize - self.arrived.len()
    }

    /// The part of the packets that did not arrive within this time.
    pub fn missing_after(&self, time: Duration) -> f64 {
        let in_time = self.arrived.values().filter(|took| **took <= time).count();
        1.0 - in_time as f64 / f64::from(self.sent)
    }

    /// Packets among the first `count` that have not arrived.
    pub fn lost_of(&self, count: u32) -> usize {
        count as usize - self.arrived.range(..count).count()
    }

    /// Packets that have arrived.
    pub fn arrived(&self) -> usize {
        self.arrived.len()
    }

    /// Packets sent.
    pub fn sent(&self) -> u32 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use sennit_core::Policy;

    use super::*;

    #[test]
    fn a_silence_that_lasts_to_the_end_is_a_gap() {
        let link: crate::LinkSpec = "20/10".parse().expect("a link");
        let mut world = World::new(&[link], Policy::Bond, 1, Instant::now());
        assert!(world.connect(1));
        let second = Duration::from_secs(1);
        let mut stream = Stream::new(second / 100, 100, world.now());
        stream.run(&mut world, second);
        assert!(stream.longest_gap < second / 10, "{:?}", stream.longest_gap);

        world.blackhole(0, true);
        stream.run(&mut world, second * 2);

        assert!(stream.longest_gap > second * 19 / 10);
    }
}
