//! The peer's control stream, RFC 9114 §6.2.1: first SETTINGS, then GOAWAY and the frames of
//! server push, of which we check only that they are legal.

use super::Role;
use crate::error::{Code, ConnectionError};
use crate::settings::Settings;
use crate::tlv::{Element, TlvReader, Treat};
use crate::{StreamId, frame, varint};
use bytes::Bytes;

/// Room for many settings that we do not know; ours have a dozen bytes.
const MAX_SETTINGS_FRAME: u64 = 4 << 10;

/// What the control stream says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Settings(Settings),
    /// The first request id that the server has not processed. A client's GOAWAY is about pushes,
    /// and says nothing to us.
    GoAway(u64),
}

#[derive(Debug)]
pub(super) struct Control {
    frames: TlvReader,
    rules: Rules,
}

/// What decides whether the next frame is legal.
#[derive(Debug)]
struct Rules {
    role: Role,
    settings_begun: bool,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
}

impl Control {
    /// The control stream as read by `role`.
    pub(super) fn new(role: Role) -> Self {
        let rules = Rules {
            role,
            settings_begun: false,
            goaway: None,
            max_push_id: None,
        };
        Self {
            frames: TlvReader::default(),
            rules,
        }
    }

    /// Takes from `input` up to the end of the next frame that says something.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Signal>, ConnectionError> {
        let Self { frames, rules } = self;
        while let Some(element) = frames.next(input, |kind, len| rules.admit(kind, len))? {
            if let Element::Whole { kind, value } = element
                && let Some(signal) = rules.apply(kind, &value)?
            {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    pub(super) fn buffered(&self) -> usize {
        self.frames.buffered()
    }
}

impl Rules {
    /// RFC 9114 §7.2, table 1: which frames a control stream has.
    fn admit(&mut self, kind: u64, len: u64) -> Result<Treat, ConnectionError> {
        if kind != frame::SETTINGS && !self.settings_begun {
            let reason = "the control stream does not begin with SETTINGS";
            return Err(ConnectionError::new(Code::H3_MISSING_SETTINGS, reason));
        }
        match kind {
            frame::SETTINGS => self.admit_settings(len),
            frame::MAX_PUSH_ID if self.role == Role::Client => Err(unexpected("MAX_PUSH_ID")),
            frame::GOAWAY | frame::CANCEL_PUSH | frame::MAX_PUSH_ID => admit_id(len),
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => {
                Err(unexpected("a frame of a request on the control stream"))
            }
            kind if frame::is_http2(kind) => Err(unexpected("a frame of HTTP/2")),
            _ => Ok(Treat::Skip),
        }
    }

    fn admit_settings(&mut self, len: u64) -> Result<Treat, ConnectionError> {
        if std::mem::replace(&mut self.settings_begun, true) {
            return Err(unexpected("a second SETTINGS"));
        }
        if len > MAX_SETTINGS_FRAME {
            return Err(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "a huge SETTINGS",
            ));
        }
        Ok(Treat::Collect)
    }

    fn apply(&mut self, kind: u64, value: &[u8]) -> Result<Option<Signal>, ConnectionError> {
        match kind {
            frame::SETTINGS => Settings::decode(value).map(|s| Some(Signal::Settings(s))),
            frame::GOAWAY => self.apply_goaway(id(value)?),
            frame::MAX_PUSH_ID => self.apply_max_push_id(id(value)?),
            // CANCEL_PUSH, RFC 9114 §7.2.3: no push was ever allowed or promised.
            _ => id(value).and(Err(id_error("CANCEL_PUSH of a push that does not exist"))),
        }
    }

    /// RFC 9114 §5.2, §7.2.6
    fn apply_goaway(&mut self, id: u64) -> Result<Option<Signal>, ConnectionError> {
        if self.goaway.is_some_and(|last| id > last) {
            return Err(id_error("a GOAWAY above the last one"));
        }
        self.goaway = Some(id);
        match self.role {
            Role::Server => Ok(None),
            Role::Client if StreamId(id).is_request() => Ok(Some(Signal::GoAway(id))),
            Role::Client => Err(id_error("a GOAWAY with an id that no request can have")),
        }
    }

    /// RFC 9114 §7.2.7
    fn apply_max_push_id(&mut self, id: u64) -> Result<Option<Signal>, ConnectionError> {
        if self.max_push_id.is_some_and(|last| id < last) {
            return Err(id_error("a MAX_PUSH_ID below the last one"));
        }
        self.max_push_id = Some(id);
        Ok(None)
    }
}

/// The payload is one varint, of at most 8 bytes.
fn admit_id(len: u64) -> Result<Treat, ConnectionError> {
    if len > 8 {
        Err(BAD_ID_FRAME)
    } else {
        Ok(Treat::Collect)
    }
}

/// RFC 9114 §7.1: the payload is that varint and nothing else.
fn id(mut value: &[u8]) -> Result<u64, ConnectionError> {
    varint::take(&mut value)
        .filter(|_| value.is_empty())
        .ok_or(BAD_ID_FRAME)
}

const BAD_ID_FRAME: ConnectionError =
    ConnectionError::new(Code::H3_FRAME_ERROR, "a frame that should hold one id");

const fn id_error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::H3_ID_ERROR, reason)
}

