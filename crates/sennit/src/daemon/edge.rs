//! `sennit edge`.
//!
//! An edge has several workers, at most one for each class. Each has an engine with its classes,
//! sockets of its own on all links, and a queue of the TUN device. A tunnel belongs to one worker
//! for all its life, and its packets cross no thread: what comes for it from the hub comes to its
//! own sockets, and what comes from the host to the queue that its flow was last answered on. What
//! is first of its flow is the exception ([`super::handoff`]). The first worker sees to what there
//! is only one of ([`lead`]), and tells the others by letter.

mod accounts;
mod answer;
mod ask;
mod causes;
mod crew;
mod dns;
pub mod doctor;
mod far_side;
mod ground;
mod kernel;
mod lead;
mod leak;
mod letter;
mod limits;
mod links;
mod machine;
mod names;
mod outlook;
mod overflow;
mod passing;
mod probe;
mod renewal;
mod report;
mod running;
mod sharing;
mod sorted;
mod starved;
mod upkeep;
mod watch;
mod way;

use std::{
    path::Path,
    sync::{Arc, Weak},
    time::Instant,
};

use sennit_core::ClassId;
use sennit_linux::{
    DeviceName, Footprint, Rules,
    poller::Interest,
    tun::{Offload, Tun, TunConfig},
};
use sennit_packet::Prefix;

use super::{
    ReadAsRoot,
    claim::{self, Claim},
    confinement::{self, Belongings},
    deputy::Deputy,
    helper::Helper,
    keep_journal, note_start, open_doors, pollers,
    reload::{Reloader, tell_all},
    secrets::Secrets,
    start_telling, supervisor, watch_signals,
    worker::{self, Io, Worker},
};
use crate::{
    config::{self, EdgeConfig, Leak, RUN_DIRECTORY, Severity},
    control::Entrance,
    drill::Drills,
    exit::Failure,
    journal::{Event, Journal},
    speedtest::Speedtests,
};
use accounts::Accounts;
pub use ask::{Asked, ask};
use crew::{Boxes, Crew};
use dns::Dns;
use far_side::FarSide;
use ground::Host;
use lead::Lead;
use letter::Letter;
use names::Names;
use passing::Passing;
use report::Front;
use running::Running;
use starved::Starved;
use watch::Watch;

const STOP: u64 = 0;
const QUESTIONS: u64 = 1;
const LETTERS: u64 = 2;
const HANDOFF: u64 = 3;
const MONITOR: u64 = 4;

/// Makes the directory of what is written often, if that is one of its own: one in memory goes with
/// each boot. Where it cannot be made, the tunnel is worth more than its books, and each of them
/// says what it misses.
fn make_records(config: &EdgeConfig) {
    if config.records == config.state {
        return;
    }
    if let Err(error) = sennit_linux::make_private_directories(&config.records) {
        let directory = config.records.display();
        let help = "make it, or let the unit write there (ReadWritePaths=)";
        tracing::warn!(%error, %directory, "cannot make the directory of `records`: {help}");
    }
}

/// Claims that directory.
fn claim_records(config: &EdgeConfig) -> Result<Option<Claim>, Failure> {
    let apart = config.records != config.state;
    apart
        .then(|| Claim::of_records(&config.records, "edge"))
        .transpose()
}

/// Takes the control socket, gives `user` what becomes his, reads what only root may (also of a far
/// side that is no hub), starts the helper, and gives up all that the helper has rights for, and
/// root. What a run with another `device` has left goes before that, and what is to be unreachable
/// is so without a gap.
fn confine(
    config: &EdgeConfig,
    file: &Path,
    user: Option<&str>,
) -> Result<(Helper, Entrance, ReadAsRoot, Option<FarSide>), Failure> {
    // It tells of another daemon with this config.
    let entrance = Entrance::open(&config.control)?;
    make_records(config);
    let kept = config.kept();
    let files = config.files(file);
    let user = confinement::hand_over(&kept, &files, user)?;
    let hold = || guard(&config.device, config.blocked());
    claim::clean_up_before(&config.state, "edge", &config.device, hold);
    supervisor::find();
    let read = ReadAsRoot::load(file, &config.api, &config.notify)?;
    let proxy = config.proxy.as_ref().map(|_| FarSide::load(config));
    let proxy = proxy.transpose()?;
    let helper = Helper::start()?;
    let own = Belongings {
        file,
        named: &files[1..],
        kept: &kept,
        entrance: &entrance,
    };
    confinement::begin(&own, user)?;
    Ok((helper, entrance, read, proxy))
}

