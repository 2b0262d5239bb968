//! What was measured: `results.json` in base units, and a table for humans.
//!
//! In the file bytes are bytes, times are seconds, rates are bytes per second, shares are ratios;
//! goodput is payload at the receiver. `null` means that it was not measured.

pub(crate) mod collection;
pub(crate) mod compared;
mod daemons;
mod edges;
mod exact;
mod fec;
mod noted;
pub(crate) mod page;
mod source;
mod summary;
mod table;
mod text;

use std::path::Path;
use std::time::Duration;

use sennit_netem::Counters;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::draft;
use crate::emulator::Strain;
use crate::error::{Doing, Error};
use crate::programs;
use crate::scenario::{Action, Scenario, Tcp, Traffic, Via};
use crate::selfcheck::Check;
use crate::traffic::{BulkFigures, Figures};
use crate::tunnel::Operated;
use sennit_load::Bins;

pub use daemons::DaemonResult;
use daemons::{EDGE, HUB};
pub(crate) use exact::{Exactness, all_exact, inexactness};
pub use fec::FecResult;
pub use noted::note;
pub(crate) use sennit_load::Machine;
pub(crate) use source::made;
pub use summary::{Spread, StepSummary, TrafficSummary};

pub use crate::figure::Figure;
pub(crate) use table::Table;

/// The version of the file's shape.
const SCHEMA: &str = "sennit.lab/2";

/// Everything about a scenario that was played, once or several times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    schema: String,
    scenario: String,
    about: String,
    /// The scenario file as it was.
    text: String,
    seed: u64,
    started: String,
    machine: Machine,
    sennit: String,
    /// What that program calls itself, and the hash of its file; empty in older files.
    #[serde(default)]
    build: String,
    /// Of the source that the lab was started in; empty if that is none, as in older files.
    #[serde(default)]
    commit: String,
    /// What was typed to play it.
    #[serde(default)]
    command: String,
    /// What the other tunnels call themselves.
    rivals: Vec<String>,
    /// What the links were before any traffic.
    pub self_check: Vec<Check>,
    /// How often all steps were played.
    pub runs: usize,
    /// What the runs come to, one for each step.
    pub summary: Vec<StepSummary>,
    /// Every step of the first run, then of the second.
    pub steps: Vec<StepResult>,
}

/// What one step gave.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StepResult {
    /// As in the scenario.
    pub name: String,
    /// In which run, from 1.
    pub run: usize,
    /// Why it was given up, if it was.
    pub failure: Option<String>,
    /// Wall time.
    pub seconds: f64,
    /// In the order of the scenario.
    pub traffic: Vec<TrafficResult>,
    /// What all traffic comes to; empty in older files.
    #[serde(default)]
    pub together: Together,
    /// In order of time.
    pub faults: Vec<FaultResult>,
    /// The emulated links.
    pub links: Vec<LinkResult>,
    /// The hub, then each edge, if the tunnel was used.
    pub daemons: Vec<DaemonResult>,
    /// The daemons' own view at the end: the hub's, then that of each edge.
    pub status: Vec<serde_json::Value>,
    /// What error correction did meanwhile, by the counters of both ends; empty in older files.
    #[serde(default)]
    pub fec: Vec<FecResult>,
    /// What came of operating the daemons; empty in older files.
    #[serde(default)]
    pub operated: Operated,
    /// How hard it was for the emulator to be exact.
    pub strain: Strain,
    /// Packets lost because the emulator was too slow to read them.
    pub overruns: u64,
    /// Processor time that the hypervisor gave to others meanwhile; 0 in older files.
    #[serde(default)]
    pub stolen_seconds: f64,
}

/// What all traffic of a step comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Together {
    /// Payload bytes per second of what goes the ways of the bulk traffic, over the time in which
    /// any of it ran.
    pub goodput: Option<f64>,
    /// Jain's index over the bulk traffics, if they are to contend.
    pub fairness: Option<f64>,
    /// Packet bytes that the links carried against what they could, in the direction of the bulk
    /// traffic and while it ran; of both directions the lesser.
    pub line_use: Option<f64>,
}

