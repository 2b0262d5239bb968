//! The status document of a daemon, `sennit.status/1`.
//!
//! One document for the command line, the API, metrics, history and the page. Units are SI base
//! units as the names say; what is not known is absent. Within version 1 fields are only added.
//! Its JSON Schema is made from these types by [`json_schema`].

mod fec;
mod kinds;
mod link;
mod links;
mod public;
mod reasons;
mod schema;
mod shared;
mod table;
mod upkeep;
mod worker;

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{Delivery, Policy, Words, word};
use crate::site::SiteName;

pub use self::fec::{FecStatus, PathFecStatus};
pub use self::kinds::{
    Cause, CongestionCause, Controller, LinkCause, LinkState, MtuSource, PathState, Placement,
    Role, State,
};
pub use self::link::{LinkAccount, LinkStatus, LinkTraffic};
pub use self::links::{Links, ListedLink};
pub(crate) use self::public::Sighting;
pub use self::public::{NatMapping, PublicStatus};
pub(crate) use self::reasons::printable;
pub use self::reasons::{
    Direction, FlowReason, PacketException, PacketReason, Reason, flow_reasons, reasons,
    render_busiest, render_flows, render_reasons, render_shared,
};
pub use self::schema::json_schema;
pub use self::shared::{FarQueueStatus, SharedStatus};
pub use self::table::{WIDTH, render};
pub(crate) use self::table::{bounds, bytes, columns, duration, limits, rate};
pub use self::upkeep::{AuthorityStatus, BesideStatus, ConfigStatus, LeakStatus, LeasedPool};
pub use self::worker::WorkerStatus;

/// What `schema` says.
pub const SCHEMA: &str = "sennit.status/1";

/// A whole daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    pub schema: String,
    /// When this was so, in RFC 3339.
    #[serde(default)]
    pub time: String,
    pub role: Role,
    pub version: String,
    pub state: State,
    /// Why the state is not `up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of an edge without a tunnel: the hub refuses it, and says the same until its operator
    /// changes that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turned_away: bool,
    pub uptime_seconds: f64,
    pub device: String,
    /// Inner addresses of this side.
    pub addresses: Vec<IpAddr>,
    /// What else an operator should know, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Of an edge.
    pub links: Vec<LinkStatus>,
    pub tunnels: Vec<TunnelStatus>,
    /// Of a hub: the sites that are here, by name, and of those that have joined and are away the
    /// 1000 that left last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteStatus>,
    /// Of an edge: prefixes of its `lan` that the hub does not route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_lan: Vec<RefusedPrefix>,
    /// Of an edge with `routes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leak: Option<LeakStatus>,
    /// Of a hub: where its sites have their addresses from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<LeasedPool>,
    /// How it came to run with the config that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigStatus>,
    /// Of an edge that has one from its hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateStatus>,
    /// Of a hub: by which authority sites know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<AuthorityStatus>,
    /// By their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// What the daemon has given up since it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

impl Status {
    /// Leaves out the paths of all tunnels, but for what part each has of what is sent.
    pub(crate) fn leave_paths_out(&mut self) {
        for tunnel in &mut self.tunnels {
            let paths = std::mem::take(&mut tunnel.paths);
            tunnel.shares = paths.iter().filter_map(PathStatus::share).collect();
        }
    }
}

/// By what an edge proves who it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateStatus {
    /// Until then the hub takes it, in RFC 3339.
    pub expires: String,
    /// By the clock of this host; less than 0 if it has expired.
    pub left_seconds: f64,
    /// Why there is no fresh one although it is old, as far as was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_renewed: Option<String>,
}

/// A prefix that a hub does not route to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedPrefix {
    pub prefix: String,
    pub reason: String,
}

/// What holds a daemon back if somebody takes it over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confinement {
    /// Number of the user that the daemon is; 0 is root.
    #[serde(default)]
    pub uid: u32,
    /// No program that it starts has more rights than itself.
    pub no_new_privs: bool,
    /// The process has only the capabilities that it needs.
    pub capabilities: bool,
    /// The kernel refuses system calls that a daemon never needs (seccomp).
    pub system_calls: bool,
    /// Files are written only where the daemon has to (landlock).
    pub files: bool,
    /// What does not hold, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Threads of the daemon that may change the network: none where it is confined, since a helper
    /// of its own does that.
    pub network_threads: Vec<String>,
}

