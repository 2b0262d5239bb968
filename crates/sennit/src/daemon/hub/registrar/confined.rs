//! What each site may reach, and which LANs are routed to it: at the host, at the workers, and in
//! the store.

use std::{collections::BTreeSet, net::IpAddr, time::SystemTime};

use ipnet::IpNet;
use sennit_packet::Prefix;

use super::{Registrar, Verdict, addresses, lans};
use crate::{
    daemon::hub::gateway::Plan,
    identity::Refusal,
    journal::Event,
    leases::Leases,
    reach::Reach,
    site::SiteName,
    store::{Lease, SiteRecord, StoreError},
};

/// The sites of these that are revoked.
pub(super) fn revoked(sites: &[SiteRecord]) -> impl Iterator<Item = SiteName> {
    let revoked = sites.iter().filter(|it| it.revoked.is_some());
    revoked.map(|it| it.name.clone())
}

impl Registrar {
    /// All sites of the store; who asks for the status hears of them too.
    fn sites(&self, now: SystemTime) -> Result<Vec<SiteRecord>, StoreError> {
        let sites = self.store.sites(now);
        self.note_reading(sites.as_ref().err());
        if let Ok(sites) = &sites {
            self.neighbours.condition.note_sites(sites);
            self.note_pools(Leases::of(sites, Some(&self.config.pool)).pools);
        }
        sites
    }

    /// Notes anew what each site may reach; all sites of the store.
    pub(super) fn learn_confined(
        &mut self,
        now: SystemTime,
    ) -> Result<Vec<SiteRecord>, StoreError> {
        let sites = self.sites(now)?;
        self.tell_of_revoked(&sites);
        let before = std::mem::take(&mut self.confined);
        self.reaches.clear();
        for site in &sites {
            self.confine(site);
        }
        // Whoever was revoked has no address any more, also if it was invited again since, or is
        // in the store no longer.
        let leased = sites.iter().filter(|it| it.v4.is_some() || it.v6.is_some());
        let leased: BTreeSet<&SiteName> = leased.map(|it| &it.name).collect();
        let left = before
            .into_iter()
            .filter(|(name, _)| !leased.contains(name));
        self.departing
            .extend(left.map(|(name, (addresses, _))| (name, addresses)));
        Ok(sites)
    }

    /// The journal hears of what is not good any more, and once of a site that is revoked, whatever
    /// else that has made of its credentials.
    pub(super) fn tell_of_expelled(&mut self, site: &SiteName, refusal: &Refusal) {
        let record = self.store.site(site, SystemTime::now());
        let is_revoked = record.is_ok_and(|it| it.revoked.is_some());
        if is_revoked && !self.revoked.insert(site.clone()) {
            return;
        }
        let reason = match is_revoked {
            true => Refusal::SiteRevoked(site.clone()).to_string(),
            false => refusal.to_string(),
        };
        let site = site.to_string();
        let event = Event::Expelled { site, reason };
        self.neighbours.journal.note(event);
    }

    /// The journal hears of each site that is revoked, also of one that has not been here since the
    /// start.
    fn tell_of_revoked(&mut self, sites: &[SiteRecord]) {
        let now: BTreeSet<SiteName> = revoked(sites).collect();
        for site in now.difference(&self.revoked) {
            let reason = Refusal::SiteRevoked(site.clone()).to_string();
            tracing::info!(%site, reason, "expelled");
            self.neighbours.journal.note(Event::Expelled {
                site: site.to_string(),
                reason,
            });
        }
        self.revoked = now;
    }

