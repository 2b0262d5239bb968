//! Machines that are too busy to act in time: what must not happen then.

use std::time::Instant;

use sennit_core::Policy;
use sennit_netem::{Bitrate, Config, Loss};
use sennit_sim::{Clock, Direction, Kind, LinkSpec, Transfer, World};

use crate::MS;

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
        // Of 300, one may need longer than the world waits for.
        let connects = world.connect(2) || world.connect(2);
        assert!(connects, "seed {seed}: {:?}", world.edge.status());
    }
}

/// Goodput in Mbit/s of one flow over a link of 20 and no delay, between an edge and a hub with
/// turns so many milliseconds apart.
fn goodput(edge: u32, hub: u32, direction: Direction, kind: Kind, seed: u64) -> f64 {
    let mut world = World::new(&[link(20, 0, 0.0)], Policy::Bond, seed, Instant::now());
    assert!(world.connect(1));
    world.set_turns(MS * edge, MS * hub);
    let mut transfer = Transfer::new(kind, direction, 1, world.now());
    transfer.run(&mut world, MS * 2000);
    transfer.measure(&mut world, MS * 5000)
}

/// The pacer forgot what it earned meanwhile, heaps of acknowledgements did not count as held up,
/// and CoDel dropped what waited for a turn: 0.1 of the link.
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

/// What such machines always have in flight seemed to be a queue, and the path waited for its end:
/// 9 Mbit/s.
#[test]
fn a_very_busy_machine_is_no_queue() {
    let runs = (1..=8).map(|seed| goodput(32, 8, Direction::Up, Kind::Tcp, seed));
    let mean = runs.sum::<f64>() / 8.0;
    assert!(mean > 12.5, "{mean:.1} Mbit/s");
}

/// Least round trips in milliseconds over the links of [`two_links`]: all acknowledgements come
/// back on the first.
const ROUND_TRIPS: [f64; 2] = [20.0, 40.0];

fn two_links() -> [LinkSpec; 2] {
    [link(50, 10, 0.0), link(20, 30, 0.0)]
}

/// The shortest round trip that either end takes for a path's, as part of what it is.
fn shortest(world: &mut World) -> f64 {
    let ends = [world.edge.status(), world.hub.status()];
    let paths = ends.iter().flatten().flat_map(|tunnel| &tunnel.paths);
    let parts = paths.flat_map(|path| {
        let physical = ROUND_TRIPS[usize::from(path.link.name == "b")];
        let measured = [path.rtt_min, path.rtt];
        measured
            .into_iter()
            .flatten()
            .map(move |rtt| rtt.as_secs_f64() * 1e3 / physical)
    });
    parts.fold(f64::MAX, f64::min)
}

/// The shortest round trip measured at any time of a transfer, over the physical one, between
/// machines with turns of this many milliseconds.
fn shortest_of_transfer(edge: u32, hub: u32, clock: Clock, direction: Direction) -> f64 {
    let mut world = World::new(&two_links(), Policy::Bond, 1, Instant::now());
    assert!(world.connect(2));
    world.set_turns(MS * edge, MS * hub);
    world.set_clock(clock);
    let mut transfer = Transfer::new(Kind::Tcp, direction, 1, world.now());
    (0..150)
        .map(|_| {
            transfer.run(&mut world, 20 * MS);
            shortest(&mut world)
        })
        .fold(f64::MAX, f64::min)
}

#[test]
fn a_late_machine_measures_no_round_trip_shorter_than_the_path() {
    for (edge, hub) in [(8, 8), (1, 16), (40, 4)] {
        for direction in [Direction::Down, Direction::Up] {
            let right = shortest_of_transfer(edge, hub, Clock::Right, direction);
            assert!(right >= 1.0, "{edge}, {hub} ms, {direction:?}: {right}");
        }
    }
    // Otherwise this could not fail.
    let of_turn = shortest_of_transfer(16, 16, Clock::OfTurn, Direction::Up);
    assert!(of_turn < 1.0, "{of_turn}");
}

/// What the edge's least round trips are as part of those of the links, and Mbit/s, after its clock
/// was wrong for a moment.
fn after_wrong_times(from_the_start: bool) -> (f64, f64) {
    let mut world = World::new(&two_links(), Policy::Bond, 1, Instant::now());
    let wrong = |world: &mut World| world.misstamp(18 * MS, 20 * MS);
    if from_the_start {
        wrong(&mut world);
    }
    assert!(world.connect(2));
    let mut transfer = Transfer::new(Kind::Quic, Direction::Up, 1, world.now());
    transfer.run(&mut world, 3000 * MS);
    if !from_the_start {
        wrong(&mut world);
    }
    transfer.run(&mut world, 1000 * MS);
    let goodput = transfer.measure(&mut world, 3000 * MS);
    (shortest(&mut world), goodput)
}

/// It was the least of two to four minutes, and the window followed it.
#[test]
fn a_moment_of_wrong_times_does_no_harm_for_longer() {
    for from_the_start in [false, true] {
        let (shortest, goodput) = after_wrong_times(from_the_start);
        assert!(
            shortest >= 0.999 && goodput > 60.0,
            "from the start: {from_the_start}, {shortest} of the round trip, {goodput:.1} Mbit/s"
        );
    }
}

/// All that came from the machine seemed half a second late for 10 to 20 s. That was taken off
/// round trips and counted as settled, so the links' queues were long: 62 ms of ping.
#[test]
fn a_clock_that_stood_still_does_not_fill_the_links() {
    for direction in [Direction::Down, Direction::Up] {
        let links = [link(20, 10, 0.0), link(10, 25, 0.0)];
        let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
        assert!(world.connect(2));
        let transfer = Transfer::new(Kind::Quic, direction, 4, world.now());
        let mut transfer = transfer.with_ping(50 * MS, world.now());
        transfer.run(&mut world, 5000 * MS);
        let at_the_hub = direction == Direction::Up;
        world.suspend(at_the_hub, 500 * MS);
        transfer.run(&mut world, 1000 * MS);
        let on_links = |world: &World| world.bytes_on(0) + world.bytes_on(1);
        let before = (
            on_links(&world),
            transfer.received(),
            transfer.pings().len(),
        );

        let goodput = transfer.measure(&mut world, 10_000 * MS);

        let mut pings = transfer.pings().split_off(before.2);
        pings.sort_unstable();
        let ping = pings[pings.len() * 19 / 20];
        let received = (transfer.received() - before.1) as f64;
        let cost = (on_links(&world) - before.0) as f64 / received;
        println!("{direction:?}: {goodput:.1} Mbit/s, {ping:?}, {cost:.3} bytes sent for each");
        // As much as where the machine stood still and its clock went on.
        assert!(goodput > 26.5, "{direction:?}: {goodput:.1} Mbit/s");
        assert!(ping < 42 * MS, "{direction:?}: {ping:?}");
        assert!(cost < 1.13, "{direction:?}: {cost:.3}");
    }
}
