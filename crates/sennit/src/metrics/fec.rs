//! Metrics of error correction, by class.

use super::{Kind, Metric, read::tunnels};

const LABELS: &[&str] = &["site", "class"];

/// Those of what is sent in addition and what comes back by it. They begin anew with a connection.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "sennit_fec_sent_source_symbols",
        kind: Kind::Counter,
        unit: Some("symbols"),
        help: "Packets that were sent protected by error correction.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.sources_sent as f64),
    },
    Metric {
        name: "sennit_fec_sent_repair_symbols",
        kind: Kind::Counter,
        unit: Some("symbols"),
        help: "Repairs that were sent for them.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.repairs_sent as f64),
    },
    Metric {
        name: "sennit_fec_received_source_symbols",
        kind: Kind::Counter,
        unit: Some("symbols"),
        help: "Protected packets that arrived.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.sources_received as f64),
    },
    Metric {
        name: "sennit_fec_received_repair_symbols",
        kind: Kind::Counter,
        unit: Some("symbols"),
        help: "Repairs that arrived.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.repairs_received as f64),
    },
    Metric {
        name: "sennit_fec_recovered_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Lost packets that came back by repairs.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.recovered_packets as f64),
    },
    Metric {
        name: "sennit_fec_too_late_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Those of them that had been given up by then.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.too_late_packets as f64),
    },
    Metric {
        name: "sennit_fec_lost_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Protected packets that neither arrived nor came back.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.lost_packets as f64),
    },
    Metric {
        name: "sennit_fec_failed_repair_symbols",
        kind: Kind::Counter,
        unit: Some("symbols"),
        help: "Repairs that could not be solved.",
        labels: LABELS,
        read: |from, to| tunnels(from, to, |it| it.fec.failed_repairs as f64),
    },
];
