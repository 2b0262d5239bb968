//! One link between edge and hub: what is asked of it, and the devices that it is made of.

use std::sync::Mutex;
use std::time::Duration;

use sennit_linux::DeviceName;
use sennit_linux::tun::{Offload, Tun, TunConfig};
use sennit_netem::{Config, Direction, LinkSpec, NatConfig};

use crate::error::{Doing, Error};
use crate::host::Host;
use crate::plan::{Dual, numbered};
use crate::programs;

/// A bucket holds two frames at least, so that one that comes late does not cost the next its turn.
const BUCKET_FRAMES: usize = 2;

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
    pub(crate) name: String,
    /// The index of the site.
    pub(crate) site: usize,
    /// Its directions in the emulator, if it is emulated.
    pub(crate) pipes: Option<[usize; 2]>,
    /// The index of its NAT box in the emulator.
    pub(crate) nat: Option<usize>,
    /// How its directions are configured at the moment.
    pub(crate) now: Mutex<[Config; 2]>,
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
}

/// The devices of a link that is not emulated.
pub(crate) fn connect(hosts: [&Host; 2], link: &Attached) -> Result<(), Error> {
    connect_veth(hosts, link)?;
    match link.spec.kind {
        Kind::Tbf => limit_rate(hosts, link),
        Kind::Veth | Kind::Emulated => Ok(()),
    }
}

/// A veth pair between edge and hub.
fn connect_veth([edge, hub]: [&Host; 2], link: &Attached) -> Result<(), Error> {
    let (device, mtu) = (link.device(), link.spec.mtu);
    let peer = format!("peer name {device} mtu {mtu} netns {}", hub.name());
    edge.ip(&format!("link add {device} mtu {mtu} type veth {peer}\n"))?;
    if link.spec.uso {
        return Ok(());
    }
    programs::require(&programs::OFFLOADS)?;
    let line = ["ethtool", "-K", &device, "tx-udp-segmentation", "off"];
    [edge, hub]
        .into_iter()
        .try_for_each(|host| host.exec(&line).map(drop))
}

/// Puts the kernel's token bucket (tc-tbf(8)) at the sending end of each direction.
///
/// It counts frames with their Ethernet header, as the emulator does, and cuts super-packets that
/// are more than a bucket.
fn limit_rate(hosts: [&Host; 2], link: &Attached) -> Result<(), Error> {
    programs::require(&programs::RATES)?;
    let device = link.device();
    for (host, direction) in hosts.into_iter().zip(Direction::BOTH) {
        let config = link.spec.config(direction);
        let Some(rate) = config.rate else { continue };
        let frames = BUCKET_FRAMES * (config.mtu + config.frame_overhead);
        let burst = rate.bytes_in(link.spec.bucket).max(frames);
        let [rate, burst, limit] = [
            format!("{}bit", rate.as_bps()),
            format!("{burst}b"),
            format!("{}b", config.queue_limit()),
        ];
        let bucket = ["tbf", "rate", &rate, "burst", &burst, "limit", &limit];
        host.exec(&[&["tc", "qdisc", "add", "dev", &device, "root"], &bucket[..]].concat())?;
    }
    Ok(())
}

/// One end of an emulated link.
pub(crate) fn open_tun(host: &Host, link: &Attached) -> Result<Tun, Error> {
    let device = link.device();
    let name: DeviceName = device.parse()?;
    let config = TunConfig {
        name,
        mtu: link.spec.mtu,
        queues: 1,
        offload: Offload::None,
    };
    let opened = host.netns().run(|| Tun::open(&config));
    let mut queues = opened.doing(|| format!("enter {}", host.name()))??;
    Ok(queues.pop().expect("one queue was asked for"))
}

/// The lines that put addresses on a device and bring it up.
pub(crate) fn addressed(device: &str, Dual { v4, v6 }: Dual) -> String {
    format!(
        "address add {v4}/24 dev {device}\n\
         address add {v6}/64 dev {device} nodad\n\
         link set {device} up\n"
    )
}
