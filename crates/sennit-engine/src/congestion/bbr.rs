//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00): the path's loss says nothing.
//!
//! | mode | pacing gain | window gain | ends |
//! | --- | --- | --- | --- |
//! | startup | 2.89 | 2.89 | when the rate no longer grows, a queue stands, or much is lost |
//! | drain | 1/2.89 | 2.89 | when the queue that startup made is gone |
//! | cycle | 1.25, 0.75, and six times 1 | 2 | never: each for the least round trip |
//! | probe rtt | 1 | 0.5 | after 200 ms, if the least round trip was not seen for 10 s |
//!
//! The first phase of the cycle lasts until a quarter more is in flight or something is lost, the
//! second ends as soon as no queue is left. Nothing is taken back in between while a queue stands:
//! beside others that fill the path's queue, this version holds its place and [`Bbr3`](super::bbr3)
//! gives way.
//!
//! Loss is ignored within reason. What a path loses whatever it is sent
//! ([`LossByPace`](super::loss)) is sent in addition, up to a quarter, because the path has room
//! for it: a rate measured by what arrives would fall with each probe that loses a fifth. What does
//! count: loss ends startup (what overflows there is more than half of what is sent) and the first
//! phase of the cycle; what a quarter more does not get through is not made up for; and when
//! nothing arrives for several timeouts (persistent congestion, RFC 9002 §7.6) the window starts at
//! four packets, and grows by what is acknowledged.
//!
//! Two things are not as in the draft. While the least round trip is measured, half of what fits
//! stays in flight instead of four packets: that empties the queue as well (draft-ietf-ccwg-bbr-06
//! §2.14.1), and for all the flows inside a tunnel four packets in 200 ms are an outage. And
//! startup also ends at a queue that stands, as [`Model`] says.

use std::time::{Duration, Instant};

use super::{
    Ack, Acked, CongestionEvent, Control,
    loss::{Manner, Pace},
    model::Model,
    probe_rtt::ProbeRtt,
    round::Round,
};

/// 2/ln 2: the least that doubles the rate every round trip (draft-00 §4.2.1).
const STARTUP_GAIN: f64 = 2.885;
/// Takes back in one round trip what startup put there.
const DRAIN_GAIN: f64 = 1.0 / STARTUP_GAIN;
/// Draft-00 §4.3.4.1.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const FIRST_EVEN: usize = 2;
const WINDOW_GAIN: f64 = 2.0;
const PROBE_RTT_GAIN: f64 = 0.5;
/// With this made up for, three of ten may be lost and a probe still delivers more than the rate.
const MADE_UP: f64 = 0.25;
/// From this phase of the cycle on nothing is heard of the first ones.
const SETTLED_PHASE: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Cycle { phase: usize, since: Instant },
    ProbeRtt(ProbeRtt),
}

/// One path's model and where it is in the cycle.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    model: Model,
    mode: Mode,
    window: u64,
}

impl Bbr {
    pub(super) fn new(mtu: u16, now: Instant) -> Self {
        let model = Model::new(mtu, now).making_up(MADE_UP);
        Self {
            mode: Mode::Startup,
            window: model.initial_window(),
            model,
        }
    }

    /// Takes over a path that is known.
    pub(super) fn resume(model: Model, window: u64) -> Self {
        Self {
            mode: if model.is_full() {
                Mode::Drain
            } else {
                Mode::Startup
            },
            window,
            model: model.making_up(MADE_UP),
        }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (STARTUP_GAIN, STARTUP_GAIN),
            Mode::Drain => (DRAIN_GAIN, STARTUP_GAIN),
            Mode::Cycle { phase, .. } => (CYCLE[phase], WINDOW_GAIN),
            Mode::ProbeRtt(_) => (1.0, PROBE_RTT_GAIN),
        }
    }

    fn pace(&self) -> Pace {
        match self.mode {
            Mode::Cycle { phase: 0, .. } => Pace::Faster,
            Mode::Cycle { phase: 1, .. } => Pace::Other,
            Mode::Cycle { .. } => Pace::Even,
            Mode::Startup | Mode::Drain | Mode::ProbeRtt(_) => Pace::Other,
        }
    }

    fn manner(&self, round: &Round) -> Manner {
        match self.mode {
            Mode::Cycle { phase, .. } if phase >= SETTLED_PHASE && round.queueless => Manner::Calm,
            Mode::Startup | Mode::Drain | Mode::Cycle { .. } | Mode::ProbeRtt(_) => Manner::Probing,
        }
    }

    fn advance(&mut self, acked: &Acked, in_flight: u64, round_ended: bool, now: Instant) {
        let fits = in_flight <= self.model.without_queue();
        match self.mode {
            Mode::Startup if self.model.is_full() => self.mode = Mode::Drain,
            Mode::Drain if fits => self.start_cycle(now),
            Mode::Cycle { phase, since } => {
                let lasted = now.saturating_duration_since(since) >= self.model.phase();
                let over = match CYCLE[phase] {
                    gain if gain > 1.0 => {
                        let full = self.model.is_filled(gain, in_flight, self.window);
                        lasted && (full || acked.lost > 0)
                    }
                    gain if gain < 1.0 => lasted || fits,
                    _ => lasted,
                };
                if over {
                    let phase = (phase + 1) % CYCLE.len();
                    self.mode = Mode::Cycle { phase, since: now };
                }
            }
            Mode::ProbeRtt(mut probe) => {
                match probe.advance(self.model.min_rtt(), in_flight, self.window, now) {
                    Some(least) => {
                        self.model.set_min_rtt(least, now);
                        self.start_cycle(now);
                    }
                    None => self.mode = Mode::ProbeRtt(probe),
                }
            }
            Mode::Startup | Mode::Drain => {}
        }
        let probes = matches!(self.mode, Mode::ProbeRtt(_));
        if round_ended && self.model.is_stale(now) && self.model.is_full() && !probes {
            self.mode = Mode::ProbeRtt(ProbeRtt::NEW);
        }
    }

    /// Begins anywhere but where it takes back, so that tunnels of one hub do not probe in step
    /// (draft-00 §4.3.4.2).
    fn start_cycle(&mut self, now: Instant) {
        let calm = CYCLE.len() as u64 - 2;
        let phase = match self.model.dice() % (calm + 1) {
            0 => 0,
            n => n as usize + 1,
        };
        self.mode = Mode::Cycle { phase, since: now };
    }

    /// Grows by no more than what was acknowledged (draft-00 §4.2.3.1).
    fn set_window(&mut self, acked: &Acked) {
        let (_, gain) = self.gains();
        let target = self.model.window(gain, self.window, acked.bytes);
        self.window = target.min(self.window + acked.bytes);
        self.window = self.window.max(self.model.least_window());
    }
}

