//! How many paths the peer may open.

use std::{num::NonZeroU32, time::Instant};

use super::Tunnel;
use crate::transport::{MAX_PATHS, SPARE_PATHS};

impl Tunnel {
    /// The peer may from now on open paths.
    pub(crate) fn allow_paths(&mut self, now: Instant) {
        self.allows_paths = true;
        self.allow_spare_paths(now);
    }

    /// The peer may open some more paths than there are: connection IDs for all that it may ever
    /// have would fill several large packets. A client's peer opens none, but counts in how many
    /// there may be.
    ///
    /// For each path that is closed noq lets the peer have another one, unless it has never heard
    /// of the path: an edge must not close one before. A hub gives no numbers for those: more than
    /// [`MAX_PATHS`] at once are more than noq and our repair can carry.
    pub(crate) fn allow_spare_paths(&mut self, now: Instant) {
        let count = if self.conn.side().is_client() {
            MAX_PATHS
        } else if self.allows_paths {
            let count = self.paths.len() as u32 + SPARE_PATHS;
            NonZeroU32::MIN.saturating_add(count - 1).min(MAX_PATHS)
        } else {
            return;
        };
        // Fails only for a peer that does not speak multipath.
        let _ = self.conn.set_max_concurrent_paths(now, count);
    }
}
