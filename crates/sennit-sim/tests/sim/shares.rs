//! Classes that share a link: none hurts another, and each gets what it is promised.

use std::{
    slice,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Classifier, Delivery, Policy, Rule};
use sennit_engine::{
    ClassConfig, EdgeEvent, HubEvent, Plan, Share, Terms,
    facts::{PathShare, PathStatus, TunnelStatus},
};
use sennit_netem::{Bitrate, Config, Jitter, Loss, Queue};
use sennit_sim::{
    Authority, Direction, EDGE, Kind, LinkSpec, SERVER, Transfer, World, class, number, udp,
};

use crate::MS;

/// Ports of the flows of a transfer begin there, and a ping has the one before them.
const FIRST: u16 = 5001;

/// 50 Mbit/s, 13 ms of round trip, and 100 ms of buffer.
fn link() -> LinkSpec {
    LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(50)),
        delay: Duration::from_micros(6500),
        queue: Queue::Bytes(625_000),
        ..Config::default()
    })
}

fn ports(first: u16, last: u16) -> Rule {
    Rule {
        port: Some(first..=last),
        ..Rule::default()
    }
}

/// Critical is the ping, default the first two flows, bulk the rest.
fn classes() -> (Vec<ClassConfig>, Classifier) {
    let mut critical = class("critical", Policy::Bond);
    critical.treatment.delivery = Delivery::Datagram;
    let classes = vec![
        critical,
        class("default", Policy::Bond),
        class("bulk", Policy::Bond),
    ];
    let rules = vec![
        (ports(FIRST - 2, FIRST - 1), ClassId(0)),
        (ports(FIRST, FIRST + 1), ClassId(1)),
    ];
    (classes, Classifier::new(rules, ClassId(2)))
}

fn plan(shares: [Option<Share>; 3], rate: Option<Bitrate>) -> Plan {
    let terms = |share| Terms { share, limit: None };
    let caps: std::collections::BTreeMap<String, Bitrate> = rate
        .map(|rate| ("a".to_owned(), rate))
        .into_iter()
        .collect();
    Plan {
        classes: (0..).map(ClassId).zip(shares.map(terms)).collect(),
        names: (0..)
            .map(ClassId)
            .zip(["critical", "default", "bulk"].map(Into::into))
            .collect(),
        up: caps.clone(),
        down: caps,
        ..Plan::default()
    }
}

/// 20 % for critical, 30 % for default, and the rest for bulk.
pub(crate) fn usual(rate: Option<Bitrate>) -> Plan {
    plan(
        [Some(Share::Percent(20)), Some(Share::Percent(30)), None],
        rate,
    )
}

fn world(plan: Plan) -> World {
    world_of(plan, 1)
}

fn world_of(plan: Plan, seed: u64) -> World {
    let (classes, classifier) = classes();
    let mut world = World::with_plan(&[link()], classes, classifier, plan, seed, Instant::now());
    assert!(world.connect(1));
    world
}

/// Percentiles of round trips in milliseconds, and how many got lost.
#[derive(Debug)]
pub(crate) struct Pings {
    p50: f64,
    pub(crate) p99: f64,
    lost: usize,
}

pub(crate) fn pings(all: &[Duration]) -> Pings {
    let mut answered: Vec<f64> = all
        .iter()
        .filter(|rtt| **rtt != Duration::MAX)
        .map(|rtt| rtt.as_secs_f64() * 1e3)
        .collect();
    answered.sort_by(f64::total_cmp);
    let at = |part: f64| answered[((answered.len() - 1) as f64 * part) as usize];
    Pings {
        p50: at(0.5),
        p99: at(0.99),
        lost: all.len() - answered.len(),
    }
}

/// Which ways bulk sends.
#[derive(Clone, Copy, Debug)]
enum Load {
    None,
    Up,
    Down,
    Both,
}

/// Critical's pings beside sixteen flows of bulk, and what these carry in Mbit/s.
fn beside(mut world: World, load: Load) -> (Pings, f64) {
    let now = world.now();
    let flows = |direction, streams| Transfer::new(Kind::Quic, direction, streams, now);
    // The first two flows are of default.
    let mut transfer = match load {
        Load::None => flows(Direction::Up, 0),
        Load::Up => flows(Direction::Up, 18),
        Load::Down => flows(Direction::Down, 18),
        Load::Both => flows(Direction::Up, 10).and(Kind::Quic, Direction::Down, 8, now),
    }
    .with_ping(20 * MS, now);
    transfer.run(&mut world, 3000 * MS);
    let before = transfer.pings().len();
    let goodput = transfer.measure(&mut world, 4000 * MS);
    let all = transfer.pings();
    // The last have no answer yet.
    (pings(&all[before..all.len() - 5]), goodput)
}

