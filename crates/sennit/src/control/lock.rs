//! The right to serve one control socket, held for as long as the process lives.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sennit_linux::helper;

/// A lock file beside the socket. The kernel lets go of it however the process ends, so who has it
/// knows that a socket found there is a dead daemon's.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
    path: PathBuf,
}

impl Lock {
    /// The lock for `socket`, or `None` when another process has it.
    pub(super) fn take(socket: &Path) -> io::Result<Option<Self>> {
        let path = socket.with_added_extension("lock");
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The last owner may have removed the file between our opening and locking it.
            if fs::metadata(&path)
                .is_ok_and(|there| there.ino() == file.metadata().map_or(0, |own| own.ino()))
            {
                return Ok(Some(Self { _file: file, path }));
            }
        }
    }
}

impl Lock {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still held: nobody can have locked this file in between.
        let _ = helper::remove_file(&self.path);
    }
}
