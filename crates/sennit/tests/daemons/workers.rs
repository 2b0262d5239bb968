//! Daemons with several workers: who is where makes no difference.

use std::net::SocketAddr;

use sennit::status::{PathState, State, Status, WorkerStatus};
use sennit_lab::{Role, plan};
use sennit_linux::udp::{LinkSocket, Transmit};

use crate::joining::depot;
use crate::traffic::{Conversation, Receiver, assert_tcp, ping, udp_to};
use crate::world::{Daemon, Edge, HUB_INNER, World, traces, tunnel, wait_for};

const THREE: &str = "workers = 3";
const WORKERS: usize = 3;

/// A site with a LAN, which comes to worker 0 of three: the letters of its name say so.
const VAN: Edge<'static> = Edge {
    name: "van",
    on: Role::Edge,
    hub: "198.19.0.1:443",
    routes: &[
        "10.200.0.0/16",
        "fd5e:1::/64",
        "203.0.113.0/24",
        "2001:db8:113::/64",
    ],
    links: &[("a", "wan-a", ""), ("b", "wan-b", "")],
    more: "lan = ['192.168.8.0/24', 'fd08::/64']",
    classes: "",
};

/// A site behind the van's NAT, which comes to worker 2.
const BIKE: Edge<'static> = Edge {
    name: "bike",
    on: Role::Lan,
    hub: "198.19.0.1:443",
    routes: &["10.200.0.0/16", "fd5e:1::/64"],
    links: &[("lan", "eth0", "")],
    more: "",
    classes: "",
};

/// How many tunnels each worker has.
fn spread(daemon: &Daemon<'_>) -> Vec<u64> {
    let workers = daemon.status().workers;
    workers.iter().map(|worker| worker.tunnels).collect()
}

/// Something that workers count, of all of them.
fn sum(status: &Status, counter: fn(&WorkerStatus) -> u64) -> u64 {
    status.workers.iter().map(counter).sum()
}

fn handed(status: &Status) -> u64 {
    sum(status, |worker| worker.handed_packets)
}

#[track_caller]
fn assert_nothing_lost(daemon: &Daemon<'_>) {
    let status = daemon.status();
    assert_eq!(sum(&status, |worker| worker.overflowed_packets), 0);
    assert_eq!(sum(&status, |worker| worker.unowned_packets), 0);
}

/// Three edges that have joined, one at each worker.
fn start_fleet(world: &World) -> (Daemon<'_>, [Daemon<'_>; 3]) {
    let hub = world.start_hub_with(THREE);
    let edges = [VAN, depot(), BIKE].map(|edge| {
        world.join(edge.name);
        let daemon = world.start_edge(&edge);
        daemon.wait_until_up();
        daemon
    });
    (hub, edges)
}

#[test]
fn edges_at_different_workers_reach_the_hub_and_each_other() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edges) = start_fleet(&world);
    assert_eq!(spread(&hub), [1, 1, 1]);
    let inner = edges.each_ref().map(|edge| edge.status().addresses);

    for (from, edge) in edges.iter().enumerate() {
        HUB_INNER.iter().for_each(|own| ping(edge.host, own));
        for (to, addresses) in inner.iter().enumerate() {
            for address in addresses.iter().map(ToString::to_string) {
                ping(hub.host, &address);
                if from != to {
                    ping(edge.host, &address);
                }
            }
        }
    }
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
        let address = inner[to][from % 2].to_string();
        assert_tcp(edges[from].host, edges[to].host, &address);
    }

    let status = hub.status();
    let sites: Vec<&str> = status.tunnels.iter().map(|it| it.site.as_str()).collect();
    assert_eq!(sites, ["bike", "depot", "van"], "each once, in order");
    assert!(handed(&status) > 0);
    assert_nothing_lost(&hub);
}