/// What one traffic gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrafficResult {
    /// What it was, in a few words.
    pub label: String,
    /// Absent if it failed.
    pub figures: Option<Figures>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Goodput against the frame rate of the links it could use.
    pub line_share: Option<f64>,
    /// The longest time in which almost nothing arrived, since the first fault if there is one
    /// (TCP and QUIC only).
    pub gap_seconds: Option<f64>,
    /// Median goodput before the first fault, or overall (TCP and QUIC only).
    pub usual_goodput: Option<f64>,
    /// If there are several edges: what each of them got, while the rest of this is of all
    /// together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Self>,
}

/// What followed a fault.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultResult {
    /// After the start of the step.
    pub at_seconds: f64,
    /// The link, if it happened to one.
    pub link: Option<String>,
    /// What happened.
    pub action: Action,
    /// What it meant for each traffic; empty for those that are not bulk.
    pub traffic: Vec<Option<Aftermath>>,
    /// Until the link carried half of its usual load again.
    pub link_recovery_seconds: Option<f64>,
}

/// What a fault meant for one bulk traffic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Aftermath {
    /// Median goodput from the fault until the next one or the end.
    pub goodput: f64,
    /// Until it was back at 90 % of its usual goodput for half a second.
    pub recovery_seconds: Option<f64>,
}

/// What went over one link during a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkResult {
    /// The link's name.
    pub name: String,
    /// From edge to hub.
    pub up: WayResult,
    /// From hub to edge.
    pub down: WayResult,
}

/// One direction of a link during a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WayResult {
    offered_packets: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    dropped_queue: u64,
    dropped_loss: u64,
    dropped_outage: u64,
    dropped_size: u64,
    queue_max_bytes: usize,
    /// Packet bytes per second.
    bins: Bins,
}

impl Results {
    pub(crate) fn new(
        scenario: &Scenario,
        text: &str,
        sennit: &Path,
        rivals: Vec<String>,
        checks: Vec<Check>,
    ) -> Self {
        Self {
            schema: SCHEMA.into(),
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            text: text.to_owned(),
            seed: scenario.seed,
            started: OffsetDateTime::now_utc()
                .format(&Rfc3339)
                .unwrap_or_default(),
            machine: Machine::here(),
            sennit: programs::shown(sennit),
            build: programs::build_of(sennit),
            commit: source::commit(),
            command: programs::command(),
            rivals,
            self_check: checks,
            runs: 0,
            summary: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Adds a run of all steps.
    pub(crate) fn add_run(&mut self, steps: Vec<StepResult>) {
        self.runs += 1;
        let (run, count) = (self.runs, steps.len());
        let numbered = steps.into_iter().map(|step| StepResult { run, ..step });
        self.steps.extend(numbered);
        self.summary = StepSummary::of_runs(&self.steps, count);
    }

    /// Writes `results.json` into `directory`.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        draft::write(&directory.join("results.json"), &self.to_json())
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("results hold only numbers, texts and lists")
    }

    /// Reads what [`Self::write`] wrote.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let reading = || format!("read {}", path.display());
        let text = std::fs::read_to_string(path).doing(reading)?;
        let wrong = |reason| Error::Scenario(format!("{}: {reason}", path.display()));
        Self::from_json(&text).map_err(wrong)
    }

    /// Reads the text of such a file; what is wrong with it, in words.
    pub fn from_json(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head =
            serde_json::from_str(text).map_err(|error| format!("no results: {error}"))?;
        if head.schema != SCHEMA {
            let schema = head.schema;
            return Err(format!(
                "its form is {schema}, and this program reads {SCHEMA}"
            ));
        }
        serde_json::from_str(text).map_err(|error| format!("no results of {SCHEMA}: {error}"))
    }

    /// What was played.
    pub(crate) fn scenario(&self) -> &str {
        &self.scenario
    }

    /// The steps of the first run.
    pub(crate) fn steps_of_first_run(&self) -> impl Iterator<Item = &StepResult> {
        self.steps.iter().filter(|step| step.run <= 1)
    }

    /// All traffic that failed, with its step.
    pub fn failures(&self) -> Vec<String> {
        self.steps.iter().flat_map(StepResult::failures).collect()
    }
}

