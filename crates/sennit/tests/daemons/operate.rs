//! What an operator does while traffic passes: links are paused and lost on purpose, and the config
//! is read anew.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use sennit::policy::Policy;
use sennit::status::{Cause, LinkState, PathState, Status};
use sennit_lab::Role;
use serde_json::{Value, json};

use crate::editing::http;
use crate::traffic::{Answers, Conversation, Pings, ping};
use crate::world::{Daemon, Edge, Ended, HUB_INNER, SENNIT, World, path, run, tunnel, wait_for};

/// A command on the edge's host that is told where the edge's socket is.
fn command(world: &World, edge: &Daemon<'_>, words: &[&str]) -> Command {
    let mut command = edge.host.command(SENNIT);
    command.args(words);
    command.arg("--control").arg(world.path("van.sock"));
    command
}

fn sennit(world: &World, edge: &Daemon<'_>, words: &[&str]) -> Ended {
    run(&mut command(world, edge, words))
}

#[track_caller]
fn document(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr))
}

fn link_state(status: &Status, name: &str) -> Option<LinkState> {
    let mut links = status.links.iter();
    links.find(|link| link.name == name).map(|link| link.state)
}

/// Behind the hub.
const SERVER: &str = "203.0.113.10";

// ---- links --------------------------------------------------------------------------------------

#[test]
fn a_drill_says_how_long_nothing_came_through_and_restores_the_link() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());
    // Beside the drill, from before it to after it.
    let beside = Pings::start(edge.host, HUB_INNER[0], 700);

    let words = ["links", "drill", "a", "--yes", "--for", "3", "--json"];
    let ended = sennit(&world, &edge, &words);

    let told = document(&ended);
    assert_eq!(ended.code, Some(0), "{told:#}");
    assert_eq!(told["schema"], "sennit.drill/1");
    assert_eq!(told["survived"], true, "{told:#}");
    let gap = told["gap_seconds"].as_f64().unwrap();
    assert!((0.01..3.0).contains(&gap), "{told:#}");
    let longest = beside.longest_gap();
    println!("drill {gap:.3} s, beside {longest:.3} s");
    // A busy machine delays one of them and not the other.
    assert!((gap - longest).abs() < 0.5, "{longest}: {told:#}");
    edge.wait_for_path("default", "a", PathState::Up);
}

/// What the page asks for. The daemon has no right to send pings, and its helper opens the socket.
#[test]
fn a_drill_of_the_daemon_says_the_gap_and_ends_when_nobody_asks_after_it() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());
    let path = "/v1/links/a/drill";
    let wish = |milliseconds: u32| json!({ "milliseconds": milliseconds });
    assert_eq!(http(&edge, "POST", path, &wish(500)).0, 400);
    assert_eq!(
        http(&edge, "POST", "/v1/links/x/drill", &Value::Null).0,
        404
    );

    let (code, begun) = http(&edge, "POST", path, &wish(3000));
    assert_eq!((code, &begun["state"]), (200, &json!("waiting")), "{begun}");
    let (code, refused) = http(&edge, "POST", "/v1/links/b/drill", &Value::Null);
    assert_eq!((code, &refused["code"]), (409, &json!("drill_runs")));
    let told = wait_for(
        "the end of the drill",
        || http(&edge, "GET", path, &Value::Null).1,
        |told| told["state"] == "done" || told["state"] == "failed",
    );

    let found = &told["result"];
    assert_eq!(found["schema"], "sennit.drill/1", "{told:#}");
    assert_eq!(found["survived"], true, "{told:#}");
    let gap = found["gap_seconds"].as_f64().unwrap();
    assert!((0.01..3.0).contains(&gap), "{told:#}");
    let [sent, answered] = ["sent_pings", "answered_pings"].map(|key| found[key].as_u64().unwrap());
    assert!(answered > 0 && answered <= sent, "{told:#}");

    edge.wait_for_path("default", "a", PathState::Up);
    let (code, begun) = http(&edge, "POST", path, &wish(60_000));
    assert_eq!(code, 200, "{begun}");
    let ended = "the drill of link a is over";
    wait_for(
        "the link to be restored although nobody asks",
        || edge.tell(&["events"]),
        |told| told.matches(ended).count() >= 2,
    );
    let told = wait_for(
        "the last answers",
        || http(&edge, "GET", path, &Value::Null).1,
        |told| told["state"] == "done",
    );
    assert_eq!(told["result"]["interrupted"], true, "{told:#}");
}

