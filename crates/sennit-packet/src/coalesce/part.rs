//! What a single packet means to the coalescer.

use crate::checksum::Progress;
use crate::flow::FlowKey;
use crate::gso::Tier;
use crate::ip::{IPV4_HEADER, IPV6_HEADER, IpPacket, Version};
use crate::protocol::Protocol;
use crate::tcp::{self, TcpFlags, UDP_CHECKSUM, UDP_HEADER};
use crate::wire::{u16_at, u32_at};

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// May be joined with its neighbours.
    Part(Part),
    /// Passes as it is; what follows it in this flow must stay behind it.
    Barrier(FlowKey),
    /// Passes as it is, of an unknown flow.
    Fragment,
    /// Passes as it is, of no flow that is ever joined.
    Other,
}

/// A packet with plain headers and some payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) flow: FlowKey,
    pub(super) version: Version,
    /// IP and transport headers.
    pub(super) header_len: usize,
    pub(super) payload_len: usize,
    pub(super) progress: Progress,
    /// Zero for UDP.
    pub(super) sequence: u32,
    /// None for UDP.
    pub(super) flags: TcpFlags,
}

impl Kind {
    pub(super) fn of(packet: &[u8], progress: Progress, tier: Tier) -> Self {
        let Ok(packet) = IpPacket::parse(packet) else {
            return Self::Other;
        };
        if packet.is_fragment() {
            return Self::Fragment;
        }
        let least = match packet.protocol() {
            Protocol::TCP => Tier::Tso,
            Protocol::UDP => Tier::TsoUso,
            _ => return Self::Other,
        };
        if tier < least {
            return Self::Other;
        }
        let flow = FlowKey::of(&packet);
        match Part::of(&packet, flow) {
            Some(part) => Self::Part(Part { progress, ..part }),
            None => Self::Barrier(flow),
        }
    }
}

impl Part {
    fn of(packet: &IpPacket<'_>, flow: FlowKey) -> Option<Self> {
        let plain = match packet.version() {
            Version::V4 => IPV4_HEADER,
            Version::V6 => IPV6_HEADER,
        };
        if packet.transport_offset() != plain {
            return None;
        }
        let part = if packet.protocol() == Protocol::TCP {
            Self::of_tcp(packet, flow)?
        } else {
            Self::of_udp(packet, flow)?
        };
        (part.payload_len > 0).then_some(part)
    }

    /// Flags that mean something for the connection beyond its data forbid joining. CWR would
    /// leave with the first segment only, and so would say something else.
    fn of_tcp(packet: &IpPacket<'_>, flow: FlowKey) -> Option<Self> {
        let segment = packet.tcp_segment()?;
        let flags = TcpFlags(segment[13]);
        let harmless = TcpFlags::PSH | TcpFlags::FIN | TcpFlags::ECE;
        if flags & !harmless != TcpFlags::ACK {
            return None;
        }
        let header_len = packet.transport_offset() + tcp::header_len(segment)?;
        Some(Self {
            sequence: u32_at(segment, 4),
            flags,
            ..Self::new(packet, flow, header_len)
        })
    }

    /// A datagram without checksum must not be given one, and one that is shorter than its packet
    /// has a tail that joining would lose.
    fn of_udp(packet: &IpPacket<'_>, flow: FlowKey) -> Option<Self> {
        let datagram = packet.transport();
        let whole = datagram.len() >= UDP_HEADER
            && usize::from(u16_at(datagram, 4)) == datagram.len()
            && u16_at(datagram, UDP_CHECKSUM) != 0;
        whole.then(|| Self::new(packet, flow, packet.transport_offset() + UDP_HEADER))
    }

    fn new(packet: &IpPacket<'_>, flow: FlowKey, header_len: usize) -> Self {
        Self {
            flow,
            version: packet.version(),
            header_len,
            payload_len: packet.total_len() - header_len,
            progress: Progress::Whole,
            sequence: 0,
            flags: TcpFlags::default(),
        }
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.flow.protocol == Protocol::TCP
    }

    /// Length of the IP header, which has no options or extensions.
    pub(super) fn transport_offset(&self) -> usize {
        match self.version {
            Version::V4 => IPV4_HEADER,
            Version::V6 => IPV6_HEADER,
        }
    }
}
