use std::collections::BTreeSet;

use super::*;

#[test]
fn a_rate_lets_through_what_it_says_and_a_burst() {
    let start = Instant::now();
    let mut allowance = Allowance {
        left: f64::INFINITY,
        at: start,
    };
    let rate = 1e6;
    let mut passed = 0_u64;

    for step in 0..20_000_u32 {
        let now = start + step * Duration::from_micros(500);
        passed += 1200 * u64::from(allowance.take(1200, rate, now));
    }

    let (least, most) = (9_900_000, 10_000_000 + 100_000);
    assert!((least..=most).contains(&passed), "{passed} bytes in 10 s");
}

#[test]
fn a_flow_to_this_host_is_refused_however_it_was_allowed() {
    for target in ["127.0.0.1:9", "[::1]:9"] {
        let refusal = connect(target.parse().unwrap()).unwrap_err();
        // A host without IPv6 has no way there.
        assert!(matches!(refusal.status, 403 | 502 | 503), "{refusal:?}");
        assert!(target.starts_with('[') || refusal.status == 403);
    }
}

#[test]
fn there_is_room_for_flows_beside_other_files() {
    let flows = most_flows();
    assert!((1..=MOST_FLOWS).contains(&flows));
}

#[test]
fn tokens_of_boxes_and_flows_do_not_meet() {
    let tokens: BTreeSet<u64> = (0..64).map(|worker| FIRST_BOX + worker).collect();
    assert!(!tokens.contains(&ORDERS) && tokens.iter().all(|&token| token < FIRST_FLOW));
}
