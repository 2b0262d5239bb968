//! Where and when acknowledgements leave, beside data ([`crate::acks`] says why that matters).

use std::time::Instant;

use noq_proto::PathId;
use sennit_core::PathSet;

use super::Tunnel;
use crate::{acks::Owed, gate::Payload, path::Path, pipe::Pipe, recovery::NEVER};

impl Tunnel {
    /// Stages padding for a path whose packets are to be acknowledged now, if noq would do it
    /// elsewhere.
    pub(super) fn acks_due(&mut self, now: Instant) -> Option<PathSet> {
        let codec = self.codec().filter(|codec| codec.is_numbered())?;
        let padding = codec.padding(0);
        if !self.is_ack_path_crowded(now) {
            return None;
        }
        let first = self.paths.iter().position(Path::is_trusted)?;
        let owes = |path: &Path| path.is_trusted() && path.owed.matters() && path.owed.is_due(now);
        let index = self.paths.iter().skip(first + 1).position(owes)? + first + 1;
        self.forget_due(now);
        let gate = &self.paths[index].gate;
        gate.set_floor(gate.in_flight() + 2 * self.packet_size);
        self.round.batch.clear();
        self.round.batch.push(Payload {
            bytes: padding,
            first_sent: now,
            repeats: NEVER,
            twins: None,
            half_of: None,
        });
        Some(PathSet::default().with(index))
    }

    /// Whether all that waits leaves room for acknowledgements in its packet, where they cost none
    /// of their own, and leaves by the path that they take anyway.
    pub(super) fn fits_beside_acks(&self, pipe: &Pipe) -> bool {
        let waiting = pipe.queue.backlog() as u64;
        let trusted = self.paths.iter().filter(|path| path.is_trusted());
        pipe.held.is_none() && (1..=self.packet_size / 2).contains(&waiting) && trusted.count() == 1
    }

    /// Whether noq is not asked now, because all it may have to send are acknowledgements for a
    /// crowded path, of which none is due.
    ///
    /// noq 1.4 lets the peer say once how many packets it wants acknowledged together, for the
    /// paths that there are then: the first. On the others it acknowledges every second packet.
    /// That is better, but for a narrow path.
    pub(super) fn saves_acks(&self, now: Instant) -> bool {
        self.round.only_acks == Some(true)
            && self.is_numbered()
            && self.is_ack_path_crowded(now)
            && !self.paths.iter().any(|path| path.owed.is_due(now))
    }

    /// Whether the path that noq sends acknowledgements on is crowded.
    fn is_ack_path_crowded(&self, now: Instant) -> bool {
        let mut trusted = self.paths.iter().filter(|path| path.is_trusted());
        trusted.next().is_some_and(|path| path.is_crowded(now))
    }

    /// When the first acknowledgement is due.
    pub(super) fn owes_until(&self) -> Option<Instant> {
        let due = || {
            self.paths
                .iter()
                .filter_map(|path| path.owed.due_at())
                .min()
        };
        self.round.only_acks.and_then(|_| due())
    }

    /// noq sends all acknowledgements that are due with the next packet, whichever path it is for.
    pub(super) fn forget_due(&mut self, now: Instant) {
        for path in &mut self.paths {
            if path.id != PathId::ZERO || path.owed.is_due(now) {
                path.owed = Owed::default();
            }
        }
    }
}
