//! `sennit test` over loopback, as a user runs it.

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

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
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
        assert_eq!(found.latency.count, found.answered);
        let all: u64 = found
            .latency_histogram
            .iter()
            .map(|bucket| bucket.count)
            .sum();
        assert_eq!(all, found.answered);
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
}

#[test]
fn configurations_are_compared_round_by_round() {
    let server = Server::start(&[]);
    let args = [
        "--duration",
        "0.3",
        "--repeat",
        "6",
        "--compare",
        "rate=1M,4M",
        "--gate",
        "goodput>2Mbit",
        "--report",
    ];
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");

    let output = server.client(&args).arg(&page).output().unwrap();

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    let page = std::fs::read_to_string(&page).unwrap();
    for part in ["rate=4M", "whisker", "better", "6 of 12 runs"] {
        assert!(page.contains(part), "{part}");
    }
    let found: Comparison = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((found.rounds, found.reports[0].len()), (6, 2));
    let line = |name: &str| {
        let mut lines = found.lines.iter();
        let line = lines.find(|line| line.metric == "goodput" && line.configuration == name);
        line.unwrap().clone()
    };
    assert_eq!(line("rate=1M").difference, None);
    let faster = line("rate=4M");
    assert_eq!(faster.differs, Some(true), "{faster:?}");
    assert!(faster.difference.unwrap().median > 1e6);
    assert_eq!(found.gates(), [("goodput>2Mbit", 6, 12)]);
}

#[test]
fn perf_is_spoken_with_who_serves_it() {
    let server = Server::start(&["--perf"]);
    let args = [
        "--perf",
        "--direction",
        "both",
        "--duration",
        "1",
        "--streams",
        "2",
    ];
    let output = server.client(&args).output();

    let found = report(&output.unwrap(), 0);

    for way in [&found.up, &found.down] {
        let way = way.as_ref().unwrap();
        assert!(way.bytes > 1_000_000 && way.flows == 2, "{way:?}");
    }
    assert!(found.rtt.loaded.count > 5 && found.protocol == "perf");
    assert!(found.handshake.post_quantum_seconds.is_some());
    // Whoever speaks ours is served beside it.
    let ours = server.client(&["--duration", "0.2"]).output();
    assert_eq!(report(&ours.unwrap(), 0).protocol, "sennit-test/1");

    let bytes = server
        .client(&["--perf", "--bytes", "3M", "--connections", "2"])
        .output();
    let down = report(&bytes.unwrap(), 0).down.unwrap();
    assert_eq!(down.bytes, 3_000_000);
}

#[test]
fn a_server_without_perf_is_told_from_none() {
    let server = Server::start(&[]);
    let output = server
        .client(&["--perf", "--timeout", "1"])
        .output()
        .unwrap();
    assert_fails(&output, 4, "does not serve `perf`");
    let both = sennit(&["server", "--perf", "--token", "secret"])
        .output()
        .unwrap();
    assert_fails(&both, 2, "--token");
}

#[test]
fn either_stack_is_served_by_either() {
    let ours = Server::start(&[]);
    let quinn = Server::start(&["--stack", "quinn"]);
    for (server, named, client) in [
        (&ours, StackName::Sennit, "quinn"),
        (&quinn, StackName::Quinn, "sennit"),
    ] {
        let mut command = server.client(&["--stack", client, "--duration", "0.3"]);
        let load = ["--direction", "both", "--streams", "2", "--cc", "bbr"];
        let both = report(&command.args(load).output().unwrap(), 0);

        assert_eq!(both.server_stack, Some(named));
        assert_eq!(both.client_stack.to_string(), client);
        for way in [both.up, both.down] {
            let way = way.unwrap();
            assert!(way.bytes > 100_000 && way.flows == 2, "{way:?}");
            assert_eq!(way.controllers, ["bbr"]);
        }
        assert!(both.rtt.loaded.count > 5, "{:?}", both.rtt);
        assert!(both.handshake.zero_rtt_answer_seconds.is_some());
    }
}

#[test]
fn quinn_asks_and_speaks_perf_too() {
    let server = Server::start(&["--perf", "--stack", "quinn"]);
    let test = |args: &[&str]| {
        let mut command = server.client(&["--stack", "quinn", "--duration", "0.3"]);
        report(&command.args(args).output().unwrap(), 0)
    };

    let asked = test(&["--requests", "--connections", "2"]);
    let perf = test(&["--perf", "--direction", "up"]);

    assert!(asked.requests.unwrap().answered > 20);
    assert!(perf.up.unwrap().bytes > 100_000 && perf.server_stack.is_none());
}

