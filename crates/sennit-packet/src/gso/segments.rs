//! Cutting what one read from a TUN device brought into stand-alone packets.

use super::VirtioNetHdr;
use crate::checksum::{Progress, Sum};
use crate::ip::{IPV6_HEADER, IpPacket, PacketError, Version};
use crate::protocol::Protocol;
use crate::tcp::{self, TCP_CHECKSUM, TcpFlags, UDP_CHECKSUM, UDP_HEADER};
use crate::wire::{put_u16, put_u32, u16_at, u32_at};

/// IP and transport headers of a super-packet, at most; kernels make none with many extension
/// headers.
const LONGEST_HEADER: usize = 256;

/// Why a packet read from a TUN device makes no sense with the header before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GsoError {
    #[error(transparent)]
    Packet(#[from] PacketError),
    #[error("unknown segmentation type {0:#04x}")]
    UnknownType(u8),
    #[error("super-packet with a segment size of zero")]
    NoSegmentSize,
    #[error("super-packet is not the whole TCP or UDP packet that its type says")]
    NotSegmentable,
    #[error("checksum to complete lies outside the packet or the transport header")]
    BadChecksumField,
}

/// The stand-alone IP packets that one read from a TUN device stands for.
///
/// A single packet is one segment, with its checksum completed if the kernel left that to do. Of
/// a super-packet each segment gets its own headers: lengths, IPv4 identification, TCP sequence
/// number, FIN and PSH on the last and CWR on the first only, and right checksums.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    packet: IpPacket<'a>,
    task: Task,
}

#[derive(Clone, Debug)]
enum Task {
    Copy,
    Complete { start: usize, field: usize },
    Split(Split),
}

#[derive(Clone, Debug)]
struct Split {
    transport: Transport,
    /// IP and transport headers.
    header_len: usize,
    segment_size: usize,
    /// The pseudo header but for its length.
    pseudo: Sum,
    /// Of the checksum that was read, and of those that are written.
    read: Progress,
    written: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

impl<'a> Segments<'a> {
    /// Parses what was read behind the header, and checks one against the other.
    pub fn new(header: &VirtioNetHdr, packet: &'a [u8]) -> Result<Self, GsoError> {
        Self::of(header, IpPacket::parse(packet)?)
    }

    /// Checks the header against the packet, which is all behind the header that was read.
    pub fn of(header: &VirtioNetHdr, packet: IpPacket<'a>) -> Result<Self, GsoError> {
        let (transport, version) = match header.gso_type & !VirtioNetHdr::GSO_ECN {
            VirtioNetHdr::GSO_NONE => {
                return Ok(Self {
                    packet,
                    task: Task::single(header, &packet)?,
                });
            }
            VirtioNetHdr::GSO_TCPV4 => (Transport::Tcp, Version::V4),
            VirtioNetHdr::GSO_TCPV6 => (Transport::Tcp, Version::V6),
            VirtioNetHdr::GSO_UDP_L4 => (Transport::Udp, packet.version()),
            _ => return Err(GsoError::UnknownType(header.gso_type)),
        };
        if packet.version() != version {
            return Err(GsoError::NotSegmentable);
        }
        let task = Task::Split(Split::new(header, &packet, transport)?);
        Ok(Self { packet, task })
    }

    /// From now on the segments of a super-packet get partial checksums, if it has one; says
    /// whether they do.
    pub fn leave_checksums(&mut self) -> Progress {
        let Task::Split(split) = &mut self.task else {
            return Progress::Whole;
        };
        split.written = split.read;
        split.written
    }

    /// The packet as it was read. Addresses, ports and class are those of every segment.
    pub fn packet(&self) -> &IpPacket<'a> {
        &self.packet
    }

