//! Whether striping pays, and how long packets wait for faster paths.

use std::time::{Duration, Instant};

#[cfg(doc)]
use super::Scheduler;

/// What became of the queue in a round of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes that left.
    pub bytes: u64,
    /// Of these, on another path than the fastest: [`Scheduler::is_second_choice`].
    pub spilled: u64,
    /// Whether nothing waits now, although the fastest path may have room.
    pub empty: bool,
}

/// Whether striping pays, under `bond`: see [`Spill`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Striping {
    /// How long packets wait for faster paths before a slower one is used, at most.
    pub wait: Duration,
    /// Bytes that slower paths carried of late.
    pub gained: u64,
    /// Bytes that the fastest could have carried meanwhile, with the queue empty.
    pub missed: u64,
}

impl Striping {
    /// Whether striping pays; `None` if it is neither clearly so nor clearly not.
    pub fn pays(&self) -> Option<bool> {
        let (gained, missed) = (self.gained as f64, self.missed as f64);
        if missed > BAD * gained {
            Some(false)
        } else {
            (missed < GOOD * gained).then_some(true)
        }
    }
}

/// How long packets wait for the faster paths before a slower one is used.
///
/// Using it as soon as the faster ones are full fills it soonest. But while less waits than the
/// faster ones send in the time by which it is slower, even the last packet arrives late by it, and
/// so does every other of the flow, because the far end restores the order. A sender with a full
/// window to spare does not mind. One whose window is used up is slowed down by it: the queue here
/// runs empty, with all paths half used. So both sides of the account are kept: bytes that slower
/// paths carried, and bytes that the fastest could have carried while the queue was empty. If
/// striping does not pay the wait is doubled, up to the whole difference in delay, at which a
/// packet is no later than it would be by waiting, and nobody can lose anything; and it shrinks
/// while striping pays well.
///
/// To find out that it does not pay costs more the slower a path is. One that is [`FAR`] behind, as
/// over a satellite, therefore begins with the longest wait, which shrinks fast while striping
/// pays.
#[derive(Clone, Debug)]
pub(super) struct Spill {
    pub(super) threshold: Duration,
    /// How long packets wait for a path that is far behind.
    far: Duration,
    round: Option<Round>,
    /// Bytes of the current and, ever less, of earlier rounds.
    pub(super) gained: f64,
    pub(super) missed: f64,
}

/// The current round trip of the slowest path.
#[derive(Clone, Copy, Debug)]
struct Round {
    since: Instant,
    /// From when on the empty queue costs something.
    idle_from: Option<Instant>,
    spilled: u64,
}

/// What a waking TCP sends at once takes about this long on a slow line (docs/decisions/0008).
const LEAST_SPILL: Duration = Duration::from_millis(5);
/// A path is far behind if packets over it can be used so much later.
const FAR: Duration = Duration::from_millis(100);
/// No packet waits longer for a faster path.
const MOST_SPILL: Duration = Duration::from_millis(150);
/// Packets stand no longer than this so that one can leave ahead of them (docs/decisions/0007).
pub(super) const MOST_STANDING: Duration = Duration::from_millis(60);
/// Striping does not pay if this part of what it gains is missed elsewhere (docs/decisions/0008).
const BAD: f64 = 0.5;
/// Striping pays well if less than this part of what it gains is missed elsewhere.
const GOOD: f64 = 0.1;
const SHRINK: f64 = 0.95;
const SHRINK_FAR: f64 = 0.5;
/// What is kept of the account from one round to the next.
const MEMORY: f64 = 0.8;
/// The queue runs empty all the time between two packets; only what lasts longer is missed.
const GRACE: Duration = Duration::from_millis(5);
/// No round is shorter, lest it be all noise.
const LEAST_ROUND: Duration = Duration::from_millis(20);

impl Default for Spill {
    fn default() -> Self {
        Self {
            threshold: LEAST_SPILL,
            far: MOST_SPILL,
            round: None,
            gained: 0.0,
            missed: 0.0,
        }
    }
}

impl Spill {
    /// How long packets wait for paths that lead by so much.
    pub(super) fn wait(&self, lead: Duration) -> Duration {
        let most = if lead > FAR { self.far } else { self.threshold };
        lead.min(most)
    }

    pub(super) fn handle_sent(&mut self, sent: Sent, fastest: u64, rtt: Duration, now: Instant) {
        let round = self.round.get_or_insert(Round {
            since: now,
            idle_from: None,
            spilled: 0,
        });
        if let Some(from) = round.idle_from {
            let idle = now.saturating_duration_since(from);
            self.missed += idle.as_secs_f64() * fastest as f64;
            round.idle_from = Some(from.max(now));
        }
        if !sent.empty {
            round.idle_from = None;
        } else if sent.bytes > 0 || round.idle_from.is_none() {
            round.idle_from = Some(now + GRACE);
        }
        round.spilled += sent.spilled;
        if now.saturating_duration_since(round.since) < rtt.max(LEAST_ROUND) {
            return;
        }
        self.gained += round.spilled as f64;
        if self.gained < 1.0 {
            self.missed = 0.0;
        }
        if round.spilled > 0 && self.missed > BAD * self.gained {
            self.threshold = (2 * self.threshold).min(MOST_SPILL);
            self.far = MOST_SPILL;
        } else if round.spilled > 0 && self.missed < GOOD * self.gained {
            self.threshold = self.threshold.mul_f64(SHRINK).max(LEAST_SPILL);
            self.far = self.far.mul_f64(SHRINK_FAR).max(self.threshold);
        }
        self.gained *= MEMORY;
        self.missed *= MEMORY;
        *round = Round {
            since: now,
            spilled: 0,
            ..*round
        };
    }
}
