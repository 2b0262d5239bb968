//! Scenario files: what to build, what to run on it, what to break meanwhile.
//!
//! ```toml
//! name = "demo"
//! seed = 1                         # of all chance events, default 1
//! server_routes_all = false        # true: the server answers private addresses without NAT
//!
//! [[link]]
//! name = "fast"                    # devices are called wan-fast
//! kind = "emulated"                # or "veth": unshaped
//! mtu = 1500
//! rate_mbit = 300                  # of Ethernet frames; absent = unlimited
//! delay_ms = 10                    # one way
//! jitter_ms = 2                    # half width, or standard deviation with "normal"
//! jitter_shape = "uniform"         # or "normal"
//! reorder = false                  # whether jitter reorders
//! loss_percent = 0.5
//! burst = 4                        # mean length of loss bursts; absent = independent losses
//! queue_ms = 50                    # or queue_bytes; default 50 ms, at least 64 KiB
//! up = { rate_mbit = 40 }          # differs in this direction (edge to hub); also `down`
//!
//! [tunnel]                         # absent: no step may use the tunnel
//! edge = { mtu = 1400 }            # added to [edge] of the edge's config, also `hub`
//! link.fast = { tier = 1 }         # added to the [[link]] of the edge's config
//! [[tunnel.class]]                 # the [[class]] tables of the edge's config, as they are
//! name = "default"
//!
//! [[step]]                         # steps run one after the other
//! name = "four streams"
//! seconds = 10                     # of traffic and faults that do not say otherwise
//!   [[step.traffic]]
//!   kind = "tcp"                   # iperf3; "udp" is iperf3 -u, "ping" is ICMP
//!   via = "tunnel"                 # "link:fast" = that link without a tunnel; "mptcp" = all links
//!   direction = "down"             # towards the edge (default), or "up"
//!   streams = 4
//!   congestion = "cubic"           # of the traffic's own TCP
//!   start_s = 0                    # after the start of the step
//!   [[step.traffic]]
//!   kind = "ping"
//!   interval_ms = 100
//!   [[step.fault]]
//!   at_s = 3
//!   link = "fast"
//!   action = "outage"              # silent; see `Action` for the others
//! ```
//!
//! Unknown keys are errors. After each step the links are as at the start of it.

use std::collections::BTreeMap;
use std::time::Duration;

use sennit_netem::{Bitrate, Config, Jitter, Loss, Queue, Shape as JitterShape};
use serde::Deserialize;

use crate::error::Error;
use crate::host::Role;
use crate::lab::Spec;
use crate::link::{Direction, Kind, LinkSpec};

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
    /// The links.
    pub link: Vec<LinkTable>,
    /// The tunnel, if any step uses it.
    pub tunnel: Option<TunnelTable>,
    /// What to do.
    #[serde(default)]
    pub step: Vec<Step>,
}

/// A `[[link]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    name: String,
    #[serde(default)]
    kind: Kind,
    mtu: Option<u32>,
    #[serde(default)]
    up: Shape,
    #[serde(default)]
    down: Shape,
    #[serde(flatten)]
    both: Shape,
}

/// Properties of a link that a scenario sets or changes; what is absent stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    rate_mbit: Option<f64>,
    delay_ms: Option<f64>,
    jitter_ms: Option<f64>,
    jitter_shape: Option<JitterKind>,
    reorder: Option<bool>,
    loss_percent: Option<f64>,
    burst: Option<f64>,
    queue_ms: Option<f64>,
    queue_bytes: Option<usize>,
    outage: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JitterKind {
    Uniform,
    Normal,
}

/// The `[tunnel]` table: what is added to the configs of edge and hub.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TunnelTable {
    /// Keys of `[edge]`.
    pub edge: toml::Table,
    /// Keys of `[hub]`.
    pub hub: toml::Table,
    /// Keys of the edge's `[[link]]`, by link name.
    pub link: BTreeMap<String, toml::Table>,
    /// The edge's `[[class]]` tables.
    pub class: Vec<toml::Table>,
}

