//! Which targets a client may have UDP proxied to, and where a named one is.
//!
//! A target is allowed if both the client and `[connect_udp]` may reach it. Some are never allowed:
//! what would lead back into the hub's own host, or to nobody in particular. Names are looked up on
//! threads that last as long as one look-up, and what they stand for is judged after that: a name
//! opens nothing that its address does not.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use sennit_engine::UdpRefusal;
use sennit_linux::is_public;
use sennit_packet::Prefix;

use crate::{
    config,
    lan::{self, Host},
    reach::{Place, Reach},
};

/// Look-ups at once, of one client and of all: a name server that does not answer holds each up
/// for some ten seconds.
const LOOK_UPS: [usize; 2] = [8, 64];
/// A look-up that fails after this long had no answer (RFC 9209 §2.3.1), for it the C library's
/// resolver waits for five seconds.
const NO_ANSWER: Duration = Duration::from_secs(4);

/// What is needed to judge a target.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Policy {
    /// What the client may reach.
    pub(in crate::daemon) client: Reach,
    /// What the config's section says that anybody may.
    pub(super) section: Reach,
    pub(super) ports: Vec<RangeInclusive<u16>>,
    pub(super) host: Host,
    /// What is routed to sites.
    pub(super) lans: Vec<Prefix>,
}

impl Policy {
    /// Those of the addresses that are allowed; if none is, why the first is not.
    pub(in crate::daemon) fn allowed(
        &self,
        addresses: impl IntoIterator<Item = IpAddr>,
        port: u16,
    ) -> Result<Vec<SocketAddr>, UdpRefusal> {
        if !self.ports.iter().any(|ports| ports.contains(&port)) {
            return Err(prohibited("this port is not allowed"));
        }
        let mut allowed = Vec::new();
        let mut objection = None;
        for address in addresses {
            let address = address.to_canonical();
            match self.objection(&self.client, address) {
                None => allowed.push(SocketAddr::new(address, port)),
                Some(why) => objection = objection.or(Some(why)),
            }
        }
        match objection {
            Some(why) if allowed.is_empty() => Err(prohibited(&why)),
            Some(_) | None => Ok(allowed),
        }
    }

    /// Whether a client that may reach this may have a flow to that target.
    pub(in crate::daemon) fn allows(&self, client: &Reach, target: SocketAddr) -> bool {
        let mut ports = self.ports.iter();
        ports.any(|ports| ports.contains(&target.port()))
            && self.objection(client, target.ip().to_canonical()).is_none()
    }

    fn objection(&self, client: &Reach, address: IpAddr) -> Option<String> {
        if self.host.addresses.contains(&address) {
            return Some("it is the hub itself".into());
        }
        let prefix = config::Prefix::from(address);
        if let Some(special) = lan::never(&prefix, &Host::default()) {
            return Some(special.to_string());
        }
        let mut pools = self.host.pool.iter();
        let of_site = pools.any(|pool| pool.contains(&address))
            || self.lans.iter().any(|lan| lan.contains(address));
        let reaches = |reach: &Reach| {
            reach.is_everything()
                || reach.prefixes().any(|it| it.contains(&address))
                || (of_site && reach.has(Place::Sites))
                || (!of_site && is_public(address) && reach.has(Place::Internet))
        };
        let allowed = [client, &self.section].into_iter().all(reaches);
        (!allowed).then(|| "the client may not reach it".into())
    }
}

/// How many look-ups each client has under way.
#[derive(Clone, Debug, Default)]
pub(super) struct LookUps(Arc<Mutex<BTreeMap<String, usize>>>);

impl LookUps {
    /// Looks a name up for a client, and does something with what comes of it, on another thread.
    pub(super) fn start(
        &self,
        client: &str,
        name: String,
        then: impl FnOnce(Result<Vec<IpAddr>, UdpRefusal>) + Send + 'static,
    ) -> Result<(), UdpRefusal> {
        let busy = || {
            refused(
                503,
                "proxy_internal_response",
                "too many names are looked up",
            )
        };
        let place = self.enter(client).ok_or_else(busy)?;
        let run = move || {
            sennit_linux::confine::keep_files_only();
            then(look_up(&name));
            drop(place);
        };
        let thread = thread::Builder::new().name("look-up".into()).spawn(run);
        thread.map(drop).map_err(|_| busy())
    }

    fn enter(&self, client: &str) -> Option<LookUp> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = running.get(client).copied().unwrap_or(0);
        let all: usize = running.values().sum();
        if own >= LOOK_UPS[0] || all >= LOOK_UPS[1] {
            return None;
        }
        running.insert(client.to_owned(), own + 1);
        Some(LookUp {
            all: self.clone(),
            client: client.to_owned(),
        })
    }
}

/// One look-up; it is over when this is dropped.
#[derive(Debug)]
struct LookUp {
    all: LookUps,
    client: String,
}

impl Drop for LookUp {
    fn drop(&mut self) {
        let mut running = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = running.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                running.remove(&self.client);
            }
        }
    }
}

fn look_up(name: &str) -> Result<Vec<IpAddr>, UdpRefusal> {
    let began = Instant::now();
    let found: io::Result<Vec<IpAddr>> = (name, 0)
        .to_socket_addrs()
        .map(|found| found.map(|it| it.ip()).collect());
    match found {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Err(_) if began.elapsed() >= NO_ANSWER => Err(refused(
            504,
            "dns_timeout",
            "the hub's name servers do not answer",
        )),
        Ok(_) | Err(_) => Err(refused(502, "dns_error", "the name has no address")),
    }
}

/// A refusal of a target that nobody, or not this client, may talk to.
pub(in crate::daemon) fn prohibited(reason: &str) -> UdpRefusal {
    refused(403, "destination_ip_prohibited", reason)
}

