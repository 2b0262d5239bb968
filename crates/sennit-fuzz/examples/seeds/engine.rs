//! Attacks from outside and from inside, and the shapes of those that once succeeded.

use std::time::Duration;

use sennit_core::frame::{CONTEXT_IP, CONTEXT_NUMBERED, CONTEXT_PARTIAL, CONTEXT_REPORT, Header};
use sennit_masque::{Connection, StreamId, datagram, varint};
use sennit_sim::{EDGE, SERVER, udp};

use crate::Seed;
use crate::masque::{control, data, edge_capsules, granted, headers, hub_capsules, post, tunnel};
use crate::script::Script;

pub(crate) fn all() -> Vec<Seed> {
    let named = |target, inputs: Vec<(&'static str, Vec<u8>)>| {
        let seed = |(name, bytes)| (target, name, bytes);
        inputs.into_iter().map(seed).collect::<Vec<Seed>>()
    };
    [
        named("engine_hub", outside(1)),
        named("engine_edge", outside(2)),
        named("engine_hub_peer", client()),
        named("engine_edge_peer", server()),
    ]
    .concat()
}

/// Fates of packets, and what strangers send.
fn outside(crypto_offset: u8) -> Vec<(&'static str, Vec<u8>)> {
    const STRANGER: u8 = 0;
    const HONEST: u8 = 0x10;
    let [raw, padded, sealed, replayed] = [1, 2, 3, 5];
    let links = |more: u8| Script::default().bytes(&[more]);
    // Per round at most a handful of packets wait for their fate; zero delivers.
    let quiet = [0; 4];
    let initial = |frames: &[u8]| {
        let ids = if crypto_offset == 1 { &[7][..] } else { &[] };
        Script::default()
            .bytes(ids)
            .bytes(&[0])
            .block(&[])
            .block(frames)
            .done()
    };
    let ping = initial(&[1]);
    let close = initial(&[0x1c, 0x0a, 0, 0]);
    let crypto = initial(&[6, 0, 4, 1, 0, 0, 0]);
    let ack = initial(&[2, 9, 0, 0, 0]);
    let unknown = initial(&[0x40, 0xff, 1, 2]);
    let inject = |kind: u8, what: &[u8]| {
        links(0)
            .bytes(&quiet)
            .bytes(&[kind])
            .bytes(what)
            .bytes(&quiet)
            .bytes(&[kind])
            .bytes(what)
            .done()
    };
    let block = |bytes: &[u8]| Script::default().block(bytes).done();
    let version = block(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 4, 1, 2, 3, 4, 4, 5, 6, 7, 8]);
    let negotiation = block(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    let retry = block(&[0xf0, 0, 0, 0, 1, 4, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9, 9, 9]);
    let short = block(&[0x40; 60]);
    vec![
        ("peace", links(0).done()),
        ("two-links", links(1).done()),
        ("lost", links(0).bytes(&[3; 30]).done()),
        ("doubled", links(1).bytes(&[4, 4, 4, 4, 0].repeat(8)).done()),
        (
            "damaged",
            links(0).bytes(&[5, 0, 40, 1, 0].repeat(9)).done(),
        ),
        (
            "damaged-and-whole",
            links(1)
                .bytes(&[6, 0, 9, 0x80, 6, 4, 0, 1, 0].repeat(5))
                .done(),
        ),
        ("cut", links(0).bytes(&[7, 0, 30, 0].repeat(9)).done()),
        ("garbage", inject(raw | STRANGER, &block(&[0x17; 100]))),
        ("short-header", inject(raw | HONEST, &short)),
        ("version", inject(padded | STRANGER, &version)),
        ("negotiation", inject(raw | HONEST, &negotiation)),
        ("retry", inject(raw | HONEST, &retry)),
        ("initial-ping", inject(sealed | STRANGER, &ping)),
        ("initial-close", inject(sealed | HONEST, &close)),
        ("initial-crypto", inject(sealed | STRANGER, &crypto)),
        ("initial-ack", inject(sealed | HONEST, &ack)),
        ("initial-unknown-frame", inject(sealed | HONEST, &unknown)),
        ("replay", inject(replayed | STRANGER, &[0, 0, 0, 0])),
        (
            "replay-damaged",
            inject(replayed | HONEST, &[1, 0, 6, 0xff]),
        ),
    ]
}

/// What a peer does on its connection.
#[derive(Default)]
struct Steps(Script);

/// A stream that the other end opened.
const THEIRS: u8 = 0x80;

impl Steps {
    fn open_bidi(self) -> Self {
        Self(self.0.bytes(&[0]))
    }

    fn open_uni(self) -> Self {
        Self(self.0.bytes(&[1]))
    }

    fn write(self, stream: u8, bytes: &[u8]) -> Self {
        Self(self.0.bytes(&[2, stream]).block(bytes))
    }

