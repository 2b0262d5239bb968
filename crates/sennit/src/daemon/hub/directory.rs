//! Which worker has which site: what the workers of a hub know of each other.
//!
//! Each worker keeps its own sites in its engine and looks here only for what is not among them: a
//! packet from the host for a site of another worker. Here is also where workers leave what sites
//! announce: the newest of each, however often it changes, until the registrar has decided on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use sennit_core::ClassId;
use sennit_packet::Prefix;

/// The sites of all workers.
#[derive(Debug, Default)]
pub(crate) struct Directory(RwLock<Sites>);

#[derive(Debug, Default)]
struct Sites {
    sites: BTreeMap<String, Site>,
    by_address: BTreeMap<IpAddr, String>,
    /// Those that announced something, or left, since the registrar last asked.
    changed: BTreeSet<String>,
}

/// A site has all its tunnels at one worker, where what it gets is bounded. An edge has them come
/// there by itself; what another client has elsewhere gives way to its newest tunnel.
#[derive(Debug, Default)]
struct Site {
    addresses: Vec<IpAddr>,
    /// The worker of each class, the newest last.
    tunnels: Vec<(ClassId, usize)>,
    /// What it announced to each worker at which it has a tunnel.
    announced: BTreeMap<usize, Announced>,
    /// Where its tunnels at each worker come from.
    outer: BTreeMap<usize, BTreeSet<IpAddr>>,
    /// What is routed to it.
    lan: Vec<Prefix>,
}

/// The prefixes that a site says are behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) prefixes: Vec<Prefix>,
    /// Ranges that are no prefixes, or too many.
    pub(crate) left_out: usize,
}

impl Directory {
    /// A site has a tunnel at `worker`; returns those that it had at others, with their workers.
    pub(super) fn enter(
        &self,
        worker: usize,
        name: &str,
        class: ClassId,
        addresses: &[IpAddr],
    ) -> Vec<(ClassId, usize)> {
        let sites = &mut *self.write();
        for &address in addresses {
            sites.by_address.insert(address, name.to_owned());
        }
        let site = sites.sites.entry(name.to_owned()).or_default();
        site.addresses = addresses.to_vec();
        site.tunnels.retain(|tunnel| *tunnel != (class, worker));
        let elsewhere = |(_, at): &mut (ClassId, usize)| *at != worker;
        let lost = site.tunnels.extract_if(.., elsewhere).collect();
        site.tunnels.push((class, worker));
        lost
    }

    /// A tunnel at `worker` is gone, and what was announced there if it was the last; true then.
    pub(super) fn leave(&self, worker: usize, name: &str, class: ClassId) -> bool {
        let sites = &mut *self.write();
        let Some(site) = sites.sites.get_mut(name) else {
            return false;
        };
        site.tunnels.retain(|tunnel| *tunnel != (class, worker));
        let is_last = !site.tunnels.iter().any(|(_, other)| *other == worker);
        if is_last {
            site.outer.remove(&worker);
            site.announced.remove(&worker);
            sites.changed.insert(name.to_owned());
        }
        sites.forget_if_gone(name);
        is_last
    }

    /// Whether the newest tunnel for this class of a site is at `worker`.
    pub(super) fn has(&self, worker: usize, name: &str, class: ClassId) -> bool {
        let sites = self.read();
        let site = sites.sites.get(name);
        site.is_some_and(|site| site.tunnels.contains(&(class, worker)))
    }

    /// A site that has a tunnel at `worker` has announced this there, and nothing else any more.
    pub(super) fn announce(&self, worker: usize, name: &str, announced: Announced) {
        let sites = &mut *self.write();
        if let Some(site) = sites.sites.get_mut(name) {
            site.announced.insert(worker, announced);
            sites.changed.insert(name.to_owned());
        }
    }

    /// Where the tunnels of a site at `worker` come from now.
    pub(super) fn set_outer(&self, worker: usize, name: &str, addresses: BTreeSet<IpAddr>) {
        if let Some(site) = self.write().sites.get_mut(name) {
            site.outer.insert(worker, addresses);
        }
    }

    /// The site with a tunnel that has this address.
    pub(crate) fn holder(&self, address: IpAddr) -> Option<String> {
        self.read().by_address.get(&address).cloned()
    }

