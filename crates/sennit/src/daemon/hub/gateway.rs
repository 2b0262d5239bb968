//! A hub's host as a router: the TUN device, forwarding, routes to the LANs behind sites,
//! translation.

use std::{
    error::Error,
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ipnet::IpNet;
use sennit_linux::{
    Allowed, Confined, Filter, Footprint, Lost, Masquerade, Rules, TunnelRoute, forward_blockers,
    netlink::{Family, Netlink},
    tun::{Offload, Tun, TunConfig},
};
use sennit_packet::Prefix;

use crate::{
    config::HubConfig,
    exit::Failure,
    lan::Host,
    reach::{Place, Reach},
    store::Lease,
};

/// Removes from the host what it added when it is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// `None` once it is removed, so that no route is added after that.
    state: Mutex<Option<(Footprint, Plan)>>,
    /// Interface index of the TUN device.
    device: u32,
    /// As it was at the start: of what is asked here nothing changes later.
    config: Arc<HubConfig>,
}

/// What the host should do for the sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The prefixes behind sites.
    pub(crate) lans: Vec<Prefix>,
    /// What these may reach.
    pub(crate) confined: Vec<(Vec<Prefix>, Reach)>,
    /// What the others may reach.
    pub(crate) others: Reach,
    /// Masquerade what leaves for the internet.
    pub(crate) nat: bool,
}

impl Plan {
    /// What the config says of all sites.
    pub(crate) fn of_all(config: &HubConfig) -> Self {
        Self {
            lans: Vec::new(),
            confined: Vec::new(),
            others: config.reach.clone(),
            nat: config.nat,
        }
    }
}

