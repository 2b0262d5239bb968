//! A leg whose delay swings in bursts of seconds, beside links that do not.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_sim::{Direction, Kind, LinkSpec, Transfer, World};

use crate::MS;

/// In which it is found out that the leg is one.
const WARM_UP: Duration = Duration::from_secs(60);
const SPAN: Duration = Duration::from_secs(120);

fn links(specs: &[&str]) -> Vec<LinkSpec> {
    specs.iter().map(|it| it.parse().expect("a link")).collect()
}

/// What flows reach in Mbit/s, and 99 of 100 pings beside them.
fn seen(specs: &[&str], direction: Direction, streams: u16) -> (f64, Duration) {
    let mut world = World::new(&links(specs), Policy::Bond, 1, Instant::now());
    assert!(world.connect(specs.len()), "{:?}", world.edge.status());
    let now = world.now();
    let flows = Transfer::new(Kind::Quic, direction, streams, now);
    let mut flows = flows.with_ping(MS * 100, now);
    flows.run(&mut world, WARM_UP);
    let before = flows.pings().len();
    let goodput = flows.measure(&mut world, SPAN);
    let pings = flows.pings();
    // The last ones may be on their way.
    let mut pings = pings[before..pings.len() - 15].to_vec();
    pings.sort_unstable();
    let p99 = pings[pings.len() * 99 / 100];
    println!("{specs:?} {direction:?}: {goodput:.1} Mbit/s, ping p99 {p99:?}");
    (goodput, p99)
}

/// It was trusted again within seconds of each burst, and the next one held up a ping in a hundred.
#[test]
fn a_marginal_leg_costs_nothing() {
    for direction in [Direction::Down, Direction::Up] {
        let (goodput, p99) = seen(&["6/20", "4/35"], direction, 1);
        let (with, with_p99) = seen(&["6/20", "4/35", "marginal@1*2/10"], direction, 1);
        assert!(
            with > 0.97 * goodput,
            "{direction:?}: {with:.1} of {goodput:.1}"
        );
        assert!(
            with_p99 < p99 + MS * 20,
            "{direction:?}: {with_p99:?}, {p99:?}"
        );
    }
}

/// In its calm this leg has the least delay.
#[test]
fn a_ping_does_not_go_where_it_may_take_a_second() {
    let (_, p99) = seen(&["20/130", "12/150"], Direction::Up, 0);
    let (_, with) = seen(&["20/130", "12/150", "marginal@1/5"], Direction::Up, 0);
    assert!(with < p99 + MS * 20, "{with:?}, {p99:?}");
}

#[test]
fn a_link_with_one_bad_burst_is_soon_back() {
    for direction in [Direction::Down, Direction::Up] {
        let mut world = World::new(&links(&["10/20", "10/30"]), Policy::Bond, 1, Instant::now());
        assert!(world.connect(2));
        let mut flows = Transfer::new(Kind::Quic, direction, 4, world.now());
        flows.run(&mut world, MS * 5000);
        for delay in [700, 100, 1100, 300, 900, 200, 600, 1200, 100, 800, 30] {
            world.change(1, |config| config.delay = MS * delay);
            flows.run(&mut world, MS * 400);
        }
        flows.run(&mut world, MS * 4000);
        let goodput = flows.measure(&mut world, MS * 3000);
        assert!(goodput > 15.0, "{direction:?}: {goodput:.1} of 20 Mbit/s");
    }
}

/// A transfer that was held up by a repair left the link idle: it had 39.7 of these 50 Mbit/s.
#[test]
fn a_transfer_has_most_of_what_a_lossy_link_carries() {
    let mut world = World::new(&links(&["50/6.5/1%"]), Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    let mut flow = Transfer::new(Kind::Tcp, Direction::Down, 1, world.now());
    flow.run(&mut world, MS * 5000);
    let goodput = flow.measure(&mut world, MS * 10_000);
    assert!(goodput > 42.0, "{goodput:.1} of 50 Mbit/s");
}

/// Its copies counted as if nobody had heard them: the path was closed, and the next one was
/// trusted at once.
#[test]
fn a_link_that_falls_again_and_again_keeps_its_path_and_its_record() {
    let links = links(&["60/10", "60/15"]);
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    assert!(world.connect(2));
    let record = |world: &mut World| {
        let paths = &world.edge.status()[0].paths;
        let mut b = paths.iter().filter(|path| path.link.name == "b");
        b.next().map(|path| (path.id, path.falls.0))
    };
    let before = record(&mut world).expect("there is a path");
    let mut flows = Transfer::new(Kind::Quic, Direction::Up, 2, world.now());
    for _ in 0..12 {
        flows.run(&mut world, 3500 * MS);
        world.blackhole(1, true);
        flows.run(&mut world, 1500 * MS);
        world.blackhole(1, false);
    }
    let (id, falls) = record(&mut world).expect("there is a path");
    assert_eq!(id, before.0, "it was closed");
    assert!(falls > 5, "{falls} falls");
}
