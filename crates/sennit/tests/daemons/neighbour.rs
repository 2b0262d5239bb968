//! What a site or a stranger can do to others, and who hears of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use sennit::status::Status;
use sennit_lab::{Host, Role, plan};
use sennit_masque::capsule::{AssignedAddress, IpAddressRange};
use sennit_masque::{Capsule, IpPrefix, RequestHead};

use crate::hostile::Hostile;
use crate::joining::{depot, enrol_at};
use crate::traffic::{Answers, Pings, ping};
use crate::world::{Daemon, Edge, HUB_INNER, World, wait_for};

const SERVER: &str = "203.0.113.10";
/// A network behind the hub.
const OFFICE: &str = "10.9.0.1";

fn pings(host: &Host, address: &str) -> bool {
    host.exec(&["ping", "-n", "-c", "1", "-W", "1", address])
        .is_ok()
}

/// The device by which a host reaches an address.
fn way(host: &Host, address: &str) -> String {
    let route = host.exec(&["ip", "route", "get", address]).unwrap();
    let route = String::from_utf8_lossy(&route.stdout).into_owned();
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or_default().to_owned()
}

fn refused(edge: &Daemon<'_>) -> BTreeSet<String> {
    let refused = edge.status().refused_lan.into_iter();
    refused.map(|refused| refused.prefix).collect()
}

fn sites(world: &World) -> String {
    let control = world.path("hub.sock").display().to_string();
    world.sennit("hub", &["sites", "--control", &control])
}

/// The lines of an edge's config with which it is a client that is not Sennit.
fn bearer(world: &World, token: &str) -> String {
    let ca = world.write("ca.pem", &world.sennit("hub", &["hub", "ca"]));
    let token = world.write("bearer", token);
    let show = |path: &Path| path.display().to_string();
    format!(
        "proxy_ca = '{}'\nproxy_name = 'hub.example'\nbearer = 'file:{}'",
        show(&ca),
        show(&token)
    )
}

#[test]
fn a_site_gets_what_was_granted_and_hears_of_the_rest() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge {
        more: "lan = ['192.168.8.0/24', '203.0.113.10/32', '198.18.0.0/16']",
        ..Edge::default()
    });
    let both = ["198.18.0.0/16", "203.0.113.10/32"].map(str::to_owned);
    wait_for(
        "the refusals",
        || refused(&van),
        |it| *it == both.clone().into(),
    );
    hub.wait_for_log(&[
        "LAN prefix refused",
        "van",
        "203.0.113.10/32",
        "not granted",
    ]);
    hub.wait_for_log(&[
        "LAN prefix refused",
        "van",
        "198.18.0.0/16",
        "an address of the hub",
    ]);
    van.wait_for_log(&["does not route", "203.0.113.10/32", "not granted"]);
    let at_hub = |status: &Status| {
        let mut refused = status.sites.iter().flat_map(|site| &site.refused_lan);
        refused.any(|it| it.prefix == both[1] && it.reason.contains("not granted"))
    };
    hub.wait("the refusals in the hub's status", at_hub);
    for (daemon, words) in [
        (&hub, "the hub does not route 203.0.113.10/32 to site van: "),
        (&van, "the hub does not route 203.0.113.10/32: "),
    ] {
        wait_for(
            "the event",
            || daemon.tell(&["events"]),
            |events| events.matches(words).count() == 1,
        );
    }
    assert_ne!(way(hub.host, SERVER), "hub");
    ping(hub.host, SERVER);
    ping(hub.host, &plan::LAN.v4.to_string());
    let listed = sites(&world);
    assert!(
        listed.contains("online") && listed.contains("a 198.18.1.2"),
        "{listed}"
    );
    assert!(
        listed.contains("refused 203.0.113.10/32: the hub has not granted"),
        "{listed}"
    );

    world.sennit("hub", &["sites", "allow", "van", "203.0.113.10/32"]);
    wait_for(
        "the grant",
        || way(hub.host, SERVER),
        |device| device == "hub",
    );
    wait_for(
        "the news",
        || refused(&van),
        |it| *it == both[..1].iter().cloned().collect(),
    );
    let never = world.try_sennit("hub", &["sites", "allow", "van", "198.18.0.0/16"]);
    assert_ne!(never.code, Some(0));
    assert!(
        never.stderr.contains("an address of the hub"),
        "{}",
        never.stderr
    );

    world.sennit("hub", &["sites", "deny", "van", "203.0.113.10/32"]);
    wait_for(
        "the denial",
        || way(hub.host, SERVER),
        |device| device != "hub",
    );
}

