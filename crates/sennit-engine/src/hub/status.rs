//! What a hub knows of its tunnels and links.

use std::{collections::BTreeSet, net::IpAddr, time::Instant};

use super::{Hub, Stage};
use crate::{
    facts::{FlowsWanted, LinkFacts, TunnelStatus},
    ids::{ConnId, PipeId, SiteId},
    node::Conn,
};

/// Tunnels that are described in one turn. Each takes 2 to 7 µs, by how many flows it has
/// (`sennit-sim/examples/status.rs`), so this holds up a packet for some tenths of a millisecond.
pub const AT_ONCE: usize = 16;

/// How far an answer about all tunnels has come. It is made in turns, with packets between them, so
/// that a hub with many tunnels can be asked. What comes or goes meanwhile is in it or not; a class
/// that gets another tunnel is in it once.
#[derive(Debug, Default)]
pub struct Walk {
    after: Option<ConnId>,
    told: BTreeSet<PipeId>,
    is_over: bool,
}

impl Walk {
    /// Whether all tunnels have been told of.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

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

    /// The state of the next [`AT_ONCE`] tunnels of a walk through all, with their flows.
    pub fn status_of_next(
        &mut self,
        walk: &mut Walk,
        wanted: &FlowsWanted,
        now: Instant,
    ) -> Vec<TunnelStatus> {
        self.walk_on(walk, AT_ONCE, Some((wanted, now)))
    }

    fn collect_status(&mut self, wanted: Option<(&FlowsWanted, Instant)>) -> Vec<TunnelStatus> {
        self.walk_on(&mut Walk::default(), usize::MAX, wanted)
    }

    fn walk_on(
        &mut self,
        walk: &mut Walk,
        most: usize,
        wanted: Option<(&FlowsWanted, Instant)>,
    ) -> Vec<TunnelStatus> {
        let conns = self.node.after(walk.after);
        let plugged = conns.filter_map(|(id, conn)| Some((id, conn.pipe()?)));
        let is_new = |&(_, pipe): &(ConnId, PipeId)| !walk.told.contains(&pipe);
        let next: Vec<_> = plugged.filter(is_new).take(most).collect();
        walk.is_over = next.len() < most;
        walk.after = next.last().map(|&(id, _)| id).or(walk.after);
        walk.told.extend(next.iter().map(|&(_, pipe)| pipe));
        let next = next.into_iter();
        next.filter_map(|(id, _)| self.tunnel_status(id, wanted))
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
