//! The pipe of each class of each site.
//!
//! A pipe without a tunnel is kept for a while: an edge that closes a tunnel of which it heard
//! nothing has the next one at once, and what waits for it leaves over that. One that slept, or was
//! cut off, may send again what has arrived, for as long as a connection lives.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use sennit_core::ClassId;

use crate::{
    ids::{PipeId, SiteId},
    transport::IDLE,
};

/// A pipe without a tunnel is forgotten after this: nothing that left before comes again.
const PARKED_FOR: Duration = IDLE.saturating_add(Duration::from_secs(10));

/// Whose a pipe is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) site: SiteId,
    pub(super) class: ClassId,
}

/// The pipes of all sites.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    by_owner: BTreeMap<Owner, PipeId>,
    owners: BTreeMap<PipeId, Owner>,
    /// Those without a tunnel, and since when.
    parked: VecDeque<(Instant, PipeId)>,
}

impl Pipes {
    /// Whose a pipe is.
    pub(super) fn owner(&self, pipe: PipeId) -> Option<&Owner> {
        self.owners.get(&pipe)
    }

    /// The pipe of a class, if it has one.
    pub(super) fn get(&self, owner: &Owner) -> Option<PipeId> {
        self.by_owner.get(owner).copied()
    }

    /// The pipe of a class that has a tunnel from now on, or what `make` makes if it has none yet.
    pub(super) fn take(&mut self, owner: Owner, make: impl FnOnce() -> PipeId) -> PipeId {
        if let Some(&pipe) = self.by_owner.get(&owner) {
            self.parked.retain(|&(_, parked)| parked != pipe);
            return pipe;
        }
        let pipe = make();
        self.by_owner.insert(owner.clone(), pipe);
        self.owners.insert(pipe, owner);
        pipe
    }

    /// The class has no tunnel any more.
    pub(super) fn park(&mut self, owner: &Owner, now: Instant) {
        if let Some(&pipe) = self.by_owner.get(owner) {
            self.parked.retain(|&(_, parked)| parked != pipe);
            self.parked.push_back((now, pipe));
        }
    }

    /// The next pipe that has had no tunnel for too long, and is to be forgotten.
    pub(super) fn poll_forgotten(&mut self, now: Instant) -> Option<PipeId> {
        let is_old = |&mut (since, _): &mut (Instant, PipeId)| now >= since + PARKED_FOR;
        let (_, pipe) = self.parked.pop_front_if(is_old)?;
        if let Some(owner) = self.owners.remove(&pipe) {
            self.by_owner.remove(&owner);
        }
        Some(pipe)
    }

    /// When a pipe is to be forgotten.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.parked.front().map(|&(since, _)| since + PARKED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_comes_back_soon_has_its_pipe_again() {
        let start = Instant::now();
        let mut pipes = Pipes::default();
        let van = Owner {
            site: "van".into(),
            class: ClassId(1),
        };
        let take = |pipes: &mut Pipes, id| pipes.take(van.clone(), || PipeId(id));
        assert_eq!(take(&mut pipes, 1), PipeId(1));
        pipes.park(&van, start);
        let soon = start + PARKED_FOR - Duration::from_millis(1);
        assert_eq!(pipes.poll_forgotten(soon), None);
        assert_eq!(take(&mut pipes, 2), PipeId(1));
        assert_eq!(pipes.poll_timeout(), None);

        pipes.park(&van, soon);
        assert_eq!(pipes.poll_timeout(), Some(soon + PARKED_FOR));
        assert_eq!(pipes.poll_forgotten(soon + PARKED_FOR), Some(PipeId(1)));
        assert_eq!(pipes.owner(PipeId(1)), None);
        assert_eq!(take(&mut pipes, 2), PipeId(2));
        assert_eq!(pipes.owner(PipeId(2)), Some(&van));
    }
}
