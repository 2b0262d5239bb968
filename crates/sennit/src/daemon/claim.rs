//! A state directory belongs to one daemon of a role: two would renew each other's identity and
//! write the same books.

use std::{
    fs::{File, TryLockError},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::exit::Failure;

/// Held for as long as the daemon runs; the kernel lets go of it when the process ends, however.
#[derive(Debug)]
pub(super) struct Claim {
    _file: Option<File>,
}

impl Claim {
    /// Claims the state directory for a daemon of this role. One where nothing can be written is
    /// not claimed: whoever has to write there says so.
    pub(super) fn make(state: &Path, role: &str) -> Result<Self, Failure> {
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        let path = state.join(format!("{role}.lock"));
        // Held for reading: a file that is written keeps its file system from being made read-only.
        let file = options.open(&path).and_then(|_| File::open(&path)).ok();
        match file.as_ref().map(File::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => {
                let taken = format!("another {role} runs with the state in {}", state.display());
                Err(Failure::runtime(taken)
                    .hint("stop that one, or give this one a `state` directory of its own"))
            }
            // A file system without locks.
            Some(Err(TryLockError::Error(_))) | None => Ok(Self { _file: None }),
            Some(Ok(())) => Ok(Self { _file: file }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_is_one_daemons_of_a_role() {
        let dir = tempfile::tempdir().unwrap();
        let first = Claim::make(dir.path(), "edge").unwrap();
        let refused = Claim::make(dir.path(), "edge").unwrap_err();
        assert!(refused.to_string().contains("another edge"), "{refused}");
        let hub = Claim::make(dir.path(), "hub").unwrap();
        drop((first, hub));
        assert!(Claim::make(dir.path(), "edge").is_ok());
        assert!(Claim::make(&dir.path().join("missing"), "edge").is_ok());
    }
}
