//! What a daemon has given up, as the kernel tells it of each thread.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use sennit_lab::Role;

use crate::traffic::ping;
use crate::world::{Daemon, Edge, HUB_INNER, SENNIT, World, wait_for};

/// `CAP_NET_ADMIN` and `CAP_NET_RAW` of linux/capability.h.
const NETWORK: u64 = 1 << 12 | 1 << 13;
/// `CAP_SYS_NICE`.
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

/// The first thread of a process.
fn process(pid: u32) -> Thread {
    thread(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap())
}

/// The process that a daemon has started, if it runs.
pub(crate) fn helper_of(daemon: &Daemon<'_>) -> Option<u32> {
    let parent = format!("\nPPid:\t{}\n", daemon.pid());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|text| text.contains(&parent) && !text.contains("\nState:\tZ"))
    })
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
fn assert_confined(daemon: &Daemon<'_>) {
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
    for thread in &threads {
        assert_eq!(thread.permitted & NETWORK, 0, "{}", thread.name);
        assert_eq!(thread.bounding & NETWORK, 0, "{}", thread.name);
    }
    let helper = process(helper_of(daemon).expect("somebody changes the host"));
    assert_eq!(helper.effective & NETWORK, NETWORK);
    assert_eq!(helper.permitted & TAKE_THE_HOST, 0);
    assert_eq!(helper.modes, [1, 2], "the helper: NoNewPrivs, Seccomp");
    let told = daemon.status().confinement.expect("it is confined");
    assert_eq!(told.network_threads, [""; 0]);
    assert!(
        told.no_new_privs && told.capabilities && told.system_calls,
        "{told:?}"
    );
    let lacking = told.missing.iter().any(|it| it.starts_with("landlock"));
    assert!(told.files != lacking, "{told:?}");
}

#[test]
fn no_thread_of_a_daemon_may_change_the_network_and_its_helper_does_what_it_needs() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());

    assert_confined(&hub);
    assert_confined(&edge);
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
    assert_confined(&edge);
}

#[test]
fn a_daemon_ends_with_its_helper_and_a_helper_with_its_daemon() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, mut edge) = world.start_pair(&Edge::default());
    let send = |pid: u32, signal| {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    };
    let helpers = [&hub, &edge].map(|daemon| helper_of(daemon).unwrap());

    // What a terminal or a service manager sends to both is for the daemon to follow.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        send(helpers[1], signal);
    }
    ping(edge.host, HUB_INNER[0]);

    send(helpers[0], Signal::KILL);
    assert_eq!(hub.wait_for_exit().code(), Some(1));
    hub.wait_for_log(&["the helper has ended"]);

    edge.kill();
    let left = || Path::new(&format!("/proc/{}", helpers[1])).exists();
    wait_for("the helper of a killed edge to end", left, |left| !left);

    // What is left behind is taken over, as ever.
    hub.start_again();
    edge.start_again();
    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
}

/// A `PATH` with this script in place of `nft`.
fn with_nft(world: &World, script: &str) -> String {
    let tools = world.path("tools");
    fs::create_dir(&tools).unwrap();
    let nft = tools.join("nft");
    fs::write(&nft, script).unwrap();
    fs::set_permissions(&nft, Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", tools.display(), env::var("PATH").unwrap())
}

#[test]
fn an_edge_starts_and_ends_where_nft_does_not_work() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let path = with_nft(&world, "#!/bin/sh\necho no nftables here >&2\nexit 1\n");
    let _hub = world.start_hub();
    world.join("van");
    let config = world.write("van.toml", &world.edge_config(&Edge::default()));
    let mut command = world.host(Role::Edge).command(SENNIT);
    command.args(["edge", "--config"]).arg(config);
    command.env("PATH", path);
    let mut edge = world.spawn("van", Role::Edge, command);

    edge.wait_until_up();
    assert_eq!(edge.stop().code(), Some(0));
    edge.wait_for_log(&["no nftables here"]);
}

#[test]
fn a_daemon_ends_and_its_routes_go_although_a_command_of_its_helper_hangs() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hangs = world.path("hangs");
    let script = format!(
        "#!/bin/sh\n[ -e {} ] && exec sleep 1000\nPATH=${{PATH#*:}}\nexec nft \"$@\"\n",
        hangs.display()
    );
    let path = with_nft(&world, &script);
    let host = world.host(Role::Hub);
    let rules = || host.exec(&["ip", "rule"]).unwrap();
    let before = rules();
    world.sennit("hub", &["hub", "init"]);
    let config = world.write("hub.toml", &world.hub_config(""));
    let mut command = host.command(SENNIT);
    command.args(["hub", "--config"]).arg(config);
    command.env("PATH", path);
    let mut hub = world.spawn("hub", Role::Hub, command);
    hub.wait_until_up();
    assert_ne!(rules(), before, "there is something to take away");

    fs::write(&hangs, "").unwrap();

    assert_eq!(hub.stop().code(), Some(1));
    hub.wait_for_log(&["nft", "it does not end"]);
    assert_eq!(rules(), before);
}
