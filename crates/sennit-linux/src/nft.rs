//! Address translation, and what may pass, by nftables: in a table of our own.

mod generation;
mod space;
mod table;

use std::{collections::BTreeSet, fmt::Write as _, io, time::Duration};

use sennit_packet::Prefix;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::space::is_public;
use self::space::{NOT_PUBLIC_V4, NOT_PUBLIC_V6, PUBLIC_V6};
pub(crate) use self::table::Table;
use crate::{
    DeviceName, Error,
    helper::{self, Task},
    program,
};

/// So the name of a table begins, and that of the device follows.
const PREFIX: &str = "sennit_";
/// To make a table for many sites on a small router may take so long.
const LONG: Duration = Duration::from_secs(30);
/// To take a table away at the end of a daemon, or to look at what others have.
const SHORT: Duration = Duration::from_secs(4);

/// Which packets get the address of the interface they leave by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// Packets from these prefixes …
    #[serde(with = "crate::wire::prefixes")]
    pub sources: Vec<Prefix>,
    /// … unless they leave by the instance's own device or by one of these.
    pub inside: Vec<DeviceName>,
}

/// What may pass from our device to somewhere else.
///
/// Whoever is reached may answer: only packets in the direction in which their flow began are
/// judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// What these sources may reach. No two of them overlap.
    pub confined: Vec<Confined>,
    /// What all others may reach.
    pub others: Allowed,
}

/// Sources that may reach less, or more, than the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    #[serde(with = "crate::wire::prefixes")]
    pub sources: Vec<Prefix>,
    pub allowed: Allowed,
}

/// What may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowed {
    #[default]
    Everything,
    Only {
        /// Public addresses, unless they are reached by our own device.
        internet: bool,
        /// What is reached by our own device.
        own_device: bool,
        /// This host itself.
        host: bool,
        /// Whatever is in these, wherever it is.
        #[serde(with = "crate::wire::prefixes")]
        prefixes: Vec<Prefix>,
    },
}

/// What the table of one device says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    pub masquerade: Option<Masquerade>,
    pub filter: Filter,
}

impl Rules {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.masquerade.is_none() && self.filter.passes_all()
    }
}

impl Filter {
    fn passes_all(&self) -> bool {
        let free = |confined: &Confined| confined.allowed == Allowed::Everything;
        self.others == Allowed::Everything && self.confined.iter().all(free)
    }
}

/// Puts `rules` into the table of `device`, replacing what was there.
fn apply(device: &DeviceName, rules: &Rules) -> Result<(), Error> {
    if rules.is_empty() {
        return remove_within(device, LONG);
    }
    run(&[], &script(device, rules), LONG).map(drop)
}

/// Deletes the table of `device` if there is one. Without the command there is none.
pub(crate) fn remove(device: &DeviceName) -> Result<(), Error> {
    remove_within(device, SHORT)
}

fn remove_within(device: &DeviceName, patience: Duration) -> Result<(), Error> {
    match run(&[], &removal(device), patience) {
        Ok(_) | Err(Error::NftMissing) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The devices that have tables; none where they cannot be listed.
pub(crate) fn devices() -> Vec<DeviceName> {
    let listing = run(&["list", "tables", "inet"], "", SHORT).unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot list tables");
        String::new()
    });
    let names = listing
        .lines()
        .filter_map(|line| line.strip_prefix("table inet "));
    let devices = names.filter_map(|name| name.trim().strip_prefix(PREFIX)?.parse().ok());
    devices.collect()
}

