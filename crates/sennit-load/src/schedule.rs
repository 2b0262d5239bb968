//! When an open loop sends next.

use std::time::{Duration, Instant};

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
    /// The first is due at `start`, the next ones each `every` after it.
    ///
    /// # Panics
    /// If `every` is zero.
    #[must_use]
    pub fn new(every: Duration, start: Instant) -> Self {
        assert!(!every.is_zero(), "something is due at any time");
        let done = 0;
        Self { start, every, done }
    }

    /// So many a second.
    ///
    /// # Panics
    /// Unless the rate is more than zero and at most a billion.
    #[must_use]
    pub fn per_second(rate: f64, start: Instant) -> Self {
        Self::new(Duration::from_secs_f64(1.0 / rate), start)
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
