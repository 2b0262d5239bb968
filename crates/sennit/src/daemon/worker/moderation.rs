//! How often a thread turns, and whether it goes ahead of other programs.

use std::time::{Duration, Instant};

use sennit_linux::{
    priority::Priority,
    waits::{Spent, Waits},
};

/// Turns that may follow each other at once.
const TURNS: u32 = 8;
/// Time after which one more turn is allowed. Under load packets would otherwise arrive one by one,
/// each at the price of a whole turn; a ping does not notice (docs/decisions/0015).
const TURN_EVERY: Duration = Duration::from_millis(1);
/// Time after which one more turn is allowed while a thread has time to spare: there and back a
/// packet passes four threads, and waits half of this at each.
const SHORT_TURN: Duration = Duration::from_micros(500);
/// A thread has time to spare while it runs for less than this part of it.
const SPARE: f64 = 0.15;
/// With short turns it has none to spare any more from this part on.
const NO_SPARE: f64 = 0.3;
/// Time between turns where the host is short of processors and little flows: a turn costs the same
/// whatever it moves.
const LONG_TURN: Duration = Duration::from_millis(8);
/// A host is short of processors only if a thread waits for one for this fraction of the time.
const WAITS: f64 = 0.05;
/// A host is short of processors only if a thread waits for one this many times as long as it runs.
const WAITS_PER_RUN: f64 = 2.5;
/// Long turns end when the thread waits for less than this fraction of what began them.
const CALM: f64 = 0.4;
/// Bytes per second below which little flows through a thread.
const LITTLE: f64 = 8e6;
/// A host is very short of processors if a thread waits this many times as long as it runs.
const LONG_WAITS_PER_RUN: f64 = 4.5;
/// Time between turns where the host is very short of processors. It costs some of a link's rate,
/// but less than what is spent on turns (docs/decisions/0016).
const LONGEST_TURN: Duration = Duration::from_millis(16);
/// What was seen before is multiplied by this with each look, so that the last half second tells.
const FADES: f64 = 0.8;
/// A thread that serves this many tunnels, runs much and still moves little in a turn has long
/// turns sooner than others.
const MANY: usize = 8;
/// A thread of [`MANY`] tunnels has long turns if it waits this many times as long as it runs.
const WAITS_PER_MUCH: f64 = 1.25;
/// Bytes in a turn that are little, where turns are a millisecond apart.
const SLIVER: f64 = 4096.0;
/// A thread that runs for this part of the time, or waits for so long as to say that the host is
/// short, goes ahead of other programs. Otherwise it might as well wait: what they send then leaves
/// in larger runs (docs/decisions/0020).
const RUNS: f64 = 0.25;
/// How often all of this is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What went through sockets, ever.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    bytes: u64,
    /// Runs of packets that were received or sent at once, of or to one peer.
    runs: u64,
}

impl Moved {
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.runs += 1;
    }

    fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            runs: self.runs - before.runs,
        }
    }
}

/// Limits how often the loop turns, and says when it must not wait for other programs.
pub(super) struct Moderation {
    every: Duration,
    /// It has time to spare for more turns than that.
    has_spare: bool,
    /// When all turns that were taken are paid for.
    paid_at: Instant,
    waits: Option<Waits>,
    priority: Option<Priority>,
    /// When it was last seen whether the host is short of processors, and what was moved until
    /// then.
    looked: (Instant, Moved),
    /// What was spent lately ([`FADES`]).
    lately: Spent,
}

impl Moderation {
    pub(super) fn of_this_thread(now: Instant) -> Self {
        let waits = Waits::of_this_thread().inspect_err(
            |error| tracing::debug!(%error, "not known whether the host is short of processors"),
        );
        Self {
            every: TURN_EVERY,
            has_spare: false,
            paid_at: now,
            waits: waits.ok(),
            priority: Priority::of_this_thread().unwrap_or_default(),
            looked: (now, Moved::default()),
            lately: Spent::default(),
        }
    }

    /// Accounts for one turn, and says how long to wait before it.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        let every = if self.has_spare && !self.is_rare() {
            SHORT_TURN
        } else {
            self.every
        };
        self.paid_at = self.paid_at.max(now) + every;
        let ahead = self.paid_at - now;
        ahead.checked_sub(every * TURNS)
    }

    /// Turns are further apart than under load.
    pub(super) fn is_rare(&self) -> bool {
        self.every > TURN_EVERY
    }

    /// Sees whether the host is short of processors, when it is time to; `moved` is all until now.
    pub(super) fn look(&mut self, moved: Moved, tunnels: usize, now: Instant) {
        let (at, before) = self.looked;
        let passed = now.saturating_duration_since(at);
        if passed < LOOK_EVERY {
            return;
        }
        self.looked = (now, moved);
        let Some(Ok(spent)) = self.waits.as_mut().map(Waits::spent) else {
            return;
        };
        let moved = moved.since(before);
        self.lately.ran = self.lately.ran.mul_f64(FADES) + spent.ran;
        self.lately.waited = self.lately.waited.mul_f64(FADES) + spent.waited;
        let longest = longest_turn(self.lately);
        self.every = next_turn(self.every, longest, spent, moved, tunnels, passed);
        self.has_spare = has_spare(self.has_spare, spent, passed);
        if let Some(priority) = &mut self.priority
            && let Err(error) = priority.put_ahead(is_pressed(spent, passed))
        {
            tracing::debug!(%error, "packets wait for other programs where processors are short");
            self.priority = None;
        }
    }
}

