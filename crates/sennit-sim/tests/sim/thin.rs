//! Headers that leave out what the packets of a flow have in common.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use sennit_core::{Classifier, Headers, Policy};
use sennit_engine::{ClassConfig, Treatment, facts::TunnelStats};
use sennit_packet::{
    Protocol,
    checksum::{Progress, Sum},
    gso::VirtioNetHdr,
};
use sennit_sim::{Direction, EDGE, Kind, LinkSpec, SERVER, Transfer, World, udp};

use crate::{MS, SECOND};

fn world(links: &[&str], policy: Policy, headers: Headers) -> World {
    let links: Vec<LinkSpec> = links
        .iter()
        .map(|text| text.parse().expect("a link"))
        .collect();
    let class = ClassConfig {
        name: "default".into(),
        treatment: Treatment {
            policy,
            headers,
            ..Treatment::default()
        },
        dscp: 0,
        links: None,
    };
    let classifier = Classifier::default();
    let mut world = World::with_classes(&links, vec![class], classifier, 1, Instant::now());
    assert!(world.connect(links.len()), "{:?}", world.edge.status());
    world
}

fn stats(world: &mut World) -> [TunnelStats; 2] {
    [world.edge.status()[0].stats, world.hub.status()[0].stats]
}

/// An IPv4 packet, with the checksum of its transport at `field` from its start.
fn packet(protocol: Protocol, id: u32, transport: &[u8], field: usize, sum: Progress) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol.0, 0, 0];
    let len = 20 + transport.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[4..6].copy_from_slice(&(id as u16).to_be_bytes());
    packet.extend(EDGE.octets());
    packet.extend(SERVER.octets());
    let header = Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let pseudo = Sum::pseudo_header(&packet[12..20], protocol, transport.len());
    let sum = match sum {
        Progress::Partial => pseudo.fold(),
        Progress::Whole => (pseudo + Sum::of(transport)).checksum(),
    };
    packet.extend(transport);
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A packet of a call over RTP: 20 bytes of speech.
fn call(number: u32, time: u32, mark: bool) -> Vec<u8> {
    let mut datagram = vec![0x9c, 0x40, 0x9c, 0x42, 0, 40, 0, 0, 0x80, 18];
    if mark {
        datagram[9] |= 0x80;
    }
    datagram.extend((number as u16).to_be_bytes());
    datagram.extend(time.to_be_bytes());
    datagram.extend([1, 2, 3, 4]);
    datagram.extend([number as u8; 20]);
    packet(Protocol::UDP, number, &datagram, 26, Progress::Whole)
}

/// A TCP segment with a timestamp and this part of the data of `number`, to a port.
fn segment(number: u32, part: Range<usize>, port: u8, sum: Progress) -> Vec<u8> {
    let mut segment = vec![0x9c, 0x40, 0, port];
    let sequence = number.wrapping_mul(1200) + part.start as u32;
    segment.extend(sequence.to_be_bytes());
    segment.extend(77_u32.to_be_bytes());
    segment.extend([0x80, 0x10, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10]);
    segment.extend((4 * number).to_be_bytes());
    segment.extend((4 * number + 1).to_be_bytes());
    let id = 2 * number + part.start as u32 / 600;
    segment.extend(part.map(|at| at as u8 ^ number as u8));
    packet(Protocol::TCP, id, &segment, 36, sum)
}

/// Packets of several flows, each with its own fate, and how often each one arrived.
struct Packets {
    sent: BTreeMap<Vec<u8>, (Progress, u32)>,
    count: u32,
}

impl Packets {
    /// Sends the next packet of each flow: a call, a transfer with whole and with partial
    /// checksums, and datagrams without any; now and then one that looks like no other.
    fn send(&mut self, world: &mut World) {
        let number = self.count;
        self.count += 1;
        let mut odd = segment(number, 0..700, 82, Progress::Whole);
        odd[22] ^= (number % 7) as u8;
        let jump = if number > 600 { 90_000 } else { 0 };
        for packet in [
            call(number, 160 * number + jump, number.is_multiple_of(200)),
            segment(number, 0..1200, 80, Progress::Whole),
            udp(EDGE, SERVER, 9, number, 40 + number as usize % 900),
            odd,
        ] {
            self.sent.insert(packet.clone(), (Progress::Whole, 0));
            world.send_from_edge(&packet);
        }
        for part in [0..600, 600..1200] {
            let packet = segment(number, part, 81, Progress::Partial);
            self.sent.insert(packet, (Progress::Partial, 0));
        }
        let offload = VirtioNetHdr {
            flags: VirtioNetHdr::NEEDS_CSUM,
            gso_type: VirtioNetHdr::GSO_TCPV4,
            gso_size: 600,
            csum_start: 20,
            csum_offset: 16,
            ..VirtioNetHdr::default()
        };
        let both = segment(number, 0..1200, 81, Progress::Partial);
        world.offload_from_edge(&offload, &both);
    }

    fn run(&mut self, world: &mut World, span: Duration, every: Duration) {
        let end = world.now() + span;
        while world.now() < end {
            self.send(world);
            world.run(every);
            self.take(world);
        }
        world.run(2 * SECOND);
        self.take(world);
    }

