//! What travels in a QUIC DATAGRAM after the Quarter Stream ID (RFC 9297 §2.1).
//!
//! Context 0 is the bare IP packet that any RFC 9484 peer understands. The others are Sennit's own,
//! allocated by the client (hence even, RFC 9484 §6) and used only after both sides said so in the
//! handshake:
//!
//! | context | payload |
//! | --- | --- |
//! | 2 | [`Header`], then the IP packet |
//! | 4 | a [`Report`] on the paths, from the receiver's side |
//! | 6 | padding: it is of interest whether it arrives, not what it is |
//! | 8 | as 2, with a partial checksum; used only if the other side said that it takes them |
//! | 10 | [`Header`] and [`Half`], then a half of the IP packet, perhaps padding |
//! | 12 | a [`Report`] as items, each a type, a length and so many bytes; instead of 4 |
//! | 14 | a [`SourceHeader`], then the IP packet: as 2 or 8, but repairs protect it |
//! | 16 | a repair of packets of context 14, or a [`Tidings`] of what came of them |
//! | 18 | an [`Offer`]: a template of a flow's headers |
//! | 20 | [`ThinHeader`], then a thin packet ([`sennit_packet::thin`]) |
//!
//! The items of a report that tell how classes fare are [`Fare`] and [`Queue`].
//!
//! Contexts from 10 on are used only if the other side said that it takes them.
//!
//! A partial checksum is the sum of the pseudo header alone, as a kernel leaves it to a network
//! card (`VIRTIO_NET_HDR_F_NEEDS_CSUM`). It has gone through no wire yet, and QUIC's tag covers
//! what follows; the far end's kernel adds the rest if the packet travels on.
//!
//! All numbers are big endian.

mod fares;
mod source;
mod thin;

use std::time::Duration;

pub use fares::{Fare, Queue};
pub use source::{SourceHead, SourceHeader, Tidings};
pub use thin::{Offer, ThinHeader};

/// A bare IP packet.
pub const CONTEXT_IP: u64 = 0;
/// An IP packet behind a [`Header`].
pub const CONTEXT_NUMBERED: u64 = 2;
/// A [`Report`].
pub const CONTEXT_REPORT: u64 = 4;
/// A [`Report`] as items, of which a receiver skips those that it does not know.
pub const CONTEXT_ITEMS: u64 = 12;
/// Nothing but size.
pub const CONTEXT_PADDING: u64 = 6;
/// An IP packet with a partial checksum behind a [`Header`].
pub const CONTEXT_PARTIAL: u64 = 8;

/// Half of an IP packet behind a [`Header`] and a [`Half`].
pub const CONTEXT_HALF: u64 = 10;

/// An IP packet that repairs protect, behind a [`SourceHeader`].
pub const CONTEXT_SOURCE: u64 = 14;
/// A repair, or [`Tidings`].
pub const CONTEXT_REPAIR: u64 = 16;
/// A template of a flow's headers: an [`Offer`].
pub const CONTEXT_TEMPLATE: u64 = 18;
/// A packet without what its flow's template tells, behind a [`ThinHeader`].
pub const CONTEXT_THIN: u64 = 20;

/// Room that must be kept free in front of a queued packet for every prefix that could be written
/// there: Quarter Stream ID (at most 8 bytes, 1 in practice), context, header.
pub const HEADROOM: usize = 8 + 1 + Header::LEN;

/// Numbers a packet, so that the far end can drop duplicates, restore order and measure delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The flow within the tunnel; sequence numbers of different flows are unrelated.
    pub flow: u8,
    /// Packets of the flow that come before this one should be waited for.
    pub ordered: bool,
    /// How long after this one the last of those will have been sent: it took a slower path ahead
    /// of its turn. In steps of 2 ms, at most 254 ms.
    pub early: Duration,
    /// Position in the flow, from [`Self::FIRST`]; wraps.
    pub seq: u32,
    /// When it was sent, in microseconds of the sender's clock; wraps after 71 minutes.
    pub sent_micros: u32,
}

impl Header {
    /// Bytes on the wire.
    pub const LEN: usize = 10;
    /// Number of a flow's first packet. It is so near to the wrap that every flow of some size
    /// passes there, in tests too.
    pub const FIRST: u32 = 0_u32.wrapping_sub(1000);
    const ORDERED: u8 = 1 << 7;
    const EARLY_STEP_MS: u64 = 2;

