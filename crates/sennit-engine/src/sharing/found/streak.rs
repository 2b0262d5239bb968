//! Whether a delay is the path's own: less and less is given out, and it stays.

use std::time::Duration;

/// What is left of a delay at most when it was a queue's.
const SHORTER: f64 = 0.8;

/// Cuts in a row that do not shorten the delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    /// What the link was taken to carry before them, and the delay then.
    pub(super) start: f64,
    pub(super) at_first: Duration,
    pub(super) cuts: u32,
    /// So little is given out for a round trip that a queue would be shorter.
    pub(super) proves: bool,
}

impl Streak {
    pub(super) fn new(start: f64, at_first: Duration) -> Self {
        Self {
            start,
            at_first,
            cuts: 0,
            proves: false,
        }
    }

    /// Whether a queue would be shorter by now.
    pub(super) fn is_shorter(&self, delay: Duration) -> bool {
        delay < self.at_first.mul_f64(SHORTER)
    }
}
