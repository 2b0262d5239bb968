//! The topology: a LAN host, an edge, a hub and a server, with emulated links in the middle.
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
//! The rules have low precedence (priority 30000 and later), so that those of a tunnel under test
//! come first and must work by themselves.

use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use sennit_linux::DeviceName;
use sennit_linux::tun::{Offload, Tun, TunConfig};

use crate::emulator::{Control, Emulator, Pipe, Strain};
use crate::error::{Doing, Error};
use crate::host::{self, Family, Host, Role};
use crate::link::{Attached, Kind, LinkHandle, LinkSpec, addressed};
use crate::plan::{self, Dual, Subnet};
use crate::programs;
use crate::scratch;
use crate::tunnel;

/// Room for the largest bursts between two turns of the emulator; what overflows is reported by
/// [`Lab::overruns`].
const TX_QUEUE: u32 = 10_000;

/// Gives each direction of each link its own chance.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Precedence of the rules that tie an address to its link.
const RULE_PRIORITY: u32 = 30_000;

/// Longer than any kernel takes.
const CARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// What every host of a lab has in common, whatever the machine's defaults are.
const SETTINGS: [&str; 9] = [
    // What one run has learnt must not help the next.
    "net.ipv4.tcp_no_metrics_save=1",
    // Let one connection fill 1 Gbit/s at 100 ms.
    "net.ipv4.tcp_rmem=4096 262144 33554432",
    "net.ipv4.tcp_wmem=4096 262144 33554432",
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

/// What the edge does to its LAN's packets on a link, as any site router.
const MASQUERADE: &str = "table inet lab_edge {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    oifname \"wan-*\" ip saddr 192.168.8.0/24 masquerade
    oifname \"wan-*\" ip6 saddr fd08::/64 masquerade
  }
}
";

/// What to build.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// The links, in order of preference of the edge's default routes.
    pub links: Vec<LinkSpec>,
    /// Decides all chance events of the emulated links.
    pub seed: u64,
    /// The server has a default route via the hub, so it also answers private addresses.
    pub server_routes_all: bool,
}

