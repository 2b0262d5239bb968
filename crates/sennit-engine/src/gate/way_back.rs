//! The queue that acknowledgements stand in.
//!
//! Acknowledgements of all paths come back on one of them. Where that has a narrow way back, they stand there,
//! and every path's round trip grows by it. It is no reason to send less on any of them: so it is measured apart
//! (by the times of sending in the peer's datagrams, which stand in the same queue) and taken off.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// As its gate and its driver share it; in microseconds.
#[derive(Debug, Default)]
pub(super) struct WayBack {
    /// How long the acknowledgements stood that arrive now.
    now: AtomicU64,
    /// The same, smoothed as a round trip is (RFC 9002 §5.3).
    smoothed: AtomicU64,
}

impl WayBack {
    pub(super) fn set(&self, stood: Duration) {
        self.now.store(stood.as_micros() as u64, Relaxed);
    }

    /// A round trip was measured.
    pub(super) fn smooth(&self) {
        let (now, smoothed) = (self.now.load(Relaxed), self.smoothed.load(Relaxed));
        self.smoothed.store((7 * smoothed + now) / 8, Relaxed);
    }

    pub(super) fn smoothed(&self) -> Duration {
        Duration::from_micros(self.smoothed.load(Relaxed))
    }

    /// The round trip that was measured now, without the queue. Nothing is shorter than the least one.
    pub(super) fn take_off(&self, rtt: Duration, least: Duration) -> Duration {
        let stood = Duration::from_micros(self.now.load(Relaxed));
        rtt.saturating_sub(stood).max(least).min(rtt)
    }

    /// Bytes that have arrived at `rate` bytes per second, but whose acknowledgements stand there.
    pub(super) fn unheard(&self, rate: u64) -> u64 {
        (rate as f64 * self.smoothed().as_secs_f64()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_round_trip_is_measured_without_the_queue_and_never_below_the_least() {
        let way = WayBack::default();
        assert_eq!(way.take_off(60 * MS, 20 * MS), 60 * MS);
        way.set(30 * MS);
        assert_eq!(way.take_off(60 * MS, 20 * MS), 30 * MS);
        assert_eq!(way.take_off(40 * MS, 20 * MS), 20 * MS);
        // The least may be of another address (RFC 9000 §9.4).
        assert_eq!(way.take_off(10 * MS, 20 * MS), 10 * MS);
    }

    #[test]
    fn what_stands_there_does_not_count_as_in_flight() {
        let way = WayBack::default();
        way.set(80 * MS);
        assert_eq!(way.unheard(1_000_000), 0);
        (0..100).for_each(|_| way.smooth());
        assert!((79_000..=80_000).contains(&way.unheard(1_000_000)));
        way.set(Duration::ZERO);
        (0..100).for_each(|_| way.smooth());
        assert!(way.unheard(1_000_000) < 10);
    }
}
