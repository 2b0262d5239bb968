//! The end of all loops of a daemon.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use sennit_linux::poller::Waker;

/// A request to end all loops of a daemon, from a signal handler or another thread.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Stop {
    requested: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
    wakers: Arc<[Waker]>,
}

/// Ends the loops, as a failure, if the thread that holds this panics: no daemon goes on half-dead.
#[derive(Debug)]
pub(in crate::daemon) struct Lifeline(Stop);

impl Drop for Lifeline {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail();
        }
    }
}

impl Stop {
    /// One waker for each loop.
    pub(in crate::daemon) fn new(wakers: Vec<Waker>) -> Self {
        Self {
            requested: Arc::default(),
            failed: Arc::default(),
            wakers: wakers.into(),
        }
    }

    /// For a thread that the daemon cannot do without.
    pub(in crate::daemon) fn lifeline(&self) -> Lifeline {
        Lifeline(self.clone())
    }

    /// Ends the loops, as a failure.
    pub(in crate::daemon) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.request();
    }

    pub(in crate::daemon) fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    pub(super) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Whether something failed that the daemon cannot do without.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}
