//! What comes to a worker and belongs to another.
//!
//! Both are rare. A packet from the host does while its flow has not been answered yet: from the
//! answer on the TUN device knows which queue the flow belongs to. A UDP packet does when the kernel
//! has joined it to one with another connection ID, which happens only to a client that has
//! connections to several workers. They go to their owner through a bounded box, and what finds it
//! full is lost, as in any queue.

use std::{io, sync::Arc};

use bytes::{Bytes, BytesMut};
use sennit_engine::{Received, steering_octet};
use sennit_linux::poller::Poller;
use sennit_packet::gso::VirtioNetHdr;

use crate::daemon::mailbox::{self, Hatch, Mailbox};

/// What a box has room for: a few turns' worth of packets, at most 64 KB each.
const ROOM: usize = 256;

/// A thing that was found at the wrong worker.
#[derive(Debug)]
pub(super) enum Stray {
    /// From the TUN device, perhaps a super-packet.
    Packet { header: VirtioNetHdr, packet: Bytes },
    /// From a socket.
    Datagrams { from: Received, data: BytesMut },
}

/// What became of strays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Given to another worker.
    pub(super) handed: u64,
    /// Dropped, as the other worker's box was full.
    pub(super) overflowed: u64,
    /// Given by another worker, and dropped because nobody here knows it either.
    pub(super) unowned: u64,
}

/// One worker's end of the boxes.
#[derive(Debug)]
pub(super) struct Strays {
    inbox: Mailbox<Stray>,
    hatches: Arc<[Hatch<Stray>]>,
    /// Workers that have something new in their box, as bits.
    unwoken: u64,
    pub(super) counters: Counters,
}

impl Strays {
    pub(super) fn new(inbox: Mailbox<Stray>, hatches: Arc<[Hatch<Stray>]>) -> Self {
        Self {
            inbox,
            hatches,
            unwoken: 0,
            counters: Counters::default(),
        }
    }

    /// A box that reports to `poller` as `token`.
    pub(super) fn open_box(
        poller: &Poller,
        token: u64,
    ) -> io::Result<(Mailbox<Stray>, Hatch<Stray>)> {
        mailbox::open_bounded(poller, token, ROOM)
    }

    /// Gives something to another worker, which hears of it at the end of the turn.
    pub(super) fn hand(&mut self, worker: usize, stray: Stray) {
        if self.hatches[worker].leave(stray) {
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
    pub(super) fn take(&self) -> Vec<Stray> {
        self.inbox.acknowledge();
        let strays = self.take_early();
        if strays.len() == ROOM {
            self.inbox.put_off();
        }
        strays
    }

    /// The same before we are told. To look into an empty box costs next to nothing.
    pub(super) fn take_early(&self) -> Vec<Stray> {
        std::iter::from_fn(|| self.inbox.next())
            .take(ROOM)
            .collect()
    }
}

/// Which of `workers` UDP packets are for. What does not say is for `here`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    pub(super) here: usize,
    pub(super) workers: usize,
}

impl Owners {
    fn of(self, packet: &[u8]) -> usize {
        steering_octet(packet).map_or(self.here, |octet| usize::from(octet) % self.workers)
    }

    /// Whether all packets of a batch are for us.
    pub(super) fn all_here(self, batch: &[u8], segment: usize) -> bool {
        self.workers == 1
            || batch
                .chunks(segment.max(1))
                .all(|packet| self.of(packet) == self.here)
    }

    /// Cuts a batch into runs of packets with one owner each.
    pub(super) fn runs(
        self,
        mut batch: BytesMut,
        segment: usize,
    ) -> impl Iterator<Item = (usize, BytesMut)> {
        let segment = segment.max(1);
        std::iter::from_fn(move || {
            let owner = self.of(batch.chunks(segment).next()?);
            let packets = batch.chunks(segment);
            let count = packets
                .take_while(|packet| self.of(packet) == owner)
                .count();
            let len = batch.len().min(count * segment);
            Some((owner, batch.split_to(len)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sennit_engine::WORKER_OCTET;
    use sennit_linux::poller::Events;

    use super::*;

    const LEN: usize = 20;

    /// A short-header packet for the worker with this number.
    fn packet(worker: u8, fill: u8) -> [u8; LEN] {
        let mut packet = [fill; LEN];
        packet[0] = 0x40;
        packet[1 + WORKER_OCTET] = worker;
        packet
    }

    #[test]
    fn a_batch_is_cut_where_the_owner_changes_and_nothing_is_lost() {
        let owners = Owners {
            here: 1,
            workers: 3,
        };
        let mut batch = [
            packet(1, 0xa0),
            packet(4, 0xa1),
            packet(2, 0xa2),
            packet(1, 0xa3),
        ]
        .concat();
        batch.extend([0x40, 0]);

        let runs: Vec<(usize, BytesMut)> = owners.runs(BytesMut::from(&batch[..]), LEN).collect();

        let shape: Vec<(usize, usize)> = runs.iter().map(|(to, run)| (*to, run.len())).collect();
        assert_eq!(shape, [(1, 2 * LEN), (2, LEN), (1, LEN + 2)]);
        let joined: Vec<u8> = runs.iter().flat_map(|(_, run)| run.to_vec()).collect();
        assert_eq!(joined, batch);
        assert!(!owners.all_here(&batch, LEN));
        assert!(owners.all_here(&batch[..2 * LEN], LEN));
    }

    #[test]
    fn one_worker_owns_everything() {
        let alone = Owners {
            here: 0,
            workers: 1,
        };
        assert!(alone.all_here(&[packet(7, 0), packet(250, 0)].concat(), LEN));
    }

    fn stray(fill: u8) -> Stray {
        Stray::Packet {
            header: VirtioNetHdr::default(),
            packet: Bytes::copy_from_slice(&[fill; 4]),
        }
    }

    #[test]
    fn a_full_box_takes_no_more_and_what_is_left_in_it_is_reported_again() {
        let pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
        let (inboxes, hatches): (Vec<_>, Vec<_>) = pollers
            .iter()
            .map(|poller| Strays::open_box(poller, 0).unwrap())
            .unzip();
        let hatches: Arc<[_]> = hatches.into();
        let mut strays = inboxes
            .into_iter()
            .map(|inbox| Strays::new(inbox, hatches.clone()));
        let (mut here, there) = (strays.next().unwrap(), strays.next().unwrap());
        let told = || {
            let mut events = Events::with_capacity(1);
            pollers[1].wait(&mut events, Some(Duration::ZERO)).unwrap() == 1
        };

        for _ in 0..ROOM + 3 {
            here.hand(1, stray(1));
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
