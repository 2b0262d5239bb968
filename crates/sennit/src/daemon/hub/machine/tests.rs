use std::{
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::SystemTime,
};

use sennit_engine::{HubClasses, HubConfig, Issuer, Rekey, Settings};
use sennit_linux::poller::Poller;
use tempfile::TempDir;

use super::*;
use crate::{
    control::Request,
    daemon::mailbox,
    identity::{self, HubIdentity, Tickets},
    journal::Keeper,
};

const VAN: [u8; 4] = [10, 200, 0, 2];

/// The second of two workers, and what the others hear of it.
struct World {
    machine: HubMachine,
    queries: Receiver<Query>,
    /// What the first worker hears.
    verdicts: Mailbox<Verdict>,
    handoff: Handoff<Handed>,
    questions: [Slot<Question<Answer>>; 1],
    io: Io,
    now: Instant,
    _keeper: Keeper,
    _state: TempDir,
}

impl World {
    fn new() -> Self {
        let (state, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let keeper = Keeper::start(&state.path().join("journal.db")).unwrap();
        let poller = Arc::new(Poller::new().unwrap());
        let (queries, queried) = sync_channel(1);
        let (questions, asked) = mailbox::open(&poller, QUESTIONS).unwrap();
        let (verdicts, first) = mailbox::open(&poller, VERDICTS).unwrap();
        let (own, second) = mailbox::open(&poller, VERDICTS).unwrap();
        let [one, other] = [0; 2].map(|_| Handoff::open_box(&poller, HANDOFF).unwrap());
        let hatches: Arc<[_]> = [one.1, other.1].into();
        let machine = HubMachine {
            hub: engine(&state, now),
            number: 1,
            directory: Arc::default(),
            queries,
            questions,
            telling: None,
            verdicts: own,
            verdict_slots: [first, second].into(),
            handoff: Handoff::new(other.0, Arc::clone(&hatches)),
            journal: keeper.journal().clone(),
            window: None,
        };
        Self {
            machine,
            queries: queried,
            verdicts,
            handoff: Handoff::new(one.0, hatches),
            questions: [asked],
            io: Io::new(poller),
            now,
            _keeper: keeper,
            _state: state,
        }
    }

    /// The machine says that it has a tunnel of the van, or no more.
    fn note(&mut self, is_up: bool) {
        let (of, class) = (("van".into(), "default".into()), ClassId(0));
        if is_up {
            let addresses = [IpAddr::from(VAN)];
            self.machine.note_tunnel_up(of, class, &addresses);
        } else {
            self.machine
                .note_tunnel_down(of, class, "it broke".to_owned());
        }
    }
}

fn engine(state: &TempDir, now: Instant) -> Hub {
    let (path, today) = (state.path(), SystemTime::now());
    let names = ["hub.example".to_owned()];
    let identity = HubIdentity::init(path, &names, today).unwrap();
    let trust = Arc::new(identity::trust(&identity, false).unwrap());
    let tickets = Arc::new(Tickets::load(path, today));
    let tls = Arc::new(identity::server_config(&trust, tickets).unwrap());
    let settings = Settings {
        inner_mtu: 1400,
        issuer: Issuer::default(),
        seed: [1; 32],
        reset_key: [2; 32],
        rekey: Rekey::default(),
    };
    let config = HubConfig {
        addresses: vec![IpAddr::from([10, 200, 0, 1])],
        max_strangers: 16,
        site_limit: None,
        classes: HubClasses::default(),
        udp_flows: 0,
    };
    Hub::new(settings, config, tls, now).unwrap()
}

/// A UDP packet from behind the hub to this address.
fn packet(to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[3] = 28;
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[192, 0, 2, 9]);
    packet[16..20].copy_from_slice(&to);
    packet[25] = 8;
    packet
}

#[test]
fn the_worker_that_had_a_class_is_told_that_another_has_a_newer_tunnel() {
    let mut world = World::new();
    let directory = Arc::clone(&world.machine.directory);
    directory.enter(0, "van", ClassId(0), &[IpAddr::from(VAN)]);

    world.note(true);

    let told = world.verdicts.next();
    let Some(Verdict::Replace { site, class }) = told else {
        panic!("{told:?}");
    };
    assert_eq!((site.as_str(), class), ("van", ClassId(0)));
    assert_eq!(directory.worker_of(IpAddr::from(VAN)), Some(1));
}

#[test]
fn the_registrar_hears_that_the_last_tunnel_of_a_site_is_gone() {
    let mut world = World::new();
    world.note(true);
    assert!(world.queries.try_recv().is_err());

    world.note(false);

    assert!(matches!(world.queries.try_recv(), Ok(Query::Announced)));
    assert_eq!(world.machine.directory.worker_of(IpAddr::from(VAN)), None);
}

#[test]
fn a_packet_for_a_site_of_another_worker_is_handed_over() {
    let mut world = World::new();
    let directory = Arc::clone(&world.machine.directory);
    directory.enter(0, "van", ClassId(0), &[IpAddr::from(VAN)]);
    let (header, now) = (VirtioNetHdr::default(), world.now);

    for to in [VAN, [10, 200, 0, 3]] {
        world.machine.handle_packet(0, &header, &packet(to), now);
    }
    world.machine.digest(&mut world.io, now);

    let handed = world.handoff.take();
    assert!(matches!(&handed[..], [Handed::Packet { packet: it, .. }] if **it == packet(VAN)));
    assert_eq!(world.machine.handoff.counters.handed, 1);
}

#[test]
fn what_was_handed_over_and_is_nobodys_here_either_goes_no_further() {
    let mut world = World::new();
    let handed = Handed::Packet {
        header: VirtioNetHdr::default(),
        packet: packet(VAN).into(),
    };
    world.handoff.hand(1, handed);

    let now = world.now;
    world.machine.handle_ready(HANDOFF, &mut world.io, now);

    let counters = world.machine.handoff.counters;
    assert_eq!((counters.unowned, counters.handed), (1, 0));
}

#[test]
fn who_asks_a_registrar_that_is_busy_is_not_left_to_wait() {
    let mut world = World::new();
    let now = world.now;
    for request in [7, 8] {
        let asked = (Vec::new(), None, false);
        let request = RequestId::of_nobody(request);
        world.machine.handle_connect(request, asked, now);
    }

    let asked = world.queries.try_recv();
    assert!(matches!(asked, Ok(Query::Connect { worker: 1, .. })));
    assert!(world.queries.try_recv().is_err(), "there was no room");
}

#[test]
fn each_question_is_answered_in_a_turn_of_its_own() {
    let mut world = World::new();
    let (questions, now) = (&world.questions, world.now);
    let answers = thread::scope(|scope| {
        let ask = || mailbox::ask_all(questions, &Request::Summary);
        let askers = [scope.spawn(ask), scope.spawn(ask)];
        while !askers.iter().all(thread::ScopedJoinHandle::is_finished) {
            world.machine.handle_ready(QUESTIONS, &mut world.io, now);
            assert!(world.machine.telling.is_none(), "there is no tunnel");
            thread::yield_now();
        }
        askers.map(|it| it.join().unwrap().unwrap())
    });
    let tunnels = answers.map(|answer| answer[0].worker.tunnels);
    assert_eq!(tunnels, [0, 0]);
}
