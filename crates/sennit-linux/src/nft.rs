//! Address translation by nftables, in a table of our own.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{self, Write as _},
    process::{Command, Stdio},
};

use sennit_packet::Prefix;
use serde_json::Value;

use crate::{DeviceName, Error, error::Doing};

/// Which packets get the address of the interface they leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masquerade {
    /// Packets from these prefixes …
    pub sources: Vec<Prefix>,
    /// … unless they leave by the instance's own device or by one of these.
    pub inside: Vec<DeviceName>,
}

/// Puts `masquerade` into the table of `device`, replacing what was there.
pub(crate) fn apply(device: &DeviceName, masquerade: &Masquerade) -> Result<(), Error> {
    run(&[], &script(device, masquerade)).map(drop)
}

/// Deletes the table of `device` if there is one. Without the command there is none.
pub(crate) fn remove(device: &DeviceName) -> Result<(), Error> {
    match run(&[], &removal(device)) {
        Ok(_) | Err(Error::NftMissing) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Chains of other software that drop forwarded packets unless told otherwise, such as
/// `ip filter FORWARD` of Docker: our traffic passes only if their owner allows it, because in
/// nftables no chain can overrule another's drop.
pub fn forward_blockers() -> Result<Vec<String>, Error> {
    let listing = run(&["--json", "list", "chains"], "")?;
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
    format!("inet sennit_{device}")
}

/// Deleting fails for a table that does not exist, adding never does.
fn removal(device: &DeviceName) -> String {
    let table = table(device);
    format!("add table {table}\ndelete table {table}\n")
}

fn script(device: &DeviceName, masquerade: &Masquerade) -> String {
    // Never empty: what enters by our own device leaves translated only elsewhere.
    let inside: BTreeSet<_> = masquerade.inside.iter().chain([device]).collect();
    let inside: Vec<_> = inside.iter().map(|name| format!("\"{name}\"")).collect();
    let inside = inside.join(", ");
    let mut script = removal(device);
    let _ = writeln!(script, "table {} {{", table(device));
    let _ = writeln!(script, "  chain postrouting {{");
    let _ = writeln!(
        script,
        "    type nat hook postrouting priority srcnat; policy accept;"
    );
    for prefix in &masquerade.sources {
        let family = if prefix.is_ipv4() { "ip" } else { "ip6" };
        let _ = writeln!(
            script,
            "    {family} saddr {prefix} oifname != {{ {inside} }} masquerade"
        );
    }
    script.push_str("  }\n}\n");
    script
}

/// Runs `nft` with a script, or with arguments and no script.
fn run(arguments: &[&str], script: &str) -> Result<String, Error> {
    let arguments = if arguments.is_empty() {
        &["-f", "-"]
    } else {
        arguments
    };
    let mut nft = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NftMissing,
            _ => Error::Os {
                doing: "run nft".into(),
                source: error,
            },
        })?;
    if let Some(mut stdin) = nft.stdin.take() {
        // When nft stops reading early, its complaint says why.
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = nft.wait_with_output().doing(|| "run nft".into())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(Error::NftRefused(complaint.trim().to_owned()))
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

        let script = script(&"sennit0".parse().unwrap(), &masquerade);

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
}
