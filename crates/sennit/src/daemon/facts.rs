//! From what the engine knows to the status document.
//!
//! A worker answers with [`Seen`], which is plain facts; sentences and the document are made of
//! them by whoever asked, on a thread where they hold up no packet.

mod fec;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use sennit_core::{Congestion, Policy, health::Reason};
use sennit_engine::{
    SocketId,
    facts::{self, ChoiceReason, FlowsWanted, LinkFacts, SizeSource},
};

use super::why::{Standings, place, queue_down, shared, shared_down, why};
use crate::{
    control::Request,
    site::SiteName,
    status::{
        Cause, CongestionCause, Controller, FlowLinkStatus, FlowQueueStatus, FlowStatus,
        HeaderStatus, MtuSource, OrderStatus, PathState, PathStatus, QueueStatus, RepairStatus,
        State, StripingStatus, TunnelStatus, UnansweredStatus,
    },
};

/// Flows of each tunnel that a status tells of, lest it be long.
const BUSIEST: usize = 16;
/// Of those that somebody asked for by name.
const NAMED: usize = 64;

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
        Request::Summary
        | Request::Packet { .. }
        | Request::Events { .. }
        | Request::Disconnect { .. }
        | Request::Link { .. }
        | Request::Limit { .. }
        | Request::Drill { .. }
        | Request::Identity
        | Request::Reload { .. }
        | Request::Keep
        | Request::Invitations { .. }
        | Request::Leases
        | Request::Config { .. }
        | Request::Speedtest { .. }
        | Request::Usage => FlowsWanted::default(),
    }
}

/// What one worker's engine knows at one moment.
pub(super) struct Seen {
    tunnels: Vec<facts::TunnelStatus>,
    pub(super) links: Vec<LinkFacts>,
    /// The addresses of the sockets that paths start from.
    locals: BTreeMap<(SocketId, bool), SocketAddr>,
    at: Instant,
}

