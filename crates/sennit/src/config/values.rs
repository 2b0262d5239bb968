//! The strings of the config that mean something: addresses, prefixes, names, shares, codes.

mod rate;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;

use sennit_core::Word;
use sennit_engine::BadCode;
use sennit_linux::DeviceName;

pub(super) use self::rate::rate;
use super::finding::Finding;
use super::{Congestion, Delivery, Fec, Headers, Leak, Policy, Prefix, Share};
use crate::reach::Place;
use crate::remote::{Remote, RemoteError};

/// Why a string is not what its key wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The guilty bytes of the string; all of it when `None`.
    part: Option<Range<usize>>,
    message: String,
    label: String,
    help: Option<String>,
}

/// On a command line.
impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = [
            self.label.as_str(),
            self.help.as_deref().unwrap_or_default(),
        ];
        f.write_str(&self.message)?;
        let mut rest = rest.iter().filter(|it| !it.is_empty());
        rest.try_for_each(|it| write!(f, "; {it}"))
    }
}

impl Wrong {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            part: None,
            message: message.into(),
            label: String::new(),
            help: None,
        }
    }

    pub(super) fn label(self, label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            ..self
        }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    pub(super) fn at(self, part: Range<usize>) -> Self {
        Self {
            part: Some(part),
            ..self
        }
    }

    /// The finding for the string `value`, which stands at `span` of `text`.
    pub(super) fn found_in(
        self,
        key: &str,
        value: &str,
        span: Range<usize>,
        text: &str,
    ) -> Finding {
        let quoted = text
            .get(span.clone())
            .is_some_and(|raw| raw.len() == value.len() + 2);
        let span = match self.part {
            Some(part) if quoted => span.start + 1 + part.start..span.start + 1 + part.end,
            _ => span,
        };
        let finding = Finding::error(span, format!("`{key}`: {}", self.message)).label(self.label);
        match self.help {
            Some(help) => finding.help(help),
            None => finding,
        }
    }
}

/// Longer than any name with a slip in it, in bytes: comparing takes time and memory by length.
const LONGEST_SLIP: usize = 64;

/// The name of `names` that `typed` was probably meant to be.
pub(super) fn nearest<'n>(typed: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if typed.len() > LONGEST_SLIP {
        return None;
    }
    let typed = typed.to_lowercase();
    let far = |name: &&str| strsim::damerau_levenshtein(&typed, name);
    // A third of the letters wrong is still a slip, more is another word.
    names
        .min_by_key(far)
        .filter(|name| far(name) <= name.len().div_ceil(3).min(3))
}

/// One of a few words, in capitals or not.
pub(super) fn choice<T: Copy>(
    typed: &str,
    what: &str,
    choices: &[(&'static str, T)],
) -> Result<T, Wrong> {
    if let Some((_, value)) = choices
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(typed))
    {
        return Ok(*value);
    }
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    let wrong = Wrong::new(format!("`{}` is no {what}", typed.escape_debug()))
        .help(format!("allowed: {}", names.join(", ")));
    Err(match nearest(typed, names.into_iter()) {
        Some(near) => wrong.label(format!("did you mean `{near}`?")),
        None => wrong,
    })
}

/// One of the words for a value.
fn word<T: Word>(typed: &str, what: &str) -> Result<T, Wrong> {
    let choices = T::VALUES.iter().map(|&value| (value.word(), value));
    choice(typed, what, &choices.collect::<Vec<_>>())
}

pub(super) fn policy(typed: &str) -> Result<Policy, Wrong> {
    word(typed, "policy")
}

pub(super) fn delivery(typed: &str) -> Result<Delivery, Wrong> {
    word(typed, "delivery")
}

pub(super) fn congestion(typed: &str) -> Result<Congestion, Wrong> {
    word(typed, "congestion control")
}

pub(super) fn headers(typed: &str) -> Result<Headers, Wrong> {
    word(typed, "form of headers")
}

pub(super) fn leak(typed: &str) -> Result<Leak, Wrong> {
    let choices = [("block", Leak::Block), ("allow", Leak::Allow)];
    choice(typed, "way to treat a leak", &choices)
}

/// `off`, `auto`, `xor:10+1`, `rs:10+2` or `rlc:1/8`.
pub(super) fn fec(typed: &str) -> Result<Fec, Wrong> {
    const FORMS: &str =
        "allowed: off, auto, xor:N+1, rs:N+K, rlc:1/N; for example xor:10+1, rs:10+2, rlc:1/8";
    typed.to_ascii_lowercase().parse().map_err(|bad| match bad {
        BadCode::Form => {
            Wrong::new(format!("`{}` is no error correction", typed.escape_debug())).help(FORMS)
        }
        impossible => {
            let numbers = typed.find(':').map_or(0, |at| at + 1);
            Wrong::new(format!("`{}` {impossible}", typed.escape_debug())).at(numbers..typed.len())
        }
    })
}

/// `20%`, or `2Mbit`.
pub(super) fn share(typed: &str) -> Result<Share, Wrong> {
    let help = "write whole percent from \"1%\" to \"100%\", or a rate like \"2Mbit\"";
    if let Some(number) = typed.strip_suffix('%') {
        let part = number.trim().parse::<u8>().ok();
        let part = part.filter(|n| (1..=100).contains(n));
        return part.map(Share::Percent).ok_or_else(|| {
            Wrong::new(format!("`{}` is no share of a link", typed.escape_debug())).help(help)
        });
    }
    if typed.parse::<f64>().is_ok() {
        return Err(Wrong::new(format!("the share `{typed}` has no unit"))
            .label("percent, or a rate?")
            .help(help));
    }
    rate(typed)
        .map(Share::Rate)
        .map_err(|wrong| wrong.help(help))
}

/// An IP address that one can send to.
pub(super) fn address(typed: &str) -> Result<IpAddr, Wrong> {
    let address: IpAddr = typed.parse().map_err(|_| {
        Wrong::new(format!("`{}` is no IP address", typed.escape_debug()))
            .help("write one like 10.200.0.1 or fd5e:1::1")
    })?;
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return Err(Wrong::new(format!(
            "{address} is not the address of another host"
        )));
    }
    Ok(address)
}

