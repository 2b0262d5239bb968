//! HTTP/3 frames, RFC 9114 §7: their types, and how ours are written.

use crate::varint;
use bytes::{BufMut, Bytes, BytesMut};

pub(crate) const DATA: u64 = 0x00;
pub(crate) const HEADERS: u64 = 0x01;
pub(crate) const CANCEL_PUSH: u64 = 0x03;
pub(crate) const SETTINGS: u64 = 0x04;
pub(crate) const PUSH_PROMISE: u64 = 0x05;
pub(crate) const GOAWAY: u64 = 0x07;
pub(crate) const MAX_PUSH_ID: u64 = 0x0d;

/// Whether HTTP/2 used this type, so that a peer sending it confuses the two (RFC 9114 §7.2.8).
pub(crate) const fn is_http2(kind: u64) -> bool {
    matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
}

/// A whole frame.
pub(crate) fn frame(kind: u64, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len() + 16);
    put_head(&mut out, kind, payload.len());
    out.put_slice(payload);
    out.freeze()
}

/// Type and length of a DATA frame; the payload follows in a buffer of its own.
pub(crate) fn data_head(len: usize) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    put_head(&mut out, DATA, len);
    out.freeze()
}

/// A frame whose payload is one varint: GOAWAY.
pub(crate) fn id_frame(kind: u64, id: u64) -> Bytes {
    let mut payload = BytesMut::with_capacity(8);
    varint::put(&mut payload, id);
    frame(kind, &payload)
}

fn put_head(out: &mut BytesMut, kind: u64, len: usize) {
    varint::put(out, kind);
    varint::put(out, len as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_type_length_payload() {
        assert_eq!(&frame(HEADERS, b"abc")[..], b"\x01\x03abc");
        assert_eq!(&data_head(0x1234)[..], b"\x00\x52\x34");
        assert_eq!(&id_frame(GOAWAY, 0x44)[..], b"\x07\x02\x40\x44");
    }
}
