//! The same seed gives the same run, whenever it begins and whatever keys it uses.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_engine::facts::PathStatus;
use sennit_sim::{Dice, Direction, Kind, Transfer, World};

use crate::MS;

/// Signatures of ECDSA are not always of the same length. So handshakes took a few nanoseconds more
/// or less, and whatever came after them went its own way.
#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..6 {
        for kind in [Kind::Tcp, Kind::Quic] {
            let (first, second) = (run(kind, seed), run(kind, seed));
            assert_eq!(first, second, "seed {seed}, {kind:?}");
        }
    }
}

/// What had arrived after each millisecond, and all there is to say of the paths.
fn run(kind: Kind, seed: u64) -> (Vec<u64>, Duration, String) {
    let mut dice = Dice::new(seed);
    let links = [dice.link(4..=30), dice.link(4..=30)];
    let begin = Instant::now();
    let mut world = World::new(&links, Policy::Bond, seed, begin);
    assert!(world.connect(2), "seed {seed}: {:?}", world.edge.status());
    let mut transfer = Transfer::new(kind, Direction::Down, 2, world.now());
    let arrived = (0..1000).map(|_| {
        transfer.run(&mut world, MS);
        transfer.received()
    });
    let arrived = arrived.collect();
    let ends = [world.edge.status(), world.hub.status()].concat();
    let paths = ends.iter().flat_map(|end| &end.paths);
    let told: Vec<_> = paths.map(|path| told(path, begin)).collect();
    (arrived, transfer.longest_stall, told.concat())
}

/// All there is to say of a path, but for its names.
fn told(path: &PathStatus, begin: Instant) -> String {
    let health = (path.state, path.reason, path.since - begin, path.one_way);
    let sent = (path.sent_packets, path.lost_packets, path.sent_bytes);
    let times = (path.rtt, path.rtt_min, path.received_bytes);
    let control = (path.rate, path.cwnd, path.congestion, path.in_flight);
    let size = (path.mtu, path.mtu_source, path.small, path.worth);
    format!("{health:?} {sent:?} {times:?} {control:?} {size:?}")
}
