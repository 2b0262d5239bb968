//! What belongs into the tunnel does not leave beside it.

use std::env;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;
use sennit::config::Leak;
use sennit_lab::{Host, Role, plan};

use crate::traffic::ping;
use crate::world::{Daemon, Edge, Ended, HUB_INNER, SENNIT, World, run, traces, wait_for};

/// Somewhere on the internet, in both families.
const FAR: [&str; 2] = ["203.0.113.77", "2001:db8:77::1"];

/// Whether a host has a way to an address: the kernel tells without a packet being sent.
#[track_caller]
fn has_way(host: &Host, to: IpAddr) -> bool {
    let any: IpAddr = if to.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    let connect = || UdpSocket::bind((any, 0))?.connect(SocketAddr::new(to, 9));
    match host.netns().run(connect).unwrap() {
        Ok(()) => true,
        Err(error) => {
            let kinds = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
            assert!(kinds.contains(&error.kind()), "{error}");
            false
        }
    }
}

/// The edge's host has a way to the internet or not, the same in both families.
#[track_caller]
fn is_open(host: &Host) -> bool {
    let [v4, v6] = FAR.map(|far| has_way(host, far.parse().unwrap()));
    assert_eq!(v4, v6, "one family alone is open");
    v4
}

/// What a host behind the edge hears when it pings somewhere on the internet.
fn answer_in_lan(world: &World, to: &str) -> String {
    let mut command = world.host(Role::Lan).command("ping");
    run(command.args(["-n", "-c", "1", "-W", "2", to])).stdout
}

fn cleanup(edge: &Daemon<'_>, more: &[&str]) -> Ended {
    let mut command = edge.host.command(SENNIT);
    run(command.args(["cleanup", "--device", "van"]).args(more))
}

/// What a status says of leaks: the policy, and whether it is in force, and was before the start.
fn leak(edge: &Daemon<'_>) -> (Leak, Option<bool>, bool) {
    let leak = edge.status().leak.expect("it has routes");
    (leak.policy, leak.in_force, leak.held_before_start)
}

/// A world whose hub does not run, and a site that has joined.
fn without_hub() -> Option<World> {
    let world = World::with_two_links()?;
    world.sennit("hub", &["hub", "init"]);
    world.join("van");
    assert!(is_open(world.host(Role::Edge)), "the links lead there");
    Some(world)
}

fn start<'w>(world: &'w World, more: &str) -> Daemon<'w> {
    let edge = world.start_edge(&Edge {
        more,
        ..Edge::default()
    });
    // Its log may have lines of an earlier run.
    edge.wait("an answer", |_| true);
    edge
}

#[test]
fn a_guard_leaves_no_gap_between_the_boot_and_the_edge() {
    let Some(world) = without_hub() else { return };
    let host = world.host(Role::Edge);
    let guard = |more: &str| {
        let edge = Edge {
            more,
            ..Edge::default()
        };
        let config = world.write("van.toml", &world.edge_config(&edge));
        let mut command = host.command(SENNIT);
        run(command.args(["guard", "--config"]).arg(config))
    };
    // As at boot: no link has an address or a route yet.
    for name in ["a", "b"] {
        world.link(name).set_address(None).unwrap();
    }
    let guarded = guard("");
    assert_eq!(guarded.code, Some(0), "{}", guarded.stderr);
    assert!(guarded.stderr.contains("0.0.0.0/0 ::/0"));
    for name in ["a", "b"] {
        world.link(name).set_address(Some(plan::EDGE)).unwrap();
    }
    assert!(!is_open(host), "the links lead there, but the guard stands");
    assert_eq!(guard("").code, Some(0), "twice is as good as once");
    assert!(!is_open(host));

    let mut edge = start(&world, "");
    assert!(!is_open(host));
    assert_eq!(leak(&edge), (Leak::Block, Some(true), true));
    assert_ne!(
        guard("").code,
        Some(0),
        "the edge runs, and sees to it itself"
    );
    let _hub = world.start_hub();
    edge.wait_until_up();
    assert!(is_open(host), "into the tunnel");

    assert!(edge.stop().success());
    assert!(is_open(host), "a stop ends what the guard began");
    assert_eq!(guard("leak = 'allow'").code, Some(0));
    assert!(is_open(host), "and it does nothing where leaks are allowed");
}

#[test]
fn a_guard_stands_also_where_no_edge_starts_because_its_config_has_errors() {
    let Some(world) = without_hub() else { return };
    let host = world.host(Role::Edge);
    let config = world.edge_config(&Edge::default());
    let broken = world.write("van.toml", &config.replace("interface", "interfaec"));

    let mut command = host.command(SENNIT);
    let guarded = run(command.args(["guard", "--config"]).arg(&broken));

    assert_eq!(guarded.code, Some(5), "{}", guarded.stderr);
    assert!(!is_open(host), "{}", guarded.stderr);
    for words in ["until the edge of van is up: 0.0.0.0/0 ::/0", "interfaec"] {
        assert!(guarded.stderr.contains(words), "{}", guarded.stderr);
    }
    let mut command = host.command(SENNIT);
    let cleaned = run(command.args(["cleanup", "--config"]).arg(&broken));
    assert_eq!(cleaned.code, Some(0), "{}", cleaned.stderr);
    assert!(is_open(host));
}

