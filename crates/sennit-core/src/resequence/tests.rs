mod orders;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// The sender's clock, which is about to wrap.
fn sent_micros(millis: u32) -> u32 {
    0_u32
        .wrapping_sub(100_000)
        .wrapping_add(1000_u32.wrapping_mul(millis))
}

/// A receiver and what it has passed on.
struct Receiver {
    start: Instant,
    resequencer: Resequencer<u32>,
    repair: Duration,
    released: Vec<u32>,
}

impl Receiver {
    fn new() -> Self {
        let start = Instant::now();
        Self {
            start,
            resequencer: Resequencer::new(start),
            repair: Duration::ZERO,
            released: Vec::new(),
        }
    }

    /// It knows that path 1 is 20 ms slower than path 0, and has seen packets 0 to 39 by the time
    /// 200.
    fn with_two_paths() -> Self {
        let mut receiver = Self::new();
        for seq in 0..20 {
            receiver.packet(2 * seq, 0, 10 * seq, 10 * seq + 10, false);
            receiver.packet(2 * seq + 1, 1, 10 * seq, 10 * seq + 30, false);
        }
        receiver.released.clear();
        receiver
    }

    /// Packet `seq` of flow 1, sent at one time, in milliseconds, arrives by a path at another.
    fn packet(&mut self, seq: u32, path: u32, sent: u32, arrives: u32, ordered: bool) {
        self.early(seq, path, (sent, 0), arrives, ordered);
    }

    /// Packet `seq` of flow 1, sent ahead of its turn, arrives by a path at another time.
    fn early(&mut self, seq: u32, path: u32, sent: (u32, u32), arrives: u32, ordered: bool) {
        let now = self.start + MS * arrives;
        self.expire(now);
        let (sent, early) = sent;
        let header = Header {
            flow: 1,
            ordered,
            early: MS * early,
            seq: Header::FIRST.wrapping_add(seq),
            sent_micros: sent_micros(sent),
        };
        let released = &mut self.released;
        self.resequencer
            .handle_packet(&header, path, seq, 1000, |seq| released.push(seq), now);
    }

    fn expire(&mut self, now: Instant) {
        let released = &mut self.released;
        self.resequencer
            .handle_timeout(self.repair, |seq| released.push(seq), now);
    }
}

/// One packet per millisecond, every fourth over a path that is 20 ms slower.
fn striped(lost: &[u32]) -> Receiver {
    let mut receiver = Receiver::new();
    let mut arrivals: Vec<(u32, u32, u32)> = (0..400)
        .filter(|seq| !lost.contains(seq))
        .map(|seq| {
            if seq % 4 == 0 {
                (seq + 30, 1, seq)
            } else {
                (seq + 10, 0, seq)
            }
        })
        .collect();
    arrivals.sort_unstable();
    // Reports have told how late the slower path is.
    let (now, sent) = (receiver.start, sent_micros(0).wrapping_sub(30_000));
    receiver.resequencer.handle_clock(1, sent, now);
    for (at, path, seq) in arrivals {
        receiver.packet(seq, path, seq, at, true);
    }
    receiver.expire(receiver.start + MS * 1000);
    receiver
}

#[test]
fn a_striped_flow_comes_out_in_order_and_whole() {
    let receiver = striped(&[]);
    assert_eq!(receiver.released, (0..400).collect::<Vec<_>>());
    assert_eq!(receiver.resequencer.stats().missed, 0);
    assert_eq!(receiver.resequencer.held_bytes(), 0);
}

#[test]
fn what_was_lost_is_given_up_on_and_the_rest_stays_in_order() {
    let lost = [40, 101, 102, 250];
    let receiver = striped(&lost);
    let expected: Vec<u32> = (0..400).filter(|seq| !lost.contains(seq)).collect();
    assert_eq!(receiver.released, expected);
    assert_eq!(receiver.resequencer.stats().missed, 4);
}

#[test]
fn a_gap_is_given_up_on_once_all_paths_have_passed_it() {
    let mut receiver = Receiver::with_two_paths();
    // 40 is lost; the slow path delivers at 230 what was sent at 200.
    receiver.packet(41, 0, 200, 210, true);
    receiver.packet(43, 0, 204, 214, true);
    receiver.packet(42, 1, 204, 234, true);
    receiver.expire(receiver.start + MS * 235);
    assert_eq!(receiver.released, [41, 42, 43]);
}

