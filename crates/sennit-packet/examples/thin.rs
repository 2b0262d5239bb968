//! What thin headers cost in time: `cargo run --release -p sennit-packet --example thin`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use etherparse::{PacketBuilder, TcpOptionElement};
use sennit_packet::IpPacket;
use sennit_packet::checksum::{Progress, Sum};
use sennit_packet::thin::{Pace, Template};

const ROUNDS: u32 = 2_000_000;

fn main() {
    let transfer = transfer();
    let mut partial = transfer.clone();
    let pseudo = Sum::pseudo_header(&transfer[12..20], sennit_packet::Protocol::TCP, 1352);
    partial[36..38].copy_from_slice(&pseudo.fold().to_be_bytes());
    measure("1372 bytes of TCP", &transfer, Progress::Whole);
    measure("the same, checksum partial", &partial, Progress::Partial);
    measure("60 bytes of UDP", &voice(), Progress::Whole);
}

fn transfer() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 61)
        .tcp(40_000, 443, 1_000_000, 500)
        .ack(77)
        .options(&[
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
            TcpOptionElement::Timestamp(1, 2),
        ])
        .expect("twelve bytes of options")
        .write(&mut packet, &[7; 1320])
        .expect("memory");
    packet
}

fn voice() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 61)
        .udp(40_000, 4000)
        .write(&mut packet, &[7; 32])
        .expect("memory");
    packet
}

fn measure(what: &str, packet: &[u8], checksum: Progress) {
    let parsed = IpPacket::parse(packet).expect("a packet");
    let template = Template::of(&parsed, 0, Pace::default()).expect("a template");
    let shrink = || {
        template
            .shrink(black_box(packet), 0, checksum)
            .expect("thin")
    };
    let thin = shrink();
    let wire = [thin.bytes(), &packet[thin.replaces..]].concat();
    let mut room = Vec::with_capacity(2048);
    let mut expand = || {
        let back = template.expand(black_box(&wire), 0).expect("whole");
        room.clear();
        room.extend_from_slice(back.head());
        room.extend_from_slice(back.payload);
        black_box(&room);
    };
    let copy = || black_box(packet.to_vec());
    println!(
        "{what}: {} bytes less; made in {:.0} ns, restored in {:.0} ns; a copy takes {:.0} ns",
        packet.len() - wire.len(),
        nanos(|| _ = black_box(shrink())),
        nanos(&mut expand),
        nanos(|| drop(copy())),
    );
}

fn nanos(mut what: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| what());
    let span: Duration = start.elapsed();
    span.as_secs_f64() * 1e9 / f64::from(ROUNDS)
}
