//! The site side: one tunnel per class, each over all links.
//!
//! Every class starts by racing: one handshake per link, all at once, and the first to complete is
//! the tunnel; the others are dropped. So a dead link delays nothing. Then a path is opened on
//! every other link that is up ([`dial`]), and CONNECT-IP is requested. A tunnel that is lost is
//! raced for again; inner addresses and inner connections survive that.
//!
//! An edge without a certificate makes an `Edge` of purpose [`Purpose::Enrol`], which posts the
//! enrolment, hands back the answer, and is done.

mod dial;
mod ports;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use noq_proto::{PathId, crypto::rustls::QuicClientConfig};
use sennit_core::{ClassId, Classifier, FragmentTable, PathState, health};
use sennit_masque::{
    self as masque, Capsule, RequestHead, ResponseHead, StreamId,
    capsule::{AssignedAddress, IpAddressRange, LinkInfo, LinkState, RefusedPrefix},
    connect_ip,
};
use sennit_packet::{IpPacket, Prefix, gso::VirtioNetHdr, icmp};

use crate::{
    cid::FirstIds,
    codec::{Abilities, Codec, Peer},
    facts::{FlowsWanted, LinkFacts, LinkLabel, TunnelStatus},
    hello::{self, ENROL_PATH, Hello, REPLACED},
    ids::{ConnId, PipeId, SocketId},
    inner::{self, Errors, Packet, Refused},
    node::{Conn, Node, NodeEvent, Received, Transmit},
    path::number,
    transport::Settings,
    treatment::Treatment,
};

/// A traffic class of this edge.
#[derive(Clone, Debug)]
pub struct ClassConfig {
    /// Name from the configuration.
    pub name: String,
    /// How it treats packets.
    pub treatment: Treatment,
}

/// What an edge needs to know.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// Addresses of the hub.
    pub hubs: Vec<SocketAddr>,
    /// Name its certificate must bear.
    pub server_name: String,
    /// The classes that this edge carries. Another one of the same host may carry more.
    pub classes: BTreeMap<ClassId, ClassConfig>,
    /// Which packet belongs to which class, of all that there are.
    pub classifier: Classifier,
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
    /// A class can carry packets.
    TunnelUp {
        /// Which.
        class: String,
        /// Link that completed the handshake first.
        link: String,
        /// Whether more links can join.
        multipath: bool,
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
    /// Largest IP packet that its interface sends, if that is known.
    pub mtu: Option<u32>,
}

impl LinkUpdate {
    /// Largest UDP payload that its interface sends.
    fn payload_to(&self, remote: SocketAddr) -> u16 {
        let headers = if remote.is_ipv4() { 20 + 8 } else { 40 + 8 };
        let payload = self.mtu.map(|mtu| mtu.saturating_sub(headers));
        payload.map_or(u16::MAX, |payload| payload.try_into().unwrap_or(u16::MAX))
    }

    fn reaches(&self, remote: SocketAddr) -> bool {
        if remote.is_ipv4() { self.v4 } else { self.v6 }
    }

    fn is_up(&self) -> bool {
        self.v4 || self.v6
    }
}

/// Which class a connection is for and how far it got.
#[derive(Debug)]
struct Role {
    slot: usize,
    link: SocketId,
    remote: SocketAddr,
    stage: Stage,
    /// Paths that noq was asked to open.
    opening: BTreeMap<PathId, SocketId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// Waits for the hub's settings.
    Connected,
    Requested(StreamId),
    Up(StreamId),
    Closing,
}

/// A class and its connections.
#[derive(Debug)]
struct Slot {
    id: ClassId,
    class: ClassConfig,
    pipe: PipeId,
    live: Option<ConnId>,
    dial: dial::Dial,
    reason: String,
    since: Instant,
}

/// The edge state machine.
pub struct Edge {
    node: Node<Role>,
    config: EdgeConfig,
    crypto: Arc<QuicClientConfig>,
    first_ids: FirstIds,
    purpose: Purpose,
    links: BTreeMap<SocketId, LinkUpdate>,
    /// Addresses of the hub as each link's resolver knows them, beside those of the config.
    resolved: BTreeMap<SocketId, Vec<SocketAddr>>,
    ports: ports::Ports,
    slots: Vec<Slot>,
    addresses: Vec<Prefix>,
    /// Those of our prefixes that the hub does not route, and why.
    refused: Vec<(Prefix, String)>,
    /// The hub's own, as far as it has told.
    hub_inside: Vec<IpAddr>,
    fragments: FragmentTable,
    errors: Errors,
    to_tun: VecDeque<(ClassId, Bytes)>,
    events: VecDeque<EdgeEvent>,
    /// Body of the enrolment's answer so far.
    answer: BytesMut,
}

