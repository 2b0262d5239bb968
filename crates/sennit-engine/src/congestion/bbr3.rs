//! BBR, version 3: sends at the rate that the path delivers, and keeps little more in flight than
//! it holds. Everything is a cycle of gains around the [`Model`]:
//!
//! | mode | pacing gain | window gain | ends |
//! | --- | --- | --- | --- |
//! | startup | 2.77 | 3 | when the rate no longer grows, a queue stands, or much is lost |
//! | drain | 0.5 | 2 | when the queue that startup made is gone |
//! | settle | 1 | 2 | after some round trips, if startup ended because packets were late |
//! | regrow | 1.5 | 3 | when the rate no longer grows |
//! | cruise | 1, or 0.95 while a queue stands | 2 | after some round trips |
//! | up | 1.25 | 2.25 | when that much is in flight, or too much is lost |
//! | down | 0.75 | 2 | when the queue is gone |
//! | probe rtt | 1 | 0.5 | after 200 ms |
//!
//! It probes the round trip if the least was not seen for 10 s, or cannot be the least any more.
//!
//! Gains and limits are those of draft-ietf-ccwg-bbr-06; the cycle of eight round trips is that of
//! draft-cardwell-iccrg-bbr-congestion-control-00 §4.3.4, because links of ours change their rate
//! within a second and a version that probes every few seconds is late.
//!
//! Startup may end too early, and a link may become faster than it was: regrow goes on where the
//! cycle would take a round of probing for every quarter. It follows a probe that brought more and
//! left no queue. And it follows settling, on links that jitter and keep the order: there a burst
//! is as late as its latest packet, which looks like a queue. A queue is gone after draining, such
//! a link's delay is not (RFC 9406 §4.2 goes on more slowly for the same reason).
//!
//! A round that loses more than the path's [own loss](super::loss) bounds what may be in flight,
//! until probing finds room again.

mod loss;

use std::time::{Duration, Instant};

use super::{
    Ack, Acked, CongestionEvent, Control, loss::Pace, model::Model, probe_rtt::ProbeRtt,
    round::Round,
};

/// Fast enough to double the rate every round trip (draft §2.4).
const STARTUP_GAIN: f64 = 2.77;
/// What is inside doubles its rate every round trip too, and a window of twice the last one would
/// hold it up just when it looks for delay (RFC 9406).
const STARTUP_WINDOW_GAIN: f64 = 3.0;
const DRAIN_GAIN: f64 = 0.5;
const REGROW_GAIN: f64 = 1.5;
/// A rate that rises by this factor in a round grows (docs/decisions/0005).
const REGROWTH: f64 = 1.15;
/// What startup and drain did is not seen any more.
const SETTLE_ROUNDS: u64 = 3;
/// Rounds after which what was sent before it regrew is not seen any more.
const REGROW_ROUNDS: u64 = 2;
const UP_GAIN: f64 = 1.25;
const DOWN_GAIN: f64 = 0.75;
/// The greatest of many samples is more than the path delivers when a busy host makes them noisy.
/// What is too much stands in the path's queue, and is taken back there.
const STANDING_GAIN: f64 = 0.95;
const WINDOW_GAIN: f64 = 2.0;
const UP_WINDOW_GAIN: f64 = 2.25;
const PROBE_RTT_GAIN: f64 = 0.5;
/// Rounds of cruising between probes.
const CRUISE_ROUNDS: u32 = 6;
/// Up lasts so many phases at most, if acknowledgements come in heaps and hide what is in flight.
const UP_PHASES: u32 = 3;
/// Down lasts until the queue is gone, or so many phases, if something else keeps it full.
const DOWN_PHASES: u32 = 5;