    /// The packet itself, if nothing has to be done to it.
    pub fn as_is(&self) -> Option<&'a [u8]> {
        matches!(self.task, Task::Copy).then(|| self.packet.bytes())
    }

    /// How many segments there are, at least one.
    pub fn count(&self) -> usize {
        match &self.task {
            Task::Copy | Task::Complete { .. } => 1,
            Task::Split(split) => split.count(&self.packet),
        }
    }

    /// Length of segment `index` in bytes; the first is the longest. `None` past the last.
    pub fn segment_len(&self, index: usize) -> Option<usize> {
        if index >= self.count() {
            return None;
        }
        match &self.task {
            Task::Copy | Task::Complete { .. } => Some(self.packet.total_len()),
            Task::Split(split) => Some(split.header_len + split.payload(&self.packet, index).len()),
        }
    }

    /// Writes segment `index` to the front of `out` and returns its length. `None`, and `out` left
    /// as it was, past the last segment or if `out` is shorter than [`Self::segment_len`].
    pub fn write(&self, index: usize, out: &mut [u8]) -> Option<usize> {
        let length = self.segment_len(index)?;
        let mut rest = out.get_mut(..length)?;
        self.append(index, |piece| {
            let (place, after) = std::mem::take(&mut rest).split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = after;
        });
        Some(length)
    }

    /// Gives segment `index` to `sink`, piece by piece, for buffers that grow. `None`, and nothing
    /// given, past the last segment.
    pub fn append(&self, index: usize, mut sink: impl FnMut(&[u8])) -> Option<()> {
        if index >= self.count() {
            return None;
        }
        let whole = self.packet.bytes();
        match &self.task {
            Task::Copy => sink(whole),
            &Task::Complete { start, field } => {
                let sum = Sum::of(&whole[start..]);
                let is_udp = field - start == UDP_CHECKSUM;
                let checksum = if is_udp {
                    udp_checksum(sum)
                } else {
                    sum.checksum()
                };
                sink(&whole[..field]);
                sink(&checksum.to_be_bytes());
                sink(&whole[field + 2..]);
            }
            Task::Split(split) => {
                let mut header = [0; LONGEST_HEADER];
                let header = &mut header[..split.header_len];
                split.write_header(&self.packet, index, header);
                sink(header);
                sink(split.payload(&self.packet, index));
            }
        }
        Some(())
    }
}

impl Task {
    fn single(header: &VirtioNetHdr, packet: &IpPacket<'_>) -> Result<Self, GsoError> {
        if header.flags & VirtioNetHdr::NEEDS_CSUM == 0 {
            return Ok(Self::Copy);
        }
        let start = usize::from(header.csum_start);
        let field = start + usize::from(header.csum_offset);
        if field + 2 > packet.total_len() {
            return Err(GsoError::BadChecksumField);
        }
        Ok(Self::Complete { start, field })
    }
}

/// RFC 768: zero is sent as all ones, because zero says that there is no checksum.
fn udp_checksum(sum: Sum) -> u16 {
    match sum.checksum() {
        0 => 0xffff,
        checksum => checksum,
    }
}

impl Split {
    fn new(
        header: &VirtioNetHdr,
        packet: &IpPacket<'_>,
        transport: Transport,
    ) -> Result<Self, GsoError> {
        if header.gso_size == 0 {
            return Err(GsoError::NoSegmentSize);
        }
        if packet.is_fragment() || !packet.has_final_destination() {
            return Err(GsoError::NotSegmentable);
        }
        let transport_len = transport
            .header_len(packet)
            .ok_or(GsoError::NotSegmentable)?;
        let header_len = packet.transport_offset() + transport_len;
        if header_len > LONGEST_HEADER {
            return Err(GsoError::NotSegmentable);
        }
        let needs_checksum = header.flags & VirtioNetHdr::NEEDS_CSUM != 0;
        if needs_checksum && usize::from(header.csum_start) != packet.transport_offset() {
            return Err(GsoError::BadChecksumField);
        }
        Ok(Self {
            transport,
            header_len,
            segment_size: usize::from(header.gso_size),
            pseudo: Sum::pseudo_header(packet.address_bytes(), packet.protocol(), 0),
            read: if needs_checksum {
                Progress::Partial
            } else {
                Progress::Whole
            },
            written: Progress::Whole,
        })
    }

