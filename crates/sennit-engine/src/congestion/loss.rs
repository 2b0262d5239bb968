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

use std::{collections::VecDeque, time::Instant};

use super::round::Round;

/// Loss above the path's own that means congestion (draft §2.7, "LossThresh").
const MARGIN: f64 = 0.02;
/// Packets that a round must lose for its loss to mean congestion (draft §5.3.1.3).
pub(super) const LEAST_PACKETS: u64 = 6;
/// More than this is never taken for a path's own loss.
const MOST: f64 = 0.15;
/// Loss within this many standard deviations of a random one is no news.
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
            Manner::Calm | Manner::Blind => MOST,
            Manner::Probing => self.ratio(),
        };
        let packet = mtu as f64;
        let chance = DEVIATIONS * (own * total * packet).sqrt();
        lost >= LEAST_PACKETS as f64 * packet && lost > (own + MARGIN) * total + chance
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
