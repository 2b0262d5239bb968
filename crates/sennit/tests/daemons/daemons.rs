//! Daemons that die, are restarted, or start where they cannot work.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sennit::control::{Client, Request};
use sennit::status::{State, Status};
use sennit_lab::{Role, plan, take_files};

use crate::traffic::{Conversation, ping};
use crate::world::{
    Daemon, Edge, Ended, HUB_INNER, PATIENCE, SENNIT, World, run, traces, tunnel, wait_for,
};

/// Everything that an edge can leave on a host.
fn whole_edge() -> Edge<'static> {
    Edge {
        more: "lan = ['192.168.8.0/24', 'fd08::/64']",
        classes: "[[class]]\nname = 'bulk'\ndevice = 'bulk0'\n[[class]]\nname = 'default'\n",
        ..Edge::default()
    }
}

/// Nothing forwards in this host yet, so that a daemon has to change that.
fn stop_forwarding(world: &World, role: Role) {
    let switches = ["net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"];
    world.host(role).sysctl(&switches).unwrap();
}

fn cleanup(daemon: &Daemon<'_>, device: &str) -> Ended {
    run(daemon
        .host
        .command(SENNIT)
        .args(["cleanup", "--device", device]))
}

#[test]
fn stopped_daemons_leave_nothing() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    stop_forwarding(&world, Role::Edge);
    stop_forwarding(&world, Role::Hub);
    let before = [Role::Edge, Role::Hub].map(|role| traces(world.host(role)));
    let (mut hub, mut edge) = world.start_pair(&whole_edge());
    ping(edge.host, HUB_INNER[0]);
    let during = [Role::Edge, Role::Hub].map(|role| traces(world.host(role)));
    assert!(before[0] != during[0] && before[1] != during[1]);

    let ended = [edge.stop(), hub.stop()];

    assert!(
        ended.iter().all(std::process::ExitStatus::success),
        "{ended:?}"
    );
    assert_eq!(traces(edge.host), before[0]);
    assert_eq!(traces(hub.host), before[1]);
    assert!(!world.path("van.sock").exists() && !world.path("hub.sock").exists());
    edge.wait_for_log(&["edge stops"]);
    hub.wait_for_log(&["hub stops"]);
}

#[test]
fn a_service_manager_is_told_how_a_daemon_is() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let path = world.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let told = || {
        let mut text = [0; 256];
        let len = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).trim().to_owned()
    };
    world.sennit("hub", &["hub", "init"]);
    let config = world.write("hub.toml", &world.hub_config(""));
    let mut command = world.host(Role::Hub).command(SENNIT);
    command.args(["hub", "--config"]).arg(config);
    command.env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", "300000");

    let mut hub = world.spawn("hub", Role::Hub, command);

    assert_eq!(told(), "READY=1");
    for _ in 0..3 {
        assert_eq!(told(), "WATCHDOG=1");
    }
    assert!(hub.stop().success());
    let last = std::iter::repeat_with(told).find(|it| it != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
}

#[test]
fn a_hub_without_file_descriptors_leaves_nothing_on_its_host() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    stop_forwarding(&world, Role::Hub);
    let before = traces(world.host(Role::Hub));
    let mut hub = world.start_hub();
    hub.wait("the hub to be up", |status| status.state == State::Up);
    assert_ne!(traces(hub.host), before, "there is something to do");

    // What it had open just then is free again a moment later.
    let answers = || {
        take_files(hub.pid()).unwrap();
        let client = Client::connect(&hub.control, Duration::from_millis(500));
        client.is_ok_and(|mut client| client.request(&Request::Status).is_ok())
    };
    wait_for("it to take no connection", answers, |answers| !answers);

    assert!(hub.stop().success());
    assert_eq!(traces(hub.host), before);
}

#[test]
fn the_hub_is_told_when_an_edge_stops() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, mut edge) = world.start_pair(&Edge::default());

    edge.stop();

    let told = Instant::now();
    hub.wait("the tunnel to be gone", |status| status.tunnels.is_empty());
    // Otherwise it would take the idle timeout of 30 seconds to notice.
    assert!(told.elapsed() < Duration::from_secs(10));
}

