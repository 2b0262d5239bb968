//! Links whose rate, delay or both move: what they carry, and what a ping beside it sees.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_sim::{Direction, Kind, LinkSpec, Transfer, Trial, World};

use crate::MS;

const WARM_UP: Duration = Duration::from_secs(5);
const SPAN: Duration = Duration::from_secs(25);

/// What four flows reached, and a ping beside them.
struct Seen {
    /// Of what they reach over the link without a tunnel. Headers of the tunnel take 0.07 of it.
    part: f64,
    pings: Vec<Duration>,
}

impl Seen {
    /// Over a link of this motion, with seeds 1 to so many one after the other.
    fn over(motion: &str, seeds: u64, direction: Direction) -> Self {
        let (mut tunnel, mut plain) = (0.0, 0.0);
        let mut pings = Vec::new();
        for seed in 1..=seeds {
            let link: LinkSpec = motion
                .replace('N', &seed.to_string())
                .parse()
                .expect("a link");
            let trial = Trial {
                kind: Kind::Quic,
                direction,
                streams: 4,
                warm_up: WARM_UP,
                span: SPAN,
                seed,
            };
            plain += trial.plain(&link, 0).expect("flows over one link");
            tunnel += measure(&trial, &[link], &mut pings);
        }
        pings.sort_unstable();
        let part = tunnel / plain;
        let seen = Self { part, pings };
        println!(
            "{motion} {direction:?}: {part:.2} of plain, {:.1} Mbit/s, ping p50 {:?}, p95 {:?}, p99 {:?}",
            tunnel / seeds as f64,
            seen.ping(0.5),
            seen.ping(0.95),
            seen.ping(0.99)
        );
        seen
    }

    fn ping(&self, quantile: f64) -> Duration {
        self.pings[((self.pings.len() - 1) as f64 * quantile) as usize]
    }
}

/// Goodput in Mbit/s through a tunnel.
fn measure(trial: &Trial, links: &[LinkSpec], pings: &mut Vec<Duration>) -> f64 {
    let mut world = World::new(links, Policy::Bond, trial.seed, Instant::now());
    assert!(world.connect(links.len()), "{:?}", world.edge.status());
    let now = world.now();
    let flows = Transfer::new(trial.kind, trial.direction, trial.streams, now);
    let mut flows = flows.with_ping(100 * MS, now);
    flows.run(&mut world, trial.warm_up);
    let before = flows.pings().len();
    let goodput = flows.measure(&mut world, trial.span);
    // The last ones may be on their way.
    let all = flows.pings();
    pings.extend(&all[before..all.len() - 5]);
    goodput
}

/// BBR's greatest rate of late was too much a moment later, and its probes came too late.
#[test]
fn a_drive_is_followed() {
    for direction in [Direction::Down, Direction::Up] {
        let seen = Seen::over("lte@N/20", 3, direction);
        assert!(seen.part > 0.83, "{:.2}", seen.part);
        // In the deepest fades of these it is the ping itself that fills the link.
        assert!(seen.ping(0.95) < MS * 700, "{:?}", seen.ping(0.95));
    }
}

/// Two drives at once carry more than the better one without a tunnel.
#[test]
fn two_drives_are_bonded() {
    let (mut tunnel, mut better, mut sum) = (0.0, 0.0, 0.0);
    let mut pings = Vec::new();
    for seed in 1..=8 {
        let drives = [format!("lte@{seed}/20"), format!("lte@{}/30", seed + 100)];
        let links = drives.map(|link| link.parse::<LinkSpec>().expect("a link"));
        let trial = Trial {
            kind: Kind::Quic,
            direction: if seed % 2 == 0 {
                Direction::Up
            } else {
                Direction::Down
            },
            streams: 4,
            warm_up: WARM_UP,
            span: SPAN,
            seed,
        };
        let plain = |index| {
            trial
                .plain(&links[index], index)
                .expect("flows over a link")
        };
        let plain = [0, 1].map(plain);
        better += plain[0].max(plain[1]);
        sum += plain[0] + plain[1];
        tunnel += measure(&trial, &links, &mut pings);
    }
    let (of_better, of_sum) = (tunnel / better, tunnel / sum);
    println!("two drives: {of_better:.2} of the better one's plain, {of_sum:.2} of the sum");
    assert!(of_better > 1.1, "{of_better:.2}");
    assert!(of_sum > 0.75, "{of_sum:.2}");
}

