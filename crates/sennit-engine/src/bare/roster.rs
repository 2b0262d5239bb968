//! Which connections of an endpoint have something to do, and whose turn it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Instant,
};

use crate::ids::ConnId;

/// The connections of an endpoint that have something to do, now or at some time.
#[derive(Debug, Default)]
pub struct Roster {
    /// Something happened to these since they were last asked for packets.
    touched: BTreeSet<ConnId>,
    /// These send before all others.
    urgent: BTreeSet<ConnId>,
    /// The one that sent last: the next one is next.
    served: Option<ConnId>,
    wakes: BTreeSet<(Instant, ConnId)>,
    wake_of: BTreeMap<ConnId, Instant>,
}

impl Roster {
    /// Something happened to a connection.
    pub fn touch(&mut self, id: ConnId) {
        self.touched.insert(id);
    }

    /// All connections to which something happened.
    #[must_use]
    pub fn touched(&self) -> Vec<ConnId> {
        self.touched.iter().copied().collect()
    }

    /// A connection sends before all others from now on; the others take turns.
    pub fn set_urgent(&mut self, id: ConnId) {
        self.urgent.insert(id);
    }

    /// Whose turn it is to send, until it [rests](Self::rest).
    pub fn take_turn(&mut self) -> Option<ConnId> {
        let urgent = self.urgent.iter().find(|id| self.touched.contains(id));
        if let Some(&id) = urgent {
            return Some(id);
        }
        let after = Bound::Excluded(self.served.unwrap_or(ConnId(0)));
        let next = self.touched.range((after, Bound::Unbounded)).next();
        let id = next.or_else(|| self.touched.first()).copied()?;
        self.served = Some(id);
        Some(id)
    }

    /// A connection has nothing to do before `wake`.
    pub fn rest(&mut self, id: ConnId, wake: Option<Instant>) {
        self.touched.remove(&id);
        if let Some(at) = self.wake_of.remove(&id) {
            self.wakes.remove(&(at, id));
        }
        if let Some(at) = wake {
            self.wake_of.insert(id, at);
            self.wakes.insert((at, id));
        }
    }

    /// A connection whose time has come.
    pub fn pop_due(&mut self, now: Instant) -> Option<ConnId> {
        let &(at, id) = self.wakes.first().filter(|(at, _)| *at <= now)?;
        self.wakes.remove(&(at, id));
        self.wake_of.remove(&id);
        self.touch(id);
        Some(id)
    }

    /// When the next connection's time comes.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wakes.first().map(|&(at, _)| at)
    }

    /// A connection is gone.
    pub fn forget(&mut self, id: ConnId) {
        self.rest(id, None);
        self.urgent.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_take_turns_behind_the_urgent_one() {
        let mut roster = Roster::default();
        for id in 0..4 {
            roster.touch(ConnId(id));
        }
        roster.set_urgent(ConnId(3));
        assert_eq!(roster.take_turn(), Some(ConnId(3)));
        roster.rest(ConnId(3), None);
        let turns: Vec<_> = (0..4).map_while(|_| roster.take_turn()).collect();
        assert_eq!(turns, [1, 2, 0, 1].map(ConnId));
    }

    #[test]
    fn a_connection_wakes_once_and_not_after_it_is_gone() {
        let mut roster = Roster::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        roster.rest(ConnId(1), Some(later));
        roster.rest(ConnId(2), Some(now));
        assert_eq!(roster.poll_timeout(), Some(now));
        assert_eq!(roster.pop_due(now), Some(ConnId(2)));
        assert_eq!(roster.pop_due(now), None);
        assert_eq!(roster.touched(), [ConnId(2)]);
        roster.forget(ConnId(1));
        assert_eq!((roster.pop_due(later), roster.poll_timeout()), (None, None));
    }
}
