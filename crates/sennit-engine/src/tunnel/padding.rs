//! Padding that shows what a path carries: packets of a size that is not known to arrive, and
//! packets that leave at once where it is not known how fast they arrive.

use bytes::Bytes;
use sennit_core::{PathSet, PathView};

use super::{Tunnel, round::FRAMING};
use crate::{gate::OPENING, path::Path};

impl Tunnel {
    /// Stages padding for a path of which it is not known whether it carries packets of that size.
    pub(super) fn size_probe_due(&mut self) -> Option<PathSet> {
        let padding = self
            .data
            .as_ref()
            .filter(|data| data.is_numbered())?
            .padding;
        let index = self
            .paths
            .iter()
            .zip(&self.round.views)
            .position(|(path, view)| path.probes_size.is_some() && view.budget > 0)?;
        let size = self.paths[index].probes_size.take()?;
        let most = self.conn.datagrams().max_size()?;
        let mut probe = padding.to_vec();
        probe.resize(
            most.min(u64::from(size).saturating_sub(FRAMING) as usize),
            0,
        );
        let paths = PathSet::default().with(index);
        self.put_aside(probe.into(), paths);
        Some(paths)
    }

    /// Stages packets of full size that leave at once on a path of which nothing is known, where
    /// one may have to lead: how they arrive tells what it carries before the first transfer
    /// starts.
    pub(super) fn opening_due(&mut self) -> Option<PathSet> {
        let is_due = |(path, view): (&Path, &PathView)| path.may_open(view, self.packet_size);
        let padding = self
            .data
            .as_ref()
            .filter(|data| data.is_numbered())?
            .padding;
        let index = self.paths.iter().zip(&self.round.views).position(is_due)?;
        if !self.scheduler.may_have_leader(&self.round.views) {
            return None;
        }
        self.paths[index].opened = true;
        let mut full = padding.to_vec();
        let fits = u64::from(self.paths[index].gate.carries()).saturating_sub(FRAMING) as usize;
        full.resize(self.conn.datagrams().max_size()?.min(fits), 0);
        let (full, paths) = (Bytes::from(full), PathSet::default().with(index));
        for _ in 0..OPENING {
            self.put_aside(full.clone(), paths);
        }
        Some(paths)
    }
}
