//! What a site can do to others, and what its hub does about it.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Classifier, Policy};
use sennit_engine::{EdgeEvent, HubEvent};
use sennit_masque::capsule::NextAuthority;
use sennit_netem::{Bitrate, Config};
use sennit_packet::Prefix;
use sennit_sim::{CREDENTIAL, EDGE, LinkSpec, SERVER, World, class, udp};

use crate::MS;

fn link(delay: u32) -> LinkSpec {
    LinkSpec::symmetric(Config {
        rate: Some(Bitrate::mbit(50)),
        delay: MS * delay,
        ..Config::default()
    })
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

#[test]
fn a_site_reaches_no_address_that_nobody_may_send_to_from_afar() {
    let mut world = World::new(&[link(10)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    let forbidden = [
        [169, 254, 169, 254],
        [127, 0, 0, 1],
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255, 255, 255, 255],
    ];
    for destination in forbidden {
        // Our own edge would not even send the most of them.
        let packet = udp(EDGE, Ipv4Addr::from(destination), 7, 1, 100);
        world.send_from_edge(&packet);
    }
    world.send_from_edge(&udp(EDGE, SERVER, 7, 1, 100));
    world.run(MS * 100);

    let arrived: Vec<_> = world.at_hub.iter().map(|it| &it.packet[16..20]).collect();
    assert_eq!(arrived, [SERVER.octets()]);
    let stats = world.hub.status().remove(0).stats;
    assert_eq!(stats.wrong_destination, 4, "what our own edge lets through");
    assert_eq!(stats.wrong_source, 0);
}

#[test]
fn what_a_site_announces_is_routed_when_the_hub_says_so_and_the_edge_hears_what_is_not() {
    let lan = [prefix("192.168.8.0/24"), prefix("1.1.1.1/32")];
    let mut world = World::with_lan(&[link(10)], &lan, 1, Instant::now());
    assert!(world.connect(1));
    world.run(MS * 100);
    let [inside, stolen] = [[192, 168, 8, 7], [1, 1, 1, 1]].map(Ipv4Addr::from);

    world.send_from_hub(&udp(SERVER, inside, 7, 1, 100));
    world.run(MS * 100);
    assert_eq!(
        world.at_edge.len(),
        0,
        "nothing is routed before it is granted"
    );

    let refused = (prefix("1.1.1.1/32"), "not granted".to_owned());
    world
        .hub
        .set_lan(&"site".into(), &lan[..1], std::slice::from_ref(&refused));
    for destination in [inside, stolen] {
        world.send_from_hub(&udp(SERVER, destination, 7, 1, 100));
    }
    world.run(MS * 100);

    let arrived: Vec<_> = world.at_edge.iter().map(|it| &it.packet[16..20]).collect();
    assert_eq!(arrived, [inside.octets()]);
    assert_eq!(world.edge.refused_lan(), std::slice::from_ref(&refused));
    let heard = |(_, event): &&(Duration, EdgeEvent)| matches!(event, EdgeEvent::LanRefused(_));
    assert_eq!(world.edge_events.iter().filter(heard).count(), 1);

    world.hub.set_lan(&"site".into(), &lan, &[]);
    world.run(MS * 100);
    assert_eq!(world.edge.refused_lan(), [], "it hears of a grant too");
}

#[test]
fn an_edge_hears_once_of_each_authority_that_its_hub_offers_to_its_credential() {
    let mut world = World::new(&[link(10)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));
    let offered = |number: u8| NextAuthority {
        fingerprint: [number; 32],
        within: 500,
    };

    world.hub.offer_authority(&[9; 32], offered(9));
    for number in [1, 1, 2] {
        world.hub.offer_authority(&CREDENTIAL, offered(number));
        // Something has to happen for the hub to be asked what it wants to send.
        world.send_from_hub(&udp(SERVER, EDGE, 7, 1, 100));
        world.run(MS * 100);
    }

    let heard = world
        .edge_events
        .iter()
        .filter_map(|(_, event)| match event {
            EdgeEvent::Authority(next) => Some(*next),
            _ => None,
        });
    assert_eq!(heard.collect::<Vec<_>>(), [offered(1), offered(2)]);
    let moves =
        |(_, event): &(Duration, HubEvent)| matches!(event, HubEvent::Connect { moves: true, .. });
    assert!(
        world.hub_events.iter().any(moves),
        "the hub knows that it can"
    );
    assert_eq!(world.hub.status().len(), 1, "the tunnel goes on");
}

#[test]
fn a_tunnel_ends_with_the_credential_that_it_was_granted_to() {
    let mut world = World::new(&[link(10)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(1));

    let now = world.now();
    world.hub.expel_credential(&[9; 32], "somebody else's", now);
    world.run(MS * 100);
    assert_eq!(world.hub.status().len(), 1);

    let reason = "site `site` has joined anew";
    let now = world.now();
    world.hub.expel_credential(&CREDENTIAL, reason, now);
    // Something has to happen for the hub to be asked what it wants to send.
    world.send_from_hub(&udp(SERVER, EDGE, 7, 1, 100));
    let told = |(_, event): &(Duration, EdgeEvent)| match event {
        EdgeEvent::TunnelDown { reason: why, .. } => why.contains(reason),
        _ => false,
    };
    assert!(world.run_until(MS * 200, |world| world.edge_events.iter().any(told)));
}

/// How often an edge asks within a virtual time, if the hub answers so and then, at last, lets it
/// in.
fn asks(status: u16, span: Duration) -> (usize, World) {
    let links = [link(10), link(20)];
    let mut world = World::new(&links, Policy::Bond, 1, Instant::now());
    world.refuses = Some((status, "the hub says no"));
    world.run(span);
    let asked = |(_, event): &&(Duration, HubEvent)| matches!(event, HubEvent::Connect { .. });
    (world.hub_events.iter().filter(asked).count(), world)
}

#[test]
fn a_hub_that_wants_no_more_of_a_site_is_asked_ever_more_rarely() {
    let hour = Duration::from_secs(3600);
    for status in [401, 403, 409, 410] {
        let (asked, mut world) = asks(status, hour);
        // 5 s, 10, 20, … and then every five minutes.
        assert!((12..20).contains(&asked), "{status}: {asked}");
        let lasting = |(_, event): &(Duration, EdgeEvent)| match event {
            EdgeEvent::Refused { lasting, .. } => *lasting,
            _ => true,
        };
        assert!(world.edge_events.iter().all(lasting));

        world.refuses = None;
        let up = |world: &mut World| world.edge.status()[0].up;
        assert!(world.run_until(Duration::from_secs(310), up), "{status}");
    }
}

#[test]
fn a_hub_that_cannot_answer_now_is_asked_again_soon() {
    for status in [408, 429, 500, 503] {
        let (asked, mut world) = asks(status, Duration::from_secs(600));
        assert!(asked > 60, "{status}: {asked}");

        world.refuses = None;
        let up = |world: &mut World| world.edge.status()[0].up;
        assert!(world.run_until(Duration::from_secs(10), up), "{status}");
    }
}

#[test]
fn a_prefix_inside_another_does_not_keep_them_from_being_announced() {
    let lan = ["10.9.0.0/16", "10.0.0.0/8", "192.168.8.0/24"].map(prefix);
    let mut world = World::with_lan(&[link(10)], &lan, 1, Instant::now());
    assert!(world.connect(1));
    world.run(MS * 100);

    let announced = world.hub_events.iter().find_map(|(_, event)| match event {
        HubEvent::Lan { prefixes, .. } => Some(prefixes.clone()),
        _ => None,
    });
    assert_eq!(announced, Some(vec![lan[1], lan[2]]));
}

#[test]
fn of_two_boxes_with_one_identity_the_one_that_is_replaced_gives_the_other_time() {
    let mut world = World::new(&[link(10), link(20)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(2));

    let now = world.now();
    world.hub.replace(&"site".into(), ClassId(0), now);
    world.run(Duration::from_secs(20));

    let count = |world: &World, wanted: fn(&EdgeEvent) -> bool| {
        world
            .edge_events
            .iter()
            .filter(|(_, it)| wanted(it))
            .count()
    };
    let up = |event: &EdgeEvent| matches!(event, EdgeEvent::TunnelUp { .. });
    let told = |event: &EdgeEvent| match event {
        EdgeEvent::TunnelDown { reason, .. } => reason.contains("another box"),
        _ => false,
    };
    assert_eq!((count(&world, up), count(&world, told)), (1, 1));
    world.run(Duration::from_secs(15));
    assert_eq!(
        count(&world, up),
        2,
        "it tries again, for the other may be gone"
    );
}

#[test]
fn a_path_is_called_by_its_link_at_the_hub_however_often_it_is_opened() {
    // News of the path comes after the path itself: they take the other link, which is slower.
    let mut world = World::new(&[link(60), link(10)], Policy::Bond, 1, Instant::now());
    assert!(world.connect(2));
    for _ in 0..2 {
        world.blackhole(1, true);
        world.run(Duration::from_secs(60));
        world.blackhole(1, false);
        assert!(world.connect(2));
        world.run(Duration::from_secs(5));
    }

    let names: Vec<String> = world.hub.status()[0]
        .paths
        .iter()
        .map(|path| path.link.name.clone())
        .collect();
    assert_eq!(names.len(), 2);
    assert!(
        names.iter().all(|name| !name.starts_with("path-")),
        "{names:?}"
    );
    let told = world
        .hub_events
        .iter()
        .filter_map(|(_, event)| match event {
            HubEvent::Path { link, .. } => Some(link.as_str()),
            _ => None,
        });
    let told: Vec<&str> = told.collect();
    assert!(!told.is_empty());
    assert!(
        told.iter().all(|name| !name.starts_with("path-")),
        "{told:?}"
    );
}

/// Who reads of them could not tell them apart: a scrape of metrics with both is refused.
#[test]
fn a_site_has_no_two_tunnels_of_one_name() {
    let classes = vec![class("bulk", Policy::Bond), class("bulk", Policy::Bond)];
    let rule = Classifier::default();
    let mut world = World::with_classes(&[link(10)], classes, rule, 1, Instant::now());
    let mut both_up = 0;
    for _ in 0..100 {
        world.run(MS * 100);
        both_up += usize::from(world.hub.status().len() > 1);
    }
    let ups = world.hub_events.iter();
    let ups = ups.filter(|(_, event)| matches!(event, HubEvent::TunnelUp { .. }));
    assert!(ups.count() >= 2);
    assert_eq!(both_up, 0);
}
