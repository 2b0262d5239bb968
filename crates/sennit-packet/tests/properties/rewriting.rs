use etherparse::{Ipv4HeaderSlice, TcpSlice};
use proptest::prelude::*;
use sennit_packet::rewrite::{TtlExpired, clamp_mss, decrement_ttl, set_ecn_ce};
use sennit_packet::{IpPacket, Version};

use crate::build::{any_packet, any_tcp_packet};
use crate::seeded;

/// Whether the IPv4 header checksum is what `etherparse` computes for this header.
fn header_is_right(bytes: &[u8]) -> bool {
    IpPacket::parse(bytes).unwrap().version() == Version::V6 || {
        let header = Ipv4HeaderSlice::from_slice(bytes).unwrap().to_header();
        header.header_checksum == header.calc_header_checksum()
    }
}

/// Whether the TCP checksum is what `etherparse` computes for this segment.
fn tcp_is_right(bytes: &[u8]) -> bool {
    let packet = IpPacket::parse(bytes).unwrap();
    let tcp = TcpSlice::from_slice(&bytes[packet.transport_offset()..]).unwrap();
    let expected = if packet.version() == Version::V4 {
        let [source, destination] = [12, 16].map(|at| *bytes[at..].first_chunk().unwrap());
        tcp.calc_checksum_ipv4(source, destination)
    } else {
        let [source, destination] = [8, 24].map(|at| *bytes[at..].first_chunk().unwrap());
        tcp.calc_checksum_ipv6(source, destination)
    };
    tcp.checksum() == expected.unwrap()
}

proptest! {
    #![proptest_config(seeded(256))]

    #[test]
    fn a_hop_less_equals_a_header_made_anew(packet in any_packet(100)) {
        let before = packet.build();
        let mut after = before.clone();
        let ttl = IpPacket::parse(&before).unwrap().ttl();

        let result = decrement_ttl(&mut after);

        if ttl <= 1 {
            prop_assert_eq!(result, Err(TtlExpired));
            prop_assert_eq!(before, after);
        } else {
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(IpPacket::parse(&after).unwrap().ttl(), ttl - 1);
            prop_assert!(header_is_right(&after));
        }
    }

    #[test]
    fn a_mark_equals_a_header_made_anew(packet in any_packet(100)) {
        let mut bytes = packet.build();
        let (ecn, dscp) = {
            let packet = IpPacket::parse(&bytes).unwrap();
            (packet.ecn(), packet.dscp())
        };

        let marked = set_ecn_ce(&mut bytes);

        prop_assert_eq!(marked, ecn != 0);
        let packet = IpPacket::parse(&bytes).unwrap();
        prop_assert_eq!(packet.ecn(), if marked { 0b11 } else { 0 });
        prop_assert_eq!(packet.dscp(), dscp);
        prop_assert!(header_is_right(&bytes));
    }

    #[test]
    fn a_clamped_segment_equals_one_made_anew(
        mut packet in any_tcp_packet(100),
        (mss, mtu) in any::<(u16, u16)>(),
        padding in 0_usize..8,
    ) {
        let mut options = vec![1; padding];
        options.extend([2, 4, mss.to_be_bytes()[0], mss.to_be_bytes()[1], 0]);
        packet.tcp().set_options_raw(&options).unwrap();
        packet.tcp().syn = true;
        let mut bytes = packet.build();
        let headers = if bytes[0] >> 4 == 4 { 40 } else { 60 };

        let clamped = clamp_mss(&mut bytes, mtu);

        let most = mtu.checked_sub(headers);
        prop_assert_eq!(clamped, most.is_some_and(|most| mss > most));
        let expected = if clamped { most.unwrap() } else { mss };
        options[padding + 2..padding + 4].copy_from_slice(&expected.to_be_bytes());
        packet.tcp().set_options_raw(&options).unwrap();
        prop_assert!(tcp_is_right(&bytes));
        prop_assert_eq!(bytes, packet.build());
    }
}
