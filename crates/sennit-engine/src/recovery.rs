//! Recovery: what was lost on a path and is sent again, until when, and how long the far end waits
//! for it.
//!
//! A lost datagram comes from the ledger of the path that lost it, waits here, and leaves with the
//! next batch by the path on which it arrives first (`tunnel::repair`). What a receiver waits
//! before it gives up on a missing packet ([`repair_time`]) follows from the same figures. Whatever
//! else makes up for losses enters here: it hears of what is lost, has something to send when a
//! batch is filled, and says how long it may take.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use sennit_core::Delivery;

use crate::gate::Payload;

/// Stands for a datagram that is not worth repeating, or was repeated more often than anyone
/// counts.
pub(crate) const NEVER: u8 = u8::MAX;
/// A lost packet is sent again while the flow's transport could still use it: two repairs over
/// links of 125 ms one way, because the first one is often lost as well where a queue overflows.
/// The far end may have given up by then; late is still better than never (docs/decisions/0003).
const REPAIR_FOR: Duration = Duration::from_millis(500);
/// A loss on a long path is noticed late, so a packet is sent again for as many of its round trips.
const REPAIR_ROUNDS: u32 = 3;
/// Packets of a class of reliable delivery that may have left since the oldest one that is neither
/// acknowledged nor given up: the far end holds 8192 of a flow for one that is missing, and one
/// may have left 4096 places ahead of its turn. Until that has arrived, others wait in the queue,
/// where their senders notice.
const MOST_AHEAD: u64 = 3500;
/// How exactly it is remembered when they left.
const MARK_EVERY: Duration = Duration::from_millis(5);
/// Marks that are kept: of twenty seconds.
const MARKS: usize = 4096;
/// A lost packet is sent again this many times at most, unless delivery is to be reliable: of a
/// path that loses three of ten, one packet in a million is lost for good. Three times left one in
/// 120, by which a TCP inside lives on a tenth of what the path carries.
const REPEATS: u8 = 11;
/// A path that loses this part of the packets loses so much of what is sent again that a flow
/// stands still for it: what was lost twice leaves more than once from then on.
const LOSES_AGAIN: f64 = 0.05;
/// It leaves so many times at most. Where three of ten are lost, one packet in 11 is lost twice, so
/// this costs a twentieth of the path; the longest wait of 60,000 packets is four round trips
/// instead of nine.
const MOST_COPIES: u8 = 4;
/// What left before a class changed is sent again for so long, where no other packet is: over a
/// satellite of 600 ms nothing is worth it for longer ([`REPAIR_ROUNDS`]).
const OWED_FOR: Duration = Duration::from_secs(2);
/// Bytes that wait to be sent again, at most: 64 ms at 1 Gbit/s.
const REPAIR_LIMIT: usize = 8 << 20;
/// A lost packet is noticed by its sender after a round trip and the path's jitter, half of which
/// has passed when it is missed here, and then has to travel: a repair never takes more round trips
/// of the slowest path.
const LONGEST_ROUNDS: f64 = 1.25;
/// What acknowledgements and timers add to [`LONGEST_ROUNDS`].
const REPAIR_SLACK: Duration = Duration::from_millis(15);
/// A flow is kept waiting for a repair no longer than this, whatever a path's round trip is said to
/// be: a repair over a geostationary satellite (600 ms) takes 765 ms, and a TCP that hears nothing
/// for longer starts over.
const LONGEST_REPAIR: Duration = Duration::from_millis(800);
/// A flow is kept waiting this long for a path that brings nothing of its own, or whose round trip
/// has just grown.
const USUAL_REPAIR: Duration = Duration::from_millis(200);

/// How a class makes up for losses, and the lost datagrams that are on their way to another path.
#[derive(Debug)]
pub(crate) struct Recovery {
    delivery: Delivery,
    waiting: VecDeque<Payload>,
    /// What may come back without being sent again, and until when that is waited for.
    deferred: VecDeque<(Instant, Payload)>,
    bytes: usize,
    ahead: Ahead,
    /// What left until then is sent again if it is lost, though what leaves now may not be.
    owed_until: Option<Instant>,
    /// Since when delivery is reliable, if it was not before over this connection.
    reliable_since: Option<Instant>,
}

