//! The figures that runs give, and how tables write them.

use serde::{Deserialize, Serialize};

/// One number that a run gives about one traffic of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Payload bytes per second at the receiver.
    Goodput,
    /// Goodput against the frame rate of the links.
    LineShare,
    /// Goodput of all that goes the ways of a step's bulk traffic, over the time in which any of it
    /// ran.
    SumGoodput,
    /// What the links carried, headers included, against what they could, in the direction of the
    /// bulk traffic; of both directions the lesser.
    LineUse,
    /// Jain's index over the bulk traffics of a step in which they contend: 1 if all have the same.
    Fairness,
    /// Goodput of the edge that has the least.
    LeastGoodput,
    /// Half of the edges have no more.
    MedianGoodput,
    /// Goodput of the edge that has the most.
    MostGoodput,
    /// The least that an edge has, against the frame rate of its own links.
    LeastLineShare,
    /// The longest time in which almost nothing arrived.
    GapSeconds,
    /// From the last repair until the traffic was as usual.
    RecoverySeconds,
    /// Median round-trip time.
    P50Seconds,
    /// 95 % of the answers were faster.
    P95Seconds,
    /// 99 % of the answers were faster.
    P99Seconds,
    /// P95 less P50 of the round trips.
    JitterSeconds,
    /// 95 % of the post-quantum handshakes were faster.
    HandshakeP95Seconds,
    /// 95 % of the classic handshakes were faster.
    ClassicHandshakeP95Seconds,
    /// The former over the latter.
    HandshakeRatio,
    /// Half of the UDP packets were under way at most so much longer than the fastest of the run.
    LateP50Seconds,
    /// 99 % of the UDP packets were under way at most so much longer than the fastest of the run.
    LateP99Seconds,
    /// UDP packets that were under way longer than the fastest by more than 60 ms.
    Late,
    /// Half of the fetches took no longer.
    FetchP50Seconds,
    /// 95 % of them took no longer.
    FetchP95Seconds,
    /// Packets or answers that never came.
    Lost,
    /// Packets or requests sent.
    Sent,
    /// Repairs that FEC sent, at both ends.
    FecRepairs,
    /// Packets that came back by repairs, at both ends.
    FecRecovered,
    /// Repairs for each packet that they protect.
    FecOverhead,
    /// The part of the protected packets that neither arrived nor came back by repairs.
    FecResidualLoss,
    /// CPU time of hub and edges for 10⁹ bytes.
    CpuSecondsPerGigabyte,
    /// UDP packets that arrive, at the highest rate of which almost none is lost.
    PacketsPerSecond,
    /// CPU time of hub and edges against the time of the step.
    CpuShare,
    /// The most resident memory of the hub during the step.
    HubRssBytes,
    /// The most resident memory of an edge during the step.
    EdgeRssBytes,
    /// Paths of all tunnels of the edges that were up at the end.
    PathsUp,
    /// The longest time without an answer, or without a status for a viewer.
    SilenceSeconds,
    /// How far the gap that a drill prints is from that of the pings beside it.
    GapErrorSeconds,
    /// Configs that were taken.
    Reloads,
    /// The longest that a reload took.
    ReloadSeconds,
    /// Daemons that were killed.
    Kills,
    /// Seconds of history that were lost though they were over two seconds before.
    LostHistorySeconds,
    /// Seconds of history that had to be there after all kills.
    JudgedHistorySeconds,
    /// From asking for the page until it shows the links or sites.
    FirstViewSeconds,
    /// From asking for a page of one line until it is shown: what the browser itself takes.
    EmptyViewSeconds,
    /// The longest that the page kept the browser busy at once; 0 if never for 50 ms.
    LongestTaskSeconds,
    /// Lines of rules, routes, addresses and tables that came or went.
    LeftBehind,
    /// Open files of the daemon that has the most more than before.
    FilesGrown,
    /// Threads of the daemon that has the most more than before.
    ThreadsGrown,
    /// Resident memory of the hub beyond that before.
    HubRssGrown,
    /// Resident memory of an edge beyond that before.
    EdgeRssGrown,
    /// From the end of the step until all links and tunnels were up.
    BackSeconds,
    /// Tunnels that came up.
    Reconnects,
    /// Packets of a class that left over another link because theirs fell silent.
    Failovers,
    /// Setups that were broken in one way and named rightly.
    Named,
    /// Good setups of which something was said.
    FalseAlarms,
    /// Size of a year of history.
    FileBytes,
}

