//! `sennit test` over a link: a client of its own server, and what it found as figures of ours.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sennit_load::{median, quantile};
use serde::Deserialize;

use super::{Context, program};
use crate::error::{Doing, Error};
use crate::figure::Figure;
use crate::host::{Role, Running};
use crate::plan;
use crate::scenario::LoadTest;

const NAME: &str = "sennit test";
/// Longer than any start of the server.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the client prints: one report, or with `--repeat` those of all rounds.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Often { reports: Vec<Vec<Report>> },
    Once(Box<Report>),
}

/// A `sennit.test/1`, as far as it counts here.
#[derive(Debug, Deserialize)]
struct Report {
    goodput_bits_per_second: f64,
    up: Option<Way>,
    down: Option<Way>,
    rtt: RoundTrips,
    handshake: Handshakes,
}

#[derive(Debug, Deserialize)]
struct Way {
    messages: Option<Messages>,
    fec: Option<Fec>,
    sent_packets: u64,
    lost_packets: u64,
}

#[derive(Debug, Deserialize)]
struct Messages {
    sent: u64,
    lost: u64,
}

#[derive(Debug, Deserialize)]
struct Fec {
    symbols: Symbols,
    overhead_ratio: f64,
    residual_loss_ratio: f64,
}

#[derive(Debug, Deserialize)]
struct Symbols {
    repairs_sent: u64,
    recovered: u64,
}

