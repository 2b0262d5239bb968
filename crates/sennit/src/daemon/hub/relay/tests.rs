use std::collections::BTreeSet;

use crate::reach::Reach;

use super::*;

#[test]
fn a_rate_lets_through_what_it_says_and_a_burst() {
    let start = Instant::now();
    let mut allowance = Allowance {
        left: f64::INFINITY,
        at: start,
    };
    let rate = Bitrate::mbit(8);
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
    let mut netlink = Netlink::open().unwrap();
    for target in ["127.0.0.1:9", "127.255.255.255:9", "[::1]:9"] {
        let refusal = connect(target.parse().unwrap(), &mut netlink).unwrap_err();
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

#[test]
fn flows_end_with_what_they_were_granted_to_and_others_stay() {
    let poller = Poller::new().unwrap();
    let (verdicts, slot) = mailbox::open(&poller, 0).unwrap();
    let udp = ConnectUdp {
        reach: Reach::everything(),
        ports: vec![0..=u16::MAX],
        flows: 64,
        idle: Duration::from_secs(60),
        rate: None,
    };
    let (mut relay, orders, _) = Relay::new(udp, &[], 1, [slot].into()).unwrap();
    for number in 0..3 {
        let token = FIRST_FLOW + u64::from(number);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        relay.poller.add(&socket, token, Interest::Read).unwrap();
        let flow = Flow {
            worker: 0,
            request: RequestId::of_nobody(number.into()),
            site: "phone".into(),
            credential: [number; 32],
            socket,
            used: Instant::now(),
        };
        relay.flows.insert(token, flow);
    }

    orders.post(Order::Expel([9; 32]));
    orders.post(Order::Expel([1; 32]));
    relay.follow_orders(Instant::now());

    let said = std::iter::from_fn(|| verdicts.next());
    let ended = said.map(|verdict| match verdict {
        Verdict::EndUdp(request) => request,
        other => panic!("{other:?}"),
    });
    assert_eq!(ended.collect::<Vec<_>>(), [RequestId::of_nobody(1)]);
    assert_eq!(relay.flows.len(), 2);
}
