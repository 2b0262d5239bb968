//! A link that changes while packets are in it.

use std::time::{Duration, Instant};

use sennit_netem::{Bitrate, Config, Jitter, Link, Loss, Reason, Shape};

const LEN: usize = 1250 - 14;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn config(mbit: u64) -> Config {
    Config {
        rate: Some(Bitrate::mbit(mbit)),
        delay: ms(10),
        ..Config::default()
    }
}

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
fn a_new_rate_holds_for_the_unsent_rest() {
    let start = Instant::now();
    let mut link = Link::new(config(10), 1);
    for number in 0..3 {
        link.handle_packet(LEN, number, start)
            .expect("the queue has room");
    }

    // Half of the first packet is sent; the other half and the rest go ten times slower.
    link.set_config(config(1), start + Duration::from_micros(500));

    let expected = [
        (0, Duration::from_micros(15_500)),
        (1, Duration::from_micros(25_500)),
    ];
    assert_eq!(arrivals(&mut link, start)[..2], expected);
}

#[test]
fn a_link_whose_limit_is_lifted_empties_at_once() {
    let start = Instant::now();
    let mut link = Link::new(config(1), 1);
    link.handle_packet(LEN, (), start)
        .expect("the queue has room");
    link.handle_packet(LEN, (), start)
        .expect("the queue has room");

    link.set_config(
        Config {
            rate: None,
            ..config(1)
        },
        start + ms(1),
    );

    assert_eq!(arrivals(&mut link, start), [((), ms(11)), ((), ms(11))]);
}

#[test]
fn an_outage_loses_queue_and_flight_and_everything_offered() {
    let start = Instant::now();
    let mut link = Link::new(config(10), 1);
    for _ in 0..3 {
        link.handle_packet(LEN, (), start)
            .expect("the queue has room");
    }

    link.set_config(
        Config {
            outage: true,
            ..config(10)
        },
        start + ms(2),
    );
    let dropped = link
        .handle_packet(LEN, (), start + ms(3))
        .expect_err("the link is out");
    link.set_config(config(10), start + ms(4));

    assert_eq!(dropped.reason, Reason::Outage);
    assert_eq!(link.counters().dropped_outage, 4);
    assert_eq!(arrivals(&mut link, start), []);
    link.handle_packet(LEN, (), start + ms(4))
        .expect("the link is back");
    assert_eq!(arrivals(&mut link, start), [((), ms(15))]);
}

#[test]
fn a_shorter_delay_does_not_reorder_unless_asked() {
    for reorder in [false, true] {
        let jitter = Jitter {
            spread: Duration::ZERO,
            shape: Shape::Uniform,
            reorder,
        };
        let start = Instant::now();
        let slow = Config {
            delay: ms(50),
            jitter,
            ..Config::default()
        };
        let mut link = Link::new(slow.clone(), 1);
        link.handle_packet(LEN, "slow", start)
            .expect("nothing waits");

        link.set_config(
            Config {
                delay: ms(5),
                ..slow
            },
            start + ms(1),
        );
        link.handle_packet(LEN, "fast", start + ms(1))
            .expect("nothing waits");

        let first = arrivals(&mut link, start)[0].0;
        assert_eq!(first, if reorder { "fast" } else { "slow" });
    }
}

#[test]
fn every_packet_is_accounted_for_exactly_once() {
    let start = Instant::now();
    let loss = Loss::Random(0.2);
    let mut link = Link::new(Config { loss, ..config(5) }, 9);
    for micros in (0..2_000_000).step_by(1500) {
        let now = start + Duration::from_micros(micros);
        let _ = link.handle_packet(LEN, (), now);
        while link.poll_output(now).is_some() {}
        if micros == 900_000 {
            link.set_config(
                Config {
                    outage: true,
                    ..config(5)
                },
                now,
            );
        }
        if micros == 1_200_000 {
            link.set_config(config(5), now);
        }
    }
    arrivals(&mut link, start);

    let counters = link.counters();
    assert!(counters.dropped_loss > 0 && counters.dropped_queue > 0);
    assert!(counters.dropped_outage > 0);
    assert_eq!(counters.offered, counters.delivered + counters.dropped());
}

#[test]
fn counting_anew_changes_nothing_else() {
    let start = Instant::now();
    let exact = Loss::Exact([2].into());
    let mut link = Link::new(
        Config {
            loss: exact,
            ..config(10)
        },
        1,
    );
    for number in 0..2 {
        link.handle_packet(LEN, number, start)
            .expect("the queue has room");
    }

    link.reset_counters();

    assert!(
        link.handle_packet(LEN, 2, start).is_err(),
        "the third of all is on the list"
    );
    assert_eq!(arrivals(&mut link, start).len(), 2);
    let counters = link.counters();
    assert_eq!(
        (counters.offered, counters.delivered, counters.dropped_loss),
        (1, 2, 1)
    );
}
