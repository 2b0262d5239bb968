//! UDP that a hub proxies for clients without a tunnel (RFC 9298).

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime};

use noq_proto::StreamId;
use sennit_lab::{Role, plan};
use sennit_masque::datagram;

use crate::hostile::Hostile;
use crate::joining::enrol_at;
use crate::traffic::{Receiver, ping};
use crate::world::{Daemon, Edge, HUB_INNER, World, wait_for};

const SERVER: &str = "203.0.113.10";

/// A hub that proxies UDP with more lines of its section, and a client that has joined it.
fn hub_and_client<'a>(world: &'a World, more: &str) -> (Daemon<'a>, Hostile) {
    let hub = world.start_hub_with(&format!("[connect_udp]\n{more}"));
    enrol_at(world, "van", SystemTime::now());
    let client = connect(world);
    (hub, client)
}

fn connect(world: &World) -> Hostile {
    let hub = format!("{}:443", plan::HUB.v4);
    Hostile::connect(world.host(Role::Edge), &hub, &world.path("van"))
}

/// A target that echoes.
pub(crate) fn echo(world: &World) -> String {
    let target = Receiver::bind(world.host(Role::Server), SERVER);
    let name = format!("{SERVER}/{}", target.address.port());
    thread::spawn(move || {
        while let Some((packet, from)) = target.receive_within(Duration::from_secs(60)) {
            target.send_to(&packet, from);
        }
    });
    name
}

fn has(client: &Hostile, flow: StreamId, payload: &[u8]) -> bool {
    client.datagrams.iter().any(|it| {
        let datagram = datagram::decode(it).unwrap();
        datagram.stream.0 == u64::from(flow) && datagram.payload == payload
    })
}

#[track_caller]
pub(crate) fn assert_echoes(client: &mut Hostile, flow: StreamId, payload: &[u8]) {
    client.payload(flow, 0, payload);
    client.run_until("the echo", |client| has(client, flow, payload));
}

pub(crate) fn resident(daemon: &Daemon<'_>) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let digits = line.unwrap().split_whitespace().nth(1);
    digits.unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_client_has_udp_proxied_to_whom_it_may_talk_and_to_nobody_else() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, mut client) = hub_and_client(&world, "ports = ['1024-65535']\n");
    let target = echo(&world);

    let port = target.rsplit_once('/').unwrap().1;
    let never = [
        "127.0.0.1",
        "127.1.2.3",
        "%3A%3A1",
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.251",
        "255.255.255.255",
        "%3A%3Affff%3A127.0.0.1",
        // By name as well: what it stands for counts.
        "localhost",
        // The hub, outside and inside, and where its sites are.
        &plan::HUB.v4.to_string(),
        HUB_INNER[0],
        "10.200.0.99",
        "192.168.0.1",
    ];
    for host in never {
        let (_, status, complaint) = client.ask_udp(&format!("{host}/{port}"));
        let said = (status, complaint.as_str());
        assert_eq!(
            said,
            (403, "sennit; error=destination_ip_prohibited"),
            "{host}"
        );
    }
    let (_, status, _) = client.ask_udp(&format!("{SERVER}/53"));
    assert_eq!(status, 403, "a port that is not allowed");
    for (malformed, expected) in [
        (format!("{SERVER}/0"), 400),
        (format!("{SERVER}/65536"), 400),
        (format!("{SERVER}/dns"), 400),
        (format!("%zz/{port}"), 400),
        (format!("*/{port}"), 400),
        (SERVER.to_owned(), 404),
    ] {
        let (_, status, _) = client.ask_udp(&malformed);
        assert_eq!(status, expected, "{malformed}");
    }

    let (flow, status, _) = client.ask_udp(&target);
    assert_eq!(status, 200);
    assert_echoes(&mut client, flow, b"a question");
    assert_echoes(&mut client, flow, b"");
    assert_echoes(&mut client, flow, &[7; 1200]);
    hub.assert_alive();
}

#[test]
fn hostile_frames_of_one_flow_hurt_no_other() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, mut client) = hub_and_client(&world, "flows = 3\n");
    let target = echo(&world);
    // Of a stream that is none yet, and of one that nobody has granted.
    let early = datagram::encode_prefix(sennit_masque::StreamId(0), 0);
    client.datagram(&[&early, &b"too early"[..]].concat());
    client.turn();

    let flows: Vec<StreamId> = (0..3).map(|_| client.ask_udp(&target).0).collect();
    let (_, status, complaint) = client.ask_udp(&target);
    let said = (status, complaint.as_str());
    assert_eq!(said, (429, "sennit; error=connection_limit_reached"));

    client.payload(flows[0], 2, b"a context that nobody registered");
    // ADDRESS_REQUEST of no address, which is malformed (RFC 9484 §4.7.2).
    client.data(flows[1], &[2, 0], false);
    client.run_until("the end of that flow", |client| {
        client.ended.contains(&flows[1])
    });
    assert_echoes(&mut client, flows[0], b"still here");
    assert!(!has(&client, flows[0], b"a context that nobody registered"));
    // In a capsule a payload is as good as in a datagram: type, length, context.
    client.data(flows[0], b"\x00\x04\x00abc", false);
    client.run_until("its echo", |client| has(client, flows[0], b"abc"));

    // Who ends a flow may have another.
    client.data(flows[2], b"", true);
    client.run_until("the hub's end of it", |client| {
        client.ended.contains(&flows[2])
    });
    let deadline = (0..100).find_map(|_| {
        let (flow, status, _) = client.ask_udp(&target);
        (status == 200).then_some(flow)
    });
    assert_echoes(&mut client, deadline.expect("a place is free"), b"again");
}

#[test]
fn a_flow_ends_when_it_idles_and_all_end_with_what_they_were_granted_to() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, mut client) = hub_and_client(&world, "idle = 1\n");
    let target = echo(&world);
    let (idle, ..) = client.ask_udp(&target);
    client.run_until("its end", |client| client.ended.contains(&idle));

    let (_, status, _) = client.ask_udp(&target);
    assert_eq!(status, 200);
    world.sennit("hub", &["revoke", "van"]);
    client.run_until("the end of all", |client| client.is_thrown_out);

    let mut again = connect(&world);
    let (_, status, _) = again.ask_udp(&target);
    assert_eq!(status, 403, "it is not let in again");
}

#[test]
fn a_flood_of_a_target_costs_the_hub_no_memory_and_tunnels_nothing() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with("[connect_udp]\nrate = '100Mbit'\n");
    enrol_at(&world, "van", SystemTime::now());
    world.join("ship");
    let ship = world.start_edge(&Edge {
        name: "ship",
        routes: &["10.200.0.0/16"],
        ..Edge::default()
    });
    ship.wait_until_up();
    let target = Receiver::bind(world.host(Role::Server), SERVER);
    let mut client = connect(&world);
    let (flow, status, _) = client.ask_udp(&format!("{SERVER}/{}", target.address.port()));
    assert_eq!(status, 200);
    client.payload(flow, 0, b"here I am");
    let (_, from) = target.receive();
    let before = resident(&hub);

    for _ in 0..40_000 {
        target.send_to(&[0; 1200], from);
    }
    let grown = resident(&hub).saturating_sub(before);

    assert!(grown < 48 << 20, "{grown} bytes more");
    ping(ship.host, HUB_INNER[0]);
    client.run_until("some of it", |client| !client.datagrams.is_empty());
    wait_for(
        "what comes after the flood",
        || {
            target.send_to(b"after it", from);
            client.turn();
            has(&client, flow, b"after it")
        },
        |has| *has,
    );
}
