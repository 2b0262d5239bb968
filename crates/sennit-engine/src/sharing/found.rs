//! What a link carries, found from what its classes see there.
//!
//! While the least round trip of a window is longer than the path's, a queue stands in the link,
//! and what arrives meanwhile is what it carries. Then a little less is given out until the queue
//! is gone, and a little more again, step by step, while all of it is used and no delay shows. So
//! the queue stands in front of the link, where it is ours to order (Bundler, EuroSys 2021).
//!
//! Two things look like a queue and are none. When nothing at all arrives the link stalls, and what
//! comes at once afterwards says nothing. When cutting does not shorten the delay, the path has
//! become longer, or the queue is in the other direction: then that delay is part of the path.
//!
//! Where the delay [comes and goes](noise) by itself, a queue must be longer to count as one.
//!
//! So it goes for a link that carries the same for seconds. One whose rate [moves](moving) keeps a
//! short queue in the link, which shows at once when it carries more.

mod cause;
mod moving;
mod noise;
mod streak;

use std::time::{Duration, Instant};

pub use self::cause::Cause;
use self::{noise::Noise, streak::Streak};
use crate::acks::ACK_DELAY;

/// Round trips that are longer by this much wait in a queue of the link; what is less may be hosts.
const LATE: Duration = Duration::from_millis(3);
/// Below this there is none; in between the rate is eased.
const CLEAR: Duration = Duration::from_micros(1500);
/// A packet of this size takes a while itself on a slow link, and so does the next, for which its
/// acknowledgement waits. In bytes.
const PACKET: f64 = 1500.0;
/// In each window so many fit, or there would be windows in which nothing arrives.
const SEVERAL: u32 = 3;
/// They last so many times the slack of the host: what it does late, it does at once.
const TURNS: u32 = 8;
/// Of what the link carries, what is given out while no queue stands in it.
const GIVEN: f64 = 0.97;
/// While a queue drains, no less than this part is given out.
const LEAST_GIVEN: f64 = 0.6;
/// The first step up, as a part of the rate; each next one is larger by a third, up to the last. So
/// a queue is seen while it is short.
const FIRST_STEP: f64 = 0.01;
const LAST_STEP: f64 = 0.02;
/// Near the rate at which a queue showed last, steps are small and this far apart, for so long, if
/// the link seems to be a steady one.
const NEAR_EVERY: Duration = Duration::from_millis(150);
const NEAR_FOR: Duration = Duration::from_secs(5);
const NEAR: f64 = 0.92;
const BEYOND: f64 = 1.04;
/// So many times that rate without a queue, and the link carries something else.
const OTHER: f64 = 1.12;
/// A longer queue no link makes that is a steady one.
const LONG: Duration = Duration::from_millis(25);
/// Of what is given out, what must arrive for the link to count as fully used.
const USED: f64 = 0.93;
/// In bytes under way: with less there is no queue that anybody can measure. On a slow link it is
/// what arrives in this time, in seconds, and two packets at least.
const LEAST_QUEUE: f64 = 8.0 * PACKET;
const LEAST_QUEUE_TIME: f64 = 0.06;
const LEAST_QUEUE_SLOW: f64 = 2.0 * PACKET;
/// Windows last a round trip, and so long at least and at most.
const SPANS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];
/// Of what was known before, the least that is believed of a queue that stood for no whole window
/// yet, and for one: acknowledgements come in bunches, and hosts are late.
const BELIEVED: [f64; 2] = [0.98, 0.7];
/// Windows in a row with a short delay that easing does not end until it is taken for the path's.
const VAIN_EASES: u32 = 12;
/// Cuts in a row that do not shorten the delay until it is taken for the path's.
const VAIN: u32 = 5;
/// Less than this no link carries that is worth sharing, in bytes per second.
const LEAST: f64 = 12_500.0;

/// What all classes together saw of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Bytes sent so far.
    pub(super) sent: u64,
    /// Bytes under way now, and those that were with paths that are gone.
    pub(super) in_flight: u64,
    pub(super) gone: u64,
    /// The least by which round trips were longer than the path's, if any were measured.
    pub(super) delay: Option<Duration>,
    /// The path's.
    pub(super) rtt: Duration,
    /// How late acknowledgements come: so long ago arrived what is acknowledged now.
    pub(super) back: Duration,
    /// A class was told to wait.
    pub(super) held: bool,
    /// What this host is late usually, and as much again.
    pub(super) slack: Duration,
}

/// What had arrived at a look.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    /// When the last of it had arrived, by the quickest way back.
    heard: Instant,
    arrived: u64,
}

