//! BBR over a link of one queue, in virtual time, with a sender that always has something to send.

use std::collections::VecDeque;

use super::*;
use crate::congestion::Delivery;

const MTU: u64 = 1400;
const STEP: Duration = Duration::from_micros(100);

struct Link {
    /// Bytes per second.
    rate: f64,
    rtt: Duration,
    buffer: u64,
    /// One packet in so many is lost at random.
    loss: Option<u32>,
    /// The far end acknowledges as seldom as it was told to, and not at once.
    seldom: bool,
}

struct Flow {
    link: Link,
    bbr: Bbr,
    delivery: Delivery,
    now: Instant,
    next_pn: u64,
    in_flight: u64,
    credit: f64,
    /// When the link has sent all it holds.
    busy_until: Instant,
    /// Time of arrival of acknowledgements, and whether the packet was lost instead.
    coming: VecDeque<(Instant, u64, bool)>,
    seed: u32,
    delivered: u64,
    lost: u64,
    queued: Vec<Duration>,
}

impl Flow {
    /// Whether the far end has heard enough to acknowledge, or waited long enough.
    fn tells(&self) -> bool {
        let first = self.coming.front().map(|entry| entry.0);
        let many = self.coming.get(ACK_PACKETS as usize - 1);
        first.is_some_and(|first| self.now >= first + ACK_DELAY)
            || many.is_some_and(|entry| self.now >= entry.0)
    }

    fn new(on_loss: OnLoss, link: Link) -> Self {
        let now = Instant::now();
        Self {
            link,
            bbr: Bbr::new(on_loss, MTU as u16, now),
            delivery: Delivery::new(now),
            now,
            next_pn: 0,
            in_flight: 0,
            credit: 0.0,
            busy_until: now,
            coming: VecDeque::new(),
            seed: 1,
            delivered: 0,
            lost: 0,
            queued: Vec::new(),
        }
    }

    /// Goodput in units of the link's rate, and the median time that packets stood in its queue.
    fn run(&mut self, time: Duration) -> (f64, Duration) {
        (self.delivered, self.lost) = (0, 0);
        self.queued.clear();
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            self.receive();
            self.send();
        }
        self.queued.sort_unstable();
        let share = self.delivered as f64 / (self.link.rate * time.as_secs_f64());
        (share, self.queued[self.queued.len() / 2])
    }

    fn random(&mut self) -> u32 {
        self.seed = self
            .seed
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.seed >> 8
    }

    fn send(&mut self) {
        let rtt = self.link.rtt.as_secs_f64();
        let rate = self
            .bbr
            .pacing_rate()
            .map_or(self.bbr.window() as f64 / rtt, |rate| rate as f64);
        self.credit = (self.credit + rate * STEP.as_secs_f64()).min(rate * 0.001 + MTU as f64);
        while self.credit >= MTU as f64 && self.in_flight + MTU <= self.bbr.window() {
            self.credit -= MTU as f64;
            self.delivery
                .on_sent(self.next_pn, MTU, self.in_flight, false, self.now);
            self.in_flight += MTU;
            let unlucky = self
                .link
                .loss
                .is_some_and(|one_in| self.random().is_multiple_of(one_in));
            let standing = self.busy_until.saturating_duration_since(self.now);
            let full = standing.as_secs_f64() * self.link.rate > self.link.buffer as f64;
            if !full {
                self.queued.push(standing);
                let transmission = Duration::from_secs_f64(MTU as f64 / self.link.rate);
                self.busy_until = self.busy_until.max(self.now) + transmission;
            }
            let at = self.busy_until.max(self.now) + self.link.rtt;
            self.coming.push_back((at, self.next_pn, unlucky || full));
            self.next_pn += 1;
        }
    }

    fn receive(&mut self) {
        let mut lost = 0;
        if self.link.seldom && !self.tells() {
            return;
        }
        while let Some(&(at, pn, is_lost)) = self.coming.front().filter(|entry| entry.0 <= self.now)
        {
            self.coming.pop_front();
            self.in_flight -= MTU;
            if is_lost {
                self.delivery.on_lost(pn, MTU);
                lost += MTU;
            } else {
                self.delivery.on_acked(pn, MTU, at);
                self.delivered += MTU;
            }
        }
        let ack = Ack {
            acked: self.delivery.end_batch(self.now),
            in_flight: self.in_flight,
            largest: None,
            window_unused: false,
        };
        self.bbr.on_ack(&ack, self.now);
        if lost > 0 {
            self.lost += lost;
            let event = CongestionEvent {
                sent: self.now,
                largest: 0,
                lost,
                persistent: false,
                marked: false,
            };
            self.bbr.on_congestion(&event, self.now);
        }
    }
}

