//! What a peer may not do, and what it ends.

use super::super::*;
use super::scripted::*;
use crate::capsule::CapsuleError;
use crate::error::Malformed;
use crate::{MAX_BODY, MAX_FIELD_SECTION, MAX_UNI_STREAMS};
use proptest::prelude::*;

#[test]
fn frames_out_of_order_close_the_connection() {
    // RFC 9114 §4.1, §7.2
    let cases: [&[&[u8]]; 7] = [
        &[&data(b"x")],
        &[&post(), &headers(&[]), &data(b"x")],
        &[&post(), &headers(&[]), &headers(&[])],
        &[&connect_ip(), &headers(&[])],
        &[&post(), &[0x04, 0x00]],
        &[&post(), &[0x05, 0x01, 0x00]],
        &[&[0x02, 0x00]],
    ];
    for pieces in cases {
        let code = closed_by(&mut server(), 0, pieces);
        assert_eq!(code, Some(Code::H3_FRAME_UNEXPECTED), "{pieces:?}");
    }
}

#[test]
fn a_push_promise_is_an_id_error_to_a_client() {
    let mut client = client();
    client
        .send_request(StreamId(0), &RequestHead::new("GET", "hub", "/"), None)
        .expect("fresh");
    assert_eq!(
        closed_by(&mut client, 0, &[&[0x05, 0x01, 0x00]]),
        Some(Code::H3_ID_ERROR)
    );
}

#[test]
fn unknown_frames_on_a_request_are_skipped_wherever_they_are() {
    let mut server = server();
    let grease = b"\x21\x03abc";
    let pieces: [&[u8]; 5] = [grease, &post(), grease, &data(b"x"), grease];
    assert_eq!(closed_by(&mut server, 0, &pieces), None);
    assert!(matches!(
        events(&mut server)[..],
        [Event::Request { .. }, Event::Data { .. }]
    ));
}

#[test]
fn a_stream_that_ends_inside_a_frame_closes_the_connection() {
    // RFC 9114 §7.1
    for cut in [&b"\x01"[..], b"\x01\x05ab", b"\x21\x02a"] {
        assert_eq!(
            closed_at_end(&mut server(), 0, cut),
            Some(Code::H3_FRAME_ERROR)
        );
    }
    let cut_data = [&post()[..], b"\x00\x05abc"].concat();
    assert_eq!(
        closed_at_end(&mut server(), 0, &cut_data),
        Some(Code::H3_FRAME_ERROR)
    );
}

#[test]
fn a_dynamic_reference_closes_the_connection() {
    // RFC 9204 §2.2
    let section = b"\x01\x03\x00\x00\x80";
    let code = closed_by(&mut server(), 0, &[section]);
    assert_eq!(code, Some(Code::QPACK_DECOMPRESSION_FAILED));
}

#[test]
fn a_malformed_request_fails_alone() {
    let mut server = server();
    let no_path = headers(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "hub"),
    ]);
    server.handle_stream_data(StreamId(0), no_path, true);
    assert_eq!(
        failure(&mut server),
        Some(StreamError::Malformed(Malformed("no :path")))
    );
    let code = Code::H3_MESSAGE_ERROR;
    let stream = StreamId(0);
    assert_eq!(
        outputs(&mut server),
        [
            Output::ResetStream { stream, code },
            Output::StopSending { stream, code }
        ]
    );
    server.handle_stream_data(StreamId(4), post(), true);
    assert!(matches!(
        events(&mut server)[..],
        [Event::Request { .. }, Event::Finished { .. }]
    ));
}

#[test]
fn a_request_without_a_head_is_incomplete() {
    let mut server = server();
    server.handle_stream_data(StreamId(0), Bytes::new(), true);
    assert_eq!(failure(&mut server), Some(StreamError::Incomplete));
}

#[test]
fn a_head_over_the_limit_is_answered_with_431() {
    let mut server = server();
    let len = MAX_FIELD_SECTION as u64 + 1;
    let mut announced = BytesMut::new();
    varint::put(&mut announced, frame::HEADERS);
    varint::put(&mut announced, len);
    server.handle_stream_data(StreamId(0), announced.freeze(), false);
    assert_eq!(failure(&mut server), Some(StreamError::HeadTooLarge));
    assert_answered(&mut server, "431");
}

