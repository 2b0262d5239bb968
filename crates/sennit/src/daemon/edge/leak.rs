//! What becomes of packets that belong into the tunnel while there is none, and what leaves beside
//! it, as the kernel says.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use sennit_linux::{
    DeviceName,
    netlink::{Family, Netlink, Route},
};

use crate::{
    config::{EdgeConfig, Leak, Prefix},
    status::{BesideStatus, LeakStatus},
};

/// What was seen is believed for so long.
const FRESH: Duration = Duration::from_secs(3);
/// The main table of a host that speaks BGP takes a second to read.
pub(super) const FRESH_ROUTES: Duration = Duration::from_secs(30);
/// So many routes are named; a person reads no more.
const NAMED: usize = 16;

/// Whether all that a config makes unreachable without a tunnel is so, whoever made it so; nothing
/// if it makes nothing unreachable, or the kernel cannot be asked.
pub(super) fn holds(config: &EdgeConfig) -> Option<bool> {
    let mut wanted = super::blocked(config);
    // Where the kernel has no IPv6, nothing leaves by it.
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    wanted.retain(|prefix| has_ipv6 || prefix.is_ipv4());
    if wanted.is_empty() {
        return None;
    }
    let found = sennit_linux::find_blocked(&config.device)
        .inspect_err(|error| tracing::debug!(%error, "cannot list what is unreachable"))
        .ok()?;
    Some(wanted.iter().all(|prefix| found.contains(prefix)))
}

/// How it stood when the kernel was asked last.
#[derive(Debug)]
pub(super) struct Hold {
    /// It was so already when this edge started.
    before_start: bool,
    in_force: Seen<Option<bool>>,
    beside: Seen<Vec<BesideStatus>>,
}

impl Hold {
    pub(super) fn new(before_start: bool) -> Self {
        Self {
            before_start,
            in_force: Seen::default(),
            beside: Seen::default(),
        }
    }

    /// What there is to say of it, if anything belongs into the tunnel.
    pub(super) fn status(&self, config: &EdgeConfig, now: Instant) -> Option<LeakStatus> {
        if config.routes.is_empty() {
            return None;
        }
        let in_force = match config.leak {
            Leak::Block => self.in_force.within(FRESH, now, || holds(config)),
            Leak::Allow => Some(false),
        };
        let mut beside = self
            .beside
            .within(FRESH_ROUTES, now, || find_beside(config));
        let beside_count = beside.len();
        beside.truncate(NAMED);
        Some(LeakStatus {
            policy: config.leak,
            in_force,
            held_before_start: self.before_start,
            routes: config.routes.iter().map(ToString::to_string).collect(),
            beside,
            beside_count,
        })
    }
}

/// What the kernel said last, and when: a status is asked for each second, and hosts may have many
/// routes.
#[derive(Debug)]
pub(super) struct Seen<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Seen<T> {
    /// What was seen, if that is not longer ago than `fresh`; otherwise what `look` sees now.
    pub(super) fn within(&self, fresh: Duration, now: Instant, look: impl FnOnce() -> T) -> T {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*seen {
            Some((at, what)) if now.saturating_duration_since(*at) < fresh => what.clone(),
            _ => seen.insert((now, look())).1.clone(),
        }
    }
}

/// What leaves beside the tunnel though `routes` holds it, the widest first; nothing if the kernel
/// cannot be asked.
fn find_beside(config: &EdgeConfig) -> Vec<BesideStatus> {
    let found = main_table().inspect_err(|error| tracing::debug!(%error, "cannot list routes"));
    let Ok((netlink, mut routes)) = found else {
        return Vec::new();
    };
    routes.retain(|route| is_beside(route, &config.routes));
    routes.sort_by_key(|route| (route.destination.prefix_len(), route.destination));
    let named = routes.iter().filter_map(|route| {
        Some(BesideStatus {
            prefix: route.destination.to_string(),
            // One that has gone meanwhile leads nowhere.
            interface: netlink.name_of(route.device)?,
        })
    });
    // The kernel adds a route for each address of the tunnel itself.
    let of_classes = super::class_devices(config).map(|(_, device)| device);
    let own: BTreeSet<&str> = of_classes
        .chain([&config.device])
        .map(DeviceName::as_str)
        .collect();
    named
        .filter(|route| !own.contains(route.interface.as_str()))
        .collect()
}

fn main_table() -> Result<(Netlink, Vec<Route>), sennit_linux::Error> {
    let mut netlink = Netlink::open()?;
    let mut routes = Vec::new();
    for family in Family::BOTH {
        routes.append(&mut netlink.main_routes(family)?);
    }
    Ok((netlink, routes))
}

/// Whether a route of the main table comes before the tunnel's, as the longest prefix wins. What
/// never leaves a network, as link-local addresses, belongs into no tunnel.
fn is_beside(route: &Route, ours: &[Prefix]) -> bool {
    let there = route.destination;
    let is_near = match there.addr() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_multicast() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast() || ip.is_loopback(),
    };
    let is_longer =
        |ours: &Prefix| ours.prefix_len() < there.prefix_len() && ours.contains(&there.addr());
    !route.is_ours() && !route.unreachable && !is_near && ours.iter().any(is_longer)
}

#[cfg(test)]
mod tests {
    use sennit_linux::netlink::TABLE_MAIN;

    use super::*;

    #[test]
    fn a_longer_route_of_another_leads_beside_the_tunnel_and_none_of_ours_does() {
        let ours: Vec<Prefix> = ["0.0.0.0/0", "fd5e::/16"]
            .map(|it| it.parse().unwrap())
            .into();
        let route = |to: &str| Route {
            protocol: 3,
            ..Route::via_device(to.parse().unwrap(), 7, TABLE_MAIN)
        };

        for beside in ["192.168.8.0/24", "0.0.0.0/1", "fd5e:1::/64"] {
            assert!(is_beside(&route(beside), &ours), "{beside}");
        }
        for inside in [
            "0.0.0.0/0",
            "fd5e::/16",
            "2001:db8::/64",
            "fe80::/64",
            "169.254.0.0/16",
        ] {
            assert!(!is_beside(&route(inside), &ours), "{inside}");
        }
        let own = Route::via_device("10.0.0.0/8".parse().unwrap(), 7, TABLE_MAIN);
        assert!(!is_beside(&own, &ours), "it is the tunnel's");
        let blocked = Route {
            unreachable: true,
            ..route("10.0.0.0/8")
        };
        assert!(!is_beside(&blocked, &ours));
    }
}
