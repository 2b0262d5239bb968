//! The front of an HTTP datagram in a QUIC DATAGRAM frame: the quarter stream id (RFC 9297 §2.1),
//! then the context id (RFC 9484 §6), then the payload. Context zero is a bare IP packet.
//!
//! This is the hot path: nothing is allocated or copied.

use crate::error::Code;
use crate::{StreamId, varint};
use std::ops::Deref;

/// The context of a bare IP packet (RFC 9484 §6).
pub const CONTEXT_IP: u64 = 0;

/// What stands before the payload of every datagram of one stream and context; made once, copied
/// in front of each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    bytes: [u8; 16],
    len: u8,
}

impl Deref for Prefix {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The prefix of datagrams of `context` on the request `stream`.
///
/// # Panics
/// If `context` exceeds [`varint::MAX`].
#[must_use]
pub fn encode_prefix(stream: StreamId, context: u64) -> Prefix {
    let mut bytes = [0; 16];
    let mut rest = &mut bytes[..];
    varint::put(&mut rest, stream.0 / 4);
    varint::put(&mut rest, context);
    let len = 16 - rest.len() as u8;
    Prefix { bytes, len }
}

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    pub stream: StreamId,
    pub context: u64,
    pub payload: &'a [u8],
}

/// Why a datagram was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    #[error("the quarter stream id is cut short")]
    NoStreamId,
    #[error("the quarter stream id is over 2^60")]
    StreamIdTooLarge,
    #[error("the context id is cut short")]
    NoContextId,
}

impl DatagramError {
    /// The code to close the connection with (RFC 9297 §2.1). `None`: just drop the datagram.
    #[must_use]
    pub const fn code(self) -> Option<Code> {
        match self {
            Self::NoStreamId | Self::StreamIdTooLarge => Some(Code::H3_DATAGRAM_ERROR),
            Self::NoContextId => None,
        }
    }
}

/// Splits the payload of a QUIC DATAGRAM frame.
pub fn decode(mut input: &[u8]) -> Result<Datagram<'_>, DatagramError> {
    let quarter = varint::take(&mut input).ok_or(DatagramError::NoStreamId)?;
    // RFC 9297 §2.1: stream ids have 62 bits, so a quarter of one has 60.
    if quarter > varint::MAX / 4 {
        return Err(DatagramError::StreamIdTooLarge);
    }
    let (context, payload) = split_context(input).ok_or(DatagramError::NoContextId)?;
    Ok(Datagram {
        stream: StreamId(quarter * 4),
        context,
        payload,
    })
}

/// Splits the content of a DATAGRAM capsule (RFC 9297 §3.5), which has no stream id.
#[must_use]
pub fn split_context(mut input: &[u8]) -> Option<(u64, &[u8])> {
    let context = varint::take(&mut input)?;
    Some((context, input))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_datagram_of_rfc_9484_8_1_decodes() {
        let packet = decode(&[11, 0, 0x45, 0x00]).expect("legal");
        assert_eq!(
            packet,
            Datagram {
                stream: StreamId(44),
                context: 0,
                payload: &[0x45, 0x00]
            }
        );
    }

    #[test]
    fn a_payload_may_be_empty() {
        assert_eq!(
            decode(&[0, 2]).map(|datagram| datagram.payload),
            Ok(&[][..])
        );
    }

    #[test]
    fn only_a_bad_stream_id_is_worth_the_connection() {
        assert_eq!(decode(&[]), Err(DatagramError::NoStreamId));
        assert_eq!(decode(&[0x40]), Err(DatagramError::NoStreamId));
        assert_eq!(decode(&[0xff; 9]), Err(DatagramError::StreamIdTooLarge));
        assert_eq!(decode(&[0]), Err(DatagramError::NoContextId));
        assert_eq!(
            DatagramError::NoStreamId.code(),
            Some(Code::H3_DATAGRAM_ERROR)
        );
        assert_eq!(DatagramError::NoContextId.code(), None);
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn what_was_prefixed_is_split_again(
            quarter in 0..=varint::MAX / 4,
            context in 0..=varint::MAX,
            payload: Vec<u8>,
        ) {
            let stream = StreamId(quarter * 4);
            let datagram = [&encode_prefix(stream, context)[..], &payload].concat();
            prop_assert_eq!(decode(&datagram), Ok(Datagram { stream, context, payload: &payload }));
        }
    }
}
