//! From what the engine knows to the status document.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use sennit_engine::{
    SocketId,
    status::{self, FlowsWanted},
};

use super::why::{place, why};
use crate::{
    config::{Delivery, Policy},
    control::Request,
    site::SiteName,
    status::{
        FlowLinkStatus, FlowQueueStatus, FlowStatus, OrderStatus, PathState, PathStatus,
        QueueStatus, RepairStatus, State, StripingStatus, TunnelStatus,
    },
};

/// Flows of each tunnel that a status tells of, lest it be long.
const BUSIEST: usize = 16;
/// Of those that somebody asked for by name.
const NAMED: usize = 64;

/// Shares are of what was sent between two looks at least this far apart.
const WINDOW: Duration = Duration::from_secs(1);

/// Remembers counters between two looks.
#[derive(Debug, Default)]
pub(super) struct Recent {
    before: BTreeMap<(String, u32), u64>,
    now: BTreeMap<(String, u32), u64>,
    taken: Option<Instant>,
}

impl Recent {
    fn look(&mut self, tunnels: &[status::TunnelStatus], now: Instant) {
        if self
            .taken
            .is_some_and(|taken| now.saturating_duration_since(taken) < WINDOW)
        {
            return;
        }
        self.taken = Some(now);
        self.before = std::mem::take(&mut self.now);
        for tunnel in tunnels {
            let key = key(tunnel);
            self.now.extend(
                tunnel
                    .paths
                    .iter()
                    .map(|p| ((key.clone(), p.id), p.sent_bytes)),
            );
        }
    }

    fn sent(&self, tunnel: &str, path: &status::PathStatus) -> u64 {
        let before = self
            .before
            .get(&(tunnel.to_owned(), path.id))
            .copied()
            .unwrap_or(0);
        path.sent_bytes.saturating_sub(before)
    }
}

fn key(tunnel: &status::TunnelStatus) -> String {
    format!(
        "{}/{}",
        tunnel.site.as_deref().unwrap_or_default(),
        tunnel.class
    )
}

/// The flows that go with the answer to a request.
pub(super) fn wanted_flows(request: &Request) -> FlowsWanted {
    match request {
        Request::Status => FlowsWanted {
            pattern: None,
            limit: BUSIEST,
        },
        Request::Flow { flow } => FlowsWanted {
            pattern: Some(flow.pattern()),
            limit: NAMED,
        },
        Request::Disconnect { .. } => FlowsWanted::default(),
    }
}

/// The tunnels as the document shows them. `local` says what address a socket has.
pub(super) fn tunnels(
    tunnels: Vec<status::TunnelStatus>,
    site: Option<&SiteName>,
    recent: &mut Recent,
    local: impl Fn(SocketId, IpAddr) -> Option<SocketAddr>,
    now: Instant,
) -> Vec<TunnelStatus> {
    recent.look(&tunnels, now);
    tunnels
        .into_iter()
        .filter_map(|tunnel| {
            let name = tunnel.site.as_deref().and_then(|site| site.parse().ok());
            Some(self::tunnel(
                &tunnel,
                name.or_else(|| site.cloned())?,
                recent,
                &local,
                now,
            ))
        })
        .collect()
}

fn tunnel(
    tunnel: &status::TunnelStatus,
    site: SiteName,
    recent: &Recent,
    local: &impl Fn(SocketId, IpAddr) -> Option<SocketAddr>,
    now: Instant,
) -> TunnelStatus {
    let key = key(tunnel);
    let total: u64 = tunnel
        .paths
        .iter()
        .map(|path| recent.sent(&key, path))
        .sum();
    let usable = tunnel
        .paths
        .iter()
        .any(|path| path.state == sennit_core::PathState::Up);
    let (state, reason) = match (tunnel.up, usable) {
        (true, true) => (State::Up, None),
        (true, false) => (State::Down, Some("no path is up".to_owned())),
        (false, _) => (State::Connecting, Some(tunnel.reason.clone())),
    };
    let share = |path| (total > 0).then(|| recent.sent(&key, path) as f64 / total as f64);
    TunnelStatus {
        class: tunnel.class.clone(),
        site,
        policy: policy(tunnel.treatment.policy),
        delivery: delivery(tunnel.treatment.delivery),
        state,
        reason,
        since_seconds: now.saturating_duration_since(tunnel.since).as_secs_f64(),
        sent_bytes: tunnel.stats.bytes_sent,
        received_bytes: tunnel.stats.bytes_out,
        wrong_source_packets: tunnel.stats.wrong_source,
        wrong_destination_packets: tunnel.stats.wrong_destination,
        queue: QueueStatus {
            waiting_bytes: tunnel.backlog as u64,
            dropped_packets: tunnel.queue.dropped,
            marked_packets: tunnel.queue.marked,
            overflowed_packets: tunnel.queue.overflowed,
        },
        order: OrderStatus {
            held_packets: tunnel.stats.order.held,
            missed_packets: tunnel.stats.order.missed,
            late_packets: tunnel.stats.order.late,
            duplicate_packets: tunnel.stats.order.duplicates,
            overflows: tunnel.stats.order.overflows,
        },
        repair: RepairStatus {
            repeated_packets: tunnel.stats.repaired,
            abandoned_packets: tunnel.stats.unrepaired,
        },
        striping: (tunnel.treatment.policy == sennit_core::Policy::Bond).then_some(
            StripingStatus {
                wait_seconds: tunnel.striping.wait.as_secs_f64(),
                gained_bytes: tunnel.striping.gained,
                missed_bytes: tunnel.striping.missed,
            },
        ),
        flow_count: tunnel.flow_count as u64,
        flows: tunnel.flows.iter().map(|it| flow(tunnel, it)).collect(),
        paths: tunnel
            .paths
            .iter()
            .enumerate()
            .map(|(index, p)| PathStatus {
                why: why(tunnel, index, share(p)),
                ..path(p, share(p), local(p.socket, p.remote.ip()))
            })
            .collect(),
    }
}

