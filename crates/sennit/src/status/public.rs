//! Where the hub sees a link's packets come from, and what that tells of a NAT on the way.
//!
//! The words are those of RFC 4787. Whom a NAT lets in (its filtering) cannot be known: a hub
//! answers from nowhere but where it was asked.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses that are named for people; the document has them all.
const NAMED: usize = 2;

/// A link as the hub sees it, by one family of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublicStatus {
    /// Where its packets come from, for each of its sockets; behind some NATs, also for each
    /// address of the hub.
    pub seen: Vec<SocketAddr>,
    /// A NAT is on the way: they left from another address, or another port.
    pub translated: bool,
    /// Whether the NAT leaves ports as they are; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_kept: Option<bool>,
    /// How the NAT maps; absent where there is none, and while no socket is seen by two addresses
    /// of the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<NatMapping>,
}

/// On what it depends as which address and port a NAT lets a socket appear (RFC 4787 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NatMapping {
    /// On the socket alone: all the world sees the same.
    EndpointIndependent,
    /// On whom it sends to, whatever the port there.
    AddressDependent,
    /// On whom it sends to, and on the port there: a "symmetric" NAT.
    AddressAndPortDependent,
    /// On whom it sends to; whether also on the port there is not known.
    EndpointDependent,
}

impl fmt::Display for NatMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
            Self::EndpointDependent => "endpoint-dependent",
        })
    }
}

/// A socket of a link, an address of the hub that it sends to, and where that sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) local: SocketAddr,
    pub(crate) hub: SocketAddr,
    pub(crate) seen: SocketAddr,
}

impl Sighting {
    fn is_translated(&self) -> bool {
        (self.local.ip(), self.local.port()) != (self.seen.ip(), self.seen.port())
    }
}

impl PublicStatus {
    /// What these tell of a link, IPv4 first.
    pub(crate) fn of(sightings: &[Sighting]) -> Vec<Self> {
        let families = [false, true].map(|v6| {
            let own = sightings.iter().filter(|it| it.hub.is_ipv6() == v6);
            Self::of_family(&own.copied().collect::<Vec<_>>())
        });
        families.into_iter().flatten().collect()
    }

    fn of_family(sightings: &[Sighting]) -> Option<Self> {
        let seen: BTreeSet<SocketAddr> = sightings.iter().map(|it| it.seen).collect();
        let translated = sightings.iter().any(Sighting::is_translated);
        let kept = || sightings.iter().all(|it| it.local.port() == it.seen.port());
        (!seen.is_empty()).then(|| Self {
            seen: seen.into_iter().collect(),
            translated,
            port_kept: translated.then(kept),
            mapping: mapping(sightings).filter(|_| translated),
        })
    }
}

/// How whatever is on the way maps, from sockets that are seen by two addresses or ports.
fn mapping(sightings: &[Sighting]) -> Option<NatMapping> {
    let pairs = sightings.iter().enumerate().flat_map(|(n, one)| {
        let later = sightings[n + 1..].iter();
        let of_socket = later.filter(move |other| other.local == one.local);
        of_socket.map(move |other| (one, other))
    });
    let (mut same, mut other) = ([false; 2], [false; 2]);
    for (one, another) in pairs.filter(|(one, another)| one.hub != another.hub) {
        let is_other_port = one.hub.ip() == another.hub.ip();
        let found = match one.seen == another.seen {
            true => &mut same,
            false => &mut other,
        };
        found[usize::from(is_other_port)] = true;
    }
    match (same, other) {
        (_, [_, true]) => Some(NatMapping::AddressAndPortDependent),
        ([_, true], [true, false]) => Some(NatMapping::AddressDependent),
        ([_, false], [true, false]) => Some(NatMapping::EndpointDependent),
        ([true, _], [false, false]) => Some(NatMapping::EndpointIndependent),
        ([false, _], [false, false]) => None,
    }
}

