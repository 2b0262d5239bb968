//! Those tools that are no traffic of scenarios: `sennit test` and irtt.

use std::fmt::Display;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sennit_load::quantile;
use serde::Deserialize;

use super::PROBE_MS;
use super::line::Found;
use crate::error::Error;
use crate::host::{self, Role, Running};
use crate::lab::Lab;
use crate::plan::{self, Dual};
use crate::programs::is_there;
use crate::tunnel::Programs;

/// Where the servers are, unless told otherwise.
const TEST_PORT: u16 = 4774;
const IRTT_PORT: u16 = 2112;
/// Longer than any start of irtt.
const LISTEN_PATIENCE: Duration = Duration::from_secs(5);
/// As long as a message of `sennit test`.
const IRTT_BYTES: &str = "100";

/// The stacks of `sennit test`, and what they are called in tables.
pub(super) const STACKS: [(&str, &str); 2] =
    [("sennit", "sennit test"), ("quinn", "sennit test on quinn")];

/// What `sennit test client --json` prints, as far as it counts here.
#[derive(Debug, Deserialize)]
pub(super) struct Said {
    pub(super) goodput_bits_per_second: f64,
    pub(super) down: Option<Way>,
    pub(super) rtt: RoundTrips,
}

#[derive(Debug, Deserialize)]
pub(super) struct Way {
    pub(super) messages: Option<Messages>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Messages {
    pub(super) sent: u64,
    pub(super) loss_ratio: f64,
    pub(super) ipdv: Times,
}

#[derive(Debug, Deserialize)]
pub(super) struct RoundTrips {
    pub(super) loaded: Times,
    pub(super) jitter_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Times {
    pub(super) mean_seconds: Option<f64>,
    pub(super) p50_seconds: Option<f64>,
}

/// Runs `sennit test`, each time with a server of its own.
pub(super) struct Tester<'a> {
    pub(super) lab: &'a Lab,
    pub(super) programs: &'a Programs,
    /// Where the server runs.
    pub(super) far: Role,
    pub(super) address: Dual,
}

impl Tester<'_> {
    /// What each of [`STACKS`] says, one after the other.
    pub(super) fn both(&self, arguments: &[&str]) -> Result<[Said; 2], Error> {
        let [first, second] = STACKS.map(|(stack, _)| self.one(stack, arguments));
        Ok([first?, second?])
    }

    fn one(&self, stack: &str, arguments: &[&str]) -> Result<Said, Error> {
        eprintln!("sennit test, {stack}");
        let address = format!("{}:{TEST_PORT}", self.address.text(false));
        let mut server = self.lab.host(self.far).command(&self.programs.sennit);
        server.args(["test", "server", "--listen", &address, "--stack", stack]);
        server.stderr(Stdio::null());
        // Ends with the test.
        let _server = Running::start(&mut server)?;
        let mut client = self.lab.host(Role::Edge).command(&self.programs.sennit);
        client.args(["test", "client", &address, "--json", "--stack", stack]);
        let output = host::run(client.args(arguments))?;
        serde_json::from_slice(&output.stdout).map_err(|error| failed("sennit test", &error))
    }
}

/// What our stacks said of a thing, those that said anything.
pub(super) fn ours(said: &[Said; 2], of: impl Fn(&Said) -> Option<f64>) -> Vec<Found> {
    let named = STACKS.iter().zip(said);
    named
        .filter_map(|((_, name), said)| Some(Found::new(name, of(said)?)))
        .collect()
}

/// What irtt found, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Irtt {
    pub(super) p50: f64,
    /// P95 − P50.
    pub(super) jitter: f64,
    /// Mean of the absolute differences between the delays of neighbours, to the client.
    pub(super) ipdv: f64,
    /// Standard deviation of these, and how many there are.
    pub(super) ipdv_deviation: f64,
    pub(super) count: u64,
}

