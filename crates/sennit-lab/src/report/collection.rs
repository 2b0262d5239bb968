//! Results of several scenarios as one page: what others have published, ours and the prediction,
//! and then each scenario with its plots.

use sennit_report::{Axis, Bar, Bars, Block, Cell, Report, Section, Table};

use super::page::{self, Named};
use super::{Figure, Results};
use crate::error::Error;
use crate::scenario::{Published, Scenario};

/// Steps of one scenario that have plots here; `sennit lab report` of it alone has all.
const STEPS: usize = 6;

/// A published figure beside ours.
struct Compared {
    published: Published,
    ours: Option<f64>,
    predicted: Option<f64>,
}

/// The page of results of different scenarios.
pub(crate) fn collection(title: &str, all: &[Results]) -> Result<Report, Error> {
    let mut report = Report::new(title);
    let compared = all.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    let rows = || compared.iter().flatten();
    let judged = rows().filter_map(|row| row.published.is_reached(row.ours?));
    let (reached, known) = judged.fold((0, 0), |(reached, known), is| {
        (reached + usize::from(is), known + 1)
    });
    report.lede = format!(
        "{known} published figures beside the same played here: {reached} are reached, and where \
         one is not, the last column says why if that is known. Rates and delays are those of the \
         documents, links are emulated on one machine."
    );
    if let Some(first) = all.first() {
        report.facts = page::facts(
            &Named {
                name: "",
                results: first,
            },
            false,
        );
        report.facts.retain(|(what, _)| what != "runs");
    }
    report = report.with(Section::new("All figures").with(Block::Table(table(rows()))));
    for (results, rows) in all.iter().zip(&compared) {
        report = report.with(section(results, rows));
    }
    Ok(report)
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
        Ok(Compared {
            ours: ours.map(|spread| spread.median * scale),
            predicted,
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
        let here = match row.ours.and_then(|ours| row.published.is_reached(ours)) {
            Some(good) => Cell::judged(text(row.ours), good),
            None => text(row.ours).into(),
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

/// One scenario: its rows as bars, and the plots of its first steps.
fn section(results: &Results, rows: &[Compared]) -> Section {
    let mut section = Section::new(&results.scenario);
    section.blocks.push(Block::Text(results.about.clone()));
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