    /// The bytes of this header.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let ordered = if self.ordered { Self::ORDERED } else { 0 };
        let steps = self.early.as_millis().div_ceil(Self::EARLY_STEP_MS.into());
        let early = steps.min((Self::ORDERED - 1).into()) as u8;
        let mut out = [0; Self::LEN];
        out[..2].copy_from_slice(&[ordered | early, self.flow]);
        out[2..6].copy_from_slice(&self.seq.to_be_bytes());
        out[6..].copy_from_slice(&self.sent_micros.to_be_bytes());
        out
    }

    /// When it would have been sent in its turn, as [`Self::sent_micros`].
    pub fn turn_micros(&self) -> u32 {
        self.sent_micros.wrapping_add(self.early.as_micros() as u32)
    }

    /// Changes the time of sending in an encoded header; the packet is not early any more.
    ///
    /// # Panics
    /// If `payload` does not start with a header.
    pub fn redate(payload: &mut [u8], sent_micros: u32) {
        payload[0] &= Self::ORDERED;
        payload[6..Self::LEN].copy_from_slice(&sent_micros.to_be_bytes());
    }

    /// Splits a payload into its header and the IP packet; `None` if it is too short.
    pub fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, packet) = payload.split_first_chunk::<{ Self::LEN }>()?;
        let [order, flow, s0, s1, s2, s3, t0, t1, t2, t3] = *head;
        let header = Self {
            flow,
            ordered: order & Self::ORDERED != 0,
            early: Duration::from_millis(Self::EARLY_STEP_MS * u64::from(order & !Self::ORDERED)),
            seq: u32::from_be_bytes([s0, s1, s2, s3]),
            sent_micros: u32::from_be_bytes([t0, t1, t2, t3]),
        };
        Some((header, packet))
    }
}

/// Which half of a packet follows. Both halves have the header of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// It is the end of the packet.
    pub last: bool,
    /// The packet has a partial checksum.
    pub partial: bool,
    /// Bytes of the half; what follows them is padding.
    pub len: u16,
}

impl Half {
    /// Bytes on the wire.
    pub const LEN: usize = 3;
    const LAST: u8 = 1;
    const PARTIAL: u8 = 1 << 1;

    /// The bytes of this header.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let [high, low] = self.len.to_be_bytes();
        let flags = bit(self.last, Self::LAST) | bit(self.partial, Self::PARTIAL);
        [flags, high, low]
    }

    /// Splits what follows a [`Header`] into this and the half, without its padding; `None` if it
    /// is empty or not all there, or if a flag is set that nobody knows.
    pub fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (&[flags, high, low], rest) = payload.split_first_chunk::<{ Self::LEN }>()?;
        let len = u16::from_be_bytes([high, low]);
        let half = Self {
            last: flags & Self::LAST != 0,
            partial: flags & Self::PARTIAL != 0,
            len,
        };
        let known = flags & !(Self::LAST | Self::PARTIAL) == 0;
        let bytes = rest.get(..len.into()).filter(|bytes| !bytes.is_empty())?;
        known.then_some((half, bytes))
    }
}

/// What one end hears on each path, told to the other end over a path that works.
///
/// QUIC acknowledgements cannot say this: they share one path, so when that path dies in one
/// direction all others fall silent with it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Report {
    /// When it was sent, as in [`Header::sent_micros`].
    pub sent_micros: u32,
    /// One entry per path.
    pub paths: Vec<PathReport>,
    /// Templates that have arrived: flow and edition of each [`Offer`].
    pub templates: Vec<(u8, u8)>,
    /// How the tunnel's class fares on its paths.
    pub fares: Vec<Fare>,
    /// The queue of its class.
    pub queue: Option<Queue>,
}

/// One line of a [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The QUIC path id.
    pub path: u32,
    /// Whether packets arrive on it.
    pub heard: bool,
    /// The sender found that larger packets, which it carried before, do not arrive on it any more.
    /// Said only to who joins [`Half`]s, and only of a path that is heard: others take it for that.
    pub shrunk: bool,
    /// Why the sender's end of it is out of use, if it is: only in a report of items, and only of a
    /// path that is not heard.
    pub away: Option<Away>,
    /// How far apart full packets of the receiver's arrive on it; zero if it is not slow. In
    /// milliseconds, only in a report of items.
    pub spacing: Duration,
}

/// Why one end of a path is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Its link has no carrier or no address.
    LinkDown,
    /// Its operator wants its link to carry nothing.
    Paused,
}

impl Away {
    fn code(away: Option<Self>) -> u8 {
        match away {
            None => 0,
            Some(Self::LinkDown) => 1,
            Some(Self::Paused) => 2,
        }
    }

    /// What a later end says in other words is not known here.
    fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::LinkDown),
            2 => Some(Self::Paused),
            _ => None,
        }
    }
}

impl PathReport {
    const HEARD: u8 = 1;
    const SHRUNK: u8 = 1 << 1;

    fn flags(self) -> u8 {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        bit(self.heard, Self::HEARD) | bit(self.shrunk, Self::SHRUNK)
    }

