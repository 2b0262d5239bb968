use super::*;

fn path(tier: u8, millis: u64, budget: u64) -> PathView {
    PathView {
        usable: true,
        alive: true,
        tier,
        weight: 1,
        srtt: Duration::from_millis(millis),
        least: Duration::from_millis(millis),
        crowded: false,
        late: Duration::ZERO,
        rate: 1_000_000,
        delivers: 1_000_000,
        held_up: Duration::ZERO,
        unproven: false,
        carries: 1_000_000,
        promises: 1_000_000,
        leads: false,
        worth: Worth::Full,
        budget,
        room: budget,
        copies: Copies::None,
    }
}

fn down(path: PathView) -> PathView {
    PathView {
        usable: false,
        ..path
    }
}

#[test]
fn failover_uses_the_lowest_tier_that_works() {
    let scheduler = Scheduler::new(Policy::Failover, 2);
    let paths = [path(2, 5, 9), path(1, 50, 9)];
    assert_eq!(scheduler.choose(&paths, 0, 0, false), Choice::One(1));
    let paths = [path(2, 5, 9), down(path(1, 50, 9))];
    assert_eq!(scheduler.choose(&paths, 0, 0, false), Choice::One(0));
}

#[test]
fn failover_waits_for_its_path_rather_than_spilling() {
    let scheduler = Scheduler::new(Policy::Failover, 2);
    assert_eq!(
        scheduler.choose(&[path(1, 5, 0), path(2, 5, 9)], 0, 1 << 20, false),
        Choice::Wait
    );
}

#[test]
fn balanced_spreads_flows_by_weight_and_keeps_each_on_its_path() {
    let scheduler = Scheduler::new(Policy::Balanced, 2);
    let paths = [
        PathView {
            weight: 3,
            ..path(1, 5, 9)
        },
        path(1, 5, 9),
    ];
    let mut count = [0; 2];
    for step in 0..1000_u32 {
        let flow = step.wrapping_mul(0x9e37_79b9);
        let Choice::One(index) = scheduler.choose(&paths, flow, 0, false) else {
            panic!("no path")
        };
        assert_eq!(
            scheduler.choose(&paths, flow, 1 << 20, false),
            Choice::One(index)
        );
        count[index] += 1;
    }
    assert!((730..=770).contains(&count[0]), "{count:?}");
}

#[test]
fn bond_adds_the_slower_path_only_when_waiting_would_take_longer() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let paths = [path(1, 20, 0), path(1, 60, 9)];
    assert_eq!(scheduler.choose(&paths, 0, 4_900, false), Choice::Wait);
    assert_eq!(scheduler.choose(&paths, 0, 5_000, false), Choice::One(1));
    assert_eq!(scheduler.standing(&paths), Duration::from_millis(40));
    let close = [path(1, 20, 0), path(1, 24, 9)];
    assert_eq!(scheduler.choose(&close, 0, 2_000, false), Choice::One(1));
}

#[test]
fn bond_tries_a_path_far_behind_only_where_that_delays_nobody() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let paths = [path(1, 20, 0), path(1, 310, 9)];
    assert_eq!(scheduler.choose(&paths, 0, 144_000, false), Choice::Wait);
    assert_eq!(scheduler.choose(&paths, 0, 145_000, false), Choice::One(1));
}

#[test]
fn packets_need_not_stand_for_the_sake_of_a_tier_that_rests() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let paths = [path(1, 20, 0), path(2, 600, 9)];
    assert_eq!(scheduler.standing(&paths), Duration::ZERO);
    assert_eq!(of_best_tier(&paths).count(), 1);
    let paths = [down(path(1, 20, 0)), path(2, 600, 9)];
    assert_eq!(of_best_tier(&paths).map(|p| p.tier).max(), Some(2));
}

#[test]
fn small_packets_by_themselves_avoid_a_crowded_path_while_there_is_another() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let crowded = PathView {
        crowded: true,
        ..path(1, 20, 9)
    };
    let paths = [crowded, path(1, 60, 9)];
    assert_eq!(scheduler.choose(&paths, 0, ALONE, false), Choice::One(1));
    assert_eq!(
        scheduler.choose(&paths, 0, ALONE + 1, false),
        Choice::One(0)
    );
    let paths = [crowded, down(path(1, 60, 9))];
    assert_eq!(scheduler.choose(&paths, 0, ALONE, false), Choice::One(0));
}

