//! What a tunnel's datagrams look like: the one place that knows contexts and headers.
//!
//! Both ends agree in the handshake on what they take beyond RFC 9484 ([`Abilities`]), and a
//! [`Codec`] is that agreement for one connection. Everything else hands it packets, reports and
//! padding, and gets an [`Inbound`] from it. The layouts themselves are in [`sennit_core::frame`].
//!
//! A new kind of datagram is a new context and, unless every Sennit is to understand it, a new
//! ability.

mod thin;

use std::time::Instant;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sennit_core::Headers;
use sennit_core::frame::{
    CONTEXT_HALF, CONTEXT_IP, CONTEXT_ITEMS, CONTEXT_NUMBERED, CONTEXT_PADDING, CONTEXT_PARTIAL,
    CONTEXT_REPORT, CONTEXT_TEMPLATE, CONTEXT_THIN, HEADROOM, Half, Header, Report, ThinHeader,
};
use sennit_masque::{
    Code, StreamId,
    datagram::{self, DatagramError, Prefix},
};
use sennit_packet::checksum::Progress;

use self::thin::Thinning;
use crate::{inner::Packet, thin::Restored};

/// Room for halves is taken from the system in pieces of this size, in bytes.
const CHUNK: usize = 64 << 10;

/// What the other end understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// RFC 9484 and nothing more.
    Standard,
    /// Our own contexts as well, and what else it says.
    Sennit(Abilities),
}

impl Peer {
    /// What is used of it by a class whose headers travel like this.
    pub(crate) fn with_headers(self, headers: Headers) -> Self {
        match self {
            Self::Standard => Self::Standard,
            Self::Sennit(abilities) => Self::Sennit(abilities.with_headers(headers)),
        }
    }
}

/// What a Sennit takes beside numbered packets; the first Sennits took none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Packets with partial checksums.
    pub(crate) partial: bool,
    /// Halves of packets, which it joins.
    pub(crate) halves: bool,
    /// Reports of items, of which it skips those that it does not know.
    pub(crate) items: bool,
    /// Templates and thin packets.
    pub(crate) thin: bool,
}

impl Abilities {
    /// What this Sennit takes.
    pub(crate) const OURS: Self = Self {
        partial: true,
        halves: true,
        items: true,
        thin: true,
    };

    /// How each is said in the handshake, and where it is kept.
    fn words(&mut self) -> [(&'static str, &'static str, &mut bool); 4] {
        [
            ("checksums", "partial", &mut self.partial),
            ("halves", "joined", &mut self.halves),
            ("reports", "items", &mut self.items),
            ("headers", "thin", &mut self.thin),
        ]
    }

    /// As parameters of the `sennit` header, each with a semicolon in front.
    pub(crate) fn encode(mut self) -> String {
        let has = self.words().into_iter().filter(|(.., has)| **has);
        has.map(|(key, value, _)| format!(";{key}={value}"))
            .collect()
    }

    /// With thin packets only if both this class and the other end want them.
    pub(crate) fn with_headers(self, headers: Headers) -> Self {
        Self {
            thin: self.thin && headers == Headers::Thin,
            ..self
        }
    }

    /// How headers travel to who takes this.
    pub(crate) fn headers(self) -> Headers {
        if self.thin {
            Headers::Thin
        } else {
            Headers::Whole
        }
    }

    /// Takes one parameter of the `sennit` header; those that say something else change nothing.
    pub(crate) fn learn(&mut self, parameter: (&str, &str)) {
        for (key, value, has) in self.words() {
            *has |= parameter == (key, value);
        }
    }
}

/// What a datagram turns out to be.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// A packet without a number.
    Bare(Packet),
    /// A packet with its number.
    Numbered(Header, Packet),
    /// A packet that came thin, with its number.
    Thin(Header, Packet),
    /// A thin packet whose template is not here.
    Unknown,
    /// A template, which is taken down.
    Template,
    /// Half of a packet.
    Half(Header, Half, Bytes),
    /// What the peer says of the paths.
    Report(Report),
    /// Nothing of interest but that it arrived.
    Padding,
}

/// The datagrams of one connection, as both ends agreed on them.
#[derive(Debug)]
pub(crate) struct Codec {
    stream: StreamId,
    peer: Peer,
    /// What stands before a packet whose checksum is whole.
    whole: Prefix,
    /// What stands before one whose checksum is partial; it is as long.
    partial: Prefix,
    padding: Prefix,
    half: Prefix,
    report: Prefix,
    thin: Option<Box<Thinning>>,
}

