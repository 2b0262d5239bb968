//! `sennit sim chaos`: whatever can go wrong does, in virtual time, over all cores.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sennit_sim::chaos::{self, Broken, Mishaps, Summary};
use serde_json::{Value, json};

use crate::error::Error;
use crate::progress::Progress;

/// More would not end.
const MOST_HOURS: f64 = 10_000.0;

#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// How many seeds from 1, or which: 20, or 7-7
    #[arg(long, value_name = "N|A-B", default_value = "20")]
    seeds: Seeds,
    /// Virtual hours of each seed
    #[arg(long, value_name = "H", default_value = "1")]
    hours: f64,
    /// Seeds at the same time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seeds(RangeInclusive<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither a number of seeds nor a range such as 3-7");
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (1, number(text)?),
        };
        match first <= last {
            true => Ok(Self(first..=last)),
            false => Err(format!("`{text}` has no seed")),
        }
    }
}

/// What became of a seed.
enum Outcome {
    Held(Summary),
    Broken(Box<Broken>),
    /// The program itself gave up.
    Panicked,
}

/// Runs `sennit sim chaos`; `false` if a rule was broken.
pub(crate) fn run(args: &ChaosArgs) -> Result<bool, Error> {
    if !(args.hours > 0.0 && args.hours <= MOST_HOURS) {
        let wrong = format!("--hours is more than 0 and at most {MOST_HOURS}");
        return Err(Error::Usage(wrong));
    }
    let span = Duration::from_secs_f64(args.hours * 3600.0);
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok());
    let began = Instant::now();
    let mut outcomes = play(&args.seeds, span, jobs.map_or(1, usize::from));
    outcomes.sort_by_key(|(seed, _)| *seed);
    let took = began.elapsed();
    if args.json {
        println!("{:#}", to_json(&outcomes, args.hours, took));
    } else {
        for (seed, outcome) in &outcomes {
            tell(*seed, outcome, args.hours);
        }
        println!("{}", total(&outcomes, args.hours, took));
    }
    Ok(outcomes
        .iter()
        .all(|(_, it)| matches!(it, Outcome::Held(_))))
}

/// Plays all seeds, so many at a time.
fn play(seeds: &Seeds, span: Duration, jobs: usize) -> Vec<(u64, Outcome)> {
    let (first, last) = (*seeds.0.start(), *seeds.0.end());
    let count = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
    let (next, outcomes) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let progress = Progress::new(count, count);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > last {
                return;
            }
            let outcome = play_one(seed, span);
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.push((seed, outcome));
            progress.tell(outcomes.len());
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(worker);
        }
    });
    progress.end();
    outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

fn play_one(seed: u64, span: Duration) -> Outcome {
    match catch_unwind(AssertUnwindSafe(|| chaos::run(seed, span, Mishaps::All))) {
        Ok(Ok(summary)) => Outcome::Held(summary),
        Ok(Err(broken)) => Outcome::Broken(broken),
        // The hook has printed why.
        Err(_) => Outcome::Panicked,
    }
}

/// The command that does the same again.
fn again(seed: u64, hours: f64) -> String {
    format!("sennit sim chaos --seeds {seed}-{seed} --hours {hours}")
}

fn tell(seed: u64, outcome: &Outcome, hours: f64) {
    match outcome {
        Outcome::Held(_) => {}
        Outcome::Broken(broken) => println!("{broken}\n  again: {}\n", again(seed, hours)),
        Outcome::Panicked => {
            println!(
                "seed {seed}: the program panicked\n  again: {}\n",
                again(seed, hours)
            );
        }
    }
}

fn total(outcomes: &[(u64, Outcome)], hours: f64, took: Duration) -> String {
    let held = outcomes.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Held(summary) => Some(summary),
        Outcome::Broken(_) | Outcome::Panicked => None,
    });
    let (mut kept, mut faults) = (0, 0);
    let mut sum = Summary::default();
    for summary in held {
        kept += 1;
        faults += summary.faults.values().sum::<u64>();
        sum.sites += summary.sites;
        sum.hostile += summary.hostile;
        sum.forged += summary.forged;
        sum.sent += summary.sent;
        sum.arrived += summary.arrived;
        sum.load += summary.load;
        sum.reloads += summary.reloads;
        sum.watched += summary.watched;
        sum.moved += summary.moved;
        sum.invited += summary.invited;
        sum.renewed = sum.renewed.max(summary.renewed);
        sum.best_link.extend_from_slice(&summary.best_link);
        sum.back.extend_from_slice(&summary.back);
    }
    let Summary {
        sites,
        hostile,
        forged,
        sent,
        arrived,
        load,
        reloads,
        watched,
        moved,
        invited,
        renewed,
        ..
    } = sum;
    format!(
        "{kept} of {} seeds kept every rule for {hours} virtual hours each, with {sites} sites in all: \
         {faults} faults, of them {hostile} hostile packets, and {forged} from the address of another \
         site; {reloads} reloads, of which {watched} came in a calm and lost nothing; {moved} tunnels \
         moved to another address of the hub, {invited} times a site that was revoked joined anew, \
         and keys were renewed up to {renewed} times on a connection; {arrived} of \
         {sent} inner packets arrived, and {load} of the load beside them{}{}; it took {:.0} s",
        outcomes.len(),
        how_soon(sum.back),
        how_much(sum.best_link),
        took.as_secs_f64()
    )
}

