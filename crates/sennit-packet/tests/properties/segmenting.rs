use proptest::prelude::*;
use sennit_packet::PacketError;
use sennit_packet::gso::{GsoError, Segments, VirtioNetHdr};

use crate::build::{Packet, any_packet, tcp_v4, tcp_v6, udp_v4, udp_v6, with_routing};
use crate::seeded;

pub(crate) fn written(segments: &Segments<'_>) -> Vec<Vec<u8>> {
    let write = |index| {
        let mut out = vec![0xaa; segments.segment_len(index).unwrap()];
        assert_eq!(segments.write(index, &mut out), Some(out.len()));
        out
    };
    (0..segments.count()).map(write).collect()
}

fn built(packets: &[Packet]) -> Vec<Vec<u8>> {
    packets.iter().map(Packet::build).collect()
}

proptest! {
    #![proptest_config(seeded(256))]

    #[test]
    fn segments_are_the_packets_of_a_sender_without_offload(
        packet in any_packet(20_000),
        size in 100_u16..3000,
    ) {
        let (header, bytes) = packet.build_super(size);
        let segments = Segments::new(&header, &bytes).unwrap();

        prop_assert_eq!(written(&segments), built(&packet.split(size.into())));
        prop_assert_eq!(segments.as_is(), None);
    }

    #[test]
    fn a_partial_checksum_is_completed(packet in any_packet(3000)) {
        let (header, bytes) = packet.build_partial();
        let segments = Segments::new(&header, &bytes).unwrap();

        prop_assert_eq!(written(&segments), [packet.build()]);
    }
}

#[test]
fn a_packet_with_nothing_to_do_passes_as_it_is() {
    let bytes = tcp_v4().build();
    let segments = Segments::new(&VirtioNetHdr::default(), &bytes).unwrap();
    assert_eq!(segments.as_is(), Some(&bytes[..]));
    assert_eq!(written(&segments)[0], bytes);
}

#[test]
fn only_the_last_segment_finishes_and_only_the_first_reports_the_window_reduced() {
    let mut packet = Packet {
        payload: vec![1; 250],
        ..tcp_v6()
    };
    [packet.tcp().psh, packet.tcp().fin, packet.tcp().cwr] = [true; 3];
    let (mut header, bytes) = packet.build_super(100);
    header.gso_type |= VirtioNetHdr::GSO_ECN;

    let segments = written(&Segments::new(&header, &bytes).unwrap());

    let flags: Vec<u8> = segments.iter().map(|segment| segment[40 + 13]).collect();
    assert_eq!(flags, [0x90, 0x10, 0x19]);
}

#[test]
fn identification_and_sequence_number_wrap_around() {
    let mut packet = Packet {
        payload: vec![1; 250],
        ..tcp_v4()
    };
    packet.v4().identification = 0xffff;
    packet.tcp().sequence_number = u32::MAX - 99;
    let (header, bytes) = packet.build_super(100);

    let segments = written(&Segments::new(&header, &bytes).unwrap());

    assert_eq!(segments[1][4..6], [0, 0]);
    assert_eq!(segments[1][24..28], [0, 0, 0, 0]);
    assert_eq!(segments[2][24..28], [0, 0, 0, 100]);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    // A word that complements the sum of all others makes the checksum zero.
    let mut packet = Packet {
        payload: vec![0, 0],
        ..udp_v6()
    };
    let complement: [u8; 2] = packet.build()[46..48].try_into().unwrap();
    packet.payload = complement.to_vec();
    let (header, bytes) = packet.build_super(2);
    let (partial, partial_bytes) = packet.build_partial();

    let cut = written(&Segments::new(&header, &bytes).unwrap());
    let completed = written(&Segments::new(&partial, &partial_bytes).unwrap());

    assert_eq!(cut[0][46..48], [0xff, 0xff]);
    assert_eq!(completed[0][46..48], [0xff, 0xff]);
}

#[test]
fn the_largest_super_packets_are_cut() {
    let payload = vec![1; 65_535 - 52];
    let (header, bytes) = Packet {
        payload: payload.clone(),
        ..tcp_v4()
    }
    .build_super(1);
    let segments = Segments::new(&header, &bytes).unwrap();
    assert_eq!(segments.count(), payload.len());
    assert_eq!(segments.segment_len(payload.len() - 1), Some(53));

    let packet = Packet {
        payload: vec![1; 65_535 - 8],
        ..udp_v6()
    };
    let (header, bytes) = packet.build_super(1400);
    let segments = written(&Segments::new(&header, &bytes).unwrap());
    assert_eq!(segments, built(&packet.split(1400)));
}

