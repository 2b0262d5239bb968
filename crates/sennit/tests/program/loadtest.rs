//! `sennit test` over loopback, as a user runs it.

mod interrupts;
mod refusals;
mod stacks;
mod told;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sennit::loadtest::compare::Comparison;
use sennit::loadtest::report::{Report, Way};
use sennit::loadtest::second::Second;
use sennit::loadtest::stack::StackName;
use sennit_core::Congestion;
use sennit_engine::{Bare, BareConfig, BareReceived};

fn sennit(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sennit"));
    command.arg("test").args(args);
    command.env_remove("SENNIT_LOG").stdin(Stdio::null());
    command
}

/// A server on a port of its own, which ends with the test.
struct Server {
    child: Child,
    address: String,
    fingerprint: String,
    /// Read to its end, so that the server never waits for us.
    _rest: thread::JoinHandle<()>,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let mut command = sennit(&["server", "--listen", "127.0.0.1:0"]);
        let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            line
        };
        let (listening, certificate) = (line(), line());
        let address = listening.strip_prefix("Listening on ").unwrap();
        let address = address.strip_suffix(" (UDP).\n").unwrap().to_owned();
        let fingerprint = certificate.strip_prefix("Certificate: ").unwrap().trim();
        let fingerprint = fingerprint.to_owned();
        let _rest = thread::spawn(move || {
            let _ = lines.read_to_end(&mut Vec::new());
        });
        Self {
            child,
            address,
            fingerprint,
            _rest,
        }
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = sennit(&["client", &self.address, "--json"]);
        command.args(args);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn report(output: &Output, code: i32) -> Report {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, reason: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(reason), "{stderr}");
    assert!(output.stdout.is_empty(), "stdout is for data");
}

#[test]
fn both_ways_over_several_connections_have_figures_of_both_ends() {
    let server = Server::start(&[]);
    let args = [
        "--duration",
        "1",
        "--direction",
        "both",
        "--connections",
        "2",
    ];
    let output = server.client(&args).args(["--streams", "2"]).output();

    let report = report(&output.unwrap(), 0);

    let both = |way: &Option<Way>| way.clone().unwrap();
    let (up, down) = (both(&report.up), both(&report.down));
    for way in [&up, &down] {
        assert_eq!(way.flows, 4, "two streams of two connections");
        let fairness = way.fairness.unwrap();
        assert!(
            (0.3..1.0 + 1e-9).contains(&fairness),
            "all get something: {way:?}"
        );
        assert!(way.bytes > 100_000, "{way:?}");
        assert!((0.9..1.1).contains(&way.seconds), "{way:?}");
        assert!(way.sent_packets > 0 && !way.controllers.is_empty());
        let bits = way.bytes as f64 * 8.0 / way.seconds;
        assert!((way.goodput_bits_per_second / bits - 1.0).abs() < 1e-9);
    }
    let sum = up.goodput_bits_per_second + down.goodput_bits_per_second;
    assert!((report.goodput_bits_per_second / sum - 1.0).abs() < 1e-9);
    assert!(report.rtt.idle.count > 5, "{:?}", report.rtt);
    assert!(report.rtt.loaded.count > 5 && report.rtt.probes >= report.rtt.loaded.count);
    let handshakes = report.handshake;
    for time in [
        handshakes.post_quantum_seconds,
        handshakes.classic_seconds,
        handshakes.resumed_seconds,
    ] {
        assert!(time.is_some_and(|time| time > 0.0), "{handshakes:?}");
    }
    assert!(report.cpu.client_seconds.is_some_and(|cpu| cpu > 0.0));
    assert!(report.cpu.server_waited_seconds.is_some() && report.other_tests == Some(0));
    assert!(!report.interrupted && report.plan.token.is_none());
}

#[test]
fn messages_leave_at_their_rate_and_are_counted_one_by_one() {
    let server = Server::start(&[]);
    for direction in ["up", "down"] {
        let args = ["--duration", "1", "--message", "500", "--rate", "2Mbit"];
        let output = server
            .client(&args)
            .args(["--direction", direction])
            .output();

        let report = report(&output.unwrap(), 0);

        let way = report.up.or(report.down).unwrap();
        let messages = way.messages.unwrap();
        assert!((450..=510).contains(&messages.sent), "{messages:?}");
        assert_eq!(messages.duplicates, 0);
        assert_eq!(messages.bytes, messages.received * 500);
        assert!(messages.loss_ratio < 0.02, "{messages:?}");
        assert!(messages.ipdv.count > 400, "{messages:?}");
        let goodput = report.goodput_bits_per_second;
        assert!((1.7e6..2.05e6).contains(&goodput), "{goodput}");
    }
}

