//! What each end knows of its paths, while packets flow and while none do, and what that costs.

use std::{
    mem::take,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Classifier, PathState, Policy};
use sennit_engine::{EdgeEvent, facts::TunnelStatus};
use sennit_sim::{EDGE, LinkSpec, SERVER, Stream, World, class, udp};

use crate::{MS, SECOND, link};

/// Longest silence when a link dies under load.
const FAILOVER: Duration = Duration::from_millis(150);

/// A world of so many classes, of which the first takes everything.
fn world_of(links: &[LinkSpec], policy: Policy, classes: usize) -> World {
    world_with_tiers(links, &[], policy, classes)
}

/// A world of so many classes, of which the first takes everything, with a tier for each link.
fn world_with_tiers(links: &[LinkSpec], tiers: &[u8], policy: Policy, classes: usize) -> World {
    let names = ["voice", "bulk", "rest"];
    let classes = names[..classes].iter().map(|name| class(name, policy));
    let everything = Classifier::new(Vec::new(), ClassId(0));
    let (classes, now) = (classes.collect(), Instant::now());
    let mut world = World::with_tiers(links, tiers, classes, everything, 1, now);
    assert!(world.connect(links.len()), "{:?}", world.edge.status());
    world
}

fn world(links: &[LinkSpec]) -> World {
    world_of(links, Policy::Bond, 1)
}

fn both_ends(world: &mut World) -> impl Iterator<Item = TunnelStatus> {
    let ends = [world.edge.status(), world.hub.status()];
    ends.into_iter().flatten()
}

/// Whether all paths over a link are up, or none is, at both ends.
fn is_up(world: &mut World, link: &str) -> bool {
    let tunnels: Vec<TunnelStatus> = both_ends(world).collect();
    let paths = tunnels.iter().flat_map(|tunnel| &tunnel.paths);
    let states = paths.filter(|path| path.link.name == link);
    let up: Vec<bool> = states.map(|path| path.state == PathState::Up).collect();
    assert!(
        !up.is_empty(),
        "no path over {link}: {:?}",
        world.edge_events
    );
    up.iter().all(|&up| up)
}

fn changes(world: &World, from: usize) -> Vec<&EdgeEvent> {
    let events = world.edge_events[from..].iter().map(|(_, event)| event);
    let is_change = |event: &&EdgeEvent| {
        matches!(event, EdgeEvent::Path { before, state, .. }
            if (*before == PathState::Up) != (*state == PathState::Up))
    };
    events.filter(is_change).collect()
}

/// Each class probed each link every two seconds: 49 MB a day on the first link, 15 on the second.
#[test]
fn an_idle_site_costs_two_megabytes_a_day_on_a_link_and_half_of_one_on_one_that_stands_by() {
    let links = ["50/20", "20/40", "10/50"].map(link);
    let mut world = world_with_tiers(&links, &[1, 1, 2], Policy::Bond, 3);
    world.run(SECOND * 60);
    let before = [0, 1, 2].map(|link| world.bytes_on(link));
    world.run(SECOND * 3600);
    let mut over = false;
    for (link, most) in [2e6, 2e6, 0.5e6].into_iter().enumerate() {
        let a_day = 24.0 * (world.bytes_on(link) - before[link]) as f64;
        println!("link {link}: {:.2} MB a day", a_day / 1e6);
        over |= a_day >= most;
    }
    for status in both_ends(&mut world) {
        let up = status
            .paths
            .iter()
            .filter(|path| path.state == PathState::Up);
        assert_eq!(up.count(), 3, "{status:?}");
    }
    assert!(!over);
}

/// `up` was said of dead links, every 1.65 s anew.
#[test]
fn an_idle_site_notices_a_dead_link_within_a_minute_and_says_so_once() {
    for classes in [1, 3] {
        let mut world = world_of(&[link("50/20"), link("20/40")], Policy::Bond, classes);
        world.run(SECOND * 100);
        let from = world.edge_events.len();
        world.blackhole(0, true);
        world.run(SECOND * 50);
        assert!(!is_up(&mut world, "a") && is_up(&mut world, "b"));
        world.run(SECOND * 600);
        let fell = changes(&world, from);
        assert_eq!(fell.len(), classes, "{fell:?}");

        let from = world.edge_events.len();
        world.blackhole(0, false);
        world.run(SECOND * 20);
        assert!(is_up(&mut world, "a"), "{:?}", world.edge.status());
        let rose = changes(&world, from);
        assert_eq!(rose.len(), classes, "{rose:?}");
    }
}

