//! It works: packets of all kinds pass, and go where the policy says.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use sennit::status::{LinkState, PathState, Placement, State, Status};
use sennit_lab::{Role, plan};

use crate::joining::{depot, enrol_at};
use crate::traffic::{Answers, Conversation, Pings, Receiver, assert_tcp, ping, udp_to};
use crate::world::{Daemon, Edge, HUB_INNER, PATIENCE, World, link, path, tunnel, wait_for};

/// For a packet that may be lost on purpose, before it is sent again.
const A_WHILE: Duration = Duration::from_millis(500);

/// Addresses that the hub gave to an edge.
fn inner(edge: &Daemon<'_>) -> Vec<String> {
    edge.status()
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// A `[[class]]` table.
fn class(name: &str, more: &str) -> String {
    format!("[[class]]\nname = '{name}'\n{more}\n")
}

#[test]
fn packets_of_both_families_pass_both_ways() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());

    let own = inner(&edge);
    assert_eq!(own.len(), 2, "one address of each pool: {own:?}");
    for address in HUB_INNER {
        ping(edge.host, address);
        assert_tcp(edge.host, hub.host, address);
    }
    for address in &own {
        ping(hub.host, address);
        assert_tcp(hub.host, edge.host, address);
    }
}

#[test]
fn links_that_have_only_ipv6_carry_everything() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    for link in world.lab.links() {
        edge_ip(
            &world,
            &format!(
                "address del {}/24 dev {}",
                link.subnet().edge().v4,
                link.device()
            ),
        );
    }

    let edge = Edge {
        hub: "[fd19::1]:443",
        ..Edge::default()
    };
    let (hub, edge) = world.start_pair(&edge);

    let status = edge.status();
    for link in ["a", "b"] {
        let path = path(&status, "default", link).unwrap();
        assert!(
            path.remote.is_ipv6() && path.local.unwrap().is_ipv6(),
            "{path:?}"
        );
    }
    for address in HUB_INNER {
        ping(edge.host, address);
        assert_tcp(edge.host, hub.host, address);
    }
}

#[test]
fn why_tells_of_a_real_flow_at_both_ends() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(4 << 20);

    // It fills both links in both directions, and each end tells of its own.
    let own = inner(&edge)[0].clone();
    for (end, to, from_here) in [
        (&edge, HUB_INNER[0], "from here to the hub"),
        (&hub, own.as_str(), "from here to site van"),
    ] {
        let status = end.wait("the flow to be striped", |status| {
            let flows = tunnel(status, "default").map(|tunnel| &tunnel.flows[..]);
            let busiest = flows.and_then(<[_]>::first);
            busiest.is_some_and(|flow| flow.placement == Placement::Striped)
        });
        let flow = &tunnel(&status, "default").unwrap().flows[0];
        assert_eq!(
            (flow.protocol.as_str(), flow.destination.to_string()),
            ("tcp", to.into())
        );
        assert!(flow.ordered && !flow.thin, "{flow:?}");
        assert_eq!(flow.links.len(), 2, "{flow:?}");

        let told = end.tell(&["why", &flow.flow]);
        assert!(told.contains(from_here), "{told}");
        assert!(told.contains(&flow.flow), "{told}");
        assert!(told.contains("put in order at the far end"), "{told}");
        let list = end.tell(&["why", "--flows"]);
        assert!(list.contains(&flow.flow), "{list}");
    }
    conversation.finish();
}

#[test]
fn edges_reach_each_other_through_the_hub() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge {
        routes: depot().routes,
        ..Edge::default()
    });
    world.join("depot");
    let depot = world.start_edge(&depot());
    depot.wait_until_up();

    // A third one, behind the second one's NAT.
    world.join("bike");
    let behind_nat = Edge {
        name: "bike",
        on: Role::Lan,
        links: &[("lan", "eth0", "")],
        routes: crate::joining::depot().routes,
        ..Edge::default()
    };
    let bike = world.start_edge(&behind_nat);
    bike.wait_until_up();

    let edges = [&van, &depot, &bike];
    for from in edges {
        for to in edges
            .into_iter()
            .filter(|to| to.host.name() != from.host.name())
        {
            inner(to)
                .iter()
                .for_each(|address| ping(from.host, address));
        }
    }
    assert_tcp(bike.host, depot.host, &inner(&depot)[0]);
    assert_tcp(depot.host, van.host, &inner(&van)[1]);
    assert_eq!(hub.status().tunnels.len(), 3);
}