#[test]
fn a_full_link_is_not_noticed_by_a_class_within_its_share() {
    let rate = Some(Bitrate::mbit(50));
    let (idle, _) = beside(world(usual(rate)), Load::None);
    let mut one = World::new(&[link()], Policy::Bond, 1, Instant::now());
    assert!(one.connect(1));
    let (_, alone) = beside(one, Load::Up);
    for load in [Load::Up, Load::Down, Load::Both] {
        let (busy, goodput) = beside(world(usual(rate)), load);
        println!("{load:?} {busy:?} {goodput:.1} of {alone:.1} Mbit/s; idle {idle:?}");
        let said = format!("{load:?}: {busy:?}, idle {idle:?}, {goodput:.1} Mbit/s");
        assert!(busy.p50 < idle.p50 + 2.0, "{said}");
        assert!(busy.p99 < idle.p99 + 5.0, "{said}");
        assert_eq!(busy.lost, 0, "{said}");
        // What both directions take for acknowledgements they take from each other.
        let part = if matches!(load, Load::Both) {
            1.7
        } else {
            0.95
        };
        assert!(goodput > part * alone, "{said}, alone {alone:.1}");
    }
}

/// Bulk is bonded over both.
#[test]
fn a_class_over_two_full_links_at_once_does_not_notice_them() {
    let other = LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(30)),
        delay: 20 * MS,
        queue: Queue::Bytes(375_000),
        ..Config::default()
    });
    let world = || {
        let (mut classes, classifier) = classes();
        classes[0].treatment.policy = Policy::Redundant;
        let mut plan = usual(Some(Bitrate::mbit(50)));
        for caps in [&mut plan.up, &mut plan.down] {
            caps.insert("b".into(), Bitrate::mbit(30));
        }
        let links = [link(), other.clone()];
        let mut world = World::with_plan(&links, classes, classifier, plan, 1, Instant::now());
        assert!(world.connect(2));
        world
    };
    let (idle, _) = beside(world(), Load::None);
    // What both directions take for acknowledgements they take from each other.
    for (load, part) in [(Load::Up, 0.85), (Load::Down, 0.85), (Load::Both, 1.4)] {
        let (busy, goodput) = beside(world(), load);
        let said = format!("{load:?}: {busy:?}, idle {idle:?}, {goodput:.1} Mbit/s");
        println!("{said}");
        assert!(busy.p50 < idle.p50 + 2.0, "{said}");
        assert!(busy.p99 < idle.p99 + 5.0, "{said}");
        assert_eq!(busy.lost, 0, "{said}");
        assert!(goodput > part * 80.0, "{said}");
    }
}

#[test]
fn what_a_link_carries_is_found() {
    let (idle, _) = beside(world(usual(None)), Load::None);
    for (load, ways) in [(Load::Up, 1.0), (Load::Down, 1.0), (Load::Both, 2.0)] {
        let (busy, goodput) = beside(world(usual(None)), load);
        let said = format!("{load:?}: {busy:?}, idle {idle:?}, {goodput:.1} Mbit/s");
        println!("{said}");
        assert!(busy.p50 < idle.p50 + 2.5, "{said}");
        // Without shares it is 100 ms of buffer.
        assert!(busy.p99 < idle.p99 + 8.0, "{said}");
        assert_eq!(busy.lost, 0, "{said}");
        assert!(goodput > 0.8 * 50.0 * ways, "{said}");
    }
}

/// Acknowledgements come in bunches there, so that little arrives in some windows. One seed
/// carries half as much again as another: the mean of some is what counts.
#[test]
fn a_link_between_busy_hosts_is_found_by_flows_that_begin_on_it() {
    const SEEDS: u64 = 4;
    let trials = (1..=SEEDS).map(|seed| begin_on_it(world_of(usual(None), seed)));
    let sums = trials.reduce(|all, one| std::array::from_fn(|index| all[index] + one[index]));
    let means = sums.expect("there are seeds").map(|sum| sum / SEEDS as f64);
    println!("means {means:.1?}");
    let [median, high, goodput] = means;
    assert!(median < 7.0, "{means:?}");
    assert!(high < 35.0, "{means:?}");
    assert!(goodput > 0.72 * 100.0, "{means:?}");
}

