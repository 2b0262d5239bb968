//! QUIC without a tunnel: connections with streams and datagrams over one path each, under the same
//! congestion controllers as a tunnel's paths. It is what load tests are made of.
//!
//! The contract is that of the other machines: one mutation, then [`Bare::poll_event`] and
//! [`Bare::poll_transmit`] until each is empty, then sleep until [`Bare::poll_timeout`].

mod config;
mod known;
mod roster;
mod streams;
mod words;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, Datagram, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointEvent, Event, FourTuple, Incoming, PathId, ServerConfig, StreamEvent, Transmit, VarInt,
    crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig},
};

use self::words::{ended, outgoing};
pub use self::{
    config::BareConfig,
    roster::Roster,
    words::{BareEvent, BareReceived, BareStats, BareTransmit, Ended, Stream},
};
use crate::{farewell::Farewell, finish::Finish, ids::ConnId};

struct Conn {
    /// It is large, and a tree's nodes are not full.
    quic: Box<Connection>,
    handle: ConnectionHandle,
    remote: SocketAddr,
    client: bool,
    finish: Finish,
    /// It has sent packets since its handshake was complete.
    settled: bool,
    /// What it closes with as soon as it is settled.
    parting: Option<(VarInt, Bytes)>,
    farewell: Farewell,
    /// When the datagrams arrived that it was given last.
    arrived: Option<Instant>,
    /// A datagram that was to leave soon found no room.
    wants_room: bool,
}

impl Conn {
    fn close(&mut self, code: VarInt, reason: &str, now: Instant) {
        let reason = Bytes::copy_from_slice(reason.as_bytes());
        if self.client && !self.settled && !self.quic.is_handshaking() {
            self.parting = Some((code, reason));
        } else {
            self.quic.close(now, code, reason);
        }
    }

    /// Bytes of datagrams that have not left.
    fn waiting(&mut self) -> usize {
        let space = self.quic.datagrams().send_buffer_space();
        // noq counts the place of the next one as taken.
        let waiting = BareConfig::DATAGRAM_BUFFER.saturating_sub(space);
        waiting.saturating_sub(size_of::<Datagram>())
    }

    /// Whether a datagram would leave soon.
    fn has_room(&mut self) -> bool {
        let path = self.quic.path_stats(PathId::ZERO);
        let soon = path.map_or(0, |path| BareConfig::soon(path.cwnd, path.rtt));
        self.waiting() < soon
    }

    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.finish.note_sending(&self.quic);
        let (most, farewell) = (BareConfig::SEGMENTS, &mut self.farewell);
        let transmit = farewell.poll_transmit(&mut self.quic, now, most, buffer)?;
        if !self.quic.is_handshaking() {
            self.settled = true;
            if let Some((code, reason)) = self.parting.take() {
                self.quic.close(now, code, reason);
            }
        }
        Some(transmit)
    }
}

/// An endpoint of connections without a tunnel: a client, or a server.
pub struct Bare {
    endpoint: Endpoint,
    config: BareConfig,
    conns: BTreeMap<ConnId, Conn>,
    by_handle: BTreeMap<usize, ConnId>,
    next_id: u64,
    roster: Roster,
    events: VecDeque<BareEvent>,
    stateless: VecDeque<(BareTransmit, Vec<u8>)>,
    drained: Vec<(ConnId, EndpointEvent)>,
}

impl fmt::Debug for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bare")
            .field("connections", &self.conns.len())
            .finish_non_exhaustive()
    }
}

impl Bare {
    /// An endpoint that only connects.
    #[must_use]
    pub fn client(config: BareConfig) -> Self {
        Self::new(config, None)
    }

    /// An endpoint that is connected to.
    ///
    /// # Errors
    /// If the TLS configuration lacks the suite that QUIC begins with.
    pub fn server(
        config: BareConfig,
        tls: Arc<rustls::ServerConfig>,
    ) -> Result<Self, NoInitialCipherSuite> {
        let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
        server.transport_config(config.transport());
        server.migration(true);
        server.max_incoming(config.most);
        Ok(Self::new(config, Some(Arc::new(server))))
    }

    fn new(config: BareConfig, server: Option<Arc<ServerConfig>>) -> Self {
        let endpoint = Endpoint::new(Arc::new(config.endpoint()), server, true);
        Self {
            endpoint,
            config,
            conns: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            next_id: 0,
            roster: Roster::default(),
            events: VecDeque::new(),
            stateless: VecDeque::new(),
            drained: Vec::new(),
        }
    }

