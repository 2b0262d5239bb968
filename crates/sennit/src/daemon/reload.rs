//! Another config without a cut.
//!
//! The file is read, checked and compared on a thread that carries no packets; what is made of it
//! is handed on as a whole, or not at all. A file with errors changes nothing.

mod answer;
mod edit;
mod file;
#[cfg(test)]
pub(super) mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use self::{
    answer::{go_on_waiting, refusal, refused},
    edit::Trial,
};
use super::{
    mailbox::Slot,
    secrets::{Fresh, Secrets},
};
use crate::{
    config::{
        self, ApiConfig, Change, ConfigError, Entry, HostFinding, Loaded, Notify, Report, Severity,
    },
    control::{Refused, ReloadAnswer, Response},
    exit::Failure,
    journal::{Event, Journal},
    status::ConfigStatus,
};

/// A worker reads its letters within one turn of its loop.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a daemon runs with.
pub(super) trait Runs: Sized + Send + Sync + 'static {
    type Config;

    /// A file of this kind, by its name for people.
    fn parse(file: &str, source: &[u8]) -> Result<Loaded<Self::Config>, Report>;

    /// What does not fit this host.
    fn look_at_host(config: &Self::Config) -> Vec<HostFinding>;

    /// How to go on with another config, of which these are the keys.
    fn plan(&self, wanted: &Self::Config, entries: &[Entry]) -> Planned<Self>;

    /// What names files that are read again at each reload.
    fn named(config: &Self::Config) -> (&ApiConfig, &[Notify]);

    /// The config and its keys.
    fn parts(&self) -> (&Self::Config, &[Entry]);
}

/// A config with its keys, and what was warned of, in words.
type Parsed<R> = (<R as Runs>::Config, Vec<Entry>, String);

/// What a reload comes to.
#[derive(Debug)]
pub(super) struct Planned<R> {
    pub(super) next: R,
    /// What takes effect at once.
    pub(super) changes: Vec<Change>,
    /// What takes effect when the daemon is started again.
    pub(super) needs_restart: Vec<Change>,
}

/// Has the daemon go on with something else. It fails before anything has changed.
type Apply<R> = Box<dyn Fn(&Arc<R>) -> Result<Applied, Failure> + Send + Sync>;

/// Whether all that carries packets has changed over, or will in a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    Whole,
    Soon,
}

/// Who has to say that it has done what a letter says.
pub(super) type Done = Sender<()>;

/// Posts a letter to each worker, and waits until all have done what it says. The first has it
/// last: what that tells the others because of it, they read after it.
pub(super) fn tell_all<T>(
    workers: &[Slot<T>],
    mut letter: impl FnMut(usize, Done) -> T,
) -> Applied {
    let (done, all_done) = mpsc::channel();
    let letters = (0..workers.len()).map(|number| letter(number, done.clone()));
    let letters: Vec<T> = letters.collect();
    for (slot, letter) in workers.iter().zip(letters).rev() {
        slot.post(letter);
    }
    drop(done);
    let deadline = Instant::now() + PATIENCE;
    let left = || deadline.saturating_duration_since(Instant::now());
    if workers
        .iter()
        .all(|_| all_done.recv_timeout(left()).is_ok())
    {
        Applied::Whole
    } else {
        Applied::Soon
    }
}

/// The new entries, but for those that wait for a restart: of them the old ones, so that what waits
/// is still a change at the next reload.
pub(super) fn with_old(new: &[Entry], old: &[Entry], waiting: &[Change]) -> Vec<Entry> {
    let waits = |entry: &Entry| {
        waiting.iter().any(|change| {
            let (section, name, key) = &change.place;
            *section == entry.section
                && *name == entry.name
                && key.is_none_or(|key| key == entry.key)
        })
    };
    let taken = new.iter().filter(|entry| !waits(entry));
    let kept = old.iter().filter(|entry| waits(entry));
    taken.chain(kept).cloned().collect()
}

