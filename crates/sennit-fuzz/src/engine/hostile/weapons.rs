//! What a client that was let in can do to a hub.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use noq_proto::{Connection, Dir, FourTuple, PathStatus, StreamId, VarInt};
use sennit_masque::capsule::{IpAddressRange, RequestedAddress};
use sennit_masque::{
    Capsule, Connection as Http, IpPrefix, Output, Settings, StreamId as HttpStream, connect_ip,
    varint,
};

use super::super::scene::HUB;
use super::tap::Frames;

/// What is done to the connection each millisecond.
pub(super) type Acts = Box<dyn FnMut(&mut Connection, StreamId, Instant)>;

/// Something to do again and again.
pub(super) enum Weapon {
    /// Frames that take the place of datagrams.
    Frames(Frames),
    Acts(Acts),
    /// Bytes that follow each other on the stream of the tunnel.
    Said(Vec<u8>),
    /// Bytes that follow each other on the control stream.
    Controlled(Vec<u8>),
    /// Each packet comes from another port.
    Roams,
    /// It opens as many paths as it is allowed, and for a minute the hub hears of none.
    Hoards,
    /// It opens as many paths as it is allowed, and from the third second on every other packet of
    /// it is lost, and whatever the hub sends.
    Gaps,
    /// What it sends is of no use, and not forbidden.
    Nothing,
}

/// All of them by name; the first is what the others are compared with.
pub(super) fn all() -> Vec<(&'static str, Weapon)> {
    let mut all = vec![("datagrams of nothing", Weapon::Nothing)];
    all.extend(stream_frames());
    all.extend(id_frames());
    all.extend(path_frames());
    all.extend(other_frames());
    all.extend(http());
    all.extend(acts());
    all.push(("another port for each packet", Weapon::Roams));
    all.push(("paths that the hub hears of late", Weapon::Hoards));
    all.push(("gaps on all paths", Weapon::Gaps));
    all
}

/// Frames made of numbers, of which `n` counts.
fn counted(numbers: impl Fn(u64) -> Vec<u64> + Send + 'static, tail: &'static [u8]) -> Weapon {
    let mut n = 0;
    Weapon::Frames(Arc::new(Mutex::new(move || {
        let mut frame = Vec::new();
        for number in numbers(n) {
            varint::put(&mut frame, number);
        }
        frame.extend_from_slice(tail);
        n += 1;
        frame
    })))
}

/// Of streams and flow control.
fn stream_frames() -> Vec<(&'static str, Weapon)> {
    vec![
        (
            "STOP_SENDING of the control stream",
            counted(|_| vec![0x05, 3, 0], &[]),
        ),
        (
            "STOP_SENDING of the tunnel's stream",
            counted(|_| vec![0x05, 0, 0], &[]),
        ),
        (
            "CRYPTO far ahead",
            counted(|n| vec![0x06, 100 + 2 * n, 1], &[0]),
        ),
        (
            "STREAM with gaps",
            counted(|n| vec![0x0e, 2, 1000 + 2 * n, 1], &[0]),
        ),
        (
            "STREAM without bytes",
            counted(|_| vec![0x0e, 2, 20, 0], &[]),
        ),
        ("MAX_DATA", counted(|n| vec![0x10, (1 << 30) + n], &[])),
        (
            "MAX_STREAM_DATA",
            counted(|n| vec![0x11, 0, (1 << 30) + n], &[]),
        ),
        ("MAX_STREAMS", counted(|n| vec![0x12, 100 + n], &[])),
        ("DATA_BLOCKED", counted(|n| vec![0x14, n], &[])),
        ("STREAM_DATA_BLOCKED", counted(|n| vec![0x15, 0, n], &[])),
        ("STREAMS_BLOCKED", counted(|n| vec![0x16, n], &[])),
    ]
}

