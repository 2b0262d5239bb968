//! The files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file below a folder.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The Markdown files of a folder, in order.
pub(crate) fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let pages = entries.map(|entry| entry.path());
    let mut pages: Vec<PathBuf> = pages
        .filter(|page| page.extension().is_some_and(|kind| kind == "md"))
        .collect();
    pages.sort();
    pages
}
