//! What makes `auto` change, and what does not.

use super::*;
use crate::congestion::flows::{Flows, Link, MTU, link, mbit};

/// One path that `auto` runs, and what it has run in turn.
struct Path {
    flows: Flows,
    history: Vec<Choice>,
    /// How long packets of the last run stood in the link's queue.
    queued: Vec<Duration>,
}

impl Path {
    fn new(link: Link) -> Self {
        let now = Instant::now();
        let mut flows = Flows::new(link, now);
        flows.add(Box::new(Auto::new(MTU as u16, now)));
        let history = Vec::from_iter(flows.flows[0].control.choice());
        Self {
            flows,
            history,
            queued: Vec::new(),
        }
    }

    fn other(&mut self) {
        self.flows.add(Box::new(Cubic::new(MTU as u16)));
    }

    /// Share of the link that `auto` gets within `seconds`.
    fn run(&mut self, seconds: u32) -> f64 {
        let mut delivered = 0;
        self.queued.clear();
        for _ in 0..10 * seconds {
            self.flows.run(Duration::from_millis(100));
            delivered += self.flows.flows[0].delivered;
            self.queued.extend(self.flows.queued());
            let choice = self.flows.flows[0].control.choice();
            if choice.as_ref() != self.history.last() {
                self.history.extend(choice);
            }
        }
        delivered as f64 / (self.flows.link.rate * f64::from(seconds))
    }

    fn controllers(&self) -> Vec<Congestion> {
        self.history
            .iter()
            .map(|choice| choice.controller)
            .collect()
    }
}

/// Eight times what fits into the path may wait.
fn deep() -> Link {
    link(50.0, 40, 320.0)
}

#[test]
fn beside_others_that_fill_a_deep_queue_it_takes_its_share_and_leaves_the_queue_empty_after_them() {
    let mut path = Path::new(deep());
    path.run(5);
    path.other();
    path.run(25);
    let share = path.run(60);
    // Version 3 gets 0.11 there, version 1 0.32.
    assert!(share > 0.25, "{share:.2} {:?}", path.history);
    assert!(path.controllers().contains(&Congestion::Cubic));
    let before = path.history.len();
    assert!(before <= 8, "{:?}", path.history);

    path.flows.set_demand(1, 0.0);
    path.run(70);
    let (shares, queue) = path.flows.shares(Duration::from_secs(10));
    assert!(
        shares[0] > 0.95 && queue < Duration::from_millis(5),
        "{shares:?} {queue:?}"
    );
    assert_eq!(path.controllers().last(), Some(&Congestion::Bbr3));
    assert!(path.history.len() <= before + 1, "{:?}", path.history);
}

/// Keeps so many bytes in flight, come what may.
#[derive(Clone, Debug)]
struct Greedy(u64);

