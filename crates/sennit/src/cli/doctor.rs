//! `sennit doctor`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;

use super::{Exit, Failure, load, output};
use crate::config::{DEFAULT_EDGE_FILE, EdgeConfig, Severity};
use crate::daemon::edge::doctor::{self, Diagnosis, Finding, LinkFacts, Nat};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sennit doctor
  sennit doctor --json | jq .findings

It looks at this host, and by each link at the hub, and leaves nothing changed. It needs root. An edge
may run or not: beside one that runs it asks from ports of its own, so that the tunnel goes on, and
looks at two things more, whether the edge has a tunnel and whether rp_filter drops its answers. Exit
code 6: it has found something.")]
pub(super) struct DoctorArgs {
    /// The edge's config
    #[arg(long, value_name = "FILE", default_value = DEFAULT_EDGE_FILE)]
    config: PathBuf,
    /// Print JSON (sennit.doctor/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let config = load(EdgeConfig::load(&args.config))?;
    let diagnosis = doctor::examine(&config, SystemTime::now())?;
    if args.json {
        output::print_json(&diagnosis)?;
    } else {
        output::print(&text(&diagnosis))?;
    }
    Ok(if diagnosis.findings.is_empty() {
        Exit::Ok
    } else {
        Exit::Findings
    })
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for link in &diagnosis.links {
        text += &format!("{}\n", line(link));
    }
    for finding in &diagnosis.findings {
        text += &format!("\n{}", words(finding));
    }
    if diagnosis.findings.is_empty() {
        text += "\nNothing is wrong.\n";
    }
    text
}

/// A link in one line.
fn line(link: &LinkFacts) -> String {
    let mut facts = vec![format!("{} on {}", link.link, link.interface)];
    facts.extend(link.addresses.iter().map(ToString::to_string));
    facts.extend(link.nat.map(|nat| {
        let words = match nat {
            Nat::None => "a public address",
            Nat::Router => "behind a router's NAT",
            Nat::CarrierGrade => "behind the provider's NAT",
        };
        words.to_owned()
    }));
    let answers = |family: &str, answers: Option<bool>| {
        answers.map(|it| {
            let word = if it { "answers" } else { "does not answer" };
            format!("the hub {word} by {family}")
        })
    };
    facts.extend(answers("IPv4", link.answers_v4));
    facts.extend(answers("IPv6", link.answers_v6));
    let mtu = link.path_mtu_bytes;
    facts.extend(mtu.map(|mtu| format!("packets of {mtu} bytes pass")));
    facts.join(", ")
}

fn words(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let link = finding.link.as_ref();
    let link = link.map_or(String::new(), |link| format!("{link}: "));
    let Finding {
        code,
        message,
        advice,
        ..
    } = finding;
    format!("{severity}[{code}]: {link}{message}\n  do: {advice}\n")
}
