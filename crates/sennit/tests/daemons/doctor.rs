//! `sennit doctor` on setups that are broken in one way each, and on good ones.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use sennit_lab::report::{Figure, note};
use sennit_lab::{Host, LabLink, Role};
use sennit_netem::NatConfig;
use serde_json::Value;

use crate::world::{Edge, SENNIT, World, link, run, traces};

/// What it has found: codes with the link that they are about.
#[track_caller]
fn examine(world: &World, config: &str) -> Vec<(String, Option<String>)> {
    let file = world.write("sick.toml", config);
    let mut command = world.host(Role::Edge).command(SENNIT);
    command.args(["doctor", "--json", "--config"]).arg(file);
    let ended = run(&mut command);
    let document: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr));
    let findings = document["findings"].as_array().unwrap();
    let expected = if findings.is_empty() { 0 } else { 6 };
    assert_eq!(ended.code, Some(expected), "{document:#}");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let found = findings.iter();
    found
        .map(|it| (text(&it["code"]).unwrap(), text(&it["link"])))
        .collect()
}

/// Nothing is wrong.
#[track_caller]
fn assert_well(world: &World, what: &str, config: &str) {
    let found = examine(world, config);
    assert!(found.is_empty(), "{what}: {found:?}");
}

/// The hub runs, the edge has joined, and this is wrong with link `a`.
#[track_caller]
fn assert_found(world: &World, what: &str, code: &str, link: Option<&str>, config: &str) {
    let expected = vec![(code.to_owned(), link.map(str::to_owned))];
    assert_eq!(examine(world, config), expected, "{what}");
}

/// A firewall with one rule, until [`well`].
fn sicken(host: &Host, hook: &str, rule: &str) {
    let chain = format!("type filter hook {hook} priority 0; {rule};");
    host.nft(&format!("table inet sick {{\nchain it {{ {chain} }}\n}}"))
        .unwrap();
}

fn well(host: &Host) {
    host.nft("delete table inet sick").unwrap();
}

#[test]
fn each_broken_setup_is_named_rightly() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let plain = Edge::default();
    let config = world.edge_config(&plain);
    let _hub = world.start_hub();
    let edge = world.host(Role::Edge);

    assert_found(&world, "nobody has joined", "not-joined", None, &config);
    world.join("van");

    let secret = world.edge_config(&Edge {
        more: "[api]\nread_token = \"file:/nonexistent\"\n",
        ..plain
    });
    assert_found(&world, "no secret", "secret-file", None, &secret);

    let missing = world.edge_config(&Edge {
        links: &[("a", "wan-z", ""), ("b", "wan-b", "")],
        ..plain
    });
    assert_found(&world, "no interface", "no-interface", Some("a"), &missing);

    world.link("a").set_carrier(false).unwrap();
    assert_found(&world, "no carrier", "no-carrier", Some("a"), &config);
    world.link("a").set_carrier(true).unwrap();

    world.link("a").set_address(None).unwrap();
    assert_found(&world, "no address", "no-address", Some("a"), &config);
    world.link("a").set_address(Some(2)).unwrap();

    world.link("a").set_outage(true).unwrap();
    assert_found(&world, "a dead link", "no-answer", Some("a"), &config);
    world.link("a").set_outage(false).unwrap();

    let port = world.edge_config(&Edge {
        hub: "198.19.0.1:444",
        links: &[("a", "wan-a", "")],
        ..plain
    });
    assert_found(&world, "a wrong port", "hub-refused", Some("a"), &port);

    let name = world.edge_config(&Edge {
        hub: "hub.invalid:443",
        links: &[("a", "wan-a", "")],
        ..plain
    });
    assert_found(&world, "an unknown name", "no-name", Some("a"), &name);

    sicken(edge, "output", "oifname wan-a udp dport 443 drop");
    assert_found(
        &world,
        "a firewall here",
        "firewall-here",
        Some("a"),
        &config,
    );
    well(edge);

    let hub = world.host(Role::Hub);
    sicken(hub, "input", "udp dport 443 drop");
    let both = examine(&world, &config);
    assert!(
        both.iter().all(|(code, _)| code == "udp-blocked"),
        "{both:?}"
    );
    assert_eq!(both.len(), 2, "UDP is blocked at the hub");
    well(hub);

    edge.ip(
        "tuntap add dev othervpn mode tun\nlink set othervpn up\nroute add 0.0.0.0/1 dev othervpn",
    )
    .unwrap();
    assert_found(&world, "another VPN", "other-vpn", None, &config);
    edge.ip("link del othervpn").unwrap();

    edge.ip("tuntap add dev othervpn mode tun\nlink set othervpn up\n\
         route add default dev othervpn table 100\n\
         rule add not fwmark 0x1 table 100 priority 5000")
        .unwrap();
    assert_found(
        &world,
        "all but its own packets",
        "other-vpn",
        None,
        &config,
    );
    edge.ip("rule del priority 5000\nrule add fwmark 0x1 table 100 priority 5000")
        .unwrap();
    assert_well(&world, "what somebody marks goes elsewhere", &config);
    edge.ip("rule add table 100 priority 32000").unwrap();
    assert_well(&world, "ours comes first", &config);
    edge.ip(
        "link del othervpn\nlink add side0 type veth peer name side1\nlink set side0 up\n\
         link set side1 up\nroute add default dev side0 table 100\n\
         rule add table 100 priority 5001",
    )
    .unwrap();
    assert_found(
        &world,
        "a rule past the tunnel",
        "other-rule",
        None,
        &config,
    );
    edge.ip("rule del priority 5001\nlink del side0").unwrap();

    assert_well(&world, "and now it is well", &config);
    // Each of them: a wrong answer fails the test before this.
    note("doctor", "broken setups", &[(Figure::Named, 10.0)]).unwrap();
}

