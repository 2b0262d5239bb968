//! ICMP and ICMPv6 errors about packets that cannot be forwarded.
//!
//! [`error`] builds the whole IP packet to send back, or declines where a router must stay silent
//! (RFC 1812 §4.3.2.7, RFC 4443 §2.4 (e)): an error about an error could loop, and one about a
//! broadcast could be a storm. Limiting their rate (RFC 1812 §4.3.2.8) is the caller's, who has a
//! clock.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;
use crate::ip::{IPV4_HEADER, IPV6_HEADER, IpPacket};
use crate::protocol::Protocol;
use crate::wire::{put_u16, put_u32};

/// An ICMP header with its four bytes of unused, pointer or MTU.
const ICMP_HEADER: usize = 8;
/// RFC 1812 §4.3.2.3: quote as much as fits without the error exceeding 576 bytes.
const V4_LONGEST: usize = 576;
/// RFC 4443 §2.4 (c): as much as fits the minimum IPv6 MTU.
const V6_LONGEST: usize = 1280;
/// RFC 792: at least the first 64 bits behind the IP header, where the ports are.
const LEAST_TRANSPORT: usize = 8;

/// RFC 1812 §4.3.2.5: errors travel with precedence 6, internetwork control.
const INTERNETWORK_CONTROL: u8 = 0xc0;
const HOP_LIMIT: u8 = 64;

/// The smallest MTU of IPv6 (RFC 8200 §5); hosts ignore an ICMPv6 error that states less.
const V6_LEAST_MTU: u32 = 1280;

/// Why a packet is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It exceeds the MTU of the next link. For IPv4 only meant for packets with DF set.
    TooBig { mtu: u32 },
    /// Nothing is routed to its destination.
    NoRoute,
    /// Its destination is routed but cannot be reached.
    HostUnreachable,
    /// A filter forbids it.
    Prohibited,
    /// Its source address is not one that its sender may use.
    SourcePolicy,
    /// It has used up its hops.
    TimeExceeded,
}

impl Reason {
    /// Type, code and the last four bytes of the header (RFC 792, RFC 1191 §4, RFC 1812 §5.2.7.1).
    fn v4(self) -> (u8, u8, u32) {
        match self {
            Self::TooBig { mtu } => (3, 4, mtu.min(u32::from(u16::MAX))),
            Self::NoRoute => (3, 0, 0),
            Self::HostUnreachable => (3, 1, 0),
            Self::Prohibited | Self::SourcePolicy => (3, 13, 0),
            Self::TimeExceeded => (11, 0, 0),
        }
    }

    /// Type, code and the last four bytes of the header (RFC 4443 §3.1 to §3.3).
    fn v6(self) -> (u8, u8, u32) {
        match self {
            Self::TooBig { mtu } => (2, 0, mtu.max(V6_LEAST_MTU)),
            Self::NoRoute => (1, 0, 0),
            Self::HostUnreachable => (1, 3, 0),
            Self::Prohibited => (1, 1, 0),
            Self::SourcePolicy => (1, 5, 0),
            Self::TimeExceeded => (3, 0, 0),
        }
    }
}

/// Builds the error that tells the sender of `original` why it went no further, and returns its
/// length in `out`.
///
/// `source` is the address of the router that speaks, in the family of `original`. `None` if no
/// error may be sent about this packet, or `out` has no room for a useful quote: 576 (IPv4) or
/// 1280 (IPv6) bytes always suffice.
pub fn error(original: &[u8], reason: Reason, source: IpAddr, out: &mut [u8]) -> Option<usize> {
    let packet = IpPacket::parse(original).ok()?;
    if packet.is_later_fragment() || !invites_error(&packet) {
        return None;
    }
    match (source, packet.src(), packet.dst()) {
        (IpAddr::V4(source), IpAddr::V4(sender), IpAddr::V4(target)) => {
            (is_v4_host(sender) && !target.is_multicast() && !target.is_broadcast())
                .then(|| build_v4(&packet, reason, (source, sender), out))?
        }
        (IpAddr::V6(source), IpAddr::V6(sender), IpAddr::V6(target)) => {
            // RFC 4443 §2.4 (e.3): path MTU discovery works for multicast as well.
            let wanted = !target.is_multicast() || matches!(reason, Reason::TooBig { .. });
            (wanted && is_v6_host(sender))
                .then(|| build_v6(&packet, reason, (source, sender), out))?
        }
        _ => None,
    }
}

