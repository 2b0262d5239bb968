//! What each link carries alone and what all carry together.
//!
//! `cargo run -p sennit-sim --example goodput -- "300/10 80/30" --streams 1 --seconds 10 --kind
//! quic`
//!
//! A link is `rate/delay[±jitter[r]][/loss%]` in Mbit/s and ms one way; with `r` packets overtake
//! each other. A rate may be a motion, as in `lte@7/20`, `starlink@3*2/25`, `steps/20` (see
//! `sennit_netem::Motion`). "Alone" is the same tunnel with that link only.

use std::{process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};
use sennit_engine::facts::TunnelStatus;
use sennit_sim::{Direction, Kind, LinkSpec, Trial};

#[derive(Parser)]
struct Args {
    /// Links, with spaces between them
    links: String,
    /// Flows at once
    #[arg(long, default_value_t = 1)]
    streams: u16,
    /// Virtual time that counts
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Virtual time before it
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// How they send
    #[arg(long, value_enum, default_value = "tcp")]
    kind: KindArg,
    /// From the edge or to it
    #[arg(long, value_enum, default_value = "up")]
    direction: DirectionArg,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs with consecutive seeds, averaged
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Print the status of all paths at the end of each run
    #[arg(long)]
    status: bool,
    /// Print what both ends know of the paths each so many seconds
    #[arg(long, value_name = "SECONDS")]
    every: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
    Tcp,
    Quic,
}

#[derive(Clone, Copy, ValueEnum)]
enum DirectionArg {
    Up,
    Down,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let links: Result<Vec<LinkSpec>, _> = args.links.split_whitespace().map(str::parse).collect();
    let links = match links {
        Ok(links) if !links.is_empty() => links,
        Ok(_) => return fail("no links"),
        Err(error) => return fail(&error.to_string()),
    };
    let mut best: f64 = 0.0;
    for link in &links {
        let alone = goodput(std::slice::from_ref(link), &args);
        best = best.max(alone);
        println!("{link:24} {alone:7.2} Mbit/s");
    }
    if links.len() > 1 {
        let together = goodput(&links, &args);
        let ratio = together / best;
        println!(
            "{:24} {together:7.2} Mbit/s  {ratio:.2} of the best",
            "together"
        );
    }
    ExitCode::SUCCESS
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

/// Mean goodput over all runs.
fn goodput(links: &[LinkSpec], args: &Args) -> f64 {
    let seeds = args.seed..args.seed + args.runs;
    seeds.map(|seed| run(links, seed, args)).sum::<f64>() / args.runs as f64
}

fn run(links: &[LinkSpec], seed: u64, args: &Args) -> f64 {
    let trial = Trial {
        kind: match args.kind {
            KindArg::Tcp => Kind::Tcp,
            KindArg::Quic => Kind::Quic,
        },
        direction: match args.direction {
            DirectionArg::Up => Direction::Up,
            DirectionArg::Down => Direction::Down,
        },
        streams: args.streams,
        warm_up: Duration::from_secs_f64(args.warm_up),
        span: Duration::from_secs_f64(args.seconds),
        seed,
    };
    let outcome = match args.every {
        Some(seconds) => trial.watch(links, Duration::from_secs_f64(seconds), print_status),
        None => trial.run(links),
    };
    if args.status {
        let (stall, status) = (outcome.longest_stall, &outcome.status);
        println!("seed {seed}: longest stall {stall:?}, {status:#?}");
    }
    outcome.goodput
}

/// A line per end and path: round trip and the least, rate, window, in flight, sent.
fn print_status(goodput: f64, ends: &[TunnelStatus]) {
    println!("{goodput:.2} Mbit/s");
    for (end, status) in ["sender", "receiver"].iter().zip(ends) {
        let (backlog, queue, order) = (status.backlog, status.queue, status.stats.order);
        println!(
            "  {end}: {backlog} bytes wait, {} dropped; {} held, {} missed",
            queue.dropped, order.held, order.missed
        );
        for path in &status.paths {
            let millis = |rtt: Option<Duration>| rtt.unwrap_or_default().as_millis();
            println!(
                "    {} {:?}: {} ms (least {}), {:.2} Mbit/s, window {}, in flight {}, {} packets, {} lost",
                path.link.name,
                path.state,
                millis(path.rtt),
                millis(path.rtt_min),
                path.rate as f64 * 8e-6,
                path.cwnd,
                path.in_flight,
                path.sent_packets,
                path.lost_packets
            );
        }
    }
}