fn mbit(rate: f64) -> f64 {
    rate * 1e6 / 8.0
}

fn link(rate_mbit: f64, rtt_ms: u64, buffer_ms: f64) -> Link {
    Link {
        rate: mbit(rate_mbit),
        rtt: Duration::from_millis(rtt_ms),
        buffer: (mbit(rate_mbit) * buffer_ms / 1000.0) as u64,
        loss: None,
        seldom: false,
    }
}

#[test]
fn fills_a_link_and_leaves_its_queue_empty() {
    for (rate, rtt) in [
        (300.0, 20),
        (80.0, 60),
        (5.0, 100),
        (1000.0, 2),
        (50.0, 300),
    ] {
        for on_loss in [OnLoss::Yield, OnLoss::Ignore] {
            let mut flow = Flow::new(on_loss, link(rate, rtt, 50.0));
            flow.run(Duration::from_secs(3));
            let (share, queue) = flow.run(Duration::from_secs(20));
            assert!(share > 0.93, "{rate} Mbit/s, {rtt} ms: {share:.2}");
            assert!(
                queue < Duration::from_millis(2 + rtt / 10),
                "{rate} Mbit/s: {queue:?}"
            );
        }
    }
}

#[test]
fn a_short_slow_link_is_filled_although_acknowledgements_are_held_up() {
    for rate in [20.0, 50.0] {
        let short = Link {
            rtt: Duration::from_micros(200),
            seldom: true,
            ..link(rate, 0, 50.0)
        };
        let mut flow = Flow::new(OnLoss::Yield, short);
        flow.run(Duration::from_secs(3));
        let (share, queue) = flow.run(Duration::from_secs(20));
        assert!(share > 0.93, "{rate} Mbit/s: {share:.2}");
        assert!(queue < Duration::from_millis(2), "{rate} Mbit/s: {queue:?}");
    }
}

#[test]
fn startup_is_over_within_a_second() {
    let mut flow = Flow::new(OnLoss::Yield, link(300.0, 20, 50.0));
    flow.run(Duration::from_millis(600));
    let (share, _) = flow.run(Duration::from_millis(500));
    assert!(share > 0.85, "{share:.2}");
}

#[test]
fn the_loss_of_the_path_itself_is_tolerated() {
    for (one_in, least) in [(200, 0.92), (50, 0.9), (20, 0.85), (10, 0.75)] {
        for on_loss in [OnLoss::Yield, OnLoss::Ignore] {
            let mut flow = Flow::new(
                on_loss,
                Link {
                    loss: Some(one_in),
                    ..link(50.0, 26, 50.0)
                },
            );
            flow.run(Duration::from_secs(3));
            let (share, _) = flow.run(Duration::from_secs(20));
            assert!(share > least, "1 in {one_in}, {on_loss:?}: {share:.2}");
        }
    }
}

#[test]
fn yields_to_a_buffer_too_small_for_its_probes() {
    let share_lost = |on_loss| {
        let mut flow = Flow::new(on_loss, link(50.0, 60, 2.0));
        flow.run(Duration::from_secs(3));
        let (share, _) = flow.run(Duration::from_secs(20));
        assert!(share > 0.85, "{on_loss:?}: {share:.2}");
        flow.lost as f64 / flow.delivered as f64
    };
    let (yielding, ignoring) = (share_lost(OnLoss::Yield), share_lost(OnLoss::Ignore));
    assert!(
        yielding < 0.02 && yielding < 0.7 * ignoring,
        "{yielding:.4} {ignoring:.4}"
    );
}

#[test]
fn follows_a_link_that_changes_its_rate() {
    let mut flow = Flow::new(OnLoss::Yield, link(200.0, 40, 100.0));
    flow.run(Duration::from_secs(3));
    flow.link.rate = mbit(40.0);
    flow.link.buffer /= 5;
    flow.run(Duration::from_millis(1500));
    let (share, queue) = flow.run(Duration::from_secs(2));
    assert!(
        share > 0.9 && queue < Duration::from_millis(10),
        "{share:.2} {queue:?}"
    );
    flow.link.rate = mbit(200.0);
    flow.link.buffer *= 5;
    flow.run(Duration::from_millis(3500));
    let (share, _) = flow.run(Duration::from_secs(2));
    assert!(share > 0.9, "{share:.2}");
}
