//! CUBIC (RFC 9438): fills the queue of the path until it overflows, as most of the internet does.
//!
//! Its window is not paced by a model; the driver sends it a little faster than once per round
//! trip.

use std::time::{Duration, Instant};

use super::{Ack, CongestionEvent, Control};

/// Packets at the start, and bytes they are at most (RFC 9002 §7.2).
const INITIAL_PACKETS: u64 = 10;
const INITIAL: u64 = 14_720;
/// Packets that the window has at least, whatever was lost.
const MIN_PACKETS: f64 = 2.0;
/// How fast the window grows, in packets per cubic second (RFC 9438 §5.1).
const C: f64 = 0.4;
/// What a loss leaves of the window (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// Packets per round trip by which Reno would grow if it kept as much (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window grows no faster than by half per round trip (RFC 9438 §4.4).
const MAX_GROWTH: f64 = 1.5;

/// One path's window.
#[derive(Clone, Debug)]
pub(super) struct Cubic {
    /// Bytes in a packet.
    packet: f64,
    state: State,
    /// What it was before the last loss, which may turn out to have been none.
    before: Option<State>,
    /// Up to then it is known how long the window was not used.
    seen: Option<Instant>,
}

/// In bytes.
#[derive(Clone, Copy, Debug)]
struct State {
    window: f64,
    /// Below this it doubles every round trip.
    threshold: f64,
    /// The window before the last reduction.
    most: f64,
    /// What Reno would have by now.
    reno: f64,
    reduced: Option<Instant>,
    /// How long the window was not used since then, in which it does not grow (RFC 9438 §4.2).
    unused: Duration,
}

impl Cubic {
    pub(super) fn new(mtu: u16) -> Self {
        let packet = u64::from(mtu);
        let initial = (INITIAL_PACKETS * packet).min(INITIAL.max(2 * packet));
        Self {
            packet: f64::from(mtu),
            state: State {
                window: initial as f64,
                threshold: f64::INFINITY,
                most: 0.0,
                reno: 0.0,
                reduced: None,
                unused: Duration::ZERO,
            },
            before: None,
            seen: None,
        }
    }

    /// Takes over a path with `window` bytes in flight and doubles that up to `share`, which it
    /// takes for what a loss has left.
    pub(super) fn resume(window: u64, share: u64, mtu: u64, now: Instant) -> Self {
        let packet = mtu as f64;
        let window = (window as f64).max(MIN_PACKETS * packet);
        let share = window.max(share as f64);
        Self {
            packet,
            state: State {
                window,
                threshold: share,
                most: share / BETA,
                reno: share,
                reduced: Some(now),
                unused: Duration::ZERO,
            },
            before: None,
            seen: Some(now),
        }
    }

    /// A packet that left at `sent` tells nothing of the window since the last reduction.
    fn is_recovering(&self, sent: Instant) -> bool {
        self.state.reduced.is_some_and(|reduced| sent <= reduced)
    }

    fn least(&self) -> f64 {
        MIN_PACKETS * self.packet
    }

    /// Time has passed, in which the window was or was not used.
    fn pass(&mut self, unused: bool, now: Instant) {
        let before = self.seen.replace(now).unwrap_or(now);
        if unused && self.state.reduced.is_some() {
            self.state.unused += now.saturating_duration_since(before);
        }
    }

    /// Grows for `acked` bytes; `ahead` is the time from the last reduction to when what is sent
    /// now will be acknowledged, as far as the window was used.
    fn avoid(&mut self, acked: f64, ahead: f64) {
        let packet = self.packet;
        let state = &mut self.state;
        let alpha = if state.reno < state.most { ALPHA } else { 1.0 };
        state.reno += alpha * packet * acked / state.window;
        let plateau = (state.most * (1.0 - BETA) / (C * packet)).cbrt();
        let cubic = state.most + C * packet * (ahead - plateau).powi(3);
        let target = cubic.clamp(state.window, MAX_GROWTH * state.window);
        state.window += (target - state.window) * acked / state.window;
        state.window = state.window.max(state.reno);
    }
}

impl Control for Cubic {
    fn on_restart(&mut self, now: Instant) {
        self.pass(true, now);
    }

