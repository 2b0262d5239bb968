//! What each site may reach, and which LANs are routed to it: at the host, at the workers, and in
//! the store.

use std::{net::IpAddr, time::SystemTime};

use ipnet::IpNet;
use sennit_packet::Prefix;

use super::{Registrar, Verdict, addresses, lans};
use crate::{
    daemon::hub::gateway::Plan,
    reach::Reach,
    site::SiteName,
    store::{Lease, SiteRecord},
};

impl Registrar {
    pub(super) fn learn_confined(
        &mut self,
        now: SystemTime,
    ) -> Result<(), crate::store::StoreError> {
        let sites = self.store.sites(now)?;
        self.confined.clear();
        for site in sites {
            self.confine(&site);
        }
        Ok(())
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
        let reach = self.reach_of(site);
        let lease = Lease {
            v4: site.v4,
            v6: site.v6,
        };
        // What it had of a former pool may be anybody's by now.
        let pool = &self.host.pool;
        let current = |address: &IpAddr| pool.iter().any(|net| net.contains(address));
        let leased = addresses(lease).into_iter().filter(current);
        let sources: Vec<Prefix> = leased.map(IpNet::from).map(around).collect();
        if site.revoked.is_some() || sources.is_empty() || *reach == self.config.reach {
            self.confined.remove(&site.name);
        } else {
            let confined = (sources, reach.clone());
            self.confined.insert(site.name.clone(), confined);
        }
    }

    /// Decides anew what is routed to whom, and tells everybody.
    pub(super) fn decide_lans(&mut self) {
        let sites = match self.store.sites(SystemTime::now()) {
            Ok(sites) => sites,
            Err(error) => return tracing::warn!(%error, "cannot list the sites"),
        };
        let granted = sites
            .into_iter()
            .map(|site| (site.name.to_string(), site.granted));
        let outer = self.neighbours.directory.outer();
        let (host, networks) = (&self.host, &self.networks);
        let news = self.lans.decide(&granted.collect(), host, networks, &outer);
        let failed = self.apply_filter();
        let filtered = failed.is_ok();
        if let Err(error) = failed.and_then(|()| self.apply_routes()) {
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
            self.neighbours.directory.set_lan(&news.name, &news.lan);
            self.tell(&news);
        }
    }

    /// Tells the workers what is routed to a site.
    pub(super) fn tell(&self, news: &lans::News) {
        for worker in &*self.neighbours.verdicts {
            worker.post(Verdict::Lan {
                site: news.name.clone(),
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

    fn apply_routes(&self) -> Result<(), sennit_linux::Error> {
        let gateway = self.neighbours.gateway.upgrade();
        gateway.map_or(Ok(()), |gateway| gateway.route(&self.plan()))
    }

    fn plan(&self) -> Plan {
        let confined = self.confined.iter().map(|(site, (addresses, reach))| {
            let lan = self.lans.of(site.as_str()).iter().copied();
            let sources = addresses.iter().copied().chain(lan).collect();
            (without_nested(sources), reach.clone())
        });
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
