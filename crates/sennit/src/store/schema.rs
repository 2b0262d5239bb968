//! The tables, and how an older file becomes a current one.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::error::{Result, StoreError};

/// Each step makes format n+1 of format n; a released step is never edited.
const STEPS: [&str; 1] = ["
    CREATE TABLE sites (
        name    TEXT PRIMARY KEY,
        created INTEGER NOT NULL,
        revoked INTEGER,
        v4      TEXT UNIQUE,
        v6      TEXT UNIQUE,
        lan     TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE TABLE tokens (
        hash    BLOB PRIMARY KEY,
        site    TEXT NOT NULL REFERENCES sites (name),
        kind    TEXT NOT NULL CHECK (kind IN ('invite', 'bearer')),
        created INTEGER NOT NULL,
        expires INTEGER,
        used_by BLOB
    ) STRICT;
    CREATE TABLE certificates (
        fingerprint BLOB PRIMARY KEY,
        site        TEXT NOT NULL REFERENCES sites (name),
        key         BLOB NOT NULL,
        der         BLOB NOT NULL,
        not_after   INTEGER NOT NULL,
        revoked     INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX certificates_of_site ON certificates (site, key);
"];

/// Another process holds the lock for one small transaction; this is ages.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets up the connection and brings the file to the current format.
pub(super) fn prepare(db: &mut Connection, path: &Path) -> Result<()> {
    let failed = |e| StoreError::from_sqlite(path, e);
    db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    if db.is_readonly("main").map_err(failed)? {
        return Err(StoreError::ReadOnly { path: path.into() });
    }
    db.pragma_update(None, "journal_mode", "WAL")
        .map_err(failed)?;
    db.pragma_update(None, "foreign_keys", true)
        .map_err(failed)?;
    migrate(db, path)
}

fn migrate(db: &mut Connection, path: &Path) -> Result<()> {
    let failed = |e| StoreError::from_sqlite(path, e);
    let known = STEPS.len() as i64;
    let version =
        |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    if version(db).map_err(failed)? == known {
        return Ok(());
    }
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let found = version(&tx).map_err(failed)?;
    let Some(steps) = usize::try_from(found)
        .ok()
        .and_then(|done| STEPS.get(done..))
    else {
        return Err(StoreError::Newer {
            path: path.into(),
            found,
            known,
        });
    };
    for step in steps {
        tx.execute_batch(step).map_err(failed)?;
    }
    tx.pragma_update(None, "user_version", known)
        .map_err(failed)?;
    tx.commit().map_err(failed)
}
