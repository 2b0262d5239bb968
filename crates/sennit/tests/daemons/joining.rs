//! Who is let in, and what the others are told.

use std::fs;
use std::slice;
use std::thread;
use std::time::{Duration, SystemTime};

use sennit::identity::{self, EdgeIdentity, HubIdentity, Invitation};
use sennit::status::State;
use sennit::store::Store;
use sennit_lab::{Role, plan};

use crate::traffic::ping;
use crate::world::{Daemon, Edge, Ended, HUB_INNER, SENNIT, World, run, wait_for};

const DAY: Duration = Duration::from_secs(86_400);

/// An invitation, used in a directory of its own as if the clock stood at `now`.
fn join_at(world: &World, site: &str, now: SystemTime) -> EdgeIdentity {
    let hub = HubIdentity::load(&world.path("hub")).unwrap();
    let mut store = Store::open(&world.path("hub")).unwrap();
    let hubs = [format!("{}:443", plan::HUB.v4).parse().unwrap()];
    let site = site.parse().unwrap();
    let invited = identity::invite(&mut store, &hub.authority, &site, &hubs, DAY, now).unwrap();
    EdgeIdentity::join(&world.path(site.as_str()), &invited, false).unwrap()
}

/// An edge that was invited at `now` and exchanged its token for a certificate then.
pub(crate) fn enrol_at(world: &World, site: &str, now: SystemTime) {
    let mut edge = join_at(world, site, now);
    let hub = HubIdentity::load(&world.path("hub")).unwrap();
    let mut store = Store::open(&world.path("hub")).unwrap();
    let request = edge.enrollment_request().unwrap();
    let authority = hub.authority.with_least_clock(now);
    let exchange = identity::exchange(&mut store, slice::from_ref(&authority), &[], &request, now);
    edge.accept(&exchange.body).unwrap();
}

/// No tunnel, and the status says why in these words.
#[track_caller]
fn assert_kept_out(edge: &Daemon<'_>, words: &str) {
    let status = edge.wait(&format!("a reason with {words:?}"), |status| {
        status
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains(words))
    });
    assert!(
        matches!(status.state, State::Connecting | State::Down),
        "{status:#?}"
    );
    assert_eq!(status.addresses, Vec::<std::net::IpAddr>::new());
    edge.wait_for_log(&[words]);
}

#[test]
fn the_first_connection_exchanges_the_token_for_a_certificate_and_a_tunnel() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    world.join("van");
    assert!(
        !world.path("van/site.pem").exists(),
        "joining works offline"
    );

    let edge = world.start_edge(&Edge::default());
    edge.wait_until_up();

    for inner in HUB_INNER {
        ping(edge.host, inner);
    }
    hub.wait_for_log(&["certificate issued", "van"]);
    edge.wait_for_log(&["certificate received"]);
    let kept = fs::read_to_string(world.path("van/site.json")).unwrap();
    assert!(!kept.contains("secret"), "the token is forgotten: {kept}");
    let sites = world.sennit("hub", &["sites"]);
    assert!(sites.contains("van") && sites.contains("joined"), "{sites}");
}

#[test]
fn a_certificate_is_all_that_a_restarted_edge_needs() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, mut edge) = world.start_pair(&Edge::default());
    edge.stop();

    edge.start_again();

    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
    assert_eq!(hub.log().matches("certificate issued").count(), 1);
}

#[test]
fn a_token_is_good_for_one_key() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let token = world.invite("van");
    world.sennit("van", &["join", &token]);
    world.sennit("thief", &["join", &token]);
    let van = world.start_edge(&Edge::default());
    van.wait_until_up();

    let thief = world.start_edge(&Edge {
        name: "thief",
        routes: &[],
        ..Edge::default()
    });

    assert_kept_out(&thief, "already used, by another key");
    hub.wait_for_log(&["enrolment refused", "token_used"]);
    assert_eq!(van.status().state, State::Up);
    ping(van.host, HUB_INNER[0]);
}

