//! `[[step.traffic]]` tables of those who look at the daemons while they work.

use serde::Deserialize;

use super::{Seconds, Via};
use crate::host::Role;

/// Requests to the API of a daemon, and viewers who follow it live.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Default: the tunnel, whose daemons are asked.
    #[serde(default)]
    pub via: Via,
    /// The daemon: `edge` (default) or `hub`.
    #[serde(default = "edge")]
    pub of: Role,
    /// What is asked for.
    #[serde(default = "status")]
    pub path: String,
    /// Requests a second, each over a connection of its own.
    #[serde(default)]
    pub rate: u32,
    /// How many follow `/v1/live`.
    #[serde(default)]
    pub viewers: u32,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone is asked; absent: all are.
    pub edge: Option<usize>,
}

/// A program that prints figures as JSON: an object whose keys are those of `results.json`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// The host it runs on.
    #[serde(default = "edge")]
    pub at: Role,
    /// The program and its arguments; paths are relative to where the lab was started.
    pub command: Vec<String>,
    /// How long it may take. Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The number of the edge that alone runs it; absent: all do.
    pub edge: Option<usize>,
}

impl Ask {
    pub(super) fn check(&self) -> Result<(), String> {
        if !matches!(self.of, Role::Edge | Role::Hub) {
            return Err("`of` is a daemon, edge or hub".into());
        }
        if self.rate > 10_000 || self.viewers > 64 {
            return Err("at most 10000 requests a second and 64 viewers".into());
        }
        match self.via {
            Via::Tunnel if self.path.starts_with('/') => Ok(()),
            Via::Tunnel => Err("`path` begins with a slash".into()),
            Via::Link(_) | Via::Mptcp => Err("only the tunnel has daemons to ask".into()),
        }
    }
}

impl Program {
    pub(super) fn check(&self) -> Result<(), String> {
        match self.command.is_empty() {
            true => Err("`command` is missing".into()),
            false => Ok(()),
        }
    }
}

fn edge() -> Role {
    Role::Edge
}

fn status() -> String {
    "/v1/status".into()
}