#[test]
fn a_site_that_is_away_for_a_moment_keeps_its_lan_unless_it_is_revoked() {
    const KEPT_FOR: Duration = Duration::from_secs(10);
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, mut van) = world.start_pair(&Edge {
        more: "lan = ['192.168.8.0/24']",
        ..Edge::default()
    });
    hub.wait_for_log(&["LAN prefixes routed", "van", "count=1"]);
    let leave = |van: &mut Daemon<'_>| {
        let left = Instant::now();
        van.stop();
        hub.wait("no tunnel to be left", |status| status.tunnels.is_empty());
        left
    };

    let left = leave(&mut van);
    van.start_again();
    van.wait_until_up();
    ping(hub.host, &plan::LAN.v4.to_string());
    // A machine that takes longer over it says nothing.
    let is_soon = left.elapsed() < KEPT_FOR;
    assert!(!is_soon || !hub.log().contains("count=0"), "{}", hub.log());

    let left = leave(&mut van);
    let elsewhere = world.path("no.sock").display().to_string();
    world.sennit("hub", &["revoke", "van", "--control", &elsewhere]);
    let is_soon = left.elapsed() < KEPT_FOR / 2;
    let routes = || {
        let routes = hub.host.exec(&["ip", "route", "show", "table", "all"]);
        String::from_utf8_lossy(&routes.unwrap().stdout).into_owned()
    };
    let is_gone = |routes: &String| !routes.contains("192.168.8.0/24");
    wait_for("the LAN to be nobody's", routes, is_gone);
    assert!(!is_soon || left.elapsed() < KEPT_FOR);
}

#[test]
fn no_tunnel_goes_through_another_whatever_is_announced() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    world.join("van");
    world.sennit("hub", &["sites", "allow", "van", "203.0.113.10/32"]);
    let van = world.start_edge(&Edge {
        more: "lan = ['203.0.113.10/32']",
        ..Edge::default()
    });
    van.wait_until_up();
    wait_for(
        "the route",
        || way(hub.host, SERVER),
        |device| device == "hub",
    );

    // This one connects from the address that the hub routes to the van.
    world.join("depot");
    let depot = world.start_edge(&depot());
    depot.wait_until_up();

    ping(depot.host, HUB_INNER[0]);
    assert_eq!(way(hub.host, SERVER), "hub");
}

#[test]
fn a_box_that_was_revoked_is_out_though_its_name_was_invited_again_at_once() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge::default());

    let elsewhere = world.path("no.sock").display().to_string();
    world.sennit("hub", &["revoke", "van", "--control", &elsewhere]);
    world.invite("van");

    van.wait_for_log(&["tunnel is down", "revoked"]);
    hub.wait("no tunnel to be left", |status| status.tunnels.is_empty());
    van.wait_for_log(&["not connected", "revoked"]);
}

#[test]
fn of_two_boxes_with_one_name_the_one_that_joined_last_stays() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge::default());
    let token = world.invite("van");
    world.sennit("depot", &["join", &token]);

    let depot = world.start_edge(&depot());
    depot.wait_until_up();

    van.wait_for_log(&["tunnel is down", "joined anew with another key"]);
    van.wait_for_log(&["not connected", "joined anew with another key"]);
    ping(depot.host, HUB_INNER[0]);
    assert_eq!(hub.log().matches("tunnel is up").count(), 2);
    assert_eq!(hub.status().tunnels.len(), 1);
}

#[test]
fn a_tunnel_ends_when_the_token_that_it_was_granted_to_does() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let token = world.sennit("hub", &["invite", "phone", "--bearer", "--ttl", "6s"]);
    let phone = world.start_edge(&Edge {
        more: &bearer(&world, &token),
        ..Edge::default()
    });
    phone.wait_until_up();

    hub.wait_for_log(&["expelled", "phone", "the token has expired"]);
    hub.wait("no tunnel to be left", |status| status.tunnels.is_empty());
    phone.wait_for_log(&["not connected", "expired"]);
}

