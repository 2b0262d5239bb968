//! Every key of both files in words: what the book's chapter about them is made of.
//!
//! `tests/parts/book.rs` holds the table to what the readers of [`super`] do: the keys and
//! their order, the ranges, the words, and what a file is without a key.

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;

use sennit_engine::MOST_COPIES;

use super::connect_udp::{DEFAULT_FLOWS, DEFAULT_IDLE, FLOWS, IDLE};
use super::{
    DEFAULT_DEVICE, DEFAULT_EDGE_CONTROL, DEFAULT_EVENTS, DEFAULT_HUB_CONTROL, DEFAULT_MTU,
    DEFAULT_STATE,
};
use super::{edge::COST, edge::MTU, edge::RESET_DAY, edge::TIER, edge::WEIGHT, hub::WORKERS};

/// One key of one section.
#[derive(Clone, Debug)]
pub struct Key {
    /// As the file writes it, `[hub]` or `[[link]]`.
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    pub without: Without,
    /// What it means, in Markdown.
    pub meaning: &'static str,
}

/// What a key may be set to.
#[derive(Clone, Debug)]
pub enum Kind {
    Boolean,
    /// A whole number.
    Integer(RangeInclusive<i64>),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A string, such as this.
    Text(&'static str),
    /// A list of strings, such as this.
    List(&'static str),
}

/// What holds without the key.
#[derive(Clone, Debug)]
pub enum Without {
    /// The config is not valid.
    Needed,
    /// As if it were set to this, in TOML.
    Value(String),
    /// What no value says.
    Is(&'static str),
}

impl Key {
    /// A value that the key takes, in TOML.
    pub fn example(&self) -> String {
        match &self.kind {
            Kind::Boolean => "false".into(),
            Kind::Integer(range) => range.start().to_string(),
            Kind::Word(words) => format!("\"{}\"", words[0]),
            Kind::Text(example) | Kind::List(example) => (*example).into(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("true or false"),
            Self::Integer(range) => write!(f, "{} to {}", range.start(), range.end()),
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                f.write_str(&words.join(", "))
            }
            Self::Text(example) => write!(f, "a string like `{example}`"),
            Self::List(example) => write!(f, "a list like `{example}`"),
        }
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needed => f.write_str("needed"),
            Self::Value(value) => write!(f, "without it `{value}`"),
            Self::Is(words) => write!(f, "without it {words}"),
        }
    }
}

/// The sections of both files, and what each is for.
const SECTIONS: [(&str, &str); 7] = [
    (
        "[hub]",
        "The hub's file, `/etc/sennit/hub.toml`, has this section, and may have \
         `[[class]]` with `name` and `match` alone: flows that begin behind the hub go by these rules, \
         to the class of that name if the site has one.",
    ),
    (
        "[connect_udp]",
        "With this section, which may be empty, a hub proxies UDP for clients that are not Sennit, \
         see\n[Third-party clients](third-party.md#udp-alone).",
    ),
    (
        "[edge]",
        "The edge's file, `/etc/sennit/edge.toml`, begins with this section.",
    ),
    (
        "[[link]]",
        "An edge has one of these for each WAN interface, 16 at most.",
    ),
    (
        "[[class]]",
        "An edge has one of these for each traffic class; the hub follows what the edge says. The \
         first class that matches takes a packet. Without a class that takes everything there is \
         one more, `default`, with the defaults below.",
    ),
    (
        "[api]",
        "Both files may have this section, for programs and browsers, see [API](api.md).",
    ),
    (
        "[[notify]]",
        "Both files may have these, one for each who is told of events, see \
         [Watching](watching.md#notifications).",
    ),
];

/// A condition of a `match` rule, and what it holds for.
const CONDITIONS: [(&str, &str); 15] = [
    ("tcp", "TCP"),
    ("udp", "UDP"),
    ("icmp", "ICMP of IPv4"),
    ("icmpv6", "ICMP of IPv6"),
    ("proto 47", "an IP protocol by its number"),
    (
        "port 5060",
        "a source or destination port, or a range like `8000-8999`",
    ),
    ("sport 5060", "a source port or range"),
    ("dport 443", "a destination port or range"),
    ("src 192.168.8.0/24", "a source prefix"),
    ("dst 10.9.0.0/16", "a destination prefix"),
    (
        "dscp ef",
        "a code point: `ef`, `cs0` to `cs7`, `af11` to `af43`, or 0 to 63",
    ),
    (
        "size 0-200",
        "bytes of the IP packet, or a range; the first packet of a flow decides for all of it",
    ),
    (
        "mark 0x10/0xff",
        "a firewall mark, and which of its bits count; see [Classes](classes.md#what-the-kernel-knows)",
    ),
    (
        "in eth1.20",
        "the interface that it came in by, so VLANs too",
    ),
    (
        "uid 1000",
        "the user whose program sends it from the edge itself, or a range",
    ),
];

/// Every condition of a `match` rule, by an example.
pub fn conditions() -> impl Iterator<Item = &'static str> {
    CONDITIONS.into_iter().map(|(example, _)| example)
}

/// Every key, in the order of the sections and as messages about unknown keys list them.
pub fn keys() -> Vec<Key> {
    [
        hub(),
        connect_udp(),
        edge(),
        link(),
        class(),
        api(),
        notify(),
    ]
    .concat()
}

/// The sections of both files, in the order of the book.
pub fn sections() -> impl Iterator<Item = &'static str> {
    SECTIONS.into_iter().map(|(section, _)| section)
}

