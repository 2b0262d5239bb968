//! What is combined: bytes in whole blocks, filled up with zeros, so that no sum has a rest.
//!
//! [`Symbol::add_products`] is where the time goes. Terms whose factors have the same half are
//! added up first, for each half, so that each term is added twice and not once for each bit of its
//! factor. Their sums are put together by Horner's rule: a block of the result is doubled eight
//! times, whatever is added in between. All lanes of a vector register do the same, and the
//! compiler sees that.

use std::iter::zip;

use crate::{MOST_COVERED, field::double};

/// Bytes that are worked on at once: eight registers of the least x86-64.
const LANES: usize = 128;

/// Fewer terms are added one by one, as to sort them would take longer (by measurement).
const FEW: usize = 12;

type Block = [u8; LANES];

/// So many bytes, and zeros behind them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbol {
    len: usize,
    blocks: Vec<Block>,
}

impl Symbol {
    /// A copy of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut symbol = Self::default();
        symbol.set(bytes, &[]);
        symbol
    }

    /// Becomes a copy of these bytes.
    pub(crate) fn set(&mut self, head: &[u8], body: &[u8]) {
        self.len = head.len() + body.len();
        self.blocks.resize(self.len.div_ceil(LANES), [0; LANES]);
        let (first, rest) = self.blocks.as_flattened_mut().split_at_mut(head.len());
        let (second, rest) = rest.split_at_mut(body.len());
        first.copy_from_slice(head);
        second.copy_from_slice(body);
        rest.fill(0);
    }

    /// Becomes so many zeros.
    pub(crate) fn reset(&mut self, len: usize) {
        self.len = 0;
        self.blocks.clear();
        self.widen(len);
    }

    /// Has at least so many bytes, with zeros behind what there was.
    fn widen(&mut self, len: usize) {
        if self.len < len {
            self.len = len;
            self.blocks.resize(len.div_ceil(LANES), [0; LANES]);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.blocks.as_flattened()[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Has this byte at a place within its length.
    pub(crate) fn put(&mut self, at: usize, byte: u8) {
        self.blocks.as_flattened_mut()[at] = byte;
    }

    /// Bytes of memory that it has.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.capacity() * LANES
    }

    /// Adds `factor` times another, and becomes as long as that if it was shorter.
    pub(crate) fn add_product(&mut self, other: &Self, factor: u8) {
        if factor == 0 {
            return;
        }
        self.widen(other.len);
        for (to, from) in zip(&mut self.blocks, &other.blocks) {
            if factor == 1 {
                add(to, from);
            } else {
                add(to, &times(from, factor));
            }
        }
    }

    /// Adds the terms `of` all places, each times its factor. There are at most [`MOST_COVERED`],
    /// and those with factor zero change nothing, whatever their length.
    pub(crate) fn add_products<'a>(&mut self, factors: &[u8], of: impl Fn(usize) -> &'a Self) {
        let places = factors.iter().enumerate();
        if factors.len() < FEW {
            return places.for_each(|(place, factor)| self.add_product(of(place), *factor));
        }
        for (place, _) in places.filter(|(_, factor)| **factor != 0) {
            self.widen(of(place).len);
        }
        let halves = [4, 0].map(|shift| Half::of(factors, &of, shift));
        for (index, to) in self.blocks.iter_mut().enumerate() {
            let mut result = [0; LANES];
            for half in &halves {
                result = half.add_to(result, index);
            }
            add(to, &result);
        }
    }

    /// Multiplies all by `factor`.
    pub(crate) fn scale(&mut self, factor: u8) {
        if factor != 1 {
            for block in &mut self.blocks {
                *block = times(block, factor);
            }
        }
    }
}

/// Values of half a factor.
const VALUES: usize = 16;

fn add(to: &mut Block, from: &Block) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}

fn double_all(block: &mut Block) {
    for lane in block {
        *lane = double(*lane);
    }
}