    fn finish(self, stream: u8) -> Self {
        Self(self.0.bytes(&[6, stream]))
    }

    fn reset(self, stream: u8) -> Self {
        Self(self.0.bytes(&[7, stream]).u16(0x10c))
    }

    fn stop(self, stream: u8) -> Self {
        Self(self.0.bytes(&[8, stream]).u16(0x10c))
    }

    fn datagram(self, context: u64, payload: &[u8]) -> Self {
        let prefix = datagram::encode_prefix(StreamId(0), context);
        self.raw_datagram(&[&prefix[..], payload].concat())
    }

    fn raw_datagram(self, bytes: &[u8]) -> Self {
        Self(self.0.bytes(&[10]).block(bytes))
    }

    fn open_path(self) -> Self {
        Self(self.0.bytes(&[12, 1]))
    }

    fn open_paths(self) -> Self {
        (1..16).fold(self, |steps, link| Self(steps.0.bytes(&[12, link])))
    }

    /// Every second packet on each path is lost.
    fn gaps(self, count: usize) -> Self {
        (0..count).fold(self, |steps, _| Self(steps.0.bytes(&[9, 16, 11, 11])))
    }

    fn close_path(self, path: u8) -> Self {
        Self(self.0.bytes(&[13, path]))
    }

    fn close(self) -> Self {
        Self(self.0.bytes(&[15]).u16(0x100).block(b"bye"))
    }

    /// A step of the other end's owner.
    fn owner(self, step: u8) -> Self {
        Self(self.0.bytes(&[0x80 | step]))
    }

    fn done(self) -> Vec<u8> {
        self.0.done()
    }
}

const GRANT: u8 = 0;
const REFUSE: u8 = 3;
const REPLY: u8 = 4;
const EXPEL: u8 = 5;
const PROBE: u8 = 7;

fn numbered(seq: u32, packet: &[u8]) -> Vec<u8> {
    let header = Header {
        flow: 1,
        ordered: seq.is_multiple_of(2),
        early: Duration::ZERO,
        seq,
        sent_micros: 0,
    };
    [&header.encode()[..], packet].concat()
}

fn client() -> Vec<(&'static str, Vec<u8>)> {
    let settings = || {
        Steps::default()
            .open_uni()
            .write(0, &control(Connection::client()))
    };
    let ask = || settings().open_bidi().write(1, &tunnel());
    let up = || ask().owner(GRANT);
    let packet = udp(EDGE, SERVER, 7, 1, 100);
    let spoofed = udp(SERVER, EDGE, 7, 1, 100);
    let lan = udp([192, 168, 8, 1].into(), SERVER, 7, 1, 100);
    let report = [0, 0, 0, 0, 0, 0, 0, 0, 0];
    let capsule_packet = data(&[&[0, 101, 0][..], &packet].concat());
    let inputs = vec![
        ("silent", Steps::default()),
        ("settings", settings()),
        ("tunnel", up().datagram(CONTEXT_IP, &packet).owner(PROBE)),
        (
            "numbered",
            up().datagram(CONTEXT_NUMBERED, &numbered(1, &packet))
                .owner(PROBE),
        ),
        (
            "partial",
            up().datagram(CONTEXT_PARTIAL, &numbered(1, &packet))
                .datagram(CONTEXT_PARTIAL, &numbered(2, &packet[..20]))
                .owner(PROBE),
        ),
        (
            "twice",
            up().datagram(2, &numbered(1, &packet))
                .datagram(2, &numbered(1, &packet)),
        ),
        (
            "report",
            up().datagram(CONTEXT_REPORT, &report).owner(PROBE),
        ),
        ("spoofed", up().datagram(CONTEXT_IP, &spoofed)),
        (
            "not-ip",
            up().datagram(CONTEXT_IP, b"hello")
                .datagram(CONTEXT_IP, &[]),
        ),
        (
            "lan",
            up().write(1, &edge_capsules()).datagram(CONTEXT_IP, &lan),
        ),
        ("packet-in-capsule", up().write(1, &capsule_packet)),
        ("unknown-context", up().datagram(99, &packet)),
        ("datagram-without-stream", up().raw_datagram(&[0xff])),
        ("tunnel-ends", up().finish(1).owner(PROBE)),
        ("tunnel-reset", up().reset(1).owner(PROBE)),
        ("tunnel-stopped", up().stop(1).owner(PROBE)),
        ("tunnel-closed", up().close().owner(PROBE)),
        ("expelled", up().owner(EXPEL).owner(PROBE)),
        (
            "refused",
            ask()
                .owner(REFUSE)
                .open_bidi()
                .write(2, &tunnel())
                .owner(GRANT),
        ),
        (
            "second-request-ends",
            up().open_bidi()
                .write(2, &post(b"x"))
                .finish(2)
                .owner(PROBE),
        ),
        (
            "second-request-reset",
            up().open_bidi().write(2, &tunnel()).reset(2).owner(PROBE),
        ),
        (
            "other-stream-ends-before-grant",
            ask().open_bidi().finish(2).owner(GRANT).owner(PROBE),
        ),
        ("asked-and-left", ask().reset(1).owner(GRANT).owner(PROBE)),
        (
            "late-grant",
            ask()
                .reset(1)
                .open_bidi()
                .write(2, &tunnel())
                .owner(GRANT)
                .owner(GRANT),
        ),
        (
            "enrols",
            settings()
                .open_bidi()
                .write(1, &post(b"{}"))
                .finish(1)
                .owner(REPLY),
        ),
        (
            "enrols-at-length",
            settings()
                .open_bidi()
                .write(1, &post(&[7; 1500]))
                .write(1, &data(&[7; 300])),
        ),
        ("control-stopped", settings().stop(THEIRS)),
        ("control-ends", settings().finish(0)),
        ("bad-capsule", up().write(1, &data(&[2, 0])).owner(PROBE)),
        (
            "bad-qpack",
            settings().open_bidi().write(1, &[1, 3, 0, 0, 0x80]),
        ),
        ("empty-request", Steps::default().open_bidi().finish(0)),
        (
            "paths",
            up().open_path().owner(PROBE).close_path(0).owner(PROBE),
        ),
        ("gaps", up().open_paths().gaps(70)),
        ("gaps-of-a-stranger", settings().open_paths().gaps(70)),
        ("last-path", up().close_path(0).owner(PROBE)),
        (
            "plain",
            settings()
                .open_bidi()
                .write(1, &plain_tunnel())
                .owner(GRANT)
                .datagram(0, &packet),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, steps)| (name, steps.done()))
        .collect()
}

