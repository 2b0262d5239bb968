//! What is said of a worker.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One of the threads that carry packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStatus {
    pub tunnels: u64,
    /// Came here and were given to the worker that they belong to.
    pub handed_packets: u64,
    /// Dropped, as that worker had too many of them waiting.
    pub overflowed_packets: u64,
    /// Given by another worker, and dropped because their tunnel was gone.
    pub unowned_packets: u64,
    /// Of strangers, and dropped by their first bytes, as too many came.
    #[serde(default)]
    pub turned_away_packets: u64,
    /// Connections in handshake or without anything granted, and of such the ones that close.
    #[serde(default)]
    pub strangers: u64,
    /// Strangers that were asked to show that their address is their own (Retry).
    #[serde(default)]
    pub retried_strangers: u64,
    /// Strangers that were refused, as their network, or all together, had too many places.
    #[serde(default)]
    pub refused_strangers: u64,
    /// At a hub: TLS handshakes that were completed.
    #[serde(default)]
    pub completed_handshakes: u64,
    /// At a hub: those that began and were not completed, as their time was over, or either end
    /// gave up.
    #[serde(default)]
    pub failed_handshakes: u64,
    /// How often each timer of its tunnels woke it; the book's chapter on threads says what these
    /// are for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub woken: BTreeMap<String, u64>,
}
