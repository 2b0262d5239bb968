//! Facts about tunnels and paths, pulled by whoever shows them.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_core::{PathState, health::Reason, queue::QueueStats};

pub use crate::congestion::{Choice, Reason as ChoiceReason};
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
    /// Its paths.
    pub paths: Vec<PathStatus>,
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
    /// Packets of full size do not arrive.
    pub too_small: bool,
    /// Bytes that are not acknowledged yet.
    pub in_flight: u64,
    /// UDP payload size it carries.
    pub mtu: u16,
}

impl<R> Conn<R> {
    /// The state of every path.
    pub(crate) fn path_status(&mut self) -> Vec<PathStatus> {
        let conn = &mut self.tunnel.conn;
        self.tunnel
            .paths
            .iter()
            .filter_map(|path| Some(describe(path, &conn.path_stats(path.id)?)))
            .collect()
    }
}

fn describe(path: &Path, stats: &noq_proto::PathStats) -> PathStatus {
    let (state, reason) = path.health.state();
    PathStatus {
        id: number(path.id),
        link: path.link.clone(),
        socket: path.socket,
        remote: path.remote(),
        state,
        reason,
        rtt: path.gate.srtt(),
        rtt_min: path.gate.min_rtt(),
        sent_packets: stats.sent_packets,
        lost_packets: stats.lost_packets,
        sent_bytes: stats.udp_tx.bytes,
        received_bytes: stats.udp_rx.bytes,
        rate: path.gate.rate(path.srtt()),
        cwnd: path.gate.window(),
        congestion: path.gate.choice(),
        too_small: path.gate.is_too_small(),
        in_flight: path.gate.in_flight(),
        mtu: stats.current_mtu,
    }
}
