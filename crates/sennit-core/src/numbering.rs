//! Heads packets with their number, the time, and whether their order matters.
//!
//! It matters to TCP, which delivers in order anyway, and to any transfer: it fills the time with
//! other packets, and its transport would slow down if it saw them out of order. A call or a game
//! would rather have what is there at once. What UDP carries is told by its packets: transfers fill
//! theirs, also while reordering holds them down to a few in a round trip.

use std::time::{Duration, Instant};

use sennit_packet::Bitrate;

use crate::{
    frame::Header,
    queue::{FLOWS, Popped},
};

/// A flow that sends this many bytes within [`WINDOW`] is a transfer: 2.6 Mbit/s, more than a call.
const BULK: usize = 64 << 10;
/// Unless all its packets have so few bytes: they are acknowledgements of a transfer the other way,
/// which lose more by waiting for each other than by coming out of order.
const SMALL: usize = 200;
/// A flow with packets of this many bytes is a transfer too.
pub const FULL: usize = 1150;
/// A flow stays a transfer for this long when it sends less: over a longer path it may take some
/// round trips to send as much again.
const TRANSFER_FOR: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_millis(200);
/// The rate below which a flow is thin: [`BULK`] in each [`WINDOW`].
pub const THIN: Bitrate = Bitrate::bytes_per_second(BULK as u64 * 1000 / WINDOW.as_millis() as u64);

/// The clock says this at first, in microseconds: a second before it wraps, so that every tunnel
/// passes there, in tests too.
const CLOCK_FROM: u32 = 0_u32.wrapping_sub(1_000_000);

/// The sending side's account of each flow queue of [`crate::queue`].
#[derive(Debug)]
pub struct Numbering {
    flows: Vec<Flow>,
    started: Instant,
}

#[derive(Clone, Debug)]
struct Flow {
    since: Instant,
    bytes: usize,
    /// The biggest packet.
    biggest: usize,
    was_transfer: bool,
    /// When it last had sent [`BULK`] bytes within [`WINDOW`].
    bulk: Option<Instant>,
}

impl Numbering {
    /// No flow has sent anything.
    pub fn new(now: Instant) -> Self {
        let flow = Flow {
            since: now,
            bytes: 0,
            biggest: 0,
            was_transfer: false,
            bulk: None,
        };
        Self {
            flows: vec![flow; FLOWS],
            started: now,
        }
    }

    /// The header of a packet that leaves now.
    pub fn header(&mut self, popped: &Popped, early: Duration, now: Instant) -> Header {
        let packet = &popped.packet;
        let index = packet.flow as usize % FLOWS;
        let is_transfer = self.flows[index].is_transfer(packet.packet_len(), now);
        Header {
            flow: index as u8,
            ordered: is_transfer || packet.in_order,
            early,
            seq: popped.seq,
            sent_micros: self.clock(now),
        }
    }

    /// Whether a flow sends more than a call does, or did so lately.
    pub fn is_bulk(&self, flow: u32, now: Instant) -> bool {
        self.flows[flow as usize % FLOWS]
            .bulk
            .is_some_and(|at| now.saturating_duration_since(at) < TRANSFER_FOR)
    }

    /// The clock that goes with the packets.
    pub fn clock(&self, now: Instant) -> u32 {
        let micros = now.saturating_duration_since(self.started).as_micros() as u32;
        CLOCK_FROM.wrapping_add(micros)
    }
}

impl Flow {
    fn is_transfer(&mut self, bytes: usize, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.since);
        if age >= WINDOW {
            self.was_transfer = self.is_over() && age < 2 * WINDOW;
            (self.since, self.bytes, self.biggest) = (now, 0, 0);
        }
        self.bytes += bytes;
        self.biggest = self.biggest.max(bytes);
        if self.is_bulk() {
            self.bulk = Some(now);
        }
        self.was_transfer || self.is_over()
    }

    fn is_bulk(&self) -> bool {
        self.bytes >= BULK && self.biggest > SMALL
    }

    fn is_over(&self) -> bool {
        self.is_bulk() || self.biggest >= FULL
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::{frame::HEADROOM, queue::Queued};

    fn is_ordered(numbering: &mut Numbering, packet: (u32, usize), now: Instant) -> bool {
        let (flow, bytes) = packet;
        let popped = popped(flow, bytes, false);
        numbering.header(&popped, Duration::ZERO, now).ordered
    }

    fn popped(flow: u32, bytes: usize, in_order: bool) -> Popped {
        Popped {
            packet: Queued {
                buffer: BytesMut::zeroed(HEADROOM + bytes),
                flow,
                in_order,
                checksum: Default::default(),
                returned: false,
            },
            seq: 7,
            since: Instant::now(),
            ahead: 0,
            backlog: 0,
        }
    }

    #[test]
    fn order_matters_to_a_transfer_and_not_to_a_call() {
        let start = Instant::now();
        let mut numbering = Numbering::new(start);
        for step in 0..1000_u32 {
            let now = start + Duration::from_millis(1) * step;
            let download = is_ordered(&mut numbering, (1, 1400), now);
            let call = step.is_multiple_of(20) && is_ordered(&mut numbering, (2, 200), now);
            let video = is_ordered(&mut numbering, (3, 300), now);
            assert!(!call && !video);
            assert!(download);
        }
        let later = start + Duration::from_secs(10);
        assert!(!is_ordered(&mut numbering, (1, 100), later));
    }

    /// Where a path lost some of them, all waited for what was sent again.
    #[test]
    fn acknowledgements_of_a_fast_transfer_are_none_themselves() {
        let start = Instant::now();
        let mut numbering = Numbering::new(start);
        let moments = || (0..5000).map(|step| start + Duration::from_micros(200) * step);
        assert!(!moments().any(|now| is_ordered(&mut numbering, (1, 80), now)));
        assert!(!numbering.is_bulk(1, start + Duration::from_secs(1)));
        assert!(moments().any(|now| is_ordered(&mut numbering, (2, 300), now)));
    }

    #[test]
    fn order_always_matters_to_tcp() {
        let now = Instant::now();
        let header = Numbering::new(now).header(&popped(1, 100, true), Duration::ZERO, now);
        assert!(header.ordered);
        assert_eq!((header.flow, header.seq), (1, 7));
    }
}
