//! Forward error correction: data is sent in addition, so that what is lost need not be asked for.
//!
//! Packets that are protected are *sources*, each with a number. An [`Encoder`] makes *repairs* of
//! them: linear combinations over GF(2^8), of a group ([`Code::Xor`], [`Code::Rs`]) or of the
//! newest ones ([`Code::Rlc`], in the manner of RFC 8681). A [`Decoder`] takes whatever arrives of
//! both, in any order, and solves for what is missing. To it all codes are alike, equations with
//! unknowns, so the two ends need not agree on a code: a repair says what it is made of. Why it is
//! no crate of others is in docs/decisions/0031.
//!
//! Sources differ in length. What is combined is filled up with zeros, and so is what comes back: a
//! source is something that says itself how long it is, as an IP packet does. So a repair of
//! packets of full size has room for a header where they have theirs.
//!
//! Nothing here reads a clock or allocates once it has run for a while, but on a loss; memory is
//! bounded whatever arrives, and so is what a repair costs.

mod code;
mod decoder;
mod encoder;
mod field;
mod rows;
mod symbol;

pub use self::{
    code::{BadCode, Code, Fec},
    decoder::{Decoder, DecoderStats, Recovered},
    encoder::{Encoder, PATIENCE, Repair, WINDOW_TIME},
};

/// A source, as far as both ends see it alike, is not longer than this, in bytes.
pub const MOST_BYTES: usize = 2048;
/// Sources that a repair covers at most.
pub const MOST_COVERED: usize = 255;

/// The full number that is nearest to `near` of those that are `wire` on the wire.
fn unwrap(wire: u16, near: u64) -> u64 {
    let ahead = wire.wrapping_sub(near as u16) as i16;
    near.saturating_add_signed(ahead.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decoder takes the first number for one beyond the first wrap.
    #[test]
    fn a_number_is_known_exactly_if_it_is_within_half_a_wrap() {
        for wrap in [1 << 16, 1 << 17, 1 << 32, 1 << 48, u64::MAX - (1 << 16)] {
            for near in [wrap - 1, wrap, wrap + 1, wrap - (1 << 15), wrap + (1 << 15)] {
                for ahead in -(1 << 16)..1 << 16 {
                    let full = near.wrapping_add_signed(ahead);
                    let is_near = (-(1 << 15)..1 << 15).contains(&ahead);
                    assert_eq!(unwrap(full as u16, near) == full, is_near, "{near} {ahead}");
                }
            }
        }
    }

    #[test]
    fn nothing_overflows_at_either_end_of_all_numbers() {
        for wire in 0..=u16::MAX {
            for near in [0, 1, u64::MAX - 1, u64::MAX] {
                let full = unwrap(wire, near);
                assert!(full.abs_diff(near) <= u64::from(u16::MAX), "{wire} {near}");
            }
        }
    }
}
