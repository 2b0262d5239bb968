//! Bytes of the last few seconds, counted where they pass, so that asking for them changes nothing.

use std::time::{Duration, Instant};

/// What is called recent is at least this old, and at most twice as old.
pub const WINDOW: Duration = Duration::from_secs(2);

/// A count of what passed lately.
#[derive(Clone, Copy, Debug)]
pub struct Recent {
    since: Instant,
    bytes: u64,
    before: u64,
}

impl Recent {
    /// Nothing so far.
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            before: 0,
        }
    }

    /// `bytes` pass.
    pub fn count(&mut self, bytes: u64, now: Instant) {
        *self = self.at(now);
        self.bytes += bytes;
    }

    /// Bytes of the present window and the one before.
    pub fn bytes(&self, now: Instant) -> u64 {
        let seen = self.at(now);
        seen.bytes + seen.before
    }

    /// This count as it is at `now`.
    fn at(self, now: Instant) -> Self {
        let age = now.saturating_duration_since(self.since);
        if age < WINDOW {
            return self;
        }
        Self {
            since: now,
            bytes: 0,
            before: if age < 2 * WINDOW { self.bytes } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_is_forgotten_after_two_windows_at_most_and_not_before_one() {
        let start = Instant::now();
        for moment in 0..40 {
            let mut recent = Recent::new(start);
            let sent = start + WINDOW * moment / 10;
            recent.count(100, sent);
            for later in 0..40 {
                let now = sent + WINDOW * later / 10;
                let seen = recent.bytes(now);
                assert!(later > 10 || seen == 100, "{moment} {later}");
                assert!(later < 20 || seen == 0, "{moment} {later}");
            }
        }
    }

    #[test]
    fn looking_changes_nothing() {
        let start = Instant::now();
        let mut recent = Recent::new(start);
        let mut watched = recent;
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            recent.count(1, now);
            watched.count(1, now);
            watched.bytes(now + WINDOW * 10);
        }
        let now = start + Duration::from_secs(11);
        assert_eq!(recent.bytes(now), watched.bytes(now));
        assert!((2000..4000).contains(&recent.bytes(now)), "{recent:?}");
    }
}
