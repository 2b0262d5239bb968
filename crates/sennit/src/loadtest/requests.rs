//! Requests and answers, each on a stream of its own.
//!
//! A request begins with the size of the answer that it wants; what follows only has a size. The
//! time until the answer is complete counts from when the request was due, not from when there was
//! room for it: who leaves out the waiting measures the quiet moments only.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    lately::{Lately, Recent},
    responsiveness::with_waiting,
    stack::Stack,
};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use sennit_engine::{ConnId, Stream};
use sennit_load::{Bucket, Schedule, TimeFigures, Times};
use serde::{Deserialize, Serialize};

/// Bytes of the size at the beginning of a request.
pub const HEAD: usize = 4;
/// An answer is at most so long.
pub const LONGEST: u32 = 64 << 20;
/// Requests that are due and find no room wait here; what comes on top is not asked.
const MOST_WAITING: usize = 100_000;
/// Times that are kept one by one: so many of the last at least, and twice as many at most.
const MOST_TIMED: usize = 10_000;
/// An answer is written in pieces of this size.
const PIECE: usize = 64 << 10;

/// What requests are like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Bytes of an answer.
    pub answer_bytes: u32,
    /// Requests of each connection that wait for their answer at the same time.
    pub concurrency: u16,
    /// Requests a second of all connections together; `None`: the next one follows an answer.
    pub per_second: Option<f64>,
}

/// What came of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestFigures {
    /// Answers that were complete in the time that counts.
    pub answered: u64,
    /// Requests that were due and had no complete answer at the end.
    pub unanswered: u64,
    /// Requests that were refused, and answers that broke off, in the time that counts.
    #[serde(default)]
    pub failed: u64,
    /// Answers over the time that counts.
    pub answers_per_second: f64,
    /// From when a request was due until its answer was complete, or until the end, if it had
    /// waited for longer by then than half of the others took.
    pub latency: TimeFigures,
    /// Those times one by one, roughly.
    pub latency_histogram: Vec<Bucket>,
}

/// Asks.
pub(super) struct Asker {
    requests: Requests,
    request: Bytes,
    members: Vec<ConnId>,
    /// How many each connection waits for.
    open: BTreeMap<ConnId, u16>,
    asked: BTreeMap<(ConnId, Stream), Asked>,
    /// What is left to write of requests that found no room for all of it.
    unwritten: BTreeMap<(ConnId, Stream), Bytes>,
    schedule: Option<Schedule>,
    /// When requests were due that have not been asked.
    waiting: VecDeque<Instant>,
    turn: usize,
    counted_from: Instant,
    times: Times,
    /// The last of them, each with the time at which it was known.
    timed: Vec<(Instant, Duration)>,
    /// Those that were waited for at the end.
    unanswered: Vec<(Instant, Duration)>,
    /// Requests that were due and were not even kept.
    unasked: u64,
    failed: u64,
    recent: Recent,
    bytes: u64,
    asks: bool,
}

/// A request that waits for its answer.
struct Asked {
    due: Instant,
    /// Bytes of the answer that have not come.
    left: usize,
}

impl Asker {
    /// Begins over these connections; answers count from `counted_from` on.
    pub(super) fn new(
        requests: Requests,
        members: Vec<ConnId>,
        counted_from: Instant,
        now: Instant,
    ) -> Self {
        let size = (requests.request_bytes as usize).max(HEAD);
        let mut request = BytesMut::with_capacity(size);
        request.put_u32(requests.answer_bytes);
        request.resize(size, 0x5a);
        let schedule = requests.per_second;
        Self {
            request: request.freeze(),
            open: BTreeMap::new(),
            asked: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            schedule: schedule.map(|rate| Schedule::per_second(rate, now)),
            waiting: VecDeque::new(),
            members,
            requests,
            turn: 0,
            counted_from,
            times: Times::default(),
            timed: Vec::new(),
            unanswered: Vec::new(),
            unasked: 0,
            failed: 0,
            recent: Recent::default(),
            bytes: 0,
            asks: true,
        }
    }

