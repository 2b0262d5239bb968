//! `[edge]` and `[[link]]`, and what only the whole file can tell.

mod pointless;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use sennit_engine::MOST_LINKS;
use sennit_linux::DeviceName;
use sennit_packet::Bitrate;
use toml::Spanned;
use toml::de::DeTable;

use super::class::{self, ReadClass};
use super::finding::Finding;
use super::limits::{MOST_ROUTES, MTU, WORKERS, check_mtu};
use super::section::Section;
use super::{
    ApiConfig, DEFAULT_EDGE_CONTROL, DEFAULT_MTU, DEFAULT_STATE, EdgeConfig, Leak, Link, Prefix,
    Proxy, default_device, rekey, tables, values,
};

/// Tiers of links: far more than there are links.
pub(super) const TIER: RangeInclusive<i64> = 1..=255;
/// Weights of links: parts of a flow in a thousand.
pub(super) const WEIGHT: RangeInclusive<i64> = 1..=1000;

/// Costs of links: what counts is which is greater.
pub(super) const COST: RangeInclusive<i64> = 0..=100;
/// Days that every month has.
pub(super) const RESET_DAY: RangeInclusive<i64> = 1..=31;

/// `[[link]]` with the places that later checks point at.
struct ReadLink {
    name: Spanned<String>,
    interface: Spanned<String>,
    tier: u8,
    weight: Option<Spanned<u16>>,
    up: Option<Bitrate>,
    down: Option<Spanned<Bitrate>>,
    cost: u8,
    overflow: bool,
    cap: Option<u64>,
    reset_day: u8,
}

pub(super) fn read(
    root: &DeTable<'_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Option<EdgeConfig> {
    let mut file = Section::root(root, text);
    let edge = match file.value("edge") {
        Some(value) => {
            Section::open("[edge]", value, text, findings).map(|edge| read_edge(edge, findings))
        }
        None => {
            let missing = Finding::missing(0..0, "there is no [edge] section");
            findings.push(missing.help("an edge's config starts with [edge]"));
            None
        }
    };
    let links = read_links(&mut file, text, findings);
    let mut classes = class::read(&mut file, text, findings);
    let api = super::api::read(&mut file, text, findings);
    let notify = super::notify::read(&mut file, text, findings);
    file.finish(findings);
    let mut config = edge?;
    config.api = api;
    config.notify = notify;
    check_links(&links, &config.device, findings);
    class::check(&classes, findings);
    class::name_devices(&mut classes, &config.device, findings);
    check_devices(&config.device, &links, &classes, findings);
    check_class_links(&links, &classes, findings);
    let file = (root, &config);
    pointless::check(file, &links, &classes, findings);
    config.links = links.into_iter().map(ReadLink::into_link).collect();
    class::shares::check(&classes, &config.links, findings);
    config.classes = class::complete(classes);
    Some(config)
}

