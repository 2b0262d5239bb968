//! Links that are missing, broken, cut, renumbered, too small or full.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sennit::status::{LinkState, MtuSource, PathState, State, Status};
use sennit_lab::{LabLink, LinkHandle, NatFault, Role, plan};
use sennit_netem::NatConfig;

use crate::traffic::{Conversation, Pings, ping, udp_to};
use crate::world::{Daemon, Edge, HUB_INNER, World, link, path, wait_for};

/// Waits until the daemon says in these words what is wrong with a link.
#[track_caller]
fn assert_link_down(edge: &Daemon<'_>, link: &str, words: &str) {
    let status = edge.wait(&format!("{link} to be down: {words}"), |status| {
        let mut links = status.links.iter().filter(|known| known.name == link);
        links.any(|link| {
            link.state == LinkState::Down
                && link
                    .reason
                    .as_deref()
                    .is_some_and(|reason| reason.contains(words))
        })
    });
    assert_ne!(status.state, State::Up);
    edge.wait_for_log(&["link is down", words]);
}

/// Bytes that have gone up and down a link, whichever paths carried them.
fn used(world: &World, link: &str) -> u64 {
    world
        .link(link)
        .counters()
        .unwrap()
        .iter()
        .map(|way| way.delivered_bytes)
        .sum()
}

/// Both links carry what is said.
#[track_caller]
fn assert_both_used(world: &World) {
    let before = ["a", "b"].map(|link| used(world, link));
    wait_for(
        "both links to be used",
        || ["a", "b"].map(|link| used(world, link)),
        |now| (0..2).all(|link| now[link] > before[link] + 100_000),
    );
}

/// Link `a` breaks and is repaired while a TCP connection is busy.
#[track_caller]
fn assert_survives(words: &str, fail: fn(LinkHandle<'_>), repair: fn(LinkHandle<'_>)) {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 19);

    fail(world.link("a"));
    assert_link_down(&edge, "a", words);
    conversation.expect_progress(1 << 19);

    repair(world.link("a"));
    edge.wait_until_up();
    hub.wait_for_path("default", "a", PathState::Up);
    assert_both_used(&world);
    conversation.finish();
}

#[test]
fn a_link_whose_nat_mapping_leads_nowhere_gets_another_port_and_returns() {
    let behind_box = LabLink {
        nat: Some(NatConfig::default()),
        ..link("a", 20, 5)
    };
    let Some(world) = World::new(&[behind_box, link("b", 10, 15)]) else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());
    let port = || {
        let status = edge.status();
        let path = path(&status, "default", "a");
        path.and_then(|path| path.local).map(|local| local.port())
    };
    let before = port();
    // Of an idle link it would be known only after half a minute.
    let _busy = Pings::start(edge.host, HUB_INNER[0], 6000);

    world.link("a").break_nat(NatFault::Wedge).unwrap();

    // The path may be too young to have been heard; it is tried anew then as soon as it is down.
    edge.wait_for_log(&["trying from another port", "a"]);
    edge.wait_for_path("default", "a", PathState::Up);
    assert_ne!(port(), before);
    world.link("b").set_outage(true).unwrap();
    ping(edge.host, HUB_INNER[0]);
}

#[test]
fn a_link_may_lose_its_address_and_get_it_back() {
    assert_survives(
        "interface wan-a has no address",
        |link| link.set_address(None).unwrap(),
        |link| link.set_address(Some(2)).unwrap(),
    );
}

#[test]
fn a_link_may_come_back_with_another_address() {
    assert_survives(
        "interface wan-a has no address",
        |link| link.set_address(None).unwrap(),
        |link| link.set_address(Some(77)).unwrap(),
    );
}

#[test]
fn a_link_may_lose_its_carrier() {
    assert_survives(
        "interface wan-a is",
        |link| link.set_carrier(false).unwrap(),
        |link| link.set_carrier(true).unwrap(),
    );
}

