//! What is wrong with one link, from its cable to the hub.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
};

use sennit_engine::SocketId;
use sennit_linux::{
    inquiry,
    netlink::{Family, Interface, LinkState, Netlink},
};

use super::{Code, Finding, LinkFacts, Nat, sight};
use crate::{
    config::{self, EdgeConfig},
    daemon::{
        at_once::at_once,
        edge::{
            causes::explain,
            far_side::{self, Proofs},
            names,
            probe::{self, Tcp, Udp, Verdict},
            way::Way,
        },
    },
    remote::Remote,
    status::PublicStatus,
};

/// Addresses of the hub that are looked at in each family.
const MOST_HUBS: usize = 2;
/// The usual port of web pages, which captive portals answer on in anybody's place.
const WEB: u16 = 80;
/// IP and UDP headers.
const HEADERS: [u32; 2] = [20 + 8, 40 + 8];
/// The search for the largest packet ends at this precision.
const PRECISION: u32 = 8;

pub(super) fn look(
    config: &EdgeConfig,
    link: &config::Link,
    mark: Option<u32>,
    proofs: Option<&Proofs>,
    running: bool,
) -> (LinkFacts, Vec<Finding>) {
    let mut facts = LinkFacts {
        link: link.name.clone(),
        interface: link.interface.clone(),
        ..LinkFacts::default()
    };
    let interface = Netlink::open().and_then(|mut it| Interface::lookup(&mut it, &link.interface));
    let interface = match interface {
        Ok(interface) => interface,
        Err(error) => {
            let advice = "plug it in, or name another: `ip link` lists those that are there";
            let message = explain(&error);
            return (
                facts,
                vec![Finding::error(Code::NoInterface, message, advice).on(link)],
            );
        }
    };
    let sources = [Family::V4, Family::V6].map(|family| interface.source(family));
    facts.addresses = sources.into_iter().flatten().collect();
    facts.mtu_bytes = Some(interface.mtu);
    facts.nat = sources[0].and_then(nat);
    let mut findings: Vec<Finding> = carrier(&interface).into_iter().collect();
    if findings.is_empty() {
        findings.extend(gateway(&interface));
        findings.extend(reverse_path(&interface.name, running));
        let way = Way {
            socket: SocketId(0),
            device: link.interface.clone(),
            index: interface.index,
            sources,
            mark,
        };
        findings.extend(reach(config, &way, proofs, &mut facts));
    }
    let findings = findings.into_iter().map(|finding| finding.on(link));
    (facts, findings.collect())
}

/// What an IPv4 address says of what is in front of it.
fn nat(address: IpAddr) -> Option<Nat> {
    let IpAddr::V4(address) = address else {
        return None;
    };
    let [a, b, ..] = address.octets();
    // RFC 6598.
    let shared = a == 100 && (64..128).contains(&b);
    Some(if shared {
        Nat::CarrierGrade
    } else if address.is_private() || address.is_link_local() {
        Nat::Router
    } else {
        Nat::None
    })
}

/// Whether packets can leave at all.
fn carrier(interface: &Interface) -> Option<Finding> {
    let name = &interface.name;
    let any = interface
        .source(Family::V4)
        .or(interface.source(Family::V6));
    match (interface.state, any) {
        (LinkState::AdminDown, _) => Some(Finding::error(
            Code::SwitchedOff,
            format!("interface {name} is switched off"),
            format!("switch it on: ip link set {name} up"),
        )),
        (LinkState::NoCarrier, _) => Some(Finding::error(
            Code::NoCarrier,
            format!("interface {name} has no carrier"),
            "look at the cable, the modem's power, or its SIM and signal",
        )),
        (LinkState::Up, None) => Some(Finding::error(
            Code::NoAddress,
            format!("interface {name} has no address"),
            "have the network give it one (DHCP, router advertisements), or set it",
        )),
        (LinkState::Up, Some(IpAddr::V4(address))) if address.is_link_local() => {
            Some(Finding::error(
                Code::NoDhcp,
                format!("interface {name} has only the address {address}, which it gave itself"),
                "no DHCP server answers there: look at the modem or the router",
            ))
        }
        (LinkState::Up, Some(_)) => None,
    }
}

fn gateway(interface: &Interface) -> Option<Finding> {
    let usable = [Family::V4, Family::V6]
        .into_iter()
        .filter(|&family| interface.source(family).is_some());
    let mut ways = usable.flat_map(|family| {
        let routes = interface.routes.iter();
        routes.filter(move |it| it.family() == family && it.is_default())
    });
    ways.next().is_none().then(|| {
        let name = &interface.name;
        Finding::error(
            Code::NoGateway,
            format!("no default route leads out of interface {name}"),
            format!("have DHCP set it, or: ip route add default via GATEWAY dev {name} metric 100"),
        )
    })
}

