//! What is wrong with the host as a whole.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use sennit_linux::netlink::{Family, Netlink, Rule, TABLE_MAIN};

use super::Finding;
use crate::{
    config::{EdgeConfig, Prefix},
    control::{Client, Request},
    identity::EdgeIdentity,
    status::{State, Status},
};

const TUN: &str = "/dev/net/tun";
/// The kernel's own rules: local, main and default.
const KERNEL_RULES: [u32; 3] = [0, 32_766, 32_767];
/// ARPHRD_NONE: devices without link-layer addresses, as TUN and WireGuard have them.
const NO_HARDWARE: &str = "65534";
/// A running edge answers at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// An edge that has just started may take so many seconds to connect, over a satellite of 600 ms.
const CONNECTING: f64 = 5.0;
/// Days that are left of a certificate which should have been renewed long ago.
const OLD: u64 = 60;

/// Certificates go by the clock.
pub(super) fn clock(identity: &EdgeIdentity, now: SystemTime) -> Option<Finding> {
    let advice = "set it, and keep it right: timedatectl set-ntp true";
    let (from, until) = identity.validity()?;
    let apart = |a: SystemTime, b: SystemTime| {
        let hours = a.duration_since(b).unwrap_or_default().as_secs() / 3_600;
        format!("{hours} hours")
    };
    if now < from {
        let message = format!(
            "the clock of this host is at least {} slow: the hub issued the certificate later",
            apart(from, now)
        );
        return Some(Finding::error("clock-slow", message, advice));
    }
    if now > until {
        let message = format!(
            "the certificate has been too old for {}, or the clock of this host is fast",
            apart(now, until)
        );
        let advice = "look at the clock (timedatectl); if it is right, ask the hub for a new token \
                      and join with --force";
        return Some(Finding::error("clock-fast", message, advice));
    }
    let days = until.duration_since(now).unwrap_or_default().as_secs() / 86_400;
    (days < OLD).then(|| {
        let message = format!("the certificate is good for {days} days, and was not renewed");
        let advice = "`sennit status` says why, while the edge runs; or ask the hub for a new token \
                      and join with --force";
        Finding::warning("certificate-old", message, advice)
    })
}

pub(super) fn device() -> Option<Finding> {
    (!Path::new(TUN).exists()).then(|| {
        Finding::error(
            "no-tun",
            format!("{TUN} is not there, and without it there is no tunnel"),
            "load the module: modprobe tun; in a container, pass the device in",
        )
    })
}

/// Firewalls that drop what is forwarded from and to the LAN.
pub(super) fn forwarding(config: &EdgeConfig) -> Option<Finding> {
    if config.lan.is_empty() {
        return None;
    }
    let blockers = sennit_linux::forward_blockers().ok()?;
    (!blockers.is_empty()).then(|| {
        Finding::warning(
            "forward-blocked",
            format!(
                "the firewall drops forwarded packets unless it is told otherwise: {}",
                blockers.join(", ")
            ),
            format!(
                "let it forward between the LAN and {}, in both directions",
                config.device
            ),
        )
    })
}

/// Whether the edge with this config runs.
pub(super) fn is_running(config: &EdgeConfig) -> bool {
    Client::connect(&config.control, PATIENCE).is_ok()
}

/// The edge that runs has no tunnel. Where nothing else is wrong the hub answers, so this says why.
pub(super) fn tunnel(config: &EdgeConfig) -> Option<Finding> {
    let mut client = Client::connect(&config.control, PATIENCE).ok()?;
    let document = client.request(&Request::Status).ok()?;
    without_tunnel(&serde_json::from_value(document).ok()?)
}

fn without_tunnel(status: &Status) -> Option<Finding> {
    if !matches!(status.state, State::Connecting | State::Down) {
        return None;
    }
    let tunnel = status.tunnels.iter().find(|it| it.reason.is_some())?;
    let why = tunnel.reason.as_ref()?;
    (tunnel.since_seconds > CONNECTING).then(|| {
        Finding::error(
            "no-tunnel",
            format!("the hub answers, and yet the edge that runs here has no tunnel: {why}"),
            "if the hub refuses the site, have it invite the site again (`sennit invite SITE --hub \
             ADDR:PORT` there), say `sennit join --force TOKEN` here; else \
             read the log of both ends",
        )
    })
}

/// Other VPNs that draw what belongs into our tunnel into theirs.
pub(super) fn other_routes(config: &EdgeConfig, netlink: &mut Netlink) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, index) in point_to_point_devices() {
        let is_ours = name == config.device.as_str()
            || config.links.iter().any(|link| link.interface == name)
            || config
                .classes
                .iter()
                .any(|it| it.device.as_ref().is_some_and(|own| own.as_str() == name));
        if is_ours {
            continue;
        }
        let taken = Family::BOTH
            .into_iter()
            .find_map(|family| taken_by(index, family, config, netlink));
        if let Some((taken, how)) = taken {
            findings.push(Finding::error(
                "other-vpn",
                format!("{name} takes {taken}, which belongs into our tunnel ({how})"),
                format!(
                    "stop that VPN, or give it routes that are not in `routes`; \
                     `ip route show dev {name}` and `ip rule` show them"
                ),
            ));
        }
    }
    findings
}