#[derive(Debug, Deserialize)]
struct RoundTrips {
    loaded: Times,
    jitter_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Times {
    p50_seconds: Option<f64>,
    p95_seconds: Option<f64>,
    p99_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Handshakes {
    post_quantum_seconds: Option<f64>,
    classic_seconds: Option<f64>,
}

pub(super) fn run(test: &LoadTest, context: &Context<'_>) -> Result<BTreeMap<Figure, f64>, Error> {
    let program = context.ours.program;
    let address = format!("{}:{}", plan::SERVER.text(false), context.port);
    let (words, err) = context.file("server.txt")?;
    let mut server = context.host(Role::Server).command(program);
    server.args(["test", "server", "--listen", &address]);
    // It ends with the test.
    let _server = Running::start(server.stdout(Stdio::null()).stderr(err))?;
    until_listening(&words)?;
    let mut client = context.host(Role::Edge).command(program);
    client.args(["test", "client", &address, "--json"]);
    client.args(&test.arguments);
    if !test.arguments.iter().any(|it| it == "--duration") {
        client.args(["--duration", &context.seconds.to_string()]);
    }
    let said: Said = program::printed(&mut client, NAME, context)?;
    Ok(figures(&said.reports()))
}

/// A client that comes too early knocks a second time only after a second.
fn until_listening(words: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = std::fs::read_to_string(words);
        let said = said.doing(|| format!("read {}", words.display()))?;
        if said.lines().any(|line| line.starts_with("Listening on")) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::Traffic {
                name: NAME.into(),
                reason: format!("its server does not listen: {}", said.trim()),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Said {
    fn reports(self) -> Vec<Report> {
        match self {
            Self::Often { reports } => reports.into_iter().flatten().collect(),
            Self::Once(report) => vec![*report],
        }
    }
}

/// Of each figure the median of all reports; of handshakes, of which each has one, a percentile.
fn figures(reports: &[Report]) -> BTreeMap<Figure, f64> {
    let mut values: BTreeMap<Figure, Vec<f64>> = BTreeMap::new();
    for (figure, value) in reports.iter().flat_map(Report::figures) {
        values.entry(figure).or_default().push(value);
    }
    let mid = |(figure, values): (_, Vec<f64>)| Some((figure, median(&values)?));
    let mut figures: BTreeMap<_, _> = values.into_iter().filter_map(mid).collect();
    let slow = |of: fn(&Handshakes) -> Option<f64>| {
        let times = reports.iter().filter_map(|it| of(&it.handshake));
        quantile(&times.collect::<Vec<_>>(), 0.95)
    };
    let (large, classic) = (
        slow(|it| it.post_quantum_seconds),
        slow(|it| it.classic_seconds),
    );
    figures.extend(large.map(|it| (Figure::HandshakeP95Seconds, it)));
    figures.extend(classic.map(|it| (Figure::ClassicHandshakeP95Seconds, it)));
    let both = large.zip(classic);
    figures.extend(both.map(|(large, classic)| (Figure::HandshakeRatio, large / classic)));
    figures
}

impl Report {
    fn figures(&self) -> Vec<(Figure, f64)> {
        let times = &self.rtt.loaded;
        let rtt = [
            (Figure::P50Seconds, times.p50_seconds),
            (Figure::P95Seconds, times.p95_seconds),
            (Figure::P99Seconds, times.p99_seconds),
            (Figure::JitterSeconds, self.rtt.jitter_seconds),
        ];
        let rtt = rtt.into_iter();
        let mut figures = vec![(Figure::Goodput, self.goodput_bits_per_second / 8.0)];
        figures.extend(rtt.filter_map(|(figure, value)| Some((figure, value?))));
        let ways = || self.up.iter().chain(&self.down);
        let [sent, lost] = ways()
            .map(Way::sent_and_lost)
            .fold([0, 0], |sum, way| [sum[0] + way[0], sum[1] + way[1]]);
        if sent > 0 {
            figures.push((Figure::Sent, sent as f64));
            figures.push((Figure::Lost, lost as f64));
        }
        let fec: Vec<&Fec> = ways().filter_map(|way| way.fec.as_ref()).collect();
        if !fec.is_empty() {
            let sum = |of: fn(&Symbols) -> u64| fec.iter().map(|it| of(&it.symbols)).sum::<u64>();
            let worst = |of: fn(&Fec) -> f64| fec.iter().map(|it| of(it)).fold(0.0, f64::max);
            figures.extend([
                (Figure::FecRepairs, sum(|it| it.repairs_sent) as f64),
                (Figure::FecRecovered, sum(|it| it.recovered) as f64),
                (Figure::FecOverhead, worst(|it| it.overhead_ratio)),
                (Figure::FecResidualLoss, worst(|it| it.residual_loss_ratio)),
            ]);
        }
        figures
    }
}

impl Way {
    /// Of messages what the network lost; of streams what their sender took for lost.
    fn sent_and_lost(&self) -> [u64; 2] {
        match &self.messages {
            Some(messages) => [messages.sent, messages.lost],
            None => [self.sent_packets, self.lost_packets],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report as the client prints it, with the times of its two handshakes in milliseconds.
    fn report(large: u32, classic: u32) -> String {
        format!(
            r#"{{"schema": "sennit.test/1", "goodput_bits_per_second": 8e6, "up": null,
            "down": {{"messages": {{"sent": 1000, "lost": 50}}, "sent_packets": 9, "lost_packets": 1,
                "fec": {{"symbols": {{"repairs_sent": 100, "recovered": 49}},
                    "overhead_ratio": 0.1, "residual_loss_ratio": 0.001}}}},
            "rtt": {{"loaded": {{"p50_seconds": 0.05, "p95_seconds": 0.06, "p99_seconds": null}},
                "jitter_seconds": 0.01}},
            "handshake": {{"post_quantum_seconds": {}, "classic_seconds": {}}}}}"#,
            f64::from(large) / 1e3,
            f64::from(classic) / 1e3
        )
    }

    fn of(text: &str) -> BTreeMap<Figure, f64> {
        let said: Said = serde_json::from_str(text).expect("it is whole");
        figures(&said.reports())
    }

    #[test]
    fn a_test_has_what_its_client_printed() {
        let found = of(&report(30, 20));

        for (figure, value) in [
            (Figure::Goodput, 1e6),
            (Figure::P95Seconds, 0.06),
            (Figure::JitterSeconds, 0.01),
            (Figure::Sent, 1000.0),
            (Figure::Lost, 50.0),
            (Figure::FecRecovered, 49.0),
            (Figure::FecOverhead, 0.1),
            (Figure::HandshakeP95Seconds, 0.03),
            (Figure::HandshakeRatio, 1.5),
        ] {
            assert!(
                (found[&figure] - value).abs() < 1e-9,
                "{figure:?}: {found:?}"
            );
        }
        assert!(
            !found.contains_key(&Figure::P99Seconds),
            "nobody measured it"
        );
    }

    #[test]
    fn of_several_rounds_the_slow_handshakes_count() {
        let rounds = [report(20, 20), report(20, 20), report(60, 20)];
        let text = format!(r#"{{"reports": [[{}]]}}"#, rounds.join("], ["));

        let found = of(&text);

        assert!(found[&Figure::HandshakeRatio] > 1.5, "{found:?}");
        assert_eq!(found[&Figure::Goodput], 1e6);
    }
}
