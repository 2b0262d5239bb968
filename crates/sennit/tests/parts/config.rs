//! Config files: what valid ones become, what wrong ones are told, and that nothing panics.
//!
//! Each `config/NAME.toml` has its expected report beside it in `NAME.txt`. After a wanted
//! change run with `SENNIT_BLESS=1` and read the diff.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
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
policy = "bond"
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
fn more_than_a_daemon_can_have_is_refused_where_it_begins() {
    let table = |count: usize, text: &str| -> String {
        (0..count)
            .map(|n| text.replace('#', &n.to_string()))
            .collect()
    };
    let class = "[[class]]\nname = 'c#'\nmatch = ['udp port 1']\n";
    let rules = |count: usize| {
        let rules = table(count, "'udp port 1', ");
        format!(
            "[[class]]\nname = 'a'\nmatch = [{rules}]\n[[class]]\nname = 'b'\nmatch = ['icmp']\n"
        )
    };
    let servers = |count: usize| {
        SMALL_EDGE.replace(
            "[edge]",
            &format!("[edge]\ndns = [{}]", table(count, "'10.0.0.1', ")),
        )
    };
    for (most, is_one_too_many, said) in [
        (
            format!("{SMALL_EDGE}{}", table(64, class)),
            format!("{SMALL_EDGE}{}", table(20_000, class)),
            "at most 64 [[class]] are allowed, and here are 20000",
        ),
        (
            format!("{SMALL_EDGE}{}", rules(1023)),
            format!("{SMALL_EDGE}{}", rules(1024)),
            "all classes together have at most 1024 rules, and here are 1025",
        ),
        (
            format!("{HUB}{}", table(1024, class)),
            format!("{HUB}{}", table(1025, class)),
            "at most 1024 [[class]] are allowed, and here are 1025",
        ),
        (
            format!(
                "{SMALL_EDGE}{}",
                table(15, "[[link]]\nname = 'l#'\ninterface = 'e#'\n")
            ),
            format!(
                "{SMALL_EDGE}{}",
                table(16, "[[link]]\nname = 'l#'\ninterface = 'e#'\n")
            ),
            "at most 16 [[link]] are allowed, and here are 17",
        ),
        (
            servers(1024),
            servers(1025),
            "`dns` has at most 1024 items, and here are 1025",
        ),
    ] {
        let parse = |text: &str| Config::parse("any.toml", text.as_bytes());
        let read = parse(&most).unwrap_or_else(|report| panic!("{said}: {report}"));
        assert!(!read.warnings.has_errors());

        let report = parse(&is_one_too_many).unwrap_err();

        let errors = report.findings().iter();
        let errors: Vec<_> = errors
            .filter(|it| it.severity() == Severity::Error)
            .collect();
        assert_eq!(errors.len(), 1, "{said}: {report}");
        assert!(errors[0].message().starts_with(said), "{report}");
    }
}

#[test]
fn of_a_large_file_that_is_all_wrong_the_first_hundred_errors_are_said() {
    let lines = |line: &str| line.repeat((1 << 20) / line.len());
    let keys: String = (0..60_000).map(|n| format!("mut{n} = 1\n")).collect();
    let inside = |key: &str| SMALL_EDGE.replace("[edge]", &format!("[edge]\n{key}"));
    for text in [
        lines("x\n"),
        lines("a = \n"),
        lines("]]\n"),
        inside(&format!("routes = [{}]", lines("'0', "))),
        inside(&format!("dns = [{}]", lines("0,"))),
        inside(&keys),
        format!("{SMALL_EDGE}{}", lines("[[class]]\n")),
        format!(
            "{SMALL_EDGE}{}",
            lines("[[notify]]\nevents = ['tunnel_upp']\n")
        ),
        format!(
            "{SMALL_EDGE}[[class]]\nname = 'a'\nmatch = [{}]",
            lines("'udp prt 1',")
        ),
        format!("{SMALL_EDGE}{} = 1", "k".repeat(1 << 20)),
        format!("{SMALL_EDGE}{} = 1", "k.".repeat(1 << 19)),
        lines("[["),
        lines("a."),
        lines("{a="),
    ] {
        let report = Config::parse("any.toml", text.as_bytes()).unwrap_err();

        assert!(
            report.findings().len() <= 100,
            "{}",
            report.findings().len()
        );
        assert_eq!(report.located().count(), report.findings().len());
        assert!(report.has_errors());
        let told = report.to_string();
        assert!(told.contains("any.toml"));
        assert!(told.len() < 100 * 2000, "{} bytes", told.len());
    }
}

