//! The committed corpus through its targets, and nothing forgotten.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on stops where it is"
)]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use sennit::dns;
use sennit_fuzz::TARGETS;

/// What makes the corpus short: a find that needs more is worth a test of its own.
const MOST_FILES: usize = 40;
const MOST_BYTES: u64 = 2 << 10;
const MOST_IN_ALL: u64 = 1 << 20;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn stems(folder: &Path) -> BTreeSet<String> {
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    files(folder).iter().map(stem).collect()
}

#[test]
fn every_input_of_the_corpus_passes_its_target() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let inputs = files(&fuzz().join("corpus").join(name));
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            let bytes = fs::read(&path).unwrap();
            if catch_unwind(|| target(&bytes)).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn targets_wrappers_and_corpora_are_the_same() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len());
    assert_eq!(stems(&fuzz().join("fuzz_targets")), targets);
    assert_eq!(stems(&fuzz().join("corpus")), targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in targets {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}

#[test]
fn the_corpus_is_short() {
    let mut total = 0;
    for folder in files(&fuzz().join("corpus")) {
        let inputs = files(&folder);
        assert!(inputs.len() <= MOST_FILES, "{}", folder.display());
        for input in inputs {
            let size = fs::metadata(&input).unwrap().len();
            assert!(size <= MOST_BYTES, "{}: {size} bytes", input.display());
            total += size;
        }
    }
    assert!(total <= MOST_IN_ALL, "{total} bytes");
}

/// Twelve bytes had the parser make room for 65,535 records of each kind.
#[test]
fn what_an_answer_only_announces_takes_no_memory() {
    let announced = [&[0, 7, 0x81, 0x80][..], &[0, 0], &[0xff; 6]].concat();
    let read = || assert_eq!(dns::answer(&announced, [7, 6], "hub"), None);

    let memory = allocation_counter::measure(read);

    assert_eq!(memory.bytes_total, 0);
}
