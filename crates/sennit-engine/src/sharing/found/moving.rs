//! A link whose rate moves.
//!
//! A short queue stands in it. What arrives meanwhile is what it carries, and by the length of the
//! queue more or less is given out. When the queue is gone the link carries more, and what is given
//! out grows by a part each round trip, until a queue shows. When the link carries less, the queue
//! grows by what was under way, which nobody can take back; until it is short, little is given out.
//! After a while at about one rate the link counts as steady, and keeps no queue.
//!
//! A rate that falls is known a round trip later. So that little is sent until then, what may be
//! under way is bounded: acknowledgements come as fast as the link carries, and each makes room for
//! as much as it acknowledges.

use std::time::{Duration, Instant};

use super::{BELIEVED, Cause, FIRST_STEP, Found, GIVEN, LEAST, SPANS, Seen, VAIN, streak::Streak};

/// Rates that differ by less than this part are those of a link that does not change, if they do
/// for so long.
const ALIKE: f64 = 0.2;
const STEADY_AFTER: Duration = Duration::from_secs(3);
/// What the last measured rate counts for in the usual one.
const USUAL_PART: f64 = 0.1;
/// So much stands in the queue, or nobody would see that the link carries more.
const STANDING: Duration = Duration::from_millis(8);
/// On a long path, this part of its round trip.
const QUEUED: f64 = 0.2;
/// What is under way may be more than the link is known to carry by this, while that is tried.
const AHEAD: f64 = 1.3;
/// So many times what makes a queue may always be under way, or none could be seen.
const MEASURED: f64 = 1.25;
/// The part of a queue that is too long, or too short, that goes in a round trip.
const EAGERNESS: f64 = 0.5;
/// What is under way arrives within a round trip; this part of it, if the link has just begun to
/// carry less. When less arrives, acknowledgements are held up.
const SLOWER: f64 = 0.25;
/// What is given out, as parts of what the link carries.
const PARTS: [f64; 2] = [0.3, 1.25];
/// What is given out to prove that a delay is a queue's.
const PROOF: f64 = 0.5;
/// The first step up, and the last: a queue that a step makes shows a round trip later.
const STEPS: [f64; 2] = [0.12, 0.25];
/// Each step up is larger than the one before by this.
const STEP_BY: f64 = 1.6;
/// Of what was given out, what must arrive.
const USED: f64 = 0.85;
/// Windows until what was given out has arrived.
pub(super) const WINDOWS: usize = 3;
/// The least delay of a span that lasts so long, and of the one before, counts.
const LEAST_OF: Duration = Duration::from_millis(500);
/// A queue that is longer by this grows.
const GROWS: f64 = 1.2;
/// A queue that stands for so long is emptied once: classes learn the path's round trip only then.
const STANDS_FOR: Duration = Duration::from_secs(2);

impl Found {
    /// A link whose rate moves keeps a short queue, whose length says how the rate changes.
    pub(super) fn follow(&mut self, rate: f64, delay: Duration, seen: &Seen, now: Instant) {
        if delay <= self.clear() {
            self.stands = None;
            self.streak = None;
            self.note_variance(rate, seen);
            self.climb(rate, seen, now);
            return;
        }
        self.step = STEPS[0];
        let fills = self.fills(rate, delay, seen);
        let stands = (fills && delay >= self.late()).then_some((now, 0, 0));
        let stood = std::mem::replace(&mut self.stands, stands).is_some();
        if !fills {
            // Too little is given out by now to tell, and the delay has stayed.
            if let Some(streak) = self.streak.filter(|streak| streak.cuts > 0)
                && !streak.is_shorter(delay)
                && !self.rests(now)
            {
                self.take_back(streak, delay);
            }
            return;
        }
        if self.is_vain(delay, seen, now) {
            return;
        }
        let proves = self.streak.is_some_and(|streak| streak.proves);
        if stood && stands.is_some() && !proves {
            let long = delay >= seen.rtt;
            let least = if long {
                let round = (seen.rtt + delay).as_secs_f64();
                SLOWER * seen.in_flight as f64 / round
            } else {
                BELIEVED[1] * self.carries
            };
            self.carries = rate.max(least).max(LEAST);
        } else if stands.is_none() {
            // All that was given out arrives, and hardly later.
            self.carries = self.carries.max(rate);
        }
        self.note_rate(now);
        self.aim(delay, seen, now);
    }

    /// What may be under way, in bytes: what fills the path and the queue that stands there; 0 if
    /// that is not bounded. When the link begins to carry less, acknowledgements come later, and so
    /// what leaves then waits for them.
    pub(in crate::sharing) fn window(&self, rtt: Duration) -> u64 {
        if !self.moves() {
            return 0;
        }
        let queue = STANDING.max(rtt.mul_f64(QUEUED));
        let stays = self.least[0].min(self.least[1]);
        let round = rtt + self.own + stays + self.varies + self.slow() + queue;
        let rate = self.given.clamp(self.carries, AHEAD * self.carries);
        let window = rate * round.as_secs_f64();
        window.max(MEASURED * self.least_queue()) as u64
    }

    /// A delay that never goes may be the path's, which then takes that much more to fill.
    pub(super) fn note_least(&mut self, delay: Duration, now: Instant) {
        let since = *self.least_since.get_or_insert(now);
        if now.saturating_duration_since(since) < LEAST_OF {
            self.least[0] = self.least[0].min(delay);
        } else {
            self.least = [delay, self.least[0]];
            self.least_since = Some(now);
        }
    }