    fn on_ack(&mut self, ack: &Ack, now: Instant) {
        self.pass(ack.window_unused, now);
        let Some(acked) = ack.acked.filter(|_| !ack.window_unused) else {
            return;
        };
        let bytes = acked.bytes as f64;
        if self.state.window < self.state.threshold {
            self.state.window += bytes;
            return;
        }
        let sent = now.checked_sub(acked.rtt);
        if sent.is_some_and(|sent| self.is_recovering(sent)) {
            return;
        }
        let reduced = *self.state.reduced.get_or_insert(now);
        let since = now.saturating_duration_since(reduced);
        let ahead = since.saturating_sub(self.state.unused) + acked.rtt;
        self.avoid(bytes, ahead.as_secs_f64());
    }

    fn on_congestion(&mut self, event: &CongestionEvent, now: Instant) {
        if self.is_recovering(event.sent) {
            return;
        }
        let least = self.least();
        self.before = (!event.marked).then_some(self.state);
        self.seen = Some(now);
        let state = &mut self.state;
        // Other flows shall have what this one gives up (RFC 9438 §4.7).
        state.most = if state.window < state.most {
            state.window * (1.0 + BETA) / 2.0
        } else {
            state.window
        };
        state.window = (BETA * state.window).max(least);
        state.threshold = state.window;
        state.reno = state.window;
        (state.reduced, state.unused) = (Some(now), Duration::ZERO);
        if event.persistent {
            // RFC 9002 §7.6.2.
            state.window = least;
            state.reduced = None;
        }
    }

    fn on_spurious_loss(&mut self) {
        if let Some(before) = self.before.take().filter(|b| b.window > self.state.window) {
            self.state = before;
        }
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.packet = f64::from(mtu);
        self.state.window = self.state.window.max(self.least());
    }

    fn window(&self) -> u64 {
        self.state.window as u64
    }

    fn in_slow_start(&self) -> bool {
        self.state.window < self.state.threshold
    }

    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Acked;

    const MTU: u16 = 1400;
    const RTT: Duration = Duration::from_millis(40);

    /// A quarter of what is in flight is acknowledged.
    fn ack(cubic: &mut Cubic, unused: bool, now: Instant) {
        let acked = Acked {
            bytes: cubic.window() / 4,
            total: 0,
            prior: 0,
            lost: 0,
            sampled: 0,
            interval: RTT,
            limited: unused,
            rtt: RTT,
            train: 0,
        };
        let ack = Ack {
            acked: Some(acked),
            in_flight: 0,
            window_unused: unused,
        };
        cubic.on_ack(&ack, now);
    }

    /// The window after so many round trips in which it is used, which follow a loss and what
    /// `pause` does meanwhile.
    fn window(round_trips: u32, pause: impl Fn(&mut Cubic, Instant) -> Instant) -> u64 {
        let start = Instant::now();
        let mut cubic = Cubic::new(MTU);
        while cubic.window() < 200 * u64::from(MTU) {
            ack(&mut cubic, false, start);
        }
        let event = CongestionEvent {
            sent: start,
            lost: u64::from(MTU),
            persistent: false,
            marked: false,
        };
        cubic.on_congestion(&event, start);
        let mut now = start + 2 * RTT;
        ack(&mut cubic, false, now);
        now = pause(&mut cubic, now);
        for _ in 0..4 * round_trips {
            now += RTT / 4;
            ack(&mut cubic, false, now);
        }
        cubic.window()
    }

    /// Ten minutes of it had the window grow by half in each round trip of what followed.
    #[test]
    fn the_window_does_not_grow_for_time_in_which_it_is_not_used() {
        let without = window(25, |_, now| now);
        let thin = window(25, |cubic, mut now| {
            for _ in 0..6000 {
                now += Duration::from_millis(100);
                ack(cubic, true, now);
            }
            now
        });
        let silent = window(25, |cubic, mut now| {
            now += Duration::from_secs(600);
            cubic.on_restart(now);
            now
        });
        assert_eq!((thin, silent), (without, without));
        // Otherwise this could not fail.
        let used = window(25, |_, now| now + Duration::from_secs(600));
        assert!(used > 4 * without, "{used} {without}");
    }
}
