//! Equations with unknowns, kept so that each unknown which stands first in one stands in no other.

use crate::{
    field::{inverse, mul},
    symbol::Symbol,
};

/// Equations that are kept at most; the oldest is given up for a new one.
pub(crate) const MOST_ROWS: usize = 64;

/// One equation: the sum of the unknowns, each with its factor, is this.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// Unknowns in order; none has factor zero.
    pub(crate) unknowns: Vec<(u64, u8)>,
    pub(crate) sum: Symbol,
}

impl Row {
    fn place(&self, id: u64) -> Result<usize, usize> {
        self.unknowns.binary_search_by_key(&id, |unknown| unknown.0)
    }

    fn factor(&self, id: u64) -> u8 {
        self.place(id).map_or(0, |place| self.unknowns[place].1)
    }

    fn pivot(&self) -> Option<u64> {
        self.unknowns.first().map(|unknown| unknown.0)
    }

    /// Adds `factor` times another equation.
    fn add(&mut self, other: &Self, factor: u8) {
        if factor == 0 {
            return;
        }
        for &(id, of_other) in &other.unknowns {
            let more = mul(of_other, factor);
            match self.place(id) {
                Ok(place) if self.unknowns[place].1 == more => {
                    self.unknowns.remove(place);
                }
                Ok(place) => self.unknowns[place].1 ^= more,
                Err(place) => self.unknowns.insert(place, (id, more)),
            }
        }
        self.sum.add_product(&other.sum, factor);
    }

    /// Makes the first factor one.
    fn normalise(&mut self) {
        let Some(&(_, first)) = self.unknowns.first() else {
            return;
        };
        let factor = inverse(first);
        self.sum.scale(factor);
        for unknown in &mut self.unknowns {
            unknown.1 = mul(unknown.1, factor);
        }
    }
}

/// The equations.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
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
    pub(crate) fn insert(&mut self, mut row: Row) -> usize {
        for other in &self.rows {
            if let Some(pivot) = other.pivot() {
                row.add(other, row.factor(pivot));
            }
        }
        row.normalise();
        let Some(pivot) = row.pivot() else { return 0 };
        for other in &mut self.rows {
            let factor = other.factor(pivot);
            other.add(&row, factor);
        }
        self.rows.push(row);
        let given_up = self.rows.len().saturating_sub(MOST_ROWS);
        self.rows.drain(..given_up);
        given_up
    }

    /// An unknown is known by now.
    pub(crate) fn substitute(&mut self, id: u64, known: &Symbol) {
        let mut again = None;
        for (index, row) in self.rows.iter_mut().enumerate() {
            let Ok(place) = row.place(id) else { continue };
            let (_, factor) = row.unknowns.remove(place);
            row.sum.add_product(known, factor);
            if place == 0 {
                again = Some(index);
            }
        }
        if let Some(index) = again {
            let row = self.rows.remove(index);
            self.insert(row);
        }
    }

    /// An unknown that is solved, and what it is.
    pub(crate) fn take_solved(&mut self) -> Option<(u64, Symbol)> {
        let solved = |row: &Row| row.unknowns.len() == 1;
        let index = self.rows.iter().position(solved)?;
        let row = self.rows.remove(index);
        let (id, factor) = row.unknowns[0];
        debug_assert_eq!(factor, 1, "rows are normalised");
        Some((id, row.sum))
    }

    /// Gives up equations with unknowns below `oldest`; returns how many.
    pub(crate) fn give_up_below(&mut self, oldest: u64) -> usize {
        let before = self.rows.len();
        self.rows
            .retain(|row| row.pivot().is_some_and(|pivot| pivot >= oldest));
        before - self.rows.len()
    }
}