#[test]
fn what_was_unreachable_is_reachable_once_the_program_is_removed() {
    let Some(world) = without_hub() else { return };
    let host = world.host(Role::Edge);
    start(&world, "").kill();
    let guard = world.edge_config(&Edge {
        name: "wan0",
        ..Edge::default()
    });
    let config = world.write("wan0.toml", &guard);
    let mut command = host.command(SENNIT);
    let guarded = run(command.args(["guard", "--config"]).arg(config));
    assert_eq!(guarded.code, Some(0), "{}", guarded.stderr);
    assert!(!is_open(host));

    // Where systemd runs, as far as /run tells.
    let systemctl = world.write("systemctl", "#!/bin/sh\n");
    fs::set_permissions(&systemctl, Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/before-removal");
    let inside = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && \
                  mount -t tmpfs none /etc && echo \"$NAMES\" >/etc/resolv.conf && \
                  \"$SCRIPT\" && cat /etc/resolv.conf";
    // The file of an edge in another network namespace of this host.
    let names = "# Written by sennit for else0; what was here before follows\nnameserver 192.0.2.9";
    let path = env::var("PATH").unwrap();
    let mut command = host.command("unshare");
    command
        .args(["--mount", "sh", "-c", inside])
        .env("SCRIPT", script)
        .env("NAMES", names)
        .env("SENNIT", SENNIT)
        .env("PATH", format!("{}:{path}", world.path("").display()));
    let removed = run(&mut command);

    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert_eq!(removed.stderr.lines().count(), 1, "{}", removed.stderr);
    assert_eq!(removed.stdout.trim_end(), names);
    assert!(is_open(host));
    let mut command = host.command("ip");
    let left = run(command.args(["route", "show", "table", "all", "proto", "83"]));
    assert_eq!(left.stdout, "");
}

#[test]
fn nothing_leaves_before_the_first_tunnel_nor_after_a_crash_until_the_edge_is_stopped() {
    let Some(world) = without_hub() else { return };

    let mut edge = start(&world, "lan = ['192.168.8.0/24', 'fd08::/64']");

    assert!(!is_open(edge.host));
    assert_eq!(leak(&edge), (Leak::Block, Some(true), false), "no guard");
    let unreachable = "what belongs into the tunnel is unreachable meanwhile";
    assert!(edge.tell(&["status"]).contains(unreachable));
    for to in FAR {
        let heard = answer_in_lan(&world, to);
        assert!(heard.to_lowercase().contains("unreachable"), "{heard}");
    }
    edge.wait_for_log(&["unreachable while there is no tunnel", "0.0.0.0/0", "::/0"]);
    // What is near is as near as before.
    let near = [
        plan::Lan::of(0).host().v4.into(),
        plan::Lan::of(0).host().v6.into(),
        world.link("a").subnet().hub().v4.into(),
    ];
    for address in near {
        assert!(has_way(edge.host, address), "{address}");
    }
    let told = edge.status().leak.expect("it has routes");
    assert_eq!(told.routes, ["0.0.0.0/0", "::/0"]);
    for address in near {
        let is_told = told.beside.iter().any(|it| {
            let prefix: ipnet::IpNet = it.prefix.parse().unwrap();
            prefix.contains(&address) && !it.interface.is_empty()
        });
        assert!(is_told, "{address} in {:?}", told.beside);
    }
    assert_eq!(told.beside_count, told.beside.len());

    let _hub = world.start_hub();
    edge.wait_until_up();
    assert!(is_open(edge.host), "into the tunnel");
    ping(edge.host, HUB_INNER[1]);

    edge.kill();
    assert!(!is_open(edge.host), "the crash opens nothing");
    assert_eq!(cleanup(&edge, &["--keep-block"]).code, Some(0));
    assert!(!is_open(edge.host), "and so systemd calls it");
    edge.start_again();
    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);

    assert!(edge.stop().success());
    assert!(
        is_open(edge.host),
        "it was stopped, and leaves by the links"
    );
}

#[test]
fn a_restart_opens_nothing_and_neither_does_a_stop_if_the_config_says_so() {
    let Some(world) = without_hub() else { return };
    let mut edge = start(&world, "");

    edge.signal(Signal::USR1);
    assert!(edge.wait_for_exit().success());
    assert!(!is_open(edge.host), "it is soon started again");
    assert_eq!(cleanup(&edge, &[]).code, Some(0));
    assert!(is_open(edge.host));

    let mut edge = start(&world, "leak_when_stopped = 'block'");
    assert!(edge.stop().success());
    assert!(!is_open(edge.host));
    assert_eq!(cleanup(&edge, &[]).code, Some(0));
    assert!(is_open(edge.host));
}

