//! The topology: a LAN host, an edge, a hub and a server, with links in the middle.
//!
//! ```text
//!  lan ── lan0 ─ edge ═╦═ wan-a ═ wires ═ wan-a ═╦═ hub ─ srv0 ── server
//!                      ╚═ wan-b ═ wires ═ wan-b ═╝
//! ```
//!
//! The edge is an ordinary multi-WAN router: a default route per link with rising metric, and a
//! rule per link address, so that what is sent from an address leaves by its link. It masquerades
//! its LAN on the links. The hub forwards. The server knows a way back only to the links, so
//! private addresses reach it through NAT or not at all, unless the spec says otherwise.
//!
//! There may be several edges, each with a LAN host and links of its own to the one hub.
//!
//! The rules have low precedence (priority 30000 and later), so that those of a tunnel under test
//! come first and must work by themselves.

mod link;
mod site;

use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use sennit_netem::Counters;

use crate::emulator::{Control, Emulator, Pipe, Side, Strain};
use crate::error::Error;
use crate::host::{self, Family, Host, Role};
use crate::link::{Attached, Kind, LabLink, addressed, connect, open_tun};
use crate::plan::{self, Dual, Lan, Subnet, numbered};
use crate::programs;
use crate::scratch;
use crate::sockets;

pub use link::LinkHandle;
pub use site::Site;

/// Gives each direction of each link its own chance.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Precedence of the rules that tie an address to its link.
const RULE_PRIORITY: u32 = 30_000;

/// Longer than any kernel takes.
const CARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// What every host of a lab has in common, whatever the machine's defaults are.
const SETTINGS: [&str; 10] = [
    // What one run has learnt must not help the next.
    "net.ipv4.tcp_no_metrics_save=1",
    // Let one connection fill 1 Gbit/s at 100 ms.
    "net.ipv4.tcp_rmem=4096 262144 33554432",
    "net.ipv4.tcp_wmem=4096 262144 33554432",
    // Traffic chooses its congestion control itself, iperf3 once it is connected. But a connection
    // that began with BBR, which may be this machine's default, goes on pacing itself under any
    // other.
    "net.ipv4.tcp_congestion_control=reno",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    // Nobody else has our addresses: they work at once.
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv6.conf.default.router_solicitations=0",
    // Every probe of a test deserves its error message.
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv6.icmp.ratelimit=0",
];

/// What makes a router of a host.
const FORWARDING: [&str; 2] = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];

/// What to build.
#[derive(Debug, Clone)]
pub struct Spec {
    /// How many edges there are. The devices and hosts of several have their number, from 1.
    pub edges: usize,
    /// The links of each edge, in order of preference of its default routes.
    pub links: Vec<LabLink>,
    /// Decides all chance events of the emulated links.
    pub seed: u64,
    /// The server has a default route via the hub, so it also answers private addresses.
    pub server_routes_all: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            edges: 1,
            links: Vec::new(),
            seed: 0,
            server_routes_all: false,
        }
    }
}

/// A built topology; dropping it ends what runs in it and removes every trace.
#[derive(Debug)]
pub struct Lab {
    // The wires go first: they hold devices inside the hosts.
    emulator: Option<Emulator>,
    sites: Vec<NearHosts>,
    hub: Host,
    server: Host,
    /// Those of the first edge, then of the second.
    links: Vec<Attached>,
}

/// The hosts of one site.
#[derive(Debug)]
struct NearHosts {
    lan: Host,
    edge: Host,
}

impl Lab {
    /// Builds the topology; on an error nothing is left behind.
    pub fn new(spec: &Spec) -> Result<Self, Error> {
        spec.check()?;
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        programs::require(&programs::BUILDING)?;
        host::remove_leftovers();
        scratch::remove_leftovers();
        sockets::remove_leftovers();
        let prefix = host::unique_prefix();
        let near = |role: Role, edge| {
            Host::create(&prefix, &numbered(&role.to_string(), edge, spec.edges))
        };
        let site = |edge| {
            Ok(NearHosts {
                lan: near(Role::Lan, edge)?,
                edge: near(Role::Edge, edge)?,
            })
        };
        let sites = (0..spec.edges).map(site);
        let mut lab = Self {
            emulator: None,
            sites: sites.collect::<Result<_, Error>>()?,
            hub: Host::create(&prefix, &Role::Hub.to_string())?,
            server: Host::create(&prefix, &Role::Server.to_string())?,
            links: Vec::new(),
        };
        lab.set_parameters()?;
        lab.connect_stubs(spec)?;
        lab.connect_links(spec)?;
        lab.route_links()?;
        lab.wait_for_carriers()?;
        Ok(lab)
    }

    /// One of the hosts, of the first site if there are several.
    pub fn host(&self, role: Role) -> &Host {
        self.host_of(0, role)
    }

    pub(crate) fn host_of(&self, site: usize, role: Role) -> &Host {
        match role {
            Role::Lan => &self.sites[site].lan,
            Role::Edge => &self.sites[site].edge,
            Role::Hub => &self.hub,
            Role::Server => &self.server,
        }
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        self.sites.len()
    }

