//! Metrics: well-formed in both formats, declared once, and used rightly by dashboard and rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sennit::journal::{Event, Tally};
use sennit::metrics::{Format, Kind, Metric, Sources, all, chapter, text};
use sennit::status::{PathState, Role, State, Status};
use sennit_engine::Timer;

use crate::{is_committed, workspace};

fn full() -> Status {
    serde_json::from_str(include_str!("schema/full.json")).unwrap()
}

fn written(status: &Status, format: Format) -> String {
    let events = Tally::default();
    text(
        &Sources {
            status,
            events: &events,
        },
        format,
    )
}

/// A sample's name with its labels, and its value; panics on what no parser would take.
fn sample(line: &str) -> (String, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let name = series.split('{').next().unwrap();
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    assert!(
        name.chars().all(legal) && !name.starts_with(|c: char| c.is_ascii_digit()),
        "{line}"
    );
    if let Some(labels) = series.strip_prefix(name).filter(|it| !it.is_empty()) {
        let labels = labels
            .strip_prefix('{')
            .and_then(|it| it.strip_suffix('}'))
            .unwrap();
        for label in labels.split("\",") {
            let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(name.chars().all(legal), "{line}");
            assert!(!value.trim_end_matches('"').contains('\n'), "{line}");
        }
    }
    (series.to_owned(), value.parse().unwrap())
}

/// Reads a text as the formats demand: a family's lines stand together under its type, and no
/// series is there twice.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut series = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut family = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            if what == "HELP" {
                assert!(families.insert(name.to_owned()), "{name} is there twice");
                family = name.to_owned();
            }
            assert_eq!(name, family, "{line}");
            continue;
        }
        let (name, value) = sample(line);
        assert!(name.starts_with(&family), "{line} is not of {family}");
        assert!(
            series.insert(name, value).is_none(),
            "{line} is there twice"
        );
    }
    series
}

#[test]
fn each_metric_is_declared_once_with_its_unit_in_its_name() {
    let names: BTreeSet<String> = all().map(Metric::sample_name).collect();
    assert_eq!(names.len(), all().count());
    for metric in all() {
        assert!(metric.name.starts_with("sennit_"), "{}", metric.name);
        assert!(!metric.name.ends_with("_total"), "{}", metric.name);
        assert!(metric.help.ends_with('.'), "{}", metric.name);
        if let Some(unit) = metric.unit {
            assert!(
                metric.name.ends_with(&format!("_{unit}")),
                "{}",
                metric.name
            );
        }
        assert!(metric.labels.len() <= 4, "{}", metric.name);
    }
}

#[test]
fn both_formats_say_the_same_and_can_be_read() {
    let status = full();

    let prometheus = written(&status, Format::Prometheus);
    let open = written(&status, Format::OpenMetrics);

    let series = parse(&prometheus);
    assert_eq!(series, parse(&open));
    assert!(open.ends_with("# EOF\n") && !prometheus.contains("# EOF"));
    assert!(prometheus.contains("# TYPE sennit_link_transmit_bytes_total counter\n"));
    assert!(open.contains("# TYPE sennit_link_transmit_bytes counter\n"));
    assert!(open.contains("# UNIT sennit_link_transmit_bytes bytes\n"));
    assert_eq!(series["sennit_link_up{link=\"lte\"}"], 0.0);
    assert_eq!(series["sennit_up"], 1.0, "degraded is up");
    let path = "{site=\"van-07\",class=\"default\",link=\"lte\"}";
    assert_eq!(
        series[&format!("sennit_path_lost_packets_total{path}")],
        1.0
    );
    assert_eq!(series[&format!("sennit_path_rtt_seconds{path}")], 0.04);
}

