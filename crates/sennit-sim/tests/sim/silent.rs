//! Links on which nothing passes while another works.

use std::{net::SocketAddr, time::Instant};

use sennit_core::{PathState, Policy};
use sennit_engine::SocketId;
use sennit_sim::{EDGE, SERVER, World, class, udp};

use crate::{SECOND, link};

/// Each attempt to open a path that the hub never heard of cost one of the few that it allows, for
/// as long as the tunnel lived.
#[test]
fn a_link_that_is_silent_when_its_tunnel_begins_joins_it_when_it_works() {
    // The attempt of an hour ends just as the third works again.
    let cases = [(20, 3), (600, 122), (3599, 122), (10_000, 122)];
    for (silent, within) in cases {
        let mut world = World::new(
            &[link("20/20"), link("20/30")],
            Policy::Bond,
            1,
            Instant::now(),
        );
        world.blackhole(1, true);
        assert!(world.connect(1), "{silent}: {:?}", world.edge.status());
        world.run(silent * SECOND);
        world.blackhole(1, false);
        let joins = world.run_until(within * SECOND, |world| {
            world.edge.status()[0].paths.len() == 2 && world.hub.status()[0].paths.len() == 2
        });
        let paths = &world.edge.status()[0].paths;
        assert!(joins, "after {silent} s: {paths:?}");
        assert!(paths.iter().any(|path| path.link.name == "b"), "{paths:?}");
    }
}

/// The hub never hears of what was tried with addresses that a link has no more, and would allow a
/// path less for each.
#[test]
fn a_silent_link_whose_addresses_come_and_go_joins_when_it_works() {
    for v6 in [false, true] {
        let mut world = World::new(
            &[link("20/20"), link("20/30")],
            Policy::Bond,
            1,
            Instant::now(),
        );
        world.blackhole(1, true);
        assert!(world.connect(1));
        for _ in 0..20 {
            world.set_families(1, false, v6);
            world.run(2 * SECOND);
            world.set_families(1, true, false);
            world.run(2 * SECOND);
        }
        world.blackhole(1, false);
        let joins = world.run_until(5 * SECOND, |world| world.edge.status()[0].paths.len() == 2);
        assert!(joins, "{v6}: {:?}", world.edge.status()[0].paths);
    }
}

/// Where nothing flows, one class asks for all.
#[test]
fn a_silent_link_costs_an_idle_site_little_and_joins_all_classes_when_it_works() {
    let links = [link("20/20"), link("20/30")];
    let classes = ["one", "two", "three"].map(|name| class(name, Policy::Bond));
    let begin = Instant::now();
    let mut world = World::with_classes(&links, classes.into(), Default::default(), 1, begin);
    world.blackhole(1, true);
    assert!(world.connect(1), "{:?}", world.edge.status());
    world.run(7200 * SECOND);
    let before = world.bytes_on(1);
    world.run(3600 * SECOND);
    let a_day = 24.0 * (world.bytes_on(1) - before) as f64 / 1e6;
    println!("silent: {a_day:.2} MB a day");
    assert!(a_day < 2.0, "{a_day:.2}");
    world.blackhole(1, false);
    let joins = world.run_until(125 * SECOND, |world| {
        world.edge.status().iter().all(|it| it.paths.len() == 2)
    });
    assert!(joins, "{:?}", world.edge.status());
}

/// Where packets flow it is asked for more often.
#[test]
fn a_silent_link_joins_what_carries_traffic_within_half_a_minute() {
    let links = [link("20/20"), link("20/30")];
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    world.blackhole(1, true);
    assert!(world.connect(1), "{:?}", world.edge.status());
    let mut number = 0;
    let joins = world.run_until(632 * SECOND, |world| {
        number += 1;
        if number % 500 == 0 {
            world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
        }
        if number == 600_000 {
            world.blackhole(1, false);
        }
        world.edge.status()[0].paths.len() == 2
    });
    assert!(joins, "{:?}", world.edge.status());
}

