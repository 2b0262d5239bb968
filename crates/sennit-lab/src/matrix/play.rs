//! Plays a matrix over all cores, and writes each line as it comes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::row::{HEAD, Row};
use super::{Case, Matrix, MatrixArgs, page};
use crate::draft;
use crate::error::{Doing, Error};
use crate::programs;
use crate::progress::Progress;

/// Runs `sennit sim matrix`; `false` if some scenario had no outcome.
pub(crate) fn run(args: &MatrixArgs) -> Result<bool, Error> {
    let reading = || format!("read {}", args.file.display());
    let text = std::fs::read_to_string(&args.file).doing(reading)?;
    let matrix = Matrix::parse(&text)?;
    let cases = matrix.cases();
    if args.count {
        println!("{}", cases.len());
        return Ok(true);
    }
    if let Some(number) = args.only {
        return only(&cases, number);
    }
    let every = args.every.get();
    let wanted: Vec<_> = cases.iter().skip(every / 2).step_by(every).collect();
    let out = out(args, &matrix);
    let table = Table::open(&out, [&text, &programs::build()?], &cases)?;
    let left: Vec<_> = wanted
        .iter()
        .filter(|case| !table.known.contains_key(&case.number))
        .copied()
        .collect();
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok());
    let played = play(&left, wanted.len(), jobs.map_or(1, usize::from), &table)?;
    let mut rows = table.known;
    rows.extend(played.into_iter().map(|row| (row.number, row)));
    let rows: Vec<_> = rows.into_values().collect();
    table_in_order(&out, &rows)?;
    let report = out.join("report.html");
    draft::write(&report, &page::page(&matrix, &text, &rows).html())?;
    println!("{}\n{}", out.join("matrix.csv").display(), report.display());
    let failed = rows.iter().filter(|row| row.goodput.is_none()).count();
    if failed > 0 {
        eprintln!("{failed} scenarios have no outcome; the last column says why");
    }
    Ok(failed == 0)
}

fn out(args: &MatrixArgs, matrix: &Matrix) -> PathBuf {
    let usual = || Path::new("results").join(&matrix.name);
    args.out.clone().unwrap_or_else(usual)
}

fn only(cases: &[Case], number: usize) -> Result<bool, Error> {
    let found = cases.iter().find(|case| case.number == number);
    let case = found.ok_or_else(|| {
        let count = cases.len();
        Error::Usage(format!(
            "there is no scenario {number}: they are 1 to {count}"
        ))
    })?;
    let row = Row::play(case);
    println!("{HEAD}\n{}", row.text());
    Ok(row.goodput.is_some())
}

/// The table on disk.
struct Table {
    /// What it had when it was opened.
    known: BTreeMap<usize, Row>,
    file: Mutex<File>,
    path: PathBuf,
}

impl Table {
    /// Opens that of an earlier run of the same matrix by the same build, or begins one: another
    /// build may have other outcomes.
    fn open(out: &Path, [matrix, build]: [&str; 2], cases: &[Case]) -> Result<Self, Error> {
        std::fs::create_dir_all(out).doing(|| format!("create {}", out.display()))?;
        let path = out.join("matrix.csv");
        let files = [
            ("matrix", out.join("matrix.toml"), matrix),
            ("build", out.join("matrix.build"), build),
        ];
        let other = |(_, file, text): &&(&str, PathBuf, &str)| {
            std::fs::read_to_string(file).ok().as_deref() != Some(*text)
        };
        if path.exists()
            && let Some((what, ..)) = files.iter().find(other)
        {
            return Err(Error::Usage(format!(
                "{} has the results of another {what}: choose another --out, or remove it",
                out.display()
            )));
        }
        // What is there is not written again: a full disk would leave nothing of it.
        for (_, file, text) in files.iter().filter(other) {
            draft::write(file, text)?;
        }
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let rows = before.lines().filter_map(Row::parse);
        let of_matrix = |row: &Row| {
            let case = row.number.checked_sub(1).and_then(|index| cases.get(index));
            case.is_some_and(|case| row.is_of(case))
        };
        let known: Vec<_> = rows.filter(of_matrix).collect();
        // A line that was cut short would swallow the next one.
        table_in_order(out, &known)?;
        let file = OpenOptions::new().append(true).open(&path);
        Ok(Self {
            known: known.into_iter().map(|row| (row.number, row)).collect(),
            file: Mutex::new(file.doing(|| format!("open {}", path.display()))?),
            path,
        })
    }