#[test]
fn cleanup_removes_what_killed_daemons_left() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    stop_forwarding(&world, Role::Edge);
    stop_forwarding(&world, Role::Hub);
    let before = [Role::Edge, Role::Hub].map(|role| traces(world.host(role)));
    let (mut hub, mut edge) = world.start_pair(&whole_edge());

    let refused = cleanup(&edge, "van");
    assert_eq!(refused.code, Some(1), "it is in use");
    assert!(
        refused.stderr.contains("in use by another process"),
        "{}",
        refused.stderr
    );
    ping(edge.host, HUB_INNER[0]);

    edge.kill();
    hub.kill();
    assert_ne!(traces(edge.host), before[0], "there is something to do");
    assert_ne!(traces(hub.host), before[1], "there is something to do");
    for (daemon, device) in [(&edge, "van"), (&hub, "hub")] {
        let ended = cleanup(daemon, device);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    assert_eq!(traces(edge.host), before[0]);
    assert_eq!(traces(hub.host), before[1]);
}

#[test]
fn a_killed_edge_starts_again_and_nothing_of_before_is_left() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    stop_forwarding(&world, Role::Edge);
    let before = traces(world.host(Role::Edge));
    let (_hub, mut edge) = world.start_pair(&whole_edge());
    edge.kill();
    assert_ne!(traces(edge.host), before);

    edge.start_again();
    edge.wait_until_up();
    for inner in HUB_INNER {
        ping(edge.host, inner);
    }

    assert!(edge.stop().success());
    assert_eq!(traces(edge.host), before);
}

/// The hub goes and comes back while TCP connections are busy: one to the hub, and one whose
/// address it translates.
#[track_caller]
fn assert_survives_restart(end: fn(&mut Daemon<'_>)) {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, edge) = world.start_pair(&Edge::default());
    let Status {
        addresses, tunnels, ..
    } = edge.status();
    assert!(tunnels.iter().all(|tunnel| !tunnel.resumed));
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 19);
    let server = plan::SERVER.v4.to_string();
    let translated = Conversation::start(edge.host, world.host(Role::Server), &server);
    translated.expect_progress(1 << 19);

    end(&mut hub);
    hub.start_again();
    hub.wait_for_log(&["hub is ready"]);

    let ready = Instant::now();
    hub.wait("the tunnel to be back", |status| {
        tunnel(status, "default").is_some_and(|tunnel| tunnel.paths.len() == 2)
    });
    edge.wait_until_up();
    let took = ready.elapsed();
    // It takes at most three seconds on a machine that has nothing else to do.
    assert!(took < Duration::from_secs(8), "{took:?}");
    for conversation in [conversation, translated] {
        conversation.expect_progress(1 << 19);
        conversation.finish();
    }
    assert_eq!(edge.status().addresses, addresses);
}

#[test]
fn edges_are_soon_back_after_a_restart_of_the_hub_and_connections_go_on() {
    assert_survives_restart(|hub| {
        // As its unit tells systemd to, so that addresses are translated meanwhile.
        hub.signal(Signal::USR1);
        assert!(hub.wait_for_exit().success());
    });
}

#[test]
fn edges_are_soon_back_after_a_crash_of_the_hub_and_connections_go_on() {
    assert_survives_restart(|hub| {
        hub.kill();
    });
}

#[test]
fn an_edge_whose_tunnel_was_ended_is_back_with_its_first_packets_and_carries_again() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let early = |status: &Status| tunnel(status, "default").is_some_and(|tunnel| tunnel.early);
    assert!(!early(&edge.status()), "it had no ticket");

    let mut client = Client::connect(&hub.control, PATIENCE).unwrap();
    let site = "van".parse().unwrap();
    client.request(&Request::Disconnect { site }).unwrap();
    edge.wait("the tunnel to be gone", |status| status.state != State::Up);

    edge.wait("0-RTT", early);
    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
    hub.wait("a session that goes on", |status| {
        tunnel(status, "default").is_some_and(|tunnel| tunnel.resumed)
    });
    let told = edge.tell(&["status"]);
    assert!(told.contains("resumed with 0-RTT"), "{told}");
}

