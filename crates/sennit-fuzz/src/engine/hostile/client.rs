//! The client that has the weapons.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use noq_proto::crypto::rustls::QuicClientConfig;
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, FourTuple, PathId, PathStatus, StreamEvent, StreamId, TransportConfig, VarInt,
};
use sennit_sim::{Authority, Dice, HUB_NAME};

use super::super::peer::AUTHORITY;
use super::super::scene::{HUB, Machine, Wire};
use super::tap::{Frames, MARK, Tap};
use super::weapons::{Weapon, home, requests};

/// Datagrams a millisecond.
const AT_ONCE: usize = 20;
/// How long the hub hears of no path but the first.
const HOARDS_FOR: Duration = Duration::from_secs(60);
/// How long it has all paths opened before it leaves gaps.
const LOSES_AFTER: Duration = Duration::from_secs(3);
/// A frame of them with what is around it fits each packet.
const LARGE: usize = 1100;

pub(super) struct Client {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    conn: Connection,
    weapon: Weapon,
    stream: Option<(StreamId, StreamId)>,
    pub(super) is_connected: bool,
    pub(super) lost: Option<String>,
    port: u16,
    /// Where it opened a path last, and until when the hub hears of none.
    homes: u8,
    hoards_until: Option<Instant>,
    /// From when on every other packet of it is lost, and whatever the hub sends.
    loses_from: Option<Instant>,
    dice: Dice,
    /// Of what is said, what flow control held back.
    pending: Bytes,
    stateless: Vec<Wire>,
}

impl Client {
    pub(super) fn new(weapon: Weapon, now: Instant) -> Self {
        let tls = AUTHORITY.with(Authority::client);
        let inner = QuicClientConfig::try_from(tls).expect("QUIC's initial suite is there");
        let frames: Frames = match &weapon {
            Weapon::Frames(frames) => Arc::clone(frames),
            _ => Arc::new(std::sync::Mutex::new(Vec::new)),
        };
        let mut config = ClientConfig::new(Arc::new(Tap { inner, frames }));
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_multipath_paths(64)
            .initial_mtu(1452)
            .max_concurrent_uni_streams(VarInt::from_u32(32))
            .max_concurrent_bidi_streams(VarInt::from_u32(32));
        config.transport_config(Arc::new(transport));
        let mut own = EndpointConfig::default();
        own.rng_seed(Some([5; 32]));
        let mut endpoint = Endpoint::new(Arc::new(own), None, true);
        let started = endpoint.connect(now, config, HUB, HUB_NAME);
        let (handle, conn) = started.expect("the address is good");
        Self {
            endpoint,
            handle,
            conn,
            weapon,
            stream: None,
            is_connected: false,
            lost: None,
            port: 7000,
            homes: 0,
            hoards_until: None,
            loses_from: None,
            dice: Dice::new(7),
            pending: Bytes::new(),
            stateless: Vec::new(),
        }
    }

    /// Asks for a tunnel.
    pub(super) fn ask(&mut self) {
        // Of who is no edge the hub judges no paths.
        let is_edge = matches!(self.weapon, Weapon::Roams);
        let (control, request) = requests(is_edge);
        let mut say = |dir, bytes: &[u8]| {
            let stream = self.conn.streams().open(dir).expect("the hub allows some");
            let written = self.conn.send_stream(stream).write(bytes);
            assert_eq!(written, Ok(bytes.len()));
            stream
        };
        let control = say(Dir::Uni, &control);
        self.stream = Some((control, say(Dir::Bi, &request)));
    }

    /// Streams that it has taken back.
    pub(super) fn resets(&mut self) -> u64 {
        self.conn.stats().frame_tx.reset_stream
    }

