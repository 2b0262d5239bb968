//! The HTTP/3 side of one QUIC connection, RFC 9114.

mod control;
mod exchange;
mod streams;
#[cfg(test)]
mod tests;
mod uni;

use crate::capsule::{Capsule, CapsuleError};
use crate::error::{Code, ConnectionError, Fault, Malformed, StreamError};
use crate::message::{RequestHead, ResponseHead, section_size};
use crate::qpack::{self, Field};
use crate::settings::Settings;
use crate::{MAX_BUFFERED, MAX_STREAMS, StreamId, frame, varint};
use bytes::{Bytes, BytesMut};
use control::Signal;
use exchange::{Exchange, Kind, Sending};
use std::collections::VecDeque;
use streams::Streams;
use uni::{Interest, UniStreams};

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

/// Why something was not sent: the caller's fault, or too early, or too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the connection is closed")]
    Closed,
    #[error("the peer is going away and takes no more requests")]
    GoingAway,
    #[error("only a client sends requests, on a fresh bidirectional stream of its own")]
    NotARequestStream,
    #[error("no such stream, or it is finished")]
    UnknownStream,
    #[error("the head is sent already")]
    HeadSent,
    #[error("the head is not sent yet")]
    NoHead,
    #[error("extended CONNECT before the peer's SETTINGS")]
    NoSettings,
    #[error("the peer does not take extended CONNECT")]
    NoExtendedConnect,
    #[error("the head is larger than the peer accepts")]
    HeadTooLarge,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("capsule: {0}")]
    Capsule(#[from] CapsuleError),
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

/// What the peer sent.
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
        self.outputs.pop_front()
    }

    /// What happened next, until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The peer's settings, once they have come.
    #[must_use]
    pub const fn peer_settings(&self) -> Option<&Settings> {
        self.peer_settings.as_ref()
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
        let requests: usize = self.exchanges.values().map(Exchange::buffered).sum();
        if requests + self.unis.buffered() > MAX_BUFFERED {
            let reason = "too many unfinished frames and capsules";
            return Err(ConnectionError::new(Code::H3_EXCESSIVE_LOAD, reason));
        }
        Ok(())
    }
}

/// What we send.
impl Connection {
    /// Sends a request on `stream`, a bidirectional stream that the caller has just opened. A
    /// CONNECT stays open for what follows, and its `body` is the first of that; any other request
    /// ends after its body.
    ///
    /// An extended CONNECT has to wait for [`Event::Settings`] (RFC 9220 §3).
    pub fn send_request(
        &mut self,
        stream: StreamId,
        head: &RequestHead,
        body: Option<Bytes>,
    ) -> Result<(), SendError> {
        self.check_can_request(stream, head)?;
        let lines = head.to_lines();
        RequestHead::parse(lines.clone())?;
        self.check_size(&lines)?;
        let fin = !head.is_connect();
        self.exchanges.insert(
            stream,
            Exchange::ours(stream, Kind::of(head), Sending::Content),
        );
        self.send_head(stream, &lines, fin && body.is_none());
        match body {
            Some(body) => self.send_data(stream, body, fin),
            None => Ok(()),
        }
    }

