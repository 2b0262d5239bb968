//! Labs on the real kernel: what is built, what can be changed, and that nothing is left.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sennit_lab::{
    Kind, Lab, LabLink, NatFault, Role, Scenario, Site, Spec, remove_leftovers, selfcheck,
};
use sennit_netem::{Bitrate, Config, Direction, Jitter, Loss, Motion, NatConfig, Shape};

/// Namespaces need root; without it a test says so and proves nothing.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: needs root");
    }
    root
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn link(mbit: u64, delay: u64) -> Config {
    Config {
        rate: Some(Bitrate::mbit(mbit)),
        delay: ms(delay),
        ..Config::default()
    }
}

fn two_links() -> Spec {
    let links = vec![
        LabLink::symmetric("a", &link(100, 5)),
        LabLink::symmetric("b", &link(50, 20)),
    ];
    Spec {
        links,
        seed: 1,
        ..Spec::default()
    }
}

fn namespace_exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

/// Whether one ping is answered within a second.
fn reaches(lab: &Lab, from: Role, arguments: &[&str]) -> bool {
    let line = [&["ping", "-n", "-c", "1", "-W", "1"], arguments].concat();
    lab.exec(from, &line).is_ok()
}

#[test]
fn every_kind_of_link_passes_the_self_check() {
    if !root() {
        return;
    }
    let reordering = Jitter {
        spread: ms(2),
        shape: Shape::Uniform,
        reorder: true,
    };
    let ordered = Jitter {
        spread: ms(2),
        shape: Shape::Normal,
        reorder: false,
    };
    let mut asymmetric = LabLink::symmetric("asym", &link(20, 25));
    asymmetric.shape.up = link(5, 15);
    let mut behind_nat = LabLink::symmetric("nat", &link(20, 10));
    behind_nat.nat = Some(NatConfig::default());
    let drive = Arc::new(Motion::Lte.trace(7, 1.0));
    let moving = Config {
        queue: Motion::Lte.queue(),
        ..link(20, 10).moving(drive)
    };
    let links = vec![
        LabLink::symmetric("plain", &link(100, 10)),
        LabLink::symmetric("moving", &moving),
        LabLink::symmetric(
            "loss",
            &Config {
                loss: Loss::Random(0.02),
                ..link(50, 3)
            },
        ),
        LabLink::symmetric(
            "burst",
            &Config {
                loss: Loss::bursts(0.03, 4.0),
                ..link(50, 3)
            },
        ),
        LabLink::symmetric(
            "reorder",
            &Config {
                jitter: reordering,
                ..link(20, 10)
            },
        ),
        LabLink::symmetric(
            "ordered",
            &Config {
                jitter: ordered,
                ..link(20, 10)
            },
        ),
        asymmetric,
        behind_nat,
    ];
    let lab = Lab::new(&Spec {
        links,
        seed: 7,
        ..Spec::default()
    })
    .expect("it can be built");

    let checks = selfcheck::run(&lab).expect("probes can be sent");

    selfcheck::verdict(&checks).expect("all links are as asked");
    assert_eq!(checks.len(), 8 * 2 * 3, "rate, delay and loss each way");
}

#[test]
fn a_link_that_is_not_as_asked_fails_the_self_check() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");
    lab.link("a")
        .and_then(|link| link.set(Direction::Up, |config| config.delay = ms(25)))
        .expect("links can be changed");

    let checks = selfcheck::run(&lab).expect("probes can be sent");

    let error = selfcheck::verdict(&checks)
        .expect_err("5 ms were asked for")
        .to_string();
    assert!(error.contains("a Up Delay: asked 5"), "{error}");
    // A machine that is late makes others fail as well, by less.
    let delays = checks
        .iter()
        .filter(|check| check.property == selfcheck::Property::Delay);
    let off = |check: &&selfcheck::Check| (check.measured - check.asked).abs();
    let furthest = delays.max_by(|one, other| off(one).total_cmp(&off(other)));
    let furthest = furthest.expect("delays are checked");
    assert_eq!(
        (furthest.link.as_str(), furthest.direction),
        ("a", Direction::Up),
        "{error}"
    );
}

