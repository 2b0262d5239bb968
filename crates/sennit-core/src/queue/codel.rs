//! CoDel (RFC 8289): whether a packet that stood for some time must be marked or dropped.

use std::time::{Duration, Instant};

use super::QUANTUM;

/// The time CoDel waits for a sender to react (RFC 8289 §4.3), unless the caller knows that it
/// takes longer.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// A flow that has this part of what waits has the queue to itself (docs/decisions/0011).
const ALONE: f64 = 0.75;

/// What CoDel steers by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    pub(super) target: Duration,
    pub(super) interval: Duration,
}

impl Law {
    /// For a flow that has `own` of the bytes that wait. To one of several, no patience is due:
    /// each drop costs it a part of its share only, and what it leaves the others take.
    pub(super) fn of(self, own: usize, all: usize) -> Self {
        let alone = own as f64 >= ALONE * all as f64;
        Self {
            interval: if alone { self.interval } else { INTERVAL },
            ..self
        }
    }
}

/// The control law of one flow (RFC 8289 §5).
#[derive(Debug, Default)]
pub(super) struct Codel {
    /// When the sojourn time will have been above target for a whole interval.
    above_until: Option<Instant>,
    dropping: bool,
    next_drop: Option<Instant>,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether the packet that stood for `stood` must be marked or dropped.
    pub(super) fn objects(&mut self, stood: Duration, law: Law, left: usize, now: Instant) -> bool {
        let standing = self.stands(stood, law.target, left, now);
        if self.dropping {
            return self.objects_again(standing, law.interval, now);
        }
        if standing {
            self.enter(law.interval, now);
        }
        standing
    }

    /// Whether the queue has stood above target for an interval.
    fn stands(&mut self, stood: Duration, target: Duration, left: usize, now: Instant) -> bool {
        if stood < target || left <= QUANTUM as usize {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + INTERVAL)
    }

    fn objects_again(&mut self, standing: bool, interval: Duration, now: Instant) -> bool {
        if !standing {
            self.dropping = false;
            return false;
        }
        let due = self.next_drop.is_some_and(|next| now >= next);
        if due {
            self.count += 1;
            self.next_drop = self.next_drop.map(|next| next + self.spacing(interval));
        }
        due
    }

    /// Starts dropping; where it left off a moment ago it resumes at nearly the old frequency.
    fn enter(&mut self, interval: Duration, now: Instant) {
        let recent = self
            .next_drop
            .is_some_and(|next| now.saturating_duration_since(next) < 16 * interval);
        let delta = self.count.saturating_sub(self.last_count);
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.last_count = self.count;
        self.dropping = true;
        self.next_drop = Some(now + self.spacing(interval));
    }

    fn spacing(&self, interval: Duration) -> Duration {
        interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}