impl fmt::Display for PublicStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen: Vec<String> = match self.translated {
            true => self.seen.iter().map(ToString::to_string).collect(),
            false => {
                let addresses: BTreeSet<IpAddr> = self.seen.iter().map(SocketAddr::ip).collect();
                addresses.iter().map(ToString::to_string).collect()
            }
        };
        let more = seen.len().saturating_sub(NAMED);
        seen.truncate(NAMED);
        write!(f, "the hub sees {}", seen.join(", "))?;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        if !self.translated {
            return f.write_str(" (no NAT)");
        }
        let does = match self.port_kept {
            Some(true) => "keeps",
            Some(false) | None => "changes",
        };
        match self.mapping {
            Some(mapping) => write!(f, " (a NAT that {does} the port; its mapping is {mapping})"),
            None => write!(f, " (a NAT that {does} the port; its mapping is not known)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a link by sockets, places of the hub, and where that sees them.
    fn public(sightings: &[[&str; 3]]) -> Vec<PublicStatus> {
        let parsed = sightings.iter().map(|texts| {
            let [local, hub, seen] = texts.map(|text| text.parse().unwrap());
            Sighting { local, hub, seen }
        });
        PublicStatus::of(&parsed.collect::<Vec<_>>())
    }

    const HUBS: [&str; 3] = ["203.0.113.1:443", "203.0.113.1:8443", "203.0.113.2:443"];

    /// How a NAT maps that gives these ports towards [`HUBS`]; 0 is a hub that does not answer.
    fn mapping_to(ports: [u16; 3]) -> Option<NatMapping> {
        let seen = ports.map(|port| format!("198.51.100.7:{port}"));
        let towards = HUBS
            .iter()
            .zip(&seen)
            .zip(ports)
            .filter(|(_, port)| *port > 0);
        let sightings = towards.map(|((hub, seen), _)| ["192.168.8.2:40000", *hub, seen.as_str()]);
        public(&sightings.collect::<Vec<_>>())[0].mapping
    }

    #[test]
    fn without_a_nat_the_hub_sees_what_the_link_has() {
        let known = public(&[
            ["198.51.100.7:40000", HUBS[0], "198.51.100.7:40000"],
            ["198.51.100.7:40001", HUBS[2], "198.51.100.7:40001"],
        ]);
        let [known] = &known[..] else {
            panic!("{known:?}");
        };
        assert!(!known.translated);
        assert_eq!((known.port_kept, known.mapping), (None, None));
        assert_eq!(known.to_string(), "the hub sees 198.51.100.7 (no NAT)");
        assert!(public(&[]).is_empty(), "nobody has told");
    }

    #[test]
    fn a_nat_shows_in_the_address_or_the_port() {
        let kept = public(&[["192.168.8.2:40000", HUBS[0], "198.51.100.7:40000"]]);
        assert_eq!(
            kept[0].to_string(),
            "the hub sees 198.51.100.7:40000 (a NAT that keeps the port; its mapping is not known)"
        );
        let changed = public(&[["198.51.100.7:40000", HUBS[0], "198.51.100.7:1024"]]);
        assert!(changed[0].translated);
        assert_eq!(changed[0].port_kept, Some(false));
    }

    #[test]
    fn how_a_nat_maps_takes_one_socket_and_two_places_of_the_hub() {
        assert_eq!(mapping_to([1024, 0, 0]), None);
        assert_eq!(
            mapping_to([1024, 1024, 0]),
            None,
            "another address may differ"
        );
        let free = Some(NatMapping::EndpointIndependent);
        assert_eq!(mapping_to([1024, 0, 1024]), free);
        assert_eq!(mapping_to([1024, 1024, 1024]), free);
        let dependent = Some(NatMapping::EndpointDependent);
        assert_eq!(mapping_to([1024, 0, 1025]), dependent);
        let by_address = Some(NatMapping::AddressDependent);
        assert_eq!(mapping_to([1024, 1024, 1025]), by_address);
        let symmetric = Some(NatMapping::AddressAndPortDependent);
        assert_eq!(mapping_to([1024, 1025, 0]), symmetric);
        assert_eq!(mapping_to([1024, 1025, 1026]), symmetric);

        // Two sockets have two ports behind any NAT.
        let sockets = public(&[
            ["192.168.8.2:40000", HUBS[0], "198.51.100.7:1024"],
            ["192.168.8.2:40001", HUBS[2], "198.51.100.7:1025"],
        ]);
        assert_eq!(sockets[0].mapping, None);
    }

    #[test]
    fn each_family_is_seen_by_itself() {
        let both = public(&[
            [
                "[2001:db8:8::2]:40000",
                "[2001:db8::1]:443",
                "[2001:db8:8::2]:40000",
            ],
            ["192.168.8.2:40000", HUBS[0], "198.51.100.7:1024"],
        ]);
        let translated: Vec<bool> = both.iter().map(|it| it.translated).collect();
        assert_eq!(translated, [true, false]);
    }
}