#[test]
fn a_lan_host_reaches_a_server_through_tunnel_and_nat() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let edge = Edge {
        more: "lan = ['192.168.8.0/24', 'fd08::/64']",
        ..Edge::default()
    };
    let (_hub, edge) = world.start_pair(&edge);
    let (lan, server) = (world.host(Role::Lan), world.host(Role::Server));

    for address in [plan::SERVER.v4.to_string(), plan::SERVER.v6.to_string()] {
        ping(lan, &address);
        assert_tcp(lan, server, &address);
        let receiver = Receiver::bind(server, &address);
        let socket = udp_to(lan, receiver.address);
        socket.send(b"who am I?").unwrap();
        let (_, from) = receiver.receive();
        let hub = [plan::HUB_SERVER.v4.into(), plan::HUB_SERVER.v6.into()];
        assert!(
            hub.contains(&from.ip()),
            "seen from outside, it is the hub: {from}"
        );
    }
    let used = tunnel(&edge.status(), "default").unwrap().sent_bytes;
    assert!(
        used > 2 << 20,
        "and all that went through the tunnel: {used}"
    );
}

#[test]
fn a_lan_behind_one_edge_is_reached_from_another_without_nat() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let lan = "lan = ['192.168.8.0/24', 'fd08::/64']";
    let (_hub, _van) = world.start_pair(&Edge {
        more: lan,
        ..Edge::default()
    });
    world.join("depot");
    let routes = [depot().routes, &["192.168.8.0/24", "fd08::/64"]].concat();
    let depot = world.start_edge(&Edge {
        routes: &routes,
        ..depot()
    });
    depot.wait_until_up();

    for (address, own) in [plan::LAN.v4.to_string(), plan::LAN.v6.to_string()]
        .iter()
        .zip(inner(&depot))
    {
        ping(depot.host, address);
        assert_tcp(depot.host, world.host(Role::Lan), address);
        let receiver = Receiver::bind(world.host(Role::Lan), address);
        udp_to(depot.host, receiver.address)
            .send(b"who am I?")
            .unwrap();
        let (_, from) = receiver.receive();
        assert_eq!(from.ip().to_string(), own, "nobody translated it");
    }
}

#[test]
fn links_may_share_a_subnet_and_a_gateway() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    // Link b gets another address in the subnet of link a, with the gateway of link a.
    let [a, b] = ["a", "b"].map(|name| world.link(name));
    let (address, gateway) = (a.subnet().host(9).v4, a.subnet().hub().v4);
    b.set_address(None).unwrap();
    edge_ip(&world, &format!("address add {address}/24 dev wan-b"));
    edge_ip(
        &world,
        &format!("route add default via {gateway} dev wan-b metric 2000"),
    );
    let back = format!("route add {address}/32 dev wan-b\n");
    world.host(Role::Hub).ip(&back).unwrap();

    let (hub, edge) = world.start_pair(&Edge::default());

    let path = |link| path(&edge.status(), "default", link).unwrap().clone();
    assert_eq!(path("b").local.unwrap().ip(), address);
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 20);
    a.set_outage(true).unwrap();
    conversation.expect_progress(1 << 20);
    conversation.finish();
    let counters = b.counters().unwrap();
    assert!(counters.iter().all(|way| way.delivered_bytes > 1 << 20));
}

#[test]
fn a_packet_too_big_for_the_tunnel_teaches_its_sender_the_path_mtu() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let edge = Edge {
        more: "lan = ['192.168.8.0/24', 'fd08::/64']",
        ..Edge::default()
    };
    let _daemons = world.start_pair(&edge);
    let (lan, server) = (world.host(Role::Lan), world.host(Role::Server));

    for address in [plan::SERVER.v4.to_string(), plan::SERVER.v6.to_string()] {
        let receiver = Receiver::bind(server, &address);
        let socket = udp_to(lan, receiver.address);
        // The kernel sets DF on the first; once it knows better it sends fragments.
        let packet: Vec<u8> = (0..1450_u32).map(|byte| byte as u8).collect();
        let sent = || {
            // The error that the ICMP message leaves behind is reported by one of the sends.
            let _ = socket.send(&packet);
            receiver.receive_within(A_WHILE).map(|(packet, _)| packet)
        };
        let arrived = wait_for("a large packet to arrive", sent, Option::is_some);

        assert_eq!(arrived.as_ref(), Some(&packet));
        let route = lan.exec(&["ip", "route", "get", &address]).unwrap();
        let route = String::from_utf8_lossy(&route.stdout).into_owned();
        assert!(route.contains("mtu 1400"), "{route}");
    }
}