/// Joins on the edge's host, from where the hub is in reach.
fn join_there(world: &World, site: &str, more: &[&str]) -> Ended {
    let token = world.invite("van");
    join_there_with(world, &token, site, more)
}

fn join_there_with(world: &World, token: &str, site: &str, more: &[&str]) -> Ended {
    let mut command = world.host(Role::Edge).command(SENNIT);
    command.args(["join", token]).args(more);
    run(command.arg("--state").arg(world.path(site)))
}

#[test]
fn joining_asks_the_hub_and_gets_the_certificate_at_once() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();

    let joined = join_there(&world, "van", &[]);

    assert_eq!(joined.code, Some(0), "{}", joined.stderr);
    assert!(
        joined.stderr.contains("has taken the token"),
        "{}",
        joined.stderr
    );
    assert!(world.path("van/site.pem").exists());
    hub.wait_for_log(&["certificate issued", "van"]);
    let edge = world.start_edge(&Edge::default());
    edge.wait_until_up();
}

#[test]
fn joining_with_a_token_that_the_hub_does_not_take_fails_and_changes_nothing() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let _hub = world.start_hub();
    let token = world.invite("van");
    assert_eq!(join_there_with(&world, &token, "van", &[]).code, Some(0));
    let before = fs::read_to_string(world.path("van/site.json")).unwrap();

    let used = join_there_with(&world, &token, "thief", &[]);

    assert_eq!(used.code, Some(1), "{}", used.stderr);
    assert!(used.stderr.contains("already used"), "{}", used.stderr);
    assert!(!world.path("thief/site.json").exists());
    assert_eq!(
        fs::read_to_string(world.path("van/site.json")).unwrap(),
        before
    );
    assert!(!world.path("thief/joining").exists());
}

/// Whatever a newcomer mistypes, and wherever it stops: the token lets this box in in the end.
#[test]
fn a_token_is_not_lost_to_a_mistake_or_to_what_fails_after_the_hub_has_taken_it() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let token = world.invite("van");
    let join = |more: &[&str]| join_there_with(&world, &token, "van", more);

    for (mistake, code, words) in [
        (["--link", "sat=wan-x"], 3, "no interface `wan-x`"),
        (["--link", "a b=wan-a"], 5, "a b"),
        (["--config", "/proc/none/van.toml"], 3, "cannot write"),
    ] {
        let refused = join(&mistake);
        assert_eq!(refused.code, Some(code), "{mistake:?} {}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
        assert!(!world.path("van/site.json").exists());
    }
    assert!(!hub.log().contains("certificate issued"));

    let absent = join(&["--link", "sat=wan-x", "--absent"]);
    assert_eq!(absent.code, Some(0), "{}", absent.stderr);
    fs::remove_file(world.path("van/edge.toml")).unwrap();
    // What came of a first attempt that was killed once the hub had answered.
    fs::create_dir(world.path("van/joining")).unwrap();
    for file in ["edge.key", "site.json", "site.pem"] {
        let there = world.path(&format!("van/joining/{file}"));
        fs::rename(world.path(&format!("van/{file}")), there).unwrap();
    }
    for more in [&["--link", "sat=wan-a"][..], &["--force"]] {
        let again = join(more);
        assert_eq!(again.code, Some(0), "{}", again.stderr);
    }

    let config = fs::read_to_string(world.path("van/edge.toml")).unwrap();
    assert!(config.contains("wan-a"), "{config}");
    assert!(!world.path("van/joining").exists());
    let edge = world.start_edge(&Edge::default());
    edge.wait_until_up();
    assert_eq!(hub.log().matches("certificate issued").count(), 1);
}

#[test]
fn an_expired_token_is_refused() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    join_at(&world, "van", SystemTime::now() - 2 * DAY);

    let edge = world.start_edge(&Edge::default());

    assert_kept_out(&edge, "the token has expired");
    hub.wait_for_log(&["enrolment refused", "token_expired"]);
}