fn build_v4(
    packet: &IpPacket<'_>,
    reason: Reason,
    (source, sender): (Ipv4Addr, Ipv4Addr),
    out: &mut [u8],
) -> Option<usize> {
    let least = packet.transport_offset() + LEAST_TRANSPORT;
    let room = out
        .len()
        .min(V4_LONGEST)
        .checked_sub(IPV4_HEADER + ICMP_HEADER)?;
    let quote = quote(packet.bytes(), least, room)?;
    let length = IPV4_HEADER + ICMP_HEADER + quote.len();

    let (header, message) = out[..length].split_at_mut(IPV4_HEADER);
    let unfragmented = 0x40;
    header[..2].copy_from_slice(&[0x45, INTERNETWORK_CONTROL]);
    put_u16(header, 2, u16::try_from(length).ok()?);
    header[4..12].copy_from_slice(&[0, 0, unfragmented, 0, HOP_LIMIT, Protocol::ICMP.0, 0, 0]);
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&sender.octets());
    let checksum = Sum::of(header).checksum();
    put_u16(header, 10, checksum);

    write_message(message, reason.v4(), quote, Sum::default());
    Some(length)
}

fn build_v6(
    packet: &IpPacket<'_>,
    reason: Reason,
    (source, sender): (Ipv6Addr, Ipv6Addr),
    out: &mut [u8],
) -> Option<usize> {
    let room = out
        .len()
        .min(V6_LONGEST)
        .checked_sub(IPV6_HEADER + ICMP_HEADER)?;
    let quote = quote(packet.bytes(), IPV6_HEADER + LEAST_TRANSPORT, room)?;
    let length = IPV6_HEADER + ICMP_HEADER + quote.len();

    let (header, message) = out[..length].split_at_mut(IPV6_HEADER);
    header[..4].copy_from_slice(&[0x60 | INTERNETWORK_CONTROL >> 4, 0, 0, 0]);
    put_u16(header, 4, u16::try_from(message.len()).ok()?);
    header[6..8].copy_from_slice(&[Protocol::ICMPV6.0, HOP_LIMIT]);
    header[8..24].copy_from_slice(&source.octets());
    header[24..40].copy_from_slice(&sender.octets());

    let pseudo = Sum::pseudo_header(&header[8..40], Protocol::ICMPV6, message.len());
    write_message(message, reason.v6(), quote, pseudo);
    Some(length)
}

/// The part of the original to quote, unless not even `least` bytes of it have room.
fn quote(original: &[u8], least: usize, room: usize) -> Option<&[u8]> {
    let quote = &original[..original.len().min(room)];
    (quote.len() >= least.min(original.len())).then_some(quote)
}

fn write_message(message: &mut [u8], header: (u8, u8, u32), quote: &[u8], pseudo: Sum) {
    let (kind, code, rest) = header;
    message[..4].copy_from_slice(&[kind, code, 0, 0]);
    put_u32(message, 4, rest);
    message[ICMP_HEADER..].copy_from_slice(quote);
    let checksum = (pseudo + Sum::of(message)).checksum();
    put_u16(message, 2, checksum);
}

/// No error answers an error; of ICMP only what is known to be a request or a reply gets one.
fn invites_error(packet: &IpPacket<'_>) -> bool {
    let kind = packet.transport().first();
    match packet.protocol() {
        // RFC 792, RFC 950, RFC 1256, RFC 8335: echo, router discovery, timestamp, information,
        // address mask, extended echo.
        Protocol::ICMP => kind.is_some_and(|kind| matches!(kind, 0 | 8..=10 | 13..=18 | 42 | 43)),
        // RFC 4443 §2.1: errors have the high bit clear. A redirect counts as one (§2.4 (e.2)).
        Protocol::ICMPV6 => kind.is_some_and(|&kind| kind >= 128 && kind != 137),
        _ => true,
    }
}

