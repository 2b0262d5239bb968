use etherparse::checksum::Sum16BitWords;
use proptest::prelude::*;
use sennit_packet::checksum::{Sum, update};
use sennit_packet::{verify_header, verify_transport};

use crate::build::{any_packet, tcp_v6, udp_v4, udp_v6, with_routing};
use crate::seeded;

/// The checksum as `etherparse` computes it.
fn reference(bytes: &[u8]) -> u16 {
    Sum16BitWords::new()
        .add_slice(bytes)
        .ones_complement()
        .to_be()
}

proptest! {
    #![proptest_config(seeded(256))]

    #[test]
    fn a_sum_is_what_another_implementation_finds(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        prop_assert_eq!(Sum::of(&bytes).checksum(), reference(&bytes));
    }

    #[test]
    fn the_sums_of_two_parts_add_up(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        cut in any::<prop::sample::Index>(),
    ) {
        let (front, back) = bytes.split_at(cut.index(bytes.len() + 1) & !1);
        prop_assert_eq!((Sum::of(front) + Sum::of(back)).checksum(), reference(&bytes));
    }

    #[test]
    fn an_update_equals_computing_anew(
        mut words in prop::collection::vec(any::<u16>(), 1..100),
        at in any::<prop::sample::Index>(),
        new in any::<u16>(),
    ) {
        // RFC 1624 §3: only data of nothing but zeros has two representations.
        words.push(1);
        let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let before: Vec<u8> = bytes(&words);
        let at = at.index(words.len() - 1);
        let old = std::mem::replace(&mut words[at], new);
        let after: Vec<u8> = bytes(&words);

        prop_assert_eq!(update(reference(&before), old, new), reference(&after));
    }

    #[test]
    fn a_good_packet_verifies_and_a_flipped_bit_does_not(
        packet in any_packet(2000),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut bytes = packet.build();
        prop_assert!(verify_header(&bytes));
        prop_assert!(verify_transport(&bytes));

        // Any bit of the payload: those of the headers may change what the packet is.
        let start = bytes.len() - packet.payload.len();
        let bit = bit.index(packet.payload.len() * 8);
        bytes[start + bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!verify_transport(&bytes));
    }
}

/// RFC 768 allows a datagram without checksum, RFC 8200 §8.1 does not.
#[test]
fn only_ipv4_may_do_without_a_udp_checksum() {
    let (mut v4, mut v6) = (udp_v4().build(), udp_v6().build());
    v4[26..28].fill(0);
    v6[46..48].fill(0);
    assert!(verify_transport(&v4));
    assert!(!verify_transport(&v6));
}

#[test]
fn the_tail_behind_a_datagram_is_not_covered() {
    let mut packet = udp_v6().build();
    packet.push(0xee);
    packet[5] += 1;
    assert!(verify_transport(&packet));
    packet[100] ^= 1;
    assert!(!verify_transport(&packet));
}

/// RFC 8200 §8.1: the pseudo header has the final destination, which the routing header knows.
#[test]
fn a_packet_on_its_way_through_a_routing_header_proves_nothing() {
    let mut packet = tcp_v6().build();
    packet[60] ^= 1;
    assert!(verify_transport(&with_routing(packet.clone(), 1)));
    assert!(!verify_transport(&with_routing(packet, 0)));
}
