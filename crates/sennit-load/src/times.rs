//! A histogram of times: quantiles of a run of any length in memory of one size.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest time that is told from longer ones, in microseconds.
const LONGEST: u64 = 600_000_000;

/// Significant digits: a quantile is within 0.1 %.
const DIGITS: u8 = 3;

/// Times, in microseconds inside.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u32>);

/// What a histogram comes to, in seconds. Without any time all of it is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeFigures {
    /// How many times there are.
    pub count: u64,
    /// The shortest.
    pub min_seconds: Option<f64>,
    /// Sum over count.
    pub mean_seconds: Option<f64>,
    /// Half of them were shorter.
    pub p50_seconds: Option<f64>,
    /// 95 % were shorter.
    pub p95_seconds: Option<f64>,
    /// 99 % were shorter.
    pub p99_seconds: Option<f64>,
    /// 99.9 % were shorter.
    pub p999_seconds: Option<f64>,
    /// The longest.
    pub max_seconds: Option<f64>,
}

/// Times that are nearly alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The longest of them, to two digits.
    pub up_to_seconds: f64,
    /// How many there are.
    pub count: u64,
}

impl Default for Times {
    fn default() -> Self {
        // It grows to the longest time that it is given: 90 KB for ten minutes.
        Self(Histogram::new(DIGITS).expect("the digits are at most five"))
    }
}

impl Times {
    /// Takes a time into account; one of more than ten minutes counts as ten minutes.
    pub fn note(&mut self, time: Duration) {
        self.note_many(time, 1);
    }

    /// Takes so many of a time into account.
    pub(crate) fn note_many(&mut self, time: Duration, count: u32) {
        let micros = u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(LONGEST);
        let recorded = self.0.record_n(micros.clamp(1, LONGEST), count);
        recorded.expect("it grows as it needs to");
    }

    /// All times, each to a thousandth, and how many of each there are.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Duration, u32)> {
        let values = self.0.iter_recorded();
        values.map(|it| {
            (
                Duration::from_micros(it.value_iterated_to()),
                it.count_at_value(),
            )
        })
    }

    /// The time below which a share of them lies; `None` for no times.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let micros = || self.0.value_at_quantile(share);
        (!self.0.is_empty()).then(|| Duration::from_micros(micros()))
    }

    /// Mean of the longest `share` of them, at least one; `None` for no times.
    #[must_use]
    pub fn mean_of_longest(&self, share: f64) -> Option<Duration> {
        let wanted = ((self.0.len() as f64 * share).ceil() as u64).max(1);
        let (mut left, mut sum) = (wanted, 0.0);
        let values: Vec<_> = self.0.iter_recorded().collect();
        for value in values.iter().rev() {
            let taken = u64::from(value.count_at_value()).min(left);
            sum += taken as f64 * value.value_iterated_to() as f64;
            left -= taken;
        }
        (left == 0).then(|| Duration::from_secs_f64(sum / wanted as f64 / 1e6))
    }

    /// All times of another histogram as well.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("it grows as it needs to");
    }

    /// All times, in buckets whose bounds have two digits: 90 for each power of ten, without those
    /// that are empty.
    #[must_use]
    pub fn buckets(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        for value in self.0.iter_recorded() {
            let micros = value.value_iterated_to();
            let digits = micros.checked_ilog10().unwrap_or(0);
            let unit = 10_u64.pow(digits.saturating_sub(1));
            let up_to_seconds = (micros.div_ceil(unit) * unit) as f64 / 1e6;
            let count = u64::from(value.count_at_value());
            match buckets.last_mut() {
                Some(last) if last.up_to_seconds == up_to_seconds => last.count += count,
                _ => buckets.push(Bucket {
                    up_to_seconds,
                    count,
                }),
            }
        }
        buckets
    }

    /// What they come to.
    #[must_use]
    pub fn figures(&self) -> TimeFigures {
        let at = |share| self.quantile(share).map(|time| time.as_secs_f64());
        let some = |micros: f64| (!self.0.is_empty()).then_some(micros / 1e6);
        TimeFigures {
            count: self.0.len(),
            min_seconds: some(self.0.min() as f64),
            mean_seconds: some(self.0.mean()),
            p50_seconds: at(0.5),
            p95_seconds: at(0.95),
            p99_seconds: at(0.99),
            p999_seconds: at(0.999),
            max_seconds: some(self.0.max() as f64),
        }
    }
}

impl TimeFigures {
    /// How much longer the slow ones take than the usual: the 95th percentile less the median.
    #[must_use]
    pub fn jitter_seconds(&self) -> Option<f64> {
        Some(self.p95_seconds? - self.p50_seconds?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth_whatever_the_scale() {
        let mut times = Times::default();
        for millis in 1..=1000 {
            times.note(Duration::from_millis(millis));
        }

        let figures = times.figures();
        let within = |value: Option<f64>, expected: f64| {
            let value = value.expect("there are times");
            assert!((value / expected - 1.0).abs() < 2e-3, "{value} {expected}");
        };
        assert_eq!(figures.count, 1000);
        within(figures.min_seconds, 1e-3);
        within(figures.mean_seconds, 0.5005);
        within(figures.p50_seconds, 0.5);
        within(figures.p99_seconds, 0.99);
        within(figures.max_seconds, 1.0);
        within(figures.jitter_seconds(), 0.45);
        let slow = times.mean_of_longest(0.05).map(|time| time.as_secs_f64());
        within(slow, 0.9755);
    }

    #[test]
    fn buckets_hold_each_time_once_and_in_order() {
        let mut times = Times::default();
        for micros in [7, 7, 1234, 1290, 1301, 250_000] {
            times.note(Duration::from_micros(micros));
        }

        let buckets = times.buckets();

        let found: Vec<_> = buckets.iter().map(|b| (b.up_to_seconds, b.count)).collect();
        assert_eq!(found, [(7e-6, 2), (1.3e-3, 2), (1.4e-3, 1), (0.26, 1)]);
        assert!(Times::default().buckets().is_empty());
    }

    #[test]
    fn no_times_have_no_figures_and_too_long_ones_count() {
        let mut times = Times::default();
        assert_eq!(times.figures(), TimeFigures::default());
        assert_eq!(times.mean_of_longest(0.05), None);

        times.note(Duration::from_secs(5000));

        let longest = times.quantile(1.0).expect("there is one");
        assert!(longest >= Duration::from_secs(599), "{longest:?}");
    }

    #[test]
    fn figures_can_be_read_back() {
        let mut times = Times::default();
        times.note(Duration::from_millis(3));
        let figures = times.figures();

        let text = serde_json::to_string(&figures).expect("they are numbers");

        assert_eq!(
            serde_json::from_str::<TimeFigures>(&text).ok(),
            Some(figures)
        );
    }
}
