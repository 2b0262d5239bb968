//! The two config files, `hub.toml` and `edge.toml`.
//!
//! [`HubConfig::load`] and [`EdgeConfig::load`] read a file into plain typed data; past them only
//! checked values exist. Everything that is wrong with a file is found in one pass and comes back
//! as a [`Report`]: each [`Finding`] has its place, what is wrong and what would be right. A report
//! without errors may still carry warnings, for what is valid but hardly meant.
//!
//! Reading goes in three steps: `toml` parses with recovery, [`section`] walks the tables and
//! notices every key nobody asked for, [`hub`] and [`edge`] say which keys there are and check
//! what only the whole file can tell (two links on one interface, shares above 100 %).

mod api;
mod class;
mod connect_udp;
mod edge;
mod effective;
mod finding;
mod host;
mod hub;
mod limits;
mod matching;
mod named;
mod notify;
mod places;
mod private;
pub mod reference;
mod rekey;
mod salvage;
mod section;
mod values;

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{fmt, fs::File};

use ipnet::{Ipv4Net, Ipv6Net};
pub use sennit_engine::Share;
use sennit_engine::{Fec, Rekey};
use sennit_linux::DeviceName;
use sennit_packet::Bitrate;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::api::{ApiConfig, TlsFiles};
pub use self::connect_udp::ConnectUdp;
pub use self::effective::{Change, Entry, changes, effective, implied, render};
pub use self::finding::{Finding, Located, Report, Severity};
pub use self::host::HostFinding;
pub(crate) use self::host::{look_at_interfaces, look_at_lan};
pub(crate) use self::limits::MTU;
pub use self::matching::{Kernel, Match, PortRange};
pub(crate) use self::named::{NamedFile, Print, renewed};
pub use self::notify::{DEFAULT_EVENTS, Notify, NotifyKind};
pub(crate) use self::places::name_no_other_places;
pub(crate) use self::private::{hosts, without_secrets};
pub use self::salvage::{Salvaged, salvage};
use self::section::{Section, kind_of};
pub use self::values::SECRET_IN_CONFIG;
pub use crate::policy::{Congestion, Delivery, Headers, Leak, Policy};
use crate::reach::Reach;
use crate::remote::Remote;

/// A CIDR prefix without host bits.
pub type Prefix = ipnet::IpNet;

/// Where `sennit join` and `sennit hub init` keep identities unless told otherwise.
pub const DEFAULT_STATE: &str = "/var/lib/sennit";
/// The config that a hub reads if nobody names another, and that its unit names.
pub const DEFAULT_HUB_FILE: &str = "/etc/sennit/hub.toml";
/// The config that an edge reads if nobody names another, and that its unit names.
pub const DEFAULT_EDGE_FILE: &str = "/etc/sennit/edge.toml";
/// Control socket of a hub unless `control` says otherwise.
pub const DEFAULT_HUB_CONTROL: &str = "/run/sennit/hub.sock";
/// Control socket of an edge unless `control` says otherwise.
pub const DEFAULT_EDGE_CONTROL: &str = "/run/sennit/edge.sock";
/// Where daemons keep what must not survive a reboot.
pub const RUN_DIRECTORY: &str = "/run/sennit";
/// MTU of the TUN device unless `mtu` says otherwise: with all overhead a packet fits a link of
/// 1500 bytes over IPv6.
const DEFAULT_MTU: u16 = 1400;
/// Name of the TUN device unless `device` says otherwise.
pub const DEFAULT_DEVICE: &str = "sennit0";

fn default_device() -> DeviceName {
    DEFAULT_DEVICE.parse().expect("it is a device name")
}