#[test]
fn a_drill_that_is_killed_leaves_no_link_lost() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());
    let words = ["links", "drill", "a", "--yes", "--for", "60"];
    let mut drill = edge
        .host
        .spawn(&mut command(&world, &edge, &words))
        .unwrap();
    edge.wait_for_path("default", "a", PathState::Down);

    drill.signal(Signal::KILL);
    drill.child().wait().unwrap();

    edge.wait_for_path("default", "a", PathState::Up);
}

#[test]
fn a_paused_link_carries_nothing_and_a_resumed_one_does_again() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());

    let missing = sennit(&world, &edge, &["links", "pause", "nobody"]);
    assert_eq!(missing.code, Some(3), "{}", missing.stderr);
    let paused = sennit(&world, &edge, &["links", "pause", "a"]);
    assert_eq!(paused.code, Some(0), "{}", paused.stderr);

    let status = edge.status();
    assert_eq!(link_state(&status, "a"), Some(LinkState::Down));
    hub.wait("the hub to know that it is paused", |status| {
        path(status, "default", "a").is_some_and(|path| {
            (path.state, path.cause) == (PathState::Down, Some(Cause::PeerPaused))
        })
    });
    ping(edge.host, HUB_INNER[0]);
    let listed = sennit(&world, &edge, &["links"]);
    assert!(
        listed.stdout.contains("paused by the operator"),
        "{}",
        listed.stdout
    );
    let top = document(&sennit(&world, &edge, &["top", "--once", "--json"]));
    let up: Vec<bool> = (0..2)
        .map(|link| top["links"][link]["up"] == Value::Bool(true))
        .collect();
    assert_eq!(up, [false, true], "{top:#}");
    let picture = sennit(&world, &edge, &["top", "--once"]);
    println!("{}", picture.stdout);
    assert!(picture.stdout.contains("default"), "{}", picture.stdout);

    sennit(&world, &edge, &["links", "resume", "a"]);
    edge.wait_for_path("default", "a", PathState::Up);
    let all = [
        "an operator has paused link a",
        "class default does not use link a: paused by the operator\n",
        "class default moved from link a to b\n",
        "an operator has link a carry again",
    ];
    // What happens while others are being written to the disk is listed after that.
    let read = || sennit(&world, &edge, &["events"]).stdout;
    wait_for("what happened to be listed", read, |events: &String| {
        all.iter().all(|said| events.contains(said))
    });
}

#[test]
fn a_limited_link_says_so_and_is_free_again_when_that_is_lifted() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let wrong = sennit(&world, &edge, &["links", "limit", "a", "up=8"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    let missing = sennit(&world, &edge, &["links", "limit", "nobody", "up=8Mbit"]);
    assert_eq!(missing.code, Some(3), "{}", missing.stderr);

    let age = || tunnel(&edge.status(), "default").unwrap().since_seconds;
    let before = age();
    let beside = Pings::start(edge.host, HUB_INNER[0], 400);
    let words = ["links", "limit", "a", "up=8Mbit", "down=4Mbit", "--json"];
    let limited = document(&sennit(&world, &edge, &words));
    assert_eq!(
        limited["link"]["up_limit_bytes_per_second"], 1e6,
        "{limited:#}"
    );
    let enforced = |rate: f64| {
        move |status: &Status| {
            let shared = path(status, "default", "a").and_then(|path| path.shared.as_ref());
            let given = shared.and_then(|it| it.link_bytes_per_second);
            // A little of a bound is kept back, so that no queue stands in front of it.
            given.is_some_and(|given| (0.9 * rate..=rate).contains(&given))
        }
    };
    edge.wait("the edge to bound what it sends", enforced(1e6));
    hub.wait("the hub to bound what it sends", enforced(5e5));
    let text = sennit(&world, &edge, &["links"]).stdout;
    let said = "a: at most 8.0 Mb/s up and 4.0 Mb/s down, as an operator wants";
    assert!(text.contains(said), "{text}");

    // Another config leaves it alone.
    let base = world.edge_config(&Edge::default());
    reload(&world, &edge, &format!("{base}{CALLS}"));
    assert!(edge.status().links[0].limited_by_operator);

    sennit(&world, &edge, &["links", "limit", "a", "off"]);
    for side in [&edge, &hub] {
        side.wait("nothing to bound it", |status| {
            path(status, "default", "a").is_some_and(|path| path.shared.is_none())
        });
    }
    assert_eq!(beside.finish(), Answers::all(400));
    assert!(age() > before, "it is the tunnel of before");
}

#[test]
fn an_edge_says_why_a_download_is_held_at_the_hub() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge {
        links: &[("a", "wan-a", "down = '4Mbit'")],
        classes: "[[class]]\nname = 'bulk'\nmatch = ['tcp']\nshare = '50%'\n",
        ..Edge::default()
    });
    let download = Conversation::start(edge.host, world.host(Role::Hub), HUB_INNER[0]);
    edge.wait("the hub to say that the download is held", |status| {
        let told = path(status, "bulk", "a").and_then(|path| path.shared_down.as_ref());
        told.is_some_and(|told| told.held && told.sent_bytes_per_second > 0.0)
    });

    let status = edge.status();
    let told = path(&status, "bulk", "a").unwrap();
    let down = told.shared_down.as_ref().unwrap();
    assert_eq!(down.link_cause, "configured");
    let carries = down.link_bytes_per_second.unwrap();
    assert!((450e3..=500e3).contains(&carries), "{down:?}");
    assert!(told.why.contains(" down on a"), "{}", told.why);
    assert!(told.why.contains(", says the hub"), "{}", told.why);
    assert!(tunnel(&status, "bulk").unwrap().queue_down.is_some());
    let text = sennit(&world, &edge, &["status"]).stdout;
    let row = |line: &str| line.starts_with("  a  ") && line.contains("  down  ");
    assert!(text.lines().any(row), "{text}");
    let why = sennit(&world, &edge, &["why", "a"]).stdout;
    let words: Vec<&str> = why.split_whitespace().collect();
    assert!(words.join(" ").contains("says the hub"), "{why}");
    download.finish();
}

