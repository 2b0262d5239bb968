//! Links of 64 kbit/s and less: LTE beyond its cap, and satellite telephones.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Classifier, PathState, Policy, Rule};
use sennit_sim::{EDGE, Kind, SERVER, Transfer, World, class, udp};

use crate::{BOTH, MS, SECOND, link};

const CLASSES: [&str; 3] = ["voice", "bulk", "rest"];

/// A world of so many classes whose edge is told an address of the hub, beside the right one, from
/// which nobody answers.
fn world(links: &[&str], classes: usize) -> World {
    let links: Vec<_> = links.iter().map(|text| link(text)).collect();
    let classes = CLASSES[..classes].iter();
    let classes = classes.map(|name| class(name, Policy::Bond)).collect();
    let dead: SocketAddr = "203.0.113.99:443".parse().expect("an address");
    World::with_classes_and_dead_hubs(&links, classes, &[dead], 1, Instant::now())
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
    for text in ["0.064/40", "0.032/40", "0.0096/300"] {
        for direction in BOTH {
            let mut world = world(&[text], 1);
            assert!(all_up(&mut world, SECOND * 60).is_some());
            let mut flow = Transfer::new(Kind::Tcp, direction, 1, world.now());
            let out = held_out(&mut world, &mut flow, "a", SECOND * 60);
            let rate = flow.received() * 8 / 60;
            println!("{text} {direction}: {rate} bit/s, out for {out} ms");
            assert_eq!(out, 0, "{text} {direction}");
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
            let first = held_out(&mut world, &mut flows, "b", SECOND * 10);
            let later = held_out(&mut world, &mut flows, "b", SECOND * 30);
            world.blackhole(1, true);
            let mut noticed = Duration::ZERO;
            while is_up(&mut world, "b") && noticed < SECOND * 10 {
                flows.run(&mut world, MS * 10);
                noticed += MS * 10;
            }
            println!(
                "{text} {direction}: out for {first} and {later} ms, noticed after {noticed:?}"
            );
        }
    }
}

/// The probes of three classes alone took 58 kbit/s.
#[test]
fn probes_of_three_classes_leave_a_slow_link_to_others() {
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
    let mut before = world.bytes_on(0);
    for second in 0..60 {
        for class in 1..=3 {
            world.send_from_edge(&udp(EDGE, SERVER, class, second, 60));
        }
        world.run(SECOND);
        if second == 19 {
            before = world.bytes_on(0);
        }
    }
    let rate = (world.bytes_on(0) - before) as f64 * 8.0 / 2.0 / 40.0;
    println!("{rate:.0} bit/s each way");
}

#[test]
fn debug_timeline() {
    for classes in [1, 3] {
        let mut world = world(&["0.0096/300"], classes);
        let mut last = String::new();
        let mut bytes = 0;
        for tick in 0..1200 {
            world.run(MS * 100);
            let status: Vec<String> = world
                .edge
                .status()
                .iter()
                .map(|s| format!("{} {} {}", s.up, s.reason, s.paths.len()))
                .collect();
            let now = format!(
                "{status:?} hub {} strangers {:?} tunnels {}",
                world.hub.status().len(),
                world.hub.strangers().now,
                world.edge.tunnels()
            );
            if now != last || tick % 50 == 0 {
                println!(
                    "{:?} {now} up {} down {}",
                    world.elapsed(),
                    world.bytes_on(0) - world.bytes_down(0),
                    world.bytes_down(0)
                );
                last = now;
            }
            bytes += 1;
        }
        println!("{bytes} {:#?}", world.edge_events);
    }
}