/// An enrolment's answer holds a certificate chain.
const MAX_ANSWER: usize = 64 << 10;

impl Edge {
    /// An edge that starts racing as soon as it is told of a link.
    ///
    /// # Errors
    /// If the TLS configuration lacks the cipher suite that QUIC begins with.
    pub fn new(
        settings: Settings,
        config: EdgeConfig,
        tls: Arc<rustls::ClientConfig>,
        purpose: Purpose,
        now: Instant,
    ) -> Result<Self, noq_proto::crypto::rustls::NoInitialCipherSuite> {
        let crypto = Arc::new(QuicClientConfig::try_from(tls)?);
        let count = if matches!(purpose, Purpose::Tunnels) {
            config.classes.len()
        } else {
            1
        };
        let first_ids = FirstIds::new(config.steering, &settings.seed);
        let mut node = Node::new(settings, None, now);
        // Pipes are made in the order of the classes, and have their turns in it.
        let slots = config.classes.iter().take(count).map(|(&id, class)| Slot {
            id,
            class: class.clone(),
            pipe: node.add_pipe(class.treatment.delivery, now),
            live: None,
            dial: dial::Dial::new(now),
            reason: "no link is up".into(),
            since: now,
        });
        Ok(Self {
            slots: slots.collect(),
            first_ids,
            node,
            config,
            crypto,
            purpose,
            links: BTreeMap::new(),
            resolved: BTreeMap::new(),
            ports: ports::Ports::default(),
            addresses: Vec::new(),
            refused: Vec::new(),
            hub_inside: Vec::new(),
            fragments: FragmentTable::default(),
            errors: Errors::new(now),
            to_tun: VecDeque::new(),
            events: VecDeque::new(),
            answer: BytesMut::new(),
        })
    }

    // ---- input ---------------------------------------------------------------------------------

    /// A link came up, went down, or can now send another address family.
    pub fn handle_link(&mut self, update: LinkUpdate, now: Instant) {
        let socket = update.socket;
        let up = update.is_up();
        self.links.insert(socket, update);
        for id in self.live() {
            let Some(conn) = self.node.get_mut(id) else {
                continue;
            };
            for path in conn
                .tunnel
                .paths
                .iter_mut()
                .filter(|path| path.socket == socket)
            {
                path.health.handle_link(up);
            }
        }
        for slot in &mut self.slots {
            slot.dial.retry_soon(now);
        }
        self.settle(now);
    }

    /// The hub's name was looked up over a link; these are tried there beside the configured ones.
    pub fn handle_resolved(&mut self, socket: SocketId, hubs: Vec<SocketAddr>, now: Instant) {
        if self.resolved.get(&socket) == Some(&hubs) {
            return;
        }
        self.resolved.insert(socket, hubs);
        for slot in &mut self.slots {
            if slot.live.is_none() {
                slot.dial.retry_soon(now);
            }
        }
        self.settle(now);
    }

