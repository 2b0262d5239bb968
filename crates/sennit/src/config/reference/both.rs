//! What both files may have.

use super::{Key, Kind, Without, key, string};
use sennit_engine::Rekey;

use crate::config::{
    DEFAULT_EVENTS, DEFAULT_MTU,
    limits::{MTU, REKEY_PACKETS},
};

pub(super) const STATE: &str = "Directory of the identity, and on a hub of the store.";
pub(super) const DEVICE: &str = "Name of the TUN device. Everything that the daemon adds to the host is \
                      named after it.";
pub(super) const CONTROL: &str =
    "Unix socket on which the daemon answers `sennit status` and `sennit why`.";

pub(super) fn mtu(section: &'static str) -> Key {
    key(
        section,
        "mtu",
        Kind::Integer(MTU),
        Without::Value(DEFAULT_MTU.to_string()),
        "MTU of the TUN device, in bytes. On a link it takes 78 bytes more (IPv4) or 98 (IPv6); on \
         a path\nthat carries less, full packets go in two halves.",
    )
}

/// When keys of tunnels are renewed.
pub(super) fn rekey(section: &'static str) -> Vec<Key> {
    vec![
        key(
            section,
            "rekey_packets",
            Kind::Integer(REKEY_PACKETS),
            Without::Value(Rekey::PACKETS.to_string()),
            "Packets that a tunnel sends with one key before this end renews both of its \
             [keys](security.md#sessions).",
        ),
        key(
            section,
            "rekey_bytes",
            Kind::Text(r#""1GB""#),
            Without::Is("only packets count"),
            "The same in bytes, at least 1MB.",
        ),
    ]
}

pub(super) fn api() -> Vec<Key> {
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

pub(super) fn notify() -> Vec<Key> {
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
