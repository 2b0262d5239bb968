//! Padding that shows what a path carries: packets of a size that is not known to arrive, packets
//! that leave at once where it is not known how fast they arrive, and packets of which it is not
//! known whether noq sends them.

use std::time::Instant;

use bytes::Bytes;
use sennit_core::{PathSet, PathView};

use super::{Tunnel, fitting::FRAMING};
use crate::{gate::OPENING, path::Path};

impl Tunnel {
    /// Stages padding for a path of which it is not known whether it carries packets of that size.
    pub(super) fn size_probe_due(&mut self) -> Option<PathSet> {
        let due = |(path, view): (&Path, &PathView)| path.probes_size.is_some() && view.budget > 0;
        let mut paths = self.paths.iter().zip(&self.round.views);
        let index = paths.position(due).filter(|_| self.is_numbered())?;
        let size = self.paths[index].probes_size.take()?;
        let probe = self.padding_of(u64::from(size))?;
        let paths = PathSet::default().with(index);
        self.put_aside(probe, paths);
        Some(paths)
    }

    /// Stages padding for a path that noq refused to send on: its address may be validated by now,
    /// and while nothing flows nothing else shows it.
    pub(super) fn trial_due(&mut self, now: Instant) -> Option<PathSet> {
        let is_due = |path: &Path| path.trial_at().is_some_and(|at| at <= now);
        let index = self.paths.iter().position(is_due);
        let index = index.filter(|_| self.is_numbered())?;
        let trial = self.padding_of(0)?;
        let paths = PathSet::default().with(index);
        self.put_aside(trial, paths);
        Some(paths)
    }

    /// Stages packets of full size that leave at once on a path of which nothing is known, where
    /// one may have to lead: how they arrive tells what it carries before the first transfer
    /// starts. While packets flow, an end that only answers has no use for it, and would hold up
    /// its answers for a second where the way back is narrow.
    pub(super) fn opening_due(&mut self) -> Option<PathSet> {
        if self.activity.only_answers(self.round.polled) {
            return None;
        }
        let is_due = |(path, view): (&Path, &PathView)| path.may_open(view, self.packet_size);
        let mut paths = self.paths.iter().zip(&self.round.views);
        let index = paths.position(is_due).filter(|_| self.is_numbered())?;
        if !self.scheduler.may_have_leader(&self.round.views) {
            return None;
        }
        self.paths[index].opened = true;
        let full = self.padding_of(u64::from(self.paths[index].gate.carries()))?;
        let paths = PathSet::default().with(index);
        // So few packets do not fill a path: late acknowledgements of them are no queue, and
        // startup must not end by them.
        self.paths[index].gate.set_limited();
        for _ in 0..OPENING {
            self.put_aside(full.clone(), paths);
        }
        Some(paths)
    }

    /// Padding that fills a UDP payload of `size` bytes, if noq takes a datagram that long.
    fn padding_of(&mut self, size: u64) -> Option<Bytes> {
        let most = self.conn.datagrams().max_size()?;
        let fits = size.saturating_sub(FRAMING) as usize;
        Some(self.codec()?.padding(fits.min(most)))
    }
}
