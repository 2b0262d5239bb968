//! Steers noq from the outside: a congestion controller with a gate in front.
//!
//! noq has no way to say "send this datagram on that path". It walks its paths in order and gives
//! the next datagram to the first whose congestion window has room. So every path's controller is
//! wrapped in a [`Gate`], which shows a window of one byte while it is closed (not zero: noq's
//! pacer divides by the window). The driver queues only what one path may send now, opens that gate
//! alone, and closes it when the datagrams are out.
//!
//! The wrapper also keeps what noq does not tell: bytes in flight, how fast they are delivered, and
//! whether the driver had more to send. noq's own pacer is switched off by showing it an endless
//! window; [`sennit_core::Pacer`] does that work, because a packet held back inside noq has already
//! lost its path.
//!
//! An acknowledgement has two times. What is told of a path, its round trip and its jitter, goes by
//! when it *arrived*. A controller goes by when it is *read*: nothing can leave for it before that,
//! so what the window must cover includes how long this host lets it wait, and what this host reads
//! at once is a heap to it.

mod alone;
mod ledger;
mod loss;
mod opening;
mod return_delay;
mod sizes;
mod state;
#[cfg(test)]
mod tests;
mod trial;
mod usage;

use std::{
    any::Any,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};
use sennit_core::{Congestion, Floor};

pub use self::sizes::{BASE, SizeSource};
pub(crate) use self::{
    alone::{Alone, AloneFactory},
    ledger::{Ledger, Payload, Twins, Whole},
    opening::PACKETS as OPENING,
    state::GateState,
};
use self::{opening::Opening, sizes::Sizes, trial::Trial, usage::Usage};
use crate::{
    acks::INITIAL_RTT,
    congestion::{self, Ack, Acked, Choice, CongestionEvent, Control, Delivery, Reason},
};

/// The window that noq's pacer sees, in bytes: it does not pace windows of more than 4 GB.
const ENDLESS: u64 = 1 << 40;

/// The least round trip is one of this time, or twice that: a path may become longer for good.
const LEAST_RTT_OF: Duration = Duration::from_secs(120);
/// A path with as little as this in flight is as good as idle.
const RESTART_PACKETS: u64 = 1;

/// A congestion controller behind a gate.
#[derive(Debug)]
pub(crate) struct Gate {
    word: Congestion,
    mtu: u16,
    control: Box<dyn Control>,
    delivery: Delivery,
    /// Packets that the acknowledgement at hand is about, and when they left.
    acked: Vec<(u64, Instant)>,
    state: Arc<GateState>,
    usage: Usage,
    trial: Trial,
    opening: Opening,
    sizes: Sizes,
    /// When the newest small packet left that the acknowledgement at hand is about.
    small_sent: Option<Instant>,
    /// Bytes that were lost because of their size since the last congestion event.
    lost_by_size: u64,
    least_rtt: Option<Floor<Duration>>,
    /// What noq takes for the least one, which at first is a guess.
    noq_least: Duration,
    initial_window: u64,
}

impl Gate {
    fn new(word: Congestion, mtu: u16, now: Instant) -> Self {
        let control = congestion::build(word, mtu, now);
        let gate = Self {
            word,
            mtu,
            initial_window: control.window(),
            control,
            delivery: Delivery::new(now),
            acked: Vec::new(),
            state: Arc::default(),
            usage: Usage::default(),
            trial: Trial::new(mtu),
            opening: Opening::default(),
            sizes: Sizes::new(mtu),
            small_sent: None,
            lost_by_size: 0,
            least_rtt: None,
            noq_least: INITIAL_RTT,
        };
        gate.state.open.store(true, Relaxed);
        gate.publish();
        gate
    }

    /// The shared state behind a path's controller.
    ///
    /// noq lends controllers only behind `&dyn`, so the state is reached through a clone.
    pub(crate) fn state_of(controller: &dyn Controller) -> Option<Arc<GateState>> {
        let gate = controller.clone_box().into_any().downcast::<Self>().ok()?;
        Some(gate.state.clone())
    }

