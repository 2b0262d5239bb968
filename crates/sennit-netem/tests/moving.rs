//! A link that follows a script: whatever the script and the traffic, the wire is busy while
//! something waits, and never carries more than the area under its rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use sennit_netem::{Bitrate, Config, Jitter, Link, Passage, Queue, Step, Trace};

const HEADER: usize = 14;
const LEN: usize = 1250 - HEADER;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn following(steps: impl Into<Vec<Step>>) -> Config {
    let trace = Trace::new("test", steps.into()).expect("the script is one");
    Config {
        queue: Queue::Bytes(200_000),
        ..Config::default()
    }
    .moving(Arc::new(trace))
}

/// Everything that is in the link, with when it arrives.
fn arrivals<P>(link: &mut Link<P>, start: Instant) -> Vec<(P, Duration)> {
    let mut arrivals = Vec::new();
    while let Some(at) = link.poll_timeout() {
        while let Some(packet) = link.poll_output(at) {
            arrivals.push((packet, at - start));
        }
    }
    arrivals
}

#[test]
fn what_waits_leaves_at_the_rate_that_holds_while_it_waits() {
    let start = Instant::now();
    let rates = [10, 1, 100].map(|mbit| Step::at(ms(2), Bitrate::mbit(mbit)));
    let mut link = Link::new(following(rates), 1);
    for number in 0..6 {
        link.handle_packet(LEN, number, start)
            .expect("the queue has room");
    }

    // Two at 10 Mbit/s fill the first step; 250 bytes of the third leave in the second, the rest in
    // 80 us.
    let micros = [1000, 2000, 4080, 4180, 4280, 4380].map(Duration::from_micros);
    let times = arrivals(&mut link, start).into_iter().map(|(_, at)| at);
    assert!(times.eq(micros));
}

#[test]
fn silence_holds_or_loses_what_waits() {
    // Half of the second packet leaves before the silence.
    for (passage, expected) in [
        (
            Passage::Held,
            [(0, 1000), (1, 4500), (2, 5500), (3, 6500)].as_slice(),
        ),
        (Passage::Lost, [(0, 1000), (3, 4000)].as_slice()),
    ] {
        let start = Instant::now();
        let steps = [
            (1500, Passage::Open),
            (2500, passage),
            (6000, Passage::Open),
        ];
        let steps = steps.map(|(micros, passage)| Step {
            passage,
            ..Step::at(Duration::from_micros(micros), Bitrate::mbit(10))
        });
        let mut link = Link::new(following(steps), 1);
        for number in 0..4 {
            link.handle_packet(LEN, number, start)
                .expect("the queue has room");
        }

        let seen = arrivals(&mut link, start);
        let expected = expected
            .iter()
            .map(|(number, micros)| (*number, Duration::from_micros(*micros)));
        assert!(seen.iter().copied().eq(expected), "{passage:?}: {seen:?}");
        assert_eq!(link.counters().dropped_outage, 4 - seen.len() as u64);
    }
}

#[test]
fn a_delay_steps_without_reordering() {
    let start = Instant::now();
    let step = |delay| Step {
        delay: ms(delay),
        rate: None,
        ..Step::at(ms(10), Bitrate::mbit(1))
    };
    let config = Config {
        delay: ms(20),
        ..following([step(30), step(0)])
    };
    let mut link = Link::new(config, 1);
    for number in 0..5 {
        let now = start + ms(4 * number);
        link.handle_packet(LEN, number, now).expect("nothing waits");
    }

    let expected = [50, 54, 58, 58, 58].map(ms);
    let seen = arrivals(&mut link, start);
    assert!(seen.iter().map(|(_, at)| *at).eq(expected), "{seen:?}");
    assert!(seen.iter().map(|(number, _)| *number).eq(0..5));
}

/// The first one was taken for the next that arrives, and the second one came as late as it.
#[test]
fn where_the_delay_falls_a_packet_that_may_overtakes_in_time() {
    let start = Instant::now();
    let step = |span, delay| Step {
        delay: ms(delay),
        ..Step::at(ms(span), Bitrate::mbit(1))
    };
    let mut config = following([step(15, 40), step(85, 0)]);
    config.delay = ms(20);
    config.jitter.reorder = true;
    let mut link = Link::new(config, 1);
    for number in 0..2 {
        link.handle_packet(LEN, number, start)
            .expect("the queue has room");
    }

    assert_eq!(arrivals(&mut link, start), [(1, ms(40)), (0, ms(70))]);
}

#[test]
fn whoever_asks_late_hears_when_packets_arrived() {
    let start = Instant::now();
    let config = Config {
        delay: ms(20),
        jitter: Jitter {
            spread: ms(10),
            ..Jitter::NONE
        },
        ..following([Step::at(ms(10), Bitrate::mbit(1))])
    };
    let mut links = [(); 2].map(|()| Link::new(config.clone(), 1));
    for link in &mut links {
        for number in 0..10 {
            link.handle_packet(LEN, number, start)
                .expect("the queue has room");
        }
    }

    let [in_time, late] = &mut links;
    let late: Vec<_> = std::iter::from_fn(|| late.poll_arrival(start + ms(1000))).collect();
    let in_time = arrivals(in_time, start);
    let in_time = in_time.into_iter().map(|(number, at)| (start + at, number));
    assert!(in_time.eq(late));
}