    fn decode([a, b, c, d, flags]: [u8; 5]) -> Self {
        Self {
            path: u32::from_be_bytes([a, b, c, d]),
            heard: flags != 0,
            shrunk: flags & Self::SHRUNK != 0,
            away: None,
            spacing: Duration::ZERO,
        }
    }

    /// What an item holds: the first ends that read it take what they know of it.
    fn of_item(value: &[u8]) -> Option<Self> {
        let (entry, rest) = value.split_first_chunk()?;
        let away = rest.first().and_then(|&code| Away::of(code));
        let millis = rest
            .get(1..3)
            .map_or(0, |it| u16::from_be_bytes([it[0], it[1]]));
        Some(Self {
            away,
            spacing: Duration::from_millis(millis.into()),
            ..Self::decode(*entry)
        })
    }

    /// The bytes of an item, and how many of them say something.
    fn to_item(self) -> ([u8; 8], usize) {
        let [a, b, c, d] = self.path.to_be_bytes();
        let millis = u16::try_from(self.spacing.as_millis()).unwrap_or(u16::MAX);
        let [high, low] = millis.to_be_bytes();
        let away = Away::code(self.away);
        let len = match (millis, away) {
            (0, 0) => Report::ENTRY,
            (0, _) => Report::ENTRY + 1,
            (_, _) => Report::ENTRY + 3,
        };
        ([a, b, c, d, self.flags(), away, high, low], len)
    }
}

impl Report {
    /// More paths than this are not reported (RFC 10069 leaves the number to the endpoints).
    pub const MAX_PATHS: usize = 64;
    const ENTRY: usize = 5;
    /// An item that holds the time of sending: four bytes.
    const ITEM_TIME: u8 = 0;
    /// An item that holds one path: its id, four bytes; flags, one byte; why it is out of use, one
    /// byte, and how far apart packets arrive, two bytes, which may be missing; more may follow.
    const ITEM_PATH: u8 = 1;
    /// An item that holds flow and edition of templates, a byte each.
    const ITEM_TEMPLATES: u8 = 18;
    /// More templates than this are not reported at once: what one item holds.
    pub const MAX_TEMPLATES: usize = u8::MAX as usize / 2;
    /// More fares than this are not told at once: a report fits into any packet.
    pub const MAX_FARES: usize = 4;

