//! What is valid and does nothing, for what else the file says.

use std::ops::Range;

use sennit_engine::Fec;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ReadLink;
use crate::config::class::ReadClass;
use crate::config::finding::Finding;
use crate::config::{Delivery, EdgeConfig, Headers, Leak, Policy};

/// Looks for keys that others make pointless; of `[edge]` in a file that was read as this config.
pub(super) fn check(
    (file, config): (&DeTable<'_>, &EdgeConfig),
    links: &[ReadLink],
    classes: &[ReadClass],
    findings: &mut Vec<Finding>,
) {
    check_overflow(links, findings);
    check_weights(links, classes, findings);
    for class in classes {
        check_policy(class, links, findings);
    }
    let place = |key: &str| match file.get("edge")?.get_ref() {
        DeValue::Table(edge) => Some(edge.get(key)?.span()),
        _ => None,
    };
    check_leak(config, &place, findings);
    check_workers(config, place("workers"), classes, findings);
    let asked = asks_to_share(links, classes);
    check_share_links(config, place("share_links"), asked, findings);
    if config.proxy.is_some() {
        check_proxy(links, classes, findings);
    }
}

fn no_effect(key: &str, span: Range<usize>, help: impl Into<String>) -> Finding {
    Finding::warning(span, format!("`{key}` has no effect here")).help(help)
}

/// A link helps others only if there are some before it.
fn check_overflow(links: &[ReadLink], findings: &mut Vec<Finding>) {
    let place = |link: &ReadLink| (link.tier, link.cost);
    for link in links.iter().filter(|link| link.overflow) {
        if !links.iter().any(|other| place(other) < place(link)) {
            let name = link.name.get_ref();
            let message = format!("`overflow` of link `{name}` has no effect: none is before it");
            findings.push(
                Finding::warning(link.name.span(), message)
                    .help("give it a `cost` or a higher `tier`"),
            );
        }
    }
}

/// Weights count under one policy alone.
fn check_weights(links: &[ReadLink], classes: &[ReadClass], findings: &mut Vec<Finding>) {
    let balances = |class: &&ReadClass| class.has_policy(Policy::Balanced);
    for link in links {
        let mut balanced = classes.iter().filter(balances);
        let counts = balanced.any(|class| class.may_use(link.name.get_ref()));
        if let (Some(weight), false) = (&link.weight, counts) {
            let help = "it is for classes with policy = \"balanced\", and none may use this link";
            findings.push(no_effect("weight", weight.span(), help));
        }
    }
}

/// A policy that the links at hand cannot serve, and more copies than there are links.
fn check_policy(class: &ReadClass, links: &[ReadLink], findings: &mut Vec<Finding>) {
    let Some(policy) = &class.policy else {
        return;
    };
    let of_class = links
        .iter()
        .filter(|link| class.may_use(link.name.get_ref()));
    let links: Vec<&ReadLink> = of_class.collect();
    let one_tier = links
        .iter()
        .all(|link| Some(link.tier) == links.first().map(|first| first.tier));
    let odd = match policy.get_ref() {
        Policy::Redundant if links.len() == 1 => "with one link nothing can be redundant",
        Policy::Balanced if links.len() == 1 => "with one link there is nothing to balance",
        Policy::Failover if links.len() == 1 => "with one link there is nothing to fail over to",
        Policy::Failover if one_tier => "all links have one tier, so failover has no order",
        Policy::Redundant => return check_copies(class, links.len(), findings),
        Policy::Single | Policy::Failover | Policy::Balanced | Policy::Bond => return,
    };
    findings.push(Finding::warning(policy.span(), odd));
}

fn check_copies(class: &ReadClass, links: usize, findings: &mut Vec<Finding>) {
    if let Some(copies) = &class.copies
        && usize::from(*copies.get_ref()) > links
        && links > 0
    {
        let message = format!(
            "class `{}` has {links} links, so no more copies",
            class.name()
        );
        let help = "each copy goes by a link of its own";
        findings.push(Finding::warning(copies.span(), message).help(help));
    }
}

fn check_leak(
    config: &EdgeConfig,
    place: &impl Fn(&str) -> Option<Range<usize>>,
    findings: &mut Vec<Finding>,
) {
    if !config.routes.is_empty() {
        return;
    }
    let stopped = place("leak_when_stopped").filter(|_| config.leak == Leak::Block);
    for (key, span) in [("leak", place("leak")), ("leak_when_stopped", stopped)] {
        let help = "it is about `routes`, of which there are none";
        findings.extend(span.map(|span| no_effect(key, span, help)));
    }
}

/// A worker has a class of its own at least.
fn check_workers(
    config: &EdgeConfig,
    place: Option<Range<usize>>,
    classes: &[ReadClass],
    findings: &mut Vec<Finding>,
) {
    let complete = classes.iter().any(ReadClass::catches_all);
    let classes = classes.len() + usize::from(!complete);
    let wanted = config.workers.map(usize::from);
    if let (Some(span), Some(wanted)) = (place, wanted.filter(|wanted| *wanted > classes)) {
        let message = format!("of {wanted} workers only {classes} have something to do");
        let help = "a class is at one worker, with all its packets";
        findings.push(Finding::warning(span, message).help(help));
    }
}

/// What makes classes share links, if anything but `share_links` does.
fn asks_to_share(links: &[ReadLink], classes: &[ReadClass]) -> Option<&'static str> {
    let bounds = |link: &ReadLink| link.up.is_some() || link.down.is_some();
    if classes.iter().any(|class| class.share.is_some()) {
        Some("the `share` of a class")
    } else if classes.iter().any(|class| class.limit.is_some()) {
        Some("the `limit` of a class")
    } else if links.iter().any(bounds) {
        Some("the `up` or `down` of a link")
    } else if links.iter().any(|link| link.overflow) {
        Some("the `overflow` of a link")
    } else {
        None
    }
}

