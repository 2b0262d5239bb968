//! The terminal, and the threads that feed it.
//!
//! One thread reads keys, one looks at the daemon, one waits for events, one asks for the history
//! once, and one runs what an operator wants. Each tells this one by the same channel, so a daemon
//! that does not answer holds up no key. All but the errands may be left behind when it ends.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent};

use super::app::{App, Wish};
use super::ask::{self, Strings};
use super::draw;
use super::errands::{Errand, Outcome};
use super::picture::EVENTS;
use super::rates::Seen;
use crate::cli::test::stop_on_signals;
use crate::cli::{Exit, Failure, output};
use crate::history::History;
use crate::journal::Record;
use crate::status::Role;

/// How often it is looked whether a signal came.
const TICK: Duration = Duration::from_millis(200);
/// After this a daemon that did not tell of events is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// What threads tell.
enum Told {
    Key(KeyEvent),
    Resized,
    /// The terminal is gone.
    NoKeys(String),
    Look(Result<Box<Seen>, String>),
    Events(Vec<Record>),
    /// With the clock, in seconds since 1970, and when it was so.
    History(History, f64, Instant),
    /// How far an errand is.
    Progress(String),
    Outcome(Outcome),
    /// Something to say.
    Line(String),
}

/// The terminal, which is put back however this ends. A panic has put it back already.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        if !thread::panicking() {
            ratatui::restore();
        }
    }
}

/// Draws until somebody has seen enough, also while the daemon is started again.
pub(super) fn watch(control: &Path, interval: Duration) -> Result<Exit, Failure> {
    let stop = stop_on_signals()?;
    let first = ask::look(control, Strings::Printable)?;
    if !io::stdout().is_terminal() {
        return Err(
            Failure::usage("this is no terminal").hint("for a single look: sennit top --once")
        );
    }
    let role = first.status.role;
    let mut app = App::new(first, interval, output::wants_color());
    let (tell, told) = mpsc::channel();
    let mut errands = Errands {
        control: control.into(),
        tell: tell.clone(),
        running: None,
    };
    look_on(control, interval, &tell)?;
    follow_events(control, &tell)?;
    ask_for_history(control, role, app.picture().trace.span_seconds(), &tell)?;
    let terminal = ratatui::try_init().map_err(|error| {
        ratatui::restore();
        Failure::runtime(format!("cannot draw on this terminal: {error}"))
    })?;
    let mut screen = Screen(terminal);
    read_keys(&tell)?;
    let outcome = run(&mut app, &mut screen.0, &told, &mut errands, &stop);
    drop(screen);
    // A link that is lost on purpose is restored first.
    errands.finish();
    outcome
}

fn run(
    app: &mut App,
    terminal: &mut DefaultTerminal,
    told: &Receiver<Told>,
    errands: &mut Errands,
    stop: &AtomicBool,
) -> Result<Exit, Failure> {
    loop {
        terminal
            .draw(|frame| draw::draw(app, frame))
            .map_err(Failure::runtime)?;
        let mut next = loop {
            match told.recv_timeout(TICK) {
                Ok(word) => break Some(word),
                Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Ok(Exit::Interrupted);
                }
            }
        };
        // All that has come is drawn at once.
        while let Some(word) = next {
            if let Some(exit) = take(app, word, errands)? {
                return Ok(exit);
            }
            next = told.try_recv().ok();
        }
    }
}

/// Takes what a thread tells; how it ends, if it does.
fn take(app: &mut App, word: Told, errands: &mut Errands) -> Result<Option<Exit>, Failure> {
    match word {
        Told::Key(key) => match app.handle_key(key) {
            Some(Wish::End) => return Ok(Some(Exit::Ok)),
            Some(Wish::Errand(errand)) => errands.start(errand)?,
            Some(Wish::Stop) => errands.stop(),
            None => {}
        },
        Told::Resized => {}
        Told::NoKeys(error) => {
            return Err(Failure::runtime(format!("the terminal is gone: {error}")));
        }
        Told::Look(look) => app.live().handle_look(look.map(|seen| *seen)),
        Told::Events(records) => app.live().handle_events(records),
        Told::History(history, clock, at) => app.live().handle_history(&history, clock, at),
        Told::Progress(line) => app.busy = Some(line),
        Told::Outcome(outcome) => app.handle_outcome(outcome),
        Told::Line(line) => app.said = Some(line),
    }
    Ok(None)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let thread = thread::Builder::new().name(name.into());
    let failed = |error| Failure::runtime(format!("cannot start a thread: {error}"));
    thread.spawn(work).map_err(failed)
}

