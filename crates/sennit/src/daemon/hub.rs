//! `sennit hub`.
//!
//! A hub has several workers, each with an engine, a socket per address and a queue of the TUN
//! device. A tunnel belongs to one worker for all its life, and its packets cross no thread: the
//! kernel brings UDP packets to the worker that their connection ID names, and packets from the
//! host to the queue that their flow was last answered on. What is first of its flow is the
//! exception ([`super::handoff`]). Workers share what each needs to know of the others
//! ([`directory`]), the registrar, and the host's routes ([`gateway`]).

mod change;
mod condition;
mod crew;
mod directory;
mod gateway;
mod invitations;
mod machine;
mod owners;
mod registrar;
mod relay;
mod running;
mod sorted;
mod speedtest;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Instant, SystemTime},
};

use ipnet::IpNet;
use sennit_core::{ClassId, Classifier};
use sennit_engine::{
    HubClasses, HubConfig as EngineConfig, SocketId, WORKER_OCTET, facts::LinkFacts,
};
use sennit_linux::{Footprint, udp::LinkSocket};

use super::{
    ReadAsRoot,
    claim::{self, Claim},
    confinement::{self, Belongings},
    facts::Seen,
    helper::Helper,
    keep_journal,
    mailbox::{self, Question, Slot},
    note_start, open_doors, pollers,
    reload::Reloader,
    secrets::Secrets,
    start_telling, supervisor, traffic, watch_signals,
    why::Standings,
    worker::{self, Io},
    workers,
};
use crate::{
    config::{HubConfig, RUN_DIRECTORY},
    control::{Ask, Entrance, Refused, Request, Response},
    date,
    exit::Failure,
    identity::{self, HubIdentity},
    journal::{Event, Journal},
    status::{Role, SCHEMA, Status, TunnelStatus, WorkerStatus},
    store::Store,
};
use change::{All, Insiders, Relay};
use condition::{Condition, Found};
use crew::{Boxes, Crew};
use running::Running;

use directory::{Announced, Directory};
use gateway::Gateway;

const STOP: u64 = 0;
const QUESTIONS: u64 = 1;
const VERDICTS: u64 = 2;
const HANDOFF: u64 = 3;
const RELAYED: u64 = 4;
/// Handshakes and undecided requests at once: a fleet that reconnects after a restart, with a few
/// classes each.
const MAX_STRANGERS: usize = 4096;

/// Runs a hub with the config in `file` until it is told to stop; as `user`, by name or number.
pub fn run(config: HubConfig, file: &Path, user: Option<&str>) -> Result<(), Failure> {
    let started = Instant::now();
    let (mut helper, entrance, read) = confine(&config, file, user)?;
    let config = Arc::new(config);
    let running = Arc::new(Running {
        config: HubConfig::clone(&config),
        entries: read.entries,
    });
    let identity = HubIdentity::load(&config.state)?;
    let mut footprint = Footprint::begin(&config.device, Path::new(RUN_DIRECTORY))?;
    let mark = footprint.keep_outside()?;
    let pollers = pollers(workers(config.workers))?;
    let signals = watch_signals(&pollers, STOP)?;
    let stop = signals.stop.clone();
    helper.watch(stop.clone())?;
    let mut boxes = Boxes::open(&pollers)?;
    let keeper = keep_journal(&config.state, "hub")?;
    let journal = keeper.journal().clone();
    let insiders = Arc::new(Insiders::default());
    let reloader = reloader(file, &running, (&journal, &read.files.secrets), &insiders);
    let condition = Arc::new(Condition::new(journal.clone()));
    let front = front(
        &config, &reloader, &journal, &mut boxes, &condition, started,
    );
    let books = (journal.clone(), config.state.join("hub-history.db"));
    let _doors = open_doors(entrance, read.files.keys, front, books)?;
    let _claim = Claim::of_daemon(&config.state, "hub", &config.device, &config.control)?;
    let _notifier = start_telling(read.files.told, &config.state, "hub", &journal)?;

    let mut relay = Relay::default();
    relay.start_if_needed(&config, &pollers, &boxes.verdict_slots, &stop)?;
    let windows = std::mem::take(&mut relay.windows);
    let mut ios: Vec<Io> = pollers.iter().cloned().map(Io::new).collect();
    listen(&config, mark, &mut ios)?;
    note_start(&journal, read.files.secrets.lacks());
    let crew = Crew::new(&config, &identity, &journal, started)?;
    let authorities = (Store::open(&config.state)?, identity.into_authorities());
    let (gateway, tuns) = Gateway::open(footprint, Arc::clone(&config), ios.len())?;
    let gateway = Arc::new(gateway);
    speedtest::start(&config, stop.lifeline())?;
    let neighbours = crew.neighbours(&boxes, &gateway, relay.orders.clone(), condition);
    let registrar = crew.start_registrar(authorities, neighbours, stop.lifeline())?;
    let all = All {
        pollers,
        verdicts: Arc::clone(&boxes.verdict_slots),
        registrar: registrar.clone(),
        stop: stop.clone(),
        relay: Mutex::new(relay),
    };
    let mut workers = crew.workers(ios, tuns, boxes, windows, &registrar)?;
    insiders.are(all);
    signals.on_hang_up(move || reloader.hang_up());
    tracing::info!(device = %config.device, workers = workers.len(), "hub is ready");
    let outcome = worker::run_all(&mut workers, &stop);
    tracing::info!("hub stops");
    journal.note(Event::Stopped);
    let removed = gateway.remove(signals.is_restart());
    outcome.map_err(Failure::runtime)?;
    removed
}

