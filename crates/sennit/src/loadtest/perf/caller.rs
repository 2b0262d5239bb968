//! The client's end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_engine::{BareEvent, ConnId, Stream};

use super::{
    super::{
        load::Tally,
        stack::Stack,
        words::{Plan, Received},
    },
    HEAD, PIECE, ZEROS,
};

/// What goes up is cut into streams of this size: one that is acknowledged to its end has arrived.
const CHUNK: usize = 128 << 10;
/// Streams of one flow that wait to be acknowledged. Servers allow a connection a hundred or so.
const AHEAD: usize = 96;
/// A server is asked for so much when the test has no end in bytes.
const PLENTY: u64 = 1 << 40;

/// Load, and pings beside it.
pub(in super::super) struct Caller {
    plan: Plan,
    flows: Vec<Flow>,
    /// Flows that may have room.
    ready: BTreeSet<usize>,
    streams: BTreeMap<(ConnId, Stream), What>,
    up: Option<Tally>,
    down: Option<Tally>,
    /// Payload bytes that may still be written.
    left: u64,
    sends: bool,
}

/// What a flow sends: streams, one after the other.
struct Flow {
    id: ConnId,
    /// The stream that is being written, and what it still lacks.
    writing: Option<(Stream, usize)>,
    /// Streams that are not acknowledged to their end, with their payload.
    ahead: BTreeMap<Stream, usize>,
    /// Streams so far.
    count: i32,
    /// The first of them, by which its bytes are counted.
    first: Option<Stream>,
}

/// What a stream is for.
#[derive(Clone, Copy)]
enum What {
    Ping(u64),
    Down,
    Up(Sent),
}

/// A stream that goes up. The end of its answer, which is empty, and the acknowledgement come in
/// any order, and each perhaps twice.
#[derive(Clone, Copy)]
struct Sent {
    /// The number of its flow.
    flow: usize,
    answered: bool,
    delivered: bool,
}

/// What an event was to the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Taken {
    /// Nothing.
    No,
    Yes,
    /// The ping of this number is answered.
    Ping(u64),
}

