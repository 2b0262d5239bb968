//! A slender link that loses packets, beside a wide one.

use std::time::Duration;

use sennit_sim::{Direction, Kind, LinkSpec, Trial};

/// What one flow reaches over the wide link alone, in the mean of six seeds.
const ALONE: f64 = 27.2;

/// Packets were given up on too soon, because one that had left ahead of their turn over the
/// slender link counted as their successor since it came; and what stood was dropped each time that
/// the slender link had lost nothing for a moment. The flow took both for congestion, and reached
/// 24.3 Mbit/s instead of 27.5.
#[test]
fn a_slender_link_that_loses_packets_costs_the_wide_one_nothing() {
    let links: Vec<LinkSpec> = ["30/67±16", "4/94/0.9%"]
        .map(|link| link.parse().expect("a link"))
        .into();
    let goodput = |seed| {
        let trial = Trial {
            kind: Kind::Quic,
            direction: Direction::Up,
            streams: 1,
            warm_up: Duration::from_secs(15),
            span: Duration::from_secs(30),
            seed,
        };
        trial.run(&links).expect("both links come up").goodput
    };
    let seeds = [1, 2, 6];

    let mean = seeds.map(goodput).iter().sum::<f64>() / seeds.len() as f64;

    assert!(mean > 0.95 * ALONE, "{mean:.1} Mbit/s");
}
