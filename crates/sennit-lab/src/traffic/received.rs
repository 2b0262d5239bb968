//! What a receiver of our own has seen, bin by bin.

use std::time::{Duration, Instant};

use super::{BulkFigures, Context};
use crate::measure::Bins;

/// Bytes by time of arrival.
#[derive(Debug, Clone)]
pub(super) struct Received {
    start: Instant,
    bin: Duration,
    bytes: Vec<u64>,
}

impl Received {
    pub(super) fn new(start: Instant, bin: Duration) -> Self {
        Self {
            start,
            bin,
            bytes: Vec::new(),
        }
    }

    /// When the first bin begins.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    pub(super) fn note(&mut self, now: Instant, bytes: usize) {
        let elapsed = now.saturating_duration_since(self.start);
        let index = (elapsed.as_micros() / self.bin.as_micros()) as usize;
        if self.bytes.len() <= index {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes as u64;
    }

    /// Adds what another receiver has seen since the same start.
    pub(super) fn add(&mut self, other: &Self) {
        let longer = self.bytes.len().max(other.bytes.len());
        self.bytes.resize(longer, 0);
        for (sum, bytes) in self.bytes.iter_mut().zip(&other.bytes) {
            *sum += bytes;
        }
    }

    pub(super) fn figures(&self, context: &Context<'_>) -> BulkFigures {
        BulkFigures {
            start_seconds: (self.start - context.start).as_secs_f64(),
            ..self.within(context.span())
        }
    }

    /// What arrived within the time of the test, as iperf3 counts it.
    fn within(&self, span: Duration) -> BulkFigures {
        let bins = (span.as_micros() / self.bin.as_micros()) as usize;
        let mut counts = self.bytes.clone();
        counts.resize(bins, 0);
        let bytes = counts.iter().sum();
        let rate = |bytes: u64| bytes as f64 / self.bin.as_secs_f64();
        BulkFigures {
            bytes,
            seconds: span.as_secs_f64(),
            goodput: bytes as f64 / span.as_secs_f64(),
            retransmits: None,
            start_seconds: 0.0,
            bins: Bins::new(self.bin, counts.into_iter().map(rate).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{BIN, FINE_BIN};

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
