//! quinn's congestion controllers, one of which can take the place of the other while a connection
//! lives: what a client plans is known to a server only after the handshake.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use quinn_proto::{
    RttEstimator,
    congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig},
};
use sennit_core::Congestion;

/// Which of them a connection is to have; CUBIC unless somebody wants the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    pub(super) fn new(word: Congestion) -> Self {
        let wanted = Self::default();
        wanted.set(word);
        wanted
    }

    /// quinn has no other than these two, and it takes CUBIC by itself.
    pub(super) fn set(&self, word: Congestion) {
        self.0.store(word == Congestion::Bbr, Ordering::Relaxed);
    }

    fn is_bbr(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn name(&self) -> &'static str {
        match self.is_bbr() {
            true => "bbr",
            false => "cubic",
        }
    }

    fn build(&self, now: Instant, mtu: u16) -> Running {
        let is_bbr = self.is_bbr();
        let controller = match is_bbr {
            true => Arc::new(BbrConfig::default()).build(now, mtu),
            false => Arc::new(CubicConfig::default()).build(now, mtu),
        };
        Running {
            wanted: self.clone(),
            is_bbr,
            controller,
            mtu,
        }
    }
}

impl ControllerFactory for Wanted {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Self::build(&self, now, mtu))
    }
}

/// The one that runs, until another one is wanted.
struct Running {
    wanted: Wanted,
    is_bbr: bool,
    controller: Box<dyn Controller>,
    mtu: u16,
}

impl Controller for Running {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        if self.is_bbr != self.wanted.is_bbr() {
            *self = self.wanted.build(now, self.mtu);
        }
        self.controller.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.controller.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.controller
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.controller
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.controller.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            wanted: self.wanted.clone(),
            is_bbr: self.is_bbr,
            controller: self.controller.clone_box(),
            mtu: self.mtu,
        })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