impl Seen {
    /// `local` says what address a socket has towards another.
    pub(super) fn new(
        tunnels: Vec<facts::TunnelStatus>,
        links: Vec<LinkFacts>,
        local: impl Fn(SocketId, IpAddr) -> Option<SocketAddr>,
        at: Instant,
    ) -> Self {
        let paths = tunnels.iter().flat_map(|tunnel| &tunnel.paths);
        let locals = paths.filter_map(|path| {
            let remote = path.remote.ip();
            Some(((path.socket, remote.is_ipv6()), local(path.socket, remote)?))
        });
        Self {
            locals: locals.collect(),
            tunnels,
            links,
            at,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tunnels.len()
    }

    /// The tunnels as the document shows them; `site` and `standings` are those of an edge.
    pub(super) fn tunnels(
        &self,
        site: Option<&SiteName>,
        standings: &Standings,
    ) -> Vec<TunnelStatus> {
        let local = |socket: SocketId, remote: IpAddr| {
            self.locals.get(&(socket, remote.is_ipv6())).copied()
        };
        let tell = |tunnel: &facts::TunnelStatus| {
            let name = tunnel.site.as_ref();
            let name = name.and_then(|site| site.as_str().parse().ok());
            let site = name.or_else(|| site.cloned())?;
            Some(self::tunnel(tunnel, site, &local, standings, self.at))
        };
        self.tunnels.iter().filter_map(tell).collect()
    }
}

fn tunnel(
    tunnel: &facts::TunnelStatus,
    site: SiteName,
    local: &impl Fn(SocketId, IpAddr) -> Option<SocketAddr>,
    standings: &Standings,
    now: Instant,
) -> TunnelStatus {
    let carried = |path: &facts::PathStatus| path.carried.bytes(now);
    let total: u64 = tunnel.paths.iter().map(carried).sum();
    let in_use =
        |path: &facts::PathStatus| path.one_way || path.state == sennit_core::PathState::Up;
    let usable = tunnel.paths.iter().any(in_use);
    let (state, reason) = match (tunnel.up, usable) {
        (true, true) => (State::Up, tunnel.moving.clone()),
        (true, false) => (State::Down, Some("no path is up".to_owned())),
        (false, _) => (State::Connecting, Some(tunnel.reason.clone())),
    };
    let share = |path| (total > 0 && in_use(path)).then(|| carried(path) as f64 / total as f64);
    TunnelStatus {
        class: tunnel.class.clone(),
        site,
        policy: tunnel.treatment.policy,
        delivery: tunnel.treatment.delivery,
        state,
        reason,
        links: None,
        since_seconds: now.saturating_duration_since(tunnel.since).as_secs_f64(),
        resumed: tunnel.resumed,
        early: tunnel.early,
        key_updates: tunnel.key_updates,
        key_exchange: tunnel.group.map(|group| format!("{group:?}")),
        sent_bytes: tunnel.stats.bytes_sent,
        received_bytes: tunnel.stats.bytes_out,
        wrong_source_packets: tunnel.stats.wrong_source,
        wrong_destination_packets: tunnel.stats.wrong_destination,
        queue: queue(tunnel),
        queue_down: tunnel.queue_down.map(|told| queue_down(told, now)),
        order: order(tunnel),
        repair: repair(tunnel),
        headers: headers(tunnel),
        fec: fec::class(&tunnel.fec),
        striping: striping(tunnel),
        shares: Vec::new(),
        unanswered: unanswered(tunnel, now),
        flow_count: tunnel.flow_count as u64,
        flows: tunnel.flows.iter().map(|it| flow(tunnel, it)).collect(),
        paths: tunnel
            .paths
            .iter()
            .enumerate()
            .map(|(index, p)| PathStatus {
                why: why(tunnel, index, share(p), standings, now),
                ..path(p, share(p), local(p.socket, p.remote.ip()), now)
            })
            .collect(),
    }
}

fn unanswered(tunnel: &facts::TunnelStatus, now: Instant) -> Vec<UnansweredStatus> {
    let asks = tunnel.unanswered.iter();
    asks.map(|(link, since)| UnansweredStatus {
        link: link.clone(),
        since_seconds: now.saturating_duration_since(*since).as_secs_f64(),
    })
    .collect()
}

fn striping(tunnel: &facts::TunnelStatus) -> Option<StripingStatus> {
    let bonds = tunnel.treatment.policy == Policy::Bond;
    bonds.then_some(StripingStatus {
        wait_seconds: tunnel.striping.wait.as_secs_f64(),
        gained_bytes: tunnel.striping.gained,
        missed_bytes: tunnel.striping.missed,
    })
}

fn queue(tunnel: &facts::TunnelStatus) -> QueueStatus {
    QueueStatus {
        waiting_bytes: tunnel.backlog as u64,
        delay_seconds: tunnel.queue.stood.as_secs_f64(),
        dropped_packets: tunnel.queue.dropped,
        marked_packets: tunnel.queue.marked,
        overflowed_packets: tunnel.queue.overflowed,
    }
}

fn order(tunnel: &facts::TunnelStatus) -> OrderStatus {
    OrderStatus {
        held_packets: tunnel.stats.order.held,
        missed_packets: tunnel.stats.order.missed,
        late_packets: tunnel.stats.order.late,
        duplicate_packets: tunnel.stats.order.duplicates,
        overflows: tunnel.stats.order.overflows,
    }
}

fn repair(tunnel: &facts::TunnelStatus) -> RepairStatus {
    RepairStatus {
        repeated_packets: tunnel.stats.repaired,
        abandoned_packets: tunnel.stats.unrepaired,
    }
}

fn headers(tunnel: &facts::TunnelStatus) -> HeaderStatus {
    HeaderStatus {
        thin_sent_packets: tunnel.stats.thin_sent,
        saved_bytes: tunnel.stats.thin_saved,
        thin_received_packets: tunnel.stats.thin_received,
        unknown_packets: tunnel.stats.thin_unknown,
    }
}

fn path(
    path: &facts::PathStatus,
    share: Option<f64>,
    local: Option<SocketAddr>,
    now: Instant,
) -> PathStatus {
    let recent = path.losses.lately(now);
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
        observed: path.observed,
        state,
        cause: cause(path.reason),
        reason: (state != PathState::Up).then(|| path.reason.to_string()),
        since_seconds: now.saturating_duration_since(path.since).as_secs_f64(),
        heard_seconds: Some(now.saturating_duration_since(path.heard).as_secs_f64()),
        rtt_seconds: path.rtt.map(|rtt| rtt.as_secs_f64()),
        rtt_min_seconds: path.rtt_min.map(|rtt| rtt.as_secs_f64()),
        sent_packets: path.sent_packets,
        lost_packets: path.lost_packets,
        recent_packets: recent.packets().into(),
        recent_lost_packets: recent.lost.into(),
        loss_ratio: recent.loss(),
        rate_bytes_per_second: path.rtt.map(|_| path.rate.as_bytes_per_second_f64()),
        cwnd_bytes: path.cwnd,
        congestion: path
            .congestion
            .and_then(|choice| controller(choice.controller)),
        congestion_cause: path
            .congestion
            .map(|choice| congestion_cause(choice.reason)),
        congestion_reason: path.congestion.map(|choice| choice.reason.to_string()),
        in_flight_bytes: path.in_flight,
        mtu_bytes: path.mtu.into(),
        mtu_source: Some(mtu_source(path.mtu_source)),
        sent_bytes: path.sent_bytes,
        received_bytes: path.received_bytes,
        fec: fec::path(path.symbols),
        share_ratio: share,
        shared: path.shared.as_ref().map(shared),
        shared_down: path.shared_down.as_ref().map(|told| shared_down(told, now)),
        why: String::new(),
    }
}

