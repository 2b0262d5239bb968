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
/// The usual lateness moves by this part of it, or by this much, in nanoseconds.
const PART: u64 = 8;
const LEAST_STEP: u64 = 25_000;
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

    /// What an earlier clock calls `at`.
    fn shifted(self, at: u64, earlier: Self) -> u64 {
        let passed = self.0.saturating_duration_since(earlier.0);
        at.saturating_sub(passed.as_nanos() as u64)
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
pub(super) struct Lateness {
    /// Usually, in nanoseconds, when it was last noted, and when that was.
    usual: AtomicU64,
    noted: AtomicU64,
}

impl Lateness {
    /// One that was `due` came only now. Half of all are later than usual: how late does not count,
    /// for what a stall holds up would make a queue that stays.
    pub(super) fn note(&self, due: u64, at: u64) {
        let late = at.saturating_sub(due);
        let usual = self.usual(at);
        let step = usual / PART + LEAST_STEP;
        let usual = if late > usual {
            usual + step
        } else {
            usual.saturating_sub(step)
        };
        // Two at once may lose one of both.
        self.usual.store(usual, Relaxed);
        self.noted.store(at, Relaxed);
    }

    /// For how long more than else a bucket may be behind the clock, in nanoseconds.
    pub(super) fn slack(&self, at: u64) -> u64 {
        (SLACK * self.usual(at)).min(MOST_LATE.as_nanos() as u64)
    }

    /// Half of it is forgotten with each second in which nobody was held.
    fn usual(&self, at: u64) -> u64 {
        let seconds = at.saturating_sub(self.noted.load(Relaxed)) / 1_000_000_000;
        self.usual.load(Relaxed) >> seconds.min(63)
    }

    /// Goes on with what another knows, that has a clock of its own.
    pub(super) fn inherit(&self, before: &Self, its: Clock, ours: Clock) {
        self.usual.store(before.usual.load(Relaxed), Relaxed);
        let noted = ours.at(its.instant(before.noted.load(Relaxed)));
        self.noted.store(noted, Relaxed);
    }
}

/// How far behind the clock a bucket may be, for one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leeway {
    /// The slack of its host, in nanoseconds.
    pub(super) slack: u64,
    /// Bytes below which it sends nothing.
    pub(super) least: u64,
}

/// Until when what was sent keeps its owner busy.
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    /// Bytes that may be sent at this rate, and when there are enough for another turn.
    pub(super) fn grant(
        &self,
        rate: u64,
        look: Look,
        slack: u64,
        (clock, at): (Clock, u64),
    ) -> Grant {
        let leeway = Leeway {
            slack,
            least: look.least,
        };
        let bytes = self.credit(rate, leeway, at);
        if bytes >= look.wanted {
            return Grant::ALL;
        }
        let again = Some(clock.instant(self.ready_at(rate, look.least, at)));
        if bytes < look.least {
            return Grant { bytes: 0, again };
        }
        Grant { bytes, again }
    }

    pub(super) fn credit(&self, rate: u64, leeway: Leeway, at: u64) -> u64 {
        let earliest = at.saturating_sub(burst(rate, leeway));
        let until = self.0.load(Relaxed).max(earliest);
        bytes_in(at.saturating_sub(until), rate)
    }

    /// When it has credit for a turn, and for `least` bytes. Who has that already and sends nothing
    /// is held up by something else, and does not come back at once.
    pub(super) fn ready_at(&self, rate: u64, least: u64, at: u64) -> u64 {
        let turn = time_for(turn(rate).max(least), rate);
        let soonest = at + TURN.as_nanos() as u64 / 2;
        (self.0.load(Relaxed) + turn + 1).max(soonest)
    }

    pub(super) fn spend(&self, rate: u64, bytes: u64, leeway: Leeway, at: u64) {
        let earliest = at.saturating_sub(burst(rate, leeway));
        self.0.fetch_max(earliest, Relaxed);
        self.0.fetch_add(time_for(bytes, rate), Relaxed);
    }

    /// Nobody is busy for longer than this.
    pub(super) fn bound(&self, most: u64) {
        self.0.fetch_min(most, Relaxed);
    }

    /// Goes on where another is that has an earlier clock, busy for `most` nanoseconds from the
    /// start of ours on: a new one is full, and would give that away.
    pub(super) fn inherit(&self, before: &Self, most: u64, (its, ours): (Clock, Clock)) {
        let until = ours.shifted(before.0.load(Relaxed), its);
        self.0.store(until, Relaxed);
        self.bound(ours.at(ours.0) + most);
    }
}

/// How far behind the clock a bucket may be on a host that is never late, in nanoseconds.
pub(super) fn punctual_burst(rate: u64) -> u64 {
    let leeway = Leeway { slack: 0, least: 0 };
    burst(rate, leeway)
}

/// How far behind the clock a bucket may be, in nanoseconds.
pub(super) fn burst(rate: u64, leeway: Leeway) -> u64 {
    let bytes = LEAST_BURST.max(leeway.least);
    let least = BURST.as_nanos() as u64;
    least.max(leeway.slack).max(time_for(bytes, rate) + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_was_spent_stays_spent_under_another_clock() {
        let start = Instant::now();
        let (its, rate) = (Clock::new(start), 1_000_000);
        let leeway = Leeway { slack: 0, least: 0 };
        let before = Bucket::default();
        let at = its.at(start);
        before.spend(rate, before.credit(rate, leeway, at) + 3000, leeway, at);
        for (millis, left) in [(0, 0), (2, 0), (4, 1000), (90, 6000)] {
            let now = start + Duration::from_millis(millis);
            let (ours, bucket) = (Clock::new(now), Bucket::default());
            bucket.inherit(&before, punctual_burst(rate), (its, ours));
            assert_eq!(bucket.credit(rate, leeway, ours.at(now)), left, "{millis}");
        }
    }

    /// A class that wanted more than it had and sent none of it was woken at each nanosecond.
    #[test]
    fn who_may_send_and_does_not_is_not_asked_again_at_once() {
        let start = Instant::now();
        let (clock, bucket) = (Clock::new(start), Bucket::default());
        let look = Look {
            wanted: 100_000,
            least: 1500,
        };
        let grant = bucket.grant(125_000, look, 0, (clock, clock.at(start)));
        assert!(grant.bytes >= look.least, "{grant:?}");
        assert!(grant.again >= Some(start + TURN / 2), "{grant:?}");
    }

    #[test]
    fn a_host_that_is_always_late_has_slack_and_one_stall_makes_none() {
        let late = Lateness::default();
        // What eight tunnels were told to come back for.
        (0..8).for_each(|class| late.note(1000 * MS + class, 1032 * MS));
        assert!(late.slack(1032 * MS) < MS, "{}", late.slack(1032 * MS));
        for turn in 0..100 {
            let at = 2000 * MS + turn * 5 * MS;
            late.note(at, at + 4 * MS);
        }
        let slack = late.slack(2500 * MS);
        assert!((6 * MS..=10 * MS).contains(&slack), "{slack}");
        assert!(late.slack(9000 * MS) < MS);
    }
}
