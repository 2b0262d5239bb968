//! BBR: sends at the rate that the path delivers, and keeps little more in flight than it holds.
//!
//! The model of the path is two numbers: the greatest delivery rate of late, and the least round trip
//! of late. Their product is what fits into the path without a queue (the BDP). Everything else is a
//! cycle of gains around that model:
//!
//! | mode | pacing gain | window gain | ends |
//! | --- | --- | --- | --- |
//! | startup | 2.77 | 3 | when the rate no longer grows, a queue stands, or much is lost |
//! | drain | 0.5 | 2 | when the queue that startup made is gone |
//! | cruise | 1, or 0.95 while a queue stands | 2 | after some round trips |
//! | up | 1.25 | 2.25 | when that much is in flight, or too much is lost |
//! | down | 0.75 | 2 | when the queue is gone |
//! | probe rtt | 1 | 0.5 | after 200 ms, if the least round trip was not seen for 10 s |
//!
//! Gains and limits are those of draft-ietf-ccwg-bbr-06; the cycle of eight round trips is that of
//! draft-cardwell-iccrg-bbr-congestion-control-00 §4.3.4, because links of ours change their rate
//! within a second and a version that probes every few seconds is late.
//!
//! Under [`OnLoss::Yield`] a round that loses more than the path's own loss and [`LOSS_MARGIN`]
//! bounds what may be in flight, until probing finds room again. The path's own loss is that of
//! cruising rounds in which some round trip was close to the least: nothing can have overflowed.
//! Under [`OnLoss::Ignore`] such a round only ends startup or a probe.

use std::time::{Duration, Instant};

use super::{Ack, Acked, CongestionEvent, Control, WindowedMax};
use crate::transport::{ACK_DELAY, ACK_PACKETS};

/// Fast enough to double the rate every round trip (draft §2.4).
const STARTUP_GAIN: f64 = 2.77;
/// What is inside doubles its rate every round trip too, and a window of twice the last one would
/// hold it up just when it looks for delay (RFC 9406).
const STARTUP_WINDOW_GAIN: f64 = 3.0;
const DRAIN_GAIN: f64 = 0.5;
const UP_GAIN: f64 = 1.25;
const DOWN_GAIN: f64 = 0.75;
/// The greatest of many samples is more than the path delivers when a busy host makes them noisy.
/// What is too much stands in the path's queue, and is taken back there.
const STANDING_GAIN: f64 = 0.95;
/// A queue stands if even the shortest round trip of a round was longer than the least by this part
/// of it, and by a millisecond.
const STANDING: f64 = 1.0 / 16.0;
const WINDOW_GAIN: f64 = 2.0;
const UP_WINDOW_GAIN: f64 = 2.25;
const PROBE_RTT_GAIN: f64 = 0.5;
/// Sent this much below the rate, so that the queue never grows by rounding (draft §2.4).
const PACING_MARGIN: f64 = 0.99;
/// Rounds of cruising between probes.
const CRUISE_ROUNDS: u32 = 6;
/// The last so many of them are free of the probe's effects.
const SETTLED_ROUNDS: u64 = 4;
/// No phase is shorter: on a path of microseconds the host's own scheduling is what a round trip shows.
const MIN_PHASE: Duration = Duration::from_millis(5);
/// Up lasts so many phases at most, if acknowledgements come in heaps and hide what is in flight.
const UP_PHASES: u32 = 3;
/// Down lasts until the queue is gone, or so many phases, if something else keeps it full.
const DOWN_PHASES: u32 = 5;
/// The rate is the best of this many round trips,
const RATE_ROUNDS: u32 = 10;
/// and of at least this time, in which a busy host may fail to send.
const MIN_RATE_WINDOW: Duration = Duration::from_millis(500);
/// The least round trip is the least of this time (draft §2.13).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// Startup is over when the rate did not grow by a quarter in three rounds (draft §5.3.1.2).
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Or when every round trip of a round was longer than the least by an eighth of it, within these
/// limits (RFC 9406 §4.2), because then there is a queue, and it is about to overflow;
const LEAST_DELAYED: Duration = Duration::from_millis(4);
const MOST_DELAYED: Duration = Duration::from_millis(16);
/// if the round had so many packets that jitter cannot have held up all.
const TELLING_PACKETS: u64 = 20;
/// Loss above the path's own that means congestion (draft §2.7, "LossThresh"),
const LOSS_MARGIN: f64 = 0.02;
/// if so many packets were lost in the round (draft §5.3.1.3).
const LOSS_PACKETS: u64 = 6;
/// More than this is never taken for a path's own loss.
const MAX_OWN_LOSS: f64 = 0.15;
/// What is left of the bound after a loss (draft §2.7, "Beta").
const BETA: f64 = 0.7;
/// A round whose shortest round trip is within a tenth and a millisecond of the least met no queue.
const NO_QUEUE: f64 = 1.1;
/// So many standard deviations of a random loss more than expected are no news.
const DEVIATIONS: f64 = 2.5;
/// Weight of the past when a round's loss is averaged.
const LOSS_MEMORY: f64 = 15.0 / 16.0;
/// Packets that may be in flight before anything is known: three connections that start at the
/// initial window of their own (RFC 6928), each of which would take a queue for a full link.
const INITIAL_PACKETS: u64 = 30;
/// And at least, whatever is known.
const MIN_PACKETS: u64 = 4;
/// In startup the window leaves within this part of the round trip, or this time.
const STARTUP_BURSTS: u32 = 8;
const MIN_BURST: Duration = Duration::from_millis(1);
/// What the driver hands over in one go, as time at the pacing rate; twice that much is in flight
/// beyond the model, so that the window is never what makes a batch small.
const QUANTUM: Duration = Duration::from_millis(1);

