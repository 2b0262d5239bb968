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
mod sizes;
mod trial;
mod way_back;

use std::{
    any::Any,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
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
    ledger::{Ledger, Payload},
    opening::PACKETS as OPENING,
};
use self::{opening::Opening, sizes::Sizes, trial::Trial, way_back::WayBack};
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

/// The driver's view of one path's controller, shared with the controller inside noq.
#[derive(Debug, Default)]
pub(crate) struct GateState {
    open: AtomicBool,
    in_flight: AtomicU64,
    /// Bytes of it that are lost or have arrived, some time before noq says so: no reason to send
    /// less.
    settled: AtomicU64,
    window: AtomicU64,
    /// Bytes per second, or 0 if the controller does not compute a rate.
    pacing_rate: AtomicU64,
    delivery_rate: AtomicU64,
    best_rate: AtomicU64,
    /// The driver has no more for this path: until it has, samples of the rate are lower bounds.
    limited: AtomicBool,
    slow_start: AtomicBool,
    known: AtomicBool,
    srtt_micros: AtomicU64,
    min_rtt_micros: AtomicU64,
    /// The least round trip since somebody asked, or 0.
    round_trip_micros: AtomicU64,
    held_up_micros: AtomicU64,
    /// Bytes per second at which the first packets that left at once arrived; 0 before.
    opening_rate: AtomicU64,
    way_back: WayBack,
    waited_micros: AtomicU64,
    /// What waited, smoothed as a round trip is (RFC 9002 §5.3).
    waits_micros: AtomicU64,
    /// The window is never taken for less than this.
    floor: AtomicU64,
    /// Losses are not news of congestion for now.
    frozen: AtomicBool,
    /// Some path was frozen or thawed since the last acknowledgement.
    rerouted: AtomicBool,
    /// The largest packet that the path is known to carry, that should be tried (0: none), and that
    /// its interface sends (0: not known).
    carries: AtomicU64,
    probing: AtomicU64,
    interface: AtomicU64,
    size_source: Mutex<SizeSource>,
    small: AtomicBool,
    /// The peer found the path to be smaller than it was, in its direction.
    doubted: AtomicBool,
    ledger: Mutex<Ledger>,
    choice: Mutex<Option<Choice>>,
    /// The controller that is to take over.
    wanted: Mutex<Option<Congestion>>,
}

