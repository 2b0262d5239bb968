//! Every key of both files in words: what the book's chapter about them is made of.
//!
//! `tests/parts/book.rs` holds the table to what the readers of [`super`] do: the keys and
//! their order, the ranges, the words, and what a file is without a key.

mod both;
mod class;
mod edge;
mod hub;

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;

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
        "An edge has one of these for each traffic class, 64 at most, and 1024 rules in all of them \
         together; the hub follows what the edge says. The first class that matches takes a packet. \
         Without a class that takes everything there is one more, `default`, with the defaults \
         below.",
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
        hub::hub(),
        hub::connect_udp(),
        edge::edge(),
        edge::link(),
        class::class(),
        both::api(),
        both::notify(),
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
its place and what would be right, and what does not fit this host; `--file-only` leaves the host out.
Unknown keys are errors.
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