/// A config is a page or two; anything near this size is not one.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `hub.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubConfig {
    pub listen: Vec<SocketAddr>,
    pub state: PathBuf,
    pub pool: Pool,
    /// Masquerade what leaves for the internet.
    pub nat: bool,
    pub device: DeviceName,
    pub control: PathBuf,
    /// MTU of the TUN device, in bytes.
    pub mtu: u16,
    /// Threads that carry packets, 1 to 64.
    pub workers: Option<u8>,
    /// When keys of tunnels are renewed.
    pub rekey: Rekey,
    /// What sites may reach of which the store says nothing.
    pub reach: Reach,
    /// What clients with a bearer token may reach of which the store says nothing.
    pub bearer_reach: Reach,
    /// Set if UDP is proxied for clients (RFC 9298).
    pub connect_udp: Option<ConnectUdp>,
    pub api: ApiConfig,
    /// No handshake without post-quantum key exchange.
    pub require_pq: bool,
    /// Sites may measure what their tunnels carry.
    pub speedtest: bool,
    /// Who is told of events.
    pub notify: Vec<Notify>,
    /// What the hub sends to a site on all its links together.
    pub site_limit: Option<Bitrate>,
    /// Which class takes a flow that begins behind the hub, in order of matching.
    pub classes: Vec<HubClass>,
}

/// Rules for one class of sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubClass {
    pub name: String,
    pub matches: Vec<Match>,
}

/// Address space from which sites get their inner addresses; at least one family is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    pub v4: Option<Ipv4Net>,
    pub v6: Option<Ipv6Net>,
}

/// `edge.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeConfig {
    pub hub: Vec<Remote>,
    /// Set when the far side is a CONNECT-IP proxy that is not a Sennit hub.
    pub proxy: Option<Proxy>,
    pub state: PathBuf,
    /// Where history, events and counters are kept: what is written every few seconds.
    pub records: PathBuf,
    pub device: DeviceName,
    /// What goes into the tunnel; empty when the router decides.
    pub routes: Vec<Prefix>,
    /// What becomes of `routes` while there is no tunnel.
    pub leak: Leak,
    /// What becomes of `routes` after an orderly stop.
    pub leak_when_stopped: Leak,
    /// Name servers that the host asks while there is a tunnel.
    pub dns: Vec<IpAddr>,
    /// Prefixes behind this edge.
    pub lan: Vec<Prefix>,
    /// Classes share links though nothing else is said of them.
    pub share_links: bool,
    pub control: PathBuf,
    /// MTU of the TUN device, in bytes.
    pub mtu: u16,
    /// Threads that carry packets, 1 to 64; more than there are classes are not needed.
    pub workers: Option<u8>,
    /// When keys of tunnels are renewed.
    pub rekey: Rekey,
    pub api: ApiConfig,
    /// Who is told of events.
    pub notify: Vec<Notify>,
    /// At least one.
    pub links: Vec<Link>,
    /// In order of matching; the last one that catches all is always there.
    pub classes: Vec<Class>,
}

/// How to trust and greet a third-party CONNECT-IP proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// PEM file with the root certificates that the proxy's certificate must chain to.
    pub ca: PathBuf,
    /// Name the proxy's certificate must bear; its address when absent.
    pub name: Option<String>,
    /// File that holds a bearer token.
    pub bearer: Option<PathBuf>,
}

/// One WAN interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    pub interface: String,
    /// 1 to 255, lower is preferred.
    pub tier: u8,
    /// 1 to 1000, for [`Policy::Balanced`].
    pub weight: u16,
    /// What is sent there at most.
    pub up: Option<Bitrate>,
    /// What the hub sends there at most.
    pub down: Option<Bitrate>,
    /// What a byte costs there, beside what it costs on others; 0 to 100.
    pub cost: u8,
    /// It helps while those before it are full.
    pub overflow: bool,
    /// Bytes that it may carry in a billing cycle, both ways.
    pub cap: Option<u64>,
    /// The day of the month on which a cycle begins, 1 to 31; in a shorter month its last day.
    pub reset_day: u8,
}

/// A rate as in a config, like `20Mbit`.
pub(crate) fn rate(text: &str) -> Result<Bitrate, String> {
    values::rate(text).map_err(|wrong| wrong.to_string())
}

