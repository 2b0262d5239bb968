//! A directory for what daemons keep while a lab runs: keys, stores, sockets.
//!
//! Not part of the results, because it holds private keys.

use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Doing, Error};
use crate::host;

static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A private directory that is removed with this value.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn create() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(host::unique_prefix());
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.doing(|| format!("create {}", path.display()))?;
        live().insert(path.clone());
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes the directories of this process.
pub(crate) fn remove_all() {
    let paths: Vec<_> = live().iter().cloned().collect();
    for path in paths {
        remove(&path);
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        tracing::warn!(%error, path = %path.display(), "cannot be removed");
    }
    live().remove(path);
}

fn live() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    LIVE.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
