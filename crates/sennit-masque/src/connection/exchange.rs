//! One request and its response on one stream, RFC 9114 §4.1.
//!
//! What arrives is a head, then content, then perhaps trailers. Once a CONNECT is granted the
//! content is a tunnel: capsules for the protocols that use them, else raw bytes, and no trailers.

use super::{Event, Role};
use crate::capsule::CapsuleReader;
use crate::error::{Code, ConnectionError, Fault, Malformed, StreamError};
use crate::message::{RequestHead, ResponseHead, check_trailers};
use crate::qpack::{self, DecodeError};
use crate::tlv::{Element, TlvReader, Treat};
use crate::{MAX_BODY, MAX_FIELD_SECTION, StreamId, frame};
use bytes::Bytes;
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Exchange {
    id: StreamId,
    role: Role,
    kind: Kind,
    frames: TlvReader,
    receiving: Receiving,
    pub(super) sending: Sending,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    /// A tunnel that carries capsules (RFC 9297 §3).
    Capsules,
    /// A tunnel of any other kind.
    Raw,
}

/// How far our side has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Head,
    Content,
    Done,
}

/// How far the peer's side has come.
#[derive(Debug)]
enum Receiving {
    Head,
    Body(Body),
    Capsules(CapsuleReader),
    Raw,
    Trailed,
    Done,
}

/// Content that is not a tunnel.
#[derive(Debug)]
struct Body {
    /// From content-length.
    announced: Option<u64>,
    received: u64,
}

impl Kind {
    pub(super) fn of(head: &RequestHead) -> Self {
        match head.is_connect() {
            true if head.is_capsule_protocol() => Self::Capsules,
            true => Self::Raw,
            false => Self::Message,
        }
    }
}

impl Exchange {
    /// A request that the peer begins.
    pub(super) fn from_peer(id: StreamId) -> Self {
        Self::new(id, Role::Server, Kind::Message, Sending::Head)
    }

    /// A request of ours, whose head is sent.
    pub(super) fn ours(id: StreamId, kind: Kind, sending: Sending) -> Self {
        Self::new(id, Role::Client, kind, sending)
    }

