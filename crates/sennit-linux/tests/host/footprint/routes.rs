//! Routes, marks and addresses: which way packets go.

use std::net::IpAddr;

use sennit_linux::{
    Footprint, Instance, Lost, Passage, cleanup_but_block, find_blocked,
    tun::{TUN_BUFFER, Tun},
    udp::{LinkBinding, LinkSocket, Transmit},
};

use super::{Directory, Site, into_tunnel, open_tun, sennit0, snapshot};
use crate::{tun::next_run, world::Host};

#[test]
fn a_passage_is_for_marked_packets_alone() {
    let Some(site) = Site::new() else { return };
    let blocked = ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap());
    let directory = site.directory.path();
    let guard = site
        .edge
        .run(|| Footprint::begin_blocking(&sennit0(), directory, &blocked).unwrap());
    site.edge.run(|| guard.remove_but_block().unwrap());
    let held_back = snapshot(&site.edge);
    let links = ["eth1", "eth2"].map(|name| Some(site.interface(name)));

    let passage = site
        .edge
        .run(|| Passage::open(&sennit0(), links).unwrap().unwrap());

    let way = |more: &str| {
        site.edge
            .sh(&format!("ip route get 203.0.113.1 {more} 2>&1 || true"))
    };
    let marked = way(&format!("mark {}", passage.mark(1).unwrap()));
    assert!(marked.contains("dev eth2"), "{marked}");
    for more in ["", "from 192.168.1.2"] {
        assert!(
            way(more).contains("No route to host"),
            "{more}: {}",
            way(more)
        );
    }
    site.edge.run(|| drop(passage));
    assert_eq!(snapshot(&site.edge), held_back);
}

#[test]
fn everything_goes_into_the_tunnel_but_what_is_near() {
    let Some(site) = Site::new() else { return };
    assert_eq!(site.way_to("198.51.100.1"), "eth1");

    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);

    for (to, device) in [
        ("198.51.100.1", "sennit0"),
        ("2001:db8:77::1", "sennit0"),
        ("10.1.2.3", "sennit0"),
        ("192.168.8.9", "lan0"),
        ("192.168.1.1", "eth1"),
        ("198.51.100.1 from 192.168.1.2", "eth1"),
        ("2001:db8:77::1 from 2001:db8:1::2", "eth1"),
        ("192.168.8.9 from 192.168.1.2", "lan0"),
    ] {
        assert_eq!(site.way_to(to), device, "{to}");
    }
}

#[test]
fn only_the_prefixes_asked_for_go_into_the_tunnel() {
    let Some(site) = Site::new() else { return };
    site.edge.sh("ip route add 10.7.0.0/16 via 192.168.8.2");
    let mut footprint = site.begin().unwrap();
    let tun = site.edge.run(|| open_tun(&sennit0()));

    let routes = into_tunnel(tun.index(), &["10.0.0.0/8", "192.168.8.0/24", "fd5e::/16"]);
    site.edge
        .run(|| footprint.route_into_tunnel(routes).unwrap());

    for (to, device) in [
        ("10.1.2.3", "sennit0"),
        ("fd5e::1", "sennit0"),
        ("10.7.1.1", "lan0"),
        ("192.168.8.9", "lan0"),
        ("198.51.100.1", "eth1"),
    ] {
        assert_eq!(site.way_to(to), device, "{to}");
    }
    site.edge
        .run(|| footprint.route_into_tunnel(Vec::new()).unwrap());
    assert_eq!(site.way_to("10.1.2.3"), "eth1");
}

#[test]
fn tunnel_packets_keep_to_their_link_and_their_answers_arrive() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let mut tun = site.apply(&mut footprint);
    let links = [("eth1", &site.left), ("eth2", &site.right)];
    for (address, hub) in [
        ("192.168.1.2", "203.0.113.1:4433"),
        ("2001:db8:1::2", "[2001:db8:ff::1]:4433"),
    ] {
        for (link, (device, far)) in links.into_iter().enumerate() {
            let mark = footprint.link_mark(link).unwrap();
            let address: IpAddr = address.parse().unwrap();
            let binding = LinkBinding {
                device,
                address,
                mark: Some(mark),
            };
            let mut socket = site.edge.run(|| LinkSocket::bind(&binding)).unwrap();
            let mut listener = far
                .run(|| LinkSocket::listen(hub.parse().unwrap()))
                .unwrap();

            let packet = |to, contents| Transmit {
                destination: to,
                ecn: None,
                contents,
                segment_size: None,
                src_ip: None,
            };
            socket
                .send(&packet(hub.parse().unwrap(), device.as_bytes()))
                .unwrap();
            let (received, meta) = next_run(&mut listener);
            listener.send(&packet(meta.addr, b"back")).unwrap();

            assert_eq!(received, device.as_bytes());
            assert_eq!(next_run(&mut socket).0, b"back");
        }
    }
    let mut buffer = vec![0; TUN_BUFFER];
    while let Some((_, len)) = tun.recv(&mut buffer).unwrap() {
        // A router tells its groups (RFC 3810) on every interface; that is none of ours.
        let multicast = len > 40 && buffer[0] >> 4 == 6 && buffer[24] == 0xff;
        assert!(multicast, "leaked {:02x?}", &buffer[..len]);
    }
}

