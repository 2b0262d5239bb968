//! Classes that may use some links only.

use std::time::Instant;

use sennit_core::{ClassId, Classifier, Policy, Rule};
use sennit_engine::{EdgeEvent, facts::TunnelStatus};
use sennit_sim::{Direction, EDGE, Kind, SERVER, Stream, Transfer, World, class, udp};

use crate::{MS, SECOND, link};

const CALLS: u16 = 5060;
const BULK: ClassId = ClassId(1);

/// Calls over links `a` and `b`; bulk over those that are named.
fn world(bulk: Option<&[&str]>, start: Instant) -> World {
    let rule = Rule {
        port: Some(CALLS..=CALLS),
        ..Rule::default()
    };
    let mut classes = vec![class("calls", Policy::Bond), class("bulk", Policy::Bond)];
    classes[1].links = bulk.map(names);
    let classifier = Classifier::new(vec![(rule, ClassId(0))], BULK);
    let links = [link("40/10"), link("40/30")];
    let mut world = World::with_classes(&links, classes, classifier, 5, start);
    world.run(3 * SECOND);
    world
}

fn names(links: &[&str]) -> Vec<String> {
    links.iter().map(|&name| name.to_owned()).collect()
}

/// The links on which a class has paths, at one end.
fn links_of(all: &[TunnelStatus], class: &str) -> Vec<String> {
    let tunnels = all
        .iter()
        .filter(|status| status.up && status.class == class);
    let paths = tunnels.flat_map(|status| &status.paths);
    paths.map(|path| path.link.name.clone()).collect()
}

fn both_have(world: &mut World, class: &str, links: &[&str]) -> bool {
    [world.edge.status(), world.hub.status()]
        .iter()
        .all(|all| links_of(all, class) == links)
}

fn lost_tunnels(world: &World) -> Vec<&str> {
    let events = world.edge_events.iter();
    let lost = events.filter_map(|(_, event)| match event {
        EdgeEvent::TunnelDown { class, .. } => Some(class.as_str()),
        _ => None,
    });
    lost.collect()
}

#[test]
fn a_class_uses_its_links_alone() {
    let mut world = world(Some(&["a"]), Instant::now());
    assert!(both_have(&mut world, "calls", &["a", "b"]));
    assert!(both_have(&mut world, "bulk", &["a"]));
    let now = world.now();
    for direction in [Direction::Up, Direction::Down] {
        let mut transfer = Transfer::new(Kind::Tcp, direction, 4, now);
        let before = world.bytes_on(1) + world.bytes_down(1);
        let goodput = transfer.measure(&mut world, 10 * SECOND);
        let elsewhere = world.bytes_on(1) + world.bytes_down(1) - before;
        assert!(goodput > 30.0, "{direction:?}: {goodput} Mbit/s");
        assert!(elsewhere < 100_000, "{direction:?}: {elsewhere} bytes on b");
    }
}

#[test]
fn a_class_whose_links_are_gone_waits_for_them() {
    let mut world = world(Some(&["a"]), Instant::now());
    world.blackhole(0, true);
    world.run(10 * SECOND);
    let before = world.bytes_on(1);
    for number in 0..200 {
        world.send_from_edge(&udp(EDGE, SERVER, 9, number, 1000));
        world.run(50 * MS);
    }
    let elsewhere = world.bytes_on(1) - before;
    assert!(elsewhere < 100_000, "{elsewhere} bytes on b");
    assert!(links_of(&world.edge.status(), "calls").contains(&"b".to_owned()));

    world.blackhole(0, false);
    assert!(world.run_until(10 * SECOND, |world| both_have(world, "bulk", &["a"])));
}

/// Leaving a link takes no tunnel away where there is another path, and no packet.
#[test]
fn another_list_takes_a_class_elsewhere_while_it_sends() {
    let mut world = world(None, Instant::now());
    let mut stream = Stream::new(5 * MS, 1000, world.now());
    stream.run(&mut world, 2 * SECOND);
    world.reload(|classes| {
        if let Some(bulk) = classes.get_mut(&BULK) {
            bulk.links = Some(names(&["b"]));
        }
    });
    stream.run(&mut world, 3 * SECOND);
    assert!(both_have(&mut world, "bulk", &["b"]));
    assert_eq!(lost_tunnels(&world), [""; 0]);

    world.reload(|classes| {
        if let Some(bulk) = classes.get_mut(&BULK) {
            bulk.links = Some(names(&["a"]));
        }
    });
    stream.run(&mut world, 3 * SECOND);
    assert!(both_have(&mut world, "bulk", &["a"]));
    assert_eq!(lost_tunnels(&world), ["bulk"], "it had no path on a");

    world.reload(|classes| {
        if let Some(bulk) = classes.get_mut(&BULK) {
            bulk.links = None;
        }
    });
    stream.run(&mut world, 3 * SECOND);
    stream.finish(&mut world);
    assert!(both_have(&mut world, "bulk", &["a", "b"]));
    assert!(both_have(&mut world, "calls", &["a", "b"]));
    assert_eq!(stream.lost(), 0);
}