#[test]
fn connections_from_behind_the_hub_find_their_worker_and_stay_there() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with(THREE);
    world.join("van");
    let van = world.start_edge(&VAN);
    van.wait_until_up();
    let (server, lan) = (world.host(Role::Server), world.host(Role::Lan));
    for (prefix, gateway) in [
        ("192.168.8.0/24", plan::HUB_SERVER.v4.to_string()),
        ("fd08::/64", plan::HUB_SERVER.v6.to_string()),
    ] {
        server
            .ip(&format!("route add {prefix} via {gateway}\n"))
            .unwrap();
    }
    let before = hub.status();

    const CONNECTIONS: u64 = 10;
    for number in 0..CONNECTIONS {
        let address = [plan::LAN.v4.to_string(), plan::LAN.v6.to_string()];
        assert_tcp(server, lan, &address[number as usize % 2]);
    }

    // A connection begins at any queue, which in one of three cases is the right one, and goes on
    // where the LAN's first answer came from. A megabyte is hundreds of packets.
    let crossed = handed(&hub.status()) - handed(&before);
    assert!((1..=10 * CONNECTIONS).contains(&crossed), "{crossed}");
    assert_nothing_lost(&hub);
    assert_eq!(spread(&hub), [1, 0, 0]);
}

#[test]
fn a_revoked_site_loses_its_tunnel_at_whichever_worker_it_is() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, [van, depot, bike]) = start_fleet(&world);
    let control = world.path("hub.sock").display().to_string();

    // The command tells the hub.
    world.sennit("hub", &["revoke", "depot", "--control", &control]);
    depot.wait_for_log(&["tunnel is down", "revoked"]);
    assert_eq!(spread(&hub), [1, 0, 1]);

    // The hub finds out by itself.
    let elsewhere = world.path("no.sock").display().to_string();
    world.sennit("hub", &["revoke", "bike", "--control", &elsewhere]);
    bike.wait_for_log(&["tunnel is down", "revoked"]);
    wait_for(
        "the van alone to be left",
        || spread(&hub),
        |left| left == &[1, 0, 0],
    );
    ping(van.host, HUB_INNER[0]);
}

#[test]
fn what_one_site_announced_a_site_at_another_worker_does_not_get() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with(THREE);
    world.join("van");
    let van = world.start_edge(&VAN);
    van.wait_until_up();
    hub.wait_for_log(&["LAN prefixes routed", "van"]);

    world.join("depot");
    let depot = world.start_edge(&Edge {
        more: "lan = ['192.168.8.128/25', '192.168.9.0/24']",
        ..depot()
    });
    depot.wait_until_up();

    hub.wait_for_log(&["LAN prefix refused", "depot", "192.168.8.128/25"]);
    hub.wait_for_log(&["LAN prefixes routed", "depot", "count=1"]);
    let routes = || {
        let routes = hub.host.exec(&["ip", "route", "show", "table", "all"]);
        String::from_utf8_lossy(&routes.unwrap().stdout).into_owned()
    };
    let both = |routes: &String| {
        let has = |prefix| routes.contains(&format!("{prefix} dev hub"));
        has("192.168.8.0/24") && has("192.168.9.0/24") && !has("192.168.8.128/25")
    };
    wait_for("both LANs to be routed", routes, both);
    ping(hub.host, &plan::LAN.v4.to_string());
}

/// A token for the site that steers its connections to another worker than `worker`.
fn bearer_elsewhere(world: &World, site: &str, worker: usize) -> String {
    let invite = || world.sennit("hub", &["invite", site, "--bearer"]);
    let sum = |token: &String| token.bytes().fold(0, u8::wrapping_add);
    std::iter::repeat_with(invite)
        .take(50)
        .find(|token| usize::from(sum(token)) % WORKERS != worker)
        .expect("two of three tokens do")
}

