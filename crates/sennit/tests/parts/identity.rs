//! Joining, enrolling, renewing, and every reason to be refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use rustls::HandshakeKind;
use rustls::pki_types::{CertificateDer, ServerName};
use sennit::config::Proxy;
use sennit::identity::{
    self, ClientTls, Credential, EdgeIdentity, HubIdentity, IdentityError, Invitation,
    MAX_MESSAGE_BYTES, Refusal, Tickets,
};
use sennit::site::SiteName;
use sennit::store::{NewCertificate, Redeemed, Store};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// A hub with its state in a directory of its own.
struct Hub {
    dir: TempDir,
    identity: HubIdentity,
    store: Store,
}

impl Hub {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let identity =
            HubIdentity::init(dir.path(), &["hub.example.org".into()], SystemTime::now()).unwrap();
        let store = Store::open(dir.path()).unwrap();
        Self {
            dir,
            identity,
            store,
        }
    }

    fn invite(&mut self, site: &str) -> Invitation {
        let hubs = ["203.0.113.10:443".parse().unwrap()];
        identity::invite(
            &mut self.store,
            &self.identity.authority,
            &name(site),
            &hubs,
            DAY,
            SystemTime::now(),
        )
        .unwrap()
    }

    /// What the hub answers to `request`, `later` from now, in a connection that showed `peer`.
    fn answer(
        &mut self,
        peer: &[CertificateDer<'_>],
        request: &[u8],
        later: Duration,
    ) -> identity::Exchange {
        let now = SystemTime::now() + later;
        identity::exchange(
            &mut self.store,
            &self.identity.authority,
            peer,
            request,
            now,
        )
    }

    fn enrolled(&mut self, site: &str) -> Edge {
        let invitation = self.invite(site);
        let mut edge = Edge::join(&invitation);
        let request = edge.identity.enrollment_request().unwrap();
        edge.identity
            .accept(&self.answer(&[], &request, Duration::ZERO).body)
            .unwrap();
        edge
    }
}

/// An edge with its state in a directory of its own.
struct Edge {
    dir: TempDir,
    identity: EdgeIdentity,
}

impl Edge {
    fn join(invitation: &Invitation) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let identity = EdgeIdentity::join(dir.path(), invitation, false).unwrap();
        Self { dir, identity }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        match &self.identity.credential {
            Credential::Enrolled { chain, .. } => chain.clone(),
            Credential::Pending { .. } => Vec::new(),
        }
    }
}

fn name(site: &str) -> SiteName {
    site.parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, Refusal>, code: &str) {
    assert_eq!(outcome.unwrap_err().code(), code);
}

#[test]
fn a_token_becomes_a_certificate_that_the_hub_accepts() {
    let mut hub = Hub::new();
    let invitation: Invitation = hub.invite("van-07").to_string().parse().unwrap();
    let mut edge = Edge::join(&invitation);
    assert!(!edge.identity.is_enrolled());

    let request = edge.identity.enrollment_request().unwrap();
    let exchange = hub.answer(&[], &request, Duration::ZERO);
    edge.identity.accept(&exchange.body).unwrap();

    assert_eq!(
        (exchange.http_status, exchange.outcome.unwrap()),
        (200, name("van-07"))
    );
    let again = EdgeIdentity::load(edge.dir.path()).unwrap();
    assert!(again.is_enrolled(), "the certificate is on disk");
    let site = identity::authorize(&hub.store, &edge.chain(), SystemTime::now()).unwrap();
    assert_eq!(site.site, name("van-07"));
}

#[test]
fn keys_and_secrets_are_private_files_and_the_secret_goes_once_it_is_used() {
    let mut hub = Hub::new();
    let invitation = hub.invite("van-07");
    let mut edge = Edge::join(&invitation);
    for (dir, file) in [
        (&hub.dir, "ca.key"),
        (&hub.dir, "hub.key"),
        (&hub.dir, "hub.db"),
        (&edge.dir, "edge.key"),
        (&edge.dir, "site.json"),
    ] {
        assert_eq!(mode(&dir.path().join(file)), 0o600, "{file}");
    }
    assert!(
        fs::read_to_string(edge.dir.path().join("site.json"))
            .unwrap()
            .contains("secret")
    );

    let request = edge.identity.enrollment_request().unwrap();
    edge.identity
        .accept(&hub.answer(&[], &request, Duration::ZERO).body)
        .unwrap();

    let site = fs::read_to_string(edge.dir.path().join("site.json")).unwrap();
    assert!(!site.contains("secret"), "{site}");
    let names: Vec<_> = fs::read_dir(edge.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3, "no temporary file is left: {names:?}");
}