/// Runs an edge with the config in `file` until it is told to stop; as `user`, by name or number.
pub fn run(config: &EdgeConfig, file: &Path, user: Option<&str>) -> Result<(), Failure> {
    let began = (Instant::now(), leak::holds(config) == Some(true));
    let (mut helper, entrance, read, proxy) = confine(config, file, user)?;
    let running = Arc::new(Running::new(config.clone(), read.entries));
    let far_side = proxy.map_or_else(|| FarSide::load(config), Ok)?;
    let footprint = begin_footprint(config)?;
    let pollers = pollers(workers(config))?;
    let signals = watch_signals(&pollers, STOP)?;
    helper.watch(signals.stop.clone())?;
    let mut boxes = Boxes::open(&pollers)?;
    let _records = claim_records(config)?;
    let keeper = keep_journal(&config.records, "edge")?;
    let journal = keeper.journal().clone();
    let reloader = reloader(file, &running, (&journal, &read.files.secrets), &boxes);
    let front = front(&reloader, &journal, &mut boxes, began)?;
    let books = (journal.clone(), config.records.join("edge-history.db"));
    let _doors = open_doors(entrance, read.files.keys, front, books)?;
    let _claim = Claim::of_daemon(&config.state, "edge", &config.device, &config.control)?;
    let _notifier = start_telling(read.files.told, &config.records, "edge", &journal)?;
    note_start(&journal, read.files.secrets.lacks());
    let hung_up = Arc::clone(&reloader);
    signals.on_hang_up(move || hung_up.hang_up());

    let mut ios: Vec<Io> = pollers.into_iter().map(Io::new).collect();
    let site = far_side.site();
    let engines = far_side.engines(&running, ios.len(), Instant::now())?;
    let devices = open_devices(config, &mut ios)?;
    let watch = open_watch(config, &running, &devices, &ios[0])?;
    let names = Names::start(config, Arc::clone(&boxes.letter_slots))?;
    let moves = renewal::start(&reloader, Arc::clone(&boxes.letter_slots));
    let moves = moves.map_err(Failure::runtime)?;
    let host: Host = Arc::new(Deputy::start(footprint).map_err(Failure::runtime)?);
    let dns = Dns::start(&config.device).map_err(Failure::runtime)?;
    let lead = Lead::new(
        Arc::clone(&host),
        watch,
        far_side,
        devices,
        names,
        Arc::clone(&running),
        journal.clone(),
        dns,
        began.0,
    )?;

    let crew = Crew::new(&running, site, &journal, &host, moves);
    let mut workers = crew.workers(ios, engines, boxes, lead);
    let Worker { machine, io } = &mut workers[0];
    machine.look(io, Instant::now());
    host.ask(Footprint::hold_block)?;
    log_start(config, workers.len());
    let outcome = worker::run_all(&mut workers, &signals.stop);
    tracing::info!("edge stops");
    journal.note(Event::Stopped);
    drop(workers);
    let keeps_block = reloader.running().config.leak_when_stopped == Leak::Block;
    // Dropped after a failure, it keeps its block.
    outcome.map_err(Failure::runtime)?;
    put_away(host, keeps_block, signals.is_restart())
}

/// Takes over what is unreachable without a tunnel, before anything else of the host.
fn begin_footprint(config: &EdgeConfig) -> Result<Footprint, Failure> {
    let run_directory = Path::new(RUN_DIRECTORY);
    let mut footprint = Footprint::begin_blocking(&config.device, run_directory, &blocked(config))?;
    // A hub may have left some that had this device before.
    without_nft(footprint.set_rules(&Rules::default()))?;
    Ok(footprint)
}

