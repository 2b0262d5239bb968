//! The receiving end: what arrived, and acknowledgements of it.

use std::{net::Ipv4Addr, time::Instant};

use super::{MAX_ACK_DELAY, MAX_RANGES, PAYLOAD, Range, ack, word};
use crate::endpoint::Endpoint;

/// RFC 9000 §13.2.2.
const ACK_EVERY: u32 = 2;

pub(crate) struct Sink {
    here: Ipv4Addr,
    there: Ipv4Addr,
    port: u16,
    /// Newest first, apart from each other.
    ranges: Vec<Range>,
    /// Packets that are not acknowledged yet.
    pending: u32,
    ack_at: Option<Instant>,
    /// By chunk.
    has: Vec<bool>,
    received: u64,
}

impl Sink {
    pub(crate) fn new(here: Ipv4Addr, there: Ipv4Addr, port: u16) -> Self {
        Self {
            here,
            there,
            port,
            ranges: Vec::new(),
            pending: 0,
            ack_at: None,
            has: Vec::new(),
            received: 0,
        }
    }

    fn handle_chunk(&mut self, chunk: usize) {
        if chunk >= self.has.len() {
            self.has.resize(chunk + 1, false);
        }
        if !std::mem::replace(&mut self.has[chunk], true) {
            self.received += PAYLOAD as u64;
        }
    }
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, packet: &[u8], now: Instant) {
        let (Some(number), Some(chunk)) = (word(packet, 0), word(packet, 1)) else {
            return;
        };
        let next = self.ranges.first().map_or(0, |range| range.end() + 1);
        insert(&mut self.ranges, number);
        self.handle_chunk(chunk as usize);
        self.pending += 1;
        self.ack_at = if number != next || self.pending >= ACK_EVERY {
            Some(now)
        } else {
            self.ack_at.or(Some(now + MAX_ACK_DELAY))
        };
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.ack_at.take_if(|at| *at <= now)?;
        self.pending = 0;
        Some(ack::encode(self.here, self.there, self.port, &self.ranges))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ack_at
    }

    fn received(&self) -> u64 {
        self.received
    }
}

/// Adds a number to ranges that are sorted from the newest on, and forgets the oldest if they are
/// many.
fn insert(ranges: &mut Vec<Range>, number: u32) {
    let at = ranges.partition_point(|range| *range.start() > number);
    if ranges.get(at).is_some_and(|range| range.contains(&number)) {
        return;
    }
    let mut grown = number..=number;
    if let Some(older) = ranges.get(at).filter(|range| range.end() + 1 == number) {
        grown = *older.start()..=number;
        ranges.remove(at);
    }
    let newer = at.checked_sub(1).and_then(|n| ranges.get_mut(n));
    match newer.filter(|range| *range.start() == number + 1) {
        Some(newer) => *newer = *grown.start()..=*newer.end(),
        None => ranges.insert(at, grown),
    }
    ranges.truncate(MAX_RANGES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{quic::set_word, udp};

    #[test]
    fn ranges_grow_on_both_sides_and_join() {
        let mut ranges = Vec::new();
        for number in [3, 5, 9, 4, 4, 8, 1] {
            insert(&mut ranges, number);
        }
        assert_eq!(ranges, [8..=9, 3..=5, 1..=1]);
        insert(&mut ranges, 2);
        assert_eq!(ranges, [8..=9, 1..=5]);
    }

    #[test]
    fn there_are_never_more_ranges_than_fit() {
        let mut ranges = Vec::new();
        (0..1000).for_each(|n| insert(&mut ranges, 2 * n));
        assert_eq!((ranges.len(), &ranges[0]), (MAX_RANGES, &(1998..=1998)));
    }

    #[test]
    fn what_another_load_left_on_its_way_is_no_chunk() {
        let mut sink = Sink::new(crate::SERVER, crate::EDGE, 7);
        let mut of_tcp = data(0, u32::MAX);
        of_tcp[9] = 6;
        sink.handle_packet(&of_tcp, Instant::now());
        assert_eq!((sink.received(), sink.has.len()), (0, 0));
    }

    fn data(number: u32, chunk: u32) -> Vec<u8> {
        let mut packet = udp(crate::EDGE, crate::SERVER, 7, number, 100);
        set_word(&mut packet, 1, chunk);
        packet
    }

    #[test]
    fn every_second_packet_is_acknowledged_and_what_is_out_of_order_at_once() {
        let now = Instant::now();
        let mut sink = Sink::new(crate::SERVER, crate::EDGE, 7);
        sink.handle_packet(&data(0, 0), now);
        assert_eq!(sink.poll_packet(now), None);
        assert_eq!(sink.poll_timeout(), Some(now + MAX_ACK_DELAY));
        for number in [1, 3, 2] {
            sink.handle_packet(&data(number, number), now);
            assert!(sink.poll_packet(now).is_some(), "{number}");
        }
        assert_eq!(sink.poll_timeout(), None);
    }

    #[test]
    fn a_chunk_counts_once() {
        let now = Instant::now();
        let mut sink = Sink::new(crate::SERVER, crate::EDGE, 7);
        for number in 0..5 {
            sink.handle_packet(&data(number, 3), now);
        }
        assert_eq!(sink.received(), PAYLOAD as u64);
    }
}