#[test]
fn the_hub_is_reached_over_each_link() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");

    for device in ["wan-a", "wan-b"] {
        assert!(
            reaches(&lab, Role::Edge, &["-I", device, "198.19.0.1"]),
            "bound to {device}"
        );
        assert!(
            reaches(&lab, Role::Edge, &["-I", device, "fd19::1"]),
            "IPv6 bound to {device}"
        );
    }
    lab.link("a")
        .and_then(|a| a.set_outage(true))
        .expect("a is emulated");
    assert!(!reaches(
        &lab,
        Role::Edge,
        &["-I", "198.18.1.2", "198.19.0.1"]
    ));
    assert!(
        reaches(&lab, Role::Edge, &["-I", "198.18.2.2", "198.19.0.1"]),
        "it leaves by b"
    );
}

#[test]
fn the_lan_reaches_the_server_through_the_routers() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");

    assert!(reaches(&lab, Role::Lan, &["203.0.113.10"]));
    assert!(reaches(&lab, Role::Lan, &["2001:db8:113::10"]));
}

#[test]
fn the_server_answers_private_addresses_only_if_asked_to() {
    if !root() {
        return;
    }
    for server_routes_all in [false, true] {
        let spec = Spec {
            server_routes_all,
            ..two_links()
        };
        let lab = Lab::new(&spec).expect("it can be built");
        let hub = lab.host(Role::Hub);
        hub.ip("address add 10.200.0.1/32 dev lo\n")
            .expect("an address can be added");

        let answered = reaches(&lab, Role::Hub, &["-I", "10.200.0.1", "203.0.113.10"]);

        assert_eq!(answered, server_routes_all);
    }
}

#[test]
fn an_outage_is_silent_and_a_lost_carrier_is_not() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");
    let a = lab.link("a").expect("it is there");
    let carrier = || {
        let shown = lab
            .exec(Role::Edge, &["ip", "link", "show", "wan-a"])
            .expect("it exists");
        !String::from_utf8_lossy(&shown.stdout).contains("NO-CARRIER")
    };
    let through = || reaches(&lab, Role::Edge, &["-I", "wan-a", "198.19.0.1"]);

    a.set_outage(true).expect("a is emulated");
    assert!(carrier() && !through());
    a.set_outage(false).expect("a is emulated");
    assert!(carrier() && through());
    a.set_carrier(false).expect("a carrier can be taken");
    assert!(!carrier() && !through());
    a.set_carrier(true).expect("a carrier can be given");
    assert!(carrier() && through());
}

#[test]
fn a_firewall_drops_one_direction_and_then_nothing() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");
    let a = lab.link("a").expect("it is there");
    let through = || reaches(&lab, Role::Edge, &["-I", "wan-a", "198.19.0.1"]);
    let heard = || a.counters().expect("a is emulated")[0].offered;

    a.set_drop(Some(Direction::Down)).expect("nft is there");
    let before = heard();
    assert!(!through() && heard() > before, "requests leave");
    a.set_drop(Some(Direction::Up)).expect("nft is there");
    let before = heard();
    assert!(!through() && heard() == before, "requests stay");
    a.set_drop(None).expect("nft is there");
    assert!(through());
}

