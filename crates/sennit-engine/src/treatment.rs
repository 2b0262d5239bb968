//! How a class wants its packets treated: what an edge is told, and tells its hub.

use sennit_core::{Congestion, Delivery, Headers, Policy};
use sennit_fec::Fec;

/// How a class treats its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// Use of links.
    pub policy: Policy,
    /// Fate of lost packets.
    pub delivery: Delivery,
    /// How many copies of each packet [`Policy::Redundant`] sends.
    pub copies: u8,
    /// Congestion controller of each path, at both ends.
    pub congestion: Congestion,
    /// How the headers of its packets travel, in both directions.
    pub headers: Headers,
    /// How packets are protected, at both ends.
    pub fec: Fec,
}

impl Default for Treatment {
    /// That of a class which says nothing.
    fn default() -> Self {
        Self {
            policy: Policy::Bond,
            delivery: Delivery::Repair,
            copies: 2,
            congestion: Congestion::Auto,
            headers: Headers::Thin,
            fec: Fec::Auto,
        }
    }
}

/// Copies that an edge may ask for.
pub const MOST_COPIES: u8 = 8;