#[test]
fn a_new_state_directory_is_private() {
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("deep/state");

    HubIdentity::init(&state, &[], SystemTime::now()).unwrap();

    assert_eq!(mode(&state), 0o700);
}

#[test]
fn a_hubs_identity_is_never_overwritten() {
    let hub = Hub::new();
    let before = fs::read(hub.dir.path().join("ca.key")).unwrap();

    let again = HubIdentity::init(hub.dir.path(), &[], SystemTime::now());

    assert!(matches!(again, Err(IdentityError::HubExists { .. })));
    assert_eq!(fs::read(hub.dir.path().join("ca.key")).unwrap(), before);
}

#[test]
fn a_hubs_identity_survives_a_restart() {
    let hub = Hub::new();

    let again = HubIdentity::load(hub.dir.path()).unwrap();

    assert_eq!(
        again.authority.fingerprint(),
        hub.identity.authority.fingerprint()
    );
    assert_eq!(again.chain, hub.identity.chain);
}

#[test]
fn an_edge_that_has_joined_joins_again_only_by_force() {
    let mut hub = Hub::new();
    let edge = Edge::join(&hub.invite("van-07"));
    let other = hub.invite("van-08");

    let refused = EdgeIdentity::join(edge.dir.path(), &other, false).unwrap_err();
    let forced = EdgeIdentity::join(edge.dir.path(), &other, true).unwrap();

    assert!(refused.to_string().contains("`van-07`"), "{refused}");
    assert_eq!(forced.site, name("van-08"));
}

#[test]
fn a_lost_answer_is_given_again_to_the_same_key_and_to_no_other() {
    let mut hub = Hub::new();
    let invitation = hub.invite("van-07");
    let (edge, thief) = (Edge::join(&invitation), Edge::join(&invitation));
    let request = edge.identity.enrollment_request().unwrap();

    let first = hub.answer(&[], &request, Duration::ZERO);
    let second = hub.answer(&[], &edge.identity.enrollment_request().unwrap(), DAY / 2);
    let stolen = hub.answer(
        &[],
        &thief.identity.enrollment_request().unwrap(),
        Duration::ZERO,
    );
    let late = hub.answer(&[], &request, DAY);

    assert_eq!(first.body, second.body, "the very same certificate");
    assert_eq!(stolen.http_status, 409);
    assert_refused(stolen.outcome, "token_used");
    assert_refused(late.outcome, "token_expired");
}

#[test]
fn an_expired_token_is_refused() {
    let mut hub = Hub::new();
    let edge = Edge::join(&hub.invite("van-07"));

    let exchange = hub.answer(&[], &edge.identity.enrollment_request().unwrap(), DAY);

    assert_eq!(exchange.http_status, 410);
    assert_refused(exchange.outcome, "token_expired");
}

#[test]
fn a_token_for_another_hub_is_refused() {
    let (mut hub, mut other) = (Hub::new(), Hub::new());
    let edge = Edge::join(&hub.invite("van-07"));

    let exchange = other.answer(
        &[],
        &edge.identity.enrollment_request().unwrap(),
        Duration::ZERO,
    );

    assert_refused(exchange.outcome, "other_hub");
}

#[test]
fn a_token_that_was_never_issued_is_refused() {
    let mut hub = Hub::new();
    let mut forged = hub.invite("van-07");
    forged.secret = sennit::identity::Secret::random();
    let edge = Edge::join(&forged);

    let exchange = hub.answer(
        &[],
        &edge.identity.enrollment_request().unwrap(),
        Duration::ZERO,
    );

    assert_refused(exchange.outcome, "unknown_token");
}

#[test]
fn a_newer_invitation_voids_the_older_one() {
    let mut hub = Hub::new();
    let old = Edge::join(&hub.invite("van-07"));
    let new = Edge::join(&hub.invite("van-07"));

    let refused = hub.answer(
        &[],
        &old.identity.enrollment_request().unwrap(),
        Duration::ZERO,
    );
    let accepted = hub.answer(
        &[],
        &new.identity.enrollment_request().unwrap(),
        Duration::ZERO,
    );

    assert_refused(refused.outcome, "unknown_token");
    assert_eq!(accepted.outcome.unwrap(), name("van-07"));
}