impl StepResult {
    pub(crate) fn new(
        name: &str,
        took: Duration,
        traffic: Vec<TrafficResult>,
        faults: Vec<FaultResult>,
        links: Vec<LinkResult>,
    ) -> Self {
        let (name, seconds) = (name.to_owned(), took.as_secs_f64());
        Self {
            name,
            seconds,
            traffic,
            faults,
            links,
            ..Self::default()
        }
    }

    pub(crate) fn given_up(name: &str, error: &Error) -> Self {
        let (name, failure) = (name.to_owned(), Some(error.to_string()));
        Self {
            name,
            failure,
            ..Self::default()
        }
    }

    /// Adds what the daemons say after it, and what their counters say of it.
    pub(crate) fn add_status(&mut self, before: &[serde_json::Value], now: Vec<serde_json::Value>) {
        self.fec = FecResult::between(before, &now);
        self.status = now;
    }

    /// Its name, and which run it was if not the first.
    fn title(&self) -> String {
        match self.run {
            0 | 1 => self.name.clone(),
            run => format!("{}, run {run}", self.name),
        }
    }

    /// What of this step failed: all of it, or some traffic.
    pub fn failures(&self) -> Vec<String> {
        let failed = |traffic: &TrafficResult| {
            let failure = traffic.failure.as_ref()?;
            Some(format!("{}: {}: {failure}", self.title(), traffic.label))
        };
        let whole = self
            .failure
            .iter()
            .map(|failure| format!("{}: {failure}", self.title()));
        whole
            .chain(self.traffic.iter().filter_map(failed))
            .collect()
    }
}

impl TrafficResult {
    pub(crate) fn new(
        traffic: &Traffic,
        outcome: Result<Figures, Error>,
        line_rate: Option<f64>,
        first_fault: Option<Duration>,
    ) -> Self {
        let label = label(traffic);
        let figures = match outcome {
            Ok(figures) => figures,
            Err(error) => return Self::failed(label, &error),
        };
        let goodput = figures.goodput();
        let mut result = Self {
            label,
            failure: None,
            line_share: goodput.zip(line_rate).map(|(goodput, line)| goodput / line),
            gap_seconds: None,
            usual_goodput: None,
            figures: Some(figures),
            edges: Vec::new(),
        };
        if let Some(bulk) = result.bulk() {
            let fault = first_fault.map(|at| at.saturating_sub(bulk.start()));
            let usual = bulk.bins.usual(fault);
            let gap = bulk.bins.longest_gap(fault.unwrap_or_default(), usual);
            (result.usual_goodput, result.gap_seconds) = (Some(usual), Some(gap.as_secs_f64()));
        }
        result
    }

    fn failed(label: String, error: &Error) -> Self {
        Self {
            label,
            figures: None,
            failure: Some(error.to_string()),
            line_share: None,
            gap_seconds: None,
            usual_goodput: None,
            edges: Vec::new(),
        }
    }

    /// The figures of TCP or QUIC.
    pub(crate) fn bulk(&self) -> Option<&BulkFigures> {
        self.figures.as_ref()?.bulk()
    }
}

/// What a traffic is, in a few words.
fn label(traffic: &Traffic) -> String {
    let what = kind_label(traffic);
    match traffic.edge() {
        Some(edge) => format!("{what}, edge {edge}"),
        None => what,
    }
}

fn kind_label(traffic: &Traffic) -> String {
    match traffic {
        Traffic::Tcp(Tcp {
            streams,
            direction,
            via,
            ..
        }) => {
            let protocol = if *via == Via::Mptcp { "MPTCP" } else { "TCP" };
            format!("{protocol} x{streams} {direction}")
        }
        Traffic::Quic(quic) => format!("QUIC {}", quic.direction),
        Traffic::Udp(udp) => format!("UDP {} Mbit/s {}", udp.rate_mbit, udp.direction),
        Traffic::Packets(packets) => {
            format!("UDP of {} bytes {}", packets.bytes, packets.direction)
        }
        Traffic::Ask(ask) => format!("{} requests/s, {} viewers", ask.rate, ask.viewers),
        Traffic::Program(program) => program.command.join(" "),
        Traffic::Test(test) => format!("sennit test {}", test.arguments.join(" ")),
        Traffic::Idle(_) => "nothing".into(),
        Traffic::Flood(flood) if flood.unread => "flood of a port that nobody reads".into(),
        Traffic::Flood(_) => "flood of first packets".into(),
        Traffic::Ping(ping) => format!("ping every {} ms", ping.interval_ms),
        Traffic::Fetch(fetch) => {
            let (kilobytes, every) = (fetch.bytes / 1000, fetch.every_s.0.as_secs_f64());
            format!("fetch of {kilobytes} KB every {every} s")
        }
    }
}