// ---- threads ------------------------------------------------------------------------------------

fn read_keys(tell: &Sender<Told>) -> Result<(), Failure> {
    let tell = tell.clone();
    let work = move || {
        loop {
            let word = match event::read() {
                Ok(Event::Key(key)) => Told::Key(key),
                Ok(Event::Resize(..)) => Told::Resized,
                Ok(_) => continue,
                Err(error) => Told::NoKeys(error.to_string()),
            };
            let is_last = matches!(word, Told::NoKeys(_));
            if tell.send(word).is_err() || is_last {
                return;
            }
        }
    };
    spawn("keys", work).map(drop)
}

fn look_on(control: &Path, interval: Duration, tell: &Sender<Told>) -> Result<(), Failure> {
    let (control, tell) = (control.to_owned(), tell.clone());
    let work = move || {
        let mut next = Instant::now();
        loop {
            // A daemon that is slow is not asked more often afterwards.
            next = (next + interval).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let look = ask::look(&control, Strings::Printable);
            let look = look.map(Box::new);
            let look = look.map_err(|failure| ask::printable(failure.message()));
            if tell.send(Told::Look(look)).is_err() {
                return;
            }
        }
    };
    spawn("looks", work).map(drop)
}

fn follow_events(control: &Path, tell: &Sender<Told>) -> Result<(), Failure> {
    let (control, tell) = (control.to_owned(), tell.clone());
    let work = move || {
        let mut last = None;
        loop {
            // Looks say why, if the daemon is away; this goes on when it is back.
            let _ = follow(&control, &mut last, &tell);
            thread::sleep(RETRY);
        }
    };
    spawn("events", work).map(drop)
}

/// Tells of events until the daemon ends or nobody listens.
fn follow(control: &Path, last: &mut Option<u64>, tell: &Sender<Told>) -> Result<(), Failure> {
    let mut client = ask::patient(control)?;
    loop {
        let records = ask::events(&mut client, *last, EVENTS)?;
        let newest = records.last().map(|record| record.id);
        *last = newest.or(*last).or(Some(0));
        if !records.is_empty() && tell.send(Told::Events(records)).is_err() {
            return Ok(());
        }
    }
}

fn ask_for_history(
    control: &Path,
    role: Role,
    seconds: f64,
    tell: &Sender<Told>,
) -> Result<(), Failure> {
    let (control, tell) = (control.to_owned(), tell.clone());
    let work = move || {
        let word = match ask::history(&control, role, seconds) {
            Ok(history) => {
                let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let clock = clock.map_or(0.0, |since| since.as_secs_f64());
                Told::History(history, clock, Instant::now())
            }
            Err(why) => {
                let why = ask::printable(&why);
                Told::Line(format!("plots begin now, there is no history: {why}"))
            }
        };
        let _ = tell.send(word);
    };
    spawn("history", work).map(drop)
}

/// What runs for an operator: one thing at a time.
struct Errands {
    control: PathBuf,
    tell: Sender<Told>,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Errands {
    fn start(&mut self, errand: Errand) -> Result<(), Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (control, tell) = (self.control.clone(), self.tell.clone());
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut progress = |line: &str| {
                let _ = tell.send(Told::Progress(ask::printable(line)));
            };
            let outcome = errand.run(&control, &stopped, &mut progress);
            let _ = tell.send(Told::Outcome(outcome));
        };
        self.running = Some((stop, spawn("errand", work)?));
        Ok(())
    }

    fn stop(&self) {
        if let Some((stop, _)) = &self.running {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// Stops what runs, and waits until it has tidied up.
    fn finish(self) {
        self.stop();
        if let Some((_, thread)) = self.running {
            let _ = thread.join();
        }
    }
}