#[test]
fn what_takes_a_slower_path_leaves_so_early_that_it_arrives_in_its_turn() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let paths = [path(1, 20, 0), path(1, 60, 9)];
    let start = |choice| scheduler.start(&paths, choice, false);
    assert_eq!(start(Choice::Wait), Start::Nowhere);
    assert_eq!(start(Choice::One(0)), Start::Head);
    // 20 ms later at 1 MB/s.
    assert_eq!(start(Choice::One(1)), Start::Behind(20_000));
    let early = |path| Scheduler::turn_after(&paths, path, 15_000);
    assert_eq!([early(0), early(1)], [15, 20].map(Duration::from_millis));
    let single = Scheduler::new(Policy::Single, 2);
    assert_eq!(single.start(&paths, Choice::One(1), false), Start::Head);
}

#[test]
fn a_sender_without_data_to_spare_is_kept_on_the_faster_path() {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(Policy::Bond, 2);
    let paths = [path(1, 20, 0), path(1, 60, 9)];
    let step = Duration::from_millis(1);
    let mut send = |tick: u32, sent| scheduler.handle_sent(&paths, sent, start + step * tick);
    let spilled = Sent {
        bytes: 200,
        spilled: 100,
        empty: false,
    };
    let nothing = Sent {
        empty: true,
        ..Sent::default()
    };
    for tick in 0..1000 {
        send(tick, if tick % 20 == 0 { spilled } else { nothing });
    }
    assert_eq!(scheduler.choose(&paths, 0, 19_000, false), Choice::Wait);
    assert_eq!(scheduler.choose(&paths, 0, 20_000, false), Choice::One(1));
    for tick in 1000..8000 {
        scheduler.handle_sent(&paths, spilled, start + step * tick);
    }
    assert_eq!(scheduler.choose(&paths, 0, 5_000, false), Choice::One(1));
}

#[test]
fn what_a_path_may_send_at_once_does_not_make_it_worth_waiting_for() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let starting = PathView {
        rate: 9_000_000,
        delivers: 300_000,
        unproven: true,
        ..path(1, 100, 0)
    };
    // 100 kB take it a third of a second, and the other path is later by a fifth.
    let other = path(1, 500, 9);
    assert_eq!(
        scheduler.choose(&[starting, other], 0, 100_000, false),
        Choice::One(1)
    );
}

fn delivers(delivers: u64, path: PathView) -> PathView {
    PathView { delivers, ..path }
}

#[test]
fn a_slower_path_that_adds_little_is_used_only_where_it_delays_nobody() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let paths = [path(1, 20, 0), delivers(100_000, path(1, 60, 9))];
    // Half of the whole difference of 40 ms, because it adds half of what is worth some delay.
    assert_eq!(scheduler.choose(&paths, 0, 19_000, false), Choice::Wait);
    assert_eq!(scheduler.choose(&paths, 0, 20_100, false), Choice::One(1));
    let paths = [path(1, 20, 0), delivers(60_000, path(1, 60, 9))];
    assert_eq!(scheduler.choose(&paths, 0, 27_000, false), Choice::Wait);
    assert_eq!(
        scheduler.start(&paths, Choice::One(1), false),
        Start::Behind(28_000)
    );
}

#[test]
fn a_path_that_delivers_next_to_nothing_takes_lone_packets_only() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let mut paths = [path(1, 60, 0), delivers(49_999, path(1, 20, 9))];
    scheduler.assess(&mut paths);
    assert_eq!(paths.map(|p| p.worth), [Worth::Full, Worth::Slight]);
    assert_eq!(scheduler.choose(&paths, 0, 1 << 20, false), Choice::Wait);
    assert_eq!(scheduler.choose(&paths, 0, ALONE, false), Choice::One(1));
    assert_eq!(scheduler.standing(&paths), Duration::ZERO);
    paths[0].usable = false;
    scheduler.assess(&mut paths);
    assert_eq!(scheduler.choose(&paths, 0, 1 << 20, false), Choice::One(1));
    let mut paths = [path(1, 60, 0), delivers(50_000, path(1, 20, 9))];
    scheduler.assess(&mut paths);
    assert_eq!(scheduler.choose(&paths, 0, 1 << 20, false), Choice::One(1));
}

