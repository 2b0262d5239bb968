//! Which inner addresses sites have: what `sennit hub leases`, the API and the page show.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    config::{Pool, Prefix},
    date,
    status::LeasedPool,
    store::SiteRecord,
};

/// More addresses than this are not counted.
const COUNTED: u128 = 1 << 32;

/// The addresses that sites have of a hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Leases {
    /// `sennit.leases/1`.
    pub schema: &'static str,
    /// Where they are taken from; empty if that is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<LeasedPool>,
    pub leases: Vec<SiteLease>,
}

/// The addresses of a site, which it keeps until it is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SiteLease {
    pub site: String,
    pub addresses: Vec<IpAddr>,
    /// When the site was last here, to the minute; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
}

impl Leases {
    pub const SCHEMA: &str = "sennit.leases/1";

    /// Those of these sites, whose addresses are taken from this pool.
    pub fn of(sites: &[SiteRecord], pool: Option<&Pool>) -> Self {
        let lease = |site: &SiteRecord| SiteLease {
            site: site.name.to_string(),
            addresses: addresses(site).collect(),
            last_seen: site.seen.map(date::seconds),
        };
        let leases = sites.iter().map(lease);
        let leases: Vec<SiteLease> = leases.filter(|it| !it.addresses.is_empty()).collect();
        let pools = pool.map_or_else(Vec::new, |pool| {
            let v4 = pool.v4.map(|it| leased(Prefix::V4(it), &leases));
            let v6 = pool.v6.map(|it| leased(Prefix::V6(it), &leases));
            v4.into_iter().chain(v6).collect()
        });
        Self {
            schema: Self::SCHEMA,
            pools,
            leases,
        }
    }
}

fn leased(prefix: Prefix, leases: &[SiteLease]) -> LeasedPool {
    let addresses = leases.iter().flat_map(|lease| &lease.addresses);
    let leased = addresses
        .filter(|&address| prefix.contains(address))
        .count();
    // The network, the hub and, of IPv4, the broadcast address are nobody's.
    let (bits, taken) = match prefix {
        Prefix::V4(v4) => (32 - v4.prefix_len(), 3),
        Prefix::V6(v6) => (128 - v6.prefix_len(), 2),
    };
    let all = 1_u128.checked_shl(bits.into()).unwrap_or(u128::MAX);
    let left = all.saturating_sub(taken + leased as u128);
    let free = u64::try_from(left).ok().filter(|_| left < COUNTED);
    LeasedPool {
        prefix: prefix.to_string(),
        leased,
        free,
    }
}

fn addresses(site: &SiteRecord) -> impl Iterator<Item = IpAddr> {
    let v4 = site.v4.map(IpAddr::V4);
    v4.into_iter().chain(site.v6.map(IpAddr::V6))
}
