//! Handshakes between an edge and a hub: who shows what, and who is resumed.

use super::*;

/// A handshake in memory; what the server saw of the client, or why either gave up.
fn handshake(client: ClientTls, hub: &HubIdentity) -> Result<Seen, rustls::Error> {
    shake_hands(client.config, client.server_name, hub, false)
}

fn shake_hands(
    client: rustls::ClientConfig,
    name: String,
    hub: &HubIdentity,
    require_pq: bool,
) -> Result<Seen, rustls::Error> {
    let state = tempfile::tempdir().unwrap();
    let tickets = Tickets::load(state.path(), SystemTime::now());
    let server = server(hub, Arc::new(tickets), require_pq);
    meet(&Arc::new(client), name, server)
}

pub(super) fn server(
    hub: &HubIdentity,
    tickets: Arc<Tickets>,
    require_pq: bool,
) -> rustls::ServerConfig {
    let trust = Arc::new(identity::trust(hub, require_pq).unwrap());
    identity::server_config(&trust, tickets).unwrap()
}

/// A handshake and what follows it.
pub(super) fn meet(
    client: &Arc<rustls::ClientConfig>,
    name: String,
    server: rustls::ServerConfig,
) -> Result<Seen, rustls::Error> {
    let name = ServerName::try_from(name).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
    let mut wire = Vec::new();
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        wire.clear();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok(Seen {
        peer: server
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|c| c.clone().into_owned())
            .collect(),
        group: format!(
            "{:?}",
            client.negotiated_key_exchange_group().unwrap().name()
        ),
        alpn: client.alpn_protocol().unwrap().to_vec(),
        resumed: server.handshake_kind() == Some(HandshakeKind::Resumed),
        after: wire.len(),
    })
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) resumed: bool,
    /// Bytes that the server sent after the handshake.
    after: usize,
    pub(super) peer: Vec<CertificateDer<'static>>,
    group: String,
    alpn: Vec<u8>,
}

#[test]
fn an_invited_edge_shakes_hands_without_a_certificate_and_an_enrolled_one_with_its_own() {
    let mut hub = Hub::new();
    let pending = Edge::join(&hub.invite("van-07"));
    let enrolled = hub.enrolled("van-08");

    let first = handshake(
        identity::client_config(&pending.identity).unwrap(),
        &hub.identity,
    )
    .unwrap();
    let second = handshake(
        identity::client_config(&enrolled.identity).unwrap(),
        &hub.identity,
    )
    .unwrap();

    assert_eq!(first.peer, []);
    assert_eq!(
        identity::authorize(&hub.store, &second.peer, SystemTime::now())
            .unwrap()
            .site,
        name("van-08")
    );
    assert_eq!(
        (second.group.as_str(), second.alpn.as_slice()),
        ("X25519MLKEM768", identity::ALPN)
    );
}

/// An edge of a hub, and the hub's tickets.
struct Returning {
    hub: Hub,
    config: Arc<rustls::ClientConfig>,
    classic: Arc<rustls::ClientConfig>,
    server_name: String,
    state: TempDir,
    now: SystemTime,
}

impl Returning {
    fn new() -> Self {
        let mut hub = Hub::new();
        let edge = hub.enrolled("van-07");
        let tls = identity::client_config(&edge.identity).unwrap();
        Self {
            hub,
            config: Arc::new(tls.config),
            classic: Arc::new(tls.classic),
            server_name: tls.server_name,
            state: tempfile::tempdir().unwrap(),
            now: SystemTime::now(),
        }
    }

    /// As a hub has them that has just started: only the keys on the disk are the same.
    fn tickets(&self) -> Arc<Tickets> {
        Arc::new(Tickets::load(self.state.path(), self.now))
    }

    fn meet(&self, tickets: Arc<Tickets>) -> Seen {
        let server = server(&self.hub.identity, tickets, false);
        meet(&self.config, self.server_name.clone(), server).unwrap()
    }

    /// A handshake begins that nobody answers.
    fn begin(&self) {
        let name = ServerName::try_from(self.server_name.clone()).unwrap();
        rustls::ClientConnection::new(Arc::clone(&self.config), name).unwrap();
    }

    fn authorize(&self, seen: &Seen, now: SystemTime) -> Result<SiteName, Refusal> {
        let admission = identity::authorize(&self.hub.store, &seen.peer, now);
        admission.map(|admission| admission.site)
    }
}