pub(super) fn cause(reason: Reason) -> Option<Cause> {
    match reason {
        Reason::Heard => None,
        Reason::Returned => Some(Cause::Returned),
        Reason::Relapsed => Some(Cause::Relapsed),
        Reason::Silent => Some(Cause::Silent),
        Reason::PeerHearsNothing => Some(Cause::Unheard),
        Reason::PeerLinkDown => Some(Cause::PeerLinkDown),
        Reason::PeerPaused => Some(Cause::PeerPaused),
        Reason::LinkDown => Some(Cause::LinkDown),
        Reason::NotValidated => Some(Cause::NotValidated),
    }
}

/// The one that runs, which is never the wish to choose one.
fn controller(congestion: Congestion) -> Option<Controller> {
    match congestion {
        Congestion::Bbr => Some(Controller::Bbr),
        Congestion::Bbr3 => Some(Controller::Bbr3),
        Congestion::Cubic => Some(Controller::Cubic),
        Congestion::Follow => Some(Controller::Follow),
        Congestion::Auto => None,
    }
}

fn congestion_cause(reason: ChoiceReason) -> CongestionCause {
    match reason {
        ChoiceReason::Configured => CongestionCause::Configured,
        ChoiceReason::Usual => CongestionCause::Usual,
        ChoiceReason::Crowded => CongestionCause::Crowded,
        ChoiceReason::Lossy => CongestionCause::Lossy,
        ChoiceReason::Moving => CongestionCause::Moving,
    }
}

fn mtu_source(source: SizeSource) -> MtuSource {
    match source {
        SizeSource::Assumed => MtuSource::Assumed,
        SizeSource::Probed => MtuSource::Probed,
        SizeSource::Interface => MtuSource::Interface,
        SizeSource::BlackHole => MtuSource::BlackHole,
    }
}

fn flow(tunnel: &facts::TunnelStatus, flow: &facts::FlowStatus) -> FlowStatus {
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
        rate_bytes_per_second: account.rate.as_bytes_per_second_f64(),
        placement: placed.placement,
        thin: placed.thin,
        ordered: account.ordered && tunnel.numbered,
        links: placed.links.into_iter().map(link).collect(),
        queue: FlowQueueStatus {
            waiting_bytes: queue.waiting as u64,
            delay_seconds: queue.stats.stood.as_secs_f64(),
            dropped_packets: queue.stats.dropped - account.before.dropped,
            marked_packets: queue.stats.marked - account.before.marked,
            overflowed_packets: queue.stats.overflowed - account.before.overflowed,
            neighbours: account.neighbours as u64,
        },
        why: placed.why,
    }
}
