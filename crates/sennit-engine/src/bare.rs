//! QUIC without a tunnel: connections with streams and datagrams over one path each, under the same
//! congestion controllers as a tunnel's paths. It is what load tests are made of.
//!
//! The contract is that of the other machines: one mutation, then [`Bare::poll_event`] and
//! [`Bare::poll_transmit`] until each is empty, then sleep until [`Bare::poll_timeout`].

mod roster;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{self, Display},
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::hmac;
use bytes::{Bytes, BytesMut};
use noq_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent,
    Dir, EcnCodepoint, Endpoint, EndpointConfig, EndpointEvent, Event, FourTuple, IdleTimeout,
    Incoming, PathId, ReadError, SendDatagramError, ServerConfig, StreamEvent, StreamId,
    TransportConfig, VarInt, WriteError,
    crypto::rustls::{HandshakeData, NoInitialCipherSuite, QuicClientConfig, QuicServerConfig},
};
pub use roster::Roster;
use sennit_core::Congestion;

use crate::{
    acks::{ACK_DELAY, ACK_PACKETS, INITIAL_RTT},
    congestion::Choice,
    finish::Finish,
    gate::{Alone, AloneFactory},
    ids::ConnId,
};

/// TLS's alert for a protocol that the peer does not speak (RFC 7301 §3.2), as QUIC's error code
/// (RFC 9001 §4.8).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// The server is busy, or does not want this client (RFC 9000 §20.1).
const CONNECTION_REFUSED: u64 = 2;

/// What all connections of an endpoint have in common.
#[derive(Clone)]
pub struct BareConfig {
    /// Controls what is sent, unless [`Bare::set_congestion`] says otherwise for a connection.
    pub congestion: Congestion,
    /// Without a sign of the peer for so long a connection is over.
    pub idle: Duration,
    /// Seed of all randomness.
    pub seed: [u8; 32],
    /// Key of stateless reset tokens.
    pub reset_key: [u8; 32],
    /// Connections that a server has at once, at most.
    pub most: usize,
    /// Connections that it has with one address at once, at most.
    pub most_per_address: usize,
}

/// A stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream(StreamId);

impl Stream {
    /// The stream of this number (RFC 9000 §2.1), of whatever stack.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        VarInt::from_u64(number).ok().map(|it| Self(it.into()))
    }

    /// Its number (RFC 9000 §2.1).
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.into()
    }

    /// Whether both ends may write to it.
    #[must_use]
    pub fn goes_both_ways(self) -> bool {
        self.0.dir() == Dir::Bi
    }
}

/// Something that happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BareEvent {
    /// A client came, and its handshake is complete.
    Accepted(ConnId, SocketAddr),
    /// The handshake that [`Bare::connect`] began is complete.
    Connected(ConnId),
    /// The connection is over, and its name will not be heard again.
    Lost(ConnId, Ended),
    /// The peer opened a stream, which may have data.
    Opened(ConnId, Stream),
    /// A stream has data, or its end, to read.
    Readable(ConnId, Stream),
    /// A stream that was full takes data again.
    Writable(ConnId, Stream),
    /// All of a stream, its end too, is acknowledged.
    Delivered(ConnId, Stream),
    /// There is room for datagrams again.
    DatagramRoom(ConnId),
    /// A datagram that arrived at that time.
    Datagram(ConnId, Bytes, Instant),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing was heard of the peer.
    TimedOut,
    /// The peer speaks another version of QUIC.
    OtherVersion,
    /// The peer speaks QUIC, but not the protocol that was asked for.
    OtherProtocol,
    /// The peer has no place for another connection.
    Refused,
    /// The peer ended it, with a code and a text of its own.
    ByPeer(u64, String),
    /// It was ended here.
    Here,
    /// Something else, in words.
    Failed(String),
}

