//! The parts of TCP that a router looks at: flags and the MSS option.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitXor, Not};

/// A TCP header without options.
pub(crate) const TCP_HEADER: usize = 20;
/// Where the checksum lies in a TCP header.
pub(crate) const TCP_CHECKSUM: usize = 16;
/// Where the checksum lies in a UDP header.
pub(crate) const UDP_CHECKSUM: usize = 6;
/// A UDP header.
pub(crate) const UDP_HEADER: usize = 8;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;

/// The eight flags of byte 13 of the TCP header (RFC 9293 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    pub const FIN: Self = Self(0x01);
    pub const SYN: Self = Self(0x02);
    pub const RST: Self = Self(0x04);
    pub const PSH: Self = Self(0x08);
    pub const ACK: Self = Self(0x10);
    pub const URG: Self = Self(0x20);
    pub const ECE: Self = Self(0x40);
    pub const CWR: Self = Self(0x80);

    /// Whether any flag of `other` is set.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for TcpFlags {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitXor for TcpFlags {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl Not for TcpFlags {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let set = names
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.0 & (1 << bit) != 0);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

/// The header length that a TCP segment states, if the segment is that long.
pub(crate) fn header_len(segment: &[u8]) -> Option<usize> {
    let stated = usize::from(*segment.get(12)? >> 4) * 4;
    (TCP_HEADER..=segment.len())
        .contains(&stated)
        .then_some(stated)
}

/// Where in a TCP segment the value of its MSS option lies (RFC 9293 §3.7.1).
pub(crate) fn mss_value_offset(segment: &[u8]) -> Option<usize> {
    let options = &segment[..header_len(segment)?];
    let mut at = TCP_HEADER;
    loop {
        match *options.get(at)? {
            OPTION_END => return None,
            OPTION_NOP => at += 1,
            OPTION_MSS => {
                let fits = *options.get(at + 1)? == 4 && at + 4 <= options.len();
                return fits.then_some(at + 2);
            }
            _ => match usize::from(*options.get(at + 1)?) {
                0 | 1 => return None,
                length => at += length,
            },
        }
    }
}
