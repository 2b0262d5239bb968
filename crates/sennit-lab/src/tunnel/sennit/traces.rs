//! What daemons hold and have changed on their hosts, before something happened to them and after.
//!
//! Of a host these are the lines that tools print: rules, routes of all tables, addresses,
//! nftables, and the files in which a daemon remembers the kernel switches that it has to put back.
//! Of a daemon they are its open files, threads and resident memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{End, Sennit};
use crate::api;
use crate::error::{Doing, Error};
use crate::tunnel::usage;

/// The longest that everything may take to be up again: a path that fell often is watched for 32 s
/// before it is trusted, and one that is silent is tried every 30 s where nothing is sent.
const UP_AGAIN: Duration = Duration::from_secs(180);

/// What is let go only some time after: closed connections, and links that were just replaced.
const SETTLED: Duration = Duration::from_secs(20);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// What is looked at on a host.
const SHOWN: [&str; 6] = [
    "ip rule",
    "ip -6 rule",
    "ip route show table all",
    "ip -6 route show table all",
    "ip -brief address",
    "nft list ruleset",
];

/// What is different afterwards.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Leaks {
    /// Lines of hosts that came (`+`) or went (`-`).
    pub changed: Vec<String>,
    /// Open files of the daemon that has the most more.
    pub files: i64,
    /// Threads of the daemon that has the most more.
    pub threads: i64,
    /// Resident memory of the hub.
    pub hub_rss_bytes: i64,
    /// Resident memory of the edge that grew most.
    pub edge_rss_bytes: i64,
    /// From the end of the step until everything was up.
    pub back_seconds: f64,
    /// Tunnels that came up during the step.
    pub reconnects: u64,
    /// What left over another link because one fell silent, during the step.
    pub failovers: u64,
}

/// All of it at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traces {
    /// How often each line is there.
    lines: BTreeMap<String, i64>,
    /// The hub, then each edge.
    daemons: Vec<Held>,
    /// The number of each daemon's newest event.
    newest: Vec<u64>,
}

/// What one daemon holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    files: i64,
    threads: i64,
    rss: i64,
}

impl Sennit<'_> {
    /// What all hosts and daemons have now.
    pub(crate) fn traces(&self) -> Result<Traces, Error> {
        let mut traces = Traces::of_hosts(&End::all(self.lab).collect::<Vec<_>>())?;
        traces.daemons = self.daemons.pids().map(held).collect::<Result<_, _>>()?;
        let newest = |control: &Path| Ok(events(control, "limit=1")?.last().map_or(0, id));
        let controls = self.controls();
        traces.newest = controls
            .iter()
            .map(|control| newest(control))
            .collect::<Result<_, Error>>()?;
        Ok(traces)
    }

    /// Waits until everything is up and nothing more is let go, and says what is different.
    pub(crate) fn leaks_since(&mut self, before: &Traces) -> Result<Leaks, Error> {
        let start = Instant::now();
        self.wait_until_all_up()?;
        let back_seconds = start.elapsed().as_secs_f64();
        let deadline = Instant::now() + SETTLED;
        let mut leaks = self.traces()?.since(before);
        while Instant::now() < deadline && !leaks.is_none() {
            std::thread::sleep(LOOK);
            leaks = self.traces()?.since(before);
        }
        leaks.back_seconds = back_seconds;
        let (mut at_hub, mut at_edges) = (Happened::default(), Happened::default());
        for (index, (control, newest)) in self.controls().iter().zip(&before.newest).enumerate() {
            let happened = if index == 0 {
                &mut at_hub
            } else {
                &mut at_edges
            };
            happened.add(&events(control, &format!("after={newest}"))?);
        }
        // Who was killed may have forgotten its last second.
        leaks.reconnects = at_hub.tunnels.max(at_edges.tunnels);
        leaks.failovers = at_edges.failovers;
        Ok(leaks)
    }

    /// Every link of every edge, and the hub.
    pub(super) fn wait_until_all_up(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + UP_AGAIN;
        for (end, control) in End::all(self.lab).zip(self.controls()) {
            loop {
                let answer = api::get(&control, "/v1/status");
                let status: Value = answer
                    .as_deref()
                    .ok()
                    .and_then(|text| serde_json::from_str(text).ok())
                    .unwrap_or_default();
                if status["state"] == "up" {
                    break;
                }
                self.daemons.check_alive()?;
                if Instant::now() > deadline {
                    let what = match answer {
                        Ok(_) => format!("is {}: {}", status["state"], status["reason"]),
                        Err(error) => format!("does not answer: {error}"),
                    };
                    let after = UP_AGAIN.as_secs();
                    return Err(self
                        .daemons
                        .failed(&end.name, &format!("{what}, after {after} s")));
                }
                std::thread::sleep(LOOK / 10);
            }
        }
        Ok(())
    }
}

