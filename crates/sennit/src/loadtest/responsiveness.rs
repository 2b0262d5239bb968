//! Responsiveness under working conditions, in round trips a minute, after
//! draft-ietf-ippm-responsiveness.
//!
//! Foreign probes are new connections, each with one question; probes of the load's own connections
//! are short requests on them. Of each the longest 5 % are left out, as the draft says, and told
//! apart from it. Where the draft has handshakes of TCP and of TLS, QUIC has one of a single round
//! trip.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Intervals over which the draft looks for stability (MAD), of a second each (ID).
const INTERVALS: usize = 4;
/// Standard deviation over the mean, up to which figures are stable (SDT).
const STABLE: f64 = 0.05;
/// The share of times that the trimmed mean leaves out (TMP).
const TRIMMED: f64 = 0.05;

/// How sure the figure is, by the draft's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Neither goodput nor responsiveness was stable at the end.
    #[default]
    Low,
    /// One of them was.
    Medium,
    /// Both were.
    High,
}

impl Confidence {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Round trips a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Responsiveness {
    /// The draft's figure: the mean of the two below.
    pub rpm: f64,
    /// By new connections.
    pub foreign_rpm: f64,
    /// By requests on the connections of the load.
    pub loaded_rpm: f64,
    /// The draft's figure by the longest 5 % alone, which it leaves out.
    pub worst_rpm: f64,
    /// How sure it is.
    pub confidence: Confidence,
    /// New connections that were timed.
    pub foreign_probes: u64,
    /// Requests that were timed.
    pub loaded_probes: u64,
}

/// Times, each with the moment at which it was known.
type Timed<'a> = &'a [(Instant, Duration)];

impl Responsiveness {
    /// By handshakes, the questions after them, and requests; `rates` are bits a second, one for
    /// each second. Without one of each there is none.
    #[must_use]
    pub fn new(
        handshakes: Timed<'_>,
        questions: Timed<'_>,
        requests: Timed<'_>,
        rates: &[f64],
    ) -> Option<Self> {
        let all = [handshakes, questions, requests];
        let by = |mean: fn(&[f64]) -> Option<f64>| {
            let [handshake, question, request] = all.map(|times| mean(&sorted(times)));
            let foreign = 60.0 / ((handshake? + question?) / 2.0);
            Some([foreign, 60.0 / request?])
        };
        let [foreign, loaded] = by(trimmed_mean)?;
        let [worst_foreign, worst_loaded] = by(mean_of_longest)?;
        let stable = [is_stable(rates), is_stable(&by_second(requests))];
        Some(Self {
            rpm: f64::midpoint(foreign, loaded),
            foreign_rpm: foreign,
            loaded_rpm: loaded,
            worst_rpm: f64::midpoint(worst_foreign, worst_loaded),
            confidence: match stable {
                [true, true] => Confidence::High,
                [false, false] => Confidence::Low,
                [true, false] | [false, true] => Confidence::Medium,
            },
            foreign_probes: questions.len() as u64,
            loaded_probes: requests.len() as u64,
        })
    }
}

fn sorted(times: Timed<'_>) -> Vec<f64> {
    let mut times: Vec<f64> = times.iter().map(|(_, time)| time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// How many of the longest the trimmed mean leaves out.
fn longest(times: &[f64]) -> usize {
    (times.len() as f64 * TRIMMED).floor() as usize
}

fn trimmed_mean(times: &[f64]) -> Option<f64> {
    mean(&times[..times.len() - longest(times)])
}

/// Of at least one.
fn mean_of_longest(times: &[f64]) -> Option<f64> {
    mean(&times[times.len().saturating_sub(longest(times).max(1))..])
}

/// Round trips a minute of each second in which there were some, in order.
fn by_second(times: Timed<'_>) -> Vec<f64> {
    let Some(first) = times.iter().map(|(at, _)| *at).min() else {
        return Vec::new();
    };
    let mut seconds: Vec<Vec<f64>> = Vec::new();
    for (at, time) in times {
        let second = at.saturating_duration_since(first).as_secs() as usize;
        seconds.resize(seconds.len().max(second + 1), Vec::new());
        seconds[second].push(time.as_secs_f64());
    }
    let means = seconds.iter().filter_map(|times| mean(times));
    means.map(|mean| 60.0 / mean).collect()
}

/// Whether the moving averages of the last intervals hardly differ (§4.4).
fn is_stable(values: &[f64]) -> bool {
    let averages: Vec<f64> = values.windows(INTERVALS).filter_map(mean).collect();
    let last = averages
        .len()
        .checked_sub(INTERVALS)
        .map(|from| &averages[from..]);
    let Some((last, average)) = last.and_then(|last| Some((last, mean(last)?))) else {
        return false;
    };
    let squares = last.iter().map(|value| (value - average).powi(2));
    let deviation = (squares.sum::<f64>() / last.len() as f64).sqrt();
    deviation <= STABLE * average
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(millis: impl IntoIterator<Item = u64>) -> Vec<(Instant, Duration)> {
        let start = Instant::now();
        let at = |n: usize| start + Duration::from_millis(100) * n as u32;
        let times = millis.into_iter().enumerate();
        times
            .map(|(n, ms)| (at(n), Duration::from_millis(ms)))
            .collect()
    }

    #[test]
    fn the_longest_twentieth_is_left_out_and_told_apart() {
        // 95 of 20 ms and 5 of a second.
        let times = timed((0..100).map(|n| if n % 20 == 7 { 1000 } else { 20 }));
        let steady = [1e6; 10];

        let found = Responsiveness::new(&times, &times, &times, &steady).expect("there are some");

        let close =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 1e-6, "{value}");
        close(found.rpm, 3000.0);
        close(found.foreign_rpm, 3000.0);
        close(found.loaded_rpm, 3000.0);
        close(found.worst_rpm, 60.0);
        assert_eq!(Responsiveness::new(&times, &[], &times, &steady), None);
    }

    #[test]
    fn confidence_is_what_was_stable() {
        let (steady, rising) = ([1e6; 10], [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6]);
        let (calm, worse) = (timed([20; 100]), timed((0..100).map(|n| 20 + 10 * n)));
        let confidence = |requests: &[(Instant, Duration)], rates: &[f64]| {
            let found = Responsiveness::new(&calm, &calm, requests, rates);
            found.expect("there are some").confidence
        };
        assert_eq!(confidence(&calm, &steady), Confidence::High);
        assert_eq!(confidence(&worse, &steady), Confidence::Medium);
        assert_eq!(confidence(&calm, &rising), Confidence::Medium);
        assert_eq!(confidence(&worse, &rising[..3]), Confidence::Low);
    }
}