/// A sender that overflows the receiver's queue leaves thousands of gaps in one large window.
#[test]
fn a_stream_with_many_gaps_goes_on() {
    let server = Server::start(&[]);
    for direction in ["up", "down"] {
        let args = ["--duration", "1", "--cc", "cubic", "--direction", direction];
        let output = server.client(&args).output();
        assert!(report(&output.unwrap(), 0).goodput_bits_per_second > 1e6);
    }
}

#[test]
fn requests_are_answered_at_their_rate_or_one_after_the_other() {
    let server = Server::start(&[]);
    let test = |args: &[&str]| {
        let client = server.client(&["--requests", "--connections", "3", "--duration", "1"]);
        let output = { client }.args(args).output().unwrap();
        report(&output, 0).requests.unwrap()
    };

    let open = test(&["--requests-per-second", "200", "--answer-bytes", "5000"]);
    let closed = test(&["--concurrency", "2"]);

    assert!((150..=200).contains(&open.answered), "{open:?}");
    assert!(closed.answered > 200, "{closed:?}");
    for found in [open, closed] {
        // Who still waited at the end counts if that was long.
        let asked = found.answered..=found.answered + found.unanswered;
        assert!(asked.contains(&found.latency.count), "{found:?}");
        let all: u64 = found
            .latency_histogram
            .iter()
            .map(|bucket| bucket.count)
            .sum();
        assert_eq!(all, found.latency.count);
    }
}

#[test]
fn requests_go_beside_a_load_if_it_has_a_direction() {
    let server = Server::start(&[]);
    let load = ["--direction", "both", "--rate", "2Mbit", "--duration", "1"];
    let requests = ["--requests", "--requests-per-second", "100"];
    let output = server.client(&load).args(requests).output();

    let report = report(&output.unwrap(), 0);

    let found = report.requests.unwrap();
    assert!((70..=100).contains(&found.answered), "{found:?}");
    assert_eq!(found.failed, 0);
    for way in [report.up, report.down] {
        let rate = way.unwrap().goodput_bits_per_second;
        assert!((1.6e6..2.1e6).contains(&rate), "{rate}");
    }
}

#[test]
fn handshakes_go_on_and_a_loaded_network_is_asked_how_responsive_it_is() {
    let server = Server::start(&[]);
    let test = |args: &[&str]| report(&server.client(args).output().unwrap(), 0);

    let visits = test(&["--handshakes", "4", "--duration", "1"])
        .handshakes
        .unwrap();
    let loaded = test(&["--responsiveness", "--rate", "4Mbit", "--duration", "3"]);

    assert!(visits.complete > 10 && visits.failed == 0, "{visits:?}");
    assert!(visits.waiting <= 4, "{visits:?}");
    assert!(visits.time.min_seconds.is_some_and(|time| time > 0.0));
    let found = loaded.responsiveness.unwrap();
    assert!(
        found.foreign_probes > 10 && found.loaded_probes > 10,
        "{found:?}"
    );
    assert!(
        found.rpm > 60.0 && found.worst_rpm <= found.rpm,
        "{found:?}"
    );
    assert!(loaded.handshake.zero_rtt_answer_seconds.is_some());
    let (asked, knocked) = (loaded.requests.unwrap(), loaded.handshakes.unwrap());
    assert!(!asked.latency_histogram.is_empty() && !knocked.time_histogram.is_empty());
}

#[test]
fn streams_keep_to_a_rate() {
    let server = Server::start(&[]);
    let args = ["--duration", "1", "--streams", "3", "--rate", "4Mbit"];
    let output = server.client(&args).args(["--cc", "cubic"]).output();

    let report = report(&output.unwrap(), 0);

    let goodput = report.goodput_bits_per_second;
    assert!((3.4e6..4.1e6).contains(&goodput), "{goodput}");
    assert_eq!(report.down.unwrap().controllers, ["cubic"]);
}
