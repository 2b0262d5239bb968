//! A flood of first packets from sources that do not exist: what it costs a hub.
//!
//! `cargo test --workspace --test sim -- flood:: --nocapture` prints figures.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_core::{Congestion, Policy};
use sennit_engine::{Bare, BareConfig, Local, Received, SocketId};
use sennit_netem::{Bitrate, Config};
use sennit_sim::{Authority, EDGE, HUB_NAME, LinkSpec, SERVER, World, udp};

use crate::{MS, SECOND};

const HUB: &str = "198.51.100.1:443";

/// First packets of so many clients.
fn first_packets(count: usize, now: Instant) -> Vec<BytesMut> {
    let tls = Authority::new().client();
    let mut clients = Bare::client(BareConfig {
        congestion: Congestion::Cubic,
        idle: SECOND * 10,
        seed: [3; 32],
        reset_key: [4; 32],
        most: count,
        most_per_address: count,
    });
    let mut packets = Vec::new();
    let mut buffer = Vec::new();
    for _ in 0..count {
        let remote = HUB.parse().expect("an address");
        let connected = clients.connect(tls.clone(), remote, HUB_NAME, now);
        connected.expect("it may connect");
        let mut first = None;
        while let Some(transmit) = clients.poll_transmit(&mut buffer, now) {
            let size = transmit.segment.unwrap_or(transmit.size);
            first.get_or_insert_with(|| BytesMut::from(&buffer[..size.min(transmit.size)]));
            buffer.clear();
        }
        packets.push(first.expect("a client begins"));
    }
    packets
}

/// Where the packet with this number claims to come from.
fn source(number: u32) -> SocketAddr {
    let [a, b, c, d] = (0x0b00_0000 + number * 7919).to_be_bytes();
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

#[test]
fn a_hundred_thousand_first_packets_a_second_are_looked_into_in_part_and_tunnels_go_on() {
    const EACH_MS: u32 = 100;
    let link = LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(100)),
        delay: MS * 10,
        ..Config::default()
    });
    let mut world = World::new(&[link], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    let packets = first_packets(2000, world.now());
    world.at_hub.clear();

    let before = memory();
    let spent = [0, 1, 2].map(|second| flood(&mut world, &packets, EACH_MS, second));
    let figures = spent.map(|it| it.as_secs_f64() / 1e5 * 1e6);
    println!("µs of a processor for each of a flood, by second: {figures:.2?}");
    println!("memory: {before} kB, then {} kB", memory());
    // Of 300,000 so many may be looked into: at first 4096, and each second 5000.
    let looked_into = 300_000 - world.hub.turned_away();
    assert!((19_000..=19_200).contains(&looked_into), "{looked_into}");

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