#[test]
fn what_left_ahead_of_its_turn_does_not_make_those_before_it_hopeless() {
    let mut receiver = Receiver::with_two_paths();
    // 45 took the slow path 20 ms before its turn; both paths have passed 200 by the time 230.
    receiver.early(45, 1, (200, 20), 230, true);
    receiver.packet(40, 0, 201, 231, true);
    receiver.expire(receiver.start + MS * 235);
    for seq in 41..45 {
        receiver.packet(seq, 0, 180 + seq, 190 + seq, true);
    }
    assert_eq!(receiver.released, [40, 41, 42, 43, 44, 45]);
    assert_eq!(receiver.resequencer.stats().missed, 0);
    // But they are not waited for much longer than that.
    receiver.early(50, 1, (240, 20), 270, true);
    receiver.expire(receiver.start + MS * 295);
    assert_eq!(receiver.released.last(), Some(&50));
}

#[test]
fn a_packet_in_its_turn_ends_the_wait_for_that_of_one_before_it() {
    let mut receiver = Receiver::with_two_paths();
    let until = receiver.start + MS * 1000;
    receiver.resequencer.expect_repairs(MS * 100, until);
    // 45 is thought to be 240 ms early, and 46 comes at once: what is missing was on its way too.
    receiver.early(45, 0, (200, 240), 210, true);
    receiver.packet(46, 0, 204, 214, true);
    receiver.expire(receiver.start + MS * 465);
    assert_eq!(receiver.released, [45, 46]);
}

#[test]
fn a_path_of_which_nothing_comes_is_waited_for_no_longer_than_its_delay() {
    let mut receiver = Receiver::with_two_paths();
    receiver.packet(41, 0, 200, 210, true);
    let at = receiver
        .resequencer
        .poll_timeout(Duration::ZERO, receiver.start + MS * 220)
        .unwrap();
    let due = at - receiver.start;
    assert!((MS * 230..MS * 240).contains(&due), "{due:?}");
    receiver.expire(at);
    assert_eq!(receiver.released, [41]);
}

#[test]
fn a_repair_is_waited_for() {
    let mut receiver = Receiver::new();
    receiver.repair = MS * 40;
    receiver.packet(0, 0, 0, 10, true);
    receiver.packet(2, 0, 2, 12, true);
    receiver.packet(3, 0, 30, 40, true);
    assert_eq!(receiver.released, [0]);
    receiver.packet(1, 0, 31, 41, true);
    assert_eq!(receiver.released, [0, 1, 2, 3]);
    // One of a few was sent again, so several repairs are waited for; but not for ever.
    receiver.packet(5, 0, 50, 60, true);
    receiver.expire(receiver.start + MS * 200);
    assert_eq!(receiver.released, [0, 1, 2, 3]);
    receiver.expire(receiver.start + MS * 320);
    assert_eq!(receiver.released, [0, 1, 2, 3, 5]);
}

#[test]
fn one_repair_is_waited_for_where_few_are_needed() {
    let mut receiver = Receiver::new();
    receiver.repair = MS * 40;
    for seq in 0..8000 {
        receiver.packet(seq, 0, seq, seq + 10, true);
    }
    receiver.released.clear();
    receiver.packet(8001, 0, 8001, 8011, true);
    receiver.expire(receiver.start + MS * 8045);
    assert_eq!(receiver.released, []);
    receiver.expire(receiver.start + MS * 8060);
    assert_eq!(receiver.released, [8001]);
}

#[test]
fn a_flow_whose_order_does_not_matter_is_never_held() {
    let mut receiver = Receiver::new();
    for seq in [0, 3, 1, 2, 5, 4] {
        receiver.packet(seq, 0, seq, 10 + seq, false);
    }
    assert_eq!(receiver.released, [0, 3, 1, 2, 5, 4]);
}

#[test]
fn second_copies_are_dropped() {
    let mut receiver = Receiver::new();
    for (seq, ordered) in [
        (0, true),
        (0, true),
        (2, true),
        (2, true),
        (1, true),
        (1, false),
    ] {
        receiver.packet(seq, 0, seq, 10, ordered);
    }
    assert_eq!(receiver.released, [0, 1, 2]);
    assert_eq!(receiver.resequencer.stats().duplicates, 3);
}

#[test]
fn jitter_that_reorders_one_path_is_waited_for() {
    let mut receiver = Receiver::new();
    let mut seed = 5_u32;
    let mut arrivals: Vec<(u32, u32)> = (0..1000)
        .map(|seq| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seq + 30 + (seed >> 16) % 10, seq)
        })
        .collect();
    arrivals.sort_unstable();
    for (at, seq) in arrivals {
        receiver.packet(seq, 0, seq, at, true);
    }
    let disorder = receiver
        .released
        .windows(2)
        .filter(|pair| pair[0] > pair[1])
        .count();
    assert!(disorder <= 5, "{disorder} of 1000 overtaken");
}

