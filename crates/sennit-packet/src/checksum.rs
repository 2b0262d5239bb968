//! The Internet checksum (RFC 1071): ones-complement sums of 16-bit words.
//!
//! A [`Sum`] is kept in the machine's own byte order, which a ones-complement sum survives
//! (RFC 1071 §2 (B)), and is wide enough that carries are folded once at the end. Sums of
//! adjacent slices add up as long as every slice but the last has an even length.

use std::ops::Add;

use crate::protocol::Protocol;

/// How much of a packet's transport checksum is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It covers the packet, and tells whether it is as it was sent.
    #[default]
    Whole,
    /// The packet is TCP or UDP and its field holds the sum of the pseudo header, as a kernel
    /// leaves it that expects a network card to add the rest. Nothing has gone wrong yet; who sends
    /// the packet on adds it.
    Partial,
}

/// Bytes that one step of the inner loop takes: enough independent lanes for SIMD.
const BLOCK: usize = 32;
/// 64-bit accumulators of the inner loop.
const LANES: usize = BLOCK / 8;

/// An unfolded ones-complement sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Sums a slice; an odd last byte is padded with zero.
    pub fn of(bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let mut lanes = [0; LANES];
        for block in blocks {
            add_block(&mut lanes, block);
        }
        total(lanes) + Self::of_rest(rest)
    }

    /// The pseudo header of TCP, UDP and ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1).
    ///
    /// `addresses` is source and destination as they lie in the IP header, `length` that of the
    /// transport header and its payload.
    pub fn pseudo_header(addresses: &[u8], protocol: Protocol, length: usize) -> Self {
        let length = u32::try_from(length).expect("an IP packet is shorter than 4 GiB");
        Self::of(addresses) + Self::from(u16::from(protocol.0)) + Self::of(&length.to_be_bytes())
    }

    /// The sum folded to 16 bits: what a partial checksum holds.
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let folded = u16::try_from(sum).expect("the loop leaves 16 bits");
        u16::from_be_bytes(folded.to_ne_bytes())
    }

    /// The value of a checksum field: the complement of the folded sum.
    pub fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether bytes that contain their own checksum add up (RFC 1071 §1 (3)).
    pub fn holds(self) -> bool {
        self.fold() == 0xffff
    }

    fn of_rest(rest: &[u8]) -> Self {
        let (words, tail) = rest.as_chunks::<4>();
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        let words = words.iter().chain([&last]);
        Self(words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum())
    }
}

impl Add for Sum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// One 16-bit word.
impl From<u16> for Sum {
    fn from(word: u16) -> Self {
        Self(u64::from(u16::from_ne_bytes(word.to_be_bytes())))
    }
}

/// A checksum after one of the words it covers changed from `old` to `new` (RFC 1624 §3, eqn. 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    (Sum::from(!checksum) + Sum::from(!old) + Sum::from(new)).checksum()
}

/// A lane grows by less than 2^33 per block, so 2^31 blocks (128 GiB) fit.
fn add_block(lanes: &mut [u64; LANES], block: &[u8; BLOCK]) {
    let (words, _) = block.as_chunks::<8>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        let word = u64::from_ne_bytes(*word);
        *lane = lane.wrapping_add((word & 0xffff_ffff) + (word >> 32));
    }
}

/// Lanes are folded once so that many sums can be added without overflow.
fn total(lanes: [u64; LANES]) -> Sum {
    let folded = lanes.map(|lane| (lane & 0xffff_ffff) + (lane >> 32));
    Sum(folded.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of RFC 1071 §3.
    #[test]
    fn sums_the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
        assert_eq!(Sum::of(&bytes).checksum(), !0xddf2);
    }

    #[test]
    fn an_odd_last_byte_counts_as_the_high_half_of_a_word() {
        assert_eq!(Sum::of(&[0x12]).fold(), 0x1200);
        assert_eq!(Sum::of(&[0x00, 0x01, 0x12]).fold(), 0x1201);
    }

    #[test]
    fn the_longest_packet_of_ones_does_not_overflow() {
        let ones = vec![0xff; 65_535];
        // 32767 words of 0xffff are zero in ones complement; 0xff00 remains.
        assert_eq!(Sum::of(&ones).fold(), 0xff00);
    }

    /// The worked example of RFC 1624 §4.
    #[test]
    fn updates_the_example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }
}
