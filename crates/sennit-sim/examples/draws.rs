//! Sets of links by chance: what Sennit carries over each, and what the links carry alone without
//! it.
//!
//! `cargo run --release -p sennit-sim --example draws -- --sets 0..20 --flows 4 --directions down
//! --jobs 2`
//!
//! A set is that of its number for ever, so several people can share the work and look at one set
//! again (`goodput` takes its links as they are printed). Each set runs with 1 and 4 flows, down
//! and up; the first seconds do not count. "Best" is the best link alone, "sum" what all carry
//! alone, both with the same flows and no tunnel; "wires" is what the links could carry. All are
//! measured in the same time of links that move. The last lines are the shares over all runs: where
//! no tunnel came up it carried nothing, and the exit code is 1.

use std::{
    num::NonZeroUsize,
    ops::Range,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use clap::{Parser, ValueEnum};
use sennit_sim::{Dice, Direction, Kind, LinkSpec, Trial, TrialError, seconds};

#[derive(Parser)]
struct Args {
    /// Numbers of the sets
    #[arg(long, default_value = "0..20", value_parser = range)]
    sets: Range<u64>,
    /// Flows at once
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    flows: Vec<u16>,
    /// From the edge or to it
    #[arg(long, value_delimiter = ',', default_value = "down,up")]
    directions: Vec<Direction>,
    /// How the flows send: like QUIC with CUBIC, or as smoltcp's TCP, which has no SACK and is weak
    /// at loss
    #[arg(long, value_enum, default_value = "quic")]
    kind: KindArg,
    /// Virtual seconds before those that count
    #[arg(long, default_value = "30", value_parser = seconds)]
    after: Duration,
    /// Virtual seconds that count
    #[arg(long, default_value = "15", value_parser = seconds)]
    seconds: Duration,
    /// Runs at the same time
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// Of the best link, below which a run counts as a failure. A tunnel's headers alone cost 5 to
    /// 6 %: over one link nothing reaches more than 0.945
    #[arg(long, default_value_t = 0.95)]
    enough: f64,
    /// Only sets that move, or only those that do not
    #[arg(long)]
    moving: Option<bool>,
    /// Only print the sets
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
    Tcp,
    Quic,
}

/// A set in one direction with so many flows.
struct Run {
    set: u64,
    links: Vec<LinkSpec>,
    trial: Trial,
}

/// What came of it, in Mbit/s.
struct Figures {
    /// Nothing if no tunnel came up.
    sennit: Result<f64, TrialError>,
    alone: Vec<f64>,
    wires: f64,
}

impl Figures {
    fn sennit(&self) -> f64 {
        *self.sennit.as_ref().unwrap_or(&0.0)
    }

    fn best(&self) -> f64 {
        self.alone.iter().copied().fold(0.0, f64::max)
    }

    fn sum(&self) -> f64 {
        self.alone.iter().sum()
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runs = runs(&args);
    if args.list {
        for run in &runs {
            println!("{:4} {}", run.set, names(&run.links));
        }
        return ExitCode::SUCCESS;
    }
    println!(
        "{:>4} {:8} {:>8} {:>8} {:>8} {:>8}  of best  of sum",
        "set", "flows", "Sennit", "best", "sum", "wires"
    );
    let next = AtomicUsize::new(0);
    let (figures, refused) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..args.jobs.get() {
            scope.spawn(|| {
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match measure(run) {
                        Ok(result) => {
                            print(run, &result, args.enough);
                            let mut all = figures.lock().unwrap_or_else(PoisonError::into_inner);
                            all.push(result);
                        }
                        Err(error) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            println!("{:4} {}: {error}", run.set, names(&run.links));
                        }
                    }
                }
            });
        }
    });
    let figures = figures.into_inner().unwrap_or_else(PoisonError::into_inner);
    summarise(&figures, args.enough);
    let all_have_figures = figures.iter().all(|figures| figures.sennit.is_ok());
    match all_have_figures && refused.into_inner() == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn runs(args: &Args) -> Vec<Run> {
    let mut runs = Vec::new();
    for set in args.sets.clone() {
        let links = Dice::new(set).links();
        let moves = links.iter().any(|link| link.up.trace.is_some());
        if args.moving.is_some_and(|moving| moving != moves) {
            continue;
        }
        if args.list {
            let trial = trial(args, set, 1, Direction::Up);
            runs.push(Run { set, links, trial });
            continue;
        }
        for &direction in &args.directions {
            for &flows in &args.flows {
                let trial = trial(args, set, flows, direction);
                let links = links.clone();
                runs.push(Run { set, links, trial });
            }
        }
    }
    runs
}

