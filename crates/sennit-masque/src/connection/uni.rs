//! The peer's unidirectional streams, RFC 9114 §6.2: each begins with its type.

use super::Role;
use super::control::{Control, Signal};
use super::streams::Streams;
use crate::error::{Code, ConnectionError};
use crate::qpack::{DecoderStream, EncoderStream};
use crate::{MAX_UNI_STREAMS, StreamId, varint};
use bytes::{Buf, Bytes};

/// The type of our own and the peer's control stream (RFC 9114 §6.2.1).
pub(super) const CONTROL: u64 = 0x00;
/// RFC 9114 §6.2.2
const PUSH: u64 = 0x01;
/// RFC 9204 §4.2
const QPACK_ENCODER: u64 = 0x02;
const QPACK_DECODER: u64 = 0x03;

#[derive(Debug)]
pub(super) struct UniStreams {
    role: Role,
    streams: Streams<Uni>,
    /// Types of which the peer may open one stream and has done so.
    opened: Vec<u64>,
}

#[derive(Debug)]
enum Uni {
    /// Not enough bytes yet for the type.
    New(TypeBytes),
    Control(Control),
    QpackEncoder(EncoderStream),
    QpackDecoder(DecoderStream),
}

#[derive(Debug, Default)]
struct TypeBytes {
    bytes: [u8; 8],
    len: usize,
}

/// Whether more of a stream is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    Wanted,
    /// It is of unknown type.
    Unwanted,
}

impl UniStreams {
    /// The streams of the peer of `role`.
    pub(super) const fn new(role: Role) -> Self {
        let first = match role {
            Role::Client => StreamId(3),
            Role::Server => StreamId(2),
        };
        Self {
            role,
            streams: Streams::new(first, MAX_UNI_STREAMS),
            opened: Vec::new(),
        }
    }

    /// Reads what arrived on `id`, which the peer opened.
    pub(super) fn handle_data(
        &mut self,
        id: StreamId,
        mut bytes: Bytes,
        fin: bool,
        signals: &mut Vec<Signal>,
    ) -> Result<Interest, ConnectionError> {
        let Some(stream) = self.streams.open(id, |_| Uni::new())? else {
            return Ok(Interest::Wanted);
        };
        if let Uni::New(head) = stream
            && let Some(kind) = head.fill(&mut bytes)
        {
            match Uni::of_type(kind, self.role, &mut self.opened)? {
                Some(known) => *stream = known,
                None => {
                    self.streams.remove(id);
                    return Ok(Interest::Unwanted);
                }
            }
        }
        stream.handle(&mut bytes, signals)?;
        if fin {
            self.handle_end(id)?;
        }
        Ok(Interest::Wanted)
    }

    /// Notes that `id` ended, by FIN or reset.
    pub(super) fn handle_end(&mut self, id: StreamId) -> Result<(), ConnectionError> {
        self.streams.open(id, |_| Uni::new())?;
        match self.streams.remove(id) {
            // RFC 9114 §6.2: a stream may end before it has a type.
            None | Some(Uni::New(_)) => Ok(()),
            // RFC 9114 §6.2.1, RFC 9204 §4.2
            Some(Uni::Control(_) | Uni::QpackEncoder(_) | Uni::QpackDecoder(_)) => {
                let reason = "the control stream or a QPACK stream was closed";
                Err(ConnectionError::new(
                    Code::H3_CLOSED_CRITICAL_STREAM,
                    reason,
                ))
            }
        }
    }

    pub(super) fn buffered(&self) -> usize {
        self.streams.values().map(Uni::buffered).sum()
    }
}

impl Uni {
    fn new() -> Self {
        Self::New(TypeBytes::default())
    }

    /// A stream whose type has just been read; `None` for an unknown type (RFC 9114 §6.2.3).
    fn of_type(
        kind: u64,
        role: Role,
        opened: &mut Vec<u64>,
    ) -> Result<Option<Self>, ConnectionError> {
        let stream = match kind {
            CONTROL => Self::Control(Control::new(role)),
            QPACK_ENCODER => Self::QpackEncoder(EncoderStream),
            QPACK_DECODER => Self::QpackDecoder(DecoderStream::default()),
            PUSH => return Err(push_error(role)),
            _ => return Ok(None),
        };
        if opened.contains(&kind) {
            let reason = "a second control stream or QPACK stream of one kind";
            return Err(ConnectionError::new(Code::H3_STREAM_CREATION_ERROR, reason));
        }
        opened.push(kind);
        Ok(Some(stream))
    }

    fn handle(
        &mut self,
        bytes: &mut Bytes,
        signals: &mut Vec<Signal>,
    ) -> Result<(), ConnectionError> {
        match self {
            Self::New(_) => {}
            Self::Control(control) => {
                while let Some(signal) = control.next(bytes)? {
                    signals.push(signal);
                }
            }
            Self::QpackEncoder(stream) => stream.handle(bytes)?,
            Self::QpackDecoder(stream) => stream.handle(bytes)?,
        }
        Ok(())
    }