    /// Whatever arrives is what was sent, bit for bit.
    fn take(&mut self, world: &mut World) {
        while let Some(arrival) = world.at_hub.pop_front() {
            let sent = self.sent.get_mut(&arrival.packet[..]);
            let Some((checksum, times)) = sent else {
                panic!(
                    "never sent: {:02x?}",
                    &arrival.packet[..60.min(arrival.packet.len())]
                );
            };
            assert_eq!(*checksum, arrival.checksum);
            *times += 1;
        }
    }

    fn arrived(&self) -> usize {
        self.sent.values().filter(|(_, times)| *times > 0).count()
    }
}

#[test]
fn loss_and_reordering_change_no_packet() {
    let links = ["20/20±15r/10%", "10/60±30r/10%"];
    for policy in [Policy::Bond, Policy::Redundant, Policy::Balanced] {
        let mut world = world(&links, policy, Headers::Thin);
        let mut packets = Packets {
            sent: BTreeMap::new(),
            count: 0,
        };
        packets.run(&mut world, 6 * SECOND, 5 * MS);
        let [edge, hub] = stats(&mut world);
        println!("{policy}: {edge:?}\n{hub:?}");
        assert!(packets.arrived() > packets.sent.len() * 8 / 10, "{hub:?}");
        assert!(edge.thin_sent > u64::from(packets.count), "{edge:?}");
        assert!(edge.thin_saved > 20 * edge.thin_sent, "{edge:?}");
        assert!(hub.thin_received > edge.thin_sent / 2, "{hub:?}");
        assert_eq!((hub.thin_unknown, hub.malformed), (0, 0), "{hub:?}");
    }
}

#[test]
fn whole_headers_stay_whole_both_ways() {
    let mut world = world(&["20/10"], Policy::Bond, Headers::Whole);
    for direction in [Direction::Up, Direction::Down] {
        let mut flow = Transfer::new(Kind::Tcp, direction, 2, world.now());
        assert!(flow.measure(&mut world, 2 * SECOND) > 3.0);
    }
    for stats in stats(&mut world) {
        assert_eq!((stats.thin_sent, stats.thin_received), (0, 0));
    }
}

/// Bytes of datagrams for each packet of a call of one way, of which 20 are speech, and of IP
/// packets on the link, acknowledgements among them.
fn cost_of_a_call(headers: Headers) -> [f64; 2] {
    let mut world = world(&["20/10"], Policy::Bond, headers);
    let mut before = [0, 0];
    for number in 0..1100 {
        if number == 100 {
            before = costs(&mut world);
        }
        world.send_from_edge(&call(number, 160 * number, false));
        world.run(20 * MS);
    }
    let after = costs(&mut world);
    [0, 1].map(|what| (after[what] - before[what]) as f64 / 1000.0)
}

fn costs(world: &mut World) -> [u64; 2] {
    let [edge, _] = stats(world);
    [edge.bytes_sent, world.bytes_on(0)]
}

#[test]
fn a_call_costs_less() {
    let [thin, whole] = [Headers::Thin, Headers::Whole].map(cost_of_a_call);
    println!("{thin:?} bytes with thin headers, {whole:?} with whole ones");
    assert!(thin[0] < whole[0] - 38.0, "{thin:?} {whole:?}");
    // How many acknowledgements there are, chance decides.
    assert!(thin[1] < whole[1] - 15.0, "{thin:?} {whole:?}");
}

/// Part of all bytes on the link that a transfer consists of.
fn efficiency(direction: Direction, headers: Headers) -> f64 {
    let mut world = world(&["20/6.5"], Policy::Bond, headers);
    let mut flow = Transfer::new(Kind::Tcp, direction, 1, world.now());
    flow.run(&mut world, SECOND);
    let before = (flow.received(), world.bytes_on(0));
    flow.run(&mut world, 15 * SECOND);
    (flow.received() - before.0) as f64 / (world.bytes_on(0) - before.1) as f64
}

#[test]
fn a_transfer_takes_less_of_the_link() {
    for direction in [Direction::Up, Direction::Down] {
        let [thin, whole] =
            [Headers::Thin, Headers::Whole].map(|headers| efficiency(direction, headers));
        println!(
            "{direction:?}: {:.2} %, {:.2} %",
            100.0 * thin,
            100.0 * whole
        );
        assert!(thin > 1.02 * whole, "{thin} {whole}");
    }
}

#[test]
fn a_path_that_shrinks_gets_thin_packets_again_whole_and_in_halves() {
    let mut world = world(&["20/20", "20/30"], Policy::Bond, Headers::Thin);
    let mut packets = Packets {
        sent: BTreeMap::new(),
        count: 0,
    };
    packets.run(&mut world, 3 * SECOND, 4 * MS);
    world.set_path_mtu(0, 1000, false);
    world.blackhole(1, true);
    packets.run(&mut world, 5 * SECOND, 8 * MS);
    world.blackhole(1, false);
    packets.run(&mut world, 2 * SECOND, 8 * MS);
    let [edge, hub] = stats(&mut world);
    println!("{edge:?}\n{hub:?}");
    assert!(edge.repaired > 0 && hub.malformed == 0, "{edge:?} {hub:?}");
    assert_eq!(hub.thin_unknown, 0);
}
