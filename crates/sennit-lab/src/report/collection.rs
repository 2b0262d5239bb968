//! Results of several scenarios as one page: what others have published, ours and the prediction,
//! and then each scenario with its plots.

use sennit_report::{Axis, Bar, Bars, Block, Cell, Report, Section, Table};

use super::compared::{Compared, Count, compare};
use super::page::{self, Named};
use super::{Figure, Results};
use crate::error::Error;
use crate::scenario::Published;

/// Steps of one scenario that have plots here; `sennit lab report` of it alone has all.
const STEPS: usize = 6;

/// Facts that are usually the same for all scenarios, and stand once where they are.
const SHARED: [&str; 4] = ["machine", "program", "commit", "beside"];

/// The page of results of different scenarios.
pub(crate) fn collection(title: &str, all: &[Results]) -> Result<Report, Error> {
    let mut report = Report::new(title);
    let compared = all.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    let rows = || compared.iter().flatten();
    report.lede = format!(
        "{} The last column says why one is not reached. Rates and delays are those of the \
         documents, links are emulated on one machine.",
        Count::of(rows())
    );
    report.facts = facts(all);
    report = report.with(Section::new("All figures").with(Block::Table(table(rows()))));
    for (results, rows) in all.iter().zip(&compared) {
        report = report.with(section(results, rows));
    }
    Ok(report)
}

/// When all was measured, where and of what, and what to know of any of them.
fn facts(all: &[Results]) -> Vec<(String, String)> {
    let of_each = || all.iter().flat_map(own_facts);
    let mut facts = Vec::new();
    let started = || all.iter().map(|results| results.started.as_str());
    if let (Some(first), Some(last)) = (started().min(), started().max()) {
        facts.push(("measured".into(), format!("{first} to {last}")));
    }
    for what in SHARED {
        for fact in of_each().filter(|(of, _)| of == what) {
            if !facts.contains(&fact) {
                facts.push(fact);
            }
        }
    }
    for results in all {
        let beware = |remark: String| format!("{}: {remark}", results.scenario);
        let remarks = results.remarks().into_iter().map(beware);
        facts.extend(remarks.map(|remark| ("beware".to_owned(), remark)));
    }
    facts
}

fn own_facts(results: &Results) -> Vec<(String, String)> {
    let name = &results.scenario;
    page::facts(&Named { name, results }, false)
}

fn table<'a>(rows: impl Iterator<Item = &'a Compared>) -> Table {
    let head = [
        "document",
        "what",
        "unit",
        "published",
        "here",
        "predicted",
        "remark",
    ];
    let mut table = Table::new("", head);
    for row in rows {
        let Published {
            by, what, figure, ..
        } = &row.published;
        let here = match row.is_reached() {
            Some(good) => Cell::judged(row.here(), good),
            None => row.here().into(),
        };
        table.row([
            Cell::from(by.as_str()),
            what.as_str().into(),
            figure.title().into(),
            row.text(row.published.value).into(),
            here,
            row.text(row.predicted).into(),
            row.remark().into(),
        ]);
    }
    table
}

/// One scenario: how it was played, its rows as bars, and the plots of its first steps.
fn section(results: &Results, rows: &[Compared]) -> Section {
    let mut section = Section::new(&results.scenario);
    section.blocks.push(Block::Text(results.about.clone()));
    let mut played = Table::new("how it was played", ["", ""]);
    let own = own_facts(results).into_iter();
    for (what, value) in own.filter(|(what, _)| !SHARED.contains(&what.as_str())) {
        played.row([what, value]);
    }
    section.blocks.push(Block::Table(played));
    let mut figures: Vec<_> = rows.iter().map(|row| row.published.figure).collect();
    figures.sort();
    figures.dedup();
    for figure in figures {
        let of_figure = rows.iter().filter(|row| row.published.figure == figure);
        section.blocks.push(Block::Bars(bars(figure, of_figure)));
    }
    let named = [Named {
        name: &results.scenario,
        results,
    }];
    section.blocks.extend(page::conditions(&named).blocks);
    for step in results.steps_of_first_run().take(STEPS) {
        let plots = page::step_section(&step.name, &named).blocks.into_iter();
        section
            .blocks
            .extend(plots.map(|block| captioned(block, &step.name)));
    }
    let source = format!("the scenario {}", results.scenario);
    section
        .blocks
        .push(Block::Source(source, results.text.clone()));
    section
}

