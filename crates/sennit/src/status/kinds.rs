//! The words of the document: each says one thing to programs, and the same to people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Edge,
    Hub,
}

/// Of a daemon or a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Everything that is configured works.
    Up,
    Connecting,
    /// Traffic flows, but not all that is configured works.
    Degraded,
    Down,
}

impl State {
    /// Whether traffic can flow.
    pub fn is_usable(self) -> bool {
        match self {
            Self::Up | Self::Degraded => true,
            Self::Connecting | Self::Down => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// It has carrier and an address, and is not known to be dead.
    Up,
    /// It has not, or nothing passes between it and the hub.
    Down,
}

/// What a flow does with the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Its packets take turns on several.
    Striped,
    OneLink,
    /// Each packet takes several.
    Copies,
    /// It sent nothing of late.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    Up,
    /// It is heard again, and has to prove itself.
    Probation,
    /// It has been silent for longer than it should, or the peer's new address is not validated.
    Suspect,
    Down,
}

/// Why a path is not up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing arrives from the peer.
    Silent,
    /// The peer says that nothing arrives there.
    Unheard,
    /// It came back just now and has to prove itself.
    Returned,
    /// It came back, but fell again and again of late.
    Relapsed,
    /// The peer says that its link is down.
    PeerLinkDown,
    /// The peer says that its operator has paused the link.
    PeerPaused,
    /// Its interface has no carrier or no address.
    LinkDown,
    /// The peer's new address is not validated yet (RFC 9000 §8.2).
    NotValidated,
}

/// Why a link is not up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkCause {
    /// The daemon has just started.
    NotLookedAt,
    /// There is no such interface.
    NoInterface,
    /// The interface has no carrier, or is switched off.
    InterfaceDown,
    /// The interface has no address.
    NoAddress,
    /// The interface carries no packets as large as QUIC needs.
    MtuTooSmall,
    /// This host does not let us use it.
    Unusable,
    /// The operator wants it so.
    Paused,
    /// Its interface works, and nothing passes between it and the hub.
    NoPath,
}

/// How the size of a path's packets is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MtuSource {
    Assumed,
    Probed,
    Interface,
    /// Larger ones arrived before, and do not any more.
    #[serde(rename = "black hole")]
    BlackHole,
}

/// A congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    Bbr,
    Bbr3,
    Cubic,
    Follow,
}

/// Why a path has the congestion controller that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CongestionCause {
    /// It was asked for by name.
    Configured,
    /// Nothing asks for another.
    Usual,
    /// Other flows fill the path's queue.
    Crowded,
    /// The path loses much whatever is sent.
    Lossy,
    /// The path's rate moves all the time.
    Moving,
}
