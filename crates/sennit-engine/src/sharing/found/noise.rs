//! By how much round trips vary on a link although no queue stands in it.
//!
//! Radio links and hosts add a delay that comes and goes by itself. Where it does, a queue has to
//! be longer to count. And what a link was seen to carry is not forgotten for such a delay: a rate
//! that is too high shows in a queue, and one that is too low in nothing.

use std::time::{Duration, Instant};

use super::{CLEAR, Found, LATE, LEAST_QUEUE_SLOW, Mark, Seen, rate_since};

/// What the last seen delay counts for.
const PART: f64 = 1.0 / 16.0;
/// Next to no delay is longer than the mean by more than so many mean deviations (RFC 6298).
const DEVIATIONS: f64 = 4.0;
/// What counts of that: the least round trip of a window is seldom a long one.
const REST: f64 = 0.125;
/// Two delays that differ vary around their mean by less.
const FALL: f64 = 1.5;
/// Hosts make round trips differ by less than so many times [`LATE`].
const HOSTS: u32 = 2;
/// Of the most that a link was seen to carry, what is forgotten with each window.
const FORGOTTEN: f64 = 0.01;

/// How delays vary on a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Noise {
    /// Of the delay without a queue, in seconds.
    mean: f64,
    deviation: f64,
    /// The delay of the last window.
    last: Duration,
}

impl Noise {
    /// By how much longer than else a delay must be that is a queue's.
    pub(super) fn rest(&self) -> Duration {
        Duration::from_secs_f64(REST * (self.mean + DEVIATIONS * self.deviation))
    }

    /// Takes a delay that is no queue's.
    fn note(&mut self, delay: Duration) {
        let differs = delay.as_secs_f64() - self.mean;
        self.mean += PART * differs;
        self.deviation += PART * (differs.abs() - self.deviation);
    }

    /// The delay before was another path's.
    pub(super) fn forget(&mut self) {
        self.last = Duration::ZERO;
    }
}

impl Found {
    /// Takes the delay of a window, of a link into which so much was `sent` of late.
    pub(super) fn note_noise(&mut self, delay: Duration, sent: f64, seen: &Seen) {
        let before = std::mem::replace(&mut self.noise.last, delay);
        if self.moves() {
            // Its queue comes and goes as well.
            return;
        }
        let carries = self.carries.max(self.most);
        let few = self.least_given() * seen.rtt.as_secs_f64() / 4.0;
        if (seen.in_flight as f64) <= few.max(LEAST_QUEUE_SLOW) {
            self.noise.note(delay.saturating_sub(self.slow() + CLEAR));
        } else if carries > 0.0 {
            // More of a queue cannot have gone.
            let drained = self.span().mul_f64((1.0 - sent / carries).max(0.0));
            let others = drained + self.slow() + HOSTS * LATE;
            let fell = before.saturating_sub(delay).saturating_sub(others);
            self.noise.note(fell.mul_f64(FALL));
        }
    }

    /// Bytes per second sent in the last two windows, the lesser of both.
    pub(super) fn sent_since(&mut self, seen: &Seen, now: Instant) -> f64 {
        let before = self.sent.replace((now, seen.sent));
        let rate = before.map_or(0.0, |before| rate_since(before, seen.sent, now));
        std::mem::replace(&mut self.sends, rate).min(rate)
    }

    /// A link carries what arrives, at least, even if some of it was late before.
    pub(super) fn believe(&mut self, since: Mark, mark: Mark, slack: Duration) {
        let heard = mark.heard.saturating_duration_since(since.heard);
        let passed = mark.at.saturating_duration_since(since.at);
        let spent = heard.max(passed) + self.late() + slack;
        let arrived = mark.arrived.saturating_sub(since.arrived);
        let rate = arrived as f64 / spent.as_secs_f64();
        if self.steady && rate > self.carries {
            self.carries = rate;
            self.note_rate(mark.at);
        } else if self.carries == 0.0 {
            self.most = rate.max(self.most * (1.0 - FORGOTTEN));
        }
    }
}
