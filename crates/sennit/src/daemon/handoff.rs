//! What comes to a worker and belongs to another.
//!
//! That is rare. A packet from the host does while its flow has not been answered yet: from the
//! answer on the TUN device knows which queue the flow belongs to. It goes to its owner through a
//! bounded box, and what finds that full is lost, as in any queue.

use std::{io, sync::Arc};

use sennit_engine::Woken;
use sennit_linux::poller::Poller;

use super::{
    mailbox::{self, Hatch, Mailbox},
    worker::TUN_READS,
};
use crate::status::WorkerStatus;

/// What a box has room for: all that one turn reads, packets of at most 64 KB. Its owner is woken
/// when that turn ends.
const ROOM: usize = TUN_READS;

/// What became of what was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Given to another worker.
    pub(super) handed: u64,
    /// Dropped, as the other worker's box was full.
    pub(super) overflowed: u64,
    /// Given by another worker, and dropped because nobody here knows it either.
    pub(super) unowned: u64,
}

impl Counters {
    /// The status of a worker with so many tunnels, whose engine was woken so often.
    pub(super) fn status(self, tunnels: usize, woken: &Woken) -> WorkerStatus {
        WorkerStatus {
            tunnels: tunnels as u64,
            handed_packets: self.handed,
            overflowed_packets: self.overflowed,
            unowned_packets: self.unowned,
            woken: woken
                .iter()
                .map(|(timer, count)| (timer.word().into(), count))
                .collect(),
            ..WorkerStatus::default()
        }
    }
}

/// One worker's end of the boxes, for things of type `S`.
#[derive(Debug)]
pub(super) struct Handoff<S> {
    inbox: Mailbox<S>,
    hatches: Arc<[Hatch<S>]>,
    /// Workers that have something new in their box, as bits.
    unwoken: u64,
    pub(super) counters: Counters,
}

impl<S> Handoff<S> {
    pub(super) fn new(inbox: Mailbox<S>, hatches: Arc<[Hatch<S>]>) -> Self {
        Self {
            inbox,
            hatches,
            unwoken: 0,
            counters: Counters::default(),
        }
    }

    /// A box that reports to `poller` as `token`.
    pub(super) fn open_box(poller: &Poller, token: u64) -> io::Result<(Mailbox<S>, Hatch<S>)> {
        mailbox::open_bounded(poller, token, ROOM)
    }

    /// Gives something to another worker, which hears of it at the end of the turn.
    pub(super) fn hand(&mut self, worker: usize, handed: S) {
        if self.hatches[worker].leave(handed) {
            self.counters.handed += 1;
            self.unwoken |= 1 << worker;
        } else {
            self.counters.overflowed += 1;
        }
    }

    /// Ends a turn.
    pub(super) fn wake_others(&mut self) {
        while self.unwoken != 0 {
            self.hatches[self.unwoken.trailing_zeros() as usize].wake();
            self.unwoken &= self.unwoken - 1;
        }
    }

    /// What others gave to us: all of it, but no more than one box full at once.
    pub(super) fn take(&self) -> Vec<S> {
        self.inbox.acknowledge();
        let handed = self.take_early();
        if handed.len() == ROOM {
            self.inbox.put_off();
        }
        handed
    }

    /// What others gave to us, before we are told of it. To look into an empty box costs next to
    /// nothing.
    pub(super) fn take_early(&self) -> Vec<S> {
        std::iter::from_fn(|| self.inbox.next())
            .take(ROOM)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sennit_linux::poller::Events;

    use super::*;

    #[test]
    fn a_full_box_takes_no_more_and_what_is_left_in_it_is_reported_again() {
        let pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
        let (inboxes, hatches): (Vec<_>, Vec<_>) = pollers
            .iter()
            .map(|poller| Handoff::open_box(poller, 0).unwrap())
            .unzip();
        let hatches: Arc<[_]> = hatches.into();
        let mut ends = inboxes
            .into_iter()
            .map(|inbox| Handoff::new(inbox, hatches.clone()));
        let (mut here, there) = (ends.next().unwrap(), ends.next().unwrap());
        let told = || {
            let mut events = Events::with_capacity(1);
            pollers[1].wait(&mut events, Some(Duration::ZERO)).unwrap() == 1
        };

        for _ in 0..ROOM + 3 {
            here.hand(1, ());
        }
        assert!(!told(), "not before the end of the turn");
        here.wake_others();

        assert!(told());
        let counters = Counters {
            handed: ROOM as u64,
            overflowed: 3,
            unowned: 0,
        };
        assert_eq!(here.counters, counters);
        assert_eq!(there.take().len(), ROOM);
        assert!(told(), "there may be more");
        assert_eq!(there.take().len(), 0);
        assert!(!told());
    }
}
