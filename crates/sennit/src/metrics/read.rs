//! How metrics are read: for each tunnel, path or worker.

use std::collections::BTreeMap;

use super::{Samples, Sources};
use crate::status::{PathState, PathStatus, Role, TunnelStatus, WorkerStatus};

pub(super) fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Edge => "edge",
        Role::Hub => "hub",
    }
}

pub(super) fn tunnels(from: &Sources<'_>, to: &mut Samples, value: fn(&TunnelStatus) -> f64) {
    for tunnel in &from.status.tunnels {
        to.add(&[tunnel.site.as_str(), &tunnel.class], value(tunnel));
    }
}

pub(super) fn workers(from: &Sources<'_>, to: &mut Samples, value: fn(&WorkerStatus) -> u64) {
    for (number, it) in from.status.workers.iter().enumerate() {
        to.add(&[&number.to_string()], value(it) as f64);
    }
}

/// The paths of a tunnel on one link: there are several if the hub has several addresses.
pub(super) struct OnLink<'a> {
    /// The one that is up, if there is one.
    pub(super) first: &'a PathStatus,
    pub(super) sent_packets: u64,
    pub(super) lost_packets: u64,
}

pub(super) fn paths(from: &Sources<'_>, to: &mut Samples, value: fn(&OnLink<'_>) -> Option<f64>) {
    for tunnel in &from.status.tunnels {
        let mut by_link: BTreeMap<&str, OnLink<'_>> = BTreeMap::new();
        for path in &tunnel.paths {
            let link = path.link.as_deref().unwrap_or("unnamed");
            let all = by_link.entry(link).or_insert(OnLink {
                first: path,
                sent_packets: 0,
                lost_packets: 0,
            });
            all.sent_packets += path.sent_packets;
            all.lost_packets += path.lost_packets;
            if all.first.state != PathState::Up && path.state == PathState::Up {
                all.first = path;
            }
        }
        for (link, all) in by_link {
            let labels = [tunnel.site.as_str(), &tunnel.class, link];
            to.add_known(&labels, value(&all));
        }
    }
}
