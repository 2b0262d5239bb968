//! The history's file.

use std::ops::RangeInclusive;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::{
    Series, Step,
    sample::{Row, TOTAL},
};
use crate::sqlite::{self, SqliteError};

/// Of the layout.
const VERSION: i64 = 1;
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS samples (
        step INTEGER NOT NULL, series INTEGER NOT NULL, time INTEGER NOT NULL,
        sent REAL NOT NULL, received REAL NOT NULL,
        sent_packets REAL NOT NULL, lost_packets REAL NOT NULL, rtt REAL, up REAL NOT NULL,
        PRIMARY KEY (step, series, time)
    ) WITHOUT ROWID;";
/// Series that there may be: links and classes that come and go with the config, or, at a hub, with
/// the sites. Another takes the place of the one that has said nothing for longest.
const MOST_SERIES: i64 = 256;
/// A series is idle if it has said nothing for so many seconds: those that go on all find room, and
/// take turns with nobody.
const IDLE_AFTER: i64 = 60;

/// The file, open for writing.
#[derive(Debug)]
pub(super) struct File {
    db: Connection,
    /// The minute in which it was last summed up.
    summed: Option<u64>,
}

impl File {
    pub(super) fn open(path: &Path) -> Result<Self, SqliteError> {
        let db = sqlite::open(path, VERSION, TABLES)?;
        // The last seconds may be lost with the power, and the file may not.
        db.pragma_update(None, "synchronous", "normal")?;
        Ok(Self { db, summed: None })
    }

    /// Writes what happened; once a minute it is summed up, and what is old is removed.
    pub(super) fn write(&mut self, rows: &[Row], now: u64) -> Result<(), SqliteError> {
        let tx = self.db.transaction()?;
        for row in rows {
            make_room(&tx, row)?;
            tx.execute(
                "INSERT OR IGNORE INTO series (name)
                 SELECT ?1 WHERE (SELECT count(*) FROM series) < ?2",
                params![row.series, MOST_SERIES],
            )?;
            tx.execute(
                "INSERT OR REPLACE INTO samples
                 SELECT 1, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM series WHERE name = ?1",
                params![
                    row.series,
                    row.time as i64,
                    row.sent,
                    row.received,
                    row.sent_packets,
                    row.lost_packets,
                    row.rtt,
                    row.up
                ],
            )?;
        }
        let minute = now / 60;
        if self.summed != Some(minute) {
            sum_up(&tx, Step::Second, Step::Minute, now)?;
            sum_up(&tx, Step::Minute, Step::Hour, now)?;
            forget(&tx, now)?;
            self.summed = Some(minute);
        }
        Ok(tx.commit()?)
    }
}

/// Forgets the series that has been idle for longest if a new one finds no room: never the total,
/// nor one that goes on, and those that were there for an hour after all others, lest names that
/// somebody makes up displace them. What is not summed up yet is the last that is known of a
/// series.
fn make_room(db: &Connection, row: &Row) -> rusqlite::Result<()> {
    let is_full: bool = db.query_row(
        "SELECT count(*) >= ?2 AND NOT EXISTS (SELECT 1 FROM series WHERE name = ?1) FROM series",
        params![row.series, MOST_SERIES],
        |found| found.get(0),
    )?;
    if !is_full {
        return Ok(());
    }
    let idle = "SELECT id, (SELECT max(last) FROM (
                    SELECT (SELECT max(time) FROM samples WHERE series = id AND step = steps.step)
                           AS last
                    FROM (SELECT 1 AS step UNION SELECT 60 UNION SELECT 3600) AS steps)) AS seen
                FROM series WHERE name <> ?1 AND coalesce(seen, 0) < ?2
                ORDER BY EXISTS (SELECT 1 FROM samples WHERE step = 3600 AND series = id), seen
                LIMIT 1";
    let found = db.query_row(
        idle,
        params![TOTAL, row.time as i64 - IDLE_AFTER],
        |found| found.get(0),
    );
    let Some(id): Option<i64> = found.optional()? else {
        return Ok(());
    };
    // With its step a series is found without a look at all others.
    let samples = "DELETE FROM samples WHERE step IN (1, 60, 3600) AND series = ?1";
    db.execute(samples, [id])?;
    db.execute("DELETE FROM series WHERE id = ?1", [id])?;
    Ok(())
}