#[test]
fn a_large_packet_that_may_be_fragmented_arrives_whole() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let edge = Edge {
        more: "lan = ['192.168.8.0/24', 'fd08::/64']",
        ..Edge::default()
    };
    let _daemons = world.start_pair(&edge);
    let (lan, server) = (world.host(Role::Lan), world.host(Role::Server));
    // Sockets made from now on do not set DF.
    lan.sysctl(&["net.ipv4.ip_no_pmtu_disc=1"]).unwrap();
    let receiver = Receiver::bind(server, &plan::SERVER.v4.to_string());
    let socket = udp_to(lan, receiver.address);

    for size in [1450, 1472, 5000] {
        let packet = vec![size as u8; size];
        let sent = || {
            socket.send(&packet).unwrap();
            receiver.receive_within(A_WHILE).map(|(packet, _)| packet)
        };
        let arrived = wait_for("a large packet to arrive", sent, Option::is_some);
        assert_eq!(arrived.as_ref(), Some(&packet));
    }
}

#[test]
fn all_fragments_of_a_datagram_go_to_the_class_of_its_ports_both_ways() {
    const COUNT: usize = 20;
    const BYTES: usize = 3000;
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (lan, server) = (world.host(Role::Lan), world.host(Role::Server));
    for host in [lan, server] {
        // Sockets made from now on do not set DF.
        host.sysctl(&["net.ipv4.ip_no_pmtu_disc=1"]).unwrap();
    }
    let receiver = Receiver::bind(server, &plan::SERVER.v4.to_string());
    let rule = format!("match = ['udp port {}']", receiver.address.port());
    let classes = class("voice", &rule) + &class("default", "policy = 'bond'");
    let (hub, van) = world.start_pair(&Edge {
        more: "lan = ['192.168.8.0/24', 'fd08::/64']",
        classes: &classes,
        ..Edge::default()
    });
    let sent = |daemon: &Daemon<'_>, class: &str| {
        let status = daemon.status();
        tunnel(&status, class).unwrap().sent_bytes
    };
    let before = [sent(&van, "default"), sent(&hub, "default")];

    let socket = udp_to(lan, receiver.address);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..COUNT {
        let datagram = vec![number as u8; BYTES];
        socket.send(&datagram).unwrap();
        let (arrived, from) = receiver.receive();
        assert_eq!(arrived, datagram);
        receiver.send_to(&datagram, from);
        let mut answer = vec![0; 2 * BYTES];
        let len = socket.recv(&mut answer).unwrap();
        assert_eq!(answer[..len], datagram);
    }

    for (daemon, before) in [&van, &hub].into_iter().zip(before) {
        let wanted = (COUNT * BYTES) as u64;
        daemon.wait("all of it in the class", |status| {
            tunnel(status, "voice").is_some_and(|it| it.sent_bytes >= wanted)
        });
        let elsewhere = sent(daemon, "default") - before;
        // Less than the smallest of the fragments: what a kernel says of itself on a new device.
        assert!(elsewhere < 200, "{elsewhere} bytes");
    }
}

#[test]
fn three_classes_over_three_links_are_nine_paths() {
    let links = [link("a", 20, 5), link("b", 10, 15), link("c", 5, 30)];
    let Some(world) = World::new(&links) else {
        return;
    };
    let classes = class(
        "critical",
        "match = ['icmp']\npolicy = 'redundant'\ndelivery = 'datagram'",
    ) + &class("bulk", "match = ['tcp']\npolicy = 'bond'")
        + &class("default", "policy = 'balanced'");
    let edge = Edge {
        links: &[("a", "wan-a", ""), ("b", "wan-b", ""), ("c", "wan-c", "")],
        classes: &classes,
        ..Edge::default()
    };
    let (hub, edge) = world.start_pair(&edge);

    let complete = |status: &Status| {
        let up = status
            .tunnels
            .iter()
            .filter(|tunnel| tunnel.state == State::Up);
        let paths = up.flat_map(|tunnel| tunnel.paths.iter().map(|path| (&tunnel.class, path)));
        let up: BTreeSet<_> = paths
            .filter(|(_, path)| path.state == PathState::Up)
            .map(|(class, path)| (class.clone(), path.link.clone()))
            .collect();
        up.len() == 9
    };
    edge.wait("nine paths at the edge", complete);
    hub.wait("nine paths at the hub", complete);

    // Each class carries its own packets, both ways.
    let before = edge.status();
    ping(edge.host, HUB_INNER[0]);
    assert_tcp(edge.host, hub.host, HUB_INNER[1]);
    let receiver = Receiver::bind(hub.host, HUB_INNER[0]);
    udp_to(edge.host, receiver.address)
        .send(&[0; 1000])
        .unwrap();
    receiver.receive();
    let after = edge.status();
    let grown = |class: &str, field: fn(&sennit::status::TunnelStatus) -> u64| {
        field(tunnel(&after, class).unwrap()) - field(tunnel(&before, class).unwrap())
    };
    let received = |class| grown(class, |tunnel| tunnel.received_bytes);
    let sent = |class| grown(class, |tunnel| tunnel.sent_bytes);
    assert!(
        (252..2_000).contains(&received("critical")),
        "three pings: {}",
        received("critical")
    );
    assert!(received("bulk") > 1 << 20 && sent("bulk") > 1 << 20);
    assert!(
        (1_000..5_000).contains(&sent("default")),
        "one packet: {}",
        sent("default")
    );
}