/// A `[[step]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the step is called in the report.
    pub name: String,
    /// How long traffic lasts that does not say so itself.
    #[serde(default = "default_seconds")]
    pub seconds: u32,
    /// All of it starts together, unless `start_s` says otherwise.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// In order of time.
    #[serde(default)]
    pub fault: Vec<Fault>,
}

/// A `[[step.traffic]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Traffic {
    /// Bulk TCP.
    Tcp(Tcp),
    /// UDP at a constant rate.
    Udp(Udp),
    /// ICMP echo.
    Ping(Ping),
}

/// Which way traffic takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Via {
    /// Through Sennit.
    #[default]
    Tunnel,
    /// Over one link without a tunnel.
    Link(String),
    /// Kernel MPTCP over all links, without a tunnel.
    Mptcp,
}

/// Bulk TCP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// The near host: `lan` (default) or `edge`. MPTCP runs on the edge, which has the links.
    #[serde(default = "lan")]
    pub from: Role,
    /// Which way the data goes.
    #[serde(default = "down")]
    pub direction: Direction,
    /// Parallel connections.
    #[serde(default = "one")]
    pub streams: u32,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The sender's congestion control.
    #[serde(default = "cubic")]
    pub congestion: String,
    /// The server's port; default: one that nothing else in the step uses.
    pub port: Option<u16>,
    /// DSCP of its packets.
    #[serde(default)]
    pub dscp: u8,
}

/// UDP at a constant rate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// Default: the tunnel. MPTCP carries no UDP.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// Which way the data goes.
    #[serde(default = "down")]
    pub direction: Direction,
    /// Payload bits per second.
    pub rate_mbit: f64,
    /// Payload bytes per packet.
    #[serde(default = "kilobyte")]
    pub bytes: u16,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// The server's port; default: one that nothing else in the step uses.
    pub port: Option<u16>,
    /// DSCP of its packets.
    #[serde(default)]
    pub dscp: u8,
}

/// ICMP echo from the near host to the server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Default: the tunnel.
    #[serde(default)]
    pub via: Via,
    /// The near host.
    #[serde(default = "lan")]
    pub from: Role,
    /// Between two requests.
    #[serde(default = "tenth")]
    pub interval_ms: f64,
    /// Default: the step's.
    pub seconds: Option<u32>,
    /// After the start of the step.
    #[serde(default)]
    pub start_s: Seconds,
    /// Payload bytes.
    #[serde(default = "ping_bytes")]
    pub bytes: u16,
    /// DSCP of its packets.
    #[serde(default)]
    pub dscp: u8,
}

/// A `[[step.fault]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// After the start of the step.
    pub at_s: Seconds,
    /// The link it happens to; absent for those of daemons.
    pub link: Option<String>,
    /// What happens.
    pub action: Action,
    /// The change, with `action = "set"`.
    pub set: Option<Shape>,
    /// The direction of an outage or change; absent = both.
    pub direction: Option<Direction>,
}

/// What a fault does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Everything is lost, and nobody is told.
    Outage,
    /// The end of an outage, and of every change made by `set`.
    Restore,
    /// The properties in `set` change.
    Set,
    /// The edge's device loses its carrier.
    CarrierDown,
    /// It has it again.
    CarrierUp,
    /// The edge's device is set down by its administrator.
    DeviceDown,
    /// It is up again, with addresses and routes.
    DeviceUp,
    /// The edge's addresses on the link are removed.
    AddressRemove,
    /// They are back.
    AddressAdd,
    /// They are replaced by others.
    AddressChange,
    /// The hub is stopped and started.
    RestartHub,
    /// The edge is killed and started.
    RestartEdge,
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

impl TryFrom<String> for Via {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "tunnel" => Ok(Self::Tunnel),
            "mptcp" => Ok(Self::Mptcp),
            other => match other.strip_prefix("link:") {
                Some(name) => Ok(Self::Link(name.into())),
                None => Err(format!(
                    "{text:?} is not \"tunnel\", \"mptcp\" or \"link:NAME\""
                )),
            },
        }
    }
}

