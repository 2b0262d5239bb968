//! How soon a tunnel is there, or is there again, and that packets pass then.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_core::{Delivery, PathState, Policy};
use sennit_engine::{EdgeEvent, facts::PathStatus};
use sennit_netem::Loss;
use sennit_sim::{EDGE, SERVER, Stream, World, class, number, udp};

use crate::{MS, SECOND, link};

/// How long it takes until a tunnel is up over a link of 30 ms one way that carries IP packets of
/// at most so many bytes.
fn time_to_connect(mtu: usize) -> Duration {
    let mut link = link("30/30");
    (link.up.mtu, link.down.mtu) = (mtu, mtu);
    let mut world = World::new(&[link], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1), "{mtu}: {:?}", world.edge.status());
    world.elapsed()
}

/// It took more than three seconds: noq sends small packets after a probe timeout only, and had one
/// at each step of the handshake.
#[test]
fn a_tunnel_over_a_small_path_is_up_nearly_as_soon_as_over_a_large_one() {
    let large = time_to_connect(1500);
    assert!(large < 250 * MS, "{large:?}");
    for mtu in [1477, 1400, 1280] {
        let small = time_to_connect(mtu);
        assert!(small <= large + 400 * MS, "{mtu}: {small:?} and {large:?}");
    }
}

/// What came before the hub's answer was acknowledged and thrown away, so that nobody sent it again
/// and the rest waited for it.
#[test]
fn reliable_packets_that_overtake_the_hubs_answer_are_not_lost() {
    for seed in 0..24 {
        let mut class = class("default", Policy::Bond);
        class.treatment.delivery = Delivery::Reliable;
        let links = [link("20/20/20%")];
        let begin = Instant::now();
        let mut world = World::with_classes(&links, vec![class], Default::default(), seed, begin);
        assert!(world.connect(1));
        world.restart_edge();
        for number in 0..20 {
            world.send_from_hub(&udp(SERVER, EDGE, 7, number, 300));
            world.run(20 * MS);
        }
        world.at_edge.clear();
        world.send_from_hub(&udp(SERVER, EDGE, 7, 100, 300));
        let arrives = world.run_until(4 * SECOND, |world| {
            let numbers = world.at_edge.iter().map(|it| number(&it.packet));
            numbers.into_iter().any(|it| it == Some(100))
        });
        assert!(arrives, "seed {seed}: {:?}", world.edge.status());
    }
}

/// The hub's answer shared a packet with connection IDs for paths that nobody asked for, which was
/// too large for the link and was sent again as it was: other packets passed, so no smaller one was
/// tried.
#[test]
fn an_edge_that_starts_anew_on_a_small_path_has_its_tunnel_while_packets_flow() {
    for mtu in [1400, 1340, 1280] {
        for policy in [Policy::Single, Policy::Redundant] {
            let mut small = link("20/30");
            (small.up.mtu, small.down.mtu) = (mtu, mtu);
            let mut world = World::new(&[small.clone(), small], policy, 1, Instant::now());
            assert!(world.connect(2));
            world.restart_edge();
            let mut number = 0;
            let is_back = world.run_until(2 * SECOND, |world| {
                if number % 20 == 0 {
                    world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
                    world.send_from_hub(&udp(SERVER, EDGE, 7, number, 300));
                }
                number += 1;
                let status = &world.edge.status()[0];
                status.up && status.paths.len() == 2
            });
            assert!(is_back, "{mtu} {policy}: {:?}", world.edge.status());
        }
    }
}

