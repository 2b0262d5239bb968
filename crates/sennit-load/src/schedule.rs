//! When an open loop sends next.

use std::time::{Duration, Instant};

/// The shortest time between two: without any, something would be due for ever.
const SHORTEST: Duration = Duration::from_nanos(1);

/// Something is due again and again, at times that were fixed at the start.
///
/// Who is late catches up, so that the load does not shrink when it is hardest to send: a loop that
/// waits for its turn after each answer measures the quiet moments only.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    every: Duration,
    done: u64,
}

impl Schedule {
    /// The first is due at `start`, the next ones each `every` after it, which is a nanosecond at
    /// least.
    #[must_use]
    pub fn new(every: Duration, start: Instant) -> Self {
        let every = every.max(SHORTEST);
        let done = 0;
        Self { start, every, done }
    }

    /// So many a second, at most a billion; of no rate only the first is due.
    #[must_use]
    pub fn per_second(rate: f64, start: Instant) -> Self {
        let every = Duration::try_from_secs_f64(1.0 / rate);
        Self::new(every.unwrap_or(Duration::MAX), start)
    }

    /// When the next one is due.
    #[must_use]
    pub fn next_at(&self) -> Instant {
        let nanos = self.every.as_nanos() * u128::from(self.done);
        let after = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.start + after
    }

    /// Takes one if it is due: when it should have left.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next_at();
        (due <= now).then(|| {
            self.done += 1;
            due
        })
    }

    /// How many were taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_rate_has_a_schedule_and_its_time_goes_on() {
        let start = Instant::now();
        for rate in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE, 1e12, f64::INFINITY] {
            let mut schedule = Schedule::per_second(rate, start);
            assert_eq!(schedule.take(start), Some(start), "{rate}");
            assert_eq!(schedule.take(start), None, "{rate}");
        }
    }

    #[test]
    fn who_was_late_catches_up() {
        let start = Instant::now();
        let mut schedule = Schedule::per_second(100.0, start);
        assert_eq!(schedule.take(start), Some(start));
        assert_eq!(schedule.take(start + Duration::from_millis(9)), None);

        let late = start + Duration::from_millis(35);
        let taken = std::iter::from_fn(|| schedule.take(late)).count();

        assert_eq!((taken, schedule.taken()), (3, 4));
        assert_eq!(schedule.next_at(), start + Duration::from_millis(40));
    }
}
