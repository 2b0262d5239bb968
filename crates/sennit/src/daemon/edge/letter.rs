//! What the workers of an edge tell each other, and hear from its other threads.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, mpsc::Sender},
};

use sennit_engine::{Edge, SocketId};
use sennit_packet::Prefix;

use super::{far_side::Proofs, probe::Verdict, running::Running, watch::Found, way::Resolved};
use crate::{daemon::reload::Done, identity::EdgeIdentity, site::SiteName};

/// Why an edge stays who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakesNot {
    /// It is no site of a hub.
    Proxied,
    /// Another hub has invited it, and not the one that the config names.
    OtherHub,
}

/// What workers tell each other.
pub(super) enum Letter {
    /// From the first: the links, as they are now.
    Links(Arc<[Found]>),
    /// To the first: the links are to be looked at again, as something was refused for one.
    Look,
    /// From the first: an engine in place of the one so far, as there is a certificate, and of
    /// which site.
    Engine(Box<Edge>, SiteName),
    /// Another config; to be told when it is done.
    Change(Arc<Running>, Done),
    /// From the first: by what this edge proves who it is from now on.
    Proofs(Proofs),
    /// To the first: the certificate was exchanged for a fresh one.
    Renewed(Box<EdgeIdentity>),
    /// To the first: it was not, for this reason; nothing if it need not be.
    NotRenewed(Option<String>),
    /// To the first: who this edge is from now on; to be told whether it is.
    Identity(Box<EdgeIdentity>, Sender<Result<(), TakesNot>>),
    /// The links that have used up their caps.
    Over(Arc<BTreeSet<String>>),
    /// The links that help those before them.
    Helpers(Arc<BTreeSet<String>>),
    /// To the first: what the hub assigned.
    Addresses(Vec<Prefix>),
    /// To the first: what the hub does not route of the LAN.
    LanRefused(Vec<(Prefix, String)>),
    /// To the first: the hub's own addresses in the tunnel.
    HubInside(Vec<IpAddr>),
    /// The hub's addresses, as looked up over each link.
    Resolved(Arc<Resolved>),
    /// To the first: how many tunnels of a worker are up.
    Tunnels(usize, usize),
    /// To the first: what the hub answers over each link.
    Probed(Vec<(SocketId, Option<Verdict>)>),
}