#[test]
fn a_revoked_site_is_let_in_by_neither_token_nor_certificate() {
    let mut hub = Hub::new();
    let invited = Edge::join(&hub.invite("van-07"));
    let enrolled = hub.enrolled("van-08");
    let now = SystemTime::now();
    hub.store.revoke(&name("van-07"), now).unwrap();
    hub.store.revoke(&name("van-08"), now).unwrap();

    let exchange = hub.answer(
        &[],
        &invited.identity.enrollment_request().unwrap(),
        Duration::ZERO,
    );
    let renewal = hub.answer(
        &enrolled.chain(),
        &enrolled.identity.enrollment_request().unwrap(),
        Duration::ZERO,
    );

    assert_refused(exchange.outcome, "site_revoked");
    assert_refused(renewal.outcome, "site_revoked");
    assert_refused(
        identity::authorize(&hub.store, &enrolled.chain(), now),
        "site_revoked",
    );
}

#[test]
fn a_site_that_is_invited_again_after_its_revocation_needs_its_new_token() {
    let mut hub = Hub::new();
    let old = hub.enrolled("van-07");
    hub.store
        .revoke(&name("van-07"), SystemTime::now())
        .unwrap();

    let new = hub.enrolled("van-07");

    let now = SystemTime::now();
    assert_refused(
        identity::authorize(&hub.store, &old.chain(), now),
        "certificate_revoked",
    );
    assert_eq!(
        identity::authorize(&hub.store, &new.chain(), now)
            .unwrap()
            .site,
        name("van-07")
    );
}

#[test]
fn a_site_that_joins_anew_retires_its_older_key_and_its_tunnels() {
    let mut hub = Hub::new();
    let now = SystemTime::now();
    let old = hub.enrolled("van-07");
    let held = identity::authorize(&hub.store, &old.chain(), now).unwrap();
    let other = hub.enrolled("van-08");

    let invited = Edge::join(&hub.invite("van-07"));
    identity::authorize(&hub.store, &old.chain(), now).expect("an invitation alone is no change");
    let request = invited.identity.enrollment_request().unwrap();
    hub.answer(&[], &request, Duration::ZERO).outcome.unwrap();

    let refused = identity::authorize(&hub.store, &old.chain(), now).unwrap_err();
    assert!(refused.to_string().contains("joined anew"), "{refused}");
    assert_refused(
        identity::reauthorize(&hub.store, &held.proof, now),
        "certificate_retired",
    );
    assert!(identity::authorize(&hub.store, &other.chain(), now).is_ok());
    let request = old.identity.enrollment_request().unwrap();
    let renewal = hub.answer(&old.chain(), &request, 300 * DAY);
    assert_refused(renewal.outcome, "certificate_retired");
}

#[test]
fn a_tunnel_lasts_as_long_as_the_newest_certificate_of_its_key() {
    let mut hub = Hub::new();
    let edge = hub.enrolled("van-07");
    let now = SystemTime::now();
    let held = identity::authorize(&hub.store, &edge.chain(), now).unwrap();
    assert_refused(
        identity::reauthorize(&hub.store, &held.proof, now + 366 * DAY),
        "certificate_expired",
    );

    let request = edge.identity.enrollment_request().unwrap();
    hub.answer(&edge.chain(), &request, 250 * DAY)
        .outcome
        .unwrap();

    let still = identity::reauthorize(&hub.store, &held.proof, now + 366 * DAY).unwrap();
    assert!(still.expires > held.expires);
    assert_refused(
        identity::reauthorize(&hub.store, &held.proof, now + 620 * DAY),
        "certificate_expired",
    );
}

