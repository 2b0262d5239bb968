//! Links of 64 kbit/s and less: LTE beyond its cap, and satellite telephones.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Classifier, PathState, Policy, Rule};
use sennit_sim::{EDGE, Kind, SERVER, Transfer, World, class, udp};

use crate::{BOTH, MS, SECOND, link};

const CLASSES: [&str; 3] = ["voice", "bulk", "rest"];

/// An address of the hub beside the right one.
fn other() -> SocketAddr {
    "203.0.113.99:443".parse().expect("an address")
}

/// A world of so many classes whose edge is told another address of the hub, from which nobody
/// answers.
fn world(links: &[&str], classes: usize) -> World {
    let links: Vec<_> = links.iter().map(|text| link(text)).collect();
    let classes = CLASSES[..classes].iter();
    let classes = classes.map(|name| class(name, Policy::Bond)).collect();
    World::with_classes_and_dead_hubs(&links, classes, &[other()], 1, Instant::now())
}

/// When all classes are up.
fn all_up(world: &mut World, limit: Duration) -> Option<Duration> {
    let up = |world: &mut World| world.edge.status().iter().all(|status| status.up);
    world.run_until(limit, up).then(|| world.elapsed())
}

/// All handshakes were begun anew every four seconds, and filled the link for good.
#[test]
fn all_classes_come_up_over_links_that_take_seconds_for_a_handshake() {
    for links in [
        &["0.032/40", "0.0096/300"][..],
        &["0.032/40"],
        &["0.0096/300"],
    ] {
        let mut world = world(links, 3);
        let took = all_up(&mut world, SECOND * 120);
        println!("{links:?}: {took:?}");
        assert!(took.is_some(), "{links:?}: {:#?}", world.edge_events);
    }
}

/// Has the hub at its other address from now on, and loses what is sent to the one that answered.
fn move_hub(world: &mut World) {
    world.more_hubs.push(other());
    world.lost_to = Some(world.edge.status()[0].paths[0].remote);
}

/// How long it takes until the hub has a tunnel, of an edge that sends a packet each second.
fn back_after(world: &mut World, limit: u32) -> Option<Duration> {
    let began = world.now();
    let has_tunnel = |world: &mut World| world.hub.status().iter().any(|tunnel| tunnel.up);
    (0..limit).find(|&number| {
        world.send_from_edge(&udp(EDGE, SERVER, 7, number, 60));
        world.run_until(SECOND, has_tunnel)
    })?;
    Some(world.now() - began)
}

/// The address that had answered was asked alone, for a minute.
#[test]
fn another_address_is_tried_soon_where_the_one_that_answered_is_gone() {
    for text in ["0.032/40", "0.0096/300"] {
        let mut world = world(&[text], 1);
        assert!(all_up(&mut world, SECOND * 120).is_some());
        move_hub(&mut world);
        world.restart_hub();
        let took = back_after(&mut world, 50);
        println!("{text}: {took:?}");
        assert!(took.is_some(), "{text}: {:?}", world.edge.status());
    }
}

/// A connection that waited for the hub's answer kept others from its link for a minute.
#[test]
fn a_hub_that_is_gone_before_its_answer_is_not_waited_for() {
    let mut world = world(&["0.0096/300"], 1);
    assert!(all_up(&mut world, SECOND * 120).is_some());
    world.restart_hub();
    let asks = |world: &mut World| {
        let status = &world.edge.status()[0];
        !status.up && !status.paths.is_empty()
    };
    assert!(world.run_until(SECOND * 60, asks));
    move_hub(&mut world);
    world.restart_hub();
    let took = back_after(&mut world, 50);
    println!("{took:?}");
    assert!(took.is_some(), "{:?}", world.edge.status());
}

/// A link that was slow was tried by post-quantum handshakes alone.
#[test]
fn a_slow_link_with_a_box_that_drops_large_hellos_is_up_again_by_a_classic_one() {
    let mut world = World::with_hello_boxes(&[link("0.032/300")], &[0], true, 1, Instant::now());
    let took = all_up(&mut world, SECOND * 120);
    assert!(took.is_some(), "{:?}", world.edge.status());
    world.restart_hub();
    let took = back_after(&mut world, 80);
    println!("{took:?}");
    assert!(took.is_some(), "{:?}", world.edge.status());
}

