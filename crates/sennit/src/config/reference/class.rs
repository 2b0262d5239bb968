//! The sections of classes.

use sennit_engine::MOST_COPIES;

use super::{Key, Kind, Without, key, string};
use crate::config::{Congestion, Delivery, Headers, Policy};

pub(super) fn class() -> Vec<Key> {
    [treatment(), bounds()].concat()
}

/// Which packets it has, and how they use the links.
fn treatment() -> Vec<Key> {
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
            Kind::Word(Policy::WORDS),
            string("bond"),
            "How the class uses the links, see [Choosing](choosing.md).",
        ),
        key(
            "links",
            Kind::List(r#"["starlink"]"#),
            Without::Is("it may use all"),
            "Names of the links that the class may use. It sends nothing on the others, whatever \
             becomes of these.",
        ),
        key(
            "copies",
            Kind::Integer(2..=i64::from(MOST_COPIES)),
            Without::Value("2".into()),
            "Copies of each packet under `redundant`.",
        ),
        key(
            "delivery",
            Kind::Word(Delivery::WORDS),
            string("repair"),
            "What happens to a packet that a link loses: nothing; it is sent again while that is \
             useful; it\nis sent again for ten seconds.",
        ),
        key(
            "congestion",
            Kind::Word(Congestion::WORDS),
            string("auto"),
            "How much each link is given, see [Choosing](choosing.md#congestion).",
        ),
    ]
}

/// What it may send, and in which form.
fn bounds() -> Vec<Key> {
    let key = |name, kind, without, meaning| key("[[class]]", name, kind, without, meaning);
    vec![
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
            Kind::Word(Headers::WORDS),
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
