//! What threads get that look at one link at the same time.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use super::*;

const CAP: Bitrate = Bitrate::mbit(100);
const STEP: Duration = Duration::from_micros(200);
/// Under Miri each step takes a million times as long as it is.
const STEPS: u32 = if cfg!(miri) { 40 } else { 2_000 };

/// A thread for each class asks at each step, all at once, and sends what it is granted. What each
/// sent, in bytes.
fn contend(shares: &[Option<Share>]) -> Vec<u64> {
    let now = Instant::now();
    let terms = |share| Terms { share, limit: None };
    let classes = (0..).map(ClassId).zip(shares.iter().copied().map(terms));
    let tins = &Tins::new(Clock::new(now), &classes.collect(), Some(CAP));
    tins.tins.keys().for_each(|&class| tins.enter(class));
    let sent: Vec<_> = shares.iter().map(|_| AtomicU64::new(0)).collect();
    let together = &Barrier::new(shares.len());
    thread::scope(|scope| {
        for (class, sent) in (0..).map(ClassId).zip(&sent) {
            scope.spawn(move || {
                let look = Look {
                    wanted: u64::MAX,
                    least: 1500,
                };
                for step in 1..=STEPS {
                    together.wait();
                    let at = now + STEP * step;
                    let bytes = tins.grant(class, look, 0, at).bytes;
                    tins.spend(class, bytes, 0, at);
                    sent.fetch_add(bytes, Relaxed);
                }
            });
        }
    });
    sent.into_iter().map(AtomicU64::into_inner).collect()
}

/// What the link gives out in all steps together, in bytes.
fn whole() -> u64 {
    let time = STEP * STEPS;
    (CAP.as_bytes_per_second() as f64 * GIVEN * time.as_secs_f64()) as u64
}

#[test]
fn what_is_granted_to_several_at_once_is_made_up_for() {
    for threads in [2, 4, 8] {
        let all: u64 = contend(&vec![None; threads]).iter().sum();
        // At the end each may have been granted the last burst, and the bytes of one step.
        let each = CAP.as_bytes_per_second() * 3 / 1000;
        assert!(all <= whole() + threads as u64 * each, "{threads}: {all}");
        assert!(all >= whole() * 95 / 100, "{threads}: {all}");
    }
}

#[test]
fn a_guarantee_holds_whoever_asks_at_the_same_time() {
    let half = Share::Percent(50);
    let sent = contend(&[None, Some(half), None, None]);
    assert!(sent[1] >= whole() * 48 / 100, "{sent:?} of {}", whole());
}

#[test]
fn what_is_guaranteed_on_a_link_is_shared_by_those_with_a_path_there() {
    let terms = |share| Terms { share, limit: None };
    let shares = [Some(Share::Percent(50)), Some(Share::Percent(50)), None];
    let classes = (0..).map(ClassId).zip(shares.map(terms));
    let tins = Tins::new(Clock::new(Instant::now()), &classes.collect(), Some(CAP));
    let parts = || {
        let rates = tins.tins.values().map(|tin| tin.guaranteed.load(Relaxed));
        let parts = rates.map(|rate| rate * 100 / tins.rate.load(Relaxed));
        parts.collect::<Vec<_>>()
    };
    tins.enter(ClassId(0));
    tins.enter(ClassId(2));
    let parts_of_two = parts();
    assert!((49..=50).contains(&parts_of_two[0]) && (49..=50).contains(&parts_of_two[2]));
    tins.enter(ClassId(1));
    assert!(parts()[2] <= 1, "the others are promised all of it");
    tins.leave(ClassId(0));
    assert!(parts()[2] >= 49);
}

#[test]
fn packets_larger_than_a_burst_have_their_share() {
    let (jumbo, small, slow) = (9_050, 1_500, Bitrate::mbit(10));
    let now = Instant::now();
    let terms = |share| Terms { share, limit: None };
    let shares = [Some(Share::Percent(20)), None];
    let classes = (0..).map(ClassId).zip(shares.map(terms));
    let tins = Tins::new(Clock::new(now), &classes.collect(), Some(slow));
    tins.tins.keys().for_each(|&class| tins.enter(class));
    let mut sent = [0, 0];
    for step in 1..=STEPS {
        let at = now + STEP * step;
        for (class, least) in [jumbo, small].into_iter().enumerate() {
            let id = ClassId(class as u8);
            let look = Look {
                wanted: u64::MAX,
                least,
            };
            let bytes = tins.grant(id, look, 0, at).bytes / least * least;
            tins.spend(id, bytes, 0, at);
            sent[class] += bytes;
        }
    }
    let whole = (slow.as_bytes_per_second() as f64 * GIVEN * (STEP * STEPS).as_secs_f64()) as u64;
    let [large, _] = sent;
    let all: u64 = sent.iter().sum();
    assert!(large + 2 * jumbo >= whole / 5, "{sent:?} of {whole}");
    assert!(all <= whole + 4 * jumbo, "{sent:?} of {whole}");
}
