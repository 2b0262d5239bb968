//! A QUIC client that sends frames which no library sends.
//!
//! noq writes the packets; where one carries a datagram that begins with [`MARK`], that frame is
//! replaced by others of the same length before the packet is sealed.

use std::any::Any;
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use noq_proto::crypto::rustls::QuicClientConfig;
use noq_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    Session,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{ConnectError, ConnectionId, PathId, Side, TransportError};

/// What a datagram begins with that is to be replaced.
pub(super) const MARK: [u8; 16] = *b"frames come here";
/// A DATAGRAM frame that is the last of its packet, and one that says its length (RFC 9221 §4).
const DATAGRAM: u8 = 0x30;
const DATAGRAM_WITH_LENGTH: u8 = 0x31;

/// Makes the next frame.
pub(super) type Frames = Arc<Mutex<dyn FnMut() -> Vec<u8> + Send>>;

pub(super) struct Tap {
    pub(super) inner: QuicClientConfig,
    pub(super) frames: Frames,
}

impl ClientConfig for Tap {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(Box::new(Tapped {
            inner: self.inner.start_session(version, server_name, params)?,
            frames: Arc::clone(&self.frames),
        }))
    }
}

struct Tapped {
    inner: Box<dyn Session>,
    frames: Frames,
}

impl Tapped {
    fn tap(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        KeyPair {
            local: Box::new(Key {
                inner: keys.local,
                frames: Arc::clone(&self.frames),
            }),
            remote: keys.remote,
        }
    }
}

impl Session for Tapped {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.inner.write_handshake(buf)?;
        Some(Keys {
            header: keys.header,
            packet: self.tap(keys.packet),
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.inner.next_1rtt_keys()?;
        Some(self.tap(keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

struct Key {
    inner: Box<dyn PacketKey>,
    frames: Frames,
}

impl PacketKey for Key {
    fn encrypt(&self, path_id: PathId, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len() - self.inner.tag_len();
        if let Some(room) = room(&mut buf[header_len..end]) {
            let mut frames = self.frames.lock().expect("nobody has panicked");
            fill(room, &mut *frames);
        }
        self.inner.encrypt(path_id, packet, buf, header_len);
    }

    fn decrypt(
        &self,
        path_id: PathId,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.inner.decrypt(path_id, packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

/// The marked frame of a packet, and what follows it, which is padding.
fn room(payload: &mut [u8]) -> Option<&mut [u8]> {
    let mark = payload.windows(MARK.len()).position(|it| it == MARK)?;
    let start = [
        (1, DATAGRAM),
        (2, DATAGRAM_WITH_LENGTH),
        (3, DATAGRAM_WITH_LENGTH),
    ];
    let start = start.iter().find_map(|&(back, kind)| {
        let at = mark.checked_sub(back)?;
        (payload[at] == kind).then_some(at)
    });
    Some(&mut payload[start?..])
}

fn fill(mut room: &mut [u8], frames: &mut dyn FnMut() -> Vec<u8>) {
    room.fill(0);
    loop {
        let frame = frames();
        if frame.is_empty() || frame.len() > room.len() {
            return;
        }
        let (here, rest) = room.split_at_mut(frame.len());
        here.copy_from_slice(&frame);
        room = rest;
    }
}