/// What may be in flight makes no queue longer than this times the path; this much more is no
/// jitter, no host that is late, and no acknowledgement that waits for another packet.
const EXPLAINED: f64 = 2.5;
const MIN_DOUBT: Duration = Duration::from_millis(30);
/// A path is another if it is longer by this factor.
const LONGER: f64 = 1.5;
/// Round trips so much longer than the whole window takes at the path's rate, in so many rounds in
/// a row, are no jitter: less comes back in each, and so less is sent in the next.
const LEAST_DOUBT: Duration = Duration::from_millis(5);
const DOUBT_ROUNDS: u32 = 4;
/// A doubt is not raised again in this time: a rate that is gone looks the same at first, and of
/// several flows in one queue none can empty it alone. But one that was right makes a single other
/// one easier: the two directions of a path become longer one after the other.
const DOUBT_LASTS: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Settle {
        until_round: u64,
    },
    Regrow {
        from: u64,
        until_round: u64,
    },
    Cruise {
        until_round: u64,
    },
    /// `from`: the rate before the probe.
    Up {
        since: Instant,
        from: u64,
    },
    /// `from`: as before, or more than any rate if the probe cost packets.
    Down {
        since: Instant,
        from: u64,
    },
    ProbeRtt(ProbeRtt),
}

/// One path's model and where it is in the cycle.
#[derive(Clone, Debug)]
pub(super) struct Bbr3 {
    model: Model,
    mode: Mode,
    /// Upper bound of what may be in flight, found by losing more.
    bound: Option<u64>,
    /// When the least round trip was last doubted, and whether it may be again before that is over.
    doubted: Option<(Instant, bool)>,
    /// Rounds in a row of which even the shortest round trip is longer than the window makes it.
    long_rounds: u32,
    /// The round trip, if it turned out to be a longer one.
    longer: Option<Duration>,
    window: u64,
}

impl Bbr3 {
    pub(super) fn new(mtu: u16, now: Instant) -> Self {
        let model = Model::new(mtu, now);
        Self {
            mode: Mode::Startup,
            bound: None,
            doubted: None,
            long_rounds: 0,
            longer: None,
            window: model.initial_window(),
            model,
        }
    }

    /// Takes over a path that is known.
    pub(super) fn resume(model: Model, window: u64) -> Self {
        Self {
            mode: if model.is_full() {
                Mode::Drain
            } else {
                Mode::Startup
            },
            bound: None,
            doubted: None,
            long_rounds: 0,
            longer: None,
            window,
            model: model.making_up(0.0),
        }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Empties the path for a moment to see its least round trip, as it does by itself at times.
    pub(super) fn probe_rtt(&mut self) {
        if self.model.is_full() {
            self.mode = Mode::ProbeRtt(ProbeRtt::NEW);
        }
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (STARTUP_GAIN, STARTUP_WINDOW_GAIN),
            Mode::Drain => (DRAIN_GAIN, WINDOW_GAIN),
            Mode::Regrow { .. } => (REGROW_GAIN, STARTUP_WINDOW_GAIN),
            Mode::Settle { .. } | Mode::Cruise { .. } if self.model.queue_stands() => {
                (STANDING_GAIN, WINDOW_GAIN)
            }
            Mode::Settle { .. } | Mode::Cruise { .. } => (1.0, WINDOW_GAIN),
            Mode::Up { .. } => (UP_GAIN, UP_WINDOW_GAIN),
            Mode::Down { .. } => (DOWN_GAIN, WINDOW_GAIN),
            Mode::ProbeRtt(_) => (1.0, PROBE_RTT_GAIN),
        }
    }

    fn pace(&self) -> Pace {
        match self.mode {
            Mode::Cruise { .. } => Pace::Even,
            Mode::Up { .. } => Pace::Faster,
            Mode::Startup
            | Mode::Drain
            | Mode::Settle { .. }
            | Mode::Regrow { .. }
            | Mode::Down { .. }
            | Mode::ProbeRtt(_) => Pace::Other,
        }
    }

    // ---- the cycle -----------------------------------------------------------------------------

