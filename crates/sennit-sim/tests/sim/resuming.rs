//! Tunnels that come back with a ticket, and what a request in their first packets saves.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_core::Policy;
use sennit_engine::{EdgeEvent, HubEvent, Plan};
use sennit_netem::{Bitrate, Config};
use sennit_sim::{Authority, EDGE, LinkSpec, SERVER, World, udp};

use crate::{MS, SECOND};

/// An edge waits for so long before it dials again.
const PAUSE: Duration = Duration::from_millis(500);

fn link(rtt: u32) -> LinkSpec {
    LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(100)),
        delay: MS * rtt / 2,
        ..Config::default()
    })
}

/// When the first inner packet reaches the hub, of an edge that sends one each millisecond.
fn first_packet(world: &mut World) -> Duration {
    world.at_hub.clear();
    let arrived = world.run_until(SECOND * 20, |world| {
        world.send_from_edge(&udp(EDGE, SERVER, 7, 1, 100));
        !world.at_hub.is_empty()
    });
    assert!(arrived, "{:?}", world.edge.status());
    world.elapsed()
}

/// How long that takes after the hub has closed the tunnel, from the edge's first packet on.
fn again(world: &mut World) -> Duration {
    world.hub.close(world.now());
    let told = world.edge_events.len();
    let down = |world: &World| {
        let mut events = world.edge_events[told..].iter();
        let lost = events.find(|(_, event)| matches!(event, EdgeEvent::TunnelDown { .. }));
        lost.map(|(at, _)| *at)
    };
    assert!(world.run_until(SECOND * 5, |world| down(world).is_some()));
    let began = down(world).expect("it is") + PAUSE;
    first_packet(world) - began
}

fn is_resumed(world: &mut World) -> bool {
    world.edge.status()[0].resumed && world.hub.status().iter().any(|tunnel| tunnel.resumed)
}

#[test]
fn a_request_in_the_first_packets_saves_a_round_trip_and_a_ticket_alone_none() {
    let mut table = Vec::new();
    for rtt in [10, 50, 200, 600] {
        let mut world = World::new(&[link(rtt)], Policy::Bond, 1, Instant::now());
        let cold = first_packet(&mut world);
        assert!(!is_resumed(&mut world));
        let early = again(&mut world);
        assert!(is_resumed(&mut world));

        let mut authority = Authority::new();
        authority.early = false;
        let mut world = World::of(authority, &[link(rtt)], 1, Instant::now());
        first_packet(&mut world);
        let resumed = again(&mut world);
        assert!(is_resumed(&mut world));

        let trips = |time: Duration| time.as_secs_f64() * 1000.0 / f64::from(rtt);
        println!("| {rtt} ms | {cold:?} | {resumed:?} | {early:?} |");
        table.push((rtt, trips(cold), trips(resumed), trips(early)));
    }
    for (rtt, cold, resumed, early) in table {
        let near = |trips: f64, wanted: f64| (wanted..wanted + 0.3).contains(&trips);
        assert!(near(cold, 2.5), "{rtt} ms cold: {cold}");
        assert!(near(resumed, 2.5), "{rtt} ms resumed: {resumed}");
        assert!(near(early, 1.5), "{rtt} ms early: {early}");
    }
}

