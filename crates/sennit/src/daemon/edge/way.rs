//! By which device, addresses and mark packets leave by a link.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use sennit_engine::SocketId;
use sennit_linux::udp::LinkBinding;

/// How packets leave by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) socket: SocketId,
    pub(super) device: String,
    /// IPv4 and IPv6.
    pub(super) sources: [Option<IpAddr>; 2],
    pub(super) mark: Option<u32>,
}

impl Way {
    /// What a socket for packets to `to` has to be bound to, if the link has that family.
    pub(super) fn binding(&self, to: IpAddr) -> Option<LinkBinding<'_>> {
        Some(LinkBinding {
            device: &self.device,
            address: self.sources[usize::from(to.is_ipv6())]?,
            mark: self.mark,
        })
    }
}

/// The addresses of the hub, for each link.
pub(super) type Resolved = BTreeMap<SocketId, Vec<SocketAddr>>;
