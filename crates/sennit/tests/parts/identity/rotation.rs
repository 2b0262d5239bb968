//! Another authority in place of the one there is: who trusts whom before, meanwhile and after.

use sennit::{identity::Authority, store::AuthorityStep};

use super::handshakes::{Seen, meet, server};
use super::*;

/// A hub whose authority is rotated, with what its workers show and believe.
struct Rotating {
    hub: Hub,
    trust: Arc<Trust>,
    tickets: Arc<Tickets>,
    now: SystemTime,
}

impl Rotating {
    fn new() -> Self {
        let hub = Hub::new();
        let now = SystemTime::now();
        Self {
            trust: Arc::new(identity::trust(&hub.identity, false).unwrap()),
            tickets: Arc::new(Tickets::load(hub.dir.path(), now)),
            hub,
            now,
        }
    }

    fn rotate(&mut self) -> Fingerprint {
        let present = identity::rotate(self.hub.dir.path(), self.now).unwrap();
        self.follow();
        present
    }

    fn finish(&mut self, force: bool) -> Result<(), IdentityError> {
        identity::finish_rotation(self.hub.dir.path(), force, self.now)?;
        self.follow();
        Ok(())
    }

    /// What a daemon does that runs meanwhile, or is started then.
    fn follow(&mut self) {
        self.hub.identity = HubIdentity::load(self.hub.dir.path()).unwrap();
        self.trust.follow(&self.hub.identity).unwrap();
    }

