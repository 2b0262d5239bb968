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
    CONTEXT_REPAIR, CONTEXT_REPORT, CONTEXT_SOURCE, CONTEXT_TEMPLATE, CONTEXT_THIN, HEADROOM, Half,
    Header, Report, SourceHeader, ThinHeader, Tidings,
};
use sennit_fec::Repair;
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
    /// What it takes beyond RFC 9484, if it is a Sennit.
    pub(crate) fn abilities(self) -> Option<Abilities> {
        match self {
            Self::Standard => None,
            Self::Sennit(abilities) => Some(abilities),
        }
    }

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
    /// Packets that repairs protect, repairs, and tidings of them.
    pub(crate) repairs: bool,
    /// How its classes fare in the direction that the hub sends, which a hub tells.
    pub(crate) fares: bool,
    /// Capsules that tell of another authority, to which it then moves.
    pub(crate) moves: bool,
}

impl Abilities {
    /// What this Sennit takes.
    pub(crate) const OURS: Self = Self {
        partial: true,
        halves: true,
        items: true,
        thin: true,
        repairs: true,
        fares: true,
        moves: true,
    };

    /// How each is said in the handshake, and where it is kept.
    fn words(&mut self) -> [(&'static str, &'static str, &mut bool); 7] {
        [
            ("checksums", "partial", &mut self.partial),
            ("halves", "joined", &mut self.halves),
            ("reports", "items", &mut self.items),
            ("headers", "thin", &mut self.thin),
            ("repairs", "symbols", &mut self.repairs),
            ("fares", "told", &mut self.fares),
            ("authority", "moves", &mut self.moves),
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
    /// A packet that repairs protect, with both its numbers.
    Source(SourceHeader, Bytes),
    /// What repairs it.
    Repair(Repair, Bytes),
    /// What came of packets that were protected.
    Tidings(Tidings),
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
    /// Packets leave thin, where that saves something.
    sends_thin: bool,
    source: Prefix,
    repair: Prefix,
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
        let sends_thin =
            matches!(peer, Peer::Sennit(abilities) if abilities.thin && abilities.items);
        Self {
            stream,
            peer,
            whole: prefix(whole),
            partial: prefix(CONTEXT_PARTIAL),
            padding: prefix(CONTEXT_PADDING),
            half: prefix(CONTEXT_HALF),
            report: prefix(report),
            thin: sends_thin.then(|| Box::new(Thinning::new(stream))),
            sends_thin,
            source: prefix(CONTEXT_SOURCE),
            repair: prefix(CONTEXT_REPAIR),
        }
    }

    /// One for the same datagrams that has seen none yet.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(self.stream, self.peer)
    }

    /// Whether packets are numbered, and the ends report to each other.
    pub(crate) fn is_numbered(&self) -> bool {
        self.peer != Peer::Standard
    }

    pub(crate) fn abilities(&self) -> Abilities {
        self.peer.abilities().unwrap_or_default()
    }

    /// Whether inner packets may have partial checksums.
    pub(crate) fn takes_partial(&self) -> bool {
        self.abilities().partial
    }

    /// Whether packets may leave in halves.
    pub(crate) fn takes_halves(&self) -> bool {
        self.abilities().halves
    }

    /// Whether the peer takes repairs, and packets that are protected by them.
    pub(crate) fn takes_repairs(&self) -> bool {
        self.abilities().repairs
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
        with_prefix(buffer, start, self.prefix(checksum))
    }

    fn prefix(&self, checksum: Progress) -> &Prefix {
        match checksum {
            Progress::Whole => &self.whole,
            Progress::Partial => &self.partial,
        }
    }

    /// The datagram of an inner packet that repairs protect, written into the headroom before it.
    /// It is as long as any.
    pub(crate) fn encode_source(&self, mut buffer: BytesMut, header: &SourceHeader) -> Bytes {
        let start = HEADROOM - SourceHeader::LEN;
        buffer[start..HEADROOM].copy_from_slice(&header.encode());
        with_prefix(buffer, start, &self.source)
    }

    /// The number of a datagram among those that repairs protect, if it is one.
    pub(crate) fn source_id(&self, datagram: &[u8]) -> Option<u16> {
        let payload = datagram.strip_prefix(&self.source[..])?;
        payload.first_chunk().map(|id| u16::from_be_bytes(*id))
    }

    /// The datagram of a repair.
    pub(crate) fn repair(&self, repair: &Repair, symbol: &[u8]) -> Bytes {
        [&self.repair[..], &repair.encode(), symbol].concat().into()
    }

    /// The datagram of tidings.
    pub(crate) fn tidings(&self, tidings: &Tidings) -> Bytes {
        let mut out = self.repair.to_vec();
        tidings.encode(&mut out);
        out.into()
    }

    /// A datagram that is sent again, with the time at which it is. One that was protected is
    /// protected no more: what repairs it has left before.
    pub(crate) fn redate(&self, datagram: &Bytes, sent_micros: u32) -> Bytes {
        let mut copy = BytesMut::from(&datagram[..]);
        if let Some(payload) = datagram.strip_prefix(&self.source[..])
            && let Some((source, _)) = SourceHeader::decode(payload, sent_micros)
        {
            let prefix = self.prefix(progress(source.partial));
            copy[..prefix.len()].copy_from_slice(prefix);
            copy[prefix.len()..][..Header::LEN].copy_from_slice(&source.header.encode());
        }
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
        debug_assert!(
            self.source_id(datagram).is_none(),
            "it has no room for halves"
        );
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
    /// `clock` is what the sender's should say of it, if that is known.
    pub(crate) fn decode(
        &mut self,
        context: u64,
        mut payload: Bytes,
        clock: Option<u32>,
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
                self.note_number(&header);
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
            CONTEXT_SOURCE | CONTEXT_REPAIR if !self.takes_repairs() => None,
            CONTEXT_SOURCE => {
                let (header, _) = SourceHeader::decode(&payload, clock.unwrap_or_default())?;
                self.note_number(&header.header);
                payload.advance(SourceHeader::LEN);
                Some(Inbound::Source(header, payload))
            }
            CONTEXT_REPAIR if Tidings::is_meant(&payload) => {
                Tidings::decode(&payload).map(Inbound::Tidings)
            }
            CONTEXT_REPAIR => {
                let (repair, _) = Repair::decode(&payload)?;
                payload.advance(Repair::LEN);
                Some(Inbound::Repair(repair, payload))
            }
            _ => None,
        }
    }
}

/// The datagram whose payload begins at `start`, with `prefix` before that.
fn with_prefix(mut buffer: BytesMut, start: usize, prefix: &Prefix) -> Bytes {
    let start = start - prefix.len();
    buffer[start..start + prefix.len()].copy_from_slice(prefix);
    buffer.advance(start);
    buffer.freeze()
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
mod tests;