/// An amount of data, as it is sold: `500MB`, `100 GB`, `1.5TB`, or in powers of two `100GiB`.
pub(super) fn amount(typed: &str) -> Result<u64, Wrong> {
    const UNITS: [(&str, u64); 6] = [
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    let split = typed.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = typed.split_at(split.unwrap_or(typed.len()));
    let unit = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let number: Option<f64> = number.trim().parse().ok();
    let bytes = number
        .zip(unit)
        .map(|(number, (_, unit))| number * *unit as f64);
    let bytes = bytes.filter(|bytes| (1.0..1e18).contains(bytes));
    bytes.map(|bytes| bytes as u64).ok_or_else(|| {
        Wrong::new(format!("`{}` is no amount of data", typed.escape_debug()))
            .help("write a number and a unit: \"500MB\", \"100GB\", \"1.5TB\"")
    })
}

/// Bytes that one key seals at least.
const LEAST_REKEY: u64 = 1_000_000;

/// How much one key seals.
pub(super) fn rekey_bytes(typed: &str) -> Result<u64, Wrong> {
    let bytes = amount(typed)?;
    if bytes < LEAST_REKEY {
        return Err(Wrong::new(format!("{typed} is too little"))
            .label("1MB is the least")
            .help("keys are renewed at most once in a few round trips, whatever is written here"));
    }
    Ok(bytes)
}

/// An address or a name, and a port, that one can send to.
pub(super) fn remote(typed: &str) -> Result<Remote, Wrong> {
    const EXAMPLE: &str = "an IP address or a name, and a port, like 203.0.113.10:443, [2001:db8::1]:443 or vpn.example.org:443";
    match typed.parse() {
        Ok(remote) => Ok(remote),
        Err(RemoteError::Unreachable) if !typed.ends_with(":0") => Err(Wrong::new(format!(
            "{} is not the address of a hub",
            typed.rsplit_once(':').map_or(typed, |(host, _)| host)
        ))),
        // In the words of an address, which it is more likely to be.
        Err(_) => socket(typed, EXAMPLE).map(Remote::Address),
    }
}

/// An address and port to listen on.
pub(super) fn listen(typed: &str) -> Result<SocketAddr, Wrong> {
    socket(
        typed,
        "an IP address and a port, like 0.0.0.0:443 or [::]:443",
    )
}

fn socket(typed: &str, example: &str) -> Result<SocketAddr, Wrong> {
    let address: SocketAddr = typed.parse().map_err(|_| {
        let wrong = Wrong::new(format!(
            "`{}` is no address with port",
            typed.escape_debug()
        ));
        match typed.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => wrong
                .label("the port is missing")
                .help(format!("write {ip}:443")),
            Ok(IpAddr::V6(ip)) => wrong
                .label("the port is missing")
                .help(format!("write [{ip}]:443")),
            Err(_) => wrong.help(format!("write {example}")),
        }
    })?;
    if address.port() == 0 {
        let colon = typed.rfind(':').map_or(0, |colon| colon + 1);
        return Err(Wrong::new("port 0 is no port")
            .at(colon..typed.len())
            .label("1 to 65535 is allowed"));
    }
    Ok(address)
}

/// A CIDR prefix whose host bits are zero.
pub(super) fn prefix(typed: &str) -> Result<Prefix, Wrong> {
    let prefix: Prefix = typed.parse().map_err(|_| {
        let wrong = Wrong::new(format!("`{}` is no prefix", typed.escape_debug()));
        match typed.parse::<IpAddr>() {
            Ok(ip) => wrong
                .label("the length is missing")
                .help(format!("a single host is {}", Prefix::from(ip))),
            Err(_) => {
                wrong.help("write an address and a length, like 192.168.8.0/24 or fd00:8::/64")
            }
        }
    })?;
    if prefix.trunc() != prefix {
        return Err(Wrong::new(format!("{prefix} has host bits"))
            .label(format!("did you mean `{}`?", prefix.trunc())));
    }
    Ok(prefix)
}