/// Takes the control socket, gives `user` what becomes his, reads what only root may, starts the
/// helper, and gives up all that the helper has rights for, and root. What a run with another
/// `device` has left goes before that.
fn confine(
    config: &HubConfig,
    file: &Path,
    user: Option<&str>,
) -> Result<(Helper, Entrance, ReadAsRoot), Failure> {
    // It tells of another daemon with this config.
    let entrance = Entrance::open(&config.control)?;
    let kept = config.kept();
    let files = config.files(file);
    let user = confinement::hand_over(&kept, &files, user)?;
    claim::clean_up_before(&config.state, "hub", &config.device, || Ok(()));
    identity::settle(&config.state)?;
    supervisor::find();
    let read = ReadAsRoot::load(file, &config.api, &config.notify)?;
    let helper = Helper::start()?;
    let own = Belongings {
        file,
        named: &files[1..],
        kept: &kept,
        entrance: &entrance,
    };
    confinement::begin(&own, user)?;
    Ok((helper, entrance, read))
}

/// Who has all workers go over to another config.
fn reloader(
    file: &Path,
    running: &Arc<Running>,
    (journal, secrets): (&Journal, &Arc<Secrets>),
    insiders: &Arc<Insiders>,
) -> Arc<Reloader<Running>> {
    let told = Arc::clone(insiders);
    let change = move |next: &Arc<Running>| told.change(next);
    let (journal, secrets) = (journal.clone(), Arc::clone(secrets));
    Arc::new(Reloader::new(
        file.into(),
        running,
        journal,
        secrets,
        change,
    ))
}

/// Where the hub is asked.
fn front(
    config: &Arc<HubConfig>,
    reloader: &Arc<Reloader<Running>>,
    journal: &Journal,
    boxes: &mut Boxes,
    condition: &Arc<Condition>,
    started: Instant,
) -> Arc<Front> {
    Arc::new(Front {
        condition: Arc::clone(condition),
        reloader: Arc::clone(reloader),
        config: Arc::clone(config),
        started,
        workers: std::mem::take(&mut boxes.question_slots),
        journal: journal.clone(),
    })
}

/// Gives each worker a socket for every address; what they send has this routing mark. An address
/// may be missing for long, so a start that fails here is no event yet.
fn listen(config: &HubConfig, mark: u32, ios: &mut [Io]) -> Result<(), Failure> {
    for (index, &address) in config.listen.iter().enumerate() {
        let sockets = LinkSocket::listen_steered(address, ios.len(), WORKER_OCTET, Some(mark))?;
        for (io, socket) in ios.iter_mut().zip(sockets) {
            io.set_socket(SocketId(index as u32), address.ip(), Some(socket))
                .map_err(Failure::runtime)?;
        }
        tracing::info!(%address, "listening");
    }
    Ok(())
}

