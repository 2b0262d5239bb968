//! Puts the packets of a flow that used several paths back in order.
//!
//! Paths differ in delay, and most transports take a packet that is overtaken by three others for
//! lost. So the sender numbers the packets of a flow and says of each whether order matters to it
//! ([`Header::ordered`]); here those that come early are held until what is missing
//!
//! 1. arrives; or
//! 2. cannot arrive any more: every path has delivered something that was sent later, or would have
//!    by now, judging by its own delay and jitter; and, where lost packets are sent again, the time
//!    that takes is over as well; or
//! 3. would cost too much memory.
//!
//! Nothing is held for long, nothing is dropped but second copies, and a flow whose order does not
//! matter passes untouched. Delays of paths are compared by the sender's clock in the packets; only
//! differences count, so the clocks of the two ends need not agree.

mod clock;
mod flow;
mod late;
mod repeats;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use self::{
    clock::PathClock,
    flow::{Flow, Gap, Held},
    late::Late,
    repeats::Repeats,
};
use crate::frame::Header;

/// Packets held per flow: 0.4 s at 250 Mbit/s.
const FLOW_LIMIT: i64 = 8192;
/// Places of packets held, and of those missing between them, in all flows: a sender may number as
/// it likes, and a place takes 56 bytes. Of packets of 1400 bytes they are 0.7 s at 1 Gbit/s.
const PLACES_LIMIT: usize = 8 * FLOW_LIMIT as usize;
/// Bytes held in all.
const BYTES_LIMIT: usize = 16 << 20;
/// A number this far ahead is not of the same sequence: the sender started over.
const JUMP: i64 = 1 << 16;
/// A packet may be held this long whatever paths seem to be like, because what was learned of them
/// may be wrong by as much; it is held longer only where their delays differ by more, or a repair
/// takes longer.
const LONGEST: Duration = Duration::from_millis(250);
/// Who says that a repair may take this long waits for it whatever else arrives. A connection that
/// is cut off for longer, and then heard again, finds what was held passed on.
pub const ENDLESS: Duration = Duration::from_secs(10);
/// No packet is held longer than this after its turn: twice what a satellite is behind a short
/// path, and a repair over it.
const LONGEST_OF_ALL: Duration = Duration::from_millis(1500);

/// What happened, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequenceStats {
    /// Packets that had to wait for another.
    pub held: u64,
    /// Packets that were given up on, and came late or never.
    pub missed: u64,
    /// Packets that came after they were given up on.
    pub late: u64,
    /// Second copies dropped.
    pub duplicates: u64,
    /// Times that memory ran out.
    pub overflows: u64,
}

/// Restores the order of the flows of one tunnel. `T` is the packet.
#[derive(Debug)]
pub struct Resequencer<T> {
    flows: BTreeMap<u8, Flow<T>>,
    /// Flows that hold something.
    holding: BTreeSet<u8>,
    paths: BTreeMap<u32, PathClock>,
    bytes: usize,
    started: Instant,
    /// By how much the clocks of both ends differed at first, in microseconds.
    apart_by: Option<u32>,
    stats: ResequenceStats,
    late: Late,
    repeats: Repeats,
    /// How long packets are held because those before them may come back by repairs, and until when
    /// that is so.
    repairs: Option<(Duration, Instant)>,
}

impl<T> Resequencer<T> {
    /// An empty one.
    pub fn new(now: Instant) -> Self {
        Self {
            flows: BTreeMap::new(),
            holding: BTreeSet::new(),
            paths: BTreeMap::new(),
            bytes: 0,
            started: now,
            apart_by: None,
            stats: ResequenceStats::default(),
            late: Late::default(),
            repeats: Repeats::default(),
            repairs: None,
        }
    }

    /// What is missing may come back without being sent again, within `wait` of what followed it;
    /// this is so `until` then.
    pub fn expect_repairs(&mut self, wait: Duration, until: Instant) {
        self.repairs = Some((wait, until));
    }

    /// The sender starts over, with new numbers on new paths: passes on what is held.
    pub fn start_over(&mut self, release: impl FnMut(T), now: Instant) {
        self.pause(release, now);
        self.flows.clear();
    }