/// How soon tunnels carried again that had a way.
fn how_soon(mut back: Vec<Duration>) -> String {
    back.sort_unstable();
    let Some(last) = back.last() else {
        return String::new();
    };
    let part = |of: usize| back[(back.len() - 1) * of / 100].as_secs_f64();
    format!(
        "; {} times a tunnel was missing while there was a way: for {:.1} s (median), {:.1} s (99 %), \
         {:.1} s (longest)",
        back.len(),
        part(50),
        part(99),
        last.as_secs_f64()
    )
}

/// How much came out of what the best link carries where a site had more to send.
fn how_much(mut parts: Vec<u32>) -> String {
    parts.sort_unstable();
    let Some(&least) = parts.first() else {
        return String::new();
    };
    let percent = |part: u32| f64::from(part) / 10.0;
    format!(
        "; {} times a site that bonds had more to send than its best link carries: of that there came \
         out {:.1} % (median), {:.1} % (least) in the worst ten seconds",
        parts.len(),
        percent(parts[parts.len() / 2]),
        percent(least)
    )
}

fn to_json(outcomes: &[(u64, Outcome)], hours: f64, took: Duration) -> Value {
    let seeds = outcomes.iter().map(|(seed, outcome)| match outcome {
        Outcome::Held(it) => json!({
            "seed": seed, "held": true, "sites": it.sites, "faults": it.faults,
            "hostile": it.hostile, "forged": it.forged, "sent": it.sent, "arrived": it.arrived,
            "best_link_permille": it.best_link, "tunnels": it.tunnels,
            "reloads": it.reloads, "watched_reloads": it.watched, "moved": it.moved,
            "invited": it.invited, "key_updates_most": it.renewed,
            "back_s": it.back.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
        }),
        Outcome::Broken(it) => json!({
            "seed": seed, "held": false, "at_s": it.at.as_secs_f64(), "what": it.what,
            "before": it.before.iter().map(|(at, what)| json!({
                "at_s": at.as_secs_f64(), "what": what,
            })).collect::<Vec<_>>(),
            "again": again(*seed, hours),
        }),
        Outcome::Panicked => json!({
            "seed": seed, "held": false, "what": "the program panicked",
            "again": again(*seed, hours),
        }),
    });
    json!({
        "hours": hours, "took_s": took.as_secs_f64(), "seeds": seeds.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        assert_eq!("3".parse(), Ok(Seeds(1..=3)));
        assert_eq!("7-7".parse(), Ok(Seeds(7..=7)));
        for text in ["", "0", "9-3", "a-b", "-1"] {
            assert!(text.parse::<Seeds>().is_err(), "{text}");
        }
    }

    #[test]
    fn it_tells_how_soon_tunnels_were_back() {
        let summary = Summary {
            back: (1..=200).rev().map(Duration::from_millis).collect(),
            ..Summary::default()
        };
        let told = total(&[(1, Outcome::Held(summary))], 1.0, Duration::ZERO);
        assert!(told.contains("200 times a tunnel was missing"), "{told}");
        assert!(told.contains("0.1 s (median), 0.2 s (99 %), 0.2 s (longest)"));
        assert_eq!(how_soon(Vec::new()), "");
    }

    #[test]
    fn it_tells_how_much_of_the_best_link_came_out() {
        let summary = Summary {
            best_link: vec![1010, 955, 990],
            ..Summary::default()
        };
        let told = total(&[(1, Outcome::Held(summary))], 1.0, Duration::ZERO);
        assert!(told.contains("3 times a site that bonds"), "{told}");
        assert!(told.contains("99.0 % (median), 95.5 % (least)"), "{told}");
        assert_eq!(how_much(Vec::new()), "");
    }

    #[test]
    fn whoever_broke_a_rule_is_told_how_to_see_it_again() {
        let broken = Broken {
            seed: 7,
            at: Duration::from_secs(2),
            what: "a packet came out twice".into(),
            before: Vec::new(),
        };
        let outcomes = [(7, Outcome::Broken(Box::new(broken)))];

        let told = to_json(&outcomes, 0.5, Duration::from_secs(1));

        let again = &told["seeds"][0]["again"];
        assert_eq!(again, "sennit sim chaos --seeds 7-7 --hours 0.5");
        assert!(total(&outcomes, 0.5, Duration::ZERO).starts_with("0 of 1 seeds"));
    }
}
