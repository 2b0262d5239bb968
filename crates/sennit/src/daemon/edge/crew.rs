//! What the workers of an edge begin with: by what each hears, and its machine.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc::Sender},
};

use sennit_engine::Edge;
use sennit_linux::poller::Poller;
use sennit_masque::capsule::NextAuthority;

use super::{
    HANDOFF, LETTERS, Portion, QUESTIONS,
    answer::Answer,
    class_devices,
    ground::{Ground, Host},
    lead::Lead,
    letter::Letter,
    links::Links,
    machine::{EdgeMachine, Handed},
    running::Running,
};
use crate::{
    daemon::{
        handoff::Handoff,
        mailbox::{self, Hatch, Mailbox, Question, Slot},
        worker::{Io, Worker},
    },
    exit::Failure,
    journal::Journal,
    site::SiteName,
};

/// By what all workers hear, and the other ends.
pub(super) struct Boxes {
    questions: Vec<Mailbox<Question<Answer>>>,
    letters: Vec<Mailbox<Letter>>,
    inboxes: Vec<Mailbox<Handed>>,
    pub(super) question_slots: Vec<Slot<Question<Answer>>>,
    pub(super) letter_slots: Arc<[Slot<Letter>]>,
    hatches: Arc<[Hatch<Handed>]>,
}

impl Boxes {
    pub(super) fn open(pollers: &[Arc<Poller>]) -> Result<Self, Failure> {
        let (questions, question_slots) =
            mailbox::for_each(pollers, |it| mailbox::open(it, QUESTIONS))?;
        let (letters, letter_slots) = mailbox::for_each(pollers, |it| mailbox::open(it, LETTERS))?;
        let (inboxes, hatches) = mailbox::for_each(pollers, |it| Handoff::open_box(it, HANDOFF))?;
        Ok(Self {
            questions,
            letters,
            inboxes,
            question_slots,
            letter_slots: letter_slots.into(),
            hatches: hatches.into(),
        })
    }
}

/// What all machines have in common.
pub(super) struct Crew<'a> {
    running: &'a Arc<Running>,
    site: SiteName,
    journal: &'a Journal,
    host: &'a Host,
    moves: Sender<NextAuthority>,
}

impl<'a> Crew<'a> {
    pub(super) fn new(
        running: &'a Arc<Running>,
        site: SiteName,
        journal: &'a Journal,
        host: &'a Host,
        moves: Sender<NextAuthority>,
    ) -> Self {
        Self {
            running,
            site,
            journal,
            host,
            moves,
        }
    }

    /// The workers; the first has the lead.
    pub(super) fn workers(
        &self,
        ios: Vec<Io>,
        engines: Vec<Edge>,
        boxes: Boxes,
        lead: Lead,
    ) -> Vec<Worker<EdgeMachine>> {
        let (mut lead, workers) = (Some(lead), ios.len());
        let (letter_slots, hatches) = (boxes.letter_slots, boxes.hatches);
        let ears = boxes.questions.into_iter().zip(boxes.letters);
        let ears = ears.zip(boxes.inboxes);
        let parts = ios.into_iter().zip(engines).zip(ears).enumerate();
        let worker = |(number, ((io, edge), ((questions, letters), inbox)))| {
            let portion = Portion { number, workers };
            let own = class_devices(&self.running.config)
                .map(|(class, _)| class)
                .filter(|&class| portion.has(class));
            let machine = EdgeMachine {
                edge,
                portion,
                site: self.site.clone(),
                links: Links::new(
                    self.running,
                    number == 0,
                    self.journal.clone(),
                    Ground::new(&self.running.config.device, self.host),
                ),
                devices: std::iter::once(None).chain(own.map(Some)).collect(),
                questions,
                letters,
                letter_slots: Arc::clone(&letter_slots),
                handoff: Handoff::new(inbox, Arc::clone(&hatches)),
                resolved: Arc::default(),
                lead: lead.take(),
                told: BTreeMap::new(),
                running: Arc::clone(self.running),
                up: 0,
                journal: self.journal.clone(),
                moves: self.moves.clone(),
            };
            Worker { machine, io }
        };
        parts.map(worker).collect()
    }
}
