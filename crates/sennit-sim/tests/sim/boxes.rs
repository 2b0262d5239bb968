//! What stands between an edge and its hub: NAT boxes and narrow paths.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_core::Policy;
use sennit_netem::NatConfig;
use sennit_sim::{Direction, Stream, World};

use crate::MS;

/// A tunnel over one link behind a NAT box.
fn behind_nat(config: NatConfig) -> World {
    let links = ["20/10".parse().expect("it is a link")];
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    world.set_nat(0, config);
    assert!(world.connect(1), "a tunnel passes the strictest NAT");
    world
}

#[test]
fn a_tunnel_survives_a_box_that_forgets_it() {
    let mut world = behind_nat(NatConfig::default());
    let mut stream = Stream::new(MS * 10, 200, world.now());
    stream.run(&mut world, MS * 1000);

    world.nat(0).expect("it has one").forget();

    stream.run(&mut world, MS * 1000);
    stream.finish(&mut world);
    // The next packet of the edge makes another mapping, which the hub follows.
    assert_eq!(stream.lost(), 0);
    assert!(stream.longest_gap < MS * 200, "{:?}", stream.longest_gap);
}

/// Where the hub sees the path, as the edge has heard it, and as the hub knows it.
fn seen(world: &mut World) -> (Option<SocketAddr>, SocketAddr) {
    let told = world.edge.status()[0].paths[0].observed;
    (told, world.hub.status()[0].paths[0].remote)
}

#[test]
fn an_edge_hears_where_the_hub_sees_it_and_again_after_a_box_has_forgotten_it() {
    let mut world = behind_nat(NatConfig::default());
    world.run(MS * 200);
    let (told, first) = seen(&mut world);
    assert_eq!(told, Some(first));

    world.nat(0).expect("it has one").forget();
    let mut stream = Stream::new(MS * 10, 200, world.now());
    stream.run(&mut world, MS * 1000);

    let (told, second) = seen(&mut world);
    assert_eq!(told, Some(second));
    assert_ne!(first, second, "the box has given it another port");
}

#[test]
fn an_idle_tunnel_keeps_its_mapping() {
    let timeout = Duration::from_secs(30);
    let mut world = behind_nat(NatConfig {
        timeout,
        ..NatConfig::default()
    });
    world.run(timeout * 4);
    world.at_edge.clear();

    // The hub speaks first: what it sends finds the way in.
    let packet = sennit_sim::udp(sennit_sim::SERVER, sennit_sim::EDGE, 7, 1, 100);
    world.send_from_hub(&packet);
    world.run(MS * 20);

    assert_eq!(world.at_edge.len(), 1);
}

#[test]
fn a_wedged_mapping_swallows_until_the_port_changes() {
    let mut world = behind_nat(NatConfig::default());
    world.nat(0).expect("it has one").wedge();
    let mut stream = Stream::new(MS * 50, 200, world.now());
    stream.run(&mut world, MS * 500);
    assert_eq!(stream.arrived(), 0);

    world.new_port(0);

    let packets = world.run_until(MS * 5000, |world| !world.at_hub.is_empty());
    assert!(packets || world.connect(1), "another mapping works");
}

#[test]
fn who_sends_too_much_for_a_path_is_told_if_the_path_tells() {
    for told in [false, true] {
        let links = ["20/10".parse().expect("it is a link")];
        let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
        assert!(world.connect(1));
        world.set_path_mtu(0, 1280, told);
        let mut stream = Stream::new(MS * 10, 1400, world.now());

        stream.run(&mut world, MS * 300);

        let up = |told: &sennit_sim::TooBig| told.direction == Direction::Up && told.mtu == 1280;
        assert_eq!(world.told_mtu.iter().any(up), told);
    }
}
