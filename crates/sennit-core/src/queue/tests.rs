use bytes::BytesMut;
use sennit_packet::checksum::Progress;

use super::{flow::QUIET, *};

fn packet(flow: u32, len: usize) -> Queued {
    let mut buffer = BytesMut::zeroed(HEADROOM + len);
    buffer[HEADROOM] = 0x45;
    Queued {
        buffer,
        flow,
        in_order: false,
        checksum: Progress::Whole,
        returned: false,
    }
}

fn any(_: &Queued, _: usize) -> Start {
    Start::Head
}

fn only(flow: u32) -> impl Fn(&Queued, usize) -> Start {
    move |it, _| {
        if it.flow == flow {
            Start::Head
        } else {
            Start::Nowhere
        }
    }
}

#[test]
fn numbers_start_over_and_nothing_that_waits_is_lost() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for len in 1..=6 {
        queue.push(packet(1, 100 * len), now);
    }
    assert_eq!(queue.pop(any, now).unwrap().seq, Header::FIRST);
    let behind = |_: &Queued, _: usize| Start::Behind(700);
    let ahead = queue.pop(behind, now).unwrap().packet.packet_len();
    let taken = queue.pop(any, now).unwrap();
    assert_eq!(taken.packet.packet_len(), 200);

    queue.start_over(Some(taken));

    let left = std::iter::from_fn(|| queue.pop(any, now));
    let left: Vec<(u32, usize)> = left
        .map(|it| (it.seq.wrapping_sub(Header::FIRST), it.packet.packet_len()))
        .collect();
    let lens = [200, 300, 400, 500, 600];
    let expected = lens.into_iter().filter(|&len| len != ahead);
    assert_eq!(left, (0..).zip(expected).collect::<Vec<_>>());
    assert!(queue.is_empty());
}

#[test]
fn what_is_put_back_leaves_first_and_with_its_old_number() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for len in 1..=5 {
        queue.push(packet(1, 100 * len), now);
    }
    let mut left: Vec<_> = (0..4).filter_map(|_| queue.pop(any, now)).collect();
    left.remove(1);
    let unsettled = left.into_iter().map(|it| (it.seq, it.packet));

    queue.put_back_all(unsettled.collect(), now);

    let again = std::iter::from_fn(|| queue.pop(any, now));
    let again: Vec<(u32, usize)> = again
        .map(|it| (it.seq.wrapping_sub(Header::FIRST), it.packet.packet_len()))
        .collect();
    assert_eq!(again, [(0, 100), (2, 300), (3, 400), (4, 500)]);
}

/// The far end holds the rest of a flow until what is sent again has come.
#[test]
fn what_is_put_back_is_dropped_neither_for_the_limit_nor_because_it_stands() {
    const COUNT: usize = 300;
    let start = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..COUNT {
        queue.push(packet(1, 1000), start);
    }
    let left: Vec<_> = (0..COUNT).filter_map(|_| queue.pop(any, start)).collect();
    queue.set_rates(0, 0);
    assert!(queue.limit < COUNT * 1000);
    let unsettled = left.into_iter().map(|it| (it.seq, it.packet));
    queue.put_back_all(unsettled.collect(), start);

    queue.push(packet(2, 1000), start);

    assert_eq!(queue.stats().overflowed, 0, "nobody pays for it");
    let mut now = start;
    let again = std::iter::from_fn(|| {
        now += Duration::from_millis(10);
        queue.pop(any, now)
    });
    let whole = again.filter(|popped| popped.packet.packet_len() == 1000);
    assert_eq!(whole.count(), COUNT + 1);
    assert_eq!((queue.stats().dropped, queue.returned), (0, 0));
}

#[test]
fn what_had_left_is_forgotten_and_nothing_else() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for len in 1..=4 {
        queue.push(packet(1, 100 * len), now);
    }
    let left: Vec<_> = (0..2).filter_map(|_| queue.pop(any, now)).collect();
    let unsettled = left.into_iter().map(|it| (it.seq, it.packet));
    queue.put_back_all(unsettled.collect(), now);

    queue.forget_returned();
    queue.start_over(None);

    assert_eq!((queue.backlog(), queue.returned), (700, 0));
    let left = std::iter::from_fn(|| queue.pop(any, now));
    let left: Vec<(u32, usize)> = left
        .map(|it| (it.seq.wrapping_sub(Header::FIRST), it.packet.packet_len()))
        .collect();
    assert_eq!(left, [(0, 300), (1, 400)]);
    assert!(queue.is_empty());
}