impl Traces {
    /// What these hosts have, and no daemons.
    pub(super) fn of_hosts(ends: &[End<'_>]) -> Result<Self, Error> {
        let mut traces = Self::default();
        for end in ends {
            for command in SHOWN {
                let words: Vec<&str> = command.split(' ').collect();
                let output = end.host.exec(&words)?;
                let text = String::from_utf8_lossy(&output.stdout);
                let lines = text.lines().map(steady).filter(|line| !line.is_empty());
                traces.add(lines.map(|line| format!("{}, {command}: {line}", end.name)));
            }
            let files = end.host.remembered().into_iter();
            traces.add(files.map(|file| format!("{}: {}", end.name, file.display())));
        }
        Ok(traces)
    }

    fn add(&mut self, lines: impl Iterator<Item = String>) {
        for line in lines {
            *self.lines.entry(line).or_default() += 1;
        }
    }

    /// Lines that came or went.
    pub(super) fn changed(&self, before: &Self) -> Vec<String> {
        let mut counts = self.lines.clone();
        for (line, count) in &before.lines {
            *counts.entry(line.clone()).or_default() -= count;
        }
        let sign = |count| if count > 0 { '+' } else { '-' };
        let lines = counts.iter().filter(|(_, count)| **count != 0);
        lines
            .map(|(line, count)| format!("{} {line}", sign(*count)))
            .collect()
    }

    fn since(&self, before: &Self) -> Leaks {
        let pairs = || self.daemons.iter().zip(&before.daemons);
        let most = |grown: fn((&Held, &Held)) -> i64| pairs().map(grown).max().unwrap_or(0);
        let rss = |(now, then): (&Held, &Held)| now.rss - then.rss;
        Leaks {
            changed: self.changed(before),
            files: most(|(now, then)| now.files - then.files),
            threads: most(|(now, then)| now.threads - then.threads),
            hub_rss_bytes: pairs().next().map_or(0, rss),
            edge_rss_bytes: pairs().skip(1).map(rss).max().unwrap_or(0),
            ..Leaks::default()
        }
    }
}

impl Leaks {
    /// Memory may grow: only how much is told.
    fn is_none(&self) -> bool {
        self.changed.is_empty() && self.files <= 0 && self.threads <= 0
    }
}

/// Events that are counted.
#[derive(Default)]
struct Happened {
    tunnels: u64,
    failovers: u64,
}

impl Happened {
    fn add(&mut self, events: &[Value]) {
        let count = |kind: &str| events.iter().filter(|it| it["event"] == kind).count() as u64;
        self.tunnels += count("tunnel_up");
        self.failovers += count("failover");
    }
}

fn id(event: &Value) -> u64 {
    event["id"].as_u64().unwrap_or(0)
}

fn events(control: &Path, query: &str) -> Result<Vec<Value>, Error> {
    let doing = || format!("read the events of {}", control.display());
    let text = api::get(control, &format!("/v1/events?{query}")).doing(doing)?;
    let mut document: Value = serde_json::from_str(&text)
        .map_err(|error| Error::Tunnel(format!("events are no JSON: {error}")))?;
    match document["events"].take() {
        Value::Array(events) => Ok(events),
        _ => Err(Error::Tunnel("there are no events".into())),
    }
}

fn held(pid: u32) -> Result<Held, Error> {
    let entries = |what: &str| {
        let path = format!("/proc/{pid}/{what}");
        let read = std::fs::read_dir(&path).doing(|| format!("read {path}"));
        read.map(|entries| entries.count() as i64)
    };
    Ok(Held {
        files: entries("fd")?,
        threads: entries("task")?,
        rss: usage(pid)?.rss_bytes as i64,
    })
}

/// A line without what changes by itself: counters, times, and addresses that a device was given by
/// chance.
fn steady(line: &str) -> String {
    let mut words = Vec::new();
    let mut all = line.split_whitespace();
    while let Some(word) = all.next() {
        match word {
            "packets" | "bytes" | "expires" => {
                all.next();
            }
            _ if word.starts_with("fe80::") && word.len() > "fe80::/64".len() => {
                words.push("fe80::");
            }
            // A TUN device is neither until its carrier was touched.
            "UNKNOWN" => words.push("UP"),
            // A veth, with the number that its peer happens to have.
            _ => words.push(word.split("@if").next().unwrap_or(word)),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(lines: &[&str], daemons: &[[i64; 3]]) -> Traces {
        let mut traces = Traces::default();
        traces.add(lines.iter().map(|line| steady(line)));
        traces.daemons = daemons
            .iter()
            .map(|&[files, threads, rss]| Held {
                files,
                threads,
                rss,
            })
            .collect();
        traces
    }

    #[test]
    fn what_came_and_went_is_told_and_what_changes_by_itself_is_not() {
        let before = traces(
            &[
                "counter packets 3 bytes 200 drop",
                "rule a",
                "rule a",
                "wan@if3 fe80::1234:5678/64",
            ],
            &[],
        );
        let after = traces(
            &[
                "counter packets 9 bytes 900 drop",
                "rule a",
                "rule b",
                "wan@if8 fe80::9abc:def0/64",
            ],
            &[],
        );

        assert_eq!(after.changed(&before), ["- rule a", "+ rule b"]);
        assert_eq!(before.changed(&before), [""; 0]);
    }

    #[test]
    fn the_daemon_that_grew_most_is_told_hub_and_edges_apart() {
        let before = traces(&[], &[[10, 5, 100], [10, 5, 100], [20, 5, 100]]);
        let after = traces(&[], &[[9, 5, 150], [12, 6, 90], [20, 4, 130]]);

        let leaks = after.since(&before);

        assert_eq!((leaks.files, leaks.threads), (2, 1));
        assert_eq!((leaks.hub_rss_bytes, leaks.edge_rss_bytes), (50, 30));
        assert!(!leaks.is_none());
        assert!(before.since(&before).is_none());
    }
}
