//! Somebody watches a hub and an edge with Prometheus: what `packaging/` has for it, in a real one.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sennit_lab::{Host, Running};
use serde_json::Value;

use crate::traffic::Conversation;
use crate::world::{Daemon, Edge, HUB_INNER, PATIENCE, World, wait_for};

/// Where Prometheus listens, in a namespace of its own.
const ADDRESS: &str = "127.0.0.1:9090";
/// By which the book has an edge known to whoever asks it from another host.
const NAME: &str = "van.example";
/// What a tunnel has only after a day, or where its classes share links.
const LATER: [&str; 2] = ["sennit_link_forecast_bytes", "sennit_shared_held"];

const RULES: &str = "prometheus/sennit.rules.yml";
const DASHBOARD: &str = "grafana/sennit.json";

fn packaged(file: &str) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    fs::read_to_string(packaging.join(file)).unwrap()
}

/// How an edge on another host is asked, as the chapter about metrics shows it.
fn of_the_book() -> String {
    let chapter = packaged("../docs/src/metrics.md");
    let start = chapter.find("  - job_name: afar").unwrap();
    let (shown, _) = chapter[start..].split_once("```").unwrap();
    shown.to_owned()
}

/// The metrics that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_of_word(c));
    let metrics = words.filter(|word| word.starts_with("sennit_"));
    metrics.map(str::to_owned).collect()
}

/// All expressions within a part of the dashboard, as Grafana fills them in.
fn expressions(part: &Value) -> Vec<String> {
    let of_fields = |fields: &serde_json::Map<String, Value>| {
        let own = fields.get("expr").and_then(Value::as_str);
        let own = own.map(|it| it.replace("$instance", ".*"));
        let own = own.map(|it| it.replace("$__rate_interval", "10s"));
        let below = fields.values().flat_map(expressions);
        own.into_iter().chain(below).collect()
    };
    match part {
        Value::Object(fields) => of_fields(fields),
        Value::Array(items) => items.iter().flat_map(expressions).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// A file that nobody else may read.
fn private(world: &World, name: &str, text: &str) -> PathBuf {
    let path = world.write(name, text);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// The program: on the path, or where `tools/prometheus` puts it.
fn program() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let places = [PathBuf::from("prometheus"), target.join("tools/prometheus")];
    let there = places.into_iter().find(|place| {
        let said = Command::new(place).arg("--version").output();
        said.is_ok_and(|said| said.status.success())
    });
    if there.is_none() {
        println!("SKIPPED: there is no Prometheus; `tools/prometheus` fetches it on Debian");
    }
    there
}

/// A running Prometheus.
struct Prometheus<'w> {
    host: &'w Host,
    log: PathBuf,
    _process: Running,
}

impl<'w> Prometheus<'w> {
    fn start(world: &World, host: &'w Host, program: &Path, config: &str) -> Self {
        let config = world.write("prometheus.yml", config);
        world.write("sennit.rules.yml", &packaged(RULES));
        let (log, store) = (world.path("prometheus.log"), world.path("prometheus"));
        let output = File::create(&log).unwrap();
        let mut command = host.command(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", store.display()))
            .arg(format!("--web.listen-address={ADDRESS}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        Self {
            host,
            log,
            _process: host.spawn(&mut command).unwrap(),
        }
    }

    /// A document of its HTTP API; `None` while it does not answer.
    fn document(&self, path: &str) -> Option<Value> {
        let connected = self.host.netns().run(|| TcpStream::connect(ADDRESS));
        let mut stream = connected.unwrap().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// How many series an expression has by now; one that is refused fails the test.
    #[track_caller]
    fn series(&self, expression: &str) -> usize {
        let encoded = expression.bytes().map(|byte| format!("%{byte:02X}"));
        let path = format!("query?query={}", encoded.collect::<String>());
        let Some(answer) = self.document(&path) else {
            return 0;
        };
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().len()
    }

    #[track_caller]
    fn wait_for_series(&self, expression: &str) {
        let some = |series: &usize| *series > 0;
        wait_for(expression, || self.series(expression), some);
    }

    /// The alert rules, with what became of each.
    fn rules(&self) -> Vec<Value> {
        let answer = self.document("rules").unwrap_or_default();
        let groups = answer["data"]["groups"].as_array().cloned();
        let rules = groups.unwrap_or_default().into_iter();
        let rules = rules.filter_map(|group| group["rules"].as_array().cloned());
        rules.flatten().collect()
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// A hub that is asked by its own host, and an edge that is asked from there, by TLS and a token.
fn start_watched(world: &World) -> (Daemon<'_>, Daemon<'_>, String) {
    let hub = world.start_hub_with("[api]\nlisten = ['127.0.0.1:8479']\n");
    world.join("van");
    let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).unwrap();
    let certificate = world.write("api.pem", &made.cert.pem());
    let key = private(world, "api.key", &made.signing_key.serialize_pem());
    let token = private(world, "token", "prometheus-0123456789abcdef\n");
    let api = format!(
        "[api]\nlisten = ['0.0.0.0:8479']\ntls_certificate = '{}'\ntls_key = '{}'\n\
         read_token = 'file:{}'\n",
        certificate.display(),
        key.display(),
        token.display(),
    );
    let edge = world.start_edge(&Edge {
        links: &[("a", "wan-a", "cap = '100GB'"), ("b", "wan-b", "")],
        more: &api,
        ..Edge::default()
    });
    edge.wait_until_up();

    let scraped = of_the_book()
        .replace(
            "/etc/prometheus/van.pem",
            &certificate.display().to_string(),
        )
        .replace("/etc/prometheus/sennit-token", &token.display().to_string())
        .replace("192.0.2.7", &edge.status().addresses[0].to_string());
    let config = packaged("prometheus/prometheus.yml").replace("15s", "1s") + &scraped;
    (hub, edge, config)
}

#[test]
fn a_tunnel_has_what_the_rules_and_the_dashboard_ask_for_and_sets_off_no_alarm() {
    let Some(program) = program() else {
        return;
    };
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge, config) = start_watched(&world);
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    let prometheus = Prometheus::start(&world, hub.host, &program, &config);
    prometheus.wait_for_series("count(up{job=\"sennit\"} == 1) == 2");
    // A failover, which has a gap.
    for verb in ["pause", "resume"] {
        edge.tell(&["links", verb, "a"]);
    }

    let count = packaged(RULES).matches("- alert: ").count();
    let are_well = |rules: &Vec<Value>| {
        rules.len() == count && rules.iter().all(|rule| rule["health"] == "ok")
    };
    wait_for("each rule to be evaluated", || prometheus.rules(), are_well);
    let dashboard: Value = serde_json::from_str(&packaged(DASHBOARD)).unwrap();
    let mut metrics = named(&packaged(RULES));
    metrics.extend(named(&packaged(DASHBOARD)));
    for metric in metrics.iter().filter(|it| !LATER.contains(&it.as_str())) {
        prometheus.wait_for_series(metric);
    }
    let panels = expressions(&dashboard["panels"]);
    assert!(panels.len() >= 20, "{panels:#?}");
    for expression in &panels {
        if LATER.iter().any(|metric| expression.contains(metric)) {
            prometheus.series(expression);
        } else {
            prometheus.wait_for_series(expression);
        }
    }
    // They mark failovers, of which there is none at most times.
    for expression in expressions(&dashboard["annotations"]) {
        prometheus.series(&expression);
    }

    let are_quiet = |rules: &Vec<Value>| rules.iter().all(|rule| rule["state"] != "firing");
    wait_for("no alarm", || prometheus.rules(), are_quiet);
    conversation.finish();
}
