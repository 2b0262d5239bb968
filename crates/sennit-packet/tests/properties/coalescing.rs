use sennit_packet::coalesce::{Coalescer, MAX_FLOWS, MAX_SEGMENTS, Write};
use sennit_packet::gso::{Tier, VirtioNetHdr};

use crate::build::{Packet, tcp_v4, tcp_v6, udp_v4, udp_v6};
use crate::round_trip::bytes_of;

fn built(packets: &[Packet]) -> Vec<Vec<u8>> {
    packets.iter().map(Packet::build).collect()
}

/// How many packets each write takes.
fn joined(tier: Tier, batch: &[Vec<u8>]) -> Vec<usize> {
    Coalescer::new(tier)
        .coalesce(batch)
        .map(|write| write.packets())
        .collect()
}

/// Whether the coalescer joins two packets.
fn joins(first: &Packet, second: &Packet) -> bool {
    joined(Tier::TsoUso, &[first.build(), second.build()]) == [2]
}

/// The second packet of a train after `first`, changed.
fn second(first: &Packet, change: impl FnOnce(&mut Packet)) -> Packet {
    let mut packet = first.later(1, first.payload.len());
    change(&mut packet);
    packet
}

#[test]
fn neighbours_of_one_flow_leave_as_one_super_packet() {
    let cases = [
        (tcp_v4(), VirtioNetHdr::GSO_TCPV4, 20, 16, 52),
        (tcp_v6(), VirtioNetHdr::GSO_TCPV6, 40, 16, 72),
        (udp_v4(), VirtioNetHdr::GSO_UDP_L4, 20, 6, 28),
        (udp_v6(), VirtioNetHdr::GSO_UDP_L4, 40, 6, 48),
    ];
    for (packet, gso_type, csum_start, csum_offset, hdr_len) in cases {
        let batch = built(&packet.train(5));
        let mut coalescer = Coalescer::new(Tier::TsoUso);
        let writes: Vec<_> = coalescer.coalesce(&batch).collect();

        assert_eq!(writes.len(), 1);
        let flags = VirtioNetHdr::NEEDS_CSUM;
        let header = VirtioNetHdr {
            flags,
            gso_type,
            hdr_len,
            gso_size: 100,
            csum_start,
            csum_offset,
        };
        assert_eq!(*writes[0].header(), header);
        assert_eq!(writes[0].total_len(), usize::from(hdr_len) + 500);
    }
}

/// What the kernel gets is what a sender with offload would have handed over.
#[test]
fn a_super_packet_has_the_headers_of_a_sender_with_offload() {
    for packet in [tcp_v4(), tcp_v6(), udp_v4(), udp_v6()] {
        let batch = built(&packet.train(5));
        let whole = Packet {
            payload: vec![1; 500],
            ..packet
        };
        let (header, expected) = whole.build_partial();
        let mut coalescer = Coalescer::new(Tier::TsoUso);
        let write = coalescer.coalesce(&batch).next().unwrap();

        assert_eq!(bytes_of(&write), expected);
        assert_eq!(write.header().csum_start, header.csum_start);
        assert_eq!(write.header().csum_offset, header.csum_offset);
    }
}

