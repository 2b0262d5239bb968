//! What the files of this host say of names and of whom to ask.

use std::{fs, net::IpAddr};

use sennit_linux::nameservers;

/// Where the nameservers of this host stand: the second to fourth have those behind a local stub,
/// of systemd-resolved, NetworkManager and OpenWrt.
const RESOLVER_FILES: [&str; 4] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/tmp/resolv.conf.d/resolv.conf.auto",
];
/// Nameservers that are asked; the C library takes three of one file.
const MOST_RESOLVERS: usize = 6;
const HOSTS_FILE: &str = "/etc/hosts";

/// The addresses that the host itself knows of a name.
pub(super) fn addresses(name: &str) -> Vec<IpAddr> {
    let file = fs::read(HOSTS_FILE).unwrap_or_default();
    in_hosts(&String::from_utf8_lossy(&file), name)
}

/// The addresses of a name by the lines of hosts(5).
fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let found = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        // Of the host itself, or of lists of what is not to be reached.
        if address.is_loopback() || address.is_unspecified() {
            return None;
        }
        words
            .any(|word| word.eq_ignore_ascii_case(name))
            .then_some(address)
    });
    found.collect()
}

/// The nameservers of this host.
pub(in crate::daemon::edge) fn resolvers() -> Vec<IpAddr> {
    let mut all = Vec::new();
    for file in RESOLVER_FILES {
        // Our own servers are behind the tunnel, which needs the hub first.
        let text = nameservers::before(&fs::read_to_string(file).unwrap_or_default());
        for resolver in nameservers(&text) {
            if !all.contains(&resolver) && all.len() < MOST_RESOLVERS {
                all.push(resolver);
            }
        }
    }
    all
}

/// The `nameserver` lines of resolv.conf(5).
fn nameservers(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(str::trim);
    let named = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        words.next()?.parse().ok()
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_stand_in_hosts_more_than_once() {
        let text = "127.0.1.1 hub.test\n0.0.0.0 hub.test\n# 192.0.2.9 hub\n192.0.2.1\tHub.test hub # ours\n\
                    2001:db8::1 hub.test\n192.0.2.300 hub.test\n192.0.2.2 hub.test.example\n";
        let found = in_hosts(text, "hub.test");
        assert_eq!(
            found,
            ["192.0.2.1", "2001:db8::1"].map(|it| it.parse::<IpAddr>().unwrap())
        );
        assert_eq!(in_hosts(text, "192.0.2.1"), [] as [IpAddr; 0]);
    }

    #[test]
    fn nameservers_stand_in_resolv_conf() {
        let text = "# by hand\nsearch example.org\nnameserver 192.0.2.1\n nameserver  fe80::1%eth0\n\
                    nameserver 2001:db8::53 # v6\nnameserver\n";

        let found = nameservers(text);

        let expected: Vec<IpAddr> = ["192.0.2.1", "2001:db8::53"]
            .map(|ip| ip.parse().unwrap())
            .into();
        assert_eq!(found, expected);
    }
}