/// A plot that says which step it is of.
fn captioned(mut block: Block, step: &str) -> Block {
    let caption = match &mut block {
        Block::Lines(plot) => &mut plot.caption,
        Block::Stack(plot) => &mut plot.caption,
        Block::Bars(plot) => &mut plot.caption,
        Block::Points(plot) => &mut plot.caption,
        Block::Text(_) | Block::Source(..) | Block::Table(_) => return block,
    };
    *caption = format!("{step}: {caption}");
    block
}

fn bars<'a>(figure: Figure, rows: impl Iterator<Item = &'a Compared>) -> Bars {
    let bar = |value: Option<f64>| {
        value.map(|value| Bar {
            value,
            interval: None,
        })
    };
    let groups = rows.map(|row| {
        let values = [row.published.value, row.ours(), row.predicted];
        (row.published.what.clone(), values.map(bar).to_vec())
    });
    Bars {
        caption: format!("{} as published, here, and predicted", figure.title()),
        y: Axis::new(figure.title()),
        series: ["published", "here", "predicted"]
            .map(str::to_owned)
            .to_vec(),
        groups: groups.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::emulator::Strain;
    use crate::report::{StepResult, TrafficResult};
    use crate::scenario::Scenario;
    use crate::selfcheck::{Check, Property};
    use crate::traffic::{Figures, UdpFigures};

    /// Results of a scenario of this name, of which one link was measured to have this delay.
    fn results(name: &str, measured: f64, late: f64) -> Results {
        let text = format!("name = \"{name}\"\n[[link]]\nname = \"a\"\nspec = \"30/10\"\n");
        let scenario = Scenario::parse(&text).expect("it is right");
        let check = Check {
            link: "a".into(),
            direction: sennit_netem::Direction::Up,
            property: Property::Delay,
            asked: 0.01,
            measured,
            tolerance: 3e-4,
        };
        let program = Path::new("/sennit");
        let mut results = Results::new(&scenario, &text, program, Vec::new(), vec![check]);
        results.command = format!("sennit lab run lab/seeds/{name}.toml");
        results.add_run(vec![StepResult {
            name: format!("step of {name}"),
            strain: Strain {
                late_max_seconds: late,
                batches: 9,
                over_1ms: 1,
                ..Strain::default()
            },
            ..StepResult::default()
        }]);
        results
    }

    /// A scenario with one published figure, `more` at its end, and runs with these goodputs in
    /// Mbit/s.
    fn beside_published(late: f64, runs: &[Option<f64>], more: &str) -> Results {
        let mut results = results("only", 0.01, late);
        results.text += "[[step]]\nname = \"step of only\"\n[[published]]\nwhat = \"TCP\"\n\
            by = \"a report\"\nstep = \"step of only\"\nfigure = \"goodput\"\nvalue = 9\n";
        results.text += more;
        let step = results.steps.remove(0);
        results.runs = 0;
        for goodput in runs {
            let figures = goodput.map(|it| {
                Figures::Udp(UdpFigures {
                    goodput: it / 8e-6,
                    ..UdpFigures::default()
                })
            });
            let traffic = TrafficResult {
                label: "TCP".into(),
                failure: figures.is_none().then(|| "it broke".into()),
                figures,
                line_share: None,
                gap_seconds: None,
                usual_goodput: None,
                edges: Vec::new(),
            };
            results.add_run(vec![StepResult {
                traffic: vec![traffic],
                ..step.clone()
            }]);
        }
        results
    }

    fn page_of(results: Results) -> String {
        collection("Seeds", &[results]).expect("it is right").html()
    }

    #[test]
    fn what_failed_or_was_not_exact_is_not_reached() {
        for (late, runs, shown) in [
            (
                0.0,
                &[Some(10.0)][..],
                "1 published figures beside the same played here: 1 are",
            ),
            (
                0.0,
                &[Some(8.0)][..],
                "1 published figures beside the same played here: 0 are",
            ),
            (
                0.0,
                &[None][..],
                "1 published figures beside the same played here: 0 are",
            ),
            (
                0.0,
                &[Some(10.0), None][..],
                "1 published figures beside the same played here: 0 are",
            ),
            (0.0, &[Some(10.0), None][..], "10.00 (1 of 2 runs)"),
            (
                0.04,
                &[Some(10.0)][..],
                "1 published figures beside the same played here: 0 are",
            ),
            (0.04, &[Some(10.0)][..], "10.00, not exact"),
        ] {
            let page = page_of(beside_published(late, runs, ""));
            assert!(page.contains(shown), "{late}, {runs:?}: {shown}: {page}");
        }
    }

    /// What the head says beside what is reached, and why the rows cannot stand.
    fn told(late: f64, runs: &[Option<f64>], more: &str) -> (String, Option<String>) {
        let results = beside_published(late, runs, more);
        let count = Count::of(&compare(&results).expect("it is right"));
        (count.to_string(), count.lack())
    }

    #[test]
    fn a_row_that_is_missed_says_why_or_that_nobody_did() {
        const WHY: &str = "why = \"more than the link carries\"\n";
        const OPEN: &str = "why = \"not reached: repairs are lost too\"\n";
        for (late, runs, more, words, lack) in [
            (0.0, &[Some(10.0)][..], "", "1 are reached.", None),
            (
                0.0,
                &[Some(8.0)][..],
                WHY,
                "1 are missed because theirs",
                None,
            ),
            (0.0, &[Some(8.0)][..], OPEN, "1 are NOT REACHED", None),
            (
                0.0,
                &[Some(8.0)][..],
                "",
                "NO REASON IS GIVEN",
                Some("1 missed and no reason given"),
            ),
            (
                0.0,
                &[None][..],
                WHY,
                "not measured",
                Some("1 not measured in every run"),
            ),
            (
                0.04,
                &[Some(8.0)][..],
                WHY,
                "1 are not exact",
                Some("1 not exact: this machine"),
            ),
        ] {
            let (head, found) = told(late, runs, more);
            assert!(head.contains(words), "{runs:?}, {more}: {head}");
            match (lack, found) {
                (Some(lack), Some(found)) => assert!(found.starts_with(lack), "{found}"),
                (lack, found) => assert_eq!(lack, found.as_deref(), "{runs:?}, {more}"),
            }
        }
        let page = page_of(beside_published(0.0, &[Some(8.0)], ""));
        assert!(page.contains("NO REASON GIVEN"), "{page}");
    }

    #[test]
    fn what_was_left_out_stands_as_not_played() {
        let more = "[[step]]\nname = \"an hour\"\nlong = true\n[[published]]\nwhat = \"gap\"\n\
            by = \"a report\"\nstep = \"an hour\"\nfigure = \"gap_seconds\"\nvalue = 0\n";
        let (head, lack) = told(0.0, &[Some(10.0)], more);
        assert!(
            head.ends_with("1 are reached. 1 rows were NOT PLAYED."),
            "{head}"
        );
        assert_eq!(lack, None, "who is quick leaves things out");

        let page = page_of(beside_published(0.0, &[Some(10.0)], more));
        assert!(page.contains("not played"), "{page}");
    }

    #[test]
    fn every_scenario_says_how_it_was_played_and_what_makes_it_worthless() {
        let all = [
            results("first", 0.0101, 0.0),
            results("second", 0.0102, 0.04),
        ];

        let page = collection("Seeds", &all).expect("it is right").html();

        for shown in [
            "lab/seeds/first.toml",
            "lab/seeds/second.toml",
            "second: step of second: NOT EXACT",
            "10.100 ms",
            "10.200 ms",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        assert!(!page.contains("step of first: NOT EXACT"));
        assert_eq!(page.matches("/sennit<").count(), 1, "of all of them");
    }
}
