//! QUIC stream ids, RFC 9000 §2.1: the two low bits say who opened the stream and how.

use std::fmt;

/// A QUIC stream id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// Whether the client opened it (RFC 9000 §2.1, bit 0).
    #[must_use]
    pub const fn is_client_initiated(self) -> bool {
        self.0 & 1 == 0
    }

    /// Whether both sides may send on it (RFC 9000 §2.1, bit 1).
    #[must_use]
    pub const fn is_bidirectional(self) -> bool {
        self.0 & 2 == 0
    }

    /// Whether it can carry a request (RFC 9114 §6.1).
    #[must_use]
    pub const fn is_request(self) -> bool {
        self.0 & 3 == 0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
