//! What is found of a link that moves, beside what the law of cake-autorate makes of the same one.
//!
//! Both have the same tunnels, classes, flows and queues; only who sets the rate of the link
//! differs. The law is told the least and the greatest rate of the link by hand, and sees its whole
//! delay; ours is told nothing.

use std::{collections::VecDeque, time::Duration};

use sennit_engine::Plan;
use sennit_netem::Bitrate;
use sennit_sim::{Autorate, Direction, Kind, Transfer, World};

use crate::shares::{Pings, pings, swell_of, usual};

/// As often as the script's six pingers ask: each every 0.3 s.
const PING_EVERY: Duration = Duration::from_millis(50);
/// Over which the script measures what is sent.
const SENT_IN: usize = 4;
const WARM_UP: Duration = Duration::from_secs(3);
const SPAN: Duration = Duration::from_secs(30);

/// A plan by which so much may be sent on the link.
fn bounded(rate: Bitrate) -> Plan {
    let mut plan = usual(Some(rate));
    plan.down.clear();
    plan
}

/// Sixteen flows up, and critical's pings.
fn transfer(world: &World) -> Transfer {
    let now = world.now();
    Transfer::new(Kind::Tcp, Direction::Up, 16, now).with_ping(PING_EVERY, now)
}

/// What is carried in Mbit/s, and the pings, of which the last may have no answer yet.
fn seen(transfer: &Transfer, before: (u64, usize)) -> (f64, Pings) {
    let bytes = transfer.received() - before.0;
    let all = transfer.pings();
    let carried = bytes as f64 * 8e-6 / SPAN.as_secs_f64();
    (carried, pings(&all[before.1..all.len() - 10]))
}

fn ours(seed: u64) -> (f64, Pings) {
    let mut world = swell_of(usual(None), seed);
    let mut transfer = transfer(&world);
    transfer.run(&mut world, WARM_UP);
    let before = (transfer.received(), transfer.pings().len());
    transfer.run(&mut world, SPAN);
    seen(&transfer, before)
}

/// The link with a rate that the law sets.
struct Shaped {
    world: World,
    law: Autorate,
    /// The rate that is set.
    rate: Bitrate,
    /// Pings whose answers the law has seen.
    heard: usize,
    /// Bytes that the edge had sent at the last looks.
    sent: VecDeque<u64>,
}

impl Shaped {
    fn new(seed: u64) -> Self {
        let rate = Bitrate::mbit(20);
        Self {
            world: swell_of(bounded(rate), seed),
            law: Autorate::new(Bitrate::mbit(5), rate, Bitrate::mbit(60)),
            rate,
            heard: 0,
            sent: VecDeque::new(),
        }
    }

    fn run(&mut self, transfer: &mut Transfer, span: Duration) {
        let end = self.world.now() + span;
        while self.world.now() < end {
            transfer.run(&mut self.world, PING_EVERY);
            self.look(&transfer.pings());
        }
    }

    /// Shows the law the answers since the last look.
    fn look(&mut self, pings: &[Duration]) {
        let now = self.world.now();
        let sent = self.world.bytes_on(0) - self.world.bytes_down(0);
        self.sent.push_back(sent);
        if self.sent.len() > SENT_IN + 1 {
            self.sent.pop_front();
        }
        let passed = (self.sent.len() - 1).max(1) as f64 * PING_EVERY.as_secs_f64();
        let sends = (sent - self.sent[0]) as f64 / passed;
        let answered = pings[self.heard..].iter();
        for &took in answered.take_while(|took| **took != Duration::MAX) {
            self.law.handle_answer(took, sends, now);
            self.heard += 1;
        }
        let rate = self.law.rate();
        // No more often than it matters: each time is a reload.
        let [new, old] = [rate, self.rate].map(Bitrate::as_bytes_per_second);
        if new.abs_diff(old) > old / 100 {
            self.rate = rate;
            self.world.share(bounded(rate));
        }
    }
}

fn autorate(seed: u64) -> (f64, Pings) {
    let mut shaped = Shaped::new(seed);
    let mut transfer = transfer(&shaped.world);
    shaped.run(&mut transfer, WARM_UP);
    let before = (transfer.received(), transfer.pings().len());
    shaped.run(&mut transfer, SPAN);
    seen(&transfer, before)
}

#[test]
fn a_link_that_moves_is_used_more_at_less_delay_than_by_cake_autorate() {
    for seed in 1..=2 {
        let ((carried, pings), (theirs, their_pings)) = (ours(seed), autorate(seed));
        let use_of = |rate: f64| 100.0 * rate / 22.1;
        println!(
            "seed {seed}: ours {carried:.1} Mbit/s ({:.0} %), {pings:.0?}; cake-autorate {theirs:.1} ({:.0} %), {their_pings:.0?}",
            use_of(carried),
            use_of(theirs),
        );
        assert!(carried >= theirs, "{carried:.1} and {theirs:.1} Mbit/s");
        assert!(pings.p99 <= their_pings.p99, "{pings:?}, {their_pings:?}");
    }
}