impl Caller {
    pub(in super::super) fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            flows: Vec::new(),
            ready: BTreeSet::new(),
            streams: BTreeMap::new(),
            up: None,
            down: None,
            left: plan.bytes.unwrap_or(u64::MAX),
            sends: false,
        }
    }

    /// Asks a server for one byte; without room for a stream it is not asked.
    pub(in super::super) fn ping(&mut self, quic: &mut dyn Stack, id: ConnId, number: u64) {
        if let Some(stream) = ask(quic, id, 1) {
            self.streams.insert((id, stream), What::Ping(number));
        }
    }

    /// Load begins on these connections; what arrives from `counted` on counts.
    pub(in super::super) fn start(
        &mut self,
        quic: &mut dyn Stack,
        members: &[ConnId],
        counted: Instant,
    ) {
        let count = (members.len() * usize::from(self.plan.streams)).max(1) as u64;
        let of_each = self.plan.bytes.map_or(PLENTY, |all| all.div_ceil(count));
        for &id in members {
            for _ in 0..self.plan.streams {
                if self.plan.down
                    && let Some(stream) = ask(quic, id, of_each)
                {
                    self.streams.insert((id, stream), What::Down);
                }
                if self.plan.up {
                    self.ready.insert(self.flows.len());
                    self.flows.push(Flow::new(id));
                }
            }
        }
        let tally = || Tally::new(&self.plan, counted);
        self.up = self.plan.up.then(tally);
        self.down = self.plan.down.then(tally);
        self.sends = self.plan.up;
    }

    /// Hands over what there is room for.
    pub(in super::super) fn fill(&mut self, quic: &mut dyn Stack) {
        if !self.sends {
            return;
        }
        for index in std::mem::take(&mut self.ready) {
            while self.fill_flow(index, quic) {}
        }
    }

    /// Whether a flow took a piece.
    fn fill_flow(&mut self, index: usize, quic: &mut dyn Stack) -> bool {
        let flow = &mut self.flows[index];
        let Some((stream, lacks)) = flow.writing.or_else(|| flow.open(&mut self.left, quic)) else {
            // Perhaps the server allows another stream a little later.
            self.ready.insert(index);
            return false;
        };
        let id = flow.id;
        let sent = Sent {
            flow: index,
            answered: false,
            delivered: false,
        };
        self.streams.entry((id, stream)).or_insert(What::Up(sent));
        // A head of zeros wants no answer.
        let written = quic.write(id, stream, &Bytes::from_static(&ZEROS[..lacks.min(PIECE)]));
        let lacks = written.map(|written| lacks - written);
        flow.writing = lacks
            .filter(|&lacks| lacks > 0)
            .map(|lacks| (stream, lacks));
        match lacks {
            Some(0) => quic.finish(id, stream),
            Some(_) => {}
            // The server does not want it.
            None => {
                quic.reset(id, stream);
                flow.ahead.remove(&stream);
            }
        }
        written != Some(0)
    }

    /// Takes an event, if it is one of its streams.
    pub(in super::super) fn handle_event(
        &mut self,
        quic: &mut dyn Stack,
        event: &BareEvent,
        now: Instant,
    ) -> Taken {
        let (BareEvent::Readable(id, stream)
        | BareEvent::Writable(id, stream)
        | BareEvent::Delivered(id, stream)) = *event
        else {
            return Taken::No;
        };
        let Some(&what) = self.streams.get(&(id, stream)) else {
            return Taken::No;
        };
        match (event, what) {
            (BareEvent::Readable(..), What::Ping(number)) if quic.read(id, stream, &mut |_| ()) => {
                self.streams.remove(&(id, stream));
                return Taken::Ping(number);
            }
            (BareEvent::Readable(..), What::Down) => {
                let bytes = quic.count(id, stream);
                if let Some(tally) = &mut self.down {
                    tally.note((id, Some(stream)), bytes, now);
                }
            }
            (BareEvent::Readable(..), What::Up(sent)) => {
                let answered = quic.read(id, stream, &mut |_| ());
                self.settle(id, stream, Sent { answered, ..sent });
            }
            (BareEvent::Writable(..), What::Up(sent)) => {
                self.ready.insert(sent.flow);
            }
            (BareEvent::Delivered(..), What::Up(sent)) => {
                self.deliver(sent.flow, stream, now);
                let delivered = true;
                self.settle(id, stream, Sent { delivered, ..sent });
            }
            _ => {}
        }
        Taken::Yes
    }

    /// A stream is done with once it is acknowledged and its answer is over; the server may allow
    /// another one then.
    fn settle(&mut self, id: ConnId, stream: Stream, sent: Sent) {
        self.ready.insert(sent.flow);
        if sent.answered && sent.delivered {
            self.streams.remove(&(id, stream));
        } else {
            self.streams.insert((id, stream), What::Up(sent));
        }
    }

    /// A stream is acknowledged to its end.
    fn deliver(&mut self, index: usize, stream: Stream, now: Instant) {
        let flow = &mut self.flows[index];
        let bytes = flow.ahead.remove(&stream).unwrap_or(0);
        flow.first = flow.first.or(Some(stream));
        if let Some(tally) = &mut self.up {
            tally.note((flow.id, flow.first), bytes, now);
        }
    }

    /// What has arrived so far and counts, up and down; `None` of a direction without load.
    pub(in super::super) fn bytes(&self) -> [Option<u64>; 2] {
        [&self.up, &self.down].map(|tally| tally.as_ref().map(Tally::bytes))
    }

    /// Whether all bytes of the plan have arrived.
    pub(in super::super) fn is_complete(&self) -> bool {
        let mut tallies = [&self.up, &self.down].into_iter().flatten();
        tallies.all(Tally::is_complete)
    }

    /// What arrived up and down until `now`, of which the first `span` counts.
    pub(in super::super) fn received(&self, span: Duration, now: Instant) -> [Received; 2] {
        [&self.up, &self.down].map(|tally| {
            let flows = usize::from(self.plan.connections) * usize::from(self.plan.streams);
            let received = |tally: &Tally| tally.received(tally.elapsed(span, now), flows);
            tally.as_ref().map(received).unwrap_or_default()
        })
    }

    /// Nothing more is sent, and nothing more is wanted.
    pub(in super::super) fn stop(&mut self, quic: &mut dyn Stack) {
        self.sends = false;
        for (&(id, stream), what) in &self.streams {
            match what {
                What::Up(_) => quic.reset(id, stream),
                What::Down => quic.stop(id, stream),
                What::Ping(_) => {}
            }
        }
    }
}

impl Flow {
    fn new(id: ConnId) -> Self {
        Self {
            id,
            writing: None,
            ahead: BTreeMap::new(),
            count: 0,
            first: None,
        }
    }

    /// Another stream and its size, if there is room for one and something to send.
    fn open(&mut self, left: &mut u64, quic: &mut dyn Stack) -> Option<(Stream, usize)> {
        let size = (CHUNK as u64).min(*left) as usize;
        if size == 0 || self.ahead.len() >= AHEAD {
            return None;
        }
        let stream = quic.open(self.id, true)?;
        // Or all of them would end at the same time.
        self.count = self.count.saturating_add(1);
        quic.set_priority(self.id, stream, -self.count);
        self.ahead.insert(stream, size);
        *left -= size as u64;
        Some((stream, HEAD + size))
    }
}

/// A stream on which a server is asked for so many bytes.
fn ask(quic: &mut dyn Stack, id: ConnId, bytes: u64) -> Option<Stream> {
    let stream = quic.open(id, true)?;
    let head = Bytes::copy_from_slice(&bytes.to_be_bytes());
    if quic.write(id, stream, &head) == Some(HEAD) {
        quic.finish(id, stream);
        return Some(stream);
    }
    quic.reset(id, stream);
    None
}
