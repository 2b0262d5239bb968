//! Chooses a path's controller by what the path shows.
//!
//! BBR 3 is what a path starts with and returns to: it tolerates the loss that it finds to be the
//! path's own, it yields to a policer or a tiny buffer, which show as more loss when it probes, and
//! it leaves a deep buffer empty. Two things it cannot cope with, and neither goes away by itself:
//!
//! | seen | runs | until |
//! | --- | --- | --- |
//! | others keep a queue and starve it | CUBIC; BBR 1 from 1 % of own loss | it is empty once |
//! | 8 % are lost whatever is sent | BBR 1, which sends so much the more | less than 3 % are |
//!
//! **Others.** Who keeps the queue short beside a flow that fills it gets what that leaves: of a
//! buffer that holds eight times what fits into the path, a tenth of the rate. To see it, time is
//! cut into slices, long enough that every slice has a phase in which BBR takes back what it may
//! have put into the queue. A slice is crowded if all the same no round trip of it was near the
//! least of late, if a queue stands in most rounds, if less than half as much arrived as in the
//! best slice of the last minute, and if there was enough to send. After the first such slice the
//! least round trip is measured anew, with little in flight: on a path that has only become longer
//! no queue stands by that. After three in a row CUBIC takes over, and takes its share as everyone
//! does. A path that loses would not let it grow, and gets BBR 1, which also holds its place beside
//! CUBIC.
//!
//! The least of late is that of a minute or two, because a mobile link becomes longer step by
//! step. Where others fill the queue for longer that is their queue: so much BBR then keeps in
//! flight that it is not starved.
//!
//! CUBIC fills the queue itself and so cannot see that the others have left, unless they leave it
//! empty. So BBR 3 is tried again after 15 s; each time that it is crowded out within a minute the
//! next trial is twice as far, up to a minute. Tunnels of ours that share a link do not crowd each
//! other, but once they run CUBIC they may take each other for the others, until a trial of one
//! meets a pause or a trial of the other.
//!
//! **Loss.** BBR's rate is that of what arrives. From a fifth on, a probe of a quarter more
//! delivers no more than there was, and the rate falls without end. From what BBR 3 never takes for
//! a path's own loss, BBR 1 runs as soon as that is known, and not two slices later.

use std::time::{Duration, Instant};

use sennit_core::{Congestion, Floor};

use super::{
    Ack, Acked, Choice, CongestionEvent, Control, Reason,
    bbr::Bbr,
    bbr3::Bbr3,
    cubic::Cubic,
    follow::Follow,
    loss::{MOST, Pace},
    model::Model,
    round::Rounds,
    swings::Swings,
    windowed::WindowedMax,
};

/// Round trips of a slice, which lasts as long as a cycle of BBR with all its phases.
const SLICE_ROUNDS: u32 = 10;
/// No slice is shorter, so that a link's short troubles do not fill three of them.
const MIN_SLICE: Duration = Duration::from_secs(1);
/// No round trip of a crowded slice was shorter than this times the least.
const INFLATED: f64 = 1.5;
/// Every round trip of a crowded slice is longer than the least by this: less queue is no buffer in
/// which BBR starves.
const MIN_QUEUE: Duration = Duration::from_millis(10);
/// Less than this part of the best rate of late: two flows would have half each.
const STARVED: f64 = 0.5;
const BEST_OF: Duration = Duration::from_secs(60);
/// The least round trip is one of this time, or twice that: it belongs to the best rate.
const LEAST_OF: Duration = BEST_OF;
/// Crowded slices in a row after which CUBIC takes over.
const CROWDED_SLICES: u32 = 3;
/// Crowded slices in a row after which CUBIC takes over where it was crowded a minute ago.
const CROWDED_AGAIN: u32 = 2;
/// A round trip this near to the least met hardly a queue.
const NEAR: f64 = 1.1;
const NEAR_BY: Duration = Duration::from_millis(2);
/// With more loss than this whatever is sent CUBIC's window does not grow (docs/decisions/0004).
const CUBIC_BEARS: f64 = 0.01;
/// Loss whatever is sent from which on BBR 3 reaches clearly less than BBR 1, and back; so many
/// slices long (docs/decisions/0004).
const LOSSY: f64 = 0.08;
const NOT_LOSSY: f64 = 0.03;
const LOSSY_SLICES: u32 = 2;
/// More than this BBR 3 takes for congestion, whatever it is: it sends less after each round, and
/// what starts inside meanwhile meets a path that seems narrow.
const TOO_LOSSY: f64 = MOST;
/// When BBR 3 is tried again beside others, at first and at most.
const FIRST_TRIAL: Duration = Duration::from_secs(15);
const LAST_TRIAL: Duration = Duration::from_secs(60);
/// An empty queue ends CUBIC's time only after one part in this many of it.
const LEAST_STAY: u32 = 3;