/// Of paths.
fn path_frames() -> Vec<(&'static str, Weapon)> {
    vec![
        ("PATH_CHALLENGE", counted(|_| vec![0x1a], &[7; 8])),
        ("PATH_RESPONSE", counted(|_| vec![0x1b], &[7; 8])),
        (
            "PATH_ABANDON of no path",
            counted(|n| vec![0x3e75, 1 + n % 15, 0], &[]),
        ),
        ("PATH_STATUS", counted(|n| vec![0x3e77, 0, 10 + n], &[])),
        (
            "PATH_STATUS of no path",
            counted(|n| vec![0x3e76, n % 1000, n], &[]),
        ),
        ("MAX_PATH_ID", counted(|n| vec![0x3e7a, 15 + n], &[])),
        ("PATHS_BLOCKED", counted(|_| vec![0x3e7b, 1], &[])),
        ("PATH_CIDS_BLOCKED", counted(|_| vec![0x3e7c, 0, 0], &[])),
    ]
}

/// Of acknowledgements and all else.
fn other_frames() -> Vec<(&'static str, Weapon)> {
    vec![
        ("PING", counted(|_| vec![0x01], &[])),
        (
            "ACK of the first packet",
            counted(|_| vec![0x02, 0, 0, 0, 0], &[]),
        ),
        (
            "PATH_ACK of the first packet",
            counted(|_| vec![0x3e, 0, 0, 0, 0, 0], &[]),
        ),
        ("IMMEDIATE_ACK", counted(|_| vec![0x1f], &[])),
        (
            "ACK_FREQUENCY",
            counted(|n| vec![0xaf, 10 + n, 1, 1000, 1], &[]),
        ),
        ("datagrams without bytes", counted(|_| vec![0x31, 0], &[])),
        (
            "datagrams of the tunnel with a byte",
            counted(|_| vec![0x31, 3, 0, 0], &[0]),
        ),
        (
            "datagrams of no stream",
            counted(|_| vec![0x31, 3, 0x3f, 0], &[0]),
        ),
        ("a frame of no type", counted(|_| vec![0x21], &[])),
        ("HANDSHAKE_DONE", counted(|_| vec![0x1e], &[])),
        ("NEW_TOKEN", counted(|_| vec![0x07, 1, 0], &[])),
        (
            "OBSERVED_ADDRESS",
            counted(|n| vec![0x9f81a6, n], &[1, 2, 3, 4, 5, 6]),
        ),
        (
            "ADD_ADDRESS",
            counted(|n| vec![0x3d7f90, n], &[1, 2, 3, 4, 5, 6]),
        ),
    ]
}

/// Of connection IDs.
fn id_frames() -> Vec<(&'static str, Weapon)> {
    let new = |retires: bool| fresh(move |n| vec![0x18, n + 2, if retires { n + 2 } else { 0 }]);
    let of_paths = fresh(|n| vec![0x3e78, 1 + n % 12, n / 12, (n / 12).saturating_sub(1)]);
    vec![
        ("NEW_CONNECTION_ID, each retires those before", new(true)),
        ("NEW_CONNECTION_ID", new(false)),
        ("PATH_NEW_CONNECTION_ID", of_paths),
        (
            "RETIRE_CONNECTION_ID",
            counted(|n| vec![0x19, n / 200], &[]),
        ),
        (
            "PATH_RETIRE_CONNECTION_ID",
            counted(|n| vec![0x3e79, 1 + n % 15, n / 15], &[]),
        ),
    ]
}

/// Frames made of numbers, and of a connection ID with its reset token.
fn fresh(numbers: impl Fn(u64) -> Vec<u64> + Send + 'static) -> Weapon {
    let mut n = 0_u64;
    Weapon::Frames(Arc::new(Mutex::new(move || {
        let mut frame = Vec::new();
        for number in numbers(n) {
            varint::put(&mut frame, number);
        }
        frame.push(8);
        frame.extend([n, n, 7].map(u64::to_be_bytes).concat());
        n += 1;
        frame
    })))
}

