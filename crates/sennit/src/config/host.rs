//! What only the host can tell about a config: interfaces that are there or not, their subnets, and
//! the files that the config names.
//!
//! A config may well be checked on another machine, or before a modem is plugged in; so these
//! findings stand beside those of the file. Without the files the daemon does not start: they are
//! read by what reads them at the start.

use std::{error::Error, fmt, io, path::Path};

use schemars::JsonSchema;
use sennit_linux::netlink::{Interface, Netlink};
use serde::Serialize;

use super::{ApiConfig, EdgeConfig, HubConfig, Notify, Prefix, Severity};
use crate::{
    api::{self, ApiError},
    identity::{EdgeIdentity, HubIdentity},
    notify::{self, NotifyError},
};

/// One thing that does not fit together here and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostFinding {
    pub severity: Severity,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl HostFinding {
    /// Whether the config cannot run here.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for HostFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: on this host, {}", self.message)?;
        let help = self.help.as_ref();
        help.map_or(Ok(()), |help| write!(f, "\n  = help: {help}"))
    }
}

/// Compares an edge's config with this host; nothing where it may not look.
pub fn look_at_host(edge: &EdgeConfig) -> Vec<HostFinding> {
    let mut findings = look_at_interfaces(edge);
    // Trust in a proxy needs no identity.
    if edge.proxy.is_none() && is_missing(&edge.state) {
        findings.extend(no_identity(EdgeIdentity::load(&edge.state), "sennit join"));
    }
    findings.extend(look_at_files(&edge.api, &edge.notify));
    findings
}

/// Compares a hub's config with this host; nothing where it may not look.
pub fn look_at_hub_host(hub: &HubConfig) -> Vec<HostFinding> {
    let mut findings = Vec::new();
    if is_missing(&hub.state) {
        let loaded = HubIdentity::load(&hub.state);
        findings.extend(no_identity(loaded, "sennit hub init"));
    }
    findings.extend(look_at_files(&hub.api, &hub.notify));
    findings
}

fn is_missing(directory: &Path) -> bool {
    matches!(directory.try_exists(), Ok(false))
}

fn no_identity<T>(loaded: Result<T, impl Error>, maker: &str) -> Option<HostFinding> {
    Some(HostFinding {
        severity: Severity::Warning,
        message: loaded.err()?.to_string(),
        help: Some(format!("`{maker}` makes one, in the directory `state`")),
    })
}

/// Files with secrets that are missing, open to others, or no such files.
fn look_at_files(api: &ApiConfig, notify: &[Notify]) -> Vec<HostFinding> {
    let asked = api::look_at_files(api).into_iter().filter(|error| {
        !matches!(error, ApiError::File { source, .. } if is_kept_from_us(source))
    });
    let told = notify::look_at_files(notify).into_iter().filter(|error| {
        !matches!(error, NotifyError::File { source, .. } if is_kept_from_us(source))
    });
    let messages = asked.map(|error| error.to_string());
    let messages = messages.chain(told.map(|error| error.to_string()));
    let finding = |message| HostFinding {
        severity: Severity::Warning,
        message,
        help: Some("the daemon does not start so".into()),
    };
    messages.map(finding).collect()
}

/// Whoever checks a config need not be who may read its secrets.
fn is_kept_from_us(source: &io::Error) -> bool {
    source.kind() == io::ErrorKind::PermissionDenied
}

fn look_at_interfaces(edge: &EdgeConfig) -> Vec<HostFinding> {
    let Ok(mut netlink) = Netlink::open() else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for link in &edge.links {
        match Interface::lookup(&mut netlink, &link.interface) {
            Ok(interface) => findings.extend(overlaps(edge, &link.name, &interface)),
            Err(sennit_linux::Error::NoInterface(name)) => findings.push(HostFinding {
                severity: Severity::Warning,
                message: format!("link `{}`: there is no interface {name}", link.name),
                help: Some(
                    "it is used as soon as it is there; `ip link` lists those that are".into(),
                ),
            }),
            Err(error) => tracing::debug!(%error, "cannot look at an interface"),
        }
    }
    let rules = edge.classes.iter().flat_map(|class| {
        let names = class.matches.iter();
        names.filter_map(move |rule| Some((&class.name, rule.kernel.incoming.as_ref()?)))
    });
    for (class, name) in rules {
        let found = Interface::lookup(&mut netlink, name);
        if matches!(found, Err(sennit_linux::Error::NoInterface(_))) {
            findings.push(HostFinding {
                severity: Severity::Warning,
                message: format!("class `{class}`: there is no interface {name}"),
                help: Some("its rule holds as soon as the interface is there".into()),
            });
        }
    }
    findings
}