    /// All edges, each with what belongs to it.
    pub fn sites(&self) -> impl Iterator<Item = Site<'_>> {
        (0..self.edges()).map(|index| Site { lab: self, index })
    }

    /// Runs a program on a host to its end; a failure is an error with what it printed.
    pub fn exec(&self, role: Role, line: &[&str]) -> Result<Output, Error> {
        self.host(role).exec(line)
    }

    /// The link of this name, which ends in its edge's number if there are several.
    pub fn link(&self, name: &str) -> Result<LinkHandle<'_>, Error> {
        let link = self.links().find(|link| link.name() == name);
        link.ok_or_else(|| Error::Scenario(format!("there is no link {name:?}")))
    }

    /// All links: those of the first site in the order of the spec, then of the second.
    pub fn links(&self) -> impl Iterator<Item = LinkHandle<'_>> {
        let handle = |(index, link)| LinkHandle {
            lab: self,
            link,
            subnet: Subnet::of(index),
        };
        self.links.iter().enumerate().map(handle)
    }

    /// How hard it was for the emulator to be exact since the counters were reset.
    pub fn strain(&self) -> Strain {
        self.control()
            .map(|control| control.strain())
            .unwrap_or_default()
    }

    /// Empties all emulated links, with their counters, their chance and their traces at the start.
    pub fn restart_links(&self) {
        if let Some(control) = self.control() {
            control.restart();
        }
    }

    /// Starts the traces of all links, so that whatever runs from now on meets the same; gives when
    /// that was.
    pub(crate) fn begin_traces(&self) -> Option<Instant> {
        self.control()?.begin()
    }

    /// What happened up and down on each emulated link since the lab was built or restarted.
    pub(crate) fn counters(&self) -> Vec<(LinkHandle<'_>, [Counters; 2])> {
        let all = self.control().map(|control| control.counters());
        let all = all.unwrap_or_default();
        let counters = |pipe: usize| all.get(pipe).copied().unwrap_or_default();
        self.links()
            .filter_map(|link| Some((link, link.link.pipes?.map(counters))))
            .collect()
    }

    /// Counts the packets of all links from zero; those in them stay.
    pub fn reset_counters(&self) {
        if let Some(control) = self.control() {
            control.reset_counters();
        }
    }

    /// Packets that hosts dropped because the emulator did not read them in time.
    ///
    /// Anything but zero means that the machine was too slow for what was asked of it.
    pub fn overruns(&self) -> Result<u64, Error> {
        let mut overruns = 0;
        for link in self.links().filter(LinkHandle::is_emulated) {
            for host in link.ends() {
                let shown = host.show_link(&link.device())?;
                overruns += shown["stats64"]["tx"]["dropped"].as_u64().unwrap_or(0);
            }
        }
        Ok(overruns)
    }

    pub(crate) fn control(&self) -> Option<Control> {
        self.emulator.as_ref().map(Emulator::control)
    }

    fn set_parameters(&self) -> Result<(), Error> {
        let routers = self.sites.iter().map(|site| &site.edge).chain([&self.hub]);
        let ends = self
            .sites
            .iter()
            .map(|site| &site.lan)
            .chain([&self.server]);
        for router in routers {
            router.sysctl(&[&SETTINGS[..], &FORWARDING].concat())?;
        }
        ends.into_iter().try_for_each(|host| host.sysctl(&SETTINGS))
    }

    /// The veth pairs behind the edges and the hub.
    fn connect_stubs(&self, spec: &Spec) -> Result<(), Error> {
        let everything = ["default", "default"];
        for (hosts, site) in self.sites.iter().zip(self.sites()) {
            let (NearHosts { lan, edge }, plan) = (hosts, site.lan());
            pair(edge, "lan0", plan.edge(), lan, plan.host())?;
            lan.ip(&routes(everything, plan.edge()))?;
        }
        let server = &self.server;
        pair(&self.hub, "srv0", plan::HUB_SERVER, server, plan::SERVER)?;
        let answered = if spec.server_routes_all {
            everything
        } else {
            plan::LINK_PREFIXES
        };
        server.ip(&routes(answered, plan::HUB_SERVER))
    }

    fn connect_links(&mut self, spec: &Spec) -> Result<(), Error> {
        let (mut devices, mut pipes, mut nats) = (Vec::new(), Vec::new(), Vec::new());
        let of_site = |site| spec.links.iter().map(move |link| (site, link));
        for (site, link) in (0..spec.edges).flat_map(of_site) {
            let name = numbered(&link.name, site, spec.edges);
            let mut attached = Attached::new(link, name, site);
            let hosts = [&self.sites[site].edge, &self.hub];
            let ways = match link.kind {
                Kind::Veth | Kind::Tbf => connect(hosts, &attached).map(|()| None)?,
                Kind::Emulated => {
                    let (edge, way) = (devices.len(), pipes.len());
                    let nat = link.nat.map(|_| nats.len());
                    nats.extend(link.nat);
                    attached.nat = nat;
                    for host in hosts {
                        devices.push(open_tun(host, &attached)?);
                    }
                    pipes.push(Pipe {
                        from: edge,
                        to: edge + 1,
                        config: link.shape.up.clone(),
                        seed: 0,
                        mtu: link.mtu as usize,
                        nat: nat.map(Side::Leaves),
                        shares: None,
                    });
                    pipes.push(Pipe {
                        from: edge + 1,
                        to: edge,
                        config: link.shape.down.clone(),
                        seed: 0,
                        mtu: link.mtu as usize,
                        nat: nat.map(Side::Enters),
                        shares: link.shared.then_some(way),
                    });
                    Some([way, way + 1])
                }
            };
            attached.pipes = ways;
            self.links.push(attached);
        }
        for (number, pipe) in (0..).zip(&mut pipes) {
            pipe.seed = spec.seed.wrapping_add(SEED_STEP.wrapping_mul(number));
        }
        self.emulator = Some(Emulator::start(devices, &pipes, &nats)?);
        Ok(())
    }

    /// Addresses and routes of all links.
    fn route_links(&self) -> Result<(), Error> {
        let Dual { v4, v6 } = plan::HUB;
        let own = format!("address add {v4}/32 dev lo\naddress add {v6}/128 dev lo\n");
        self.hub.ip(&own)?;
        for link in self.links() {
            link.configure_hub()?;
            link.set_up(true)?;
        }
        self.sites().try_for_each(route_site)
    }

    /// The kernel takes up to a second to notice that the two ends of a veth are up.
    fn wait_for_carriers(&self) -> Result<(), Error> {
        let stub = |host, device: &str| (host, device.to_owned());
        let mut waiting = vec![stub(&self.hub, "srv0"), stub(&self.server, "eth0")];
        for NearHosts { lan, edge } in &self.sites {
            waiting.extend([stub(edge, "lan0"), stub(lan, "eth0")]);
        }
        for link in self.links().filter(|link| !link.is_emulated()) {
            waiting.extend(link.ends().map(|host| (host, link.device())));
        }
        let deadline = Instant::now() + CARRIER_PATIENCE;
        for (host, device) in waiting {
            while host.show_link(&device)?["operstate"] != "UP" {
                if Instant::now() > deadline {
                    let reason = format!("{device} of {} has no carrier", host.name());
                    return Err(Error::Scenario(reason));
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Spec {
    /// An error if no lab can be like this.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.links.len() > plan::LINKS_MAX {
            let reason = format!(
                "{} links are more than {}",
                self.links.len(),
                plan::LINKS_MAX
            );
            return Err(Error::Scenario(reason));
        }
        let links_of_all = self.edges.saturating_mul(self.links.len().max(1));
        if !(1..=plan::LINKS_OF_ALL_MAX).contains(&links_of_all) {
            let reason = format!(
                "{} edges with {} links each: a lab has 1 to {} links in all",
                self.edges,
                self.links.len(),
                plan::LINKS_OF_ALL_MAX
            );
            return Err(Error::Scenario(reason));
        }
        for (index, link) in self.links.iter().enumerate() {
            link.check(self.edges)?;
            if self.links[..index]
                .iter()
                .any(|other| other.name == link.name)
            {
                return Err(Error::Scenario(format!(
                    "two links are called {:?}",
                    link.name
                )));
            }
        }
        Ok(())
    }
}

/// What is sent from the address of a link leaves by it, and the LAN hides behind it.
fn route_site(site: Site<'_>) -> Result<(), Error> {
    let edge = site.host(Role::Edge);
    for (family, index) in Family::BOTH.into_iter().zip(0..) {
        let rule = |link: LinkHandle<'_>| {
            let (prefixes, table) = (link.subnet().prefixes(), link.subnet().table());
            let (from, priority) = (&prefixes[index], RULE_PRIORITY + table);
            format!("rule add from {from} lookup {table} priority {priority}\n")
        };
        edge.ip_of(family, &site.links().map(rule).collect::<String>())?;
    }
    edge.nft(&masquerade(site.lan()))
}

/// What an edge does to its LAN's packets on a link, as any site router.
fn masquerade(lan: Lan) -> String {
    let [v4, v6] = lan.prefixes();
    format!(
        "table inet lab_edge {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    oifname \"wan-*\" ip saddr {v4} masquerade
    oifname \"wan-*\" ip6 saddr {v6} masquerade
  }}
}}
"
    )
}

/// Joins a router and a host behind it.
fn pair(router: &Host, device: &str, near: Dual, host: &Host, far: Dual) -> Result<(), Error> {
    let peer = format!("peer name eth0 netns {}", host.name());
    router.ip(&format!(
        "link add {device} type veth {peer}\n{}",
        addressed(device, near)
    ))?;
    host.ip(&addressed("eth0", far))
}

fn routes([v4, v6]: [&str; 2], gateway: Dual) -> String {
    format!(
        "route add {v4} via {}\nroute add {v6} via {}\n",
        gateway.v4, gateway.v6
    )
}