    /// The paths are gone, and others may go on with the same numbers: passes on what is held.
    pub fn pause(&mut self, mut release: impl FnMut(T), now: Instant) {
        for flow in self.flows.values_mut() {
            self.stats.missed += flow.missing(flow.places() as i64);
            flow.flush(&mut release);
        }
        *self = Self {
            stats: self.stats,
            flows: std::mem::take(&mut self.flows),
            ..Self::new(now)
        };
    }

    /// The paths are gone, and others go on with the same numbers: by these comes what is missing.
    pub fn go_on(&mut self, now: Instant) {
        *self = Self {
            stats: self.stats,
            flows: std::mem::take(&mut self.flows),
            holding: std::mem::take(&mut self.holding),
            bytes: self.bytes,
            ..Self::new(now)
        };
    }

    /// What happened so far.
    pub fn stats(&self) -> ResequenceStats {
        self.stats
    }

    /// Bytes that are held now.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// The packets that are held now.
    pub fn held_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let places = self.flows.values_mut().flat_map(|flow| &mut flow.held);
        places.flatten().map(|held| &mut held.packet)
    }

    /// Takes a packet of `bytes` bytes that arrived on `path`, and passes on what is in order now.
    pub fn handle_packet(
        &mut self,
        header: &Header,
        path: u32,
        packet: T,
        bytes: usize,
        release: impl FnMut(T),
        now: Instant,
    ) {
        self.handle_clock(path, header.sent_micros, now);
        if self.place(header, packet, bytes, release, now)
            && let Some(clock) = self.paths.get_mut(&path)
        {
            clock.used = Some(now);
        }
    }

    /// Takes a packet that no path brought: others were enough to make up for it. When it left is
    /// not known, but that it was before now.
    pub fn handle_recovered(
        &mut self,
        header: &Header,
        packet: T,
        bytes: usize,
        release: impl FnMut(T),
        now: Instant,
    ) {
        let sent_micros = self.sender_clock(now).unwrap_or_default();
        let header = Header {
            sent_micros,
            ..*header
        };
        self.place(&header, packet, bytes, release, now);
    }

    /// What the sender's clock says of what arrives now, by what arrived last; `None` if nothing
    /// did.
    pub fn sender_clock(&self, now: Instant) -> Option<u32> {
        let last = self.paths.values().max_by_key(|clock| clock.arrived)?;
        let since = now.saturating_duration_since(last.arrived);
        Some(last.newest.wrapping_add(since.as_micros() as u32))
    }

    /// Holds a packet or passes it on, with what is in order by it; false if it is a second copy.
    fn place(
        &mut self,
        header: &Header,
        packet: T,
        bytes: usize,
        mut release: impl FnMut(T),
        now: Instant,
    ) -> bool {
        let flow = self.flows.entry(header.flow).or_insert_with(Flow::new);
        if !flow.seen.first(header.seq) {
            self.stats.duplicates += 1;
            return false;
        }
        let ahead = flow.ahead(header.seq);
        if ahead >= JUMP || ahead <= -JUMP {
            self.bytes -= flow.flush(&mut release);
            flow.go_on_at(header.seq);
        } else if ahead >= FLOW_LIMIT && header.ordered {
            let hopeless = ahead - FLOW_LIMIT + 1;
            self.stats.overflows += 1;
            self.stats.missed += flow.missing(hopeless);
            self.bytes -= flow.flush_below(hopeless, &mut release);
            self.bytes -= flow.release_run(&mut release);
        }
        let ahead = flow.ahead(header.seq);
        if header.ordered {
            self.repeats.count(flow.is_repeat(ahead, header));
        }
        if ahead < 0 {
            self.stats.late += 1;
            if header.ordered {
                self.late.note(now);
            }
            release(packet);
        } else if ahead > 0 && header.ordered {
            self.holding.insert(header.flow);
            let held = Held {
                packet,
                bytes,
                sent_micros: header.turn_micros(),
            };
            // What left ahead of its turn tells of nothing that is missing before that.
            flow.hold(ahead as usize, held, now + header.early);
            self.stats.held += 1;
            self.bytes += bytes;
            self.enforce_limits(header.flow, release);
        } else {
            self.stats.missed += flow.missing(ahead);
            self.bytes -= flow.flush_below(ahead, &mut release);
            release(packet);
            flow.step();
            self.bytes -= flow.release_run(&mut release);
        }
        true
    }

    /// Gives up on what cannot arrive any more. `repair` is how long it takes, beyond that, for a
    /// lost packet to be sent again and arrive; zero where that is not done.
    pub fn handle_timeout(&mut self, repair: Duration, mut release: impl FnMut(T), now: Instant) {
        let mut holding = std::mem::take(&mut self.holding);
        holding.retain(|index| {
            loop {
                let hopeless = self
                    .flows
                    .get(index)
                    .and_then(Flow::gap)
                    .is_some_and(|gap| now >= self.hopeless_at(gap, repair, now));
                let Some(flow) = self.flows.get_mut(index) else {
                    return false;
                };
                if !hopeless {
                    return flow.keeps();
                }
                self.stats.missed += flow.gap_len() as u64;
                self.bytes -= flow.skip_gap(&mut release);
            }
        });
        self.holding = holding;
    }

    /// When [`Self::handle_timeout`] should be called next.
    pub fn poll_timeout(&self, repair: Duration, now: Instant) -> Option<Instant> {
        self.holding
            .iter()
            .filter_map(|index| self.flows.get(index)?.gap())
            .map(|gap| self.hopeless_at(gap, repair, now))
            .min()
    }

    /// When what is missing there will not come any more.
    fn hopeless_at(&self, gap: Gap, repair: Duration, now: Instant) -> Instant {
        if repair >= ENDLESS {
            return gap.since + repair;
        }
        let late = self.late.longer(now);
        let (repairs, repair) = if repair.is_zero() {
            (repair, repair)
        } else {
            let all = (repair * self.repeats.rounds()).min(LONGEST.max(repair));
            (all + late, repair + late)
        };
        let overtaken = self
            .paths
            .values()
            .filter(|path| path.is_active(now))
            .map(|path| path.passes_at(gap.sent_micros))
            .max()
            .map_or(gap.since, |at| at.max(gap.since));
        let apart = self.apart(now) + repair;
        let longest = (apart.max(LONGEST) + late).min(LONGEST_OF_ALL);
        let at = (overtaken + repairs).min(gap.since + longest);
        match self.repairs {
            Some((wait, until)) if now < until => at.max(gap.since + wait),
            Some(_) | None => at,
        }
    }

    /// Whether packets came lately over `path` that no other brought.
    pub fn is_used(&self, path: u32, now: Instant) -> bool {
        self.paths
            .get(&path)
            .is_some_and(|clock| clock.is_used(now))
    }

    /// By how much the least delays of the paths differ on which anything comes: what is missing
    /// may be the first packet on one that was not used. A delay that has just grown, or jitters,
    /// does not count: what stands on the way is no reason to stop a flow for as long.
    fn apart(&self, now: Instant) -> Duration {
        let (mut least, mut most) = (f64::MAX, f64::MIN);
        for path in self.paths.values().filter(|path| path.is_active(now)) {
            let delay = path.least.get();
            (least, most) = (least.min(delay), most.max(delay));
        }
        Duration::from_secs_f64(((most - least) / 1e6).clamp(0.0, 1.0))
    }

    /// A path is gone for good, with its number.
    pub fn forget_path(&mut self, path: u32) {
        self.paths.remove(&path);
    }

    /// Places of packets held and missing; nothing where they are fewer than the limit anyway.
    fn places(&self) -> usize {
        if self.holding.len() * FLOW_LIMIT as usize <= PLACES_LIMIT {
            return 0;
        }
        let holding = self.holding.iter();
        let flows = holding.filter_map(|index| self.flows.get(index));
        flows.map(Flow::places).sum()
    }

    fn enforce_limits(&mut self, index: u8, mut release: impl FnMut(T)) {
        while self.bytes > BYTES_LIMIT || self.places() > PLACES_LIMIT {
            self.stats.overflows += 1;
            // The flow that just grew pays, unless it holds nothing itself.
            let Some(flow) = self.flows.get_mut(&index).filter(|flow| flow.places() > 0) else {
                return;
            };
            self.stats.missed += flow.gap_len() as u64;
            self.bytes -= flow.skip_gap(&mut release);
        }
    }
}

#[cfg(test)]
mod tests;
