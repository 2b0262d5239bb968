//! Some minutes of chaos.

use std::time::Duration;

use sennit_sim::chaos;

#[test]
fn whatever_happens_to_links_and_ends_the_rules_hold() {
    for seed in 1..=8 {
        let run = chaos::run(seed, Duration::from_secs(90));
        let summary = run.unwrap_or_else(|broken| panic!("{broken}"));
        assert!(summary.arrived > summary.sent / 4, "{summary:?}");
    }
}