/// The class that it has no more goes with the others.
#[test]
fn a_site_that_comes_back_at_another_worker_is_gone_from_the_first_at_once() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with("workers = 3\nbearer_reach = ['everything']");
    let ca = world.write("ca.pem", &world.sennit("hub", &["hub", "ca"]));
    let client = |name: &str, token: &str| {
        let bearer = world.write(name, token);
        format!(
            "proxy_ca = '{}'\nproxy_name = 'hub.example'\nbearer = 'file:{}'",
            ca.display(),
            bearer.display()
        )
    };
    let more = client(
        "bearer-1",
        &world.sennit("hub", &["invite", "phone", "--bearer"]),
    );
    let mut first = world.start_edge(&Edge {
        more: &more,
        classes: "[[class]]\nname = 'bulk'\nmatch = ['tcp']\n",
        ..depot()
    });
    first.wait_until_up();
    let at = spread(&hub)
        .iter()
        .position(|tunnels| *tunnels == 2)
        .unwrap();
    let inner = first.status().addresses[0].to_string();
    first.kill();

    let more = client("bearer-2", &bearer_elsewhere(&world, "phone", at));
    let again = world.start_edge(&Edge {
        name: "again",
        more: &more,
        ..Edge::default()
    });
    again.wait_until_up();

    // Otherwise the first worker would have it for the idle timeout of 30 seconds.
    for class in ["bulk", "default"] {
        hub.wait_for_log(&["tunnel is down", class, "replaced by a newer connection"]);
    }
    let spread = spread(&hub);
    assert_eq!((spread[at], spread.iter().sum::<u64>()), (0, 1));
    assert_eq!(again.status().addresses[0].to_string(), inner);
    ping(hub.host, &inner);
    ping(again.host, HUB_INNER[0]);
    assert_nothing_lost(&hub);
}

/// A packet of no connection, for a worker.
fn stray_packet(worker: u8) -> Vec<u8> {
    let mut packet = vec![0x40; 100];
    packet[1 + sennit_engine::WORKER_OCTET] = worker;
    packet
}

#[test]
fn packets_that_the_kernel_joined_are_sorted_out_again() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with(THREE);
    let server = world.host(Role::Server);
    let mut client = server
        .netns()
        .run(|| LinkSocket::listen("0.0.0.0:0".parse().unwrap()))
        .unwrap()
        .unwrap();

    // One send, which arrives as one: the kernel looks at the first packet only.
    let batch = [0, 1, 1, 2, 0].map(stray_packet).concat();
    let batch = Transmit {
        destination: SocketAddr::new(plan::HUB_SERVER.v4.into(), 443),
        ecn: None,
        contents: &batch,
        segment_size: Some(100),
        src_ip: None,
    };
    client.send(&batch).unwrap();

    let given = |status: &Status| status.workers.iter().map(|it| it.handed_packets).collect();
    let seen = || -> Vec<u64> { given(&hub.status()) };
    // Runs, not packets.
    wait_for("both others to get theirs", seen, |seen| seen == &[2, 0, 0]);
    assert_nothing_lost(&hub);
}

#[test]
fn a_hub_with_several_workers_stops_as_a_whole_and_leaves_nothing() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let before = traces(world.host(Role::Hub));
    let (mut hub, [van, depot, bike]) = start_fleet(&world);
    assert_ne!(traces(hub.host), before);

    assert!(hub.stop().success());

    assert_eq!(traces(hub.host), before);
    hub.wait_for_log(&["hub stops"]);
    for edge in [&van, &depot, &bike] {
        // Told by its worker, each at once.
        edge.wait_for_log(&["tunnel is down", "hub stops"]);
    }
}

#[test]
fn a_hub_whose_device_is_taken_away_ends_with_all_its_workers() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let before = traces(world.host(Role::Hub));
    let mut hub = world.start_hub_with(THREE);
    assert_eq!(hub.status().state, State::Up);

    hub.host.ip("link delete hub\n").unwrap();

    assert_eq!(hub.wait_for_exit().code(), Some(1));
    hub.wait_for_log(&["error", "its TUN device was deleted"]);
    assert_eq!(traces(hub.host), before);
}