/// One site at a hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteStatus {
    pub name: SiteName,
    /// `up` if all its tunnels are, `down` if it is away.
    pub state: State,
    /// When it was last here, to the minute, in RFC 3339; absent while it has a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// Names of the classes that have a tunnel; none if it is away.
    pub classes: Vec<String>,
    /// Inner packets.
    pub sent_bytes: u64,
    /// Inner packets.
    pub received_bytes: u64,
    pub links: Vec<SiteLinkStatus>,
    /// What it announces as its LAN and is not routed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_lan: Vec<RefusedPrefix>,
}

impl SiteStatus {
    /// Whether it has no tunnel.
    pub fn is_away(&self) -> bool {
        self.classes.is_empty()
    }
}

/// One link of a site, as the hub sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteLinkStatus {
    pub name: String,
    pub state: LinkState,
    #[serde(flatten)]
    pub traffic: LinkTraffic,
}

/// One class between one edge and one hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelStatus {
    pub class: String,
    pub site: SiteName,
    #[serde(with = "word")]
    #[schemars(with = "Words<Policy>")]
    pub policy: Policy,
    #[serde(with = "word")]
    #[schemars(with = "Words<Delivery>")]
    pub delivery: Delivery,
    pub state: State,
    /// Why the state is not `up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// At an edge: the links that the class may use, if those are not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Vec<String>>,
    /// How long it has been in this state.
    pub since_seconds: f64,
    /// The group of the TLS key exchange, by its name in the registry of IANA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_exchange: Option<String>,
    /// The TLS handshake resumed an earlier session, so that no certificate had to be shown.
    #[serde(default)]
    pub resumed: bool,
    /// At an edge: the hub took what left with the first packets (0-RTT), which saves a round trip.
    #[serde(default)]
    pub early: bool,
    /// How often the keys of the connection were renewed, by either end.
    #[serde(default)]
    pub key_updates: u64,
    /// Inner packets.
    pub sent_bytes: u64,
    /// Inner packets.
    pub received_bytes: u64,
    /// At a hub: packets dropped because their source address is not the site's.
    #[serde(default)]
    pub wrong_source_packets: u64,
    /// At a hub: packets dropped because nobody may send to their destination from afar, as
    /// link-local and loopback addresses.
    #[serde(default)]
    pub wrong_destination_packets: u64,
    #[serde(default)]
    pub queue: QueueStatus,
    /// At an edge: the queue at the hub, as the hub tells it, where classes share links by rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_down: Option<FarQueueStatus>,
    #[serde(default)]
    pub order: OrderStatus,
    #[serde(default)]
    pub repair: RepairStatus,
    #[serde(default)]
    pub headers: HeaderStatus,
    #[serde(default)]
    pub fec: FecStatus,
    /// Under `bond`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub striping: Option<StripingStatus>,
    pub paths: Vec<PathStatus>,
    /// Where its paths are left out: the links that carry what it sends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<FlowLinkStatus>,
    /// At an edge: links on which it has no path yet, and asks the hub for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<UnansweredStatus>,
    /// Of a minute, in the direction in which this side sends; those here are the busiest of them.
    #[serde(default)]
    pub flow_count: u64,
    #[serde(default)]
    pub flows: Vec<FlowStatus>,
}

/// A link by which a tunnel asks for a path and was not answered yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnansweredStatus {
    pub link: String,
    /// Since it asks.
    pub since_seconds: f64,
}

/// What slower links bring to a bond, and what they cost it: the account of the last few round
/// trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StripingStatus {
    /// How long packets wait for faster links before a slower one is used, at most.
    pub wait_seconds: f64,
    /// Carried by slower links.
    pub gained_bytes: u64,
    /// What the fastest could have carried meanwhile, while nothing waited.
    pub missed_bytes: u64,
}

/// One inner flow, in the direction in which this side sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowStatus {
    /// Like `tcp 10.0.0.2:40000 to 10.9.0.2:5201`; `sennit why` understands it.
    pub flow: String,
    /// `tcp`, `udp`, `icmp`, or a number.
    pub protocol: String,
    pub source: IpAddr,
    /// Zero if there is none.
    pub source_port: u16,
    pub destination: IpAddr,
    /// Zero if there is none.
    pub destination_port: u16,
    /// Since its first packet.
    pub age_seconds: f64,
    /// Since its last packet.
    pub silent_seconds: f64,
    /// Inner packets.
    pub sent_bytes: u64,
    pub sent_packets: u64,
    /// Inner packets, of late.
    pub rate_bytes_per_second: f64,
    pub placement: Placement,
    /// It sends too little to fill a link.
    pub thin: bool,
    /// Whether the far end puts it back in order.
    pub ordered: bool,
    /// The greatest part first.
    pub links: Vec<FlowLinkStatus>,
    pub queue: FlowQueueStatus,
    /// Why it goes where it goes: sentences, the most telling first.
    pub why: Vec<String>,
}

