//! A run of packets of one flow that may leave as one super-packet.

use super::MAX_SEGMENTS;
use super::part::Part;
use crate::checksum::Progress;
use crate::ip::{IpPacket, Version};
use crate::tcp::TcpFlags;
use crate::wire::u16_at;

/// The longest packet that the length fields of both IP versions and UDP can express.
const MAX_PACKET: usize = 65_535;

/// The TCP flags in which packets of a train may differ.
const LOOSE: TcpFlags = TcpFlags(TcpFlags::PSH.0 | TcpFlags::FIN.0);

#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    /// The first packet: its headers speak for all.
    pub(super) part: Part,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: usize,
    /// Payload bytes of all packets.
    pub(super) payload_len: usize,
    /// What all packets have, PSH if any has it, and FIN if the last has it, which alone may.
    pub(super) flags: TcpFlags,
    /// The last packet is shorter than the others.
    is_short: bool,
    /// The checksums of the first packet hold; unknown until a second one comes.
    is_verified: bool,
}

impl Train {
    pub(super) fn new(index: u32, part: Part) -> Self {
        Self {
            part,
            first: index,
            last: index,
            count: 1,
            payload_len: part.payload_len,
            flags: part.flags,
            is_short: false,
            is_verified: false,
        }
    }

    /// Whether no packet can follow.
    pub(super) fn is_complete(&self) -> bool {
        self.is_short || self.flags.intersects(TcpFlags::FIN) || self.count == MAX_SEGMENTS
    }

    /// Whether a packet continues this train, whose first packet is given too.
    pub(super) fn accepts(&mut self, first: &[u8], part: &Part, packet: &[u8]) -> bool {
        self.has_room_for(part)
            && self.is_continued_by(part)
            && self.same_ip_header(first, packet)
            && (!part.is_tcp() || self.same_tcp_header(first, packet))
            && self.verify(first)
            && checksums_hold(packet, part.progress)
    }

    pub(super) fn couple(&mut self, index: u32, part: &Part) {
        self.last = index;
        self.count += 1;
        self.payload_len += part.payload_len;
        self.flags = part.flags | (self.flags & TcpFlags::PSH);
        self.is_short = part.payload_len < self.part.payload_len;
    }

    fn has_room_for(&self, part: &Part) -> bool {
        part.payload_len <= self.part.payload_len
            && self.part.header_len + self.payload_len + part.payload_len <= MAX_PACKET
    }

    fn is_continued_by(&self, part: &Part) -> bool {
        let sent = u32::try_from(self.payload_len).expect("has_room_for bounds the payload");
        part.header_len == self.part.header_len
            && (!part.is_tcp() || part.sequence == self.part.sequence.wrapping_add(sent))
    }

    /// All but lengths and checksum. The identification counts up where it means anything.
    fn same_ip_header(&self, first: &[u8], packet: &[u8]) -> bool {
        match self.part.version {
            Version::V4 => {
                let count = u16::try_from(self.count).expect("count is at most MAX_SEGMENTS");
                let counts_up = u16_at(packet, 4) == u16_at(first, 4).wrapping_add(count);
                let dont_fragment = first[6] & 0x40 != 0;
                first[..2] == packet[..2]
                    && first[6..9] == packet[6..9]
                    && (dont_fragment || counts_up)
            }
            Version::V6 => first[..4] == packet[..4] && first[7] == packet[7],
        }
    }

    /// Acknowledgement, reserved bits, flags, window, urgent pointer and options.
    fn same_tcp_header(&self, first: &[u8], packet: &[u8]) -> bool {
        let header = self.part.transport_offset()..self.part.header_len;
        let (first, packet) = (&first[header.clone()], &packet[header]);
        let flags = TcpFlags(first[13]) ^ TcpFlags(packet[13]);
        first[8..13] == packet[8..13]
            && flags & !LOOSE == TcpFlags::default()
            && first[14..16] == packet[14..16]
            && first[18..] == packet[18..]
    }

    fn verify(&mut self, first: &[u8]) -> bool {
        self.is_verified = self.is_verified || checksums_hold(first, self.part.progress);
        self.is_verified
    }
}

fn checksums_hold(packet: &[u8], progress: Progress) -> bool {
    IpPacket::parse(packet).is_ok_and(|packet| {
        packet.header_checksum_holds()
            && (progress == Progress::Partial || packet.transport_checksum_holds())
    })
}
