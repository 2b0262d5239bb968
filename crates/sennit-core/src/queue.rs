//! FQ-CoDel (RFC 8290): the only place where a tunnel lets packets stand.
//!
//! Each inner flow has its own queue; flows take turns by bytes, and a flow that just woke goes
//! before those that always have something to send, so a ping does not wait behind a download.
//! CoDel (RFC 8289) watches how long packets stood: when a flow stays above the target for an
//! interval, its packets are marked CE if they can be and dropped if not, more often the longer it
//! lasts. Nothing else in a tunnel decides to drop an inner packet, except the memory limit here.
//!
//! The queue also numbers the packets of a flow, in the order in which they joined it. On a slower
//! path a packet can leave ahead of its turn, so early that it arrives in its turn: see
//! [`Start::Behind`].

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_packet::checksum::Progress;

use crate::frame::{HEADROOM, Header};

/// Flow queues, as many as a packet's header can tell apart; RFC 8290 §5.2 suggests 1024, and that
/// flows are hashed into them. A call would share one with one of ten transfers with probability 4
/// %, so each flow has the choice of several.
pub const FLOWS: usize = 256;
/// Queues that a flow may have: eight in a row (set-associative hashing, as in tc-cake(8))
/// (docs/decisions/0017).
pub(crate) const WAYS: usize = 8;
/// A flow that was silent for so long has no claim to its queue any more.
const QUIET: Duration = Duration::from_secs(1);
/// Bytes a flow may send per turn, at least (RFC 8290 §5.2), and as time at the rate at which the
/// queue empties. On a fast link a flow thus sends a run of packets, which the far end joins to one
/// large packet for its host; a round of sixteen busy flows takes four milliseconds
/// (docs/decisions/0017).
const QUANTUM: i64 = 1514;
const TURN: Duration = Duration::from_micros(250);
/// More than this much sending time never waits, whatever CoDel thinks: senders that do not react
/// would fill any queue.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// Memory limit of the whole queue, in bytes of packets: 64 ms at 1 Gbit/s.
const LIMIT: usize = 8 << 20;
/// The limit is never set lower: the first window of a few connections, before any rate is known.
const LEAST_LIMIT: usize = 256 << 10;
/// How long packets may stand (RFC 8289 §4.2), before the caller adds what its links need.
pub const TARGET: Duration = Duration::from_millis(5);
/// The time CoDel waits for a sender to react (RFC 8289 §4.3), unless the caller knows that it
/// takes longer.
const INTERVAL: Duration = Duration::from_millis(100);

/// A flow that has this part of what waits has the queue to itself (docs/decisions/0011).
const ALONE: f64 = 0.75;

/// An inner packet with [`HEADROOM`] free bytes in front of it.
#[derive(Debug)]
pub struct Queued {
    /// Headroom, then the IP packet.
    pub buffer: BytesMut,
    /// Hash of the inner flow; in the queue its last eight bits become the number of the flow's
    /// queue.
    pub flow: u32,
    /// Its transport delivers in order (TCP), so nobody can use it before the packets ahead of it.
    pub in_order: bool,
    /// How much of its checksum is done.
    pub checksum: Progress,
}

impl Queued {
    /// Length of the IP packet.
    pub fn packet_len(&self) -> usize {
        self.buffer.len() - HEADROOM
    }
}

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

/// A packet that leaves.
#[derive(Debug)]
pub struct Popped {
    /// The packet; an empty one stands for one that was dropped after a later one had left, so that
    /// nobody waits for it.
    pub packet: Queued,
    /// Its number in its flow; wraps. A number is left out only if the limit of bytes was reached.
    pub seq: u32,
    /// Bytes that leave before it, though it leaves now; zero in its turn.
    pub ahead: usize,
    /// Bytes that would leave before the last packet of its flow.
    pub backlog: usize,
}

/// What the queue did, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets accepted.
    pub enqueued: u64,
    /// Packets CoDel dropped.
    pub dropped: u64,
    /// Packets CoDel marked instead.
    pub marked: u64,
    /// Packets dropped because the limit of bytes was reached.
    pub overflowed: u64,
}

/// One flow queue, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowQueue {
    /// Bytes of packets waiting.
    pub waiting: usize,
    /// How long packets stood in it, smoothed.
    pub stood: Duration,
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
    quantum: i64,
    limit: usize,
    bytes: usize,
    stats: QueueStats,
}

