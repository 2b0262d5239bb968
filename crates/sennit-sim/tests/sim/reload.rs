//! What a class under load notices of another config: it keeps its tunnel and all that is in it,
//! and classes come and go without a loss.

use std::time::{Duration, Instant};

use sennit_core::{ClassId, Classifier, Congestion, Delivery, Headers, Policy, Rule};
use sennit_engine::{ClassConfig, EdgeEvent, Fec, HubEvent, Treatment};
use sennit_sim::{EDGE, SERVER, Stream, World, class, number, udp};

use crate::{MS, SECOND, link};

/// The flow of a [`Stream`], and one of the same ports the other way.
const PORT: u16 = 7;

fn world(links: &[&str], seed: u64) -> World {
    let links: Vec<_> = links.iter().map(|text| link(text)).collect();
    let mut world = World::new(&links, Policy::Bond, seed, Instant::now());
    assert!(world.connect(links.len()), "{:?}", world.edge.status());
    world
}

/// Has a reload treat the only class otherwise.
fn treat(world: &mut World, change: impl FnOnce(&mut Treatment)) {
    world.reload(|classes| {
        let class = classes.get_mut(&ClassId(0)).expect("it has this class");
        change(&mut class.treatment);
    });
}

/// Tunnels that the hub has seen.
fn made(world: &World) -> usize {
    let up = |(_, event): &&(Duration, HubEvent)| matches!(event, HubEvent::TunnelUp { .. });
    world.hub_events.iter().filter(up).count()
}

/// Sends and receives 10 Mbit/s each way for so long; `sent` packets have gone down before.
fn both_ways(world: &mut World, up: &mut Stream, sent: &mut u32, span: Duration) {
    let end = world.now() + span;
    while world.now() < end {
        up.run(world, MS);
        world.send_from_hub(&udp(SERVER, EDGE, PORT, *sent, 1200));
        *sent += 1;
    }
}

/// The numbers of what has come down, in the order in which it came.
fn came_down(world: &mut World) -> Vec<u32> {
    let arrived = world.at_edge.drain(..);
    arrived.filter_map(|it| number(&it.packet)).collect()
}

/// One reload after the other.
const CHANGES: [fn(&mut Treatment); 12] = [
    |it| it.policy = Policy::Failover,
    |it| it.delivery = Delivery::Reliable,
    |it| it.headers = Headers::Whole,
    |it| it.policy = Policy::Redundant,
    |it| it.copies = 3,
    |it| it.delivery = Delivery::Repair,
    |it| it.policy = Policy::Balanced,
    |it| it.fec = "rs:10+2".parse().expect("a code"),
    |it| it.policy = Policy::Bond,
    |it| it.headers = Headers::Thin,
    |it| it.fec = Fec::Auto,
    |it| it.congestion = Congestion::Bbr,
];

/// Each change ended the tunnel, with all that was under way, and what waited in its queue.
#[test]
fn a_class_that_changes_under_load_keeps_its_tunnel_and_loses_no_packet() {
    let mut world = world(&["40/10", "40/25"], 1);
    let (mut up, mut sent) = (Stream::new(MS, 1200, world.now()), 0);
    both_ways(&mut world, &mut up, &mut sent, 2 * SECOND);
    let before = made(&world);

    for change in CHANGES {
        treat(&mut world, change);
        both_ways(&mut world, &mut up, &mut sent, SECOND);
        let ends = [world.edge.status(), world.hub.status()];
        assert_eq!(ends[0][0].treatment, ends[1][0].treatment);
    }

    up.finish(&mut world);
    assert_eq!((up.lost(), up.duplicates, up.disordered), (0, 0, 0));
    let all: Vec<u32> = (0..sent).collect();
    assert_eq!(came_down(&mut world), all);
    assert_eq!(made(&world), before, "it is the tunnel of before");
    for status in [world.edge.status(), world.hub.status()] {
        let stats = status[0].stats;
        assert_eq!((stats.malformed, stats.thin_unknown), (0, 0));
    }
}