#[test]
fn a_daemon_has_one_to_sixty_four_workers() {
    for (config, section) in [(HUB, "[hub]\n"), (EDGE, "[edge]\n")] {
        let workers = |count: &str| {
            let text = config.replace(section, &format!("{section}workers = {count}\n"));
            let loaded = Config::parse("any.toml", text.as_bytes());
            loaded.map(|loaded| match loaded.config {
                Config::Hub(hub) => hub.workers,
                Config::Edge(edge) => edge.workers,
            })
        };

        assert_eq!(workers("1").unwrap(), Some(1));
        assert_eq!(workers("64").unwrap(), Some(64));
        for wrong in ["0", "65", "-1", "'all'", "1.5"] {
            let report = workers(wrong).unwrap_err();
            assert!(report.to_string().contains("`workers`"), "{report}");
        }
    }
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
    assert_eq!(edge.links, [starlink, lte]);
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
fn without_classes_there_is_one_that_bonds_and_repairs() {
    let edge = edge(SMALL_EDGE);

    assert_eq!(edge.classes, [Class::default()]);
    let only = &edge.classes[0];
    assert_eq!(
        (only.policy, only.delivery, only.congestion),
        (Policy::Bond, Delivery::Repair, Congestion::Auto)
    );
    assert!(only.catches_all());
}

#[test]
fn an_explicit_class_for_everything_replaces_the_implicit_one() {
    let text = format!("{SMALL_EDGE}\n[[class]]\nname = 'all'\ncongestion = 'cubic'\n");
    let edge = edge(&text);

    assert_eq!(edge.classes.len(), 1);
    assert_eq!(
        (edge.classes[0].name.as_str(), edge.classes[0].congestion),
        ("all", Congestion::Cubic)
    );
}

#[test]
fn a_class_may_be_kept_to_some_links() {
    let two = format!(
        "{SMALL_EDGE}[[link]]\nname = 'dsl'\ninterface = 'eth1'\n\
         [[class]]\nname = 'bulk'\nlinks = ['dsl']\n"
    );
    assert_eq!(edge(&two).classes[0].links, Some(vec!["dsl".to_owned()]));
    let warning = edge_warning(&format!("{two}policy = 'redundant'\n"));
    assert!(warning.contains("with one link nothing"), "{warning}");
    let unknown = complaint("[[class]]\nname = 'bulk'", "links = ['dsl']");
    assert!(unknown.contains("no link is named `dsl`"), "{unknown}");
    assert!(unknown.contains("there are lte"), "{unknown}");
}

#[test]
fn fec_codes_are_read_with_their_numbers() {
    let fec = |code: &str| {
        edge(&format!(
            "{SMALL_EDGE}\n[[class]]\nname = 'a'\nfec = '{code}'\n"
        ))
        .classes[0]
            .fec
    };

    for code in ["off", "auto", "xor:10+1", "rs:10+2", "rlc:1/8"] {
        assert_eq!(fec(code).to_string(), code);
    }
    assert_eq!(fec("RLC:1/8").to_string(), "rlc:1/8");
}

#[test]
fn a_code_for_packets_that_are_sent_twice_is_pointless() {
    let class = |fec: &str| {
        format!(
            "{SMALL_EDGE}\n[[link]]\nname = 'second'\ninterface = 'b'\n\
             [[class]]\nname = 'a'\npolicy = 'redundant'\nfec = '{fec}'\n"
        )
    };
    let warning = edge_warning(&class("rs:10+2"));
    assert!(warning.contains("pointless"), "{warning}");
    for fine in ["auto", "off"] {
        assert!(edge_report(&class(fine)).is_empty());
    }
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

#[test]
fn a_rule_of_which_an_earlier_one_takes_everything_is_noticed_where_no_class_is_for_the_rest() {
    let text = |first: &str, second: &str| {
        format!(
            "{SMALL_EDGE}\n[[class]]\nname = 'bulk'\nmatch = [{first}]\n\
             [[class]]\nname = 'calls'\nmatch = [{second}]\n"
        )
    };
    for (first, second) in [
        ("'udp'", "'udp port 5060'"),
        ("'tcp', 'dst 10.0.0.0/8'", "'udp dst 10.9.0.0/16 dport 9'"),
        ("'mark 0x10/0xf0'", "'mark 0x12/0xff'"),
        ("'uid 1000-1999'", "'uid 1500'"),
    ] {
        let warning = edge_warning(&text(first, second));
        assert!(
            warning.contains("so class `calls` gets no packet"),
            "{warning}"
        );
        assert!(
            warning.contains("move class `calls` above class `bulk`"),
            "{warning}"
        );
    }
    let part = edge_warning(&text("'udp'", "'udp port 5060', 'icmp'"));
    assert!(part.contains("so this one gets no packet"), "{part}");
    for (first, second) in [("'udp port 5060'", "'udp'"), ("'udp'", "'udp mark 7'")] {
        assert!(edge_report(&text(first, second)).is_empty());
    }
}

#[test]
fn shares_that_a_link_of_known_rate_does_not_carry_are_noticed() {
    let text = |rates: &str, calls: &str, rest: &str| {
        format!(
            "{SMALL_EDGE}\n[[link]]\nname = 'dsl'\ninterface = 'eth7'\n{rates}\n\
             [[class]]\nname = 'calls'\nmatch = ['udp port 5060']\nshare = '{calls}'\n\
             [[class]]\nname = 'rest'\nshare = '{rest}'\n"
        )
    };
    for (rates, calls, rest, said) in [
        (
            "up = '1Mbit'",
            "2Mbit",
            "30%",
            "link `dsl` carries less up than the share of class `calls`",
        ),
        (
            "up = '50Mbit'\ndown = '10Mbit'",
            "8Mbit",
            "30%",
            "the shares add up to more than link `dsl` carries down",
        ),
        (
            "up = '10Mbit'",
            "6Mbit",
            "6Mbit",
            "the shares add up to more than link `dsl` carries up",
        ),
    ] {
        let warning = edge_warning(&text(rates, calls, rest));
        assert!(warning.contains(said) && warning.contains('^'), "{warning}");
    }
    let elsewhere = text("up = '1Mbit'", "2Mbit", "30%")
        .replace("share = '2Mbit'", "links = ['lte']\nshare = '2Mbit'");
    let fits = text("up = '10Mbit'", "7Mbit", "30%");
    for fine in [elsewhere, fits, text("", "7Mbit", "30%")] {
        assert!(edge_report(&fine).is_empty(), "{}", edge_report(&fine));
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

/// What is said about an edge's config with this line in its last section, as a person sees it.
fn complaint(section: &str, line: &str) -> String {
    edge_report(&format!("{SMALL_EDGE}\n{section}\n{line}\n")).to_string()
}

#[test]
fn shares_and_rates_have_units_and_bounds() {
    let class = "[[class]]\nname = 'bulk'";
    for (line, said) in [
        ("share = '20'", "has no unit"),
        ("share = '0%'", "is no share of a link"),
        ("share = '2Mb'", "is no unit of rates"),
        ("limit = '99kbit'", "100kbit is the least"),
        ("limit = '10'", "has no unit"),
        ("limit = 'fast'", "is no rate"),
        ("dscp = 'gold'", "is no code point"),
        ("match = ['size 9']", "no IP packet is so short"),
    ] {
        let report = complaint(class, line);
        assert!(report.contains(said), "{line}: {report}");
        assert!(report.contains('^'), "{line}: {report}");
    }
    for line in ["share = '1.5Mbit'", "limit = '10Mbit'", "dscp = 'ef'"] {
        let report = complaint(class, line);
        assert_eq!(report, "", "{line}");
    }
    let three = "[[class]]\nname = 'a'\nmatch = ['tcp']\nshare = '60%'\n[[class]]\nname = 'b'\nmatch = ['udp']";
    let report = complaint(three, "share = '50%'");
    assert!(report.contains("the shares add up to 110 %"), "{report}");
    let report = complaint("[[link]]\nname = 'x'\ninterface = 'x0'", "up = '5kbit'");
    assert!(report.contains("100kbit is the least"), "{report}");
}

#[test]
fn words_may_be_in_capitals() {
    let text = format!(
        "{SMALL_EDGE}\n[[class]]\nname = 'voice'\nmatch = ['DSCP EF', 'UDP Port 5060']\n\
         policy = 'Single'\ndelivery = 'DATAGRAM'\ncongestion = 'BBR'\nfec = 'OFF'\n"
    );
    let voice = &edge(&text).classes[0];

    assert_eq!(voice.matches[0].dscp, Some(46));
    assert_eq!(
        (voice.policy, voice.delivery, voice.congestion, voice.fec),
        (
            Policy::Single,
            Delivery::Datagram,
            Congestion::Bbr,
            sennit_engine::Fec::Off
        )
    );
}

/// The least config with more lines in `[edge]`.
fn with(more: &str) -> String {
    SMALL_EDGE.replace("[[link]]", &format!("{more}\n[[link]]"))
}

#[test]
fn what_belongs_into_the_tunnel_is_blocked_without_one_unless_the_config_says_otherwise() {
    let leaks = |more: &str| {
        let edge = edge(&with(more));
        (edge.leak, edge.leak_when_stopped)
    };

    assert_eq!(leaks(""), (Leak::Block, Leak::Allow));
    assert_eq!(leaks("leak = 'allow'"), (Leak::Allow, Leak::Allow));
    assert_eq!(
        leaks("leak_when_stopped = 'block'"),
        (Leak::Block, Leak::Block)
    );
    let odd = edge_warning(&with("leak = 'allow'\nleak_when_stopped = 'block'"));
    assert!(odd.contains("no effect"), "{odd}");
    let wrong = edge_report(&with("leak = 'maybe'")).to_string();
    assert!(wrong.contains("allowed: block, allow"), "{wrong}");
}

#[test]
fn a_family_that_is_left_out_is_noticed() {
    for (one, family) in [("0.0.0.0/0", "IPv6"), ("::/0", "IPv4")] {
        let warning = edge_warning(&with(&format!("routes = ['{one}']")));
        let told = format!("{family} leaves beside the tunnel");
        assert!(warning.contains(&told), "{warning}");
    }
    assert!(edge_report(&with("routes = ['0.0.0.0/0', '::/0']")).is_empty());
    assert!(edge_report(&with("routes = ['10.0.0.0/8']")).is_empty());
}

#[test]
fn what_every_host_has_is_nobodys_lan() {
    for lan in [
        "127.0.0.0/8",
        "127.0.0.1/32",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "::1/128",
        "fe80::/64",
        "ff02::/16",
        "96.0.0.0/3",
    ] {
        let report = edge_report(&with(&format!("lan = ['{lan}']")));
        assert_eq!(report.errors(), 1, "{lan}: {report}");
        assert!(report.to_string().contains("cannot be a LAN"), "{report}");
    }
}

#[test]
fn a_pool_of_public_addresses_is_noticed() {
    let report = |pool: &str| {
        let text = HUB.replace("10.200.0.0/16", pool);
        let loaded = HubConfig::parse("hub.toml", text.as_bytes());
        loaded.map_or_else(|report| report, |loaded| loaded.warnings)
    };
    for private in [
        "10.200.0.0/16",
        "172.20.0.0/16",
        "192.168.7.0/24",
        "100.64.0.0/10",
    ] {
        assert!(report(private).is_empty(), "{private}");
    }
    let warning = report("11.0.0.0/16");
    assert_eq!((warning.errors(), warning.findings().len()), (0, 1));
    assert!(warning.to_string().contains("public address space"));
    assert!(report("127.0.0.0/16").has_errors());
}

#[test]
fn an_mtu_that_most_links_do_not_carry_is_noticed() {
    let warning = edge_warning(&with("mtu = 1500"));
    assert!(warning.contains("need 1578 on a link"), "{warning}");
    assert!(edge_report(&with("mtu = 1400")).is_empty());
    let hub = HUB.replace("[hub]", "[hub]\nmtu = 1500");
    let hub = HubConfig::parse("hub.toml", hub.as_bytes()).unwrap();
    assert!(hub.warnings.to_string().contains("need 1578"));
}

#[test]
fn a_hub_may_have_a_name() {
    let text = SMALL_EDGE.replace(
        "\"[2001:db8::1]:443\"",
        "\"vpn.example.org:443\", \"[2001:db8::1]:443\"",
    );
    let edge = edge(&text);

    let hubs: Vec<String> = edge.hub.iter().map(ToString::to_string).collect();
    assert_eq!(hubs, ["vpn.example.org:443", "[2001:db8::1]:443"]);
    assert_eq!(edge.hub[0].address(), None);
    for wrong in ["vpn.example.org", "vpn example:443", "203.0.113:443"] {
        let text = SMALL_EDGE.replace("[2001:db8::1]:443", wrong);
        assert!(edge_report(&text).has_errors(), "{wrong}");
    }
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

/// Fragments near the grammar find more than random bytes do.
fn scraps() -> impl Strategy<Value = String> {
    let scraps = [
        "[edge]\n",
        "[hub]\n",
        "[[link]]\n",
        "[[class]]\n",
        "[edge",
        "hub = ",
        "listen = ",
        "pool = ",
        "match = ",
        "name = ",
        "interface = ",
        "tier = ",
        "weight = ",
        "share = ",
        "fec = ",
        "policy = ",
        "routes = ",
        "device = ",
        "mtu = ",
        "workers = ",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'",
        "\"\"\"",
        ",",
        "\n",
        "\r\n",
        "=",
        "0",
        "-1",
        "99999999999999999999",
        "0xff",
        "1.5",
        "inf",
        "true",
        "1979-05-27",
        "\"10.0.0.0/8\"",
        "\"fd00::/8\"",
        "\"a\\u00e9\\n\"",
        "\"é\"",
        "日本",
        "\u{200d}",
        "\t",
        "\0",
        "\u{7f}",
        "\"udp port 1-2\"",
        "\"xor:10+1\"",
        "\"20%\"",
        "\"203.0.113.10:443\"",
        "#",
        " ",
        "a.b.c",
    ];
    proptest::collection::vec(proptest::sample::select(scraps.to_vec()), 0..60)
        .prop_map(|list| list.concat())
}

/// Every run tries the same cases.
fn seeded() -> ProptestConfig {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x5e_17);
    ProptestConfig {
        rng_seed,
        failure_persistence: None,
        cases: 512,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn any_bytes_give_a_config_or_a_report(source in proptest::collection::vec(any::<u8>(), 0..300)) {
        show(&source);
    }

    #[test]
    fn any_scraps_of_a_config_give_a_config_or_a_report(text in scraps()) {
        show(text.as_bytes());
    }

    #[test]
    fn any_change_of_a_valid_config_gives_a_config_or_a_report(at in 0..EDGE.len(), cut in 0..40_usize, scrap in scraps()) {
        let (mut source, end) = (EDGE.as_bytes().to_vec(), EDGE.len().min(at + cut));
        source.splice(at..end, scrap.bytes().take(30));
        show(&source);
    }

    #[test]
    fn any_rule_is_read_or_refused(rule in "((dscp|udp|tcp|proto|port|sport|src|dst|é)? ?[a-z0-9:./é-]{0,6} ?){0,4}") {
        show(format!("{SMALL_EDGE}\n[[class]]\nname = 'x'\nmatch = ['{rule}']\n").as_bytes());
    }
}

/// Reads and renders; a failed reading has at least one error.
fn show(source: &[u8]) {
    let readings = [
        Config::parse("any.toml", source).map(|loaded| loaded.warnings),
        HubConfig::parse("any.toml", source).map(|loaded| loaded.warnings),
        EdgeConfig::parse("any.toml", source).map(|loaded| loaded.warnings),
    ];
    for reading in readings {
        let (report, failed) = match reading {
            Ok(warnings) => (warnings, false),
            Err(report) => (report, true),
        };
        assert_eq!(report.has_errors(), failed);
        assert_eq!(report.located().count(), report.findings().len());
        assert_eq!(report.to_string().is_empty(), report.is_empty());
    }
}

/// What is said of an edge's `[api]`.
fn said_of_api(api: &str) -> String {
    let text = format!(
        "[edge]\nhub = [\"203.0.113.10:443\"]\n[[link]]\nname = \"a\"\ninterface = \"eth1\"\n\
         [api]\n{api}\n"
    );
    match EdgeConfig::parse("edge.toml", text.as_bytes()) {
        Ok(loaded) => loaded.warnings.to_string(),
        Err(report) => report.to_string(),
    }
}

#[test]
fn an_api_that_others_can_reach_needs_tls_and_a_token() {
    let tls = "tls_certificate = \"/a.pem\"\ntls_key = \"/a.key\"\n";
    let token = "read_token = \"file:/t\"\n";
    let open = "listen = [\"127.0.0.1:8479\", \"0.0.0.0:8479\"]\n";
    for (more, missing) in [
        (String::new(), "tls_certificate, tls_key and a token"),
        (tls.into(), "a token"),
        (token.into(), "tls_certificate and tls_key"),
    ] {
        let said = said_of_api(&(open.to_owned() + &more));
        assert!(said.contains("others can reach 0.0.0.0:8479"), "{said}");
        assert!(said.contains(&format!("^ this needs {missing}")), "{said}");
        assert_eq!(said.matches("error").count(), 1, "{said}");
    }

    assert_eq!(said_of_api(&(open.to_owned() + tls + token)), "");
    for near in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(said_of_api(&format!("listen = [\"{near}\"]")), "", "{near}");
    }
}

#[test]
fn what_is_wrong_with_an_api_is_said_where_it_is() {
    for (api, words) in [
        ("tls_key = \"/a.key\"", "`tls_key` needs `tls_certificate`"),
        (
            "tls_certificate = \"/a\"",
            "`tls_certificate` needs `tls_key`",
        ),
        (
            "read_token = \"hunter2\"",
            "a secret does not belong into the config",
        ),
        (
            "hosts = [\"router.lan:80\"]",
            "`router.lan:80` is no host name",
        ),
        ("hosts = [\"http://router\"]", "is no host name"),
        ("listen = [\"127.0.0.1\"]", "the port is missing"),
        (
            "listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
            "names 127.0.0.1:1 twice",
        ),
        ("listen = 8479", "`listen` must be a list of strings"),
        ("tokens = []", "unknown key `tokens` in [api]"),
    ] {
        let said = said_of_api(api);
        assert!(
            said.contains(words) && said.contains("edge.toml:7"),
            "{api}: {said}"
        );
    }
}
