//! What the runs of a scenario come to: of each figure the median and the extremes.

use std::collections::{BTreeMap, BTreeSet};

use sennit_load::{median, quantile};
use serde::{Deserialize, Serialize};

use super::{EDGE, FecResult, HUB, StepResult, Together, TrafficResult};
use crate::figure::Figure;
use crate::traffic::{FetchFigures, Figures, UdpFigures};
use crate::tunnel::{Leaks, Operated};

/// One step over all runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepSummary {
    /// As in the scenario.
    pub name: String,
    /// In the order of the scenario; empty if every run of the step was given up.
    pub traffic: Vec<TrafficSummary>,
    /// What the FEC of each class did that has some; with the first traffic is what all did.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fec: BTreeMap<String, BTreeMap<Figure, Spread>>,
}

/// One traffic of a step over all runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrafficSummary {
    /// What it was, in a few words.
    pub label: String,
    /// What it gave.
    pub figures: BTreeMap<Figure, Spread>,
}

/// One figure over all runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Of the runs that have it.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many runs have it: not one that failed or never recovered.
    pub runs: usize,
}

impl StepSummary {
    /// Of `steps`, which are the scenario's so many steps again and again.
    pub(crate) fn of_runs(steps: &[StepResult], per_run: usize) -> Vec<Self> {
        (0..per_run.min(steps.len()))
            .map(|step| Self::of(&steps.iter().skip(step).step_by(per_run).collect::<Vec<_>>()))
            .collect()
    }

    /// Of the runs of one step.
    fn of(runs: &[&StepResult]) -> Self {
        let longest = runs.iter().max_by_key(|run| run.traffic.len());
        let labels = longest.map_or(&[][..], |run| &run.traffic);
        let traffic = labels
            .iter()
            .enumerate()
            .map(|(index, traffic)| TrafficSummary {
                label: traffic.label.clone(),
                figures: spreads(runs.iter().flat_map(|run| run.figures(index))),
            });
        let of_classes = || runs.iter().map(|run| FecResult::of_classes(&run.fec));
        let classes: BTreeSet<&str> = of_classes().flat_map(BTreeMap::into_keys).collect();
        let fec = classes.into_iter().map(|class| {
            let figures = of_classes().filter_map(|mut run| run.remove(class));
            (class.to_owned(), spreads(figures.flatten()))
        });
        Self {
            name: runs.first().map(|run| run.name.clone()).unwrap_or_default(),
            traffic: traffic.collect(),
            fec: fec.collect(),
        }
    }

    /// A figure of the first traffic that has it.
    pub fn figure(&self, figure: Figure) -> Option<Spread> {
        let mut spreads = self
            .traffic
            .iter()
            .map(|traffic| traffic.figures.get(&figure));
        spreads.find_map(Option::<&Spread>::copied)
    }

    /// A figure of one traffic, which counts from 1.
    pub(crate) fn figure_of(&self, number: usize, figure: Figure) -> Option<Spread> {
        let traffic = self.traffic.get(number.checked_sub(1)?)?;
        traffic.figures.get(&figure).copied()
    }
}

/// Of each figure all values that there are.
fn spreads(all: impl Iterator<Item = (Figure, f64)>) -> BTreeMap<Figure, Spread> {
    let mut values: BTreeMap<Figure, Vec<f64>> = BTreeMap::new();
    for (figure, value) in all {
        values.entry(figure).or_default().push(value);
    }
    let spread = |(figure, values): (_, Vec<f64>)| Some((figure, Spread::of(&values)?));
    values.into_iter().filter_map(spread).collect()
}

impl Spread {
    /// `None` for no values.
    fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            min: quantile(values, 0.0)?,
            max: quantile(values, 1.0)?,
            runs: values.len(),
        })
    }
}

impl StepResult {
    /// A figure of the first traffic that has it.
    pub(crate) fn figure(&self, wanted: Figure) -> Option<f64> {
        let all = (0..self.traffic.len()).flat_map(|index| self.figures(index));
        let mut of_kind = all.filter(|(figure, _)| *figure == wanted);
        of_kind.next().map(|(_, value)| value)
    }