/// What the table of `device` says; nothing if it is not there.
fn list(device: &DeviceName) -> Result<Option<String>, Error> {
    let name = format!("{PREFIX}{device}");
    match run(&["list", "table", "inet", &name], "", LONG) {
        Ok(listing) => Ok(Some(listing)),
        Err(Error::NftRefused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Chains of other software that drop forwarded packets unless told otherwise, such as
/// `ip filter FORWARD` of Docker: our traffic passes only if their owner allows it, because in
/// nftables no chain can overrule another's drop.
pub fn forward_blockers() -> Result<Vec<String>, Error> {
    if let Some(helper) = helper::engaged() {
        return helper.ask(&Task::ForwardBlockers, None);
    }
    let listing = run(&["--json", "list", "chains"], "", SHORT)?;
    let listing: Value = serde_json::from_str(&listing)
        .map_err(|error| Error::NftRefused(format!("its listing is not JSON: {error}")))?;
    let objects = listing["nftables"].as_array().into_iter().flatten();
    let chains = objects.filter_map(|object| object.get("chain"));
    let dropping = chains.filter(|c| c["hook"] == "forward" && c["policy"] == "drop");
    let name = |chain: &Value| {
        let parts = ["family", "table", "name"].map(|key| chain[key].as_str().unwrap_or("?"));
        parts.join(" ")
    };
    Ok(dropping.map(name).collect())
}

fn table(device: &DeviceName) -> String {
    format!("inet {PREFIX}{device}")
}

/// Deleting fails for a table that does not exist, adding never does.
fn removal(device: &DeviceName) -> String {
    let table = table(device);
    format!("add table {table}\ndelete table {table}\n")
}

pub(crate) fn script(device: &DeviceName, rules: &Rules) -> String {
    let mut script = removal(device);
    let _ = writeln!(script, "table {} {{", table(device));
    if let Some(masquerade) = &rules.masquerade {
        translate(device, masquerade, &mut script);
    }
    if !rules.filter.passes_all() {
        for hook in [Hook::Forward, Hook::Input] {
            hook.write(device, &rules.filter, &mut script);
        }
    }
    script.push_str("}\n");
    script
}

fn translate(device: &DeviceName, masquerade: &Masquerade, script: &mut String) {
    // Never empty: what enters by our own device leaves translated only elsewhere.
    let inside: BTreeSet<_> = masquerade.inside.iter().chain([device]).collect();
    let inside: Vec<_> = inside.iter().map(|name| format!("\"{name}\"")).collect();
    let inside = inside.join(", ");
    let _ = writeln!(script, "  chain postrouting {{");
    let _ = writeln!(
        script,
        "    type nat hook postrouting priority srcnat; policy accept;"
    );
    for prefix in &masquerade.sources {
        let family = family(prefix);
        let _ = writeln!(
            script,
            "    {family} saddr {prefix} oifname != {{ {inside} }} masquerade"
        );
    }
    script.push_str("  }\n");
}

/// Where packets from our device are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    /// On their way through the host.
    Forward,
    /// On their way into it.
    Input,
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Input => "input",
        }
    }

    /// One chain for each set of sources, before the chain that finds the right one: what is jumped
    /// to must be there.
    fn write(self, device: &DeviceName, filter: &Filter, script: &mut String) {
        let hook = self.name();
        let mut verdicts = [Vec::new(), Vec::new()];
        for (number, confined) in filter.confined.iter().enumerate() {
            let chain = format!("{hook}_{number}");
            let verdict = self.write_allowed(&chain, device, &confined.allowed, script);
            for source in &confined.sources {
                let of_family = &mut verdicts[usize::from(!source.is_ipv4())];
                of_family.push(format!("{source} : {verdict}"));
            }
        }
        let chain = format!("{hook}_others");
        let others = self.write_allowed(&chain, device, &filter.others, script);
        let _ = writeln!(script, "  chain {hook}_from {{");
        let _ = writeln!(script, "    ct direction reply accept");
        for (family, verdicts) in ["ip", "ip6"].into_iter().zip(verdicts) {
            if !verdicts.is_empty() {
                let verdicts = verdicts.join(", ");
                let _ = writeln!(script, "    {family} saddr vmap {{ {verdicts} }}");
            }
        }
        let _ = writeln!(script, "    {others}\n  }}");
        let _ = writeln!(
            script,
            "  chain {hook} {{\n    type filter hook {hook} priority filter; policy accept;\n    \
             iifname \"{device}\" goto {hook}_from\n  }}"
        );
    }

    /// Writes the chain of what is allowed, if one is needed; the verdict that leads there.
    fn write_allowed(
        self,
        chain: &str,
        device: &DeviceName,
        allowed: &Allowed,
        script: &mut String,
    ) -> String {
        let Allowed::Only {
            internet,
            own_device,
            host,
            prefixes,
        } = allowed
        else {
            return "accept".into();
        };
        if self == Self::Input && *host {
            return "accept".into();
        }
        let _ = writeln!(script, "  chain {chain} {{");
        for prefix in prefixes {
            let _ = writeln!(script, "    {} daddr {prefix} accept", family(prefix));
        }
        if self == Self::Forward && *own_device {
            let _ = writeln!(script, "    oifname \"{device}\" accept");
        }
        if self == Self::Forward && *internet {
            let elsewhere = format!("oifname != \"{device}\"");
            let list = |space: &[&str]| space.join(", ");
            let (not_v4, v6, not_v6) = (list(NOT_PUBLIC_V4), list(PUBLIC_V6), list(NOT_PUBLIC_V6));
            let _ = writeln!(script, "    {elsewhere} ip daddr != {{ {not_v4} }} accept");
            let _ = writeln!(
                script,
                "    {elsewhere} ip6 daddr {{ {v6} }} ip6 daddr != {{ {not_v6} }} accept"
            );
        }
        let _ = writeln!(script, "    reject with icmpx type admin-prohibited\n  }}");
        format!("goto {chain}")
    }
}

