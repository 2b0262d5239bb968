//! Whose turn it is to send: the connections that something happened to, by class, and in a class
//! first come, first served.
//!
//! Classes stand in the order of their edge's configuration, so what comes first there does not
//! wait for what comes later. Nobody starves: a tunnel sends a round at most, and then all others
//! have had their turn before its next one.

use std::collections::{BTreeMap, BTreeSet};

use sennit_core::ClassId;

use crate::ids::ConnId;

/// Connections that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: BTreeSet<(Place, ConnId)>,
    places: BTreeMap<ConnId, Place>,
    next: u64,
}

/// The class, and how many had come before.
type Place = (ClassId, u64);

impl Turns {
    /// Something happened to a connection; if it waits already it keeps its place.
    pub(crate) fn push(&mut self, conn: ConnId, class: ClassId) {
        if self.places.contains_key(&conn) {
            return;
        }
        let place = (class, self.next);
        self.next += 1;
        self.places.insert(conn, place);
        self.waiting.insert((place, conn));
    }

    /// The one whose turn it is.
    pub(crate) fn first(&self) -> Option<ConnId> {
        self.waiting.first().map(|&(_, conn)| conn)
    }

    /// It has had its turn, or is gone.
    pub(crate) fn remove(&mut self, conn: ConnId) {
        if let Some(place) = self.places.remove(&conn) {
            self.waiting.remove(&(place, conn));
        }
    }

    /// All that wait, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnId> {
        self.waiting.iter().map(|&(_, conn)| conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_order_and_in_a_class_who_comes_first_goes_first() {
        let mut turns = Turns::default();
        let (calls, bulk) = (ClassId(0), ClassId(1));
        turns.push(ConnId(1), bulk);
        turns.push(ConnId(9), calls);
        turns.push(ConnId(4), calls);
        turns.push(ConnId(9), calls);
        let order: Vec<ConnId> = turns.iter().collect();
        assert_eq!(order, [ConnId(9), ConnId(4), ConnId(1)]);
        // Who has had a turn comes after those that wait.
        turns.remove(ConnId(9));
        turns.push(ConnId(9), calls);
        assert_eq!(turns.first(), Some(ConnId(4)));
        turns.remove(ConnId(4));
        turns.remove(ConnId(9));
        assert_eq!(turns.first(), Some(ConnId(1)));
        turns.remove(ConnId(1));
        assert_eq!(turns.first(), None);
    }
}
