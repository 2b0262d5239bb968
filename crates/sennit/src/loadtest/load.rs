//! The load of one end: streams and messages, sent and counted.

mod message;
mod messages;
mod protection;
mod tally;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use protection::{Receiving, Sending};
use sennit_engine::{BareEvent, BareStats, Stream};
use sennit_fec::Fec;
use sennit_linux::waits::{Spent, Waits};
use sennit_load::{Arrivals, Schedule};
pub(super) use tally::Tally;

use super::stack::Stack;
use super::words::{Memory, Plan, Received, Sent, Side, Tick};

/// What is written to a stream at once.
const BLOCK: usize = 64 << 10;
/// At a rate, streams get so much at once, or what is due in [`TICK`] if that is less.
const PIECE: f64 = 16_384.0;
const TICK: f64 = 0.005;

/// The connections of a load at one end.
pub(super) struct Load {
    plan: Plan,
    /// How messages are protected.
    fec: Fec,
    block: Bytes,
    members: BTreeMap<Id, Member>,
    memory: Memory,
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
    /// Only of connections with messages that are protected.
    sending: Option<Box<Sending>>,
    receiving: Option<Box<Receiving>>,
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
    /// Connections that have yet to begin, and when.
    waiting: VecDeque<(Instant, Id)>,
    /// Connections that have begun.
    begun: Vec<Id>,
    /// Whose turn it is at a rate.
    turn: usize,
    /// Payload bytes that may still be written, if they are limited.
    left: Option<u64>,
    tally: Tally,
    /// What the thread spends, from the start on.
    waits: Option<Waits>,
    /// What it had spent when the load was stopped.
    spent: Option<Spent>,
    /// The warm-up is over.
    counts: bool,
}

impl Run {
    /// What the thread spent until the load was stopped, or until now.
    fn spent(&mut self) -> Option<Spent> {
        if self.spent.is_none() {
            self.spent = self.waits.as_mut().and_then(|waits| waits.spent().ok());
        }
        self.spent
    }
}

impl Load {
    pub(super) fn new(plan: &Plan) -> Self {
        let fec = plan.fec.as_deref().and_then(|word| word.parse().ok());
        Self {
            plan: plan.clone(),
            fec: fec.unwrap_or(Fec::Off),
            block: Bytes::from(vec![0x5a; BLOCK]),
            members: BTreeMap::new(),
            memory: Memory::before(plan.connections),
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
    pub(super) fn start(&mut self, quic: &mut dyn Stack, sends: bool, now: Instant) {
        self.memory.note_idle();
        let step = self.plan.ramp_seconds / self.members.len().max(1) as f64;
        let step = Duration::from_secs_f64(step);
        let mut waiting = VecDeque::new();
        for (at, (&id, member)) in (0..).zip(&mut self.members) {
            member.before = quic.stats(id).unwrap_or_default();
            waiting.extend(sends.then_some((now + step * at, id)));
        }
        self.run = Some(Run {
            start: now,
            sends,
            schedule: self.schedule(now),
            waiting,
            begun: Vec::new(),
            turn: 0,
            left: self.plan.bytes,
            tally: Tally::new(&self.plan, now),
            waits: Waits::of_this_thread().ok(),
            spent: None,
            counts: self.plan.warmup_seconds <= 0.0,
        });
        self.begin_due(quic, now);
    }

    /// Lets the connections begin whose time has come.
    fn begin_due(&mut self, quic: &mut dyn Stack, now: Instant) {
        while let Some(run) = &mut self.run
            && let Some(&(at, id)) = run.waiting.front()
            && at <= now
        {
            run.waiting.pop_front();
            run.begun.push(id);
            if self.plan.message_bytes.is_some() {
                let counts = run.counts;
                self.begin_messages(id, counts, now);
            } else if let Some(member) = self.members.get_mut(&id) {
                let open = |_| quic.open(id, false);
                member.streams = (0..self.plan.streams).map_while(open).collect();
                self.ready.extend(member.streams.iter().map(|&s| (id, s)));
            }
        }
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
            run.tally.restart(&self.plan, now);
        }
    }

    /// When [`Self::fill`] has something to do after `now` without anything having happened. What
    /// is due already waits for room.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        let run = self.run.as_ref().filter(|run| run.sends)?;
        let due = run.schedule.as_ref().map(Schedule::next_at);
        let due = due.filter(|due| *due > now);
        let begins = run.waiting.front().map(|&(at, _)| at);
        let end = run.start + self.span();
        let wakes = [due, begins, self.protects_at()].into_iter().flatten();
        Some(wakes.fold(end, Instant::min))
    }

