//! Keys are renewed while packets flow (RFC 9001 §6). In all worlds that is so often that it
//! happens in most scenarios; here is what nobody may notice of it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_core::Policy;
use sennit_engine::EdgeEvent;
use sennit_sim::{EDGE, SERVER, Stream, World, udp};

use crate::{MS, SECOND, link};

/// Key Phase of a short header, which its protection covers and whoever is on the path can turn.
const PHASE: u8 = 0x04;

fn world(links: &[&str]) -> World {
    let links: Vec<_> = links.iter().map(|text| link(text)).collect();
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    assert!(world.connect(links.len()));
    world
}

/// How often the keys were renewed, as the edge and the hub say.
fn renewals(world: &mut World) -> [u64; 2] {
    [world.edge.status(), world.hub.status()].map(|status| status[0].key_updates)
}

/// Packets that either end has sent again.
fn repaired(world: &mut World) -> u64 {
    [world.edge.status(), world.hub.status()]
        .iter()
        .map(|status| status[0].stats.repaired)
        .sum()
}

/// 26 Mbit/s each way for so long; how many went down.
fn both_ways(world: &mut World, up: &mut Stream, span: Duration) -> usize {
    let (end, mut down) = (world.now() + span, 0);
    while world.now() < end {
        up.run(world, MS * 2);
        for _ in 0..5 {
            world.send_from_hub(&udp(SERVER, EDGE, 8, down as u32, 1300));
            down += 1;
        }
    }
    down
}

#[test]
fn on_two_full_paths_no_packet_is_lost_or_waits_for_keys_that_are_renewed() {
    let mut world = world(&["16/5", "16/60"]);
    // First what the paths carry is found.
    let mut up = Stream::new(MS * 2 / 5, 1300, world.now());
    both_ways(&mut world, &mut up, SECOND * 4);
    up.finish(&mut world);
    world.at_edge.clear();
    let (before, [since, _]) = (repaired(&mut world), renewals(&mut world));

    let mut up = Stream::new(MS * 2 / 5, 1300, world.now());
    let down = both_ways(&mut world, &mut up, SECOND * 8);
    up.finish(&mut world);

    let renewed = renewals(&mut world);
    assert!(
        renewed.iter().all(|&count| count >= since + 5),
        "{since}, then {renewed:?}"
    );
    assert_eq!((up.lost(), up.duplicates), (0, 0));
    assert_eq!(world.at_edge.len(), down);
    assert_eq!(repaired(&mut world), before, "nothing had to be sent again");
    // That is the first path's round trip and what it takes to be sure of the order.
    assert!(
        up.missing_after(MS * 80) == 0.0,
        "{}",
        up.missing_after(MS * 80)
    );
}

#[test]
fn whoever_turns_the_phase_of_packets_renews_no_keys_and_stops_nothing() {
    let mut world = world(&["20/5", "20/20"]);
    let mut stream = Stream::new(MS, 1300, world.now());
    let begun = world.now();
    let mut forged = 0;
    while world.now() < begun + SECOND * 10 {
        world.tapped = Some(Vec::new());
        stream.run(&mut world, MS * 5);
        for mut packet in world.tapped.take().into_iter().flatten() {
            packet[0] ^= PHASE;
            let from = SocketAddr::from(([198, 51, 100, 7], 7));
            world.replay(from, &BytesMut::from(&packet[..]));
            forged += 1;
        }
    }
    stream.finish(&mut world);

    let [edge, hub] = renewals(&mut world);
    assert!(forged > 10_000, "{forged}");
    // What the edge sends is the reason for nearly all.
    assert!((3..=10_000 / 2000 + 1).contains(&edge), "{edge}");
    assert_eq!(edge, hub);
    assert_eq!((stream.lost(), stream.duplicates), (0, 0));
}

/// What is lost, doubled and sent again, each way, in four seconds in which both ends send, and how
/// often keys were renewed meanwhile.
fn traffic(links: &[&str], rekey: u64, repeats: Option<Duration>) -> ([u64; 4], u64) {
    let links: Vec<_> = links.iter().map(|text| link(text)).collect();
    let mut world = World::with_rekey(&links, rekey, 1, Instant::now());
    assert!(world.connect(links.len()));
    world.repeats_after = repeats;
    let mut up = Stream::new(MS, 1300, world.now());
    let mut down = 0;
    for _ in 0..1000 {
        up.run(&mut world, MS * 4);
        for _ in 0..4 {
            world.send_from_hub(&udp(SERVER, EDGE, 8, down, 1300));
            down += 1;
        }
    }
    up.finish(&mut world);
    world.run(SECOND);
    let ended = |(_, event): &(_, EdgeEvent)| matches!(event, EdgeEvent::TunnelDown { .. });
    assert!(!world.edge_events.iter().any(ended));
    let lost = [
        up.lost() as u64,
        u64::from(down) - world.at_edge.len() as u64,
    ];
    let figures = [lost[0], lost[1], up.duplicates.into(), repaired(&mut world)];
    let [edge, hub] = renewals(&mut world);
    assert!(edge.abs_diff(hub) <= 1, "{edge}, {hub}");
    (figures, edge)
}

/// Packets have the same sizes under whatever keys, so nothing else may be different either.
#[test]
fn keys_that_are_renewed_as_often_as_it_can_be_are_not_noticed_where_much_is_lost_and_overtaken() {
    let lossy = ["16/5±4r/30%", "16/20±10r/30%", "16/60±20r/30%"];
    for links in [&lossy[..], &["16/5", "16/60"]] {
        let (without, none) = traffic(links, u64::MAX, None);
        assert_eq!(none, 0);
        // The least that a config can have, and one that asks for it all the time.
        for rekey in [1000, 1] {
            let (with, renewed) = traffic(links, rekey, None);
            assert_eq!(with, without, "{links:?}, {rekey}");
            assert!(renewed >= 4, "{links:?}, {rekey}: {renewed}");
        }
    }
}

#[test]
fn packets_that_are_repeated_when_their_keys_are_forgotten_open_nothing_and_stop_nothing() {
    let links = ["16/5", "16/20"];
    let (figures, renewed) = traffic(&links, 1, Some(MS * 700));
    assert_eq!(figures[..3], [0; 3]);
    assert!(renewed >= 8, "{renewed}");
}