#[test]
fn shares_are_told_of_both_directions() {
    let series = parse(&written(&full(), Format::Prometheus));

    let of = "site=\"van-07\",class=\"default\",link=\"lte\"";
    for (direction, sent, held) in [("up", 4e6, 1.0), ("down", 8e6, 0.0)] {
        let labels = format!("{{{of},direction=\"{direction}\"}}");
        let name = |name: &str| series[&format!("sennit_shared_{name}{labels}")];
        assert_eq!(name("sent_bytes_per_second"), sent);
        assert_eq!(name("held"), held);
    }
    let queue = "sennit_tunnel_down_queue_dropped_packets_total";
    let labels = "{site=\"van-07\",class=\"default\"}";
    assert_eq!(series[&format!("{queue}{labels}")], 4.0);
}

#[test]
fn caps_repairs_and_the_last_reload_are_told_of_an_edge() {
    let series = parse(&written(&full(), Format::Prometheus));

    let link = |name: &str| series[&format!("sennit_link_{name}{{link=\"lte\"}}")];
    assert_eq!((link("usage_bytes"), link("cap_bytes")), (38e9, 100e9));
    assert_eq!((link("forecast_bytes"), link("standby")), (131e9, 1.0));
    let fec = |name: &str| {
        series[&format!("sennit_fec_{name}_total{{site=\"van-07\",class=\"default\"}}")]
    };
    let counted = ["sent_source_symbols", "received_repair_symbols"].map(fec);
    assert_eq!(counted, [4.0, 10.0]);
    let came = ["recovered_packets", "too_late_packets"].map(fec);
    assert_eq!(came, [11.0, 12.0]);
    assert_eq!(fec("failed_repair_symbols"), 13.0);
    assert_eq!(series["sennit_config_last_reload_successful"], 1.0);
    assert_eq!(series["sennit_config_age_seconds"], 7.5);
    assert!(
        !series
            .keys()
            .any(|name| name.starts_with("sennit_handshakes"))
    );
}

#[test]
fn a_hub_tells_of_its_addresses_and_of_handshakes_by_how_they_ended() {
    let mut status = full();
    status.role = Role::Hub;
    status.tunnels.clear();
    status.workers.push(status.workers[0].clone());

    let series = parse(&written(&status, Format::Prometheus));

    let pool = |name: &str| series[&format!("sennit_leases_{name}{{pool=\"10.200.0.0/24\"}}")];
    assert_eq!((pool("used"), pool("size")), (200.0, 253.0));
    let results = ["completed", "failed", "refused"]
        .map(|result| series[&format!("sennit_handshakes_total{{result=\"{result}\"}}")]);
    assert_eq!(results, [10.0, 12.0, 8.0]);
}

#[test]
fn a_site_that_is_away_is_not_up_and_not_among_those_that_have_a_tunnel() {
    let mut status = full();
    status.role = Role::Hub;
    status.tunnels.clear();
    let mut away = status.sites[0].clone();
    (away.name, away.state) = ("ship".parse().unwrap(), State::Down);
    away.classes.clear();
    away.links.clear();
    status.sites.push(away);

    let series = parse(&written(&status, Format::Prometheus));

    assert_eq!(series["sennit_site_up{site=\"ship\"}"], 0.0);
    assert_eq!(series["sennit_site_up{site=\"van-07\"}"], 1.0);
    assert_eq!(series["sennit_sites"], 1.0);
}

#[test]
fn a_worker_tells_which_timers_woke_it_and_the_book_what_these_are_for() {
    let series = parse(&written(&full(), Format::Prometheus));
    let woken =
        |timer| series[&format!("sennit_worker_woken_total{{worker=\"0\",timer=\"{timer}\"}}")];
    assert_eq!((woken("pacing"), woken("quic")), (12.0, 3.0));

    let chapter = fs::read_to_string(workspace().join("docs/src/workers.md")).unwrap();
    for timer in Timer::ALL {
        let row = format!("| `{}` |", timer.word());
        assert!(chapter.contains(&row), "workers.md lacks {row}");
    }
}

