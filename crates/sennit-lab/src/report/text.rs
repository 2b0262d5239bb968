//! The results as a person reads them: a table, and below it what does not fit into one.

use std::fmt::Write as _;

use sennit_netem::Direction;

use super::{
    Aftermath, DaemonResult, EDGE, FaultResult, Figure, HUB, Results, StepResult, StepSummary,
    Table, TrafficSummary,
};
use crate::selfcheck::{Check, Property};
use crate::traffic::Figures;

/// Faults of a step that have a line each.
const FAULTS_DESCRIBED: usize = 4;

/// Lines of hosts that came or went and are shown.
const LINES_DESCRIBED: usize = 16;

/// Links that have a line each: all that one edge can have.
const LINKS_DESCRIBED: usize = 16;

/// How to read the table.
const LEGEND: &str = "\
Mbit/s: payload at the receiver; /s: packets. of line: against the frame rate of the links it could use.
gap: longest time below 5 % of the usual rate, since the first fault if there is one.
p50, p99: of round trips; of UDP that is timed, how much later it came than the fastest; of fetches (p95), how long they took.
cpu s/GB: of hub and edges together.
";

impl Results {
    /// The table for humans, and below it what does not fit into one.
    pub fn table(&self) -> String {
        let head = [
            "step", "traffic", "Mbit/s", "of line", "gap", "p50", "p99", "lost", "cpu s/GB",
        ];
        let mut table = Table::new(head, 2..9);
        for step in &self.summary {
            step.add_rows(&mut table);
        }
        let mut text = format!("\n{table}\n");
        if self.runs > 1 {
            let _ = writeln!(text, "medians of {} runs", self.runs);
        }
        for rival in &self.rivals {
            let _ = writeln!(text, "with {rival}");
        }
        for step in &self.summary {
            step.describe_edges(&mut text);
            step.describe_whole(&mut text);
        }
        for step in &self.steps {
            step.describe(&mut text);
        }
        for remark in self.remarks() {
            let _ = writeln!(text, "{remark}");
        }
        self.describe_memory(&mut text);
        self.describe_links(&mut text);
        text
    }

    /// At the end of the last step with a tunnel, and over all of them.
    fn describe_memory(&self, text: &mut String) {
        let daemons = |step: &StepResult| !step.daemons.is_empty();
        let Some(last) = self.steps.iter().rposition(daemons) else {
            return;
        };
        for role in [HUB, EDGE] {
            let of_role = |step: &StepResult, bytes: fn(&DaemonResult) -> u64| {
                let daemons = step.daemons.iter().filter(|daemon| daemon.role == role);
                daemons.map(bytes).max()
            };
            let now = of_role(&self.steps[last], |daemon| daemon.rss_bytes);
            let peaks = self.steps.iter();
            let peak = peaks.filter_map(|step| of_role(step, |daemon| daemon.rss_peak_bytes));
            let [now, peak] = [now, peak.max()].map(|bytes| bytes.unwrap_or_default() as f64 / 1e6);
            let which = match self.steps[last].daemons.len() {
                3.. if role == EDGE => "largest edge",
                _ => role,
            };
            let _ = writeln!(
                text,
                "memory of the {which}: {now:.1} MB, at most {peak:.1} MB"
            );
        }
    }

    /// What the links were measured to be, in one line each.
    fn describe_links(&self, text: &mut String) {
        // Every link that is measured has a delay in both directions.
        let each =
            |check: &&Check| check.property == Property::Delay && check.direction == Direction::Up;
        let links: Vec<_> = self.self_check.iter().filter(each).collect();
        for Check { link, .. } in links.iter().take(LINKS_DESCRIBED) {
            let _ = writeln!(
                text,
                "link {link}, measured before: {}",
                self.measured(link)
            );
        }
        if links.len() > LINKS_DESCRIBED {
            let more = links.len() - LINKS_DESCRIBED;
            let _ = writeln!(text, "and {more} more links, see results.json");
        }
        text.push_str(LEGEND);
    }

