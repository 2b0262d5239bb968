//! What is to be reached, beside what was measured here and what others have published.
//!
//! `lab/targets.toml` has a row for each figure that matters. It is compared with the medians of
//! whatever `results.json` files are given; a scenario that is in none of them is named below the
//! table. Where a scenario has played its steps over several tunnels, they stand side by side.

mod build;
mod comparison;
mod verdict;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Doing, Error};
use crate::report::{Exactness, Figure, Machine, Spread, StepSummary, Table, all_exact};
use crate::selfcheck::Check;
use comparison::Comparison;
use verdict::{Count, Verdict};

/// Our own targets.
pub(crate) const SHIPPED: &str = include_str!("../../../lab/targets.toml");

const HEAD: [&str; 8] = [
    "scenario",
    "step",
    "figure",
    "reach",
    "here",
    "min to max",
    "reached",
    "others, elsewhere",
];

/// How to read the table.
const LEGEND: &str = "\
x3: here is the median of three runs. others, elsewhere: published by others, or measured of them on
other machines with other links; not comparable to the digit. not exact: in that step, or in one that
the limit is of, this machine was too busy for the links to be as asked; it counts as not reached.
";

/// What the tables are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A terminal.
    Text,
    /// A page of the book.
    Markdown,
}

impl Form {
    /// The table with an empty line around it.
    fn table<const N: usize>(self, table: &Table<N>) -> String {
        match self {
            Self::Text => format!("\n{table}\n"),
            Self::Markdown => format!("\n{table:#}\n"),
        }
    }
}

/// A file of targets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Targets {
    scenario: Vec<Target>,
    #[serde(default)]
    comparison: Vec<Comparison>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    name: String,
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    step: String,
    /// The number of the traffic in the step, from 1; absent: the first that has the figure.
    traffic: Option<usize>,
    /// The class of whose FEC the figure is; absent: of all together.
    class: Option<String>,
    figure: Figure,
    reach: Reach,
    /// What others have published about the same.
    #[serde(default)]
    elsewhere: String,
}

/// In the units of the tables.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Reach {
    AtLeast {
        at_least: f64,
    },
    AtMost {
        at_most: f64,
    },
    /// At least this share of the best of other steps.
    Share {
        share: f64,
        of: Vec<String>,
    },
    /// At most so much more than another step.
    Within {
        within: f64,
        of: String,
    },
    /// At most this part of another step.
    Part {
        part: f64,
        of: String,
    },
}

