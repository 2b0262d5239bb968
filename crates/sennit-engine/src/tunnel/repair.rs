//! Sends again what paths have lost, as far as [`Recovery`](crate::recovery::Recovery) says.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sennit_core::{PathSet, Policy, Worth};

use super::{Tunnel, batch::BATCH};
use crate::{
    codec::Codec,
    gate::Payload,
    path::{Path, number},
    pipe::Pipe,
    recovery::repair_time,
};

/// A round trip is taken for usual up to this many times the least.
const USUAL_RTT: f64 = 1.5;

impl Tunnel {
    /// Whether lost datagrams are sent again. What is sent twice anyway is not.
    pub(super) fn repairs(&self, pipe: &Pipe) -> bool {
        pipe.recovery.repairs()
            && self.scheduler.policy() != Policy::Redundant
            && self.is_numbered()
    }

    fn slowest(&self) -> Duration {
        let round_trips = self.paths.iter().map(Path::srtt);
        round_trips.max().unwrap_or_default()
    }

    /// Collects what the paths have lost. What a tunnel loses that is plugged in no longer is
    /// nobody's.
    pub(super) fn collect_lost(&mut self, pipe: &mut Pipe, now: Instant) {
        let (repairs, slowest) = (self.repairs(pipe), self.slowest());
        for path in &self.paths {
            if !path.gate.ledger().has_lost() {
                continue;
            }
            for payload in path.gate.ledger().take_lost() {
                if !repairs || !pipe.recovery.handle_lost(payload, slowest, now) {
                    pipe.stats.unrepaired += 1;
                }
            }
        }
    }

    pub(super) fn has_repairs(&self, pipe: &Pipe) -> bool {
        let given_up = |path: &Path| path.gate.ledger().has_given_up();
        let waits = || !pipe.recovery.is_empty() || self.paths.iter().any(given_up);
        self.repairs(pipe) && waits()
    }

    /// The next datagram to be sent again.
    fn next_repair(&mut self, pipe: &mut Pipe, slowest: Duration, now: Instant) -> Option<Payload> {
        if let Some(payload) = pipe.recovery.pop() {
            return Some(payload);
        }
        loop {
            let given_up = |path: &Path| path.gate.ledger().take_given_up();
            let payload = self.paths.iter().find_map(given_up)?;
            if pipe.recovery.is_worth_repair(&payload, slowest, now) {
                return Some(payload);
            }
            pipe.stats.unrepaired += 1;
        }
    }

    /// Stages what was lost for the path on which it arrives first.
    pub(super) fn repair_due(&mut self, pipe: &mut Pipe, now: Instant) -> Option<PathSet> {
        if !self.has_repairs(pipe) {
            return None;
        }
        let path = self.soonest()?;
        let paths = PathSet::default().with(path);
        let (fit, slowest) = (self.fit(paths), self.slowest());
        while self.round.batch.len() < BATCH && self.round.views[path].budget > 0 {
            let Some(payload) = self.next_repair(pipe, slowest, now) else {
                break;
            };
            let Some(payload) = self.in_form(pipe, payload, fit.is_none(), now) else {
                pipe.stats.unrepaired += 1;
                continue;
            };
            if !self.is_taken(payload.bytes.len(), fit, self.round.batch.load()) {
                pipe.recovery.put_back(payload);
                break;
            }
            self.note_carried(payload.bytes.len(), paths, now);
            let again = Payload {
                bytes: self.redate(pipe, &payload.bytes, now),
                first_sent: payload.first_sent,
                repeats: payload.repeats.saturating_add(1),
            };
            pipe.stats.repaired += 1;
            self.push(pipe, again, paths, fit);
        }
        Some(paths)
    }

    /// The path on which something arrives first.
    pub(super) fn soonest(&self) -> Option<usize> {
        let views = self.round.views.iter().enumerate();
        views
            .filter(|(_, view)| view.usable && view.worth == Worth::Full && view.budget > 0)
            .min_by_key(|(_, view)| (view.tier, view.srtt))
            .map(|(path, _)| path)
    }

    /// What is sent again for a payload: a thin one is whole on a path that carries no packets of
    /// full size. `None` if the other end could not restore it.
    fn in_form(
        &self,
        pipe: &Pipe,
        payload: Payload,
        may_be_thin: bool,
        now: Instant,
    ) -> Option<Payload> {
        let Some(codec) = self.codec() else {
            return Some(payload);
        };
        let clock = pipe.numbering.clock(now);
        let bytes = codec.again(&payload.bytes, may_be_thin, payload.first_sent, clock)?;
        Some(Payload { bytes, ..payload })
    }

    /// Stages a template that the other end is to hear of.
    pub(super) fn template_due(&mut self, pipe: &mut Pipe, now: Instant) -> Option<PathSet> {
        if !self.codec().is_some_and(Codec::has_offer) {
            return None;
        }
        let path = self.soonest()?;
        let offer = self.codec.as_mut()?.poll_offer(now)?;
        let paths = PathSet::default().with(path);
        self.put_aside(pipe, offer, paths);
        Some(paths)
    }

    /// The datagram with the time at which it is sent now.
    fn redate(&self, pipe: &Pipe, datagram: &Bytes, now: Instant) -> Bytes {
        let again = |codec: &Codec| codec.redate(datagram, pipe.numbering.clock(now));
        self.codec().map_or_else(|| datagram.clone(), again)
    }

    /// How long a packet may be missing here because it is sent again.
    pub(super) fn repair_time(&self, pipe: &Pipe) -> Duration {
        if !self.repairs(pipe) {
            return Duration::ZERO;
        }
        let resequencer = &pipe.resequencer;
        let polled = self.round.polled;
        let is_used = |path: &&Path| resequencer.is_used(number(path.id), polled);
        let of_used = self.paths.iter().filter(is_used).map(usual_rtt).max();
        repair_time(self.slowest(), of_used.unwrap_or_default())
    }
}

/// The smoothed round trip of a path, without what it has just grown by.
fn usual_rtt(path: &Path) -> Duration {
    let least = path.gate.min_rtt().unwrap_or_default();
    path.srtt().min(least.mul_f64(USUAL_RTT))
}
