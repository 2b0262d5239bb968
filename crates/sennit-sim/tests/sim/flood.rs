//! A flood of first packets from sources that do not exist: what it costs a hub.
//!
//! `cargo test --workspace --test sim -- flood:: --nocapture` prints figures.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_core::Policy;
use sennit_engine::{Local, Received, SocketId};
use sennit_netem::{Bitrate, Config};
use sennit_sim::{EDGE, LinkSpec, Persistent, SERVER, World, first_packets, udp};

use crate::{MS, SECOND};

/// Where the packet with this number claims to come from.
fn source(number: u32) -> SocketAddr {
    let [a, b, c, d] = number.wrapping_mul(2_654_435_761).to_be_bytes();
    SocketAddr::from(([a, b, c, d], 1024 + (number % 60_000) as u16))
}

fn knock(world: &mut World, from: SocketAddr, packet: &BytesMut) -> Duration {
    let (now, packet) = (world.now(), packet.clone());
    let received = Received {
        local: Local {
            socket: SocketId(0),
            ip: None,
        },
        remote: from,
        ecn: 0,
        segment: packet.len(),
        arrived: now,
    };
    let began = Instant::now();
    world.hub.handle_datagrams(received, packet, now);
    began.elapsed()
}

/// Resident memory in kB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|it| it.trim().trim_end_matches(" kB").parse().ok());
    number.unwrap_or(0)
}

/// A second of so many first packets each millisecond, beside a packet of the tunnel; what the hub
/// spends on them.
fn flood(world: &mut World, packets: &[BytesMut], each_ms: u32, second: u32) -> Duration {
    let mut spent = Duration::ZERO;
    for turn in 0..1000 {
        for index in 0..each_ms {
            let number = (second * 1000 + turn) * 100 + index;
            let packet = &packets[number as usize % packets.len()];
            spent += knock(world, source(number), packet);
        }
        world.send_from_edge(&udp(EDGE, SERVER, 7, 1, 100));
        world.run(MS);
    }
    spent
}

fn world() -> World {
    let link = LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(100)),
        delay: MS * 10,
        ..Config::default()
    });
    let mut world = World::new(&[link], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    world
}

#[test]
fn a_hundred_thousand_first_packets_a_second_are_looked_into_in_part_and_tunnels_go_on() {
    const EACH_MS: u32 = 100;
    let mut world = world();
    let packets = first_packets(2000, world.now());
    world.at_hub.clear();

    let before = memory();
    let spent = [0, 1, 2].map(|second| flood(&mut world, &packets, EACH_MS, second));
    let figures = spent.map(|it| it.as_secs_f64() / 1e5 * 1e6);
    println!("µs of a processor for each of a flood, by second: {figures:.2?}");
    println!("memory: {before} kB, then {} kB", memory());
    // Of 300,000 so many may be looked into: at first 4096, each second 5000, and some that are
    // taken for others who come again.
    let looked_into = 300_000 - world.hub.turned_away();
    assert!((19_000..=25_000).contains(&looked_into), "{looked_into}");

    let few = flood(&mut world, &packets, 4, 3);
    assert_eq!(world.hub.turned_away(), 300_000 - looked_into);
    let each = few.as_secs_f64() / 4e3 * 1e6;
    println!("µs of a processor for each that is looked into: {each:.2}");
    world.run(SECOND);

    assert_eq!(world.at_hub.len(), 4000);
    assert!(world.edge.status()[0].up);
    // Whoever has nothing to do with it gets in afterwards.
    world.restart_edge();
    assert!(world.connect(1));
}

#[test]
fn handshakes_are_counted_by_how_they_end() {
    let mut world = world();
    let counted = |world: &World| {
        let counts = world.hub.strangers();
        (counts.completed, counts.failed)
    };
    assert_eq!(counted(&world), (1, 0));

    // Somebody who says nothing more.
    let packets = first_packets(1, world.now());
    knock(&mut world, source(1), &packets[0]);
    world.run(SECOND * 15);

    assert_eq!(counted(&world), (1, 1));
    world.restart_edge();
    assert!(world.connect(1));
    assert_eq!(counted(&world), (2, 1));
}

#[test]
fn in_a_flood_a_newcomer_gets_in_by_its_second_packet() {
    const EACH_MS: u32 = 100;
    let mut world = world();
    let packets = first_packets(2000, world.now());
    flood(&mut world, &packets, EACH_MS, 0);
    let mut numbers = 1_000_000..;
    for newcomer in 0..4 {
        world.restart_edge();
        let began = world.now();
        while !world.edge.status()[0].up && world.now() - began < SECOND * 4 {
            // Not all at once, or the newcomer comes in a gap.
            let number = numbers.next().expect("there is no end");
            knock(
                &mut world,
                source(number),
                &packets[number as usize % packets.len()],
            );
            world.run(MS / EACH_MS);
        }
        let took = world.now() - began;
        println!("newcomer {newcomer}: in after {took:.2?}");
        // A first packet is sent again after 0.3 s, and then after 0.6 s more.
        assert!(took < SECOND + SECOND / 10, "{took:?}");
    }
}

#[test]
fn one_address_that_proves_itself_has_a_part_of_the_places_and_others_get_in() {
    const EACH_SECOND: u32 = 700;
    let mut world = world();
    let mut persistent = Persistent::new(SocketAddr::from(([192, 0, 2, 66], 4433)));
    let (before, mut most, mut sent) = (memory(), 0, 0);
    for _ in 0..25 * EACH_SECOND {
        sent += persistent.knock(&mut world);
        most = most.max(world.hub.tunnels());
        assert_eq!(world.hub.strangers().now, world.hub.tunnels() - 1);
        world.run(SECOND / EACH_SECOND);
    }
    let counts = world.hub.strangers();
    println!("packets: {sent}; connections: at most {most}; {counts:?}");
    println!("memory: {before} kB, then {} kB", memory());
    // Of the places for strangers an eighth, and our tunnel.
    assert!(most <= 4096 / 8 + 1, "{most}");

    world.restart_edge();
    assert!(world.connect(1));
}
