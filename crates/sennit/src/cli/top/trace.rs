//! What passed of late, for the plots: what was seen since somebody watches, and before it what the
//! daemon has kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::history::{History, Series};

/// What plots show, in seconds, with a look a second; with longer intervals it is as many looks.
const SPAN: f64 = 120.0;
/// A sample stands for the time until the next one, for so many intervals at most.
const HOLD: f64 = 2.5;
/// Of the round trips, so many percent are at most the high one.
const HIGH: usize = 95;

/// One link, class or site at one moment; rates are bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) sent: f64,
    pub(super) received: f64,
    pub(super) rtt: Option<f64>,
    pub(super) loss: Option<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Trace {
    /// Moments are seconds from here.
    origin: Instant,
    span: f64,
    hold: f64,
    /// By their names in the history, or `site/NAME`; the oldest sample first.
    series: BTreeMap<String, VecDeque<(f64, Sample)>>,
}

impl Trace {
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        let interval = interval.as_secs_f64().max(1.0);
        Self {
            origin: now,
            span: SPAN * interval,
            hold: HOLD * interval,
            series: BTreeMap::new(),
        }
    }

    /// The time that plots show, in seconds.
    pub(super) fn span_seconds(&self) -> f64 {
        self.span
    }

    /// Adds what was seen at one moment, and forgets what no plot shows any more.
    pub(super) fn add(&mut self, samples: Vec<(String, Sample)>, now: Instant) {
        let now = self.moment(now);
        for (name, sample) in samples {
            self.series
                .entry(name)
                .or_default()
                .push_back((now, sample));
        }
        let oldest = now - self.span - self.hold;
        self.series.retain(|_, samples| {
            while samples.front().is_some_and(|(at, _)| *at < oldest) {
                samples.pop_front();
            }
            !samples.is_empty()
        });
    }

    /// Puts what the daemon has kept before what was seen here. `clock` is this host's, in seconds
    /// since 1970.
    pub(super) fn prepend(&mut self, history: &History, clock: f64, now: Instant) {
        let now = self.moment(now);
        for series in &history.series {
            let known = self.series.entry(series.name.clone()).or_default();
            let first = known.front().map_or(now, |(at, _)| *at);
            for (index, time) in series.time.iter().enumerate().rev() {
                let at = now + (*time as f64 - clock);
                if at < first {
                    known.push_front((at, sample(series, index)));
                }
            }
        }
        self.series.retain(|_, samples| !samples.is_empty());
    }

    /// Means of the time that plots show, in so many columns, the oldest first; nothing where
    /// nothing is known.
    pub(super) fn columns(
        &self,
        name: &str,
        count: u16,
        now: Instant,
        value: fn(&Sample) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let mut columns = vec![Column::default(); usize::from(count)];
        let length = self.span / f64::from(count.max(1));
        // They begin at multiples of their length, so that they move and do not change.
        let first = (self.moment(now) / length).floor() + 1.0 - f64::from(count);
        for (at, sample) in self.series.get(name).into_iter().flatten() {
            let index = (at / length).floor() - first;
            if index >= 0.0
                && let Some(column) = columns.get_mut(index as usize)
            {
                column.add(value(sample));
            }
        }
        fill(&columns, (self.hold / length).ceil() as usize)
    }

    /// The round trip that few of the samples exceed.
    pub(super) fn high_rtt(&self, name: &str) -> Option<f64> {
        let samples = self.series.get(name).into_iter().flatten();
        let mut rtts: Vec<f64> = samples.filter_map(|(_, sample)| sample.rtt).collect();
        rtts.sort_by(f64::total_cmp);
        let index = (rtts.len() * HIGH).div_ceil(100).saturating_sub(1);
        rtts.get(index).copied()
    }

    fn moment(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.origin).as_secs_f64()
    }
}

fn sample(series: &Series, index: usize) -> Sample {
    let number = |column: &[f64]| column.get(index).copied().unwrap_or_default();
    let known = |column: &[Option<f64>]| column.get(index).copied().flatten();
    Sample {
        sent: number(&series.sent_bytes_per_second),
        received: number(&series.received_bytes_per_second),
        rtt: known(&series.rtt_seconds),
        loss: known(&series.loss_ratio),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Column {
    sum: f64,
    known: u32,
    samples: u32,
}

impl Column {
    fn add(&mut self, value: Option<f64>) {
        self.samples += 1;
        self.known += u32::from(value.is_some());
        self.sum += value.unwrap_or_default();
    }

    fn mean(self) -> Option<f64> {
        (self.known > 0).then(|| self.sum / f64::from(self.known))
    }
}

/// The means; columns without a sample have the one before them, so many of them in a row.
fn fill(columns: &[Column], reach: usize) -> Vec<Option<f64>> {
    let (mut last, mut since) = (None, 0);
    let means = columns.iter().map(|column| {
        if column.samples > 0 {
            (last, since) = (column.mean(), 0);
        } else {
            since += 1;
        }
        last.filter(|_| since <= reach)
    });
    means.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sample: &Sample) -> Option<f64> {
        Some(sample.sent)
    }

    fn seen(sent: f64) -> Vec<(String, Sample)> {
        let rtt = Some(sent / 1e3);
        let sample = Sample {
            sent,
            rtt,
            ..Sample::default()
        };
        vec![("link/lte".into(), sample)]
    }

    #[test]
    fn what_the_daemon_has_kept_stands_before_what_was_seen_here() {
        let start = Instant::now();
        let mut trace = Trace::new(Duration::from_secs(1), start);
        trace.add(seen(7.0), start + Duration::from_secs(1));
        // The last of its seconds was seen here as well.
        let history = History {
            schema: "sennit.history/1".into(),
            step_seconds: 1,
            series: vec![Series {
                name: "link/lte".into(),
                time: (882..=1002).collect(),
                sent_bytes_per_second: vec![3.0; 121],
                ..Series::default()
            }],
        };

        let now = start + Duration::from_secs(2);
        trace.prepend(&history, 1002.0, now);

        let columns = trace.columns("link/lte", 120, now, sent);
        assert_eq!(columns[..118], [Some(3.0); 118]);
        assert_eq!(columns[118..], [Some(7.0); 2]);
    }

    #[test]
    fn a_time_of_which_nothing_is_known_is_a_gap() {
        let start = Instant::now();
        let mut trace = Trace::new(Duration::from_secs(1), start);
        for second in (0..60).chain(90..=120) {
            trace.add(seen(5.0), start + Duration::from_secs(second));
        }

        let columns = trace.columns("link/lte", 120, start + Duration::from_secs(120), sent);

        let gaps = columns.iter().filter(|column| column.is_none()).count();
        assert_eq!(
            gaps, 27,
            "thirty seconds less those that a sample stands for"
        );
        assert_eq!(trace.columns("link/dsl", 3, start, sent), [None; 3]);
    }

    #[test]
    fn what_no_plot_shows_is_forgotten() {
        let start = Instant::now();
        let mut trace = Trace::new(Duration::from_secs(1), start);
        for second in 0..1000_u32 {
            trace.add(
                seen(f64::from(second)),
                start + Duration::from_secs(second.into()),
            );
        }

        assert!(trace.series["link/lte"].len() < 125);
        let high = trace.high_rtt("link/lte").unwrap();
        assert!((0.99..0.995).contains(&high), "{high}");

        let later = start + Duration::from_secs(2000);
        trace.add(Vec::new(), later);
        assert!(trace.series.is_empty());
    }
}
