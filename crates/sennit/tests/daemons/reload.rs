//! A hub reads its config anew, while the tunnels of its sites stay.

use std::process::Command;
use std::time::SystemTime;

use rustix::process::Signal;
use sennit_lab::{Host, Role, plan};
use serde_json::Value;

use crate::hostile::Hostile;
use crate::joining::enrol_at;
use crate::proxied::{assert_echoes, echo};
use crate::traffic::{Answers, Pings, ping};
use crate::world::{Daemon, Edge, Ended, HUB_INNER, SENNIT, World, run, wait_for};

const SERVER: &str = "203.0.113.10";

fn reload(world: &World, hub: &Daemon<'_>, words: &[&str]) -> Ended {
    let mut command: Command = hub.host.command(SENNIT);
    command.arg("reload").args(words);
    run(command.arg("--control").arg(world.path("hub.sock")))
}

/// Writes a hub's config with these lines at its end, and has the hub read it.
#[track_caller]
fn change(world: &World, hub: &Daemon<'_>, more: &str) -> Value {
    world.write("hub.toml", &world.hub_config(more));
    let ended = reload(world, hub, &["--json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn can_ping(from: &Host, to: &str) -> bool {
    let line = ["ping", "-n", "-q", "-c", "1", "-W", "1", to];
    from.exec(&line).is_ok()
}

fn wait_until_in_reach(from: &Host) {
    let look = || can_ping(from, SERVER);
    wait_for("the server to be in reach", look, |reached| *reached);
}

fn whats(told: &Value, key: &str) -> Vec<String> {
    let changes = told[key].as_array().unwrap().iter();
    let whats = changes.map(|it| it["what"].as_str().unwrap().to_owned());
    whats.collect()
}

#[test]
fn what_sites_may_reach_changes_and_no_packet_is_lost() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let made = |daemon: &Daemon<'_>| daemon.log().matches("tunnel is up").count();
    let before = made(&hub);
    let pings = Pings::start(edge.host, HUB_INNER[0], 300);
    assert!(can_ping(edge.host, SERVER));

    let told = change(&world, &hub, "reach = ['hub']\nmtu = 1300\n");
    assert_eq!(whats(&told, "changes"), ["hub.reach"]);
    assert_eq!(whats(&told, "needs_restart"), ["hub.mtu"]);
    assert!(!can_ping(edge.host, SERVER), "it is out of reach");

    // With errors nothing changes, and all of them are said.
    let wrong = "reach = ['everywhere']\nsite_limit = 'much'\n";
    world.write("hub.toml", &world.hub_config(wrong));
    let ended = reload(&world, &hub, &[]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    for error in ["everywhere", "much", "nothing was changed"] {
        assert!(ended.stderr.contains(error), "{error}: {}", ended.stderr);
    }
    assert!(!can_ping(edge.host, SERVER), "it is still out of reach");

    // By the signal too.
    world.write("hub.toml", &world.hub_config(""));
    hub.signal(Signal::HUP);
    wait_until_in_reach(edge.host);

    for limit in 1..=30 {
        change(&world, &hub, &format!("site_limit = '{limit}00Mbit'\n"));
    }
    assert_eq!(pings.finish(), Answers::all(300));
    assert_eq!(made(&hub), before, "the tunnels stay");
}

#[test]
fn a_change_that_nobody_confirms_is_taken_back() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    world.write("hub.toml", &world.hub_config("reach = ['hub']\n"));

    let ended = reload(&world, &hub, &["--confirm", "2s"]);

    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    wait_until_in_reach(edge.host);
    ping(edge.host, HUB_INNER[0]);
}

#[test]
fn another_reload_does_not_confirm_the_one_that_waits() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    world.write("hub.toml", &world.hub_config("reach = ['hub']\n"));
    let ended = reload(&world, &hub, &["--confirm", "8s"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    let same = reload(&world, &hub, &["--json"]);
    hub.signal(Signal::HUP);
    world.write("hub.toml", &world.hub_config("reach = ['sites']\n"));
    let other = reload(&world, &hub, &[]);

    assert_eq!(same.code, Some(0), "{}", same.stderr);
    let told: Value = serde_json::from_str(&same.stdout).unwrap();
    assert_eq!(told["notes"][0], "a change waits to be kept");
    let left = told["reverts_in_seconds"].as_f64().unwrap();
    assert!((1.0..=8.0).contains(&left), "{told}");
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    assert!(
        other.stderr.contains("waits to be kept"),
        "{}",
        other.stderr
    );
    wait_until_in_reach(edge.host);
}

#[test]
fn udp_is_proxied_and_no_more_without_a_restart() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    enrol_at(&world, "van", SystemTime::now());
    let address = format!("{}:443", plan::HUB.v4);
    let connect = || Hostile::connect(world.host(Role::Edge), &address, &world.path("van"));
    let target = echo(&world);
    let (_, status, _) = connect().ask_udp(&target);
    assert_ne!(status, 200, "nothing is proxied yet");

    let told = change(&world, &hub, "[connect_udp]\n");
    assert_eq!(whats(&told, "changes"), ["connect_udp"]);
    let mut client = connect();
    let (flow, status, _) = client.ask_udp(&target);
    assert_eq!(status, 200);
    assert_echoes(&mut client, flow, b"before");

    // What is allowed lives on, and what is not any more ends.
    change(&world, &hub, "[connect_udp]\nports = ['1024-65535']\n");
    assert_echoes(&mut client, flow, b"after");
    change(&world, &hub, "[connect_udp]\nports = ['443']\n");
    client.run_until("the end of the flow", |client| !client.ended.is_empty());
    let (_, status, _) = client.ask_udp(&target);
    assert_eq!(status, 403);

    let told = change(&world, &hub, "");
    assert_eq!(whats(&told, "changes"), ["connect_udp"]);
    let (_, status, _) = connect().ask_udp(&target);
    assert_ne!(status, 200);
}