    /// A super-packet without payload is still one segment.
    fn count(&self, packet: &IpPacket<'_>) -> usize {
        let payload = packet.total_len() - self.header_len;
        payload.div_ceil(self.segment_size).max(1)
    }

    fn payload<'a>(&self, packet: &IpPacket<'a>, index: usize) -> &'a [u8] {
        let payload = &packet.bytes()[self.header_len..];
        let start = index * self.segment_size;
        &payload[start..payload.len().min(start + self.segment_size)]
    }

    /// Makes the IP and transport headers of segment `index`.
    fn write_header(&self, packet: &IpPacket<'_>, index: usize, out: &mut [u8]) {
        let body = self.payload(packet, index);
        out.copy_from_slice(&packet.bytes()[..self.header_len]);

        let total = out.len() + body.len();
        let (ip, transport) = out.split_at_mut(packet.transport_offset());
        write_ip(packet.version(), index, total, ip);
        let transport_len = low_u16(total - ip.len());
        match self.transport {
            Transport::Tcp => {
                let is_last = index + 1 == self.count(packet);
                write_tcp(transport, index * self.segment_size, (index == 0, is_last));
            }
            Transport::Udp => put_u16(transport, 4, transport_len),
        }
        let field = self.transport.checksum_field();
        put_u16(transport, field, 0);
        let pseudo = self.pseudo + Sum::from(transport_len);
        let checksum = match (self.written, self.transport) {
            (Progress::Partial, _) => pseudo.fold(),
            (Progress::Whole, Transport::Tcp) => sum_up(pseudo, transport, body).checksum(),
            (Progress::Whole, Transport::Udp) => udp_checksum(sum_up(pseudo, transport, body)),
        };
        put_u16(transport, field, checksum);
    }
}

fn sum_up(pseudo: Sum, header: &[u8], payload: &[u8]) -> Sum {
    pseudo + Sum::of(header) + Sum::of(payload)
}

impl Transport {
    fn checksum_field(self) -> usize {
        match self {
            Self::Tcp => TCP_CHECKSUM,
            Self::Udp => UDP_CHECKSUM,
        }
    }

    fn header_len(self, packet: &IpPacket<'_>) -> Option<usize> {
        let segment = packet.transport();
        match self {
            Self::Tcp => tcp::header_len(packet.tcp_segment()?),
            Self::Udp => (packet.protocol() == Protocol::UDP && segment.len() >= UDP_HEADER)
                .then_some(UDP_HEADER),
        }
    }
}

fn write_ip(version: Version, index: usize, total: usize, ip: &mut [u8]) {
    match version {
        Version::V4 => {
            put_u16(ip, 2, low_u16(total));
            let id = u16_at(ip, 4).wrapping_add(low_u16(index));
            put_u16(ip, 4, id);
            put_u16(ip, 10, 0);
            let checksum = Sum::of(ip).checksum();
            put_u16(ip, 10, checksum);
        }
        Version::V6 => put_u16(ip, 4, low_u16(total - IPV6_HEADER)),
    }
}

/// Moves the header of the whole to payload byte `offset`.
fn write_tcp(header: &mut [u8], offset: usize, (is_first, is_last): (bool, bool)) {
    let sequence = u32_at(header, 4).wrapping_add(u32::from(low_u16(offset)));
    put_u32(header, 4, sequence);
    let mut flags = TcpFlags(header[13]);
    if !is_first {
        flags = flags & !TcpFlags::CWR;
    }
    if !is_last {
        flags = flags & !(TcpFlags::FIN | TcpFlags::PSH);
    }
    header[13] = flags.0;
}

/// Lengths and counts within one parsed packet, whose own length fields have 16 bits.
fn low_u16(value: usize) -> u16 {
    u16::try_from(value).expect("no part of an IP packet exceeds its 16-bit length")
}
