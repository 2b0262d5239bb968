//! What can go wrong while the host is being set up, and what to do about it.

use std::{io, net::SocketAddr};

use serde::{Deserialize, Serialize};

/// A set-up step that the host refused. The hot path has errors of its own ([`crate::SendError`]).
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    /// The process may not configure the network.
    #[error(
        "no permission to configure the network: run as root or with the capability CAP_NET_ADMIN"
    )]
    NotPrivileged,
    /// The kernel has no TUN driver, or the container hides it.
    #[error(
        "/dev/net/tun is missing: load the module (modprobe tun) or give the container this device"
    )]
    NoTunDriver,
    /// Somebody else holds the TUN device.
    #[error(
        "device {0} is in use by another process: stop it, or set another `device` in the config"
    )]
    DeviceBusy(String),
    /// The name belongs to an interface of another kind, or to a TUN device made otherwise.
    #[error(
        "{0} exists and is not a TUN device of this kind: remove it, or set another `device` in the config"
    )]
    NotOurKind(String),
    /// Not a name that a device may have.
    #[error("{0:?} cannot be a device name: 1 to 15 letters, digits, '-', '_' or '.' are possible")]
    BadDeviceName(String),
    /// Another running daemon has a device name that gives the same numbers.
    #[error(
        "a running daemon's device shares its routing tables with {0}: set another `device` in the config"
    )]
    InstanceTaken(String),
    /// More links than an instance has tables for.
    #[error("link number {link} is beyond the {most} links of one edge")]
    TooManyLinks { link: usize, most: u8 },
    /// No interface of this name in this network namespace.
    #[error("interface {0} does not exist")]
    NoInterface(String),
    /// The port is taken.
    #[error("{0} is already in use by another process")]
    AddressInUse(SocketAddr),
    /// The interface does not have the address that a socket was to be bound to.
    #[error("{device} does not have the address {address}")]
    AddressMissing {
        device: String,
        address: std::net::IpAddr,
    },
    /// The `nft` command is missing.
    #[error("the command nft is missing: install the package nftables")]
    NftMissing,
    /// The kernel or `nft` refused our rules.
    #[error("nftables refused the rules: {0}")]
    NftRefused(String),
    /// The `nft` command is there, and could not be run to its end.
    #[error("the command nft could not be run: {0}")]
    NftNotRun(String),
    /// Anything else the system refused.
    #[error("failed to {doing}")]
    Os {
        doing: String,
        #[source]
        #[serde(with = "crate::wire::io_error")]
        source: io::Error,
    },
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Os { source, .. } => source,
            error => Self::other(error),
        }
    }
}

/// Adds what we were doing to a system error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| {
            let source: io::Error = error.into();
            Error::Os {
                doing: what(),
                source,
            }
        })
    }
}