#[test]
fn numbers_wrap_and_may_start_over() {
    let mut receiver = Receiver::new();
    let far = 3_000_000_000;
    for (at, seq) in [far, far + 1, u32::MAX, 1, 0, 2].into_iter().enumerate() {
        receiver.packet(seq, 0, at as u32, 10 + at as u32, true);
    }
    assert_eq!(receiver.released, [far, far + 1, u32::MAX, 0, 1, 2]);
}

#[test]
fn memory_is_bounded() {
    let mut receiver = Receiver::new();
    for seq in 1..3 * FLOW_LIMIT as u32 {
        receiver.packet(2 * seq, 0, 0, 10, true);
        assert!(receiver.resequencer.held_bytes() <= FLOW_LIMIT as usize * 1000);
    }
    assert!(receiver.resequencer.stats().overflows > 0);
}

#[test]
fn a_number_far_ahead_takes_no_more_memory_than_the_rest() {
    let mut receiver = Receiver::new();
    receiver.packet(0, 0, 0, 10, true);
    receiver.packet(2, 0, 2, 12, true);
    let far = 60_000;
    receiver.packet(far, 0, 3, 13, true);
    let flow = &receiver.resequencer.flows[&1];
    assert!(flow.held.len() <= FLOW_LIMIT as usize);
    assert_eq!(receiver.released, [0, 2]);
    let missed = u64::from(far) - 2 - (FLOW_LIMIT as u64 - 1);
    assert_eq!(receiver.resequencer.stats().missed, missed);
}

#[test]
fn a_sequence_that_starts_over_goes_on_where_it_starts() {
    let mut receiver = Receiver::new();
    receiver.packet(0, 0, 0, 10, true);
    receiver.packet(2, 0, 2, 12, true);
    let far = 1_000_000;
    for at in [0, 2, 1] {
        receiver.packet(far + at, 0, 3 + at, 13 + at, true);
    }
    assert_eq!(receiver.released, [0, 2, far, far + 1, far + 2]);
}

#[test]
fn a_queue_makes_packets_late_and_jitter_does_not() {
    let mut receiver = Receiver::new();
    let mut packet = |sent: u32, takes: u32| {
        let now = receiver.start + MS * (sent + takes);
        receiver.resequencer.handle_clock(0, sent_micros(sent), now);
        receiver.resequencer.lateness(0, |_| true, now)
    };
    for arrives in 30..120 {
        let takes = 20 + 8 * (arrives % 2);
        assert!(packet(arrives - takes, takes) <= MS);
    }
    // A queue grows by a millisecond in each.
    for sent in 100..150 {
        packet(sent, 20 + (sent - 100));
    }
    let stands = packet(150, 70);
    assert!(stands > 25 * MS && stands <= 50 * MS, "{stands:?}");
    for sent in 200..220 {
        packet(sent, 20);
    }
    assert_eq!(packet(220, 20), Duration::ZERO);
    // Another path is quicker by itself.
    receiver
        .resequencer
        .handle_clock(1, sent_micros(240), receiver.start + MS * 245);
    let lateness = |path, at| {
        let now = receiver.start + MS * at;
        receiver.resequencer.lateness(path, |_| true, now)
    };
    assert_eq!(lateness(0, 250), 15 * MS);
    assert_eq!(lateness(1, 250), Duration::ZERO);
    // Of what was long ago nobody knows.
    assert_eq!(lateness(0, 2000), Duration::ZERO);
    assert_eq!(lateness(1, 2000), Duration::ZERO);
    // Nothing takes a path that is lost.
    let now = receiver.start + MS * 250;
    let lateness = receiver.resequencer.lateness(0, |path| path != 1, now);
    assert_eq!(lateness, Duration::ZERO);
}