/// A site with IPv4 in a class at worker 0 of two, and IPv6 in one at worker 1.
const SHARED: Edge<'static> = Edge {
    name: "van",
    on: Role::Edge,
    hub: "198.19.0.1:443",
    routes: &["0.0.0.0/0", "::/0"],
    links: &[("a", "wan-a", ""), ("b", "wan-b", "")],
    more: "workers = 2",
    classes: "[[class]]\nname = 'four'\nmatch = ['dst 0.0.0.0/0']\n[[class]]\nname = 'six'\n",
};

const CLASSES: [&str; 2] = ["four", "six"];

#[test]
fn classes_at_two_workers_of_an_edge_carry_their_packets_and_outlive_a_link() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&SHARED);
    let status = edge.status();
    assert_eq!(spread(&edge), [1, 1]);
    let classes: Vec<&str> = status.tunnels.iter().map(|it| it.class.as_str()).collect();
    assert_eq!(classes, CLASSES);
    assert_eq!((status.links.len(), status.addresses.len()), (2, 2));

    let talks = HUB_INNER.map(|own| Conversation::start(edge.host, hub.host, own));
    let progress = || {
        for talk in &talks {
            talk.expect_progress(1 << 19);
        }
    };
    progress();
    let link = world.link("a");
    link.set_outage(true).unwrap();
    for class in CLASSES {
        edge.wait("the link to be out of use", |status| {
            let paths = &tunnel(status, class).unwrap().paths;
            let is_a = |link: &Option<String>| link.as_deref() == Some("a");
            let mut paths = paths.iter().filter(|path| is_a(&path.link));
            paths.all(|path| path.state != PathState::Up)
        });
    }
    progress();
    link.set_outage(false).unwrap();
    edge.wait_until_up();
    progress();
    for talk in talks {
        talk.finish();
    }

    for daemon in [&edge, &hub] {
        let status = daemon.status();
        for class in CLASSES {
            let tunnel = tunnel(&status, class).unwrap();
            assert!(tunnel.sent_bytes > 1 << 20 && tunnel.received_bytes > 1 << 20);
        }
    }
    for address in &status.addresses {
        assert_tcp(hub.host, edge.host, &address.to_string());
    }
    assert_nothing_lost(&edge);
}

#[test]
fn packets_read_at_another_worker_of_an_edge_reach_their_class() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&SHARED);
    let before = edge.status();

    // One packet of each flow: the kernel gives half of them to either worker.
    const FLOWS: u8 = 20;
    for own in HUB_INNER {
        let receiver = Receiver::bind(hub.host, own);
        for flow in 0..FLOWS {
            udp_to(edge.host, receiver.address)
                .send(&[flow; 500])
                .unwrap();
            assert_eq!(receiver.receive().0, [flow; 500]);
        }
    }

    let after = edge.status();
    let crossed = handed(&after) - handed(&before);
    assert!((1..2 * u64::from(FLOWS)).contains(&crossed), "{crossed}");
    assert_nothing_lost(&edge);
    let sent = |class: &str| {
        let sent = |status| tunnel(status, class).unwrap().sent_bytes;
        sent(&after) - sent(&before)
    };
    for class in CLASSES {
        let bytes = u64::from(FLOWS) * 500;
        // What leaves before both paths are known leaves on both.
        assert!((bytes..3 * bytes).contains(&sent(class)), "{}", sent(class));
    }
}

#[test]
fn an_edge_with_several_workers_stops_as_a_whole_and_leaves_nothing() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let before = traces(world.host(Role::Edge));
    let (hub, mut edge) = world.start_pair(&SHARED);
    assert_ne!(traces(edge.host), before);

    assert!(edge.stop().success());

    assert_eq!(traces(edge.host), before);
    // Told by each worker, not by the idle timeout of 30 seconds.
    for class in CLASSES {
        hub.wait_for_log(&["tunnel is down", class, "edge stops"]);
    }
}
