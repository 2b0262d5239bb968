//! Round trips of a path, counted by what was delivered.

use std::time::Duration;

use super::Acked;

/// What was seen in one round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Bytes lost.
    pub(super) lost: u64,
    /// Bytes for which marks speak: a path loses packets by itself, but marks none.
    pub(super) marked: u64,
    /// Bytes delivered.
    pub(super) delivered: u64,
    /// The shortest round trip of it.
    pub(super) shortest: Duration,
    /// The longest round trip of it.
    pub(super) longest: Duration,
    /// Some packet was hardly later than the least round trip: nothing can have overflowed.
    pub(super) queueless: bool,
}

/// Counts round trips by what was delivered.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// How many ended.
    pub(super) count: u64,
    /// The next one ends with a packet that left after so many bytes were delivered.
    pub(super) ends_at: u64,
}

impl Round {
    /// A round of which nothing is known yet.
    pub(super) const NEW: Self = Self {
        lost: 0,
        marked: 0,
        delivered: 0,
        shortest: Duration::MAX,
        longest: Duration::ZERO,
        queueless: false,
    };
}

impl Rounds {
    /// A round ends with the first packet that left after the last one ended.
    pub(super) fn on_ack(&mut self, acked: &Acked) -> bool {
        let ended = acked.prior >= self.ends_at;
        if ended {
            self.count += 1;
            self.ends_at = acked.total;
        }
        ended
    }
}