/// What a flow did with its turn.
#[derive(Debug)]
enum Turn {
    Sends(Popped),
    /// Its credit grew, or it left its list.
    Changes,
    Refused,
}

#[derive(Debug)]
struct Flow {
    /// Those that left ahead of their turn leave an empty place behind.
    packets: VecDeque<Option<(Instant, Queued)>>,
    /// How many are not empty.
    waiting: usize,
    bytes: usize,
    /// Number of the first place.
    next: u32,
    /// The hash of the flow that it belongs to, and when that last had a packet.
    owner: Option<(u32, Instant)>,
    deficit: i64,
    listed: bool,
    codel: Codel,
    stood: Duration,
    stats: QueueStats,
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
            quantum: QUANTUM,
            limit: LIMIT,
            bytes: 0,
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
        flow.push(packet, now);
        flow.stats.enqueued += 1;
        if !flow.listed {
            flow.listed = true;
            flow.deficit = self.quantum;
            self.new_flows.push_back(index as u16);
        }
        self.stats.enqueued += 1;
        while self.bytes > self.limit {
            self.drop_from_fattest();
        }
    }

    /// The queue of the flow with this hash: its own, or else the first of its choice that is free.
    /// Where none is, it shares the first until one becomes free, and may overtake itself as it
    /// moves there.
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
    /// turn it is and how many bytes would leave before the last packet of the flow.
    pub fn pop(&mut self, start: impl Fn(&Queued, usize) -> Start, now: Instant) -> Option<Popped> {
        // After a round in which every flow was refused the next one would be the same.
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for _ in 0..self.new_flows.len() + self.old_flows.len() {
                match self.take_turn(&start, now)? {
                    Turn::Sends(popped) => return Some(popped),
                    Turn::Changes => changed = true,
                    Turn::Refused => {}
                }
            }
        }
        None
    }

    /// Offers the flow at the head its turn; `None` if there are no flows.
    fn take_turn(
        &mut self,
        start: &impl Fn(&Queued, usize) -> Start,
        now: Instant,
    ) -> Option<Turn> {
        let flows = self.new_flows.len() + self.old_flows.len();
        let from_new = !self.new_flows.is_empty();
        let index = *self.new_flows.front().or_else(|| self.old_flows.front())?;
        let flow = &mut self.flows[usize::from(index)];
        if flow.deficit <= 0 {
            // A packet of several quanta is paid for over as many rounds.
            flow.deficit += self.quantum;
            self.rotate(from_new);
            return Some(Turn::Changes);
        }
        // Flows take turns.
        let backlog = self.bytes.min(flow.bytes * flows);
        if let Some(head) = flow.head() {
            let popped = match start(head, backlog) {
                Start::Nowhere => {
                    self.rotate(from_new);
                    return Some(Turn::Refused);
                }
                Start::Head => self.dequeue(index, now),
                Start::Behind(bytes) => self.dequeue_behind(index, bytes / flows),
            };
            if let Some((packet, seq, ahead)) = popped {
                return Some(Turn::Sends(Popped {
                    packet,
                    seq,
                    ahead: ahead * flows,
                    backlog,
                }));
            }
        }
        self.retire(from_new);
        Some(Turn::Changes)
    }

    /// Numbers start over: what waits gets the first ones. `taken` was popped but has not left; it
    /// leaves before the others of its flow.
    pub fn start_over(&mut self, taken: Option<Popped>, now: Instant) {
        for flow in &mut self.flows {
            flow.packets.retain(Option::is_some);
            flow.next = Header::FIRST;
        }
        let packet = taken.map(|taken| taken.packet);
        if let Some(packet) = packet.filter(|packet| packet.packet_len() > 0) {
            self.put_back(packet, now);
        }
    }

    /// Drops all that waits.
    pub fn clear(&mut self) {
        for flow in &mut self.flows {
            self.stats.dropped += flow.waiting as u64;
            flow.stats.dropped += flow.waiting as u64;
            (flow.waiting, flow.bytes) = (0, 0);
            flow.packets.clear();
        }
        self.bytes = 0;
    }

    fn put_back(&mut self, packet: Queued, now: Instant) {
        let (index, len) = (packet.flow as usize % FLOWS, packet.packet_len());
        let flow = &mut self.flows[index];
        self.bytes += len;
        flow.bytes += len;
        flow.waiting += 1;
        flow.deficit += len as i64;
        flow.packets.push_front(Some((now, packet)));
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

    /// The queue of the flow with this hash, and of any other that falls into it.
    pub fn flow(&self, hash: u32) -> FlowQueue {
        let flow = &self.flows[hash as usize % FLOWS];
        FlowQueue {
            waiting: flow.bytes,
            stood: flow.stood,
            stats: flow.stats,
        }
    }

    /// Tells at which rate the queue empties, in bytes per second: it decides how many bytes may
    /// wait, and how many a flow sends per turn.
    pub fn set_rate(&mut self, rate: u64) {
        let within = |time: Duration| rate as f64 * time.as_secs_f64();
        self.limit = (within(LONGEST_WAIT) as usize).clamp(LEAST_LIMIT, LIMIT);
        self.quantum = (within(TURN) as i64).max(QUANTUM);
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

    /// Moves the flow whose turn it is to the end of the old flows.
    fn rotate(&mut self, from_new: bool) {
        let list = if from_new {
            &mut self.new_flows
        } else {
            &mut self.old_flows
        };
        let index = list
            .pop_front()
            .expect("the flow whose turn it is heads its list");
        self.old_flows.push_back(index);
    }

    /// Takes an empty flow off its list. A new flow first passes through the old list, so that it
    /// cannot stay new by sending one packet at a time (RFC 8290 §4.2).
    fn retire(&mut self, from_new: bool) {
        if from_new {
            self.rotate(true);
        } else if let Some(index) = self.old_flows.pop_front() {
            self.flows[usize::from(index)].listed = false;
        }
    }

    /// The next packet of one flow, its number, and that nothing is ahead of it. Of one that CoDel
    /// drops after its followers' numbers were given away, the number leaves without the packet.
    fn dequeue(&mut self, index: u16, now: Instant) -> Option<(Queued, u32, usize)> {
        let flow = &mut self.flows[usize::from(index)];
        while let Some((since, mut packet)) = flow.pop() {
            let len = packet.packet_len();
            self.bytes -= len;
            let stood = now.saturating_duration_since(since);
            // As RFC 9002 §5.3 smooths round trips.
            flow.stood = (7 * flow.stood + stood) / 8;
            let law = self.law.of(flow.bytes, self.bytes);
            if flow.codel.objects(stood, law, flow.bytes, now) {
                if sennit_packet::rewrite::set_ecn_ce(&mut packet.buffer[HEADROOM..]) {
                    self.stats.marked += 1;
                    flow.stats.marked += 1;
                } else {
                    self.stats.dropped += 1;
                    flow.stats.dropped += 1;
                    if !flow.has_given_away() {
                        continue;
                    }
                    packet.buffer.truncate(HEADROOM);
                }
            }
            flow.deficit -= packet.packet_len() as i64;
            return Some((packet, flow.number(), 0));
        }
        None
    }

    /// The packet of one flow with about so many bytes of it ahead, its number, and these bytes.
    fn dequeue_behind(&mut self, index: u16, bytes: usize) -> Option<(Queued, u32, usize)> {
        let flow = &mut self.flows[usize::from(index)];
        let (packet, seq, ahead) = flow.take_behind(bytes)?;
        self.bytes -= packet.packet_len();
        flow.deficit -= packet.packet_len() as i64;
        Some((packet, seq, ahead))
    }

    fn drop_from_fattest(&mut self) {
        let fattest = self.flows.iter_mut().max_by_key(|flow| flow.bytes);
        if let Some((flow, packet)) = fattest.and_then(|flow| flow.drop_one().map(|it| (flow, it)))
        {
            self.bytes -= packet.packet_len();
            self.stats.overflowed += 1;
            flow.stats.overflowed += 1;
        }
    }
}

impl Flow {
    fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            waiting: 0,
            bytes: 0,
            next: Header::FIRST,
            owner: None,
            deficit: 0,
            listed: false,
            codel: Codel::default(),
            stood: Duration::ZERO,
            stats: QueueStats::default(),
        }
    }

    fn push(&mut self, packet: Queued, now: Instant) {
        self.bytes += packet.packet_len();
        self.waiting += 1;
        self.packets.push_back(Some((now, packet)));
    }

    fn is_of(&self, hash: u32) -> bool {
        self.owner.is_some_and(|(owner, _)| owner == hash)
    }

    fn is_free(&self, now: Instant) -> bool {
        let quiet = |(_, last)| now.saturating_duration_since(last) >= QUIET;
        self.waiting == 0 && self.owner.is_none_or(quiet)
    }

    /// The packet whose turn it is.
    fn head(&mut self) -> Option<&Queued> {
        while let Some(None) = self.packets.front() {
            self.packets.pop_front();
            self.number();
        }
        let (_, packet) = self.packets.front()?.as_ref()?;
        Some(packet)
    }

    /// Takes the packet whose turn it is, but not its [`Self::number`].
    fn pop(&mut self) -> Option<(Instant, Queued)> {
        self.head()?;
        let taken = self.packets.pop_front()??;
        self.account(&taken.1);
        Some(taken)
    }

    /// Takes out the oldest packet, or the newest where later ones have left with their numbers:
    /// the far end waits for what is missing before them, but not for what is missing after.
    fn drop_one(&mut self) -> Option<Queued> {
        if !self.has_given_away() {
            return Some(self.pop()?.1);
        }
        let place = self.packets.iter().rposition(Option::is_some)?;
        let (_, packet) = self.packets[place].take()?;
        if place + 1 == self.packets.len() {
            self.packets.pop_back();
        }
        self.account(&packet);
        Some(packet)
    }

    /// The number of what was the first place.
    fn number(&mut self) -> u32 {
        let seq = self.next;
        self.next = seq.wrapping_add(1);
        seq
    }

    /// Whether a packet has left ahead of one that still waits.
    fn has_given_away(&self) -> bool {
        self.waiting < self.packets.len()
    }

    /// Takes the first packet with at least about `bytes` bytes ahead, or the last, with its number
    /// and how many really are ahead. All packets are taken for as large as the mean.
    fn take_behind(&mut self, bytes: usize) -> Option<(Queued, u32, usize)> {
        let mean = self.bytes.checked_div(self.waiting)?.max(1);
        let places = self.packets.len();
        let from = (bytes / mean).min(places);
        let is_full = |&place: &usize| self.packets[place].is_some();
        let place = (from..places)
            .find(is_full)
            .or_else(|| (0..from).rev().find(is_full))?;
        let (_, packet) = self.packets[place].take()?;
        self.account(&packet);
        let ahead = self.bytes.min(place * mean);
        Some((packet, self.next.wrapping_add(place as u32), ahead))
    }

    fn account(&mut self, packet: &Queued) {
        self.bytes -= packet.packet_len();
        self.waiting -= 1;
    }
}

