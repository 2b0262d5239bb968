//! On OpenWrt: what becomes of `/etc/config/sennit`, and what the scripts do with stand-ins for the
//! programs of a router.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use sennit::config::reference::{self, Kind};
use tempfile::TempDir;
use toml::{Table, Value};

use super::scripts::write_program;
use super::workspace;

fn file(name: &str) -> PathBuf {
    workspace().join("packaging/openwrt/files").join(name)
}

/// Runs a program with this input.
fn fed(program: &mut Command, text: &str) -> Output {
    let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = piped.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    // It may have found fault with the first line, and not read the rest.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    running.wait_with_output().unwrap()
}

/// Turns what `uci export` prints into a config, with this program that says the device of a
/// network.
fn convert_with(device_of: &str, uci: &str) -> Output {
    let mut awk = Command::new("awk");
    awk.arg("-f").arg(file("uci-to-toml"));
    fed(awk.env("SENNIT_DEVICE_OF", device_of), uci)
}

/// The device of a network is called as that is.
fn convert(uci: &str) -> Output {
    convert_with("printf dev-%s", uci)
}

#[track_caller]
fn toml_of(uci: &str) -> Table {
    let converted = convert(uci);
    let said = String::from_utf8_lossy(&converted.stderr);
    assert!(converted.status.success(), "{uci}\n{said}");
    let text = String::from_utf8(converted.stdout).unwrap();
    text.parse()
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A text as `uci export` quotes it.
fn uci_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn the_config_of_openwrt_becomes_one_that_check_takes() {
    let example = file("sennit.config");
    // As a router that has two networks knows it.
    let converted = convert(&fs::read_to_string(example).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("sennit.toml");
    fs::write(&config, &converted.stdout).unwrap();

    let checked = Command::new(env!("CARGO_BIN_EXE_sennit"))
        .arg("check")
        .arg(&config)
        .output()
        .unwrap();

    let text = String::from_utf8(converted.stdout).unwrap();
    assert!(
        text.starts_with("# Made of /etc/config/sennit; changes here are lost.\n["),
        "whoever edits it through the API is told: {text}"
    );
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}\n{text}");
    assert!(said.contains("an edge with 2 links"), "{said}");
    let table: Table = text.parse().unwrap();
    assert_eq!(table["link"][0]["interface"].as_str(), Some("dev-wan"));
    assert_eq!(table["edge"]["routes"].as_array().unwrap().len(), 2);
    assert!(table["edge"].get("enabled").is_none());
    let records = table["edge"]["records"].as_str();
    assert_eq!(records, Some("/tmp/sennit"), "flash would wear out");
}

#[test]
fn each_key_of_the_config_can_be_said_on_openwrt() {
    for section in reference::sections() {
        let kind = section.trim_matches(['[', ']']);
        let (mut uci, mut options) = (format!("config {kind} 'x'\n"), String::new());
        let mut expected = Table::new();
        for key in reference::keys()
            .iter()
            .filter(|key| key.section == section)
        {
            let example: Table = format!("it = {}", key.example()).parse().unwrap();
            let example = example["it"].clone();
            match (&key.kind, &example) {
                (Kind::List(_), Value::Array(items)) => {
                    let items: Vec<&str> = items.iter().map(|it| it.as_str().unwrap()).collect();
                    for item in &items {
                        uci += &format!("\tlist {} {}\n", key.name, uci_quoted(item));
                    }
                    let joined = uci_quoted(&items.join(" "));
                    if key.name != "match" {
                        options += &format!("\toption {} {joined}\n", key.name);
                    }
                }
                (_, Value::String(text)) => {
                    uci += &format!("\toption {} {}\n", key.name, uci_quoted(text));
                }
                (_, value) => uci += &format!("\toption {} '{value}'\n", key.name),
            }
            expected.insert(key.name.into(), example);
        }
        let table = |table: Table| match &table[kind] {
            Value::Array(tables) => tables[0].as_table().unwrap().clone(),
            other => other.as_table().unwrap().clone(),
        };

        assert_eq!(table(toml_of(&uci)), expected, "{uci}");
        for (key, value) in table(toml_of(&format!("config {kind} 'x'\n{options}"))) {
            if let Value::Array(_) = value {
                assert_eq!(value, expected[&key], "{key}");
            }
        }
    }
}

#[test]
fn a_value_of_openwrt_is_a_value_whatever_is_in_it() {
    let hostile = "it's \"quoted\" \\ $(touch x) `id` ; # no comment";
    let uci = format!(
        "config link 'a'\n\toption interface {}\n",
        uci_quoted(hostile)
    );
    let table = toml_of(&uci);
    assert_eq!(table["link"][0]["interface"].as_str(), Some(hostile));
    assert_eq!(table["link"][0]["name"].as_str(), Some("a"));

    for (wrong, said) in [
        (
            "config link 'a'\n\toption interface 'eth1\n",
            "line 2: a quote",
        ),
        ("config firewall 'a'\n", "line 1: `firewall` is no section"),
        (
            "\toption interface 'eth1'\n",
            "line 1: an option stands before",
        ),
        (
            "config link 'a'\n\toption network '$(id)'\n",
            "line 2: `$(id)` is no name",
        ),
        (
            "config link 'a'\n\toption a]b '1'\n",
            "line 2: `a]b` is no key",
        ),
        ("hello\n", "line 1: this is neither"),
    ] {
        let converted = convert(wrong);
        let errors = String::from_utf8_lossy(&converted.stderr);
        assert!(
            !converted.status.success() && errors.contains(said),
            "{wrong}{errors}"
        );
    }
}

#[test]
fn the_link_of_a_network_that_is_not_up_waits_for_an_interface_that_nothing_else_is() {
    let config = "config link 'a'\n\toption network 'wan_with_a_name'\n";
    let converted = convert_with("true", config);
    let table: Table = String::from_utf8(converted.stdout)
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(
        table["link"][0]["interface"].as_str(),
        Some("wan_with_a_nam?")
    );
}

// ---- its scripts --------------------------------------------------------------------------------

/// A router with stand-ins for the programs that its scripts start; what they were asked is in a
/// log. The daemon answers a reload with a code, and ends when it was asked to clean up a third
/// time.
struct Router(TempDir);

const GOOD: &str = "config edge 'edge'\n\toption enabled '1'\n\tlist hub '203.0.113.10:443'\n\
                    \toption route_all '1'\nconfig link 'wan'\n\toption network 'wan'\n";

const PROGRAMS: [(&str, &str); 5] = [
    (
        "logger",
        "[ $# = 2 ] && cat >>\"$AT/syslog\" || echo \"$@\" >>\"$AT/syslog\"",
    ),
    ("sleep", "echo sleep >>\"$AT/log\""),
    (
        "uci",
        r#"case "$2 $3" in
            "export sennit") cat "$AT/config" ;;
            "get sennit.@edge[0].enabled") cat "$AT/enabled" ;;
            *) exit 1 ;;
        esac"#,
    ),
    (
        "sennit",
        r#"case $1 in
            check) exec "$REAL" "$@" ;;
            cleanup) echo . >>"$AT/asked"; [ "$(wc -l <"$AT/asked")" -gt 2 ] || exit 1 ;;
            guard) cat "$3" >"$AT/guarded" ;;
            reload) echo "[api]: needs a restart" ;;
        esac
        [ "$2" = --all ] && echo "$1 $2" >>"$AT/log" || echo "$1" >>"$AT/log"
        [ "$1" != reload ] || exit "$(cat "$AT/reload")""#,
    ),
    (
        "service",
        r#"case $1 in
            enabled) [ ! -e "$AT/disabled" ] ;;
            running) [ -e "$AT/running" ] ;;
            *) echo "service $1" >>"$AT/log" ;;
        esac"#,
    ),
];

