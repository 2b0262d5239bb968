//! The thread that keeps the journal.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use super::{Event, Journal, KEPT, Log, Record, disk::Disk, turnover::Turnover};
use crate::sqlite::{self, SqliteError};

/// Events that may wait for the keeper: a link of an edge with many classes fails.
const ROOM: usize = 1024;
/// After this a file that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What the keeper is told.
#[derive(Debug)]
pub(super) enum Note {
    Event(SystemTime, Event),
    Stop,
}

/// The thread; when this is dropped, all that was noted is on the disk, if there is room.
#[derive(Debug)]
pub struct Keeper {
    journal: Journal,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the keeper of the journal in `file`.
    pub fn start(file: &Path) -> std::io::Result<Self> {
        let (notes, told) = mpsc::sync_channel(ROOM);
        let journal = Journal {
            notes,
            lost: Arc::default(),
            log: Arc::new(Log::new(Vec::new())),
        };
        let work = Work {
            file: file.into(),
            log: Arc::clone(&journal.log),
            lost: Arc::clone(&journal.lost),
            disk: None,
            loaded: false,
            unsaved: Vec::new(),
            turnover: Turnover::default(),
            retry_at: Instant::now(),
            complained: false,
        };
        let thread = thread::Builder::new().name("journal".into());
        let thread = thread.spawn(move || {
            sennit_linux::confine::keep_files_only();
            work.run(&told);
        })?;
        Ok(Self {
            journal,
            thread: Some(thread),
        })
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It may be busy; then it takes this when there is room.
        let _ = self.journal.notes.send(Note::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    file: PathBuf,
    log: Arc<Log>,
    lost: Arc<AtomicU64>,
    disk: Option<Disk>,
    /// Whether what earlier daemons wrote is in the log.
    loaded: bool,
    unsaved: Vec<Arc<Record>>,
    turnover: Turnover,
    retry_at: Instant,
    /// Whether the log was told that there is no file.
    complained: bool,
}

impl Work {
    fn run(mut self, told: &Receiver<Note>) {
        self.save();
        loop {
            let note = match self.wake_at() {
                None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => told.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            let mut stop = false;
            match note {
                Ok(Note::Event(at, event)) => {
                    self.admit(at, event);
                    // What came together is written together.
                    for note in told.try_iter() {
                        match note {
                            Note::Event(at, event) => self.admit(at, event),
                            Note::Stop => stop = true,
                        }
                    }
                    self.count_lost();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Note::Stop) | Err(RecvTimeoutError::Disconnected) => stop = true,
            }
            self.take_late((!stop).then(Instant::now));
            if stop {
                self.retry_at = Instant::now();
                return self.save();
            }
            self.save();
        }
    }

    /// When there is something to do although nothing is noted.
    fn wake_at(&self) -> Option<Instant> {
        let saves = (!self.unsaved.is_empty()).then_some(self.retry_at);
        [saves, self.turnover.due_at()].into_iter().flatten().min()
    }

    /// Takes what was noted, unless a site comes and goes too often.
    fn admit(&mut self, at: SystemTime, event: Event) {
        if let Some(event) = self.turnover.admit(at, event, Instant::now()) {
            self.take(at, event);
        }
    }

    /// Takes how the sites stand that came and went too often, when their time is over.
    fn take_late(&mut self, now: Option<Instant>) {
        let late = self.turnover.take_late(now);
        for (at, event) in late.events {
            self.take(at, event);
        }
        if late.untold > 0 {
            let (sites, count) = (late.sites.join(", "), late.untold);
            tracing::warn!(
                sites,
                count,
                "tunnels come and go so often that not all is kept"
            );
            self.take(SystemTime::now(), Event::EventsLost { count });
        }
    }

    fn take(&mut self, at: SystemTime, event: Event) {
        let record = self.log.add(at, event);
        self.unsaved.push(record);
        if self.unsaved.len() > KEPT {
            self.unsaved.remove(0);
        }
    }

    fn count_lost(&mut self) {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            count => self.take(SystemTime::now(), Event::EventsLost { count }),
        }
    }

    fn save(&mut self) {
        if Instant::now() < self.retry_at {
            return;
        }
        match self.try_save() {
            Ok(()) => {
                if std::mem::take(&mut self.complained) {
                    tracing::info!(file = %self.file.display(), "the journal is written again");
                }
            }
            Err(SqliteError::Damaged(reason)) => self.set_aside(reason),
            Err(error) => {
                self.disk = None;
                self.put_off(&error.to_string());
            }
        }
    }

    fn try_save(&mut self) -> Result<(), SqliteError> {
        if self.disk.is_none() {
            let disk = Disk::open(&self.file)?;
            if !self.loaded {
                self.log.prepend(disk.load()?);
                self.loaded = true;
            }
            self.disk = Some(disk);
        }
        if let Some(disk) = &mut self.disk
            && !self.unsaved.is_empty()
        {
            let records: Vec<&Record> = self.unsaved.iter().map(AsRef::as_ref).collect();
            disk.write(&records)?;
            self.unsaved.clear();
        }
        Ok(())
    }

    fn set_aside(&mut self, reason: String) {
        self.disk = None;
        let file = self.file.display();
        match sqlite::set_aside(&self.file) {
            Ok(aside) => {
                let aside = aside.display().to_string();
                tracing::error!(%file, reason, aside, "the journal is damaged and set aside");
                // What was in memory is worth keeping in the new one.
                self.unsaved = self.log.lock().iter().cloned().collect();
                let event = Event::JournalSetAside {
                    file: aside,
                    reason,
                };
                self.take(SystemTime::now(), event);
                if let Err(error) = self.try_save() {
                    self.disk = None;
                    self.put_off(&error.to_string());
                }
            }
            Err(error) => self.put_off(&format!("{reason}, and it cannot be set aside: {error}")),
        }
    }

    fn put_off(&mut self, reason: &str) {
        self.retry_at = Instant::now() + RETRY;
        if !std::mem::replace(&mut self.complained, true) {
            let file = self.file.display();
            tracing::warn!(%file, reason, "events are kept in memory: the journal cannot be written");
        }
    }
}