/// A path whose controller may change.
#[derive(Clone, Debug)]
pub(super) struct Auto {
    running: Running,
    reason: Reason,
    since: Instant,
    /// When the last trial of BBR 3 began, and how long CUBIC has before the next.
    tried: Option<Instant>,
    trial_after: Duration,
    slice: Slice,
    rounds: Rounds,
    /// The least round trip of the slices of late, by this way.
    least_rtt: Option<Floor<Duration>>,
    /// Bytes per second of the best slice of late.
    best: WindowedMax,
    crowded: u32,
    /// Bytes per second of CUBIC's best slice beside others.
    share: u64,
    /// Slices in a row in which the loss asked for another controller.
    lossy: u32,
    /// Rounds in a row in which no queue stood.
    calm: u32,
    swings: Swings,
}

#[derive(Clone, Debug)]
enum Running {
    Bbr3(Bbr3),
    Bbr(Bbr),
    Follow(Follow),
    /// With a model of the path for the time after.
    Cubic(Cubic, Model),
}

/// What is seen until it is judged.
#[derive(Clone, Copy, Debug)]
struct Slice {
    since: Instant,
    rounds: u32,
    /// Those in which a queue stood by BBR's own, younger measure of the least round trip.
    standing: u32,
    shortest: Duration,
    delivered: u64,
    /// Part of what was delivered: there was no more to send.
    limited: u64,
}

impl Auto {
    pub(super) fn new(mtu: u16, now: Instant) -> Self {
        Self {
            running: Running::Bbr3(Bbr3::new(mtu, now)),
            reason: Reason::Usual,
            since: now,
            tried: None,
            trial_after: FIRST_TRIAL,
            slice: Slice::new(now),
            rounds: Rounds::default(),
            least_rtt: None,
            best: WindowedMax::new(BEST_OF, now),
            crowded: 0,
            share: 0,
            lossy: 0,
            calm: 0,
            swings: Swings::new(now),
        }
    }

    fn model(&self) -> &Model {
        match &self.running {
            Running::Bbr3(bbr) => bbr.model(),
            Running::Bbr(bbr) => bbr.model(),
            Running::Follow(follow) => follow.model(),
            Running::Cubic(_, model) => model,
        }
    }

    fn control(&self) -> &dyn Control {
        match &self.running {
            Running::Bbr3(bbr) => bbr,
            Running::Bbr(bbr) => bbr,
            Running::Follow(follow) => follow,
            Running::Cubic(cubic, _) => cubic,
        }
    }

    fn control_mut(&mut self) -> &mut dyn Control {
        match &mut self.running {
            Running::Bbr3(bbr) => bbr,
            Running::Bbr(bbr) => bbr,
            Running::Follow(follow) => follow,
            Running::Cubic(cubic, _) => cubic,
        }
    }

    // ---- what is seen --------------------------------------------------------------------------

    fn look(&mut self, acked: &Acked, in_flight: u64, now: Instant) {
        let least = self.least_rtt().min(self.model().min_rtt());
        let mtu = self.model().mtu();
        self.swings.on_ack(acked, least, mtu, now);
        match self.reason {
            Reason::Usual if self.swings.moves() && self.model().is_full() => self.run_follow(now),
            Reason::Moving if !self.swings.moves() => self.run_bbr3(now),
            Reason::Configured
            | Reason::Usual
            | Reason::Crowded
            | Reason::Lossy
            | Reason::Moving => {}
        }
        let queue_stands = self.model().queue_stands();
        let slice = &mut self.slice;
        slice.shortest = slice.shortest.min(acked.rtt);
        slice.delivered += acked.bytes;
        slice.limited += if acked.limited { acked.bytes } else { 0 };
        if self.rounds.on_ack(acked) {
            slice.rounds += 1;
            slice.standing += u32::from(queue_stands);
            self.calm = if queue_stands { 0 } else { self.calm + 1 };
            if self.is_too_lossy() {
                self.run_bbr(Reason::Lossy, now);
            }
        }
        let slice = &mut self.slice;
        if slice.rounds >= SLICE_ROUNDS && now.saturating_duration_since(slice.since) >= MIN_SLICE {
            let slice = std::mem::replace(slice, Slice::new(now));
            self.judge(&slice, in_flight, now);
        }
    }