#[test]
fn a_super_packet_without_payload_is_one_segment() {
    let packet = Packet {
        payload: vec![],
        ..tcp_v4()
    };
    let (header, bytes) = packet.build_super(100);
    let segments = Segments::new(&header, &bytes).unwrap();
    assert_eq!(written(&segments), [packet.build()]);
}

#[test]
fn no_segment_is_written_past_the_last_or_into_too_short_a_buffer() {
    let (header, bytes) = udp_v4().build_super(60);
    let segments = Segments::new(&header, &bytes).unwrap();
    let mut out = [0xaa; 87];

    assert_eq!(segments.segment_len(2), None);
    assert_eq!(segments.write(2, &mut out), None);
    assert_eq!(segments.write(0, &mut out), None);
    assert_eq!(out, [0xaa; 87]);
}

#[test]
fn a_header_that_contradicts_its_packet_is_refused() {
    let error = |header: VirtioNetHdr, packet: &[u8]| Segments::new(&header, packet).unwrap_err();
    let (tcp, tcp_bytes) = tcp_v4().build_super(100);
    let (udp, udp_bytes) = udp_v4().build_super(100);
    let v6 = VirtioNetHdr {
        gso_type: VirtioNetHdr::GSO_TCPV6,
        ..tcp
    };

    assert_eq!(error(tcp, &[]), GsoError::Packet(PacketError::Truncated));
    assert_eq!(
        error(tcp, &tcp_bytes[..50]),
        GsoError::Packet(PacketError::Truncated)
    );
    assert_eq!(error(tcp, &udp_bytes), GsoError::NotSegmentable);
    assert_eq!(error(udp, &tcp_bytes), GsoError::NotSegmentable);
    assert_eq!(error(v6, &tcp_bytes), GsoError::NotSegmentable);
    let zero = VirtioNetHdr { gso_size: 0, ..tcp };
    assert_eq!(error(zero, &tcp_bytes), GsoError::NoSegmentSize);
    let legacy = VirtioNetHdr { gso_type: 3, ..udp };
    assert_eq!(error(legacy, &udp_bytes), GsoError::UnknownType(3));
    let elsewhere = VirtioNetHdr {
        csum_start: 24,
        ..tcp
    };
    assert_eq!(error(elsewhere, &tcp_bytes), GsoError::BadChecksumField);
}

#[test]
fn a_checksum_outside_the_packet_is_refused() {
    let bytes = udp_v4().build();
    for (csum_start, csum_offset) in [(127, 0), (65_535, 65_535), (0, 128)] {
        let flags = VirtioNetHdr::NEEDS_CSUM;
        let header = VirtioNetHdr {
            flags,
            csum_start,
            csum_offset,
            ..VirtioNetHdr::default()
        };
        let error = Segments::new(&header, &bytes).unwrap_err();
        assert_eq!(
            error,
            GsoError::BadChecksumField,
            "{csum_start} {csum_offset}"
        );
    }
}

#[test]
fn a_fragment_or_a_truncated_transport_header_is_no_super_packet() {
    let (header, mut fragment) = tcp_v4().build_super(100);
    fragment[6] = 0x20;
    let mut long_header = tcp_v4().build();
    long_header[32] = 0xf0;
    long_header.truncate(70);
    long_header[3] = 70;
    for bytes in [fragment, long_header] {
        assert_eq!(
            Segments::new(&header, &bytes).unwrap_err(),
            GsoError::NotSegmentable
        );
    }
}

/// The final destination, which the pseudo header needs, is not known.
#[test]
fn a_super_packet_on_its_way_through_a_routing_header_is_refused() {
    let (mut header, bytes) = udp_v6().build_super(60);
    header.csum_start += 8;
    let error =
        |segments_left| Segments::new(&header, &with_routing(bytes.clone(), segments_left)).err();
    assert_eq!(error(1), Some(GsoError::NotSegmentable));
    assert_eq!(error(0), None);
}

#[test]
fn segments_keep_their_extension_headers() {
    let (mut header, bytes) = udp_v6().build_super(60);
    header.csum_start += 8;
    let bytes = with_routing(bytes, 0);
    let expected = udp_v6()
        .split(60)
        .into_iter()
        .map(|packet| with_routing(packet.build(), 0));
    let segments = Segments::new(&header, &bytes).unwrap();
    assert_eq!(written(&segments), expected.collect::<Vec<_>>());
}