/// What flows that begin at once in both directions add to p50 and p99 of pings, in milliseconds,
/// and what they carry in Mbit/s.
fn begin_on_it(mut world: World) -> [f64; 3] {
    world.set_turns(2 * MS, 2 * MS);
    let now = world.now();
    let mut transfer = Transfer::new(Kind::Tcp, Direction::Up, 0, now).with_ping(20 * MS, now);
    transfer.run(&mut world, 1000 * MS);
    let before = transfer.pings().len();
    let now = world.now();
    transfer =
        transfer
            .and(Kind::Tcp, Direction::Up, 18, now)
            .and(Kind::Tcp, Direction::Down, 16, now);
    transfer.run(&mut world, 1000 * MS);
    let goodput = transfer.measure(&mut world, 3000 * MS);
    let all = transfer.pings();
    let (idle, busy) = (pings(&all[..before]), pings(&all[before..all.len() - 5]));
    [busy.p50 - idle.p50, busy.p99 - idle.p99, goodput]
}

/// What default and bulk carry upward within two seconds of both, in Mbit/s.
fn default_and_bulk(plan: Plan) -> (f64, f64) {
    default_and_bulk_on(world(plan))
}

fn default_and_bulk_on(world: World) -> (f64, f64) {
    default_and_bulk_one_way(world, Direction::Up)
}

fn default_and_bulk_one_way(mut world: World, direction: Direction) -> (f64, f64) {
    let mut transfer = Transfer::new(Kind::Quic, direction, 10, world.now());
    transfer.run(&mut world, 2000 * MS);
    let before = transfer.received_each();
    transfer.run(&mut world, 2000 * MS);
    let after = transfer.received_each();
    let rates: Vec<f64> = before
        .iter()
        .zip(after)
        .map(|(before, after)| (after - before) as f64 * 8.0 / 2e6)
        .collect();
    (rates[..2].iter().sum(), rates[2..].iter().sum())
}

#[test]
fn each_class_has_its_share_and_what_nobody_uses_is_lent() {
    let (default, bulk) = default_and_bulk(usual(Some(Bitrate::mbit(50))));
    // 30 to 50, as critical has nothing to send.
    let part = default / (default + bulk);
    println!("default {default:.1}, bulk {bulk:.1}");
    assert!((0.34..0.41).contains(&part), "{default:.1} and {bulk:.1}");
    assert!(default + bulk > 40.0, "{default:.1} and {bulk:.1}");
}

/// Each class had its share of each link, also of those that it may not use, so that nothing was
/// left for default: bulk had fifty times as much.
#[test]
fn shares_count_on_the_links_that_their_classes_use() {
    let half = Some(Share::Percent(50));
    for direction in [Direction::Up, Direction::Down] {
        let (mut classes, classifier) = classes();
        for (class, link) in classes.iter_mut().zip(["b", "a", "a"]) {
            class.links = Some(vec![link.to_owned()]);
        }
        let plan = plan([half, None, half], Some(Bitrate::mbit(50)));
        let links = [link(), link()];
        let mut world = World::with_plan(&links, classes, classifier, plan, 1, Instant::now());
        assert!(world.connect(1));

        let (default, bulk) = default_and_bulk_one_way(world, direction);

        let said = format!("{direction:?}: default {default:.1}, bulk {bulk:.1}");
        println!("{said}");
        let part = default / (default + bulk);
        assert!((0.4..0.6).contains(&part), "{said}");
        assert!(default + bulk > 40.0, "{said}");
    }
}

/// They met in the queue of the link.
#[test]
fn plain_classes_share_a_link_if_somebody_asks_for_that() {
    let plain = |asked| {
        let plan = plan([None; 3], None);
        world(Plan { asked, ..plan })
    };
    let (idle, _) = beside(plain(true), Load::None);
    let (apart, _) = beside(plain(false), Load::Up);
    let (busy, goodput) = beside(plain(true), Load::Up);
    let said = format!("{busy:?}, apart {apart:?}, idle {idle:?}, {goodput:.1} Mbit/s");
    println!("{said}");
    assert!(busy.p99 < idle.p99 + 8.0, "{said}");
    assert!(busy.p99 + 10.0 < apart.p99, "{said}");
    assert!(goodput > 0.8 * 50.0, "{said}");
}

/// What a link carried while its host was late was lost, but for 2 ms of it: less than a third of
/// the link was used.
#[test]
fn hosts_that_are_late_lose_nothing_of_a_shared_link() {
    for rate in [Some(Bitrate::mbit(50)), None] {
        for late in [2, 5] {
            let mut world = world(usual(rate));
            world.set_turns(late * MS, late * MS);
            if rate.is_none() {
                // Until it is found what the link carries.
                let now = world.now();
                Transfer::new(Kind::Tcp, Direction::Up, 10, now).run(&mut world, 5000 * MS);
            }
            let (default, bulk) = default_and_bulk_on(world);
            let said = format!("{late} ms late: {default:.1} and {bulk:.1}");
            println!("{said}");
            assert!(default + bulk > 38.0, "{said}");
            // 30 and 50 % are theirs, and who takes the rest is left to them.
            assert!(default > 13.0 && bulk > 20.0, "{said}");
        }
    }
    let mut plan = usual(Some(Bitrate::mbit(50)));
    plan.classes.get_mut(&ClassId(2)).expect("bulk").limit = Some(Bitrate::mbit(20));
    let mut world = world(plan);
    world.set_turns(5 * MS, 5 * MS);
    let (default, bulk) = default_and_bulk_on(world);
    println!("limited: {default:.1} and {bulk:.1}");
    assert!((15.0..20.0).contains(&bulk), "{bulk:.1}");
    assert!(default > 22.0, "{default:.1}");
}