#[test]
fn a_nat_box_changes_ports_and_forgets() {
    if !root() {
        return;
    }
    let mut spec = two_links();
    spec.links[0].nat = Some(NatConfig::default());
    let lab = Lab::new(&spec).expect("it can be built");
    let link = lab.link("a").expect("it is there");
    let [here, hub] = [link.subnet().edge().v4, link.subnet().hub().v4];
    let open = |role, address| {
        let socket = lab
            .host(role)
            .netns()
            .run(|| UdpSocket::bind((address, 5000)));
        let socket = socket
            .and_then(|socket| socket)
            .expect("the address is ours");
        let patience = socket.set_read_timeout(Some(ms(500)));
        patience.expect("a second is a timeout");
        socket
    };
    let (edge, hub) = (open(Role::Edge, here), (open(Role::Hub, hub), hub));
    let ask = || {
        edge.send_to(b"hello", (hub.1, 5000))
            .expect("there is a route");
        let (_, from) = hub.0.recv_from(&mut [0; 9]).ok()?;
        hub.0.send_to(b"hello", from).expect("there is a way back");
        edge.recv_from(&mut [0; 9]).ok()?;
        Some(from.port())
    };

    let first = ask().expect("the box lets answers in");
    assert_ne!(first, 5000);
    assert_eq!(ask(), Some(first));

    // The box breaks within a moment, in another thread.
    let soon = || 0..20;
    link.break_nat(NatFault::Forget).expect("it has a box");
    let second = soon().filter_map(|_| ask()).find(|&port| port != first);
    assert!(second.is_some(), "there is a new mapping");

    link.break_nat(NatFault::Wedge).expect("it has a box");
    assert!(soon().any(|_| ask().is_none()));
    assert_eq!(ask(), None);
}

#[test]
fn a_narrow_path_loses_what_does_not_fit_and_tells_if_it_should() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");
    let link = lab.link("a").expect("it is there");
    let hub = link.subnet().hub().v4.to_string();
    // 1372 bytes with the headers of ICMP and IP are 1400.
    let ping = |bytes: &str| {
        let line = [
            "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", bytes, &hub,
        ];
        lab.exec(Role::Edge, &line)
            .map_err(|error| error.to_string())
    };
    let narrow = |told| {
        let set = |config: &mut Config| (config.mtu, config.tells_mtu) = (1400, told);
        link.set(Direction::Up, set).expect("links can be changed");
    };

    narrow(false);
    assert!(ping("1372").is_ok());
    let silent = ping("1373").expect_err("it does not fit");
    assert!(!silent.contains("mtu"), "{silent}");

    narrow(true);
    let told = ping("1373").expect_err("it does not fit");
    assert!(
        told.contains("mtu = 1400") || told.contains("mtu=1400"),
        "{told}"
    );
}

#[test]
fn an_address_goes_changes_and_comes_back_with_its_routes() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");
    let b = lab.link("b").expect("it is there");
    let through = |address| reaches(&lab, Role::Edge, &["-I", address, "198.19.0.1"]);

    b.set_address(None).expect("an address can be taken");
    assert!(!through("198.18.2.2"));
    b.set_address(Some(9)).expect("an address can be given");
    assert!(through("198.18.2.9") && !through("198.18.2.2"));
    b.set_up(false).expect("a device can be set down");
    assert!(!through("198.18.2.9"));
    b.set_up(true).expect("a device can be set up");
    assert!(through("198.18.2.2"));
}

#[test]
fn a_veth_link_connects_without_an_emulator() {
    if !root() {
        return;
    }
    let mut veth = LabLink::symmetric("a", &Config::default());
    veth.kind = Kind::Veth;
    let lab = Lab::new(&Spec {
        links: vec![veth],
        ..Spec::default()
    })
    .expect("it can be built");
    let a = lab.link("a").expect("it is there");

    assert!(reaches(&lab, Role::Lan, &["203.0.113.10"]));
    assert!(a.set_outage(true).is_err(), "nothing can be emulated on it");
    a.set_carrier(false).expect("its peer can be set down");
    assert!(!reaches(&lab, Role::Lan, &["203.0.113.10"]));
    a.set_carrier(true).expect("its peer can be set up");
    assert!(reaches(&lab, Role::Lan, &["203.0.113.10"]));
}