fn trial(args: &Args, seed: u64, streams: u16, direction: Direction) -> Trial {
    Trial {
        kind: match args.kind {
            KindArg::Tcp => Kind::Tcp,
            KindArg::Quic => Kind::Quic,
        },
        direction,
        streams,
        warm_up: args.after,
        span: args.seconds,
        seed,
    }
}

fn measure(run: &Run) -> Result<Figures, TrialError> {
    let Run { links, trial, .. } = run;
    let alone = links.iter().enumerate();
    let alone = alone.map(|(index, link)| trial.plain(link, index));
    Ok(Figures {
        alone: alone.collect::<Result<_, _>>()?,
        sennit: trial.beside_plain(links),
        wires: links.iter().map(|link| wire(trial, link)).sum(),
    })
}

/// What a link could carry in the time that counts.
fn wire(trial: &Trial, link: &LinkSpec) -> f64 {
    let config = link.way(trial.direction);
    let end = trial.warm_up + trial.span;
    let bits = config.trace.as_ref().map_or_else(
        || {
            config.rate.map_or(f64::INFINITY, |rate| {
                rate.as_bps() as f64 * trial.span.as_secs_f64()
            })
        },
        |trace| trace.bytes_between(trial.warm_up, end, config.rate) as f64 * 8.0,
    );
    bits / trial.span.as_secs_f64() / 1e6
}

fn print(run: &Run, figures: &Figures, enough: f64) {
    let flows = format!("{} {}", run.trial.streams, run.trial.direction);
    let (sennit, best, sum) = (figures.sennit(), figures.best(), figures.sum());
    let wires = figures.wires;
    if let Err(error) = &figures.sennit {
        println!("{:4} {flows:8} {error}", run.set);
    }
    println!(
        "{:4} {flows:8} {sennit:8.2} {best:8.2} {sum:8.2} {wires:8.2}  {:7.2}  {:6.2}  {}{}",
        run.set,
        sennit / best,
        sennit / sum,
        names(&run.links),
        if sennit < enough * best { "  <" } else { "" },
    );
}

fn names(links: &[LinkSpec]) -> String {
    let names: Vec<_> = links.iter().map(ToString::to_string).collect();
    names.join(" ")
}

fn summarise(figures: &[Figures], limit: f64) {
    if figures.is_empty() {
        return;
    }
    let ratios = |of: fn(&Figures) -> f64| {
        let mut ratios: Vec<_> = figures.iter().map(|f| f.sennit() / of(f)).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    };
    let best = ratios(Figures::best);
    let enough = best.iter().filter(|ratio| **ratio >= limit).count();
    let share = 100.0 * enough as f64 / best.len() as f64;
    println!(
        "\n{} runs, {share:.1} % at {limit} of the best link or more",
        best.len()
    );
    let failed = figures.iter().filter(|figures| figures.sennit.is_err());
    match failed.count() {
        0 => {}
        failed => println!("{failed} of them had no tunnel, and count as 0"),
    }
    println!(
        "{:10} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "share of", "least", "1 %", "10 %", "median", "most"
    );
    for (name, sorted) in [
        ("best", &best),
        ("sum", &ratios(Figures::sum)),
        ("wires", &ratios(|figures| figures.wires)),
    ] {
        let at = |quantile: f64| sorted[((sorted.len() - 1) as f64 * quantile) as usize];
        let [least, first, tenth, median, most] = [0.0, 0.01, 0.1, 0.5, 1.0].map(at);
        println!("{name:10} {least:6.2} {first:6.2} {tenth:6.2} {median:6.2} {most:6.2}");
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let numbers = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from < to).then_some(from..to)
    });
    numbers.ok_or_else(|| format!("`{text}` is not like 0..20"))
}
