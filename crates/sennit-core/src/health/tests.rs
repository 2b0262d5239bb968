//! What a path is taken for after what was heard on it, and when it is probed.

use super::*;

const MS: Duration = Duration::from_millis(1);
/// Bytes of a probe.
const PROBE: usize = 30;
/// An idle path may leave four probes unanswered, a second apart.
const CONFIRM_FOR: Duration = Duration::from_secs(4);

/// An active path that was heard every probe interval for one second.
fn lively(start: Instant) -> Health {
    let mut health = Health::new(start);
    health.set_pace(Pace::Active, Duration::ZERO, start);
    for step in 0..20 {
        health.handle_heard(PROBE, start + PROBE_ACTIVE * step);
    }
    health
}

#[test]
fn silence_makes_an_active_path_suspect_within_160_ms() {
    let start = Instant::now();
    let mut health = lively(start);
    let last = start + PROBE_ACTIVE * 19;
    assert!(!health.handle_timeout(last + 159 * MS));
    assert!(health.handle_timeout(last + 160 * MS));
    assert_eq!(health.state(), (PathState::Suspect, Reason::Silent));
    assert!(!health.hears());
}

#[test]
fn a_busy_path_is_suspected_by_how_steady_it_was() {
    let start = Instant::now();
    let suspected_after = |gap: u32| {
        let mut health = Health::new(start);
        health.set_pace(Pace::Busy, Duration::ZERO, start);
        for step in 0..500 {
            health.handle_heard(PROBE, start + step * gap * MS);
        }
        let last = start + 499 * gap * MS;
        (1..).find(|&ms| health.handle_timeout(last + ms * MS))
    };
    assert_eq!(suspected_after(1), Some(64));
    assert_eq!(suspected_after(40), Some(100));
    assert_eq!(suspected_after(100), Some(160));
}

/// Lets two ends probe each other for so many seconds; the seconds in which each sent a probe.
fn converse(ends: &mut [Health; 2], seconds: u32) -> [Vec<u32>; 2] {
    let start = ends[0].heard;
    let mut probes = [Vec::new(), Vec::new()];
    for ms in 0..seconds * 1000 {
        let now = start + ms * MS;
        for (here, there) in [(0, 1), (1, 0)] {
            assert!(!ends[here].handle_timeout(now), "after {ms} ms");
            if ends[here].poll_probe(now) {
                probes[here].push(ms / 1000);
                ends[there].handle_heard(PROBE, now);
            }
        }
    }
    probes
}

#[test]
fn of_two_idle_ends_one_asks_and_the_other_answers() {
    let start = Instant::now();
    for (asks, answers, every) in [
        (Keep::ASKING, Keep::ANSWERING, 25),
        (Keep::ASKING_RARELY, Keep::ANSWERING_RARELY, 50),
        // The ends need not agree on what a path is good for.
        (Keep::ASKING, Keep::ANSWERING_RARELY, 25),
        (Keep::ASKING_RARELY, Keep::ANSWERING, 40),
    ] {
        let mut ends = [Health::new(start), Health::new(start)];
        ends[0].set_keep(asks, start);
        ends[1].set_keep(answers, start);
        let expected: Vec<u32> = (0..400).step_by(every).collect();
        assert_eq!(converse(&mut ends, 400), [expected.clone(), expected]);
    }
}

#[test]
fn an_idle_path_is_suspected_after_four_probes_without_an_answer() {
    let start = Instant::now();
    let mut health = Health::new(start);
    health.poll_probe(start);
    let (mut probes, mut suspect) = (Vec::new(), None);
    for ms in 1..40_000 {
        let now = start + ms * MS;
        if health.handle_timeout(now) {
            suspect = suspect.or(Some(ms));
        }
        if health.poll_probe(now) && suspect.is_none() {
            probes.push(ms / 1000);
        }
    }
    assert_eq!((probes, suspect), (vec![25, 26, 27, 28], Some(29_000)));
}