/// It tells repeated packets from new ones among the newest 8192 numbers.
#[test]
fn none_leaves_so_early_that_the_far_end_would_take_those_in_turn_for_repeated() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..5000 {
        queue.push(packet(1, 100), now);
    }
    let behind = |_: &Queued, _: usize| Start::Behind(usize::MAX);
    let early = queue.pop(behind, now).unwrap();
    assert_eq!(early.seq.wrapping_sub(Header::FIRST), 4095);
}

/// The far end would take a new packet with the number of an old one for a copy of that.
#[test]
fn what_is_too_old_never_leaves_but_a_number_that_was_given_does() {
    let start = Instant::now();
    let late = start + KEPT_FOR;
    let mut queue = FqCodel::default();
    for _ in 0..4 {
        queue.push(packet(1, 100), start);
    }
    let left = queue.pop(any, start).unwrap();
    let mut held = queue.pop(any, start).unwrap();
    queue.put_back_all(vec![(left.seq, left.packet)], start);
    queue.push(packet(1, 200), late);

    let again = std::iter::from_fn(|| queue.pop(any, late));
    let again: Vec<(u32, usize)> = again
        .map(|it| (it.seq.wrapping_sub(Header::FIRST), it.packet.packet_len()))
        .collect();
    // The second number has left already, with what is held.
    assert_eq!(again, [(0, 0), (2, 200)]);
    assert_eq!(queue.stats().dropped, 3);

    queue.look_again(&mut held, late - Duration::from_millis(1));
    assert_eq!(held.packet.packet_len(), 100);
    queue.look_again(&mut held, late);
    assert_eq!((held.packet.packet_len(), queue.stats().dropped), (0, 4));
    assert_eq!(queue.flow(1).stats.dropped, 4);
}

#[test]
fn on_a_slower_path_nothing_too_old_leaves_ahead_of_its_turn() {
    let start = Instant::now();
    let late = start + KEPT_FOR;
    let mut queue = FqCodel::default();
    for _ in 0..4 {
        queue.push(packet(1, 100), start);
    }
    let behind = |_: &Queued, _: usize| Start::Behind(200);
    let empty = queue.pop(behind, late).unwrap();
    assert_eq!(empty.packet.packet_len(), 0);
    assert!(queue.backlog() == 300 && queue.stats().dropped == 1);
}

#[test]
fn the_caller_says_how_long_packets_may_stand() {
    let start = Instant::now();
    let mut queue = FqCodel::default();
    queue.keep_for(2 * KEPT_FOR);
    queue.push(packet(1, 100), start);
    assert!(queue.pop(any, start + KEPT_FOR).is_some());
}

#[test]
fn a_waking_flow_goes_before_a_standing_one() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..100 {
        queue.push(packet(1, 1400), now);
    }
    assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
    assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
    queue.push(packet(2, 100), now);
    assert_eq!(queue.pop(any, now).unwrap().packet.flow, 2);
}

/// Packets that CoDel drops of flow 1, and of all, in a second in which `flows` flows stand.
fn drops(flows: u32, reaction: Duration) -> (u64, u64) {
    let start = Instant::now();
    let mut queue = FqCodel::default();
    queue.set_target(TARGET, reaction);
    for ms in 0..1000 {
        let now = start + Duration::from_millis(ms);
        // They always have as much again as leaves.
        let many = if ms == 0 { 100 } else { 1 };
        for flow in (1..=flows).cycle().take(many * flows as usize) {
            queue.push(packet(flow, 1000), now);
        }
        for _ in 0..flows {
            queue.pop(any, now);
        }
    }
    (queue.flow(1).stats.dropped, queue.stats().dropped)
}

#[test]
fn a_flow_alone_is_not_told_again_before_it_can_have_reacted() {
    let (quick, slow) = (Duration::ZERO, Duration::from_millis(400));
    assert_eq!(drops(1, slow).0, 3);
    assert!(drops(1, quick).0 > 2 * drops(1, slow).0);
    assert_eq!(drops(2, slow), drops(2, quick));
}

#[test]
fn standing_flows_share_by_bytes_not_by_packets() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..400 {
        queue.push(packet(1, 1400), now);
        for _ in 0..10 {
            queue.push(packet(2, 140), now);
        }
    }
    let mut bytes = [0_usize; 2];
    for _ in 0..2000 {
        let packet = queue.pop(any, now).unwrap().packet;
        bytes[packet.flow as usize - 1] += packet.packet_len();
    }
    assert!(
        bytes[0].abs_diff(bytes[1]) <= 2 * QUANTUM as usize,
        "{bytes:?}"
    );
}

