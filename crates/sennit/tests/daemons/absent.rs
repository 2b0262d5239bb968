//! The hub is not to be found, or something keeps its packets away: what the operator is told.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sennit::status::Status;
use sennit_lab::{Role, plan};
use simple_dns::{CLASS, Packet, ResourceRecord, rdata::A, rdata::RData};

use crate::traffic::ping;
use crate::world::{Daemon, Edge, HUB_INNER, SENNIT, World, path};

/// What the status says of a link's way to the hub.
fn told(status: &Status, name: &str) -> String {
    let mut links = status.links.iter();
    let link = links.find(|link| link.name == name).unwrap();
    link.hub.clone().unwrap_or_default()
}

#[test]
fn a_network_that_blocks_udp_is_told_from_a_hub_that_is_away() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    world.join("van");
    // TCP is answered: nothing listens, and the kernel says so.
    let rules =
        "table inet wall { chain in { type filter hook input priority 0; udp dport 443 drop; }; }";
    hub.host.nft(rules).unwrap();

    let edge = world.start_edge(&Edge::default());

    let words = "blocks UDP";
    let status = edge.wait("a verdict on both links", |status| {
        ["a", "b"]
            .iter()
            .all(|link| told(status, link).contains(words))
    });
    let reason = status.reason.unwrap();
    assert!(
        reason.starts_with("no link reaches the hub: TCP reaches"),
        "{reason}"
    );
    edge.wait_for_log(&["no tunnel", "interface=\"wan-a\"", words]);
    let why = edge.tell(&["why"]);
    assert_eq!(why.matches(words).count(), 2, "a line for each link: {why}");

    // It goes on trying.
    hub.host.nft("delete table inet wall").unwrap();
    edge.wait_until_up();
    assert_eq!(told(&edge.status(), "a"), "");
}

#[test]
fn a_host_without_a_hub_is_told_from_a_silent_one() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    world.sennit("hub", &["hub", "init"]);
    world.join("van");

    let edge = world.start_edge(&Edge::default());

    edge.wait("what ICMP says", |status| {
        told(status, "b").contains("nothing listens there")
    });
}

#[test]
fn a_local_firewall_is_named_as_what_refuses_to_send() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());

    let rules = "table inet wall { chain out { type filter hook output priority 0; \
                 oifname wan-b udp dport 443 drop; }; }";
    edge.host.nft(rules).unwrap();

    let words = "the local firewall has refused to send";
    let status = edge.wait("the refusal", |status| {
        let why = path(status, "default", "b").map(|path| path.why.clone());
        told(status, "b").contains(words) && why.is_some_and(|why| why.contains(words))
    });
    assert_eq!(told(&status, "a"), "");
    edge.wait_for_log(&[
        "the local firewall refuses to send",
        "link=\"b\"",
        "not permitted",
    ]);
    let count = edge.log().matches("the local firewall refuses").count();
    assert_eq!(count, 1, "once, and not for each packet");
}

/// A nameserver at the hub's address, which knows the hub.
struct NameServer {
    stop: Arc<AtomicBool>,
    asked_from: Arc<Mutex<BTreeSet<IpAddr>>>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    fn start(world: &World) -> Self {
        let bind = || UdpSocket::bind((plan::HUB.v4, 53));
        let socket = world.host(Role::Hub).netns().run(bind).unwrap().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let (stop, asked_from) = (Arc::<AtomicBool>::default(), Arc::default());
        let shared = (Arc::clone(&stop), Arc::clone(&asked_from));
        let thread = thread::spawn(move || {
            while !shared.0.load(Ordering::Relaxed) {
                answer(&socket, &shared.1);
            }
        });
        Self {
            stop,
            asked_from,
            thread: Some(thread),
        }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(socket: &UdpSocket, asked_from: &Mutex<BTreeSet<IpAddr>>) {
    let mut buffer = [0; 512];
    let Ok((length, from)) = socket.recv_from(&mut buffer) else {
        return;
    };
    asked_from.lock().unwrap().insert(from.ip());
    let question = Packet::parse(&buffer[..length]).unwrap();
    let mut reply = Packet::new_reply(question.id());
    reply.questions.clone_from(&question.questions);
    if question.questions[0].qtype == simple_dns::TYPE::A.into() {
        let name = question.questions[0].qname.clone();
        let address = RData::A(A::from(plan::HUB.v4));
        reply
            .answers
            .push(ResourceRecord::new(name, CLASS::IN, 60, address));
    }
    socket
        .send_to(&reply.build_bytes_vec().unwrap(), from)
        .unwrap();
}

/// An edge that knows the hub by name, and whose host has the nameserver.
fn start_named<'w>(world: &'w World) -> Daemon<'w> {
    let config = world.edge_config(&Edge {
        hub: "vpn.example.org:443",
        ..Edge::default()
    });
    let config = world.write("van.toml", &config);
    let resolvers = format!("nameserver {}\n", plan::HUB.v4);
    let resolvers = world.write("resolv.conf", &resolvers);
    // `ip netns exec` has given it a mount namespace that ends with it.
    let script = "mount --bind $1 /etc/resolv.conf && exec $2 edge --config $3";
    let mut command = world.host(Role::Edge).command("sh");
    command.args(["-ec", script, "sh"]).arg(resolvers);
    command.arg(SENNIT).arg(config);
    world.spawn("van", Role::Edge, command)
}

#[test]
fn a_hub_is_found_by_name_over_each_link_and_without_a_resolver_where_it_was_last() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    world.join("van");
    let server = NameServer::start(&world);

    let mut edge = start_named(&world);

    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
    let links = ["a", "b"].map(|link| IpAddr::from(world.link(link).subnet().edge().v4));
    assert_eq!(*server.asked_from.lock().unwrap(), BTreeSet::from(links));
    let remote = path(&edge.status(), "default", "a").unwrap().remote;
    assert_eq!(remote, SocketAddr::from((plan::HUB.v4, 443)));

    edge.stop();
    drop(server);
    edge.start_again();

    edge.wait_for_log(&["no resolver knows the hub's name"]);
    edge.wait_until_up();
}

#[test]
fn a_hub_whose_name_is_unknown_at_first_is_found_later() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    world.join("van");
    let edge = start_named(&world);
    let words = "no resolver knows the hub's name";
    edge.wait_for_log(&[words]);
    edge.wait("the reason", |status| {
        status.reason.as_deref() == Some(words)
    });

    let _server = NameServer::start(&world);

    edge.wait_until_up();
}