#[test]
fn a_link_may_be_taken_down() {
    assert_survives(
        "interface wan-a is",
        |link| link.set_up(false).unwrap(),
        |link| link.set_up(true).unwrap(),
    );
}

#[test]
fn a_link_may_change_its_address_at_once() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 19);

    world.link("a").set_address(Some(77)).unwrap();

    let address = world.link("a").subnet().host(77).v4;
    let moved = |status: &Status| {
        let path = path(status, "default", "a");
        path.is_some_and(|path| path.state == PathState::Up && path.remote.ip() == address)
    };
    hub.wait("the path from the new address", moved);
    assert_both_used(&world);
    conversation.finish();
}

#[test]
fn a_link_whose_interface_does_not_exist_yet_is_named_and_then_used() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let host = world.host(Role::Edge);
    host.ip("link set wan-b down\nlink set wan-b name spare\n")
        .unwrap();
    let hub = world.start_hub();
    world.join("van");

    let edge = world.start_edge(&Edge::default());

    assert_link_down(&edge, "b", "interface wan-b does not exist");
    edge.wait_for_path("default", "a", PathState::Up);
    edge.wait_for_addresses();
    ping(host, HUB_INNER[0]);

    host.ip("link set spare name wan-b\n").unwrap();
    world.link("b").set_up(true).unwrap();
    edge.wait_until_up();
    hub.wait_for_path("default", "b", PathState::Up);
}

#[test]
fn an_interface_may_vanish_and_come_back() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    let host = world.host(Role::Edge);

    host.ip("link set wan-a down\nlink set wan-a name spare\n")
        .unwrap();
    assert_link_down(&edge, "a", "interface wan-a does not exist");
    conversation.expect_progress(1 << 19);

    host.ip("link set spare name wan-a\n").unwrap();
    world.link("a").set_up(true).unwrap();
    edge.wait_until_up();
    assert_both_used(&world);
    conversation.finish();
}

#[test]
fn a_link_without_an_address_is_named_and_used_once_it_has_one() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    world.link("b").set_address(None).unwrap();
    let hub = world.start_hub();
    world.join("van");

    let edge = world.start_edge(&Edge::default());

    assert_link_down(&edge, "b", "interface wan-b has no address");
    edge.wait_for_path("default", "a", PathState::Up);
    edge.wait_for_addresses();
    ping(edge.host, HUB_INNER[0]);

    world.link("b").set_address(Some(9)).unwrap();
    edge.wait_until_up();
    hub.wait_for_path("default", "b", PathState::Up);
}

#[test]
fn an_edge_may_start_without_any_link() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    world.join("van");
    for link in world.lab.links() {
        link.set_up(false).unwrap();
    }

    let edge = world.start_edge(&Edge::default());
    assert_link_down(&edge, "a", "interface wan-a is");
    assert_link_down(&edge, "b", "interface wan-b is");

    for link in world.lab.links() {
        link.set_up(true).unwrap();
    }
    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
}

#[test]
fn a_connection_outlives_the_loss_of_all_links() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 19);

    for link in world.lab.links() {
        link.set_address(None).unwrap();
    }
    assert_link_down(&edge, "a", "has no address");
    assert_link_down(&edge, "b", "has no address");
    let tunnel = &edge.status().tunnels[0];
    assert_eq!(tunnel.reason.as_deref(), Some("no path is up"));
    for link in world.lab.links() {
        link.set_address(Some(5)).unwrap();
    }

    edge.wait_until_up();
    conversation.expect_progress(1 << 19);
    conversation.finish();
}

#[test]
fn a_nat_may_give_the_edge_another_address() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    world.join("bike");
    let behind_nat = Edge {
        name: "bike",
        on: Role::Lan,
        links: &[("lan", "eth0", "")],
        ..Edge::default()
    };
    let bike = world.start_edge(&behind_nat);
    bike.wait_until_up();
    let conversation = Conversation::start(bike.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 19);
    let since = bike.status().tunnels[0].since_seconds;

    world.link("a").set_address(Some(77)).unwrap();

    let address = world.link("a").subnet().host(77).v4;
    let moved = |status: &Status| {
        path(status, "default", "lan").is_some_and(|path| path.remote.ip() == address)
    };
    hub.wait("the path from the new address", moved);
    conversation.expect_progress(1 << 19);
    conversation.finish();
    let tunnel = &bike.status().tunnels[0];
    assert!(tunnel.since_seconds > since, "it is the tunnel of before");
}

