//! The other end of a connection, in the hands of the script.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, FourTuple, PathStatus, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use sennit_sim::{Authority, HUB_NAME};

use super::scene::{HUB, Machine, Wire};
use crate::input::Input;

thread_local! {
    /// Keys take time to make, and no target depends on them.
    pub(super) static AUTHORITY: Authority = Authority::new();
}

/// Paths of a connection, as many as a hub allows.
const MOST_PATHS: u8 = 16;
/// Streams that the script can name.
const MOST_STREAMS: usize = 64;

/// Streams in the order they were opened.
#[derive(Default)]
struct Streams {
    ours: Vec<StreamId>,
    theirs: Vec<StreamId>,
}

impl Streams {
    /// The high bit says whose.
    fn pick(&self, byte: u8) -> Option<StreamId> {
        let of = if byte & 0x80 == 0 {
            &self.ours
        } else {
            &self.theirs
        };
        let index = usize::from(byte & 0x7f).checked_rem(of.len())?;
        Some(of[index])
    }
}

/// A QUIC endpoint that knows nothing of HTTP/3.
pub(super) struct Peer {
    endpoint: Endpoint,
    /// The newest is the one that the script is about.
    conns: BTreeMap<usize, Connection>,
    streams: Streams,
    is_server: bool,
    is_connected: bool,
    is_gone: bool,
    /// It opens no more paths than this.
    most_paths: usize,
    /// How many of its packets are lost from now on.
    losing: u8,
    stateless: Vec<Wire>,
}

impl Peer {
    pub(super) fn client(now: Instant) -> Self {
        let tls = AUTHORITY.with(Authority::client);
        let crypto = QuicClientConfig::try_from(tls).expect("QUIC's initial suite is there");
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        let mut peer = Self::new(None);
        let started = peer.endpoint.connect(now, config, HUB, HUB_NAME);
        let (handle, conn) = started.expect("the address is good");
        peer.conns.insert(handle.0, conn);
        peer
    }

    pub(super) fn server() -> Self {
        let tls = AUTHORITY.with(Authority::server);
        let crypto = QuicServerConfig::try_from(tls).expect("QUIC's initial suite is there");
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport());
        Self::new(Some(Arc::new(config)))
    }

    fn new(server: Option<Arc<ServerConfig>>) -> Self {
        let mut config = EndpointConfig::default();
        config.rng_seed(Some([3; 32]));
        let is_server = server.is_some();
        Self {
            endpoint: Endpoint::new(Arc::new(config), server, true),
            conns: BTreeMap::new(),
            streams: Streams::default(),
            is_server,
            is_connected: false,
            is_gone: false,
            most_paths: MOST_PATHS.into(),
            losing: 0,
            stateless: Vec::new(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Opens a stream and says this there; takes away what flow control lets pass.
    #[cfg(test)]
    pub(super) fn say(&mut self, dir: Dir, bytes: &mut Bytes) -> StreamId {
        let conn = self.conns.values_mut().next_back().expect("it has one");
        let stream = conn.streams().open(dir).expect("the hub allows some");
        self.go_on(stream, bytes);
        stream
    }

    /// Says more on a stream; takes away what flow control lets pass.
    #[cfg(test)]
    pub(super) fn go_on(&mut self, stream: StreamId, bytes: &mut Bytes) {
        let conn = self.conns.values_mut().next_back().expect("it has one");
        if let Ok(written) = conn.send_stream(stream).write(bytes) {
            let _ = bytes.split_to(written);
        }
    }

    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.conns.values().all(Connection::is_closed)
    }

    /// noq 1.4 panics when the PATH_ACKs of many paths do not fit a packet; those of a few do.
    pub(super) fn limit_paths(&mut self) {
        self.most_paths = 4;
    }

    /// From now on nothing is heard of it.
    pub(super) fn vanish(&mut self) {
        self.is_gone = true;
    }

    /// Takes a step, or says that it is one of the other end.
    ///
    /// Script: opcode (1), then what it needs.
    pub(super) fn act(&mut self, step: u8, input: &mut Input<'_>, now: Instant) -> bool {
        if step >= 0x80 {
            return true;
        }
        let Some(conn) = self.conns.values_mut().next_back() else {
            return false;
        };
        if step % 16 == 9 {
            self.losing = input.byte();
        } else if step % 16 < 9 {
            act_on_stream(step, conn, &mut self.streams, input);
        } else {
            act_on_connection(step, conn, self.most_paths, input, now);
        }
        false
    }

    fn handle_datagram(
        &mut self,
        event: DatagramEvent,
        wire: &Wire,
        buffer: Vec<u8>,
        now: Instant,
    ) {
        match event {
            DatagramEvent::ConnectionEvent(ConnectionHandle(handle), event) => {
                if let Some(conn) = self.conns.get_mut(&handle) {
                    conn.handle_event(event);
                }
            }
            DatagramEvent::NewConnection(incoming) => {
                let accepted = self.endpoint.accept(incoming, now, &mut Vec::new(), None);
                if let Ok((ConnectionHandle(handle), conn)) = accepted {
                    self.streams = Streams::default();
                    self.conns.insert(handle, conn);
                }
            }
            DatagramEvent::Response(_) => self.stateless.push(Wire {
                from: wire.to,
                to: wire.from,
                bytes: buffer,
            }),
        }
    }

    fn digest(&mut self) {
        let mut drained = Vec::new();
        for (&handle, conn) in &mut self.conns {
            while let Some(event) = conn.poll() {
                match event {
                    Event::Connected => self.is_connected = true,
                    Event::Stream(StreamEvent::Opened { dir }) => {
                        let accepted = std::iter::from_fn(|| conn.streams().accept(dir));
                        self.streams.theirs.extend(accepted);
                    }
                    _ => {}
                }
            }
            while conn.datagrams().recv().is_some() {}
            while let Some(event) = conn.poll_endpoint_events() {
                if event.is_drained() {
                    drained.push(handle);
                }
                if let Some(event) = self.endpoint.handle_event(ConnectionHandle(handle), event) {
                    conn.handle_event(event);
                }
            }
        }
        for handle in drained {
            self.conns.remove(&handle);
        }
    }
}

/// Where one of up to 16 links of a client is.
fn home(link: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1 + link % MOST_PATHS], 5000))
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_multipath_paths(MOST_PATHS.into())
        .initial_mtu(1452)
        .max_concurrent_uni_streams(VarInt::from_u32(32))
        .max_concurrent_bidi_streams(VarInt::from_u32(32));
    Arc::new(config)
}

