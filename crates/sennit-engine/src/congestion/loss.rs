//! Which loss is congestion.
//!
//! A path's own loss is that of rounds that were sent at its rate and in which some round trip was
//! close to the least: nothing can have overflowed. What a round loses beyond that and a margin is
//! congestion ([`OwnLoss`]).
//!
//! That says when to yield, but not that a loss comes whatever is sent: a policer drops without any
//! delay. Who would send the more for what is lost must know that probing, at 1.25 times the rate,
//! loses no larger part than cruising ([`LossByPace`]): of a policer it would get no more than
//! before.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::round::Round;

/// Loss above the path's own that means congestion (draft §2.7, "LossThresh").
const MARGIN: f64 = 0.02;
/// Packets that a round must lose for its loss to mean congestion (draft §5.3.1.3).
pub(super) const LEAST_PACKETS: u64 = 6;
/// More than this is never taken for a path's own loss once its rate is known.
pub(super) const MOST: f64 = 0.15;
/// While it is looked for, more than this is not: startup, which sends twice what the path carries
/// and more, loses more than that.
const MOST_AT_FIRST: f64 = 0.4;
/// A path that nothing is known of counts as if it had lost [`MOST`] of so many packets.
const ASSUMED_PACKETS: f64 = 20.0;
/// A burst of what starts inside makes as long a queue, and few buffers are so short.
const SHORT_QUEUE: Duration = Duration::from_millis(15);
/// Packets of startup below which a share of lost ones says nothing: a round of few packets hears
/// of losses that others had.
const TELLING_AT_FIRST: f64 = 40.0;
/// Loss within this many standard deviations of a random one is no news.
const DEVIATIONS: f64 = 2.5;
/// Weight of the past when a round's loss is averaged.
const MEMORY: f64 = 15.0 / 16.0;

/// How a round was sent, which decides what its loss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// At the path's rate and without a queue: what was lost, the path loses by itself.
    Calm,
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
    fn ratio(&self) -> f64 {
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
            Manner::Calm if round.marked == 0 => MOST,
            // A queue stands somewhere, if not one of ours.
            Manner::Calm | Manner::Probing => self.ratio(),
        };
        let packet = mtu as f64;
        let chance = DEVIATIONS * (own * total * packet).sqrt();
        let lost = lost + round.marked as f64;
        lost >= LEAST_PACKETS as f64 * packet && lost > (own + MARGIN) * total + chance
    }
}

/// What a path loses while it is looked for what it carries.
///
/// Rounds that met hardly a queue show what the path loses by itself: nothing can have overflowed.
/// Were that taken for congestion, startup would end with the first packets of a path that loses
/// three of ten, at a small part of what it carries. What a policer or a tiny buffer drops looks
/// the same, but then the rate grows no more, which ends startup as well.
#[derive(Clone, Debug, Default)]
pub(super) struct StartupLoss {
    calm: Tally,
    /// Since the last round that met hardly a queue.
    queued: Tally,
}

/// Bytes that were lost, of all.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    lost: f64,
    total: f64,
}

impl Tally {
    fn add(&mut self, round: &Round) {
        self.lost += round.lost as f64;
        self.total += (round.lost + round.delivered) as f64;
    }
}

impl StartupLoss {
    /// Whether startup has lost more into a queue than the path loses by itself; of this round the
    /// latest packet stood in `queue`.
    pub(super) fn overflows(&mut self, round: &Round, queue: Duration, mtu: u64) -> bool {
        if queue < SHORT_QUEUE {
            self.calm.add(round);
            self.queued = Tally::default();
            return false;
        }
        self.queued.add(round);
        self.queued.lost += round.marked as f64;
        let packet = mtu as f64;
        if self.queued.total < TELLING_AT_FIRST * packet {
            return false;
        }
        let Tally { lost, total } = std::mem::take(&mut self.queued);
        let assumed = ASSUMED_PACKETS * packet;
        let seen = self.calm.total + assumed;
        let own = (self.calm.lost + MOST * assumed) / seen;
        // If the first packets met no queue, all may have left at once.
        let least = if round.queueless { MOST } else { 0.0 };
        let own = own.clamp(least, MOST_AT_FIRST);
        // Both shares vary by chance.
        let variance = own * total * packet * (1.0 + total / seen);
        lost > (own + MARGIN) * total + DEVIATIONS * variance.sqrt()
    }
}