impl GateState {
    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Relaxed);
    }

    pub(crate) fn window(&self) -> u64 {
        self.window.load(Relaxed).max(self.floor.load(Relaxed))
    }

    /// Allows `bytes` in flight whatever the controller says.
    pub(crate) fn set_floor(&self, bytes: u64) {
        self.floor.store(bytes, Relaxed);
    }

    /// Keeps what the controller has learned through an outage.
    ///
    /// What is lost while a path is dead says nothing about how much it carries when it returns,
    /// and a controller that starts from its least window again takes seconds to find out.
    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Relaxed);
    }

    /// Acknowledgements of this path, which ride on any, come another way from now on.
    pub(crate) fn set_rerouted(&self) {
        self.rerouted.store(true, Relaxed);
    }

    /// Another controller, which starts anew; nothing happens if it is the same.
    pub(crate) fn set_congestion(&self, word: Congestion) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(word);
    }

    /// The controller that runs, and why.
    pub(crate) fn choice(&self) -> Option<Choice> {
        *self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The datagrams in flight. Only one thread drives a connection, so nobody ever waits.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of the gate of a path that was moved: what was in flight there is given up.
    pub(crate) fn inherit(&self, before: &Self) {
        let mut ledger = std::mem::take(&mut *before.ledger());
        ledger.start_over();
        *self.ledger() = ledger;
        self.set_frozen(before.frozen.load(Relaxed));
        self.interface
            .store(before.interface.load(Relaxed), Relaxed);
    }

    /// The largest packet that the path is known to carry, in bytes of UDP payload.
    pub(crate) fn carries(&self) -> u16 {
        self.carries.load(Relaxed) as u16
    }

    /// The size of a packet that should be sent to see whether it arrives.
    pub(crate) fn probing(&self) -> Option<u16> {
        Some(self.probing.load(Relaxed) as u16).filter(|bytes| *bytes > 0)
    }

    /// Whether the path is known not to carry packets of full size.
    pub(crate) fn is_small(&self) -> bool {
        self.small.load(Relaxed)
    }

    /// How [`Self::carries`] is known.
    pub(crate) fn size_source(&self) -> SizeSource {
        *self
            .size_source
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer found the path to be smaller than it was, in its direction.
    pub(crate) fn doubt_size(&self) {
        self.doubted.store(true, Relaxed);
    }

    /// The interface that the path leaves by sends UDP payloads of at most `bytes`.
    pub(crate) fn set_interface(&self, bytes: u16) {
        self.interface.store(bytes.into(), Relaxed);
    }

    /// The path could have carried more than there was for it.
    pub(crate) fn set_limited(&self) {
        self.limited.store(true, Relaxed);
    }

    /// Whether the controller has not yet found what the path carries.
    pub(crate) fn is_in_slow_start(&self) -> bool {
        self.slow_start.load(Relaxed)
    }

    /// Bytes per second at which the first packets arrived that left at once, or 0.
    pub(crate) fn opening_rate(&self) -> u64 {
        self.opening_rate.load(Relaxed)
    }

    /// Whether enough has arrived to go by what the path seems to carry.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }

    /// Bytes that are neither acknowledged nor lost.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Bytes that the congestion window still allows.
    pub(crate) fn room(&self) -> u64 {
        let allowed = self.window() + self.settled.load(Relaxed);
        allowed.saturating_sub(self.in_flight())
    }

    /// Smoothed round trip, `None` before the first sample.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        micros(&self.srtt_micros)
    }

    /// The least round trip of the last minutes that was seen more than once.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        micros(&self.min_rtt_micros)
    }

    /// The least round trip that was measured since the last call.
    pub(crate) fn take_round_trip(&self) -> Option<Duration> {
        let taken = micros(&self.round_trip_micros);
        self.round_trip_micros.store(0, Relaxed);
        taken
    }

    /// A round trip was measured.
    fn note_round_trip(&self, rtt: Duration) {
        let rtt = (rtt.as_micros() as u64).max(1);
        let least = match self.round_trip_micros.load(Relaxed) {
            0 => rtt,
            least => least.min(rtt),
        };
        self.round_trip_micros.store(least, Relaxed);
    }

    /// How far apart acknowledgements come because somebody holds them up.
    pub(crate) fn held_up(&self) -> Duration {
        Duration::from_micros(self.held_up_micros.load(Relaxed))
    }

    /// Smoothed round trip until this host reads of it, had its acknowledgements come by the
    /// quickest way.
    pub(crate) fn rtt_ahead(&self) -> Option<Duration> {
        let ahead = self.srtt()?.saturating_sub(self.way_back.smoothed());
        let waits = Duration::from_micros(self.waits_micros.load(Relaxed));
        Some(ahead.max(self.min_rtt().unwrap_or_default()) + waits)
    }

    /// The acknowledgements that arrive now are so late.
    pub(crate) fn set_acks_late(&self, late: Duration) {
        self.way_back.set(late);
    }

    /// The acknowledgements that are read now arrived so long ago.
    pub(crate) fn set_waited(&self, waited: Duration) {
        self.waited_micros.store(waited.as_micros() as u64, Relaxed);
    }

    /// A round trip was measured.
    fn smooth_waits(&self) {
        let (now, smoothed) = (
            self.waited_micros.load(Relaxed),
            self.waits_micros.load(Relaxed),
        );
        self.waits_micros.store((7 * smoothed + now) / 8, Relaxed);
    }

    /// When an acknowledgement is read that arrived at `arrived`.
    fn read_at(&self, arrived: Instant) -> Instant {
        arrived + Duration::from_micros(self.waited_micros.load(Relaxed))
    }

    /// Still looking for what the path carries, and not for want of something to send.
    pub(crate) fn starts(&self) -> bool {
        self.is_in_slow_start() && 2 * self.in_flight() >= self.window()
    }

    /// Bytes in flight that are no reason to send less: the ledger knows that they are `lost`, or
    /// they have arrived, and their acknowledgements are late, or wait here to be read.
    fn settled(&self, lost: u64) -> u64 {
        let waits = Duration::from_micros(self.waits_micros.load(Relaxed)).as_secs_f64();
        let rate = self.delivery_rate.load(Relaxed);
        lost + self.way_back.unheard(rate) + (rate as f64 * waits) as u64
    }

    /// Bytes per second at which packets may leave.
    ///
    /// A window-based controller is paced a little above one window per round trip, so that pacing
    /// never becomes the limit (RFC 9002 §7.7), and at twice that while it doubles its window.
    pub(crate) fn pacing_rate(&self, srtt: Duration) -> u64 {
        match self.pacing_rate.load(Relaxed) {
            0 => {
                let gain = if self.slow_start.load(Relaxed) {
                    2.0
                } else {
                    1.25
                };
                (gain * self.rate(srtt) as f64) as u64
            }
            rate => rate,
        }
    }

    /// Bytes per second that the path carried at best within seconds; as much as now where its rate
    /// does not move.
    pub(crate) fn best_rate(&self, srtt: Duration) -> u64 {
        self.best_rate.load(Relaxed).max(self.rate(srtt))
    }

    /// Bytes per second that the path carries: measured, or else one window per round trip.
    pub(crate) fn rate(&self, srtt: Duration) -> u64 {
        match self.delivery_rate.load(Relaxed) {
            0 => (self.window() as f64 / srtt.as_secs_f64().max(1e-4)) as u64,
            rate => rate,
        }
    }
}

