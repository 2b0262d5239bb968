//! Code points and ECN fields: those of inner packets go through, those of outer ones are the
//! tunnel's own.

use std::time::Instant;

use sennit_core::{ClassId, Classifier, Congestion, Policy};
use sennit_engine::ClassConfig;
use sennit_packet::{IpPacket, checksum::Sum};
use sennit_sim::{Arrival, Direction, EDGE, Kind, SERVER, Transfer, World, class, number, udp};

use crate::{MS, link};

const ECT_0: u8 = 0b10;
/// Expedited forwarding (RFC 3246).
const EF: u8 = 46;

fn world(text: &str, class: ClassConfig) -> World {
    let (classes, all) = (vec![class], Classifier::default());
    let mut world = World::with_classes(&[link(text)], classes, all, 1, Instant::now());
    assert!(world.connect(1), "{:?}", world.edge.status());
    world
}

/// A numbered packet with this type of service: code point and ECN field.
fn packet(up: bool, service: u8, number: u32) -> Vec<u8> {
    let (from, to) = if up { (EDGE, SERVER) } else { (SERVER, EDGE) };
    let mut packet = udp(from, to, 7, number, 600);
    packet[1] = service;
    packet[10..12].fill(0);
    let checksum = Sum::of(&packet[..20]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Sends such packets both ways, all types of service in turn, and asserts that they arrive as they
/// left, but for so many that may be lost.
#[track_caller]
fn assert_marks_pass(world: &mut World, may_lose: usize) {
    const PACKETS: u32 = 512;
    for number in 0..PACKETS {
        world.send_from_edge(&packet(true, number as u8, number));
        world.send_from_hub(&packet(false, number as u8, number));
        world.run(5 * MS);
    }
    world.run(500 * MS);
    for (up, arrivals) in [(true, &world.at_hub), (false, &world.at_edge)] {
        for Arrival { packet: got, .. } in arrivals {
            let number = number(got).expect("it has one");
            let parsed = IpPacket::parse(got).expect("it is whole");
            let service = parsed.dscp() << 2 | parsed.ecn();
            assert_eq!(service, number as u8, "up: {up}");
            assert_eq!(got[..], packet(up, service, number));
        }
        let lost = PACKETS as usize - arrivals.len();
        assert!(lost <= may_lose, "up: {up}, {lost} lost");
    }
}

#[test]
fn inner_marks_arrive_as_they_left_and_show_nowhere_else() {
    let mut world = world("20/10", class("default", Policy::Bond));
    world.take_services(0);
    assert_marks_pass(&mut world, 0);
    for services in world.take_services(0) {
        assert_eq!(services.into_iter().collect::<Vec<_>>(), [ECT_0]);
    }
}

#[test]
fn inner_marks_come_back_by_repairs() {
    let mut lossy = class("default", Policy::Bond);
    lossy.treatment.fec = "rs:10+2".parse().expect("a code");
    let mut world = world("20/10/3%", lossy);
    assert_marks_pass(&mut world, 2);
    let recovered = world.hub.status()[0].fec.decoder.recovered;
    assert!(recovered > 0, "nothing came back");
}

/// RFC 6040 has the mark of the outer packet set in the inner one where nothing else answers it.
/// Here the tunnel's own congestion control does.
#[test]
fn marks_of_outer_packets_are_not_those_of_inner_ones() {
    let mut world = world("20/10", class("default", Policy::Bond));
    world.mark_each(0, 1);
    assert_marks_pass(&mut world, 0);
}

/// BBR 3 sends at the rate of the path, and no more than fits there without a queue. BBR 1 hears of
/// marks as little as of losses, and is not among these.
#[test]
fn of_a_link_that_marks_packets_less_is_in_flight() {
    for (congestion, carries) in [
        (Congestion::Cubic, 0.0..0.5),
        (Congestion::Bbr3, 0.5..1.1),
        (Congestion::Auto, 0.5..1.1),
    ] {
        let mut class = class("default", Policy::Bond);
        class.treatment.congestion = congestion;
        let mut world = world("50/20", class);
        let mut flows = Transfer::new(Kind::Quic, Direction::Up, 4, world.now());
        flows.run(&mut world, 3000 * MS);
        let mut see = |world: &mut World| {
            let carried = flows.measure(world, 3000 * MS);
            (carried, world.edge.status()[0].paths[0].cwnd as f64)
        };
        let (before, window) = see(&mut world);
        world.mark_each(0, 20);
        let (marked, bound) = see(&mut world);
        let said = format!(
            "{congestion:?}: {before:.1} and {marked:.1} Mbit/s, {window} and {bound} bytes"
        );
        println!("{said}");
        assert!(bound < 0.7 * window, "{said}");
        assert!(carries.contains(&(marked / before)), "{said}");
    }
}

#[test]
fn the_code_point_of_a_class_is_that_of_all_its_outer_packets() {
    let mut voice = class("voice", Policy::Bond);
    voice.dscp = EF;
    let classes = vec![voice, class("default", Policy::Bond)];
    let begin = Instant::now();
    let all = Classifier::new(Vec::new(), ClassId(1));
    let mut world = World::with_classes(&[link("20/10")], classes, all, 1, begin);
    assert!(world.connect(1));
    let both = [ECT_0, EF << 2 | ECT_0];
    for services in world.take_services(0) {
        assert!(both.iter().all(|it| services.contains(it)), "{services:?}");
    }

    let mut voice = class("voice", Policy::Bond);
    voice.dscp = EF;
    let mut world = self::world("20/10", voice);
    world.take_services(0);
    assert_marks_pass(&mut world, 0);
    for services in world.take_services(0) {
        assert_eq!(services.into_iter().collect::<Vec<_>>(), [EF << 2 | ECT_0]);
    }
}
