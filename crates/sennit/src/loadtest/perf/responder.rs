//! The server's end.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_engine::{BareConfig, BareEvent, ConnId, Stream};

use super::{super::stack::Stack, ALPN, HEAD, PIECE, ZEROS};

/// Answers of a connection that wait for their client, at most: as many as it may have questions.
/// More are not given, as where the client takes no more streams.
const MOST_ANSWERS: usize = BareConfig::STREAMS as usize;

/// Answers whoever speaks the protocol.
#[derive(Default)]
pub(in super::super) struct Responder {
    /// Since when each has been here.
    peers: BTreeMap<ConnId, Instant>,
    /// Beginnings of the streams that were opened, by connection.
    heads: BTreeMap<ConnId, BTreeMap<Stream, Vec<u8>>>,
    answers: BTreeMap<ConnId, BTreeMap<Stream, Answer>>,
}

/// What is written on a stream.
struct Answer {
    left: u64,
    /// All of the question is here: the answer may end.
    asked: bool,
}

impl Responder {
    /// Takes an event of whoever speaks the protocol; gives back that of another.
    pub(in super::super) fn handle_event(
        &mut self,
        quic: &mut dyn Stack,
        event: BareEvent,
        now: Instant,
    ) -> Option<BareEvent> {
        match event {
            BareEvent::Accepted(id, remote) if quic.protocol(id).is_some_and(|it| it == ALPN) => {
                tracing::info!(client = %remote, "performance test");
                self.peers.insert(id, now);
            }
            BareEvent::Opened(id, stream) if self.peers.contains_key(&id) => {
                let heads = self.heads.entry(id).or_default();
                heads.insert(stream, Vec::new());
                self.read(quic, id, stream);
            }
            BareEvent::Readable(id, stream) if self.peers.contains_key(&id) => {
                self.read(quic, id, stream);
            }
            BareEvent::Writable(id, stream) if self.peers.contains_key(&id) => {
                self.write(quic, id, stream);
            }
            BareEvent::Lost(id, _) if self.peers.contains_key(&id) => self.forget(id),
            BareEvent::Delivered(id, _)
            | BareEvent::Datagram(id, ..)
            | BareEvent::DatagramRoom(id)
                if self.peers.contains_key(&id) => {}
            event => return Some(event),
        }
        None
    }

    /// All who are here.
    pub(in super::super) fn peers(&self) -> impl Iterator<Item = ConnId> {
        self.peers.keys().copied()
    }

    /// Who has been here for longer than that.
    pub(in super::super) fn late(&self, most: Duration, now: Instant) -> Vec<ConnId> {
        let late = |since: &Instant| now.saturating_duration_since(*since) > most;
        let peers = self.peers.iter().filter(|(_, since)| late(since));
        peers.map(|(&id, _)| id).collect()
    }

    /// A connection is over.
    pub(in super::super) fn forget(&mut self, id: ConnId) {
        self.peers.remove(&id);
        self.heads.remove(&id);
        self.answers.remove(&id);
    }

    fn read(&mut self, quic: &mut dyn Stack, id: ConnId, stream: Stream) {
        // A stream that is over may be told of once more.
        let Some(heads) = self.heads.get_mut(&id) else {
            return;
        };
        let Some(head) = heads.get_mut(&stream) else {
            return;
        };
        let asks = head.len() < HEAD;
        let over = if asks {
            quic.read(id, stream, &mut |data| {
                let missing = HEAD - head.len();
                head.extend_from_slice(&data[..data.len().min(missing)]);
            })
        } else {
            quic.drain(id, stream, &mut |_| ())
        };
        let size = head.first_chunk().map(|head| u64::from_be_bytes(*head));
        if over {
            heads.remove(&stream);
        }
        match size {
            Some(size) if asks => self.begin(quic, id, stream, size, over),
            Some(_) if over => self.end(quic, id, stream),
            // It asked for nothing that could be read.
            None if over => quic.reset(id, stream),
            Some(_) | None => {}
        }
    }

    /// The size of the answer to a stream is known.
    fn begin(&mut self, quic: &mut dyn Stack, id: ConnId, question: Stream, size: u64, over: bool) {
        let both_ways = question.goes_both_ways();
        let waiting = self.answers.get(&id).map_or(0, BTreeMap::len);
        let stream = match (both_ways, size) {
            (true, _) => Some(question),
            (false, 0) => None,
            (false, _) if waiting >= MOST_ANSWERS => None,
            (false, _) => quic.open(id, false),
        };
        let Some(stream) = stream else { return };
        let answer = Answer {
            left: size,
            asked: over || !both_ways,
        };
        self.answers.entry(id).or_default().insert(stream, answer);
        self.write(quic, id, stream);
    }

    /// A question is here as a whole.
    fn end(&mut self, quic: &mut dyn Stack, id: ConnId, stream: Stream) {
        let answers = self.answers.get_mut(&id);
        if let Some(answer) = answers.and_then(|all| all.get_mut(&stream)) {
            answer.asked = true;
            self.write(quic, id, stream);
        }
    }

    /// Writes what an answer has room for.
    fn write(&mut self, quic: &mut dyn Stack, id: ConnId, stream: Stream) {
        let Some(answers) = self.answers.get_mut(&id) else {
            return;
        };
        let Some(answer) = answers.get_mut(&stream) else {
            return;
        };
        while answer.left > 0 {
            let most = answer.left.min(PIECE as u64);
            match quic.write(id, stream, &Bytes::from_static(&ZEROS[..most as usize])) {
                Some(0) => return,
                Some(written) => answer.left -= written as u64,
                // The client has enough.
                None => {
                    quic.reset(id, stream);
                    answers.remove(&stream);
                    return;
                }
            }
        }
        if answer.asked {
            quic.finish(id, stream);
            answers.remove(&stream);
        }
    }
}
