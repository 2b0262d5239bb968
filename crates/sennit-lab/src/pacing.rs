//! `sennit lab pacing`: do round trips vary more at some rates of packets than at others?
//!
//! An article of others found a "critical zone" of 26 to 35 packets a second. Here echoes go over
//! one emulated link at each rate, in another order in every round, so that a machine that is busy
//! for a while disturbs no rate more than others. Jitter is P95 − P50 of the round trips of a
//! round, and its interval that of the mean over rounds.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use sennit_load::{Echo, Schedule, quantile};
use sennit_netem::LinkSpec;
use sennit_report::{Axis, Bar, Bars, Block, Interval, Report, Section, Table, interval};

use crate::draft;
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::lab::{Lab, Spec};
use crate::link::LabLink;
use crate::report::{inexactness, made};
use crate::selfcheck;

/// Where the article found more jitter, in packets a second.
const ZONE: RangeInclusive<u16> = 26..=35;
/// Echoes of a round, however slow the rate.
const LEAST: u16 = 20;
const PAYLOAD: usize = 56;
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct PacingArgs {
    /// The link
    #[arg(long, value_name = "LINK", default_value = "20/10")]
    link: LinkSpec,
    /// Rates to try, in packets a second
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=10_000),
        default_values_t = [5, 10, 15, 20, 24, 26, 28, 30, 32, 35, 38, 45, 60, 80, 100, 200, 500, 1000])]
    rates: Vec<u16>,
    /// How long each rate is sent in a round, in seconds
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=60))]
    seconds: u16,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=100))]
    rounds: u8,
    /// Write a page with the plot too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// One rate over all rounds, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    rate: u16,
    jitter: Interval,
    median: f64,
    lost: usize,
}

/// Measures, and says whether there is such a zone.
pub(crate) fn run(args: &PacingArgs) -> Result<(), Error> {
    let mut rates = args.rates.iter();
    rates.try_for_each(|rate| echoes(*rate, args.seconds).map(drop))?;
    let draft = args.out.as_deref().map(draft::begin).transpose()?;
    let mut link = LabLink::symmetric("wan", &args.link.up);
    link.shape = args.link.clone();
    let spec = Spec {
        links: vec![link],
        ..Spec::default()
    };
    let lab = Lab::new(&spec)?;
    let checks = selfcheck::run(&lab)?;
    selfcheck::verdict(&checks)?;
    let hub = lab.link("wan")?.subnet().hub().ip(false);
    let opened = lab.host(Role::Edge).netns().run(|| Echo::open(hub));
    let opened = opened.and_then(|echo| echo);
    let mut echo = opened.doing(|| "open an ICMP socket on the edge".into())?;
    let overruns = lab.overruns()?;
    lab.reset_counters();
    let measured = measure(args, |rate, count| {
        let schedule = Schedule::per_second(rate.into(), Instant::now());
        echo.series(PAYLOAD, schedule, count, PATIENCE)
            .doing(|| "send echoes".into())
    })?;
    let inexact = inexactness(&lab.strain(), lab.overruns()? - overruns, &checks);
    let verdict = [verdict(&measured)].into_iter().chain(inexact);
    let verdict = verdict.collect::<Vec<_>>().join("\n");
    let table = table(&measured);
    print!("{}", text(&table));
    println!("{verdict}");
    if let (Some(draft), Some(out)) = (draft, &args.out) {
        draft::finish(draft, &page(args, &measured, table, verdict).html())?;
        println!("{}", out.display());
    }
    Ok(())
}

/// Round trips of each request, by `series`, which is given a rate and a count.
fn measure(
    args: &PacingArgs,
    mut series: impl FnMut(u16, u16) -> Result<Vec<Option<Duration>>, Error>,
) -> Result<Vec<Measured>, Error> {
    let mut rates = args.rates.clone();
    rates.sort_unstable();
    rates.dedup();
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); rates.len()];
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); rates.len()];
    let mut lost = vec![0; rates.len()];
    for round in 0..usize::from(args.rounds) {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for index in order(rates.len(), round) {
            let round_trips = series(rates[index], echoes(rates[index], args.seconds)?)?;
            lost[index] += round_trips.iter().filter(|answer| answer.is_none()).count();
            let ms = |time: &Duration| time.as_secs_f64() * 1e3;
            let times: Vec<f64> = round_trips.iter().flatten().map(ms).collect();
            if let (Some(middle), Some(high)) = (quantile(&times, 0.5), quantile(&times, 0.95)) {
                rounds[index].push(high - middle);
            }
            all[index].extend(times);
        }
    }
    let measured = rates.iter().enumerate().filter_map(|(index, rate)| {
        Some(Measured {
            rate: *rate,
            jitter: interval(&rounds[index])?,
            median: quantile(&all[index], 0.5)?,
            lost: lost[index],
        })
    });
    Ok(measured.collect())
}

/// How many go in a round.
fn echoes(rate: u16, seconds: u16) -> Result<u16, Error> {
    let count = u32::from(rate) * u32::from(seconds);
    u16::try_from(count.max(LEAST.into())).map_err(|_| {
        let most = u16::MAX / rate;
        Error::Usage(format!(
            "{rate} echoes a second for {seconds} s are more than their numbers can tell apart: \
             take --seconds {most} or less"
        ))
    })
}