#[test]
fn a_path_that_is_to_be_asked_more_often_is_asked_before_it_counts_as_silent() {
    let start = Instant::now();
    let mut health = Health::new(start);
    health.poll_probe(start);
    health.set_keep(Keep::ASKING_RARELY, start);
    let now = start + Duration::from_secs(40);

    health.set_keep(Keep::ASKING, now);

    assert!(!health.handle_timeout(now), "{:?}", health.state());
    assert!(health.poll_probe(now));
    assert!(health.handle_timeout(now + CONFIRM_FOR));
    assert_eq!(health.state(), (PathState::Suspect, Reason::Silent));
}

/// It was taken for up again as soon as less was expected of it: 11 times in 22 s.
#[test]
fn silence_ends_when_something_is_heard_and_not_when_less_is_expected() {
    let start = Instant::now();
    let mut health = lively(start);
    let mut changes = Vec::new();
    for ms in 1000..60_000 {
        let now = start + ms * MS;
        // Reports of the peer make the tunnel active again and again.
        let pace = if ms / 1500 % 2 == 0 {
            Pace::Active
        } else {
            Pace::Idle
        };
        health.set_pace(pace, Duration::ZERO, now);
        if health.handle_timeout(now) {
            changes.push(health.state().0);
        }
    }
    assert_eq!(changes, [PathState::Suspect, PathState::Down]);
    assert_eq!(health.since(), start + PROBE_ACTIVE * 19 + 160 * MS);
}

#[test]
fn an_idle_path_that_is_down_is_probed_ever_less() {
    let start = Instant::now();
    let mut health = Health::new(start);
    let probes = |health: &mut Health, from: u32, to: u32| {
        let mut count = 0;
        for ms in (from * 1000..to * 1000).step_by(10) {
            health.handle_timeout(start + ms * MS);
            count += u32::from(health.poll_probe(start + ms * MS));
        }
        count
    };
    probes(&mut health, 0, 29);
    assert!((15..=25).contains(&probes(&mut health, 29, 34)));
    probes(&mut health, 34, 4000);
    assert!((33..=34).contains(&probes(&mut health, 4000, 5000)));

    // With nothing else to rely on it is looked for more often.
    health.set_alone(true, start + 5000 * 1000 * MS);
    probes(&mut health, 5000, 5700);
    assert_eq!(probes(&mut health, 5700, 6700), 200);
}

#[test]
fn a_dead_path_beside_others_is_probed_ever_less_while_packets_flow_until_its_carrier_returns() {
    let start = Instant::now();
    let mut health = lively(start);
    let probes = |health: &mut Health, from: u32, to: u32| {
        let mut count = 0;
        for ms in (from * 1000..to * 1000).step_by(10) {
            let now = start + ms * MS;
            health.set_pace(Pace::Busy, Duration::ZERO, now);
            health.handle_timeout(now);
            count += u32::from(health.poll_probe(now));
        }
        count
    };
    probes(&mut health, 1, 10);
    assert!((39..=41).contains(&probes(&mut health, 10, 20)));
    probes(&mut health, 20, 4000);
    assert!((33..=34).contains(&probes(&mut health, 4000, 5000)));

    health.handle_link(false, start + 5000 * 1000 * MS);
    health.handle_link(true, start + 5001 * 1000 * MS);
    assert!((39..=41).contains(&probes(&mut health, 5001, 5011)));

    health.set_alone(true, start + 5011 * 1000 * MS);
    assert!((3990..=4010).contains(&probes(&mut health, 5011, 6011)));
}

#[test]
fn what_others_hear_on_the_same_way_needs_no_probe_but_for_its_own_limit() {
    let start = Instant::now();
    let mut health = Health::new(start);
    let mut probes = Vec::new();
    for ms in 0..1_000_000 {
        let now = start + ms * MS;
        health.set_company(
            Some(Company {
                heard: now - (ms % 25_000) * MS,
                probed: now - (ms % 25_000) * MS,
                verdict: Some(None),
            }),
            now,
        );
        assert!(!health.handle_timeout(now));
        if health.poll_probe(now) {
            probes.push(ms / 1000);
            health.handle_heard(PROBE, now + 1 * MS);
        }
    }
    assert_eq!(probes, [0, 300, 600, 900]);
}

