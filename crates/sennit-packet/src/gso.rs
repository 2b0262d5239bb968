//! Super-packets: the segmentation offload of TUN devices, sending side.
//!
//! With `IFF_VNET_HDR` the kernel puts a [`VirtioNetHdr`] before each packet. It says which
//! checksum is still to be completed, and, if the packet is a TCP or UDP super-packet, how to cut
//! it. [`Segments`] does both.

mod segments;

pub use segments::{GsoError, Segments};

/// What a TUN device can take from and hand to user space in one piece, each tier with all of the
/// one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Single packets.
    #[default]
    None,
    /// TCP super-packets (`TUN_F_TSO4 | TUN_F_TSO6`).
    Tso,
    /// UDP super-packets as well (`TUN_F_USO4 | TUN_F_USO6`, Linux 6.2).
    TsoUso,
}

/// `struct virtio_net_hdr` of `linux/virtio_net.h`, fields in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VirtioNetHdr {
    pub flags: u8,
    pub gso_type: u8,
    /// Length of all headers; a hint that readers must not trust.
    pub hdr_len: u16,
    /// Payload bytes per segment, of which the last may have fewer.
    pub gso_size: u16,
    /// Where the transport header starts, from which on to sum.
    pub csum_start: u16,
    /// Where behind `csum_start` the checksum belongs.
    pub csum_offset: u16,
}

impl VirtioNetHdr {
    /// Bytes of the encoded header.
    pub const LEN: usize = 10;

    /// Flag: the checksum field holds only the sum of the pseudo header.
    pub const NEEDS_CSUM: u8 = 1;
    /// Flag: the checksum has been verified.
    pub const DATA_VALID: u8 = 2;

    pub const GSO_NONE: u8 = 0;
    pub const GSO_TCPV4: u8 = 1;
    pub const GSO_TCPV6: u8 = 4;
    pub const GSO_UDP_L4: u8 = 5;
    /// A bit beside a TCP type: the packet has CWR set.
    pub const GSO_ECN: u8 = 0x80;

    /// Reads the header in front of a packet; `None` if there are fewer than ten bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let &[flags, gso_type, a, b, c, d, e, f, g, h] = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
        })
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let [a, b] = self.hdr_len.to_ne_bytes();
        let [c, d] = self.gso_size.to_ne_bytes();
        let [e, f] = self.csum_start.to_ne_bytes();
        let [g, h] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_encoding() {
        let header = VirtioNetHdr {
            flags: VirtioNetHdr::NEEDS_CSUM,
            gso_type: VirtioNetHdr::GSO_TCPV6 | VirtioNetHdr::GSO_ECN,
            hdr_len: 0x0102,
            gso_size: 0x0304,
            csum_start: 0x0506,
            csum_offset: 0x0708,
        };
        assert_eq!(VirtioNetHdr::decode(&header.encode()), Some(header));
        assert_eq!(VirtioNetHdr::decode(&header.encode()[..9]), None);
    }

    #[test]
    fn fields_lie_where_the_kernel_has_them() {
        let header = VirtioNetHdr {
            flags: 1,
            gso_type: 5,
            csum_offset: 6,
            ..Default::default()
        };
        let mut expected = [1, 5, 0, 0, 0, 0, 0, 0, 0, 0];
        expected[8..].copy_from_slice(&6_u16.to_ne_bytes());
        assert_eq!(header.encode(), expected);
    }
}