    /// Publishes what the driver reads.
    fn publish(&self) {
        let state = &self.state;
        state.window.store(self.control.window(), Relaxed);
        let rates = [
            (&state.pacing_rate, self.control.pacing_rate()),
            (&state.delivery_rate, self.control.delivery_rate()),
            (&state.best_rate, self.control.best_rate()),
        ];
        for (place, rate) in rates {
            place.store(rate.unwrap_or(0), Relaxed);
        }
        let held_up = self.control.held_up().as_micros() as u64;
        state.held_up_micros.store(held_up, Relaxed);
        let choice = self.control.choice().unwrap_or(Choice {
            controller: self.word,
            reason: Reason::Configured,
        });
        *state.choice.lock().unwrap_or_else(PoisonError::into_inner) = Some(choice);
        state.known.store(self.trial.is_over(), Relaxed);
        state.carries.store(self.sizes.carries().into(), Relaxed);
        let probing = self.sizes.probing().unwrap_or(0);
        state.probing.store(probing.into(), Relaxed);
        state.small.store(self.sizes.is_small(), Relaxed);
        *state
            .size_source
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = self.sizes.source();
        let starts = self.control.in_slow_start();
        state.slow_start.store(starts, Relaxed);
        state.empties.store(self.control.empties(), Relaxed);
        // What overflows while a controller looks for the path's limit must keep it from sending
        // more.
        let written_off = if starts {
            0
        } else {
            state.ledger().written_off()
        };
        let settled = state.settled(written_off);
        state.settled.store(settled, Relaxed);
    }

    /// Hands over to another controller if one is wanted.
    fn switch(&mut self, now: Instant) {
        let mut wanted = self
            .state
            .wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = wanted.take().filter(|word| *word != self.word) {
            self.word = word;
            self.control = congestion::build(word, self.mtu, now);
        }
    }

    /// Takes the round trip of the newest packet that was acknowledged into account.
    fn measure(&mut self, rtt: Duration, now: Instant) {
        let state = &self.state;
        let least = self.least_rtt.get_or_insert_with(|| {
            // Up to now noq's was a guess.
            state.srtt_micros.store(rtt.as_micros() as u64, Relaxed);
            Floor::new(rtt, now)
        });
        least.update(rtt, LEAST_RTT_OF, now);
        let micros = least.get().as_micros() as u64;
        state.min_rtt_micros.store(micros, Relaxed);
    }

    /// The path is longer than it was: what was measured before is no measure of its queue.
    fn lengthen(&mut self, rtt: Duration, now: Instant) {
        self.least_rtt = Some(Floor::new(rtt, now));
        let micros = rtt.as_micros() as u64;
        self.state.min_rtt_micros.store(micros, Relaxed);
    }

    /// A window that was not used must not grow (RFC 9002 §7.8). noq's own notion of it is of no
    /// use here: between two batches of the driver, noq always sees an empty queue.
    fn window_unused(&self) -> bool {
        let window = self.control.window();
        if self.control.in_slow_start() {
            2 * self.usage.peak() < window
        } else {
            !self.usage.fills(window)
        }
    }

    /// Whether it tries how much the path holds: losses are then its own. A flow that asks for less
    /// than the window may never end its startup, and what it loses the path loses.
    fn overflows(&self) -> bool {
        self.control.in_slow_start() && self.usage.fills(self.control.window())
    }

    fn in_flight(&self) -> u64 {
        self.state.in_flight.load(Relaxed)
    }
}

