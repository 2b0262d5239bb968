//! The model against its own statistics: rate, loss, bursts, delay and order.

use std::time::{Duration, Instant};

use sennit_netem::{Bitrate, Config, Jitter, Link, Loss, Queue, Reason, Shape};

const FRAME: usize = 1250;
const LEN: usize = FRAME - 14;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Offers `count` packets `gap` apart; gives for each the arrival, if it arrived, after the offer.
fn send(config: Config, seed: u64, count: usize, gap: Duration) -> Vec<Option<Duration>> {
    let start = Instant::now();
    let mut link = Link::new(config, seed);
    let mut arrivals = vec![None; count];
    for number in 0..count {
        let now = start + gap * number as u32;
        drain_until(&mut link, now, start, gap, &mut arrivals);
        let _ = link.handle_packet(LEN, number, now);
    }
    drain_until(&mut link, start + ms(10_000_000), start, gap, &mut arrivals);
    assert!(link.is_empty());
    arrivals
}

fn drain_until(
    link: &mut Link<usize>,
    end: Instant,
    start: Instant,
    gap: Duration,
    arrivals: &mut [Option<Duration>],
) {
    while let Some(at) = link.poll_timeout().filter(|at| *at <= end) {
        while let Some(number) = link.poll_output(at) {
            arrivals[number] = Some(at - (start + gap * number as u32));
        }
    }
}

/// Half width of the interval that holds a share of `n` draws in all but one of 10⁴ experiments.
fn tolerance(p: f64, n: usize) -> f64 {
    4.0 * (p * (1.0 - p) / n as f64).sqrt()
}

fn lost(arrivals: &[Option<Duration>]) -> f64 {
    arrivals.iter().filter(|arrival| arrival.is_none()).count() as f64 / arrivals.len() as f64
}

#[test]
fn a_saturated_link_delivers_exactly_its_rate() {
    let config = Config {
        rate: Some(Bitrate::mbit(80)),
        ..Config::default()
    };
    let start = Instant::now();
    let mut link = Link::new(config, 1);
    let mut bytes = 0;
    for micros in (0..1_000_000).step_by(50) {
        let now = start + Duration::from_micros(micros);
        let _ = link.handle_packet(LEN, (), now);
        while link.poll_output(now).is_some() {
            bytes += FRAME;
        }
    }

    let asked = 80e6 / 8.0;
    assert!(
        (bytes as f64 / asked - 1.0).abs() < 0.001,
        "{bytes} bytes in a second"
    );
}

#[test]
fn the_queue_holds_its_limit_and_refuses_the_next() {
    let config = Config {
        rate: Some(Bitrate::mbit(1)),
        queue: Queue::Bytes(10 * FRAME),
        ..Config::default()
    };
    let now = Instant::now();
    let mut link = Link::new(config, 1);

    let accepted = (0..20)
        .filter(|_| link.handle_packet(LEN, (), now).is_ok())
        .count();

    assert_eq!(accepted, 10);
    assert_eq!(link.counters().dropped_queue, 10);
    assert_eq!(link.counters().queue_max, 10 * FRAME);
}

#[test]
fn a_queue_limit_in_time_follows_the_rate() {
    let config = |mbit| Config {
        rate: Some(Bitrate::mbit(mbit)),
        ..Config::default()
    };

    assert_eq!(config(800).queue_limit(), 5_000_000);
    assert_eq!(config(1).queue_limit(), 64 * 1024);
}

#[test]
fn a_packet_takes_its_wire_time_and_then_the_delay() {
    let config = Config {
        rate: Some(Bitrate::mbit(10)),
        delay: ms(30),
        ..Config::default()
    };

    let arrivals = send(config, 1, 100, ms(5));

    assert!(arrivals.iter().all(|arrival| *arrival == Some(ms(31))));
}