    /// Lets go of the addresses of revoked sites of which no tunnel is left.
    pub(super) fn forget_departed(&mut self) {
        let before = self.departing.len();
        let directory = &self.neighbours.directory;
        let has =
            |site: &SiteName, address| directory.holder(address).as_deref() == Some(site.as_str());
        self.departing
            .retain(|site, addresses| addresses.iter().any(|it| has(site, it.first())));
        if self.departing.len() == before {
            return;
        }
        if let Err(error) = self.apply_filter() {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "cannot let go of the addresses of revoked sites");
        }
    }

    /// Whether somebody who was revoked just now still has a tunnel with one of these addresses: it
    /// may be another site, or this one, which was invited again since.
    pub(super) fn is_still_used(&mut self, site: &SiteName, lease: Lease) -> bool {
        if self.departing.contains_key(site) {
            // Its tunnels may be cut by now.
            self.forget_departed();
        }
        let holder = |address| self.neighbours.directory.holder(address);
        let mut holders = addresses(lease).into_iter().filter_map(holder);
        self.departing.contains_key(site) || holders.any(|holder| holder != site.as_str())
    }

    /// What a site may reach.
    pub(super) fn reach_of<'a>(&'a self, site: &'a SiteRecord) -> &'a Reach {
        let usual = if site.bearer {
            &self.config.bearer_reach
        } else {
            &self.config.reach
        };
        site.reach.as_ref().unwrap_or(usual)
    }

    /// Notes what a site may reach, if that is not what all may.
    pub(super) fn confine(&mut self, site: &SiteRecord) {
        let reach = self.reach_of(site).clone();
        let is_usual = site.revoked.is_some() || reach == self.config.reach;
        if is_usual {
            self.reaches.remove(site.name.as_str());
        } else {
            let name = site.name.to_string();
            self.reaches.insert(name, reach.clone());
        }
        let lease = Lease {
            v4: site.v4,
            v6: site.v6,
        };
        // What it had of a former pool may be anybody's by now.
        let pool = &self.host.pool;
        let current = |address: &IpAddr| pool.iter().any(|net| net.contains(address));
        let leased = addresses(lease).into_iter().filter(current);
        let sources: Vec<Prefix> = leased.map(IpNet::from).map(around).collect();
        if is_usual || sources.is_empty() {
            self.confined.remove(&site.name);
        } else {
            self.confined.insert(site.name.clone(), (sources, reach));
        }
    }

    /// Decides anew what is routed to whom, and tells everybody; false if the store or the host did
    /// not let it.
    pub(super) fn decide_lans(&mut self) -> bool {
        match self.sites(SystemTime::now()) {
            Ok(sites) => self.decide_lans_of(sites),
            Err(error) => {
                tracing::warn!(%error, "cannot list the sites");
                false
            }
        }
    }

    /// Decides as [`Self::decide_lans`] does, where these are all sites of the store.
    pub(super) fn decide_lans_of(&mut self, sites: Vec<SiteRecord>) -> bool {
        self.is_undecided = false;
        let granted = sites
            .into_iter()
            .map(|site| (site.name.to_string(), site.granted));
        let outer = self.neighbours.directory.outer();
        let (host, networks) = (&self.host, &self.networks);
        let news = self.lans.decide(&granted.collect(), host, networks, &outer);
        let failed = self.apply_filter();
        let filtered = failed.is_ok();
        let applied = failed.and_then(|()| self.apply_routes());
        let is_done = applied.is_ok();
        if let Err(error) = applied {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "cannot set up the host for the LANs of sites");
        }
        for mut news in news {
            self.remember(&news);
            let site: Option<SiteName> = news.name.parse().ok();
            let confined = site.is_some_and(|site| self.confined.contains_key(&site));
            if confined && !filtered {
                // Its LAN would reach what the site may not. It is decided anew in a while.
                self.lans.reconsider(&news.name);
                news.lan.clear();
            }
            news.log();
            self.note_refused(&news);
            self.neighbours.directory.set_lan(&news.name, &news.lan);
            self.tell(&news);
        }
        is_done
    }

    /// Has the journal and the status say what of its announcement a site does not get.
    fn note_refused(&self, news: &lans::News) {
        let (name, condition) = (&news.name, &self.neighbours.condition);
        condition.note_refused(name, &news.refused);
        for (prefix, reason) in news.newly_refused.iter().take(lans::LOGGED) {
            self.neighbours.journal.note(Event::LanRefused {
                site: Some(name.clone()),
                prefix: prefix.to_string(),
                reason: reason.clone(),
            });
        }
    }

    /// Tells the workers what is routed to a site.
    pub(super) fn tell(&self, news: &lans::News) {
        for worker in &*self.neighbours.verdicts {
            worker.post(Verdict::Lan {
                site: news.name.as_str().into(),
                lan: news.lan.clone(),
                refused: news.refused.clone(),
            });
        }
    }

    fn remember(&mut self, news: &lans::News) {
        // What it had is worth knowing while it is away.
        if news.left {
            return;
        }
        let Ok(site) = news.name.parse::<SiteName>() else {
            return;
        };
        let announced: Vec<_> = news.announced.iter().map(Prefix::net).collect();
        let refused = news.refused.iter();
        let refused: Vec<_> = refused.map(|(p, why)| (p.net(), why.clone())).collect();
        if let Err(error) = self.store.announce(&site, &announced, &refused) {
            tracing::warn!(%site, %error, "cannot remember the LAN prefixes");
        }
    }

    /// Makes the host keep everybody to what they may reach.
    pub(super) fn apply_filter(&self) -> Result<(), sennit_linux::Error> {
        let gateway = self.neighbours.gateway.upgrade();
        gateway.map_or(Ok(()), |gateway| gateway.confine(&self.plan()))
    }

    /// Puts back what another program has taken away of what the host was made to do.
    pub(super) fn hold_filter(&self) -> Result<(), sennit_linux::Error> {
        let gateway = self.neighbours.gateway.upgrade();
        gateway.map_or(Ok(()), |gateway| gateway.hold())
    }

    fn apply_routes(&self) -> Result<(), sennit_linux::Error> {
        let gateway = self.neighbours.gateway.upgrade();
        gateway.map_or(Ok(()), |gateway| gateway.route(&self.plan()))
    }

    pub(super) fn plan(&self) -> Plan {
        let all = |site: &SiteName, addresses: &[Prefix]| {
            let lan = self.lans.of(site.as_str()).iter();
            addresses.iter().chain(lan).copied().collect::<Vec<_>>()
        };
        let departing = self.departing.iter();
        let departing: Vec<Prefix> = departing.flat_map(|(site, it)| all(site, it)).collect();
        let stays = |source: &Prefix| !departing.iter().any(|it| it.overlaps(source));
        let confined = self.confined.iter().map(|(site, (addresses, reach))| {
            let sources = all(site, addresses).into_iter().filter(stays).collect();
            (without_nested(sources), reach.clone())
        });
        let confined = confined.filter(|(sources, _)| !sources.is_empty());
        let nowhere =
            (!departing.is_empty()).then(|| (without_nested(departing.clone()), Reach::default()));
        let confined = confined.chain(nowhere);
        Plan {
            lans: self.lans.all(),
            confined: confined.collect(),
            ..Plan::of_all(&self.config)
        }
    }
}

fn around(net: IpNet) -> Prefix {
    Prefix::around(net.network(), net.prefix_len())
}

/// What these prefixes cover together, by prefixes of which none lies in another.
fn without_nested(mut prefixes: Vec<Prefix>) -> Vec<Prefix> {
    prefixes.sort_by_key(Prefix::bits);
    let mut outermost: Vec<Prefix> = Vec::new();
    for prefix in prefixes {
        if !outermost.iter().any(|outer| outer.overlaps(&prefix)) {
            outermost.push(prefix);
        }
    }
    outermost
}
