//! What the files of this host say of names and of whom to ask.

use std::{
    fmt, fs,
    net::{IpAddr, Ipv6Addr},
};

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

/// Somebody whom this host asks for names.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::daemon::edge) struct Resolver {
    pub(super) address: IpAddr,
    /// The interface that a link-local one is behind, by name or number (RFC 4007 §11).
    zone: Option<String>,
}

impl Resolver {
    fn parse(text: &str) -> Option<Self> {
        let Some((address, zone)) = text.split_once('%') else {
            return Some(Self {
                address: text.parse().ok()?,
                zone: None,
            });
        };
        let address: Ipv6Addr = address.parse().ok()?;
        let means_something = address.is_unicast_link_local() && !zone.is_empty();
        means_something.then(|| Self {
            address: address.into(),
            zone: Some(zone.to_owned()),
        })
    }

    /// Whether an interface leads to it.
    pub(super) fn is_behind(&self, device: &str, index: u32) -> bool {
        let zone = self.zone.as_ref();
        zone.is_none_or(|zone| zone == device || zone.parse() == Ok(index))
    }
}

/// As it is written in the file.
impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.as_ref();
        write!(f, "{}", self.address)?;
        zone.map_or(Ok(()), |zone| write!(f, "%{zone}"))
    }
}

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
pub(in crate::daemon::edge) fn resolvers() -> Vec<Resolver> {
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
fn nameservers(text: &str) -> Vec<Resolver> {
    let lines = text.lines().map(str::trim);
    let named = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        Resolver::parse(words.next()?)
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
                    nameserver 2001:db8::53 # v6\nnameserver\nnameserver 192.0.2.2%eth0\nnameserver fe80::2%\n";

        let found = format!("{:?}", nameservers(text));

        assert_eq!(found, "[192.0.2.1, fe80::1%eth0, 2001:db8::53]");
    }

    #[test]
    fn a_link_local_nameserver_is_asked_by_the_interface_that_leads_to_it() {
        let behind = |server: &str, device, index| {
            let server = Resolver::parse(server).unwrap();
            server.is_behind(device, index)
        };
        assert!(behind("fe80::1%eth0", "eth0", 4) && behind("fe80::1%4", "eth0", 4));
        assert!(!behind("fe80::1%eth0", "eth1", 5) && !behind("fe80::1%4", "eth1", 5));
        assert!(behind("192.0.2.1", "eth0", 4) && behind("192.0.2.1", "eth1", 5));
    }
}
