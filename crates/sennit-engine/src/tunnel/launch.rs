//! How a batch leaves: in noq's queue, on one path after the other.

use noq_proto::PathStatus;
use sennit_core::{PathSet, Worth, health::Copies};

use super::{Tunnel, round::Sending};
use crate::{gate::Payload, pipe::Pipe, recovery::NEVER};

impl Tunnel {
    /// Whether what leaves now is of a batch that the links granted.
    pub(crate) fn sends_granted(&self) -> bool {
        self.round.sends_granted()
    }

    /// Whether what leaves on a path that is not known yet, or not trusted, is not missed there,
    /// because it leaves on another one where it is.
    fn is_spare(&self, path: usize, left: PathSet) -> bool {
        // Acknowledgements may go out on a path before the first look at the paths.
        let spare = |path: usize| {
            let view = self.round.views.get(path);
            view.is_some_and(|it| it.worth == Worth::Unknown || it.copies != Copies::None)
        };
        spare(path) && (self.round.is_missed || left.iter().any(|other| !spare(other)))
    }

    /// Queues the batch inside noq with only the first path's gate open.
    pub(super) fn launch(&mut self, pipe: &mut Pipe, paths: PathSet) -> Sending {
        let Some(path) = paths.first() else {
            return Sending::Data;
        };
        self.lend(path, PathStatus::Available);
        let is_spare = !self.watches_copies(pipe) && self.is_spare(path, paths.without_first());
        self.round.is_missed |= !is_spare;
        let watches = self.watches_losses(pipe) && !is_spare;
        let owes = pipe.recovery.owes(self.round.polled) && !is_spare;
        let again = paths.without_first().first().is_some();
        let (batch, mut datagrams) = (&mut self.round.batch, self.conn.datagrams());
        let (count, room) = (batch.len(), datagrams.send_buffer_space());
        let queued = datagrams.send_many(&batch.datagrams, false);
        let queued = queued.unwrap_or_else(|_| {
            batch.limit(datagrams.max_size().unwrap_or(0));
            datagrams.send_many(&batch.datagrams, false).unwrap_or(0)
        });
        pipe.stats.too_big += (count - queued) as u64;
        if watches || owes {
            let mut ledger = self.paths[path].gate.ledger();
            let is_watched = |sent| watches || pipe.recovery.is_owed(sent);
            let stage = |payload: Payload| {
                if payload.repeats < NEVER && is_watched(payload.first_sent) {
                    ledger.stage(payload);
                }
            };
            if again {
                batch.copies().take(queued).for_each(stage);
            } else {
                batch.drain().take(queued).for_each(stage);
            }
        }
        let left = datagrams.send_buffer_space();
        self.round.launched = (left < room).then_some(left);
        for (index, other) in self.paths.iter().enumerate() {
            other.gate.set_open(index == path);
        }
        Sending::Batch(paths)
    }

    /// Changes the status of a path that is not trusted for as long as a batch leaves there: noq
    /// sends nothing on it while it is `Backup` and another is not.
    fn lend(&mut self, path: usize, status: PathStatus) {
        if !self.paths[path].is_trusted() {
            // Fails only for a path that is closing.
            let _ = self.conn.set_path_status(self.paths[path].id, status);
        }
    }

    pub(super) fn finish_batch(&mut self, pipe: &mut Pipe, paths: PathSet) -> Sending {
        if let Some(path) = paths.first() {
            self.lend(path, PathStatus::Backup);
            let kept = self.round.launched == Some(self.conn.datagrams().send_buffer_space());
            self.paths[path].handle_batch(kept, self.round.polled);
            let left = self.paths[path].gate.ledger().end_batch();
            if kept || pipe.recovery.is_reliable() {
                self.send_left(pipe, left);
            }
            if kept && self.is_numbered() {
                self.round.views[path].usable = false;
                self.scheduler.assess(&mut self.round.views);
            }
        }
        let left = paths.without_first();
        if left.first().is_some() {
            return self.launch(pipe, left);
        }
        self.open_gates();
        Sending::Data
    }

    /// Sends again what noq keeps of a batch: it may leave by another path one day, and then nobody
    /// knows by which packet.
    fn send_left(&self, pipe: &mut Pipe, left: Vec<Payload>) {
        let (slowest, now) = (self.slowest(), self.round.polled);
        let repairs = self.repairs(pipe);
        for payload in left {
            if !repairs && !pipe.recovery.is_owed(payload.first_sent) {
                continue;
            }
            let worth = pipe.recovery.handle_lost(payload, slowest, now);
            pipe.stats.unrepaired += u64::from(!worth);
        }
    }

    pub(super) fn open_gates(&self) {
        for path in &self.paths {
            path.gate.set_open(true);
        }
    }
}