/// Whether a thread that spent this of the time that passed should not wait for other programs.
fn is_pressed(spent: Spent, passed: Duration) -> bool {
    spent.ran > passed.mul_f64(RUNS) || spent.waited > passed.mul_f64(WAITS)
}

/// Whether a thread that spent this of the time that passed may turn more often than under load.
/// One that did so `before` goes on for longer.
fn has_spare(before: bool, spent: Spent, passed: Duration) -> bool {
    let most = if before { NO_SPARE } else { SPARE };
    spent.ran < passed.mul_f64(most) && spent.waited < passed.mul_f64(WAITS)
}

/// How far apart turns are at most, where little flows.
fn longest_turn(lately: Spent) -> Duration {
    if lately.waited > lately.ran.mul_f64(LONG_WAITS_PER_RUN) {
        LONGEST_TURN
    } else {
        LONG_TURN
    }
}

/// How far apart turns are when they were `every`, and the thread spent this of the time that
/// passed and moved so much for its tunnels.
fn next_turn(
    every: Duration,
    longest: Duration,
    spent: Spent,
    moved: Moved,
    tunnels: usize,
    passed: Duration,
) -> Duration {
    let is_little = (moved.bytes as f64) < LITTLE * passed.as_secs_f64();
    let sliver = SLIVER * every.div_duration_f64(TURN_EVERY);
    let is_split = tunnels >= MANY
        && spent.ran > passed.mul_f64(RUNS)
        && (moved.bytes as f64) < sliver * moved.runs as f64;
    let (longest, waits) = if is_little {
        (longest, WAITS_PER_RUN)
    } else if is_split {
        (LONG_TURN, WAITS_PER_MUCH)
    } else {
        (TURN_EVERY, 0.0)
    };
    let short = spent.ran.mul_f64(waits);
    if spent.waited > short.max(passed.mul_f64(WAITS)) {
        (2 * every).min(longest)
    } else if spent.waited < short.mul_f64(CALM) {
        (every / 2).max(TURN_EVERY)
    } else {
        every.min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_become_rarer_only_where_the_host_is_short_of_processors_and_little_flows() {
        let ms = Duration::from_millis;
        // Of a hundred milliseconds, and always in two hundred runs.
        let with = |tunnels, start: u64, ran: u64, waited: u64, bytes| {
            let (ran, waited) = (ms(ran), ms(waited));
            let spent = Spent { ran, waited };
            let moved = Moved { bytes, runs: 200 };
            let end = (0..10).fold(ms(start), |every, _| {
                next_turn(every, longest_turn(spent), spent, moved, tunnels, ms(100))
            });
            end.as_millis()
        };
        let after = |start, ran, waited, bytes| with(1, start, ran, waited, bytes);
        assert_eq!(after(1, 10, 40, 300_000), 8);
        assert_eq!(after(1, 10, 50, 300_000), 16);
        assert_eq!(after(16, 10, 40, 300_000), 8);
        assert_eq!(after(4, 10, 15, 300_000), 4);
        assert_eq!(after(16, 10, 5, 300_000), 1);
        assert_eq!(after(16, 10, 40, 3_000_000), 1);
        // A thread that has hardly anything to do.
        assert_eq!(after(1, 1, 4, 3000), 1);
        // One that has much to do, for many tunnels of which each gets little at a time, or much.
        assert_eq!(with(60, 1, 40, 55, 810_000), 8);
        assert_eq!(with(60, 8, 40, 5, 810_000), 1);
        assert_eq!(with(60, 8, 40, 55, 3_000_000), 8);
        assert_eq!(with(60, 1, 40, 55, 3_000_000), 1);
        assert_eq!(with(3, 1, 40, 55, 810_000), 1);
    }

    #[test]
    fn a_thread_turns_more_often_while_it_has_time_to_spare() {
        let ms = Duration::from_millis;
        let spares = |before, ran, waited| {
            let (ran, waited) = (ms(ran), ms(waited));
            has_spare(before, Spent { ran, waited }, ms(100))
        };
        assert!(spares(false, 10, 0));
        assert!(!spares(false, 20, 0));
        // What more turns cost does not end them at once.
        assert!(spares(true, 20, 0));
        assert!(!spares(true, 35, 0));
        // Others want the processor.
        assert!(!spares(true, 10, 6));
    }

    #[test]
    fn a_thread_goes_ahead_where_it_runs_much_or_waits() {
        let pressed = |ran, waited| {
            let (ran, waited) = (Duration::from_millis(ran), Duration::from_millis(waited));
            is_pressed(Spent { ran, waited }, Duration::from_millis(100))
        };
        assert!(!pressed(20, 3));
        assert!(pressed(30, 0));
        assert!(pressed(2, 10));
    }
}
