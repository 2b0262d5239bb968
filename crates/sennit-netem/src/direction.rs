//! Which way something goes.

use std::{
    fmt::{self, Display},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// A direction of a link, of traffic, of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the edge to the hub, or from a client to its server.
    Up,
    /// From the hub to the edge, or from a server to its client.
    Down,
}

impl Direction {
    /// Both of them, in the order in which pairs are given.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// The other one.
    #[must_use]
    pub fn reverse(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Direction {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::BOTH.into_iter().find(|way| way.name() == word);
        known.ok_or_else(|| format!("`{word}` is neither up nor down"))
    }
}
