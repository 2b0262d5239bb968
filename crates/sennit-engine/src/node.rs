//! A QUIC endpoint and its connections: what an edge and a hub have in common.
//!
//! The contract towards `edge` and `hub`, and theirs towards the caller, is the same: one mutation
//! (`handle_*`), then drain (`poll_*`) until nothing more comes. Only connections that something
//! happened to are looked at; the others are known by the time at which they want to be woken.

mod connections;
mod digest;
mod plugs;
mod udp;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    ops::Bound,
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use noq_proto::{
    ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointEvent, FourTuple, Incoming,
    PathId, ServerConfig,
};
use sennit_core::ClassId;
use sennit_masque as masque;

pub use self::udp::{Received, Transmit};
use self::{
    connections::Newcomer,
    udp::{headers_of, network_of, outgoing},
};
use crate::{
    finish::Finish,
    h3::H3,
    ids::{ConnId, PipeId, SocketId},
    knocks::Knocks,
    links::Links,
    locals::{Local, Locals},
    path::Path,
    pipe::{Pipe, Pipes},
    remotes::disguised,
    sharing::Spent,
    timer::{Due, Timer},
    transport::Settings,
    tunnel::Tunnel,
    turns::Turns,
    ways::Ways,
};

/// Something that happened to a connection.
#[derive(Debug)]
pub(crate) enum NodeEvent {
    /// The handshake is complete.
    Connected(ConnId),
    /// It is gone, for this reason.
    Lost(ConnId, String),
    /// It is gone, because the peer does not take our certificate.
    TurnedAway(ConnId, String),
    /// Nothing is kept of it any more.
    Gone(ConnId),
    /// HTTP/3 has news.
    Http(ConnId, masque::Event),
    /// A datagram of a connection that is plugged into no pipe: stream, context and payload.
    Datagram(ConnId, masque::StreamId, u64, Bytes),
    /// A path was validated.
    PathUp(ConnId, PathId),
    /// A path was given up: its link, if it ever came up, and the reason.
    PathDown(ConnId, PathId, Option<String>, String),
    /// A path is trusted again or no longer.
    PathState(ConnId, PathId),
}

/// A connection with what its owner keeps about it.
pub(crate) struct Conn<R> {
    pub(crate) tunnel: Tunnel,
    pub(crate) h3: H3,
    pub(crate) role: R,
    handle: ConnectionHandle,
    /// Where the handshake leaves from; noq does not know.
    first_local: Local,
    wake: Option<Due>,
    finish: Finish,
    /// There are streams although the handshake is not done.
    pub(crate) may_write: bool,
    /// The pipe that it is plugged into.
    pipe: Option<PipeId>,
    /// Its class, once that is known.
    class: ClassId,
    /// What its packets are marked with (RFC 2474).
    pub(crate) dscp: u8,
    /// What would leave by some sockets leaves by others, to where those lead, or not at all.
    pub(crate) detours: BTreeMap<SocketId, Option<(SocketId, SocketAddr)>>,
}

pub(crate) struct Node<R> {
    endpoint: Endpoint,
    settings: Settings,
    flow_seed: u64,
    locals: Locals,
    ways: Ways,
    conns: BTreeMap<ConnId, Conn<R>>,
    pipes: Pipes,
    pub(crate) links: Links,
    /// The pipes in which packets that arrived wait.
    arrivals: BTreeSet<PipeId>,
    by_handle: BTreeMap<usize, ConnId>,
    next_id: u64,
    turns: Turns,
    wakes: BTreeMap<(Instant, ConnId), Timer>,
    events: VecDeque<NodeEvent>,
    /// Packets that belong to no connection: version negotiation, resets, refusals.
    stateless: VecDeque<(Transmit, Vec<u8>)>,
    incoming: VecDeque<Newcomer>,
    /// At a hub.
    knocks: Option<Knocks>,
    /// Connections that are over, until the owner has heard of it.
    drained: Vec<(ConnId, EndpointEvent)>,
}

