//! What is to be told, on disk.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::{FIRST_PAUSE, LONGEST_PAUSE, MOST_TRIES};
use crate::{
    config::Notify,
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
/// Sent to one target in one turn.
const TURN: i64 = 32;
/// Whether an event is to be sent at `?2`, where none is put off beyond `?3`.
const DUE: &str = "(due <= ?2 OR due > ?3)";

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
        targets: &[Notify],
        cursor: Option<u64>,
    ) -> Result<(), SqliteError> {
        if records.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction()?;
        for record in records {
            let text = serde_json::to_string(record).expect("a record becomes JSON");
            let kind = record.event.kind();
            let wants = |target: &&Notify| target.events.contains(&kind);
            for target in targets.iter().filter(wants) {
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

    /// What waits for a target, the oldest first, if any of it is to be sent now: a link that came
    /// back is not told of before it was lost. What was put off further than anything is was put
    /// off by a clock that was wrong.
    pub(super) fn due(&self, target: &str, now: SystemTime) -> Result<Vec<Entry>, SqliteError> {
        let mut query = self.db.prepare(&format!(
            "SELECT event, target, tries, record FROM outbox WHERE target = ?1
             AND EXISTS (SELECT 1 FROM outbox WHERE target = ?1 AND {DUE})
             ORDER BY event LIMIT ?4"
        ))?;
        let latest = millis(now + LONGEST_PAUSE);
        let rows = query.query_map(params![target, millis(now), latest, TURN], |row| {
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

    /// Forgets what waits for those that the config does not name any more.
    pub(super) fn keep(&mut self, targets: &[Notify]) -> Result<(), SqliteError> {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let names = serde_json::to_string(&names).expect("names become JSON");
        let delete = "DELETE FROM outbox WHERE target NOT IN (SELECT value FROM json_each(?1))";
        self.db.execute(delete, [names])?;
        Ok(())
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

    /// The target took nothing: what is due for it is tried later, each after a pause of its own.
    /// Returns how many events were given up, as they have been tried so often.
    pub(super) fn put_off(&mut self, target: &str, now: SystemTime) -> Result<usize, SqliteError> {
        let latest = millis(now + LONGEST_PAUSE);
        let (first, longest) = (
            FIRST_PAUSE.as_millis() as i64,
            LONGEST_PAUSE.as_millis() as i64,
        );
        let tx = self.db.transaction()?;
        tx.execute(
            &format!(
                "UPDATE outbox SET tries = tries + 1, due = ?2 + min(?4 << min(tries, 16), ?5)
                 WHERE target = ?1 AND {DUE}"
            ),
            params![target, millis(now), latest, first, longest],
        )?;
        let given_up = tx.execute(
            "DELETE FROM outbox WHERE target = ?1 AND tries >= ?2",
            params![target, MOST_TRIES],
        )?;
        tx.commit()?;
        Ok(given_up)
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
        config::NotifyKind,
        event::Event,
        journal::{Keeper, Wanted},
    };

    /// An outbox for one target with so many events.
    fn outbox(dir: &Path, events: usize) -> Outbox {
        let keeper = Keeper::start(&dir.join("journal.db")).unwrap();
        for _ in 0..events {
            keeper.journal().note(Event::ReloadReverted);
        }
        let mut records = Vec::new();
        while records.len() < events {
            let wanted = Wanted {
                wait_seconds: Some(20),
                ..Wanted::default()
            };
            records = keeper.journal().read(&wanted).events;
        }
        let target = Notify {
            name: "ops".into(),
            kind: NotifyKind::Ntfy,
            url: "https://ntfy.sh/topic".into(),
            secret: None,
            events: vec!["reload_reverted".into()],
        };
        let mut outbox = Outbox::open(&dir.join("outbox.db")).unwrap();
        outbox.take(&records, &[target], None).unwrap();
        outbox
    }

    #[test]
    fn what_was_put_off_while_the_clock_was_ahead_is_told_when_that_is_set_right() {
        let dir = tempfile::tempdir().unwrap();
        let mut outbox = outbox(dir.path(), 1);
        let now = SystemTime::now();

        outbox.put_off("ops", now).unwrap();
        assert!(outbox.due("ops", now).unwrap().is_empty());

        let ahead = now + Duration::from_secs(366 * 86_400);
        outbox.put_off("ops", ahead).unwrap();
        assert_eq!(outbox.due("ops", now).unwrap().len(), 1);
    }

    #[test]
    fn events_are_told_in_their_order_however_often_each_was_tried() {
        let dir = tempfile::tempdir().unwrap();
        let mut outbox = outbox(dir.path(), 2);
        let now = SystemTime::now();
        outbox.put_off("ops", now).unwrap();
        // The second has come meanwhile, and is to be told at once.
        let newer =
            "UPDATE outbox SET tries = 0, due = 0 WHERE event = (SELECT max(event) FROM outbox)";
        outbox.db.execute(newer, []).unwrap();

        let due = outbox.due("ops", now).unwrap();

        assert_eq!(due.len(), 2);
        assert!(due[0].event < due[1].event, "{due:?}");
        assert_eq!((due[0].tries, due[1].tries), (1, 0));
    }

    #[test]
    fn all_events_of_a_target_that_is_away_are_given_up_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let mut outbox = outbox(dir.path(), 5);
        let (mut now, mut given_up) = (SystemTime::now(), 0);
        let begun = now;
        while given_up < 5 {
            if !outbox.due("ops", now).unwrap().is_empty() {
                given_up += outbox.put_off("ops", now).unwrap();
            }
            now += FIRST_PAUSE;
        }
        let hours = now.duration_since(begun).unwrap().as_secs() / 3_600;
        assert!((12..36).contains(&hours), "{hours}");
    }
}
