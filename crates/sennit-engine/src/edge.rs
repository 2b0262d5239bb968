//! The site side: one tunnel per class, each over all links.
//!
//! Every class starts by racing: one handshake per link, all at once, and the first to complete is
//! the tunnel; the others are dropped. So a dead link delays nothing. Then a path is opened on
//! every other link that is up ([`dial`]), and CONNECT-IP is requested. A tunnel that is lost is
//! raced for again; inner addresses and inner connections survive that.
//!
//! An edge without a certificate makes an `Edge` of purpose [`Purpose::Enrol`], which posts the
//! enrolment, hands back the answer, and is done.

mod assigned;
mod change;
mod config;
mod dial;
mod drops;
mod loss;
mod moving;
mod paths;
mod ports;
mod race;
mod session;
mod slow;
mod sort;
mod won;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use noq_proto::{PathId, crypto::rustls::QuicClientConfig};
use sennit_core::{ClassId, FlowTable, FragmentTable};
use sennit_masque::{self as masque, StreamId, capsule::NextAuthority};
use sennit_packet::{IpPacket, Prefix, gso::VirtioNetHdr, icmp};

use self::assigned::Said;
pub use self::change::EdgeChange;
pub use self::config::{
    ClassConfig, EdgeConfig, EdgeEvent, LinkUpdate, NotOurClass, Origin, Purpose,
};
use crate::{
    cid::FirstIds,
    facts::{FlowsWanted, LinkFacts, TunnelStatus},
    hello::Takes,
    ids::{ConnId, FoundHub, HubName, PipeId, SocketId},
    inner::{self, Errors, Packet, Refused},
    node::{Conn, Node, NodeEvent, Received, Transmit},
    resumption::Watched,
    timer::{Due, Timer, Woken},
    transport::Settings,
    treatment::Treatment,
};

/// Which class a connection is for and how far it got.
#[derive(Debug)]
struct Role {
    slot: usize,
    link: SocketId,
    remote: SocketAddr,
    /// The name by which that was found, if it was by one.
    name: Option<HubName>,
    exchange: race::Exchange,
    stage: Stage,
    /// It asks for the tunnel while another one carries.
    beside: bool,
    /// One that was to take its place was given up, which the hub may have granted.
    outlived: bool,
    /// How it was told to treat the packets of its class when it began.
    treatment: Treatment,
    /// The request that left as early data.
    early: Option<StreamId>,
    /// What the hub at its other end takes, which is of another version than that of other classes
    /// while it is updated.
    hub: Takes,
    /// Paths that noq was asked to open.
    opening: BTreeMap<PathId, paths::Attempt>,
    /// Links on which such a path was given up, and since when it had asked: the next one goes on.
    tried: BTreeMap<SocketId, Instant>,
    /// Where its paths lead to though the hub is there no more.
    gone: BTreeSet<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// The handshake is complete; the connection before it, or a better one, has some time yet.
    Ready,
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
    /// It was taken out of the config; its place is kept while a connection refers to it.
    gone: bool,
    /// When that is to be so: what is on its way has time until then.
    leaves_at: Option<Instant>,
    live: Option<ConnId>,
    /// What takes its place once it is granted.
    next: Option<ConnId>,
    /// Those whose places were taken, and until when they may hand on what is on its way.
    left: Vec<(Instant, ConnId)>,
    /// Why the tunnel has not moved so far though it is to.
    stays: Option<String>,
    /// Without a tunnel, packets wait for the next one until then, if they are not longer than
    /// this.
    bridge: Option<(Instant, usize)>,
    dial: race::Dial,
    reason: String,
    since: Instant,
}

type Crypto = Watched<QuicClientConfig>;

