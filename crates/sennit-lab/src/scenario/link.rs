//! `[[link]]` tables, and the changes that a fault's `set` makes.

use std::sync::Arc;
use std::time::Duration;

use sennit_netem::{
    Bitrate, Config, Dependence, Direction, Jitter, LinkSpec, Loss, NatConfig, Queue,
    Shape as JitterShape, Trace,
};
use serde::Deserialize;

use super::Seconds;
use crate::error::Error;
use crate::link::{BUCKET, Kind, LabLink};

/// The smallest that IPv4 allows (RFC 791).
const PATH_MTU_MIN: usize = 68;

/// More than preamble, gap, tags and headers of any Ethernet.
const FRAME_MOST: usize = 100;

/// A `[[link]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    pub(super) name: String,
    #[serde(default)]
    kind: Kind,
    mtu: Option<u32>,
    uso: Option<bool>,
    bucket_ms: Option<f64>,
    nat: Option<NatTable>,
    #[serde(default)]
    shared: bool,
    /// The short text, where the other keys begin.
    spec: Option<LinkSpec>,
    #[serde(default)]
    up: Shape,
    #[serde(default)]
    down: Shape,
    #[serde(flatten)]
    both: Shape,
}

/// The `nat` of a link.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NatTable {
    mapping: Depends,
    filtering: Depends,
    timeout_s: Option<Seconds>,
    inbound_refreshes: bool,
}

/// What a mapping or filter depends on, in the words of RFC 4787.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Depends {
    EndpointIndependent,
    Address,
    #[default]
    AddressAndPort,
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
    /// All packets whose bytes from the IP header on are in one of these ranges, both ends with it,
    /// are lost, and no others: a sender that counts by sizes so has the ones lost that it chose.
    lose_sizes: Option<Vec<[usize; 2]>>,
    queue_ms: Option<f64>,
    queue_bytes: Option<usize>,
    outage: Option<bool>,
    trace: Option<String>,
    frame_bytes: Option<usize>,
    path_mtu: Option<usize>,
    path_mtu_icmp: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JitterKind {
    Uniform,
    Normal,
}

impl LinkTable {
    /// The largest MTU that its devices may have: the emulator reads no more of a packet than that
    /// of the link that it was made for.
    pub(super) fn mtu_most(&self) -> u32 {
        match self.kind {
            Kind::Emulated => self.mtu(),
            Kind::Veth | Kind::Tbf => u32::MAX,
        }
    }

    fn mtu(&self) -> u32 {
        self.mtu.unwrap_or(1500)
    }

    /// The link that it asks for.
    pub(super) fn link(&self) -> Result<LabLink, Error> {
        let mtu = self.mtu();
        let plain = LinkSpec::symmetric(Config::default());
        let base = |direction| Config {
            mtu: mtu as usize,
            ..self.spec.as_ref().unwrap_or(&plain).way(direction).clone()
        };
        let wrong = |reason| Error::Scenario(format!("link {:?}: {reason}", self.name));
        let way = |direction, own: &Shape| {
            self.both
                .applied(&base(direction))
                .and_then(|both| own.applied(&both))
                .map_err(wrong)
        };
        let shape = LinkSpec {
            up: way(Direction::Up, &self.up)?,
            down: way(Direction::Down, &self.down)?,
        };
        let bucket = self.bucket_ms.map_or(Ok(BUCKET), bucket).map_err(wrong)?;
        let shapes = [&self.both, &self.up, &self.down];
        let refused = match self.kind {
            Kind::Veth if self.spec.is_some() || shapes != [&Shape::default(); 3] => {
                Some("a veth cannot be shaped")
            }
            Kind::Emulated | Kind::Tbf if self.uso.is_some() => Some("only a veth has `uso`"),
            Kind::Emulated | Kind::Veth if self.bucket_ms.is_some() => {
                Some("only a tbf has `bucket_ms`")
            }
            Kind::Tbf
                if !Direction::BOTH
                    .into_iter()
                    .all(|direction| is_bucket(shape.way(direction), mtu)) =>
            {
                Some("a tbf has a rate and a queue, and nothing else")
            }
            Kind::Emulated if self.shared && shape.up != shape.down => {
                Some("both directions of a `shared` link are alike")
            }
            Kind::Veth | Kind::Tbf if self.shared => Some("only an emulated link is `shared`"),
            Kind::Veth | Kind::Tbf if self.nat.is_some() => {
                Some("only an emulated link has a NAT box")
            }
            Kind::Emulated | Kind::Veth | Kind::Tbf => None,
        };
        if let Some(reason) = refused {
            return Err(wrong(reason.into()));
        }
        Ok(LabLink {
            name: self.name.clone(),
            kind: self.kind,
            uso: self.uso.unwrap_or(true),
            bucket,
            nat: self.nat.as_ref().map(NatTable::config),
            shared: self.shared,
            shape,
            mtu,
        })
    }
}

impl NatTable {
    fn config(&self) -> NatConfig {
        let usual = NatConfig::default();
        NatConfig {
            mapping: self.mapping.into(),
            filtering: self.filtering.into(),
            timeout: self.timeout_s.map_or(usual.timeout, |timeout| timeout.0),
            inbound_refreshes: self.inbound_refreshes,
        }
    }
}

