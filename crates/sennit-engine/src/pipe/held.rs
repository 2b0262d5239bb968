//! The memory behind the packets that a resequencer holds.
//!
//! A packet is a slice of what it came in: a run of datagrams, or a piece in which thin packets are
//! restored. Either has up to 64 KB, and stays for as long as one packet in it is held, while the
//! resequencer counts that packet's bytes alone. So it is looked now and then in how many places of
//! memory the held packets lie. Those of a transfer lie side by side, and stay there; where packets
//! lie in too many places, all that is held moves to memory of its own.

use bytes::Bytes;
use sennit_core::Resequencer;

use crate::inner::Packet;

/// A place has two to this power bytes: as many as a run.
const PLACE: u32 = 16;
/// Packets stay where they are in at most so many places, and come to lie in as many others until
/// the next look: 16 MB each, and a transfer that has all its packets held needs no more for what a
/// resequencer holds at most.
const MOST: usize = 256;
/// Places that packets come from at a time: two for each of two runs.
const RECENT: usize = 4;

/// A packet that may be held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) packet: Packet,
    /// It has memory of its own.
    moved: bool,
}

impl From<Packet> for Held {
    fn from(packet: Packet) -> Self {
        Self {
            packet,
            moved: false,
        }
    }
}

impl Held {
    /// Where it lies.
    pub(super) fn place(&self) -> usize {
        self.packet.bytes.as_ptr().addr() >> PLACE
    }

    fn move_out(&mut self) {
        self.packet.bytes = Bytes::copy_from_slice(&self.packet.bytes);
        self.moved = true;
    }
}

/// The places from which packets were held since the last look.
#[derive(Debug, Default)]
pub(super) struct Places {
    recent: [usize; RECENT],
    count: usize,
}

impl Places {
    /// A packet is held that lies in this place; true if it is time for a look.
    pub(super) fn note(&mut self, place: usize) -> bool {
        if !self.recent.contains(&place) {
            self.recent[self.count % RECENT] = place;
            self.count += 1;
        }
        self.count >= MOST
    }

    /// Moves out what is held if it lies in too many places.
    pub(super) fn look(&mut self, resequencer: &mut Resequencer<Held>) {
        *self = Self::default();
        let lent = resequencer.held_mut().filter(|held| !held.moved);
        let mut places: Vec<usize> = lent.map(|held| held.place()).collect();
        places.sort_unstable();
        places.dedup();
        if places.len() > MOST {
            let lent = resequencer.held_mut().filter(|held| !held.moved);
            lent.for_each(Held::move_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::BytesMut;
    use sennit_core::frame::Header;

    use super::*;
    use crate::{pipe::Pipe, treatment::Treatment};

    const RUN: usize = 1 << PLACE;

    /// Of so many runs, how many are still there after a pipe got `each` packets of `bytes` bytes
    /// out of each, behind one that is missing.
    fn kept(count: usize, each: usize, bytes: usize) -> usize {
        let now = Instant::now();
        let mut pipe = Pipe::new(Treatment::default(), now);
        let mut runs = Vec::new();
        let mut seq = Header::FIRST;
        for _ in 0..count {
            let mut run = BytesMut::zeroed(RUN);
            for _ in 0..each {
                seq = seq.wrapping_add(1);
                let header = Header {
                    flow: 1,
                    ordered: true,
                    early: Duration::ZERO,
                    seq,
                    sent_micros: 0,
                };
                let packet = Packet::from(run.split_to(bytes).freeze());
                pipe.handle_numbered(&header, packet, 0, now);
            }
            runs.push(run);
        }
        let stats = pipe.stats().order;
        assert_eq!((stats.held, stats.overflows), ((count * each) as u64, 0));
        // Who can have all of it back is the only one that has it.
        let reclaimed = runs.iter_mut().filter_map(|run| {
            run.clear();
            run.try_reclaim(RUN).then_some(())
        });
        count - reclaimed.count()
    }

    /// Each run was kept, 64 MB of them for 20 KB of packets.
    #[test]
    fn a_few_small_packets_do_not_keep_the_runs_that_they_came_in() {
        assert!(kept(1000, 1, 20) <= 2 * MOST);
        assert!(kept(1000, 2, 1400) <= 2 * MOST);
    }

    #[test]
    fn the_packets_of_a_transfer_stay_where_they_are() {
        assert_eq!(kept(200, 40, 1400), 200);
    }
}