#[test]
fn a_token_that_the_hub_has_not_issued_is_refused() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let mut forged: Invitation = world.invite("van").parse().unwrap();
    forged.secret = identity::Secret::random();
    world.sennit("van", &["join", &forged.to_string()]);

    let edge = world.start_edge(&Edge::default());

    assert_kept_out(&edge, "has not issued the token");
    hub.wait_for_log(&["enrolment refused", "unknown_token"]);
}

#[test]
fn a_token_for_another_hub_leads_to_no_conversation_with_this_one() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    world.sennit("elsewhere", &["hub", "init"]);
    let address = format!("{}:443", plan::HUB.v4);
    let token = world.sennit("elsewhere", &["invite", "van", "--hub", &address]);
    world.sennit("van", &["join", &token]);

    let edge = world.start_edge(&Edge::default());

    assert_kept_out(&edge, "certificate");
    assert!(
        !hub.log().contains("enrolment"),
        "the secret was not shown to a stranger"
    );
}

#[test]
fn an_edge_keeps_away_from_a_hub_that_has_another_key() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, edge) = world.start_pair(&Edge::default());
    hub.stop();
    fs::rename(world.path("hub"), world.path("hub-before")).unwrap();

    let _impostor = world.start_hub();

    edge.wait_for_log(&["not connected", "certificate"]);
    let status = edge.wait("the tunnel to be gone", |status| status.state != State::Up);
    let reason = status.reason.unwrap_or_default();
    assert!(
        reason.contains("certificate") || reason.contains("hub"),
        "{reason}"
    );
    assert!(!edge.log().contains("panicked"));
}

#[test]
fn a_site_that_the_hub_does_not_know_is_refused() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, edge) = world.start_pair(&Edge::default());
    hub.stop();
    for file in fs::read_dir(world.path("hub")).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with(Store::FILE) {
            fs::remove_file(file.path()).unwrap();
        }
    }
    Store::create(&world.path("hub")).unwrap();

    hub.start_again();

    edge.wait_for_log(&["not connected", "knows no site with this certificate"]);
    hub.wait_for_log(&["peer refused", "unknown_site"]);
}

#[test]
fn a_revoked_site_loses_its_tunnel_at_once_and_stays_out() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge::default());
    world.join("depot");
    let depot = world.start_edge(&depot());
    depot.wait_until_up();

    let control = world.path("hub.sock").display().to_string();
    world.sennit("hub", &["revoke", "van", "--control", &control]);

    van.wait_for_log(&["tunnel is down", "revoked"]);
    van.wait_for_log(&["not connected", "site `van` is revoked"]);
    let sites = |status: &sennit::status::Status| -> Vec<String> {
        status
            .tunnels
            .iter()
            .map(|tunnel| tunnel.site.to_string())
            .collect()
    };
    assert_eq!(sites(&hub.status()), ["depot"], "everybody else lives");
    ping(depot.host, HUB_INNER[0]);
}

/// Everything that its host sends belongs into the tunnel, of which there is none.
#[test]
fn an_edge_that_was_revoked_joins_again_while_it_runs() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, mut van) = world.start_pair(&Edge::default());
    let control = world.path("hub.sock").display().to_string();
    world.sennit("hub", &["revoke", "van", "--control", &control]);
    van.wait_for_log(&["not connected", "site `van` is revoked"]);
    let config = world.path("van.toml").display().to_string();
    let join = |site: &str| {
        let token = world.invite(site);
        join_there_with(&world, &token, "van", &["--force", "--config", &config])
    };

    // Each site has addresses of its own.
    let mut before = Vec::new();
    for site in ["van", "truck"] {
        let joined = join(site);

        assert_eq!(joined.code, Some(0), "{}", joined.stderr);
        let takes_it = joined.stderr.contains("has taken the token");
        assert!(
            takes_it && joined.stderr.contains("goes on"),
            "{}",
            joined.stderr
        );
        let sites = |status: &sennit::status::Status| -> Vec<String> {
            let up = |it: &&sennit::status::TunnelStatus| it.state == State::Up;
            let tunnels = status.tunnels.iter().filter(up);
            tunnels.map(|tunnel| tunnel.site.to_string()).collect()
        };
        let new = van.wait("the tunnel of the new site", |status| {
            sites(status) == [site] && !status.addresses.is_empty() && status.addresses != before
        });
        before = new.addresses;
        ping(van.host, HUB_INNER[0]);
    }
    van.assert_alive();
}