/// A change for people if those that are in both lists stand in another order.
pub(super) fn order_differs(what: &str, before: &[String], after: &[String]) -> Option<Change> {
    let of_both = |names: &[String], other: &[String]| -> Vec<String> {
        let both = names.iter().filter(|name| other.contains(name));
        both.cloned().collect()
    };
    (of_both(before, after) != of_both(after, before)).then(|| Change {
        what: what.into(),
        before: None,
        after: None,
        place: ("[[class]]", None, None),
    })
}

/// The keys of a daemon's file when it starts.
pub(super) fn read_entries(file: &Path) -> Result<Vec<Entry>, Failure> {
    let source = config::read_file(file).map_err(Failure::runtime)?;
    Ok(config::effective(&String::from_utf8_lossy(&source)))
}

/// Knows the config that runs, and where to read another.
pub(super) struct Reloader<R> {
    file: PathBuf,
    apply: Apply<R>,
    journal: Journal,
    secrets: Arc<Secrets>,
    state: Mutex<State<R>>,
}

struct State<R> {
    running: Arc<R>,
    /// The last that nobody has to confirm any more.
    confirmed: Arc<R>,
    /// Counts reloads, so that who waits for one to be confirmed sees that there was another.
    turn: u64,
    pending: bool,
    /// When it is taken back, if it is pending.
    reverts_at: Option<Instant>,
    /// The text that runs, if it is not in the file yet.
    trial: Option<Trial>,
    /// When a config was taken last.
    taken_at: Instant,
    /// What was read last is what runs.
    successful: bool,
}

impl<R> State<R> {
    /// How long until the change is taken back that waits to be confirmed, if one does.
    fn left(&self) -> Option<Duration> {
        let at = self.reverts_at.filter(|_| self.pending)?;
        Some(at.saturating_duration_since(Instant::now()))
    }
}

impl<R> fmt::Debug for Reloader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        f.debug_struct("Reloader").field("file", file).finish()
    }
}

