//! The `match` language of a class.
//!
//! A rule is a few conditions, all of which must hold: `udp port 5060`, `dscp ef`, `tcp dst
//! 10.9.0.0/16 dport 8000-8999`, in capitals or not. A list of rules matches when one of them does.

mod kernel;
mod rule;

use std::fmt;
use std::ops::Range;

use super::Prefix;
use super::values::{self, Wrong, nearest};

/// One rule: a packet matches when it meets every condition that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Source or destination port.
    pub port: Option<PortRange>,
    pub source_port: Option<PortRange>,
    pub destination_port: Option<PortRange>,
    pub source: Option<Prefix>,
    pub destination: Option<Prefix>,
    /// Bytes of the first packet of a flow.
    pub size: Option<PortRange>,
    /// What only the kernel knows.
    pub kernel: Kernel,
}

/// What only the kernel knows of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The mark, and which of its bits count.
    pub mark: Option<(u32, u32)>,
    /// The interface that it came in by.
    pub incoming: Option<String>,
    /// The users whose programs send it, from the first to the last.
    pub uids: Option<(u32, u32)>,
}

impl Match {
    /// Whether the kernel sorts it.
    pub fn is_kernel(&self) -> bool {
        self.kernel != Kernel::default()
    }

    /// Whether every packet that meets `other` meets this too.
    pub fn covers(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(this: &Option<T>, other: &Option<T>) -> bool {
            this.is_none() || this == other
        }
        let range = |this: Option<PortRange>, other: Option<PortRange>| {
            this.is_none_or(|this| {
                other.is_some_and(|it| this.first <= it.first && it.last <= this.last)
            })
        };
        let net = |this: Option<Prefix>, other: Option<Prefix>| {
            this.is_none_or(|this| other.is_some_and(|it| this.contains(&it)))
        };
        let either = range(self.port, other.port)
            || range(self.port, other.source_port)
            || range(self.port, other.destination_port);
        same(&self.dscp, &other.dscp)
            && same(&self.protocol, &other.protocol)
            && either
            && range(self.source_port, other.source_port)
            && range(self.destination_port, other.destination_port)
            && net(self.source, other.source)
            && net(self.destination, other.destination)
            && range(self.size, other.size)
            && self.kernel.covers(&other.kernel)
    }

    /// What somebody says of one packet in the words of a rule, like `sport 5062 mark 0x10`.
    pub(crate) fn describing(typed: &str) -> Result<Self, String> {
        conditions(typed).map_err(|wrong| wrong.to_string())
    }
}

impl Kernel {
    /// Whether every packet that meets `other` meets this too.
    fn covers(&self, other: &Self) -> bool {
        let mark = self.mark.is_none_or(|(mark, mask)| {
            let bits = other.mark.filter(|(_, bits)| bits & mask == mask);
            bits.is_some_and(|(other, _)| other & mask == mark)
        });
        let uids = self.uids.is_none_or(|(first, last)| {
            let inside = |(from, to): &(u32, u32)| first <= *from && *to <= last;
            other.uids.filter(inside).is_some()
        });
        mark && uids && (self.incoming.is_none() || self.incoming == other.incoming)
    }
}

