//! The journal's file: each event is on the disk before the next is taken, so that a power cut
//! loses none that was read.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use rusqlite::{Connection, OpenFlags, params};

use super::{Event, KEPT, Record};
use crate::sqlite::{self, SqliteError};

/// Of the layout.
const VERSION: i64 = 1;
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS events (
        id INTEGER PRIMARY KEY, millis INTEGER NOT NULL, event TEXT NOT NULL);";
/// Events that may be more than are kept, so that not each is a deletion too.
const SLACK: usize = 100;

/// The file, open.
#[derive(Debug)]
pub(super) struct Disk {
    db: Connection,
    written: usize,
}

impl Disk {
    /// Opens the file, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self, SqliteError> {
        Ok(Self {
            db: sqlite::open(path, VERSION, TABLES)?,
            written: SLACK,
        })
    }

    /// The newest events, the oldest first.
    pub(super) fn load(&self) -> Result<Vec<Record>, SqliteError> {
        load(&self.db)
    }

    pub(super) fn write(&mut self, records: &[&Record]) -> Result<(), SqliteError> {
        let tx = self.db.transaction()?;
        for record in records {
            let event = serde_json::to_string(&record.event).expect("an event becomes JSON");
            tx.execute(
                "INSERT OR REPLACE INTO events (id, millis, event) VALUES (?1, ?2, ?3)",
                params![record.id as i64, record.millis as i64, event],
            )?;
        }
        self.written += records.len();
        if self.written >= SLACK {
            self.written = 0;
            tx.execute(
                "DELETE FROM events WHERE id <=
                 (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET ?1)",
                [KEPT as i64],
            )?;
        }
        Ok(tx.commit()?)
    }
}

/// The newest events of a file that nobody may have open, the oldest first.
pub(super) fn read(path: &Path) -> Result<Vec<Record>, SqliteError> {
    load(&Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY,
    )?)
}

fn load(db: &Connection) -> Result<Vec<Record>, SqliteError> {
    let mut query = db.prepare("SELECT id, millis, event FROM events ORDER BY id DESC LIMIT ?1")?;
    let rows = query.query_map([KEPT as i64], |row| {
        let (id, millis): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok((id as u64, millis as u64, row.get::<_, String>(2)?))
    })?;
    let mut records = Vec::new();
    for row in rows {
        let (id, millis, event) = row?;
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
        let event = serde_json::from_str(&event).unwrap_or(Event::Other);
        records.push(Record::new(id, at.unwrap_or(SystemTime::UNIX_EPOCH), event));
    }
    records.reverse();
    Ok(records)
}