impl Codec {
    /// For the request `stream`, with a `peer` that said what it takes.
    pub(crate) fn new(stream: StreamId, peer: Peer) -> Self {
        let prefix = |context| datagram::encode_prefix(stream, context);
        let (whole, report) = match peer {
            Peer::Standard => (CONTEXT_IP, CONTEXT_REPORT),
            Peer::Sennit(Abilities { items: false, .. }) => (CONTEXT_NUMBERED, CONTEXT_REPORT),
            Peer::Sennit(Abilities { items: true, .. }) => (CONTEXT_NUMBERED, CONTEXT_ITEMS),
        };
        Self {
            stream,
            peer,
            whole: prefix(whole),
            partial: prefix(CONTEXT_PARTIAL),
            padding: prefix(CONTEXT_PADDING),
            half: prefix(CONTEXT_HALF),
            report: prefix(report),
            thin: matches!(peer, Peer::Sennit(abilities) if abilities.thin && abilities.items)
                .then(|| Box::new(Thinning::new(stream))),
        }
    }

    /// Whether packets are numbered, and the ends report to each other.
    pub(crate) fn is_numbered(&self) -> bool {
        self.peer != Peer::Standard
    }

    fn abilities(&self) -> Abilities {
        match self.peer {
            Peer::Standard => Abilities::default(),
            Peer::Sennit(abilities) => abilities,
        }
    }

    /// Whether inner packets may have partial checksums.
    pub(crate) fn takes_partial(&self) -> bool {
        self.abilities().partial
    }

    /// Whether packets may leave in halves.
    pub(crate) fn takes_halves(&self) -> bool {
        self.abilities().halves
    }

    // ---- out -----------------------------------------------------------------------------------

    /// Bytes that a datagram has in front of its inner packet.
    pub(crate) fn overhead(&self) -> usize {
        let header = if self.is_numbered() { Header::LEN } else { 0 };
        self.whole.len() + header
    }

    /// Bytes that a datagram has in front of its inner packet, with any peer.
    pub(crate) fn most_overhead(&self) -> usize {
        self.whole.len() + Header::LEN
    }

    /// The datagram of an inner packet, written into the headroom before it.
    pub(crate) fn encode(
        &self,
        mut buffer: BytesMut,
        checksum: Progress,
        header: &Header,
    ) -> Bytes {
        let mut start = HEADROOM;
        if self.is_numbered() {
            start -= Header::LEN;
            buffer[start..HEADROOM].copy_from_slice(&header.encode());
        }
        let prefix = match checksum {
            Progress::Whole => &self.whole,
            Progress::Partial => &self.partial,
        };
        start -= prefix.len();
        buffer[start..start + prefix.len()].copy_from_slice(prefix);
        buffer.advance(start);
        buffer.freeze()
    }

    /// A datagram that is sent again, with the time at which it is.
    pub(crate) fn redate(&self, datagram: &Bytes, sent_micros: u32) -> Bytes {
        let mut copy = BytesMut::from(&datagram[..]);
        let payload = &mut copy[self.whole.len()..];
        if self.is_thin(datagram) {
            ThinHeader::redate(payload, sent_micros);
        } else {
            Header::redate(payload, sent_micros);
        }
        copy.freeze()
    }

    /// Padding of `len` bytes, or as few as there can be.
    pub(crate) fn padding(&self, len: usize) -> Bytes {
        let mut padding = self.padding.to_vec();
        padding.resize(len.max(padding.len()), 0);
        padding.into()
    }

    /// The datagram of a report.
    pub(crate) fn report(&self, report: &Report) -> Bytes {
        let mut out = self.report.to_vec();
        if self.abilities().items {
            report.encode_items(&mut out);
        } else {
            report.encode(&mut out);
        }
        out.into()
    }

    /// The longest inner packet that leaves in two halves where a datagram has at most `datagram`
    /// bytes.
    pub(crate) fn most_in_halves(&self, datagram: usize) -> usize {
        2 * datagram.saturating_sub(self.half.len() + Header::LEN + Half::LEN)
    }

