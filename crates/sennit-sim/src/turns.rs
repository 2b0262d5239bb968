//! When a machine acts, and what it takes for the time then.

use std::time::{Duration, Instant};

use crate::Dice;

/// What a machine that acts in turns takes for the time at which things happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// A datagram arrived when it did, however late it is read, and what leaves does so now.
    #[default]
    Right,
    /// All that a turn reads and sends has the time at which the turn began, up to half of the time
    /// between two turns before it ends.
    OfTurn,
}

/// One machine's turns. One that is not busy acts whenever something happens.
pub(crate) struct Turns {
    /// How far apart they are, on average.
    pub(crate) every: Duration,
    pub(crate) clock: Clock,
    /// How long its clock has stood still in all, and what it said the last time.
    stood: Duration,
    stood_at: Option<Instant>,
    /// What arrives until then is stamped so much too early.
    error: Option<(Instant, Duration)>,
    /// What the machine takes for the time.
    now: Instant,
    next: Instant,
    /// It does nothing at all before.
    held: Option<Instant>,
    /// Something was handed to it since the last one.
    asked: bool,
    dice: Dice,
}

impl Turns {
    pub(crate) fn new(seed: u64, now: Instant) -> Self {
        Self {
            every: Duration::ZERO,
            clock: Clock::default(),
            stood: Duration::ZERO,
            stood_at: None,
            error: None,
            now,
            next: now,
            held: None,
            asked: false,
            dice: Dice::new(seed),
        }
    }

    /// Stamps all that arrives within `span` too early by `early`.
    pub(crate) fn misstamp(&mut self, early: Duration, span: Duration, now: Instant) {
        self.error = Some((now + span, early));
    }

    /// When it acts if something happens at `event`.
    pub(crate) fn at(&self, event: Option<Instant>) -> Option<Instant> {
        let event = if self.asked { Some(self.next) } else { event };
        event.map(|at| at.max(self.next).max(self.held.unwrap_or(self.next)))
    }

    /// Turns are so far apart from now on; one that would be later comes in that time.
    pub(crate) fn set_every(&mut self, every: Duration, now: Instant) {
        self.every = every;
        self.next = self.next.min(now + every);
    }

    /// Nothing is done before `until`, or later if it stands still for longer already.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.held = self.held.max(Some(until));
    }

    /// Nothing is done for so long, and its clock stands still, as that of a machine that is
    /// suspended.
    pub(crate) fn suspend(&mut self, span: Duration, now: Instant) {
        self.stood_at = Some(self.clock_at(now));
        self.stood += span;
        self.hold(now + span);
    }

    /// What its clock says then.
    pub(crate) fn clock_at(&self, now: Instant) -> Instant {
        let at = now - self.stood;
        self.stood_at.map_or(at, |stood_at| at.max(stood_at))
    }

    /// When its clock says so.
    pub(crate) fn when(&self, clock: Instant) -> Instant {
        clock + self.stood
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next <= now && self.held.is_none_or(|until| until <= now)
    }

    /// It acts now; what it takes for the time.
    pub(crate) fn begin(&mut self, now: Instant) -> Instant {
        let behind = match self.clock {
            Clock::Right => Duration::ZERO,
            Clock::OfTurn => {
                let part = self.dice.roll(1000) as f64 / 1000.0;
                self.every.mul_f64(0.5 * part)
            }
        };
        self.now = self.clock_at(now) - behind;
        self.now
    }

    /// What it takes for the time.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// When it thinks that a datagram arrived which did so at `at`.
    pub(crate) fn stamp(&self, at: Instant) -> Instant {
        let stamp = match self.clock {
            Clock::Right => self.clock_at(at).min(self.now),
            Clock::OfTurn => self.now,
        };
        match self.error {
            Some((until, early)) if at < until => stamp - early,
            Some(_) | None => stamp,
        }
    }

    /// Something was handed to it; whether it acts at once.
    pub(crate) fn ask(&mut self) -> bool {
        self.asked = !self.every.is_zero() || self.held.is_some();
        !self.asked
    }

    /// It has acted.
    pub(crate) fn end(&mut self, now: Instant) {
        self.asked = false;
        self.held = self.held.filter(|until| *until > now);
        if !self.every.is_zero() {
            let part = 0.5 + self.dice.roll(1000) as f64 / 1000.0;
            self.next = now + self.every.mul_f64(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stands_still_does_so_to_the_end() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut turns = Turns::new(1, start);
        turns.hold(start + second * 20);
        turns.hold(start + second);

        assert!(!turns.is_due(start + second * 19));
        assert_eq!(turns.at(Some(start)), Some(start + second * 20));
        assert!(turns.is_due(start + second * 20));
    }
}
