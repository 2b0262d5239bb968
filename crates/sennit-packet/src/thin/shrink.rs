//! From whole packets to thin ones.

use super::{
    Kind, MOST, RTP_HEADER, SUMMED, TIMESTAMP, TIMESTAMP_BEHIND, TIMESTAMP_BITS, Template, mask,
    widen,
};
use crate::checksum::{Progress, Sum};
use crate::ip::IPV4_HEADER;
use crate::protocol::Protocol;
use crate::tcp::{self, TCP_CHECKSUM, TCP_HEADER, UDP_CHECKSUM, UDP_HEADER};
use crate::wire::{u16_at, u32_at};

/// What stands for the first bytes of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Thin {
    bytes: [u8; MOST],
    len: usize,
    /// Bytes of the packet that it stands for, from the first; the rest follows as it is.
    pub replaces: usize,
    /// The flow does not move as the template says, so a new template would save more.
    pub is_stale: bool,
}

impl Thin {
    /// Mask and fields.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bit: u8, field: &[u8]) {
        self.bytes[0] |= bit;
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
    }
}

impl Template {
    /// The thin form of a packet with this number; `None` if it is not of the template's flow, or
    /// could not be restored from it exactly.
    pub fn shrink(&self, packet: &[u8], seq: u32, checksum: Progress) -> Option<Thin> {
        let mut thin = Thin {
            bytes: [0; MOST],
            len: 1,
            replaces: self.ip,
            is_stale: false,
        };
        if packet.len() < self.len.min(self.ip + UDP_HEADER).max(self.ip) {
            return None;
        }
        if self.is_v4() {
            self.shrink_v4(packet, seq, &mut thin)?;
        } else {
            self.shrink_v6(packet, &mut thin)?;
        }
        match self.kind {
            Kind::Tcp => self.shrink_tcp(packet, checksum, &mut thin)?,
            Kind::Udp | Kind::Rtp => self.shrink_udp(packet, seq, checksum, &mut thin)?,
            Kind::Other if checksum == Progress::Whole => {}
            Kind::Other => return None,
        }
        Some(thin)
    }

    fn shrink_v4(&self, packet: &[u8], seq: u32, thin: &mut Thin) -> Option<()> {
        let (head, ours) = (packet.first_chunk::<IPV4_HEADER>()?, &self.head);
        let is_same = head[0] == ours[0]
            && head[6..10] == ours[6..10]
            && head[12..] == ours[12..IPV4_HEADER]
            && usize::from(u16_at(head, 2)) == packet.len()
            && u16_at(head, 10) == v4_checksum(head);
        if !is_same {
            return None;
        }
        if head[1] != ours[1] {
            thin.put(mask::CLASS, &head[1..2]);
        }
        if u16_at(head, 4) != self.id(seq) {
            thin.put(mask::ID, &head[4..6]);
            thin.is_stale = true;
        }
        Some(())
    }

    fn shrink_v6(&self, packet: &[u8], thin: &mut Thin) -> Option<()> {
        let ours = &self.head;
        let label = |head: &[u8]| u32_at(head, 0) & 0xf00f_ffff;
        let is_same = label(packet) == label(ours)
            && packet[6..self.ip] == ours[6..self.ip]
            && usize::from(u16_at(packet, 4)) == packet.len() - self.ip;
        let class = |head: &[u8]| (u16_at(head, 0) >> 4) as u8;
        if class(packet) != class(ours) {
            thin.put(mask::CLASS, &[class(packet)]);
        }
        is_same.then_some(())
    }

    fn shrink_tcp(&self, packet: &[u8], checksum: Progress, thin: &mut Thin) -> Option<()> {
        let (segment, ours) = (&packet[self.ip..], &self.head[self.ip..]);
        let header = tcp::header_len(segment)?;
        let is_same = segment[..4] == ours[..4]
            && segment[12] & 0xf == ours[12] & 0xf
            && segment[18..20] == ours[18..20];
        if !is_same {
            return None;
        }
        self.put_sum(packet, TCP_CHECKSUM, checksum, thin);
        thin.put(0, &segment[13..14]);
        for (bit, field) in [
            (mask::SEQ, 4..8),
            (mask::ACK, 8..12),
            (mask::WINDOW, 14..16),
        ] {
            if segment[field.clone()] != ours[field.clone()] {
                thin.put(bit, &segment[field]);
            }
        }
        self.put_options(&segment[TCP_HEADER..header], thin);
        thin.replaces += header;
        Some(())
    }

