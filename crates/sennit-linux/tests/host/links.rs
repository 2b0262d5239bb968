use std::{net::IpAddr, time::Duration};

use sennit_linux::{
    Error,
    netlink::{Family, Interface, LinkEvent, LinkState, Monitor, Netlink},
    poller::{Events, Interest, Poller},
};

use crate::world::Host;

fn lookup(host: &Host, name: &str) -> Result<Interface, Error> {
    host.run(|| Interface::lookup(&mut Netlink::open()?, name))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host with interface `eth1` on a cable.
fn cabled() -> Option<(Host, Host)> {
    let (host, other) = Host::pair()?;
    host.cable("eth1", &other, "eth1");
    Some((host, other))
}

#[test]
fn an_interface_is_described_with_its_addresses_and_gateways() {
    let Some((host, _other)) = cabled() else {
        return;
    };
    host.sh("ip link set eth1 mtu 1450
         ip address add 198.18.1.2/24 dev eth1
         ip address add 2001:db8:1::2/64 dev eth1 nodad
         ip route add default via 198.18.1.1 metric 600
         ip route add 203.0.113.0/24 via 198.18.1.9
         ip route add default via fe80::1 dev eth1");

    let interface = lookup(&host, "eth1").unwrap();

    assert_eq!((interface.mtu, interface.state), (1450, LinkState::Up));
    assert_eq!(interface.source(Family::V4), Some(ip("198.18.1.2")));
    assert_eq!(interface.source(Family::V6), Some(ip("2001:db8:1::2")));
    assert_eq!(interface.gateway(Family::V4), Some(ip("198.18.1.1")));
    assert_eq!(interface.gateway(Family::V6), Some(ip("fe80::1")));
}

#[test]
fn the_default_route_of_the_lowest_metric_names_the_gateway() {
    let Some((host, _other)) = cabled() else {
        return;
    };
    host.sh("ip address add 198.18.1.2/24 dev eth1
         ip route add default via 198.18.1.7 dev eth1 metric 700
         ip route add default via 198.18.1.6 dev eth1 metric 600");

    let interface = lookup(&host, "eth1").unwrap();

    assert_eq!(interface.gateway(Family::V4), Some(ip("198.18.1.6")));
}

#[test]
fn a_point_to_point_interface_needs_no_gateway() {
    let Some((host, _other)) = cabled() else {
        return;
    };
    host.sh("ip address add 198.18.1.2 peer 198.18.1.1 dev eth1; ip route add default dev eth1");

    let interface = lookup(&host, "eth1").unwrap();

    assert_eq!(interface.source(Family::V4), Some(ip("198.18.1.2")));
    assert_eq!(interface.gateway(Family::V4), None);
    assert!(interface.routes[0].is_default());
}

#[test]
fn an_interface_that_is_looked_up_by_another_of_its_names_has_that_of_the_kernel() {
    let Some((host, _other)) = cabled() else {
        return;
    };
    host.sh("ip link property add dev eth1 altname wan-by-port");

    let interface = lookup(&host, "wan-by-port").unwrap();

    assert_eq!(interface.name, "eth1");
    assert_eq!(interface.index, lookup(&host, "eth1").unwrap().index);
}

#[test]
fn an_interface_that_does_not_exist_is_named() {
    let Some(host) = Host::new() else { return };
    for name in ["nope0", "a-name-that-is-too-long", ""] {
        let error = lookup(&host, name).unwrap_err();
        assert!(
            matches!(&error, Error::NoInterface(given) if given == name),
            "{error}"
        );
    }
}

/// Reads events until one satisfies `wanted`, and gives all of them.
fn events_until(monitor: &mut Monitor, wanted: impl Fn(&LinkEvent) -> bool) -> Vec<LinkEvent> {
    let poller = Poller::new().unwrap();
    poller.add(&*monitor, 0, Interest::Read).unwrap();
    let mut ready = Events::with_capacity(1);
    let mut seen = Vec::new();
    loop {
        while let Some(event) = monitor.poll_event().unwrap() {
            seen.push(event);
            if seen.last().is_some_and(&wanted) {
                return seen;
            }
        }
        let woken = poller
            .wait(&mut ready, Some(Duration::from_secs(10)))
            .unwrap();
        assert!(woken > 0, "only saw {seen:?}");
    }
}

#[test]
fn the_monitor_tells_a_pulled_cable_from_a_switched_off_link() {
    let Some((host, other)) = cabled() else {
        return;
    };
    let index = lookup(&host, "eth1").unwrap().index;
    let mut monitor = host.run(|| Monitor::open().unwrap());
    let down = |state| LinkEvent::Down {
        index,
        name: "eth1".into(),
        state,
    };
    let up = LinkEvent::Up {
        index,
        name: "eth1".into(),
    };

    other.sh("ip link set eth1 down");
    events_until(&mut monitor, |event| *event == down(LinkState::NoCarrier));
    other.sh("ip link set eth1 up");
    events_until(&mut monitor, |event| *event == up);
    host.sh("ip link set eth1 down");
    events_until(&mut monitor, |event| *event == down(LinkState::AdminDown));
    host.sh("ip link delete eth1");
    let gone = LinkEvent::Gone {
        index,
        name: "eth1".into(),
    };
    events_until(&mut monitor, |event| *event == gone);
}

#[test]
fn the_monitor_reports_addresses_and_routes() {
    let Some((host, _other)) = cabled() else {
        return;
    };
    let index = lookup(&host, "eth1").unwrap().index;
    let mut monitor = host.run(|| Monitor::open().unwrap());
    let address = ip("198.18.1.2");

    host.sh("ip address add 198.18.1.2/24 dev eth1");
    events_until(&mut monitor, |event| {
        *event == LinkEvent::AddressAdded { index, address }
    });
    host.sh("ip route add default via 198.18.1.1");
    events_until(&mut monitor, |event| {
        *event == LinkEvent::RouteChanged { index }
    });
    host.sh("ip address delete 198.18.1.2/24 dev eth1");
    events_until(&mut monitor, |event| {
        *event == LinkEvent::AddressRemoved { index, address }
    });
}

#[test]
fn the_monitor_reports_that_rules_with_our_mark_are_deleted_in_both_families() {
    let Some(host) = Host::new() else { return };
    for ip in ["ip", "ip -6"] {
        let mut monitor = host.run(|| Monitor::open().unwrap());

        host.sh(&format!(
            "{ip} rule add priority 5000 lookup main protocol 83
             {ip} rule add priority 5001 lookup main protocol static
             {ip} rule delete priority 5001
             {ip} rule delete priority 5000"
        ));

        let events = events_until(&mut monitor, |event| *event == LinkEvent::OursDeleted);
        assert_eq!(events, [LinkEvent::OursDeleted], "{ip}");
        assert_eq!(monitor.poll_event().unwrap(), None, "{ip}");
    }
}

#[test]
fn a_monitor_that_was_not_read_says_so_and_tells_nothing_outdated() {
    let Some((host, _other)) = cabled() else {
        return;
    };
    let mut monitor = host.run(|| Monitor::open().unwrap());
    host.sh("ip link set eth1 down");
    host.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = Interface::lookup(&mut netlink, "eth1").unwrap().index;
        for i in 0..20_000_u32 {
            netlink.set_mtu(index, 1300 + i % 2).unwrap();
        }
    });
    host.sh("ip link set eth1 up");

    let until_overflow = events_until(&mut monitor, |event| *event == LinkEvent::Overflow);
    let rest: Vec<_> = std::iter::from_fn(|| monitor.poll_event().unwrap()).collect();

    assert_eq!(until_overflow, [LinkEvent::Overflow]);
    let outdated = |event: &LinkEvent| matches!(event, LinkEvent::Down { .. });
    assert!(!rest.iter().any(outdated), "{rest:?}");
}

#[test]
fn an_address_of_ours_comes_and_goes() {
    let Some((host, _other)) = cabled() else {
        return;
    };
    for net in ["198.18.1.2/24", "2001:db8:1::2/64"] {
        let net: ipnet::IpNet = net.parse().unwrap();
        let change = |add: bool| {
            host.run(|| {
                let mut netlink = Netlink::open().unwrap();
                let index = Interface::lookup(&mut netlink, "eth1").unwrap().index;
                // Twice each: repeating is no error.
                for _ in 0..2 {
                    if add {
                        netlink.add_address(index, net).unwrap();
                    } else {
                        netlink.delete_address(index, net).unwrap();
                    }
                }
                let addresses = netlink.addresses(index).unwrap();
                addresses.iter().any(|address| address.net == net)
            })
        };
        assert!(change(true), "{net}");
        assert!(!change(false), "{net}");
    }
}
