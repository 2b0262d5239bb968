//! How a class uses the links, in the words of configs and of the status.

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
