//! How many lines of the log others can cause.
//!
//! Whoever knows the hub's address can be refused, or break a rule of QUIC, as often as it likes; a
//! site may come and go as it likes, and a hub may tell its edges what it likes. The log has the
//! first lines of each minute about a site, and of each place in the code that says nothing of a
//! site, and how many more there were.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Time after which lines are written again.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines of one subject in that time, as many as the journal takes events of a site: three classes
/// over six links that all fail and come back make 42.
const MOST: u32 = 60;

/// Whether a line is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    /// It is the first that is left out, and that is worth a line.
    LeftOutFirst,
    LeftOut,
}

/// The subjects that any line was about of late.
#[derive(Debug, Default)]
pub(super) struct Lines {
    subjects: BTreeMap<String, Allowance>,
    /// When the time of the first is over.
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct Allowance {
    since: Instant,
    told: u32,
    untold: u32,
}

impl Lines {
    /// What becomes of one more line about this subject.
    pub(super) fn admit(&mut self, subject: &str, now: Instant) -> Fate {
        self.look_at.get_or_insert(now + WINDOW);
        let Some(allowance) = self.subjects.get_mut(subject) else {
            let first = Allowance {
                since: now,
                told: 1,
                untold: 0,
            };
            self.subjects.insert(subject.to_owned(), first);
            return Fate::Written;
        };
        if allowance.told < MOST {
            allowance.told += 1;
            return Fate::Written;
        }
        allowance.untold += 1;
        if allowance.untold == 1 {
            Fate::LeftOutFirst
        } else {
            Fate::LeftOut
        }
    }

    /// How many were left out about each subject whose time is over.
    pub(super) fn take_untold(&mut self, now: Instant) -> Vec<(String, u32)> {
        if self.look_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let over = |it: &Allowance| now.saturating_duration_since(it.since) >= WINDOW;
        let over = self.subjects.extract_if(.., |_, it| over(it));
        let untold = over.filter(|(_, it)| it.untold > 0);
        let untold = untold.map(|(subject, it)| (subject, it.untold)).collect();
        self.look_at = self.subjects.values().map(|it| it.since + WINDOW).min();
        untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_in_a_loop_is_a_few_lines_a_minute_and_a_count_and_others_have_theirs() {
        let start = Instant::now();
        let mut lines = Lines::default();
        let (mut told, mut counted, mut noted) = (0, 0, 0);
        for millis in 0..180_000 {
            let now = start + Duration::from_millis(millis);
            for (site, count) in lines.take_untold(now) {
                assert_eq!(site, "loop");
                counted += count;
            }
            match lines.admit("loop", now) {
                Fate::Written => told += 1,
                Fate::LeftOutFirst => noted += 1,
                Fate::LeftOut => {}
            }
            if millis % 2000 == 0 {
                assert_eq!(lines.admit("quiet", now), Fate::Written);
            }
        }
        for (_, count) in lines.take_untold(start + 4 * WINDOW) {
            counted += count;
        }
        assert_eq!((told, noted), (3 * MOST, 3));
        assert_eq!(told + counted, 180_000);
        assert!(lines.subjects.is_empty(), "nothing is kept of who is quiet");
    }

    #[test]
    fn who_is_told_of_now_and_then_is_always_told_of() {
        let start = Instant::now();
        let mut lines = Lines::default();
        for seconds in (0..3600).step_by(2) {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(lines.take_untold(now), []);
            assert_eq!(lines.admit("van", now), Fate::Written);
        }
    }
}
