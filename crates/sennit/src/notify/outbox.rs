//! What is to be told, on disk.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::{LONGEST_PAUSE, message::Target};
use crate::{
    journal::Record,
    sqlite::{self, SqliteError},
};

/// Of the layout.
const VERSION: i64 = 1;
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS outbox (
        event INTEGER NOT NULL, target TEXT NOT NULL, due INTEGER NOT NULL,
        tries INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (target, event));
    CREATE TABLE IF NOT EXISTS cursor (id INTEGER PRIMARY KEY CHECK (id = 1), event INTEGER NOT NULL);";
/// Events that wait for one target; older ones are given up for newer.
const MOST_WAITING: i64 = 1000;
/// Sent in one turn.
const TURN: i64 = 32;

pub(super) struct Outbox {
    db: Connection,
}

/// One event for one target.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    event: i64,
    pub(super) target: String,
    pub(super) tries: u32,
    pub(super) record: Record,
}

impl Outbox {
    pub(super) fn open(path: &Path) -> Result<Self, SqliteError> {
        let db = sqlite::open(path, VERSION, TABLES)?;
        Ok(Self { db })
    }

    /// The last event that was looked at.
    pub(super) fn cursor(&self) -> Result<Option<u64>, SqliteError> {
        let query = "SELECT event FROM cursor";
        let found: Option<i64> = self.db.query_row(query, [], |row| row.get(0)).optional()?;
        Ok(found.map(|event| event as u64))
    }

    /// Says that all events up to this one were looked at.
    pub(super) fn begin(&mut self, cursor: u64) -> Result<u64, SqliteError> {
        let insert = "INSERT OR REPLACE INTO cursor VALUES (1, ?1)";
        self.db.execute(insert, [cursor as i64])?;
        Ok(cursor)
    }

    /// Takes in those events that somebody wants, and looks at them no more.
    pub(super) fn take(
        &mut self,
        records: &[Record],
        targets: &[Target],
        cursor: Option<u64>,
    ) -> Result<(), SqliteError> {
        if records.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction()?;
        for record in records {
            let text = serde_json::to_string(record).expect("a record becomes JSON");
            for target in targets.iter().filter(|target| target.wants(record)) {
                tx.execute(
                    "INSERT OR IGNORE INTO outbox VALUES (?1, ?2, 0, 0, ?3)",
                    params![record.id as i64, target.name, text],
                )?;
                tx.execute(
                    "DELETE FROM outbox WHERE target = ?1 AND event <= (SELECT event FROM outbox
                     WHERE target = ?1 ORDER BY event DESC LIMIT 1 OFFSET ?2)",
                    params![target.name, MOST_WAITING],
                )?;
            }
        }
        tx.execute(
            "INSERT OR REPLACE INTO cursor VALUES (1, ?1)",
            [cursor.unwrap_or(0) as i64],
        )?;
        Ok(tx.commit()?)
    }

    /// What is to be sent now, the oldest first of those that were tried as often. One that nobody
    /// ever takes holds up no other. What was put off further than anything is was put off by a
    /// clock that was wrong.
    pub(super) fn due(&self, now: SystemTime) -> Result<Vec<Entry>, SqliteError> {
        let mut query = self.db.prepare(
            "SELECT event, target, tries, record FROM outbox WHERE due <= ?1 OR due > ?2
             ORDER BY tries, event LIMIT ?3",
        )?;
        let latest = millis(now + LONGEST_PAUSE);
        let rows = query.query_map(params![millis(now), latest, TURN], |row| {
            let (event, target): (i64, String) = (row.get(0)?, row.get(1)?);
            Ok((
                event,
                target,
                row.get::<_, u32>(2)?,
                row.get::<_, String>(3)?,
            ))
        })?;
        let mut due = Vec::new();
        for row in rows {
            let (event, target, tries, text) = row?;
            if let Ok(record) = serde_json::from_str(&text) {
                due.push(Entry {
                    event,
                    target,
                    tries,
                    record,
                });
            }
        }
        Ok(due)
    }

    /// A target takes what it is told: nothing waits for it any more.
    pub(super) fn hurry(&mut self, target: &str) -> Result<(), SqliteError> {
        let update = "UPDATE outbox SET due = 0 WHERE target = ?1 AND due > 0";
        self.db.execute(update, [target])?;
        Ok(())
    }

    pub(super) fn remove(&mut self, entry: &Entry) -> Result<(), SqliteError> {
        let values = params![entry.event, entry.target];
        let delete = "DELETE FROM outbox WHERE event = ?1 AND target = ?2";
        self.db.execute(delete, values)?;
        Ok(())
    }

    /// Tries this one later, and what else waits for that target behind it.
    pub(super) fn put_off(&mut self, entry: &Entry, until: SystemTime) -> Result<(), SqliteError> {
        let tx = self.db.transaction()?;
        tx.execute(
            "UPDATE outbox SET tries = tries + 1 WHERE event = ?1 AND target = ?2",
            params![entry.event, entry.target],
        )?;
        tx.execute(
            "UPDATE outbox SET due = max(due, ?2) WHERE target = ?1",
            params![entry.target, millis(until)],
        )?;
        Ok(tx.commit()?)
    }
}

pub(super) fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Notify, NotifyKind},
        event::Event,
        journal::{Keeper, Wanted},
    };

    #[test]
    fn what_was_put_off_while_the_clock_was_ahead_is_told_when_that_is_set_right() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::start(&dir.path().join("journal.db")).unwrap();
        keeper.journal().note(Event::ReloadReverted);
        let records = keeper.journal().read(&Wanted {
            wait_seconds: Some(20),
            ..Wanted::default()
        });
        let target = Target::load(&Notify {
            name: "ops".into(),
            kind: NotifyKind::Ntfy,
            url: "https://ntfy.sh/topic".into(),
            secret: None,
            events: vec!["reload_reverted".into()],
        });
        let mut outbox = Outbox::open(&dir.path().join("outbox.db")).unwrap();
        outbox
            .take(&records.events, &[target.unwrap()], None)
            .unwrap();
        let now = SystemTime::now();
        let entry = outbox.due(now).unwrap().remove(0);

        outbox.put_off(&entry, now + LONGEST_PAUSE).unwrap();
        assert!(outbox.due(now).unwrap().is_empty());

        let ahead = now + Duration::from_secs(366 * 86_400);
        outbox.put_off(&entry, ahead).unwrap();
        assert_eq!(outbox.due(now).unwrap().len(), 1);
    }
}
