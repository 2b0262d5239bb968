//! A hub that listens at two ports, of which an edge's config names one and then the other.

use std::process::Command;

use sennit::status::{PathState, Status};
use sennit_lab::Role;
use serde_json::Value;

use crate::traffic::{Answers, Pings, ping};
use crate::world::{Daemon, Edge, Ended, HUB_INNER, SENNIT, World, run, tunnel};

const FIRST: &str = "198.19.0.1:443";
const SECOND: &str = "198.19.0.1:8443";
const DEAD: &str = "198.19.0.1:9";

fn start_hub(world: &World) -> Daemon<'_> {
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let config = world.hub_config("");
    let config = config.replace("['0.0.0.0:443',", "['0.0.0.0:443', '0.0.0.0:8443',");
    let hub = world.start("hub", "hub", Role::Hub, &config);
    hub.wait_until_up();
    world.join("van");
    hub
}

/// Has the edge go on with another `hub`.
fn go_to(world: &World, edge: &Daemon<'_>, hub: &str, words: &[&str]) -> Ended {
    let config = world.edge_config(&Edge {
        hub,
        ..Edge::default()
    });
    world.write("van.toml", &config);
    let mut command: Command = edge.host.command(SENNIT);
    command.args(["reload", "--json"]).args(words);
    run(command.arg("--control").arg(world.path("van.sock")))
}

#[track_caller]
fn changed(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(told["changes"][0]["what"], "edge.hub", "{told}");
    assert_eq!(told["needs_restart"].as_array().unwrap().len(), 0, "{told}");
    told
}

/// Whether both paths of the tunnel are up and lead there.
fn is_at(status: &Status, hub: &str) -> bool {
    let paths = tunnel(status, "default").map_or(&[][..], |tunnel| &tunnel.paths);
    let there = paths
        .iter()
        .filter(|path| path.state == PathState::Up && path.remote.to_string() == hub);
    there.count() == 2 && paths.len() == 2
}

#[test]
fn a_hub_has_another_address_and_no_packet_is_lost() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = start_hub(&world);
    let edge = world.start_edge(&Edge::default());
    edge.wait("both paths", |status| is_at(status, FIRST));
    let pings = Pings::start(edge.host, HUB_INNER[0], 600);
    for place in [SECOND, FIRST, SECOND] {
        changed(&go_to(&world, &edge, place, &[]));
        edge.wait(place, |status| is_at(status, place));
    }
    assert_eq!(pings.finish(), Answers::all(600));
    edge.wait_for_log(&["the tunnel runs to another address", SECOND]);
    assert!(!edge.log().contains("tunnel is down"), "{}", edge.log());
    assert!(!hub.log().contains("tunnel is down"), "{}", hub.log());
}

#[test]
fn a_hub_that_is_not_where_the_config_says_is_not_left_and_the_change_is_taken_back() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = start_hub(&world);
    let edge = world.start_edge(&Edge::default());
    edge.wait("both paths", |status| is_at(status, FIRST));

    changed(&go_to(&world, &edge, DEAD, &["--confirm", "8s"]));

    let why = "it runs to an address of the hub that is not in the config any more";
    edge.wait("the reason", |status| {
        let reason = tunnel(status, "default").and_then(|it| it.reason.as_deref());
        reason.is_some_and(|it| it.contains(why) && it.contains("does not answer"))
    });
    for words in [&["status"][..], &["why"]] {
        assert!(edge.tell(words).contains(why), "{words:?}");
    }
    ping(edge.host, HUB_INNER[0]);
    edge.wait("the config of before", |status| {
        tunnel(status, "default").is_some_and(|it| it.reason.is_none())
    });
    ping(edge.host, HUB_INNER[0]);
    assert!(!edge.log().contains("tunnel is down"), "{}", edge.log());
    assert!(is_at(&edge.status(), FIRST));
}

/// The thread that looks names up has none to look up at first.
#[test]
fn a_hub_gets_a_name_and_loses_it() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = start_hub(&world);
    let hosts = world.write("hosts", "198.19.0.1 hub.test\n");
    let config = world.write("van.toml", &world.edge_config(&Edge::default()));
    // `ip netns exec` has given it a mount namespace that ends with it.
    let script = "mount --bind $1 /etc/hosts && exec $2 edge --config $3";
    let mut command = world.host(Role::Edge).command("sh");
    command.args(["-ec", script, "sh"]).arg(&hosts);
    command.arg(SENNIT).arg(config);
    let edge = world.spawn("van", Role::Edge, command);
    edge.wait("both paths", |status| is_at(status, FIRST));

    changed(&go_to(&world, &edge, "hub.test:8443", &[]));
    edge.wait("the name", |status| is_at(status, SECOND));
    changed(&go_to(&world, &edge, FIRST, &[]));
    edge.wait("the address", |status| is_at(status, FIRST));
    assert!(!edge.log().contains("tunnel is down"), "{}", edge.log());
}
