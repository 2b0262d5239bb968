//! Facts about tunnels and paths: plain data, pulled by whoever shows them.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use rustls::NamedGroup;
use sennit_core::{
    ClassId, FlowPattern, PathState, RecentLosses, Worth,
    flows::FlowAccount,
    health::Reason,
    queue::{FlowQueue, QueueStats},
    recent::Recent,
    resequence::ResequenceStats,
    schedule::Striping,
};
use sennit_packet::Bitrate;

pub use sennit_core::frame::{Queue, Tidings};
pub use sennit_fec::{Code, DecoderStats, Fec};

pub use crate::{
    congestion::{Choice, Reason as ChoiceReason},
    gate::SizeSource,
    protection::{FecReason, FecStatus, Symbols},
    sharing::Cause,
};
use crate::{
    ids::{LinkId, SiteId, SocketId},
    treatment::Treatment,
};

/// What the edge says of a link: how it is called and how a policy should treat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLabel {
    /// Name from the edge's configuration.
    pub name: String,
    /// Lower is preferred.
    pub tier: u8,
    /// Share under `balanced`.
    pub weight: u16,
}

/// Counters of a class since its first tunnel came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelStats {
    /// Inner packets taken in.
    pub packets_in: u64,
    /// Inner packets handed out.
    pub packets_out: u64,
    /// Inner bytes handed out.
    pub bytes_out: u64,
    /// Bytes of datagrams with inner packets, each copy counted.
    pub bytes_sent: u64,
    /// What putting flows back in order took.
    pub order: ResequenceStats,
    /// Lost packets that were sent again.
    pub repaired: u64,
    /// Lost packets that were not: too old, too often, or too many.
    pub unrepaired: u64,
    /// Packets sent without what their flow's template tells.
    pub thin_sent: u64,
    /// Bytes that thin packets saved, each packet counted once.
    pub thin_saved: u64,
    /// Packets received thin, and restored.
    pub thin_received: u64,
    /// Thin packets received whose template was not here.
    pub thin_unknown: u64,
    /// Packets too big for a path's MTU.
    pub too_big: u64,
    /// Datagrams that were no IP packet, of an unknown context, or malformed.
    pub malformed: u64,
    /// At a hub, packets with a source address that is not the site's.
    pub wrong_source: u64,
    /// Packets from the site that were dropped because nobody may send to their destination from
    /// afar.
    pub wrong_destination: u64,
}

/// One link, with what all classes do there together.
#[derive(Clone, Debug)]
pub struct LinkFacts {
    /// What it is called in the engine.
    pub id: LinkId,
    /// Its name from the edge's configuration.
    pub name: String,
    /// The site whose link it is, on a hub.
    pub site: Option<SiteId>,
    /// The classes that have a path on it.
    pub classes: Vec<ClassId>,
    /// What their paths deliver together.
    pub delivers: Bitrate,
    /// UDP payload bytes that left on it.
    pub sent_bytes: u64,
    /// UDP payload bytes that arrived on it.
    pub received_bytes: u64,
}

/// One tunnel.
#[derive(Clone, Debug)]
pub struct TunnelStatus {
    /// Name of its class.
    pub class: String,
    /// Site at the other end, on a hub.
    pub site: Option<SiteId>,
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
    /// Counters of its queue since the first tunnel of the class came up.
    pub queue: QueueStats,
    /// The queue at the hub, as it told that to an edge, and when.
    pub queue_down: Option<(Queue, Instant)>,
    /// Counters of the tunnel.
    pub stats: TunnelStats,
    /// How its packets are protected.
    pub fec: FecStatus,
    /// Whether the other end is a Sennit, which can put flows back in order.
    pub numbered: bool,
    /// The group of the key exchange, once there is a connection.
    pub group: Option<NamedGroup>,
    /// The handshake resumed an earlier session.
    pub resumed: bool,
    /// What was sent with the first packets of that handshake was accepted (0-RTT).
    pub early: bool,
    /// How often the keys of the connection were renewed, by either end.
    pub key_updates: u64,
    /// The handshake offered classic groups alone, because others went unanswered on its link.
    pub fell_back: bool,
    /// At an edge: why it runs to where the hub is no more, and to nowhere else so far.
    pub moving: Option<String>,
    /// Whether striping pays, under `bond`.
    pub striping: Striping,
    /// Its paths.
    pub paths: Vec<PathStatus>,
    /// At an edge: links by which it asks for a path, and since when.
    pub unanswered: Vec<(String, Instant)>,
    /// The flows that were asked for, the busiest first: what this end sends of them.
    pub flows: Vec<FlowStatus>,
    /// How many of them there are.
    pub flow_count: usize,
}