    /// How long load is sent.
    fn span(&self) -> Duration {
        self.warmup() + Duration::from_secs_f64(self.plan.seconds)
    }

    fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.plan.warmup_seconds)
    }

    /// Hands over what may be sent now.
    pub(super) fn fill(&mut self, quic: &mut dyn Stack, now: Instant) {
        let span = self.span();
        let Some(run) = self.run.as_ref().filter(|run| run.sends) else {
            return;
        };
        if now >= run.start + span {
            return self.stop(quic);
        }
        self.begin_due(quic, now);
        self.count_packets(quic, now);
        self.send_repairs(quic, now);
        let Some(run) = &self.run else { return };
        match run.schedule {
            None if self.plan.message_bytes.is_some() => self.fill_with_messages(quic, now),
            None => self.fill_streams(quic),
            Some(schedule) => self.fill_at_rate(schedule, quic, now),
        }
    }

    /// What leaves from the end of the warm-up on counts.
    fn count_packets(&mut self, quic: &mut dyn Stack, now: Instant) {
        let warmup = self.warmup();
        let warms = |run: &&mut Run| !run.counts && now >= run.start + warmup;
        if let Some(run) = self.run.as_mut().filter(warms) {
            run.counts = true;
            for (&id, member) in &mut self.members {
                member.before = quic.stats(id).unwrap_or(member.before);
            }
        }
    }

    /// Nothing more is sent.
    pub(super) fn stop(&mut self, quic: &mut dyn Stack) {
        if let Some(run) = &mut self.run {
            run.spent();
        }
        if let Some(run) = self.run.as_mut().filter(|run| run.sends) {
            run.sends = false;
            self.close_groups(quic);
            self.give_up(quic);
        }
    }

    /// What was written and has not left is not sent any more.
    fn give_up(&mut self, quic: &mut dyn Stack) {
        for (&id, member) in &self.members {
            for &stream in &member.streams {
                quic.reset(id, stream);
            }
        }
        self.ready.clear();
        self.roomy.clear();
    }

    fn fill_streams(&mut self, quic: &mut dyn Stack) {
        while let Some((id, stream)) = self.ready.pop_first() {
            while self.write(id, stream, BLOCK, quic) {}
        }
    }

    /// Whether a stream took some of a piece of so many bytes.
    fn write(&mut self, id: Id, stream: Stream, piece: usize, quic: &mut dyn Stack) -> bool {
        let Some(run) = self.run.as_mut().filter(|run| run.sends) else {
            return false;
        };
        let most = run.left.map_or(piece as u64, |left| left.min(piece as u64));
        let piece = self.block.slice(..(most as usize).min(BLOCK));
        let written = quic.write(id, stream, &piece).unwrap_or(0);
        if let Some(left) = &mut run.left {
            *left -= written as u64;
            if *left == 0 {
                self.finish(quic);
                return false;
            }
        }
        written > 0
    }

    /// All is written that was to be; it still has to arrive.
    fn finish(&mut self, quic: &mut dyn Stack) {
        for (&id, member) in &self.members {
            for &stream in &member.streams {
                quic.finish(id, stream);
            }
        }
        self.ready.clear();
        if let Some(run) = &mut self.run {
            run.sends = false;
        }
    }

    fn fill_at_rate(&mut self, mut schedule: Schedule, quic: &mut dyn Stack, now: Instant) {
        while schedule.next_at() <= now && self.send_piece(quic, now) {
            schedule.take(now);
        }
        if let Some(run) = &mut self.run {
            run.schedule = Some(schedule);
        }
    }

    /// Whether whose turn it is had room for what is due at once.
    fn send_piece(&mut self, quic: &mut dyn Stack, now: Instant) -> bool {
        let piece = self.piece() as usize;
        let Some(run) = self.run.as_mut().filter(|run| !run.begun.is_empty()) else {
            return false;
        };
        run.turn += 1;
        let (turn, count) = (run.turn, run.begun.len());
        let (id, round) = (run.begun[turn % count], turn / count);
        if self.plan.message_bytes.is_some() {
            return self.send_message_somewhere(turn, quic, now);
        }
        let streams = self.members.get(&id).map(|member| &member.streams);
        let stream = streams.and_then(|all| all.get(round % all.len().max(1)).copied());
        stream.is_some_and(|stream| self.write(id, stream, piece, quic))
    }

    /// Takes an event of one of its connections.
    pub(super) fn handle_event(&mut self, quic: &mut dyn Stack, event: &BareEvent, now: Instant) {
        match event {
            BareEvent::Opened(id, stream) | BareEvent::Readable(id, stream)
                if !stream.goes_both_ways() =>
            {
                let bytes = quic.count(*id, *stream);
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
            BareEvent::Datagram(id, bytes, arrived) => {
                self.handle_message(quic, *id, bytes, *arrived);
            }
            BareEvent::Lost(id, _) => self.lose(*id),
            BareEvent::Accepted(..)
            | BareEvent::Connected(_)
            | BareEvent::Opened(..)
            | BareEvent::Readable(..)
            | BareEvent::Writable(..)
            | BareEvent::Delivered(..) => {}
        }
    }

    fn count(&mut self, flow: (Id, Option<Stream>), bytes: usize, at: Instant) {
        if let Some(run) = &mut self.run {
            run.tally.note(flow, bytes, at);
        }
    }

    /// What arrived so far, and counts.
    pub(super) fn tick(&mut self, now: Instant) -> Tick {
        self.memory.note_load();
        let run = self.run.as_ref();
        run.map_or(Tick::default(), |run| Tick {
            bytes: run.tally.bytes(),
            complete: run.tally.is_complete(),
            fec: self.symbols(),
            seconds: Some(now.saturating_duration_since(run.start).as_secs_f64()),
        })
    }

    /// Whether it runs.
    pub(super) fn has_begun(&self) -> bool {
        self.run.is_some()
    }

    /// Whether all bytes of the plan have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.tally.is_complete())
    }

    /// Looks at the connections while they are there.
    pub(super) fn look(&mut self, quic: &mut dyn Stack) {
        for (&id, member) in &mut self.members {
            if let Some(stats) = quic.stats(id) {
                member.after = stats;
            }
            member.controller = quic.controller(id).or(member.controller.take());
        }
    }

    /// What this end did until `now`, of which the first `span` counts; the far end sent so many
    /// messages.
    pub(super) fn side(
        &mut self,
        quic: &mut dyn Stack,
        sent: Option<u64>,
        span: Duration,
        now: Instant,
    ) -> Side {
        self.look(quic);
        let spent = self.run.as_mut().and_then(Run::spent);
        let Some(run) = &self.run else {
            return Side {
                stack: quic.name(),
                ..Side::default()
            };
        };
        let span = run.tally.elapsed(span, now);
        let bulk = run.tally.received(span, self.flows());
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
        Side {
            received: Received {
                messages: (self.plan.message_bytes.is_some())
                    .then(|| Arrivals::together(&arrivals, sent)),
                ..bulk
            },
            sent: Sent {
                messages: self.messages(quic),
                packets: of_all(|stats| stats.sent_packets),
                lost: of_all(|stats| stats.lost_packets),
                controllers: self.controllers(),
            },
            cpu_seconds: spent.map(|spent| spent.ran.as_secs_f64()),
            cpu_waited_seconds: spent.map(|spent| spent.waited.as_secs_f64()),
            other_tests: None,
            elapsed_seconds: now.saturating_duration_since(run.start).as_secs_f64(),
            memory: self.memory,
            stack: quic.name(),
            fec: self.symbols_at_end(quic),
            choices: self.choices(),
        }
    }

    /// How many flows there are.
    fn flows(&self) -> usize {
        let of_each = match self.plan.message_bytes {
            Some(_) => 1,
            None => usize::from(self.plan.streams),
        };
        self.members.len() * of_each
    }

    fn controllers(&self) -> Vec<String> {
        let words = self.members.values();
        let words: BTreeSet<&String> = words.filter_map(|m| m.controller.as_ref()).collect();
        words.into_iter().cloned().collect()
    }
}
