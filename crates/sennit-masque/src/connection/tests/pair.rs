//! A client and a server that hear each other.

use super::super::*;
use super::scripted::events;
use crate::capsule::tests::any_capsule;
use crate::capsule::{AssignedAddress, RequestedAddress};
use crate::connect_ip::{self, Scope};
use crate::message::Fields;
use proptest::prelude::*;

/// Two sides and the events that each has seen.
struct Pair {
    client: Connection,
    server: Connection,
    /// Bytes per delivery.
    piece: usize,
}

impl Pair {
    /// A pair that has exchanged settings.
    fn new(piece: usize) -> Self {
        let mut pair = Self {
            client: Connection::client(),
            server: Connection::server(),
            piece,
        };
        let (client, server) = pair.run();
        assert!(
            matches!(client[..], [Event::Settings(settings)] if settings.enable_connect_protocol)
        );
        assert!(matches!(server[..], [Event::Settings(settings)] if settings.h3_datagram));
        pair
    }

    /// Delivers until both are silent; the events of the client and of the server.
    fn run(&mut self) -> (Vec<Event>, Vec<Event>) {
        let piece = self.piece;
        loop {
            let to_server = deliver(&mut self.client, StreamId(2), &mut self.server, piece);
            let to_client = deliver(&mut self.server, StreamId(3), &mut self.client, piece);
            if !to_server && !to_client {
                return (events(&mut self.client), events(&mut self.server));
            }
        }
    }

    fn send_tunnel_request(&mut self, stream: StreamId) {
        let head = connect_ip::request("hub:443", &Scope::ANY.path());
        self.client
            .send_request(stream, &head, None)
            .expect("settings have come");
    }

    fn grant(&mut self, stream: StreamId) {
        let head = ResponseHead {
            status: 200,
            fields: connect_ip::response_fields(),
        };
        self.server
            .respond(stream, &head, false)
            .expect("a request has come");
    }
}

fn deliver(from: &mut Connection, control: StreamId, to: &mut Connection, piece: usize) -> bool {
    let mut any = false;
    while let Some(output) = from.poll_output() {
        any = true;
        match output {
            Output::Control(bytes) => feed(to, control, &bytes, false, piece),
            Output::Send { stream, bytes, fin } => feed(to, stream, &bytes, fin, piece),
            Output::ResetStream { stream, code } => to.handle_stream_reset(stream, code),
            Output::StopSending { stream, code } => to.handle_stop_sending(stream, code),
            Output::Close { code, reason } => panic!("closed: {code}: {reason}"),
        }
    }
    any
}

fn feed(to: &mut Connection, stream: StreamId, bytes: &Bytes, fin: bool, piece: usize) {
    for chunk in bytes.chunks(piece) {
        to.handle_stream_data(stream, Bytes::copy_from_slice(chunk), false);
    }
    if fin {
        to.handle_stream_data(stream, Bytes::new(), true);
    }
}

#[test]
fn a_tunnel_opens_carries_capsules_both_ways_and_ends() {
    let mut pair = Pair::new(1);
    let stream = StreamId(0);
    pair.send_tunnel_request(stream);
    let prefix = "0.0.0.0/32".parse().expect("a prefix");
    let request = Capsule::AddressRequest(vec![RequestedAddress {
        request_id: 1,
        prefix,
    }]);
    // RFC 9484 §7.1: the client need not wait for the response.
    pair.client.send_capsule(stream, &request).expect("open");

    let (_, server) = pair.run();
    let [Event::Request { head, .. }, Event::Capsule { capsule, .. }] = &server[..] else {
        panic!("{server:?}")
    };
    assert_eq!(connect_ip::accept(head), Ok(Scope::ANY));
    assert_eq!(*capsule, request);

    pair.grant(stream);
    let prefix = "192.0.2.11/32".parse().expect("a prefix");
    let assign = Capsule::AddressAssign(vec![AssignedAddress {
        request_id: 1,
        prefix,
    }]);
    pair.server.send_capsule(stream, &assign).expect("open");
    let (client, _) = pair.run();
    let [Event::Response { head, .. }, Event::Capsule { capsule, .. }] = &client[..] else {
        panic!("{client:?}")
    };
    assert!(head.is_success() && connect_ip::speaks_capsules(&head.fields));
    assert_eq!(*capsule, assign);

    pair.client.finish(stream).expect("open");
    assert_eq!(pair.run().1, [Event::Finished { stream }]);
    pair.server.finish(stream).expect("open");
    assert_eq!(pair.run().0, [Event::Finished { stream }]);
    assert_eq!(pair.client.finish(stream), Err(SendError::UnknownStream));
    assert_eq!(pair.server.finish(stream), Err(SendError::UnknownStream));
}