/// Makes the coarser steps that are over and not there yet, also those of a daemon that was killed.
fn sum_up(db: &Connection, from: Step, to: Step, now: u64) -> rusqlite::Result<()> {
    let length = to.seconds() as i64;
    let end = now as i64 / length * length;
    db.execute(
        "INSERT OR IGNORE INTO samples
         SELECT ?1, series, time / ?1 * ?1, avg(sent), avg(received), avg(sent_packets),
                avg(lost_packets), avg(rtt), avg(up)
         FROM samples WHERE step = ?2 AND time < ?3 AND time >= ?3 - ?4
         GROUP BY series, time / ?1",
        params![length, from.seconds() as i64, end, look_back(from)],
    )?;
    Ok(())
}

/// How far back there may be finer steps that were not summed up, in whole coarser ones: those of
/// which the first part is forgotten were summed up before.
fn look_back(from: Step) -> i64 {
    match from {
        Step::Second => 3540,
        Step::Minute | Step::Hour => 2 * 86_400,
    }
}

/// Keeps as many steps as there are in the time that a step is kept. They are counted, because a
/// clock that is ahead for a moment must not age them all; and so are those of the future, because
/// a clock that is behind, as of a host that has not heard the time yet, must not throw them away.
fn forget(db: &Connection, now: u64) -> rusqlite::Result<()> {
    let now = now as i64;
    for step in Step::ALL {
        let (length, most) = (step.seconds() as i64, step.kept() / step.seconds());
        for (from, to) in [(0, now), (now + 1, i64::MAX)] {
            db.execute(
                "DELETE FROM samples WHERE step = ?1 AND time BETWEEN ?2 AND ?3 AND time < (
                     SELECT time FROM samples JOIN series ON id = series
                     WHERE step = ?1 AND name = ?4 AND time BETWEEN ?2 AND ?3
                     ORDER BY time DESC LIMIT 1 OFFSET ?5)",
                params![length, from, to, TOTAL, most as i64 - 1],
            )?;
        }
    }
    db.execute(
        "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM samples WHERE series = id)",
        [],
    )?;
    Ok(())
}

/// The series of some time: all, the one with this name, or, where that ends in `/`, those whose
/// names begin so. Figures are rounded to what anybody can tell apart, as a week of them is long.
pub(super) fn read(
    path: &Path,
    step: Step,
    time: RangeInclusive<u64>,
    name: Option<&str>,
) -> Result<Vec<Series>, SqliteError> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    db.busy_timeout(sqlite::BUSY)?;
    let mut query = db.prepare(
        "SELECT name, time, sent, received, rtt, sent_packets, lost_packets, up
         FROM samples JOIN series ON id = series
         WHERE step = ?1 AND time BETWEEN ?2 AND ?3
           AND (?4 IS NULL OR name = ?4 OR (?4 LIKE '%/' AND substr(name, 1, length(?4)) = ?4))
         ORDER BY name, time",
    )?;
    let (from, to) = (*time.start() as i64, *time.end() as i64);
    let mut rows = query.query(params![step.seconds() as i64, from, to, name])?;
    let mut all: Vec<Series> = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if all.last().is_none_or(|series| series.name != name) {
            all.push(Series {
                name,
                ..Series::default()
            });
        }
        let Some(series) = all.last_mut() else {
            continue;
        };
        series.time.push(row.get::<_, i64>(1)? as u64);
        let bytes = |of: usize| row.get(of).map(|it| rounded(it, TENTHS));
        series.sent_bytes_per_second.push(bytes(2)?);
        series.received_bytes_per_second.push(bytes(3)?);
        let rtt: Option<f64> = row.get(4)?;
        series
            .rtt_seconds
            .push(rtt.map(|it| rounded(it, MILLIONTHS)));
        let (sent, lost): (f64, f64) = (row.get(5)?, row.get(6)?);
        let loss = (sent > 0.0).then(|| rounded(lost / sent, MILLIONTHS));
        series.loss_ratio.push(loss);
        series.up_ratio.push(rounded(row.get(7)?, MILLIONTHS));
    }
    Ok(all)
}

