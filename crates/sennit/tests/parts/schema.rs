//! The schemas in the book are those of the program, and what the program writes fits them.

mod fit;

use sennit::status::{
    Cause, LinkCause, LinkState, LinkStatus, LinkTraffic, Links, NatMapping, PathState,
    PublicStatus, RefusedPrefix, SiteLinkStatus, SiteStatus, State, Status, flow_reasons,
    json_schema, reasons,
};
use serde_json::{Value, json};

use crate::{is_committed, strict};

fn is_in_the_book(name: &str, schema: &Value) {
    let made = serde_json::to_string_pretty(schema).unwrap() + "\n";
    is_committed(&format!("docs/src/schemas/{name}"), &made);
}

#[test]
fn the_schema_of_the_status_is_in_the_book() {
    is_in_the_book("sennit.status-1.json", &json_schema());
}

/// A document in which everything is there that can be.
fn full() -> Value {
    serde_json::from_str(include_str!("schema/full.json")).unwrap()
}

#[test]
fn a_document_with_everything_in_it_fits_and_nothing_is_lost_in_reading_it() {
    let document = full();

    assert_eq!(fit::complaints(&json_schema(), &document), [""; 0]);
    let read: Status = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), document);
}

#[test]
fn no_document_of_a_daemon_has_a_key_twice() {
    let status: Status = serde_json::from_value(full()).unwrap();
    let links = Links::of(&status);
    let (link, path) = (&links.links[0], &status.tunnels[0].paths[0]);
    assert_eq!((link.paths, link.paths_up), (1, 0));
    assert_eq!(link.rate_bytes_per_second, path.rate_bytes_per_second);

    for text in [
        serde_json::to_string(&links),
        serde_json::to_string(&status),
        serde_json::to_string(&flow_reasons(&status)),
        serde_json::to_string(&reasons(&status, None)),
    ] {
        strict::read(&text.unwrap()).unwrap();
    }
}

#[test]
fn a_document_with_as_little_as_can_be_fits() {
    let mut status: Status = serde_json::from_value(full()).unwrap();
    status.reason = None;
    status.notes.clear();
    status.refused_lan.clear();
    status.workers.clear();
    status.confinement = None;
    (status.certificate, status.authority) = (None, None);
    (status.leak, status.config) = (None, None);
    status.pools.clear();
    let link = &mut status.links[0];
    (link.standby, link.account) = (false, None);
    (link.sent_bytes_per_second, link.received_bytes_per_second) = (None, None);
    status.tunnels[0].striping = None;
    status.tunnels[0].flows.clear();
    let path = &mut status.tunnels[0].paths[0];
    (path.link, path.local, path.cause, path.reason) = (None, None, None, None);
    (path.rtt_seconds, path.loss_ratio, path.share_ratio) = (None, None, None);
    status.links[0].address = None;

    let written = serde_json::to_value(&status).unwrap();

    assert_eq!(fit::complaints(&json_schema(), &written), [""; 0]);
}

#[test]
fn what_does_not_fit_is_noticed() {
    let spoil = |pointer: &str, value: Value| {
        let mut document = full();
        *document.pointer_mut(pointer).unwrap() = value;
        fit::complaints(&json_schema(), &document)
    };
    for (pointer, value) in [
        ("/role", json!("router")),
        ("/uptime_seconds", json!("10")),
        ("/links/0/tier", json!(1.5)),
        ("/links/0/state", json!("asleep")),
        ("/tunnels/0/paths/0/cause", json!("bored")),
        ("/tunnels/0/paths", json!({})),
        ("/workers/0", json!({ "tunnels": 1 })),
    ] {
        assert!(!spoil(pointer, value).is_empty(), "{pointer}");
    }
}

#[test]
fn every_word_of_the_document_is_in_the_schema() {
    let mut status: Status = serde_json::from_value(full()).unwrap();
    let causes = [
        LinkCause::NotLookedAt,
        LinkCause::NoInterface,
        LinkCause::InterfaceDown,
        LinkCause::NoAddress,
        LinkCause::MtuTooSmall,
        LinkCause::Unusable,
        LinkCause::Paused,
        LinkCause::NoPath,
    ];
    let link = status.links[0].clone();
    let links = causes.map(|cause| LinkStatus {
        cause: Some(cause),
        public: vec![PublicStatus {
            seen: vec!["198.51.100.7:1024".parse().unwrap()],
            translated: true,
            port_kept: Some(false),
            mapping: Some(NatMapping::AddressAndPortDependent),
        }],
        ..link.clone()
    });
    status.links = links.into();
    let path = status.tunnels[0].paths[0].clone();
    let states = [
        (PathState::Up, Cause::Silent),
        (PathState::Probation, Cause::Unheard),
        (PathState::Suspect, Cause::Returned),
        (PathState::Down, Cause::Relapsed),
        (PathState::Down, Cause::LinkDown),
        (PathState::Down, Cause::PeerLinkDown),
        (PathState::Down, Cause::PeerPaused),
        (PathState::Suspect, Cause::NotValidated),
    ];
    status.tunnels[0].paths = states
        .map(|(state, cause)| {
            let mut path = path.clone();
            (path.state, path.cause) = (state, Some(cause));
            path
        })
        .into();
    status.sites = vec![SiteStatus {
        name: "van".parse().unwrap(),
        state: State::Connecting,
        last_seen: Some("2026-11-26T21:30:00Z".into()),
        classes: Vec::new(),
        sent_bytes: 0,
        received_bytes: 0,
        links: vec![SiteLinkStatus {
            name: "lte".into(),
            state: LinkState::Down,
            traffic: LinkTraffic::default(),
        }],
        refused_lan: vec![RefusedPrefix {
            prefix: "1.1.1.1/32".into(),
            reason: "the hub has not granted it to the site".into(),
        }],
    }];

    let written = serde_json::to_value(&status).unwrap();

    assert_eq!(fit::complaints(&json_schema(), &written), [""; 0]);
}
