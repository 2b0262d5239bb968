//! Bytes that were a packet once, or never.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use sennit_packet::coalesce::{Coalescer, Write};
use sennit_packet::gso::{Segments, Tier, VirtioNetHdr};
use sennit_packet::icmp::{self, Reason};
use sennit_packet::rewrite::{clamp_mss, decrement_ttl, set_ecn_ce};
use sennit_packet::{FlowKey, IpPacket, verify_header, verify_transport};

use crate::build::any_packet;
use crate::seeded;

/// A packet of which some bytes have been overwritten and the length may have been cut.
fn any_damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (
        any_packet(200),
        damage,
        any::<prop::sample::Index>(),
        any::<bool>(),
    )
        .prop_map(|(packet, damage, cut, is_cut)| {
            let mut bytes = packet.build();
            for (at, byte) in damage {
                // Headers are where damage matters.
                let at = at.index(bytes.len().min(64));
                bytes[at] = byte;
            }
            if is_cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes
        })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any_damaged(),
        any_extended(),
        prop::collection::vec(any::<u8>(), 0..200)
    ]
}

/// An IPv6 packet whose lengths agree, with random headers that often are extensions.
fn any_extended() -> impl Strategy<Value = Vec<u8>> {
    let next = prop::sample::select(vec![0_u8, 6, 17, 43, 44, 50, 51, 58, 59, 60, 135, 139, 140]);
    let header = (next.clone(), 0_u8..3, any::<[u8; 6]>());
    (next, prop::collection::vec(header, 0..30)).prop_map(|(next, headers)| {
        let length = u16::try_from(headers.len() * 8).unwrap();
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([next, 64]);
        packet.extend([0x20; 32]);
        for (next, length, rest) in headers {
            packet.extend([next, length]);
            packet.extend(rest);
        }
        packet
    })
}

fn any_header() -> impl Strategy<Value = VirtioNetHdr> {
    let gso_type = prop_oneof![
        4 => prop::sample::select(vec![0, 1, 4, 5, 0x81, 0x84]),
        1 => any::<u8>(),
    ];
    let start = prop_oneof![4 => prop::sample::select(vec![20_u16, 40]), 1 => any::<u16>()];
    (any::<u8>(), gso_type, any::<[u16; 3]>(), start).prop_map(
        |(flags, gso_type, [hdr_len, gso_size, csum_offset], csum_start)| VirtioNetHdr {
            flags,
            gso_type,
            hdr_len,
            gso_size: gso_size % 300,
            csum_start,
            csum_offset: csum_offset % 100,
        },
    )
}

fn any_reason() -> impl Strategy<Value = Reason> {
    prop_oneof![
        any::<u32>().prop_map(|mtu| Reason::TooBig { mtu }),
        Just(Reason::NoRoute),
        Just(Reason::HostUnreachable),
        Just(Reason::Prohibited),
        Just(Reason::SourcePolicy),
        Just(Reason::TimeExceeded),
    ]
}

proptest! {
    #![proptest_config(seeded(2000))]

    #[test]
    fn a_parsed_packet_answers_every_question(bytes in any_bytes()) {
        verify_transport(&bytes);
        verify_header(&bytes);
        if let Ok(packet) = IpPacket::parse(&bytes) {
            prop_assert_eq!(packet.total_len(), bytes.len());
            prop_assert!(packet.transport_offset() <= bytes.len());
            prop_assert!(packet.ports().is_none() || packet.transport().len() >= 4);
            prop_assert!(packet.tcp_flags().is_none() || packet.transport().len() >= 20);
            let key = FlowKey::of(&packet);
            prop_assert_eq!(key.reversed().reversed(), key);
        }
    }

    #[test]
    fn rewriting_keeps_a_packet_a_packet(bytes in any_bytes(), mtu in any::<u16>()) {
        let mut rewritten = bytes.clone();
        let changed = [
            decrement_ttl(&mut rewritten).is_ok(),
            clamp_mss(&mut rewritten, mtu),
            set_ecn_ce(&mut rewritten),
        ];

        prop_assert_eq!(IpPacket::parse(&bytes).is_ok(), IpPacket::parse(&rewritten).is_ok());
        prop_assert_eq!(
            verify_header(&bytes), verify_header(&rewritten));
        if changed == [false; 3] {
            prop_assert_eq!(bytes, rewritten);
        }
    }

    #[test]
    fn an_icmp_error_is_a_whole_packet_to_the_sender(
        bytes in any_bytes(),
        reason in any_reason(),
        room in 0_usize..1400,
        is_v4 in any::<bool>(),
    ) {
        let v4 = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
        let source = if is_v4 { v4 } else { IpAddr::V6(Ipv6Addr::LOCALHOST) };
        let mut out = vec![0xaa; room];
        if let Some(length) = icmp::error(&bytes, reason, source, &mut out) {
            let answer = IpPacket::parse(&out[..length]).unwrap();
            prop_assert_eq!(answer.src(), source);
            prop_assert_eq!(answer.dst(), IpPacket::parse(&bytes).unwrap().src());
            prop_assert!(verify_header(&out[..length]));
            prop_assert!(verify_transport(&out[..length]));
            let longest = if is_v4 { 576 } else { 1280 };
            prop_assert!(length <= longest);
        }
    }

    #[test]
    fn segments_of_anything_are_packets(bytes in any_bytes(), header in any_header()) {
        if let Ok(segments) = Segments::new(&header, &bytes) {
            for index in 0..segments.count() {
                let length = segments.segment_len(index).unwrap();
                let mut out = vec![0; length];
                prop_assert_eq!(segments.write(index, &mut out), Some(length));
                let is_split = header.gso_type != VirtioNetHdr::GSO_NONE;
                if is_split {
                    prop_assert!(IpPacket::parse(&out).is_ok());
                    prop_assert!(verify_transport(&out));
                }
            }
        }
    }

    #[test]
    fn no_packet_of_a_damaged_batch_is_lost(
        batch in prop::collection::vec(any_bytes(), 0..20),
        repeat in any::<bool>(),
    ) {
        let copies = if repeat { 2 } else { 1 };
        let batch: Vec<_> = std::iter::repeat_n(batch, copies).flatten().collect();
        let mut coalescer = Coalescer::new(Tier::TsoUso);
        let writes: Vec<_> = coalescer.coalesce(&batch).collect();
        prop_assert_eq!(writes.iter().map(Write::packets).sum::<usize>(), batch.len());
        for write in &writes {
            let pieces: usize = write.payloads().map(<[u8]>::len).sum();
            prop_assert_eq!(write.head().len() + pieces, write.total_len());
        }
    }
}
