//! One link of an edge: how it is, what passes there, and what it may cost.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LinkCause, LinkState, PublicStatus};

/// One WAN interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStatus {
    pub name: String,
    pub interface: String,
    /// The address that its paths start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Where the hub sees its packets come from, IPv4 first; empty while that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub public: Vec<PublicStatus>,
    pub tier: u8,
    pub weight: u16,
    pub state: LinkState,
    /// Why the state is not `up`, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<LinkCause>,
    /// Why the state is not `up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// While there is no tunnel, or no path on this link, or nothing can be sent: what the hub
    /// answers over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// How long it has been in this state.
    #[serde(default)]
    pub since_seconds: f64,
    /// It is in reserve, by its tier, its cost or its cap: others are used before it. One that
    /// helps others is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// What the edge sends there at most, where that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_limit_bytes_per_second: Option<f64>,
    /// What the hub sends there at most, where that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_limit_bytes_per_second: Option<f64>,
    /// A bound is an operator's, until the edge ends, and not the config's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited_by_operator: bool,
    /// That of what the edge sends is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub up_limited_by_operator: bool,
    /// That of what the hub sends is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down_limited_by_operator: bool,
    /// By how much `sent_bytes` has grown in the last second for which the history was kept; absent
    /// if that is longer ago than a few seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes_per_second: Option<f64>,
    /// By how much `received_bytes` has grown in that second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes_per_second: Option<f64>,
    /// Of a link that has a cap or costs something, once it is known what it has carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<LinkAccount>,
    #[serde(default, flatten)]
    pub traffic: LinkTraffic,
}

/// What a link has carried in its billing cycle, both ways, and what that means; as it was written
/// down last, some seconds ago.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkAccount {
    /// Links of one tier are used in the order of their cost.
    pub cost: u8,
    /// What it may carry in a cycle, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_bytes: Option<u64>,
    /// UDP payload.
    pub used_bytes: u64,
    /// What the cycle comes to if it goes on like this; absent on its first day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast_bytes: Option<u64>,
    /// The day on which the next cycle begins, in UTC.
    pub cycle_end: String,
    /// Until then, today counted.
    pub days_left: u64,
    /// The cap is used up: the link is in reserve behind all others.
    pub demoted: bool,
}

impl LinkAccount {
    /// The cap, and what the cycle comes to, if it will not last.
    pub(crate) fn shortfall(&self) -> Option<(u64, u64)> {
        let (cap, forecast) = (self.cap_bytes?, self.forecast_bytes?);
        (forecast > cap && !self.demoted).then_some((cap, forecast))
    }
}

/// What all classes do on a link together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinkTraffic {
    /// UDP payload. It begins anew when an edge joins again; at a hub, when the site has no path on
    /// the link.
    pub sent_bytes: u64,
    /// UDP payload. It begins anew as `sent_bytes` does.
    pub received_bytes: u64,
    /// What arrives at the other end.
    pub delivered_bytes_per_second: f64,
    /// The least smoothed round trip of its paths that are up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_seconds: Option<f64>,
    /// Of the packets of the last half minute to minute on its paths, 0 to 1; absent if there were
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
}
