//! The far side: terminates the tunnels of many sites.
//!
//! Whoever connects is nobody until its request is granted. A request for a tunnel becomes
//! [`HubEvent::Connect`] with the certificates of the peer, and the caller, who knows the sites,
//! answers by [`Hub::grant`] or [`Hub::refuse`]; so no lookup ever holds up another tunnel. A site
//! has one tunnel per class; a new one for the same class replaces the old. Packets for a site are
//! found by destination ([`sites`]) and leave in the class that their flow came in.

mod sites;

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use noq_proto::{PathId, ServerConfig, crypto::rustls::QuicServerConfig};
use rustls::pki_types::CertificateDer;
use sennit_core::{ClassId, Congestion, Delivery, PathState, Policy, health};
use sennit_masque::{
    self as masque, Capsule, Code, RequestHead, ResponseHead, StreamId,
    capsule::{AssignedAddress, IpAddressRange, RequestedAddress},
    connect_ip,
};
use sennit_packet::{IpPacket, Prefix, gso::VirtioNetHdr, icmp};
use sites::Sites;

use crate::{
    edge::ENROL_PATH,
    hello::{self, Hello},
    inner::{self, Errors, Refused},
    node::{ConnId, Node, NodeEvent, Received, Transmit},
    path::{LinkLabel, number},
    status::{FlowsWanted, TunnelStatus},
    transport::Settings,
    tunnel::Treatment,
};

/// What a hub needs to know.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// The hub's own inner addresses, one per family; ICMP errors come from them.
    pub addresses: Vec<IpAddr>,
    /// Prefixes that sites get their addresses from; nobody may announce them as a LAN.
    pub pool: Vec<Prefix>,
    /// Connections in handshake or without a granted request, over all peers.
    pub max_strangers: usize,
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
    /// A site can send and receive in one class.
    TunnelUp {
        /// Which site.
        site: String,
        /// Which class.
        class: String,
        /// The site's number of the class.
        class_id: ClassId,
        /// The site's inner addresses.
        addresses: Vec<IpAddr>,
    },
    /// A site lost the tunnel of one class.
    TunnelDown {
        /// Which site.
        site: String,
        /// Which class.
        class: String,
        /// The site's number of the class.
        class_id: ClassId,
        /// Why.
        reason: String,
    },
    /// The prefixes behind a site are now these; all of them should be routed to the TUN device.
    /// A caller with several hubs may have objections: see [`Hub::confine`].
    Lan {
        /// Which site.
        site: String,
        /// What it announced and nobody else has.
        prefixes: Vec<Prefix>,
    },
    /// A path changed its state.
    Path {
        /// Its site.
        site: String,
        /// Its class.
        class: String,
        /// Its link.
        link: String,
        /// Its state.
        state: PathState,
        /// Why.
        reason: health::Reason,
    },
}

/// Names a request that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    conn: ConnId,
    stream: StreamId,
}

/// What a site gets.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Its name.
    pub site: String,
    /// Its inner addresses.
    pub addresses: Vec<IpAddr>,
}

/// The destination of a packet is at no site of this hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchSite;

/// What a connection is to us.
#[derive(Debug)]
struct Role {
    since: Instant,
    stage: Stage,
    /// Link descriptions that came before their path was validated.
    links: BTreeMap<u64, LinkLabel>,
}

#[derive(Debug)]
enum Stage {
    Stranger,
    /// Waits for the caller's answer.
    Asking {
        stream: StreamId,
        hello: Option<Hello>,
    },
    Posting {
        stream: StreamId,
        body: BytesMut,
    },
    Up {
        site: String,
        class: ClassId,
        name: String,
        stream: StreamId,
        treatment: Treatment,
    },
    Closing,
}

impl Role {
    /// Whether the request on `stream` is the one that is not answered yet.
    fn awaits(&self, stream: StreamId) -> bool {
        match &self.stage {
            Stage::Asking { stream: asked, .. } | Stage::Posting { stream: asked, .. } => {
                *asked == stream
            }
            Stage::Stranger | Stage::Up { .. } | Stage::Closing => false,
        }
    }
}