    /// Uses the weapon.
    pub(super) fn strike(&mut self, now: Instant) {
        let Some((control, stream)) = self.stream else {
            return;
        };
        let conn = &mut self.conn;
        let pending = &mut self.pending;
        let mut write = |to: StreamId, bytes: &[u8]| {
            if pending.is_empty() {
                let block = bytes.repeat(8000 / bytes.len());
                let mut frame = vec![0];
                sennit_masque::varint::put(&mut frame, block.len() as u64);
                let frame = if to == stream { frame } else { Vec::new() };
                *pending = Bytes::from([frame, block].concat());
            }
            let written = conn.send_stream(to).write(pending).unwrap_or(0);
            let _ = pending.split_to(written);
        };
        match &mut self.weapon {
            Weapon::Said(bytes) => write(stream, bytes),
            Weapon::Controlled(bytes) => write(control, bytes),
            Weapon::Acts(act) => act(conn, stream, now),
            Weapon::Hoards => {
                self.hoards_until.get_or_insert(now + HOARDS_FOR);
                self.homes = self.homes.wrapping_add(1);
                let network = FourTuple::new(HUB, Some(home(self.homes).ip()));
                // Fails where it is allowed no more for now, which noq tells the hub.
                let _ = conn.open_path(network, PathStatus::Available, now);
            }
            Weapon::Gaps => {
                self.loses_from.get_or_insert(now + LOSES_AFTER);
                self.homes = self.homes.wrapping_add(1) % 15;
                let network = FourTuple::new(HUB, Some(home(self.homes + 1).ip()));
                let paths = conn.paths();
                let is_open = |&path: &PathId| conn.network_path(path) == Ok(network);
                if !paths.iter().any(is_open) {
                    let _ = conn.open_path(network, PathStatus::Available, now);
                }
                for path in paths {
                    let _ = conn.ping_path(path);
                }
            }
            Weapon::Frames(_) | Weapon::Roams | Weapon::Nothing => {
                let mark: &[u8] = match self.weapon {
                    Weapon::Frames(_) => &MARK,
                    _ => &[0x3f; 16],
                };
                let large = Bytes::from(mark.repeat(LARGE / mark.len()));
                for _ in 0..AT_ONCE {
                    let _ = conn.datagrams().send(large.clone(), true);
                }
            }
        }
    }

    fn loses(&self, now: Instant) -> bool {
        self.loses_from.is_some_and(|from| from <= now)
    }

    fn digest(&mut self) {
        while let Some(event) = self.conn.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason.to_string()),
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while self.conn.streams().accept(dir).is_some() {}
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    if let Ok(mut chunks) = self.conn.recv_stream(id).read(true) {
                        while let Ok(Some(_)) = chunks.next(usize::MAX) {}
                        let _ = chunks.finalize();
                    }
                }
                _ => {}
            }
        }
        while self.conn.datagrams().recv().is_some() {}
        while let Some(event) = self.conn.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.conn.handle_event(event);
            }
        }
    }
}

impl Machine for Client {
    fn handle(&mut self, wire: Wire, now: Instant) {
        if self.loses(now) {
            return;
        }
        let network = FourTuple::new(wire.from, Some(wire.to.ip()));
        let (bytes, mut buffer) = (BytesMut::from(&wire.bytes[..]), Vec::new());
        match self.endpoint.handle(now, network, None, bytes, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.conn.handle_event(event),
            Some(DatagramEvent::Response(_)) => self.stateless.push(Wire {
                from: wire.to,
                to: wire.from,
                bytes: buffer,
            }),
            Some(DatagramEvent::NewConnection(_)) | None => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.conn.poll_timeout()
    }

    fn drain(&mut self, now: Instant) -> Vec<Wire> {
        const BATCH: NonZeroUsize = NonZeroUsize::new(10).expect("not zero");
        self.digest();
        let mut wires = std::mem::take(&mut self.stateless);
        let mut buffer = Vec::new();
        while let Some(transmit) = self.conn.poll_transmit(now, BATCH, &mut buffer) {
            let ip = transmit.src_ip.unwrap_or(home(0).ip());
            let size = transmit.segment_size.unwrap_or(buffer.len()).max(1);
            for bytes in buffer.chunks(size) {
                if matches!(self.weapon, Weapon::Roams) && self.stream.is_some() {
                    self.port = 7000 + (self.port + 1) % 20_000;
                }
                if ip != home(0).ip() && self.hoards_until.is_some_and(|until| now < until) {
                    continue;
                }
                if self.loses(now) && self.dice.roll(2) == 0 {
                    continue;
                }
                wires.push(Wire {
                    from: SocketAddr::new(ip, self.port),
                    to: transmit.destination,
                    bytes: bytes.to_vec(),
                });
            }
            buffer.clear();
        }
        self.digest();
        wires
    }
}
