//! What people who run it do to Sennit while it works, and what the daemons say to that.

use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::traces::Leaks;
use super::{End, Sennit, edge_config};
use crate::api;
use crate::error::Error;
use crate::host::{Host, run};

/// A second of history that ended so long before a kill has to be there.
const KEPT_BEFORE: u64 = 2;

/// The first second of a daemon's life may be missing: it compares two looks.
const BEGINS_AFTER: u64 = 3;

/// A daemon that was just started needs so long until it answers.
const STARTED: Duration = Duration::from_secs(10);

/// What came of it during a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Operated {
    /// How long each reload took until the daemon had taken the config.
    pub reload_seconds: Vec<f64>,
    /// The gap that each drill printed.
    pub drill_gap_seconds: Vec<f64>,
    /// Daemons that were killed.
    pub kills: usize,
    /// Seconds that ended two before a kill and that the edge's history lacks.
    pub lost_history_seconds: Option<u64>,
    /// Seconds that it had to have of the lives that kills ended; absent in older files.
    #[serde(default)]
    pub judged_history_seconds: Option<u64>,
    /// Lines of hosts that came or went between the first start of the daemons and their end.
    #[serde(default)]
    pub left: Option<Vec<String>>,
    /// What was different after the step, if it was looked for.
    #[serde(default)]
    pub leaks: Option<Leaks>,
}

/// When an edge lived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) edge: usize,
    pub(super) from: SystemTime,
    pub(super) killed: SystemTime,
}

impl Sennit<'_> {
    /// Has the edge take its other config, or the first again.
    pub(super) fn reload(&mut self, index: usize) -> Result<(), Error> {
        self.turned[index] ^= true;
        let edge = End::edge(self.lab, index);
        let mut table = self.table.of_edge(index);
        if self.turned[index] {
            table.add_other();
        }
        let config = edge_config(self.site(index), &table);
        edge.write_config(config, self.scratch.path(), &self.daemons.logs)?;
        let start = Instant::now();
        let said = self.command(&edge, &["reload", "--json"])?;
        self.operated
            .reload_seconds
            .push(start.elapsed().as_secs_f64());
        let changes = said["changes"].as_array().map_or(0, Vec::len);
        match said["applied"].as_bool() == Some(true) && changes > 0 {
            true => Ok(()),
            false => Err(Error::Tunnel(format!("a reload changed nothing: {said}"))),
        }
    }

    /// Cuts a link on purpose, and notes the gap that this printed.
    pub(crate) fn drill(&mut self, link: &str, index: usize) -> Result<(), Error> {
        let edge = End::edge(self.lab, index);
        let said = self.command(
            &edge,
            &["links", "drill", link, "--yes", "--for", "2", "--json"],
        )?;
        let gap = said["gap_seconds"].as_f64();
        let none = || Error::Tunnel(format!("a drill printed no gap: {said}"));
        self.operated.drill_gap_seconds.push(gap.ok_or_else(none)?);
        Ok(())
    }

    /// Looks which seconds the killed edges have forgotten.
    pub(super) fn read_history(&mut self) -> Result<(), Error> {
        let (mut lost, mut judged) = (0, 0);
        for index in 0..self.lab.edges() {
            let lives: Vec<Life> = self
                .lives
                .iter()
                .filter(|it| it.edge == index)
                .copied()
                .collect();
            if lives.is_empty() {
                continue;
            }
            let known = self.seconds_known(index)?;
            lost += lives.iter().map(|life| life.missing(&known)).sum::<u64>();
            judged += lives
                .iter()
                .map(|life| life.judged().count())
                .sum::<usize>() as u64;
        }
        self.lives.clear();
        *self.operated.lost_history_seconds.get_or_insert(0) += lost;
        *self.operated.judged_history_seconds.get_or_insert(0) += judged;
        Ok(())
    }

    /// Seconds since 1970 that the history of an edge has.
    fn seconds_known(&self, index: usize) -> Result<Vec<u64>, Error> {
        let control = End::edge(self.lab, index).control(self.scratch.path());
        let path = "/v1/history?step=second&since=3600&series=total";
        let deadline = Instant::now() + STARTED;
        loop {
            let answer = api::get(&control, path);
            let history: Option<Value> = answer
                .as_deref()
                .ok()
                .and_then(|text| serde_json::from_str(text).ok());
            if let Some(history) = history {
                let series = history["series"].as_array().into_iter().flatten();
                let times = series.filter_map(|it| it["time"].as_array()).flatten();
                return Ok(times.filter_map(Value::as_u64).collect());
            }
            if Instant::now() > deadline {
                let reason = format!("an edge tells no history: {answer:?}");
                return Err(Error::Tunnel(reason));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs `sennit` against the daemon of an edge, on its host, and reads what it prints.
    fn command(&self, edge: &End<'_>, words: &[&str]) -> Result<Value, Error> {
        let (host, control): (&Host, _) = (edge.host, edge.control(self.scratch.path()));
        let mut command: Command = host.command(&self.program);
        command.args(words).arg("--control").arg(control);
        let output = run(&mut command)?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| Error::Tunnel(format!("{words:?} printed no JSON: {error}")))
    }
}

impl Life {
    /// Whole seconds of it that had to be kept and are not known.
    fn missing(&self, known: &[u64]) -> u64 {
        let lost = self.judged().filter(|second| !known.contains(second));
        lost.count() as u64
    }

    /// Whole seconds of it that had to be kept: none of a life of less than five seconds.
    fn judged(&self) -> Range<u64> {
        let since_1970 = |at: SystemTime| {
            at.duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())
        };
        let first = since_1970(self.from) + BEGINS_AFTER;
        // A second ends one later than it is called.
        let end = since_1970(self.killed).saturating_sub(KEPT_BEFORE);
        first..end.max(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Action, Scenario};

    #[test]
    fn what_ended_two_seconds_before_a_kill_has_to_be_known() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_millis(seconds);
        let life = Life {
            edge: 0,
            from: at(100_000),
            killed: at(110_900),
        };

        assert_eq!(life.missing(&[103, 104, 105, 106, 107]), 0);
        assert_eq!(life.missing(&[103, 104, 106]), 2, "105 and 107");
        assert_eq!(life.judged().count(), 5);
    }

    #[test]
    fn every_life_that_the_shipped_kills_end_is_judged() {
        let text = include_str!("../../../../../lab/killed.toml");
        let scenario = Scenario::parse(text).expect("it is right");
        let kills = |edge| {
            let faults = scenario.step.iter().flat_map(|step| &step.fault);
            let here = faults
                .filter(move |it| it.action == Action::RestartEdge && it.edge_index() == edge);
            here.map(|it| SystemTime::UNIX_EPOCH + it.at_s.0)
        };
        for edge in 0..scenario.edges {
            let starts = [SystemTime::UNIX_EPOCH].into_iter().chain(kills(edge));
            for (from, killed) in starts.zip(kills(edge)) {
                let life = Life { edge, from, killed };
                assert!(life.judged().count() > 0, "{life:?}");
            }
        }
    }
}
