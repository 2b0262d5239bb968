//! A directory for what daemons keep while a lab runs: keys, stores, sockets.
//!
//! Not part of the results, because it holds private keys.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Error};
use crate::host;
use crate::made::Made;

static LIVE: Made<PathBuf> = Made::new();

/// The file that takes what is left of a disk.
const FILLER: &str = "filler";

/// A private directory that is removed with this value.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn create() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(host::unique_prefix());
        let make = || {
            let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
            made.doing(|| format!("create {}", path.display()))
        };
        let made = LIVE.make(&path, make);
        made.inspect_err(|_| LIVE.forget(&path))?;
        Ok(Self(path))
    }

    /// Makes it a disk of its own of this size, which is a disk in memory.
    pub(crate) fn mount(&self, megabytes: u32) -> Result<(), Error> {
        let options = format!("size={megabytes}m,mode=700");
        let mount = ["-t", "tmpfs", "-o", &options, "none"];
        host::run(Command::new("mount").args(mount).arg(self.path())).map(drop)
    }

    /// Writes until there is no room left on its disk.
    pub(crate) fn fill(&self) -> Result<(), Error> {
        let path = self.path().join(FILLER);
        let open = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path);
        let mut file = open.doing(|| format!("open {}", path.display()))?;
        loop {
            match file.write(&[0; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).doing(|| "fill a disk".into()),
            }
        }
    }

    /// Makes room again.
    pub(crate) fn free(&self) -> Result<(), Error> {
        let path = self.path().join(FILLER);
        std::fs::remove_file(&path).doing(|| format!("remove {}", path.display()))
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

/// Removes the directories of this process; it can make no others.
pub(crate) fn remove_all() {
    for path in LIVE.close() {
        remove(&path);
    }
}

/// Removes the directories of processes that are no longer alive.
pub(crate) fn remove_leftovers() {
    let entries = std::fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten();
    for entry in entries {
        let owner = entry.file_name().to_str().and_then(host::owner_of_prefix);
        // Only directories of our own: the temporary directory is everybody's.
        let ours = entry
            .metadata()
            .is_ok_and(|data| data.is_dir() && data.uid() == own_uid());
        if ours && owner.is_some_and(|pid| !host::is_alive(pid)) {
            remove(&entry.path());
        }
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn remove(path: &Path) {
    if is_mounted(path) {
        let _ = host::run(Command::new("umount").arg(path));
    }
    if let Err(error) = std::fs::remove_dir_all(path) {
        tracing::warn!(%error, path = %path.display(), "cannot be removed");
    }
    LIVE.forget(&path.to_owned());
}

/// Whether something else than the directory around it is there.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| path.metadata().ok().map(|data| data.dev());
    path.parent()
        .is_some_and(|parent| device(path) != device(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above the largest process id that Linux can give.
    const NOBODY: u32 = 4_194_305;

    #[test]
    fn a_disk_of_its_own_is_full_until_it_is_freed_and_goes_with_the_directory() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: mounting a disk needs root");
            return;
        }
        let own = Scratch::create().expect("the temporary directory is writable");
        let path = own.path().to_owned();
        let write = || std::fs::write(own.path().join("more"), [0; 4096]);
        own.mount(1).expect("root may mount");

        own.fill().expect("it is small");
        let error = write().expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        own.free().expect("it was filled");
        write().expect("there is room");
        drop(own);

        assert!(!path.exists());
    }

    #[test]
    fn only_directories_of_dead_processes_are_left_over() {
        let own = Scratch::create().expect("the temporary directory is writable");
        let [dead, other] = [format!("snt{NOBODY}-0"), format!("sntx{NOBODY}-0")]
            .map(|name| std::env::temp_dir().join(name));
        for path in [&dead, &other] {
            std::fs::create_dir_all(path).expect("the temporary directory is writable");
        }

        remove_leftovers();

        let left = [own.path().exists(), dead.exists(), other.exists()];
        let _ = std::fs::remove_dir(&other);
        assert_eq!(left, [true, false, true]);
    }
}