/// More path descriptions than this are not kept for paths that do not exist.
const MAX_EARLY_LINKS: usize = 32;
/// Why a tunnel is closed whose class has a newer one.
const REPLACED: &str = "replaced by a newer connection";
/// An enrolment is a token and a certificate request.
const MAX_BODY: usize = 16 << 10;

/// Paths before a tunnel is granted. noq 1.4 panics when the PATH_ACKs of many paths with many gaps
/// do not fit a packet; whom nobody knows shall not be able to do that.
const STRANGERS_PATHS: u32 = 1;

/// The hub state machine.
pub struct Hub {
    node: Node<Role>,
    config: HubConfig,
    sites: Sites,
    errors: Errors,
    to_tun: VecDeque<Bytes>,
    events: VecDeque<HubEvent>,
}

impl Hub {
    /// A hub that accepts connections.
    ///
    /// # Errors
    /// If the TLS configuration lacks the cipher suite that QUIC begins with.
    pub fn new(
        settings: Settings,
        config: HubConfig,
        tls: Arc<rustls::ServerConfig>,
        now: Instant,
    ) -> Result<Self, noq_proto::crypto::rustls::NoInitialCipherSuite> {
        let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
        let mut transport = settings.transport(Congestion::Auto);
        transport.max_concurrent_multipath_paths(STRANGERS_PATHS);
        server.transport_config(Arc::new(transport));
        server.migration(true);
        server.max_incoming(config.max_strangers);
        Ok(Self {
            node: Node::new(settings, Some(Arc::new(server))),
            sites: Sites::new(config.pool.clone()),
            config,
            errors: Errors::new(now),
            to_tun: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    // ---- input ---------------------------------------------------------------------------------

    /// UDP packets arrived.
    pub fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        self.node.handle_datagrams(from, data, now);
        while let Some((incoming, local)) = self.node.poll_incoming() {
            let role = Role {
                since: now,
                stage: Stage::Stranger,
                links: BTreeMap::new(),
            };
            if self.strangers() >= self.config.max_strangers {
                self.node.refuse(incoming, local);
            } else {
                self.node.accept(incoming, local, role, now);
            }
        }
    }

    /// A packet, or a super-packet, came from the TUN device.
    pub fn handle_packet(&mut self, header: &VirtioNetHdr, packet: &[u8], now: Instant) {
        if self.offer_packet(header, packet, now) == Err(NoSuchSite) {
            self.handle_unreachable(packet, now);
        }
    }

    /// The same, but leaves a packet to the caller whose destination is at no site.
    ///
    /// # Errors
    /// If another hub of the same host may have its site; if none has, it is one for
    /// [`Self::handle_unreachable`].
    pub fn offer_packet(
        &mut self,
        header: &VirtioNetHdr,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), NoSuchSite> {
        let Ok(parsed) = IpPacket::parse(packet) else {
            return Ok(());
        };
        if inner::stays_local(&parsed) {
            return Ok(());
        }
        let id = self.sites.route(&parsed, now).ok_or(NoSuchSite)?;
        let Some(conn) = self.node.get_mut(id) else {
            return Ok(());
        };
        let mtu = conn.tunnel.max_packet();
        let sink = |queued| conn.tunnel.handle_packet(queued, now);
        if inner::segment(header, packet, mtu, sink) == Err(Refused::TooBig) {
            self.say(
                packet,
                &parsed,
                icmp::Reason::TooBig { mtu: mtu as u32 },
                now,
            );
        }
        Ok(())
    }

    /// A packet came from the TUN device for an address that nobody has.
    pub fn handle_unreachable(&mut self, packet: &[u8], now: Instant) {
        if let Ok(parsed) = IpPacket::parse(packet) {
            self.say(packet, &parsed, icmp::Reason::HostUnreachable, now);
        }
    }

    fn say(&mut self, packet: &[u8], parsed: &IpPacket<'_>, reason: icmp::Reason, now: Instant) {
        let Some(source) = inner::error_source(parsed, self.config.addresses.iter().copied())
        else {
            return;
        };
        self.to_tun
            .extend(self.errors.about(packet, reason, source, now));
    }

    /// The time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }

    /// Closes all tunnels; what [`Self::poll_transmit`] still yields should be sent.
    pub fn close(&mut self, now: Instant) {
        let ids: Vec<ConnId> = self.node.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.node.close(id, Code::H3_NO_ERROR.0, "hub stops", now);
        }
    }

    /// Grants a tunnel.
    pub fn grant(&mut self, request: RequestId, grant: Grant, now: Instant) {
        let RequestId { conn: id, stream } = request;
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let hello = match &mut conn.role.stage {
            Stage::Asking {
                stream: asked,
                hello,
            } if *asked == stream => hello.take(),
            _ => return,
        };
        let mut head = ResponseHead::new(200);
        head.fields = connect_ip::response_fields();
        if hello.is_some() {
            head.fields.push(hello::NAME, hello::answer());
        }
        let sent = conn.h3.http.respond(stream, &head, false).and_then(|()| {
            conn.h3
                .http
                .send_capsule(stream, &assignment(&grant.addresses, &[]))?;
            conn.h3
                .http
                .send_capsule(stream, &everywhere(&grant.addresses))
        });
        if let Err(error) = sent {
            tracing::debug!(%error, site = grant.site, "the peer left before it was answered");
            return;
        }
        conn.tunnel.open_data(stream, hello.is_some(), now);
        conn.tunnel.allow_paths(now);
        // A plain RFC 9484 client has one tunnel, on one path at a time.
        let plain = Treatment {
            policy: Policy::Failover,
            delivery: Delivery::Datagram,
            ..Treatment::default()
        };
        let (name, class, treatment) = match hello {
            Some(hello) => (hello.class, hello.index, hello.treatment),
            None => ("default".to_owned(), ClassId::default(), plain),
        };
        conn.tunnel.set_treatment(treatment);
        let (site, addresses) = (grant.site.clone(), grant.addresses.clone());
        conn.role.stage = Stage::Up {
            site: site.clone(),
            class,
            name: name.clone(),
            stream,
            treatment,
        };
        if let Some(old) = self.sites.enter(grant, class, id) {
            self.node.close(old, Code::H3_NO_ERROR.0, REPLACED, now);
            if let Some(conn) = self.node.get_mut(old) {
                conn.role.stage = Stage::Closing;
            }
        }
        self.events.push_back(HubEvent::TunnelUp {
            site,
            class: name,
            class_id: class,
            addresses,
        });
    }

    /// Refuses a tunnel or an enrolment, saying why.
    pub fn refuse(&mut self, request: RequestId, status: u16, reason: &str, now: Instant) {
        if self.conclude(request, now) {
            self.turn_down(request, status, reason);
        }
    }

    /// Whether a request still waits for its answer; then it does so no longer.
    fn conclude(&mut self, request: RequestId, now: Instant) -> bool {
        let conn = self.node.get_mut(request.conn);
        let Some(conn) = conn.filter(|conn| conn.role.awaits(request.stream)) else {
            return false;
        };
        conn.role.stage = Stage::Stranger;
        conn.role.since = now;
        true
    }

    /// Answers an enrolment.
    pub fn reply(&mut self, request: RequestId, status: u16, body: Bytes, now: Instant) {
        if !self.conclude(request, now) {
            return;
        }
        let Some(conn) = self.node.get_mut(request.conn) else {
            return;
        };
        let sent = conn
            .h3
            .http
            .respond(request.stream, &ResponseHead::new(status), false)
            .and_then(|()| conn.h3.http.send_data(request.stream, body, true));
        if let Err(error) = sent {
            tracing::debug!(%error, "the peer left before its enrolment was answered");
        }
    }

    /// Closes the tunnel of a site's class, which has a newer one with another hub of this host.
    pub fn replace(&mut self, site: &str, class: ClassId, now: Instant) {
        if let Some(id) = self.sites.tunnel(site, class) {
            self.node.close(id, Code::H3_NO_ERROR.0, REPLACED, now);
            self.leave(id, REPLACED.to_owned());
        }
    }

    /// Leaves a site only those of its announced prefixes that are among these.
    pub fn confine(&mut self, site: &str, prefixes: &[Prefix]) {
        self.sites.confine(site, prefixes);
    }

    /// Closes all tunnels of a site, which was revoked.
    pub fn expel(&mut self, site: &str, reason: &str, now: Instant) {
        for id in self.sites.tunnels(site) {
            self.node
                .close(id, Code::H3_REQUEST_REJECTED.0, reason, now);
            self.leave(id, reason.to_owned());
        }
    }

    // ---- output --------------------------------------------------------------------------------

    /// The next event. Drain this after every input, before the packets.
    pub fn poll_event(&mut self, now: Instant) -> Option<HubEvent> {
        while let Some(event) = self.node.poll_event(now) {
            self.handle_node(event, now);
        }
        self.events.pop_front()
    }

    /// The next packet for the TUN device.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Bytes> {
        if let Some(packet) = self.to_tun.pop_front() {
            return Some(packet);
        }
        while let Some((id, packet)) = self.node.poll_packet() {
            if self.admit(id, &packet, now) {
                return Some(packet);
            }
        }
        None
    }

