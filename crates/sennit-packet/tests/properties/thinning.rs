use proptest::prelude::*;
use sennit_packet::IpPacket;
use sennit_packet::checksum::Progress;
use sennit_packet::thin::{Pace, Sight, Template};

use crate::build::{Ip, Packet, any_packet, tcp_v4, tcp_v6, udp_v4, udp_v6};
use crate::seeded;

fn template(packet: &[u8], seq: u32, pace: Pace) -> Option<Template> {
    Template::of(&IpPacket::parse(packet).unwrap(), seq, pace)
}

/// The template of a flow of which these packets follow one another.
fn learned(earlier: &[u8], later: &[u8], seq: u32) -> Template {
    let sight = |bytes, seq| Sight::of(&IpPacket::parse(bytes).unwrap(), seq);
    let pace = sight(earlier, seq.wrapping_sub(1)).pace(&sight(later, seq));
    template(later, seq, pace).unwrap()
}

/// The thin form of a packet, after its way back has been checked; `None` if it has none.
fn thin(template: &Template, packet: &[u8], seq: u32, checksum: Progress) -> Option<Vec<u8>> {
    let thin = template.shrink(packet, seq, checksum)?;
    let wire = [thin.bytes(), &packet[thin.replaces..]].concat();
    assert!(wire.len() < packet.len(), "in place");
    let back = template.expand(&wire, seq).expect("what was shrunk");
    assert_eq!([back.head(), back.payload].concat(), packet);
    assert_eq!((back.checksum, back.packet_len()), (checksum, packet.len()));
    Some(wire)
}

fn saved(template: &Template, packet: &[u8], seq: u32) -> usize {
    packet.len() - thin(template, packet, seq, Progress::Whole).unwrap().len()
}

fn rtp(number: u16, time: u32, mark: bool) -> Vec<u8> {
    let mut payload = vec![0x80, if mark { 0x92 } else { 18 }];
    payload.extend(number.to_be_bytes());
    payload.extend(time.to_be_bytes());
    payload.extend([0xde, 0xad, 0xbe, 0xef]);
    payload.extend([7; 20]);
    payload
}

/// A packet of a call: 20 bytes of speech every 20 ms.
fn voice(packet: &Packet, index: u16, number: u16, time: u32, mark: bool) -> Vec<u8> {
    let payload = rtp(number, time, mark);
    let packet = Packet {
        payload,
        ..packet.clone()
    };
    packet.later(index, 0).build()
}

fn any_pace() -> impl Strategy<Value = Pace> {
    (any::<bool>(), prop::option::of(any::<u16>()))
        .prop_map(|(counts_id, rtp)| Pace { counts_id, rtp })
}

