//! What a service manager is told (sd_notify(3)): that the daemon is ready, that its workers turn,
//! that it stops.
//!
//! The watchdog is fed by the loops that carry packets, not beside them: a thread asks each for a
//! [`Pulse`] and says that all is well once all have answered.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use sd_notify::NotifyState;
use sennit_linux::{
    confine,
    poller::{Poller, Waker},
};

/// By which it is told.
static MANAGER: OnceLock<UnixDatagram> = OnceLock::new();
/// How often the workers are asked within the time after which the service manager kills.
const ASKED_WITHIN_LIMIT: u32 = 3;

/// A worker's sign of life.
#[derive(Debug)]
pub(super) struct Pulse {
    waker: Waker,
    asked: AtomicBool,
}

impl Pulse {
    /// A pulse that is asked for through `poller`, as `token`.
    pub(super) fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        Ok(Self {
            waker: Waker::new(poller, token)?,
            asked: AtomicBool::new(false),
        })
    }

    /// The loop was woken for it.
    pub(super) fn answer(&self) {
        self.waker.acknowledge();
        self.asked.store(false, Ordering::Release);
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_answered(&self) -> bool {
        !self.asked.load(Ordering::Acquire)
    }
}

/// The service manager thinks that the daemon runs, as long as this lives.
#[derive(Debug)]
pub(super) struct Attendance {
    /// Ends the watchdog when it is dropped.
    _watchdog: Sender<()>,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        tell(&NotifyState::Stopping);
    }
}

/// After how long without a sign of life the service manager kills the daemon, if it does.
pub(super) fn limit() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Says that the daemon is ready, and from now on that its workers turn.
pub(super) fn attend(pulses: Vec<Arc<Pulse>>) -> io::Result<Attendance> {
    let (sender, end) = mpsc::channel();
    if let Some(limit) = limit() {
        thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                confine::keep_files_only();
                watch(&pulses, limit / ASKED_WITHIN_LIMIT, &end, tell);
            })?;
    }
    tell(&NotifyState::Ready);
    Ok(Attendance { _watchdog: sender })
}

/// Says every so often that all is well, while all workers answer.
fn watch(
    pulses: &[Arc<Pulse>],
    every: Duration,
    end: &Receiver<()>,
    tell: impl Fn(&NotifyState<'static>),
) {
    let mut was_well = true;
    loop {
        pulses.iter().for_each(|pulse| pulse.ask());
        if end.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let is_well = pulses.iter().all(|pulse| pulse.is_answered());
        if is_well {
            tell(&NotifyState::Watchdog);
        } else if was_well {
            tracing::error!("a worker does not turn; the service manager may restart the daemon");
        }
        was_well = is_well;
    }
}

/// Finds the service manager, if there is one. A daemon that is confined opens no such socket any
/// more.
pub(super) fn find() {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    match connect(&name) {
        Ok(socket) => drop(MANAGER.set(socket)),
        Err(error) => tracing::warn!(%error, ?name, "cannot reach the service manager"),
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}

fn tell(state: &NotifyState<'_>) {
    if let Some(manager) = MANAGER.get()
        && let Err(error) = manager.send(format!("{state}\n").as_bytes())
    {
        tracing::warn!(%error, "cannot tell the service manager how the daemon is");
    }
}

#[cfg(test)]
mod tests {
    use sennit_linux::poller::Events;

    use super::*;

    const EVERY: Duration = Duration::from_millis(1);

    /// A watchdog over these workers, while somebody looks at how often it is fed.
    fn watched(pulses: &[Arc<Pulse>], look: impl FnOnce(&Receiver<()>)) {
        let (sender, end) = mpsc::channel();
        let (feed, fed) = mpsc::channel();
        let tell = move |state: &NotifyState<'_>| {
            assert!(matches!(state, NotifyState::Watchdog));
            let _ = feed.send(());
        };
        thread::scope(|scope| {
            scope.spawn(move || watch(pulses, EVERY, &end, tell));
            look(&fed);
            drop(sender);
        });
    }

    #[test]
    fn a_worker_that_turns_feeds_the_watchdog() {
        let poller = Poller::new().unwrap();
        let pulse = Arc::new(Pulse::new(&poller, 7).unwrap());
        let (answering, done) = (Arc::clone(&pulse), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&done);
        let worker = thread::spawn(move || {
            let mut events = Events::with_capacity(4);
            while !over.load(Ordering::Acquire) {
                poller.wait(&mut events, Some(EVERY)).unwrap();
                for ready in events.iter() {
                    assert_eq!(ready.token, 7);
                    answering.answer();
                }
            }
        });

        watched(&[pulse], |fed| {
            for _ in 0..3 {
                fed.recv().unwrap();
            }
        });
        done.store(true, Ordering::Release);
        worker.join().unwrap();
    }

    #[test]
    fn one_that_is_stuck_starves_it() {
        let poller = Poller::new().unwrap();
        let pulse = Arc::new(Pulse::new(&poller, 7).unwrap());

        watched(&[pulse], |fed| {
            assert!(fed.recv_timeout(50 * EVERY).is_err());
        });
    }
}
