//! Arithmetic on what was measured: time bins, gaps, quantiles.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The usual width of a time bin.
pub const BIN: Duration = Duration::from_millis(100);

/// The width while things break: a gap of 150 ms is still fifteen of them.
pub const FINE_BIN: Duration = Duration::from_millis(10);

/// A bin below this share of the usual is part of a gap.
const SILENT: f64 = 0.05;

/// A bin above this share of the usual is back to normal.
const RECOVERED: f64 = 0.9;

/// How long a rate must last before it counts as recovered.
const STEADY: Duration = Duration::from_millis(500);

/// Bytes per second in consecutive bins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bins {
    #[serde(
        rename = "width_seconds",
        serialize_with = "as_seconds",
        deserialize_with = "from_seconds"
    )]
    width: Duration,
    rates: Vec<f64>,
}

impl Bins {
    /// Rates of consecutive bins of this width.
    #[must_use]
    pub fn new(width: Duration, rates: Vec<f64>) -> Self {
        Self { width, rates }
    }

    /// All together, which are of one width and began at about the same time.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self::new(BIN, Vec::new());
        for Self { width, rates } in all {
            sum.width = *width;
            let longer = sum.rates.len().max(rates.len());
            sum.rates.resize(longer, 0.0);
            for (sum, rate) in sum.rates.iter_mut().zip(rates) {
                *sum += rate;
            }
        }
        sum
    }

    /// Adds the next bin.
    pub fn push(&mut self, rate: f64) {
        self.rates.push(rate);
    }

    /// The usual rate: that up to `end`, or of all bins; 0 if there are none.
    pub fn usual(&self, end: Option<Duration>) -> f64 {
        self.between(Duration::ZERO, end)
    }

    /// The median from `start` to `end`, or to the last bin, over times of 100 ms at least: in
    /// finer ones slow traffic has nothing most of the time.
    pub fn between(&self, start: Duration, end: Option<Duration>) -> f64 {
        let last = self.rates.len();
        let start = self.index_of(start).min(last);
        let end = end.map_or(last, |end| self.index_of(end).clamp(start, last));
        let some = (BIN.as_micros() / self.width.as_micros()) as usize;
        let some = some.min(end - start).max(1);
        let means: Vec<f64> = self.rates[start..end]
            .chunks_exact(some)
            .map(mean)
            .collect();
        quantile(&means, 0.5).unwrap_or(0.0)
    }

    /// The mean from `start` to the last bin; `None` if that is before.
    pub fn mean(&self, start: Duration) -> Option<f64> {
        let later = self.rates.get(self.index_of(start)..)?;
        (!later.is_empty()).then(|| mean(later))
    }

    /// The longest run of bins after `start` in which almost nothing came through.
    pub fn longest_gap(&self, start: Duration, usual: f64) -> Duration {
        let later = self.rates.get(self.index_of(start)..).unwrap_or_default();
        let runs = later.split(|rate| *rate > 0.0 && *rate >= SILENT * usual);
        self.width * runs.map(<[f64]>::len).max().unwrap_or(0) as u32
    }

    /// How long after `event` the rate was back to the usual: from the first such bin on its mean
    /// stays there for half a second. A bin that lacks a tenth of it is no such bin, even if the
    /// half second that begins with it has the mean. Nothing comes back to a usual rate of 0.
    pub fn recovery(&self, event: Duration, usual: f64) -> Option<Duration> {
        let later = self.rates.get(self.index_of(event)..)?;
        (usual > 0.0).then_some(())?;
        let bins = (STEADY.as_micros() / self.width.as_micros()) as usize;
        let wanted = RECOVERED * usual;
        let mut windows = later.windows(bins);
        let steady = windows.position(|rates| mean(rates) >= wanted)?;
        let back = later[steady..].iter().position(|rate| *rate >= wanted);
        Some(self.width * (steady + back.unwrap_or(0)) as u32)
    }

    /// How long after `event` the first bin ended that had this rate, which is more than 0.
    pub fn reaches(&self, event: Duration, rate: f64) -> Option<Duration> {
        let later = self.rates.get(self.index_of(event)..)?;
        (rate > 0.0).then_some(())?;
        let first = later.iter().position(|bin| *bin >= rate)?;
        Some(self.width * (first as u32 + 1))
    }

    /// How wide a bin is.
    #[must_use]
    pub fn width(&self) -> Duration {
        self.width
    }

    /// Bytes per second, bin by bin.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    fn index_of(&self, at: Duration) -> usize {
        (at.as_micros() / self.width.as_micros()) as usize
    }
}

/// Of at least one.
fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// No bin is empty, and none is longer than a day.
fn from_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    let sane = (1e-6..=86_400.0).contains(&seconds);
    sane.then(|| Duration::from_secs_f64(seconds))
        .ok_or_else(|| de::Error::custom(format!("a bin of {seconds} seconds")))
}