/// The edge state machine.
pub struct Edge {
    node: Node<Role>,
    config: EdgeConfig,
    crypto: Arc<Crypto>,
    /// For links on which post-quantum handshakes go unanswered.
    classic: Option<Arc<Crypto>>,
    first_ids: FirstIds,
    purpose: Purpose,
    links: BTreeMap<SocketId, LinkUpdate>,
    /// Addresses of the hub as each link's resolver knows them, beside those of the config.
    resolved: BTreeMap<SocketId, Vec<FoundHub>>,
    ports: ports::Ports,
    slow: slow::SlowLinks,
    slots: Vec<Slot>,
    addresses: Said<Vec<Prefix>>,
    /// Those of our prefixes that the hub does not route, and why.
    refused: Said<Vec<(Prefix, String)>>,
    /// The hub's own, as far as it has told.
    hub_inside: Said<Vec<IpAddr>>,
    /// The authority that it should be known by, if that is to change.
    next_authority: Said<Option<NextAuthority>>,
    /// What the hub has said of itself, for a request that leaves before it can say it again.
    hub_settings: Option<masque::Settings>,
    fragments: FragmentTable,
    /// The classes of flows.
    flows: FlowTable,
    errors: Errors,
    to_tun: VecDeque<(ClassId, Bytes)>,
    events: VecDeque<EdgeEvent>,
    /// Body of the enrolment's answer so far.
    answer: BytesMut,
    woken: Woken,
}

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
        let classic = config.classic.clone().map(change::crypto).transpose()?;
        let count = if matches!(purpose, Purpose::Tunnels) {
            config.classes.len()
        } else {
            1
        };
        let first_ids = FirstIds::new(config.steering, &settings.seed);
        let seed = settings.flow_seed();
        let (fragments, flows) = (FragmentTable::new(seed), FlowTable::new(seed));
        let mut node = Node::new(settings, None, now);
        node.links.set_sharing(None, config.sharing.clone());
        // Pipes are made in the order of the classes, and have their turns in it.
        let slots = config.classes.iter().take(count).map(|(&id, class)| {
            let pipe = node.add_pipe(class.treatment, now);
            Slot::new(id, class.clone(), pipe, now)
        });
        Ok(Self {
            slots: slots.collect(),
            first_ids,
            node,
            config,
            crypto: change::crypto(tls)?,
            classic,
            purpose,
            links: BTreeMap::new(),
            resolved: BTreeMap::new(),
            ports: ports::Ports::default(),
            slow: slow::SlowLinks::default(),
            addresses: Said::new(Vec::new(), now),
            refused: Said::new(Vec::new(), now),
            hub_inside: Said::new(Vec::new(), now),
            next_authority: Said::new(None, now),
            hub_settings: None,
            fragments,
            flows,
            errors: Errors::new(now),
            to_tun: VecDeque::new(),
            events: VecDeque::new(),
            answer: BytesMut::new(),
            woken: Woken::default(),
        })
    }

    // ---- input ---------------------------------------------------------------------------------

    /// A link came up, went down, got another address, or can now send another address family.
    pub fn handle_link(&mut self, update: LinkUpdate, now: Instant) {
        let socket = update.socket;
        let up = update.is_up();
        let (away, label) = (update.away(), update.label.clone());
        let sends = |link: &LinkUpdate| (link.v4, link.v6, link.moves);
        let after = sends(&update);
        let before = self.links.insert(socket, update);
        let changes = before.as_ref().is_none_or(|it| sends(it) != after);
        if before.is_some() && changes {
            self.slow.forget(socket);
            self.ask_again(socket, now);
        }
        // A handshake is bound to the address that it began with.
        if !up || before.is_some_and(|it| it.moves != after.2) {
            self.end_attempts_over(socket, "the link is down, or has another address", now);
        }
        self.relabel(socket, &label);
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
                path.health.handle_link(up, now);
                path.away = away;
            }
        }
        for slot in &mut self.slots {
            slot.dial.retry_soon(now);
            if up && changes {
                slot.dial.wait_for_old(now);
            }
        }
        self.settle(now);
    }

    /// UDP packets arrived.
    pub fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        self.node.handle_datagrams(from, data, now);
    }

    /// A packet, or a super-packet, came from a TUN device, or from another edge of this host.
    ///
    /// # Errors
    /// If this edge does not carry its class.
    pub fn handle_packet(
        &mut self,
        header: &VirtioNetHdr,
        packet: &[u8],
        origin: Origin,
        now: Instant,
    ) -> Result<(), NotOurClass> {
        let Ok(parsed) = IpPacket::parse(packet) else {
            return Ok(());
        };
        if inner::stays_local(&parsed) {
            return Ok(());
        }
        let class = match origin {
            Origin::Main => self.sort(header, &parsed, None, now),
            Origin::Device(class) => self.sort(header, &parsed, Some(class), now),
            Origin::Sorted(class) => class,
        };
        let slot = self.slots.iter().position(|it| it.id == class && !it.gone);
        let index = slot.ok_or(NotOurClass(class))?;
        let live = self.slots[index].live;
        let up = |(conn, _): &(&mut Conn<Role>, _)| matches!(conn.role.stage, Stage::Up(_));
        let seed = self.node.flow_seed();
        let found = live.and_then(|id| self.node.get_with_pipe(id)).filter(up);
        let Some((conn, pipe)) = found else {
            if !self.bridge(index, header, parsed, now) {
                self.say(&parsed, class, icmp::Reason::NoRoute, now);
            }
            return Ok(());
        };
        let (mtu, partial) = (conn.tunnel.max_packet(), conn.tunnel.takes_partial());
        let sink = |queued| conn.tunnel.handle_packet(pipe, queued, now);
        if inner::segment(header, (parsed, seed), mtu, partial, sink) == Err(Refused::TooBig) {
            let reason = icmp::Reason::TooBig { mtu: mtu as u32 };
            self.say(&parsed, class, reason, now);
        }
        Ok(())
    }

    /// Has a packet wait for the next tunnel of its class, if that lost one a moment ago.
    fn bridge(
        &mut self,
        index: usize,
        header: &VirtioNetHdr,
        packet: IpPacket<'_>,
        now: Instant,
    ) -> bool {
        let Slot { bridge, pipe, .. } = self.slots[index];
        let Some((_, mtu)) = bridge.filter(|&(until, _)| now < until) else {
            return false;
        };
        let packet = (packet, self.node.flow_seed());
        let Some(pipe) = self.node.pipe_mut(pipe) else {
            return false;
        };
        // What the next tunnel takes is not known, but whole checksums it does.
        inner::segment(header, packet, mtu, false, |queued| pipe.push(queued, now)).is_ok()
    }

    /// Tells the sender of a packet why it went no further.
    fn say(&mut self, packet: &IpPacket<'_>, class: ClassId, reason: icmp::Reason, now: Instant) {
        let ours = self.addresses.followed().iter().map(Prefix::first);
        let Some(source) = inner::error_source(packet, ours) else {
            return;
        };
        let error = self.errors.about(packet.bytes(), reason, source, now);
        self.to_tun.extend(error.map(|error| (class, error)));
    }

    /// The time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.woken.note(self.poll_timeout(), now);
        self.node.handle_timeout(now);
        self.follow(now);
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
        while self.events.is_empty() {
            let event = self.node.poll_event(now)?;
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

    /// When [`Self::handle_timeout`] should be called next, and what for.
    pub fn poll_timeout(&self) -> Option<Due> {
        let dials = self
            .slots
            .iter()
            .filter(|slot| !slot.gone)
            .filter_map(|slot| slot.dial.poll_timeout());
        let said = [
            self.addresses.poll_timeout(),
            self.refused.poll_timeout(),
            self.hub_inside.poll_timeout(),
            self.next_authority.poll_timeout(),
        ];
        let own = Due::first([
            (Timer::Dial, dials.min()),
            (Timer::Assigned, said.into_iter().flatten().min()),
            (Timer::Port, self.ports.poll_timeout()),
        ]);
        own.into_iter().chain(self.node.poll_timeout()).min()
    }

    /// How often it was woken by each of its timers.
    pub fn woken(&self) -> &Woken {
        &self.woken
    }

    /// How many tunnels there are.
    pub fn tunnels(&self) -> usize {
        self.node.len()
    }

    /// Its links, with what all classes do there together.
    pub fn links(&self) -> Vec<LinkFacts> {
        self.node.links.facts()
    }

    /// Whether classes share the links by rules that the hub of a tunnel does not know, so that
    /// they hold for what this edge sends only.
    pub fn shares_alone(&self) -> bool {
        let is_alone =
            |conn: &Conn<Role>| matches!(conn.role.stage, Stage::Up(_)) && !conn.role.hub.shares;
        let mut lives = self.slots.iter().filter_map(|slot| slot.live);
        self.config.sharing.is_some() && lives.any(|id| self.node.get(id).is_some_and(is_alone))
    }

    /// The addresses that the hub assigned.
    pub fn addresses(&self) -> &[Prefix] {
        self.addresses.followed()
    }

    /// Those of our prefixes that the hub does not route, and why.
    pub fn refused_lan(&self) -> &[(Prefix, String)] {
        self.refused.followed()
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
        let stays = |slot: &Slot| !slot.gone && slot.leaves_at.is_none();
        for (index, slot) in self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| stays(slot))
        {
            let (name, treatment) = (slot.class.name.clone(), slot.class.treatment);
            let mut status = TunnelStatus::new(name, treatment, slot.since);
            status.reason.clone_from(&slot.reason);
            let up = |conn: &Conn<Role>| matches!(conn.role.stage, Stage::Up(_));
            let live = slot.live.and_then(|id| self.node.get(id));
            status.up = live.is_some_and(up);
            status.moving = self.moving(index);
            let classic = |conn: &Conn<Role>| conn.role.exchange == race::Exchange::Classic;
            status.fell_back = live.is_some_and(classic);
            status.unanswered = live.map(|conn| self.unanswered(conn)).unwrap_or_default();
            let of = (slot.pipe, slot.live);
            self.node.describe(of, &mut status, wanted);
            all.push(status);
        }
        all
    }

    // ---- connections ---------------------------------------------------------------------------

    /// Those that won a race.
    fn live(&self) -> Vec<ConnId> {
        let won = self.slots.iter().flat_map(|slot| [slot.live, slot.next]);
        won.flatten().collect()
    }

    fn handle_node(&mut self, event: NodeEvent, now: Instant) {
        match event {
            NodeEvent::Connected(id) => self.handle_connected(id, now),
            NodeEvent::Lost(id, reason) => self.handle_lost(id, reason, false, now),
            NodeEvent::TurnedAway(id, reason) => self.handle_lost(id, reason, true, now),
            NodeEvent::Http(id, event) => self.handle_http(id, event, now),
            // A hub sends none but in a tunnel.
            NodeEvent::Datagram(..) | NodeEvent::Gone(_) => {}
            NodeEvent::PathUp(id, path) => self.handle_path_up(id, path, now),
            NodeEvent::PathDown(id, path, link, reason) => {
                self.handle_path_down(id, path, link, reason, now);
            }
            NodeEvent::PathState(id, path) => self.handle_path_state(id, path, now),
        }
    }
}