    /// What this run says about the traffic at `index`.
    fn figures(&self, index: usize) -> Vec<(Figure, f64)> {
        let Some(traffic) = self.traffic.get(index) else {
            return Vec::new();
        };
        let mut figures = traffic.own_figures();
        // What the daemons use and do, they do for all traffic of the step.
        if index == 0 {
            figures.extend(self.daemon_figures());
            figures.extend(self.operated_figures());
            figures.extend(self.together.figures());
            figures.extend(FecResult::figures(&self.fec.iter().collect::<Vec<_>>()));
        }
        if traffic.bulk().is_some() {
            let cpu = self
                .daemons
                .iter()
                .map(|daemon| daemon.cpu_seconds_per_gigabyte);
            let cpu = cpu
                .sum::<Option<f64>>()
                .filter(|_| !self.daemons.is_empty());
            figures.extend(cpu.map(|cpu| (Figure::CpuSecondsPerGigabyte, cpu)));
            let recovery = self.recovery_seconds(index);
            figures.extend(recovery.map(|time| (Figure::RecoverySeconds, time)));
        }
        figures
    }

    fn daemon_figures(&self) -> Vec<(Figure, f64)> {
        let cpu: f64 = self.daemons.iter().map(|daemon| daemon.cpu_seconds).sum();
        let most = |role: &str| {
            let of_role = self.daemons.iter().filter(|daemon| daemon.role == role);
            of_role
                .map(|daemon| daemon.rss_peak_bytes as f64)
                .max_by(f64::total_cmp)
        };
        let mut figures = Vec::new();
        if let Some((hub, edge)) = most(HUB).zip(most(EDGE)) {
            figures.push((Figure::CpuShare, cpu / self.seconds));
            figures.push((Figure::HubRssBytes, hub));
            figures.push((Figure::EdgeRssBytes, edge));
        }
        figures.extend(self.paths_up().map(|paths| (Figure::PathsUp, paths)));
        figures
    }

    fn operated_figures(&self) -> Vec<(Figure, f64)> {
        let operated = &self.operated;
        let longest = operated.reload_seconds.iter().copied().reduce(f64::max);
        let reloads = longest.map(|_| operated.reload_seconds.len() as f64);
        let kills = (operated.kills > 0).then_some(operated.kills as f64);
        let seconds = |count: Option<u64>| count.map(|count| count as f64);
        let lost = seconds(operated.lost_history_seconds);
        let judged = seconds(operated.judged_history_seconds);
        let figures = [
            (Figure::Reloads, reloads),
            (Figure::ReloadSeconds, longest),
            (Figure::Kills, kills),
            (Figure::LostHistorySeconds, lost),
            (Figure::JudgedHistorySeconds, judged),
            (Figure::GapErrorSeconds, self.gap_error()),
            (Figure::LeftBehind, operated.left_behind()),
        ];
        let known = figures.into_iter().chain(operated.leak_figures());
        known
            .filter_map(|(figure, value)| Some((figure, value?)))
            .collect()
    }

    /// How far the one drill of the step is from its first pings.
    fn gap_error(&self) -> Option<f64> {
        let [printed] = self.operated.drill_gap_seconds[..] else {
            return None;
        };
        let mut pings = self.traffic.iter().filter_map(|it| match &it.figures {
            Some(Figures::Ping(ping)) => Some(ping.silence_seconds),
            _ => None,
        });
        Some((printed - pings.next()?).abs())
    }

    /// Of what the edges say: the first status is the hub's.
    fn paths_up(&self) -> Option<f64> {
        let edges = self.status.get(1..).filter(|edges| !edges.is_empty())?;
        let tunnels = edges.iter().filter_map(|edge| edge["tunnels"].as_array());
        let paths = tunnels.flatten().filter_map(|it| it["paths"].as_array());
        let up = paths.flatten().filter(|path| path["state"] == "up").count();
        Some(up as f64)
    }