/// A queue that stood through an outage of two minutes left first, at the rate of a link that was
/// just found again.
#[test]
fn after_an_outage_only_what_is_young_arrives() {
    let policies = [Policy::Single, Policy::Bond, Policy::Redundant];
    for (policy, outage) in policies.iter().flat_map(|&it| [(it, 20), (it, 120)]) {
        let mut world = World::new(&[link("20/2"), link("40/2")], policy, 1, Instant::now());
        assert!(world.connect(2));
        for link in 0..2 {
            world.blackhole(link, true);
        }
        let begin = world.now();
        for step in 0..50 * (outage + 20) {
            if step == 50 * outage {
                (0..2).for_each(|link| world.blackhole(link, false));
            }
            world.send_from_edge(&udp(EDGE, SERVER, 7, step, 300));
            world.send_from_hub(&udp(SERVER, EDGE, 7, step, 300));
            world.run(20 * MS);
        }
        for (end, arrivals) in [("hub", &world.at_hub), ("edge", &world.at_edge)] {
            let packets = arrivals.iter();
            let ages =
                packets.filter_map(|it| Some(it.at - (begin + 20 * MS * number(&it.packet)?)));
            let (oldest, count) = ages.fold((Duration::ZERO, 0), |(most, count), age| {
                (most.max(age), count + 1)
            });
            println!("{policy}, {outage} s, {end}: {count}, the oldest of {oldest:?}");
            assert!(
                count > 50 * 10,
                "{policy}, {outage} s: {count} at the {end}"
            );
            assert!(
                oldest < 6 * SECOND,
                "{policy}, {outage} s: {oldest:?} at the {end}"
            );
        }
    }
}

/// Starts the hub anew a while after the first link went, and says which that was: its word that it
/// knows nothing is known on the first path only.
fn restart_hub_without_first(world: &mut World) -> usize {
    let first = world.edge.status()[0].paths[0].link.name.clone();
    let gone = ["a", "b", "c"].iter().position(|&name| name == first);
    let gone = gone.expect("it is one of them");
    world.blackhole(gone, true);
    world.run(8 * SECOND);
    world.restart_hub();
    gone
}

/// A hub that started anew says so, but noq knows its word on the first path only. With that gone
/// it took more than five seconds.
#[test]
fn a_hub_that_started_anew_is_missed_soon_though_the_first_link_is_gone() {
    let links = [link("20/10"), link("20/30"), link("20/20")];
    for policy in [Policy::Single, Policy::Bond] {
        let mut world = World::new(&links, policy, 1, Instant::now());
        assert!(world.connect(3));
        restart_hub_without_first(&mut world);
        let mut number = 0;
        let is_back = world.run_until(2600 * MS, |world| {
            if number % 20 == 0 {
                world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
            }
            number += 1;
            world.hub.status().iter().any(|tunnel| tunnel.up)
        });
        assert!(is_back, "{policy}: {:?}", world.edge.status());
    }
}

/// What other classes heard on the same ways counted as heard, so a class that was idle learned of
/// it minutes later.
#[test]
fn an_idle_class_misses_a_hub_that_started_anew_soon_after_the_others() {
    let links = [link("20/10"), link("20/30"), link("20/20")];
    let classes = ["busy", "idle"].map(|name| class(name, Policy::Bond));
    let (classes, begin) = (classes.to_vec(), Instant::now());
    let mut world = World::with_classes(&links, classes, Default::default(), 1, begin);
    assert!(world.connect(3));
    let mut stream = Stream::new(20 * MS, 300, world.now());
    stream.run(&mut world, 8 * SECOND);
    world.restart_hub();
    stream.run(&mut world, 4 * SECOND);
    let up = world.hub.status().into_iter().filter(|tunnel| tunnel.up);
    assert_eq!(up.count(), 2, "{:?}", world.edge.status());
}

/// A dead tunnel judged the ways for one that had just come back, which was given up as well.
#[test]
fn a_tunnel_that_came_back_to_a_new_hub_stays_while_another_is_missed() {
    for seed in 1..=4 {
        let links = [link("20/10"), link("20/30"), link("20/40")];
        let mut classes = vec![class("one", Policy::Bond), class("two", Policy::Bond)];
        // The hub's word that it knows nothing is known on the first path only.
        classes[0].links = Some(vec!["b".into(), "c".into()]);
        let begin = Instant::now();
        let mut world = World::with_classes(&links, classes, Default::default(), seed, begin);
        world.run(5 * SECOND);
        world.blackhole(0, true);
        world.run(10 * SECOND);
        // Whoever had traffic last judges.
        let mut stream = Stream::new(20 * MS, 300, world.now());
        stream.run(&mut world, 3 * SECOND);
        world.run(300 * SECOND);
        world.restart_hub();
        world.run(120 * SECOND);
        let up = world.hub.status().into_iter().filter(|tunnel| tunnel.up);
        assert_eq!(up.count(), 2, "{:?}", world.edge.status());
        let events = world.edge_events.iter();
        let lost = events.filter(|(_, event)| matches!(event, EdgeEvent::TunnelDown { .. }));
        assert_eq!(lost.count(), 2, "{seed}: {:?}", world.edge_events);
    }
}

