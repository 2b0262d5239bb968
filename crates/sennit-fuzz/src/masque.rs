//! `sennit-masque`: everything a peer can put into streams and datagrams.

mod script;
mod trace;

use bytes::{Bytes, BytesMut};
use sennit_masque::capsule::MAX_CAPSULE;
use sennit_masque::connect_ip::{Scope, Target};
use sennit_masque::connect_udp;
use sennit_masque::datagram::{self, Datagram, DatagramError};
use sennit_masque::qpack::{self, Field};
use sennit_masque::{Capsule, CapsuleError, CapsuleReader, Code, IpPrefix, StreamId};

use crate::input::Input;
use script::{Op, Side};
use trace::Trace;

/// Variable-length integers, one after the other.
pub fn varint(data: &[u8]) {
    use sennit_masque::varint;
    let mut input = data;
    while let Some((value, len)) = varint::decode(input) {
        assert!(value <= varint::MAX && varint::size(value) <= len);
        let mut shortest = Vec::new();
        varint::put(&mut shortest, value);
        assert_eq!(
            varint::decode(&shortest),
            Some((value, varint::size(value)))
        );
        let mut rest = input;
        assert_eq!(varint::take(&mut rest), Some(value));
        assert_eq!(rest, &input[len..]);
        input = rest;
    }
    assert!(input.len() < 8, "eight bytes always hold an integer");
}

/// A field section. Script: the size accepted (2), then the section.
pub fn qpack(data: &[u8]) {
    let mut input = Input::new(data);
    let most = usize::from(input.u16());
    let section = input.rest();
    let Ok(fields) = qpack::decode(section, most) else {
        return;
    };
    let size: usize = fields.iter().map(Field::size).sum();
    assert!(size <= most);
    let encoded = qpack::encode(&fields);
    assert_eq!(qpack::decode(&encoded, size), Ok(fields));
    if size > 0 {
        let short = qpack::decode(section, size - 1);
        assert_eq!(short, Err(qpack::DecodeError::TooLarge));
    }
}

/// The payload of a QUIC DATAGRAM frame.
pub fn datagram(data: &[u8]) {
    match datagram::decode(data) {
        Ok(decoded) => {
            assert!(decoded.stream.is_request(), "a quarter id names a request");
            assert!(data.ends_with(decoded.payload));
            let prefix = datagram::encode_prefix(decoded.stream, decoded.context);
            let again = [&prefix[..], decoded.payload].concat();
            assert_eq!(datagram::decode(&again), Ok(decoded));
        }
        Err(error @ (DatagramError::NoStreamId | DatagramError::StreamIdTooLarge)) => {
            assert_eq!(error.code(), Some(Code::H3_DATAGRAM_ERROR));
        }
        Err(error @ DatagramError::NoContextId) => assert_eq!(error.code(), None),
    }
    if let Some((context, payload)) = datagram::split_context(data) {
        let stream = StreamId(4);
        let whole = [&datagram::encode_prefix(stream, context)[..], payload].concat();
        let expected = Datagram {
            stream,
            context,
            payload,
        };
        assert_eq!(datagram::decode(&whole), Ok(expected));
    }
}

/// A stream of capsules, in pieces. Script: length of the pieces (1), then the stream.
pub fn capsule(data: &[u8]) {
    let mut input = Input::new(data);
    let (piece, stream) = (usize::from(input.byte()).max(1), input.rest());
    let whole = read_capsules(stream, usize::MAX);
    assert_eq!(whole, read_capsules(stream, piece));
    for capsule in &whole.0 {
        let mut wire = BytesMut::new();
        let encoded = capsule.encode(&mut wire);
        assert_eq!(encoded, Ok(()), "what is read can be sent");
        let (again, end) = read_capsules(&wire, usize::MAX);
        assert_eq!((again.as_slice(), end), (&[capsule.clone()][..], Ok(())));
    }
}

/// The capsules of a stream that ends after `stream`, and how it ended.
fn read_capsules(stream: &[u8], piece: usize) -> (Vec<Capsule>, Result<(), CapsuleError>) {
    let (mut reader, mut capsules) = (CapsuleReader::default(), Vec::new());
    for piece in stream.chunks(piece.min(stream.len()).max(1)) {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match reader.poll(&mut input) {
                Ok(Some(capsule)) => capsules.push(capsule),
                Ok(None) => break,
                Err(error) => return (capsules, Err(error)),
            }
        }
        assert!(input.is_empty(), "a reader takes all there is");
        assert!(reader.buffered() <= stream.len().min(MAX_CAPSULE));
    }
    (capsules, reader.finish())
}

/// The path of a request for a tunnel, and prefixes as text.
pub fn scope(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    if let Ok(prefix) = text.parse::<IpPrefix>() {
        assert_eq!(prefix.to_string().parse(), Ok(prefix));
        let (first, last) = prefix.range();
        assert!(first == prefix.addr() && prefix.contains(first) && prefix.contains(last));
    }
    let path = format!("{}{text}", connect_udp::WELL_KNOWN);
    for path in [text, &path] {
        if let Ok(target) = connect_udp::Target::from_path(path) {
            assert!(target.port != 0);
            assert_eq!(connect_udp::Target::from_path(&target.path()), Ok(target));
        }
    }
    let path = format!("{}{text}", sennit_masque::connect_ip::WELL_KNOWN);
    for path in [text, &path] {
        let Ok(scope) = Scope::from_path(path) else {
            continue;
        };
        if let Target::Host(name) = &scope.target {
            assert!(name.is_ascii() && (1..=254).contains(&name.len()));
            assert_eq!(name.parse::<std::net::IpAddr>().ok(), None);
        }
        assert!(scope.path().is_ascii());
        assert_eq!(Scope::from_path(&scope.path()), Ok(scope));
    }
}

/// The server's side of HTTP/3, as [`script`] has it.
pub fn server(data: &[u8]) {
    both_ways(Side::Server, data);
}

/// The client's side of HTTP/3.
pub fn client(data: &[u8]) {
    both_ways(Side::Client, data);
}

/// A connection that gets its streams byte by byte does the same as one that gets them in pieces.
fn both_ways(side: Side, data: &[u8]) {
    let ops: Vec<Op<'_>> = script::read(side, &mut Input::new(data));
    let pieces = Trace::record(side, &ops, usize::MAX);
    pieces.check(side);
    assert_eq!(pieces, Trace::record(side, &ops, 1));
}
