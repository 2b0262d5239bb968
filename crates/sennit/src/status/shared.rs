//! What a class has of the links that it shares with others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::QueueStatus;

/// What a class has of a link that it shares with others, in one direction. Headers of all layers
/// are counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SharedStatus {
    /// What is given out of the link to all classes; absent while it is not known what it carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_second: Option<f64>,
    /// Why it is that much: `configured`, or what was last seen: `unknown`, `queue`, `clear`,
    /// `rises` or `stalled`.
    pub link_cause: String,
    /// How long a packet stands in the link's own queue; absent where the config says the rate, or
    /// nothing was measured yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_queue_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_bytes_per_second: Option<f64>,
    /// What the others leave to it, and what is guaranteed to it at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_bytes_per_second: Option<f64>,
    /// Within the last second or two.
    pub sent_bytes_per_second: f64,
    /// It had to wait for others within the last second.
    pub held: bool,
    /// What was lost of what the far end sent on the path of late, 0 to 1; absent of what this side
    /// sends itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// How long ago the far end told this, which it does each second while packets flow; absent of
    /// what this side sends itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_seconds: Option<f64>,
}

/// The queue of a class at the far end, as that tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarQueueStatus {
    #[serde(flatten)]
    pub queue: QueueStatus,
    /// How long ago it told this.
    pub told_seconds: f64,
}
