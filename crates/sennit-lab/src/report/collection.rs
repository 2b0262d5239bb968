//! Results of several scenarios as one page: what others have published, ours and the prediction,
//! and then each scenario with its plots.

use sennit_report::{Axis, Bar, Bars, Block, Cell, Report, Section, Table};

use super::page::{self, Named};
use super::{Figure, Results};
use crate::error::Error;
use crate::scenario::{Published, Scenario};

/// Steps of one scenario that have plots here; `sennit lab report` of it alone has all.
const STEPS: usize = 6;

/// Facts that are usually the same for all scenarios, and stand once where they are.
const SHARED: [&str; 4] = ["machine", "program", "commit", "beside"];

/// A published figure beside ours.
struct Compared {
    published: Published,
    ours: Option<f64>,
    predicted: Option<f64>,
    /// Why it does not count whatever ours is; empty if it does.
    flaw: String,
}

impl Compared {
    /// `None` if no figure was published. What failed, in one run even, was not reached.
    fn is_reached(&self) -> Option<bool> {
        let by_figure = |ours| self.published.is_reached(ours);
        let counts = self.flaw.is_empty();
        let reached = self.ours.filter(|_| counts).and_then(by_figure);
        self.published.value.map(|_| reached.unwrap_or(false))
    }
}

/// The page of results of different scenarios.
pub(crate) fn collection(title: &str, all: &[Results]) -> Result<Report, Error> {
    let mut report = Report::new(title);
    let compared = all.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    let rows = || compared.iter().flatten();
    let judged = rows().filter_map(Compared::is_reached);
    let (reached, known) = judged.fold((0, 0), |(reached, known), is| {
        (reached + usize::from(is), known + 1)
    });
    report.lede = format!(
        "{known} published figures beside the same played here: {reached} are reached, and where \
         one is not, the last column says why if that is known. Rates and delays are those of the \
         documents, links are emulated on one machine."
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

fn compare(results: &Results) -> Result<Vec<Compared>, Error> {
    let scenario = Scenario::parse(&results.text)?;
    let compared = |published: Published| {
        let figure = published.figure;
        let step = results
            .summary
            .iter()
            .find(|step| step.name == published.step);
        let ours = step.and_then(|step| step.figure(figure));
        let (scale, _) = figure.scale();
        let predicted = published.predicted().map_err(Error::Scenario)?;
        let flaw = match ours {
            Some(ours) if ours.runs < results.runs => {
                format!(" ({} of {} runs)", ours.runs, results.runs)
            }
            Some(_) if figure.depends_on_links() && !results.is_exact(&published.step) => {
                ", not exact".into()
            }
            Some(_) | None => String::new(),
        };
        Ok(Compared {
            ours: ours.map(|spread| spread.median * scale),
            predicted,
            flaw,
            published,
        })
    };
    let all = scenario.published.into_iter().map(compared);
    // What was left out for lack of time is in no row.
    let played = |row: &Result<Compared, Error>| {
        let step = row.as_ref().map(|row| row.published.step.clone());
        step.is_ok_and(|name| results.summary.iter().any(|step| step.name == name))
    };
    all.filter(|row| row.is_err() || played(row)).collect()
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
            by,
            what,
            figure,
            why,
            ..
        } = &row.published;
        let text = |value: Option<f64>| {
            let (_, digits) = figure.scale();
            let digits = digits.max(usize::from(*figure == Figure::Goodput) * 2);
            value.map_or("-".into(), |value| format!("{value:.digits$}"))
        };
        let ours = text(row.ours) + &row.flaw;
        let here = match row.is_reached() {
            Some(good) => Cell::judged(ours, good),
            None => ours.into(),
        };
        table.row([
            Cell::from(by.as_str()),
            what.as_str().into(),
            figure.title().into(),
            text(row.published.value).into(),
            here,
            text(row.predicted).into(),
            why.as_str().into(),
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
        let values = [row.published.value, row.ours, row.predicted];
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

    /// The page of a scenario with one published figure, and of runs with these goodputs in Mbit/s.
    fn beside_published(late: f64, runs: &[Option<f64>]) -> String {
        let mut results = results("only", 0.01, late);
        results.text += "[[step]]\nname = \"step of only\"\n[[published]]\nwhat = \"TCP\"\n\
            by = \"a report\"\nstep = \"step of only\"\nfigure = \"goodput\"\nvalue = 9\n";
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
            let page = beside_published(late, runs);
            assert!(page.contains(shown), "{late}, {runs:?}: {shown}: {page}");
        }
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
