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
