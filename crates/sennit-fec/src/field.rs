//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (RFC 8681 §3.7.1).

/// What x^8 is, without the carry.
const REDUCED: u8 = 0x1d;

/// Twice an element.
pub(crate) const fn double(x: u8) -> u8 {
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

/// The inverse of an element; of zero, zero.
pub(crate) fn inverse(a: u8) -> u8 {
    INVERSES[usize::from(a)]
}

/// The inverse of each element: a repair has a factor for each source that it covers.
const INVERSES: [u8; 256] = {
    let (mut inverses, mut a) = ([0; 256], 1);
    while a < 256 {
        inverses[a] = to_the_254th(a as u8);
        a += 1;
    }
    inverses
};

const fn to_the_254th(a: u8) -> u8 {
    let (mut power, mut square, mut bit) = (1, a, 1);
    while bit < 8 {
        square = mul(square, square);
        power = mul(power, square);
        bit += 1;
    }
    power
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
}