/// What `irtt client -o` writes, as far as it counts here. All times are in nanoseconds.
#[derive(Debug, Deserialize)]
struct Written {
    stats: Stats,
    round_trips: Vec<Trip>,
}

#[derive(Debug, Deserialize)]
struct Stats {
    ipdv_receive: Summary,
}

#[derive(Debug, Deserialize)]
struct Summary {
    n: u64,
    mean: f64,
    stddev: f64,
}

#[derive(Debug, Deserialize)]
struct Trip {
    #[serde(default)]
    delay: Delay,
}

#[derive(Debug, Default, Deserialize)]
struct Delay {
    rtt: Option<f64>,
}

impl Irtt {
    /// Whether there is an irtt on this machine.
    pub(super) fn is_here() -> bool {
        is_there(Path::new("irtt"))
    }

    pub(super) fn run(lab: &Lab, seconds: u32) -> Result<Self, Error> {
        eprintln!("irtt");
        let address = format!("{}:{IRTT_PORT}", plan::SERVER.text(false));
        let mut server = lab.host(Role::Server).command("irtt");
        server
            .args(["server", "-b", &address])
            .stdout(Stdio::null());
        let _server = Running::start(&mut server)?;
        until_listening(lab)?;
        let (interval, duration) = (format!("{PROBE_MS}ms"), format!("{seconds}s"));
        let mut client = lab.host(Role::Edge).command("irtt");
        client.args(["client", "-Q", "-o", "-", "-i", &interval, "-d", &duration]);
        let output = host::run(client.args(["-l", IRTT_BYTES, &address]))?;
        Self::read(&output.stdout)
    }

    fn read(written: &[u8]) -> Result<Self, Error> {
        let written: Written =
            serde_json::from_slice(written).map_err(|error| failed("irtt", &error))?;
        let trips = written.round_trips.iter();
        let trips: Vec<f64> = trips.filter_map(|trip| trip.delay.rtt).collect();
        let at = |share| quantile(&trips, share).ok_or_else(|| failed("irtt", &"no answer came"));
        let (p50, p95) = (at(0.5)? / 1e9, at(0.95)? / 1e9);
        let ipdv = written.stats.ipdv_receive;
        Ok(Self {
            p50,
            jitter: p95 - p50,
            ipdv: ipdv.mean / 1e9,
            ipdv_deviation: ipdv.stddev / 1e9,
            count: ipdv.n,
        })
    }
}

/// A client that comes too early is refused.
fn until_listening(lab: &Lab) -> Result<(), Error> {
    let deadline = Instant::now() + LISTEN_PATIENCE;
    let filter = format!("sport = :{IRTT_PORT}");
    while Instant::now() < deadline {
        let sockets = lab.host(Role::Server).exec(&["ss", "-Hlun", &filter])?;
        if !sockets.stdout.is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(failed(
        "irtt",
        &format!("it does not listen on port {IRTT_PORT}"),
    ))
}

fn failed(name: &str, reason: &dyn Display) -> Error {
    Error::Traffic {
        name: name.into(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_round_trips_of_irtt_are_left_out() {
        let written =
            br#"{"stats": {"ipdv_receive": {"n": 2, "mean": 2e5, "stddev": 1e5, "max": 3}},
            "round_trips": [{"lost": "true_up", "delay": {}}, {"lost": "true"},
                {"delay": {"rtt": 20000000, "send": 1}}, {"delay": {"rtt": 21000000}},
                {"delay": {"rtt": 29000000}}]}"#;

        let irtt = Irtt::read(written).expect("it is whole");

        assert_eq!((irtt.p50, irtt.ipdv, irtt.count), (0.021, 2e-4, 2));
        assert!((irtt.jitter - 0.008).abs() < 1e-12);
        let none =
            br#"{"stats": {"ipdv_receive": {"n": 0, "mean": 0, "stddev": 0}}, "round_trips": []}"#;
        assert!(Irtt::read(none).is_err(), "no answer is no round trip of 0");
    }
}
