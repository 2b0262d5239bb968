//! One scenario over several tunnels, side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use super::{Count, Form, Measured, Verdict};
use crate::report::{Figure, Spread, Table};
use crate::scenario::TunnelKind;

/// The tunnel that is compared with the others.
const OURS: TunnelKind = TunnelKind::Sennit;
const OTHERS: [TunnelKind; 2] = [TunnelKind::WireguardGo, TunnelKind::Ideal];

/// How to read the table.
const LEGEND: &str = "\
/ w-go, / ideal: Sennit's figure against theirs. (n): only so many runs have it. RSS: the most during
the step. cpu: user and system time of both daemons.
";

/// A `[[comparison]]` table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Comparison {
    /// The scenario.
    pub(super) name: String,
    row: Vec<Row>,
}

/// A figure of a step, and what ours should be: nothing, if it is only to be seen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// As in the scenario, without the tunnel.
    step: String,
    figure: Figure,
    /// In the units of tables.
    at_least: Option<f64>,
    /// In the units of tables.
    at_most: Option<f64>,
    /// At least so many times another tunnel's figure.
    #[serde(default)]
    times: BTreeMap<String, f64>,
}

impl Comparison {
    /// `None` if nothing was measured.
    pub(super) fn table(&self, results: &BTreeMap<String, Measured>, form: Form) -> Option<String> {
        let measured = results.get(&self.name)?;
        let title = format!("{} x{}", self.name, measured.runs);
        let [wireguard, ideal] = OTHERS.map(|kind| kind.to_string());
        let head = [
            &title, "figure", "Sennit", &wireguard, &ideal, "/ w-go", "/ ideal", "reach", "reached",
        ];
        let mut table = Table::new(head, 2..7);
        let mut last = "";
        for row in &self.row {
            let step = if row.step == last { "" } else { &row.step };
            last = &row.step;
            table.add(row.cells(step, measured));
        }
        let count: Count = self.verdicts(measured).collect();
        let mut text = form.table(&table);
        let _ = writeln!(text, "{count}");
        for rival in &measured.rivals {
            let _ = writeln!(text, "with {rival}");
        }
        text.push_str(LEGEND);
        Some(text)
    }

    /// Of the rows that ask for something.
    pub(super) fn verdicts(&self, measured: &Measured) -> impl Iterator<Item = Verdict> {
        let asking = self.row.iter().filter(|row| row.asks());
        asking.map(move |row| row.verdict(measured))
    }

    /// All steps that it is about, as results call them.
    #[cfg(test)]
    pub(super) fn steps(&self) -> impl Iterator<Item = String> {
        let kinds = [OURS].into_iter().chain(OTHERS);
        kinds.flat_map(|kind| self.row.iter().map(move |row| row.name_over(kind)))
    }
}

impl Row {
    fn name_over(&self, kind: TunnelKind) -> String {
        format!("{kind}, {}", self.step)
    }

    fn spread(&self, kind: TunnelKind, measured: &Measured) -> Option<Spread> {
        measured.figure(&self.name_over(kind), self.figure)
    }

    /// Ours against another's; `None` where some run has not both.
    fn ratio(&self, other: TunnelKind, measured: &Measured) -> Option<f64> {
        let of_all = |kind| {
            let spread = self.spread(kind, measured);
            spread.filter(|spread| spread.runs == measured.runs)
        };
        let [ours, theirs] = [OURS, other].map(of_all);
        let ratio = ours?.median / theirs?.median;
        ratio.is_finite().then_some(ratio)
    }

    /// Whether anything is asked for.
    fn asks(&self) -> bool {
        self.at_least.is_some() || self.at_most.is_some() || !self.times.is_empty()
    }

    /// Whether ours is as it should be; what some runs do not have was not reached.
    fn verdict(&self, measured: &Measured) -> Verdict {
        let ours = self.spread(OURS, measured);
        let Some(ours) = ours.filter(|ours| ours.runs == measured.runs) else {
            return Verdict::Missed;
        };
        if !self.is_exact(measured) {
            return Verdict::NotExact;
        }
        let value = ours.median * self.figure.scale().0;
        let times = self.times.iter().all(|(name, times)| {
            let other = OTHERS.into_iter().find(|kind| kind.to_string() == *name);
            other
                .and_then(|kind| self.ratio(kind, measured))
                .is_some_and(|ratio| ratio >= *times)
        });
        Verdict::of(
            times
                && self.at_least.is_none_or(|least| value >= least)
                && self.at_most.is_none_or(|most| value <= most),
        )
    }

    /// Whether the links were exact under all tunnels that stand in the row.
    fn is_exact(&self, measured: &Measured) -> bool {
        let mut kinds = [OURS].into_iter().chain(OTHERS);
        kinds.all(|kind| measured.is_exact(&self.name_over(kind), self.figure))
    }

    fn cells(&self, step: &str, measured: &Measured) -> [String; 9] {
        let value = |kind| match self.spread(kind, measured) {
            Some(spread) => self.text(spread, measured.runs),
            None => "none".to_owned(),
        };
        let ratio = |kind| match self.ratio(kind, measured) {
            Some(ratio) => format!("{ratio:.2}"),
            None => "-".to_owned(),
        };
        let verdict = match self.asks() {
            true => self.verdict(measured).word(),
            false if self.is_exact(measured) => "",
            false => Verdict::NotExact.word(),
        };
        [
            step.to_owned(),
            self.figure.title().to_owned(),
            value(OURS),
            value(OTHERS[0]),
            value(OTHERS[1]),
            ratio(OTHERS[0]),
            ratio(OTHERS[1]),
            self.asked(),
            verdict.to_owned(),
        ]
    }

