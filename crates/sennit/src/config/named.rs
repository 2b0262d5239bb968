//! Files that a config names for a daemon to read: tokens, keys, certificates.
//!
//! They may be root's alone while the daemon is another user, and others may have their names when
//! the config is read again. What was in them is wiped from memory with them.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use sennit_linux::helper;
use zeroize::Zeroizing;

use super::read_open;

/// Such a file, read.
pub(crate) struct NamedFile {
    path: PathBuf,
    bytes: Zeroizing<Vec<u8>>,
    mode: u32,
}

/// Tells what a file holds from what it held before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Print {
    path: PathBuf,
    digest: [u8; 32],
}

impl NamedFile {
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let file = helper::open_named(path)?;
        Ok(Self {
            path: path.into(),
            mode: file.metadata()?.mode(),
            bytes: Zeroizing::new(read_open(file)?),
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn text(&self) -> io::Result<&str> {
        std::str::from_utf8(&self.bytes).map_err(io::Error::other)
    }

    /// Whether others than its owner may read it.
    pub(crate) fn is_open(&self) -> bool {
        self.mode & 0o077 != 0
    }

    pub(crate) fn print(&self) -> Print {
        let digest = digest::digest(&digest::SHA256, &self.bytes);
        Print {
            path: self.path.clone(),
            digest: digest.as_ref().try_into().expect("SHA-256 has 32 bytes"),
        }
    }
}

/// The files that hold something else than before, by name.
pub(crate) fn renewed(before: &[Print], now: &[Print]) -> Vec<String> {
    let held_else = |it: &&Print| {
        let mut known = before.iter().filter(|old| old.path == it.path);
        known.any(|old| old.digest != it.digest)
    };
    let found = now.iter().filter(held_else);
    let mut names: Vec<String> = found.map(|it| it.path.display().to_string()).collect();
    names.dedup();
    names
}