fn read_edge(mut edge: Section<'_, '_>, findings: &mut Vec<Finding>) -> EdgeConfig {
    edge.require("hub", "[\"203.0.113.10:443\"]", findings);
    let hub = edge.strings("hub", values::remote, findings);
    let hub = hub.unwrap_or_default();
    edge.require_some(
        "hub",
        "name at least one hub, like 203.0.113.10:443",
        findings,
    );
    check_repeats("hub", &hub, findings);
    let proxy = read_proxy(&mut edge, findings);
    let state = edge.string("state", values::path, findings);
    let state = state.map_or_else(|| DEFAULT_STATE.into(), Spanned::into_inner);
    let records = edge.string("records", values::path, findings);
    let device = edge.string("device", values::device, findings);
    let routes = edge.list("routes", MOST_ROUTES, values::prefix, findings);
    let routes = routes.unwrap_or_default();
    check_repeats("routes", &routes, findings);
    let lan = edge.strings("lan", lan_prefix, findings);
    let lan = lan.unwrap_or_default();
    check_repeats("lan", &lan, findings);
    check_own_lan(&routes, &lan, findings);
    check_nested(&lan, findings);
    let dns = edge.strings("dns", values::address, findings);
    let dns = dns.unwrap_or_default();
    check_repeats("dns", &dns, findings);
    check_dns(&dns, &routes, findings);
    let leak = edge.string("leak", values::leak, findings);
    let leak_when_stopped = edge.string("leak_when_stopped", values::leak, findings);
    check_leak(&routes, leak.as_ref(), leak_when_stopped.as_ref(), findings);
    let share_links = edge.boolean("share_links", findings);
    let control = edge.string("control", values::socket_path, findings);
    let mtu = edge.integer("mtu", MTU, findings);
    check_mtu(mtu.as_ref(), findings);
    let workers = edge.integer("workers", WORKERS, findings);
    let rekey = rekey::read(&mut edge, findings);
    edge.finish(findings);
    EdgeConfig {
        hub: inner(hub),
        proxy,
        records: records.map_or_else(|| state.clone(), Spanned::into_inner),
        state,
        device: device.map_or_else(default_device, Spanned::into_inner),
        routes: inner(routes),
        leak: leak.map_or(Leak::Block, Spanned::into_inner),
        leak_when_stopped: leak_when_stopped.map_or(Leak::Allow, Spanned::into_inner),
        dns: inner(dns),
        lan: inner(lan),
        share_links: share_links.unwrap_or(false),
        control: control.map_or_else(|| DEFAULT_EDGE_CONTROL.into(), Spanned::into_inner),
        mtu: mtu.map_or(DEFAULT_MTU, Spanned::into_inner),
        workers: workers.map(Spanned::into_inner),
        rekey,
        api: ApiConfig::default(),
        notify: Vec::new(),
        links: Vec::new(),
        classes: Vec::new(),
    }
}

/// What is behind this edge is not at the far end of the tunnel.
fn check_own_lan(routes: &[Spanned<Prefix>], lan: &[Spanned<Prefix>], findings: &mut Vec<Finding>) {
    for route in routes {
        if lan
            .iter()
            .any(|lan| lan.get_ref().contains(route.get_ref()))
        {
            let message = format!(
                "{} is behind this edge, and `routes` sends it into the tunnel",
                route.get_ref()
            );
            findings.push(Finding::warning(route.span(), message));
        }
    }
}

/// Questions leave beside the tunnel to a server that is not behind it. The hub's own address in
/// the tunnel is known only later, and is private.
fn check_dns(dns: &[Spanned<IpAddr>], routes: &[Spanned<Prefix>], findings: &mut Vec<Finding>) {
    for server in dns {
        let address = server.get_ref();
        let routed = routes.iter().any(|route| route.get_ref().contains(address));
        let private = match address {
            IpAddr::V4(address) => address.is_private(),
            IpAddr::V6(address) => address.is_unique_local(),
        };
        if !routed && !private {
            let message =
                format!("{address} is not in `routes`: questions leave beside the tunnel");
            let help = "add it to `routes`, or name a server that is behind the tunnel";
            findings.push(Finding::warning(server.span(), message).help(help));
        }
    }
}

/// A prefix inside another adds nothing to what is announced.
fn check_nested(lan: &[Spanned<Prefix>], findings: &mut Vec<Finding>) {
    for inner in lan {
        let around = |outer: &&Spanned<Prefix>| {
            outer.get_ref() != inner.get_ref() && outer.get_ref().contains(inner.get_ref())
        };
        if let Some(outer) = lan.iter().find(around) {
            let (inner_net, outer) = (inner.get_ref(), outer.get_ref());
            let message = format!("{inner_net} lies in {outer}: only {outer} is announced");
            findings.push(
                Finding::warning(inner.span(), message)
                    .help("the hub routes it if it granted all of the larger one"),
            );
        }
    }
}

