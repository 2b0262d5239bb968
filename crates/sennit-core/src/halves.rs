//! Joins packets that came in two halves, because some path carries no datagram of their size.
//!
//! The halves of a packet have its flow and number, so each is known again whatever path it took,
//! and a copy of either will do. What waits for its other half is bounded, in number and in time.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};

use crate::{
    frame::{Half, Header},
    resequence::ENDLESS,
};

/// Halves that wait at most; of packets of 1400 bytes they take 700 KB. At 20,000 halves a second,
/// of which every twentieth is lost, they are those of a second.
const MOST: usize = 1024;
/// How long a half waits: longer than the other one may be sent again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Halves that wait at most where the other one is sent again until it arrives: as many as may have
/// left since one that is missing.
const MOST_FOR_LONG: usize = 4096;

/// The halves whose other half is missing.
#[derive(Debug)]
pub struct Halves {
    waiting: BTreeMap<Key, Waiting>,
    /// When each of them came, by the number of its arrival.
    arrivals: BTreeMap<u64, (Instant, Key)>,
    /// The number of the next arrival.
    next: u64,
    most: usize,
    patience: Duration,
}

impl Default for Halves {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next: 0,
            most: MOST,
            patience: PATIENCE,
        }
    }
}

/// The flow and number of a packet.
type Key = (u8, u32);

#[derive(Debug)]
struct Waiting {
    last: bool,
    bytes: Bytes,
    arrival: u64,
}

impl Halves {
    /// For packets that are sent again until they arrive.
    pub fn for_long() -> Self {
        let mut halves = Self::default();
        halves.wait_for_long(true);
        halves
    }

    /// Whether packets are sent again until they arrive; what waits goes on waiting.
    pub fn wait_for_long(&mut self, long: bool) {
        (self.most, self.patience) = if long {
            (MOST_FOR_LONG, ENDLESS)
        } else {
            (MOST, PATIENCE)
        };
    }

    /// Takes a half; returns the packet if it is complete with it.
    ///
    /// The half is copied, so that one which waits does not hold the buffer that it was received
    /// in.
    pub fn handle_half(
        &mut self,
        header: &Header,
        half: Half,
        bytes: &[u8],
        now: Instant,
    ) -> Option<Bytes> {
        self.forget_old(now);
        let key = (header.flow, header.seq);
        let Some(other) = self.waiting.get(&key) else {
            self.wait(key, half.last, bytes, now);
            return None;
        };
        if other.last == half.last {
            return None;
        }
        let other = self.take(key)?;
        let (first, last) = if half.last {
            (&other.bytes[..], bytes)
        } else {
            (bytes, &other.bytes[..])
        };
        let mut packet = BytesMut::with_capacity(first.len() + last.len());
        packet.extend_from_slice(first);
        packet.extend_from_slice(last);
        Some(packet.freeze())
    }

    fn wait(&mut self, key: Key, last: bool, bytes: &[u8], now: Instant) {
        while self.waiting.len() >= self.most {
            self.forget_oldest();
        }
        let waiting = Waiting {
            last,
            bytes: Bytes::copy_from_slice(bytes),
            arrival: self.next,
        };
        self.arrivals.insert(self.next, (now, key));
        self.waiting.insert(key, waiting);
        self.next += 1;
    }

    fn take(&mut self, key: Key) -> Option<Waiting> {
        let waiting = self.waiting.remove(&key)?;
        self.arrivals.remove(&waiting.arrival);
        Some(waiting)
    }