/// What CoDel steers by.
#[derive(Clone, Copy, Debug)]
struct Law {
    target: Duration,
    interval: Duration,
}

impl Law {
    /// For a flow that has `own` of the bytes that wait. To one of several, no patience is due:
    /// each drop costs it a part of its share only, and what it leaves the others take.
    fn of(self, own: usize, all: usize) -> Self {
        let alone = own as f64 >= ALONE * all as f64;
        Self {
            interval: if alone { self.interval } else { INTERVAL },
            ..self
        }
    }
}

/// The control law of one flow (RFC 8289 §5).
#[derive(Debug, Default)]
struct Codel {
    /// When the sojourn time will have been above target for a whole interval.
    above_until: Option<Instant>,
    dropping: bool,
    next_drop: Option<Instant>,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether the packet that stood for `stood` must be marked or dropped.
    fn objects(&mut self, stood: Duration, law: Law, left: usize, now: Instant) -> bool {
        let standing = self.stands(stood, law.target, left, now);
        if self.dropping {
            return self.objects_again(standing, law.interval, now);
        }
        if standing {
            self.enter(law.interval, now);
        }
        standing
    }

    /// Whether the queue has stood above target for an interval.
    fn stands(&mut self, stood: Duration, target: Duration, left: usize, now: Instant) -> bool {
        if stood < target || left <= QUANTUM as usize {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + INTERVAL)
    }

