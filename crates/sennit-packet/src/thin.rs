//! Packets without what all packets of their flow have in common.
//!
//! A [`Template`] is the headers of one packet of a flow, and its number. Both ends of a tunnel
//! hold it. A *thin* packet is another packet of that flow: a mask, the fields that the template
//! and the packet's own number do not tell, and the payload. [`Template::shrink`] makes it and
//! [`Template::expand`] gives the packet back, bit for bit; a packet for which that is impossible
//! is refused, and travels whole.
//!
//! The idea is that of ROHC (RFC 5795) and SCHC (RFC 8724). Unlike ROHC's, a template never changes
//! by what arrives: each thin packet is understood by itself, whatever was lost or overtaken before
//! it. What counts up with the flow (the IPv4 identification, RTP's sequence number and time) is
//! told by the number that the tunnel gives to each packet anyway.
//!
//! | left out | how it is known again |
//! | --- | --- |
//! | addresses, ports, protocol, TTL, flow label, fragment field, SSRC | from the template |
//! | lengths | from that of the packet |
//! | IPv4 header checksum | computed; it is right, or the packet is refused |
//! | checksum of TCP and UDP, where it is right or partial | computed, or carried in long packets |
//! | traffic class, acknowledgement, window, options | from the template if they are its own |
//! | TCP timestamps | three bytes of each, next to the template's |
//! | IPv4 identification, RTP sequence number and time | from the number, or carried |

mod expand;
mod pace;
mod shrink;

use crate::ip::{IPV4_HEADER, IPV6_HEADER, IpPacket, Version};
use crate::protocol::Protocol;
use crate::tcp::{self, UDP_HEADER};
use crate::wire::u16_at;

pub use expand::Expanded;
pub use pace::{Pace, Sight};
pub use shrink::Thin;

/// The fixed part of RTP's header (RFC 3550 §5.1).
const RTP_HEADER: usize = 12;
/// The longest headers that a template has: IPv6, and TCP with all the options that fit.
const MOST: usize = IPV6_HEADER + 60;
/// A packet up to this size has its checksum computed anew, which reads it twice; of a longer one
/// the two bytes are carried.
const SUMMED: usize = 256;
/// TCP options that are a timestamp and what aligns it (RFC 7323, appendix A).
const TIMESTAMP: [u8; 4] = [1, 1, 8, 10];
/// Bits that are carried of a timestamp, and how far behind the template's it may be.
const TIMESTAMP_BITS: u32 = 24;
const TIMESTAMP_BEHIND: u32 = 1 << 22;

/// What a thin packet carries; the rest is as in the template.
mod mask {
    pub(super) const CLASS: u8 = 1 << 7;
    pub(super) const ID: u8 = 1 << 6;
    pub(super) const SUM: u8 = 1 << 5;
    /// The checksum is partial.
    pub(super) const PARTIAL: u8 = 1 << 4;

    pub(super) const SEQ: u8 = 1 << 3;
    pub(super) const ACK: u8 = 1 << 2;
    pub(super) const WINDOW: u8 = 1 << 1;
    pub(super) const OPTIONS: u8 = 1;

    /// The payload begins with RTP's header, which is thinned.
    pub(super) const RTP: u8 = 1 << 3;
    pub(super) const MARK: u8 = 1 << 2;
    pub(super) const RTP_SEQ: u8 = 1 << 1;
    pub(super) const RTP_TIME: u8 = 1;
}

/// The headers of one packet of a flow, which thin packets are made and restored with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    head: [u8; MOST],
    /// Bytes of `head`.
    len: usize,
    /// Where the header ends that IP has.
    ip: usize,
    kind: Kind,
    /// Number of the packet.
    seq: u32,
    pace: Pace,
}

/// What follows the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Udp,
    /// UDP that begins with RTP's header.
    Rtp,
    /// Nothing that is looked into.
    Other,
}

impl Kind {
    /// Bits that the mask of a thin packet may have.
    fn mask(self, v4: bool) -> u8 {
        let id = if v4 { mask::ID } else { 0 };
        let sums = mask::SUM | mask::PARTIAL;
        mask::CLASS
            | id
            | match self {
                Self::Tcp => sums | mask::SEQ | mask::ACK | mask::WINDOW | mask::OPTIONS,
                Self::Udp => sums,
                Self::Rtp => sums | mask::RTP | mask::MARK | mask::RTP_SEQ | mask::RTP_TIME,
                Self::Other => 0,
            }
    }
}

impl Template {
    /// The headers of a packet with this number, of a flow that moves at this pace. `None` if such
    /// packets are never thin: fragments, and those with IPv4 options.
    pub fn of(packet: &IpPacket<'_>, seq: u32, pace: Pace) -> Option<Self> {
        let bytes = packet.bytes();
        let ip = match packet.version() {
            Version::V4 => IPV4_HEADER,
            Version::V6 => IPV6_HEADER,
        };
        let protocol = match packet.version() {
            Version::V4 => bytes[9],
            Version::V6 => bytes[6],
        };
        let after = bytes.get(ip..)?;
        let transport = match Protocol(protocol) {
            Protocol::TCP => tcp::header_len(after)?,
            Protocol::UDP if pace.rtp.is_some() => UDP_HEADER + RTP_HEADER,
            Protocol::UDP => UDP_HEADER,
            _ => 0,
        };
        Self::parse(bytes.get(..ip + transport)?, seq, pace)
    }

