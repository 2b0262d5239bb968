//! From thin packets to whole ones.

use super::{
    Kind, MOST, TIMESTAMP, TIMESTAMP_BEHIND, TIMESTAMP_BITS, Template, mask,
    shrink::{timestamps, v4_checksum},
    widen,
};
use crate::checksum::Progress;
use crate::tcp::{TCP_CHECKSUM, TCP_HEADER, UDP_CHECKSUM, UDP_HEADER};
use crate::wire::{put_u16, put_u32};

/// A packet that was thin.
#[derive(Clone, Copy, Debug)]
pub struct Expanded<'a> {
    head: [u8; MOST],
    len: usize,
    /// What follows the headers.
    pub payload: &'a [u8],
    /// How much of its checksum is done.
    pub checksum: Progress,
}

impl Expanded<'_> {
    /// The headers of the packet.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.len]
    }

    /// Bytes of the packet.
    pub fn packet_len(&self) -> usize {
        self.len + self.payload.len()
    }
}

/// Reads the fields of a thin packet.
struct Fields<'a> {
    mask: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(field)
    }

    /// Writes a field into `place` if it is carried.
    fn fill(&mut self, bit: u8, place: &mut [u8]) -> Option<()> {
        if self.mask & bit != 0 {
            place.copy_from_slice(self.take(place.len())?);
        }
        Some(())
    }
}

impl Template {
    /// The packet with this number that `thin` stands for; `None` if it stands for none.
    pub fn expand<'a>(&self, thin: &'a [u8], seq: u32) -> Option<Expanded<'a>> {
        let (&mask, rest) = thin.split_first()?;
        if mask & !self.kind.mask(self.is_v4()) != 0 {
            return None;
        }
        let mut fields = Fields { mask, rest };
        let (mut head, mut len) = (self.head, self.len);
        self.fill_class(&mut fields, &mut head)?;
        if self.is_v4() {
            put_u16(&mut head, 4, self.id(seq));
            fields.fill(mask::ID, &mut head[4..6])?;
        }
        let sum_at = match self.kind {
            Kind::Tcp => TCP_CHECKSUM,
            Kind::Udp | Kind::Rtp => UDP_CHECKSUM,
            Kind::Other => 0,
        };
        let mut sum = [0; 2];
        fields.fill(mask::SUM, &mut sum)?;
        match self.kind {
            Kind::Tcp => len = self.fill_tcp(&mut fields, &mut head)?,
            Kind::Rtp if mask & mask::RTP == 0 => len -= super::RTP_HEADER,
            Kind::Rtp => self.fill_rtp(&mut fields, &mut head, seq)?,
            Kind::Udp | Kind::Other => {}
        }
        let payload = fields.rest;
        self.fill_lengths(&mut head, len + payload.len())?;
        let checksum = if mask & mask::PARTIAL != 0 {
            Progress::Partial
        } else {
            Progress::Whole
        };
        if self.kind != Kind::Other {
            let at = self.ip + sum_at;
            put_u16(&mut head, at, 0);
            let value = match checksum {
                _ if mask & mask::SUM != 0 => u16::from_be_bytes(sum),
                Progress::Partial => self.pseudo(len - self.ip + payload.len()).fold(),
                Progress::Whole => self.sum(&[&head[self.ip..len], payload], 0),
            };
            put_u16(&mut head, at, value);
        }
        Some(Expanded {
            head,
            len,
            payload,
            checksum,
        })
    }

    fn fill_class(&self, fields: &mut Fields<'_>, head: &mut [u8; MOST]) -> Option<()> {
        if self.is_v4() {
            return fields.fill(mask::CLASS, &mut head[1..2]);
        }
        let mut class = [head[0] << 4 | head[1] >> 4];
        fields.fill(mask::CLASS, &mut class)?;
        head[0] = 0x60 | class[0] >> 4;
        head[1] = class[0] << 4 | head[1] & 0xf;
        Some(())
    }

    /// Writes the lengths, and the checksum of an IPv4 header. `None` for a packet that cannot be.
    fn fill_lengths(&self, head: &mut [u8; MOST], len: usize) -> Option<()> {
        let after = len - self.ip;
        if self.kind == Kind::Udp || self.kind == Kind::Rtp {
            put_u16(head, self.ip + 4, u16::try_from(after).ok()?);
        }
        if self.is_v4() {
            put_u16(head, 2, u16::try_from(len).ok()?);
            let sum = v4_checksum(head.first_chunk()?);
            put_u16(head, 10, sum);
        } else {
            put_u16(head, 4, u16::try_from(after).ok()?);
        }
        Some(())
    }

    /// Writes the TCP header, and gives where it ends.
    fn fill_tcp(&self, fields: &mut Fields<'_>, head: &mut [u8; MOST]) -> Option<usize> {
        let (tcp, ours) = (&mut head[self.ip..], self.options());
        tcp[13] = fields.take(1)?[0];
        fields.fill(mask::SEQ, &mut tcp[4..8])?;
        fields.fill(mask::ACK, &mut tcp[8..12])?;
        fields.fill(mask::WINDOW, &mut tcp[14..16])?;
        if fields.mask & mask::OPTIONS != 0 {
            let words = usize::from(fields.take(1)?[0]);
            let options = fields.take(4 * words)?;
            let place = tcp.get_mut(TCP_HEADER..TCP_HEADER + options.len())?;
            place.copy_from_slice(options);
            // At most ten words fit into `head` behind any IP header, and fifteen in all.
            if words > 10 {
                return None;
            }
            tcp[12] = (5 + words as u8) << 4 | tcp[12] & 0xf;
            return Some(self.ip + TCP_HEADER + options.len());
        }
        if let Some(ours) = timestamps(ours) {
            let options = &mut tcp[TCP_HEADER..];
            for (index, ours) in ours.into_iter().enumerate() {
                let [a, b, c] = *fields.take(3)?.first_chunk()?;
                let low = u32::from_be_bytes([0, a, b, c]);
                let value = widen(low, TIMESTAMP_BITS, ours.wrapping_sub(TIMESTAMP_BEHIND));
                put_u32(options, TIMESTAMP.len() + 4 * index, value);
            }
        }
        Some(self.len)
    }

    fn fill_rtp(&self, fields: &mut Fields<'_>, head: &mut [u8; MOST], seq: u32) -> Option<()> {
        let rtp = &mut head[self.ip + UDP_HEADER..];
        if fields.mask & mask::MARK != 0 {
            rtp[1] ^= 0x80;
        }
        let mut number = self.rtp_seq(seq).to_be_bytes();
        fields.fill(mask::RTP_SEQ, &mut number)?;
        rtp[2..4].copy_from_slice(&number);
        put_u32(rtp, 4, self.rtp_time(u16::from_be_bytes(number)));
        fields.fill(mask::RTP_TIME, &mut rtp[4..8])
    }
}