// ---- reload -------------------------------------------------------------------------------------

const CALLS: &str = "[[class]]\nname = 'calls'\nmatch = ['udp port 5060']\npolicy = 'redundant'\n";
const BULK: &str = "[[class]]\nname = 'bulk'\nmatch = ['tcp port 873']\n";

#[track_caller]
fn reload(world: &World, edge: &Daemon<'_>, config: &str) -> Value {
    world.write("van.toml", config);
    let ended = sennit(world, edge, &["reload", "--json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    document(&ended)
}

#[test]
fn a_hundred_reloads_cost_a_class_that_did_not_change_nothing() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let plain = Edge::default();
    let (hub, edge) = world.start_pair(&plain);
    let base = world.edge_config(&plain);
    let one_link = world.edge_config(&Edge {
        links: &[("a", "wan-a", "")],
        ..plain
    });
    let tiers = world.edge_config(&Edge {
        links: &[("a", "wan-a", ""), ("b", "wan-b", "tier = 2")],
        ..plain
    });
    let datagrams = format!("{base}{BULK}delivery = 'datagram'\n{CALLS}");
    let configs = [
        format!("{base}{BULK}{CALLS}"),
        datagrams,
        tiers,
        one_link,
        base.clone(),
    ];
    let pings = Pings::start(edge.host, HUB_INNER[0], 1200);
    for turn in 0..100 {
        let told = reload(&world, &edge, &configs[turn % configs.len()]);
        assert!(
            told["needs_restart"].as_array().unwrap().is_empty(),
            "{told:#}"
        );
        thread::sleep(Duration::from_millis(60));
    }

    assert_eq!(pings.finish(), Answers::all(1200));
    edge.wait_until_up();
    hub.wait("all paths at the hub", |status| {
        path(status, "default", "b").is_some_and(|path| path.state == PathState::Up)
    });
}

/// Each change of a class made another tunnel, and what was on its way was lost.
#[test]
fn a_class_keeps_its_tunnel_through_ten_changes_and_loses_no_packet() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, edge) = world.start_pair(&Edge::default());
    let base = world.edge_config(&Edge::default());
    let made = || hub.log().matches("tunnel is up").count();
    let before = made();
    let pings = Pings::start(edge.host, HUB_INNER[0], 500);
    for keys in [
        "policy = 'failover'",
        "delivery = 'reliable'",
        "headers = 'whole'",
        "policy = 'balanced'\ndscp = 'ef'",
        "congestion = 'bbr'",
        "fec = 'rs:10+2'",
        "delivery = 'datagram'",
        "share = '20%'\nlimit = '50Mbit'",
        "copies = 3",
        "policy = 'redundant'",
    ] {
        let class = format!("[[class]]\nname = 'default'\n{keys}\n");
        let told = reload(&world, &edge, &format!("{base}{class}"));
        assert_eq!(told["needs_restart"], serde_json::json!([]), "{told:#}");
        thread::sleep(Duration::from_millis(200));
    }

    hub.wait("the hub to follow", |status| {
        tunnel(status, "default").is_some_and(|it| it.policy == Policy::Redundant)
    });
    assert_eq!(pings.finish(), Answers::all(500));
    assert_eq!(made(), before, "it is the tunnel of before");
}

