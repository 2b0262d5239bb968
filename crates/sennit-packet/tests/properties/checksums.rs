use etherparse::checksum::Sum16BitWords;
use proptest::prelude::*;
use sennit_packet::checksum::{Sum, update, verify_header, verify_transport};

use crate::build::any_packet;
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
    fn summing_while_copying_does_both(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        spare in 0_usize..100,
    ) {
        let mut copy = vec![0xaa; bytes.len() + spare];
        let sum = Sum::copy(&bytes, &mut copy);

        prop_assert_eq!(sum.checksum(), reference(&bytes));
        prop_assert_eq!(&copy[..bytes.len()], &bytes[..]);
        prop_assert!(copy[bytes.len()..].iter().all(|&byte| byte == 0xaa));
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
