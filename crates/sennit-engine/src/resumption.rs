//! Whether a handshake resumed an earlier session, which noq does not tell of a connection.
//!
//! What noq asks of TLS passes through here. A server that takes up a session says so in its
//! ServerHello (RFC 8446 §4.2.11), which a client reads and a server writes. The keys that come of
//! it are those of [`crate::renewal`].

mod either;

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use noq_proto::{
    ConnectError, ConnectionId, Side, TransportError,
    crypto::{
        ClientConfig, ExportKeyingMaterialError, HeaderKey, Keys, PacketKey, ServerConfig, Session,
        UnsupportedVersion,
        rustls::{HandshakeData, NoInitialCipherSuite, QuicClientConfig, QuicServerConfig},
    },
    transport_parameters::TransportParameters,
};
use rustls::{NamedGroup, server::ProducesTickets};

use self::either::Either;
use crate::renewal::{self, Pair, Source};

/// What both sides agreed on.
pub(crate) struct Agreed {
    pub(crate) group: Option<NamedGroup>,
    /// An earlier session goes on.
    pub(crate) resumed: bool,
    /// The keys of the connection, once there are.
    pub(crate) keys: Option<Arc<renewal::Keys>>,
}

/// A configuration whose sessions say of themselves whether they were resumed.
pub(crate) struct Watched<C>(pub(crate) C);

impl ClientConfig for Watched<QuicClientConfig> {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self.0.start_session(version, server_name, params)?;
        Ok(Box::new(WatchedSession::new(inner, Side::Client)))
    }
}

/// Such a configuration of a server, whose connections give and take tickets of two kinds.
pub(crate) struct Server {
    quic: QuicServerConfig,
    tls: Arc<rustls::ServerConfig>,
}

impl Server {
    pub(crate) fn new(tls: Arc<rustls::ServerConfig>) -> Result<Self, NoInitialCipherSuite> {
        let quic = QuicServerConfig::try_from(Arc::clone(&tls))?;
        Ok(Self { quic, tls })
    }

    /// The configuration of one connection, if it may take early data.
    fn either(&self) -> Option<(Arc<Either>, QuicServerConfig)> {
        if self.tls.max_early_data_size == 0 {
            return None;
        }
        let either = Arc::new(Either::of(&self.tls));
        let mut tls = (*self.tls).clone();
        tls.ticketer = Arc::clone(&either) as Arc<dyn ProducesTickets>;
        Some((either, QuicServerConfig::try_from(tls).ok()?))
    }
}

impl ServerConfig for Server {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.quic.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.quic.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(&self, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let (either, quic) = self.either().unzip();
        let quic = quic.as_ref().unwrap_or(&self.quic);
        let mut session = WatchedSession::new(quic.start_session(version, params), Side::Server);
        session.either = either;
        Box::new(session)
    }
}

struct WatchedSession {
    inner: Arc<Shared>,
    side: Side,
    answer: Answer,
    /// The tickets of a server's connection.
    either: Option<Arc<Either>>,
    /// The keys of the handshake have been given out.
    has_handshake_keys: bool,
    keys: Option<Arc<renewal::Keys>>,
}

