//! How much more is acknowledged at a time than the rate accounts for (draft-ietf-ccwg-bbr-06
//! §5.5.9).

use std::time::{Duration, Instant};

use super::windowed::WindowedMax;

/// The most of this time counts.
const WINDOW: Duration = Duration::from_millis(500);

/// What came of late.
#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    since: Instant,
    acked: u64,
    extra: WindowedMax,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            acked: 0,
            extra: WindowedMax::new(WINDOW, now),
        }
    }

    /// Bytes.
    pub(super) fn extra(&self) -> u64 {
        self.extra.get()
    }

    pub(super) fn restart(&mut self, now: Instant) {
        (self.since, self.acked) = (now, 0);
    }

    /// Counts `bytes` that were acknowledged at `rate` bytes per second, no more than `most`.
    pub(super) fn on_ack(&mut self, bytes: u64, rate: u64, most: u64, now: Instant) {
        let mut expected = now.saturating_duration_since(self.since).as_secs_f64() * rate as f64;
        if self.acked as f64 <= expected {
            (self.since, self.acked, expected) = (now, 0, 0.0);
        }
        self.acked += bytes;
        let extra = (self.acked as f64 - expected) as u64;
        self.extra.insert(extra.min(most), now);
    }
}