/// Attempts that failed during an outage counted against the first one after it: the link waited
/// for up to eight seconds.
#[test]
fn an_outage_is_forgotten_once_the_tunnel_is_heard_again() {
    let mut world = World::new(
        &[link("20/10"), link("20/30")],
        Policy::Bond,
        1,
        Instant::now(),
    );
    assert!(world.connect(2));
    for silent in [true, false] {
        (0..2).for_each(|link| world.blackhole(link, silent));
        let mut number = 0;
        world.run_until(20 * SECOND, |world| {
            number += 1;
            if number % 20 == 0 {
                world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
            }
            !silent && number > 2000
        });
    }
    let winner = ["a", "b"]
        .iter()
        .position(|&name| name == world.edge.status()[0].paths[0].link.name);
    world.blackhole(1 - winner.expect("it is one of them"), true);
    world.restart_hub();
    let mut number = 0;
    let is_back = world.run_until(1500 * MS, |world| {
        number += 1;
        if number % 20 == 0 {
            world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
        }
        world.hub.status().iter().any(|tunnel| tunnel.up)
    });
    assert!(is_back, "{:?}", world.edge.status());
}

/// A hub that had given up the edge's connection, and what it had of it, got all that was under way
/// once more.
#[test]
fn an_edge_that_slept_repeats_nothing_under_reliable_delivery() {
    for (slept, hub_closes) in [(280, false), (30, true)] {
        let mut class = class("default", Policy::Bond);
        class.treatment.delivery = Delivery::Reliable;
        let (links, begin) = ([link("20/10"), link("20/30")], Instant::now());
        let mut world = World::with_classes(&links, vec![class], Default::default(), 1, begin);
        assert!(world.connect(2));
        (0..2).for_each(|link| world.blackhole_one_way(link, false, true));
        for number in 0..20 {
            world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
            world.run(MS);
        }
        world.run(100 * MS);
        assert_eq!(world.at_hub.len(), 20);
        world.stall(false, slept * SECOND);
        world.run(SECOND);
        if hub_closes {
            let (site, now) = (world.hub.status()[0].site.clone(), world.now());
            world
                .hub
                .expel(&site.expect("it has a name"), "to be sure", now);
        }
        world.run((slept - 1) * SECOND);
        (0..2).for_each(|link| world.blackhole_one_way(link, false, false));
        world.run(10 * SECOND);
        assert!(world.hub.status().iter().any(|tunnel| tunnel.up));
        assert_eq!(world.at_hub.len(), 20, "some came twice");
    }
}

/// The hub had not heard of it, and sent all that was under way once more, with the new numbers
/// of the next tunnel.
#[test]
fn what_left_under_reliable_delivery_comes_once_though_a_reload_ends_that() {
    let mut class = class("default", Policy::Bond);
    class.treatment.delivery = Delivery::Reliable;
    let (links, begin) = ([link("20/10"), link("20/30")], Instant::now());
    let mut world = World::with_classes(&links, vec![class], Default::default(), 1, begin);
    assert!(world.connect(2));
    (0..2).for_each(|link| world.blackhole_one_way(link, true, true));
    for number in 0..20 {
        world.send_from_hub(&udp(SERVER, EDGE, 7, number, 300));
        world.run(MS);
    }
    world.run(100 * MS);
    assert_eq!(world.at_edge.len(), 20);
    world.reload(|classes| {
        let treated = classes.values_mut().map(|class| &mut class.treatment);
        treated.for_each(|it| it.delivery = Delivery::Repair);
    });
    let (site, now) = (world.hub.status()[0].site.clone(), world.now());
    let site = site.expect("it has a name");
    world.hub.expel(&site, "to be sure", now);
    world.run(SECOND);
    (0..2).for_each(|link| world.blackhole_one_way(link, true, false));
    world.run(10 * SECOND);
    assert!(world.hub.status().iter().any(|tunnel| tunnel.up));
    assert_eq!(world.at_edge.len(), 20, "some came twice");
}

