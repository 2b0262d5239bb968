//! Properties over generated packets. Packets and expected checksums come from `etherparse`, so
//! that no code of this crate vouches for itself.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on stops where it is"
)]

mod build;
mod checksums;
mod coalescing;
mod malformed;
mod rewriting;
mod round_trip;
mod segmenting;
mod thinning;

use proptest::test_runner::{Config, RngSeed};

/// Every run has the same packets; other seeds are the fuzzer's work.
fn seeded(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Config::default()
    }
}
