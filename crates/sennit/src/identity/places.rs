//! Where a hub's keys and certificates are, also while its authority is rotated.
//!
//! A rotation begins when the directory `next` gets its name, with all files of the present
//! authority in it; those of the former one stay in the state directory. It is finished when that
//! directory is called `finished`: then its files move up one by one in place of the former ones.
//! Whoever reads does what is left of that first, so a crash at any moment leaves one or the other.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sennit_linux::Directory;

use super::{IdentityError, files};

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
    files::remove_all_if_any(&draft)?;
    files::within(&draft, "create", Directory::make_directory)?;
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
/// their directory leads nowhere.
pub(super) fn settle(state: &Path) -> Result<(), IdentityError> {
    let finished = state.join(FINISHED);
    let to = match Directory::open(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(failed("read", state))?,
    };
    let from = match to.inner(OsStr::new(FINISHED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(failed("read", &finished))?,
    };
    for name in FILES {
        match to.take_from(&from, OsStr::new(name), OsStr::new(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("write", &state.join(name))(error));
            }
            _ => {}
        }
    }
    to.sync().map_err(failed("write", state))?;
    // One that stays is empty, and does no harm.
    let _ = to.remove_all(OsStr::new(FINISHED));
    Ok(())
}

fn rename(state: &Path, from: &str, to: &str) -> Result<(), IdentityError> {
    files::within(&state.join(to), "write", |directory, to| {
        directory.rename(OsStr::new(from), to)?;
        directory.sync()
    })
}

/// Whatever has the name, also a link: who goes on there hears that it is one.
fn is_there(path: &Path) -> Result<bool, IdentityError> {
    let found = Directory::of(path).and_then(|(directory, name)| directory.find(&name));
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found.map_err(failed("read", path))?.is_some()),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io {
        action,
        path,
        source,
    }
}