impl Mark {
    fn new(arrived: u64, back: Duration, at: Instant) -> Self {
        let heard = at.checked_sub(back).unwrap_or(at);
        Self { at, heard, arrived }
    }

    /// Bytes per second since then, if what was heard tells: acknowledgements that took another way
    /// do not.
    fn rate_since(self, since: Self) -> Option<f64> {
        let passed = self.at.saturating_duration_since(since.at);
        let heard = self.heard.saturating_duration_since(since.heard);
        let tells = (passed / 2..=2 * passed).contains(&heard);
        tells.then(|| rate_since((since.heard, since.arrived), self.arrived, self.heard))
    }
}

/// The account of one link.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The last look, and the one before it.
    last: Option<Mark>,
    second_last: Option<Mark>,
    /// When it was last looked at, what had been sent by then, and at which rate of late.
    sent: Option<(Instant, u64)>,
    sends: f64,
    span: Duration,
    /// What the link carries, in bytes per second; 0 while that is not known.
    carries: f64,
    /// While that is not known, the most that it was seen to carry of late.
    most: f64,
    /// What is given out.
    given: f64,
    step: f64,
    /// Where a queue showed last, and when.
    ceiling: Option<(f64, Instant)>,
    /// About what the link has carried, and since when that holds.
    usual: Option<(f64, Instant)>,
    /// It has for long enough that the link counts as a steady one.
    steady: bool,
    /// Where a queue showed was exceeded since one did.
    lifted: bool,
    /// What was given out in the last windows.
    before: [f64; moving::WINDOWS],
    /// When no queue was seen last.
    cleared: Option<Instant>,
    /// When a step down was last made, and how long it takes until it shows.
    cut: Option<(Instant, Duration)>,
    /// When the next step up may be made.
    rises_at: Option<Instant>,
    /// Since when the rate is measured at which a queue drains, what had arrived by then, and how
    /// many whole windows that are.
    stands: Option<(Instant, u64, u32)>,
    /// Windows in a row in which a delay was too short to be sure of.
    eased: u32,
    streak: Option<Streak>,
    /// How much longer than the least a usual round trip is although no queue stands there.
    varies: Duration,
    /// The least delays of the last spans, and when the first of them began.
    least: [Duration; 2],
    least_since: Option<Instant>,
    /// What was under way in the last two windows.
    flights: [u64; 2],
    /// So many windows in a row no queue stood there.
    clears: u32,
    /// Delay that is the path's own.
    own: Duration,
    /// Delay that comes and goes without a queue.
    noise: Noise,
    stalled: bool,
    queue: Option<Duration>,
    cause: Cause,
}

impl Found {
    /// How long until the next look.
    pub(super) fn span(&self) -> Duration {
        self.span.clamp(SPANS[0], SPANS[1])
    }

    pub(super) fn cause(&self) -> Cause {
        self.cause
    }

    /// How long a packet stands in the link, when it was last looked at.
    pub(super) fn queue(&self) -> Option<Duration> {
        self.queue
    }

    /// Takes what was seen since the last time; returns what to give out, in bytes per second, or 0
    /// if that is not known.
    pub(super) fn update(&mut self, seen: &Seen, now: Instant) -> u64 {
        let arrived = seen.sent.saturating_sub(seen.in_flight + seen.gone);
        let sent = self.sent_since(seen, now);
        let mark = Mark::new(arrived, seen.back, now);
        let before = self.last.replace(mark);
        let second = std::mem::replace(&mut self.second_last, before);
        let Some(delay) = seen.delay else {
            if seen.in_flight > 0 && self.carries > 0.0 {
                self.cause = Cause::Stalled;
            }
            self.stalled = seen.in_flight > 0;
            self.stands = None;
            self.skip(seen);
            return self.given as u64;
        };
        let least = self.packet().max(TURNS * seen.slack / SEVERAL);
        self.span = seen.rtt.max(SEVERAL * least);
        if std::mem::take(&mut self.stalled) {
            self.skip(seen);
            return self.given as u64;
        }
        let Some(since) = second.or(before) else {
            return self.given as u64;
        };
        let Some(rate) = mark.rate_since(since) else {
            self.stands = None;
            self.skip(seen);
            return self.given as u64;
        };
        self.own = self.own.min(delay);
        let delay = delay - self.own;
        self.note_noise(delay, sent, seen);
        self.queue = Some(delay);
        self.note_least(delay, now);
        self.believe(since, mark, seen.slack);
        if self.carries > 0.0 && delay <= self.clear() {
            self.cleared = Some(now);
        }
        if self.moves() {
            self.follow(rate, delay, seen, now);
        } else if delay >= self.late() {
            self.handle_queue(mark, delay, seen, now);
        } else {
            self.stands = None;
            // A packet may have arrived that is not acknowledged yet.
            let rate = rate + PACKET / (mark.heard - since.heard).as_secs_f64().max(1e-3);
            self.handle_clear(rate, delay, seen, now);
        }
        self.flights = [seen.in_flight, self.flights[0]];
        self.clears = if delay <= self.clear() {
            self.clears + 1
        } else {
            0
        };
        self.before.rotate_right(1);
        self.before[0] = self.given;
        self.given as u64
    }

