//! `[[step.traffic]]` tables.

use std::time::Duration;

use serde::Deserialize;

use super::{Seconds, Step};
use crate::host::Role;
use crate::link::Direction;

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
    /// ICMP echo.
    Ping(Ping),
}

/// Which way traffic takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Via {
    /// Through Sennit.
    #[default]
    Tunnel,
    /// Over one link without a tunnel.
    Link(String),
    /// Kernel MPTCP over all links, without a tunnel.
    Mptcp,
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
    /// The server's port; default: one that nothing else in the step uses.
    pub port: Option<u16>,
    /// DSCP of its packets.
    #[serde(default)]
    pub dscp: u8,
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

/// ICMP echo from the near host to the server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// Between two requests.
    #[serde(default = "tenth")]
    pub interval_ms: f64,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
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

impl TryFrom<String> for Via {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "tunnel" => Ok(Self::Tunnel),
            "mptcp" => Ok(Self::Mptcp),
            other => match other.strip_prefix("link:") {
                Some(name) => Ok(Self::Link(name.into())),
                None => Err(format!(
                    "{text:?} is not \"tunnel\", \"mptcp\" or \"link:NAME\""
                )),
            },
        }
    }
}

impl Traffic {
    /// The way it takes.
    pub fn via(&self) -> &Via {
        match self {
            Self::Tcp(Tcp { via, .. })
            | Self::Quic(Quic { via, .. })
            | Self::Udp(Udp { via, .. })
            | Self::Ping(Ping { via, .. }) => via,
        }
    }

    /// The near host.
    pub fn from(&self) -> Role {
        match self {
            Self::Tcp(Tcp { from, .. })
            | Self::Quic(Quic { from, .. })
            | Self::Udp(Udp { from, .. })
            | Self::Ping(Ping { from, .. }) => *from,
        }
    }

    /// Start after the start of the step, and length.
    pub fn span(&self, step: &Step) -> (Duration, u32) {
        let (start, seconds) = match self {
            Self::Tcp(tcp) => (tcp.start_s, tcp.seconds),
            Self::Quic(quic) => (quic.start_s, quic.seconds),
            Self::Udp(udp) => (udp.start_s, udp.seconds),
            Self::Ping(ping) => (ping.start_s, ping.seconds),
        };
        (start.0, seconds.unwrap_or(step.seconds))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if !matches!(self.from(), Role::Lan | Role::Edge) {
            return Err("`from` is the near host, lan or edge".into());
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
            Self::Ping(ping) if ping.via == Via::Mptcp => Err("MPTCP carries no ping".into()),
            Self::Ping(ping) if !(2.0..=10_000.0).contains(&ping.interval_ms) => {
                Err("`interval_ms` is 2 to 10000".into())
            }
            Self::Tcp(_) | Self::Quic(_) | Self::Udp(_) | Self::Ping(_) => Ok(()),
        }
    }
}

fn lan() -> Role {
    Role::Lan
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

fn tenth() -> f64 {
    100.0
}

fn ping_bytes() -> u16 {
    56
}
