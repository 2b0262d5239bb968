//! How fast a path delivers (draft-ietf-ccwg-bbr, "delivery rate samples").
//!
//! Each packet remembers how much had been delivered when it left. When it is acknowledged, the
//! difference, over the longer of the time it took to send that much and the time it took to hear
//! of it, is a sample of the rate. A packet that left when the driver had no more to send than the
//! path would have taken is marked: its sample is a lower bound, not a measurement.
//!
//! On a path of microseconds both times are those of the host: it reads what has come and sends
//! what it may in turns of a millisecond, late now and then, and what it makes up for then arrives
//! all at once. So a sample covers [`SPAN`] at least: the packet remembers what had been delivered
//! some time before it left. It is a lower bound if the driver had not enough to send in any part
//! of that time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::in_order;

/// A path with a shorter round trip shows the hosts.
const SHORT: Duration = Duration::from_millis(2);
/// It does for so long after one: twice as long as until BBR sees the least one again
/// (draft-ietf-ccwg-bbr-06 §2.13). One that was measured wrong does no harm for longer.
const SHORT_FOR: Duration = Duration::from_secs(20);
/// A sample of a short path covers at least so much: many turns of both hosts.
const SPAN: Duration = Duration::from_millis(20);
/// States that are remembered lie so far apart, at least.
const APART: Duration = Duration::from_millis(1);

/// Packets that left at once and arrive one after the other show how fast the path is, long before
/// it is full, if they take as long as this to arrive, many turns of the host, and are so many that
/// jitter counts little.
const TRAIN_TIME: Duration = Duration::from_millis(5);
const TRAIN_BYTES: u64 = 90_000;
/// They left in this part of the time in which they arrive, at most.
const TRAIN_SENT: f64 = 0.75;

/// No more packets than this are followed: 88 bytes each, and 0.2 s of 300,000 a second. From half
/// of them on every second one is left out, then more, so that each batch still has a sample.
const LIMIT: usize = 1 << 16;
/// A packet that is this far behind the newest will not be heard of again.
const UNSETTLED: u64 = 1 << 13;

/// Follows the packets of one path.
#[derive(Debug)]
pub(crate) struct Delivery {
    sent: VecDeque<Sent>,
    state: State,
    /// On a short path, states of the last [`SPAN`] and one older.
    past: VecDeque<State>,
    /// When a round trip was short.
    short: Option<Instant>,
    /// Packets that leave before this much is delivered are marked as limited.
    limited_until: u64,
    /// The newest packet of the batch that is being digested.
    newest: Option<Sent>,
    acked: u64,
    lost: u64,
    train: Option<Train>,
}

/// Packets since some acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Train {
    acked_from: Instant,
    sent_from: Instant,
    /// Acknowledged since then.
    bytes: u64,
}

/// How far delivery has come.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Bytes.
    delivered: u64,
    at: Instant,
    /// When the packet left that was acknowledged last.
    first_sent: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    pn: u64,
    at: Instant,
    /// Bytes that had been delivered when it left.
    delivered: u64,
    /// The state that its sample begins with.
    base: State,
    lost: u64,
    limited: bool,
    /// Acknowledged or lost.
    settled: bool,
}

/// What a batch of acknowledgements tells of a path's delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked {
    /// Bytes that the batch acknowledged.
    pub(crate) bytes: u64,
    /// Bytes delivered since the path began.
    pub(crate) total: u64,
    /// What `total` was when the newest packet of the batch left.
    pub(crate) prior: u64,
    /// Bytes lost since then.
    pub(crate) lost: u64,
    /// Bytes of the rate sample, and the time in which they were delivered.
    pub(crate) sampled: u64,
    pub(crate) interval: Duration,
    /// The sample is a lower bound: the driver had no more to send.
    pub(crate) limited: bool,
    /// Round trip of the newest packet.
    pub(crate) rtt: Duration,
    /// Bytes per second at which packets arrive that left at once; 0 if there are none.
    pub(crate) train: u64,
}

impl Acked {
    /// Bytes per second.
    pub(crate) fn rate(&self) -> u64 {
        (self.sampled as f64 / self.interval.as_secs_f64().max(1e-6)) as u64
    }
}

