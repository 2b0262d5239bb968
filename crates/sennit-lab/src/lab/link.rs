//! What can be done to a link of a running lab.

use std::fmt::Write as _;
use std::sync::{MutexGuard, PoisonError};

use sennit_linux::DeviceName;
use sennit_netem::{Config, Counters, Direction};

use super::Lab;
use crate::emulator::{Control, NatFault};
use crate::error::Error;
use crate::host::{Host, Role};
use crate::link::{Attached, Kind, LabLink, addressed, connect};
use crate::plan::{Dual, EDGE, Subnet};

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

    /// The index of the site that has it.
    pub(crate) fn site(&self) -> usize {
        self.link.site
    }

    /// Its device, called the same on edge and hub.
    pub fn device(&self) -> String {
        self.link.device()
    }

    /// The hosts at its ends: edge and hub.
    pub(crate) fn ends(&self) -> [&'a Host; 2] {
        [Role::Edge, Role::Hub].map(|role| self.lab.host_of(self.site(), role))
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
        connect(self.ends(), self.link)?;
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

    /// Lets both firewalls drop so many percent of what arrives with a mark. Who sends it does not
    /// know.
    pub(crate) fn drop_marked(&self, dscp: u8, percent: u8) -> Result<(), Error> {
        let device = self.device();
        let rule = |ip: &str| {
            let part = part(percent);
            format!("iifname \"{device}\" {ip} dscp {dscp} {part} drop\n")
        };
        let script = firewall(&device, Some(("prerouting", rule("ip") + &rule("ip6"))));
        self.lab.host(Role::Hub).nft(&script)?;
        self.edge().nft(&script)
    }

    /// Lets the edge's firewall drop so many percent of what it forwards into a device or out of
    /// it.
    pub(crate) fn drop_on_tun(&self, device: &DeviceName, percent: u8) -> Result<(), Error> {
        let rule = |key: &str| format!("{key} \"{device}\" {} drop\n", part(percent));
        let rules = rule("iifname") + &rule("oifname");
        self.edge()
            .nft(&firewall(&self.device(), Some(("forward", rules))))
    }

    pub(crate) fn configure_hub(&self) -> Result<(), Error> {
        let device = self.device();
        let lines = addressed(&device, self.subnet.hub());
        self.lab
            .host(Role::Hub)
            .ip(&format!("address flush dev {device}\n{lines}"))
    }

    fn edge(&self) -> &'a Host {
        self.lab.host_of(self.site(), Role::Edge)
    }

    fn wires(&self) -> Result<([usize; 2], Control), Error> {
        let wires = self.link.pipes.zip(self.lab.control());
        wires.ok_or_else(|| Error::Scenario(format!("link {} is not emulated", self.name())))
    }

    fn now(&self) -> MutexGuard<'a, [Config; 2]> {
        self.link.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes so many percent of the packets, 1 to 100: nftables refuses what no number can be.
fn part(percent: u8) -> String {
    let last = percent.saturating_sub(1);
    format!("numgen random mod 100 <= {last}")
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
