//! How a hub says that it stands: which sites are away, and what its host does not do for it.

use sennit::status::{State, Status};

use crate::traffic::ping;
use crate::world::{Daemon, Edge, HUB_INNER, World};

/// How a hub lists a site, if it does.
fn listed<'s>(status: &'s Status, site: &str) -> Option<&'s sennit::status::SiteStatus> {
    status.sites.iter().find(|it| it.name.as_str() == site)
}

fn reason(status: &Status) -> &str {
    status.reason.as_deref().unwrap_or_default()
}

#[test]
fn a_site_that_has_left_is_listed_as_down_until_it_is_revoked() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let (hub, mut edge) = world.start_pair(&Edge::default());
    let here = hub.status();
    assert_eq!(listed(&here, "van").unwrap().last_seen, None);

    edge.stop();
    // Whatever somebody else writes has the hub look into its store at once.
    world.sennit("hub", &["sites", "allow", "van", "192.168.9.0/24"]);
    let gone = hub.wait("the site to be away", |status| {
        listed(status, "van").is_some_and(|site| site.state == State::Down)
    });
    let site = listed(&gone, "van").unwrap();
    assert!(
        site.last_seen.is_some() && site.classes.is_empty(),
        "{site:?}"
    );
    assert_eq!(gone.state, State::Up, "the hub itself is well");
    let leased: Vec<usize> = gone.pools.iter().map(|pool| pool.leased).collect();
    assert_eq!(leased, [1, 1], "of each family: {:?}", gone.pools);
    let completed = gone.workers.iter().map(|it| it.completed_handshakes);
    assert!(completed.sum::<u64>() >= 1, "{:?}", gone.workers);
    assert!(gone.config.unwrap().last_reload_successful);
    let shown = hub.tell(&["status"]);
    assert!(shown.contains("SITE THAT IS AWAY"), "{shown}");

    let control = hub.control.display().to_string();
    world.sennit("hub", &["revoke", "van", "--control", &control]);
    hub.wait("nobody to be missed", |status| {
        listed(status, "van").is_none()
    });
}

fn switch_forwarding(hub: &Daemon<'_>, to: &str) {
    let setting = format!("net.ipv4.ip_forward={to}");
    hub.host.sysctl(&[&setting]).unwrap();
}

#[test]
fn a_hub_says_that_its_host_forwards_nothing_or_drops_what_it_should_forward() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    // As Docker leaves it.
    let rules =
        "table ip docker { chain FORWARD { type filter hook forward priority 0; policy drop; }; }";
    world.host(sennit_lab::Role::Hub).nft(rules).unwrap();
    let (hub, edge) = world.start_pair(&Edge::default());

    let notes = hub.status().notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with("`ip docker FORWARD` of this host's firewall"),
        "{notes:?}"
    );

    switch_forwarding(&hub, "0");
    let degraded = hub.wait("that to be told", |status| status.state == State::Degraded);
    assert!(
        reason(&degraded).contains("sysctl -w net.ipv4.ip_forward=1"),
        "{degraded:?}"
    );
    ping(edge.host, HUB_INNER[0]);

    switch_forwarding(&hub, "1");
    hub.wait_until_up();
}

#[test]
fn a_hub_says_which_class_a_flow_would_take_that_begins_behind_it() {
    let Some(world) = World::with_two_links() else {
        return;
    };
    let hub = world.start_hub_with("[[class]]\nname = 'voice'\nmatch = ['udp dport 5060']\n");

    let voice = hub.tell(&["why", "--packet", "udp 198.51.100.1 10.200.0.2 5060"]);
    let other = hub.tell(&["why", "--packet", "udp 198.51.100.1 10.200.0.2 5061"]);

    assert!(
        voice.contains("rule \"udp dport 5060\" is the first"),
        "{voice}"
    );
    assert!(other.contains("no rule of the hub matches"), "{other}");
}