/// The next step of the rate came before BBR had found the last.
#[test]
fn a_rate_in_steps_is_followed() {
    for direction in [Direction::Down, Direction::Up] {
        let seen = Seen::over("steps/20", 1, direction);
        assert!(seen.part > 0.85, "{:.2}", seen.part);
        assert!(seen.ping(0.95) < MS * 350, "{:?}", seen.ping(0.95));
    }
}

#[test]
fn another_satellite_is_no_congestion() {
    let seen = Seen::over("starlink@N*0.3/25", 2, Direction::Down);
    assert!(seen.part > 0.8, "{:.2}", seen.part);
    assert!(seen.ping(0.99) < MS * 300, "{:?}", seen.ping(0.99));
}

/// A window that fitted while a satellite was near and slow, cut once in each handover, took longer
/// to grow than until the next: one flow, or four, had 0.6 of what they have without a tunnel.
#[test]
fn flows_find_the_rate_of_a_wide_satellite_again() {
    for streams in [1, 4] {
        let link = "starlink@377*1.97/19".parse::<LinkSpec>().expect("a link");
        let trial = Trial {
            kind: Kind::Quic,
            direction: Direction::Down,
            streams,
            warm_up: MS * 30_000,
            span: MS * 15_000,
            seed: 1,
        };
        let plain = trial.plain(&link, 0).expect("flows over a link");
        let part = measure(&trial, &[link], &mut Vec::new()) / plain;
        println!("{streams} flows: {part:.2} of plain");
        assert!(part > 0.7, "{streams} flows: {part:.2}");
    }
}

/// BBR took the longer round trip for a queue of its own, and sent less each round: 12 Mbit/s were
/// left a minute later. And nobody waited any more for what is sent again.
#[test]
fn a_path_that_becomes_much_longer_is_no_queue() {
    // The two directions become longer one after the other.
    let goodput = |at_first: u32| {
        let link: LinkSpec = format!("100/{at_first}/0.1%").parse().expect("a link");
        let mut world = World::new(&[link], Policy::Bond, 1, Instant::now());
        assert!(world.connect(1), "{:?}", world.edge.status());
        let mut before = Transfer::new(Kind::Quic, Direction::Up, 4, world.now());
        before.run(&mut world, WARM_UP);
        world.change(0, |link| link.delay = link.delay.max(80 * MS));
        before.run(&mut world, 200 * MS);
        world.change(0, |link| link.delay = 150 * MS);
        let mut flows = Transfer::new(Kind::Quic, Direction::Up, 4, world.now());
        flows.run(&mut world, WARM_UP);
        flows.measure(&mut world, SPAN)
    };
    let always = goodput(150);
    for at_first in [5, 10] {
        let became = goodput(at_first);
        println!(
            "300 ms, {} before: {became:.1} of {always:.1}",
            2 * at_first
        );
        assert!(became > 0.45 * always, "{became:.1} of {always:.1}");
    }
}

/// A short path that becomes three times as long is no longer than a queue of our own could make
/// it, but for its rate. A window of twice the old path is less than the new one holds, so each
/// round brought less: 13 of 25 Mbit/s, until the least round trip was forgotten after ten seconds.
#[test]
fn a_short_path_that_becomes_longer_is_no_queue_either() {
    for after in [0, 2000] {
        let link: LinkSpec = "25/6".parse().expect("a link");
        let mut world = World::new(&[link], Policy::Bond, 1, Instant::now());
        assert!(world.connect(1), "{:?}", world.edge.status());
        let mut flows = Transfer::new(Kind::Quic, Direction::Up, 4, world.now());
        flows.run(&mut world, after * MS);
        world.change(0, |link| link.delay = 20 * MS);
        flows.run(&mut world, 2000 * MS);
        let goodput = flows.measure(&mut world, 5000 * MS);
        println!("40 ms, 12 for the first {after} ms: {goodput:.1} of 25 Mbit/s");
        assert!(goodput > 19.0, "{goodput:.1} Mbit/s");
    }
}