    /// When the next request is due, if that does not depend on an answer.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let schedule = self.schedule.as_ref().filter(|_| self.asks)?;
        Some(schedule.next_at())
    }

    /// No more is asked, and what is answered from now on is late.
    pub(super) fn stop(&mut self, now: Instant) {
        self.take_due(now);
        self.asks = false;
        let waits = |due: &Instant| (now, now.saturating_duration_since(*due));
        let asked = self.asked.values().map(|asked| &asked.due);
        let all = asked.chain(&self.waiting);
        self.unanswered = all.map(waits).collect();
    }

    /// Asks what is due.
    pub(super) fn fill(&mut self, quic: &mut dyn Stack, now: Instant) {
        if !self.asks {
            return;
        }
        match &self.schedule {
            Some(_) => {
                self.take_due(now);
                while let Some(&due) = self.waiting.front()
                    && self.ask_somewhere(due, quic)
                {
                    self.waiting.pop_front();
                }
            }
            None => while self.ask_somewhere(now, quic) {},
        }
    }

    /// What is due by now waits for room.
    fn take_due(&mut self, now: Instant) {
        let due = |schedule: &mut Schedule| schedule.take(now);
        while let Some(due) = self.schedule.as_mut().and_then(due) {
            if self.waiting.len() < MOST_WAITING {
                self.waiting.push_back(due);
            } else {
                self.unasked += 1;
            }
        }
    }

    /// Whether some connection had room for another request.
    fn ask_somewhere(&mut self, due: Instant, quic: &mut dyn Stack) -> bool {
        let count = self.members.len();
        (0..count).any(|_| {
            self.turn = (self.turn + 1) % count;
            self.ask(self.members[self.turn], due, quic)
        })
    }

    fn ask(&mut self, id: ConnId, due: Instant, quic: &mut dyn Stack) -> bool {
        let open = self.open.entry(id).or_default();
        if *open >= self.requests.concurrency {
            return false;
        }
        let Some(stream) = quic.open(id, true) else {
            return false;
        };
        *open += 1;
        let left = self.requests.answer_bytes as usize;
        self.asked.insert((id, stream), Asked { due, left });
        self.unwritten.insert((id, stream), self.request.clone());
        self.write(quic, id, stream);
        true
    }

    /// Goes on with a request that the stream has room for.
    pub(super) fn write(&mut self, quic: &mut dyn Stack, id: ConnId, stream: Stream) {
        let Some(left) = self.unwritten.get_mut(&(id, stream)) else {
            return;
        };
        while !left.is_empty() {
            match quic.write(id, stream, left) {
                Some(0) => return,
                Some(written) => left.advance(written),
                // Nobody wants it, so nobody answers it.
                None => break,
            }
        }
        quic.finish(id, stream);
        self.unwritten.remove(&(id, stream));
    }

    /// Takes what arrived on a stream, if it is an answer.
    pub(super) fn handle_readable(
        &mut self,
        quic: &mut dyn Stack,
        id: ConnId,
        stream: Stream,
        now: Instant,
    ) -> bool {
        let Some(asked) = self.asked.get_mut(&(id, stream)) else {
            return false;
        };
        let mut bytes = 0;
        let over = quic.read(id, stream, &mut |data| bytes += data.len());
        asked.left = asked.left.saturating_sub(bytes);
        let (due, left) = (asked.due, asked.left);
        let counts = now >= self.counted_from && self.asks;
        self.bytes += if counts { bytes as u64 } else { 0 };
        if over {
            self.asked.remove(&(id, stream));
            // The answer to half of a request is none, and neither is half of an answer.
            let is_whole = self.unwritten.remove(&(id, stream)).is_none() && left == 0;
            self.open.entry(id).and_modify(|open| *open -= 1);
            if counts {
                self.end(due, is_whole, now);
            }
        }
        true
    }

    /// A request has come to its end in the time that counts, with its answer or without.
    fn end(&mut self, due: Instant, is_whole: bool, now: Instant) {
        if !is_whole {
            self.failed += 1;
            return self.recent.fail();
        }
        let time = now.saturating_duration_since(due);
        self.times.note(time);
        self.recent.note(time);
        if self.timed.len() >= 2 * MOST_TIMED {
            self.timed.drain(..MOST_TIMED);
        }
        self.timed.push((now, time));
    }

    /// Requests that ended since the last call, and count.
    pub(super) fn lately(&mut self) -> Lately {
        self.recent.take()
    }

    /// The last times, those among them that were waited for at the end, each with the moment at
    /// which it was known.
    pub(super) fn timed(&self) -> Vec<(Instant, Duration)> {
        with_waiting(self.timed.clone(), &self.unanswered)
    }

    /// Payload bytes of answers that count.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn figures(&self, span: Duration) -> RequestFigures {
        let answered = self.times.figures();
        let usual = answered.p50_seconds.unwrap_or(0.0);
        let mut times = self.times.clone();
        let waited = self.unanswered.iter().map(|(_, waited)| *waited);
        waited
            .filter(|waited| waited.as_secs_f64() > usual)
            .for_each(|waited| times.note(waited));
        RequestFigures {
            answered: answered.count,
            unanswered: self.unanswered.len() as u64 + self.unasked,
            failed: self.failed,
            answers_per_second: answered.count as f64 / span.as_secs_f64(),
            latency: times.figures(),
            latency_histogram: times.buckets(),
        }
    }
}

