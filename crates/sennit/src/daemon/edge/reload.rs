//! Another config without a cut.
//!
//! The file is read, checked and compared on a thread that carries no packets; the workers are told
//! by letter, and do all of it within one turn. A file with errors changes nothing.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    limits,
    machine::Letter,
    running::{Planned, Running},
};
use crate::{
    config::{self, ConfigError, EdgeConfig, Entry, HostFinding, Report, Severity},
    control::{LinkBounds, Refused, ReloadAnswer, Response},
    daemon::mailbox::Slot,
    journal::{Event, Journal},
};

/// A worker reads its letters within one turn of its loop.
const PATIENCE: Duration = Duration::from_secs(5);

/// Knows the config that runs, and where to read another.
pub(super) struct Reloader {
    file: PathBuf,
    workers: Arc<[Slot<Letter>]>,
    journal: Journal,
    state: Mutex<State>,
}

struct State {
    running: Arc<Running>,
    /// The last that nobody has to confirm any more.
    confirmed: Arc<Running>,
    /// Counts reloads, so that who waits for one to be confirmed sees that there was another.
    turn: u64,
    pending: bool,
}

/// Workers that have not done what a letter says yet.
pub(super) type Done = Sender<()>;

impl Reloader {
    pub(super) fn new(
        file: PathBuf,
        running: &Arc<Running>,
        workers: Arc<[Slot<Letter>]>,
        journal: Journal,
    ) -> Self {
        Self {
            file,
            workers,
            journal,
            state: Mutex::new(State {
                running: Arc::clone(running),
                confirmed: Arc::clone(running),
                turn: 0,
                pending: false,
            }),
        }
    }

    pub(super) fn running(&self) -> Arc<Running> {
        Arc::clone(&self.lock().running)
    }

    /// SIGHUP.
    pub(super) fn hang_up(self: &Arc<Self>) {
        let answer = self.try_reload(None);
        if !answer.applied {
            tracing::error!(
                "the config has errors, and nothing was changed:\n{}",
                answer.report
            );
        }
    }

    /// Reads the file and goes on with what it says; if that is not confirmed in time, with what
    /// was before.
    pub(super) fn reload(self: &Arc<Self>, confirm: Option<Duration>) -> Response {
        Response::document(&self.try_reload(confirm))
    }

    fn try_reload(self: &Arc<Self>, confirm: Option<Duration>) -> ReloadAnswer {
        let (config, entries, warnings) = match self.read() {
            Ok(read) => read,
            Err(answer) => return *answer,
        };
        let mut state = self.lock();
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
        let complete = self.apply(&mut state, &Arc::new(next));
        let changed = changes.iter().map(|change| change.what.clone());
        self.journal.note(Event::Reloaded {
            changed: changed.collect(),
        });
        state.turn += 1;
        state.pending = confirm.is_some();
        match confirm {
            Some(span) => self.revert_after(span, state.turn),
            None => state.confirmed = Arc::clone(&state.running),
        }
        let busy = "the daemon is busy: it will have changed over in a moment".to_owned();
        ReloadAnswer {
            schema: ReloadAnswer::SCHEMA.into(),
            applied: true,
            changes,
            needs_restart,
            reverts_in_seconds: confirm.map(|span| span.as_secs_f64()),
            report: warnings,
            notes: (!complete).then_some(busy).into_iter().collect(),
            ..ReloadAnswer::default()
        }
    }

    /// Has a link carry so much at most, until it is said otherwise or the edge ends.
    pub(super) fn limit(&self, link: &str, bounds: LinkBounds) -> Result<(), Refused> {
        let mut state = self.lock();
        let next = state.running.limited(link, bounds)?;
        tracing::info!(link, ?bounds, "the operator has spoken");
        self.journal.note(limits::event(link, &next.limits));
        self.apply(&mut state, &Arc::new(next));
        if !state.pending {
            state.confirmed = Arc::clone(&state.running);
        }
        Ok(())
    }

    /// What was changed last stays.
    pub(super) fn keep(&self) -> Response {
        let mut state = self.lock();
        if !std::mem::take(&mut state.pending) {
            return Response::refused("nothing_to_keep", "no reload waits to be confirmed");
        }
        state.turn += 1;
        state.confirmed = Arc::clone(&state.running);
        Response::done()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves a whole state: it is replaced and not changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file as a config, and what was warned of, in words; or the answer that it cannot be
    /// taken.
    fn read(&self) -> Result<(EdgeConfig, Vec<Entry>, String), Box<ReloadAnswer>> {
        let refuse = |report: String, findings| {
            Box::new(ReloadAnswer {
                schema: ReloadAnswer::SCHEMA.into(),
                applied: false,
                report,
                findings,
                ..ReloadAnswer::default()
            })
        };
        let words = |report: &Report| {
            let located = report.located().map(serde_json::to_value);
            let findings = located.filter_map(Result::ok).collect();
            refuse(report.to_string(), findings)
        };
        let source = config::read_file(&self.file).map_err(|source| ConfigError::Read {
            path: self.file.clone(),
            source,
        });
        let source = source.map_err(|error| refuse(error.to_string(), Vec::new()))?;
        let file = self.file.display().to_string();
        let loaded = EdgeConfig::parse(&file, &source).map_err(|report| words(&report))?;
        let host = config::look_at_host(&loaded.config).into_iter();
        let wrong: Vec<HostFinding> = host
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        if !wrong.is_empty() {
            let report: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            return Err(refuse(report.join("\n\n"), Vec::new()));
        }
        let entries = config::effective(&String::from_utf8_lossy(&source));
        let warnings = if loaded.warnings.is_empty() {
            String::new()
        } else {
            loaded.warnings.to_string()
        };
        Ok((loaded.config, entries, warnings))
    }

    /// Has all workers go on with another config; whether they have all done so by now.
    fn apply(&self, state: &mut State, next: &Arc<Running>) -> bool {
        state.running = Arc::clone(next);
        let (done, all_done) = mpsc::channel();
        for slot in self.workers.iter() {
            slot.post(Letter::Change(Arc::clone(next), done.clone()));
        }
        drop(done);
        let deadline = Instant::now() + PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        (0..self.workers.len()).all(|_| all_done.recv_timeout(left()).is_ok())
    }

    /// Goes back unless there is a word for it, or another reload.
    fn revert_after(self: &Arc<Self>, span: Duration, turn: u64) {
        let reloader: Weak<Self> = Arc::downgrade(self);
        let thread = thread::Builder::new().name("revert".into());
        let spawned = thread.spawn(move || {
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
        if state.turn != turn || !state.pending {
            return;
        }
        tracing::warn!("nobody has confirmed the reload: back to the config of before");
        self.journal.note(Event::ReloadReverted);
        state.pending = false;
        let confirmed = Arc::clone(&state.confirmed);
        // Links and classes that the reload took away come back in the places that they have now.
        let planned = state.running.plan(&confirmed.config, &confirmed.entries);
        self.apply(&mut state, &Arc::new(planned.next));
        state.confirmed = Arc::clone(&state.running);
    }
}