/// How many packets left since when, under reliable delivery.
#[derive(Debug, Default)]
struct Ahead {
    sent: u64,
    marks: VecDeque<(Instant, u64)>,
    full: bool,
}

impl Ahead {
    fn note_sent(&mut self, now: Instant) {
        let recent = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) < MARK_EVERY;
        if !self.marks.back().is_some_and(recent) {
            self.marks.truncate(MARKS);
            self.marks.push_back((now, self.sent));
        }
        self.sent += 1;
        // One round may send more than there is room for.
        let before = self.marks.front().map_or(self.sent, |(_, sent)| *sent);
        self.full |= self.sent - before >= MOST_AHEAD;
    }

    /// Takes note of when the oldest packet left that may still be missing.
    fn settle(&mut self, oldest: Option<Instant>) {
        let Some(oldest) = oldest else {
            self.marks.clear();
            self.full = false;
            return;
        };
        while self.marks.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.marks.pop_front();
        }
        let before = self.marks.front().map_or(self.sent, |(_, sent)| *sent);
        self.full = self.sent - before >= MOST_AHEAD;
    }
}

impl Recovery {
    pub(crate) fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            waiting: VecDeque::new(),
            deferred: VecDeque::new(),
            bytes: 0,
            ahead: Ahead::default(),
            owed_until: None,
            reliable_since: None,
        }
    }

    /// Whether no packet is given up while the connection lasts.
    pub(crate) fn is_reliable(&self) -> bool {
        self.delivery == Delivery::Reliable
    }

    /// A packet leaves for the first time.
    pub(crate) fn note_sent(&mut self, now: Instant) {
        if self.is_reliable() {
            self.ahead.note_sent(now);
        }
    }

    /// Whether new packets have to wait until an old one has arrived.
    pub(crate) fn is_full(&self) -> bool {
        self.ahead.full
    }

    /// Takes note of when the oldest packet left that is in flight; returns when the oldest left
    /// that may be missing.
    pub(crate) fn settle(&mut self, in_flight: Option<Instant>) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|payload| payload.first_sent);
        let deferred = self.deferred.iter().map(|(_, payload)| payload.first_sent);
        let oldest = waiting.chain(deferred).chain(in_flight).min();
        self.ahead.settle(oldest);
        oldest
    }

    /// All that waits to be sent again.
    pub(crate) fn drain(&mut self) -> Vec<Payload> {
        self.bytes = 0;
        let deferred = self.deferred.drain(..).map(|(_, payload)| payload);
        self.waiting.drain(..).chain(deferred).collect()
    }

    pub(crate) fn set_delivery(&mut self, delivery: Delivery) {
        self.delivery = delivery;
        if !self.is_reliable() {
            self.ahead = Ahead::default();
        }
    }

    /// Whether lost datagrams are sent again at all.
    pub(crate) fn repairs(&self) -> bool {
        self.delivery != Delivery::Datagram
    }

    /// What leaves from now on is not sent again any more.
    pub(crate) fn owe(&mut self, now: Instant) {
        self.owed_until = Some(now);
    }

    /// Delivery has become reliable. What left before is not waited for without end.
    pub(crate) fn become_reliable(&mut self, now: Instant) {
        self.reliable_since = Some(now);
    }

    /// Whether packets may still be missing that nobody keeps, under reliable delivery.
    pub(crate) fn is_settling(&self, now: Instant) -> bool {
        self.reliable_since
            .is_some_and(|since| now < since + OWED_FOR)
    }

    /// Whether a packet left while lost ones were sent again.
    pub(crate) fn is_owed(&self, first_sent: Instant) -> bool {
        self.owed_until.is_some_and(|until| first_sent <= until)
    }

    /// Whether some such packet may still be lost.
    pub(crate) fn owes(&self, now: Instant) -> bool {
        self.owed_until.is_some_and(|until| now < until + OWED_FOR)
    }

    /// Whether something waits to be sent again.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets what waits: it has numbers of a connection that is over.
    pub(crate) fn start_over(&mut self) {
        self.waiting.clear();
        self.deferred.clear();
        self.bytes = 0;
        self.ahead = Ahead::default();
        (self.owed_until, self.reliable_since) = (None, None);
    }

    /// Takes a lost datagram if it is worth sending again; `slowest` is the longest round trip of a
    /// path.
    pub(crate) fn handle_lost(
        &mut self,
        payload: Payload,
        slowest: Duration,
        now: Instant,
    ) -> bool {
        // What is in flight bounds it otherwise.
        let fits = self.is_reliable() || self.bytes + payload.bytes.len() <= REPAIR_LIMIT;
        let taken = fits && self.is_worth_repair(&payload, slowest, now);
        if taken {
            self.bytes += payload.bytes.len();
            self.waiting.push_back(payload);
        }
        taken
    }

    /// Whether a datagram is young enough to be sent again, and was not sent too often.
    pub(crate) fn is_worth_repair(
        &self,
        payload: &Payload,
        slowest: Duration,
        now: Instant,
    ) -> bool {
        let (patience, repeats) = match self.delivery {
            Delivery::Datagram | Delivery::Repair => {
                (REPAIR_FOR.max(REPAIR_ROUNDS * slowest), REPEATS)
            }
            Delivery::Reliable => (Duration::MAX, NEVER),
        };
        let age = now.saturating_duration_since(payload.first_sent);
        payload.repeats < repeats && age < patience
    }

    /// Keeps a lost datagram that may come back without being sent again, until that is unlikely.
    /// It is bounded by what is in flight.
    pub(crate) fn defer(&mut self, payload: Payload, until: Instant) {
        self.deferred.push_back((until, payload));
    }

    /// When the next of these has waited long enough.
    pub(crate) fn deferred_until(&self) -> Option<Instant> {
        self.deferred.front().map(|(until, _)| *until)
    }

    /// The next of these that has.
    pub(crate) fn pop_deferred(&mut self, now: Instant) -> Option<Payload> {
        self.deferred_until().filter(|until| *until <= now)?;
        self.deferred.pop_front().map(|(_, payload)| payload)
    }

    /// Puts back what [`Self::pop`] gave.
    pub(crate) fn put_back(&mut self, payload: Payload) {
        self.bytes += payload.bytes.len();
        self.waiting.push_front(payload);
    }

    pub(crate) fn pop(&mut self) -> Option<Payload> {
        let payload = self.waiting.pop_front()?;
        self.bytes -= payload.bytes.len();
        Some(payload)
    }
}