    /// What arrived in this window, or the next, says nothing.
    fn skip(&mut self, seen: &Seen) {
        self.flights = [seen.in_flight, self.flights[0]];
        self.clears = 0;
    }

    /// A queue stands in the link, through which so much has arrived.
    fn handle_queue(&mut self, mark: Mark, delay: Duration, seen: &Seen, now: Instant) {
        let Mark { heard, arrived, .. } = mark;
        (self.eased, self.lifted) = (0, false);
        let known = self.carries > 0.0;
        let begins = self.stands.is_none();
        let (since, earlier, windows) = match self.stands {
            Some((since, earlier, windows)) => (since, earlier, windows + 1),
            None => (heard, arrived, 0),
        };
        self.stands = Some((since, earlier, windows));
        let rate = rate_since((since, earlier), arrived, heard);
        // A queue as long as the path is none of hosts.
        let long = known && windows > 0 && delay >= seen.rtt;
        // The first queue is the one that classes make as they start.
        if long && delay >= LONG && self.cleared.is_some() {
            self.unsettle(now);
        }
        let sure = long || windows >= BELIEVED.len() as u32;
        if !self.fills(rate, delay, seen) {
            // Nothing that stands in a queue: whatever comes next has not stood there either.
            self.stands = None;
            return;
        }
        if !known && !sure || known && self.rests(now) {
            return;
        }
        let rate = match BELIEVED.get(windows as usize) {
            Some(part) if !sure => rate.max(part * self.carries),
            Some(_) | None => rate.max(LEAST),
        };
        let round = seen.rtt + delay;
        if begins {
            // It may be gone with the next packet.
            self.carries = rate;
            self.drain(delay, round);
        } else if self.lower(rate, delay, round, now) && sure {
            self.stands = Some((heard, arrived, 0));
        }
    }

    /// Whether as much is under way as makes a queue: half of what was given out fills the path.
    /// Who has less waits for a host.
    fn fills(&self, rate: f64, delay: Duration, seen: &Seen) -> bool {
        let fits = if self.carries > 0.0 {
            self.least_given() * seen.rtt.as_secs_f64() / 2.0
        } else {
            self.most.max(rate) * (seen.rtt + delay).as_secs_f64() / 2.0
        };
        seen.in_flight as f64 >= fits.max(self.least_queue())
    }

    /// Bytes under way of which something may stand in a queue.
    fn least_queue(&self) -> f64 {
        if self.given == 0.0 {
            return LEAST_QUEUE;
        }
        (LEAST_QUEUE_TIME * self.given).clamp(LEAST_QUEUE_SLOW, LEAST_QUEUE)
    }

    /// The least that was given out of late.
    fn least_given(&self) -> f64 {
        self.before.iter().copied().fold(self.given, f64::min)
    }

    /// Takes this for what the link carries while its queue drains; false if the delay is the
    /// path's, and so stays.
    fn lower(&mut self, rate: f64, delay: Duration, round: Duration, now: Instant) -> bool {
        let begins = Streak::new(self.carries.max(rate), delay);
        let mut streak = self.streak.unwrap_or(begins);
        if streak.cuts >= VAIN && !streak.is_shorter(delay) {
            // It is as long as ever: this is how long the path is.
            self.take_for_own(delay);
            self.streak = None;
            self.carries = streak.start;
            self.given = GIVEN * streak.start;
            self.cause = Cause::Clear;
            return false;
        }
        streak.cuts += 1;
        self.streak = Some(streak);
        let known = self.carries > 0.0;
        self.carries = if known { rate.min(self.carries) } else { rate };
        self.note_ceiling(now);
        self.drain(delay, round);
        self.cut = Some((now, round));
        self.rises_at = Some(now + round);
        true
    }

    /// A queue showed at what the link carries now.
    fn note_ceiling(&mut self, now: Instant) {
        self.note_rate(now);
        let before = self.ceiling.filter(|_| self.steady);
        let ceiling = before.map_or(self.carries, |(before, _)| {
            f64::midpoint(before, self.carries)
        });
        self.ceiling = Some((ceiling, now));
        self.step = FIRST_STEP;
    }