#[test]
fn a_post_brings_a_body_and_gets_one_back() {
    let mut pair = Pair::new(1000);
    let stream = StreamId(0);
    let mut head = RequestHead::new("POST", "hub:443", "/join");
    head.fields.push("content-length", "5");
    pair.client
        .send_request(stream, &head, Some(Bytes::from_static(b"token")))
        .expect("fresh");
    let (_, server) = pair.run();
    let body = Bytes::from_static(b"token");
    assert_eq!(
        server,
        [
            Event::Request { stream, head },
            Event::Data {
                stream,
                bytes: body
            },
            Event::Finished { stream }
        ]
    );

    let head = ResponseHead::new(201);
    pair.server.respond(stream, &head, false).expect("asked");
    pair.server
        .send_data(stream, Bytes::from_static(b"certificate"), true)
        .expect("open");
    let (client, _) = pair.run();
    let body = Bytes::from_static(b"certificate");
    assert_eq!(
        client,
        [
            Event::Response { stream, head },
            Event::Data {
                stream,
                bytes: body
            },
            Event::Finished { stream }
        ]
    );
}

#[test]
fn a_refused_tunnel_is_an_ordinary_response_and_both_sides_let_go() {
    let mut pair = Pair::new(7);
    let stream = StreamId(0);
    pair.send_tunnel_request(stream);
    pair.run();
    pair.server
        .respond(stream, &ResponseHead::new(403), true)
        .expect("asked");
    let (client, _) = pair.run();
    let head = ResponseHead::new(403);
    let stopped = Event::Stopped {
        stream,
        code: Code::H3_NO_ERROR,
    };
    assert_eq!(
        client,
        [
            Event::Response { stream, head },
            Event::Finished { stream },
            stopped
        ]
    );
    assert_eq!(
        pair.client.send_data(stream, Bytes::new(), true),
        Err(SendError::UnknownStream)
    );
}

#[test]
fn a_grant_that_cannot_start_capsules_is_not_sent() {
    // RFC 9297 §3.2
    let mut pair = Pair::new(7);
    let stream = StreamId(0);
    pair.send_tunnel_request(stream);
    pair.run();
    let fields = connect_ip::response_fields().with("content-type", "text/plain");
    for head in [
        ResponseHead::new(204),
        ResponseHead {
            status: 200,
            fields,
        },
    ] {
        let result = pair.server.respond(stream, &head, false);
        assert!(matches!(result, Err(SendError::Malformed(_))));
    }
    pair.grant(stream);
    assert!(matches!(pair.run().0[..], [Event::Response { .. }]));
}

#[test]
fn an_interim_response_leaves_the_real_one_to_come() {
    let mut pair = Pair::new(7);
    let stream = StreamId(0);
    pair.client
        .send_request(stream, &RequestHead::new("GET", "hub", "/"), None)
        .expect("fresh");
    pair.run();
    pair.server
        .respond(stream, &ResponseHead::new(103), false)
        .expect("asked");
    pair.server
        .respond(stream, &ResponseHead::new(204), true)
        .expect("not answered yet");
    let (client, _) = pair.run();
    let head = ResponseHead::new(204);
    assert_eq!(
        client,
        [Event::Response { stream, head }, Event::Finished { stream }]
    );
}

#[test]
fn aborting_a_tunnel_tells_the_peer() {
    let mut pair = Pair::new(7);
    let stream = StreamId(0);
    pair.send_tunnel_request(stream);
    pair.run();
    pair.grant(stream);
    pair.run();
    pair.client.abort(stream, Code::H3_REQUEST_CANCELLED);
    let (client, server) = pair.run();
    assert_eq!(
        server,
        [Event::Reset {
            stream,
            code: Code::H3_REQUEST_CANCELLED
        }]
    );
    assert_eq!(client, []);
}