    /// After the last repair.
    fn recovery_seconds(&self, index: usize) -> Option<f64> {
        let repair = self
            .faults
            .iter()
            .rev()
            .find(|fault| fault.action.repairs())?;
        repair.traffic.get(index)?.as_ref()?.recovery_seconds
    }
}

impl Together {
    fn figures(self) -> impl Iterator<Item = (Figure, f64)> {
        let figures = [
            (Figure::SumGoodput, self.goodput),
            (Figure::Fairness, self.fairness),
            (Figure::LineUse, self.line_use),
        ];
        let known = figures.into_iter();
        known.filter_map(|(figure, value)| Some((figure, value?)))
    }
}

impl Operated {
    fn left_behind(&self) -> Option<f64> {
        let changed = self.leaks.as_ref().map(|leaks| leaks.changed.len());
        let lists = [changed, self.left.as_ref().map(Vec::len)];
        let known = lists.into_iter().flatten();
        known.map(|lines| lines as f64).reduce(|a, b| a + b)
    }

    fn leak_figures(&self) -> impl Iterator<Item = (Figure, Option<f64>)> {
        let of = |figure, value: fn(&Leaks) -> f64| (figure, self.leaks.as_ref().map(value));
        [
            of(Figure::FilesGrown, |it| it.files as f64),
            of(Figure::ThreadsGrown, |it| it.threads as f64),
            of(Figure::HubRssGrown, |it| it.hub_rss_bytes as f64),
            of(Figure::EdgeRssGrown, |it| it.edge_rss_bytes as f64),
            of(Figure::BackSeconds, |it| it.back_seconds),
            of(Figure::Reconnects, |it| it.reconnects as f64),
            of(Figure::Failovers, |it| it.failovers as f64),
        ]
        .into_iter()
    }
}

impl TrafficResult {
    fn own_figures(&self) -> Vec<(Figure, f64)> {
        let mut figures = Vec::new();
        let mut add =
            |figure, value: Option<f64>| figures.extend(value.map(|value| (figure, value)));
        match &self.figures {
            Some(Figures::Tcp(bulk) | Figures::Quic(bulk)) => {
                add(Figure::Goodput, Some(bulk.goodput));
            }
            Some(Figures::Udp(udp)) => {
                for (figure, value) in udp.figures() {
                    add(figure, value);
                }
            }
            Some(Figures::Fetch(fetch)) => {
                for (figure, value) in fetch.figures() {
                    add(figure, value);
                }
            }
            Some(Figures::Ping(ping)) => {
                add(Figure::P50Seconds, ping.p50_seconds);
                add(Figure::P95Seconds, ping.p95_seconds);
                add(Figure::P99Seconds, ping.p99_seconds);
                add(
                    Figure::Lost,
                    Some(ping.sent.saturating_sub(ping.received) as f64),
                );
                add(Figure::Sent, Some(ping.sent as f64));
                add(Figure::SilenceSeconds, Some(ping.silence_seconds));
            }
            Some(Figures::Packets(packets)) => {
                add(Figure::PacketsPerSecond, Some(packets.per_second));
                add(Figure::Lost, Some(packets.lost as f64));
                add(Figure::Sent, Some(packets.sent as f64));
            }
            Some(Figures::Ask(ask)) => {
                add(Figure::P50Seconds, ask.p50_seconds);
                add(Figure::P95Seconds, ask.p95_seconds);
                add(Figure::P99Seconds, ask.p99_seconds);
                add(Figure::SilenceSeconds, ask.longest_wait_seconds);
                let lost = (ask.asked > 0).then(|| (ask.asked - ask.answered) as f64);
                add(Figure::Lost, lost);
                add(Figure::Sent, lost.map(|_| ask.asked as f64));
            }
            Some(Figures::Program(printed)) => {
                figures.extend(printed.iter().map(|(figure, value)| (*figure, *value)));
                return figures;
            }
            Some(Figures::Flood(flood)) => {
                add(Figure::PacketsPerSecond, Some(flood.per_second));
                add(Figure::Sent, Some(flood.sent as f64));
            }
            Some(Figures::Idle) | None => {}
        }
        add(Figure::LineShare, self.line_share);
        add(Figure::GapSeconds, self.gap_seconds);
        figures.extend(self.edge_figures());
        figures
    }
}

