//! What a router changes in a packet in flight. Checksums follow incrementally (RFC 1624), so a
//! packet that was corrupt stays recognisably corrupt.

use crate::checksum::update;
use crate::ip::{IpPacket, Version};
use crate::tcp::{self, TCP_CHECKSUM, TCP_HEADER, TcpFlags};
use crate::wire::{put_u16, u16_at};

const IPV4_CHECKSUM: usize = 10;

const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// The packet has used up its hops: drop it, and say so by [`crate::icmp::Reason::TimeExceeded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time to live exceeded")]
pub struct TtlExpired;

/// Takes one hop off TTL or hop limit (RFC 1812 §5.3.1, RFC 8200 §3).
///
/// A packet that is not IP has no hops left either.
pub fn decrement_ttl(packet: &mut [u8]) -> Result<(), TtlExpired> {
    let parsed = IpPacket::parse(packet).map_err(|_| TtlExpired)?;
    if parsed.ttl() <= 1 {
        return Err(TtlExpired);
    }
    match parsed.version() {
        Version::V4 => edit_v4_header(packet, 8, |word| word - 0x0100),
        Version::V6 => packet[7] -= 1,
    }
    Ok(())
}

/// Lowers the MSS that a TCP SYN announces to what fits `mtu` without fragmentation: MTU less the
/// fixed IP and TCP headers (RFC 9293 §3.7.1). Returns whether it did; it does not behind an
/// authentication header, which covers the MSS (RFC 4302).
pub fn clamp_mss(packet: &mut [u8], mtu: u16) -> bool {
    let parsed = IpPacket::parse(packet).ok();
    let Some(above) = parsed.and_then(|parsed| mss_above(&parsed, mtu)) else {
        return false;
    };
    lower_mss(packet, above);
    true
}

/// Lowers the MSS as [`clamp_mss`] does, in a copy of a packet that is parsed already; only its
/// checksums may differ.
pub fn clamp_mss_in(copy: &mut [u8], of: &IpPacket<'_>, mtu: u16) -> bool {
    let above = mss_above(of, mtu).filter(|_| copy.len() == of.total_len());
    let Some(above) = above else {
        return false;
    };
    lower_mss(copy, above);
    true
}

fn lower_mss(packet: &mut [u8], (transport, at, most): (usize, usize, u16)) {
    let old = u16_at(packet, transport + at);
    put_u16(packet, transport + at, most);
    // The option may lie at an odd offset, where its bytes count in each other's place.
    let (old, new) = if at % 2 == 0 {
        (old, most)
    } else {
        (old.swap_bytes(), most.swap_bytes())
    };
    let checksum = u16_at(packet, transport + TCP_CHECKSUM);
    put_u16(packet, transport + TCP_CHECKSUM, update(checksum, old, new));
}

/// Marks a packet of an ECN-capable transport as having met congestion (RFC 3168 §5). Returns
/// whether the packet now carries the mark; if not, dropping it is the only signal.
pub fn set_ecn_ce(packet: &mut [u8]) -> bool {
    let Ok(parsed) = IpPacket::parse(packet) else {
        return false;
    };
    if parsed.ecn() == NOT_ECT {
        return false;
    }
    match parsed.version() {
        Version::V4 => edit_v4_header(packet, 0, |word| word | u16::from(CE)),
        Version::V6 => packet[1] |= CE << 4,
    }
    true
}

/// Transport offset, offset of the MSS value in the segment, and the MSS to put there.
fn mss_above(parsed: &IpPacket<'_>, mtu: u16) -> Option<(usize, usize, u16)> {
    let segment = parsed.tcp_segment()?;
    if parsed.is_authenticated() {
        return None;
    }
    if !TcpFlags(segment[13]).intersects(TcpFlags::SYN) {
        return None;
    }
    let headers = match parsed.version() {
        Version::V4 => 20 + TCP_HEADER,
        Version::V6 => 40 + TCP_HEADER,
    };
    let most = mtu.checked_sub(u16::try_from(headers).ok()?)?;
    let at = tcp::mss_value_offset(segment)?;
    (u16_at(segment, at) > most).then_some((parsed.transport_offset(), at, most))
}