#[test]
fn classes_and_links_come_and_go_and_what_needs_a_restart_is_named() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let first = Edge {
        links: &[("a", "wan-a", "")],
        ..Edge::default()
    };
    let (hub, edge) = world.start_pair(&first);
    let both = world.edge_config(&Edge::default());

    let told = reload(
        &world,
        &edge,
        &format!("{}{CALLS}", both.replace("[edge]", "[edge]\nmtu = 1300")),
    );
    let whats = |key: &str| -> Vec<String> {
        let changes = told[key].as_array().unwrap().iter();
        changes
            .map(|it| it["what"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(whats("changes"), ["link b", "class calls"]);
    assert_eq!(whats("needs_restart"), ["edge.mtu"]);
    edge.wait_for_path("calls", "b", PathState::Up);
    hub.wait_for_path("calls", "a", PathState::Up);

    // By the signal too.
    world.write("van.toml", &world.edge_config(&first));
    edge.signal(Signal::HUP);
    edge.wait("link b and class calls to be gone", |status| {
        link_state(status, "b").is_none() && tunnel(status, "calls").is_none()
    });
    hub.wait("class calls to be gone", |status| {
        tunnel(status, "calls").is_none()
    });
    ping(edge.host, HUB_INNER[0]);
}

#[test]
fn a_config_with_errors_changes_nothing_and_all_of_them_are_said() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());
    let good = world.edge_config(&Edge::default());
    world.write(
        "van.toml",
        &format!("{good}{CALLS}policy2 = 1\n[[class]]\nname = 'x'\nshare = 'much'\n"),
    );

    let ended = sennit(&world, &edge, &["reload"]);

    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    for error in ["policy2", "much", "nothing was changed"] {
        assert!(ended.stderr.contains(error), "{error}: {}", ended.stderr);
    }
    assert!(tunnel(&edge.status(), "calls").is_none());
}

#[test]
fn a_reload_that_nobody_confirms_is_taken_back() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = world.start_pair(&Edge::default());
    let base = world.edge_config(&Edge::default());
    world.write("van.toml", &format!("{base}{CALLS}"));

    let ended = sennit(&world, &edge, &["reload", "--confirm", "2s"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    edge.wait("class calls", |status| tunnel(status, "calls").is_some());
    edge.wait("class calls to be gone", |status| {
        tunnel(status, "calls").is_none()
    });
    let late = sennit(&world, &edge, &["reload", "--keep"]);
    assert_eq!(late.code, Some(1), "{}", late.stderr);
}

// ---- caps ---------------------------------------------------------------------------------------

#[test]
fn a_link_that_has_used_up_its_cap_is_in_reserve_also_after_a_restart() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let capped = Edge {
        links: &[("a", "wan-a", "cap = '1MB'"), ("b", "wan-b", "cost = 5")],
        ..Edge::default()
    };
    let (hub, mut edge) = world.start_pair(&capped);
    let conversation = Conversation::start(edge.host, hub.host, HUB_INNER[0]);
    conversation.expect_progress(3 << 20);
    conversation.finish();
    let over = |status: &Status| {
        status
            .notes
            .iter()
            .any(|note| note.contains("a has used up its cap"))
    };
    edge.wait("link a to be over its cap", over);
    edge.wait("link b to be preferred", |status| {
        path(status, "default", "a").is_some_and(|path| path.why.contains("its cap is used up"))
    });

    let status = edge.wait("what passes to be told", |status| {
        status.links[0].sent_bytes_per_second.is_some()
    });
    let account = status.links[0].account.as_ref().unwrap();
    assert_eq!(
        (account.cap_bytes, account.demoted),
        (Some(1_000_000), true)
    );
    assert!(
        account.used_bytes > 1_000_000 && account.days_left >= 1,
        "{account:?}"
    );
    assert!(status.links[0].standby && !status.links[1].standby);
    assert_eq!(status.links[1].account.as_ref().map(|it| it.cost), Some(5));
    let text = sennit(&world, &edge, &["status"]).stdout;
    let row = |line: &str| line.starts_with("a  ") && line.contains("  standby  ");
    assert!(text.lines().any(row), "{text}");

    edge.stop();
    edge.start_again();

    edge.wait_until_up();
    edge.wait("link a to be over its cap still", over);
    let told = document(&sennit(&world, &edge, &["usage", "--json"]));
    assert_eq!(told["links"][0]["over"], true, "{told:#}");
    assert!(
        told["links"][0]["received_bytes"].as_u64() > Some(100_000),
        "{told:#}"
    );
    let by_day = sennit(&world, &edge, &["usage", "--by", "day"]);
    assert!(by_day.stdout.lines().count() >= 2, "{}", by_day.stdout);
}

