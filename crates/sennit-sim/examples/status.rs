//! What a status costs the thread that has the packets:
//! `cargo run --release -p sennit-sim --example status`.
//!
//! A hub with 64 tunnels of two paths, as many as a site may have classes, is asked as `sennit
//! status` asks it: some tunnels in each turn, with the packets of that turn between them. What one
//! turn takes is what a packet waits for at most, however many tunnels there are.

use std::{
    hint::black_box,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Classifier, Policy, Rule};
use sennit_engine::{
    HubClasses, HubConfig,
    facts::FlowsWanted,
    hub::{AT_ONCE, Walk},
};
use sennit_netem::{Bitrate, Config};
use sennit_sim::{EDGE, LinkSpec, World, class, udp};

const MS: Duration = Duration::from_millis(1);
const TUNNELS: u8 = 64;
/// The port of the flows of the first tunnel.
const FIRST_PORT: u16 = 5000;
/// The source of the first flow of each.
const SOURCES: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// Flows that a status tells of.
const TOLD: usize = 16;
const TIMES: usize = 20;

/// What one status took.
#[derive(Clone, Copy, Default)]
struct Cost {
    whole: Duration,
    longest_turn: Duration,
    at_once: Duration,
    flows: usize,
}

fn main() {
    println!(
        "{TUNNELS} tunnels, {AT_ONCE} in a turn; the median and the longest of {TIMES} answers"
    );
    println!("flows a tunnel   µs a tunnel   longest turn, µs   without turns, µs");
    for flows in [1, 16, 1000] {
        let mut world = world();
        offer(&mut world, flows);
        let once = |_| {
            offer(&mut world, 1);
            ask(&mut world)
        };
        let mut costs: Vec<Cost> = (0..TIMES).map(once).collect();
        costs.sort_by_key(|cost| cost.whole);
        let median = costs[TIMES / 2];
        let longest = |part: fn(&Cost) -> Duration| costs.iter().map(part).max();
        println!(
            "{:14.0} {:13.2} {:18.0} {:19.0}",
            median.flows as f64 / f64::from(TUNNELS),
            micros(median.whole) / f64::from(TUNNELS),
            micros(longest(|cost| cost.longest_turn).unwrap_or_default()),
            micros(longest(|cost| cost.at_once).unwrap_or_default()),
        );
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A hub with a class for each tunnel, which flows come to by their port.
fn world() -> World {
    let link = LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(10_000)),
        delay: MS,
        ..Config::default()
    });
    let names: Vec<String> = (0..TUNNELS).map(|class| format!("class-{class}")).collect();
    let classes = names.iter().map(|name| class(name, Policy::Bond)).collect();
    let (rules, start) = (Classifier::default(), Instant::now());
    let mut world = World::with_classes(&[link.clone(), link], classes, rules, 1, start);
    assert!(world.connect(2), "{:?}", world.edge.status());
    let rule = |class| {
        let port = FIRST_PORT + u16::from(class);
        let port = Some(port..=port);
        let rule = Rule {
            port,
            ..Rule::default()
        };
        (rule, ClassId(class))
    };
    let rules = (0..TUNNELS).map(rule).collect();
    let config = HubConfig {
        addresses: Vec::new(),
        max_strangers: 0,
        site_limit: None,
        classes: HubClasses {
            classifier: Classifier::new(rules, ClassId(0)),
            names,
        },
        udp_flows: 0,
    };
    let now = world.now();
    world.hub.change(config, now);
    world
}

/// The hub sends a packet of each of so many flows over every tunnel.
fn offer(world: &mut World, flows: u32) {
    for flow in 0..flows {
        let source = Ipv4Addr::from_bits(SOURCES.to_bits() + flow);
        for class in 0..TUNNELS {
            let port = FIRST_PORT + u16::from(class);
            world.send_from_hub(&udp(source, EDGE, port, flow, 200));
        }
        world.run(MS);
    }
    world.run(20 * MS);
    world.at_edge.clear();
}

fn ask(world: &mut World) -> Cost {
    let (now, wanted) = (
        world.now(),
        FlowsWanted {
            pattern: None,
            limit: TOLD,
        },
    );
    let (mut cost, mut walk) = (Cost::default(), Walk::default());
    while !walk.is_over() {
        let begun = Instant::now();
        let told = world.hub.status_of_next(&mut walk, &wanted, now);
        if walk.is_over() {
            black_box(world.hub.links());
        }
        let took = begun.elapsed();
        cost.whole += took;
        cost.longest_turn = cost.longest_turn.max(took);
        cost.flows += told.iter().map(|tunnel| tunnel.flow_count).sum::<usize>();
    }
    let begun = Instant::now();
    black_box(world.hub.status_with_flows(&wanted, now));
    cost.at_once = begun.elapsed();
    cost
}