/// A strict filter drops answers that come in by a link which is not the best way back.
fn reverse_path(interface: &str, running: bool) -> Option<Finding> {
    let read = |name: &str| -> u8 {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    // The kernel takes the stricter one; the edge loosens it while it runs.
    let strict = running && read("all").max(read(interface)) == 1;
    strict.then(|| {
        Finding::error(
            Code::RpFilter,
            format!("rp_filter is strict on {interface}: answers that come in there are dropped"),
            format!(
                "something has set it after the edge started: sysctl \
                 net.ipv4.conf.{interface}.rp_filter=2, and find out what did"
            ),
        )
    })
}

// ---- the hub ------------------------------------------------------------------------------------

/// What the hub answers there, and to packets of what size.
fn reach(
    config: &EdgeConfig,
    way: &Way,
    proofs: Option<&Proofs>,
    facts: &mut LinkFacts,
) -> Vec<Finding> {
    let hubs = hubs(config, way);
    let usable: Vec<SocketAddr> = hubs
        .iter()
        .copied()
        .filter(|hub| way.binding(hub.ip()).is_some())
        .collect();
    if hubs.is_empty() {
        let named: Vec<String> = config.hub.iter().map(ToString::to_string).collect();
        return vec![Finding::error(
            Code::NoName,
            format!("no resolver knows {} by this link", named.join(", ")),
            "look at /etc/resolv.conf, or put the hub's address into `hub` beside its name",
        )];
    }
    let mut findings = Vec::new();
    let verdicts = answers(way, &usable, proofs, facts);
    let answered: Vec<&Verdict> = verdicts
        .iter()
        .filter(|it| it.udp == Udp::Answered)
        .collect();
    if let Some(verdict) = answered.first() {
        findings.extend(size(config, way, verdict.hub, facts));
        let v6_fails = facts.answers_v4 == Some(true) && facts.answers_v6 == Some(false);
        findings.extend(v6_fails.then(|| {
            Finding::warning(
                Code::Ipv6Broken,
                "the link has an IPv6 address, and the hub answers by IPv4 only",
                "the tunnel goes by IPv4; have the network route IPv6, or take the address away",
            )
        }));
    } else if let Some(verdict) = verdicts.first() {
        findings.extend(silence(way, verdict));
    } else {
        findings.push(Finding::error(
            Code::NoFamily,
            "the link has no address of a family that the hub has",
            "give the hub an address of the link's family, or the link one of the hub's",
        ));
    }
    findings
}

/// What the hub answers by each family, and where it sees the link.
fn answers(
    way: &Way,
    usable: &[SocketAddr],
    proofs: Option<&Proofs>,
    facts: &mut LinkFacts,
) -> Vec<Verdict> {
    let (mut verdicts, mut sightings) = (Vec::new(), Vec::new());
    for v6 in [false, true] {
        let own = usable.iter().copied().filter(|hub| hub.is_ipv6() == v6);
        let own: Vec<SocketAddr> = own.take(MOST_HUBS).collect();
        let Some(verdict) = probe::look(way, &own) else {
            continue;
        };
        let answers = verdict.udp == Udp::Answered;
        match v6 {
            true => facts.answers_v6 = Some(answers),
            false => facts.answers_v4 = Some(answers),
        }
        let binding = way.binding(verdict.hub.ip()).filter(|_| answers);
        if let (Some(binding), Some(proofs)) = (binding, proofs) {
            sightings.extend(sight::look(&binding, &own, proofs));
        }
        verdicts.push(verdict);
    }
    facts.public = PublicStatus::of(&sightings);
    verdicts
}

/// The hub's addresses, as this link's resolvers know them.
fn hubs(config: &EdgeConfig, way: &Way) -> Vec<SocketAddr> {
    let mut hubs = far_side::addresses(config);
    for remote in &config.hub {
        if let Remote::Name { host, port } = remote {
            let found = names::ask(way, &names::resolvers(), host);
            hubs.extend(found.into_iter().map(|ip| SocketAddr::new(ip, *port)));
        }
    }
    hubs
}

/// Why the hub does not answer, if it does not.
fn silence(way: &Way, verdict: &Verdict) -> Option<Finding> {
    let hub = verdict.hub;
    let port = hub.port();
    let said = |code, advice: &str| Finding::error(code, verdict.to_string(), advice);
    Some(match (&verdict.udp, verdict.tcp) {
        (Udp::NotSent(_), _) => said(
            Code::FirewallHere,
            "let this host send UDP to the hub: `nft list ruleset` shows what forbids it",
        ),
        (Udp::Refused, _) => said(
            Code::HubRefused,
            "start the hub, or correct the port in `hub`; at the hub: sennit status",
        ),
        (Udp::Silent, tcp) if tcp == Tcp::Web || is_portal(way, hub) => Finding::error(
            Code::CaptivePortal,
            format!("{hub}: UDP gets no answer, and a web server answers in the hub's place"),
            format!(
                "log in at the network's page: curl --interface {} http://{}/",
                way.device,
                hub.ip()
            ),
        ),
        (Udp::Silent, Tcp::Accepted | Tcp::Reset) => said(
            Code::UdpBlocked,
            &format!("have UDP port {port} let through here or at the hub, or try another port"),
        ),
        (Udp::Silent, Tcp::Silent | Tcp::Web) => said(
            Code::NoAnswer,
            "look whether the hub runs, and whether anything passes on this link at all",
        ),
        (Udp::Unreachable(_), _) => said(
            Code::Unreachable,
            "look at the routes of this link: `ip route show table all`",
        ),
        (Udp::Answered, _) => return None,
    })
}

/// Whether a web server answers at an address where there is a hub.
fn is_portal(way: &Way, hub: SocketAddr) -> bool {
    let at = SocketAddr::new(hub.ip(), WEB);
    let connected = way
        .binding(hub.ip())
        .map(|binding| inquiry::tcp(&binding, at, probe::PATIENCE));
    connected.is_some_and(|it| it.is_ok_and(|stream| probe::is_web(&stream)))
}

/// Finds the largest packet that reaches the hub, up to those of the tunnel.
fn size(config: &EdgeConfig, way: &Way, hub: SocketAddr, facts: &mut LinkFacts) -> Option<Finding> {
    let headers = HEADERS[usize::from(hub.is_ipv6())];
    let wanted = u32::from(far_side::settings(config).ok()?.outer_mtu()) + headers;
    let limit = wanted.min(facts.mtu_bytes?);
    let passes = |packet: u32| {
        let binding = way.binding(hub.ip());
        let socket = binding.and_then(|it| inquiry::udp_in_one_piece(&it, hub).ok());
        socket.is_some_and(|it| probe::ask(&it, (packet - headers) as usize) == Udp::Answered)
    };
    let least = probe::INITIAL as u32 + headers;
    let largest = if passes(limit) {
        limit
    } else {
        largest(least, limit, passes)
    };
    facts.path_mtu_bytes = Some(largest);
    (largest < wanted).then(|| {
        let where_ = if facts.mtu_bytes == Some(largest) {
            "the interface"
        } else {
            "the path to the hub"
        };
        Finding::warning(
            Code::SmallMtu,
            format!(
                "{where_} carries packets of {largest} bytes, and full packets of the tunnel need {wanted}"
            ),
            instead(u32::from(config.mtu).saturating_sub(wanted - largest)),
        )
    })
}

/// What to do where only packets of a smaller tunnel's MTU go in one piece.
fn instead(fits: u32) -> String {
    let (halves, least) = (
        "they go in two halves there, which costs some speed",
        config::MTU.start(),
    );
    match *least <= i64::from(fits) {
        true => format!("{halves}; `mtu = {fits}` at both ends avoids it"),
        false => format!("{halves}; no `mtu` avoids it, as {least} is the least"),
    }
}

/// The largest that passes between one that does and one that does not.
fn largest(mut good: u32, mut bad: u32, passes: impl Fn(u32) -> bool + Sync) -> u32 {
    while bad - good > PRECISION {
        // Three at a time: what does not pass takes seconds to be sure of.
        let step = ((bad - good) / 4).max(1);
        let sizes = [good + step, good + 2 * step, good + 3 * step];
        for (size, passed) in sizes.into_iter().zip(at_once(sizes, &passes)) {
            if passed == Some(true) {
                good = good.max(size);
            } else {
                bad = bad.min(size);
            }
        }
        if bad <= good {
            break;
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_says_what_is_in_front_of_it() {
        let nat = |text: &str| nat(text.parse::<Ipv4Addr>().unwrap().into());
        assert_eq!(nat("192.168.8.100"), Some(Nat::Router));
        assert_eq!(nat("100.72.1.2"), Some(Nat::CarrierGrade));
        assert_eq!(nat("100.128.1.2"), Some(Nat::None));
        assert_eq!(nat("203.0.113.7"), Some(Nat::None));
    }

    #[test]
    fn an_mtu_that_a_config_cannot_have_is_not_advised() {
        assert!(instead(1280).contains("`mtu = 1280` at both ends"));
        assert!(instead(1202).contains("no `mtu` avoids it"));
    }

    #[test]
    fn the_search_finds_what_passes() {
        for limit in [1228, 1300, 1397, 1477] {
            let found = largest(1228, 1478, |size| size <= limit);
            assert!(
                found <= limit && found + PRECISION >= limit,
                "{limit}: {found}"
            );
        }
    }
}
