use std::time::{Duration, Instant};

use sennit_core::frame::PathReport;

use super::*;

const STREAM: StreamId = StreamId(4);

fn sennit(abilities: Abilities) -> Codec {
    Codec::new(STREAM, Peer::Sennit(abilities))
}

fn header() -> Header {
    Header {
        flow: 3,
        ordered: true,
        early: Duration::from_millis(4),
        seq: 7,
        sent_micros: 1000,
    }
}

fn queued(packet: &[u8]) -> BytesMut {
    let mut buffer = BytesMut::zeroed(HEADROOM);
    buffer.extend_from_slice(packet);
    buffer
}

fn decoded(codec: &mut Codec, datagram: Bytes) -> Option<Inbound> {
    let (stream, context, payload) = split(datagram).ok()?;
    assert!(codec.is_of(stream));
    codec.decode(context, payload, None, Instant::now())
}

#[test]
fn packets_survive_the_wire_with_what_was_agreed() {
    let mut codec = sennit(Abilities::OURS);
    for checksum in [Progress::Whole, Progress::Partial] {
        let datagram = codec.encode(queued(b"packet"), checksum, &header());
        assert_eq!(datagram.len(), codec.overhead() + 6);
        let Some(Inbound::Numbered(head, packet)) = decoded(&mut codec, datagram) else {
            panic!("a numbered packet");
        };
        assert_eq!((head, packet.checksum), (header(), checksum));
        assert_eq!(&packet.bytes[..], b"packet");
    }
}

#[test]
fn a_peer_that_is_no_sennit_gets_and_sends_bare_packets() {
    let mut codec = Codec::new(STREAM, Peer::Standard);
    let datagram = codec.encode(queued(b"packet"), Progress::Whole, &header());
    assert_eq!(&datagram[..], b"\x01\x00packet");
    let Some(Inbound::Bare(packet)) = decoded(&mut codec, datagram) else {
        panic!("a bare packet");
    };
    assert_eq!(&packet.bytes[..], b"packet");
    for context in [
        CONTEXT_NUMBERED,
        CONTEXT_REPORT,
        CONTEXT_PADDING,
        CONTEXT_ITEMS,
    ] {
        assert!(
            codec
                .decode(context, Bytes::from_static(&[0; 32]), None, Instant::now())
                .is_none()
        );
    }
}

