//! Little is in flight for a moment, so that the least round trip shows.

use std::time::{Duration, Instant};

/// How long, or for a round trip (draft-ietf-ccwg-bbr-06 §2.14.1).
const TIME: Duration = Duration::from_millis(200);

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeRtt {
    until: Option<Instant>,
    least: Duration,
}

impl ProbeRtt {
    pub(super) const NEW: Self = Self {
        until: None,
        least: Duration::MAX,
    };

    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        self.least = self.least.min(rtt);
    }

    /// Goes on; returns the least round trip once it is over. `window` is what may be in flight.
    pub(super) fn advance(
        &mut self,
        min_rtt: Duration,
        in_flight: u64,
        window: u64,
        now: Instant,
    ) -> Option<Duration> {
        match self.until {
            None if in_flight <= window => {
                *self = Self {
                    until: Some(now + TIME.max(min_rtt)),
                    least: Duration::MAX,
                };
                None
            }
            Some(until) if now >= until && self.least < Duration::MAX => Some(self.least),
            None | Some(_) => None,
        }
    }
}