    fn objects_again(&mut self, standing: bool, interval: Duration, now: Instant) -> bool {
        if !standing {
            self.dropping = false;
            return false;
        }
        let due = self.next_drop.is_some_and(|next| now >= next);
        if due {
            self.count += 1;
            self.next_drop = self.next_drop.map(|next| next + self.spacing(interval));
        }
        due
    }

    /// Starts dropping; where it left off a moment ago it resumes at nearly the old frequency.
    fn enter(&mut self, interval: Duration, now: Instant) {
        let recent = self
            .next_drop
            .is_some_and(|next| now.saturating_duration_since(next) < 16 * interval);
        let delta = self.count.saturating_sub(self.last_count);
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.last_count = self.count;
        self.dropping = true;
        self.next_drop = Some(now + self.spacing(interval));
    }

    fn spacing(&self, interval: Duration) -> Duration {
        interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(flow: u32, len: usize) -> Queued {
        let mut buffer = BytesMut::zeroed(HEADROOM + len);
        buffer[HEADROOM] = 0x45;
        Queued {
            buffer,
            flow,
            in_order: false,
            checksum: Progress::Whole,
        }
    }

    fn any(_: &Queued, _: usize) -> Start {
        Start::Head
    }

    fn only(flow: u32) -> impl Fn(&Queued, usize) -> Start {
        move |it, _| {
            if it.flow == flow {
                Start::Head
            } else {
                Start::Nowhere
            }
        }
    }

    #[test]
    fn numbers_start_over_and_nothing_that_waits_is_lost() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        for len in 1..=6 {
            queue.push(packet(1, 100 * len), now);
        }
        assert_eq!(queue.pop(any, now).unwrap().seq, Header::FIRST);
        let behind = |_: &Queued, _: usize| Start::Behind(700);
        let ahead = queue.pop(behind, now).unwrap().packet.packet_len();
        let taken = queue.pop(any, now).unwrap();
        assert_eq!(taken.packet.packet_len(), 200);

        queue.start_over(Some(taken), now);

        let left = std::iter::from_fn(|| queue.pop(any, now));
        let left: Vec<(u32, usize)> = left
            .map(|it| (it.seq.wrapping_sub(Header::FIRST), it.packet.packet_len()))
            .collect();
        let lens = [200, 300, 400, 500, 600];
        let expected = lens.into_iter().filter(|&len| len != ahead);
        assert_eq!(left, (0..).zip(expected).collect::<Vec<_>>());
        assert!(queue.is_empty());

        queue.push(packet(1, 100), now);
        queue.clear();
        assert!(queue.is_empty() && queue.pop(any, now).is_none());
        queue.push(packet(1, 100), now);
        assert!(queue.pop(any, now).is_some());
    }

