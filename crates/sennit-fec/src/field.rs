//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (RFC 8681 §3.7.1).
//!
//! [`add_product`] is where the time goes. It multiplies by doubling, eight times at most, without
//! a table: all lanes of a vector register do the same, and the compiler sees that.

/// What x^8 is, without the carry.
const REDUCED: u8 = 0x1d;
/// Bytes that are worked on at once: four registers of the least x86-64.
const LANES: usize = 64;

const fn double(x: u8) -> u8 {
    // All ones if the highest bit is set.
    let carry = ((x as i8) >> 7) as u8;
    (x << 1) ^ (carry & REDUCED)
}

/// The product of two elements.
pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    let (mut sum, mut bit) = (0, 8);
    while bit > 0 {
        bit -= 1;
        sum = double(sum);
        if b >> bit & 1 == 1 {
            sum ^= a;
        }
    }
    sum
}

/// The inverse of an element: its 254th power; of zero, zero.
pub(crate) const fn inverse(a: u8) -> u8 {
    let (mut power, mut square, mut bit) = (1, a, 1);
    while bit < 8 {
        square = mul(square, square);
        power = mul(power, square);
        bit += 1;
    }
    power
}

/// Adds `factor` times `from` to `to`, which is at least as long.
pub(crate) fn add_product(to: &mut [u8], from: &[u8], factor: u8) {
    debug_assert!(to.len() >= from.len());
    let to = &mut to[..from.len()];
    match factor {
        0 => {}
        1 => {
            for (to, from) in to.iter_mut().zip(from) {
                *to ^= from;
            }
        }
        factor => {
            let (blocks, rest) = from.as_chunks::<LANES>();
            let (to_blocks, to_rest) = to.as_chunks_mut::<LANES>();
            for (to, from) in to_blocks.iter_mut().zip(blocks) {
                add_block(to, from, factor);
            }
            for (to, from) in to_rest.iter_mut().zip(rest) {
                *to ^= mul(*from, factor);
            }
        }
    }
}

/// Horner's rule on all lanes at once.
fn add_block(to: &mut [u8; LANES], from: &[u8; LANES], factor: u8) {
    let mut sum = [0; LANES];
    for bit in (0..8 - factor.leading_zeros()).rev() {
        for lane in &mut sum {
            *lane = double(*lane);
        }
        if factor >> bit & 1 == 1 {
            for (lane, from) in sum.iter_mut().zip(from) {
                *lane ^= from;
            }
        }
    }
    for (to, sum) in to.iter_mut().zip(&sum) {
        *to ^= sum;
    }
}

/// Multiplies all bytes by `factor`.
pub(crate) fn scale(bytes: &mut [u8], factor: u8) {
    if factor != 1 {
        for byte in bytes {
            *byte = mul(*byte, factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        assert_eq!(mul(0x80, 2), REDUCED);
        for a in 0..=255 {
            assert_eq!((mul(a, 1), mul(a, 0)), (a, 0));
            assert_eq!(mul(a, inverse(a)), u8::from(a != 0), "{a}");
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b ^ 0x35), mul(a, b) ^ mul(a, 0x35));
            }
        }
        // 2 generates all elements but zero.
        let powers = (0..255).scan(1, |power, _| {
            *power = mul(*power, 2);
            Some(*power)
        });
        assert_eq!(
            powers.collect::<std::collections::BTreeSet<u8>>().len(),
            255
        );
    }

    #[test]
    fn blocks_are_what_their_bytes_are() {
        let from: Vec<u8> = (0..200).map(|byte: u32| (byte * 7 + 3) as u8).collect();
        for factor in 0..=255 {
            let mut to = vec![0x5a; 210];
            add_product(&mut to, &from, factor);
            let expected = from.iter().map(|byte| mul(*byte, factor) ^ 0x5a);
            assert!(to[..200].iter().copied().eq(expected), "{factor}");
            assert_eq!(to[200..], [0x5a; 10]);
        }
    }
}