#[test]
fn random_loss_is_within_its_confidence_interval() {
    for (seed, p) in [(1, 0.001), (2, 0.02), (3, 0.3)] {
        let n = 200_000;
        let config = Config {
            loss: Loss::Random(p),
            ..Config::default()
        };

        let ratio = lost(&send(config, seed, n, Duration::from_micros(10)));

        assert!(
            (ratio - p).abs() < tolerance(p, n),
            "asked {p}, lost {ratio}"
        );
    }
}

#[test]
fn bursty_loss_has_the_asked_ratio_and_mean_burst() {
    let (ratio, length, n) = (0.02, 5.0, 400_000);
    let config = Config {
        loss: Loss::bursts(ratio, length),
        ..Config::default()
    };

    let arrivals = send(config, 7, n, Duration::from_micros(10));

    let bursts = arrivals
        .windows(2)
        .filter(|pair| pair[0].is_some() && pair[1].is_none())
        .count() as f64;
    let mean = lost(&arrivals) * n as f64 / bursts;
    // A burst is geometric: its standard deviation is that of n·ratio/length draws.
    let spread = 4.0 * (length * (length - 1.0)).sqrt() / bursts.sqrt();
    assert!((mean - length).abs() < spread, "bursts of {mean}");
    let correlated = tolerance(ratio, n) * (2.0 * length).sqrt();
    assert!(
        (lost(&arrivals) - ratio).abs() < correlated,
        "lost {}",
        lost(&arrivals)
    );
}

#[test]
fn gilbert_elliott_ratio_follows_from_its_four_probabilities() {
    let loss = Loss::GilbertElliott {
        p: 0.01,
        r: 0.1,
        h: 0.2,
        k: 0.999,
    };
    let ratio = loss.ratio().expect("it does not depend on the packets");
    let n = 400_000;

    let measured = lost(&send(
        Config {
            loss,
            ..Config::default()
        },
        3,
        n,
        ms(1),
    ));

    assert!(
        (measured - ratio).abs() < 5.0 * tolerance(ratio, n),
        "{measured} for {ratio}"
    );
}

#[test]
fn exactly_the_listed_packets_are_lost() {
    let config = Config {
        loss: Loss::Exact([0, 7, 8].into()),
        ..Config::default()
    };

    let arrivals = send(config, 1, 10, ms(1));

    let gone: Vec<_> = (0..10)
        .filter(|number| arrivals[*number].is_none())
        .collect();
    assert_eq!(gone, [0, 7, 8]);
}

#[test]
fn a_lost_packet_occupies_the_wire_and_is_handed_back() {
    let rate = Some(Bitrate::mbit(10));
    let config = Config {
        rate,
        loss: Loss::Exact([0].into()),
        ..Config::default()
    };
    let now = Instant::now();
    let mut link = Link::new(config, 1);

    let dropped = link
        .handle_packet(LEN, "first", now)
        .expect_err("it is on the list");
    link.handle_packet(LEN, "second", now)
        .expect("the queue has room");

    assert_eq!((dropped.reason, dropped.packet), (Reason::Loss, "first"));
    assert_eq!(link.poll_output(now + ms(1)), None);
    assert_eq!(link.poll_output(now + ms(2)), Some("second"));
}

#[test]
fn an_oversized_packet_is_refused() {
    let mut link = Link::new(
        Config {
            mtu: 1400,
            ..Config::default()
        },
        1,
    );
    let now = Instant::now();

    assert!(link.handle_packet(1400, (), now).is_ok());
    let dropped = link
        .handle_packet(1401, (), now)
        .expect_err("it is too large");

    assert_eq!(dropped.reason, Reason::Size);
}

fn moments(arrivals: &[Option<Duration>]) -> (f64, f64) {
    let delays: Vec<f64> = arrivals
        .iter()
        .flatten()
        .map(Duration::as_secs_f64)
        .collect();
    let n = delays.len() as f64;
    let mean = delays.iter().sum::<f64>() / n;
    let variance = delays
        .iter()
        .map(|delay| (delay - mean).powi(2))
        .sum::<f64>()
        / n;
    (mean * 1e3, variance.sqrt() * 1e3)
}

