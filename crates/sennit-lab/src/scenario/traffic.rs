//! `[[step.traffic]]` tables.

use std::time::Duration;

use sennit_netem::Direction;
use serde::Deserialize;

use super::{Ask, Fetch, LoadTest, Program, Seconds, Step, Via};
use crate::host::Role;

/// A `[[step.traffic]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Traffic {
    /// Bulk TCP.
    Tcp(Tcp),
    /// Bulk QUIC.
    Quic(Quic),
    /// UDP at a constant rate.
    Udp(Udp),
    /// As many UDP packets per second as get through.
    Packets(Packets),
    /// ICMP echo.
    Ping(Ping),
    /// The same amount now and then.
    Fetch(Fetch),
    /// Requests to a daemon.
    Ask(Ask),
    /// Whatever a program measures.
    Program(Program),
    /// What `sennit test` finds.
    Test(LoadTest),
    /// Nothing: to see what a tunnel costs by being there.
    Idle(Idle),
    /// First packets of clients that do not exist.
    Flood(Flood),
}

/// Bulk TCP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// The near host: `lan` (default) or `edge`. MPTCP runs on the edge, which has the links.
    #[serde(default = "lan")]
    pub from: Role,
    /// The far host: `server` (default) or `hub`.
    #[serde(default = "server")]
    pub to: Role,
    /// Which way the data goes.
    #[serde(default = "down")]
    pub direction: Direction,
    /// Parallel connections.
    #[serde(default = "one")]
    pub streams: u32,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone does it; absent: all do.
    pub edge: Option<usize>,
    /// The sender's congestion control.
    #[serde(default = "cubic")]
    pub congestion: String,
    /// The server's port; default: one that nothing else in the step uses.
    pub port: Option<u16>,
    /// DSCP of its packets.
    #[serde(default)]
    pub dscp: u8,
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

/// Bulk data in one stream of one QUIC connection.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quic {
    /// Default: the tunnel. MPTCP carries no QUIC.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// Which way the data goes.
    #[serde(default = "down")]
    pub direction: Direction,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone does it; absent: all do.
    pub edge: Option<usize>,
    /// The server's port; default: one that nothing else in the step uses.
    pub port: Option<u16>,
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

/// UDP at a constant rate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// Default: the tunnel. MPTCP carries no UDP.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// Which way the data goes.
    #[serde(default = "down")]
    pub direction: Direction,
    /// Payload bits per second.
    pub rate_mbit: f64,
    /// Payload bytes per packet.
    #[serde(default = "kilobyte")]
    pub bytes: u16,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone does it; absent: all do.
    pub edge: Option<usize>,
    /// The server's port; default: one that nothing else in the step uses.
    pub port: Option<u16>,
    /// DSCP of its packets.
    #[serde(default)]
    pub dscp: u8,
    /// By a sender and a receiver of our own, which time each packet, and not by iperf3.
    #[serde(default)]
    pub delays: bool,
    /// With `delays`: bytes that each of ten packets has more than the one before, so that a link
    /// can lose those of one place in ten by their size.
    #[serde(default)]
    pub grow: u16,
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

/// The most UDP packets per second of which almost none is lost, by trying.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// Default: the tunnel. MPTCP carries no UDP.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// The far host: `server` (default) or `hub`.
    #[serde(default = "server")]
    pub to: Role,
    /// Which way the data goes.
    #[serde(default = "down")]
    pub direction: Direction,
    /// Payload bytes per packet.
    #[serde(default = "voice_bytes")]
    pub bytes: u16,
    /// Lost packets that are still almost none.
    #[serde(default = "half_percent")]
    pub loss_percent: f64,
    /// For all attempts together; default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone does it; absent: all do.
    pub edge: Option<usize>,
    /// The server's port; default: one that nothing else in the step uses.
    pub port: Option<u16>,
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

/// No traffic, while the tunnel is up.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone does it; absent: all do.
    pub edge: Option<usize>,
}

/// First packets of QUIC from sources that do not exist, as fast as they come, to the hub.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    /// Packets each second.
    pub rate: u32,
    /// To a port of the hub that nobody reads: what the machine spends on the flood itself.
    #[serde(default)]
    pub unread: bool,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
}

/// ICMP echo from the near host to the far one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// The far host: `server` (default) or `hub`.
    #[serde(default = "server")]
    pub to: Role,
    /// Between two requests.
    #[serde(default = "tenth")]
    pub interval_ms: f64,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone does it; absent: all do.
    pub edge: Option<usize>,
    /// Payload bytes.
    #[serde(default = "ping_bytes")]
    pub bytes: u16,
    /// DSCP of its packets.
    #[serde(default)]
    pub dscp: u8,
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

