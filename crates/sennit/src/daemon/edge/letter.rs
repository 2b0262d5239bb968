//! What the workers of an edge tell each other, and hear from its other threads.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use sennit_engine::{Edge, SocketId};
use sennit_packet::Prefix;

use super::{probe::Verdict, running::Running, watch::Found, way::Resolved};
use crate::daemon::reload::Done;

/// What workers tell each other.
pub(super) enum Letter {
    /// From the first: the links, as they are now.
    Links(Arc<[Found]>),
    /// From the first: an engine in place of the one so far, as there is a certificate.
    Engine(Box<Edge>),
    /// Another config; to be told when it is done.
    Change(Arc<Running>, Done),
    /// The links that have used up their caps.
    Over(Arc<BTreeSet<String>>),
    /// The links that help those before them.
    Helpers(Arc<BTreeSet<String>>),
    /// To the first: what the hub assigned.
    Addresses(Vec<Prefix>),
    /// To the first: the hub's own addresses in the tunnel.
    HubInside(Vec<IpAddr>),
    /// The hub's addresses, as looked up over each link.
    Resolved(Arc<Resolved>),
    /// To the first: what the hub answers over each link.
    Probed(Vec<(SocketId, Option<Verdict>)>),
}