#[test]
fn the_mark_finds_the_gateway_past_a_kill_switch() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);
    let mark = footprint.link_mark(1).unwrap();
    let way = |how: &str| {
        site.edge
            .sh(&format!("ip route get 203.0.113.1 oif eth2 {how}"))
    };

    site.edge.sh("ip rule add priority 5000 prohibit");

    assert!(!way("").contains("via 192.168.1.1"), "{}", way(""));
    let marked = way(&format!("mark {mark}"));
    assert!(marked.contains("via 192.168.1.1"), "{marked}");
}

#[test]
fn a_link_follows_its_interface() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);
    let mark = footprint.link_mark(0).unwrap();
    let marked = |site: &Site| site.way_to(&format!("203.0.113.1 mark {mark}"));
    let route = |site: &Site| site.edge.sh(&format!("ip route show table {mark} default"));
    assert_eq!(marked(&site), "eth1");

    site.edge
        .sh("ip route replace default via 192.168.1.77 dev eth1 metric 100");
    site.edge.run(|| footprint.route_link(0, "eth1").unwrap());
    assert!(
        route(&site).contains("via 192.168.1.77"),
        "{}",
        route(&site)
    );

    site.edge
        .sh("ip route delete default via 192.168.1.77 dev eth1");
    site.edge.run(|| footprint.route_link(0, "eth1").unwrap());
    assert_eq!(
        marked(&site),
        "eth1",
        "without a gateway the device is the way"
    );

    site.edge.sh("ip link set eth1 down");
    site.edge.run(|| footprint.route_link(0, "eth1").unwrap());
    assert_eq!(marked(&site), "sennit0");
    assert!(!site.edge.sh("ip rule").contains(&format!("{mark:#x}")));
}

/// Takes from the host what systemd-networkd would, which manages foreign rules as well as its own.
fn take_rules(site: &Site) {
    site.edge
        .sh("ip rule flush protocol 83; ip -6 rule flush protocol 83");
}

#[test]
fn what_others_take_away_is_put_back_and_counted_and_nothing_holds_meanwhile() {
    let Some(site) = Site::new() else { return };
    let (everything, directory) = (["0.0.0.0/0", "::/0"], site.directory.path());
    let blocked = everything.map(|it| it.parse().unwrap());
    let begin = || Footprint::begin_blocking(&sennit0(), directory, &blocked).unwrap();
    let mut footprint = site.edge.run(begin);
    let _tun = site.apply(&mut footprint);
    let restore = |footprint: &mut Footprint| site.edge.run(|| footprint.refresh_routes().unwrap());
    let holds = || site.edge.run(|| find_blocked(&sennit0()).unwrap()) == blocked;
    assert!(holds());
    assert_eq!(restore(&mut footprint), Lost::default());
    let before = snapshot(&site.edge);

    take_rules(&site);
    assert!(!holds(), "the routes are there, and nothing leads to them");
    assert_eq!(site.way_to("198.51.100.1"), "eth1", "a leak");
    site.edge.sh("ip address flush dev sennit0");
    let lost = restore(&mut footprint);

    assert!(holds());
    assert_eq!(lost.addresses, 2);
    assert!(lost.rules >= 8 && lost.routes >= 2, "{lost:?}");
    assert_eq!(snapshot(&site.edge), before);
    assert_eq!(restore(&mut footprint), Lost::default(), "once is enough");
}

#[test]
fn a_crash_after_somebody_took_the_rules_of_a_block_does_not_end_it() {
    let Some(site) = Site::new() else { return };
    let directory = site.directory.path();
    let blocked = ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap());
    let begin = || Footprint::begin_blocking(&sennit0(), directory, &blocked).unwrap();
    let footprint = site.edge.run(begin);
    site.edge.run(|| footprint.remove_but_block().unwrap());
    take_rules(&site);

    let kept = site
        .edge
        .run(|| cleanup_but_block(&sennit0(), directory).unwrap());

    assert_eq!(kept, blocked);
    let holds = site.edge.run(|| find_blocked(&sennit0()).unwrap());
    assert_eq!(holds, blocked);
}

