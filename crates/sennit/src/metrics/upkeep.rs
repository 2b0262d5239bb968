//! Metrics of what an operator looks after: caps, reserves, addresses, strangers, the config.

use super::{Kind, Metric, Samples, Sources, read::flag};
use crate::status::{ConfigStatus, LinkAccount, Role, WorkerStatus};

fn accounts(from: &Sources<'_>, to: &mut Samples, value: fn(&LinkAccount) -> Option<u64>) {
    for link in &from.status.links {
        let value = link.account.as_ref().and_then(value);
        to.add_known(&[&link.name], value.map(|bytes| bytes as f64));
    }
}

fn config(from: &Sources<'_>, to: &mut Samples, value: fn(&ConfigStatus) -> f64) {
    to.add_known(&[], from.status.config.as_ref().map(value));
}

/// Reads one of a worker's counters.
type Count = fn(&WorkerStatus) -> u64;

/// What became of handshakes with a hub, in the words of the label, with its count.
const RESULTS: [(&str, Count); 3] = [
    ("completed", |it| it.completed_handshakes),
    ("failed", |it| it.failed_handshakes),
    ("refused", |it| it.refused_strangers),
];

/// Those that tell of a lack before it is one.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "sennit_config_last_reload_successful",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether the daemon runs with the config that it read last; 0 after a reload that was refused or taken back.",
        labels: &[],
        read: |from, to| config(from, to, |it| flag(it.last_reload_successful)),
    },
    Metric {
        name: "sennit_config_age_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "How long ago a config was taken last, at the start or by a reload.",
        labels: &[],
        read: |from, to| config(from, to, |it| it.since_seconds),
    },
    Metric {
        name: "sennit_link_standby",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether a link is in reserve, by its tier, cost or cap.",
        labels: &["link"],
        read: |from, to| {
            for link in &from.status.links {
                to.add(&[&link.name], flag(link.standby));
            }
        },
    },
    Metric {
        name: "sennit_link_usage_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "What a link with a cap or a cost has carried in its billing cycle, both ways.",
        labels: &["link"],
        read: |from, to| accounts(from, to, |it| Some(it.used_bytes)),
    },
    Metric {
        name: "sennit_link_cap_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "What a link may carry in a billing cycle.",
        labels: &["link"],
        read: |from, to| accounts(from, to, |it| it.cap_bytes),
    },
    Metric {
        name: "sennit_link_forecast_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "What the billing cycle of such a link comes to if it goes on like this; absent on its first day.",
        labels: &["link"],
        read: |from, to| accounts(from, to, |it| it.forecast_bytes),
    },
    Metric {
        name: "sennit_leases_used",
        kind: Kind::Gauge,
        unit: None,
        help: "At a hub: addresses of a pool that sites have, also those that are away.",
        labels: &["pool"],
        read: |from, to| {
            for pool in &from.status.pools {
                to.add(&[&pool.prefix], pool.leased as f64);
            }
        },
    },
    Metric {
        name: "sennit_leases_size",
        kind: Kind::Gauge,
        unit: None,
        help: "At a hub: addresses that a pool has for sites; absent if they are more than anybody counts.",
        labels: &["pool"],
        read: |from, to| {
            for pool in &from.status.pools {
                let size = pool.free.map(|free| pool.leased as f64 + free as f64);
                to.add_known(&[&pool.prefix], size);
            }
        },
    },
    Metric {
        name: "sennit_worker_woken",
        kind: Kind::Counter,
        unit: None,
        help: "How often a timer of the tunnels woke a worker, by what the timer is for.",
        labels: &["worker", "timer"],
        read: |from, to| {
            for (number, worker) in from.status.workers.iter().enumerate() {
                for (timer, count) in &worker.woken {
                    to.add(&[&number.to_string(), timer], *count as f64);
                }
            }
        },
    },
    Metric {
        name: "sennit_handshakes",
        kind: Kind::Counter,
        unit: None,
        help: "At a hub: TLS handshakes that were completed, that failed, and that were refused as too many places were taken.",
        labels: &["result"],
        read: |from, to| {
            if from.status.role == Role::Hub {
                for (result, count) in RESULTS {
                    let counts = from.status.workers.iter().map(count);
                    to.add(&[result], counts.sum::<u64>() as f64);
                }
            }
        },
    },
];
