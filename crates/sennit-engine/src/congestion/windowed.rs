//! Extremes of late, in constant space.

use std::time::{Duration, Instant};

/// The greatest value of a sliding window of time, in constant space: the three best candidates,
/// each younger than the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowedMax {
    window: Duration,
    best: [(Instant, u64); 3],
}

impl WindowedMax {
    pub(super) fn new(window: Duration, now: Instant) -> Self {
        Self {
            window,
            best: [(now, 0); 3],
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.best[0].1
    }

    pub(super) fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    pub(super) fn insert(&mut self, value: u64, now: Instant) {
        let fresh = (now, value);
        let age = |at: Instant| now.saturating_duration_since(at);
        if value >= self.best[0].1 || age(self.best[2].0) > self.window {
            self.best = [fresh; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best = [self.best[0], fresh, fresh];
        } else if value >= self.best[2].1 {
            self.best[2] = fresh;
        }
        while age(self.best[0].0) > self.window {
            self.best = [self.best[1], self.best[2], fresh];
        }
        // A part of the window in which nothing better came yields a candidate of its own.
        if self.best[1].0 == self.best[0].0 && age(self.best[1].0) > self.window / 4 {
            self.best = [self.best[0], fresh, fresh];
        } else if self.best[2].0 == self.best[1].0 && age(self.best[2].0) > self.window / 2 {
            self.best[2] = fresh;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_windowed_maximum_forgets_what_is_older_than_its_window() {
        let start = Instant::now();
        let mut max = WindowedMax::new(Duration::from_millis(100), start);
        let mut values = std::collections::VecDeque::new();
        let mut seed = 7_u64;
        for step in 0..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let now = start + Duration::from_millis(step);
            let value = seed >> 50;
            values.push_back((now, value));
            values.retain(|(at, _)| now.duration_since(*at) <= Duration::from_millis(100));
            max.insert(value, now);
            let exact = values.iter().map(|(_, value)| *value).max().unwrap();
            assert!(max.get() <= exact && max.get() >= exact / 2, "step {step}");
        }
        max.insert(3, start + Duration::from_secs(60));
        assert_eq!(max.get(), 3);
    }
}
