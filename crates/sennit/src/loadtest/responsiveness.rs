//! Responsiveness under working conditions, in round trips a minute, after
//! draft-ietf-ippm-responsiveness.
//!
//! Foreign probes are new connections, each with one question; probes of the load's own connections
//! are short requests on them. What was known in the last four seconds counts, when buffers are as
//! full as they get. Of each the longest 5 % are left out, as the draft says, and told apart.
//! A probe that was waited for at the end has the time that it had waited, and one that failed the
//! time for which it would have been waited. Where the draft has handshakes of TCP and of TLS, QUIC
//! has one of a single round trip.

use std::time::{Duration, Instant};

use sennit_load::median;
use serde::{Deserialize, Serialize};

/// Intervals over which the draft looks for stability (MAD), of a second each (ID).
const INTERVALS: usize = 4;
/// So long they take together, and what is known in the last of them counts.
const COUNTED: Duration = Duration::from_secs(INTERVALS as u64);
/// Standard deviation over the mean, up to which figures are stable (SDT).
const STABLE: f64 = 0.05;
/// The share of times that the trimmed mean leaves out (TMP).
const TRIMMED: f64 = 0.05;

/// How sure the figure is, by the draft's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The load did not count for four intervals.
    #[default]
    Low,
    /// It did, and goodput or responsiveness was not stable at the end.
    Medium,
    /// Both were stable.
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
    /// New connections that count.
    pub foreign_probes: u64,
    /// Requests that count.
    pub loaded_probes: u64,
}

/// Times, each with the moment at which it was known.
type Timed<'a> = &'a [(Instant, Duration)];

impl Responsiveness {
    /// By handshakes, the questions after them, and requests, of a load that ended then; `rates`
    /// are bits a second, one for each second. Without one of each there is none.
    #[must_use]
    pub fn new(times: [Timed<'_>; 3], rates: &[f64], ended: Instant) -> Option<Self> {
        let counts = |(at, _): &&(Instant, _)| *at + COUNTED >= ended;
        let last = times.map(|times| times.iter().filter(counts).copied().collect::<Vec<_>>());
        let [.., requests] = times;
        let by = |mean: fn(&[f64]) -> Option<f64>| {
            let [handshake, question, request] = last.each_ref().map(|times| mean(&sorted(times)));
            let foreign = 60.0 / ((handshake? + question?) / 2.0);
            Some([foreign, 60.0 / request?])
        };
        let [foreign, loaded] = by(trimmed_mean)?;
        let [worst_foreign, worst_loaded] = by(mean_of_longest)?;
        let is_stable = is_stable(rates) && is_stable(&by_second(requests));
        Some(Self {
            rpm: f64::midpoint(foreign, loaded),
            foreign_rpm: foreign,
            loaded_rpm: loaded,
            worst_rpm: f64::midpoint(worst_foreign, worst_loaded),
            confidence: if rates.len() < INTERVALS {
                Confidence::Low
            } else if is_stable {
                Confidence::High
            } else {
                Confidence::Medium
            },
            foreign_probes: last[1].len() as u64,
            loaded_probes: last[2].len() as u64,
        })
    }
}

/// Times of what is complete, and of what is still waited for if it has waited for longer than half
/// of the others took: of what has just begun nobody knows how long it takes.
pub(super) fn with_waiting(
    mut complete: Vec<(Instant, Duration)>,
    waiting: Timed<'_>,
) -> Vec<(Instant, Duration)> {
    let usual = median(&sorted(&complete)).unwrap_or(0.0);
    let long = waiting
        .iter()
        .filter(|(_, time)| time.as_secs_f64() > usual);
    complete.extend(long);
    complete
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
        // Of the last forty two took a second.
        let times = timed((0..100).map(|n| if n % 20 == 7 { 1000 } else { 20 }));
        let steady = [1e6; 10];

        let ended = times[0].0 + Duration::from_secs(10);
        let new = |times| Responsiveness::new(times, &steady, ended);
        let found = new([&times; 3]).expect("there are some");

        let close =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 1e-6, "{value}");
        close(found.rpm, 3000.0);
        close(found.foreign_rpm, 3000.0);
        close(found.loaded_rpm, 3000.0);
        close(found.worst_rpm, 60.0);
        assert_eq!(new([&times, &[], &times]), None);
    }

    /// Buffers fill for six seconds, and are full for the last four.
    #[test]
    fn what_is_known_in_the_last_four_intervals_counts() {
        let times = timed((0..100).map(|n| if n < 60 { 20 } else { 200 }));
        let ended = times[0].0 + Duration::from_secs(10);

        let found = Responsiveness::new([&times; 3], &[1e6; 10], ended).expect("there are some");

        assert!((found.rpm - 300.0).abs() < 1e-6, "{found:?}");
        assert_eq!((found.foreign_probes, found.loaded_probes), (40, 40));
    }

    #[test]
    fn confidence_is_that_of_the_draft() {
        let (steady, rising) = ([1e6; 10], [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6]);
        let (calm, worse) = (timed([20; 100]), timed((0..100).map(|n| 20 + 10 * n)));
        let confidence = |requests: &[(Instant, Duration)], rates: &[f64]| {
            let ended = calm[0].0 + Duration::from_secs(10);
            let found = Responsiveness::new([&calm, &calm, requests], rates, ended);
            found.expect("there are some").confidence
        };
        assert_eq!(confidence(&calm, &steady), Confidence::High);
        assert_eq!(confidence(&worse, &steady), Confidence::Medium);
        assert_eq!(confidence(&calm, &rising), Confidence::Medium);
        assert_eq!(confidence(&worse, &rising), Confidence::Medium);
        assert_eq!(confidence(&calm, &steady[..3]), Confidence::Low);
    }
}
