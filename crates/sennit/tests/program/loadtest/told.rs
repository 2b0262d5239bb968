//! What is told of a test: gates, comparisons, each second, pages, and what finds no room.

use super::*;

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
        "--token",
        "for nobody",
        "--report",
    ];
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");

    let output = server.client(&args).arg(&page).output().unwrap();

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    let page = std::fs::read_to_string(&page).unwrap();
    for part in ["rate=4M", "whisker", "better", "6 of 12 runs", "--token"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("for nobody"), "it is a secret");
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
    for part in [
        "Error correction",
        "lost after repair",
        "Delay of messages",
        "packets lost, %",
        "ipdv p50",
    ] {
        assert!(page.contains(part), "{part}");
    }
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

#[test]
fn what_auto_chose_is_told_with_its_reason() {
    let server = Server::start(&[]);
    let load = ["--message", "500", "--rate", "4Mbit", "--fec", "auto"];
    let lossy = [
        "--profile",
        "mobile",
        "--duration",
        "3",
        "--gate",
        "fec_recovered > 0",
    ];
    let clean = ["--duration", "0.5", "--gate", "fec_overhead <= 0%"];

    let lossy = report(&server.client(&load).args(lossy).output().unwrap(), 0);
    let plain = sennit(&["client", &server.address])
        .args(load)
        .args(clean)
        .output();

    let fec = lossy.down.and_then(|way| way.fec).unwrap();
    let choice = &fec.choices[0];
    assert!(
        choice.code.as_ref().unwrap().starts_with("rlc:1/"),
        "{choice:?}"
    );
    assert_eq!(choice.reason, "what is lost is not sent again");
    assert!(
        fec.symbols.repairs_sent > 0 && fec.protected_ratio > 0.5,
        "{fec:?}"
    );
    let plain = plain.unwrap();
    let told = String::from_utf8_lossy(&plain.stdout);
    assert_eq!(plain.status.code(), Some(0), "{told}");
    for part in [
        "protected by auto",
        "fec      auto: 0 repairs sent",
        "chose    off, as the links lose too little",
        " 0.0 % of the messages were protected",
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
    client.arg("--report").arg(&page).arg("--token=for-nobody");

    report(&client.output().unwrap(), 0);

    let page = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<!doctype html>",
        "Payload at the receiver",
        "<polyline",
        "CCDF",
        "Handshakes",
        "over time, by the second",
        "packets sent again, %",
        "zero_rtt",
        "client_cpu",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("for-nobody"), "it is a secret");

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
