//! What a daemon runs with, and what it keeps on its host: config, blocked routes, addresses.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeakStatus {
    /// What the config wants.
    pub policy: Leak,
    /// All of it is unreachable now unless a tunnel carries it, as the kernel says; absent if it
    /// cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<bool>,
    /// It was so already when this edge started: by a guard at boot, or kept from an earlier run.
    pub held_before_start: bool,
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