#[test]
fn a_small_section_that_grows_over_the_limit_is_answered_with_431() {
    let mut server = server();
    let bomb = [&[0, 0][..], &[0xc0 | 57; 1000]].concat();
    server.handle_stream_data(StreamId(0), frame::frame(frame::HEADERS, &bomb), false);
    assert_eq!(failure(&mut server), Some(StreamError::HeadTooLarge));
    assert_answered(&mut server, "431");
}

#[test]
fn a_body_over_the_limit_is_answered_with_413() {
    let mut server = server();
    server.handle_stream_data(StreamId(0), post(), false);
    let body = data(&vec![0; MAX_BODY as usize]);
    server.handle_stream_data(StreamId(0), body, false);
    assert_eq!(failure(&mut server), None);
    server.handle_stream_data(StreamId(0), data(b"x"), false);
    assert_eq!(failure(&mut server), Some(StreamError::BodyTooLarge));
    assert_answered(&mut server, "413");
}

/// A whole response, and no more of the request wanted (RFC 9114 §4.1).
fn assert_answered(server: &mut Connection, code: &'static str) {
    let stream = StreamId(0);
    assert_eq!(
        outputs(server),
        [
            Output::Send {
                stream,
                bytes: status(code),
                fin: true
            },
            Output::StopSending {
                stream,
                code: Code::H3_NO_ERROR
            }
        ]
    );
}

#[test]
fn a_body_that_is_not_as_long_as_announced_is_malformed() {
    let announced = headers(&[
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "hub"),
        (":path", "/join"),
        ("content-length", "3"),
    ]);
    for (body, fin) in [(&b"ab"[..], true), (b"abcd", false)] {
        let mut server = server();
        server.handle_stream_data(StreamId(0), announced.clone(), false);
        server.handle_stream_data(StreamId(0), data(body), fin);
        assert!(
            matches!(failure(&mut server), Some(StreamError::Malformed(_))),
            "{body:?}"
        );
    }
    let mut trailed = server();
    trailed.handle_stream_data(StreamId(0), announced.clone(), false);
    trailed.handle_stream_data(StreamId(0), data(b"ab"), false);
    trailed.handle_stream_data(StreamId(0), headers(&[("x-sum", "1")]), false);
    assert!(matches!(
        failure(&mut trailed),
        Some(StreamError::Malformed(_))
    ));
    let mut server = server();
    server.handle_stream_data(StreamId(0), announced, false);
    server.handle_stream_data(StreamId(0), data(b"abc"), true);
    assert_eq!(failure(&mut server), None);
}

#[test]
fn a_malformed_capsule_ends_its_tunnel_and_no_other() {
    let mut server = server();
    server.handle_stream_data(StreamId(0), connect_ip(), false);
    server.handle_stream_data(StreamId(4), connect_ip(), false);
    server.handle_stream_data(StreamId(0), data(&[0x02, 0x00]), false);
    assert_eq!(
        failure(&mut server),
        Some(StreamError::Capsule(CapsuleError::NoAddress))
    );
    server.handle_stream_data(StreamId(4), data(&[0x01, 0x00]), false);
    let capsule = Capsule::AddressAssign(vec![]);
    assert_eq!(
        events(&mut server),
        [Event::Capsule {
            stream: StreamId(4),
            capsule
        }]
    );
}

#[test]
fn a_tunnel_that_ends_inside_a_capsule_is_malformed() {
    // RFC 9297 §3.3
    let mut server = server();
    server.handle_stream_data(StreamId(0), connect_ip(), false);
    server.handle_stream_data(StreamId(0), data(&[0x01, 0x05]), true);
    assert_eq!(
        failure(&mut server),
        Some(StreamError::Capsule(CapsuleError::Truncated))
    );
}