    fn measured(&self, link: &str) -> String {
        let properties = [Property::Rate, Property::Delay, Property::Loss];
        let both_ways = |property: Property| {
            let of_link = self.self_check.iter().filter(|check| check.link == link);
            let found: Vec<_> = of_link.filter(|check| check.property == property).collect();
            let [up, down] = found[..] else { return None };
            let (scale, unit) = property.scale();
            Some(format!(
                "{:.1} / {:.1} {unit}",
                up.measured * scale,
                down.measured * scale
            ))
        };
        let figures: Vec<_> = properties.into_iter().filter_map(both_ways).collect();
        format!("{} lost (up / down)", figures.join(", "))
    }
}

impl StepSummary {
    fn add_rows(&self, table: &mut Table<9>) {
        if self.traffic.is_empty() {
            let mut row = [""; 9].map(str::to_owned);
            (row[0], row[2]) = (self.name.clone(), "failed".into());
            table.add(row);
        }
        for (index, traffic) in self.traffic.iter().enumerate() {
            let name = if index == 0 { self.name.as_str() } else { "" };
            table.add(traffic.row(name));
        }
    }
}

impl StepSummary {
    /// How the edges share, if there are several.
    fn describe_edges(&self, text: &mut String) {
        for traffic in &self.traffic {
            let median = |figure: Figure| Some(figure.text(traffic.figures.get(&figure)?.median));
            let goodput = [
                Figure::LeastGoodput,
                Figure::MedianGoodput,
                Figure::MostGoodput,
            ];
            let [Some(least), Some(middle), Some(most)] = goodput.map(median) else {
                continue;
            };
            let (step, label) = (&self.name, &traffic.label);
            let _ = write!(
                text,
                "{step}: {label}: {least} / {middle} / {most} Mbit/s at an edge (least / median / most)"
            );
            if let Some(share) = median(Figure::LeastLineShare) {
                let _ = write!(text, ", the least is {share} % of its line");
            }
            text.push('\n');
        }
    }
}

impl StepSummary {
    /// What no single traffic has.
    fn describe_whole(&self, text: &mut String) {
        let median = |figure: Figure| Some(figure.text(self.figure(figure)?.median));
        let step = &self.name;
        if let Some(fairness) = median(Figure::Fairness) {
            let _ = writeln!(text, "{step}: fairness {fairness} (Jain's index)");
        }
        for traffic in &self.traffic {
            let late = traffic.figures.get(&Figure::Late);
            if let Some(late) = late.filter(|late| late.max > 0.0) {
                let (label, late) = (&traffic.label, Figure::Late.text(late.median));
                let _ = writeln!(text, "{step}: {label}: {late} later than 60 ms");
            }
        }
        for (class, figures) in &self.fec {
            let median = |figure: Figure| Some(figure.text(figures.get(&figure)?.median));
            let fec = [
                Figure::FecRepairs,
                Figure::FecOverhead,
                Figure::FecRecovered,
                Figure::FecResidualLoss,
            ];
            let is_idle = figures
                .get(&Figure::FecRepairs)
                .is_none_or(|it| it.max == 0.0);
            if let (
                [
                    Some(repairs),
                    Some(overhead),
                    Some(recovered),
                    Some(residual),
                ],
                false,
            ) = (fec.map(median), is_idle)
            {
                let _ = writeln!(
                    text,
                    "{step}: class {class}: {repairs} repairs, {overhead} % of packets; {recovered} \
                     recovered, {residual} % not"
                );
            }
        }
    }
}

