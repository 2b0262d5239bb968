//! One link between edge and hub: what is asked of it, and what can be done to it.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sennit_netem::{Config, Counters, Direction, LinkSpec, NatConfig};

use crate::emulator::{Control, NatFault};
use crate::error::Error;
use crate::host::{Host, Role};
use crate::lab::{self, Lab};
use crate::plan::{Dual, EDGE, Subnet};
use crate::scenario::Marked;
use crate::site::{Site, numbered};

/// One link between edge and hub.
#[derive(Debug, Clone)]
pub struct LabLink {
    /// Up to 11 characters; the devices are called `wan-<name>`, or `wan-<name>-<number>` at one
    /// edge of several.
    pub name: String,
    /// How it is made.
    pub kind: Kind,
    /// What it does to packets, each way.
    pub shape: LinkSpec,
    /// The devices' MTU.
    pub mtu: u32,
    /// Whether a veth carries UDP super-packets whole, or its kernel cuts them before it
    /// (`tx-udp-segmentation`, as with many network cards).
    pub uso: bool,
    /// What a token bucket saves up for, at most, as time at its rate. What is more than that, like
    /// a super-packet of 64 KB, is cut; packets of it then leave one by one, at the cost of a timer
    /// each.
    pub bucket: Duration,
    /// The NAT box between the edge and an emulated link. It changes ports only: the edge's address
    /// on the link is what the hub sees.
    pub nat: Option<NatConfig>,
    /// Both directions take turns on one emulated wire, whose properties are those of the way up.
    /// What went over it in either direction is counted as up.
    pub shared: bool,
}

/// Shorter than the queues and round trips of any link, and longer than timers come late, also on a
/// virtual machine that shares its processors. What a full bucket does not hold any more is lost to
/// the rate.
pub(crate) const BUCKET: Duration = Duration::from_millis(4);

/// How a link is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Two TUN devices with the emulator between them.
    #[default]
    Emulated,
    /// A veth pair, as fast as the machine can; nothing can be changed on it but its state.
    Veth,
    /// A veth pair with the kernel's token bucket at both ends: a rate and a queue, no delay and no
    /// loss. It costs less CPU than the emulator, so that many links fit on one machine.
    Tbf,
}

impl LabLink {
    /// An emulated link with equal directions.
    pub fn symmetric(name: &str, config: &Config) -> Self {
        Self {
            name: name.into(),
            kind: Kind::Emulated,
            shape: LinkSpec::symmetric(config.clone()),
            mtu: 1500,
            uso: true,
            bucket: BUCKET,
            nat: None,
            shared: false,
        }
    }

    /// The model's configuration in one direction.
    pub fn config(&self, direction: Direction) -> &Config {
        self.shape.way(direction)
    }

    pub(crate) fn check(&self, edges: usize) -> Result<(), Error> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let longest = numbered("", edges.saturating_sub(1), edges);
        let room = 11 - longest.len();
        if !(1..=room).contains(&self.name.len()) || !self.name.chars().all(plain) {
            let name = &self.name;
            let reason = format!("link name {name:?} is not 1 to {room} of a-z, 0-9, '-'");
            return Err(Error::Scenario(reason));
        }
        if !(1280..=9000).contains(&self.mtu) {
            let reason = format!("link {}: MTU {} is not 1280 to 9000", self.name, self.mtu);
            return Err(Error::Scenario(reason));
        }
        Ok(())
    }
}

/// A link of a lab, with where to find its directions in the emulator.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) spec: LabLink,
    /// That of no other link of the lab.
    name: String,
    /// The index of the site.
    site: usize,
    pipes: Option<[usize; 2]>,
    nat: Option<usize>,
    now: Mutex<[Config; 2]>,
}

impl Attached {
    pub(crate) fn new(spec: &LabLink, name: String, site: usize) -> Self {
        let now = Mutex::new(Direction::BOTH.map(|direction| spec.config(direction).clone()));
        Self {
            spec: spec.clone(),
            name,
            site,
            pipes: None,
            nat: None,
            now,
        }
    }

    pub(crate) fn device(&self) -> String {
        format!("wan-{}", self.name)
    }

    /// Its directions in the emulator, if it is emulated.
    pub(crate) fn pipes(&self) -> Option<[usize; 2]> {
        self.pipes
    }

    /// The index of its NAT box in the emulator.
    pub(crate) fn set_nat(&mut self, nat: Option<usize>) {
        self.nat = nat;
    }