#[test]
fn a_restart_with_another_device_leaves_nothing_of_the_earlier_one() {
    let Some(world) = without_hub() else { return };
    let host = world.host(Role::Edge);
    let before = traces(host);
    let mut edge = start(&world, "");
    edge.signal(Signal::USR1);
    assert!(edge.wait_for_exit().success());
    let config = world.edge_config(&Edge::default());
    let renamed = config.replace("device = 'van'", "device = 'bus'");
    let file = world.write("van.toml", &renamed);

    edge.start_again();
    edge.wait_for_log(&["nothing is left of the earlier device", "van"]);
    edge.wait("an answer", |status| status.device.as_str() == "bus");
    assert!(!is_open(host));
    let _hub = world.start_hub();
    edge.wait_until_up();
    assert!(is_open(host), "into the tunnel");
    ping(host, HUB_INNER[0]);

    edge.kill();
    world.write("van.toml", &config);
    let mut command = host.command(SENNIT);
    let cleaned = run(command.args(["cleanup", "--config"]).arg(file));
    assert_eq!(cleaned.code, Some(0), "{}", cleaned.stderr);
    assert_eq!(traces(host), before);
}

#[test]
fn a_start_that_fails_with_another_device_blocks_nothing_that_was_open() {
    let Some(world) = without_hub() else { return };
    let host = world.host(Role::Edge);
    let mut edge = start(&world, "");
    assert!(edge.stop().success());
    assert!(is_open(host), "it was stopped");
    let config = world.edge_config(&Edge::default());
    world.write(
        "van.toml",
        &config.replace("device = 'van'", "device = 'bus'"),
    );
    host.exec(&["ip", "link", "add", "bus", "type", "veth"])
        .unwrap();

    edge.start_again();
    assert!(!edge.wait_for_exit().success(), "an interface has its name");
    assert!(is_open(host));
}

/// What `traces` tells, in an order that does not depend on who came first.
fn sorted_traces(host: &Host) -> Vec<String> {
    let mut lines: Vec<String> = traces(host).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn what_another_program_takes_from_the_host_is_put_back_while_the_edge_runs() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());
    let host = edge.host;
    let before = sorted_traces(host);
    let back = |what: &str| wait_for(what, || sorted_traces(host), |now| *now == before);

    // As systemd-networkd does, which leaves those of the kernel.
    for family in ["-4", "-6"] {
        host.exec(&["ip", family, "rule", "flush", "protocol", "83"])
            .unwrap();
    }
    back("the rules");
    host.exec(&["ip", "address", "flush", "dev", "van"])
        .unwrap();
    back("the addresses, and the routes that go with them");

    assert_eq!(leak(&edge).1, Some(true));
    ping(host, HUB_INNER[0]);
    ping(host, HUB_INNER[1]);
    let told = || edge.tell(&["events"]);
    wait_for("an event", told, |events| {
        events.contains("put back on this host, where it was missing")
    });
    let held = edge.status().notes;
    assert!(
        !held.iter().any(|note| note.contains("are missing")),
        "{held:?}"
    );
}

#[test]
fn leaks_may_be_allowed() {
    let Some(world) = without_hub() else { return };

    let edge = start(&world, "leak = 'allow'");

    assert!(is_open(edge.host));
    edge.wait_for_log(&["WARN", "leaves beside the tunnel"]);
    assert_eq!(leak(&edge), (Leak::Allow, Some(false), false));
    assert!(edge.tell(&["status"]).contains("leaves in the clear"));
}

#[test]
fn prefixes_that_are_routed_into_the_tunnel_are_unreachable_without_it() {
    let Some(world) = without_hub() else { return };

    let edge = world.start_edge(&Edge {
        routes: &["203.0.113.0/24", "2001:db8::/32"],
        ..Edge::default()
    });
    edge.wait_for_log(&["edge is ready"]);

    assert!(!is_open(edge.host));
    assert!(
        has_way(edge.host, "198.51.100.1".parse().unwrap()),
        "not for the tunnel"
    );
}

#[test]
fn a_family_that_the_hub_has_not_is_unreachable_and_it_is_said() {
    let Some(world) = without_hub() else { return };
    let v4_only = world.hub_config("").replace(", 'fd5e:1::/64'", "");
    let _hub = world.start("hub", "hub", Role::Hub, &v4_only);

    let edge = start(&world, "");
    edge.wait_until_up();

    assert!(has_way(edge.host, FAR[0].parse().unwrap()));
    assert!(!has_way(edge.host, FAR[1].parse().unwrap()));
    let note =
        "the hub has assigned no IPv6 address: what is routed into the tunnel is unreachable";
    assert_eq!(edge.status().notes, [note]);
    assert!(edge.tell(&["status"]).contains("no IPv6 address"));
    assert_eq!(edge.log().matches(note).count(), 1);
}
