//! `[[step.traffic]]` tables of those who fetch something now and then.

use std::time::Duration;

use serde::Deserialize;

use super::{Seconds, Via};
use crate::host::Role;

/// So many bytes over and over from the far host, each time over a TCP connection of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetch {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// The far host: `server` (default) or `hub`.
    #[serde(default = "server")]
    pub to: Role,
    /// What is fetched.
    #[serde(default = "megabyte")]
    pub bytes: u32,
    /// From one fetch to the next, which waits for it.
    #[serde(default = "second")]
    pub every_s: Seconds,
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
    /// IPv6 instead of IPv4.
    #[serde(default)]
    pub ipv6: bool,
}

impl Fetch {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.via == Via::Mptcp {
            return Err("a fetch goes over the tunnel or one link".into());
        }
        match self.bytes > 0 && self.every_s.0 >= Duration::from_millis(10) {
            true => Ok(()),
            false => Err("a fetch has `bytes`, and `every_s` is 0.01 or more".into()),
        }
    }
}

fn lan() -> Role {
    Role::Lan
}

fn server() -> Role {
    Role::Server
}

fn megabyte() -> u32 {
    1_000_000
}

fn second() -> Seconds {
    Seconds(Duration::from_secs(1))
}

fn cubic() -> String {
    "cubic".into()
}
