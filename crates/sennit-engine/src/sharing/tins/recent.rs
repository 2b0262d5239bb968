//! What a class sends on a link, as people are told.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sharing::bucket::time_for;

/// What a class sent within a second or two, for people.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Since when it is counted.
    pub(super) since: AtomicU64,
    bytes: AtomicU64,
    /// Bytes per second in the second before.
    before: AtomicU64,
    /// When it was last told to wait.
    pub(super) held: AtomicU64,
}

impl Recent {
    const SPAN: u64 = 1_000_000_000;

    pub(super) fn count(&self, bytes: u64, at: u64) {
        let since = self.since.load(Relaxed);
        let span = at.saturating_sub(since);
        if span >= Self::SPAN {
            self.since.store(at, Relaxed);
            let counted = self.bytes.swap(0, Relaxed);
            let rate = time_for(counted, span);
            self.before.store(rate, Relaxed);
        }
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Bytes per second.
    pub(super) fn rate(&self, at: u64) -> u64 {
        if at.saturating_sub(self.since.load(Relaxed)) > 2 * Self::SPAN {
            return 0;
        }
        self.before.load(Relaxed)
    }

    pub(super) fn was_held(&self, at: u64) -> bool {
        let held = self.held.load(Relaxed);
        held > 0 && at.saturating_sub(held) <= Self::SPAN
    }
}