/// Headers travel as the last reload says.
#[test]
fn headers_are_thin_and_whole_again_without_another_tunnel() {
    let mut world = world(&["20/10"], 1);
    let (mut up, mut sent) = (Stream::new(MS, 300, world.now()), 0);
    let thin = |world: &mut World| {
        [world.edge.status(), world.hub.status()].map(|status| status[0].stats.thin_sent)
    };
    for headers in [Headers::Thin, Headers::Whole].repeat(2) {
        treat(&mut world, |it| it.headers = headers);
        // The hub hears of it, and a template has to be known before it is used.
        both_ways(&mut world, &mut up, &mut sent, SECOND);
        let before = thin(&mut world);
        both_ways(&mut world, &mut up, &mut sent, SECOND);
        let after = thin(&mut world);
        let leave_thin = [0, 1].map(|end| after[end] > before[end]);
        assert_eq!(leave_thin, [headers == Headers::Thin; 2], "{headers}");
    }
    up.finish(&mut world);
    assert_eq!((up.lost(), came_down(&mut world).len()), (0, sent as usize));
}

/// What was under way, and lost, nobody sent again any more.
#[test]
fn what_left_while_lost_packets_were_repaired_arrives_though_they_are_no_more() {
    let deliveries = [Delivery::Repair, Delivery::Reliable];
    for (seed, delivery) in (0..8).flat_map(|seed| deliveries.map(|it| (seed, it))) {
        let mut world = world(&["20/20/20%", "20/30/20%"], seed);
        treat(&mut world, |it| {
            (it.delivery, it.fec) = (delivery, Fec::Off);
        });
        let mut up = Stream::new(MS, 600, world.now());
        up.run(&mut world, SECOND);
        assert!(world.run_until(100 * MS, |world| world.edge.status()[0].backlog == 0));
        let repaired = up.sent();

        treat(&mut world, |it| it.delivery = Delivery::Datagram);
        up.run(&mut world, SECOND);
        up.finish(&mut world);

        assert!(
            up.lost() > 50,
            "nothing is repaired any more: {}",
            up.lost()
        );
        assert_eq!(up.lost_of(repaired), 0, "{seed} {delivery}");
    }
}

/// What was lost before would have been waited for, as long as reliable packets are, though nobody
/// sends it again.
#[test]
fn a_class_that_becomes_reliable_does_not_stand_still() {
    for seed in 0..8 {
        let mut world = world(&["20/20/10%", "20/30/10%"], seed);
        treat(&mut world, |it| {
            (it.delivery, it.fec) = (Delivery::Datagram, Fec::Off);
        });
        let (mut up, mut sent) = (Stream::new(MS, 600, world.now()), 0);
        both_ways(&mut world, &mut up, &mut sent, SECOND);
        treat(&mut world, |it| it.delivery = Delivery::Reliable);
        both_ways(&mut world, &mut up, &mut sent, SECOND);
        came_down(&mut world);
        let mut at_hub = up.sent() as usize - up.lost();
        for moment in 0..10 {
            both_ways(&mut world, &mut up, &mut sent, 300 * MS);
            let down = came_down(&mut world).len();
            let arrived = up.sent() as usize - up.lost();
            let up_now = arrived - at_hub;
            assert!(down > 0 && up_now > 0, "{seed} {moment}: {down} {up_now}");
            at_hub = arrived;
        }
    }
}