fn micros(value: &AtomicU64) -> Option<Duration> {
    match value.load(Relaxed) {
        0 => None,
        micros => Some(Duration::from_micros(micros)),
    }
}

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
        let (used, window) = (self.usage.peak(), self.control.window());
        if self.control.in_slow_start() {
            2 * used < window
        } else {
            used + used / 4 < window
        }
    }

    /// Whether it tries how much the path holds: losses are then its own. A flow that asks for less
    /// than the window may never end its startup, and what it loses the path loses.
    fn overflows(&self) -> bool {
        let (used, window) = (self.usage.peak(), self.control.window());
        self.control.in_slow_start() && used + used / 4 >= window
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
            let rtt = self.state.way_back.take_off(rtt.max(least), least);
            self.state.note_round_trip(rtt);
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
            rtt: self.state.way_back.take_off(acked.rtt.max(least), least),
            ..acked
        });
        self.state.way_back.smooth();
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

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, _: Instant) {
        let lost = u64::from(lost_bytes);
        let left = self.in_flight().saturating_sub(lost);
        self.state.in_flight.store(left, Relaxed);
        self.delivery.on_lost(pn, lost);
        if self.sizes.excuses(lost) {
            self.lost_by_size += lost;
        }
        self.state.ledger().on_lost(pn, self.overflows());
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
            delivery: self.delivery.clone(),
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

/// The most bytes that were in flight during this round trip and the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    newest_sent: u64,
    round_ends: u64,
    this_round: u64,
    last_round: u64,
}

impl Usage {
    fn on_sent(&mut self, pn: u64, in_flight: u64) {
        self.newest_sent = pn;
        self.this_round = self.this_round.max(in_flight);
    }

    fn on_ack(&mut self, pn: u64, in_flight: u64) {
        if pn >= self.round_ends {
            self.round_ends = self.newest_sent + 1;
            self.last_round = self.this_round;
            self.this_round = in_flight;
        }
    }

