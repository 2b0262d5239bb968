//! `sennit doctor`: what keeps an edge from working well, and what to do about it.
//!
//! It looks at this host, and by each link at the hub, and nowhere else. It needs no running edge.
//! All that it changes is that, where traffic is held back for an edge that does not run, its own
//! packets have a way past that while it looks ([`sennit_linux::Passage`]). What it says is a
//! [`Finding`], whose code says for programs what its message says for people; the book's chapter
//! on trouble goes by the same words.

mod code;
mod host;
mod link;
mod sight;

use std::{net::IpAddr, time::SystemTime};

use sennit_linux::{Instance, netlink::Netlink};
use serde::Serialize;

pub use self::code::Code;
use crate::{
    config::{self, EdgeConfig, Severity},
    daemon::{
        at_once::at_once,
        edge::{far_side::FarSide, way},
    },
    exit::Failure,
    identity::EdgeIdentity,
    onsite,
    status::PublicStatus,
};

/// What was found.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    pub schema: &'static str,
    pub links: Vec<LinkFacts>,
    /// Number of the user that the edge is, if it runs; 0 is root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_uid: Option<u32>,
    /// Errors first.
    pub findings: Vec<Finding>,
}

/// One link, whether or not anything is wrong with it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinkFacts {
    pub link: String,
    pub interface: String,
    pub addresses: Vec<IpAddr>,
    /// What the IPv4 address by itself says of what is in front of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<Nat>,
    /// Where the hub sees it, IPv4 first; empty if the hub has not told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub public: Vec<PublicStatus>,
    /// Of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// The largest IP packet that was seen to reach the hub; larger than the tunnel's were not
    /// tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
    /// Whether the hub answers by UDP, by IPv4 and IPv6; absent where link or hub has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers_v4: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers_v6: Option<bool>,
}

/// What stands between a link's IPv4 address and the internet, as far as the address tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nat {
    /// The address is public.
    None,
    /// A private address (RFC 1918): a router translates it.
    Router,
    /// An address of RFC 6598: the provider translates it, and others share what it becomes.
    CarrierGrade,
}

/// Something to do something about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// A word for programs.
    pub code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    pub message: String,
    /// What to do.
    pub advice: String,
}

impl Finding {
    fn error(code: Code, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            link: None,
            message: message.into(),
            advice: advice.into(),
        }
    }

    fn warning(code: Code, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, message, advice)
        }
    }

    fn on(self, link: &config::Link) -> Self {
        Self {
            link: Some(link.name.clone()),
            ..self
        }
    }
}

/// Looks at everything; takes some seconds where something does not answer.
pub fn examine(config: &EdgeConfig, now: SystemTime) -> Result<Diagnosis, Failure> {
    sennit_linux::privilege::require_net_admin()?;
    let mut findings = Vec::new();
    if config.proxy.is_none() {
        match EdgeIdentity::load(&config.state) {
            Ok(identity) => findings.extend(host::clock(&identity, now)),
            Err(error) => findings.push(Finding::error(
                Code::NotJoined,
                error.to_string(),
                "ask the hub for a token (`sennit invite SITE --hub ADDR:PORT` there), then: \
                 sennit join TOKEN",
            )),
        }
    }
    let files = onsite::look_at_files(&config.api, &config.notify);
    findings.extend(files.into_iter().map(|it| {
        let advice =
            "the edge starts without what needs it: write the file, or take it out of the config";
        Finding::error(Code::SecretFile, it.message, advice)
    }));
    let mut netlink = Netlink::open()?;
    findings.extend(host::device());
    findings.extend(host::other_routes(config, &mut netlink));
    findings.extend(host::forwarding(config));
    findings.extend(host::lan(config));
    let running = host::is_running(config);
    if !running {
        findings.extend(host::left_behind(config));
    }
    let instance = Instance::of(&config.device);
    let passage = way::passage(&config.device, &config.links);
    // Without them the hub is not asked where it sees a link.
    let proofs = FarSide::load(config).and_then(|it| it.proofs()).ok();
    let proofs = proofs.as_ref();
    let looked = at_once(config.links.iter().enumerate(), |(index, it)| {
        let passage = passage.as_ref().map(|it| it.mark(index));
        let mark = passage.unwrap_or_else(|| instance.link_mark(index)).ok();
        link::look(config, it, mark, proofs, running)
    });
    let looked = looked.into_iter().flatten();
    let (links, of_links): (Vec<LinkFacts>, Vec<Vec<Finding>>) = looked.unzip();
    findings.extend(of_links.into_iter().flatten());
    let is_well = findings.iter().all(|it| it.severity != Severity::Error);
    findings.extend(host::tunnel(config, is_well));
    findings.sort_by_key(|finding| finding.severity);
    Ok(Diagnosis {
        schema: "sennit.doctor/1",
        links,
        edge_uid: host::user(config),
        findings,
    })
}