/// What is sent twice was never sent again: where both copies were lost, so was the packet.
#[test]
fn a_class_of_copies_that_is_reliable_loses_nothing() {
    for changed in [false, true] {
        let links = ["20/10/10%", "20/40/10%"].map(link);
        let mut class = class("default", Policy::Redundant);
        if !changed {
            class.treatment.delivery = Delivery::Reliable;
        }
        let begin = Instant::now();
        let mut world = World::with_classes(&links, vec![class], Classifier::default(), 1, begin);
        assert!(world.connect(2), "{:?}", world.edge.status());
        let mut up = Stream::new(10 * MS, 300, world.now());
        up.run(&mut world, SECOND);
        treat(&mut world, |it| it.delivery = Delivery::Reliable);
        up.run(&mut world, SECOND);
        let lost = up.lost_of(up.sent() - 50);
        up.run(&mut world, 20 * SECOND);
        world.run(SECOND);
        up.finish(&mut world);
        let may_be_lost = if changed { lost } else { 0 };
        assert!(up.lost() <= may_be_lost, "{changed}: {} lost", up.lost());
        assert_eq!(up.duplicates, 0, "{changed}");
    }
}

/// What had arrived by the quick link was waited for until the slow one had it too.
#[test]
fn a_class_of_copies_that_is_reliable_is_as_quick_as_the_better_link() {
    let links = ["50/10", "50/300"].map(link);
    let mut class = class("default", Policy::Redundant);
    class.treatment.delivery = Delivery::Reliable;
    let begin = Instant::now();
    let mut world = World::with_classes(&links, vec![class], Classifier::default(), 1, begin);
    assert!(world.connect(2), "{:?}", world.edge.status());
    let mut up = Stream::new(MS / 8, 200, world.now());
    up.run(&mut world, 8 * SECOND);

    let missing = up.sent() - up.arrived() as u32;
    assert!(missing < 800, "{missing} of {}", up.sent());
}

/// A hub of before takes another treatment with another request alone. What waits, and what is
/// under way of reliable delivery, leaves over the next tunnel.
#[test]
fn a_class_that_an_older_hub_has_to_hear_of_anew_keeps_what_waits() {
    let links = [link("40/10"), link("40/25")];
    let mut class = class("default", Policy::Bond);
    class.treatment.delivery = Delivery::Reliable;
    let begin = Instant::now();
    let mut world = World::with_classes(&links, vec![class], Classifier::default(), 1, begin);
    world.hub.forget_shares();
    assert!(world.connect(2), "{:?}", world.edge.status());
    let mut up = Stream::new(MS, 1200, world.now());
    up.run(&mut world, SECOND);
    let before = made(&world);

    for policy in [Policy::Failover, Policy::Bond] {
        treat(&mut world, |it| it.policy = policy);
        up.run(&mut world, 2 * SECOND);
    }

    up.finish(&mut world);
    assert_eq!(made(&world), before + 2);
    assert_eq!((up.lost(), up.disordered), (0, 0));
}

/// What the hub of the last tunnel had answered was taken for the word of all of them.
#[test]
fn a_class_goes_by_what_the_hub_of_its_own_tunnel_takes() {
    let mut world = world(&["40/10"], 1);
    world.hub.forget_shares();
    world.reload(|classes| {
        classes.insert(ClassId(1), class("calls", Policy::Bond));
    });
    assert!(world.run_until(3 * SECOND, |world| made(world) == 2));
    world.run(SECOND);

    treat(&mut world, |it| it.policy = Policy::Failover);
    world.run(2 * SECOND);
    assert_eq!(made(&world), 2, "it is told in the tunnel that there is");
    assert_eq!(world.hub.status()[0].treatment.policy, Policy::Failover);

    world.reload(|classes| {
        let calls = classes.get_mut(&ClassId(1)).expect("it has this class");
        calls.treatment.policy = Policy::Failover;
    });
    world.run(2 * SECOND);
    assert_eq!(made(&world), 3, "that of an older hub is told by a request");
}

/// The class of these ports, before that of all others.
fn calls() -> (ClassConfig, Rule) {
    let rule = Rule {
        port: Some(PORT..=PORT),
        ..Rule::default()
    };
    (class("calls", Policy::Redundant), rule)
}