impl Reach {
    /// The steps that the limit is of.
    fn others(&self) -> &[String] {
        match self {
            Self::AtLeast { .. } | Self::AtMost { .. } => &[],
            Self::Share { of, .. } => of,
            Self::Within { of, .. } | Self::Part { of, .. } => std::slice::from_ref(of),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// The part of `results.json` that targets are compared with.
#[derive(Debug, Deserialize)]
struct Measured {
    scenario: String,
    started: String,
    runs: usize,
    #[serde(default)]
    machine: Option<Machine>,
    /// What was measured: the commit that the lab ran in, the program, and what it says it is.
    #[serde(default)]
    commit: String,
    #[serde(default)]
    sennit: String,
    #[serde(default)]
    build: String,
    #[serde(default)]
    rivals: Vec<String>,
    summary: Vec<StepSummary>,
    /// Empty where a test noted a figure.
    #[serde(default)]
    self_check: Vec<Check>,
    /// Empty where a test noted a figure.
    #[serde(default)]
    steps: Vec<Exactness>,
}

/// The targets in `text` beside the results in these files and directories.
pub(crate) fn table(text: &str, places: &[PathBuf]) -> Result<String, Error> {
    Ok(targets(text)?.compare(&newest(places)?, Form::Text))
}

/// Why not everything was reached of the scenarios that were measured, if it was not or there are
/// no such.
pub(crate) fn lack(text: &str, places: &[PathBuf]) -> Result<Option<String>, Error> {
    Ok(targets(text)?.count(&newest(places)?).lack())
}

/// Targets and results as a page of the book, which says what was measured when and on what. What
/// `build` does not say of what was measured the results do.
pub(crate) fn page(text: &str, places: &[PathBuf], build: Option<&str>) -> Result<String, Error> {
    let results = newest(places)?;
    let build = build.map_or_else(|| build::described(&results), str::to_owned);
    let mut machines: Vec<String> = Vec::new();
    for machine in results.values().filter_map(|it| it.machine.as_ref()) {
        let machine = machine.to_string();
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let days = results.values().filter_map(|it| it.started.get(..10));
    let days: Vec<&str> = [days.clone().min(), days.max()]
        .into_iter()
        .flatten()
        .collect();
    let head = [
        "# Results\n".to_owned(),
        "Written by `sennit lab table --markdown` from runs of the scenarios; [Measuring](measuring.md) says how \
         figures are made.\n"
            .to_owned(),
        "| | |\n| --- | --- |".to_owned(),
        format!("| build | {build} |"),
        format!("| measured | {} |", days.join(" to ")),
        format!("| machine | {} |", machines.join("; ")),
    ];
    let tables = targets(text)?.compare(&results, Form::Markdown);
    Ok(format!("{}\n{tables}", head.join("\n")))
}

fn targets(text: &str) -> Result<Targets, Error> {
    toml::from_str(text).map_err(|error| Error::Scenario(format!("targets: {error}")))
}

/// The newest results of each scenario in these files and directories.
fn newest(places: &[PathBuf]) -> Result<BTreeMap<String, Measured>, Error> {
    let mut results = Vec::new();
    for place in places {
        load(place, &mut results)?;
    }
    // Times of RFC 3339 sort as texts.
    results.sort_by(|a, b| a.started.cmp(&b.started));
    let by_name = results
        .into_iter()
        .map(|result| (result.scenario.clone(), result));
    Ok(by_name.collect())
}

fn load(place: &Path, results: &mut Vec<Measured>) -> Result<(), Error> {
    let reading = || format!("read {}", place.display());
    if place.is_dir() {
        for entry in std::fs::read_dir(place).doing(reading)? {
            let path = entry.doing(reading)?.path();
            if path.is_dir() || path.ends_with("results.json") {
                load(&path, results)?;
            }
        }
        return Ok(());
    }
    let text = std::fs::read_to_string(place).doing(reading)?;
    let measured = serde_json::from_str(&text)
        .map_err(|error| Error::Scenario(format!("{}: no results: {error}", place.display())))?;
    results.push(measured);
    Ok(())
}

impl Targets {
    /// Of all rows that ask for something of what was measured.
    fn count(&self, results: &BTreeMap<String, Measured>) -> Count {
        let rows = self.scenario.iter().filter_map(|target| {
            let measured = results.get(&target.name)?;
            Some(target.row.iter().map(move |row| row.verdict(measured)))
        });
        let compared = self.comparison.iter().filter_map(|comparison| {
            let measured = results.get(&comparison.name)?;
            Some(comparison.verdicts(measured))
        });
        rows.flatten().chain(compared.flatten()).collect()
    }

    fn compare(&self, results: &BTreeMap<String, Measured>, form: Form) -> String {
        let mut table = Table::new(HEAD, 4..6);
        let (mut count, mut missing) = (Count::default(), Vec::new());
        for target in &self.scenario {
            let Some(measured) = results.get(&target.name) else {
                missing.push(target.name.as_str());
                continue;
            };
            for (index, row) in target.row.iter().enumerate() {
                let name = match index {
                    0 => format!("{} x{}", target.name, measured.runs),
                    _ => String::new(),
                };
                let verdict = row.verdict(measured);
                table.add(row.cells(&name, measured, verdict));
                count.add(verdict);
            }
        }
        let mut text = String::new();
        if count.asked > 0 {
            text.push_str(&form.table(&table));
            let _ = writeln!(text, "{count}");
        }
        for comparison in &self.comparison {
            match comparison.table(results, form) {
                Some(table) => text.push_str(&table),
                None => missing.push(comparison.name.as_str()),
            }
        }
        if !missing.is_empty() {
            let _ = writeln!(text, "not measured: {}", missing.join(", "));
        }
        if form == Form::Markdown {
            text.push('\n');
        }
        text + LEGEND
    }
}

impl Row {
    /// A figure that a run does not have was not reached.
    fn verdict(&self, measured: &Measured) -> Verdict {
        let spread = self.spread(&self.step, measured);
        let spread = spread.filter(|spread| spread.runs == measured.runs);
        let (Some(spread), Some(limit)) = (spread, self.limit(measured)) else {
            return Verdict::Missed;
        };
        let mut steps = self.reach.others().iter().chain([&self.step]);
        if !steps.all(|step| measured.is_exact(step, self.figure)) {
            return Verdict::NotExact;
        }
        let value = spread.median * self.figure.scale().0;
        Verdict::of(match limit {
            Limit::AtLeast(least) => value >= least,
            Limit::AtMost(most) => value <= most,
        })
    }

    fn cells(&self, scenario: &str, measured: &Measured, verdict: Verdict) -> [String; 8] {
        let text = |value| self.figure.text(value);
        let (mut here, mut range) = ("none".to_owned(), String::new());
        if let Some(spread) = self.spread(&self.step, measured) {
            here = text(spread.median);
            if spread.runs < measured.runs {
                let _ = write!(here, " ({} of {} runs)", spread.runs, measured.runs);
            }
            range = format!("{} to {}", text(spread.min), text(spread.max));
        }
        [
            scenario.to_owned(),
            self.place(measured),
            self.figure.title().to_owned(),
            self.reach(measured),
            here,
            range,
            verdict.word().to_owned(),
            self.elsewhere.clone(),
        ]
    }
}

impl Row {
    fn spread(&self, step: &str, measured: &Measured) -> Option<Spread> {
        let step = measured.step(step)?;
        match (&self.class, self.traffic) {
            (Some(class), _) => step.fec.get(class)?.get(&self.figure).copied(),
            (None, Some(number)) => step.figure_of(number, self.figure),
            (None, None) => step.figure(self.figure),
        }
    }

    /// The step, and the class or the traffic if it is about one among several.
    fn place(&self, measured: &Measured) -> String {
        if let Some(class) = &self.class {
            return format!("{}: class {class}", self.step);
        }
        let traffic = self.traffic.and_then(|number| {
            let step = measured.step(&self.step)?;
            step.traffic.get(number.checked_sub(1)?)
        });
        match traffic {
            Some(traffic) => format!("{}: {}", self.step, traffic.label),
            None => self.step.clone(),
        }
    }

    /// `None` if it depends on a step of which some run has not the figure.
    fn limit(&self, measured: &Measured) -> Option<Limit> {
        let of_step = |step: &String| {
            let spread = self.spread(step, measured)?;
            // The median of fewer runs is of other minutes.
            let all = spread.runs == measured.runs;
            all.then(|| spread.median * self.figure.scale().0)
        };
        Some(match &self.reach {
            Reach::AtLeast { at_least } => Limit::AtLeast(*at_least),
            Reach::AtMost { at_most } => Limit::AtMost(*at_most),
            Reach::Share { share, of } => {
                let steps: Option<Vec<f64>> = of.iter().map(of_step).collect();
                Limit::AtLeast(share * steps?.into_iter().fold(0.0, f64::max))
            }
            Reach::Within { within, of } => Limit::AtMost(of_step(of)? + within),
            Reach::Part { part, of } => Limit::AtMost(of_step(of)? * part),
        })
    }

    fn reach(&self, measured: &Measured) -> String {
        let (_, digits) = self.figure.scale();
        let limit = match self.limit(measured) {
            Some(Limit::AtLeast(least)) => format!("at least {least:.digits$}"),
            Some(Limit::AtMost(most)) => format!("at most {most:.digits$}"),
            None => "unknown".into(),
        };
        match &self.reach {
            Reach::AtLeast { .. } | Reach::AtMost { .. } => limit,
            Reach::Share { share, of } => {
                let of = match of.as_slice() {
                    [only] => only,
                    _ => "best link",
                };
                format!("{limit} ({:.0} % of {of})", share * 100.0)
            }
            Reach::Within { within, of } => format!("{limit} ({of} + {within})"),
            Reach::Part { part, of } => format!("{limit} ({:.0} % of {of})", part * 100.0),
        }
    }
}

impl Measured {
    fn step(&self, name: &str) -> Option<&StepSummary> {
        self.summary.iter().find(|summary| summary.name == name)
    }

    fn figure(&self, step: &str, figure: Figure) -> Option<Spread> {
        self.step(step)?.figure(figure)
    }

    /// Whether the links were exact in a step, as far as this figure depends on that.
    fn is_exact(&self, step: &str, figure: Figure) -> bool {
        !figure.depends_on_links() || all_exact(&self.steps, step, &self.self_check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, Step, Traffic};

    const TARGETS: &str = r#"
        [[scenario]]
        name = "s"
        row = [
            { step = "both", figure = "goodput", reach = { at_least = 330 }, elsewhere = "277" },
            { step = "both", figure = "goodput", reach = { share = 1.1, of = ["a", "b"] } },
            { step = "both", figure = "gap_seconds", reach = { at_most = 0.15 } },
            { step = "both", figure = "p50_seconds", reach = { within = 5, of = "idle" } },
            { step = "b", figure = "goodput", reach = { part = 0.2, of = "a" } },
            { step = "b", traffic = 2, figure = "lost", reach = { at_most = 0 } },
            { step = "b", class = "voice", figure = "fec_recovered", reach = { at_least = 1 } },
        ]
        [[scenario]]
        name = "other"
        row = []
    "#;

    const RESULTS: &str = r#"{
        "schema": "sennit.lab/2", "scenario": "s", "started": "2026-01-01T00:00:00Z", "runs": 3,
        "summary": [
            {"name": "a", "traffic": [{"label": "TCP", "figures": {
                "goodput": {"median": 37500000, "min": 0, "max": 0, "runs": 3}}}]},
            {"name": "b", "traffic": [{"label": "TCP", "figures": {
                "goodput": {"median": 1250000, "min": 0, "max": 0, "runs": 3},
                "lost": {"median": 0, "min": 0, "max": 0, "runs": 3}}},
                {"label": "a call", "figures": {
                "lost": {"median": 2, "min": 1, "max": 4, "runs": 3}}}],
                "fec": {"voice": {
                "fec_recovered": {"median": 37, "min": 30, "max": 40, "runs": 3}}}},
            {"name": "both", "traffic": [{"label": "TCP", "figures": {
                "goodput": {"median": 41250000, "min": 40000000, "max": 42500000, "runs": 3},
                "gap_seconds": {"median": 0.15, "min": 0.1, "max": 0.16, "runs": 2}}}]}
        ]
    }"#;

    fn compared(measured: Measured) -> String {
        let targets: Targets = toml::from_str(TARGETS).expect("it is right");
        targets.compare(&BTreeMap::from([("s".to_owned(), measured)]), Form::Text)
    }

    /// The rows of the table, without its head and what is below it.
    fn rows() -> Vec<String> {
        let text = compared(serde_json::from_str(RESULTS).expect("it is right"));
        assert!(text.contains("4 of 7 reached\n"), "{text}");
        assert!(text.contains("not measured: other"), "{text}");
        let lines = text.lines().skip(2).take(7);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.map(words).collect()
    }

    /// The results, where packets of step `a` left a link of 10 ms late by so many seconds.
    fn late(seconds: f64) -> Measured {
        let mut measured: Measured = serde_json::from_str(RESULTS).expect("it is right");
        let steps = format!(
            r#"[{{"name": "a", "strain": {{"batches": 9, "over_1ms": 1,
            "late_max_seconds": {seconds}, "cpu_seconds": 0}}, "overruns": 0}}]"#
        );
        measured.steps = serde_json::from_str(&steps).expect("it is right");
        measured.self_check = vec![Check {
            link: "slow".into(),
            direction: sennit_netem::Direction::Up,
            property: crate::selfcheck::Property::Delay,
            asked: 0.01,
            measured: 0.01,
            tolerance: 3e-4,
        }];
        measured
    }

    #[test]
    fn what_depends_on_a_step_that_was_not_exact_is_not_reached() {
        let text = compared(late(0.0069));

        assert!(text.contains("2 of 7 reached, 2 not exact\n"), "{text}");
        let rows = text.lines().filter(|line| line.ends_with("not exact"));
        let shares: Vec<_> = rows.filter(|line| line.contains(" % of ")).collect();
        assert_eq!(shares.len(), 2, "of a and b, and a part of a: {text}");
        let text = compared(late(0.001));
        assert!(text.contains("4 of 7 reached\n"), "{text}");
    }

    #[test]
    fn strictly_what_is_not_exact_is_told_from_what_was_missed() {
        let targets: Targets = toml::from_str(
            r#"scenario = [{ name = "s", row = [
                { step = "a", figure = "goodput", reach = { at_least = 299 } },
                { step = "b", figure = "goodput", reach = { at_least = 9 } },
            ] }]"#,
        )
        .expect("it is right");
        let lack = |measured| {
            let results = BTreeMap::from([("s".to_owned(), measured)]);
            targets.count(&results).lack()
        };

        assert_eq!(lack(late(0.001)), None);
        let why = lack(late(0.0069)).expect("a was not exact");
        assert!(why.starts_with("1 not exact, which says nothing"), "{why}");
    }

    #[test]
    fn what_daemons_hold_and_do_is_exact_on_a_busy_machine_too() {
        let busy = late(0.0069);

        assert!(!busy.is_exact("a", Figure::P99Seconds));
        assert!(busy.is_exact("a", Figure::LeftBehind));
        assert!(
            busy.is_exact("both", Figure::P99Seconds),
            "that was another step"
        );
    }

    #[test]
    fn strictly_comparisons_count_and_nothing_is_not_enough() {
        let targets: Targets = toml::from_str(
            r#"
            scenario = [{ name = "s", row = [{ step = "a", figure = "goodput", reach = { at_least = 299 } }] }]
            [[comparison]]
            name = "c"
            row = [{ step = "up", figure = "goodput", at_least = 3500 }]
            "#,
        )
        .expect("it is right");
        let measured = || serde_json::from_str::<Measured>(RESULTS).expect("it is right");
        let is_reached = |names: &[&str]| {
            let results = names.iter().map(|name| ((*name).to_owned(), measured()));
            targets.count(&results.collect()).lack().is_none()
        };

        assert!(is_reached(&["s"]), "it has 300");
        assert!(!is_reached(&["s", "c"]), "Sennit has no figure in it");
        assert!(!is_reached(&[]), "nothing was measured");
        assert!(!is_reached(&["unknown"]), "nothing is asked of it");
    }

    #[test]
    fn a_row_has_what_is_asked_what_was_measured_and_what_others_say() {
        let rows = rows();

        assert_eq!(
            rows[0],
            "s x3 both Mbit/s at least 330.0 330.0 320.0 to 340.0 yes 277"
        );
        assert_eq!(
            rows[1],
            "both Mbit/s at least 330.0 (110 % of best link) 330.0 320.0 to 340.0 yes"
        );
    }

    #[test]
    fn what_a_run_does_not_have_is_not_reached() {
        let rows = rows();

        assert_eq!(
            rows[2],
            "both gap, s at most 0.15 0.15 (2 of 3 runs) 0.10 to 0.16 NO"
        );
        assert_eq!(rows[3], "both rtt p50, ms unknown (idle + 5) none NO");
    }

    #[test]
    fn a_limit_of_a_step_that_some_runs_lack_is_unknown() {
        let results = RESULTS.replacen(r#""max": 0, "runs": 3"#, r#""max": 0, "runs": 2"#, 1);
        let text = compared(serde_json::from_str(&results).expect("it is right"));

        let share = text.lines().find(|line| line.contains("unknown (110 %"));
        let share = share.unwrap_or_else(|| panic!("a has two of three runs: {text}"));
        assert!(share.ends_with("NO"), "{share}");
    }

    #[test]
    fn at_most_a_part_is_of_another_step() {
        let row = &rows()[4];
        assert_eq!(row, "b Mbit/s at most 60.0 (20 % of a) 10.0 0.0 to 0.0 yes");
    }

    #[test]
    fn a_row_may_be_about_one_traffic_of_a_step_or_the_repairs_of_one_class() {
        let rows = rows();

        assert_eq!(rows[5], "b: a call lost at most 0 2 1 to 4 NO");
        let repairs = "b: class voice recovered at least 1 37 30 to 40 yes";
        assert_eq!(rows[6], repairs);
    }

    #[test]
    fn a_page_says_what_was_measured_when_and_on_what() {
        let name = format!("sennit-page-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let machine = r#""machine": {
            "kernel": "6.1", "cpu": "Some CPU", "cores": 2, "memory_bytes": 4000000000
        }, "commit": "abc1234", "sennit": "target/tuned/sennit", "build": "sennit 0.1.0 00ff",
        "runs": 3,"#;
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let results = RESULTS.replacen(r#""runs": 3,"#, machine, 1);
        std::fs::write(directory.join("results.json"), results).expect("so is ours");

        let places = std::slice::from_ref(&directory);
        let [page, renamed] = [None, Some("our own")].map(|build| page(TARGETS, places, build));

        let _ = std::fs::remove_dir_all(&directory);
        let page = page.expect("it can be read");
        let renamed = renamed.expect("it can be read twice");
        assert!(renamed.contains("| build | our own |"), "{renamed}");
        for line in [
            "| build | abc1234, target/tuned/sennit (sennit 0.1.0 00ff) |",
            "| measured | 2026-01-01 to 2026-01-01 |",
            "| machine | Some CPU, 2 cores, 4 GB, Linux 6.1 |",
            "| s x3 | both | Mbit/s | at least 330.0 | 330.0 | 320.0 to 340.0 | yes | 277 |",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}: {page}");
        }
    }

    #[test]
    fn of_several_results_the_newest_counts_wherever_it_lies() {
        let name = format!("sennit-targets-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        for (place, year, runs) in [("new", "2027", 5), ("old/deep", "2025", 1)] {
            let changed = RESULTS.replace("2026-", &format!("{year}-"));
            let changed = changed.replace(r#""runs": 3,"#, &format!(r#""runs": {runs},"#));
            let place = directory.join(place);
            std::fs::create_dir_all(&place).expect("the temporary directory is writable");
            std::fs::write(place.join("results.json"), changed).expect("so is ours");
            std::fs::write(place.join("hub.log"), "no results").expect("so is ours");
        }

        let found = newest(std::slice::from_ref(&directory));

        let _ = std::fs::remove_dir_all(&directory);
        assert_eq!(found.expect("both can be read")["s"].runs, 5);
    }

    /// The targets that are shipped, without figures of tests, which call their steps as they like.
    fn shipped() -> Targets {
        let noted = ["doctor", "doctor-good", "history"];
        let mut targets: Targets = toml::from_str(SHIPPED).expect("they are right");
        targets
            .scenario
            .retain(|it| !noted.contains(&it.name.as_str()));
        targets
    }

    /// The steps of a shipped scenario, or of one of its variants, and its classes.
    fn steps_of(name: &str) -> (Vec<Step>, Vec<String>) {
        let with_variants = [
            "profiles",
            "linerate",
            "moving",
            "small-path",
            "varying-link",
            "loss-table",
            "rtt",
            "fec-cost",
            "fec",
            "voice",
        ];
        let file = with_variants.iter().find(|file| name.starts_with(**file));
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab");
        let path = format!("{directory}/{}.toml", file.unwrap_or(&name));
        let text = std::fs::read_to_string(path).expect("it is there");
        let scenario = Scenario::parse(&text).expect("it is right");
        let variants = scenario.variants();
        let variant = variants.iter().find(|variant| variant.name == name);
        let variant = variant.expect("the scenario has it");
        let classes = variant.tunnel.iter().flat_map(|tunnel| &tunnel.class);
        let names = classes.filter_map(|class| Some(class.get("name")?.as_str()?.to_owned()));
        (variant.step.clone(), names.collect())
    }

    #[test]
    fn the_shipped_targets_are_about_shipped_steps() {
        let targets = shipped();
        for comparison in &targets.comparison {
            let (steps, _) = steps_of(&comparison.name);
            for name in comparison.steps() {
                let known = steps.iter().any(|step| step.name == name);
                assert!(known, "{}: {name}", comparison.name);
            }
        }
        for target in &targets.scenario {
            let (steps, classes) = steps_of(&target.name);
            for row in &target.row {
                let class = row.class.as_ref();
                let known = class.is_none_or(|class| classes.contains(class));
                assert!(known, "{}: {class:?}", target.name);
                for name in row.reach.others().iter().chain([&row.step]) {
                    let step = steps.iter().find(|step| step.name == *name);
                    let traffic = step.map(|step| step.traffic.len());
                    let known = traffic.is_some_and(|it| it >= row.traffic.unwrap_or(0));
                    assert!(known, "{}: {name}", target.name);
                }
            }
        }
    }

    /// The receiver of iperf3 sees gaps only: what is lost at the end it does not miss.
    #[test]
    fn no_loss_that_is_a_target_is_counted_by_iperf3() {
        let counts = |traffic: &&Traffic| {
            use Traffic::{Ask, Fetch, Packets, Ping, Udp};
            matches!(traffic, Udp(_) | Packets(_) | Ping(_) | Fetch(_) | Ask(_))
        };
        for target in shipped().scenario {
            let (steps, _) = steps_of(&target.name);
            for row in target.row.iter().filter(|it| it.figure == Figure::Lost) {
                let step = steps.iter().find(|step| step.name == row.step);
                let traffic = &step.expect("the test before").traffic;
                let counted = match row.traffic {
                    Some(number) => traffic.get(number - 1),
                    None => traffic.iter().find(counts),
                };
                let by_iperf3 = matches!(counted, Some(Traffic::Udp(udp)) if !udp.delays);
                assert!(!by_iperf3, "{}: {}", target.name, row.step);
                assert!(counted.is_some(), "{}: {}", target.name, row.step);
            }
        }
    }
}