#[test]
fn an_idle_path_fares_as_the_one_that_judges_for_it() {
    let start = Instant::now();
    let mut health = Health::new(start);
    let mut told = |verdict, seconds: u32| {
        let now = start + seconds * 1000 * MS;
        health.set_company(
            Some(Company {
                heard: now,
                probed: now,
                verdict: Some(verdict),
            }),
            now,
        );
        health.handle_timeout(now);
        health.state()
    };
    assert_eq!(told(None, 1).0, PathState::Up);
    let silent = Some(Reason::Silent);
    assert_eq!(told(silent, 2), (PathState::Suspect, Reason::Silent));
    assert_eq!(told(silent, 5), (PathState::Down, Reason::Silent));
    assert_eq!(told(None, 6), (PathState::Up, Reason::Heard));
}

#[test]
fn an_idle_path_that_is_asked_has_to_be_heard_itself() {
    let start = Instant::now();
    let [mut dead, mut alive] = [Health::new(start), Health::new(start)];
    let asked = start + 10_000 * MS;
    for health in [&mut dead, &mut alive] {
        health.poll_probe(start);
        health.ask(asked);
    }
    alive.handle_heard(PROBE, asked + 30 * MS);
    let mut probes = 0;
    for ms in 0..6000 {
        let now = asked + ms * MS;
        for health in [&mut dead, &mut alive] {
            let company = Company {
                heard: now,
                probed: now,
                verdict: Some(None),
            };
            health.set_company(Some(company), now);
            health.handle_timeout(now);
        }
        probes += u32::from(ms < 4000 && dead.poll_probe(now));
    }
    assert_eq!(probes, 4, "one and three more");
    assert_eq!(dead.state(), (PathState::Suspect, Reason::Silent));
    assert_eq!(alive.state().0, PathState::Up);
    dead.ask(asked + 6000 * MS);
    dead.handle_timeout(asked + 6000 * MS);
    assert_eq!(dead.state().0, PathState::Suspect, "whatever it was");

    dead.believe();
    let company = Company {
        heard: asked + 6000 * MS,
        probed: asked + 6000 * MS,
        verdict: Some(None),
    };
    dead.set_company(Some(company), asked + 6000 * MS);
    dead.handle_timeout(asked + 6000 * MS);
    assert_eq!(dead.state().0, PathState::Up);
}

#[test]
fn a_path_that_was_idle_is_proven_once_it_is_heard() {
    let start = Instant::now();
    let mut health = Health::new(start);
    let wake = start + 10_000 * MS;
    health.set_pace(Pace::Active, Duration::ZERO, wake);
    assert!(!health.is_proven());
    health.handle_heard(PROBE, wake + 20 * MS);
    assert!(health.is_proven());
}

#[test]
fn a_path_may_carry_what_is_sent_though_nothing_arrives_on_it() {
    let start = Instant::now();
    let mut health = lively(start);
    let now = start + 2000 * MS;
    health.handle_timeout(now);
    assert_eq!(health.state().0, PathState::Suspect);
    assert!(!health.is_heard_by_peer(now));
    health.handle_report(true, None, now);
    assert!(health.is_heard_by_peer(now + 1000 * MS));
    assert!(!health.is_heard_by_peer(now + BELIEVED_FOR));
    health.handle_report(false, None, now);
    assert!(!health.is_heard_by_peer(now));
}

#[test]
fn waking_up_gives_the_peer_time_to_wake_up_too() {
    let start = Instant::now();
    let mut health = Health::new(start);
    let wake = start + 900 * MS;
    health.set_pace(Pace::Active, 30 * MS, wake);
    assert!(health.poll_probe(wake));
    assert!(!health.handle_timeout(wake + 189 * MS));
    assert!(health.handle_timeout(wake + 190 * MS));
}

#[test]
fn a_path_that_returns_is_trusted_after_a_few_probes() {
    let start = Instant::now();
    let mut health = lively(start);
    let back = start + 10_000 * MS;
    health.handle_timeout(back);
    health.handle_timeout(back + 1 * MS);
    health.handle_heard(PROBE, back + 2 * MS);
    assert!(health.handle_timeout(back + 3 * MS));
    assert_eq!(health.state(), (PathState::Probation, Reason::Returned));
    assert!(health.hears());
    health.handle_heard(PROBE, back + 52 * MS);
    health.handle_heard(PROBE, back + 102 * MS);
    assert!(health.handle_timeout(back + 123 * MS));
    assert_eq!(health.state(), (PathState::Up, Reason::Heard));
}