fn engine_config(config: &HubConfig, workers: usize) -> EngineConfig {
    EngineConfig {
        addresses: gateway::own_addresses(config)
            .iter()
            .map(IpNet::addr)
            .collect(),
        max_strangers: MAX_STRANGERS / workers,
        site_limit: config.site_limit,
        classes: classes(config),
        udp_flows: relay::flows_of_a_connection(config),
    }
}

/// Rules for flows that begin behind the hub.
fn classes(config: &HubConfig) -> HubClasses {
    let rules = (0..).map(ClassId).zip(&config.classes);
    let rules = rules.flat_map(|(id, class)| {
        let own = class.matches.iter();
        own.map(move |it| (it.rule(), id))
    });
    let names = config.classes.iter().map(|class| class.name.clone());
    HubClasses {
        classifier: Classifier::new(rules.collect(), ClassId::default()),
        names: names.collect(),
    }
}

/// What a worker says, as it saw that in its turns.
struct Answer {
    seen: Vec<Seen>,
    worker: WorkerStatus,
}

/// What a worker says, as the document shows it.
struct Report {
    tunnels: Vec<TunnelStatus>,
    links: Vec<LinkFacts>,
    worker: WorkerStatus,
}

impl Answer {
    fn tell(self) -> Report {
        let standings = Standings::new();
        let tunnels = self.seen.iter().map(|it| it.tunnels(None, &standings));
        Report {
            tunnels: tunnels.flatten().collect(),
            links: self.seen.into_iter().flat_map(|it| it.links).collect(),
            worker: self.worker,
        }
    }
}

/// Where a hub is asked: on threads of the control socket and the API, with what all workers say.
struct Front {
    reloader: Arc<Reloader<Running>>,
    config: Arc<HubConfig>,
    started: Instant,
    workers: Vec<Slot<Question<Answer>>>,
    journal: Journal,
    condition: Arc<Condition>,
}

impl Ask for Front {
    fn status(&self, request: &Request) -> Result<Status, Refused> {
        let answers = mailbox::ask_all(&self.workers, request)?;
        let reports = answers.into_iter().map(Answer::tell).collect();
        let found = self.condition.found();
        let mut status = status(&self.config, self.started, reports, &found);
        status.config = Some(self.reloader.status());
        status.notes.extend(self.reloader.notes());
        Ok(status)
    }

    fn answer(&self, request: Request) -> Response {
        match request {
            Request::Status | Request::Summary | Request::Flow { .. } => {
                Response::result(self.status(&request))
            }
            Request::Packet { ref packet } => {
                match sorted::sort(&self.reloader.running().config, packet) {
                    Some(reason) => Response::document(&reason),
                    None => Response::refused("no_packet", format!("`{packet}` is no packet")),
                }
            }
            Request::Events { wanted } => Response::document(&self.journal.read(&wanted)),
            Request::Disconnect { .. } => {
                let done = mailbox::ask_all(&self.workers, &request);
                done.map_or_else(Response::Refused, |_| Response::done())
            }
            Request::Identity => {
                Response::refused("not_an_edge", "a hub is no site: it keeps its own identity")
            }
            Request::Link { .. }
            | Request::Drill { .. }
            | Request::Limit { .. }
            | Request::Usage
            | Request::Speedtest { .. } => {
                Response::refused("not_an_edge", "a hub has no links of its own")
            }
            Request::Reload { confirm_seconds } => self.reloader.reload(confirm_seconds),
            Request::Keep => self.reloader.keep(),
            Request::Invitations { ref order } => invitations::answer(&self.config, order),
            Request::Leases => Response::result(invitations::leases(&self.config)),
            Request::Config { order } => self.reloader.handle_config(&order),
        }
    }
}