#[test]
fn every_kind_of_event_counts_from_nought() {
    let series = parse(&written(&full(), Format::Prometheus));

    for kind in Event::KINDS {
        assert_eq!(
            series[&format!("sennit_events_total{{event=\"{kind}\"}}")],
            0.0
        );
    }
}

#[test]
fn several_paths_on_one_link_are_one_series() {
    let mut status = full();
    let mut second = status.tunnels[0].paths[0].clone();
    (second.id, second.state, second.rtt_seconds) = (1, PathState::Up, Some(0.2));
    status.tunnels[0].paths.push(second);

    let series = parse(&written(&status, Format::Prometheus));

    let path = "{site=\"van-07\",class=\"default\",link=\"lte\"}";
    assert_eq!(
        series[&format!("sennit_path_sent_packets_total{path}")],
        200.0
    );
    assert_eq!(
        series[&format!("sennit_path_rtt_seconds{path}")],
        0.2,
        "of the one that is up"
    );
}

#[test]
fn names_cannot_break_out_of_a_label() {
    let mut status = full();
    status.links[0].name = "a\"} 1\nevil 2\\".into();

    let series = parse(&written(&status, Format::Prometheus));

    assert!(
        series.keys().all(|name| name.starts_with("sennit_")),
        "{series:?}"
    );
}

/// The metrics that a file names.
fn named(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text
        .split(|c: char| !word(c))
        .filter(|it| it.starts_with("sennit_"));
    words.map(Into::into).collect()
}

#[test]
fn dashboard_and_rules_name_metrics_that_there_are() {
    let known: BTreeSet<String> = all().map(Metric::sample_name).collect();
    for file in [
        "packaging/grafana/sennit.json",
        "packaging/prometheus/sennit.rules.yml",
    ] {
        let named = named(&workspace().join(file));
        assert!(named.len() >= 5, "{file}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
    let dashboard = fs::read(workspace().join("packaging/grafana/sennit.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() >= 10);
    assert!(all().any(|it| it.kind == Kind::Counter));
}

/// Where there is one: on the path, or where `tools/prometheus` puts it.
fn promtool() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let places = [PathBuf::from("promtool"), target.join("tools/promtool")];
    let there = places.into_iter().find(|place| {
        let said = Command::new(place).arg("--version").output();
        said.is_ok_and(|said| said.status.success())
    });
    if there.is_none() {
        println!("SKIPPED: there is no promtool; `tools/prometheus` fetches it on Debian");
    }
    there
}

#[test]
fn prometheus_takes_our_config_and_rules_and_has_nothing_against_our_metrics() {
    let Some(promtool) = promtool() else {
        return;
    };
    let run = |what: [&str; 2], file: &str| {
        let mut command = Command::new(&promtool);
        let done = command.args(what).arg(workspace().join(file));
        let done = done.output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
    };
    // With the rules that it names.
    run(["check", "config"], "packaging/prometheus/prometheus.yml");
    run(
        ["test", "rules"],
        "crates/sennit/tests/parts/metrics/rules.yml",
    );

    let lint = |text: String| {
        let mut lint = Command::new(&promtool);
        lint.args(["check", "metrics"]).stdin(Stdio::piped());
        let mut lint = lint.stderr(Stdio::piped()).spawn().unwrap();
        let mut input = lint.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        lint.wait_with_output().unwrap()
    };
    let wrong = lint("# TYPE sennit_wrong counter\nsennit_wrong 1\n".into());
    assert!(!wrong.status.success(), "it finds what is wrong");
    let told = lint(written(&full(), Format::Prometheus));
    let complaints = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{complaints}");
}

#[test]
fn the_chapter_about_metrics_is_up_to_date() {
    const MADE: &str = "--test parts -->\n\n";
    let page = fs::read_to_string(workspace().join("docs/src/metrics.md")).unwrap();
    let (head, _) = page.split_once(MADE).unwrap();
    is_committed("docs/src/metrics.md", &format!("{head}{MADE}{}", chapter()));
}