/// RFC 1812 §4.3.2.7: the source must name a single host.
fn is_v4_host(address: Ipv4Addr) -> bool {
    let this_network = address.octets()[0] == 0;
    let reserved_or_multicast = address.octets()[0] >= 224;
    !this_network && !reserved_or_multicast && !address.is_loopback()
}

fn is_v6_host(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{verify_header, verify_transport};
    use etherparse::PacketBuilder;

    const ROUTER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
    const ROUTER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xff));
    const HOST_V4: [u8; 4] = [192, 0, 2, 1];
    const HOST_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    fn udp_v4(source: [u8; 4], target: [u8; 4], length: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4(source, target, 64)
            .udp(1000, 2000)
            .write(&mut packet, &vec![7; length])
            .unwrap();
        packet
    }

    fn udp_v6(source: [u8; 16], target: [u8; 16], length: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv6(source, target, 64)
            .udp(1000, 2000)
            .write(&mut packet, &vec![7; length])
            .unwrap();
        packet
    }

    fn reply(original: &[u8], reason: Reason) -> Option<Vec<u8>> {
        let source = if original[0] >> 4 == 4 {
            ROUTER_V4
        } else {
            ROUTER_V6
        };
        let mut out = vec![0xaa; 1500];
        let length = error(original, reason, source, &mut out)?;
        out.truncate(length);
        Some(out)
    }

    #[test]
    fn a_v4_packet_too_big_is_answered_with_the_mtu() {
        let original = udp_v4(HOST_V4, [198, 51, 100, 2], 1400);
        let answer = reply(&original, Reason::TooBig { mtu: 1280 }).unwrap();

        let packet = IpPacket::parse(&answer).unwrap();
        assert_eq!(
            (packet.src(), packet.dst()),
            (ROUTER_V4, IpAddr::from(HOST_V4))
        );
        assert_eq!(packet.transport()[..2], [3, 4]);
        assert_eq!(packet.transport()[4..8], [0, 0, 5, 0]);
        assert_eq!(packet.transport()[8..], original[..576 - 28]);
        assert!(verify_header(&answer) && verify_transport(&answer));
    }

    #[test]
    fn a_v6_packet_too_big_is_answered_with_the_mtu() {
        let original = udp_v6(HOST_V6, [9; 16], 1400);
        let answer = reply(&original, Reason::TooBig { mtu: 1400 }).unwrap();

        let packet = IpPacket::parse(&answer).unwrap();
        assert_eq!(
            (packet.src(), packet.dst()),
            (ROUTER_V6, IpAddr::from(HOST_V6))
        );
        assert_eq!(packet.transport()[..2], [2, 0]);
        assert_eq!(packet.transport()[4..8], [0, 0, 5, 120]);
        assert_eq!(answer.len(), 1280);
        assert_eq!(packet.transport()[8..], original[..1280 - 48]);
        assert!(verify_transport(&answer));
    }

    #[test]
    fn no_v6_error_states_an_mtu_below_the_minimum() {
        let answer = reply(&udp_v6(HOST_V6, [9; 16], 1400), Reason::TooBig { mtu: 600 }).unwrap();
        assert_eq!(answer[44..48], [0, 0, 5, 0]);
    }

    #[test]
    fn each_reason_has_the_code_of_its_family() {
        let cases = [
            (Reason::NoRoute, [3, 0], [1, 0]),
            (Reason::HostUnreachable, [3, 1], [1, 3]),
            (Reason::Prohibited, [3, 13], [1, 1]),
            (Reason::SourcePolicy, [3, 13], [1, 5]),
            (Reason::TimeExceeded, [11, 0], [3, 0]),
        ];
        let (v4, v6) = (
            udp_v4(HOST_V4, [1, 1, 1, 1], 9),
            udp_v6(HOST_V6, [9; 16], 9),
        );
        for (reason, v4_code, v6_code) in cases {
            let answer = reply(&v4, reason).unwrap();
            assert_eq!(answer[20..22], v4_code, "{reason:?}");
            assert_eq!(answer[28..], v4, "a short packet is quoted whole");
            assert!(verify_transport(&answer));
            let answer = reply(&v6, reason).unwrap();
            assert_eq!(answer[40..42], v6_code, "{reason:?}");
            assert_eq!(answer[48..], v6);
            assert!(verify_transport(&answer));
        }
    }

    #[test]
    fn errors_and_redirects_get_no_answer() {
        for kind in [3, 4, 5, 11, 12, 200] {
            let mut packet = udp_v4(HOST_V4, [1, 1, 1, 1], 9);
            packet[9] = Protocol::ICMP.0;
            packet[20] = kind;
            assert_eq!(reply(&packet, Reason::NoRoute), None, "type {kind}");
        }
        for kind in [1, 2, 3, 4, 100, 137] {
            let mut packet = udp_v6(HOST_V6, [9; 16], 9);
            packet[6] = Protocol::ICMPV6.0;
            packet[40] = kind;
            assert_eq!(reply(&packet, Reason::NoRoute), None, "type {kind}");
        }
    }

    #[test]
    fn an_answer_to_ping_about_the_ping_is_allowed() {
        let mut v4 = udp_v4(HOST_V4, [1, 1, 1, 1], 9);
        v4[9] = Protocol::ICMP.0;
        v4[20] = 8;
        assert!(reply(&v4, Reason::TimeExceeded).is_some());
        let mut v6 = udp_v6(HOST_V6, [9; 16], 9);
        v6[6] = Protocol::ICMPV6.0;
        v6[40] = 128;
        assert!(reply(&v6, Reason::TimeExceeded).is_some());
    }

    #[test]
    fn later_fragments_get_no_answer() {
        let mut packet = udp_v4(HOST_V4, [1, 1, 1, 1], 9);
        packet[7] = 1;
        assert_eq!(reply(&packet, Reason::NoRoute), None);
        packet[6..8].copy_from_slice(&[0x20, 0]);
        assert!(reply(&packet, Reason::NoRoute).is_some());
    }

    #[test]
    fn senders_that_are_no_single_host_get_no_answer() {
        let sources = [
            [0, 0, 0, 0],
            [0, 1, 2, 3],
            [127, 0, 0, 1],
            [224, 0, 0, 5],
            [240, 0, 0, 1],
            [255; 4],
        ];
        for source in sources {
            let packet = udp_v4(source, [1, 1, 1, 1], 9);
            assert_eq!(reply(&packet, Reason::NoRoute), None, "{source:?}");
        }
        let multicast = [0xff; 16];
        for source in [[0; 16], multicast, Ipv6Addr::LOCALHOST.octets()] {
            assert_eq!(reply(&udp_v6(source, [9; 16], 9), Reason::NoRoute), None);
        }
    }

    #[test]
    fn packets_to_many_get_no_answer_but_for_v6_path_mtu() {
        for target in [[224, 0, 0, 1], [255; 4]] {
            let packet = udp_v4(HOST_V4, target, 9);
            assert_eq!(reply(&packet, Reason::TooBig { mtu: 1280 }), None);
        }
        let packet = udp_v6(HOST_V6, [0xff; 16], 9);
        assert_eq!(reply(&packet, Reason::NoRoute), None);
        assert!(reply(&packet, Reason::TooBig { mtu: 1280 }).is_some());
    }

    #[test]
    fn a_router_of_the_other_family_has_no_voice() {
        let mut out = [0; 1500];
        let v4 = udp_v4(HOST_V4, [1, 1, 1, 1], 9);
        assert_eq!(error(&v4, Reason::NoRoute, ROUTER_V6, &mut out), None);
    }

    #[test]
    fn the_quote_shrinks_to_the_buffer_but_keeps_the_ports() {
        let original = udp_v4(HOST_V4, [1, 1, 1, 1], 100);
        let mut out = [0; 100];
        assert_eq!(
            error(&original, Reason::NoRoute, ROUTER_V4, &mut out),
            Some(100)
        );
        assert!(verify_transport(&out));
        assert_eq!(
            error(&original, Reason::NoRoute, ROUTER_V4, &mut out[..56]),
            Some(56)
        );
        assert_eq!(
            error(&original, Reason::NoRoute, ROUTER_V4, &mut out[..55]),
            None
        );
        assert_eq!(error(&original, Reason::NoRoute, ROUTER_V4, &mut []), None);
    }
}
