//! Which datagrams are in flight in which packets.
//!
//! noq forgets a DATAGRAM frame once it is sent. To send lost ones again, the driver *stages* the
//! datagrams of a batch; as noq reports the packets it made of them, one by one and with their
//! sizes, the staged datagrams move to those packets. There they stay until the packet is
//! acknowledged or lost.
//!
//! A packet is lost to the ledger once one that left later by more than the path's jitter has been
//! acknowledged (as RFC 8985 does it). That is sooner than noq's verdict, and costs only a second
//! copy when it is wrong.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_core::RecentLosses;
use sennit_masque::varint;

use super::loss::Loss;
use crate::in_order;

/// What a packet has beside DATAGRAM frames, at least: short header with a connection ID of 8
/// bytes, packet number, tag.
const OVERHEAD: usize = 1 + 8 + 1 + 16;

/// Packets overtake each other by this much on any path, and by so many mean deviations of the
/// round trip on one that jitters.
const OVERTAKING: Duration = Duration::from_millis(2);
const DEVIATIONS: u32 = 4;

/// noq decides what is lost within two round trips, but never says so of what left before it moved
/// the path to another port of the same address.
const DECIDED_AFTER: u32 = 4;

/// A datagram that may have to be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    pub(crate) first_sent: Instant,
    /// How often it was sent again.
    pub(crate) repeats: u8,
    /// What it shares with others that left at the same time and are the same.
    pub(crate) twins: Option<Twins>,
    /// The datagram that it is half of, under reliable delivery: the far end may forget the other
    /// half after it has acknowledged it.
    pub(crate) half_of: Option<Arc<Whole>>,
}

/// A datagram that left in two halves, which share it.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    is_taken: AtomicBool,
}

impl Whole {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            is_taken: AtomicBool::new(false),
        }
    }

    /// Whether it is taken for the first time: it is sent again in the place of one of its halves,
    /// and the other one is not missed then.
    pub(crate) fn take(&self) -> bool {
        !self.is_taken.swap(true, Relaxed)
    }
}

/// Shared by datagrams that are the same and leave at the same time: whether one has arrived. What
/// is lost of them is lost only with the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Twins(Arc<AtomicBool>);

impl Payload {
    fn note_arrived(&self) {
        if let Some(Twins(arrived)) = &self.twins {
            arrived.store(true, Relaxed);
        }
    }

    /// Whether it is there by a twin.
    fn has_arrived(&self) -> bool {
        let arrived = |Twins(arrived): &Twins| arrived.load(Relaxed);
        self.twins.as_ref().is_some_and(arrived)
    }

    /// Whether this one, which is lost, has no twin that has arrived or may still.
    fn is_missing(&self) -> bool {
        let is_last = |Twins(arrived): &Twins| Arc::strong_count(arrived) == 1;
        self.twins.as_ref().is_none_or(is_last) && !self.has_arrived()
    }
}

/// The datagrams of one path. What is in flight is bounded by the congestion window.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    staged: VecDeque<Payload>,
    sent: VecDeque<Sent>,
    lost: Vec<Payload>,
    /// Packets below this number are given up with their path, but stay in `sent` until they are
    /// sent again: perhaps only their acknowledgements were lost, and come by another path before
    /// that.
    given_up: u64,
    /// Packets that are lost to the ledger and still in flight to noq, and their bytes.
    written_off: VecDeque<WrittenOff>,
    written_off_bytes: u64,
    /// When the newest packet left that is acknowledged, and the newest that was before the
    /// acknowledgements which are being digested.
    newest: Option<Instant>,
    newest_before: Option<Instant>,
    /// When these arrived.
    acked: Option<Instant>,
    /// Smoothed round trip and its mean deviation.
    rtt: Duration,
    deviation: Duration,
    loss: Loss,
    /// Of all packets, whatever they carried.
    losses: RecentLosses,
}

#[derive(Debug)]
struct WrittenOff {
    pn: u64,
    at: Instant,
    /// 0 once noq has decided.
    bytes: u16,
}

#[derive(Debug)]
struct Sent {
    pn: u64,
    at: Instant,
    /// Of the packet, if this is the first datagram in it.
    bytes: u16,
    payload: Option<Payload>,
}

impl Ledger {
    /// The next packets carry this datagram after those staged before.
    pub(crate) fn stage(&mut self, payload: Payload) {
        self.staged.push_back(payload);
    }