    /// Whether a packet of a site bears a source address of the site (RFC 9484 §4.7.1).
    fn admit(&mut self, id: ConnId, packet: &[u8], now: Instant) -> bool {
        let Ok(parsed) = IpPacket::parse(packet) else {
            return false;
        };
        let Some(conn) = self.node.get_mut(id) else {
            return false;
        };
        let Stage::Up { site, class, .. } = &conn.role.stage else {
            return false;
        };
        let admitted = self.sites.admit(site, *class, &parsed, now);
        conn.tunnel.stats.wrong_source += u64::from(!admitted);
        admitted
    }

    /// The next batch for a socket, its bytes appended to the empty `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.node.poll_transmit(buffer, now)
    }

    /// When [`Self::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.node.poll_timeout()
    }

    /// The state of every tunnel.
    pub fn status(&mut self) -> Vec<TunnelStatus> {
        self.collect_status(None)
    }

    /// The same with flows, as they are in the direction to the sites.
    pub fn status_with_flows(&mut self, wanted: &FlowsWanted, now: Instant) -> Vec<TunnelStatus> {
        self.collect_status(Some((wanted, now)))
    }

    fn collect_status(&mut self, wanted: Option<(&FlowsWanted, Instant)>) -> Vec<TunnelStatus> {
        let ids: Vec<ConnId> = self.node.iter().map(|(id, _)| id).collect();
        ids.into_iter()
            .filter_map(|id| self.tunnel_status(id, wanted))
            .collect()
    }

    fn tunnel_status(
        &mut self,
        id: ConnId,
        wanted: Option<(&FlowsWanted, Instant)>,
    ) -> Option<TunnelStatus> {
        let conn = self.node.get_mut(id)?;
        let Stage::Up {
            site,
            name,
            treatment,
            ..
        } = &conn.role.stage
        else {
            return None;
        };
        let mut status = TunnelStatus {
            class: name.clone(),
            site: Some(site.clone()),
            treatment: *treatment,
            up: true,
            reason: "up".into(),
            since: conn.role.since,
            backlog: 0,
            queue: Default::default(),
            stats: Default::default(),
            numbered: false,
            striping: Default::default(),
            paths: Vec::new(),
            flows: Vec::new(),
            flow_count: 0,
        };
        conn.describe(&mut status, wanted);
        Some(status)
    }

    // ---- connections ---------------------------------------------------------------------------

    fn strangers(&self) -> usize {
        let strange = |stage: &Stage| !matches!(stage, Stage::Up { .. } | Stage::Closing);
        self.node
            .iter()
            .filter(|(_, conn)| strange(&conn.role.stage))
            .count()
    }

    fn handle_node(&mut self, event: NodeEvent, now: Instant) {
        match event {
            NodeEvent::Connected(id) => {
                self.adopt(id, PathId::ZERO, now);
                self.update_keys(id);
            }
            NodeEvent::Lost(id, reason) => self.leave(id, reason),
            NodeEvent::Http(id, event) => self.handle_http(id, event, now),
            NodeEvent::PathUp(id, path) => {
                self.adopt(id, path, now);
                self.tell_path(id, path);
            }
            NodeEvent::PathDown(id, path, reason) => {
                tracing::debug!(?id, %path, reason, "path closed");
            }
            NodeEvent::PathState(id, path) => self.tell_path(id, path),
        }
    }

    /// noq 1.4 updates its keys after 10 to 1000 packets, and then cannot read what is still under way on
    /// other paths under the old ones: it compares numbers of packets of different paths. An update
    /// before there are other paths costs nothing, and the next is due after eight million packets.
    fn update_keys(&mut self, id: ConnId) {
        if let Some(conn) = self.node.get_mut(id) {
            conn.tunnel.conn.force_key_update();
        }
    }

    fn adopt(&mut self, id: ConnId, path: PathId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let label = conn.role.links.remove(&u64::from(number(path)));
        let label = label.unwrap_or_else(|| LinkLabel {
            name: format!("path-{}", number(path)),
            tier: 1,
            weight: 1,
        });
        self.node.adopt_path(id, path, label, now);
    }

    fn leave(&mut self, id: ConnId, reason: String) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let stage = std::mem::replace(&mut conn.role.stage, Stage::Closing);
        let Stage::Up {
            site, class, name, ..
        } = stage
        else {
            return;
        };
        if self.sites.leave(&site, class, id) {
            self.events.push_back(HubEvent::Lan {
                site: site.clone(),
                prefixes: Vec::new(),
            });
        }
        self.events.push_back(HubEvent::TunnelDown {
            site,
            class: name,
            class_id: class,
            reason,
        });
    }

    fn handle_http(&mut self, id: ConnId, event: masque::Event, now: Instant) {
        match event {
            masque::Event::Request { stream, head } => self.handle_request(id, stream, &head),
            masque::Event::Data { stream, bytes } => self.handle_body(id, stream, &bytes, now),
            masque::Event::Capsule { stream, capsule } => {
                self.handle_capsule(id, stream, capsule, now);
            }
            masque::Event::Finished { stream } => self.handle_finished(id, stream, now),
            masque::Event::Reset { stream, .. } | masque::Event::Failed { stream, .. } => {
                self.handle_ended(id, stream, now);
            }
            masque::Event::Settings(_)
            | masque::Event::Response { .. }
            | masque::Event::Stopped { .. }
            | masque::Event::GoAway => {}
        }
    }

    fn handle_request(&mut self, id: ConnId, stream: StreamId, head: &RequestHead) {
        let request = RequestId { conn: id, stream };
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if !matches!(conn.role.stage, Stage::Stranger) {
            return self.turn_down(request, 429, "one request per connection");
        }
        if head.method == "POST" && head.path.as_deref() == Some(ENROL_PATH) {
            conn.role.stage = Stage::Posting {
                stream,
                body: BytesMut::new(),
            };
            return;
        }
        match connect_ip::accept(head) {
            Ok(scope) if scope == connect_ip::Scope::ANY => {}
            Ok(_) => return self.turn_down(request, 403, "only unscoped tunnels are offered"),
            Err(refusal) => {
                return self.turn_down(request, refusal.status(), &refusal.to_string());
            }
        }
        let hello = head.fields.text(hello::NAME).and_then(Hello::decode);
        let bearer = head
            .fields
            .text("authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        let event = HubEvent::Connect {
            request,
            certificates: certificates(conn),
            bearer: bearer.map(str::to_owned),
        };
        conn.role.stage = Stage::Asking { stream, hello };
        self.events.push_back(event);
    }

    /// Answers a request without a change to the connection.
    fn turn_down(&mut self, request: RequestId, status: u16, reason: &str) {
        let Some(conn) = self.node.get_mut(request.conn) else {
            return;
        };
        let mut head = ResponseHead::new(status);
        head.fields.push("sennit-reason", reason.to_owned());
        // Fails only if the peer has left.
        let _ = conn.h3.http.respond(request.stream, &head, true);
    }

    fn handle_body(&mut self, id: ConnId, stream: StreamId, bytes: &[u8], now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Posting {
            stream: posting,
            body,
        } = &mut conn.role.stage
        else {
            return;
        };
        if *posting != stream {
            return;
        }
        if body.len() + bytes.len() > MAX_BODY {
            let request = RequestId { conn: id, stream };
            return self.refuse(request, 413, "the request is too large", now);
        }
        body.extend_from_slice(bytes);
    }

    fn handle_finished(&mut self, id: ConnId, stream: StreamId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Posting {
            stream: posting,
            body,
        } = &mut conn.role.stage
        else {
            return self.handle_ended(id, stream, now);
        };
        if *posting != stream {
            return;
        }
        let body = std::mem::take(body).freeze();
        let event = HubEvent::Enrol {
            request: RequestId { conn: id, stream },
            certificates: certificates(conn),
            body,
        };
        self.events.push_back(event);
    }

    /// The peer ended a stream, perhaps the one that its tunnel hangs on.
    fn handle_ended(&mut self, id: ConnId, stream: StreamId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        match &conn.role.stage {
            Stage::Up { stream: tunnel, .. } if *tunnel == stream => {
                self.node
                    .close(id, Code::H3_NO_ERROR.0, "the tunnel ended", now);
                self.leave(id, "the peer ended the tunnel".into());
            }
            _ => {
                self.conclude(RequestId { conn: id, stream }, now);
            }
        }
    }

    fn handle_capsule(&mut self, id: ConnId, stream: StreamId, capsule: Capsule, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Up {
            site,
            stream: tunnel,
            ..
        } = &conn.role.stage
        else {
            return;
        };
        if *tunnel != stream {
            return;
        }
        match capsule {
            Capsule::RouteAdvertisement(ranges) => {
                let site = site.clone();
                let prefixes = self.sites.announce(&site, &ranges);
                self.events.push_back(HubEvent::Lan { site, prefixes });
            }
            Capsule::AddressRequest(requests) => {
                let answer = assignment(&self.sites.addresses(site), &requests);
                // Fails only if the peer has left.
                let _ = conn.h3.http.send_capsule(stream, &answer);
            }
            Capsule::Link(link) => {
                let label = LinkLabel {
                    name: link.name,
                    tier: link.tier,
                    weight: link.weight,
                };
                let path = link.path_id;
                let known = conn
                    .tunnel
                    .paths
                    .iter_mut()
                    .find(|p| u64::from(number(p.id)) == path);
                match known {
                    Some(path) => path.link = label,
                    None if conn.role.links.len() < MAX_EARLY_LINKS => {
                        conn.role.links.insert(path, label);
                    }
                    None => {}
                }
            }
            Capsule::Datagram(content) => conn.tunnel.handle_capsule(content, now),
            Capsule::AddressAssign(_) => {}
        }
    }

    fn tell_path(&mut self, id: ConnId, path: PathId) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let Stage::Up { site, name, .. } = &conn.role.stage else {
            return;
        };
        let Some(path) = conn.paths().iter().find(|known| known.id == path) else {
            return;
        };
        let (state, reason) = path.health.state();
        self.events.push_back(HubEvent::Path {
            site: site.clone(),
            class: name.clone(),
            link: path.link.name.clone(),
            state,
            reason,
        });
    }
}