/// Ports or sizes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// What is in both, if anything is.
    pub(crate) fn both(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The rule as the config could have it.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.map(|number| match number {
            TCP => "tcp".to_owned(),
            UDP => "udp".to_owned(),
            ICMP => "icmp".to_owned(),
            ICMPV6 => "icmpv6".to_owned(),
            other => format!("proto {other}"),
        });
        let range = |word, range: &Option<PortRange>| range.map(|it| format!("{word} {it}"));
        let net = |word, net: &Option<Prefix>| net.map(|it| format!("{word} {it}"));
        let words = [
            protocol,
            net("src", &self.source),
            net("dst", &self.destination),
            range("port", &self.port),
            range("sport", &self.source_port),
            range("dport", &self.destination_port),
            self.dscp.map(|point| format!("dscp {point}")),
            range("size", &self.size),
            self.kernel.mark.map(|(mark, mask)| match mask {
                u32::MAX => format!("mark {mark:#x}"),
                _ => format!("mark {mark:#x}/{mask:#x}"),
            }),
            self.kernel.incoming.as_ref().map(|it| format!("in {it}")),
            self.kernel.uids.map(|(first, last)| match first == last {
                true => format!("uid {first}"),
                false => format!("uid {first}-{last}"),
            }),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Protocols whose header starts with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [TCP, UDP, 33, 132, 136];

const WORDS: [&str; 15] = [
    "dscp", "udp", "tcp", "icmp", "icmpv6", "proto", "port", "sport", "dport", "src", "dst",
    "size", "mark", "in", "uid",
];

/// A word of a rule and where it stands.
#[derive(Clone)]
struct Word<'a> {
    text: &'a str,
    at: Range<usize>,
}

/// Reads one rule.
pub(super) fn rule(typed: &str) -> Result<Match, Wrong> {
    let rule = conditions(typed)?;
    if rule == Match::default() {
        return Err(Wrong::new("an empty rule")
            .help("a class without `match` takes everything; a rule is like \"udp port 5060\""));
    }
    kernel::check(&rule, typed)?;
    possible(rule)
}

/// Reads conditions, each of which may be there once.
fn conditions(typed: &str) -> Result<Match, Wrong> {
    let mut words = words(typed);
    let mut rule = Match::default();
    while let Some(word) = words.next() {
        let mut argument = |example: &str| {
            words.next().ok_or_else(|| {
                let wrong = Wrong::new(format!("`{}` needs a value", word.text));
                wrong
                    .at(word.at.clone())
                    .help(format!("for example `{} {example}`", word.text))
            })
        };
        let fresh = match word.text.to_ascii_lowercase().as_str() {
            "dscp" => set(&mut rule.dscp, dscp(&argument("ef")?)?),
            "udp" => set(&mut rule.protocol, UDP),
            "tcp" => set(&mut rule.protocol, TCP),
            "icmp" => set(&mut rule.protocol, ICMP),
            "icmpv6" => set(&mut rule.protocol, ICMPV6),
            "proto" => set(&mut rule.protocol, protocol(&argument("47")?)?),
            "port" => set(&mut rule.port, ports(&argument("5060")?)?),
            "sport" => set(&mut rule.source_port, ports(&argument("5060")?)?),
            "dport" => set(&mut rule.destination_port, ports(&argument("443")?)?),
            "src" => set(&mut rule.source, prefix(&argument("192.168.8.0/24")?)?),
            "dst" => set(&mut rule.destination, prefix(&argument("10.9.0.0/16")?)?),
            "size" => set(&mut rule.size, sizes(&argument("0-200")?)?),
            "mark" => set(
                &mut rule.kernel.mark,
                kernel::mark(&argument("0x10/0xff")?)?,
            ),
            "in" => set(
                &mut rule.kernel.incoming,
                kernel::interface(&argument("eth1.20")?)?,
            ),
            "uid" => set(&mut rule.kernel.uids, kernel::uids(&argument("1000")?)?),
            _ => return Err(unknown(&word)),
        };
        if !fresh {
            return Err(Wrong::new("a packet has this only once")
                .at(word.at)
                .help("words of one rule must all hold; for either-or write two rules"));
        }
    }
    Ok(rule)
}

fn words(typed: &str) -> impl Iterator<Item = Word<'_>> {
    typed.split_whitespace().map(move |text| {
        let start = text.as_ptr().addr() - typed.as_ptr().addr();
        Word {
            text,
            at: start..start + text.len(),
        }
    })
}

/// Fills an empty slot; false when it was taken.
fn set<T>(slot: &mut Option<T>, value: T) -> bool {
    slot.replace(value).is_none()
}

fn unknown(word: &Word<'_>) -> Wrong {
    let wrong = Wrong::new(format!("`{}` is no condition", word.text.escape_debug()))
        .at(word.at.clone())
        .help(format!("conditions: {}", WORDS.join(", ")));
    match nearest(word.text, WORDS.into_iter()) {
        Some(near) => wrong.label(format!("did you mean `{near}`?")),
        None => wrong,
    }
}

