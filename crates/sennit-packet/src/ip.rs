//! A validated view of one IPv4 or IPv6 packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod extensions;

use self::extensions::MAX_EXTENSIONS;
use crate::checksum::Sum;
use crate::protocol::Protocol;
use crate::tcp::{self, TCP_CHECKSUM, TCP_HEADER, TcpFlags, UDP_CHECKSUM, UDP_HEADER};
use crate::wire::u16_at;

/// An IPv4 header without options.
pub(crate) const IPV4_HEADER: usize = 20;
/// The fixed IPv6 header.
pub(crate) const IPV6_HEADER: usize = 40;

/// Why bytes are not a packet that can be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PacketError {
    #[error("packet is shorter than its headers say")]
    Truncated,
    #[error("neither IPv4 nor IPv6")]
    NotIp,
    #[error("packet length differs from the length in its header")]
    BadLength,
    #[error("IPv4 header length is below 20 bytes")]
    BadHeader,
    #[error("more than {MAX_EXTENSIONS} IPv6 extension headers")]
    TooManyExtensions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V4,
    V6,
}

/// One IP packet whose lengths have been checked: the buffer is exactly the packet, and all IP
/// headers up to the transport header lie inside it.
#[derive(Clone, Copy, Debug)]
pub struct IpPacket<'a> {
    bytes: &'a [u8],
    version: Version,
    upper: Upper,
}