#[test]
fn a_hub_notices_by_itself_that_a_site_was_revoked() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge::default());

    let elsewhere = world.path("no.sock").display().to_string();
    world.sennit("hub", &["revoke", "van", "--control", &elsewhere]);

    van.wait_for_log(&["tunnel is down", "revoked"]);
    hub.wait("no tunnel to be left", |status| status.tunnels.is_empty());
}

#[test]
fn an_expired_certificate_is_refused() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    enrol_at(&world, "van", SystemTime::now() - 3_000 * DAY);

    let edge = world.start_edge(&Edge::default());

    wait_for(
        "the reason",
        || edge.log().to_lowercase(),
        |log| log.contains("not connected") && log.contains("expired"),
    );
    assert_eq!(hub.status().tunnels, []);
}

#[test]
fn a_certificate_is_renewed_beside_the_tunnel_and_the_next_one_shows_it() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let mut hub = world.start_hub();
    // A certificate is good for a year.
    let expires = SystemTime::now() + Duration::from_secs(25);
    enrol_at(&world, "van", expires - 365 * DAY);

    let edge = world.start_edge(&Edge::default());
    edge.wait_until_up();
    edge.wait_for_log(&["certificate renewed"]);
    let left = edge.status().certificate.map(|it| it.left_seconds);
    assert!(left > Some(300.0 * 86_400.0), "{left:?}");

    hub.wait_for_log(&["certificate issued", "van"]);
    let kept = EdgeIdentity::load(&world.path("van")).unwrap();
    assert!(!kept.is_renewal_due(SystemTime::now()));
    let rest = expires.duration_since(SystemTime::now());
    thread::sleep(rest.unwrap_or_default() + Duration::from_secs(1));
    ping(edge.host, HUB_INNER[0]);
    assert_eq!(edge.log().matches("tunnel is up").count(), 1);

    // What was good before is good no more.
    hub.kill();
    hub.start_again();
    hub.wait("the tunnel of the edge", |status| {
        !status.tunnels.is_empty()
    });
    edge.wait_until_up();
    ping(edge.host, HUB_INNER[0]);
}

/// An operator may be connected through the tunnel.
#[test]
fn who_joins_without_an_answer_cuts_no_tunnel() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, van) = world.start_pair(&Edge::default());
    let token = world.invite("truck");
    let config = world.path("van.toml").display().to_string();

    let more = ["--force", "--offline", "--config", &config];
    let joined = join_there_with(&world, &token, "van", &more);

    assert_eq!(joined.code, Some(0), "{}", joined.stderr);
    assert!(
        joined.stderr.contains("its tunnel is up"),
        "{}",
        joined.stderr
    );
    assert_eq!(van.log().matches("tunnel is up").count(), 1);
    assert_eq!(van.status().tunnels[0].site.as_str(), "van");
    ping(van.host, HUB_INNER[0]);
}

