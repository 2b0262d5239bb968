//! UDP packets as they come and go.

use std::{net::SocketAddr, time::Instant};

use noq_proto::FourTuple;

use crate::{locals::Local, remotes::plain};

/// A batch of UDP packets of one size to one destination, in the buffer the caller lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it leaves from.
    pub local: Local,
    /// Where it goes.
    pub remote: SocketAddr,
    /// ECN codepoint of the outer packets, 0 to 3.
    pub ecn: u8,
    /// Differentiated services code point of the outer packets, 0 to 63.
    pub dscp: u8,
    /// Bytes in the buffer.
    pub size: usize,
    /// Size of each packet but the last, if there are several.
    pub segment: Option<usize>,
}

/// Where a batch of UDP packets came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it arrived.
    pub local: Local,
    /// Who sent it.
    pub remote: SocketAddr,
    /// ECN codepoint of the outer packets, 0 to 3.
    pub ecn: u8,
    /// Size of each packet but the last.
    pub segment: usize,
    /// When the last of them arrived, which may be some time before they are handed over, and even
    /// before what was handed over last. Round trips and delays are measured by this; an instant
    /// that is too early spoils them, one that is too late hardly does.
    pub arrived: Instant,
}

/// The addresses that a batch of noq has.
pub(super) fn network_of(transmit: &noq_proto::Transmit) -> FourTuple {
    FourTuple::new(transmit.destination, transmit.src_ip)
}

/// A batch of noq as the caller gets it.
pub(super) fn outgoing(transmit: &noq_proto::Transmit, local: Local) -> Transmit {
    Transmit {
        local,
        remote: plain(transmit.destination),
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        dscp: 0,
        size: transmit.size,
        segment: transmit.segment_size,
    }
}

/// Bytes of the IP and UDP headers that a batch of noq gets (RFC 791, 8200, 768).
pub(super) fn headers_of(transmit: &noq_proto::Transmit) -> usize {
    let each = if plain(transmit.destination).is_ipv4() {
        20 + 8
    } else {
        40 + 8
    };
    let packets = transmit
        .segment_size
        .map_or(1, |segment| transmit.size.div_ceil(segment.max(1)));
    packets * each
}