    fn forget_old(&mut self, now: Instant) {
        let patience = self.patience;
        let is_old =
            |&(since, _): &(Instant, Key)| now.saturating_duration_since(since) >= patience;
        while self.arrivals.values().next().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, (_, key))) = self.arrivals.pop_first() {
            self.waiting.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(seq: u32) -> Header {
        Header {
            flow: 3,
            ordered: true,
            early: Duration::ZERO,
            seq,
            sent_micros: 0,
        }
    }

    fn half(last: bool, bytes: &[u8]) -> Half {
        Half {
            last,
            partial: false,
            len: bytes.len() as u16,
        }
    }

    #[test]
    fn halves_are_joined_in_whatever_order_they_come() {
        let now = Instant::now();
        let mut halves = Halves::default();
        let mut handle = |seq, last, bytes: &[u8]| {
            halves.handle_half(&header(seq), half(last, bytes), bytes, now)
        };
        assert_eq!(handle(1, false, b"ab"), None);
        assert_eq!(handle(2, true, b"34"), None);
        assert_eq!(handle(1, false, b"ab"), None, "a copy");
        assert_eq!(handle(2, false, b"12").as_deref(), Some(&b"1234"[..]));
        assert_eq!(handle(1, true, b"cd").as_deref(), Some(&b"abcd"[..]));
        assert!(halves.waiting.is_empty());
    }

    /// The halves of two packets of a flow, and of one of another with the number of the first.
    #[test]
    fn in_every_order_of_halves_and_copies_a_packet_is_there_once_both_its_halves_are() {
        const HALVES: u32 = 6;
        let now = Instant::now();
        for order in 0..HALVES.pow(6) {
            let mut halves = Halves::default();
            let mut waiting = [None; 3];
            for arrival in 0..6 {
                let which = order / HALVES.pow(arrival) % HALVES;
                let (packet, last) = (which / 2, which % 2 == 1);
                let header = Header {
                    flow: packet as u8 / 2,
                    ..header(packet % 2)
                };
                let bytes = [packet as u8, u8::from(last)];
                let joined = halves.handle_half(&header, half(last, &bytes), &bytes, now);

                let place = &mut waiting[packet as usize];
                let is_whole = *place == Some(!last);
                *place = (!is_whole).then_some(last);
                let whole = [packet as u8, 0, packet as u8, 1];
                let expected = is_whole.then_some(&whole[..]);
                assert_eq!(joined.as_deref(), expected, "{order}, {arrival}");
            }
            let count = waiting.iter().flatten().count();
            assert_eq!(
                (halves.waiting.len(), halves.arrivals.len()),
                (count, count)
            );
        }
    }

    #[test]
    fn where_the_other_half_is_sent_again_until_it_arrives_one_waits_as_long_as_others_are_held() {
        let start = Instant::now();
        let mut halves = Halves::for_long();
        let mut handle = |seq, last, after| {
            let now = start + after;
            halves.handle_half(&header(seq), half(last, b"a"), b"a", now)
        };
        for seq in 0..MOST_FOR_LONG as u32 {
            assert_eq!(handle(seq, false, Duration::ZERO), None);
        }
        let late = ENDLESS - Duration::from_millis(1);
        assert_eq!(handle(0, true, late).as_deref(), Some(&b"aa"[..]));
        assert_eq!(handle(1, true, ENDLESS), None);
    }

    #[test]
    fn what_waits_is_not_forgotten_where_others_wait_for_longer_or_shorter() {
        let now = Instant::now();
        for long in [true, false] {
            let mut halves = Halves::default();
            halves.wait_for_long(!long);
            let first = halves.handle_half(&header(1), half(false, b"a"), b"a", now);
            halves.wait_for_long(long);
            let whole = halves.handle_half(&header(1), half(true, b"b"), b"b", now);
            assert_eq!((first, whole.as_deref()), (None, Some(&b"ab"[..])));
        }
    }

    #[test]
    fn of_too_many_halves_the_one_that_came_first_is_forgotten() {
        let now = Instant::now();
        let mut halves = Halves::default();
        let mut handle = |seq, last| {
            let joined = halves.handle_half(&header(seq), half(last, b"a"), b"a", now);
            assert_eq!(halves.waiting.len(), halves.arrivals.len());
            joined.is_some()
        };
        for seq in (0..MOST as u32).rev() {
            assert!(!handle(seq, false));
        }
        // One that is joined makes room for another.
        assert!(handle(7, true));
        assert!(!handle(5000, false));
        assert!(handle(MOST as u32 - 1, true) && !handle(5001, false));
        assert!(!handle(5002, false));
        assert!(!handle(MOST as u32 - 2, true), "it was the first of those");
        assert!(handle(0, true) && handle(5000, true) && handle(5002, true));
    }

    #[test]
    fn a_half_waits_for_a_time_and_only_so_many_do() {
        let start = Instant::now();
        let mut halves = Halves::default();
        for seq in 0..2 * MOST as u32 {
            halves.handle_half(&header(seq), half(false, b"a"), b"a", start);
        }
        assert_eq!(halves.waiting.len(), MOST);
        let newest = header(2 * MOST as u32 - 1);
        let late = start + PATIENCE;
        assert_eq!(
            halves.handle_half(&newest, half(true, b"b"), b"b", late),
            None
        );
        assert_eq!((halves.waiting.len(), halves.arrivals.len()), (1, 1));
    }
}
