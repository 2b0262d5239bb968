//! Error codes, and the two things an error can end: one stream, or the connection.

use crate::capsule::CapsuleError;
use std::fmt;

/// An HTTP/3 or QPACK error code, as carried by RESET_STREAM, STOP_SENDING and CONNECTION_CLOSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u64);

macro_rules! codes {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl Code {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The registered name, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    Self(_) => None,
                }
            }
        }
    };
}

codes! {
    H3_DATAGRAM_ERROR = 0x33, "RFC 9297 §5.2";
    H3_NO_ERROR = 0x100, "RFC 9114 §8.1: an end without an error";
    H3_GENERAL_PROTOCOL_ERROR = 0x101, "RFC 9114 §8.1";
    H3_INTERNAL_ERROR = 0x102, "RFC 9114 §8.1: our own fault";
    H3_STREAM_CREATION_ERROR = 0x103, "RFC 9114 §8.1: a stream that must not exist";
    H3_CLOSED_CRITICAL_STREAM = 0x104, "RFC 9114 §8.1";
    H3_FRAME_UNEXPECTED = 0x105, "RFC 9114 §8.1: a frame not allowed here";
    H3_FRAME_ERROR = 0x106, "RFC 9114 §8.1: a frame with a bad layout or size";
    H3_EXCESSIVE_LOAD = 0x107, "RFC 9114 §8.1: more than we are willing to hold";
    H3_ID_ERROR = 0x108, "RFC 9114 §8.1: a stream or push id misused";
    H3_SETTINGS_ERROR = 0x109, "RFC 9114 §8.1";
    H3_MISSING_SETTINGS = 0x10a, "RFC 9114 §8.1";
    H3_REQUEST_REJECTED = 0x10b, "RFC 9114 §8.1: not processed, may be retried";
    H3_REQUEST_CANCELLED = 0x10c, "RFC 9114 §8.1";
    H3_REQUEST_INCOMPLETE = 0x10d, "RFC 9114 §8.1";
    H3_MESSAGE_ERROR = 0x10e, "RFC 9114 §8.1: a malformed message";
    H3_CONNECT_ERROR = 0x10f, "RFC 9114 §8.1: the tunnel behind a CONNECT broke";
    H3_VERSION_FALLBACK = 0x110, "RFC 9114 §8.1";
    QPACK_DECOMPRESSION_FAILED = 0x200, "RFC 9204 §6";
    QPACK_ENCODER_STREAM_ERROR = 0x201, "RFC 9204 §6";
    QPACK_DECODER_STREAM_ERROR = 0x202, "RFC 9204 §6";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// An error of the peer that ends the whole connection (RFC 9114 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct ConnectionError {
    pub code: Code,
    pub reason: &'static str,
}

impl ConnectionError {
    pub(crate) const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

/// A message that breaks a rule of RFC 9114 §4.1.2; says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub &'static str);

/// An error of the peer that ends one stream (RFC 9114 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("malformed capsule: {0}")]
    Capsule(#[from] CapsuleError),
    #[error("the request stream ended before a whole request")]
    Incomplete,
    #[error("the header section is larger than {} bytes", crate::MAX_FIELD_SECTION)]
    HeadTooLarge,
    #[error("the body is larger than {} bytes", crate::MAX_BODY)]
    BodyTooLarge,
    #[error("refused by a GOAWAY, not processed")]
    Rejected,
}

impl StreamError {
    /// The code for RESET_STREAM and STOP_SENDING.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            // RFC 9297 §3.3: a capsule error makes the message malformed.
            Self::Malformed(_) | Self::Capsule(_) => Code::H3_MESSAGE_ERROR,
            Self::Incomplete => Code::H3_REQUEST_INCOMPLETE,
            Self::HeadTooLarge | Self::BodyTooLarge => Code::H3_EXCESSIVE_LOAD,
            Self::Rejected => Code::H3_REQUEST_REJECTED,
        }
    }

    /// The status with which a server answers instead of resetting, where HTTP has one for it.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::HeadTooLarge => Some(431),
            Self::BodyTooLarge => Some(413),
            Self::Malformed(_) | Self::Capsule(_) | Self::Incomplete | Self::Rejected => None,
        }
    }
}

/// Either kind of error, while it is still on its way to whoever ends things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Stream(StreamError),
    Connection(ConnectionError),
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<Malformed> for Fault {
    fn from(error: Malformed) -> Self {
        Self::Stream(error.into())
    }
}

impl From<CapsuleError> for Fault {
    fn from(error: CapsuleError) -> Self {
        Self::Stream(error.into())
    }
}

impl From<ConnectionError> for Fault {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}
