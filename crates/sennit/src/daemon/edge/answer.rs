//! What one worker of an edge says of itself.

use std::net::IpAddr;

use sennit_engine::facts::LinkFacts;
use sennit_packet::Prefix;

use crate::{
    daemon::{facts::Seen, why::Standings},
    site::SiteName,
    status::{CertificateStatus, LinkStatus, PathState, TunnelStatus, WorkerStatus},
};

/// What a worker says of itself, and the first of the host too.
pub(super) struct Answer {
    pub(super) site: SiteName,
    pub(super) addresses: Vec<IpAddr>,
    /// The hub's own in the tunnel.
    pub(super) hub_inside: Vec<IpAddr>,
    /// Those prefixes of our LAN that the hub does not route, and why.
    pub(super) refused: Vec<(Prefix, String)>,
    pub(super) notes: Vec<String>,
    pub(super) verdict: Option<String>,
    /// With what the hub turns this edge away.
    pub(super) refusal: Option<String>,
    pub(super) certificate: Option<CertificateStatus>,
    pub(super) links: Vec<LinkStatus>,
    /// Links on which this host refuses to send, and that in words.
    pub(super) refusals: Vec<(String, String)>,
    /// Why links are used in the order that they are.
    pub(super) standings: Standings,
    pub(super) seen: Seen,
    pub(super) worker: WorkerStatus,
}

impl Answer {
    pub(super) fn tell(self) -> Report {
        let mut tunnels = self.seen.tunnels(Some(&self.site), &self.standings);
        for path in tunnels.iter_mut().flat_map(|tunnel| &mut tunnel.paths) {
            let mut refusals = self.refusals.iter();
            if path.state != PathState::Up
                && let Some((_, refusal)) =
                    refusals.find(|(name, _)| path.link.as_ref() == Some(name))
            {
                path.why = format!("unused: {refusal}");
                path.reason = Some(refusal.clone());
            }
        }
        Report {
            addresses: self.addresses,
            refused: self.refused,
            notes: self.notes,
            verdict: self.verdict,
            refusal: self.refusal,
            certificate: self.certificate,
            links: self.links,
            tunnels,
            traffic: self.seen.links,
            worker: self.worker,
        }
    }
}

/// What a worker says, as the document shows it.
#[derive(Default)]
pub(super) struct Report {
    pub(super) addresses: Vec<IpAddr>,
    /// Those prefixes of our LAN that the hub does not route, and why.
    pub(super) refused: Vec<(Prefix, String)>,
    pub(super) notes: Vec<String>,
    /// Why there is no tunnel, as far as it was looked.
    pub(super) verdict: Option<String>,
    /// With what the hub turns this edge away.
    pub(super) refusal: Option<String>,
    pub(super) certificate: Option<CertificateStatus>,
    pub(super) links: Vec<LinkStatus>,
    pub(super) tunnels: Vec<TunnelStatus>,
    /// What went over the links.
    pub(super) traffic: Vec<LinkFacts>,
    pub(super) worker: WorkerStatus,
}
