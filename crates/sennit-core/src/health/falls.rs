//! How often a path fell of late, and for how long it must be steady before it is trusted again.
//!
//! Each fall doubles that time, so that a link that comes and goes is left alone, and a link that
//! had one bad burst is back soon. A handover between satellites or cells is no fall: it is short,
//! and nothing else happens for seconds.

use std::time::{Duration, Instant};

/// How long a path must be heard again after one fall.
pub(super) const TRUST_AFTER: Duration = Duration::from_millis(120);
/// The longest time for which it must be heard: bursts of a failing modem are 3 to 15 s apart, and
/// what is longer would only keep out a link that has recovered.
const MOST: Duration = Duration::from_secs(32);
/// Falls are forgotten when the path did not fall for at least this long.
const FORGOTTEN: Duration = Duration::from_secs(20);
/// Falls are forgotten when the path did not fall for this many times as long as it has to be
/// steady: what follows in the same rhythm is no news.
const RHYTHM: u32 = 4;
/// A handover is over within this time after something was last heard: 200 ms of silence (Starlink)
/// between two probes.
const HANDOVER: Duration = Duration::from_millis(300);
/// Handovers are at least so far apart.
const HANDOVERS_APART: Duration = Duration::from_secs(5);

/// The falls of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Falls {
    /// Those that count.
    count: u32,
    /// When the last of them was, or when the path fell back before it was trusted.
    counted: Option<Instant>,
    /// When it last fell.
    fell: Option<Instant>,
    /// From when on it was silent then, if that was long after the fall before.
    alone: Option<Instant>,
    /// The last fall looked like a handover and was not counted: `count` and `counted` with it.
    excused: Option<(u32, Instant)>,
    /// Those without it.
    without: (u32, Option<Instant>),
}

impl Falls {
    /// A path that was trusted is suspected; it may have been silent `since` some time.
    pub(super) fn handle_fall(&mut self, since: Instant, now: Instant) {
        let is_alone = self
            .fell
            .is_none_or(|at| now.saturating_duration_since(at) >= HANDOVERS_APART);
        let excused = self.excused.take().filter(|_| !is_alone);
        if let Some((count, counted)) = excused {
            // No handover follows another so soon.
            (self.count, self.counted) = (count, Some(counted));
        }
        self.alone = is_alone.then_some(since);
        self.without = (self.count(now), self.counted);
        self.count = self.without.0.saturating_add(1);
        (self.counted, self.fell) = (Some(now), Some(now));
    }

    /// It is suspected again, and was not trusted yet.
    pub(super) fn handle_relapse(&mut self, now: Instant) {
        if let Some((count, _)) = self.excused.take() {
            self.count = count;
        }
        if self.count(now) > 0 {
            self.counted = Some(now);
        }
        (self.fell, self.alone) = (Some(now), None);
    }

    /// It is heard again.
    pub(super) fn handle_return(&mut self, now: Instant) {
        let since = self.alone.take();
        if since.is_some_and(|at| now.saturating_duration_since(at) <= HANDOVER) {
            self.excused = self.counted.map(|counted| (self.count, counted));
            (self.count, self.counted) = self.without;
        }
    }

    /// Falls of late.
    pub(super) fn count(&self, now: Instant) -> u32 {
        let lasts = FORGOTTEN.max(RHYTHM * doubled(self.count));
        let is_recent = |at| now.saturating_duration_since(at) < lasts;
        self.counted
            .filter(|&at| is_recent(at))
            .map_or(0, |_| self.count)
    }

    /// The falls that count, and the time for which they ask, as of the last one.
    pub(super) fn of_last(&self) -> (u32, Duration) {
        (self.count, doubled(self.count))
    }

    /// How long it must be heard without a silence.
    pub(super) fn probation(&self, now: Instant) -> Duration {
        doubled(self.count(now))
    }
}

fn doubled(falls: u32) -> Duration {
    let times = 1_u32.checked_shl(falls.saturating_sub(1));
    TRUST_AFTER
        .saturating_mul(times.unwrap_or(u32::MAX))
        .min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Falls at these milliseconds, each for so long, and what must be shown at the last return.
    fn after(falls: impl IntoIterator<Item = u32>, silence: Duration) -> Duration {
        let start = Instant::now();
        let mut all = Falls::default();
        let mut now = start;
        for ms in falls {
            let since = start + ms * MS;
            all.handle_fall(since, since + 100 * MS);
            now = start + ms * MS + silence;
            all.handle_return(now);
        }
        all.probation(now)
    }

    #[test]
    fn handovers_do_not_add_up() {
        let every_15_s = (0..40).map(|n| n * 15_000);
        assert_eq!(after(every_15_s.clone(), 250 * MS), TRUST_AFTER);
        assert!(after(every_15_s, 1000 * MS) > 20_000 * MS);
    }

    #[test]
    fn one_burst_is_soon_made_up_for_and_the_next_ones_are_not() {
        let burst = |from: u32| [0, 700, 1900, 3500].map(|ms| from + ms);
        assert!(after(burst(0), 200 * MS) <= 1000 * MS);
        let second = after(burst(0).into_iter().chain(burst(12_000)), 200 * MS);
        assert!((8_000 * MS..16_000 * MS).contains(&second), "{second:?}");
    }

    #[test]
    fn falls_are_remembered_in_the_rhythm_in_which_they_come() {
        let start = Instant::now();
        let mut falls = Falls::default();
        for n in 0..12 {
            falls.handle_fall(start + n * 1000 * MS, start + n * 1000 * MS);
        }
        let last = start + 11_000 * MS;
        assert_eq!(falls.probation(last + 120_000 * MS), MOST);
        assert_eq!(falls.probation(last + 130_000 * MS), TRUST_AFTER);
        // What falls back before it is trusted is not forgotten.
        falls.handle_relapse(last + 120_000 * MS);
        assert_eq!(falls.probation(last + 130_000 * MS), MOST);
    }
}