/// Code points by name: RFC 3246 (EF), RFC 2597 (AF), RFC 2474 (CS).
fn dscp(word: &Word<'_>) -> Result<u8, Wrong> {
    let digit = |at: usize, allowed: Range<u8>| {
        let digit = word.text.as_bytes().get(at)?.checked_sub(b'0')?;
        allowed.contains(&digit).then_some(digit)
    };
    let name = word.text.to_ascii_lowercase();
    let named = match (name.get(..2), name.len()) {
        (Some("ef"), 2) => Some(46),
        (Some("cs"), 3) => digit(2, 0..8).map(|class| class * 8),
        (Some("af"), 4) => digit(2, 1..5)
            .zip(digit(3, 1..4))
            .map(|(class, drop)| class * 8 + drop * 2),
        _ => word.text.parse().ok().filter(|number| *number < 64),
    };
    named.ok_or_else(|| {
        Wrong::new(format!("`{}` is no code point", word.text.escape_debug()))
            .at(word.at.clone())
            .help("allowed: ef, cs0 to cs7, af11 to af43, or a number from 0 to 63")
    })
}

/// The code point of a class's outer packets.
pub(super) fn code_point(typed: &str) -> Result<u8, Wrong> {
    let word = Word {
        text: typed,
        at: 0..typed.len(),
    };
    dscp(&word)
}

fn protocol(word: &Word<'_>) -> Result<u8, Wrong> {
    word.text.parse().map_err(|_| {
        Wrong::new(format!(
            "`{}` is no protocol number",
            word.text.escape_debug()
        ))
        .at(word.at.clone())
        .help("write a number from 0 to 255 (47 is GRE, 50 is ESP), or udp, tcp, icmp, icmpv6")
    })
}

