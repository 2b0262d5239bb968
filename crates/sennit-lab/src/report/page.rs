//! Results as a page with plots, one run of the lab or two side by side.

use sennit_load::Bins;
use sennit_report::{
    Axis, Bar, Bars, Block, Cell, Cloud, Curve, Interval, Layer, Lines, Mark, Points, Report,
    Scale, Section, Stack, Table, ccdf, cdf, difference, interval,
};

use super::{Figure, LinkResult, Results, StepResult};
use crate::programs;
use crate::traffic::{Figures, PingFigures};

/// Steps that have plots of their own; what a page shows of more nobody looks at.
const STEPS: usize = 40;
/// Latency and throughput are compared over windows of this many seconds.
const WINDOW: f64 = 0.5;
/// Bars that fit beside each other.
const GROUPS: usize = 8;

/// The bins of one direction of a link.
type WayBins = fn(&LinkResult) -> &Bins;

/// Results with what they are called, if there are several.
pub(crate) struct Named<'a> {
    pub(crate) name: &'a str,
    pub(crate) results: &'a Results,
}

impl Results {
    /// A figure of a step, from each run that has it.
    fn values(&self, step: &str, figure: Figure) -> Vec<f64> {
        let runs = self.steps.iter().filter(|run| run.name == step);
        runs.filter_map(|run| run.figure(figure)).collect()
    }
}

