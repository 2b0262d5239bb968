//! What happened: links and tunnels that came and went, failovers, sites that joined.
//!
//! Whoever sees something notes it ([`Journal::note`]), which never waits: a thread of its own, the
//! keeper, gives it a number and a sentence, keeps the newest in memory for those who ask, and
//! writes them to a file ([`disk`]). Asking never touches the disk. If there is no room or no disk,
//! the journal goes on in memory and says so.

mod disk;
mod keeper;
mod turnover;

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError},
    },
    time::{Duration, Instant, SystemTime},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use self::keeper::Keeper;
use crate::date;
pub use crate::event::{CapState, Direction, Event, Trouble};

/// What `schema` says of a list of events.
pub const SCHEMA: &str = "sennit.events/1";
/// Events that are kept: months of a quiet link, a day of one that flaps each minute.
pub const KEPT: usize = 5000;

/// One event with its number and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Greater than that of every event before it.
    pub id: u64,
    /// When it was, in RFC 3339.
    pub time: String,
    /// What happened, in words.
    pub text: String,
    #[serde(flatten)]
    pub event: Event,
    #[serde(skip)]
    millis: u64,
}

/// A list of events, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// `sennit.events/1`.
    pub schema: String,
    pub events: Vec<Record>,
}

/// How often each kind of event happened since the daemon started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    counts: BTreeMap<String, u64>,
    last_gap: Option<f64>,
}

impl Tally {
    /// All kinds with their numbers, also those of which there was none: what counts up from
    /// nothing at all has not grown for who looks twice.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let kinds = Event::KINDS.into_iter();
        kinds.map(|kind| (kind, self.counts.get(kind).copied().unwrap_or(0)))
    }

    /// The gap of the last failover, in seconds.
    pub fn last_gap(&self) -> Option<f64> {
        self.last_gap
    }

    fn count(&mut self, event: &Event) {
        *self.counts.entry(event.kind()).or_default() += 1;
        if let Event::Failover { gap_seconds, .. } = event {
            self.last_gap = Some(*gap_seconds);
        }
    }
}

/// Which events somebody wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// Only those after the one with this number.
    pub after: Option<u64>,
    /// Only those of the last so many seconds.
    pub since_seconds: Option<u64>,
    /// Only the newest of them.
    pub limit: Option<usize>,
    /// If there is none, wait for one for so long.
    pub wait_seconds: Option<u64>,
}

/// The longest that anybody waits for an event at once; then it asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// A way to note events and to read them.
#[derive(Clone, Debug)]
pub struct Journal {
    notes: SyncSender<keeper::Note>,
    lost: Arc<AtomicU64>,
    log: Arc<Log>,
}

/// The newest events.
#[derive(Debug)]
struct Log {
    records: Mutex<VecDeque<Arc<Record>>>,
    tally: Mutex<Tally>,
    grown: Condvar,
    newest: watch::Sender<u64>,
}

impl Journal {
    /// Notes that this happened now. It never waits; what there is no room for is counted.
    pub fn note(&self, event: Event) {
        let note = keeper::Note::Event(SystemTime::now(), event);
        if let Err(TrySendError::Full(_)) = self.notes.try_send(note) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The events that somebody wants, the oldest first.
    pub fn read(&self, wanted: &Wanted) -> Events {
        let wait = Duration::from_secs(wanted.wait_seconds.unwrap_or(0));
        let deadline = Instant::now() + wait.min(LONGEST_WAIT);
        let mut records = self.log.lock();
        loop {
            let found = wanted.choose(&records, SystemTime::now());
            let left = deadline.saturating_duration_since(Instant::now());
            if !found.is_empty() || left.is_zero() {
                return Events {
                    schema: SCHEMA.into(),
                    events: found,
                };
            }
            let woken = self.log.grown.wait_timeout(records, left);
            records = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How often each kind of event happened since the daemon started.
    pub fn tally(&self) -> Tally {
        let tally = self.log.tally.lock();
        tally.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of the newest event, as it grows.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.log.newest.subscribe()
    }
}

impl Wanted {
    fn choose(&self, records: &VecDeque<Arc<Record>>, now: SystemTime) -> Vec<Record> {
        let earliest = self.since_seconds.map_or(0, |seconds| {
            now.checked_sub(Duration::from_secs(seconds))
                .map_or(0, millis)
        });
        let after = self.after.unwrap_or(0);
        let wanted = |record: &&Arc<Record>| record.id > after && record.millis >= earliest;
        let limit = self.limit.unwrap_or(KEPT);
        let newest = records.iter().rev().filter(wanted).take(limit);
        let mut found: Vec<Record> = newest.map(|record| record.as_ref().clone()).collect();
        found.reverse();
        found
    }
}

impl Log {
    fn new(records: Vec<Record>) -> Self {
        let newest = records.last().map_or(0, |record| record.id);
        Self {
            records: Mutex::new(records.into_iter().map(Arc::new).collect()),
            tally: Mutex::default(),
            grown: Condvar::new(),
            newest: watch::Sender::new(newest),
        }
    }

    /// Gives an event its number.
    fn add(&self, at: SystemTime, event: Event) -> Arc<Record> {
        let tally = self.tally.lock();
        tally.unwrap_or_else(PoisonError::into_inner).count(&event);
        let mut records = self.lock();
        let before = records.back().map_or(0, |record| record.id);
        // Numbers grow although the file was lost, or the clock was set back.
        let record = Arc::new(Record::new(
            millis(at).max(before.saturating_add(1)),
            at,
            event,
        ));
        records.push_back(Arc::clone(&record));
        if records.len() > KEPT {
            records.pop_front();
        }
        drop(records);
        self.grown.notify_all();
        self.newest.send_replace(record.id);
        record
    }

    /// Puts what was read from the file before what has happened since.
    fn prepend(&self, older: Vec<Record>) {
        let mut records = self.lock();
        for record in older.into_iter().rev() {
            if records.len() >= KEPT {
                break;
            }
            records.push_front(Arc::new(record));
        }
        let newest = records.back().map_or(0, |record| record.id);
        self.newest.send_if_modified(|known| {
            let grown = newest > *known;
            *known = newest.max(*known);
            grown
        });
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Record>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn new(id: u64, at: SystemTime, event: Event) -> Self {
        Self {
            id,
            time: date::millis(at),
            text: event.to_string(),
            millis: millis(at),
            event,
        }
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// What a daemon that does not run any more has left in its file, the newest of it.
pub fn read_file(path: &Path, wanted: &Wanted) -> Result<Events, String> {
    let records = disk::read(path).map_err(|error| error.to_string())?;
    let records = records.into_iter().map(Arc::new).collect();
    Ok(Events {
        schema: SCHEMA.into(),
        events: wanted.choose(&records, SystemTime::now()),
    })
}
