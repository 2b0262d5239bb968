//! Variable-length integers, RFC 9000 §16: the two top bits of the first byte give the length.

use bytes::BufMut;

/// The largest value that fits into 62 bits.
pub const MAX: u64 = (1 << 62) - 1;

/// Reads one integer from the front of `input`: the value and the bytes it took, or `None` if
/// `input` ends too early. Encodings longer than needed are legal.
#[must_use]
pub fn decode(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    let len = 1usize << (first >> 6);
    let tail = input.get(1..len)?;
    let value = tail.iter().fold(u64::from(first & 0x3f), |value, &byte| {
        value << 8 | u64::from(byte)
    });
    Some((value, len))
}

/// Reads one integer and moves `input` past it.
#[must_use]
pub fn take(input: &mut &[u8]) -> Option<u64> {
    let (value, len) = decode(input)?;
    *input = &input[len..];
    Some(value)
}

/// Bytes that [`put`] writes for `value`.
#[must_use]
pub const fn size(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Writes `value` in its shortest form.
///
/// # Panics
/// If `value` exceeds [`MAX`]. Values that came from a peer never do.
pub fn put(out: &mut impl BufMut, value: u64) {
    assert!(value <= MAX, "a varint has 62 bits");
    match size(value) {
        1 => out.put_uint(value, 1),
        2 => out.put_uint(value | 0x4000, 2),
        4 => out.put_uint(value | 0x8000_0000, 4),
        _ => out.put_u64(value | 0xc000_0000_0000_0000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_9000_a_1_decode() {
        assert_eq!(
            decode(&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]),
            Some((151_288_809_941_952_652, 8))
        );
        assert_eq!(decode(&[0x9d, 0x7f, 0x3e, 0x7d]), Some((494_878_333, 4)));
        assert_eq!(decode(&[0x7b, 0xbd]), Some((15_293, 2)));
        assert_eq!(decode(&[0x25]), Some((37, 1)));
        assert_eq!(decode(&[0x40, 0x25]), Some((37, 2)));
    }

    #[test]
    fn an_integer_cut_short_is_not_an_integer() {
        for len in 0..8 {
            assert_eq!(
                decode(&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..len]),
                None
            );
        }
    }

    /// Miri takes one of so many cases.
    const STEP: usize = if cfg!(miri) { 97 } else { 1 };

    /// A value in so many bytes, as RFC 9000 §16 draws it.
    fn drawn(value: u64, len: usize) -> Vec<u8> {
        let tag = u64::from(len.ilog2()) << (8 * len - 2);
        (value | tag).to_be_bytes()[8 - len..].to_vec()
    }

    #[test]
    fn a_value_near_any_border_has_its_shortest_form_and_is_read_from_every_longer_one() {
        let near = |bits: u32| (1_u64 << bits).saturating_sub(300)..=(1 << bits) + 300;
        let values = (0..=62).flat_map(near).filter(|value| *value <= MAX);
        for value in values.step_by(STEP) {
            let holds = |len: &usize| value >> (8 * len - 2) == 0;
            let lens = [1, 2, 4, 8].into_iter().filter(holds);
            let forms: Vec<Vec<u8>> = lens.map(|len| drawn(value, len)).collect();
            let mut out = Vec::<u8>::new();
            put(&mut out, value);
            assert_eq!((&out, size(value)), (&forms[0], forms[0].len()), "{value}");
            for form in forms {
                assert_eq!(decode(&form), Some((value, form.len())));
                for cut in 0..form.len() {
                    assert_eq!(decode(&form[..cut]), None, "{value} {cut}");
                }
            }
        }
    }

    /// A string is read if all bytes are there that its first one promises, and is left alone
    /// otherwise.
    fn check(bytes: &[u8]) {
        let mut rest = bytes;
        let value = take(&mut rest);
        let promised = bytes.first().map(|first| 1_usize << (first >> 6));
        if let Some(len) = promised.filter(|len| *len <= bytes.len()) {
            let (own, after) = bytes.split_at(len);
            let again = value.map(|value| drawn(value, len));
            assert_eq!((again.as_deref(), rest), (Some(own), after), "{bytes:?}");
        } else {
            assert_eq!((value, rest), (None, bytes), "{bytes:?}");
        }
    }

    #[test]
    fn every_string_is_read_as_its_first_byte_says_or_not_at_all() {
        check(&[]);
        for first in 0..=u8::MAX {
            check(&[first]);
            for second in (0..=u8::MAX).step_by(STEP) {
                check(&[first, second]);
            }
            for fill in [0, 0x5a, u8::MAX] {
                let mut bytes = [fill; 9];
                bytes[0] = first;
                (3..=9).for_each(|len| check(&bytes[..len]));
            }
        }
    }

    #[test]
    #[should_panic(expected = "62 bits")]
    fn a_value_of_63_bits_is_not_written() {
        put(&mut Vec::<u8>::new(), MAX + 1);
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn what_was_written_is_read_back(value in 0..=MAX, shift in 0u32..62) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), size(value));
            prop_assert_eq!(decode(&out), Some((value, out.len())));
        }
    }
}
