//! Prefixed integers, RFC 9204 §4.1.1 (RFC 7541 §5.1): they begin in the low bits of a byte.

use crate::varint;

/// Bytes after the first that hold 62 bits, 7 in each.
pub(super) const MAX_CONTINUATION: usize = 9;

/// Appends `value` with a prefix of `bits`, below the bits already set in `flags`.
pub(super) fn put(out: &mut Vec<u8>, flags: u8, bits: u8, value: usize) {
    let limit = (1usize << bits) - 1;
    if value < limit {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads an integer with a prefix of `bits` and moves `input` past it. `None` if it is cut short
/// or does not fit into 62 bits.
pub(super) fn take(input: &mut &[u8], bits: u8) -> Option<u64> {
    let (&first, mut rest) = input.split_first()?;
    let limit = u8::MAX >> (8 - bits);
    let mut value = u64::from(first & limit);
    if first & limit == limit {
        let mut done = false;
        for shift in (0..MAX_CONTINUATION).map(|index| index * 7) {
            let (&byte, tail) = rest.split_first()?;
            rest = tail;
            value += u64::from(byte & 0x7f) << shift;
            done = byte & 0x80 == 0;
            if done {
                break;
            }
        }
        if !done || value > varint::MAX {
            return None;
        }
    }
    *input = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_7541_c_1_hold_both_ways() {
        for (value, bits, code) in [
            (10, 5, &[0x0a][..]),
            (1337, 5, &[0x1f, 0x9a, 0x0a]),
            (42, 7, &[0x2a]),
        ] {
            let mut out = Vec::new();
            put(&mut out, 0, bits, value);
            assert_eq!(out, code);
            assert_eq!(take(&mut &*out, bits), Some(value as u64));
        }
    }

    #[test]
    fn an_integer_over_62_bits_or_without_an_end_is_refused() {
        assert_eq!(
            take(
                &mut &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..],
                7
            ),
            None
        );
        assert_eq!(
            take(
                &mut &[
                    0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00
                ][..],
                7
            ),
            None
        );
        assert_eq!(take(&mut &[0x7f, 0x80][..], 7), None);
        assert_eq!(take(&mut &[][..], 7), None);
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn what_was_written_is_read_back(
            value in 0usize..1 << 61,
            shift in 0u32..61,
            bits in 3u8..8,
        ) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(&mut out, 0, bits, value);
            let mut input = &*out;
            prop_assert_eq!(take(&mut input, bits), Some(value as u64));
            prop_assert!(input.is_empty());
        }
    }
}
