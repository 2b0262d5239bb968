//! Seals what anybody can seal: Initial packets, whose keys follow from a connection ID that is
//! there to read (RFC 9001 §5.2).

use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Keys, Version};

use crate::input::Input;

/// A client's first packets are padded to this (RFC 9000 §14.1).
const LEAST: usize = 1200;
/// An Initial packet with a packet number of two bytes (RFC 9000 §17.2.2).
const FIRST_BYTE: u8 = 0xc1;

/// The connection IDs of a long header, and those that it is sealed by.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    pub(super) to: Vec<u8>,
    pub(super) from: Vec<u8>,
    /// The first one the client sent to.
    pub(super) original: Vec<u8>,
}

impl Ids {
    /// Those of a client of the script's making.
    pub(super) fn of_client(input: &mut Input<'_>) -> Self {
        let to = [&[0x5e; 7][..], &[input.byte()]].concat();
        Self {
            original: to.clone(),
            to,
            from: vec![0xc1; 4],
        }
    }

    /// Those to answer a client's Initial packet with.
    pub(super) fn to_answer(packet: &[u8]) -> Option<Self> {
        let mut ids = Input::new(packet);
        if ids.byte() & 0xf0 != 0xc0 || ids.u32() != 1 {
            return None;
        }
        let [original, to] = [(); 2].map(|()| {
            let len = ids.byte().into();
            ids.take(len).to_vec()
        });
        Some(Self {
            to,
            from: vec![0x5e; 8],
            original,
        })
    }

    /// A packet from `side` with these frames. Script: packet number (1), token (block), frames
    /// (block).
    pub(super) fn seal(&self, side: Side, input: &mut Input<'_>) -> Vec<u8> {
        let (number, token) = (u16::from(input.byte()), input.block());
        let mut frames = input.block().to_vec();
        if side == Side::Client {
            frames.resize(frames.len().max(LEAST), 0);
        }
        frames.resize(frames.len().max(4), 0);
        let mut header = vec![FIRST_BYTE, 0, 0, 0, 1];
        for id in [&self.to, &self.from] {
            header.push(id.len() as u8);
            header.extend(id);
        }
        header.extend(varint(token.len()));
        header.extend(token);
        header.extend(varint(2 + frames.len() + TAG));
        header.extend(number.to_be_bytes());
        seal(side, &self.original, number, header, frames)
    }
}

/// An authentication tag of AES-128-GCM.
const TAG: usize = 16;

fn seal(side: Side, id: &[u8], number: u16, mut header: Vec<u8>, mut frames: Vec<u8>) -> Vec<u8> {
    let suite = TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(rustls::Tls13CipherSuite::quic_suite);
    let suite = suite.expect("QUIC begins with this suite");
    let Keys { local: keys, .. } = suite.keys(id, side, Version::V1);
    let tag = keys
        .packet
        .encrypt_in_place(number.into(), &header, &mut frames);
    frames.extend(tag.expect("a packet can be sealed").as_ref());
    let at = header.len() - 2;
    let (first, rest) = header.split_at_mut(1);
    // RFC 9001 §5.4.2: the sample is taken as if the packet number had four bytes.
    let sample = &frames[2..2 + keys.header.sample_len()];
    let masked = keys
        .header
        .encrypt_in_place(sample, &mut first[0], &mut rest[at - 1..]);
    masked.expect("the sample has the right length");
    header.extend(frames);
    header
}

/// Two bytes hold what a packet can be long.
fn varint(value: usize) -> [u8; 2] {
    let value = u16::try_from(value).unwrap_or(u16::MAX) & 0x3fff;
    (value | 0x4000).to_be_bytes()
}
