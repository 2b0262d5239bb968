//! What a daemon has given up, as the kernel tells it of each thread.

use std::collections::BTreeSet;
use std::fs;

use crate::traffic::ping;
use crate::world::{Daemon, Edge, HUB_INNER, World};

/// `CAP_NET_ADMIN` and `CAP_SYS_NICE` of linux/capability.h.
const NET_ADMIN: u64 = 1 << 12;
const SYS_NICE: u64 = 1 << 23;
/// `CAP_SYS_MODULE`, `CAP_SYS_PTRACE` and `CAP_SYS_ADMIN`.
const TAKE_THE_HOST: u64 = 1 << 16 | 1 << 19 | 1 << 21;

/// A thread of a daemon.
struct Thread {
    name: String,
    effective: u64,
    permitted: u64,
    bounding: u64,
    /// `NoNewPrivs` and `Seccomp`.
    modes: [u64; 2],
}

fn threads(daemon: &Daemon<'_>) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let statuses = tasks.flatten().map(|it| it.path().join("status"));
    // A thread may end meanwhile.
    let texts = statuses.filter_map(|path| fs::read_to_string(path).ok());
    texts.map(|text| thread(&text)).collect()
}

fn thread(status: &str) -> Thread {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim_start_matches(':').trim()
    };
    let set = |name: &str| u64::from_str_radix(field(name), 16).unwrap();
    Thread {
        name: field("Name").into(),
        effective: set("CapEff"),
        permitted: set("CapPrm"),
        bounding: set("CapBnd"),
        modes: ["NoNewPrivs", "Seccomp"].map(|name| field(name).parse().unwrap()),
    }
}

#[track_caller]
fn assert_confined(daemon: &Daemon<'_>, who_changes_the_network: &[&str]) {
    let threads = threads(daemon);
    for thread in &threads {
        let name = &thread.name;
        assert_eq!(thread.modes, [1, 2], "{name}: NoNewPrivs, Seccomp");
        assert_eq!(
            thread.bounding & TAKE_THE_HOST,
            0,
            "{name}: {:x}",
            thread.bounding
        );
        assert_eq!(
            thread.permitted & TAKE_THE_HOST,
            0,
            "{name}: {:x}",
            thread.permitted
        );
    }
    let workers = threads.iter().filter(|it| it.name.starts_with("worker-"));
    let mut any = false;
    for worker in workers {
        any = true;
        assert_eq!(
            worker.permitted & !SYS_NICE,
            0,
            "{}: {:x}",
            worker.name,
            worker.permitted
        );
    }
    assert!(any, "packets are carried");
    let may = threads.iter().filter(|it| it.effective & NET_ADMIN != 0);
    let may: BTreeSet<&str> = may.map(|it| it.name.as_str()).collect();
    let told = daemon.status().confinement.expect("it is confined");
    assert_eq!(
        may,
        told.network_threads.iter().map(String::as_str).collect()
    );
    assert_eq!(may, who_changes_the_network.iter().copied().collect());
    assert!(
        told.no_new_privs && told.capabilities && told.system_calls,
        "{told:?}"
    );
    let lacking = told.missing.iter().any(|it| it.starts_with("landlock"));
    assert!(told.files != lacking, "{told:?}");
}

#[test]
fn threads_that_carry_packets_have_no_right_and_the_others_few() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());

    assert_confined(&hub, &["registrar", "sennit"]);
    assert_confined(&edge, &["deputy", "sennit"]);
    ping(edge.host, HUB_INNER[0]);

    // A link comes back: its socket and its routes are made by somebody who may.
    edge.host
        .exec(&["ip", "link", "set", "wan-b", "down"])
        .unwrap();
    edge.wait("link b to be down", |status| {
        status.links[1].address.is_none()
    });
    edge.host
        .exec(&["ip", "link", "set", "wan-b", "up"])
        .unwrap();
    edge.wait_until_up();
    assert_confined(&edge, &["deputy", "sennit"]);
}