    /// The path loses so much whatever is sent that two slices more would be lost time. What
    /// overflows when its rate falls leaves a queue.
    fn is_too_lossy(&self) -> bool {
        let (model, calm) = (self.model(), self.calm >= SLICE_ROUNDS);
        self.reason == Reason::Usual && calm && model.is_full() && model.unmoved_loss() > TOO_LOSSY
    }

    fn judge(&mut self, slice: &Slice, in_flight: u64, now: Instant) {
        let rate = slice.rate(now);
        self.least_rtt
            .get_or_insert_with(|| Floor::new(slice.shortest, now))
            .update(slice.shortest, LEAST_OF, now);
        let least = self.least_rtt();
        let queued = slice.shortest > least.mul_f64(INFLATED).max(least + MIN_QUEUE);
        let starved = (rate as f64) < STARVED * self.best.get() as f64;
        let is_crowded = queued && slice.is_standing() && starved && !slice.is_limited();
        self.best.insert(rate, now);
        if matches!(self.running, Running::Cubic(..)) {
            self.share = self.share.max(rate);
        }
        self.crowded = if is_crowded { self.crowded + 1 } else { 0 };
        let loss = self.model().unmoved_loss();
        let moves = match self.reason {
            Reason::Lossy => loss < NOT_LOSSY,
            Reason::Configured | Reason::Usual | Reason::Crowded | Reason::Moving => loss >= LOSSY,
        };
        self.lossy = if moves { self.lossy + 1 } else { 0 };
        self.decide(slice, in_flight, now);
    }

    // ---- what follows --------------------------------------------------------------------------

    /// As far as it was borne out by a second slice; endless before the first.
    fn least_rtt(&self) -> Duration {
        self.least_rtt.map_or(Duration::MAX, |least| least.get())
    }

    fn decide(&mut self, slice: &Slice, in_flight: u64, now: Instant) {
        let stay = now.saturating_duration_since(self.since);
        let near = slice.shortest <= self.least_rtt().mul_f64(NEAR) + NEAR_BY;
        match self.reason {
            Reason::Usual if self.crowded >= self.crowded_slices(now) => {
                self.postpone_trial(now);
                if self.model().unmoved_loss() > CUBIC_BEARS {
                    self.run_bbr(Reason::Crowded, now);
                } else {
                    self.run_cubic(slice.shortest, in_flight, now);
                }
            }
            Reason::Usual if self.lossy >= LOSSY_SLICES => self.run_bbr(Reason::Lossy, now),
            Reason::Usual if self.crowded == 1 => {
                if let Running::Bbr3(bbr) = &mut self.running {
                    bbr.probe_rtt();
                }
            }
            Reason::Crowded if near && stay >= self.trial_after / LEAST_STAY => self.run_bbr3(now),
            Reason::Crowded if stay >= self.trial_after => self.run_bbr3(now),
            Reason::Lossy if self.lossy >= LOSSY_SLICES => self.run_bbr3(now),
            Reason::Configured
            | Reason::Usual
            | Reason::Crowded
            | Reason::Lossy
            | Reason::Moving => {}
        }
    }

    /// How many crowded slices in a row say that others starve this path.
    fn crowded_slices(&self, now: Instant) -> u32 {
        if self.is_on_trial(now) {
            CROWDED_AGAIN
        } else {
            CROWDED_SLICES
        }
    }

    /// BBR 3 is back for too short a time to say that the others have left.
    fn is_on_trial(&self, now: Instant) -> bool {
        self.tried
            .is_some_and(|at| now.saturating_duration_since(at) < LAST_TRIAL)
    }

    /// A trial that failed shall not be repeated as soon.
    fn postpone_trial(&mut self, now: Instant) {
        self.trial_after = if self.is_on_trial(now) {
            (2 * self.trial_after).min(LAST_TRIAL)
        } else {
            FIRST_TRIAL
        };
    }

    fn run_bbr3(&mut self, now: Instant) {
        let mut model = self.model().clone();
        if self.reason == Reason::Crowded {
            // What it saw of late may have been the others' queue, or CUBIC's own.
            model.set_min_rtt(self.least_rtt(), now);
            self.tried = Some(now);
        }
        let bbr3 = Bbr3::resume(model, self.window());
        self.take_over(Running::Bbr3(bbr3), Reason::Usual, now);
    }

