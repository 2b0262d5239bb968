//! All that is known of a daemon at one moment, as the picture shows it.

use std::time::{Duration, Instant};

use super::entries::{self, Entry};
use super::rates::{self, Now, Row, Seen};
use super::trace::{Sample, Trace};
use crate::history::History;
use crate::journal::Record;
use crate::status::Role;

/// Events that are kept; `sennit events` has the others.
pub(super) const EVENTS: usize = 200;
/// The series of all that passes.
pub(super) const TOTAL: &str = "total";

#[derive(Clone)]
pub(super) struct Picture {
    pub(super) seen: Seen,
    pub(super) now: Now,
    pub(super) entries: Vec<Entry>,
    pub(super) trace: Trace,
    /// The newest first.
    pub(super) events: Vec<Record>,
    /// Packets that queues drop in a second.
    pub(super) drops: f64,
    /// Why the daemon does not answer, if it does not; the rest is what it said last.
    pub(super) trouble: Option<String>,
}

impl Picture {
    pub(super) fn new(seen: Seen, interval: Duration) -> Self {
        let now = Now::between(&seen, &seen);
        let trace = Trace::new(interval, seen.at);
        Self {
            entries: entries::entries(&now, &seen, &trace),
            seen,
            now,
            trace,
            events: Vec::new(),
            drops: 0.0,
            trouble: None,
        }
    }

    /// When this was so.
    pub(super) fn at(&self) -> Instant {
        self.seen.at
    }

    /// Takes the next look, or why there is none.
    pub(super) fn handle_look(&mut self, look: Result<Seen, String>) {
        let seen = match look {
            Ok(seen) => seen,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        let now = Now::between(&self.seen, &seen);
        // What passed while the daemon was away belongs to no moment.
        if self.trouble.take().is_none() {
            self.trace.add(samples(&now, &self.seen, &seen), seen.at);
        }
        let grown = seen
            .dropped_packets()
            .saturating_sub(self.seen.dropped_packets());
        let span = seen.at.duration_since(self.seen.at).as_secs_f64();
        self.drops = if span > 0.0 { grown as f64 / span } else { 0.0 };
        self.entries = entries::entries(&now, &seen, &self.trace);
        (self.now, self.seen) = (now, seen);
    }

    /// Takes events, the oldest of them first.
    pub(super) fn handle_events(&mut self, records: Vec<Record>) {
        self.events.splice(..0, records.into_iter().rev());
        self.events.truncate(EVENTS);
    }

    /// Takes what the daemon has kept until now; `clock` is in seconds since 1970.
    pub(super) fn handle_history(&mut self, history: &History, clock: f64, now: Instant) {
        self.trace.prepend(history, clock, now);
        self.entries = entries::entries(&self.now, &self.seen, &self.trace);
    }
}

fn samples(now: &Now, before: &Seen, seen: &Seen) -> Vec<(String, Sample)> {
    let sum = |of: fn(&Row) -> f64| now.tunnels.iter().map(of).sum();
    let total = Sample {
        sent: sum(|row| row.sent_bytes_per_second),
        received: sum(|row| row.received_bytes_per_second),
        ..Sample::default()
    };
    let links = now.links.iter().map(|row| {
        let loss = rates::loss_between(before, seen, &row.name);
        let sample = Sample {
            loss,
            ..sample(row)
        };
        (format!("link/{}", row.name), sample)
    });
    let kind = match now.role {
        Role::Edge => "class",
        Role::Hub => "site",
    };
    let tunnels = now.tunnels.iter();
    let tunnels = tunnels.map(|row| (format!("{kind}/{}", row.name), sample(row)));
    let total = std::iter::once((TOTAL.to_owned(), total));
    total.chain(links).chain(tunnels).collect()
}

fn sample(row: &Row) -> Sample {
    Sample {
        sent: row.sent_bytes_per_second,
        received: row.received_bytes_per_second,
        rtt: row.rtt_seconds,
        loss: row.loss_ratio,
    }
}
