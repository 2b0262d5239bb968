//! Who is behind which address.

mod prefixes;

use std::{collections::BTreeMap, net::IpAddr, time::Instant};

use sennit_core::{ClassId, FlowTable, FragmentTable};
use sennit_masque::capsule::{IpAddressRange, RefusedPrefix};
use sennit_packet::{FlowKey, IpPacket, Prefix};

use prefixes::Prefixes;

use super::{Grant, HubClasses};
use crate::ids::{ConnId, SiteId};

/// Prefixes that one site may announce: more than any LAN has.
const MAX_PREFIXES: usize = 64;

/// All sites with at least one tunnel.
#[derive(Debug, Default)]
pub(super) struct Sites {
    sites: BTreeMap<SiteId, Site>,
    by_address: BTreeMap<IpAddr, SiteId>,
    /// What is routed to sites, also to those that have no tunnel just now.
    by_prefix: Prefixes,
    /// Which class takes a flow that begins here, by its name.
    rules: HubClasses,
    /// Of the hashes of flows.
    seed: u64,
}

#[derive(Debug)]
struct Site {
    addresses: Vec<IpAddr>,
    tunnels: BTreeMap<ClassId, ConnId>,
    /// The class of flows that begin here, if the site has said which.
    fallback: Option<ClassId>,
    names: BTreeMap<String, ClassId>,
    flows: FlowTable,
    announced: Announced,
    /// What of that is not routed.
    refused: Vec<RefusedPrefix>,
    /// Datagrams on their way to the site.
    fragments: FragmentTable,
}

/// The prefixes that a site says are behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) prefixes: Vec<Prefix>,
    /// How many ranges were left out, because they are no prefixes or too many.
    pub(super) left_out: usize,
}

impl Sites {
    /// Flows that begin here go by these rules, and are remembered by hashes with this seed.
    pub(super) fn new(rules: HubClasses, seed: u64) -> Self {
        Self {
            rules,
            seed,
            ..Self::default()
        }
    }

    /// Flows that begin from now on go by these rules; those that are known keep their class.
    pub(super) fn set_rules(&mut self, rules: HubClasses) {
        self.rules = rules;
    }

    /// The sites that have a tunnel.
    pub(super) fn names(&self) -> Vec<SiteId> {
        self.sites.keys().cloned().collect()
    }

    /// What a site calls its classes.
    pub(super) fn class_names(&self, name: &SiteId) -> BTreeMap<ClassId, String> {
        let site = self.sites.get(name).into_iter();
        let names = site.flat_map(|site| &site.names);
        names.map(|(name, &class)| (class, name.clone())).collect()
    }

    /// The site calls a class so; returns another one that it called so before.
    pub(super) fn name_class(
        &mut self,
        name: &SiteId,
        class: ClassId,
        called: &str,
    ) -> Option<ClassId> {
        let site = self.sites.get_mut(name)?;
        site.names.retain(|_, known| *known != class);
        site.names.insert(called.to_owned(), class)
    }

    /// A site has a tunnel; returns the one that it replaces.
    pub(super) fn enter(&mut self, grant: Grant, class: ClassId, conn: ConnId) -> Option<ConnId> {
        let Grant {
            site: name,
            addresses,
            ..
        } = grant;
        for &address in &addresses {
            self.by_address.insert(address, name.clone());
        }
        let site = self.sites.entry(name).or_insert_with(|| Site {
            addresses: Vec::new(),
            tunnels: BTreeMap::new(),
            fallback: None,
            names: BTreeMap::new(),
            flows: FlowTable::new(self.seed),
            announced: Announced::default(),
            refused: Vec::new(),
            fragments: FragmentTable::new(self.seed),
        });
        site.addresses = addresses;
        site.tunnels.insert(class, conn)
    }

    /// Flows that begin here go to a site by this class.
    pub(super) fn set_fallback(&mut self, name: &SiteId, class: ClassId) {
        if let Some(site) = self.sites.get_mut(name) {
            site.fallback = Some(class);
        }
    }

    /// A tunnel is gone; true if it was the site's last.
    pub(super) fn leave(&mut self, name: &SiteId, class: ClassId, conn: ConnId) -> bool {
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
        true
    }

