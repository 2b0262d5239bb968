//! Sockets on links, which packet threads may not open themselves.

use std::{net::IpAddr, sync::Arc};

use sennit_linux::{
    DeviceName, Error, Footprint, Instance,
    udp::{LinkBinding, LinkSocket},
};

use crate::daemon::deputy::Deputy;

/// Who changes the host for the workers.
pub(super) type Host = Arc<Deputy<Footprint>>;

/// Opens a socket with a mark on an interface.
type Open = dyn Fn(u32, &str, IpAddr) -> Result<LinkSocket, Error> + Send + Sync;

/// What opens sockets.
#[derive(Clone)]
pub(super) struct Ground {
    /// Whose marks the packets bear.
    instance: Instance,
    open: Arc<Open>,
}

impl Ground {
    pub(super) fn new(device: &DeviceName, host: &Host) -> Self {
        let host = Arc::clone(host);
        let open = move |mark, device: &str, address| {
            let device = device.to_owned();
            host.ask(move |_| {
                LinkSocket::bind(&LinkBinding {
                    device: &device,
                    address,
                    mark: Some(mark),
                })
            })
        };
        Self {
            instance: Instance::of(device),
            open: Arc::new(open),
        }
    }

    /// One whose sockets keep to no interface, as for tests without rights.
    #[cfg(test)]
    pub(super) fn loose(device: &DeviceName) -> Self {
        Self::opened_by(device, |address| LinkSocket::listen((address, 0).into()))
    }

    #[cfg(test)]
    pub(super) fn opened_by(
        device: &DeviceName,
        open: impl Fn(IpAddr) -> Result<LinkSocket, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            instance: Instance::of(device),
            open: Arc::new(move |_, _, address| open(address)),
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
        (self.open)(self.mark(link)?, interface, address)
    }
}
