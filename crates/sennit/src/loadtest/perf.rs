//! The QUIC performance protocol (draft-banks-quic-performance-00), which other stacks speak too.
//!
//! A client opens a stream; its first [`HEAD`] bytes say how many bytes it wants back, and what
//! follows is only to be taken. On a stream of one direction the answer comes on a stream that the
//! server opens. There is no plan, no token and no report of the far end: what a server received is
//! known from what it acknowledges.

mod caller;
mod responder;

pub(super) use caller::{Caller, Taken};
pub(super) use responder::Responder;

/// The name of the protocol (draft-banks-quic-performance-00 §2.1).
pub(super) const ALPN: &[u8] = b"perf";
/// Bytes of the size at the beginning of a stream (§2.3.1).
const HEAD: usize = 8;
/// Payload is written in pieces of this size.
const PIECE: usize = 64 << 10;

/// What payload is made of.
static ZEROS: [u8; PIECE] = [0; PIECE];
