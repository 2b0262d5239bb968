//! Follow: sends what the path delivered a moment ago, and keeps a short queue there.
//!
//! On a path whose rate moves all the time, the greatest rate of late is no measure: what a mobile
//! link delivered half a second ago may be five times what it delivers now, and all of the
//! difference stands in the modem. And a rate that is found out by a probe now and then is found
//! out late. So what may be in flight is what arrived within the last round trip, and as much more
//! as shall stand in the path's queue:
//!
//! window = rate of the last round trip × least round trip × (1 + standing)
//!
//! That needs no probes. Where the path becomes faster, its queue empties, all that is in flight
//! arrives sooner, and the window grows by the standing part each round trip. Where it becomes
//! slower, the window shrinks below what is in flight, and nothing leaves until the queue is short
//! again. How much stands is found out: more each time that the queue was found empty, less while
//! it never is. A path that is steady would have a queue for nothing, so [`Auto`](super::auto) runs
//! this only where rates were seen to move.
//!
//! Packets are paced so that the queue comes to its length within half a round trip, from either
//! side.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    Ack, Acked, CongestionEvent, Control,
    loss::{Manner, Pace},
    model::Model,
    probe_rtt::ProbeRtt,
    round::Round,
    windowed::WindowedMax,
};
use crate::acks::ACK_DELAY;

/// What stands, as part of the least round trip: half as much more is the rise in rate that is
/// followed within a round trip. Over mobile links a quarter leaves a twentieth of the rate unused,
/// and more than one gains nothing.
const STANDING: f64 = 0.5;
const MOST_STANDING: f64 = 1.0;
const USUAL_STANDING: f64 = 0.25;
/// Rounds that overflow a shorter buffer bring what stands down to this.
const LEAST_STANDING: f64 = 1.0 / 16.0;
/// A round that overflows the buffer leaves this part of what stands (draft-ietf-ccwg-bbr-06 §2.7,
/// "Beta").
const BETA: f64 = 0.7;
/// How much it grows after a round that found the queue empty, and shrinks after one that did not.
const RISE: f64 = 0.25;
const FALL: f64 = 0.02;
/// Acknowledgements are apart by some milliseconds, and a shorter queue would be empty in between.
const SHORTEST: Duration = Duration::from_millis(10);
/// Packets that were late by this part of what shall stand show the path's rate, though there was
/// no more to send.
const QUEUED: f64 = 0.75;
/// The rate is that of a round trip and at least of this time, several acknowledgements.
const LEAST_SPAN: Duration = Duration::from_millis(20);
/// Parts of a span, for each of which it is remembered how much had arrived.
const PARTS: u32 = 32;
/// Limits of the pacing rate, as parts of what arrives.
const SLOWEST: f64 = 0.5;
const FASTEST: f64 = 2.0;
/// How fast the queue comes to its length: so many times in a round trip.
const EAGERNESS: f64 = 2.0;
/// Packets in flight whatever arrives, so that something is acknowledged.
const LEAST_PACKETS: u64 = 2;
/// This part of what fits stays in flight while the least round trip is measured.
const PROBE_RTT_GAIN: f64 = 0.5;
/// The best of this time is what the path may soon carry again.
const BEST_OF: Duration = Duration::from_secs(5);

/// One path of which the rate moves.
#[derive(Clone, Debug)]
pub(super) struct Follow {
    model: Model,
    arrivals: Arrivals,
    /// Bytes per second, of the last round trip.
    rate: u64,
    best: WindowedMax,
    /// The last round trip.
    rtt: Duration,
    /// What stands in the queue, as part of the least round trip.
    standing: f64,
    probe: Option<ProbeRtt>,
    window: u64,
}

impl Follow {
    /// A path of which nothing is known.
    pub(super) fn new(mtu: u16, now: Instant) -> Self {
        let mut model = Model::new(mtu, now);
        model.set_full();
        let window = model.initial_window();
        Self::resume(model, window, now)
    }