#[test]
fn a_clock_that_stood_still_makes_no_path_late_once_that_is_known() {
    let mut receiver = Receiver::new();
    let start = receiver.start;
    // The far path is 20 ms behind. At 1000 ms the sender's clock stands still for half a second.
    let mut packet = |path: u32, arrives: u32| {
        let stood = if arrives < 1000 { 0 } else { 500 };
        let sent = sent_micros(arrives - 30 - 20 * path - stood);
        let now = start + MS * arrives;
        receiver.resequencer.handle_clock(path, sent, now);
    };
    for arrives in (600..1000).step_by(10) {
        (0..2).for_each(|path| packet(path, arrives));
    }
    packet(0, 1500);
    packet(0, 1510);
    packet(1, 1510);
    let lateness = |receiver: &Receiver| {
        let of = |path| {
            let now = start + MS * 1510;
            receiver.resequencer.lateness(path, |_| true, now)
        };
        [of(0), of(1)]
    };
    assert_eq!(lateness(&receiver), [500 * MS, 520 * MS]);
    let standing = |at| receiver.resequencer.standing(1, start + MS * at);
    assert_eq!([standing(1510), standing(1511)], [Some(500 * MS), None]);
    receiver.resequencer.mend_clocks(0);
    assert_eq!(lateness(&receiver), [Duration::ZERO, 20 * MS]);
}

#[test]
fn a_path_as_far_behind_as_a_satellite_is_waited_for() {
    let mut receiver = Receiver::new();
    let arrives = |seq: u32| seq + if seq.is_multiple_of(4) { 340 } else { 40 };
    let mut arrivals: Vec<u32> = (0..2000).collect();
    arrivals.sort_by_key(|&seq| arrives(seq));
    for seq in arrivals {
        let path = u32::from(seq.is_multiple_of(4));
        receiver.packet(seq, path, seq, arrives(seq), true);
    }
    // The first packets of the far path came after it was not waited for yet.
    let settled: Vec<u32> = receiver.released.iter().copied().skip(700).collect();
    assert!(settled.is_sorted());
    assert!(settled.len() > 1000);
}

#[test]
fn the_first_packets_of_a_far_path_are_waited_for() {
    let mut receiver = Receiver::new();
    // Reports have told how late each path is, before anything was sent on the far one.
    for sent in (0..1000).step_by(100) {
        for (path, takes) in [(0, 40), (1, 340)] {
            let now = receiver.start + MS * (sent + takes);
            receiver
                .resequencer
                .handle_clock(path, sent_micros(sent), now);
        }
    }
    let (near, far) = (1010..1200, 1000..1010);
    let mut arrivals: Vec<(u32, u32, u32)> = near
        .map(|sent| (sent + 40, 0, sent))
        .chain(far.map(|sent| (sent + 340, 1, sent)))
        .collect();
    arrivals.sort_unstable();
    for (at, path, sent) in arrivals {
        receiver.packet(sent - 1000, path, sent, at, true);
    }
    assert_eq!(receiver.released, (0..200).collect::<Vec<_>>());
}

#[test]
fn a_repair_over_a_satellite_is_waited_for() {
    let mut receiver = Receiver::new();
    receiver.repair = MS * 765;
    for seq in (0..100).filter(|&seq| seq != 20) {
        receiver.packet(seq, 0, seq, seq + 300, true);
    }
    receiver.packet(20, 0, 640, 940, true);
    assert_eq!(receiver.released, (0..100).collect::<Vec<_>>());
}

#[test]
fn over_other_paths_numbers_may_go_on_and_what_has_come_before_is_a_copy() {
    let mut receiver = Receiver::with_two_paths();
    receiver.packet(40, 0, 200, 210, true);
    receiver.packet(42, 0, 201, 211, true);
    let before = receiver.released.len();

    let now = receiver.start + MS * 212;
    let released = &mut receiver.released;
    receiver.resequencer.pause(|seq| released.push(seq), now);
    for (seq, at) in [(40, 230), (41, 231), (42, 232), (43, 233)] {
        receiver.packet(seq, 7, at - 10, at, true);
    }

    assert!(receiver.released[before..].ends_with(&[41, 43]));
    let mut once = receiver.released.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(
        once.len(),
        receiver.released.len(),
        "{:?}",
        receiver.released
    );
}

#[test]
fn when_the_sender_starts_over_what_is_held_is_passed_on_and_its_first_number_is_expected() {
    let mut receiver = Receiver::with_two_paths();
    receiver.packet(41, 0, 200, 210, true);
    receiver.packet(43, 0, 201, 211, true);
    assert!(receiver.released.is_empty());

    let now = receiver.start + MS * 212;
    let released = &mut receiver.released;
    receiver
        .resequencer
        .start_over(|seq| released.push(seq), now);
    assert_eq!(receiver.released, [41, 43]);
    assert_eq!(receiver.resequencer.held_bytes(), 0);
    assert_eq!(receiver.resequencer.stats().missed, 2);

    // The new numbers are not taken for old ones that come late, nor for copies.
    receiver.packet(0, 0, 220, 230, true);
    receiver.packet(1, 0, 221, 231, true);
    assert_eq!(receiver.released, [41, 43, 0, 1]);
    assert_eq!(receiver.resequencer.stats().late, 0);
}

