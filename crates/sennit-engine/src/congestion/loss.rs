//! Which loss is congestion.
//!
//! A path's own loss is that of rounds that were sent at its rate and in which some round trip was close
//! to the least: nothing can have overflowed. What a round loses beyond that and a margin is congestion.

use super::model::Round;

/// Loss above the path's own that means congestion (draft §2.7, "LossThresh"),
const MARGIN: f64 = 0.02;
/// if so many packets were lost in the round (draft §5.3.1.3).
pub(super) const LEAST_PACKETS: u64 = 6;
/// More than this is never taken for a path's own loss.
const MOST: f64 = 0.15;
/// So many standard deviations of a random loss more than expected are no news.
const DEVIATIONS: f64 = 2.5;
/// Weight of the past when a round's loss is averaged.
const MEMORY: f64 = 15.0 / 16.0;

/// How a round was sent, which decides what its loss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// At the path's rate and without a queue: what was lost, the path loses by itself.
    Calm,
    /// Without a queue, but nothing is known yet: only what no path loses by itself is congestion.
    Blind,
    /// Faster than the path's rate, or into a queue.
    Probing,
}

/// Loss of a path when it has no queue: sums over calm rounds, the past fading.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnLoss {
    lost: f64,
    total: f64,
}

impl OwnLoss {
    /// Part of the packets, 0 to 1.
    pub(super) fn ratio(&self) -> f64 {
        (self.lost / self.total.max(1.0)).min(MOST)
    }

    /// Whether the round lost more than the path does by itself.
    pub(super) fn is_exceeded(&mut self, round: &Round, manner: Manner, mtu: u64) -> bool {
        let (lost, total) = (round.lost as f64, (round.lost + round.delivered) as f64);
        if manner == Manner::Calm {
            self.lost = MEMORY * self.lost + lost;
            self.total = MEMORY * self.total + total;
        }
        let own = match manner {
            Manner::Calm | Manner::Blind => MOST,
            Manner::Probing => self.ratio(),
        };
        let packet = mtu as f64;
        let chance = DEVIATIONS * (own * total * packet).sqrt();
        lost >= LEAST_PACKETS as f64 * packet && lost > (own + MARGIN) * total + chance
    }
}
