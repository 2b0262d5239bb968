//! Joins packets that came in two halves, because some path carries no datagram of their size.
//!
//! The halves of a packet have its flow and number, so each is known again whatever path it took,
//! and a copy of either will do. What waits for its other half is bounded, in number and in time.

use std::{
    collections::VecDeque,
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
    /// In the order of their arrival.
    waiting: VecDeque<Waiting>,
    most: usize,
    patience: Duration,
}

impl Default for Halves {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            most: MOST,
            patience: PATIENCE,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    flow: u8,
    seq: u32,
    half: Half,
    bytes: Bytes,
    since: Instant,
}

impl Halves {
    /// For packets that are sent again until they arrive.
    pub fn for_long() -> Self {
        Self {
            most: MOST_FOR_LONG,
            patience: ENDLESS,
            ..Self::default()
        }
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
        let is_of_packet = |it: &Waiting| (it.seq, it.flow) == (header.seq, header.flow);
        // The other half came just before, as a rule.
        let Some(index) = self.waiting.iter().rposition(is_of_packet) else {
            self.wait(header, half, bytes, now);
            return None;
        };
        if self.waiting[index].half.last == half.last {
            return None;
        }
        let other = self.waiting.remove(index)?;
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

    fn wait(&mut self, header: &Header, half: Half, bytes: &[u8], now: Instant) {
        if self.waiting.len() >= self.most {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Waiting {
            flow: header.flow,
            seq: header.seq,
            half,
            bytes: Bytes::copy_from_slice(bytes),
            since: now,
        });
    }

    fn forget_old(&mut self, now: Instant) {
        let patience = self.patience;
        let is_old = |it: &mut Waiting| now.saturating_duration_since(it.since) >= patience;
        while self.waiting.pop_front_if(is_old).is_some() {}
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
        assert_eq!(halves.waiting.len(), 1);
    }
}