#[test]
fn a_flow_that_may_not_send_does_not_hold_up_the_others() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    queue.push(packet(1, 100), now);
    queue.push(packet(2, 100), now);
    assert_eq!(queue.pop(only(2), now).unwrap().packet.flow, 2);
    assert!(queue.pop(only(2), now).is_none());
    assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
    assert!(queue.is_empty());
}

/// How many packets each of three standing flows gets to send, of 90.
fn served(mut pop: impl FnMut(&mut FqCodel, Instant) -> Option<Popped>) -> [usize; 3] {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    let mut served = [0; 3];
    for flow in (1..=3).cycle().take(3 * 90) {
        queue.push(packet(flow, 700), now);
    }
    for _ in 0..90 {
        let flow = pop(&mut queue, now).unwrap().packet.flow;
        served[flow as usize - 1] += 1;
    }
    served
}

#[test]
fn asking_in_vain_takes_nobodys_turn() {
    let served = served(|queue, now| {
        assert!(queue.pop(only(4), now).is_none());
        queue.pop(any, now)
    });
    assert!(
        served.iter().all(|count| count.abs_diff(30) <= 3),
        "{served:?}"
    );
}

#[test]
fn a_flow_that_not_all_paths_take_gets_its_turn_on_the_others() {
    let mut turns = (0..2).cycle();
    let not_third = |it: &Queued, _: usize| match it.flow {
        3 => Start::Nowhere,
        _ => Start::Head,
    };
    let served = served(|queue, now| match turns.next() {
        Some(0) => queue.pop(not_third, now),
        _ => queue.pop(any, now),
    });
    assert!(served[2] >= 22, "{served:?}");
}

/// A startup may send its window at once.
#[test]
fn the_pace_of_a_burst_makes_no_turn_longer() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    queue.set_rates(6_000_000, 168_000_000);
    for flow in (1..=4).cycle().take(4 * 30) {
        queue.push(packet(flow, 1400), now);
    }
    for _ in 0..8 {
        queue.pop(any, now).unwrap();
    }
    let flows: Vec<u32> = std::iter::from_fn(|| queue.pop(any, now))
        .map(|popped| popped.packet.flow)
        .collect();
    let most = flows.chunk_by(|a, b| a == b).map(<[u32]>::len).max();
    assert!(most <= Some(2), "{flows:?}");
}

#[test]
fn packets_of_several_quanta_keep_coming_and_leave_others_their_share() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..3 {
        queue.push(packet(1, 9000), now);
    }
    for _ in 0..20 {
        queue.push(packet(2, 1500), now);
    }
    let order: Vec<u32> = std::iter::from_fn(|| queue.pop(any, now))
        .map(|popped| popped.packet.flow)
        .collect();
    assert_eq!(order.len(), 23);
    let between = order[1..].iter().position(|&flow| flow == 1);
    assert!((5..=6).contains(&between.unwrap()), "{order:?}");
}

/// Length and number of the next packet, with the first as 0.
fn next(queue: &mut FqCodel, start: Start, now: Instant) -> (usize, u32) {
    let popped = queue.pop(|_, _| start, now).unwrap();
    (popped.packet.packet_len(), place(&popped))
}

fn place(popped: &Popped) -> u32 {
    popped.seq.wrapping_sub(Header::FIRST)
}

#[test]
fn packets_that_leave_ahead_of_their_turn_keep_their_number() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for place in 0..8 {
        queue.push(packet(1, 1000 + place), now);
    }
    let behind = Start::Behind;
    assert_eq!(next(&mut queue, Start::Head, now), (1000, 0));
    assert_eq!(next(&mut queue, behind(3900), now), (1004, 4));
    assert_eq!(next(&mut queue, behind(3900), now), (1005, 5));
    assert_eq!(next(&mut queue, behind(90_000), now), (1007, 7));
    assert_eq!(next(&mut queue, behind(90_000), now), (1006, 6));
    queue.push(packet(1, 1008), now);
    for place in [1, 2, 3, 8] {
        let expected = (1000 + place as usize, place);
        assert_eq!(next(&mut queue, Start::Head, now), expected);
    }
    assert!(queue.is_empty());
    queue.push(packet(1, 1009), now);
    assert_eq!(next(&mut queue, behind(9), now), (1009, 9));
}

