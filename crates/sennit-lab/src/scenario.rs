//! Scenario files: what to build, what to run on it, what to break meanwhile.
//!
//! ```toml
//! name = "demo"
//! seed = 1                         # of all chance events, default 1
//! server_routes_all = false        # true: the server answers private addresses without NAT
//! edges = 1                        # each with all of the links and traffic below, to one hub;
//!                                  # what concerns one of several says which: `edge = 2`, from 1
//!
//! [[link]]
//! name = "fast"                    # devices are called wan-fast
//! kind = "emulated"                # or "veth": unshaped; "tbf": a rate and a queue only, cheap
//! mtu = 1500
//! spec = "300/10±2/0.5%"           # a short text (`sennit_netem::LinkSpec`), which the keys below
//!                                  # change
//! uso = true                       # false: the kernel cuts UDP super-packets before a veth
//! rate_mbit = 300                  # of Ethernet frames; absent = unlimited
//! delay_ms = 10                    # one way
//! jitter_ms = 2                    # half width, or standard deviation with "normal"
//! jitter_shape = "uniform"         # or "normal"
//! reorder = false                  # whether jitter reorders
//! loss_percent = 0.5
//! burst = 4                        # mean length of loss bursts; absent = independent losses
//! lose_sizes = [[1180, 1210]]      # instead: all packets of so many bytes from the IP header on,
//!                                  # and no others; see `grow`
//! queue_ms = 50                    # or queue_bytes; default 50 ms, at least 64 KiB
//! bucket_ms = 4                    # what a "tbf" saves up, in time of its rate; larger
//!                                  # super-packets are cut
//! trace = "lte@7"                  # moves: word[@seed][*factor] of `sennit_netem::Motion`, or a
//!                                  # file of mahimahi's form or of lines
//!                                  # `seconds,Mbit/s[,delay in ms[,held|lost]]`
//! frame_bytes = 14                 # what each packet takes of the rate beside itself; 38 counts
//!                                  # as a port does, with preamble and gap; 0 packets alone
//! shared = false                   # true: both directions share one wire, as on a radio channel
//! path_mtu = 1400                  # larger IP packets are lost inside; a fault may set it
//! path_mtu_icmp = false            # true: senders are told if they asked not to fragment
//! nat = { mapping = "address-and-port", filtering = "address-and-port", timeout_s = 30 }
//!                                  # a box at the edge's end that changes ports (RFC 4787); or
//!                                  # "address", "endpoint-independent"; inbound_refreshes = false.
//!                                  # Its faults are the actions "nat_forget" and "nat_wedge"
//! up = { rate_mbit = 40 }          # differs in this direction (edge to hub); also `down`
//!
//! [[setup]]                        # once, before anything is played
//! on = "edge"                      # or "lan", "hub", "server"
//! run = "ip link add dummy0 type dummy"
//!                                  # lines for a shell; $LAN, $EDGE, $HUB and $SERVER are names
//!                                  # of network namespaces
//!
//! [tunnel]                         # absent: no step may use the tunnel
//! kind = ["sennit"]                # also "wireguard-go" and "ideal": all steps over each
//! edge = { mtu = 1400 }            # added to [edge] of the edge's config, also `hub`
//! link.fast = { tier = 1 }         # added to the [[link]] of the edge's config
//! api = { listen = ["127.0.0.1:8479"] }
//!                                  # [api] of hub and edges
//! disk_mb = 8                      # what the daemons write goes to a disk of this size; absent =
//!                                  # to the host's. "fill_disk" fills it
//! other = { edge = {}, class = [] }
//!                                  # added after each second "reload"; as `only`
//! only.2 = { edge = { lan = ["1.1.1.1/32"] } }
//!                                  # added to the config of edge 2 alone; also `link`, and
//!                                  # `class` in place of the tables below
//! [[tunnel.class]]                 # the [[class]] tables of the edge's config, as they are
//! name = "default"
//!
//! [[step]]                         # steps run one after the other
//! name = "four streams"
//! seconds = 10                     # of traffic and faults that do not say otherwise
//! long = false                     # true: `sennit lab run --quick` leaves it out
//! leaks = false                    # true: after it everything has to be up again, and what the
//!                                  # daemons hold and have changed is compared with before
//!   [[step.traffic]]
//!   kind = "tcp"                   # or "quic": one stream; "udp": constant rate; "ping": ICMP;
//!                                  # "packets": as many per second as pass; "idle": nothing
//!                                  # "ask": `rate` requests a second of a daemon, and `viewers`;
//!                                  # "program": the figures that a `command` prints as JSON;
//!                                  # "test": what `sennit test client` finds with `arguments`;
//!                                  # "fetch": `bytes` over TCP every `every_s`;
//!                                  # "flood": `rate` first packets a second from sources that do
//!                                  # not exist, to the hub; `unread = true`: to a port of it that
//!                                  # nobody reads
//!   via = "tunnel"                 # "link:fast" = that link without a tunnel; "mptcp" = all links
//!   from = "lan"                   # the near host: or "edge"
//!   to = "server"                  # the far host: or "hub"; tcp, packets and ping only
//!   direction = "down"             # towards the edge (default), or "up"
//!   streams = 4
//!   congestion = "cubic"           # of the traffic's own TCP
//!   delays = true                  # of UDP: each packet is timed, by a load that is not iperf3
//!   grow = 30                      # and each of ten has so many bytes more than the one before
//!   start_s = 0                    # after the start of the step
//!   edge = 1                       # only there; absent = at all edges
//!   [[step.traffic]]
//!   kind = "ping"
//!   interval_ms = 100
//!   [[step.fault]]
//!   at_s = 3
//!   link = "fast"                  # of `edge = 1`, if there are several
//!   action = "outage"              # silent; see `Action` for the others
//!   marked = { dscp = 8, percent = 10 }
//!                                  # with "drop_marked": the mark, and how many are dropped
//!   tun = { device = "bulk0", percent = 10 }
//!                                  # with "drop_on_tun": a class's device at the edge
//!   for_s = 2                      # then it ends by itself; absent = it stays
//!   every_s = 5                    # and happens again,
//!   times = 4                      # so many times in all
//!   each_s = 0.5                   # it happens to every edge, from one to the next after so long
//!   mtu = 1300                     # with "device_mtu"; not above that of an emulated link
//! ```
//!
//! What a document of others says of a step is a table of `[[published]]`, which reports show
//! beside what was measured: `what`, `by`, `step`, `figure` (as in results.json), `value` in the
//! unit of the tables, `better` ("more", "less" or "near"), `predict` (a line of `sennit predict`)
//! and `why`: the reason, if ours is not better. `traffic = 2` is that of the step's second
//! traffic, where an earlier one has such a figure too.
//!
//! Instead of one set of links there may be several, and each is played with all steps:
//!
//! ```toml
//! [[variant]]
//! name = "far"
//! link = [{ name = "a", rate_mbit = 50, delay_ms = 70 }]
//! ```
//!
//! With several edges each traffic of a step runs at all of them at the same time, through the
//! tunnel or over a link of each. The results have what each of them got, and what that comes to.
//!
//! Unknown keys are errors. After each step the links have their properties again; a carrier, a
//! device, an address or a firewall stays as the last fault has left it.

