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
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use zeroize::Zeroizing;

use self::{
    message::Target,
    outbox::{Entry, Outbox},
    send::{Sender, Unsent},
};
use crate::{
    config::{NamedFile, Notify, Print},
    journal::{Journal, Wanted},
    sqlite::{self, SqliteError},
};

/// Seconds between two looks into the outbox, if nothing happens.
const LOOK_EVERY: u64 = 1;
/// After so many attempts, about a day, an entry is given up.
const MOST_TRIES: u32 = 20;
/// After so many attempts it is looked whether it is this event that is not taken.
const DOUBTFUL: u32 = 3;
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
    #[error("{} holds no token: it is one line without spaces", path.display())]
    BadToken { path: PathBuf },
    #[error("{} holds a secret, and others may read it: chmod 600", path.display())]
    Open { path: PathBuf },
    #[error("cannot start telling of events: {0}")]
    Thread(io::Error),
}

/// A secret that only root may read, and what tells it from another.
fn read_secret(path: &Path) -> Result<(Zeroizing<String>, Print), NotifyError> {
    let error = |source| NotifyError::File {
        path: path.into(),
        source,
    };
    let file = NamedFile::read(path).map_err(error)?;
    if file.is_open() {
        return Err(NotifyError::Open { path: path.into() });
    }
    let text = file.text().map_err(error)?.trim().to_owned();
    Ok((Zeroizing::new(text), file.print()))
}

/// What is wrong with the files that the config names, as [`Targets::load`] would say it.
pub fn look_at_files(config: &[Notify]) -> Vec<NotifyError> {
    let targets = config.iter().map(Target::load);
    targets.filter_map(Result::err).collect()
}

/// Who is told, with the secrets for that. They are in files that may be root's alone, and so are
/// read before a daemon gives root up, and again at each reload.
pub struct Targets {
    /// All of the config: what is for one that cannot be told waits in the outbox until it can.
    wanted: Vec<Notify>,
    told: Vec<Target>,
}

impl Targets {
    /// Reads the secrets. Whose secret is missing, open to others or no key is not told for now,
    /// and named with the reason.
    pub fn load(config: &[Notify]) -> (Self, Vec<(String, NotifyError)>) {
        let (mut told, mut left_out) = (Vec::new(), Vec::new());
        for notify in config {
            match Target::load(notify) {
                Ok(target) => told.push(target),
                Err(error) => left_out.push((notify.name.clone(), error)),
            }
        }
        let wanted = config.to_vec();
        (Self { wanted, told }, left_out)
    }