#[test]
fn a_stack_without_a_controller_says_so() {
    let server = Server::start(&["--stack", "quinn"]);
    let here = server
        .client(&["--stack", "quinn", "--cc", "bbr3"])
        .output();
    assert_fails(&here.unwrap(), 2, "quinn has no congestion control `bbr3`");
    let there = server.client(&["--cc", "follow"]).output().unwrap();
    assert_fails(&there, 1, "quinn, has no congestion control `follow`");
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

#[test]
fn where_no_server_is_the_address_is_told_in_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let start = Instant::now();

    let output = sennit(&["client", &address, "--timeout", "0.5"]).output();

    assert_fails(
        &output.unwrap(),
        4,
        &format!("no test server answers at {address}"),
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn addresses_and_numbers_that_mean_nothing_are_usage_errors() {
    for (args, reason) in [
        (&["client", "https://host"][..], "is no server"),
        (&["client", "127.0.0.1:0"], "is no server"),
        (&["client", "0.0.0.0"], "nobody can be reached"),
        (
            &["client", "127.0.0.1", "--cc", "reno"],
            "write one of auto, cubic",
        ),
        (&["client", "127.0.0.1", "--rate", "fast"], "like 500k"),
        (
            &["client", "127.0.0.1", "--duration", "0"],
            "measures nothing",
        ),
        (
            &["client", "127.0.0.1", "--pin", "abc"],
            "64 hexadecimal digits",
        ),
        (&["client", "127.0.0.1", "--message", "9000"], "17..=1100"),
        (
            &["client", "127.0.0.1", "--fec", "rs:10+2"],
            "as in `--message 1000",
        ),
        (
            &["client", "127.0.0.1", "--message", "1000", "--fec", "auto"],
            "which a test does not have",
        ),
        (
            &["client", "127.0.0.1", "--message", "99", "--fec", "rs:0+2"],
            "1 to 255 packets",
        ),
        (
            &["client", "127.0.0.1", "--stack", "lsquic"],
            "write sennit or quinn",
        ),
        (&["server", "--listen", "here"], "invalid"),
        (&["server", "--token", ""], "it is empty"),
        (&["client", "127.0.0.1", "--token", " "], "it is empty"),
        (
            &["client", "127.0.0.1", "--profile", "/nowhere"],
            "cannot read /nowhere",
        ),
    ] {
        assert_fails(&sennit(args).output().unwrap(), 2, reason);
    }
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    // Nobody has an address of documentation (RFC 5737).
    let output = sennit(&["server", "--listen", "192.0.2.1:4774"]).output();
    assert_fails(&output.unwrap(), 1, "192.0.2.1:4774: Cannot assign");
}

#[test]
fn a_token_a_pin_and_a_limit_are_kept() {
    let server = Server::start(&["--token", "open sesame", "--max-duration", "2"]);
    let test = |args: &[&str]| {
        server
            .client(&["--duration", "0.3"])
            .args(args)
            .output()
            .unwrap()
    };
    let wrong_pin = "0".repeat(64);

    assert_fails(&test(&[]), 1, "the token is not this server's");
    assert_fails(
        &test(&["--token", "sesame"]),
        1,
        "the token is not this server's",
    );
    let known = ["--token", "open sesame", "--pin"];
    let wrong = [&known[..], &[&wrong_pin]].concat();
    assert_fails(&test(&wrong), 1, "is not the one of --pin");
    let long = ["--token", "open sesame", "--duration", "3"];
    let output = server.client(&long).output().unwrap();
    assert_fails(
        &output,
        1,
        "2 s at most here, and this one would last 3 s: say --duration 2",
    );
    let bytes = ["--token", "open sesame", "--bytes", "1M"];
    let bytes = server.client(&bytes).args(["--warmup", "0.5"]).output();
    assert_fails(&bytes.unwrap(), 1, "say --duration 1.5 beside --bytes");

    let right = [&known[..], &[server.fingerprint.as_str()]].concat();
    assert!(report(&test(&right), 0).goodput_bits_per_second > 0.0);
}

#[test]
fn a_profile_is_checked_and_met() {
    let server = Server::start(&[]);
    let args = ["--profile", "20:10/15", "--duration", "2", "--warmup", "1"];
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");

    let output = server.client(&args).arg("--report").arg(&page).output();

    let report = report(&output.unwrap(), 0);
    let page = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<dt>machine",
        "cores",
        "20.000 Mbit/s",
        ">delay<",
        "Packets during",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let link = report.emulated.unwrap();
    assert_eq!((link.profile.as_str(), link.checks.len()), ("20:10/15", 6));
    // No link is faster than it is, however busy the machine.
    assert!(report.goodput_bits_per_second < 10e6, "{link:?}");
    assert!(
        report.rtt.idle.min_seconds.unwrap() >= 0.030,
        "{:?}",
        report.rtt
    );
    assert!(link.down.left > 100 && link.up.entered > 0, "{link:?}");
    assert_eq!(
        link.exact,
        report.notes.iter().all(|note| !note.contains("NOT EXACT"))
    );
    if link.exact {
        assert!(report.goodput_bits_per_second > 8e6, "{link:?}");
        assert!(
            report.rtt.idle.p50_seconds.unwrap() < 0.035,
            "{:?}",
            report.rtt
        );
    }
}

#[test]
fn bytes_end_a_test_and_gates_decide_how() {
    let server = Server::start(&[]);
    let test = |gates: &[&str]| {
        // Slow enough that round trips are measured meanwhile.
        let network = ["--profile", "20/2"];
        let mut client = server.client(&["--bytes", "2M", "--direction", "both"]);
        client.args(network);
        client.args(gates.iter().flat_map(|gate| ["--gate", gate]));
        client.output().unwrap()
    };

    let good = report(&test(&["goodput > 1k", "p99_rtt < 60s"]), 0);
    let bad = report(&test(&["goodput > 1k", "p99_rtt < 1us", "loss < 1%"]), 6);

    for way in [good.up, good.down] {
        assert_eq!(way.unwrap().bytes, 2_000_000);
    }
    assert!(good.gates.iter().all(|gate| gate.passed));
    let passed: Vec<_> = bad.gates.iter().map(|gate| gate.passed).collect();
    assert_eq!(passed[..2], [true, false]);
    let refused = server.client(&["--gate", "p95_rtt ! 80ms"]).output();
    assert_fails(&refused.unwrap(), 2, "          ^ write <, <=, > or >=");
}

#[test]
fn what_a_mobile_network_loses_is_repaired_and_told_in_every_form() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let [csv, json, page] = ["a.csv", "a.ndjson", "a.html"].map(|name| folder.path().join(name));
    let load = ["--message", "500", "--rate", "4Mbit", "--fec", "rs:10+2"];
    let test = [
        "--duration",
        "3",
        "--direction",
        "both",
        "--profile",
        "mobile",
    ];
    let gates = [
        "fec_recovered > 0",
        "residual_loss < 4%",
        "fec_overhead >= 18%",
    ];
    let mut client = server.client(&load);
    client
        .args(test)
        .arg("--csv")
        .arg(&csv)
        .arg("--ndjson")
        .arg(&json);
    client.arg("--report").arg(&page);
    client.args(gates.iter().flat_map(|gate| ["--gate", gate]));

    let report = report(&client.output().unwrap(), 0);

    for way in [report.up, report.down] {
        let way = way.unwrap();
        let fec = way.fec.unwrap();
        assert_eq!(fec.code, "rs:10+2");
        assert!(fec.symbols.recovered > 20, "{fec:?}");
        assert!(fec.wire_loss_ratio > 0.02, "{fec:?}");
        assert!(
            fec.residual_loss_ratio < fec.wire_loss_ratio / 2.0,
            "{fec:?}"
        );
        assert_eq!(way.messages.unwrap().loss_ratio, fec.wire_loss_ratio);
    }
    let lines = std::fs::read_to_string(&json).unwrap();
    let last: Second = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    for symbols in [last.up_fec, last.down_fec] {
        assert!(symbols.unwrap().recovered > 0, "{lines}");
    }
    let table = std::fs::read_to_string(&csv).unwrap();
    assert!(
        are_alike(&last.row(), table.lines().last().unwrap()),
        "{table}"
    );
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("Error correction") && page.contains("lost after repair"));
    let plain = sennit(&["client", &server.address, "--duration", "0.3"]);
    let plain = { plain }.args(load).output().unwrap();
    let told = String::from_utf8_lossy(&plain.stdout);
    for part in [
        "protected by rs:10+2",
        "fec      rs:10+2:",
        "% after repair",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

/// Whether two rows hold the same, but for what is lost where a number is read from text.
fn are_alike(row: &str, other: &str) -> bool {
    let cells = |row: &str| row.split(',').map(str::to_owned).collect::<Vec<_>>();
    let (row, other) = (cells(row), cells(other));
    let is_alike = |(one, two): (&String, &String)| {
        let near = |one: f64, two: f64| (one - two).abs() <= one.abs() * 1e-12;
        let numbers = one.parse().ok().zip(two.parse().ok());
        one == two || numbers.is_some_and(|(one, two)| near(one, two))
    };
    row.len() == other.len() && row.iter().zip(&other).all(is_alike)
}

#[test]
fn each_second_is_written_and_what_finds_no_room_is_told() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let [json, csv] = ["a.ndjson", "a.csv"].map(|name| folder.path().join(name));
    let args = [
        "--duration",
        "2.2",
        "--rate",
        "4Mbit",
        "--direction",
        "both",
    ];
    let mut client = server.client(&args);
    client.arg("--ndjson").arg(&json).arg("--csv").arg(&csv);
    let page = folder.path().join("a.html");
    client.arg("--report").arg(&page);

    report(&client.output().unwrap(), 0);

    let page = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<!doctype html>",
        "Payload at the receiver",
        "<polyline",
        "CCDF",
        "Handshakes",
    ] {
        assert!(page.contains(part), "{part}");
    }

    let lines = std::fs::read_to_string(&json).unwrap();
    let seconds: Vec<Second> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(seconds.len() >= 2, "{lines}");
    let table = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(table.lines().count(), seconds.len() + 1, "{table}");
    assert!(table.starts_with(Second::COLUMNS));
    for (second, row) in seconds.iter().zip(table.lines().skip(1)) {
        assert!(are_alike(&second.row(), row), "{row}: {second:?}");
    }
    assert!(
        seconds
            .iter()
            .any(|second| second.up_bits_per_second.is_some_and(|rate| rate > 1e6))
    );
    assert!(seconds.iter().all(|second| second.probes > 0));

    let full = server
        .client(&args)
        .args(["--ndjson", "/dev/full"])
        .output();
    let full = full.unwrap();
    let told = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{told}");
    assert!(
        told.contains("cannot write /dev/full: No space left"),
        "{told}"
    );
    serde_json::from_slice::<Report>(&full.stdout).expect("the report is there all the same");

    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut client = server.client(&["--duration", "0.3"]);
    let output = client.stdout(full.unwrap()).stderr(Stdio::piped()).output();
    let output = output.unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("rtt loaded"), "the summary at least: {told}");
    let nowhere = folder.path().join("nowhere/page.html");
    let mut client = server.client(&["--duration", "60", "--report"]);
    assert_fails(&client.arg(&nowhere).output().unwrap(), 1, "cannot write");
}

