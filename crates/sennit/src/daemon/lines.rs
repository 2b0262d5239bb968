//! How many lines of the log others can cause.
//!
//! Whoever knows the hub's address can be refused as often as it likes, and a site may come and go
//! as it likes. The log has the first lines of each minute, and how many more there were.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Time after which lines are written again.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines about a site in that time, as many as the journal takes events of it: three classes over
/// six links that all fail and come back make 42.
const OF_A_SITE: u32 = 60;

/// The lines of one kind.
#[derive(Debug)]
pub(super) struct Allowance {
    most: u32,
    since: Instant,
    told: u32,
    untold: u32,
}

impl Allowance {
    /// This many lines a minute.
    pub(super) fn new(most: u32, now: Instant) -> Self {
        Self {
            most,
            since: now,
            told: 0,
            untold: 0,
        }
    }

    /// Whether one more is written.
    pub(super) fn may_tell(&mut self, now: Instant) -> bool {
        if self.untold == 0 && self.is_over(now) {
            *self = Self::new(self.most, now);
        }
        if self.told < self.most {
            self.told += 1;
            return true;
        }
        self.untold += 1;
        false
    }

    /// How many were not written, when the time is over.
    pub(super) fn take_untold(&mut self, now: Instant) -> Option<u32> {
        if !self.is_over(now) || self.untold == 0 {
            return None;
        }
        let untold = self.untold;
        *self = Self::new(self.most, now);
        Some(untold)
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

/// The lines about each site that had any of late.
#[derive(Debug, Default)]
pub(super) struct Lines {
    sites: BTreeMap<String, Allowance>,
    /// When the time of the first is over.
    look_at: Option<Instant>,
}

impl Lines {
    /// Whether one more is written about this site.
    pub(super) fn may_tell(&mut self, site: &str, now: Instant) -> bool {
        if let Some(allowance) = self.sites.get_mut(site) {
            return allowance.may_tell(now);
        }
        self.look_at.get_or_insert(now + WINDOW);
        let mut allowance = Allowance::new(OF_A_SITE, now);
        let first = allowance.may_tell(now);
        self.sites.insert(site.to_owned(), allowance);
        first
    }

    /// Writes how many were left out, once a site's time is over.
    pub(super) fn log_untold(&mut self, now: Instant) {
        for (site, count) in self.take_untold(now) {
            tracing::warn!(
                site,
                count,
                "more happened to the site than is written here"
            );
        }
    }

    fn take_untold(&mut self, now: Instant) -> Vec<(String, u32)> {
        if self.look_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let over = self.sites.extract_if(.., |_, it| it.is_over(now));
        let untold = over.filter(|(_, it)| it.untold > 0);
        let untold = untold.map(|(site, it)| (site, it.untold)).collect();
        let next = self.sites.values().map(|it| it.since + WINDOW).min();
        self.look_at = next;
        untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: u32 = 20;

    #[test]
    fn a_flood_is_a_few_lines_a_minute_and_a_count() {
        let start = Instant::now();
        let mut refusals = Allowance::new(TOLD, start);
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
        let mut refusals = Allowance::new(TOLD, start);
        for seconds in (0..3600).step_by(4) {
            let now = start + Duration::from_secs(seconds);
            assert!(refusals.may_tell(now));
            assert_eq!(refusals.take_untold(now), None);
        }
    }

    #[test]
    fn a_site_in_a_loop_is_a_few_lines_a_minute_and_a_count_and_others_have_theirs() {
        let start = Instant::now();
        let mut lines = Lines::default();
        let (mut told, mut counted) = (0, 0);
        for millis in 0..180_000 {
            let now = start + Duration::from_millis(millis);
            told += u32::from(lines.may_tell("loop", now));
            if millis % 2000 == 0 {
                assert!(lines.may_tell("quiet", now));
            }
            for (site, count) in lines.take_untold(now) {
                assert_eq!(site, "loop");
                counted += count;
            }
        }
        for (_, count) in lines.take_untold(start + 4 * WINDOW) {
            counted += count;
        }
        assert_eq!(told, 3 * OF_A_SITE);
        assert_eq!(told + counted, 180_000);
        assert!(lines.sites.is_empty(), "nothing is kept of who is quiet");
    }
}