    pub(crate) fn set_pipes(&mut self, pipes: Option<[usize; 2]>) {
        self.pipes = pipes;
    }
}

/// One link of a running lab.
#[derive(Debug, Clone, Copy)]
pub struct LinkHandle<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) link: &'a Attached,
    pub(crate) subnet: Subnet,
}

impl<'a> LinkHandle<'a> {
    /// What was asked for when the lab was built, with the name that it has at every edge.
    pub fn spec(&self) -> &'a LabLink {
        &self.link.spec
    }

    /// Its name, which no other link of the lab has.
    pub fn name(&self) -> &'a str {
        &self.link.name
    }

    /// The edge that has it.
    pub fn site(&self) -> Site<'a> {
        let (lab, index) = (self.lab, self.link.site);
        Site { lab, index }
    }

    /// Its device, called the same on edge and hub.
    pub fn device(&self) -> String {
        self.link.device()
    }

    /// The hosts at its ends: edge and hub.
    pub(crate) fn ends(&self) -> [&'a Host; 2] {
        [Role::Edge, Role::Hub].map(|role| self.site().host(role))
    }

    /// Its addresses.
    pub fn subnet(&self) -> Subnet {
        self.subnet
    }

    /// Whether it passes through the emulator.
    pub fn is_emulated(&self) -> bool {
        self.link.pipes.is_some()
    }

    /// Whether anything but the machine limits it.
    pub fn is_shaped(&self) -> bool {
        self.spec().kind != Kind::Veth
    }

    /// How a direction is configured at the moment.
    pub fn config(&self, direction: Direction) -> Config {
        self.now()[direction as usize].clone()
    }

    /// Changes a direction while packets are in it.
    pub fn set(&self, direction: Direction, change: impl FnOnce(&mut Config)) -> Result<(), Error> {
        let (pipes, control) = self.wires()?;
        let mut now = self.now();
        let config = &mut now[direction as usize];
        change(config);
        control.set(pipes[direction as usize], config.clone());
        Ok(())
    }

    /// Silently loses everything in both directions, or stops doing so.
    pub fn set_outage(&self, outage: bool) -> Result<(), Error> {
        let set = |direction| self.set(direction, |config| config.outage = outage);
        Direction::BOTH.into_iter().try_for_each(set)
    }

    /// The link's NAT box loses its mappings, or they let nothing pass any more.
    pub fn break_nat(&self, fault: NatFault) -> Result<(), Error> {
        let nat = self.link.nat.zip(self.lab.control());
        let (nat, control) =
            nat.ok_or_else(|| Error::Scenario(format!("link {} has no NAT box", self.name())))?;
        control.break_nat(nat, fault);
        Ok(())
    }

    /// Makes a direction again what the spec says.
    pub fn restore(&self, direction: Direction) -> Result<(), Error> {
        let asked = self.spec().config(direction).clone();
        self.set(direction, |config| *config = asked)
    }

    /// What happened up and down since the lab was built or restarted.
    pub fn counters(&self) -> Result<[Counters; 2], Error> {
        let (pipes, control) = self.wires()?;
        let all = control.counters();
        Ok(pipes.map(|pipe| all.get(pipe).copied().unwrap_or_default()))
    }

    /// Plugs the edge's end in or out: the host sees it, unlike an outage.
    pub fn set_carrier(&self, on: bool) -> Result<(), Error> {
        let device = self.device();
        match self.spec().kind {
            Kind::Emulated => {
                let state = if on { "on" } else { "off" };
                self.edge()
                    .ip(&format!("link set dev {device} carrier {state}\n"))
            }
            // A veth has a carrier while its peer is up.
            Kind::Veth | Kind::Tbf if on => self.configure_hub(),
            Kind::Veth | Kind::Tbf => self
                .lab
                .host(Role::Hub)
                .ip(&format!("link set dev {device} down\n")),
        }
    }

    /// Sets the edge's device administratively up, with addresses and routes, or down.
    pub fn set_up(&self, up: bool) -> Result<(), Error> {
        if up {
            return self.set_address(Some(EDGE));
        }
        self.edge()
            .ip(&format!("link set dev {} down\n", self.device()))
    }

    /// Gives the edge's end another host number, with routes to match, or no address at all.
    pub fn set_address(&self, host: Option<u8>) -> Result<(), Error> {
        let device = self.device();
        let mut lines = format!("address flush dev {device}\n");
        if let Some(host) = host {
            lines.push_str(&addressed(&device, self.subnet.host(host)));
            lines.push_str(&default_routes(&device, self.subnet));
        }
        self.edge().ip(&lines)
    }

    /// Pulls the edge's device out, or puts it in again with addresses and routes. An emulated link
    /// is held by the emulator and stays.
    pub(crate) fn set_plugged(&self, plugged: bool) -> Result<(), Error> {
        let device = self.device();
        if self.is_emulated() {
            let reason = format!("the emulated link {} cannot be deleted", self.name());
            return Err(Error::Scenario(reason));
        }
        if !plugged {
            return self.edge().ip(&format!("link delete dev {device}\n"));
        }
        lab::connect(self.ends(), self.link)?;
        self.configure_hub()?;
        self.set_up(true)
    }

    /// Sets the MTU of the devices at both ends; `None` is that of the spec.
    pub(crate) fn set_mtu(&self, mtu: Option<u32>) -> Result<(), Error> {
        let (device, mtu) = (self.device(), mtu.unwrap_or(self.spec().mtu));
        let line = format!("link set dev {device} mtu {mtu}\n");
        self.ends().into_iter().try_for_each(|host| host.ip(&line))
    }

    /// Lets the edge's firewall drop everything in a direction, or both firewalls nothing at all.
    pub fn set_drop(&self, direction: Option<Direction>) -> Result<(), Error> {
        let device = self.device();
        let Some(direction) = direction else {
            self.lab.host(Role::Hub).nft(&firewall(&device, None))?;
            return self.edge().nft(&firewall(&device, None));
        };
        let (hook, key) = match direction {
            Direction::Up => ("postrouting", "oifname"),
            Direction::Down => ("prerouting", "iifname"),
        };
        let rule = (hook, format!("{key} \"{device}\" drop\n"));
        self.edge().nft(&firewall(&device, Some(rule)))
    }

    /// Lets both firewalls drop a part of what arrives with a mark. Who sends it does not know.
    pub(crate) fn drop_marked(&self, marked: Marked) -> Result<(), Error> {
        let device = self.device();
        let Marked { dscp, percent } = marked;
        let rule = |ip: &str| {
            format!(
                "iifname \"{device}\" {ip} dscp {dscp} numgen random mod 100 < {percent} drop\n"
            )
        };
        let script = firewall(&device, Some(("prerouting", rule("ip") + &rule("ip6"))));
        self.lab.host(Role::Hub).nft(&script)?;
        self.edge().nft(&script)
    }

    pub(crate) fn configure_hub(&self) -> Result<(), Error> {
        let device = self.device();
        let lines = addressed(&device, self.subnet.hub());
        self.lab
            .host(Role::Hub)
            .ip(&format!("address flush dev {device}\n{lines}"))
    }

    fn edge(&self) -> &'a Host {
        self.site().host(Role::Edge)
    }

    fn wires(&self) -> Result<([usize; 2], Control), Error> {
        let wires = self.link.pipes.zip(self.lab.control());
        wires.ok_or_else(|| Error::Scenario(format!("link {} is not emulated", self.name())))
    }

    fn now(&self) -> MutexGuard<'a, [Config; 2]> {
        self.link.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A firewall for a device with these rules at a hook instead of what it has; or none.
fn firewall(device: &str, rules: Option<(&str, String)>) -> String {
    let table = format!("table inet lab_{device}");
    let mut script = format!("{table}\ndelete {table}\n");
    if let Some((hook, rules)) = rules {
        let chain = format!("type filter hook {hook} priority -300\n{rules}");
        let _ = writeln!(script, "{table} {{\nchain firewall {{\n{chain}}}\n}}");
    }
    script
}

/// The lines that put addresses on a device and bring it up.
pub(crate) fn addressed(device: &str, Dual { v4, v6 }: Dual) -> String {
    format!(
        "address add {v4}/24 dev {device}\n\
         address add {v6}/64 dev {device} nodad\n\
         link set {device} up\n"
    )
}

/// The edge's default routes over one link: for everybody, and in the link's own table.
fn default_routes(device: &str, subnet: Subnet) -> String {
    let (Dual { v4, v6 }, metric, table) = (subnet.hub(), subnet.metric(), subnet.table());
    let mut lines = String::new();
    for gateway in [v4.to_string(), v6.to_string()] {
        let route = format!("route replace default via {gateway} dev {device}");
        let _ = writeln!(lines, "{route} metric {metric}\n{route} table {table}");
    }
    lines
}