    /// Appends this report as every Sennit understands it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sent_micros.to_be_bytes());
        for entry in self.paths.iter().take(Self::MAX_PATHS) {
            out.extend_from_slice(&entry.path.to_be_bytes());
            out.push(entry.flags());
        }
    }

    /// Appends this report as items: a type, a length, and so many bytes.
    pub fn encode_items(&self, out: &mut Vec<u8>) {
        let mut item = |kind: u8, value: &[u8]| {
            out.extend_from_slice(&[kind, value.len() as u8]);
            out.extend_from_slice(value);
        };
        item(Self::ITEM_TIME, &self.sent_micros.to_be_bytes());
        for entry in self.paths.iter().take(Self::MAX_PATHS) {
            let (value, len) = entry.to_item();
            item(Self::ITEM_PATH, &value[..len]);
        }
        if !self.templates.is_empty() {
            let known = self.templates.iter().take(Self::MAX_TEMPLATES);
            let pairs: Vec<u8> = known.flat_map(|&(flow, edition)| [flow, edition]).collect();
            item(Self::ITEM_TEMPLATES, &pairs);
        }
        for fare in self.fares.iter().take(Self::MAX_FARES) {
            item(Fare::ITEM, &fare.encode());
        }
        if let Some(queue) = self.queue {
            item(Queue::ITEM, &queue.encode());
        }
    }

    /// Reads a report of items. Items of unknown types are skipped, and so is what follows in an
    /// item after what is known of it. `None` if an item is cut short, there are too many paths, or
    /// the time is missing.
    pub fn decode_items(mut payload: &[u8]) -> Option<Self> {
        let mut sent_micros = None;
        let mut report = Self::default();
        while !payload.is_empty() {
            let (&[kind, len], rest) = payload.split_first_chunk()?;
            let (value, rest) = rest.split_at_checked(len.into())?;
            payload = rest;
            match kind {
                Self::ITEM_TIME => {
                    sent_micros = Some(u32::from_be_bytes(*value.first_chunk()?));
                }
                Self::ITEM_PATH => {
                    report.paths.push(PathReport::of_item(value)?);
                    if report.paths.len() > Self::MAX_PATHS {
                        return None;
                    }
                }
                Self::ITEM_TEMPLATES => {
                    let (pairs, _) = value.as_chunks();
                    report.templates = pairs
                        .iter()
                        .map(|&[flow, edition]| (flow, edition))
                        .collect();
                }
                Fare::ITEM if report.fares.len() < Self::MAX_FARES => {
                    report.fares.push(Fare::decode(value)?);
                }
                Queue::ITEM => report.queue = Some(Queue::decode(value)?),
                _ => {}
            }
        }
        Some(Self {
            sent_micros: sent_micros?,
            ..report
        })
    }

    /// Reads a report; `None` if it is not whole entries or too many of them.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (&sent_micros, payload) = payload.split_first_chunk()?;
        let (entries, rest) = payload.as_chunks::<{ Self::ENTRY }>();
        if !rest.is_empty() || entries.len() > Self::MAX_PATHS {
            return None;
        }
        let paths = entries.iter().copied().map(PathReport::decode).collect();
        Some(Self {
            sent_micros: u32::from_be_bytes(sent_micros),
            paths,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        let header = Header {
            flow: 0xcd,
            ordered: true,
            early: Duration::from_millis(84),
            seq: 0x0102_0304,
            sent_micros: u32::MAX,
        };
        let mut wire = header.encode().to_vec();
        wire.extend_from_slice(b"packet");
        assert_eq!(Header::decode(&wire), Some((header, &b"packet"[..])));
        assert_eq!(Header::decode(&wire[..9]), None);
    }

    #[test]
    fn a_half_survives_the_wire_and_bad_ones_are_refused() {
        let half = Half {
            last: true,
            partial: true,
            len: 4,
        };
        let mut wire = half.encode().to_vec();
        wire.extend_from_slice(b"halfpadding");
        assert_eq!(Half::decode(&wire), Some((half, &b"half"[..])));
        assert_eq!(Half::decode(&wire[..6]), None);
        assert_eq!(Half::decode(&[0; 8]), None);
        assert_eq!(Half::decode(&[4, 0, 1, 0]), None);
    }

    #[test]
    fn a_report_survives_the_wire_and_bad_ones_are_refused() {
        let report = Report {
            sent_micros: u32::MAX,
            paths: vec![
                PathReport {
                    path: 0,
                    heard: true,
                    shrunk: true,
                    away: None,
                    spacing: Duration::ZERO,
                },
                PathReport {
                    path: 7,
                    heard: false,
                    shrunk: false,
                    away: None,
                    spacing: Duration::ZERO,
                },
            ],
            ..Report::default()
        };
        let mut wire = Vec::new();
        report.encode(&mut wire);
        assert_eq!(Report::decode(&wire), Some(report));
        assert_eq!(Report::decode(&wire[..7]), None);
        assert_eq!(Report::decode(&[0; 4 + 5 * 65]), None);
    }

    #[test]
    fn a_report_of_items_survives_the_wire_and_what_later_ends_add_to_it() {
        let report = Report {
            sent_micros: 77,
            paths: vec![PathReport {
                path: 3,
                heard: true,
                shrunk: true,
                away: None,
                spacing: Duration::ZERO,
            }],
            templates: vec![(7, 1), (255, 0)],
            fares: vec![Fare::default(); Report::MAX_FARES],
            queue: Some(Queue::default()),
        };
        let mut wire = Vec::new();
        report.encode_items(&mut wire);
        assert_eq!(Report::decode_items(&wire), Some(report.clone()));
        let longer = [&wire[..], &[200, 3, 1, 2, 3]].concat();
        assert_eq!(Report::decode_items(&longer), Some(report.clone()));
        let mut grown = wire.clone();
        grown[7] += 2;
        grown.splice(13..13, [0, 9]);
        assert_eq!(Report::decode_items(&grown), Some(report.clone()));
        for (away, code) in [
            (Some(Away::LinkDown), 1),
            (Some(Away::Paused), 2),
            (None, 3),
        ] {
            let mut told = report.clone();
            told.paths[0].away = away;
            let mut further = wire.clone();
            further[7] += 1;
            further.insert(13, code);
            assert_eq!(Report::decode_items(&further), Some(told.clone()));
            let mut again = Vec::new();
            told.encode_items(&mut again);
            assert_eq!(again == further, away.is_some());
        }
        let mut slow = report.clone();
        slow.paths[0].spacing = Duration::from_millis(370);
        let mut told = Vec::new();
        slow.encode_items(&mut told);
        assert_eq!(told[7..16], [8, 0, 0, 0, 3, 3, 0, 1, 114]);
        assert_eq!(Report::decode_items(&told), Some(slow));
        for cut in 1..wire.len() {
            let read = Report::decode_items(&wire[..cut]);
            assert_ne!(read.as_ref(), Some(&report));
        }
        assert_eq!(Report::decode_items(&wire[6..]), None, "without a time");
        assert_eq!(Report::decode_items(&[]), None);
        let path = [1, 5, 0, 0, 0, 1, 1];
        assert_eq!(
            Report::decode_items(&[&wire[..6], &path.repeat(65)].concat()),
            None
        );
    }
}
