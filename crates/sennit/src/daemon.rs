//! The daemons: what turns the state machines of `sennit-engine` into running programs.
//!
//! What carries packets is a thread that runs to completion ([`worker`]): it owns an epoll set, UDP
//! sockets, TUN devices and a state machine, and between two sleeps it moves whatever there is to
//! move, in batches. A daemon has one or several, each with tunnels of its own; what the host gives
//! to the wrong one is handed over ([`handoff`]). Other threads only ask them for something and
//! wait: the control socket, and on a hub the registrar, which is the one that touches the disk.
//! They reach a worker by a channel and a waker ([`mailbox`]).

mod at_once;
pub(crate) mod claim;
pub(crate) mod confinement;
mod deputy;
pub mod edge;
mod facts;
mod handoff;
pub(crate) mod helper;
pub mod hub;
mod mailbox;
mod reload;
mod secrets;
mod supervisor;
mod traffic;
mod why;
mod worker;

use std::{
    ffi::c_int,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    thread,
};

use sennit_linux::{
    confine,
    poller::{Poller, Waker},
};
use signal_hook::{
    consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1},
    iterator::{SignalsInfo, exfiltrator::SignalOnly},
};

use self::secrets::Secrets;
use crate::{
    api::{self, Api},
    config::{ApiConfig, Entry, Notify},
    control::{Ask, Entrance, Server},
    exit::Failure,
    history::Recorder,
    journal::{Event, Journal, Keeper},
    notify::{self, Notifier},
};

/// Workers unless the config says otherwise: beyond that, whoever has the processors knows better.
const WORKERS: usize = 8;

/// How many workers a daemon may have: those wanted, or one for each processor.
fn workers(wanted: Option<u8>) -> usize {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    wanted.map_or_else(|| processors().min(WORKERS), usize::from)
}

/// A poller for each worker.
fn pollers(workers: usize) -> Result<Vec<Arc<Poller>>, Failure> {
    let pollers = (0..workers).map(|_| Ok(Arc::new(Poller::new()?)));
    pollers.collect::<io::Result<_>>().map_err(Failure::runtime)
}

/// Where other programs ask a daemon.
struct Doors {
    _control: Server,
    _api: Api,
    _recorder: Recorder,
}

/// What files say that may be root's alone: the config, and those with secrets that it names.
struct ReadAsRoot {
    entries: Vec<Entry>,
    files: secrets::Read,
}

impl ReadAsRoot {
    fn load(file: &Path, api: &ApiConfig, notify: &[Notify]) -> Result<Self, Failure> {
        Ok(Self {
            entries: reload::read_entries(file)?,
            files: Secrets::load(api, notify)?,
        })
    }
}

/// Opens the control socket and the API.
fn open_doors(
    entrance: Entrance,
    keys: api::Keys,
    front: Arc<dyn Ask>,
    books: (Journal, PathBuf),
) -> Result<Doors, Failure> {
    let (door, visitors) = api::door();
    let asked = Arc::clone(&front);
    let control = Server::start_with_http(entrance, move |it| asked.answer(it), door)?;
    let (journal, history) = books;
    let recorder = Recorder::start(&history, Arc::clone(&front)).map_err(Failure::runtime)?;
    let archive = recorder.archive().clone();
    Ok(Doors {
        _control: control,
        _api: Api::start(keys, front, (journal, archive), visitors)?,
        _recorder: recorder,
    })
}

/// Starts the keeper of a daemon's journal, in its state directory.
fn keep_journal(records: &Path, role: &str) -> Result<Keeper, Failure> {
    let file = records.join(format!("{role}-journal.db"));
    Keeper::start(&file).map_err(Failure::runtime)
}

/// Starts telling of events, from an outbox beside the journal.
fn start_telling(
    (targets, changes): (notify::Targets, Receiver<notify::Targets>),
    records: &Path,
    role: &str,
    journal: &Journal,
) -> Result<Notifier, Failure> {
    let outbox = records.join(format!("{role}-outbox.db"));
    Notifier::start(targets, changes, &outbox, journal.clone()).map_err(Failure::runtime)
}

fn note_start(journal: &Journal, lacks: Vec<String>) {
    let version = env!("CARGO_PKG_VERSION").into();
    journal.note(Event::Started { version });
    for reason in lacks {
        tracing::error!("{reason}");
        journal.note(Event::StartedWithout { reason });
    }
}

/// 32 bytes that nobody can guess.
fn random_seed() -> Result<[u8; 32], Failure> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| Failure::runtime("the operating system gives no random numbers"))?;
    Ok(seed)
}

/// What other processes may ask of a daemon by signals.
#[derive(Clone, Debug)]
struct Signals {
    /// SIGINT and SIGTERM; SIGUSR1 too, for a daemon that is soon started again.
    stop: worker::Stop,
    /// Set if the signal was SIGUSR1.
    restarting: Arc<AtomicBool>,
    /// What SIGHUP does.
    hang_up: Arc<OnceLock<HangUp>>,
}