    /// Gives out less than the link carries until a queue is gone.
    fn drain(&mut self, delay: Duration, round: Duration) {
        let drain = delay.as_secs_f64() / (2.0 * round.as_secs_f64());
        self.given = self.carries * (GIVEN - drain).max(LEAST_GIVEN);
        self.cause = Cause::Queue;
    }

    /// No queue stands in the link.
    fn handle_clear(&mut self, rate: f64, delay: Duration, seen: &Seen, now: Instant) {
        if self.carries == 0.0 {
            return;
        }
        self.streak = None;
        if delay > self.clear() {
            self.ease(delay, seen, now);
            return;
        }
        self.eased = 0;
        let before = self.given;
        self.given = GIVEN * self.carries;
        self.cause = Cause::Clear;
        let early = self.rises_at.is_some_and(|at| now < at);
        if !seen.held || rate < USED * before || early {
            return;
        }
        let near = self.is_near(now);
        self.cause = Cause::Rises;
        self.carries *= 1.0 + self.step;
        self.given = GIVEN * self.carries;
        if self
            .ceiling
            .is_some_and(|(ceiling, _)| self.given > OTHER * ceiling)
        {
            self.exceed(now);
        }
        if near {
            self.step = FIRST_STEP;
            self.rises_at = Some(now + NEAR_EVERY);
        } else {
            self.step = (1.33 * self.step).min(LAST_STEP);
            self.rises_at = Some(now + seen.rtt);
        }
    }

    /// Whether the rate is about the one at which a queue showed of late, of a steady link.
    fn is_near(&self, now: Instant) -> bool {
        self.ceiling.is_some_and(|(ceiling, at)| {
            let recent = now.saturating_duration_since(at) < NEAR_FOR;
            self.steady
                && recent
                && !self.lifted
                && (NEAR * ceiling..BEYOND * ceiling).contains(&self.given)
        })
    }

    /// A queue too short to be sure of: a step down, so that it does not stay.
    fn ease(&mut self, delay: Duration, seen: &Seen, now: Instant) {
        if (seen.in_flight as f64) < self.least_queue() || self.rests(now) {
            return;
        }
        let near = self.is_near(now);
        self.lifted = false;
        self.eased += 1;
        if self.eased > VAIN_EASES {
            self.take_for_own(delay);
            self.eased = 0;
            return;
        }
        // Such a queue shows at about what the link carries.
        let given = self.given;
        self.ceiling = self.ceiling.map(|(ceiling, at)| {
            let at = if near { now } else { at };
            (f64::midpoint(ceiling, ceiling.max(given)), at)
        });
        self.carries *= 1.0 - FIRST_STEP;
        self.given = GIVEN * self.carries;
        self.cut = Some((now, seen.rtt));
        let pause = if self.steady { NEAR_EVERY } else { seen.rtt };
        self.rises_at = Some(now + pause);
        self.cause = Cause::Clear;
    }

    /// So much delay is the path's.
    fn take_for_own(&mut self, delay: Duration) {
        self.own += delay;
        self.noise.forget();
    }

    /// What of the delay that comes and goes may be left.
    fn unsure(&self) -> Duration {
        if self.moves() {
            return Duration::ZERO;
        }
        self.noise.rest()
    }

    /// Whether the link is known for a rate that moves.
    fn moves(&self) -> bool {
        self.carries > 0.0 && !self.steady
    }

    /// Round trips that are longer by this much wait in a queue of the link.
    fn late(&self) -> Duration {
        LATE + self.slow() + self.unsure()
    }

    /// Those that are not longer by this wait in none.
    fn clear(&self) -> Duration {
        CLEAR + self.slow() + self.unsure()
    }

    /// By how much round trips are longer on a link of this rate although no queue stands there.
    fn slow(&self) -> Duration {
        let packet = self.packet();
        packet + packet.min(ACK_DELAY)
    }

    /// How long the link takes for a packet; nothing while that is not known.
    fn packet(&self) -> Duration {
        let seconds = if self.given > 0.0 {
            PACKET / self.given.max(LEAST)
        } else {
            0.0
        };
        Duration::from_secs_f64(seconds)
    }

    /// Whether the last step down has not shown yet.
    fn rests(&self, now: Instant) -> bool {
        self.cut
            .is_some_and(|(at, span)| now.saturating_duration_since(at) < span)
    }
}

/// In bytes per second, what arrived since then.
fn rate_since((since, before): (Instant, u64), arrived: u64, now: Instant) -> f64 {
    let seconds = now.saturating_duration_since(since).as_secs_f64();
    arrived.saturating_sub(before) as f64 / seconds.max(1e-3)
}

#[cfg(test)]
mod tests;