    /// The sites whose announcements changed since this was asked before.
    pub(crate) fn take_changed(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.write().changed)
    }

    /// All that a site announces, over all workers; `None` if it has not said anything since it
    /// came, or has gone.
    pub(crate) fn announced(&self, name: &str) -> Option<Announced> {
        let sites = self.read();
        let site = sites.sites.get(name)?;
        let all = site.announced.values();
        if site.announced.is_empty() {
            return None;
        }
        let mut prefixes: Vec<Prefix> = all.clone().flat_map(|it| &it.prefixes).copied().collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        Some(Announced {
            prefixes,
            left_out: all.map(|it| it.left_out).max().unwrap_or(0),
        })
    }

    /// Packets for exactly these prefixes are a site's.
    pub(crate) fn set_lan(&self, name: &str, lan: &[Prefix]) {
        let sites = &mut *self.write();
        if let Some(site) = sites.sites.get_mut(name) {
            site.lan = lan.to_vec();
        }
        sites.forget_if_gone(name);
    }

    /// Every site that is connected, and where from.
    pub(crate) fn outer(&self) -> Vec<(String, BTreeSet<IpAddr>)> {
        let sites = self.read();
        let here = sites
            .sites
            .iter()
            .filter(|(_, site)| !site.tunnels.is_empty());
        here.map(|(name, site)| {
            (
                name.clone(),
                site.outer.values().flatten().copied().collect(),
            )
        })
        .collect()
    }

    /// The worker that has the site at an address.
    pub(super) fn worker_of(&self, address: IpAddr) -> Option<usize> {
        let sites = self.read();
        if let Some(name) = sites.by_address.get(&address) {
            return Some(sites.sites.get(name)?.tunnels.last()?.1);
        }
        let mut all = sites.sites.values();
        let site = all.find(|site| site.lan.iter().any(|prefix| prefix.contains(address)))?;
        Some(site.tunnels.last()?.1)
    }

    fn read(&self) -> RwLockReadGuard<'_, Sites> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sites> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sites {
    fn forget_if_gone(&mut self, name: &str) {
        let gone = |site: &Site| site.tunnels.is_empty() && site.lan.is_empty();
        if self.sites.get(name).is_some_and(|site| !gone(site)) {
            return;
        }
        self.sites.remove(name);
        // An address may have gone to another site since.
        self.by_address.retain(|_, site| site != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BULK: ClassId = ClassId(0);
    const DEFAULT: ClassId = ClassId(1);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefixes<const N: usize>(texts: [&str; N]) -> Vec<Prefix> {
        texts.map(|text| text.parse().unwrap()).into()
    }

    /// A van at worker 0 and a ship at worker 1.
    fn directory() -> Directory {
        let directory = Directory::default();
        for (worker, site, inner) in [(0, "van", "10.200.0.2"), (1, "ship", "10.200.0.3")] {
            let lost = directory.enter(worker, site, DEFAULT, &[address(inner)]);
            assert!(lost.is_empty());
        }
        directory
    }

    fn announced<const N: usize>(texts: [&str; N]) -> Announced {
        Announced {
            prefixes: prefixes(texts),
            left_out: 0,
        }
    }

    #[test]
    fn a_worker_is_found_by_the_address_of_its_site_and_by_what_is_routed_to_it() {
        let directory = directory();
        directory.announce(1, "ship", announced(["192.168.8.0/24", "192.168.9.0/24"]));
        directory.set_lan("ship", &prefixes(["192.168.8.0/24"]));

        let found = ["10.200.0.2", "10.200.0.3", "192.168.8.77", "192.168.9.77"]
            .map(|text| directory.worker_of(address(text)));

        assert_eq!(found, [Some(0), Some(1), Some(1), None]);
    }

    #[test]
    fn a_site_that_has_left_is_not_found_and_says_nothing_until_it_is_back_and_does() {
        let directory = directory();
        directory.announce(1, "ship", announced(["192.168.8.0/24"]));
        directory.set_lan("ship", &prefixes(["192.168.8.0/24"]));
        directory.take_changed();

        assert!(directory.leave(1, "ship", DEFAULT));

        assert_eq!(directory.take_changed(), ["ship".to_owned()].into());
        assert_eq!(directory.announced("ship"), None);
        for text in ["10.200.0.3", "192.168.8.77"] {
            assert_eq!(directory.worker_of(address(text)), None);
        }
        assert_eq!(directory.worker_of(address("10.200.0.2")), Some(0));
        assert_eq!(directory.outer().len(), 1);

        // What is still routed to it finds it at once, at whichever worker.
        directory.enter(0, "ship", DEFAULT, &[address("10.200.0.3")]);
        assert_eq!(directory.worker_of(address("192.168.8.77")), Some(0));
        assert_eq!(directory.announced("ship"), None);
        directory.announce(0, "ship", Announced::default());
        assert_eq!(directory.announced("ship"), Some(Announced::default()));
    }

    #[test]
    fn a_site_has_all_tunnels_where_its_newest_is_and_the_goodbye_of_the_others_changes_nothing() {
        let directory = directory();
        let inner = [address("10.200.0.2")];
        assert!(directory.enter(0, "van", BULK, &inner).is_empty());

        let lost = directory.enter(2, "van", DEFAULT, &inner);

        assert_eq!(lost, [(DEFAULT, 0), (BULK, 0)]);
        assert!(directory.has(2, "van", DEFAULT));
        for class in [DEFAULT, BULK] {
            assert!(!directory.has(0, "van", class));
            directory.leave(0, "van", class);
        }
        assert_eq!(directory.worker_of(inner[0]), Some(2));
        assert!(directory.enter(2, "van", DEFAULT, &inner).is_empty());
        assert!(directory.enter(2, "van", BULK, &inner).is_empty());
        directory.leave(2, "van", BULK);
        assert_eq!(directory.worker_of(inner[0]), Some(2));
    }

    #[test]
    fn a_site_announces_what_it_says_to_any_worker_and_only_the_newest_counts() {
        let directory = directory();
        for n in 0..1000 {
            directory.announce(0, "van", announced([&format!("10.{}.0.0/16", n % 200)[..]]));
        }
        directory.enter(2, "van", BULK, &[]);
        directory.announce(2, "van", announced(["192.168.8.0/24"]));

        assert_eq!(directory.take_changed(), ["van".to_owned()].into());
        let expected = announced(["10.199.0.0/16", "192.168.8.0/24"]);
        assert_eq!(directory.announced("van"), Some(expected));
        assert_eq!(directory.take_changed(), BTreeSet::new());
        directory.leave(0, "van", DEFAULT);
        let expected = announced(["192.168.8.0/24"]);
        assert_eq!(directory.announced("van"), Some(expected));
    }

    #[test]
    fn an_address_that_went_to_another_site_stays_there() {
        let directory = directory();
        directory.enter(1, "ship", DEFAULT, &[address("10.200.0.2")]);

        directory.leave(0, "van", DEFAULT);

        assert_eq!(directory.worker_of(address("10.200.0.2")), Some(1));
    }
}
