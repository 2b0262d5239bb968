//! Packets that repairs protect: what leaves for them, and what arrives.

use std::{
    iter::zip,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_core::{
    PathSet, Policy, Worth,
    frame::{SourceHeader, Tidings},
};
use sennit_fec::Repair;

use super::{Tunnel, batch::BATCH, fitting::Fit};
use crate::{
    codec,
    codec::Codec,
    gate::Ledger,
    inner::Packet,
    path::Path,
    pipe::Pipe,
    protection::{LISTENS_FOR, Outlook, Symbols, WAITS_FOR, is_crowded},
};

/// A repair takes up a path that carries less than this part of the widest one.
const NARROW: u64 = 16;
/// A repair by a path whose round trip is longer by more than this comes too late to be of use.
const MOST_APART: Duration = Duration::from_millis(60);

impl Tunnel {
    pub(crate) fn takes_repairs(&self) -> bool {
        self.codec().is_some_and(Codec::takes_repairs)
    }

    /// Lets `auto` see what the paths are like, now and then.
    pub(super) fn look_at_protection(&self, pipe: &mut Pipe, now: Instant) {
        if !pipe.protection.is_look_due(now) {
            return;
        }
        let used = || zip(&self.paths, &self.round.views).filter(|(_, view)| view.usable);
        let weight = |path: &Path| path.gate.rate(path.srtt()).max(1) as f64;
        let all: f64 = used().map(|(path, _)| weight(path)).sum();
        let mean = |loss: Measure| {
            let lost = used().map(|(path, _)| own(path, loss, now) * weight(path));
            lost.sum::<f64>() / all.max(1.0)
        };
        let (lost, in_bursts) = used().fold((0.0, 0.0), |(all, bursts), (path, _)| {
            let lost = own_loss(path, now) * weight(path);
            (all + lost, bursts + lost * path.gate.ledger().burst())
        });
        let outlook = Outlook {
            loss: mean(Ledger::loss),
            loss_at_first: mean(Ledger::loss_at_first),
            loss_counted: mean(Ledger::loss_counted),
            burst: if lost > 0.0 { in_bursts / lost } else { 1.0 },
            sent: pipe.stats.packets_in,
            waits: !pipe.queue.is_empty(),
            round_trip: used()
                .map(|(path, _)| path.srtt())
                .min()
                .unwrap_or_default(),
            repairs: pipe.recovery.repairs(),
            copies: self.scheduler.policy() == Policy::Redundant,
            taken: self.takes_repairs(),
        };
        pipe.protection.look(&outlook, now);
    }

    /// Whether a repair or tidings wait for a path.
    pub(super) fn has_protection(&self, pipe: &Pipe) -> bool {
        let sending = pipe.protection.sending.as_ref();
        let is_past = |at: Instant| at <= self.round.polled;
        let waits = || self.protection_timeout(pipe).is_some_and(is_past);
        sending.is_some_and(|sending| sending.has_due()) || waits()
    }

    /// When repairs or tidings are due without packets, or a repair has failed to come. What was
    /// due at the last look waits for a path.
    pub(super) fn protection_due_at(&self, pipe: &Pipe) -> Option<Instant> {
        let deferred = pipe.recovery.deferred_until();
        let due = self.protection_timeout(pipe);
        let due = due.filter(|at| *at > self.round.polled);
        deferred.into_iter().chain(due).min()
    }

    fn protection_timeout(&self, pipe: &Pipe) -> Option<Instant> {
        let due = pipe.protection.poll_timeout();
        due.filter(|_| self.takes_repairs())
    }

    /// Stages tidings of what arrived, or the repairs that are due.
    pub(super) fn protection_due(&mut self, pipe: &mut Pipe, now: Instant) -> Option<PathSet> {
        let codec = self.codec.as_ref().filter(|codec| codec.takes_repairs())?;
        if let Some(sending) = pipe.protection.sending.as_mut() {
            sending.make_repairs(codec, now);
        }
        self.stage_tidings(pipe, now)
            .or_else(|| self.stage_repairs(pipe))
    }

    fn stage_tidings(&mut self, pipe: &mut Pipe, now: Instant) -> Option<PathSet> {
        let receiving = pipe.protection.receiving.as_mut()?;
        // They are so short that every path carries them whole.
        let paths = self.path_beside(0, None)?;
        let tidings = self.codec()?.tidings(&receiving.tidings(now)?);
        self.put_aside(tidings, paths);
        Some(paths)
    }

    fn stage_repairs(&mut self, pipe: &mut Pipe) -> Option<PathSet> {
        let sending = pipe.protection.sending.as_mut()?;
        let paths = self.path_beside(sending.next_len()?, sending.avoided())?;
        let (index, fit) = (paths.first()?, self.fit(paths));
        while self.round.batch.len() < BATCH && self.round.views[index].budget > 0 {
            let load = self.round.batch.load();
            let leaves = |len| carries_whole(fit, len) && self.is_taken(len, fit, load);
            if !sending.next_len().is_some_and(leaves) {
                break;
            }
            let Some(repair) = sending.pop_due() else {
                break;
            };
            self.paths[index].symbols.repairs_sent += 1;
            self.put_aside(repair, paths);
        }
        Some(paths)
    }

    /// The quickest path with room for a datagram of `len` bytes, another one than `avoided` if
    /// there is one that is not much slower, nor so narrow that a repair holds up what it carries.
    fn path_beside(&self, len: usize, avoided: Option<usize>) -> Option<PathSet> {
        let has_room = |index: usize| {
            let view = &self.round.views[index];
            let fits = carries_whole(self.fit(PathSet::default().with(index)), len);
            view.usable && view.worth == Worth::Full && view.budget > 0 && fits
        };
        let views = self.round.views.iter().enumerate();
        let open = || views.clone().filter(|(index, _)| has_room(*index));
        let quickest = open().map(|(_, view)| view.srtt).min()?;
        let widest = open().map(|(_, view)| view.delivers).max()?;
        let rank = |index: usize| {
            let view = &self.round.views[index];
            let far = view.srtt > quickest + MOST_APART;
            let narrow = view.delivers < widest / NARROW;
            (far || narrow, view.tier, Some(index) == avoided, view.srtt)
        };
        let (index, _) = open().min_by_key(|(index, _)| rank(*index))?;
        Some(PathSet::default().with(index))
    }

    pub(super) fn handle_source(
        &mut self,
        pipe: &mut Pipe,
        source: &SourceHeader,
        bytes: Bytes,
        path: u32,
        now: Instant,
    ) {
        self.count_symbols(path, |symbols| symbols.sources_received += 1);
        let receiving = pipe.protection.receiving(now);
        receiving.handle_source(source, &bytes);
        let packet = Packet {
            bytes,
            checksum: codec::progress(source.partial),
        };
        self.handle_numbered(pipe, &source.header, packet, path, now);
        pipe.collect_recovered(now);
    }

    pub(super) fn handle_repair(
        &mut self,
        pipe: &mut Pipe,
        repair: &Repair,
        symbol: &[u8],
        path: u32,
        now: Instant,
    ) {
        self.count_symbols(path, |symbols| symbols.repairs_received += 1);
        let receiving = pipe.protection.receiving(now);
        receiving.handle_repair(repair, symbol);
        pipe.resequencer
            .expect_repairs(WAITS_FOR, now + LISTENS_FOR);
        pipe.collect_recovered(now);
    }

    pub(super) fn handle_tidings(&mut self, pipe: &mut Pipe, tidings: Tidings) {
        match &mut pipe.protection.sending {
            Some(sending) => sending.handle_tidings(tidings),
            // Nobody asked.
            None => pipe.stats.malformed += 1,
        }
    }

    fn count_symbols(&mut self, path: u32, count: impl FnOnce(&mut Symbols)) {
        let mut paths = self.paths.iter_mut();
        if let Some(path) = paths.find(|it| crate::path::number(it.id) == path) {
            count(&mut path.symbols);
        }
    }
}

/// Whether a datagram of `len` bytes leaves in one piece on paths of this fit.
fn carries_whole(fit: Option<Fit>, len: usize) -> bool {
    fit.is_none_or(|fit| !fit.halves(len))
}

/// What a path's ledger says of its losses.
type Measure = fn(&Ledger, Instant) -> f64;

/// Part of the packets that a path loses by itself, as far as more packets may mend it.
pub(super) fn own_loss(path: &Path, now: Instant) -> f64 {
    own(path, Ledger::loss, now)
}

/// Part of the packets that a path loses by itself, by that measure.
fn own(path: &Path, loss: Measure, now: Instant) -> f64 {
    let least = path.gate.min_rtt().unwrap_or_default();
    if is_crowded(path.srtt(), least) {
        return 0.0;
    }
    loss(&path.gate.ledger(), now)
}
