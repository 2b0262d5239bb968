//! The traffic of a step: real programs and sockets of the kernel, measured at the receiver.
//!
//! Bulk TCP and UDP are `iperf3`, latency is `ping`, both of the distribution; bulk QUIC is
//! `quinn`. [`packets`] looks for the most small packets per second, [`stream`] times the packets
//! of a constant rate, [`fetch`] whole transfers, and [`loadtest`] is `sennit test`. The iperf3 of
//! Debian knows no MPTCP and no bins below 0.1 s, so [`bulk`] is a sender and a receiver of our
//! own: for MPTCP, for TCP while things break, and for that of several edges, because so many
//! programs start one after the other.

mod ask;
mod bulk;
mod fetch;
mod flood;
mod iperf;
mod loadtest;
mod packets;
mod ping;
mod program;
mod quic;
mod stream;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sennit_load::{BIN, Bins, FINE_BIN, Received, TimeFigures, quantile};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error};
use crate::figure::Figure;
use crate::host::{Host, Role, Running};
use crate::lab::Site;
use crate::plan::{self, Dual};
use crate::scenario::{Step, Traffic, Via};

/// How much longer than asked a program may take: connecting and ending through a cut link.
const GRACE: Duration = Duration::from_secs(30);

/// The first of the ports for traffic that does not ask for one.
const PORT: u16 = 5201;

/// What one traffic of a step did.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Figures {
    /// Bulk TCP or MPTCP.
    Tcp(BulkFigures),
    /// Bulk QUIC.
    Quic(BulkFigures),
    /// UDP at a constant rate.
    Udp(UdpFigures),
    /// UDP packets per second.
    Packets(PacketFigures),
    /// ICMP echo.
    Ping(PingFigures),
    /// The same amount now and then.
    Fetch(FetchFigures),
    /// Requests to a daemon.
    Ask(AskFigures),
    /// What a program printed, `sennit test` too.
    Program(BTreeMap<Figure, f64>),
    /// Nothing.
    Idle,
    /// First packets of clients that do not exist.
    Flood(FloodFigures),
}

impl Figures {
    /// Payload bytes per second, of those that carry data.
    pub(crate) fn goodput(&self) -> Option<f64> {
        match self {
            Self::Tcp(bulk) | Self::Quic(bulk) => Some(bulk.goodput),
            Self::Udp(udp) => Some(udp.goodput),
            Self::Fetch(fetch) => Some(fetch.goodput),
            Self::Packets(_)
            | Self::Ping(_)
            | Self::Ask(_)
            | Self::Program(_)
            | Self::Idle
            | Self::Flood(_) => None,
        }
    }

    /// Those of TCP or QUIC.
    pub(crate) fn bulk(&self) -> Option<&BulkFigures> {
        match self {
            Self::Tcp(bulk) | Self::Quic(bulk) => Some(bulk),
            Self::Udp(_)
            | Self::Packets(_)
            | Self::Ping(_)
            | Self::Fetch(_)
            | Self::Ask(_)
            | Self::Program(_)
            | Self::Idle
            | Self::Flood(_) => None,
        }
    }

    /// What arrived when, of those that carry data.
    pub(crate) fn bins(&self) -> Option<&Bins> {
        match self {
            Self::Udp(udp) => udp.bins.as_ref(),
            other => other.bulk().map(|bulk| &bulk.bins),
        }
    }
}

/// Bulk data, as its receiver saw it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BulkFigures {
    /// Payload bytes received.
    pub bytes: u64,
    /// Time from the start of the test to its end.
    pub seconds: f64,
    /// Payload bytes per second over all of that time.
    pub goodput: f64,
    /// Segments sent again (TCP) or packets declared lost (QUIC), where the tool tells.
    pub retransmits: Option<u64>,
    /// When the first bin began, after the start of the step; exact to about 0.1 s with iperf3.
    pub start_seconds: f64,
    /// Payload bytes per second.
    pub bins: Bins,
}

impl BulkFigures {
    /// What a receiver of ours saw within the time of the traffic.
    fn new(received: &Received, context: &Context<'_>) -> Self {
        let bulk = received.within(context.span());
        Self {
            bytes: bulk.bytes,
            seconds: bulk.seconds,
            goodput: bulk.goodput,
            retransmits: None,
            start_seconds: (received.start() - context.start).as_secs_f64(),
            bins: bulk.bins,
        }
    }

    /// When the first bin began, after the start of the step.
    pub(crate) fn start(&self) -> Duration {
        Duration::try_from_secs_f64(self.start_seconds).unwrap_or_default()
    }
}