impl Figure {
    /// What a table calls it, with the unit.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Goodput => "Mbit/s",
            Self::LineShare => "of line, %",
            Self::SumGoodput => "together, Mbit/s",
            Self::LineUse => "line used, %",
            Self::Fairness => "fairness",
            Self::LeastGoodput => "least Mbit/s",
            Self::MedianGoodput => "median Mbit/s",
            Self::MostGoodput => "most Mbit/s",
            Self::LeastLineShare => "least of line, %",
            Self::GapSeconds => "gap, s",
            Self::RecoverySeconds => "back at 90 %, s",
            Self::P50Seconds => "rtt p50, ms",
            Self::P95Seconds => "rtt p95, ms",
            Self::P99Seconds => "rtt p99, ms",
            Self::JitterSeconds => "rtt p95 − p50, ms",
            Self::HandshakeP95Seconds => "handshake p95, ms",
            Self::ClassicHandshakeP95Seconds => "classic handshake p95, ms",
            Self::HandshakeRatio => "handshake, times the classic",
            Self::LateP50Seconds => "late by p50, ms",
            Self::LateP99Seconds => "late by p99, ms",
            Self::Late => "later than 60 ms",
            Self::FetchP50Seconds => "fetch p50, s",
            Self::FetchP95Seconds => "fetch p95, s",
            Self::Lost => "lost",
            Self::Sent => "sent",
            Self::FecRepairs => "repairs",
            Self::FecRecovered => "recovered",
            Self::FecOverhead => "repairs, % of packets",
            Self::FecResidualLoss => "not recovered, %",
            Self::CpuSecondsPerGigabyte => "cpu, s/GB",
            Self::PacketsPerSecond => "packets/s",
            Self::CpuShare => "cpu, % of a core",
            Self::HubRssBytes => "hub RSS, MB",
            Self::EdgeRssBytes => "edge RSS, MB",
            Self::PathsUp => "paths up",
            Self::SilenceSeconds => "longest wait, s",
            Self::GapErrorSeconds => "gap off by, ms",
            Self::Reloads => "reloads",
            Self::ReloadSeconds => "longest reload, s",
            Self::Kills => "kills",
            Self::LostHistorySeconds => "seconds lost",
            Self::JudgedHistorySeconds => "seconds judged",
            Self::FirstViewSeconds => "first view, ms",
            Self::EmptyViewSeconds => "view of an empty page, ms",
            Self::LongestTaskSeconds => "longest task, ms",
            Self::LeftBehind => "left behind",
            Self::FilesGrown => "open files, more",
            Self::ThreadsGrown => "threads, more",
            Self::HubRssGrown => "hub RSS, MB more",
            Self::EdgeRssGrown => "edge RSS, MB more",
            Self::BackSeconds => "all up after, s",
            Self::Reconnects => "reconnects",
            Self::Failovers => "failovers",
            Self::Named => "named rightly",
            Self::FalseAlarms => "false alarms",
            Self::FileBytes => "file, MB",
        }
    }

    /// The factor from base units to those of tables, and how many digits are shown.
    pub(crate) fn scale(self) -> (f64, usize) {
        match self {
            Self::Goodput | Self::SumGoodput => (8e-6, 1),
            Self::LeastGoodput | Self::MedianGoodput | Self::MostGoodput => (8e-6, 2),
            Self::LineShare => (1e2, 0),
            Self::LeastLineShare | Self::LineUse | Self::FecOverhead => (1e2, 1),
            Self::FecResidualLoss => (1e2, 2),
            Self::Fairness => (1.0, 3),
            Self::GapSeconds
            | Self::RecoverySeconds
            | Self::HandshakeRatio
            | Self::CpuSecondsPerGigabyte => (1.0, 2),
            Self::P50Seconds
            | Self::P95Seconds
            | Self::P99Seconds
            | Self::JitterSeconds
            | Self::HandshakeP95Seconds
            | Self::ClassicHandshakeP95Seconds
            | Self::LateP50Seconds
            | Self::LateP99Seconds
            | Self::GapErrorSeconds => (1e3, 1),
            Self::FirstViewSeconds | Self::EmptyViewSeconds | Self::LongestTaskSeconds => (1e3, 0),
            Self::SilenceSeconds
            | Self::ReloadSeconds
            | Self::FetchP50Seconds
            | Self::FetchP95Seconds => (1.0, 2),
            Self::BackSeconds => (1.0, 1),
            Self::HubRssGrown | Self::EdgeRssGrown => (1e-6, 1),
            Self::Reloads
            | Self::LeftBehind
            | Self::FilesGrown
            | Self::ThreadsGrown
            | Self::Reconnects
            | Self::Failovers
            | Self::Kills
            | Self::LostHistorySeconds
            | Self::JudgedHistorySeconds
            | Self::Named
            | Self::FalseAlarms => (1.0, 0),
            Self::Lost
            | Self::Late
            | Self::Sent
            | Self::FecRepairs
            | Self::FecRecovered
            | Self::PacketsPerSecond
            | Self::PathsUp => (1.0, 0),
            Self::CpuShare => (1e2, 2),
            Self::HubRssBytes | Self::EdgeRssBytes | Self::FileBytes => (1e-6, 1),
        }
    }

    /// Whether packets that leave a link late, or are lost before it, change it: not what daemons
    /// hold and do, and not what takes seconds.
    pub(crate) fn depends_on_links(self) -> bool {
        !matches!(
            self,
            Self::CpuShare
                | Self::HubRssBytes
                | Self::EdgeRssBytes
                | Self::PathsUp
                | Self::Reloads
                | Self::ReloadSeconds
                | Self::Kills
                | Self::LostHistorySeconds
                | Self::JudgedHistorySeconds
                | Self::FirstViewSeconds
                | Self::EmptyViewSeconds
                | Self::LongestTaskSeconds
                | Self::LeftBehind
                | Self::FilesGrown
                | Self::ThreadsGrown
                | Self::HubRssGrown
                | Self::EdgeRssGrown
                | Self::BackSeconds
                | Self::Reconnects
                | Self::Failovers
                | Self::Named
                | Self::FalseAlarms
                | Self::FileBytes
        )
    }

    /// In the units of tables.
    pub(crate) fn text(self, value: f64) -> String {
        let (scale, digits) = self.scale();
        format!("{:.digits$}", value * scale)
    }
}