    fn buffered(&self) -> usize {
        match self {
            Self::Control(control) => control.buffered(),
            Self::New(_) | Self::QpackEncoder(_) | Self::QpackDecoder(_) => 0,
        }
    }
}

/// RFC 9114 §6.2.2: a client cannot push, and a server may not as long as we send no MAX_PUSH_ID
/// (§4.6).
const fn push_error(role: Role) -> ConnectionError {
    match role {
        Role::Server => ConnectionError::new(
            Code::H3_STREAM_CREATION_ERROR,
            "a client opened a push stream",
        ),
        Role::Client => ConnectionError::new(Code::H3_ID_ERROR, "a push that was not allowed"),
    }
}

impl TypeBytes {
    fn fill(&mut self, input: &mut Bytes) -> Option<u64> {
        while !input.is_empty() {
            self.bytes[self.len] = input.get_u8();
            self.len += 1;
            if let Some((kind, _)) = varint::decode(&self.bytes[..self.len]) {
                return Some(kind);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    type Handled = Result<(Interest, Vec<Signal>), ConnectionError>;

    const NOTHING: Handled = Ok((Interest::Wanted, Vec::new()));

    fn handle(streams: &mut UniStreams, id: u64, bytes: &'static [u8]) -> Handled {
        let mut signals = Vec::new();
        let bytes = Bytes::from_static(bytes);
        let interest = streams.handle_data(StreamId(id), bytes, false, &mut signals)?;
        Ok((interest, signals))
    }

    fn code_of(result: Handled) -> Code {
        result.expect_err("must be refused").code
    }

    #[test]
    fn the_type_may_arrive_in_pieces_and_be_long() {
        let mut streams = UniStreams::new(Role::Client);
        for byte in [&b"\xc0"[..], b"\0", b"\0", b"\0", b"\0", b"\0", b"\0"] {
            assert_eq!(handle(&mut streams, 3, byte), NOTHING);
        }
        let signals = vec![Signal::Settings(Settings::default())];
        assert_eq!(
            handle(&mut streams, 3, b"\0\x04\0"),
            Ok((Interest::Wanted, signals))
        );
    }

    #[test]
    fn a_stream_of_unknown_type_is_not_read_and_may_end() {
        let mut streams = UniStreams::new(Role::Server);
        assert_eq!(
            handle(&mut streams, 2, b"\x21abc"),
            Ok((Interest::Unwanted, vec![]))
        );
        assert_eq!(handle(&mut streams, 2, b"\x00late"), NOTHING);
        assert_eq!(streams.handle_end(StreamId(2)), Ok(()));
    }

    #[test]
    fn a_stream_may_end_before_its_type() {
        let mut streams = UniStreams::new(Role::Server);
        assert_eq!(streams.handle_end(StreamId(2)), Ok(()));
        assert_eq!(handle(&mut streams, 6, b"\x40"), NOTHING);
        assert_eq!(streams.handle_end(StreamId(6)), Ok(()));
    }

    #[test]
    fn a_critical_stream_comes_once_and_never_ends() {
        for kind in [&b"\x00"[..], b"\x02", b"\x03"] {
            let mut streams = UniStreams::new(Role::Server);
            assert_eq!(handle(&mut streams, 2, kind), NOTHING);
            assert_eq!(
                code_of(handle(&mut streams, 6, kind)),
                Code::H3_STREAM_CREATION_ERROR
            );
            let error = streams.handle_end(StreamId(2)).expect_err("critical");
            assert_eq!(error.code, Code::H3_CLOSED_CRITICAL_STREAM);
        }
    }

    #[test]
    fn a_push_stream_is_an_error_for_both_sides() {
        let mut server = UniStreams::new(Role::Server);
        assert_eq!(
            code_of(handle(&mut server, 2, b"\x01")),
            Code::H3_STREAM_CREATION_ERROR
        );
        let mut client = UniStreams::new(Role::Client);
        assert_eq!(code_of(handle(&mut client, 3, b"\x01")), Code::H3_ID_ERROR);
    }

    #[test]
    fn qpack_streams_are_checked() {
        let mut streams = UniStreams::new(Role::Server);
        assert_eq!(handle(&mut streams, 2, b"\x02\x20"), NOTHING);
        assert_eq!(
            code_of(handle(&mut streams, 2, b"\x3f")),
            Code::QPACK_ENCODER_STREAM_ERROR
        );
        assert_eq!(handle(&mut streams, 6, b"\x03\x44"), NOTHING);
        assert_eq!(
            code_of(handle(&mut streams, 6, b"\x80")),
            Code::QPACK_DECODER_STREAM_ERROR
        );
    }
}