#[test]
fn a_goaway_lets_open_tunnels_live_and_rejects_new_ones() {
    let mut pair = Pair::new(7);
    pair.send_tunnel_request(StreamId(0));
    pair.run();
    pair.server.goaway();
    // This one crosses the GOAWAY on the way.
    pair.send_tunnel_request(StreamId(4));
    let (client, server) = pair.run();
    assert_eq!(
        server,
        [Event::Failed {
            stream: StreamId(4),
            error: StreamError::Rejected
        }]
    );
    assert_eq!(client[0], Event::GoAway);
    assert_eq!(
        client[1],
        Event::Failed {
            stream: StreamId(4),
            error: StreamError::Rejected
        }
    );
    let head = RequestHead::new("GET", "hub", "/");
    assert_eq!(
        pair.client.send_request(StreamId(8), &head, None),
        Err(SendError::GoingAway)
    );
    pair.grant(StreamId(0));
    assert!(matches!(pair.run().0[..], [Event::Response { .. }]));
}

#[test]
fn a_goaway_is_said_once_by_each_side() {
    let mut pair = Pair::new(7);
    for connection in [&mut pair.client, &mut pair.server] {
        connection.goaway();
        connection.goaway();
        let said = std::iter::from_fn(|| connection.poll_output()).count();
        assert_eq!(said, 1);
    }
}

#[test]
fn a_client_that_goes_away_still_hears_the_answers() {
    let mut pair = Pair::new(7);
    pair.send_tunnel_request(StreamId(0));
    pair.client.goaway();
    pair.run();
    pair.grant(StreamId(0));
    assert!(matches!(pair.run().0[..], [Event::Response { .. }]));
}

#[test]
fn what_may_not_be_sent_is_refused_to_the_caller() {
    let mut pair = Pair::new(7);
    let head = RequestHead::new("GET", "hub", "/");
    let uni = pair.client.send_request(StreamId(2), &head, None);
    assert_eq!(uni, Err(SendError::NotARequestStream));
    let by_server = pair.server.send_request(StreamId(0), &head, None);
    assert_eq!(by_server, Err(SendError::NotARequestStream));
    let fields = Fields::default().with("x", "a\r\nb");
    let smuggled = RequestHead {
        fields,
        ..head.clone()
    };
    let result = pair.client.send_request(StreamId(0), &smuggled, None);
    assert!(matches!(result, Err(SendError::Malformed(_))));
    let long = "a".repeat(crate::MAX_FIELD_SECTION);
    let large = RequestHead {
        fields: Fields::default().with("x", long),
        ..head.clone()
    };
    let result = pair.client.send_request(StreamId(0), &large, None);
    assert_eq!(result, Err(SendError::HeadTooLarge));
    pair.client
        .send_request(StreamId(0), &head, None)
        .expect("fresh");
    let again = pair.client.send_request(StreamId(0), &head, None);
    assert_eq!(again, Err(SendError::NotARequestStream));
    pair.run();
    assert_eq!(pair.server.finish(StreamId(0)), Err(SendError::NoHead));
    pair.server
        .respond(StreamId(0), &ResponseHead::new(200), false)
        .expect("asked");
    let twice = pair
        .server
        .respond(StreamId(0), &ResponseHead::new(200), false);
    assert_eq!(twice, Err(SendError::HeadSent));
}

#[test]
fn an_extended_connect_waits_for_the_settings_of_the_peer() {
    let mut client = Connection::client();
    let head = connect_ip::request("hub", "/vpn");
    assert_eq!(
        client.send_request(StreamId(0), &head, None),
        Err(SendError::NoSettings)
    );
    client.handle_stream_data(StreamId(3), Bytes::from_static(b"\x00\x04\x00"), false);
    assert_eq!(
        client.send_request(StreamId(0), &head, None),
        Err(SendError::NoExtendedConnect)
    );
}

proptest! {
    #![proptest_config(crate::seeded())]

    #[test]
    fn capsules_arrive_as_sent_whatever_the_pieces(
        capsules in prop::collection::vec(any_capsule(), 1..6),
        piece in 1usize..50,
    ) {
        let mut pair = Pair::new(piece);
        let stream = StreamId(0);
        pair.send_tunnel_request(stream);
        for capsule in &capsules {
            pair.client.send_capsule(stream, capsule).expect("open");
        }
        let (_, server) = pair.run();
        let received: Vec<_> = server
            .into_iter()
            .filter_map(|event| match event {
                Event::Capsule { capsule, .. } => Some(capsule),
                _ => None,
            })
            .collect();
        prop_assert_eq!(received, capsules);
    }
}
