//! Two links of any kind together are never worse than the better one alone.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_sim::{Dice, Stream, World};

use crate::MS;

const LEN: usize = 1200;

#[test]
fn a_stream_that_fits_the_better_link_fits_both_together() {
    for seed in 0..24 {
        let mut dice = Dice::new(seed);
        let links = [dice.link(5..=60), dice.link(5..=60)];
        let rates = links.iter().filter_map(|link| link.up.rate);
        let best = rates.max().expect("every link has a rate").as_bps();
        let mut world = World::new(&links, Policy::Bond, seed, Instant::now());
        assert!(world.connect(2), "seed {seed}");
        // Four fifths of the better link, with everything that is wrapped around a packet.
        let wire = (LEN + 74) as f64 * 8.0;
        let interval = Duration::from_secs_f64(wire / (0.8 * best as f64));
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
