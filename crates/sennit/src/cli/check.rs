//! `sennit check`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{Exit, Failure, find_config, output};
use crate::{
    config::{Config, ConfigError, Finding, HostFinding, Leak, Loaded, Located, Report, Severity},
    daemon::confinement::Unfit,
    onsite,
};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit check --strict /etc/sennit/edge.toml
  sennit check --file-only edge.toml # for another host
  sennit check --user sennit         # also whether a daemon can start as this user")]
pub(super) struct CheckArgs {
    /// A hub's or an edge's config [default: the edge's, else the hub's, in /etc/sennit]
    #[arg(value_name = "FILE", default_value_os_t = find_config(), hide_default_value = true)]
    file: PathBuf,
    /// Print JSON (sennit.check/1)
    #[arg(long)]
    json: bool,
    /// Exit with code 6 when there are warnings
    #[arg(long)]
    strict: bool,
    /// Look at the file alone, and not at what this host has or lacks for it: interfaces, their
    /// subnets, the identity, files with secrets
    #[arg(long)]
    file_only: bool,
    /// Look also, as root, whether a daemon could start as this user: a name, or UID:GID
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    file: String,
    /// Which daemon could run with it; absent when none could.
    role: Option<String>,
    errors: usize,
    warnings: usize,
    findings: Vec<Located<'a>>,
    /// What this host has or lacks for it.
    host: Vec<Here<'a>>,
    /// What becomes of the packets for the tunnel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    consequences: Vec<String>,
}

/// A finding of this host, and where the file names what it is about.
#[derive(Serialize)]
struct Here<'a> {
    #[serde(flatten)]
    finding: &'a HostFinding,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

pub(super) fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    let (config, report) = match Config::load(&args.file) {
        Ok(Loaded { config, warnings }) => (Some(config), warnings),
        Err(ConfigError::Invalid(report)) => (None, report),
        Err(error @ ConfigError::Read { .. }) => return Err(error.into()),
    };
    let mut host = match &config {
        _ if args.file_only => Vec::new(),
        Some(Config::Edge(edge)) => onsite::look_at_edge(edge),
        Some(Config::Hub(hub)) => onsite::look_at_hub(hub),
        None => Vec::new(),
    };
    host.extend(config.as_ref().and_then(|it| look_at_user(args, it)));
    let checked = Checked {
        args,
        config: config.as_ref(),
        report: &report,
        host,
    };
    if args.json {
        output::print_json(&checked.document())?;
    } else {
        output::print(&checked.text())?;
    }
    let wrong_here = |finding: &HostFinding| finding.severity == Severity::Error;
    let flawless = report.is_empty() && checked.host.is_empty();
    Ok(match config {
        None => Exit::ConfigInvalid,
        Some(_) if checked.host.iter().any(wrong_here) => Exit::ConfigInvalid,
        Some(_) if args.strict && !flawless => Exit::Findings,
        Some(_) => Exit::Ok,
    })
}

/// Whether its daemon could be the user that was asked for.
fn look_at_user(args: &CheckArgs, config: &Config) -> Option<HostFinding> {
    let (kept, files) = match config {
        Config::Edge(edge) => (edge.kept(), edge.files(&args.file)),
        Config::Hub(hub) => (hub.kept(), hub.files(&args.file)),
    };
    let unfit = Unfit::find(args.user.as_deref()?, &kept, &files)?;
    Some(HostFinding {
        severity: Severity::Error,
        message: unfit.why,
        help: Some(unfit.help),
        named: None,
    })
}

/// A file and all that was found about it.
struct Checked<'a> {
    args: &'a CheckArgs,
    config: Option<&'a Config>,
    report: &'a Report,
    host: Vec<HostFinding>,
}

impl Checked<'_> {
    fn document(&self) -> Document<'_> {
        let here = self.host.iter().map(|finding| {
            let (line, column) = finding.position(self.report).unzip();
            Here {
                finding,
                line,
                column,
            }
        });
        Document {
            schema: "sennit.check/1",
            file: self.args.file.display().to_string(),
            role: self.config.map(ToString::to_string),
            errors: self.count(Severity::Error),
            warnings: self.count(Severity::Warning),
            findings: self.report.located().collect(),
            host: here.collect(),
            consequences: self.config.map(consequences).unwrap_or_default(),
        }
    }

    fn count(&self, severity: Severity) -> usize {
        let in_file = self.report.findings().iter().map(Finding::severity);
        let here = self.host.iter().map(|finding| finding.severity);
        in_file.chain(here).filter(|it| *it == severity).count()
    }

    fn text(&self) -> String {
        let file = self.args.file.display();
        let verdict = match self.config {
            Some(Config::Hub(hub)) => format!("a hub, listening at {} addresses", hub.listen.len()),
            Some(Config::Edge(edge)) => {
                format!(
                    "an edge with {} and {}",
                    count(edge.links.len(), "link"),
                    count(edge.classes.len(), "class")
                )
            }
            None => "not valid".into(),
        };
        let found = if self.report.is_empty() && self.host.is_empty() {
            "ok".into()
        } else {
            format!(
                "{}, {}",
                count(self.count(Severity::Error), "error"),
                count(self.count(Severity::Warning), "warning")
            )
        };
        let mut text = String::new();
        if !self.report.is_empty() {
            text += &format!("{}\n\n", self.report);
        }
        for finding in &self.host {
            text += &format!("{}\n\n", finding.quoted(self.report));
        }
        text += &format!("{file}: {verdict}: {found}\n");
        for line in self.config.map(consequences).unwrap_or_default() {
            text += &format!("  {line}\n");
        }
        text
    }
}

/// What the config does to packets that belong into the tunnel, in sentences.
fn consequences(config: &Config) -> Vec<String> {
    let Config::Edge(edge) = config else {
        return Vec::new();
    };
    if edge.routes.is_empty() {
        return vec![
            "only the hub's inner network is routed into the tunnel; the rest is up to the router"
                .into(),
        ];
    }
    let routes: Vec<String> = edge.routes.iter().map(ToString::to_string).collect();
    let routes = routes.join(", ");
    let stopped = match (edge.leak, edge.leak_when_stopped) {
        (Leak::Block, Leak::Block) => "stay unreachable when it is stopped, until `sennit cleanup`",
        (Leak::Block, Leak::Allow) => "leave by the host's other routes when it is stopped",
        (Leak::Allow, _) => {
            return vec![format!(
                "while there is no tunnel, {routes} leave by the host's other routes, in the clear \
                 (leak = \"allow\")"
            )];
        }
    };
    vec![
        format!("while there is no tunnel, {routes} are unreachable (leak = \"block\")"),
        format!("packets to them {stopped}"),
    ]
}

fn count(number: usize, thing: &str) -> String {
    match (number, thing) {
        (1, _) => format!("1 {thing}"),
        (_, "class") => format!("{number} classes"),
        _ => format!("{number} {thing}s"),
    }
}