/// What is said in HTTP.
fn http() -> Vec<(&'static str, Weapon)> {
    let capsule = |capsule: Capsule| {
        let mut bytes = Vec::new();
        capsule.encode(&mut bytes).expect("it is small");
        bytes
    };
    let range = |n: u8| {
        let range = IpAddressRange::new([10, n, 0, 0].into(), [10, n, 0, 255].into(), 0);
        capsule(Capsule::RouteAdvertisement(vec![range.expect("it is one")]))
    };
    let terms = |share: u8| {
        capsule(Capsule::Terms(format!(
            "share={share};down=a:{share}000000"
        )))
    };
    let asks = capsule(Capsule::AddressRequest(vec![RequestedAddress {
        request_id: 7,
        prefix: IpPrefix::host([10, 0, 0, 1].into()),
    }]));
    vec![
        ("capsules of no type", Weapon::Said(vec![0x29, 0])),
        ("capsules: addresses are wanted", Weapon::Said(asks)),
        ("capsules: one LAN", Weapon::Said(range(9))),
        (
            "capsules: two LANs in turn",
            Weapon::Said([range(9), range(8)].concat()),
        ),
        (
            "capsules: terms in turn",
            Weapon::Said([terms(10), terms(20)].concat()),
        ),
        ("SETTINGS once more", Weapon::Controlled(vec![4, 0])),
        ("GOAWAY", Weapon::Controlled(vec![7, 1, 0])),
        ("MAX_PUSH_ID", Weapon::Controlled(vec![13, 1, 1])),
        ("frames of no type", Weapon::Controlled(vec![0x21, 0])),
    ]
}

/// What QUIC is used for.
fn acts() -> Vec<(&'static str, Weapon)> {
    let (_, request) = requests(false);
    let rapid: Acts = Box::new(move |conn, _, _| {
        while let Some(stream) = conn.streams().open(Dir::Bi) {
            let _ = conn.send_stream(stream).write(&request);
            let _ = conn.send_stream(stream).reset(VarInt::from_u32(0x10c));
            let _ = conn.recv_stream(stream).stop(VarInt::from_u32(0x10c));
        }
    });
    let (_, request) = requests(false);
    let asks: Acts = Box::new(move |conn, _, _| {
        while let Some(stream) = conn.streams().open(Dir::Bi) {
            let _ = conn.send_stream(stream).write(&request);
            let _ = conn.send_stream(stream).finish();
        }
    });
    let unis: Acts = Box::new(|conn, _, _| {
        while let Some(stream) = conn.streams().open(Dir::Uni) {
            let _ = conn.send_stream(stream).write(&[0x21]);
            let _ = conn.send_stream(stream).reset(VarInt::from_u32(0));
        }
    });
    let mut n = 0_u8;
    let paths: Acts = Box::new(move |conn, _, now| {
        n = n.wrapping_add(1);
        let network = FourTuple::new(HUB, Some(home(n).ip()));
        let _ = conn.open_path(network, PathStatus::Available, now);
        let paths = conn.paths();
        if paths.len() > 3 {
            let _ = conn.close_path(now, paths[1], VarInt::from_u32(7));
        }
    });
    let keys: Acts = Box::new(|conn, _, _| {
        let _ = conn
            .datagrams()
            .send(bytes::Bytes::from_static(&[0x3f; 16]), true);
        conn.force_key_update();
    });
    vec![
        ("other keys as often as may be", Weapon::Acts(keys)),
        ("requests that are taken back", Weapon::Acts(rapid)),
        ("requests", Weapon::Acts(asks)),
        ("streams of no type that are taken back", Weapon::Acts(unis)),
        ("paths that come and go", Weapon::Acts(paths)),
    ]
}

/// Where a link of the client is; not where the honest edge's are.
pub(super) fn home(link: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 100 + link % 100], 7000))
}

/// What it says on its control stream, and to ask for a tunnel, perhaps as an edge does.
pub(super) fn requests(is_edge: bool) -> (Vec<u8>, Vec<u8>) {
    let mut http = Http::client();
    http.remember(Settings {
        enable_connect_protocol: true,
        h3_datagram: true,
        ..Settings::default()
    });
    let mut head = connect_ip::request("hub:443", &connect_ip::Scope::ANY.path());
    if is_edge {
        head.fields.push("sennit", "1;class=default;index=0");
    }
    http.send_request(HttpStream(0), &head, None)
        .expect("it may");
    match (http.poll_output(), http.poll_output()) {
        (Some(Output::Control(control)), Some(Output::Send { bytes, .. })) => {
            (control.to_vec(), bytes.to_vec())
        }
        other => unreachable!("{other:?}"),
    }
}
