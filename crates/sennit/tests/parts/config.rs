//! Config files: what valid ones become, what wrong ones are told, and that nothing panics.
//!
//! Each `config/NAME.toml` has its expected report beside it in `NAME.txt`. After a wanted
//! change run with `SENNIT_BLESS=1` and read the diff.

mod addresses;
mod api;
mod classes;
mod limits;
mod noise;

use std::fs;
use std::path::{Path, PathBuf};

use sennit::config::{
    Class, Config, Congestion, Delivery, EdgeConfig, HubConfig, Leak, Link, Policy, Report,
    Severity, Share,
};

use crate::{is_committed, workspace};

/// Wrong files, and what is said about each.
const CASES: &str = "crates/sennit/tests/parts/config";

/// `hub.toml` and `edge.toml` as the design document has them.
const HUB: &str = r#"
[hub]
listen = ["0.0.0.0:443", "[::]:443"]
state = "/var/lib/sennit"            # identity and the embedded store (SQLite)
pool = ["10.200.0.0/16", "fd5e:1::/64"]
nat = true                           # masquerade what leaves for the internet
device = "sennit0"
"#;

const EDGE: &str = r#"
[edge]
hub = ["203.0.113.10:443"]
state = "/var/lib/sennit"
device = "sennit0"
routes = ["0.0.0.0/0", "::/0"]       # what goes into the tunnel; [] = nothing, the router decides
lan = ["192.168.8.0/24"]             # prefixes behind this edge, routed by the hub without NAT

[[link]]
name = "starlink"
interface = "eth1"
tier = 1                             # lower is preferred (failover), all of a tier are used together (bond)
weight = 2                           # for balanced

[[link]]
name = "lte-a"
interface = "wwan0"

[[link]]
name = "lte-b"
interface = "wwan1"

[[class]]
name = "critical"
match = ["dscp ef", "udp port 5060", "icmp"]
policy = "redundant"
copies = 3
delivery = "datagram"
congestion = "bbr"
share = "20%"                        # guaranteed on each link, borrowed when idle

[[class]]
name = "bulk"
match = ["dst 10.9.0.0/16"]
policy = "balanced"
delivery = "repair"
fec = "auto"                         # off | auto | xor:10+1 | rs:10+2 | rlc:1/8
congestion = "auto"                  # cubic | bbr | bbr3 | auto
device = "bulk0"                     # optional: a TUN of its own, so that routes or VLANs choose the class
"#;

/// The least that is a config.
const SMALL_EDGE: &str = r#"
[edge]
hub = ["[2001:db8::1]:443"]
[[link]]
name = "lte"
interface = "wwan0"
"#;

fn edge(text: &str) -> EdgeConfig {
    let loaded =
        EdgeConfig::parse("edge.toml", text.as_bytes()).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.config
}

fn edge_report(text: &str) -> Report {
    EdgeConfig::parse("edge.toml", text.as_bytes())
        .map_or_else(|report| report, |loaded| loaded.warnings)
}

#[test]
fn the_documented_hub_config_is_read() {
    let hub = HubConfig::parse("hub.toml", HUB.as_bytes()).unwrap().config;

    assert_eq!(
        hub.listen,
        ["0.0.0.0:443".parse().unwrap(), "[::]:443".parse().unwrap()]
    );
    assert_eq!(hub.pool.v4, Some("10.200.0.0/16".parse().unwrap()));
    assert_eq!(hub.pool.v6, Some("fd5e:1::/64".parse().unwrap()));
    assert!(hub.nat);
    assert_eq!((hub.device.as_str(), hub.mtu), ("sennit0", 1400));
    assert_eq!(hub.workers, None, "as many as there are processors");
    assert_eq!(hub.control, Path::new("/run/sennit/hub.sock"));
}

