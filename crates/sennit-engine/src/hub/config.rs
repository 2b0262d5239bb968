//! What a hub is told, and what it tells.

use std::{net::IpAddr, time::Instant};

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use sennit_core::{ClassId, Classifier, PathState, health};
use sennit_masque::{StreamId, capsule::NextAuthority, connect_udp::Target};
use sennit_packet::{Bitrate, IpPacket, Prefix};

use crate::ids::{ConnId, SiteId};

/// What a hub needs to know.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// The hub's own inner addresses, one per family; ICMP errors come from them.
    pub addresses: Vec<IpAddr>,
    /// Connections in handshake or without a granted request, over all peers.
    pub max_strangers: usize,
    /// What a site gets on all its links together.
    pub site_limit: Option<Bitrate>,
    /// Which class takes a flow that begins here.
    pub classes: HubClasses,
    /// UDP flows that one connection may have proxied at once (RFC 9298); none are if it is zero.
    pub udp_flows: u32,
}

/// Rules for flows that begin at the hub: sites number their classes as they like, so these go by
/// names.
#[derive(Clone, Debug, Default)]
pub struct HubClasses {
    /// Its classes are places in `names`.
    pub classifier: Classifier,
    /// Names of classes.
    pub names: Vec<String>,
}

impl HubClasses {
    /// The class of a packet of `size` bytes, if a rule matches it.
    pub(super) fn name(&self, packet: &IpPacket<'_>, size: usize) -> Option<&str> {
        let (place, rule) = self.classifier.explain(packet, size);
        rule?;
        self.names.get(usize::from(place.0)).map(String::as_str)
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum HubEvent {
    /// A peer wants a tunnel: answer by [`Hub::grant`] or [`Hub::refuse`].
    Connect {
        /// Names the request in the answer.
        request: RequestId,
        /// Its certificate chain, verified up to our authority; empty if it showed none.
        certificates: Vec<CertificateDer<'static>>,
        /// Its bearer token, if it showed one.
        bearer: Option<String>,
        /// It moves to another authority when it is told of one.
        moves: bool,
    },
    /// A peer wants a certificate: answer by [`Hub::reply`].
    Enrol {
        /// Names the request in the answer.
        request: RequestId,
        /// Its certificate chain; not empty if it renews.
        certificates: Vec<CertificateDer<'static>>,
        /// What it posted.
        body: Bytes,
    },
    /// A peer wants UDP proxied: answer by [`Hub::grant_udp`] or [`Hub::refuse_udp`].
    Udp {
        /// Names the flow in the answer, and from then on.
        request: RequestId,
        /// Its certificate chain, as in [`HubEvent::Connect`].
        certificates: Vec<CertificateDer<'static>>,
        /// Its bearer token, if it showed one.
        bearer: Option<String>,
        /// Whom it wants to talk to.
        target: Target,
    },
    /// A payload for the target of a flow that was granted.
    UdpPayload {
        /// The flow.
        request: RequestId,
        /// What goes into one UDP packet.
        payload: Bytes,
    },
    /// A flow is over, or a request for one was taken back.
    UdpEnded {
        /// The flow.
        request: RequestId,
    },
    /// A site can send and receive in one class.
    TunnelUp {
        /// Which site.
        site: SiteId,
        /// Which class.
        class: String,
        /// The site's number of the class.
        class_id: ClassId,
        /// The site's inner addresses.
        addresses: Vec<IpAddr>,
    },
    /// A site lost the tunnel of one class. Its prefixes are its own until [`Hub::set_lan`] takes
    /// them, also if that was its last tunnel.
    TunnelDown {
        /// Which site.
        site: SiteId,
        /// Which class.
        class: String,
        /// The site's number of the class.
        class_id: ClassId,
        /// Why.
        reason: String,
    },
    /// A site says that these prefixes are behind it, and no others any more. None of them is its
    /// before [`Hub::set_lan`].
    Lan {
        /// Which site.
        site: SiteId,
        /// What it announced.
        prefixes: Vec<Prefix>,
        /// How many ranges were left out, because they are no prefixes or too many.
        left_out: usize,
    },
    /// A path changed its state.
    Path {
        /// Its site.
        site: SiteId,
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
}

/// Names a request that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    pub(super) conn: ConnId,
    pub(super) stream: StreamId,
}

impl RequestId {
    /// A request of no hub, for callers that test themselves without one.
    pub fn of_nobody(number: u64) -> Self {
        Self {
            conn: ConnId(number),
            stream: StreamId(0),
        }
    }
}

/// Why a flow is not proxied, in the words of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpRefusal {
    /// The status of the response.
    pub status: u16,
    /// Error type of Proxy-Status (RFC 9209 §2.3), if one says what it is.
    pub error: Option<&'static str>,
    /// What is wrong, for a person.
    pub reason: String,
}

/// What a site gets.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Its name.
    pub site: SiteId,
    /// Its inner addresses.
    pub addresses: Vec<IpAddr>,
    /// What it proved itself by; [`Hub::expel_credential`] ends what hangs on it.
    pub credential: Credential,
    /// The authority that it should move to, if it is not the one it has; told to who moves.
    pub next: Option<NextAuthority>,
}

/// A certificate or a token, as the caller tells one from another.
pub type Credential = [u8; 32];

/// The destination of a packet is at no site of this hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchSite(pub IpAddr);
