//! The sections that a hub alone has.

use super::{
    Key, Kind, Without,
    both::{CONTROL, DEVICE, STATE, mtu, rekey},
    key, string,
};
use crate::config::{
    DEFAULT_DEVICE, DEFAULT_HUB_CONTROL, DEFAULT_STATE,
    connect_udp::{DEFAULT_FLOWS, DEFAULT_IDLE, FLOWS, IDLE},
    limits::WORKERS,
};

pub(super) fn hub() -> Vec<Key> {
    [hub_host(), sites(), rekey("[hub]")].concat()
}

/// What it needs of its host.
fn hub_host() -> Vec<Key> {
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
    ]
}

/// What its sites may.
fn sites() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[hub]", name, kind, without, meaning);
    vec![
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

pub(super) fn connect_udp() -> Vec<Key> {
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
