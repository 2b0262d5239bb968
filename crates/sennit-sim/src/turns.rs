//! When a machine acts.

use std::time::{Duration, Instant};

use crate::Dice;

/// One machine's turns. One that is not busy acts whenever something happens.
pub(crate) struct Turns {
    /// How far apart they are, on average.
    pub(crate) every: Duration,
    next: Instant,
    /// Something was handed to it since the last one.
    asked: bool,
    dice: Dice,
}

impl Turns {
    pub(crate) fn new(seed: u64, now: Instant) -> Self {
        Self {
            every: Duration::ZERO,
            next: now,
            asked: false,
            dice: Dice::new(seed),
        }
    }

    /// When it acts if something happens at `event`.
    pub(crate) fn at(&self, event: Option<Instant>) -> Option<Instant> {
        let event = if self.asked { Some(self.next) } else { event };
        event.map(|at| at.max(self.next))
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Something was handed to it; whether it acts at once.
    pub(crate) fn ask(&mut self) -> bool {
        self.asked = !self.every.is_zero();
        !self.asked
    }

    /// It has acted.
    pub(crate) fn end(&mut self, now: Instant) {
        self.asked = false;
        if !self.every.is_zero() {
            let part = 0.5 + self.dice.roll(1000) as f64 / 1000.0;
            self.next = now + self.every.mul_f64(part);
        }
    }
}