#[test]
fn a_grant_that_cannot_start_capsules_is_malformed() {
    // RFC 9297 §3.2
    let mut client = client();
    let head = crate::connect_ip::request("hub", "/vpn");
    client
        .send_request(StreamId(0), &head, None)
        .expect("settings have come");
    client.handle_stream_data(StreamId(0), status("204"), false);
    assert!(matches!(
        failure(&mut client),
        Some(StreamError::Malformed(_))
    ));
}

#[test]
fn a_response_stream_without_a_final_head_is_malformed() {
    let mut client = client();
    client
        .send_request(StreamId(0), &RequestHead::new("GET", "hub", "/"), None)
        .expect("fresh");
    client.handle_stream_data(StreamId(0), status("103"), true);
    assert!(matches!(
        failure(&mut client),
        Some(StreamError::Malformed(_))
    ));
}

#[test]
fn a_client_that_stops_a_stream_early_still_gets_the_response() {
    // RFC 9114 §4.1: STOP_SENDING with H3_NO_ERROR beside a whole response.
    let mut client = client();
    let stream = StreamId(0);
    let head = crate::connect_ip::request("hub", "/vpn");
    client
        .send_request(stream, &head, None)
        .expect("settings have come");
    outputs(&mut client);
    client.handle_stop_sending(stream, Code::H3_NO_ERROR);
    let code = Code::H3_NO_ERROR;
    assert_eq!(outputs(&mut client), [Output::ResetStream { stream, code }]);
    client.handle_stream_data(stream, status("403"), true);
    let head = ResponseHead::new(403);
    assert_eq!(
        events(&mut client),
        [
            Event::Stopped { stream, code },
            Event::Response { stream, head },
            Event::Finished { stream }
        ]
    );
}

#[test]
fn critical_streams_cannot_be_closed_or_refused() {
    // RFC 9114 §6.2.1
    let critical = Some(Code::H3_CLOSED_CRITICAL_STREAM);
    assert_eq!(
        closed_at_end(&mut server(), 2, &control(&SETTINGS)),
        critical
    );
    let mut reset = server();
    reset.handle_stream_data(StreamId(2), control(&SETTINGS), false);
    reset.handle_stream_reset(StreamId(2), Code::H3_NO_ERROR);
    assert_eq!(closed_by(&mut reset, 0, &[]), critical);
    let mut refused = server();
    refused.handle_stop_sending(StreamId(3), Code::H3_NO_ERROR);
    assert_eq!(closed_by(&mut refused, 0, &[]), critical);
}

#[test]
fn a_stream_of_unknown_type_is_stopped() {
    let mut server = server();
    server.handle_stream_data(StreamId(2), Bytes::from_static(b"\x21rubbish"), false);
    let code = Code::H3_STREAM_CREATION_ERROR;
    assert_eq!(
        outputs(&mut server),
        [Output::StopSending {
            stream: StreamId(2),
            code
        }]
    );
}

#[test]
fn a_server_does_not_open_bidirectional_streams() {
    // RFC 9114 §6.1
    let code = closed_by(&mut client(), 1, &[b"\x01"]);
    assert_eq!(code, Some(Code::H3_STREAM_CREATION_ERROR));
}

#[test]
fn the_first_frame_of_the_control_stream_is_settings() {
    let code = closed_by(&mut server(), 2, &[&control(b"\x07\x01\x00")]);
    assert_eq!(code, Some(Code::H3_MISSING_SETTINGS));
}

#[test]
fn a_reset_request_is_reported_once_and_forgotten() {
    let mut server = server();
    let stream = StreamId(0);
    server.handle_stream_data(stream, connect_ip(), false);
    server.handle_stream_reset(stream, Code::H3_REQUEST_CANCELLED);
    server.handle_stream_reset(stream, Code::H3_REQUEST_CANCELLED);
    server.handle_stream_data(stream, data(b"late"), true);
    let code = Code::H3_REQUEST_CANCELLED;
    assert_eq!(outputs(&mut server), [Output::ResetStream { stream, code }]);
    assert_eq!(events(&mut server)[1..], [Event::Reset { stream, code }]);
}