    fn peak(&self) -> u64 {
        self.this_round.max(self.last_round)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> (Box<dyn Controller>, Arc<GateState>) {
        let factory = Arc::new(GateFactory(Congestion::Cubic));
        let controller = factory.build(Instant::now(), 1200);
        let state = Gate::state_of(controller.as_ref()).unwrap();
        (controller, state)
    }

    #[test]
    fn a_closed_gate_shows_a_window_too_small_to_send() {
        let (controller, state) = gate();
        assert_eq!(controller.window(), 12_000);
        state.set_open(false);
        assert_eq!(controller.window(), 1);
        assert_eq!(controller.metrics().congestion_window, ENDLESS);
        assert_eq!(state.window(), 12_000);
    }

    #[test]
    fn bytes_in_flight_follow_what_is_sent_lost_and_acknowledged() {
        let (mut controller, state) = gate();
        let now = Instant::now();
        for pn in 0..4 {
            controller.on_packet_sent(now, 1200, pn);
        }
        assert_eq!(state.room(), 12_000 - 4800);
        controller.on_packet_lost(1200, 0, now);
        assert_eq!(state.room(), 12_000 - 3600);
        controller.on_end_acks(now, 1200, false, Some(3));
        assert_eq!(state.room(), 12_000 - 1200);
    }

    #[test]
    fn what_is_known_to_be_lost_takes_no_room() {
        let (mut controller, state) = gate();
        let start = Instant::now();
        controller.on_congestion_event(start, start, false, false, 1200, 0);
        assert!(!state.is_in_slow_start());
        let sent = |pn| start + Duration::from_millis(10) * pn as u32;
        for pn in 1..=3 {
            state.ledger().stage(Payload {
                bytes: vec![0; 1100].into(),
                first_sent: start,
                repeats: 0,
            });
            controller.on_packet_sent(sent(pn), 1200, pn);
        }
        assert_eq!(state.room(), state.window() - 3600);
        let now = sent(3) + Duration::from_millis(20);
        state.ledger().on_acked(3, sent(3), now);
        controller.on_end_acks(now, 2400, false, Some(3));
        // noq still counts the two that were overtaken.
        assert_eq!((state.in_flight(), state.room()), (2400, state.window()));
        assert_eq!(controller.window(), state.window() + 2400);
        controller.on_packet_lost(1200, 1, now);
        controller.on_packet_lost(1200, 2, now);
        controller.on_congestion_event(now, sent(2), false, false, 2400, 2);
        assert_eq!((state.in_flight(), state.room()), (0, state.window()));
        assert_eq!(controller.window(), state.window());
    }

    #[test]
    fn another_controller_takes_over() {
        let (mut controller, state) = gate();
        let now = Instant::now();
        state.set_congestion(Congestion::Cubic);
        controller.on_end_acks(now, 0, false, None);
        assert_eq!(state.window(), 12_000);
        state.set_congestion(Congestion::Bbr);
        controller.on_end_acks(now, 0, false, None);
        assert_eq!((controller.window(), state.window()), (36_000, 36_000));
        let runs = state.choice().map(|choice| choice.controller);
        assert_eq!(runs, Some(Congestion::Bbr));
    }

    #[test]
    fn the_floor_holds_for_noq_and_for_the_driver() {
        let (controller, state) = gate();
        state.set_floor(20_000);
        assert_eq!((controller.window(), state.window()), (20_000, 20_000));
        state.set_open(false);
        assert_eq!(controller.window(), 1);
    }

    #[test]
    fn a_frozen_window_does_not_shrink() {
        let (mut controller, state) = gate();
        let now = Instant::now();
        state.set_frozen(true);
        controller.on_congestion_event(now, now, true, false, 12_000, 9);
        assert_eq!(state.window(), 12_000);
        state.set_frozen(false);
        controller.on_congestion_event(now, now, true, false, 12_000, 9);
        assert_eq!(state.window(), 2400);
    }

    #[test]
    fn the_peak_of_two_rounds_is_remembered() {
        let mut usage = Usage::default();
        usage.on_sent(0, 1000);
        usage.on_sent(1, 2000);
        usage.on_ack(0, 1000);
        assert_eq!(usage.peak(), 2000);
        usage.on_sent(2, 1500);
        usage.on_ack(2, 0);
        assert_eq!(usage.peak(), 1500);
    }
}