/// The hub knew no connection ID for the path yet when its address changed, answered there, and was
/// never heard on it again.
#[test]
fn a_path_whose_address_changes_while_it_is_opened_carries_soon() {
    let links = [link("20/10"), link("20/30")];
    // Their losses take the connection IDs, but not the request for a tunnel.
    for seed in [16, 31, 38] {
        let mut world = World::new(&links, Policy::Bond, seed, Instant::now());
        world.change(0, |config| config.loss = Loss::Random(0.5));
        world.blackhole_one_way(1, false, true);
        assert!(world.run_until(5 * SECOND, |world| world.edge.status()[0].up));
        world.run(150 * MS);
        world.move_to(1, "198.51.102.77".parse().unwrap());
        world.run(200 * MS);
        world.blackhole_one_way(1, false, false);
        world.run(1500 * MS);
        world.change(0, |config| config.loss = Loss::Random(0.0));
        let mut stream = Stream::new(20 * MS, 300, world.now());
        stream.run(&mut world, 6 * SECOND);
        for status in [world.edge.status(), world.hub.status()] {
            let up = |path: &&PathStatus| path.state == PathState::Up;
            assert_eq!(status[0].paths.iter().filter(up).count(), 2, "{status:?}");
        }
    }
}

/// noq validates a peer's new port for three probe timeouts of the round trip that was, and never
/// again: with a longer one the hub said nothing for three seconds, and after that on another path
/// only, which the edge did not hear if that was dead.
#[test]
fn a_link_that_returns_slower_and_with_another_port_carries_soon() {
    for others in 0..2 {
        let links = [link("20/10"), link("20/30")];
        let mut world = World::new(&links[..=others], Policy::Bond, 1, Instant::now());
        assert!(world.connect(1 + others));
        world.run(5 * SECOND);
        (0..=others).for_each(|link| world.blackhole(link, true));
        let mut number = 0;
        let is_back = world.run_until(9 * SECOND, |world| {
            number += 1;
            if number % 20 == 0 {
                world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
                world.send_from_hub(&udp(SERVER, EDGE, 7, number, 300));
            }
            if number == 8000 {
                world.rebind(0);
                world.change(0, |config| {
                    (config.outage, config.delay) = (false, 120 * MS);
                });
                world.at_edge.clear();
            }
            number > 8000 && !world.at_edge.is_empty()
        });
        assert!(is_back, "{others}: {:?}", world.edge.status());
    }
}

/// A handshake was ready to take over, and was given up because another link went; or the one that
/// was ready first went with its link, and the others waited for four seconds.
#[test]
fn a_link_that_goes_ends_no_race_of_others() {
    let cases = [1700, 1800, 1900, 2000];
    for (at, goes) in cases.into_iter().flat_map(|at| [(at, 1), (at, 2)]) {
        let links = [link("20/10"), link("20/30"), link("20/20")];
        let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
        assert!(world.connect(3));
        let gone = restart_hub_without_first(&mut world);
        let mut number = 0;
        let is_back = world.run_until(2900 * MS, |world| {
            number += 1;
            if number % 20 == 0 {
                world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
            }
            if number == at {
                world.set_link((gone + goes) % 3, false);
            }
            world.hub.status().iter().any(|tunnel| tunnel.up)
        });
        assert!(is_back, "{at}, {goes}: {:?}", world.edge.status());
    }
}

