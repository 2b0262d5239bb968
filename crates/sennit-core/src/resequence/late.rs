//! By how much repairs take longer than they should.

use std::time::{Duration, Instant};

/// A packet that comes after it was given up on says that repairs take longer than expected, as
/// where what is sent again is lost again: each so much, and so much at most.
const LATE_STEP: Duration = Duration::from_millis(20);
const LATE_MOST: Duration = Duration::from_millis(100);
/// What was learned of it halves in this time.
const LATE_FADES: Duration = Duration::from_secs(2);

/// By how much repairs took longer than expected, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Late {
    longer: Duration,
    learned: Option<Instant>,
}

impl Late {
    pub(super) fn longer(&self, now: Instant) -> Duration {
        let Some(learned) = self.learned else {
            return Duration::ZERO;
        };
        let halvings =
            now.saturating_duration_since(learned).as_secs_f64() / LATE_FADES.as_secs_f64();
        self.longer.mul_f64(0.5_f64.powf(halvings))
    }

    pub(super) fn note(&mut self, now: Instant) {
        self.longer = (self.longer(now) + LATE_STEP).min(LATE_MOST);
        self.learned = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_is_waited_for_longer_for_a_time() {
        let start = Instant::now();
        let mut late = Late::default();
        assert_eq!(late.longer(start), Duration::ZERO);
        late.note(start);
        assert_eq!(late.longer(start), LATE_STEP);
        assert_eq!(late.longer(start + LATE_FADES), LATE_STEP / 2);
        for _ in 0..100 {
            late.note(start);
        }
        assert_eq!(late.longer(start), LATE_MOST);
    }
}
