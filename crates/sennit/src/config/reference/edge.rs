//! The sections of an edge and its links.

use super::{
    Key, Kind, Without,
    both::{CONTROL, DEVICE, STATE, mtu, rekey},
    key, string,
};
use crate::config::{
    DEFAULT_DEVICE, DEFAULT_EDGE_CONTROL, DEFAULT_STATE,
    edge::{COST, RESET_DAY, TIER, WEIGHT},
    limits::WORKERS,
};

pub(super) fn edge() -> Vec<Key> {
    [far_side(), edge_host(), carrying(), rekey("[edge]")].concat()
}

/// Its hub, and who it is to that.
fn far_side() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[edge]", name, kind, without, meaning);
    vec![
        key(
            "hub",
            Kind::List(r#"["203.0.113.10:443"]"#),
            Without::Needed,
            "Addresses or names of the hub, with ports. A name that is not in \
             /etc/hosts\nis looked up over each link, all addresses are tried at once, and without a \
             resolver those found last.\nTunnels move to the addresses of another list at a reload.",
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
            "records",
            Kind::Text(r#""/run/sennit/records""#),
            Without::Is("that of `state`"),
            "Directory of history, events, counters and notifications that are not delivered yet, \
             which are written\nevery few seconds. On a router it is better one in memory than its \
             flash, and then they begin\nanew with each boot, caps as well.\nUnder systemd a directory outside of `/var/lib/sennit` \
             and `/run/sennit` has to be there, and in\nthe unit as `ReadWritePaths=` (`systemctl edit \
             sennit-edge`): an edge that cannot write there keeps\nnone of them.",
        ),
    ]
}

/// What it needs of its host.
fn edge_host() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[edge]", name, kind, without, meaning);
    vec![
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
            Kind::List(r#"["9.9.9.9", "2620:fe::fe"]"#),
            Without::Value("[]".into()),
            "Name servers that this host asks while there is a tunnel, and reaches through it; the \
             hub itself is\nnone. It is done by systemd-resolved, else resolvconf, else \
             `/etc/resolv.conf`, and undone afterwards.",
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
    ]
}

/// How it carries packets.
fn carrying() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[edge]", name, kind, without, meaning);
    vec![
        key(
            "share_links",
            Kind::Boolean,
            Without::Value("false".into()),
            "Whether classes [share links](classes.md#shares) though nothing else asks for that. \
             Without it plain\nclasses meet in the queue of the modem.",
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

pub(super) fn link() -> Vec<Key> {
    [place(), capacity()].concat()
}

/// Which it is, and when it is used.
fn place() -> Vec<Key> {
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
    ]
}

/// What it carries, and what that costs.
fn capacity() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[[link]]", name, kind, without, meaning);
    vec![
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
            "overflow",
            Kind::Boolean,
            Without::Value("false".into()),
            "Whether the link helps those of a lower `tier` or `cost` while they are full, see\n\
             [Keeping it running](running.md#caps-and-costs).",
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
            "Day of the month on which the cycle of `cap` begins, in UTC; in a shorter month it is the \
             last.",
        ),
    ]
}