    /// Of the files with the secrets.
    pub(crate) fn prints(&self) -> Vec<Print> {
        let prints = self.told.iter();
        prints.filter_map(|target| target.print.clone()).collect()
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
    /// `path`; whom `changes` names once others are to be told. The thread sleeps while that is
    /// nobody since the start.
    pub fn start(
        targets: Targets,
        changes: Receiver<Targets>,
        path: &Path,
        journal: Journal,
    ) -> Result<Self, NotifyError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, path) = (Arc::clone(&stop), PathBuf::from(path));
        let thread = thread::Builder::new().name("notify".into());
        let thread = thread.spawn(move || {
            sennit_linux::confine::keep_files_only();
            let Some(targets) = somebody(targets, &changes) else {
                return;
            };
            match Work::new(targets, &path, journal) {
                Ok(work) => work.run(&changes, &stopped),
                Err(error) => tracing::error!(%error, "nobody is told of events"),
            }
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

/// Waits until there is somebody to tell; nothing if nobody can come any more.
fn somebody(mut targets: Targets, changes: &Receiver<Targets>) -> Option<Targets> {
    while targets.wanted.is_empty() {
        targets = changes.recv().ok()?;
    }
    Some(targets)
}

struct Work {
    targets: Targets,
    path: PathBuf,
    journal: Journal,
    sender: Sender,
    outbox: Option<Outbox>,
    /// Whether the log was told that there is no outbox.
    complained: bool,
}

impl Work {
    fn new(targets: Targets, path: &Path, journal: Journal) -> io::Result<Self> {
        Ok(Self {
            targets,
            path: path.into(),
            journal,
            sender: Sender::new()?,
            outbox: None,
            complained: false,
        })
    }

    fn run(mut self, changes: &Receiver<Targets>, stopped: &AtomicBool) {
        let mut seen = None;
        while !stopped.load(Ordering::Acquire) {
            if let Some(targets) = changes.try_iter().last() {
                self.targets = targets;
                // It is opened for those that are told from now on.
                self.outbox = None;
            }
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
                outbox.keep(&self.targets.wanted)?;
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
        outbox.take(&records, &self.targets.wanted, Some(last))?;
        // Not before: what could not be taken is read again.
        *seen = Some(last);
        self.complained = false;
        let now = SystemTime::now();
        let mut told = self.targets.told.iter();
        told.try_for_each(|target| deliver(outbox, target, &self.sender, stopped, now))
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
    now: SystemTime,
) -> Result<(), SqliteError> {
    let name = &target.name;
    // One that was not taken several times, and is given up if the next one is.
    let mut doubtful: Option<(Entry, Unsent)> = None;
    for entry in outbox.due(name, now)? {
        if stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let request = target.request(&entry.record, now);
        match sender.send(request) {
            Ok(()) => {
                if let Some((bad, error)) = doubtful.take() {
                    give_up(outbox, &bad, &error)?;
                }
                outbox.remove(&entry)?;
                outbox.hurry(name)?;
            }
            Err(error @ Unsent::Refused(_)) => give_up(outbox, &entry, &error)?,
            Err(error @ Unsent::NotTaken(_)) if doubtful.is_none() && entry.tries >= DOUBTFUL => {
                doubtful = Some((entry, error));
            }
            Err(error) => return put_off(outbox, &entry, &error, now),
        }
    }
    match doubtful {
        Some((entry, error)) => put_off(outbox, &entry, &error, now),
        None => Ok(()),
    }
}

/// This one will never be taken, and holds up no other.
fn give_up(outbox: &mut Outbox, entry: &Entry, error: &Unsent) -> Result<(), SqliteError> {
    let target = &entry.target;
    tracing::warn!(target, %error, "an event was refused, and is not told");
    outbox.remove(entry)
}

/// All that waits for a target waits for longer.
fn put_off(
    outbox: &mut Outbox,
    entry: &Entry,
    error: &Unsent,
    now: SystemTime,
) -> Result<(), SqliteError> {
    let (target, tries) = (&entry.target, entry.tries + 1);
    tracing::debug!(target, tries, %error, "an event is told again later");
    let given_up = outbox.put_off(target, now)?;
    if given_up > 0 {
        tracing::warn!(target, given_up, %error, "events were not told for a day");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        net::TcpListener,
        sync::mpsc,
        time::Instant,
    };

    use super::*;
    use crate::{config::NotifyKind, event::Event, journal::Keeper};

    /// Says of each event whether it is taken: the first one never is. Gives the numbers of the
    /// others.
    fn start_server() -> (String, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has one");
        let (told, taken) = mpsc::channel();
        thread::spawn(move || {
            let mut refused: Option<String> = None;
            for mut stream in listener.incoming().flatten() {
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let mut head = lines.take_while(|line| !line.is_empty());
                let id = head.find(|line| line.starts_with("x-event-id"));
                head.for_each(drop);
                let id = id.expect("each request has one");
                let status = match refused.get_or_insert_with(|| id.clone()) == &id {
                    true => "500 Internal Server Error",
                    false => "204 No Content",
                };
                let reply =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(reply.as_bytes());
                if status.starts_with("204") && told.send(id).is_err() {
                    return;
                }
            }
        });
        (format!("http://{address}/topic"), taken)
    }

    fn ops(url: String, secret: Option<PathBuf>) -> Notify {
        Notify {
            name: "ops".into(),
            kind: NotifyKind::Ntfy,
            url,
            secret,
            events: vec!["reload_reverted".into()],
        }
    }

    #[test]
    fn what_is_for_a_target_without_its_secret_stands_in_the_outbox_until_it_can_be_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let [path, journal] = ["outbox.db", "journal.db"].map(|name| dir.path().join(name));
        let keeper = Keeper::start(&journal).expect("a journal");
        let config = [ops(
            "https://ntfy.sh/topic".into(),
            Some(dir.path().join("gone")),
        )];
        let begun = Instant::now();
        let mut counts = Vec::new();
        // Two starts of a daemon.
        for expected in 1..=2 {
            let (targets, left_out) = Targets::load(&config);
            assert_eq!(left_out.len(), 1);
            let work = Work::new(targets, &path, keeper.journal().clone());
            let mut work = work.expect("TLS");
            let (mut seen, stopped) = (None, AtomicBool::new(false));
            work.turn(&mut seen, &stopped).expect("it is written");
            keeper.journal().note(Event::ReloadReverted);
            let mut count = 0;
            while count < expected && begun.elapsed() < Duration::from_secs(20) {
                work.turn(&mut seen, &stopped).expect("it is written");
                let outbox = work.outbox.as_ref().expect("it is open");
                count = outbox
                    .due("ops", SystemTime::now())
                    .expect("it is read")
                    .len();
            }
            counts.push(count);
        }
        assert_eq!(counts, [1, 2]);
    }

    #[test]
    fn an_event_that_is_never_taken_holds_up_the_others_for_a_minute_at_most() {
        let dir = tempfile::tempdir().expect("a directory");
        let keeper = Keeper::start(&dir.path().join("journal.db")).expect("a journal");
        for _ in 0..3 {
            keeper.journal().note(Event::ReloadReverted);
        }
        let mut records = Vec::new();
        while records.len() < 3 {
            let wanted = Wanted {
                wait_seconds: Some(20),
                ..Wanted::default()
            };
            records = keeper.journal().read(&wanted).events;
        }
        let (url, taken) = start_server();
        let wanted = [ops(url, None)];
        let target = Target::load(&wanted[0]).expect("it has no secret");
        let mut outbox = Outbox::open(&dir.path().join("outbox.db")).expect("an outbox");
        outbox.take(&records, &wanted, None).expect("it is written");
        let (sender, stopped) = (Sender::new().expect("TLS"), AtomicBool::new(false));

        let begun = SystemTime::now();
        for seconds in 0..60 {
            let now = begun + Duration::from_secs(seconds);
            deliver(&mut outbox, &target, &sender, &stopped, now).expect("it is written");
        }

        let told: Vec<String> = taken.try_iter().collect();
        let ids: Vec<String> = records[1..]
            .iter()
            .map(|it| format!("x-event-id: {}", it.id))
            .collect();
        assert_eq!(told, ids);
        assert!(
            outbox
                .due("ops", begun + LONGEST_PAUSE)
                .expect("it is read")
                .is_empty()
        );
    }
}
