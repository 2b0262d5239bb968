//! Who is behind which address.

use std::{collections::BTreeMap, net::IpAddr, time::Instant};

use sennit_core::{ClassId, FlowTable};
use sennit_masque::capsule::IpAddressRange;
use sennit_packet::{FlowKey, IpPacket, Prefix};

use super::Grant;
use crate::node::ConnId;

/// Prefixes one site may announce.
const MAX_PREFIXES: usize = 64;
/// Shorter prefixes than these are refused: nobody's LAN is a tenth of the internet, and a default
/// route announced by one site would swallow all others' traffic.
const SHORTEST_V4: u8 = 8;
const SHORTEST_V6: u8 = 16;

/// All sites with at least one tunnel.
#[derive(Debug)]
pub(super) struct Sites {
    pool: Vec<Prefix>,
    sites: BTreeMap<String, Site>,
    by_address: BTreeMap<IpAddr, String>,
    /// Announced prefixes, longest first.
    by_prefix: Vec<(Prefix, String)>,
}

#[derive(Debug)]
struct Site {
    addresses: Vec<IpAddr>,
    tunnels: BTreeMap<ClassId, ConnId>,
    flows: FlowTable,
}

impl Sites {
    pub(super) fn new(pool: Vec<Prefix>) -> Self {
        Self {
            pool,
            sites: BTreeMap::new(),
            by_address: BTreeMap::new(),
            by_prefix: Vec::new(),
        }
    }

    /// A site has a tunnel; returns the one that it replaces.
    pub(super) fn enter(&mut self, grant: Grant, class: ClassId, conn: ConnId) -> Option<ConnId> {
        let Grant {
            site: name,
            addresses,
        } = grant;
        for &address in &addresses {
            self.by_address.insert(address, name.clone());
        }
        let site = self.sites.entry(name).or_insert_with(|| Site {
            addresses: Vec::new(),
            tunnels: BTreeMap::new(),
            flows: FlowTable::default(),
        });
        site.addresses = addresses;
        site.tunnels.insert(class, conn)
    }

    /// A tunnel is gone; true if it was the site's last.
    pub(super) fn leave(&mut self, name: &str, class: ClassId, conn: ConnId) -> bool {
        let Some(site) = self.sites.get_mut(name) else {
            return false;
        };
        if site.tunnels.get(&class) == Some(&conn) {
            site.tunnels.remove(&class);
        }
        if !site.tunnels.is_empty() {
            return false;
        }
        self.sites.remove(name);
        self.by_address.retain(|_, site| site != name);
        self.by_prefix.retain(|(_, site)| site != name);
        true
    }

    /// The tunnels of a site.
    pub(super) fn tunnels(&self, name: &str) -> Vec<ConnId> {
        self.sites
            .get(name)
            .map_or_else(Vec::new, |site| site.tunnels.values().copied().collect())
    }

    /// The tunnel of one class of a site.
    pub(super) fn tunnel(&self, name: &str, class: ClassId) -> Option<ConnId> {
        self.sites.get(name)?.tunnels.get(&class).copied()
    }

    pub(super) fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.sites
            .get(name)
            .map_or_else(Vec::new, |site| site.addresses.clone())
    }

    /// Takes the prefixes a site announces and returns those that it now has.
    pub(super) fn announce(&mut self, name: &str, ranges: &[IpAddressRange]) -> Vec<Prefix> {
        self.by_prefix.retain(|(_, site)| site != name);
        for range in ranges.iter().take(MAX_PREFIXES) {
            let Some(prefix) = as_prefix(range) else {
                tracing::warn!(site = name, start = %range.start(), end = %range.end(),
                    "announced range is not a prefix: ignored");
                continue;
            };
            match self.objection(&prefix) {
                None => self.by_prefix.push((prefix, name.to_owned())),
                Some(why) => tracing::warn!(site = name, %prefix, why, "LAN prefix refused"),
            }
        }
        self.by_prefix
            .sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.bits()));
        self.by_prefix
            .iter()
            .filter(|(_, site)| site == name)
            .map(|(p, _)| *p)
            .collect()
    }

    /// Takes those prefixes from a site that are not among `allowed`.
    pub(super) fn confine(&mut self, name: &str, allowed: &[Prefix]) {
        self.by_prefix
            .retain(|(prefix, site)| site != name || allowed.contains(prefix));
    }

    fn objection(&self, prefix: &Prefix) -> Option<&'static str> {
        let shortest = if prefix.is_ipv4() {
            SHORTEST_V4
        } else {
            SHORTEST_V6
        };
        if prefix.bits() < shortest {
            Some("too large to be a LAN")
        } else if self.pool.iter().any(|pool| pool.overlaps(prefix)) {
            Some("it overlaps the hub's address pool")
        } else if self
            .by_prefix
            .iter()
            .any(|(other, _)| other.overlaps(prefix))
        {
            Some("another site announced an overlapping prefix")
        } else {
            None
        }
    }

    /// The tunnel for a packet to a site.
    pub(super) fn route(&self, packet: &IpPacket<'_>, now: Instant) -> Option<ConnId> {
        let site = self.site_of(packet.dst())?;
        if site.tunnels.len() > 1
            && let Some(class) = site.flows.answer(FlowKey::of(packet), now)
            && let Some(&conn) = site.tunnels.get(&class)
        {
            return Some(conn);
        }
        // A flow that begins here goes by the last class, which is the one without conditions.
        site.tunnels.values().next_back().copied()
    }

    /// Whether a packet may come from a site; its flow will be answered in the same class.
    pub(super) fn admit(
        &mut self,
        name: &str,
        class: ClassId,
        packet: &IpPacket<'_>,
        now: Instant,
    ) -> bool {
        let source = packet.src();
        let lan = self
            .by_prefix
            .iter()
            .any(|(p, site)| p.contains(source) && site == name);
        let Some(site) = self.sites.get_mut(name) else {
            return false;
        };
        if !lan && !site.addresses.contains(&source) {
            return false;
        }
        if site.tunnels.len() > 1 {
            site.flows.learn(FlowKey::of(packet), class, now);
        }
        true
    }

    fn site_of(&self, address: IpAddr) -> Option<&Site> {
        let by_prefix = || {
            self.by_prefix
                .iter()
                .find(|(prefix, _)| prefix.contains(address))
        };
        let name = self
            .by_address
            .get(&address)
            .or_else(|| by_prefix().map(|(_, name)| name))?;
        self.sites.get(name)
    }
}

