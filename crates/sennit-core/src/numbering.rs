//! Numbers packets within their flow, and tells bulk flows from thin ones.
//!
//! Only a bulk flow is worth waiting for: it fills the time with other packets, and its transport would
//! slow down if it saw them out of order. A thin one, a call or a game, would rather have what is
//! there at once.

use std::time::{Duration, Instant};

use crate::{frame::Header, queue::FLOWS};

/// A flow that sends this many bytes within [`WINDOW`] is bulk: 2.6 Mbit/s, more than a call.
const BULK: usize = 64 << 10;
const WINDOW: Duration = Duration::from_millis(200);

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
    was_bulk: bool,
}

impl Numbering {
    /// All flows start at zero.
    pub fn new(now: Instant) -> Self {
        let flow = Flow {
            next: 0,
            since: now,
            bytes: 0,
            was_bulk: false,
        };
        Self {
            flows: vec![flow; FLOWS],
            started: now,
        }
    }

    /// The header of a packet of `bytes` bytes of the flow with this hash, which leaves now.
    pub fn next(&mut self, flow: u32, bytes: usize, now: Instant) -> Header {
        let index = flow as usize % FLOWS;
        let flow = &mut self.flows[index];
        let seq = flow.next;
        flow.next = seq.wrapping_add(1);
        Header {
            flow: index as u16,
            ordered: flow.is_bulk(bytes, now),
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
    fn is_bulk(&mut self, bytes: usize, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.since);
        if age >= WINDOW {
            self.was_bulk = self.bytes >= BULK && age < 2 * WINDOW;
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += bytes;
        self.was_bulk || self.bytes >= BULK
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
            .map(|flow| numbering.next(flow, 100, now).seq)
            .collect();
        assert_eq!(seqs, [0, 1, 0, 2, 1]);
    }

    #[test]
    fn a_download_is_bulk_and_a_call_is_not() {
        let start = Instant::now();
        let mut numbering = Numbering::new(start);
        for step in 0..1000_u32 {
            let now = start + Duration::from_millis(1) * step;
            let download = numbering.next(1, 1400, now).ordered;
            let call = step.is_multiple_of(20) && numbering.next(2, 200, now).ordered;
            assert!(!call);
            assert_eq!(download, step >= 46, "{step}");
        }
        let later = start + Duration::from_secs(10);
        assert!(!numbering.next(1, 1400, later).ordered);
    }
}
