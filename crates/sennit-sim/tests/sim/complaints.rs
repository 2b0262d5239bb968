//! What users of other bonds and tunnels complain about in public, each as it would happen here.
//!
//! Each test names the report. What other modules have as a test is not repeated:
//! links that return, idle costs, black holes, NATs with dead mappings, marginal legs.

use std::time::{Duration, Instant};

use sennit_core::{Classifier, Policy};
use sennit_engine::EdgeEvent;
use sennit_netem::Queue;
use sennit_sim::{Direction, EDGE, Kind, LinkSpec, SERVER, Stream, Transfer, World, class, udp};

use crate::{BOTH, MS, SECOND, link};

fn world(links: &[LinkSpec], policy: Policy) -> World {
    let mut world = World::new(links, policy, 1, Instant::now());
    assert!(world.connect(links.len()), "{:?}", world.edge.status());
    world
}

fn share_below(pings: &[Duration], bound: Duration) -> f64 {
    let below = pings.iter().filter(|&&ping| ping < bound).count();
    below as f64 / pings.len() as f64
}

/// OpenMPTCProuter #722: the tunnel is declared down when its links are saturated.
#[test]
fn links_that_are_full_with_deep_queues_are_not_taken_for_dead() {
    for direction in BOTH {
        let mut links = [link("10/20"), link("5/40")];
        for link in &mut links {
            for way in [&mut link.up, &mut link.down] {
                way.queue = Queue::Time(2 * SECOND);
            }
        }
        let mut world = world(&links, Policy::Bond);
        let from = world.edge_events.len();
        let mut flows = Transfer::new(Kind::Tcp, direction, 8, world.now());
        flows.run(&mut world, 20 * SECOND);

        let news = world.edge_events[from..].iter();
        let bad = |(_, event): &&(Duration, EdgeEvent)| {
            let trouble = matches!(event, EdgeEvent::TunnelDown { .. });
            trouble || matches!(event, EdgeEvent::Path { .. } | EdgeEvent::PathClosed { .. })
        };
        let bad: Vec<_> = news.filter(bad).collect();
        assert!(bad.is_empty(), "{direction:?}: {bad:?}");
    }
}

/// OpenMPTCProuter #4016: pings stop when the link dies that opened the tunnel, and again when the
/// second one does.
#[test]
fn each_link_may_die_in_turn_and_none_is_more_than_another() {
    for first in [0, 1] {
        let mut world = world(&[link("20/10"), link("20/15")], Policy::Bond);
        let mut stream = Stream::new(10 * MS, 200, world.now());
        stream.run(&mut world, 2 * SECOND);
        for dead in [first, 1 - first, first] {
            stream.longest_gap = Duration::ZERO;
            world.blackhole(dead, true);
            stream.run(&mut world, 5 * SECOND);
            assert!(
                stream.longest_gap < 250 * MS,
                "{dead}: {:?}",
                stream.longest_gap
            );
            world.blackhole(dead, false);
            stream.run(&mut world, 10 * SECOND);
        }
        stream.finish(&mut world);
        assert_eq!(stream.lost(), 0);
    }
}

/// OpenMPTCProuter #1401, SRT #1757: the backup stays preferred after the master is back, or the
/// way back loses packets.
#[test]
fn the_better_tier_is_used_again_and_going_back_to_it_loses_nothing() {
    let links = ["20/10", "10/50"].map(link);
    let classes = vec![class("default", Policy::Failover)];
    let now = Instant::now();
    let mut world = World::with_tiers(&links, &[1, 2], classes, Classifier::default(), 1, now);
    assert!(world.connect(2));
    let mut stream = Stream::new(5 * MS, 600, world.now());
    stream.run(&mut world, 2 * SECOND);
    world.blackhole(0, true);
    stream.run(&mut world, 5 * SECOND);
    let [master, spare] = [0, 1].map(|link| world.bytes_on(link));
    assert!(spare > 500_000, "the backup carries it: {spare}");

    world.blackhole(0, false);
    stream.run(&mut world, 5 * SECOND);
    let before = [0, 1].map(|link| world.bytes_on(link));
    stream.run(&mut world, 5 * SECOND);
    let carried = [0, 1].map(|link| world.bytes_on(link) - before[link]);
    assert!(
        before[0] > master && carried[0] > 10 * carried[1],
        "{carried:?}"
    );
    stream.finish(&mut world);
    assert_eq!((stream.lost(), stream.duplicates), (0, 0));
}

