//! Whom an invitation lets in, how often, and until when.

use super::*;

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
        let authorities = slice::from_ref(authority);
        identity::exchange(&mut store, authorities, &[], &request, SystemTime::now()).outcome
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
            authority: &[9; 32],
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
