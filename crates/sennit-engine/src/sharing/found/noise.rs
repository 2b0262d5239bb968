//! By how much round trips vary on a link although no queue stands in it.
//!
//! Radio links and hosts add a delay that comes and goes by itself. One window cannot tell it from
//! a queue, but several can: the delay of a queue stays until less is given out. So where delays
//! are seen to vary, one counts as long as the least of some windows. Longer than they vary is a
//! queue at once.

use std::time::{Duration, Instant};

use super::{CLEAR, Found, LEAST_QUEUE_SLOW, Seen, rate_since};

/// What the last seen delay counts for.
const PART: f64 = 1.0 / 16.0;
/// Next to no delay is longer than the mean by more than so many mean deviations (RFC 6298).
const DEVIATIONS: f64 = 4.0;
/// In windows that last so many times what delays vary, together, one is seen with next to none.
const SPREAD_OVER: f64 = 24.0;
/// What is left of it then is at most this part.
const REST: f64 = 0.125;
/// Two delays that differ vary around their mean by less.
const FALL: f64 = 1.5;
const WINDOWS: usize = 16;
/// Of the most that a link was seen to carry, what is forgotten with each window.
const FORGOTTEN: f64 = 0.01;

/// How delays vary on a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Noise {
    /// The mean delay without a queue, in seconds; nothing on a link and between hosts that add
    /// less than counts.
    mean: f64,
    deviation: f64,
    /// The delays of the last windows, the last one first.
    last: [Duration; WINDOWS],
}

impl Noise {
    /// No delay that comes and goes is longer.
    fn reach(&self) -> Duration {
        Duration::from_secs_f64(self.mean + DEVIATIONS * self.deviation)
    }

    /// What of it is left in the least of some windows.
    fn rest(&self) -> Duration {
        self.reach().mul_f64(REST)
    }

    /// Takes the delay of a window in which nothing that was sent can have stood in a queue.
    fn note_idle(&mut self, delay: Duration) {
        self.note(delay.saturating_sub(CLEAR));
    }

    /// Takes the delay of a window after which `drained` of a queue may be gone.
    fn note_busy(&mut self, delay: Duration, drained: Duration) {
        let fell = self.last[0].saturating_sub(delay);
        self.note(fell.saturating_sub(drained).mul_f64(FALL));
    }

    /// The delays of before were of another path.
    pub(super) fn forget(&mut self) {
        self.last = Default::default();
    }

    fn note(&mut self, delay: Duration) {
        let differs = delay.as_secs_f64() - self.mean;
        self.mean += PART * differs;
        self.deviation += PART * (differs.abs() - self.deviation);
    }

    /// How much of the delay of a window is a queue's.
    fn filter(&mut self, delay: Duration, span: Duration) -> Duration {
        self.last.rotate_right(1);
        self.last[0] = delay;
        let reach = self.reach();
        if delay > reach + CLEAR {
            return delay;
        }
        let windows = SPREAD_OVER * reach.as_secs_f64() / span.as_secs_f64().max(1e-3);
        let windows = (windows.ceil() as usize).clamp(1, WINDOWS);
        self.last[..windows]
            .iter()
            .copied()
            .fold(delay, Duration::min)
    }
}

impl Found {
    /// How much of the delay of a window is a queue's, into which so much was sent of late.
    pub(super) fn queue_in(&mut self, delay: Duration, sent: f64, seen: &Seen) -> Duration {
        if self.moves() {
            // Its queue comes and goes as well.
            return delay;
        }
        let carries = self.carries.max(self.most);
        let few = self.least_given() * seen.rtt.as_secs_f64() / 4.0;
        if (seen.in_flight as f64) <= few.max(LEAST_QUEUE_SLOW) {
            self.noise.note_idle(delay.saturating_sub(self.slow()));
        } else if carries > 0.0 {
            let drains = (1.0 - sent / carries).max(0.0);
            let drained = self.span().mul_f64(drains);
            self.noise
                .note_busy(delay, drained + self.slow().max(CLEAR));
        }
        self.noise.filter(delay, self.span())
    }

    /// What of the delay that comes and goes may be left.
    pub(super) fn unsure(&self) -> Duration {
        if self.moves() {
            return Duration::ZERO;
        }
        self.noise.rest()
    }

    /// Bytes per second sent in the last two windows, the lesser of both.
    pub(super) fn sent_since(&mut self, seen: &Seen, now: Instant) -> f64 {
        let before = self.sent.replace((now, seen.sent));
        let rate = before.map_or(0.0, |before| rate_since(before, seen.sent, now));
        std::mem::replace(&mut self.sends, rate).min(rate)
    }

    /// A link carries what arrives, at least, even if some of it was late before.
    pub(super) fn believe(&mut self, (since, before): (Instant, u64), arrived: u64, now: Instant) {
        let spent = now.saturating_duration_since(since) + self.late();
        let rate = arrived.saturating_sub(before) as f64 / spent.as_secs_f64();
        if self.steady && rate > self.carries {
            self.carries = rate;
            self.note_rate(now);
        } else if self.carries == 0.0 {
            self.most = rate.max(self.most * (1.0 - FORGOTTEN));
        }
    }
}
