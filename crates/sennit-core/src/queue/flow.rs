//! The packets of one flow queue, with their places and numbers.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{QueueStats, Queued, codel::Codel};
use crate::frame::Header;

/// A flow that was silent for so long has no claim to its queue any more.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// A packet comes back from no further than this before the first place.
const MOST_BACK: u32 = 1 << 16;

/// A packet leaves before so many others of its flow at most: the far end tells repeated numbers
/// from new ones among twice as many ([`crate::dedup`]), and others have left since one that is
/// missing.
const MOST_EARLY: usize = 4096;

/// Places that a flow keeps room for once nothing waits: those of the largest super-packet.
pub(super) const ROOM: usize = 64;

/// One flow queue.
#[derive(Debug)]
pub(super) struct Flow {
    /// Those that left ahead of their turn leave an empty place behind.
    pub(super) packets: VecDeque<Option<(Instant, Queued)>>,
    /// How many are not empty.
    pub(super) waiting: usize,
    pub(super) bytes: usize,
    /// Number of the first place.
    pub(super) next: u32,
    /// The first number that no packet has left with.
    given: u32,
    /// The hash of the flow that it belongs to, and when that last had a packet.
    pub(super) owner: Option<(u32, Instant)>,
    pub(super) deficit: i64,
    pub(super) listed: bool,
    pub(super) codel: Codel,
    pub(super) stats: QueueStats,
}

impl Flow {
    pub(super) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            waiting: 0,
            bytes: 0,
            next: Header::FIRST,
            given: Header::FIRST,
            owner: None,
            deficit: 0,
            listed: false,
            codel: Codel::default(),
            stats: QueueStats::default(),
        }
    }

    pub(super) fn push(&mut self, packet: Queued, now: Instant) {
        self.bytes += packet.packet_len();
        self.waiting += 1;
        self.packets.push_back(Some((now, packet)));
    }

    /// Numbers start over, as if none had been given.
    pub(super) fn start_over(&mut self) {
        let waits = |place: &Option<(Instant, Queued)>| {
            let packet = place.as_ref().map(|(_, packet)| packet);
            packet.is_some_and(|packet| packet.packet_len() > 0)
        };
        self.packets.retain(waits);
        self.waiting = self.packets.len();
        (self.next, self.given) = (Header::FIRST, Header::FIRST);
    }

    /// Empties the places of packets that had left before; how many there were, and their bytes.
    pub(super) fn forget_returned(&mut self) -> (u64, usize) {
        let before = (self.waiting, self.bytes);
        for place in &mut self.packets {
            if let Some((_, packet)) = place.take_if(|(_, packet)| packet.returned) {
                self.bytes -= packet.packet_len();
                self.waiting -= 1;
            }
        }
        ((before.0 - self.waiting) as u64, before.1 - self.bytes)
    }

    /// Puts a packet that had left, and joined the queue `since`, back in its place; false if that
    /// is taken, or too far away to be of these numbers.
    pub(super) fn put_back(&mut self, seq: u32, packet: Queued, since: Instant) -> bool {
        let before = self.next.wrapping_sub(seq);
        if before < MOST_BACK {
            for _ in 0..before {
                self.packets.push_front(None);
            }
            self.next = seq;
        }
        let place = seq.wrapping_sub(self.next) as usize;
        let Some(free @ None) = self.packets.get_mut(place) else {
            return false;
        };
        self.bytes += packet.packet_len();
        self.waiting += 1;
        *free = Some((since, packet));
        true
    }

    /// Nothing waits any more: what a burst took does not stay.
    pub(super) fn give_back_room(&mut self) {
        if self.packets.is_empty() {
            self.packets.shrink_to(ROOM);
        }
    }

    pub(super) fn is_of(&self, hash: u32) -> bool {
        self.owner.is_some_and(|(owner, _)| owner == hash)
    }

    pub(super) fn is_free(&self, now: Instant) -> bool {
        let quiet = |(_, last)| now.saturating_duration_since(last) >= QUIET;
        self.waiting == 0 && self.owner.is_none_or(quiet)
    }

    /// The packet whose turn it is.
    pub(super) fn head(&mut self) -> Option<&Queued> {
        while let Some(None) = self.packets.front() {
            self.packets.pop_front();
            self.number();
        }
        let (_, packet) = self.packets.front()?.as_ref()?;
        Some(packet)
    }

    /// Takes the packet whose turn it is, but not its [`Self::number`].
    pub(super) fn pop(&mut self) -> Option<(Instant, Queued)> {
        self.head()?;
        let taken = self.packets.pop_front()??;
        self.account(&taken.1);
        Some(taken)
    }

    /// Takes out the oldest packet that is new, or the newest where later ones have left with their
    /// numbers: the far end waits for what is missing before them, but not for what is missing
    /// after.
    pub(super) fn drop_one(&mut self) -> Option<Queued> {
        if !self.has_spare() {
            return None;
        }
        let place = if self.has_given_away() {
            self.packets.len() - 1
        } else {
            self.packets.iter().position(is_new)?
        };
        let (_, packet) = self.packets.remove(place)??;
        self.account(&packet);
        Some(packet)
    }

    /// Whether a packet waits that is new, and that the far end would not wait for.
    pub(super) fn has_spare(&self) -> bool {
        let awaited = self.given.wrapping_sub(self.next) as usize;
        self.packets.len() > awaited && self.packets.back().is_some_and(is_new)
    }

    /// Bytes that wait before the last packet that may leave ahead of its turn, about.
    pub(super) fn within_reach(&self) -> usize {
        let mean = self.bytes.checked_div(self.waiting).unwrap_or_default();
        self.bytes.min(mean * MOST_EARLY)
    }

    /// The number of what was the first place.
    pub(super) fn number(&mut self) -> u32 {
        let seq = self.next;
        self.next = seq.wrapping_add(1);
        if seq == self.given {
            self.given = self.next;
        }
        seq
    }

    /// Whether a packet has left with the number of the first place or a later one.
    pub(super) fn has_given_away(&self) -> bool {
        self.next != self.given
    }

    /// Takes the first packet with at least about `bytes` bytes ahead, or the last that may leave
    /// so early, with when it joined, its number and how many really are ahead. All packets are
    /// taken for as large as the mean.
    pub(super) fn take_behind(&mut self, bytes: usize) -> Option<(Instant, Queued, u32, usize)> {
        let mean = self.bytes.checked_div(self.waiting)?.max(1);
        let places = self.packets.len().min(MOST_EARLY);
        let from = (bytes / mean).min(places);
        let is_full = |&place: &usize| self.packets[place].is_some();
        let place = (from..places)
            .find(is_full)
            .or_else(|| (0..from).rev().find(is_full))?;
        let (since, packet) = self.packets[place].take()?;
        self.account(&packet);
        let ahead = self.bytes.min(place * mean);
        let seq = self.next.wrapping_add(place as u32);
        if seq.wrapping_sub(self.given) as i32 >= 0 {
            self.given = seq.wrapping_add(1);
        }
        Some((since, packet, seq, ahead))
    }

    pub(super) fn account(&mut self, packet: &Queued) {
        self.bytes -= packet.packet_len();
        self.waiting -= 1;
    }
}

/// Whether there is a packet that has not left before.
fn is_new(place: &Option<(Instant, Queued)>) -> bool {
    place.as_ref().is_some_and(|(_, packet)| !packet.returned)
}