/// Tunnels that the hub has seen.
fn made(world: &World) -> usize {
    let up = |(_, event): &&(Duration, HubEvent)| matches!(event, HubEvent::TunnelUp { .. });
    world.hub_events.iter().filter(up).count()
}

#[test]
fn other_shares_hold_at_both_ends_without_another_tunnel() {
    let mut world = world(usual(Some(Bitrate::mbit(50))));
    let mut transfer = Transfer::new(Kind::Quic, Direction::Down, 10, world.now());
    transfer.run(&mut world, 2000 * MS);
    let before = made(&world);

    world.share(plan(
        [Some(Share::Percent(20)), Some(Share::Percent(60)), None],
        Some(Bitrate::mbit(50)),
    ));
    transfer.run(&mut world, 2000 * MS);
    let first = transfer.received_each();
    transfer.run(&mut world, 2000 * MS);
    let last = transfer.received_each();
    let rates: Vec<f64> = first
        .iter()
        .zip(last)
        .map(|(first, last)| (last - first) as f64 * 8.0 / 2e6)
        .collect();
    let (default, bulk): (f64, f64) = (rates[..2].iter().sum(), rates[2..].iter().sum());
    // 60 to 20.
    let part = default / (default + bulk);
    println!("default {default:.1}, bulk {bulk:.1}");
    assert!((0.7..0.8).contains(&part), "{default:.1} and {bulk:.1}");
    assert_eq!(made(&world), before);
}

/// Whether a class has lost its tunnel.
fn is_down(world: &World) -> bool {
    let mut events = world.edge_events.iter();
    events.any(|(_, event)| matches!(event, EdgeEvent::TunnelDown { .. }))
}

/// A class that had asked for a tunnel, or was about to, was begun anew with nothing in its queue.
#[test]
fn what_waits_while_classes_connect_again_survives_another_plan() {
    let slow = LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(50)),
        delay: 100 * MS,
        ..Config::default()
    });
    // The request leaves with the first packets of a handshake, or after it.
    let trials = (0..40).flat_map(|step| [true, false].map(|early| (step * 50, early)));
    for (after, early) in trials {
        let mut authority = Authority::new();
        authority.early = early;
        let mut world = World::of(authority, slice::from_ref(&slow), 1, Instant::now());
        assert!(world.connect(1));
        world.run(1000 * MS);
        world.hub.close(world.now());
        assert!(world.run_until(5000 * MS, |world| is_down(world)));
        for number in 0..5 {
            world.send_from_edge(&udp(EDGE, SERVER, FIRST, number, 300));
        }
        world.at_hub.clear();
        world.run(after * MS);

        world.share(plan([None, None, None], Some(Bitrate::mbit(40))));
        world.run(3000 * MS);

        let arrived = world.at_hub.iter().filter_map(|it| number(&it.packet));
        let arrived: Vec<u32> = arrived.collect();
        assert_eq!(arrived, [0, 1, 2, 3, 4], "{after} ms, early: {early}");
    }
}

/// The hub goes on with what it has found. Each plan has a clock of its own.
#[test]
fn what_a_link_carries_is_looked_at_under_another_plan_as_well() {
    let mut world = world(usual(None));
    let now = world.now();
    let mut transfer = Transfer::new(Kind::Quic, Direction::Down, 18, now).with_ping(20 * MS, now);
    transfer.run(&mut world, 10_000 * MS);
    world.share(plan([Some(Share::Percent(30)), None, None], None));
    transfer.run(&mut world, 500 * MS);
    world.change(0, |config| config.rate = Some(Bitrate::mbit(20)));
    transfer.run(&mut world, 2000 * MS);
    let before = transfer.pings().len();
    let goodput = transfer.measure(&mut world, 3000 * MS);
    let all = transfer.pings();
    let pings = pings(&all[before..all.len() - 20]);
    println!("{goodput:.1} of 20 Mbit/s, {pings:?}");
    assert!(pings.p99 < 13.0 + 25.0, "{pings:?}");
    assert!(goodput > 15.0, "{goodput:.1}");
}

