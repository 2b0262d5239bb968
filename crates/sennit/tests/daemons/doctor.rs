//! `sennit doctor` on setups that are broken in one way each, and on good ones.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::{env, fs, thread};

use sennit::status::Status;
use sennit_lab::report::{Figure, note};
use sennit_lab::{Host, LabLink, Role};
use sennit_netem::NatConfig;
use serde_json::Value;

use crate::world::{Edge, Ended, SENNIT, World, link, path, run, traces};

/// How the chapter begins which shows the sessions.
const HEAD: &str = "\
# What the doctor says

<!-- Made by a test: SENNIT_BLESS=1 cargo test --workspace --test daemons -- each_broken_setup -->

`sennit doctor` on hosts that are broken in one way each, word for word. A test breaks them one after the
other, and fails where this chapter has other words. The edge has two links, `a` on `wan-a` and `b` on
`wan-b`; its hub is 198.19.0.1, port 443. What the codes mean is in
[Troubleshooting](troubleshooting.md#ask-the-doctor-first).
";

/// What the doctor says of a config.
fn doctor(world: &World, config: &str, more: &[&str]) -> Ended {
    let file = world.write("sick.toml", config);
    let mut command = world.host(Role::Edge).command(SENNIT);
    command.args(["doctor", "--config"]).arg(file).args(more);
    run(&mut command)
}

/// What it has found: codes with the link that they are about.
#[track_caller]
fn examine(world: &World, config: &str) -> Vec<(String, Option<String>)> {
    let ended = doctor(world, config, &["--json"]);
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

/// What the doctor says of one broken setup after the other.
struct Session<'w> {
    world: &'w World,
    chapter: String,
    named: u32,
    misnamed: Vec<String>,
}

impl<'w> Session<'w> {
    fn new(world: &'w World) -> Self {
        Self {
            world,
            chapter: HEAD.to_owned(),
            named: 0,
            misnamed: Vec::new(),
        }
    }

    /// The doctor looks at a setup in which this is wrong alone: codes with their links.
    fn look(&mut self, setup: &str, wrong: &[(&str, &str)], config: &str) {
        let ended = doctor(self.world, config, &[]);
        let state = self.world.path("van").display().to_string();
        let said = ended.stdout.replace(&state, "/var/lib/sennit");
        let is_finding = |line: &&str| line.starts_with("error[") || line.starts_with("warning[");
        let found: Vec<&str> = said.lines().filter(is_finding).collect();
        let names = |(line, (code, link)): (&&str, &(&str, &str))| {
            line.contains(&format!("[{code}]: {link}"))
        };
        let all = found.len() == wrong.len() && found.iter().zip(wrong).all(names);
        if all && ended.code == Some(6) {
            self.named += 1;
        } else {
            let (code, talk) = (ended.code, &ended.stderr);
            self.misnamed
                .push(format!("{setup}: {wrong:?}, code {code:?}:\n{said}{talk}"));
        }
        self.chapter += &format!("\n## {setup}\n\n```console\nedge# sennit doctor\n{said}```\n");
    }

    /// Every setup was named rightly, and the book has these words.
    fn end(self) {
        let named = f64::from(self.named);
        note("doctor", "broken setups", &[(Figure::Named, named)]).unwrap();
        assert!(self.misnamed.is_empty(), "{}", self.misnamed.join("\n"));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/doctor.md");
        if env::var_os("SENNIT_BLESS").is_some() {
            fs::write(&file, &self.chapter).unwrap();
        }
        let book = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(
            book, self.chapter,
            "the book differs: SENNIT_BLESS=1 cargo test --workspace --test daemons -- each_broken_setup"
        );
    }
}

/// Nothing is wrong.
#[track_caller]
fn assert_well(world: &World, what: &str, config: &str) {
    let found = examine(world, config);
    assert!(found.is_empty(), "{what}: {found:?}");
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
    let mut session = Session::new(&world);

    session.look("The edge has not joined", &[("not-joined", "")], &config);
    world.join("van");
    broken_configs(&mut session);
    broken_links(&mut session, &config);
    firewalls(&mut session, &config);
    other_vpns(&mut session, &config);
    let edge = world.host(Role::Edge);
    edge.ip(
        "link add side0 type veth peer name side1\nlink set side0 up\nlink set side1 up\n\
         route add default dev side0 table 100\nrule add table 100 priority 5001",
    )
    .unwrap();
    let setup = "A routing rule leads past the tunnel";
    session.look(setup, &[("other-rule", "")], &config);
    edge.ip("rule del priority 5001\nlink del side0").unwrap();

    assert_well(&world, "and now it is well", &config);
    session.end();
}

fn broken_configs(session: &mut Session<'_>) {
    let plain = Edge::default();
    for (setup, code, edge) in [
        (
            "A file with a token is missing",
            ("secret-file", ""),
            Edge {
                more: "[api]\nread_token = \"file:/etc/sennit/page-token\"\n",
                ..plain
            },
        ),
        (
            "An interface is not there",
            ("no-interface", "a: "),
            Edge {
                links: &[("a", "wan-z", ""), ("b", "wan-b", "")],
                ..plain
            },
        ),
        (
            "The hub listens at another port",
            ("hub-refused", "a: "),
            Edge {
                hub: "198.19.0.1:444",
                links: &[("a", "wan-a", "")],
                ..plain
            },
        ),
        (
            "Nobody knows the hub's name",
            ("no-name", "a: "),
            Edge {
                hub: "hub.invalid:443",
                links: &[("a", "wan-a", "")],
                ..plain
            },
        ),
    ] {
        let config = session.world.edge_config(&edge);
        session.look(setup, &[code], &config);
    }
}

fn broken_links(session: &mut Session<'_>, config: &str) {
    let link = session.world.link("a");
    link.set_carrier(false).unwrap();
    session.look("The cable is out", &[("no-carrier", "a: ")], config);
    link.set_carrier(true).unwrap();

    link.set_address(None).unwrap();
    session.look(
        "The network gave no address",
        &[("no-address", "a: ")],
        config,
    );
    link.set_address(Some(2)).unwrap();

    link.set_outage(true).unwrap();
    session.look("Nothing passes on a link", &[("no-answer", "a: ")], config);
    link.set_outage(false).unwrap();
}

fn firewalls(session: &mut Session<'_>, config: &str) {
    let edge = session.world.host(Role::Edge);
    sicken(edge, "output", "oifname wan-a udp dport 443 drop");
    let setup = "A firewall of this host forbids it";
    session.look(setup, &[("firewall-here", "a: ")], config);
    well(edge);

    let hub = session.world.host(Role::Hub);
    sicken(hub, "input", "udp dport 443 drop");
    let wrong = [("udp-blocked", "a: "), ("udp-blocked", "b: ")];
    session.look("A firewall at the hub drops UDP", &wrong, config);
    well(hub);
}

fn other_vpns(session: &mut Session<'_>, config: &str) {
    let (world, wrong) = (session.world, [("other-vpn", "")]);
    let edge = world.host(Role::Edge);
    edge.ip(
        "tuntap add dev othervpn mode tun\nlink set othervpn up\nroute add 0.0.0.0/1 dev othervpn",
    )
    .unwrap();
    session.look("Another VPN takes half of all addresses", &wrong, config);
    edge.ip("link del othervpn").unwrap();

    edge.ip("tuntap add dev othervpn mode tun\nlink set othervpn up\n\
         route add default dev othervpn table 100\n\
         rule add not fwmark 0x1 table 100 priority 5000")
        .unwrap();
    session.look("Another VPN takes all but its own packets", &wrong, config);
    edge.ip("rule del priority 5000\nrule add fwmark 0x1 table 100 priority 5000")
        .unwrap();
    assert_well(world, "what somebody marks goes elsewhere", config);
    edge.ip("rule add table 100 priority 32000").unwrap();
    assert_well(world, "ours comes first", config);
    edge.ip("link del othervpn").unwrap();
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

    let found = examine(&world, &config);
    assert_eq!(found, [("not-running".to_owned(), None)]);

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
fn where_the_hub_sees_a_link_shows_which_nat_is_on_the_way() {
    let behind_nat = LabLink {
        nat: Some(NatConfig::default()),
        ..link("a", 20, 5)
    };
    let Some(world) = World::new(&[behind_nat, link("b", 10, 15)]) else {
        return;
    };
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let listens = ["'0.0.0.0:443'", "'0.0.0.0:443', '0.0.0.0:8443'"];
    let hub_config = world.hub_config("").replace(listens[0], listens[1]);
    let hub = world.start("hub", "hub", Role::Hub, &hub_config);
    hub.wait_until_up();
    world.join("van");
    let config = world.edge_config(&Edge::default());
    let at_both_ports = "'198.19.0.1:443', '198.19.0.1:8443'";
    let config = config.replace("'198.19.0.1:443'", at_both_ports);

    let said = doctor(&world, &config, &["--json"]).stdout;

    let document: Value = serde_json::from_str(&said).unwrap();
    let public = |link: usize| document["links"][link]["public"][0].clone();
    let (a, b) = (public(0), public(1));
    let ports = a["seen"].as_array().map(Vec::len);
    assert_eq!(ports, Some(2), "each port of the hub sees another: {a}");
    assert_eq!(
        (&a["translated"], &a["port_kept"]),
        (&true.into(), &false.into())
    );
    assert_eq!(a["mapping"], "address-and-port-dependent");
    assert_eq!(b["translated"], false, "{b}");
    assert_eq!(
        (&b["port_kept"], &b["mapping"]),
        (&Value::Null, &Value::Null)
    );

    let edge = world.start_edge(&Edge::default());
    edge.wait_until_up();
    let status = edge.wait("the hub to tell where it sees each link", |status| {
        status.links.iter().all(|link| !link.public.is_empty())
    });
    let seen = &status.links[0].public[0].seen;
    let from = |status: &Status| {
        let path = path(status, "default", "a").map(|path| path.remote);
        path.is_some_and(|remote| seen.contains(&remote))
    };
    hub.wait("its own word for it", from);
    let told = edge.tell(&["links"]);
    assert!(told.contains("  a: the hub sees 198.18.1.2:"), "{told}");
    assert!(told.contains("(a NAT that changes the port; "), "{told}");
    assert!(
        told.contains("  b: the hub sees 198.18.2.2 (no NAT)\n"),
        "{told}"
    );
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
    let mut alarms = Vec::new();
    let mut look = |what: &str, config: &str| {
        let found = examine(&world, config).into_iter();
        alarms.extend(found.map(|it| format!("{what}: {it:?}")));
    };
    look("behind a NAT, before the edge runs", &config);

    let one = world.edge_config(&Edge {
        links: &[("b", "wan-b", "")],
        ..plain
    });
    look("one link", &one);

    let six = world.edge_config(&Edge {
        hub: "[fd19::1]:443",
        links: &[("b", "wan-b", "")],
        ..plain
    });
    look("by IPv6", &six);

    let edge = world.start_edge(&plain);
    edge.wait_until_up();
    look("while the edge runs", &config);

    let host = world.host(Role::Edge);
    host.ip("tuntap add dev othervpn mode tun\nlink set othervpn up\nroute add 10.77.0.0/16 dev othervpn")
        .unwrap();
    look("beside a VPN that minds its business", &config);

    let split = world.edge_config(&Edge {
        routes: &["10.9.0.0/16"],
        ..plain
    });
    host.ip("route add 0.0.0.0/1 dev othervpn").unwrap();
    look("beside a VPN that has the rest", &split);
    let count = alarms.len() as f64;
    note(
        "doctor-good",
        "good setups",
        &[(Figure::FalseAlarms, count)],
    )
    .unwrap();
    assert!(alarms.is_empty(), "{alarms:?}");
}
