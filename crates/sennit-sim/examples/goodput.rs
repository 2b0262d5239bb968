//! What each link carries alone and what all carry together.
//!
//! `cargo run -p sennit-sim --example goodput -- "300/10 80/30" --streams 1 --seconds 10 --kind
//! quic`
//!
//! How a link is written stands at the head of `sennit_netem`'s `spec.rs`.
//! "Alone" is the same tunnel with that link only, or with `--plain` no tunnel.

use std::{process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};
use sennit_engine::facts::TunnelStatus;
use sennit_sim::{Direction, Kind, LinkSpec, Trial, TrialError, seconds};

#[derive(Parser)]
struct Args {
    /// Links, with spaces between them
    links: String,
    /// Flows at once
    #[arg(long, default_value_t = 1)]
    streams: u16,
    /// Virtual time that counts
    #[arg(long, default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Virtual time before it
    #[arg(long, default_value = "2", value_parser = seconds)]
    warm_up: Duration,
    /// How they send
    #[arg(long, value_enum, default_value = "tcp")]
    kind: KindArg,
    /// From the edge or to it
    #[arg(long, default_value = "up")]
    direction: Direction,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs with consecutive seeds, averaged
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Over each link alone without a tunnel
    #[arg(long)]
    plain: bool,
    /// Print the status of all paths at the end of each run
    #[arg(long)]
    status: bool,
    /// Print what both ends know of the paths each so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    every: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
    Tcp,
    Quic,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let links: Result<Vec<LinkSpec>, _> = args.links.split_whitespace().map(str::parse).collect();
    let links = match links {
        Ok(links) if !links.is_empty() => links,
        Ok(_) => return fail("no links"),
        Err(error) => return fail(&error.to_string()),
    };
    match compare(&links, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// Each link alone, then all together.
fn compare(links: &[LinkSpec], args: &Args) -> Result<(), TrialError> {
    let mut best: f64 = 0.0;
    for (index, link) in links.iter().enumerate() {
        let alone = if args.plain {
            mean(args, |trial| trial.plain(link, index))?
        } else {
            goodput(std::slice::from_ref(link), args)?
        };
        best = best.max(alone);
        println!("{link:24} {alone:7.2} Mbit/s");
    }
    if links.len() > 1 {
        let together = goodput(links, args)?;
        let ratio = together / best;
        println!(
            "{:24} {together:7.2} Mbit/s  {ratio:.2} of the best",
            "together"
        );
    }
    Ok(())
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

/// Mean goodput over all runs.
fn goodput(links: &[LinkSpec], args: &Args) -> Result<f64, TrialError> {
    mean(args, |trial| run(links, &trial, args))
}

/// Mean over the trials of all seeds.
fn mean(
    args: &Args,
    goodput: impl Fn(Trial) -> Result<f64, TrialError>,
) -> Result<f64, TrialError> {
    let mut seeds = (0..args.runs).map(|run| args.seed.wrapping_add(run));
    let sum = seeds.try_fold(0.0, |sum, seed| Ok(sum + goodput(trial(seed, args))?))?;
    Ok(sum / args.runs as f64)
}

fn trial(seed: u64, args: &Args) -> Trial {
    Trial {
        kind: match args.kind {
            KindArg::Tcp => Kind::Tcp,
            KindArg::Quic => Kind::Quic,
        },
        direction: args.direction,
        streams: args.streams,
        warm_up: args.warm_up,
        span: args.seconds,
        seed,
    }
}

fn run(links: &[LinkSpec], trial: &Trial, args: &Args) -> Result<f64, TrialError> {
    let outcome = match args.every {
        Some(every) => trial.watch(links, every, print_status),
        None => trial.run(links),
    }?;
    if args.status {
        let (stall, status) = (outcome.longest_stall, &outcome.status);
        println!("seed {}: longest stall {stall:?}, {status:#?}", trial.seed);
    }
    Ok(outcome.goodput)
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
                path.rate.as_bps() as f64 / 1e6,
                path.cwnd,
                path.in_flight,
                path.sent_packets,
                path.lost_packets
            );
        }
    }
}
