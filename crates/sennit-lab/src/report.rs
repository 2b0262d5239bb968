//! What was measured: `results.json` in base units, and a table for humans.
//!
//! In the file bytes are bytes, times are seconds, rates are bytes per second, shares are ratios;
//! goodput is payload at the receiver. `null` means that it was not measured.

mod edges;
mod summary;
mod table;
mod text;

use std::path::Path;
use std::time::Duration;

use sennit_netem::Counters;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::emulator::Strain;
use crate::error::{Doing, Error};
use crate::scenario::{Action, Scenario, Tcp, Traffic, Via};
use crate::selfcheck::Check;
use crate::traffic::{BulkFigures, Figures};
use crate::tunnel::Usage;
use sennit_load::Bins;

pub use summary::{Figure, Spread, StepSummary, TrafficSummary};
pub(crate) use table::Table;

/// The roles of daemons.
const HUB: &str = "hub";
const EDGE: &str = "edge";

/// The version of the file's shape.
const SCHEMA: &str = "sennit.lab/2";

/// Everything about a scenario that was played, once or several times.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    schema: &'static str,
    scenario: String,
    about: String,
    /// The scenario file as it was.
    text: String,
    seed: u64,
    started: String,
    machine: Machine,
    sennit: String,
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

/// What it was measured on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    kernel: String,
    cpu: String,
    cores: usize,
    memory_bytes: u64,
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cpu, cores, kernel) = (&self.cpu, self.cores, &self.kernel);
        let gigabytes = self.memory_bytes / 1_000_000_000;
        write!(f, "{cpu}, {cores} cores, {gigabytes} GB, Linux {kernel}")
    }
}

/// What one step gave.
#[derive(Debug, Clone, Default, Serialize)]
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
    /// In order of time.
    pub faults: Vec<FaultResult>,
    /// The emulated links.
    pub links: Vec<LinkResult>,
    /// The hub, then each edge, if the tunnel was used.
    pub daemons: Vec<DaemonResult>,
    /// The daemons' own view at the end: the hub's, then that of each edge.
    pub status: Vec<serde_json::Value>,
    /// How hard it was for the emulator to be exact.
    pub strain: Strain,
    /// Packets lost because the emulator was too slow to read them.
    pub overruns: u64,
}

/// What one traffic gave.
#[derive(Debug, Clone, Serialize)]
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Self>,
}

/// What followed a fault.
#[derive(Debug, Clone, Serialize)]
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
#[derive(Debug, Clone, Serialize)]
pub struct Aftermath {
    /// Median goodput from the fault until the next one or the end.
    pub goodput: f64,
    /// Until it was back at 90 % of its usual goodput for half a second.
    pub recovery_seconds: Option<f64>,
}

/// What went over one link during a step.
#[derive(Debug, Clone, Serialize)]
pub struct LinkResult {
    /// The link's name.
    pub name: String,
    /// From edge to hub.
    pub up: WayResult,
    /// From hub to edge.
    pub down: WayResult,
}

/// One direction of a link during a step.
#[derive(Debug, Clone, Serialize)]
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

/// What a daemon used during a step.
#[derive(Debug, Clone, Serialize)]
pub struct DaemonResult {
    role: &'static str,
    cpu_seconds: f64,
    /// CPU time for 10⁹ bytes of bulk goodput.
    cpu_seconds_per_gigabyte: Option<f64>,
    /// At the end of the step.
    rss_bytes: u64,
    /// The most during the step.
    rss_peak_bytes: u64,
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
            schema: SCHEMA,
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            text: text.to_owned(),
            seed: scenario.seed,
            started: OffsetDateTime::now_utc()
                .format(&Rfc3339)
                .unwrap_or_default(),
            machine: Machine::here(),
            sennit: sennit.display().to_string(),
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
        let path = directory.join("results.json");
        let text = self.to_json();
        std::fs::write(&path, text).doing(|| format!("write {}", path.display()))
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("results hold only numbers, texts and lists")
    }

    /// All traffic that failed, with its step.
    pub fn failures(&self) -> Vec<String> {
        self.steps.iter().flat_map(StepResult::failures).collect()
    }
}

impl Machine {
    fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            let value = line.and_then(|line| line.split_once(':'));
            value
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = memory
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok());
        Self {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            cpu: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes.unwrap_or(0_u64) * 1024,
        }
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

    /// Adds what hub and edges used between two readings.
    pub(crate) fn add_usage(&mut self, before: &[Usage], after: &[Usage]) {
        let bytes: u64 = self
            .traffic
            .iter()
            .filter_map(TrafficResult::bulk)
            .map(|bulk| bulk.bytes)
            .sum();
        let roles = [HUB].into_iter().chain(std::iter::repeat(EDGE));
        for (role, (before, after)) in roles.zip(before.iter().zip(after)) {
            let cpu_seconds = (after.cpu_seconds - before.cpu_seconds).max(0.0);
            self.daemons.push(DaemonResult {
                role,
                cpu_seconds,
                cpu_seconds_per_gigabyte: (bytes > 0).then(|| cpu_seconds * 1e9 / bytes as f64),
                rss_bytes: after.rss_bytes,
                rss_peak_bytes: after.rss_peak_bytes,
            });
        }
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
        match &self.figures {
            Some(Figures::Tcp(bulk) | Figures::Quic(bulk)) => Some(bulk),
            Some(Figures::Udp(_) | Figures::Packets(_) | Figures::Ping(_) | Figures::Idle)
            | None => None,
        }
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
        Traffic::Idle(_) => "nothing".into(),
        Traffic::Ping(ping) => format!("ping every {} ms", ping.interval_ms),
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