#[test]
fn what_is_routed_to_the_device_of_a_class_is_of_that_class() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let classes = class("bulk", "policy = 'bond'\ndevice = 'bulk0'") + &class("default", "");
    let (hub, edge) = world.start_pair(&Edge {
        classes: &classes,
        ..Edge::default()
    });
    edge_ip(
        &world,
        &format!("route add {}/32 dev bulk0", plan::SERVER.v4),
    );
    let sent = |class: &str| tunnel(&edge.status(), class).unwrap().sent_bytes;
    let before = (sent("bulk"), sent("default"));

    assert_tcp(
        edge.host,
        world.host(Role::Server),
        &plan::SERVER.v4.to_string(),
    );
    assert!(sent("bulk") > before.0 + (1 << 20));
    assert!(sent("default") < before.1 + 10_000);

    assert_tcp(edge.host, hub.host, HUB_INNER[0]);
    assert!(sent("default") > before.1 + (1 << 20));
}

/// Bytes that each link of the default class has carried up.
fn carried(edge: &Daemon<'_>) -> [u64; 2] {
    let status = edge.status();
    ["a", "b"].map(|link| path(&status, "default", link).map_or(0, |path| path.sent_bytes))
}

/// Bytes that each link carries up while a megabyte is echoed.
fn carried_by_a_megabyte(edge: &Daemon<'_>, hub: &Daemon<'_>) -> [u64; 2] {
    let before = carried(edge);
    assert_tcp(edge.host, hub.host, HUB_INNER[0]);
    let after = carried(edge);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn failover_uses_the_lower_tier_and_only_while_the_higher_is_down_the_other() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let edge = Edge {
        links: &[("a", "wan-a", "tier = 2"), ("b", "wan-b", "tier = 1")],
        classes: &class("default", "policy = 'failover'"),
        ..Edge::default()
    };
    let (hub, edge) = world.start_pair(&edge);

    let [a, b] = carried_by_a_megabyte(&edge, &hub);
    assert!(b > 1 << 20 && a < 1 << 18, "tier 1 is b: a {a}, b {b}");

    world.link("b").set_outage(true).unwrap();
    edge.wait("b to be out of use", |status| {
        path(status, "default", "b").is_none_or(|path| path.state != PathState::Up)
    });
    let [a, b] = carried_by_a_megabyte(&edge, &hub);
    assert!(a > 1 << 20 && b < 1 << 18, "b is cut: a {a}, b {b}");

    world.link("b").set_outage(false).unwrap();
    edge.wait_for_path("default", "b", PathState::Up);
    let [a, b] = carried_by_a_megabyte(&edge, &hub);
    assert!(b > 1 << 20 && a < 1 << 18, "b is back: a {a}, b {b}");
}

#[test]
fn balanced_spreads_flows_by_weight() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let edge = Edge {
        links: &[("a", "wan-a", "weight = 3"), ("b", "wan-b", "weight = 1")],
        classes: &class("default", "policy = 'balanced'"),
        ..Edge::default()
    };
    let (hub, edge) = world.start_pair(&edge);
    let before = carried(&edge);
    let receiver = Receiver::bind(hub.host, HUB_INNER[0]);

    // Flows by their source port, which the kernel chooses at random.
    const FLOWS: u64 = 400;
    for _ in 0..FLOWS {
        udp_to(edge.host, receiver.address)
            .send(&[0; 1000])
            .unwrap();
        thread::sleep(Duration::from_millis(1));
    }

    let used = || {
        let after = carried(&edge);
        [after[0] - before[0], after[1] - before[1]]
    };
    let [a, b] = wait_for("all to be sent", used, |[a, b]| a + b > FLOWS * 1000);
    let share = a as f64 / (a + b) as f64;
    assert!(
        (0.6..0.9).contains(&share),
        "three of four flows on a: {share}"
    );
}

