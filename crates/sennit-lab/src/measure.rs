//! Arithmetic on what was measured: time bins, gaps, quantiles.

use std::time::Duration;

use serde::Serialize;

/// The width of a time bin.
pub(crate) const BIN: Duration = Duration::from_millis(100);

/// A bin below this share of the usual is part of a gap.
const SILENT: f64 = 0.05;

/// A bin above this share of the usual is back to normal.
const RECOVERED: f64 = 0.9;

/// Bins over which a rate is averaged before it counts as recovered.
const STEADY: usize = 5;

/// Bytes per second in consecutive bins of [`BIN`].
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Bins(pub Vec<f64>);

impl Bins {
    /// The usual rate: the median up to `end`, or of all bins.
    pub(crate) fn usual(&self, end: Option<Duration>) -> f64 {
        self.between(Duration::ZERO, end)
    }

    /// The median from `start` to `end`, or to the last bin.
    pub(crate) fn between(&self, start: Duration, end: Option<Duration>) -> f64 {
        let last = self.0.len();
        let start = index_of(start).min(last);
        let end = end.map_or(last, |end| index_of(end).clamp(start, last));
        quantile(&self.0[start..end], 0.5).unwrap_or(0.0)
    }

    /// The longest run of bins in which almost nothing came through.
    pub(crate) fn longest_gap(&self, usual: f64) -> Duration {
        let runs = self.0.split(|rate| *rate > 0.0 && *rate >= SILENT * usual);
        BIN * runs.map(<[f64]>::len).max().unwrap_or(0) as u32
    }

    /// How long after `event` the rate was back to the usual for half a second.
    pub(crate) fn recovery(&self, event: Duration, usual: f64) -> Option<Duration> {
        let start = index_of(event);
        let later = self.0.get(start..)?;
        let steady = later
            .windows(STEADY)
            .position(|bins| bins.iter().sum::<f64>() >= RECOVERED * usual * STEADY as f64)?;
        Some(BIN * steady as u32)
    }

    /// How long after `event` the first bin ended that had this rate.
    pub(crate) fn reaches(&self, event: Duration, rate: f64) -> Option<Duration> {
        let later = self.0.get(index_of(event)..)?;
        let first = later.iter().position(|bin| *bin >= rate)?;
        Some(BIN * (first as u32 + 1))
    }
}

fn index_of(at: Duration) -> usize {
    (at.as_micros() / BIN.as_micros()) as usize
}

/// The value below which a share of `values` lies (nearest rank); `None` for no values.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_the_longest_run_of_silent_bins() {
        let bins = Bins(vec![
            100.0, 4.0, 0.0, 100.0, 100.0, 1.0, 1.0, 1.0, 6.0, 100.0,
        ]);

        assert_eq!(bins.longest_gap(100.0), Duration::from_millis(300));
        assert_eq!(Bins(vec![100.0; 5]).longest_gap(100.0), Duration::ZERO);
    }

    #[test]
    fn the_usual_rate_is_that_before_the_first_fault() {
        let bins = Bins([vec![90.0; 10], vec![0.0; 90]].concat());

        assert_eq!(bins.usual(Some(Duration::from_secs(1))), 90.0);
        assert_eq!(bins.usual(None), 0.0);
        assert_eq!(Bins::default().usual(Some(Duration::from_secs(1))), 0.0);
    }

    #[test]
    fn recovery_counts_from_the_event_to_a_steady_rate() {
        let mut rates = vec![100.0; 10];
        rates.extend([0.0; 10]);
        rates.extend([0.0, 0.0, 100.0, 0.0, 95.0, 95.0, 95.0, 95.0, 95.0, 95.0]);
        let bins = Bins(rates);

        let recovery = bins.recovery(Duration::from_secs(2), 100.0);

        assert_eq!(recovery, Some(Duration::from_millis(400)));
        assert_eq!(bins.recovery(Duration::from_secs(9), 100.0), None);
    }

    #[test]
    fn a_rate_is_reached_at_the_end_of_its_first_bin() {
        let bins = Bins(vec![100.0, 0.0, 10.0, 60.0, 100.0]);

        assert_eq!(
            bins.reaches(Duration::from_millis(100), 50.0),
            Some(Duration::from_millis(300))
        );
        assert_eq!(bins.reaches(Duration::from_millis(100), 200.0), None);
        assert_eq!(bins.reaches(Duration::from_secs(9), 50.0), None);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();

        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&values, 1.0), Some(100.0));
        assert_eq!(quantile(&[7.0], 0.01), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