/// Space that means something else on every host: no LAN and no pool of inner addresses.
const SPECIAL: [(&str, &str); 9] = [
    ("0.0.0.0/8", "means this host"),
    ("127.0.0.0/8", "is every host's own loopback"),
    ("169.254.0.0/16", "is link-local"),
    ("224.0.0.0/4", "is multicast"),
    ("240.0.0.0/4", "is reserved"),
    ("::/128", "means this host"),
    ("::1/128", "is every host's own loopback"),
    ("fe80::/10", "is link-local"),
    ("ff00::/8", "is multicast"),
];

/// Space that is nobody's on the internet: RFC 1918, RFC 6598 (carriers' NAT), RFC 4193.
const PRIVATE: [&str; 5] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
];

fn known(prefix: &str) -> Prefix {
    prefix.parse().expect("the constants are prefixes")
}

/// What a prefix means that no host can have as a network of its own.
pub(super) fn special(prefix: &Prefix) -> Option<String> {
    let overlaps = |(special, _): &&(&str, &str)| {
        let special = known(special);
        special.contains(prefix) || prefix.contains(&special)
    };
    let (special, what) = SPECIAL.iter().find(overlaps)?;
    Some(format!("{special} {what}"))
}

/// Whether it is space that somebody on the internet may own.
pub(super) fn is_public(prefix: &Prefix) -> bool {
    !PRIVATE
        .iter()
        .any(|private| known(private).contains(prefix))
}

/// A name for a link or class: what fits into tables, metrics and the announcements of a path.
pub(super) fn name(typed: &str) -> Result<String, Wrong> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if typed.is_empty() || typed.len() > 32 || !typed.chars().all(legal) {
        return Err(Wrong::new(format!("`{}` is no name", typed.escape_debug()))
            .help("a name has 1 to 32 letters, digits, `-`, `_` or `.`"));
    }
    Ok(typed.into())
}

/// A TUN device of our own.
pub(super) fn device(typed: &str) -> Result<DeviceName, Wrong> {
    typed.parse().map_err(|_| {
        Wrong::new(format!(
            "`{}` is no name for a device",
            typed.escape_debug()
        ))
        .help("write 1 to 15 letters, digits, `-`, `_` or `.`, like sennit0")
    })
}

/// A network interface as Linux names them (`dev_valid_name` of the kernel).
pub(super) fn interface(typed: &str) -> Result<String, Wrong> {
    let legal = |c: char| c.is_ascii_graphic() && c != '/' && c != ':' && c != '%';
    if typed.is_empty()
        || typed.len() > 15
        || typed == "."
        || typed == ".."
        || !typed.chars().all(legal)
    {
        return Err(
            Wrong::new(format!("`{}` is no interface", typed.escape_debug()))
                .help("Linux allows 1 to 15 characters, none of them a space, `/`, `:` or `%`"),
        );
    }
    Ok(typed.into())
}

pub(super) fn path(typed: &str) -> Result<PathBuf, Wrong> {
    if typed.is_empty() || typed.contains('\0') {
        return Err(Wrong::new("this is no path").help("write a path, like /var/lib/sennit"));
    }
    Ok(typed.into())
}

/// The path of a Unix socket, which the kernel bounds (`sun_path`, 108 bytes with the final zero).
pub(super) fn socket_path(typed: &str) -> Result<PathBuf, Wrong> {
    if typed.len() > 107 {
        return Err(Wrong::new("the path is too long for a socket").label("107 bytes are the most"));
    }
    path(typed)
}

/// What is said where a secret stands in the config itself.
pub const SECRET_IN_CONFIG: &str = "a secret does not belong into the config";

/// `file:PATH`: a secret is never in the config itself.
pub(super) fn secret_file(typed: &str) -> Result<PathBuf, Wrong> {
    match typed.strip_prefix("file:") {
        Some(file) => path(file),
        None => Err(Wrong::new(SECRET_IN_CONFIG)
            .help("put it into a file that only root can read, and write file:/etc/sennit/bearer")),
    }
}

/// The name that a certificate bears: a DNS name or an IP address.
pub(super) fn server_name(typed: &str) -> Result<String, Wrong> {
    match rustls::pki_types::ServerName::try_from(typed) {
        Ok(_) => Ok(typed.into()),
        Err(_) => Err(
            Wrong::new(format!("`{}` is no server name", typed.escape_debug()))
                .help("write the DNS name or IP address in the proxy's certificate"),
        ),
    }
}

/// Where a site may go.
pub(super) fn place(typed: &str) -> Result<Place, Wrong> {
    let words = [
        ("everything", Place::Everything),
        ("internet", Place::Internet),
        ("sites", Place::Sites),
        ("hub", Place::Hub),
    ];
    if typed.contains(['.', ':', '/']) {
        return prefix(typed).map(Place::Prefix);
    }
    choice(typed, "place", &words)
        .map_err(|wrong| wrong.help("allowed: everything, internet, sites, hub, or a prefix"))
}
