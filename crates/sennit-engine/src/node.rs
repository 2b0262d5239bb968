//! A QUIC endpoint and its connections: what an edge and a hub have in common.
//!
//! The contract towards `edge` and `hub`, and theirs towards the caller, is the same: one mutation
//! (`handle_*`), then drain (`poll_*`) until nothing more comes. Only connections that something
//! happened to are looked at; the others are known by the time at which they want to be woken.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointEvent, Event, FourTuple, Incoming, PathAbandonReason, PathEvent, PathId, ServerConfig,
    VarInt,
};
use sennit_core::{Delivery, Policy};
use sennit_masque::{self as masque, Code};

use crate::{
    facts::{FlowsWanted, LinkLabel, TunnelStatus},
    h3::H3,
    ids::ConnId,
    inner::Packet,
    locals::{Local, Locals},
    path::Path,
    transport::Settings,
    treatment::Treatment,
    tunnel::Tunnel,
    ways::Ways,
};

/// A batch of UDP packets of one size to one destination, in the buffer the caller lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it leaves from.
    pub local: Local,
    /// Where it goes.
    pub remote: SocketAddr,
    /// ECN codepoint of the outer packets, 0 to 3.
    pub ecn: u8,
    /// Bytes in the buffer.
    pub size: usize,
    /// Size of each packet but the last, if there are several.
    pub segment: Option<usize>,
}

/// Where a batch of UDP packets came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it arrived.
    pub local: Local,
    /// Who sent it.
    pub remote: SocketAddr,
    /// ECN codepoint of the outer packets, 0 to 3.
    pub ecn: u8,
    /// Size of each packet but the last.
    pub segment: usize,
    /// When the last of them arrived, which may be some time before they are handed over, and even
    /// before what was handed over last. Round trips and delays are measured by this; an instant
    /// that is too early spoils them, one that is too late hardly does.
    pub arrived: Instant,
}

/// Something that happened to a connection.
#[derive(Debug)]
pub(crate) enum NodeEvent {
    /// The handshake is complete.
    Connected(ConnId),
    /// It is gone, for this reason.
    Lost(ConnId, String),
    /// HTTP/3 has news.
    Http(ConnId, masque::Event),
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
    wake: Option<Instant>,
}

pub(crate) struct Node<R> {
    endpoint: Endpoint,
    settings: Settings,
    locals: Locals,
    ways: Ways,
    conns: BTreeMap<ConnId, Conn<R>>,
    by_handle: BTreeMap<usize, ConnId>,
    next_id: u64,
    dirty: BTreeSet<ConnId>,
    wakes: BTreeSet<(Instant, ConnId)>,
    events: VecDeque<NodeEvent>,
    /// Packets that belong to no connection: version negotiation, resets, refusals.
    stateless: VecDeque<(Transmit, Vec<u8>)>,
    incoming: VecDeque<(Incoming, Local)>,
    /// Connections that are over, until the owner has heard of it.
    drained: Vec<(ConnId, EndpointEvent)>,
}

/// More stateless answers than this are not kept: they are a courtesy.
const STATELESS_LIMIT: usize = 64;

