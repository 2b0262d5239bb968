//! How a worker answers: a few tunnels in each turn, with the packets of that turn between them.
//!
//! A hub with many tunnels would hold up its packets if it told of all at once. Each tunnel is told
//! whole, as it is in its turn; what comes or goes meanwhile is in the answer or not.

use std::time::Instant;

use sennit_engine::hub::Walk;

use super::HubMachine;
use crate::{
    control::Request,
    daemon::{
        facts::{self, Seen},
        hub::Answer,
        mailbox::Question,
    },
    status::WorkerStatus,
};

/// A question, and what has been said to it so far.
pub(in crate::daemon::hub) struct Telling {
    question: Question<Answer>,
    walk: Walk,
    seen: Vec<Seen>,
}

impl HubMachine {
    /// Goes on with the answer to the question that came first.
    pub(super) fn tell_on(&mut self, now: Instant) {
        let begun = self.telling.take();
        let Some(mut telling) = begun.or_else(|| self.begin_to_tell(now)) else {
            return;
        };
        let wanted = facts::wanted_flows(&telling.question.request);
        let walk = &mut telling.walk;
        let tunnels = self.hub.status_of_next(walk, &wanted, now);
        let is_over = walk.is_over();
        let links = if is_over {
            self.hub.links()
        } else {
            Vec::new()
        };
        let seen = Seen::new(tunnels, links, |_, _| None, now);
        telling.seen.push(seen);
        if is_over {
            let worker = self.tell_of_worker(&telling.seen);
            let seen = telling.seen;
            telling.question.answer(Answer { seen, worker });
        } else {
            self.telling = Some(telling);
        }
        self.questions.put_off();
    }

    fn begin_to_tell(&mut self, now: Instant) -> Option<Telling> {
        let question = self.questions.next()?;
        if let Request::Disconnect { site } = &question.request {
            let site = site.as_str().into();
            self.hub.expel(&site, "the site is revoked", now);
        }
        Some(Telling {
            question,
            walk: Walk::default(),
            seen: Vec::new(),
        })
    }

    fn tell_of_worker(&self, seen: &[Seen]) -> WorkerStatus {
        let strangers = self.hub.strangers();
        let tunnels = seen.iter().map(Seen::len).sum();
        WorkerStatus {
            turned_away_packets: self.hub.turned_away(),
            strangers: strangers.now as u64,
            retried_strangers: strangers.asked_to_retry,
            refused_strangers: strangers.refused,
            completed_handshakes: strangers.completed,
            failed_handshakes: strangers.failed,
            ..self.handoff.counters.status(tunnels, self.hub.woken())
        }
    }
}
