//! Panics of noq, kept to the connection that they are of.
//!
//! noq 1.4 panics where the acknowledgements of many paths do not fit a packet, which a peer can
//! bring about, and nobody knows where else. Its connection is in the middle of something then, so
//! it is asked nothing more and given up; the endpoint and other connections were not touched.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

/// Why a connection is gone after one.
pub(crate) const REASON: &str = "the QUIC library failed in the middle of it; this is a fault here";

/// Whether noq has panicked in a connection.
#[derive(Debug, Default)]
pub(crate) struct Mishap(Option<Instant>);

impl Mishap {
    /// Has noq do something; `None` if it panics, and ever after.
    pub(crate) fn contain<T>(&mut self, now: Instant, act: impl FnOnce() -> T) -> Option<T> {
        if self.0.is_some() {
            return None;
        }
        let done = catch_unwind(AssertUnwindSafe(act)).ok();
        if done.is_none() {
            self.0 = Some(now);
        }
        done
    }

    /// When it has.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_panic_nothing_more_is_done() {
        let now = Instant::now();
        let mut mishap = Mishap::default();
        assert_eq!(mishap.contain(now, || 1), Some(1));
        assert_eq!(mishap.at(), None);

        assert_eq!(mishap.contain::<()>(now, || panic!("as noq does")), None);

        assert_eq!(mishap.at(), Some(now));
        assert_eq!(mishap.contain(now, || 1), None);
    }
}
