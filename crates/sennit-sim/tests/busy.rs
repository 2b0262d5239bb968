//! Machines that are too busy to act in time: what must not happen then.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_netem::{Bitrate, Config, Loss};
use sennit_sim::{LinkSpec, World};

const MS: Duration = Duration::from_millis(1);

fn link(mbit: u64, delay: u32, loss: f64) -> LinkSpec {
    LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(mbit)),
        delay: MS * delay,
        loss: Loss::Random(loss),
        ..Config::default()
    })
}

/// noq 1.4 panics when a client's probe timer and the end of its handshake meet in one turn.
#[test]
fn a_busy_machine_gets_its_handshakes_done() {
    for seed in 0..300 {
        let links = [link(20, 5, 0.2), link(10, 15, 0.2)];
        let mut world = World::new(&links, Policy::Bond, seed, Instant::now());
        world.turn = MS * (10 + seed as u32 % 100);
        assert!(world.connect(2), "seed {seed}: {:?}", world.edge.status());
    }
}
