//! How late each path delivers.

use std::time::{Duration, Instant};

use super::Resequencer;
use crate::Floor;

/// Packets of one path overtake each other by this much without meaning anything.
const SLACK: Duration = Duration::from_millis(2);
/// A path on which nothing came for this long is not waited for.
const ACTIVE_FOR: Duration = Duration::from_millis(500);
/// The quickest packet of this time says how late a path is now. It is short because what came
/// before is of little use where a queue grows (docs/decisions/0006).
const RECENT: Duration = Duration::from_millis(1);
/// Times of sending wrap after 71 minutes, so what was sent after this much silence is not compared
/// with what came before; nothing arrives later than this after it was sent.
const COMPARED_FOR: Duration = Duration::from_secs(60);
/// The quickest packet of this time says how late a path is at least. The clocks of both ends drift
/// apart by less than a millisecond meanwhile.
const LEAST_OF: Duration = Duration::from_secs(10);

/// How late a path delivers, by the sender's clock against ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathClock {
    /// The newest time of sending that was seen, and when that packet arrived.
    pub(super) newest: u32,
    pub(super) arrived: Instant,
    /// When anything arrived.
    heard: Instant,
    /// When a packet arrived that no other path had brought.
    pub(super) used: Option<Instant>,
    /// Smoothed difference between arrival and sending, and its mean deviation, in microseconds.
    /// Without a common epoch the difference means something only against another one.
    delay: f64,
    deviation: f64,
    /// How much earlier than usual the newest packet came.
    early: f64,
    /// The least difference of late and of longer ago, in microseconds: what is between them stands
    /// on the way.
    pub(super) recent: Floor<f64>,
    pub(super) least: Floor<f64>,
}

impl PathClock {
    pub(super) fn new(delay: f64, sent_micros: u32, now: Instant) -> Self {
        Self {
            newest: sent_micros,
            arrived: now,
            heard: now,
            used: None,
            delay,
            deviation: 0.0,
            early: 0.0,
            recent: Floor::new(delay, now),
            least: Floor::new(delay, now),
        }
    }

    pub(super) fn update(&mut self, delay: f64, sent_micros: u32, now: Instant) {
        // Smoothed as RFC 9002 §5.3 does round trips. By more than any delay can change, a clock
        // was set or has wrapped.
        let error = delay - self.delay;
        let is_other = error.abs() > 1e7;
        if is_other {
            (self.delay, self.deviation) = (delay, 0.0);
            (self.recent, self.least) = (Floor::new(delay, now), Floor::new(delay, now));
        } else {
            self.deviation += (error.abs() - self.deviation) / 4.0;
            self.delay += error / 8.0;
        }
        self.recent.update(delay, RECENT, now);
        self.least.update(delay, LEAST_OF, now);
        self.heard = now;
        let is_newer = sent_micros.wrapping_sub(self.newest) as i32 >= 0;
        let silent = now.saturating_duration_since(self.arrived);
        if is_newer || is_other || silent >= COMPARED_FOR {
            (self.newest, self.arrived) = (sent_micros, now);
            self.early = self.delay - delay;
        }
    }

    pub(super) fn is_active(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < ACTIVE_FOR
    }

    pub(super) fn is_used(&self, now: Instant) -> bool {
        self.used
            .is_some_and(|at| now.saturating_duration_since(at) < ACTIVE_FOR)
    }

    /// By how much packets of one path may come apart from their order, in microseconds.
    pub(super) fn slack(&self) -> f64 {
        SLACK.as_micros() as f64 + 2.0 * self.deviation
    }

    /// How much later its packets are of late than its quickest one.
    fn standing(&self) -> Duration {
        let longer = self.recent.get() - self.least.get();
        Duration::from_secs_f64((longer / 1e6).clamp(0.0, 10.0))
    }

    /// When something sent then, by the sender's clock, has surely arrived if it ever does.
    pub(super) fn passes_at(&self, sent_micros: u32) -> Instant {
        let slack = self.slack();
        let ahead = f64::from(sent_micros.wrapping_sub(self.newest) as i32);
        if ahead < -slack {
            return self.arrived;
        }
        let after = ahead + self.early + 2.0 * self.deviation + slack;
        self.arrived + Duration::from_secs_f64((after / 1e6).clamp(0.0, 1.0))
    }
}

impl<T> Resequencer<T> {
    /// Something that was sent then, by the sender's clock, arrived on `path`.
    pub fn handle_clock(&mut self, path: u32, sent_micros: u32, now: Instant) {
        let ours = now.saturating_duration_since(self.started).as_micros() as u32;
        let passed = ours.wrapping_sub(sent_micros);
        // Delays that are measured from anywhere else may lie where differences wrap.
        let apart_by = *self.apart_by.get_or_insert(passed);
        let delay = f64::from(passed.wrapping_sub(apart_by) as i32);
        self.paths
            .entry(path)
            .or_insert_with(|| PathClock::new(delay, sent_micros, now))
            .update(delay, sent_micros, now);
    }

    /// How much longer all packets took of late on `path` than the quickest one of any path that
    /// `counts`.
    pub fn lateness(&self, path: u32, counts: impl Fn(u32) -> bool, now: Instant) -> Duration {
        let Some(clock) = self.paths.get(&path).filter(|clock| clock.is_active(now)) else {
            return Duration::ZERO;
        };
        let least = self
            .paths
            .iter()
            .filter(|(id, clock)| clock.is_active(now) && (**id == path || counts(**id)))
            .map(|(_, clock)| clock.least.get());
        let longer = clock.recent.get() - least.fold(f64::MAX, f64::min);
        Duration::from_secs_f64((longer / 1e6).clamp(0.0, 10.0))
    }

    /// How much longer what arrives now on `path` took than its own quickest packet, if its
    /// time of sending is known.
    pub fn standing(&self, path: u32, now: Instant) -> Option<Duration> {
        let clock = self.paths.get(&path)?;
        (clock.heard == now).then(|| clock.standing())
    }

    /// What seems to stand on `path` does not: the clock of one end was late. Whatever is measured
    /// by them is so much more from now on, on all paths.
    pub fn mend_clocks(&mut self, path: u32) {
        let clock = self.paths.get(&path);
        let late = clock.map_or(Duration::ZERO, PathClock::standing);
        for clock in self.paths.values_mut() {
            clock.least.shift(late.as_secs_f64() * 1e6);
        }
    }
}
