//! Carries the HTTP/3 state machine over the streams of a noq connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use noq_proto::{Connection, Dir, ReadError, StreamEvent, StreamId, VarInt, WriteError};
use sennit_masque::{self as masque, Code, Output};

/// A peer that gives no credit for answers gets no more of them than this, in bytes.
const MOST_UNSENT: usize = 256 << 10;
/// While this many events of a connection wait its streams are not read, and flow control holds the
/// peer back: an event takes a hundred bytes, and two bytes of a stream may be one. A connection
/// that behaves has a handful.
const MOST_WAITING: usize = 64;
/// Bytes that are read at a time, which may be half as many events.
const PIECE: usize = 128;
/// What is left unread waits this long, so that others have their turn. Packets in capsules still
/// come at 64 a millisecond.
const PAUSE: Duration = Duration::from_millis(1);

/// The HTTP/3 side of one connection.
pub(crate) struct H3 {
    pub(crate) http: masque::Connection,
    /// Our control stream, once it is open.
    control: Option<StreamId>,
    /// What flow control held back, by stream.
    unsent: BTreeMap<StreamId, Unsent>,
    /// Streams that may have more to read, and when that is read: enough came of them for now.
    unread: Unread,
    resumes_at: Option<Instant>,
    /// Why the connection was closed, until somebody was told.
    failure: Option<String>,
}

/// Streams that take turns to be read.
#[derive(Debug, Default)]
struct Unread {
    streams: BTreeSet<StreamId>,
    /// The one that the last events came of.
    last: Option<StreamId>,
}

impl Unread {
    /// All of them: those after the last one first, so that none that always has more keeps the
    /// others from being read.
    fn take(&mut self) -> Vec<StreamId> {
        let streams = std::mem::take(&mut self.streams);
        let Some(last) = self.last else {
            return streams.into_iter().collect();
        };
        let after = streams.range((Excluded(last), Unbounded));
        after.chain(streams.range(..=last)).copied().collect()
    }
}

#[derive(Default)]
struct Unsent {
    bytes: BytesMut,
    /// The stream ends with them.
    fin: bool,
}

impl H3 {
    pub(crate) fn client() -> Self {
        Self::new(masque::Connection::client())
    }

    pub(crate) fn server() -> Self {
        Self::new(masque::Connection::server())
    }

    fn new(http: masque::Connection) -> Self {
        Self {
            http,
            control: None,
            unsent: BTreeMap::new(),
            unread: Unread::default(),
            resumes_at: None,
            failure: None,
        }
    }