/// Another daemon cannot start for this reason, and the first does not notice.
#[track_caller]
fn assert_no_second(world: &World, first: &mut Daemon<'_>, role: &str, config: &str, words: &str) {
    let host = first.host;
    let before = traces(host);
    let config = world.write("second.toml", config);
    let mut command = host.command(SENNIT);

    let ended = run(command.arg(role).arg("--config").arg(config));

    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    assert_eq!(traces(host), before);
    first.assert_alive();
    assert_eq!(first.status().state, State::Up);
}

#[test]
fn what_a_daemon_has_no_second_daemon_gets() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, mut edge) = world.start_pair(&Edge::default());
    let hub_config = world.hub_config("");
    let edge_config = world.edge_config(&Edge::default());
    let other_device = |config: &str| {
        config
            .replace("device = 'hub'", "device = 'other'")
            .replace("device = 'van'", "device = 'other'")
    };
    let other_socket = |config: &str| config.replace(".sock", "-other.sock");

    let device = "in use by another process";
    assert_no_second(
        &world,
        &mut edge,
        "edge",
        &other_socket(&edge_config),
        device,
    );
    assert_no_second(&world, &mut hub, "hub", &other_socket(&hub_config), device);

    let socket = "another daemon is running with the control socket";
    assert_no_second(
        &world,
        &mut edge,
        "edge",
        &other_device(&edge_config),
        socket,
    );
    assert_no_second(&world, &mut hub, "hub", &other_device(&hub_config), socket);

    let both = |config: &str| other_socket(&other_device(config));
    let (second_edge, second_hub) = (both(&edge_config), both(&hub_config));
    let state = "another edge runs with the state in";
    assert_no_second(&world, &mut edge, "edge", &second_edge, state);
    let state = "another hub runs with the state in";
    assert_no_second(&world, &mut hub, "hub", &second_hub, state);

    let state = |path: &Path| format!("state = '{}'", path.display());
    let copied = |config: &str, name: &str| {
        let (from, to) = (world.path(name), world.path(&format!("{name}-2")));
        let copied = Command::new("cp").arg("-r").args([&from, &to]).status();
        assert!(copied.unwrap().success());
        config.replace(&state(&from), &state(&to))
    };
    let records = format!(
        "hub = ['198.19.0.1:443']\nrecords = '{}'",
        world.path("van").display()
    );
    let shared = copied(&second_edge, "van").replace("hub = ['198.19.0.1:443']", &records);
    let books = "another edge keeps its records in";
    assert_no_second(&world, &mut edge, "edge", &shared, books);
    let elsewhere = copied(&second_hub, "hub");
    let port = "0.0.0.0:443 is already in use";
    assert_no_second(&world, &mut hub, "hub", &elsewhere, port);
    ping(edge.host, HUB_INNER[0]);
}

#[test]
fn daemons_survive_a_hang_up_and_say_what_it_does() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, mut edge) = world.start_pair(&Edge::default());
    for daemon in [&mut hub, &mut edge] {
        daemon.signal(Signal::HUP);
        daemon.wait_for_log(&["reload", "changes"]);
        daemon.assert_alive();
    }
    ping(edge.host, HUB_INNER[0]);
}

#[test]
fn an_edge_that_routes_nothing_still_reaches_the_hub() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let before = traces(world.host(Role::Edge));
    let (_hub, mut edge) = world.start_pair(&Edge {
        routes: &[],
        ..Edge::default()
    });

    for inner in HUB_INNER {
        ping(edge.host, inner);
    }

    edge.stop();
    assert_eq!(traces(edge.host), before);
}

