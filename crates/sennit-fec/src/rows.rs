//! Equations with unknowns, of which no two begin or end with the same unknown.
//!
//! Where two do, the longer one loses that unknown by the other, which covers nothing that it does
//! not cover itself. So an equation never covers more than the repair that it came from, whatever
//! arrives, and each step makes one shorter. What is left has minimal span (a trellis-oriented
//! basis, Kschischang and Sorokine 1995): a sum of several begins with the first of their unknowns
//! and ends with the last, so whatever they are enough for stands in one of them alone.

use std::collections::BTreeMap;

use crate::{
    MOST_COVERED,
    field::{inverse, mul},
    symbol::Symbol,
};

/// Equations that are kept at most; the oldest is given up for a new one.
pub(crate) const MOST_ROWS: usize = 64;
/// Places for factors: numbers that one equation covers differ modulo this.
pub(crate) const COLUMNS: usize = MOST_COVERED + 1;

/// One equation: the sum of the unknowns, each with its factor, is this.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The first unknown, which is behind the last if there is none.
    first: u64,
    last: u64,
    /// The factor of each number, at that modulo [`COLUMNS`]; zero for what is no unknown.
    factors: Symbol,
    sum: Symbol,
}

impl Row {
    /// The sum of these unknowns, which are in order and cover at most [`MOST_COVERED`] numbers.
    pub(crate) fn of(unknowns: &[(u64, u8)], sum: Symbol) -> Self {
        let mut factors = Symbol::of(&[0; COLUMNS]);
        for &(id, factor) in unknowns {
            factors.put(column(id), factor);
        }
        Self {
            first: unknowns.first().map_or(1, |unknown| unknown.0),
            last: unknowns.last().map_or(0, |unknown| unknown.0),
            factors,
            sum,
        }
    }

    fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// By how much its last unknown is behind its first.
    fn span(&self) -> u64 {
        self.last - self.first
    }

    fn factor(&self, id: u64) -> u8 {
        let covers = (self.first..=self.last).contains(&id);
        if covers {
            self.factors.bytes()[column(id)]
        } else {
            0
        }
    }

    /// Loses an unknown at one of its ends by another equation, which ends there too and covers no
    /// more.
    fn cancel(&mut self, other: &Self, id: u64) {
        let factor = mul(self.factor(id), inverse(other.factor(id)));
        self.factors.add_product(&other.factors, factor);
        self.sum.add_product(&other.sum, factor);
        self.trim();
    }

    /// An unknown is known by now; true if the equation began or ended with it.
    fn substitute(&mut self, id: u64, known: &Symbol) -> bool {
        let factor = self.factor(id);
        if factor == 0 {
            return false;
        }
        self.factors.put(column(id), 0);
        self.sum.add_product(known, factor);
        let was_end = id == self.first || id == self.last;
        self.trim();
        was_end
    }

    /// Begins and ends with an unknown again.
    fn trim(&mut self) {
        while !self.is_empty() && self.factor(self.first) == 0 {
            self.first += 1;
        }
        while !self.is_empty() && self.factor(self.last) == 0 {
            self.last -= 1;
        }
    }
}

fn column(id: u64) -> usize {
    (id % COLUMNS as u64) as usize
}

/// The equations.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// By their first unknown.
    rows: BTreeMap<u64, Row>,
    /// How often one was added to another.
    #[cfg(test)]
    pub(crate) additions: usize,
}

impl Rows {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Takes an equation. Returns how many were given up for it.
    pub(crate) fn insert(&mut self, row: Row) -> usize {
        self.place(vec![row]);
        let given_up = self.rows.len().saturating_sub(MOST_ROWS);
        for _ in 0..given_up {
            self.rows.pop_first();
        }
        given_up
    }

    /// Has equations among the others, as far as they say anything new.
    fn place(&mut self, mut unplaced: Vec<Row>) {
        while let Some(mut row) = unplaced.pop() {
            if row.is_empty() {
                continue;
            }
            let Some(mut rival) = self.take_rival(&row) else {
                self.rows.insert(row.first, row);
                continue;
            };
            if row.span() < rival.span() {
                std::mem::swap(&mut row, &mut rival);
            }
            let shared = if row.first == rival.first {
                row.first
            } else {
                row.last
            };
            row.cancel(&rival, shared);
            #[cfg(test)]
            {
                self.additions += 1;
            }
            unplaced.extend([rival, row]);
        }
    }

