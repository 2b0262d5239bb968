//! A thread that may do what its callers may not, for as long as they need it.
//!
//! Threads that carry packets open no socket and start no thread that could
//! ([`sennit_linux::confine`]). What they want of the host is done for them by a deputy, which was
//! started before and reads nothing of strangers.

use std::{
    io,
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
};

type Deed<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Dropped, it lets go of its charge and ends.
#[derive(Debug)]
pub(super) struct Deputy<T> {
    deeds: Option<Sender<Deed<T>>>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Deputy<T> {
    /// Starts a thread with the rights of this one, in charge of `charge`.
    pub(super) fn start(mut charge: T) -> io::Result<Self> {
        let (deeds, asked) = mpsc::channel::<Deed<T>>();
        let run = move || {
            for deed in asked {
                deed(&mut charge);
            }
            charge
        };
        let thread = thread::Builder::new().name("deputy".into()).spawn(run)?;
        Ok(Self {
            deeds: Some(deeds),
            thread: Some(thread),
        })
    }

    /// Has it do something, and waits until that is done.
    ///
    /// # Panics
    /// If the deed does.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        deed: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> R {
        let (answer, answered) = mpsc::sync_channel(1);
        let deed = move |charge: &mut T| {
            let _ = answer.send(deed(charge));
        };
        let sent = self.deeds.as_ref().map(|deeds| deeds.send(Box::new(deed)));
        let done = sent.is_some_and(|sent| sent.is_ok());
        let outcome = answered.recv().ok().filter(|_| done);
        outcome.expect("a deputy ends with its owner or by a panic, which goes on here")
    }

    /// Ends it; what it was in charge of, unless a deed panicked.
    pub(super) fn end(mut self) -> Option<T> {
        self.finish()
    }
}

impl<T> Deputy<T> {
    fn finish(&mut self) -> Option<T> {
        drop(self.deeds.take());
        self.thread.take()?.join().ok()
    }
}

impl<T> Drop for Deputy<T> {
    fn drop(&mut self) {
        drop(self.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deputy_does_what_it_is_asked_to_in_order_and_hands_its_charge_back() {
        let deputy = Deputy::start(vec![1]).unwrap();
        let (here, text) = (thread::current().id(), String::from("owned"));

        let there = deputy.ask(|numbers| {
            numbers.push(2);
            thread::current().id()
        });
        assert_ne!(here, there);
        assert_eq!(deputy.ask(move |numbers| (numbers.len(), text)).0, 2);

        assert_eq!(deputy.end(), Some(vec![1, 2]));
    }

    #[test]
    fn it_keeps_the_rights_that_its_callers_give_up() {
        if !sennit_linux::privilege::has_net_admin() {
            return;
        }
        let deputy = Deputy::start(()).unwrap();
        let (own, its) = thread::scope(|scope| {
            let caller = scope.spawn(|| {
                sennit_linux::confine::carry_packets().unwrap();
                let its = deputy.ask(|()| sennit_linux::privilege::has_net_admin());
                (sennit_linux::privilege::has_net_admin(), its)
            });
            caller.join().unwrap()
        });
        assert_eq!((own, its), (false, true));
    }
}