    fn advance(&mut self, in_flight: u64, round_ended: bool, now: Instant) {
        let phase = self.model.phase();
        let lasted =
            |since: Instant, phases: u32| now.saturating_duration_since(since) >= phases * phase;
        let fits = in_flight <= self.model.without_queue();
        let rounds = self.model.rounds();
        let is_at = |until_round: u64| round_ended && rounds >= until_round;
        match self.mode {
            Mode::Startup if self.model.is_full() => self.mode = Mode::Drain,
            Mode::Drain if fits && self.model.take_doubt() => {
                let until_round = rounds + SETTLE_ROUNDS;
                self.mode = Mode::Settle { until_round };
            }
            Mode::Drain if fits => self.cruise(),
            Mode::Settle { until_round } if is_at(until_round) && self.model.queue_stands() => {
                self.regrow(REGROW_ROUNDS);
            }
            Mode::Settle { until_round } if is_at(until_round) => self.probe(now),
            Mode::Regrow { from, until_round }
                if is_at(until_round) && !self.model.is_limited() =>
            {
                if self.grew(from) {
                    self.regrow(1);
                } else {
                    self.mode = Mode::Down {
                        since: now,
                        from: self.model.rate(),
                    };
                }
            }
            Mode::Cruise { until_round } if is_at(until_round) => self.probe(now),
            Mode::Up { since, from }
                if lasted(since, 1)
                    && (self.model.is_filled(UP_GAIN, in_flight, self.window)
                        || lasted(since, UP_PHASES)) =>
            {
                self.raise_bound();
                self.mode = Mode::Down { since: now, from };
            }
            Mode::Down { since, from } if fits || lasted(since, DOWN_PHASES) => self.end_down(from),
            Mode::ProbeRtt(probe) => self.go_on_probing_rtt(probe, in_flight, now),
            Mode::Startup
            | Mode::Drain
            | Mode::Settle { .. }
            | Mode::Regrow { .. }
            | Mode::Cruise { .. }
            | Mode::Up { .. }
            | Mode::Down { .. } => {}
        }
        let probes = matches!(self.mode, Mode::ProbeRtt(_));
        if round_ended && self.model.is_stale(now) && self.model.is_full() && !probes {
            self.mode = Mode::ProbeRtt(ProbeRtt::NEW);
        }
    }

    /// The queue that a probe made is gone. Where it brought more and left none there may be still
    /// more.
    fn end_down(&mut self, from: u64) {
        if self.grew(from) && !self.model.queue_stands() && !self.model.is_limited() {
            self.regrow(1);
        } else {
            self.cruise();
        }
    }

    fn go_on_probing_rtt(&mut self, mut probe: ProbeRtt, in_flight: u64, now: Instant) {
        match probe.advance(self.model.min_rtt(), in_flight, self.window, now) {
            Some(least) => {
                self.end_probe_rtt(probe, least, now);
                self.cruise();
            }
            None => self.mode = Mode::ProbeRtt(probe),
        }
    }

    /// Little was in flight for a moment, and this was the least round trip.
    fn end_probe_rtt(&mut self, probe: ProbeRtt, least: Duration, now: Instant) {
        let tells = probe.tells(least);
        if probe.doubts() {
            let is_first = self.doubted_of_late(now).is_none();
            self.doubted = Some((now, tells && is_first));
        }
        if !tells {
            return;
        }
        if least > self.model.min_rtt().mul_f64(LONGER) {
            // What was too much for a shorter path need not be for this one.
            self.bound = None;
            self.longer = Some(least);
        }
        self.model.set_min_rtt(least, now);
    }

    /// A round is over of which even the shortest round trip is longer than a queue of ours makes
    /// it. The path is longer than it was, or its rate is gone. Were the former taken for the
    /// latter, each round would bring less than the last.
    fn doubt_rtt(&mut self, round: &Round, now: Instant) {
        let probes = matches!(self.mode, Mode::ProbeRtt(_));
        let (least, held_up) = (self.model.min_rtt(), self.held_up());
        let exceeds = |part, more| round.shortest > least.mul_f64(part) + held_up + more;
        let whole = Duration::from_secs_f64(self.window as f64 / self.model.rate().max(1) as f64);
        let is_long = exceeds(WINDOW_GAIN, LEAST_DOUBT) && round.shortest > whole;
        self.long_rounds = if is_long && !probes {
            self.long_rounds + 1
        } else {
            0
        };
        let most = match self.doubted_of_late(now) {
            Some(false) => return,
            Some(true) => LONGER,
            None => EXPLAINED,
        };
        let tells = !self.model.is_limited() || self.model.is_telling(round);
        let unexplained = exceeds(most, MIN_DOUBT) || self.long_rounds >= DOUBT_ROUNDS;
        if self.model.is_full() && tells && !probes && unexplained {
            self.mode = Mode::ProbeRtt(ProbeRtt::of(round.shortest));
        }
    }

