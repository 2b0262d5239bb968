//! Whole scenarios on the real kernel, with a stand-in where the tunnel would be.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;
use sennit_lab::report::{Figure, Results, TrafficResult};
use sennit_lab::traffic::{BulkFigures, Figures, PingFigures};
use sennit_lab::{Args, Error, Options, Programs, Role, Scenario, play};

const LINKS: &str = "
name = \"test\"
[[link]]
name = \"a\"
rate_mbit = 20
delay_ms = 5
[[link]]
name = \"b\"
rate_mbit = 10
delay_ms = 10
[tunnel]
edge = { mtu = 1300 }
link.b = { tier = 2 }
[[tunnel.class]]
name = \"default\"
policy = \"bond\"
";

/// Joins and comes up as the real one does, but lets the routers do the work.
const STAND_IN: &str = r#"#!/bin/sh
case "$1" in
invite) echo TOKEN ;;
join) [ "$(cat "${2#file:}")" = TOKEN ] ;;
status) echo '{"state": "up"}' ;;
hub | edge)
    [ "$2" = init ] && exit 0
    echo "$1 runs with $(wc -l <"$3") lines"
    exec sleep 1000 ;;
esac
"#;

/// The edge of this one does not like its config.
const BROKEN: &str = r#"#!/bin/sh
case "$1" in
join) read -r token || true ;;
status) exec sleep 1000 ;;
edge) echo "the stars are wrong" >&2; exit 5 ;;
hub) [ "$2" = init ] || exec sleep 1000 ;;
esac
"#;

/// Namespaces need root; without it a test says so and proves nothing.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: needs root");
    }
    root
}

