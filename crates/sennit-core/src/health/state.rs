//! The states of a path, why it is in one, and what a path that is not trusted gets.

use std::fmt;

/// How a path is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathState {
    /// It carries packets.
    Up,
    /// It is heard again, but is not trusted yet; packets go elsewhere.
    Probation,
    /// Nothing was heard of late; packets go elsewhere.
    Suspect,
    /// Nothing was heard for seconds, or its link is gone.
    Down,
}

/// Which packets a path gets copies of although it is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// None.
    None,
    /// Those that are small and come alone.
    Small,
    /// All, as far as it has room.
    All,
}

/// Why a path is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Packets arrive in both directions.
    Heard,
    /// Packets arrive again, but for how long?
    Returned,
    /// Packets arrive again, but the path fell again and again of late.
    Relapsed,
    /// Nothing arrives here.
    Silent,
    /// The peer says that nothing arrives there.
    PeerHearsNothing,
    /// The peer says that its link is down.
    PeerLinkDown,
    /// The peer says that its operator has paused the link.
    PeerPaused,
    /// The link has no carrier, no address, or was taken down.
    LinkDown,
    /// The peer's address is new and not validated, so QUIC sends it no data (RFC 9000 §9.3). Not
    /// found here.
    NotValidated,
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Up => "up",
            Self::Probation => "probation",
            Self::Suspect => "suspect",
            Self::Down => "down",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Heard => "packets arrive in both directions",
            Self::Returned => "it came back just now and has to prove itself",
            Self::Relapsed => "it fell again and again and has to be steady for longer",
            Self::Silent => "nothing arrives from the peer",
            Self::PeerHearsNothing => "the peer receives nothing",
            Self::PeerLinkDown => "the link is down at the other end",
            Self::PeerPaused => "the other end has paused it",
            Self::LinkDown => "the link is down",
            Self::NotValidated => "its new address is not validated yet",
        })
    }
}