/// OpenMPTCProuter #1598, #1986: names are not resolved for a while after a link has died. Each
/// query is a flow of its own, with one packet.
#[test]
fn single_packet_flows_find_the_link_that_lives() {
    let mut world = world(&[link("20/10"), link("20/30")], Policy::Bond);
    world.run(5 * SECOND);
    world.blackhole(0, true);
    let mut late = 0;
    for query in 0..100_u16 {
        world.at_hub.clear();
        world.send_from_edge(&udp(EDGE, SERVER, 1000 + query, query.into(), 70));
        let answered = world.run_until(400 * MS, |world| !world.at_hub.is_empty());
        late += u32::from(!answered);
        world.run(20 * MS);
    }
    assert_eq!(late, 0, "of 100 queries");
}

/// Peplink's forum, 16179: three LTE links of 70 to 80 ms make 200 to 220 ms as a bond.
#[test]
fn a_bond_of_links_alike_answers_as_quickly_as_one_of_them() {
    for direction in BOTH {
        let links = ["20/35", "20/37", "20/40"].map(link);
        let mut world = world(&links, Policy::Bond);
        let flows = Transfer::new(Kind::Tcp, direction, 4, world.now());
        let mut flows = flows.with_ping(50 * MS, world.now());
        // Who ignores SACK needs a while where one slow start has lost several packets.
        flows.run(&mut world, 15 * SECOND);
        let rate = flows.measure(&mut world, 10 * SECOND);
        let pings = flows.pings();
        let quick = share_below(&pings[..pings.len() - 10], 110 * MS);
        assert!(rate > 2.4 * 20.0, "{direction:?}: {rate} Mbit/s");
        assert!(quick > 0.9, "{direction:?}: {quick}");
    }
}

/// OpenMPTCProuter #3411, #610: bursts of video make pings of two to three seconds.
#[test]
fn bursts_of_video_do_not_delay_a_ping() {
    let mut world = world(&["8/20", "4/40"].map(link), Policy::Bond);
    let mut pings =
        Transfer::new(Kind::Tcp, Direction::Down, 0, world.now()).with_ping(50 * MS, world.now());
    for burst in 0..20 {
        // A second of video at 6 Mbit/s, all at once.
        for number in 0..600 {
            world.send_from_hub(&udp(SERVER, EDGE, 9, burst * 1000 + number, 1250));
        }
        pings.run(&mut world, SECOND);
    }
    let answers = pings.pings();
    let quick = share_below(&answers[..answers.len() - 10], 150 * MS);
    assert!(quick > 0.99, "{quick}");
}

/// OpenVPN #823: at a path MTU of 1492 only packets of 1441 to 1448 bytes fail.
#[test]
fn no_size_near_the_edge_of_a_path_fails() {
    // From where the tunnel's largest packets fit to where they do not.
    for mtu in [1476, 1477, 1478, 1479, 1492] {
        let mut only = link("20/10");
        (only.up.mtu, only.down.mtu) = (mtu, mtu);
        let mut world = world(&[only], Policy::Bond);
        world.run(2 * SECOND);
        for len in 1370..=1400 {
            world.at_hub.clear();
            for number in 0..3 {
                world.send_from_edge(&udp(EDGE, SERVER, 7, number, len));
            }
            world.run(100 * MS);
            assert_eq!(world.at_hub.len(), 3, "{len} bytes over {mtu}");
        }
    }
}

/// In s2n-quic #3299 a post-quantum ClientHello with a large MTU makes handshakes of 191 ms instead
/// of 10.
#[test]
fn a_tunnel_comes_up_within_a_few_round_trips() {
    for (delay, most) in [(5, 60), (50, 420)] {
        let links = [link(&format!("20/{delay}"))];
        let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
        let up = |world: &mut World| world.edge.status()[0].up;
        assert!(world.run_until(10 * SECOND, up));
        assert!(world.elapsed() < most * MS, "{:?}", world.elapsed());
    }
}
