//! What may be sent by what is known of a path.

use std::time::Duration;

use super::{MOST_HELD, Model};
use crate::acks::{ACK_DELAY, ACK_PACKETS};

/// Sent this much below the rate, so that the queue never grows by rounding (draft §2.4).
const PACING_MARGIN: f64 = 0.99;
/// Packets that may be in flight before anything is known: three connections that start at the
/// initial window of their own (RFC 6928), each of which would take a queue for a full link.
const INITIAL_PACKETS: u64 = 30;
/// Packets that may be in flight at least, whatever is known.
const MIN_PACKETS: u64 = 4;
/// What the first packets show of the path's rate bounds what may be in flight in startup to so
/// many round trips of it, and so much time more: it would overflow next (docs/decisions/0014).
const TRAIN_ROUNDS: f64 = 1.5;
const TRAIN_MORE: Duration = Duration::from_millis(10);
/// Trains bound startup to this many times what the path delivers at least (draft §2.5): where
/// acknowledgements are held up, it seems slower.
const TRAIN_GAIN: f64 = 2.0;
/// In startup the window leaves within this part of the round trip, or this time.
const STARTUP_BURSTS: u32 = 8;
const MIN_BURST: Duration = Duration::from_millis(1);
/// On a path as long as this it leaves no faster than so many times what its first packets show of
/// its rate: the burst of a whole window overflows a queue that holds a part of one.
const LONG: Duration = Duration::from_millis(150);
/// A little more than the rate that the first packets show, which may be too little.
const TRAIN_PACE: f64 = 1.25;
/// What the driver hands over in one go, as time at the pacing rate; twice that much is in flight
/// beyond the model, so that the window is never what makes a batch small.
const QUANTUM: Duration = Duration::from_millis(1);

impl Model {
    /// In bytes.
    pub(in crate::congestion) fn initial_window(&self) -> u64 {
        INITIAL_PACKETS * self.mtu
    }

    /// In bytes.
    pub(in crate::congestion) fn least_window(&self) -> u64 {
        MIN_PACKETS * self.mtu
    }

    /// What the driver may have in flight beyond the model, in bytes.
    pub(in crate::congestion) fn slack(&self) -> u64 {
        2 * self.sent_in(QUANTUM).max(2 * self.mtu) + self.untold()
    }

    /// What the far end has and does not tell of yet is in flight too, in bytes. Without room for
    /// it, a path of few packets waits for the next acknowledgement, and that wait lowers its rate
    /// further.
    fn untold(&self) -> u64 {
        let soon = u64::from(ACK_PACKETS) * self.mtu;
        self.sent_in(ACK_DELAY).min(soon)
    }

    /// How much more than that is acknowledged in one go, in bytes.
    pub(super) fn held(&self) -> u64 {
        self.aggregation.extra().saturating_sub(self.untold())
    }

    /// How much more is acknowledged in one go, as time at the path's rate.
    pub(in crate::congestion) fn held_up(&self) -> Duration {
        let held = self.held() as f64 / self.rate().max(1) as f64;
        Duration::from_secs_f64(held).min(MOST_HELD)
    }

    /// Bytes.
    pub(super) fn sent_in(&self, time: Duration) -> u64 {
        (self.rate() as f64 * time.as_secs_f64()) as u64
    }

    /// The window that follows `window` when `acked` bytes were acknowledged.
    pub(in crate::congestion) fn window(&self, gain: f64, window: u64, acked: u64) -> u64 {
        if self.rate() == 0 || self.min_rtt.is_none() {
            return window;
        }
        // The gain has room for that much already.
        let spare = self.bdp(gain - 1.0);
        let target = self.bdp(gain) + self.slack() + self.held().saturating_sub(spare);
        // Before the path is full, the model lags behind.
        if self.full.reached {
            target
        } else {
            let grown = target.max(window + if target > window { acked } else { 0 });
            grown.min(self.most_in_startup().unwrap_or(grown))
        }
    }

    /// What may be in flight in startup, if the path's rate shows already.
    fn most_in_startup(&self) -> Option<u64> {
        let time = self.min_rtt().mul_f64(TRAIN_ROUNDS) + TRAIN_MORE;
        let fits = (self.train as f64 * time.as_secs_f64()) as u64;
        let doubled = self.bdp(TRAIN_GAIN);
        (self.train > 0).then(|| fits.max(doubled).max(self.initial_window()))
    }

    /// Bytes per second at which to send.
    pub(in crate::congestion) fn pacing_rate(&self, gain: f64, window: u64) -> Option<u64> {
        self.delivery_rate()?;
        let paced = PACING_MARGIN * gain * self.takes();
        // Of a long path the few packets of a handshake say little: there were no more to send.
        let is_tried = self.min_rtt() < LONG || self.delivered >= self.initial_window();
        if self.full.reached || is_tried && !self.limited {
            return Some(paced as u64);
        }
        // So far the rate says what came and not what fits. What starts inside sends in bursts, and
        // would take a queue here for a full link (RFC 9406): the window may leave at once.
        let soon = (self.min_rtt() / STARTUP_BURSTS).max(MIN_BURST);
        let burst = window as f64 / soon.as_secs_f64();
        let is_bound = self.train > 0 && self.min_rtt() >= LONG;
        let burst = if is_bound {
            burst.min(TRAIN_PACE * self.train as f64)
        } else {
            burst
        };
        Some(paced.max(burst) as u64)
    }

    pub(in crate::congestion) fn delivery_rate(&self) -> Option<u64> {
        Some(self.rate()).filter(|&rate| rate > 0)
    }
}