    /// Takes out one that begins or ends as this does.
    fn take_rival(&mut self, row: &Row) -> Option<Row> {
        if let Some(rival) = self.rows.remove(&row.first) {
            return Some(rival);
        }
        let mut others = self.rows.iter();
        let (&first, _) = others.find(|(_, other)| other.last == row.last)?;
        self.rows.remove(&first)
    }

    /// An unknown is known by now.
    pub(crate) fn substitute(&mut self, id: u64, known: &Symbol) {
        let mut moved = Vec::new();
        for (&first, row) in &mut self.rows {
            if row.substitute(id, known) {
                moved.push(first);
            }
        }
        let moved = moved.iter().filter_map(|first| self.rows.remove(first));
        let unplaced = moved.collect();
        self.place(unplaced);
    }

    /// An unknown that is solved, and what it is.
    pub(crate) fn take_solved(&mut self) -> Option<(u64, Symbol)> {
        let mut rows = self.rows.values();
        let id = rows.find(|row| row.first == row.last)?.first;
        let mut row = self.rows.remove(&id)?;
        let factor = row.factor(id);
        row.sum.scale(inverse(factor));
        self.substitute(id, &row.sum);
        Some((id, row.sum))
    }

    /// The most numbers that an equation covers behind its first.
    #[cfg(test)]
    pub(crate) fn widest(&self) -> u64 {
        self.rows.values().map(Row::span).max().unwrap_or(0)
    }

    /// Gives up equations with unknowns below `oldest`; returns how many.
    pub(crate) fn give_up_below(&mut self, oldest: u64) -> usize {
        let kept = self.rows.split_off(&oldest);
        std::mem::replace(&mut self.rows, kept).len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Numbers from here on, so that their columns wrap.
    const FROM: u64 = 2 * COLUMNS as u64 - 9;
    const IDS: usize = 24;

    /// What the unknown with this number is.
    fn value(id: u64) -> u8 {
        (id * 37 + 5) as u8
    }

    /// Unknowns that follow from equations by elimination (Gauss and Jordan), without regard for
    /// how many there are or how much they cover.
    fn determined(mut rows: Vec<[u8; IDS]>) -> BTreeSet<u64> {
        let mut done = 0;
        for at in 0..IDS {
            let Some(found) = (done..rows.len()).find(|&row| rows[row][at] != 0) else {
                continue;
            };
            rows.swap(done, found);
            let pivot = rows[done].map(|factor| mul(factor, inverse(rows[done][at])));
            for row in &mut rows {
                let times = row[at];
                for (to, from) in row.iter_mut().zip(pivot) {
                    *to ^= mul(from, times);
                }
            }
            rows[done] = pivot;
            done += 1;
        }
        let alone = rows
            .iter()
            .filter(|row| row.iter().filter(|it| **it != 0).count() == 1);
        let places = alone.filter_map(|row| row.iter().position(|it| *it != 0));
        places.map(|place| FROM + place as u64).collect()
    }

    /// An equation, or a source that arrives if it is of one unknown.
    fn equation() -> impl Strategy<Value = [u8; IDS]> {
        let factors = prop::collection::vec(0_u8..4, 1..9);
        (0..IDS - 8, factors).prop_map(|(from, factors)| {
            let mut row = [0; IDS];
            row[from..from + factors.len()].copy_from_slice(&factors);
            row
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Few factors, so that equations depend on each other now and then.
        #[test]
        fn whatever_equations_are_enough_for_is_found_at_once(
            equations in prop::collection::vec(equation(), 1..40),
        ) {
            let (mut rows, mut known) = (Rows::default(), BTreeSet::new());
            for (count, equation) in (1..).zip(&equations) {
                let factors = (FROM..).zip(*equation).filter(|(_, factor)| *factor != 0);
                let unknowns: Vec<(u64, u8)> =
                    factors.filter(|(id, _)| !known.contains(id)).collect();
                match unknowns[..] {
                    [] => {}
                    [(id, _)] => {
                        rows.substitute(id, &Symbol::of(&[value(id)]));
                        known.insert(id);
                    }
                    _ => {
                        let terms = unknowns.iter().map(|(id, factor)| mul(value(*id), *factor));
                        let sum = terms.fold(0, |sum, term| sum ^ term);
                        prop_assert_eq!(rows.insert(Row::of(&unknowns, Symbol::of(&[sum]))), 0);
                    }
                }
                while let Some((id, found)) = rows.take_solved() {
                    prop_assert_eq!(found.bytes(), [value(id)]);
                    prop_assert!(known.insert(id));
                }
                prop_assert_eq!(&known, &determined(equations[..count].to_vec()));
            }
        }
    }
}