#[test]
fn two_edges_may_run_on_one_host() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge {
        routes: &[],
        ..Edge::default()
    });
    world.join("twin");

    let twin = world.start_edge(&Edge {
        name: "twin",
        routes: &[],
        ..Edge::default()
    });

    twin.wait_until_up();
    for edge in [&van, &twin] {
        let own = edge.status().addresses[0].to_string();
        ping(hub.host, &own);
    }
}

#[test]
fn edges_to_two_hubs_share_a_host_and_its_links() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, van) = world.start_pair(&Edge::default());
    world.sennit("head", &["hub", "init", "--name", "head.example"]);
    let config = world.hub_config("").replace("'hub'", "'head'");
    let config = config.replace("10.200.0.0/16", "10.44.0.0/16");
    let config = config
        .replace("fd5e:1::", "fd5e:44::")
        .replace(":443", ":8443");
    let config = config.replace("/hub", "/head");
    let _head = world.start("head", "hub", Role::Hub, &config);
    let token = world.sennit("head", &["invite", "works", "--hub", "198.19.0.1:8443"]);
    world.sennit("works", &["join", &token]);

    let works = world.start_edge(&Edge {
        name: "works",
        hub: "198.19.0.1:8443",
        routes: &["10.44.0.0/16", "fd5e:44::/64"],
        ..Edge::default()
    });

    works.wait_until_up();
    let carried = |edge: &Daemon<'_>| tunnel(&edge.status(), "default").unwrap().sent_bytes;
    for (edge, to) in [(&works, "10.44.0.1"), (&van, &plan::SERVER.v4.to_string())] {
        let before = carried(edge);
        ping(edge.host, to);
        edge.wait("it to be counted", |status| {
            tunnel(status, "default").is_some_and(|it| it.sent_bytes > before)
        });
    }
    van.wait_until_up();
}

#[test]
fn without_the_capability_daemons_say_so_and_change_nothing() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let mut hub = world.start_hub();
    hub.stop();
    world.join("van");
    let configs = [
        ("hub", Role::Hub, world.hub_config("")),
        ("edge", Role::Edge, world.edge_config(&Edge::default())),
    ];
    for (role, on, config) in configs {
        let config = world.write("daemon.toml", &config);
        let before = traces(world.host(on));
        let mut command = world.host(on).command("setpriv");
        command.args([
            "--bounding-set",
            "-net_admin",
            "--inh-caps",
            "-net_admin",
            SENNIT,
        ]);

        let ended = run(command.arg(role).arg("--config").arg(config));

        assert_eq!(ended.code, Some(7), "{}", ended.stderr);
        assert!(ended.stderr.contains("CAP_NET_ADMIN"), "{}", ended.stderr);
        assert_eq!(traces(world.host(on)), before);
    }
}

#[test]
fn a_daemon_whose_device_is_taken_away_ends_and_leaves_only_its_block() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let before = traces(world.host(Role::Edge));
    let (_hub, mut edge) = world.start_pair(&Edge::default());

    edge.host.ip("link delete van\n").unwrap();

    assert_eq!(edge.wait_for_exit().code(), Some(1));
    edge.wait_for_log(&["error", "its TUN device was deleted"]);
    assert!(
        traces(edge.host).contains("unreachable"),
        "it did not stop in an orderly way"
    );
    assert_eq!(cleanup(&edge, "van").code, Some(0));
    assert_eq!(traces(edge.host), before);
}

// ---- state directories that take no more
// ---------------------------------------------------------

/// Starts a daemon that sees its state directory as a file system of its own, of `size`.
fn start_on_tmpfs<'w>(
    world: &'w World,
    name: &str,
    role: &str,
    on: Role,
    size: &str,
) -> Daemon<'w> {
    let state = world.path(name);
    let seed = world.path(&format!("{name}.seed"));
    std::fs::rename(&state, &seed).unwrap();
    std::fs::create_dir(&state).unwrap();
    let config = match role {
        "hub" => world.hub_config(""),
        _ => world.edge_config(&Edge {
            name,
            ..Edge::default()
        }),
    };
    let config = world.write(&format!("{name}.toml"), &config);
    // `ip netns exec` has given it a mount namespace that ends with it.
    let script =
        "mount -t tmpfs -o size=$1,mode=700 none $2 && cp -a $3/. $2/ && exec $4 $5 --config $6";
    let mut command = world.host(on).command("sh");
    command
        .args(["-ec", script, "sh", size])
        .arg(&state)
        .arg(&seed);
    command.arg(SENNIT).arg(role).arg(config);
    world.spawn(name, on, command)
}

