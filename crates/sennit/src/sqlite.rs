//! Files that a daemon may lose: they are checked when they are opened, and set aside if damaged.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use sennit_linux::Directory;

use crate::store::touch_private;

/// Another process has the file for a moment, as a backup.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

/// Why a file is of no use now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqliteError {
    #[error("{0}")]
    Damaged(String),
    #[error("it was written by a newer version of Sennit")]
    Newer,
    #[error("{0}")]
    Other(String),
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Other(error.to_string()),
        }
    }
}

/// Opens a file with these tables, or makes it. What is committed survives a power cut. Root has no
/// more rights meanwhile than whom the directory belongs to.
pub(crate) fn open(path: &Path, version: i64, tables: &str) -> Result<Connection, SqliteError> {
    touch_private(path).map_err(|error| SqliteError::Other(error.to_string()))?;
    let found = Directory::of(path).map_err(|error| SqliteError::Other(error.to_string()));
    found?.0.as_owner(|| open_here(path, version, tables))
}

fn open_here(path: &Path, version: i64, tables: &str) -> Result<Connection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > version {
        return Err(SqliteError::Newer);
    }
    let check: String = db.pragma_query_value(None, "quick_check", |row| row.get(0))?;
    if check != "ok" {
        return Err(SqliteError::Damaged(check));
    }
    db.pragma_update(None, "journal_mode", "wal")?;
    // A daemon writes to no other directory.
    db.pragma_update(None, "temp_store", "memory")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.execute_batch(tables)?;
    db.pragma_update(None, "user_version", version)?;
    Ok(db)
}

/// Puts a damaged file out of the way, for whoever wants to look at it; the one before is replaced.
pub(crate) fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let aside = path.with_added_extension("damaged");
    fs::rename(path, &aside)?;
    for side in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(side);
        // They belong to the damaged file, and there may be none.
        let _ = fs::remove_file(name);
    }
    Ok(aside)
}
