//! A link that classes share, whose rate moves: what bulk carries, and how long critical's pings
//! take beside it.
//!
//! `cargo run --release -p sennit-sim --example shared -- "swell@1/20" --queue-ms 300`
//!
//! How a link is written stands at the head of `sennit_netem`'s `spec.rs`.

use std::{
    iter::zip,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use sennit_core::{ClassId, Classifier, Delivery, Policy, Rule};
use sennit_engine::{Plan, Share, Terms};
use sennit_netem::Queue;
use sennit_sim::{Direction, Kind, LinkSpec, Transfer, World, class};

const MS: Duration = Duration::from_millis(1);
/// A ping whose answer takes longer was lost.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Parser)]
struct Args {
    /// Links, with spaces between them; each is played alone
    links: String,
    /// All of them at once
    #[arg(long)]
    together: bool,
    /// Hosts look at what came only every so many milliseconds
    #[arg(long, default_value_t = 0)]
    turn_ms: u32,
    /// What a link holds back before it drops
    #[arg(long, default_value_t = 300)]
    queue_ms: u32,
    /// Flows that repair what QUIC would, instead of TCP
    #[arg(long)]
    quic: bool,
    /// Flows of bulk
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    streams: u16,
    /// Virtual time that counts
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Time between two pings
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    ping_ms: u32,
    /// From the edge or to it
    #[arg(long, default_value = "up")]
    direction: Direction,
    /// Both directions at once
    #[arg(long)]
    both: bool,
    /// Runs with consecutive seeds
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// The delay one way after three seconds
    #[arg(long)]
    later_ms: Option<u32>,
    /// Without shares
    #[arg(long)]
    unshared: bool,
    /// Print what is known of the link each so many milliseconds
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    every: Option<u32>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let texts: Vec<&str> = args.links.split_whitespace().collect();
    let links: Result<Vec<LinkSpec>, _> = texts.iter().map(|text| text.parse()).collect();
    let links = match links {
        Ok(links) => links,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for seed in 1..=args.runs {
        if args.together {
            play(&args.links, &links, seed, &args);
            continue;
        }
        for (text, link) in zip(&texts, &links) {
            play(text, std::slice::from_ref(link), seed, &args);
        }
    }
    ExitCode::SUCCESS
}

fn play(text: &str, links: &[LinkSpec], seed: u64, args: &Args) {
    let mut links = links.to_vec();
    for link in &mut links {
        for direction in [Direction::Up, Direction::Down] {
            link.way_mut(direction).queue = Queue::Time(MS * args.queue_ms);
        }
    }
    let mut critical = class("critical", Policy::Bond);
    critical.treatment.delivery = Delivery::Datagram;
    let classes = vec![critical, class("bulk", Policy::Bond)];
    let ping = Rule {
        port: Some(4999..=4999),
        ..Rule::default()
    };
    let classifier = Classifier::new(vec![(ping, ClassId(0))], ClassId(1));
    let share = (!args.unshared).then_some(Share::Percent(20));
    let critical = Terms { share, limit: None };
    let plan = Plan {
        classes: [(ClassId(0), critical), (ClassId(1), Terms::default())].into(),
        names: [(ClassId(0), "critical".into()), (ClassId(1), "bulk".into())].into(),
        ..Plan::default()
    };
    let mut world = World::with_plan(&links, classes, classifier, plan, seed, Instant::now());
    world.set_turns(MS * args.turn_ms, MS * args.turn_ms);
    if !world.connect(links.len()) {
        println!("{text}: does not come up");
        return;
    }
    let now = world.now();
    let kind = if args.quic { Kind::Quic } else { Kind::Tcp };
    let mut transfer = Transfer::new(kind, args.direction, args.streams, now);
    if args.both {
        let other = match args.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        transfer = transfer.and(kind, other, args.streams, now);
    }
    let mut transfer = transfer.with_ping(MS * args.ping_ms, now);
    transfer.run(&mut world, MS * 3000);
    if let Some(ms) = args.later_ms {
        for link in 0..links.len() {
            world.change(link, |config| config.delay = MS * ms);
        }
    }
    let before = transfer.pings().len();
    let mut goodput = 0.0;
    let first = transfer.received_each();
    let span = args.every.map_or(MS * args.seconds * 1000, |ms| MS * ms);
    let mut left = MS * args.seconds * 1000;
    while !left.is_zero() {
        let span = span.min(left);
        let so_far = transfer.pings().len();
        let carried = transfer.measure(&mut world, span);
        goodput += carried * span.as_secs_f64() / f64::from(args.seconds);
        left -= span;
        if args.every.is_some() {
            let late = transfer.pings();
            let late = late[so_far..]
                .iter()
                .filter(|rtt| **rtt != Duration::MAX)
                .max();
            println!(
                "{:8.2} s  {carried:6.2} Mbit/s  longest ping {:4.0} ms",
                world.elapsed().as_secs_f64(),
                late.map_or(0.0, |rtt| rtt.as_secs_f64() * 1e3)
            );
            for status in world.edge.status() {
                for path in &status.paths {
                    if let Some(share) = path.shared.as_ref() {
                        println!("    {} {share:?}", status.class);
                    }
                }
            }
        }
    }
    if args.both {
        let all = zip(first, transfer.received_each());
        let rates: Vec<f64> = all
            .map(|(first, last)| (last - first) as f64 * 8e-6 / f64::from(args.seconds))
            .collect();
        let (one, other) = rates.split_at(args.streams.into());
        let (one, other): (f64, f64) = (one.iter().sum(), other.iter().sum());
        println!("{one:.2} Mbit/s one way, {other:.2} the other");
    }
    transfer.end_pings(&mut world, PATIENCE);
    let all = &transfer.pings()[before..];
    let mut answered: Vec<f64> = all
        .iter()
        .filter(|rtt| **rtt != Duration::MAX)
        .map(|rtt| rtt.as_secs_f64() * 1e3)
        .collect();
    answered.sort_by(f64::total_cmp);
    if answered.is_empty() {
        println!("{text:16} {goodput:6.2} Mbit/s  no ping was answered");
        return;
    }
    let at = |part: f64| answered[((answered.len() - 1) as f64 * part) as usize];
    println!(
        "{text:16} {goodput:6.2} Mbit/s  pings p50 {:4.0}, p90 {:4.0}, p99 {:4.0}, longest {:4.0} ms, {} lost",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        all.len() - answered.len()
    );
}
