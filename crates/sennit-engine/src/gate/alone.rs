//! A controller without a gate: the connection has one path, and noq decides when to send on it.
//!
//! noq paces at the controller's rate, or at a window a round trip if it has none. Whether there
//! was more to send noq knows itself. What is lost is what noq takes for lost: no datagram is sent
//! again here, so nothing is gained by knowing it sooner.

use std::{
    any::Any,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};
use sennit_core::Congestion;

use super::{RESTART_PACKETS, Usage, loss::Loss};
use crate::congestion::{self, Ack, Choice, CongestionEvent, Control, Delivery, Reason};

/// What the owner of the connection and its controller tell each other.
#[derive(Debug, Default)]
pub(crate) struct AloneState {
    wanted: Mutex<Option<Congestion>>,
    choice: Mutex<Option<Choice>>,
    seen: Mutex<Seen>,
}

/// What acknowledgements told of the path.
#[derive(Debug, Default)]
struct Seen {
    loss: Loss,
    least_rtt: Option<Duration>,
}

/// What the path loses, and its least round trip, once there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses {
    pub(crate) part: f64,
    pub(crate) part_at_first: f64,
    pub(crate) part_counted: f64,
    pub(crate) burst: f64,
    pub(crate) least_rtt: Option<Duration>,
}

impl AloneState {
    /// Another controller takes over with the next acknowledgement; it starts anew.
    pub(crate) fn set_congestion(&self, word: Congestion) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(word);
    }

    /// The controller that runs, and why.
    pub(crate) fn choice(&self) -> Option<Choice> {
        *self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the path has lost, of late.
    pub(crate) fn losses(&self, now: Instant) -> Losses {
        let seen = self.seen();
        Losses {
            part: seen.loss.part(now),
            part_at_first: seen.loss.part_at_first(now),
            part_counted: seen.loss.part_counted(now),
            burst: seen.loss.burst(),
            least_rtt: seen.least_rtt,
        }
    }

    /// Only one thread drives a connection, so nobody ever waits.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The controller of a path that is the only one.
#[derive(Debug)]
pub(crate) struct Alone {
    word: Congestion,
    mtu: u16,
    control: Box<dyn Control>,
    delivery: Delivery,
    usage: Usage,
    in_flight: u64,
    /// There was nothing more to send when the last acknowledgements came.
    limited: bool,
    initial_window: u64,
    state: Arc<AloneState>,
}

impl Alone {
    fn new(word: Congestion, mtu: u16, now: Instant) -> Self {
        let control = congestion::build(word, mtu, now);
        let alone = Self {
            word,
            mtu,
            initial_window: control.window(),
            control,
            delivery: Delivery::new(now),
            usage: Usage::default(),
            in_flight: 0,
            limited: false,
            state: Arc::default(),
        };
        alone.publish();
        alone
    }

    /// The state behind a connection's controller, which noq lends only behind `&dyn`.
    pub(crate) fn state_of(controller: &dyn Controller) -> Option<Arc<AloneState>> {
        let alone = controller.clone_box().into_any().downcast::<Self>().ok()?;
        Some(alone.state)
    }

    fn publish(&self) {
        let choice = self.control.choice().unwrap_or(Choice {
            controller: self.word,
            reason: Reason::Configured,
        });
        let place = &self.state.choice;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(choice);
    }

    /// Hands over to another controller if one is wanted.
    fn switch(&mut self, now: Instant) {
        let place = &self.state.wanted;
        let wanted = place.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(word) = wanted.filter(|word| *word != self.word) {
            self.word = word;
            self.control = congestion::build(word, self.mtu, now);
        }
    }

    /// Whether much of the window was not used, which must not grow then (RFC 9002 §7.8).
    fn window_unused(&self) -> bool {
        let window = self.control.window();
        match self.control.in_slow_start() {
            true => 2 * self.usage.peak() < window,
            false => !self.usage.fills(window),
        }
    }

    /// Whether it tries how much the path holds: losses are then its own.
    fn overflows(&self) -> bool {
        self.control.in_slow_start() && self.usage.fills(self.control.window())
    }
}

impl Controller for Alone {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        let (bytes, before) = (u64::from(bytes), self.in_flight);
        self.in_flight += bytes;
        let limited = std::mem::take(&mut self.limited);
        self.delivery.on_sent(pn, bytes, before, limited, now);
        // At a packet a round trip next to nothing is in flight, and there is always more to send.
        if limited && before <= RESTART_PACKETS * u64::from(self.mtu) {
            self.control.on_restart(now);
        }
        self.usage.on_sent(pn, self.in_flight);
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
        self.usage.on_ack(pn, self.in_flight);
        self.delivery.on_acked(pn, bytes, sent, now);
        let mut seen = self.state.seen();
        seen.loss.count_acked(now);
        seen.least_rtt = Some(rtt.min());
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _: Option<u64>) {
        self.switch(now);
        self.in_flight = in_flight;
        self.limited = app_limited;
        let ack = Ack {
            acked: self.delivery.end_batch(now),
            in_flight,
            window_unused: self.window_unused(),
        };
        self.control.on_ack(&ack, now);
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
        let event = CongestionEvent {
            sent,
            lost,
            persistent,
            marked,
        };
        self.control.on_congestion(&event, now);
        self.publish();
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        let lost = u64::from(lost_bytes);
        self.in_flight = self.in_flight.saturating_sub(lost);
        self.delivery.on_lost(pn, lost);
        let overflows = self.overflows();
        self.state.seen().loss.count_lost(pn, overflows, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.control.on_spurious_loss();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.control.on_mtu(new_mtu);
    }

    fn window(&self) -> u64 {
        self.control.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.control.window();
        metrics.pacing_rate = self.control.pacing_rate();
        metrics.bandwidth_estimate = self.control.delivery_rate().map(|rate| rate * 8);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            word: self.word,
            mtu: self.mtu,
            control: self.control.clone_box(),
            delivery: self.delivery.moved(),
            usage: self.usage,
            in_flight: self.in_flight,
            limited: self.limited,
            initial_window: self.initial_window,
            state: self.state.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Builds such a controller for each connection.
#[derive(Debug)]
pub(crate) struct AloneFactory(pub(crate) Congestion);

impl ControllerFactory for AloneFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Alone::new(self.0, current_mtu, now))
    }
}
