//! `[hub]`.

use std::net::SocketAddr;

use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;
use toml::de::DeTable;

use super::finding::Finding;
use super::limits::{MTU, WORKERS, check_mtu};
use super::section::Section;
use crate::reach::Reach;

use super::{
    ApiConfig, DEFAULT_HUB_CONTROL, DEFAULT_MTU, DEFAULT_STATE, HubConfig, Pool, Prefix,
    default_device, rekey, values,
};

pub(super) fn read(
    root: &DeTable<'_>,
    text: &str,
    findings: &mut Vec<Finding>,
) -> Option<HubConfig> {
    let mut file = Section::root(root, text);
    let Some(value) = file.value("hub") else {
        findings.push(
            Finding::missing(0..0, "there is no [hub] section")
                .help("a hub's config starts with [hub]"),
        );
        file.finish(findings);
        return None;
    };
    let hub = Section::open("[hub]", value, text, findings)
        .and_then(|section| read_hub(section, findings));
    let classes = super::class::read_rules(&mut file, text, findings);
    let api = super::api::read(&mut file, text, findings);
    let notify = super::notify::read(&mut file, text, findings);
    let connect_udp = super::connect_udp::read(&mut file, text, findings);
    file.finish(findings);
    hub.map(|hub| HubConfig {
        api,
        classes,
        notify,
        connect_udp,
        ..hub
    })
}

fn read_hub(mut hub: Section<'_, '_>, findings: &mut Vec<Finding>) -> Option<HubConfig> {
    hub.require("listen", "[\"0.0.0.0:443\", \"[::]:443\"]", findings);
    let listen = hub
        .strings("listen", values::listen, findings)
        .unwrap_or_default();
    hub.require_some(
        "listen",
        "name at least one address, like 0.0.0.0:443",
        findings,
    );
    check_listen(&listen, findings);
    let state = hub.string("state", values::path, findings);
    hub.require("pool", "[\"10.200.0.0/16\", \"fd5e:1::/64\"]", findings);
    let pool = hub
        .strings("pool", pool_prefix, findings)
        .unwrap_or_default();
    hub.require_some(
        "pool",
        "name an IPv4 prefix, an IPv6 prefix, or both",
        findings,
    );
    check_public(&pool, findings);
    let pool = read_pool(&pool, findings);
    let nat = hub.boolean("nat", findings);
    let device = hub.string("device", values::device, findings);
    let control = hub.string("control", values::socket_path, findings);
    let mtu = hub.integer("mtu", MTU, findings);
    check_mtu(mtu.as_ref(), findings);
    let workers = hub.integer("workers", WORKERS, findings);
    let rekey = rekey::read(&mut hub, findings);
    let mut reach = |key| {
        let places = hub.strings(key, values::place, findings)?;
        Some(places.into_iter().map(Spanned::into_inner).collect())
    };
    let (reach, bearer_reach) = (reach("reach"), reach("bearer_reach"));
    let site_limit = hub.string("site_limit", values::rate, findings);
    let require_pq = hub.boolean("require_pq", findings);
    let speedtest = hub.boolean("speedtest", findings);
    hub.finish(findings);
    Some(HubConfig {
        listen: listen.into_iter().map(Spanned::into_inner).collect(),
        state: state.map_or_else(|| DEFAULT_STATE.into(), Spanned::into_inner),
        pool: pool?,
        nat: nat.unwrap_or(true),
        device: device.map_or_else(default_device, Spanned::into_inner),
        control: control.map_or_else(|| DEFAULT_HUB_CONTROL.into(), Spanned::into_inner),
        mtu: mtu.map_or(DEFAULT_MTU, Spanned::into_inner),
        workers: workers.map(Spanned::into_inner),
        rekey,
        reach: reach.unwrap_or_else(Reach::everything),
        bearer_reach: bearer_reach.unwrap_or_else(Reach::internet),
        connect_udp: None,
        api: ApiConfig::default(),
        require_pq: require_pq.unwrap_or(false),
        speedtest: speedtest.unwrap_or(false),
        notify: Vec::new(),
        site_limit: site_limit.map(Spanned::into_inner),
        classes: Vec::new(),
    })
}

fn check_listen(listen: &[Spanned<SocketAddr>], findings: &mut Vec<Finding>) {
    for (n, address) in listen.iter().enumerate() {
        if listen[..n]
            .iter()
            .any(|other| other.get_ref() == address.get_ref())
        {
            findings.push(Finding::error(
                address.span(),
                format!("`listen` names {} twice", address.get_ref()),
            ));
        }
    }
}

/// A prefix that sites can be given addresses from.
fn pool_prefix(typed: &str) -> Result<Prefix, values::Wrong> {
    let prefix = values::prefix(typed)?;
    let smallest = match prefix {
        Prefix::V4(_) => 30,
        Prefix::V6(_) => 126,
    };
    if prefix.prefix_len() > smallest {
        return Err(
            values::Wrong::new(format!("{prefix} has no room for sites"))
                .label(format!("/{smallest} is the smallest")),
        );
    }
    if prefix.prefix_len() == 0 || values::special(&prefix).is_some() {
        return Err(
            values::Wrong::new(format!("{prefix} cannot be given to sites"))
                .help("take private space, like 10.200.0.0/16 and fd5e:1::/64"),
        );
    }
    Ok(prefix)
}

/// Addresses of others that sites could then not reach.
fn check_public(pool: &[Spanned<Prefix>], findings: &mut Vec<Finding>) {
    let public = |prefix: &&Spanned<Prefix>| values::is_public(prefix.get_ref());
    for prefix in pool.iter().filter(public) {
        let message = format!("{} is public address space", prefix.get_ref());
        findings.push(Finding::warning(prefix.span(), message).help(
            "whoever owns it on the internet cannot be reached from here; if that is not you, take \
             private space, like 10.200.0.0/16 and fd5e:1::/64",
        ));
    }
}

fn read_pool(prefixes: &[Spanned<Prefix>], findings: &mut Vec<Finding>) -> Option<Pool> {
    let mut pool = Pool {
        v4: None::<Ipv4Net>,
        v6: None::<Ipv6Net>,
    };
    for prefix in prefixes {
        let taken = match prefix.get_ref() {
            Prefix::V4(v4) => pool.v4.replace(*v4).is_some(),
            Prefix::V6(v6) => pool.v6.replace(*v6).is_some(),
        };
        if taken {
            findings.push(
                Finding::error(prefix.span(), "`pool` has two prefixes of one family")
                    .help("one IPv4 prefix, one IPv6 prefix, or both"),
            );
        }
    }
    (pool.v4.is_some() || pool.v6.is_some()).then_some(pool)
}
