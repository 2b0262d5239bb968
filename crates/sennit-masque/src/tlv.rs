//! Type, length, value: the one layout that HTTP/3 frames (RFC 9114 §7.1) and capsules (RFC 9297
//! §3.2) share, read from a stream that arrives in pieces of any size.
//!
//! The reader asks its owner what to do with each element as soon as type and length are known,
//! before any of the value: collect it whole, pass it on as it comes, or drop it. So a bad type or
//! size is refused before it costs memory, and what is collected grows with what has arrived, not
//! with what was announced.

use crate::varint;
use bytes::{Buf, Bytes, BytesMut};

/// What to do with the value of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treat {
    Collect,
    Pass,
    Skip,
}

/// A whole collected value, or the next piece of one that is passed on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Whole { kind: u64, value: Bytes },
    Piece(Bytes),
}

/// Reads elements from a stream.
#[derive(Debug, Default)]
pub(crate) struct TlvReader {
    head: Head,
    value: Option<Value>,
}

/// Two varints at most.
#[derive(Debug, Default)]
struct Head {
    bytes: [u8; 16],
    len: usize,
}

#[derive(Debug)]
struct Value {
    kind: u64,
    treat: Treat,
    left: u64,
    collected: BytesMut,
}

impl TlvReader {
    /// Takes from `input` up to the end of the next element or piece. `None` means that `input` is
    /// used up.
    pub(crate) fn next<E>(
        &mut self,
        input: &mut Bytes,
        mut treat: impl FnMut(u64, u64) -> Result<Treat, E>,
    ) -> Result<Option<Element>, E> {
        loop {
            let Some(value) = &mut self.value else {
                let Some((kind, left)) = self.head.fill(input) else {
                    return Ok(None);
                };
                let treat = treat(kind, left)?;
                self.value = Some(Value {
                    kind,
                    treat,
                    left,
                    collected: BytesMut::new(),
                });
                continue;
            };
            let element = value.advance(input);
            if value.is_complete() {
                self.value = None;
            }
            if element.is_some() || (input.is_empty() && self.value.is_some()) {
                return Ok(element);
            }
        }
    }

    /// Whether the stream may end here: no element has been begun and not finished.
    pub(crate) const fn is_between(&self) -> bool {
        self.value.is_none() && self.head.len == 0
    }

    /// Bytes held for an element that is not complete.
    pub(crate) fn buffered(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.collected.len())
    }
}

impl Head {
    /// Collects type and length, and gives them once both are there.
    fn fill(&mut self, input: &mut Bytes) -> Option<(u64, u64)> {
        while !input.is_empty() {
            self.bytes[self.len] = input.get_u8();
            self.len += 1;
            if let Some(head) = self.decode() {
                self.len = 0;
                return Some(head);
            }
        }
        None
    }

    fn decode(&self) -> Option<(u64, u64)> {
        let mut bytes = &self.bytes[..self.len];
        Some((varint::take(&mut bytes)?, varint::take(&mut bytes)?))
    }
}

impl Value {
    fn advance(&mut self, input: &mut Bytes) -> Option<Element> {
        let len = usize::try_from(self.left).map_or(input.len(), |left| left.min(input.len()));
        let piece = input.split_to(len);
        self.left -= len as u64;
        match self.treat {
            Treat::Skip => None,
            Treat::Pass => (!piece.is_empty()).then_some(Element::Piece(piece)),
            Treat::Collect => self.collect(piece),
        }
    }

    /// A value that arrived in one piece is not copied.
    fn collect(&mut self, piece: Bytes) -> Option<Element> {
        let value = if self.collected.is_empty() && self.left == 0 {
            piece
        } else {
            self.collected.extend_from_slice(&piece);
            if self.left > 0 {
                return None;
            }
            self.collected.split().freeze()
        };
        Some(Element::Whole {
            kind: self.kind,
            value,
        })
    }

    const fn is_complete(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn by_kind(kind: u64, _len: u64) -> Result<Treat, Infallible> {
        Ok(match kind {
            1 => Treat::Collect,
            2 => Treat::Pass,
            _ => Treat::Skip,
        })
    }

    fn read(reader: &mut TlvReader, bytes: &[u8]) -> Vec<Element> {
        let mut input = Bytes::copy_from_slice(bytes);
        let mut elements = Vec::new();
        while let Ok(Some(element)) = reader.next(&mut input, by_kind) {
            elements.push(element);
        }
        assert!(input.is_empty());
        elements
    }

    fn whole(value: &'static [u8]) -> Element {
        Element::Whole {
            kind: 1,
            value: Bytes::from_static(value),
        }
    }

    #[test]
    fn elements_are_collected_passed_and_skipped() {
        let mut reader = TlvReader::default();
        let elements = read(&mut reader, b"\x01\x02ab\x07\x03xxx\x02\x02cd\x01\x00");
        assert_eq!(
            elements,
            [
                whole(b"ab"),
                Element::Piece(Bytes::from_static(b"cd")),
                whole(b"")
            ]
        );
        assert!(reader.is_between());
    }

    #[test]
    fn an_element_in_single_bytes_is_the_same_element() {
        let mut reader = TlvReader::default();
        let mut elements = Vec::new();
        for byte in b"\x07\x03xxx\x01\x40\x03abc" {
            elements.extend(read(&mut reader, &[*byte]));
        }
        assert_eq!(elements, [whole(b"abc")]);
    }

    #[test]
    fn a_huge_announced_length_holds_only_what_arrived() {
        let mut reader = TlvReader::default();
        read(&mut reader, b"\x01\xff\xff\xff\xff\xff\xff\xff\xffabc");
        assert_eq!(reader.buffered(), 3);
        assert!(!reader.is_between());
    }

    #[test]
    fn an_element_cut_in_its_head_or_value_is_not_between() {
        for cut in [
            &b"\x01"[..],
            b"\x40",
            b"\x01\x40",
            b"\x01\x02",
            b"\x07\x02x",
        ] {
            let mut reader = TlvReader::default();
            read(&mut reader, cut);
            assert!(!reader.is_between(), "{cut:?}");
        }
    }
}
