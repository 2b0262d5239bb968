//! Paths that do not carry packets of the tunnel's full size: from the start, beside others, and
//! from some moment on.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use sennit_core::{Delivery, Policy};
use sennit_engine::facts::{PathStatus, SizeSource};
use sennit_sim::{Direction, Kind, LinkSpec, Stream, Transfer, World, class};

use crate::{BOTH, MS, SECOND};

/// A world whose links carry IP packets of at most so many bytes.
fn world(links: &[(&str, usize)], policy: Policy) -> World {
    let links: Vec<LinkSpec> = links
        .iter()
        .map(|(text, mtu)| {
            let mut link: LinkSpec = text.parse().expect("a link");
            (link.up.mtu, link.down.mtu) = (*mtu, *mtu);
            link
        })
        .collect();
    let count = links.len();
    let mut world = World::new(&links, policy, 1, Instant::now());
    assert!(world.connect(count), "{:?}", world.edge.status());
    world
}

fn flows(world: &World, direction: Direction) -> Transfer {
    Transfer::new(Kind::Tcp, direction, 2, world.now())
}

/// What the edge, or the hub, knows of a path.
fn path(world: &mut World, at_hub: bool, path: usize) -> PathStatus {
    let status = if at_hub {
        world.hub.status()
    } else {
        world.edge.status()
    };
    status[0].paths[path].clone()
}

/// Whether both ends found that a path carries IP packets of `mtu` bytes and not many more: a
/// packet as large as a probe may vary by some bytes.
fn is_known(world: &mut World, index: usize, mtu: u16) -> bool {
    let right: RangeInclusive<u16> = mtu - 28 - 20..=mtu - 28;
    [false, true]
        .map(|at_hub| path(world, at_hub, index))
        .iter()
        .all(|path| path.small && right.contains(&path.mtu))
}

#[test]
fn a_small_path_that_is_the_only_one_is_filled() {
    for mtu in [1400, 1280, 1228] {
        for direction in BOTH {
            let mut world = world(&[("30/10", mtu)], Policy::Bond);
            let mut flows = flows(&world, direction);
            flows.run(&mut world, 4 * SECOND);
            let rate = flows.measure(&mut world, 3 * SECOND);
            assert!(rate > 20.0, "{mtu} {direction:?}: {rate}");
            assert!(
                is_known(&mut world, 0, mtu as u16),
                "{mtu}: {:?}",
                path(&mut world, false, 0)
            );
        }
    }
}

#[test]
fn a_small_path_beside_a_good_one_carries_halves_and_loses_nothing() {
    for direction in BOTH {
        let mut world = world(&[("40/10", 1500), ("30/20", 1280)], Policy::Bond);
        let mut flows = flows(&world, direction);
        flows.run(&mut world, 2 * SECOND);
        // At the start controllers overflow the links.
        let lost_at_first = [false, true].map(|hub| path(&mut world, hub, 1).lost_packets);
        let rate = flows.measure(&mut world, 3 * SECOND);
        assert!(rate > 55.0, "{direction:?}: {rate}");
        let good = path(&mut world, false, 0);
        assert_eq!((good.small, good.mtu), (false, 1450));
        for (at_hub, before) in [false, true].into_iter().zip(lost_at_first) {
            let small = path(&mut world, at_hub, 1);
            let lost = small.lost_packets - before;
            assert!(lost < 15, "{lost} are more than its probes: {small:?}");
        }
        assert!(is_known(&mut world, 1, 1280));
    }
}

#[test]
fn packets_of_every_size_pass_a_small_path() {
    for policy in [Policy::Bond, Policy::Redundant] {
        let mut world = world(&[("20/10", 1280), ("20/20", 1400)], policy);
        for len in (60..=1400).step_by(67) {
            let mut stream = Stream::new(5 * MS, len, world.now());
            stream.run(&mut world, 200 * MS);
            stream.finish(&mut world);
            assert_eq!(stream.lost(), 0, "{policy} {len}");
        }
    }
}

