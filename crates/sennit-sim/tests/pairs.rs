//! Two links of any kind together are never worse than the better one alone.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_netem::{Bitrate, Config, Jitter, Loss};
use sennit_sim::{LinkSpec, Stream, World};

const MS: Duration = Duration::from_millis(1);
const LEN: usize = 1200;

/// Small random numbers that depend on a seed alone.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A link and its rate in Mbit/s.
fn random_link(dice: &mut Dice) -> (LinkSpec, u64) {
    let rate = 5 + dice.roll(56);
    let delay = 5 + dice.roll(60) as u32;
    let jitter = dice.roll(3) as u32 * delay / 10;
    let config = Config {
        rate: Some(Bitrate::mbit(rate)),
        delay: MS * delay,
        jitter: Jitter {
            spread: MS * jitter,
            reorder: dice.roll(2) == 1,
            ..Jitter::NONE
        },
        loss: Loss::Random([0.0, 0.0, 0.005, 0.02][dice.roll(4) as usize]),
        ..Config::default()
    };
    (LinkSpec::symmetric(config), rate)
}

#[test]
fn a_stream_that_fits_the_better_link_fits_both_together() {
    for seed in 0..24 {
        let mut dice = Dice(seed);
        let pair = [random_link(&mut dice), random_link(&mut dice)];
        let best = pair.iter().map(|(_, rate)| *rate).max().unwrap();
        let links = pair.each_ref().map(|(link, _)| link.clone());
        let mut world = World::new(&links, Policy::Bond, seed, Instant::now());
        assert!(world.connect(2), "seed {seed}");
        // Four fifths of the better link, with everything that is wrapped around a packet.
        let wire = (LEN + 74) as f64 * 8.0;
        let interval = Duration::from_secs_f64(wire / (0.8 * best as f64 * 1e6));
        let mut stream = Stream::new(interval, LEN, world.now());
        stream.run(&mut world, MS * 3000);
        let (arrived, sent) = (stream.arrived(), stream.sent());
        stream.run(&mut world, MS * 5000);
        let ratio = (stream.arrived() - arrived) as f64 / f64::from(stream.sent() - sent);
        assert!(
            ratio > 0.97,
            "seed {seed}: {:.1} % arrive over {links:?}: {:?}",
            100.0 * ratio,
            world.edge.status()
        );
    }
}
