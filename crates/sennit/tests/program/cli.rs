//! The program as a user runs it: what goes to stdout, what to stderr, and the exit code.

mod asking;
mod sites;

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

const EDGE: &str = "[edge]\nhub = ['203.0.113.10:443']\nstate = '/'\n\
                    [[link]]\nname = 'lte'\ninterface = 'lo'\n";

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
    assert_eq!(json["findings"][1]["line"], 6);
    let absent = file("absent.toml", &EDGE.replace("'lo'", "'snt-none'"));
    let output = sennit(&["check", &absent, "--strict"]);
    assert_eq!(output.status.code(), Some(6));
    let said = stdout(&output);
    assert!(
        said.contains("link `lte`: there is no interface snt-none"),
        "{said}"
    );
    let secret =
        format!("{EDGE}[api]\nlisten = ['127.0.0.1:8479']\nread_token = 'file:/nonexistent'\n");
    let secret = file("secret.toml", &secret);
    let output = sennit(&["check", &secret]);
    assert_eq!(output.status.code(), Some(5));
    let said = stdout(&output);
    assert!(said.contains("cannot read /nonexistent: "), "{said}");
    for of_host in [&absent, &secret] {
        let output = sennit(&["check", of_host, "--strict", "--file-only"]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    }
    let output = sennit(&["check", &wrong, "--file-only"]);
    assert_eq!(output.status.code(), Some(5));
    assert_fails(
        &sennit(&["check", "/nonexistent.toml"]),
        3,
        "/nonexistent.toml",
    );
}

#[test]
fn check_leaves_the_host_out_if_it_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("edge.toml");
    fs::write(&path, crate::OVERLAPPING).unwrap();

    let checked = crate::where_it_overlaps(|| {
        ["--json", "--file-only"].map(|how| sennit(&["check", how, text(&path)]).status.code())
    });

    let Some(checked) = checked else { return };
    assert_eq!(checked, [Some(5), Some(0)]);
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
fn help_fits_the_terminal() {
    let help = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sennit"));
        let output = command.args(words).env("COLUMNS", "60").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for words in [&["join", "--help"][..], &["test", "client", "--help"]] {
        let text = help(words);
        let (_, options) = text.split_once("Options:").unwrap();
        let (options, _) = options.split_once("Examples:").unwrap_or((options, ""));
        let long = options.lines().find(|line| line.chars().count() > 60);
        assert_eq!(long, None, "{words:?}");
    }
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
fn a_hub_is_not_made_where_its_config_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (state, config) = (dir.path().join("state"), dir.path().join("hub.toml"));
    fs::create_dir(&config).unwrap();
    let init = [
        "hub",
        "init",
        "--state",
        text(&state),
        "--config",
        text(&config),
    ];
    assert_fails(&sennit(&init), 1, "hub.toml is there, and no regular file");
    assert!(!state.exists());
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
        (
            "predict tunnel --rate 1M --inner-mtu 9000",
            "smaller --inner-mtu",
        ),
        ("predict tunnel --rate 1M --mtu 576", "packets of 1228"),
        ("predict quic --rate 1M --mtu 100", "RFC 9000"),
        ("predict tcp --link lte/20", "stands still"),
        ("predict rtt-sweep --link lte/20", "stands still"),
        ("predict tcp --link 10:2/5 --half-duplex", "are alike"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert_fails(&sennit(&words), 2, reason);
    }
}