#[test]
fn of_many_that_use_a_token_at_once_one_gets_in() {
    let mut hub = Hub::new();
    let invitation = hub.invite("van-07");
    let edges: Vec<Edge> = (0..8).map(|_| Edge::join(&invitation)).collect();
    let start = Barrier::new(edges.len());
    let (state, authority) = (hub.dir.path(), &hub.identity.authority);
    let join = |edge: &Edge| {
        let request = edge.identity.enrollment_request().unwrap();
        let mut store = Store::open(state).unwrap();
        start.wait();
        identity::exchange(&mut store, authority, &[], &request, SystemTime::now()).outcome
    };

    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let joins: Vec<_> = edges
            .iter()
            .map(|edge| scope.spawn(|| join(edge)))
            .collect();
        joins.into_iter().map(|it| it.join().unwrap()).collect()
    });

    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for refused in outcomes.into_iter().filter(Result::is_err) {
        assert_refused(refused, "token_used");
    }
}

#[test]
fn a_token_is_judged_when_it_is_used_up_and_not_before() {
    let mut hub = Hub::new();
    let now = SystemTime::now();
    let certificate = |site, n: u8| (name(site), [n; 32]);
    let redeem = |store: &mut Store, token: &Invitation, (site, key): &(SiteName, [u8; 32]), at| {
        let certificate = NewCertificate {
            site,
            fingerprint: key,
            der: b"certificate",
            key,
            not_after: now + 365 * DAY,
        };
        store
            .redeem(&token.secret.hash(), &certificate, at)
            .unwrap()
    };
    let van = hub.invite("van-07");
    assert_eq!(
        redeem(&mut hub.store, &van, &certificate("van-08", 1), now),
        Redeemed::Unknown
    );
    assert_eq!(
        redeem(
            &mut hub.store,
            &van,
            &certificate("van-07", 1),
            now + 30 * DAY
        ),
        Redeemed::Expired
    );
    hub.store.revoke(&name("van-07"), now).unwrap();
    assert_eq!(
        redeem(&mut hub.store, &van, &certificate("van-07", 1), now),
        Redeemed::SiteRevoked
    );
    let newer = hub.invite("van-07");
    assert_eq!(
        redeem(&mut hub.store, &van, &certificate("van-07", 1), now),
        Redeemed::Unknown
    );
    assert_eq!(
        redeem(&mut hub.store, &newer, &certificate("van-07", 2), now),
        Redeemed::Done
    );
    assert_eq!(
        redeem(&mut hub.store, &newer, &certificate("van-07", 3), now),
        Redeemed::Used
    );
}

#[test]
fn a_private_key_that_others_can_read_is_not_used() {
    let mut hub = Hub::new();
    let edge = hub.enrolled("van-07");
    let exposed = |error: IdentityError| {
        let said = error.to_string();
        matches!(error, IdentityError::Exposed { .. }) && said.contains("by others")
    };
    for mode in [0o666, 0o640, 0o604, 0o620] {
        let allow = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for key in ["ca.key", "hub.key"].map(|file| hub.dir.path().join(file)) {
            allow(&key, mode);
            assert!(
                HubIdentity::load(hub.dir.path()).is_err_and(exposed),
                "{mode:o}"
            );
            allow(&key, 0o600);
        }
        let key = edge.dir.path().join("edge.key");
        allow(&key, mode);
        assert!(
            EdgeIdentity::load(edge.dir.path()).is_err_and(exposed),
            "{mode:o}"
        );
        allow(&key, 0o400);
        EdgeIdentity::load(edge.dir.path()).unwrap();
        allow(&key, 0o600);
    }
    HubIdentity::load(hub.dir.path()).unwrap();
}

#[test]
fn certificates_are_refused_when_expired_foreign_or_absent() {
    let (mut hub, mut other) = (Hub::new(), Hub::new());
    let edge = hub.enrolled("van-07");
    let foreign = other.enrolled("van-07");
    let now = SystemTime::now();

    assert_refused(
        identity::authorize(&hub.store, &edge.chain(), now + 366 * DAY),
        "certificate_expired",
    );
    assert_refused(
        identity::authorize(&hub.store, &foreign.chain(), now),
        "unknown_site",
    );
    assert_refused(identity::authorize(&hub.store, &[], now), "no_credential");
}