/// Both ends go on with what they have found: no queue grows in the link until it is found anew.
#[test]
fn another_plan_forgets_nothing_of_what_a_link_carries() {
    for direction in [Direction::Up, Direction::Down] {
        let mut world = world(usual(None));
        let now = world.now();
        let mut transfer = Transfer::new(Kind::Quic, direction, 18, now).with_ping(20 * MS, now);
        transfer.run(&mut world, 10_000 * MS);
        let before = transfer.pings().len();
        world.share(plan([Some(Share::Percent(30)), None, None], None));
        transfer.run(&mut world, 1000 * MS);
        let all = transfer.pings();
        let pings = pings(&all[before..all.len() - 20]);
        println!("{direction:?}: {pings:?}");
        assert!(pings.p99 < 13.0 + 7.0, "{direction:?}: {pings:?}");
    }
}

#[test]
fn a_limit_holds_and_what_it_leaves_others_take() {
    let mut plan = usual(Some(Bitrate::mbit(50)));
    let bulk = plan.classes.get_mut(&ClassId(2)).expect("bulk");
    bulk.limit = Some(Bitrate::mbit(10));
    let (default, bulk) = default_and_bulk(plan);
    println!("default {default:.1}, bulk {bulk:.1}");
    assert!((7.0..10.0).contains(&bulk), "{bulk:.1}");
    assert!(default > 30.0, "{default:.1}");
}

/// Probes, reports and acknowledgements on four links were charged to this limit, the least that
/// there is, and left the class a quarter of it.
#[test]
fn a_small_limit_on_many_links_holds_and_leaves_the_class_something() {
    const LIMIT: Bitrate = Bitrate::bps(100_000);
    let terms = Terms {
        share: None,
        limit: Some(LIMIT),
    };
    for direction in [Direction::Up, Direction::Down] {
        let plan = Plan {
            classes: [(ClassId(0), terms)].into(),
            names: [(ClassId(0), "slow".into())].into(),
            ..Plan::default()
        };
        let classes = vec![class("slow", Policy::Bond)];
        let (all, now) = (Classifier::default(), Instant::now());
        let mut world = World::with_plan(&[(); 4].map(|()| link()), classes, all, plan, 1, now);
        assert!(world.connect(4));
        let now = world.now();
        let mut flow = Transfer::new(Kind::Tcp, direction, 1, now).with_ping(1000 * MS, now);
        flow.run(&mut world, 10_000 * MS);
        let spans: Vec<f64> = (0..12)
            .map(|_| flow.measure(&mut world, 10_000 * MS) * 1e6)
            .collect();
        println!("{direction:?}: {spans:.0?} bit/s");
        let mean = spans.iter().sum::<f64>() / spans.len() as f64;
        assert!(spans.iter().all(|&rate| rate > 20e3), "{spans:.0?}");
        assert!(mean < LIMIT.as_bps() as f64, "{spans:.0?}");
    }
}

#[test]
fn a_link_is_bounded_and_freed_without_a_cut() {
    let (classes, classifier) = classes();
    let mut world = World::with_classes(&[link()], classes, classifier, 1, Instant::now());
    assert!(world.connect(1));
    let before = made(&world);
    let now = world.now();
    let mut transfer = Transfer::new(Kind::Quic, Direction::Up, 10, now).with_ping(20 * MS, now);
    let free = settled(&mut world, &mut transfer);
    let first = transfer.pings().len();
    world.share(plan([None, None, None], Some(Bitrate::mbit(10))));
    let bound = settled(&mut world, &mut transfer);
    world.share(Plan::default());
    let again = settled(&mut world, &mut transfer);

    let all = transfer.pings();
    let lost = pings(&all[first..all.len() - 20]).lost;
    let said = format!("{free:.1}, {bound:.1}, {again:.1} Mbit/s, {lost} lost");
    println!("{said}");
    assert!((6.0..10.0).contains(&bound), "{said}");
    assert!(free > 38.0 && again > 30.0, "{said}");
    assert_eq!((lost, made(&world)), (0, before), "{said}");
}

/// What is known of the only path of a class.
fn path_of(all: Vec<TunnelStatus>, class: &str) -> (TunnelStatus, PathStatus) {
    let tunnel = all.into_iter().find(|tunnel| tunnel.class == class);
    let tunnel = tunnel.expect("the class");
    let path = tunnel.paths[0].clone();
    (tunnel, path)
}

