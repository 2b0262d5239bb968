//! quinn under a test, as it comes but for windows and limits, which are those of [`Bare`].
//!
//! Its state machine is driven as noq's is in our engine, over the same sockets or emulated link.
//!
//! [`Bare`]: sennit_engine::Bare

mod congestion;
mod driven;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use aws_lc_rs::hmac;
use bytes::{Bytes, BytesMut};
use congestion::Wanted;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, Datagram, DatagramEvent, Dir,
    EcnCodepoint, Endpoint, EndpointConfig, EndpointEvent, Event, IdleTimeout, Incoming, ReadError,
    SendDatagramError, ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig,
    TransportErrorCode, VarInt, WriteError,
    crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig},
};
use sennit_core::Congestion;
use sennit_engine::{
    BareConfig, BareEvent, BareReceived, BareStats, BareTransmit, ConnId, Ended, FecOutlook,
    Roster, Stream,
};

use super::{Stack, StackName};

/// Streams that carry load, of which a connection may have so many open: twice what a plan may ask
/// for. quinn keeps a place for each of them from the beginning.
const STREAMS: u32 = 512;
/// TLS's alert for a protocol that the peer does not speak (RFC 7301 §3.2).
const NO_APPLICATION_PROTOCOL: u8 = 120;

struct Conn {
    quic: Box<Connection>,
    handle: ConnectionHandle,
    remote: SocketAddr,
    client: bool,
    congestion: Wanted,
    /// When the datagrams arrived that it was given last.
    arrived: Option<Instant>,
    /// A datagram that was to leave soon found no room.
    wants_room: bool,
}

impl Conn {
    /// Bytes of datagrams that have not left, each with what quinn needs to keep it.
    fn waiting(&mut self) -> usize {
        let space = self.quic.datagrams().send_buffer_space();
        // quinn counts the place of the next one as taken.
        let waiting = BareConfig::DATAGRAM_BUFFER.saturating_sub(space);
        waiting.saturating_sub(size_of::<Datagram>())
    }

    /// Whether a datagram would leave soon.
    fn has_room(&mut self) -> bool {
        let path = self.quic.stats().path;
        self.waiting() < BareConfig::soon(path.cwnd, path.rtt)
    }
}

/// An endpoint of quinn: a client, or a server.
pub(super) struct Quinn {
    endpoint: Endpoint,
    config: BareConfig,
    /// What every connection of a server begins with.
    server: Option<ServerConfig>,
    conns: BTreeMap<ConnId, Conn>,
    by_handle: BTreeMap<usize, ConnId>,
    next_id: u64,
    roster: Roster,
    events: VecDeque<BareEvent>,
    stateless: VecDeque<(BareTransmit, Vec<u8>)>,
    drained: Vec<(ConnId, EndpointEvent)>,
}

impl Quinn {
    pub(super) fn client(config: BareConfig) -> Self {
        Self::new(config, None)
    }