/// What loss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLoss {
    Ignore,
    Yield,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Cruise {
        until_round: u64,
    },
    Up {
        since: Instant,
    },
    Down {
        since: Instant,
    },
    ProbeRtt {
        until: Option<Instant>,
        least: Duration,
    },
}

/// One path's model and where it is in the cycle.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    on_loss: OnLoss,
    mtu: u64,
    mode: Mode,
    rate: WindowedMax,
    min_rtt: Option<(Duration, Instant)>,
    /// The shortest round trip of this round.
    round_rtt: Duration,
    /// There was not enough to send, of late.
    limited: bool,
    /// Even that was long in the last round.
    queue_stands: bool,
    rounds: Rounds,
    full: FullPipe,
    /// How much more is acknowledged at a time than the rate accounts for (draft §5.5.9).
    aggregation: Aggregation,
    losses: Losses,
    /// Upper bound of what may be in flight, found by losing more.
    bound: Option<u64>,
    window: u64,
}

/// How a round was sent, which decides what its loss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// At the path's rate and without a queue: what was lost, the path loses by itself.
    Calm,
    /// Without a queue, but nothing is known yet: only what no path loses by itself is congestion.
    Blind,
    /// Faster than the path's rate, or into a queue.
    Probing,
}

/// Counts round trips by what was delivered.
#[derive(Clone, Debug, Default)]
struct Rounds {
    count: u64,
    ends_at: u64,
}

/// Whether startup has filled the path.
#[derive(Clone, Debug, Default)]
struct FullPipe {
    rate: u64,
    rounds: u32,
    reached: bool,
}

#[derive(Clone, Debug)]
struct Aggregation {
    since: Instant,
    acked: u64,
    extra: WindowedMax,
}

/// Loss of this round, and of the path when it has no queue.
#[derive(Clone, Debug, Default)]
struct Losses {
    lost: u64,
    delivered: u64,
    /// Sums over rounds without a queue, the past fading.
    own_lost: f64,
    own_total: f64,
}

impl Bbr {
    pub(super) fn new(on_loss: OnLoss, mtu: u16, now: Instant) -> Self {
        let mtu = u64::from(mtu);
        Self {
            on_loss,
            mtu,
            mode: Mode::Startup,
            rate: WindowedMax::new(MIN_RATE_WINDOW, now),
            min_rtt: None,
            round_rtt: Duration::MAX,
            limited: true,
            queue_stands: false,
            rounds: Rounds::default(),
            full: FullPipe::default(),
            aggregation: Aggregation {
                since: now,
                acked: 0,
                extra: WindowedMax::new(MIN_RATE_WINDOW, now),
            },
            losses: Losses::default(),
            bound: None,
            window: INITIAL_PACKETS * mtu,
        }
    }

    fn initial_window(&self) -> u64 {
        INITIAL_PACKETS * self.mtu
    }

    fn min_rtt(&self) -> Duration {
        self.min_rtt.map_or(Duration::ZERO, |(rtt, _)| rtt)
    }