impl Traffic {
    /// The way it takes.
    pub fn via(&self) -> &Via {
        match self {
            Self::Tcp(Tcp { via, .. })
            | Self::Udp(Udp { via, .. })
            | Self::Ping(Ping { via, .. }) => via,
        }
    }

    /// The near host.
    pub fn from(&self) -> Role {
        match self {
            Self::Tcp(Tcp { from, .. })
            | Self::Udp(Udp { from, .. })
            | Self::Ping(Ping { from, .. }) => *from,
        }
    }

    /// Start after the start of the step, and length.
    pub fn span(&self, step: &Step) -> (Duration, u32) {
        let (start, seconds) = match self {
            Self::Tcp(tcp) => (tcp.start_s, tcp.seconds),
            Self::Udp(udp) => (udp.start_s, udp.seconds),
            Self::Ping(ping) => (ping.start_s, ping.seconds),
        };
        (start.0, seconds.unwrap_or(step.seconds))
    }
}

impl Scenario {
    /// Parses and checks a scenario; errors name the line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| Error::Scenario(error.to_string()))?;
        scenario.spec()?;
        for step in &scenario.step {
            let at = |reason| Error::Scenario(format!("step {:?}: {reason}", step.name));
            scenario.check_step(step).map_err(at)?;
        }
        Ok(scenario)
    }

    /// What to build.
    pub fn spec(&self) -> Result<Spec, Error> {
        let links = self
            .link
            .iter()
            .map(LinkTable::spec)
            .collect::<Result<_, _>>()?;
        Ok(Spec {
            links,
            seed: self.seed,
            server_routes_all: self.server_routes_all,
        })
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        let known = |name: &str| match self.link.iter().any(|link| link.name == name) {
            true => Ok(()),
            false => Err(format!("there is no link {name:?}")),
        };
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
        let tunnel = step
            .traffic
            .iter()
            .any(|traffic| *traffic.via() == Via::Tunnel);
        if tunnel
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
            fault.check()
        })?;
        match step.fault.is_sorted_by_key(|fault| fault.at_s.0) {
            true => Ok(()),
            false => Err("faults are not in order of time".into()),
        }
    }
}

impl Traffic {
    fn check(&self) -> Result<(), String> {
        if !matches!(self.from(), Role::Lan | Role::Edge) {
            return Err("`from` is the near host, lan or edge".into());
        }
        match self {
            Self::Tcp(tcp) if !(1..=128).contains(&tcp.streams) => {
                Err("`streams` is 1 to 128".into())
            }
            Self::Tcp(tcp) if tcp.via == Via::Mptcp && tcp.dscp != 0 => {
                Err("`dscp` cannot be set on MPTCP".into())
            }
            Self::Udp(udp) if udp.via == Via::Mptcp => Err("MPTCP carries no UDP".into()),
            Self::Udp(udp) if !(udp.rate_mbit > 0.0 && udp.bytes >= 16) => {
                Err("UDP needs a rate and at least 16 bytes per packet".into())
            }
            Self::Ping(ping) if ping.via == Via::Mptcp => Err("MPTCP carries no ping".into()),
            Self::Ping(ping) if !(2.0..=10_000.0).contains(&ping.interval_ms) => {
                Err("`interval_ms` is 2 to 10000".into())
            }
            Self::Tcp(_) | Self::Udp(_) | Self::Ping(_) => Ok(()),
        }
    }
}

impl Fault {
    fn check(&self) -> Result<(), String> {
        let daemon = matches!(self.action, Action::RestartHub | Action::RestartEdge);
        if daemon == self.link.is_some() {
            return Err(format!(
                "fault {:?}: `link` is missing or too much",
                self.action
            ));
        }
        if (self.action == Action::Set) != self.set.is_some() {
            return Err("`set` and action = \"set\" belong together".into());
        }
        Ok(())
    }
}

