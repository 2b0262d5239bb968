//! How other threads reach the worker.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    time::{Duration, Instant},
};

use sennit_linux::poller::{Poller, Waker};

use crate::{
    control::{Refused, Request},
    exit::Failure,
};

/// A worker answers within one turn of its loop; if it does not, it is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// The worker's end: letters, and the waker to acknowledge.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    letters: Receiver<T>,
    waker: Waker,
}

/// The other threads' end.
#[derive(Debug)]
pub(super) struct Slot<T> {
    letters: Sender<T>,
    waker: Waker,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self {
            letters: self.letters.clone(),
            waker: self.waker.clone(),
        }
    }
}

/// A mailbox that reports letters to `poller` as `token`.
pub(super) fn open<T>(poller: &Poller, token: u64) -> io::Result<(Mailbox<T>, Slot<T>)> {
    let waker = Waker::new(poller, token)?;
    let (sender, receiver) = mpsc::channel();
    let mailbox = Mailbox {
        letters: receiver,
        waker: waker.clone(),
    };
    Ok((
        mailbox,
        Slot {
            letters: sender,
            waker,
        },
    ))
}

/// A mailbox for each worker, and the other ends.
pub(super) fn for_each<M, S>(
    pollers: &[Arc<Poller>],
    open: impl Fn(&Poller) -> io::Result<(M, S)>,
) -> Result<(Vec<M>, Vec<S>), Failure> {
    let opened = pollers.iter().map(|poller| open(poller));
    let opened: Vec<(M, S)> = opened.collect::<Result<_, _>>().map_err(Failure::runtime)?;
    Ok(opened.into_iter().unzip())
}

/// The other threads' end of a mailbox with little room, for letters that may get lost.
#[derive(Debug)]
pub(super) struct Hatch<T> {
    letters: SyncSender<T>,
    waker: Waker,
}

/// A mailbox with room for this many letters.
pub(super) fn open_bounded<T>(
    poller: &Poller,
    token: u64,
    room: usize,
) -> io::Result<(Mailbox<T>, Hatch<T>)> {
    let waker = Waker::new(poller, token)?;
    let (sender, receiver) = mpsc::sync_channel(room);
    let mailbox = Mailbox {
        letters: receiver,
        waker: waker.clone(),
    };
    let hatch = Hatch {
        letters: sender,
        waker,
    };
    Ok((mailbox, hatch))
}

impl<T> Mailbox<T> {
    /// Takes the wake-ups so far; the letters are to be read after that.
    pub(super) fn acknowledge(&self) {
        self.waker.acknowledge();
    }

    pub(super) fn next(&self) -> Option<T> {
        self.letters.try_recv().ok()
    }

    /// The letters that are left are reported again.
    pub(super) fn put_off(&self) {
        self.waker.wake();
    }
}

impl<T> Hatch<T> {
    /// Leaves a letter; false if there was no room for it. Nobody is told before [`Self::wake`].
    pub(super) fn leave(&self, letter: T) -> bool {
        self.letters.try_send(letter).is_ok()
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }
}

impl<T> Slot<T> {
    /// Drops the letter if the worker is gone.
    pub(super) fn post(&self, letter: T) {
        if self.letters.send(letter).is_ok() {
            self.waker.wake();
        }
    }
}

/// A question from the control socket.
#[derive(Debug)]
pub(super) struct Question<A> {
    pub(super) request: Request,
    answer: Sender<A>,
}

impl<A> Question<A> {
    pub(super) fn answer(self, answer: A) {
        // Whoever asked may have lost patience.
        let _ = self.answer.send(answer);
    }
}

/// Puts a question to all workers and waits for their answers, or says that somebody does not.
pub(super) fn ask_all<A>(
    slots: &[Slot<Question<A>>],
    request: &Request,
) -> Result<Vec<A>, Refused> {
    let put = |slot: &Slot<Question<A>>| {
        let (answer, answers) = mpsc::channel();
        slot.post(Question {
            request: request.clone(),
            answer,
        });
        answers
    };
    let pending: Vec<Receiver<A>> = slots.iter().map(put).collect();
    let deadline = Instant::now() + PATIENCE;
    let left = || deadline.saturating_duration_since(Instant::now());
    let answers = pending.into_iter().map(|it| it.recv_timeout(left()));
    answers
        .collect::<Result<_, _>>()
        .map_err(|_| Refused::new("busy", "the daemon does not answer; it may be stopping"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_hatch_takes_no_more_than_it_has_room_for() {
        let poller = Poller::new().unwrap();
        let (mailbox, hatch) = open_bounded(&poller, 0, 2).unwrap();

        let taken = [1, 2, 3].map(|letter| hatch.leave(letter));

        assert_eq!(taken, [true, true, false]);
        assert_eq!(
            [mailbox.next(), mailbox.next(), mailbox.next()],
            [Some(1), Some(2), None]
        );
        assert!(hatch.leave(4));
    }

    #[test]
    fn every_worker_is_asked_and_one_that_is_gone_is_noticed() {
        let poller = Poller::new().unwrap();
        let (mut mailboxes, mut slots): (Vec<_>, Vec<_>) = (0..3)
            .map(|token| open::<Question<u64>>(&poller, token).unwrap())
            .unzip();
        let answers = thread::scope(|scope| {
            for (number, mailbox) in (0_u64..).zip(&mut mailboxes) {
                scope.spawn(move || {
                    let question = mailbox.letters.recv().unwrap();
                    assert_eq!(question.request, Request::Status);
                    question.answer(number);
                });
            }
            ask_all(&slots, &Request::Status)
        });
        assert_eq!(answers, Ok(vec![0, 1, 2]));

        let (gone, slot) = open(&poller, 3).unwrap();
        drop(gone);
        slots.push(slot);
        let answers = thread::scope(|scope| {
            for mailbox in &mut mailboxes {
                scope.spawn(move || mailbox.letters.recv().unwrap().answer(0));
            }
            ask_all(&slots, &Request::Status)
        });
        assert!(answers.is_err(), "{answers:?}");
    }
}