/// What rc.common brings.
const RC: &str = r#"
    extra_command() { :; }
    procd_open_instance() { :; }
    procd_close_instance() { :; }
    procd_set_param() { [ "$1" != command ] || echo "runs ${5##*/}" >>"$AT/log"; }
    procd_send_signal() { echo "signal $3" >>"$AT/log"; }
    procd_add_reload_trigger() { :; }
    procd_add_reload_interface_trigger() { echo "trigger $1" >>"$AT/log"; }
    config_load() { :; }
    config_foreach() { "$1" lte; "$1" wan; }
    config_get() { eval "$1=''"; [ "$2" != wan ] || eval "$1=network-of-wan"; }
    service_running() { true; }
    service_stopped() { :; }
    . "$SCRIPT"
    stop() { echo stop >>"$AT/log"; service_stopped; }
    [ -z "$USE_PROCD" ] || start() { start_service; }
    "$@"
"#;

impl Router {
    fn new() -> Self {
        let router = Self(tempfile::tempdir().unwrap());
        for (name, script) in PROGRAMS {
            write_program(&router.at(name), script);
        }
        for name in ["functions.sh", "uci-to-toml"] {
            fs::copy(file(name), router.at(name)).unwrap();
        }
        router.write("config", GOOD);
        router.write("enabled", "1\n");
        router.write("reload", "0");
        router
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// Calls a function of an init script; whether it succeeds, and what it logs.
    fn call(&self, script: &str, function: &str) -> (bool, String) {
        let mut shell = Command::new("sh");
        shell.args(["-c", RC, "sh", function]);
        self.run(shell.env("SCRIPT", file(script)))
    }

    /// Has a package manager call a script of the package; what that logs.
    #[track_caller]
    fn package(&self, script: &str, is_upgrade: bool) -> String {
        let mut command = Command::new(file(script));
        let (done, log) = self.run(command.env("PKG_UPGRADE", u8::from(is_upgrade).to_string()));
        assert!(done, "{script}: {log}");
        log
    }

    fn run(&self, command: &mut Command) -> (bool, String) {
        self.write("log", "");
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .env("AT", self.0.path())
            .env("REAL", env!("CARGO_BIN_EXE_sennit"))
            .env("SENNIT", self.at("sennit"))
            .env("SENNIT_LIB", self.0.path())
            .env("SENNIT_SERVICE", self.at("service"))
            .env("SENNIT_TOML", self.at("sennit.toml"))
            .env("SENNIT_DEVICE_OF", "printf dev-%s");
        let ran = fed(command, "");
        let log = self.read("log").replace('\n', " ");
        (ran.status.success(), log.trim_end().to_owned())
    }

    /// Calls a function of an init script that has to succeed; what it logs.
    #[track_caller]
    fn does(&self, script: &str, function: &str) -> String {
        let (done, log) = self.call(script, function);
        assert!(done, "{function}: {log}");
        log
    }
}

#[test]
fn a_reload_goes_over_to_a_config_without_errors_and_to_no_other() {
    let router = Router::new();
    assert_eq!(router.does("sennit.init", "start"), "runs sennit.toml");
    let first = router.read("sennit.toml");
    assert!(first.contains("interface = \"dev-wan\""), "{first}");
    assert_eq!(router.does("sennit.init", "reload_service"), "", "the same");

    router.write("config", &format!("{GOOD}\toption teir '2'\n"));
    assert_eq!(
        router.call("sennit.init", "reload_service"),
        (false, String::new())
    );
    assert_eq!(router.read("sennit.toml"), first);
    assert_eq!(router.does("sennit.init", "start"), "runs sennit.toml");
    assert_eq!(router.read("sennit.toml"), first, "the last that was valid");

    router.write("config", &format!("{GOOD}\toption tier '2'\n"));
    assert_eq!(router.does("sennit.init", "reload_service"), "reload");
    assert!(router.read("sennit.toml").contains("tier = 2"));
    assert!(
        router.read("syslog").contains("[api]: needs a restart\n"),
        "what the reload said is in the log"
    );
}

#[test]
fn a_reload_that_was_refused_is_tried_again() {
    let router = Router::new();
    router.does("sennit.init", "start");
    let first = router.read("sennit.toml");
    router.write("config", &format!("{GOOD}\toption tier '2'\n"));
    router.write("reload", "1");

    for _ in 0..2 {
        let refused = (false, "reload".into());
        assert_eq!(router.call("sennit.init", "reload_service"), refused);
        assert_eq!(
            router.read("sennit.toml"),
            first,
            "what the daemon runs with"
        );
    }

    router.write("reload", "0");
    assert_eq!(router.does("sennit.init", "reload_service"), "reload");
    assert!(router.read("sennit.toml").contains("tier = 2"));
}

#[test]
fn what_does_not_fit_the_host_is_no_error_of_the_config() {
    let router = Router::new();
    let overlapping = "config edge 'edge'\n\toption enabled '1'\n\tlist hub '203.0.113.10:443'\n\
                       \tlist lan '192.168.8.0/24'\nconfig link 'wan'\n\toption interface 'lo'\n";
    router.write("config", overlapping);

    let started = crate::where_it_overlaps(|| router.does("sennit.init", "start"));

    assert!(started.is_none_or(|log| log == "runs sennit.toml"));
}

#[test]
fn a_reload_starts_the_daemon_only_if_nobody_answers() {
    let router = Router::new();
    router.write("reload", "5");
    assert_eq!(
        router.call("sennit.init", "reload_service"),
        (false, "reload".into())
    );
    router.write("reload", "4");
    let log = router.does("sennit.init", "reload_service");
    assert_eq!(log, "reload runs sennit.toml");
    router.write("enabled", "0\n");
    let log = router.does("sennit.init", "reload_service");
    assert!(log.starts_with("stop") && !log.contains("runs"), "{log}");
}

#[test]
fn a_restart_waits_for_the_end_and_does_not_open_what_is_unreachable() {
    let router = Router::new();
    router.does("sennit.init", "start");

    let log = router.does("sennit.init", "restart");

    let (end, start) = log.split_once("stop").unwrap();
    assert!(end.starts_with("signal USR1 sleep sleep cleanup"), "{log}");
    assert!(start.ends_with("runs sennit.toml"), "{log}");
}

#[test]
fn an_upgrade_does_not_open_what_is_unreachable_and_a_removal_does() {
    let router = Router::new();
    router.does("sennit.init", "start");
    let log = router.does("sennit.init", "hold");
    assert!(log.starts_with("signal USR1 sleep sleep cleanup"), "{log}");
    assert!(
        log.contains("cleanup stop") && !log.contains("runs"),
        "{log}"
    );

    assert_eq!(router.package("before-removal", true), "service hold");
    assert_eq!(router.package("after-installation", true), "");
    // Under apk, which has not stopped the one before it.
    router.write("running", "");
    let log = router.package("after-installation", true);
    assert_eq!(log, "service restart");

    let log = router.package("before-removal", false);
    assert_eq!(log, "service stop cleanup --all");
    assert_eq!(router.package("after-installation", false), "");
}

#[test]
fn the_makefile_packs_all_files_and_no_other() {
    let makefile = fs::read_to_string(workspace().join("packaging/openwrt/Makefile")).unwrap();
    let packed = makefile.lines().filter_map(|line| {
        let (_, rest) = line.split_once("./files/")?;
        rest.split_whitespace().next().map(str::to_owned)
    });
    let packed: BTreeSet<String> = packed.collect();
    let there = fs::read_dir(file("")).unwrap();
    let there = there.map(|it| it.unwrap().file_name().into_string().unwrap());
    assert_eq!(packed, there.collect());
    for script in ["before-removal", "after-installation"] {
        let call = format!("[ -n \"$${{IPKG_INSTROOT}}\" ] || /usr/lib/sennit/{script}\n");
        assert!(makefile.contains(&call), "{script}");
    }
}

#[test]
fn a_new_firmware_keeps_what_the_store_has_not_moved_yet_and_a_rotation_under_way() {
    let makefile = fs::read_to_string(workspace().join("packaging/openwrt/Makefile")).unwrap();
    let (_, kept) = makefile
        .split_once("define Package/sennit/conffiles\n")
        .unwrap();
    let (kept, _) = kept.split_once("endef").unwrap();
    for name in ["ca.key", "hub.db", "hub.db-wal", "next/", "finished/"] {
        let line = format!("/etc/sennit/{name}");
        assert!(kept.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn init_scripts_find_their_functions_in_an_image_that_is_built() {
    let image = tempfile::tempdir().unwrap();
    let lib = image.path().join("usr/lib/sennit");
    fs::create_dir_all(&lib).unwrap();
    fs::copy(file("functions.sh"), lib.join("functions.sh")).unwrap();
    for script in ["sennit.init", "sennit-guard.init"] {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", RC, "sh", "complain", "heard"])
            .env_remove("SENNIT_LIB")
            .env("IPKG_INSTROOT", image.path())
            .env("SCRIPT", file(script))
            .env("PATH", "/nonexistent");
        let ran = fed(&mut shell, "");
        assert!(ran.stderr.starts_with(b"heard\n"), "{script}: {ran:?}");
    }
}

#[test]
fn a_network_that_changes_is_looked_at_again() {
    let router = Router::new();
    let log = router.does("sennit.init", "service_triggers");
    assert_eq!(log, "trigger network-of-wan");
}

#[test]
fn the_guard_is_told_where_something_is_missing() {
    let router = Router::new();
    assert_eq!(router.does("sennit-guard.init", "start"), "guard");
    let guarded = router.read("guarded");
    assert!(guarded.contains("\"::/0\""), "{guarded}");

    router.write("config", &format!("{GOOD}\tnonsense\n"));
    router.does("sennit-guard.init", "start");
    assert!(router.read("guarded").ends_with("[\n"));
    router.write("enabled", "0\n");
    assert_eq!(router.does("sennit-guard.init", "start"), "");
}

#[test]
fn the_guard_stands_only_before_an_edge_that_will_start() {
    let router = Router::new();
    router.write("disabled", "");
    assert_eq!(router.does("sennit-guard.init", "start"), "");

    fs::remove_file(router.at("disabled")).unwrap();
    router.write("running", "");
    assert_eq!(router.does("sennit-guard.init", "start"), "");
}