#[test]
fn a_resumed_session_is_of_the_same_site_and_of_none_once_that_is_revoked_or_has_expired() {
    let mut van = Returning::new();
    let first = van.meet(van.tickets());
    let second = van.meet(van.tickets());
    assert_eq!((first.resumed, second.resumed), (false, true));
    assert_eq!(second.group, "X25519MLKEM768", "the key exchange is anew");
    assert_eq!(second.peer, first.peer);
    for seen in [&first, &second] {
        let tickets = 2000..3600;
        assert!(tickets.contains(&seen.after), "{} bytes", seen.after);
    }
    assert_eq!(van.authorize(&second, van.now).unwrap(), name("van-07"));

    let expired = van.authorize(&second, van.now + 400 * DAY);
    assert_refused(expired, "certificate_expired");
    van.hub.store.revoke(&name("van-07"), van.now).unwrap();
    let third = van.meet(van.tickets());
    assert!(third.resumed);
    assert_refused(van.authorize(&third, van.now), "site_revoked");
}

#[test]
fn tickets_are_of_all_workers_of_a_hub_until_their_key_is_forgotten_and_of_no_other_hub() {
    let van = Returning::new();
    let tickets = van.tickets();
    assert!(!van.meet(Arc::clone(&tickets)).resumed);
    assert!(van.meet(Arc::clone(&tickets)).resumed);
    tickets.rotate(van.now + DAY / 2);
    assert!(van.meet(Arc::clone(&tickets)).resumed, "of the key before");
    tickets.rotate(van.now + 3 * DAY);
    let late = van.meet(Arc::clone(&tickets));
    assert!(!late.resumed && !late.peer.is_empty());
    assert!(van.meet(tickets).resumed);

    let elsewhere = tempfile::tempdir().unwrap();
    let others = Tickets::load(elsewhere.path(), van.now);
    assert!(!van.meet(Arc::new(others)).resumed);
    // Another hub that has got hold of a ticket cannot take up its session.
    let other = Hub::new();
    let others = Arc::new(Tickets::load(other.dir.path(), van.now));
    let server = server(&other.identity, others, false);
    let met = meet(&van.config, van.server_name.clone(), server);
    assert!(met.unwrap_err().to_string().contains("another hub"));
}

#[test]
fn handshakes_that_nobody_answers_leave_an_edge_tickets_for_the_next() {
    let van = Returning::new();
    let tickets = van.tickets();
    van.meet(Arc::clone(&tickets));
    (0..3).for_each(|_| van.begin());
    assert!(van.meet(Arc::clone(&tickets)).resumed);

    (0..12).for_each(|_| drop(van.meet(Arc::clone(&tickets))));
    (0..31).for_each(|_| van.begin());
    assert!(van.meet(Arc::clone(&tickets)).resumed);
    (0..32).for_each(|_| van.begin());
    assert!(!van.meet(tickets).resumed, "no more are kept than that");
}

#[test]
fn a_hub_that_requires_post_quantum_resumes_no_classic_session() {
    let van = Returning::new();
    let meet_with = |require_pq| {
        let server = server(&van.hub.identity, van.tickets(), require_pq);
        meet(&van.classic, van.server_name.clone(), server)
    };
    assert!(!meet_with(false).unwrap().resumed);
    let resumed = meet_with(false).unwrap();
    assert_eq!((resumed.resumed, resumed.group.as_str()), (true, "X25519"));
    meet_with(true).unwrap_err();
}

#[test]
fn a_fresh_certificate_is_shown_and_not_resumed() {
    let mut hub = Hub::new();
    let edge = hub.enrolled("van-07");
    let state = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let tls = identity::client_config(&edge.identity).unwrap();
        let tickets = Arc::new(Tickets::load(state.path(), SystemTime::now()));
        let server = server(&hub.identity, tickets, false);
        let seen = meet(&Arc::new(tls.config), tls.server_name, server).unwrap();
        assert!(!seen.resumed && !seen.peer.is_empty());
    }
}

#[test]
fn a_hub_that_requires_post_quantum_takes_no_classic_handshake_and_another_does() {
    let mut hub = Hub::new();
    let edge = hub.enrolled("van-07");
    let shake = |classic: bool, require_pq| {
        let tls = identity::client_config(&edge.identity).unwrap();
        let config = if classic { tls.classic } else { tls.config };
        shake_hands(config, tls.server_name, &hub.identity, require_pq).map(|seen| seen.group)
    };

    assert_eq!(shake(false, true).unwrap(), "X25519MLKEM768");
    assert_eq!(shake(true, false).unwrap(), "X25519");
    let error = shake(true, true).unwrap_err();
    assert!(
        matches!(error, rustls::Error::PeerIncompatible(_)),
        "{error:?}"
    );
}

#[test]
fn an_edge_does_not_talk_to_a_hub_with_another_key() {
    let (mut hub, impostor) = (Hub::new(), Hub::new());
    let edge = hub.enrolled("van-07");

    let error = handshake(
        identity::client_config(&edge.identity).unwrap(),
        &impostor.identity,
    )
    .unwrap_err();

    assert!(
        error
            .to_string()
            .contains("not the one that the invitation names"),
        "{error}"
    );
}