/// One document for all workers, sorted by site and class, with what the registrar found.
fn status(config: &HubConfig, started: Instant, reports: Vec<Report>, found: &Found) -> Status {
    let mut tunnels = Vec::new();
    let (mut workers, mut links) = (Vec::new(), Vec::new());
    for report in reports {
        tunnels.extend(report.tunnels);
        links.extend(report.links);
        workers.push(report.worker);
    }
    tunnels.sort_by(|a: &TunnelStatus, b| (&a.site, &a.class).cmp(&(&b.site, &b.class)));
    let mut sites = traffic::sites(&tunnels, &links);
    let mut notes = found.notes(config.device.as_str());
    notes.extend(found.add_away(&mut sites));
    found.add_refused(&mut sites);
    let (state, reason) = found.state();
    Status {
        schema: SCHEMA.into(),
        time: date::millis(SystemTime::now()),
        role: Role::Hub,
        version: env!("CARGO_PKG_VERSION").into(),
        state,
        reason,
        turned_away: false,
        uptime_seconds: started.elapsed().as_secs_f64(),
        device: config.device.to_string(),
        addresses: gateway::own_addresses(config)
            .iter()
            .map(IpNet::addr)
            .collect(),
        notes,
        links: Vec::new(),
        refused_lan: Vec::new(),
        sites,
        tunnels,
        leak: None,
        pools: found.pools.clone(),
        config: None,
        certificate: None,
        authority: found.authority.clone(),
        workers,
        confinement: confinement::status(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        daemon::tests::{path, tunnel},
        status::State,
    };

    const CONFIG: &[u8] = b"[hub]\nlisten = ['0.0.0.0:443']\npool = ['10.200.0.0/16']\n";

    fn config(more: &str) -> HubConfig {
        let text = [CONFIG, more.as_bytes()].concat();
        HubConfig::parse("hub.toml", &text).unwrap().config
    }

    fn report(tunnels: Vec<TunnelStatus>, handed_packets: u64) -> Report {
        Report {
            worker: WorkerStatus {
                tunnels: tunnels.len() as u64,
                handed_packets,
                ..WorkerStatus::default()
            },
            links: Vec::new(),
            tunnels,
        }
    }

    #[test]
    fn what_workers_report_is_one_document_in_which_a_site_is_in_one_place() {
        let reports = vec![
            report(vec![tunnel("van", "default"), tunnel("bike", "bulk")], 7),
            report(Vec::new(), 0),
            report(vec![tunnel("ship", "default"), tunnel("bike", "all")], 9),
        ];

        let status = status(&config(""), Instant::now(), reports, &Found::default());

        let tunnels: Vec<(&str, &str)> = status
            .tunnels
            .iter()
            .map(|tunnel| (tunnel.site.as_str(), tunnel.class.as_str()))
            .collect();
        let expected = [
            ("bike", "all"),
            ("bike", "bulk"),
            ("ship", "default"),
            ("van", "default"),
        ];
        assert_eq!(tunnels, expected);
        let workers: Vec<(u64, u64)> = status
            .workers
            .iter()
            .map(|worker| (worker.tunnels, worker.handed_packets))
            .collect();
        assert_eq!(workers, [(2, 7), (0, 0), (2, 9)], "by their number");
    }

    #[test]
    fn what_the_registrar_found_is_in_the_document() {
        let condition = Condition::default();
        let forwards_nothing = || Some("the host forwards nothing".to_owned());
        condition.note(condition::Trouble::Forwarding, forwards_nothing());
        condition.note_blockers(vec!["ip filter FORWARD".into()]);

        let status = status(&config(""), Instant::now(), Vec::new(), &condition.found());

        assert_eq!(status.state, State::Degraded);
        assert_eq!(status.reason, forwards_nothing());
        assert!(
            status.notes[0].contains("comes from sennit0"),
            "{:?}",
            status.notes
        );
    }

    #[test]
    fn a_hub_with_500_sites_says_a_third_less_without_paths() {
        let tunnels = (0..500).map(|number| {
            let mut tunnel = tunnel(&format!("site-{number}"), "default");
            tunnel.paths = ["starlink", "lte-a"].map(path).into();
            tunnel
        });
        let reports = vec![report(tunnels.collect(), 0)];
        let mut status = status(&config(""), Instant::now(), reports, &Found::default());
        let size = |status: &Status| serde_json::to_vec(status).unwrap().len();

        let whole = size(&status);
        status.leave_paths_out();

        println!("{whole} bytes with paths, {} without", size(&status));
        assert!(3 * size(&status) < 2 * whole);
    }

    #[test]
    fn all_workers_together_let_in_no_more_strangers_than_one() {
        for count in [1, 3, 8, 64] {
            let each = engine_config(&config(""), count).max_strangers;
            assert!((1..=MAX_STRANGERS).contains(&(each * count)));
        }
    }
}
