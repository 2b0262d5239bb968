//! A hub's host as a router: the TUN device, forwarding, routes to the LANs behind sites,
//! translation.

use std::{
    error::Error,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ipnet::IpNet;
use sennit_linux::{
    Footprint, Masquerade, TunnelRoute, forward_blockers,
    netlink::Family,
    tun::{Offload, Tun, TunConfig},
};
use sennit_packet::Prefix;

use crate::{cli::Failure, config::HubConfig, daemon::DEFAULT_MTU, store::Lease};

/// Removes from the host what it added when it is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// `None` once it is removed, so that no route is added after that.
    footprint: Mutex<Option<Footprint>>,
    /// Interface index of the TUN device.
    device: u32,
    config: Arc<HubConfig>,
}

impl Gateway {
    /// Opens the TUN device, with one queue for each worker, and makes the host route and translate.
    pub(super) fn open(
        mut footprint: Footprint,
        config: Arc<HubConfig>,
        workers: usize,
    ) -> Result<(Self, Vec<Tun>), Failure> {
        let tun = TunConfig {
            name: config.device.clone(),
            mtu: config.mtu.unwrap_or(DEFAULT_MTU).into(),
            queues: workers,
            offload: Offload::Auto,
        };
        let tuns = Tun::open(&tun)?;
        let device = tuns[0].index();
        tracing::info!(device = %config.device, offload = ?tuns[0].tier(), "TUN device is up");
        footprint.set_addresses(device, &own_addresses(&config))?;
        let families = [
            config.pool.v4.map(|_| Family::V4),
            config.pool.v6.map(|_| Family::V6),
        ];
        for family in families.into_iter().flatten() {
            footprint.forward(family)?;
        }
        translate(&mut footprint, &config, &[])?;
        for chain in forward_blockers().unwrap_or_default() {
            tracing::warn!(
                chain,
                "this chain drops forwarded packets, and sites may not reach the internet: let it accept \
                 what comes from and goes to the TUN device"
            );
        }
        let gateway = Self {
            footprint: Mutex::new(Some(footprint)),
            device,
            config,
        };
        Ok((gateway, tuns))
    }

    /// Routes exactly these prefixes to the TUN device, and translates their addresses.
    pub(crate) fn route(&self, lans: &[Prefix]) {
        let mut footprint = self.footprint();
        let Some(footprint) = footprint.as_mut() else {
            return;
        };
        let routes = lans.iter().map(|&prefix| TunnelRoute {
            prefix,
            device: self.device,
            source: None,
        });
        if let Err(error) = footprint.route_into_tunnel(routes.collect()) {
            tracing::error!(
                error = &error as &dyn Error,
                "cannot route the LAN prefixes"
            );
        }
        if let Err(error) = translate(footprint, &self.config, lans) {
            tracing::error!(
                error = &error as &dyn Error,
                "cannot translate for the LAN prefixes"
            );
        }
    }

    /// Takes everything away again.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        let footprint = self.footprint().take();
        Ok(footprint.map_or(Ok(()), Footprint::remove)?)
    }

    fn footprint(&self) -> MutexGuard<'_, Option<Footprint>> {
        self.footprint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn translate(
    footprint: &mut Footprint,
    config: &HubConfig,
    lans: &[Prefix],
) -> Result<(), sennit_linux::Error> {
    if !config.nat {
        return Ok(());
    }
    let mut sources = pool(config);
    sources.extend(lans);
    footprint.masquerade(&Masquerade {
        sources,
        inside: Vec::new(),
    })
}

/// The hub's own addresses, with the length of their pool.
pub(super) fn own_addresses(config: &HubConfig) -> Vec<IpNet> {
    let lease = Lease::of_hub(&config.pool);
    let net = |address: IpAddr, bits| IpNet::new(address, bits).expect("the pool's own length");
    let v4 = lease
        .v4
        .zip(config.pool.v4)
        .map(|(a, pool)| net(a.into(), pool.prefix_len()));
    let v6 = lease
        .v6
        .zip(config.pool.v6)
        .map(|(a, pool)| net(a.into(), pool.prefix_len()));
    v4.into_iter().chain(v6).collect()
}

/// The prefixes that sites get their addresses from.
pub(super) fn pool(config: &HubConfig) -> Vec<Prefix> {
    let nets = config
        .pool
        .v4
        .map(IpNet::V4)
        .into_iter()
        .chain(config.pool.v6.map(IpNet::V6));
    nets.map(|net| Prefix::around(net.network(), net.prefix_len()))
        .collect()
}
