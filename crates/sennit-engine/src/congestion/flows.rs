//! Flows over one link with one queue, in virtual time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{Ack, CongestionEvent, Control, Delivery};
use crate::acks::{ACK_DELAY, ACK_PACKETS};

pub(super) const MTU: u64 = 1400;
const STEP: Duration = Duration::from_micros(100);

/// A busy host is away for this long, on average.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Bytes per second.
    pub(super) rate: f64,
    pub(super) rtt: Duration,
    /// Bytes that may wait for the link.
    pub(super) buffer: u64,
    /// Part of the packets that are lost at random, 0 to 1.
    pub(super) loss: f64,
    /// Packets in a row that are lost then.
    pub(super) burst: u32,
    /// It is a busy host: it delivers nothing for this part of the time, 0 to 1, in pauses of a
    /// millisecond or so.
    pub(super) pauses: f64,
    /// The far end acknowledges as seldom as it was told to, and not at once.
    pub(super) seldom: bool,
}

/// Mbit/s, ms, and how many ms of packets may wait.
pub(super) fn link(rate: f64, rtt: u64, buffer: f64) -> Link {
    Link {
        rate: mbit(rate),
        rtt: Duration::from_millis(rtt),
        buffer: (mbit(rate) * buffer / 1000.0) as u64,
        loss: 0.0,
        burst: 1,
        pauses: 0.0,
        seldom: false,
    }
}

/// In bytes per second.
pub(super) fn mbit(rate: f64) -> f64 {
    rate * 1e6 / 8.0
}

/// A sender and its controller.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) control: Box<dyn Control>,
    /// Bytes per second that there are to send.
    demand: f64,
    delivery: Delivery,
    next_pn: u64,
    in_flight: u64,
    /// Bytes that may leave by the pacing rate, and that there are.
    credit: f64,
    supply: f64,
    earned: Instant,
    /// When acknowledgements arrive, and whether the packet was lost instead; when it left.
    coming: VecDeque<(Instant, u64, bool, Instant)>,
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

#[derive(Debug)]
pub(super) struct Flows {
    pub(super) link: Link,
    pub(super) flows: Vec<Flow>,
    pub(super) now: Instant,
    /// When the link has sent all it holds.
    busy_until: Instant,
    /// Packets that will be lost in a row.
    losing: u32,
    seed: u32,
    queued: Vec<Duration>,
    paused_until: Instant,
}

impl Flow {
    fn new(control: Box<dyn Control>, now: Instant) -> Self {
        Self {
            control,
            demand: f64::INFINITY,
            delivery: Delivery::new(now),
            next_pn: 0,
            in_flight: 0,
            credit: 0.0,
            supply: 0.0,
            earned: now,
            coming: VecDeque::new(),
            delivered: 0,
            lost: 0,
        }
    }

    /// Earns a step's credit.
    fn earn(&mut self, rtt: Duration, now: Instant) {
        let paced = match self.control.pacing_rate() {
            Some(rate) => rate as f64,
            None => 1.25 * self.control.window() as f64 / rtt.as_secs_f64(),
        };
        let step = now.saturating_duration_since(self.earned).as_secs_f64();
        self.earned = now;
        // As much as is made up for by the driver's pacer if it wakes up late.
        self.credit = (self.credit + paced * step).min(paced * step.max(0.001) + 2.0 * MTU as f64);
        self.supply = (self.supply + self.demand * step).min(1e12);
    }

    fn may_send(&self) -> bool {
        self.credit.min(self.supply) >= MTU as f64 && self.in_flight + MTU <= self.control.window()
    }

    /// Whether the far end has heard enough to acknowledge, or waited long enough.
    fn is_told(&self, now: Instant) -> bool {
        let is_due = |place: usize, after| {
            let entry = self.coming.get(place);
            entry.is_some_and(|entry| entry.0 + after <= now)
        };
        is_due(0, ACK_DELAY) || is_due(ACK_PACKETS as usize - 1, Duration::ZERO)
    }