/// What of our routes goes to a device, and by what.
fn taken_by(
    device: u32,
    family: Family,
    config: &EdgeConfig,
    netlink: &mut Netlink,
) -> Option<(Prefix, String)> {
    let rules: Vec<Rule> = netlink.rules(family).unwrap_or_default();
    // A rule for packets from one prefix leaves what goes into the tunnel alone.
    let foreign = rules.iter().filter(|rule| {
        !rule.is_ours() && rule.only.source.is_none() && !KERNEL_RULES.contains(&rule.priority)
    });
    let tables = foreign.map(|rule| (rule.table, format!("rule {}", rule.priority)));
    let main = (TABLE_MAIN, "a route of the main table".to_owned());
    for (table, how) in tables.chain([main]) {
        let routes = netlink.routes(family, table, device).unwrap_or_default();
        for route in routes.iter().filter(|route| !route.is_ours()) {
            // A prefix as long as ours or longer wins, but for a default route, of which ours comes
            // before the main table; a rule wins in any case.
            let wins = |ours: &&Prefix| {
                let len = route.destination.prefix_len();
                let longer = len > 0 && len >= ours.prefix_len();
                ours.contains(&route.destination.addr()) && (longer || table != TABLE_MAIN)
                    || table != TABLE_MAIN && route.destination.contains(&ours.addr())
            };
            // A network of its own is that VPN's business.
            let wide = route.destination.prefix_len() <= 8;
            let same = |ours: &&Prefix| **ours == route.destination;
            if let Some(ours) = config.routes.iter().find(wins)
                && (wide || same(&ours))
            {
                return Some((*ours, how));
            }
        }
    }
    None
}

/// Names and indices.
fn point_to_point_devices() -> Vec<(String, u32)> {
    let devices = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let found = devices.filter_map(|device| {
        let path = device.path();
        let kind = read(&path.join("type"));
        let index = read(&path.join("ifindex")).trim().parse().ok()?;
        let name = device.file_name().into_string().ok()?;
        (kind.trim() == NO_HARDWARE).then_some((name, index))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{
        identity::{self, HubIdentity},
        store::Store,
    };

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_certificate_that_should_have_been_renewed_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let [hub, van] = ["hub", "van"].map(|name| dir.path().join(name));
        let issued = SystemTime::now();
        let authority = HubIdentity::init(&hub, &[], issued).unwrap().authority;
        let mut store = Store::open(&hub).unwrap();
        let (site, hubs) = ("van".parse().unwrap(), ["192.0.2.1:443".parse().unwrap()]);
        let invited = identity::invite(&mut store, &authority, &site, &hubs, DAY, issued).unwrap();
        let mut van = EdgeIdentity::join(&van, &invited, false).unwrap();
        assert_eq!(clock(&van, issued), None, "there is none yet");
        let request = van.enrollment_request().unwrap();
        let answer = identity::exchange(&mut store, &authority, &[], &request, issued);
        van.accept(&answer.body).unwrap();

        let code = |days| clock(&van, issued + days * DAY).map(|finding| finding.code);

        assert_eq!([1, 250, 300].map(code), [None; 3]);
        assert_eq!(code(320), Some("certificate-old"));
        assert_eq!(code(366), Some("clock-fast"));
        assert_eq!(clock(&van, issued - DAY).unwrap().code, "clock-slow");
    }

    #[test]
    fn an_edge_that_the_hub_refuses_is_no_sound_one() {
        let status = |state: &str, since: f64| {
            let tunnel = json!({
                "class": "default", "site": "van", "policy": "bond", "delivery": "repair",
                "state": state, "reason": "site `van` is revoked", "since_seconds": since,
                "sent_bytes": 0, "received_bytes": 0, "paths": [],
            });
            let document = json!({
                "schema": "sennit.status/1", "role": "edge", "version": "1", "state": state,
                "uptime_seconds": 60.0, "device": "sennit0", "addresses": [], "links": [],
                "tunnels": [tunnel],
            });
            serde_json::from_value::<Status>(document).expect("it is a status")
        };

        let refused = without_tunnel(&status("connecting", 20.0)).expect("that is worth a word");

        assert_eq!(refused.code, "no-tunnel");
        assert!(refused.message.contains("`van` is revoked"), "{refused:?}");
        assert_eq!(without_tunnel(&status("connecting", 1.0)), None);
        assert_eq!(without_tunnel(&status("degraded", 20.0)), None);
    }
}
