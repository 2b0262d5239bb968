//! `sennit bugreport`: what somebody who helps wants to know, without what is nobody's business.

mod names;
mod redact;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::Value;

use self::redact::Redaction;
use super::{Exit, Failure, find_config, output, reload, starter};
use crate::config::{self, Config, EdgeConfig, Salvaged};
use crate::control::Request;
use crate::daemon::edge::doctor;
use crate::date;
use crate::journal::{self, Events, Record, Wanted};
use crate::status::{self, Status};

/// A daemon that does not answer is part of the report.
const PATIENCE: Duration = Duration::from_secs(5);
/// Lines of the journal.
const LINES: &str = "200";
/// Events that are in it.
const NEWEST: Wanted = Wanted {
    after: None,
    since_seconds: None,
    limit: Some(200),
    wait_seconds: None,
};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit bugreport | less            # what would be in it
  sennit bugreport --output report.txt

Public addresses, hardware addresses, URLs, tokens, and the names of this host, its sites and the hosts in its
config become numbered words, the same ones everywhere. Private addresses stay, as those of LANs, of providers
that translate (100.64.0.0/10) and inside the tunnel: they say how things hang together, and not where you are.
No key is in it, nor what the config has under the key of a secret. Nothing is sent anywhere: look at it, and
send it yourself.")]
pub(super) struct BugreportArgs {
    /// The daemon's config [default: the edge's, else the hub's, in /etc/sennit]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Control socket of the daemon [default: the config's, else the edge's, else the hub's, in
    /// /run/sennit]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Write it there instead of printing it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &BugreportArgs) -> Result<Exit, Failure> {
    let mut redaction = Redaction::default();
    let file = args.config.clone().unwrap_or_else(find_config);
    let source = fs::read(&file).map(|text| String::from_utf8_lossy(&text).into_owned());
    let text = source.as_deref().unwrap_or_default();
    names::hide(&mut redaction, text);
    let config = Config::load(&file).ok().map(|loaded| loaded.config);
    let of_config = source.is_ok().then(|| config::salvage(text.as_bytes()));
    let ask = |request: Request| ask(args.control.as_deref(), of_config.as_ref(), &request);
    let daemon = ask(Request::Status);
    let events = ask(Request::Events { wanted: NEWEST });
    let events = events.map_or_else(|_| kept(config.as_ref()), parse);
    let log = log(&file, config.as_ref());
    daemon
        .iter()
        .for_each(|status| hide_sites(&mut redaction, status));
    // Some are of sites that are forgotten.
    events
        .iter()
        .for_each(|events| names::hide_in_events(&mut redaction, &events.events));
    names::hide_in_log(&mut redaction, &log);
    let why = daemon.as_ref().map_or_else(String::clone, why);
    let daemon = daemon.map_or_else(|why| why, |status| format!("{status:#}"));
    let sections = [
        ("version", format!("sennit {}", env!("CARGO_PKG_VERSION"))),
        ("written", date::seconds(SystemTime::now())),
        ("system", system()),
        (
            "config",
            source.unwrap_or_else(|error| format!("{}: {error}", file.display())),
        ),
        ("status", daemon),
        ("why", why),
        ("events", events.map_or_else(|why| why, |it| in_lines(&it))),
        ("doctor", examine(config.as_ref())),
        ("addresses", said("ip", &["-details", "address"])),
        (
            "rules",
            said("ip", &["rule"]) + &said("ip", &["-6", "rule"]),
        ),
        ("routes", said("ip", &["route", "show", "table", "all"])),
        (
            "routes of IPv6",
            said("ip", &["-6", "route", "show", "table", "all"]),
        ),
        ("journal", log),
    ];
    let mut text = String::new();
    for (title, body) in sections {
        text += &format!("==== {title}\n{}\n\n", redaction.apply(body.trim_end()));
    }
    let Some(file) = &args.output else {
        return output::print(&text);
    };
    let shown = file.display();
    fs::write(file, text)
        .map_err(|error| Failure::io(&error, format!("cannot write {shown}: {error}")))?;
    output::say!("Written to {shown}. Look at it before you send it to anybody.");
    Ok(Exit::Ok)
}

/// Hides the names of the sites of which a status tells.
fn hide_sites(redaction: &mut Redaction, status: &Value) {
    // Those of a hub that are away have no tunnel.
    for (list, name) in [("tunnels", "site"), ("sites", "name")] {
        let sites = status[list].as_array().into_iter().flatten();
        let sites = sites.filter_map(|it| it[name].as_str());
        sites.for_each(|site| redaction.hide(site, "site"));
    }
}

/// What the daemon answers, or why it does not.
fn ask(
    control: Option<&Path>,
    config: Option<&Salvaged>,
    request: &Request,
) -> Result<Value, String> {
    let client = reload::connect(control, config, PATIENCE);
    let mut client = client.map_err(|failure| failure.to_string())?;
    client.request(request).map_err(|error| error.to_string())
}

/// Why each link carries what it carries.
fn why(status: &Value) -> String {
    let status = serde_json::from_value::<Status>(status.clone());
    let told = status.map(|status| {
        let paths = status::render_reasons(&status::reasons(&status, None));
        paths + &status::render_shared(&status, None)
    });
    told.unwrap_or_else(|error| error.to_string())
}

/// The events that a daemon tells.
fn parse(events: Value) -> Result<Events, String> {
    serde_json::from_value(events).map_err(|error| error.to_string())
}

/// The events that a daemon has left which does not answer.
fn kept(config: Option<&Config>) -> Result<Events, String> {
    let file = match config {
        Some(Config::Hub(hub)) => hub.state.join("hub-journal.db"),
        Some(Config::Edge(edge)) => edge.records.join("edge-journal.db"),
        None => return Err("no daemon answers, and the config is not valid".into()),
    };
    journal::read_file(&file, &NEWEST)
}

/// A line for each event.
fn in_lines(events: &Events) -> String {
    let line = |it: &Record| format!("{}  {}\n", it.time, it.text.replace(char::is_control, "?"));
    events.events.iter().map(line).collect()
}

fn examine(config: Option<&Config>) -> String {
    let Some(Config::Edge(edge)) = config else {
        return "not an edge, or its config is not valid".into();
    };
    let edge: &EdgeConfig = edge;
    match doctor::examine(edge, SystemTime::now()) {
        Ok(diagnosis) => serde_json::to_string_pretty(&diagnosis).unwrap_or_default(),
        Err(failure) => failure.to_string(),
    }
}

fn system() -> String {
    let read = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
    format!("{}{}", read("/proc/version"), read("/etc/os-release"))
}

/// The log of the daemon with this config, or of all where no unit reads it.
fn log(file: &Path, config: Option<&Config>) -> String {
    let role = match config {
        Some(Config::Hub(_)) => "hub",
        Some(Config::Edge(_)) | None => "edge",
    };
    let unit = starter::unit(role, file);
    let whose = match &unit {
        Some(unit) => ["-u", unit.as_str()],
        None => ["-t", "sennit"],
    };
    let words = ["-n", LINES, "--no-pager", "-o", "short-iso"];
    said("journalctl", &[&whose[..], &words[..]].concat())
}

/// What a command prints, or why it does not.
fn said(program: &str, words: &[&str]) -> String {
    match Command::new(program).args(words).output() {
        Ok(output) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            text(&output.stdout) + &text(&output.stderr)
        }
        Err(error) => format!("{program}: {error}\n"),
    }
}