    /// What [`Self::headers`] gave.
    pub fn parse(headers: &[u8], seq: u32, pace: Pace) -> Option<Self> {
        let (ip, protocol) = match headers.first()? >> 4 {
            4 if headers[0] == 0x45 && headers.len() >= IPV4_HEADER => (IPV4_HEADER, headers[9]),
            6 if headers.len() >= IPV6_HEADER => (IPV6_HEADER, headers[6]),
            _ => return None,
        };
        if ip == IPV4_HEADER && u16_at(headers, 6) & 0x3fff != 0 {
            return None;
        }
        let after = &headers[ip..];
        let (kind, len) = match (Protocol(protocol), pace.rtp) {
            (Protocol::TCP, _) => (Kind::Tcp, tcp::header_len(after)?),
            (Protocol::UDP, None) => (Kind::Udp, UDP_HEADER),
            (Protocol::UDP, Some(_)) => (Kind::Rtp, UDP_HEADER + RTP_HEADER),
            _ => (Kind::Other, 0),
        };
        if after.len() != len {
            return None;
        }
        let mut head = [0; MOST];
        head.get_mut(..headers.len())?.copy_from_slice(headers);
        Some(Self {
            head,
            len: headers.len(),
            ip,
            kind,
            seq,
            pace,
        })
    }

    /// The headers that it consists of.
    pub fn headers(&self) -> &[u8] {
        &self.head[..self.len]
    }

    /// Number of the packet that it was taken from.
    pub fn seq(&self) -> u32 {
        self.seq
    }

    /// How the fields of the flow move that count up.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    fn is_v4(&self) -> bool {
        self.ip == IPV4_HEADER
    }

    fn protocol(&self) -> Protocol {
        Protocol(self.head[if self.is_v4() { 9 } else { 6 }])
    }

    /// The IPv4 identification that a packet of this number should have.
    fn id(&self, seq: u32) -> u16 {
        let passed = if self.pace.counts_id {
            seq.wrapping_sub(self.seq) as u16
        } else {
            0
        };
        u16_at(&self.head, 4).wrapping_add(passed)
    }

    /// RTP's sequence number in a packet of this number.
    fn rtp_seq(&self, seq: u32) -> u16 {
        let passed = seq.wrapping_sub(self.seq) as u16;
        u16_at(&self.head, self.ip + UDP_HEADER + 2).wrapping_add(passed)
    }

    /// RTP's time in a packet with this sequence number of RTP.
    fn rtp_time(&self, rtp_seq: u16) -> u32 {
        let at = self.ip + UDP_HEADER;
        let passed = rtp_seq.wrapping_sub(u16_at(&self.head, at + 2)) as i16;
        let stride = i64::from(self.pace.rtp.unwrap_or_default());
        crate::wire::u32_at(&self.head, at + 4).wrapping_add((i64::from(passed) * stride) as u32)
    }

    /// The template's TCP options.
    fn options(&self) -> &[u8] {
        &self.head[self.ip + tcp::TCP_HEADER..self.len]
    }
}

/// The first number from `from` on, with wrapping, that ends in these `bits` low bits.
pub fn widen(low: u32, bits: u32, from: u32) -> u32 {
    let mask = u32::MAX >> (32 - bits);
    from.wrapping_add(low.wrapping_sub(from) & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_known_by_its_low_bits() {
        for (full, from) in [(0x0100_0003, 0x00ff_fff0), (5, u32::MAX - 9), (77, 77)] {
            assert_eq!(widen(full & 0xff_ffff, 24, from), full);
        }
        assert_eq!(widen(0xff_fff0, 24, 0xfff1), 0x00ff_fff0);
    }

    /// Numbers about each at which some low bits wrap, and about both ends.
    fn near_wraps() -> impl Iterator<Item = u32> {
        let near = |bits: u32| [-2, -1, 0, 1, 2].map(|by| (1_u64 << bits).wrapping_add_signed(by));
        (0..=32).flat_map(near).map(|number| number as u32)
    }

    #[test]
    fn a_number_is_known_exactly_if_it_is_one_of_as_many_as_its_bits_tell_apart() {
        // Miri takes one of so many.
        let step = if cfg!(miri) { 97 } else { 1 };
        for bits in 1..=32 {
            for from in near_wraps().step_by(step) {
                for ahead in near_wraps().chain(0..1024) {
                    let full = from.wrapping_add(ahead);
                    let low = full & (u32::MAX >> (32 - bits));
                    let is_told = u64::from(ahead) < 1 << bits;
                    let found = widen(low, bits, from);
                    assert_eq!(found == full, is_told, "{bits} {from} {ahead}");
                }
            }
        }
    }
}
