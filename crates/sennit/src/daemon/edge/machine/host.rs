//! What happens on the host: links that come and go, and what others take from it of ours.

use std::{sync::Arc, time::Instant};

use super::EdgeMachine;
use crate::daemon::{
    edge::{
        letter::Letter,
        watch::{Change, Found},
    },
    worker::Io,
};

impl EdgeMachine {
    /// Looks at the links' interfaces, for all workers.
    pub(in crate::daemon::edge) fn look(&mut self, io: &mut Io, now: Instant) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        let found: Arc<[Found]> = lead.watch.look(&lead.host, now).into();
        lead.outlook.set_ways(self.links.ways(&found));
        self.links.follow(&found, &mut self.edge, io, now);
        for slot in &self.letter_slots[1..] {
            slot.post(Letter::Links(Arc::clone(&found)));
        }
    }

    /// Follows what the kernel reports.
    pub(super) fn handle_kernel(&mut self, io: &mut Io, now: Instant) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        let change = lead.watch.changed();
        if change != Change::Nothing {
            lead.upkeep.handle_change(now);
        }
        match change {
            Change::Links => self.look(io, now),
            Change::Ways => lead.watch.want_look(now),
            Change::Ours | Change::Nothing => {}
        }
    }

    /// Looks again at links for which something was refused, or whose ways have changed, and puts
    /// back what is missing.
    pub(super) fn look_after_host(&mut self, io: &mut Io, now: Instant) {
        let lead = self.lead.as_ref();
        if lead.is_some_and(|lead| lead.watch.is_to_look(now)) || self.links.is_to_look(now) {
            match &self.lead {
                Some(_) => self.look(io, now),
                None => self.letter_slots[0].post(Letter::Look),
            }
        }
        if let Some(lead) = &mut self.lead {
            lead.look_after_host(now);
        }
    }
}