impl Delivery {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            state: State {
                delivered: 0,
                at: now,
                first_sent: now,
            },
            past: VecDeque::new(),
            short: None,
            limited_until: 0,
            newest: None,
            acked: 0,
            lost: 0,
            train: None,
        }
    }

    /// A packet leaves, with `in_flight` bytes before it; `limited` if there was nothing else to
    /// send since the last one.
    pub(crate) fn on_sent(
        &mut self,
        pn: u64,
        bytes: u64,
        in_flight: u64,
        limited: bool,
        now: Instant,
    ) {
        // The handshake's packet number spaces follow each other on one path.
        if self.sent.back().is_some_and(|last| last.pn >= pn) {
            self.sent.clear();
        }
        if in_flight == 0 {
            self.state.first_sent = now;
            self.state.at = now;
            if limited {
                // A pause, and not the time between two turns.
                self.past.clear();
            }
        }
        if limited {
            // Until this one is delivered, deliveries tell of the time before it, too.
            self.limited_until = self.state.delivered + in_flight + bytes;
        }
        if !self.follows(pn) {
            return;
        }
        let base = *self.past.front().unwrap_or(&self.state);
        self.sent.push_back(Sent {
            pn,
            at: now,
            delivered: self.state.delivered,
            base,
            lost: self.lost,
            limited: self.limited_until > base.delivered,
            settled: false,
        });
    }

    /// Whether the next packet is followed: the fuller it is, the fewer are.
    fn follows(&self, pn: u64) -> bool {
        let room = LIMIT - self.sent.len();
        room > LIMIT / 2 || room > 0 && pn.is_multiple_of((LIMIT / room) as u64)
    }

    /// What goes on when a path moves to another address. noq tells its controller nothing more of
    /// packets that left before, so they would be kept for good, and a peer may move with each
    /// packet.
    pub(crate) fn moved(&self) -> Self {
        Self {
            sent: VecDeque::new(),
            past: VecDeque::new(),
            short: None,
            newest: None,
            train: None,
            ..*self
        }
    }

    /// Forgets what is in flight: it left before an outage, and its delivery measures that.
    pub(crate) fn forget(&mut self) {
        self.sent.clear();
        self.past.clear();
        self.short = None;
        self.newest = None;
        self.train = None;
    }

    pub(crate) fn on_acked(&mut self, pn: u64, bytes: u64, at: Instant, now: Instant) {
        self.state.delivered += bytes;
        self.state.at = now;
        self.acked += bytes;
        // Another space of packet numbers may have one with this number, too.
        if let Some(sent) = self.take(pn)
            && sent.at == at
            && self.newest.is_none_or(|newest| sent.pn > newest.pn)
        {
            self.state.first_sent = sent.at;
            self.newest = Some(sent);
        }
    }

    pub(crate) fn on_lost(&mut self, pn: u64, bytes: u64) {
        self.lost += bytes;
        self.take(pn);
    }

    /// The sample of the batch that just ended. Bytes of one without a packet that is followed are
    /// those of the next, if it is for want of room that some are not.
    pub(crate) fn end_batch(&mut self, now: Instant) -> Option<Acked> {
        if self.newest.is_none() && 2 * self.sent.len() >= LIMIT {
            return None;
        }
        let bytes = std::mem::take(&mut self.acked);
        let newest = self.newest.take()?;
        let sending = newest.at.saturating_duration_since(newest.base.first_sent);
        let acking = now.saturating_duration_since(newest.base.at);
        let rtt = now.saturating_duration_since(newest.at);
        if rtt < SHORT {
            self.short = Some(now);
        }
        self.remember(now);
        let train = self.follow_train(bytes, newest.at, now);
        Some(Acked {
            bytes,
            total: self.state.delivered,
            prior: newest.delivered,
            lost: self.lost - newest.lost,
            sampled: self.state.delivered - newest.base.delivered,
            interval: sending.max(acking),
            limited: newest.limited,
            rtt,
            train,
        })
    }

    /// Follows a train by `bytes` that were acknowledged, of which the last left at `sent`.
    fn follow_train(&mut self, bytes: u64, sent: Instant, now: Instant) -> u64 {
        let first = Train {
            acked_from: now,
            sent_from: sent,
            bytes: 0,
        };
        let train = self.train.get_or_insert(first);
        train.bytes += bytes;
        let acking = now.saturating_duration_since(train.acked_from);
        let sending = sent.saturating_duration_since(train.sent_from);
        if acking < TRAIN_TIME || train.bytes < TRAIN_BYTES {
            return 0;
        }
        let rate = (train.bytes as f64 / acking.as_secs_f64()) as u64;
        *train = first;
        if sending < acking.mul_f64(TRAIN_SENT) {
            rate
        } else {
            0
        }
    }

    /// Keeps the state for samples of packets that leave later.
    fn remember(&mut self, now: Instant) {
        let age = |at: Instant| now.saturating_duration_since(at);
        if self.short.is_none_or(|at| age(at) >= SHORT_FOR) {
            self.past.clear();
            return;
        }
        if self.past.back().is_none_or(|last| age(last.at) >= APART) {
            self.past.push_back(self.state);
        }
        while self.past.get(1).is_some_and(|next| age(next.at) >= SPAN) {
            self.past.pop_front();
        }
    }

    /// Settles the account of a packet.
    fn take(&mut self, pn: u64) -> Option<Sent> {
        let index = in_order::first_not(&self.sent, |sent| sent.pn < pn);
        let entry = self.sent.get_mut(index).filter(|sent| sent.pn == pn);
        let found = entry.map(|entry| {
            entry.settled = true;
            *entry
        });
        // A lost probe for a larger MTU is never accounted for.
        while self
            .sent
            .front()
            .is_some_and(|first| first.settled || first.pn + UNSETTLED < pn)
        {
            self.sent.pop_front();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One packet of 1000 bytes per millisecond, each acknowledged 20 ms later.
    fn steady(limited: bool) -> Vec<Acked> {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        let mut samples = Vec::new();
        for step in 0..100 {
            let now = start + MS * step;
            if let Some(pn) = step.checked_sub(20) {
                delivery.on_acked(u64::from(pn), 1000, now - 20 * MS, now);
                samples.extend(delivery.end_batch(now));
            }
            delivery.on_sent(
                u64::from(step),
                1000,
                1000 * u64::from(step.min(20)),
                limited,
                now,
            );
        }
        samples
    }

    #[test]
    fn a_steady_flow_is_measured_exactly() {
        let samples = steady(false);
        let last = samples.last().unwrap();
        assert_eq!(last.rate(), 1_000_000);
        assert_eq!(last.rtt, 20 * MS);
        assert_eq!((last.total - last.prior, last.limited), (20_000, false));
    }

    /// 200 packets of 1000 bytes that leave `apart` from each other, over a path of 10 MB/s.
    fn trains(apart: Duration) -> Vec<u64> {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        let sent = |pn: u64| start + apart * pn as u32;
        let mut seen = Vec::new();
        for pn in 0..200 {
            delivery.on_sent(pn, 1000, 1000 * pn, false, sent(pn));
        }
        for pn in 0..200 {
            let now = start + 20 * MS + (MS / 10).max(apart) * pn as u32;
            delivery.on_acked(pn, 1000, sent(pn), now);
            if pn % 10 == 9 {
                seen.extend(delivery.end_batch(now).map(|acked| acked.train));
            }
        }
        seen
    }

    #[test]
    fn packets_that_leave_at_once_show_the_rate_at_which_they_arrive() {
        for apart in [Duration::ZERO, MS / 20] {
            let trains = trains(apart);
            let found: Vec<u64> = trains.into_iter().filter(|rate| *rate > 0).collect();
            assert!(!found.is_empty());
            assert!(
                found
                    .iter()
                    .all(|rate| (9_900_000..11_500_000).contains(rate)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn packets_that_arrive_as_they_left_show_nothing() {
        assert!(trains(MS / 10).iter().all(|rate| *rate == 0));
        assert!(trains(MS).iter().all(|rate| *rate == 0));
    }

    #[test]
    fn samples_of_a_limited_sender_are_marked() {
        assert!(steady(true).iter().all(|sample| sample.limited));
    }

    #[test]
    fn acknowledgements_that_come_all_at_once_do_not_look_like_a_fast_link() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        for step in 0..20_u32 {
            delivery.on_sent(
                u64::from(step),
                1000,
                1000 * u64::from(step),
                false,
                start + MS * step,
            );
        }
        for pn in 0..20 {
            delivery.on_acked(pn, 1000, start + MS * pn as u32, start + 40 * MS);
        }
        let sample = delivery.end_batch(start + 40 * MS).unwrap();
        assert_eq!(sample.rate(), 500_000);
    }

    /// A turn of the driver each millisecond, and a far end that answers at once.
    #[test]
    fn a_short_path_is_not_as_fast_as_a_turn() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        for turn in 0..60_u32 {
            let (pn, sent) = (u64::from(2 * turn), start + MS * turn);
            delivery.on_sent(pn, 1000, 0, false, sent);
            // Once there was nothing else to send.
            delivery.on_sent(pn + 1, 1000, 1000, turn == 30, sent);
            for pn in [pn, pn + 1] {
                delivery.on_acked(pn, 1000, sent, sent + MS / 10);
            }
            let sample = delivery.end_batch(sent + MS / 10).unwrap();
            if turn > 20 {
                assert!(
                    (1_900_000..2_200_000).contains(&sample.rate()),
                    "{sample:?}"
                );
            }
            // It says less than the path delivers as long as it covers that time.
            assert_eq!(sample.limited, (30..51).contains(&turn), "{turn}");
        }
    }

    #[test]
    fn a_new_packet_number_space_starts_over() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        delivery.on_sent(7, 1000, 0, false, start);
        delivery.on_sent(0, 1000, 1000, false, start + MS);
        // One of the space before, with the same number.
        delivery.on_acked(0, 500, start - 9 * MS, start + 10 * MS);
        assert_eq!(delivery.end_batch(start + 10 * MS), None);
        delivery.on_sent(1, 1000, 1000, false, start + 10 * MS);
        delivery.on_acked(1, 500, start + 10 * MS, start + 20 * MS);
        assert_eq!(delivery.end_batch(start + 20 * MS).unwrap().rtt, 10 * MS);
    }

    #[test]
    fn lost_bytes_are_those_since_the_packet_left() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        delivery.on_sent(0, 1000, 0, false, start);
        delivery.on_lost(0, 1000);
        delivery.on_sent(1, 1000, 0, false, start + MS);
        delivery.on_sent(2, 1000, 1000, false, start + MS);
        delivery.on_lost(1, 1000);
        delivery.on_acked(2, 1000, start + MS, start + 5 * MS);
        assert_eq!(delivery.end_batch(start + 5 * MS).unwrap().lost, 1000);
    }

    #[test]
    fn memory_is_bounded() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        for pn in 0..20 * LIMIT as u64 {
            delivery.on_sent(pn, 1000, 0, false, start);
        }
        let followed = delivery.sent.len();
        assert!((LIMIT / 2..=LIMIT).contains(&followed), "{followed}");
        // What nobody ever says anything of gives way.
        let next = 20 * LIMIT as u64;
        delivery.on_sent(next, 1000, 0, false, start);
        delivery.on_acked(next, 1000, start, start + MS);
        assert!(delivery.sent.len() < 2 * UNSETTLED as usize);
    }

    /// 320 packets a millisecond over a path of 300 ms; each acknowledgement was of one that had
    /// been forgotten, and the controller stood still.
    #[test]
    fn more_packets_than_are_followed_are_measured_all_the_same() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        let (each, flight) = (320, 300);
        let (mut samples, mut bytes) = (0, 0);
        for step in 0..4 * flight {
            let now = start + MS * step;
            if let Some(sent) = step.checked_sub(flight) {
                for pn in each * sent..each * (sent + 1) {
                    delivery.on_acked(pn.into(), 100, start + MS * sent, now);
                }
                if let Some(acked) = delivery.end_batch(now) {
                    assert_eq!(acked.rtt, MS * flight);
                    let is_full = (31_000_000..33_000_000).contains(&acked.rate());
                    assert!(is_full || step < 2 * flight, "{acked:?}");
                    bytes += acked.bytes;
                    samples += 1;
                }
            }
            let in_flight = 100 * u64::from(each * step.min(flight));
            for pn in each * step..each * (step + 1) {
                delivery.on_sent(pn.into(), 100, in_flight, false, now);
            }
        }
        assert_eq!(samples, 3 * flight);
        assert_eq!(bytes, u64::from(100 * each * 3 * flight));
    }
}
