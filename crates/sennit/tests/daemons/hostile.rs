//! A site in bad hands: it has joined, and then sends whatever it likes.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use noq_proto::crypto::rustls::QuicClientConfig;
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, FourTuple, ReadError, StreamEvent, StreamId, VarInt, WriteError,
};
use sennit::identity::{self, EdgeIdentity};
use sennit_lab::Host;
use sennit_masque::{
    self as masque, Capsule, Output, RequestHead, connect_ip, connect_udp, datagram,
};

use crate::world::PATIENCE;

/// How long it listens at most before it goes on; it has things to send.
const TURN: Duration = Duration::from_millis(5);

/// Datagrams that leave with one look at the clock.
const BATCH: NonZeroUsize = NonZeroUsize::new(10).expect("it is not zero");

/// One connection to the hub, without any of the restraint of an edge.
pub(crate) struct Hostile {
    socket: UdpSocket,
    hub: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    conn: Connection,
    http: masque::Connection,
    control: Option<StreamId>,
    unsent: VecDeque<(StreamId, Bytes)>,
    /// The stream of its tunnel, once it has asked for one.
    tunnel: Option<StreamId>,
    /// Final answers to its requests, in order.
    pub(crate) answers: Vec<u16>,
    /// What each of them said in `proxy-status`, if anything.
    pub(crate) complaints: Vec<String>,
    /// Datagrams that came, the newest of them.
    pub(crate) datagrams: VecDeque<Bytes>,
    /// Streams that the hub has ended.
    pub(crate) ended: Vec<StreamId>,
    /// The hub has ended its tunnel or the connection.
    pub(crate) is_thrown_out: bool,
    /// Why the connection ended.
    pub(crate) farewell: Option<String>,
}

/// Datagrams that are kept.
const KEPT: usize = 1000;