/// UDP, as its receiver saw it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UdpFigures {
    /// Payload bytes per second received.
    pub goodput: f64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Packets that arrived, and that iperf3 did not read before its socket was full. They are
    /// among `lost` where other sockets of the host are filled with UDP as well, because the kernel
    /// counts for all of them together, and in older files.
    #[serde(default)]
    pub unread: u64,
    /// RFC 3550 §6.4.1; where each packet was timed, the mean of RFC 3393.
    pub jitter_seconds: f64,
    /// Payload bytes per second; absent in older files.
    #[serde(default)]
    pub bins: Option<Bins>,
    /// How much longer than the fastest packets were under way, where each was timed.
    #[serde(default)]
    pub lateness: Option<TimeFigures>,
    /// Packets of which that is more than 60 ms.
    #[serde(default)]
    pub late: Option<u64>,
}

/// The most UDP packets per second of which almost none was lost.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PacketFigures {
    /// Packets that arrived.
    pub per_second: f64,
    /// Packets sent at that rate.
    pub sent: u64,
    /// Packets of them that did not arrive.
    pub lost: u64,
    /// How many times a rate was tried.
    pub attempts: u32,
    /// More may pass: the sender could not offer more, or the time was up.
    pub at_least: bool,
}

/// The same amount over and over, each time over a TCP connection of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FetchFigures {
    /// How often it was begun.
    pub tried: u64,
    /// How often all of it came.
    pub fetched: u64,
    /// Payload bytes per second of those that came, over all of the time.
    pub goodput: f64,
    /// Half of them took no longer, from when they were due to the last byte.
    pub p50_seconds: Option<f64>,
    /// 95 % of them took no longer.
    pub p95_seconds: Option<f64>,
    /// The slowest.
    pub max_seconds: Option<f64>,
    /// Each in turn, `null` for one that failed.
    pub times_seconds: Vec<Option<f64>>,
    /// How long each had waited that was due and not begun when the time was up; empty in older
    /// files.
    #[serde(default)]
    pub waiting_seconds: Vec<f64>,
}

impl FetchFigures {
    /// With the quantiles of its times. Who waited at the end would have taken longer still, and
    /// counts if it had waited for longer than half of the others took: of what was just due nobody
    /// knows how long it takes.
    pub(crate) fn with_quantiles(self) -> Self {
        let mut times: Vec<f64> = self.times_seconds.iter().flatten().copied().collect();
        let usual = quantile(&times, 0.5).unwrap_or(0.0);
        times.extend(self.waiting_seconds.iter().filter(|it| **it > usual));
        Self {
            p50_seconds: quantile(&times, 0.5),
            p95_seconds: quantile(&times, 0.95),
            max_seconds: quantile(&times, 1.0),
            ..self
        }
    }
}

/// First packets of clients that do not exist.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FloodFigures {
    /// Packets that left.
    pub sent: u64,
    /// Packets that left, each second.
    pub per_second: f64,
}

/// ICMP echo.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PingFigures {
    /// Requests sent.
    pub sent: u64,
    /// Requests that were answered.
    pub received: u64,
    /// Requests that were answered more than once.
    pub duplicates: u64,
    /// The longest run of unanswered requests, times the interval.
    pub gap_seconds: f64,
    /// The longest time without an answer, from when the first could have come to when the last
    /// could; 0 in older files.
    #[serde(default)]
    pub silence_seconds: f64,
    /// Round-trip times.
    pub p50_seconds: Option<f64>,
    /// 95 % of the answers were faster.
    pub p95_seconds: Option<f64>,
    /// 99 % of the answers were faster.
    pub p99_seconds: Option<f64>,
    /// The slowest answer.
    pub max_seconds: Option<f64>,
    /// From one request to the next; 0 in older files.
    #[serde(default)]
    pub interval_seconds: f64,
    /// The round trip of each request in turn, `null` for one without an answer.
    #[serde(default)]
    pub answers_seconds: Vec<Option<f64>>,
}

/// What those got who asked a daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AskFigures {
    /// Requests that were made.
    pub asked: u64,
    /// Requests that were answered with what they asked for.
    pub answered: u64,
    /// Half of the answers were faster.
    pub p50_seconds: Option<f64>,
    /// 95 % of them were.
    pub p95_seconds: Option<f64>,
    /// 99 % of them were.
    pub p99_seconds: Option<f64>,
    /// The longest that a viewer waited for the next status.
    pub longest_wait_seconds: Option<f64>,
}

