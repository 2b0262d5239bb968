//! Machines that are too busy to act in time: what must not happen then.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_netem::{Bitrate, Config, Loss};
use sennit_sim::{Direction, Kind, LinkSpec, Transfer, World};

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
        let turn = MS * (10 + seed as u32 % 100);
        world.set_turns(turn, turn);
        assert!(world.connect(2), "seed {seed}: {:?}", world.edge.status());
    }
}

/// Goodput in Mbit/s of one flow over a link of 20 and no delay, between an edge and a hub with turns so many
/// milliseconds apart.
fn goodput(edge: u32, hub: u32, direction: Direction, kind: Kind, seed: u64) -> f64 {
    let mut world = World::new(&[link(20, 0, 0.0)], Policy::Bond, seed, Instant::now());
    assert!(world.connect(1));
    world.set_turns(MS * edge, MS * hub);
    let mut transfer = Transfer::new(kind, direction, 1, world.now());
    transfer.run(&mut world, MS * 2000);
    transfer.measure(&mut world, MS * 5000)
}

/// The pacer forgot what it earned meanwhile, heaps of acknowledgements did not count as held up, and CoDel dropped
/// what waited for a turn: 0.1 of the link.
#[test]
fn busy_machines_carry_what_the_link_does() {
    for (edge, hub) in [(8, 8), (16, 4), (4, 16), (16, 16)] {
        for direction in [Direction::Down, Direction::Up] {
            for kind in [Kind::Quic, Kind::Tcp] {
                let goodput = goodput(edge, hub, direction, kind, 1);
                assert!(
                    goodput > 15.0,
                    "turns of {edge} and {hub} ms, {direction:?}, {kind:?}: {goodput:.1} Mbit/s"
                );
            }
        }
    }
}

/// What such machines always have in flight seemed to be a queue, and the path waited for its end: 9 Mbit/s.
#[test]
fn a_very_busy_machine_is_no_queue() {
    let runs = (1..=8).map(|seed| goodput(32, 8, Direction::Up, Kind::Tcp, seed));
    let mean = runs.sum::<f64>() / 8.0;
    assert!(mean > 12.5, "{mean:.1} Mbit/s");
}
