//! One side alone: the test plays the peer, byte by byte if it likes.

use super::super::*;
use crate::qpack;
use crate::qpack::Field;

/// A side whose opening output has been drained.
pub(super) fn server() -> Connection {
    drained(Connection::server())
}

/// A client that has the settings of a hub.
pub(super) fn client() -> Connection {
    let mut client = drained(Connection::client());
    client.handle_stream_data(StreamId(3), control(&SETTINGS), false);
    assert!(matches!(client.poll_event(), Some(Event::Settings(_))));
    client
}

/// SETTINGS of a server: extended CONNECT and datagrams.
pub(super) const SETTINGS: [u8; 6] = [0x04, 0x04, 0x08, 0x01, 0x33, 0x01];

/// The beginning of a control stream.
pub(super) fn control(frames: &[u8]) -> Bytes {
    [&[0x00], frames].concat().into()
}

pub(super) fn headers(lines: &[(&'static str, &'static str)]) -> Bytes {
    let lines: Vec<_> = lines
        .iter()
        .map(|&(name, value)| Field::new(name, value))
        .collect();
    frame::frame(frame::HEADERS, &qpack::encode(&lines))
}

pub(super) fn data(payload: &[u8]) -> Bytes {
    frame::frame(frame::DATA, payload)
}

pub(super) fn post() -> Bytes {
    headers(&[
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "hub"),
        (":path", "/join"),
    ])
}

pub(super) fn connect_ip() -> Bytes {
    headers(&[
        (":method", "CONNECT"),
        (":protocol", "connect-ip"),
        (":scheme", "https"),
        (":authority", "hub"),
        (":path", "/.well-known/masque/ip/*/*/"),
        ("capsule-protocol", "?1"),
    ])
}

pub(super) fn status(status: &'static str) -> Bytes {
    headers(&[(":status", status)])
}

fn drained(mut connection: Connection) -> Connection {
    assert!(matches!(connection.poll_output(), Some(Output::Control(_))));
    connection
}

pub(super) fn outputs(connection: &mut Connection) -> Vec<Output> {
    std::iter::from_fn(|| connection.poll_output()).collect()
}

pub(super) fn events(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.poll_event()).collect()
}

/// Feeds one request stream and says how the connection was closed, if it was.
pub(super) fn closed_by(
    connection: &mut Connection,
    stream: u64,
    pieces: &[&[u8]],
) -> Option<Code> {
    for bytes in pieces {
        connection.handle_stream_data(StreamId(stream), Bytes::copy_from_slice(bytes), false);
    }
    close_code(connection)
}

/// Code with which a connection closes when a stream ends after these bytes.
pub(super) fn closed_at_end(
    connection: &mut Connection,
    stream: u64,
    bytes: &[u8],
) -> Option<Code> {
    connection.handle_stream_data(StreamId(stream), Bytes::copy_from_slice(bytes), true);
    close_code(connection)
}

fn close_code(connection: &mut Connection) -> Option<Code> {
    outputs(connection)
        .into_iter()
        .find_map(|output| match output {
            Output::Close { code, .. } => Some(code),
            Output::Control(_)
            | Output::Send { .. }
            | Output::ResetStream { .. }
            | Output::StopSending { .. } => None,
        })
}

/// How a stream failed, where the connection lives on.
pub(super) fn failure(connection: &mut Connection) -> Option<StreamError> {
    assert!(!connection.is_closed());
    events(connection)
        .into_iter()
        .find_map(|event| match event {
            Event::Failed { error, .. } => Some(error),
            _ => None,
        })
}