    /// Bytes that fit into the path without a queue, times `gain`.
    fn bdp(&self, gain: f64) -> u64 {
        (gain * self.rate.get() as f64 * self.min_rtt().as_secs_f64()) as u64
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (STARTUP_GAIN, STARTUP_WINDOW_GAIN),
            Mode::Drain => (DRAIN_GAIN, WINDOW_GAIN),
            Mode::Cruise { .. } if self.queue_stands => (STANDING_GAIN, WINDOW_GAIN),
            Mode::Cruise { .. } => (1.0, WINDOW_GAIN),
            Mode::Up { .. } => (UP_GAIN, UP_WINDOW_GAIN),
            Mode::Down { .. } => (DOWN_GAIN, WINDOW_GAIN),
            Mode::ProbeRtt { .. } => (1.0, PROBE_RTT_GAIN),
        }
    }

    // ---- the model -----------------------------------------------------------------------------

    fn update_model(&mut self, acked: &Acked, in_flight: u64, now: Instant) -> bool {
        let round_ended = self.rounds.on_ack(acked);
        self.update_min_rtt(acked.rtt, now);
        // An interval shorter than the least round trip is an artefact of acknowledgements that were
        // held up (draft §5.5.4).
        let valid = acked.interval >= self.min_rtt() && !acked.interval.is_zero();
        if valid && (self.measures(acked) || acked.rate() >= self.rate.get()) {
            self.rate
                .set_window((RATE_ROUNDS * acked.rtt).max(MIN_RATE_WINDOW));
            self.rate.insert(acked.rate(), now);
        }
        self.limited = acked.limited;
        let window = self.window;
        self.aggregation
            .on_ack(acked.bytes, self.rate.get(), window, now);
        self.losses.delivered += acked.bytes;
        if round_ended {
            self.end_round(acked, in_flight, now);
        }
        self.full.reached |= self.is_delayed() && (!acked.limited || self.is_much(acked));
        round_ended
    }

    /// Every round trip of this round was long, and there were many.
    fn is_delayed(&self) -> bool {
        let delayed = (self.min_rtt() / 8).clamp(LEAST_DELAYED, MOST_DELAYED);
        self.losses.delivered >= TELLING_PACKETS * self.mtu
            && self.round_rtt >= self.min_rtt() + delayed
    }

    /// The path was busy all the time that the sample covers: the driver had more to send than it
    /// was allowed, or what was under way was more than fits and stood in the path's queue.
    fn measures(&self, acked: &Acked) -> bool {
        !acked.limited || self.queue_stands && self.is_much(acked)
    }

    /// More was under way than fits into the path.
    fn is_much(&self, acked: &Acked) -> bool {
        acked.total - acked.prior >= self.bdp(FULL_GROWTH).max(self.initial_window())
    }

    fn update_min_rtt(&mut self, rtt: Duration, now: Instant) {
        self.round_rtt = self.round_rtt.min(rtt);
        if self.min_rtt.is_none_or(|(least, _)| rtt <= least) {
            self.min_rtt = Some((rtt, now));
        }
        if let Mode::ProbeRtt { least, .. } = &mut self.mode {
            *least = rtt.min(*least);
        }
    }

    fn end_round(&mut self, acked: &Acked, in_flight: u64, now: Instant) {
        let shortest = std::mem::replace(&mut self.round_rtt, Duration::MAX);
        let standing = shortest.saturating_sub(self.min_rtt());
        self.queue_stands = standing
            > self
                .min_rtt()
                .mul_f64(STANDING)
                .max(Duration::from_millis(1));
        let queueless = shortest <= self.min_rtt().mul_f64(NO_QUEUE) + Duration::from_millis(1);
        let manner = match self.mode {
            // The first rounds still hear of what the probe before them did.
            Mode::Cruise { until_round } if self.rounds.count + SETTLED_ROUNDS < until_round => {
                Manner::Probing
            }
            Mode::Cruise { .. } if queueless => Manner::Calm,
            Mode::Startup if queueless => Manner::Blind,
            Mode::Startup | Mode::Drain | Mode::Cruise { .. } | Mode::ProbeRtt { .. } => {
                Manner::Probing
            }
            Mode::Up { .. } | Mode::Down { .. } => Manner::Probing,
        };
        let congested = self.losses.end_round(manner, self.mtu);
        if !self.full.reached && self.measures(acked) {
            self.full.end_round(self.rate.get());
        }
        if congested {
            self.yield_to_loss(in_flight, now);
        }
    }

    // ---- the cycle -----------------------------------------------------------------------------

    fn advance(&mut self, in_flight: u64, round_ended: bool, now: Instant) {
        let phase = self.min_rtt().max(MIN_PHASE);
        let over = |since: Instant| now.saturating_duration_since(since) >= phase;
        match self.mode {
            Mode::Startup if self.full.reached => self.mode = Mode::Drain,
            Mode::Drain if in_flight <= self.bdp(1.0) => self.cruise(),
            Mode::Cruise { until_round } if round_ended && self.rounds.count >= until_round => {
                self.mode = Mode::Up { since: now };
            }
            Mode::Up { since }
                if over(since)
                    && (self.is_full_up(in_flight)
                        || now.saturating_duration_since(since) >= UP_PHASES * phase) =>
            {
                self.raise_bound();
                self.mode = Mode::Down { since: now };
            }
            Mode::Down { since }
                if in_flight <= self.bdp(1.0)
                    || now.saturating_duration_since(since) >= DOWN_PHASES * phase =>
            {
                self.cruise();
            }
            Mode::ProbeRtt { until: None, .. } if in_flight <= self.window => {
                self.mode = Mode::ProbeRtt {
                    until: Some(now + PROBE_RTT_TIME.max(self.min_rtt())),
                    least: Duration::MAX,
                };
            }
            Mode::ProbeRtt {
                until: Some(until),
                least,
            } if now >= until && least < Duration::MAX => {
                self.min_rtt = Some((least, now));
                self.cruise();
            }
            Mode::Startup
            | Mode::Drain
            | Mode::Cruise { .. }
            | Mode::Up { .. }
            | Mode::Down { .. }
            | Mode::ProbeRtt { .. } => {}
        }
        let stale = self
            .min_rtt
            .is_some_and(|(_, at)| now.saturating_duration_since(at) > MIN_RTT_WINDOW);
        if stale && self.full.reached && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.mode = Mode::ProbeRtt {
                until: None,
                least: Duration::MAX,
            };
        }
    }

    /// Probing has put into the path what it may, or the driver has not that much to send.
    fn is_full_up(&self, in_flight: u64) -> bool {
        in_flight >= self.bdp(UP_GAIN)
            || in_flight + 2 * self.mtu >= self.window
            || in_flight < self.bdp(DOWN_GAIN)
    }

    fn cruise(&mut self) {
        // Tunnels of one hub must not probe in step.
        let jitter = u64::from(self.rounds.ends_at as u32 >> 10) % 3;
        self.mode = Mode::Cruise {
            until_round: self.rounds.count + u64::from(CRUISE_ROUNDS) + jitter,
        };
    }

    // ---- loss ----------------------------------------------------------------------------------

    /// The round lost more than is the path's own.
    fn yield_to_loss(&mut self, in_flight: u64, now: Instant) {
        match self.mode {
            Mode::Startup => self.full.reached = true,
            Mode::Up { .. } => self.mode = Mode::Down { since: now },
            Mode::Drain | Mode::Cruise { .. } | Mode::Down { .. } | Mode::ProbeRtt { .. } => {}
        }
        if self.on_loss == OnLoss::Yield {
            let fits = self.bdp(1.0).max(in_flight);
            let most = self.bound.unwrap_or(self.window).min(fits);
            self.bound = Some((BETA * most as f64) as u64);
        }
    }

    /// A probe went well: there may be room for more than was thought.
    fn raise_bound(&mut self) {
        self.bound = self
            .bound
            .map(|bound| (UP_GAIN * bound.max(self.bdp(1.0)) as f64) as u64)
            .filter(|&bound| bound < self.bdp(UP_WINDOW_GAIN));
    }

    fn log(&self, before: Mode, in_flight: u64) {
        tracing::debug!(
            ?before,
            mode = ?self.mode,
            rate = self.rate.get(),
            min_rtt = ?self.min_rtt(),
            window = self.window,
            bound = self.bound,
            in_flight,
            queue_stands = self.queue_stands,
            "phase"
        );
    }

    fn set_window(&mut self, acked: u64) {
        let (_, gain) = self.gains();
        let least = MIN_PACKETS * self.mtu;
        let rate = self.rate.get();
        if rate == 0 || self.min_rtt.is_none() {
            return;
        }
        let quantum = (rate as f64 * QUANTUM.as_secs_f64()) as u64;
        // What the far end has and does not tell of yet is in flight too. Without room for it, a path of
        // few packets waits for the next acknowledgement, and that wait lowers its rate further.
        let untold = (rate as f64 * ACK_DELAY.as_secs_f64()) as u64;
        let untold = untold.min(u64::from(ACK_PACKETS) * self.mtu);
        let slack = 2 * quantum.max(2 * self.mtu) + untold;
        let target = self.bdp(gain) + slack + self.aggregation.extra.get();
        // Before the path is full, the model lags behind.
        self.window = if self.full.reached {
            target
        } else {
            target.max(self.window + if target > self.window { acked } else { 0 })
        };
        // Never below what fits without a queue: less would only make the rate look smaller.
        if let Some(bound) = self.bound {
            self.window = self.window.min(bound.max(self.bdp(1.0) + slack));
        }
        self.window = self.window.max(least);
    }
}