/// The value below which a share of `values` lies (nearest rank); `None` for no values.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The median, of an even number the mean of both middle ones; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(rates: impl Into<Vec<f64>>) -> Bins {
        Bins::new(BIN, rates.into())
    }

    #[test]
    fn bins_can_be_read_back_and_empty_ones_are_refused() {
        let bins = bins([1.0, 2.5]);
        let text = serde_json::to_string(&bins).expect("they are numbers");

        assert_eq!(serde_json::from_str::<Bins>(&text).ok(), Some(bins));
        for width in ["0", "-1", "1e300"] {
            let text = format!(r#"{{"width_seconds": {width}, "rates": []}}"#);
            assert!(serde_json::from_str::<Bins>(&text).is_err(), "{width}");
        }
    }

    #[test]
    fn a_gap_is_the_longest_run_of_silent_bins() {
        let rates = [
            100.0, 4.0, 0.0, 100.0, 100.0, 1.0, 1.0, 1.0, 6.0, 100.0, 0.0,
        ];
        let gap = |start, bins: Bins| bins.longest_gap(Duration::from_millis(start), 100.0);

        assert_eq!(gap(0, bins(rates)), Duration::from_millis(300));
        assert_eq!(
            gap(0, Bins::new(FINE_BIN, rates.into())),
            Duration::from_millis(30)
        );
        assert_eq!(
            gap(800, bins(rates)),
            Duration::from_millis(100),
            "the later ones"
        );
        assert_eq!(gap(0, bins([100.0; 5])), Duration::ZERO);
        assert_eq!(
            gap(9000, bins([0.0; 5])),
            Duration::ZERO,
            "nothing is later"
        );
    }

    #[test]
    fn the_usual_rate_is_that_before_the_first_fault() {
        let cut = bins([vec![90.0; 10], vec![0.0; 90]].concat());

        assert_eq!(cut.usual(Some(Duration::from_secs(1))), 90.0);
        assert_eq!(cut.usual(None), 0.0);
        assert_eq!(bins([]).usual(Some(Duration::from_secs(1))), 0.0);
    }

    #[test]
    fn slow_traffic_has_a_usual_rate_in_fine_bins_too() {
        // A packet every 30 ms.
        let slow = Bins::new(FINE_BIN, [300.0, 0.0, 0.0].repeat(40));

        let usual = slow.usual(Some(Duration::from_secs(1)));

        assert!((90.0..=120.0).contains(&usual), "{usual}");
        assert_eq!(slow.usual(Some(Duration::from_millis(20))), 150.0);
    }

    #[test]
    fn what_never_ran_does_not_come_back() {
        let silent = bins([0.0; 20]);
        let usual = silent.usual(Some(Duration::ZERO));

        assert_eq!(silent.recovery(Duration::from_secs(1), usual), None);
        assert_eq!(silent.reaches(Duration::from_secs(1), 0.5 * usual), None);
    }

    #[test]
    fn recovery_counts_from_the_event_to_a_steady_rate() {
        let mut rates = vec![100.0; 10];
        rates.extend([0.0; 10]);
        rates.extend([0.0, 0.0, 100.0, 0.0, 95.0, 95.0, 95.0, 95.0, 95.0, 95.0]);
        let bins = bins(rates);

        let recovery = bins.recovery(Duration::from_secs(2), 100.0);

        assert_eq!(recovery, Some(Duration::from_millis(400)));
        assert_eq!(bins.recovery(Duration::from_secs(9), 100.0), None);
    }

    #[test]
    fn recovery_needs_half_a_second_however_fine_the_bins() {
        let rates = |steady| [vec![0.0; 30], vec![100.0; steady], vec![0.0; 30]].concat();
        let recovery = |steady| Bins::new(FINE_BIN, rates(steady)).recovery(Duration::ZERO, 100.0);

        assert_eq!(recovery(44), None);
        assert_eq!(recovery(46), Some(Duration::from_millis(300)));
        assert_eq!(
            recovery(50),
            Some(Duration::from_millis(300)),
            "silence is no part of it, though a tenth may be missing"
        );
    }

    #[test]
    fn a_rate_is_reached_at_the_end_of_its_first_bin() {
        let bins = bins([100.0, 0.0, 10.0, 60.0, 100.0]);

        assert_eq!(
            bins.reaches(Duration::from_millis(100), 50.0),
            Some(Duration::from_millis(300))
        );
        assert_eq!(bins.reaches(Duration::from_millis(100), 200.0), None);
        assert_eq!(bins.reaches(Duration::from_secs(9), 50.0), None);
    }

    #[test]
    fn a_median_has_as_many_values_on_either_side() {
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 9.0, 1.0, 2.0]), Some(3.0));
        assert_eq!(median(&[]), None);
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
