//! What is wrong with the host as a whole.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use sennit_linux::{
    DeviceName, Instance, nameservers,
    netlink::{Family, Netlink, Route, Rule, TABLE_MAIN},
};

use super::{Code, Finding};
use crate::{
    config::{self, EdgeConfig, HostFinding, Prefix},
    control::{Client, Request},
    daemon::edge::leak,
    identity::EdgeIdentity,
    status::{State, Status},
};

const TUN: &str = "/dev/net/tun";
/// The kernel's own rules: local, main and default.
const MAIN_RULE: u32 = 32_766;
const KERNEL_RULES: [u32; 3] = [0, MAIN_RULE, 32_767];
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
        // Certificates begin in 1970, so that this keeps no tunnel from coming up.
        let message = format!(
            "the clock of this host is at least {} slow, as the hub issued the certificate later; \
             the tunnel works all the same",
            apart(from, now)
        );
        return Some(Finding::warning(Code::ClockSlow, message, advice));
    }
    if now > until {
        let message = format!(
            "the certificate has been too old for {}, or the clock of this host is fast",
            apart(now, until)
        );
        let advice = "look at the clock (timedatectl); if it is right, ask the hub for a new token \
                      and join with --force";
        return Some(Finding::error(Code::ClockFast, message, advice));
    }
    let days = until.duration_since(now).unwrap_or_default().as_secs() / 86_400;
    (days < OLD).then(|| {
        let message = format!("the certificate is good for {days} days, and was not renewed");
        let advice = "`sennit status` says why, while the edge runs; or ask the hub for a new token \
                      and join with --force";
        Finding::warning(Code::CertificateOld, message, advice)
    })
}

