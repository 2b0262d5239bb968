//! The parts of the program, each by itself: what the library is given, and what it makes of it.
//!
//! All are one program, because linking takes longer than most of its tests:
//! `cargo test --workspace --test parts -- store::` runs those of one part. What the repository has
//! as a file and the program can write is compared; `SENNIT_BLESS=1` writes it instead.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod api;
mod book;
mod config;
mod control;
mod history;
mod identity;
mod journal;
mod metrics;
mod schema;
mod store;
mod strict;

use std::path::{Path, PathBuf};
use std::{env, fs};

use similar::TextDiff;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file of the repository with what the program makes, or writes the file.
#[track_caller]
fn is_committed(file: &str, made: &str) {
    let path = workspace().join(file);
    if env::var_os("SENNIT_BLESS").is_some() {
        fs::write(&path, made).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let difference = TextDiff::from_lines(&written, made);
    assert!(
        written == made,
        "{file} differs from the program: SENNIT_BLESS=1 cargo test --workspace --test parts\n{}",
        difference.unified_diff()
    );
}
