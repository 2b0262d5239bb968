//! How many paths the peer may open.
//!
//! For each path that is closed, noq lets the peer have another one, unless it has never heard of
//! the path: an edge tries a link on which nothing passes, has to give that up, and has one number
//! less for as long as the connection lives. So whoever says that it lacks numbers (PATHS_BLOCKED,
//! RFC 10069) while it has few paths gets another one.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use super::Tunnel;
use crate::transport::{MAX_PATHS, SPARE_PATHS};

/// A peer that lacks numbers gets one so often at most.
const MORE_EVERY: Duration = Duration::from_secs(1);
/// Numbers given so, in all: each takes memory at both ends. An edge of ours loses one where a
/// silent link changes between IPv4 and IPv6; older ones lose one each four seconds.
const MOST_LOST: u32 = 8192;

/// What the peer may open.
#[derive(Debug, Default)]
pub(super) struct Spare {
    allowed: bool,
    /// Numbers that the peer has lost.
    lost: u32,
    /// How often it has said that it lacks some, and when that was last looked at.
    blocked: u64,
    looked: Option<Instant>,
}

impl Tunnel {
    /// The peer may from now on open paths.
    pub(crate) fn allow_paths(&mut self, now: Instant) {
        self.spare.allowed = true;
        self.allow_spare_paths(now);
    }

    /// The peer may open some more paths than there are: connection IDs for all that it may ever
    /// have would fill several large packets. A client's peer opens none, but counts in how many
    /// there may be.
    pub(crate) fn allow_spare_paths(&mut self, now: Instant) {
        let count = if self.conn.side().is_client() {
            MAX_PATHS
        } else if self.spare.allowed {
            let spare = MAX_PATHS.get().min(self.paths.len() as u32 + SPARE_PATHS);
            NonZeroU32::MIN.saturating_add(spare - 1 + self.spare.lost)
        } else {
            return;
        };
        // Fails only for a peer that does not speak multipath.
        let _ = self.conn.set_max_concurrent_paths(now, count);
    }

    /// Gives a peer that lacks numbers for paths another one.
    pub(crate) fn heed_blocked(&mut self, now: Instant) {
        let early = |at: Instant| now.saturating_duration_since(at) < MORE_EVERY;
        if !self.spare.allowed || self.spare.looked.is_some_and(early) {
            return;
        }
        self.spare.looked = Some(now);
        let blocked = self.conn.stats().frame_rx.paths_blocked;
        let said = blocked > std::mem::replace(&mut self.spare.blocked, blocked);
        let lacks = self.paths.len() < MAX_PATHS.get() as usize;
        if said && lacks && self.spare.lost < MOST_LOST {
            self.spare.lost += 1;
            self.allow_spare_paths(now);
        }
    }
}
