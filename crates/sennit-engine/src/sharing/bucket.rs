//! How much may be sent at a rate, and when more.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A bucket may be this far behind the clock: no more than this leaves at once after a pause.
const BURST: Duration = Duration::from_millis(2);
/// It may be as far as so many times its host is [late](Lateness) usually, to a bound: what
/// a link could have carried meanwhile is not lost.
const SLACK: u64 = 2;
const MOST_LATE: Duration = Duration::from_millis(32);
/// What the last lateness counts for in the usual one.
const LATENESS_PART: u64 = 16;
/// A bucket may be behind by at least this many bytes, or by a packet if that is larger, so that
/// slow links carry whole packets.
pub(super) const LEAST_BURST: u64 = 4 * 1500;
/// Who waits for the link is woken for this time of it, or for so many bytes if that is more:
/// waking for each packet would cost several times the CPU.
pub(super) const TURN: Duration = Duration::from_micros(500);
const LEAST_TURN: u64 = 2 * 1500;

/// Time as the buckets count it: nanoseconds since the sharing began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self(now)
    }

    pub(super) fn at(self, now: Instant) -> u64 {
        // From one burst on, so that a new bucket is full.
        1_000_000_000 + now.saturating_duration_since(self.0).as_nanos() as u64
    }

    pub(super) fn instant(self, at: u64) -> Instant {
        self.0 + Duration::from_nanos(at.saturating_sub(1_000_000_000))
    }
}

/// What a class looks for on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Bytes that it would send if it had the link for itself.
    pub(crate) wanted: u64,
    /// Bytes below which it sends nothing.
    pub(crate) least: u64,
}

/// What a class may send on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// In bytes.
    pub(crate) bytes: u64,
    /// When to ask again, if it is less than what was wanted.
    pub(crate) again: Option<Instant>,
}

impl Grant {
    pub(crate) const ALL: Self = Self {
        bytes: u64::MAX,
        again: None,
    };

    /// What both allow.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            again: self.again.max(other.again),
        }
    }
}

/// How late those come back who were told when to.
#[derive(Debug, Default)]
pub(super) struct Lateness(AtomicU64);

impl Lateness {
    /// Takes how late one came.
    pub(super) fn note(&self, late: Duration) {
        let late = late.min(MOST_LATE).as_nanos() as u64;
        let usual = self.0.load(Relaxed);
        // Two at once may lose one of both.
        self.0.store(
            usual - usual / LATENESS_PART + late / LATENESS_PART,
            Relaxed,
        );
    }

    /// For how long more than else a bucket may be behind the clock, in nanoseconds.
    pub(super) fn slack(&self) -> u64 {
        (SLACK * self.0.load(Relaxed)).min(MOST_LATE.as_nanos() as u64)
    }
}

/// Until when what was sent keeps its owner busy. `slack` is that of its host.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    until: AtomicU64,
    /// The most bytes below which somebody sends nothing: it may be behind by these.
    least: AtomicU64,
}

impl Bucket {
    /// Bytes that may be sent at this rate, and when there are enough for another turn.
    pub(super) fn grant(
        &self,
        rate: u64,
        look: Look,
        slack: u64,
        (clock, at): (Clock, u64),
    ) -> Grant {
        let bytes = self.credit(rate, look, slack, at);
        if bytes >= look.wanted {
            return Grant::ALL;
        }
        let again = Some(clock.instant(self.ready_at(rate, look, at)));
        if bytes < look.least {
            return Grant { bytes: 0, again };
        }
        Grant { bytes, again }
    }

    pub(super) fn credit(&self, rate: u64, look: Look, slack: u64, at: u64) -> u64 {
        if look.least > self.least.load(Relaxed) {
            self.least.fetch_max(look.least, Relaxed);
        }
        let earliest = at.saturating_sub(self.burst(rate).max(slack));
        let until = self.until.load(Relaxed).max(earliest);
        bytes_in(at.saturating_sub(until), rate)
    }

    /// When it has credit for a turn.
    pub(super) fn ready_at(&self, rate: u64, look: Look, at: u64) -> u64 {
        let turn = time_for(turn(rate).max(look.least), rate);
        (self.until.load(Relaxed) + turn + 1).max(at + 1)
    }

    pub(super) fn spend(&self, rate: u64, bytes: u64, slack: u64, at: u64) {
        let earliest = at.saturating_sub(self.burst(rate).max(slack));
        self.until.fetch_max(earliest, Relaxed);
        self.until.fetch_add(time_for(bytes, rate), Relaxed);
    }

    /// Nobody is busy for longer than this.
    pub(super) fn bound(&self, most: u64) {
        self.until.fetch_min(most, Relaxed);
    }

    /// How far behind the clock it may be.
    pub(super) fn burst(&self, rate: u64) -> u64 {
        let least = LEAST_BURST.max(self.least.load(Relaxed));
        (BURST.as_nanos() as u64).max(time_for(least, rate) + 1)
    }
}

pub(super) fn time_for(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64
}

fn bytes_in(nanos: u64, rate: u64) -> u64 {
    (u128::from(nanos) * u128::from(rate) / 1_000_000_000) as u64
}

pub(super) fn turn(rate: u64) -> u64 {
    bytes_in(TURN.as_nanos() as u64, rate).max(LEAST_TURN)
}
