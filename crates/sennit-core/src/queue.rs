//! FQ-CoDel (RFC 8290): the only place where a tunnel lets packets stand.
//!
//! Each inner flow has its own queue; flows take turns by bytes, and a flow that just woke goes
//! before those that always have something to send, so a ping does not wait behind a download.
//! CoDel (RFC 8289) watches how long packets stood: when a flow stays above the target for an
//! interval, its packets are marked CE if they can be and dropped if not, more often the longer it
//! lasts. Nothing else in a tunnel decides to drop an inner packet, except the limits here: of
//! memory, and of age. Where no path works for a while, what has waited for too long is of no use
//! to anybody and never leaves.
//!
//! The queue also numbers the packets of a flow, in the order in which they joined it, and nothing
//! overtakes within a flow (docs/decisions/0024). On a slower path a packet can leave ahead of its
//! turn, so early that it arrives in its turn: see [`Start::Behind`].

mod codel;
mod flow;
mod packet;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

pub use self::packet::{Popped, Queued};
use self::{
    codel::{INTERVAL, Law},
    flow::Flow,
    packet::LEAST_COST,
};
use crate::frame::{self, HEADROOM, Header};

/// Flow queues, as many as a packet's header can tell apart; RFC 8290 §5.2 suggests 1024, and that
/// flows are hashed into them. A call would share one with one of ten transfers with probability 4
/// %, so each flow has the choice of several.
pub const FLOWS: usize = 256;
/// Queues that a flow may have: eight in a row (set-associative hashing, as in tc-cake(8))
/// (docs/decisions/0017).
pub(crate) const WAYS: usize = 8;
/// Bytes a flow may send per turn, at least (RFC 8290 §5.2), and as time at the rate at which the
/// queue empties. On a fast link a flow thus sends a run of packets, which the far end joins to
/// one large packet for its host; a round of sixteen busy flows takes four milliseconds
/// (docs/decisions/0017).
const QUANTUM: i64 = 1514;
const TURN: Duration = Duration::from_micros(250);
/// More than this much sending time never waits, whatever CoDel thinks: senders that do not react
/// would fill any queue.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// Memory limit of the whole queue, in bytes of packets: 64 ms at 1 Gbit/s. Of smaller ones than
/// [`LEAST_COST`] fewer bytes fit.
const LIMIT: usize = 8 << 20;
/// The limit is never set lower: the first window of a few connections, before any rate is known.
const LEAST_LIMIT: usize = 256 << 10;
/// What has stood for this long does not leave any more, unless the caller says otherwise: an edge
/// dials anew within seconds, and senders have given up on what is older.
pub const KEPT_FOR: Duration = Duration::from_secs(5);
/// How long packets may stand (RFC 8289 §4.2), before the caller adds what its links need.
pub const TARGET: Duration = Duration::from_millis(5);

/// Which packet of its flow may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// None of them.
    Nowhere,
    /// The one whose turn it is.
    Head,
    /// The one before which so many bytes would leave, or the last: those ahead of it go another
    /// way and arrive first all the same.
    Behind(usize),
}

/// What the queue did, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets accepted.
    pub enqueued: u64,
    /// Packets dropped by CoDel, or for their age.
    pub dropped: u64,
    /// Packets CoDel marked instead.
    pub marked: u64,
    /// Packets dropped because the limit of bytes was reached.
    pub overflowed: u64,
    /// How long packets that left stood here, smoothed.
    pub stood: Duration,
}

/// One flow queue, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowQueue {
    /// Bytes of packets waiting.
    pub waiting: usize,
    /// What it did since it was made.
    pub stats: QueueStats,
}

/// One class's queue of inner packets.
#[derive(Debug)]
pub struct FqCodel {
    flows: Vec<Flow>,
    /// Flows that just woke, then flows that keep sending (RFC 8290 §4.2).
    new_flows: VecDeque<u16>,
    old_flows: VecDeque<u16>,
    law: Law,
    kept_for: Duration,
    quantum: i64,
    limit: usize,
    bytes: usize,
    /// Of packets that had left and have to leave again, which count for no limit: they were in
    /// flight, and that was bounded.
    returned: usize,
    /// By how much more small packets count than their bytes.
    surcharge: usize,
    stats: QueueStats,
}