/// One traffic class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    /// A packet belongs to the class when any of these matches.
    pub matches: Vec<Match>,
    pub policy: Policy,
    /// The names of the links that it may use; without a list it may use all.
    pub links: Option<Vec<String>>,
    /// Of each packet, for [`Policy::Redundant`]: 2 to 8.
    pub copies: u8,
    pub delivery: Delivery,
    pub congestion: Congestion,
    /// What is guaranteed to it on each link.
    pub share: Option<Share>,
    /// What it may send on all links together, each way.
    pub limit: Option<Bitrate>,
    /// Code point of its outer packets, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
    pub fec: Fec,
    /// How the headers of its packets travel.
    pub headers: Headers,
    /// A TUN device of its own: all that is routed there belongs to the class.
    pub device: Option<DeviceName>,
}

impl Class {
    /// True when the class takes every packet of the main device that reaches it.
    pub fn catches_all(&self) -> bool {
        self.matches.is_empty() && self.device.is_none()
    }
}

impl Default for Class {
    /// The class of a config that names none.
    fn default() -> Self {
        Self {
            name: "default".into(),
            matches: Vec::new(),
            policy: Policy::Bond,
            links: None,
            copies: 2,
            delivery: Delivery::Repair,
            congestion: Congestion::Auto,
            share: None,
            limit: None,
            dscp: None,
            fec: Fec::Auto,
            headers: Headers::Thin,
            device: None,
        }
    }
}

/// A checked config and the warnings that came with it.
#[derive(Clone, Debug)]
pub struct Loaded<C> {
    pub config: C,
    pub warnings: Report,
}

/// Which of the two files it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Config {
    Hub(HubConfig),
    Edge(EdgeConfig),
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Invalid(Report),
}

impl HubConfig {
    /// Reads `path` as a hub's config.
    pub fn load(path: &Path) -> Result<Loaded<Self>, ConfigError> {
        load(path, Self::parse)
    }

    /// Reads `source` as a hub's config; `file` is only named in findings.
    pub fn parse(file: &str, source: &[u8]) -> Result<Loaded<Self>, Report> {
        parse(file, source, hub::read)
    }
}

impl EdgeConfig {
    /// Reads `path` as an edge's config.
    pub fn load(path: &Path) -> Result<Loaded<Self>, ConfigError> {
        load(path, Self::parse)
    }

    /// Reads `source` as an edge's config; `file` is only named in findings.
    pub fn parse(file: &str, source: &[u8]) -> Result<Loaded<Self>, Report> {
        parse(file, source, edge::read)
    }

    /// What is unreachable while there is no tunnel.
    pub fn blocked(&self) -> &[Prefix] {
        match self.leak {
            Leak::Block => &self.routes,
            Leak::Allow => &[],
        }
    }
}

impl Config {
    /// Reads `path` as whichever config it is: the one with `[hub]` or the one with `[edge]`.
    pub fn load(path: &Path) -> Result<Loaded<Self>, ConfigError> {
        load(path, Self::parse)
    }

    /// Reads `source` as whichever config it is; `file` is only named in findings.
    pub fn parse(file: &str, source: &[u8]) -> Result<Loaded<Self>, Report> {
        parse(file, source, |root, source, findings| {
            if root.contains_key("hub") {
                return hub::read(root, source, findings).map(Self::Hub);
            }
            if root.contains_key("edge") || root.contains_key("link") {
                return edge::read(root, source, findings).map(Self::Edge);
            }
            let wrong = Finding::error(0..0, "neither a [hub] nor an [edge] section is here");
            findings
                .push(wrong.help("a hub's config has [hub], an edge's has [edge] and [[link]]"));
            None
        })
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub(_) => f.write_str("hub"),
            Self::Edge(_) => f.write_str("edge"),
        }
    }
}