/// A request of a client that is no Sennit.
fn plain_tunnel() -> Vec<u8> {
    let path = sennit_masque::connect_ip::Scope::ANY.path();
    headers(&sennit_masque::connect_ip::request("hub.sennit", &path).to_lines())
}

fn server() -> Vec<(&'static str, Vec<u8>)> {
    const SEND: u8 = 0;
    const LINK_UP: u8 = 2;
    let tunnels = || Steps(Script::default().bytes(&[0]));
    let enrols = || Steps(Script::default().bytes(&[3]));
    let settings = |steps: Steps| steps.open_uni().write(0, &control(Connection::server()));
    // The edge opens its control stream, then its request.
    let request = THEIRS | 1;
    let up = || {
        settings(tunnels())
            .write(request, &granted())
            .write(request, &hub_capsules())
    };
    let packet = udp(SERVER, EDGE, 7, 1, 100);
    let mut goaway = Vec::new();
    for value in [7, 1, 0_u64] {
        varint::put(&mut goaway, value);
    }
    let refused = headers(&sennit_masque::ResponseHead::new(403).to_lines());
    let certificate = headers(&sennit_masque::ResponseHead::new(200).to_lines());
    let inputs = vec![
        ("silent", tunnels()),
        ("settings", settings(tunnels())),
        ("tunnel", up().datagram(CONTEXT_IP, &packet).owner(SEND)),
        (
            "numbered",
            up().datagram(CONTEXT_NUMBERED, &numbered(1, &packet))
                .owner(SEND),
        ),
        (
            "report",
            up().datagram(CONTEXT_REPORT, &[0, 0, 0, 0, 0]).owner(SEND),
        ),
        (
            "not-ip",
            up().datagram(CONTEXT_IP, b"hello")
                .datagram(CONTEXT_IP, &[]),
        ),
        ("datagram-without-stream", up().raw_datagram(&[0xff])),
        ("more-links", up().owner(LINK_UP).owner(SEND)),
        (
            "refused",
            settings(tunnels()).write(request, &refused).finish(request),
        ),
        ("tunnel-ends", up().finish(request)),
        ("tunnel-reset", up().reset(request)),
        ("goaway", up().write(0, &goaway)),
        ("control-stopped", tunnels().stop(THEIRS)),
        ("control-ends", settings(tunnels()).finish(0)),
        ("push", up().open_uni().write(1, &[1, 0])),
        (
            "server-bidi",
            settings(tunnels()).open_bidi().write(1, &[0]),
        ),
        ("bad-capsule", up().write(request, &data(&[1, 1, 0]))),
        ("closed", up().close()),
        (
            "enrolled",
            settings(enrols())
                .write(request, &[certificate, data(b"{}")].concat())
                .finish(request),
        ),
        (
            "enrolment-refused",
            settings(enrols()).write(request, &refused).finish(request),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, steps)| (name, steps.done()))
        .collect()
}
