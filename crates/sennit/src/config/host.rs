//! What only the host can tell about a config: interfaces that are there or not, and their subnets.
//!
//! A config may well be checked on another machine, or before a modem is plugged in; so these
//! findings stand beside those of the file.

use std::fmt;
use std::ops::Range;

use schemars::JsonSchema;
use sennit_linux::netlink::{Family, Interface, Netlink};
use serde::Serialize;

use super::finding::{Finding, Report};
use super::{EdgeConfig, Prefix, Severity, private};

/// One thing that does not fit together here and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostFinding {
    pub severity: Severity,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The key that names what is missing, and what it is called.
    #[serde(skip)]
    pub named: Option<(&'static str, String)>,
}

impl HostFinding {
    /// Whether the config cannot run here.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// For people: with the line of the file that names what is missing, if one does.
    pub(crate) fn quoted(&self, file: &Report) -> String {
        let Some(span) = self.place(file.text()) else {
            return self.to_string();
        };
        let message = format!("on this host, {}", self.message);
        let finding = match self.severity {
            Severity::Error => Finding::error(span, message),
            Severity::Warning => Finding::warning(span, message),
        };
        file.render(&match &self.help {
            Some(help) => finding.help(help),
            None => finding,
        })
    }

    /// The line and the column there, as those of a finding in the file.
    pub(crate) fn position(&self, file: &Report) -> Option<(usize, usize)> {
        let place = self.place(file.text())?;
        Some(file.position(place.start))
    }

    fn place(&self, text: &str) -> Option<Range<usize>> {
        let (key, name) = self.named.as_ref()?;
        let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        let places = private::values(text, key).into_iter();
        let mut words = places.flat_map(|place| {
            let value = &text[place.clone()];
            let found = value.match_indices(name.as_str()).filter(|(at, _)| {
                let before = value[..*at].ends_with(is_part);
                !before && !value[at + name.len()..].starts_with(is_part)
            });
            let found = found.map(|(at, _)| place.start + at..place.start + at + name.len());
            found.collect::<Vec<_>>()
        });
        words.next()
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

/// Compares an edge's links and LAN with this host; nothing where it may not look.
pub(crate) fn look_at_interfaces(edge: &EdgeConfig) -> Vec<HostFinding> {
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
                named: Some(("interface", link.interface.clone())),
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
                named: Some(("match", name.clone())),
            });
        }
    }
    findings.extend(look_at_lan(edge));
    findings
}

/// Networks of the LAN that this host does not lead to, by any interface or route; nothing where it
/// may not look.
pub(crate) fn look_at_lan(edge: &EdgeConfig) -> Vec<HostFinding> {
    if edge.lan.is_empty() {
        return Vec::new();
    }
    let networks = networks()
        .inspect_err(|error| tracing::debug!(%error, "cannot list the networks of this host"));
    let Ok(networks) = networks else {
        return Vec::new();
    };
    let is_here = |lan: &&Prefix| networks.iter().any(|it| touches(lan, it));
    let missing = edge.lan.iter().filter(|lan| !is_here(lan));
    let finding = |lan: &Prefix| HostFinding {
        severity: Severity::Warning,
        message: format!("`lan` has {lan}, and no interface and no route leads there"),
        help: Some(
            "what comes for it is lost here: give the interface towards it an address, or mend \
             `lan`"
                .into(),
        ),
        named: Some(("lan", lan.to_string())),
    };
    missing.map(finding).collect()
}

/// Where this host leads to, but by default routes and through a tunnel of ours.
fn networks() -> Result<Vec<Prefix>, sennit_linux::Error> {
    let mut netlink = Netlink::open()?;
    let addresses = netlink.host_addresses()?.into_iter();
    let mut networks: Vec<Prefix> = addresses.map(|it| it.network.trunc()).collect();
    for family in Family::BOTH {
        let routes = netlink.main_routes(family)?.into_iter();
        let routes = routes.filter(|it| !it.is_ours() && !it.unreachable && !it.is_default());
        networks.extend(routes.map(|it| it.destination));
    }
    Ok(networks)
}

fn touches(one: &Prefix, other: &Prefix) -> bool {
    one.contains(other) || other.contains(one)
}

/// A LAN on a subnet of a link would draw that link's own packets into it.
fn overlaps(edge: &EdgeConfig, link: &str, interface: &Interface) -> Vec<HostFinding> {
    let subnets = interface.addresses.iter().filter(|it| !it.is_link_local());
    let subnets: Vec<Prefix> = subnets.map(|address| address.net.trunc()).collect();
    let pairs = edge.lan.iter().flat_map(|lan| {
        subnets
            .iter()
            .filter(move |subnet| touches(lan, subnet))
            .map(move |subnet| (lan, subnet))
    });
    let finding = |(lan, subnet): (&Prefix, &Prefix)| {
        HostFinding {
        severity: Severity::Error,
        message: format!("`lan` has {lan}, and link `{link}` is on {subnet}"),
        help: Some("a network is either behind this edge or in front of it: give one of them another prefix".into()),
        named: Some(("lan", lan.to_string())),
    }
    };
    pairs.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_an_interface_that_is_not_there_is_named_at_its_place() {
        let text = "[edge]\nhub = ['203.0.113.10:443']\nstate = '/'\n\
                    [[link]]\nname = 'lte'\ninterface = 'lo'\n\
                    [[class]]\nname = 'voice'\nmatch = ['in snt-gone']\n";
        let edge = EdgeConfig::parse("edge.toml", text.as_bytes()).unwrap();
        let findings = look_at_interfaces(&edge.config);

        assert_eq!(findings.len(), 1, "{findings:?}");
        let said = findings[0].quoted(&edge.warnings);
        for part in [
            "warning: on this host, class `voice`: there is no interface snt-gone",
            "--> edge.toml:9:14",
            "            ^^^^^^^^\n",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(findings[0].position(&edge.warnings), Some((9, 14)));
    }

    #[test]
    fn a_link_whose_interface_is_not_there_is_named() {
        let text = "[edge]\nhub = ['203.0.113.10:443']\nstate = '/'\n\
                    [[link]]\nname = 'lte'\ninterface = 'snt-missing'\n";
        let edge = EdgeConfig::parse("edge.toml", text.as_bytes())
            .unwrap()
            .config;

        let findings = look_at_interfaces(&edge);

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
            look_at_interfaces(&edge)
        });
        let findings = findings.unwrap();

        assert_eq!(findings.len(), 2, "{findings:?}");
        assert_eq!(findings[0].severity, Severity::Error);
        assert!(
            findings[0].message.contains("192.168.8.0/24"),
            "{findings:?}"
        );
        assert_eq!(findings[1].severity, Severity::Warning);
        let nowhere = "`lan` has 10.1.0.0/16, and no interface and no route leads there";
        assert_eq!(findings[1].message, nowhere);
    }
}