#[test]
fn the_documented_edge_config_is_read() {
    let edge = edge(EDGE);

    assert_eq!(edge.hub, ["203.0.113.10:443".parse().unwrap()]);
    assert_eq!(
        edge.routes,
        ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()]
    );
    assert_eq!(edge.lan, ["192.168.8.0/24".parse().unwrap()]);
    assert_eq!(edge.control, Path::new("/run/sennit/edge.sock"));
    let starlink = Link {
        name: "starlink".into(),
        interface: "eth1".into(),
        tier: 1,
        weight: 2,
        up: None,
        down: None,
        cost: 0,
        overflow: false,
        cap: None,
        reset_day: 1,
    };
    let lte = Link {
        name: "lte-a".into(),
        interface: "wwan0".into(),
        tier: 1,
        weight: 1,
        up: None,
        down: None,
        cost: 0,
        overflow: false,
        cap: None,
        reset_day: 1,
    };
    let other = Link {
        name: "lte-b".into(),
        interface: "wwan1".into(),
        ..lte.clone()
    };
    assert_eq!(edge.links, [starlink, lte, other]);
    let names: Vec<&str> = edge
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    assert_eq!(names, ["critical", "bulk", "default"]);
    let critical = &edge.classes[0];
    assert_eq!(
        (critical.policy, critical.copies, critical.delivery),
        (Policy::Redundant, 3, Delivery::Datagram)
    );
    assert_eq!(
        (critical.congestion, critical.share),
        (Congestion::Bbr, Some(Share::Percent(20)))
    );
    assert_eq!(critical.matches.len(), 3);
    assert_eq!(
        edge.classes[1]
            .device
            .as_ref()
            .map(sennit_linux::DeviceName::as_str),
        Some("bulk0")
    );
}

#[test]
fn a_foreign_proxy_is_trusted_by_its_ca_and_greeted_with_a_token_from_a_file() {
    let text = SMALL_EDGE.replace(
        "[[link]]",
        "proxy_ca = '/etc/sennit/proxy.pem'\nproxy_name = 'proxy.example.org'\nbearer = 'file:/etc/sennit/bearer'\n[[link]]",
    );
    let proxy = edge(&text).proxy.unwrap();

    assert_eq!(proxy.ca, Path::new("/etc/sennit/proxy.pem"));
    assert_eq!(proxy.name.as_deref(), Some("proxy.example.org"));
    assert_eq!(
        proxy.bearer.as_deref(),
        Some(Path::new("/etc/sennit/bearer"))
    );
}

#[test]
fn every_wrong_file_gets_its_whole_report() {
    let folder = workspace().join(CASES);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    assert!(files.len() >= 9, "the files are there");
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let source = fs::read(&file).unwrap();
        let report =
            Config::parse(&name, &source).map_or_else(|report| report, |loaded| loaded.warnings);
        let golden = format!("{CASES}/{}.txt", name.trim_end_matches(".toml"));
        is_committed(&golden, &format!("{report}\n"));
    }
}

/// The one warning about an edge's config.
#[track_caller]
fn edge_warning(text: &str) -> String {
    let report = edge_report(text);
    assert_eq!(
        (report.errors(), report.findings().len()),
        (0, 1),
        "{report}"
    );
    report.to_string()
}

#[test]
fn findings_say_line_and_column() {
    let report = edge_report(&SMALL_EDGE.replace(
        "interface = \"wwan0\"",
        "interface = \"wwan0\"\n  tier = 999",
    ));
    let at: Vec<_> = report
        .located()
        .map(|f| (f.severity, f.line, f.column))
        .collect();

    assert_eq!(at, [(Severity::Error, 7, 10)]);
}

#[test]
fn a_file_that_is_not_text_is_told_where() {
    let report = HubConfig::parse("hub.toml", b"[hub]\nstate = \"\xff\"\n").unwrap_err();

    let place = report.located().next().unwrap();
    assert_eq!((place.line, place.column), (2, 10));
    assert!(place.message.contains("UTF-8"), "{}", place.message);
}

#[test]
fn a_finding_at_a_line_end_of_windows_is_shown() {
    let report = edge_report("[edge]\r\nhub = \r\n");

    assert!(report.to_string().contains("edge.toml:2:"), "{report}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Path::new("/nonexistent/edge.toml")).unwrap_err();

    assert!(
        error
            .to_string()
            .starts_with("cannot read /nonexistent/edge.toml: "),
        "{error}"
    );
}
