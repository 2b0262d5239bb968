//! Capsules out of a stream that arrives in pieces.

use super::{Capsule, CapsuleError, DATAGRAM, MAX_CAPSULE, is_known};
use crate::tlv::{Element, TlvReader, Treat};
use bytes::Bytes;

/// Reads the capsules of one direction of a stream.
#[derive(Debug, Default)]
pub struct CapsuleReader {
    elements: TlvReader,
}

impl CapsuleReader {
    /// Takes from `input` up to the end of the next known capsule. `None` means that `input` is
    /// used up. After an error the stream is lost.
    pub fn poll(&mut self, input: &mut Bytes) -> Result<Option<Capsule>, CapsuleError> {
        while let Some(element) = self.elements.next(input, treat)? {
            if let Element::Whole { kind, value } = element
                && let Some(capsule) = Capsule::decode(kind, value)?
            {
                return Ok(Some(capsule));
            }
        }
        Ok(None)
    }

    /// Checks that the stream may end here (RFC 9297 §3.3).
    pub fn finish(&self) -> Result<(), CapsuleError> {
        if self.elements.is_between() {
            Ok(())
        } else {
            Err(CapsuleError::Truncated)
        }
    }

    /// Bytes held for a capsule that is not complete.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.elements.buffered()
    }
}

/// RFC 9297 §3.2: unknown types are skipped. A datagram too large to be a packet is dropped, as
/// datagrams may be; anything else too large ends the stream.
fn treat(kind: u64, len: u64) -> Result<Treat, CapsuleError> {
    let fits = len <= MAX_CAPSULE as u64;
    match is_known(kind) {
        true if fits => Ok(Treat::Collect),
        true if kind != DATAGRAM => Err(CapsuleError::TooLarge),
        true | false => Ok(Treat::Skip),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{any_capsule, encoded};
    use super::*;
    use proptest::prelude::*;

    fn read(reader: &mut CapsuleReader, bytes: &[u8]) -> Result<Vec<Capsule>, CapsuleError> {
        let mut input = Bytes::copy_from_slice(bytes);
        let mut capsules = Vec::new();
        while let Some(capsule) = reader.poll(&mut input)? {
            capsules.push(capsule);
        }
        Ok(capsules)
    }

    #[test]
    fn unknown_capsules_are_skipped_without_being_held() {
        let mut reader = CapsuleReader::default();
        // A capsule of the GREASE type 0x17, 2^20 bytes long, and a known one behind it.
        assert_eq!(
            read(&mut reader, &[0x17, 0x80, 0x10, 0x00, 0x00]),
            Ok(vec![])
        );
        for _ in 0..16 {
            assert_eq!(read(&mut reader, &[0; 1 << 16]), Ok(vec![]));
            assert_eq!(reader.buffered(), 0);
        }
        let next = Capsule::AddressAssign(vec![]);
        assert_eq!(read(&mut reader, &encoded(&next)), Ok(vec![next]));
    }

    #[test]
    fn a_known_capsule_over_the_limit_is_refused_before_it_arrives() {
        let head = [0x01, 0x80, 0x01, 0x00, 0x01];
        assert_eq!(
            read(&mut CapsuleReader::default(), &head),
            Err(CapsuleError::TooLarge)
        );
    }

    #[test]
    fn a_datagram_over_the_limit_is_dropped_alone() {
        let mut reader = CapsuleReader::default();
        let huge = [&[0x00, 0x80, 0x01, 0x00, 0x01][..], &[0; (64 << 10) + 1]].concat();
        assert_eq!(read(&mut reader, &huge), Ok(vec![]));
        let next = Capsule::Datagram(Bytes::from_static(b"\0E"));
        assert_eq!(read(&mut reader, &encoded(&next)), Ok(vec![next]));
    }

    #[test]
    fn a_stream_may_end_only_between_capsules() {
        let mut reader = CapsuleReader::default();
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(read(&mut reader, &[0x00, 0x02, 0x00]), Ok(vec![]));
        assert_eq!(reader.finish(), Err(CapsuleError::Truncated));
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn capsules_survive_the_round_trip_in_pieces_of_any_size(
            capsules in prop::collection::vec(any_capsule(), 0..6),
            piece in 1usize..40,
        ) {
            let wire: Vec<u8> = capsules.iter().flat_map(encoded).collect();
            let mut reader = CapsuleReader::default();
            let mut received = Vec::new();
            for bytes in wire.chunks(piece) {
                received.extend(read(&mut reader, bytes).expect("legal"));
            }
            prop_assert_eq!(received, capsules);
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn any_bytes_give_the_same_at_once_and_byte_by_byte(input: Vec<u8>) {
            let at_once = read(&mut CapsuleReader::default(), &input);
            let mut reader = CapsuleReader::default();
            let mut single = Ok(Vec::new());
            for byte in &input {
                let more = read(&mut reader, &[*byte]);
                single = single.and_then(|mut capsules: Vec<_>| {
                    capsules.extend(more?);
                    Ok(capsules)
                });
                if single.is_err() {
                    break;
                }
            }
            prop_assert_eq!(single, at_once);
        }
    }
}