#[test]
fn what_nobody_knows_takes_copies() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let unknown = PathView {
        worth: Worth::Unknown,
        room: 9,
        ..path(1, 20, 0)
    };
    let mut paths = [unknown, path(1, 60, 9)];
    scheduler.assess(&mut paths);
    let choice = scheduler.choose(&paths, 0, 1 << 20, false);
    assert_eq!(choice, Choice::One(1));
    let on = |paths: &[PathView], backlog| {
        let spread = scheduler.spread(paths, choice, backlog);
        spread.iter().collect::<Vec<_>>()
    };
    assert_eq!(on(&paths, 1 << 20), [0, 1]);
    assert_eq!(on(&paths, ALONE), [1]);
    paths[0].room = 0;
    assert_eq!(on(&paths, 1 << 20), [1]);
}

#[test]
fn what_may_have_died_while_nothing_flowed_is_not_relied_on() {
    let dozing = |tier, millis| PathView {
        alive: false,
        ..path(tier, millis, 9)
    };
    let policies = [Policy::Bond, Policy::Failover, Policy::Balanced];
    for scheduler in policies.map(|policy| Scheduler::new(policy, 2)) {
        let on = |paths: &[PathView]| {
            let spread = scheduler.spread(paths, scheduler.choose(paths, 0, ALONE, false), ALONE);
            spread.iter().collect::<Vec<_>>()
        };
        assert_eq!(on(&[dozing(1, 20), dozing(1, 60), dozing(2, 30)]), [0, 1]);
        let [first, second] = [path(1, 20, 9), dozing(1, 60)];
        if scheduler.policy() != Policy::Balanced {
            assert_eq!(on(&[first, second]), [0]);
        }
    }
}

#[test]
fn while_none_is_known_the_one_that_seems_best_is_used() {
    let unknown = |rate, millis| PathView {
        worth: Worth::Unknown,
        ..delivers(rate, path(1, millis, 9))
    };
    let mut paths = [unknown(1_000, 20), unknown(2_000, 60)];
    let given = paths;
    Scheduler::new(Policy::Bond, 2).assess(&mut paths);
    assert_eq!(paths.map(|p| p.worth), [Worth::Unknown, Worth::Full]);
    let mut paths = given;
    Scheduler::new(Policy::Balanced, 2).assess(&mut paths);
    assert_eq!(paths.map(|p| p.worth), [Worth::Full; 2]);
}

#[test]
fn a_path_that_starts_is_not_held_to_be_slight() {
    let starts = PathView {
        unproven: true,
        ..delivers(10_000, path(1, 300, 9))
    };
    let mut paths = [path(1, 20, 9), starts];
    Scheduler::new(Policy::Bond, 2).assess(&mut paths);
    assert_eq!(paths[1].worth, Worth::Unknown);
}

#[test]
fn bond_prefers_the_least_delay() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    assert_eq!(
        scheduler.choose(&[path(1, 60, 9), path(1, 20, 9)], 0, 0, false),
        Choice::One(1)
    );
}

#[test]
fn redundant_takes_the_fastest_or_what_there_is() {
    let scheduler = Scheduler::new(Policy::Redundant, 2);
    let paths = [path(1, 60, 9), path(1, 20, 9), path(1, 30, 9)];
    let chosen = |copies| {
        let choice = Scheduler::new(Policy::Redundant, copies).choose(&paths, 0, 0, false);
        PathSet::from(choice).iter().collect::<Vec<_>>()
    };
    assert_eq!(
        [chosen(1), chosen(2), chosen(3)],
        [vec![1], vec![1, 2], vec![0, 1, 2]]
    );
    let paths = [path(1, 60, 9), down(paths[1]), path(1, 30, 0)];
    assert_eq!(scheduler.choose(&paths, 0, 0, false), Choice::One(0));
}

