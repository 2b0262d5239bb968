//! What there is only one of: the host's addresses and routes, the watch over its interfaces, and
//! who we are.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sennit_engine::Edge;
use sennit_linux::{Footprint, TunnelRoute, netlink::Family};
use sennit_packet::Prefix;

use super::{
    far_side::{self, FarSide},
    watch::Watch,
};
use crate::{
    cli::Failure,
    config::{self, EdgeConfig},
};

/// A failed enrolment is repeated after this.
const ENROL_AGAIN: Duration = Duration::from_secs(5);

/// Belongs to the first worker.
pub(super) struct Lead {
    pub(super) footprint: Footprint,
    pub(super) watch: Watch,
    far_side: FarSide,
    /// When to start the tunnels, or to enrol, once more.
    pub(super) enrol_at: Option<Instant>,
    /// Interface indices of the TUN devices, the main one first.
    devices: Vec<u32>,
    /// Ours in the tunnel.
    pub(super) addresses: Vec<Prefix>,
    config: Arc<EdgeConfig>,
}

impl Lead {
    pub(super) fn new(
        footprint: Footprint,
        watch: Watch,
        far_side: FarSide,
        devices: Vec<u32>,
        config: Arc<EdgeConfig>,
    ) -> Result<Self, Failure> {
        let mut lead = Self {
            footprint,
            watch,
            far_side,
            enrol_at: None,
            devices,
            addresses: Vec::new(),
            config,
        };
        for family in [Family::V4, Family::V6] {
            let ours = |net: &config::Prefix| Family::of(net.addr()) == family;
            if lead.config.lan.iter().any(ours) {
                lead.footprint.forward(family)?;
            }
        }
        Ok(lead)
    }

    /// Takes the certificate that the hub has answered with; whether there is one now.
    pub(super) fn handle_enrolled(&mut self, answer: &[u8], now: Instant) -> bool {
        let FarSide::Hub(identity) = &mut self.far_side else {
            return false;
        };
        match identity.accept(answer) {
            Ok(()) => {
                tracing::info!(site = %identity.site, "certificate received");
                true
            }
            Err(error) => {
                tracing::error!(%error, "cannot keep the certificate; trying again");
                self.enrol_at = Some(now + ENROL_AGAIN);
                false
            }
        }
    }

    /// New engines for all workers, with the present identity.
    pub(super) fn engines(&mut self, workers: usize, now: Instant) -> Option<Vec<Edge>> {
        self.enrol_at = None;
        match self.far_side.engines(&self.config, workers, now) {
            Ok(engines) => Some(engines),
            Err(failure) => {
                tracing::error!(%failure, "cannot start the tunnels; trying again");
                self.enrol_at = Some(now + ENROL_AGAIN);
                None
            }
        }
    }

    /// Gives the TUN devices their addresses and routes, unless they have them: each worker hears of
    /// them from the hub.
    pub(super) fn handle_addresses(&mut self, addresses: Vec<Prefix>) {
        if self.addresses == addresses {
            return;
        }
        let nets: Vec<IpNet> = addresses.iter().map(Prefix::net).collect();
        self.addresses = addresses;
        tracing::info!(addresses = ?nets, "addresses assigned");
        for &device in &self.devices {
            if let Err(error) = self.footprint.set_addresses(device, &nets) {
                tracing::error!(error = &error as &dyn Error, "cannot set the addresses");
            }
        }
        let source = |net: &config::Prefix| {
            nets.iter()
                .map(IpNet::addr)
                .find(|a| a.is_ipv4() == net.addr().is_ipv4())
        };
        let routes = self.config.routes.iter().filter_map(|net| {
            let source = Some(source(net)?);
            Some(TunnelRoute {
                prefix: far_side::prefix(*net),
                device: self.devices[0],
                source,
            })
        });
        if let Err(error) = self.footprint.route_into_tunnel(routes.collect()) {
            tracing::error!(error = &error as &dyn Error, "cannot route into the tunnel");
        }
    }
}
