//! The tables, and how an older file becomes a current one.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::error::{Result, StoreError};
use super::grant::join;
use crate::config::Prefix;
use crate::lan;

/// What makes format n+1 of format n: SQL, and what SQL cannot say. A released step is never
/// edited.
struct Step {
    sql: &'static str,
    then: fn(&Connection) -> rusqlite::Result<()>,
}

const STEPS: [Step; 5] = [
    Step {
        sql: FIRST,
        then: |_| Ok(()),
    },
    Step {
        sql: GRANTS,
        then: grant_what_was_announced,
    },
    Step {
        sql: AUTHORITIES,
        then: |_| Ok(()),
    },
    Step {
        sql: INVITED_BY,
        then: |_| Ok(()),
    },
    Step {
        sql: TOKENS_OF_SITE,
        then: |_| Ok(()),
    },
];

const FIRST: &str = "
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
";

/// A site has one key: of several that were good at once, which is how two boxes of one name fought
/// each other, the newest stays.
const GRANTS: &str = "
    ALTER TABLE sites ADD COLUMN granted TEXT NOT NULL DEFAULT '';
    ALTER TABLE sites ADD COLUMN refused TEXT NOT NULL DEFAULT '';
    ALTER TABLE sites ADD COLUMN reach TEXT;
    ALTER TABLE sites ADD COLUMN seen INTEGER;
    ALTER TABLE sites ADD COLUMN seen_from TEXT NOT NULL DEFAULT '';
    ALTER TABLE certificates ADD COLUMN retired INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE hub (
        key   TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT;
    UPDATE certificates SET revoked = 1, retired = 1
    WHERE NOT revoked AND key <> (
        SELECT key FROM certificates AS newest
        WHERE newest.site = certificates.site AND NOT newest.revoked
        ORDER BY newest.rowid DESC LIMIT 1
    );
";

/// An authority can be rotated. Of those who were here before it is not known whether they move.
const AUTHORITIES: &str = "
    ALTER TABLE certificates ADD COLUMN authority BLOB;
    ALTER TABLE certificates ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE certificates ADD COLUMN shown INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sites ADD COLUMN moves INTEGER NOT NULL DEFAULT 1;
";

/// An invitation says itself which authority it names; in the midst of a rotation the clock told.
const INVITED_BY: &str = "
    ALTER TABLE tokens ADD COLUMN authority BLOB;
    UPDATE tokens
    SET authority = unhex((SELECT value FROM hub WHERE key = 'authority.former'))
    WHERE kind = 'invite'
      AND created <= (SELECT CAST(value AS INTEGER) FROM hub WHERE key = 'authority.since');
    UPDATE tokens
    SET authority = unhex((SELECT value FROM hub WHERE key = 'authority.present'))
    WHERE kind = 'invite' AND authority IS NULL;
";

/// Whoever lists the sites looks for the tokens of each.
const TOKENS_OF_SITE: &str = "CREATE INDEX tokens_of_site ON tokens (site);";

/// Sites could announce what they liked. Those LANs that are private space stay theirs; anything
/// else has to be granted by somebody who knows.
fn grant_what_was_announced(db: &Connection) -> rusqlite::Result<()> {
    let mut query = db.prepare("SELECT name, lan FROM sites WHERE lan <> ''")?;
    let announced = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let announced: Vec<(String, String)> = announced.collect::<rusqlite::Result<_>>()?;
    for (site, lan) in announced {
        let (granted, left): (Vec<Prefix>, Vec<Prefix>) = lan
            .split_whitespace()
            .filter_map(|prefix| prefix.parse().ok())
            .partition(|prefix| {
                lan::is_private(prefix) && lan::never(prefix, &lan::Host::default()).is_none()
            });
        let [granted, left] = [granted, left].map(|prefixes| join(&prefixes));
        if !left.is_empty() {
            tracing::warn!(
                site,
                prefixes = left,
                "announced until now, and not granted at the update: `sennit sites allow` would grant it"
            );
        }
        if !granted.is_empty() {
            tracing::warn!(
                site,
                prefixes = granted,
                "announced until now, and granted at the update"
            );
        }
        db.execute(
            "UPDATE sites SET granted = ?2 WHERE name = ?1",
            [&site, &granted],
        )?;
    }
    Ok(())
}

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
    db.pragma_update(None, "temp_store", "memory")
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
        tx.execute_batch(step.sql).map_err(failed)?;
        (step.then)(&tx).map_err(failed)?;
    }
    tx.pragma_update(None, "user_version", known)
        .map_err(failed)?;
    tx.commit().map_err(failed)
}