impl<R: Runs> Reloader<R> {
    pub(super) fn new(
        file: PathBuf,
        running: &Arc<R>,
        journal: Journal,
        secrets: Arc<Secrets>,
        apply: impl Fn(&Arc<R>) -> Result<Applied, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            file,
            apply: Box::new(apply),
            journal,
            secrets,
            state: Mutex::new(State {
                running: Arc::clone(running),
                confirmed: Arc::clone(running),
                turn: 0,
                pending: false,
                reverts_at: None,
                trial: None,
                taken_at: Instant::now(),
                successful: true,
            }),
        }
    }

    pub(super) fn running(&self) -> Arc<R> {
        Arc::clone(&self.lock().running)
    }

    /// How the last reload went.
    pub(super) fn status(&self) -> ConfigStatus {
        let state = self.lock();
        ConfigStatus {
            since_seconds: state.taken_at.elapsed().as_secs_f64(),
            last_reload_successful: state.successful,
        }
    }

    /// What an operator should know of files with secrets.
    pub(super) fn notes(&self) -> Vec<String> {
        self.secrets.notes()
    }

    /// SIGHUP. Who sent it hears nothing, so the journal does.
    pub(super) fn hang_up(self: &Arc<Self>) {
        let reason = match self.try_reload(None) {
            Ok(answer) if answer.applied => return,
            Ok(answer) => {
                let report = answer.report;
                tracing::error!("the config has errors, and nothing was changed:\n{report}");
                let first = report.lines().find(|line| !line.trim().is_empty());
                first.unwrap_or("the config has errors").to_owned()
            }
            Err(refused) => {
                tracing::error!("nothing was changed: {refused}");
                refused.to_string()
            }
        };
        self.journal.note(Event::ReloadRefused { reason });
    }

    /// Reads the file and goes on with what it says; if that is not confirmed in time, with what
    /// was before. A change that waits to be confirmed gives way only to one that has to be too.
    pub(super) fn reload(self: &Arc<Self>, confirm_seconds: Option<u32>) -> Response {
        let confirm = confirm_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Response::result(self.try_reload(confirm))
    }

    fn try_reload(self: &Arc<Self>, confirm: Option<Duration>) -> Result<ReloadAnswer, Refused> {
        // Who has the lock first has read first: none goes back to an older file.
        let mut state = self.lock();
        let outcome = self.read_and_go_over(&mut state, confirm);
        state.successful = outcome.as_ref().is_ok_and(|answer| answer.applied);
        outcome
    }

    fn read_and_go_over(
        self: &Arc<Self>,
        state: &mut State<R>,
        confirm: Option<Duration>,
    ) -> Result<ReloadAnswer, Refused> {
        let parsed = match self.read(&state.running) {
            Ok(parsed) => parsed,
            Err(answer) => return Ok(*answer),
        };
        if let Some(left) = state.left().filter(|_| confirm.is_none()) {
            let planned = state.running.plan(&parsed.0, &parsed.1);
            let mut answer = go_on_waiting(planned, parsed.2, left)?;
            match self.read_secrets(&state.running) {
                Ok(fresh) => answer.reread = self.secrets.take(fresh),
                Err(answer) => return Ok(*answer),
            }
            return Ok(answer);
        }
        // Where nothing changes there is nothing to confirm, unless something waits for that.
        let same = || state.running.plan(&parsed.0, &parsed.1).changes.is_empty();
        let confirm = confirm.filter(|_| state.pending || !same());
        let answer = self.go_over(state, parsed, confirm);
        if answer.applied && confirm.is_none() {
            state.confirmed = Arc::clone(&state.running);
        }
        Ok(answer)
    }

    /// Goes on with a config; if that is not confirmed in time, with what was before.
    fn go_over(
        self: &Arc<Self>,
        state: &mut State<R>,
        (config, entries, warnings): Parsed<R>,
        confirm: Option<Duration>,
    ) -> ReloadAnswer {
        let Planned {
            next,
            changes,
            needs_restart,
        } = state.running.plan(&config, &entries);
        tracing::info!(
            changes = changes.len(),
            needs_restart = needs_restart.len(),
            "reload"
        );
        // What can fail comes first.
        let fresh = match self.read_secrets(&next) {
            Ok(fresh) => fresh,
            Err(answer) => return *answer,
        };
        let applied = match self.apply(state, next) {
            Ok(applied) => applied,
            Err(error) => return *refusal(error.to_string()),
        };
        let reread = self.secrets.take(fresh);
        let changed = changes.iter().map(|change| change.what.clone());
        let renewed = reread.iter().map(|file| format!("{file} was read anew"));
        self.journal.note(Event::Reloaded {
            changed: changed.chain(renewed).collect(),
        });
        (state.taken_at, state.successful) = (Instant::now(), true);
        state.turn += 1;
        state.pending = confirm.is_some();
        state.reverts_at = confirm.map(|span| Instant::now() + span);
        state.trial = None;
        if let Some(span) = confirm {
            self.revert_after(span, state.turn);
        }
        let busy = "the daemon is busy: it will have changed over in a moment".to_owned();
        ReloadAnswer {
            schema: ReloadAnswer::SCHEMA.into(),
            applied: true,
            changes,
            needs_restart,
            reread,
            reverts_in_seconds: confirm.map(|span| span.as_secs_f64()),
            report: warnings,
            notes: (applied == Applied::Soon)
                .then_some(busy)
                .into_iter()
                .collect(),
            ..ReloadAnswer::default()
        }
    }

    /// Goes on with something that no file says.
    pub(super) fn amend(
        &self,
        amend: impl FnOnce(&R) -> Result<R, Refused>,
    ) -> Result<Arc<R>, Refused> {
        let mut state = self.lock();
        let next = amend(&state.running)?;
        let applied = self.apply(&mut state, next);
        applied.map_err(|error| Refused::new("failed", error.to_string()))?;
        if !state.pending {
            state.confirmed = Arc::clone(&state.running);
        }
        Ok(Arc::clone(&state.running))
    }

    /// What was changed last stays.
    pub(super) fn keep(&self) -> Response {
        let mut state = self.lock();
        if !state.pending {
            return Response::refused("nothing_to_keep", "no reload waits to be confirmed");
        }
        if let Err(refused) = self.save_trial(&mut state) {
            return Response::Refused(refused);
        }
        state.pending = false;
        state.turn += 1;
        state.confirmed = Arc::clone(&state.running);
        Response::done()
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        // A panic elsewhere leaves a whole state: it is replaced and not changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, or the answer that it cannot be taken in place of what runs.
    fn read(&self, running: &R) -> Result<Parsed<R>, Box<ReloadAnswer>> {
        let source = file::read(&self.file).map_err(|source| {
            let path = self.file.clone();
            refusal(ConfigError::Read { path, source }.to_string())
        })?;
        self.parse(&source, running)
    }

    /// A text of the file, or the answer that it cannot be taken in place of what runs.
    fn parse(&self, source: &[u8], running: &R) -> Result<Parsed<R>, Box<ReloadAnswer>> {
        let file = self.file.display().to_string();
        let loaded = R::parse(&file, source).map_err(|report| refused(&report))?;
        let mut host = R::look_at_host(&loaded.config);
        host.retain(HostFinding::is_error);
        excuse(&mut host, running);
        let said: Vec<String> = host.iter().map(ToString::to_string).collect();
        if host.iter().any(HostFinding::is_error) {
            return Err(refusal(said.join("\n\n")));
        }
        let entries = config::effective(&String::from_utf8_lossy(source));
        let of_file = (!loaded.warnings.is_empty()).then(|| loaded.warnings.to_string());
        let warnings: Vec<String> = of_file.into_iter().chain(said).collect();
        Ok((loaded.config, entries, warnings.join("\n\n")))
    }

    /// Reads the files with secrets again, or makes the answer that one cannot be read.
    fn read_secrets(&self, next: &R) -> Result<Fresh, Box<ReloadAnswer>> {
        let (api, notify) = R::named(next.parts().0);
        self.secrets.read(api, notify).map_err(refusal)
    }

    /// Has the daemon go on with `next`; if it cannot, nothing has changed.
    fn apply(&self, state: &mut State<R>, next: R) -> Result<Applied, Failure> {
        let next = Arc::new(next);
        let applied = (self.apply)(&next)?;
        state.running = next;
        Ok(applied)
    }

    /// Goes back unless there is a word for it, or another reload.
    fn revert_after(self: &Arc<Self>, span: Duration, turn: u64) {
        let reloader: Weak<Self> = Arc::downgrade(self);
        let thread = thread::Builder::new().name("revert".into());
        let spawned = thread.spawn(move || {
            sennit_linux::confine::keep_files_only();
            thread::sleep(span);
            if let Some(reloader) = reloader.upgrade() {
                reloader.revert(turn);
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "nobody will take the reload back by himself");
        }
    }

    fn revert(&self, turn: u64) {
        let mut state = self.lock();
        if state.turn == turn && state.pending {
            self.take_back(&mut state);
        }
    }

    /// Nobody wants what was changed last.
    fn take_back(&self, state: &mut State<R>) {
        tracing::warn!("the change of the config is taken back");
        self.journal.note(Event::ReloadReverted);
        self.go_back(state);
    }

    fn go_back(&self, state: &mut State<R>) {
        (state.pending, state.successful) = (false, false);
        state.trial = None;
        let confirmed = Arc::clone(&state.confirmed);
        // Links and classes that the reload took away come back in the places that they have now.
        let (config, entries) = confirmed.parts();
        let planned = state.running.plan(config, entries);
        match self.apply(state, planned.next) {
            Ok(_) => {
                state.confirmed = Arc::clone(&state.running);
                match self.read_secrets(&state.confirmed) {
                    Ok(fresh) => _ = self.secrets.take(fresh),
                    Err(answer) => tracing::error!("files stay as they were: {}", answer.report),
                }
            }
            Err(error) => tracing::error!(%error, "the config of before cannot be had"),
        }
    }
}

/// Makes warnings of the errors that what runs has too, as when a link has got an address of the
/// LAN meanwhile: without the change they are there all the same.
fn excuse<R: Runs>(found: &mut [HostFinding], running: &R) {
    if found.iter().any(HostFinding::is_error) {
        let known = R::look_at_host(running.parts().0);
        for finding in found.iter_mut().filter(|it| known.contains(it)) {
            finding.severity = Severity::Warning;
        }
    }
}