/// A session of which the keys of its connection have their successors.
struct Shared(Mutex<Box<dyn Session>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Box<dyn Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Successors(Arc<Shared>);

impl Source for Successors {
    fn next(&mut self) -> Option<Pair> {
        self.0.lock().next_1rtt_keys()
    }
}

impl WatchedSession {
    fn new(inner: Box<dyn Session>, side: Side) -> Self {
        Self {
            inner: Arc::new(Shared(Mutex::new(inner))),
            side,
            answer: Answer::Partial(Vec::new()),
            either: None,
            has_handshake_keys: false,
            keys: None,
        }
    }

    /// The second keys that a handshake gives out are those of its connection.
    fn wrap(&mut self, keys: Keys) -> Keys {
        if !std::mem::replace(&mut self.has_handshake_keys, true) {
            return keys;
        }
        let source = Box::new(Successors(Arc::clone(&self.inner)));
        let renewed = renewal::Keys::new(keys.packet, source);
        let wrapped = renewed.wrapped(keys.header);
        self.keys = Some(renewed);
        wrapped
    }
}

impl Session for WatchedSession {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.inner.lock().initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        // rustls has some of it as soon as a server asks for another ClientHello.
        let Answer::Whole { resumed } = self.answer else {
            return None;
        };
        let data = self.inner.lock().handshake_data()?;
        let data = data.downcast::<HandshakeData>().ok()?;
        Some(Box::new(Agreed {
            group: data.negotiated_key_exchange_group,
            resumed,
            keys: self.keys.clone(),
        }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.lock().peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.lock().early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.lock().early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.lock().is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        if self.side.is_client() {
            self.answer.add(bytes);
        }
        let read = self.inner.lock().read_handshake(bytes);
        if let Some(either) = &self.either {
            either.settle();
        }
        read
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.lock().transport_parameters()
    }

    fn write_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Keys> {
        let start = buffer.len();
        let keys = self.inner.lock().write_handshake(buffer);
        if self.side.is_server() {
            self.answer.add(buffer.get(start..).unwrap_or_default());
        }
        keys.map(|keys| self.wrap(keys))
    }

    fn next_1rtt_keys(&mut self) -> Option<Pair> {
        self.keys.as_ref().map(renewal::Keys::next_pair)
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let inner = self.inner.lock();
        inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let inner = self.inner.lock();
        inner.export_keying_material(output, label, context)
    }
}

/// A ServerHello with the largest key share has about 1300 bytes.
const LONGEST_ANSWER: usize = 8 << 10;
const SERVER_HELLO: u8 = 2;
/// The random value of a ServerHello that asks for another ClientHello (RFC 8446 §4.1.3).
const ASKS_AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
const PRE_SHARED_KEY: u16 = 41;

/// What the server has answered to the ClientHello.
enum Answer {
    /// So far.
    Partial(Vec<u8>),
    Whole {
        resumed: bool,
    },
}

impl Answer {
    fn add(&mut self, bytes: &[u8]) {
        let Self::Partial(begun) = self else {
            return;
        };
        begun.extend_from_slice(bytes);
        let too_long = (begun.len() > LONGEST_ANSWER).then_some(false);
        if let Some(resumed) = resumes(begun).or(too_long) {
            *self = Self::Whole { resumed };
        }
    }
}

/// Whether the ServerHello that these messages begin with resumes a session, once it is whole.
fn resumes(messages: &[u8]) -> Option<bool> {
    let (&[kind, high, middle, low], rest) = messages.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    let (hello, next) = rest.split_at_checked(length)?;
    if kind != SERVER_HELLO {
        return Some(false);
    }
    if hello.get(2..34) == Some(&ASKS_AGAIN[..]) {
        return resumes(next);
    }
    Some(names_a_key(hello).unwrap_or(false))
}

/// Whether a ServerHello says by which pre-shared key it goes; `None` if it makes no sense.
fn names_a_key(hello: &[u8]) -> Option<bool> {
    // The version and the random value come first.
    let (&session_id, rest) = hello.get(34..)?.split_first()?;
    // The cipher suite, the compression and the length of the extensions come next.
    let mut rest = rest.get(usize::from(session_id) + 5..)?;
    while let Some((&[high, low, ..], _)) = rest.split_first_chunk::<4>() {
        if u16::from_be_bytes([high, low]) == PRE_SHARED_KEY {
            return Some(true);
        }
        let length = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
        rest = rest.get(4 + usize::from(length)..)?;
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(random: [u8; 32], extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| {
                let length = content.len() as u16;
                [&kind.to_be_bytes()[..], &length.to_be_bytes(), content].concat()
            })
            .collect();
        let length = extensions.len() as u16;
        let body = [
            &[3, 3][..],
            &random,
            &[0, 0x13, 1, 0],
            &length.to_be_bytes(),
            &extensions,
        ]
        .concat();
        [&[SERVER_HELLO, 0, 0, body.len() as u8][..], &body].concat()
    }

    fn told(messages: &[u8]) -> Option<bool> {
        let mut answer = Answer::Partial(Vec::new());
        for (count, byte) in messages.iter().enumerate() {
            assert_eq!(resumes(&messages[..count]), None, "after {count} bytes");
            answer.add(std::slice::from_ref(byte));
        }
        match answer {
            Answer::Partial(_) => None,
            Answer::Whole { resumed } => Some(resumed),
        }
    }

    #[test]
    fn a_server_that_goes_by_a_key_resumes_also_where_it_first_asked_for_another_hello() {
        let versions: (u16, &[u8]) = (43, &[3, 4]);
        let key: (u16, &[u8]) = (PRE_SHARED_KEY, &[0, 0]);
        assert_eq!(told(&hello([7; 32], &[versions, key])), Some(true));
        assert_eq!(told(&hello([7; 32], &[versions])), Some(false));
        let again = hello(ASKS_AGAIN, &[versions]);
        assert_eq!(told(&again), None);
        let both = [again, hello([7; 32], &[key])].concat();
        assert_eq!(told(&both), Some(true));
    }

    #[test]
    fn what_makes_no_sense_resumes_nothing() {
        assert_eq!(resumes(&[SERVER_HELLO, 0, 0, 1, 0]), Some(false));
        assert_eq!(resumes(&[8, 0, 0, 0]), Some(false));
        let mut cut = hello([7; 32], &[(43, &[3, 4])]);
        let last = cut.len() - 3;
        cut[last] = 9;
        assert_eq!(resumes(&cut), Some(false));
        let mut answer = Answer::Partial(Vec::new());
        answer.add(&[SERVER_HELLO, 1, 0, 0]);
        answer.add(&[0; LONGEST_ANSWER]);
        assert!(matches!(answer, Answer::Whole { resumed: false }));
    }
}
