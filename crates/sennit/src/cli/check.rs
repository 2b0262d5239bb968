//! `sennit check`.

use serde::Serialize;

use super::{CheckArgs, Exit, Failure, output};
use crate::config::{Config, ConfigError, Loaded, Located, Report, Severity};

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
}

pub(super) fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    let (config, report) = match Config::load(&args.file) {
        Ok(Loaded { config, warnings }) => (Some(config), warnings),
        Err(ConfigError::Invalid(report)) => (None, report),
        Err(error @ ConfigError::Read { .. }) => return Err(error.into()),
    };
    if args.json {
        output::print_json(&document(args, config.as_ref(), &report))?;
    } else {
        output::print(&text(args, config.as_ref(), &report))?;
    }
    Ok(match config {
        None => Exit::ConfigInvalid,
        Some(_) if args.strict && !report.is_empty() => Exit::Findings,
        Some(_) => Exit::Ok,
    })
}

fn document<'a>(args: &CheckArgs, config: Option<&Config>, report: &'a Report) -> Document<'a> {
    Document {
        schema: "sennit.check/1",
        file: args.file.display().to_string(),
        role: config.map(ToString::to_string),
        errors: report.errors(),
        warnings: warnings(report),
        findings: report.located().collect(),
    }
}

fn warnings(report: &Report) -> usize {
    report
        .findings()
        .iter()
        .filter(|finding| finding.severity() == Severity::Warning)
        .count()
}

fn text(args: &CheckArgs, config: Option<&Config>, report: &Report) -> String {
    let file = args.file.display();
    let verdict = match config {
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
    let found = if report.is_empty() {
        "ok".into()
    } else {
        format!(
            "{}, {}",
            count(report.errors(), "error"),
            count(warnings(report), "warning")
        )
    };
    let findings = if report.is_empty() {
        String::new()
    } else {
        format!("{report}\n\n")
    };
    format!("{findings}{file}: {verdict}: {found}\n")
}

fn count(number: usize, thing: &str) -> String {
    match (number, thing) {
        (1, _) => format!("1 {thing}"),
        (_, "class") => format!("{number} classes"),
        _ => format!("{number} {thing}s"),
    }
}