    /// The batch is over; what noq did not send, as far as can be told, is not in flight. Of twins
    /// that is one, if none has left.
    pub(crate) fn end_batch(&mut self) -> Vec<Payload> {
        let left = std::mem::take(&mut self.staged).into_iter();
        left.filter(Payload::is_missing).collect()
    }

    /// What was lost since the last call.
    pub(crate) fn take_lost(&mut self) -> Vec<Payload> {
        std::mem::take(&mut self.lost)
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// When the oldest datagram first left that is in flight, and not there by a twin.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let payloads = self.sent.iter().filter_map(|sent| sent.payload.as_ref());
        let all = payloads.chain(&self.lost);
        all.filter(|payload| !payload.has_arrived())
            .map(|payload| payload.first_sent)
            .min()
    }

    /// The path is not trusted any more: everything in flight is as good as lost.
    pub(crate) fn give_up(&mut self) {
        self.given_up = self.sent.back().map_or(0, |last| last.pn + 1);
    }

    /// The path is gone: whatever is in flight is lost.
    pub(crate) fn lose_all(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        let payloads = sent.into_iter().filter_map(|sent| sent.payload);
        self.lost.extend(payloads.filter(Payload::is_missing));
    }

    /// noq measures the path anew: what was in flight counts no more, and is given up.
    pub(crate) fn start_over(&mut self) {
        self.end_batch();
        self.give_up();
        self.forget_all_written_off();
    }

    fn forget_all_written_off(&mut self) {
        self.written_off.clear();
        self.written_off_bytes = 0;
    }

    /// Whether something was given up that is still not acknowledged.
    pub(crate) fn has_given_up(&self) -> bool {
        // Settled packets do not stay at the front.
        let first = self.sent.front();
        first.is_some_and(|first| first.pn < self.given_up)
    }

    /// The oldest of what was given up and is still not acknowledged, to be sent again.
    pub(crate) fn take_given_up(&mut self) -> Option<Payload> {
        while self.has_given_up() {
            let payload = self.sent.pop_front()?.payload;
            self.drop_settled();
            // Of twins it is the last one.
            let missing = payload.filter(Payload::is_missing);
            if missing.is_some() {
                return missing;
            }
        }
        None
    }

    fn drop_settled(&mut self) {
        let settled = |first: &Sent| first.payload.is_none();
        while self.sent.front().is_some_and(settled) {
            self.sent.pop_front();
        }
    }

    pub(super) fn on_sent(&mut self, pn: u64, bytes: u16, now: Instant) {
        // The handshake's packet number spaces follow each other on one path. What it sends again
        // while packets of the last space are in flight has a lower number, and these may be lost.
        if self.sent.back().is_some_and(|last| last.pn > pn) {
            self.lose_all();
            self.forget_all_written_off();
            self.given_up = 0;
        }
        let mut room = usize::from(bytes).saturating_sub(OVERHEAD);
        let mut bytes = bytes;
        while let Some(left) = self
            .staged
            .front()
            .and_then(|first| room.checked_sub(frame_len(first.bytes.len())))
        {
            room = left;
            self.sent.push_back(Sent {
                pn,
                at: now,
                bytes: std::mem::take(&mut bytes),
                payload: self.staged.pop_front(),
            });
        }
    }

    pub(super) fn on_acked(&mut self, pn: u64, sent: Instant, now: Instant) {
        self.forget_written_off(pn);
        self.losses.count_arrived(now);
        if self.settle(pn, false) {
            self.loss.count_acked(now);
        }
        self.newest = self.newest.max(Some(sent));
        self.acked = Some(now);
        // It was overtaken. That others are acknowledged along with a newer one says nothing: it
        // may be acknowledgements that were lost.
        if Some(sent) < self.newest_before {
            self.sample(now.saturating_duration_since(sent));
        }
    }

    fn sample(&mut self, rtt: Duration) {
        if self.rtt.is_zero() {
            self.rtt = rtt;
        }
        self.deviation = (7 * self.deviation + self.rtt.abs_diff(rtt)) / 8;
        self.rtt = (7 * self.rtt + rtt) / 8;
    }