#[test]
fn a_portal_and_a_small_path_are_told_from_a_dead_one() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let config = world.edge_config(&Edge::default());
    let _hub = world.start_hub();
    world.join("van");
    let hub = world.host(Role::Hub);
    let listener = hub.netns().run(|| TcpListener::bind("198.19.0.1:80"));
    let listener = listener.unwrap().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 302 Found\r\n\r\n");
        }
    });
    sicken(hub, "input", "udp dport 443 drop");
    let found = examine(&world, &config);
    assert!(
        found.iter().all(|(code, _)| code == "captive-portal"),
        "{found:?}"
    );
    assert_eq!(found.len(), 2);
    well(hub);

    // Somewhere on the way, and without a word.
    sicken(hub, "input", "udp dport 443 meta length > 1340 drop");
    let found = examine(&world, &config);
    let small = |link: &str| ("small-mtu".to_owned(), Some(link.to_owned()));
    assert_eq!(found, [small("a"), small("b")]);
}

#[test]
fn what_is_held_back_for_an_edge_that_does_not_run_hides_no_link_and_no_hub() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let config = world.edge_config(&Edge::default());
    let file = world.write("guarded.toml", &config);
    let _hub = world.start_hub();
    world.join("van");
    let host = world.host(Role::Edge);
    let mut guard = host.command(SENNIT);
    let guarded = run(guard.args(["guard", "--config"]).arg(&file));
    assert_eq!(guarded.code, Some(0), "{}", guarded.stderr);
    let before = traces(host);

    assert_well(&world, "behind a guard", &config);

    let token = world.invite("van");
    let mut join = host.command(SENNIT);
    join.args(["join", "--force", &token, "--config"]).arg(file);
    let joined = run(join.arg("--state").arg(world.path("van")));
    assert!(
        joined.stderr.contains("has taken the token"),
        "{}",
        joined.stderr
    );
    assert_eq!(traces(host), before, "the guard stands, and nothing else");
}

#[test]
fn good_setups_cause_no_alarm() {
    let behind_nat = LabLink {
        nat: Some(NatConfig::default()),
        ..link("a", 20, 5)
    };
    let Some(world) = World::new(&[behind_nat, link("b", 10, 15)]) else {
        return;
    };
    let plain = Edge::default();
    let config = world.edge_config(&plain);
    let _hub = world.start_hub();
    world.join("van");
    assert_well(&world, "behind a NAT, before the edge runs", &config);

    let one = world.edge_config(&Edge {
        links: &[("b", "wan-b", "")],
        ..plain
    });
    assert_well(&world, "one link", &one);

    let six = world.edge_config(&Edge {
        hub: "[fd19::1]:443",
        links: &[("b", "wan-b", "")],
        ..plain
    });
    assert_well(&world, "by IPv6", &six);

    let edge = world.start_edge(&plain);
    edge.wait_until_up();
    assert_well(&world, "while the edge runs", &config);

    let host = world.host(Role::Edge);
    host.ip("tuntap add dev othervpn mode tun\nlink set othervpn up\nroute add 10.77.0.0/16 dev othervpn")
        .unwrap();
    assert_well(&world, "beside a VPN that minds its business", &config);

    let split = world.edge_config(&Edge {
        routes: &["10.9.0.0/16"],
        ..plain
    });
    host.ip("route add 0.0.0.0/1 dev othervpn").unwrap();
    assert_well(&world, "beside a VPN that has the rest", &split);
    note("doctor-good", "good setups", &[(Figure::FalseAlarms, 0.0)]).unwrap();
}
