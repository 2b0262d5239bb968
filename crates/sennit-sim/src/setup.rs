//! The configs of a world's machines, and where they are.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Instant,
};

use sennit_core::{ClassId, Classifier, Policy};
use sennit_engine::{
    ClassConfig, Edge, EdgeConfig, Hub, HubClasses, HubConfig, Issuer, LinkLabel, Purpose, Rekey,
    Settings, SiteId,
};

use crate::{
    EDGE, LinkSpec, World, class,
    tls::{self, Authority},
};

/// Keys are renewed far more often than by default, so that whatever is tried goes through that.
pub(crate) const REKEY: Rekey = Rekey {
    packets: 2000,
    bytes: u64::MAX,
};
/// Where the hub listens.
const HUB: &str = "203.0.113.1:443";
const OTHER: &str = "203.0.113.2:443";

impl World {
    /// A world of one class in which either end renews its keys after so many packets.
    pub fn with_rekey(links: &[LinkSpec], packets: u64, seed: u64, start: Instant) -> Self {
        let config = edge_config(vec![class("default", Policy::Bond)], Classifier::default());
        let world = Self::unplugged(links, config, Authority::new(), seed, start);
        world.renewing(packets).plug_in()
    }

    /// This world, whose links are not up yet, with ends that renew their keys after so many
    /// packets.
    pub(crate) fn renewing(mut self, packets: u64) -> Self {
        self.rekey.packets = packets;
        self.hub = new_hub(&self.authority, self.rekey, self.seed, self.now);
        self.edge = new_edge(
            &self.config,
            &self.authority,
            self.rekey,
            self.seed,
            self.now,
        );
        self
    }
}

pub(crate) fn edge_config(classes: Vec<ClassConfig>, classifier: Classifier) -> EdgeConfig {
    EdgeConfig {
        hubs: vec![hub_address()],
        hub_names: Vec::new(),
        server_name: tls::HUB_NAME.into(),
        classes: (0..).map(ClassId).zip(classes).collect(),
        classifier,
        sharing: None,
        classic: None,
        lan: Vec::new(),
        bearer: None,
        steering: 0,
    }
}

pub(crate) fn new_edge(
    config: &EdgeConfig,
    authority: &Authority,
    rekey: Rekey,
    seed: u64,
    now: Instant,
) -> Edge {
    let tls = authority.client();
    Edge::new(
        settings(rekey, seed, 1),
        config.clone(),
        tls,
        Purpose::Tunnels,
        now,
    )
    .expect("the test configuration has QUIC's initial suite")
}

pub(crate) fn hub_config() -> HubConfig {
    HubConfig {
        addresses: vec![IpAddr::from([10, 200, 0, 1])],
        // As many as the program has.
        max_strangers: 4096,
        site_limit: None,
        classes: HubClasses::default(),
        udp_flows: 0,
    }
}

pub(crate) fn new_hub(authority: &Authority, rekey: Rekey, seed: u64, now: Instant) -> Hub {
    Hub::new(
        settings(rekey, seed, 2),
        hub_config(),
        authority.server(),
        now,
    )
    .expect("the test configuration has QUIC's initial suite")
}

pub(crate) fn settings(rekey: Rekey, seed: u64, salt: u8) -> Settings {
    let mut bytes = [salt; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    Settings {
        inner_mtu: 1400,
        issuer: Issuer::default(),
        seed: bytes,
        reset_key: [salt; 32],
        rekey,
    }
}

pub(crate) fn hub_address() -> SocketAddr {
    HUB.parse().expect("a valid address")
}

/// Another address of the hub, for worlds that have one.
pub(crate) fn other_address() -> SocketAddr {
    OTHER.parse().expect("a valid address")
}

/// The inner address of a site's edge.
pub(crate) fn inner_address(site: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(EDGE.to_bits() + site as u32)
}

/// What the hub calls a site.
pub(crate) fn site_name(site: usize) -> SiteId {
    match site {
        0 => "site".into(),
        _ => format!("site {site}").as_str().into(),
    }
}

/// The seed of a site's edge in a world of `seed`.
pub(crate) fn edge_seed(seed: u64, site: usize) -> u64 {
    seed ^ ((site as u64) << 48)
}

pub(crate) fn label(index: usize, tier: u8) -> LinkLabel {
    let name = char::from(b'a' + index as u8).to_string();
    LinkLabel {
        name,
        tier,
        weight: 1,
    }
}