/// Whether a path is up at both ends, by the name of its link.
fn is_up(world: &mut World, link: &str) -> bool {
    let ends = [world.edge.status(), world.hub.status()];
    let paths = ends.iter().flatten().flat_map(|tunnel| &tunnel.paths);
    let mut paths = paths.filter(|path| path.link.name == link);
    paths.all(|path| path.state == PathState::Up)
}

/// Lets flows run for so long; for how many milliseconds of that a link was not up at both ends.
fn held_out(world: &mut World, flows: &mut Transfer, link: &str, span: Duration) -> u32 {
    const STEP: u32 = 20;
    let mut out = 0;
    for _ in 0..span.as_millis() as u32 / STEP {
        flows.run(world, MS * STEP);
        out += u32::from(!is_up(world, link)) * STEP;
    }
    out
}

/// A full packet takes longer there than an active path may be silent elsewhere.
#[test]
fn a_slow_link_that_is_full_is_not_taken_for_dead() {
    for text in ["0.064/40", "0.032/40"] {
        for direction in BOTH {
            let mut world = world(&[text], 1);
            assert!(all_up(&mut world, SECOND * 120).is_some());
            let mut flow = Transfer::new(Kind::Quic, direction, 1, world.now());
            let out = held_out(&mut world, &mut flow, "a", SECOND * 60);
            let rate = flow.received() * 8 / 60;
            println!("{text} {direction}: {rate} bit/s, out for {out} ms");
            assert_eq!(out, 0, "{text} {direction}");
            assert!(rate > 0, "{text} {direction}");
        }
    }
}

#[test]
fn a_slow_link_beside_a_fast_one_is_given_up_when_it_dies_and_not_before() {
    for text in ["0.064/40", "0.032/40"] {
        for direction in BOTH {
            let links = ["20/20", text].map(link);
            let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
            assert!(world.connect(2), "{:?}", world.edge.status());
            let mut flows = Transfer::new(Kind::Quic, direction, 4, world.now());
            let out = held_out(&mut world, &mut flows, "b", SECOND * 40);
            world.blackhole(1, true);
            let died = world.now();
            while is_up(&mut world, "b") && world.now() < died + SECOND * 10 {
                flows.run(&mut world, MS * 10);
            }
            let noticed = world.now() - died;
            println!("{text} {direction}: out for {out} ms, noticed after {noticed:?}");
            assert_eq!(out, 0, "{text} {direction}");
            assert!(noticed < SECOND * 2, "{text} {direction}: {noticed:?}");
        }
    }
}

/// Bytes of a probe, of UDP payload and with its headers.
const PROBE: [usize; 2] = [30, 58];

/// They were sent twenty times a second by each class, as on any link: nearly all of this one.
#[test]
fn probes_of_three_classes_leave_a_slow_link_to_others() {
    const SPAN: u32 = 40;
    let classes = CLASSES.map(|name| class(name, Policy::Bond)).to_vec();
    let port = |port| Rule {
        port: Some(port..=port),
        ..Rule::default()
    };
    let rules = vec![(port(1), ClassId(0)), (port(2), ClassId(1))];
    let classifier = Classifier::new(rules, ClassId(2));
    let links = [link("0.032/40")];
    let mut world = World::with_classes(&links, classes, classifier, 1, Instant::now());
    assert!(all_up(&mut world, SECOND * 60).is_some());
    let mut speak = |span: u32| {
        world.tapped = Some(Vec::new());
        for number in 0..span {
            for class in 1..=3 {
                world.send_from_edge(&udp(EDGE, SERVER, class, number, 60));
            }
            world.run(SECOND);
        }
        world.tapped.take().unwrap_or_default()
    };
    // What was begun before it was known how slow the link is leaves it first.
    speak(20);
    let arrived = speak(SPAN);
    let probes = arrived.iter().filter(|packet| packet.len() == PROBE[0]);
    let probes = (probes.count() * PROBE[1] * 8) as f64 / f64::from(SPAN);
    println!("{probes:.0} bit/s of probes");
    assert!((1.0..3200.0).contains(&probes), "{probes:.0} bit/s");
}
