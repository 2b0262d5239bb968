//! Congestion control of one path.
//!
//! A [`Control`] sees what the [gate](crate::gate) makes of noq's callbacks: one [`Ack`] per batch of
//! acknowledgements, with a delivery-rate sample that knows whether the driver had more to send.
//! It answers with a window and, if it models the path, a pacing rate.
//!
//! | word | controller |
//! | --- | --- |
//! | `cubic` | noq's CUBIC (RFC 9438): fills the buffer of the link until it overflows |
//! | `bbr` | [`Bbr`], blind to loss: for links that lose packets whatever they are sent |
//! | `bbr3` | [`Bbr`] that also yields to loss above the link's own |
//! | `auto` | `bbr3` |
//!
//! `auto` needs no switch between controllers, because the two things that make one or the other
//! fail are measured inside: the loss that a path shows while its delay is low is taken for its own
//! and tolerated; its delay is kept low by pacing at what it delivers.

mod bbr;
mod delivery;

use std::{
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory, CubicConfig},
};
use sennit_core::Congestion;

use self::bbr::{Bbr, OnLoss};
pub(crate) use self::delivery::{Acked, Delivery};

/// Limits what one path may carry.
pub(crate) trait Control: Debug + Send + Sync {
    /// A packet left.
    fn on_sent(&mut self, pn: u64, bytes: u16, now: Instant);
    /// noq's own view of one acknowledged packet, for controllers of noq's.
    fn on_packet_acked(&mut self, _: &PacketAck<'_>) {}
    /// A batch of acknowledgements was digested.
    fn on_ack(&mut self, ack: &Ack, now: Instant);
    /// Packets were lost, or the network marked some.
    fn on_congestion(&mut self, event: &CongestionEvent, now: Instant);
    /// What was taken for lost had only been late.
    fn on_spurious_loss(&mut self) {}
    /// Acknowledgements come another way from now on, so the round trip is another.
    fn on_route_change(&mut self) {}
    /// The path carries packets of another size from now on.
    fn on_mtu(&mut self, mtu: u16);
    /// Bytes that may be in flight.
    fn window(&self) -> u64;
    /// Bytes per second at which to send, once known.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    /// Bytes per second that the path is known to deliver.
    fn delivery_rate(&self) -> Option<u64> {
        None
    }
    /// Whether the window doubles every round trip.
    fn in_slow_start(&self) -> bool {
        false
    }
    /// A copy of the state, for a path that moves.
    fn clone_box(&self) -> Box<dyn Control>;
}

/// One acknowledged packet.
pub(crate) struct PacketAck<'a> {
    pub(crate) pn: u64,
    pub(crate) bytes: u64,
    pub(crate) sent: Instant,
    pub(crate) now: Instant,
    pub(crate) window_unused: bool,
    pub(crate) rtt: &'a RttEstimator,
}

/// What a batch of acknowledgements says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// The delivery that it confirms; `None` if it covers nothing that was sent lately.
    pub(crate) acked: Option<Acked>,
    /// Bytes still in flight.
    pub(crate) in_flight: u64,
    pub(crate) largest: Option<u64>,
    /// The window was far from used.
    pub(crate) window_unused: bool,
}

/// Packets were lost or marked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionEvent {
    /// When the newest of them was sent.
    pub(crate) sent: Instant,
    pub(crate) largest: u64,
    /// Zero for a mark.
    pub(crate) lost: u64,
    pub(crate) persistent: bool,
    pub(crate) marked: bool,
}

/// A fresh controller by its name in the configuration.
pub(crate) fn build(word: Congestion, mtu: u16, now: Instant) -> Box<dyn Control> {
    match word {
        Congestion::Cubic => Box::new(Cubic(Arc::new(CubicConfig::default()).build(now, mtu))),
        Congestion::Bbr => Box::new(Bbr::new(OnLoss::Ignore, mtu, now)),
        Congestion::Bbr3 | Congestion::Auto => Box::new(Bbr::new(OnLoss::Yield, mtu, now)),
    }
}

/// noq's CUBIC.
#[derive(Debug)]
struct Cubic(Box<dyn Controller>);

impl Control for Cubic {
    fn on_sent(&mut self, pn: u64, bytes: u16, now: Instant) {
        self.0.on_packet_sent(now, bytes, pn);
    }

    fn on_packet_acked(&mut self, ack: &PacketAck<'_>) {
        self.0.on_ack(
            ack.now,
            ack.sent,
            ack.bytes,
            ack.pn,
            ack.window_unused,
            ack.rtt,
        );
    }

    fn on_ack(&mut self, ack: &Ack, now: Instant) {
        self.0
            .on_end_acks(now, ack.in_flight, ack.window_unused, ack.largest);
    }

    fn on_congestion(&mut self, event: &CongestionEvent, now: Instant) {
        self.0.on_congestion_event(
            now,
            event.sent,
            event.persistent,
            event.marked,
            event.lost,
            event.largest,
        );
    }

    fn on_spurious_loss(&mut self) {
        self.0.on_spurious_congestion_event();
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.0.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.0.window()
    }

    fn in_slow_start(&self) -> bool {
        let threshold = self.0.metrics().ssthresh;
        threshold.is_some_and(|threshold| self.0.window() < threshold)
    }

    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(Self(self.0.clone_box()))
    }
}

/// The greatest value of a sliding window of time, in constant space: the three best candidates, each
/// younger than the one before.
#[derive(Clone, Copy, Debug)]
struct WindowedMax {
    window: Duration,
    best: [(Instant, u64); 3],
}

impl WindowedMax {
    fn new(window: Duration, now: Instant) -> Self {
        Self {
            window,
            best: [(now, 0); 3],
        }
    }

    fn get(&self) -> u64 {
        self.best[0].1
    }

    fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    fn insert(&mut self, value: u64, now: Instant) {
        let fresh = (now, value);
        let age = |at: Instant| now.saturating_duration_since(at);
        if value >= self.best[0].1 || age(self.best[2].0) > self.window {
            self.best = [fresh; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best = [self.best[0], fresh, fresh];
        } else if value >= self.best[2].1 {
            self.best[2] = fresh;
        }
        while age(self.best[0].0) > self.window {
            self.best = [self.best[1], self.best[2], fresh];
        }
        // A part of the window in which nothing better came yields a candidate of its own.
        if self.best[1].0 == self.best[0].0 && age(self.best[1].0) > self.window / 4 {
            self.best = [self.best[0], fresh, fresh];
        } else if self.best[2].0 == self.best[1].0 && age(self.best[2].0) > self.window / 2 {
            self.best[2] = fresh;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_windowed_maximum_forgets_what_is_older_than_its_window() {
        let start = Instant::now();
        let mut max = WindowedMax::new(Duration::from_millis(100), start);
        let mut values = std::collections::VecDeque::new();
        let mut seed = 7_u64;
        for step in 0..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let now = start + Duration::from_millis(step);
            let value = seed >> 50;
            values.push_back((now, value));
            values.retain(|(at, _)| now.duration_since(*at) <= Duration::from_millis(100));
            max.insert(value, now);
            let exact = values.iter().map(|(_, value)| *value).max().unwrap();
            assert!(max.get() <= exact && max.get() >= exact / 2, "step {step}");
        }
        max.insert(3, start + Duration::from_secs(60));
        assert_eq!(max.get(), 3);
    }
}