/// Changes one 16-bit word of an IPv4 header and its checksum with it.
fn edit_v4_header(packet: &mut [u8], at: usize, edit: impl FnOnce(u16) -> u16) {
    let old = u16_at(packet, at);
    let new = edit(old);
    put_u16(packet, at, new);
    let checksum = u16_at(packet, IPV4_CHECKSUM);
    put_u16(packet, IPV4_CHECKSUM, update(checksum, old, new));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{verify_header, verify_transport};
    use etherparse::{PacketBuilder, TcpOptionElement};

    fn syn_v4(options: &[TcpOptionElement]) -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64)
            .tcp(40_000, 443, 1, 1000)
            .syn()
            .options(options)
            .unwrap()
            .write(&mut packet, &[])
            .unwrap();
        packet
    }

    fn syn_v6(options: &[TcpOptionElement]) -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64)
            .tcp(40_000, 443, 1, 1000)
            .syn()
            .options(options)
            .unwrap()
            .write(&mut packet, &[])
            .unwrap();
        packet
    }

    fn mss(packet: &[u8]) -> u16 {
        let segment = IpPacket::parse(packet).unwrap().tcp_segment().unwrap();
        u16_at(segment, tcp::mss_value_offset(segment).unwrap())
    }

    #[test]
    fn ttl_goes_down_by_one_and_the_checksum_follows() {
        let mut packet = syn_v4(&[]);
        decrement_ttl(&mut packet).unwrap();
        assert_eq!(packet[8], 63);
        assert!(verify_header(&packet));

        let mut packet = syn_v6(&[]);
        decrement_ttl(&mut packet).unwrap();
        assert_eq!(packet[7], 63);
    }

    #[test]
    fn the_last_hop_is_not_taken() {
        for ttl in [0, 1] {
            let mut packet = syn_v6(&[]);
            packet[7] = ttl;
            let before = packet.clone();
            assert_eq!(decrement_ttl(&mut packet), Err(TtlExpired));
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn a_corrupt_header_stays_corrupt() {
        let mut packet = syn_v4(&[]);
        packet[12] ^= 0x40;
        decrement_ttl(&mut packet).unwrap();
        assert!(!verify_header(&packet));
    }

    #[test]
    fn an_mss_that_does_not_fit_is_lowered() {
        let mut packet = syn_v4(&[TcpOptionElement::MaximumSegmentSize(1460)]);
        assert!(clamp_mss(&mut packet, 1400));
        assert_eq!(mss(&packet), 1360);
        assert!(verify_transport(&packet));

        let mut packet = syn_v6(&[TcpOptionElement::MaximumSegmentSize(1440)]);
        assert!(clamp_mss(&mut packet, 1280));
        assert_eq!(mss(&packet), 1220);
        assert!(verify_transport(&packet));
    }

    #[test]
    fn a_copy_is_clamped_as_the_packet_that_was_parsed() {
        let packet = syn_v4(&[TcpOptionElement::MaximumSegmentSize(1460)]);
        let parsed = IpPacket::parse(&packet).unwrap();
        let (mut copy, mut expected) = (packet.clone(), packet.clone());
        assert!(clamp_mss(&mut expected, 1400));
        assert!(clamp_mss_in(&mut copy, &parsed, 1400));
        assert_eq!(copy, expected);
        assert!(!clamp_mss_in(&mut copy[1..], &parsed, 1400), "no copy");
    }

    #[test]
    fn an_mss_at_an_odd_offset_is_lowered() {
        let options = [
            TcpOptionElement::Noop,
            TcpOptionElement::MaximumSegmentSize(1460),
            TcpOptionElement::WindowScale(7),
        ];
        let mut packet = syn_v4(&options);
        assert!(clamp_mss(&mut packet, 1400));
        assert_eq!(mss(&packet), 1360);
        assert!(verify_transport(&packet));
    }

    #[test]
    fn a_small_mss_and_other_segments_are_left_alone() {
        let mut small = syn_v4(&[TcpOptionElement::MaximumSegmentSize(1360)]);
        let mut none = syn_v4(&[TcpOptionElement::WindowScale(7)]);
        let mut data = syn_v4(&[TcpOptionElement::MaximumSegmentSize(1460)]);
        data[20 + 13] = TcpFlags::ACK.0;
        for packet in [&mut small, &mut none, &mut data] {
            let before = packet.clone();
            assert!(!clamp_mss(packet, 1400));
            assert_eq!(*packet, before);
        }
    }

    /// The receiver would drop the SYN.
    #[test]
    fn what_an_authentication_header_covers_is_left_alone() {
        let mut packet = syn_v6(&[TcpOptionElement::MaximumSegmentSize(1440)]);
        // RFC 4302 §2: next header, length in words beyond two, SPI, sequence number, check value.
        let header = [6, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
        let check = [7; 12];
        packet.splice(40..40, header.into_iter().chain(check));
        packet[5] += 24;
        packet[6] = 51;
        assert_eq!(mss(&packet), 1440);
        let before = packet.clone();
        assert!(!clamp_mss(&mut packet, 1280));
        assert_eq!(packet, before);
    }

    #[test]
    fn an_mtu_below_the_headers_changes_nothing() {
        let mut packet = syn_v4(&[TcpOptionElement::MaximumSegmentSize(1460)]);
        assert!(!clamp_mss(&mut packet, 39));
    }

    #[test]
    fn options_that_lie_about_their_length_are_left_alone() {
        let good = syn_v4(&[TcpOptionElement::MaximumSegmentSize(1460)]);
        for lie in [0, 1, 2, 3, 5, 255] {
            let mut packet = good.clone();
            packet[41] = lie;
            assert!(!clamp_mss(&mut packet, 1400), "length {lie}");
        }
        let mut unknown = good.clone();
        unknown[40..42].copy_from_slice(&[99, 0]);
        assert!(!clamp_mss(&mut unknown, 1400));
    }

    #[test]
    fn only_an_ecn_capable_packet_can_be_marked() {
        for (before, marked) in [(0b00, false), (0b01, true), (0b10, true), (0b11, true)] {
            let mut v4 = syn_v4(&[]);
            edit_v4_header(&mut v4, 0, |word| word | u16::from(before));
            assert_eq!(set_ecn_ce(&mut v4), marked);
            assert_eq!(v4[1] & 0b11, if marked { CE } else { before });
            assert!(verify_header(&v4));

            let mut v6 = syn_v6(&[]);
            v6[1] |= before << 4;
            assert_eq!(set_ecn_ce(&mut v6), marked);
            assert_eq!(
                IpPacket::parse(&v6).unwrap().ecn(),
                if marked { CE } else { before }
            );
        }
    }

    #[test]
    fn what_is_not_ip_is_left_alone() {
        let mut bytes = [0x4f; 30];
        assert_eq!(decrement_ttl(&mut bytes), Err(TtlExpired));
        assert!(!clamp_mss(&mut bytes, 1400));
        assert!(!set_ecn_ce(&mut bytes));
        assert_eq!(bytes, [0x4f; 30]);
    }
}
