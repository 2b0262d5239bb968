//! What a daemon counts and measures, for Prometheus.
//!
//! Each metric is one entry of [`all`]: its name, kind and unit, what it means, and how it is
//! read from the status. [`text`] writes them all in the text format of Prometheus or in that of
//! OpenMetrics, and [`chapter`] as a page of the book.

mod fec;
mod read;
mod shares;
mod table;
mod upkeep;
mod write;

pub use self::write::{Format, chapter, text};
use crate::{journal::Tally, status::Status};

/// All of them, in the order in which they are written.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let more = [upkeep::METRICS, fec::METRICS, shares::METRICS];
    table::METRICS.iter().chain(more.into_iter().flatten())
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Without the suffix that its kind brings.
    pub name: &'static str,
    pub kind: Kind,
    /// In the plural, as the end of the name.
    pub unit: Option<&'static str>,
    /// What it means.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    read: fn(&Sources<'_>, &mut Samples),
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, and begins anew with the daemon.
    Counter,
    Gauge,
}

/// What metrics are read from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    pub status: &'a Status,
    /// How often each kind of event happened.
    pub events: &'a Tally,
}

/// The values of one metric.
#[derive(Debug, Default)]
struct Samples(Vec<(Vec<String>, f64)>);

impl Samples {
    fn add(&mut self, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| (*label).to_owned());
        self.0.push((labels.collect(), value));
    }

    /// What is not known is absent.
    fn add_known(&mut self, labels: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.add(labels, value);
        }
    }
}
