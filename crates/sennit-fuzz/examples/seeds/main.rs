//! Writes the structured part of the corpus: `cargo run -p sennit-fuzz --example seeds`.
//!
//! Each input is valid or nearly so, and named for what it is. Whatever a fuzzer found lies beside
//! them under another name and is left alone.

mod engine;
mod fec;
mod helper;
mod join;
mod masque;
mod measure;
mod packet;
mod queues;
mod resolver;
mod script;

use std::path::Path;
use std::{fs, io};

/// An input of a target, by name.
pub(crate) type Seed = (&'static str, &'static str, Vec<u8>);

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let seeds = [
        packet::all(),
        masque::all(),
        queues::all(),
        fec::all(),
        engine::all(),
        join::all(),
        helper::all(),
        measure::all(),
        resolver::all(),
    ]
    .concat();
    for (target, name, bytes) in &seeds {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{name}")), bytes)?;
    }
    println!("{} seeds in {}", seeds.len(), corpus.display());
    Ok(())
}