/// Runs a shell command as the daemon sees the file system.
fn inside(daemon: &Daemon<'_>, script: &str) -> Ended {
    let mut command = Command::new("nsenter");
    run(command.args([
        "--mount",
        "--target",
        &daemon.pid().to_string(),
        "sh",
        "-c",
        script,
    ]))
}

#[test]
fn a_hub_with_a_full_disk_lets_in_whom_it_knows_and_the_others_later() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    world.sennit("hub", &["hub", "init"]);
    world.join("van");
    let hub = start_on_tmpfs(&world, "hub", "hub", Role::Hub, "1m");
    hub.wait_until_up();
    let filler = world.path("hub/filler").display().to_string();
    inside(&hub, &format!("cat /dev/zero > {filler}"));

    let edge = world.start_edge(&Edge::default());

    hub.wait_for_log(&["refused", "full"]);
    edge.wait_for_log(&["not connected", "the hub cannot answer now"]);
    assert_eq!(inside(&hub, &format!("rm {filler}")).code, Some(0));
    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
}

#[test]
fn an_edge_whose_records_have_no_directory_has_a_tunnel() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge {
        more: "records = '/proc/no-records'",
        ..Edge::default()
    });

    ping(edge.host, HUB_INNER[0]);
    edge.wait_for_log(&[
        "WARN",
        "cannot make the directory of `records`",
        "ReadWritePaths=",
    ]);
}

#[test]
fn a_hub_whose_state_is_read_only_says_so_at_once() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    world.sennit("hub", &["hub", "init"]);
    let before = traces(world.host(Role::Hub));
    let config = world.write("hub.toml", &world.hub_config(""));
    let script = "mount --bind $1 $1 && mount -o remount,ro,bind $1 && exec $2 hub --config $3";
    let mut command = world.host(Role::Hub).command("sh");
    command
        .args(["-ec", script, "sh"])
        .arg(world.path("hub"))
        .arg(SENNIT)
        .arg(config);

    let ended = run(&mut command);

    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let complaint = ended.stderr.to_lowercase();
    assert!(
        complaint.contains("hub.db") && complaint.contains("read"),
        "{complaint}"
    );
    assert_eq!(traces(world.host(Role::Hub)), before);
}

#[test]
fn an_edge_that_cannot_keep_its_certificate_says_so_and_tries_again() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    world.join("van");
    let state = world.path("van").display().to_string();
    for link in world.lab.links() {
        link.set_outage(true).unwrap();
    }
    let edge = start_on_tmpfs(&world, "van", "edge", Role::Edge, "64k");
    edge.wait_for_log(&["edge is ready"]);

    inside(&edge, &format!("mount -o remount,ro {state}"));
    for link in world.lab.links() {
        link.set_outage(false).unwrap();
    }
    edge.wait_for_log(&["cannot keep the certificate", "site.pem", "Read-only"]);
    inside(
        &edge,
        &format!("mount -o remount,rw {state}; cat /dev/zero > {state}/filler"),
    );
    edge.wait_for_log(&["cannot keep the certificate", "site.pem", "No space"]);
    // Room for the journal and the history too, which are written at once.
    inside(
        &edge,
        &format!("rm {state}/filler; mount -o remount,size=4m {state}"),
    );

    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
    let kept = wait_for(
        "the certificate",
        || inside(&edge, &format!("ls {state}")),
        |listed| listed.stdout.contains("site.pem"),
    );
    assert!(!kept.stdout.contains("draft"), "{}", kept.stdout);
}
