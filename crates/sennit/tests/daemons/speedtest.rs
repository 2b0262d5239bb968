//! A tunnel and one link of it are measured.

use std::thread;
use std::time::Duration;

use sennit::status::LinkState;
use serde_json::{Value, json};

use crate::editing::http;
use crate::traffic::{Answers, Pings};
use crate::world::{Daemon, Edge, Ended, HUB_INNER, SENNIT, World, link, run};

/// Two links, of which the second has a cap, and a hub that serves tests if `served`.
fn start<'w>(world: &'w World, served: bool) -> (Daemon<'w>, Daemon<'w>) {
    let hub = world.start_hub_with(&format!("speedtest = {served}\n"));
    world.join("van");
    let edge = world.start_edge(&Edge {
        links: &[("a", "wan-a", ""), ("b", "wan-b", "cap = '1GB'")],
        ..Edge::default()
    });
    edge.wait_until_up();
    hub.wait("both paths at the hub", |status| {
        status.tunnels.iter().any(|tunnel| tunnel.paths.len() == 2)
    });
    (hub, edge)
}

fn speedtest(world: &World, edge: &Daemon<'_>, words: &[&str]) -> Ended {
    let mut command = edge.host.command(SENNIT);
    command.arg("speedtest").args(words);
    run(command.arg("--control").arg(world.path("van.sock")))
}

#[track_caller]
fn measured(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(told["schema"], "sennit.speedtest/1");
    told["measured"].clone()
}

/// What a link has carried in both directions.
fn carried(edge: &Daemon<'_>, name: &str) -> u64 {
    let links = edge.status().links;
    let link = links.iter().find(|link| link.name == name).unwrap();
    link.traffic.sent_bytes + link.traffic.received_bytes
}

#[test]
fn a_link_is_measured_while_the_others_rest_and_carry_again_after_it() {
    let Some(world) = World::new(&[link("a", 20, 10), link("b", 20, 10)]) else {
        return;
    };
    let (_hub, edge) = start(&world, true);
    let pings = Pings::start(edge.host, HUB_INNER[0], 500);
    let before = ["a", "b"].map(|name| carried(&edge, name));

    let words = ["--link", "a", "--bytes", "1M", "--json"];
    let ended = speedtest(&world, &edge, &words);

    let found = measured(&ended);
    let after = ["a", "b"].map(|name| carried(&edge, name));
    assert_eq!(found[0]["link"], "a");
    for way in ["down", "up"] {
        assert_eq!(found[0][way]["bytes"], 1_000_000, "{found:#}");
        let rate = found[0][way]["bits_per_second"].as_f64().unwrap();
        assert!((1e5..21e6).contains(&rate), "{found:#}");
    }
    assert!(after[0] - before[0] > 2_000_000, "{before:?} {after:?}");
    assert!(after[1] - before[1] < 200_000, "{before:?} {after:?}");
    assert_eq!(pings.finish(), Answers::all(500), "nothing is lost by it");
    edge.wait("both links to carry", |status| {
        status.links.iter().all(|it| it.state == LinkState::Up)
    });

    // A link with a cap is used only if somebody wants it so.
    let ended = speedtest(&world, &edge, &["--bytes", "1M", "--json"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("b may carry"), "{}", ended.stderr);
    let words = ["--bytes", "1M", "--metered", "--json"];
    let found = measured(&speedtest(&world, &edge, &words));
    assert_eq!(found[0].get("link"), None, "{found:#}");
    assert_eq!(found[0]["down"]["bytes"], 1_000_000, "{found:#}");
}

#[test]
fn there_is_one_test_at_a_time_and_whoever_may_operate_stops_it() {
    let Some(world) = World::new(&[link("a", 8, 4)]) else {
        return;
    };
    let _hub = world.start_hub_with("speedtest = true\n");
    world.join("van");
    let edge = world.start_edge(&Edge {
        links: &[("a", "wan-a", "")],
        ..Edge::default()
    });
    edge.wait_until_up();
    let ask = |method: &str, more: Value| http(&edge, method, "/v1/speedtest", &more);
    let look = || ask("GET", Value::Null).1;

    assert_eq!(look()["state"], "none");
    let (code, told) = ask("POST", json!({ "links": ["b"] }));
    assert_eq!((code, &told["code"]), (404, &json!("no_such_link")));
    let (code, told) = ask("POST", json!({ "milliseconds": 30_000 }));
    assert_eq!((code, &told["state"]), (200, &json!("running")), "{told}");
    let (code, told) = ask("POST", json!({}));
    assert_eq!((code, &told["code"]), (409, &json!("speedtest_runs")));
    let ended = speedtest(&world, &edge, &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("runs already"), "{}", ended.stderr);
    let wait = |what: &str, is_so: &dyn Fn(&Value) -> bool| {
        for _ in 0..400 {
            let told = look();
            if is_so(&told) {
                return told;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{what}: {}", look());
    };
    let told = wait("progress", &|told| {
        told["now"]["bits_per_second"].is_number()
    });
    assert_eq!(told["now"]["way"], "down", "{told}");
    ask("DELETE", Value::Null);
    let told = wait("its end", &|told| told["state"] != "running");
    assert_eq!(
        (&told["state"], &told["interrupted"]),
        (&json!("done"), &json!(true))
    );
    assert!(
        told["measured"][0]["down"]["bytes"].as_u64().unwrap() > 0,
        "{told}"
    );

    // A command that is killed asks no more, and takes its test along.
    let mut command = edge.host.command(SENNIT);
    command.args(["speedtest", "--duration", "30", "--control"]);
    let started = edge
        .host
        .spawn(command.arg(world.path("van.sock")))
        .unwrap();
    wait("the command's test", &|told| told["now"]["way"] == "down");
    drop(started);
    for _ in 0..4 {
        // Whoever looks asks after it too.
        thread::sleep(Duration::from_secs(5));
        if look()["state"] != "running" {
            return;
        }
    }
    panic!("it goes on: {}", look());
}

#[test]
fn a_hub_that_serves_no_tests_is_named_and_so_is_a_link_that_is_not_there() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, edge) = start(&world, false);
    let ended = speedtest(&world, &edge, &["--link", "c"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let ended = speedtest(&world, &edge, &["--metered"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("speedtest = true"),
        "{}",
        ended.stderr
    );
}