impl Control for Greedy {
    fn on_ack(&mut self, _: &Ack, _: Instant) {}
    fn on_congestion(&mut self, _: &CongestionEvent, _: Instant) {}
    fn on_mtu(&mut self, _: u16) {}
    fn window(&self) -> u64 {
        self.0
    }
    fn clone_box(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}

#[test]
fn beside_others_on_a_path_that_loses_it_does_not_starve_with_cubic() {
    let mut path = Path::new(Link {
        loss: 0.02,
        ..deep()
    });
    path.run(15);
    let fits = path.flows.link.rate * path.flows.link.rtt.as_secs_f64();
    path.flows.add(Box::new(Greedy(5 * fits as u64)));
    path.run(40);
    let crowded = Choice {
        controller: Congestion::Bbr,
        reason: Reason::Crowded,
    };
    assert!(path.history.contains(&crowded), "{:?}", path.history);
    assert!(!path.controllers().contains(&Congestion::Cubic));
}

#[test]
fn a_path_that_loses_a_fifth_whatever_it_is_sent_is_filled() {
    let mut path = Path::new(Link {
        loss: 0.2,
        ..link(50.0, 40, 50.0)
    });
    path.run(15);
    let share = path.run(20);
    assert!(share > 0.7, "{share:.2} {:?}", path.history);
    path.flows.link.loss = 0.0;
    path.run(10);
    let changes = [Congestion::Bbr3, Congestion::Bbr, Congestion::Bbr3];
    assert_eq!(path.controllers(), changes);
}

/// The loss is of its own making.
#[test]
fn a_policer_is_not_taken_for_a_path_that_loses() {
    for buffer in [0.5, 2.0] {
        let mut path = Path::new(link(50.0, 60, buffer));
        path.run(60);
        assert_eq!(path.controllers(), [Congestion::Bbr3], "{buffer}");
    }
}

#[test]
fn a_link_that_gets_slower_or_longer_is_not_taken_for_a_crowded_one() {
    let mut path = Path::new(link(100.0, 40, 500.0));
    path.run(10);
    for _ in 0..10 {
        path.flows.link.rate *= 0.8;
        path.run(1);
    }
    path.run(20);
    path.flows.link.rtt = Duration::from_millis(200);
    path.run(60);
    path.flows.link.rate = mbit(100.0);
    path.run(20);
    path.flows.link.rtt = Duration::from_millis(40);
    path.run(20);
    assert_eq!(path.controllers(), [Congestion::Bbr3], "{:?}", path.history);
}

#[test]
fn two_tunnels_over_a_link_do_not_take_each_other_for_others() {
    let mut path = Path::new(deep());
    path.run(10);
    let now = path.flows.now;
    path.flows.add(Box::new(Auto::new(MTU as u16, now)));
    path.run(20);
    let share = path.run(60);
    assert_eq!(path.controllers(), [Congestion::Bbr3], "{:?}", path.history);
    assert!((0.3..0.7).contains(&share), "{share:.2}");
}

/// Mbit/s for so many seconds each.
const STEPS: [f64; 6] = [50.0, 10.0, 30.0, 5.0, 40.0, 15.0];

#[test]
fn a_link_whose_rate_moves_is_followed_until_it_is_steady() {
    let mut path = Path::new(link(50.0, 40, 200.0));
    path.run(3);
    for rate in STEPS.iter().cycle().take(18) {
        path.flows.link.rate = mbit(*rate);
        path.run(1);
    }
    let moving = Choice {
        controller: Congestion::Follow,
        reason: Reason::Moving,
    };
    assert_eq!(path.history.last(), Some(&moving));
    let share: f64 = STEPS
        .iter()
        .map(|rate| {
            path.flows.link.rate = mbit(*rate);
            path.run(1) * rate
        })
        .sum::<f64>()
        / STEPS.iter().sum::<f64>();
    assert!(share > 0.9, "{share:.2}");

    path.flows.link.rate = mbit(50.0);
    path.run(20);
    let (shares, queue) = path.flows.shares(Duration::from_secs(5));
    let changes = [Congestion::Bbr3, Congestion::Follow, Congestion::Bbr3];
    assert_eq!(path.controllers(), changes);
    assert!(
        shares[0] > 0.93 && queue < Duration::from_millis(5),
        "{shares:?} {queue:?}"
    );
}

/// How long packets stand in the queue of a link whose rate swings, but for one in twenty.
fn queue_of_swings(path: &mut Path) -> Duration {
    let mut queued = Vec::new();
    for (round, rate) in STEPS.iter().cycle().take(30).enumerate() {
        path.flows.link.rate = mbit(*rate);
        path.run(1);
        if round >= STEPS.len() {
            queued.append(&mut path.queued);
        }
    }
    queued.sort_unstable();
    queued[queued.len() * 19 / 20]
}

/// The least round trip was that of any time, so that of a link that had become longer by less than
/// half at a time was taken for a queue that others fill, for good.
#[test]
fn a_moving_link_that_became_longer_is_followed_as_a_fresh_one() {
    let mut path = Path::new(link(50.0, 20, 200.0));
    for rtt in [20, 28, 39, 54] {
        path.flows.link.rtt = Duration::from_millis(rtt);
        path.run(140);
    }
    let mut fresh = Path::new(link(50.0, 54, 200.0));
    fresh.run(5);

    let (queue, usual) = (queue_of_swings(&mut path), queue_of_swings(&mut fresh));

    assert!(path.controllers().contains(&Congestion::Follow));
    assert!(!path.controllers().contains(&Congestion::Cubic));
    assert!(queue < usual.mul_f64(1.1), "{queue:?}, {usual:?} as a rule");
}

/// Their queue, or CUBIC's own, is by then the least round trip that is known.
#[test]
fn others_that_stay_for_long_take_no_more_and_are_seen_to_have_left() {
    let mut path = Path::new(deep());
    path.run(5);
    path.other();
    path.run(600);
    let share = path.run(60);
    assert!(share > 0.3, "{share:.2} {:?}", path.history);
    path.flows.set_demand(1, 0.0);
    path.run(70);
    let (shares, queue) = path.flows.shares(Duration::from_secs(10));
    assert!(
        shares[0] > 0.95 && queue < Duration::from_millis(5),
        "{shares:?} {queue:?}"
    );
}

#[test]
fn a_link_that_loses_or_is_shared_is_not_taken_for_one_whose_rate_moves() {
    for loss in [0.0, 0.02, 0.1] {
        let mut path = Path::new(Link { loss, ..deep() });
        path.run(10);
        let now = path.flows.now;
        path.flows.add(Box::new(Auto::new(MTU as u16, now)));
        path.run(40);
        assert!(
            !path.controllers().contains(&Congestion::Follow),
            "{loss}: {:?}",
            path.history
        );
    }
}
