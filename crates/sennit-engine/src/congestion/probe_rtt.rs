//! Little is in flight for a moment, so that the least round trip shows.

use std::time::{Duration, Instant};

/// How long, or for a round trip (draft-ietf-ccwg-bbr-06 §2.14.1).
const TIME: Duration = Duration::from_millis(200);

/// The round trip of a path without a queue is longer than it was if little in flight leaves so
/// much of it.
const STAYED: f64 = 0.8;

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeRtt {
    since: Option<Instant>,
    least: Duration,
    /// The round trip that is too long for the queue that there can be, if one is why it probes.
    doubted: Option<Duration>,
}

impl ProbeRtt {
    pub(super) const NEW: Self = Self {
        since: None,
        least: Duration::MAX,
        doubted: None,
    };

    /// Is this round trip the path's, or that of a queue?
    pub(super) fn of(doubted: Duration) -> Self {
        Self {
            doubted: Some(doubted),
            ..Self::NEW
        }
    }

    /// Takes the round trip of a packet that is acknowledged now.
    pub(super) fn on_rtt(&mut self, rtt: Duration, now: Instant) {
        let sent = now.checked_sub(rtt);
        if self.since.is_some_and(|since| sent >= Some(since)) {
            self.least = self.least.min(rtt);
        }
    }

    /// Goes on; returns the least round trip once it is over. `window` is what may be in flight.
    pub(super) fn advance(
        &mut self,
        min_rtt: Duration,
        in_flight: u64,
        window: u64,
        now: Instant,
    ) -> Option<Duration> {
        let Some(since) = self.since else {
            self.since = (in_flight <= window).then_some(now);
            return None;
        };
        let over = now >= since + TIME.max(min_rtt) && self.least < Duration::MAX;
        over.then_some(self.least)
    }

    /// Whether it is because a round trip was too long that it probes.
    pub(super) fn doubts(&self) -> bool {
        self.doubted.is_some()
    }

    /// Whether what was found is the path's round trip, and not what a queue makes of it.
    pub(super) fn tells(&self, least: Duration) -> bool {
        self.doubted
            .is_none_or(|doubted| least >= doubted.mul_f64(STAYED))
    }
}