const fn unexpected(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::H3_FRAME_UNEXPECTED, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &[u8] = b"\x04\x02\x33\x01";

    fn read(role: Role, frames: &[&[u8]]) -> Result<Vec<Signal>, Code> {
        let mut control = Control::new(role);
        let mut signals = Vec::new();
        let mut input = Bytes::from(frames.concat());
        while let Some(signal) = control.next(&mut input).map_err(|error| error.code)? {
            signals.push(signal);
        }
        Ok(signals)
    }

    fn after_settings(role: Role, frames: &[&[u8]]) -> Result<Vec<Signal>, Code> {
        let signals = read(role, &[&[SETTINGS], frames].concat())?;
        Ok(signals[1..].to_vec())
    }

    #[test]
    fn settings_come_first_and_once() {
        let settings = Settings {
            h3_datagram: true,
            ..Settings::default()
        };
        assert_eq!(
            read(Role::Server, &[SETTINGS]),
            Ok(vec![Signal::Settings(settings)])
        );
        // Even an unknown frame must not come before (RFC 9114 §6.2.1).
        assert_eq!(
            read(Role::Server, &[b"\x21\x00", SETTINGS]),
            Err(Code::H3_MISSING_SETTINGS)
        );
        assert_eq!(
            read(Role::Server, &[b"\x07\x01\x00"]),
            Err(Code::H3_MISSING_SETTINGS)
        );
        assert_eq!(
            read(Role::Server, &[SETTINGS, SETTINGS]),
            Err(Code::H3_FRAME_UNEXPECTED)
        );
    }

    #[test]
    fn a_huge_settings_frame_is_refused_by_its_length() {
        assert_eq!(
            read(Role::Server, &[b"\x04\x50\x01"]),
            Err(Code::H3_EXCESSIVE_LOAD)
        );
    }

    #[test]
    fn frames_of_requests_and_of_http_2_are_unexpected() {
        for kind in [0x00, 0x01, 0x05, 0x02, 0x06, 0x08, 0x09] {
            let result = after_settings(Role::Server, &[&[kind, 0]]);
            assert_eq!(result, Err(Code::H3_FRAME_UNEXPECTED), "{kind}");
        }
    }

    #[test]
    fn unknown_frames_are_skipped() {
        let result = after_settings(Role::Client, &[b"\x21\x03abc", b"\x07\x01\x08"]);
        assert_eq!(result, Ok(vec![Signal::GoAway(8)]));
    }

    #[test]
    fn a_goaway_names_a_request_and_never_grows() {
        let goaway = |id: u8| [0x07, 0x01, id];
        let read = |ids: &[u8]| {
            let frames: Vec<_> = ids.iter().map(|&id| goaway(id)).collect();
            after_settings(
                Role::Client,
                &frames.iter().map(|f| &f[..]).collect::<Vec<_>>(),
            )
        };
        assert_eq!(read(&[8, 4, 4]).map(|signals| signals.len()), Ok(3));
        assert_eq!(read(&[4, 8]), Err(Code::H3_ID_ERROR));
        assert_eq!(read(&[1]), Err(Code::H3_ID_ERROR));
        assert_eq!(after_settings(Role::Server, &[&goaway(1)]), Ok(vec![]));
    }

    #[test]
    fn push_frames_are_checked_although_there_is_no_push() {
        let max = |id: u8| [0x0d, 0x01, id];
        assert_eq!(
            after_settings(Role::Server, &[&max(1), &max(1), &max(2)]),
            Ok(vec![])
        );
        assert_eq!(
            after_settings(Role::Server, &[&max(2), &max(1)]),
            Err(Code::H3_ID_ERROR)
        );
        assert_eq!(
            after_settings(Role::Client, &[&max(1)]),
            Err(Code::H3_FRAME_UNEXPECTED)
        );
        for role in [Role::Client, Role::Server] {
            assert_eq!(
                after_settings(role, &[b"\x03\x01\x00"]),
                Err(Code::H3_ID_ERROR)
            );
        }
    }

    #[test]
    fn a_frame_with_more_or_less_than_an_id_is_a_frame_error() {
        for frame in [
            &b"\x07\x00"[..],
            b"\x07\x01\x40",
            b"\x07\x02\x00\x00",
            b"\x07\x09",
        ] {
            assert_eq!(
                after_settings(Role::Client, &[frame]),
                Err(Code::H3_FRAME_ERROR)
            );
        }
    }
}