fn check_share_links(
    config: &EdgeConfig,
    place: Option<Range<usize>>,
    asked: Option<&str>,
    findings: &mut Vec<Finding>,
) {
    if let (Some(span), Some(asked), false) = (place, asked, config.share_links) {
        let help = format!("{asked} makes classes share links");
        findings.push(no_effect("share_links", span, help));
    }
}

/// What only a Sennit hub, or a proxy with Multipath QUIC, can do its part of.
fn check_proxy(links: &[ReadLink], classes: &[ReadClass], findings: &mut Vec<Finding>) {
    let help = "only a Sennit hub does its part of it, and `proxy_ca` is for other proxies";
    let lost = |key, span| no_effect(key, span, help);
    let down = links.iter().filter_map(|link| link.down.as_ref());
    findings.extend(down.map(|rate| lost("down", rate.span())));
    for class in classes {
        let fec = class.fec.as_ref().filter(|it| *it.get_ref() != Fec::Off);
        findings.extend(fec.map(|it| lost("fec", it.span())));
        let delivery = class.delivery.as_ref();
        let delivery = delivery.filter(|it| *it.get_ref() != Delivery::Datagram);
        findings.extend(delivery.map(|it| lost("delivery", it.span())));
        let headers = class.headers.as_ref();
        let headers = headers.filter(|it| *it.get_ref() == Headers::Thin);
        findings.extend(headers.map(|it| lost("headers", it.span())));
        let several = [Policy::Bond, Policy::Balanced, Policy::Redundant];
        let policy = class.policy.as_ref();
        let policy = policy.filter(|it| several.contains(it.get_ref()) && links.len() > 1);
        findings.extend(policy.map(one_at_a_time));
    }
}

fn one_at_a_time(policy: &Spanned<Policy>) -> Finding {
    let message = "a proxy without Multipath QUIC takes one link at a time";
    Finding::warning(policy.span(), message)
        .help("policy = \"failover\" with a `tier` for each link says which one that is")
}