#[test]
fn what_would_leave_before_an_early_packet_counts_all_flows() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..10 {
        queue.push(packet(1, 1000), now);
        queue.push(packet(2, 1000), now);
    }
    let popped = queue.pop(|_, _| Start::Behind(8000), now).unwrap();
    assert_eq!((place(&popped), popped.ahead), (4, 8000));
    assert_eq!(popped.backlog, 20_000);
}

#[test]
fn a_drop_leaves_no_number_out() {
    let start = Instant::now();
    let mut queue = FqCodel::default();
    let step = |queue: &mut FqCodel, millis| {
        let now = start + Duration::from_millis(millis);
        queue.push(packet(1, 1400), now);
        queue.push(packet(1, 1400), now);
        next(queue, Start::Head, now)
    };
    for seq in 0..2000 {
        assert_eq!(step(&mut queue, seq), (1400, seq as u32));
    }
    let dropped = queue.stats().dropped;
    assert!(dropped > 20);
    let now = start + Duration::from_secs(2);
    let (_, early) = next(&mut queue, Start::Behind(usize::MAX), now);
    let mut empty = 0;
    for seq in 2000..early {
        let (len, left) = step(&mut queue, seq.into());
        empty += u64::from(len == 0);
        assert_eq!(left, seq);
    }
    assert_eq!(empty, queue.stats().dropped - dropped);
    assert!(empty > 20);
    assert_eq!(step(&mut queue, early.into()), (1400, early + 1));
}

/// Offers twice what is taken, for two seconds; the statistics at the end, and how many of the
/// packets that left had met congestion by their mark.
fn overload(ecn: u8) -> (QueueStats, u64) {
    const CE: u8 = 0b11;
    let start = Instant::now();
    let mut queue = FqCodel::default();
    let mut marked = 0;
    for step in 0..2000 {
        let now = start + Duration::from_millis(step);
        for _ in 0..2 {
            let mut packet = packet(1, 1400);
            packet.buffer[HEADROOM + 1] = ecn;
            packet.buffer[HEADROOM + 2..][..2].copy_from_slice(&1400_u16.to_be_bytes());
            queue.push(packet, now);
        }
        let left = queue.pop(any, now).unwrap().packet;
        marked += u64::from(left.buffer[HEADROOM + 1] & CE == CE);
    }
    (queue.stats(), marked)
}

#[test]
fn a_standing_queue_is_dropped_from_ever_more_often() {
    let (stats, marked) = overload(0);
    assert!(stats.dropped > 20, "{stats:?}");
    assert_eq!((stats.marked, marked), (0, 0));
}

#[test]
fn what_can_be_marked_is_not_dropped() {
    for ect in [0b01, 0b10] {
        let (stats, marked) = overload(ect);
        assert!(stats.marked > 20, "{stats:?}");
        assert_eq!((stats.marked, stats.dropped), (marked, 0));
    }
}

#[test]
fn each_flow_has_its_own_account() {
    let start = Instant::now();
    let mut queue = FqCodel::default();
    for step in 0..2000 {
        let now = start + Duration::from_millis(step);
        queue.push(packet(1, 1400), now);
        queue.push(packet(1, 1400), now);
        queue.pop(any, now).unwrap();
        queue.push(packet(2, 100), now);
        queue.pop(any, now).unwrap();
    }
    let (fat, thin) = (queue.flow(1), queue.flow(2));
    assert!(fat.waiting > 0 && fat.stats.stood > TARGET, "{fat:?}");
    assert!(fat.stats.dropped > 0, "{fat:?}");
    assert_eq!((thin.stats.enqueued, thin.stats.dropped), (2000, 0));
    assert!(thin.stats.stood < Duration::from_millis(2), "{thin:?}");
    assert_eq!(fat.stats.dropped, queue.stats().dropped);
}

/// The queue that a packet of the flow with this hash gets.
fn place_of(queue: &mut FqCodel, hash: u32, now: Instant) -> u32 {
    queue.push(packet(hash, 100), now);
    let place = |hash: u32| hash % FLOWS as u32;
    let popped = std::iter::from_fn(|| queue.pop(any, now)).last();
    place(popped.unwrap().packet.flow)
}