#[test]
fn a_single_packet_is_no_sign_of_life() {
    let start = Instant::now();
    let mut health = lively(start);
    let back = start + 10_000 * MS;
    health.handle_timeout(back);
    health.handle_heard(PROBE, back);
    assert!(health.handle_timeout(back + 150 * MS));
    assert_eq!(health.state().0, PathState::Probation);
    assert!(health.handle_timeout(back + 161 * MS));
    assert_eq!(health.state().0, PathState::Suspect);
}

#[test]
fn a_path_that_comes_and_goes_is_trusted_later_each_time() {
    let start = Instant::now();
    let mut health = Health::new(start);
    health.set_pace(Pace::Active, Duration::ZERO, start);
    // Two seconds of silence, then two with packets every 50 ms.
    let mut trusted_after = |cycle: u32| {
        let back = start + cycle * 4000 * MS + 2000 * MS;
        let mut trusted = None;
        health.handle_timeout(back - 1 * MS);
        for ms in (0..2000).step_by(50) {
            health.handle_heard(PROBE, back + ms * MS);
            health.handle_timeout(back + ms * MS);
            if health.state().0 == PathState::Up {
                trusted = trusted.or(Some(ms));
            }
        }
        trusted
    };
    let times: Vec<_> = (0..6).map(&mut trusted_after).collect();
    let expected = [
        Some(150),
        Some(250),
        Some(500),
        Some(1000),
        Some(1950),
        None,
    ];
    assert_eq!(times, expected);
    // After a quiet while it counts as new.
    assert_eq!(trusted_after(30), Some(150));
}

/// It was down at once, as it had been suspected seconds before.
#[test]
fn a_path_that_falls_back_has_its_time_before_it_is_down() {
    let start = Instant::now();
    let mut health = lively(start);
    health.handle_timeout(start + 2000 * MS);
    let back = start + 6000 * MS;
    health.handle_heard(PROBE, back);
    health.handle_timeout(back);
    assert_eq!(health.state().0, PathState::Probation);
    health.handle_timeout(back + 161 * MS);
    assert_eq!(health.state().0, PathState::Suspect);
    health.handle_timeout(back + 161 * MS + DOWN_AFTER);
    assert_eq!(health.state().0, PathState::Down);
}

/// At 64 kbit/s a full packet takes 185 ms.
#[test]
fn a_slow_path_may_be_silent_for_full_packets_and_no_longer() {
    const FULL: Duration = Duration::from_millis(185);
    for pace in [Pace::Active, Pace::Busy] {
        let start = Instant::now();
        let mut health = Health::new(start);
        health.handle_heard(1450, start + FULL);
        health.set_pace(pace, Duration::ZERO, start + FULL);
        for step in 2..40 {
            let now = start + step * FULL;
            assert!(!health.handle_timeout(now - 1 * MS), "{pace:?}, {step}");
            health.handle_heard(1450, now);
        }
        let last = start + 39 * FULL;
        assert!(!health.handle_timeout(last + 3 * FULL - 1 * MS));
        assert!(health.handle_timeout(last + 3 * FULL), "{pace:?}");
    }
}

#[test]
fn a_path_is_probed_as_often_as_the_peer_hears_full_packets_at_most() {
    let start = Instant::now();
    let probes = |told: u64| {
        let mut health = lively(start);
        health.set_pace(Pace::Busy, Duration::ZERO, start);
        health.set_spacing(Duration::from_millis(told));
        let due = |&ms: &u32| health.poll_probe(start + ms * MS);
        (0..10_000).filter(due).count()
    };
    assert_eq!(probes(0), 500);
    assert_eq!(probes(370), 19);
}

#[test]
fn what_the_peer_does_not_hear_is_not_used_but_still_heard_here() {
    let start = Instant::now();
    let mut health = lively(start);
    let now = start + PROBE_ACTIVE * 19;
    health.handle_report(false, None, now);
    assert!(health.handle_timeout(now));
    assert_eq!(
        health.state(),
        (PathState::Suspect, Reason::PeerHearsNothing)
    );
    assert!(health.hears());
    health.handle_report(true, None, now);
    assert!(health.handle_timeout(now));
}