    fn new(id: StreamId, role: Role, kind: Kind, sending: Sending) -> Self {
        let (frames, receiving) = (TlvReader::default(), Receiving::Head);
        Self {
            id,
            role,
            kind,
            frames,
            receiving,
            sending,
        }
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the peer may still send.
    pub(super) const fn is_receiving(&self) -> bool {
        !matches!(self.receiving, Receiving::Done)
    }

    pub(super) fn is_done(&self) -> bool {
        !self.is_receiving() && self.sending == Sending::Done
    }

    pub(super) fn buffered(&self) -> usize {
        let capsules = match &self.receiving {
            Receiving::Capsules(reader) => reader.buffered(),
            Receiving::Head
            | Receiving::Body(_)
            | Receiving::Raw
            | Receiving::Trailed
            | Receiving::Done => 0,
        };
        self.frames.buffered() + capsules
    }

    /// Reads what arrived.
    pub(super) fn handle_data(
        &mut self,
        mut input: Bytes,
        fin: bool,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Fault> {
        if !self.is_receiving() {
            return Ok(());
        }
        loop {
            let Self {
                frames,
                receiving,
                role,
                ..
            } = &mut *self;
            match frames.next(&mut input, |kind, len| receiving.admit(*role, kind, len))? {
                Some(Element::Whole { value, .. }) => self.handle_head(&value, events)?,
                Some(Element::Piece(bytes)) => self.handle_content(bytes, events)?,
                None => break,
            }
        }
        if fin { self.handle_fin(events) } else { Ok(()) }
    }

    /// The peer will send no more, without an end.
    pub(super) fn handle_reset(&mut self) {
        self.receiving = Receiving::Done;
    }

    fn handle_head(&mut self, section: &[u8], events: &mut VecDeque<Event>) -> Result<(), Fault> {
        let lines = qpack::decode(section, MAX_FIELD_SECTION).map_err(|error| match error {
            DecodeError::TooLarge => Fault::from(StreamError::HeadTooLarge),
            DecodeError::Decompression(reason) => {
                ConnectionError::new(Code::QPACK_DECOMPRESSION_FAILED, reason).into()
            }
        })?;
        if let Receiving::Body(body) = &self.receiving {
            check_trailers(lines)?;
            body.finish()?;
            self.receiving = Receiving::Trailed;
            return Ok(());
        }
        match self.role {
            Role::Server => self.handle_request(RequestHead::parse(lines)?, events),
            Role::Client => self.handle_response(ResponseHead::parse(lines)?, events)?,
        }
        Ok(())
    }

    fn handle_request(&mut self, head: RequestHead, events: &mut VecDeque<Event>) {
        self.kind = Kind::of(&head);
        self.receiving = match self.kind {
            Kind::Message => Receiving::body(head.content_length()),
            Kind::Capsules => Receiving::Capsules(CapsuleReader::default()),
            Kind::Raw => Receiving::Raw,
        };
        events.push_back(Event::Request {
            stream: self.id,
            head,
        });
    }

    /// The answer to a CONNECT is a tunnel only if it grants one. Interim responses (RFC 9114
    /// §4.1) say nothing to us.
    fn handle_response(
        &mut self,
        head: ResponseHead,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Malformed> {
        if head.is_interim() {
            return Ok(());
        }
        self.receiving = match self.kind {
            Kind::Capsules if head.is_success() => {
                head.check_capsule_protocol()?;
                Receiving::Capsules(CapsuleReader::default())
            }
            Kind::Raw if head.is_success() => Receiving::Raw,
            Kind::Message | Kind::Capsules | Kind::Raw => Receiving::body(head.content_length()),
        };
        events.push_back(Event::Response {
            stream: self.id,
            head,
        });
        Ok(())
    }

    fn handle_content(
        &mut self,
        mut bytes: Bytes,
        events: &mut VecDeque<Event>,
    ) -> Result<(), StreamError> {
        let stream = self.id;
        match &mut self.receiving {
            Receiving::Body(body) => {
                body.add(bytes.len() as u64)?;
                events.push_back(Event::Data { stream, bytes });
            }
            Receiving::Capsules(reader) => {
                while let Some(capsule) = reader.poll(&mut bytes)? {
                    events.push_back(Event::Capsule { stream, capsule });
                }
            }
            Receiving::Raw => events.push_back(Event::Data { stream, bytes }),
            Receiving::Head | Receiving::Trailed | Receiving::Done => {
                unreachable!("`admit` lets DATA pass only where there is content")
            }
        }
        Ok(())
    }

    fn handle_fin(&mut self, events: &mut VecDeque<Event>) -> Result<(), Fault> {
        if !self.frames.is_between() {
            // RFC 9114 §7.1
            let reason = "a stream ended inside a frame";
            return Err(ConnectionError::new(Code::H3_FRAME_ERROR, reason).into());
        }
        match &self.receiving {
            // RFC 9114 §4.1
            Receiving::Head => return Err(self.ended_without_head().into()),
            Receiving::Body(body) => body.finish()?,
            Receiving::Capsules(reader) => reader.finish()?,
            Receiving::Raw | Receiving::Trailed | Receiving::Done => {}
        }
        self.receiving = Receiving::Done;
        events.push_back(Event::Finished { stream: self.id });
        Ok(())
    }

    const fn ended_without_head(&self) -> StreamError {
        match self.role {
            Role::Server => StreamError::Incomplete,
            Role::Client => StreamError::Malformed(Malformed("no final response")),
        }
    }
}

impl Receiving {
    const fn body(announced: Option<u64>) -> Self {
        Self::Body(Body {
            announced,
            received: 0,
        })
    }

    /// RFC 9114 §4.1 and §7.2, table 1: which frames may come next on a request stream.
    fn admit(&self, role: Role, kind: u64, len: u64) -> Result<Treat, Fault> {
        match (kind, self) {
            (frame::DATA, Self::Body(_) | Self::Capsules(_) | Self::Raw) => Ok(Treat::Pass),
            (frame::HEADERS, Self::Head | Self::Body(_)) if len > MAX_FIELD_SECTION as u64 => {
                Err(StreamError::HeadTooLarge.into())
            }
            (frame::HEADERS, Self::Head | Self::Body(_)) => Ok(Treat::Collect),
            (frame::DATA, _) => Err(unexpected("DATA without a head or after trailers")),
            (frame::HEADERS, _) => Err(unexpected("HEADERS after trailers or in a tunnel")),
            // RFC 9114 §7.2.5: we never allowed a push id.
            (frame::PUSH_PROMISE, _) if role == Role::Client => {
                Err(ConnectionError::new(Code::H3_ID_ERROR, "a push that was not allowed").into())
            }
            (kind, _) if belongs_elsewhere(kind) => Err(unexpected(
                "a frame that does not belong on a request stream",
            )),
            _ => Ok(Treat::Skip),
        }
    }
}

/// Frames of the control stream, of a server only, and of HTTP/2.
const fn belongs_elsewhere(kind: u64) -> bool {
    matches!(
        kind,
        frame::SETTINGS
            | frame::GOAWAY
            | frame::CANCEL_PUSH
            | frame::MAX_PUSH_ID
            | frame::PUSH_PROMISE
    ) || frame::is_http2(kind)
}

impl Body {
    fn add(&mut self, len: u64) -> Result<(), StreamError> {
        self.received += len;
        if self
            .announced
            .is_some_and(|announced| self.received > announced)
        {
            return Err(Self::BAD_LENGTH.into());
        }
        if self.received > MAX_BODY {
            return Err(StreamError::BodyTooLarge);
        }
        Ok(())
    }

    /// RFC 9114 §4.1.2
    fn finish(&self) -> Result<(), Malformed> {
        match self.announced {
            Some(announced) if announced != self.received => Err(Self::BAD_LENGTH),
            Some(_) | None => Ok(()),
        }
    }

    const BAD_LENGTH: Malformed = Malformed("the content is not as long as content-length says");
}

fn unexpected(reason: &'static str) -> Fault {
    ConnectionError::new(Code::H3_FRAME_UNEXPECTED, reason).into()
}