/// What the IP headers say about what follows them.
#[derive(Clone, Copy, Debug)]
struct Upper {
    protocol: Protocol,
    offset: usize,
    fragment: Fragment,
    /// A routing header still has segments to visit: the destination is not the final one.
    routed: bool,
    /// An authentication header covers what follows it.
    authenticated: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fragment {
    /// In units of 8 bytes.
    offset: u16,
    more: bool,
    id: u32,
}

impl<'a> IpPacket<'a> {
    /// Checks lengths and walks IPv6 extension headers; checksums are left alone.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        match bytes.first().ok_or(PacketError::Truncated)? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => Err(PacketError::NotIp),
        }
    }

    /// RFC 791 §3.1.
    fn parse_v4(bytes: &'a [u8]) -> Result<Self, PacketError> {
        if bytes.len() < IPV4_HEADER {
            return Err(PacketError::Truncated);
        }
        let header = usize::from(bytes[0] & 0xf) * 4;
        if header < IPV4_HEADER {
            return Err(PacketError::BadHeader);
        }
        let total = usize::from(u16_at(bytes, 2));
        if total < header {
            return Err(PacketError::BadLength);
        }
        check_length(total, bytes.len())?;
        let fragment = u16_at(bytes, 6);
        let upper = Upper {
            protocol: Protocol(bytes[9]),
            offset: header,
            fragment: Fragment {
                offset: fragment & 0x1fff,
                more: fragment & 0x2000 != 0,
                id: u16_at(bytes, 4).into(),
            },
            routed: false,
            // There that header would be the transport.
            authenticated: false,
        };
        Ok(Self {
            bytes,
            version: Version::V4,
            upper,
        })
    }

    /// RFC 8200 §3. A jumbogram (RFC 2675) has a payload length of zero and fails as too long.
    fn parse_v6(bytes: &'a [u8]) -> Result<Self, PacketError> {
        if bytes.len() < IPV6_HEADER {
            return Err(PacketError::Truncated);
        }
        check_length(IPV6_HEADER + usize::from(u16_at(bytes, 4)), bytes.len())?;
        let upper = extensions::walk(bytes)?;
        Ok(Self {
            bytes,
            version: Version::V6,
            upper,
        })
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn src(&self) -> IpAddr {
        match self.version {
            Version::V4 => self.v4_addr(12).into(),
            Version::V6 => self.v6_addr(8).into(),
        }
    }

    pub fn dst(&self) -> IpAddr {
        match self.version {
            Version::V4 => self.v4_addr(16).into(),
            Version::V6 => self.v6_addr(24).into(),
        }
    }

    /// The protocol behind all IPv6 extension headers. In a non-first fragment, what the fragment
    /// header names.
    pub fn protocol(&self) -> Protocol {
        self.upper.protocol
    }

    /// The six bits of the differentiated services code point (RFC 2474 §3).
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// The two ECN bits (RFC 3168 §5).
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 0b11
    }

    /// TTL or hop limit.
    pub fn ttl(&self) -> u8 {
        match self.version {
            Version::V4 => self.bytes[8],
            Version::V6 => self.bytes[7],
        }
    }

    /// Length of the whole packet in bytes.
    pub fn total_len(&self) -> usize {
        self.bytes.len()
    }

    /// Where the transport header starts: behind IPv4 options or IPv6 extension headers.
    pub fn transport_offset(&self) -> usize {
        self.upper.offset
    }

    /// Transport header and payload; may be empty.
    pub fn transport(&self) -> &'a [u8] {
        &self.bytes[self.upper.offset..]
    }

    /// Whether this is one of several fragments. An IPv6 atomic fragment (RFC 6946) is not.
    pub fn is_fragment(&self) -> bool {
        self.upper.fragment.more || self.is_later_fragment()
    }

    /// Whether this is a fragment without a transport header.
    pub fn is_later_fragment(&self) -> bool {
        self.upper.fragment.offset != 0
    }

    /// What all fragments of one datagram have in common, beside their addresses (RFC 791 §3.2, RFC
    /// 8200 §4.5); `None` for a whole packet.
    pub fn fragment_id(&self) -> Option<u32> {
        self.is_fragment().then_some(self.upper.fragment.id)
    }

    /// Whether a router may not fragment this packet: IPv4 with DF set, and all of IPv6.
    pub fn dont_fragment(&self) -> bool {
        match self.version {
            Version::V4 => self.bytes[6] & 0x40 != 0,
            Version::V6 => true,
        }
    }

    /// Source and destination port of TCP, UDP and SCTP, where this packet has them.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let has_ports = [Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&self.protocol());
        let transport = self.transport();
        (has_ports && !self.is_later_fragment() && transport.len() >= 4)
            .then(|| (u16_at(transport, 0), u16_at(transport, 2)))
    }

    /// The flags, if this packet has a TCP header.
    pub fn tcp_flags(&self) -> Option<TcpFlags> {
        self.tcp_segment().map(|segment| TcpFlags(segment[13]))
    }

    /// Bytes of TCP's stream in this packet; 0 if there are none or it is not TCP.
    pub fn tcp_payload_len(&self) -> usize {
        let payload = |segment: &[u8]| Some(segment.len() - tcp::header_len(segment)?);
        self.tcp_segment().and_then(payload).unwrap_or(0)
    }

    /// A TCP segment with a whole header.
    pub(crate) fn tcp_segment(&self) -> Option<&'a [u8]> {
        let segment = self.transport();
        let is_tcp = self.protocol() == Protocol::TCP && !self.is_later_fragment();
        (is_tcp && tcp::header_len(segment).is_some()).then_some(segment)
    }

    /// Source and destination as they lie in the header.
    pub(crate) fn address_bytes(&self) -> &'a [u8] {
        match self.version {
            Version::V4 => &self.bytes[12..20],
            Version::V6 => &self.bytes[8..40],
        }
    }

    /// Whether whoever changes the transport breaks an authentication header (RFC 4302 §3.3.3).
    pub(crate) fn is_authenticated(&self) -> bool {
        self.upper.authenticated
    }

    /// Whether the destination is the one of the pseudo header (RFC 8200 §8.1).
    pub(crate) fn has_final_destination(&self) -> bool {
        !self.upper.routed
    }

    /// Where the checksum of TCP or UDP lies, from the start of the packet, if one packet has all
    /// that it covers and its pseudo header.
    pub fn checksum_field(&self) -> Option<usize> {
        let (least, offset) = match self.protocol() {
            Protocol::TCP => (TCP_HEADER, TCP_CHECKSUM),
            Protocol::UDP => (UDP_HEADER, UDP_CHECKSUM),
            _ => return None,
        };
        let whole = !self.is_fragment() && self.has_final_destination();
        (whole && self.transport().len() >= least).then_some(self.transport_offset() + offset)
    }

    /// RFC 791 §3.1; IPv6 has no header checksum.
    pub(crate) fn header_checksum_holds(&self) -> bool {
        match self.version {
            Version::V4 => Sum::of(&self.bytes[..self.upper.offset]).holds(),
            Version::V6 => true,
        }
    }

    /// See [`verify_transport`].
    pub(crate) fn transport_checksum_holds(&self) -> bool {
        if self.is_fragment() || !self.has_final_destination() {
            return true;
        }
        let segment = self.transport();
        match self.protocol() {
            Protocol::TCP => self.tcp_segment().is_some() && self.holds_with_pseudo(segment),
            Protocol::UDP => self.udp_checksum_holds(segment),
            Protocol::ICMP => segment.len() >= 4 && Sum::of(segment).holds(),
            Protocol::ICMPV6 => segment.len() >= 4 && self.holds_with_pseudo(segment),
            _ => true,
        }
    }

    /// RFC 768: the datagram may be shorter than the IP payload; zero means no checksum, which
    /// IPv6 forbids (RFC 8200 §8.1).
    fn udp_checksum_holds(&self, segment: &[u8]) -> bool {
        if segment.len() < UDP_HEADER {
            return false;
        }
        let length = usize::from(u16_at(segment, 4));
        if !(UDP_HEADER..=segment.len()).contains(&length) {
            return false;
        }
        if u16_at(segment, UDP_CHECKSUM) == 0 {
            return self.version == Version::V4;
        }
        self.holds_with_pseudo(&segment[..length])
    }

    fn holds_with_pseudo(&self, segment: &[u8]) -> bool {
        let pseudo = Sum::pseudo_header(self.address_bytes(), self.protocol(), segment.len());
        (pseudo + Sum::of(segment)).holds()
    }

    fn traffic_class(&self) -> u8 {
        match self.version {
            Version::V4 => self.bytes[1],
            Version::V6 => self.bytes[0] << 4 | self.bytes[1] >> 4,
        }
    }

    fn v4_addr(&self, at: usize) -> Ipv4Addr {
        let bytes = self.bytes[at..].first_chunk::<4>();
        Ipv4Addr::from(*bytes.expect("parse checked the header's length"))
    }

    fn v6_addr(&self, at: usize) -> Ipv6Addr {
        let bytes = self.bytes[at..].first_chunk::<16>();
        Ipv6Addr::from(*bytes.expect("parse checked the header's length"))
    }
}