#[test]
fn what_the_peer_does_not_repeat_is_not_believed_for_good() {
    let start = Instant::now();
    let mut health = lively(start);
    let mut now = start + PROBE_ACTIVE * 19;
    health.handle_report(false, None, now);
    let end = now + BELIEVED_FOR;
    while now < end {
        health.handle_timeout(now);
        assert_eq!(health.state().1, Reason::PeerHearsNothing);
        now += PROBE_ACTIVE;
        health.handle_heard(PROBE, now);
    }
    health.handle_timeout(now);
    assert_eq!(health.state(), (PathState::Up, Reason::Heard));
}

#[test]
fn what_the_peer_has_paused_is_called_so_also_when_nothing_arrives_any_more() {
    let start = Instant::now();
    let mut health = lively(start);
    let now = start + PROBE_ACTIVE * 19;
    health.handle_report(false, Some(Away::Paused), now);
    health.handle_timeout(now);
    assert_eq!(health.state(), (PathState::Suspect, Reason::PeerPaused));
    assert!(health.hears());

    let later = now + BELIEVED_FOR - PROBE_ACTIVE;
    health.handle_timeout(later);
    assert_eq!(health.state(), (PathState::Down, Reason::PeerPaused));
    assert!(!health.hears(), "nothing arrives");

    let forgotten = now + BELIEVED_FOR;
    health.handle_timeout(forgotten);
    assert_eq!(health.state(), (PathState::Down, Reason::Silent));
}

#[test]
fn a_link_without_carrier_is_down_at_once() {
    let start = Instant::now();
    let mut health = lively(start);
    health.handle_link(false, start);
    assert!(health.handle_timeout(start + PROBE_ACTIVE * 19));
    assert_eq!(health.state(), (PathState::Down, Reason::LinkDown));
}

#[test]
fn a_link_that_goes_down_while_nothing_flows_loses_nothing() {
    let start = Instant::now();
    let gap = |pace: Pace| {
        let mut health = lively(start);
        health.set_pace(pace, Duration::ZERO, start);
        let heard = health.heard();
        let now = heard + Duration::from_millis(40);
        health.handle_link(false, now);
        health.handle_timeout(now);
        now - health.lost_from()
    };
    assert_eq!(gap(Pace::Idle), Duration::ZERO);
    assert_eq!(gap(Pace::Active), Duration::from_millis(40));
}

/// The gap was the age of the last idle probe: 29 s and more, in which nobody had sent anything.
#[test]
fn an_idle_path_that_falls_silent_loses_what_flowed_since_and_nothing_before() {
    let start = Instant::now();
    let mut idle = Health::new(start);
    let noticed = start + Duration::from_secs(29);
    assert!(idle.handle_timeout(noticed));
    assert_eq!(idle.state(), (PathState::Suspect, Reason::Silent));
    assert_eq!(idle.lost_from(), noticed);

    let mut woken = Health::new(start);
    let woke = start + Duration::from_secs(20);
    woken.set_pace(Pace::Active, Duration::ZERO, woke);
    assert!(woken.handle_timeout(woke + MS * 200));
    assert_eq!(woken.state(), (PathState::Suspect, Reason::Silent));
    assert_eq!(woken.lost_from(), woke);
}

#[test]
fn probes_are_quick_when_active_and_rare_when_idle() {
    let start = Instant::now();
    let mut health = Health::new(start);
    let mut probes = |pace, from: u32, to: u32| {
        health.set_pace(pace, Duration::ZERO, start + MS * from);
        let mut count = 0;
        for ms in from..to {
            let now = start + MS * ms;
            if health.poll_probe(now) {
                health.handle_heard(PROBE, now);
                count += 1;
            }
        }
        count
    };
    assert_eq!(probes(Pace::Idle, 0, 60_000), 3);
    assert_eq!(probes(Pace::Active, 60_000, 61_000), 20);
    assert_eq!(probes(Pace::Busy, 61_000, 62_000), 50);
    assert_eq!(probes(Pace::Idle, 62_000, 86_000), 0);
}
