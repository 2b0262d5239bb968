//! What both versions of BBR know of a path.
//!
//! The model is two numbers: the greatest delivery rate of late, and the least round trip of late.
//! Their product is what fits into the path without a queue (the BDP). Beside them it keeps what
//! the versions steer by: rounds, whether the path was ever full, whether a queue stands although a
//! round is over, and how much is acknowledged at a time.

mod allowance;

use std::time::{Duration, Instant};

use super::{
    Acked, CongestionEvent,
    aggregation::Aggregation,
    loss::{LEAST_PACKETS, LossByPace, Manner, OwnLoss, Pace, StartupLoss},
    round::{Round, Rounds},
    windowed::WindowedMax,
};

/// A queue stands if even the shortest round trip of a round was longer than the least by this part
/// of it, and by a millisecond.
const STANDING: f64 = 1.0 / 16.0;
/// A round whose shortest round trip is within a tenth and a millisecond of the least met no queue.
const NO_QUEUE: f64 = 1.1;
const TOLERANCE: Duration = Duration::from_millis(1);
/// No phase is shorter: on a path of microseconds the host's own scheduling is what a round trip
/// shows.
const MIN_PHASE: Duration = Duration::from_millis(5);
/// A phase of more than the path's rate is over when less than this part of what fits is in flight:
/// the driver has not that much to send.
const UNFILLED: f64 = 0.75;
/// The rate is the best of this many round trips.
const RATE_ROUNDS: u32 = 10;
/// The rate is the best of at least this time, in which a busy host may fail to send.
const MIN_RATE_WINDOW: Duration = Duration::from_millis(500);
/// The least round trip is the least of this time (draft §2.13).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// A path is thin with less than this part of what fits in flight, as while the least round trip is
/// measured.
const THIN: f64 = 0.5;
/// Startup is over when the rate did not grow by a quarter in three rounds (draft §5.3.1.2).
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Startup is also over when every round trip of a round was longer than the shortest of the round
/// before by an eighth of the least, but at least by this (RFC 9406 §4.2): there is a queue then,
/// and it is about to overflow (docs/decisions/0005).
const LEAST_DELAYED: Duration = Duration::from_millis(4);
/// A round that is later than the one before by this is late, whatever the least round trip.
const MOST_DELAYED: Duration = Duration::from_millis(16);
/// Packets that both rounds must have, so that jitter cannot have held up all of one.
const TELLING_PACKETS: u64 = 20;
/// On a narrow path that is a long queue; so many times what fits is one as well, unless hosts are
/// slower than the path ([`MIN_PHASE`]).
const CROWDED: f64 = 3.0;

/// What is acknowledged in one go counts up to so much time: no host acts more seldom. It is no
/// part of the window, because that is small for want of it (docs/decisions/0016).
const MOST_HELD: Duration = Duration::from_millis(64);

/// One path, as its acknowledgements show it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    mtu: u64,
    rate: WindowedMax,
    /// The greatest rate at which anything arrived of late, however little there was to send: the
    /// path is no slower, even if the first sample after a long time is.
    arrived: WindowedMax,
    min_rtt: Option<(Duration, Instant)>,
    /// The greatest rate at which packets arrived that had left at once; 0 if there were none.
    train: u64,
    rounds: Rounds,
    /// Of the round that is under way.
    round: Round,
    /// The shortest round trip of the last round with packets enough to tell.
    shortest_before: Duration,
    /// There was not enough to send, of late.
    limited: bool,
    /// Bytes that have arrived so far.
    delivered: u64,
    /// Even the shortest round trip of the last round was long.
    queue_stands: bool,
    full: FullPipe,
    aggregation: Aggregation,
    own_loss: OwnLoss,
    startup_loss: StartupLoss,
    by_pace: LossByPace,
    /// Up to this part, what is lost whatever is sent is sent in addition.
    made_up: f64,
}

/// Whether startup has filled the path.
#[derive(Clone, Debug, Default)]
struct FullPipe {
    rate: u64,
    rounds: u32,
    reached: bool,
    /// It is for delay that it counts as filled.
    by_delay: bool,
}

impl Model {
    pub(super) fn new(mtu: u16, now: Instant) -> Self {
        Self {
            mtu: u64::from(mtu),
            rate: WindowedMax::new(MIN_RATE_WINDOW, now),
            arrived: WindowedMax::new(MIN_RATE_WINDOW, now),
            min_rtt: None,
            train: 0,
            rounds: Rounds::default(),
            round: Round::NEW,
            shortest_before: Duration::ZERO,
            limited: true,
            delivered: 0,
            queue_stands: false,
            full: FullPipe::default(),
            aggregation: Aggregation::new(now),
            own_loss: OwnLoss::default(),
            startup_loss: StartupLoss::default(),
            by_pace: LossByPace::default(),
            made_up: 0.0,
        }
    }

