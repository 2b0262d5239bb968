//! The HTTP/3 side of one QUIC connection, RFC 9114.

mod control;
mod exchange;
mod send;
mod streams;
#[cfg(test)]
mod tests;
mod uni;

use crate::capsule::Capsule;
use crate::error::{Code, ConnectionError, Fault, StreamError};
use crate::message::{RequestHead, ResponseHead};
use crate::settings::Settings;
use crate::{MAX_BUFFERED, MAX_STREAMS, StreamId, frame, varint};
use bytes::{Bytes, BytesMut};
pub use send::SendError;

use control::Signal;
use exchange::{Exchange, Sending};
use std::collections::VecDeque;
use streams::Streams;
use uni::{Interest, UniStreams};

/// Events, and outputs, that room is kept for once all are taken.
const ROOM: usize = 16;

/// Which side we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    Server,
}

/// What to do with QUIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send on our control stream. The first time, open a unidirectional stream for it; it stays
    /// open as long as the connection.
    Control(Bytes),
    /// Send on a request stream, after what was sent before.
    Send {
        stream: StreamId,
        bytes: Bytes,
        fin: bool,
    },
    /// Abandon our side of a stream (RESET_STREAM).
    ResetStream { stream: StreamId, code: Code },
    /// Ask the peer to abandon its side (STOP_SENDING), and hand in no more of it.
    StopSending { stream: StreamId, code: Code },
    /// Close the connection. Nothing comes after this.
    Close { code: Code, reason: &'static str },
}

/// What the peer did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer's settings, once.
    Settings(Settings),
    /// A request; answer it with [`Connection::respond`].
    Request { stream: StreamId, head: RequestHead },
    /// The final response to a request of ours.
    Response {
        stream: StreamId,
        head: ResponseHead,
    },
    /// Content of a request or response that carries no capsules.
    Data { stream: StreamId, bytes: Bytes },
    /// A capsule of a tunnel.
    Capsule { stream: StreamId, capsule: Capsule },
    /// The peer has sent all it wanted to.
    Finished { stream: StreamId },
    /// The peer abandoned the stream, and with it we did.
    Reset { stream: StreamId, code: Code },
    /// The peer wants no more of what we send on this stream. Its own side lives on.
    Stopped { stream: StreamId, code: Code },
    /// The peer broke a rule on this stream, or refused it by GOAWAY. It is gone.
    Failed {
        stream: StreamId,
        error: StreamError,
    },
    /// The server takes no more requests; those that it has not processed fail one by one.
    GoAway,
}

/// The HTTP/3 side of one QUIC connection; see the crate's head for how it is driven.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    exchanges: Streams<Exchange>,
    unis: UniStreams,
    peer_settings: Option<Settings>,
    /// What our GOAWAY said: a server rejects requests from here on.
    goaway: Option<StreamId>,
    peer_goes_away: bool,
    closed: bool,
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
}

impl Connection {
    #[must_use]
    pub fn client() -> Self {
        Self::new(Role::Client)
    }

    #[must_use]
    pub fn server() -> Self {
        Self::new(Role::Server)
    }

    fn new(role: Role) -> Self {
        let settings = Settings::ours(role == Role::Server).encode();
        let mut control = BytesMut::new();
        varint::put(&mut control, uni::CONTROL);
        control.extend_from_slice(&frame::frame(frame::SETTINGS, &settings));
        Self {
            role,
            exchanges: Streams::new(StreamId(0), MAX_STREAMS),
            unis: UniStreams::new(role),
            peer_settings: None,
            goaway: None,
            peer_goes_away: false,
            closed: false,
            outputs: VecDeque::from([Output::Control(control.freeze())]),
            events: VecDeque::new(),
        }
    }

    /// Hands in what arrived on a stream, in order; `fin` with the last bytes, which may be none.
    pub fn handle_stream_data(&mut self, stream: StreamId, bytes: Bytes, fin: bool) {
        if self.closed {
            return;
        }
        let result = match self.is_peers_uni(stream) {
            true => self.handle_uni_data(stream, bytes, fin),
            false => self.handle_request_data(stream, bytes, fin),
        };
        if let Err(error) = result.and_then(|()| self.check_buffered()) {
            self.close(error.code, error.reason);
        }
    }

