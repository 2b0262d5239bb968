//! Which worker has which site: what the workers of a hub know of each other.
//!
//! Each worker keeps its own sites in its engine and looks here only for what is not among them: a
//! packet from the host for a site of another worker, and a prefix that another worker's site may
//! have announced before.

use std::{
    collections::BTreeMap,
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
}

/// An edge has all its tunnels at one worker, but nobody can make a client do that.
#[derive(Debug, Default)]
struct Site {
    addresses: Vec<IpAddr>,
    /// The worker of each class, the newest last.
    tunnels: Vec<(ClassId, usize)>,
    /// What it announced to each worker.
    lans: BTreeMap<usize, Vec<Prefix>>,
}

/// What became of an announcement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Those prefixes that the site may have.
    pub(super) allowed: Vec<Prefix>,
    /// All that it has now, if that has changed.
    pub(super) changed: Option<Vec<Prefix>>,
}

impl Directory {
    /// A site has a tunnel at `worker`; returns the other worker that had the one of the same class.
    pub(super) fn enter(
        &self,
        worker: usize,
        name: &str,
        class: ClassId,
        addresses: &[IpAddr],
    ) -> Option<usize> {
        let sites = &mut *self.write();
        for &address in addresses {
            sites.by_address.insert(address, name.to_owned());
        }
        let site = sites.sites.entry(name.to_owned()).or_default();
        site.addresses = addresses.to_vec();
        let old = site.tunnels.iter().position(|(known, _)| *known == class);
        let old = old.map(|index| site.tunnels.remove(index).1);
        site.tunnels.push((class, worker));
        old.filter(|&old| old != worker)
    }

    /// A tunnel at `worker` is gone.
    pub(super) fn leave(&self, worker: usize, name: &str, class: ClassId) {
        let sites = &mut *self.write();
        if let Some(site) = sites.sites.get_mut(name) {
            site.tunnels.retain(|tunnel| *tunnel != (class, worker));
        }
        sites.forget_if_gone(name);
    }

    /// Whether the newest tunnel for this class of a site is at `worker`.
    pub(super) fn has(&self, worker: usize, name: &str, class: ClassId) -> bool {
        let sites = self.read();
        let site = sites.sites.get(name);
        site.is_some_and(|site| site.tunnels.contains(&(class, worker)))
    }

    /// A site has announced these prefixes to `worker`. What another site has it does not get.
    pub(super) fn claim(&self, worker: usize, name: &str, prefixes: &[Prefix]) -> Claim {
        let sites = &mut *self.write();
        let taken = |prefix: &Prefix| {
            let others = sites.sites.iter().filter(|(other, _)| *other != name);
            others
                .flat_map(|(_, site)| site.lans.values().flatten())
                .any(|other| other.overlaps(prefix))
        };
        let allowed: Vec<Prefix> = prefixes.iter().copied().filter(|p| !taken(p)).collect();
        let site = sites.sites.entry(name.to_owned()).or_default();
        let before = site.lan();
        if allowed.is_empty() {
            site.lans.remove(&worker);
        } else {
            site.lans.insert(worker, allowed.clone());
        }
        let after = site.lan();
        sites.forget_if_gone(name);
        Claim {
            allowed,
            changed: (before != after).then_some(after),
        }
    }

    /// The worker that has the site at an address.
    pub(super) fn worker_of(&self, address: IpAddr) -> Option<usize> {
        let sites = self.read();
        if let Some(name) = sites.by_address.get(&address) {
            return Some(sites.sites.get(name)?.tunnels.last()?.1);
        }
        let mut lans = sites.sites.values().flat_map(|site| &site.lans);
        let (&worker, _) = lans.find(|(_, lan)| lan.iter().any(|p| p.contains(address)))?;
        Some(worker)
    }

    /// All prefixes behind sites.
    pub(crate) fn lans(&self) -> Vec<Prefix> {
        self.read().sites.values().flat_map(Site::lan).collect()
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
        let gone = |site: &Site| site.tunnels.is_empty() && site.lans.is_empty();
        if self.sites.get(name).is_some_and(gone) {
            self.sites.remove(name);
        }
        // An address may have gone to another site since.
        let sites = &self.sites;
        self.by_address
            .retain(|_, site| site != name || sites.contains_key(name));
    }
}

