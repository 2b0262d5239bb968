//! What there is only one of: the host's addresses and routes, the watch over its interfaces, and
//! who we are.

use std::{
    error::Error,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use ipnet::IpNet;
use sennit_engine::Edge;
use sennit_linux::{Footprint, TunnelRoute, netlink::Family};
use sennit_packet::Prefix;

use super::{
    Devices,
    dns::Dns,
    far_side::{self, FarSide, Proofs},
    ground::Host,
    kernel,
    letter::TakesNot,
    names::Names,
    outlook::Outlook,
    running::Running,
    upkeep::Upkeep,
    watch::Watch,
};
use crate::{
    config::{self, Leak},
    date,
    exit::Failure,
    identity::{EdgeIdentity, IdentityError},
    journal::{Event, Journal},
    lan,
    site::SiteName,
    status::CertificateStatus,
};

/// Parts of the LAN of which the log tells that the hub has refused them, at a time; the status has
/// all.
const LAN_TOLD: usize = 8;
/// A failed enrolment is repeated after this.
const ENROL_AGAIN: Duration = Duration::from_secs(5);

/// Belongs to the first worker.
pub(super) struct Lead {
    pub(super) host: Host,
    pub(super) watch: Watch,
    far_side: FarSide,
    /// Why the certificate is not renewed although it is old, as was found last.
    pub(super) not_renewed: Option<String>,
    /// When to start the tunnels, or to enrol, once more.
    enrol_at: Option<Instant>,
    pub(super) outlook: Outlook,
    pub(super) upkeep: Upkeep,
    devices: Devices,
    /// Ours in the tunnel.
    pub(super) addresses: Vec<Prefix>,
    /// What the hub does not route of the LAN, as it said last.
    lan_refused: Vec<(Prefix, String)>,
    /// The hub's in the tunnel, as it says.
    hub_says: Vec<IpAddr>,
    /// Those of them that are routed there.
    pub(super) hub_inside: Vec<IpAddr>,
    running: Arc<Running>,
    journal: Journal,
    dns: Dns,
}

impl Lead {
    #[expect(clippy::too_many_arguments, reason = "all of it makes one lead")]
    pub(super) fn new(
        host: Host,
        watch: Watch,
        far_side: FarSide,
        devices: Devices,
        names: Names,
        running: Arc<Running>,
        journal: Journal,
        dns: Dns,
        now: Instant,
    ) -> Result<Self, Failure> {
        let mut lead = Self {
            host,
            watch,
            outlook: Outlook::new(names, far_side::addresses(&running.config), now),
            far_side,
            not_renewed: None,
            enrol_at: None,
            upkeep: Upkeep::new(journal.clone()),
            devices,
            addresses: Vec::new(),
            lan_refused: Vec::new(),
            hub_says: Vec::new(),
            hub_inside: Vec::new(),
            dns,
            running,
            journal,
        };
        lead.forward_lan()?;
        lead.loosen_class_devices()?;
        Ok(lead)
    }

    /// Answers come out of the device of a class from where the main table leads to another one.
    fn loosen_class_devices(&mut self) -> Result<(), sennit_linux::Error> {
        for class in &self.running.config.classes {
            let kernel = class.matches.iter().any(config::Match::is_kernel);
            if let Some(device) = class.device.as_ref().filter(|_| kernel) {
                let device = device.clone();
                self.host
                    .ask(move |host| host.loosen_reverse_path(device.as_str()))?;
            }
        }
        Ok(())
    }

    /// Lets the host forward what comes from and goes to the LAN.
    fn forward_lan(&mut self) -> Result<(), sennit_linux::Error> {
        for family in [Family::V4, Family::V6] {
            let ours = |net: &config::Prefix| Family::of(net.addr()) == family;
            if self.running.config.lan.iter().any(ours) {
                self.host.ask(move |host| host.forward(family))?;
            }
        }
        Ok(())
    }

    /// Goes on with another config.
    pub(super) fn change(&mut self, running: &Arc<Running>, now: Instant) {
        self.running = Arc::clone(running);
        self.watch.change(running, &self.host);
        self.outlook.set_hubs(&running.config.hub);
        let blocked = super::blocked(&running.config);
        let blocked = self.host.ask(move |host| host.set_blocked(&blocked));
        let forwards = self.forward_lan().and(self.loosen_class_devices());
        if let Err(error) = forwards.and(blocked) {
            tracing::error!(error = &error as &dyn Error, "cannot change the host over");
            self.upkeep.owe(now);
        }
        if !self.addresses.is_empty() {
            self.dns.set(&running.config.dns);
        }
        self.route(now);
    }

    pub(super) fn site(&self) -> SiteName {
        self.far_side.site()
    }

    /// Goes on as who was invited; whether that is another than before.
    pub(super) fn take_up(&mut self, identity: EdgeIdentity) -> Result<bool, TakesNot> {
        let FarSide::Hub(before) = &self.far_side else {
            return Err(TakesNot::Proxied);
        };
        if identity.is_same(before) {
            return Ok(false);
        }
        let named = identity.hubs.iter();
        let mut named = named.filter(|hub| self.running.config.hub.contains(hub));
        if identity.authority != before.authority && named.next().is_none() {
            return Err(TakesNot::OtherHub);
        }
        tracing::info!(site = %identity.site, "this edge has joined again: starting over");
        self.be(identity);
        Ok(true)
    }

    /// Takes the certificate that was received in place of an older one; nothing if it is known, or
    /// if this edge is another by now.
    pub(super) fn renew(&mut self, identity: EdgeIdentity) -> Option<Proofs> {
        let FarSide::Hub(before) = &self.far_side else {
            return None;
        };
        let is_known = identity.is_same(before);
        if is_known || !before.is_enrolled() || !identity.has_key_of(before) {
            return None;
        }
        let other_authority = identity.authority != before.authority;
        tracing::info!(site = %identity.site, other_authority, "certificate renewed");
        self.be(identity);
        let proofs = self.far_side.proofs();
        proofs
            .inspect_err(|failure| tracing::error!(%failure, "cannot use the fresh certificate"))
            .ok()
    }

    fn be(&mut self, identity: EdgeIdentity) {
        if identity.is_enrolled() {
            let site = identity.site.to_string();
            self.journal.note(Event::CertificateReceived { site });
            warn_of_clock(&identity);
        }
        self.far_side = FarSide::Hub(Box::new(identity));
        self.not_renewed = None;
    }

    pub(super) fn certificate(&self) -> Option<CertificateStatus> {
        let FarSide::Hub(identity) = &self.far_side else {
            return None;
        };
        let (_, expires) = identity.validity()?;
        let left = match expires.duration_since(SystemTime::now()) {
            Ok(left) => left.as_secs_f64(),
            Err(past) => -past.duration().as_secs_f64(),
        };
        Some(CertificateStatus {
            expires: date::seconds(expires),
            left_seconds: left,
            not_renewed: self.not_renewed.clone(),
        })
    }

    fn certificate_note(&self) -> Option<String> {
        let why = self.not_renewed.as_ref()?;
        let expires = self.certificate()?.expires;
        Some(format!(
            "the certificate is good until {expires} and not renewed yet: {why}"
        ))
    }

    /// Takes the certificate that the hub has answered with; whether there is one now.
    pub(super) fn handle_enrolled(&mut self, answer: &[u8], now: Instant) -> bool {
        let FarSide::Hub(identity) = &mut self.far_side else {
            return false;
        };
        match identity.accept(answer) {
            Ok(()) => {
                tracing::info!(site = %identity.site, "certificate received");
                let site = identity.site.to_string();
                self.journal.note(Event::CertificateReceived { site });
                warn_of_clock(identity);
                true
            }
            Err(IdentityError::Replaced { state }) => {
                // Whoever joined meanwhile is who this edge is; a file that is half there is read
                // again.
                if let Ok(joined) = EdgeIdentity::load(&state) {
                    self.be(joined);
                }
                self.enrol_at = Some(now + ENROL_AGAIN);
                false
            }
            Err(error) => {
                tracing::error!(%error, "cannot keep the certificate; trying again");
                self.enrol_at = Some(now + ENROL_AGAIN);
                false
            }
        }
    }

    /// Whether to start over now, as something failed a while ago.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.enrol_at.is_some_and(|at| at <= now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let host = self.upkeep.poll_timeout();
        let links = self.watch.poll_timeout();
        let all = [self.enrol_at, self.outlook.poll_timeout(), host, links];
        all.into_iter().flatten().min()
    }

    /// New engines for all workers, with the present identity.
    pub(super) fn engines(&mut self, workers: usize, now: Instant) -> Option<Vec<Edge>> {
        self.enrol_at = None;
        match self.far_side.engines(&self.running, workers, now) {
            Ok(engines) => Some(engines),
            Err(failure) => {
                tracing::error!(%failure, "cannot start the tunnels; trying again");
                self.enrol_at = Some(now + ENROL_AGAIN);
                None
            }
        }
    }

    /// Gives the TUN devices their addresses and routes, unless they were given them: each worker
    /// hears of them from the hub.
    pub(super) fn handle_addresses(&mut self, addresses: Vec<Prefix>, now: Instant) {
        if self.addresses == addresses {
            return;
        }
        let nets = alone(&addresses);
        self.addresses = addresses;
        tracing::info!(addresses = ?nets, "addresses assigned");
        let addresses = nets.iter().map(IpNet::addr).collect();
        self.journal.note(Event::AddressesAssigned { addresses });
        for device in self.devices.all() {
            let nets = nets.clone();
            let set = self.host.ask(move |host| host.set_addresses(device, &nets));
            if let Err(error) = set {
                tracing::error!(error = &error as &dyn Error, "cannot set the addresses");
                self.upkeep.owe(now);
            }
        }
        self.route(now);
        self.dns.set(&self.running.config.dns);
        self.tell_missing_families();
    }

    /// Tells what the hub does not route of the LAN, if that is news: each class hears it.
    pub(super) fn handle_lan_refused(&mut self, refused: Vec<(Prefix, String)>) {
        let known = std::mem::replace(&mut self.lan_refused, refused);
        let new = self.lan_refused.iter().filter(|it| !known.contains(it));
        for (prefix, reason) in new.take(LAN_TOLD) {
            tracing::warn!(%prefix, reason, "the hub does not route this part of the LAN");
            self.journal.note(Event::LanRefused {
                site: None,
                prefix: prefix.to_string(),
                reason: reason.clone(),
            });
        }
    }

    /// Routes the hub's own addresses into the tunnel, as far as they can be its own.
    pub(super) fn handle_hub_inside(&mut self, addresses: Vec<IpAddr>, now: Instant) {
        if self.hub_says != addresses {
            self.hub_says = addresses;
            self.route(now);
        }
    }

    /// Finds out which of the addresses that the hub says it has are followed.
    fn find_hub_inside(&mut self) {
        self.hub_inside.clear();
        if self.hub_says.is_empty() {
            return;
        }
        match self.host.ask(Footprint::networks) {
            Ok(networks) => {
                let routes = &self.running.config.routes;
                let own = |ip: &&IpAddr| is_hubs_own(**ip, routes, &networks);
                self.hub_inside = self.hub_says.iter().filter(own).copied().collect();
                if self.hub_inside != self.hub_says {
                    let addresses = &self.hub_says;
                    tracing::warn!(
                        ?addresses,
                        "the hub says that it has addresses which are not routed into the tunnel: \
                         they are public, or in a network of this host; `routes` may name them"
                    );
                }
            }
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::error!(error, "cannot list the networks of this host");
            }
        }
    }

    /// Routes into the tunnel what belongs there, as far as we have an address of its family.
    fn route(&mut self, now: Instant) {
        self.find_hub_inside();
        let source = |of: IpAddr| {
            let mut ours = self.addresses.iter().map(Prefix::first);
            ours.find(|address| address.is_ipv4() == of.is_ipv4())
        };
        let wanted = self
            .running
            .config
            .routes
            .iter()
            .copied()
            .map(far_side::prefix);
        let hub = self.hub_inside.iter().map(|&ip| Prefix::around(ip, 128));
        let mut prefixes: Vec<Prefix> = wanted.chain(hub).collect();
        prefixes.sort();
        prefixes.dedup();
        let routes = prefixes.into_iter().filter_map(|prefix| {
            Some(TunnelRoute {
                prefix,
                device: self.devices.main,
                source: Some(source(prefix.first())?),
            })
        });
        let classes = kernel::routes(&self.running, &self.devices.classes);
        let routes = routes.collect();
        let routed = self
            .host
            .ask(move |host| host.route_into_classes(routes, classes));
        if let Err(error) = routed {
            tracing::error!(error = &error as &dyn Error, "cannot route into the tunnel");
            self.upkeep.owe(now);
        }
    }

    /// Puts back what others have taken from the host, if it is time to look.
    pub(super) fn look_after_host(&mut self, now: Instant) {
        self.upkeep.handle_timeout(&self.host, now);
    }

    /// What an operator should know beside the state of links and tunnels.
    pub(super) fn notes(&self) -> Vec<String> {
        self.family_notes()
            .into_iter()
            .chain(self.upkeep.note_of_failure())
            .chain(self.dns.note())
            .chain(self.certificate_note())
            .collect()
    }

    fn family_notes(&self) -> Vec<String> {
        let fate = match self.running.config.leak {
            Leak::Block => "what is routed into the tunnel is unreachable",
            Leak::Allow => "what belongs into the tunnel leaves beside it, in the clear",
        };
        let missing = self.missing_families();
        let note = |family| format!("the hub has assigned no {family} address: {fate}");
        missing.map(note).collect()
    }

    /// Families that belong into the tunnel, and of which the hub has assigned no address.
    fn missing_families(&self) -> impl Iterator<Item = &'static str> {
        let families = [("IPv4", true), ("IPv6", false)].into_iter();
        let missing = families.filter(|&(_, v4)| {
            let mut routes = self.running.config.routes.iter();
            let wanted = routes.any(|net| net.addr().is_ipv4() == v4);
            wanted && !self.addresses.iter().any(|ours| ours.is_ipv4() == v4)
        });
        missing
            .map(|(name, _)| name)
            .filter(|_| !self.addresses.is_empty())
    }

    fn tell_missing_families(&self) {
        for note in self.family_notes() {
            tracing::warn!("{note}");
        }
    }
}

