//! Rules of the firewall, and switches of the kernel.

use std::net::UdpSocket;

use sennit_linux::{
    Footprint, Masquerade, Rules, cleanup_but_block, forward_blockers, netlink::Family,
};

use super::{Directory, Site, kill_a_daemon, sennit0};
use crate::world::Host;

#[test]
fn what_was_translated_stays_so_until_the_next_daemon_has_rules_of_its_own() {
    let Some(site) = Site::new() else { return };
    let translates = || site.edge.sh("nft list ruleset").contains("masquerade");
    let forwards = || site.edge.sh("cat /proc/sys/net/ipv4/ip_forward") == "1\n";
    site.edge.run(|| kill_a_daemon(site.directory.path()));
    site.edge
        .run(|| cleanup_but_block(&sennit0(), site.directory.path()).unwrap());
    assert!(translates(), "after a crash");

    let mut footprint = site.begin().unwrap();
    assert!(translates(), "while the next one starts");
    site.edge
        .run(|| footprint.set_rules(&Rules::default()).unwrap());
    assert!(!translates(), "the next one has none");

    let tun = site.apply(&mut footprint);
    site.edge.run(|| footprint.remove_for_restart().unwrap());
    drop(tun);
    assert!(translates() && forwards(), "while it is restarted");
    let mut next = site.begin().unwrap();
    assert!(translates() && forwards(), "while the next one starts");
    let tun = site.apply(&mut next);
    site.edge.run(|| next.remove_but_block().unwrap());
    drop(tun);
    assert!(translates() && !forwards(), "stopped, but for its block");
    let last = site.begin().unwrap();
    site.edge.run(|| last.remove().unwrap());
    assert!(!translates() && !forwards());
}

#[test]
fn rules_that_another_program_takes_away_are_put_back_and_others_leave_them_alone() {
    let Some(site) = Site::new() else { return };
    let mut footprint = site.begin().unwrap();
    let _tun = site.apply(&mut footprint);
    let listing = || site.edge.sh("nft list ruleset");
    let restore = |footprint: &mut Footprint| site.edge.run(|| footprint.restore_rules().unwrap());
    let before = listing();
    assert!(!restore(&mut footprint), "nothing has happened");

    site.edge.sh("nft add table inet another");
    assert!(!restore(&mut footprint), "it is still there");
    for change in [
        "flush ruleset",
        "delete table inet sennit_sennit0",
        "flush table inet sennit_sennit0",
        "add rule inet sennit_sennit0 postrouting accept",
    ] {
        site.edge.sh(&format!("nft '{change}'"));
        assert!(restore(&mut footprint), "{change}");
        assert!(!restore(&mut footprint), "once is enough");
        let now = listing().replace("table inet another {\n}\n", "");
        assert_eq!(now, before, "{change}");
    }
}

#[test]
fn the_last_of_two_daemons_switches_forwarding_off() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();
    let forwarding =
        || host.sh("cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding");
    let begin = |name: &str| {
        host.run(|| {
            let mut footprint = Footprint::begin(&name.parse().unwrap(), directory.path()).unwrap();
            footprint.forward(Family::V4).unwrap();
            footprint.forward(Family::V6).unwrap();
            footprint
        })
    };

    let (first, second) = (begin("sennit0"), begin("sennit1"));
    host.run(|| drop(first));
    let with_one = forwarding();
    host.run(|| drop(second));

    assert_eq!(with_one, "1\n1\n");
    assert_eq!(forwarding(), "0\n0\n");
}

#[test]
fn forwarding_that_was_on_stays_on_and_so_does_an_administrators_change() {
    let Some(host) = Host::new() else { return };
    let directory = Directory::new();
    host.sh("sysctl -qw net.ipv4.ip_forward=1");
    host.run(|| {
        let mut footprint = Footprint::begin(&sennit0(), directory.path()).unwrap();
        footprint.forward(Family::V4).unwrap();
        footprint.forward(Family::V6).unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "2").unwrap();
    });

    assert_eq!(host.sh("cat /proc/sys/net/ipv4/ip_forward"), "1\n");
    assert_eq!(host.sh("cat /proc/sys/net/ipv6/conf/all/forwarding"), "2\n");
}

#[test]
fn strict_reverse_path_filtering_is_loosened_where_it_is_strict() {
    let Some(site) = Site::new() else { return };
    let mode = || site.edge.sh("cat /proc/sys/net/ipv4/conf/eth1/rp_filter");
    let before = mode();

    let mut footprint = site.begin().unwrap();
    site.edge
        .run(|| footprint.loosen_reverse_path("eth1").unwrap());
    let during = mode();
    site.edge.run(|| drop(footprint));

    assert_eq!(during, "2\n");
    assert_eq!(mode(), before);
}

#[test]
fn what_leaves_the_hub_gets_its_address() {
    let Some((hub, server)) = Host::pair() else {
        return;
    };
    let directory = Directory::new();
    hub.cable("eth0", &server, "eth0");
    hub.sh("ip address add 198.18.1.1/24 dev eth0; ip address add 10.200.5.5/32 dev lo");
    server.sh("ip address add 198.18.1.9/24 dev eth0");
    let listener = server.run(|| UdpSocket::bind("198.18.1.9:9").unwrap());

    let source = hub.run(|| {
        let mut footprint = Footprint::begin(&sennit0(), directory.path()).unwrap();
        let sources = vec![
            "10.200.0.0/16".parse().unwrap(),
            "fd5e:1::/64".parse().unwrap(),
        ];
        footprint
            .masquerade(&Masquerade {
                sources,
                inside: Vec::new(),
            })
            .unwrap();
        let sender = UdpSocket::bind("10.200.5.5:0").unwrap();
        sender.send_to(b"x", "198.18.1.9:9").unwrap();
        listener.recv_from(&mut [0; 8]).unwrap().1.ip()
    });

    assert_eq!(source.to_string(), "198.18.1.1");
}

#[test]
fn a_firewall_that_drops_forwarded_packets_is_named() {
    let Some(host) = Host::new() else { return };
    assert_eq!(host.run(forward_blockers).unwrap(), Vec::<String>::new());

    host.sh(
        "nft 'table ip guard { chain f { type filter hook forward priority 0; policy drop; }; }'",
    );

    assert_eq!(host.run(forward_blockers).unwrap(), ["ip guard f"]);
}