impl TunnelStatus {
    /// Of a class of which nothing but this is known yet.
    pub(crate) fn new(class: String, treatment: Treatment, since: Instant) -> Self {
        Self {
            class,
            site: None,
            treatment,
            up: false,
            reason: String::new(),
            since,
            backlog: 0,
            queue: QueueStats::default(),
            queue_down: None,
            stats: TunnelStats::default(),
            fec: FecStatus::new(treatment.fec),
            numbered: false,
            group: None,
            resumed: false,
            early: false,
            key_updates: 0,
            fell_back: false,
            moving: None,
            striping: Striping::default(),
            paths: Vec::new(),
            unanswered: Vec::new(),
            flows: Vec::new(),
            flow_count: 0,
        }
    }
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
    /// At an edge: where its packets come from, as the hub sees and tells it.
    pub observed: Option<SocketAddr>,
    /// Whether it can be trusted.
    pub state: PathState,
    /// Why.
    pub reason: Reason,
    /// How often it fell of late, and for how long it must be steady to be trusted again.
    pub falls: (u32, Duration),
    /// Since when it is up, returning, or not to be used.
    pub since: Instant,
    /// When anything last arrived on it.
    pub heard: Instant,
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
    /// What became of its packets of late.
    pub losses: RecentLosses,
    /// UDP payload bytes sent.
    pub sent_bytes: u64,
    /// UDP payload bytes received.
    pub received_bytes: u64,
    /// What its controller believes it carries.
    pub rate: Bitrate,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Its congestion controller, and why it is that one.
    pub congestion: Option<Choice>,
    /// Packets of full size do not arrive, and the peer takes no halves.
    pub too_small: bool,
    /// What it is good for beside the others, under `bond`.
    pub worth: Worth,
    /// Protected packets and repairs that it carried.
    pub symbols: Symbols,
    /// Bytes that are not acknowledged yet.
    pub in_flight: u64,
    /// UDP payload that it is known to carry.
    pub mtu: u16,
    /// How that is known.
    pub mtu_source: SizeSource,
    /// It is known not to carry the tunnel's packets whole.
    pub small: bool,
    /// What the class has of the link in the direction that this end sends, if classes share it by
    /// rules.
    pub shared: Option<PathShare>,
    /// What the class has of it in the other direction, as the hub told an edge.
    pub shared_down: Option<Told>,
}

/// What a hub told of a class on a path.
#[derive(Clone, Debug)]
pub struct Told {
    /// What the class has of the link.
    pub share: PathShare,
    /// What was lost of all that the hub sent on the path, 0 to 1.
    pub loss: f64,
    /// When this was heard.
    pub at: Instant,
}

/// What a class has of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathShare {
    /// What is given out of the link; zero while it is not known what it carries.
    pub link_rate: Bitrate,
    /// The config says what the link carries.
    pub configured: bool,
    /// Why it is that much, if it was found.
    pub cause: Cause,
    /// How long a packet stands in the link's own queue, where that is looked at.
    pub link_queue: Option<Duration>,
    /// What is guaranteed to the class.
    pub guaranteed: Bitrate,
    /// What it sent of late, headers of all layers counted.
    pub rate: Bitrate,
    /// It had to wait for others of late.
    pub held: bool,
    /// What the others sent of late, by name.
    pub others: Vec<(String, Bitrate)>,
}
