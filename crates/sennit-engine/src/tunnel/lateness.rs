//! How late acknowledgements are, and whether that can be.
//!
//! How late they are goes by the clocks of both ends. The clock of a machine that is suspended, or
//! moved to another host, stands still meanwhile; and one that is set right goes slower or faster
//! for a while. From then on all that comes seems late, on every path, for as long as it is
//! remembered how it came before. What is late counts as settled, and is taken off round trips: so
//! packets would leave until they overflow.
//!
//! Round trips go by a single clock, and whatever stands on the way of acknowledgements makes them
//! longer by as much. Where they show much less, time and again, it is a clock that is late.

use std::time::{Duration, Instant};

use super::Tunnel;
use crate::{path::number, pipe::Pipe};

/// Less is no reason to doubt a clock: hosts are late as well, and clocks drift.
const LEAST_DOUBT: Duration = Duration::from_millis(20);
/// So many times in a row round trips show less than half of it, and so much less.
const DOUBTS: u32 = 8;
/// Acknowledgements leave apart from what says when it left. What arrives so soon after the others
/// has met the same queue.
const TOGETHER: Duration = Duration::from_millis(1);

/// What speaks for the clocks of both ends, and against them.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// On which path acknowledgements arrived last and when, and by how much their round trip was
    /// longer than the least.
    shown: Option<(usize, Instant, Duration)>,
    /// Times in a row that the two do not agree.
    doubts: u32,
}

impl Tunnel {
    /// Tells all paths how late acknowledgements are that arrive on this one now.
    pub(super) fn note_lateness(&self, pipe: &Pipe, path: Option<usize>, now: Instant) -> Duration {
        let Some(index) = path else {
            return Duration::ZERO;
        };
        let id = number(self.paths[index].id);
        let trusted = |id| {
            let mut paths = self.paths.iter();
            paths.any(|path| number(path.id) == id && path.is_trusted())
        };
        let late = pipe.resequencer.lateness(id, trusted, now);
        for path in &self.paths {
            path.gate.set_acks_late(late);
        }
        late
    }

    /// A packet has arrived on this path, and seems `late`. Compares what seems to have stood on
    /// its way with the round trips that acknowledgements show.
    pub(super) fn doubt_clocks(
        &mut self,
        pipe: &mut Pipe,
        index: usize,
        late: Duration,
        now: Instant,
    ) {
        if late < LEAST_DOUBT {
            return;
        }
        let excesses = self.paths.iter().filter_map(|path| path.gate.excess());
        let clocks = &mut self.clocks;
        if let Some(excess) = excesses.max() {
            clocks.shown = Some((index, now, excess));
        }
        let id = number(self.paths[index].id);
        let Some(standing) = pipe.resequencer.standing(id, now) else {
            return;
        };
        let is_together = |at| now.saturating_duration_since(at) <= TOGETHER;
        let Some((_, _, shown)) = clocks
            .shown
            .take_if(|(path, at, _)| *path == index && is_together(*at))
        else {
            return;
        };
        if standing < 2 * shown + LEAST_DOUBT {
            clocks.doubts = 0;
            return;
        }
        clocks.doubts += 1;
        if clocks.doubts >= DOUBTS {
            let link = &self.paths[index].link.name;
            tracing::info!(link, ?standing, ?shown, "the clock of one end was late");
            pipe.resequencer.mend_clocks(id);
            clocks.doubts = 0;
        }
    }
}