#[test]
fn a_dead_link_costs_an_idle_site_no_more_than_one_that_works() {
    let mut world = world_of(&[link("50/20"), link("20/40")], Policy::Bond, 3);
    world.blackhole(0, true);
    // It is looked for ever more rarely, so that the first hour costs a little more.
    world.run(SECOND * 7200);
    let before = [0, 1].map(|link| world.bytes_on(link));
    world.run(SECOND * 3600);
    let a_day = |link: usize| 24.0 * (world.bytes_on(link) - before[link]) as f64 / 1e6;
    println!("dead: {:.2} MB a day, the other: {:.2}", a_day(0), a_day(1));
    assert!(a_day(1) < 2.0, "{:.2}", a_day(1));
    assert!(a_day(0) < 1.0, "{:.2}", a_day(0));
}

#[test]
fn a_dead_link_costs_little_while_others_carry_traffic_and_is_used_again_when_it_returns() {
    let mut world = world_of(&[link("50/20"), link("20/40")], Policy::Bond, 1);
    world.blackhole(0, true);
    let mut stream = Stream::new(MS * 50, 200, world.now());
    stream.run(&mut world, SECOND * 1200);
    let before = world.bytes_on(0);
    stream.run(&mut world, SECOND * 600);
    let a_day = 144.0 * (world.bytes_on(0) - before) as f64 / 1e6;
    println!("dead beside traffic: {a_day:.2} MB a day");
    assert!(a_day < 3.0, "{a_day:.2}");

    world.blackhole(0, false);
    stream.run(&mut world, SECOND * 35);
    assert!(is_up(&mut world, "a"), "{:?}", world.edge.status());
    stream.finish(&mut world);
}

/// A link that died while nothing flowed is found out by the packets that come next, none of which
/// may be lost.
#[test]
fn the_first_packets_after_an_idle_time_are_not_lost_to_a_link_that_died_meanwhile() {
    for dead in [0, 1] {
        for (name, from_edge) in [("up", true), ("down", false)] {
            let mut world = world(&[link("50/20"), link("20/40")]);
            world.run(SECOND * 100);
            world.blackhole(dead, true);
            world.run(SECOND * 5);
            let sent = world.now();
            for number in 0..20 {
                if from_edge {
                    world.send_from_edge(&udp(EDGE, SERVER, 7, number, 100));
                } else {
                    world.send_from_hub(&udp(SERVER, EDGE, 7, number, 100));
                }
                world.run(MS * 20);
            }
            world.run(SECOND);
            let arrived = if from_edge {
                &world.at_hub
            } else {
                &world.at_edge
            };
            assert_eq!(arrived.len(), 20, "{name}, link {dead} dead");
            let first = arrived[0].at - sent;
            assert!(first < MS * 45, "{name}, link {dead} dead: {first:?}");
        }
    }
}

/// A link in reserve is asked half as often. When the first one was found to be dead, it was held
/// to the pace of one in use at once, and said to be dead as well: the class had no path for a
/// round trip.
#[test]
fn a_link_in_reserve_is_not_said_to_be_dead_when_it_becomes_the_first_of_an_idle_site() {
    for classes in [1, 3] {
        let links = ["50/20", "20/40"].map(link);
        let mut world = world_with_tiers(&links, &[1, 2], Policy::Failover, classes);
        let mut stream = Stream::new(MS * 50, 200, world.now());
        stream.run(&mut world, SECOND * 5);
        stream.finish(&mut world);
        let from = world.edge_events.len();
        world.blackhole(0, true);

        world.run(SECOND * 120);

        let changed = changes(&world, from);
        assert_eq!(changed.len(), classes, "{changed:?}");
        assert!(!is_up(&mut world, "a") && is_up(&mut world, "b"));
    }
}

/// Where the only link of the best tier died in an idle time, the next tier takes over as fast as
/// ever.
#[test]
fn a_link_of_the_next_tier_takes_over_after_an_idle_time_as_fast_as_under_load() {
    let mut world = world_with_tiers(&["50/20", "20/40"].map(link), &[1, 2], Policy::Failover, 1);
    world.run(SECOND * 100);
    world.blackhole(0, true);
    world.run(SECOND * 5);
    let mut stream = Stream::new(MS * 10, 600, world.now());
    stream.run(&mut world, SECOND * 3);
    println!("{:?}", stream.longest_gap);
    // Silence counts from when the peer could have answered at the quicker pace: a round trip and a
    // probe later.
    assert!(
        stream.longest_gap < FAILOVER + MS * 100,
        "{:?}",
        stream.longest_gap
    );
}