/// Answers.
#[derive(Default)]
pub(super) struct Answerer {
    answers: BTreeMap<(ConnId, Stream), Answer>,
    piece: Bytes,
}

enum Answer {
    /// The request comes in: what is known of its head.
    Listens(Vec<u8>),
    /// So many bytes have to be written.
    Speaks(usize),
}

impl Answerer {
    /// Takes what arrived of a request; `false` if it is none.
    pub(super) fn handle_readable(
        &mut self,
        quic: &mut dyn Stack,
        id: ConnId,
        stream: Stream,
    ) -> bool {
        let answer = self.answers.entry((id, stream));
        let Answer::Listens(head) = answer.or_insert_with(|| Answer::Listens(Vec::new())) else {
            return true;
        };
        let over = quic.read(id, stream, &mut |data| {
            let missing = HEAD - head.len();
            head.extend_from_slice(&data[..data.len().min(missing)]);
        });
        if !over {
            return true;
        }
        // A stream that was answered may be told of once more.
        if head.is_empty() {
            self.answers.remove(&(id, stream));
            return true;
        }
        let size = head.first_chunk().map(|head| u32::from_be_bytes(*head));
        let Some(size) = size.filter(|size| *size <= LONGEST) else {
            self.answers.remove(&(id, stream));
            return false;
        };
        self.answers
            .insert((id, stream), Answer::Speaks(size as usize));
        self.write(quic, id, stream);
        true
    }

    /// Goes on with an answer that the stream has room for.
    pub(super) fn write(&mut self, quic: &mut dyn Stack, id: ConnId, stream: Stream) {
        let Some(Answer::Speaks(left)) = self.answers.get_mut(&(id, stream)) else {
            return;
        };
        if self.piece.is_empty() {
            self.piece = Bytes::from(vec![0x5a; PIECE]);
        }
        while *left > 0 {
            let piece = self.piece.slice(..PIECE.min(*left));
            match quic.write(id, stream, &piece) {
                Some(0) => return,
                Some(written) => *left -= written,
                None => *left = 0,
            }
        }
        quic.finish(id, stream);
        self.answers.remove(&(id, stream));
    }

    /// A connection is over.
    pub(super) fn forget(&mut self, id: ConnId) {
        self.answers.retain(|(of, _), _| *of != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_broke_off_is_no_answer_and_is_told() {
        let now = Instant::now();
        let requests = Requests {
            request_bytes: 100,
            answer_bytes: 1000,
            concurrency: 1,
            per_second: None,
        };
        let mut asker = Asker::new(requests, Vec::new(), now, now);
        let later = now + Duration::from_millis(20);

        asker.end(now, true, later);
        asker.end(now, false, later);

        let found = asker.figures(Duration::from_secs(1));
        assert_eq!((found.answered, found.failed), (1, 1));
        assert_eq!(found.latency.count, 1);
        let told = asker.lately();
        assert_eq!((told.done, told.failed), (1, 1));
    }
}