    /// Hands in a RESET_STREAM.
    pub fn handle_stream_reset(&mut self, stream: StreamId, code: Code) {
        if self.closed {
            return;
        }
        let result = match self.is_peers_uni(stream) {
            true => self.unis.handle_end(stream),
            false => self.handle_request_reset(stream, code),
        };
        if let Err(error) = result {
            self.close(error.code, error.reason);
        }
    }

    /// Hands in a STOP_SENDING. QUIC wants it answered with a reset (RFC 9000 §3.5), which is what
    /// comes out.
    pub fn handle_stop_sending(&mut self, stream: StreamId, code: Code) {
        if self.closed {
            return;
        }
        if !stream.is_bidirectional() {
            // RFC 9114 §6.2.1: the only one we open is the control stream.
            return self.close(
                Code::H3_CLOSED_CRITICAL_STREAM,
                "our control stream was refused",
            );
        }
        let Some(exchange) = self.exchanges.get_mut(stream) else {
            return;
        };
        if std::mem::replace(&mut exchange.sending, Sending::Done) != Sending::Done {
            self.outputs.push_back(Output::ResetStream { stream, code });
            self.events.push_back(Event::Stopped { stream, code });
        }
        self.forget_if_done(stream);
    }

    /// What to do next, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.outputs.shrink_to(ROOM);
        }
        self.outputs.pop_front()
    }

    /// What happened next, until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.events.shrink_to(ROOM);
        }
        self.events.pop_front()
    }

    /// How many events wait. Two bytes of a stream may be one, so whoever hands in what arrived
    /// does so in small pieces, and none while many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.events.len()
    }

    /// The peer's settings, once they have come.
    #[must_use]
    pub const fn peer_settings(&self) -> Option<&Settings> {
        self.peer_settings.as_ref()
    }

    /// Takes the peer's settings to be those of an earlier connection until they come (RFC 9114
    /// §7.2.4.2).
    pub const fn remember(&mut self, settings: Settings) {
        self.peer_settings = Some(settings);
    }

    /// Closes the connection, for an error that was noticed elsewhere or for none.
    pub fn close(&mut self, code: Code, reason: &'static str) {
        if !std::mem::replace(&mut self.closed, true) {
            self.outputs.clear();
            self.exchanges = Streams::new(StreamId(0), 0);
            self.unis = UniStreams::new(self.role);
            self.outputs.push_back(Output::Close { code, reason });
        }
    }

    /// Whether the connection is closed, by either us or an error of the peer.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    const fn is_peers_uni(&self, stream: StreamId) -> bool {
        let is_peers = match self.role {
            Role::Client => !stream.is_client_initiated(),
            Role::Server => stream.is_client_initiated(),
        };
        is_peers && !stream.is_bidirectional()
    }

    fn handle_uni_data(
        &mut self,
        stream: StreamId,
        bytes: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        let mut signals = Vec::new();
        let result = self.unis.handle_data(stream, bytes, fin, &mut signals);
        // What came before an error still counts.
        signals
            .into_iter()
            .for_each(|signal| self.handle_signal(signal));
        if result? == Interest::Unwanted {
            // RFC 9114 §6.2.3
            let code = Code::H3_STREAM_CREATION_ERROR;
            self.outputs.push_back(Output::StopSending { stream, code });
        }
        Ok(())
    }

    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Settings(settings) => {
                self.peer_settings = Some(settings);
                self.events.push_back(Event::Settings(settings));
            }
            Signal::GoAway(first) => self.handle_goaway(StreamId(first)),
        }
    }

    /// RFC 9114 §5.2: requests from `first` on were not processed and may be tried elsewhere.
    fn handle_goaway(&mut self, first: StreamId) {
        if !std::mem::replace(&mut self.peer_goes_away, true) {
            self.events.push_back(Event::GoAway);
        }
        for stream in self.exchanges.from(first) {
            self.drop_stream(stream, Code::H3_REQUEST_CANCELLED);
            self.events.push_back(Event::Failed {
                stream,
                error: StreamError::Rejected,
            });
        }
    }

    fn handle_request_data(
        &mut self,
        stream: StreamId,
        bytes: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        let is_refused =
            self.role == Role::Server && self.goaway.is_some_and(|first| stream >= first);
        let Some(exchange) = open(self.role, &mut self.exchanges, stream)? else {
            return Ok(());
        };
        let result = match is_refused {
            true => Err(StreamError::Rejected.into()),
            false => exchange.handle_data(bytes, fin, &mut self.events),
        };
        match result {
            Ok(()) => self.forget_if_done(stream),
            Err(Fault::Stream(error)) => self.fail(stream, error),
            Err(Fault::Connection(error)) => return Err(error),
        }
        Ok(())
    }

    /// RFC 9114 §4.1.1: an exchange whose one half is cut off has no use for the other.
    fn handle_request_reset(
        &mut self,
        stream: StreamId,
        code: Code,
    ) -> Result<(), ConnectionError> {
        let Some(exchange) = open(self.role, &mut self.exchanges, stream)? else {
            return Ok(());
        };
        if exchange.is_receiving() {
            exchange.handle_reset();
            self.drop_stream(stream, Code::H3_REQUEST_CANCELLED);
            self.events.push_back(Event::Reset { stream, code });
        }
        Ok(())
    }

    /// Ends a stream on which the peer broke a rule. A server that has not answered yet does so
    /// where HTTP has a status for it (RFC 9114 §4.1: it then stops reading without an error).
    fn fail(&mut self, stream: StreamId, error: StreamError) {
        let unanswered = self.role == Role::Server
            && self
                .exchanges
                .get_mut(stream)
                .is_some_and(|x| x.sending == Sending::Head);
        match error.status() {
            Some(status) if unanswered => {
                self.send_head(stream, &ResponseHead::new(status).to_lines(), true);
                self.drop_stream(stream, Code::H3_NO_ERROR);
            }
            Some(_) | None => self.drop_stream(stream, error.code()),
        }
        self.events.push_back(Event::Failed { stream, error });
    }

    /// Forgets a stream, and cuts off whichever half of it is not at its end.
    fn drop_stream(&mut self, stream: StreamId, code: Code) {
        let Some(exchange) = self.exchanges.remove(stream) else {
            return;
        };
        if exchange.sending != Sending::Done {
            self.outputs.push_back(Output::ResetStream { stream, code });
        }
        if exchange.is_receiving() {
            self.outputs.push_back(Output::StopSending { stream, code });
        }
    }

    fn forget_if_done(&mut self, stream: StreamId) {
        if self
            .exchanges
            .get_mut(stream)
            .is_some_and(|exchange| exchange.is_done())
        {
            self.exchanges.remove(stream);
        }
    }

    fn check_buffered(&self) -> Result<(), ConnectionError> {
        if self.buffered() > MAX_BUFFERED {
            let reason = "too many unfinished frames and capsules";
            return Err(ConnectionError::new(Code::H3_EXCESSIVE_LOAD, reason));
        }
        Ok(())
    }

    fn buffered(&self) -> usize {
        let requests: usize = self.exchanges.values().map(Exchange::buffered).sum();
        requests + self.unis.buffered()
    }
}

/// The exchange that `stream` is or begins; `None` once it is finished. A server begins none (RFC
/// 9114 §6.1).
fn open(
    role: Role,
    exchanges: &mut Streams<Exchange>,
    stream: StreamId,
) -> Result<Option<&mut Exchange>, ConnectionError> {
    match (stream.is_request(), role) {
        (true, Role::Client) => Ok(exchanges.get_mut(stream)),
        (true, Role::Server) => exchanges.open(stream, Exchange::from_peer),
        (false, _) if stream.is_bidirectional() => {
            let reason = "a bidirectional stream opened by the server";
            Err(ConnectionError::new(Code::H3_STREAM_CREATION_ERROR, reason))
        }
        // Our own unidirectional streams bring nothing back.
        (false, _) => Ok(None),
    }
}
