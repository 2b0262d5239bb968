//! Identity files: private ones have mode 0600, each is written whole or not at all, and what root
//! writes into a directory of another user is that user's.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

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
    let directory = File::open(state).ok()?;
    directory.lock().ok()?;
    Some(directory)
}

/// Replaces `path` by `contents` in one step, also across a power cut.
pub(super) fn write(path: &Path, access: Access, contents: &[u8]) -> Result<(), IdentityError> {
    let new = path.with_added_extension("new");
    let written = write_synced(&new, access, contents)
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| sync_parent(path));
    written.map_err(|source| {
        // What failed half-way is of no use; the error that matters is the first one.
        let _ = fs::remove_file(&new);
        IdentityError::Io {
            action: "write",
            path: path.into(),
            source,
        }
    })
}

fn write_synced(path: &Path, access: Access, contents: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mode = match access {
        Access::Private => 0o600,
        Access::Public => 0o644,
    };
    // `create_new` follows no symbolic link and takes over nobody else's mode.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    sennit_linux::adopt(&file, path);
    file.write_all(contents)?;
    file.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// A lock for whoever gets it first; nothing if somebody has it.
pub(super) fn lock(path: &Path) -> Result<Option<File>, IdentityError> {
    let opened = sennit_linux::open_private(path);
    let file = opened.map_err(|source| IdentityError::Io {
        action: "write",
        path: path.into(),
        source,
    })?;
    // Some file systems have no locks.
    let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    // Whoever had it may have removed the file between our opening and locking it.
    let number = |found: io::Result<fs::Metadata>| found.ok().map(|it| it.ino());
    let is_there = number(file.metadata()) == number(fs::metadata(path));
    Ok((is_there && !is_taken).then_some(file))
}

/// Puts a file in the place of another; there may be none.
pub(super) fn rename_if_any(from: &Path, to: &Path) -> Result<(), IdentityError> {
    match fs::rename(from, to) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(IdentityError::Io {
            action: "write",
            path: to.into(),
            source,
        }),
        _ => Ok(()),
    }
}

pub(super) fn remove_if_any(path: &Path) -> Result<(), IdentityError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(IdentityError::Io {
            action: "remove",
            path: path.into(),
            source,
        }),
        _ => Ok(()),
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
    match exposure(path) {
        Some(mode) => Err(IdentityError::Exposed {
            path: path.into(),
            mode,
        }),
        None => read(path).map(Zeroizing::new),
    }
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
    let mut text = String::new();
    sennit_linux::open_state(path)?.read_to_string(&mut text)?;
    Ok(text)
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
    let mode = fs::metadata(path).ok()?.mode() & 0o777;
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