    /// The tunnels of a site.
    pub(super) fn tunnels(&self, name: &SiteId) -> Vec<ConnId> {
        self.sites
            .get(name)
            .map_or_else(Vec::new, |site| site.tunnels.values().copied().collect())
    }

    /// The tunnel of one class of a site.
    pub(super) fn tunnel(&self, name: &SiteId, class: ClassId) -> Option<ConnId> {
        self.sites.get(name)?.tunnels.get(&class).copied()
    }

    /// The classes of a site that have a tunnel.
    pub(super) fn classes(&self, name: &SiteId) -> impl Iterator<Item = ClassId> {
        let site = self.sites.get(name);
        site.into_iter()
            .flat_map(|site| site.tunnels.keys().copied())
    }

    pub(super) fn addresses(&self, name: &SiteId) -> Vec<IpAddr> {
        self.sites
            .get(name)
            .map_or_else(Vec::new, |site| site.addresses.clone())
    }

    /// Takes what a site announces; returns it if it is something new. None of it is routed yet.
    pub(super) fn announce(
        &mut self,
        name: &SiteId,
        ranges: &[IpAddressRange],
    ) -> Option<Announced> {
        let prefixes: Vec<Prefix> = ranges
            .iter()
            .take(MAX_PREFIXES)
            .filter_map(as_prefix)
            .collect();
        let announced = Announced {
            left_out: ranges.len() - prefixes.len(),
            prefixes,
        };
        let site = self.sites.get_mut(name)?;
        let changed = site.announced != announced;
        site.announced.clone_from(&announced);
        changed.then_some(announced)
    }

    /// Routes exactly these prefixes to a site; true if what is refused of its announcement
    /// changed.
    pub(super) fn set_lan(
        &mut self,
        name: &SiteId,
        lan: &[Prefix],
        refused: Vec<RefusedPrefix>,
    ) -> bool {
        self.by_prefix.remove(name);
        for prefix in lan {
            self.by_prefix.insert(prefix, name);
        }
        let Some(site) = self.sites.get_mut(name) else {
            return false;
        };
        let changed = site.refused != refused;
        site.refused = refused;
        changed
    }

    /// What is refused of a site's announcement.
    pub(super) fn refused(&self, name: &SiteId) -> &[RefusedPrefix] {
        self.sites.get(name).map_or(&[], |site| &site.refused)
    }

    /// The tunnel for a packet to a site.
    pub(super) fn route(
        &mut self,
        packet: &IpPacket<'_>,
        size: usize,
        now: Instant,
    ) -> Option<ConnId> {
        let Self {
            sites,
            by_address,
            by_prefix,
            rules,
            ..
        } = self;
        let name = by_address
            .get(&packet.dst())
            .or_else(|| by_prefix.holders(packet.dst()).next())?;
        let Site {
            tunnels,
            fallback,
            names,
            flows,
            fragments,
            ..
        } = sites.get_mut(name)?;
        // An edge that does not say which class is its fallback has it last, as a rule.
        let (&last, &conn) = tunnels.last_key_value()?;
        if tunnels.len() == 1 {
            return Some(conn);
        }
        let class = fragments.class(packet, now, || {
            let flow = FlowKey::of_datagram(packet).reversed();
            let answered = flows.recall(flow, now).or_else(|| {
                let class = *names.get(rules.name(packet, size)?)?;
                // The flow keeps its class, whatever its later packets are like.
                flows.learn(flow, class, now);
                Some(class)
            });
            answered.or(*fallback).unwrap_or(last)
        });
        Some(tunnels.get(&class).copied().unwrap_or(conn))
    }