impl Gateway {
    /// Opens the TUN device, with one queue for each worker, and makes the host route and
    /// translate.
    pub(super) fn open(
        mut footprint: Footprint,
        config: Arc<HubConfig>,
        workers: usize,
    ) -> Result<(Self, Vec<Tun>), Failure> {
        let tun = TunConfig {
            name: config.device.clone(),
            mtu: config.mtu.into(),
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
        if let Err(error) = footprint.silence_redirects() {
            let error = &error as &dyn Error;
            tracing::warn!(
                error,
                "cannot keep the host from sending ICMP redirects to sites"
            );
        }
        let plan = Plan::of_all(&config);
        footprint.set_rules(&rules(&config, &plan))?;
        let gateway = Self {
            state: Mutex::new(Some((footprint, plan))),
            device,
            config,
        };
        Ok((gateway, tuns))
    }

    /// Lets pass on this host what the plan says, and nothing else.
    pub(crate) fn confine(&self, plan: &Plan) -> Result<(), sennit_linux::Error> {
        let mut state = self.state();
        let Some((footprint, done)) = state.as_mut() else {
            return Ok(());
        };
        restore(footprint)?;
        let (new, old) = (rules(&self.config, plan), rules(&self.config, done));
        if new != old {
            footprint.set_rules(&new)?;
            *done = Plan {
                lans: done.lans.clone(),
                ..plan.clone()
            };
        }
        Ok(())
    }

    /// Puts back what another program has taken away of what keeps packets from passing.
    pub(crate) fn hold(&self) -> Result<(), sennit_linux::Error> {
        match self.state().as_mut() {
            Some((footprint, _)) => restore(footprint),
            None => Ok(()),
        }
    }

    /// Leads what is for the LANs of the plan into the tunnels, once [`Self::confine`] has
    /// succeeded.
    pub(crate) fn route(&self, plan: &Plan) -> Result<(), sennit_linux::Error> {
        let mut state = self.state();
        let Some((footprint, done)) = state.as_mut() else {
            return Ok(());
        };
        if plan.lans != done.lans {
            let routes = plan.lans.iter().map(|&prefix| TunnelRoute {
                prefix,
                device: self.device,
                source: None,
            });
            footprint.route_into_tunnel(routes.collect())?;
        }
        done.clone_from(plan);
        Ok(())
    }

    /// Follows what has changed on the host, and puts back what others have taken from it of ours;
    /// how much that was.
    pub(crate) fn refresh(&self) -> Lost {
        let mut state = self.state();
        let Some((footprint, _)) = state.as_mut() else {
            return Lost::default();
        };
        footprint.refresh_routes().unwrap_or_else(|error| {
            let error = &error as &dyn Error;
            tracing::warn!(error, "cannot follow the routes of the host");
            Lost::default()
        })
    }

    /// Chains of the host's firewall that drop what they are not told to forward; none if that
    /// cannot be said.
    pub(crate) fn blockers(&self) -> Vec<String> {
        forward_blockers().unwrap_or_default()
    }

    /// Why the host does not forward what sites send, if somebody has switched that off.
    pub(crate) fn does_not_forward(&self) -> Option<String> {
        let v4 = self.config.pool.v4.map(|_| "net.ipv4.ip_forward");
        let v6 = self.config.pool.v6.map(|_| "net.ipv6.conf.all.forwarding");
        let mut switches = v4.into_iter().chain(v6);
        let off = switches.find(|switch| is_off(switch))?;
        Some(format!(
            "the host does not forward what sites send: say `sysctl -w {off}=1`, and find out what \
             switched it off"
        ))
    }

    /// What nobody may announce, and the networks that the host is attached to.
    pub(crate) fn host(&self) -> Result<(Host, Vec<IpNet>), sennit_linux::Error> {
        let found = Netlink::open()?.host_addresses()?;
        let mut networks: Vec<IpNet> = found.iter().map(|it| it.network.trunc()).collect();
        networks.retain(|network| !is_special(network.addr()));
        networks.sort_unstable();
        networks.dedup();
        let mut addresses: Vec<IpAddr> = found.into_iter().map(|it| it.address).collect();
        let listen = self.config.listen.iter().map(SocketAddr::ip);
        addresses.extend(listen.filter(|address| !address.is_unspecified()));
        addresses.retain(|address| !is_special(*address));
        addresses.sort_unstable();
        addresses.dedup();
        let pool = &self.config.pool;
        let pool = pool.v4.map(IpNet::V4).into_iter();
        let pool = pool.chain(self.config.pool.v6.map(IpNet::V6)).collect();
        Ok((Host { pool, addresses }, networks))
    }

    /// Takes everything away again; but while a hub is restarted, what it translates stays
    /// translated, or the host would reset the connections.
    pub(super) fn remove(&self, restarting: bool) -> Result<(), Failure> {
        match self.state().take() {
            Some((footprint, _)) if restarting => footprint.remove_for_restart()?,
            Some((footprint, _)) => footprint.remove()?,
            None => {}
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, Option<(Footprint, Plan)>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a switch of the kernel is off; one that is not there is not.
fn is_off(switch: &str) -> bool {
    let path = Path::new("/proc/sys").join(switch.replace('.', "/"));
    fs::read_to_string(path).is_ok_and(|value| value.trim() == "0")
}

fn restore(footprint: &mut Footprint) -> Result<(), sennit_linux::Error> {
    if footprint.restore_rules()? {
        tracing::warn!(
            "another program has taken away or changed what this hub has in nftables; it is put back"
        );
    }
    Ok(())
}

/// Those of every host, which nobody may announce anyway.
fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

fn rules(config: &HubConfig, plan: &Plan) -> Rules {
    let masquerade = plan.nat.then(|| {
        let mut sources = pool(config);
        sources.extend(&plan.lans);
        Masquerade {
            sources,
            inside: Vec::new(),
        }
    });
    let confined = plan.confined.iter().map(|(sources, reach)| Confined {
        sources: sources.clone(),
        allowed: allowed(reach),
    });
    Rules {
        masquerade,
        filter: Filter {
            confined: confined.collect(),
            others: allowed(&plan.others),
        },
    }
}

fn allowed(reach: &Reach) -> Allowed {
    if reach.is_everything() {
        return Allowed::Everything;
    }
    Allowed::Only {
        internet: reach.has(Place::Internet),
        own_device: reach.has(Place::Sites),
        host: reach.has(Place::Hub),
        prefixes: reach
            .prefixes()
            .map(|net| Prefix::around(net.network(), net.prefix_len()))
            .collect(),
    }
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
