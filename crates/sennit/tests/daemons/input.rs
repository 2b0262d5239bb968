//! Packets that nobody should have sent.

use std::net::{IpAddr, UdpSocket};

use sennit_lab::{Host, Role, plan};

use crate::traffic::{Conversation, Receiver, ping, udp_to};
use crate::world::{Edge, HUB_INNER, World, tunnel, wait_for};

/// Repeatable noise (xorshift64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// What the kernel does to the packets for the ports from [`BENT`] on, as it hands them to a
/// tunnel's device: one field of the IPv4 header (offset and length in bits) gets another value.
const BENDINGS: [(u32, u32, u32); 19] = [
    // Version and header length.
    (0, 8, 0x00),
    (0, 8, 0x05),
    (0, 8, 0x35),
    (0, 8, 0x40),
    (0, 8, 0x44),
    (0, 8, 0x4f),
    (0, 8, 0x60),
    (0, 8, 0x65),
    (0, 8, 0xf5),
    // Total length; the packets have 60 bytes.
    (16, 16, 0),
    (16, 16, 1),
    (16, 16, 19),
    (16, 16, 20),
    (16, 16, 59),
    (16, 16, 61),
    (16, 16, 0xffff),
    // Fragment offset: the last possible.
    (48, 16, 0x1fff),
    // Protocol: TCP and ICMP, with nothing of the kind behind it.
    (72, 8, 6),
    (72, 8, 1),
];

const BENT: u16 = 9000;

/// Makes a host bend what leaves by a device.
fn bend(host: &Host, device: &str) {
    let mut script = String::from(
        "table ip bender {\n chain postrouting {\n  type filter hook postrouting priority 300;\n",
    );
    for ((offset, len, value), port) in BENDINGS.iter().zip(BENT..) {
        let condition = format!("oifname {device} udp dport {port}");
        script += &format!("  {condition} @nh,{offset},{len} set {value}\n");
    }
    host.nft(&(script + " }\n}\n")).unwrap();
}

/// The first packets of a real edge: what it sends to a hub that never answers.
fn initials(world: &World) -> Vec<Vec<u8>> {
    let deaf = Receiver::bind(world.host(Role::Hub), &plan::HUB.v4.to_string());
    world.join("eager");
    let hub = deaf.address.to_string();
    let _edge = world.start_edge(&Edge {
        name: "eager",
        hub: &hub,
        routes: &[],
        ..Edge::default()
    });
    (0..4).map(|_| deaf.receive().0).collect()
}

fn garbage(initials: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut noise = Noise(4711);
    let mut all: Vec<Vec<u8>> = Vec::new();
    for len in [0, 1, 2, 7, 20, 21, 41, 100, 1199, 1200, 1472, 9000, 65_507] {
        all.push(vec![0; len]);
        all.push(vec![0xff; len]);
        all.push(noise.bytes(len));
        // A long header of version 1, and a short header.
        for first in [0xc3, 0xd3, 0xe3, 0xf3, 0x43] {
            let mut packet = noise.bytes(len.max(5));
            packet[0] = first;
            packet[1..5].copy_from_slice(&[0, 0, 0, 1]);
            all.push(packet);
        }
    }
    for initial in initials {
        all.extend(
            (0..initial.len())
                .step_by(37)
                .map(|len| initial[..len].to_vec()),
        );
        for _ in 0..40 {
            let mut bent = initial.clone();
            let place = noise.next() as usize % bent.len();
            bent[place] ^= 1 << (noise.next() % 8);
            all.push(bent);
        }
        let mut long = initial.clone();
        long.extend(noise.bytes(5000));
        all.push(long);
        all.push(initial.clone());
    }
    all
}

#[test]
fn garbage_at_the_hubs_port_hurts_no_tunnel() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, edge) = world.start_pair(&Edge::default());
    let garbage = garbage(&initials(&world));
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 19);
    let since = tunnel(&edge.status(), "default").unwrap().since_seconds;

    let port = (plan::HUB_SERVER.v4, 443).into();
    let stranger: UdpSocket = udp_to(world.host(Role::Server), port);
    for _ in 0..3 {
        for packet in &garbage {
            // What the kernel will not send needs no test.
            let _ = stranger.send(packet);
        }
        conversation.expect_progress(1 << 18);
    }

    conversation.finish();
    hub.assert_alive();
    assert!(!hub.log().contains("panicked"));
    let tunnel = tunnel(&edge.status(), "default").unwrap().since_seconds;
    assert!(tunnel > since, "it is the tunnel of before");
    let mut answers = [0; 2048];
    stranger.set_nonblocking(true).unwrap();
    while stranger.recv(&mut answers).is_ok() {}
    world.join("late");
    let late = world.start_edge(&Edge {
        name: "late",
        routes: &[],
        ..Edge::default()
    });
    late.wait_until_up();
}

#[test]
fn packets_with_a_source_that_is_not_the_sites_are_dropped_and_counted() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    edge.host
        .ip("address add 10.66.0.1/32 dev lo\naddress add fd66::1/128 dev lo\n")
        .unwrap();
    let counted = || {
        tunnel(&hub.status(), "default")
            .unwrap()
            .wrong_source_packets
    };
    assert_eq!(counted(), 0);
    let receiver = Receiver::bind(hub.host, HUB_INNER[0]);

    let line = |source: &'static str, to: &'static str| {
        [
            "ping", "-n", "-q", "-c", "5", "-i", "0.05", "-W", "1", "-I", source, to,
        ]
    };
    edge.host
        .exec(&line("10.66.0.1", HUB_INNER[0]))
        .unwrap_err();
    edge.host.exec(&line("fd66::1", HUB_INNER[1])).unwrap_err();

    wait_for("ten packets to be counted", counted, |count| *count == 10);
    udp_to(edge.host, receiver.address).send(b"mine").unwrap();
    assert_eq!(receiver.receive().0, b"mine", "and everything else passes");
    ping(edge.host, HUB_INNER[1]);
    assert_eq!(counted(), 10);
}

#[test]
fn what_is_no_well_formed_packet_is_dropped_and_hurts_nobody() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, mut edge) = world.start_pair(&Edge::default());
    let own = edge.status().addresses[0].to_string();
    bend(edge.host, "van");
    bend(hub.host, "hub");

    for (from, to) in [(edge.host, HUB_INNER[0]), (hub.host, &own)] {
        let before = Receiver::bind(
            if from.name() == edge.host.name() {
                hub.host
            } else {
                edge.host
            },
            to,
        );
        for port in (BENT..).take(BENDINGS.len()) {
            let to = (to.parse::<IpAddr>().unwrap(), port).into();
            udp_to(from, to).send(&[7; 32]).unwrap();
        }
        // In the same queue, behind all of them.
        udp_to(from, before.address).send(b"unbent").unwrap();
        assert_eq!(before.receive().0, b"unbent");
    }

    for inner in HUB_INNER {
        ping(edge.host, inner);
    }
    edge.assert_alive();
    hub.assert_alive();
    for daemon in [&edge, &hub] {
        assert!(!daemon.log().contains("panicked"));
        assert!(tunnel(&daemon.status(), "default").unwrap().since_seconds > 0.0);
    }
}
