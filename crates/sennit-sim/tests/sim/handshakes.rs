//! What post-quantum handshakes cost beside classic ones: time until there is a tunnel, and
//! goodput.
//!
//! CI asks a few seeds. Figures for the book, in a few minutes, are those of
//! `SENNIT_SIM_SEEDS=1..501 cargo test --workspace --test sim -- handshakes::a_p --nocapture`, and
//! `SENNIT_SIM_SEEDS=1..41 cargo test --workspace --test sim -- handshakes::a_t --nocapture`.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_sim::{Authority, Direction, Kind, LinkSpec, Transfer, World, first_packets};

use crate::{BOTH, SECOND, asked_seeds, link};

/// After so many, a sixteenth of its 4096 places, a hub asks for proof.
const STRANGERS: usize = 256;

/// A world whose edge offers post-quantum key exchange, or only others.
fn world(link: &LinkSpec, is_classic: bool, seed: u64) -> World {
    let mut authority = Authority::new();
    authority.classic = is_classic;
    World::of(authority, std::slice::from_ref(link), seed, Instant::now())
}

/// The time from the edge's first packet until it has a tunnel.
fn handshake(link: &LinkSpec, is_classic: bool, seed: u64) -> Duration {
    let mut world = world(link, is_classic, seed);
    assert!(world.run_until(SECOND * 60, |world| world.edge.status()[0].up));
    world.elapsed()
}

/// The time that it takes at a hub with so many strangers that each newcomer has to show that its
/// address is its own.
fn after_retry(link: &LinkSpec, is_classic: bool, seed: u64) -> Duration {
    let mut world = world(link, is_classic, seed);
    for (number, packet) in (0..).zip(first_packets(STRANGERS, world.now())) {
        world.replay(
            SocketAddr::from(([198, 51, 100, 1], 1024 + number)),
            &packet,
        );
    }
    assert!(world.run_until(SECOND * 60, |world| world.edge.status()[0].up));
    assert!(world.hub.strangers().asked_to_retry > 0);
    world.elapsed()
}

/// Goodput in so long after the edge's first packet, in Mbit/s.
fn goodput(
    link: &LinkSpec,
    is_classic: bool,
    direction: Direction,
    span: Duration,
    seed: u64,
) -> f64 {
    let mut world = world(link, is_classic, seed);
    let mut flows = Transfer::new(Kind::Tcp, direction, 4, world.now());
    flows.run(&mut world, span);
    flows.received() as f64 * 8.0 / span.as_secs_f64() / 1e6
}

/// Of so many in a hundred that are not more than it.
fn percentile(all: &mut [f64], percent: usize) -> f64 {
    all.sort_by(f64::total_cmp);
    all[(all.len() * percent).div_ceil(100) - 1]
}

/// Without probes of the second ClientHello it took as much longer as a probe timeout.
#[test]
fn a_hub_that_demands_a_proof_of_the_address_makes_no_post_quantum_handshake_slow() {
    let mut small = link("20/20");
    (small.up.mtu, small.down.mtu) = (1260, 1260);
    for (text, link) in [("20/20", link("20/20")), ("20/20, MTU 1280", small)] {
        let [classic, large] = [true, false].map(|is_classic| after_retry(&link, is_classic, 1));
        println!("{text}: classic {classic:.0?}, post-quantum {large:.0?}");
        assert!(large <= classic * 3 / 2, "{text}: {large:?}, {classic:?}");
    }
}

#[test]
fn a_post_quantum_handshake_takes_at_most_half_as_long_again_as_a_classic_one() {
    let seeds = asked_seeds().unwrap_or(1..301);
    println!("| link | classic p50, p95, max | post-quantum p50, p95, max |");
    let links = ["20/10", "20/10/10%", "20/50", "20/50/10%"].map(|text| (text, link(text)));
    let mut small = link("20/20");
    // With the headers of IPv4 that are counted here, what IPv6 lets through at 1280.
    (small.up.mtu, small.down.mtu) = (1260, 1260);
    for (text, link) in links.into_iter().chain([("20/20, MTU 1280", small)]) {
        let [classic, large] = [true, false].map(|is_classic| {
            let took = |seed| handshake(&link, is_classic, seed).as_secs_f64() * 1e3;
            let mut all: Vec<f64> = seeds.clone().map(took).collect();
            [50, 95, 100].map(|percent| percentile(&mut all, percent))
        });
        println!("| {text} | {classic:.0?} ms | {large:.0?} ms |");
        for (classic, large) in classic.into_iter().zip(large).take(2) {
            assert!(large <= 1.5 * classic, "{text}: {large} and {classic} ms");
        }
    }
}

/// Where loss decides, one seed carries up to a fifth more or less with other packets in the
/// handshake, so of few seeds all links together are judged, and each by itself if more are asked.
#[test]
fn a_tunnel_that_began_with_a_post_quantum_handshake_carries_as_much() {
    const LEAST: f64 = 0.95;
    let asked = asked_seeds();
    let span = SECOND * if asked.is_some() { 10 } else { 4 };
    let seeds = asked.clone().unwrap_or(1..6);
    let mut all = Vec::new();
    println!("| link | classic | post-quantum | ratio by seed: p10, median, p90 |");
    for text in ["20/20", "20/20/10%"] {
        let link = link(text);
        for direction in BOTH {
            let [classic, large] = [true, false].map(|is_classic| -> Vec<f64> {
                let carried = |seed| goodput(&link, is_classic, direction, span, seed);
                seeds.clone().map(carried).collect()
            });
            let pairs = classic.iter().zip(&large);
            let mut ratios: Vec<f64> = pairs.map(|(classic, large)| large / classic).collect();
            all.extend_from_slice(&ratios);
            let ratios = [10, 50, 90].map(|percent| percentile(&mut ratios, percent));
            let [classic, large] = [classic, large].map(|mut all| percentile(&mut all, 50));
            println!("| {text} {direction} | {classic:.2} | {large:.2} | {ratios:.3?} |");
            assert!(
                asked.is_none() || large >= LEAST * classic,
                "{text}: {large} and {classic} Mbit/s"
            );
        }
    }
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    println!("all: {mean:.3}");
    assert!(mean >= LEAST, "{mean}");
}
