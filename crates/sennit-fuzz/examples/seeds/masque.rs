//! HTTP/3 as this project and as quic-go 0.65 with connect-ip-go 0.7 speak it.

use bytes::{Bytes, BytesMut};
use sennit_masque::capsule::{
    AssignedAddress, IpAddressRange, LinkInfo, LinkState, RequestedAddress,
};
use sennit_masque::qpack::{self, Field};
use sennit_masque::{
    Capsule, Connection, IpPrefix, Output, RequestHead, ResponseHead, StreamId, connect_ip,
    datagram, varint,
};

use crate::Seed;
use crate::script::Script;

pub(crate) fn all() -> Vec<Seed> {
    [
        named("masque_varint", varints()),
        named("masque_qpack", sections()),
        named("masque_datagram", datagrams()),
        named("masque_capsule", capsules()),
        named("masque_scope", scopes()),
        named("masque_server", server()),
        named("masque_client", client()),
    ]
    .concat()
}

type Input = (&'static str, Vec<u8>);

fn named(target: &'static str, inputs: Vec<Input>) -> Vec<Seed> {
    inputs
        .into_iter()
        .map(|(name, bytes)| (target, name, bytes))
        .collect()
}

fn varints() -> Vec<Input> {
    let mut every_size = Vec::new();
    for value in [
        0,
        63,
        64,
        16_383,
        16_384,
        (1 << 30) - 1,
        1 << 30,
        varint::MAX,
    ] {
        varint::put(&mut every_size, value);
    }
    vec![
        ("every-size", every_size),
        (
            "longer-than-needed",
            vec![0x40, 1, 0x80, 0, 0, 1, 0xc0, 0, 0, 0, 0, 0, 0, 1],
        ),
        ("cut", vec![0xc0, 0, 0]),
    ]
}

fn sections() -> Vec<Input> {
    let accepted = |section: &[u8]| Script::default().u16(0xffff).bytes(section).done();
    let huffman = "00005f1d0d02b8b8c1715c"; // a name from the table, a coded value
    vec![
        ("request", accepted(&qpack::encode(&request().to_lines()))),
        ("static", accepted(&[0, 0, 0xcf, 0xd7])),
        (
            "literal",
            accepted(&qpack::encode(&[Field::new("x-first", "some value")])),
        ),
        (
            "secret",
            accepted(&qpack::encode(&[Field::new("authorization", "Bearer x")])),
        ),
        (
            "binary",
            accepted(&qpack::encode(&[Field::new(vec![0xff; 40], vec![0; 300])])),
        ),
        ("quic-go", accepted(&hex(QUIC_GO_REQUEST)[3..])),
        ("huffman", accepted(&hex(huffman))),
        ("dynamic", accepted(&[1, 0, 0x80])),
        (
            "too-large",
            Script::default().u16(40).bytes(&[0, 0, 0xcf, 0xd7]).done(),
        ),
    ]
}

fn datagrams() -> Vec<Input> {
    let of = |stream, context, payload: &[u8]| {
        [
            &datagram::encode_prefix(StreamId(stream), context)[..],
            payload,
        ]
        .concat()
    };
    vec![
        ("packet", of(0, 0, &[0x45, 0])),
        ("numbered", of(4, 2, &[0; 12])),
        ("report", of(0, 4, &[0, 0, 0, 1, 1])),
        ("large-ids", of(varint::MAX / 4 * 4, varint::MAX, &[])),
        ("too-large", vec![0xff; 9]),
        ("no-context", vec![0]),
    ]
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().expect("a prefix")
}

fn link() -> Capsule {
    Capsule::Link(LinkInfo {
        path_id: 3,
        tier: 1,
        weight: 2,
        state: LinkState::Backup,
        name: "starlink".into(),
    })
}

fn assign() -> Capsule {
    let addresses = ["10.200.0.9/32", "fd5e:1::9/128"].map(prefix);
    Capsule::AddressAssign(addresses.map(AssignedAddress::unsolicited).into())
}

fn ask() -> Capsule {
    let ask = |(request_id, text)| RequestedAddress {
        request_id,
        prefix: prefix(text),
    };
    Capsule::AddressRequest([(1, "0.0.0.0/32"), (2, "fd00::/64")].map(ask).into())
}

fn routes() -> Capsule {
    let prefixes = ["10.9.0.0/16", "192.168.8.0/24", "2001:db8::/32"].map(prefix);
    Capsule::RouteAdvertisement(prefixes.map(|p| IpAddressRange::of_prefix(&p)).into())
}

fn wire(capsules: &[Capsule]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for capsule in capsules {
        capsule.encode(&mut out).expect("a legal capsule");
    }
    out.to_vec()
}

fn capsules() -> Vec<Input> {
    let pieces = |len: u8, stream: &[u8]| Script::default().bytes(&[len]).bytes(stream).done();
    let datagram = Capsule::Datagram(Bytes::from_static(&[0, 0x45, 0, 0, 20]));
    let unknown = [0x17, 3, 1, 2, 3];
    let newer_link = [
        &[0xab, 0x5e, 0x10, 0x01, 12][..],
        &[3, 1, 0, 2, 0, 3],
        b"ltelaterxyz",
    ];
    vec![
        ("assign", pieces(1, &wire(&[assign()]))),
        ("request", pieces(3, &wire(&[ask()]))),
        ("routes", pieces(7, &wire(&[routes()]))),
        ("link", pieces(5, &wire(&[link()]))),
        ("newer-link", pieces(5, &newer_link.concat())),
        ("datagram", pieces(2, &wire(&[datagram.clone(), datagram]))),
        (
            "unknown",
            pieces(4, &[&unknown[..], &wire(&[assign()])].concat()),
        ),
        (
            "all",
            pieces(11, &wire(&[assign(), routes(), ask(), link()])),
        ),
        ("cut", pieces(9, &wire(&[routes()])[..20])),
        ("huge", pieces(9, &[1, 0xc0, 0, 0, 1, 0, 0, 0, 0])),
        (
            "overlap",
            pieces(
                9,
                &[
                    3, 20, 4, 1, 0, 0, 0, 1, 0, 0, 9, 0, 4, 1, 0, 0, 5, 1, 0, 0, 7, 0,
                ],
            ),
        ),
    ]
}

fn scopes() -> Vec<Input> {
    let of = |text: &str| text.as_bytes().to_vec();
    vec![
        ("any", of("*/*/")),
        ("v4", of("192.0.2.0%2F24/17/")),
        ("v6", of("2001%3Adb8%3A%3A%2F32/58/")),
        ("host", of("target.example.com/*/")),
        ("absolute-host", of("a.example./1")),
        ("full-path", of("/.well-known/masque/ip/*/*/")),
        ("bad-percent", of("%4/*/")),
        ("bad-utf8", of("%ff/*/")),
        ("prefix", of("10.9.0.0/16")),
    ]
}

fn request() -> RequestHead {
    let mut head = connect_ip::request("hub.sennit", &connect_ip::Scope::ANY.path());
    head.fields
        .push("sennit", "1;class=bulk;index=1;policy=bond;delivery=repair");
    head
}

/// What each side puts on its control stream first.
pub(crate) fn control(mut connection: Connection) -> Vec<u8> {
    match connection.poll_output() {
        Some(Output::Control(bytes)) => bytes.to_vec(),
        other => panic!("begins with SETTINGS: {other:?}"),
    }
}

/// Bytes of a request stream that opens a tunnel.
pub(crate) fn tunnel() -> Vec<u8> {
    headers(&request().to_lines())
}

/// Bytes of a response that grants one.
pub(crate) fn granted() -> Vec<u8> {
    let mut head = ResponseHead::new(200);
    head.fields = connect_ip::response_fields();
    head.fields.push("sennit", "1");
    headers(&head.to_lines())
}

pub(crate) fn post(body: &[u8]) -> Vec<u8> {
    let head = RequestHead::new("POST", "hub.sennit", "/.well-known/sennit/enroll");
    [headers(&head.to_lines()), data(body)].concat()
}

pub(crate) fn headers(lines: &[Field]) -> Vec<u8> {
    frame(1, &qpack::encode(lines))
}

pub(crate) fn data(payload: &[u8]) -> Vec<u8> {
    frame(0, payload)
}

/// All capsules that an edge sends.
pub(crate) fn edge_capsules() -> Vec<u8> {
    data(&wire(&[routes(), ask(), link()]))
}

/// All capsules that a hub sends.
pub(crate) fn hub_capsules() -> Vec<u8> {
    data(&wire(&[assign(), routes()]))
}

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, kind);
    varint::put(&mut out, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

/// Steps of an HTTP/3 connection.
#[derive(Default)]
struct Steps(Script);

impl Steps {
    fn data(self, stream: u8, bytes: &[u8]) -> Self {
        Self(self.0.bytes(&[0, stream]).block(bytes))
    }

    fn fin(self, stream: u8, bytes: &[u8]) -> Self {
        Self(self.0.bytes(&[5, stream]).block(bytes))
    }

    fn reset(self, stream: u8) -> Self {
        Self(self.0.bytes(&[7, stream]).u16(0x10c))
    }

    fn stop(self, stream: u8) -> Self {
        Self(self.0.bytes(&[8, stream]).u16(0x10c))
    }

    fn ours(self, action: u8, stream: u8, number: u16) -> Self {
        Self(self.0.bytes(&[action, stream]).u16(number))
    }

    fn done(self) -> Vec<u8> {
        self.0.done()
    }
}

const GRANT: u8 = 9;
const RESPOND: u8 = 10;
const ASK_TUNNEL: u8 = 9;
const POST: u8 = 10;
const SEND: u8 = 11;
const SEND_CAPSULE: u8 = 12;
const FINISH: u8 = 13;
const ABORT: u8 = 14;
const GOAWAY: u8 = 15;

fn server() -> Vec<Input> {
    let settings = || Steps::default().data(2, &control(Connection::client()));
    let open = || settings().data(0, &tunnel()).ours(GRANT, 0, 0);
    let trailers = headers(&[Field::new("x-trailer", "1")]);
    let inputs = [
        (
            "tunnel",
            open().ours(SEND_CAPSULE, 0, 0).data(0, &edge_capsules()),
        ),
        (
            "tunnel-ends",
            open().fin(0, &edge_capsules()).ours(FINISH, 0, 0),
        ),
        ("tunnel-reset", open().reset(0).ours(SEND, 0, 10)),
        ("tunnel-stopped", open().stop(0).data(0, &edge_capsules())),
        (
            "tunnel-refused",
            settings().data(0, &tunnel()).ours(RESPOND, 0, 403),
        ),
        (
            "tunnel-aborted",
            open().ours(ABORT, 0, 9).data(0, &edge_capsules()),
        ),
        ("bad-capsule", open().data(0, &data(&[2, 0]))),
        (
            "post",
            settings()
                .fin(0, &post(b"token"))
                .ours(RESPOND, 0, 201)
                .ours(SEND, 0, 51),
        ),
        (
            "post-trailers",
            settings().fin(0, &[post(b"token"), trailers].concat()),
        ),
        (
            "post-two-heads",
            settings().fin(0, &[post(b""), post(b"")].concat()),
        ),
        (
            "two-requests",
            open()
                .data(4, &tunnel())
                .fin(8, &post(b"x"))
                .ours(RESPOND, 4, 429),
        ),
        ("quic-go", quic_go_client()),
        (
            "grease",
            settings()
                .data(6, &[0x21, 1, 2])
                .data(0, &[0x21, 2, 0, 0])
                .data(0, &tunnel()),
        ),
        (
            "qpack-streams",
            settings().data(6, &[2, 0x20]).data(10, &[3, 0x44]),
        ),
        ("qpack-insert", settings().data(6, &[2, 0x40, 1, 1])),
        (
            "two-controls",
            settings().data(6, &control(Connection::client())),
        ),
        ("control-closed", settings().fin(2, &[])),
        ("push", settings().data(6, &[1])),
        ("max-push-id", settings().data(2, &[0x0d, 1, 5, 0x0d, 1, 4])),
        ("no-settings", Steps::default().data(2, &[0, 7, 1, 0])),
        (
            "goaway",
            open()
                .ours(GOAWAY, 0, 8)
                .data(4, &tunnel())
                .data(0, &edge_capsules()),
        ),
        ("head-too-large", settings().data(0, &[1, 0x80, 0, 0x50, 0])),
        ("cut", settings().fin(0, &tunnel()[..9])),
        ("http2-frame", settings().data(0, &[6, 0])),
        (
            "interim",
            settings()
                .data(0, &post(b""))
                .ours(RESPOND, 0, 103)
                .ours(RESPOND, 0, 204),
        ),
    ];
    inputs
        .into_iter()
        .map(|(name, steps)| (name, steps.done()))
        .collect()
}

fn client() -> Vec<Input> {
    let settings = || Steps::default().data(3, &control(Connection::server()));
    let open = || settings().ours(ASK_TUNNEL, 0, 0).data(0, &granted());
    let refused = headers(&ResponseHead::new(403).to_lines());
    let interim = headers(&ResponseHead::new(103).to_lines());
    let answer = [
        headers(&ResponseHead::new(200).to_lines()),
        data(b"certificate"),
    ]
    .concat();
    let inputs = [
        (
            "tunnel",
            open().data(0, &hub_capsules()).ours(SEND_CAPSULE, 0, 1),
        ),
        (
            "tunnel-ends",
            open().fin(0, &hub_capsules()).ours(FINISH, 0, 0),
        ),
        ("tunnel-reset", open().reset(0)),
        (
            "tunnel-refused",
            settings().ours(ASK_TUNNEL, 0, 0).fin(0, &refused).stop(0),
        ),
        ("tunnel-too-early", Steps::default().ours(ASK_TUNNEL, 0, 0)),
        ("post", Steps::default().ours(POST, 0, 0).fin(0, &answer)),
        (
            "post-interim",
            Steps::default()
                .ours(POST, 0, 0)
                .fin(0, &[interim, answer].concat()),
        ),
        ("goaway", open().ours(ASK_TUNNEL, 4, 0).data(3, &[7, 1, 4])),
        ("goaway-grows", open().data(3, &[7, 1, 4, 7, 1, 8])),
        ("server-bidi", settings().data(1, &[0])),
        ("push", open().data(0, &[5, 1, 0])),
        ("bad-capsule", open().data(0, &data(&[1, 2, 0, 9]))),
        ("quic-go", quic_go_proxy()),
    ];
    inputs
        .into_iter()
        .map(|(name, steps)| (name, steps.done()))
        .collect()
}

const QUIC_GO_CONTROL: &str = "0004070680a000003301";
const QUIC_GO_REQUEST: &str = "01405d0000508b089d5c0b8170dc6c2d85dfcf5195617f05a285bad47f153148d1dad2\
    b06ad8f963e58fd72f00b95d8749c87a3f8721eaa8a44ac6af2f0420eb45b4156aec3a4e43d182ff035f10839bd9ab\
    5f508bed6988b4c7531efdfad867";
const QUIC_GO_ASKS: &str = "001c021a010400000000200206fd00000000000000000000000000000040";
const QUIC_GO_ROUTES: &str = "000c030a04c0a80800c0a808ff000012a74c0fbc0d600064ff9b0000000000000000";
const PROXY_CONTROL: &str = "000409068010000033010801";
const PROXY_GRANT: &str = "012b0000d92f0420eb45b4156aec3a4e43d182ff035696dc34fd2820a9a4fdd41004e282\
    0dc13d700ea98b46ff0009010700040ac8000920000c030a0400000000ffffffff00";

fn quic_go_client() -> Steps {
    let steps = Steps::default().data(2, &hex(QUIC_GO_CONTROL));
    let steps = steps.data(0, &hex(QUIC_GO_REQUEST)).ours(GRANT, 0, 0);
    steps
        .data(0, &hex(QUIC_GO_ASKS))
        .data(0, &hex(QUIC_GO_ROUTES))
}

fn quic_go_proxy() -> Steps {
    let steps = Steps::default().data(3, &hex(PROXY_CONTROL));
    steps
        .ours(ASK_TUNNEL, 0, 0)
        .data(0, &hex(PROXY_GRANT))
        .data(3, &hex("070108"))
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hex")
    };
    digits.chunks(2).map(byte).collect()
}