#[test]
fn redundant_sends_everything_twice_and_delivers_it_once() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let classes = class("default", "policy = 'redundant'\ndelivery = 'datagram'");
    let (_hub, edge) = world.start_pair(&Edge {
        classes: &classes,
        ..Edge::default()
    });
    let before = carried(&edge);

    let answers = Pings::start(edge.host, HUB_INNER[0], 100).finish();

    assert_eq!(answers, Answers::all(100));
    let after = carried(&edge);
    for link in 0..2 {
        let bytes = after[link] - before[link];
        assert!(
            bytes > 100 * 84,
            "every packet went over link {link}: {bytes}"
        );
    }
}

#[test]
fn redundant_pings_lose_none_through_cuts() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let classes = class("default", "policy = 'redundant'\ndelivery = 'datagram'");
    let (hub, edge) = world.start_pair(&Edge {
        classes: &classes,
        ..Edge::default()
    });

    let (pings, start) = (Pings::start(edge.host, HUB_INNER[0], 500), Instant::now());
    let mut moments = Vec::new();
    for link in ["a", "b"] {
        moments.push((start.elapsed(), "cut of", link));
        world.link(link).set_outage(true).unwrap();
        edge.wait("the cut to be noticed", |status| {
            path(status, "default", link).is_none_or(|path| path.state != PathState::Up)
        });
        moments.push((start.elapsed(), "return of", link));
        world.link(link).set_outage(false).unwrap();
        edge.wait_for_path("default", link, PathState::Up);
        hub.wait_for_path("default", link, PathState::Up);
        // What was sent on the other link alone has arrived after that.
        ping(edge.host, HUB_INNER[0]);
    }
    let answers = pings.finish();

    assert_eq!(answers, Answers::all(500), "after the {moments:?}");
}

#[test]
fn a_dead_first_link_does_not_delay_the_start() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    enrol_at(&world, "van", SystemTime::now());
    world.link("a").set_outage(true).unwrap();

    let started = Instant::now();
    let edge = world.start_edge(&Edge::default());
    edge.wait("a tunnel", |status| {
        tunnel(status, "default").is_some_and(|tunnel| tunnel.state == State::Up)
    });
    let took = started.elapsed();
    ping(edge.host, HUB_INNER[0]);

    // A handshake that waited for the dead link would take its whole patience of four seconds.
    assert!(took < Duration::from_secs(3), "{took:?}");
    edge.wait_for_log(&["tunnel is up", "first_link=\"b\""]);

    // Its interface works, and it is of no use all the same.
    const DEAD: &str = "neither UDP nor TCP gets an answer";
    let status = edge.wait("the dead link to be looked at", |status| {
        let reason = status.links[0].reason.as_ref();
        reason.is_some_and(|reason| reason.contains(DEAD))
    });
    assert_eq!(status.links[0].state, LinkState::Down);
    assert_eq!(status.state, State::Degraded);
    let why = edge.tell(&["why", "a"]);
    assert!(why.contains(DEAD), "{why}");

    world.link("a").set_outage(false).unwrap();
    edge.wait_until_up();
}

#[test]
fn no_connection_breaks_while_each_link_in_turn_is_silent() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 20);

    for link in ["a", "b"] {
        world.link(link).set_outage(true).unwrap();
        conversation.expect_progress(1 << 20);
        edge.wait("the cut to be noticed", |status| {
            path(status, "default", link).is_none_or(|path| path.state != PathState::Up)
        });
        world.link(link).set_outage(false).unwrap();
        edge.wait_for_path("default", link, PathState::Up);
        hub.wait_for_path("default", link, PathState::Up);
        let before = carried(&edge);
        wait_for(
            "both links to be in use again",
            || carried(&edge),
            |now| (0..2).all(|link| now[link] > before[link] + 100_000),
        );
    }

    let report = conversation.finish();
    assert!(report.longest_gap < Duration::from_secs(2), "{report:?}");
}

fn edge_ip(world: &World, line: &str) {
    world.host(Role::Edge).ip(&format!("{line}\n")).unwrap();
}
