//! Sockets on links, which packet threads may not open themselves.

use std::{net::IpAddr, sync::Arc};

use sennit_linux::{
    DeviceName, Error, Footprint, Instance,
    udp::{LinkBinding, LinkSocket},
};

use crate::daemon::deputy::Deputy;

/// Who changes the host for the workers.
pub(super) type Host = Arc<Deputy<Footprint>>;

/// What opens sockets.
#[derive(Clone)]
pub(super) struct Ground {
    /// Whose marks the packets bear.
    instance: Instance,
    host: Host,
}

impl Ground {
    pub(super) fn new(device: &DeviceName, host: &Host) -> Self {
        Self {
            instance: Instance::of(device),
            host: Arc::clone(host),
        }
    }

    /// The mark on packets of the link with this number.
    pub(super) fn mark(&self, link: usize) -> Result<u32, Error> {
        self.instance.link_mark(link)
    }

    /// A socket of that link on this interface, with a port of the kernel's choice.
    pub(super) fn open(
        &self,
        link: usize,
        interface: &str,
        address: IpAddr,
    ) -> Result<LinkSocket, Error> {
        let mark = Some(self.mark(link)?);
        let device = interface.to_owned();
        self.host.ask(move |_| {
            let device = device.as_str();
            LinkSocket::bind(&LinkBinding {
                device,
                address,
                mark,
            })
        })
    }
}