/// A directory of this test alone.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sennit-lab-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("our directory is writable");
        path
    }

    fn program(&self, text: &str) -> PathBuf {
        let path = self.file("stand-in", text);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("it is our file");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Plays steps on the links of this file.
fn play_steps(directory: &Directory, program: &str, steps: &str) -> Result<Results, Error> {
    play_repeatedly(directory, program, steps, 1)
}

fn play_repeatedly(
    directory: &Directory,
    program: &str,
    steps: &str,
    repeat: usize,
) -> Result<Results, Error> {
    play_text(directory, program, &format!("{LINKS}{steps}"), repeat)
}

fn play_text(
    directory: &Directory,
    program: &str,
    text: &str,
    repeat: usize,
) -> Result<Results, Error> {
    let scenario = Scenario::parse(text).expect("the scenario is right");
    let options = Options {
        programs: Programs::beside(directory.program(program)),
        out: directory.0.join("out"),
        repeat,
    };
    let (lab, results) = play(&scenario, text, &options, &mut |what| eprintln!("{what}"))?;
    let name = lab.host(Role::Hub).name().to_owned();
    drop(lab);
    assert!(!Path::new("/run/netns").join(name).exists());
    Ok(results)
}

fn tcp(results: &Results, step: usize) -> &BulkFigures {
    match &results.steps[step].traffic[0].figures {
        Some(Figures::Tcp(tcp)) => tcp,
        other => panic!("no TCP in step {step}: {other:?}"),
    }
}

fn ping(results: &Results, step: usize, index: usize) -> &PingFigures {
    match &results.steps[step].traffic[index].figures {
        Some(Figures::Ping(ping)) => ping,
        other => panic!("no ping in step {step}: {other:?}"),
    }
}

#[test]
fn baselines_give_what_the_links_can_carry() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "
        [[step]]
        name = \"idle\"
        seconds = 1
        traffic = [{ kind = \"ping\", via = \"link:b\", interval_ms = 50 }]
        [[step]]
        name = \"one link\"
        seconds = 4
        traffic = [{ kind = \"tcp\", via = \"link:a\", streams = 2 }]
        [[step]]
        name = \"both\"
        seconds = 6
        traffic = [{ kind = \"tcp\", via = \"mptcp\", direction = \"up\", streams = 2 }]
        [[step]]
        name = \"udp\"
        seconds = 2
        traffic = [{ kind = \"udp\", via = \"link:b\", rate_mbit = 5 }]
        [[step]]
        name = \"quic\"
        seconds = 4
        traffic = [{ kind = \"quic\", via = \"link:a\" }]
        [[step]]
        name = \"quic, up, IPv6\"
        seconds = 4
        traffic = [{ kind = \"quic\", via = \"link:a\", direction = \"up\", ipv6 = true }]
    ";

    let results = play_steps(&directory, STAND_IN, steps).expect("everything works");

    assert_eq!(results.failures(), Vec::<String>::new());
    let idle = ping(&results, 0, 0);
    assert_eq!((idle.sent, idle.received), (20, 20));
    let rtt = idle.p50_seconds.expect("all were answered");
    // On a busy machine packets leave the emulator late, and it says by how much.
    let late = 2.0 * results.steps[0].strain.late_max_seconds;
    assert!(
        (0.020..0.022 + late).contains(&rtt),
        "10 ms each way, measured {rtt}, of which {late} may be the machine's"
    );
    let alone = tcp(&results, 1).goodput * 8e-6;
    assert!(
        (17.0..19.2).contains(&alone),
        "{alone} of 20 Mbit/s, 4 % of them headers"
    );
    let both = tcp(&results, 2).goodput * 8e-6;
    assert!((23.0..28.8).contains(&both), "{both} of 30 Mbit/s");
    let Some(Figures::Udp(udp)) = &results.steps[3].traffic[0].figures else {
        panic!("no UDP")
    };
    assert_eq!(udp.lost, 0);
    assert!(
        (4.8..5.2).contains(&(udp.goodput * 8e-6)),
        "{}",
        udp.goodput
    );
    for step in [4, 5] {
        let Some(Figures::Quic(quic)) = &results.steps[step].traffic[0].figures else {
            panic!("no QUIC")
        };
        let goodput = quic.goodput * 8e-6;
        assert!(
            (15.0..19.2).contains(&goodput),
            "{goodput} of 20 Mbit/s, 6 % of them headers"
        );
        assert!(quic.retransmits.is_some());
    }
}

#[test]
fn a_cut_shows_as_a_gap_and_a_recovery() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "
        [[step]]
        name = \"cut\"
        seconds = 8
        traffic = [
            { kind = \"tcp\", via = \"link:a\" },
            { kind = \"ping\", via = \"link:a\", interval_ms = 50 },
        ]
        fault = [
            { at_s = 3, link = \"a\", action = \"outage\" },
            { at_s = 4, link = \"a\", action = \"restore\" },
        ]
    ";

    let results = play_steps(&directory, STAND_IN, steps).expect("everything works");

    let step = &results.steps[0];
    let gap = step.traffic[0].gap_seconds.expect("TCP has gaps");
    assert!(
        (0.95..4.0).contains(&gap),
        "cut for 1 s, silent for {gap} s"
    );
    let json: serde_json::Value = serde_json::from_str(&results.to_json()).expect("it is JSON");
    let bins = &json["steps"][0]["traffic"][0]["figures"]["bins"];
    assert_eq!(bins["width_seconds"], 0.01, "fine enough for short gaps");
    assert_eq!(bins["rates"].as_array().map(Vec::len), Some(800));
    let quiet = ping(&results, 0, 1).gap_seconds;
    assert!(
        (0.9..1.3).contains(&quiet),
        "cut for 1 s, no answer for {quiet} s"
    );
    let during = step.faults[0].traffic[0]
        .as_ref()
        .expect("it is TCP")
        .goodput;
    assert!(during < 1000.0, "{during} bytes/s through a dead link");
    assert!(
        step.faults[1]
            .link_recovery_seconds
            .is_some_and(|time| time < 3.0)
    );
}

#[test]
fn packets_and_fetches_are_timed_and_a_device_loses_them() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "
        [[step]]
        name = \"timed\"
        seconds = 3
        traffic = [
            { kind = \"udp\", via = \"link:b\", rate_mbit = 0.4, bytes = 500, delays = true },
            { kind = \"udp\", via = \"link:b\", direction = \"up\", rate_mbit = 0.4, bytes = 500, delays = true },
            { kind = \"fetch\", via = \"link:b\", bytes = 100000 },
        ]
        [[step]]
        name = \"lost\"
        seconds = 4
        traffic = [{ kind = \"ping\", via = \"link:a\", interval_ms = 50 }]
        fault = [{ at_s = 1, link = \"a\", action = \"drop_on_tun\", tun = { device = \"lan0\", percent = 100 }, for_s = 1 }]
    ";

    let results = play_steps(&directory, STAND_IN, steps).expect("everything works");

    assert_eq!(results.failures(), Vec::<String>::new());
    for traffic in &results.steps[0].traffic[..2] {
        let Some(Figures::Udp(udp)) = &traffic.figures else {
            panic!("no UDP")
        };
        let lateness = udp.lateness.expect("each packet is timed");
        assert_eq!((udp.packets, udp.lost, lateness.count), (300, 0, 300));
    }
    let Some(Figures::Fetch(fetch)) = &results.steps[0].traffic[2].figures else {
        panic!("no fetch")
    };
    assert_eq!((fetch.tried, fetch.fetched), (3, 3));
    let took = fetch.p50_seconds.expect("all came");
    assert!(
        (0.1..0.5).contains(&took),
        "100 KB at 10 Mbit/s and 20 ms took {took} s"
    );
    let quiet = ping(&results, 1, 0).gap_seconds;
    assert!(
        (0.9..1.3).contains(&quiet),
        "all was dropped for 1 s, no answer for {quiet} s"
    );
}

#[test]
fn the_tunnel_is_joined_started_and_accounted_for() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "
        [[step]]
        name = \"tunnel\"
        seconds = 2
        traffic = [{ kind = \"tcp\" }]
        fault = [{ at_s = 1, action = \"restart_edge\" }]
    ";

    let results = play_steps(&directory, STAND_IN, steps).expect("everything works");

    let step = &results.steps[0];
    assert_eq!(step.daemons.len(), 2);
    assert_eq!(step.status[1]["state"], "up");
    let read = |name| std::fs::read_to_string(directory.0.join("out").join(name));
    let config: toml::Table = read("edge.toml")
        .expect("it was written")
        .parse()
        .expect("it is TOML");
    assert_eq!(config["edge"]["mtu"].as_integer(), Some(1300));
    assert_eq!(config["link"][1]["interface"].as_str(), Some("wan-b"));
    assert_eq!(config["link"][1]["tier"].as_integer(), Some(2));
    assert_eq!(config["class"][0]["policy"].as_str(), Some("bond"));
    let log = read("edge.log").expect("it was written");
    assert_eq!(
        log.matches("edge runs with").count(),
        2,
        "started and started again: {log}"
    );
    let json: serde_json::Value = serde_json::from_str(&results.to_json()).expect("it is JSON");
    assert_eq!(json["schema"], "sennit.lab/2");
    assert!(json["steps"][0]["daemons"][0]["rss_bytes"].as_u64() > Some(0));
    assert!(
        json["self_check"]
            .as_array()
            .is_some_and(|checks| checks.len() == 12)
    );
    assert!(
        results.table().contains("tunnel  TCP x1 down"),
        "{}",
        results.table()
    );
}

#[test]
fn several_edges_run_side_by_side_and_each_is_accounted_for() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let text = "
        name = \"test\"
        edges = 3
        [[link]]
        name = \"a\"
        kind = \"tbf\"
        rate_mbit = 10
        [tunnel]
        link.a = { tier = 2 }
        [[step]]
        name = \"links\"
        seconds = 2
        traffic = [{ kind = \"tcp\", via = \"link:a\", from = \"edge\" }]
        [[step]]
        name = \"tunnels\"
        seconds = 2
        traffic = [
            { kind = \"tcp\", direction = \"up\" },
            { kind = \"ping\", interval_ms = 100 },
        ]
        [[step]]
        name = \"impossible\"
        seconds = 1
        traffic = [{ kind = \"tcp\", congestion = \"magic\" }]
    ";

    let results = play_text(&directory, STAND_IN, text, 1).expect("the links are as asked");

    let failures = results.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(
        failures[0].contains("3 of 3 edges, first edge 1"),
        "{failures:?}"
    );
    for step in [0, 1] {
        let all = &results.steps[step].traffic[0];
        let goodput = |edge: &TrafficResult| match &edge.figures {
            Some(Figures::Tcp(tcp)) => tcp.goodput * 8e-6,
            other => panic!("no TCP in step {step}: {other:?}"),
        };
        let own: Vec<_> = all.edges.iter().map(goodput).collect();
        assert_eq!(own.len(), 3);
        // A busy machine may give less, but over one link together none would have 4 Mbit/s.
        assert!(
            own.iter().all(|own| (4.0..9.8).contains(own)),
            "{own:?} of 10 Mbit/s each, 4 % of them headers"
        );
        assert!((goodput(all) - own.iter().sum::<f64>()).abs() < 1e-3);
        let least = results.summary[step].figure(Figure::LeastGoodput);
        let least = least.expect("all edges had some").median * 8e-6;
        assert_eq!(least, own.iter().copied().fold(f64::INFINITY, f64::min));
    }
    assert_eq!(ping(&results, 1, 1).sent, 60, "20 of each edge");
    let step = &results.steps[1];
    assert_eq!((step.daemons.len(), step.status.len()), (4, 4));
    let cpu = results.summary[1].figure(Figure::CpuSecondsPerGigabyte);
    assert!(cpu.is_some(), "of a hub and three edges");
    let table = results.table();
    assert!(
        table.contains("at an edge (least / median / most)"),
        "{table}"
    );
    assert!(table.contains("memory of the largest edge"), "{table}");
    for edge in 1..=3 {
        let read = |end| {
            let path = directory.0.join(format!("out/edge-{edge}.{end}"));
            std::fs::read_to_string(path).expect("it was written")
        };
        let config: toml::Table = read("toml").parse().expect("it is TOML");
        let link = &config["link"][0];
        assert_eq!(link["name"].as_str(), Some("a"));
        assert_eq!(link["interface"].as_str(), Some(&*format!("wan-a-{edge}")));
        assert_eq!(link["tier"].as_integer(), Some(2));
        let lan = format!("192.168.{}.0/24", 7 + edge);
        assert_eq!(config["edge"]["lan"][0].as_str(), Some(&*lan));
        assert_eq!(read("log").matches("edge runs with").count(), 1);
    }
}

#[test]
fn a_daemon_that_ends_is_reported_with_its_last_words() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "[[step]]\nname = \"s\"\nseconds = 1\ntraffic = [{ kind = \"ping\" }]\n";

    let results = play_steps(&directory, BROKEN, steps).expect("the links are as asked");

    let failures = results.failures();
    assert!(
        failures[0].contains("the edge ended by itself"),
        "{failures:?}"
    );
    assert!(failures[0].contains("the stars are wrong"), "{failures:?}");
    assert!(results.table().contains("the stars are wrong"));
}

/// Its server listens only after a while, and its client prints what a real one finds.
const TESTER: &str = r#"#!/bin/sh
case "$2" in
server)
    sleep 0.2
    echo "Listening on $4 (UDP)." >&2
    exec sleep 1000 ;;
client)
    shift 2
    echo "$@" >&2
    echo '{"goodput_bits_per_second": 8e6, "up": null, "down": null,
        "rtt": {"loaded": {"p50_seconds": 0.01, "p95_seconds": 0.02, "p99_seconds": 0.03},
            "jitter_seconds": 0.01},
        "handshake": {"post_quantum_seconds": 0.012, "classic_seconds": 0.01}}' ;;
esac
"#;

#[test]
fn what_sennit_test_finds_on_a_link_are_figures_of_its_step() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "
        [[step]]
        name = \"test\"
        seconds = 1
        traffic = [{ kind = \"test\", via = \"link:a\", arguments = [\"--connections\", \"3\"] }]
    ";

    let results = play_steps(&directory, TESTER, steps).expect("the links are as asked");

    assert_eq!(results.failures(), Vec::<String>::new());
    let figure = |figure| results.summary[0].figure(figure).expect("it was printed");
    assert_eq!(figure(Figure::Goodput).median, 1e6);
    assert!((figure(Figure::HandshakeRatio).median - 1.2).abs() < 1e-9);
    let asked = std::fs::read_to_string(directory.0.join("out/step-01-1-program.txt"));
    let asked = asked.expect("the client was started");
    assert_eq!(
        asked.trim(),
        "203.0.113.10:5201 --json --connections 3 --duration 1"
    );
}

#[test]
fn traffic_that_fails_is_reported_and_the_rest_goes_on() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "
        [[step]]
        name = \"impossible\"
        seconds = 1
        traffic = [{ kind = \"tcp\", via = \"link:a\", congestion = \"magic\" }]
        [[step]]
        name = \"possible\"
        seconds = 1
        traffic = [{ kind = \"ping\", via = \"link:a\" }]
    ";

    let results = play_steps(&directory, STAND_IN, steps).expect("the scenario goes on");

    let failures = results.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(
        failures[0].starts_with("impossible: TCP x1 down:"),
        "{failures:?}"
    );
    assert_eq!(ping(&results, 1, 0).received, 10);
}

#[test]
fn repeated_steps_are_all_kept_and_summed_up() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let steps = "
        [[step]]
        name = \"idle\"
        seconds = 1
        traffic = [{ kind = \"ping\", via = \"link:b\" }]
        [[step]]
        name = \"tunnel\"
        seconds = 1
        traffic = [{ kind = \"tcp\" }]
    ";

    let results = play_repeatedly(&directory, STAND_IN, steps, 2).expect("everything works");

    let played: Vec<_> = results
        .steps
        .iter()
        .map(|step| (step.run, step.name.as_str()))
        .collect();
    assert_eq!(
        played,
        [(1, "idle"), (1, "tunnel"), (2, "idle"), (2, "tunnel")]
    );
    let json: serde_json::Value = serde_json::from_str(&results.to_json()).expect("it is JSON");
    assert_eq!(
        (&json["runs"], &json["summary"][1]["name"]),
        (&2.into(), &"tunnel".into())
    );
    let rtt = &json["summary"][0]["traffic"][0]["figures"]["p50_seconds"];
    assert_eq!(rtt["runs"], 2);
    let [min, median, max] =
        ["min", "median", "max"].map(|key| rtt[key].as_f64().expect("a number"));
    // How late the machine is has no bound; too early nothing can be.
    assert!((0.020..=median).contains(&min) && median <= max, "{rtt}");
    assert!(
        results.table().contains("medians of 2 runs"),
        "{}",
        results.table()
    );
    assert!(directory.0.join("out/run-2-step-01-1-ping.txt").exists());
}

/// A veth, and one tunnel over it with a moment of everything.
fn over_a_veth(kind: &str, uso: bool) -> String {
    let up = "from = \"edge\", to = \"hub\", direction = \"up\"";
    format!(
        "name = \"test\"
        [[link]]
        name = \"wire\"
        kind = \"veth\"
        uso = {uso}
        [tunnel]
        kind = [\"{kind}\"]
        [[step]]
        name = \"idle\"
        seconds = 1
        traffic = [{{ kind = \"ping\", from = \"edge\", to = \"hub\", interval_ms = 50 }}]
        [[step]]
        name = \"up\"
        seconds = 1
        traffic = [{{ kind = \"tcp\", streams = 2, {up} }}]
        [[step]]
        name = \"down, IPv6\"
        seconds = 1
        traffic = [{{ kind = \"tcp\", from = \"edge\", to = \"hub\", ipv6 = true }}]
        [[step]]
        name = \"packets up\"
        seconds = 2
        traffic = [{{ kind = \"packets\", loss_percent = 49, {up} }}]
        [[step]]
        name = \"packets down\"
        seconds = 2
        traffic = [{{ kind = \"packets\", loss_percent = 49, from = \"edge\", to = \"hub\" }}]
        [[step]]
        name = \"nothing\"
        seconds = 1
        traffic = [{{ kind = \"idle\" }}]"
    )
}

/// Plays it and looks whether everything came through, and what the daemons used.
fn assert_carries(programs: Programs, text: &str) {
    let directory = Directory::new();
    let scenario = Scenario::parse(text).expect("the scenario is right");
    let options = Options {
        programs,
        out: directory.0.join("out"),
        repeat: 1,
    };

    let played = play(&scenario, text, &options, &mut |what| eprintln!("{what}"));

    let (_lab, results) = played.expect("the links are there");
    assert_eq!(results.failures(), Vec::<String>::new());
    assert_eq!(ping(&results, 0, 0).received, 20);
    for step in [1, 2] {
        let goodput = tcp(&results, step).goodput * 8e-6;
        assert!(goodput > 50.0, "step {step}: {goodput} Mbit/s");
        let cpu = results.summary[step].figure(Figure::CpuSecondsPerGigabyte);
        assert!(
            cpu.is_some_and(|cpu| cpu.median > 0.1),
            "step {step}: {cpu:?}"
        );
    }
    for step in [3, 4] {
        let packets = results.summary[step].figure(Figure::PacketsPerSecond);
        let packets = packets.expect("some rate passes").median;
        assert!(packets > 1e3, "step {step}: {packets} packets/s");
    }
    let idle = &results.summary[5];
    for figure in [Figure::HubRssBytes, Figure::EdgeRssBytes] {
        let memory = idle.figure(figure).expect("the daemons were there").median;
        assert!((1e6..2e9).contains(&memory), "{memory} bytes");
    }
    let share = idle
        .figure(Figure::CpuShare)
        .expect("the daemons were there");
    assert!(share.median < 0.5, "{share:?} of a core for nothing");
}

#[test]
fn the_ideal_tunnel_carries_tcp_and_packets() {
    if !root() {
        return;
    }
    let mut programs = Programs::beside("/nowhere/sennit".into());
    programs.ideal = env!("CARGO_BIN_EXE_ideal-tunnel").into();

    for uso in [true, false] {
        assert_carries(programs.clone(), &over_a_veth("ideal", uso));
    }
}

#[test]
fn wireguard_go_carries_tcp_and_packets() {
    if !root() {
        return;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = std::env::split_paths(&path).collect();
    for program in ["wireguard-go", "wg"] {
        if !places.iter().any(|place| place.join(program).exists()) {
            eprintln!("SKIPPED: needs {program}, of wireguard-go and wireguard-tools");
            return;
        }
    }
    let programs = Programs::beside("/nowhere/sennit".into());

    assert_carries(programs, &over_a_veth("wireguard-go", true));

    let sockets = std::fs::read_dir("/var/run/wireguard")
        .into_iter()
        .flatten();
    let own = format!("snt{}-", std::process::id());
    let left = sockets.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(&own)
    });
    assert_eq!(left.count(), 0, "sockets are left");
}

#[test]
fn a_scenario_in_which_nothing_happens_is_refused_before_anything_is_built() {
    let link = "name = \"t\"\n[[link]]\nname = \"a\"\n";
    let step = "[[step]]\nname = \"s\"\n";
    let long = "long = true\ntraffic = [{ kind = \"ping\", via = \"link:a\" }]\n";
    let directory = Directory::new();
    let refused = |text: &str, quick: bool| {
        let mut scenario = Scenario::parse(text).expect("its links are right");
        if quick {
            scenario = scenario.quick();
        }
        let options = Options {
            programs: Programs::beside("/nowhere/sennit".into()),
            out: directory.0.join("out"),
            repeat: 1,
        };
        let error = play(&scenario, text, &options, &mut |_| {}).expect_err("nothing happens");
        error.to_string()
    };

    assert!(refused(link, false).contains("no [[step]]"));
    assert!(refused(&format!("{link}{step}"), false).contains("neither [[step.traffic]] nor"));
    assert!(refused(&format!("{link}{step}{long}"), true).contains("--quick"));
    assert!(!directory.0.join("out").exists());
}

#[test]
fn a_tunnel_that_is_not_installed_is_named_before_anything_is_built() {
    let text = over_a_veth("ideal", true);
    let scenario = Scenario::parse(&text).expect("the scenario is right");
    let directory = Directory::new();
    let options = Options {
        programs: Programs::beside("/nowhere/sennit".into()),
        out: directory.0.join("out"),
        repeat: 1,
    };

    let played = play(&scenario, &text, &options, &mut |_| {});

    let error = played.expect_err("it is not there").to_string();
    let missing = "/nowhere/ideal-tunnel not found: build it";
    assert!(
        error.contains(missing) || error.contains("install the packages"),
        "{error}"
    );
}

/// Not a test: the process that the next test interrupts.
#[test]
#[ignore = "only for the test that interrupts it"]
fn lab_that_waits_for_a_signal() {
    let file = std::env::var("SCENARIO").expect("the other test sets it");
    let _ = sennit_lab::run(Args::parse_from(["lab", "links", &file]));
}

#[test]
fn a_signal_removes_everything() {
    if !root() {
        return;
    }
    let directory = Directory::new();
    let own = std::env::current_exe().expect("we are running");
    let mut lab = Command::new(own)
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "lab_that_waits_for_a_signal",
        ])
        .env("SCENARIO", directory.file("links.toml", LINKS))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary runs");
    // The end of its input would end it too, so that stays open.
    let _input = lab.stdin.take();
    let mut lines = std::io::BufReader::new(lab.stderr.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("Ctrl-C") {
        let read = std::io::BufRead::read_line(&mut lines, &mut said).expect("it is text");
        assert!(read > 0, "it ended early: {said}");
    }
    let name = format!("snt{}-0-edge", lab.id());
    assert!(Path::new("/run/netns").join(&name).exists());

    let pid = rustix::process::Pid::from_child(&lab);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    let status = lab.wait().expect("it is ours");

    assert_eq!(status.code(), Some(130));
    assert!(!Path::new("/run/netns").join(&name).exists());
}
