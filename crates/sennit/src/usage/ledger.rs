//! The file with the counters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, params};

use super::{Carried, Day};
use crate::event::CapState;
use crate::sqlite::{self, SqliteError};

const SECONDS_A_DAY: u64 = 86_400;
/// A clock that is behind the last day in the file by more than this is not believed at once.
const BACK: Day = 1;
/// Until it has said so for this long: then the file was written under a wrong clock.
const BELIEVED_AFTER: Duration = Duration::from_secs(3_600);
/// Days that are kept, of those with traffic: a year and a cycle. A clock that jumps ahead for a
/// moment costs none of them.
const KEPT: Day = 400;

/// Of the layout.
const VERSION: i64 = 1;
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS usage (
        link     TEXT NOT NULL,
        day      INTEGER NOT NULL,
        sent     INTEGER NOT NULL,
        received INTEGER NOT NULL,
        PRIMARY KEY (link, day)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS clock (
        id INTEGER PRIMARY KEY CHECK (id = 1), day INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS told (
        link  TEXT NOT NULL,
        cycle TEXT NOT NULL,
        state INTEGER NOT NULL,
        PRIMARY KEY (link, cycle, state)
    ) STRICT, WITHOUT ROWID;
";

/// What each link has carried on each day.
#[derive(Debug)]
pub struct Ledger {
    db: Connection,
    /// The day that something was written for last. There may be later ones, of a clock that was
    /// ahead.
    last: Option<Day>,
}

/// Why nothing is written down.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep what links have carried in {}: {source}", path.display())]
pub struct LedgerError {
    path: PathBuf,
    source: SqliteError,
}

impl Ledger {
    /// Name of the file in the state directory.
    pub const FILE: &str = "usage.db";

    /// Opens the file in `state`. A damaged one is set aside, and another begun.
    ///
    /// # Errors
    /// If there can be none, as on a full disk.
    pub fn open(state: &Path) -> Result<Self, LedgerError> {
        let path = state.join(Self::FILE);
        let mut opened = Self::open_file(&path);
        if let Err(SqliteError::Damaged(reason)) = &opened
            && let Ok(aside) = sqlite::set_aside(&path)
        {
            let aside = aside.display();
            tracing::error!(reason, %aside, "the usage counters are damaged and begin anew");
            opened = Self::open_file(&path);
        }
        opened.map_err(|source| LedgerError { path, source })
    }

    fn open_file(path: &Path) -> Result<Self, SqliteError> {
        let db = sqlite::open(path, VERSION, SCHEMA)?;
        let query = "SELECT coalesce((SELECT day FROM clock), (SELECT max(day) FROM usage))";
        let last = db.query_row(query, [], |row| row.get(0))?;
        Ok(Self { db, last })
    }

    /// The day to count for: that of the clock, unless it is behind what was written down, as of a
    /// host without a battery that has not heard the time yet.
    pub fn day(&self, now: SystemTime, running: Duration) -> Day {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let today = i64::try_from(now.as_secs() / SECONDS_A_DAY).unwrap_or(Day::MAX);
        match self.last {
            Some(last) if today + BACK < last && running < BELIEVED_AFTER => last,
            _ => today,
        }
    }

    /// Adds what links have carried on a day.
    pub fn add<'a>(
        &mut self,
        day: Day,
        carried: impl Iterator<Item = (&'a str, Carried)>,
    ) -> rusqlite::Result<()> {
        let turn = self.db.transaction()?;
        for (
            link,
            Carried {
                sent_bytes,
                received_bytes,
            },
        ) in carried
        {
            let (sent, received) = (clamp(sent_bytes), clamp(received_bytes));
            turn.execute(
                "INSERT INTO usage VALUES (?1, ?2, ?3, ?4) ON CONFLICT (link, day)
                 DO UPDATE SET sent = sent + excluded.sent, received = received + excluded.received",
                params![link, day, sent, received],
            )?;
        }
        turn.execute(
            "DELETE FROM usage WHERE day <= (SELECT DISTINCT day FROM usage
             ORDER BY day DESC LIMIT 1 OFFSET ?1)",
            [KEPT],
        )?;
        if self.last != Some(day) {
            turn.execute("INSERT OR REPLACE INTO clock VALUES (1, ?1)", [day])?;
        }
        turn.commit()?;
        self.last = Some(day);
        Ok(())
    }

    /// What links have carried on days from `first` up to but not including `end`, day by day.
    pub fn days(
        &self,
        first: Day,
        end: Day,
    ) -> rusqlite::Result<BTreeMap<String, BTreeMap<Day, Carried>>> {
        let mut all: BTreeMap<String, BTreeMap<Day, Carried>> = BTreeMap::new();
        let mut query = self
            .db
            .prepare("SELECT link, day, sent, received FROM usage WHERE day >= ?1 AND day < ?2")?;
        let mut rows = query.query([first, end])?;
        while let Some(row) = rows.next()? {
            let bytes = |column| -> rusqlite::Result<u64> {
                Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
            };
            let carried = Carried {
                sent_bytes: bytes(2)?,
                received_bytes: bytes(3)?,
            };
            all.entry(row.get(0)?)
                .or_default()
                .insert(row.get(1)?, carried);
        }
        Ok(all)
    }

    /// Notes that this was said of a link's cap in the cycle that began on a day; false if it was
    /// before, by whatever daemon. What was said in earlier cycles is forgotten.
    pub fn tell(&mut self, link: &str, cycle: &str, state: CapState) -> rusqlite::Result<bool> {
        let turn = self.db.transaction()?;
        turn.execute(
            "DELETE FROM told WHERE link = ?1 AND cycle < ?2",
            [link, cycle],
        )?;
        let new = turn.execute(
            "INSERT OR IGNORE INTO told VALUES (?1, ?2, ?3)",
            params![link, cycle, state as i64],
        )?;
        turn.commit()?;
        Ok(new > 0)
    }
}

fn clamp(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn carried(sent_bytes: u64, received_bytes: u64) -> Carried {
        Carried {
            sent_bytes,
            received_bytes,
        }
    }

    fn at(day: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(day * SECONDS_A_DAY + 7)
    }

    #[test]
    fn what_is_written_is_there_after_a_restart_and_adds_up() {
        let state = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(state.path()).unwrap();
        ledger
            .add(20_000, [("lte", carried(5, 7))].into_iter())
            .unwrap();
        drop(ledger);

        let mut ledger = Ledger::open(state.path()).unwrap();
        ledger
            .add(20_000, [("lte", carried(1, 1))].into_iter())
            .unwrap();
        ledger
            .add(20_001, [("lte", carried(2, 0))].into_iter())
            .unwrap();

        let days = ledger.days(20_000, 20_001).unwrap();
        assert_eq!(days["lte"], BTreeMap::from([(20_000, carried(6, 8))]));
    }

    #[test]
    fn a_clock_that_starts_in_the_past_is_not_believed_for_an_hour() {
        let state = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(state.path()).unwrap();
        assert_eq!(ledger.day(at(3), Duration::ZERO), 3, "it is all there is");
        ledger
            .add(20_000, [("lte", carried(1, 1))].into_iter())
            .unwrap();

        assert_eq!(ledger.day(at(3), Duration::from_secs(60)), 20_000);
        assert_eq!(
            ledger.day(at(19_999), Duration::from_secs(60)),
            19_999,
            "midnight"
        );
        assert_eq!(ledger.day(at(20_400), Duration::from_secs(60)), 20_400);
        assert_eq!(ledger.day(at(3), BELIEVED_AFTER), 3);
    }

    #[test]
    fn a_clock_that_was_ahead_once_is_forgotten_when_the_right_one_was_believed() {
        let state = tempfile::tempdir().unwrap();
        let one = || [("lte", carried(1, 0))].into_iter();
        let mut ledger = Ledger::open(state.path()).unwrap();
        ledger.add(20_365, one()).unwrap();
        assert_eq!(ledger.day(at(20_000), Duration::ZERO), 20_365);
        assert_eq!(ledger.day(at(20_000), BELIEVED_AFTER), 20_000);
        ledger.add(20_000, one()).unwrap();
        drop(ledger);

        let ledger = Ledger::open(state.path()).unwrap();

        assert_eq!(ledger.day(at(20_000), Duration::ZERO), 20_000);
        assert_eq!(ledger.day(at(20_001), Duration::ZERO), 20_001);
    }

    #[test]
    fn a_year_is_kept_also_when_the_clock_jumps_ahead() {
        let state = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(state.path()).unwrap();
        for day in 20_000..20_000 + KEPT + 2 {
            let rows = [("lte", carried(1, 0)), ("dsl", carried(1, 0))];
            ledger.add(day, rows.into_iter()).unwrap();
        }
        ledger
            .add(90_000, [("lte", carried(1, 1))].into_iter())
            .unwrap();

        let days = ledger.days(0, 100_000).unwrap();
        assert_eq!(days["lte"].len() as Day, KEPT);
        assert_eq!(days["lte"].first_key_value().unwrap().0, &20_003);
    }

    #[test]
    fn what_was_said_of_a_cap_is_not_said_again_after_a_restart_but_in_the_next_cycle() {
        let state = tempfile::tempdir().unwrap();
        let says = |cycle: &str, word| {
            let mut ledger = Ledger::open(state.path()).unwrap();
            ledger.tell("lte", cycle, word).unwrap()
        };

        assert!(says("2026-11-15", CapState::Nearly));
        assert!(!says("2026-11-15", CapState::Nearly));
        assert!(says("2026-11-15", CapState::Over));
        assert!(says("2026-12-15", CapState::Nearly));
        assert!(!says("2026-12-15", CapState::Nearly));
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(Ledger::FILE);
        std::fs::write(&path, vec![b'x'; 8192]).unwrap();

        let mut ledger = Ledger::open(state.path()).unwrap();
        ledger.add(1, [("lte", carried(1, 1))].into_iter()).unwrap();

        assert!(path.with_added_extension("damaged").exists());
    }
}
