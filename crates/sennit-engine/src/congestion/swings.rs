//! Whether a path's rate moves.
//!
//! A turn is a rate that fell by a third while a queue stood and grew, so that neither too few
//! packets nor slower sending was why, or one that rose by half from where it had fallen to, and so
//! emptied the queue. Other traffic that comes or goes makes one, and others that keep a queue make
//! none; a mobile link makes one after the other.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::Acked;

/// A rate is of a round trip, and of at least this time.
const LEAST_SPAN: Duration = Duration::from_millis(100);
/// A rate is of at least this many packets, or else of more time, at most [`MOST_SPAN`].
const LEAST_PACKETS: u64 = 16;
const MOST_SPAN: Duration = Duration::from_secs(1);
/// A smaller change is none. Noise of acknowledgements over a span is a fifth.
const FACTOR: f64 = 1.5;
/// Turns within [`MANY_IN`] that say that the rate moves. Another tunnel that empties the path
/// every ten seconds, to see its least round trip, makes two.
const MANY: usize = 4;
const MANY_IN: Duration = Duration::from_secs(6);
/// No turn in this time says that it does not.
const CALM: Duration = Duration::from_secs(10);
/// A round trip of so many least ones, and so much more, has met a queue.
const QUEUED: f64 = 1.2;
const QUEUED_BY: Duration = Duration::from_millis(4);
/// A round trip of so many least ones, and so much more, has met a queue although there was no more
/// to send.
const DEEP: f64 = 1.5;
const DEEP_BY: Duration = Duration::from_millis(10);
/// A round trip that grew by this part of the time says that more was sent than arrived. Two thirds
/// of a rate make it grow by a third of the time.
const GROWN: f64 = 0.2;

/// Turns of one path's rate.
#[derive(Clone, Debug)]
pub(super) struct Swings {
    since: Instant,
    bytes: u64,
    /// Every round trip since then met a queue, and there was enough to send.
    queued: bool,
    /// The round trip at that time.
    rtt: Duration,
    /// The greatest or least rate since the last turn, in bytes per second.
    extreme: f64,
    falling: bool,
    /// Since the last turn some round trip met no queue.
    emptied: bool,
    /// The last ones.
    turns: VecDeque<Instant>,
    moves: bool,
}

impl Swings {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            queued: true,
            rtt: Duration::MAX,
            extreme: 0.0,
            falling: false,
            emptied: false,
            turns: VecDeque::with_capacity(MANY),
            moves: false,
        }
    }

    /// Whether the rate moves.
    pub(super) fn moves(&self) -> bool {
        self.moves
    }

    pub(super) fn on_ack(&mut self, acked: &Acked, least_rtt: Duration, mtu: u64, now: Instant) {
        self.bytes += acked.bytes;
        let empty = acked.rtt <= least_rtt.mul_f64(QUEUED) + QUEUED_BY;
        let deep = acked.rtt > least_rtt.mul_f64(DEEP) + DEEP_BY;
        self.emptied |= empty;
        self.queued &= deep || !empty && !acked.limited;
        let time = now.saturating_duration_since(self.since);
        let is_enough = self.bytes >= LEAST_PACKETS * mtu || time >= MOST_SPAN;
        if !is_enough || time < LEAST_SPAN.max(least_rtt) {
            return;
        }
        let grown = acked.rtt.saturating_sub(self.rtt) > time.mul_f64(GROWN);
        self.look(self.bytes as f64 / time.as_secs_f64(), grown, now);
        (self.since, self.bytes, self.queued) = (now, 0, true);
        self.rtt = acked.rtt;
    }

    fn look(&mut self, rate: f64, grown: bool, now: Instant) {
        let (turns, goes_on) = if self.falling {
            (
                self.emptied && rate > FACTOR * self.extreme,
                self.queued && rate < self.extreme,
            )
        } else {
            (
                self.queued && grown && FACTOR * rate < self.extreme,
                rate > self.extreme,
            )
        };
        if turns {
            self.falling = !self.falling;
            self.emptied = false;
            self.turns.truncate(MANY - 1);
            self.turns.push_front(now);
        }
        let within = |at: Option<&Instant>, time| {
            at.is_some_and(|&at| now.saturating_duration_since(at) <= time)
        };
        self.moves = within(self.turns.get(MANY - 1), MANY_IN)
            || self.moves && within(self.turns.front(), CALM);
        if turns || goes_on {
            self.extreme = rate;
        }
    }
}