/// An edge has no rules, and runs where `nft` does not: as on a kernel without nftables, where no
/// hub can have left any either.
fn without_nft(outcome: Result<(), sennit_linux::Error>) -> Result<(), sennit_linux::Error> {
    use sennit_linux::Error::{NftNotRun, NftRefused};
    match outcome {
        Err(error @ (NftRefused(_) | NftNotRun(_))) => {
            tracing::warn!(%error, "what a hub with this device may have left of rules stays");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Who has all workers go over to another config.
fn reloader(
    file: &Path,
    running: &Arc<Running>,
    (journal, secrets): (&Journal, &Arc<Secrets>),
    boxes: &Boxes,
) -> Arc<Reloader<Running>> {
    let slots = Arc::clone(&boxes.letter_slots);
    let change = move |next: &Arc<Running>| {
        let letter = |_, done| Letter::Change(Arc::clone(next), done);
        Ok(tell_all(&slots, letter))
    };
    let (journal, secrets) = (journal.clone(), Arc::clone(secrets));
    Arc::new(Reloader::new(
        file.into(),
        running,
        journal,
        secrets,
        change,
    ))
}

/// Where the edge is asked.
fn front(
    reloader: &Arc<Reloader<Running>>,
    journal: &Journal,
    boxes: &mut Boxes,
    (started, held_before_start): (Instant, bool),
) -> Result<Arc<Front>, Failure> {
    let workers = std::mem::take(&mut boxes.question_slots);
    let accounts = Accounts::start(reloader, journal, &workers, &boxes.letter_slots);
    let accounts = accounts.map_err(Failure::runtime)?;
    let front = Arc::new_cyclic(|front: &Weak<Front>| Front {
        reloader: Arc::clone(reloader),
        accounts,
        passing: Passing::default(),
        starved: Starved::default(),
        started,
        hold: leak::Hold::new(held_before_start),
        lan: leak::Seen::default(),
        workers,
        letters: Arc::clone(&boxes.letter_slots),
        journal: journal.clone(),
        speedtests: Speedtests::new(front.clone()),
        drills: Drills::new(front.clone()),
    });
    let letters = Arc::clone(&boxes.letter_slots);
    overflow::start(Arc::downgrade(&front), letters).map_err(Failure::runtime)?;
    Ok(front)
}

/// Who watches the links' interfaces, for the first worker.
fn open_watch(
    config: &EdgeConfig,
    running: &Running,
    devices: &Devices,
    first: &Io,
) -> Result<Watch, Failure> {
    let payload = far_side::settings(config)?.outer_mtu();
    let watch = Watch::open(running, devices.all().collect(), payload)?;
    let added = first.poller.add(watch.monitor(), MONITOR, Interest::Read);
    added.map_err(Failure::runtime)?;
    Ok(watch)
}

/// Takes from the host what the edge added to it, but what is unreachable if it `keeps_block`, or
/// `restarts`.
fn put_away(host: Host, keeps_block: bool, restarts: bool) -> Result<(), Failure> {
    match Arc::into_inner(host).and_then(Deputy::end) {
        Some(footprint) if restarts => footprint.remove_for_restart()?,
        Some(footprint) if keeps_block => footprint.remove_but_block()?,
        Some(footprint) => without_nft(footprint.remove())?,
        None => {}
    }
    Ok(())
}

/// Whether an edge runs that has its identity in this state directory.
pub fn runs_with(state: &Path) -> bool {
    Claim::make(state, "edge").is_err()
}

/// Makes prefixes unreachable until the edge of `device` takes over.
pub fn guard(device: &DeviceName, blocked: &[config::Prefix]) -> Result<(), Failure> {
    let blocked: Vec<Prefix> = blocked.iter().copied().map(far_side::prefix).collect();
    let directory = Path::new(RUN_DIRECTORY);
    Footprint::begin_blocking(device, directory, &blocked)?.remove_but_block()?;
    Ok(())
}

/// What is unreachable while there is no tunnel.
fn blocked(config: &EdgeConfig) -> Vec<Prefix> {
    config
        .blocked()
        .iter()
        .copied()
        .map(far_side::prefix)
        .collect()
}

fn log_start(config: &EdgeConfig, workers: usize) {
    tracing::info!(device = %config.device, links = config.links.len(), workers, "edge is ready");
    log_host(config);
    log_block(config);
}

/// What does not fit together on this host, in the log.
fn log_host(config: &EdgeConfig) {
    for finding in crate::onsite::look_at_edge(config) {
        let help = finding.help.unwrap_or_default();
        match finding.severity {
            Severity::Error => tracing::error!(help, "{}", finding.message),
            Severity::Warning => tracing::warn!(help, "{}", finding.message),
        }
    }
}

fn log_block(config: &EdgeConfig) {
    let routes: Vec<String> = config.routes.iter().map(ToString::to_string).collect();
    let routes = routes.join(" ");
    match config.leak {
        _ if routes.is_empty() => {}
        Leak::Block => tracing::info!(routes, "unreachable while there is no tunnel"),
        Leak::Allow => {
            tracing::warn!(
                routes,
                "leaves beside the tunnel while there is none: leak is allowed"
            );
        }
    }
}

/// One for each class at most.
fn workers(config: &EdgeConfig) -> usize {
    super::workers(config.workers).min(config.classes.len())
}

/// One worker's portion of the classes.
#[derive(Clone, Copy, Debug)]
struct Portion {
    number: usize,
    workers: usize,
}

impl Portion {
    /// The worker that a class is at.
    fn owner(self, class: ClassId) -> usize {
        owner(class, self.workers)
    }

    fn has(self, class: ClassId) -> bool {
        self.owner(class) == self.number
    }
}

fn owner(class: ClassId, workers: usize) -> usize {
    usize::from(class.0) % workers
}

/// The classes that have a TUN device of their own.
fn class_devices(config: &EdgeConfig) -> impl Iterator<Item = (ClassId, &DeviceName)> {
    let classes = (0..).map(ClassId).zip(&config.classes);
    classes.filter_map(|(id, class)| Some((id, class.device.as_ref()?)))
}

/// Opens the main TUN device, with a queue for each worker, and those of classes, each at the
/// class's own; their interface indices.
fn open_devices(config: &EdgeConfig, ios: &mut [Io]) -> Result<Devices, Failure> {
    let mut devices = Devices {
        main: open_device(config, &config.device, ios)?,
        classes: Vec::new(),
    };
    for (class, device) in class_devices(config) {
        let owner = owner(class, ios.len());
        let index = open_device(config, device, &mut ios[owner..=owner])?;
        devices.classes.push((class, index));
    }
    Ok(devices)
}

/// Interface indices of the TUN devices.
struct Devices {
    main: u32,
    /// Those of classes.
    classes: Vec<(ClassId, u32)>,
}

impl Devices {
    fn all(&self) -> impl Iterator<Item = u32> {
        let classes = self.classes.iter().map(|(_, device)| *device);
        std::iter::once(self.main).chain(classes)
    }
}

/// Opens a TUN device with a queue for each of these; its interface index.
fn open_device(config: &EdgeConfig, name: &DeviceName, ios: &mut [Io]) -> Result<u32, Failure> {
    let tuns = Tun::open(&TunConfig {
        name: name.clone(),
        mtu: config.mtu.into(),
        queues: ios.len(),
        offload: Offload::Auto,
    })?;
    let index = tuns[0].index();
    tracing::info!(device = %name, offload = ?tuns[0].tier(), "TUN device is up");
    for (io, tun) in ios.iter_mut().zip(tuns) {
        io.add_tun(tun).map_err(Failure::runtime)?;
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use sennit_engine::Edge;

    use super::*;
    use crate::{
        config::Proxy,
        identity::{self, HubIdentity},
    };

    /// Engines for so many workers, which know nobody.
    pub(super) fn engines(running: &Running, workers: usize) -> Vec<Edge> {
        let state = tempfile::tempdir().unwrap();
        let names = ["vpn.example.org".to_owned()];
        let hub = HubIdentity::init(state.path(), &names, SystemTime::now()).unwrap();
        let ca = state.path().join("ca.pem");
        fs::write(&ca, hub.authority.pem()).unwrap();
        let (name, bearer) = (names.into_iter().next(), None);
        let tls = identity::proxy_config(&Proxy { ca, name, bearer }, "203.0.113.10").unwrap();
        let far_side = FarSide::Proxy(Box::new(tls));
        far_side.engines(running, workers, Instant::now()).unwrap()
    }

    /// An edge of these classes, the last of which takes what the others leave.
    pub(super) fn config(more: &str, classes: &[&str]) -> EdgeConfig {
        let mut text = format!(
            "[edge]\nhub = ['203.0.113.10:443']\n{more}\n\
             [[link]]\nname = 'lte'\ninterface = 'wwan0'\n"
        );
        for (index, name) in classes.iter().enumerate() {
            let rest = index + 1 == classes.len();
            let rule = if rest { "" } else { "match = ['udp']" };
            text += &format!("[[class]]\nname = '{name}'\n{rule}\n");
        }
        let loaded = EdgeConfig::parse("edge.toml", text.as_bytes());
        loaded.unwrap_or_else(|report| panic!("{report}")).config
    }

    #[test]
    fn an_edge_runs_where_nft_does_not() {
        use sennit_linux::Error;
        for error in [
            Error::NftRefused("Unable to initialize Netlink socket".into()),
            Error::NftNotRun("it does not end, and was killed".into()),
        ] {
            without_nft(Err(error)).unwrap();
        }
        without_nft(Err(Error::NotPrivileged)).unwrap_err();
    }

    #[test]
    fn there_are_no_more_workers_than_classes() {
        assert_eq!(workers(&config("workers = 2", &["a", "b", "c"])), 2);
        assert_eq!(workers(&config("workers = 8", &["a", "b", "c"])), 3);
        assert_eq!(workers(&config("", &["a"])), 1);
    }

    #[test]
    fn every_class_is_at_one_worker_and_no_worker_without() {
        for classes in 1..=9_u8 {
            for workers in 1..=usize::from(classes) {
                let mut spread = vec![0; workers];
                for class in (0..classes).map(ClassId) {
                    let portions = (0..workers).map(|number| Portion { number, workers });
                    let owners: Vec<Portion> = portions.filter(|it| it.has(class)).collect();
                    assert_eq!(owners.len(), 1);
                    assert_eq!(owners[0].number, owners[0].owner(class));
                    spread[owners[0].number] += 1;
                }
                let (least, most) = (spread.iter().min(), spread.iter().max());
                assert!(most.unwrap() - least.unwrap() <= 1, "{spread:?}");
            }
        }
    }
}