impl Control for Bbr {
    fn on_restart(&mut self, now: Instant) {
        self.model.on_restart(now);
        if let Mode::Cycle { phase, since } = &mut self.mode {
            (*phase, *since) = ((*phase).max(FIRST_EVEN), now);
        }
    }

    fn on_ack(&mut self, ack: &Ack, now: Instant) {
        let Some(acked) = ack.acked else { return };
        if let Mode::ProbeRtt(probe) = &mut self.mode {
            probe.on_rtt(acked.rtt, now);
        }
        let ended = self.model.update(&acked, now);
        if let Some(round) = &ended {
            if self.mode == Mode::Startup {
                self.model.startup_overflows(round);
            } else {
                self.model.is_congested(round, self.manner(round));
            }
        }
        self.advance(&acked, ack.in_flight, ended.is_some(), now);
        self.set_window(&acked);
        self.model.set_pace(self.pace(), now);
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _: Instant) {
        self.model.on_congestion(event);
        if event.persistent {
            self.window = self.model.least_window();
        }
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
        let (gain, _) = self.gains();
        self.model.pacing_rate(gain, self.window)
    }

    fn delivery_rate(&self) -> Option<u64> {
        self.model.delivery_rate()
    }

    fn held_up(&self) -> Duration {
        self.model.held_up()
    }

    fn in_slow_start(&self) -> bool {
        self.mode == Mode::Startup
    }

    fn empties(&self) -> bool {
        matches!(self.mode, Mode::ProbeRtt(_))
    }

    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::flows::{Flows, MTU, link};

    fn steady() -> Flows {
        let now = Instant::now();
        let mut flows = Flows::new(link(50.0, 40, 50.0), now);
        flows.add(Box::new(Bbr::new(MTU as u16, now)));
        flows.run(Duration::from_secs(3));
        flows
    }

    #[test]
    fn the_cycle_has_eight_phases_of_a_round_trip() {
        let mut flows = steady();
        let mut phases: Vec<(f64, u32)> = Vec::new();
        for _ in 0..2000 {
            flows.run(Duration::from_millis(1));
            let control = &flows.flows[0].control;
            let rate = control.delivery_rate().unwrap() as f64;
            let gain = (control.pacing_rate().unwrap() as f64 / rate * 20.0).round() / 20.0;
            match phases.last_mut() {
                Some((last, time)) if *last == gain => *time += 1,
                _ => phases.push((gain, 1)),
            }
        }
        let cycles: Vec<_> = phases[1..phases.len() - 1].to_vec();
        let start = cycles.iter().position(|(gain, _)| *gain > 1.2).unwrap();
        for cycle in cycles[start..].chunks_exact(3) {
            let [(up, faster), (down, slower), (even, steady)] = *cycle else {
                unreachable!("chunks of three");
            };
            assert_eq!((up, down, even), (1.25, 0.75, 1.0), "{cycle:?}");
            assert!((40..100).contains(&faster), "{cycle:?}");
            assert!(slower < 50, "{cycle:?}");
            assert!((235..300).contains(&steady), "{cycle:?}");
        }
        assert!(cycles.len() > 12, "{phases:?}");
    }

    #[test]
    fn persistent_congestion_leaves_four_packets_that_grow_by_what_arrives() {
        let mut flows = steady();
        let before = flows.flows[0].control.window();
        let event = CongestionEvent {
            sent: flows.now,
            lost: 0,
            persistent: true,
            marked: false,
        };
        let now = flows.now;
        flows.flows[0].control.on_congestion(&event, now);
        assert_eq!(flows.flows[0].control.window(), 4 * MTU);
        flows.run(Duration::from_secs(2));
        assert!(flows.flows[0].control.window() > before / 2);
    }
}