    fn receive(&mut self, now: Instant) {
        let mut lost: Option<CongestionEvent> = None;
        while let Some((_, pn, is_lost, sent)) = self.coming.pop_front_if(|entry| entry.0 <= now) {
            self.in_flight -= MTU;
            if is_lost {
                self.delivery.on_lost(pn, MTU);
                self.lost += MTU;
                lost = Some(CongestionEvent {
                    sent,
                    lost: lost.map_or(0, |event| event.lost) + MTU,
                    persistent: false,
                    marked: false,
                });
            } else {
                self.delivery.on_acked(pn, MTU, sent, now);
                self.delivered += MTU;
            }
        }
        let ack = Ack {
            acked: self.delivery.end_batch(now),
            in_flight: self.in_flight,
            window_unused: self.demand.is_finite() && 2 * self.in_flight < self.control.window(),
        };
        self.control.on_ack(&ack, now);
        if let Some(event) = lost {
            self.control.on_congestion(&event, now);
        }
    }
}

impl Flows {
    pub(super) fn new(link: Link, now: Instant) -> Self {
        Self {
            link,
            flows: Vec::new(),
            now,
            busy_until: now,
            losing: 0,
            seed: 1,
            queued: Vec::new(),
            paused_until: now,
        }
    }

    pub(super) fn add(&mut self, control: Box<dyn Control>) {
        self.flows.push(Flow::new(control, self.now));
    }

    /// A flow has only so many bytes per second to send from now on.
    pub(super) fn set_demand(&mut self, index: usize, demand: f64) {
        let flow = &mut self.flows[index];
        (flow.demand, flow.supply) = (demand, 0.0);
    }

    pub(super) fn run(&mut self, time: Duration) {
        for flow in &mut self.flows {
            (flow.delivered, flow.lost) = (0, 0);
        }
        self.queued.clear();
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            self.pause();
            for index in 0..self.flows.len() {
                let flow = &mut self.flows[index];
                if !self.link.seldom || flow.is_told(self.now) {
                    flow.receive(self.now);
                }
                self.flows[index].earn(self.link.rtt, self.now);
                self.send(index);
            }
        }
        self.queued.sort_unstable();
    }

    /// What each flow got of the link in `time`, and the median time that packets stood in its
    /// queue.
    pub(super) fn shares(&mut self, time: Duration) -> (Vec<f64>, Duration) {
        self.run(time);
        let all = self.link.rate * time.as_secs_f64();
        let shares = self.flows.iter().map(|flow| flow.delivered as f64 / all);
        (shares.collect(), self.queued[self.queued.len() / 2])
    }

    /// How long each packet of the last run stood in the queue.
    pub(super) fn queued(&self) -> &[Duration] {
        &self.queued
    }

    fn send(&mut self, index: usize) {
        while self.flows[index].may_send() {
            let unlucky = self.is_unlucky();
            let standing = self.busy_until.saturating_duration_since(self.now);
            let full = standing.as_secs_f64() * self.link.rate > self.link.buffer as f64;
            if !full {
                self.queued.push(standing);
                let transmission = Duration::from_secs_f64(MTU as f64 / self.link.rate);
                self.busy_until = self.busy_until.max(self.now) + transmission;
            }
            let at = self.busy_until.max(self.now) + self.link.rtt;
            let flow = &mut self.flows[index];
            flow.credit -= MTU as f64;
            flow.supply -= MTU as f64;
            let limited = flow.supply < MTU as f64;
            flow.delivery
                .on_sent(flow.next_pn, MTU, flow.in_flight, limited, self.now);
            flow.in_flight += MTU;
            flow.coming
                .push_back((at, flow.next_pn, unlucky || full, self.now));
            flow.next_pn += 1;
        }
    }

    fn pause(&mut self) {
        let often = STEP.as_secs_f64() / PAUSE.as_secs_f64() * self.link.pauses;
        if self.random() < often / (1.0 - self.link.pauses) && self.now >= self.paused_until {
            let pause = PAUSE.mul_f64(2.0 * self.random());
            self.paused_until = self.now + pause;
            self.busy_until = self.busy_until.max(self.now) + pause;
        }
    }

    fn is_unlucky(&mut self) -> bool {
        if self.losing == 0 {
            let bursts = self.link.loss / f64::from(self.link.burst);
            if self.random() >= bursts / (1.0 - self.link.loss + bursts) {
                return false;
            }
            self.losing = self.link.burst;
        }
        self.losing -= 1;
        true
    }

    /// 0 to 1.
    fn random(&mut self) -> f64 {
        self.seed = self
            .seed
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        f64::from(self.seed >> 8) / f64::from(1 << 24)
    }
}
