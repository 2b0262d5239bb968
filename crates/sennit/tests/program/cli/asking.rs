//! A daemon is asked for its status and why, and waited for.

use super::*;

#[test]
fn a_daemon_that_does_not_run_is_exit_code_4_and_8_once_it_was_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("none.sock");

    assert_fails(
        &sennit(&["status", "--control", text(&control)]),
        4,
        "no daemon answers",
    );
    let waiting = sennit(&[
        "status",
        "--control",
        text(&control),
        "--wait",
        "up",
        "--timeout",
        "0.2",
    ]);
    assert_fails(&waiting, 8, "after 0.2 s: no daemon answers");
    let control = text(&control);
    let waiting = sennit(&["wait", "--control", control, "--timeout", "0.2"]);
    assert_fails(&waiting, 8, "after 0.2 s: no daemon answers");
}

/// A daemon whose state is `up` from the `n`th question on.
fn daemon_up_after(control: &Path, n: usize) -> Server {
    let asked = AtomicUsize::new(0);
    Server::bind(control, move |_| {
        let up = asked.fetch_add(1, Ordering::SeqCst) >= n;
        Response::Document(serde_json::json!({
            "schema": "sennit.status/1", "role": "edge", "version": "0.1.0",
            "state": if up { "up" } else { "connecting" }, "reason": "no path yet",
            "uptime_seconds": 1.5, "device": "sennit0", "addresses": [], "links": [], "tunnels": [],
            "of_a_later_version": 1,
        }))
    })
    .unwrap()
}

#[test]
fn status_prints_what_the_daemon_says() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let _daemon = daemon_up_after(&control, 0);

    let shown = succeed(&["status", "--control", text(&control)]);
    let json = succeed(&["status", "--control", text(&control), "--json"]);

    assert!(
        shown.starts_with("up  edge on sennit0"),
        "no colour without a terminal: {shown:?}"
    );
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["of_a_later_version"], 1, "nothing is lost");
}

/// A daemon with one link, `lte-a`, and one flow, of which it tells when it is asked for it.
fn daemon_with_a_flow(control: &Path) -> Server {
    Server::bind(control, |request| {
        let flow = serde_json::json!({
            "flow": "tcp 10.0.0.2:40000 to 10.9.0.2:5201", "protocol": "tcp",
            "source": "10.0.0.2", "source_port": 40000,
            "destination": "10.9.0.2", "destination_port": 5201,
            "age_seconds": 3.0, "silent_seconds": 0.0, "sent_bytes": 3_000_000,
            "sent_packets": 2_200, "rate_bytes_per_second": 1e6, "placement": "one_link",
            "thin": false, "ordered": true, "links": [{"link": "lte-a", "share_ratio": 1.0}],
            "queue": {"waiting_bytes": 0, "delay_seconds": 0.001, "dropped_packets": 0,
                "marked_packets": 0, "overflowed_packets": 0, "neighbours": 0},
            "why": ["on lte-a: no other link may be used now"],
        });
        let asked = match &request {
            Request::Flow { flow } => flow.to_string().contains("10.9.0.2"),
            _ => true,
        };
        let flows = if asked { vec![flow] } else { Vec::new() };
        Response::Document(serde_json::json!({
            "schema": "sennit.status/1", "role": "edge", "version": "0.1.0", "state": "up",
            "uptime_seconds": 1.5, "device": "sennit0", "addresses": [], "links": [],
            "tunnels": [{
                "class": "default", "site": "van-07", "policy": "bond", "delivery": "repair",
                "state": "up", "since_seconds": 1.0, "sent_bytes": 0, "received_bytes": 0,
                "flow_count": flows.len(), "flows": flows,
                "paths": [{
                    "id": 0, "link": "lte-a", "remote": "203.0.113.10:443", "state": "up",
                    "cwnd_bytes": 0, "mtu_bytes": 1452, "sent_bytes": 0, "received_bytes": 0,
                    "why": "first choice: it has the least delay",
                }],
            }],
        }))
    })
    .unwrap()
}