/// Links of a rate and nothing else, for so many edges.
fn buckets(edges: usize, mbit: u64) -> Spec {
    let mut link = LabLink::symmetric("a", &Config::default());
    link.kind = Kind::Tbf;
    (link.shape.up.rate, link.shape.down.rate) =
        (Some(Bitrate::mbit(mbit)), Some(Bitrate::mbit(mbit / 2)));
    Spec {
        edges,
        links: vec![link],
        ..Spec::default()
    }
}

#[test]
fn a_token_bucket_passes_the_self_check() {
    if !root() {
        return;
    }
    let mut spec = buckets(1, 40);
    spec.links[0].bucket = Duration::from_millis(32);
    let lab = Lab::new(&spec).expect("it can be built");
    let a = lab.link("a").expect("it is there");

    let checks = selfcheck::run(&lab).expect("probes can be sent");

    selfcheck::verdict(&checks).expect("the link is as asked");
    assert_eq!(checks.len(), 2 * 3, "rate, delay and loss each way");
    assert!(a.set_outage(true).is_err(), "nothing can be emulated on it");
    a.set_carrier(false).expect("its peer can be set down");
    assert!(!reaches(&lab, Role::Lan, &["203.0.113.10"]));
}

#[test]
fn a_token_bucket_that_is_not_as_asked_fails_the_self_check() {
    if !root() {
        return;
    }
    let lab = Lab::new(&buckets(1, 40)).expect("it can be built");
    let slower = "tc qdisc change dev wan-a root tbf rate 30mbit burst 5000 limit 250000";
    lab.exec(Role::Edge, &slower.split(' ').collect::<Vec<_>>())
        .expect("the rate can be changed");

    let checks = selfcheck::run(&lab).expect("probes can be sent");

    let error = selfcheck::verdict(&checks)
        .expect_err("40 Mbit/s were asked for")
        .to_string();
    let up = error.lines().find(|line| line.contains("a Up Rate"));
    assert!(up.is_some_and(|line| line.ends_with("WRONG")), "{error}");
}

#[test]
fn each_of_several_edges_has_a_lan_and_links_of_its_own() {
    if !root() {
        return;
    }
    let lab = Lab::new(&Spec {
        edges: 3,
        ..two_links()
    })
    .expect("it can be built");
    let ping = |site: Site<'_>, role, line: &[&str]| {
        let line = [&["ping", "-n", "-c", "1", "-W", "1"], line].concat();
        site.host(role).exec(&line).is_ok()
    };

    assert_eq!((lab.edges(), lab.links().count()), (3, 6));
    for site in lab.sites() {
        assert!(ping(site, Role::Lan, &["203.0.113.10"]));
        assert!(ping(site, Role::Lan, &["2001:db8:113::10"]));
        for link in site.links() {
            assert!(ping(
                site,
                Role::Edge,
                &["-I", &link.device(), "198.19.0.1"]
            ));
        }
    }
    let names: Vec<_> = lab.links().map(|link| link.name().to_owned()).collect();
    assert_eq!(names, ["a-1", "b-1", "a-2", "b-2", "a-3", "b-3"]);
    lab.link("a-2")
        .and_then(|link| link.set_outage(true))
        .expect("it is emulated");
    let alive = lab
        .sites()
        .map(|site| ping(site, Role::Lan, &["203.0.113.10"]));
    assert_eq!(alive.collect::<Vec<_>>(), [true, false, true]);
    let name = lab
        .sites()
        .map(|site| site.host(Role::Lan).name().to_owned());
    let names: Vec<_> = name.collect();
    drop(lab);
    assert!(!names.iter().any(|name| namespace_exists(name)));
}