/// What came for a class whose tunnel was not up yet was turned back, and what was under way in
/// one that went was lost.
#[test]
fn flows_move_to_a_class_that_comes_and_back_when_it_goes_without_a_loss() {
    let mut world = world(&["40/10", "40/25"], 1);
    let (mut up, mut sent) = (Stream::new(MS, 1200, world.now()), 0);
    both_ways(&mut world, &mut up, &mut sent, SECOND);
    for _ in 0..3 {
        let (calls, rule) = calls();
        world.sort_by(Classifier::new(vec![(rule, ClassId(1))], ClassId(0)));
        world.reload(|classes| {
            classes.insert(ClassId(1), calls);
        });
        both_ways(&mut world, &mut up, &mut sent, 2 * SECOND);
        let status = world.edge.status();
        assert!(status.len() == 2 && status[1].up, "{status:?}");
        assert!(status[1].stats.packets_in > 1000, "{:?}", status[1].stats);

        world.sort_by(Classifier::default());
        world.reload(|classes| {
            classes.remove(&ClassId(1));
        });
        assert_eq!(world.edge.status().len(), 1, "it is not shown any more");
        both_ways(&mut world, &mut up, &mut sent, 2 * SECOND);
        assert_eq!(world.hub.status().len(), 1, "its tunnel is gone");
    }
    up.finish(&mut world);
    assert_eq!((up.lost(), up.duplicates), (0, 0));
    let mut down = came_down(&mut world);
    down.sort_unstable();
    let all: Vec<u32> = (0..sent).collect();
    assert_eq!(down, all);
}

/// A class that goes and comes back at once has the tunnel that it had, and one of another name
/// that gets its number has one of its own.
#[test]
fn a_class_that_comes_back_at_once_goes_on() {
    let mut world = world(&["40/10"], 1);
    let with = |world: &mut World, name: &str| {
        let class = class(name, Policy::Bond);
        world.reload(|classes| {
            classes.insert(ClassId(1), class);
        });
    };
    let without = |world: &mut World| {
        world.reload(|classes| {
            classes.remove(&ClassId(1));
        });
    };
    with(&mut world, "calls");
    assert!(world.connect(1));
    let before = made(&world);
    without(&mut world);
    world.run(100 * MS);
    with(&mut world, "calls");
    world.run(3 * SECOND);
    assert_eq!(made(&world), before);
    assert!(world.edge.status()[1].up);

    without(&mut world);
    world.run(100 * MS);
    with(&mut world, "games");
    assert!(world.connect(1));
    world.run(3 * SECOND);
    let names: Vec<String> = world.hub.status().into_iter().map(|it| it.class).collect();
    assert_eq!(names, ["default", "games"]);
    let down = |(_, event): &&(Duration, EdgeEvent)| matches!(event, EdgeEvent::TunnelDown { .. });
    assert_eq!(world.edge_events.iter().filter(down).count(), 1);
}

/// The class of a flow is remembered, and packets of one that was gone went nowhere.
#[test]
fn a_flow_of_a_class_that_is_gone_goes_on_in_another() {
    let small = Rule {
        size: Some(0..=200),
        ..Rule::default()
    };
    let large = Rule {
        size: Some(1300..=1400),
        ..Rule::default()
    };
    let rules = vec![(small, ClassId(1)), (large.clone(), ClassId(0))];
    let classes = vec![class("default", Policy::Bond), class("small", Policy::Bond)];
    let classifier = Classifier::new(rules, ClassId(0));
    let links = [link("20/10")];
    let mut world = World::with_classes(&links, classes, classifier, 1, Instant::now());
    assert!(world.connect(1));
    let mut up = Stream::new(10 * MS, 100, world.now());
    up.run(&mut world, SECOND);
    world.sort_by(Classifier::new(vec![(large, ClassId(0))], ClassId(0)));
    world.reload(|classes| {
        classes.remove(&ClassId(1));
    });
    up.run(&mut world, 5 * SECOND);
    up.finish(&mut world);
    assert_eq!(up.lost(), 0);
}
