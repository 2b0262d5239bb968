//! How a class uses the links, and what becomes of packets without a tunnel, in the words of
//! configs and of the status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a class uses the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    Single,
    Failover,
    Balanced,
    Bond,
    Redundant,
}

/// What happens to a lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    Datagram,
    Repair,
    Reliable,
}

/// What becomes of packets that belong into the tunnel while there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Leak {
    /// They go nowhere, and whoever sends them is told so.
    Block,
    /// They leave by the host's other routes.
    Allow,
}
