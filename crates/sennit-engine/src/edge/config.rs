//! What an edge is told, and what it tells.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use sennit_core::{ClassId, Classifier, PathState, frame::Away, health};
use sennit_masque::capsule::NextAuthority;
use sennit_packet::Prefix;

use crate::{
    facts::LinkLabel,
    ids::{HubName, SocketId},
    sharing::Sharing,
    treatment::Treatment,
};

/// A traffic class of this edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Name from the configuration.
    pub name: String,
    /// How it treats packets.
    pub treatment: Treatment,
    /// The code point of its outer packets, at both ends (RFC 2474).
    pub dscp: u8,
    /// The names of the links that it may use; without a list it may use all.
    pub links: Option<Vec<String>>,
}

impl ClassConfig {
    /// Whether its packets may go over a link.
    pub(super) fn may_use(&self, link: &str) -> bool {
        let links = self.links.as_ref();
        links.is_none_or(|links| links.iter().any(|name| name == link))
    }
}

/// What an edge needs to know.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// Addresses of the hub.
    pub hubs: Vec<SocketAddr>,
    /// Names of the hub, of which the caller says what they are found to mean.
    pub hub_names: Vec<HubName>,
    /// Name its certificate must bear.
    pub server_name: String,
    /// The classes that this edge carries. Another one of the same host may carry more.
    pub classes: BTreeMap<ClassId, ClassConfig>,
    /// Which packet belongs to which class, of all that there are.
    pub classifier: Classifier,
    /// How the classes share the links, if the config says so: what all edges of one host have in
    /// common.
    pub sharing: Option<Arc<Sharing>>,
    /// TLS without post-quantum key exchange, for links on which handshakes with it go unanswered.
    pub classic: Option<Arc<rustls::ClientConfig>>,
    /// Prefixes behind this edge.
    pub lan: Vec<Prefix>,
    /// Token for a proxy that does not take our certificate.
    pub bearer: Option<String>,
    /// Chooses the worker of the hub that all connections come to; any number, as long as it stays
    /// the same.
    pub steering: u8,
}

/// What the connections are for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Carry traffic.
    Tunnels,
    /// Post this request for a certificate; an edge without classes leaves that to another.
    Enrol(Bytes),
}

/// Where a packet for the tunnel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The device of all classes: the rules decide.
    Main,
    /// The device of this class: rules of classes before it decide, if the classifier has any.
    Device(ClassId),
    /// Another edge of this host, which has found that it is of this class.
    Sorted(ClassId),
}

/// A packet of this class came to an edge that does not carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurClass(pub ClassId);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeEvent {
    /// The hub answered the enrolment.
    Enrolled(Bytes),
    /// The hub assigned these addresses.
    Addresses(Vec<Prefix>),
    /// The hub does not route these of our prefixes, for these reasons; the others it does.
    LanRefused(Vec<(Prefix, String)>),
    /// The hub has these addresses of its own in the tunnel.
    HubInside(Vec<IpAddr>),
    /// The hub has another authority, which this edge should move to; each tunnel may hear of it.
    Authority(NextAuthority),
    /// A class can carry packets.
    TunnelUp {
        /// Which.
        class: String,
        /// Link that completed the handshake first.
        link: String,
        /// Whether more links can join.
        multipath: bool,
    },
    /// The tunnel of a class runs to another address of the hub from now on.
    TunnelMoved {
        /// Which.
        class: String,
        /// Where it ran to.
        from: SocketAddr,
        /// Where it runs to.
        to: SocketAddr,
    },
    /// A class lost its tunnel.
    TunnelDown {
        /// Which.
        class: String,
        /// Why.
        reason: String,
    },
    /// The hub, or the TLS handshake, said no; it is tried again later.
    Refused {
        /// Which class.
        class: String,
        /// What it said.
        reason: String,
        /// It will go on saying so until its operator does something about it.
        lasting: bool,
    },
    /// A path came up, or changed its state.
    Path {
        /// Its class.
        class: String,
        /// Its link.
        link: String,
        /// Its state.
        state: PathState,
        /// The state before.
        before: PathState,
        /// Why.
        reason: health::Reason,
        /// When anything was last heard on it while packets flowed; when it changed, if none did.
        heard: Instant,
    },
    /// Nothing passes on a link for long: its socket should be replaced by one with another port,
    /// because a NAT may hold a mapping for this one that leads nowhere.
    NewPort {
        /// The link's socket.
        socket: SocketId,
        /// The link.
        link: String,
    },
    /// A path was given up; it is opened again if its link is up.
    PathClosed {
        /// Its class.
        class: String,
        /// Its link.
        link: String,
        /// Why.
        reason: String,
    },
}

/// What the caller says of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkUpdate {
    /// Its socket.
    pub socket: SocketId,
    /// Its name, tier and weight.
    pub label: LinkLabel,
    /// Whether its socket can send IPv4, and IPv6.
    pub v4: bool,
    /// Whether its socket can send IPv6.
    pub v6: bool,
    /// How often one of its addresses was replaced by another.
    pub moves: u32,
    /// Largest IP packet that its interface sends, if that is known.
    pub mtu: Option<u32>,
    /// Its operator wants it to carry nothing, whatever it could.
    pub paused: bool,
}

impl LinkUpdate {
    /// Largest UDP payload that its interface sends.
    pub(super) fn payload_to(&self, remote: SocketAddr) -> u16 {
        let headers = if remote.is_ipv4() { 20 + 8 } else { 40 + 8 };
        let payload = self.mtu.map(|mtu| mtu.saturating_sub(headers));
        payload.map_or(u16::MAX, |payload| payload.try_into().unwrap_or(u16::MAX))
    }

    pub(super) fn reaches(&self, remote: SocketAddr) -> bool {
        if remote.is_ipv4() { self.v4 } else { self.v6 }
    }

    pub(super) fn is_up(&self) -> bool {
        self.v4 || self.v6
    }

    /// Why it is not up, for the hub.
    pub(super) fn away(&self) -> Option<Away> {
        match (self.paused, self.is_up()) {
            (true, _) => Some(Away::Paused),
            (false, false) => Some(Away::LinkDown),
            (false, true) => None,
        }
    }
}
