//! Flags that other threads wait for.

use std::sync::atomic::{AtomicBool, Ordering};

/// Raises a flag when it is dropped, by a panic too: a thread of a scope that waits for the flag
/// ends then, and the scope tells of the panic and does not wait for ever.
#[derive(Debug)]
pub(crate) struct Raised<'a>(pub(crate) &'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_panic_ends_threads_that_wait_for_the_flag() {
        let over = AtomicBool::new(false);

        let ended = catch_unwind(AssertUnwindSafe(|| {
            thread::scope(|scope| {
                let _over = Raised(&over);
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    }
                });
                panic!("as traffic might");
            })
        }));

        assert!(ended.is_err(), "the panic is told");
    }
}