    /// Starts a handshake.
    ///
    /// # Errors
    /// In words, if nobody can be at that address or the TLS configuration is not for QUIC.
    pub fn connect(
        &mut self,
        tls: Arc<rustls::ClientConfig>,
        remote: SocketAddr,
        server_name: &str,
        now: Instant,
    ) -> Result<ConnId, String> {
        let crypto = QuicClientConfig::try_from(tls).map_err(|error| error.to_string())?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(self.config.transport());
        let connecting = self.endpoint.connect(now, config, remote, server_name);
        let (handle, quic) = connecting.map_err(|error| error.to_string())?;
        Ok(self.add(handle, quic, remote, true))
    }

    fn add(
        &mut self,
        handle: ConnectionHandle,
        quic: Connection,
        remote: SocketAddr,
        client: bool,
    ) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        let conn = Conn {
            quic: Box::new(quic),
            handle,
            remote,
            client,
            finish: Finish::default(),
            settled: false,
            parting: None,
            farewell: Farewell::default(),
            arrived: None,
            wants_room: false,
        };
        self.conns.insert(id, conn);
        self.by_handle.insert(handle.0, id);
        self.roster.touch(id);
        id
    }

    /// Ends a connection, which tells the peer why. A client that has just completed its handshake
    /// lets the server complete it first.
    pub fn close(&mut self, id: ConnId, code: u32, reason: &str, now: Instant) {
        if let Some(conn) = self.conns.get_mut(&id) {
            self.roster.touch(id);
            conn.close(VarInt::from_u32(code), reason, now);
        }
    }

    /// A connection sends before all others from now on; the others take turns.
    pub fn set_urgent(&mut self, id: ConnId) {
        self.roster.set_urgent(id);
    }

    /// How many connections there are, those that just ended among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// The connection, which will be looked at in the next drain.
    fn get(&mut self, id: ConnId) -> Option<&mut Connection> {
        let conn = self.conns.get_mut(&id)?;
        self.roster.touch(id);
        Some(&mut conn.quic)
    }

    // ---- input ---------------------------------------------------------------------------------

    /// Takes a run of UDP packets.
    pub fn handle_datagrams(&mut self, from: BareReceived, mut data: BytesMut, now: Instant) {
        let segment = from.segment.max(1);
        while !data.is_empty() {
            let packet = data.split_to(segment.min(data.len()));
            self.handle_datagram(from, packet, now);
        }
    }

    fn handle_datagram(&mut self, from: BareReceived, packet: BytesMut, now: Instant) {
        let network = FourTuple::new(from.remote, from.local);
        let (ecn, arrived) = (EcnCodepoint::from_bits(from.ecn), from.arrived.min(now));
        let mut buffer = Vec::new();
        let endpoint = &mut self.endpoint;
        match endpoint.handle(arrived, network, ecn, packet, &mut buffer) {
            None => {}
            Some(DatagramEvent::Response(transmit)) => self.queue_stateless(&transmit, buffer),
            Some(DatagramEvent::NewConnection(incoming)) => self.handle_incoming(incoming, now),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Some(&id) = self.by_handle.get(&handle.0) else {
                    return;
                };
                let Some(conn) = self.conns.get_mut(&id) else {
                    return;
                };
                conn.quic.handle_event(event);
                conn.farewell.note_heard(&conn.quic);
                conn.arrived = Some(arrived);
                self.roster.touch(id);
                // The time of arrival is that of this packet only.
                self.take_datagrams(id);
            }
        }
    }

    fn take_datagrams(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if let Some(arrived) = conn.arrived {
            while let Some(bytes) = conn.quic.datagrams().recv() {
                self.events
                    .push_back(BareEvent::Datagram(id, bytes, arrived));
            }
        }
    }

    fn handle_incoming(&mut self, incoming: Incoming, now: Instant) {
        let (remote, most) = (incoming.remote_address(), self.config.most);
        let of_address = |conn: &&Conn| conn.remote.ip() == remote.ip();
        let there = self.conns.values().filter(of_address).count();
        let mut buffer = Vec::new();
        if self.conns.len() >= most || there >= self.config.most_per_address {
            let transmit = self.endpoint.refuse(incoming, &mut buffer);
            return self.queue_stateless(&transmit, buffer);
        }
        if self.conns.len() >= most / BareConfig::UNPROVEN && !incoming.remote_address_validated() {
            match self.endpoint.retry(incoming, &mut buffer) {
                Ok(transmit) => self.queue_stateless(&transmit, buffer),
                Err(error) => {
                    let transmit = self.endpoint.refuse(error.into_incoming(), &mut buffer);
                    self.queue_stateless(&transmit, buffer);
                }
            }
            return;
        }
        match self.endpoint.accept(incoming, now, &mut buffer, None) {
            Ok((handle, conn)) => {
                self.add(handle, conn, remote, false);
            }
            Err(refused) => {
                if let Some(transmit) = refused.response {
                    self.queue_stateless(&transmit, buffer);
                }
            }
        }
    }

    fn queue_stateless(&mut self, transmit: &Transmit, buffer: Vec<u8>) {
        if self.stateless.len() < BareConfig::STATELESS_LIMIT {
            self.stateless.push_back((outgoing(transmit), buffer));
        }
    }

    /// Wakes the connections whose time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.roster.pop_due(now) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.finish.handle_timeout(&mut conn.quic, now);
            }
        }
    }

    // ---- output --------------------------------------------------------------------------------

    /// The next event.
    pub fn poll_event(&mut self) -> Option<BareEvent> {
        if self.events.is_empty() {
            for id in self.roster.touched() {
                self.digest(id);
            }
        }
        let event = self.events.pop_front();
        if event.is_none() {
            self.forget_drained();
        }
        event
    }

    fn digest(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return self.roster.forget(id);
        };
        let events = &mut self.events;
        if conn.wants_room && conn.has_room() {
            conn.wants_room = false;
            events.push_back(BareEvent::DatagramRoom(id));
        }
        while let Some(event) = conn.quic.poll() {
            match event {
                Event::Connected if conn.client => events.push_back(BareEvent::Connected(id)),
                Event::Connected => events.push_back(BareEvent::Accepted(id, conn.remote)),
                Event::ConnectionLost { reason } => {
                    events.push_back(BareEvent::Lost(id, ended(&reason)));
                }
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(stream) = conn.quic.streams().accept(dir) {
                        events.push_back(BareEvent::Opened(id, Stream(stream)));
                    }
                }
                Event::Stream(StreamEvent::Readable { id: stream }) => {
                    events.push_back(BareEvent::Readable(id, Stream(stream)));
                }
                Event::Stream(
                    StreamEvent::Writable { id: stream } | StreamEvent::Stopped { id: stream, .. },
                ) => events.push_back(BareEvent::Writable(id, Stream(stream))),
                Event::DatagramsUnblocked => events.push_back(BareEvent::DatagramRoom(id)),
                Event::Stream(StreamEvent::Finished { id: stream }) => {
                    events.push_back(BareEvent::Delivered(id, Stream(stream)));
                }
                Event::Stream(StreamEvent::Available { .. })
                | Event::DatagramReceived
                | Event::HandshakeDataReady
                | Event::HandshakeConfirmed
                | Event::Path(_)
                | Event::NatTraversal(_) => {}
            }
        }
        while let Some(event) = conn.quic.poll_endpoint_events() {
            if event.is_drained() {
                self.drained.push((id, event));
            } else if let Some(event) = self.endpoint.handle_event(conn.handle, event) {
                conn.quic.handle_event(event);
            }
        }
    }

    fn forget_drained(&mut self) {
        for (id, event) in std::mem::take(&mut self.drained) {
            if let Some(conn) = self.conns.remove(&id) {
                self.endpoint.handle_event(conn.handle, event);
                self.by_handle.remove(&conn.handle.0);
            }
            self.roster.forget(id);
        }
    }

    /// The next run of packets to send, its bytes appended to the empty `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<BareTransmit> {
        if let Some((transmit, bytes)) = self.stateless.pop_front() {
            buffer.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(id) = self.roster.take_turn() {
            let mut wake = None;
            if let Some(conn) = self.conns.get_mut(&id) {
                if let Some(transmit) = conn.poll_transmit(buffer, now) {
                    return Some(outgoing(&transmit));
                }
                wake = conn.quic.poll_timeout();
                if conn.wants_room && conn.has_room() {
                    wake = Some(now);
                }
            }
            self.roster.rest(id, wake);
        }
        None
    }

    /// When [`Self::handle_timeout`] should be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.roster.poll_timeout()
    }
}