// ---- name servers -------------------------------------------------------------------------------

/// A command on the edge's host for which this file is `/etc/resolv.conf`.
fn with_resolver_file(world: &World, file: &Path, words: &[&str]) -> Command {
    let mut command = world.host(Role::Edge).command("unshare");
    let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script]).arg(file);
    command.arg(SENNIT).args(words);
    command
}

#[test]
fn name_servers_are_those_behind_the_tunnel_and_come_back_after_a_crash() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    const PLAIN: &str = "nameserver 192.0.2.1\n";
    let file = world.write("resolv.conf", PLAIN);
    let _hub = world.start_hub();
    world.join("van");
    let config = world.edge_config(&Edge {
        more: "dns = ['10.200.0.1']",
        ..Edge::default()
    });
    let config = world.write("van.toml", &config).display().to_string();
    let start = with_resolver_file(&world, &file, &["edge", "--config", &config]);

    let mut edge = world.spawn("van", Role::Edge, start);
    edge.wait_until_up();
    let read = || std::fs::read_to_string(&file).unwrap();
    let asked = |text: &String| text.lines().any(|line| line == "nameserver 10.200.0.1");
    wait_for("the name server behind the tunnel", read, asked);
    edge.wait("the note", |status| {
        status
            .notes
            .iter()
            .any(|note| note.contains("looked up at 10.200.0.1"))
    });

    edge.kill();
    assert!(asked(&read()), "nobody was there to put it back");
    let cleaned = run(&mut with_resolver_file(
        &world,
        &file,
        &["cleanup", "--device", "van"],
    ));
    assert_eq!(cleaned.code, Some(0), "{}", cleaned.stderr);
    assert_eq!(read(), PLAIN);

    edge.start_again();
    edge.wait_until_up();
    wait_for("the name server behind the tunnel", read, asked);
    edge.stop();
    assert_eq!(read(), PLAIN);
}

// ---- newcomers ----------------------------------------------------------------------------------

#[test]
fn a_newcomer_needs_no_editor() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    let token = world.invite("van");
    let (state, file) = (world.path("van"), world.path("etc/van.toml"));
    let mut join = world.host(Role::Edge).command(SENNIT);
    join.args([
        "join",
        &token,
        "--link",
        "sat=wan-a",
        "--link",
        "lte=wan-b",
        "--route-all",
    ]);
    join.arg("--state").arg(state).arg("--config").arg(&file);

    let joined = run(&mut join);

    assert_eq!(joined.code, Some(0), "{}", joined.stderr);
    assert!(
        joined.stderr.contains("has taken the token"),
        "{}",
        joined.stderr
    );
    // What keeps edges of one host apart is there. Only what keeps tests apart is put in its place.
    let written = std::fs::read_to_string(file).unwrap();
    let is_own = |line: &&str| line.starts_with("device = ") || line.starts_with("control = ");
    assert_eq!(written.lines().filter(is_own).count(), 2, "{written}");
    let others: Vec<&str> = written.lines().filter(|line| !is_own(line)).collect();
    let own = format!(
        "[edge]\ndevice = 'van'\ncontrol = '{}'",
        world.path("van.sock").display()
    );
    let config = others.join("\n").replace("[edge]", &own);
    let edge = world.start("van", "edge", Role::Edge, &config);
    edge.wait_until_up();
    for link in ["sat", "lte"] {
        edge.wait_for_path("default", link, PathState::Up);
    }
    ping(edge.host, SERVER);
}
