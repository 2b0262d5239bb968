//! The load of one end: streams and messages, sent and counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use sennit_engine::{Bare, BareEvent, BareStats, Stream};
use sennit_load::{Arrivals, BIN, Received as Counter, Schedule};

use super::words::{Plan, Received, Sent, Side};

/// What is written to a stream at once.
const BLOCK: usize = 64 << 10;
/// At a rate, streams get so much at once, or what is due in [`TICK`] if that is less.
const PIECE: f64 = 16_384.0;
const TICK: f64 = 0.005;
/// First octet of a message.
const MESSAGE: u8 = 3;
/// Octet, number, time of sending.
pub(super) const HEAD: usize = 17;

/// The connections of a load at one end.
pub(super) struct Load {
    plan: Plan,
    block: Bytes,
    members: BTreeMap<Id, Member>,
    /// Begins with the load.
    run: Option<Run>,
    /// Streams that take data, as far as is known.
    ready: BTreeSet<(Id, Stream)>,
    /// Connections that take messages, as far as is known.
    roomy: BTreeSet<Id>,
}

type Id = sennit_engine::ConnId;

#[derive(Default)]
struct Member {
    /// Only of connections with messages: histograms are large.
    arrivals: Option<Box<Arrivals>>,
    messages: u64,
    streams: Vec<Stream>,
    before: BareStats,
    /// As it was when it was last looked at.
    after: BareStats,
    controller: Option<String>,
}

struct Run {
    start: Instant,
    sends: bool,
    schedule: Option<Schedule>,
    /// Which member's turn it is at a rate.
    turn: usize,
    counter: Counter,
    counted_from: Instant,
    flows: BTreeMap<(Id, Option<Stream>), u64>,
    cpu: Option<Duration>,
}

