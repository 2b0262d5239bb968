//! How fields of a flow count up, found from two of its packets.

use super::{Kind, RTP_HEADER, Template};
use crate::ip::{IpPacket, Version};
use crate::protocol::Protocol;
use crate::tcp::UDP_HEADER;
use crate::wire::{u16_at, u32_at};

/// How fields move from one packet of a flow to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The IPv4 identification goes up by one with each.
    pub counts_id: bool,
    /// UDP carries RTP, whose time goes up by this much with each.
    pub rtp: Option<u16>,
}

/// What is remembered of an earlier packet of a flow, to find its pace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    seq: u32,
    id: u16,
    rtp: Option<Rtp>,
}

#[derive(Clone, Copy, Debug)]
struct Rtp {
    seq: u16,
    time: u32,
    source: u32,
}

impl Sight {
    /// Of a packet with this number.
    pub fn of(packet: &IpPacket<'_>, seq: u32) -> Self {
        let id = match packet.version() {
            Version::V4 => u16_at(packet.bytes(), 4),
            Version::V6 => 0,
        };
        let is_udp = packet.protocol() == Protocol::UDP;
        Self {
            seq,
            id,
            rtp: packet
                .transport()
                .get(UDP_HEADER..)
                .filter(|_| is_udp)
                .and_then(rtp),
        }
    }

    /// The pace of the flow that this packet and `later` are of.
    pub fn pace(&self, later: &Self) -> Pace {
        let passed = later.seq.wrapping_sub(self.seq) as u16;
        let counts_id = passed != 0 && later.id.wrapping_sub(self.id) == passed;
        let stride = |(a, b): (Rtp, Rtp)| {
            let steps = u32::from(b.seq.wrapping_sub(a.seq));
            let time = b.time.wrapping_sub(a.time);
            let is_rtp = a.source == b.source && (1..1000).contains(&steps);
            let stride = time
                .checked_div(steps)
                .filter(|stride| stride * steps == time);
            stride
                .filter(|_| is_rtp)
                .and_then(|stride| u16::try_from(stride).ok())
        };
        Pace {
            counts_id,
            rtp: self.rtp.zip(later.rtp).and_then(stride),
        }
    }
}

/// What could be RTP's header: version 2 (RFC 3550 §5.1).
fn rtp(payload: &[u8]) -> Option<Rtp> {
    let header = payload.first_chunk::<RTP_HEADER>()?;
    (header[0] >> 6 == 2).then(|| Rtp {
        seq: u16_at(header, 2),
        time: u32_at(header, 4),
        source: u32_at(header, 8),
    })
}

impl Template {
    /// Whether thin packets of it leave RTP's header out.
    pub fn is_rtp(&self) -> bool {
        self.kind == Kind::Rtp
    }
}
