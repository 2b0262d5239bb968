//! By which time it is judged whether what was granted has ended.
//!
//! Certificates and tokens end by the host's clock, and a time server that is wrong for a moment
//! must not send all sites away. So a clock that has jumped ahead ends nothing before it has stayed
//! there for a while. Who comes anew is judged by the clock as it is.

use std::time::{Duration, Instant, SystemTime};

/// A clock that gains more than this between two looks has jumped. A clock that is merely fast, or
/// set right now and then, does not.
const JUMP: Duration = Duration::from_secs(3600);
/// A clock that has jumped ahead is believed after this: systemd-timesyncd asks its server each
/// 2048 s at the longest, others more often.
const BELIEVED_AFTER: Duration = Duration::from_secs(40 * 60);

#[derive(Debug)]
pub(super) struct Clock {
    /// When it was last believed, and what it said.
    at: Instant,
    said: SystemTime,
    jumped: Option<Instant>,
}

impl Clock {
    pub(super) fn new(wall: SystemTime, now: Instant) -> Self {
        Self {
            at: now,
            said: wall,
            jumped: None,
        }
    }

    /// The time to judge by, if the host's clock says `wall`.
    pub(super) fn time(&mut self, wall: SystemTime, now: Instant) -> SystemTime {
        let expected = self.said + now.saturating_duration_since(self.at);
        let ahead = wall.duration_since(expected).unwrap_or_default();
        if ahead > JUMP {
            let since = *self.jumped.get_or_insert_with(|| {
                tracing::warn!(
                    seconds = ahead.as_secs(),
                    "the clock of this host has jumped ahead: it ends no tunnel for 40 minutes"
                );
                now
            });
            if now.saturating_duration_since(since) < BELIEVED_AFTER {
                return expected;
            }
        }
        *self = Self::new(wall, now);
        wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_secs(366 * 86_400);

    /// What the clock is believed to be, in seconds after the start, when it says what `says` has
    /// for each second.
    fn believed(seconds: u64, says: impl Fn(u64) -> SystemTime) -> SystemTime {
        let start = Instant::now();
        let mut clock = Clock::new(says(0), start);
        let times = (1..=seconds).map(|n| clock.time(says(n), start + Duration::from_secs(n)));
        times.last().unwrap()
    }

    #[test]
    fn a_clock_that_is_a_year_ahead_for_half_an_hour_ends_nothing_and_later_it_does() {
        let true_time = |n| SystemTime::UNIX_EPOCH + 50 * YEAR + Duration::from_secs(n);
        let wrong = |from, until| {
            move |n| {
                let ahead = (from..until).contains(&n);
                true_time(n) + if ahead { YEAR } else { Duration::ZERO }
            }
        };
        assert_eq!(believed(50, wrong(10, 1810)), true_time(50));
        assert_eq!(believed(1800, wrong(10, 1810)), true_time(1800));
        assert_eq!(believed(1900, wrong(10, 1810)), true_time(1900));
        assert_eq!(believed(2500, wrong(10, 9999)), true_time(2500) + YEAR);
    }

    #[test]
    fn a_clock_that_is_set_back_or_gains_a_little_is_believed_at_once() {
        let start = SystemTime::UNIX_EPOCH + 50 * YEAR;
        let back = |n: u64| if n < 5 { start } else { start - YEAR };
        assert_eq!(believed(5, back), start - YEAR);
        let fast = |n: u64| start + Duration::from_secs(60 * n);
        assert_eq!(believed(9999, fast), fast(9999));
    }
}
