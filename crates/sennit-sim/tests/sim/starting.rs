//! Flows that start together on a tunnel that has carried nothing yet.

use sennit_sim::{Direction, Kind, LinkSpec, Trial};

use crate::MS;

/// Their first windows together were several of the path's, so each was told to slow down within
/// the first round trips: four had 11 of 200 Mbit/s over the first eight seconds.
#[test]
fn flows_that_start_together_fill_a_long_path_within_seconds() {
    for (link, streams, least) in [("200/64", 4, 120.0), ("100/100", 16, 60.0)] {
        let link = link.parse::<LinkSpec>().expect("a link");
        for direction in [Direction::Down, Direction::Up] {
            let trial = Trial {
                kind: Kind::Quic,
                direction,
                streams,
                warm_up: MS * 10,
                span: MS * 8000,
                seed: 1,
            };
            let outcome = trial.run(std::slice::from_ref(&link)).expect("it comes up");
            let goodput = outcome.goodput;
            println!("{streams} flows {direction:?}: {goodput:.1} Mbit/s");
            assert!(
                goodput > least,
                "{streams} flows {direction:?}: {goodput:.1}"
            );
        }
    }
}