pub(super) fn device() -> Option<Finding> {
    (!Path::new(TUN).exists()).then(|| {
        Finding::error(
            Code::NoTun,
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
            Code::ForwardBlocked,
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

/// Parts of the LAN that this host does not lead to.
pub(super) fn lan(config: &EdgeConfig) -> Vec<Finding> {
    let missing = config::look_at_lan(config).into_iter();
    let finding = |it: HostFinding| {
        let advice = it.help.unwrap_or_default();
        Finding::warning(Code::LanNowhere, it.message, advice)
    };
    missing.map(finding).collect()
}

/// What an edge that does not run any more has left, by which this host is cut off.
pub(super) fn left_behind(config: &EdgeConfig) -> Option<Finding> {
    let is_held = leak::holds(config) == Some(true);
    let asks = nameservers::owner().is_some_and(|owner| owner == config.device);
    let routes = || {
        let routes = config.routes.iter().map(ToString::to_string);
        routes.collect::<Vec<String>>().join(" ")
    };
    let held = is_held.then(|| format!("what goes to {} is held back for it", routes()));
    let asks = asks.then(|| "this host asks resolvers inside its tunnel".to_owned());
    let left: Vec<String> = held.into_iter().chain(asks).collect();
    (!left.is_empty()).then(|| {
        Finding::error(
            Code::NotRunning,
            format!("no edge runs, and {}", left.join(", and ")),
            "start it (systemctl start sennit-edge); or, if it is not to run, `sennit cleanup` gives \
             this host its own ways back",
        )
    })
}

/// Whether the edge with this config runs.
pub(super) fn is_running(config: &EdgeConfig) -> bool {
    Client::connect(&config.control, PATIENCE).is_ok()
}

/// The edge that runs has no tunnel. Where nothing else is wrong the hub answers, so this says why;
/// also beside other faults, if the hub turns it away.
pub(super) fn tunnel(config: &EdgeConfig, is_well: bool) -> Option<Finding> {
    let status = status(config).filter(|it| is_well || it.turned_away)?;
    without_tunnel(&status)
}

/// The user that the edge is which runs.
pub(super) fn user(config: &EdgeConfig) -> Option<u32> {
    Some(status(config)?.confinement?.uid)
}

fn status(config: &EdgeConfig) -> Option<Status> {
    let mut client = Client::connect(&config.control, PATIENCE).ok()?;
    let document = client.request(&Request::Status).ok()?;
    serde_json::from_value(document).ok()
}

fn without_tunnel(status: &Status) -> Option<Finding> {
    if !matches!(status.state, State::Connecting | State::Down) {
        return None;
    }
    let tunnel = status.tunnels.iter().find(|it| it.reason.is_some())?;
    let why = status.reason.as_ref().or(tunnel.reason.as_ref())?;
    (status.turned_away || tunnel.since_seconds > CONNECTING).then(|| {
        Finding::error(
            Code::NoTunnel,
            format!("the hub answers, and yet the edge that runs here has no tunnel: {why}"),
            "if the hub refuses the site, have it invite the site again (`sennit invite SITE --hub \
             ADDR:PORT` there), say `sennit join --force TOKEN` here; else \
             read the log of both ends",
        )
    })
}

/// What draws packets elsewhere that belong into our tunnel: other VPNs, and rules of others.
pub(super) fn other_routes(config: &EdgeConfig, netlink: &mut Netlink) -> Vec<Finding> {
    let classes = config.classes.iter().filter_map(|it| it.device.as_ref());
    let ours: Vec<&str> = classes
        .chain([&config.device])
        .map(DeviceName::as_str)
        .collect();
    let mut findings = Vec::new();
    for device in devices().filter(|it| !ours.contains(&it.name.as_str())) {
        let is_link = config
            .links
            .iter()
            .any(|link| link.interface == device.name);
        let is_vpn = device.is_point_to_point && !is_link;
        let taken = Family::BOTH
            .into_iter()
            .find_map(|family| taken_by(&device, is_vpn, family, config, netlink));
        let Some(Taken { ours, rule }) = taken else {
            continue;
        };
        let name = device.name;
        let how = rule.map_or("a route of the main table".into(), |rule| {
            format!("rule {rule}")
        });
        let (code, advice) = match is_vpn {
            true => (
                Code::OtherVpn,
                format!(
                    "stop that VPN, or give it routes that are not in `routes`; \
                     `ip route show dev {name}` and `ip rule` show them"
                ),
            ),
            false => (
                Code::OtherRule,
                format!("`ip rule` shows {how}: delete it, or give it a higher number than ours"),
            ),
        };
        let message = format!("{name} takes {ours}, which belongs into our tunnel ({how})");
        findings.push(Finding::error(code, message, advice));
    }
    findings
}

/// What goes elsewhere, and by which rule; without one, by the main table.
struct Taken {
    ours: Prefix,
    rule: Option<u32>,
}

/// What of our routes goes to a device. Of those that are no VPN, only a rule draws anything away:
/// by routes of the main table everybody has networks of their own.
fn taken_by(
    device: &Device,
    is_vpn: bool,
    family: Family,
    config: &EdgeConfig,
    netlink: &mut Netlink,
) -> Option<Taken> {
    let rules: Vec<Rule> = netlink.rules(family).unwrap_or_default();
    // A rule for some packets leaves the others alone, which go into the tunnel.
    let foreign = rules.iter().filter(|rule| {
        !rule.is_ours() && rule.is_for_most() && !KERNEL_RULES.contains(&rule.priority)
    });
    let main = Rule::lookup(family, MAIN_RULE, TABLE_MAIN);
    for rule in foreign.chain(is_vpn.then_some(&main)) {
        let routes = netlink
            .routes(family, rule.table, device.index)
            .unwrap_or_default();
        let counts = |route: &&Route| {
            let len = route.destination.prefix_len();
            // A network of its own is that VPN's business.
            let is_wide = if is_vpn { len <= 8 } else { len == 0 };
            let is_found = rule
                .suppress_prefix_len
                .is_none_or(|most| u32::from(len) > most);
            let is_same = is_vpn && config.routes.contains(&route.destination);
            !route.is_ours() && is_found && (is_wide || is_same)
        };
        for route in routes.iter().filter(counts) {
            let taken = |ours: &&Prefix| takes(rule, route, ours, config);
            if let Some(ours) = config.routes.iter().find(taken) {
                let by_rule = rule.priority != MAIN_RULE;
                return Some(Taken {
                    ours: *ours,
                    rule: by_rule.then_some(rule.priority),
                });
            }
        }
    }
    None
}

/// Whether a route, by this rule, comes before one of ours for a prefix.
fn takes(rule: &Rule, route: &Route, ours: &Prefix, config: &EdgeConfig) -> bool {
    let (theirs, default) = (&route.destination, Family::of(ours.addr()).default_prefix());
    let place = match config.routes.contains(&default) {
        true => Instance::of(&config.device).tunnel_priority(),
        false => MAIN_RULE,
    };
    let (is_first, inside) = (rule.priority < place, ours.contains(&theirs.addr()));
    if rule.table != TABLE_MAIN {
        return is_first && (inside || theirs.contains(&ours.addr()));
    }
    // There a prefix as long as ours or longer wins, but for a default route, which ours comes
    // before, unless a rule asks for theirs first.
    let len = theirs.prefix_len();
    inside && (len > 0 && len >= ours.prefix_len() || len == 0 && is_first && *ours == default)
}

/// An interface of this host.
struct Device {
    name: String,
    index: u32,
    /// As TUN devices and WireGuard are.
    is_point_to_point: bool,
}

fn devices() -> impl Iterator<Item = Device> {
    let devices = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    devices.filter_map(move |device| {
        let path = device.path();
        let name = device.file_name().into_string().ok()?;
        Some(Device {
            index: read(&path.join("ifindex")).trim().parse().ok()?,
            is_point_to_point: read(&path.join("type")).trim() == NO_HARDWARE,
            name,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use std::slice;

    use super::*;
    use crate::{
        config::Severity,
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
        let answer = identity::exchange(
            &mut store,
            slice::from_ref(&authority),
            &[],
            &request,
            issued,
        );
        van.accept(&answer.body).unwrap();

        let code = |days| clock(&van, issued + days * DAY).map(|finding| finding.code);

        assert_eq!([1, 250, 300].map(code), [None; 3]);
        assert_eq!(code(320), Some(Code::CertificateOld));
        assert_eq!(code(366), Some(Code::ClockFast));
        let slow = clock(&van, issued - DAY).unwrap();
        assert_eq!(
            (slow.code, slow.severity),
            (Code::ClockSlow, Severity::Warning)
        );
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

        assert_eq!(refused.code, Code::NoTunnel);
        assert!(refused.message.contains("`van` is revoked"), "{refused:?}");
        assert_eq!(without_tunnel(&status("connecting", 1.0)), None);
        let at_once = Status {
            reason: Some("the hub refused the tunnel".into()),
            turned_away: true,
            ..status("connecting", 1.0)
        };
        let refused = without_tunnel(&at_once).expect("it will not pass");
        assert!(
            refused.message.ends_with("the hub refused the tunnel"),
            "{refused:?}"
        );
        assert_eq!(without_tunnel(&status("degraded", 20.0)), None);
    }
}
