//! What a hub says to datagrams of strangers: nothing, where none of them is the first of a
//! handshake, and else no more than it may.

use std::{net::SocketAddr, time::Instant};

use bytes::BytesMut;
use sennit_core::Policy;
use sennit_sim::{Dice, World, first_packets};

use crate::{MS, link};

const STRANGER: ([u8; 4], u16) = ([192, 0, 2, 66], 4433);
/// A version that nobody has (RFC 9000 §15).
const OTHER: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];
/// That of version negotiation.
const NONE: [u8; 4] = [0; 4];

fn world() -> World {
    let mut world = World::new(&[link("20/10")], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    world
}

/// What the hub sends to a stranger within some time after this datagram.
fn answers(world: &mut World, datagram: &[u8]) -> Vec<BytesMut> {
    world.to_strangers = Some(Vec::new());
    world.replay(SocketAddr::from(STRANGER), &BytesMut::from(datagram));
    world.run(50 * MS);
    world.to_strangers.take().unwrap_or_default()
}

/// So many bytes of a packet with a long header and two empty IDs.
fn of_version(version: [u8; 4], len: usize) -> Vec<u8> {
    let mut datagram = [&[0xc0][..], &version, &[0, 0]].concat();
    datagram.resize(len, 0x55);
    datagram
}

/// Datagrams that are cut short, of other versions, of no handshake that there is, altered on their
/// way, or noise.
fn nonsense(initial: &[u8]) -> Vec<Vec<u8>> {
    let mut dice = Dice::new(1);
    let cut = (1..1200)
        .step_by(37)
        .chain([1199])
        .map(|len| initial[..len].to_vec());
    let mut all: Vec<Vec<u8>> = cut.collect();
    for len in [7, 8, 20, 60, 600, 1199] {
        all.extend([of_version(OTHER, len), of_version(NONE, len)]);
    }
    all.push(of_version(NONE, 1200));
    // 0-RTT, Handshake and Retry.
    for kind in [0xd0, 0xe0, 0xf0] {
        let mut other = initial.to_vec();
        other[0] = kind | other[0] & 0x0f;
        all.push(other);
    }
    for _ in 0..40 {
        let mut bent = initial.to_vec();
        let sealed = 60;
        let at = sealed + dice.roll((bent.len() - sealed) as u64) as usize;
        bent[at] ^= 1 << dice.roll(8);
        all.push(bent);
        let len = 1 + dice.roll(1199);
        all.push((0..len).map(|_| dice.roll(256) as u8).collect());
    }
    all
}

/// Seven bytes of another version were answered with more than they were.
#[test]
fn who_does_not_ask_properly_hears_nothing() {
    let mut world = world();
    let initial = first_packets(1, world.now()).swap_remove(0);
    for datagram in nonsense(&initial) {
        let answers = answers(&mut world, &datagram);
        let start = &datagram[..datagram.len().min(7)];
        assert!(answers.is_empty(), "{} bytes, {start:x?}", datagram.len());
    }
}

#[test]
fn a_whole_datagram_of_another_version_is_answered_with_few_bytes() {
    let mut world = world();
    let answers = answers(&mut world, &of_version(OTHER, 1200));
    assert_eq!(answers.len(), 1);
    assert!(answers[0].len() <= 55, "{}", answers[0].len());
    assert_eq!(answers[0][1..5], NONE);
}

/// A packet of a tunnel that there is not is answered with what ends it (RFC 9000 §10.3.3).
#[test]
fn a_short_header_is_answered_with_less_than_it_was() {
    let mut world = world();
    world.tapped = Some(Vec::new());
    world.run(30_000 * MS);
    let tapped = world.tapped.take().unwrap_or_default();
    let mut ended = 0;
    for len in [20, 21, 30, 40, 600] {
        let mut unknown = tapped.first().expect("it is probed").to_vec();
        unknown.resize(len, 0x55);
        // The last byte of its connection ID.
        unknown[8] ^= 1;
        let sent: usize = answers(&mut world, &unknown)
            .iter()
            .map(BytesMut::len)
            .sum();
        assert!(sent < len, "{sent} for {len}");
        ended += usize::from(sent > 0);
    }
    assert!(ended > 0);
}

#[test]
fn a_whole_initial_is_answered_with_three_times_as_much_at_most() {
    let mut world = world();
    for initial in first_packets(4, world.now()) {
        world.to_strangers = Some(Vec::new());
        world.replay(SocketAddr::from(STRANGER), &initial);
        world.run(20_000 * MS);
        let sent = world.to_strangers.take().unwrap_or_default();
        let sent: usize = sent.iter().map(BytesMut::len).sum();
        assert!(sent > 0 && sent <= 3 * initial.len(), "{sent}");
    }
}
