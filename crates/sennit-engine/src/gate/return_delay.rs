//! The way that acknowledgements take.
//!
//! Those of all paths come back on one of them, now this one and now that. Where it is longer than
//! another, or has a queue, every path's round trip grows. It is no reason to send less on any of
//! them: so what makes them late is measured apart (by the times of sending in the peer's
//! datagrams, which come by the same way) and taken off.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// As its gate and its driver share it; in microseconds.
#[derive(Debug, Default)]
pub(super) struct ReturnDelay {
    /// How late the acknowledgements are that arrive now.
    now: AtomicU64,
    /// What was taken off the last round trip.
    last: AtomicU64,
    /// How late they are, smoothed as a round trip is (RFC 9002 §5.3).
    smoothed: AtomicU64,
}

impl ReturnDelay {
    pub(super) fn set(&self, late: Duration) {
        self.now.store(late.as_micros() as u64, Relaxed);
    }

    /// So much was taken off a round trip.
    pub(super) fn note(&self, late: Duration) {
        self.last.store(late.as_micros() as u64, Relaxed);
    }

    pub(super) fn last(&self) -> Duration {
        Duration::from_micros(self.last.load(Relaxed))
    }

    /// A round trip was measured.
    pub(super) fn smooth(&self) {
        let (now, smoothed) = (self.now.load(Relaxed), self.smoothed.load(Relaxed));
        self.smoothed.store((7 * smoothed + now) / 8, Relaxed);
    }

    pub(super) fn smoothed(&self) -> Duration {
        Duration::from_micros(self.smoothed.load(Relaxed))
    }

    /// The round trip that was measured now, by the quickest way back. Nothing is shorter than the
    /// least one.
    pub(super) fn take_off(&self, rtt: Duration, least: Duration) -> Duration {
        let late = Duration::from_micros(self.now.load(Relaxed));
        rtt.saturating_sub(late).max(least).min(rtt)
    }

    /// Bytes that have arrived at `rate` bytes per second, but whose acknowledgements are late.
    pub(super) fn unheard(&self, rate: u64) -> u64 {
        (rate as f64 * self.smoothed().as_secs_f64()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn lateness_is_taken_off_a_round_trip_but_not_below_the_least() {
        let way = ReturnDelay::default();
        assert_eq!(way.take_off(60 * MS, 20 * MS), 60 * MS);
        way.set(30 * MS);
        assert_eq!(way.take_off(60 * MS, 20 * MS), 30 * MS);
        assert_eq!(way.take_off(40 * MS, 20 * MS), 20 * MS);
        // The least may be of another address (RFC 9000 §9.4).
        assert_eq!(way.take_off(10 * MS, 20 * MS), 10 * MS);
    }

    #[test]
    fn what_arrived_does_not_count_as_in_flight() {
        let way = ReturnDelay::default();
        way.set(80 * MS);
        assert_eq!(way.unheard(1_000_000), 0);
        (0..100).for_each(|_| way.smooth());
        assert!((79_000..=80_000).contains(&way.unheard(1_000_000)));
        way.set(Duration::ZERO);
        (0..100).for_each(|_| way.smooth());
        assert!(way.unheard(1_000_000) < 10);
    }
}
