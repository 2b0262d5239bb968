//! What links have carried, by day: counters that survive a restart, and what a cap makes of them.
//!
//! [`Ledger`] is the file; [`Cycle`] says which days a cap is about. A clock may jump, and a host
//! without a battery starts in the past: a day before the last one that was written down is not
//! believed for a while ([`Ledger::day`]).

mod cycle;
mod ledger;

pub(crate) use self::cycle::date;
pub use self::cycle::{Cycle, Forecast};
pub use self::ledger::{Ledger, LedgerError};

use serde::{Deserialize, Serialize};

/// Days since 1970-01-01, in UTC.
pub type Day = i64;

/// UDP payload that went over a link, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

impl Carried {
    pub fn total(self) -> u64 {
        self.sent_bytes + self.received_bytes
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }

    /// What came since; counters that have begun anew are counted from nothing.
    pub(crate) fn since(self, before: Self) -> Self {
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            sent_bytes: grown(self.sent_bytes, before.sent_bytes),
            received_bytes: grown(self.received_bytes, before.received_bytes),
        }
    }
}

/// What an edge says of its links, `sennit.usage/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageDocument {
    pub schema: String,
    pub links: Vec<UsageLink>,
}

impl UsageDocument {
    pub const SCHEMA: &str = "sennit.usage/1";
}

/// What one link has carried. Dates are in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageLink {
    pub link: String,
    pub cost: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_bytes: Option<u64>,
    /// The billing cycle, and the day of its end, on which the next begins.
    pub cycle_first: String,
    pub cycle_end: String,
    /// Days of the cycle that are left, today counted.
    #[serde(default)]
    pub days_left: u64,
    /// In the cycle so far.
    #[serde(flatten)]
    pub used: Carried,
    /// Of the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_ratio: Option<f64>,
    /// What the cycle comes to if it goes on like this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast_bytes: Option<u64>,
    /// The cap is used up.
    pub over: bool,
    /// The oldest first, without those on which nothing was carried.
    pub days: Vec<UsageDay>,
}

/// A day of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageDay {
    pub day: String,
    #[serde(flatten)]
    pub carried: Carried,
}