    /// UDP packets arrived.
    pub fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        self.node.handle_datagrams(from, data, now);
    }

    /// A packet, or a super-packet, came from a TUN device; `class` if that device belongs to one,
    /// otherwise the rules decide.
    ///
    /// # Errors
    /// If this edge does not carry its class.
    pub fn handle_packet(
        &mut self,
        header: &VirtioNetHdr,
        packet: &[u8],
        class: Option<ClassId>,
        now: Instant,
    ) -> Result<(), NotOurClass> {
        let Ok(parsed) = IpPacket::parse(packet) else {
            return Ok(());
        };
        if inner::stays_local(&parsed) {
            return Ok(());
        }
        let sort = || {
            let classifier = &self.config.classifier;
            self.fragments
                .class(&parsed, now, || classifier.classify(&parsed))
        };
        let class = class.unwrap_or_else(sort);
        let slot = self.slots.iter().find(|slot| slot.id == class);
        let live = slot.ok_or(NotOurClass(class))?.live;
        let up = |(conn, _): &(&mut Conn<Role>, _)| matches!(conn.role.stage, Stage::Up(_));
        let found = live.and_then(|id| self.node.get_with_pipe(id)).filter(up);
        let Some((conn, pipe)) = found else {
            self.say(&parsed, class, icmp::Reason::NoRoute, now);
            return Ok(());
        };
        let (mtu, partial) = (conn.tunnel.max_packet(), conn.tunnel.takes_partial());
        let sink = |queued| conn.tunnel.handle_packet(pipe, queued, now);
        if inner::segment(header, packet, mtu, partial, sink) == Err(Refused::TooBig) {
            let reason = icmp::Reason::TooBig { mtu: mtu as u32 };
            self.say(&parsed, class, reason, now);
        }
        Ok(())
    }

    /// Tells the sender of a packet why it went no further.
    fn say(&mut self, packet: &IpPacket<'_>, class: ClassId, reason: icmp::Reason, now: Instant) {
        let ours = self.addresses.iter().map(Prefix::first);
        let Some(source) = inner::error_source(packet, ours) else {
            return;
        };
        let error = self.errors.about(packet.bytes(), reason, source, now);
        self.to_tun.extend(error.map(|error| (class, error)));
    }

    /// The time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        self.settle(now);
    }

    /// Closes all tunnels; what [`Self::poll_transmit`] still yields should be sent.
    pub fn close(&mut self, now: Instant) {
        let ids: Vec<ConnId> = self.node.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.node
                .close(id, masque::Code::H3_NO_ERROR.0, "edge stops", now);
        }
    }

    // ---- output --------------------------------------------------------------------------------

    /// The next event. Drain this after every input, before the packets.
    pub fn poll_event(&mut self, now: Instant) -> Option<EdgeEvent> {
        while let Some(event) = self.node.poll_event(now) {
            self.handle_node(event, now);
        }
        self.events.pop_front()
    }

    /// The next packet for the TUN device of a class.
    pub fn poll_packet(&mut self) -> Option<(ClassId, Packet)> {
        if let Some((class, error)) = self.to_tun.pop_front() {
            return Some((class, error.into()));
        }
        let (id, packet) = self.node.poll_packet()?;
        let slot = self.slots.iter().find(|slot| slot.pipe == id)?;
        Some((slot.id, packet))
    }

    /// The next batch for a link's socket, its bytes appended to the empty `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.node.poll_transmit(buffer, now)
    }

    /// When [`Self::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let dials = self
            .slots
            .iter()
            .filter_map(|slot| slot.dial.poll_timeout());
        dials
            .chain(self.ports.poll_timeout())
            .chain(self.node.poll_timeout())
            .min()
    }

    /// How many tunnels there are.
    pub fn tunnels(&self) -> usize {
        self.node.len()
    }

    /// Its links, with what all classes do there together.
    pub fn links(&self) -> Vec<LinkFacts> {
        self.node.links.facts()
    }

    /// The addresses that the hub assigned.
    pub fn addresses(&self) -> &[Prefix] {
        &self.addresses
    }

    /// Those of our prefixes that the hub does not route, and why.
    pub fn refused_lan(&self) -> &[(Prefix, String)] {
        &self.refused
    }

    /// The state of every class.
    pub fn status(&mut self) -> Vec<TunnelStatus> {
        self.collect_status(None)
    }

    /// The state of every class with its flows, as they are in the direction to the hub.
    pub fn status_with_flows(&mut self, wanted: &FlowsWanted, now: Instant) -> Vec<TunnelStatus> {
        self.collect_status(Some((wanted, now)))
    }

    fn collect_status(&mut self, wanted: Option<(&FlowsWanted, Instant)>) -> Vec<TunnelStatus> {
        let mut all = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let mut status = TunnelStatus {
                class: slot.class.name.clone(),
                site: None,
                treatment: slot.class.treatment,
                up: false,
                reason: slot.reason.clone(),
                since: slot.since,
                backlog: 0,
                queue: Default::default(),
                stats: Default::default(),
                numbered: false,
                striping: Default::default(),
                paths: Vec::new(),
                flows: Vec::new(),
                flow_count: 0,
            };
            let up = |conn: &Conn<Role>| matches!(conn.role.stage, Stage::Up(_));
            status.up = slot.live.and_then(|id| self.node.get(id)).is_some_and(up);
            let of = (slot.pipe, slot.live);
            self.node.describe(of, &mut status, wanted);
            all.push(status);
        }
        all
    }

    // ---- connections ---------------------------------------------------------------------------

    fn live(&self) -> Vec<ConnId> {
        self.slots.iter().filter_map(|slot| slot.live).collect()
    }

    fn handle_node(&mut self, event: NodeEvent, now: Instant) {
        match event {
            NodeEvent::Connected(id) => self.handle_connected(id, now),
            NodeEvent::Lost(id, reason) => self.handle_lost(id, reason, now),
            NodeEvent::Http(id, event) => self.handle_http(id, event, now),
            NodeEvent::PathUp(id, path) => self.handle_path_up(id, path, now),
            NodeEvent::PathDown(id, path, link, reason) => {
                self.handle_path_down(id, path, link, reason, now);
            }
            NodeEvent::PathState(id, path) => self.tell_path(id, path),
        }
    }

    /// The first link to complete the handshake wins the race of its class. A tunnel that is only
    /// cut off is replaced, unless it is heard again by now.
    fn handle_connected(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let (index, socket) = (conn.role.slot, conn.role.link);
        if let Some(old) = self.slots[index].live {
            if !self.is_cut_off(index, now) {
                return self.end_race(index, now);
            }
            let reason = "nothing was heard of it, but the hub answers a new connection";
            self.node
                .close(old, masque::Code::H3_NO_ERROR.0, reason, now);
            self.lose(old, reason.into(), now);
        }
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        conn.role.stage = Stage::Connected;
        let slot = &mut self.slots[index];
        slot.live = Some(id);
        if !slot.dial.is_failing() {
            slot.reason = "waiting for the hub's answer".into();
        }
        slot.dial.won(id, now);
        self.end_race(index, now);
        self.adopt(id, PathId::ZERO, socket, now);
        if matches!(self.purpose, Purpose::Enrol(_)) {
            self.request(id, now);
        }
        self.settle(now);
    }

    fn handle_lost(&mut self, id: ConnId, reason: String, now: Instant) {
        let Some(conn) = self.node.get(id) else {
            return;
        };
        let (index, link) = (conn.role.slot, conn.role.link);
        let up = matches!(conn.role.stage, Stage::Up(_));
        self.slots[index].dial.failed(id, link, now);
        // We have no newer one, so somebody else has.
        if up && reason.contains(REPLACED) {
            let links = self.links.keys().copied();
            self.slots[index].dial.displaced(links, now);
            let reason = format!("{reason}, of another box with this site's identity");
            self.lose(id, reason, now);
        } else {
            self.lose(id, reason, now);
        }
        self.settle(now);
    }

    /// A connection is over.
    fn lose(&mut self, id: ConnId, reason: String, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let stage = std::mem::replace(&mut conn.role.stage, Stage::Closing);
        let index = conn.role.slot;
        self.node.unplug(id);
        let slot = &mut self.slots[index];
        if slot.live == Some(id) {
            slot.live = None;
            slot.since = now;
        } else if stage != Stage::Handshake || slot.live.is_some() {
            return;
        }
        slot.reason = reason.clone();
        let class = slot.class.name.clone();
        self.events.push_back(match stage {
            Stage::Up(_) => EdgeEvent::TunnelDown { class, reason },
            _ => EdgeEvent::Refused { class, reason },
        });
    }

    fn handle_http(&mut self, id: ConnId, event: masque::Event, now: Instant) {
        match event {
            masque::Event::Settings(settings) if !settings.h3_datagram => {
                self.give_up(id, "the hub takes no HTTP datagrams".into(), now);
            }
            masque::Event::Settings(_) => self.request(id, now),
            masque::Event::Response { stream, head } => {
                self.handle_response(id, stream, &head, now);
            }
            masque::Event::Capsule { stream, capsule } => {
                self.handle_capsule(id, stream, capsule, now);
            }
            masque::Event::Data { bytes, .. } => self.handle_answer(&bytes),
            masque::Event::Finished { .. } => self.handle_finished(id, now),
            masque::Event::Reset { code, .. } => {
                self.give_up(id, format!("the hub ended the request: {code}"), now);
            }
            masque::Event::Failed { error, .. } => self.give_up(id, error.to_string(), now),
            masque::Event::GoAway => self.give_up(id, "the hub is going away".into(), now),
            masque::Event::Request { .. } | masque::Event::Stopped { .. } => {}
        }
    }

    /// Sends the request that the connection is for.
    fn request(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if conn.role.stage != Stage::Connected {
            return;
        }
        let (head, body) = match &self.purpose {
            Purpose::Tunnels => (
                tunnel_request(
                    &self.config,
                    &self.slots[conn.role.slot],
                    conn.role.remote.port(),
                ),
                None,
            ),
            Purpose::Enrol(body) => (
                RequestHead::new("POST", &self.config.server_name, ENROL_PATH),
                Some(body.clone()),
            ),
        };
        self.answer.clear();
        let sent = conn
            .h3
            .open_request(&mut conn.tunnel.conn)
            .ok_or_else(|| "the hub allows no streams".to_owned())
            .and_then(|stream| {
                let sent = conn.h3.http.send_request(stream, &head, body);
                sent.map(|()| stream).map_err(|error| error.to_string())
            });
        match sent {
            Ok(stream) => conn.role.stage = Stage::Requested(stream),
            Err(reason) => self.give_up(id, reason, now),
        }
    }

    fn handle_response(&mut self, id: ConnId, stream: StreamId, head: &ResponseHead, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if conn.role.stage != Stage::Requested(stream) {
            return;
        }
        let what = match self.purpose {
            Purpose::Tunnels => "the tunnel",
            Purpose::Enrol(_) => "a certificate",
        };
        if !head.is_success() {
            let why = head
                .fields
                .text("sennit-reason")
                .unwrap_or("no reason given");
            let reason = format!("the hub refused {what}: {why} (status {})", head.status);
            return self.give_up(id, reason, now);
        }
        let slot = &mut self.slots[conn.role.slot];
        slot.dial.granted();
        if matches!(self.purpose, Purpose::Enrol(_)) {
            return;
        }
        conn.role.stage = Stage::Up(stream);
        let answer = head.fields.text(hello::NAME);
        let peer = answer.map_or(Peer::Standard, hello::answered);
        let inside = answer.map_or_else(Vec::new, hello::inside);
        if !inside.is_empty() && inside != self.hub_inside {
            self.hub_inside.clone_from(&inside);
            self.events.push_back(EdgeEvent::HubInside(inside));
        }
        let multipath = conn.tunnel.conn.is_multipath_negotiated();
        let link = conn.role.link;
        announce_lan(conn, stream, &self.config.lan);
        slot.reason = if multipath {
            "up"
        } else {
            "up, on one link: no multipath at the hub"
        }
        .into();
        slot.since = now;
        let (of, class) = ((slot.pipe, slot.id), slot.class.name.clone());
        let link = self
            .links
            .get(&link)
            .map_or_else(String::new, |l| l.label.name.clone());
        self.events.push_back(EdgeEvent::TunnelUp {
            class,
            link,
            multipath,
        });
        self.node.plug(id, of, Codec::new(stream, peer), now);
        self.announce_links(id);
        self.settle(now);
    }

    fn handle_capsule(&mut self, id: ConnId, stream: StreamId, capsule: Capsule, now: Instant) {
        match capsule {
            Capsule::AddressAssign(assigned) => self.handle_addresses(&assigned),
            Capsule::AddressRequest(requests) => {
                // An edge has no addresses to give (RFC 9484 §4.7.2: it must say so).
                let refusals = requests.iter().map(AssignedAddress::refusal).collect();
                if let Some(conn) = self.node.get_mut(id) {
                    // Fails only if the stream is gone, and with it the question.
                    let _ = conn
                        .h3
                        .http
                        .send_capsule(stream, &Capsule::AddressAssign(refusals));
                }
            }
            Capsule::Datagram(content) => {
                self.node.handle_capsule(id, content, now);
            }
            Capsule::RefusedLan(refused) => self.handle_refused(&refused),
            Capsule::RouteAdvertisement(_) | Capsule::Link(_) => {}
        }
    }

    fn handle_addresses(&mut self, assigned: &[AssignedAddress]) {
        let addresses: Vec<Prefix> = assigned
            .iter()
            .filter(|address| !address.is_refusal())
            .filter_map(|a| Prefix::new(a.prefix.addr(), a.prefix.prefix_len()).ok())
            .collect();
        if !addresses.is_empty() && addresses != self.addresses {
            self.addresses.clone_from(&addresses);
            self.events.push_back(EdgeEvent::Addresses(addresses));
        }
    }

    /// The hub says which of our prefixes it does not route, over each tunnel.
    fn handle_refused(&mut self, refused: &[RefusedPrefix]) {
        let named = |refused: &RefusedPrefix| {
            let prefix = Prefix::new(refused.prefix.addr(), refused.prefix.prefix_len()).ok()?;
            let ours = self.config.lan.contains(&prefix);
            ours.then(|| (prefix, refused.reason.clone()))
        };
        let refused: Vec<(Prefix, String)> = refused.iter().filter_map(named).collect();
        if refused != self.refused {
            self.refused.clone_from(&refused);
            self.events.push_back(EdgeEvent::LanRefused(refused));
        }
    }

    fn handle_answer(&mut self, bytes: &[u8]) {
        if self.answer.len() + bytes.len() <= MAX_ANSWER {
            self.answer.extend_from_slice(bytes);
        }
    }

    fn handle_finished(&mut self, id: ConnId, now: Instant) {
        let Purpose::Enrol(_) = self.purpose else {
            return self.give_up(id, "the hub ended the tunnel".into(), now);
        };
        let requested = |conn: &Conn<Role>| matches!(conn.role.stage, Stage::Requested(_));
        if self.node.get(id).is_some_and(requested) {
            let answer = std::mem::take(&mut self.answer).freeze();
            self.events.push_back(EdgeEvent::Enrolled(answer));
        }
    }

    /// Closes a connection that is of no use; its class is dialled again later.
    fn give_up(&mut self, id: ConnId, reason: String, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if conn.role.stage == Stage::Closing {
            return;
        }
        self.node.close(id, masque::Code::H3_NO_ERROR.0, "", now);
        self.handle_lost(id, reason, now);
    }
}