#[test]
fn an_edge_knows_how_its_classes_fare_at_the_hub() {
    for rate in [Some(Bitrate::mbit(50)), None] {
        let mut world = world(usual(rate));
        let now = world.now();
        let mut transfer =
            Transfer::new(Kind::Tcp, Direction::Down, 10, now).with_ping(20 * MS, now);
        transfer.run(&mut world, 5000 * MS);
        for class in ["critical", "default", "bulk"] {
            let (at_edge, here) = path_of(world.edge.status(), class);
            let (at_hub, there) = path_of(world.hub.status(), class);
            let told = here.shared_down;
            let told = told.unwrap_or_else(|| panic!("the hub tells nothing of {class}, {rate:?}"));
            let known = there.shared.expect("the hub shares");
            let said = format!("{class} of {rate:?}: {told:?}, at the hub {known:?}");
            assert!(world.now() - told.at < 1500 * MS, "{said}");
            assert_eq!(told.share.configured, rate.is_some(), "{said}");
            // A second and a half lie between both.
            let close = |told: Bitrate, known: Bitrate, by: f64| {
                let [told, known] = [told, known].map(Bitrate::as_bytes_per_second_f64);
                (told - known).abs() <= by * known + 1000.0
            };
            let by = if rate.is_some() { 0.01 } else { 0.3 };
            assert!(close(told.share.link_rate, known.link_rate, by), "{said}");
            assert!(close(told.share.guaranteed, known.guaranteed, by), "{said}");
            assert!(close(told.share.rate, known.rate, 0.5), "{said}");
            let names = |share: &PathShare| {
                let others = share.others.iter();
                others.map(|(name, _)| name.clone()).collect::<Vec<_>>()
            };
            assert_eq!(names(&told.share), names(&known), "{said}");
            let (queue, _) = at_edge.queue_down.expect("the hub tells");
            let known = at_hub.queue;
            assert!(queue.dropped <= known.dropped, "{queue:?}, {known:?}");
            assert!(queue.dropped + 200 >= known.dropped, "{queue:?}, {known:?}");
        }
        let bulk = path_of(world.edge.status(), "bulk");
        assert!(bulk.1.shared_down.expect("the hub tells").share.held);
        assert!(bulk.0.queue_down.expect("the hub tells").0.stood > Duration::ZERO);
    }
}

#[test]
fn a_hub_that_does_not_know_shares_leaves_the_edge_its_own_direction() {
    let (classes, classifier) = classes();
    let plan = usual(Some(Bitrate::mbit(50)));
    let mut world = World::with_plan(&[link()], classes, classifier, plan, 1, Instant::now());
    world.hub.forget_shares();
    assert!(world.connect(1));
    assert!(world.edge.shares_alone());
    let now = world.now();
    let mut transfer = Transfer::new(Kind::Tcp, Direction::Up, 10, now)
        .and(Kind::Tcp, Direction::Down, 2, now)
        .with_ping(20 * MS, now);
    transfer.run(&mut world, 3000 * MS);

    let (tunnel, bulk) = path_of(world.edge.status(), "bulk");
    assert!(bulk.shared.expect("the edge shares").held);
    assert!(bulk.shared_down.is_none() && tunnel.queue_down.is_none());
    let (_, there) = path_of(world.hub.status(), "bulk");
    assert!(there.shared.is_none());
}

/// What is carried in a second after one in which it settles, in Mbit/s.
fn settled(world: &mut World, transfer: &mut Transfer) -> f64 {
    transfer.run(world, 1000 * MS);
    transfer.measure(world, 1000 * MS)
}

#[test]
fn a_hub_bounds_its_sites_otherwise_without_another_tunnel() {
    let bare = World::new(&[link()], Policy::Bond, 1, Instant::now());
    for (kind, mut world) in [
        ("bare", bare),
        ("shares", world(usual(Some(Bitrate::mbit(50))))),
    ] {
        assert!(world.connect(1));
        let mut transfer = Transfer::new(Kind::Quic, Direction::Down, 10, world.now());
        let before = made(&world);

        let free = settled(&mut world, &mut transfer);
        world.bound_sites(Some(Bitrate::mbit(20)));
        let bound = settled(&mut world, &mut transfer);
        world.bound_sites(Some(Bitrate::mbit(10)));
        let tighter = settled(&mut world, &mut transfer);
        world.bound_sites(None);
        let again = settled(&mut world, &mut transfer);

        let said = format!("{kind}: {free:.1}, {bound:.1}, {tighter:.1}, {again:.1} Mbit/s");
        println!("{said}");
        assert!((14.0..20.0).contains(&bound), "{said}");
        assert!((7.0..10.0).contains(&tighter), "{said}");
        assert!(free > 38.0 && again > 38.0, "{said}");
        assert_eq!(made(&world), before, "the tunnels stay");
    }
}