/// The hub that had answered the handshake knew nothing of the request, which took four seconds.
#[test]
fn a_hub_that_starts_anew_between_its_two_answers_is_missed_soon() {
    let mut world = World::new(&[link("20/30")], Policy::Bond, 1, Instant::now());
    let asks = world.run_until(SECOND, |world| {
        world.edge.status()[0].reason == "waiting for the hub's answer"
    });
    assert!(asks, "{:?}", world.edge.status());
    world.restart_hub();
    let is_up = world.run_until(2600 * MS, |world| world.edge.status()[0].up);
    assert!(is_up, "{:?}", world.edge.status());
}

/// The hub that started anew had acknowledged the request, but its answer was lost. An edge that
/// had nothing under way took that for a hub with much to do, for four seconds.
#[test]
fn a_hub_whose_answer_is_lost_as_it_starts_anew_is_missed_soon() {
    for (seed, restarts_after) in [(38, 300), (40, 260)] {
        let mut world = World::new(&[link("20/30")], Policy::Bond, seed, Instant::now());
        let asks = world.run_until(SECOND, |world| {
            world.edge.status()[0].reason == "waiting for the hub's answer"
        });
        assert!(asks, "{:?}", world.edge.status());
        world.change(0, |config| config.loss = Loss::Random(0.4));
        world.run(restarts_after * MS);
        world.change(0, |config| config.loss = Loss::Random(0.0));
        assert!(!world.edge.status()[0].up);
        world.restart_hub();
        let is_up = world.run_until(2600 * MS, |world| world.edge.status()[0].up);
        assert!(is_up, "{:?}", world.edge.status());
    }
}

/// The handshake went on from the address that the modem had lost, for four seconds.
#[test]
fn a_modem_that_gets_another_address_while_the_edge_starts_costs_little() {
    // The last one moves while the request is on its way, which is soon made again.
    for (before, within) in [(5, 300 * MS), (40, 300 * MS), (70, 2 * SECOND)] {
        let mut world = World::new(&[link("20/30")], Policy::Bond, 1, Instant::now());
        world.run(before * MS);
        world.readdress(0, [198, 51, 100, 77].into());
        let is_up = world.run_until(within, |world| world.edge.status()[0].up);
        assert!(is_up, "{before}: {:?}", world.edge.status());
    }
}

/// The fast link won the handshake and lost the request again and again while a little arrived,
/// so that the link that loses nothing was asked only after seconds.
#[test]
fn a_request_that_a_lossy_link_loses_is_soon_made_over_another() {
    for seed in 1..=40 {
        let links = [link("20/60"), link("20/12")];
        let mut world = World::new(&links, Policy::Bond, seed, Instant::now());
        let asks = world.run_until(SECOND, |world| {
            world.edge.status()[0].reason == "waiting for the hub's answer"
        });
        assert!(asks, "{:?}", world.edge.status());
        world.change(1, |config| config.loss = Loss::Random(0.7));
        let is_up = world.run_until(2600 * MS, |world| world.edge.status()[0].up);
        assert!(is_up, "{seed}: {:?}", world.edge.status());
    }
}

/// The hub was heard, which told nothing but that it heard nothing, and the race for its other
/// address waited until noq gave up after three minutes.
#[test]
fn an_address_of_the_hub_to_which_nothing_passes_is_given_up_soon() {
    let other: SocketAddr = "203.0.113.2:443".parse().expect("an address");
    for count in 1..=2 {
        let links = vec![link("20/20"); count];
        let mut world = World::with_dead_hubs(&links, &[other], 1, Instant::now());
        world.more_hubs.push(other);
        assert!(world.connect(count), "{:?}", world.edge.status());
        world.run(5 * SECOND);
        world.lost_to = Some(world.edge.status()[0].paths[0].remote);
        world.at_hub.clear();
        let mut number = 0;
        let is_back = world.run_until(9 * SECOND, |world| {
            number += 1;
            if number % 20 == 0 {
                world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
                world.send_from_hub(&udp(SERVER, EDGE, 7, number, 300));
            }
            world.at_hub.len() > 20
        });
        assert!(is_back, "{count}: {:?}", world.edge.status());
    }
}