/// The prefix that a range covers exactly, if there is one.
fn as_prefix(range: &IpAddressRange) -> Option<Prefix> {
    let most = if range.start().is_ipv4() { 32 } else { 128 };
    (0..=most)
        .filter_map(|bits| Prefix::new(range.start(), bits).ok())
        .find(|prefix| prefix.last() == range.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(site: &str, address: &str) -> Grant {
        Grant {
            site: site.into(),
            addresses: vec![address.parse().unwrap()],
        }
    }

    fn range(start: &str, end: &str) -> IpAddressRange {
        IpAddressRange::new(start.parse().unwrap(), end.parse().unwrap(), 0).unwrap()
    }

    fn sites() -> Sites {
        let mut sites = Sites::new(vec!["10.200.0.0/16".parse().unwrap()]);
        sites.enter(grant("van", "10.200.0.2"), ClassId(0), ConnId(1));
        sites.enter(grant("ship", "10.200.0.3"), ClassId(0), ConnId(2));
        sites
    }

    /// An IPv4 packet without payload.
    fn packet(src: [u8; 4], dst: [u8; 4]) -> [u8; 20] {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[3] = 20;
        packet[8] = 64;
        packet[9] = 59;
        packet[12..16].copy_from_slice(&src);
        packet[16..].copy_from_slice(&dst);
        packet
    }

    fn routed(sites: &Sites, dst: [u8; 4]) -> Option<ConnId> {
        let packet = packet([9, 9, 9, 9], dst);
        sites.route(&IpPacket::parse(&packet).unwrap(), Instant::now())
    }

    fn admitted(sites: &mut Sites, site: &str, src: [u8; 4]) -> bool {
        let packet = packet(src, [9, 9, 9, 9]);
        sites.admit(
            site,
            ClassId(0),
            &IpPacket::parse(&packet).unwrap(),
            Instant::now(),
        )
    }

    #[test]
    fn packets_find_their_site_by_address_or_announced_prefix() {
        let mut sites = sites();
        sites.announce("ship", &[range("192.168.8.0", "192.168.8.255")]);
        assert_eq!(routed(&sites, [10, 200, 0, 2]), Some(ConnId(1)));
        assert_eq!(routed(&sites, [192, 168, 8, 77]), Some(ConnId(2)));
        assert_eq!(routed(&sites, [192, 168, 9, 77]), None);
    }

    #[test]
    fn a_site_may_only_use_its_own_sources() {
        let mut sites = sites();
        sites.announce("ship", &[range("192.168.8.0", "192.168.8.255")]);
        assert!(admitted(&mut sites, "van", [10, 200, 0, 2]));
        assert!(!admitted(&mut sites, "van", [10, 200, 0, 3]));
        assert!(!admitted(&mut sites, "van", [192, 168, 8, 1]));
        assert!(admitted(&mut sites, "ship", [192, 168, 8, 1]));
    }

    #[test]
    fn a_confined_site_keeps_what_it_is_allowed() {
        let mut sites = sites();
        let lans = [
            range("192.168.8.0", "192.168.8.255"),
            range("192.168.9.0", "192.168.9.255"),
        ];
        sites.announce("ship", &lans);
        sites.announce("van", &[range("172.16.0.0", "172.16.0.255")]);

        sites.confine("ship", &["192.168.9.0/24".parse().unwrap()]);

        assert_eq!(routed(&sites, [192, 168, 8, 77]), None);
        assert!(!admitted(&mut sites, "ship", [192, 168, 8, 77]));
        assert_eq!(routed(&sites, [192, 168, 9, 77]), Some(ConnId(2)));
        assert_eq!(routed(&sites, [172, 16, 0, 1]), Some(ConnId(1)));
    }

    #[test]
    fn prefixes_that_would_steal_traffic_are_refused() {
        let mut sites = sites();
        sites.announce("ship", &[range("192.168.8.0", "192.168.8.255")]);
        let bad = [
            range("0.0.0.0", "255.255.255.255"),
            range("10.200.0.0", "10.200.0.255"),
            range("192.168.8.128", "192.168.8.255"),
            range("192.168.9.1", "192.168.9.7"),
        ];
        for range in bad {
            assert_eq!(sites.announce("van", &[range]), [], "{range:?}");
        }
    }

    #[test]
    fn a_new_tunnel_of_a_class_replaces_the_old_and_a_late_goodbye_changes_nothing() {
        let mut sites = sites();
        assert_eq!(
            sites.enter(grant("van", "10.200.0.2"), ClassId(0), ConnId(7)),
            Some(ConnId(1))
        );
        assert!(!sites.leave("van", ClassId(0), ConnId(1)));
        assert_eq!(routed(&sites, [10, 200, 0, 2]), Some(ConnId(7)));
        assert!(sites.leave("van", ClassId(0), ConnId(7)));
        assert_eq!(routed(&sites, [10, 200, 0, 2]), None);
    }
}