#[test]
fn flows_that_number_far_ahead_take_room_for_a_few_of_them_and_give_it_back() {
    let now = Instant::now();
    let mut resequencer = Resequencer::new(now);
    let mut released = Vec::new();
    for flow in 0..=u8::MAX {
        let header = Header {
            flow,
            ordered: true,
            early: Duration::ZERO,
            seq: Header::FIRST.wrapping_add(FLOW_LIMIT as u32 - 1),
            sent_micros: 0,
        };
        let release = |flow| released.push(flow);
        resequencer.handle_packet(&header, 0, flow, 0, release, now);
    }
    let places = |it: &Resequencer<u8>| -> usize {
        let flows = it.flows.values();
        flows.map(|flow| flow.held.len()).sum()
    };
    assert_eq!(places(&resequencer), PLACES_LIMIT);
    // What there was no room for is passed on at once.
    assert_eq!(released.len(), 256 - PLACES_LIMIT / FLOW_LIMIT as usize);

    let late = now + Duration::from_secs(10);
    resequencer.handle_timeout(Duration::ZERO, |flow| released.push(flow), late);

    released.sort_unstable();
    assert_eq!(released, (0..=u8::MAX).collect::<Vec<_>>());
    let mut flows = resequencer.flows.values();
    assert!(flows.all(|flow| flow.held.capacity() <= 2 * flow::ROOM));
}

/// Clocks of both ends have nothing in common, and differences of them wrap.
#[test]
fn paths_are_compared_rightly_wherever_the_clocks_are() {
    let start = Instant::now();
    let mut resequencer = Resequencer::<u32>::new(start);
    let sent = |late: u32| 0_u32.wrapping_sub((1 << 31) - 10_000 + 1000 * late);
    resequencer.handle_clock(1, sent(0), start);
    resequencer.handle_clock(2, sent(30), start);
    let lateness = |path| resequencer.lateness(path, |_| true, start);
    assert_eq!((lateness(1), lateness(2)), (Duration::ZERO, 30 * MS));
}

#[test]
fn no_packet_is_held_longer_because_older_ones_keep_coming() {
    let mut receiver = Receiver::new();
    receiver.repair = MS * 765;
    for (step, seq) in (1..=6).rev().enumerate() {
        receiver.packet(seq, 0, seq, 10 + 700 * step as u32, true);
    }
    receiver.expire(receiver.start + MS * 3600);
    assert_eq!(receiver.released.iter().max(), Some(&6));
}

/// Packet 41 comes 20 ms before packet 40, over another path, at this time; what is passed on by
/// when only 41 has come, and in the end.
fn overtaking(receiver: &mut Receiver, at: u32) -> (Vec<u32>, Vec<u32>) {
    receiver.packet(41, 0, at, at + 10, true);
    receiver.expire(receiver.start + MS * (at + 20));
    let early = receiver.released.clone();
    receiver.packet(40, 1, at, at + 30, true);
    (early, receiver.released.clone())
}

/// The sender's clock wraps after 71 minutes, and what was sent 36 to 71 later seemed older: every
/// path had passed every gap.
#[test]
fn order_is_restored_after_any_silence() {
    for minutes in [1, 30, 36, 40, 60, 71, 72, 110] {
        let mut receiver = Receiver::with_two_paths();
        let at = minutes * 60_000;
        // Reports have come before, as they do with the first packets.
        for (path, takes) in [(0, 10), (1, 30)] {
            let now = receiver.start + MS * (at - 100 + takes);
            let sent = sent_micros(at - 100);
            receiver.resequencer.handle_clock(path, sent, now);
        }
        let (early, all) = overtaking(&mut receiver, at);
        assert_eq!((early, all), (vec![], vec![40, 41]), "{minutes} min");
    }
}

/// The first packets of a connection may leave out a part of the time, which is guessed then.
#[test]
fn order_is_restored_once_a_time_that_was_guessed_is_known() {
    let mut receiver = Receiver::with_two_paths();
    for (guessed_by, at) in [(1_200_000, 210), (0, 220)] {
        for path in [0, 1] {
            let now = receiver.start + MS * (at + 20 * path);
            let sent = sent_micros(at - 10 + guessed_by);
            receiver.resequencer.handle_clock(path, sent, now);
        }
    }
    let (early, all) = overtaking(&mut receiver, 300);
    assert_eq!((early, all), (vec![], vec![40, 41]));
}
