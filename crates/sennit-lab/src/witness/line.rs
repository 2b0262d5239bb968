//! What several tools found of one thing, and whether that is the same.

use std::fmt::Write as _;

use sennit_load::{median, quantile};
use sennit_report::{Cell, Table};

use super::ALIKE;

/// One thing that several tools measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    /// As the link was asked for, if that says.
    pub(super) asked: Option<f64>,
    /// The first is what the others are compared with.
    pub(super) found: Vec<Found>,
    pub(super) alike: Alike,
}

/// What a tool found, round by round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) tool: &'static str,
    pub(super) values: Vec<f64>,
}

/// When tools are said to agree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Alike {
    /// None is so far from the first, in the unit.
    Within(f64),
    /// The second has as much as the first, or this. What others have is only shown.
    AsMuch(f64),
}

impl Found {
    pub(super) fn new(tool: &'static str, value: f64) -> Self {
        let values = vec![value];
        Self { tool, values }
    }

    /// That of the rounds.
    fn median(&self) -> f64 {
        median(&self.values).unwrap_or(f64::NAN)
    }

    /// From the least to the most of the rounds.
    fn spread(&self) -> String {
        let at = |share| quantile(&self.values, share).unwrap_or(f64::NAN);
        match self.values.len() {
            1 => String::new(),
            _ => format!("{:.3} to {:.3}", at(0.0), at(1.0)),
        }
    }
}

impl Line {
    /// Takes another round of the same thing into account.
    pub(super) fn add(&mut self, round: Self) {
        for Found { tool, values } in round.found {
            match self.found.iter_mut().find(|found| found.tool == tool) {
                Some(found) => found.values.extend(values),
                None => self.found.push(Found { tool, values }),
            }
        }
    }

    /// Whether everybody found what the first did; nobody does who is alone.
    pub(super) fn agrees(&self) -> bool {
        let medians: Vec<f64> = self.found.iter().map(Found::median).collect();
        let [first, others @ ..] = &medians[..] else {
            return false;
        };
        match self.alike {
            Alike::Within(apart) => {
                let near = |other: &f64| (other - first).abs() <= apart;
                !others.is_empty() && others.iter().all(near)
            }
            Alike::AsMuch(enough) => {
                let wanted = (first * (1.0 - ALIKE)).min(enough);
                others.first().is_some_and(|second| *second >= wanted)
            }
        }
    }
}

/// A table of lines, each tool in a row.
pub(super) fn table(name: &str, lines: &[Line]) -> Table {
    let head = [
        "", "unit", "asked", "found by", "median", "rounds", "ratio", "bound", "agree",
    ];
    let mut table = Table::new(name, head);
    for line in lines {
        let first = line.found.first().map_or(f64::NAN, Found::median);
        for (index, found) in line.found.iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            let agrees = match line.agrees() {
                true => "yes",
                false => "no *",
            };
            let bound = match line.alike {
                Alike::Within(apart) => format!("±{apart:.3}"),
                Alike::AsMuch(enough) => format!("as much, or {enough:.0}"),
            };
            table.row([
                once(line.what.into()),
                once(line.unit.into()),
                once(line.asked.map_or(String::new(), |it| format!("{it:.3}"))),
                found.tool.to_owned(),
                format!("{:.3}", found.median()),
                found.spread(),
                ratio(found.median(), first),
                once(bound),
                once(agrees.into()),
            ]);
        }
    }
    table
}

/// Of a first that is not zero.
fn ratio(value: f64, first: f64) -> String {
    let ratio = value / first;
    match ratio.is_finite() {
        true => format!("{ratio:.3}"),
        false => String::new(),
    }
}

/// A table for a terminal.
pub(super) fn text(table: &Table) -> String {
    let cells = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.clone()).collect();
    let rows: Vec<Vec<String>> = [table.head.clone()]
        .into_iter()
        .chain(table.rows.iter().map(cells))
        .collect();
    let mut text = format!("{}\n", table.caption);
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let of_column = |row: &Vec<String>| row[column].chars().count();
            let width = rows.iter().map(of_column).max().unwrap_or(0);
            let _ = write!(text, "{cell:width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(alike: Alike, found: &[(&'static str, f64)]) -> Line {
        let found = found.iter().map(|&(tool, value)| Found::new(tool, value));
        Line {
            what: "lost",
            unit: "%",
            asked: Some(1.0),
            found: found.collect(),
            alike,
        }
    }

    #[test]
    fn whoever_is_alone_with_a_figure_does_not_agree() {
        let near = |found: &[_]| line(Alike::Within(0.1), found);
        assert!(near(&[("iperf3", 1.0), ("sennit test", 1.09)]).agrees());
        let off = near(&[("iperf3", 1.0), ("sennit test", 1.0), ("quinn", 1.2)]);
        assert!(!off.agrees());
        assert!(!near(&[]).agrees(), "nothing was measured");
        assert!(!near(&[("iperf3", 1.0)]).agrees(), "by one tool alone");
        let text = text(&table("10/5/1%", &[off]));
        assert!(text.contains("no *") && text.contains("1.200"), "{text}");
    }

    #[test]
    fn the_median_of_the_rounds_counts_and_their_extremes_are_shown() {
        let round = |value| {
            line(
                Alike::Within(0.1),
                &[("iperf3", 1.0), ("sennit test", value)],
            )
        };
        let mut all = round(1.05);
        all.add(round(9.0));
        assert!(!all.agrees(), "half of 1.05 and 9");
        all.add(round(0.95));
        assert!(all.agrees());
        let text = text(&table("10/5", &[all]));
        assert!(text.contains("1.050   0.950 to 9.000"), "{text}");
    }

    #[test]
    fn as_much_is_enough_and_so_is_what_is_wanted() {
        let carried = |ours| {
            let found = [
                ("on quinn", 3000.0),
                ("sennit test", ours),
                ("iperf3", 9000.0),
            ];
            line(Alike::AsMuch(2500.0), &found).agrees()
        };
        assert!(carried(2990.0) && carried(2600.0) && !carried(2400.0));
        let slow = [("on quinn", 1000.0), ("sennit test", 990.0)];
        assert!(line(Alike::AsMuch(2500.0), &slow).agrees());
    }
}
