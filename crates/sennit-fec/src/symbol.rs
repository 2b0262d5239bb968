//! What is combined: bytes in whole blocks, filled up with zeros, so that no sum has a rest.
//!
//! [`Symbol::add_products`] is where the time goes. It follows Horner's rule for all terms
//! together: a block of the sum is doubled eight times, whatever is added in between. Term by term
//! it would be doubled eight times for each. All lanes of a vector register do the same, and the
//! compiler sees that.

use crate::{
    MOST_COVERED,
    field::{double, mul},
};

/// Bytes that are worked on at once: eight registers of the least x86-64.
const LANES: usize = 128;

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
        self.reset(head.len() + body.len());
        let (first, rest) = self.blocks.as_flattened_mut().split_at_mut(head.len());
        first.copy_from_slice(head);
        rest[..body.len()].copy_from_slice(body);
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

    /// Bytes of memory that it has.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.capacity() * LANES
    }

    /// Adds `factor` times another, and becomes as long as that if it was shorter.
    pub(crate) fn add_product(&mut self, other: &Self, factor: u8) {
        self.add_products(&[factor], |_| other);
    }

    /// Adds the terms `of` all places, each times its factor. There are at most [`MOST_COVERED`].
    pub(crate) fn add_products<'a>(&mut self, factors: &[u8], of: impl Fn(usize) -> &'a Self) {
        let mut terms: [&[Block]; MOST_COVERED] = [&[]; MOST_COVERED];
        for (place, term) in terms.iter_mut().enumerate().take(factors.len()) {
            let symbol = of(place);
            self.widen(symbol.len);
            *term = &symbol.blocks;
        }
        let by_bit = by_bit(factors);
        for (index, to) in self.blocks.iter_mut().enumerate() {
            let mut sum = [0; LANES];
            for places in &by_bit {
                for lane in &mut sum {
                    *lane = double(*lane);
                }
                let added = places.iter().map(|&place| terms[usize::from(place)]);
                for block in added.filter_map(|term| term.get(index)) {
                    add(&mut sum, block);
                }
            }
            add(to, &sum);
        }
    }

    /// Multiplies all by `factor`.
    pub(crate) fn scale(&mut self, factor: u8) {
        if factor != 1 {
            for byte in self.blocks.as_flattened_mut() {
                *byte = mul(*byte, factor);
            }
        }
    }
}

fn add(to: &mut Block, from: &Block) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}

/// Places whose factor has a bit set.
struct Places {
    all: [u8; MOST_COVERED],
    count: usize,
}

impl std::ops::Deref for Places {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.all[..self.count]
    }
}

/// For each bit, the highest first, the places whose factors have it.
fn by_bit(factors: &[u8]) -> [Places; 8] {
    let mut found = [0; 8].map(|count| Places {
        all: [0; MOST_COVERED],
        count,
    });
    for (factor, place) in factors.iter().zip(0..) {
        for (bit, places) in (0..8).rev().zip(&mut found) {
            places.all[places.count] = place;
            places.count += usize::from(factor >> bit & 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

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
        }
    }

    #[test]
    fn terms_of_all_lengths_are_added_together_as_one_by_one() {
        let terms: Vec<Symbol> = (0..MOST_COVERED as u32)
            .map(|seed| Symbol::of(&some(seed * 37 % 700, seed)))
            .collect();
        let factors: Vec<u8> = (0..MOST_COVERED).map(|place| (place * 91) as u8).collect();
        for count in [0, 1, 2, 128, MOST_COVERED] {
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