#[test]
fn a_certificate_is_renewed_by_showing_it() {
    let mut hub = Hub::new();
    let mut edge = hub.enrolled("van-07");
    let old = edge.chain();
    let now = SystemTime::now();
    assert!(!edge.identity.is_renewal_due(now));
    assert!(edge.identity.is_renewal_due(now + 250 * DAY));

    let request = edge.identity.enrollment_request().unwrap();
    let without = hub.answer(&[], &request, 250 * DAY);
    let exchange = hub.answer(&old, &request, 250 * DAY);
    edge.identity.accept(&exchange.body).unwrap();
    let again = hub.answer(&old, &request, 250 * DAY + DAY / 2);
    assert_eq!(
        again.body, exchange.body,
        "an answer that was lost is repeated"
    );

    assert_refused(without.outcome, "no_credential");
    assert_ne!(edge.chain(), old);
    assert!(!edge.identity.is_renewal_due(now + 250 * DAY));
    let site = identity::authorize(&hub.store, &edge.chain(), now + 400 * DAY).unwrap();
    assert_eq!(site.site, name("van-07"));
}

#[test]
fn a_certificate_is_not_renewed_for_the_key_of_another() {
    let mut hub = Hub::new();
    let edge = hub.enrolled("van-07");
    let other = hub.enrolled("van-08");

    let exchange = hub.answer(
        &edge.chain(),
        &other.identity.enrollment_request().unwrap(),
        DAY,
    );

    assert_refused(exchange.outcome, "malformed");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut hub = Hub::new();
    let edge = Edge::join(&hub.invite("van-07"));
    let good = String::from_utf8(edge.identity.enrollment_request().unwrap()).unwrap();
    let csr_start = good.find("\"csr\":\"").unwrap() + 7;
    let mut forged = good.clone();
    forged.replace_range(csr_start + 80..csr_start + 84, "AAAA");

    for bad in [
        "",
        "{}",
        "null",
        "{\"csr\":\"\"}x",
        &good[..good.len() - 1],
        &forged,
        &" ".repeat(MAX_MESSAGE_BYTES + 1),
    ] {
        let exchange = hub.answer(&[], bad.as_bytes(), Duration::ZERO);
        assert_eq!(exchange.http_status, 400, "{bad:.60}");
        assert_refused(exchange.outcome, "malformed");
    }
    assert_eq!(
        hub.answer(&[], good.as_bytes(), Duration::ZERO).http_status,
        200,
        "none of them used the token up"
    );
}

#[test]
fn an_edge_keeps_no_answer_but_its_own_certificate() {
    let mut hub = Hub::new();
    let mut edge = Edge::join(&hub.invite("van-07"));
    let stranger = Edge::join(&hub.invite("van-08"));
    let foreign = hub
        .answer(
            &[],
            &stranger.identity.enrollment_request().unwrap(),
            Duration::ZERO,
        )
        .body;
    let mut other_hub = Hub::new();
    let invitation = Invitation {
        secret: other_hub.invite("van-07").secret,
        authority: other_hub.identity.authority.fingerprint(),
        ..hub.invite("van-07")
    };
    let elsewhere = Edge::join(&invitation);
    let other_authority = other_hub
        .answer(
            &[],
            &elsewhere.identity.enrollment_request().unwrap(),
            Duration::ZERO,
        )
        .body;

    for answer in [
        &b""[..],
        b"{}",
        b"{\"certificate\":{\"chain\":[],\"expires\":0}}",
        &foreign,
        &other_authority,
    ] {
        let refused = edge.identity.accept(answer).unwrap_err();
        assert!(matches!(refused, IdentityError::BadAnswer(_)), "{refused}");
    }
    let refusal = br#"{"refused":{"code":"token_used","reason":"the token was already used"}}"#;
    let refused = edge.identity.accept(refusal).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the hub refused: the token was already used"
    );
    assert!(!edge.identity.is_enrolled());
}