/// The chapter of the book.
pub fn chapter() -> String {
    let mut text = String::from(HEAD);
    for (section, about) in SECTIONS {
        let _ = write!(text, "\n## `{section}`\n\n{about}\n");
        for key in keys().iter().filter(|key| key.section == section) {
            let (name, kind, without, meaning) = (key.name, &key.kind, &key.without, key.meaning);
            let _ = write!(text, "\n**`{name}`**: {kind}; {without}.\n{meaning}\n");
        }
    }
    text.push_str(RULES);
    for (example, what) in CONDITIONS {
        let _ = writeln!(text, "| `{example}` | {what} |");
    }
    text
}

const HEAD: &str = "\
# Config reference

<!-- Made by the program: SENNIT_BLESS=1 cargo test --workspace --test parts -->

Both files are TOML. `sennit check FILE` tells everything that is wrong with one at once, each with
its place and what would be right. Unknown keys are errors.
";

const RULES: &str = "
## Rules of `match`

A rule is one or more conditions, all of which must hold, as in `\"udp port 5060\"`. A list of rules
matches if one of them does. All fragments of a datagram go where its first one does.

| condition | holds for |
| --- | --- |
";

fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    without: Without,
    meaning: &'static str,
) -> Key {
    Key {
        section,
        name,
        kind,
        without,
        meaning,
    }
}

fn string(value: &str) -> Without {
    Without::Value(format!("\"{value}\""))
}