/// Without one, as while the daemon starts, SIGHUP changes nothing.
struct HangUp(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for HangUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HangUp")
    }
}

/// Makes the signals end the workers with these pollers, and says which signal it was.
fn watch_signals(pollers: &[Arc<Poller>], token: u64) -> Result<Signals, Failure> {
    let wakers = pollers.iter().map(|poller| Waker::new(poller, token));
    let wakers: Vec<Waker> = wakers.collect::<Result<_, _>>().map_err(Failure::runtime)?;
    let signals = Signals {
        stop: worker::Stop::new(wakers),
        restarting: Arc::default(),
        hang_up: Arc::default(),
    };
    let mut caught = SignalsInfo::<SignalOnly>::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])
        .map_err(Failure::runtime)?;
    let handler = signals.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            confine::keep_files_only();
            caught.forever().for_each(|signal| handler.handle(signal));
        })
        .map_err(Failure::runtime)?;
    Ok(signals)
}

impl Signals {
    fn handle(&self, signal: c_int) {
        if signal == SIGHUP {
            match self.hang_up.get() {
                Some(HangUp(reload)) => reload(),
                None => tracing::warn!("SIGHUP: the daemon has not started yet"),
            }
            return;
        }
        self.restarting.store(signal == SIGUSR1, Ordering::Release);
        self.stop.request();
    }

    /// Says what SIGHUP does, once.
    fn on_hang_up(&self, reload: impl Fn() + Send + Sync + 'static) {
        let _ = self.hang_up.set(HangUp(Box::new(reload)));
    }

    fn is_restart(&self) -> bool {
        self.restarting.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Delivery, Policy},
        status::{
            HeaderStatus, LinkState, LinkStatus, LinkTraffic, OrderStatus, PathState, PathStatus,
            QueueStatus, RepairStatus, State, TunnelStatus,
        },
    };

    /// A link that is up.
    pub(super) fn link(name: &str) -> LinkStatus {
        LinkStatus {
            name: name.into(),
            interface: "wwan0".into(),
            address: None,
            public: Vec::new(),
            tier: 1,
            weight: 1,
            state: LinkState::Up,
            cause: None,
            reason: None,
            hub: None,
            since_seconds: 0.0,
            standby: false,
            up_limit_bytes_per_second: None,
            down_limit_bytes_per_second: None,
            limited_by_operator: false,
            up_limited_by_operator: false,
            down_limited_by_operator: false,
            sent_bytes_per_second: None,
            received_bytes_per_second: None,
            account: None,
            traffic: LinkTraffic::default(),
        }
    }

    /// A path that is up.
    pub(super) fn path(link: &str) -> PathStatus {
        PathStatus {
            id: 0,
            link: Some(link.into()),
            local: None,
            remote: ([203, 0, 113, 10], 443).into(),
            observed: None,
            state: PathState::Up,
            cause: None,
            reason: None,
            since_seconds: 1.0,
            heard_seconds: Some(0.0),
            rtt_seconds: Some(0.04),
            rtt_min_seconds: Some(0.04),
            sent_packets: 40,
            lost_packets: 0,
            recent_packets: 40,
            recent_lost_packets: 0,
            loss_ratio: Some(0.0),
            rate_bytes_per_second: Some(1e6),
            cwnd_bytes: 40_000,
            congestion: None,
            congestion_cause: None,
            congestion_reason: None,
            in_flight_bytes: 0,
            mtu_bytes: 1452,
            mtu_source: None,
            sent_bytes: 0,
            received_bytes: 0,
            fec: Default::default(),
            share_ratio: None,
            shared: None,
            shared_down: None,
            why: String::new(),
        }
    }

    /// A tunnel that is up and has carried nothing.
    pub(super) fn tunnel(site: &str, class: &str) -> TunnelStatus {
        TunnelStatus {
            class: class.into(),
            site: site.parse().unwrap(),
            policy: Policy::Bond,
            delivery: Delivery::Repair,
            state: State::Up,
            reason: None,
            links: None,
            since_seconds: 1.0,
            key_exchange: None,
            resumed: false,
            early: false,
            key_updates: 0,
            sent_bytes: 0,
            received_bytes: 0,
            wrong_source_packets: 0,
            wrong_destination_packets: 0,
            queue: QueueStatus::default(),
            queue_down: None,
            order: OrderStatus::default(),
            repair: RepairStatus::default(),
            headers: HeaderStatus::default(),
            fec: Default::default(),
            striping: None,
            paths: Vec::new(),
            shares: Vec::new(),
            unanswered: Vec::new(),
            flow_count: 0,
            flows: Vec::new(),
        }
    }

    #[test]
    fn there_are_as_many_workers_as_wanted_or_a_few() {
        assert_eq!(workers(Some(3)), 3);
        assert!((1..=WORKERS).contains(&workers(None)));
    }
}