/// The certificates that TLS verified.
fn certificates(conn: &crate::node::Conn<Role>) -> Vec<CertificateDer<'static>> {
    conn.tunnel
        .conn
        .crypto_session()
        .peer_identity()
        .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok())
        .map_or_else(Vec::new, |chain| *chain)
}

/// ADDRESS_ASSIGN of whole addresses; requests of the same family are answered by number.
fn assignment(addresses: &[IpAddr], requests: &[RequestedAddress]) -> Capsule {
    let mut open: Vec<&RequestedAddress> = requests.iter().collect();
    let mut assigned: Vec<AssignedAddress> = addresses
        .iter()
        .map(|&address| {
            let asked = open
                .iter()
                .position(|r| r.prefix.addr().is_ipv4() == address.is_ipv4());
            let request_id = asked.map_or(0, |index| open.remove(index).request_id);
            AssignedAddress {
                request_id,
                prefix: masque::IpPrefix::host(address),
            }
        })
        .collect();
    assigned.extend(open.into_iter().map(AssignedAddress::refusal));
    Capsule::AddressAssign(assigned)
}

/// ROUTE_ADVERTISEMENT of the whole internet, in the families that the site has addresses of.
fn everywhere(addresses: &[IpAddr]) -> Capsule {
    let range = |start: IpAddr, end: IpAddr| IpAddressRange::new(start, end, 0).ok();
    let v4 =
        range([0; 4].into(), [255; 4].into()).filter(|_| addresses.iter().any(IpAddr::is_ipv4));
    let v6 = range([0_u16; 8].into(), [0xffff_u16; 8].into())
        .filter(|_| addresses.iter().any(IpAddr::is_ipv6));
    Capsule::RouteAdvertisement(v4.into_iter().chain(v6).collect())
}