/// What leaves beside the tunnel though it hardly should.
fn check_leak(
    routes: &[Spanned<Prefix>],
    leak: Option<&Spanned<Leak>>,
    when_stopped: Option<&Spanned<Leak>>,
    findings: &mut Vec<Finding>,
) {
    let is = |leak: Option<&Spanned<Leak>>, what| leak.is_some_and(|it| *it.get_ref() == what);
    if let (true, Some(stopped)) = (is(leak, Leak::Allow), when_stopped)
        && *stopped.get_ref() == Leak::Block
    {
        let message = "`leak_when_stopped` has no effect here";
        findings
            .push(Finding::warning(stopped.span(), message).help("it goes with leak = \"block\""));
    }
    let default = |v4: bool| {
        let whole = |route: &&Spanned<Prefix>| {
            let prefix = route.get_ref();
            prefix.prefix_len() == 0 && prefix.addr().is_ipv4() == v4
        };
        routes.iter().find(whole)
    };
    let (one, other, family) = match (default(true), default(false)) {
        (Some(v4), None) => (v4, "::/0", "IPv6"),
        (None, Some(v6)) => (v6, "0.0.0.0/0", "IPv4"),
        _ => return,
    };
    let message = format!("{} is for the tunnel, and {other} is not", one.get_ref());
    findings.push(Finding::warning(one.span(), message).help(format!(
        "{family} leaves beside the tunnel; add \"{other}\" to `routes`, which is then unreachable \
         if the hub has no {family}"
    )));
}

fn read_proxy(edge: &mut Section<'_, '_>, findings: &mut Vec<Finding>) -> Option<Proxy> {
    let ca = edge.string("proxy_ca", values::path, findings);
    let name = edge.string("proxy_name", values::server_name, findings);
    let bearer = edge.string("bearer", values::secret_file, findings);
    let Some(ca) = ca else {
        let alone = [
            ("proxy_name", name.map(|name| name.span())),
            ("bearer", bearer.map(|file| file.span())),
        ];
        findings.extend(alone.into_iter().filter_map(|(key, span)| {
            let wrong = Finding::error(span?, format!("`{key}` needs `proxy_ca`"));
            Some(wrong.help(
                "it is for a CONNECT-IP proxy that is not a Sennit hub, whose CA proxy_ca names",
            ))
        }));
        return None;
    };
    Some(Proxy {
        ca: ca.into_inner(),
        name: name.map(Spanned::into_inner),
        bearer: bearer.map(Spanned::into_inner),
    })
}

/// A prefix that can be behind an edge.
fn lan_prefix(typed: &str) -> Result<Prefix, values::Wrong> {
    let prefix = values::prefix(typed)?;
    if prefix.prefix_len() == 0 {
        return Err(
            values::Wrong::new("the whole internet is not behind an edge")
                .help("name the prefixes of the LAN, like 192.168.8.0/24"),
        );
    }
    if let Some(special) = values::special(&prefix) {
        return Err(
            values::Wrong::new(format!("{prefix} cannot be a LAN: {special}"))
                .help("name the prefixes of the LAN, like 192.168.8.0/24"),
        );
    }
    Ok(prefix)
}

