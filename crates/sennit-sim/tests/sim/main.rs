//! Whole edges and hubs in virtual time, over emulated links.
//!
//! Each module asks one question, which its head says, and has a trial for each thing that might go
//! wrong. All are one program, so that no core waits for the last test of each question:
//! `cargo test --workspace --test sim -- trouble::` asks one of them.

mod autorate;
mod bonding;
mod boxes;
mod busy;
mod chaos;
mod complaints;
mod confined;
mod echo;
mod elsewhere;
mod farewells;
mod flood;
mod handshakes;
mod health;
mod hellos;
mod lossy;
mod marginal;
mod marks;
mod moving;
mod neighbour;
mod pairs;
mod reload;
mod renewal;
mod resuming;
mod returning;
mod seeds;
mod shares;
mod silent;
mod slender;
mod slow;
mod small_path;
mod sorting;
mod starting;
mod status;
mod thin;
mod trouble;
mod tunnel;
mod unasked;

use std::{env, ops::Range, time::Duration};

use sennit_sim::{Direction, LinkSpec};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const BOTH: [Direction; 2] = [Direction::Down, Direction::Up];

fn link(text: &str) -> LinkSpec {
    text.parse().expect("a link")
}

/// Seeds by `SENNIT_SIM_SEEDS`, as in 0..10.
fn asked_seeds() -> Option<Range<u64>> {
    let text = env::var("SENNIT_SIM_SEEDS").ok()?;
    let (from, to) = text.split_once("..").expect("seeds are like 0..10");
    Some(from.parse().expect("a seed")..to.parse().expect("a seed"))
}