#[test]
fn a_bearer_token_lets_in_until_it_expires_or_the_site_is_revoked() {
    let mut hub = Hub::new();
    let now = SystemTime::now();
    let mut token =
        |site: &str, ttl| identity::invite_bearer(&mut hub.store, &name(site), ttl, now).unwrap();
    let (lasting, short) = (token("phone", None), token("laptop", Some(DAY)));
    let lookup =
        |hub: &Hub, token: &str, later| identity::authorize_bearer(&hub.store, token, now + later);

    assert_eq!(
        lookup(&hub, &lasting, 1000 * DAY).unwrap().site,
        name("phone")
    );
    assert_eq!(lookup(&hub, &short, DAY / 2).unwrap().site, name("laptop"));
    assert_refused(lookup(&hub, &short, DAY), "token_expired");
    assert_refused(lookup(&hub, "sennit_bearer_AAAA", DAY), "unknown_token");
    assert_refused(lookup(&hub, "", DAY), "unknown_token");
    let invitation = hub.invite("van-07").secret;
    let as_bearer = format!("sennit_bearer_{}", base64_of(invitation.as_bytes()));
    assert_refused(lookup(&hub, &as_bearer, Duration::ZERO), "unknown_token");
    hub.store.revoke(&name("phone"), now).unwrap();
    assert_refused(lookup(&hub, &lasting, Duration::ZERO), "unknown_token");
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[test]
fn directories_without_an_identity_are_told_from_damaged_ones() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(
        HubIdentity::load(empty.path()),
        Err(IdentityError::NoHub { .. })
    ));
    assert!(matches!(
        EdgeIdentity::load(empty.path()),
        Err(IdentityError::NotJoined { .. })
    ));

    fs::write(empty.path().join("ca.pem"), "nonsense").unwrap();
    fs::write(empty.path().join("site.json"), "{\"site\":\"-\"}").unwrap();
    assert!(matches!(
        HubIdentity::load(empty.path()),
        Err(IdentityError::Damaged { .. })
    ));
    assert!(matches!(
        EdgeIdentity::load(empty.path()),
        Err(IdentityError::Damaged { .. })
    ));
}

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
    let server = identity::server_config(hub, Arc::new(tickets), require_pq).unwrap();
    meet(&Arc::new(client), name, server)
}

/// A handshake and what follows it.
fn meet(
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
struct Seen {
    resumed: bool,
    /// Bytes that the server sent after the handshake.
    after: usize,
    peer: Vec<CertificateDer<'static>>,
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
        let server = identity::server_config(&self.hub.identity, tickets, false).unwrap();
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
    let server = identity::server_config(&other.identity, others, false).unwrap();
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
        let server = identity::server_config(&van.hub.identity, van.tickets(), require_pq);
        meet(&van.classic, van.server_name.clone(), server.unwrap())
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
        let server = identity::server_config(&hub.identity, tickets, false).unwrap();
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
fn a_clock_far_from_the_hubs_is_noticed_and_a_near_one_is_not() {
    let mut hub = Hub::new();
    let edge = hub.enrolled("van-07");
    let Credential::Enrolled { expires, .. } = edge.identity.credential.clone() else {
        panic!("it is enrolled");
    };
    let issued = expires - 365 * DAY;

    assert_eq!(edge.identity.other_clock(issued), None);
    assert_eq!(
        edge.identity.other_clock(issued + DAY),
        None,
        "an answer repeated"
    );
    for far in [issued + 250 * DAY, issued - 10_000 * DAY] {
        assert_eq!(edge.identity.other_clock(far), Some(issued));
    }
    assert!(edge.identity.is_renewal_due(issued + 250 * DAY));
}

/// Every run tries the same cases.
fn seeded() -> ProptestConfig {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x5e_17);
    ProptestConfig {
        rng_seed,
        failure_persistence: None,
        cases: 64,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn any_text_is_a_token_or_refused(text in "(sennit_)?[A-Za-z0-9_=-]{0,300}") {
        // The check makes a token by chance impossible.
        prop_assert!(text.parse::<Invitation>().is_err());
    }

    #[test]
    fn any_altered_request_gets_nobody_but_the_edge_a_certificate(at in 0..600_usize, byte: u8, cut: bool) {
        let mut hub = Hub::new();
        let mut edge = Edge::join(&hub.invite("van-07"));
        let mut request = edge.identity.enrollment_request().unwrap();
        let at = at % request.len();
        if cut { request.truncate(at) } else { request[at] = byte }

        let exchange = hub.answer(&[], &request, Duration::ZERO);

        prop_assert_eq!(edge.identity.accept(&exchange.body).is_ok(), exchange.outcome.is_ok());
        prop_assert!(!cut || exchange.outcome.is_err());
    }

    #[test]
    fn any_answer_is_taken_or_refused(answer in "(\\{\"(certificate|refused)\":\\{)?[a-z0-9\"\\[\\]{}:,]{0,80}") {
        let mut hub = Hub::new();
        let mut edge = Edge::join(&hub.invite("van-07"));
        prop_assert!(edge.identity.accept(answer.as_bytes()).is_err());
    }
}