    fn answer(&mut self, peer: &[CertificateDer<'_>], edge: &Edge) -> identity::Exchange {
        let request = edge.identity.enrollment_request().unwrap();
        let authorities = HubIdentity::load(self.hub.dir.path()).unwrap();
        let authorities = authorities.into_authorities();
        identity::exchange(&mut self.hub.store, &authorities, peer, &request, self.now)
    }

    fn enrol(&mut self, mut edge: Edge) -> Edge {
        let answer = self.answer(&[], &edge);
        edge.identity.accept(&answer.body).unwrap();
        edge
    }

    fn meet(&self, edge: &Edge) -> Result<Seen, rustls::Error> {
        let tls = identity::client_config(&edge.identity).unwrap();
        self.meet_by(&Arc::new(tls.config), &tls.server_name)
    }

    fn meet_by(&self, tls: &Arc<rustls::ClientConfig>, name: &str) -> Result<Seen, rustls::Error> {
        let server = identity::server_config(&self.trust, Arc::clone(&self.tickets));
        meet(tls, name.to_owned(), server.unwrap())
    }

    /// Shakes hands, and is let in or not; that a site has come is remembered.
    fn come(&mut self, edge: &Edge) -> Result<SiteName, Refusal> {
        let seen = self.meet(edge).unwrap();
        let admission = identity::authorize(&self.hub.store, &seen.peer, self.now)?;
        let digest = admission.proof.digest();
        self.hub.store.note_shown(digest).unwrap();
        Ok(admission.site)
    }

    /// As the edge does when its hub has told it of another authority.
    fn move_to(&mut self, edge: &mut Edge, authority: Fingerprint) {
        edge.identity.move_to_authority(authority);
        let answer = self.answer(&edge.chain(), edge);
        edge.identity.accept(&answer.body).unwrap();
    }
}

fn stands_for_another_hub(met: Result<Seen, rustls::Error>) -> bool {
    met.is_err_and(|error| error.to_string().contains("this is another hub"))
}

#[test]
fn sites_of_both_authorities_come_in_until_the_former_is_dropped_and_nobody_is_locked_out() {
    let mut hub = Rotating::new();
    let former = hub.hub.identity.authority.fingerprint();
    let mut van = hub.hub.enrolled("van-07");
    let mut ship = hub.hub.enrolled("ship-3");
    let invited_before = hub.hub.invite("bus-1");

    let present = hub.rotate();

    let mut bus = hub.enrol(Edge::join(&invited_before));
    let invited_after = hub.hub.invite("car-2");
    let car = hub.enrol(Edge::join(&invited_after));
    assert_eq!(
        (bus.identity.authority, car.identity.authority),
        (former, present)
    );
    for (edge, site) in [
        (&van, "van-07"),
        (&ship, "ship-3"),
        (&bus, "bus-1"),
        (&car, "car-2"),
    ] {
        assert_eq!(hub.come(edge).unwrap(), name(site));
    }

    hub.move_to(&mut van, present);
    hub.move_to(&mut bus, present);
    let kept = EdgeIdentity::load(van.dir.path()).unwrap();
    assert_eq!((van.identity.authority, kept.authority), (present, present));
    assert!(kept.is_same(&van.identity));
    assert_eq!(hub.come(&van).unwrap(), name("van-07"));
    let early = hub.finish(false).unwrap_err().to_string();
    assert!(
        early.contains("bus-1, ship-3"),
        "one has not shown that it kept it: {early}"
    );

    hub.come(&bus).unwrap();
    hub.move_to(&mut ship, present);
    hub.come(&ship).unwrap();
    hub.finish(false).unwrap();

    for edge in [&van, &ship, &bus, &car] {
        hub.come(edge).unwrap();
    }
    assert!(hub.hub.identity.former.is_none());
    assert!(
        identity::rotation(hub.hub.dir.path(), hub.now)
            .unwrap()
            .is_none()
    );
    let again = hub.finish(true).unwrap_err();
    assert!(
        matches!(again, IdentityError::NotRotating { .. }),
        "{again}"
    );
}

/// The clock told, by which both may be of one second, and which may be set back.
#[test]
fn an_invitation_is_of_the_authority_that_it_names_whatever_the_clock_says() {
    let mut hub = Rotating::new();
    let before = hub.hub.invite("bus-1");
    hub.now += DAY / 24;
    let present = hub.rotate();
    let after = hub.hub.invite("car-2");

    let rotation = identity::rotation(hub.hub.dir.path(), hub.now).unwrap();
    assert_eq!(rotation.unwrap().locked_out(), ["bus-1"]);
    hub.finish(true).unwrap();

    let car = hub.enrol(Edge::join(&after));
    assert_eq!(hub.come(&car).unwrap(), name("car-2"));
    let store = &mut hub.hub.store;
    assert_eq!(store.token(&before.secret.hash()).unwrap(), None);
    let (present, locked_out) = (*present.as_bytes(), vec!["bus-1".to_owned()]);
    let steps = [
        AuthorityStep::Begun { present },
        AuthorityStep::Finished {
            present,
            locked_out,
        },
    ];
    assert_eq!(store.take_authority_steps().unwrap(), steps);
    assert_eq!(store.take_authority_steps().unwrap(), []);
}

/// What was dropped stayed so, and each site needed another invitation.
#[test]
fn a_hub_that_has_its_former_keys_back_from_a_copy_knows_its_former_sites_again() {
    let mut hub = Rotating::new();
    let former = hub.hub.identity.authority.fingerprint();
    let van = hub.hub.enrolled("van-07");
    let files = ["ca.key", "ca.pem", "hub.key", "hub.pem"];
    let files = files.map(|name| hub.hub.dir.path().join(name));
    let copies = files.clone().map(|file| fs::read(file).unwrap());
    hub.rotate();
    hub.finish(true).unwrap();
    hub.meet(&van).unwrap_err();

    for (file, copy) in files.iter().zip(copies) {
        fs::write(file, copy).unwrap();
    }
    hub.follow();
    hub.hub.store.trust_only(&[*former.as_bytes()]).unwrap();

    assert_eq!(hub.come(&van).unwrap(), name("van-07"));
}

#[test]
fn whoever_has_stolen_the_former_authority_is_neither_hub_nor_site_when_it_is_dropped() {
    let mut hub = Rotating::new();
    let stolen = HubIdentity::load(hub.hub.dir.path()).unwrap();
    let mut van = hub.hub.enrolled("van-07");
    let left = hub.hub.enrolled("ship-3");
    // A site that the thief has signed, with a store of its own.
    let mut thief = Hub::new();
    thief.identity = HubIdentity::load(hub.hub.dir.path()).unwrap();
    let forged = thief.enrolled("van-07");
    let present = hub.rotate();
    hub.move_to(&mut van, present);
    hub.come(&van).unwrap();
    assert_refused(hub.come(&forged), "unknown_site");

    hub.finish(true).unwrap();

    let met = |edge: &Edge| {
        let mut edge = EdgeIdentity::load(edge.dir.path()).unwrap();
        // As if it knew the present hub.
        edge.authority = present;
        let tls = identity::client_config(&edge).unwrap();
        hub.meet_by(&Arc::new(tls.config), &tls.server_name)
    };
    for edge in [&forged, &left] {
        let error = met(edge).unwrap_err();
        assert!(
            matches!(error, rustls::Error::InvalidCertificate(_)),
            "{error:?}"
        );
    }
    assert!(
        stands_for_another_hub(hub.meet(&left)),
        "it knows the former only"
    );
    let impostor = |edge: &Edge| {
        let tls = identity::client_config(&edge.identity).unwrap();
        let tickets = Arc::new(Tickets::load(thief.dir.path(), hub.now));
        meet(
            &Arc::new(tls.config),
            tls.server_name,
            server(&stolen, tickets, false),
        )
    };
    assert!(stands_for_another_hub(impostor(&van)), "it has moved");
}

#[test]
fn a_session_of_a_certificate_whose_authority_was_dropped_is_resumed_and_not_let_in() {
    let mut hub = Rotating::new();
    let van = hub.hub.enrolled("van-07");
    let tls = identity::client_config(&van.identity).unwrap();
    let config = Arc::new(tls.config);
    let first = hub.meet_by(&config, &tls.server_name).unwrap();
    let admission = identity::authorize(&hub.hub.store, &first.peer, hub.now).unwrap();
    hub.rotate();

    hub.finish(true).unwrap();

    let second = hub.meet_by(&config, &tls.server_name).unwrap();
    assert!(second.resumed);
    let refused = identity::authorize(&hub.hub.store, &second.peer, hub.now);
    assert_refused(refused, "authority_dropped");
    let tunnel = identity::reauthorize(&hub.hub.store, &admission.proof, hub.now);
    assert_refused(tunnel, "authority_dropped");
    hub.tickets.forget(hub.now);
    hub.meet_by(&config, &tls.server_name).unwrap_err();
}

#[test]
fn a_tunnel_goes_on_that_began_with_the_former_certificate_of_a_site_that_has_moved() {
    let mut hub = Rotating::new();
    let mut van = hub.hub.enrolled("van-07");
    let began = identity::authorize(&hub.hub.store, &van.chain(), hub.now).unwrap();
    let present = hub.rotate();
    hub.move_to(&mut van, present);
    hub.come(&van).unwrap();

    hub.finish(false).unwrap();

    identity::reauthorize(&hub.hub.store, &began.proof, hub.now).unwrap();
    hub.hub.store.revoke(&name("van-07"), hub.now).unwrap();
    let revoked = identity::reauthorize(&hub.hub.store, &began.proof, hub.now);
    assert_refused(revoked, "site_revoked");
}

#[test]
fn a_revoked_site_does_not_move() {
    let mut hub = Rotating::new();
    let mut van = hub.hub.enrolled("van-07");
    let present = hub.rotate();
    hub.hub.store.revoke(&name("van-07"), hub.now).unwrap();

    van.identity.move_to_authority(present);
    let answer = hub.answer(&van.chain(), &van);

    assert_refused(answer.outcome, "site_revoked");
    hub.finish(false)
        .expect("nobody is locked out who was shut out");
}

#[test]
fn an_edge_that_is_too_old_to_move_renews_as_ever_and_takes_no_authority_that_it_did_not_ask_for() {
    let mut hub = Rotating::new();
    let former = hub.hub.identity.authority.fingerprint();
    let mut van = hub.hub.enrolled("van-07");
    let present = hub.rotate();

    let answer = hub.answer(&van.chain(), &van);
    van.identity.accept(&answer.body).unwrap();
    assert_eq!(van.identity.authority, former);
    let mut moved = Edge {
        identity: EdgeIdentity::load(van.dir.path()).unwrap(),
        dir: tempfile::tempdir().unwrap(),
    };
    moved.identity.move_to_authority(present);
    let other = hub.answer(&van.chain(), &moved);
    let error = van.identity.accept(&other.body).unwrap_err();
    assert!(error.to_string().contains("asked for"), "{error}");

    let stranger = Hub::new().identity.authority.fingerprint();
    van.identity.move_to_authority(stranger);
    let refused = hub.answer(&van.chain(), &van);
    assert_refused(refused.outcome, "unknown_authority");
}

#[test]
fn a_lost_answer_is_given_again_and_an_edge_that_is_cut_short_knows_one_authority_or_the_other() {
    let mut hub = Rotating::new();
    let mut van = hub.hub.enrolled("van-07");
    let file = |name: &str| van.dir.path().join(name);
    let before = fs::read(file("site.json")).unwrap();
    let (json, pem) = (file("site.json"), file("site.pem"));
    let present = hub.rotate();

    van.identity.move_to_authority(present);
    let [first, second] = [(); 2].map(|()| hub.answer(&van.chain(), &van).body);
    assert_eq!(first, second);
    hub.come(&Edge {
        identity: EdgeIdentity::load(van.dir.path()).unwrap(),
        dir: tempfile::tempdir().unwrap(),
    })
    .expect("nothing is kept yet");
    van.identity.accept(&first).unwrap();
    // The first of both files was written, and then the power failed.
    fs::write(&json, before).unwrap();

    van.identity = EdgeIdentity::load(van.dir.path()).unwrap();
    assert_eq!(van.identity.authority, present);
    hub.come(&van).unwrap();
    hub.finish(false).unwrap();
    hub.come(&van).unwrap();
    let mode = fs::metadata(pem).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_rotation_that_is_cut_short_has_not_begun_and_a_finish_is_gone_through_with() {
    let mut hub = Rotating::new();
    let state = hub.hub.dir.path().to_owned();
    let former = hub.hub.identity.authority.fingerprint();
    let loaded = || HubIdentity::load(&state).unwrap();
    fs::create_dir(state.join("next.new")).unwrap();
    fs::write(state.join("next.new/ca.pem"), "half").unwrap();
    assert_eq!(loaded().authority.fingerprint(), former);

    let present = hub.rotate();
    let twice = identity::rotate(&state, hub.now).unwrap_err();
    assert!(matches!(twice, IdentityError::Rotating { .. }), "{twice}");
    assert_eq!(loaded().former.unwrap().authority.fingerprint(), former);

    // Killed in the midst: the name says that it is finished, and one file has moved.
    fs::rename(state.join("next"), state.join("finished")).unwrap();
    fs::rename(state.join("finished/hub.key"), state.join("hub.key")).unwrap();
    let after = loaded();
    assert_eq!(after.authority.fingerprint(), present);
    assert!(after.former.is_none() && !state.join("finished").exists());
    for private in ["ca.key", "hub.key"] {
        let mode = fs::metadata(state.join(private))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{private}");
    }
    hub.follow();
    let car = hub.hub.invite("car-2");
    let car = hub.enrol(Edge::join(&car));
    hub.come(&car).unwrap();
    identity::rotate(&state, hub.now).expect("the next one can begin");
}

#[test]
fn a_foreign_client_needs_the_former_ca_until_that_is_dropped_and_the_present_one_then() {
    let mut hub = Rotating::new();
    let files = tempfile::tempdir().unwrap();
    let bearer = files.path().join("bearer");
    fs::write(&bearer, "sennit_bearer_abc\n").unwrap();
    let client = |ca: &str| {
        let path = files.path().join("ca.pem");
        fs::write(&path, ca).unwrap();
        let proxy = Proxy {
            ca: path,
            name: Some("hub.example.org".into()),
            bearer: Some(bearer.clone()),
        };
        let tls = identity::proxy_config(&proxy, "203.0.113.10").unwrap();
        Arc::new(tls.config)
    };
    let former = client(&hub.hub.identity.authority.pem());
    hub.rotate();
    let loaded = HubIdentity::load(hub.hub.dir.path()).unwrap();
    let both: String = loaded
        .into_authorities()
        .iter()
        .map(Authority::pem)
        .collect();
    let both = client(&both);

    hub.meet_by(&former, "hub.example.org").unwrap();
    hub.meet_by(&both, "hub.example.org").unwrap();
    hub.finish(false).unwrap();
    hub.tickets.forget(hub.now);
    hub.meet_by(&former, "hub.example.org").unwrap_err();
    hub.meet_by(&both, "hub.example.org").unwrap();
}

#[test]
fn sites_that_have_moved_are_counted_and_the_others_named() {
    let mut hub = Rotating::new();
    let mut edges: Vec<Edge> = (0..40)
        .map(|n| hub.hub.enrolled(&format!("s-{n}")))
        .collect();
    let present = hub.rotate();
    let state = hub.hub.dir.path().to_owned();
    let behind = |hub: &Rotating| {
        let rotation = identity::rotation(&state, hub.now).unwrap().unwrap();
        (rotation.behind.len(), rotation.to_string())
    };
    let (count, words) = behind(&hub);
    assert_eq!(count, 40);
    assert!(words.contains("and 30 more"), "{words}");

    let authorities = HubIdentity::load(&state).unwrap().into_authorities();
    for edge in &mut edges {
        edge.identity.move_to_authority(present);
        let request = edge.identity.enrollment_request().unwrap();
        let store = &mut hub.hub.store;
        let answer = identity::exchange(store, &authorities, &edge.chain(), &request, hub.now);
        edge.identity.accept(&answer.body).unwrap();
        let fingerprint = Fingerprint::of(&edge.chain()[0]);
        assert!(store.note_shown(fingerprint.as_bytes()).unwrap());
    }

    let (count, words) = behind(&hub);
    assert_eq!(count, 0);
    assert!(words.contains("all sites know the present one"), "{words}");
    hub.finish(false).unwrap();
}