fn read_links(
    file: &mut Section<'_, '_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Vec<ReadLink> {
    let values = tables(file, "link", MOST_LINKS, findings);
    if values.is_empty() {
        findings.push(Finding::missing(0..0, "there is no [[link]]").help(
            "name each WAN interface: [[link]] with name = \"lte\" and interface = \"wwan0\"",
        ));
    }
    let sections = values
        .into_iter()
        .filter_map(|value| Section::open("[[link]]", value, text, findings));
    let sections: Vec<_> = sections.collect();
    sections
        .into_iter()
        .filter_map(|section| read_link(section, findings))
        .collect()
}

fn read_link(mut link: Section<'_, '_>, findings: &mut Vec<Finding>) -> Option<ReadLink> {
    link.require("name", "\"lte-a\"", findings);
    let name = link.string("name", values::name, findings);
    link.require("interface", "\"wwan0\"", findings);
    let interface = link.string("interface", values::interface, findings);
    let tier = link.integer("tier", TIER, findings);
    let weight = link.integer("weight", WEIGHT, findings);
    let up = link.string("up", values::rate, findings);
    let down = link.string("down", values::rate, findings);
    let cost = link.integer("cost", COST, findings);
    let overflow = link.boolean("overflow", findings);
    let cap = link.string("cap", values::amount, findings);
    let reset_day = link.integer::<u8>("reset_day", RESET_DAY, findings);
    if let (None, Some(day)) = (&cap, &reset_day)
        && !link.has("cap")
    {
        let message = "`reset_day` has no effect here";
        findings.push(Finding::warning(day.span(), message).help("it goes with `cap`"));
    }
    link.finish(findings);
    Some(ReadLink {
        name: name?,
        interface: interface?,
        tier: tier.map_or(1, Spanned::into_inner),
        weight,
        up: up.map(Spanned::into_inner),
        down,
        cost: cost.map_or(0, Spanned::into_inner),
        overflow: overflow.unwrap_or(false),
        cap: cap.map(Spanned::into_inner),
        reset_day: reset_day.map_or(1, Spanned::into_inner),
    })
}

impl ReadLink {
    fn into_link(self) -> Link {
        Link {
            name: self.name.into_inner(),
            interface: self.interface.into_inner(),
            tier: self.tier,
            weight: self.weight.map_or(1, Spanned::into_inner),
            up: self.up,
            down: self.down.map(Spanned::into_inner),
            cost: self.cost,
            overflow: self.overflow,
            cap: self.cap,
            reset_day: self.reset_day,
        }
    }
}

fn check_links(links: &[ReadLink], device: &DeviceName, findings: &mut Vec<Finding>) {
    for (n, link) in links.iter().enumerate() {
        if links[..n]
            .iter()
            .any(|other| other.name.get_ref() == link.name.get_ref())
        {
            let message = format!("two links are named `{}`", link.name.get_ref());
            findings.push(Finding::error(link.name.span(), message));
        }
        let interface = link.interface.get_ref();
        if let Some(other) = links[..n]
            .iter()
            .find(|other| other.interface.get_ref() == interface)
        {
            let message = format!(
                "links `{}` and `{}` are both {interface}",
                other.name.get_ref(),
                link.name.get_ref()
            );
            findings.push(
                Finding::error(link.interface.span(), message).help("a link is one WAN interface"),
            );
        }
        if interface == device.as_str() {
            let message = format!("link `{}` is the tunnel's own device", link.name.get_ref());
            findings.push(Finding::error(link.interface.span(), message));
        }
    }
}

/// A class's device is its own, and not the edge's nor a link.
fn check_devices(
    main: &DeviceName,
    links: &[ReadLink],
    classes: &[ReadClass],
    findings: &mut Vec<Finding>,
) {
    for (n, class) in classes.iter().enumerate() {
        let Some(own) = &class.device else { continue };
        let taken_by = if own.get_ref() == main {
            Some("the edge".to_owned())
        } else if let Some(link) = links
            .iter()
            .find(|link| link.interface.get_ref() == own.get_ref().as_str())
        {
            Some(format!("link `{}`", link.name.get_ref()))
        } else {
            let same = |other: &&ReadClass| {
                other
                    .device
                    .as_ref()
                    .is_some_and(|d| d.get_ref() == own.get_ref())
            };
            classes[..n]
                .iter()
                .find(same)
                .map(|other| format!("class `{}`", other.name()))
        };
        if let Some(owner) = taken_by {
            let message = format!("device {} already belongs to {owner}", own.get_ref());
            findings.push(
                Finding::error(own.span(), message)
                    .help("a class needs a device of its own, or none"),
            );
        }
    }
}

/// Classes may use links that there are.
fn check_class_links(links: &[ReadLink], classes: &[ReadClass], findings: &mut Vec<Finding>) {
    let mut names: Vec<&str> = Vec::new();
    for link in links {
        let name = link.name.get_ref().as_str();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for wanted in classes.iter().filter_map(|class| class.links.as_ref()) {
        check_repeats("links", wanted, findings);
        let unknown = wanted
            .iter()
            .filter(|name| !names.contains(&name.get_ref().as_str()));
        findings.extend(unknown.map(|name| {
            let message = format!("no link is named `{}`", name.get_ref());
            let finding = Finding::error(name.span(), message);
            match names.is_empty() {
                true => finding,
                false => finding.help(format!("there are {}", names.join(", "))),
            }
        }));
    }
}

fn check_repeats<T: Ord + std::fmt::Display>(
    key: &str,
    list: &[Spanned<T>],
    findings: &mut Vec<Finding>,
) {
    let mut seen = BTreeSet::new();
    for item in list {
        if !seen.insert(item.get_ref()) {
            let message = format!("`{key}` names {} twice", item.get_ref());
            findings.push(Finding::warning(item.span(), message));
        }
    }
}

fn inner<T>(list: Vec<Spanned<T>>) -> Vec<T> {
    list.into_iter().map(Spanned::into_inner).collect()
}