/// Opens, writes and ends streams, the peer's among them. What QUIC forbids is not done.
fn act_on_stream(step: u8, conn: &mut Connection, streams: &mut Streams, input: &mut Input<'_>) {
    if let open @ (0 | 1) = step % 16 {
        let dir = if open == 0 { Dir::Bi } else { Dir::Uni };
        if streams.ours.len() < MOST_STREAMS {
            streams.ours.extend(conn.streams().open(dir));
        }
        return;
    }
    let Some(id) = streams.pick(input.byte()) else {
        return;
    };
    let can_send = id.dir() == Dir::Bi || id.initiator() == conn.side();
    let can_receive = id.dir() == Dir::Bi || id.initiator() != conn.side();
    match step % 16 {
        2..=5 => {
            let bytes = input.block();
            if can_send {
                let _ = conn.send_stream(id).write(bytes);
            }
        }
        6 if can_send => {
            let _ = conn.send_stream(id).finish();
        }
        7 if can_send => {
            let _ = conn
                .send_stream(id)
                .reset(VarInt::from_u32(input.u16().into()));
        }
        8 if can_receive => {
            let _ = conn
                .recv_stream(id)
                .stop(VarInt::from_u32(input.u16().into()));
        }
        _ => {}
    }
}

fn act_on_connection(
    step: u8,
    conn: &mut Connection,
    most_paths: usize,
    input: &mut Input<'_>,
    now: Instant,
) {
    match step % 16 {
        10 => {
            let datagram = Bytes::copy_from_slice(input.block());
            let _ = conn.datagrams().send(datagram, true);
        }
        11 => {
            for path in conn.paths() {
                let _ = conn.ping_path(path);
            }
        }
        12 => {
            let network = FourTuple::new(HUB, Some(home(input.byte()).ip()));
            if conn.paths().len() < most_paths {
                let _ = conn.open_path(network, PathStatus::Available, now);
            }
        }
        13 => {
            let paths = conn.paths();
            let index = usize::from(input.byte()).checked_rem(paths.len());
            if let Some(index) = index {
                let _ = conn.close_path(now, paths[index], VarInt::from_u32(7));
            }
        }
        14 if !conn.is_handshaking() => conn.force_key_update(),
        15 => {
            let (code, reason) = (input.u16(), input.block());
            conn.close(
                now,
                VarInt::from_u32(code.into()),
                Bytes::copy_from_slice(reason),
            );
        }
        _ => {}
    }
}

impl Machine for Peer {
    fn handle(&mut self, wire: Wire, now: Instant) {
        if self.is_gone {
            return;
        }
        let network = FourTuple::new(wire.from, Some(wire.to.ip()));
        let (bytes, mut buffer) = (BytesMut::from(&wire.bytes[..]), Vec::new());
        if let Some(event) = self.endpoint.handle(now, network, None, bytes, &mut buffer) {
            self.handle_datagram(event, &wire, buffer, now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        for conn in self.conns.values_mut() {
            conn.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let mut conns = self.conns.values();
        let timeout = |conn: &Connection| conn.poll_timeout();
        if self.is_gone {
            None
        } else {
            conns.by_ref().filter_map(timeout).min()
        }
    }

    fn drain(&mut self, now: Instant) -> Vec<Wire> {
        const BATCH: NonZeroUsize = NonZeroUsize::new(10).expect("not zero");
        if self.is_gone {
            return Vec::new();
        }
        self.digest();
        let mut wires = std::mem::take(&mut self.stateless);
        let mut buffer = Vec::new();
        for conn in self.conns.values_mut() {
            while let Some(transmit) = conn.poll_transmit(now, BATCH, &mut buffer) {
                let from = match transmit.src_ip {
                    _ if self.is_server => HUB,
                    Some(ip) => SocketAddr::new(ip, home(0).port()),
                    None => home(0),
                };
                let size = transmit.segment_size.unwrap_or(buffer.len()).max(1);
                let to = transmit.destination;
                wires.extend(buffer.chunks(size).map(|bytes| Wire {
                    from,
                    to,
                    bytes: bytes.to_vec(),
                }));
                buffer.clear();
            }
        }
        self.digest();
        let lost = usize::from(self.losing).min(wires.len());
        self.losing -= u8::try_from(lost).expect("it is at most what it was");
        wires.split_off(lost)
    }
}