    fn check_can_request(&self, stream: StreamId, head: &RequestHead) -> Result<(), SendError> {
        if self.closed {
            return Err(SendError::Closed);
        }
        if self.peer_goes_away {
            return Err(SendError::GoingAway);
        }
        if self.role == Role::Server || !stream.is_request() || self.exchanges.contains(stream) {
            return Err(SendError::NotARequestStream);
        }
        match (&head.protocol, self.peer_settings) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(SendError::NoSettings),
            (Some(_), Some(settings)) if settings.enable_connect_protocol => Ok(()),
            (Some(_), Some(_)) => Err(SendError::NoExtendedConnect),
        }
    }

    /// Answers a request. An interim response (1xx) leaves the real one to come. Refusing a CONNECT
    /// with `fin` ends the stream in both directions.
    pub fn respond(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        fin: bool,
    ) -> Result<(), SendError> {
        let lines = head.to_lines();
        ResponseHead::parse(lines.clone())?;
        self.check_size(&lines)?;
        let exchange = self.sending(stream)?;
        if exchange.sending != Sending::Head {
            return Err(SendError::HeadSent);
        }
        if head.is_interim() {
            self.send_head(stream, &lines, false);
            return Ok(());
        }
        let is_tunnel = exchange.kind() != Kind::Message;
        if exchange.kind() == Kind::Capsules && head.is_success() {
            head.check_capsule_protocol()?;
        }
        exchange.sending = Sending::Content;
        self.send_head(stream, &lines, fin);
        if is_tunnel && fin {
            self.drop_stream(stream, Code::H3_NO_ERROR);
        }
        self.forget_if_done(stream);
        Ok(())
    }

    /// Sends content, or raw bytes of a tunnel; `fin` ends our side.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        bytes: Bytes,
        fin: bool,
    ) -> Result<(), SendError> {
        let exchange = self.sending(stream)?;
        if exchange.sending == Sending::Head {
            return Err(SendError::NoHead);
        }
        if fin {
            exchange.sending = Sending::Done;
        }
        if !bytes.is_empty() {
            let head = frame::data_head(bytes.len());
            self.outputs.push_back(Output::Send {
                stream,
                bytes: head,
                fin: false,
            });
        }
        if fin || !bytes.is_empty() {
            self.outputs.push_back(Output::Send { stream, bytes, fin });
        }
        self.forget_if_done(stream);
        Ok(())
    }

    /// Sends a capsule of a tunnel.
    pub fn send_capsule(&mut self, stream: StreamId, capsule: &Capsule) -> Result<(), SendError> {
        let mut bytes = BytesMut::new();
        capsule.encode(&mut bytes)?;
        self.send_data(stream, bytes.freeze(), false)
    }

    /// Ends our side of a stream.
    pub fn finish(&mut self, stream: StreamId) -> Result<(), SendError> {
        self.send_data(stream, Bytes::new(), true)
    }

    /// Abandons both sides of a stream. One that is gone already stays gone.
    pub fn abort(&mut self, stream: StreamId, code: Code) {
        self.drop_stream(stream, code);
    }

    /// Announces that no more requests are taken (RFC 9114 §5.2). Those that have come go on; a
    /// server rejects those that come after. Said once.
    pub fn goaway(&mut self) {
        if self.closed || self.goaway.is_some() {
            return;
        }
        let first = match self.role {
            Role::Server => self.exchanges.next(),
            // A client speaks of pushes, of which there are none.
            Role::Client => StreamId(0),
        };
        self.goaway = Some(first);
        self.outputs
            .push_back(Output::Control(frame::id_frame(frame::GOAWAY, first.0)));
    }

    /// Closes the connection, for an error that was noticed elsewhere or for none.
    pub fn close(&mut self, code: Code, reason: &'static str) {
        if !std::mem::replace(&mut self.closed, true) {
            self.outputs.clear();
            self.outputs.push_back(Output::Close { code, reason });
        }
    }

    /// Whether the connection is closed, by either us or an error of the peer.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// A stream on which we may still send.
    fn sending(&mut self, stream: StreamId) -> Result<&mut Exchange, SendError> {
        if self.closed {
            return Err(SendError::Closed);
        }
        let exchange = self.exchanges.get_mut(stream);
        exchange
            .filter(|x| x.sending != Sending::Done)
            .ok_or(SendError::UnknownStream)
    }

    /// RFC 9114 §4.2.2: not more than the peer accepts.
    fn check_size(&self, lines: &[Field]) -> Result<(), SendError> {
        let limit = self
            .peer_settings
            .and_then(|settings| settings.max_field_section_size);
        match limit {
            Some(limit) if section_size(lines) > limit => Err(SendError::HeadTooLarge),
            Some(_) | None => Ok(()),
        }
    }

    fn send_head(&mut self, stream: StreamId, lines: &[Field], fin: bool) {
        let bytes = frame::frame(frame::HEADERS, &qpack::encode(lines));
        if fin && let Some(exchange) = self.exchanges.get_mut(stream) {
            exchange.sending = Sending::Done;
        }
        self.outputs.push_back(Output::Send { stream, bytes, fin });
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