impl From<Depends> for Dependence {
    fn from(depends: Depends) -> Self {
        match depends {
            Depends::EndpointIndependent => Self::Endpoint,
            Depends::Address => Self::Address,
            Depends::AddressAndPort => Self::AddressAndPort,
        }
    }
}

impl Shape {
    /// `config` with what is set here changed.
    pub fn applied(&self, config: &Config) -> Result<Config, String> {
        let mut config = config.clone();
        if let Some(trace) = &self.trace {
            config = moving(config, trace)?;
        }
        if let Some(rate) = self.rate_mbit {
            let rate = Bitrate::from_mbit(rate).ok_or_else(|| {
                let [least, most] = Bitrate::RANGE_MBIT;
                format!("`rate_mbit` is {least} to {most}")
            })?;
            config.rate = Some(rate);
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
        if let Some(bytes) = self.frame_bytes {
            let sane = bytes <= FRAME_MOST;
            config.frame_overhead = sane.then_some(bytes).ok_or("`frame_bytes` is 0 to 100")?;
        }
        config.outage = self.outage.unwrap_or(config.outage);
        config.tells_mtu = self.path_mtu_icmp.unwrap_or(config.tells_mtu);
        if let Some(mtu) = self.path_mtu {
            let sane = (PATH_MTU_MIN..=9000).contains(&mtu);
            config.mtu = sane
                .then_some(mtu)
                .ok_or("`path_mtu` is 68 to 9000 bytes")?;
        }
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

    fn lose(&self, sizes: &[[usize; 2]], config: &mut Config) -> Result<(), String> {
        if self.loss_percent.is_some() || self.burst.is_some() {
            return Err("`lose_sizes` excludes `loss_percent` and `burst`".into());
        }
        if sizes.iter().any(|[least, most]| least > most) {
            return Err("each of `lose_sizes` is [least, most]".into());
        }
        let ranges = sizes.iter().map(|&[least, most]| least..=most);
        config.loss = Loss::Sizes(ranges.collect());
        Ok(())
    }

    fn apply_loss(&self, config: &mut Config) -> Result<(), String> {
        if let Some(sizes) = &self.lose_sizes {
            return self.lose(sizes, config);
        }
        if self.loss_percent.is_none() && self.burst.is_none() {
            return Ok(());
        }
        let ratio = self
            .loss_percent
            .map_or(config.loss.ratio(), Loss::ratio_of_percent);
        if ratio.is_none() && self.loss_percent.is_some() {
            return Err("`loss_percent` is 0 to less than 100; `outage` loses everything".into());
        }
        let ratio = ratio.unwrap_or(0.0);
        config.loss = match self.burst {
            Some(burst) => bursts(ratio, burst)?,
            None if ratio == 0.0 => Loss::None,
            None => Loss::Random(ratio),
        };
        Ok(())
    }
}

/// A link that follows a script: a motion like `lte@7`, or one of a file.
fn moving(config: Config, text: &str) -> Result<Config, String> {
    let (queue, trace) = match sennit_netem::script(text) {
        Ok((motion, trace)) => (motion.queue(), trace),
        Err(no_motion) => {
            let read = std::fs::read_to_string(text);
            let read =
                read.map_err(|error| format!("`trace`: {no_motion}, nor a file: {error}"))?;
            let trace = Trace::read(text, &read);
            let trace = trace.map_err(|error| format!("`trace` {text}: {error}"))?;
            (config.queue, trace)
        }
    };
    Ok(Config { queue, ..config }.moving(Arc::new(trace)))
}

fn bursts(ratio: f64, burst: f64) -> Result<Loss, String> {
    if !(burst.is_finite() && burst >= 1.0) {
        return Err("`burst` is a number of packets, at least 1".into());
    }
    let most = Loss::most_in_bursts(burst);
    if ratio > most {
        let (percent, most) = (ratio * 100.0, (most * 1000.0).floor() / 10.0);
        return Err(format!(
            "{percent:.1} % cannot be lost in bursts of {burst} packets, {most} % is the most: make \
             `burst` longer or `loss_percent` less"
        ));
    }
    Ok(Loss::bursts(ratio, burst))
}

/// Whether a token bucket can be what is asked.
fn is_bucket(config: &Config, mtu: u32) -> bool {
    let Config {
        rate,
        queue,
        frame_overhead,
        ..
    } = *config;
    let bucket = Config {
        rate,
        queue,
        frame_overhead,
        mtu: mtu as usize,
        ..Config::default()
    };
    let loses = config.loss.ratio() != Some(0.0);
    let loss = Loss::None;
    rate.is_some()
        && !loses
        && Config {
            loss,
            ..config.clone()
        } == bucket
}

/// What a token bucket saves up for.
fn bucket(ms: f64) -> Result<Duration, String> {
    let sane = (4.0..=250.0).contains(&ms);
    let duration = sane.then(|| Duration::from_secs_f64(ms / 1e3));
    duration.ok_or_else(|| "`bucket_ms` is 4 to 250".into())
}

fn millis(key: &str, value: f64) -> Result<Duration, String> {
    let most = Config::DELAY_MAX.as_millis();
    Config::delay_of_ms(value).ok_or_else(|| format!("`{key}` is 0 to {most}"))
}
