//! `sennit doctor`.

use std::net::SocketAddr;
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
    text += match diagnosis.edge_uid {
        None => "",
        Some(0) => "the edge runs as root\n",
        Some(_) => "the edge runs as a user of its own\n",
    };
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
    facts.extend(guessed(link).map(str::to_owned));
    facts.extend(link.public.iter().map(ToString::to_string));
    let is_answered = [link.answers_v4, link.answers_v6].contains(&Some(true));
    if is_answered && link.public.is_empty() {
        facts.push("where the hub sees it is not known".into());
    }
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

/// What the IPv4 address says of a NAT, as far as the hub does not know better.
fn guessed(link: &LinkFacts) -> Option<&'static str> {
    let mut public = link.public.iter();
    let seen = public.find(|it| it.seen.iter().any(SocketAddr::is_ipv4));
    let is_translated = seen.map(|it| it.translated);
    match (link.nat?, is_translated) {
        (_, Some(false)) | (Nat::None, Some(true)) => None,
        (Nat::None, None) => Some("a public address"),
        (Nat::Router, _) => Some("behind a router's NAT"),
        (Nat::CarrierGrade, _) => Some("behind the provider's NAT"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{NatMapping, PublicStatus};

    /// A link of a provider that translates, and what the hub sees of it.
    fn line_of(public: &[PublicStatus]) -> String {
        line(&LinkFacts {
            link: "lte".into(),
            interface: "wwan0".into(),
            addresses: vec!["100.72.1.2".parse().unwrap()],
            nat: Some(Nat::CarrierGrade),
            public: public.to_vec(),
            answers_v4: Some(true),
            ..LinkFacts::default()
        })
    }

    #[test]
    fn a_line_says_where_the_hub_sees_the_link_and_through_what_kind_of_nat() {
        let mut public = PublicStatus {
            seen: vec!["203.0.113.7:61022".parse().unwrap()],
            translated: true,
            port_kept: Some(false),
            mapping: Some(NatMapping::EndpointIndependent),
        };
        let start = "lte on wwan0, 100.72.1.2, ";
        assert_eq!(
            line_of(&[public.clone()]),
            format!(
                "{start}behind the provider's NAT, the hub sees 203.0.113.7:61022 (a NAT that \
                 changes the port; its mapping is endpoint-independent), the hub answers by IPv4"
            )
        );

        // The hub stands behind the same NAT, or the provider has one of its own.
        public.seen = vec!["100.72.1.2:40000".parse().unwrap()];
        (public.translated, public.port_kept, public.mapping) = (false, None, None);
        assert_eq!(
            line_of(&[public]),
            format!("{start}the hub sees 100.72.1.2 (no NAT), the hub answers by IPv4")
        );

        let unknown = line_of(&[]);
        assert!(
            unknown.contains("behind the provider's NAT, where the hub sees it is not known"),
            "{unknown}"
        );
    }
}