fn family(prefix: &Prefix) -> &'static str {
    if prefix.is_ipv4() { "ip" } else { "ip6" }
}

/// Runs `nft` with a script, or with arguments and no script.
fn run(arguments: &[&str], script: &str, patience: Duration) -> Result<String, Error> {
    let arguments = if arguments.is_empty() {
        &["-f", "-"]
    } else {
        arguments
    };
    let said = program::run("nft", arguments, script, patience);
    let said = said.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NftMissing,
        _ => Error::NftNotRun(error.to_string()),
    })?;
    if said.success {
        Ok(said.output)
    } else {
        Err(Error::NftRefused(said.complaint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_replaces_the_table_of_its_device_only() {
        let masquerade = Masquerade {
            sources: vec![
                "10.200.0.0/16".parse().unwrap(),
                "fd5e:1::/64".parse().unwrap(),
            ],
            inside: vec!["bulk0".parse().unwrap()],
        };

        let rules = Rules {
            masquerade: Some(masquerade),
            filter: Filter::default(),
        };
        let script = script(&"sennit0".parse().unwrap(), &rules);

        let expected = r#"add table inet sennit_sennit0
delete table inet sennit_sennit0
table inet sennit_sennit0 {
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 10.200.0.0/16 oifname != { "bulk0", "sennit0" } masquerade
    ip6 saddr fd5e:1::/64 oifname != { "bulk0", "sennit0" } masquerade
  }
}
"#;
        assert_eq!(script, expected);
    }

    #[test]
    fn who_is_confined_is_judged_on_the_way_through_and_into_the_host() {
        let filter = Filter {
            confined: vec![Confined {
                sources: vec!["10.200.0.7/32".parse().unwrap()],
                allowed: Allowed::Only {
                    internet: true,
                    own_device: false,
                    host: false,
                    prefixes: vec!["10.9.0.0/16".parse().unwrap()],
                },
            }],
            others: Allowed::Everything,
        };
        let rules = Rules {
            masquerade: None,
            filter,
        };

        let script = script(&"hub".parse().unwrap(), &rules);

        let list = |space: &[&str]| space.join(", ");
        let (not_v4, v6, not_v6) = (list(NOT_PUBLIC_V4), list(PUBLIC_V6), list(NOT_PUBLIC_V6));
        let expected = format!(
            r#"add table inet sennit_hub
delete table inet sennit_hub
table inet sennit_hub {{
  chain forward_0 {{
    ip daddr 10.9.0.0/16 accept
    oifname != "hub" ip daddr != {{ {not_v4} }} accept
    oifname != "hub" ip6 daddr {{ {v6} }} ip6 daddr != {{ {not_v6} }} accept
    reject with icmpx type admin-prohibited
  }}
  chain forward_from {{
    ct direction reply accept
    ip saddr vmap {{ 10.200.0.7 : goto forward_0 }}
    accept
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "hub" goto forward_from
  }}
  chain input_0 {{
    ip daddr 10.9.0.0/16 accept
    reject with icmpx type admin-prohibited
  }}
  chain input_from {{
    ct direction reply accept
    ip saddr vmap {{ 10.200.0.7 : goto input_0 }}
    accept
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "hub" goto input_from
  }}
}}
"#
        );
        assert_eq!(script.replace("10.200.0.7/32", "10.200.0.7"), expected);
    }

    #[test]
    fn a_table_without_rules_is_not_made() {
        let free = Confined {
            sources: vec!["10.200.0.7/32".parse().unwrap()],
            allowed: Allowed::Everything,
        };
        let mut rules = Rules::default();
        rules.filter.confined.push(free);
        assert!(rules.is_empty());
        rules.filter.others = Allowed::Only {
            internet: true,
            own_device: false,
            host: false,
            prefixes: Vec::new(),
        };
        assert!(!rules.is_empty());
    }
}