    /// Takes over a path that is known.
    pub(super) fn resume(model: Model, window: u64, now: Instant) -> Self {
        let mut best = WindowedMax::new(BEST_OF, now);
        best.insert(model.rate(), now);
        Self {
            arrivals: Arrivals::new(now),
            rate: model.rate(),
            best,
            rtt: model.min_rtt(),
            standing: STANDING,
            probe: None,
            window,
            model: model.making_up(0.0),
        }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// How long packets shall stand in the path's queue.
    fn standing(&self) -> Duration {
        self.model.min_rtt().mul_f64(self.standing).max(SHORTEST)
    }

    fn learn_standing(&mut self, round: &Round, limited: bool) {
        let standing = self.standing;
        self.standing = if self.model.is_congested(round, Manner::Probing) {
            (BETA * standing).max(LEAST_STANDING)
        } else if limited || self.probe.is_some() {
            standing
        } else if round.queueless {
            (standing + RISE).min(MOST_STANDING)
        } else {
            (standing - FALL).max(standing.min(USUAL_STANDING))
        };
    }

    fn span(&self) -> Duration {
        self.model.min_rtt().max(LEAST_SPAN)
    }

    fn measure(&mut self, acked: &Acked, now: Instant) {
        let Some(rate) = self.arrivals.on_ack(acked.bytes, self.span(), now) else {
            return;
        };
        let queued = acked.rtt > self.model.min_rtt() + self.standing().mul_f64(QUEUED);
        // The path would have carried more than was sent.
        self.rate = if self.probe.is_some() || acked.limited && !queued {
            rate.max(self.rate)
        } else {
            rate
        };
        self.best.insert(self.rate, now);
    }

    fn probe_rtt(&mut self, ack: &Ack, round_ended: bool, now: Instant) {
        if let Some(probe) = &mut self.probe {
            let least = probe.advance(self.model.min_rtt(), ack.in_flight, self.window, now);
            if let Some(least) = least {
                self.model.set_min_rtt(least, now);
                self.probe = None;
            }
        } else if round_ended && self.model.is_stale(now) {
            self.probe = Some(ProbeRtt::NEW);
        }
    }

    fn set_window(&mut self) {
        let (least, mtu) = (self.model.min_rtt(), self.model.mtu());
        let time = if self.probe.is_some() {
            least.mul_f64(PROBE_RTT_GAIN)
        } else {
            least + self.standing()
        };
        let fits = self.rate as f64 * (time + ACK_DELAY).as_secs_f64();
        self.window = (fits as u64 + mtu).max(LEAST_PACKETS * mtu);
    }
}

impl Control for Follow {
    fn on_restart(&mut self, now: Instant) {
        self.model.on_restart(now);
    }

    fn on_ack(&mut self, ack: &Ack, now: Instant) {
        let Some(acked) = ack.acked else { return };
        if let Some(probe) = &mut self.probe {
            probe.on_rtt(acked.rtt, now);
        }
        self.rtt = acked.rtt;
        let round = self.model.update(&acked, now);
        if let Some(round) = &round {
            self.learn_standing(round, acked.limited);
        }
        self.measure(&acked, now);
        self.probe_rtt(ack, round.is_some(), now);
        self.set_window();
        self.model.set_pace(Pace::Other, now);
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
        let least = self.model.min_rtt().max(ACK_DELAY);
        let queue = self.rtt.saturating_sub(least).as_secs_f64();
        let missing = (self.standing().as_secs_f64() - queue) / least.as_secs_f64();
        let gain = (1.0 + EAGERNESS * missing).clamp(SLOWEST, FASTEST);
        let floor = (self.model.mtu() as f64 / least.as_secs_f64()) as u64;
        Some(((gain * self.rate as f64) as u64).max(floor))
    }

    fn delivery_rate(&self) -> Option<u64> {
        Some(self.rate).filter(|&rate| rate > 0)
    }

    fn best_rate(&self) -> Option<u64> {
        Some(self.best.get())
    }

    fn empties(&self) -> bool {
        self.probe.is_some()
    }

    fn held_up(&self) -> Duration {
        self.model.held_up()
    }

    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}

/// How fast packets are acknowledged.
#[derive(Clone, Debug)]
struct Arrivals {
    total: u64,
    /// How many bytes had been acknowledged at some times, the oldest just before the span that is
    /// measured.
    past: VecDeque<(Instant, u64)>,
}

impl Arrivals {
    fn new(now: Instant) -> Self {
        Self {
            total: 0,
            past: VecDeque::from([(now, 0)]),
        }
    }

    /// Bytes per second of the last `span`, or since the acknowledgement before it.
    fn on_ack(&mut self, bytes: u64, span: Duration, now: Instant) -> Option<u64> {
        self.total += bytes;
        let age = |&(at, _): &(Instant, u64)| now.saturating_duration_since(at);
        while self.past.get(1).is_some_and(|next| age(next) >= span) {
            self.past.pop_front();
        }
        let first = *self.past.front()?;
        if self
            .past
            .back()
            .is_none_or(|last| age(last) >= span / PARTS)
        {
            self.past.push_back((now, self.total));
        }
        let time = age(&first);
        let rate = (self.total - first.1) as f64 / time.as_secs_f64();
        (time >= span).then_some(rate as u64)
    }
}