mod fault;
mod fetch;
mod link;
mod loadtest;
mod looking;
mod published;
mod setup;
mod traffic;
mod tunnel;
mod via;

use std::time::Duration;

use serde::Deserialize;

use crate::error::Error;
use crate::host::Role;
use crate::lab::{Lab, Spec};

pub use fault::{Action, Fault, Marked, OnTun};
pub use fetch::Fetch;
pub use link::{LinkTable, Shape};
pub use loadtest::LoadTest;
pub use looking::{Ask, Program};
pub use published::{Better, Published};
pub use setup::Setup;
pub use traffic::{Flood, Idle, Packets, Ping, Quic, Tcp, Traffic, Udp};
pub use tunnel::{TunnelKind, TunnelTable};
pub use via::Via;

/// A parsed scenario file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A short name; it becomes part of the result directory's.
    pub name: String,
    /// What it shows, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Decides all chance events.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// See [`Spec::server_routes_all`].
    #[serde(default)]
    pub server_routes_all: bool,
    /// How many edges there are.
    #[serde(default = "one_edge")]
    pub edges: usize,
    /// The links of each edge.
    #[serde(default)]
    pub link: Vec<LinkTable>,
    /// Several sets of links instead.
    #[serde(default)]
    variant: Vec<Variant>,
    /// What the hosts are given besides.
    #[serde(default)]
    setup: Vec<Setup>,
    /// The tunnel, if any step uses it.
    pub tunnel: Option<TunnelTable>,
    /// What to do.
    #[serde(default)]
    pub step: Vec<Step>,
    /// What others say of the same.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A `[[variant]]` table: the links of one variant of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    link: Vec<LinkTable>,
}

/// A `[[step]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the step is called in the report.
    pub name: String,
    /// Left out where there is little time (`--quick`).
    #[serde(default)]
    pub long: bool,
    /// How long traffic lasts that does not say so itself.
    #[serde(default = "default_seconds")]
    pub seconds: u32,
    /// Whether what the daemons hold and have changed has to be as before in the end.
    #[serde(default)]
    pub leaks: bool,
    /// Traffic goes through the tunnel and beside it at once, to see how they share a link.
    #[serde(default)]
    pub contend: bool,
    /// All of it starts together, unless `start_s` says otherwise.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// In order of time; once parsed, each occurrence and each end is one of them.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// The tunnel of traffic that goes through one; once parsed, there is a step for each.
    #[serde(skip)]
    pub tunnel: TunnelKind,
}