/// A QUIC server of another protocol.
fn stranger(stop: &AtomicBool, socket: &UdpSocket) {
    let identity = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut tls = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key.into())
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = BareConfig {
        congestion: Congestion::Cubic,
        idle: Duration::from_secs(5),
        seed: [1; 32],
        reset_key: [2; 32],
        most: 10,
        most_per_address: 10,
    };
    let mut bare = Bare::server(config, Arc::new(tls)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    let mut buffer = [0; 2000];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((size, remote)) = socket.recv_from(&mut buffer) {
            let from = BareReceived {
                local: None,
                remote,
                ecn: 0,
                segment: size,
                arrived: Instant::now(),
            };
            bare.handle_datagrams(from, buffer[..size].into(), Instant::now());
        }
        bare.handle_timeout(Instant::now());
        while bare.poll_event().is_some() {}
        let mut out = Vec::new();
        while let Some(transmit) = bare.poll_transmit(&mut out, Instant::now()) {
            for packet in out.chunks(transmit.segment.unwrap_or(out.len().max(1))) {
                socket.send_to(packet, transmit.remote).unwrap();
            }
            out.clear();
        }
    }
}

#[test]
fn a_quic_server_of_another_protocol_is_told_from_none() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| stranger(&stop, &socket));
        let output = sennit(&["client", &address]).output();
        stop.store(true, Ordering::Relaxed);
        assert_fails(&output.unwrap(), 4, "speaks QUIC, but it is no test server");
    });
}