#[test]
fn why_tells_links_and_flows_apart() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let _daemon = daemon_with_a_flow(&control);
    let ask = |words: &[&str]| succeed(&[&["why", "--control", text(&control)], words].concat());

    let link = ask(&["lte-a"]);
    assert!(link.contains("first choice"), "{link}");
    assert_eq!(ask(&[]), link, "it is the only one");

    let flow = ask(&["10.9.0.2:5201"]);
    assert!(flow.contains("from here to the hub"), "{flow}");
    assert!(flow.contains("- on lte-a: no other link may be used now"));
    let same = ask(&["tcp", "10.0.0.2:40000", "to", "10.9.0.2:5201"]);
    assert_eq!(same, flow, "as it is printed");

    let list = ask(&["--flows"]);
    assert!(list.contains("8.0 Mb/s  tcp 10.0.0.2:40000 to 10.9.0.2:5201  (lte-a 100 %)"));

    for words in [&["--flows", "--json"][..], &["10.9.0.2", "--json"]] {
        let json: serde_json::Value = serde_json::from_str(&ask(words)).unwrap();
        assert_eq!(json["schema"], "sennit.why/1");
        let flow = &json["flows"][0];
        assert_eq!(flow["direction"], "edge_to_hub");
        assert_eq!(
            (&flow["class"], &flow["destination_port"]),
            (&"default".into(), &5201.into())
        );
    }
}

#[test]
fn why_says_what_to_do_when_it_knows_neither_link_nor_flow() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let _daemon = daemon_with_a_flow(&control);
    let ask = |what: &str| sennit(&["why", what, "--control", text(&control)]);

    let no_link = ask("lte-b");
    assert_fails(&no_link, 3, "no tunnel has a path on link `lte-b`");
    assert!(stderr(&no_link).contains("sennit why --flows"));
    let no_flow = ask("192.0.2.1");
    assert_fails(&no_flow, 3, "nothing of flow `192.0.2.1` was sent");
    assert!(stderr(&no_flow).contains("sennit why --flows"));
}

#[test]
fn a_daemon_is_asked_by_its_config_also_if_that_has_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (control, config) = (dir.path().join("dock.sock"), dir.path().join("dock.toml"));
    let broken = format!("[edge]\ncontrol = '{}'\nteir = 2\n", text(&control));
    fs::write(&config, broken).unwrap();
    let reload = || sennit(&["reload", "--config", text(&config)]);
    assert_fails(&reload(), 4, text(&control));

    let _daemon = Server::bind(&control, |_| Response::refused("failed", "not now")).unwrap();
    assert_fails(&reload(), 1, "not now");
}

#[test]
fn a_daemon_whose_config_has_another_control_by_now_is_found_by_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let [before, after, config] = ["a.sock", "b.sock", "dock.toml"].map(|it| dir.path().join(it));
    let edge = format!(
        "[edge]\ncontrol = '{}'\nstate = '{}'\n",
        text(&after),
        text(dir.path())
    );
    fs::write(&config, edge).unwrap();
    let word = format!("dock0\n{}\n", text(&before));
    fs::write(dir.path().join("edge.lock"), word).unwrap();
    let reload = || sennit(&["reload", "--config", text(&config)]);
    assert_fails(&reload(), 4, text(&after));

    let _daemon = Server::bind(&before, |_| Response::refused("failed", "not now")).unwrap();
    assert_fails(&reload(), 1, "not now");
    let report = succeed(&["bugreport", "--config", text(&config)]);
    assert!(report.contains("not now"), "{report}");
}