#[test]
fn payloads_are_slices_of_the_batch() {
    let batch = built(&tcp_v4().train(3));
    let mut coalescer = Coalescer::new(Tier::Tso);
    let write = coalescer.coalesce(&batch).next().unwrap();

    let slices: Vec<_> = write.payloads().map(<[u8]>::as_ptr).collect();
    assert_eq!(
        slices,
        batch
            .iter()
            .map(|packet| packet[52..].as_ptr())
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_single_packet_passes_as_it_is() {
    let batch = built(&[tcp_v4()]);
    let mut coalescer = Coalescer::new(Tier::TsoUso);
    let write = coalescer.coalesce(&batch).next().unwrap();

    assert_eq!(*write.header(), VirtioNetHdr::default());
    assert!(write.head().is_empty());
    assert_eq!(bytes_of(&write), batch[0]);
}

#[test]
fn a_device_gets_only_what_its_tier_takes() {
    let mut batch = built(&tcp_v4().train(2));
    batch.extend(built(&udp_v4().train(2)));
    assert_eq!(joined(Tier::None, &batch), [1, 1, 1, 1]);
    assert_eq!(joined(Tier::Tso, &batch), [2, 1, 1]);
    assert_eq!(joined(Tier::TsoUso, &batch), [2, 2]);
}

#[test]
fn a_shorter_packet_is_the_last() {
    for packet in [tcp_v4(), udp_v6()] {
        let mut train = packet.train(4);
        train[2].payload.truncate(40);
        train[3] = train[2].later(1, 40);
        assert_eq!(joined(Tier::TsoUso, &built(&train)), [3, 1]);
    }
}

#[test]
fn a_longer_packet_starts_anew() {
    for packet in [tcp_v4(), udp_v6()] {
        let longer = second(&packet, |packet| packet.payload.push(1));
        assert!(!joins(&packet, &longer));
    }
}

#[test]
fn fin_ends_a_super_packet_and_shows_in_it() {
    let mut train = tcp_v4().train(4);
    train[2].tcp().fin = true;
    let batch = built(&train);
    assert_eq!(joined(Tier::Tso, &batch), [3, 1]);

    let mut coalescer = Coalescer::new(Tier::Tso);
    let write = coalescer.coalesce(&batch).next().unwrap();
    assert_eq!(write.head()[33], batch[2][33]);
}

#[test]
fn pushes_are_collapsed_into_one_at_the_end() {
    let pushes: [&[usize]; 4] = [&[0], &[1, 2], &[3], &[0, 1, 2, 3]];
    for pushed in pushes {
        let mut whole = Packet {
            payload: vec![1; 400],
            ..tcp_v4()
        };
        whole.tcp().psh = true;
        let mut train = tcp_v4().train(4);
        for &index in pushed {
            train[index].tcp().psh = true;
        }
        let batch = built(&train);
        let mut coalescer = Coalescer::new(Tier::Tso);
        let writes: Vec<_> = coalescer.coalesce(&batch).collect();

        assert_eq!(writes.len(), 1);
        assert_eq!(bytes_of(&writes[0]), whole.build_partial().1);
    }
}

#[test]
fn different_headers_are_never_joined() {
    let tcp: [fn(&mut Packet); 7] = [
        |packet| packet.tcp().acknowledgment_number += 1,
        |packet| packet.tcp().window_size += 1,
        |packet| packet.tcp().ece = true,
        |packet| packet.tcp().ns = true,
        |packet| {
            packet
                .tcp()
                .set_options_raw(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 9])
                .unwrap();
        },
        |packet| packet.tcp().set_options_raw(&[]).unwrap(),
        |packet| packet.tcp().destination_port += 1,
    ];
    let v4: [fn(&mut Packet); 5] = [
        |packet| packet.v4().time_to_live -= 1,
        |packet| packet.v4().dscp = etherparse::IpDscp::EF,
        |packet| packet.v4().ecn = etherparse::IpEcn::CongestionExperienced,
        |packet| packet.v4().dont_fragment = false,
        |packet| packet.v4().source[3] += 1,
    ];
    let v6: [fn(&mut Packet); 4] = [
        |packet| packet.v6().hop_limit -= 1,
        |packet| packet.v6().traffic_class ^= 3,
        |packet| packet.v6().flow_label = etherparse::Ipv6FlowLabel::ZERO,
        |packet| packet.v6().destination[15] += 1,
    ];
    let changes = |bases: [Packet; 2], changes: &[fn(&mut Packet)]| {
        for (index, change) in changes.iter().enumerate() {
            for base in &bases {
                assert!(joins(base, &second(base, |_| ())));
                assert!(!joins(base, &second(base, change)), "{index} {base:?}");
            }
        }
    };
    changes([tcp_v4(), tcp_v6()], &tcp);
    changes([tcp_v4(), udp_v4()], &v4);
    changes([tcp_v6(), udp_v6()], &v6);
}

#[test]
fn a_gap_or_a_repetition_in_the_sequence_is_kept() {
    let packet = tcp_v6();
    assert!(!joins(&packet, &packet.later(1, 101)));
    assert!(!joins(&packet, &packet.later(1, 99)));
    assert!(!joins(&packet, &packet));
}

#[test]
fn the_sequence_number_may_wrap_around() {
    let mut packet = tcp_v6();
    packet.tcp().sequence_number = u32::MAX - 50;
    assert_eq!(joined(Tier::Tso, &built(&packet.train(3))), [3]);
}

/// RFC 6864 §4.1: with DF set the identification means nothing; without, it must count up so
/// that the kernel can restore it.
#[test]
fn the_identification_must_count_up_where_it_means_anything() {
    for base in [tcp_v4(), udp_v4()] {
        let same_id = second(&base, |packet| packet.v4().identification -= 1);
        assert!(joins(&base, &same_id));

        let mut base = base;
        base.v4().dont_fragment = false;
        let same_id = second(&base, |packet| packet.v4().identification -= 1);
        assert!(joins(&base, &second(&base, |_| ())));
        assert!(!joins(&base, &same_id));
    }
}

#[test]
fn segments_that_steer_the_connection_pass_as_they_are() {
    let flags: [fn(&mut Packet); 5] = [
        |packet| packet.tcp().syn = true,
        |packet| packet.tcp().rst = true,
        |packet| packet.tcp().urg = true,
        |packet| packet.tcp().cwr = true,
        |packet| packet.tcp().ack = false,
    ];
    for set in flags {
        let mut base = tcp_v4();
        set(&mut base);
        assert_eq!(joined(Tier::Tso, &built(&base.train(3))), [1, 1, 1]);
    }
}

#[test]
fn nothing_overtakes_a_packet_of_its_flow_that_cannot_be_joined() {
    let train = tcp_v4().train(4);
    let mut acknowledgement = train[2].clone();
    acknowledgement.payload.clear();
    let batch = built(&[&train[..2], &[acknowledgement], &train[2..]].concat());
    assert_eq!(joined(Tier::Tso, &batch), [2, 1, 2]);
}

#[test]
fn a_fragment_is_overtaken_by_nothing() {
    let train = udp_v4().train(4);
    let mut fragment = udp_v4();
    fragment.v4().dont_fragment = false;
    fragment.v4().fragment_offset = 100.try_into().unwrap();
    let batch = built(&[&train[..2], &[fragment], &train[2..]].concat());
    assert_eq!(joined(Tier::TsoUso, &batch), [2, 1, 2]);
}

#[test]
fn a_corrupt_packet_passes_as_it_is() {
    for base in [tcp_v4(), tcp_v6(), udp_v4(), udp_v6()] {
        for corrupt in 0..5 {
            let mut batch = built(&base.train(5));
            *batch[corrupt].last_mut().unwrap() ^= 1;
            let mut coalescer = Coalescer::new(Tier::TsoUso);
            let writes: Vec<_> = coalescer.coalesce(&batch).collect();

            let alone = writes
                .iter()
                .find(|write| bytes_of(write) == batch[corrupt])
                .unwrap();
            assert_eq!(alone.packets(), 1);
            assert_eq!(writes.iter().map(Write::packets).sum::<usize>(), 5);
        }
    }
}

#[test]
fn a_corrupt_ipv4_header_passes_as_it_is() {
    let mut batch = built(&tcp_v4().train(3));
    batch[1][10] ^= 1;
    assert_eq!(joined(Tier::Tso, &batch), [1, 1, 1]);
}

#[test]
fn ip_options_and_extension_headers_pass_as_they_are() {
    let mut v4 = tcp_v4();
    v4.v4().options = [1, 1, 1, 1].into();
    assert_eq!(joined(Tier::Tso, &built(&v4.train(2))), [1, 1]);

    let extended = built(&udp_v6().train(2)).into_iter().map(|mut packet| {
        packet.splice(40..40, [17, 0, 1, 4, 0, 0, 0, 0]);
        packet[5] += 8;
        packet[6] = 60;
        packet
    });
    assert_eq!(joined(Tier::TsoUso, &extended.collect::<Vec<_>>()), [1, 1]);
}

#[test]
fn a_datagram_without_checksum_is_given_none() {
    let mut batch = built(&udp_v4().train(2));
    for packet in &mut batch {
        packet[26..28].copy_from_slice(&[0, 0]);
    }
    assert_eq!(joined(Tier::TsoUso, &batch), [1, 1]);
}

#[test]
fn a_datagram_shorter_than_its_packet_keeps_its_tail() {
    let batch = built(&udp_v6().train(2)).into_iter().map(|mut packet| {
        packet.push(0xee);
        packet[5] += 1;
        packet
    });
    assert_eq!(joined(Tier::TsoUso, &batch.collect::<Vec<_>>()), [1, 1]);
}

#[test]
fn interleaved_flows_are_joined_each_by_itself() {
    let flows: Vec<_> = (0..8)
        .map(|port| tcp_v4().with_source_port(port).train(10))
        .collect();
    let woven: Vec<_> = (0..10)
        .flat_map(|i| flows.iter().map(move |flow| flow[i].build()))
        .collect();
    assert_eq!(joined(Tier::Tso, &woven), [10; 8]);
}

#[test]
fn the_two_directions_of_a_connection_are_two_flows() {
    let there = tcp_v4();
    let mut back = tcp_v4();
    let header = back.v4();
    std::mem::swap(&mut header.source, &mut header.destination);
    let header = back.tcp();
    std::mem::swap(&mut header.source_port, &mut header.destination_port);
    let (there, back) = (there.train(2), back.train(2));
    let batch = [&there[0], &back[0], &there[1], &back[1]].map(Packet::build);
    assert_eq!(joined(Tier::Tso, &batch), [2, 2]);
}

#[test]
fn only_so_many_flows_grow_at_once() {
    let woven = |count: u16| {
        let flows = (0..count).map(|port| tcp_v6().with_source_port(port));
        let (first, second): (Vec<_>, Vec<_>) = flows
            .map(|flow| (flow.build(), flow.later(1, 100).build()))
            .unzip();
        [first, second].concat()
    };
    let most = u16::try_from(MAX_FLOWS).unwrap();
    assert_eq!(joined(Tier::Tso, &woven(most)), [2; MAX_FLOWS]);
    assert_eq!(
        joined(Tier::Tso, &woven(most + 1)),
        [1; 2 * (MAX_FLOWS + 1)]
    );
}

#[test]
fn a_super_packet_has_a_bounded_number_of_segments() {
    let mut base = tcp_v4();
    base.payload.truncate(1);
    assert_eq!(
        joined(Tier::Tso, &built(&base.train(150))),
        [MAX_SEGMENTS, MAX_SEGMENTS, 22]
    );
}

#[test]
fn a_super_packet_stays_below_64_kb() {
    for base in [tcp_v4(), tcp_v6(), udp_v4(), udp_v6()] {
        let base = Packet {
            payload: vec![1; 9000],
            ..base
        };
        let batch = built(&base.train(9));
        let mut coalescer = Coalescer::new(Tier::TsoUso);
        let writes: Vec<_> = coalescer.coalesce(&batch).collect();
        let packets: Vec<_> = writes.iter().map(Write::packets).collect();
        assert_eq!(packets, [7, 2]);
        assert!(writes.iter().all(|write| write.total_len() <= 65_535));
    }
}

#[test]
fn a_warm_coalescer_allocates_nothing() {
    let mut batch = built(&tcp_v4().train(64));
    batch.extend(built(&udp_v6().train(64)));
    let mut coalescer = Coalescer::new(Tier::TsoUso);
    let mut run = || {
        coalescer
            .coalesce(&batch)
            .map(|write| write.payloads().count())
            .sum()
    };
    let cold: usize = run();

    let mut warm = 0;
    let allocations = allocation_counter::measure(|| warm = run());

    assert_eq!((cold, warm), (128, 128));
    assert_eq!(allocations.count_total, 0);
}
