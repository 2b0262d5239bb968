//! When datagrams arrived, by the clock that everything else goes by.
//!
//! The kernel stamps a datagram with the wall clock, which somebody may set at any time, and the
//! program goes by the monotonic one. Both run alike (NTP steers both), so the difference between
//! them is the same until the wall clock is *set*, or the machine sleeps, which only the wall clock
//! counts. So the difference is looked at after each receive call, between two looks at the
//! monotonic clock:
//!
//! - As long as it is the same, a stamp less the difference is when the datagram arrived.
//! - When it is another one, stamps of before say nothing any more. What would have arrived before
//!   the new difference was seen, or after now, is taken to arrive now.
//!
//! What is not known is taken to be late, never early: a round trip that is measured too long is
//! one bad sample among others, and one that is too short becomes the path's least.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Both clocks count nanoseconds, and each rounds them in its own way.
const ROUNDING: i128 = 1000;
/// What waited longer counts as having waited so long. It is longer than any turn of a worker, and
/// shorter than the silence after which a path is given up: whoever was stopped for a second finds
/// what fitted into the socket's buffer, and must not take its age for a silence of the path.
const MOST_AGE: Duration = Duration::from_millis(50);

/// Turns stamps into instants.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    epoch: Instant,
    difference: Option<Difference>,
    /// When both clocks were last looked at.
    looked: Instant,
}

/// By how much the wall clock is ahead of the monotonic one, in nanoseconds since 1970 and since
/// the epoch.
#[derive(Clone, Copy, Debug)]
struct Difference {
    least: i128,
    most: i128,
    /// When it was first seen.
    since: Instant,
}

impl Arrivals {
    /// Nothing is known before the first look.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            difference: None,
            looked: now,
        }
    }

    /// Looks at both clocks. What is asked about next was received before.
    pub(super) fn look(&mut self) {
        let before = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        self.compare(before, wall.ok(), Instant::now());
    }

    /// The wall clock showed `wall` since 1970 at some time between `before` and `after`.
    fn compare(&mut self, before: Instant, wall: Option<Duration>, after: Instant) {
        self.looked = after;
        let Some(wall) = wall else {
            self.difference = None;
            return;
        };
        let ahead_of = |at: Instant| nanos(wall) - nanos(at.saturating_duration_since(self.epoch));
        let (least, most) = (ahead_of(after), ahead_of(before));
        match &mut self.difference {
            Some(known) if least <= known.most + ROUNDING && known.least <= most + ROUNDING => {
                // The nearest looks tell most.
                known.least = known.least.max(least.min(known.most));
                known.most = known.most.min(most.max(known.least));
            }
            other => {
                let since = after;
                *other = Some(Difference { least, most, since });
            }
        }
    }

    /// When both clocks were last looked at.
    pub(super) fn looked(&self) -> Instant {
        self.looked
    }

    /// When a datagram arrived with this stamp, or without one.
    pub(super) fn at(&self, stamp: Option<Duration>) -> Instant {
        let now = self.looked;
        let known = self.difference.zip(stamp);
        let arrived = known.and_then(|(difference, stamp)| {
            let since_epoch = u64::try_from(nanos(stamp) - difference.least).ok()?;
            let at = self.epoch + Duration::from_nanos(since_epoch);
            (difference.since <= at && at <= now).then_some(at)
        });
        let oldest = now.checked_sub(MOST_AGE).unwrap_or(now);
        arrived.map_or(now, |at| at.max(oldest))
    }
}