#[test]
fn flows_of_the_same_hash_do_not_wait_for_each_other() {
    const FULL: u32 = FLOWS as u32;
    let now = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..100 {
        queue.push(packet(7, 1400), now);
    }
    queue.pop(any, now).unwrap();
    queue.pop(any, now).unwrap();
    queue.push(packet(7 + FULL, 100), now);
    let popped = queue.pop(any, now).unwrap();
    assert_eq!((popped.packet.packet_len(), place(&popped)), (100, 0));
    // Behind the last way comes the first.
    assert_eq!(popped.packet.flow, FULL);
    // It is its own from now on, and the one next to it is still at home.
    queue.push(packet(0, 100), now);
    assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
}

#[test]
fn a_flow_keeps_its_queue_until_it_falls_silent() {
    let start = Instant::now();
    let mut queue = FqCodel::default();
    let hash = |nth: u32| 16 + nth * FLOWS as u32;
    for nth in 0..8 {
        assert_eq!(place_of(&mut queue, hash(nth), start), 16 + nth);
    }
    // All are taken.
    assert_eq!(place_of(&mut queue, hash(8), start), 16);
    let now = start + QUIET / 2;
    for nth in [0, 1, 2, 3, 4, 6, 7] {
        assert_eq!(place_of(&mut queue, hash(nth), now), 16 + nth);
    }
    let now = start + QUIET;
    assert_eq!(place_of(&mut queue, hash(8), now), 16 + 5);
    assert_eq!(place_of(&mut queue, hash(5), now), 16);
    let now = now + QUIET;
    assert_eq!(place_of(&mut queue, hash(8), now), 16 + 5);
}

#[test]
fn a_queue_in_which_something_stands_is_not_free() {
    let start = Instant::now();
    let mut queue = FqCodel::default();
    queue.push(packet(3, 100), start);
    queue.push(packet(3, 100), start);
    let later = start + 2 * QUIET;
    queue.push(packet(3 + FLOWS as u32, 100), later);
    let flows = [(); 3].map(|()| queue.pop(any, later).unwrap().packet.flow);
    assert_eq!(flows, [3, 3, 4 + FLOWS as u32]);
}

#[test]
fn a_short_burst_is_left_alone() {
    let start = Instant::now();
    let mut queue = FqCodel::default();
    for _ in 0..50 {
        queue.push(packet(1, 1400), start);
    }
    for step in 0..50 {
        assert!(
            queue
                .pop(any, start + Duration::from_millis(step))
                .is_some()
        );
    }
    assert_eq!(queue.stats().dropped, 0);
}

#[test]
fn memory_is_bounded_and_the_fattest_flow_pays() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    queue.push(packet(2, 100), now);
    for _ in 0..2 * LIMIT / 1400 {
        queue.push(packet(1, 1400), now);
    }
    assert!(queue.backlog() <= LIMIT);
    assert!(queue.stats().overflowed > 0);
    let thin = std::iter::from_fn(|| queue.pop(any, now))
        .filter(|popped| popped.packet.flow == 2)
        .count();
    assert_eq!(thin, 1);
}

/// What the places of packets take, and of those that left.
fn places(queue: &FqCodel) -> usize {
    queue.flows.iter().map(|flow| flow.packets.capacity()).sum()
}

/// A packet of 20 bytes counted for 20, and each flow kept the room of its fullest time.
#[test]
fn tiny_packets_take_no_more_memory_than_large_ones_and_give_it_back() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    queue.set_rates(0, 0);
    for flow in 0..FLOWS as u32 {
        for _ in 0..2 * LEAST_LIMIT / LEAST_COST {
            queue.push(packet(flow, 20), now);
        }
        let waiting: usize = queue.flows.iter().map(|flow| flow.waiting).sum();
        assert_eq!(waiting, LEAST_LIMIT / LEAST_COST);
        assert_eq!(std::iter::from_fn(|| queue.pop(any, now)).count(), waiting);
    }
    assert_eq!((queue.bytes, queue.surcharge), (0, 0));
    assert!(
        places(&queue) <= FLOWS * 2 * flow::ROOM,
        "{}",
        places(&queue)
    );
}

#[test]
fn a_flood_of_tiny_packets_pays_for_itself() {
    let now = Instant::now();
    let mut queue = FqCodel::default();
    queue.set_rates(0, 0);
    for _ in 0..40 {
        queue.push(packet(1, 1400), now);
    }
    for _ in 0..5000 {
        queue.push(packet(2, 20), now);
    }
    assert_eq!(queue.flow(1).stats.overflowed, 0);
    assert!(queue.flow(2).stats.overflowed > 0);
}
