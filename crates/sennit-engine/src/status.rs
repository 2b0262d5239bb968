//! Facts about tunnels and paths, pulled by whoever shows them.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_core::{
    FlowPattern, PathState, Worth,
    flows::FlowAccount,
    health::Reason,
    queue::{FlowQueue, QueueStats},
    recent::Recent,
    schedule::Striping,
};

pub use crate::{
    congestion::{Choice, Reason as ChoiceReason},
    gate::SizeSource,
};
use crate::{
    locals::SocketId,
    node::Conn,
    path::{LinkLabel, Path, number},
    tunnel::{Treatment, TunnelStats},
};

/// One tunnel.
#[derive(Clone, Debug)]
pub struct TunnelStatus {
    /// Name of its class.
    pub class: String,
    /// Site at the other end, on a hub.
    pub site: Option<String>,
    /// How it treats packets.
    pub treatment: Treatment,
    /// Whether packets can pass.
    pub up: bool,
    /// Why it is not up, or what is worth knowing about it.
    pub reason: String,
    /// Since when it is up, or not.
    pub since: Instant,
    /// Bytes waiting in its queue.
    pub backlog: usize,
    /// Counters of its queue.
    pub queue: QueueStats,
    /// Counters of the tunnel.
    pub stats: TunnelStats,
    /// Whether the other end is a Sennit, which can put flows back in order.
    pub numbered: bool,
    /// Whether striping pays, under `bond`.
    pub striping: Striping,
    /// Its paths.
    pub paths: Vec<PathStatus>,
    /// The flows that were asked for, the busiest first: what this end sends of them.
    pub flows: Vec<FlowStatus>,
    /// How many of them there are.
    pub flow_count: usize,
}

/// Which flows to tell of.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowsWanted {
    /// Only these.
    pub pattern: Option<FlowPattern>,
    /// Not more of each tunnel.
    pub limit: usize,
}

/// One flow, in the direction that this end sends.
#[derive(Clone, Debug)]
pub struct FlowStatus {
    /// Who it is and what it sent.
    pub account: FlowAccount,
    /// Bytes that lately left on each path, by its id.
    pub paths: Vec<(u32, u32)>,
    /// The queue in which its packets wait.
    pub queue: FlowQueue,
}

/// One path.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// QUIC path id.
    pub id: u32,
    /// Its link.
    pub link: LinkLabel,
    /// The edge's socket, meaningless on a hub.
    pub socket: SocketId,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Whether it can be trusted.
    pub state: PathState,
    /// Why.
    pub reason: Reason,
    /// Since when it is up, returning, or not to be used.
    pub since: Instant,
    /// It carries what is sent although it is not up: the peer hears us on it, and no path is up.
    pub one_way: bool,
    /// Bytes of inner packets that left on it in the last seconds, by the tunnel's clock.
    pub carried: Recent,
    /// Smoothed round trip.
    pub rtt: Option<Duration>,
    /// Least round trip seen.
    pub rtt_min: Option<Duration>,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// UDP payload bytes sent.
    pub sent_bytes: u64,
    /// UDP payload bytes received.
    pub received_bytes: u64,
    /// What its controller believes it carries, in bytes per second.
    pub rate: u64,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Its congestion controller, and why it is that one.
    pub congestion: Option<Choice>,
    /// Packets of full size do not arrive, and the peer takes no halves.
    pub too_small: bool,
    /// What it is good for beside the others, under `bond`.
    pub worth: Worth,
    /// Bytes that are not acknowledged yet.
    pub in_flight: u64,
    /// UDP payload that it is known to carry.
    pub mtu: u16,
    /// How that is known.
    pub mtu_source: SizeSource,
    /// It is known not to carry the tunnel's packets whole.
    pub small: bool,
}

impl<R> Conn<R> {
    /// Fills in what the tunnel knows of itself.
    pub(crate) fn describe(
        &mut self,
        status: &mut TunnelStatus,
        wanted: Option<(&FlowsWanted, Instant)>,
    ) {
        let tunnel = &mut self.tunnel;
        status.backlog = tunnel.backlog();
        status.queue = tunnel.queue_stats();
        status.stats = tunnel.stats();
        status.numbered = tunnel.is_numbered();
        status.striping = tunnel.striping();
        let halves = tunnel.takes_halves();
        status.paths = tunnel
            .paths
            .iter()
            .filter_map(|path| Some(describe(path, halves, &tunnel.conn.path_stats(path.id)?)))
            .collect();
        if let Some((wanted, now)) = wanted {
            (status.flows, status.flow_count) = tunnel.flows(wanted, now);
        }
    }
}

fn describe(path: &Path, halves: bool, stats: &noq_proto::PathStats) -> PathStatus {
    let (state, reason) = path.state();
    PathStatus {
        id: number(path.id),
        link: path.link.clone(),
        socket: path.socket,
        remote: path.remote(),
        state,
        reason,
        since: path.health.since(),
        one_way: path.is_trusted() && state != PathState::Up,
        carried: path.carried,
        rtt: path.gate.srtt(),
        rtt_min: path.gate.min_rtt(),
        sent_packets: stats.sent_packets,
        lost_packets: stats.lost_packets,
        sent_bytes: stats.udp_tx.bytes,
        received_bytes: stats.udp_rx.bytes,
        rate: path.gate.rate(path.srtt()),
        cwnd: path.gate.window(),
        congestion: path.gate.choice(),
        too_small: path.gate.is_small() && !halves,
        worth: path.worth,
        in_flight: path.gate.in_flight(),
        mtu: path.gate.carries(),
        mtu_source: path.gate.size_source(),
        small: path.gate.is_small(),
    }
}