fn ports(word: &Word<'_>) -> Result<PortRange, Wrong> {
    let (first, last) = word.text.split_once('-').unwrap_or((word.text, word.text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    match port(first).zip(port(last)) {
        Some((first, last)) if first <= last => Ok(PortRange { first, last }),
        Some((first, last)) => Err(Wrong::new(format!("the range {first}-{last} is empty"))
            .at(word.at.clone())
            .label(format!("did you mean `{last}-{first}`?"))),
        None => Err(
            Wrong::new(format!("`{}` is no port", word.text.escape_debug()))
                .at(word.at.clone())
                .help("write a port from 1 to 65535, or a range like 8000-8999"),
        ),
    }
}

/// No IP packet is shorter than its header.
const LEAST_SIZE: u16 = 20;

fn sizes(word: &Word<'_>) -> Result<PortRange, Wrong> {
    let (first, last) = word.text.split_once('-').unwrap_or((word.text, word.text));
    let size = |text: &str| text.parse::<u16>().ok();
    match size(first).zip(size(last)) {
        Some((first, last)) if first > last => {
            Err(Wrong::new(format!("the range {first}-{last} is empty"))
                .at(word.at.clone())
                .label(format!("did you mean `{last}-{first}`?")))
        }
        Some((_, last)) if last < LEAST_SIZE => Err(Wrong::new("no IP packet is so short")
            .at(word.at.clone())
            .label(format!("{LEAST_SIZE} bytes is the least"))),
        Some((first, last)) => Ok(PortRange { first, last }),
        None => Err(
            Wrong::new(format!("`{}` is no size", word.text.escape_debug()))
                .at(word.at.clone())
                .help("write bytes of the whole IP packet, or a range like 0-200"),
        ),
    }
}

fn prefix(word: &Word<'_>) -> Result<Prefix, Wrong> {
    values::prefix(word.text).map_err(|wrong| wrong.at(word.at.clone()))
}

/// Refuses rules that no packet can meet.
fn possible(rule: Match) -> Result<Match, Wrong> {
    let has_port =
        rule.port.is_some() || rule.source_port.is_some() || rule.destination_port.is_some();
    if has_port
        && rule
            .protocol
            .is_some_and(|protocol| !WITH_PORTS.contains(&protocol))
    {
        return Err(
            Wrong::new("no packet of this protocol has ports").help("ports go with tcp or udp")
        );
    }
    let families = [
        rule.source.map(|prefix| matches!(prefix, Prefix::V4(_))),
        rule.destination
            .map(|prefix| matches!(prefix, Prefix::V4(_))),
        rule.protocol
            .filter(|p| [ICMP, ICMPV6].contains(p))
            .map(|protocol| protocol == ICMP),
    ];
    let mut families = families.into_iter().flatten();
    let first = families.next();
    if families.any(|family| Some(family) != first) {
        return Err(Wrong::new("no packet is IPv4 and IPv6 at once")
            .help("icmp goes with IPv4 prefixes, icmpv6 with IPv6 prefixes; write two rules"));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_joins_its_conditions() {
        let rule = rule("udp  dscp ef port 5060-5062 dst 10.9.0.0/16").unwrap();
        assert_eq!(rule.protocol, Some(17));
        assert_eq!(rule.dscp, Some(46));
        assert_eq!(
            rule.port,
            Some(PortRange {
                first: 5060,
                last: 5062
            })
        );
        assert_eq!(rule.destination, Some("10.9.0.0/16".parse().unwrap()));
        assert_eq!(
            (rule.source, rule.source_port, rule.destination_port),
            (None, None, None)
        );
    }

    #[test]
    fn a_rule_reads_as_it_is_written() {
        for typed in [
            "udp dst 10.9.0.0/16 port 5060-5062 dscp 46",
            "icmp",
            "proto 47 src fd00::/8",
            "tcp sport 22 dport 1-1023 size 40-1200",
        ] {
            let read = rule(typed).unwrap();
            assert_eq!(read.to_string(), typed);
            assert_eq!(rule(&read.to_string()).unwrap(), read);
        }
        for typed in ["size 19", "size 200-100", "size x", "size 0-70000"] {
            assert!(rule(typed).is_err(), "{typed}");
        }
    }

    /// RFC 2474, 2597, 3246, 4594 figure 3.
    #[test]
    fn code_points_have_their_registered_numbers() {
        let known = [
            ("ef", 46),
            ("cs0", 0),
            ("cs5", 40),
            ("cs7", 56),
            ("af11", 10),
            ("af33", 30),
            ("af43", 38),
            ("63", 63),
            ("EF", 46),
            ("Cs5", 40),
            ("AF43", 38),
        ];
        for (name, number) in known {
            assert_eq!(
                rule(&format!("dscp {name}")).unwrap().dscp,
                Some(number),
                "{name}"
            );
        }
        for name in [
            "cs8", "af10", "af14", "af53", "af1", "efx", "64", "-1", "csé", "afé",
        ] {
            assert!(rule(&format!("dscp {name}")).is_err(), "{name}");
        }
    }

    #[test]
    fn capitals_make_no_difference() {
        assert_eq!(
            rule("UDP DSCP EF Port 5060 Dst FD00::/8").unwrap(),
            rule("udp dscp ef port 5060 dst fd00::/8").unwrap()
        );
    }

    #[test]
    fn rules_that_no_packet_can_meet_are_refused() {
        for typed in [
            "icmp port 5",
            "proto 47 dport 1",
            "icmp src fd00::/8",
            "src 10.0.0.0/8 dst fd00::/8",
        ] {
            assert!(rule(typed).is_err(), "{typed}");
        }
        assert!(rule("port 53").is_ok(), "any protocol with ports");
        assert!(rule("proto 132 port 36412").is_ok(), "SCTP has ports");
    }

    #[test]
    fn malformed_rules_are_refused() {
        for typed in [
            "",
            "  ",
            "upd",
            "port",
            "port 0",
            "port 9-1",
            "port 1-",
            "udp tcp",
            "udp udp",
            "src 10.0.0.1/8",
            "proto 256",
        ] {
            assert!(rule(typed).is_err(), "{typed}");
        }
    }
}
