//! Identity files: private ones have mode 0600, each is written whole or not at all, and what root
//! writes into a directory of another user is that user's.
//!
//! That user may change what is there meanwhile, as somebody who has taken his daemon over. So each
//! step is done by a directory that was opened once, and with his rights ([`Directory`]).

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sennit_linux::Directory;
use zeroize::Zeroizing;

use super::IdentityError;

/// Who may read a file.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Private,
    Public,
}

/// Makes the state directory with mode 0700; one that is there keeps its mode.
pub(super) fn make_state_dir(path: &Path) -> Result<(), IdentityError> {
    let made = sennit_linux::make_private_directories(path);
    made.map_err(|source| IdentityError::Io {
        action: "create",
        path: path.into(),
        source,
    })
}

/// Held, nobody else reads or changes the identity in this state directory: its files belong
/// together. Nothing where the file system has no locks.
pub(super) fn hold(state: &Path) -> Option<File> {
    let directory = Directory::open(state).and_then(|it| it.file()).ok()?;
    directory.lock().ok()?;
    Some(directory)
}

/// Does something with a file by its directory, which is looked up once, and its name there.
pub(super) fn within<T>(
    path: &Path,
    action: &'static str,
    task: impl FnOnce(&Directory, &OsStr) -> io::Result<T>,
) -> Result<T, IdentityError> {
    let found = Directory::of(path);
    let done = found.and_then(|(directory, name)| task(&directory, &name));
    done.map_err(|source| IdentityError::Io {
        action,
        path: path.into(),
        source,
    })
}

/// Replaces `path` by `contents` in one step, also across a power cut.
pub(super) fn write(path: &Path, access: Access, contents: &[u8]) -> Result<(), IdentityError> {
    within(path, "write", |directory, name| {
        let new = Path::new(name).with_added_extension("new");
        let new = new.as_os_str();
        let written = write_synced(directory, new, access, contents)
            .and_then(|()| directory.rename(new, name))
            .and_then(|()| directory.sync());
        if written.is_err() {
            // What failed half-way is of no use; the error that matters is the first one.
            let _ = directory.remove(new);
        }
        written
    })
}

fn write_synced(
    directory: &Directory,
    name: &OsStr,
    access: Access,
    contents: &[u8],
) -> io::Result<()> {
    match directory.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mode = match access {
        Access::Private => 0o600,
        Access::Public => 0o644,
    };
    // What is made anew follows no symbolic link and takes over nobody else's mode.
    let mut file = directory.make(name, mode)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// A lock for whoever gets it first; nothing if somebody has it.
pub(super) fn lock(path: &Path) -> Result<Option<File>, IdentityError> {
    within(path, "write", |directory, name| {
        let file = directory.append(name)?;
        // Some file systems have no locks.
        let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        // Whoever had it may have removed the file between our opening and locking it.
        let there = directory.find(name).ok().flatten();
        let is_there = there.map(|it| it.st_ino) == file.metadata().ok().map(|it| it.ino());
        Ok((is_there && !is_taken).then_some(file))
    })
}

/// Gives a file another name in its directory; there may be none.
pub(super) fn rename_if_any(path: &Path, to: &OsStr) -> Result<(), IdentityError> {
    if_any(within(path, "rename", |directory, name| {
        directory.rename(name, to)
    }))
}

pub(super) fn remove_if_any(path: &Path) -> Result<(), IdentityError> {
    if_any(within(path, "remove", Directory::remove))
}

/// Removes a directory with all that is in it; there may be none.
pub(super) fn remove_all_if_any(path: &Path) -> Result<(), IdentityError> {
    if_any(within(path, "remove", Directory::remove_all))
}

/// There may be nothing of which it was done.
fn if_any(done: Result<(), IdentityError>) -> Result<(), IdentityError> {
    match done {
        Err(IdentityError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The text of a file of a state directory.
pub(super) fn read(path: &Path) -> Result<String, IdentityError> {
    read_text(path).map_err(|source| IdentityError::Io {
        action: "read",
        path: path.into(),
        source,
    })
}

/// The text of a file that must be its owner's alone: a private key that others can read is no
/// secret, and one that they can change is theirs.
pub(super) fn read_private(path: &Path) -> Result<Zeroizing<String>, IdentityError> {
    let file = within(path, "read", Directory::read)?;
    if let Some(mode) = file.metadata().ok().and_then(|it| exposure_of(&it)) {
        let path = path.into();
        return Err(IdentityError::Exposed { path, mode });
    }
    let text = io::read_to_string(file);
    text.map(Zeroizing::new)
        .map_err(|source| IdentityError::Io {
            action: "read",
            path: path.into(),
            source,
        })
}

/// The text of a file with a secret in it that somebody else made, and may have made badly.
pub(super) fn read_secret(path: &Path) -> Result<Zeroizing<String>, IdentityError> {
    warn_if_exposed(path);
    read_named(path).map(Zeroizing::new)
}

/// The text of a file that a config names, wherever its name leads.
pub(super) fn read_named(path: &Path) -> Result<String, IdentityError> {
    fs::read_to_string(path).map_err(|source| IdentityError::Io {
        action: "read",
        path: path.into(),
        source,
    })
}

fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(sennit_linux::open_state(path)?)
}

/// Says so when others can read or change a file with a secret in it.
pub fn warn_if_exposed(path: &Path) {
    if let Some(mode) = exposure(path) {
        let path = path.display();
        tracing::warn!(
            "{path} can be read or changed by others (mode {mode:04o}): chmod 600 {path}"
        );
    }
}

/// The mode of a file, if anybody but its owner can read or write it.
fn exposure(path: &Path) -> Option<u32> {
    exposure_of(&fs::metadata(path).ok()?)
}

fn exposure_of(file: &Metadata) -> Option<u32> {
    let mode = file.mode() & 0o777;
    (mode & 0o066 != 0).then_some(mode)
}

/// The text of `path`, or `None` when there is no such file.
pub(super) fn read_if_any(path: &Path) -> Result<Option<String>, IdentityError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Io {
            action: "read",
            path: path.into(),
            source,
        }),
    }
}