impl Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("nothing is heard of the other end"),
            Self::OtherVersion => f.write_str("the other end speaks another version of QUIC"),
            Self::OtherProtocol => f.write_str("the other end speaks QUIC, but not this protocol"),
            Self::Refused => f.write_str("the other end has no place for another connection"),
            Self::ByPeer(code, reason) => {
                write!(f, "the other end ended it: {reason} (code {code})")
            }
            Self::Here => f.write_str("it was ended here"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// A run of UDP packets to send, in the buffer that the caller lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareTransmit {
    /// Our address that it leaves from, if that matters.
    pub source: Option<IpAddr>,
    /// Where it goes.
    pub remote: SocketAddr,
    /// ECN codepoint, 0 to 3.
    pub ecn: u8,
    /// Bytes in the buffer.
    pub size: usize,
    /// Size of each packet but the last, if there are several.
    pub segment: Option<usize>,
}

/// Where a run of UDP packets came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareReceived {
    /// Our address that it arrived at, if answers must leave from it.
    pub local: Option<IpAddr>,
    /// Who sent it.
    pub remote: SocketAddr,
    /// ECN codepoint, 0 to 3.
    pub ecn: u8,
    /// Size of each packet but the last.
    pub segment: usize,
    /// When the last of them arrived.
    pub arrived: Instant,
}

/// What a connection did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BareStats {
    /// UDP payload bytes sent.
    pub sent_bytes: u64,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// QUIC packets taken for lost.
    pub lost_packets: u64,
    /// UDP payload bytes received.
    pub received_bytes: u64,
    /// Congestion window in bytes.
    pub window: u64,
    /// The largest UDP payload that the path is known to carry.
    pub mtu: u16,
}

struct Conn {
    /// It is large, and a tree's nodes are not full.
    quic: Box<Connection>,
    handle: ConnectionHandle,
    remote: SocketAddr,
    client: bool,
    finish: Finish,
    /// When the datagrams arrived that it was given last.
    arrived: Option<Instant>,
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

impl BareConfig {
    /// A stream may have so much under way: 2.5 Gbit/s at 100 ms.
    pub const WINDOW: u32 = 32 << 20;
    /// Datagrams wait here until the driver drains them, within one batch of the socket.
    pub const DATAGRAM_BUFFER: usize = 4 << 20;
    /// A connection may have so many streams open that carry load.
    pub const STREAMS: u32 = 4096;
    /// A connection may have so many streams open on which both ends talk.
    pub const TALKS: u32 = 260;
    /// Packets of one send, as many as the kernel cuts.
    pub const SEGMENTS: NonZeroUsize = NonZeroUsize::new(32).expect("it is not zero");
    /// Stateless answers that wait; more are dropped, as the network may.
    pub const STATELESS_LIMIT: usize = 64;
    /// From this part of the places on, whoever comes must first show that the address is its own.
    pub const UNPROVEN: usize = 4;

    fn endpoint(&self) -> EndpointConfig {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.reset_key);
        let mut config = EndpointConfig::new(Arc::new(key));
        config
            .supported_versions(vec![1])
            .rng_seed(Some(self.seed))
            .grease_quic_bit(true);
        config
    }