impl<R> Node<R> {
    pub(crate) fn new(settings: Settings, server: Option<Arc<ServerConfig>>) -> Self {
        let endpoint = Endpoint::new(Arc::new(settings.endpoint()), server, true);
        Self {
            endpoint,
            settings,
            locals: Locals::default(),
            ways: Ways::default(),
            conns: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            next_id: 0,
            dirty: BTreeSet::new(),
            wakes: BTreeSet::new(),
            events: VecDeque::new(),
            stateless: VecDeque::new(),
            incoming: VecDeque::new(),
            drained: Vec::new(),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn<R>> {
        self.conns.get(&id)
    }

    /// The connection, which will be looked at in the next drain.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn<R>> {
        let conn = self.conns.get_mut(&id)?;
        self.dirty.insert(id);
        Some(conn)
    }

    /// The connection, to look at and not to change.
    pub(crate) fn peek_mut(&mut self, id: ConnId) -> Option<&mut Conn<R>> {
        self.conns.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn<R>)> {
        self.conns.iter().map(|(&id, conn)| (id, conn))
    }

    pub(crate) fn alias(&mut self, local: Local) -> IpAddr {
        self.locals.alias(local)
    }

    // ---- connections ---------------------------------------------------------------------------

    /// Starts a handshake from `local`.
    #[expect(clippy::too_many_arguments, reason = "all of it makes one connection")]
    pub(crate) fn connect(
        &mut self,
        config: ClientConfig,
        remote: SocketAddr,
        server_name: &str,
        local: Local,
        treatment: Treatment,
        role: R,
        now: Instant,
    ) -> Result<ConnId, noq_proto::ConnectError> {
        let (handle, conn) = self.endpoint.connect(now, config, remote, server_name)?;
        Ok(self.add(handle, conn, H3::client(), local, treatment, role, now))
    }

    /// An incoming connection that nobody decided about yet.
    pub(crate) fn poll_incoming(&mut self) -> Option<(Incoming, Local)> {
        self.incoming.pop_front()
    }

    /// Accepts an incoming connection.
    pub(crate) fn accept(
        &mut self,
        incoming: Incoming,
        local: Local,
        role: R,
        now: Instant,
    ) -> Option<ConnId> {
        let treatment = Treatment {
            policy: Policy::Single,
            delivery: Delivery::Datagram,
            ..Treatment::default()
        };
        let mut buffer = Vec::new();
        match self.endpoint.accept(incoming, now, &mut buffer, None) {
            Ok((handle, conn)) => {
                Some(self.add(handle, conn, H3::server(), local, treatment, role, now))
            }
            Err(refused) => {
                tracing::debug!(cause = %refused.cause, "connection attempt failed");
                if let Some(transmit) = refused.response {
                    self.queue_stateless(&transmit, local, buffer);
                }
                None
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of it makes one connection")]
    fn add(
        &mut self,
        handle: ConnectionHandle,
        conn: Connection,
        h3: H3,
        first_local: Local,
        treatment: Treatment,
        role: R,
        now: Instant,
    ) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        let tunnel = Tunnel::new(conn, treatment, self.settings.outer_mtu(), now);
        self.conns.insert(
            id,
            Conn {
                tunnel,
                h3,
                role,
                handle,
                first_local,
                wake: None,
            },
        );
        self.by_handle.insert(handle.0, id);
        self.dirty.insert(id);
        id
    }

    /// Starts closing; the connection lingers until the peer has surely heard.
    pub(crate) fn close(&mut self, id: ConnId, code: u64, reason: &str, now: Instant) {
        if let Some(conn) = self.get_mut(id) {
            let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
            conn.tunnel
                .conn
                .close(now, code, Bytes::copy_from_slice(reason.as_bytes()));
        }
    }

    /// Takes over a validated path under the given link.
    pub(crate) fn adopt_path(&mut self, id: ConnId, path: PathId, link: LinkLabel, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let local = conn
            .tunnel
            .conn
            .network_path(path)
            .ok()
            .and_then(|network| self.locals.resolve(network.local_ip()?))
            .unwrap_or(conn.first_local);
        conn.tunnel.add_path(path, local.socket, link, now);
        self.ways.prune(now);
        self.dirty.insert(id);
    }

    // ---- input ---------------------------------------------------------------------------------

    /// Takes a batch of UDP packets.
    pub(crate) fn handle_datagrams(&mut self, from: Received, mut data: BytesMut, now: Instant) {
        let alias = self.locals.alias(from.local);
        let network = FourTuple::new(from.remote, Some(alias));
        let segment = from.segment.max(1);
        while !data.is_empty() {
            let packet = data.split_to(segment.min(data.len()));
            self.handle_datagram(from, network, packet, now);
        }
    }

    fn handle_datagram(
        &mut self,
        from: Received,
        network: FourTuple,
        packet: BytesMut,
        now: Instant,
    ) {
        let ecn = EcnCodepoint::from_bits(from.ecn);
        let mut buffer = Vec::new();
        let arrived = from.arrived.min(now);
        match self
            .endpoint
            .handle(arrived, network, ecn, packet, &mut buffer)
        {
            None => {}
            Some(DatagramEvent::Response(transmit)) => {
                self.queue_stateless(&transmit, from.local, buffer);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.incoming.push_back((incoming, from.local));
            }
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Some(&id) = self.by_handle.get(&handle.0) else {
                    return;
                };
                if let Some(conn) = self.get_mut(id) {
                    // noq panics when a client's probe timer fires between the packet that
                    // completes the handshake and the next that it sends, so what is due by now
                    // must come before the packet.
                    if conn.tunnel.conn.is_handshaking() {
                        conn.tunnel.conn.handle_timeout(now);
                    }
                    let handled = conn.tunnel.handle_event(event, network, arrived, now);
                    if let Err(code) = handled {
                        conn.h3.http.close(code, "a datagram of no stream");
                    }
                }
            }
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
        while let Some(&(at, id)) = self.wakes.first() {
            if at > now {
                break;
            }
            self.wakes.pop_first();
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.wake = None;
                conn.tunnel.conn.handle_timeout(now);
                self.dirty.insert(id);
            }
        }
    }

    // ---- output --------------------------------------------------------------------------------

    /// The next event. Draining this is what makes the connections digest their input.
    pub(crate) fn poll_event(&mut self, now: Instant) -> Option<NodeEvent> {
        if self.events.is_empty() {
            let dirty: Vec<ConnId> = self.dirty.iter().copied().collect();
            for id in dirty {
                self.digest(id, now);
            }
        }
        let event = self.events.pop_front();
        if event.is_none() {
            self.forget_drained();
        }
        event
    }

    /// A connection that times out or is reset is drained at once. It stays until its loss has been
    /// told, and so does its handle in the endpoint, lest another connection get the same.
    fn forget_drained(&mut self) {
        for (id, event) in std::mem::take(&mut self.drained) {
            if let Some(conn) = self.conns.get(&id) {
                self.endpoint.handle_event(conn.handle, event);
            }
            self.remove(id);
        }
    }

    /// Lets one connection react to what happened to it.
    fn digest(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else {
            self.dirty.remove(&id);
            return;
        };
        conn.tunnel.handle_overdue(now);
        conn.tunnel.consult(&self.ways, id, now);
        let events = &mut self.events;
        conn.tunnel.handle_health(
            |path| events.push_back(NodeEvent::PathState(id, path.id)),
            now,
        );
        if conn.tunnel.inform(&mut self.ways, id, now) {
            let (party, networks) = conn.tunnel.ways();
            let shares = |other: &Conn<R>| {
                let (theirs, ways) = other.tunnel.ways();
                party == theirs && ways.iter().any(|way| networks.contains(way))
            };
            let concerned = self.conns.iter().filter(|(_, other)| shares(other));
            self.dirty.extend(concerned.map(|(&other, _)| other));
        }
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let events = &mut self.events;
        if !conn.tunnel.close_stuck_paths(now) {
            let reason = "no data can be sent on the only path";
            conn.h3
                .fail(&mut conn.tunnel.conn, Code::H3_INTERNAL_ERROR, reason, now);
        }
        while let Some(event) = conn.tunnel.conn.poll() {
            match event {
                Event::Connected => events.push_back(NodeEvent::Connected(id)),
                Event::ConnectionLost { reason } => {
                    events.push_back(NodeEvent::Lost(id, reason.to_string()));
                }
                Event::Stream(event) => conn.h3.handle_stream(&mut conn.tunnel.conn, &event),
                Event::Path(event) => digest_path(&mut conn.tunnel, id, event, events),
                Event::DatagramReceived
                | Event::DatagramsUnblocked
                | Event::HandshakeDataReady
                | Event::HandshakeConfirmed
                | Event::NatTraversal(_) => {}
            }
        }
        // There are no streams before the handshake is done.
        if !conn.tunnel.conn.is_handshaking() {
            conn.h3.pump(&mut conn.tunnel.conn, now);
        }
        while let Some(event) = conn.h3.poll_event() {
            events.push_back(NodeEvent::Http(id, event));
        }
        if let Some(reason) = conn.h3.take_failure() {
            events.push_back(NodeEvent::Lost(id, reason));
        }
        while let Some(event) = conn.tunnel.conn.poll_endpoint_events() {
            if event.is_drained() {
                self.drained.push((id, event));
            } else if let Some(event) = self.endpoint.handle_event(conn.handle, event) {
                conn.tunnel.conn.handle_event(event);
            }
        }
    }

    fn remove(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.remove(&id) {
            self.by_handle.remove(&conn.handle.0);
            if let Some(at) = conn.wake {
                self.wakes.remove(&(at, id));
            }
        }
        self.ways.forget(id);
        self.dirty.remove(&id);
    }

    /// The next inner packet that arrived, with the connection it came by.
    pub(crate) fn poll_packet(&mut self) -> Option<(ConnId, Packet)> {
        self.dirty.iter().find_map(|id| {
            let packet = self.conns.get_mut(id)?.tunnel.poll_packet()?;
            Some((*id, packet))
        })
    }

    /// The next batch to send, its bytes appended to the empty `buffer`.
    ///
    /// When it returns `None`, all connections have settled.
    pub(crate) fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        if let Some((transmit, bytes)) = self.stateless.pop_front() {
            buffer.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(&id) = self.dirty.first() {
            let Some(conn) = self.conns.get_mut(&id) else {
                self.dirty.remove(&id);
                continue;
            };
            if let Some(transmit) = conn.tunnel.poll_transmit(now, buffer) {
                let local = transmit
                    .src_ip
                    .and_then(|alias| self.locals.resolve(alias))
                    .unwrap_or(conn.first_local);
                return Some(outgoing(&transmit, local));
            }
            self.dirty.remove(&id);
            self.schedule_wake(id);
        }
        None
    }

    fn schedule_wake(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let wake = conn.tunnel.poll_timeout();
        if wake == conn.wake {
            return;
        }
        if let Some(at) = conn.wake {
            self.wakes.remove(&(at, id));
        }
        if let Some(at) = wake {
            self.wakes.insert((at, id));
        }
        conn.wake = wake;
    }

    /// When [`Self::handle_timeout`] should be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.wakes.first().map(|&(at, _)| at)
    }
}

fn outgoing(transmit: &noq_proto::Transmit, local: Local) -> Transmit {
    Transmit {
        local,
        remote: transmit.destination,
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        size: transmit.size,
        segment: transmit.segment_size,
    }
}

fn digest_path(
    tunnel: &mut Tunnel,
    id: ConnId,
    event: PathEvent,
    events: &mut VecDeque<NodeEvent>,
) {
    match event {
        PathEvent::Established { id: path, .. } => events.push_back(NodeEvent::PathUp(id, path)),
        PathEvent::Abandoned {
            id: path, reason, ..
        } => {
            let link = tunnel.remove_path(path).map(|link| link.name);
            events.push_back(NodeEvent::PathDown(id, path, link, describe(&reason)));
        }
        // Peers that report report in their own way; see `sennit_core::frame::Report`.
        _ => {}
    }
}

fn describe(reason: &PathAbandonReason) -> String {
    match reason {
        PathAbandonReason::ApplicationClosed { .. } => "closed here".into(),
        PathAbandonReason::TimedOut => "timed out".into(),
        PathAbandonReason::UnusableAfterNetworkChange => "unusable after a network change".into(),
        PathAbandonReason::RemoteAbandoned { error_code } => {
            format!("closed by the peer with code {error_code}")
        }
        #[expect(
            deprecated,
            reason = "noq no longer emits it but the enum still has it"
        )]
        PathAbandonReason::ValidationFailed => "validation failed".into(),
    }
}

impl<R> Conn<R> {
    /// The trusted or hoped-for paths, for status.
    pub(crate) fn paths(&self) -> &[Path] {
        &self.tunnel.paths
    }

    /// Fills in what the tunnel knows of itself.
    pub(crate) fn describe(
        &mut self,
        status: &mut TunnelStatus,
        wanted: Option<(&FlowsWanted, Instant)>,
    ) {
        self.tunnel.describe(status);
        if let Some((wanted, now)) = wanted {
            (status.flows, status.flow_count) = self.tunnel.flows(wanted, now);
        }
    }
}