fn check_length(stated: usize, actual: usize) -> Result<(), PacketError> {
    match stated.cmp(&actual) {
        std::cmp::Ordering::Greater => Err(PacketError::Truncated),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(PacketError::BadLength),
    }
}

/// Whether no transport checksum of this packet is provably wrong.
///
/// Checks TCP, UDP, ICMP and ICMPv6. What carries no checksum that one packet can prove
/// (fragments, other protocols, UDP over IPv4 with checksum zero) passes; malformed packets fail.
pub fn verify_transport(packet: &[u8]) -> bool {
    IpPacket::parse(packet).is_ok_and(|packet| packet.transport_checksum_holds())
}

/// Whether this is an IP packet and, for IPv4, its header checksum holds (RFC 1812 §5.2.2).
pub fn verify_header(packet: &[u8]) -> bool {
    IpPacket::parse(packet).is_ok_and(|packet| packet.header_checksum_holds())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn udp_v4() -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 61)
            .udp(1000, 2000)
            .write(&mut packet, b"payload")
            .unwrap();
        packet
    }

    /// An IPv6 packet with the given headers and payload behind the fixed header.
    pub(in crate::ip) fn v6(next: Protocol, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next.0, 64];
        packet[4..6].copy_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets());
        packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).octets());
        packet.extend(payload);
        packet
    }

    #[test]
    fn reads_an_ipv4_packet() {
        let mut bytes = udp_v4();
        bytes[1] = 46 << 2 | 0b10;
        let packet = IpPacket::parse(&bytes).unwrap();

        assert_eq!(packet.version(), Version::V4);
        assert_eq!(packet.src(), "192.0.2.1".parse::<IpAddr>().unwrap());
        assert_eq!(packet.dst(), "198.51.100.2".parse::<IpAddr>().unwrap());
        assert_eq!(packet.protocol(), Protocol::UDP);
        assert_eq!(packet.ports(), Some((1000, 2000)));
        assert_eq!((packet.dscp(), packet.ecn(), packet.ttl()), (46, 0b10, 61));
        assert_eq!((packet.transport_offset(), packet.total_len()), (20, 35));
        assert!(packet.dont_fragment() && !packet.is_fragment());
        assert_eq!(packet.tcp_flags(), None);
    }

    #[test]
    fn reads_an_ipv6_packet() {
        let mut bytes = v6(Protocol::SCTP, &[0, 7, 0, 9, 1, 2, 3, 4]);
        bytes[0] = 0x6b;
        bytes[1] = 0x9f;
        let packet = IpPacket::parse(&bytes).unwrap();

        assert_eq!(packet.version(), Version::V6);
        assert_eq!(packet.src(), "2001:db8::1".parse::<IpAddr>().unwrap());
        assert_eq!(packet.dst(), "2001:db8::2".parse::<IpAddr>().unwrap());
        assert_eq!(packet.ports(), Some((7, 9)));
        assert_eq!((packet.dscp(), packet.ecn(), packet.ttl()), (46, 0b01, 64));
    }

    #[test]
    fn a_later_ipv4_fragment_has_no_ports() {
        let mut bytes = udp_v4();
        bytes[6] = 0x00;
        bytes[7] = 0x01;
        let packet = IpPacket::parse(&bytes).unwrap();
        assert_eq!(packet.ports(), None);
        assert!(packet.is_later_fragment() && !packet.dont_fragment());
    }

    #[test]
    fn wrong_lengths_and_headers_are_refused() {
        let good = udp_v4();
        let mut padded = good.clone();
        padded.push(0);
        let mut short_header = good.clone();
        short_header[0] = 0x44;
        let mut short_total = good[..20].to_vec();
        short_total[3] = 19;

        let error = |bytes: &[u8]| IpPacket::parse(bytes).unwrap_err();
        assert_eq!(error(&[]), PacketError::Truncated);
        assert_eq!(error(&[0x50; 40]), PacketError::NotIp);
        assert_eq!(error(&good[..19]), PacketError::Truncated);
        assert_eq!(error(&good[..34]), PacketError::Truncated);
        assert_eq!(error(&padded), PacketError::BadLength);
        assert_eq!(error(&short_header), PacketError::BadHeader);
        assert_eq!(error(&short_total), PacketError::BadLength);
        assert_eq!(
            error(&v6(Protocol::UDP, &[0; 8])[..39]),
            PacketError::Truncated
        );
        assert_eq!(
            error(&v6(Protocol::UDP, &[0; 8])[..47]),
            PacketError::Truncated
        );
    }
}