/// The first address of each prefix: for a network the kernel would make a route, of which the
/// config says nothing.
fn alone(prefixes: &[Prefix]) -> Vec<IpNet> {
    prefixes.iter().map(|it| it.first().into()).collect()
}

/// Whether an address may be one of the hub. A hostile hub must not get what is meant for others:
/// beyond what the config routes into the tunnel, it has private addresses, and none that this host
/// reaches more directly.
fn is_hubs_own(ip: IpAddr, routes: &[IpNet], networks: &[IpNet]) -> bool {
    let longest = |all: &[IpNet]| {
        let around = all.iter().filter(|net| net.contains(&ip));
        around.map(IpNet::prefix_len).max()
    };
    let (wanted, attached) = (longest(routes), longest(networks));
    wanted >= attached && (wanted.is_some() || lan::is_private(&ip.into()))
}

/// Says so if the hub's clock and ours are far apart: certificates and tokens go by them.
fn warn_of_clock(identity: &EdgeIdentity) {
    let here = SystemTime::now();
    if let Some(hub) = identity.other_clock(here) {
        tracing::warn!(
            here = date::seconds(here),
            hub = date::seconds(hub),
            "the clock of this host and the hub's are far apart: set the one that is wrong"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assigned_network_is_one_address_for_which_the_kernel_makes_no_route() {
        let assigned = ["8.0.0.0/8", "10.200.0.2/32", "2001:db8::/32"];
        let assigned = assigned.map(|it| it.parse().unwrap());
        let nets = alone(&assigned);
        let shown: Vec<String> = nets.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["8.0.0.0/32", "10.200.0.2/32", "2001:db8::/128"]);
    }

    #[test]
    fn a_hub_gets_nothing_by_saying_that_it_has_an_address_that_others_have() {
        let nets = |all: &[&str]| -> Vec<IpNet> {
            let parsed = all.iter().map(|it| it.parse().unwrap());
            parsed.collect()
        };
        let networks = nets(&[
            "192.168.1.0/24",
            "100.70.0.0/16",
            "fd00:1::/64",
            "127.0.0.0/8",
        ]);
        let own =
            |ip: &str, routes: &[&str]| is_hubs_own(ip.parse().unwrap(), &nets(routes), &networks);
        let (split, all) = (&["10.9.0.0/16"][..], &["0.0.0.0/0", "::/0"][..]);

        for inside in ["10.200.0.1", "fd5e:1::1"] {
            assert!(own(inside, split) && own(inside, all), "{inside}");
        }
        for elsewhere in ["8.8.8.8", "2001:db8::1"] {
            assert!(!own(elsewhere, split) && own(elsewhere, all), "{elsewhere}");
        }
        for here in ["192.168.1.1", "100.70.3.4", "fd00:1::1", "127.0.0.1"] {
            assert!(!own(here, split) && !own(here, all), "{here}");
        }
        assert!(
            own("192.168.1.1", &["192.168.1.0/24"]),
            "the config says so"
        );
    }
}
