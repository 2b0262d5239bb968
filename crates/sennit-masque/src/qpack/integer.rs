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

    /// Miri takes one of so many cases.
    const STEP: usize = if cfg!(miri) { 97 } else { 1 };

    #[test]
    fn a_value_near_any_border_is_written_in_the_fewest_bytes_and_read_back_up_to_62_bits() {
        for bits in 1..=8 {
            let limit = (1_usize << bits) - 1;
            let borders = (0..9).map(|bytes| limit + (1 << (7 * bytes)));
            for border in borders.chain([limit, 1 << 62]) {
                for value in border.saturating_sub(3)..border + 3 {
                    let mut out = Vec::new();
                    put(&mut out, 0, bits, value);
                    let more = value.checked_sub(limit);
                    let holds = |bytes: &usize| more.is_none_or(|it| it >> (7 * bytes) == 0);
                    let least = (usize::from(more.is_some())..10).find(holds);
                    assert_eq!(Some(out.len() - 1), least, "{value} {bits}");
                    let read = Some(value as u64).filter(|value| *value <= varint::MAX);
                    assert_eq!(take(&mut &*out, bits), read, "{value} {bits}");
                }
            }
        }
    }

    #[test]
    fn every_string_of_two_bytes_is_read_as_rfc_7541_says() {
        for bits in 1..=8 {
            let limit = u8::MAX >> (8 - bits);
            for bytes in (0..=u16::MAX).step_by(STEP).map(u16::to_be_bytes) {
                let low = bytes[0] & limit;
                let expected = match bytes[1] {
                    _ if low < limit => Some((u64::from(low), &bytes[1..])),
                    second @ 0..0x80 => Some((u64::from(limit) + u64::from(second), &[][..])),
                    0x80.. => None,
                };
                let mut input = &bytes[..];
                let read = take(&mut input, bits).map(|value| (value, input));
                assert_eq!(read, expected, "{bytes:?} {bits}");
            }
        }
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
