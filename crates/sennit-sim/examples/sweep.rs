use sennit_sim::{Dice, Direction, Kind, Trial};
use std::time::Duration;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let kind = if args[1] == "tcp" {
        Kind::Tcp
    } else {
        Kind::Quic
    };
    let streams: u16 = args[2].parse().unwrap();
    let count: usize = args[3].parse().unwrap();
    let (from, to, step): (u64, u64, usize) = (
        args[4].parse().unwrap(),
        args[5].parse().unwrap(),
        args[6].parse().unwrap(),
    );
    let max: u64 = args[7].parse().unwrap();
    for seed in (from..to).step_by(step) {
        let mut dice = Dice::new(seed);
        let links: Vec<_> = (0..count).map(|_| dice.link(4..=max)).collect();
        let trial = Trial {
            kind,
            streams,
            direction: if seed % 4 < 2 {
                Direction::Up
            } else {
                Direction::Down
            },
            warm_up: Duration::from_millis(1500),
            span: Duration::from_millis(3500),
            seed,
        };
        let o = trial.run(&links);
        let best = trial.best_alone(&links);
        let texts: Vec<_> = links.iter().map(ToString::to_string).collect();
        println!(
            "{:.3} seed {seed} {:?} {:.2} of {best:.2} stall {:?} {}",
            o.goodput / best,
            trial.direction,
            o.goodput,
            o.longest_stall,
            texts.join(" ")
        );
    }
}
