//! What a receiver has seen, bin by bin.

use std::time::{Duration, Instant};

use crate::Bins;

/// Bytes by time of arrival.
#[derive(Debug, Clone)]
pub struct Received {
    start: Instant,
    bin: Duration,
    bytes: Vec<u64>,
}

/// Bulk data, as its receiver saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bulk {
    /// Payload bytes received.
    pub bytes: u64,
    /// Time from the start of the test to its end.
    pub seconds: f64,
    /// Payload bytes per second over all of that time.
    pub goodput: f64,
    /// Payload bytes per second.
    pub bins: Bins,
}

impl Received {
    /// Nothing yet, in bins of this width.
    #[must_use]
    pub fn new(start: Instant, bin: Duration) -> Self {
        Self {
            start,
            bin,
            bytes: Vec::new(),
        }
    }

    /// When the first bin begins.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Takes what arrived into account.
    pub fn note(&mut self, now: Instant, bytes: usize) {
        let elapsed = now.saturating_duration_since(self.start);
        let index = (elapsed.as_micros() / self.bin.as_micros()) as usize;
        if self.bytes.len() <= index {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes as u64;
    }

    /// Adds what another receiver has seen since the same start.
    pub fn add(&mut self, other: &Self) {
        let longer = self.bytes.len().max(other.bytes.len());
        self.bytes.resize(longer, 0);
        for (sum, bytes) in self.bytes.iter_mut().zip(&other.bytes) {
            *sum += bytes;
        }
    }

    /// Bytes that arrived in the first `span`: a bin that ends later counts by its share of it.
    #[must_use]
    pub fn before(&self, span: Duration) -> u64 {
        let bins = span.as_secs_f64() / self.bin.as_secs_f64();
        let whole = bins as usize;
        let sum: u64 = self.bytes.iter().take(whole).sum();
        let last = self.bytes.get(whole).copied().unwrap_or(0);
        sum + (last as f64 * bins.fract()) as u64
    }

    /// What arrived within the time of the test, as iperf3 counts it.
    #[must_use]
    pub fn within(&self, span: Duration) -> Bulk {
        let bins = (span.as_micros() / self.bin.as_micros()) as usize;
        let mut counts = self.bytes.clone();
        counts.resize(bins, 0);
        let bytes = counts.iter().sum();
        let rate = |bytes: u64| bytes as f64 / self.bin.as_secs_f64();
        Bulk {
            bytes,
            seconds: span.as_secs_f64(),
            goodput: bytes as f64 / span.as_secs_f64(),
            bins: Bins::new(self.bin, counts.into_iter().map(rate).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BIN, FINE_BIN};

    fn received(bin: Duration, arrivals: &[(u64, usize)]) -> Received {
        let start = Instant::now();
        let mut received = Received::new(start, bin);
        for (millis, bytes) in arrivals {
            received.note(start + Duration::from_millis(*millis), *bytes);
        }
        received
    }

    #[test]
    fn only_what_arrives_in_time_counts() {
        let received = received(BIN, &[(50, 100), (150, 300), (250, 999)]);

        let figures = received.within(Duration::from_millis(200));

        assert_eq!((figures.bytes, figures.goodput), (400, 2000.0));
        assert_eq!(figures.bins, Bins::new(BIN, vec![1000.0, 3000.0]));
    }

    #[test]
    fn several_receivers_add_up_bin_by_bin() {
        let mut total = received(FINE_BIN, &[(5, 1)]);

        total.add(&received(FINE_BIN, &[(5, 2), (29, 3)]));

        let figures = total.within(Duration::from_millis(30));
        assert_eq!(figures.bins, Bins::new(FINE_BIN, vec![300.0, 0.0, 300.0]));
    }
}