impl TrafficSummary {
    fn row(&self, step: &str) -> [String; 9] {
        let median = |figure: Figure| Some(figure.text(self.figures.get(&figure)?.median));
        let cell = |figure: Figure, unit: &str| {
            median(figure).map_or_else(|| "-".to_owned(), |text| text + unit)
        };
        let rate = match self.figures.is_empty() {
            true => "failed".into(),
            false => match median(Figure::PacketsPerSecond) {
                Some(packets) => packets + " /s",
                None => cell(Figure::Goodput, ""),
            },
        };
        let lost = median(Figure::Lost).zip(median(Figure::Sent));
        let times = |trip: Figure, late: Figure, fetch: Figure| {
            let ms = [trip, late].into_iter().find_map(median);
            let known = ms.map(|ms| ms + " ms");
            known.unwrap_or_else(|| cell(fetch, " s"))
        };
        [
            step.to_owned(),
            self.label.clone(),
            rate,
            cell(Figure::LineShare, " %"),
            cell(Figure::GapSeconds, " s"),
            times(
                Figure::P50Seconds,
                Figure::LateP50Seconds,
                Figure::FetchP50Seconds,
            ),
            times(
                Figure::P99Seconds,
                Figure::LateP99Seconds,
                Figure::FetchP95Seconds,
            ),
            lost.map_or_else(
                || "-".to_owned(),
                |(lost, sent)| format!("{lost} of {sent}"),
            ),
            cell(Figure::CpuSecondsPerGigabyte, ""),
        ]
    }
}

impl StepResult {
    fn describe(&self, text: &mut String) {
        for failure in self.failures() {
            let _ = writeln!(text, "FAILED: {failure}");
        }
        for traffic in &self.traffic {
            if let Some(Figures::Packets(packets)) = &traffic.figures
                && packets.at_least
            {
                let (step, label) = (self.title(), &traffic.label);
                let _ = writeln!(
                    text,
                    "{step}: {label}: at least {:.0} packets/s: the sender could offer no more, or the time was up",
                    packets.per_second
                );
            }
        }
        for traffic in &self.traffic {
            if let Some(Figures::Udp(udp)) = &traffic.figures
                && udp.unread > 0
            {
                let (step, label, unread) = (self.title(), &traffic.label, udp.unread);
                let _ = writeln!(
                    text,
                    "{step}: {label}: {unread} packets arrived and are not among the lost: iperf3 was too late to read them"
                );
            }
        }
        let changed = self.operated.leaks.iter().flat_map(|leaks| &leaks.changed);
        let left: Vec<_> = changed.chain(self.operated.left.iter().flatten()).collect();
        for line in left.iter().take(LINES_DESCRIBED) {
            let _ = writeln!(text, "{}: left behind: {line}", self.title());
        }
        if left.len() > LINES_DESCRIBED {
            let more = left.len() - LINES_DESCRIBED;
            let _ = writeln!(
                text,
                "{}: and {more} more lines, see results.json",
                self.title()
            );
        }
        match self.faults.len() {
            ..=FAULTS_DESCRIBED => self
                .faults
                .iter()
                .for_each(|fault| fault.describe(self, text)),
            many => {
                let _ = writeln!(text, "{}: {many} faults, see results.json", self.title());
            }
        }
    }
}

impl FaultResult {
    fn describe(&self, step: &StepResult, text: &mut String) {
        let subject = self.link.as_deref().unwrap_or("daemon");
        let (step_name, action, at) = (step.title(), self.action, self.at_seconds);
        let _ = write!(text, "{step_name}: {action:?} of {subject} at {at} s");
        for (traffic, aftermath) in step.traffic.iter().zip(&self.traffic) {
            let Some(Aftermath {
                goodput,
                recovery_seconds,
            }) = aftermath
            else {
                continue;
            };
            let _ = write!(
                text,
                "; then {} at {:.1} Mbit/s",
                traffic.label,
                goodput * 8e-6
            );
            if let Some(seconds) = recovery_seconds.filter(|_| self.action.repairs()) {
                let _ = write!(text, ", at 90 % of its usual after {seconds:.1} s");
            }
        }
        if let Some(seconds) = self.link_recovery_seconds.filter(|_| self.action.repairs()) {
            let _ = write!(text, "; link in use again after {seconds:.1} s");
        }
        text.push('\n');
    }
}