impl Site {
    /// All prefixes behind it, each once.
    fn lan(&self) -> Vec<Prefix> {
        let mut all: Vec<Prefix> = self.lans.values().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
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
            assert_eq!(
                directory.enter(worker, site, DEFAULT, &[address(inner)]),
                None
            );
        }
        directory
    }

    #[test]
    fn a_worker_is_found_by_the_address_of_its_site_and_by_what_is_behind_it() {
        let directory = directory();
        directory.claim(1, "ship", &prefixes(["192.168.8.0/24"]));

        let found = ["10.200.0.2", "10.200.0.3", "192.168.8.77", "192.168.9.77"]
            .map(|text| directory.worker_of(address(text)));

        assert_eq!(found, [Some(0), Some(1), Some(1), None]);
    }

    #[test]
    fn a_site_that_has_left_is_not_found() {
        let directory = directory();
        directory.claim(1, "ship", &prefixes(["192.168.8.0/24"]));

        let claim = directory.claim(1, "ship", &[]);
        directory.leave(1, "ship", DEFAULT);

        assert_eq!(claim.changed, Some(Vec::new()));
        for text in ["10.200.0.3", "192.168.8.77"] {
            assert_eq!(directory.worker_of(address(text)), None);
        }
        assert_eq!(directory.lans(), []);
        assert_eq!(directory.worker_of(address("10.200.0.2")), Some(0));
    }

    #[test]
    fn the_worker_that_loses_a_class_to_another_is_named_and_its_goodbye_changes_nothing() {
        let directory = directory();
        let inner = [address("10.200.0.2")];

        assert_eq!(directory.enter(2, "van", DEFAULT, &inner), Some(0));
        assert!(directory.has(2, "van", DEFAULT) && !directory.has(0, "van", DEFAULT));
        directory.leave(0, "van", DEFAULT);
        assert_eq!(directory.worker_of(inner[0]), Some(2));

        assert_eq!(
            directory.enter(2, "van", DEFAULT, &inner),
            None,
            "it is its own"
        );
        assert_eq!(
            directory.enter(1, "van", BULK, &inner),
            None,
            "another class"
        );
        assert_eq!(directory.worker_of(inner[0]), Some(1), "the newest tunnel");
        directory.leave(1, "van", BULK);
        assert_eq!(directory.worker_of(inner[0]), Some(2));
    }

    #[test]
    fn what_a_site_of_one_worker_announced_no_site_of_another_gets() {
        let directory = directory();
        let lan = prefixes(["192.168.8.0/24"]);
        directory.claim(0, "van", &lan);

        let claim = directory.claim(1, "ship", &prefixes(["192.168.8.128/25", "172.16.0.0/16"]));

        assert_eq!(claim.allowed, prefixes(["172.16.0.0/16"]));
        assert_eq!(directory.worker_of(address("192.168.8.200")), Some(0));
        directory.claim(0, "van", &[]);
        assert_eq!(
            directory.claim(1, "ship", &lan).allowed,
            lan,
            "it is free now"
        );
    }

    #[test]
    fn a_lan_stays_while_one_of_the_workers_that_its_site_is_at_has_it() {
        let directory = directory();
        let lan = prefixes(["192.168.8.0/24"]);

        let first = directory.claim(0, "van", &lan);
        let again = directory.claim(0, "van", &lan);
        let elsewhere = directory.claim(2, "van", &lan);
        let one_left = directory.claim(0, "van", &[]);
        assert_eq!(directory.lans(), lan);
        let none_left = directory.claim(2, "van", &[]);

        assert_eq!(first.changed, Some(lan.clone()));
        assert_eq!((again.changed, &again.allowed), (None, &lan));
        assert_eq!((elsewhere.changed, &elsewhere.allowed), (None, &lan));
        assert_eq!(one_left.changed, None);
        assert_eq!(none_left.changed, Some(Vec::new()));
        assert_eq!(directory.lans(), []);
    }

    #[test]
    fn an_address_that_went_to_another_site_stays_there() {
        let directory = directory();
        directory.enter(1, "ship", DEFAULT, &[address("10.200.0.2")]);

        directory.leave(0, "van", DEFAULT);

        assert_eq!(directory.worker_of(address("10.200.0.2")), Some(1));
    }
}