/// A slow link is taken for what it is, and not for one with a queue.
#[test]
fn a_link_whose_rate_moves_is_not_starved() {
    for (turns, least) in [(0, 15.0), (2, 13.0)] {
        let mut world = world(usual(None));
        world.set_turns(turns * MS, turns * MS);
        let now = world.now();
        let mut transfer = Transfer::new(Kind::Tcp, Direction::Up, 16, now);
        let rates = [40, 10, 30, 5, 20, 50, 8, 45, 12, 25];
        let mut carried = [0.0, 0.0];
        for carried in &mut carried {
            for rate in rates {
                let rate = Some(Bitrate::mbit(rate));
                world.change(0, |config| (config.rate, config.delay) = (rate, 20 * MS));
                *carried += transfer.measure(&mut world, 1000 * MS) / rates.len() as f64;
            }
        }
        println!("hosts act every {turns} ms: {carried:.1?} of 24.5 Mbit/s");
        assert!(carried[1] > least, "{carried:.1?} Mbit/s");
    }
}

/// Acknowledgements that stand in the other direction's queue came late, so that a link seemed to
/// carry less, and then more than it does: on 50/20 and 30/30 pings took 65 ms, 117 at p99. On
/// the short link the median of three seeds counts: with one of five the flows make it seem to be
/// one whose rate moves, and 25 ms stay in it.
#[test]
fn a_link_that_is_full_both_ways_keeps_no_queue() {
    for (texts, sum, seeds) in [
        (&["50/20"][..], 50.0, 1),
        (&["50/5"], 50.0, 3),
        (&["200/6.5"], 200.0, 1),
        (&["50/20", "30/30"], 80.0, 1),
        (&["50/6.5", "30/20"], 80.0, 1),
    ] {
        let mut trials: Vec<_> = (1..=seeds)
            .map(|seed| full_both_ways(texts, seed))
            .collect();
        trials.sort_by(|one, other| one.1.p50.total_cmp(&other.1.p50));
        let said = format!("{texts:?}: idle, busy and Mbit/s {trials:?}");
        println!("{said}");
        let (idle, busy, goodput) = &trials[trials.len() / 2];
        assert!(busy.p50 < idle.p50 + 4.0, "{said}");
        assert!(busy.p99 < idle.p99 + 12.0, "{said}");
        assert!(*goodput > 0.82 * 2.0 * sum, "{said}");
    }
}

/// Pings without load, pings once links that are full both ways are found, and what these carry in
/// Mbit/s.
fn full_both_ways(texts: &[&str], seed: u64) -> (Pings, Pings, f64) {
    let (up, down) = (Direction::Up, Direction::Down);
    let links: Vec<LinkSpec> = texts
        .iter()
        .map(|text| text.parse().expect("a link"))
        .collect();
    let (classes, classifier) = classes();
    let now = Instant::now();
    let mut world = World::with_plan(&links, classes, classifier, usual(None), seed, now);
    assert!(world.connect(links.len()));
    let mut transfer =
        Transfer::new(Kind::Quic, up, 0, world.now()).with_ping(20 * MS, world.now());
    transfer.run(&mut world, 1000 * MS);
    let before = transfer.pings().len();
    let now = world.now();
    transfer = transfer
        .and(Kind::Quic, up, 18, now)
        .and(Kind::Quic, down, 16, now);
    // The first queue is what the flows find the links with.
    transfer.run(&mut world, 4000 * MS);
    let found = transfer.pings().len();
    let goodput = transfer.measure(&mut world, 6000 * MS);
    let all = transfer.pings();
    let (idle, busy) = (pings(&all[..before]), pings(&all[found..all.len() - 20]));
    (idle, busy, goodput)
}

/// A link from 5 to 60 Mbit/s and back within seconds, 22.1 on average over all seeds, and 41 ms.
fn swell(seed: u64) -> World {
    swell_of(usual(None), seed)
}

pub(crate) fn swell_of(plan: Plan, seed: u64) -> World {
    let mut link: LinkSpec = format!("swell@{seed}/20").parse().expect("a link");
    (link.up.queue, link.down.queue) = (Queue::Time(300 * MS), Queue::Time(300 * MS));
    let (classes, classifier) = classes();
    let now = Instant::now();
    let mut world = World::with_plan(&[link], classes, classifier, plan, seed, now);
    assert!(world.connect(1));
    world
}

/// What was under way when the link began to carry less stood in its buffer, and a rate that fell
/// for long was taken for a path that had become longer: 1 ping of 100 took 120 ms more than idle.
#[test]
fn a_rate_that_falls_leaves_no_queue() {
    for seed in 1..=3 {
        let mut world = swell(seed);
        let now = world.now();
        let mut transfer = Transfer::new(Kind::Tcp, Direction::Up, 16, now).with_ping(20 * MS, now);
        transfer.run(&mut world, 3000 * MS);
        let before = transfer.pings().len();
        let goodput = transfer.measure(&mut world, 30_000 * MS);
        let all = transfer.pings();
        let pings = pings(&all[before..all.len() - 20]);
        println!("{goodput:.1} of 22.1 Mbit/s, {pings:?}");
        assert!(goodput > 0.85 * 22.1, "{goodput:.1} Mbit/s");
        assert!(pings.p99 < 41.0 + 60.0 && pings.lost == 0, "{pings:?}");
    }
}