    fn put_options(&self, options: &[u8], thin: &mut Thin) {
        let ours = self.options();
        if let (Some(theirs), Some(ours)) = (timestamps(options), timestamps(ours)) {
            let is_near = |(value, ours): (&u32, &u32)| {
                let from = ours.wrapping_sub(TIMESTAMP_BEHIND);
                widen(*value, TIMESTAMP_BITS, from) == *value
            };
            if theirs.iter().zip(&ours).all(is_near) {
                for value in theirs {
                    thin.put(0, &value.to_be_bytes()[1..]);
                }
                return;
            }
            thin.is_stale = true;
        } else if options == ours {
            return;
        }
        thin.put(mask::OPTIONS, &[(options.len() / 4) as u8]);
        thin.put(0, options);
    }

    fn shrink_udp(
        &self,
        packet: &[u8],
        seq: u32,
        checksum: Progress,
        thin: &mut Thin,
    ) -> Option<()> {
        let (datagram, ours) = (&packet[self.ip..], &self.head[self.ip..]);
        if datagram[..4] != ours[..4] || usize::from(u16_at(datagram, 4)) != datagram.len() {
            return None;
        }
        self.put_sum(packet, UDP_CHECKSUM, checksum, thin);
        thin.replaces += UDP_HEADER;
        if self.kind == Kind::Rtp {
            thin.is_stale |= !self.shrink_rtp(&datagram[UDP_HEADER..], seq, thin);
        }
        Some(())
    }

    /// Leaves RTP's header out, if it is one of the same stream; true if it is as foreseen.
    fn shrink_rtp(&self, payload: &[u8], seq: u32, thin: &mut Thin) -> bool {
        let ours = &self.head[self.ip + UDP_HEADER..];
        let Some(header) = payload.first_chunk::<RTP_HEADER>() else {
            return false;
        };
        let mark = header[1] ^ ours[1];
        if header[0] != ours[0] || mark & 0x7f != 0 || header[8..] != ours[8..RTP_HEADER] {
            return false;
        }
        thin.put(mask::RTP, &[]);
        if mark != 0 {
            thin.put(mask::MARK, &[]);
        }
        let number = u16_at(header, 2);
        let (is_next, is_due) = (
            number == self.rtp_seq(seq),
            u32_at(header, 4) == self.rtp_time(number),
        );
        if !is_next {
            thin.put(mask::RTP_SEQ, &header[2..4]);
        }
        if !is_due {
            thin.put(mask::RTP_TIME, &header[4..8]);
        }
        thin.replaces += RTP_HEADER;
        is_next && is_due
    }

    /// Carries the checksum, unless whoever restores the packet finds the same one.
    fn put_sum(&self, packet: &[u8], at: usize, checksum: Progress, thin: &mut Thin) {
        let at = self.ip + at;
        let field = u16_at(packet, at);
        let is_known = match checksum {
            Progress::Partial => {
                thin.put(mask::PARTIAL, &[]);
                field == self.pseudo(packet.len() - self.ip).fold()
            }
            Progress::Whole => {
                packet.len() <= SUMMED && field == self.sum(&[&packet[self.ip..]], field)
            }
        };
        if !is_known {
            thin.put(mask::SUM, &packet[at..at + 2]);
        }
    }

    /// The sum of the pseudo header of a packet whose IP payload is so long.
    pub(super) fn pseudo(&self, len: usize) -> Sum {
        let addresses = if self.is_v4() { 12..20 } else { 8..40 };
        Sum::pseudo_header(&self.head[addresses], self.protocol(), len)
    }

    /// What the checksum of TCP or UDP should be in an IP payload of these pieces, the first of
    /// which has an even length and holds `present` where the checksum goes.
    pub(super) fn sum(&self, pieces: &[&[u8]], present: u16) -> u16 {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let total = pieces
            .iter()
            .fold(self.pseudo(len), |sum, piece| sum + Sum::of(piece));
        match (total + Sum::from(!present)).checksum() {
            // RFC 768: zero says that there is none.
            0 if self.protocol() == Protocol::UDP => 0xffff,
            sum => sum,
        }
    }
}

/// Both values of a timestamp option that has its usual form.
pub(super) fn timestamps(options: &[u8]) -> Option<[u32; 2]> {
    let options: &[u8; 12] = options.try_into().ok()?;
    (options[..4] == TIMESTAMP).then(|| [u32_at(options, 4), u32_at(options, 8)])
}

/// What the checksum of an IPv4 header should be.
pub(super) fn v4_checksum(head: &[u8; IPV4_HEADER]) -> u16 {
    (Sum::of(&head[..10]) + Sum::of(&head[12..])).checksum()
}