impl Control for Bbr {
    fn on_sent(&mut self, _: u64, _: u16, _: Instant) {}

    fn on_ack(&mut self, ack: &Ack, now: Instant) {
        let Some(acked) = ack.acked else { return };
        let before = self.mode;
        let round_ended = self.update_model(&acked, ack.in_flight, now);
        self.advance(ack.in_flight, round_ended, now);
        self.set_window(acked.bytes);
        if self.mode != before {
            self.log(before, ack.in_flight);
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _: Instant) {
        self.losses.lost += event.lost;
        if event.marked {
            // A mark speaks for the packets of its round (RFC 3168 §6.1.2).
            self.losses.lost += LOSS_PACKETS * self.mtu;
        }
    }

    fn on_route_change(&mut self) {
        self.min_rtt = None;
        self.round_rtt = Duration::MAX;
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<u64> {
        let rate = self.delivery_rate()?;
        let (gain, _) = self.gains();
        let paced = PACING_MARGIN * gain * rate as f64;
        if self.full.reached || !self.limited {
            return Some(paced as u64);
        }
        // So far the rate says what came and not what fits. What starts inside sends in bursts, and
        // would take a queue here for a full link (RFC 9406): the window may leave at once.
        let soon = (self.min_rtt() / STARTUP_BURSTS).max(MIN_BURST);
        let burst = self.window as f64 / soon.as_secs_f64();
        Some(paced.max(burst) as u64)
    }

    fn delivery_rate(&self) -> Option<u64> {
        Some(self.rate.get()).filter(|&rate| rate > 0)
    }

    fn in_slow_start(&self) -> bool {
        self.mode == Mode::Startup
    }

    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}

impl Rounds {
    /// A round ends with the first packet that left after the last one ended.
    fn on_ack(&mut self, acked: &Acked) -> bool {
        let ended = acked.prior >= self.ends_at;
        if ended {
            self.count += 1;
            self.ends_at = acked.total;
        }
        ended
    }
}

impl FullPipe {
    fn end_round(&mut self, rate: u64) {
        if rate as f64 >= FULL_GROWTH * self.rate as f64 {
            self.rate = rate;
            self.rounds = 0;
            return;
        }
        self.rounds += 1;
        self.reached = self.rounds >= FULL_ROUNDS;
    }
}

impl Aggregation {
    fn on_ack(&mut self, bytes: u64, rate: u64, window: u64, now: Instant) {
        let expected = now.saturating_duration_since(self.since).as_secs_f64() * rate as f64;
        self.acked += bytes;
        if self.acked as f64 <= expected {
            (self.since, self.acked) = (now, 0);
            return;
        }
        let extra = (self.acked as f64 - expected) as u64;
        self.extra.insert(extra.min(window / 2), now);
    }
}

impl Losses {
    /// Whether the round lost more than the path does when it is not full.
    fn end_round(&mut self, manner: Manner, mtu: u64) -> bool {
        let (lost, total) = (self.lost as f64, (self.lost + self.delivered) as f64);
        (self.lost, self.delivered) = (0, 0);
        if manner == Manner::Calm {
            self.own_lost = LOSS_MEMORY * self.own_lost + lost;
            self.own_total = LOSS_MEMORY * self.own_total + total;
        }
        let own = match manner {
            Manner::Calm | Manner::Blind => MAX_OWN_LOSS,
            Manner::Probing => (self.own_lost / self.own_total.max(1.0)).min(MAX_OWN_LOSS),
        };
        let packet = mtu as f64;
        let chance = DEVIATIONS * (own * total * packet).sqrt();
        lost >= LOSS_PACKETS as f64 * packet && lost > (own + LOSS_MARGIN) * total + chance
    }
}

#[cfg(test)]
mod tests;
