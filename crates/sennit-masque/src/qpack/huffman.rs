//! The Huffman code of RFC 7541 appendix B, which QPACK shares (RFC 9204 §4.1.2).
//!
//! The code is canonical: symbols of one length have consecutive codes, in the order of the
//! symbols, and each length goes on where the one before it stopped. So the 257 lengths say
//! everything, and both directions are computed from them when the crate is compiled.

/// Bits of the code of each byte, and of the end-of-string symbol.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The end-of-string symbol: never sent, and its first bits are the padding.
const EOS: usize = 256;

/// The longest code.
const MAX_LEN: usize = 30;

const TABLES: Tables = Tables::new();

struct Tables {
    /// The code of each symbol, in its low bits.
    codes: [u32; 257],
    /// All symbols, ordered by code length, then by symbol.
    symbols: [u16; 257],
    /// Per length: its first code, how many codes it has, and where their symbols begin.
    lengths: [Length; MAX_LEN + 1],
}

#[derive(Clone, Copy)]
struct Length {
    first: u32,
    count: u32,
    offset: usize,
}

impl Tables {
    const fn new() -> Self {
        let mut codes = [0; 257];
        let mut symbols = [0; 257];
        let mut lengths = [Length {
            first: 0,
            count: 0,
            offset: 0,
        }; MAX_LEN + 1];
        let (mut code, mut placed, mut len) = (0, 0, 1);
        while len <= MAX_LEN {
            code <<= 1;
            lengths[len] = Length {
                first: code,
                count: 0,
                offset: placed,
            };
            let mut symbol = 0;
            while symbol < LENGTHS.len() {
                if LENGTHS[symbol] as usize == len {
                    codes[symbol] = code;
                    symbols[placed] = symbol as u16;
                    lengths[len].count += 1;
                    code += 1;
                    placed += 1;
                }
                symbol += 1;
            }
            len += 1;
        }
        Self {
            codes,
            symbols,
            lengths,
        }
    }

    /// The symbol whose code is the `len` low bits of `code`.
    fn symbol(&self, code: u32, len: usize) -> Option<usize> {
        let Length {
            first,
            count,
            offset,
        } = self.lengths[len];
        let index = code.checked_sub(first).filter(|&index| index < count)?;
        Some(usize::from(self.symbols[offset + index as usize]))
    }
}

/// Bytes that [`encode`] appends for `input`.
pub(super) fn encoded_len(input: &[u8]) -> usize {
    let bits: usize = input
        .iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends the code of `input`, padded with ones.
pub(super) fn encode(input: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut len) = (0u64, 0u32);
    for &byte in input {
        let symbol = usize::from(byte);
        bits = bits << LENGTHS[symbol] | u64::from(TABLES.codes[symbol]);
        len += u32::from(LENGTHS[symbol]);
        while len >= 8 {
            len -= 8;
            out.push((bits >> len) as u8);
        }
    }
    if len > 0 {
        out.push((bits << (8 - len)) as u8 | 0xff >> len);
    }
}

/// Decodes a whole string. `None` for the faults RFC 7541 §5.2 names: an end-of-string symbol, or
/// padding that is not ones or is a whole byte.
pub(super) fn decode(input: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(input.len() * 8 / 5);
    let (mut code, mut len) = (0, 0);
    for byte in input {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            len += 1;
            match TABLES.symbol(code, len) {
                Some(EOS) => return None,
                Some(symbol) => {
                    out.push(symbol as u8);
                    (code, len) = (0, 0);
                }
                None => {}
            }
        }
    }
    (len < 8 && code == (1 << len) - 1).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(input, &mut out);
        out
    }

    #[test]
    fn the_examples_of_rfc_7541_c_4_and_c_6_hold_both_ways() {
        let examples: [(&[u8], &[u8]); 4] = [
            (
                b"www.example.com",
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ],
            ),
            (b"no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            (b"302", &[0x64, 0x02]),
            (b"private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
        ];
        for (plain, code) in examples {
            assert_eq!(encoded(plain), code);
            assert_eq!(decode(code).as_deref(), Some(plain));
        }
    }

    #[test]
    fn the_code_is_complete_so_every_bit_string_runs_into_a_symbol() {
        let filled: u64 = LENGTHS
            .iter()
            .map(|&len| 1u64 << (MAX_LEN - usize::from(len)))
            .sum();
        assert_eq!(filled, 1 << MAX_LEN);
        assert_eq!(TABLES.codes[EOS], 0x3fff_ffff);
    }

    #[test]
    fn bad_padding_is_refused() {
        // "0" is 00000: three bits of padding remain.
        assert_eq!(decode(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
        assert_eq!(decode(&[0b0000_0110]), None);
        // A whole byte of padding is too much.
        assert_eq!(decode(&[0b0000_0111, 0xff]), None);
    }

    #[test]
    fn the_end_of_string_symbol_is_refused() {
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), None);
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn any_string_survives_the_round_trip(input: Vec<u8>) {
            let code = encoded(&input);
            prop_assert_eq!(code.len(), encoded_len(&input));
            prop_assert_eq!(decode(&code), Some(input));
        }

        #[test]
        fn a_string_that_decodes_has_only_that_code(code: Vec<u8>) {
            if let Some(plain) = decode(&code) {
                prop_assert_eq!(encoded(&plain), code);
            }
        }
    }
}