#[test]
fn a_tunnel_is_resumed_after_an_outage_and_begun_anew_with_a_hub_that_knows_nothing() {
    let mut world = World::new(&[link(30)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    assert!(!is_resumed(&mut world));

    world.blackhole(0, true);
    world.hub.close(world.now());
    world.run(SECOND * 8);
    world.blackhole(0, false);
    assert!(world.run_until(SECOND * 20, is_resumed));
    assert!(world.connect(1));

    world.restart_hub();
    assert!(world.run_until(SECOND * 60, |world| !world.edge.status()[0].up));
    assert!(world.connect(1));
    assert!(!is_resumed(&mut world), "its sessions are gone");
}

#[test]
fn a_hub_that_asks_for_another_hello_writes_nothing_before_it_and_then_resumes_as_well() {
    let mut authority = Authority::new();
    authority.asks_again = true;
    let mut world = World::of(authority, &[link(50)], 1, Instant::now());
    assert!(first_packet(&mut world) > MS * 150, "a round trip more");
    assert!(!is_resumed(&mut world));
    again(&mut world);
    assert!(is_resumed(&mut world));
}

#[test]
fn a_request_whose_handshake_is_never_complete_takes_no_tunnel_over() {
    let mut world = World::new(&[link(10), link(1000)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(2));
    world.hub.close(world.now());
    // Over the second link the edge asks at once, over the first a little later and much faster.
    world.run(MS * 400);
    world.blackhole_one_way(0, false, true);
    let ups = |world: &World| {
        let events = world.hub_events.iter();
        let ups = events.filter(|(_, event)| matches!(event, HubEvent::TunnelUp { .. }));
        ups.count()
    };
    assert!(world.run_until(SECOND * 5, |world| world.edge.status()[0].up));
    world.run(SECOND * 15);

    assert!(world.edge.status()[0].up);
    assert_eq!(requests(&world), 3, "both links asked at once");
    assert_eq!(ups(&world), 2, "one of them has a tunnel");
}

/// What was asked by a late attempt went on telling the hub of the config before, while those that
/// took its place asked for nothing yet: tickets were used up.
#[test]
fn a_reload_ends_what_a_late_attempt_has_asked_for() {
    let mut world = World::new(&[link(50)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    world.hub.close(world.now());
    assert!(world.run_until(SECOND, |world| !world.edge.status()[0].up));
    world.blackhole(0, true);
    world.run(SECOND * 10);
    assert_eq!(world.edge.tunnels(), 2, "a late attempt beside another one");
    world.share(Plan {
        asked: true,
        ..Plan::default()
    });
    assert!(world.run_until(MS * 1500, |world| world.edge.tunnels() == 1));
}

/// How often the hub was asked for a tunnel.
fn requests(world: &World) -> usize {
    let events = world.hub_events.iter();
    let asked = events.filter(|(_, event)| matches!(event, HubEvent::Connect { .. }));
    asked.count()
}

#[test]
fn of_ten_thousand_repeated_first_flights_none_is_taken() {
    let mut world = World::new(&[link(20)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    world.hub.close(world.now());
    world.tapped = Some(Vec::new());
    assert!(world.run_until(SECOND * 5, |world| requests(world) == 2));
    let tapped = world.tapped.take().expect("it was listened to");
    let is_long = |datagram: &BytesMut| datagram.first().is_some_and(|first| first & 0x80 != 0);
    let flight: Vec<BytesMut> = tapped.into_iter().filter(is_long).collect();
    // Two have the ClientHello, and behind it is the request.
    assert!((3..=4).contains(&flight.len()), "{}", flight.len());
    assert!(world.connect(1));
    assert!(is_resumed(&mut world));

    // While the connection lives, repeated packets are its own.
    let repeat = |world: &mut World, index: u16| {
        let from = SocketAddr::from(([203, 0, 113, (index % 250) as u8], 1024 + index));
        flight.iter().for_each(|packet| world.replay(from, packet));
    };
    (0..1000).for_each(|index| repeat(&mut world, index));
    world.run(SECOND);
    assert!(world.edge.status()[0].up);
    assert_eq!(requests(&world), 2);

    // Then each is a stranger of its own, who is sent away in time.
    world.set_link(0, false);
    world.blackhole(0, true);
    assert!(world.run_until(SECOND * 300, |world| world.hub.tunnels() == 0));
    for index in 0..10_000 {
        repeat(&mut world, index);
        assert_eq!(world.hub.tunnels(), 1, "it is taken for a new handshake");
        world.run(SECOND * 15);
        assert_eq!(world.hub.tunnels(), 0);
    }
    assert_eq!(requests(&world), 2);
}