/// So many bytes of a path may stay unused: all three probes of the last step of the search were
/// lost once, in a queue that overflowed.
const NEARLY: u64 = 40;

/// What is known of the path of a link.
fn size_is_known(status: &Status, link: &str, mtu: u64, source: MtuSource) -> bool {
    path(status, "default", link).is_some_and(|path| {
        path.mtu_source == Some(source)
            && (mtu - NEARLY..=mtu).contains(&path.mtu_bytes)
            && path.why.contains("full packets go in two halves")
    })
}

#[test]
fn full_packets_go_in_halves_over_a_link_with_a_small_interface() {
    let mut small = link("b", 10, 15);
    small.mtu = 1300;
    let Some(world) = World::new(&[link("a", 20, 5), small]) else {
        return;
    };
    let hub = world.start_hub();
    world.join("van");

    let edge = world.start_edge(&Edge::default());

    edge.wait_for_path("default", "b", PathState::Up);
    edge.wait_for_addresses();
    edge.wait_for_log(&["wan-b", "two halves"]);
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    edge.wait("the size of the interface", |status| {
        size_is_known(status, "b", 1272, MtuSource::Interface)
    });
    assert_both_used(&world);
    conversation.expect_progress(1 << 19);
    conversation.finish();
}

#[test]
fn a_site_of_which_the_only_path_is_small_inside_works() {
    assert_small_path_works("198.19.0.1:443", 1300 - 20 - 8);
}

/// IPv6's headers are longer; 1280 bytes is the least that its paths carry (RFC 8200 §5).
#[test]
fn a_site_of_which_the_only_path_is_small_inside_works_over_ipv6() {
    assert_small_path_works("[fd19::1]:443", 1300 - 40 - 8);
}

/// The only path carries IP packets of at most 1300 bytes, which are UDP datagrams of `payload`.
#[track_caller]
fn assert_small_path_works(hub: &str, payload: u64) {
    let mut small = link("a", 20, 10);
    (small.shape.up.mtu, small.shape.down.mtu) = (1300, 1300);
    let Some(world) = World::new(&[small]) else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge {
        hub,
        links: &[("a", "wan-a", "")],
        ..Edge::default()
    });

    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 20);
    conversation.finish();
    for end in [&hub, &edge] {
        end.wait("the size of the path", |status| {
            size_is_known(status, "a", payload, MtuSource::Probed)
        });
    }
}

#[test]
fn a_link_with_overflow_helps_while_the_one_before_it_is_full_and_goes_back() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge {
        links: &[
            ("a", "wan-a", ""),
            ("b", "wan-b", "cost = 5\noverflow = true"),
        ],
        ..Edge::default()
    });
    let helps = |status: &Status| status.notes.iter().any(|note| note.starts_with("b helps"));
    assert!(!helps(&edge.status()));
    let server = (plan::SERVER.v4, 9).into();
    let socket = udp_to(edge.host, server);
    let enough = AtomicBool::new(false);

    let before = used(&world, "b");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A quarter more than the first link carries.
            while !enough.load(Ordering::Relaxed) {
                for _ in 0..25 {
                    let _ = socket.send(&[0; 1200]);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        edge.wait("the second link to help", helps);
        wait_for(
            "it to carry",
            || used(&world, "b"),
            |it| *it > before + 500_000,
        );
        enough.store(true, Ordering::Relaxed);
    });

    edge.wait("it to go back", |status| !helps(status));
    edge.wait_for_log(&["links that help those before them", "\"b\""]);
}
