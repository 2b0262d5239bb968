//! The program as a user runs it: what goes to stdout, what to stderr, and the exit code.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sennit::control::{Request, Response, Server};

fn sennit(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sennit"));
    command
        .args(args)
        // The hubs of these tests do not exist.
        .args(Some("--offline").filter(|_| args.first() == Some(&"join")))
        .env_remove("SENNIT_LOG")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, reason: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    assert!(stderr(output).contains(reason), "{}", stderr(output));
    assert!(
        output.stdout.is_empty(),
        "stdout is for data: {}",
        stdout(output)
    );
}

#[track_caller]
fn succeed(args: &[&str]) -> String {
    let output = sennit(args);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{args:?}: {}",
        stderr(&output)
    );
    stdout(&output)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const EDGE: &str = "[edge]\nhub = ['203.0.113.10:443']\n[[link]]\nname = 'lte'\ninterface = 'lo'\n";

#[test]
fn a_site_joins_by_copying_one_line() {
    let (hub, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (hub, edge) = (text(hub.path()), text(edge.path()));
    assert_eq!(
        succeed(&["hub", "init", "--state", hub]),
        "",
        "nothing that a pipe could want"
    );
    let token = succeed(&[
        "invite",
        "van-07",
        "--state",
        hub,
        "--hub",
        "203.0.113.10:443",
        "--hub",
        "[2001:db8::1]:443",
    ]);
    assert_eq!(token.lines().count(), 1);

    succeed(&["join", token.trim(), "--state", edge]);

    let config = format!("{edge}/edge.toml");
    let checked = succeed(&["check", &config]);
    assert!(checked.contains("edge.toml: an edge with "), "{checked}");
    let written = fs::read_to_string(&config).unwrap();
    assert!(
        written.contains("hub = [\"203.0.113.10:443\", \"[2001:db8::1]:443\"]"),
        "{written}"
    );
    let sites = succeed(&["sites", "--state", hub]);
    assert!(sites.contains("van-07  invited"), "{sites}");
}

#[test]
fn a_token_may_come_from_stdin_or_a_file() {
    let (hub, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (hub, edge) = (text(hub.path()), text(edge.path()));
    succeed(&["hub", "init", "--state", hub]);
    let token = succeed(&[
        "invite",
        "van-07",
        "--state",
        hub,
        "--hub",
        "203.0.113.10:443",
    ]);
    let file = format!("{hub}/token");
    fs::write(&file, &token).unwrap();

    succeed(&["join", &format!("file:{file}"), "--state", edge]);
    let mut piped = command(&["join", "-", "--state", edge, "--force"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    piped
        .stdin
        .take()
        .unwrap()
        .write_all(token.as_bytes())
        .unwrap();

    assert!(piped.wait().unwrap().success());
    assert_fails(
        &sennit(&["join", "file:/nonexistent", "--state", edge]),
        3,
        "cannot read the token",
    );
}

#[test]
fn join_says_why_it_refuses() {
    let (hub, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (hub, edge) = (text(hub.path()), text(edge.path()));
    succeed(&["hub", "init", "--state", hub]);
    let invite = [
        "invite",
        "van-07",
        "--state",
        hub,
        "--hub",
        "203.0.113.10:443",
    ];
    let token = succeed(&invite);
    let token = token.trim();

    assert_fails(
        &sennit(&["join", "nonsense", "--state", edge]),
        1,
        "not an invitation",
    );
    assert_fails(
        &sennit(&["join", &token[..token.len() - 1], "--state", edge]),
        1,
        "damaged",
    );
    let bearer = succeed(&["invite", "phone", "--bearer", "--state", hub]);
    assert_fails(
        &sennit(&["join", bearer.trim(), "--state", edge]),
        1,
        "bearer token",
    );
    succeed(&["join", token, "--state", edge]);
    let again = sennit(&["join", token, "--state", edge]);
    assert_fails(&again, 1, "already belongs to site `van-07`");
    assert!(stderr(&again).contains("--force"));
    let kept = fs::read_to_string(format!("{edge}/edge.toml")).unwrap();
    fs::write(format!("{edge}/edge.toml"), format!("{kept}# mine\n")).unwrap();
    succeed(&["join", token, "--state", edge, "--force"]);
    assert!(
        fs::read_to_string(format!("{edge}/edge.toml"))
            .unwrap()
            .ends_with("# mine\n"),
        "the config stays"
    );
}

#[test]
fn an_expired_token_is_refused_before_anything_is_written() {
    use sennit::identity::{Fingerprint, Invitation, Secret};
    let edge = tempfile::tempdir().unwrap();
    let expired = Invitation {
        site: "van-07".parse().unwrap(),
        hubs: vec!["203.0.113.10:443".parse().unwrap()],
        authority: Fingerprint::of(b"any"),
        secret: Secret::random(),
        expires: std::time::SystemTime::UNIX_EPOCH,
    };

    let output = sennit(&["join", &expired.to_string(), "--state", text(edge.path())]);

    assert_fails(&output, 1, "the token has expired");
    assert_eq!(fs::read_dir(edge.path()).unwrap().count(), 0);
}

#[test]
fn a_hub_is_made_once_and_its_ca_can_be_exported() {
    let hub = tempfile::tempdir().unwrap();
    let hub = text(hub.path());
    assert_fails(
        &sennit(&["hub", "ca", "--state", hub]),
        3,
        "holds no hub's identity",
    );
    succeed(&["hub", "init", "--state", hub, "--name", "hub.example.org"]);

    let pem = succeed(&["hub", "ca", "--state", hub]);
    let again = sennit(&["hub", "init", "--state", hub]);

    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----\n"), "{pem}");
    assert_fails(&again, 1, "already holds a hub's identity");
}

#[test]
fn sites_are_listed_and_revoked() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    let no_daemon = format!("{state}/none.sock");
    succeed(&["hub", "init", "--state", state]);
    assert_eq!(succeed(&["sites", "--state", state]), "");
    succeed(&[
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
        "--ttl",
        "7d",
    ]);
    succeed(&["invite", "phone", "--state", state, "--bearer"]);

    succeed(&[
        "revoke",
        "van-07",
        "--state",
        state,
        "--control",
        &no_daemon,
    ]);
    let json: serde_json::Value =
        serde_json::from_str(&succeed(&["sites", "--state", state, "--json"])).unwrap();

    assert_eq!(json["schema"], "sennit.sites/1");
    assert_eq!(json["sites"][0]["name"], "phone");
    assert_eq!(
        (&json["sites"][1]["name"], &json["sites"][1]["state"]),
        (&"van-07".into(), &"revoked".into())
    );
    assert_fails(
        &sennit(&[
            "revoke",
            "van-99",
            "--state",
            state,
            "--control",
            &no_daemon,
        ]),
        3,
        "no site `van-99`",
    );
    assert_fails(
        &sennit(&["sites", "--state", &format!("{state}/none")]),
        3,
        "no hub's store",
    );
}

#[test]
fn what_a_site_may_announce_and_reach_is_the_hubs_to_say() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    succeed(&["hub", "init", "--state", state]);
    let invite = [
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
    ];
    succeed(&[&invite[..], &["--lan", "192.168.8.0/24"]].concat());
    let allow = ["sites", "allow", "van-07", "--state", state];
    let deny = ["sites", "deny", "van-07", "--state", state];
    let reach = ["sites", "reach", "van-07", "--state", state];
    assert_eq!(succeed(&allow), "192.168.8.0/24\n");
    let public = sennit(&[&allow[..], &["1.1.1.1/32"]].concat());
    assert!(String::from_utf8_lossy(&public.stderr).contains("public space"));
    assert_eq!(succeed(&allow), "192.168.8.0/24\n1.1.1.1/32\n");
    for (prefix, why) in [
        ("0.0.0.0/0", "too large"),
        ("127.0.0.0/8", "loopback"),
        ("2000::/16", "too large"),
    ] {
        assert_fails(
            &sennit(&[&allow[..], &["10.1.0.0/16", prefix]].concat()),
            2,
            why,
        );
        let invited = [&invite[..], &["--lan", prefix]].concat();
        assert_fails(&sennit(&invited), 2, why);
    }
    assert_eq!(
        succeed(&[&deny[..], &["1.1.0.0/16"]].concat()),
        "192.168.8.0/24\n"
    );
    assert_eq!(succeed(&reach), "what the hub's config says of all\n");
    let narrow = [&reach[..], &["internet", "10.9.0.0/16"]].concat();
    assert_eq!(succeed(&narrow), "internet 10.9.0.0/16\n");
    assert_fails(
        &sennit(&[&reach[..], &["moon"]].concat()),
        2,
        "`moon` is no place",
    );
    assert_eq!(succeed(&[&reach[..], &["nothing"]].concat()), "nothing\n");
    let listed = succeed(&["sites", "--state", state, "--control", "/nonexistent"]);
    assert!(listed.contains("may announce 192.168.8.0/24"), "{listed}");
    assert!(
        listed.contains("reaches nothing") && listed.contains("never"),
        "{listed}"
    );
    assert_eq!(
        succeed(&[&reach[..], &["--default"]].concat()),
        "what the hub's config says of all\n"
    );
    let config = fs::read_to_string(hub.path().join("hub.toml")).unwrap();
    assert!(config.contains("reach = [\"everything\"]"), "{config}");
    let checked = succeed(&["check", "--strict", text(&hub.path().join("hub.toml"))]);
    assert!(!checked.contains("error"), "{checked}");
}

#[test]
fn revoking_disconnects_the_site_of_a_running_hub() {
    let hub = tempfile::tempdir().unwrap();
    let (state, control) = (text(hub.path()), hub.path().join("hub.sock"));
    succeed(&["hub", "init", "--state", state]);
    succeed(&[
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
    ]);
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let _daemon = Server::bind(&control, move |request| {
        assert_eq!(
            request,
            Request::Disconnect {
                site: "van-07".parse().unwrap()
            }
        );
        seen.fetch_add(1, Ordering::SeqCst);
        Response::done()
    })
    .unwrap();

    succeed(&[
        "revoke",
        "van-07",
        "--state",
        state,
        "--control",
        text(&control),
    ]);

    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn an_invitation_is_withdrawn_and_lets_nobody_in() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    succeed(&["hub", "init", "--state", state]);
    for site in ["van-07", "ship-3"] {
        let invite = ["invite", site, "--hub", "203.0.113.10:443"];
        succeed(&[&invite[..], &["--state", state]].concat());
    }

    succeed(&["hub", "withdraw", "van-07", "--state", state]);

    let open = succeed(&["hub", "invitations", "--state", state]);
    assert!(
        open.contains("ship-3") && !open.contains("van-07"),
        "{open}"
    );
    let sites = succeed(&["sites", "--state", state]);
    assert!(sites.contains("van-07  left out"), "{sites}");
    let again = sennit(&["hub", "withdraw", "van-07", "--state", state]);
    assert_fails(&again, 3, "has no invitation that waits to be used");
}

#[test]
fn invitations_as_json_carry_their_expiry() {
    let hub = tempfile::tempdir().unwrap();
    let state = text(hub.path());
    succeed(&["hub", "init", "--state", state]);

    let json = succeed(&[
        "invite",
        "van-07",
        "--state",
        state,
        "--hub",
        "203.0.113.10:443",
        "--json",
    ]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();

    assert_eq!(
        (&json["schema"], &json["kind"]),
        (&"sennit.invite/1".into(), &"invite".into())
    );
    assert!(json["token"].as_str().unwrap().starts_with("sennit_"));
    assert!(json["expires"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn check_tells_valid_odd_and_wrong_configs_apart() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        text(&path).to_owned()
    };
    let good = file("good.toml", EDGE);
    let odd = file(
        "odd.toml",
        &format!("{EDGE}[[class]]\nname = 'a'\npolicy = 'redundant'\n"),
    );
    let wrong = file("wrong.toml", &EDGE.replace("interface", "interfase"));

    assert_eq!(sennit(&["check", &good, "--strict"]).status.code(), Some(0));
    assert_eq!(sennit(&["check", &odd]).status.code(), Some(0));
    assert_eq!(sennit(&["check", &odd, "--strict"]).status.code(), Some(6));
    let output = sennit(&["check", &wrong]);
    assert_eq!(output.status.code(), Some(5));
    assert!(
        stdout(&output).contains("did you mean `interface`?"),
        "{}",
        stdout(&output)
    );
    let output = sennit(&["check", &wrong, "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["schema"], &json["errors"]),
        (&"sennit.check/1".into(), &2.into())
    );
    assert_eq!(json["findings"][1]["line"], 5);
    let absent = file("absent.toml", &EDGE.replace("'lo'", "'snt-none'"));
    let output = sennit(&["check", &absent, "--strict"]);
    assert_eq!(output.status.code(), Some(6));
    let said = stdout(&output);
    assert!(
        said.contains("link `lte`: there is no interface snt-none"),
        "{said}"
    );
    assert_fails(
        &sennit(&["check", "/nonexistent.toml"]),
        3,
        "/nonexistent.toml",
    );
}

#[test]
fn a_daemon_with_a_wrong_config_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("edge.toml");
    fs::write(&config, "[edge]\nhub = []\n").unwrap();

    assert_fails(
        &sennit(&["edge", "--config", text(&config)]),
        5,
        "edge.toml:2:7",
    );
    assert_fails(
        &sennit(&["hub", "--config", text(&config)]),
        5,
        "there is no [hub] section",
    );
    assert_fails(
        &sennit(&["hub", "--config", "/nonexistent.toml"]),
        3,
        "/nonexistent.toml",
    );
}

#[test]
fn misuse_is_exit_code_2() {
    let cases: [&[&str]; 10] = [
        &[],
        &["frobnicate"],
        &["hub", "--confg", "x"],
        &["invite", "Van 07", "--hub", "203.0.113.10:443"],
        &["invite", "van-07"],
        &["invite", "van-07", "--hub", "203.0.113.10"],
        &[
            "invite",
            "van-07",
            "--hub",
            "203.0.113.10:443",
            "--ttl",
            "tomorrow",
        ],
        &["status", "--wait", "sunshine"],
        &["status", "--timeout", "-1"],
        &["version", "--log", "loud"],
    ];
    for args in cases {
        let output = sennit(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{args:?}"
        );
    }
    assert_eq!(
        command(&["version"])
            .env("SENNIT_LOG", "loud")
            .status()
            .unwrap()
            .code(),
        Some(2)
    );
}

#[test]
fn help_and_version_are_data() {
    assert_eq!(
        succeed(&["version"]),
        format!("sennit {}\n", env!("CARGO_PKG_VERSION"))
    );
    let help = succeed(&["--help"]);
    for word in [
        "hub",
        "edge",
        "guard",
        "invite",
        "join",
        "sites",
        "revoke",
        "status",
        "why",
        "check",
        "cleanup",
        "lab",
        "test",
        "Exit codes",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(succeed(&["invite", "--help"]).contains("Examples:"));
}

/// Puts a program somewhere by another process: what this one has written itself, a test beside
/// this may hold open while it starts something, and then it cannot be started.
fn install(from: &Path, to: &Path) {
    let installed = Command::new("install")
        .arg("-m755")
        .args([from, to])
        .status();
    assert!(installed.unwrap().success());
}

/// A copy of the program, which has no lab beside it.
fn without_lab(dir: &Path) -> Command {
    let program = dir.join("sennit");
    install(Path::new(env!("CARGO_BIN_EXE_sennit")), &program);
    let mut command = Command::new(program);
    command.env("PATH", dir).env_remove("SENNIT_LOG");
    command
}

#[test]
fn the_lab_is_another_program_which_gets_all_arguments_and_ours() {
    let dir = tempfile::tempdir().unwrap();
    let sennit = without_lab(dir.path()).arg("lab").output().unwrap();
    assert_fails(&sennit, 3, "sennit-lab, which is neither beside");

    let lab = dir.path().join("sennit-lab");
    let script = dir.path().join("script");
    fs::write(
        &script,
        "#!/bin/sh\necho \"$SENNIT_LOG $SENNIT $*\"\nexit 9\n",
    )
    .unwrap();
    install(&script, &lab);
    let arguments = [
        "--log", "debug", "lab", "run", "x.toml", "--repeat", "2", "--help",
    ];
    let output = without_lab(dir.path()).args(arguments).output().unwrap();

    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    let ours = fs::canonicalize(dir.path().join("sennit")).unwrap();
    let expected = format!("debug {} run x.toml --repeat 2 --help\n", text(&ours));
    assert_eq!(stdout(&output), expected);
}

#[test]
fn a_daemon_that_does_not_run_is_exit_code_4() {
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
    assert_fails(&waiting, 4, "no daemon answers");
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

    assert_fails(&output, 4, "no daemon runs");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(300));
}

#[test]
fn check_says_what_becomes_of_packets_without_a_tunnel() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("edge.toml");
    let check = |more: &str| {
        let routes = "routes = ['0.0.0.0/0', '::/0']";
        let config = EDGE.replace("[[link]]", &format!("{routes}\n{more}\n[[link]]"));
        fs::write(&path, config).unwrap();
        succeed(&["check", "--strict", text(&path)])
    };

    let blocked = check("");
    assert!(blocked.contains("while there is no tunnel, 0.0.0.0/0, ::/0 are unreachable"));
    assert!(blocked.contains("leave by the host's other routes when it is stopped"));
    let allowed = check("leak = 'allow'");
    assert!(allowed.contains("leave by the host's other routes, in the clear"));
    let kept = check("leak_when_stopped = 'block'");
    assert!(kept.contains("stay unreachable when it is stopped"));
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

#[test]
fn a_daemon_of_another_version_is_told_from_a_broken_one() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("edge.sock");
    let _daemon = Server::bind(&control, |_| {
        Response::Document(serde_json::json!({"schema": "sennit.status/9"}))
    })
    .unwrap();

    assert_fails(
        &sennit(&["status", "--control", text(&control)]),
        1,
        "sennit.status/9",
    );
}

#[test]
fn without_the_right_to_configure_networks_is_exit_code_7() {
    let Ok(output) = Command::new("setpriv")
        .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"])
        .args([
            env!("CARGO_BIN_EXE_sennit"),
            "cleanup",
            "--device",
            "sennit-test0",
        ])
        .output()
    else {
        eprintln!("SKIPPED: needs setpriv");
        return;
    };
    if stderr(&output).starts_with("setpriv") {
        eprintln!("SKIPPED: needs the right to give up rights");
        return;
    }

    assert_fails(&output, 7, "CAP_NET_ADMIN");
}

#[test]
fn cleanup_of_a_name_that_no_device_can_have_is_exit_code_2() {
    assert_fails(
        &sennit(&["cleanup", "--device", "no/device"]),
        2,
        "no/device",
    );
}

#[test]
fn goodput_is_predicted_from_headers_and_explained() {
    let tcp = succeed(&["predict", "tcp", "--rate", "10Mbit"]);
    assert_eq!(
        tcp,
        "TCP over IPv4 over Ethernet: 9.41 Mbit/s, 94.15 % of the rate\n"
    );
    let udp = succeed(&["predict", "udp", "--rate", "10Mbit", "--explain"]);
    assert!(udp.contains("1472 / 1538 = 95.71 %"), "{udp}");
    assert!(udp.contains("9.57 Mbit/s"), "{udp}");
    let links = ["--link", "300/10", "--link", "80/30/0.5%"];
    let tunnel = [&["predict", "tunnel", "--json"][..], &links].concat();
    let tunnel: serde_json::Value = serde_json::from_str(&succeed(&tunnel)).unwrap();
    assert_eq!(tunnel["schema"], "sennit.predict/1");
    assert_eq!(tunnel["links"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_predicted_is_refused_with_the_reason() {
    for (line, reason) in [
        ("predict tcp", "--rate"),
        ("predict tcp --rate 10Mb", "like 500k, 10Mbit or 1.5G"),
        (
            "predict tcp --rate 10Mbit --mtu 68 --ipv6",
            "no room for payload",
        ),
        ("predict tcp --rate 10Mbit --loss 100%", "less than 100 %"),
        ("predict udp --link 10", "no delay"),
        ("predict tunnel --rate 1M --mtu 576", "smaller --inner-mtu"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert_fails(&sennit(&words), 2, reason);
    }
}
