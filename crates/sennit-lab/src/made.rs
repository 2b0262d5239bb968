//! What this process has made outside of itself and has to remove, when a signal ends it too.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Doing, Error};

/// Names of things that this process has made and not yet removed.
#[derive(Debug)]
pub(crate) struct Made<T>(Mutex<Names<T>>);

#[derive(Debug)]
struct Names<T> {
    all: BTreeSet<T>,
    /// Whether the process ends, so that nobody would remove another one.
    closed: bool,
}

impl<T: Ord + Clone> Made<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Names {
            all: BTreeSet::new(),
            closed: false,
        }))
    }

    /// Makes one, whose name is noted before: who closes the list meanwhile waits until it is made.
    pub(crate) fn make<M>(
        &self,
        name: &T,
        make: impl FnOnce() -> Result<M, Error>,
    ) -> Result<M, Error> {
        let mut names = self.lock();
        if names.closed {
            let ended = Err(io::Error::from(ErrorKind::Interrupted));
            return ended.doing(|| "make anything more, as this process ends".into());
        }
        names.all.insert(name.clone());
        make()
    }

    /// All that there is; nothing is made any more from then on.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut names = self.lock();
        names.closed = true;
        names.all.iter().cloned().collect()
    }

    /// It was removed.
    pub(crate) fn forget(&self, name: &T) {
        self.lock().all.remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, Names<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_known_and_nothing_is_made_once_the_process_ends() {
        let made = Made::new();
        let make = |name| made.make(&name, || Ok(()));
        assert!(make("a").is_ok() && make("b").is_ok());
        made.forget(&"a");

        assert_eq!(made.close(), ["b"]);

        let error = made.make(&"c", || -> Result<(), Error> { panic!("it is not made") });
        let error = error.expect_err("the process ends").to_string();
        assert!(error.contains("this process ends"), "{error}");
        assert_eq!(made.close(), ["b"]);
    }
}
