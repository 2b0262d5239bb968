//! What things of the engine are known by.

use std::{fmt, net::SocketAddr, sync::Arc};

/// A socket of the caller: a link of an edge, or a listener of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

/// A name of the hub, with its port.
pub type HubName = Arc<str>;

/// An address that a name of the hub was found to have.
pub type FoundHub = (HubName, SocketAddr);

/// Names a connection of a node; never reused while the node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Names a link of an edge or of a site; never reused while the node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Names a site of a hub, as the hub's caller calls it. A clone costs no memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub(crate) Arc<str>);

impl SiteId {
    /// What it is called.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SiteId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names a pipe of a node; never reused while the node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PipeId(pub(crate) u64);