    /// With three digits that matter: tunnels of all speeds stand in one column.
    fn text(&self, spread: Spread, runs: usize) -> String {
        let value = spread.median * self.figure.scale().0;
        let digits = match value {
            100.0.. => 0,
            10.0.. => 1,
            _ => 2,
        };
        let mut text = format!("{value:.digits$}");
        if spread.runs < runs {
            let _ = write!(text, " ({})", spread.runs);
        }
        text
    }

    fn asked(&self) -> String {
        let absolute = [("at least", self.at_least), ("at most", self.at_most)];
        let absolute = absolute.into_iter().filter_map(|(what, limit)| {
            let limit = limit?;
            Some(format!("{what} {limit}"))
        });
        let times = self.times.iter();
        let times = times.map(|(name, times)| format!("{times} x {name}"));
        absolute.chain(times).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::StepSummary;

    const COMPARISON: &str = r#"
        name = "s"
        row = [
            { step = "up", figure = "goodput", at_least = 3500, times = { wireguard-go = 1.4, ideal = 0.5 } },
            { step = "up", figure = "cpu_seconds_per_gigabyte", at_most = 3.5 },
            { step = "idle", figure = "hub_rss_bytes" },
            { step = "idle", figure = "p50_seconds", at_most = 0.3 },
        ]
    "#;

    fn measured() -> Measured {
        let step = |name: &str, figures: &str| {
            format!(
                r#"{{"name": "{name}", "traffic": [{{"label": "-", "figures": {{{figures}}}}}]}}"#
            )
        };
        let figure = |name: &str, median: f64, runs: usize| {
            format!(r#""{name}": {{"median": {median}, "min": 0, "max": 0, "runs": {runs}}}"#)
        };
        let up = |goodput: f64| {
            let cpu = figure("cpu_seconds_per_gigabyte", 3.6, 5);
            format!("{}, {cpu}", figure("goodput", goodput, 5))
        };
        let steps = [
            step("Sennit, up", &up(450e6)),
            step("wireguard-go, up", &up(300e6)),
            step("ideal, up", &up(1000e6)),
            step("Sennit, idle", &figure("hub_rss_bytes", 12.34e6, 4)),
        ];
        let text = format!(
            r#"{{"scenario": "s", "started": "", "runs": 5, "rivals": ["a v1"], "summary": [{}]}}"#,
            steps.join(",")
        );
        serde_json::from_str(&text).expect("it is right")
    }

    fn rows() -> Vec<String> {
        let comparison: Comparison = toml::from_str(COMPARISON).expect("it is right");
        let table = comparison.table(&BTreeMap::from([("s".to_owned(), measured())]), Form::Text);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        table
            .expect("it was measured")
            .lines()
            .skip(1)
            .map(words)
            .collect()
    }

    #[test]
    fn tunnels_stand_side_by_side_with_their_ratios() {
        let rows = rows();

        assert!(
            rows[0].starts_with("s x5 figure Sennit wireguard-go ideal"),
            "{}",
            rows[0]
        );
        assert_eq!(
            rows[1],
            "up Mbit/s 3600 2400 8000 1.50 0.45 at least 3500, 0.5 x ideal, 1.4 x wireguard-go NO"
        );
        assert_eq!(rows[2], "cpu, s/GB 3.60 3.60 3.60 1.00 1.00 at most 3.5 NO");
    }

    #[test]
    fn a_rival_that_failed_in_some_runs_is_no_measure() {
        let comparison: Comparison = toml::from_str(COMPARISON).expect("it is right");
        let mut measured = measured();
        let spread = |step: &mut StepSummary| {
            let figures = step.traffic.iter_mut().map(|it| &mut it.figures);
            figures.for_each(|it| it.values_mut().for_each(|spread| spread.runs = 3));
        };
        measured
            .summary
            .iter_mut()
            .filter(|it| it.name.starts_with("ideal"))
            .for_each(spread);

        assert_eq!(comparison.row[0].ratio(TunnelKind::Ideal, &measured), None);
        let other = comparison.row[0].ratio(TunnelKind::WireguardGo, &measured);
        assert_eq!(other, Some(1.5));
    }

    #[test]
    fn what_is_not_asked_is_shown_and_what_is_missing_not_reached() {
        let rows = rows();

        assert_eq!(rows[3], "idle hub RSS, MB 12.3 (4) none none - -");
        assert_eq!(rows[4], "rtt p50, ms none none none - - at most 0.3 NO");
        assert!(rows.contains(&"0 of 3 reached".to_owned()), "{rows:?}");
        assert!(rows.contains(&"with a v1".to_owned()), "{rows:?}");
    }

    #[test]
    fn a_scenario_that_was_not_played_has_no_table() {
        let comparison: Comparison = toml::from_str(COMPARISON).expect("it is right");

        assert!(comparison.table(&BTreeMap::new(), Form::Text).is_none());
    }
}
