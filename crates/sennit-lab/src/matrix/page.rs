//! The report of a matrix: which controller carries how much of what there is, and where not.

use std::collections::BTreeMap;

use sennit_report::{
    Axis, Bar, Bars, Block, Cell, Curve, Lines, Report, Section, Table, cdf, interval,
};

use super::Matrix;
use super::row::Row;
use crate::report::made;

/// A share from which a link counts as well used.
const GOOD: f64 = 0.9;
/// A share below which it counts as badly used.
const BAD: f64 = 0.5;
/// Scenarios of the list of the worst.
const WORST: usize = 20;

/// The page of these rows.
pub(super) fn page(matrix: &Matrix, text: &str, rows: &[Row]) -> Report {
    let failed = rows.iter().filter(|row| row.goodput.is_none()).count();
    let source = Block::Source("the matrix".into(), text.to_owned());
    made(Report::new(format!("Matrix {}", matrix.name)))
        .lede(&matrix.about)
        .fact(
            "scenarios",
            format!("{}, {failed} without an outcome", rows.len()),
        )
        .fact("each", format!("{} virtual seconds", matrix.span()))
        .fact(
            "share",
            "goodput against the prediction from headers and loss alone, without repairs; moving links \
             have none",
        )
        .with(controllers(rows))
        .with(profiles(rows))
        .with(worst(rows))
        .with(Section::new("To repeat").with(source))
}

/// A figure of the rows that have it.
type Of = fn(&Row) -> Option<f64>;

/// Shares by what `key` says of a row.
fn by<K: Ord>(rows: &[Row], key: impl Fn(&Row) -> K) -> BTreeMap<K, Vec<f64>> {
    figures_by(rows, |row| row.share, key)
}

fn figures_by<K: Ord>(rows: &[Row], of: Of, key: impl Fn(&Row) -> K) -> BTreeMap<K, Vec<f64>> {
    let mut groups: BTreeMap<K, Vec<f64>> = BTreeMap::new();
    for row in rows {
        if let Some(figure) = of(row) {
            groups.entry(key(row)).or_default().push(figure);
        }
    }
    groups
}

fn names(rows: &[Row], of: fn(&Row) -> &String) -> Vec<String> {
    let mut names: Vec<_> = rows.iter().map(of).cloned().collect();
    names.sort();
    names.dedup();
    names
}

fn controllers(rows: &[Row]) -> Section {
    let curves = by(rows, |row| row.congestion.clone());
    let curves = curves
        .iter()
        .map(|(name, shares)| Curve::new(name, cdf(shares)));
    let lines = Lines::new(
        "Share of the prediction that each controller reaches, over all scenarios (CDF)",
        Axis::new("goodput / prediction"),
        Axis::new("share of scenarios with at most this").most(1.0),
        curves.collect(),
    );
    let section = Section::new("Controllers").with(Block::Lines(lines));
    let against = |caption: &str, key: fn(&Row) -> String| {
        let series = names(rows, |row| &row.delivery);
        let shares = by(rows, |row| (key(row), row.delivery.clone()));
        let mut groups: Vec<_> = shares.keys().map(|(group, _)| group.clone()).collect();
        groups.dedup();
        let groups = groups.into_iter().map(|group| {
            let bars = series.iter().map(|name| {
                let values = shares.get(&(group.clone(), name.clone()))?;
                let found = interval(values)?;
                Some(Bar {
                    value: found.mean,
                    interval: found.around,
                })
            });
            let bars = bars.collect();
            (group, bars)
        });
        Block::Bars(Bars {
            caption: caption.into(),
            y: Axis::new("goodput / prediction").most(1.0),
            series: series.clone(),
            groups: groups.collect(),
        })
    };
    section
        .with(against(
            "Mean share by controller and delivery, with its interval of 95 %",
            |row| row.congestion.clone(),
        ))
        .with(against("The same by links", |row| {
            format!("{} links", row.links)
        }))
        .with(against("The same by flows", |row| {
            format!("{:2} flows", row.flows)
        }))
        .with(against("The same by code", |row| {
            format!("fec {}", row.fec)
        }))
}

/// Controllers against profiles: what they carry, and what becomes of a ping beside it.
fn profiles(rows: &[Row]) -> Section {
    let shares = format!("Mean share of the prediction, in %; marked from {GOOD} and below {BAD}");
    let judged = |share: f64| {
        let text = format!("{:.0}", share * 100.0);
        match share {
            GOOD.. => Cell::judged(text, true),
            ..BAD => Cell::judged(text, false),
            _ => text.into(),
        }
    };
    let plain = |figure: f64| Cell::from(format!("{figure:.1}"));
    let p95 = "Round trips of a ping beside the flows, P95, in ms: mean over scenarios";
    let lost = "Pings beside the flows that were lost, in %: mean over scenarios";
    Section::new("Profiles")
        .with(by_profile(rows, shares, |row| row.share, judged))
        .with(by_profile(rows, p95, |row| row.p95, plain))
        .with(by_profile(rows, lost, |row| row.lost, plain))
}

/// The mean of a figure for each profile and controller.
fn by_profile(
    rows: &[Row],
    caption: impl Into<String>,
    of: Of,
    cell: impl Fn(f64) -> Cell,
) -> Block {
    let controllers = names(rows, |row| &row.congestion);
    let key = |row: &Row| (row.profile.clone(), row.congestion.clone());
    let figures = figures_by(rows, of, key);
    let mut table = Table::new(caption, ["profile"]);
    table.head.extend(controllers.iter().cloned());
    for profile in names(rows, |row| &row.profile) {
        let mean = |controller: &String| {
            let values = figures.get(&(profile.clone(), controller.clone()));
            let mean = values.and_then(|values| interval(values));
            mean.map_or("-".into(), |found| cell(found.mean))
        };
        let cells = controllers.iter().map(mean);
        table.row([Cell::from(profile.clone())].into_iter().chain(cells));
    }
    Block::Table(table)
}

fn worst(rows: &[Row]) -> Section {
    let mut known: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.share?, row)))
        .collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let head = [
        "number",
        "profile",
        "links",
        "flows",
        "delivery",
        "congestion",
        "fec",
        "Mbit/s",
        "share, %",
    ];
    let mut table = Table::new("Run one again by --only NUMBER.", head);
    for (share, row) in known.into_iter().take(WORST) {
        table.row([
            row.number.to_string(),
            row.profile.clone(),
            row.links.to_string(),
            row.flows.to_string(),
            row.delivery.clone(),
            row.congestion.clone(),
            row.fec.clone(),
            format!("{:.2}", row.goodput.unwrap_or_default()),
            format!("{:.1}", share * 100.0),
        ]);
    }
    Section::new("The least").with(Block::Table(table))
}
