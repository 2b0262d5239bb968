//! The life of a packet: queue, wire, flight.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::trace::{Passage, Step, nanos, speed_of, work, work_of};
use crate::{jitter, loss};

/// Bounds the memory of a link without a rate: 400 Mbit/s of full packets for 7 s.
const IN_LINK_MAX: usize = 1 << 18;

/// Keeps the draws of jitter apart from those of loss.
const JITTER_STREAM: u64 = 0x6a09_e667_f3bc_c908;

/// Why a packet will not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The queue is full.
    Queue,
    /// The wire loses it; the capacity is spent all the same.
    Loss,
    /// The link is out.
    Outage,
    /// It exceeds the MTU.
    Size,
}

/// A packet that will not arrive, handed back so that its buffer can be used again.
#[derive(Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// Why.
    pub reason: Reason,
    /// The packet itself.
    pub packet: P,
}

/// What happened on a link so far. Bytes are those of packets, without frame overhead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets handed in.
    pub offered: u64,
    /// Bytes handed in.
    pub offered_bytes: u64,
    /// Packets handed out.
    pub delivered: u64,
    /// Bytes handed out.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_queue: u64,
    /// Packets lost on the wire.
    pub dropped_loss: u64,
    /// Packets lost to an outage, with those that were in the link when it began.
    pub dropped_outage: u64,
    /// Packets larger than the MTU.
    pub dropped_size: u64,
    /// The most frame bytes that ever waited.
    pub queue_max: usize,
}

impl Counters {
    /// All packets that did not arrive.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_loss + self.dropped_outage + self.dropped_size
    }
}

/// One direction of a link carrying packets of type `P`.
#[derive(Debug)]
pub struct Link<P> {
    config: Config,
    queue: VecDeque<Waiting<P>>,
    queued_bytes: usize,
    /// `None` while the wire is idle.
    head: Option<Sending>,
    /// When the trace began.
    epoch: Option<Instant>,
    flight: BinaryHeap<Reverse<Flying<P>>>,
    /// Over the link's whole life, unlike the counters.
    offered: u64,
    departed: u64,
    last_arrival: Option<Instant>,
    loss: loss::Process,
    jitter: jitter::Process,
    counters: Counters,
}