    /// Whether a doubt of late lets another one follow.
    fn doubted_of_late(&self, now: Instant) -> Option<bool> {
        let (at, again) = self.doubted?;
        (now.saturating_duration_since(at) < DOUBT_LASTS).then_some(again)
    }

    /// Goes on growing, and sees after some `rounds` whether it did.
    fn regrow(&mut self, rounds: u64) {
        self.mode = Mode::Regrow {
            from: self.model.rate(),
            until_round: self.model.rounds() + rounds,
        };
    }

    fn grew(&self, from: u64) -> bool {
        self.model.rate() as f64 >= REGROWTH * from as f64
    }

    fn probe(&mut self, now: Instant) {
        self.mode = Mode::Up {
            since: now,
            from: self.model.rate(),
        };
    }

    fn cruise(&mut self) {
        // Tunnels of one hub must not probe in step.
        let jitter = self.model.dice() % 3;
        self.mode = Mode::Cruise {
            until_round: self.model.rounds() + u64::from(CRUISE_ROUNDS) + jitter,
        };
    }

    fn set_window(&mut self, acked: &Acked) {
        let (_, gain) = self.gains();
        self.window = self.model.window(gain, self.window, acked.bytes);
        // Never below what fits without a queue: less would only make the rate look smaller.
        if let Some(bound) = self.bound {
            let fits = self.model.without_queue() + self.model.slack();
            self.window = self.window.min(bound.max(fits));
        }
        self.window = self.window.max(self.model.least_window());
    }

    fn log(&self, before: Mode, in_flight: u64) {
        tracing::debug!(
            ?before,
            mode = ?self.mode,
            rate = self.model.rate(),
            min_rtt = ?self.model.min_rtt(),
            train = self.model.train(),
            window = self.window,
            bound = self.bound,
            in_flight,
            queue_stands = self.model.queue_stands(),
            "phase"
        );
    }
}

impl Control for Bbr3 {
    fn on_restart(&mut self, now: Instant) {
        self.model.on_restart(now);
        if matches!(self.mode, Mode::Up { .. }) {
            self.cruise();
        }
    }

    fn on_ack(&mut self, ack: &Ack, now: Instant) {
        let Some(acked) = ack.acked else { return };
        let before = self.mode;
        if let Mode::ProbeRtt(probe) = &mut self.mode {
            probe.on_rtt(acked.rtt, now);
        }
        let ended = self.model.update(&acked, now);
        if let Some(round) = &ended {
            self.end_round(round, ack.in_flight, now);
            self.doubt_rtt(round, now);
        }
        self.advance(ack.in_flight, ended.is_some(), now);
        self.set_window(&acked);
        self.model.set_pace(self.pace(), now);
        if self.mode != before {
            self.log(before, ack.in_flight);
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _: Instant) {
        self.model.on_congestion(event);
    }

    fn on_route_change(&mut self) {
        self.model.forget_rtt();
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.model.set_mtu(mtu);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<u64> {
        let (gain, _) = self.gains();
        self.model.pacing_rate(gain, self.window)
    }

    fn delivery_rate(&self) -> Option<u64> {
        self.model.delivery_rate()
    }

    fn held_up(&self) -> Duration {
        self.model.held_up()
    }

    fn take_longer(&mut self) -> Option<Duration> {
        self.longer.take()
    }

    fn in_slow_start(&self) -> bool {
        self.mode == Mode::Startup
    }

    fn empties(&self) -> bool {
        matches!(self.mode, Mode::ProbeRtt(_))
    }

    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}