/// A world of a class of reliable delivery over a lossy link on which full packets leave in halves,
/// and a stream of them.
fn reliable_halves(seed: u64) -> (World, Stream) {
    let mut link: LinkSpec = "20/20/20%".parse().expect("a link");
    (link.up.mtu, link.down.mtu) = (1300, 1300);
    let mut class = class("default", Policy::Bond);
    class.treatment.delivery = Delivery::Reliable;
    let begin = Instant::now();
    let mut world = World::with_classes(&[link], vec![class], Default::default(), seed, begin);
    assert!(world.connect(1), "{:?}", world.edge.status());
    let stream = Stream::new(5 * MS, 1400, world.now());
    (world, stream)
}

/// All packets of a stream arrive once that its queue did not drop.
fn assert_nothing_lost(world: &mut World, stream: &mut Stream) {
    world.run(20 * SECOND);
    stream.finish(world);
    let queue = world.edge.status()[0].queue;
    let dropped = queue.dropped + queue.overflowed;
    println!("{} sent, {dropped} dropped before they left", stream.sent());
    assert!(stream.arrived() > 100 && path(world, false, 0).small);
    assert_eq!((stream.lost() as u64, stream.duplicates), (dropped, 0));
}

/// Of a packet of which one half had arrived the far end got the number alone. What it held for a
/// missing packet was refused, since nobody knew any more whose addresses it had.
#[test]
fn what_left_in_halves_is_reliable_over_the_next_connection() {
    for seed in 1..4 {
        let (mut world, mut stream) = reliable_halves(seed);
        let site = world.hub.status()[0].site.clone();
        let site = site.expect("it has a name");
        for _ in 0..4 {
            stream.run(&mut world, 500 * MS);
            let now = world.now();
            world.hub.expel(&site, "to be sure", now);
            for up in [false, true] {
                let turns = |world: &mut World| world.edge.status()[0].up == up;
                assert!(world.run_until(9 * SECOND, turns));
            }
        }
        assert_nothing_lost(&mut world, &mut stream);
    }
}

/// The far end had forgotten the half that had arrived, and the other one alone was sent again.
#[test]
fn what_left_in_halves_is_reliable_over_a_silence_that_no_half_is_kept_for() {
    for seed in 1..4 {
        let (mut world, mut stream) = reliable_halves(seed);
        stream.run(&mut world, SECOND);
        world.blackhole(0, true);
        world.run(15 * SECOND);
        world.blackhole(0, false);
        assert_nothing_lost(&mut world, &mut stream);
    }
}

#[test]
fn a_path_that_shrinks_is_found_out_by_both_ends_and_one_that_heals_as_well() {
    for direction in BOTH {
        let mut world = world(&[("40/10", 1500), ("30/20", 1500)], Policy::Bond);
        let mut flows = flows(&world, direction);
        flows.run(&mut world, 4 * SECOND);
        flows.longest_stall = Duration::ZERO;

        world.change(0, |config| config.mtu = 1400);
        let dip = flows.measure(&mut world, SECOND);
        for at_hub in [false, true] {
            let found = path(&mut world, at_hub, 0).mtu_source;
            assert_eq!(found, SizeSource::BlackHole, "{direction:?} {at_hub}");
        }
        let after = flows.measure(&mut world, 3 * SECOND);
        assert!(dip > 30.0 && after > 55.0, "{direction:?}: {dip} {after}");
        assert!(
            flows.longest_stall < 300 * MS,
            "{direction:?}: {:?}",
            flows.longest_stall
        );

        world.change(0, |config| config.mtu = 1500);
        flows.run(&mut world, 15 * SECOND);
        for at_hub in [false, true] {
            let healed = path(&mut world, at_hub, 0);
            assert_eq!((healed.small, healed.mtu), (false, 1450), "{direction:?}");
        }
    }
}

#[test]
fn losses_and_outages_are_no_matter_of_size() {
    let mut world = world(&[("40/10/10%", 1500), ("30/20", 1500)], Policy::Bond);
    let mut flows = flows(&world, Direction::Down);
    for _ in 0..8 {
        flows.run(&mut world, 500 * MS);
        world.blackhole(1, true);
        flows.run(&mut world, 300 * MS);
        world.blackhole(1, false);
    }
    flows.run(&mut world, SECOND);
    for (at_hub, index) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let path = path(&mut world, at_hub, index);
        assert_eq!((path.mtu, path.mtu_source), (1450, SizeSource::Probed));
    }
}
