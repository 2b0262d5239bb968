//! How much the journal is told of those who are refused.
//!
//! Whoever knows the hub's address can be refused as often as it likes. The journal has the first
//! of each minute, and how many more there were.

use std::time::{Duration, Instant};

/// Time after which the journal is told of refusals again.
const WINDOW: Duration = Duration::from_secs(60);
/// Refusals that the journal is told of in that time: more than the edges of one hub that were
/// revoked by mistake make, and few enough that a day of a flood is no more than 30,000 lines.
const TOLD: u32 = 20;

#[derive(Debug)]
pub(super) struct Refusals {
    since: Instant,
    told: u32,
    untold: u32,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            told: 0,
            untold: 0,
        }
    }

    /// Whether the journal is told of one more.
    pub(super) fn may_tell(&mut self, now: Instant) -> bool {
        if self.untold == 0 && now.saturating_duration_since(self.since) >= WINDOW {
            *self = Self::new(now);
        }
        if self.told < TOLD {
            self.told += 1;
            return true;
        }
        self.untold += 1;
        false
    }

    /// How many it was not told of, when the time is over.
    pub(super) fn take_untold(&mut self, now: Instant) -> Option<u32> {
        let over = now.saturating_duration_since(self.since) >= WINDOW;
        if !over || self.untold == 0 {
            return None;
        }
        let untold = self.untold;
        *self = Self::new(now);
        Some(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_a_minute_and_a_count() {
        let start = Instant::now();
        let mut refusals = Refusals::new(start);
        let (mut told, mut counted) = (0, 0);
        for millis in 0..600_000 {
            let now = start + Duration::from_millis(millis);
            told += u32::from(refusals.may_tell(now));
            counted += refusals.take_untold(now).unwrap_or(0);
        }
        counted += refusals
            .take_untold(start + 11 * WINDOW)
            .expect("the last minute is over");

        assert_eq!(told, 10 * TOLD);
        assert_eq!(told + counted, 600_000);
    }

    #[test]
    fn who_is_refused_now_and_then_is_always_told_of() {
        let start = Instant::now();
        let mut refusals = Refusals::new(start);
        for seconds in (0..3600).step_by(4) {
            let now = start + Duration::from_secs(seconds);
            assert!(refusals.may_tell(now));
            assert_eq!(refusals.take_untold(now), None);
        }
    }
}
