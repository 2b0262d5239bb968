//! What is said of connections without a tunnel.

use std::{
    fmt::{self, Display},
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use bytes::Bytes;
use noq_proto::{ConnectionError, Dir, StreamId, VarInt};

use crate::ids::ConnId;

/// TLS's alert for a protocol that the peer does not speak (RFC 7301 §3.2), as QUIC's error code
/// (RFC 9001 §4.8).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// The server is busy, or does not want this client (RFC 9000 §20.1).
const CONNECTION_REFUSED: u64 = 2;

/// A stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream(pub(super) StreamId);

impl Stream {
    /// The stream of this number (RFC 9000 §2.1), of whatever stack.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        VarInt::from_u64(number).ok().map(|it| Self(it.into()))
    }

    /// Its number (RFC 9000 §2.1).
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.into()
    }

    /// Whether both ends may write to it.
    #[must_use]
    pub fn goes_both_ways(self) -> bool {
        self.0.dir() == Dir::Bi
    }
}

/// Something that happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BareEvent {
    /// A client came, and its handshake is complete.
    Accepted(ConnId, SocketAddr),
    /// The handshake that [`Bare::connect`] began is complete.
    Connected(ConnId),
    /// The connection is over, and its name will not be heard again.
    Lost(ConnId, Ended),
    /// The peer opened a stream, which may have data.
    Opened(ConnId, Stream),
    /// A stream has data, or its end, to read.
    Readable(ConnId, Stream),
    /// A stream that was full takes data again.
    Writable(ConnId, Stream),
    /// All of a stream, its end too, is acknowledged.
    Delivered(ConnId, Stream),
    /// There is room for datagrams again.
    DatagramRoom(ConnId),
    /// A datagram that arrived at that time.
    Datagram(ConnId, Bytes, Instant),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing was heard of the peer.
    TimedOut,
    /// The peer speaks another version of QUIC.
    OtherVersion,
    /// The peer speaks QUIC, but not the protocol that was asked for.
    OtherProtocol,
    /// The peer has no place for another connection.
    Refused,
    /// The peer ended it, with a code and a text of its own.
    ByPeer(u64, String),
    /// It was ended here.
    Here,
    /// Something else, in words.
    Failed(String),
}

impl Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("nothing is heard of the other end"),
            Self::OtherVersion => f.write_str("the other end speaks another version of QUIC"),
            Self::OtherProtocol => f.write_str("the other end speaks QUIC, but not this protocol"),
            Self::Refused => f.write_str("the other end has no place for another connection"),
            Self::ByPeer(code, reason) => {
                write!(f, "the other end ended it: {reason} (code {code})")
            }
            Self::Here => f.write_str("it was ended here"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// A run of UDP packets to send, in the buffer that the caller lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareTransmit {
    /// Our address that it leaves from, if that matters.
    pub source: Option<IpAddr>,
    /// Where it goes.
    pub remote: SocketAddr,
    /// ECN codepoint, 0 to 3.
    pub ecn: u8,
    /// Bytes in the buffer.
    pub size: usize,
    /// Size of each packet but the last, if there are several.
    pub segment: Option<usize>,
}

/// Where a run of UDP packets came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareReceived {
    /// Our address that it arrived at, if answers must leave from it.
    pub local: Option<IpAddr>,
    /// Who sent it.
    pub remote: SocketAddr,
    /// ECN codepoint, 0 to 3.
    pub ecn: u8,
    /// Size of each packet but the last.
    pub segment: usize,
    /// When the last of them arrived.
    pub arrived: Instant,
}

/// What a connection did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BareStats {
    /// UDP payload bytes sent.
    pub sent_bytes: u64,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// QUIC packets taken for lost.
    pub lost_packets: u64,
    /// UDP payload bytes received.
    pub received_bytes: u64,
    /// Congestion window in bytes.
    pub window: u64,
    /// The largest UDP payload that the path is known to carry.
    pub mtu: u16,
}

pub(super) fn outgoing(transmit: &noq_proto::Transmit) -> BareTransmit {
    BareTransmit {
        source: transmit.src_ip,
        remote: transmit.destination,
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        size: transmit.size,
        segment: transmit.segment_size,
    }
}

pub(super) fn ended(reason: &ConnectionError) -> Ended {
    match reason {
        ConnectionError::TimedOut => Ended::TimedOut,
        ConnectionError::VersionMismatch => Ended::OtherVersion,
        ConnectionError::LocallyClosed => Ended::Here,
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            Ended::ByPeer(close.error_code.into(), reason)
        }
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            NO_APPLICATION_PROTOCOL => Ended::OtherProtocol,
            CONNECTION_REFUSED => Ended::Refused,
            _ => Ended::Failed(reason.to_string()),
        },
        ConnectionError::TransportError(error)
            if u64::from(error.code) == NO_APPLICATION_PROTOCOL =>
        {
            Ended::OtherProtocol
        }
        ConnectionError::TransportError(_)
        | ConnectionError::Reset
        | ConnectionError::CidsExhausted => Ended::Failed(reason.to_string()),
    }
}