#[test]
fn a_script_begins_anew_and_a_new_one_at_once() {
    let start = Instant::now();
    let steps = |mbit: [u64; 2]| following(mbit.map(|mbit| Step::at(ms(1), Bitrate::mbit(mbit))));
    let mut link = Link::new(steps([10, 20]), 1);
    link.begin(start);
    let now = start + ms(1001);
    link.handle_packet(LEN, "old", now).expect("nothing waits");
    // Half a millisecond at 20 Mbit/s is all of it; it would leave at once at 1000 Mbit/s.
    link.set_config(steps([1000, 1]), now + Duration::from_micros(250));

    let sent = Duration::from_micros(250 + 5);
    assert_eq!(arrivals(&mut link, now), [("old", sent)]);
}

/// A script by chance: rates from nothing to 200 Mbit/s, delays, silences.
fn random_steps(rng: &mut Pcg64Mcg) -> Vec<Step> {
    let count = 1 + rng.next_u64() % 20;
    let steps = (0..count).map(|_| Step {
        span: Duration::from_micros(1 + rng.next_u64() % 50_000),
        rate: Some(Bitrate::bps(1 + rng.next_u64() % 200_000_000)),
        delay: ms(rng.next_u64() % 30),
        passage: match rng.next_u64() % 4 {
            0 => Passage::Held,
            1 => Passage::Lost,
            2.. => Passage::Open,
        },
    });
    let first = Step::at(ms(1), Bitrate::mbit(50));
    std::iter::once(first).chain(steps).collect()
}

/// What a wire sent, by when the last bit left, and whether it had something to do all along.
fn send(seed: u64) -> (Arc<Trace>, Vec<(Duration, usize)>) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let config = following(
        random_steps(&mut rng)
            .into_iter()
            .map(|step| Step {
                delay: Duration::ZERO,
                passage: if step.passage == Passage::Lost {
                    Passage::Open
                } else {
                    step.passage
                },
                ..step
            })
            .collect::<Vec<_>>(),
    );
    let trace = config.trace.clone().expect("it has one");
    let start = Instant::now();
    let mut link = Link::new(config, seed);
    link.begin(start);
    let mut sent = Vec::new();
    let mut now = start;
    while now < start + ms(300) {
        // Always more than one packet waits; sizes and the moments of looking are anything.
        while link.len() < 3 {
            let len = 40 + (rng.next_u64() % 1460) as usize;
            link.handle_packet(len, len, now)
                .expect("the queue has room");
        }
        let due = link.poll_timeout().expect("something waits");
        now = due.min(now + Duration::from_micros(1 + rng.next_u64() % 3000));
        while let Some(len) = link.poll_output(now) {
            sent.push((now - start, len + HEADER));
        }
    }
    (trace, sent)
}

#[test]
fn a_busy_wire_carries_the_area_under_its_rate_and_never_more() {
    for seed in 0..40 {
        let (trace, sent) = send(seed);
        let totals: Vec<u64> = sent
            .iter()
            .scan(0, |total, (_, bytes)| {
                *total += *bytes as u64;
                Some(*total)
            })
            .collect();
        for from in (0..sent.len()).step_by(71) {
            for to in (from + 1..sent.len()).step_by(37) {
                let area = trace.bytes_between(sent[from].0, sent[to].0, None);
                let carried = totals[to] - totals[from];
                // Each packet ends on a whole nanosecond, in which up to 25 bits of the next could
                // have left.
                let grain = (to - from) as u64 * 4 + 2;
                assert!(carried <= area + 1, "seed {seed}: {carried} of {area}");
                assert!(carried + grain >= area, "seed {seed}: {carried} of {area}");
            }
        }
    }
}

#[test]
fn order_holds_and_a_run_repeats_whatever_the_script() {
    for seed in 0..60 {
        let run = |look: u64| {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let config = following(random_steps(&mut rng));
            let start = Instant::now();
            let mut link = Link::new(config, seed);
            link.begin(start);
            let mut seen = Vec::new();
            for number in 0..3000_u64 {
                let now = start + Duration::from_micros(number * 150);
                let _ = link.handle_packet(LEN, number, now);
                // How often anybody looks changes nothing.
                if number % look == 0 {
                    while let Some(at) = link.poll_timeout().filter(|at| *at <= now) {
                        seen.extend(link.poll_output(at).map(|packet| (packet, at - start)));
                    }
                }
            }
            seen.extend(arrivals(&mut link, start));
            let counters = link.counters();
            assert_eq!(counters.offered, counters.delivered + counters.dropped());
            seen
        };
        let seen = run(1);
        assert!(!seen.is_empty() && seen.is_sorted(), "seed {seed}");
        assert_eq!(seen, run(13), "seed {seed}");
    }
}