#[test]
fn halves_have_the_header_of_their_packet() {
    let mut codec = sennit(Abilities::OURS);
    let datagram = codec.encode(queued(b"packets"), Progress::Partial, &header());
    let halves = codec.halve(&datagram, 40, &mut BytesMut::new()).unwrap();
    let found = halves.map(|half| {
        assert_eq!(half.len(), 40);
        match decoded(&mut codec, half) {
            Some(Inbound::Half(head, half, bytes)) => {
                assert_eq!(head, header());
                assert!(half.partial);
                (half.last, bytes)
            }
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(found[0], (false, Bytes::from_static(b"pack")));
    assert_eq!(found[1], (true, Bytes::from_static(b"ets")));
    assert!(
        codec
            .halve(&codec.padding(40), 40, &mut BytesMut::new())
            .is_none()
    );
}

#[test]
fn reports_take_the_form_that_the_peer_knows_and_either_is_understood() {
    let report = Report {
        sent_micros: 5,
        paths: vec![PathReport {
            path: 2,
            heard: true,
            shrunk: false,
            away: None,
            spacing: Duration::ZERO,
        }],
        ..Report::default()
    };
    let mut new = sennit(Abilities::OURS);
    let old = sennit(Abilities {
        items: false,
        ..Abilities::OURS
    });
    let sent = [new.report(&report), old.report(&report)];
    assert_ne!(sent[0], sent[1]);
    for datagram in sent {
        let Some(Inbound::Report(heard)) = decoded(&mut new, datagram) else {
            panic!("a report");
        };
        assert_eq!(heard, report);
    }
}

#[test]
fn what_is_sent_again_has_another_time_and_is_otherwise_the_same() {
    let mut codec = sennit(Abilities::OURS);
    let datagram = codec.encode(queued(b"packet"), Progress::Whole, &header());
    let again = codec.redate(&datagram, 2000);
    let Some(Inbound::Numbered(head, packet)) = decoded(&mut codec, again) else {
        panic!("a numbered packet");
    };
    let expected = Header {
        early: Duration::ZERO,
        sent_micros: 2000,
        ..header()
    };
    assert_eq!((head, &packet.bytes[..]), (expected, &b"packet"[..]));
}

#[test]
fn abilities_are_said_and_understood() {
    let mut heard = Abilities::default();
    let said = Abilities::OURS.encode();
    for parameter in said.split(';').skip(1) {
        heard.learn(parameter.split_once('=').unwrap());
    }
    assert_eq!(heard, Abilities::OURS);
    let mut none = Abilities::default();
    none.learn(("checksums", "none"));
    none.learn(("later", "joined"));
    assert_eq!(none, Abilities::default());
    assert_eq!(none.encode(), "");
}

fn source() -> SourceHeader {
    SourceHeader {
        id: 77,
        partial: true,
        header: Header {
            sent_micros: 64 * 1000,
            ..header()
        },
    }
}

#[test]
fn a_source_is_as_long_as_any_packet_and_goes_again_as_one_of_them() {
    let mut codec = sennit(Abilities::OURS);
    let datagram = codec.encode_source(queued(b"packet"), &source());
    assert_eq!(datagram.len(), codec.overhead() + 6);
    assert_eq!(codec.source_id(&datagram), Some(77));
    let again = codec.redate(&datagram, 9000);
    assert_eq!(codec.source_id(&again), None);
    let Some(Inbound::Numbered(head, packet)) = decoded(&mut codec, again) else {
        panic!("a numbered packet");
    };
    assert_eq!((head.seq, head.sent_micros), (7, 9000));
    assert_eq!(packet.checksum, Progress::Partial);
    let Some(Inbound::Source(found, bytes)) = decoded(&mut codec, datagram) else {
        panic!("a source");
    };
    assert_eq!((found, &bytes[..]), (source(), &b"packet"[..]));
}

#[test]
fn repairs_and_tidings_are_told_apart_and_bad_ones_refused() {
    let mut codec = sennit(Abilities::OURS);
    let tidings = Tidings {
        recovered: 3,
        back: vec![5],
        ..Tidings::default()
    };
    let sent = codec.tidings(&tidings);
    let Some(Inbound::Tidings(found)) = decoded(&mut codec, sent) else {
        panic!("tidings");
    };
    assert_eq!(found, tidings);
    let mut encoder = sennit_fec::Encoder::new("xor:1+1".parse().unwrap());
    encoder.push(b"head", b"body", std::time::Instant::now());
    let (repair, symbol) = encoder.poll_repair().unwrap();
    let sent = codec.repair(&repair, symbol);
    let Some(Inbound::Repair(found, bytes)) = decoded(&mut codec, sent) else {
        panic!("a repair");
    };
    assert_eq!((found, &bytes[..]), (repair, &b"headbody"[..]));
    for bad in [&[][..], &[0xff; 5], &[9, 0, 0, 1, 1], &[0, 0, 0, 0, 1]] {
        let payload = Bytes::copy_from_slice(bad);
        assert!(
            codec
                .decode(CONTEXT_REPAIR, payload, None, Instant::now())
                .is_none()
        );
    }
}

/// Who does not take repairs makes none, so they would be worked on for nobody.
#[test]
fn repairs_and_what_they_protect_are_refused_where_nobody_agreed_on_them() {
    let mut codec = sennit(Abilities {
        repairs: false,
        ..Abilities::OURS
    });
    let sum = [0, 0, 1, 1, 9];
    let sent = [
        (CONTEXT_SOURCE, Bytes::copy_from_slice(&[0; 32])),
        (CONTEXT_REPAIR, Bytes::copy_from_slice(&sum)),
    ];
    for (context, payload) in sent {
        let decode =
            |codec: &mut Codec| codec.decode(context, payload.clone(), None, Instant::now());
        assert!(decode(&mut codec).is_none(), "{context}");
        assert!(decode(&mut sennit(Abilities::OURS)).is_some(), "{context}");
    }
}