/// Sends a packet each way every `period`; the longest time without an arrival at the hub and at
/// the edge.
fn converse(world: &mut World, period: Duration, span: Duration) -> [Duration; 2] {
    let (end, mut number) = (world.now() + span, 0);
    let mut last = [world.now(); 2];
    let mut longest = [Duration::ZERO; 2];
    while world.now() < end {
        world.send_from_edge(&udp(EDGE, SERVER, 7, number, 600));
        world.send_from_hub(&udp(SERVER, EDGE, 7, number, 600));
        number += 1;
        world.run(period);
        let arrived = [take(&mut world.at_hub), take(&mut world.at_edge)];
        for (side, arrived) in arrived.into_iter().enumerate() {
            for arrival in arrived {
                longest[side] = longest[side].max(arrival.at - last[side]);
                last[side] = arrival.at;
            }
        }
    }
    let silent = last.map(|last| end - last);
    [0, 1].map(|side| longest[side].max(silent[side]))
}

/// Each end took the link for good on which it still heard something, and sent there in vain: 4 s.
#[test]
fn of_two_links_that_die_in_opposite_directions_each_carries_what_it_can() {
    for dead_up in [0, 1] {
        for period in [MS, MS * 10] {
            let mut world = world(&[link("50/10"), link("50/30")]);
            converse(&mut world, period, SECOND * 5);
            world.blackhole_one_way(dead_up, true, true);
            world.blackhole_one_way(1 - dead_up, false, true);
            let silences = converse(&mut world, period, SECOND * 20);
            println!("link {dead_up} dead up, every {period:?}: {silences:?}");
            assert!(
                silences.into_iter().all(|it| it < FAILOVER + MS * 100),
                "{silences:?}"
            );

            world.blackhole(0, false);
            world.blackhole(1, false);
            converse(&mut world, period, SECOND * 3);
            assert!(is_up(&mut world, "a") && is_up(&mut world, "b"));
        }
    }
}

/// What was sent from the old port kept the mapping alive for ever.
#[test]
fn a_link_whose_nat_has_a_dead_mapping_returns_from_another_port() {
    for classes in [1, 3] {
        let mut world = world_of(&[link("50/20"), link("20/40")], Policy::Bond, classes);
        world.run(SECOND * 5);
        let mut stream = Stream::new(MS * 10, 600, world.now());
        stream.run(&mut world, SECOND * 2);
        world.wedge(0);
        stream.longest_gap = Duration::ZERO;
        let mut waited = 0;
        while waited < 120 && (waited < 2 || !is_up(&mut world, "a")) {
            stream.run(&mut world, SECOND);
            waited += 1;
        }
        println!("{classes} classes: up after {waited} s");
        assert!(waited < 60, "{:?}", world.edge.status());
        let silence = stream.longest_gap;
        assert!(silence < FAILOVER + MS * 100, "{silence:?}");
        assert_eq!(new_ports(&world), ["a"]);
    }
}

#[test]
fn a_first_handshake_gets_through_a_nat_with_a_dead_mapping() {
    let mut world = World::new(&[link("50/20")], Policy::Bond, 1, Instant::now());
    world.wedge(0);
    let up = |world: &mut World| world.edge.status()[0].up;
    assert!(
        world.run_until(SECOND * 60, up),
        "{:?}",
        world.edge.status()
    );
}

#[test]
fn a_link_that_is_just_dead_gets_another_port_ever_more_rarely_and_the_others_none() {
    let mut world = world_of(&[link("50/20"), link("20/40")], Policy::Bond, 3);
    world.blackhole(0, true);
    world.run(SECOND * 1000);
    let ports = new_ports(&world);
    assert!((4..8).contains(&ports.len()), "{ports:?}");
    assert!(ports.iter().all(|link| link == "a"), "{ports:?}");
}

fn new_ports(world: &World) -> Vec<String> {
    let events = world.edge_events.iter();
    let port = |(_, event): &(Duration, EdgeEvent)| match event {
        EdgeEvent::NewPort { link, .. } => Some(link.clone()),
        _ => None,
    };
    events.filter_map(port).collect()
}
