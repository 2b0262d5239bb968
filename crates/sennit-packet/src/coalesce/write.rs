//! The coalescer's output: what to hand to the kernel.

use std::slice;

use super::part::Part;
use super::train::Train;
use super::{END, Group, position};
use crate::checksum::{Progress, Sum};
use crate::gso::VirtioNetHdr;
use crate::ip::{IPV6_HEADER, IpPacket, Version};
use crate::tcp::{TCP_CHECKSUM, UDP_CHECKSUM};
use crate::wire::put_u16;

/// The longest headers of a joined packet: IPv6 without extensions, TCP with all its options.
const MAX_HEAD: usize = 40 + 60;

/// The writes of a batch, in order.
#[derive(Debug)]
pub struct Writes<'a, B> {
    groups: slice::Iter<'a, Group>,
    links: &'a [u32],
    batch: &'a [B],
}

/// One write to a TUN device: [`Self::header`], [`Self::head`] and all [`Self::payloads`], one
/// after the other.
#[derive(Debug)]
pub struct Write<'a, B> {
    header: VirtioNetHdr,
    head: [u8; MAX_HEAD],
    head_len: usize,
    packets: usize,
    payload_len: usize,
    payloads: Payloads<'a, B>,
}

/// Slices of the batch.
#[derive(Debug)]
pub struct Payloads<'a, B> {
    next: u32,
    header_len: usize,
    links: &'a [u32],
    batch: &'a [B],
}

impl<'a, B: AsRef<[u8]>> Writes<'a, B> {
    pub(super) fn new(groups: &'a [Group], links: &'a [u32], batch: &'a [B]) -> Self {
        Self {
            groups: groups.iter(),
            links,
            batch,
        }
    }

    fn as_is(&self, index: u32, progress: Progress) -> Write<'a, B> {
        let packet = self.batch[position(index)].as_ref();
        Write {
            header: match progress {
                Progress::Whole => VirtioNetHdr::default(),
                Progress::Partial => to_complete(packet),
            },
            head: [0; MAX_HEAD],
            head_len: 0,
            packets: 1,
            payload_len: packet.len(),
            payloads: Payloads {
                next: index,
                header_len: 0,
                links: self.links,
                batch: self.batch,
            },
        }
    }

    fn joined(&self, train: &Train) -> Write<'a, B> {
        let header_len = train.part.header_len;
        let first = self.batch[position(train.first)].as_ref();
        let mut head = [0; MAX_HEAD];
        head[..header_len].copy_from_slice(&first[..header_len]);
        write_head(train, &mut head[..header_len]);
        Write {
            header: virtio_header(&train.part),
            head,
            head_len: header_len,
            packets: train.count,
            payload_len: train.payload_len,
            payloads: Payloads {
                next: train.first,
                header_len,
                links: self.links,
                batch: self.batch,
            },
        }
    }
}

impl<'a, B: AsRef<[u8]>> Iterator for Writes<'a, B> {
    type Item = Write<'a, B>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.groups.next()? {
            Group::AsIs(index, progress) => self.as_is(*index, *progress),
            Group::Train(train) if train.count == 1 => self.as_is(train.first, train.part.progress),
            Group::Train(train) => self.joined(train),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.groups.size_hint()
    }
}

impl<B: AsRef<[u8]>> ExactSizeIterator for Writes<'_, B> {}

impl<'a, B: AsRef<[u8]>> Write<'a, B> {
    /// What the kernel must know to take this write.
    pub fn header(&self) -> &VirtioNetHdr {
        &self.header
    }

    /// The rewritten IP and transport headers of a super-packet; empty for a packet as it is.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// What follows [`Self::head`]: the payloads, or the whole packet as it is.
    pub fn payloads(&self) -> Payloads<'a, B> {
        Payloads { ..self.payloads }
    }

    /// How many packets of the batch are in this write.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Length of the IP packet in bytes, without the virtio header.
    pub fn total_len(&self) -> usize {
        self.head_len + self.payload_len
    }

    /// Writes the IP packet to the front of `out` and returns its length, for a device that does
    /// not gather; `None` if it does not fit.
    pub fn copy_to(&self, out: &mut [u8]) -> Option<usize> {
        let mut rest = out.get_mut(..self.total_len())?;
        for piece in [self.head()].into_iter().chain(self.payloads()) {
            let (to, behind) = rest.split_at_mut(piece.len());
            to.copy_from_slice(piece);
            rest = behind;
        }
        Some(self.total_len())
    }
}

impl<'a, B: AsRef<[u8]>> Iterator for Payloads<'a, B> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next == END {
            return None;
        }
        let index = position(self.next);
        self.next = self.links[index];
        Some(&self.batch[index].as_ref()[self.header_len..])
    }
}

/// For a single packet with a partial checksum.
fn to_complete(packet: &[u8]) -> VirtioNetHdr {
    let Ok(packet) = IpPacket::parse(packet) else {
        return VirtioNetHdr::default();
    };
    let start = packet.transport_offset();
    let header = |field| VirtioNetHdr {
        flags: VirtioNetHdr::NEEDS_CSUM,
        csum_start: length(start),
        csum_offset: length(field - start),
        ..VirtioNetHdr::default()
    };
    packet
        .checksum_field()
        .map_or_else(VirtioNetHdr::default, header)
}

fn virtio_header(part: &Part) -> VirtioNetHdr {
    let gso_type = match (part.is_tcp(), part.version) {
        (true, Version::V4) => VirtioNetHdr::GSO_TCPV4,
        (true, Version::V6) => VirtioNetHdr::GSO_TCPV6,
        (false, _) => VirtioNetHdr::GSO_UDP_L4,
    };
    VirtioNetHdr {
        flags: VirtioNetHdr::NEEDS_CSUM,
        gso_type,
        hdr_len: length(part.header_len),
        gso_size: length(part.payload_len),
        csum_start: length(part.transport_offset()),
        csum_offset: length(checksum_offset(part)),
    }
}

/// Turns the headers of the first packet into those of the whole: lengths, last flags, IPv4
/// checksum, and a transport checksum that is only the pseudo header's.
fn write_head(train: &Train, head: &mut [u8]) {
    let part = &train.part;
    let total = head.len() + train.payload_len;
    let (ip, transport) = head.split_at_mut(part.transport_offset());
    let transport_len = length(total - ip.len());
    let addresses = match part.version {
        Version::V4 => {
            put_u16(ip, 2, length(total));
            put_u16(ip, 10, 0);
            let checksum = Sum::of(ip).checksum();
            put_u16(ip, 10, checksum);
            &ip[12..20]
        }
        Version::V6 => {
            put_u16(ip, 4, length(total - IPV6_HEADER));
            &ip[8..40]
        }
    };
    if part.is_tcp() {
        transport[13] = train.flags.0;
    } else {
        put_u16(transport, 4, transport_len);
    }
    let pseudo = Sum::pseudo_header(addresses, part.flow.protocol, transport_len.into());
    put_u16(transport, checksum_offset(part), pseudo.fold());
}

fn checksum_offset(part: &Part) -> usize {
    if part.is_tcp() {
        TCP_CHECKSUM
    } else {
        UDP_CHECKSUM
    }
}

/// A length within one super-packet.
fn length(value: usize) -> u16 {
    u16::try_from(value).expect("a train is no longer than MAX_PACKET")
}
