//! The engines of all workers, when who this edge is, or by what it proves that, changes.

use std::time::Instant;

use sennit_engine::Edge;

use super::EdgeMachine;
use crate::{
    daemon::{
        edge::{
            far_side::Proofs,
            letter::{Letter, TakesNot},
        },
        worker::Io,
    },
    identity::EdgeIdentity,
    site::SiteName,
};

impl EdgeMachine {
    /// Goes on as who was found in the state directory.
    pub(super) fn take_up(
        &mut self,
        identity: EdgeIdentity,
        io: &mut Io,
        now: Instant,
    ) -> Result<(), TakesNot> {
        let Some(lead) = &mut self.lead else {
            return Ok(());
        };
        if lead.take_up(identity)? {
            self.start_over(io, now);
        }
        Ok(())
    }

    /// Shows a fresh certificate from now on.
    pub(super) fn renew(&mut self, identity: EdgeIdentity) {
        let lead = self.lead.as_mut();
        let Some(proofs) = lead.and_then(|lead| lead.renew(identity)) else {
            return;
        };
        for slot in &self.letter_slots[1..] {
            slot.post(Letter::Proofs(proofs.clone()));
        }
        self.prove_by(proofs);
    }

    pub(super) fn prove_by(&mut self, proofs: Proofs) {
        let Proofs {
            tls,
            classic,
            server_name,
        } = proofs;
        if let Err(error) = self.edge.set_tls(tls, Some(classic), server_name) {
            tracing::error!(%error, "cannot use the fresh certificate");
        }
    }

    /// Replaces the engines of all workers by new ones with the present identity.
    pub(super) fn start_over(&mut self, io: &mut Io, now: Instant) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        let Some(engines) = lead.engines(self.portion.workers, now) else {
            return;
        };
        let site = lead.site();
        let mut engines = engines.into_iter();
        let own = engines.next().expect("there is a worker");
        for (slot, engine) in self.letter_slots[1..].iter().zip(engines) {
            slot.post(Letter::Engine(Box::new(engine), site.clone()));
        }
        self.replace((own, site), io, now);
    }

    pub(super) fn replace(&mut self, (engine, site): (Edge, SiteName), io: &mut Io, now: Instant) {
        self.site = site;
        self.told.clear();
        self.edge.close(now);
        let mut buffer = Vec::new();
        io.flush_transmits(|buffer| self.edge.poll_transmit(buffer, now), &mut buffer);
        self.edge = engine;
        self.set_up(0, now);
        // It was made under the config of the first worker, which may be another by now.
        self.follow_running(now);
        self.links.announce(&mut self.edge, now);
        self.tell_resolved(now);
    }
}