#[test]
fn addresses_of_the_tunnel_are_replaced() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let tun = site.apply(&mut footprint);

    site.edge.run(|| {
        let addresses = ["10.200.0.8/32".parse().unwrap()];
        footprint.set_addresses(tun.index(), &addresses).unwrap();
    });

    let nets: Vec<_> = site
        .interface("sennit0")
        .addresses
        .iter()
        .map(|a| a.net.to_string())
        .collect();
    assert_eq!(nets, ["10.200.0.8/32"]);
}

#[test]
fn a_device_made_beforehand_loses_our_addresses_only() {
    let Some(site) = Site::new() else { return };
    site.edge
        .sh("ip tuntap add sennit0 mode tun vnet_hdr; ip address add 10.9.9.9/32 dev sennit0");

    let mut footprint = site.begin().unwrap();
    let tun = site.apply(&mut footprint);
    drop(tun);
    site.edge.run(|| drop(footprint));

    let nets: Vec<_> = site
        .interface("sennit0")
        .addresses
        .iter()
        .map(|a| a.net.to_string())
        .collect();
    assert_eq!(nets, ["10.9.9.9/32"]);
}

#[test]
fn what_a_hub_itself_sends_enters_no_tunnel_even_if_there_is_no_other_way() {
    let Some((hub, server)) = Host::pair() else {
        return;
    };
    let directory = Directory::new();
    hub.cable("eth0", &server, "eth0");
    hub.sh("ip address add 198.18.1.1/24 dev eth0; ip -6 address add fd18::1/64 dev eth0 nodad");
    let way = |mark: u32, to: &str| hub.sh(&format!("ip route get {to} mark {mark} 2>&1 || true"));

    hub.run(|| {
        let mut footprint = Footprint::begin(&sennit0(), directory.path()).unwrap();
        let tun = open_tun(&sennit0());
        let mark = footprint.keep_outside().unwrap();
        let announced = ["10.7.0.0/16", "198.18.1.9/32", "fd07::/64"];
        let routes = into_tunnel(tun.index(), &announced);
        footprint.route_into_tunnel(routes).unwrap();

        for to in ["10.7.0.1", "fd07::1"] {
            assert!(way(0, to).contains("dev sennit0"), "{}", way(0, to));
            // Words differ by family: no route, or unreachable.
            assert!(!way(mark, to).contains(" dev "), "{}", way(mark, to));
        }
        assert!(way(mark, "198.18.1.9").contains("dev eth0"));

        hub.sh("ip route add default via 198.18.1.8; ip -6 route add default via fd18::9");
        footprint.refresh_routes().unwrap();
        for to in ["10.7.0.1", "fd07::1"] {
            assert!(way(mark, to).contains("dev eth0"), "{}", way(mark, to));
        }
    });
    assert!(!snapshot(&hub).contains("10.7.0.0/16"), "nothing is left");
}

#[test]
fn marks_belong_to_the_instance() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();

    let footprint = host.run(|| Footprint::begin(&sennit0(), directory.path()).unwrap());

    let mark = footprint.link_mark(3).unwrap();
    assert_eq!(mark, Instance::of(&sennit0()).link_mark(3).unwrap());
    host.run(|| drop(footprint));
}

#[test]
fn a_route_taken_back_goes_whichever_device_it_was_for() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let tuns = site
        .edge
        .run(|| ["sennit0", "bulk0"].map(|name| open_tun(&name.parse().unwrap())));

    let [main, bulk] = tuns.each_ref().map(Tun::index);
    site.edge.run(|| {
        footprint
            .route_into_tunnel(into_tunnel(bulk, &["10.9.0.0/16"]))
            .unwrap();
        assert_eq!(site.way_to("10.9.1.1"), "bulk0");
        footprint
            .route_into_tunnel(into_tunnel(main, &["10.8.0.0/16"]))
            .unwrap();
    });

    assert_eq!(site.way_to("10.9.1.1"), "eth1");
    assert_eq!(site.way_to("10.8.1.1"), "sennit0");
}

#[test]
fn a_host_without_ipv6_gets_the_rest() {
    let Some(site) = Site::new() else { return };
    site.edge
        .sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    let mut footprint = site.begin().unwrap();

    let _tun = site.apply(&mut footprint);

    assert_eq!(site.way_to("198.51.100.1"), "sennit0");
}
