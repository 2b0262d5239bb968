//! The life of a packet: queue, wire, flight.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use crate::config::Config;
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
    /// When the last bit of the queue's head leaves; `None` while the wire is idle.
    head_done: Option<Instant>,
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
            head_done: None,
            flight: BinaryHeap::new(),
            offered: 0,
            departed: 0,
            last_arrival: None,
            loss: loss::Process::new(seed),
            jitter: jitter::Process::new(seed ^ JITTER_STREAM),
            counters: Counters::default(),
        }
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
        if self.loss.loses(&self.config.loss, number) {
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
        self.advance(now);
        if self.flight.peek()?.0.arrival > now {
            return None;
        }
        let Reverse(flying) = self.flight.pop()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += flying.len as u64;
        Some(flying.packet)
    }

    /// When the next packet may arrive; polling earlier is harmless.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let flying = self.flight.peek().map(|flying| flying.0.arrival);
        let waiting = self.head_done.map(|done| done + self.least_delay());
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
        if let Some(done) = self.head_done {
            let left = done.saturating_duration_since(now);
            self.head_done = Some(now + rescale(left, &self.config, &config));
        }
        self.config = config;
    }

    fn refuses(&self, len: usize) -> Option<Reason> {
        let queued = self.queued_bytes + len + self.config.frame_overhead;
        let full = self.config.rate.is_some() && queued > self.config.queue_limit();
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
        let frame = len + self.config.frame_overhead;
        self.queued_bytes += frame;
        self.counters.queue_max = self.counters.queue_max.max(self.queued_bytes);
        self.head_done
            .get_or_insert(now + self.config.wire_time(len));
        self.queue.push_back(Waiting { len, frame, packet });
    }

    /// Lets everything leave the wire that has left it by `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(done) = self.head_done.filter(|done| *done <= now) {
            let head = self
                .queue
                .pop_front()
                .expect("the wire is busy with the queue's head");
            self.queued_bytes -= head.frame;
            self.head_done = self
                .queue
                .front()
                .map(|next| done + self.config.wire_time(next.len));
            self.depart(head, done);
        }
    }

    fn depart(&mut self, head: Waiting<P>, left: Instant) {
        let delay = self
            .jitter
            .delay(self.config.delay, self.config.jitter, left);
        let Some(packet) = head.packet else { return };
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

    fn least_delay(&self) -> Duration {
        self.config.delay.saturating_sub(self.config.jitter.reach())
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
        self.head_done = None;
    }
}

/// The time that the unsent rest of a packet takes at another rate.
fn rescale(left: Duration, from: &Config, to: &Config) -> Duration {
    match (from.rate, to.rate) {
        (Some(old), Some(new)) => left.mul_f64(old.as_bps() as f64 / new.as_bps() as f64),
        (_, None) | (None, Some(_)) => Duration::ZERO,
    }
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