/// The request for a tunnel. Some proxies compare `:authority` with their own address including the
/// port, so it is always there.
fn tunnel_request(config: &EdgeConfig, slot: &Slot, port: u16) -> RequestHead {
    let hello = Hello {
        class: slot.class.name.clone(),
        index: slot.id,
        treatment: slot.class.treatment,
        fallback: slot.id == config.classifier.fallback(),
        abilities: Abilities::OURS,
    };
    let mut head = connect_ip::request(
        &format!("{}:{port}", config.server_name),
        &connect_ip::Scope::ANY.path(),
    );
    head.fields.push(hello::NAME, hello.encode());
    if let Some(bearer) = &config.bearer {
        head.fields
            .push("authorization", format!("Bearer {bearer}"));
    }
    head
}

/// Tells the hub which prefixes are behind this edge (RFC 9484 §4.7.3 allows it to either side).
fn announce_lan(conn: &mut Conn<Role>, stream: StreamId, lan: &[Prefix]) {
    if lan.is_empty() {
        return;
    }
    let mut ranges: Vec<IpAddressRange> = lan
        .iter()
        .filter_map(|prefix| IpAddressRange::new(prefix.first(), prefix.last(), 0).ok())
        .collect();
    ranges.sort_by_key(|range| (range.start().is_ipv6(), range.start()));
    if let Err(error) = conn
        .h3
        .http
        .send_capsule(stream, &Capsule::RouteAdvertisement(ranges))
    {
        tracing::warn!(%error, "cannot announce the LAN prefixes");
    }
}

/// What a hub should know of one path.
fn link_info(path: &crate::path::Path) -> LinkInfo {
    let state = match path.health.state().0 {
        PathState::Up => LinkState::Up,
        PathState::Probation | PathState::Suspect => LinkState::Backup,
        PathState::Down => LinkState::Down,
    };
    LinkInfo {
        path_id: u64::from(number(path.id)),
        tier: path.link.tier,
        weight: path.link.weight,
        state,
        name: path.link.name.clone(),
    }
}
