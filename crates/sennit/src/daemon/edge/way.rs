//! By which device, addresses and mark packets leave by a link.

use std::{collections::BTreeMap, net::IpAddr};

use sennit_engine::{FoundHub, SocketId};
use sennit_linux::{
    DeviceName, Instance, Passage,
    netlink::{Family, Interface, LinkState, Netlink},
    udp::LinkBinding,
};

use crate::config;

/// How packets leave by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) socket: SocketId,
    pub(super) device: String,
    /// The number of that interface.
    pub(super) index: u32,
    /// IPv4 and IPv6.
    pub(super) sources: [Option<IpAddr>; 2],
    pub(super) mark: Option<u32>,
}

impl Way {
    /// One for each of these links that has an address now, past what an edge with this device
    /// routes into its tunnel.
    pub(super) fn all<'a>(
        device: &DeviceName,
        links: impl Iterator<Item = (usize, &'a config::Link)>,
    ) -> Vec<Self> {
        let Ok(mut netlink) = Netlink::open() else {
            return Vec::new();
        };
        let instance = Instance::of(device);
        let ways = links.filter_map(|(index, link)| {
            let interface = Interface::lookup(&mut netlink, &link.interface).ok()?;
            let sources = [Family::V4, Family::V6].map(|family| interface.source(family));
            let is_usable = interface.state == LinkState::Up && sources.iter().any(Option::is_some);
            is_usable.then(|| Self {
                socket: SocketId(u32::try_from(index).unwrap_or(u32::MAX)),
                device: link.interface.clone(),
                index: interface.index,
                sources,
                mark: instance.link_mark(index).ok(),
            })
        });
        ways.collect()
    }

    /// The ways of whoever asks beside an edge, which may not run; while the passage is held, also
    /// past what is held back for that edge.
    pub(super) fn all_of_host(
        device: &DeviceName,
        links: &[config::Link],
    ) -> (Vec<Self>, Option<Passage>) {
        let mut ways = Self::all(device, links.iter().enumerate());
        let passage = passage(device, links);
        if let Some(passage) = &passage {
            for way in &mut ways {
                way.mark = passage.mark(way.socket.0 as usize).ok();
            }
        }
        (ways, passage)
    }

    /// What a socket for packets to `to` has to be bound to, if the link has that family.
    pub(super) fn binding(&self, to: IpAddr) -> Option<LinkBinding<'_>> {
        Some(LinkBinding {
            device: &self.device,
            address: self.sources[usize::from(to.is_ipv6())]?,
            mark: self.mark,
        })
    }
}

/// A way past what is held back for an edge that does not run.
pub(super) fn passage(device: &DeviceName, links: &[config::Link]) -> Option<Passage> {
    let mut netlink = Netlink::open().ok()?;
    let interfaces = links
        .iter()
        .map(|it| Interface::lookup(&mut netlink, &it.interface).ok());
    let interfaces: Vec<Option<Interface>> = interfaces.collect();
    Passage::open(device, interfaces).unwrap_or_else(|error| {
        tracing::debug!(%error, "what is held back for the edge is held back from this too");
        None
    })
}

/// The addresses of the hub's names, for each link.
pub(super) type Resolved = BTreeMap<SocketId, Vec<FoundHub>>;
