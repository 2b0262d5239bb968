//! What may be asked of who keeps a footprint, in this process or another.

use ipnet::IpNet;
use sennit_packet::Prefix;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{ClassRoute, Error, Rules, TunnelRoute, error::Doing, netlink::Family};

/// One call of a method of [`super::Footprint`], which says what it does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    HoldBlock,
    SetBlocked(#[serde(with = "crate::wire::prefixes")] Vec<Prefix>),
    RouteLink {
        link: usize,
        interface: String,
    },
    UnrouteLink(usize),
    Route {
        routes: Vec<TunnelRoute>,
        classes: Vec<ClassRoute>,
    },
    KeepOutside,
    RefreshRoutes,
    Networks,
    SetAddresses {
        index: u32,
        addresses: Vec<IpNet>,
    },
    Forward(Family),
    SetRules(Rules),
    RestoreRules,
    SilenceRedirects,
    LoosenReversePath(String),
    End(End),
}

/// How a footprint ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// Nothing stays.
    Remove,
    /// What is blocked stays so, and the nftables table stays.
    KeepBlock,
    /// The kernel's switches stay as well.
    Restart,
    /// The daemon has failed.
    Drop,
}

impl Order {
    /// Interface indices that it is about.
    pub(crate) fn devices(&self) -> Vec<u32> {
        match self {
            Self::SetAddresses { index, .. } => vec![*index],
            Self::Route { routes, classes } => {
                let routes = routes.iter().map(|it| it.device);
                routes.chain(classes.iter().map(|it| it.device)).collect()
            }
            _ => Vec::new(),
        }
    }
}

pub(super) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, Error> {
    serde_json::from_value(answer).doing(|| "read an answer".into())
}