/// What a flow did with its turn.
#[derive(Debug)]
enum Turn {
    Sends(Popped),
    /// Its credit grew, or it left its list; another has its place.
    Changes,
    /// It keeps its place.
    Refused,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self {
            flows: (0..FLOWS).map(|_| Flow::new()).collect(),
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            law: Law {
                target: TARGET,
                interval: INTERVAL,
            },
            kept_for: KEPT_FOR,
            quantum: QUANTUM,
            limit: LIMIT,
            bytes: 0,
            returned: 0,
            surcharge: 0,
            stats: QueueStats::default(),
        }
    }
}

impl FqCodel {
    /// Adds a packet; over the memory limit the fattest flow loses its oldest one (RFC 8290 §4.1).
    pub fn push(&mut self, mut packet: Queued, now: Instant) {
        let home = packet.flow as usize % FLOWS;
        let index = self.queue_of(packet.flow, now);
        packet.flow = packet.flow - home as u32 + index as u32;
        let flow = &mut self.flows[index];
        self.bytes += packet.packet_len();
        self.surcharge += packet.surcharge();
        flow.push(packet, now);
        flow.stats.enqueued += 1;
        if !flow.listed {
            flow.listed = true;
            flow.deficit = self.quantum;
            self.new_flows.push_back(index as u16);
        }
        self.stats.enqueued += 1;
        while self.cost() > self.limit && self.drops_from_fattest() {}
    }

    /// What counts for the limit.
    fn cost(&self) -> usize {
        self.bytes - self.returned + self.surcharge
    }

    /// The queue of the flow with this hash: its own, or else the first of its choice that is
    /// free. Where none is, it shares the first until one becomes free, and may overtake itself as
    /// it moves there.
    fn queue_of(&mut self, hash: u32, now: Instant) -> usize {
        let home = hash as usize % FLOWS;
        let mut choice = (home..home + WAYS).map(|way| home - home % WAYS + way % WAYS);
        let own = |&index: &usize| self.flows[index].is_of(hash);
        let free = |&index: &usize| self.flows[index].is_free(now);
        let found = choice.clone().find(own).or_else(|| choice.find(free));
        if let Some(index) = found {
            self.flows[index].owner = Some((hash, now));
        }
        found.unwrap_or(home)
    }

    /// Takes a packet of the next flow of which `start` lets one go; it is told the packet whose
    /// turn it is and how many bytes would leave before the last packet of the flow. Flows that are
    /// refused keep their places and their credit, so they come first where they may go: a queue
    /// that is asked in vain is as it was.
    pub fn pop(&mut self, start: impl Fn(&Queued, usize) -> Start, now: Instant) -> Option<Popped> {
        // After a round in which every flow was refused the next one would be the same.
        let mut changed = true;
        while std::mem::take(&mut changed) {
            let mut place = 0;
            for _ in 0..self.new_flows.len() + self.old_flows.len() {
                match self.take_turn(place, &start, now)? {
                    Turn::Sends(popped) => return Some(popped),
                    Turn::Changes => changed = true,
                    Turn::Refused => place += 1,
                }
            }
        }
        None
    }

    /// Offers the flow at this place its turn; `None` if there is none. New flows have the first
    /// places.
    fn take_turn(
        &mut self,
        place: usize,
        start: &impl Fn(&Queued, usize) -> Start,
        now: Instant,
    ) -> Option<Turn> {
        let flows = self.new_flows.len() + self.old_flows.len();
        let index = match place.checked_sub(self.new_flows.len()) {
            None => self.new_flows[place],
            Some(place) => *self.old_flows.get(place)?,
        };
        let flow = &mut self.flows[usize::from(index)];
        // Flows take turns.
        let backlog = self.bytes.min(flow.within_reach() * flows);
        if let Some(head) = flow.head() {
            let start = start(head, backlog);
            if start != Start::Nowhere && flow.deficit <= 0 {
                // A packet of several quanta is paid for over as many rounds.
                flow.deficit += self.quantum;
                self.rotate(place);
                return Some(Turn::Changes);
            }
            let popped = match start {
                Start::Nowhere => return Some(Turn::Refused),
                Start::Head => self.dequeue(index, now),
                Start::Behind(bytes) => self.dequeue_behind(index, bytes / flows, now),
            };
            if let Some(popped) = popped {
                return Some(Turn::Sends(Popped {
                    ahead: popped.ahead * flows,
                    backlog,
                    ..popped
                }));
            }
        }
        self.retire(place);
        Some(Turn::Changes)
    }

