//! Who sorts: the kernel by marks, incoming interfaces and users, and a hub by rules of its own.

use sennit_lab::{Role, plan};

use crate::traffic::ping;
use crate::world::{Daemon, Edge, World, tunnel};

const CLASSES: &str = "[[class]]\nname = 'urgent'\nmatch = ['dscp ef']\n\
                       [[class]]\nname = 'voice'\nmatch = ['mark 0x10/0xff']\n\
                       [[class]]\nname = 'rest'\n\
                       [[class]]\nname = 'user'\nmatch = ['uid 0-4321 udp dport 9']\n\
                       [[class]]\nname = 'lan'\nmatch = ['in lan0', 'uid 4323 udp port 10']\n";

/// Bytes of what is sent to and fro: none of it is left to chance.
const SIZE: u64 = 20 * 1000;

/// Which class carries most of what is sent meanwhile.
fn carries(edge: &Daemon<'_>, send: impl FnOnce()) -> String {
    let sent = |status: &sennit::status::Status, class: &str| {
        tunnel(status, class).map_or(0, |tunnel| tunnel.sent_bytes)
    };
    let before = edge.status();
    send();
    let after = edge.wait("what was sent to be counted", |status| {
        let grown = |class: &&str| sent(status, class) >= sent(&before, class) + SIZE;
        NAMES.iter().any(grown)
    });
    let grown = |class: &&&str| sent(&after, class) - sent(&before, class).min(sent(&after, class));
    (*NAMES.iter().max_by_key(grown).unwrap()).to_owned()
}

const NAMES: [&str; 5] = ["urgent", "voice", "rest", "lan", "user"];

fn send_all(world: &World, edge: &Daemon<'_>) {
    let server = plan::SERVER.v4.to_string();
    for (mark, class) in [("0", "rest"), ("43792", "voice"), ("32", "rest")] {
        let line = [
            "ping", "-n", "-q", "-c", "20", "-i", "0.01", "-s", "1000", "-m", mark, &server,
        ];
        let pings = || drop(edge.host.exec(&line).unwrap());
        assert_eq!(carries(edge, pings), class, "mark {mark}");
    }
    let script = |port: u16| {
        format!(
            "for i in $(seq 20); do head -c 1000 /dev/zero > /dev/udp/{server}/{port} || true; done"
        )
    };
    // No user of the edge sends it, though the rule before is for root too.
    let lan = world.host(Role::Lan);
    let from_lan = || drop(lan.exec(&["bash", "-c", &script(9)]).unwrap());
    assert_eq!(carries(edge, from_lan), "lan");
    // The kernel leads it to the device of the same class, and an earlier class has its marks.
    let line = [
        "ping", "-n", "-q", "-c", "20", "-i", "0.01", "-W", "1", "-s", "1000", "-Q", "0xb8",
        &server,
    ];
    let marked = || drop(lan.exec(&line).unwrap());
    assert_eq!(carries(edge, marked), "urgent");

    for (uid, port, class) in [
        ("4321", 9, "user"),
        ("4322", 9, "rest"),
        ("4323", 10, "lan"),
    ] {
        let line = [
            "setpriv",
            "--reuid",
            uid,
            "--clear-groups",
            "bash",
            "-c",
            &script(port),
        ];
        let send = || drop(edge.host.exec(&line).unwrap());
        assert_eq!(carries(edge, send), class, "user {uid}");
    }
}

fn rules(edge: &Daemon<'_>) -> String {
    let line = ["sh", "-c", "ip rule; ip -6 rule"];
    let all = edge.host.exec(&line).unwrap();
    String::from_utf8(all.stdout).unwrap()
}

#[test]
fn marks_interfaces_and_users_choose_a_class_and_nothing_of_it_stays() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, mut edge) = world.start_pair(&Edge {
        more: "lan = ['192.168.8.0/24', 'fd08::/64']",
        classes: CLASSES,
        ..Edge::default()
    });
    ping(edge.host, &plan::SERVER.v4.to_string());
    send_all(&world, &edge);
    let running = rules(&edge);
    assert_eq!(running.matches("fwmark 0x10/0xff").count(), 2, "{running}");

    edge.kill();
    edge.start_again();
    edge.wait_until_up();
    ping(edge.host, &plan::SERVER.v4.to_string());
    send_all(&world, &edge);
    assert_eq!(rules(&edge), running);

    edge.stop();
    let after = rules(&edge);
    for left in ["0x10/0xff", "lan0", "4321", "proto"] {
        assert!(!after.contains(left), "{after}");
    }
}

#[test]
fn a_flow_that_begins_at_the_hub_goes_by_its_rules() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with(
        "[[class]]\nname = 'voice'\nmatch = ['udp dport 9']\n\
         [[class]]\nname = 'absent'\nmatch = ['udp dport 10']\n",
    );
    let edge = Edge {
        classes: "[[class]]\nname = 'voice'\nmatch = ['udp port 5060']\n[[class]]\nname = 'rest'\n",
        ..Edge::default()
    };
    world.join(edge.name);
    let edge = world.start_edge(&edge);
    edge.wait_until_up();
    let inner = edge.status().addresses[0].to_string();
    ping(hub.host, &inner);
    for (port, class) in [(9, "voice"), (10, "rest"), (11, "rest")] {
        let script = format!(
            "for i in $(seq 20); do head -c 1000 /dev/zero > /dev/udp/{inner}/{port} || true; done"
        );
        let send = || drop(hub.host.exec(&["bash", "-c", &script]).unwrap());
        assert_eq!(carries(&hub, send), class, "to port {port}");
    }
}