/// Each time that the link came, the race for another connection was put off.
#[test]
fn a_link_that_comes_and_goes_does_not_keep_others_from_a_new_connection() {
    let links = [link("20/10"), link("20/30"), link("20/20")];
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    assert!(world.connect(3));
    let gone = restart_hub_without_first(&mut world);
    let mut number = 0;
    let is_back = world.run_until(6 * SECOND, |world| {
        number += 1;
        if number % 20 == 0 {
            world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
        }
        if number % 500 == 0 {
            world.set_link(gone, number % 1000 == 0);
        }
        world.hub.status().iter().any(|tunnel| tunnel.up)
    });
    assert!(is_back, "{:?}", world.edge.status());
}

/// The hub was heard on a link whose other direction was dead, so that no handshake was begun over
/// one that had come back for five seconds.
#[test]
fn a_tunnel_that_hears_but_is_not_heard_moves_to_a_link_that_comes_back_within_three_seconds() {
    for seed in 0..4 {
        let links = [link("20/30"), link("20/30")];
        let mut world = World::new(&links, Policy::Bond, seed, Instant::now());
        world.blackhole(0, true);
        assert!(world.connect(1), "{:?}", world.edge.status());
        let mut number = 0;
        let mut run = |world: &mut World, span| {
            world.run_until(span, |world| {
                if number % 20 == 0 {
                    world.send_from_edge(&udp(EDGE, SERVER, 7, number, 300));
                    world.send_from_hub(&udp(SERVER, EDGE, 7, number, 300));
                }
                number += 1;
                let paths = &world.edge.status()[0].paths;
                paths.iter().any(|path| path.link.name == "a")
            })
        };
        assert!(!run(&mut world, SECOND));
        world.blackhole_one_way(1, true, true);
        assert!(!run(&mut world, 500 * MS));
        world.blackhole(0, false);
        assert!(
            run(&mut world, 3 * SECOND),
            "{seed}: {:?}",
            world.edge.status()
        );
    }
}

/// What went unanswered while no link worked counted as failures of the link that came back first,
/// which had to wait for eight seconds once the hub had said that it knows nothing.
#[test]
fn a_hub_that_starts_anew_while_no_link_works_has_its_tunnel_three_seconds_after_one_does() {
    for outage in (3..=24).step_by(3) {
        let links = [link("20/10"), link("20/30"), link("20/20")];
        let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
        assert!(world.connect(3));
        let mut stream = Stream::new(50 * MS, 300, world.now());
        stream.run(&mut world, SECOND);
        (0..3).for_each(|link| world.blackhole(link, true));
        stream.run(&mut world, outage * SECOND);
        world.restart_hub();
        stream.run(&mut world, SECOND / 2);
        world.blackhole(0, false);
        stream.run(&mut world, 3 * SECOND);
        assert!(
            world.edge.status()[0].up && world.hub.status().iter().any(|tunnel| tunnel.up),
            "{outage} s: {:?}",
            world.edge.status()
        );
    }
}

/// The attempt under way when the link came back was waited for, and its next packet was due two
/// seconds later: with round trips of a third of a second, the tunnel was back after more than
/// three.
#[test]
fn what_was_begun_while_no_link_worked_is_begun_anew_once_the_hub_is_heard() {
    for tenths in (120..160).step_by(4) {
        let mut world = World::new(&[link("20/150")], Policy::Bond, 1, Instant::now());
        assert!(world.connect(1));
        let mut stream = Stream::new(50 * MS, 300, world.now());
        stream.run(&mut world, SECOND);
        world.blackhole(0, true);
        world.restart_hub();
        stream.run(&mut world, tenths * 100 * MS);
        world.blackhole(0, false);
        stream.run(&mut world, 2500 * MS);
        assert!(
            world.edge.status()[0].up && world.hub.status().iter().any(|tunnel| tunnel.up),
            "{tenths}: {:?}",
            world.edge.status()
        );
    }
}
