//! What we send: requests, responses, content, capsules and GOAWAY.

use super::exchange::{Exchange, Kind, Sending};
use super::{Connection, Output, Role};
use crate::capsule::{Capsule, CapsuleError};
use crate::error::{Code, Malformed};
use crate::message::{RequestHead, ResponseHead, section_size};
use crate::qpack::{self, Field};
use crate::{StreamId, frame};
use bytes::{Bytes, BytesMut};

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

impl Connection {
    /// Sends a request on `stream`, a bidirectional stream that the caller has just opened. A
    /// CONNECT stays open for what follows, and its `body` is the first of that; any other request
    /// ends after its body.
    ///
    /// An extended CONNECT has to wait for [`Settings`](super::Event::Settings) of the peer (RFC
    /// 9220 §3).
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

    pub(super) fn send_head(&mut self, stream: StreamId, lines: &[Field], fin: bool) {
        let bytes = frame::frame(frame::HEADERS, &qpack::encode(lines));
        if fin && let Some(exchange) = self.exchanges.get_mut(stream) {
            exchange.sending = Sending::Done;
        }
        self.outputs.push_back(Output::Send { stream, bytes, fin });
    }
}