/// A block times `factor`.
fn times(block: &Block, factor: u8) -> Block {
    let mut product = [0; LANES];
    for bit in (0..u8::BITS - factor.leading_zeros()).rev() {
        double_all(&mut product);
        if factor >> bit & 1 == 1 {
            add(&mut product, block);
        }
    }
    product
}

/// Terms in the order of one half of their factors.
struct Half<'a> {
    terms: [&'a [Block]; MOST_COVERED],
    /// Where those of each value begin, and where those of the last end.
    starts: [usize; VALUES + 1],
}

impl<'a> Half<'a> {
    /// By the half that begins at bit `shift`.
    fn of(factors: &[u8], of: &impl Fn(usize) -> &'a Symbol, shift: u32) -> Self {
        let value = |factor: u8| usize::from(factor >> shift) % VALUES;
        let mut starts = [0; VALUES + 1];
        for &factor in factors {
            starts[value(factor) + 1] += 1;
        }
        for value in 0..VALUES {
            starts[value + 1] += starts[value];
        }
        let (mut terms, mut next): ([&[Block]; MOST_COVERED], _) = ([&[]; MOST_COVERED], starts);
        for (place, &factor) in factors.iter().enumerate() {
            let next = &mut next[value(factor)];
            terms[*next] = &of(place).blocks;
            *next += 1;
        }
        Self { terms, starts }
    }

    /// What the terms of a value have in a block, together; nothing for zero, which adds nothing.
    fn sum(&self, value: usize, index: usize) -> Block {
        let mut sum = [0; LANES];
        if value > 0 {
            let terms = &self.terms[self.starts[value]..self.starts[value + 1]];
            for block in terms.iter().filter_map(|term| term.get(index)) {
                add(&mut sum, block);
            }
        }
        sum
    }

    /// Shifts a block of the result by half a factor and adds what the terms have there, each times
    /// its value.
    fn add_to(&self, mut result: Block, index: usize) -> Block {
        let mut sums: [Block; VALUES] = std::array::from_fn(|value| self.sum(value, index));
        for bit in (0..VALUES.ilog2()).rev() {
            double_all(&mut result);
            // Values without the bit take over those that have it.
            let (without, with) = sums.split_at_mut(1 << bit);
            for (without, with) in zip(without, with) {
                add(&mut result, with);
                add(without, with);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::mul;

    fn some(len: u32, seed: u32) -> Vec<u8> {
        let bytes = (0..len).map(|byte| byte.wrapping_mul(7 + seed) + 3 * seed);
        bytes.map(|byte| byte as u8).collect()
    }

    #[test]
    fn blocks_are_what_their_bytes_are() {
        let from = some(200, 1);
        for factor in 0..=255 {
            let mut to = Symbol::of(&[0x5a; 210]);
            to.add_product(&Symbol::of(&from), factor);
            let expected = from.iter().map(|byte| mul(*byte, factor) ^ 0x5a);
            assert!(to.bytes()[..200].iter().copied().eq(expected), "{factor}");
            assert_eq!(to.bytes()[200..], [0x5a; 10]);

            let mut scaled = Symbol::of(&from);
            scaled.scale(factor);
            let expected = from.iter().map(|byte| mul(*byte, factor));
            assert!(scaled.bytes().iter().copied().eq(expected), "{factor}");
        }
    }

    #[test]
    fn terms_of_all_lengths_are_added_together_as_one_by_one() {
        let terms: Vec<Symbol> = (0..MOST_COVERED as u32)
            .map(|seed| Symbol::of(&some(seed * 37 % 700, seed)))
            .collect();
        let factors: Vec<u8> = (0..MOST_COVERED).map(|place| (place * 91) as u8).collect();
        for count in [0, 1, FEW - 1, FEW, 128, MOST_COVERED] {
            let mut together = Symbol::of(&some(300, 9));
            let mut one_by_one = together.clone();
            together.add_products(&factors[..count], |place| &terms[place]);
            for (term, &factor) in terms.iter().zip(&factors[..count]) {
                one_by_one.add_product(term, factor);
            }
            assert_eq!(together.bytes(), one_by_one.bytes(), "{count}");
        }
    }
}