/// Datagrams of no tunnel are lost while this many events wait. A turn of a socket brings less than
/// a thousand full ones, but many times as many that are nearly empty.
const UNBOUND_LIMIT: usize = 4096;
/// Events that room is kept for once all are handled.
const ROOM: usize = 256;
/// More stateless answers than this are not kept: they are a courtesy.
const STATELESS_LIMIT: usize = 64;

impl<R> Node<R> {
    pub(crate) fn new(settings: Settings, server: Option<Arc<ServerConfig>>, now: Instant) -> Self {
        let knocks = server
            .as_ref()
            .map(|_| Knocks::new(settings.issuer, settings.seed, now));
        let endpoint = Endpoint::new(Arc::new(settings.endpoint()), server, true);
        Self {
            endpoint,
            flow_seed: settings.flow_seed(),
            settings,
            locals: Locals::default(),
            ways: Ways::default(),
            conns: BTreeMap::new(),
            pipes: Pipes::new(now),
            links: Links::default(),
            arrivals: BTreeSet::new(),
            by_handle: BTreeMap::new(),
            next_id: 0,
            turns: Turns::default(),
            wakes: BTreeMap::new(),
            events: VecDeque::new(),
            stateless: VecDeque::new(),
            incoming: VecDeque::new(),
            knocks,
            drained: Vec::new(),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Seed of the hashes of inner flows.
    pub(crate) fn flow_seed(&self) -> u64 {
        self.flow_seed
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn<R>> {
        self.conns.get(&id)
    }

    /// The connection, to act on: it has a turn in the next drain.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn<R>> {
        self.get_with_pipe(id).map(|(conn, _)| conn)
    }

    /// The connection and the pipe that it is plugged into, to act on.
    pub(crate) fn get_with_pipe(&mut self, id: ConnId) -> Option<(&mut Conn<R>, &mut Pipe)> {
        let conn = self.conns.get_mut(&id)?;
        self.turns.push(id, conn.class);
        let pipe = self.pipes.of(conn.pipe);
        Some((conn, pipe))
    }

    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn<R>)> {
        self.conns.iter().map(|(&id, conn)| (id, conn))
    }

    /// Those that came after this one.
    pub(crate) fn after(&self, id: Option<ConnId>) -> impl Iterator<Item = (ConnId, &Conn<R>)> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        let conns = self.conns.range((from, Bound::Unbounded));
        conns.map(|(&id, conn)| (id, conn))
    }

    pub(crate) fn alias(&mut self, local: Local) -> IpAddr {
        self.locals.alias(local)
    }

    // ---- input ---------------------------------------------------------------------------------

    /// Takes a batch of UDP packets.
    pub(crate) fn handle_datagrams(&mut self, from: Received, mut data: BytesMut, now: Instant) {
        let alias = self.locals.alias(from.local);
        let network = FourTuple::new(disguised(from.remote), Some(alias));
        let segment = from.segment.max(1);
        let (bytes, mut conn) = (data.len(), None);
        while !data.is_empty() {
            let packet = data.split_to(segment.min(data.len()));
            let knocks = self.knocks.as_mut();
            if knocks.is_some_and(|knocks| !knocks.admits(&packet, from.remote, now)) {
                continue;
            }
            conn = self.handle_datagram(from, network, packet, now).or(conn);
        }
        // Whatever comes from one address to one socket comes over one link.
        let conn = conn.and_then(|id| self.conns.get(&id));
        if let Some(link) = conn.and_then(|conn| conn.tunnel.link_of(network)) {
            self.links.note_received(link, bytes);
        }
    }

    /// Datagrams of strangers that were not looked into.
    pub(crate) fn turned_away(&self) -> u64 {
        self.knocks.as_ref().map_or(0, Knocks::turned_away)
    }