#[test]
fn who_has_a_bearer_token_reaches_the_internet_and_what_else_the_hub_says() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let office = world.host(Role::Server);
    office
        .ip(&format!("address add {OFFICE}/32 dev lo\n"))
        .unwrap();
    hub.host
        .ip(&format!("route add {OFFICE}/32 via {SERVER}\n"))
        .unwrap();
    world.join("depot");
    let depot = world.start_edge(&depot());
    depot.wait_until_up();
    let token = world.sennit("hub", &["invite", "phone", "--bearer"]);
    let phone = world.start_edge(&Edge {
        more: &bearer(&world, &token),
        ..Edge::default()
    });
    phone.wait_until_up();
    let inner = depot.status().addresses[0].to_string();

    ping(phone.host, SERVER);
    ping(phone.host, &plan::SERVER.v6.to_string());
    for private in [OFFICE, HUB_INNER[0], HUB_INNER[1], "203.0.113.1", &inner] {
        assert!(!pings(phone.host, private), "{private}");
    }
    let phones = phone.status().addresses[0].to_string();
    ping(depot.host, &phones);
    ping(depot.host, HUB_INNER[0]);

    world.sennit("hub", &["sites", "reach", "phone", "10.9.0.0/16", "sites"]);
    wait_for(
        "the office to be reached",
        || pings(phone.host, OFFICE),
        |it| *it,
    );
    ping(phone.host, &inner);
    assert!(!pings(phone.host, SERVER), "it may go there no longer");
    assert!(!pings(phone.host, HUB_INNER[0]));
}

#[test]
fn a_hub_that_cannot_filter_lets_nobody_in_whom_it_should_confine_however_often_it_asks() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    world.sennit("hub", &["hub", "init", "--name", "hub.example"]);
    let config = world.write("hub.toml", &world.hub_config("nat = false"));
    let mut without_nft = world.host(Role::Hub).command("env");
    without_nft.args(["PATH=/nowhere", env!("CARGO_BIN_EXE_sennit"), "hub"]);
    without_nft.arg("--config").arg(config);
    let hub = world.spawn("hub", Role::Hub, without_nft);
    hub.wait_until_up();
    let token = world.sennit("hub", &["invite", "phone", "--bearer"]);

    let phone = world.start_edge(&Edge {
        more: &bearer(&world, &token),
        ..Edge::default()
    });

    let refusals = || hub.log().matches("cannot keep the site").count();
    wait_for("the second refusal", refusals, |count| *count >= 2);
    assert!(!hub.log().contains("tunnel is up"));
    assert!(hub.status().tunnels.is_empty());
    phone.wait_for_log(&["not connected", "cannot keep the site"]);
}

#[test]
fn a_client_is_kept_to_its_reach_though_another_program_empties_nftables() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let token = world.sennit("hub", &["invite", "phone", "--bearer"]);
    let mut phone = world.start_edge(&Edge {
        more: &bearer(&world, &token),
        ..Edge::default()
    });
    phone.wait_until_up();
    let table = || {
        let listing = hub.host.exec(&["nft", "list", "ruleset"]).unwrap();
        String::from_utf8_lossy(&listing.stdout).into_owned()
    };
    let before = table();
    let is_back = |now: &String| *now == before;
    assert!(before.contains("forward_from"), "{before}");

    // As `systemctl reload nftables` does where its file begins so.
    hub.host.exec(&["nft", "flush", "ruleset"]).unwrap();
    wait_for("the table to be back", table, is_back);
    hub.wait_for_log(&["another program has taken away or changed"]);
    assert!(!pings(phone.host, HUB_INNER[0]));
    ping(phone.host, SERVER);

    phone.stop();
    hub.wait("no tunnel to be left", |status| status.tunnels.is_empty());
    hub.host.exec(&["nft", "flush", "ruleset"]).unwrap();
    phone.start_again();
    phone.wait_until_up();
    assert_eq!(table(), before, "nobody is let in without it");
    assert!(!pings(phone.host, HUB_INNER[0]));
}

#[test]
fn sites_are_kept_to_what_the_config_says_of_all() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with("reach = ['hub', 'internet']");
    world.join("van");
    let van = world.start_edge(&Edge {
        more: "lan = ['192.168.8.0/24']",
        ..Edge::default()
    });
    van.wait_until_up();
    world.join("depot");
    let routes = [depot().routes, &["192.168.8.0/24"]].concat();
    let depot = world.start_edge(&Edge {
        routes: &routes,
        ..depot()
    });
    depot.wait_until_up();
    let inner = depot.status().addresses[0].to_string();

    ping(van.host, HUB_INNER[0]);
    ping(world.host(Role::Lan), SERVER);
    assert!(!pings(van.host, &inner));
    assert!(!pings(world.host(Role::Lan), &inner));

    world.sennit("hub", &["sites", "reach", "van", "everything"]);
    wait_for(
        "its LAN to reach a site",
        || pings(world.host(Role::Lan), &inner),
        |it| *it,
    );
    ping(van.host, &inner);
    let redirects = hub
        .host
        .exec(&["sysctl", "-n", "net.ipv4.conf.hub.send_redirects"]);
    assert_eq!(
        String::from_utf8_lossy(&redirects.unwrap().stdout).trim(),
        "0"
    );
}