    /// Up to this part of it (0 to 1), loss that comes whatever is sent is made up for.
    pub(super) fn making_up(mut self, made_up: f64) -> Self {
        self.made_up = made_up;
        self
    }

    // ---- what is known -------------------------------------------------------------------------

    /// Bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rate.get().max(self.arrived.get())
    }

    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt.map_or(Duration::ZERO, |(rtt, _)| rtt)
    }

    /// Bytes per second that the path takes, some of which it loses. While a queue stands that was
    /// more than it takes: the greatest of samples whose loss differs by chance is of one that lost
    /// little.
    fn takes(&self) -> f64 {
        let lost = if self.queue_stands {
            0.0
        } else {
            self.unmoved_loss().min(self.made_up)
        };
        self.rate() as f64 / (1.0 - lost)
    }

    /// Bytes that fit into the path without a queue, times `gain`.
    pub(super) fn bdp(&self, gain: f64) -> u64 {
        (gain * self.takes() * self.min_rtt().as_secs_f64()) as u64
    }

    /// Bytes in flight that are no sign of a queue: never less than four packets, and what
    /// acknowledgements that are held up do not tell of.
    pub(super) fn without_queue(&self) -> u64 {
        self.bdp(1.0).max(self.held()).max(self.least_window())
    }

    /// The part of the packets that the path loses whatever it is sent, 0 to 1.
    pub(super) fn unmoved_loss(&self) -> f64 {
        self.by_pace.unmoved()
    }

    /// Rounds so far.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds.count
    }

    /// A number that differs between tunnels, because no two of them deliver the same.
    pub(super) fn dice(&self) -> u64 {
        u64::from(self.rounds.ends_at as u32 >> 10)
    }

    /// Bytes per second at which packets arrive that left at once, or 0.
    pub(super) fn train(&self) -> u64 {
        self.train
    }

    pub(super) fn mtu(&self) -> u64 {
        self.mtu
    }

    pub(super) fn queue_stands(&self) -> bool {
        self.queue_stands
    }

    /// Whether the path was filled once.
    pub(super) fn is_full(&self) -> bool {
        self.full.reached
    }

    /// There was not enough to send, of late.
    pub(super) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether it was delay that ended startup, which may have been jitter; true once.
    pub(super) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.full.by_delay)
    }

    /// How long a phase of a cycle lasts.
    pub(super) fn phase(&self) -> Duration {
        self.min_rtt().max(MIN_PHASE)
    }

    /// Probing with `gain` has put into the path what it may, or the driver has not that much to
    /// send.
    pub(super) fn is_filled(&self, gain: f64, in_flight: u64, window: u64) -> bool {
        in_flight >= self.bdp(gain)
            || in_flight + 2 * self.mtu >= window
            || in_flight < self.bdp(UNFILLED)
    }

    /// The least round trip was not seen for so long that it may be another by now.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.min_rtt
            .is_some_and(|(_, at)| now.saturating_duration_since(at) > MIN_RTT_WINDOW)
    }

    // ---- what is learned -----------------------------------------------------------------------

    /// Takes in what a batch says; returns the round if it ended one.
    pub(super) fn update(&mut self, acked: &Acked, now: Instant) -> Option<Round> {
        let round_ended = self.rounds.on_ack(acked);
        self.update_min_rtt(acked.rtt, now);
        // An interval shorter than the least round trip is an artefact of acknowledgements that
        // were held up (draft §5.5.4).
        let valid = acked.interval >= self.min_rtt() && !acked.interval.is_zero();
        if valid {
            self.take_sample(acked, now);
        }
        self.limited = acked.limited;
        self.delivered = acked.total;
        self.train = self.train.max(acked.train);
        self.aggregation
            .on_ack(acked.bytes, self.rate(), self.sent_in(MOST_HELD), now);
        self.round.delivered += acked.bytes;
        if let Some(sent) = now.checked_sub(acked.rtt) {
            self.by_pace.count(self.packets(acked.bytes), false, sent);
        }
        let ended = round_ended.then(|| self.end_round(acked, now));
        let delayed = self.is_delayed() && (!acked.limited || self.is_much(acked));
        let crowded = self.is_crowded() && !acked.limited;
        if !self.full.reached && (delayed || crowded) {
            self.full.reached = true;
            self.full.by_delay = true;
        }
        ended
    }

    fn take_sample(&mut self, acked: &Acked, now: Instant) {
        let window = (RATE_ROUNDS * acked.rtt).max(MIN_RATE_WINDOW);
        self.arrived.set_window(window);
        self.arrived.insert(acked.rate(), now);
        if self.measures(acked) || acked.rate() >= self.rate() {
            self.rate.set_window(window);
            self.rate.insert(acked.rate(), now);
        }
    }

    pub(super) fn on_congestion(&mut self, event: &CongestionEvent) {
        self.round.lost += event.lost;
        self.by_pace
            .count(self.packets(event.lost), true, event.sent);
        if event.marked {
            // A mark speaks for the packets of its round (RFC 3168 §6.1.2).
            self.round.marked += LEAST_PACKETS * self.mtu;
        }
    }

    /// Whether the round lost more than the path does by itself.
    pub(super) fn is_congested(&mut self, round: &Round, manner: Manner) -> bool {
        self.own_loss.is_exceeded(round, manner, self.mtu)
    }

    /// Ends startup if the round shows that it loses more than the path does by itself; whether it
    /// does.
    pub(super) fn startup_overflows(&mut self, round: &Round) -> bool {
        let queue = round.longest.saturating_sub(self.min_rtt());
        let overflows = self.startup_loss.overflows(round, queue, self.mtu);
        self.full.reached |= overflows;
        overflows
    }

    /// What leaves from now on leaves at this pace; if it is even, only as long as no queue stands.
    pub(super) fn set_pace(&mut self, pace: Pace, now: Instant) {
        let pace = match pace {
            Pace::Even if self.queue_stands => Pace::Other,
            Pace::Even | Pace::Faster | Pace::Other => pace,
        };
        self.by_pace.set_pace(pace, now);
    }

    fn packets(&self, bytes: u64) -> f64 {
        bytes as f64 / self.mtu as f64
    }

    /// A packet leaves that finds the path empty: what was acknowledged before says nothing of how
    /// much is at a time (draft §5.4.1).
    pub(super) fn on_restart(&mut self, now: Instant) {
        self.aggregation.restart(now);
    }

    pub(super) fn set_full(&mut self) {
        self.full.reached = true;
    }

    pub(super) fn set_min_rtt(&mut self, rtt: Duration, now: Instant) {
        self.min_rtt = Some((rtt, now));
    }

    /// The round trip is another from now on.
    pub(super) fn forget_rtt(&mut self) {
        self.min_rtt = None;
        self.round.shortest = Duration::MAX;
        self.shortest_before = Duration::ZERO;
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu);
    }

    fn update_min_rtt(&mut self, rtt: Duration, now: Instant) {
        self.round.shortest = self.round.shortest.min(rtt);
        self.round.longest = self.round.longest.max(rtt);
        if self.min_rtt.is_none_or(|(least, _)| rtt <= least) {
            self.min_rtt = Some((rtt, now));
        }
    }

    fn end_round(&mut self, acked: &Acked, now: Instant) -> Round {
        let mut round = std::mem::replace(&mut self.round, Round::NEW);
        if self.is_telling(&round) {
            self.shortest_before = round.shortest;
        }
        // A path that is hardly used need not be emptied to see its least round trip.
        if self.is_stale(now) && acked.limited && acked.total - acked.prior <= self.bdp(THIN) {
            self.min_rtt = Some((round.shortest, now));
        }
        let standing = round.shortest.saturating_sub(self.min_rtt());
        self.queue_stands = standing > self.min_rtt().mul_f64(STANDING).max(TOLERANCE);
        round.queueless = round.shortest <= self.min_rtt().mul_f64(NO_QUEUE) + TOLERANCE;
        // The handshake and probes of a path that carries nothing yet have rounds as well.
        let has_enough = round.delivered >= self.least_window();
        if !self.full.reached && has_enough && self.measures(acked) {
            self.full.end_round(self.rate());
        }
        round
    }

    /// Every round trip of this round was long, and there were many.
    fn is_delayed(&self) -> bool {
        let delayed = (self.min_rtt() / 8).clamp(LEAST_DELAYED, MOST_DELAYED);
        let before = self.shortest_before.max(self.min_rtt());
        self.is_telling(&self.round) && self.round.shortest >= before + delayed
    }

    /// All of this round stood in a queue several times as long as the path: it need not be many to
    /// tell.
    fn is_crowded(&self) -> bool {
        self.round.delivered >= self.least_window()
            && self.round.shortest >= self.phase().mul_f64(CROWDED) + LEAST_DELAYED
    }

    /// There were so many packets in the round that what held up all of them is the path.
    pub(super) fn is_telling(&self, round: &Round) -> bool {
        round.delivered >= TELLING_PACKETS * self.mtu
    }

    /// The path was busy all the time that the sample covers: the driver had more to send than it
    /// was allowed, or what was under way was more than fits and stood in the path's queue.
    fn measures(&self, acked: &Acked) -> bool {
        !acked.limited || self.queue_stands && self.is_much(acked)
    }

    /// More was under way than fits into the path, and than hosts that are late hold up.
    fn is_much(&self, acked: &Acked) -> bool {
        let under_way = acked.total - acked.prior;
        let fits = self.takes() * self.phase().as_secs_f64();
        under_way >= ((FULL_GROWTH * fits) as u64).max(self.initial_window())
            || under_way >= (CROWDED * fits) as u64 + self.least_window()
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