    /// What was under way arrived within a usual round trip (Little's law). No queue stood there.
    fn note_variance(&mut self, rate: f64, seen: &Seen) {
        let under_way = (self.flights[0] + self.flights[1]) as f64 / 2.0;
        if self.clears < 2 || under_way < self.least_queue() {
            return;
        }
        let round = Duration::from_secs_f64((under_way / rate.max(LEAST)).min(10.0));
        let varies = round.saturating_sub(seen.rtt + self.own).min(seen.rtt);
        // A queue in the other direction is in it as well, and goes.
        self.varies = if varies < self.varies {
            (self.varies + varies) / 2
        } else {
            (7 * self.varies + varies) / 8
        };
    }

    /// Gives out so much that the queue becomes as long as it shall be.
    fn aim(&mut self, delay: Duration, seen: &Seen, now: Instant) {
        let slow = self.slow();
        let emptied = self
            .cleared
            .is_some_and(|at| now.saturating_duration_since(at) < STANDS_FOR);
        let standing = if emptied { STANDING } else { Duration::ZERO };
        // Round trips are old, but what is under way is known.
        let left = seen.in_flight as f64 / self.carries - seen.rtt.as_secs_f64();
        let stands = delay.as_secs_f64().min(left.max(0.0)) - slow.as_secs_f64();
        let missing = standing.as_secs_f64() - stands;
        let round = seen.rtt.max(SPANS[0]).as_secs_f64();
        let gain = 1.0 + EAGERNESS * missing / round;
        let proves = self.streak.is_some_and(|streak| streak.proves);
        let gain = if proves { PROOF } else { gain };
        self.given = (self.carries * gain.clamp(PARTS[0], PARTS[1])).max(LEAST);
        self.cause = if missing < 0.0 {
            Cause::Queue
        } else {
            Cause::Rises
        };
    }

    /// All that is given out arrives at once, so more is.
    fn climb(&mut self, rate: f64, seen: &Seen, now: Instant) {
        self.cause = Cause::Clear;
        let early = self.rises_at.is_some_and(|at| now < at);
        if !seen.held || rate < USED * self.least_given() || early {
            return;
        }
        self.cause = Cause::Rises;
        self.step = self.step.max(STEPS[0]);
        self.carries = self.carries.max(rate);
        self.given = (self.given * (1.0 + self.step)).max(GIVEN * self.carries);
        self.step = (STEP_BY * self.step).min(STEPS[1]);
        self.rises_at = Some(now + seen.rtt);
        self.note_rate(now);
    }

    /// Whether less was given out for some round trips and the delay did not become shorter: then
    /// it is the path's.
    fn is_vain(&mut self, delay: Duration, seen: &Seen, now: Instant) -> bool {
        let mut streak = self.streak.unwrap_or(Streak::new(self.carries, delay));
        if streak.is_shorter(delay) {
            self.streak = None;
            return false;
        }
        if self.given.min(self.carries) >= GIVEN * streak.start {
            let begins = self.carries > streak.start;
            let anew = Streak::new(self.carries, delay);
            self.streak = Some(if begins { anew } else { streak });
            return false;
        }
        // It still grows by what was under way when the link began to carry less.
        if delay > streak.at_first.mul_f64(GROWS) {
            self.streak = Some(Streak::new(streak.start, delay));
            return false;
        }
        if self.rests(now) {
            return false;
        }
        self.cut = Some((now, seen.rtt));
        streak.cuts += 1;
        self.streak = Some(streak);
        // In so many round trips most of the queue should have gone.
        let rounds = streak.at_first.as_secs_f64() / seen.rtt.max(SPANS[0]).as_secs_f64();
        if streak.cuts <= VAIN.max(rounds as u32) {
            return false;
        }
        // A link that carries less and less keeps its queue as well.
        if !streak.proves {
            // Until a packet that leaves now is heard of, in a window that began later.
            self.cut = Some((now, 2 * seen.rtt + delay));
            streak.proves = true;
            self.streak = Some(streak);
            return false;
        }
        self.take_back(streak, delay);
        true
    }

    /// The delay is the path's, and what was given out less for it is given out again.
    fn take_back(&mut self, streak: Streak, delay: Duration) {
        self.take_for_own(delay);
        self.streak = None;
        self.carries = streak.start.max(self.carries);
        self.given = GIVEN * self.carries;
        self.cause = Cause::Clear;
    }

    /// So much more is given out than made a queue before, and none shows. What was measured then
    /// may have been too little once.
    pub(super) fn exceed(&mut self, now: Instant) {
        if std::mem::replace(&mut self.lifted, true) {
            self.unsettle(now);
        } else {
            self.ceiling = Some((self.given, now));
        }
    }

    /// The link carries something else than it did.
    pub(super) fn unsettle(&mut self, now: Instant) {
        self.usual = Some((self.carries, now));
        self.steady = false;
        self.stands = None;
        self.step = STEPS[0];
    }

    /// The link carries so much, and has for long enough.
    fn settle(&mut self, rate: f64, now: Instant) {
        (self.steady, self.lifted) = (true, false);
        self.stands = None;
        self.carries = rate;
        self.ceiling = Some((rate, now));
        self.step = FIRST_STEP;
    }

    /// Notes whether the link still carries what it did.
    pub(super) fn note_rate(&mut self, now: Instant) {
        let rate = self.carries;
        let Some((usual, since)) = self.usual else {
            // Until it is seen to change, it is a steady one. What makes the first queue may still
            // be growing, so the link may well carry more.
            self.usual = Some((rate, now));
            self.settle(rate, now);
            self.lifted = true;
            return;
        };
        if !(1.0 - ALIKE..1.0 + ALIKE).contains(&(rate / usual)) {
            return self.unsettle(now);
        }
        if self.steady {
            return;
        }
        let usual = usual + USUAL_PART * (rate - usual);
        self.usual = Some((usual, since));
        if now.saturating_duration_since(since) >= STEADY_AFTER {
            self.settle(usual, now);
        }
    }
}