/// The hub may only be away: what works is not given up for a token that may be of no use.
#[test]
fn a_token_that_no_hub_has_taken_replaces_no_identity_that_works() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (mut hub, mut van) = world.start_pair(&Edge::default());
    let token = world.invite("truck");
    hub.stop();
    let config = world.path("van.toml").display().to_string();

    let asked = join_there_with(&world, &token, "van", &["--force", "--config", &config]);

    assert_eq!(asked.code, Some(4), "{}", asked.stderr);
    assert!(
        asked.stderr.contains("this edge stays `van`"),
        "{}",
        asked.stderr
    );
    let kept = EdgeIdentity::load(&world.path("van")).unwrap();
    assert!(kept.is_enrolled() && kept.site.as_str() == "van");
    hub.start_again();
    van.wait_until_up();
    van.assert_alive();
    let again = join_there_with(&world, &token, "van", &["--force", "--config", &config]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

/// All that can be wrong here is looked at before the hub hears the token, which retires the key
/// that the edge has.
#[test]
fn joining_beside_a_config_that_is_of_no_use_asks_no_hub() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, van) = world.start_pair(&Edge::default());
    let token = world.invite("van");
    let broken = world.write("broken.toml", "[[link").display().to_string();
    let of_van = world.path("van.toml").display().to_string();

    for (state, config, code, words) in [
        ("van", &broken, 5, "broken.toml"),
        ("elsewhere", &of_van, 2, "has its identity in"),
    ] {
        let refused = join_there_with(&world, &token, state, &["--force", "--config", config]);
        assert_eq!(refused.code, Some(code), "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }

    assert!(!world.path("elsewhere").exists(), "nothing is left");
    assert_eq!(hub.log().matches("certificate issued").count(), 1);
    assert_eq!(van.status().state, State::Up);
}

/// The links of the first config are asked over, as the host's way is into the tunnel.
#[test]
fn an_edge_that_runs_by_another_config_hides_no_hub() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (_hub, van) = world.start_pair(&Edge::default());
    let control = world.path("hub.sock").display().to_string();
    world.sennit("hub", &["revoke", "van", "--control", &control]);
    van.wait_for_log(&["not connected", "site `van` is revoked"]);
    let token = world.invite("van");
    let config = world.path("other.toml").display().to_string();

    let more = ["--force", "--config", &config, "--link", "a=wan-a"];
    let joined = join_there_with(&world, &token, "van", &more);

    assert_eq!(joined.code, Some(0), "{}", joined.stderr);
    assert!(
        joined.stderr.contains("has taken the token"),
        "{}",
        joined.stderr
    );
    assert!(
        joined
            .stderr
            .contains("An edge runs here with the identity of before"),
        "{}",
        joined.stderr
    );
    drop(van);
}

#[test]
fn a_bearer_token_is_good_until_its_site_is_revoked() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub();
    let ca = world.write("ca.pem", &world.sennit("hub", &["hub", "ca"]));
    let bearer = world.sennit("hub", &["invite", "phone", "--bearer"]);
    let bearer = world.write("bearer", &bearer);
    let more = format!(
        "proxy_ca = '{}'\nproxy_name = 'hub.example'\nbearer = 'file:{}'",
        ca.display(),
        bearer.display()
    );
    let edge = world.start_edge(&Edge {
        more: &more,
        ..Edge::default()
    });
    edge.wait_until_up();
    ping(edge.host, &plan::SERVER.v4.to_string());
    assert_eq!(hub.status().tunnels[0].site.as_str(), "phone");

    let control = world.path("hub.sock").display().to_string();
    world.sennit("hub", &["revoke", "phone", "--control", &control]);

    edge.wait_for_log(&["not connected", "refused"]);
    hub.wait("no tunnel to be left", |status| status.tunnels.is_empty());
}

/// An edge on the server's host, which is behind the hub: one link, and no route but to the sites.
pub(crate) fn depot() -> Edge<'static> {
    Edge {
        name: "depot",
        on: Role::Server,
        hub: "203.0.113.1:443",
        routes: &["10.200.0.0/16", "fd5e:1::/64"],
        links: &[("eth", "eth0", "")],
        ..Edge::default()
    }
}
