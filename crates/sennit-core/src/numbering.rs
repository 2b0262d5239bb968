//! Numbers packets within their flow, and says whose order matters.
//!
//! It matters to TCP, which delivers in order anyway, and to any transfer: it fills the time with other
//! packets, and its transport would slow down if it saw them out of order. A call or a game would
//! rather have what is there at once. What UDP carries is told by its packets: transfers fill theirs,
//! also while reordering holds them down to a few in a round trip.

use std::time::{Duration, Instant};

use crate::{frame::Header, queue::FLOWS};

/// A flow that sends this many bytes within [`WINDOW`] is a transfer: 2.6 Mbit/s, more than a call;
const BULK: usize = 64 << 10;
/// and so is one with packets as big as this.
const FULL: usize = 1150;
const WINDOW: Duration = Duration::from_millis(200);
/// The same in bytes per second: what sends less is thin.
pub const THIN: u64 = BULK as u64 * 1000 / WINDOW.as_millis() as u64;

/// The sending side's account of each flow queue of [`crate::queue`].
#[derive(Debug)]
pub struct Numbering {
    flows: Vec<Flow>,
    started: Instant,
}

#[derive(Clone, Debug)]
struct Flow {
    next: u32,
    since: Instant,
    bytes: usize,
    /// The biggest packet.
    biggest: usize,
    was_transfer: bool,
}

impl Numbering {
    /// All flows start at zero.
    pub fn new(now: Instant) -> Self {
        let flow = Flow {
            next: 0,
            since: now,
            bytes: 0,
            biggest: 0,
            was_transfer: false,
        };
        Self {
            flows: vec![flow; FLOWS],
            started: now,
        }
    }

    /// The header of a packet of `bytes` bytes of the flow with this hash, which leaves now; `in_order`
    /// if its transport delivers in order.
    pub fn next(&mut self, flow: u32, in_order: bool, bytes: usize, now: Instant) -> Header {
        let index = flow as usize % FLOWS;
        let flow = &mut self.flows[index];
        let seq = flow.next;
        flow.next = seq.wrapping_add(1);
        Header {
            flow: index as u16,
            ordered: flow.is_transfer(bytes, now) || in_order,
            seq,
            sent_micros: self.clock(now),
        }
    }

    /// The clock that goes with the packets.
    pub fn clock(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.started).as_micros() as u32
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
        self.was_transfer || self.is_over()
    }

    fn is_over(&self) -> bool {
        self.bytes >= BULK || self.biggest >= FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_counts_for_itself() {
        let now = Instant::now();
        let mut numbering = Numbering::new(now);
        let seqs: Vec<u32> = [1, 1, 2, 1, 2]
            .into_iter()
            .map(|flow| numbering.next(flow, false, 100, now).seq)
            .collect();
        assert_eq!(seqs, [0, 1, 0, 2, 1]);
    }

    #[test]
    fn order_matters_to_a_transfer_and_not_to_a_call() {
        let start = Instant::now();
        let mut numbering = Numbering::new(start);
        for step in 0..1000_u32 {
            let now = start + Duration::from_millis(1) * step;
            let download = numbering.next(1, false, 1400, now).ordered;
            let call = step.is_multiple_of(20) && numbering.next(2, false, 200, now).ordered;
            let video = numbering.next(3, false, 300, now).ordered;
            assert!(!call && !video);
            assert!(download);
        }
        let later = start + Duration::from_secs(10);
        assert!(!numbering.next(1, false, 100, later).ordered);
    }

    #[test]
    fn order_always_matters_to_tcp() {
        let now = Instant::now();
        assert!(Numbering::new(now).next(1, true, 100, now).ordered);
    }
}