/// Of a byte.
const TENTHS: f64 = 10.0;
/// Of a second, or of one.
const MILLIONTHS: f64 = 1e6;

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later than any clock.
    const NEVER: u64 = i64::MAX as u64;

    fn row(series: &str, time: u64, sent: f64) -> Row {
        Row {
            series: series.into(),
            time,
            sent,
            received: 2.0 * sent,
            sent_packets: 100.0,
            lost_packets: 1.0,
            rtt: Some(0.04),
            up: 1.0,
        }
    }

    /// A file that saw each second of a time, each as many bytes as its minute's number.
    fn filled(path: &Path, seconds: std::ops::Range<u64>) -> File {
        let mut file = File::open(path).unwrap();
        for minute in (seconds.start / 60)..(seconds.end / 60) {
            let times = minute * 60..(minute + 1) * 60;
            let rows: Vec<Row> = times.map(|at| row("total", at, minute as f64)).collect();
            file.write(&rows, (minute + 1) * 60).unwrap();
        }
        file
    }

    fn read_all(path: &Path, step: Step) -> Series {
        let mut all = read(path, step, 0..=NEVER, None).unwrap();
        assert!(all.len() <= 1, "{all:?}");
        all.pop().unwrap_or_default()
    }

    #[test]
    fn seconds_become_minutes_and_those_hours_and_each_is_kept_for_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");

        filled(&path, 0..3 * 3600);

        let seconds = read_all(&path, Step::Second);
        assert_eq!(seconds.time.len(), 3600);
        assert_eq!(seconds.time[0], 2 * 3600);
        let minutes = read_all(&path, Step::Minute);
        let expected: Vec<f64> = (0..180).map(f64::from).collect();
        assert_eq!(minutes.sent_bytes_per_second, expected);
        assert_eq!(minutes.loss_ratio[7], Some(0.01));
        let hours = read_all(&path, Step::Hour);
        assert_eq!(hours.time, [0, 3600, 7200]);
        assert_eq!(hours.sent_bytes_per_second, [29.5, 89.5, 149.5]);
        assert_eq!(hours.rtt_seconds.len(), 3);
    }

    #[test]
    fn what_a_killed_daemon_has_not_summed_up_the_next_one_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let mut file = File::open(&path).unwrap();
        let rows: Vec<Row> = (0..600).map(|at| row("total", at, 5.0)).collect();
        file.write(&rows, 30).unwrap();
        drop(file);
        assert_eq!(read_all(&path, Step::Minute).time.len(), 0);

        File::open(&path).unwrap().write(&[], 1000).unwrap();

        assert_eq!(read_all(&path, Step::Minute).time.len(), 10);
    }

    #[test]
    fn names_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let mut file = File::open(&path).unwrap();
        let names: Vec<Row> = (0..400)
            .map(|n| row(&format!("link/{n}"), 60, 1.0))
            .collect();

        file.write(&names, 60).unwrap();

        let all = read(&path, Step::Second, 0..=60, None).unwrap();
        assert!(all.len() <= MOST_SERIES as usize, "{}", all.len());
        assert!(all.iter().all(|series| series.time == [60]));
        assert_eq!(
            read(&path, Step::Second, 0..=60, Some("link/7"))
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn links_are_read_without_classes_in_figures_that_anybody_can_tell_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let mut file = File::open(&path).unwrap();
        let names = ["link/lte", "link/dsl", "class/link/", "linkage", TOTAL];
        let rows: Vec<Row> = names.iter().map(|name| row(name, 60, 1.0 / 3.0)).collect();
        file.write(&rows, 60).unwrap();

        let links = read(&path, Step::Second, 0..=60, Some("link/")).unwrap();

        let names: Vec<&str> = links.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["link/dsl", "link/lte"]);
        assert_eq!(links[0].sent_bytes_per_second, [0.3]);
        assert_eq!(links[0].received_bytes_per_second, [0.7]);
    }

    #[test]
    fn a_new_name_takes_the_place_of_the_one_that_is_idle_for_longest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let mut file = File::open(&path).unwrap();
        let told = |name: &str| {
            !read(&path, Step::Second, 0..=999, Some(name))
                .unwrap()
                .is_empty()
        };
        file.write(&[row(TOTAL, 10, 1.0), row("class/voice", 10, 1.0)], 10)
            .unwrap();
        let made_up = |n: u64| row(&format!("class/x{n}"), 20 + n, 1.0);
        let names: Vec<Row> = (0..254).map(made_up).collect();
        file.write(&names, 300).unwrap();
        file.write(&[row("class/voice", 300, 1.0)], 300).unwrap();

        file.write(&[row("class/bulk", 301, 1.0)], 301).unwrap();

        assert!(told("class/bulk") && told("class/voice") && told(TOTAL));
        assert!(!told("class/x0") && told("class/x1"));
    }

    #[test]
    fn names_that_somebody_makes_up_displace_none_that_was_there_for_an_hour() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let mut file = File::open(&path).unwrap();
        file.write(&[row("class/office", 3500, 1.0)], 3500).unwrap();
        file.write(&[], 3700).unwrap();
        for n in 0..300 {
            let at = 4000 + 100 * n;
            let made_up = [row(&format!("class/x{n}"), at, 1.0)];
            file.write(&made_up, at).unwrap();
        }

        let office = read(&path, Step::Hour, 0..=99_999, Some("class/office"));
        assert!(!office.unwrap().is_empty());
    }

    #[test]
    fn a_clock_that_jumps_by_years_for_a_minute_costs_no_more_than_that() {
        const YEAR: u64 = 366 * 86_400;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let now = 56 * YEAR;
        drop(filled(&path, now - 3 * 3600..now));
        let count = |step, until| {
            let all = read(&path, step, 0..=until, None).unwrap();
            all.first().map_or(0, |series| series.time.len())
        };
        assert_eq!(
            [Step::Second, Step::Minute, Step::Hour].map(|it| count(it, now)),
            [3600, 180, 3]
        );

        for wrong in [now + YEAR, 3600] {
            drop(filled(&path, wrong..wrong + 60));
        }
        // Its last minute is summed up with the next one.
        drop(filled(&path, now..now + 60));

        let then = now + 60;
        assert_eq!(count(Step::Second, then), 3600);
        assert_eq!(count(Step::Minute, then), 180 + 2);
        assert_eq!(count(Step::Hour, then), 3);
    }

    #[test]
    fn a_clock_that_is_ahead_for_days_fills_the_file_with_no_more_than_it_may_have() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        drop(filled(&path, 90_000..90_000 + 2 * 3600));

        drop(filled(&path, 0..7200));

        assert_eq!(read_all(&path, Step::Second).time.len(), 2 * 3600);
        let all = read(&path, Step::Second, 0..=7200, None).unwrap();
        assert_eq!(all[0].time.len(), 3600);
    }

    #[test]
    fn a_year_of_six_links_fits_into_fifty_megabytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let mut file = File::open(&path).unwrap();
        let names: Vec<Row> = (0..8).map(|n| row(&format!("link/{n}"), 1, 1.0)).collect();
        file.write(&names, 2).unwrap();
        for step in Step::ALL {
            let (length, count) = (step.seconds() as i64, step.kept() / step.seconds());
            file.db
                .execute(
                    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
                     INSERT OR IGNORE INTO samples
                     SELECT ?1, id, i * ?1, 123456.7, 234567.8, 345.6, 4.5, 0.0456, 0.99
                     FROM n, series",
                    params![length, count as i64],
                )
                .unwrap();
        }
        file.db
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        drop(file);

        let size = path.metadata().unwrap().len();

        let figure = (sennit_lab::report::Figure::FileBytes, size as f64);
        sennit_lab::report::note("history", "a year of 6 links", &[figure]).unwrap();
        assert!(size < 50_000_000, "{size} bytes");
    }
}
