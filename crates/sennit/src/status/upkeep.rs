//! What a daemon runs with, and what it keeps: config, blocked routes, addresses, its authority.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::Leak;

/// How the last reload went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigStatus {
    /// How long ago a config was taken last, at the start or by a reload.
    pub since_seconds: f64,
    /// The daemon runs with what it read last; false after a reload that it refused, or that was
    /// taken back.
    pub last_reload_successful: bool,
}

/// What becomes of packets that belong into the tunnel while there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeakStatus {
    /// What the config wants.
    pub policy: Leak,
    /// All of it is unreachable now unless a tunnel carries it, as the kernel says; absent if it
    /// cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<bool>,
    /// It was so already when this edge started: by a guard at boot, or kept from an earlier run.
    pub held_before_start: bool,
    /// What belongs into the tunnel, as `routes` in the config says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// What of that leaves beside the tunnel all the same, as a longer route of this host leads
    /// there: local networks, and what somebody else routes elsewhere. The widest first; the first
    /// few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<BesideStatus>,
    /// How many there are.
    #[serde(default)]
    pub beside_count: usize,
}

/// A route of the host that is longer than one into the tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BesideStatus {
    pub prefix: String,
    pub interface: String,
}

/// By which authority sites know a hub, and how far it is with putting another in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthorityStatus {
    /// Of the present one, by which sites are invited.
    pub fingerprint: String,
    /// Of the one before, while that is good too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
    /// When the present one was made, while both are good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<String>,
    /// How many sites know only the former one; `sennit hub authority` names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// How many sites have an invitation that names the former one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited: Option<u64>,
}

/// The addresses of one family that sites can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeasedPool {
    pub prefix: String,
    /// How many sites have one of it.
    pub leased: usize,
    /// How many are left; absent if they are more than anybody counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
}
