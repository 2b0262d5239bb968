//! A hub gets another authority, and nobody visits a site.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use sennit::status::{State, Status};
use sennit_lab::Role;
use serde_json::Value;

use crate::traffic::{Conversation, ping};
use crate::world::{Daemon, Edge, HUB_INNER, SENNIT, World, run, wait_for};

/// The second edge of the host, which carries nothing but what is for the hub.
fn ship(name: &str) -> Edge<'_> {
    Edge {
        name,
        routes: &[],
        ..Edge::default()
    }
}

/// Joins on the edge's host, where the hub gives a certificate at once.
fn enrol(world: &World, site: &str) {
    let token = world.invite(site);
    let mut command = world.host(Role::Edge).command(SENNIT);
    let joined = run(command
        .args(["join", &token, "--state"])
        .arg(world.path(site)));
    assert_eq!(joined.code, Some(0), "{}", joined.stderr);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in ["edge.key", "site.json", "site.pem"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// What the hub says of the rotation, if there is one.
fn told(status: &Status) -> &str {
    let mut notes = status.notes.iter();
    let note = notes.find(|note| note.contains("being rotated"));
    note.map_or("", String::as_str)
}

/// Waits until the journal says this once.
#[track_caller]
fn wait_for_event(hub: &Daemon<'_>, words: &str) {
    let read = || hub.tell(&["events"]);
    let is_told = |events: &String| events.matches(words).count() == 1;
    wait_for("the event", read, is_told);
}

/// Pings until one is answered: an edge that has nothing to send takes half a minute to see that
/// its hub was killed.
#[track_caller]
fn wait_for_answers(edge: &Daemon<'_>) {
    let line = ["ping", "-n", "-q", "-c", "1", "-W", "1", HUB_INNER[0]];
    let answered = || edge.host.exec(&line).is_ok();
    wait_for("the tunnel to be back", answered, |is_so| *is_so);
}

/// Waits until nobody is locked out any more, and drops the former authority.
fn finish(world: &World, hub: &Daemon<'_>) {
    hub.wait("all sites to have moved", |status| {
        told(status).contains("all sites know the present one")
    });
    world.sennit("hub", &["hub", "authority", "finish"]);
    hub.wait_for_log(&["the former authority is dropped"]);
    hub.wait("the rotation to be over", |status| told(status).is_empty());
}

#[test]
fn sites_move_to_another_authority_while_they_carry_traffic_and_when_they_come_back() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let mut hub = world.start_hub();
    enrol(&world, "ship");
    copy(&world.path("ship"), &world.path("thief"));
    world.join("van");
    let mut van = world.start_edge(&Edge::default());
    van.wait_until_up();
    let conversation = Conversation::start(van.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(1 << 18);

    world.sennit("hub", &["hub", "authority", "rotate"]);

    van.wait_for_log(&["certificate renewed", "other_authority=true"]);
    let away = hub.wait("the one that is away to be named", |status| {
        told(status).ends_with("know only the former one: ship (never here)")
    });
    assert_eq!(away.state, State::Up);
    let authority = away.authority.expect("it is a hub");
    assert_eq!((authority.behind, authority.invited), (Some(1), Some(0)));
    conversation.expect_progress(1 << 18);
    assert_eq!(
        van.log().matches("tunnel is up").count(),
        1,
        "it is the same"
    );
    let early = world.try_sennit("hub", &["hub", "authority", "finish"]);
    assert_eq!(early.code, Some(6), "{}", early.stderr);
    assert!(
        early.stderr.contains("former authority: ship\n"),
        "{}",
        early.stderr
    );
    let text = world.sennit("hub", &["hub", "authority", "--json"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["behind"][0]["site"], "ship");
    let sites = world.sennit("hub", &["sites"]);
    assert_eq!(
        sites.matches("only the former authority").count(),
        1,
        "{sites}"
    );

    // As its unit tells systemd to, so that addresses are translated meanwhile.
    hub.signal(Signal::USR1);
    hub.wait_for_exit();
    hub.start_again();
    let mut back = world.start_edge(&ship("ship"));
    back.wait_until_up();
    conversation.expect_progress(1 << 18);
    conversation.finish();
    finish(&world, &hub);

    for daemon in [&mut hub, &mut van, &mut back] {
        daemon.stop();
        daemon.start_again();
    }
    van.wait_until_up();
    back.wait_until_up();
    ping(van.host, HUB_INNER[0]);
    back.stop();
    let thief = world.start_edge(&ship("thief"));
    thief.wait("it to be kept out", |status| {
        let reason = status.reason.as_deref().unwrap_or_default();
        reason.contains("this is another hub") && status.state != State::Up
    });
}

#[test]
fn a_rotation_goes_on_when_hub_and_edge_are_killed_in_its_midst() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, mut edge) = world.start_pair(&Edge::default());

    hub.kill();
    world.sennit("hub", &["hub", "authority", "rotate"]);
    hub.start_again();
    wait_for_answers(&edge);
    wait_for_event(&hub, "the authority is being rotated: sites move to ");
    edge.wait_for_log(&["the hub has another authority"]);
    edge.kill();
    edge.start_again();

    edge.wait_until_up();
    let pem = || fs::read(world.path("van/site.pem")).unwrap();
    let present = fs::read_to_string(world.path("hub/next/ca.pem")).unwrap();
    let moved = |pem: &Vec<u8>| String::from_utf8_lossy(pem).ends_with(&present);
    wait_for("the edge to have moved", pem, moved);
    finish(&world, &hub);
    wait_for_event(&hub, "the former authority is dropped\n");
    hub.kill();
    hub.start_again();
    wait_for_answers(&edge);
    edge.wait_until_up();
    let again = world.try_sennit("hub", &["hub", "authority", "finish"]);
    assert_eq!(again.code, Some(3), "{}", again.stderr);
}