    /// Whether a packet may come from a site; its flow will be answered in the same class.
    pub(super) fn admit(
        &mut self,
        name: &SiteId,
        class: ClassId,
        packet: &IpPacket<'_>,
        now: Instant,
    ) -> bool {
        let source = packet.src();
        let Some(site) = self.sites.get_mut(name) else {
            return false;
        };
        let by_prefix = &self.by_prefix;
        let of_lan = || by_prefix.holders(source).any(|holder| holder == name);
        if !site.addresses.contains(&source) && !of_lan() {
            return false;
        }
        if site.tunnels.len() > 1 {
            site.flows.learn(FlowKey::of_datagram(packet), class, now);
        }
        true
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
    use sennit_core::{Classifier, Rule};

    fn grant(site: &str, address: &str) -> Grant {
        Grant {
            site: site.into(),
            addresses: vec![address.parse().unwrap()],
            credential: [0; 32],
            next: None,
        }
    }

    fn range(start: &str, end: &str) -> IpAddressRange {
        IpAddressRange::new(start.parse().unwrap(), end.parse().unwrap(), 0).unwrap()
    }

    fn sites() -> Sites {
        let mut sites = Sites::default();
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

    fn routed(sites: &mut Sites, dst: [u8; 4]) -> Option<ConnId> {
        let packet = packet([9, 9, 9, 9], dst);
        sites.route(&IpPacket::parse(&packet).unwrap(), 28, Instant::now())
    }

    #[test]
    fn a_flow_that_begins_here_goes_by_the_rules_of_the_hub_if_the_site_has_that_class() {
        let to = |prefix: &str| Rule {
            destination: Some(prefix.parse().unwrap()),
            ..Rule::default()
        };
        let rules = vec![
            (to("10.200.0.2/32"), ClassId(0)),
            (to("10.200.0.0/24"), ClassId(1)),
        ];
        let rules = HubClasses {
            classifier: Classifier::new(rules, ClassId(0)),
            names: vec!["voice".into(), "bulk".into()],
        };
        let mut sites = Sites::new(rules, 0);
        for (class, name) in [(4, "voice"), (7, "default")] {
            for (site, address, from) in [("van", "10.200.0.2", 0), ("ship", "10.200.0.3", 10)] {
                sites.enter(
                    grant(site, address),
                    ClassId(class),
                    ConnId(from + u64::from(class)),
                );
                sites.name_class(&site.into(), ClassId(class), name);
                sites.set_fallback(&site.into(), ClassId(7));
            }
        }
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), Some(ConnId(4)));
        // It has no class of that name.
        assert_eq!(routed(&mut sites, [10, 200, 0, 3]), Some(ConnId(17)));
        // What came in otherwise is answered so.
        let back = packet([10, 200, 0, 2], [9, 9, 9, 9]);
        let parsed = IpPacket::parse(&back).unwrap();
        assert!(sites.admit(&"van".into(), ClassId(7), &parsed, Instant::now()));
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), Some(ConnId(7)));
    }

    fn admitted(sites: &mut Sites, site: &str, src: [u8; 4]) -> bool {
        let packet = packet(src, [9, 9, 9, 9]);
        sites.admit(
            &site.into(),
            ClassId(0),
            &IpPacket::parse(&packet).unwrap(),
            Instant::now(),
        )
    }

    /// Of so many, 39 % had their place taken by another one, and were answered by the rules.
    #[test]
    fn each_of_two_thousand_flows_is_answered_in_its_class() {
        let mut sites = sites();
        sites.enter(grant("van", "10.200.0.2"), ClassId(1), ConnId(7));
        let now = Instant::now();
        let van = [10, 200, 0, 2];
        let far = |number: u16| [9, 9, (number >> 8) as u8, number as u8];
        for number in 0..2000 {
            let packet = packet(van, far(number));
            let (parsed, class) = (IpPacket::parse(&packet).unwrap(), number % 2);
            assert!(sites.admit(&"van".into(), ClassId(class as u8), &parsed, now));
        }
        let answered = |number: &u16| {
            let packet = packet(far(*number), van);
            let parsed = IpPacket::parse(&packet).unwrap();
            let conns = [ConnId(1), ConnId(7)];
            sites.route(&parsed, 20, now) == Some(conns[usize::from(number % 2)])
        };
        assert_eq!((0..2000).filter(answered).count(), 2000);
    }

    #[test]
    fn packets_find_their_site_by_address_or_announced_prefix() {
        let mut sites = sites();
        sites.set_lan(
            &"ship".into(),
            &["192.168.8.0/24".parse().unwrap()],
            Vec::new(),
        );
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), Some(ConnId(1)));
        assert_eq!(routed(&mut sites, [192, 168, 8, 77]), Some(ConnId(2)));
        assert_eq!(routed(&mut sites, [192, 168, 9, 77]), None);
    }

    #[test]
    fn a_site_may_only_use_its_own_sources() {
        let mut sites = sites();
        sites.set_lan(
            &"ship".into(),
            &["192.168.8.0/24".parse().unwrap()],
            Vec::new(),
        );
        assert!(admitted(&mut sites, "van", [10, 200, 0, 2]));
        assert!(!admitted(&mut sites, "van", [10, 200, 0, 3]));
        assert!(!admitted(&mut sites, "van", [192, 168, 8, 1]));
        assert!(admitted(&mut sites, "ship", [192, 168, 8, 1]));
    }

    #[test]
    fn a_flow_that_begins_here_goes_by_the_class_that_the_site_names() {
        let mut sites = sites();
        sites.enter(grant("van", "10.200.0.2"), ClassId(1), ConnId(7));
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), Some(ConnId(7)));
        sites.set_fallback(&"van".into(), ClassId(0));
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), Some(ConnId(1)));
        // While that class has no tunnel, another is better than none.
        sites.leave(&"van".into(), ClassId(0), ConnId(1));
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), Some(ConnId(7)));
    }

    #[test]
    fn what_a_site_announces_is_not_routed_before_the_caller_says_so() {
        let mut sites = sites();
        let lan = [
            range("192.168.8.0", "192.168.8.255"),
            range("192.168.9.1", "192.168.9.7"),
        ];

        let announced = sites.announce(&"ship".into(), &lan).unwrap();

        assert_eq!(announced.prefixes, ["192.168.8.0/24".parse().unwrap()]);
        assert_eq!(announced.left_out, 1, "a range that is no prefix");
        assert_eq!(routed(&mut sites, [192, 168, 8, 77]), None);
        assert!(!admitted(&mut sites, "ship", [192, 168, 8, 77]));
        assert_eq!(sites.announce(&"ship".into(), &lan), None, "it is known");
    }

    #[test]
    fn a_site_keeps_no_prefix_that_is_not_among_the_new_ones() {
        let mut sites = sites();
        let prefix = |text: &str| text.parse().unwrap();
        sites.set_lan(
            &"ship".into(),
            &[prefix("192.168.8.0/24"), prefix("192.168.9.0/24")],
            Vec::new(),
        );
        sites.set_lan(&"van".into(), &[prefix("172.16.0.0/24")], Vec::new());

        sites.set_lan(&"ship".into(), &[prefix("192.168.9.0/24")], Vec::new());

        assert_eq!(routed(&mut sites, [192, 168, 8, 77]), None);
        assert!(!admitted(&mut sites, "ship", [192, 168, 8, 77]));
        assert_eq!(routed(&mut sites, [192, 168, 9, 77]), Some(ConnId(2)));
        assert_eq!(routed(&mut sites, [172, 16, 0, 1]), Some(ConnId(1)));
    }

    #[test]
    fn a_site_that_comes_back_has_its_prefixes_until_they_are_taken_from_it() {
        let mut sites = sites();
        sites.set_lan(
            &"ship".into(),
            &["192.168.8.0/24".parse().unwrap()],
            Vec::new(),
        );

        assert!(sites.leave(&"ship".into(), ClassId(0), ConnId(2)));
        assert_eq!(routed(&mut sites, [192, 168, 8, 77]), None);
        sites.enter(grant("ship", "10.200.0.3"), ClassId(0), ConnId(3));
        assert_eq!(routed(&mut sites, [192, 168, 8, 77]), Some(ConnId(3)));
        assert!(admitted(&mut sites, "ship", [192, 168, 8, 77]));

        sites.leave(&"ship".into(), ClassId(0), ConnId(3));
        sites.set_lan(&"ship".into(), &[], Vec::new());
        sites.enter(grant("ship", "10.200.0.3"), ClassId(0), ConnId(4));
        assert_eq!(routed(&mut sites, [192, 168, 8, 77]), None);
        assert!(!admitted(&mut sites, "ship", [192, 168, 8, 77]));
    }

    #[test]
    fn a_new_tunnel_of_a_class_replaces_the_old_and_a_late_goodbye_changes_nothing() {
        let mut sites = sites();
        assert_eq!(
            sites.enter(grant("van", "10.200.0.2"), ClassId(0), ConnId(7)),
            Some(ConnId(1))
        );
        assert!(!sites.leave(&"van".into(), ClassId(0), ConnId(1)));
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), Some(ConnId(7)));
        assert!(sites.leave(&"van".into(), ClassId(0), ConnId(7)));
        assert_eq!(routed(&mut sites, [10, 200, 0, 2]), None);
    }
}