/// Bytes as from a die, the same in every run.
fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut byte = || {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..len).map(|_| byte()).collect()
}

fn routes(addresses: impl Iterator<Item = u32>) -> Capsule {
    let range = |address: u32| {
        let address = IpAddr::from(Ipv4Addr::from(address));
        IpAddressRange::new(address, address, 0).unwrap()
    };
    Capsule::RouteAdvertisement(addresses.map(range).collect())
}

/// What a site can send to its hub through one tunnel after the other, all of it.
fn rage(world: &World) {
    let connect = || {
        Hostile::connect(
            world.host(Role::Server),
            "203.0.113.1:443",
            &world.path("mallory"),
        )
    };
    let site = || {
        let mut site = connect();
        site.open_tunnel();
        site
    };
    let mut announcer = site();
    for round in 0..500 {
        // Far apart, so that they cannot be joined to fewer.
        announcer.capsule(&routes((0..200).map(|n| 0x0b00_0000 + round + n * 1024)));
    }
    let forged = AssignedAddress {
        request_id: 0,
        prefix: IpPrefix::host(IpAddr::from([10, 200, 0, 1])),
    };
    announcer.capsule(&Capsule::AddressAssign(vec![forged; 100]));

    let mut sender = site();
    for seed in 0..2000 {
        // The stream of the tunnel, every context there is and some more, then anything.
        let context = u8::try_from(seed % 16).unwrap();
        let len = usize::try_from(seed % 1150).unwrap();
        sender.datagram(&[&[0, context][..], &noise(seed, len)].concat());
        sender.datagram(&noise(seed, len));
        if seed % 20 == 0 {
            sender.turn();
        }
    }

    for seed in 0..20 {
        let mut broken = site();
        // A route advertisement, or a capsule of another type, of so many bytes that mean nothing.
        let kind = [3, 1, 2, 0][seed as usize % 4];
        broken.raw_capsule(&[&[kind, 40][..], &noise(seed, 40)].concat());
        for _ in 0..20 {
            broken.turn();
        }
    }

    let mut joiner = connect();
    let head = RequestHead::new("POST", "hub", "/.well-known/sennit/enroll");
    for seed in 0..300 {
        let token = format!("{{\"token\": \"{:?}\"}}", noise(seed, 16));
        joiner.request(&head, Some(Bytes::from(token)));
    }
    joiner.run_until("all answers", |site| site.answers.len() == 300);
    assert!(
        joiner
            .answers
            .iter()
            .all(|status| (400..500).contains(status))
    );
}

#[test]
fn whatever_a_site_sends_another_loses_no_packet_and_the_journal_stays_short() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, van) = world.start_pair(&Edge::default());
    enrol_at(&world, "mallory", SystemTime::now());
    let told = |daemon: &Daemon<'_>| daemon.log().lines().count();
    let before = told(&van);

    let pings = Pings::start(van.host, HUB_INNER[0], 1000);
    rage(&world);

    assert_eq!(pings.finish(), Answers::all(1000));
    hub.assert_alive();
    let log = van.log();
    // Paths are suspected where this machine has too much to do.
    let has_happened = |line: &&str| !line.contains("path changed");
    let since: Vec<&str> = log.lines().skip(before).filter(has_happened).collect();
    assert!(since.is_empty(), "something has happened to it: {since:#?}");
    assert!(told(&hub) < 200, "{} lines", told(&hub));
    let still = hub.status().tunnels.into_iter();
    assert_eq!(still.filter(|it| it.site.as_str() == "van").count(), 1);
}

#[test]
fn who_breaks_a_rule_and_the_hubs_log_hear_which() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, _van) = world.start_pair(&Edge::default());
    enrol_at(&world, "mallory", SystemTime::now());
    let (host, state) = (world.host(Role::Server), world.path("mallory"));
    let mut site = Hostile::connect(host, "203.0.113.1:443", &state);
    site.open_tunnel();

    // RFC 9484 §4.7.3: a range of addresses must not end before it starts.
    site.raw_capsule(&[3, 10, 4, 9, 9, 9, 9, 1, 1, 1, 1, 0]);

    site.run_until("the end", |site| site.farewell.is_some());
    let farewell = site.farewell.unwrap_or_default();
    assert!(farewell.contains("malformed capsule"), "{farewell}");
    hub.wait_for_log(&["tunnel is down", "mallory", "malformed capsule"]);
    // It was here, however short.
    let leases = world.sennit("hub", &["hub", "leases"]);
    assert!(
        leases.contains("mallory") && !leases.contains("never"),
        "{leases}"
    );
}