impl Controller for Gate {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        // Only one thread drives a connection: a load and a store do, and are cheaper together than
        // one atomic addition.
        let in_flight = self.in_flight();
        let after = in_flight + u64::from(bytes);
        self.state.in_flight.store(after, Relaxed);
        let limited = self.state.limited.load(Relaxed);
        self.state.limited.store(false, Relaxed);
        self.delivery
            .on_sent(pn, u64::from(bytes), in_flight, limited, now);
        // Probes of a path that is idle otherwise are in flight one at a time.
        if in_flight <= RESTART_PACKETS * u64::from(self.mtu) {
            self.control.on_restart(now);
        }
        self.state.ledger().on_sent(pn, bytes, now);
        self.sizes.on_sent(pn, bytes, now);
        self.usage.on_sent(pn, after);
        self.opening.on_sent(pn, bytes, now);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        _: bool,
        rtt: &RttEstimator,
    ) {
        self.usage.on_ack(pn, self.in_flight());
        let read = self.state.read_at(now);
        self.delivery.on_acked(pn, bytes, sent, read);
        if bytes > u64::from(BASE) {
            self.sizes.on_large_acked(pn, bytes, now);
        } else {
            self.small_sent = self.small_sent.max(Some(sent));
        }
        if !self.opening.has(pn) {
            self.trial.on_acked(pn, bytes, self.usage.newest_sent);
        }
        self.acked.push((pn, sent));
        if let Some(rate) = self.opening.on_acked(pn, bytes, self.state.min_rtt(), now) {
            self.state.opening_rate.store(rate, Relaxed);
        }
        // Its validation, and packets that need no acknowledgement, tell noq of shorter ones.
        if rtt.min() != self.noq_least {
            self.noq_least = rtt.min();
            self.measure(rtt.min(), now);
        }
        self.state
            .srtt_micros
            .store(rtt.get().as_micros() as u64, Relaxed);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        let read = self.state.read_at(now);
        self.switch(read);
        self.state.in_flight.store(in_flight, Relaxed);
        if let Some(sent) = self.acked.iter().map(|(_, sent)| *sent).max() {
            let rtt = now.saturating_duration_since(sent);
            self.measure(rtt, now);
            let least = self.state.min_rtt().unwrap_or_default();
            let ahead = self.state.return_delay.take_off(rtt.max(least), least);
            self.state.return_delay.note(rtt.saturating_sub(ahead));
            self.state.note_round_trip(ahead);
            self.state.note_excess(rtt.saturating_sub(least));
        }
        let overflows = self.overflows();
        let mut ledger = self.state.ledger();
        for (pn, sent) in self.acked.drain(..) {
            ledger.on_acked(pn, sent, now);
        }
        ledger.sweep(overflows);
        let (written_off, jitter) = (ledger.written_off(), ledger.jitter());
        drop(ledger);
        let interface = self.state.interface.load(Relaxed) as u16;
        if self.state.doubted.swap(false, Relaxed) {
            self.sizes.doubt();
        }
        if interface > 0 {
            self.sizes.set_interface(interface);
        }
        if let Some(sent) = self.small_sent.take() {
            let before = sent.checked_sub(jitter).unwrap_or(sent);
            self.sizes.on_small_acked(before, now);
        }
        if self.state.rerouted.swap(false, Relaxed) {
            self.delivery.forget();
            self.control.on_route_change();
        }
        let least = self.state.min_rtt().unwrap_or_default();
        let opening = self.state.opening_rate();
        let acked = self.delivery.end_batch(read).map(|acked| Acked {
            train: acked.train.max(opening),
            // A single one below the least that was borne out is an error, see [`Floor`].
            rtt: self
                .state
                .return_delay
                .take_off(acked.rtt.max(least), least),
            ..acked
        });
        self.state.return_delay.smooth();
        self.state.smooth_waits();
        let ack = Ack {
            acked,
            in_flight: in_flight.saturating_sub(self.state.settled(written_off)),
            window_unused: self.window_unused(),
        };
        self.control.on_ack(&ack, read);
        if let Some(rtt) = self.control.take_longer() {
            self.lengthen(rtt, now);
        }
        self.publish();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        marked: bool,
        lost: u64,
        _: u64,
    ) {
        let by_size = std::mem::take(&mut self.lost_by_size);
        let excused = by_size > 0 && by_size >= lost;
        let lost = lost.saturating_sub(by_size);
        if excused || self.state.frozen.load(Relaxed) {
            self.publish();
            return;
        }
        let event = CongestionEvent {
            sent,
            lost,
            persistent,
            marked,
        };
        self.control.on_congestion(&event, self.state.read_at(now));
        self.publish();
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        let lost = u64::from(lost_bytes);
        let left = self.in_flight().saturating_sub(lost);
        self.state.in_flight.store(left, Relaxed);
        self.delivery.on_lost(pn, lost);
        if self.sizes.excuses(lost) {
            self.lost_by_size += lost;
        }
        self.state.ledger().on_lost(pn, self.overflows(), now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.control.on_spurious_loss();
        self.publish();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.control.on_mtu(new_mtu);
        self.publish();
    }

    fn window(&self) -> u64 {
        if !self.state.open.load(Relaxed) {
            return 1;
        }
        let window = self.control.window().max(self.state.floor.load(Relaxed));
        window + self.state.settled.load(Relaxed)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = ENDLESS;
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            word: self.word,
            mtu: self.mtu,
            control: self.control.clone_box(),
            delivery: self.delivery.moved(),
            acked: self.acked.clone(),
            state: self.state.clone(),
            usage: self.usage,
            trial: self.trial,
            opening: self.opening,
            sizes: self.sizes.clone(),
            small_sent: self.small_sent,
            lost_by_size: self.lost_by_size,
            least_rtt: self.least_rtt,
            noq_least: self.noq_least,
            initial_window: self.initial_window,
        })
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Builds a gated controller for each path of a tunnel.
#[derive(Debug)]
pub(crate) struct GateFactory(pub(crate) Congestion);

impl ControllerFactory for GateFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Gate::new(self.0, current_mtu, now))
    }
}
