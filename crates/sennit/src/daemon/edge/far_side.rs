//! Who is at the other end, and the engines that connect to it.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Instant};

use sennit_core::{ClassId, Classifier};
use sennit_engine::{
    ClassConfig, Edge, EdgeChange, EdgeConfig as EngineConfig, HubName, Issuer, Purpose, Settings,
    Treatment,
};
use sennit_packet::Prefix;

use super::{Portion, running::Running};
use crate::{
    config::{self, Class, EdgeConfig},
    daemon::random_seed,
    exit::Failure,
    identity::{self, ClientTls, EdgeIdentity},
    remote::Remote,
    site::SiteName,
};

/// Who is at the other end and how we prove who we are.
pub(super) enum FarSide {
    Hub(Box<EdgeIdentity>),
    Proxy(Box<ClientTls>),
}

/// For handshakes with post-quantum key exchange, and for those without.
#[derive(Clone)]
pub(super) struct Proofs {
    pub(super) tls: Arc<rustls::ClientConfig>,
    pub(super) classic: Arc<rustls::ClientConfig>,
    /// The name that the hub's certificate must bear.
    pub(super) server_name: String,
}

impl FarSide {
    pub(super) fn load(config: &EdgeConfig) -> Result<Self, Failure> {
        let Some(proxy) = &config.proxy else {
            let identity = EdgeIdentity::load(&config.state)?;
            return Ok(Self::Hub(Box::new(identity)));
        };
        let known = config.hub.first();
        let known = known.ok_or_else(|| Failure::runtime("no proxy address"))?;
        let tls = identity::proxy_config(proxy, &known.host())?;
        Ok(Self::Proxy(Box::new(tls)))
    }

    fn tls(&self) -> Result<ClientTls, Failure> {
        match self {
            Self::Hub(identity) => Ok(identity::client_config(identity)?),
            Self::Proxy(tls) => Ok(ClientTls::clone(tls)),
        }
    }

    /// Without a certificate nothing but one is wanted.
    fn purpose(&self) -> Result<Purpose, Failure> {
        match self {
            Self::Hub(identity) if !identity.is_enrolled() => {
                Ok(Purpose::Enrol(identity.enrollment_request()?.into()))
            }
            Self::Hub(_) | Self::Proxy(_) => Ok(Purpose::Tunnels),
        }
    }

    pub(super) fn site(&self) -> SiteName {
        match self {
            Self::Hub(identity) => identity.site.clone(),
            Self::Proxy(_) => "proxy".parse().expect("a valid site name"),
        }
    }

    /// By what engines prove from now on who we are, and the hub who it is.
    pub(super) fn proofs(&self) -> Result<Proofs, Failure> {
        let tls = self.tls()?;
        Ok(Proofs {
            tls: Arc::new(tls.config),
            classic: Arc::new(tls.classic),
            server_name: tls.server_name,
        })
    }

    /// An engine for each worker. A certificate is the business of the first, and until there is
    /// one the others have no classes.
    pub(super) fn engines(
        &self,
        running: &Running,
        workers: usize,
        now: Instant,
    ) -> Result<Vec<Edge>, Failure> {
        let config = &running.config;
        let tls = self.tls()?;
        let purpose = self.purpose()?;
        let engine_config = EngineConfig {
            hubs: addresses(config),
            hub_names: hub_names(config),
            server_name: tls.server_name,
            classes: BTreeMap::new(),
            classifier: classifier(running),
            sharing: running.sharing.clone(),
            classic: Some(Arc::new(tls.classic)),
            lan: config.lan.iter().copied().map(prefix).collect(),
            steering: steering(tls.bearer.as_deref().unwrap_or(self.site().as_str())),
            bearer: tls.bearer,
        };
        let tls = Arc::new(tls.config);
        let engine = |number| {
            let portion = Portion { number, workers };
            let busy = number == 0 || matches!(purpose, Purpose::Tunnels);
            let engine_config = EngineConfig {
                classes: class_configs(running, |class| busy && portion.has(class)),
                ..engine_config.clone()
            };
            let settings = settings(config)?;
            Edge::new(settings, engine_config, tls.clone(), purpose.clone(), now)
                .map_err(Failure::runtime)
        };
        (0..workers).map(engine).collect()
    }
}

/// The hub's addresses that need not be looked up.
pub(super) fn addresses(config: &EdgeConfig) -> Vec<SocketAddr> {
    config.hub.iter().filter_map(Remote::address).collect()
}

/// The hub's names, which have to be looked up.
pub(super) fn hub_names(config: &EdgeConfig) -> Vec<HubName> {
    let named = config.hub.iter().filter(|hub| hub.address().is_none());
    named.map(|hub| hub.to_string().into()).collect()
}

/// The sum of what the far side knows us by, so that sites with numbers in their names are spread
/// evenly over the workers of a hub.
fn steering(known_by: &str) -> u8 {
    known_by.bytes().fold(0, u8::wrapping_add)
}

pub(super) fn settings(config: &EdgeConfig) -> Result<Settings, Failure> {
    Ok(Settings {
        inner_mtu: config.mtu,
        issuer: Issuer::default(),
        seed: random_seed()?,
        reset_key: random_seed()?,
        rekey: config.rekey,
    })
}

pub(super) fn prefix(net: config::Prefix) -> Prefix {
    Prefix::around(net.network(), net.prefix_len())
}

/// What an engine does otherwise with another config, of which it carries these classes.
pub(super) fn change(running: &Running, wanted: impl Fn(ClassId) -> bool) -> EdgeChange {
    EdgeChange {
        classes: class_configs(running, wanted),
        classifier: classifier(running),
        lan: running.config.lan.iter().copied().map(prefix).collect(),
        hubs: addresses(&running.config),
        hub_names: hub_names(&running.config),
        sharing: running.sharing.clone(),
    }
}

fn class_configs(
    running: &Running,
    wanted: impl Fn(ClassId) -> bool,
) -> BTreeMap<ClassId, ClassConfig> {
    let wanted = running.numbered().filter(|&(id, _)| wanted(id));
    wanted.map(|(id, it)| (id, class_config(it))).collect()
}

pub(super) fn class_config(class: &Class) -> ClassConfig {
    ClassConfig {
        name: class.name.clone(),
        treatment: Treatment {
            policy: class.policy,
            delivery: class.delivery,
            copies: class.copies,
            congestion: class.congestion,
            headers: class.headers,
            fec: class.fec,
        },
        dscp: class.dscp.unwrap_or(0),
        links: class.links.clone(),
    }
}

fn classifier(running: &Running) -> Classifier {
    let (mut rules, mut before) = (Vec::new(), BTreeMap::new());
    for (id, class) in running.numbered() {
        let (of_kernel, own): (Vec<_>, Vec<_>) =
            class.matches.iter().partition(|it| it.is_kernel());
        // What the kernel leads to the class goes by the rules of those that stand before it first.
        if !of_kernel.is_empty() {
            before.insert(id, rules.len());
        }
        rules.extend(own.into_iter().map(|it| (it.rule(), id)));
    }
    let mut classes = running.numbered();
    let fallback = classes.find(|(_, class)| class.catches_all());
    let last = || running.classes.last().copied();
    let fallback = fallback.map(|(id, _)| id).or_else(last);
    Classifier::new(rules, fallback.unwrap_or_default()).with_devices(before)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbered_sites_come_to_different_workers() {
        let workers: BTreeSet<u8> = (0..8)
            .map(|number| steering(&format!("van-{number}")) % 8)
            .collect();
        assert_eq!(workers.len(), 8);
    }
}