/// A refusal with an error type of RFC 9209 §2.3.
pub(in crate::daemon) fn refused(status: u16, error: &'static str, reason: &str) -> UdpRefusal {
    UdpRefusal {
        status,
        error: Some(error),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn policy(client: &str, section: &str) -> Policy {
        let lans: Vec<config::Prefix> = vec!["192.168.7.0/24".parse().unwrap()];
        let around = |net: config::Prefix| Prefix::around(net.network(), net.prefix_len());
        let [client, section] = [client, section].map(|words| words.parse().unwrap());
        Policy {
            client,
            section,
            ports: vec![53..=53, 443..=500],
            host: Host {
                pool: vec!["10.200.0.0/16".parse().unwrap()],
                addresses: ["203.0.113.10", "10.200.0.1", "2001:db8:1::10"]
                    .map(|it| it.parse().unwrap())
                    .to_vec(),
            },
            lans: lans.into_iter().map(around).collect(),
        }
    }

    fn allows(policy: &Policy, address: &str) -> bool {
        policy.allowed([address.parse().unwrap()], 443).is_ok()
    }

    #[test]
    fn what_leads_back_to_the_hub_or_to_nobody_is_never_a_target() {
        let open = policy("everything 127.0.0.0/8 203.0.113.10/32", "everything");
        for address in [
            "203.0.113.10",
            "10.200.0.1",
            "2001:db8:1::10",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::",
            "0.0.0.0",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.251",
            "ff02::1",
            "255.255.255.255",
            "::ffff:127.0.0.1",
            "::ffff:203.0.113.10",
            "64:ff9b::7f00:1",
        ] {
            assert!(!allows(&open, address), "{address}");
        }
        assert!(allows(&open, "198.51.100.1") && allows(&open, "10.9.0.1"));
    }

    #[test]
    fn a_target_must_be_in_reach_of_the_client_and_of_the_section() {
        for (client, section, address, allowed) in [
            ("internet", "internet", "198.51.100.1", true),
            ("internet", "internet", "2600::1", true),
            ("internet", "internet", "10.9.0.1", false),
            ("internet", "internet", "198.18.0.1", false),
            ("internet", "internet", "192.0.0.9", false),
            ("internet", "internet", "2002:c0a8:1::1", false),
            ("internet", "internet", "64:ff9b:1::1", false),
            ("internet", "internet", "fec0::1", false),
            ("internet", "internet", "4000::1", false),
            ("internet fec0::/10", "everything", "fec0::1", true),
            ("everything", "internet", "10.9.0.1", false),
            ("internet", "everything", "10.9.0.1", false),
            ("everything", "internet 10.9.0.0/24", "10.9.0.1", true),
            ("everything", "internet", "10.200.0.7", false),
            ("everything", "internet", "192.168.7.9", false),
            ("everything", "sites", "192.168.7.9", true),
            ("sites", "everything", "10.200.0.7", true),
            ("sites", "everything", "198.51.100.1", false),
            ("hub", "everything", "198.51.100.1", false),
            ("", "everything", "198.51.100.1", false),
        ] {
            let policy = policy(client, section);
            assert_eq!(
                allows(&policy, address),
                allowed,
                "{client}; {section}; {address}"
            );
        }
    }

    #[test]
    fn of_several_addresses_the_allowed_ones_are_left() {
        let policy = policy("internet", "internet");
        let found = ["127.0.0.1", "198.51.100.1", "10.0.0.1"];

        let allowed = policy.allowed(found.map(|it| it.parse().unwrap()), 53);

        assert_eq!(allowed, Ok(vec!["198.51.100.1:53".parse().unwrap()]));
        let rebound = policy.allowed(["127.0.0.1".parse().unwrap()], 53);
        let refusal = rebound.unwrap_err();
        let said = (refusal.status, refusal.error);
        assert_eq!(said, (403, Some("destination_ip_prohibited")));
    }

    #[test]
    fn a_port_must_be_allowed() {
        let policy = policy("internet", "internet");
        for (port, allowed) in [
            (53, true),
            (443, true),
            (500, true),
            (54, false),
            (501, false),
        ] {
            let target = policy.allowed(["198.51.100.1".parse().unwrap()], port);
            assert_eq!(target.is_ok(), allowed, "{port}");
        }
    }

    #[test]
    fn one_client_has_only_so_many_look_ups_and_leaves_places_to_others() {
        let look_ups = LookUps::default();
        let mut held: Vec<LookUp> = (0..LOOK_UPS[0])
            .map(|_| look_ups.enter("greedy").unwrap())
            .collect();

        assert!(look_ups.enter("greedy").is_none());
        assert!(look_ups.enter("other").is_some());
        held.pop();
        assert!(look_ups.enter("greedy").is_some());
        drop(held);
        assert!(look_ups.0.lock().unwrap().is_empty());
    }

    #[test]
    fn an_address_is_its_own_name_and_a_name_of_nobody_is_told() {
        let (sender, found) = mpsc::channel();
        let look_ups = LookUps::default();
        for name in ["192.0.2.1", "name.invalid"] {
            let sender = sender.clone();
            let then = move |found| sender.send((name, found)).unwrap();
            look_ups.start("phone", name.into(), then).unwrap();
        }
        drop(sender);

        let mut found: BTreeMap<_, _> = found.iter().collect();

        assert_eq!(
            found.remove("192.0.2.1"),
            Some(Ok(vec!["192.0.2.1".parse().unwrap()]))
        );
        let refusal = found.remove("name.invalid").unwrap().unwrap_err();
        assert!(matches!(refusal.status, 502 | 504), "{refusal:?}");
    }
}
