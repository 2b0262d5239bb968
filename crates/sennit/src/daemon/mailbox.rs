//! How other threads reach the worker.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use sennit_linux::poller::{Poller, Waker};

use crate::control::{Request, Response};

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

impl<T> Mailbox<T> {
    /// Takes the wake-ups so far; the letters are to be read after that.
    pub(super) fn acknowledge(&self) {
        self.waker.acknowledge();
    }

    pub(super) fn next(&self) -> Option<T> {
        self.letters.try_recv().ok()
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
pub(super) struct Question {
    pub(super) request: Request,
    answer: Sender<Response>,
}

impl Question {
    pub(super) fn answer(self, response: Response) {
        // Whoever asked may have lost patience.
        let _ = self.answer.send(response);
    }
}

/// Puts a question to the worker and waits for the answer.
pub(super) fn ask(slot: &Slot<Question>, request: Request) -> Response {
    let (sender, receiver) = mpsc::channel();
    slot.post(Question {
        request,
        answer: sender,
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        Response::refused("busy", "the daemon does not answer; it may be stopping")
    })
}