    /// The two halves of a datagram with a numbered packet, padded to `least` bytes; `None` if it
    /// is something else. Their memory comes from `chunk`.
    pub(crate) fn halve(
        &self,
        datagram: &[u8],
        least: usize,
        chunk: &mut BytesMut,
    ) -> Option<[Bytes; 2]> {
        let partial = datagram.starts_with(&self.partial);
        if !partial && !datagram.starts_with(&self.whole) {
            return None;
        }
        let payload = &datagram[self.whole.len()..];
        let (head, packet) = payload.split_at_checked(Header::LEN)?;
        let (first, last) = packet.split_at_checked(packet.len().div_ceil(2))?;
        let mut half = |bytes: &[u8], last| {
            let header = Half {
                last,
                partial,
                len: bytes.len() as u16,
            };
            if chunk.capacity() < least + datagram.len() {
                *chunk = BytesMut::with_capacity(CHUNK);
            }
            for piece in [&self.half[..], head, &header.encode(), bytes] {
                chunk.extend_from_slice(piece);
            }
            chunk.put_bytes(0, least.saturating_sub(chunk.len()));
            chunk.split().freeze()
        };
        Some([half(first, false), half(last, true)])
    }

    // ---- in ------------------------------------------------------------------------------------

    /// Whether a received datagram is padding.
    pub(crate) fn is_padding(&self, datagram: &[u8]) -> bool {
        datagram.starts_with(&self.padding)
    }

    /// Whether datagrams of this request stream are its own.
    pub(crate) fn is_of(&self, stream: StreamId) -> bool {
        self.stream == stream
    }

    /// What a payload of this context is. `None` if it is malformed, or of a context that nobody
    /// agreed on: such datagrams are dropped (RFC 9484 §6).
    pub(crate) fn decode(
        &mut self,
        context: u64,
        mut payload: Bytes,
        now: Instant,
    ) -> Option<Inbound> {
        if context == CONTEXT_IP {
            return Some(Inbound::Bare(payload.into()));
        }
        if !self.is_numbered() {
            return None;
        }
        match context {
            CONTEXT_NUMBERED | CONTEXT_PARTIAL => {
                let (header, _) = Header::decode(&payload)?;
                self.note_header(&header, now);
                payload.advance(Header::LEN);
                let packet = Packet {
                    bytes: payload,
                    checksum: progress(context == CONTEXT_PARTIAL),
                };
                Some(Inbound::Numbered(header, packet))
            }
            CONTEXT_HALF => {
                let (header, rest) = Header::decode(&payload)?;
                let (half, bytes) = Half::decode(rest)?;
                Some(Inbound::Half(header, half, payload.slice_ref(bytes)))
            }
            CONTEXT_REPORT => Report::decode(&payload).map(Inbound::Report),
            CONTEXT_ITEMS => Report::decode_items(&payload).map(Inbound::Report),
            CONTEXT_PADDING => Some(Inbound::Padding),
            CONTEXT_TEMPLATE => self.take_template(&payload, now),
            CONTEXT_THIN => match self.thin.as_mut()?.receiving.restore(&payload, now) {
                Restored::Packet(header, packet) => Some(Inbound::Thin(header, packet)),
                Restored::Unknown => Some(Inbound::Unknown),
                Restored::Malformed => None,
            },
            _ => None,
        }
    }
}

/// How much of a checksum is done that is `partial` or not.
pub(crate) fn progress(partial: bool) -> Progress {
    if partial {
        Progress::Partial
    } else {
        Progress::Whole
    }
}

/// Splits a datagram into its stream, its context and its payload. One without a stream id is an
/// error of the connection (RFC 9297 §2.1), and then there is a code.
pub(crate) fn split(mut datagram: Bytes) -> Result<(StreamId, u64, Bytes), Option<Code>> {
    let decoded = datagram::decode(&datagram).map_err(DatagramError::code)?;
    let (stream, context, len) = (decoded.stream, decoded.context, decoded.payload.len());
    datagram.advance(datagram.len() - len);
    Ok((stream, context, datagram))
}