#[test]
fn more_streams_than_announced_are_an_excessive_load() {
    let too_many_requests = closed_by(&mut server(), 4 * MAX_STREAMS as u64, &[b"\x01"]);
    assert_eq!(too_many_requests, Some(Code::H3_EXCESSIVE_LOAD));
    let too_many_unis = closed_by(&mut server(), 2 + 4 * MAX_UNI_STREAMS as u64, &[b"\x40"]);
    assert_eq!(too_many_unis, Some(Code::H3_EXCESSIVE_LOAD));
}

#[test]
fn finished_streams_make_room_for_new_ones() {
    let mut server = server();
    for index in 0..3 * MAX_STREAMS as u64 {
        let stream = StreamId(4 * index);
        server.handle_stream_data(stream, post(), true);
        server
            .respond(stream, &ResponseHead::new(200), true)
            .expect("asked");
    }
    assert!(!server.is_closed());
    assert_eq!(server.exchanges.values().count(), 0);
}

#[test]
fn unfinished_capsules_are_held_up_to_the_limit() {
    let mut server = server();
    // A whole capsule of the largest size, but for its last byte.
    let capsule = [&[0x00, 0x80, 0x01, 0x00, 0x00][..], &[0; (64 << 10) - 1]].concat();
    for index in 0..4 {
        server.handle_stream_data(StreamId(4 * index), connect_ip(), false);
        server.handle_stream_data(StreamId(4 * index), data(&capsule), false);
        assert!(!server.is_closed());
    }
    assert_eq!(server.buffered(), 4 * ((64 << 10) - 1));
    server.handle_stream_data(StreamId(16), connect_ip(), false);
    let code = closed_by(&mut server, 16, &[&data(&capsule)]);
    assert_eq!(code, Some(Code::H3_EXCESSIVE_LOAD));
}

#[test]
fn an_unfinished_head_is_held_and_counted() {
    let mut server = server();
    let cut = &connect_ip()[..50];
    server.handle_stream_data(StreamId(0), Bytes::copy_from_slice(cut), false);
    assert_eq!(server.buffered(), 50 - 3);
}

#[test]
fn a_closed_connection_holds_nothing() {
    let mut server = server();
    let unfinished = [connect_ip(), data(&[0x00, 0x05, 0x00])].concat();
    server.handle_stream_data(StreamId(0), unfinished.into(), false);
    assert_eq!(server.buffered(), 1);
    server.close(Code::H3_NO_ERROR, "done");
    assert_eq!(server.buffered(), 0);
}

#[test]
fn a_reset_after_the_end_of_a_request_changes_nothing() {
    let mut server = server();
    let stream = StreamId(0);
    server.handle_stream_data(stream, post(), true);
    events(&mut server);
    server.handle_stream_reset(stream, Code::H3_REQUEST_CANCELLED);
    assert_eq!(events(&mut server), []);
    assert_eq!(
        server.respond(stream, &ResponseHead::new(200), true),
        Ok(())
    );
}

#[test]
fn a_response_without_content_may_announce_a_length() {
    // RFC 9110 §8.6, §15.4.5
    for (status, result) in [("304", None), ("200", Some(()))] {
        let mut client = client();
        let head = RequestHead::new("GET", "hub", "/");
        client
            .send_request(StreamId(0), &head, None)
            .expect("fresh");
        let response = headers(&[(":status", status), ("content-length", "9")]);
        client.handle_stream_data(StreamId(0), response, true);
        assert_eq!(failure(&mut client).map(drop), result, "{status}");
    }
}

#[test]
fn nothing_happens_after_a_close() {
    let mut server = server();
    closed_by(&mut server, 0, &[&data(b"x")]);
    server.handle_stream_data(StreamId(4), post(), true);
    server.handle_stream_reset(StreamId(8), Code::H3_NO_ERROR);
    server.goaway();
    assert_eq!(
        server.respond(StreamId(4), &ResponseHead::new(200), true),
        Err(SendError::Closed)
    );
    assert_eq!(outputs(&mut server), []);
    assert_eq!(events(&mut server), []);
}