/// A built topology; dropping it ends what runs in it and removes every trace.
#[derive(Debug)]
pub struct Lab {
    // The wires go first: they hold devices inside the hosts.
    emulator: Option<Emulator>,
    hosts: Vec<Host>,
    links: Vec<Attached>,
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
        tunnel::remove_leftovers();
        let prefix = host::unique_prefix();
        let hosts = Role::ALL
            .into_iter()
            .map(|role| Host::create(&prefix, role));
        let hosts = hosts.collect::<Result<_, _>>()?;
        let mut lab = Self {
            emulator: None,
            hosts,
            links: Vec::new(),
        };
        lab.set_parameters()?;
        lab.connect_stubs(spec)?;
        lab.connect_links(spec)?;
        lab.route_links()?;
        lab.wait_for_carriers()?;
        Ok(lab)
    }

    /// One of the hosts.
    pub fn host(&self, role: Role) -> &Host {
        let index = Role::ALL.iter().position(|known| *known == role);
        &self.hosts[index.expect("every role has its host")]
    }

    /// Runs a program on a host to its end; a failure is an error with what it printed.
    pub fn exec(&self, role: Role, line: &[&str]) -> Result<Output, Error> {
        self.host(role).exec(line)
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Result<LinkHandle<'_>, Error> {
        let link = self.links().find(|link| link.name() == name);
        link.ok_or_else(|| Error::Scenario(format!("there is no link {name:?}")))
    }

    /// All links, in the order of the spec.
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

    /// Empties all emulated links, with their counters and their chance at the start.
    pub fn restart_links(&self) {
        if let Some(control) = self.control() {
            control.restart();
        }
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
            for role in [Role::Edge, Role::Hub] {
                overruns += self.tx_dropped(role, &link.device())?;
            }
        }
        Ok(overruns)
    }

    fn tx_dropped(&self, role: Role, device: &str) -> Result<u64, Error> {
        let shown = self.host(role).show_link(device)?;
        Ok(shown["stats64"]["tx"]["dropped"].as_u64().unwrap_or(0))
    }

    pub(crate) fn control(&self) -> Option<Control> {
        self.emulator.as_ref().map(Emulator::control)
    }

    fn set_parameters(&self) -> Result<(), Error> {
        self.hosts
            .iter()
            .try_for_each(|host| host.sysctl(&SETTINGS))?;
        self.host(Role::Edge).sysctl(&FORWARDING)?;
        self.host(Role::Hub).sysctl(&FORWARDING)
    }

    /// The veth pairs behind edge and hub.
    fn connect_stubs(&self, spec: &Spec) -> Result<(), Error> {
        let (lan, server) = (self.host(Role::Lan), self.host(Role::Server));
        pair(
            self.host(Role::Edge),
            "lan0",
            plan::EDGE_LAN,
            lan,
            plan::LAN,
        )?;
        pair(
            self.host(Role::Hub),
            "srv0",
            plan::HUB_SERVER,
            server,
            plan::SERVER,
        )?;
        let everything = ["default", "default"];
        lan.ip(&routes(everything, plan::EDGE_LAN))?;
        let answered = if spec.server_routes_all {
            everything
        } else {
            plan::LINK_PREFIXES
        };
        server.ip(&routes(answered, plan::HUB_SERVER))
    }

    fn connect_links(&mut self, spec: &Spec) -> Result<(), Error> {
        let (mut devices, mut pipes) = (Vec::new(), Vec::new());
        for link in &spec.links {
            let ways = match link.kind {
                Kind::Veth => self.connect_veth(link).map(|()| None)?,
                Kind::Emulated => {
                    let (edge, way) = (devices.len(), pipes.len());
                    devices.push(self.open_tun(Role::Edge, link)?);
                    devices.push(self.open_tun(Role::Hub, link)?);
                    pipes.push(Pipe {
                        from: edge,
                        to: edge + 1,
                        config: link.up.clone(),
                        seed: 0,
                    });
                    pipes.push(Pipe {
                        from: edge + 1,
                        to: edge,
                        config: link.down.clone(),
                        seed: 0,
                    });
                    Some([way, way + 1])
                }
            };
            self.links.push(Attached::new(link, ways));
        }
        for (number, pipe) in (0..).zip(&mut pipes) {
            pipe.seed = spec.seed.wrapping_add(SEED_STEP.wrapping_mul(number));
        }
        self.emulator = Some(Emulator::start(devices, &pipes)?);
        Ok(())
    }

    fn connect_veth(&self, link: &LinkSpec) -> Result<(), Error> {
        let (device, mtu, hub) = (link.device(), link.mtu, self.host(Role::Hub).name());
        let peer = format!("peer name {device} mtu {mtu} netns {hub}");
        self.host(Role::Edge)
            .ip(&format!("link add {device} mtu {mtu} type veth {peer}\n"))?;
        if link.uso {
            return Ok(());
        }
        programs::require(&programs::OFFLOADS)?;
        let line = ["ethtool", "-K", &device, "tx-udp-segmentation", "off"];
        [Role::Edge, Role::Hub]
            .into_iter()
            .try_for_each(|role| self.exec(role, &line).map(drop))
    }

    fn open_tun(&self, role: Role, link: &LinkSpec) -> Result<Tun, Error> {
        let device = link.device();
        let name: DeviceName = device.parse()?;
        let config = TunConfig {
            name,
            mtu: link.mtu,
            queues: 1,
            offload: Offload::None,
        };
        let host = self.host(role);
        let opened = host.netns().run(|| Tun::open(&config));
        let mut queues = opened.doing(|| format!("enter the {role}"))??;
        host.ip(&format!("link set {device} txqueuelen {TX_QUEUE}\n"))?;
        Ok(queues.pop().expect("one queue was asked for"))
    }

    /// Addresses and routes of all links.
    fn route_links(&self) -> Result<(), Error> {
        let Dual { v4, v6 } = plan::HUB;
        let own = format!("address add {v4}/32 dev lo\naddress add {v6}/128 dev lo\n");
        self.host(Role::Hub).ip(&own)?;
        for link in self.links() {
            link.configure_hub()?;
            link.set_up(true)?;
        }
        for (family, index) in Family::BOTH.into_iter().zip(0..) {
            let rule = |link: LinkHandle<'_>| {
                let (prefixes, table) = (link.subnet().prefixes(), link.subnet().table());
                let from = &prefixes[index];
                format!(
                    "rule add from {from} lookup {table} priority {}\n",
                    RULE_PRIORITY + table
                )
            };
            let rules: String = self.links().map(rule).collect();
            self.host(Role::Edge).ip_of(family, &rules)?;
        }
        self.host(Role::Edge).nft(MASQUERADE)
    }

    /// The kernel takes up to a second to notice that the two ends of a veth are up.
    fn wait_for_carriers(&self) -> Result<(), Error> {
        let stubs = [(Role::Edge, "lan0"), (Role::Hub, "srv0")];
        let mut waiting = Vec::from(stubs.map(|(role, device)| (role, device.to_owned())));
        waiting.extend([Role::Lan, Role::Server].map(|role| (role, "eth0".to_owned())));
        for link in self.links().filter(|link| !link.is_emulated()) {
            waiting.extend([Role::Edge, Role::Hub].map(|role| (role, link.device())));
        }
        let deadline = Instant::now() + CARRIER_PATIENCE;
        for (role, device) in waiting {
            while self.host(role).show_link(&device)?["operstate"] != "UP" {
                if Instant::now() > deadline {
                    let reason = format!("{device} of the {role} has no carrier");
                    return Err(Error::Scenario(reason));
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Spec {
    fn check(&self) -> Result<(), Error> {
        if self.links.len() > plan::LINKS_MAX {
            let reason = format!(
                "{} links are more than {}",
                self.links.len(),
                plan::LINKS_MAX
            );
            return Err(Error::Scenario(reason));
        }
        for (index, link) in self.links.iter().enumerate() {
            link.check()?;
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
