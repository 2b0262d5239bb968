//! Flows keep their class until they end, whatever their later packets and the rules are like.

use std::time::Instant;

use sennit_core::{ClassId, Classifier, Policy, Rule};
use sennit_packet::{Protocol, checksum::Sum};
use sennit_sim::{EDGE, SERVER, World, class, udp};

use crate::{MS, SECOND, link};

/// Expedited forwarding (RFC 3246).
const EF: u8 = 46;
/// Generic routing encapsulation (RFC 2784).
const GRE: Protocol = Protocol(47);
const VOICE: ClassId = ClassId(0);
const REST: ClassId = ClassId(1);

/// What is marked goes in the first class, and what is not in the second.
fn world() -> World {
    let marked = Rule {
        dscp: Some(EF),
        ..Rule::default()
    };
    let classes = vec![class("voice", Policy::Bond), class("rest", Policy::Bond)];
    let rules = Classifier::new(vec![(marked, VOICE)], REST);
    let mut world = World::with_classes(&[link("20/10")], classes, rules, 1, Instant::now());
    assert!(world.connect(1), "{:?}", world.edge.status());
    world
}

fn send(world: &mut World, protocol: Protocol, port: u16, dscp: u8) {
    let mut packet = udp(EDGE, SERVER, port, 0, 300);
    (packet[1], packet[9]) = (dscp << 2, protocol.0);
    packet[10..12].fill(0);
    let checksum = Sum::of(&packet[..20]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    world.send_from_edge(&packet);
    world.run(20 * MS);
}

/// Packets that each class has taken in.
fn taken(world: &mut World) -> [u64; 2] {
    let status = world.edge.status();
    [0, 1].map(|class: usize| status[class].stats.packets_in)
}

/// Each packet was sorted by itself, so that a sender who changed its marks had its flow overtake
/// itself in another tunnel.
#[test]
fn a_flow_that_is_marked_otherwise_stays_in_its_class() {
    let mut world = world();
    for dscp in [EF, 0, 0, EF] {
        send(&mut world, Protocol::UDP, 7, dscp);
    }
    assert_eq!(taken(&mut world), [4, 0]);
    for dscp in [0, EF, EF] {
        send(&mut world, Protocol::UDP, 9, dscp);
    }
    assert_eq!(taken(&mut world), [4, 3]);
    world.run(301 * SECOND);
    send(&mut world, Protocol::UDP, 9, EF);
    assert_eq!(taken(&mut world), [5, 3], "it had ended");
}

#[test]
fn what_has_no_ports_is_sorted_packet_by_packet() {
    let mut world = world();
    for dscp in [EF, 0, 0, EF] {
        send(&mut world, GRE, 0, dscp);
    }
    assert_eq!(taken(&mut world), [2, 2]);
}

#[test]
fn other_rules_are_for_flows_that_begin_from_then_on() {
    let mut world = world();
    send(&mut world, Protocol::UDP, 7, 0);
    assert_eq!(taken(&mut world), [0, 1]);
    let all = Rule {
        protocol: Some(Protocol::UDP),
        ..Rule::default()
    };
    world.sort_by(Classifier::new(vec![(all, VOICE)], REST));
    world.reload(|_| ());
    send(&mut world, Protocol::UDP, 7, 0);
    send(&mut world, Protocol::UDP, 9, 0);
    assert_eq!(taken(&mut world), [1, 2]);
}
