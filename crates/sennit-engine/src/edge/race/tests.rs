use super::*;

const LTE: SocketId = SocketId(0);
const DSL: SocketId = SocketId(1);
const SECOND: Duration = Duration::from_secs(1);

fn to(link: SocketId, exchange: Exchange) -> Attempt {
    let hub = "203.0.113.1:443".parse().expect("an address");
    (link, hub, exchange)
}

/// A race in which handshakes began over these links at `now`, with IDs from 1.
fn race(links: &[SocketId], now: Instant) -> Dial {
    let mut dial = Dial::new(now);
    for (&link, id) in links.iter().zip(1..) {
        let attempt = (ConnId(id), now);
        dial.attempts.insert(to(link, Exchange::Usual), attempt);
    }
    dial
}

#[test]
fn a_link_on_which_handshakes_fail_waits_ever_longer_and_another_need_not() {
    let now = Instant::now();
    let mut dial = race(&[LTE, DSL], now);
    let mut waits = Vec::new();
    for _ in 0..6 {
        dial.failed(ConnId(1), LTE, now);
        waits.push((dial.not_before[&LTE] - now).as_millis());
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000]);
    assert!(!dial.may_try(LTE, now + 7 * SECOND) && dial.may_try(LTE, now + 8 * SECOND));
    assert!(dial.may_try(DSL, now) && dial.is_failing());
    assert!(!dial.is_tried(LTE) && dial.is_tried(DSL));

    dial.granted();
    assert!(dial.may_try(LTE, now) && !dial.is_failing());
}

#[test]
fn a_hub_that_refuses_is_asked_ever_more_rarely_over_all_links() {
    let now = Instant::now();
    let mut dial = race(&[LTE, DSL], now);
    let mut waits = Vec::new();
    for _ in 0..8 {
        dial.turned_away(ConnId(1), [LTE, DSL].into_iter(), now);
        assert_eq!(dial.not_before[&LTE], dial.not_before[&DSL]);
        waits.push((dial.not_before[&LTE] - now).as_secs());
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);

    // Another tunnel is heard meanwhile, which says nothing of who is refused.
    dial.failures = 1;
    dial.calm(now);
    assert!(!dial.may_try(LTE, now + 299 * SECOND));
    dial.retry_soon(now);
    assert!(dial.may_try(LTE, now), "something has changed");
}

#[test]
fn the_first_handshake_that_nobody_answers_is_kept_beside_those_after_it() {
    let now = Instant::now();
    let mut dial = race(&[LTE], now);
    let attempt = to(LTE, Exchange::Usual);
    assert!(dial.is_kept_late(attempt));
    dial.attempts.insert(attempt, (ConnId(2), now + ATTEMPT));
    assert!(!dial.is_kept_late(attempt), "one is enough");
    dial.attempts
        .insert(attempt, (ConnId(3), now + 2 * ATTEMPT));
    assert_eq!(dial.tries().count(), 2);

    assert_eq!(dial.revive(attempt, ConnId(9)), None, "of another one");
    assert_eq!(dial.revive(attempt, ConnId(1)), Some(ConnId(3)));
    assert_eq!(dial.attempts[&attempt].0, ConnId(1));
}

#[test]
fn what_is_to_begin_anew_is_older_than_the_wait_before_the_next_attempt_and_not_late() {
    let now = Instant::now();
    let mut dial = race(&[LTE, DSL], now);
    assert!(dial.is_kept_late(to(DSL, Exchange::Usual)));
    assert!(dial.take_old(|_, _| true, now + RETRY / 2).is_empty());
    assert!(dial.take_old(|link, _| link == DSL, now + RETRY).is_empty());
    assert_eq!(dial.take_old(|_, _| true, now + RETRY), [ConnId(1)]);
    assert!(!dial.is_tried(LTE));
    assert_eq!(dial.tries().count(), 1, "the late one goes on");
}

#[test]
fn a_handshake_is_not_hoped_for_for_ever() {
    let now = Instant::now();
    let mut dial = race(&[LTE, DSL], now);
    assert!(dial.is_kept_late(to(LTE, Exchange::Usual)));
    assert!(dial.take_too_late(now + LONGEST - SECOND).is_empty());
    assert_eq!(dial.take_too_late(now + LONGEST), [ConnId(1)]);
    assert_eq!(dial.take_attempts(), [ConnId(2)], "which is not late yet");
}

#[test]
fn a_classic_handshake_joins_on_a_link_on_which_two_went_unanswered() {
    let now = Instant::now();
    let mut dial = race(&[LTE, DSL], now);
    assert_eq!(dial.without_classic(LTE), None);
    dial.stalled.insert(LTE, BEFORE_CLASSIC);
    assert_eq!(dial.without_classic(LTE), Some(now));
    assert_eq!(dial.without_classic(DSL), None);

    dial.attempts
        .insert(to(LTE, Exchange::Classic), (ConnId(3), now));
    assert!(dial.is_classic(ConnId(3)) && !dial.is_classic(ConnId(1)));
    assert_eq!(dial.without_classic(LTE), None, "it is there");
}

#[test]
fn a_post_quantum_handshake_that_is_ready_takes_the_place_of_a_classic_one() {
    let now = Instant::now();
    let mut dial = race(&[LTE, DSL], now);
    dial.attempts
        .insert(to(LTE, Exchange::Classic), (ConnId(3), now));
    assert!(dial.keep_classic(ConnId(3), now + SECOND));
    assert!(!dial.keep_classic(ConnId(3), now + 9 * SECOND));
    assert_eq!(dial.spare, Some((ConnId(3), now + SECOND)));

    dial.keep_spare(ConnId(1), now);
    assert_eq!(dial.spare, Some((ConnId(1), now + OLD_FIRST)));
    dial.keep_spare(ConnId(2), now + SECOND);
    assert_eq!(dial.spare, Some((ConnId(1), now + OLD_FIRST)), "the first");
    dial.failed(ConnId(1), LTE, now);
    assert_eq!(dial.spare, None);
}

#[test]
fn a_connection_that_won_has_so_long_until_its_request_is_overdue() {
    let now = Instant::now();
    let mut dial = race(&[LTE, DSL], now);
    dial.unanswered.insert(DSL);
    dial.won(ConnId(1), ATTEMPT, now);

    assert_eq!(dial.answer_by, Some(now + ATTEMPT));
    assert!(dial.unanswered.is_empty() && !dial.is_settled());
    assert_eq!(dial.take_attempts(), [ConnId(2)], "nobody needs the others");
    dial.granted();
    assert!(dial.is_settled());
}

#[test]
fn a_link_that_comes_again_and_again_puts_a_race_off_once() {
    let now = Instant::now();
    let mut dial = Dial::new(now);
    dial.cut_off = Some(now);
    dial.wait_for_old(now + SECOND);
    assert_eq!(dial.cut_off, None, "the old connection may be heard there");

    dial.cut_off = Some(now + 2 * SECOND);
    dial.wait_for_old(now + WAITS_FOR);
    assert_eq!(dial.cut_off, Some(now + 2 * SECOND));
    dial.handle_heard();
    assert!(dial.is_settled());
}