impl Traffic {
    /// The way it takes.
    pub fn via(&self) -> &Via {
        match self {
            Self::Tcp(Tcp { via, .. })
            | Self::Quic(Quic { via, .. })
            | Self::Udp(Udp { via, .. })
            | Self::Packets(Packets { via, .. })
            | Self::Ping(Ping { via, .. })
            | Self::Fetch(Fetch { via, .. })
            | Self::Ask(Ask { via, .. })
            | Self::Program(Program { via, .. })
            | Self::Test(LoadTest { via, .. })
            | Self::Idle(Idle { via, .. }) => via,
            Self::Flood(_) => &Via::Tunnel,
        }
    }

    /// The number of the edge that alone does it; `None` if all do.
    pub fn edge(&self) -> Option<usize> {
        match self {
            Self::Tcp(Tcp { edge, .. })
            | Self::Quic(Quic { edge, .. })
            | Self::Udp(Udp { edge, .. })
            | Self::Packets(Packets { edge, .. })
            | Self::Ping(Ping { edge, .. })
            | Self::Fetch(Fetch { edge, .. })
            | Self::Ask(Ask { edge, .. })
            | Self::Program(Program { edge, .. })
            | Self::Test(LoadTest { edge, .. })
            | Self::Idle(Idle { edge, .. }) => *edge,
            // There is one hub.
            Self::Flood(_) => Some(1),
        }
    }

    /// The near host.
    pub fn from(&self) -> Role {
        match self {
            Self::Tcp(Tcp { from, .. })
            | Self::Quic(Quic { from, .. })
            | Self::Udp(Udp { from, .. })
            | Self::Packets(Packets { from, .. })
            | Self::Ping(Ping { from, .. })
            | Self::Fetch(Fetch { from, .. }) => *from,
            Self::Ask(_) | Self::Program(_) | Self::Test(_) | Self::Idle(_) | Self::Flood(_) => {
                Role::Edge
            }
        }
    }

    /// The far host.
    pub fn to(&self) -> Role {
        match self {
            Self::Tcp(Tcp { to, .. })
            | Self::Packets(Packets { to, .. })
            | Self::Ping(Ping { to, .. })
            | Self::Fetch(Fetch { to, .. }) => *to,
            Self::Quic(_) | Self::Udp(_) | Self::Test(_) => Role::Server,
            Self::Ask(_) | Self::Program(_) | Self::Idle(_) | Self::Flood(_) => Role::Hub,
        }
    }

    /// The host at which it fills a socket with UDP, if it does.
    fn reads_udp(&self) -> Option<Role> {
        let direction = match self {
            Self::Quic(Quic { direction, .. })
            | Self::Udp(Udp { direction, .. })
            | Self::Packets(Packets { direction, .. }) => direction,
            Self::Tcp(_)
            | Self::Ping(_)
            | Self::Fetch(_)
            | Self::Ask(_)
            | Self::Program(_)
            | Self::Test(_)
            | Self::Idle(_)
            | Self::Flood(_) => return None,
        };
        Some(match direction {
            Direction::Up => self.to(),
            Direction::Down => self.from(),
        })
    }

    /// Start after the start of the step, and length.
    pub fn span(&self, step: &Step) -> (Duration, u32) {
        let (start, seconds) = match self {
            Self::Tcp(tcp) => (tcp.start_s, tcp.seconds),
            Self::Quic(quic) => (quic.start_s, quic.seconds),
            Self::Udp(udp) => (udp.start_s, udp.seconds),
            Self::Packets(packets) => (packets.start_s, packets.seconds),
            Self::Ping(ping) => (ping.start_s, ping.seconds),
            Self::Fetch(fetch) => (fetch.start_s, fetch.seconds),
            Self::Ask(ask) => (ask.start_s, ask.seconds),
            Self::Program(program) => (program.start_s, program.seconds),
            Self::Test(test) => (test.start_s, test.seconds),
            Self::Idle(idle) => (idle.start_s, idle.seconds),
            Self::Flood(flood) => (flood.start_s, flood.seconds),
        };
        (start.0, seconds.unwrap_or(step.seconds))
    }