fn nanos(time: Duration) -> i128 {
    time.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);

    /// Two clocks that a test sets.
    struct Clocks {
        arrivals: Arrivals,
        now: Instant,
        wall: Duration,
    }

    impl Clocks {
        fn new() -> Self {
            let now = Instant::now();
            let mut clocks = Self {
                arrivals: Arrivals::new(now),
                now,
                wall: Duration::from_secs(1_700_000_000),
            };
            clocks.look(US);
            clocks
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
            self.wall += time;
        }

        /// Looks, which takes a moment.
        fn look(&mut self, takes: Duration) {
            let before = self.now;
            self.pass(takes / 2);
            let wall = self.wall;
            self.pass(takes / 2);
            self.arrivals.compare(before, Some(wall), self.now);
        }

        /// A datagram arrives; its stamp, and when it really arrived.
        fn datagram(&self) -> (Option<Duration>, Instant) {
            (Some(self.wall), self.now)
        }
    }

    #[test]
    fn a_datagram_that_waited_arrived_when_it_did() {
        let mut clocks = Clocks::new();
        clocks.pass(MS);
        let (stamp, arrived) = clocks.datagram();
        clocks.pass(30 * MS);
        clocks.look(US);
        let late = clocks.arrivals.at(stamp) - arrived;
        assert!(late <= US, "{late:?} late");
        assert!(clocks.arrivals.at(stamp) >= arrived);
    }

    #[test]
    fn without_a_stamp_it_arrives_now() {
        let mut clocks = Clocks::new();
        clocks.pass(MS);
        clocks.look(US);
        assert_eq!(clocks.arrivals.at(None), clocks.now);
    }

    #[test]
    fn nothing_arrives_earlier_because_somebody_set_the_clock() {
        let hour = Duration::from_secs(3600);
        for forward in [true, false] {
            for step in [5 * MS, hour] {
                let mut clocks = Clocks::new();
                clocks.pass(MS);
                let (stamp, arrived) = clocks.datagram();
                clocks.pass(MS);
                clocks.wall = if forward {
                    clocks.wall + step
                } else {
                    clocks.wall - step
                };
                clocks.pass(MS);
                let (between, arrived_between) = clocks.datagram();
                clocks.look(US);
                for (stamp, arrived) in [(stamp, arrived), (between, arrived_between)] {
                    let at = clocks.arrivals.at(stamp);
                    assert!(arrived <= at && at <= clocks.now, "{step:?} {forward}");
                }

                // What arrives from then on is measured by the new difference.
                clocks.pass(MS);
                let (stamp, arrived) = clocks.datagram();
                clocks.pass(10 * MS);
                clocks.look(US);
                let late = clocks.arrivals.at(stamp) - arrived;
                assert!(late <= US, "{late:?} late");
            }
        }
    }

    #[test]
    fn a_look_that_was_interrupted_makes_nothing_early_and_is_made_good_by_the_next() {
        let mut clocks = Clocks::new();
        clocks.arrivals = Arrivals::new(clocks.now);
        clocks.look(8 * MS);
        clocks.pass(MS);
        let (stamp, arrived) = clocks.datagram();
        clocks.look(10 * MS);
        assert!(clocks.arrivals.at(stamp) >= arrived);
        clocks.look(US);
        let late = clocks.arrivals.at(stamp) - arrived;
        assert!(late <= US, "{late:?} late");
    }

    #[test]
    fn nothing_is_older_than_any_turn() {
        let mut clocks = Clocks::new();
        clocks.pass(MS);
        let (stamp, _) = clocks.datagram();
        clocks.pass(Duration::from_secs(2));
        clocks.look(US);
        assert_eq!(clocks.arrivals.at(stamp), clocks.now - MOST_AGE);
    }

    #[test]
    fn the_clocks_of_this_machine_differ_by_the_same_each_time() {
        let mut arrivals = Arrivals::new(Instant::now());
        arrivals.look();
        let first = arrivals
            .difference
            .expect("this machine is set to a time after 1970");
        for _ in 0..1000 {
            arrivals.look();
        }
        let last = arrivals.difference.expect("nor did anybody set it back");
        assert!(last.least >= first.least && last.most <= first.most);
        assert_eq!(
            last.since, first.since,
            "somebody set the clock during this test"
        );
    }
}