fn load<C>(
    path: &Path,
    parse: impl FnOnce(&str, &[u8]) -> Result<Loaded<C>, Report>,
) -> Result<Loaded<C>, ConfigError> {
    let source = read_file(path).map_err(|source| ConfigError::Read {
        path: path.into(),
        source,
    })?;
    parse(&path.display().to_string(), &source).map_err(ConfigError::Invalid)
}

pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_open(File::open(path)?)
}

/// With so many bytes to spare, the standard library reads to the end of a file into the buffer
/// that it was given, and finds the end there.
const SPARE: usize = 64;

/// What is in a file, unless that is too long for a config.
pub(crate) fn read_open(file: File) -> io::Result<Vec<u8>> {
    // A buffer that grows leaves pieces of what may be a secret behind.
    let length = file.metadata()?.len().min(MAX_FILE_BYTES);
    let mut source = Vec::with_capacity(length as usize + SPARE);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut source)?;
    if source.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "larger than 1 MiB, not a config",
        ));
    }
    Ok(source)
}

/// A file that a daemon reads while it runs. It waits for nobody who writes into a pipe.
pub(crate) fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    read_file(path)
}

/// Parses TOML with recovery, hands the tables to `read`, and joins both kinds of findings.
fn parse<C>(
    file: &str,
    source: &[u8],
    read: impl FnOnce(&DeTable<'_>, &str, &mut Vec<Finding>) -> Option<C>,
) -> Result<Loaded<C>, Report> {
    let text = match std::str::from_utf8(source) {
        Ok(text) => text,
        Err(wrong) => {
            let at = wrong.valid_up_to();
            let finding = Finding::error(at..at + 1, "this byte is not UTF-8 text");
            let text = String::from_utf8_lossy(source);
            return Err(Report::new(
                file,
                &text,
                vec![finding.help("save the file as UTF-8")],
            ));
        }
    };
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut findings = Vec::new();
    let config = read(root.get_ref(), text, &mut findings);
    if !syntax.is_empty() {
        return Err(Report::new(
            file,
            text,
            finding::with_syntax(text, &syntax, findings),
        ));
    }
    let report = Report::new(file, text, findings);
    match config {
        Some(config) if !report.has_errors() => Ok(Loaded {
            config,
            warnings: report,
        }),
        _ => Err(report),
    }
}

/// The tables of `[[name]]`, or a finding for each thing under that name which is none. Those that
/// are too many are one finding, and left out.
fn tables<'a, 'i>(
    root: &mut Section<'a, 'i>,
    name: &'static str,
    most: usize,
    findings: &mut Vec<Finding>,
) -> Vec<&'a Spanned<DeValue<'i>>> {
    let Some(value) = root.value(name) else {
        return Vec::new();
    };
    let DeValue::Array(items) = value.get_ref() else {
        findings.push(
            Finding::error(
                value.span(),
                format!("`{name}` is {}", kind_of(value.get_ref())),
            )
            .help(format!("write [[{name}]], once for each {name}")),
        );
        return Vec::new();
    };
    let (mut tables, others): (Vec<_>, Vec<_>) = items
        .iter()
        .partition(|item| matches!(item.get_ref(), DeValue::Table(_)));
    findings.extend(others.iter().map(|item| {
        Finding::error(
            item.span(),
            format!("a {name} is {}", kind_of(item.get_ref())),
        )
        .help(format!("write [[{name}]], once for each {name}"))
    }));
    if let Some(first) = tables.get(most) {
        let message = format!(
            "at most {most} [[{name}]] are allowed, and here are {}",
            tables.len()
        );
        findings.push(Finding::error(first.span(), message));
        tables.truncate(most);
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_daemon_reads_no_pipe_and_no_device() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "[hub]").unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());

        assert_eq!(read_regular_file(&file).unwrap(), b"[hub]");
        // Nobody writes into the pipe, so whoever opens it waits for ever.
        for other in [&pipe, Path::new("/dev/null"), folder.path()] {
            let error = read_regular_file(other).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file");
        }
        assert_eq!(read_file(Path::new("/dev/null")).unwrap(), b"");
    }
}