    fn run_follow(&mut self, now: Instant) {
        let follow = Follow::resume(self.model().clone(), self.window(), now);
        self.take_over(Running::Follow(follow), Reason::Moving, now);
    }

    fn run_bbr(&mut self, reason: Reason, now: Instant) {
        let bbr = Bbr::resume(self.model().clone(), self.window());
        self.take_over(Running::Bbr(bbr), reason, now);
    }

    /// It goes at once for what it had before the trial, or for half of what there was, which is
    /// its share beside one other.
    fn run_cubic(&mut self, rtt: Duration, in_flight: u64, now: Instant) {
        let share = if self.is_on_trial(now) {
            self.share
        } else {
            self.best.get() / 2
        };
        self.share = 0;
        let model = self.model().clone();
        let fits = share as f64 * rtt.as_secs_f64();
        let cubic = Cubic::resume(in_flight, fits as u64, model.mtu(), now);
        self.take_over(Running::Cubic(cubic, model), Reason::Crowded, now);
    }

    fn take_over(&mut self, running: Running, reason: Reason, now: Instant) {
        tracing::info!(
            ?reason,
            rate = self.model().rate(),
            loss = self.model().unmoved_loss(),
            least_rtt = ?self.least_rtt(),
            "congestion controller changes"
        );
        self.running = running;
        self.reason = reason;
        self.since = now;
        self.crowded = 0;
        self.lossy = 0;
    }

    /// The path is another, or longer than it was.
    fn forget_rtt(&mut self) {
        self.least_rtt = None;
        self.crowded = 0;
    }
}

impl Control for Auto {
    fn on_restart(&mut self, now: Instant) {
        self.control_mut().on_restart(now);
    }

    fn on_ack(&mut self, ack: &Ack, now: Instant) {
        self.control_mut().on_ack(ack, now);
        let Some(acked) = ack.acked else { return };
        if let Running::Cubic(_, model) = &mut self.running {
            model.update(&acked, now);
            model.set_pace(Pace::Other, now);
        }
        self.look(&acked, ack.in_flight, now);
    }

    fn on_congestion(&mut self, event: &CongestionEvent, now: Instant) {
        self.control_mut().on_congestion(event, now);
        if let Running::Cubic(_, model) = &mut self.running {
            model.on_congestion(event);
        }
    }

    fn on_spurious_loss(&mut self) {
        self.control_mut().on_spurious_loss();
    }

    fn on_route_change(&mut self) {
        self.control_mut().on_route_change();
        if let Running::Cubic(_, model) = &mut self.running {
            model.forget_rtt();
        }
        self.forget_rtt();
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.control_mut().on_mtu(mtu);
        if let Running::Cubic(_, model) = &mut self.running {
            model.set_mtu(mtu);
        }
    }

    fn window(&self) -> u64 {
        self.control().window()
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.control().pacing_rate()
    }

    fn delivery_rate(&self) -> Option<u64> {
        self.control().delivery_rate()
    }

    fn best_rate(&self) -> Option<u64> {
        self.control().best_rate()
    }

    fn held_up(&self) -> Duration {
        self.control().held_up()
    }

    fn take_longer(&mut self) -> Option<Duration> {
        let longer = self.control_mut().take_longer();
        if longer.is_some() {
            self.forget_rtt();
        }
        longer
    }

    fn in_slow_start(&self) -> bool {
        self.control().in_slow_start()
    }

    fn empties(&self) -> bool {
        self.control().empties()
    }

    fn choice(&self) -> Option<Choice> {
        let controller = match self.running {
            Running::Bbr3(_) => Congestion::Bbr3,
            Running::Bbr(_) => Congestion::Bbr,
            Running::Follow(_) => Congestion::Follow,
            Running::Cubic(..) => Congestion::Cubic,
        };
        Some(Choice {
            controller,
            reason: self.reason,
        })
    }

    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}

impl Slice {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            rounds: 0,
            standing: 0,
            shortest: Duration::MAX,
            delivered: 0,
            limited: 0,
        }
    }

    /// Bytes per second.
    fn rate(&self, now: Instant) -> u64 {
        let time = now.saturating_duration_since(self.since);
        (self.delivered as f64 / time.as_secs_f64().max(1e-3)) as u64
    }

    fn is_standing(&self) -> bool {
        2 * self.standing > self.rounds
    }

    /// Mostly there was not enough to send.
    fn is_limited(&self) -> bool {
        2 * self.limited > self.delivered
    }
}

#[cfg(test)]
mod tests;