/// All of `count` in an order that another round does not have: by steps that meet each once.
fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let shares =
        |step: usize| (2..=step).any(|it| step.is_multiple_of(it) && count.is_multiple_of(it));
    let step = (1..).filter(|step| !shares(*step)).nth(round).unwrap_or(1);
    (0..count).map(move |index| (index * step + round) % count.max(1))
}

fn table(measured: &[Measured]) -> Table {
    let head = [
        "packets/s",
        "median, ms",
        "P95 − P50, ms",
        "95 % interval, ms",
        "lost",
    ];
    let mut table = Table::new("Round trips by rate", head);
    for Measured {
        rate,
        jitter,
        median,
        lost,
    } in measured
    {
        let around = jitter.around.map_or("-".into(), |(low, high)| {
            format!("{:.3} to {high:.3}", low.max(0.0))
        });
        table.row([
            rate.to_string(),
            format!("{median:.3}"),
            format!("{:.3}", jitter.mean),
            around,
            lost.to_string(),
        ]);
    }
    table
}

fn text(table: &Table) -> String {
    let mut text = format!("{}\n", table.head.join("\t"));
    for row in &table.rows {
        let cells: Vec<_> = row.iter().map(|cell| cell.text.as_str()).collect();
        text.push_str(&format!("{}\n", cells.join("\t")));
    }
    text
}

/// Plainly, whether jitter in the zone is more than outside of it.
fn verdict(measured: &[Measured]) -> String {
    let (inside, outside): (Vec<_>, Vec<_>) =
        measured.iter().partition(|it| ZONE.contains(&it.rate));
    let mean = |of: &[&Measured]| of.iter().map(|it| it.jitter.mean).sum::<f64>() / of.len() as f64;
    if inside.is_empty() || outside.is_empty() {
        return "No rate inside of the zone of 26 to 35 packets a second, or none outside.".into();
    }
    // Each rate of a zone would have more jitter than every rate beside it, beyond its interval.
    let low = |it: &&&Measured| it.jitter.around.map_or(it.jitter.mean, |(low, _)| low);
    let high = |it: &&&Measured| it.jitter.around.map_or(it.jitter.mean, |(_, high)| high);
    let beside = outside.iter().filter(|it| (10..=100).contains(&it.rate));
    let most = beside.map(|it| high(&it)).fold(0.0, f64::max);
    let above = inside.iter().filter(|it| low(it) > most).count();
    let (within, without) = (mean(&inside), mean(&outside));
    let means = format!(
        "mean jitter {within:.3} ms at 26 to 35 packets a second, {without:.3} ms at other rates"
    );
    match above {
        0 => format!("No critical zone is shown here: {means}, and the intervals meet."),
        some if some == inside.len() => format!("There is a critical zone here: {means}."),
        some => format!(
            "{some} of {} rates of the zone stand out: {means}.",
            inside.len()
        ),
    }
}

fn page(args: &PacingArgs, measured: &[Measured], table: Table, verdict: String) -> Report {
    let group = |it: &Measured| {
        let bar = Bar {
            value: it.jitter.mean,
            interval: it.jitter.around.map(|(low, high)| (low.max(0.0), high)),
        };
        (it.rate.to_string(), vec![Some(bar)])
    };
    let bars = Bars {
        caption: "Jitter (P95 − P50) by packets a second, mean of the rounds with its interval"
            .into(),
        y: Axis::new("ms"),
        series: vec!["jitter".into()],
        groups: measured.iter().map(group).collect(),
    };
    let section = Section::new("Jitter by rate")
        .with(Block::Bars(bars))
        .with(Block::Table(table));
    made(Report::new("Pacing study"))
        .lede(verdict)
        .fact("link", args.link.to_string())
        .fact(
            "rounds",
            format!("{} of {} s for each rate", args.rounds, args.seconds),
        )
        .with(section)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PacingArgs,
    }

    /// What a link would give whose round trips vary by so many microseconds at a rate.
    fn judged(jitter: impl Fn(u16) -> u64) -> String {
        let args = Line::parse_from(["pacing"]).args;
        let measured = measure(&args, |rate, count| {
            let late = |n: u64| {
                if n.is_multiple_of(10) {
                    jitter(rate)
                } else {
                    0
                }
            };
            let times = (0..u64::from(count)).map(|n| 20_000 + late(n) + n % 7);
            Ok(times
                .map(|micros| Some(Duration::from_micros(micros)))
                .collect())
        });
        verdict(&measured.expect("nothing fails"))
    }

    #[test]
    fn a_zone_is_found_where_there_is_one() {
        let zone = judged(|rate| if ZONE.contains(&rate) { 5000 } else { 300 });
        assert!(zone.starts_with("There is a critical zone here"), "{zone}");
        let none = judged(|_| 300);
        assert!(none.starts_with("No critical zone is shown here"), "{none}");
    }

    #[test]
    fn a_round_of_more_echoes_than_have_numbers_is_refused_and_not_cut() {
        assert_eq!(echoes(5, 1).ok(), Some(LEAST));
        assert_eq!(echoes(1000, 60).ok(), Some(60_000));
        let error = echoes(10_000, 60)
            .expect_err("these are 600,000")
            .to_string();
        assert!(error.contains("--seconds 6 or less"), "{error}");
    }

    #[test]
    fn every_round_has_all_rates_in_another_order() {
        let orders: Vec<Vec<_>> = (0..4).map(|round| order(18, round).collect()).collect();
        for one in &orders {
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..18), "{one:?}");
        }
        assert!(
            orders.windows(2).all(|pair| pair[0] != pair[1]),
            "{orders:?}"
        );
    }
}