#[test]
fn a_bugreport_has_what_happened_and_why_links_carry_what_they_carry() {
    let dir = tempfile::tempdir().unwrap();
    let [control, config] = ["edge.sock", "edge.toml"].map(|it| dir.path().join(it));
    let _daemon = Server::bind(&control, |request| {
        Response::Document(match request {
            Request::Events { .. } => serde_json::json!({
                "schema": "sennit.events/1",
                "events": [{
                    "id": 1, "time": "2026-11-30T20:00:00.000Z", "text": "link lte is up",
                    "event": "link_up", "link": "lte",
                }],
            }),
            _ => serde_json::json!({
                "schema": "sennit.status/1", "role": "edge", "version": "0.1.0", "state": "up",
                "uptime_seconds": 1.5, "device": "sennit0", "addresses": [],
                "links": [{
                    "name": "lte", "interface": "wwan0", "tier": 1, "weight": 1, "state": "up",
                }],
                "tunnels": [{
                    "class": "default", "site": "van-07", "policy": "bond",
                    "delivery": "repair", "state": "up", "since_seconds": 1.0,
                    "sent_bytes": 0, "received_bytes": 0, "paths": [],
                }],
            }),
        })
    })
    .unwrap();
    fs::write(&config, format!("[edge]\ncontrol = '{}'\n", text(&control))).unwrap();

    let report = succeed(&["bugreport", "--config", text(&config)]);

    let why = "==== why\nclass default\n  lte      -  no path: none is tried at the moment\n";
    assert!(report.contains(why), "{report}");
    let events = "==== events\n2026-11-30T20:00:00.000Z  link lte is up\n";
    assert!(report.contains(events), "{report}");
}

#[test]
fn a_daemon_with_a_link_away_is_usable_and_not_up() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let _daemon = Server::bind(&control, |_| {
        Response::Document(serde_json::json!({
            "schema": "sennit.status/1", "role": "edge", "version": "0.1.0",
            "state": "degraded", "reason": "link lte is away", "uptime_seconds": 1.5,
            "device": "sennit0", "addresses": [], "links": [], "tunnels": [],
        }))
    })
    .unwrap();
    let ask = |words: &[&str], state, seconds| {
        let more = [state, "--control", text(&control), "--timeout", seconds];
        sennit(&[words, &more].concat())
    };

    for words in [&["wait", "--for"][..], &["status", "--wait"]] {
        assert_eq!(ask(words, "usable", "30").status.code(), Some(0));
        // Long enough that a busy machine has asked once by then.
        assert_fails(&ask(words, "up", "2"), 8, "link lte is away");
    }
}

#[test]
fn waiting_ends_when_the_daemon_is_up() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let _daemon = daemon_up_after(&control, 3);

    let shown = succeed(&[
        "status",
        "--control",
        text(&control),
        "--wait",
        "up",
        "--timeout",
        "60",
    ]);

    assert!(shown.starts_with("up "), "{shown}");
}

#[test]
fn a_daemon_that_has_no_socket_yet_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let waiting = command(&["status", "--control", text(&control), "--wait", "up"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    let _daemon = daemon_up_after(&control, 1);

    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Looks for no daemon for a moment, in a place that has none.
#[test]
fn a_daemon_whose_socket_nobody_named_is_waited_for_too() {
    let known = ["/run/sennit/edge.sock", "/run/sennit/hub.sock"];
    if known.iter().any(|path| Path::new(path).exists()) {
        eprintln!("SKIPPED: a daemon runs on this host");
        return;
    }
    let begun = std::time::Instant::now();

    let output = sennit(&["status", "--wait", "up", "--timeout", "0.3"]);

    assert_fails(&output, 8, "no daemon runs");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(300));
}

#[test]
fn waiting_in_vain_is_exit_code_8_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let _daemon = daemon_up_after(&control, usize::MAX);

    let output = sennit(&[
        "status",
        "--control",
        text(&control),
        "--wait",
        "up",
        "--timeout",
        "0.3",
    ]);

    assert_fails(&output, 8, "still connecting");
    assert!(stderr(&output).contains("no path yet"));
}