impl Step {
    /// Whether any traffic goes through the tunnel.
    pub fn uses_tunnel(&self) -> bool {
        self.traffic
            .iter()
            .any(|traffic| *traffic.via() == Via::Tunnel)
    }

    /// The step over one of several tunnels.
    fn over(&self, tunnel: TunnelKind) -> Self {
        Self {
            name: format!("{tunnel}, {}", self.name),
            tunnel,
            ..self.clone()
        }
    }
}

/// A duration written as a number of seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "f64")]
pub struct Seconds(pub Duration);

impl TryFrom<f64> for Seconds {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Self, String> {
        let sane = (0.0..=86_400.0).contains(&seconds);
        let duration = sane.then(|| Duration::from_secs_f64(seconds));
        duration
            .map(Self)
            .ok_or_else(|| format!("{seconds} seconds are not within a day"))
    }
}

impl Scenario {
    /// Parses and checks a scenario; errors name the line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut scenario: Self =
            toml::from_str(text).map_err(|error| Error::Scenario(error.to_string()))?;
        if scenario.link.is_empty() == scenario.variant.is_empty() {
            let reason = "it needs either [[link]] or [[variant]] tables";
            return Err(Error::Scenario(reason.into()));
        }
        if let Some(tunnel) = &scenario.tunnel {
            tunnel.check_only(scenario.edges)?;
        }
        for variant in scenario.variants() {
            variant.spec()?.check()?;
            for step in &variant.step {
                let at = |reason| {
                    Error::Scenario(format!("{}, step {:?}: {reason}", variant.name, step.name))
                };
                variant.check_step(step).map_err(at)?;
            }
        }
        scenario.check_published()?;
        for step in &mut scenario.step {
            let faults = step.fault.iter();
            step.fault = faults
                .flat_map(|fault| fault.occurrences(scenario.edges))
                .collect();
            step.fault.sort_by_key(|fault| fault.at_s.0);
        }
        let watched = scenario.step.iter().any(|step| step.leaks);
        if let Some(tunnel) = &mut scenario.tunnel {
            tunnel.watched = watched;
        }
        scenario.step = scenario.steps_over_tunnels();
        Ok(scenario)
    }

    /// Whether there is something to play: links alone are a scenario too, to hold them.
    pub(crate) fn check_plays(&self) -> Result<(), Error> {
        if self.step.is_empty() {
            let name = &self.name;
            return Err(Error::Scenario(format!(
                "{name:?} has no [[step]] to play (with --quick none that is not `long`)"
            )));
        }
        let is_empty = |step: &&Step| step.traffic.is_empty() && step.fault.is_empty();
        match self.step.iter().find(is_empty) {
            Some(step) => Err(Error::Scenario(format!(
                "step {:?} has neither [[step.traffic]] nor [[step.fault]]",
                step.name
            ))),
            None => Ok(()),
        }
    }

    fn check_published(&self) -> Result<(), Error> {
        self.published.iter().try_for_each(|published| {
            let what = &published.what;
            let checked = published.check(&self.step);
            checked.map_err(|reason| Error::Scenario(format!("published {what:?}: {reason}")))
        })
    }

    /// The scenario without what takes long.
    #[must_use]
    pub fn quick(mut self) -> Self {
        let long = |name: &str| self.step.iter().any(|step| step.long && step.name == name);
        let published = self.published.clone().into_iter();
        self.published = published.filter(|it| !long(&it.step)).collect();
        self.step.retain(|step| !step.long);
        self
    }

    /// Baselines, then all steps over one tunnel after the other; as they are if there is only one.
    fn steps_over_tunnels(&self) -> Vec<Step> {
        let kinds = self.tunnel.as_ref().map_or(&[][..], |tunnel| &tunnel.kind);
        if kinds.len() < 2 {
            let kind = kinds.first().copied().unwrap_or_default();
            let over = |step: &Step| Step {
                tunnel: kind,
                ..step.clone()
            };
            return self.step.iter().map(over).collect();
        }
        let (over, baselines): (Vec<Step>, Vec<_>) =
            self.step.iter().cloned().partition(Step::uses_tunnel);
        let all = |kind: &TunnelKind| over.iter().map(|step| step.over(*kind)).collect::<Vec<_>>();
        baselines
            .into_iter()
            .chain(kinds.iter().flat_map(all))
            .collect()
    }

    /// The scenario with each of its sets of links; only itself if it has one.
    pub fn variants(&self) -> Vec<Self> {
        if self.variant.is_empty() {
            return vec![self.clone()];
        }
        let with_links = |variant: &Variant| Self {
            name: format!("{}-{}", self.name, variant.name),
            link: variant.link.clone(),
            variant: Vec::new(),
            ..self.clone()
        };
        self.variant.iter().map(with_links).collect()
    }

    /// What to build.
    pub fn spec(&self) -> Result<Spec, Error> {
        let links = self
            .link
            .iter()
            .map(LinkTable::link)
            .collect::<Result<_, _>>()?;
        Ok(Spec {
            edges: self.edges,
            links,
            seed: self.seed,
            server_routes_all: self.server_routes_all,
        })
    }

    /// Builds the hosts and links, and sets the hosts up.
    pub fn build(&self) -> Result<Lab, Error> {
        let lab = Lab::new(&self.spec()?)?;
        self.setup.iter().try_for_each(|setup| setup.apply(&lab))?;
        Ok(lab)
    }

    /// Other tunnels than ours are two programs with an address each.
    fn check_tunnels(&self, step: &Step) -> Result<(), String> {
        let kinds = self.tunnel.as_ref().map_or(&[][..], |tunnel| &tunnel.kind);
        if kinds.is_empty() {
            return Err("`kind` of [tunnel] names no tunnel".into());
        }
        let ours = kinds.iter().all(|kind| *kind == TunnelKind::Sennit);
        let between_ends =
            |traffic: &Traffic| traffic.from() == Role::Edge && traffic.to() == Role::Hub;
        if !ours && !step.traffic.iter().all(between_ends) {
            return Err("other tunnels carry traffic from the edge to the hub only".into());
        }
        match !ours && !step.fault.is_empty() {
            true => Err("nothing is broken under other tunnels".into()),
            false => Ok(()),
        }
    }

    /// What several edges do, they do all at once and without knowing of each other.
    fn check_edges(&self, step: &Step) -> Result<(), String> {
        step.fault.iter().try_for_each(Fault::check_edges)?;
        let kinds = self.tunnel.iter().flat_map(|tunnel| &tunnel.kind);
        if let Some(other) = kinds.into_iter().find(|kind| **kind != TunnelKind::Sennit) {
            return Err(format!("{other} joins one edge, and there are several"));
        }
        step.traffic.iter().try_for_each(Traffic::check_edges)
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        if self.edges > 1 {
            self.check_edges(step)?;
        }
        let known = |name: &str| match self.link.iter().any(|link| link.name == name) {
            true => Ok(()),
            false => Err(format!("there is no link {name:?}")),
        };
        let edges = step.traffic.iter().filter_map(Traffic::edge);
        let mut edges = edges.chain(step.fault.iter().filter_map(|fault| fault.edge));
        if let Some(edge) = edges.find(|edge| !(1..=self.edges).contains(edge)) {
            let all = self.edges;
            return Err(format!(
                "there is no edge {edge}, they are numbered 1 to {all}"
            ));
        }
        let has_disk = self.tunnel.as_ref().is_some_and(|it| it.disk_mb.is_some());
        if !has_disk && step.fault.iter().any(|it| it.action == Action::FillDisk) {
            return Err("a disk is filled, but [tunnel] has no `disk_mb`".into());
        }
        let mut single = None;
        for traffic in &step.traffic {
            traffic.check()?;
            match traffic.via() {
                Via::Tunnel if self.tunnel.is_none() => {
                    return Err("traffic via the tunnel, but there is no [tunnel]".into());
                }
                Via::Link(name) if single.get_or_insert(name) != &name => {
                    return Err("traffic via different links belongs in different steps".into());
                }
                Via::Link(name) => known(name)?,
                Via::Tunnel | Via::Mptcp => {}
            }
        }
        if step.uses_tunnel() {
            self.check_tunnels(step)?;
        }
        if step.uses_tunnel()
            && !step.contend
            && step
                .traffic
                .iter()
                .any(|traffic| *traffic.via() != Via::Tunnel)
        {
            return Err(
                "traffic through the tunnel and beside it belongs in different steps".into(),
            );
        }
        step.fault.iter().try_for_each(|fault| {
            fault.link.as_deref().map_or(Ok(()), known)?;
            fault.check()?;
            self.link.iter().try_for_each(|link| fault.check_on(link))
        })?;
        match step.fault.is_sorted_by_key(|fault| fault.at_s.0) {
            true => Ok(()),
            false => Err("faults are not in order of time".into()),
        }
    }
}

fn default_seed() -> u64 {
    1
}

fn one_edge() -> usize {
    1
}

fn default_seconds() -> u32 {
    10
}
