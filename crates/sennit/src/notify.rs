//! Telling others of events: by Standard Webhooks 1.0, ntfy or an Alertmanager.
//!
//! What is to be told stands in an outbox ([`outbox`]) before it is tried, and leaves it when the
//! other side has said that it has it, or after a day. So nothing is lost when either side
//! restarts, and what was told twice bears the same id. A thread of its own sends; packets never
//! wait for it.

mod message;
mod outbox;
mod send;

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use self::{
    message::Target,
    outbox::Outbox,
    send::{Sender, Unsent},
};
use crate::{
    config::{Notify, read_regular_text},
    journal::{Journal, Wanted},
    sqlite::{self, SqliteError},
};

/// Seconds between two looks into the outbox, if nothing happens.
const LOOK_EVERY: u64 = 1;
/// After so many attempts, about a day, an entry is given up.
const MOST_TRIES: u32 = 20;
/// After the first failure; each later one takes twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 3600);

/// Why nobody can be told.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} holds no key: it is `whsec_` and 24 to 64 bytes in base64", path.display())]
    BadKey { path: PathBuf },
    #[error("{} holds a secret, and others may read it: chmod 600", path.display())]
    Open { path: PathBuf },
    #[error("cannot start telling of events: {0}")]
    Thread(io::Error),
}

/// A secret that only root may read.
fn read_secret(path: &Path) -> Result<String, NotifyError> {
    let file = |source| NotifyError::File {
        path: path.into(),
        source,
    };
    if fs::metadata(path).map_err(file)?.mode() & 0o077 != 0 {
        return Err(NotifyError::Open { path: path.into() });
    }
    Ok(read_regular_text(path).map_err(file)?.trim().to_owned())
}

/// What is wrong with the files that the config names, as [`Targets::load`] would say it.
pub fn look_at_files(config: &[Notify]) -> Vec<NotifyError> {
    let targets = config.iter().map(Target::load);
    targets.filter_map(Result::err).collect()
}

/// Who is told, with the secrets for that. They are in files that may be root's alone, and so are
/// read before a daemon gives root up.
pub struct Targets(Vec<Target>);

impl Targets {
    /// Reads the secrets.
    ///
    /// # Errors
    /// If one is missing, open to others, or no key.
    pub fn load(config: &[Notify]) -> Result<Self, NotifyError> {
        let targets = config.iter().map(Target::load);
        Ok(Self(targets.collect::<Result<_, _>>()?))
    }
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Notifier {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Tells `targets` of what the journal gets from now on, and of what is left in the outbox at
    /// `path`. Nothing to do is no thread.
    pub fn start(
        Targets(targets): Targets,
        path: &Path,
        journal: Journal,
    ) -> Result<Self, NotifyError> {
        let stop = Arc::new(AtomicBool::new(false));
        if targets.is_empty() {
            return Ok(Self { stop, thread: None });
        }
        let work = Work {
            targets,
            path: path.into(),
            journal,
            sender: Sender::new().map_err(NotifyError::Thread)?,
            outbox: None,
            complained: false,
        };
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("notify".into());
        let thread = thread.spawn(move || {
            sennit_linux::confine::keep_files_only();
            work.run(&stopped);
        });
        Ok(Self {
            stop,
            thread: Some(thread.map_err(NotifyError::Thread)?),
        })
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // It may be in the middle of a request, which the other side will see again.
        drop(self.thread.take());
    }
}

struct Work {
    targets: Vec<Target>,
    path: PathBuf,
    journal: Journal,
    sender: Sender,
    outbox: Option<Outbox>,
    /// Whether the log was told that there is no outbox.
    complained: bool,
}

impl Work {
    fn run(mut self, stopped: &AtomicBool) {
        let mut seen = None;
        while !stopped.load(Ordering::Acquire) {
            let result = self.turn(&mut seen, stopped);
            if let Err(error) = result {
                self.outbox = None;
                self.handle(&error);
                thread::sleep(Duration::from_secs(LOOK_EVERY));
            }
        }
    }

    /// Takes what is new into the outbox, and sends what is due.
    fn turn(&mut self, seen: &mut Option<u64>, stopped: &AtomicBool) -> Result<(), SqliteError> {
        let newest = self.newest(SystemTime::now());
        let outbox = match &mut self.outbox {
            Some(outbox) => outbox,
            none => {
                let outbox = none.insert(Outbox::open(&self.path)?);
                outbox.keep(&self.targets)?;
                outbox
            }
        };
        let after = match *seen {
            Some(after) => after,
            None => match outbox.cursor()? {
                Some(cursor) => cursor,
                None => outbox.begin(newest)?,
            },
        };
        let wanted = Wanted {
            after: Some(after),
            wait_seconds: Some(LOOK_EVERY),
            ..Wanted::default()
        };
        let records = self.journal.read(&wanted).events;
        let last = records.last().map_or(after, |last| last.id);
        outbox.take(&records, &self.targets, Some(last))?;
        // Not before: what could not be taken is read again.
        *seen = Some(last);
        self.complained = false;
        self.targets
            .iter()
            .try_for_each(|target| deliver(outbox, target, &self.sender, stopped))
    }

    /// Where an outbox that has none begins. Numbers of events are the milliseconds of their times.
    fn newest(&self, now: SystemTime) -> u64 {
        let newest = *self.journal.newest().borrow();
        newest.max(outbox::millis(now) as u64)
    }

    fn handle(&mut self, error: &SqliteError) {
        let file = self.path.display();
        if let SqliteError::Damaged(reason) = error
            && let Ok(aside) = sqlite::set_aside(&self.path)
        {
            let aside = aside.display();
            tracing::error!(%file, reason, %aside, "the outbox is damaged and set aside");
        } else if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!(%file, %error, "nobody is told of events: the outbox cannot be written");
        }
    }
}

/// Tells a target what is due, up to the first that it does not take.
fn deliver(
    outbox: &mut Outbox,
    target: &Target,
    sender: &Sender,
    stopped: &AtomicBool,
) -> Result<(), SqliteError> {
    let name = &target.name;
    for entry in outbox.due(name, SystemTime::now())? {
        if stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let request = target.request(&entry.record, SystemTime::now());
        match sender.send(request) {
            Ok(()) => {
                outbox.remove(&entry)?;
                outbox.hurry(name)?;
            }
            Err(error @ Unsent::Refused(_)) => {
                tracing::warn!(target = name, %error, "an event was refused, and is not told");
                outbox.remove(&entry)?;
            }
            Err(error @ Unsent::Away(_)) => {
                let tries = entry.tries + 1;
                tracing::debug!(target = name, tries, %error, "an event is told again later");
                let given_up = outbox.put_off(name, SystemTime::now())?;
                if given_up > 0 {
                    tracing::warn!(target = name, given_up, %error, "events were not told for a day");
                }
                return Ok(());
            }
        }
    }
    Ok(())
}