impl LinkResult {
    pub(crate) fn new(name: String, counters: &[Counters; 2], bins: [Bins; 2]) -> Self {
        let [up, down] = bins;
        Self {
            name,
            up: WayResult::new(&counters[0], up),
            down: WayResult::new(&counters[1], down),
        }
    }
}

impl WayResult {
    fn new(counters: &Counters, bins: Bins) -> Self {
        Self {
            offered_packets: counters.offered,
            delivered_packets: counters.delivered,
            delivered_bytes: counters.delivered_bytes,
            dropped_queue: counters.dropped_queue,
            dropped_loss: counters.dropped_loss,
            dropped_outage: counters.dropped_outage,
            dropped_size: counters.dropped_size,
            queue_max_bytes: counters.queue_max,
            bins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selfcheck::Property;
    use crate::traffic::PingFigures;

    const SCENARIO: &str = "
        name = \"test\"
        [[link]]
        name = \"a\"
        spec = \"30/10\"
        [[step]]
        name = \"one\"
        seconds = 2
        [[step.traffic]]
        kind = \"ping\"
        via = \"link:a\"
    ";

    fn results() -> Results {
        let scenario = Scenario::parse(SCENARIO).expect("it is right");
        let check = Check {
            link: "a".into(),
            direction: sennit_netem::Direction::Up,
            property: Property::Delay,
            asked: 0.01,
            measured: 0.010_123,
            tolerance: 3e-4,
        };
        let bins = || Bins::new(sennit_load::BIN, vec![1.5, 2.0]);
        let bulk = BulkFigures {
            bytes: 1000,
            seconds: 2.0,
            goodput: 500.0,
            retransmits: None,
            start_seconds: 0.1,
            bins: bins(),
        };
        let kinds = [
            Figures::Tcp(bulk.clone()),
            Figures::Quic(bulk),
            Figures::Ping(PingFigures::default()),
            Figures::Idle,
        ];
        let of = |figures| TrafficResult {
            label: "traffic".into(),
            figures: Some(figures),
            failure: None,
            line_share: Some(0.9),
            gap_seconds: None,
            usual_goodput: Some(1.0),
            edges: Vec::new(),
        };
        let fault = FaultResult {
            at_seconds: 1.0,
            link: Some("a".into()),
            action: Action::CarrierDown,
            traffic: vec![None],
            link_recovery_seconds: Some(0.2),
        };
        let link = LinkResult::new("a".into(), &[Counters::default(); 2], [bins(), bins()]);
        let step = StepResult {
            traffic: kinds.into_iter().map(of).collect(),
            faults: vec![fault],
            links: vec![link],
            daemons: vec![DaemonResult {
                role: HUB.into(),
                cpu_seconds: 0.1,
                cpu_seconds_per_gigabyte: None,
                rss_bytes: 1,
                rss_peak_bytes: 2,
            }],
            status: vec![serde_json::json!({"state": "up"})],
            ..StepResult::default()
        };
        let mut results = Results::new(
            &scenario,
            SCENARIO,
            Path::new("/sennit"),
            vec!["wireguard-go 1".into()],
            vec![check],
        );
        results.add_run(vec![step]);
        results
    }

    #[test]
    fn what_is_written_can_be_read_back_whole() {
        let written = results().to_json();
        let read = Results::from_json(&written).expect("it was just written");
        assert_eq!(read.to_json(), written);
    }

    #[test]
    fn results_of_another_form_are_told_from_no_results() {
        let old = results().to_json().replace(SCHEMA, "sennit.lab/1");
        let error = Results::from_json(&old).expect_err("it is another form");
        assert_eq!(
            error,
            "its form is sennit.lab/1, and this program reads sennit.lab/2"
        );
        let error = Results::from_json("{}").expect_err("it is nothing");
        assert!(error.starts_with("no results: missing field"), "{error}");
    }
}
