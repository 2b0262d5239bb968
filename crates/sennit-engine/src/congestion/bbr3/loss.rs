//! How much of a path is used while it loses packets.

use std::time::Instant;

use super::{
    super::{loss::Manner, round::Round},
    Bbr3, Mode, UP_GAIN, UP_WINDOW_GAIN,
};

/// What is left of the bound after a loss (draft §2.7, "Beta").
const BETA: f64 = 0.7;
/// The last so many rounds of a cruise are free of the effects of the probe before it.
const SETTLED_ROUNDS: u64 = 4;

impl Bbr3 {
    /// A round is over.
    pub(super) fn end_round(&mut self, round: &Round, in_flight: u64, now: Instant) {
        let manner = match self.mode {
            // The first rounds still hear of what the probe before them did.
            Mode::Cruise { until_round } if self.model.rounds() + SETTLED_ROUNDS < until_round => {
                Manner::Probing
            }
            Mode::Cruise { .. } if round.queueless => Manner::Calm,
            Mode::Startup
            | Mode::Drain
            | Mode::Settle { .. }
            | Mode::Regrow { .. }
            | Mode::Cruise { .. }
            | Mode::Up { .. }
            | Mode::Down { .. }
            | Mode::ProbeRtt(_) => Manner::Probing,
        };
        let is_congested = if self.mode == Mode::Startup {
            self.model.startup_overflows(round)
        } else {
            self.model.is_congested(round, manner)
        };
        if is_congested {
            self.yield_to_loss(in_flight, now);
        }
    }

    /// The round lost more than is the path's own.
    fn yield_to_loss(&mut self, in_flight: u64, now: Instant) {
        match self.mode {
            Mode::Regrow { .. } | Mode::Up { .. } => {
                self.mode = Mode::Down {
                    since: now,
                    from: u64::MAX,
                };
            }
            Mode::Startup
            | Mode::Drain
            | Mode::Settle { .. }
            | Mode::Cruise { .. }
            | Mode::Down { .. }
            | Mode::ProbeRtt(_) => {}
        }
        let fits = self.model.bdp(1.0).max(in_flight);
        let most = self.bound.unwrap_or(self.window).min(fits);
        self.bound = Some((BETA * most as f64) as u64);
    }

    /// A probe went well: there may be room for more than was thought.
    pub(super) fn raise_bound(&mut self) {
        self.bound = self
            .bound
            .map(|bound| (UP_GAIN * bound.max(self.model.bdp(1.0)) as f64) as u64)
            .filter(|&bound| bound < self.model.bdp(UP_WINDOW_GAIN));
    }
}
