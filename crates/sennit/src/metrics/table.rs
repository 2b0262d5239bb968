//! Every metric.

use super::{
    Kind, Metric,
    read::{flag, paths, role, tunnels, workers},
};
use crate::status::{LinkState, PathState, Role, State};

/// Those of the daemon, its links, tunnels and paths.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "sennit_build_info",
        kind: Kind::Gauge,
        unit: None,
        help: "Always 1; the version of the program and what it is.",
        labels: &["version", "role"],
        read: |from, to| to.add(&[&from.status.version, role(from.status.role)], 1.0),
    },
    Metric {
        name: "sennit_up",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether traffic can flow.",
        labels: &[],
        read: |from, to| {
            to.add(
                &[],
                flag(matches!(from.status.state, State::Up | State::Degraded)),
            );
        },
    },
    Metric {
        name: "sennit_degraded",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether traffic flows although not all that is configured works.",
        labels: &[],
        read: |from, to| to.add(&[], flag(from.status.state == State::Degraded)),
    },
    Metric {
        name: "sennit_uptime_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "How long the daemon has run.",
        labels: &[],
        read: |from, to| to.add(&[], from.status.uptime_seconds),
    },
    Metric {
        name: "sennit_certificate_left_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "How long the hub still takes the certificate of an edge; it is renewed when a third of a year is left.",
        labels: &[],
        read: |from, to| {
            let certificate = from.status.certificate.as_ref();
            to.add_known(&[], certificate.map(|it| it.left_seconds));
        },
    },
    Metric {
        name: "sennit_events",
        kind: Kind::Counter,
        unit: None,
        help: "Events of the journal by their kind.",
        labels: &["event"],
        read: |from, to| {
            for (event, count) in from.events.counts() {
                to.add(&[event], count as f64);
            }
        },
    },
    Metric {
        name: "sennit_failover_gap_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "How long nothing had come over a link when its traffic moved to others, at the last failover; 0 if nothing flowed.",
        labels: &[],
        read: |from, to| to.add_known(&[], from.events.last_gap()),
    },
    Metric {
        name: "sennit_link_up",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether a link of an edge works.",
        labels: &["link"],
        read: |from, to| {
            for link in &from.status.links {
                to.add(&[&link.name], flag(link.state == LinkState::Up));
            }
        },
    },
    Metric {
        name: "sennit_link_transmit_bytes",
        kind: Kind::Counter,
        unit: Some("bytes"),
        help: "UDP payload that left on a link.",
        labels: &["link"],
        read: |from, to| {
            for link in &from.status.links {
                to.add(&[&link.name], link.traffic.sent_bytes as f64);
            }
        },
    },
    Metric {
        name: "sennit_link_receive_bytes",
        kind: Kind::Counter,
        unit: Some("bytes"),
        help: "UDP payload that arrived on a link.",
        labels: &["link"],
        read: |from, to| {
            for link in &from.status.links {
                to.add(&[&link.name], link.traffic.received_bytes as f64);
            }
        },
    },
    Metric {
        name: "sennit_link_delivered_bytes_per_second",
        kind: Kind::Gauge,
        unit: None,
        help: "What arrives over a link at the hub.",
        labels: &["link"],
        read: |from, to| {
            for link in &from.status.links {
                to.add(&[&link.name], link.traffic.delivered_bytes_per_second);
            }
        },
    },
    Metric {
        name: "sennit_link_rtt_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "Least smoothed round trip of the paths on a link.",
        labels: &["link"],
        read: |from, to| {
            for link in &from.status.links {
                to.add_known(&[&link.name], link.traffic.rtt_seconds);
            }
        },
    },
    Metric {
        name: "sennit_link_loss_ratio",
        kind: Kind::Gauge,
        unit: Some("ratio"),
        help: "Packets lost on the paths of a link within the last half minute to minute, of all whose fate is known.",
        labels: &["link"],
        read: |from, to| {
            for link in &from.status.links {
                to.add_known(&[&link.name], link.traffic.loss_ratio);
            }
        },
    },
    Metric {
        name: "sennit_sites",
        kind: Kind::Gauge,
        unit: None,
        help: "Sites that have a tunnel to this hub.",
        labels: &[],
        read: |from, to| {
            if from.status.role == Role::Hub {
                let here = from.status.sites.iter().filter(|it| !it.is_away());
                to.add(&[], here.count() as f64);
            }
        },
    },
    Metric {
        name: "sennit_site_up",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether all tunnels of a site that has joined are up; 0 also while it is away, if it is one of the 1000 that left last.",
        labels: &["site"],
        read: |from, to| {
            for site in &from.status.sites {
                to.add(&[site.name.as_str()], flag(site.state == State::Up));
            }
        },
    },
    Metric {
        name: "sennit_site_link_up",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether a path on a link of a site is up.",
        labels: &["site", "link"],
        read: |from, to| {
            for site in &from.status.sites {
                for link in &site.links {
                    to.add(
                        &[site.name.as_str(), &link.name],
                        flag(link.state == LinkState::Up),
                    );
                }
            }
        },
    },
    Metric {
        name: "sennit_site_link_transmit_bytes",
        kind: Kind::Counter,
        unit: Some("bytes"),
        help: "UDP payload sent to a site over a link.",
        labels: &["site", "link"],
        read: |from, to| {
            for site in &from.status.sites {
                for link in &site.links {
                    to.add(
                        &[site.name.as_str(), &link.name],
                        link.traffic.sent_bytes as f64,
                    );
                }
            }
        },
    },
    Metric {
        name: "sennit_site_link_receive_bytes",
        kind: Kind::Counter,
        unit: Some("bytes"),
        help: "UDP payload that a site sent over a link.",
        labels: &["site", "link"],
        read: |from, to| {
            for site in &from.status.sites {
                for link in &site.links {
                    to.add(
                        &[site.name.as_str(), &link.name],
                        link.traffic.received_bytes as f64,
                    );
                }
            }
        },
    },
    Metric {
        name: "sennit_tunnel_up",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether a class has a tunnel.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| flag(it.state == State::Up)),
    },
    Metric {
        name: "sennit_tunnel_transmit_bytes",
        kind: Kind::Counter,
        unit: Some("bytes"),
        help: "Inner packets sent, each copy counted.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.sent_bytes as f64),
    },
    Metric {
        name: "sennit_tunnel_receive_bytes",
        kind: Kind::Counter,
        unit: Some("bytes"),
        help: "Inner packets received.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.received_bytes as f64),
    },
    Metric {
        name: "sennit_tunnel_queue_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "What waits for a path.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.queue.waiting_bytes as f64),
    },
    Metric {
        name: "sennit_tunnel_queue_delay_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "How long the packets stood in it that left of late.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.queue.delay_seconds),
    },
    Metric {
        name: "sennit_tunnel_queue_dropped_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets that CoDel dropped, or that had waited for too long.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.queue.dropped_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_queue_marked_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets that CoDel marked instead of dropping them.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.queue.marked_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_queue_overflowed_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets dropped because the queue was full.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.queue.overflowed_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_reorder_held_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets that had to wait for an earlier one.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.order.held_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_reorder_missed_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets that were no longer waited for.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.order.missed_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_reorder_late_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets that came after they were given up.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.order.late_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_duplicate_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Second copies, dropped.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.order.duplicate_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_repaired_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Lost packets that were sent again.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.repair.repeated_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_abandoned_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Lost packets that were too old to be sent again.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.repair.abandoned_packets as f64),
    },
    Metric {
        name: "sennit_tunnel_flows",
        kind: Kind::Gauge,
        unit: None,
        help: "Flows of the last minute in the direction in which this side sends.",
        labels: &["site", "class"],
        read: |from, to| tunnels(from, to, |it| it.flow_count as f64),
    },
    Metric {
        name: "sennit_path_up",
        kind: Kind::Gauge,
        unit: None,
        help: "Whether a path is used as the policy says.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| Some(flag(it.first.state == PathState::Up))),
    },
    Metric {
        name: "sennit_path_rtt_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "Smoothed round trip of a path.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| it.first.rtt_seconds),
    },
    Metric {
        name: "sennit_path_rtt_min_seconds",
        kind: Kind::Gauge,
        unit: Some("seconds"),
        help: "Least round trip of a path.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| it.first.rtt_min_seconds),
    },
    Metric {
        name: "sennit_path_sent_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "QUIC packets sent on a path.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| Some(it.sent_packets as f64)),
    },
    Metric {
        name: "sennit_path_lost_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "QUIC packets lost on a path.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| Some(it.lost_packets as f64)),
    },
    Metric {
        name: "sennit_path_rate_bytes_per_second",
        kind: Kind::Gauge,
        unit: None,
        help: "What a path can carry, as congestion control sees it.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| it.first.rate_bytes_per_second),
    },
    Metric {
        name: "sennit_path_cwnd_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "Congestion window of a path.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| Some(it.first.cwnd_bytes as f64)),
    },
    Metric {
        name: "sennit_path_in_flight_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "What is sent on a path and not acknowledged yet.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| Some(it.first.in_flight_bytes as f64)),
    },
    Metric {
        name: "sennit_path_mtu_bytes",
        kind: Kind::Gauge,
        unit: Some("bytes"),
        help: "Largest UDP payload that is known to arrive on a path.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| Some(it.first.mtu_bytes as f64)),
    },
    Metric {
        name: "sennit_path_share_ratio",
        kind: Kind::Gauge,
        unit: Some("ratio"),
        help: "Part of what the tunnel sent lately that went over a path.",
        labels: &["site", "class", "link"],
        read: |from, to| paths(from, to, |it| it.first.share_ratio),
    },
    Metric {
        name: "sennit_worker_handed_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets that came to a worker and were given to the one that they belong to.",
        labels: &["worker"],
        read: |from, to| workers(from, to, |it| it.handed_packets),
    },
    Metric {
        name: "sennit_worker_turned_away_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets of strangers that a worker dropped by their first bytes, as too many came.",
        labels: &["worker"],
        read: |from, to| workers(from, to, |it| it.turned_away_packets),
    },
    Metric {
        name: "sennit_worker_strangers",
        kind: Kind::Gauge,
        unit: None,
        help: "Connections of a worker that are in handshake or granted nothing.",
        labels: &["worker"],
        read: |from, to| workers(from, to, |it| it.strangers),
    },
    Metric {
        name: "sennit_worker_retried_strangers",
        kind: Kind::Counter,
        unit: None,
        help: "Strangers that a worker asked to show that their address is their own.",
        labels: &["worker"],
        read: |from, to| workers(from, to, |it| it.retried_strangers),
    },
    Metric {
        name: "sennit_worker_refused_strangers",
        kind: Kind::Counter,
        unit: None,
        help: "Strangers that a worker refused, as too many places were taken.",
        labels: &["worker"],
        read: |from, to| workers(from, to, |it| it.refused_strangers),
    },
    Metric {
        name: "sennit_worker_overflowed_packets",
        kind: Kind::Counter,
        unit: Some("packets"),
        help: "Packets dropped because that worker had too many of them waiting.",
        labels: &["worker"],
        read: |from, to| workers(from, to, |it| it.overflowed_packets),
    },
];