impl<P> Link<P> {
    /// An idle link whose chance events are determined by `seed`.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            queue: VecDeque::new(),
            queued_bytes: 0,
            head: None,
            epoch: None,
            flight: BinaryHeap::new(),
            offered: 0,
            departed: 0,
            last_arrival: None,
            loss: loss::Process::new(seed),
            jitter: jitter::Process::new(seed ^ JITTER_STREAM),
            counters: Counters::default(),
        }
    }

    /// Starts the link's trace, now instead of with the first packet.
    pub fn begin(&mut self, now: Instant) {
        self.advance(now);
        let left = self.left(now);
        self.epoch = Some(now);
        self.head = left.map(|left| self.sending(left, now));
    }

    /// What the link is asked to do now.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Counts from zero again; what is in the link stays and will count as delivered.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// Packets that are in the link.
    pub fn len(&self) -> usize {
        self.queue.len() + self.flight.len()
    }

    /// Whether no packet is in the link.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offers a packet of `len` bytes; an error hands back one that will never arrive.
    pub fn handle_packet(&mut self, len: usize, packet: P, now: Instant) -> Result<(), Dropped<P>> {
        self.advance(now);
        let number = self.offered;
        self.offered += 1;
        self.counters.offered += 1;
        self.counters.offered_bytes += len as u64;
        if let Some(reason) = self.refuses(len) {
            self.count(reason);
            return Err(Dropped { reason, packet });
        }
        if self.loss.loses(&self.config.loss, number, len) {
            self.count(Reason::Loss);
            self.enqueue(len, None, now);
            return Err(Dropped {
                reason: Reason::Loss,
                packet,
            });
        }
        self.enqueue(len, Some(packet), now);
        Ok(())
    }

    /// The next packet that has arrived by `now`.
    pub fn poll_output(&mut self, now: Instant) -> Option<P> {
        self.poll_arrival(now).map(|(_, packet)| packet)
    }

    /// The next packet that has arrived by `now`, and when it did, however late that is asked.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<(Instant, P)> {
        self.advance(now);
        if self.flight.peek()?.0.arrival > now {
            return None;
        }
        let Reverse(flying) = self.flight.pop()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += flying.len as u64;
        Some((flying.arrival, flying.packet))
    }

    /// When the next packet may arrive; polling earlier is harmless.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let flying = self.flight.peek().map(|flying| flying.0.arrival);
        let waiting = self
            .head
            .map(|head| head.done + self.least_delay(head.done));
        flying.into_iter().chain(waiting).min()
    }

    /// Changes the link at once. The queue keeps its packets and what is left of them leaves at the
    /// new rate; packets in flight stay as they are. An outage loses all of them.
    pub fn set_config(&mut self, config: Config, now: Instant) {
        self.advance(now);
        if config.outage {
            self.lose_all();
        }
        if config.jitter != self.config.jitter {
            self.jitter.restart();
        }
        let left = self.left(now);
        if config.trace != self.config.trace {
            self.epoch = Some(now);
        }
        self.config = config;
        self.head = left.map(|left| self.sending(left, now));
    }

    fn refuses(&self, len: usize) -> Option<Reason> {
        let queued = self.queued_bytes + len + self.config.frame_overhead;
        let full = self.config.is_limited() && queued > self.config.queue_limit();
        if self.config.outage {
            Some(Reason::Outage)
        } else if len > self.config.mtu {
            Some(Reason::Size)
        } else if (full && !self.queue.is_empty()) || self.len() >= IN_LINK_MAX {
            Some(Reason::Queue)
        } else {
            None
        }
    }

    fn count(&mut self, reason: Reason) {
        match reason {
            Reason::Queue => self.counters.dropped_queue += 1,
            Reason::Loss => self.counters.dropped_loss += 1,
            Reason::Outage => self.counters.dropped_outage += 1,
            Reason::Size => self.counters.dropped_size += 1,
        }
    }

    fn enqueue(&mut self, len: usize, packet: Option<P>, now: Instant) {
        self.epoch.get_or_insert(now);
        let frame = len + self.config.frame_overhead;
        self.queued_bytes += frame;
        self.counters.queue_max = self.counters.queue_max.max(self.queued_bytes);
        if self.head.is_none() {
            self.head = Some(self.sending(work_of(frame), now));
        }
        self.queue.push_back(Waiting { len, frame, packet });
    }

    /// Lets everything leave the wire that has left it by `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(Sending { done, .. }) = self.head.filter(|head| head.done <= now) {
            let head = self
                .queue
                .pop_front()
                .expect("the wire is busy with the queue's head");
            self.queued_bytes -= head.frame;
            self.head = self
                .queue
                .front()
                .map(|next| self.sending(work_of(next.frame), done));
            self.depart(head, done);
        }
    }

    /// A wire that begins at `since` with something of which so much is left.
    fn sending(&self, left: u128, since: Instant) -> Sending {
        let done = match (&self.config.trace, self.config.rate) {
            (Some(trace), rate) => {
                let start = self.elapsed(since);
                since + (trace.finish(start, left, rate) - start)
            }
            (None, Some(rate)) => since + nanos(left.div_ceil(speed_of(rate))),
            (None, None) => since,
        };
        Sending { left, since, done }
    }

    /// What is left of the packet on the wire.
    fn left(&self, now: Instant) -> Option<u128> {
        let Sending { left, since, .. } = self.head?;
        Some(left.saturating_sub(self.carried(since, now)))
    }

    /// What the wire has sent since it began with the head.
    fn carried(&self, since: Instant, now: Instant) -> u128 {
        match (&self.config.trace, self.config.rate) {
            (Some(trace), rate) => trace.carried(self.elapsed(since), self.elapsed(now), rate),
            (None, Some(rate)) => work(speed_of(rate), now.saturating_duration_since(since)),
            (None, None) => u128::MAX,
        }
    }

    /// How long the trace has run.
    fn elapsed(&self, now: Instant) -> Duration {
        self.epoch
            .map_or(Duration::ZERO, |epoch| now.saturating_duration_since(epoch))
    }

    /// What the trace says of a moment.
    fn step(&self, at: Instant) -> Option<&Step> {
        let trace = self.config.trace.as_ref()?;
        Some(trace.at(self.elapsed(at)))
    }

    fn depart(&mut self, head: Waiting<P>, left: Instant) {
        let step = self.step(left);
        let lost = step.is_some_and(|step| step.passage == Passage::Lost);
        let base = self.config.delay + step.map_or(Duration::ZERO, |step| step.delay);
        let delay = self.jitter.delay(base, self.config.jitter, left);
        let Some(packet) = head.packet else { return };
        if lost {
            self.count(Reason::Outage);
            return;
        }
        let mut arrival = left + delay;
        if !self.config.jitter.reorder {
            arrival = self.last_arrival.map_or(arrival, |last| last.max(arrival));
        }
        self.last_arrival = self.last_arrival.max(Some(arrival));
        self.departed += 1;
        let flying = Flying {
            arrival,
            sequence: self.departed,
            len: head.len,
            packet,
        };
        self.flight.push(Reverse(flying));
    }

    /// Of what leaves at `left` or, where packets overtake each other, later.
    fn least_delay(&self, left: Instant) -> Duration {
        let extra = match &self.config.trace {
            Some(trace) if self.config.jitter.reorder => trace.delays()[0],
            Some(trace) => trace.at(self.elapsed(left)).delay,
            None => Duration::ZERO,
        };
        (self.config.delay + extra).saturating_sub(self.config.jitter.reach())
    }

    fn lose_all(&mut self) {
        let waiting = self
            .queue
            .drain(..)
            .filter(|waiting| waiting.packet.is_some())
            .count();
        self.counters.dropped_outage += (waiting + self.flight.len()) as u64;
        self.flight.clear();
        self.queued_bytes = 0;
        self.head = None;
    }
}

/// The packet on the wire.
#[derive(Debug, Clone, Copy)]
struct Sending {
    /// What was left to send at `since`.
    left: u128,
    since: Instant,
    /// When its last bit leaves.
    done: Instant,
}

/// A packet on or before the wire; without content it is one that the wire loses.
#[derive(Debug)]
struct Waiting<P> {
    len: usize,
    /// Bytes counted against the queue; the configured overhead may change meanwhile.
    frame: usize,
    packet: Option<P>,
}

/// A packet on its way, ordered by arrival.
#[derive(Debug)]
struct Flying<P> {
    arrival: Instant,
    sequence: u64,
    len: usize,
    packet: P,
}

impl<P> PartialEq for Flying<P> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<P> Eq for Flying<P> {}

impl<P> PartialOrd for Flying<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Flying<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.arrival, self.sequence).cmp(&(other.arrival, other.sequence))
    }
}
