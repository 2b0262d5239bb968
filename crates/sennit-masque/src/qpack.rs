//! QPACK without a dynamic table, RFC 9204.
//!
//! We announce a table capacity of zero, so a peer may refer to the static table and spell the rest
//! out, and nothing else. A field section then stands alone: it needs no state, never blocks, and a
//! lost stream never harms another. The peer's encoder and decoder streams have next to nothing
//! left to say; `EncoderStream` and `DecoderStream` check that they say no more.

mod huffman;
mod integer;
mod static_table;
mod streams;

pub(crate) use streams::{DecoderStream, EncoderStream};

use bytes::Bytes;

/// One field line, as bytes: what they may be is decided by the message they are part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: Bytes,
    pub value: Bytes,
}

impl Field {
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }

    /// Its share of SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114 §4.2.2).
    #[must_use]
    pub fn size(&self) -> usize {
        self.name.len() + self.value.len() + 32
    }
}

/// Why a field section was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The peer's encoder is broken: connection error QPACK_DECOMPRESSION_FAILED (RFC 9204 §2.2).
    #[error("QPACK: {0}")]
    Decompression(&'static str),
    /// More fields than we announced to accept: only this message fails.
    #[error("the field section is too large")]
    TooLarge,
}

/// Encodes a field section (RFC 9204 §4.5).
#[must_use]
pub fn encode<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Vec<u8> {
    // §4.5.1: no dynamic entry is required, and the base is zero.
    let mut out = vec![0, 0];
    for field in fields {
        encode_field(field, &mut out);
    }
    out
}

fn encode_field(field: &Field, out: &mut Vec<u8>) {
    // §7.1.3: the N bit asks intermediaries never to put a secret into a table.
    let secret = matches!(
        &field.name[..],
        b"authorization" | b"proxy-authorization" | b"cookie"
    );
    match static_table::find(&field.name, &field.value) {
        // §4.5.2, §4.5.4, §4.5.6
        Some((index, true)) => integer::put(out, 0b1100_0000, 6, index),
        Some((index, false)) => {
            integer::put(out, 0b0101_0000 | u8::from(secret) << 5, 4, index);
            put_string(out, 0, 7, &field.value);
        }
        None => {
            put_string(out, 0b0010_0000 | u8::from(secret) << 4, 3, &field.name);
            put_string(out, 0, 7, &field.value);
        }
    }
}

/// Appends a string literal (RFC 9204 §4.1.2), Huffman coded if that is shorter. Its flag stands
/// just above the length prefix of `bits`.
fn put_string(out: &mut Vec<u8>, flags: u8, bits: u8, string: &[u8]) {
    let coded = huffman::encoded_len(string);
    if coded < string.len() {
        integer::put(out, flags | 1 << bits, bits, coded);
        huffman::encode(string, out);
    } else {
        integer::put(out, flags, bits, string.len());
        out.extend_from_slice(string);
    }
}

/// Decodes a field section (RFC 9204 §4.5) whose fields together may have `max_size`, counted as
/// in RFC 9114 §4.2.2.
pub fn decode(mut input: &[u8], max_size: usize) -> Result<Vec<Field>, DecodeError> {
    take_section_prefix(&mut input)?;
    let mut fields = Vec::new();
    let mut size = 0;
    while let Some(&first) = input.first() {
        let field = take_field(first, &mut input)?;
        size += field.size();
        if size > max_size {
            return Err(DecodeError::TooLarge);
        }
        fields.push(field);
    }
    Ok(fields)
}

/// §4.5.1: with no dynamic table the required insert count is zero, and a base below it (sign bit
/// set) does not exist.
fn take_section_prefix(input: &mut &[u8]) -> Result<(), DecodeError> {
    let required = integer::take(input, 8).ok_or(TRUNCATED)?;
    if required != 0 {
        return Err(DYNAMIC);
    }
    let negative = input.first().is_some_and(|byte| byte & 0x80 != 0);
    integer::take(input, 7).ok_or(TRUNCATED)?;
    if negative {
        Err(DecodeError::Decompression("the base is negative"))
    } else {
        Ok(())
    }
}

fn take_field(first: u8, input: &mut &[u8]) -> Result<Field, DecodeError> {
    match first.leading_zeros() {
        // §4.5.2: 1Txxxxxx, the whole field from a table
        0 => {
            let (name, value) = take_static(input, first & 0b0100_0000 != 0, 6)?;
            Ok(Field::new(name, value))
        }
        // §4.5.4: 01NTxxxx, the name from a table
        1 => {
            let (name, _) = take_static(input, first & 0b0001_0000 != 0, 4)?;
            Ok(Field::new(name, take_string(input, 7)?))
        }
        // §4.5.6: 001NHxxx, all spelled out
        2 => Ok(Field::new(take_string(input, 3)?, take_string(input, 7)?)),
        // §4.5.3, §4.5.5: post-base references are always dynamic
        _ => Err(DYNAMIC),
    }
}