fn hub() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[hub]", name, kind, without, meaning);
    vec![
        key(
            "listen",
            Kind::List(r#"["0.0.0.0:443", "[::]:443"]"#),
            Without::Needed,
            "UDP addresses that the hub listens on.",
        ),
        key(
            "state",
            Kind::Text(r#""/srv/sennit""#),
            string(DEFAULT_STATE),
            STATE,
        ),
        key(
            "pool",
            Kind::List(r#"["10.200.0.0/16", "fd5e:1::/64"]"#),
            Without::Needed,
            "An IPv4 prefix, an IPv6 prefix or both, from which sites and the hub get their \
             addresses in\nthe tunnel.",
        ),
        key(
            "nat",
            Kind::Boolean,
            Without::Value("true".into()),
            "Whether what leaves for the internet gets the hub's own address (masquerading).",
        ),
        key(
            "device",
            Kind::Text(r#""tun7""#),
            string(DEFAULT_DEVICE),
            DEVICE,
        ),
        key(
            "control",
            Kind::Text(r#""/run/hub.sock""#),
            string(DEFAULT_HUB_CONTROL),
            CONTROL,
        ),
        mtu("[hub]"),
        key(
            "workers",
            Kind::Integer(WORKERS),
            Without::Is("as many as there are processors, at most 8"),
            "Threads that carry packets. A site stays at one of them. It must be 1 for a `device` \
             made\nbeforehand.",
        ),
        key(
            "reach",
            Kind::List(r#"["internet", "10.9.0.0/16"]"#),
            Without::Value(r#"["everything"]"#.into()),
            "Where sites may go: `everything`, `internet` (public addresses that are not behind \
             sites),\n`sites` (the others and what is behind them), `hub` (its own services), and \
             prefixes.",
        ),
        key(
            "bearer_reach",
            Kind::List(r#"["hub"]"#),
            Without::Value(r#"["internet"]"#.into()),
            "Where clients with a bearer token may go.",
        ),
        key(
            "site_limit",
            Kind::Text(r#""100Mbit""#),
            Without::Is("there is no such bound"),
            "What the hub sends to one site on all its links together, whatever the site asks \
             for.",
        ),
        key(
            "require_pq",
            Kind::Boolean,
            Without::Value("false".into()),
            "Whether a handshake without post-quantum key exchange fails. An edge behind a box that \
             drops\nlarge handshakes then has no tunnel.",
        ),
        key(
            "speedtest",
            Kind::Boolean,
            Without::Value("false".into()),
            "Whether sites that may reach the hub can measure what their tunnels carry \
             (`sennit speedtest`).\nA server then listens inside the tunnel, at UDP port 4774.",
        ),
    ]
}

fn connect_udp() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[connect_udp]", name, kind, without, meaning);
    vec![
        key(
            "reach",
            Kind::List(r#"["internet", "10.9.0.0/16"]"#),
            Without::Value(r#"["internet"]"#.into()),
            "Where targets may be, in the words of `reach` of `[hub]`. A client must also be \
             allowed to go\nthere at all. The hub itself, loopback, link-local and multicast \
             addresses are never targets.",
        ),
        key(
            "ports",
            Kind::List(r#"["443", "1024-65535"]"#),
            Without::Is("all ports are allowed"),
            "Which ports of targets are allowed.",
        ),
        key(
            "flows",
            Kind::Integer(FLOWS),
            Without::Value(DEFAULT_FLOWS.to_string()),
            "Flows that one client may have at once, 64 of them on one connection.",
        ),
        key(
            "idle",
            Kind::Integer(IDLE),
            Without::Value(DEFAULT_IDLE.to_string()),
            "A flow without a packet for as many seconds ends.",
        ),
        key(
            "rate",
            Kind::Text(r#""50Mbit""#),
            Without::Is("there is no such bound"),
            "What one client gets in each direction.",
        ),
    ]
}

fn edge() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[edge]", name, kind, without, meaning);
    vec![
        key(
            "hub",
            Kind::List(r#"["203.0.113.10:443"]"#),
            Without::Needed,
            "Addresses or names of the hub, with ports. A name is looked up over each link, all \
             addresses\nare tried at once, and without a resolver those found last.",
        ),
        key(
            "proxy_ca",
            Kind::Text(r#""/etc/sennit/proxy.pem""#),
            Without::Is("the far side is a Sennit hub"),
            "For a CONNECT-IP proxy that is not a Sennit hub: PEM file with the CA that its \
             certificate\nchains to.",
        ),
        key(
            "proxy_name",
            Kind::Text(r#""proxy.example.org""#),
            Without::Is("its address"),
            "Name in the proxy's certificate. It needs `proxy_ca`.",
        ),
        key(
            "bearer",
            Kind::Text(r#""file:/etc/sennit/bearer""#),
            Without::Is("none is sent"),
            "File with a bearer token for the proxy. It needs `proxy_ca`.",
        ),
        key(
            "state",
            Kind::Text(r#""/srv/sennit""#),
            string(DEFAULT_STATE),
            STATE,
        ),
        key(
            "device",
            Kind::Text(r#""tun7""#),
            string(DEFAULT_DEVICE),
            DEVICE,
        ),
        key(
            "routes",
            Kind::List(r#"["0.0.0.0/0", "::/0"]"#),
            Without::Value("[]".into()),
            "Prefixes that go into the tunnel, beside the hub's own address there. Local networks \
             and the\nlinks' own subnets stay local.",
        ),
        key(
            "lan",
            Kind::List(r#"["192.168.8.0/24"]"#),
            Without::Value("[]".into()),
            "Prefixes behind this edge. The hub routes those that it granted.",
        ),
        key(
            "dns",
            Kind::List(r#"["10.200.0.1"]"#),
            Without::Value("[]".into()),
            "Name servers that this host asks while there is a tunnel: by systemd-resolved, else \
             resolvconf,\nelse `/etc/resolv.conf`. They are put back afterwards.",
        ),
        key(
            "leak",
            Kind::Word(&["block", "allow"]),
            string("block"),
            "What becomes of `routes` while there is no tunnel: unreachable, or by the host's \
             other routes.",
        ),
        key(
            "leak_when_stopped",
            Kind::Word(&["block", "allow"]),
            string("allow"),
            "What becomes of `routes` after an orderly stop. It has no effect with `leak = \
             \"allow\"`.",
        ),
        key(
            "control",
            Kind::Text(r#""/run/edge.sock""#),
            string(DEFAULT_EDGE_CONTROL),
            CONTROL,
        ),
        mtu("[edge]"),
        key(
            "workers",
            Kind::Integer(WORKERS),
            Without::Is("as many as there are processors, at most 8"),
            "Threads that carry packets; at most one for each class is used. It must be 1 for a \
             `device`\nmade beforehand.",
        ),
    ]
}

fn link() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[[link]]", name, kind, without, meaning);
    vec![
        key(
            "name",
            Kind::Text(r#""starlink""#),
            Without::Needed,
            "What the link is called everywhere: 1 to 32 letters, digits, `-`, `_` or `.`.",
        ),
        key(
            "interface",
            Kind::Text(r#""eth1""#),
            Without::Needed,
            "The WAN interface.",
        ),
        key(
            "tier",
            Kind::Integer(TIER),
            Without::Value("1".into()),
            "Lower is preferred. All links of one tier are used together. Of higher tiers only \
             what\n`redundant` needs for its copies is used while the lower one works.",
        ),
        key(
            "weight",
            Kind::Integer(WEIGHT),
            Without::Value("1".into()),
            "Part of the flows that the link gets under `balanced`.",
        ),
        key(
            "up",
            Kind::Text(r#""20Mbit""#),
            Without::Is("what the link carries is found"),
            "What the edge sends on the link at most, all classes together.",
        ),
        key(
            "down",
            Kind::Text(r#""100Mbit""#),
            Without::Is("what the link carries is found"),
            "What the hub sends on the link at most, all classes together.",
        ),
        key(
            "cost",
            Kind::Integer(COST),
            Without::Value("0".into()),
            "What a byte costs there, beside the other links of its tier: those that cost more are \
             in reserve\nwhile one that costs less works.",
        ),
        key(
            "cap",
            Kind::Text(r#""100GB""#),
            Without::Is("nothing is counted against it"),
            "What the link may carry in a billing cycle, both ways: a number with MB, GB, TB, or \
             MiB, GiB, TiB.\nWhen it is used up, the link is in reserve behind all others, see \
             [Keeping it running](running.md#caps-and-costs).",
        ),
        key(
            "reset_day",
            Kind::Integer(RESET_DAY),
            Without::Value("1".into()),
            "Day of the month on which the cycle of `cap` begins, in UTC.",
        ),
    ]
}

fn class() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[[class]]", name, kind, without, meaning);
    vec![
        key(
            "name",
            Kind::Text(r#""critical""#),
            Without::Needed,
            "What the class is called.",
        ),
        key(
            "match",
            Kind::List(r#"["dscp ef", "udp port 5060"]"#),
            Without::Is("the class takes everything"),
            "Rules for the packets of the class, see [below](#rules-of-match).",
        ),
        key(
            "policy",
            Kind::Word(&["single", "failover", "balanced", "bond", "redundant"]),
            string("bond"),
            "How the class uses the links, see [Choosing](choosing.md).",
        ),
        key(
            "copies",
            Kind::Integer(2..=i64::from(MOST_COPIES)),
            Without::Value("2".into()),
            "Copies of each packet under `redundant`.",
        ),
        key(
            "delivery",
            Kind::Word(&["datagram", "repair", "reliable"]),
            string("repair"),
            "What happens to a packet that a link loses: nothing; it is sent again while that is \
             useful; it\nis sent again for ten seconds.",
        ),
        key(
            "congestion",
            Kind::Word(&["auto", "bbr", "bbr3", "cubic", "follow"]),
            string("auto"),
            "How much each link is given, see [Choosing](choosing.md#congestion).",
        ),
        key(
            "share",
            Kind::Text(r#""20%""#),
            Without::Is("an equal part of what the shares leave"),
            "What is guaranteed to the class on each link, in percent or as a rate like \
             `\"2Mbit\"`. It is lent\nto others while the class does not use it, see \
             [Classes](classes.md#shares).",
        ),
        key(
            "limit",
            Kind::Text(r#""10Mbit""#),
            Without::Is("there is no such bound"),
            "What the class may send on all links together, each way.",
        ),
        key(
            "dscp",
            Kind::Text(r#""ef""#),
            Without::Is("they have none"),
            "Code point of the outer packets that carry the class, at both ends, as in rules of \
             `match`. Marks of\ninner packets stay as they are.",
        ),
        key(
            "fec",
            Kind::Text(r#""rs:10+2""#),
            string("auto"),
            "Data that is sent in addition, so that what a link loses comes back without being sent \
             again:\n`off`, `auto`, `xor:N+1`, `rs:N+K` or `rlc:1/N`, see [Lossy links](repair.md).",
        ),
        key(
            "headers",
            Kind::Word(&["thin", "whole"]),
            string("thin"),
            "How the headers of inner packets travel, in both directions: without what the packets \
             of a flow\nhave in common, see [Thin headers](headers.md), or as they are.",
        ),
        key(
            "device",
            Kind::Text(r#""bulk0""#),
            Without::Is("packets come from the edge's own device"),
            "A TUN device of the class's own: what is routed there belongs to the class.",
        ),
    ]
}

fn api() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[api]", name, kind, without, meaning);
    vec![
        key(
            "listen",
            Kind::List(r#"["127.0.0.1:8479"]"#),
            Without::Value("[]".into()),
            "TCP addresses on which the API listens. One that others can reach needs TLS and a \
             token.",
        ),
        key(
            "tls_certificate",
            Kind::Text(r#""/etc/sennit/api.pem""#),
            Without::Is("there is no TLS"),
            "PEM file with the certificate and its chain. It needs `tls_key`.",
        ),
        key(
            "tls_key",
            Kind::Text(r#""/etc/sennit/api.key""#),
            Without::Is("there is no TLS"),
            "PEM file with the certificate's private key. It needs `tls_certificate`.",
        ),
        key(
            "read_token",
            Kind::Text(r#""file:/etc/sennit/read-token""#),
            Without::Is("whoever is on this host may look, if there is no token at all"),
            "File with the tokens of those who may look, one a line.",
        ),
        key(
            "operate_token",
            Kind::Text(r#""file:/etc/sennit/operate-token""#),
            Without::Is("nobody may over TCP"),
            "File with the tokens of those who may also do what can be undone.",
        ),
        key(
            "admin_token",
            Kind::Text(r#""file:/etc/sennit/admin-token""#),
            Without::Is("nobody may over TCP"),
            "File with the tokens of those who may do everything.",
        ),
        key(
            "hosts",
            Kind::List(r#"["router.lan"]"#),
            Without::Value("[]".into()),
            "Names by which browsers call this host. Addresses and `localhost` are always taken.",
        ),
    ]
}

fn notify() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[[notify]]", name, kind, without, meaning);
    vec![
        key(
            "name",
            Kind::Text(r#""ops""#),
            Without::Needed,
            "Name of who is told, for the log.",
        ),
        key(
            "url",
            Kind::Text(r#""https://ntfy.example.org/sennit""#),
            Without::Needed,
            "Where it is sent, by POST.",
        ),
        key(
            "kind",
            Kind::Word(&["webhook", "ntfy", "alertmanager"]),
            string("webhook"),
            "Standard Webhooks 1.0, a topic of ntfy, or the alerts of an Alertmanager \
             (`/api/v2/alerts`).",
        ),
        key(
            "secret",
            Kind::Text(r#""file:/etc/sennit/webhook-key""#),
            Without::Is("no token is sent; a webhook needs its key"),
            "File with the key that webhooks are signed by (`whsec_` and base64), or with the token \
             that is\nsent to others.",
        ),
        key(
            "events",
            Kind::List(r#"["link_down", "cap"]"#),
            Without::Value(format!("{DEFAULT_EVENTS:?}")),
            "The [events](watching.md#events) to tell of.",
        ),
    ]
}

fn mtu(section: &'static str) -> Key {
    key(
        section,
        "mtu",
        Kind::Integer(MTU),
        Without::Value(DEFAULT_MTU.to_string()),
        "MTU of the TUN device, in bytes. On a link it takes 78 bytes more (IPv4) or 98 (IPv6); on \
         a path\nthat carries less, full packets go in two halves.",
    )
}

const STATE: &str = "Directory of the identity, and on a hub of the store.";
const DEVICE: &str = "Name of the TUN device. Everything that the daemon adds to the host is \
                      named after it.";
const CONTROL: &str = "Unix socket on which the daemon answers `sennit status` and `sennit why`.";