fn jittery(shape: Shape, reorder: bool) -> Config {
    let jitter = Jitter {
        spread: ms(3),
        shape,
        reorder,
    };
    Config {
        delay: ms(20),
        jitter,
        ..Config::default()
    }
}

#[test]
fn uniform_jitter_has_its_mean_deviation_and_bounds() {
    let arrivals = send(jittery(Shape::Uniform, true), 5, 100_000, ms(1));

    let (mean, deviation) = moments(&arrivals);
    assert!((mean - 20.0).abs() < 0.03, "mean {mean} ms");
    assert!(
        (deviation - 3.0 / 3f64.sqrt()).abs() < 0.03,
        "deviation {deviation} ms"
    );
    assert!(
        arrivals
            .iter()
            .flatten()
            .all(|delay| *delay >= ms(17) && *delay <= ms(23))
    );
}

#[test]
fn normal_jitter_has_its_mean_and_deviation() {
    let arrivals = send(jittery(Shape::Normal, true), 6, 100_000, ms(1));

    let (mean, deviation) = moments(&arrivals);
    assert!((mean - 20.0).abs() < 0.05, "mean {mean} ms");
    assert!((deviation - 3.0).abs() < 0.05, "deviation {deviation} ms");
}

#[test]
fn jitter_with_reordering_lets_packets_overtake() {
    let gap = Duration::from_micros(100);

    let arrivals = send(jittery(Shape::Uniform, true), 7, 1000, gap);

    assert!(overtaken(&arrivals, gap) > 300);
}

#[test]
fn jitter_without_reordering_keeps_order_and_mean_at_any_rate() {
    for (shape, micros) in [
        (Shape::Uniform, 20),
        (Shape::Normal, 20),
        (Shape::Normal, 20_000),
    ] {
        let gap = Duration::from_micros(micros);
        let walks = 2000 * 12_000 / micros as usize;

        let arrivals = send(jittery(shape, false), 8, walks, gap);

        let (mean, deviation) = moments(&arrivals);
        assert_eq!(overtaken(&arrivals, gap), 0);
        assert!(
            (mean - 20.0).abs() < 0.6,
            "mean {mean} ms every {micros} us"
        );
        assert!(deviation > 1.0, "deviation {deviation} ms");
    }
}

fn overtaken(arrivals: &[Option<Duration>], gap: Duration) -> usize {
    let times: Vec<_> = arrivals
        .iter()
        .enumerate()
        .map(|(number, arrival)| arrival.expect("nothing is lost") + gap * number as u32)
        .collect();
    times.windows(2).filter(|pair| pair[0] > pair[1]).count()
}

#[test]
fn the_seed_decides_everything() {
    let config = || Config {
        loss: Loss::bursts(0.1, 3.0),
        ..jittery(Shape::Normal, true)
    };
    let gap = Duration::from_micros(300);

    assert_eq!(send(config(), 1, 5000, gap), send(config(), 1, 5000, gap));
    assert_ne!(send(config(), 1, 5000, gap), send(config(), 2, 5000, gap));
}

#[test]
fn polling_more_often_changes_nothing() {
    let config = || Config {
        rate: Some(Bitrate::mbit(20)),
        loss: Loss::Random(0.1),
        ..jittery(Shape::Uniform, true)
    };
    let start = Instant::now();
    let arrivals = |poll_every: u64| {
        let mut link = Link::new(config(), 4);
        let mut seen = Vec::new();
        for micros in 0..200_000 {
            let now = start + Duration::from_micros(micros);
            if micros % 400 == 0 && micros < 100_000 {
                let _ = link.handle_packet(LEN, micros, now);
            }
            if micros % poll_every == 0 {
                seen.extend(std::iter::from_fn(|| link.poll_output(now)));
            }
        }
        seen
    };

    assert_eq!(arrivals(1), arrivals(5000));
    assert!(arrivals(1).len() > 200);
}