/// Splits the content of a DATAGRAM capsule (RFC 9297 §3.5) into its context and its payload.
pub(crate) fn split_capsule(mut content: Bytes) -> Option<(u64, Bytes)> {
    let (context, payload) = datagram::split_context(&content)?;
    let len = payload.len();
    content.advance(content.len() - len);
    Some((context, content))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use sennit_core::frame::PathReport;

    use super::*;

    const STREAM: StreamId = StreamId(4);

    fn sennit(abilities: Abilities) -> Codec {
        Codec::new(STREAM, Peer::Sennit(abilities))
    }

    fn header() -> Header {
        Header {
            flow: 3,
            ordered: true,
            early: Duration::from_millis(4),
            seq: 7,
            sent_micros: 1000,
        }
    }

    fn queued(packet: &[u8]) -> BytesMut {
        let mut buffer = BytesMut::zeroed(HEADROOM);
        buffer.extend_from_slice(packet);
        buffer
    }

    fn decoded(codec: &mut Codec, datagram: Bytes) -> Option<Inbound> {
        let (stream, context, payload) = split(datagram).ok()?;
        assert!(codec.is_of(stream));
        codec.decode(context, payload, Instant::now())
    }

    #[test]
    fn packets_survive_the_wire_with_what_was_agreed() {
        let mut codec = sennit(Abilities::OURS);
        for checksum in [Progress::Whole, Progress::Partial] {
            let datagram = codec.encode(queued(b"packet"), checksum, &header());
            assert_eq!(datagram.len(), codec.overhead() + 6);
            let Some(Inbound::Numbered(head, packet)) = decoded(&mut codec, datagram) else {
                panic!("a numbered packet");
            };
            assert_eq!((head, packet.checksum), (header(), checksum));
            assert_eq!(&packet.bytes[..], b"packet");
        }
    }

    #[test]
    fn a_peer_that_is_no_sennit_gets_and_sends_bare_packets() {
        let mut codec = Codec::new(STREAM, Peer::Standard);
        let datagram = codec.encode(queued(b"packet"), Progress::Whole, &header());
        assert_eq!(&datagram[..], b"\x01\x00packet");
        let Some(Inbound::Bare(packet)) = decoded(&mut codec, datagram) else {
            panic!("a bare packet");
        };
        assert_eq!(&packet.bytes[..], b"packet");
        for context in [
            CONTEXT_NUMBERED,
            CONTEXT_REPORT,
            CONTEXT_PADDING,
            CONTEXT_ITEMS,
            CONTEXT_TEMPLATE,
            CONTEXT_THIN,
        ] {
            assert!(
                codec
                    .decode(context, Bytes::from_static(&[0; 32]), Instant::now())
                    .is_none()
            );
        }
    }

    #[test]
    fn halves_have_the_header_of_their_packet() {
        let mut codec = sennit(Abilities::OURS);
        let datagram = codec.encode(queued(b"packets"), Progress::Partial, &header());
        let halves = codec.halve(&datagram, 40, &mut BytesMut::new()).unwrap();
        let found = halves.map(|half| {
            assert_eq!(half.len(), 40);
            match decoded(&mut codec, half) {
                Some(Inbound::Half(head, half, bytes)) => {
                    assert_eq!(head, header());
                    assert!(half.partial);
                    (half.last, bytes)
                }
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(found[0], (false, Bytes::from_static(b"pack")));
        assert_eq!(found[1], (true, Bytes::from_static(b"ets")));
        assert!(
            codec
                .halve(&codec.padding(40), 40, &mut BytesMut::new())
                .is_none()
        );
    }

    #[test]
    fn reports_take_the_form_that_the_peer_knows_and_either_is_understood() {
        let report = Report {
            sent_micros: 5,
            paths: vec![PathReport {
                path: 2,
                heard: true,
                shrunk: false,
            }],
            templates: Vec::new(),
        };
        let mut new = sennit(Abilities::OURS);
        let old = sennit(Abilities {
            items: false,
            ..Abilities::OURS
        });
        let sent = [new.report(&report), old.report(&report)];
        assert_ne!(sent[0], sent[1]);
        for datagram in sent {
            let Some(Inbound::Report(heard)) = decoded(&mut new, datagram) else {
                panic!("a report");
            };
            assert_eq!(heard, report);
        }
    }

    #[test]
    fn what_is_sent_again_has_another_time_and_is_otherwise_the_same() {
        let mut codec = sennit(Abilities::OURS);
        let datagram = codec.encode(queued(b"packet"), Progress::Whole, &header());
        let again = codec.redate(&datagram, 2000);
        let Some(Inbound::Numbered(head, packet)) = decoded(&mut codec, again) else {
            panic!("a numbered packet");
        };
        let expected = Header {
            early: Duration::ZERO,
            sent_micros: 2000,
            ..header()
        };
        assert_eq!((head, &packet.bytes[..]), (expected, &b"packet"[..]));
    }

    #[test]
    fn abilities_are_said_and_understood() {
        let mut heard = Abilities::default();
        let said = Abilities::OURS.encode();
        for parameter in said.split(';').skip(1) {
            heard.learn(parameter.split_once('=').unwrap());
        }
        assert_eq!(heard, Abilities::OURS);
        let mut none = Abilities::default();
        none.learn(("checksums", "none"));
        none.learn(("later", "joined"));
        assert_eq!(none, Abilities::default());
        assert_eq!(none.encode(), "");
    }
}