/// The page of these results, of which the first says what it is about.
pub(crate) fn page(all: &[Named<'_>]) -> Report {
    let Some(first) = all.first() else {
        return Report::new("Nothing");
    };
    let names: Vec<_> = all.iter().map(|named| named.name).collect();
    let title = match all {
        [one] => one.results.scenario.clone(),
        _ => format!("{}: {}", first.results.scenario, names.join(" and ")),
    };
    let mut report = Report::new(title).lede(&first.results.about);
    report.facts = all.iter().flat_map(|it| facts(it, all.len() > 1)).collect();
    report = report.with(summary(all));
    if all.len() > 1 {
        report = report.with(differences(all));
    }
    let conditions = conditions(all);
    if !conditions.blocks.is_empty() {
        report = report.with(conditions);
    }
    for step in first.results.steps_of_first_run().take(STEPS) {
        report = report.with(step_section(&step.name, all));
    }
    for Named { name, results } in all {
        let source = Block::Source(format!("the scenario of {name}"), results.text.clone());
        report = report.with(Section::new(format!("To repeat {name}")).with(source));
    }
    report
}

pub(super) fn facts(named: &Named<'_>, several: bool) -> Vec<(String, String)> {
    let Named { name, results } = named;
    let fact = |what: &str, value: String| match several {
        true => (format!("{name}: {what}"), value),
        false => (what.to_owned(), value),
    };
    let mut facts = vec![
        fact("measured", results.started.clone()),
        fact("machine", results.machine.to_string()),
        fact("program", programs::named(&results.sennit, &results.build)),
        fact("runs", format!("{}, seed {}", results.runs, results.seed)),
    ];
    let known = [("commit", &results.commit), ("command", &results.command)];
    let known = known.into_iter().filter(|(_, value)| !value.is_empty());
    facts.extend(known.map(|(what, value)| fact(what, value.clone())));
    let rivals = results.rivals.iter();
    facts.extend(rivals.map(|rival| fact("beside", rival.clone())));
    facts.extend(results.remarks().into_iter().map(|it| fact("beware", it)));
    facts
}

/// What each step came to: bars for goodput, and a table of everything.
fn summary(all: &[Named<'_>]) -> Section {
    let mut section = Section::new("Figures");
    for figure in [Figure::Goodput, Figure::P50Seconds, Figure::GapSeconds] {
        let groups = groups(figure, all);
        for (index, some) in groups.chunks(GROUPS).enumerate() {
            let more = if index > 0 { ", continued" } else { "" };
            section.blocks.push(Block::Bars(Bars {
                caption: format!(
                    "{}: mean of the runs, and where it lies with 95 % confidence{more}",
                    figure.title()
                ),
                y: Axis::new(figure.title()),
                series: all.iter().map(|named| named.name.to_owned()).collect(),
                groups: some.to_vec(),
            }));
        }
    }
    for Named { name, results } in all {
        section.blocks.push(Block::Table(table(name, results)));
    }
    section
}

/// A bar for each step that has the figure, and in it one for each of the results.
fn groups(figure: Figure, all: &[Named<'_>]) -> Vec<(String, Vec<Option<Bar>>)> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let (scale, _) = figure.scale();
    let bar = |results: &Results, step: &str| {
        let values = results.values(step, figure);
        let values: Vec<f64> = values.iter().map(|value| value * scale).collect();
        let found = interval(&values)?;
        Some(Bar {
            value: found.mean,
            interval: found.around,
        })
    };
    let steps = first.results.summary.iter();
    let groups = steps.map(|step| {
        let bars = all.iter().map(|named| bar(named.results, &step.name));
        (step.name.clone(), bars.collect::<Vec<_>>())
    });
    groups
        .filter(|(_, bars)| bars.iter().any(Option::is_some))
        .collect()
}

fn table(name: &str, results: &Results) -> Table {
    let caption = match results.runs {
        0 | 1 => name.to_owned(),
        runs => format!("{name}: medians of {runs} runs, with the extremes"),
    };
    let mut table = Table::new(caption, ["step", "traffic", "figures"]);
    for step in &results.summary {
        for traffic in &step.traffic {
            let figures = traffic.figures.iter().map(|(figure, spread)| {
                let value = figure.text(spread.median);
                let range = match spread.min < spread.max {
                    true => format!(
                        " ({} to {})",
                        figure.text(spread.min),
                        figure.text(spread.max)
                    ),
                    false => String::new(),
                };
                format!("{} {value}{range}", figure.title())
            });
            let figures = figures.collect::<Vec<_>>().join("; ");
            table.row([step.name.clone(), traffic.label.clone(), figures]);
        }
    }
    for failure in results.failures() {
        table.row([Cell::judged("failed", false), failure.into()]);
    }
    table
}

/// What the second has that the first has not, step by step.
fn differences(all: &[Named<'_>]) -> Section {
    let mut section = Section::new("Differences");
    let [before, after, ..] = all else {
        return section;
    };
    let head = ["step", "figure", before.name, after.name, "difference"];
    let mut table = Table::new(
        "Means of the runs. A difference is shown where its interval of 95 % (Welch's t) leaves out \
         zero, as that of one row in twenty does by chance alone.",
        head,
    );
    for step in &before.results.summary {
        for figure in [
            Figure::Goodput,
            Figure::P50Seconds,
            Figure::P99Seconds,
            Figure::GapSeconds,
        ] {
            let [old, new] = [before, after].map(|it| it.results.values(&step.name, figure));
            let (Some(found), Some(mean)) = (difference(&old, &new), interval(&old)) else {
                continue;
            };
            let verdict = verdict(&found, mean.mean);
            let [old, new] = [mean.mean, mean.mean + found.mean].map(|value| figure.text(value));
            table.row([step.name.as_str(), figure.title(), &old, &new, &verdict]);
        }
    }
    section.blocks.push(Block::Table(table));
    section
}

/// A difference from what was there before, in words.
fn verdict(difference: &Interval, before: f64) -> String {
    let percent = match before == 0.0 {
        true => "from 0".into(),
        false => format!("{:+.1} %", difference.mean / before * 100.0),
    };
    match difference.around {
        Some((low, high)) if low > 0.0 || high < 0.0 => percent,
        Some(_) => "not shown".into(),
        None if difference.mean == 0.0 => "none in single runs".into(),
        None => format!("{percent} in single runs"),
    }
}

/// What the links were asked to be and were measured to be.
pub(super) fn conditions(all: &[Named<'_>]) -> Section {
    let mut section = Section::new("Links, as asked and as measured");
    for Named { name, results } in all {
        let head = [
            "link",
            "direction",
            "property",
            "asked",
            "measured",
            "within",
        ];
        let mut table = Table::new(*name, head);
        for check in &results.self_check {
            let [asked, measured, tolerance] = check.words();
            table.row([
                Cell::from(check.link.clone()),
                check.direction.name().into(),
                format!("{:?}", check.property).to_lowercase().into(),
                asked.into(),
                match check.tells() {
                    true => Cell::judged(measured, check.passes()),
                    false => measured.into(),
                },
                tolerance.into(),
            ]);
        }
        if !table.rows.is_empty() {
            section.blocks.push(Block::Table(table));
        }
    }
    section
}

/// The plots of one step, of the first run of each.
pub(super) fn step_section(step: &str, all: &[Named<'_>]) -> Section {
    let mut section = Section::new(step);
    let runs: Vec<_> = all
        .iter()
        .filter_map(|named| {
            let mut steps = named.results.steps_of_first_run();
            Some((named.name, steps.find(|run| run.name == step)?))
        })
        .collect();
    let several = all.len() > 1;
    for (name, run) in &runs {
        let prefix = if several {
            format!("{name}: ")
        } else {
            String::new()
        };
        section.blocks.extend(stacks(&prefix, run));
        if run.links.is_empty() {
            section.blocks.extend(throughput(&prefix, run));
        }
    }
    section.blocks.extend(latencies(&runs));
    section.blocks.extend(clouds(&runs));
    section
}

/// What each direction of the links carried, with the goodput over it.
fn stacks(prefix: &str, step: &StepResult) -> Vec<Block> {
    let ways: [(&str, WayBins); 2] = [
        ("up", |link| &link.up.bins),
        ("down", |link| &link.down.bins),
    ];
    let load = |bins: WayBins| -> f64 {
        let rates = step.links.iter().flat_map(|link| bins(link).rates());
        rates.sum()
    };
    let most = ways.iter().map(|(_, bins)| load(*bins)).fold(0.0, f64::max);
    let goodput = goodput(step);
    let mut blocks = Vec::new();
    for (way, bins) in ways {
        // Acknowledgements alone are no load.
        if most == 0.0 || load(bins) < most / 10.0 {
            continue;
        }
        let mbit = |bins: &Bins| bins.rates().iter().map(|rate| rate * 8e-6).collect();
        let layer = |link: &LinkResult| Layer {
            name: link.name.clone(),
            values: mbit(bins(link)),
        };
        let layers: Vec<_> = step.links.iter().map(layer).collect();
        let width = step
            .links
            .first()
            .map_or(0.1, |link| bins(link).width().as_secs_f64());
        let of_way = goodput.iter().find(|(label, _)| label.ends_with(way));
        let line = of_way.map(|(label, bins)| Layer {
            name: format!("goodput of {label}"),
            values: rebinned(bins, width),
        });
        blocks.push(Block::Stack(Stack {
            caption: format!("{prefix}what the links carried {way}, packets with their headers"),
            x: Axis::new("time, s"),
            y: Axis::new("Mbit/s"),
            width,
            layers,
            line,
            marks: marks(step),
        }));
    }
    blocks
}

/// Goodput alone, where no link is emulated.
fn throughput(prefix: &str, step: &StepResult) -> Option<Block> {
    let curves: Vec<_> = goodput(step)
        .into_iter()
        .map(|(label, bins)| {
            let width = bins.width().as_secs_f64();
            let rates = bins.rates().iter().enumerate();
            let points = rates.map(|(bin, rate)| ((bin as f64 + 0.5) * width, rate * 8e-6));
            Curve::new(label, points.collect())
        })
        .collect();
    let mut plot = Lines::new(
        format!("{prefix}goodput"),
        Axis::new("time, s"),
        Axis::new("Mbit/s"),
        curves,
    );
    plot.marks = marks(step);
    (!plot.curves.is_empty()).then_some(Block::Lines(plot))
}

fn marks(step: &StepResult) -> Vec<Mark> {
    let mark = |fault: &super::FaultResult| Mark {
        at: fault.at_seconds,
        what: match &fault.link {
            Some(link) => format!("{link}: {}", fault.action.word()),
            None => fault.action.word(),
        },
    };
    step.faults.iter().map(mark).collect()
}

/// Bins of all traffic that carries data, with what it is.
fn goodput(step: &StepResult) -> Vec<(String, &Bins)> {
    let bins = step.traffic.iter().filter_map(|traffic| {
        let bins = traffic.figures.as_ref()?.bins()?;
        Some((traffic.label.clone(), bins))
    });
    bins.collect()
}

/// Mbit/s in bins of another width.
fn rebinned(bins: &Bins, width: f64) -> Vec<f64> {
    let own = bins.width().as_secs_f64();
    let every = (width / own).round().max(1.0) as usize;
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64 * 8e-6;
    bins.rates().chunks(every).map(mean).collect()
}

fn pings(step: &StepResult) -> impl Iterator<Item = (&str, &PingFigures)> {
    step.traffic
        .iter()
        .filter_map(|traffic| match &traffic.figures {
            Some(Figures::Ping(ping)) if !ping.answers_seconds.is_empty() => {
                Some((traffic.label.as_str(), ping))
            }
            _ => None,
        })
}

/// How round trips are distributed, and their tail.
fn latencies(runs: &[(&str, &StepResult)]) -> Vec<Block> {
    let (mut below, mut above) = (Vec::new(), Vec::new());
    for (name, step) in runs {
        for (label, ping) in pings(step) {
            let answers = ping.answers_seconds.iter().flatten();
            let times: Vec<f64> = answers.map(|seconds| seconds * 1e3).collect();
            let name = match runs.len() {
                1 => label.to_owned(),
                _ => format!("{name}, {label}"),
            };
            below.push(Curve::new(&name, cdf(&times)));
            above.push(Curve::new(&name, ccdf(&times)));
        }
    }
    if below.is_empty() {
        return Vec::new();
    }
    let time = || Axis::new("round trip, ms").scale(Scale::Near);
    let share = Axis::new("share that is as fast").most(1.0);
    let slower = Axis::new("share that is slower").scale(Scale::Log);
    vec![
        Block::Lines(Lines::new("Round trips (CDF)", time(), share, below)),
        Block::Lines(Lines::new(
            "The tail of round trips (CCDF)",
            time(),
            slower,
            above,
        )),
    ]
}

/// Latency against throughput, window by window.
fn clouds(runs: &[(&str, &StepResult)]) -> Option<Block> {
    let cloud = |(name, step): &(&str, &StepResult)| {
        let (_, ping) = pings(step).next()?;
        let bulk = goodput(step);
        let points: Vec<_> = (0..(step.seconds / WINDOW) as usize)
            .filter_map(|window| point(&bulk, ping, window as f64 * WINDOW))
            .collect();
        let name = (*name).to_owned();
        (!bulk.is_empty() && points.len() > 2).then_some(Cloud { name, points })
    };
    let clouds: Vec<_> = runs.iter().filter_map(cloud).collect();
    (!clouds.is_empty()).then(|| {
        Block::Points(Points {
            caption: format!(
                "Latency against throughput in windows of {WINDOW} s, with the ellipse of one \
                 standard deviation"
            ),
            x: Axis::new("goodput, Mbit/s"),
            y: Axis::new("round trip, ms"),
            clouds,
        })
    })
}

/// Goodput and mean round trip from `start` on.
fn point(bulk: &[(String, &Bins)], ping: &PingFigures, start: f64) -> Option<(f64, f64)> {
    let between = |values: usize, width: f64| {
        let from = (start / width).round() as usize;
        let to = ((start + WINDOW) / width).round() as usize;
        (to <= values && from < to).then_some(from..to)
    };
    let mut goodput = 0.0;
    for (_, bins) in bulk {
        let range = between(bins.rates().len(), bins.width().as_secs_f64())?;
        let rates = &bins.rates()[range];
        goodput += rates.iter().sum::<f64>() / rates.len() as f64 * 8e-6;
    }
    let range = between(ping.answers_seconds.len(), ping.interval_seconds)?;
    let answers: Vec<f64> = ping.answers_seconds[range]
        .iter()
        .flatten()
        .copied()
        .collect();
    let mean = answers.iter().sum::<f64>() / answers.len() as f64;
    (!answers.is_empty()).then_some((goodput, mean * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_shows_no_difference_and_does_not_deny_one() {
        let words = |before: &[f64], after: &[f64]| {
            let found = difference(before, after).expect("there are values");
            verdict(&found, before[0])
        };
        assert_eq!(words(&[10.0, 10.2, 9.8], &[12.0, 12.2, 11.8]), "+20.0 %");
        assert_eq!(words(&[10.0, 12.0, 8.0], &[11.0, 13.0, 9.0]), "not shown");
        assert_eq!(words(&[10.0], &[11.0]), "+10.0 % in single runs");
        assert_eq!(words(&[10.0], &[10.0]), "none in single runs");
    }
}