    fn transport(&self) -> Arc<TransportConfig> {
        let mut ack_frequency = AckFrequencyConfig::default();
        ack_frequency
            .ack_eliciting_threshold(VarInt::from_u32(ACK_PACKETS - 1))
            .max_ack_delay(Some(ACK_DELAY));
        let idle = IdleTimeout::try_from(self.idle).unwrap_or_else(|_| VarInt::MAX.into());
        let mut config = TransportConfig::default();
        config
            .initial_rtt(INITIAL_RTT)
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(self.idle / 3))
            .ack_frequency_config(Some(ack_frequency))
            .max_concurrent_bidi_streams(VarInt::from_u32(Self::TALKS))
            .max_concurrent_uni_streams(VarInt::from_u32(Self::STREAMS))
            .stream_receive_window(VarInt::from_u32(Self::WINDOW))
            .receive_window(VarInt::from_u32(2 * Self::WINDOW))
            .send_window(u64::from(Self::WINDOW))
            .datagram_receive_buffer_size(Some(Self::DATAGRAM_BUFFER))
            .datagram_send_buffer_size(Self::DATAGRAM_BUFFER)
            .allow_spin(false)
            .congestion_controller_factory(Arc::new(AloneFactory(self.congestion)));
        Arc::new(config)
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
            arrived: None,
        };
        self.conns.insert(id, conn);
        self.by_handle.insert(handle.0, id);
        self.roster.touch(id);
        id
    }

    /// Ends a connection, which tells the peer why.
    pub fn close(&mut self, id: ConnId, code: u32, reason: &str, now: Instant) {
        if let Some(conn) = self.get(id) {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            conn.close(now, VarInt::from_u32(code), reason);
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

    // ---- streams and datagrams -----------------------------------------------------------------

    /// Opens a stream, on which the peer may answer if it goes both ways; `None` if the connection
    /// has as many as the peer allows.
    pub fn open(&mut self, id: ConnId, both_ways: bool) -> Option<Stream> {
        let dir = if both_ways { Dir::Bi } else { Dir::Uni };
        self.get(id)?.streams().open(dir).map(Stream)
    }

    /// Hands over as much of `data` as the stream takes: how many bytes. Zero means that it is
    /// full, and [`BareEvent::Writable`] will follow; `None` that it is over.
    pub fn write(&mut self, id: ConnId, stream: Stream, data: &Bytes) -> Option<usize> {
        let mut chunks = [data.clone()];
        match self
            .get(id)?
            .send_stream(stream.0)
            .write_chunks(&mut &mut chunks[..])
        {
            Ok(written) => Some(written),
            Err(WriteError::Blocked) => Some(0),
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => None,
        }
    }

    /// No more will be written.
    pub fn finish(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            // A stream that the peer stopped, or that is finished, is over as it should be.
            let _ = conn.send_stream(stream.0).finish();
        }
    }

    /// No more will be read: the peer is told.
    pub fn stop(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            let _ = conn.recv_stream(stream.0).stop(VarInt::from_u32(0));
        }
    }

    /// Of the streams that have something to send, those of the highest number send first; at first
    /// each has 0.
    pub fn set_priority(&mut self, id: ConnId, stream: Stream, priority: i32) {
        if let Some(conn) = self.get(id) {
            // A stream that is over has nothing to send.
            let _ = conn.send_stream(stream.0).set_priority(priority);
        }
    }

    /// Gives up what was written and is not delivered yet.
    pub fn reset(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            let _ = conn.send_stream(stream.0).reset(VarInt::from_u32(0));
        }
    }

    /// Hands what has arrived on a stream to `sink`, in order; whether the stream is over.
    pub fn read(&mut self, id: ConnId, stream: Stream, sink: impl FnMut(&[u8])) -> bool {
        self.take(id, stream, true, sink)
    }

    /// How many bytes have arrived on a stream since the last call, each counted once, in whatever
    /// order. A stream is read in order or so: noq ends a connection of which a stream that is read
    /// in order has more than 1024 gaps, and a large window that overflows a queue has as many.
    pub fn count(&mut self, id: ConnId, stream: Stream) -> usize {
        let mut bytes = 0;
        self.drain(id, stream, |data| bytes += data.len());
        bytes
    }

    /// Hands what has arrived on a stream to `sink` in whatever order, as [`Self::count`] counts;
    /// whether the stream is over. What was read in order before may be read so from then on.
    pub fn drain(&mut self, id: ConnId, stream: Stream, sink: impl FnMut(&[u8])) -> bool {
        self.take(id, stream, false, sink)
    }

    fn take(
        &mut self,
        id: ConnId,
        stream: Stream,
        ordered: bool,
        mut sink: impl FnMut(&[u8]),
    ) -> bool {
        let Some(conn) = self.get(id) else {
            return true;
        };
        let mut receiving = conn.recv_stream(stream.0);
        let Ok(mut chunks) = receiving.read(ordered) else {
            return true;
        };
        let over = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => sink(&chunk.bytes),
                Ok(None) | Err(ReadError::Reset(_)) => break true,
                Err(ReadError::Blocked) => break false,
            }
        };
        // Whether there is a frame to send, the next drain finds out.
        let _ = chunks.finalize();
        over
    }

    /// Hands a datagram over, to be sent once or never; `false` if there is no room for it, and
    /// [`BareEvent::DatagramRoom`] will follow.
    pub fn send_datagram(&mut self, id: ConnId, data: Bytes) -> bool {
        let Some(conn) = self.get(id) else {
            return true;
        };
        // What the peer or the path does not take is lost, as a packet that is too large is.
        !matches!(
            conn.datagrams().send(data, false),
            Err(SendDatagramError::Blocked(_))
        )
    }

    /// Whether a connection whose handshake is not complete may send already (0-RTT).
    #[must_use]
    pub fn may_send_early(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.quic.has_0rtt())
    }

    /// Whether the server took what was sent before the handshake was complete.
    #[must_use]
    pub fn was_early_taken(&self, id: ConnId) -> bool {
        self.conns
            .get(&id)
            .is_some_and(|conn| conn.quic.accepted_0rtt())
    }

    /// The largest datagram that a connection takes now; `None` if it takes none.
    pub fn max_datagram(&mut self, id: ConnId) -> Option<usize> {
        self.conns.get_mut(&id)?.quic.datagrams().max_size()
    }

    // ---- what is known of a connection ---------------------------------------------------------

    /// The application protocol that both ends agreed on (ALPN, RFC 7301), once they have.
    #[must_use]
    pub fn protocol(&self, id: ConnId) -> Option<Vec<u8>> {
        self.handshake(id)?.protocol
    }

    /// Whether the keys come from X25519MLKEM768.
    #[must_use]
    pub fn is_post_quantum(&self, id: ConnId) -> bool {
        let handshake = self.handshake(id);
        let group = handshake.and_then(|data| data.negotiated_key_exchange_group);
        group == Some(rustls::NamedGroup::X25519MLKEM768)
    }

    fn handshake(&self, id: ConnId) -> Option<Box<HandshakeData>> {
        let quic = &self.conns.get(&id)?.quic;
        quic.crypto_session().handshake_data()?.downcast().ok()
    }

    /// Another congestion controller for what this end sends.
    pub fn set_congestion(&mut self, id: ConnId, word: Congestion) {
        let conn = self.conns.get(&id);
        let controller = conn.and_then(|conn| conn.quic.congestion_state(PathId::ZERO));
        if let Some(state) = controller.and_then(Alone::state_of) {
            state.set_congestion(word);
        }
    }

    /// The congestion controller that runs, and why.
    #[must_use]
    pub fn choice(&self, id: ConnId) -> Option<Choice> {
        let controller = self.conns.get(&id)?.quic.congestion_state(PathId::ZERO)?;
        Alone::state_of(controller)?.choice()
    }

    /// What a connection did so far.
    pub fn stats(&mut self, id: ConnId) -> Option<BareStats> {
        let conn = &mut self.conns.get_mut(&id)?.quic;
        let path = conn.path_stats(PathId::ZERO)?;
        Some(BareStats {
            sent_bytes: path.udp_tx.bytes,
            sent_packets: path.sent_packets,
            lost_packets: path.lost_packets,
            received_bytes: path.udp_rx.bytes,
            window: path.cwnd,
            mtu: path.current_mtu,
        })
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

    fn queue_stateless(&mut self, transmit: &noq_proto::Transmit, buffer: Vec<u8>) {
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
                conn.finish.note_sending(&conn.quic);
                if let Some(transmit) = conn.quic.poll_transmit(now, BareConfig::SEGMENTS, buffer) {
                    return Some(outgoing(&transmit));
                }
                wake = conn.quic.poll_timeout();
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

fn outgoing(transmit: &noq_proto::Transmit) -> BareTransmit {
    BareTransmit {
        source: transmit.src_ip,
        remote: transmit.destination,
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        size: transmit.size,
        segment: transmit.segment_size,
    }
}

fn ended(reason: &ConnectionError) -> Ended {
    match reason {
        ConnectionError::TimedOut => Ended::TimedOut,
        ConnectionError::VersionMismatch => Ended::OtherVersion,
        ConnectionError::LocallyClosed => Ended::Here,
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            Ended::ByPeer(close.error_code.into(), reason)
        }
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            NO_APPLICATION_PROTOCOL => Ended::OtherProtocol,
            CONNECTION_REFUSED => Ended::Refused,
            _ => Ended::Failed(reason.to_string()),
        },
        ConnectionError::TransportError(error)
            if u64::from(error.code) == NO_APPLICATION_PROTOCOL =>
        {
            Ended::OtherProtocol
        }
        ConnectionError::TransportError(_)
        | ConnectionError::Reset
        | ConnectionError::CidsExhausted => Ended::Failed(reason.to_string()),
    }
}
