//! What each thing that a client can do costs its hub:
//! `cargo run -p sennit-fuzz --example hostile -- [SECONDS [PART OF A NAME]]`.

use std::time::{Duration, Instant};

use sennit_fuzz::engine::hostile;

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|it| it.parse().ok()).unwrap_or(2);
    let only = args.next();
    println!(
        "{:46} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6} {:>9} ended",
        "what", "packets", "answers", "µs each", "most kB", "left kB", "events", "honest"
    );
    let mut meter = |act: &mut dyn FnMut()| {
        let mut took = Duration::ZERO;
        let info = allocation_counter::measure(|| {
            let began = Instant::now();
            act();
            took = began.elapsed();
        });
        (took, info.bytes_current)
    };
    hostile::hostile(
        Duration::from_secs(seconds),
        only.as_deref(),
        &mut meter,
        &mut |damage| println!("{damage}"),
    );
}
