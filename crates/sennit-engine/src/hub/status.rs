//! What a hub knows of its tunnels and links.

use std::{collections::BTreeSet, net::IpAddr, time::Instant};

use super::{Hub, Stage};
use crate::{
    facts::{FlowsWanted, LinkFacts, TunnelStatus},
    ids::{ConnId, SiteId},
    node::Conn,
};

impl Hub {
    /// The links of all sites, with what all classes of a site do there together.
    pub fn links(&self) -> Vec<LinkFacts> {
        self.node.links.facts()
    }

    /// Where a site's tunnels come from.
    pub fn outer_addresses(&self, site: &SiteId) -> BTreeSet<IpAddr> {
        let tunnels = self.sites.tunnels(site).into_iter();
        let conns = tunnels.filter_map(|id| self.node.get(id));
        conns
            .flat_map(Conn::paths)
            .map(|path| path.remote().ip().to_canonical())
            .collect()
    }

    /// The state of every tunnel.
    pub fn status(&mut self) -> Vec<TunnelStatus> {
        self.collect_status(None)
    }

    /// The state of every tunnel with its flows, as they are in the direction to the sites.
    pub fn status_with_flows(&mut self, wanted: &FlowsWanted, now: Instant) -> Vec<TunnelStatus> {
        self.collect_status(Some((wanted, now)))
    }

    fn collect_status(&mut self, wanted: Option<(&FlowsWanted, Instant)>) -> Vec<TunnelStatus> {
        let ids: Vec<ConnId> = self.node.iter().map(|(id, _)| id).collect();
        ids.into_iter()
            .filter_map(|id| self.tunnel_status(id, wanted))
            .collect()
    }

    fn tunnel_status(
        &mut self,
        id: ConnId,
        wanted: Option<(&FlowsWanted, Instant)>,
    ) -> Option<TunnelStatus> {
        let conn = self.node.get(id)?;
        let Stage::Up {
            site,
            name,
            treatment,
            ..
        } = &conn.role.stage
        else {
            return None;
        };
        let mut status = TunnelStatus::new(name.clone(), *treatment, conn.role.since);
        status.site = Some(site.clone());
        (status.up, status.reason) = (true, "up".into());
        let pipe = conn.pipe()?;
        self.node.describe((pipe, Some(id)), &mut status, wanted);
        Some(status)
    }
}
