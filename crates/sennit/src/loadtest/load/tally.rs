//! What one end received, and what it cost.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use sennit_engine::{ConnId, Stream};
use sennit_linux::memory::give_back;
use sennit_load::{BIN, Received as Counter};

use super::super::report::ENOUGH;
use super::super::words::{Memory, Plan, Received};

/// A flow: a stream, or the messages of a connection.
type Flow = (ConnId, Option<Stream>);

/// Counts what arrives in the time that counts.
pub(in super::super) struct Tally {
    from: Instant,
    span: Duration,
    /// So many bytes are all.
    goal: Option<u64>,
    counter: Counter,
    flows: BTreeMap<Flow, u64>,
    bytes: u64,
    /// When the first of it arrived.
    first: Option<Instant>,
    /// When all of it was there.
    complete: Option<Instant>,
}

impl Tally {
    /// Counts from the end of the warm-up of a load that begins now.
    pub(in super::super) fn new(plan: &Plan, now: Instant) -> Self {
        let from = now + Duration::from_secs_f64(plan.warmup_seconds);
        Self {
            from,
            span: Duration::from_secs_f64(plan.seconds),
            goal: plan.bytes,
            counter: Counter::new(from, BIN),
            flows: BTreeMap::new(),
            bytes: 0,
            first: None,
            complete: None,
        }
    }

    pub(in super::super) fn note(&mut self, flow: Flow, bytes: usize, at: Instant) {
        if bytes == 0 || !(self.from..self.from + self.span).contains(&at) {
            return;
        }
        self.counter.note(at, bytes);
        *self.flows.entry(flow).or_default() += bytes as u64;
        self.bytes += bytes as u64;
        self.first.get_or_insert(at);
        if self.goal.is_some_and(|goal| self.bytes >= goal) {
            self.complete.get_or_insert(at);
        }
    }

    /// The load begins only now, as the far end has said; what has arrived before that counts only
    /// if all bytes are waited for.
    pub(super) fn restart(&mut self, plan: &Plan, now: Instant) {
        match self.first.filter(|_| self.goal.is_some()) {
            Some(first) => self.from = first.min(now),
            None => *self = Self::new(plan, now),
        }
    }

    pub(in super::super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(in super::super) fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// How long it has counted, at most for `span`.
    pub(in super::super) fn elapsed(&self, span: Duration, now: Instant) -> Duration {
        let end = self.complete.map_or(now, |complete| complete.min(now));
        let elapsed = end.saturating_duration_since(self.from);
        elapsed
            .min(self.span)
            .min(span)
            .max(Duration::from_millis(1))
    }

    /// What arrived within `span`, of so many flows.
    pub(in super::super) fn received(&self, span: Duration, flows: usize) -> Received {
        let mut all: Vec<u64> = self.flows.values().copied().collect();
        // Of some flows nothing arrived.
        all.resize(all.len().max(flows), 0);
        Received {
            seconds: span.as_secs_f64(),
            bytes: match self.complete {
                Some(_) => self.bytes,
                None => self.counter.before(span),
            },
            bins: Some(self.counter.within(span).bins),
            flows: all,
            messages: None,
        }
    }
}

/// Memory of this process that is in use, in bytes.
pub(super) fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

impl Memory {
    /// Without any connection of the load, of which so many are to come. What earlier tests of this
    /// process have left is given back first: it would serve these connections, and they would seem
    /// to take nothing.
    pub(in super::super) fn before(connections: u16) -> Self {
        if connections >= ENOUGH {
            give_back();
        }
        let now = memory();
        Self {
            before_bytes: now,
            idle_bytes: now,
            loaded_bytes: now,
        }
    }

    /// With all connections, of which none does anything yet.
    pub(super) fn note_idle(&mut self) {
        self.idle_bytes = memory();
        self.loaded_bytes = self.idle_bytes;
    }

    /// Under load.
    pub(super) fn note_load(&mut self) {
        self.loaded_bytes = self.loaded_bytes.max(memory());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page is 4 KiB, and no piece fills one.
    #[test]
    fn what_an_earlier_test_has_freed_is_no_memory_of_the_next() {
        const PIECE: usize = 1 << 10;
        const ALL: usize = 128 << 20;
        let mut kept = Vec::new();
        let mut pieces: Vec<Vec<u8>> = (0..ALL / PIECE).map(|_| vec![1; PIECE]).collect();
        // What stays here and there keeps the allocator from giving back what is between.
        kept.extend(
            (0..pieces.len())
                .step_by(64)
                .map(|at| std::mem::take(&mut pieces[at])),
        );
        let used = memory();
        drop(pieces);

        let few = Memory::before(ENOUGH - 1).before_bytes;
        let many = Memory::before(ENOUGH).before_bytes;

        let (Some(used), Some(few), Some(many)) = (used, few, many) else {
            return eprintln!("SKIPPED: nobody says how much memory is in use");
        };
        let freed = |left: u64| used.saturating_sub(left) > ALL as u64 / 2;
        assert!(
            !freed(few),
            "few connections have no figure, and nobody waits"
        );
        assert!(freed(many), "{used} before, {many} left");
        drop(kept);
    }
}
