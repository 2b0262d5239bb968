//! Pings through the tunnel, in virtual time.

use std::{collections::BTreeSet, time::Instant};

use sennit_core::Policy;
use sennit_netem::{Bitrate, Config, Loss};
use sennit_sim::{EDGE, LinkSpec, SERVER, World, number, udp};

use crate::MS;

fn link(mbit: u64, delay: u32) -> LinkSpec {
    LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(mbit)),
        delay: MS * delay,
        ..Config::default()
    })
}

/// Pings every 10 ms for `span`, answered at the hub; returns the numbers of those that returned.
fn ping(world: &mut World, numbers: std::ops::Range<u32>, back: &mut BTreeSet<u32>) {
    for sent in numbers {
        world.send_from_edge(&udp(EDGE, SERVER, 7, sent, 84));
        for _ in 0..10 {
            world.run(MS);
            while let Some(ping) = world.at_hub.pop_front() {
                let Some(heard) = number(&ping.packet) else {
                    continue;
                };
                world.send_from_hub(&udp(SERVER, EDGE, 7, heard, 84));
            }
            while let Some(pong) = world.at_edge.pop_front() {
                back.extend(number(&pong.packet));
            }
        }
    }
}

#[test]
fn redundant_pings_survive_the_death_of_either_link() {
    let mut world = World::new(
        &[link(50, 15), link(20, 35)],
        Policy::Redundant,
        1,
        Instant::now(),
    );
    assert!(world.connect(2));
    world.change(1, |config| config.loss = Loss::Random(0.01));
    let mut back = BTreeSet::new();
    let mut next = 0;
    let mut go = |world: &mut World, count: u32, back: &mut BTreeSet<u32>| {
        ping(world, next..next + count, back);
        next += count;
    };
    for dead in [1, 0, 1, 0, 0, 0] {
        if dead == 0 {
            world.change(1, |config| config.loss = Loss::None);
        }
        go(&mut world, 300, &mut back);
        world.blackhole(dead, true);
        go(&mut world, 500, &mut back);
        world.blackhole(dead, false);
        go(&mut world, 300, &mut back);
    }
    let sent = next - 20;
    let lost: Vec<u32> = (0..sent).filter(|number| !back.contains(number)).collect();
    assert!(lost.is_empty(), "lost {lost:?}");
}
