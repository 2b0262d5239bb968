//! What a class sends in addition, so that what links lose comes back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Forward error correction of a class, since its connection began. `sources` are packets that are
/// protected, `repairs` what is sent for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FecStatus {
    /// As in the config.
    pub setting: String,
    /// The code that runs; absent if packets are not protected now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it runs, or why none does.
    pub reason: String,
    pub sources_sent: u64,
    pub repairs_sent: u64,
    /// Bytes of repairs for each byte of sources that left.
    pub overhead_ratio: f64,
    /// Repairs that found no room in time.
    pub repairs_unsent: u64,
    /// Lost packets that were not sent again, because they had come back.
    pub spared_packets: u64,
    pub sources_received: u64,
    pub repairs_received: u64,
    /// Came back here.
    pub recovered_packets: u64,
    /// Came back here when they had been given up.
    pub too_late_packets: u64,
    /// Repairs here that could not be solved.
    pub failed_repairs: u64,
    /// Sources that neither arrived here nor came back.
    pub lost_packets: u64,
    /// The part of the sources that is.
    pub residual_loss_ratio: f64,
    /// Repairs here that cannot be.
    pub malformed_repairs: u64,
    /// As the far end counts what left here.
    pub far_recovered_packets: u64,
    pub far_lost_packets: u64,
}

/// What of it a path carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathFecStatus {
    pub sources_sent: u64,
    pub repairs_sent: u64,
    pub sources_received: u64,
    pub repairs_received: u64,
}