    /// Gives up what was overtaken by more than the path's jitter. Nothing is learned of the path
    /// from it while its controller still tries how much it holds: `starting`.
    pub(super) fn sweep(&mut self, starting: bool) {
        let (Some(newest), Some(acked)) = (self.newest, self.acked) else {
            return;
        };
        if self.newest > self.newest_before {
            self.sample(acked.saturating_duration_since(newest));
            self.newest_before = self.newest;
        }
        let jitter = self.jitter();
        while self
            .sent
            .front()
            .is_some_and(|first| first.at + jitter < newest)
        {
            let Some(first) = self.sent.pop_front() else {
                return;
            };
            if first.bytes > 0 {
                self.written_off_bytes += u64::from(first.bytes);
                self.written_off.push_back(WrittenOff {
                    pn: first.pn,
                    at: first.at,
                    bytes: first.bytes,
                });
            }
            self.lost.extend(first.payload.filter(Payload::is_missing));
            self.count_lost(first.pn, starting, acked);
            self.drop_settled();
        }
    }

    /// By how much packets of the path overtake each other.
    pub(crate) fn jitter(&self) -> Duration {
        OVERTAKING + DEVIATIONS * self.deviation
    }

    /// Part of the packets that were lost lately.
    pub(crate) fn loss(&self, now: Instant) -> f64 {
        self.loss.part(now)
    }

    /// Part of the packets that were lost since the path began to lose some, while [`Self::loss`]
    /// does not know of it yet; else 0.
    pub(crate) fn loss_at_first(&self, now: Instant) -> f64 {
        self.loss.part_at_first(now)
    }

    /// How many times as long as by chance are the bursts in which packets are lost, on average.
    pub(crate) fn burst(&self) -> f64 {
        self.loss.burst()
    }

    /// Part of the packets that were lost within a minute, for a path that carries little.
    pub(crate) fn loss_counted(&self, now: Instant) -> f64 {
        self.loss.part_counted(now)
    }

    /// What became of all its packets of late.
    pub(crate) fn losses(&self) -> RecentLosses {
        self.losses
    }

    /// Bytes that noq holds to be in flight although they are lost: the window is larger by them
    /// (docs/decisions/0023).
    pub(super) fn written_off(&self) -> u64 {
        self.written_off_bytes
    }

    /// noq has made up its mind about this packet.
    fn forget_written_off(&mut self, pn: u64) {
        let first = in_order::first_not(&self.written_off, |lost| lost.pn < pn);
        let lost = self.written_off.get_mut(first);
        if let Some(lost) = lost.filter(|lost| lost.pn == pn) {
            self.written_off_bytes -= u64::from(std::mem::take(&mut lost.bytes));
        }
        let (newest, after) = (self.newest, DECIDED_AFTER * self.rtt);
        let decided =
            |first: &WrittenOff| first.bytes == 0 || newest.is_some_and(|at| first.at + after < at);
        while self.written_off.front().is_some_and(decided) {
            let first = self.written_off.pop_front();
            self.written_off_bytes -= first.map_or(0, |first| u64::from(first.bytes));
        }
    }

    pub(super) fn on_lost(&mut self, pn: u64, starting: bool, now: Instant) {
        self.forget_written_off(pn);
        self.losses.count_lost(now);
        if self.settle(pn, true) {
            self.count_lost(pn, starting, now);
        }
    }

    fn count_lost(&mut self, pn: u64, starting: bool, now: Instant) {
        if pn >= self.given_up {
            self.loss.count_lost(pn, starting, now);
        }
    }

    /// What was in this packet is not in flight any more; false if nothing was.
    fn settle(&mut self, pn: u64, lost: bool) -> bool {
        let mut known = false;
        let first = in_order::first_not(&self.sent, |sent| sent.pn < pn);
        for sent in self
            .sent
            .range_mut(first..)
            .take_while(|sent| sent.pn == pn)
        {
            let payload = sent.payload.take();
            let Some(payload) = payload else { continue };
            known = true;
            if !lost {
                payload.note_arrived();
            } else if payload.is_missing() {
                self.lost.push(payload);
            }
        }
        self.drop_settled();
        known
    }
}

/// What a datagram of this length takes of a packet: noq writes its length too (RFC 9221 §4).
fn frame_len(datagram: usize) -> usize {
    1 + varint::size(datagram as u64) + datagram
}

#[cfg(test)]
mod tests {
    use super::{super::loss::MEMORY, *};

    fn ledger(sizes: &[usize]) -> Ledger {
        let mut ledger = Ledger::default();
        for (index, &size) in sizes.iter().enumerate() {
            ledger.stage(Payload {
                bytes: vec![index as u8; size].into(),
                first_sent: Instant::now(),
                repeats: 0,
                twins: None,
                half_of: None,
            });
        }
        ledger
    }