#[test]
fn whoever_interrupts_gets_what_was_measured_until_then() {
    let server = Server::start(&[]);
    let after = |seconds| {
        let mut command = server.client(&["--duration", "60", "--rate", "4Mbit"]);
        let client = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = client.spawn().unwrap();
        thread::sleep(Duration::from_secs(seconds));
        interrupt(&client);
        client.wait_with_output().unwrap()
    };
    // A machine that is very busy may not have begun by the first of them.
    let mut outputs = [2, 10, 30].into_iter().map(after);
    let output = outputs.find(|output| !output.stdout.is_empty());

    let report = report(&output.unwrap(), 130);

    let down = report.down.unwrap();
    assert!(
        report.interrupted && down.seconds < 40.0,
        "{}",
        down.seconds
    );
    assert!(report.goodput_bits_per_second > 1e6, "{down:?}");
}

#[test]
fn a_server_that_is_interrupted_tells_its_clients_and_ends_well() {
    let mut server = Server::start(&[]);
    let mut command = server.client(&["--duration", "60", "--rate", "4Mbit"]);
    let client = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = client.spawn().unwrap();
    thread::sleep(Duration::from_millis(2500));
    interrupt(&server.child);

    let output = client.wait_with_output().unwrap();

    assert_fails(&output, 1, "ended the test: the server stops");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
