//! What the driver sets and reads of a path's controller, which lives inside noq.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sennit_core::Congestion;

use super::{Ledger, SizeSource, return_delay::ReturnDelay};
use crate::congestion::Choice;

/// The driver's view of one path's controller, shared with the controller inside noq.
#[derive(Debug, Default)]
pub(crate) struct GateState {
    pub(super) open: AtomicBool,
    pub(super) in_flight: AtomicU64,
    /// Bytes of it that are lost or have arrived, some time before noq says so: no reason to send
    /// less.
    pub(super) settled: AtomicU64,
    pub(super) window: AtomicU64,
    /// Bytes per second, or 0 if the controller does not compute a rate.
    pub(super) pacing_rate: AtomicU64,
    pub(super) delivery_rate: AtomicU64,
    pub(super) best_rate: AtomicU64,
    /// The driver has no more for this path: until it has, samples of the rate are lower bounds.
    pub(super) limited: AtomicBool,
    pub(super) slow_start: AtomicBool,
    /// Little is in flight on purpose.
    pub(super) empties: AtomicBool,
    pub(super) known: AtomicBool,
    pub(super) srtt_micros: AtomicU64,
    pub(super) min_rtt_micros: AtomicU64,
    /// The least round trip since somebody asked, or 0.
    pub(super) round_trip_micros: AtomicU64,
    /// By how much the round trip was longer than the least that is measured now, and one more; 0
    /// if none is.
    pub(super) excess_micros: AtomicU64,
    pub(super) held_up_micros: AtomicU64,
    /// Bytes per second at which the first packets that left at once arrived; 0 before.
    pub(super) opening_rate: AtomicU64,
    pub(super) return_delay: ReturnDelay,
    pub(super) waited_micros: AtomicU64,
    /// What waited, smoothed as a round trip is (RFC 9002 §5.3).
    pub(super) waits_micros: AtomicU64,
    /// The window is never taken for less than this.
    pub(super) floor: AtomicU64,
    /// Losses are not news of congestion for now.
    pub(super) frozen: AtomicBool,
    /// Some path was frozen or thawed since the last acknowledgement.
    pub(super) rerouted: AtomicBool,
    /// The largest packet that the path is known to carry, that should be tried (0: none), and that
    /// its interface sends (0: not known).
    pub(super) carries: AtomicU64,
    pub(super) probing: AtomicU64,
    pub(super) interface: AtomicU64,
    pub(super) size_source: Mutex<SizeSource>,
    pub(super) small: AtomicBool,
    /// The peer found the path to be smaller than it was, in its direction.
    pub(super) doubted: AtomicBool,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) choice: Mutex<Option<Choice>>,
    /// The controller that is to take over.
    pub(super) wanted: Mutex<Option<Congestion>>,
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

    /// Whether little is in flight on purpose, so that the least round trip shows.
    pub(crate) fn empties(&self) -> bool {
        self.empties.load(Relaxed)
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

    /// Bytes in flight without those of which it is known that they have arrived or are lost
    /// although no acknowledgement says so yet.
    pub(crate) fn under_way(&self) -> u64 {
        self.in_flight().saturating_sub(self.settled.load(Relaxed))
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
    pub(super) fn note_round_trip(&self, rtt: Duration) {
        let rtt = (rtt.as_micros() as u64).max(1);
        let least = match self.round_trip_micros.load(Relaxed) {
            0 => rtt,
            least => least.min(rtt),
        };
        self.round_trip_micros.store(least, Relaxed);
    }

    /// A round trip was longer than the least by so much.
    pub(super) fn note_excess(&self, excess: Duration) {
        self.excess_micros
            .store(excess.as_micros() as u64 + 1, Relaxed);
    }

    /// By how much the round trip was longer than the least, wherever it was held up, that the
    /// acknowledgements show which arrived last, if they show any.
    pub(crate) fn excess(&self) -> Option<Duration> {
        let excess = self.excess_micros.load(Relaxed).checked_sub(1)?;
        Some(Duration::from_micros(excess))
    }

    /// How far apart acknowledgements come because somebody holds them up.
    pub(crate) fn held_up(&self) -> Duration {
        Duration::from_micros(self.held_up_micros.load(Relaxed))
    }

    /// Smoothed round trip until this host reads of it, had its acknowledgements come by the
    /// quickest way.
    pub(crate) fn rtt_ahead(&self) -> Option<Duration> {
        let ahead = self.srtt()?.saturating_sub(self.return_delay.smoothed());
        let waits = Duration::from_micros(self.waits_micros.load(Relaxed));
        Some(ahead.max(self.min_rtt().unwrap_or_default()) + waits)
    }

    /// The acknowledgements that arrive now are so late.
    pub(crate) fn set_acks_late(&self, late: Duration) {
        self.return_delay.set(late);
        self.excess_micros.store(0, Relaxed);
    }

    /// How late the acknowledgements were that arrived last, as far as their round trip shows it.
    pub(crate) fn acks_late(&self) -> Duration {
        self.return_delay.last()
    }

    /// The acknowledgements that are read now arrived so long ago.
    pub(crate) fn set_waited(&self, waited: Duration) {
        self.waited_micros.store(waited.as_micros() as u64, Relaxed);
    }

    /// A round trip was measured.
    pub(super) fn smooth_waits(&self) {
        let (now, smoothed) = (
            self.waited_micros.load(Relaxed),
            self.waits_micros.load(Relaxed),
        );
        self.waits_micros.store((7 * smoothed + now) / 8, Relaxed);
    }

    /// When an acknowledgement is read that arrived at `arrived`.
    pub(super) fn read_at(&self, arrived: Instant) -> Instant {
        arrived + Duration::from_micros(self.waited_micros.load(Relaxed))
    }

    /// Still looking for what the path carries, and not for want of something to send.
    pub(crate) fn starts(&self) -> bool {
        self.is_in_slow_start() && 2 * self.in_flight() >= self.window()
    }

    /// Bytes in flight that are no reason to send less: the ledger knows that they are `lost`, or
    /// they have arrived, and their acknowledgements are late, or wait here to be read.
    pub(super) fn settled(&self, lost: u64) -> u64 {
        let waits = Duration::from_micros(self.waits_micros.load(Relaxed)).as_secs_f64();
        let rate = self.delivery_rate.load(Relaxed);
        lost + self.return_delay.unheard(rate) + (rate as f64 * waits) as u64
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
