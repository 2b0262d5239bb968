//! Which prefixes may be behind a site.
//!
//! What is announced is routed if it lies in what the hub's operator granted to the site, and if
//! nothing speaks against it. What [`never`] names cannot even be granted: it would take something
//! away from the hub itself or from everybody.

use std::{fmt, net::IpAddr};

use crate::{config::Prefix, site::SiteName};

/// Space that nobody's LAN is in, whoever grants it (RFC 6890).
const SPECIAL: [(&str, &str); 9] = [
    ("0.0.0.0/8", "it means this network, or everything"),
    ("127.0.0.0/8", "it is every host's own loopback"),
    ("169.254.0.0/16", "it is link-local"),
    ("224.0.0.0/4", "it is multicast"),
    ("240.0.0.0/4", "it is reserved"),
    ("::/64", "it means this host, or everything"),
    ("fe80::/10", "it is link-local"),
    ("ff00::/8", "it is multicast"),
    ("64:ff9b::/96", "it stands for the IPv4 internet"),
];
/// Space that everybody may use at home (RFC 1918, RFC 6598, RFC 4193).
const PRIVATE: [&str; 5] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
];
/// The largest prefixes of public space that can be granted: what a large provider has. Nobody's
/// LAN is larger, and a part of the internet that is would be gone for everybody else.
const LARGEST_PUBLIC: [u8; 2] = [16, 32];
/// The largest prefix of private IPv6 space: each site has 48 bits of its own there (RFC 4193
/// §3.1).
const LARGEST_PRIVATE_V6: u8 = 16;

/// What the hub has and needs itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Where sites get their addresses from.
    pub pool: Vec<Prefix>,
    /// Its own addresses, inside and outside.
    pub addresses: Vec<IpAddr>,
}

/// Why a prefix is not routed to a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    Special(&'static str),
    /// Larger than a prefix of this length.
    TooLarge(u8),
    /// It overlaps the hub's pool.
    Pool(Prefix),
    /// It holds an address of the hub.
    Hub(IpAddr),
    /// It is a part of a network that the hub is attached to, and only a grant of more covers it.
    Attached(Prefix),
    NotGranted,
    /// It holds the outer address of a site that is connected.
    Outer(SiteName),
    /// Another site has it.
    Taken(SiteName),
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Special(why) => f.write_str(why),
            Self::TooLarge(most) => write!(f, "it is too large to be a LAN: at most a /{most}"),
            Self::Pool(pool) => write!(f, "it overlaps the hub's pool {pool}"),
            Self::Hub(address) => write!(f, "it holds {address}, an address of the hub"),
            Self::Attached(network) => {
                write!(
                    f,
                    "it lies in the hub's own network {network} and was not granted by itself"
                )
            }
            Self::NotGranted => f.write_str("the hub has not granted it to the site"),
            Self::Outer(site) => write!(f, "site `{site}` is connected from an address in it"),
            Self::Taken(site) => write!(f, "it overlaps a LAN of site `{site}`"),
        }
    }
}

/// What speaks against a prefix whatever is granted.
pub fn never(prefix: &Prefix, host: &Host) -> Option<Objection> {
    let special = |touches: fn(&Prefix, &Prefix) -> bool| {
        let mut spaces = SPECIAL.iter();
        let found = spaces.find(|(space, _)| touches(&parsed(space), prefix));
        found.map(|(_, why)| Objection::Special(why))
    };
    if let Some(special) = special(|space, prefix| space.contains(prefix)) {
        return Some(special);
    }
    let largest = match (prefix, is_private(prefix)) {
        (Prefix::V4(_), true) => 0,
        (Prefix::V6(_), true) => LARGEST_PRIVATE_V6,
        (Prefix::V4(_), false) => LARGEST_PUBLIC[0],
        (Prefix::V6(_), false) => LARGEST_PUBLIC[1],
    };
    if prefix.prefix_len() < largest {
        return Some(Objection::TooLarge(largest));
    }
    if let Some(special) = special(overlaps) {
        return Some(special);
    }
    if let Some(pool) = host.pool.iter().find(|pool| overlaps(pool, prefix)) {
        return Some(Objection::Pool(*pool));
    }
    let own = host.addresses.iter().find(|own| prefix.contains(*own));
    own.map(|own| Objection::Hub(*own))
}

/// Whether all of it is space that nobody has on the internet.
pub fn is_private(prefix: &Prefix) -> bool {
    PRIVATE.iter().any(|space| parsed(space).contains(prefix))
}

pub fn overlaps(one: &Prefix, other: &Prefix) -> bool {
    one.contains(other) || other.contains(one)
}

fn parsed(prefix: &str) -> Prefix {
    prefix.parse().expect("the tables above hold prefixes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            pool: vec![parsed("10.200.0.0/16"), parsed("fd5e:1::/64")],
            addresses: ["203.0.113.10", "10.9.0.1", "2001:db8:1::10"]
                .map(|address| address.parse().unwrap())
                .into(),
        }
    }

    #[test]
    fn nobody_can_be_granted_what_the_hub_or_everybody_needs() {
        let refused = [
            ("0.0.0.0/0", "too large"),
            ("::/0", "too large"),
            ("2000::/16", "too large"),
            ("8.0.0.0/8", "too large"),
            ("192.0.0.0/8", "too large"),
            ("fc00::/7", "too large"),
            ("0.0.0.0/16", "this network"),
            ("127.0.0.1/32", "loopback"),
            ("127.1.0.0/16", "loopback"),
            ("169.254.169.254/32", "link-local"),
            ("224.0.0.0/16", "multicast"),
            ("255.255.255.255/32", "reserved"),
            ("::1/128", "this host"),
            ("::ffff:0:0/96", "this host"),
            ("fe80::/64", "link-local"),
            ("ff02::/64", "multicast"),
            ("10.200.0.2/32", "pool 10.200.0.0/16"),
            ("10.0.0.0/8", "pool 10.200.0.0/16"),
            ("fd5e:1::/80", "pool fd5e:1::/64"),
            ("203.0.113.10/32", "203.0.113.10, an address of the hub"),
            ("203.0.113.0/24", "203.0.113.10, an address of the hub"),
            ("10.9.0.0/16", "10.9.0.1, an address of the hub"),
            ("2001:db8:1::/48", "2001:db8:1::10, an address of the hub"),
        ];
        for (prefix, why) in refused {
            let objection = never(&parsed(prefix), &host());
            let said = objection.map(|it| it.to_string()).unwrap_or_default();
            assert!(said.contains(why), "{prefix}: {said}");
        }
    }

    #[test]
    fn a_lan_can_be_granted_and_public_space_of_a_providers_size_too() {
        for prefix in [
            "192.168.8.0/24",
            "10.64.0.0/10",
            "100.64.0.0/10",
            "fd08::/64",
            "fd08::/16",
        ] {
            assert_eq!(never(&parsed(prefix), &host()), None, "{prefix}");
            assert!(is_private(&parsed(prefix)), "{prefix}");
        }
        for prefix in ["1.1.1.1/32", "198.51.0.0/16", "2001:db8:2::/48"] {
            assert_eq!(never(&parsed(prefix), &host()), None, "{prefix}");
            assert!(!is_private(&parsed(prefix)), "{prefix}");
        }
    }
}
