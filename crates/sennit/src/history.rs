//! How much went over links and classes, and how they fared: each second for an hour, each minute
//! for a week, each hour for a year.
//!
//! A thread of its own looks at the daemon's status once a second, as `sennit status` does, and
//! puts the differences into a file ([`file`]); so it holds up no packet, and its size is bounded.
//! If the file cannot be written, that second is missing.

mod file;
mod sample;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::{
    file::File,
    sample::{Counters, Row},
};
use crate::{
    control::{Ask, Request},
    sqlite::{self, SqliteError},
};

/// What `schema` says.
pub const SCHEMA: &str = "sennit.history/1";
/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Rows are written together with those of the second before, which halves what a flash has to
/// bear.
const WRITE_EVERY: u64 = 2;
/// After this a file that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// How finely somebody wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Second,
    Minute,
    Hour,
}

impl Step {
    /// All of them, the finest first.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    /// Its length in seconds.
    pub fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// For how many seconds it is kept.
    pub fn kept(self) -> u64 {
        match self {
            Self::Second => 3600,
            Self::Minute => 7 * 86_400,
            Self::Hour => 366 * 86_400,
        }
    }

    /// The one that is called so.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "second" => Some(Self::Second),
            "minute" => Some(Self::Minute),
            "hour" => Some(Self::Hour),
            _ => None,
        }
    }
}

/// What went over links and classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// `sennit.history/1`.
    pub schema: String,
    pub step_seconds: u64,
    pub series: Vec<Series>,
}

/// One link, one class or all; its values stand side by side, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// `total`, `link/NAME` or `class/NAME`.
    pub name: String,
    /// When each step began, in seconds since 1970.
    pub time: Vec<u64>,
    pub sent_bytes_per_second: Vec<f64>,
    pub received_bytes_per_second: Vec<f64>,
    /// Mean of the round trips; of a link.
    pub rtt_seconds: Vec<Option<f64>>,
    /// Of the packets sent, 0 to 1; of a link.
    pub loss_ratio: Vec<Option<f64>>,
    /// Part of the step in which it was up, 0 to 1.
    pub up_ratio: Vec<f64>,
}

/// The history of a daemon, for those who ask.
#[derive(Clone, Debug)]
pub struct Archive {
    path: PathBuf,
}

impl Archive {
    /// What is kept of the last `since` seconds, of the series with this name or all; this reads a
    /// file.
    pub fn read(&self, step: Step, since: u64, name: Option<&str>) -> Result<History, String> {
        let now = now();
        let from = now.saturating_sub(since.min(step.kept()));
        // What lies in the future was written by a clock that was wrong.
        let series = file::read(&self.path, step, from..=now, name);
        Ok(History {
            schema: SCHEMA.into(),
            step_seconds: step.seconds(),
            series: series.map_err(|error| error.to_string())?,
        })
    }
}

/// The thread; when this is dropped, all that it has seen is in the file.
#[derive(Debug)]
pub struct Recorder {
    archive: Archive,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Looks at `ask` each second and writes to the file at `path`.
    pub fn start(path: &Path, ask: Arc<dyn Ask>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let work = Work {
            path: path.into(),
            ask,
            file: None,
            before: Counters::default(),
            rows: Vec::new(),
            retry_at: Instant::now(),
            complained: false,
        };
        let run = move || {
            sennit_linux::confine::keep_files_only();
            work.run(&stopped);
        };
        let thread = thread::Builder::new().name("history".into());
        Ok(Self {
            archive: Archive { path: path.into() },
            stop: Some(stop),
            thread: Some(thread.spawn(run)?),
        })
    }

    pub fn archive(&self) -> &Archive {
        &self.archive
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    path: PathBuf,
    ask: Arc<dyn Ask>,
    file: Option<File>,
    /// What was counted at the last look.
    before: Counters,
    /// Those that are not written yet.
    rows: Vec<Row>,
    retry_at: Instant,
    /// Whether the log was told that there is no file.
    complained: bool,
}

impl Work {
    fn run(mut self, stopped: &Receiver<()>) {
        let mut next = Instant::now();
        for look in 1_u64.. {
            next = (next + EVERY).max(Instant::now());
            match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Ok(status) = self.ask.status(&Request::Summary) {
                let counters = Counters::of(&status, Instant::now());
                let rows = counters.since(&self.before, now());
                self.before = counters;
                self.ask.note_second(&status, sample::link_rates(&rows));
                self.rows.extend(rows);
            }
            if look.is_multiple_of(WRITE_EVERY) {
                self.write();
            }
        }
        self.write();
    }

    fn write(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        if Instant::now() < self.retry_at {
            return;
        }
        match self.try_write(&rows) {
            Ok(()) => {
                if std::mem::take(&mut self.complained) {
                    tracing::info!(file = %self.path.display(), "the history is written again");
                }
            }
            Err(SqliteError::Damaged(reason)) => {
                self.file = None;
                let file = self.path.display();
                match sqlite::set_aside(&self.path) {
                    Ok(aside) => {
                        let aside = aside.display();
                        tracing::error!(%file, reason, %aside, "the history is damaged and set aside");
                    }
                    Err(error) => self.put_off(&error.to_string()),
                }
            }
            Err(error) => self.put_off(&error.to_string()),
        }
    }

    fn try_write(&mut self, rows: &[Row]) -> Result<(), SqliteError> {
        if self.file.is_none() {
            self.file = Some(File::open(&self.path)?);
        }
        match &mut self.file {
            Some(file) => file.write(rows, now()),
            None => Ok(()),
        }
    }

    fn put_off(&mut self, reason: &str) {
        self.file = None;
        self.retry_at = Instant::now() + RETRY;
        if !std::mem::replace(&mut self.complained, true) {
            let file = self.path.display();
            tracing::warn!(%file, reason, "the history has a gap: it cannot be written");
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