    /// Numbers start over: what waits gets the first ones. `taken` was popped but has not left; it
    /// leaves before the others of its flow.
    pub fn start_over(&mut self, taken: Option<Popped>) {
        self.flows.iter_mut().for_each(Flow::start_over);
        if let Some(taken) = taken.filter(|taken| taken.packet.packet_len() > 0) {
            let flow = &mut self.flows[taken.packet.flow as usize % FLOWS];
            flow.next = Header::FIRST.wrapping_add(1);
            self.put_back(Header::FIRST, taken.packet, taken.since);
        }
    }

    /// Drops all packets that had left before, since they may have arrived. Their numbers are lost
    /// as well, so numbers have to start over.
    pub fn forget_returned(&mut self) {
        for flow in &mut self.flows {
            let (packets, bytes) = flow.forget_returned();
            self.bytes -= bytes;
            flow.stats.dropped += packets;
            self.stats.dropped += packets;
        }
        self.returned = 0;
    }

    /// Empties a packet that was popped, and has become too old to leave.
    pub fn look_again(&mut self, popped: &mut Popped, now: Instant) {
        let stood = now.saturating_duration_since(popped.since);
        if popped.packet.packet_len() > 0 && stood >= self.kept_for {
            popped.packet.buffer.truncate(HEADROOM);
            self.stats.dropped += 1;
            self.flows[popped.packet.flow as usize % FLOWS]
                .stats
                .dropped += 1;
        }
    }

    /// Puts packets that had left back in their places, which their numbers say. An empty one
    /// stands for one that cannot be sent again. Whoever waits for them may wait for long, so only
    /// their age has them dropped.
    pub fn put_back_all(&mut self, packets: Vec<(u32, Queued)>, now: Instant) {
        for (seq, mut packet) in packets.into_iter().rev() {
            packet.returned = true;
            self.put_back(seq, packet, now);
        }
    }

    fn put_back(&mut self, seq: u32, packet: Queued, since: Instant) {
        let (index, len) = (packet.flow as usize % FLOWS, packet.packet_len());
        let (returned, surcharge) = (packet.returned_len(), packet.surcharge());
        let flow = &mut self.flows[index];
        if !flow.put_back(seq, packet, since) {
            return;
        }
        self.bytes += len;
        self.returned += returned;
        self.surcharge += surcharge;
        flow.deficit += len as i64;
        if !flow.listed {
            flow.listed = true;
            self.new_flows.push_back(index as u16);
        }
    }