impl UdpFigures {
    fn figures(&self) -> [(Figure, Option<f64>); 6] {
        let late = self.lateness.unwrap_or_default();
        [
            (Figure::Goodput, Some(self.goodput)),
            (Figure::Lost, Some(self.lost as f64)),
            (Figure::Sent, Some(self.packets as f64)),
            (Figure::LateP50Seconds, late.p50_seconds),
            (Figure::LateP99Seconds, late.p99_seconds),
            (Figure::Late, self.late.map(|late| late as f64)),
        ]
    }
}

impl FetchFigures {
    fn figures(&self) -> [(Figure, Option<f64>); 5] {
        let failed = self.tried.saturating_sub(self.fetched);
        [
            (Figure::Goodput, Some(self.goodput)),
            (Figure::FetchP50Seconds, self.p50_seconds),
            (Figure::FetchP95Seconds, self.p95_seconds),
            (Figure::Lost, Some(failed as f64)),
            (Figure::Sent, Some(self.tried as f64)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::PingFigures;

    /// A step that lost so many of ten pings, or was given up.
    fn run(lost: Option<u64>) -> StepResult {
        let traffic = lost.map(|lost| TrafficResult {
            label: "ping".into(),
            figures: Some(Figures::Ping(PingFigures {
                sent: 10,
                received: 10 - lost,
                ..PingFigures::default()
            })),
            failure: None,
            line_share: None,
            gap_seconds: None,
            usual_goodput: None,
            edges: Vec::new(),
        });
        StepResult {
            name: "step".into(),
            traffic: traffic.into_iter().collect(),
            ..StepResult::default()
        }
    }

    #[test]
    fn several_runs_give_median_and_extremes() {
        let runs = [7, 1, 2].map(|lost| run(Some(lost)));

        let summary = StepSummary::of_runs(&runs, 1);

        let lost = summary[0].figure(Figure::Lost);
        let expected = Spread {
            median: 2.0,
            min: 1.0,
            max: 7.0,
            runs: 3,
        };
        assert_eq!(lost, Some(expected));
        assert_eq!(
            summary[0].figure(Figure::P50Seconds),
            None,
            "never answered"
        );
    }

    #[test]
    fn a_figure_may_be_of_one_traffic_among_several() {
        let mut step = run(Some(3));
        let other = run(Some(5)).traffic;
        step.traffic.extend(other);
        step.together.fairness = Some(0.8);

        let summary = &StepSummary::of_runs(&[step], 1)[0];

        let lost = |number| {
            let spread = summary.figure_of(number, Figure::Lost);
            spread.map(|spread| spread.median)
        };
        assert_eq!([1, 2].map(lost), [Some(3.0), Some(5.0)]);
        assert_eq!([0, 3].map(lost), [None, None]);
        let fairness = summary.figure(Figure::Fairness);
        assert_eq!(fairness.map(|spread| spread.median), Some(0.8));
    }

    #[test]
    fn two_runs_have_their_median_between_them() {
        let runs = [7, 1].map(|lost| run(Some(lost)));

        let summary = StepSummary::of_runs(&runs, 1);

        let lost = summary[0].figure(Figure::Lost).expect("there are pings");
        assert_eq!((lost.min, lost.median, lost.max), (1.0, 4.0, 7.0));
    }

    #[test]
    fn the_runs_of_a_step_are_those_at_its_place() {
        let runs = [run(Some(1)), run(None), run(Some(3)), run(Some(4))];

        let summary = StepSummary::of_runs(&runs, 2);

        let lost = |step: usize| summary[step].figure(Figure::Lost).expect("there are pings");
        assert_eq!((summary.len(), lost(0).max, lost(0).runs), (2, 3.0, 2));
        assert_eq!((lost(1).median, lost(1).runs), (4.0, 1), "one was given up");
    }
}
