//! What can go wrong with the store, said so that the operator knows where to look.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};
use sennit_linux::Directory;

use crate::config::Prefix;
use crate::lan::Objection;
use crate::site::SiteName;

pub(super) type Result<T> = std::result::Result<T, StoreError>;

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("there is no hub's store at {}", path.display())]
    Missing { path: PathBuf },
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot write {}: it or its directory is read-only", path.display())]
    ReadOnly { path: PathBuf },
    #[error("cannot write {}: the disk is full", path.display())]
    Full { path: PathBuf },
    #[error("{} is locked by another process", path.display())]
    Busy { path: PathBuf },
    #[error("{} is not a Sennit store, or damaged", path.display())]
    Damaged { path: PathBuf },
    #[error("{} was written by a newer Sennit (format {found}, this one knows {known})", path.display())]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    #[error("{}: {source}", path.display())]
    Sqlite {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error("there is no site `{site}` in {}", path.display())]
    NoSuchSite { site: SiteName, path: PathBuf },
    #[error("site `{site}` has no invitation that waits to be used")]
    NoInvitation { site: SiteName },
    #[error("site `{site}` may come in: `sennit revoke {site}` first")]
    MayComeIn { site: SiteName },
    #[error("site `{site}` is revoked")]
    Revoked { site: SiteName },
    #[error("{} can be changed by others (mode {mode:04o}), so it is not used", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("no address is left in pool {pool}")]
    PoolExhausted { pool: String },
    #[error("{prefix} cannot be behind a site: {why}")]
    NotGrantable { prefix: Prefix, why: Objection },
    #[error("a site can be granted {most} prefixes")]
    TooManyGrants { most: usize },
    #[error("`{site}` is the name of a Sennit site; a bearer token needs a name of its own")]
    NameOfSite { site: SiteName },
    #[error(
        "`{site}` is the name of a client with a bearer token; revoke it, or take another name"
    )]
    NameOfClient { site: SiteName },
}

impl StoreError {
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        match source.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::ReadOnly { path }
            }
            Some(ErrorCode::DiskFull) => Self::Full { path },
            // The index of the write-ahead log found no room, for which there is no code of its
            // own.
            Some(ErrorCode::SystemIoFailure) if extended(&source) == ffi::SQLITE_IOERR_SHMSIZE => {
                Self::Full { path }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged { path },
            _ => Self::Sqlite { path, source },
        }
    }
}

fn extended(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(0, |error| error.extended_code)
}

/// What a transaction's steps return: SQLite's error gets its path later.
pub(super) type Outcome<T> = std::result::Result<T, Failed>;

/// Why a transaction is rolled back.
pub(super) enum Failed {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl Failed {
    pub(super) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Sqlite(source) => StoreError::from_sqlite(path, source),
            Self::Store(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(source: rusqlite::Error) -> Self {
        Self::Sqlite(source)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Whoever can change the store lets in whom they like. What others can only read are names, and
/// hashes of secrets that cannot be guessed.
pub(super) fn check_exposure(path: &Path) -> Result<()> {
    let Ok(metadata) = path.metadata() else {
        return Ok(());
    };
    let mode = metadata.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(StoreError::Exposed {
            path: path.into(),
            mode,
        });
    }
    if mode & 0o044 != 0 {
        let path = path.display();
        tracing::warn!("{path} can be read by others (mode {mode:04o}): chmod 600 {path}");
    }
    Ok(())
}

/// Makes the file with mode 0600 when it is missing; SQLite gives its side files the same mode.
/// One that is there is not opened, as this process may have it open by SQLite.
pub(crate) fn touch_private(path: &Path) -> Result<()> {
    let made =
        Directory::of(path).and_then(|(directory, name)| match directory.make(&name, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => directory.look(&name),
            made => made.map(drop),
        });
    match made {
        Ok(()) => Ok(()),
        Err(source) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Err(StoreError::ReadOnly { path: path.into() })
        }
        Err(source) => Err(StoreError::Io {
            path: path.into(),
            source,
        }),
    }
}