    /// Takes one UDP packet; returns the connection that it is for.
    fn handle_datagram(
        &mut self,
        from: Received,
        network: FourTuple,
        packet: BytesMut,
        now: Instant,
    ) -> Option<ConnId> {
        let (ecn, came) = (EcnCodepoint::from_bits(from.ecn), (network, packet.len()));
        let mut buffer = Vec::new();
        let arrived = from.arrived.min(now);
        match self
            .endpoint
            .handle(arrived, network, ecn, packet, &mut buffer)
        {
            None => None,
            Some(DatagramEvent::Response(transmit)) => {
                self.queue_stateless(&transmit, from.local, buffer);
                None
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.incoming.push_back(Newcomer {
                    incoming,
                    local: from.local,
                    first_datagram: came.1,
                });
                None
            }
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let &id = self.by_handle.get(&handle.0)?;
                if let Some((conn, pipe)) = self.get_with_pipe(id) {
                    let handled = conn.tunnel.handle_event(pipe, event, came, arrived, now);
                    if let Err(code) = handled {
                        conn.h3.http.close(code, "a datagram of no stream");
                    }
                    let unbound = conn.tunnel.take_unbound();
                    let (pipe, leaves) = (conn.pipe, conn.tunnel.tail.is_some());
                    let room = UNBOUND_LIMIT.saturating_sub(self.events.len());
                    let unbound = unbound.into_iter().take(room);
                    self.events
                        .extend(unbound.map(|(stream, context, payload)| {
                            NodeEvent::Datagram(id, stream, context, payload)
                        }));
                    self.note_arrivals(pipe);
                    if leaves {
                        self.follow_tail(id, now);
                    }
                }
                Some(id)
            }
        }
    }

    /// The peer sent a datagram in a capsule.
    pub(crate) fn handle_capsule(&mut self, id: ConnId, content: Bytes, now: Instant) {
        if let Some((conn, pipe)) = self.get_with_pipe(id) {
            conn.tunnel.handle_capsule(pipe, content, now);
            let pipe = conn.pipe;
            self.note_arrivals(pipe);
        }
    }

    /// Has the peer come again, with proof of its address; refuses it if that cannot be asked.
    pub(crate) fn ask_to_retry(&mut self, incoming: Incoming, local: Local) {
        let mut buffer = Vec::new();
        match self.endpoint.retry(incoming, &mut buffer) {
            Ok(transmit) => self.queue_stateless(&transmit, local, buffer),
            Err(error) => self.refuse(error.into_incoming(), local),
        }
    }

    pub(crate) fn refuse(&mut self, incoming: Incoming, local: Local) {
        let mut buffer = Vec::new();
        let transmit = self.endpoint.refuse(incoming, &mut buffer);
        self.queue_stateless(&transmit, local, buffer);
    }

    fn queue_stateless(&mut self, transmit: &noq_proto::Transmit, local: Local, buffer: Vec<u8>) {
        if self.stateless.len() < STATELESS_LIMIT {
            self.stateless
                .push_back((outgoing(transmit, local), buffer));
        }
    }

    /// Wakes the connections whose time has come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some((&(at, id), _)) = self.wakes.first_key_value() {
            if at > now {
                break;
            }
            self.wakes.pop_first();
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.wake = None;
                conn.tunnel.handle_timeout(&conn.finish, now);
                self.turns.push(id, conn.class);
            }
        }
        while let Some(pipe) = self.pipes.poll_overdue(now) {
            self.note_arrivals(Some(pipe));
        }
    }

    // ---- output --------------------------------------------------------------------------------

    /// The next event. Draining this is what makes the connections digest their input.
    pub(crate) fn poll_event(&mut self, now: Instant) -> Option<NodeEvent> {
        if self.events.is_empty() {
            let waiting: Vec<ConnId> = self.turns.iter().collect();
            for id in waiting {
                self.digest(id, now);
            }
        }
        if self.events.is_empty() {
            self.forget_drained(now);
        }
        if self.events.is_empty() {
            self.events.shrink_to(ROOM);
        }
        self.events.pop_front()
    }

    /// A connection that times out or is reset is drained at once. It stays until its loss has been
    /// told, and so does its handle in the endpoint, lest another connection get the same.
    fn forget_drained(&mut self, now: Instant) {
        for (id, event) in std::mem::take(&mut self.drained) {
            if let Some(conn) = self.conns.get(&id) {
                self.endpoint.handle_event(conn.handle, event);
            }
            self.remove(id, now);
            self.events.push_back(NodeEvent::Gone(id));
        }
    }

    fn remove(&mut self, id: ConnId, now: Instant) {
        self.unplug(id, now);
        if let Some(conn) = self.conns.remove(&id) {
            self.by_handle.remove(&conn.handle.0);
            if let Some(due) = conn.wake {
                self.wakes.remove(&(due.at, id));
            }
        }
        self.ways.forget(id);
        self.turns.remove(id);
    }

    /// The next batch to send, its bytes appended to the empty `buffer`.
    ///
    /// When it returns `None`, all connections have settled.
    pub(crate) fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        if let Some((transmit, bytes)) = self.stateless.pop_front() {
            buffer.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(id) = self.turns.first() {
            let Some(conn) = self.conns.get_mut(&id) else {
                self.turns.remove(id);
                continue;
            };
            let pipe = self.pipes.of(conn.pipe);
            let mut seat = self.links.seat(id, conn.class);
            conn.finish.note_sending(&conn.tunnel.conn);
            if let Some(transmit) = conn.tunnel.poll_transmit(pipe, &mut seat, now, buffer) {
                if let Some(link) = conn.tunnel.link_of(network_of(&transmit)) {
                    let bytes = transmit.size + headers_of(&transmit);
                    let granted = conn.tunnel.sends_granted();
                    let spent = Spent {
                        bytes: bytes as u64,
                        granted,
                    };
                    self.links
                        .note_sent((link, conn.class), transmit.size, spent, now);
                }
                let local = transmit
                    .src_ip
                    .and_then(|alias| self.locals.resolve(alias))
                    .unwrap_or(conn.first_local);
                let mut transmit = Transmit {
                    dscp: conn.dscp,
                    ..outgoing(&transmit, local)
                };
                match conn.detours.get(&local.socket) {
                    None => {}
                    Some(&Some((socket, remote))) => {
                        transmit.local = Local { socket, ip: None };
                        transmit.remote = remote;
                    }
                    Some(None) => {
                        buffer.clear();
                        continue;
                    }
                }
                return Some(transmit);
            }
            self.turns.remove(id);
            self.schedule_wake(id);
        }
        None
    }

    fn schedule_wake(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let tunnel = conn.tunnel.poll_timeout(self.pipes.of(conn.pipe));
        let reads = conn.h3.poll_timeout().map(|at| Timer::Http.due(at));
        let wake = tunnel.into_iter().chain(reads).min();
        if wake == conn.wake {
            return;
        }
        if let Some(due) = conn.wake {
            self.wakes.remove(&(due.at, id));
        }
        if let Some(due) = wake {
            self.wakes.insert((due.at, id), due.timer);
        }
        conn.wake = wake;
    }

    /// When [`Self::handle_timeout`] should be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Due> {
        let wake = self.wakes.first_key_value();
        let wake = wake.map(|(&(at, _), timer)| timer.due(at));
        let held = self.pipes.poll_timeout().map(|at| Timer::Hold.due(at));
        wake.into_iter().chain(held).min()
    }
}

impl<R> Conn<R> {
    /// The trusted or hoped-for paths, for status.
    pub(crate) fn paths(&self) -> &[Path] {
        &self.tunnel.paths
    }

    /// The pipe that it is plugged into.
    pub(crate) fn pipe(&self) -> Option<PipeId> {
        self.pipe
    }
}