    #[test]
    fn a_waking_flow_goes_before_a_standing_one() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        for _ in 0..100 {
            queue.push(packet(1, 1400), now);
        }
        assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
        assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
        queue.push(packet(2, 100), now);
        assert_eq!(queue.pop(any, now).unwrap().packet.flow, 2);
    }

    /// Packets that CoDel drops of flow 1, and of all, in a second in which `flows` flows stand.
    fn drops(flows: u32, reaction: Duration) -> (u64, u64) {
        let start = Instant::now();
        let mut queue = FqCodel::default();
        queue.set_target(TARGET, reaction);
        for ms in 0..1000 {
            let now = start + Duration::from_millis(ms);
            // They always have as much again as leaves.
            let many = if ms == 0 { 100 } else { 1 };
            for flow in (1..=flows).cycle().take(many * flows as usize) {
                queue.push(packet(flow, 1000), now);
            }
            for _ in 0..flows {
                queue.pop(any, now);
            }
        }
        (queue.flow(1).stats.dropped, queue.stats().dropped)
    }

    #[test]
    fn a_flow_alone_is_not_told_again_before_it_can_have_reacted() {
        let (quick, slow) = (Duration::ZERO, Duration::from_millis(400));
        assert_eq!(drops(1, slow).0, 3);
        assert!(drops(1, quick).0 > 2 * drops(1, slow).0);
        assert_eq!(drops(2, slow), drops(2, quick));
    }

    #[test]
    fn standing_flows_share_by_bytes_not_by_packets() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        for _ in 0..400 {
            queue.push(packet(1, 1400), now);
            for _ in 0..10 {
                queue.push(packet(2, 140), now);
            }
        }
        let mut bytes = [0_usize; 2];
        for _ in 0..2000 {
            let packet = queue.pop(any, now).unwrap().packet;
            bytes[packet.flow as usize - 1] += packet.packet_len();
        }
        assert!(
            bytes[0].abs_diff(bytes[1]) <= 2 * QUANTUM as usize,
            "{bytes:?}"
        );
    }

    #[test]
    fn a_flow_that_may_not_send_does_not_hold_up_the_others() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        queue.push(packet(1, 100), now);
        queue.push(packet(2, 100), now);
        assert_eq!(queue.pop(only(2), now).unwrap().packet.flow, 2);
        assert!(queue.pop(only(2), now).is_none());
        assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn packets_of_several_quanta_keep_coming_and_leave_others_their_share() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        for _ in 0..3 {
            queue.push(packet(1, 9000), now);
        }
        for _ in 0..20 {
            queue.push(packet(2, 1500), now);
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop(any, now))
            .map(|popped| popped.packet.flow)
            .collect();
        assert_eq!(order.len(), 23);
        let between = order[1..].iter().position(|&flow| flow == 1);
        assert!((5..=6).contains(&between.unwrap()), "{order:?}");
    }

    /// Length and number of the next packet, with the first as 0.
    fn next(queue: &mut FqCodel, start: Start, now: Instant) -> (usize, u32) {
        let popped = queue.pop(|_, _| start, now).unwrap();
        (popped.packet.packet_len(), place(&popped))
    }

    fn place(popped: &Popped) -> u32 {
        popped.seq.wrapping_sub(Header::FIRST)
    }

    #[test]
    fn packets_that_leave_ahead_of_their_turn_keep_their_number() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        for place in 0..8 {
            queue.push(packet(1, 1000 + place), now);
        }
        let behind = Start::Behind;
        assert_eq!(next(&mut queue, Start::Head, now), (1000, 0));
        assert_eq!(next(&mut queue, behind(3900), now), (1004, 4));
        assert_eq!(next(&mut queue, behind(3900), now), (1005, 5));
        assert_eq!(next(&mut queue, behind(90_000), now), (1007, 7));
        assert_eq!(next(&mut queue, behind(90_000), now), (1006, 6));
        queue.push(packet(1, 1008), now);
        for place in [1, 2, 3, 8] {
            let expected = (1000 + place as usize, place);
            assert_eq!(next(&mut queue, Start::Head, now), expected);
        }
        assert!(queue.is_empty());
        queue.push(packet(1, 1009), now);
        assert_eq!(next(&mut queue, behind(9), now), (1009, 9));
    }

    #[test]
    fn what_would_leave_before_an_early_packet_counts_all_flows() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        for _ in 0..10 {
            queue.push(packet(1, 1000), now);
            queue.push(packet(2, 1000), now);
        }
        let popped = queue.pop(|_, _| Start::Behind(8000), now).unwrap();
        assert_eq!((place(&popped), popped.ahead), (4, 8000));
        assert_eq!(popped.backlog, 20_000);
    }

    #[test]
    fn a_drop_leaves_no_number_out() {
        let start = Instant::now();
        let mut queue = FqCodel::default();
        let step = |queue: &mut FqCodel, millis| {
            let now = start + Duration::from_millis(millis);
            queue.push(packet(1, 1400), now);
            queue.push(packet(1, 1400), now);
            next(queue, Start::Head, now)
        };
        for seq in 0..2000 {
            assert_eq!(step(&mut queue, seq), (1400, seq as u32));
        }
        let dropped = queue.stats().dropped;
        assert!(dropped > 20);
        let now = start + Duration::from_secs(2);
        let (_, early) = next(&mut queue, Start::Behind(usize::MAX), now);
        let mut empty = 0;
        for seq in 2000..early {
            let (len, left) = step(&mut queue, seq.into());
            empty += u64::from(len == 0);
            assert_eq!(left, seq);
        }
        assert_eq!(empty, queue.stats().dropped - dropped);
        assert!(empty > 20);
        assert_eq!(step(&mut queue, early.into()), (1400, early + 1));
    }

    /// Offers twice what is taken, for two seconds, and returns the statistics at the end.
    fn overload(ecn: u8) -> (QueueStats, usize) {
        let start = Instant::now();
        let mut queue = FqCodel::default();
        for step in 0..2000 {
            let now = start + Duration::from_millis(step);
            for _ in 0..2 {
                let mut packet = packet(1, 1400);
                packet.buffer[HEADROOM + 1] = ecn;
                queue.push(packet, now);
            }
            queue.pop(any, now).unwrap();
        }
        (queue.stats(), queue.backlog())
    }

    #[test]
    fn a_standing_queue_is_dropped_from_ever_more_often() {
        let (stats, _) = overload(0);
        assert!(stats.dropped > 20, "{stats:?}");
        assert_eq!(stats.marked, 0);
    }

    #[test]
    fn each_flow_has_its_own_account() {
        let start = Instant::now();
        let mut queue = FqCodel::default();
        for step in 0..2000 {
            let now = start + Duration::from_millis(step);
            queue.push(packet(1, 1400), now);
            queue.push(packet(1, 1400), now);
            queue.pop(any, now).unwrap();
            queue.push(packet(2, 100), now);
            queue.pop(any, now).unwrap();
        }
        let (fat, thin) = (queue.flow(1), queue.flow(2));
        assert!(fat.waiting > 0 && fat.stood > TARGET, "{fat:?}");
        assert!(fat.stats.dropped > 0, "{fat:?}");
        assert_eq!((thin.stats.enqueued, thin.stats.dropped), (2000, 0));
        assert!(thin.stood < Duration::from_millis(2), "{thin:?}");
        assert_eq!(fat.stats.dropped, queue.stats().dropped);
    }

    /// The queue that a packet of the flow with this hash gets.
    fn place_of(queue: &mut FqCodel, hash: u32, now: Instant) -> u32 {
        queue.push(packet(hash, 100), now);
        let place = |hash: u32| hash % FLOWS as u32;
        let popped = std::iter::from_fn(|| queue.pop(any, now)).last();
        place(popped.unwrap().packet.flow)
    }

    #[test]
    fn flows_of_the_same_hash_do_not_wait_for_each_other() {
        const FULL: u32 = FLOWS as u32;
        let now = Instant::now();
        let mut queue = FqCodel::default();
        for _ in 0..100 {
            queue.push(packet(7, 1400), now);
        }
        queue.pop(any, now).unwrap();
        queue.pop(any, now).unwrap();
        queue.push(packet(7 + FULL, 100), now);
        let popped = queue.pop(any, now).unwrap();
        assert_eq!((popped.packet.packet_len(), place(&popped)), (100, 0));
        // Behind the last way comes the first.
        assert_eq!(popped.packet.flow, FULL);
        // It is its own from now on, and the one next to it is still at home.
        queue.push(packet(0, 100), now);
        assert_eq!(queue.pop(any, now).unwrap().packet.flow, 1);
    }

    #[test]
    fn a_flow_keeps_its_queue_until_it_falls_silent() {
        let start = Instant::now();
        let mut queue = FqCodel::default();
        let hash = |nth: u32| 16 + nth * FLOWS as u32;
        for nth in 0..8 {
            assert_eq!(place_of(&mut queue, hash(nth), start), 16 + nth);
        }
        // All are taken.
        assert_eq!(place_of(&mut queue, hash(8), start), 16);
        let now = start + QUIET / 2;
        for nth in [0, 1, 2, 3, 4, 6, 7] {
            assert_eq!(place_of(&mut queue, hash(nth), now), 16 + nth);
        }
        let now = start + QUIET;
        assert_eq!(place_of(&mut queue, hash(8), now), 16 + 5);
        assert_eq!(place_of(&mut queue, hash(5), now), 16);
        let now = now + QUIET;
        assert_eq!(place_of(&mut queue, hash(8), now), 16 + 5);
    }

    #[test]
    fn a_queue_in_which_something_stands_is_not_free() {
        let start = Instant::now();
        let mut queue = FqCodel::default();
        queue.push(packet(3, 100), start);
        queue.push(packet(3, 100), start);
        let later = start + 2 * QUIET;
        queue.push(packet(3 + FLOWS as u32, 100), later);
        let flows = [(); 3].map(|()| queue.pop(any, later).unwrap().packet.flow);
        assert_eq!(flows, [3, 3, 4 + FLOWS as u32]);
    }

    #[test]
    fn a_short_burst_is_left_alone() {
        let start = Instant::now();
        let mut queue = FqCodel::default();
        for _ in 0..50 {
            queue.push(packet(1, 1400), start);
        }
        for step in 0..50 {
            assert!(
                queue
                    .pop(any, start + Duration::from_millis(step))
                    .is_some()
            );
        }
        assert_eq!(queue.stats().dropped, 0);
    }

    #[test]
    fn memory_is_bounded_and_the_fattest_flow_pays() {
        let now = Instant::now();
        let mut queue = FqCodel::default();
        queue.push(packet(2, 100), now);
        for _ in 0..2 * LIMIT / 1400 {
            queue.push(packet(1, 1400), now);
        }
        assert!(queue.backlog() <= LIMIT);
        assert!(queue.stats().overflowed > 0);
        let thin = std::iter::from_fn(|| queue.pop(any, now))
            .filter(|popped| popped.packet.flow == 2)
            .count();
        assert_eq!(thin, 1);
    }
}
