//! The results as a person reads them: a table, and below it what does not fit into one.

use std::fmt::Write as _;

use super::table::Table;
use super::{Aftermath, FaultResult, Results, StepResult, TrafficResult};
use crate::link::Direction;
use crate::selfcheck::{Check, Property};
use crate::traffic::Figures;

/// A step whose packets were later than this is marked.
const TOLERABLE_LATENESS: f64 = 5e-3;

/// So many faults of a step have a line each.
const FAULTS_DESCRIBED: usize = 4;

/// How to read the table.
const LEGEND: &str = "\
Mbit/s: payload at the receiver. of line: against the frame rate of the links it could use.
gap: longest time below 5 % of the usual rate, since the first fault if there is one.
cpu s/GB: of hub and edge together.
";

impl Results {
    /// The table for humans, and below it what does not fit into one.
    pub fn table(&self) -> String {
        let mut table = Table::new([
            "step", "traffic", "Mbit/s", "of line", "gap", "rtt p50", "p99", "lost", "cpu s/GB",
        ]);
        for step in &self.steps {
            step.add_rows(&mut table);
        }
        let mut text = format!("\n{table}\n");
        for step in &self.steps {
            step.describe(&mut text);
        }
        self.describe_memory(&mut text);
        self.describe_links(&mut text);
        text
    }

    /// At the end of the last step with a tunnel.
    fn describe_memory(&self, text: &mut String) {
        let last = self
            .steps
            .iter()
            .rev()
            .find(|step| !step.daemons.is_empty());
        for daemon in last.iter().flat_map(|step| &step.daemons) {
            let megabytes = |bytes: u64| bytes as f64 / 1e6;
            let (now, peak) = (
                megabytes(daemon.rss_bytes),
                megabytes(daemon.rss_peak_bytes),
            );
            let role = daemon.role;
            let _ = writeln!(
                text,
                "memory of the {role}: {now:.1} MB, at most {peak:.1} MB"
            );
        }
    }

    /// What the links were measured to be, in one line each.
    fn describe_links(&self, text: &mut String) {
        // Every emulated link has a delay in both directions.
        let each =
            |check: &&Check| check.property == Property::Delay && check.direction == Direction::Up;
        for Check { link, .. } in self.self_check.iter().filter(each) {
            let _ = writeln!(
                text,
                "link {link}, measured before: {}",
                self.measured(link)
            );
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

impl StepResult {
    fn add_rows(&self, table: &mut Table) {
        let cpu: Option<f64> = self
            .daemons
            .iter()
            .map(|daemon| daemon.cpu_seconds_per_gigabyte)
            .sum();
        let cpu = cpu.filter(|_| !self.daemons.is_empty());
        for (index, traffic) in self.traffic.iter().enumerate() {
            let name = if index == 0 { self.name.as_str() } else { "" };
            let cpu = cpu.filter(|_| traffic.bulk().is_some());
            table.add(traffic.row(name, cpu));
        }
    }

    fn describe(&self, text: &mut String) {
        for failure in self.failures() {
            let _ = writeln!(text, "FAILED: {failure}");
        }
        match self.faults.len() {
            ..=FAULTS_DESCRIBED => self
                .faults
                .iter()
                .for_each(|fault| fault.describe(self, text)),
            many => {
                let _ = writeln!(text, "{}: {many} faults, see results.json", self.name);
            }
        }
        if self.overruns > 0 || self.strain.late_max_seconds > TOLERABLE_LATENESS {
            let late = self.strain.late_max_seconds * 1e3;
            let _ = writeln!(
                text,
                "{}: NOT EXACT, this machine was too busy: packets left a link up to {late:.1} ms \
                 late, {} were dropped before it",
                self.name, self.overruns
            );
        }
    }
}

impl TrafficResult {
    fn row(&self, step: &str, cpu: Option<f64>) -> [String; 9] {
        let none = || "-".to_owned();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let millis = |time: Option<f64>| time.map_or_else(none, |t| format!("{:.1} ms", t * 1e3));
        let (mut rate, mut p50, mut p99, mut lost) = (none(), none(), none(), none());
        match &self.figures {
            Some(Figures::Tcp(bulk) | Figures::Quic(bulk)) => {
                rate = format!("{:.1}", bulk.goodput * 8e-6);
            }
            Some(Figures::Udp(udp)) => {
                rate = format!("{:.1}", udp.goodput * 8e-6);
                lost = format!("{} of {}", udp.lost, udp.packets);
            }
            Some(Figures::Ping(ping)) => {
                (p50, p99) = (millis(ping.p50_seconds), millis(ping.p99_seconds));
                lost = format!(
                    "{} of {}",
                    ping.sent - ping.received.min(ping.sent),
                    ping.sent
                );
            }
            None => rate = "failed".into(),
        }
        [
            step.to_owned(),
            self.label.clone(),
            rate,
            self.line_share.map_or_else(none, percent),
            self.gap_seconds
                .map_or_else(none, |gap| format!("{gap:.2} s")),
            p50,
            p99,
            lost,
            cpu.map_or_else(none, |cpu| format!("{cpu:.2}")),
        ]
    }
}

impl FaultResult {
    fn describe(&self, step: &StepResult, text: &mut String) {
        let subject = self.link.as_deref().unwrap_or("daemon");
        let (step_name, action, at) = (&step.name, self.action, self.at_seconds);
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