impl Load {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            block: Bytes::from(vec![0x5a; BLOCK]),
            members: BTreeMap::new(),
            run: None,
            ready: BTreeSet::new(),
            roomy: BTreeSet::new(),
        }
    }

    /// Another connection takes part.
    pub(super) fn add(&mut self, id: Id) {
        self.members.insert(id, Member::default());
    }

    /// A connection is gone; what it did still counts.
    pub(super) fn lose(&mut self, id: Id) {
        self.ready.retain(|(of, _)| *of != id);
        self.roomy.remove(&id);
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Id> {
        self.members.keys().copied()
    }

    /// The load begins; this end sends, or only receives.
    pub(super) fn start(&mut self, bare: &mut Bare, sends: bool, now: Instant) {
        for (&id, member) in &mut self.members {
            member.before = bare.stats(id).unwrap_or_default();
            if sends && self.plan.message_bytes.is_some() {
                self.roomy.insert(id);
            } else if sends {
                let open = |_| bare.open(id, false);
                member.streams = (0..self.plan.streams).map_while(open).collect();
                self.ready.extend(member.streams.iter().map(|&s| (id, s)));
            }
        }
        self.run = Some(Run {
            start: now,
            sends,
            schedule: self.schedule(now),
            turn: 0,
            counter: Counter::new(now, BIN),
            counted_from: now,
            flows: BTreeMap::new(),
            cpu: cpu(),
        });
    }

    fn schedule(&self, now: Instant) -> Option<Schedule> {
        let bytes_a_second = self.plan.rate_bits_per_second? / 8.0;
        Some(Schedule::per_second(bytes_a_second / self.piece(), now))
    }

    /// Bytes that are due at once, at a rate.
    fn piece(&self) -> f64 {
        let bytes_a_second = self.plan.rate_bits_per_second.unwrap_or(f64::MAX) / 8.0;
        match self.plan.message_bytes {
            Some(bytes) => f64::from(bytes),
            None => (bytes_a_second * TICK).clamp(1.0, PIECE).floor(),
        }
    }

    /// What arrives counts from now on: the far end began a moment ago.
    pub(super) fn count_from(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            run.counter = Counter::new(now, BIN);
            run.counted_from = now;
            run.flows.clear();
        }
    }

    /// When [`Self::fill`] has something to do after `now` without anything having happened. What
    /// is due already waits for room.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        let run = self.run.as_ref().filter(|run| run.sends)?;
        let due = run.schedule.as_ref().map(Schedule::next_at);
        let end = run.start + self.span();
        let due = due.filter(|due| *due > now);
        Some(due.map_or(end, |due| due.min(end)))
    }

    fn span(&self) -> Duration {
        Duration::from_secs_f64(self.plan.seconds)
    }

    /// Hands over what may be sent now.
    pub(super) fn fill(&mut self, bare: &mut Bare, now: Instant) {
        let span = self.span();
        let Some(run) = self.run.as_ref().filter(|run| run.sends) else {
            return;
        };
        if now >= run.start + span {
            return self.stop(bare);
        }
        match run.schedule {
            None if self.plan.message_bytes.is_some() => self.fill_with_messages(bare, now),
            None => self.fill_streams(bare),
            Some(schedule) => self.fill_at_rate(schedule, bare, now),
        }
    }

    /// Nothing more is sent.
    pub(super) fn stop(&mut self, bare: &mut Bare) {
        if let Some(run) = self.run.as_mut().filter(|run| run.sends) {
            run.sends = false;
            self.give_up(bare);
        }
    }

    /// What was written and has not left is not sent any more.
    fn give_up(&mut self, bare: &mut Bare) {
        for (&id, member) in &self.members {
            for &stream in &member.streams {
                bare.reset(id, stream);
            }
        }
        self.ready.clear();
        self.roomy.clear();
    }

    fn fill_streams(&mut self, bare: &mut Bare) {
        while let Some((id, stream)) = self.ready.pop_first() {
            while bare.write(id, stream, &self.block).is_some_and(|n| n > 0) {}
        }
    }

    fn fill_with_messages(&mut self, bare: &mut Bare, now: Instant) {
        while let Some(id) = self.roomy.pop_first() {
            while self.send_message(id, bare, now) {}
        }
    }

    fn fill_at_rate(&mut self, mut schedule: Schedule, bare: &mut Bare, now: Instant) {
        while schedule.next_at() <= now && self.send_piece(bare, now) {
            schedule.take(now);
        }
        if let Some(run) = &mut self.run {
            run.schedule = Some(schedule);
        }
    }

    /// Whether whose turn it is had room for what is due at once.
    fn send_piece(&mut self, bare: &mut Bare, now: Instant) -> bool {
        let (piece, count) = (self.piece() as usize, self.members.len());
        let Some(run) = self.run.as_mut().filter(|_| count > 0) else {
            return false;
        };
        run.turn += 1;
        let (member, round) = (run.turn % count, run.turn / count);
        let Some((&id, Member { streams, .. })) = self.members.iter().nth(member) else {
            return false;
        };
        if self.plan.message_bytes.is_some() {
            return self.send_message(id, bare, now);
        }
        let stream = streams.get(round % streams.len().max(1));
        let piece = self.block.slice(..piece.min(BLOCK));
        stream.is_some_and(|&stream| bare.write(id, stream, &piece).is_some_and(|n| n > 0))
    }

    /// Whether there was room.
    fn send_message(&mut self, id: Id, bare: &mut Bare, now: Instant) -> bool {
        let (Some(run), Some(member)) = (&self.run, self.members.get_mut(&id)) else {
            return false;
        };
        let bytes = usize::from(self.plan.message_bytes.unwrap_or_default()).max(HEAD);
        let since = now.saturating_duration_since(run.start);
        let mut message = BytesMut::with_capacity(bytes);
        message.put_u8(MESSAGE);
        message.put_u64(member.messages);
        message.put_u64(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        message.resize(bytes, 0x5a);
        let sent = bare.send_datagram(id, message.freeze());
        member.messages += u64::from(sent);
        sent
    }

    /// Takes an event of one of its connections.
    pub(super) fn handle_event(&mut self, bare: &mut Bare, event: &BareEvent, now: Instant) {
        match event {
            BareEvent::Opened(id, stream) | BareEvent::Readable(id, stream)
                if !stream.goes_both_ways() =>
            {
                let bytes = bare.count(*id, *stream);
                self.count((*id, Some(*stream)), bytes, now);
            }
            BareEvent::Writable(id, stream) if !stream.goes_both_ways() => {
                let sends = self.run.as_ref().is_some_and(|run| run.sends);
                if sends && self.plan.rate_bits_per_second.is_none() {
                    self.ready.insert((*id, *stream));
                }
            }
            BareEvent::DatagramRoom(id) => {
                let sends = self.run.as_ref().is_some_and(|run| run.sends);
                if sends && self.plan.rate_bits_per_second.is_none() {
                    self.roomy.insert(*id);
                }
            }
            BareEvent::Datagram(id, bytes, arrived) => self.handle_message(*id, bytes, *arrived),
            BareEvent::Lost(id, _) => self.lose(*id),
            BareEvent::Accepted(..)
            | BareEvent::Connected(_)
            | BareEvent::Opened(..)
            | BareEvent::Readable(..)
            | BareEvent::Writable(..) => {}
        }
    }

    fn handle_message(&mut self, id: Id, bytes: &[u8], arrived: Instant) {
        let Some((MESSAGE, number, sent)) = read_head(bytes) else {
            return;
        };
        let (Some(run), Some(member)) = (&self.run, self.members.get_mut(&id)) else {
            return;
        };
        let since = arrived.saturating_duration_since(run.start);
        let arrivals = member.arrivals.get_or_insert_default();
        arrivals.note(number, bytes.len(), sent, since);
        self.count((id, None), bytes.len(), arrived);
    }

    fn count(&mut self, flow: (Id, Option<Stream>), bytes: usize, at: Instant) {
        let span = self.span();
        let Some(run) = self.run.as_mut().filter(|_| bytes > 0) else {
            return;
        };
        if (run.counted_from..run.counted_from + span).contains(&at) {
            run.counter.note(at, bytes);
            *run.flows.entry(flow).or_default() += bytes as u64;
        }
    }

    /// Payload bytes that arrived so far.
    pub(super) fn received(&self) -> u64 {
        let run = self.run.as_ref();
        run.map_or(0, |run| run.flows.values().sum())
    }

    /// Messages that this end sent so far.
    pub(super) fn messages(&self) -> u64 {
        self.members.values().map(|member| member.messages).sum()
    }

    /// Looks at the connections while they are there.
    pub(super) fn look(&mut self, bare: &mut Bare) {
        for (&id, member) in &mut self.members {
            if let Some(stats) = bare.stats(id) {
                member.after = stats;
            }
            if let Some(choice) = bare.choice(id) {
                member.controller = Some(choice.controller.to_string());
            }
        }
    }

    /// What this end did until `now`, of which the first `span` counts; the far end sent so many
    /// messages.
    pub(super) fn side(
        &mut self,
        bare: &mut Bare,
        sent: Option<u64>,
        span: Duration,
        now: Instant,
    ) -> Side {
        self.look(bare);
        let Some(run) = &self.run else {
            return Side::default();
        };
        let elapsed = now.saturating_duration_since(run.counted_from);
        let span = elapsed
            .min(self.span())
            .min(span)
            .max(Duration::from_millis(1));
        let bulk = run.counter.within(span);
        let arrivals: Vec<_> = self
            .members
            .values()
            .filter_map(|m| m.arrivals.as_deref())
            .collect();
        let members = self.members.values();
        let of_all = |number: fn(&BareStats) -> u64| {
            let grown =
                |member: &Member| number(&member.after).saturating_sub(number(&member.before));
            members.clone().map(grown).sum()
        };
        let cpu_seconds = run.cpu.zip(cpu()).map(|(from, to)| to.saturating_sub(from));
        Side {
            received: Received {
                seconds: span.as_secs_f64(),
                bytes: run.counter.before(span),
                bins: Some(bulk.bins),
                flows: self.flows(run),
                messages: (self.plan.message_bytes.is_some())
                    .then(|| Arrivals::together(&arrivals, sent)),
            },
            sent: Sent {
                messages: self.messages(),
                packets: of_all(|stats| stats.sent_packets),
                lost: of_all(|stats| stats.lost_packets),
                controllers: self.controllers(),
            },
            cpu_seconds: cpu_seconds.map(|time| time.as_secs_f64()),
        }
    }

    /// Bytes of each flow, also of those of which nothing arrived.
    fn flows(&self, run: &Run) -> Vec<u64> {
        let of_each = match self.plan.message_bytes {
            Some(_) => 1,
            None => usize::from(self.plan.streams),
        };
        let mut flows: Vec<u64> = run.flows.values().copied().collect();
        flows.resize(flows.len().max(self.members.len() * of_each), 0);
        flows
    }

    fn controllers(&self) -> Vec<String> {
        let words = self.members.values();
        let words: BTreeSet<&String> = words.filter_map(|m| m.controller.as_ref()).collect();
        words.into_iter().cloned().collect()
    }
}

fn read_head(bytes: &[u8]) -> Option<(u8, u64, Duration)> {
    let (kind, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (nanos, _) = rest.split_first_chunk()?;
    let sent = Duration::from_nanos(u64::from_be_bytes(*nanos));
    Some((*kind, u64::from_be_bytes(*number), sent))
}

/// CPU time of this thread, where the kernel keeps account of it.
fn cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}
