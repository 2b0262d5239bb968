//! A state directory belongs to one daemon of a role, and so do records elsewhere: two would renew
//! each other's identity and write the same books.
//!
//! The file that is locked also has in it what others need to find that daemon by, and what it has
//! left, when its config says something else by now ([`Last`]).

use std::{
    fs::{File, TryLockError},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use sennit_linux::{DeviceName, Error, nameservers};

use crate::{config::RUN_DIRECTORY, exit::Failure};

/// A device and a path are shorter.
const LONGEST: u64 = 16 << 10;

/// Held for as long as the daemon runs; the kernel lets go of it when the process ends, however.
#[derive(Debug)]
pub(super) struct Claim {
    _file: Option<File>,
}

/// The daemon that runs with a state directory, or ran there last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) device: DeviceName,
    pub(crate) control: PathBuf,
}

impl Claim {
    /// Claims the state directory of a daemon, and puts down there how that is found.
    pub(super) fn of_daemon(
        state: &Path,
        role: &str,
        device: &DeviceName,
        control: &Path,
    ) -> Result<Self, Failure> {
        let claim = Self::make(state, role)?;
        let last = Last {
            device: device.clone(),
            control: control.into(),
        };
        last.write(state, role);
        Ok(claim)
    }

    /// Claims the state directory for a daemon of this role. One where nothing can be written is
    /// not claimed: whoever has to write there says so.
    pub(super) fn make(state: &Path, role: &str) -> Result<Self, Failure> {
        let taken = || {
            let taken = format!("another {role} runs with the state in {}", state.display());
            Failure::runtime(taken)
                .hint("stop that one, or give this one a `state` directory of its own")
        };
        Self::lock(state, role).ok_or_else(taken)
    }

    /// Claims a directory of records in the same way.
    pub(super) fn of_records(records: &Path, role: &str) -> Result<Self, Failure> {
        let taken = || {
            let taken = format!("another {role} keeps its records in {}", records.display());
            Failure::runtime(taken)
                .hint("stop that one, or give this one a `records` directory of its own")
        };
        Self::lock(records, role).ok_or_else(taken)
    }

    /// Nothing if another daemon has it.
    fn lock(directory: &Path, role: &str) -> Option<Self> {
        let path = file(directory, role);
        // Held for reading: a file that is written keeps its file system from being made read-only.
        let made = sennit_linux::open_private(&path);
        let file = made.and_then(|_| sennit_linux::open_state(&path)).ok();
        match file.as_ref().map(File::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => None,
            // A file system without locks.
            Some(Err(TryLockError::Error(_))) | None => Some(Self { _file: None }),
            Some(Ok(())) => Some(Self { _file: file }),
        }
    }
}

impl Last {
    /// What the last daemon of this role has put down in its state directory, if one has.
    pub(crate) fn read(state: &Path, role: &str) -> Option<Self> {
        let mut text = String::new();
        let file = sennit_linux::open_state(&file(state, role)).ok()?;
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        let (device, control) = text.trim_end().split_once('\n')?;
        Some(Self {
            device: device.parse().ok()?,
            control: control.into(),
        })
    }

    fn write(&self, state: &Path, role: &str) {
        if Self::read(state, role).as_ref() == Some(self) {
            return;
        }
        let text = format!("{}\n{}\n", self.device, self.control.display());
        // In place, as this is the file that is locked.
        let written = sennit_linux::open_private(&file(state, role)).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(text.as_bytes())
        });
        if let Err(error) = written {
            tracing::debug!(%error, "the state directory does not tell who runs with it");
        }
    }
}

/// Takes from the host what an earlier daemon with this state had added to it if its device was
/// another one. If that has left something unreachable, `hold` first makes so what is to be. Nobody
/// else would clean up: the numbers of all that is on the host follow from the name of the device.
/// To be called before the process gives up its rights.
pub(super) fn clean_up_before(
    state: &Path,
    role: &str,
    device: &DeviceName,
    hold: impl FnOnce() -> Result<(), Failure>,
) {
    let last = Last::read(state, role).map(|last| last.device);
    let Some(earlier) = last.filter(|it| it != device) else {
        return;
    };
    // It runs, and this start is about to be refused.
    if Claim::lock(state, role).is_none() {
        return;
    }
    let directory = Path::new(RUN_DIRECTORY);
    let cleaned = match sennit_linux::cleanup_but_block(&earlier, directory) {
        // It is the device of a daemon with another state by now.
        Err(Error::DeviceBusy(_) | Error::InstanceTaken(_)) => return,
        cleaned => cleaned.map_err(Failure::from),
    };
    let cleaned = cleaned
        .and_then(|left| if left.is_empty() { Ok(()) } else { hold() })
        .and_then(|()| Ok(sennit_linux::cleanup(&earlier, directory)?));
    nameservers::restore(&earlier);
    match cleaned {
        Ok(()) => tracing::info!(device = %earlier, "nothing is left of the earlier device"),
        Err(error) => tracing::warn!(
            %error,
            "the earlier device has left something: remove it by `sennit cleanup --device {earlier}`"
        ),
    }
}

fn file(directory: &Path, role: &str) -> PathBuf {
    directory.join(format!("{role}.lock"))
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
        let refused = Claim::of_records(dir.path(), "edge").unwrap_err();
        assert!(refused.to_string().contains("its records in"), "{refused}");
        let hub = Claim::make(dir.path(), "hub").unwrap();
        drop((first, hub));
        assert!(Claim::make(dir.path(), "edge").is_ok());
        assert!(Claim::make(&dir.path().join("missing"), "edge").is_ok());
    }

    #[test]
    fn a_state_directory_tells_who_ran_with_it_last() {
        let dir = tempfile::tempdir().unwrap();
        let _claim = Claim::make(dir.path(), "edge").unwrap();
        assert_eq!(Last::read(dir.path(), "edge"), None);
        for (device, control) in [("wan0", "/run/sennit/long.sock"), ("b", "/c")] {
            let last = Last {
                device: device.parse().unwrap(),
                control: control.into(),
            };
            last.write(dir.path(), "edge");
            assert_eq!(Last::read(dir.path(), "edge"), Some(last));
        }
        assert!(
            Claim::make(dir.path(), "edge").is_err(),
            "it is still claimed"
        );
        assert_eq!(Last::read(dir.path(), "hub"), None);
    }
}