#[test]
fn an_impostor_that_shows_the_right_authority_but_not_its_signature_is_refused() {
    let (mut hub, mut impostor) = (Hub::new(), Hub::new());
    let edge = hub.enrolled("van-07");
    impostor.identity.chain[1] = hub.identity.authority.certificate().clone();

    let error = handshake(
        identity::client_config(&edge.identity).unwrap(),
        &impostor.identity,
    )
    .unwrap_err();

    assert!(
        matches!(error, rustls::Error::InvalidCertificate(_)),
        "{error:?}"
    );
}

#[test]
fn a_hub_refuses_a_site_of_another_hub_in_the_handshake() {
    let (mut hub, mut other) = (Hub::new(), Hub::new());
    let mut foreign = other.enrolled("van-07");
    foreign.identity.authority = hub.identity.authority.fingerprint();
    drop(hub.invite("van-07"));

    let error = handshake(
        identity::client_config(&foreign.identity).unwrap(),
        &hub.identity,
    )
    .unwrap_err();

    assert!(
        matches!(error, rustls::Error::InvalidCertificate(_)),
        "{error:?}"
    );
}

#[test]
fn a_foreign_client_trusts_the_hub_by_its_exported_authority() {
    let hub = Hub::new();
    let files = tempfile::tempdir().unwrap();
    let (ca, bearer) = (files.path().join("ca.pem"), files.path().join("bearer"));
    fs::write(&ca, hub.identity.authority.pem()).unwrap();
    fs::write(&bearer, "sennit_bearer_abc\n").unwrap();
    let proxy = |name: &str| Proxy {
        ca: ca.clone(),
        name: Some(name.into()),
        bearer: Some(bearer.clone()),
    };
    let address = "203.0.113.10";

    let tls = identity::proxy_config(&proxy("hub.example.org"), address).unwrap();
    assert_eq!(tls.bearer.as_deref(), Some("sennit_bearer_abc"));
    handshake(tls, &hub.identity).unwrap();
    let wrong_name = identity::proxy_config(&proxy("other.example.org"), address).unwrap();
    assert!(handshake(wrong_name, &hub.identity).is_err());
    fs::write(&ca, "no certificate").unwrap();
    assert!(matches!(
        identity::proxy_config(&proxy("hub.example.org"), address),
        Err(IdentityError::Damaged { .. })
    ));
    fs::write(&ca, Hub::new().identity.authority.pem()).unwrap();
    let wrong_ca = identity::proxy_config(&proxy("hub.example.org"), address).unwrap();
    assert!(handshake(wrong_ca, &hub.identity).is_err());
}

#[test]
fn a_site_that_joined_while_the_clock_of_the_hub_was_ahead_gets_in_when_that_is_set_right() {
    let mut hub = Hub::new();
    let hubs = ["203.0.113.10:443".parse().unwrap()];
    let (authority, now) = (&hub.identity.authority, SystemTime::now());
    let invitation = identity::invite(
        &mut hub.store,
        authority,
        &name("van-07"),
        &hubs,
        400 * DAY,
        now,
    );
    let mut edge = Edge::join(&invitation.unwrap());
    let request = edge.identity.enrollment_request().unwrap();
    let answer = hub.answer(&[], &request, 366 * DAY);
    edge.identity.accept(&answer.body).unwrap();

    let seen = handshake(
        identity::client_config(&edge.identity).unwrap(),
        &hub.identity,
    );

    let site = identity::authorize(&hub.store, &seen.unwrap().peer, now);
    assert_eq!(site.unwrap().site, name("van-07"));
}

#[test]
fn what_a_hub_signs_that_boots_in_1970_is_good_when_its_clock_is_set() {
    let booted = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
    let dir = tempfile::tempdir().unwrap();
    let identity = HubIdentity::init(dir.path(), &[], booted).unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut hub = Hub {
        dir,
        identity,
        store,
    };
    let hubs = ["203.0.113.10:443".parse().unwrap()];
    let (authority, site) = (&hub.identity.authority, name("van-07"));
    let invitation = identity::invite(&mut hub.store, authority, &site, &hubs, DAY, booted);
    let mut edge = Edge::join(&invitation.unwrap());
    let request = edge.identity.enrollment_request().unwrap();
    let answer = identity::exchange(
        &mut hub.store,
        slice::from_ref(authority),
        &[],
        &request,
        booted,
    );
    edge.identity.accept(&answer.body).unwrap();

    let seen = handshake(
        identity::client_config(&edge.identity).unwrap(),
        &hub.identity,
    );

    let now = SystemTime::now();
    let admitted = identity::authorize(&hub.store, &seen.unwrap().peer, now);
    assert_eq!(admitted.unwrap().site, site);
}