/// What may be under way was taken from the round trip before, so less arrived, and the link was
/// taken for one that carries less and less: 5 Mbit/s were left.
#[test]
fn a_path_that_becomes_longer_while_its_rate_moves_is_found() {
    for (seed, delay) in [(1, 28), (2, 28), (1, 24), (3, 24), (2, 40), (3, 50)] {
        let mut world = swell(seed);
        let now = world.now();
        let mut transfer = Transfer::new(Kind::Tcp, Direction::Up, 16, now);
        transfer.run(&mut world, 8000 * MS);
        world.change(0, |config| config.delay = delay * MS);
        transfer.run(&mut world, 4000 * MS);
        let goodput = transfer.measure(&mut world, 20_000 * MS);
        println!("20 to {delay} ms: {goodput:.1} of 22.1 Mbit/s");
        assert!(goodput > 11.0, "{goodput:.1} Mbit/s");
    }
}

/// Delay that comes and goes was taken for a queue, so a first guess of a third of the rate stayed:
/// a tenth of all runs carried 12 to 15 of the 25 Mbit/s, these among them.
#[test]
fn jitter_is_no_queue() {
    let link = |mbit, bytes, delay: u32, jitter: u32| {
        LinkSpec::symmetric(Config {
            rate: Some(Bitrate::mbit(mbit)),
            delay: delay * MS,
            jitter: Jitter {
                spread: jitter * MS,
                ..Jitter::NONE
            },
            queue: Queue::Bytes(bytes),
            ..Config::default()
        })
    };
    let mut lossy = link(15, 187_500, 22, 6);
    (lossy.up.loss, lossy.down.loss) = (Loss::Random(0.005), Loss::Random(0.005));
    let links = [lossy, link(10, 125_000, 35, 8)];
    let mut voice = class("voice", Policy::Redundant);
    voice.treatment.delivery = Delivery::Datagram;
    let classes = [voice, class("default", Policy::Bond)];
    let rules = vec![(ports(FIRST - 2, FIRST - 1), ClassId(0))];
    let classifier = Classifier::new(rules, ClassId(1));
    let (some, rest) = (
        Terms {
            share: Some(Share::Percent(10)),
            limit: None,
        },
        Terms::default(),
    );
    let plan = Plan {
        classes: [(ClassId(0), some), (ClassId(1), rest)].into(),
        names: [(ClassId(0), "voice".into()), (ClassId(1), "default".into())].into(),
        ..Plan::default()
    };
    let (up, down) = (Direction::Up, Direction::Down);
    for (direction, seed) in [(up, 16), (up, 94), (down, 17), (down, 27), (down, 35)] {
        let (classes, classifier) = (classes.to_vec(), classifier.clone());
        let mut world = World::with_plan(
            &links,
            classes,
            classifier,
            plan.clone(),
            seed,
            Instant::now(),
        );
        assert!(world.connect(2));
        world.run(Duration::from_secs(3));
        let now = world.now();
        let mut transfer = Transfer::new(Kind::Tcp, direction, 8, now).with_ping(20 * MS, now);
        let carried = transfer.measure(&mut world, Duration::from_secs(15));
        println!("{direction:?}, seed {seed}: {carried:.1} of 25 Mbit/s");
        assert!(carried > 17.0, "{carried:.1} Mbit/s");
    }
}

/// What made no queue on a fast link was one of a third of a second here, and was let stand.
#[test]
fn a_link_of_few_packets_a_second_keeps_no_long_queue() {
    let mut world = world(usual(None));
    world.change(0, |config| {
        (config.rate, config.delay) = (Some(Bitrate::bps(300_000)), 20 * MS);
        config.queue = Queue::Bytes(50_000);
    });
    let now = world.now();
    let flows = Transfer::new(Kind::Tcp, Direction::Up, 6, now);
    let mut transfer = flows.with_ping(200 * MS, now);
    transfer.run(&mut world, 20_000 * MS);
    let before = transfer.pings().len();
    let goodput = transfer.measure(&mut world, 20_000 * MS);
    let all = pings(&transfer.pings()[before..]);
    println!("300 kbit/s: {goodput:.2} Mbit/s, {all:?}");
    assert!(goodput > 0.1, "{goodput:.2} Mbit/s");
    assert!(all.p50 < 250.0, "{all:?}");
}