    /// Whether several edges can do it at the same time.
    pub(super) fn check_edges(&self) -> Result<(), String> {
        let port = match self {
            Self::Tcp(tcp) => tcp.port,
            Self::Quic(quic) => quic.port,
            Self::Udp(udp) => udp.port,
            Self::Fetch(fetch) => fetch.port,
            Self::Packets(Packets { edge: None, .. }) => {
                return Err("packets look for what one edge can do, and there are several".into());
            }
            Self::Packets(_)
            | Self::Ping(_)
            | Self::Ask(_)
            | Self::Program(_)
            | Self::Test(_)
            | Self::Idle(_)
            | Self::Flood(_) => None,
        };
        if port.is_some() && self.edge().is_none() {
            return Err("the edges share a server, where each needs a `port` of its own".into());
        }
        match self.via() {
            Via::Mptcp => Err("MPTCP joins the links of one edge, and there are several".into()),
            Via::Tunnel | Via::Link(_) => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if !matches!(self.from(), Role::Lan | Role::Edge) {
            return Err("`from` is the near host, lan or edge".into());
        }
        if !matches!(self.to(), Role::Hub | Role::Server) {
            return Err("`to` is the far host, hub or server".into());
        }
        match self {
            Self::Tcp(tcp) if !(1..=128).contains(&tcp.streams) => {
                Err("`streams` is 1 to 128".into())
            }
            Self::Tcp(tcp) if tcp.via == Via::Mptcp && (tcp.dscp != 0 || tcp.ipv6) => {
                Err("MPTCP takes neither `dscp` nor `ipv6`".into())
            }
            Self::Quic(quic) if quic.via == Via::Mptcp => Err("MPTCP carries no QUIC".into()),
            Self::Udp(udp) if udp.via == Via::Mptcp => Err("MPTCP carries no UDP".into()),
            Self::Udp(udp) if !(udp.rate_mbit > 0.0 && udp.bytes >= 16) => {
                Err("UDP needs a rate and at least 16 bytes per packet".into())
            }
            Self::Udp(udp) if udp.grow > 0 && !udp.delays => {
                Err("packets `grow` with `delays = true` only".into())
            }
            Self::Udp(udp) if u32::from(udp.bytes) + 9 * u32::from(udp.grow) > 1472 => {
                Err("UDP has at most 1472 bytes per packet, of those that `grow` too".into())
            }
            Self::Packets(packets) if packets.via == Via::Mptcp => {
                Err("MPTCP carries no UDP".into())
            }
            Self::Packets(packets) if !(16..=1472).contains(&packets.bytes) => {
                Err("`bytes` of packets is 16 to 1472".into())
            }
            Self::Packets(packets) if !(0.0..50.0).contains(&packets.loss_percent) => {
                Err("`loss_percent` of packets is 0 to less than 50".into())
            }
            Self::Ping(ping) if ping.via == Via::Mptcp => Err("MPTCP carries no ping".into()),
            Self::Ping(ping) if !(2.0..=10_000.0).contains(&ping.interval_ms) => {
                Err("`interval_ms` is 2 to 10000".into())
            }
            Self::Fetch(fetch) => fetch.check(),
            Self::Ask(ask) => ask.check(),
            Self::Program(program) => program.check(),
            Self::Test(test) => test.check(),
            Self::Flood(flood) if !(1..=1_000_000).contains(&flood.rate) => {
                Err("`rate` of a flood is 1 to 1000000 packets a second".into())
            }
            Self::Tcp(_)
            | Self::Quic(_)
            | Self::Udp(_)
            | Self::Packets(_)
            | Self::Ping(_)
            | Self::Idle(_)
            | Self::Flood(_) => Ok(()),
        }
    }
}

impl Step {
    /// How many sockets its traffic fills with UDP at the host that this role has at one of so many
    /// edges, which count from 1.
    pub fn udp_readers(&self, role: Role, edge: usize, edges: usize) -> usize {
        let here = |traffic: &Traffic| match (role, traffic.edge()) {
            // All edges have one hub and one server.
            (Role::Hub | Role::Server, None) => edges,
            (Role::Hub | Role::Server, Some(_)) => 1,
            (Role::Edge | Role::Lan, only) => usize::from(only.is_none_or(|only| only == edge)),
        };
        let reading = self.traffic.iter();
        let reading = reading.filter(|it| it.reads_udp() == Some(role));
        reading.map(here).sum()
    }
}

fn lan() -> Role {
    Role::Lan
}

fn server() -> Role {
    Role::Server
}

fn down() -> Direction {
    Direction::Down
}

fn one() -> u32 {
    1
}

fn cubic() -> String {
    "cubic".into()
}

fn kilobyte() -> u16 {
    1000
}

/// A packet of speech with its RTP header.
fn voice_bytes() -> u16 {
    160
}

fn half_percent() -> f64 {
    0.5
}

fn tenth() -> f64 {
    100.0
}

fn ping_bytes() -> u16 {
    56
}