/// Events with neighbouring data joined, which pieces of another size would split otherwise.
fn joined(mut connection: Connection) -> (Vec<Output>, Vec<Event>) {
    let mut joined: Vec<Event> = Vec::new();
    for event in events(&mut connection) {
        match (joined.last_mut(), event) {
            (
                Some(Event::Data { stream, bytes }),
                Event::Data {
                    stream: next,
                    bytes: more,
                },
            ) if *stream == next => {
                *bytes = [&bytes[..], &more].concat().into();
            }
            (_, event) => joined.push(event),
        }
    }
    (outputs(&mut connection), joined)
}

/// Frames a peer might send, legal or not.
fn any_frame() -> impl Strategy<Value = Bytes> {
    let payload = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        Just(post()),
        Just(connect_ip()),
        Just(status("200")),
        Just(headers(&[("x-trailer", "1")])),
        payload.clone().prop_map(|payload| data(&payload)),
        crate::capsule::tests::any_capsule()
            .prop_map(|capsule| data(&crate::capsule::tests::encoded(&capsule))),
        (0u64..0x22, payload.clone()).prop_map(|(kind, payload)| frame::frame(kind, &payload)),
        payload.prop_map(Bytes::from),
    ]
}

fn any_stream_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any_frame(), 0..6).prop_map(|frames| frames.concat())
}

/// Bytes of a request stream of which much has to be held.
fn any_hungry_bytes() -> impl Strategy<Value = Vec<u8>> {
    let unfinished = [&[0x00, 0x80, 0x01, 0x00, 0x00][..], &[0; 40 << 10]].concat();
    let tunnel = [connect_ip(), data(&unfinished)].concat();
    prop_oneof![Just(tunnel), any_stream_bytes()]
}

/// A side with one stream of the peer waiting for its bytes.
fn begun(as_client: bool) -> Connection {
    if !as_client {
        return server();
    }
    let mut client = client();
    let head = crate::connect_ip::request("hub", "/vpn");
    client
        .send_request(StreamId(0), &head, None)
        .expect("settings have come");
    client
}

proptest! {
    #![proptest_config(crate::seeded())]

    #[test]
    fn a_request_stream_in_single_bytes_is_the_same_stream(
        bytes in any_stream_bytes(),
        as_client: bool,
        fin: bool,
    ) {
        let mut at_once = begun(as_client);
        at_once.handle_stream_data(StreamId(0), bytes.clone().into(), fin);
        let mut single = begun(as_client);
        for byte in &bytes {
            single.handle_stream_data(StreamId(0), Bytes::copy_from_slice(&[*byte]), false);
        }
        single.handle_stream_data(StreamId(0), Bytes::new(), fin);
        prop_assert_eq!(joined(single), joined(at_once));
    }

    #[test]
    fn a_control_stream_in_single_bytes_is_the_same_stream(
        bytes in any_stream_bytes(),
        settings: bool,
    ) {
        let begin: &[u8] = if settings { &SETTINGS } else { &[] };
        let bytes = control(&[begin, &bytes].concat());
        let mut at_once = server();
        at_once.handle_stream_data(StreamId(2), bytes.clone(), false);
        let mut single = server();
        for byte in &bytes {
            single.handle_stream_data(StreamId(2), Bytes::copy_from_slice(&[*byte]), false);
        }
        prop_assert_eq!(joined(single), joined(at_once));
    }

    #[test]
    fn no_peer_makes_us_hold_more_than_the_limit(
        calls in prop::collection::vec((0u64..300, any_hungry_bytes(), 0u8..12), 0..60),
        as_client: bool,
    ) {
        let mut connection = begun(as_client);
        for (stream, bytes, how) in calls {
            match how {
                0 => connection.handle_stream_reset(StreamId(stream), Code::H3_NO_ERROR),
                1 => connection.handle_stop_sending(StreamId(stream), Code::H3_NO_ERROR),
                _ => connection.handle_stream_data(StreamId(stream), bytes.into(), how == 2),
            }
            prop_assert!(connection.buffered() <= MAX_BUFFERED);
            prop_assert!(connection.exchanges.values().count() <= MAX_STREAMS);
        }
    }
}