/// What a flow, or a whole tunnel, sent over one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowLinkStatus {
    pub link: String,
    /// Of what it sent lately, 0 to 1.
    pub share_ratio: f64,
}

/// The queue in which a flow's packets wait, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowQueueStatus {
    pub waiting_bytes: u64,
    /// How long packets stand there, smoothed.
    pub delay_seconds: f64,
    pub dropped_packets: u64,
    /// Marked CE instead of dropped.
    pub marked_packets: u64,
    /// Dropped because the class's queue was full.
    pub overflowed_packets: u64,
    /// Other flows that lately waited in the same one.
    pub neighbours: u64,
}

/// The packets that wait for a path, and what FQ-CoDel did with them (RFC 8290).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueStatus {
    pub waiting_bytes: u64,
    /// How long the packets stood that left of late, smoothed.
    #[serde(default)]
    pub delay_seconds: f64,
    pub dropped_packets: u64,
    /// Marked CE instead of dropped.
    pub marked_packets: u64,
    /// Dropped because the queue was longer than any sender's reaction takes.
    pub overflowed_packets: u64,
}

/// Packets that several paths delivered out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderStatus {
    /// Had to wait for an earlier one.
    pub held_packets: u64,
    /// Were no longer waited for.
    pub missed_packets: u64,
    /// Came after they were given up.
    pub late_packets: u64,
    /// Second copies, dropped.
    pub duplicate_packets: u64,
    /// Times that too many were held.
    pub overflows: u64,
}

/// Packets that a path lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairStatus {
    pub repeated_packets: u64,
    /// Too old, or repeated too often.
    pub abandoned_packets: u64,
}

/// Packets that leave without what the packets of their flow have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeaderStatus {
    pub thin_sent_packets: u64,
    /// What that saved, each packet counted once.
    pub saved_bytes: u64,
    pub thin_received_packets: u64,
    /// Came thin, and could not be restored because what their flow has in common had not come.
    pub unknown_packets: u64,
}

/// One link of a tunnel, joined to one hub address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathStatus {
    pub id: u64,
    /// The edge's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    pub remote: SocketAddr,
    /// At an edge: where the hub sees its packets come from, if it tells that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<SocketAddr>,
    pub state: PathState,
    /// Why the state is not `up`, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Why the state is not `up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it has been up, returning, or not to be used.
    #[serde(default)]
    pub since_seconds: f64,
    /// Since anything arrived on it. While nothing flows it is asked every half minute, or one of
    /// another class on the same link is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_min_seconds: Option<f64>,
    /// Since the path began.
    #[serde(default)]
    pub sent_packets: u64,
    /// Since the path began.
    #[serde(default)]
    pub lost_packets: u64,
    /// Packets of the last half minute to minute of which it is known whether they arrived.
    #[serde(default)]
    pub recent_packets: u64,
    /// Those of them that were lost.
    #[serde(default)]
    pub recent_lost_packets: u64,
    /// What these are of those, 0 to 1; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// What it can carry, as congestion control sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_second: Option<f64>,
    pub cwnd_bytes: u64,
    /// The congestion controller that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Controller>,
    /// Why it is that one, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_cause: Option<CongestionCause>,
    /// Why it is that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_reason: Option<String>,
    #[serde(default)]
    pub in_flight_bytes: u64,
    /// Largest UDP payload that is known to arrive.
    pub mtu_bytes: u64,
    /// How that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_source: Option<MtuSource>,
    /// UDP payload.
    pub sent_bytes: u64,
    /// UDP payload.
    pub received_bytes: u64,
    #[serde(default)]
    pub fec: PathFecStatus,
    /// Of the inner packets that the tunnel sent in the last two to four seconds, 0 to 1; absent if
    /// there were none or the path is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_ratio: Option<f64>,
    /// What the class has of the link in the direction in which this side sends, where classes
    /// share links by rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedStatus>,
    /// At an edge: the same of the direction in which the hub sends, as the hub tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_down: Option<SharedStatus>,
    /// Why it carries what it carries.
    #[serde(default)]
    pub why: String,
}

impl PathStatus {
    /// What it carries of what its tunnel sends, if it carries anything.
    fn share(&self) -> Option<FlowLinkStatus> {
        let share_ratio = self.share_ratio.filter(|&share| share > 0.0)?;
        Some(FlowLinkStatus {
            link: self.name(),
            share_ratio,
        })
    }

    /// Its link's name, or its number as long as the edge has not told that.
    pub(crate) fn name(&self) -> String {
        let link = self.link.clone();
        link.unwrap_or_else(|| format!("path {}", self.id))
    }
}
