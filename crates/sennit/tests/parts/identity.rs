//! Joining, enrolling, renewing, and every reason to be refused.

mod handshakes;
mod invitations;
mod rotation;
mod swapped;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::slice;
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use rustls::HandshakeKind;
use rustls::pki_types::{CertificateDer, ServerName};
use sennit::config::Proxy;
use sennit::identity::{
    self, ClientTls, Credential, EdgeIdentity, Fingerprint, HubIdentity, IdentityError, Invitation,
    MAX_MESSAGE_BYTES, Refusal, Tickets, Trust,
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
            slice::from_ref(&self.identity.authority),
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
fn a_hub_gets_other_names_and_stays_the_hub_that_its_edges_know() {
    let hub = Hub::new();
    let names = ["new.example.org".to_owned()];
    fs::remove_file(hub.dir.path().join(Store::FILE)).unwrap();

    let again = HubIdentity::complete(hub.dir.path(), &names, SystemTime::now()).unwrap();

    let bears = |identity: &HubIdentity, name: &str| {
        let mut parts = identity.chain[0].windows(name.len());
        parts.any(|part| part == name.as_bytes())
    };
    assert!(bears(&hub.identity, "hub.example.org"));
    assert!(bears(&again, "new.example.org") && !bears(&again, "hub.example.org"));
    assert!(bears(&again, "hub.sennit"));
    assert_eq!(again.chain[1], hub.identity.chain[1]);
    assert_eq!(again.key, hub.identity.key);
    assert!(Store::open(hub.dir.path()).is_ok(), "a store that was lost");
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

/// Wherever a join is cut short, the same token goes on with the key that the hub has taken.
#[test]
fn what_was_joined_stays_beside_until_all_of_it_is_in_place() {
    let mut hub = Hub::new();
    let state = hub.enrolled("van-07").dir;
    let draft = state.path().join("joining");
    let invitation = hub.invite("van-08");
    let mut joined = EdgeIdentity::join(&draft, &invitation, false).unwrap();
    let request = joined.enrollment_request().unwrap();
    let answer = hub.answer(&[], &request, Duration::ZERO).body;
    joined.accept(&answer).unwrap();

    let moved = joined.move_to(state.path()).unwrap();

    assert!(moved.is_enrolled() && moved.site == name("van-08"));
    let begun = EdgeIdentity::of_invitation(&draft, &invitation).expect("it is still there");
    assert!(begun.is_same(&moved));
}

#[test]
fn one_joins_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = EdgeIdentity::alone(dir.path()).unwrap();
    let refused = EdgeIdentity::alone(dir.path()).unwrap_err();
    assert!(
        matches!(refused, IdentityError::Joining { .. }),
        "{refused}"
    );
    drop(first);
    drop(EdgeIdentity::alone(dir.path()).unwrap());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is left"
    );
}

/// A daemon asks for a certificate while somebody joins in its state directory.
#[test]
fn an_answer_that_comes_late_takes_nothing_from_who_joined_meanwhile() {
    let mut hub = Hub::new();
    let mut edge = Edge::join(&hub.invite("van-07"));
    let request = edge.identity.enrollment_request().unwrap();
    let answer = hub.answer(&[], &request, Duration::ZERO).body;
    let other = hub.invite("van-08");
    let joined = EdgeIdentity::join(edge.dir.path(), &other, true).unwrap();

    let refused = edge.identity.accept(&answer).unwrap_err();

    assert!(
        matches!(refused, IdentityError::Replaced { .. }),
        "{refused}"
    );
    let kept = EdgeIdentity::load(edge.dir.path()).unwrap();
    assert!(kept.has_key_of(&joined) && !kept.is_enrolled());
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

/// A renewal reads first and writes then: a revocation may come between the two.
#[test]
fn a_certificate_that_was_taken_back_meanwhile_is_not_renewed() {
    let mut hub = Hub::new();
    let (site, now) = (name("van-07"), SystemTime::now());
    let shown = |edge: &Edge| *Fingerprint::of(&edge.chain()[0]).as_bytes();
    let fresh = NewCertificate {
        site: &site,
        fingerprint: &[1; 32],
        authority: &[2; 32],
        der: &[],
        key: &[3; 32],
        not_after: now + DAY,
    };
    let former = shown(&hub.enrolled("van-07"));
    hub.store.revoke(&site, now).unwrap();
    assert!(!hub.store.renew(&former, &fresh).unwrap());

    let lost = shown(&hub.enrolled("van-07"));
    assert!(!hub.store.renew(&former, &fresh).unwrap(), "it stays void");
    let found = shown(&hub.enrolled("van-07"));
    assert!(!hub.store.renew(&lost, &fresh).unwrap(), "it is retired");
    assert_eq!(hub.store.certificate(&[1; 32]).unwrap(), None);
    assert!(hub.store.renew(&found, &fresh).unwrap());
}

/// One of the year 10000 ended the edge that was to show it, and again after each restart.
#[test]
fn an_expiry_that_no_date_can_say_is_not_taken_and_one_that_was_is_exchanged_at_once() {
    let mut hub = Hub::new();
    let mut edge = Edge::join(&hub.invite("van-07"));
    let request = edge.identity.enrollment_request().unwrap();
    let good = hub.answer(&[], &request, Duration::ZERO).body;
    for expires in [253_402_300_800, u64::MAX] {
        let mut answer: serde_json::Value = serde_json::from_slice(&good).unwrap();
        answer["certificate"]["expires"] = expires.into();
        let refused = edge.identity.accept(answer.to_string().as_bytes());
        let refused = refused.unwrap_err();
        assert!(matches!(refused, IdentityError::BadAnswer(_)), "{refused}");
    }
    edge.identity.accept(&good).unwrap();

    let file = edge.dir.path().join("site.json");
    let mut kept: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    kept["expires"] = u64::MAX.into();
    fs::write(&file, kept.to_string()).unwrap();
    let loaded = EdgeIdentity::load(edge.dir.path()).unwrap();
    assert!(loaded.is_enrolled() && loaded.is_renewal_due(SystemTime::now()));
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