/// Where and when traffic runs.
#[derive(Debug, Clone)]
pub(crate) struct Context<'a> {
    /// The near end.
    pub(crate) site: Site<'a>,
    /// All that runs at the same time.
    pub(crate) step: &'a Step,
    /// The start of the step.
    pub(crate) start: Instant,
    /// Seconds of traffic.
    pub(crate) seconds: u32,
    /// How fine the receiver looks.
    pub(crate) bin: Duration,
    /// The server's port if the scenario does not say.
    pub(crate) port: u16,
    /// Path prefix of the files with what the tools print.
    pub(crate) raw: PathBuf,
    pub(crate) ours: Ours<'a>,
}

/// The program that is measured, and where its daemons are asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ours<'a> {
    pub(crate) program: &'a Path,
    /// The control sockets of the tunnel's daemons: the hub's, then that of each edge.
    pub(crate) controls: &'a [PathBuf],
}

impl<'a> Context<'a> {
    /// For the traffic at `index` within its step.
    pub(crate) fn new(
        site: Site<'a>,
        step: &'a Step,
        start: Instant,
        seconds: u32,
        index: usize,
        raw: &Path,
        ours: Ours<'a>,
    ) -> Self {
        let port = PORT + (index * site.lab.edges() + site.index) as u16;
        let bin = if step.fault.is_empty() { BIN } else { FINE_BIN };
        Self {
            site,
            step,
            start,
            seconds,
            bin,
            port,
            raw: raw.to_owned(),
            ours,
        }
    }

    /// One of the hosts.
    fn host(&self, role: Role) -> &'a Host {
        self.site.host(role)
    }

    /// The control socket of a daemon.
    fn control(&self, role: Role) -> Result<&'a Path, Error> {
        let index = if role == Role::Hub {
            0
        } else {
            1 + self.site.index
        };
        let control = self.ours.controls.get(index).map(PathBuf::as_path);
        control.ok_or_else(|| Error::Tunnel("no daemon runs that could be asked".into()))
    }

    /// Whether other edges do the same at the same time.
    fn is_one_of_many(&self) -> bool {
        self.site.lab.edges() > 1
    }

    /// How long traffic lasts.
    fn span(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// When a tool that started now must have ended.
    fn deadline(&self) -> Instant {
        Instant::now() + self.span() + GRACE
    }

    /// The file that keeps what a tool prints.
    fn file(&self, what: &str) -> Result<(PathBuf, File), Error> {
        let mut path = self.raw.clone().into_os_string();
        path.push(format!("-{what}"));
        let path = PathBuf::from(path);
        let file = File::create(&path).doing(|| format!("create {}", path.display()))?;
        Ok((path, file))
    }
}

/// Where a far host is found.
fn far(to: Role, via: &Via) -> Dual {
    match (to, via) {
        (Role::Hub, Via::Tunnel) => plan::INNER_HUB,
        (Role::Hub, Via::Link(_) | Via::Mptcp) => plan::HUB,
        (Role::Server | Role::Edge | Role::Lan, _) => plan::SERVER,
    }
}

/// Runs one traffic to its end.
pub(crate) fn run(traffic: &Traffic, context: &Context<'_>) -> Result<Figures, Error> {
    match traffic {
        Traffic::Tcp(tcp)
            if tcp.via == Via::Mptcp || context.bin < BIN || context.is_one_of_many() =>
        {
            bulk::run(tcp, context).map(Figures::Tcp)
        }
        Traffic::Tcp(tcp) => iperf::tcp(tcp, context).map(Figures::Tcp),
        Traffic::Quic(quic) => quic::run(quic, context).map(Figures::Quic),
        Traffic::Udp(udp) if udp.delays => stream::run(udp, context).map(Figures::Udp),
        Traffic::Udp(udp) => iperf::udp(udp, context).map(Figures::Udp),
        Traffic::Fetch(fetch) => fetch::run(fetch, context).map(Figures::Fetch),
        Traffic::Packets(packets) => packets::run(packets, context).map(Figures::Packets),
        Traffic::Ping(ping) => ping::run(ping, context).map(Figures::Ping),
        Traffic::Ask(ask) => ask::run(ask, context).map(Figures::Ask),
        Traffic::Program(program) => program::run(program, context).map(Figures::Program),
        Traffic::Test(test) => loadtest::run(test, context).map(Figures::Program),
        Traffic::Idle(_) => {
            std::thread::sleep(context.span());
            Ok(Figures::Idle)
        }
        Traffic::Flood(flood) => flood::run(flood, context).map(Figures::Flood),
    }
}

/// Waits for a program to end by itself.
fn wait(program: &mut Running, deadline: Instant) -> Result<(), Error> {
    let line = program.line().to_owned();
    loop {
        let status = program
            .child()
            .try_wait()
            .doing(|| format!("wait for `{line}`"))?;
        if status.is_some() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let output = format!("no result within {} s after its time", GRACE.as_secs());
            return Err(Error::Command {
                command: line,
                output,
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
