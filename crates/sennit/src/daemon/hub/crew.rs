//! What the workers of a hub begin with: by what each hears, and its machine.

use std::{
    sync::{Arc, mpsc::SyncSender},
    time::{Instant, SystemTime},
};

use aws_lc_rs::hmac;
use rustls::ServerConfig;
use sennit_engine::{Hub, Issuer, Settings};
use sennit_linux::{poller::Poller, tun::Tun};

use super::{
    Answer, Condition, Directory, Gateway, HANDOFF, QUESTIONS, VERDICTS, engine_config,
    machine::{Handed, HubMachine},
    registrar::{self, Neighbours, Query, Verdict},
    relay::{Order, Window},
};
use crate::{
    config::HubConfig,
    daemon::{
        handoff::Handoff,
        mailbox::{self, Hatch, Mailbox, Question, Slot},
        random_seed,
        worker::{Io, Lifeline, Worker},
    },
    exit::Failure,
    identity::{self, Authority, HubIdentity, Tickets, Trust},
    journal::Journal,
    store::Store,
};

/// By what all workers hear, and the other ends.
pub(super) struct Boxes {
    questions: Vec<Mailbox<Question<Answer>>>,
    verdicts: Vec<Mailbox<Verdict>>,
    inboxes: Vec<Mailbox<Handed>>,
    pub(super) question_slots: Vec<Slot<Question<Answer>>>,
    pub(super) verdict_slots: Arc<[Slot<Verdict>]>,
    hatches: Arc<[Hatch<Handed>]>,
}

impl Boxes {
    pub(super) fn open(pollers: &[Arc<Poller>]) -> Result<Self, Failure> {
        let (questions, question_slots) =
            mailbox::for_each(pollers, |it| mailbox::open(it, QUESTIONS))?;
        let (verdicts, verdict_slots) =
            mailbox::for_each(pollers, |it| mailbox::open(it, VERDICTS))?;
        let (inboxes, hatches) = mailbox::for_each(pollers, |it| Handoff::open_box(it, HANDOFF))?;
        Ok(Self {
            questions,
            verdicts,
            inboxes,
            question_slots,
            verdict_slots: verdict_slots.into(),
            hatches: hatches.into(),
        })
    }
}

/// What all machines have in common.
pub(super) struct Crew<'a> {
    config: &'a Arc<HubConfig>,
    tickets: Arc<Tickets>,
    trust: Arc<Trust>,
    tls: Arc<ServerConfig>,
    reset_key: [u8; 32],
    directory: Arc<Directory>,
    journal: &'a Journal,
    started: Instant,
}

impl<'a> Crew<'a> {
    pub(super) fn new(
        config: &'a Arc<HubConfig>,
        identity: &HubIdentity,
        journal: &'a Journal,
        started: Instant,
    ) -> Result<Self, Failure> {
        let tickets = Arc::new(Tickets::load(&config.state, SystemTime::now()));
        let trust = Arc::new(identity::trust(identity, config.require_pq)?);
        let tls = identity::server_config(&trust, Arc::clone(&tickets))?;
        Ok(Self {
            config,
            tickets,
            trust,
            tls: Arc::new(tls),
            reset_key: reset_key(identity),
            directory: Arc::default(),
            journal,
            started,
        })
    }

    /// Whom the registrar talks to.
    pub(super) fn neighbours(
        &self,
        boxes: &Boxes,
        gateway: &Arc<Gateway>,
        relay: Option<Slot<Order>>,
        condition: Arc<Condition>,
    ) -> Neighbours {
        Neighbours {
            verdicts: Arc::clone(&boxes.verdict_slots),
            directory: Arc::clone(&self.directory),
            condition,
            gateway: Arc::downgrade(gateway),
            journal: self.journal.clone(),
            trust: Arc::clone(&self.trust),
            relay,
        }
    }

    pub(super) fn start_registrar(
        &self,
        (store, authorities): (Store, Vec<Authority>),
        neighbours: Neighbours,
        lifeline: Lifeline,
    ) -> Result<SyncSender<Query>, Failure> {
        let (config, tickets) = (Arc::clone(self.config), Arc::clone(&self.tickets));
        registrar::start(store, authorities, config, tickets, neighbours, lifeline)
    }

    /// The workers, each with a queue of the TUN device.
    pub(super) fn workers(
        &self,
        ios: Vec<Io>,
        tuns: Vec<Tun>,
        boxes: Boxes,
        windows: Vec<Window>,
        registrar: &SyncSender<Query>,
    ) -> Result<Vec<Worker<HubMachine>>, Failure> {
        let (verdict_slots, hatches) = (boxes.verdict_slots, boxes.hatches);
        let (engine_config, mut windows) =
            (engine_config(self.config, ios.len()), windows.into_iter());
        let ears = boxes.questions.into_iter().zip(boxes.verdicts);
        let ears = ears.zip(boxes.inboxes);
        let parts = ios.into_iter().zip(tuns).zip(ears).enumerate();
        let worker = |(number, ((mut io, tun), ((questions, verdicts), inbox)))| {
            Io::add_tun(&mut io, tun).map_err(Failure::runtime)?;
            let settings = settings(self.config, number, self.reset_key)?;
            let (tls, started) = (Arc::clone(&self.tls), self.started);
            let engine = Hub::new(settings, engine_config.clone(), tls, started);
            let machine = HubMachine {
                hub: engine.map_err(Failure::runtime)?,
                number,
                directory: Arc::clone(&self.directory),
                queries: registrar.clone(),
                questions,
                telling: None,
                verdicts,
                verdict_slots: Arc::clone(&verdict_slots),
                handoff: Handoff::new(inbox, Arc::clone(&hatches)),
                journal: self.journal.clone(),
                window: windows.next(),
            };
            Ok(Worker { machine, io })
        };
        parts.map(worker).collect()
    }
}

/// From the key, so that it survives a restart: edges then learn at once that they must reconnect.
/// From the former one while there are two, as tunnels are there that know that one.
fn reset_key(identity: &HubIdentity) -> [u8; 32] {
    let identity = identity.former.as_deref().unwrap_or(identity);
    let key = hmac::Key::new(hmac::HMAC_SHA256, identity.key.secret_der());
    let tag = hmac::sign(&key, b"sennit stateless reset");
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn settings(config: &HubConfig, worker: usize, reset_key: [u8; 32]) -> Result<Settings, Failure> {
    Ok(Settings {
        inner_mtu: config.mtu,
        issuer: Issuer {
            worker: worker as u8,
            ..Issuer::default()
        },
        seed: random_seed()?,
        reset_key,
        rekey: config.rekey,
    })
}