/// What asks is led over a link that works, which may have no way to the address that is asked.
#[test]
fn a_silent_link_of_the_other_family_joins_when_it_works() {
    let v6: SocketAddr = "[2001:db8::1]:443".parse().expect("an address");
    for silent in [600, 3605, 8000] {
        let links = [link("20/20"), link("20/30")];
        let mut world = World::with_dead_hubs(&links, &[v6], 1, Instant::now());
        world.more_hubs.push(v6);
        world.move_to(1, "2001:db8:9::2".parse().expect("an address"));
        world.set_families(1, false, true);
        world.blackhole(1, true);
        assert!(world.connect(1), "{silent}: {:?}", world.edge.status());
        world.run(silent * SECOND);
        world.blackhole(1, false);
        let joins = world.run_until(125 * SECOND, |world| {
            world.edge.status()[0].paths.len() == 2 && world.hub.status()[0].paths.len() == 2
        });
        assert!(joins, "{silent}: {:?}", world.edge.status()[0].paths);
    }
}

/// The edge went on to ask for another port for it, again and again at the same moment.
#[test]
fn a_silent_link_that_is_removed_is_forgotten() {
    let links = [link("20/20"), link("20/30")];
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    world.blackhole(1, true);
    assert!(world.connect(1));
    world.run(20 * SECOND);
    let now = world.now();
    world.edge.remove_link(SocketId(1), now);
    world.run(20 * SECOND);
    let before = world.bytes_on(1);
    world.run(60 * SECOND);
    assert_eq!(world.bytes_on(1), before);
    world.blackhole(1, false);
    world.set_link(1, true);
    let joins = world.run_until(5 * SECOND, |world| world.edge.status()[0].paths.len() == 2);
    assert!(joins, "{:?}", world.edge.status()[0].paths);
}

/// noq keeps what it sends on a path that is not heard. A link that came and went and on which
/// nothing passed took hundreds of megabytes in days.
#[test]
fn a_dead_link_that_costs_much_is_tried_anew() {
    let links = [link("20/20"), link("20/30")];
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    assert!(world.connect(2));
    world.blackhole(1, true);
    let mut is_closed = false;
    for half in 0..2000 {
        world.set_link(1, half % 2 == 1);
        world.run(10 * SECOND);
        is_closed |=
            world.edge.status()[0].paths.len() == 1 && world.hub.status()[0].paths.len() == 1;
    }
    assert!(is_closed, "{:?}", world.edge.status()[0].paths);
    world.blackhole(1, false);
    let joins = world.run_until(5 * SECOND, |world| {
        let is_up = |path: &sennit_engine::facts::PathStatus| path.state == PathState::Up;
        world.edge.status()[0]
            .paths
            .iter()
            .filter(|it| is_up(it))
            .count()
            == 2
    });
    assert!(joins, "{:?}", world.edge.status()[0].paths);
}

/// A path to an address to which its link does not lead any more stayed, and no other came.
#[test]
fn a_link_that_has_only_the_other_family_left_is_used_by_that() {
    let v6: SocketAddr = "[2001:db8::1]:443".parse().expect("an address");
    let links = [link("20/20"), link("20/30")];
    let mut world = World::with_dead_hubs(&links, &[v6], 1, Instant::now());
    world.more_hubs.push(v6);
    assert!(world.connect(2), "{:?}", world.edge.status());
    world.move_to(1, "2001:db8:9::2".parse().expect("an address"));
    world.set_families(1, false, true);
    let uses = world.run_until(3 * SECOND, |world| {
        let paths = &world.edge.status()[0].paths;
        let mut b = paths.iter().filter(|path| path.link.name == "b");
        b.any(|path| path.state == PathState::Up && path.remote == v6)
    });
    assert!(uses, "{:?}", world.edge.status()[0].paths);
}