    /// Bytes of packets waiting.
    pub fn backlog(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What happened so far.
    pub fn stats(&self) -> QueueStats {
        self.stats
    }

    /// What is told of it to the far end.
    pub fn report(&self) -> frame::Queue {
        let stats = self.stats;
        frame::Queue {
            waiting: u32::try_from(self.backlog()).unwrap_or(u32::MAX),
            stood: stats.stood,
            dropped: stats.dropped,
            marked: stats.marked,
            overflowed: stats.overflowed,
        }
    }

    /// The queue of the flow with this hash, and of any other that falls into it.
    pub fn flow(&self, hash: u32) -> FlowQueue {
        let flow = &self.flows[hash as usize % FLOWS];
        FlowQueue {
            waiting: flow.bytes,
            stats: flow.stats,
        }
    }

    /// Tells at which rate the queue empties, in bytes per second, and at which it may in a burst:
    /// the first decides how many bytes a flow sends per turn, the second how many may wait.
    pub fn set_rates(&mut self, usual: u64, burst: u64) {
        let within = |time: Duration, rate| rate as f64 * time.as_secs_f64();
        self.limit = (within(LONGEST_WAIT, burst) as usize).clamp(LEAST_LIMIT, LIMIT);
        self.quantum = (within(TURN, usual) as i64).max(QUANTUM);
    }

    /// Sets how long packets may stand at all.
    pub fn keep_for(&mut self, longest: Duration) {
        self.kept_for = longest;
    }

    /// Sets how long packets may stand before CoDel objects, and how long it takes until a sender
    /// that is told so sends less. A flow that is alone is not told again before, or it is left
    /// with half of its window.
    pub fn set_target(&mut self, target: Duration, reaction: Duration) {
        self.law = Law {
            target,
            interval: reaction.max(INTERVAL),
        };
    }

    /// Moves the flow at this place to the end of the old flows.
    fn rotate(&mut self, place: usize) {
        let index = self.unlist(place);
        self.old_flows.extend(index);
    }

    /// Takes an empty flow off its list. A new flow first passes through the old list, so that it
    /// cannot stay new by sending one packet at a time (RFC 8290 §4.2).
    fn retire(&mut self, place: usize) {
        if place < self.new_flows.len() {
            self.rotate(place);
        } else if let Some(index) = self.unlist(place) {
            let flow = &mut self.flows[usize::from(index)];
            flow.listed = false;
            flow.give_back_room();
        }
    }

    fn unlist(&mut self, place: usize) -> Option<u16> {
        match place.checked_sub(self.new_flows.len()) {
            None => self.new_flows.remove(place),
            Some(place) => self.old_flows.remove(place),
        }
    }

    /// The next packet of one flow. Of one that is dropped after its number or a later one was
    /// given away, the number leaves without the packet.
    fn dequeue(&mut self, index: u16, now: Instant) -> Option<Popped> {
        let flow = &mut self.flows[usize::from(index)];
        while let Some((since, mut packet)) = flow.pop() {
            self.bytes -= packet.packet_len();
            self.returned -= packet.returned_len();
            self.surcharge -= packet.surcharge();
            let stood = now.saturating_duration_since(since);
            let too_old = stood >= self.kept_for;
            if !too_old {
                for smoothed in [&mut flow.stats.stood, &mut self.stats.stood] {
                    // As RFC 9002 §5.3 smooths round trips.
                    *smoothed = (7 * *smoothed + stood) / 8;
                }
            }
            let law = self.law.of(flow.bytes, self.bytes);
            let objects = !packet.returned && flow.codel.objects(stood, law, flow.bytes, now);
            if objects
                && !too_old
                && sennit_packet::rewrite::set_ecn_ce(&mut packet.buffer[HEADROOM..])
            {
                self.stats.marked += 1;
                flow.stats.marked += 1;
            } else if objects || too_old {
                self.stats.dropped += 1;
                flow.stats.dropped += 1;
                if !flow.has_given_away() {
                    continue;
                }
                packet.buffer.truncate(HEADROOM);
            }
            flow.deficit -= packet.packet_len() as i64;
            let seq = flow.number();
            return Some(Popped::new(packet, seq, since));
        }
        None
    }

    /// The packet of one flow with about so many bytes of it ahead.
    fn dequeue_behind(&mut self, index: u16, bytes: usize, now: Instant) -> Option<Popped> {
        let flow = &mut self.flows[usize::from(index)];
        let (since, packet, seq, ahead) = flow.take_behind(bytes)?;
        self.bytes -= packet.packet_len();
        self.returned -= packet.returned_len();
        self.surcharge -= packet.surcharge();
        let mut popped = Popped {
            ahead,
            ..Popped::new(packet, seq, since)
        };
        self.look_again(&mut popped, now);
        self.flows[usize::from(index)].deficit -= popped.packet.packet_len() as i64;
        Some(popped)
    }

    /// Drops a packet of the fattest flow that has one to spare; false if none has.
    fn drops_from_fattest(&mut self) -> bool {
        let spare = self.flows.iter_mut().filter(|flow| flow.has_spare());
        let fattest = spare.max_by_key(|flow| flow.bytes.max(flow.waiting * LEAST_COST));
        let Some((flow, packet)) = fattest.and_then(|flow| flow.drop_one().map(|it| (flow, it)))
        else {
            return false;
        };
        self.bytes -= packet.packet_len();
        self.surcharge -= packet.surcharge();
        self.stats.overflowed += 1;
        flow.stats.overflowed += 1;
        true
    }
}

#[cfg(test)]
mod tests;