    pub(super) fn server(
        config: BareConfig,
        tls: Arc<rustls::ServerConfig>,
    ) -> Result<Self, String> {
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| error.to_string())?;
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.max_incoming(config.most);
        Ok(Self::new(config, Some(server)))
    }

    fn new(config: BareConfig, server: Option<ServerConfig>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &config.reset_key);
        let mut shared = EndpointConfig::new(Arc::new(key));
        shared
            .supported_versions(vec![1])
            .rng_seed(Some(config.seed));
        let accepts = server.clone().map(Arc::new);
        Self {
            endpoint: Endpoint::new(Arc::new(shared), accepts, true, None),
            config,
            server,
            conns: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            next_id: 0,
            roster: Roster::default(),
            events: VecDeque::new(),
            stateless: VecDeque::new(),
            drained: Vec::new(),
        }
    }

    fn transport(&self, congestion: &Wanted) -> Arc<TransportConfig> {
        let idle = IdleTimeout::try_from(self.config.idle).unwrap_or_else(|_| VarInt::MAX.into());
        let mut config = TransportConfig::default();
        config
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(self.config.idle / 3))
            .max_concurrent_bidi_streams(VarInt::from_u32(BareConfig::TALKS))
            .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
            .stream_receive_window(VarInt::from_u32(BareConfig::WINDOW))
            .receive_window(VarInt::from_u32(2 * BareConfig::WINDOW))
            .send_window(u64::from(BareConfig::WINDOW))
            .datagram_receive_buffer_size(Some(BareConfig::DATAGRAM_BUFFER))
            .datagram_send_buffer_size(BareConfig::DATAGRAM_BUFFER)
            .congestion_controller_factory(Arc::new(congestion.clone()));
        Arc::new(config)
    }

    fn add(
        &mut self,
        (handle, quic): (ConnectionHandle, Connection),
        congestion: Wanted,
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
            congestion,
            arrived: None,
            wants_room: false,
        };
        self.conns.insert(id, conn);
        self.by_handle.insert(handle.0, id);
        self.roster.touch(id);
        id
    }

    /// The connection, which will be looked at in the next drain.
    fn get(&mut self, id: ConnId) -> Option<&mut Connection> {
        let conn = self.conns.get_mut(&id)?;
        self.roster.touch(id);
        Some(&mut conn.quic)
    }

    /// Hands what has arrived on a stream to `sink`; whether the stream is over.
    fn take(
        &mut self,
        id: ConnId,
        stream: Stream,
        ordered: bool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let Some(conn) = self.get(id) else {
            return true;
        };
        let mut receiving = conn.recv_stream(theirs(stream));
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

    // ---- input ---------------------------------------------------------------------------------

    fn handle_datagram(&mut self, from: BareReceived, packet: BytesMut, now: Instant) {
        let (ecn, arrived) = (EcnCodepoint::from_bits(from.ecn), from.arrived.min(now));
        let mut buffer = Vec::new();
        let endpoint = &mut self.endpoint;
        match endpoint.handle(arrived, from.remote, from.local, ecn, packet, &mut buffer) {
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
                while let Some(bytes) = conn.quic.datagrams().recv() {
                    self.events
                        .push_back(BareEvent::Datagram(id, bytes, arrived));
                }
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
        let unproven = !incoming.remote_address_validated() && incoming.may_retry();
        if self.conns.len() >= most / BareConfig::UNPROVEN && unproven {
            // What may be retried can be.
            if let Ok(transmit) = self.endpoint.retry(incoming, &mut buffer) {
                self.queue_stateless(&transmit, buffer);
            }
            return;
        }
        let congestion = Wanted::new(self.config.congestion);
        let transport = self.transport(&congestion);
        let config = self.server.clone().map(|mut config| {
            config.transport_config(transport);
            Arc::new(config)
        });
        match self.endpoint.accept(incoming, now, &mut buffer, config) {
            Ok(accepted) => {
                self.add(accepted, congestion, remote, false);
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

    // ---- output --------------------------------------------------------------------------------

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
                        events.push_back(BareEvent::Opened(id, ours(stream)));
                    }
                }
                Event::Stream(StreamEvent::Readable { id: stream }) => {
                    events.push_back(BareEvent::Readable(id, ours(stream)));
                }
                Event::Stream(
                    StreamEvent::Writable { id: stream } | StreamEvent::Stopped { id: stream, .. },
                ) => events.push_back(BareEvent::Writable(id, ours(stream))),
                Event::Stream(StreamEvent::Finished { id: stream }) => {
                    events.push_back(BareEvent::Delivered(id, ours(stream)));
                }
                Event::DatagramsUnblocked => events.push_back(BareEvent::DatagramRoom(id)),
                Event::Stream(StreamEvent::Available { .. })
                | Event::DatagramReceived
                | Event::HandshakeDataReady => {}
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
}

/// A stream by the name that it has here.
fn ours(stream: StreamId) -> Stream {
    Stream::of(stream.into()).expect("a stream has a number of 62 bits")
}

fn theirs(stream: Stream) -> StreamId {
    let number = VarInt::from_u64(stream.number());
    number.expect("a stream has a number of 62 bits").into()
}

fn outgoing(transmit: &Transmit) -> BareTransmit {
    BareTransmit {
        source: transmit.src_ip,
        remote: transmit.destination,
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        size: transmit.size,
        segment: transmit.segment_size,
    }
}

fn ended(reason: &ConnectionError) -> Ended {
    let code = match reason {
        ConnectionError::TimedOut => return Ended::TimedOut,
        ConnectionError::VersionMismatch => return Ended::OtherVersion,
        ConnectionError::LocallyClosed => return Ended::Here,
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            return Ended::ByPeer(close.error_code.into(), reason);
        }
        ConnectionError::ConnectionClosed(close) => close.error_code,
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::Reset | ConnectionError::CidsExhausted => {
            return Ended::Failed(reason.to_string());
        }
    };
    if code == TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL) {
        Ended::OtherProtocol
    } else if code == TransportErrorCode::CONNECTION_REFUSED {
        Ended::Refused
    } else {
        Ended::Failed(reason.to_string())
    }
}