#[test]
fn what_a_scenario_sets_up_is_there_at_each_site() {
    if !root() {
        return;
    }
    let scenario = |run: &str| {
        let text = format!(
            "name = \"set up\"\nedges = 2\n[[link]]\nname = \"a\"\nkind = \"veth\"\n\
             [[setup]]\non = \"edge\"\nrun = \"{run}\"\n"
        );
        Scenario::parse(&text).expect("it is valid").build()
    };

    let lab =
        scenario("ip link add eth1 type veth peer name vlan netns $LAN").expect("it is set up");

    for site in lab.sites() {
        for (role, device) in [(Role::Edge, "eth1"), (Role::Lan, "vlan")] {
            let shown = site.host(role).exec(&["ip", "link", "show", device]);
            shown.expect("there is a device");
        }
    }
    let error = scenario("false; true").expect_err("a line fails");
    assert!(error.to_string().contains("false; true"), "{error}");
}

#[test]
fn a_dropped_lab_ends_its_processes_and_leaves_no_namespace() {
    if !root() {
        return;
    }
    let lab = Lab::new(&two_links()).expect("it can be built");
    let names = Role::ALL.map(|role| lab.host(role).name().to_owned());
    let mut command = lab.host(Role::Server).command("sleep");
    let mut sleeper = command.arg("1000").spawn().expect("sleep is everywhere");
    assert!(names.iter().all(|name| namespace_exists(name)));

    drop(lab);

    assert!(!names.iter().any(|name| namespace_exists(name)));
    assert!(
        !sleeper.wait().expect("it was ours").success(),
        "it was killed"
    );
}

#[test]
fn a_panic_leaves_no_namespace() {
    if !root() {
        return;
    }
    let name = std::sync::Mutex::new(String::new());
    let panicked = std::panic::catch_unwind(|| {
        let lab = Lab::new(&two_links()).expect("it can be built");
        lab.host(Role::Hub)
            .name()
            .clone_into(&mut name.lock().expect("nobody else holds it"));
        panic!("as a failing test does");
    });

    assert!(panicked.is_err());
    let name = name.lock().expect("the lock was released");
    assert!(name.starts_with("snt") && !namespace_exists(&name));
}

#[test]
fn a_spec_that_cannot_be_is_refused_before_anything_is_built() {
    let refused = |links: Vec<LabLink>| {
        Lab::new(&Spec {
            links,
            ..Spec::default()
        })
        .expect_err("it cannot be")
        .to_string()
    };
    let named = |name: &str| LabLink::symmetric(name, &Config::default());
    let mut tiny = named("a");
    tiny.mtu = 576;

    assert!(refused(vec![named("Fast!")]).contains("link name"));
    assert!(refused(vec![named("")]).contains("link name"));
    assert!(refused(vec![named("a"), named("a")]).contains("two links"));
    assert!(refused(vec![tiny]).contains("MTU 576"));
    let many = (0..17).map(|number| named(&number.to_string())).collect();
    assert!(refused(many).contains("17 links"));
}

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "only for the test that kills it"]
fn lab_that_waits_to_be_killed() {
    let lab = Lab::new(&two_links()).expect("it can be built");
    println!("{}", lab.host(Role::Edge).name());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_process_leaves_is_removed_by_the_next() {
    if !root() {
        return;
    }
    let own = std::env::current_exe().expect("we are running");
    let mut victim = Command::new(own)
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "lab_that_waits_to_be_killed",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs");
    let name = format!("snt{}-0-edge", victim.id());
    let built = wait_until(|| namespace_exists(&name));
    // The lab is complete, and not only its first namespace there, once it has printed its name.
    let mut output = std::io::BufReader::new(victim.stdout.take().expect("it is piped"));
    let printed = std::iter::from_fn(|| {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line)
            .ok()
            .filter(|read| *read > 0)?;
        Some(line)
    });
    let announced = printed.into_iter().any(|line| line.contains(&name));
    victim.kill().expect("it was ours");
    victim.wait().expect("it was ours");
    assert!(
        built && announced && namespace_exists(&name),
        "nobody has cleaned up yet"
    );

    let removed = remove_leftovers();

    // A lab of another test may have been faster.
    assert!(removed.contains(&name) || !namespace_exists(&name));
    assert!(wait_until(|| !namespace_exists(&name)));
}

fn wait_until(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::sleep(ms(10));
    }
    false
}
