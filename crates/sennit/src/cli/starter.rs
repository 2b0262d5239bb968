//! The first `hub.toml` and `edge.toml`, written by `sennit hub init` and `join` where there is
//! none.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Failure;
use crate::identity::EdgeIdentity;

/// Writes `edge.toml` into `state` unless it is there; its path.
pub(super) fn write(state: &Path, identity: &EdgeIdentity) -> Result<PathBuf, Failure> {
    let interfaces = default_routes(&fs::read_to_string("/proc/net/route").unwrap_or_default());
    let text = text(&absolute(state), identity, &interfaces);
    let path = state.join("edge.toml");
    write_new(&path, &text, "look at its links and routes")?;
    Ok(path)
}

/// Writes `hub.toml` into `state` unless it is there.
pub(super) fn write_hub(state: &Path) -> Result<(), Failure> {
    let text = format!(
        "[hub]\nlisten = [\"0.0.0.0:443\", \"[::]:443\"]\nstate = {}\n\
         pool = [\"10.200.0.0/16\", \"fd5e:1::/64\"]   # sites get their addresses from here\n\
         nat = true                                 # masquerade what leaves for the internet\n\n\
         # What may be reached: everything, internet (public addresses, but for those behind sites),\n\
         # sites (the others, and what is behind them), hub (its own services), and prefixes. Of one\n\
         # site: sennit sites reach SITE PLACE...\n\
         reach = [\"everything\"]                     # by sites, so they reach each other too\n\
         bearer_reach = [\"internet\"]                # by clients with a bearer token\n",
        quoted(&absolute(state)),
    );
    write_new(
        &state.join("hub.toml"),
        &text,
        "look at its addresses and reach",
    )
}

fn write_new(path: &Path, text: &str, advice: &str) -> Result<(), Failure> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Ok(()) => eprintln!("Its first config is {}: {advice}.", path.display()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            eprintln!("{} stays as it is.", path.display());
        }
        Err(error) => {
            return Err(Failure::runtime(format!(
                "cannot write {}: {error}",
                path.display()
            )));
        }
    }
    Ok(())
}

fn absolute(state: &Path) -> PathBuf {
    fs::canonicalize(state).unwrap_or_else(|_| state.into())
}

/// The interfaces with an IPv4 default route, as `/proc/net/route` lists them, the preferred first.
fn default_routes(table: &str) -> Vec<String> {
    let mut found: Vec<(u32, String)> = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [interface, "00000000", _, _, _, _, metric, "00000000", ..] = fields[..]
            && !found.iter().any(|(_, other)| other == interface)
        {
            found.push((metric.parse().unwrap_or(u32::MAX), interface.into()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, interface)| interface).collect()
}

fn text(state: &Path, identity: &EdgeIdentity, interfaces: &[String]) -> String {
    let hubs: Vec<String> = identity
        .hubs
        .iter()
        .map(|hub| format!("\"{hub}\""))
        .collect();
    let mut text = format!(
        "# Site {}\n[edge]\nhub = [{}]\nstate = {}\n\
         routes = []        # what goes into the tunnel; everything: [\"0.0.0.0/0\", \"::/0\"]\n\
         lan = []           # prefixes behind this edge, like [\"192.168.8.0/24\"]\n\n\
         # One [[link]] for each WAN interface.\n",
        identity.site,
        hubs.join(", "),
        quoted(state),
    );
    if interfaces.is_empty() {
        text += "# No interface has a default route now: name yours.\n";
    }
    let placeholder = ["eth0".to_owned()];
    let links = if interfaces.is_empty() {
        &placeholder
    } else {
        interfaces
    };
    for link in links {
        text += &format!("[[link]]\nname = \"{link}\"\ninterface = \"{link}\"\n\n");
    }
    text.trim_end().to_owned() + "\n"
}

/// A TOML basic string; JSON's escapes are a subset of TOML's, but for DEL.
fn quoted(path: &Path) -> String {
    let json = serde_json::Value::from(path.display().to_string()).to_string();
    json.replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_the_interfaces_with_a_default_route() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     wwan0\t00000000\t0101A8C0\t0003\t0\t0\t700\t00000000\t0\t0\t0\n\
                     eth1\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth1\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n\
                     tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n";

        assert_eq!(default_routes(table), ["eth1", "wwan0"]);
        assert_eq!(default_routes("garbage\n\n x y"), Vec::<String>::new());
    }
}