    #[test]
    fn what_is_in_flight_on_a_path_that_goes_is_lost() {
        let mut ledger = ledger(&[1000, 1000]);
        let now = now();
        ledger.on_sent(1, 1100, now);
        ledger.on_sent(2, 1100, now);
        ledger.on_acked(1, now, now);
        ledger.lose_all();
        assert_eq!(ledger.take_lost().len(), 1);
    }

    /// Packets that left with a new connection and were lost were never sent again, because the end
    /// of its handshake was.
    #[test]
    fn what_is_in_flight_while_a_handshake_is_repeated_is_not_forgotten() {
        let mut ledger = ledger(&[1400, 1400]);
        ledger.on_sent(5, 1430, now());
        ledger.on_sent(6, 1430, now());
        ledger.on_sent(2, 80, now());
        assert_eq!(lost(&mut ledger), [0, 1]);
    }

    fn now() -> Instant {
        Instant::now()
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
            ledger.on_sent(pn, bytes, now());
        }
        ledger.on_acked(8, now(), now());
        ledger.on_lost(9, false, now());
        ledger.on_lost(7, false, now());
        assert_eq!(lost(&mut ledger), [2, 3, 0]);
        ledger.on_acked(12, now(), now());
        assert!(ledger.sent.is_empty() && !ledger.has_lost());
    }

    /// As thin acknowledgements of TCP are.
    #[test]
    fn of_many_tiny_datagrams_each_is_known_by_its_packet() {
        let mut ledger = ledger(&[25; 104]);
        for pn in [1, 2] {
            // Each takes two more bytes, for its type and its length.
            ledger.on_sent(pn, 26 + 52 * 27 + 1, now());
        }
        ledger.on_lost(1, false, now());
        assert_eq!(lost(&mut ledger), Vec::from_iter(0..52));
    }

    #[test]
    fn of_twins_the_last_is_missed_and_only_if_none_has_arrived() {
        let twins = |count: u8| {
            let (mut ledger, twins) = (Ledger::default(), Twins::default());
            for pn in 0..count {
                ledger.stage(Payload {
                    bytes: vec![7; 1400].into(),
                    first_sent: now(),
                    repeats: 1,
                    twins: Some(twins.clone()),
                    half_of: None,
                });
                ledger.on_sent(pn.into(), 1430, now());
            }
            ledger
        };
        let mut ledger = twins(3);
        ledger.on_lost(1, false, now());
        ledger.on_lost(0, false, now());
        assert!(!ledger.has_lost());
        ledger.on_lost(2, false, now());
        assert_eq!(lost(&mut ledger), [7]);

        let mut ledger = twins(2);
        ledger.on_acked(0, now(), now());
        ledger.on_lost(1, false, now());
        assert!(!ledger.has_lost());
    }

    #[test]
    fn packets_without_datagrams_take_none() {
        let mut ledger = ledger(&[1400]);
        ledger.on_sent(1, 40, now());
        ledger.on_sent(2, 1430, now());
        ledger.on_lost(1, false, now());
        assert!(!ledger.has_lost());
        ledger.on_lost(2, false, now());
        assert_eq!(lost(&mut ledger), [0]);
    }

    #[test]
    fn what_is_in_flight_on_a_dead_path_is_given_up_at_once() {
        let mut ledger = ledger(&[1400, 1400, 1400]);
        for pn in 0..3 {
            ledger.on_sent(pn, 1430, now());
        }
        ledger.on_acked(1, now(), now());
        assert!(!ledger.has_given_up());
        ledger.give_up();
        let given_up: Vec<u8> = std::iter::from_fn(|| ledger.take_given_up())
            .map(|payload| payload.bytes[0])
            .collect();
        assert_eq!(given_up, [0, 2]);
        ledger.on_lost(0, false, now());
        assert!(!ledger.has_lost() && !ledger.has_given_up());
    }

    #[test]
    fn what_turns_out_to_have_arrived_is_not_sent_again() {
        let mut ledger = ledger(&[1400; 5]);
        for pn in 0..4 {
            ledger.on_sent(pn, 1430, now());
        }
        ledger.give_up();
        ledger.on_sent(4, 1430, now());
        assert_eq!(ledger.take_given_up().unwrap().bytes[0], 0);
        for pn in [3, 1] {
            ledger.on_acked(pn, now(), now());
        }
        assert_eq!(ledger.take_given_up().unwrap().bytes[0], 2);
        assert!(!ledger.has_given_up(), "the last one left later");
        assert!(ledger.take_given_up().is_none());
    }

    #[test]
    fn what_was_overtaken_by_more_than_the_jitter_is_lost() {
        let mut ledger = ledger(&[1400; 60]);
        let start = now();
        let ms = |ms| start + Duration::from_millis(ms);
        for pn in 0..60 {
            ledger.on_sent(pn, 1430, ms(pn));
        }
        // A steady path: two milliseconds are enough.
        for pn in (0..20).filter(|pn| *pn != 10) {
            ledger.on_acked(pn, ms(pn), ms(pn + 20));
            ledger.sweep(false);
            assert_eq!(ledger.has_lost(), pn >= 13, "{pn}");
        }
        assert_eq!(lost(&mut ledger), [10]);
        // A path that jitters by 10 ms: what comes a little later is not lost.
        for pn in 20..60 {
            let jitter = 10 * (pn % 2);
            ledger.on_acked(pn, ms(pn), ms(pn + 20 + jitter));
            ledger.sweep(false);
        }
        ledger.take_lost();
        let mut jittery = Ledger {
            sent: VecDeque::new(),
            ..ledger
        };
        for index in 0..3 {
            jittery.stage(Payload {
                bytes: vec![index; 1400].into(),
                first_sent: start,
                repeats: 0,
                twins: None,
                half_of: None,
            });
            jittery.on_sent(100 + u64::from(index), 1430, ms(200 + 4 * u64::from(index)));
        }
        jittery.on_acked(102, ms(208), ms(228));
        jittery.sweep(false);
        assert!(!jittery.has_lost());
    }

    #[test]
    fn what_arrived_after_a_lost_packet_does_not_count_as_lost() {
        let mut ledger = ledger(&[1400; 40]);
        let start = now();
        let ms = |ms| start + Duration::from_millis(ms);
        for pn in 0..40 {
            ledger.on_sent(pn, 1430, ms(pn));
        }
        // One acknowledgement for all but the first.
        for pn in 1..40 {
            ledger.on_acked(pn, ms(pn), ms(pn + 20));
        }
        ledger.sweep(false);
        assert_eq!(lost(&mut ledger), [0]);
        let one = 1.0 / MEMORY;
        let loss = ledger.loss(ms(60));
        assert!((loss - one).abs() < one / 10.0, "{loss}");
    }

    #[test]
    fn a_lost_packet_is_written_off_until_noq_has_decided() {
        let mut ledger = ledger(&[1400, 600, 600, 1400, 1400, 1400]);
        let start = now();
        for pn in 0..5 {
            ledger.on_sent(pn, 1430, start + Duration::from_millis(10) * pn as u32);
        }
        let newest = start + Duration::from_millis(40);
        ledger.on_acked(4, newest, newest + Duration::from_millis(20));
        ledger.sweep(false);
        // Of two datagrams in one packet only the packet counts.
        assert_eq!(ledger.take_lost().len(), 5);
        assert_eq!(ledger.written_off(), 4 * 1430);
        // One has come after all.
        ledger.on_acked(1, start, newest + Duration::from_millis(30));
        ledger.on_lost(2, false, now());
        assert_eq!(ledger.written_off(), 2 * 1430);
        ledger.on_lost(2, false, now());
        ledger.on_lost(0, false, now());
        ledger.on_lost(3, false, now());
        assert_eq!(ledger.written_off(), 0);
        assert!(ledger.written_off.is_empty());
    }

    #[test]
    fn what_noq_never_decides_is_not_written_off_for_good() {
        let mut ledger = ledger(&[1400; 30]);
        let start = now();
        let ms = |ms| start + Duration::from_millis(ms);
        for pn in 0..30 {
            ledger.on_sent(pn, 1430, ms(10 * pn));
            if pn > 0 {
                ledger.on_acked(pn, ms(10 * pn), ms(10 * pn + 20));
                ledger.sweep(false);
            }
            let expected = if (1..=9).contains(&pn) { 1430 } else { 0 };
            assert_eq!(ledger.written_off(), expected, "{pn}");
        }
    }

    #[test]
    fn what_was_never_sent_is_not_in_flight() {
        let mut ledger = ledger(&[1400, 1400]);
        ledger.on_sent(0, 1430, now());
        ledger.end_batch();
        ledger.on_sent(1, 1430, now());
        ledger.on_lost(1, false, now());
        assert!(!ledger.has_lost());
    }
}