    fn write(&self, row: &Row) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let line = format!("{}\n", row.text());
        let writing = || format!("write {}", self.path.display());
        file.write_all(line.as_bytes()).doing(writing)
    }
}

/// Writes all lines by number, in place of what was there.
fn table_in_order(out: &Path, rows: &[Row]) -> Result<(), Error> {
    let lines: String = rows.iter().map(|row| format!("{}\n", row.text())).collect();
    draft::write(&out.join("matrix.csv"), &format!("{HEAD}\n{lines}"))
}

/// Plays what is left of `total` scenarios, so many at a time.
fn play(left: &[&Case], total: usize, jobs: usize, table: &Table) -> Result<Vec<Row>, Error> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let progress = Progress::new(total, left.len());
    let worker = || -> Result<(), Error> {
        while let Some(case) = left.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = Row::play(case);
            table.write(&row)?;
            let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
            rows.push(row);
            progress.tell(rows.len());
        }
        Ok(())
    };
    let outcome = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker catches panics"))
            .collect::<Result<Vec<_>, _>>()
    });
    progress.end();
    outcome?;
    Ok(rows.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_stopped_goes_on_where_he_was() {
        let text =
            "name = \"m\"\nseconds = 0.5\nwarm_up = 0.2\nflows = [1, 2]\n[profile]\na = \"5/5\"\n";
        let cases = Matrix::parse(text).expect("it is right").cases();
        let scratch = crate::scratch::Scratch::create().expect("there is room");
        let out = scratch.path().join("m");
        let open = |matrix: &str, build: &str| Table::open(&out, [matrix, build], &cases);
        let table = open(text, "1 a").expect("a new one");
        assert!(table.known.is_empty());
        let first: Vec<_> = cases.iter().take(1).collect();
        play(&first, 2, 1, &table).expect("it is written");
        let torn = "2,1,a,1,quic";
        let mut file = OpenOptions::new()
            .append(true)
            .open(&table.path)
            .expect("it is there");
        file.write_all(torn.as_bytes()).expect("there is room");

        let again = open(text, "1 a").expect("the same matrix");
        assert_eq!(again.known.keys().copied().collect::<Vec<_>>(), [1]);
        let left = std::fs::read_to_string(&again.path).expect("it is there");
        assert!(!left.contains(torn), "{left}");
        let new = out.join(format!("matrix.csv.draft.{}", std::process::id()));
        std::fs::create_dir(&new).expect("there is room");
        open(text, "1 a").err().expect("nothing can be written");
        assert_eq!(
            std::fs::read_to_string(&again.path).expect("it is there"),
            left
        );
        let other = text.replace("5/5", "6/5");
        let refused = open(&other, "1 a").err().expect("another matrix");
        assert!(refused.to_string().contains("another matrix"), "{refused}");
    }

    #[test]
    fn another_build_does_not_go_on_with_what_one_began() {
        let text = "name = \"m\"\n[profile]\na = \"5/5\"\n";
        let cases = Matrix::parse(text).expect("it is right").cases();
        let scratch = crate::scratch::Scratch::create().expect("there is room");
        let out = scratch.path().join("m");
        let build = programs::build().expect("it can be read");
        let open = |build: &str| Table::open(&out, [text, build], &cases);
        open(&build).expect("a new one");
        open(&build).expect("the same build");

        let refused = open("0.0.0 other").err().expect("another build");
        assert!(
            refused
                .to_string()
                .contains("another build: choose another --out"),
            "{refused}"
        );
        std::fs::remove_file(out.join("matrix.build")).expect("it is there");
        assert!(open(&build).is_err(), "nobody knows which build it was");
    }
}