impl LinkTable {
    fn spec(&self) -> Result<LinkSpec, Error> {
        let mtu = self.mtu.unwrap_or(1500);
        let base = Config {
            mtu: mtu as usize,
            ..Config::default()
        };
        let direction = |own: &Shape| {
            self.both
                .applied(&base)
                .and_then(|both| own.applied(&both))
                .map_err(|reason| Error::Scenario(format!("link {:?}: {reason}", self.name)))
        };
        let (up, down) = (direction(&self.up)?, direction(&self.down)?);
        if self.kind == Kind::Veth && [&self.both, &self.up, &self.down] != [&Shape::default(); 3] {
            return Err(Error::Scenario(format!(
                "link {:?}: a veth cannot be shaped",
                self.name
            )));
        }
        Ok(LinkSpec {
            name: self.name.clone(),
            kind: self.kind,
            up,
            down,
            mtu,
        })
    }
}

impl Shape {
    /// `config` with what is set here changed.
    pub fn applied(&self, config: &Config) -> Result<Config, String> {
        let mut config = config.clone();
        if let Some(rate) = self.rate_mbit {
            let sane = (0.001..=100_000.0).contains(&rate);
            let rate = sane.then(|| Bitrate::bps((rate * 1e6).round() as u64));
            config.rate = Some(rate.ok_or("`rate_mbit` is 0.001 to 100000")?);
        }
        if let Some(delay) = self.delay_ms {
            config.delay = millis("delay_ms", delay)?;
        }
        self.apply_jitter(&mut config)?;
        self.apply_loss(&mut config)?;
        config.queue = match (self.queue_ms, self.queue_bytes) {
            (Some(_), Some(_)) => return Err("`queue_ms` excludes `queue_bytes`".into()),
            (Some(time), None) => Queue::Time(millis("queue_ms", time)?),
            (None, Some(bytes)) => Queue::Bytes(bytes),
            (None, None) => config.queue,
        };
        config.outage = self.outage.unwrap_or(config.outage);
        Ok(config)
    }

    fn apply_jitter(&self, config: &mut Config) -> Result<(), String> {
        let Jitter {
            spread,
            shape,
            reorder,
        } = config.jitter;
        config.jitter = Jitter {
            spread: self
                .jitter_ms
                .map_or(Ok(spread), |jitter| millis("jitter_ms", jitter))?,
            shape: match self.jitter_shape {
                Some(JitterKind::Uniform) => JitterShape::Uniform,
                Some(JitterKind::Normal) => JitterShape::Normal,
                None => shape,
            },
            reorder: self.reorder.unwrap_or(reorder),
        };
        Ok(())
    }

    fn apply_loss(&self, config: &mut Config) -> Result<(), String> {
        if self.loss_percent.is_none() && self.burst.is_none() {
            return Ok(());
        }
        let ratio = self
            .loss_percent
            .map_or(config.loss.ratio().unwrap_or(0.0), |p| p / 100.0);
        if !(0.0..1.0).contains(&ratio) {
            return Err("`loss_percent` is 0 to less than 100; `outage` loses everything".into());
        }
        config.loss = match self.burst {
            Some(burst) if burst >= 1.0 => Loss::bursts(ratio, burst),
            Some(_) => return Err("`burst` is at least 1 packet".into()),
            None if ratio == 0.0 => Loss::None,
            None => Loss::Random(ratio),
        };
        Ok(())
    }
}

fn millis(key: &str, value: f64) -> Result<Duration, String> {
    let sane = (0.0..=60_000.0).contains(&value);
    let duration = sane.then(|| Duration::from_secs_f64(value / 1e3));
    duration.ok_or_else(|| format!("`{key}` is 0 to 60000"))
}

fn default_seed() -> u64 {
    1
}

fn default_seconds() -> u32 {
    10
}

fn lan() -> Role {
    Role::Lan
}

fn down() -> Direction {
    Direction::Down
}

fn one() -> u32 {
    1
}

fn cubic() -> String {
    "cubic".into()
}

fn kilobyte() -> u16 {
    1000
}

fn tenth() -> f64 {
    100.0
}

fn ping_bytes() -> u16 {
    56
}
