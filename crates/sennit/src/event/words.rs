//! What events say of a thing, as a word for programs and in words for people.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much is left of a cap.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CapState {
    /// It will not last for the cycle if it goes on like this.
    Forecast,
    /// Four fifths are used.
    Nearly,
    /// Nothing is left.
    Over,
}

/// What keeps a hub from all that it should do.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Its store cannot be read.
    Reading,
    /// Its store cannot be written.
    Writing,
    /// It has no address for a site that has joined.
    Pool,
    /// Nobody can see that the host keeps sites to what they may reach.
    Filter,
    /// The host does not forward packets.
    Forwarding,
    /// It cannot go by the authority that there is.
    Authority,
}

/// A direction, as an edge sees it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Up,
    Down,
}

impl fmt::Display for CapState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forecast => "will not last for the cycle if it goes on like this",
            Self::Nearly => "is nearly used up",
            Self::Over => "is used up: the link is in reserve behind all others",
        })
    }
}

/// What is well again.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "its store can be read again",
            Self::Writing => "its store can be written again",
            Self::Pool => "its pool has addresses again",
            Self::Filter => "sites are kept to what they may reach again",
            Self::Forwarding => "its host forwards packets again",
            Self::Authority => "it goes by the authority that there is again",
        })
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}
