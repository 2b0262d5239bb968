//! Where a hub's keys and certificates are, also while its authority is rotated.
//!
//! A rotation begins when the directory `next` gets its name, with all files of the present
//! authority in it; those of the former one stay in the state directory. It is finished when that
//! directory is called `finished`: then its files move up one by one in place of the former ones.
//! Whoever reads does what is left of that first, so a crash at any moment leaves one or the other.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, open, renameat};
use rustix::io::Errno;

use super::IdentityError;

pub(super) const AUTHORITY_KEY: &str = "ca.key";
pub(super) const AUTHORITY_CERTIFICATE: &str = "ca.pem";
pub(super) const HUB_KEY: &str = "hub.key";
pub(super) const HUB_CERTIFICATE: &str = "hub.pem";
/// What moves up; last what says that the others are there.
const FILES: [&str; 4] = [
    HUB_KEY,
    HUB_CERTIFICATE,
    AUTHORITY_KEY,
    AUTHORITY_CERTIFICATE,
];

const NEXT: &str = "next";
/// What becomes [`NEXT`], while it is made.
const DRAFT: &str = "next.new";
const FINISHED: &str = "finished";

/// The directories with keys and certificates: that of the present authority, then that of the
/// former one if there is one. Whoever calls this holds `state`.
pub(super) fn places(state: &Path) -> Result<Vec<PathBuf>, IdentityError> {
    settle(state)?;
    let next = state.join(NEXT);
    let mut places = vec![state.to_owned()];
    if is_there(&next)? {
        places.insert(0, next);
    }
    Ok(places)
}

/// By which it is noticed that authorities are others: the numbers of their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark([Option<u64>; 2]);

/// The mark of the authorities in a state directory.
pub fn mark(state: &Path) -> Mark {
    let number = |place: PathBuf| {
        let file = fs::metadata(place.join(AUTHORITY_CERTIFICATE));
        file.ok().map(|file| file.ino())
    };
    Mark([state.to_owned(), state.join(NEXT)].map(number))
}

/// An empty directory for the next authority, which is of no meaning before [`begin`].
pub(super) fn draft(state: &Path) -> Result<PathBuf, IdentityError> {
    let draft = state.join(DRAFT);
    match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove", &draft)(error));
        }
        _ => {}
    }
    sennit_linux::make_private_directory(&draft).map_err(failed("create", &draft))?;
    Ok(draft)
}

/// From now on there are two authorities.
pub(super) fn begin(state: &Path) -> Result<(), IdentityError> {
    rename(state, DRAFT, NEXT)
}

/// From now on there is one again.
pub(super) fn finish(state: &Path) -> Result<(), IdentityError> {
    rename(state, NEXT, FINISHED)?;
    settle(state)
}

/// Moves the files of a rotation that is finished to where they belong. A symbolic link in place of
/// their directory leads root nowhere.
pub(super) fn settle(state: &Path) -> Result<(), IdentityError> {
    let finished = state.join(FINISHED);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    let from = match open(&finished, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(|error| failed("read", &finished)(error.into()))?,
    };
    for name in FILES {
        let to = state.join(name);
        match renameat(&from, name, CWD, &to) {
            Err(Errno::NOENT) => {}
            moved => moved.map_err(|error| failed("write", &to)(error.into()))?,
        }
    }
    sync(state)?;
    // One that stays is empty, and does no harm.
    let _ = fs::remove_dir_all(&finished);
    Ok(())
}

fn rename(state: &Path, from: &str, to: &str) -> Result<(), IdentityError> {
    let to = state.join(to);
    fs::rename(state.join(from), &to).map_err(failed("write", &to))?;
    sync(state)
}

fn sync(state: &Path) -> Result<(), IdentityError> {
    let synced = File::open(state).and_then(|directory| directory.sync_all());
    synced.map_err(failed("write", state))
}

fn is_there(path: &Path) -> Result<bool, IdentityError> {
    path.try_exists().map_err(failed("read", path))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io {
        action,
        path,
        source,
    }
}