#[test]
fn a_higher_tier_has_copies_where_lower_ones_are_down_and_not_where_they_are_full() {
    let chosen = |paths: &[PathView]| {
        let choice = Scheduler::new(Policy::Redundant, 2).choose(paths, 0, 0, false);
        PathSet::from(choice).iter().collect::<Vec<_>>()
    };
    let (full, dear) = (path(1, 20, 0), path(2, 40, 9));
    assert_eq!(chosen(&[full, path(1, 60, 9), dear]), [1]);
    assert_eq!(chosen(&[down(full), path(1, 60, 9), dear]), [1, 2]);
    assert_eq!(chosen(&[full, dear]), [1]);
    assert_eq!(chosen(&[full, full, dear]), [0; 0]);
}

#[test]
fn nothing_is_chosen_when_no_path_is_usable() {
    for &policy in Policy::ALL {
        let scheduler = Scheduler::new(policy, 2);
        assert_eq!(
            scheduler.choose(&[down(path(1, 1, 9))], 7, 1 << 20, false),
            Choice::Wait
        );
        assert_eq!(scheduler.choose(&[], 7, 0, false), Choice::Wait);
    }
}

/// As [`path`], with room for nothing.
fn carries(millis: u64, bytes: u64, budget: u64) -> PathView {
    PathView {
        delivers: bytes,
        carries: bytes,
        promises: bytes,
        ..path(1, millis, budget)
    }
}

/// Paths of which the wide one is far behind.
fn near_and_far(near: u64, far: u64) -> [PathView; 2] {
    let mut paths = [carries(80, 600_000, near), carries(340, 2_500_000, far)];
    Scheduler::new(Policy::Bond, 2).find_leader(&mut paths);
    paths
}

#[test]
fn a_wide_path_far_behind_takes_transfers_from_their_start_and_nothing_else() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let paths = near_and_far(9, 9);
    assert_eq!(scheduler.choose(&paths, 0, 1400, true), Choice::One(1));
    assert_eq!(scheduler.start(&paths, Choice::One(1), true), Start::Head);
    assert_eq!(scheduler.choose(&paths, 0, 1400, false), Choice::One(0));
    assert_eq!(scheduler.choose(&paths, 0, ALONE, false), Choice::One(0));
    // The near one takes what it has no room for.
    let paths = near_and_far(9, 0);
    assert_eq!(scheduler.choose(&paths, 0, 1400, true), Choice::One(0));
    assert_eq!(scheduler.standing(&paths), Duration::ZERO);
    assert_eq!(
        Scheduler::round_trip(&paths),
        Some(Duration::from_millis(340))
    );
}

#[test]
fn a_path_leads_only_where_it_is_far_behind_and_much_wider() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let leads = |near: PathView, far: PathView| {
        let mut paths = [near, far];
        scheduler.find_leader(&mut paths);
        paths[1].leads
    };
    let near = carries(20, 1_000_000, 9);
    assert!(!leads(near, carries(110, 9_000_000, 9)));
    assert!(leads(near, carries(111, 9_000_000, 9)));
    assert!(!leads(near, carries(300, 1_500_000, 9)));
    assert!(leads(near, carries(300, 1_600_000, 9)));
    assert!(!leads(carries(20, 0, 9), carries(300, 9_000_000, 9)));
    let so_far = |bytes| PathView {
        leads: true,
        ..carries(300, bytes, 9)
    };
    assert!(leads(near, so_far(1_100_000)));
    assert!(!leads(near, so_far(1_000_000)));
    let starts = |bytes| PathView {
        unproven: true,
        ..carries(300, bytes, 9)
    };
    // What starts doubles its rate once more, where the others are known to be full.
    assert!(leads(near, starts(800_000)));
    assert!(!leads(near, starts(700_000)));
    assert!(!leads(
        PathView {
            unproven: true,
            ..near
        },
        starts(800_000)
    ));
}

#[test]
fn paths_behind_the_leader_are_measured_against_it() {
    let scheduler = Scheduler::new(Policy::Bond, 2);
    let mut paths = [
        carries(80, 600_000, 0),
        carries(340, 2_500_000, 0),
        carries(360, 2_500_000, 9),
    ];
    scheduler.find_leader(&mut paths);
    assert!(paths[1].leads);
    // 10 ms later than the leader, with 5 ms of which the queue is to be filled first.
    let due = |backlog| scheduler.choose(&paths, 0, backlog, true);
    assert_eq!(due(15_000), Choice::Wait);
    assert_eq!(due(16_000), Choice::One(2));
}