/// How many times a datagram leaves that was sent again so often, over a path that loses this part
/// of the packets by itself.
pub(crate) fn copies(repeats: u8, loss: f64) -> u8 {
    if loss < LOSES_AGAIN {
        return 1;
    }
    repeats.saturating_add(1).min(MOST_COPIES)
}

/// How long a packet may be missing because it is sent again. `of_all` and `of_used` are the
/// longest round trip of a path, and the longest usual one of a path that brings packets of its
/// own.
pub(crate) fn repair_time(of_all: Duration, of_used: Duration) -> Duration {
    let time = |slowest: Duration| slowest.mul_f64(LONGEST_ROUNDS) + REPAIR_SLACK;
    let used = time(of_used).min(LONGEST_REPAIR);
    time(of_all).min(USUAL_REPAIR).max(used)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn lost(first_sent: Instant, repeats: u8) -> Payload {
        Payload {
            bytes: Bytes::from_static(b"packet"),
            first_sent,
            repeats,
            twins: None,
            half_of: None,
        }
    }

    #[test]
    fn what_is_lost_is_sent_again_while_it_is_young_and_not_too_often() {
        let start = Instant::now();
        let near = Duration::from_millis(20);
        let mut recovery = Recovery::new(Delivery::Repair);
        let mut takes = |repeats, slowest, after: Duration| {
            recovery.handle_lost(lost(start, repeats), slowest, start + after)
        };
        assert!(takes(0, near, REPAIR_FOR - Duration::from_millis(1)));
        assert!(!takes(0, near, REPAIR_FOR));
        assert!(!takes(REPEATS, near, Duration::ZERO));
        // Over a satellite it takes longer to learn of a loss.
        assert!(takes(
            0,
            Duration::from_millis(600),
            Duration::from_millis(1799)
        ));
        assert!(!takes(
            0,
            Duration::from_millis(600),
            Duration::from_millis(1800)
        ));
    }

    #[test]
    fn what_is_lost_again_and_again_leaves_more_often_on_a_lossy_path() {
        let all = |loss| [0, 1, 2, 3, 4, NEVER].map(|repeats| copies(repeats, loss));
        assert_eq!(all(0.04), [1; 6]);
        assert_eq!(all(0.3), [1, 2, 3, 4, 4, 4]);
    }

    #[test]
    fn reliable_delivery_goes_on_for_long() {
        let start = Instant::now();
        let mut recovery = Recovery::new(Delivery::Reliable);
        let mut takes = |repeats, seconds| {
            let now = start + Duration::from_secs(seconds);
            recovery.handle_lost(lost(start, repeats), Duration::ZERO, now)
        };
        assert!(takes(REPEATS, 9));
        assert!(takes(0, 1000));
        assert!(!takes(NEVER, 0));
    }

    #[test]
    fn under_reliable_delivery_new_packets_wait_for_one_that_is_long_missing() {
        let start = Instant::now();
        let mut recovery = Recovery::new(Delivery::Reliable);
        let mut now = start;
        for _ in 0..MOST_AHEAD {
            assert!(!recovery.is_full());
            recovery.note_sent(now);
            now += Duration::from_millis(1);
            recovery.settle(Some(start));
        }
        assert!(recovery.is_full());
        recovery.settle(Some(start + Duration::from_secs(1)));
        assert!(!recovery.is_full());
        assert!(recovery.ahead.marks.len() < MOST_AHEAD as usize);
        recovery.settle(None);
        assert!(recovery.ahead.marks.is_empty());
    }

    /// Nobody looks in the middle of one.
    #[test]
    fn under_reliable_delivery_one_round_sends_no_more_than_the_far_end_holds() {
        let now = Instant::now();
        let mut recovery = Recovery::new(Delivery::Reliable);
        for _ in 0..MOST_AHEAD {
            assert!(!recovery.is_full());
            recovery.note_sent(now);
        }
        assert!(recovery.is_full());
    }

    #[test]
    fn what_waits_to_be_sent_again_is_bounded() {
        let now = Instant::now();
        let mut recovery = Recovery::new(Delivery::Repair);
        let big = Payload {
            bytes: Bytes::from(vec![0; REPAIR_LIMIT / 2]),
            ..lost(now, 0)
        };
        let mut take = || recovery.handle_lost(big.clone(), Duration::ZERO, now);
        assert!(take() && take() && !take());
        let first = recovery.pop().unwrap();
        assert!(recovery.handle_lost(first, Duration::ZERO, now));
    }

    #[test]
    fn a_flow_waits_for_repairs_over_the_paths_that_it_uses() {
        let millis = Duration::from_millis;
        assert_eq!(repair_time(millis(40), millis(40)), millis(65));
        // A far path that is not used is waited for only so long.
        assert_eq!(repair_time(millis(600), millis(40)), USUAL_REPAIR);
        assert_eq!(repair_time(millis(600), millis(600)), millis(765));
        assert_eq!(repair_time(millis(900), millis(900)), LONGEST_REPAIR);
    }
}
