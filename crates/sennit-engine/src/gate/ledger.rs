//! Which datagrams are in flight in which packets.
//!
//! noq forgets a DATAGRAM frame once it is sent. To send lost ones again, the driver *stages* the
//! datagrams of a batch; as noq reports the packets it made of them, one by one and with their sizes,
//! the staged datagrams move to those packets. There they stay until the packet is acknowledged or lost.

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;

/// What a packet has beside DATAGRAM frames, at least: short header with a connection ID of 8 bytes,
/// packet number, tag.
const OVERHEAD: usize = 1 + 8 + 1 + 16;

/// A datagram that may have to be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    pub(crate) first_sent: Instant,
    /// How often it was sent again.
    pub(crate) repeats: u8,
}

/// The datagrams of one path. What is in flight is bounded by the congestion window.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    staged: VecDeque<Payload>,
    sent: VecDeque<(u64, Option<Payload>)>,
    lost: Vec<Payload>,
}

impl Ledger {
    /// The next packets carry this datagram after those staged before.
    pub(crate) fn stage(&mut self, payload: Payload) {
        self.staged.push_back(payload);
    }

    /// The batch is over; what noq did not send is not in flight.
    pub(crate) fn end_batch(&mut self) {
        self.staged.clear();
    }

    /// What was lost since the last call.
    pub(crate) fn take_lost(&mut self) -> Vec<Payload> {
        std::mem::take(&mut self.lost)
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The path is not trusted any more: everything in flight is as good as lost.
    pub(crate) fn give_up(&mut self) {
        let in_flight = self.sent.drain(..).filter_map(|(_, payload)| payload);
        self.lost.extend(in_flight);
    }

    pub(super) fn on_sent(&mut self, pn: u64, bytes: u16) {
        // The handshake's packet number spaces follow each other on one path.
        if self.sent.back().is_some_and(|&(last, _)| last > pn) {
            self.sent.clear();
        }
        let mut room = usize::from(bytes).saturating_sub(OVERHEAD);
        while let Some(left) = self
            .staged
            .front()
            .and_then(|first| room.checked_sub(first.bytes.len() + 1))
        {
            room = left;
            self.sent.push_back((pn, self.staged.pop_front()));
        }
    }

    pub(super) fn on_acked(&mut self, pn: u64) {
        self.settle(pn, false);
    }

    pub(super) fn on_lost(&mut self, pn: u64) {
        self.settle(pn, true);
    }

    fn settle(&mut self, pn: u64, lost: bool) {
        let first = self.sent.partition_point(|&(sent, _)| sent < pn);
        for (_, payload) in self
            .sent
            .range_mut(first..)
            .take_while(|(sent, _)| *sent == pn)
        {
            let payload = payload.take();
            if lost {
                self.lost.extend(payload);
            }
        }
        while let Some((_, None)) = self.sent.front() {
            self.sent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(sizes: &[usize]) -> Ledger {
        let mut ledger = Ledger::default();
        for (index, &size) in sizes.iter().enumerate() {
            ledger.stage(Payload {
                bytes: vec![index as u8; size].into(),
                first_sent: Instant::now(),
                repeats: 0,
            });
        }
        ledger
    }

    fn lost(ledger: &mut Ledger) -> Vec<u8> {
        ledger
            .take_lost()
            .iter()
            .map(|lost| lost.bytes[0])
            .collect()
    }

    #[test]
    fn the_datagrams_of_a_lost_packet_are_known() {
        let mut ledger = ledger(&[1400, 1400, 100, 100, 1400]);
        for (pn, bytes) in [(7, 1430), (8, 1430), (9, 235), (12, 1430)] {
            ledger.on_sent(pn, bytes);
        }
        ledger.on_acked(8);
        ledger.on_lost(9);
        ledger.on_lost(7);
        assert_eq!(lost(&mut ledger), [2, 3, 0]);
        ledger.on_acked(12);
        assert!(ledger.sent.is_empty() && !ledger.has_lost());
    }

    #[test]
    fn packets_without_datagrams_take_none() {
        let mut ledger = ledger(&[1400]);
        ledger.on_sent(1, 40);
        ledger.on_sent(2, 1430);
        ledger.on_lost(1);
        assert!(!ledger.has_lost());
        ledger.on_lost(2);
        assert_eq!(lost(&mut ledger), [0]);
    }

    #[test]
    fn what_is_in_flight_on_a_dead_path_is_given_up_at_once() {
        let mut ledger = ledger(&[1400, 1400, 1400]);
        for pn in 0..3 {
            ledger.on_sent(pn, 1430);
        }
        ledger.on_acked(1);
        ledger.give_up();
        assert_eq!(lost(&mut ledger), [0, 2]);
        ledger.on_lost(0);
        assert!(!ledger.has_lost());
    }

    #[test]
    fn what_was_never_sent_is_not_in_flight() {
        let mut ledger = ledger(&[1400, 1400]);
        ledger.on_sent(0, 1430);
        ledger.end_batch();
        ledger.on_sent(1, 1430);
        ledger.on_lost(1);
        assert!(!ledger.has_lost());
    }
}