/// How fast a packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// At the path's rate, and without a queue.
    Even,
    /// A quarter faster.
    Faster,
    /// Something else.
    Other,
}

/// Changes of pace that are remembered: more than there are until a loss of the first is known.
const PACES: usize = 16;
/// Packets below which a share of lost ones says nothing.
const TELLING: f64 = 100.0;
/// Packets beyond which the older ones of a share count for half.
const MEMORY_PACKETS: f64 = 400.0;
/// What a quarter more does not get through is dropped for being too much: then four of five arrive
/// of what arrived before. This lies in the middle.
const UNMOVED: f64 = 0.9;

/// What a path loses at different paces.
#[derive(Clone, Debug, Default)]
pub(super) struct LossByPace {
    /// Which pace since when, the newest last.
    paces: VecDeque<(Instant, Pace)>,
    even: Share,
    faster: Share,
}

/// Packets that were lost, of all, the past fading.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    lost: f64,
    total: f64,
}

impl LossByPace {
    /// What leaves from now on leaves at this pace.
    pub(super) fn set_pace(&mut self, pace: Pace, now: Instant) {
        if self.paces.back().is_some_and(|&(_, last)| last == pace) {
            return;
        }
        if self.paces.len() == PACES {
            self.paces.pop_front();
        }
        self.paces.push_back((now, pace));
    }

    /// The fate of so many packets that left at `sent`.
    pub(super) fn count(&mut self, packets: f64, lost: bool, sent: Instant) {
        let before = |entry: &&(Instant, Pace)| entry.0 <= sent;
        match self.paces.iter().rev().find(before).map(|entry| entry.1) {
            Some(Pace::Even) => self.even.count(packets, lost),
            Some(Pace::Faster) => self.faster.count(packets, lost),
            Some(Pace::Other) | None => {}
        }
    }

    /// The part of the packets that is lost whatever is sent, 0 to 1.
    pub(super) fn unmoved(&self) -> f64 {
        match (self.even.ratio(), self.faster.ratio()) {
            (Some(even), Some(faster)) if 1.0 - faster >= UNMOVED * (1.0 - even) => even,
            (Some(_) | None, Some(_) | None) => 0.0,
        }
    }
}

impl Share {
    fn count(&mut self, packets: f64, lost: bool) {
        if self.total >= MEMORY_PACKETS {
            self.lost /= 2.0;
            self.total /= 2.0;
        }
        self.total += packets;
        self.lost += if lost { packets } else { 0.0 };
    }

    fn ratio(&self) -> Option<f64> {
        (self.total >= TELLING).then(|| self.lost / self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1452;
    const MS: Duration = Duration::from_millis(1);

    fn round(lost: u64, delivered: u64) -> Round {
        Round {
            lost: lost * PACKET,
            delivered: delivered * PACKET,
            ..Round::NEW
        }
    }

    #[test]
    fn what_is_lost_without_a_queue_does_not_end_startup() {
        let mut loss = StartupLoss::default();
        for _ in 0..20 {
            assert!(!loss.overflows(&round(9, 21), MS, PACKET));
        }
        // Nor does as much where a queue stands for a moment.
        assert!(!loss.overflows(&round(18, 42), SHORT_QUEUE, PACKET));
        assert!(loss.overflows(&round(42, 42), SHORT_QUEUE, PACKET));
    }

    /// Marks were, and then as many did not matter any more.
    #[test]
    fn what_is_marked_is_no_loss_of_the_paths_own() {
        let exceeds = |round: &Round| {
            let mut own = OwnLoss::default();
            for _ in 0..50 {
                own.is_exceeded(round, Manner::Calm, PACKET);
            }
            [Manner::Calm, Manner::Probing].map(|it| own.is_exceeded(round, it, PACKET))
        };
        assert_eq!(exceeds(&round(LEAST_PACKETS, 94)), [false; 2]);
        let marked = Round {
            marked: LEAST_PACKETS * PACKET,
            ..round(0, 94)
        };
        assert_eq!(exceeds(&marked), [true; 2]);
    }

    #[test]
    fn what_overflows_a_queue_ends_startup() {
        let mut loss = StartupLoss::default();
        assert!(!loss.overflows(&round(0, 30), MS, PACKET));
        // Losses that another round had say nothing of this one.
        assert!(!loss.overflows(&round(8, 1), SHORT_QUEUE, PACKET));
        assert!(loss.overflows(&round(30, 50), SHORT_QUEUE, PACKET));
    }
}