fn take_static(
    input: &mut &[u8],
    is_static: bool,
    bits: u8,
) -> Result<(&'static str, &'static str), DecodeError> {
    if !is_static {
        return Err(DYNAMIC);
    }
    let index = integer::take(input, bits).ok_or(TRUNCATED)?;
    usize::try_from(index)
        .ok()
        .and_then(|index| static_table::ENTRIES.get(index).copied())
        .ok_or(DecodeError::Decompression(
            "no such entry in the static table",
        ))
}

fn take_string(input: &mut &[u8], bits: u8) -> Result<Bytes, DecodeError> {
    let is_huffman = input.first().is_some_and(|byte| byte & 1 << bits != 0);
    let len = integer::take(input, bits).ok_or(TRUNCATED)?;
    let len = usize::try_from(len).map_err(|_| TRUNCATED)?;
    let (string, rest) = input.split_at_checked(len).ok_or(TRUNCATED)?;
    *input = rest;
    if !is_huffman {
        return Ok(Bytes::copy_from_slice(string));
    }
    let plain = huffman::decode(string);
    plain.map(Bytes::from).ok_or(DecodeError::Decompression(
        "a string with a bad Huffman code",
    ))
}

const TRUNCATED: DecodeError = DecodeError::Decompression("the field section is cut short");
const DYNAMIC: DecodeError = DecodeError::Decompression("a reference to the dynamic table");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure(input: &[u8]) -> DecodeError {
        decode(input, 1 << 14).expect_err("must be refused")
    }

    #[test]
    fn the_example_of_rfc_9204_b_1_decodes() {
        let section = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(
            decode(section, 1 << 14),
            Ok(vec![Field::new(":path", "/index.html")])
        );
    }

    #[test]
    fn a_field_of_the_static_table_takes_one_byte() {
        assert_eq!(
            encode(&[Field::new(":method", "CONNECT")]),
            [0, 0, 0xc0 | 15]
        );
    }

    #[test]
    fn a_bearer_token_is_marked_never_to_be_indexed() {
        let section = encode(&[Field::new("authorization", "Bearer x")]);
        assert_eq!(section[2] & 0b1111_0000, 0b0111_0000);
    }

    #[test]
    fn dynamic_references_are_refused() {
        // required insert count, indexed dynamic, post-base indexed, name dynamic, post-base name
        for section in [
            &[1, 0][..],
            &[0, 0, 0x80],
            &[0, 0, 0x10],
            &[0, 0, 0x40, 0],
            &[0, 0, 0x00, 0],
        ] {
            assert_eq!(failure(section), DYNAMIC, "{section:?}");
        }
    }

    #[test]
    fn a_negative_base_and_a_missing_static_entry_are_refused() {
        assert!(matches!(failure(&[0, 0x80]), DecodeError::Decompression(_)));
        assert!(matches!(
            failure(&[0, 0, 0xff, 99 - 63]),
            DecodeError::Decompression(_)
        ));
    }

    #[test]
    fn every_cut_of_a_section_inside_a_field_is_refused() {
        let whole = encode(&[Field::new("x-first-name", "some value")]);
        for len in (0..whole.len()).filter(|&len| len != 2) {
            assert_eq!(failure(&whole[..len]), TRUNCATED, "{len}");
        }
    }

    #[test]
    fn a_section_larger_than_announced_is_refused_by_decoded_size() {
        let section = encode(&[Field::new(":path", "/"), Field::new(":path", "/")]);
        assert_eq!(decode(&section, 2 * 38).map(|fields| fields.len()), Ok(2));
        assert_eq!(decode(&section, 2 * 38 - 1), Err(DecodeError::TooLarge));
    }

    #[test]
    fn a_section_of_one_byte_fields_cannot_blow_up() {
        let bomb = [&[0, 0][..], &[0xc0 | 57; 16 << 10]].concat();
        assert_eq!(decode(&bomb, 16 << 10), Err(DecodeError::TooLarge));
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn any_fields_survive_the_round_trip(fields: Vec<(Vec<u8>, Vec<u8>)>) {
            let fields: Vec<_> = fields.into_iter().map(|(n, v)| Field::new(n, v)).collect();
            prop_assert_eq!(decode(&encode(&fields), usize::MAX), Ok(fields));
        }

        #[test]
        fn any_bytes_give_fields_within_the_bound_or_an_error(input: Vec<u8>) {
            if let Ok(fields) = decode(&input, 256) {
                prop_assert!(fields.iter().map(Field::size).sum::<usize>() <= 256);
            }
        }
    }
}