    /// Why the connection was closed from here. noq says nothing of that.
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    /// Closes the connection for an error, of the peer or here.
    pub(crate) fn fail(&mut self, conn: &mut Connection, code: Code, reason: &str, now: Instant) {
        if !conn.is_closed() {
            conn.close(
                now,
                code_of(code),
                Bytes::copy_from_slice(reason.as_bytes()),
            );
            self.failure = Some(format!("{reason} ({code})"));
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<masque::Event> {
        self.http.poll_event()
    }

    /// Opens a stream for a request.
    pub(crate) fn open_request(&self, conn: &mut Connection) -> Option<masque::StreamId> {
        conn.streams().open(Dir::Bi).map(ours)
    }

    /// Reacts to what noq says of a stream.
    pub(crate) fn handle_stream(
        &mut self,
        conn: &mut Connection,
        event: &StreamEvent,
        now: Instant,
    ) {
        match *event {
            StreamEvent::Opened { dir } => {
                while let Some(stream) = conn.streams().accept(dir) {
                    self.read(conn, stream, now);
                }
            }
            StreamEvent::Readable { id } => self.read(conn, id, now),
            StreamEvent::Writable { id } => self.write(conn, id),
            StreamEvent::Stopped { id, error_code } => {
                self.unsent.remove(&id);
                self.http
                    .handle_stop_sending(ours(id), Code(error_code.into_inner()));
            }
            StreamEvent::Finished { .. } | StreamEvent::Available { .. } => {}
        }
    }

    /// When [`Self::read_on`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.resumes_at
    }

    /// Reads what was left unread, once its time has come.
    pub(crate) fn read_on(&mut self, conn: &mut Connection, now: Instant) {
        if self.resumes_at.is_none_or(|at| now < at) {
            return;
        }
        self.resumes_at = None;
        for stream in self.unread.take() {
            self.read(conn, stream, now);
        }
    }

    fn read(&mut self, conn: &mut Connection, stream: StreamId, now: Instant) {
        let mut receiver = conn.recv_stream(stream);
        let Ok(mut chunks) = receiver.read(true) else {
            return;
        };
        loop {
            if self.resumes_at.is_none() && self.http.waiting() >= MOST_WAITING {
                self.resumes_at = Some(now + PAUSE);
                self.unread.last = Some(stream);
            }
            if self.resumes_at.is_some() {
                self.unread.streams.insert(stream);
                break;
            }
            match chunks.next(PIECE) {
                Ok(Some(chunk)) => {
                    self.http
                        .handle_stream_data(ours(stream), chunk.bytes, false);
                }
                Ok(None) => {
                    self.http
                        .handle_stream_data(ours(stream), Bytes::new(), true);
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(code)) => {
                    self.http
                        .handle_stream_reset(ours(stream), Code(code.into_inner()));
                    break;
                }
            }
        }
        // The next poll_transmit sends the flow control updates in any case.
        let _ = chunks.finalize();
    }

    /// Does what the HTTP/3 machine asks for.
    pub(crate) fn pump(&mut self, conn: &mut Connection, now: Instant) {
        while let Some(output) = self.http.poll_output() {
            match output {
                Output::Control(bytes) => self.send_control(conn, &bytes, now),
                Output::Send { stream, bytes, fin } => {
                    self.send(conn, theirs(stream), &bytes, fin, now);
                }
                // Both fail only for streams that are gone already.
                Output::ResetStream { stream, code } => {
                    self.unsent.remove(&theirs(stream));
                    let _ = conn.send_stream(theirs(stream)).reset(code_of(code));
                }
                Output::StopSending { stream, code } => {
                    let _ = conn.recv_stream(theirs(stream)).stop(code_of(code));
                }
                Output::Close { code, reason } => self.fail(conn, code, reason, now),
            }
        }
    }

    fn send_control(&mut self, conn: &mut Connection, bytes: &[u8], now: Instant) {
        if self.control.is_none() {
            self.control = conn.streams().open(Dir::Uni);
        }
        match self.control {
            Some(stream) => self.send(conn, stream, bytes, false, now),
            None => {
                let reason = "no stream for the control stream";
                self.fail(conn, Code::H3_STREAM_CREATION_ERROR, reason, now);
            }
        }
    }

    fn send(
        &mut self,
        conn: &mut Connection,
        stream: StreamId,
        bytes: &[u8],
        fin: bool,
        now: Instant,
    ) {
        let unsent = self.unsent.entry(stream).or_default();
        if unsent.bytes.len() > MOST_UNSENT {
            let reason = "the peer asks, but takes no answers";
            return self.fail(conn, Code::H3_EXCESSIVE_LOAD, reason, now);
        }
        unsent.bytes.extend_from_slice(bytes);
        unsent.fin |= fin;
        self.write(conn, stream);
    }

    /// Writes what is unsent on a stream until flow control stops it.
    fn write(&mut self, conn: &mut Connection, stream: StreamId) {
        let Some(unsent) = self.unsent.get_mut(&stream) else {
            return;
        };
        let mut sender = conn.send_stream(stream);
        while !unsent.bytes.is_empty() {
            match sender.write(&unsent.bytes) {
                Ok(written) => unsent.bytes.advance(written),
                Err(WriteError::Blocked) => return,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => break,
            }
        }
        if unsent.fin {
            // Fails only if the stream was reset or stopped meanwhile.
            let _ = sender.finish();
        }
        self.unsent.remove(&stream);
    }
}

fn ours(stream: StreamId) -> masque::StreamId {
    masque::StreamId(u64::from(stream))
}

fn theirs(stream: masque::StreamId) -> StreamId {
    StreamId::from(VarInt::from_u64(stream.0).unwrap_or(VarInt::MAX))
}

fn code_of(code: Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first one has been read each time, and the others never.
    #[test]
    fn streams_that_always_have_more_are_read_in_turn() {
        let streams = [0, 2, 4, 8].map(|id| theirs(masque::StreamId(id)));
        let mut unread = Unread::default();
        let mut read = Vec::new();
        for _ in 0..8 {
            unread.streams.extend(streams);
            let first = unread.take()[0];
            read.push(u64::from(first));
            unread.last = Some(first);
        }
        assert_eq!(read, [0, 2, 4, 8, 0, 2, 4, 8]);
    }
}
