//! Metrics of how classes share links, in both directions, and of the queues at the hub.

use super::{Kind, Metric, Samples, Sources};
use crate::status::{FarQueueStatus, PathState, PathStatus, Role, SharedStatus};

const LABELS: &[&str] = &["site", "class", "link", "direction"];

/// What a class has of each link: in the direction that this side sends, and, at an edge, in the
/// other one.
fn shares(from: &Sources<'_>, to: &mut Samples, value: fn(&SharedStatus) -> Option<f64>) {
    let ours = match from.status.role {
        Role::Edge => "up",
        Role::Hub => "down",
    };
    for tunnel in &from.status.tunnels {
        let mut paths: Vec<&PathStatus> = tunnel.paths.iter().collect();
        // There are several on a link if the hub has several addresses: the one that is up counts.
        paths.sort_by_key(|path| (&path.link, path.state != PathState::Up));
        paths.dedup_by_key(|path| &path.link);
        for path in paths {
            let link = path.link.as_deref().unwrap_or("unnamed");
            for (direction, shared) in [(ours, &path.shared), ("down", &path.shared_down)] {
                let labels = [tunnel.site.as_str(), &tunnel.class, link, direction];
                to.add_known(&labels, shared.as_ref().and_then(value));
            }
        }
    }
}

fn queues(from: &Sources<'_>, to: &mut Samples, value: fn(&FarQueueStatus) -> f64) {
    for tunnel in &from.status.tunnels {
        let labels = [tunnel.site.as_str(), &tunnel.class];
        to.add_known(&labels, tunnel.queue_down.as_ref().map(value));
    }
}

/// Those of shared links.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "sennit_shared_link_bytes_per_second",
        kind: Kind::Gauge,
        unit: None,
        help: "What is given out of a link to all classes that share it.",
        labels: LABELS,
        read: |from, to| shares(from, to, |it| it.link_bytes_per_second),
    },
    Metric {
        name: "sennit_shared_link_queue_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "How long a packet stands in the link's own queue.",
        labels: LABELS,
        read: |from, to| shares(from, to, |it| it.link_queue_seconds),
    },
    Metric {
        name: "sennit_shared_given_bytes_per_second",
        kind: Kind::Gauge,
        unit: None,
        help: "What a class may have of a link: what others leave, and what is guaranteed.",
        labels: LABELS,
        read: |from, to| shares(from, to, |it| it.given_bytes_per_second),
    },
    Metric {
        name: "sennit_shared_sent_bytes_per_second",
        kind: Kind::Gauge,
        unit: None,
        help: "What a class sends on a link that it shares.",
        labels: LABELS,
        read: |from, to| shares(from, to, |it| Some(it.sent_bytes_per_second)),
    },
    Metric {
        name: "sennit_shared_held",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether a class had to wait for others of late.",
        labels: LABELS,
        read: |from, to| shares(from, to, |it| Some(f64::from(u8::from(it.held)))),
    },
    Metric {
        name: "sennit_tunnel_down_queue_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "At an edge: what waits for a path at the hub.",
        labels: &["site", "class"],
        read: |from, to| queues(from, to, |it| it.queue.waiting_bytes as f64),
    },
    Metric {
        name: "sennit_tunnel_down_queue_delay_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "At an edge: how long the packets stood at the hub that left of late.",
        labels: &["site", "class"],
        read: |from, to| queues(from, to, |it| it.queue.delay_seconds),
    },
    Metric {
        name: "sennit_tunnel_down_queue_dropped_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "At an edge: packets that CoDel dropped at the hub, or that had waited there for too long.",
        labels: &["site", "class"],
        read: |from, to| queues(from, to, |it| it.queue.dropped_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_down_queue_marked_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "At an edge: packets that CoDel marked at the hub instead of dropping them.",
        labels: &["site", "class"],
        read: |from, to| queues(from, to, |it| it.queue.marked_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_down_queue_overflowed_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "At an edge: packets dropped at the hub because the queue was full.",
        labels: &["site", "class"],
        read: |from, to| queues(from, to, |it| it.queue.overflowed_packets as f64),
    },
];