fn path(path: &status::PathStatus, share: Option<f64>, local: Option<SocketAddr>) -> PathStatus {
    let state = match path.state {
        sennit_core::PathState::Up => PathState::Up,
        sennit_core::PathState::Probation => PathState::Probation,
        sennit_core::PathState::Suspect => PathState::Suspect,
        sennit_core::PathState::Down => PathState::Down,
    };
    PathStatus {
        id: path.id.into(),
        link: Some(path.link.name.clone()),
        local,
        remote: path.remote,
        state,
        reason: (state != PathState::Up).then(|| path.reason.to_string()),
        rtt_seconds: path.rtt.map(|rtt| rtt.as_secs_f64()),
        rtt_min_seconds: path.rtt_min.map(|rtt| rtt.as_secs_f64()),
        loss_ratio: (path.sent_packets > 0)
            .then(|| path.lost_packets as f64 / path.sent_packets as f64),
        rate_bytes_per_second: path.rtt.map(|_| path.rate as f64),
        cwnd_bytes: path.cwnd,
        congestion: path.congestion.map(|choice| choice.controller.to_string()),
        congestion_reason: path.congestion.map(|choice| choice.reason.to_string()),
        in_flight_bytes: path.in_flight,
        mtu_bytes: path.mtu.into(),
        mtu_source: Some(path.mtu_source.to_string()),
        sent_bytes: path.sent_bytes,
        received_bytes: path.received_bytes,
        share_ratio: share,
        why: String::new(),
    }
}

fn flow(tunnel: &status::TunnelStatus, flow: &status::FlowStatus) -> FlowStatus {
    let placed = place(tunnel, flow);
    let (account, queue) = (&flow.account, &flow.queue);
    let link = |(link, share_ratio)| FlowLinkStatus { link, share_ratio };
    FlowStatus {
        flow: account.key.to_string(),
        protocol: account.key.protocol.to_string(),
        source: account.key.src,
        source_port: account.key.src_port,
        destination: account.key.dst,
        destination_port: account.key.dst_port,
        age_seconds: account.age.as_secs_f64(),
        silent_seconds: account.silent.as_secs_f64(),
        sent_bytes: account.bytes,
        sent_packets: account.packets,
        rate_bytes_per_second: account.rate as f64,
        placement: placed.placement,
        thin: placed.thin,
        ordered: account.ordered && tunnel.numbered,
        links: placed.links.into_iter().map(link).collect(),
        queue: FlowQueueStatus {
            waiting_bytes: queue.waiting as u64,
            delay_seconds: queue.stood.as_secs_f64(),
            dropped_packets: queue.stats.dropped - account.before.dropped,
            marked_packets: queue.stats.marked - account.before.marked,
            overflowed_packets: queue.stats.overflowed - account.before.overflowed,
            neighbours: account.neighbours as u64,
        },
        why: placed.why,
    }
}

fn policy(policy: sennit_core::Policy) -> Policy {
    match policy {
        sennit_core::Policy::Single => Policy::Single,
        sennit_core::Policy::Failover => Policy::Failover,
        sennit_core::Policy::Balanced => Policy::Balanced,
        sennit_core::Policy::Bond => Policy::Bond,
        sennit_core::Policy::Redundant => Policy::Redundant,
    }
}

fn delivery(delivery: sennit_core::Delivery) -> Delivery {
    match delivery {
        sennit_core::Delivery::Datagram => Delivery::Datagram,
        sennit_core::Delivery::Repair => Delivery::Repair,
        sennit_core::Delivery::Reliable => Delivery::Reliable,
    }
}