impl Hostile {
    /// Connects from a host with what is in a state directory.
    pub(crate) fn connect(host: &Host, hub: &str, state: &Path) -> Self {
        let tls = identity::client_config(&EdgeIdentity::load(state).unwrap()).unwrap();
        let hub: SocketAddr = hub.parse().unwrap();
        let bind = || UdpSocket::bind(("0.0.0.0", 0));
        let socket = host.netns().run(bind).unwrap().unwrap();
        socket.set_read_timeout(Some(TURN)).unwrap();
        let crypto = QuicClientConfig::try_from(tls.config).unwrap();
        let config = ClientConfig::new(Arc::new(crypto));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true);
        let started = endpoint.connect(Instant::now(), config, hub, &tls.server_name);
        let (handle, conn) = started.unwrap();
        let mut site = Self {
            socket,
            hub,
            endpoint,
            handle,
            conn,
            http: masque::Connection::client(),
            control: None,
            unsent: VecDeque::new(),
            tunnel: None,
            answers: Vec::new(),
            complaints: Vec::new(),
            datagrams: VecDeque::new(),
            ended: Vec::new(),
            is_thrown_out: false,
            farewell: None,
        };
        site.run_until("the hub's settings", |site| {
            site.http.peer_settings().is_some()
        });
        site
    }

    /// Asks for a tunnel as an edge does, and has it.
    pub(crate) fn open_tunnel(&mut self) {
        let authority = format!("hub:{}", self.hub.port());
        let mut head = connect_ip::request(&authority, &connect_ip::Scope::ANY.path());
        let hello = "1;class=default;index=0;policy=bond;delivery=repair;copies=2;congestion=auto;\
                     checksums=partial;halves=joined";
        head.fields.push("sennit", hello);
        self.tunnel = Some(self.request(&head, None));
        self.run_until("a tunnel", |site| !site.answers.is_empty());
        assert_eq!(self.answers, [200]);
    }

    /// Sends a request; its answer will be among the others.
    pub(crate) fn request(&mut self, head: &RequestHead, body: Option<Bytes>) -> StreamId {
        let stream = loop {
            if let Some(stream) = self.conn.streams().open(Dir::Bi) {
                break stream;
            }
            self.turn();
        };
        self.http.send_request(ours(stream), head, body).unwrap();
        self.turn();
        stream
    }

    /// Asks for UDP to a target, `HOST/PORT` as the path has it; the answer and its `proxy-status`.
    pub(crate) fn ask_udp(&mut self, target: &str) -> (StreamId, u16, String) {
        let mut head = RequestHead::new(
            "CONNECT",
            &format!("hub:{}", self.hub.port()),
            &format!("{}{target}/", connect_udp::WELL_KNOWN),
        );
        head.protocol = Some(connect_udp::PROTOCOL.into());
        head.fields = connect_ip::response_fields();
        let before = self.answers.len();
        let stream = self.request(&head, None);
        self.run_until("an answer", |site| site.answers.len() > before);
        let complaint = self.complaints.last().unwrap().clone();
        if self.answers[before] != 200 {
            // As the hub has asked: it gives no more streams before.
            let _ = self.conn.send_stream(stream).reset(VarInt::from_u32(0));
            self.turn();
        }
        (stream, self.answers[before], complaint)
    }

    /// Sends a payload of a context on a flow.
    pub(crate) fn payload(&mut self, flow: StreamId, context: u64, payload: &[u8]) {
        let prefix = datagram::encode_prefix(ours(flow), context);
        self.datagram(&[&prefix, payload].concat());
        self.turn();
    }

    /// Sends bytes on a stream.
    pub(crate) fn data(&mut self, stream: StreamId, bytes: &[u8], fin: bool) {
        let bytes = Bytes::copy_from_slice(bytes);
        let _ = self.http.send_data(ours(stream), bytes, fin);
        self.turn();
    }

    /// Sends a capsule, of which the hub may think what it likes.
    pub(crate) fn capsule(&mut self, capsule: &Capsule) {
        let stream = ours(self.tunnel.expect("it has a tunnel"));
        // Fails once it is thrown out.
        let _ = self.http.send_capsule(stream, capsule);
        self.turn();
    }

    /// Sends bytes where capsules belong.
    pub(crate) fn raw_capsule(&mut self, bytes: &[u8]) {
        let stream = ours(self.tunnel.expect("it has a tunnel"));
        let bytes = Bytes::copy_from_slice(bytes);
        let _ = self.http.send_data(stream, bytes, false);
        self.turn();
    }

    /// Sends a QUIC datagram.
    pub(crate) fn datagram(&mut self, bytes: &[u8]) {
        let _ = self
            .conn
            .datagrams()
            .send(Bytes::copy_from_slice(bytes), true);
    }

    /// Sends, listens, and does what time asks for.
    pub(crate) fn turn(&mut self) {
        self.pump();
        self.send();
        let mut packet = [0; 2048];
        loop {
            match self.socket.recv_from(&mut packet) {
                Ok((len, from)) => self.receive(from, &packet[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // ICMP says something of what was sent before.
                Err(_) => {}
            }
            if self.unsent.is_empty() {
                break;
            }
        }
        self.digest();
        self.pump();
        self.send();
        // As in the engine: not between the packet that completes the handshake and the next that
        // is sent, where noq panics.
        let now = Instant::now();
        if self.conn.poll_timeout().is_some_and(|at| at <= now) {
            self.conn.handle_timeout(now);
            self.send();
        }
    }

    #[track_caller]
    pub(crate) fn run_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            self.turn();
        }
    }

    fn receive(&mut self, from: SocketAddr, packet: &[u8]) {
        let network = FourTuple::new(from, None);
        let (data, now) = (BytesMut::from(packet), Instant::now());
        let event = self
            .endpoint
            .handle(now, network, None, data, &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.conn.handle_event(event);
        }
    }

    fn digest(&mut self) {
        while let Some(event) = self.conn.poll() {
            match event {
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(stream) = self.conn.streams().accept(dir) {
                        self.read(stream);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(id),
                Event::ConnectionLost { reason } => {
                    self.is_thrown_out = true;
                    self.farewell = Some(reason.to_string());
                }
                _ => {}
            }
        }
        while let Some(datagram) = self.conn.datagrams().recv() {
            self.datagrams.push_back(datagram);
            self.datagrams
                .drain(..self.datagrams.len().saturating_sub(KEPT));
        }
        while let Some(event) = self.conn.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.conn.handle_event(event);
            }
        }
        while let Some(event) = self.http.poll_event() {
            match event {
                masque::Event::Response { head, .. } => {
                    self.answers.push(head.status);
                    let complaint = head.fields.text("proxy-status").unwrap_or_default();
                    self.complaints.push(complaint.to_owned());
                }
                masque::Event::Finished { stream }
                | masque::Event::Reset { stream, .. }
                | masque::Event::Stopped { stream, .. }
                | masque::Event::Failed { stream, .. } => {
                    self.is_thrown_out |= self.tunnel.map(ours) == Some(stream);
                    self.ended.push(theirs(stream));
                }
                _ => {}
            }
        }
    }

    fn read(&mut self, stream: StreamId) {
        let mut receiver = self.conn.recv_stream(stream);
        let Ok(mut chunks) = receiver.read(true) else {
            return;
        };
        loop {
            let (bytes, fin) = match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => (chunk.bytes, false),
                Ok(None) => (Bytes::new(), true),
                Err(ReadError::Reset(code)) => {
                    let code = masque::Code(code.into_inner());
                    self.http.handle_stream_reset(ours(stream), code);
                    break;
                }
                Err(ReadError::Blocked) => break,
            };
            self.http.handle_stream_data(ours(stream), bytes, fin);
            if fin {
                break;
            }
        }
        let _ = chunks.finalize();
    }

    /// Does what HTTP/3 asks for, as far as flow control lets it.
    fn pump(&mut self) {
        // There are no streams before.
        if self.conn.is_handshaking() {
            return;
        }
        while let Some(output) = self.http.poll_output() {
            match output {
                Output::Control(bytes) => {
                    let streams = &mut self.conn;
                    let control = *self
                        .control
                        .get_or_insert_with(|| streams.streams().open(Dir::Uni).unwrap());
                    self.unsent.push_back((control, bytes));
                }
                Output::Send { stream, bytes, fin } => {
                    let stream = theirs(stream);
                    self.unsent.push_back((stream, bytes));
                    if fin {
                        self.unsent.push_back((stream, Bytes::new()));
                    }
                }
                Output::ResetStream { .. } | Output::StopSending { .. } | Output::Close { .. } => {}
            }
        }
        while let Some((stream, bytes)) = self.unsent.front_mut() {
            let mut sender = self.conn.send_stream(*stream);
            if bytes.is_empty() {
                let _ = sender.finish();
            }
            match sender.write(bytes) {
                Ok(written) if written < bytes.len() => {
                    let _ = bytes.split_to(written);
                    return;
                }
                Err(WriteError::Blocked) => return,
                // It is sent, or the hub wants no more of it.
                Ok(_) | Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {}
            }
            self.unsent.pop_front();
        }
    }

    fn send(&mut self) {
        let mut buffer = Vec::new();
        while let Some(transmit) = self.conn.poll_transmit(Instant::now(), BATCH, &mut buffer) {
            let size = transmit.segment_size.unwrap_or(buffer.len()).max(1);
            for packet in buffer.chunks(size) {
                // What the socket does not take is lost, as on any link.
                let _ = self.socket.send_to(packet, self.hub);
            }
            buffer.clear();
        }
    }
}

fn ours(stream: StreamId) -> masque::StreamId {
    masque::StreamId(u64::from(stream))
}

fn theirs(stream: masque::StreamId) -> StreamId {
    StreamId::from(VarInt::from_u64(stream.0).unwrap())
}