proptest! {
    #![proptest_config(seeded(512))]

    #[test]
    fn a_packet_comes_back_bit_by_bit_or_is_refused(
        (first, other) in (any_packet(400), any_packet(400)),
        pace in any_pace(),
        edits in prop::collection::vec((0..80_usize, any::<u8>()), 0..4),
        (seq, passed) in (any::<u32>(), 0..100_000_u32),
        partial in any::<bool>(),
        same in prop::bool::weighted(0.9),
    ) {
        let of = first.build();
        let Some(template) = template(&of, seq, pace) else {
            return Ok(());
        };
        let mut packet = if same { of } else { other.build() };
        for (at, value) in edits {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        let checksum = if partial { Progress::Partial } else { Progress::Whole };
        thin(&template, &packet, seq.wrapping_add(passed), checksum);
        let headers = template.headers();
        prop_assert_eq!(Template::parse(headers, seq, pace), Some(template.clone()));
        for cut in 0..headers.len() {
            prop_assert_eq!(Template::parse(&headers[..cut], seq, pace), None);
        }
    }

    #[test]
    fn any_bytes_are_a_packet_or_refused(
        first in any_packet(100),
        pace in any_pace(),
        wire in prop::collection::vec(any::<u8>(), 0..120),
        seq in any::<u32>(),
    ) {
        let Some(template) = template(&first.build(), 7, pace) else {
            return Ok(());
        };
        if let Some(back) = template.expand(&wire, seq) {
            let packet = [back.head(), back.payload].concat();
            prop_assert!(IpPacket::parse(&packet).is_ok());
        }
    }
}

#[test]
fn a_transfer_saves_the_headers_that_do_not_change() {
    for (packet, least) in [(tcp_v4(), 38), (tcp_v6(), 58)] {
        let packet = Packet {
            payload: vec![7; 1300],
            ..packet
        };
        let train: Vec<_> = packet.train(40).iter().map(Packet::build).collect();
        let template = learned(&train[0], &train[1], 101);
        for (index, packet) in train.iter().enumerate() {
            // The template's own packet carries no sequence number either.
            let own = if index == 1 { 4 } else { 0 };
            let seq = 100 + index as u32;
            assert_eq!(saved(&template, packet, seq), least + own);
        }
    }
}

#[test]
fn a_partial_checksum_costs_nothing() {
    for packet in [tcp_v4(), tcp_v6(), udp_v4(), udp_v6()] {
        let packet = Packet {
            payload: vec![7; 1300],
            ..packet
        };
        let (_, bytes) = packet.build_partial();
        let template = template(&bytes, 0, Pace::default()).unwrap();
        let whole = saved(&template, &packet.build(), 0);
        let partial = thin(&template, &bytes, 0, Progress::Partial).unwrap();
        assert_eq!(bytes.len() - partial.len(), whole + 2);
    }
}

#[test]
fn a_call_costs_one_byte_beside_its_speech() {
    for (packet, headers) in [(udp_v4(), 40), (udp_v6(), 60)] {
        let call = |index: u16| {
            voice(
                &packet,
                index,
                65_530 + index,
                160 * u32::from(index),
                false,
            )
        };
        let template = learned(&call(0), &call(1), 501);
        assert!(template.is_rtp());
        for index in 0..6 {
            let at = 500 + u32::from(index);
            assert_eq!(saved(&template, &call(index), at), headers - 1);
        }
        // After a silence the time has jumped, and the first packet is marked.
        let after = voice(&packet, 3, 65_533, 99_999, true);
        assert_eq!(saved(&template, &after, 503), headers - 1 - 4);
        assert!(
            template
                .shrink(&after, 503, Progress::Whole)
                .unwrap()
                .is_stale
        );
        // What is no RTP of this call still saves the headers of IP and UDP.
        let other = Packet {
            payload: b"keep-alive".to_vec(),
            ..packet.clone()
        };
        assert_eq!(
            saved(&template, &other.later(4, 0).build(), 504),
            headers - 12 - 1
        );
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    for packet in [tcp_v4(), udp_v6()] {
        let good = packet.build();
        let template = template(&good, 0, Pace::default()).unwrap();
        let mut bad = good.clone();
        let last = bad.len() - 1;
        bad[last] ^= 1;
        assert_eq!(saved(&template, &bad, 0) + 2, saved(&template, &good, 0));
    }
    let good = udp_v4().build();
    let template = template(&good, 0, Pace::default()).unwrap();
    let mut header = good.clone();
    header[11] ^= 1;
    assert!(template.shrink(&header, 0, Progress::Whole).is_none());
    let mut none = good;
    none[26..28].fill(0);
    thin(&template, &none, 0, Progress::Whole).unwrap();
}

#[test]
fn what_is_of_another_flow_or_way_is_refused() {
    let packet = tcp_v4();
    let template = template(&packet.build(), 0, Pace::default()).unwrap();
    let mut hop = packet.clone();
    hop.v4().time_to_live -= 1;
    let mut fragment = packet.clone();
    fragment.v4().more_fragments = true;
    for other in [
        packet.clone().with_source_port(9),
        hop,
        fragment.clone(),
        udp_v4(),
        tcp_v6(),
    ] {
        assert!(
            template
                .shrink(&other.build(), 0, Progress::Whole)
                .is_none()
        );
    }
    let bytes = fragment.build();
    assert!(Template::of(&IpPacket::parse(&bytes).unwrap(), 0, Pace::default()).is_none());
}

#[test]
fn selective_acknowledgements_and_marks_are_carried() {
    let packet = tcp_v4();
    let template = template(&packet.build(), 0, Pace::default()).unwrap();
    let mut sack = packet.clone();
    let mut options = vec![1, 1, 8, 10, 1, 2, 3, 9, 5, 6, 7, 9, 1, 1, 5, 10];
    options.extend([0, 0, 1, 0, 0, 0, 2, 0]);
    sack.tcp().set_options_raw(&options).unwrap();
    assert!(thin(&template, &sack.build(), 0, Progress::Whole).is_some());
    let mut marked = packet.build();
    assert!(sennit_packet::rewrite::set_ecn_ce(&mut marked) || matches!(packet.ip, Ip::V4(_)));
    thin(&template, &marked, 0, Progress::Whole).unwrap();
    let mut late = packet;
    late.tcp()
        .set_options_raw(&[1, 1, 8, 10, 9, 9, 9, 9, 5, 6, 7, 8])
        .unwrap();
    let late = late.build();
    assert!(template.shrink(&late, 0, Progress::Whole).unwrap().is_stale);
    thin(&template, &late, 0, Progress::Whole).unwrap();
}