/// A LAN on a subnet of a link would draw that link's own packets into it.
fn overlaps(edge: &EdgeConfig, link: &str, interface: &Interface) -> Vec<HostFinding> {
    let subnets = interface.addresses.iter().filter(|it| !it.is_link_local());
    let subnets: Vec<Prefix> = subnets.map(|address| address.net.trunc()).collect();
    let pairs = edge.lan.iter().flat_map(|lan| {
        let touches = move |subnet: &&Prefix| subnet.contains(lan) || lan.contains(*subnet);
        subnets
            .iter()
            .filter(touches)
            .map(move |subnet| (lan, subnet))
    });
    let finding = |(lan, subnet): (&Prefix, &Prefix)| {
        HostFinding {
        severity: Severity::Error,
        message: format!("`lan` has {lan}, and link `{link}` is on {subnet}"),
        help: Some("a network is either behind this edge or in front of it: give one of them another prefix".into()),
    }
    };
    pairs.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_an_interface_that_is_not_there_is_named() {
        let text = "[edge]\nhub = ['203.0.113.10:443']\nstate = '/'\n\
                    [[link]]\nname = 'lte'\ninterface = 'lo'\n\
                    [[class]]\nname = 'voice'\nmatch = ['in snt-gone']\n";
        let edge = EdgeConfig::parse("edge.toml", text.as_bytes());
        let findings = look_at_host(&edge.unwrap().config);

        assert_eq!(findings.len(), 1, "{findings:?}");
        let text = findings[0].to_string();
        assert!(text.contains("class `voice`: there is no interface snt-gone"));
    }

    #[test]
    fn a_link_whose_interface_is_not_there_is_named() {
        let text = "[edge]\nhub = ['203.0.113.10:443']\nstate = '/'\n\
                    [[link]]\nname = 'lte'\ninterface = 'snt-missing'\n";
        let edge = EdgeConfig::parse("edge.toml", text.as_bytes())
            .unwrap()
            .config;

        let findings = look_at_host(&edge);

        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, Severity::Warning);
        let text = findings[0].to_string();
        assert!(
            text.contains("link `lte`: there is no interface snt-missing"),
            "{text}"
        );
    }

    #[test]
    fn a_lan_on_the_subnet_of_a_link_is_an_error() {
        let netns = match sennit_linux::netns::Netns::anonymous() {
            Ok(netns) => netns,
            Err(error) => {
                eprintln!("SKIPPED: a_lan_on_the_subnet_of_a_link_is_an_error: {error}");
                return;
            }
        };
        let findings = netns.run(|| {
            let mut netlink = Netlink::open().unwrap();
            let lo = Interface::lookup(&mut netlink, "lo").unwrap();
            let address = "192.168.8.1/24".parse().unwrap();
            netlink.add_address(lo.index, address).unwrap();
            let text = "[edge]\nhub = ['203.0.113.10:443']\nstate = '/'\nlan = ['192.168.0.0/16', '10.1.0.0/16']\n\
                        [[link]]\nname = 'a'\ninterface = 'lo'\n";
            let edge = EdgeConfig::parse("edge.toml", text.as_bytes()).unwrap().config;
            look_at_host(&edge)
        });
        let findings = findings.unwrap();

        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, Severity::Error);
        assert!(
            findings[0].message.contains("192.168.8.0/24"),
            "{findings:?}"
        );
    }

    #[test]
    fn files_without_which_no_daemon_starts_are_named_with_the_words_of_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("open"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(at("open"), mode).unwrap();
        let [state, token, pem, open] = ["state", "token", "pem", "open"].map(at);
        let text = format!(
            "[hub]\nlisten = ['127.0.0.1:443']\npool = ['10.200.0.0/16']\nstate = '{state}'\n\
             [api]\nread_token = 'file:{token}'\ntls_certificate = '{pem}'\ntls_key = '{pem}'\n\
             [[notify]]\nname = 'us'\nurl = 'http://127.0.0.1/'\nsecret = 'file:{open}'\n"
        );
        let hub = HubConfig::parse("hub.toml", text.as_bytes()).unwrap();

        let findings = look_at_hub_host(&hub.config);

        let expected = [
            format!("{state} holds no hub's identity"),
            format!("cannot read {pem}: "),
            format!("cannot read {token}: "),
            format!("{open} holds a secret, and others may read it: chmod 600"),
        ];
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.message.starts_with(&expected), "{finding}");
            assert!(!finding.is_error(), "the config may be for another host");
        }
    }
}
