use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use sennit_linux::{
    Error,
    netlink::{Interface, Netlink},
    poller::{Events, Interest, Poller},
    udp::{EcnCodepoint, LinkBinding, LinkSocket, SendError, Sent, Transmit},
};

use crate::{tun::next_run, world::Host};

fn transmit(to: SocketAddr, contents: &[u8], segment_size: Option<usize>) -> Transmit<'_> {
    Transmit {
        destination: to,
        ecn: Some(EcnCodepoint::Ect0),
        contents,
        segment_size,
        src_ip: None,
    }
}

fn bind(host: &Host, device: &str, address: &str) -> Result<LinkSocket, Error> {
    let address: IpAddr = address.parse().unwrap();
    host.run(|| {
        LinkSocket::bind(&LinkBinding {
            device,
            address,
            mark: None,
        })
    })
}

fn listen(host: &Host, address: &str) -> LinkSocket {
    host.run(|| LinkSocket::listen(address.parse().unwrap()))
        .unwrap()
}

/// An edge and a hub on a cable, with addresses of both families.
fn edge_and_hub() -> Option<(Host, Host)> {
    let (edge, hub) = Host::pair()?;
    edge.cable("eth1", &hub, "eth1");
    edge.sh(
        "ip address add 198.18.1.2/24 dev eth1; ip address add 2001:db8:1::2/64 dev eth1 nodad",
    );
    hub.sh("ip address add 198.18.1.1/24 dev eth1; ip address add 2001:db8:1::1/64 dev eth1 nodad");
    Some((edge, hub))
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[test]
fn a_batch_crosses_as_one_with_addresses_and_ecn() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    for (ours, theirs) in [
        ("198.18.1.2", "198.18.1.1"),
        ("2001:db8:1::2", "2001:db8:1::1"),
    ] {
        let theirs: IpAddr = theirs.parse().unwrap();
        let wildcard = if theirs.is_ipv4() {
            "0.0.0.0:4433"
        } else {
            "[::]:4433"
        };
        let mut link = bind(&edge, "eth1", ours).unwrap();
        let mut listener = listen(&hub, wildcard);
        let payload = numbered(30 * 1200 + 77);

        let to = SocketAddr::new(theirs, 4433);
        let sent = link.send(&transmit(to, &payload, Some(1200))).unwrap();
        let (received, meta) = next_run(&mut listener);

        assert_eq!(
            sent,
            Sent {
                bytes: payload.len(),
                refused: 0
            }
        );
        assert_eq!((received, meta.stride), (payload, 1200));
        assert_eq!(
            meta.addr,
            SocketAddr::new(ours.parse().unwrap(), link.local_addr().port())
        );
        assert_eq!(meta.dst_ip, Some(theirs));
        assert_eq!(meta.ecn, Some(EcnCodepoint::Ect0));
    }
}

#[test]
fn a_hub_answers_from_the_address_that_was_asked() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    hub.sh("ip address add 198.18.1.77/24 dev eth1");
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let mut listener = listen(&hub, "0.0.0.0:4433");

    let asked = "198.18.1.77:4433".parse().unwrap();
    link.send(&transmit(asked, b"ping", None)).unwrap();
    let (_, meta) = next_run(&mut listener);
    let answer = Transmit {
        src_ip: meta.dst_ip,
        ..transmit(meta.addr, b"pong", None)
    };
    listener.send(&answer).unwrap();

    let (received, meta) = next_run(&mut link);
    assert_eq!(
        (received.as_slice(), meta.addr),
        (b"pong".as_slice(), asked)
    );
}

#[test]
fn links_with_the_same_address_and_gateway_do_not_mix() {
    let Some((edge, left)) = Host::pair() else {
        return;
    };
    let Some(right) = Host::new() else { return };
    for (device, hub) in [("eth1", &left), ("eth2", &right)] {
        edge.cable(device, hub, "eth1");
        edge.sh(&format!("ip address add 192.168.1.2/24 dev {device}"));
        hub.sh("ip address add 192.168.1.1/24 dev eth1");
    }
    for (device, hub) in [("eth1", &left), ("eth2", &right)] {
        let mut link = bind(&edge, device, "192.168.1.2").unwrap();
        let mut listener = listen(hub, "0.0.0.0:4433");

        let to = "192.168.1.1:4433".parse().unwrap();
        link.send(&transmit(to, device.as_bytes(), None)).unwrap();
        let (received, meta) = next_run(&mut listener);
        assert_eq!(received, device.as_bytes());

        listener.send(&transmit(meta.addr, b"back", None)).unwrap();
        assert_eq!(next_run(&mut link).0, b"back");
    }
}

#[test]
fn more_than_one_batch_is_cut_into_batches() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let mut listener = listen(&hub, "0.0.0.0:4433");
    let payload = numbered(100 * 1200);

    let to = "198.18.1.1:4433".parse().unwrap();
    let sent = link.send(&transmit(to, &payload, Some(1200))).unwrap();
    let mut received = Vec::new();
    while received.len() < payload.len() {
        received.extend(next_run(&mut listener).0);
    }

    assert_eq!(sent.bytes, payload.len());
    assert_eq!(received, payload);
}

#[test]
fn a_device_that_cannot_segment_gets_datagrams_one_by_one() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    // Without checksum offload, kernels before 6.11 refuse UDP segmentation with EIO.
    edge.sh("ethtool -K eth1 tx-checksumming off >/dev/null");
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let mut listener = listen(&hub, "0.0.0.0:4433");
    let payload = numbered(10 * 1200);

    let to = "198.18.1.1:4433".parse().unwrap();
    let sent = link.send(&transmit(to, &payload, Some(1200))).unwrap();
    let mut received = Vec::new();
    while received.len() < payload.len() {
        received.extend(next_run(&mut listener).0);
    }

    assert_eq!(
        sent,
        Sent {
            bytes: payload.len(),
            refused: 0
        }
    );
    assert_eq!(received, payload);
}

#[test]
fn a_full_socket_takes_a_part_and_the_rest_later() {
    let Some((edge, _hub)) = edge_and_hub() else {
        return;
    };
    edge.sh("tc qdisc add dev eth1 root tbf rate 400mbit burst 64k limit 100mb");
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let to = "198.18.1.1:4433".parse().unwrap();
    let payload = numbered(100 * 1200);

    let offer = |link: &mut LinkSocket| {
        link.send(&transmit(to, &payload, Some(1200)))
            .unwrap()
            .bytes
    };
    let taken = (0..10_000)
        .map(|_| offer(&mut link))
        .find(|bytes| *bytes < payload.len());
    let poller = Poller::new().unwrap();
    poller.add(&link, 0, Interest::Write).unwrap();
    let writable = poller.wait(&mut Events::with_capacity(1), Some(Duration::from_secs(10)));

    assert!(taken.is_some_and(|bytes| bytes % 1200 == 0), "{taken:?}");
    assert_eq!(writable.unwrap(), 1);
    assert!(offer(&mut link) > 0);
}

#[test]
fn what_a_full_receive_buffer_loses_is_counted() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let listener = listen(&hub, "0.0.0.0:4433");
    let to = "198.18.1.1:4433".parse().unwrap();
    let payload = numbered(50 * 1200);
    assert_eq!(listener.receive_drops().unwrap(), 0);

    for _ in 0..1000 {
        link.send(&transmit(to, &payload, Some(1200))).unwrap();
    }

    assert!(listener.receive_drops().unwrap() > 0);
}

#[test]
fn what_is_too_big_is_refused_and_the_rest_of_the_batch_is_sent() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    edge.sh("ip link set eth1 mtu 1300");
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let mut listener = listen(&hub, "0.0.0.0:4433");
    let to = "198.18.1.1:4433".parse().unwrap();

    let probe = link.send(&transmit(to, &numbered(1400), None)).unwrap_err();
    let batch = link
        .send(&transmit(to, &numbered(2 * 1400 + 50), Some(1400)))
        .unwrap();

    assert!(matches!(probe, SendError::TooBig), "{probe:?}");
    assert_eq!(
        batch,
        Sent {
            bytes: 2850,
            refused: 2
        }
    );
    assert_eq!(next_run(&mut listener).0.len(), 50);
}

#[test]
fn a_refusal_does_not_slow_down_later_batches() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let mut listener = listen(&hub, "0.0.0.0:4433");
    let to = "198.18.1.1:4433".parse().unwrap();
    let payload = numbered(10 * 1200);

    let stray = "192.0.2.99".parse().unwrap();
    let foreign = Transmit {
        src_ip: Some(stray),
        ..transmit(to, &payload, Some(1200))
    };
    assert!(link.send(&foreign).is_err());
    link.send(&transmit(to, &payload, Some(1200))).unwrap();
    let (received, meta) = next_run(&mut listener);

    assert_eq!((received, meta.ecn), (payload, Some(EcnCodepoint::Ect0)));
}

#[test]
fn a_link_that_is_down_is_told_from_a_refused_packet() {
    let Some((edge, _hub)) = edge_and_hub() else {
        return;
    };
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let to = "198.18.1.1:4433".parse().unwrap();

    edge.sh(
        "nft 'table inet t { chain out { type filter hook output priority 0; udp dport 4433 drop; }; }'",
    );
    let refused = link.send(&transmit(to, b"x", None)).unwrap_err();
    edge.sh("nft delete table inet t; ip link set eth1 down");
    let down = link.send(&transmit(to, b"x", None)).unwrap_err();
    edge.sh("ip link delete eth1");
    let gone = link.send(&transmit(to, b"x", None)).unwrap_err();

    assert!(matches!(refused, SendError::Refused(_)), "{refused:?}");
    assert!(matches!(down, SendError::LinkDown(_)), "{down:?}");
    assert!(matches!(gone, SendError::LinkDown(_)), "{gone:?}");
}

#[test]
fn a_lost_address_takes_the_link_down() {
    let Some((edge, _hub)) = edge_and_hub() else {
        return;
    };
    edge.sh("ip address add 198.18.9.9/24 dev eth1");
    for (address, gateway, net) in [
        ("198.18.1.2", "198.18.1.1:4433", "198.18.1.2/24"),
        ("2001:db8:1::2", "[2001:db8:1::1]:4433", "2001:db8:1::2/64"),
    ] {
        let mut link = bind(&edge, "eth1", address).unwrap();

        edge.sh(&format!("ip address delete {net} dev eth1"));

        let error = link
            .send(&transmit(gateway.parse().unwrap(), b"x", None))
            .unwrap_err();
        assert!(
            matches!(error, SendError::LinkDown(_)),
            "{address}: {error:?}"
        );
    }
}

#[test]
fn binding_says_what_is_missing() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };

    let no_device = bind(&edge, "eth9", "198.18.1.2").unwrap_err();
    let no_address = bind(&edge, "eth1", "198.18.1.99").unwrap_err();
    let _first = listen(&hub, "0.0.0.0:4433");
    let taken = hub
        .run(|| LinkSocket::listen("0.0.0.0:4433".parse().unwrap()))
        .unwrap_err();

    assert!(matches!(no_device, Error::NoInterface(_)), "{no_device}");
    assert!(
        matches!(no_address, Error::AddressMissing { .. }),
        "{no_address}"
    );
    assert!(matches!(taken, Error::AddressInUse(_)), "{taken}");
}

#[test]
fn listeners_of_both_families_share_a_port() {
    let Some((_, hub)) = edge_and_hub() else {
        return;
    };
    let listen = |address: &str| hub.run(|| LinkSocket::listen(address.parse().unwrap()));

    let sockets = ["0.0.0.0:4433", "[::]:4433"].map(listen);

    assert!(sockets.iter().all(Result::is_ok), "{sockets:?}");
}

/// Where the octet that steers stands in a connection ID, and how many sockets it steers to.
const OCTET: usize = 3;
const WORKERS: usize = 3;

fn listen_steered(host: &Host, address: &str) -> Result<Vec<LinkSocket>, Error> {
    host.run(|| LinkSocket::listen_steered(address.parse().unwrap(), WORKERS, OCTET, None))
}

/// Which sockets have something to read, and what.
fn received(sockets: &mut [LinkSocket]) -> Vec<(usize, Vec<u8>)> {
    let poller = Poller::new().unwrap();
    for (number, socket) in sockets.iter().enumerate() {
        poller.add(socket, number as u64, Interest::Read).unwrap();
    }
    let mut events = Events::with_capacity(WORKERS);
    poller
        .wait(&mut events, Some(Duration::from_secs(10)))
        .unwrap();
    let ready: Vec<usize> = events.iter().map(|ready| ready.token as usize).collect();
    ready
        .into_iter()
        .map(|number| (number, next_run(&mut sockets[number]).0))
        .collect()
}

/// A QUIC packet of either header form whose connection ID has `octet` in that place.
fn quic(long_header: bool, octet: u8) -> Vec<u8> {
    let mut id = [0xee; 8];
    id[OCTET] = octet;
    let before: &[u8] = if long_header {
        &[0xc3, 0, 0, 0, 1, 8]
    } else {
        &[0x41]
    };
    [before, &id, &[0xee; 40]].concat()
}

#[test]
fn packets_are_steered_to_sockets_by_their_connection_id() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    for (ours, wildcard, to) in [
        ("198.18.1.2", "0.0.0.0:4433", "198.18.1.1:4433"),
        ("2001:db8:1::2", "[::]:4433", "[2001:db8:1::1]:4433"),
    ] {
        let mut workers = listen_steered(&hub, wildcard).unwrap();
        // Several senders, as the kernel would otherwise choose by their address.
        let mut links: Vec<LinkSocket> =
            (0..4).map(|_| bind(&edge, "eth1", ours).unwrap()).collect();
        for octet in [0, 1, 2, 3, 4, 5, 127, 128, 254, 255] {
            for long_header in [false, true] {
                for link in &mut links {
                    let packet = quic(long_header, octet);
                    link.send(&transmit(to.parse().unwrap(), &packet, None))
                        .unwrap();
                    let worker = usize::from(octet) % WORKERS;
                    assert_eq!(received(&mut workers), [(worker, packet)]);
                }
            }
        }
    }
}

#[test]
fn a_packet_too_short_to_be_steered_arrives_all_the_same() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    let mut workers = listen_steered(&hub, "0.0.0.0:4433").unwrap();
    let mut link = bind(&edge, "eth1", "198.18.1.2").unwrap();
    let to = "198.18.1.1:4433".parse().unwrap();

    for packet in [&quic(false, 1)[..4], &quic(true, 1)[..9], &[0xc0]] {
        link.send(&transmit(to, packet, None)).unwrap();
        let arrived = received(&mut workers);
        assert!(
            matches!(arrived.as_slice(), [(_, arrived)] if arrived == packet),
            "{arrived:?}"
        );
    }
}

#[test]
fn nobody_else_gets_into_a_shared_port() {
    let Some((_, hub)) = edge_and_hub() else {
        return;
    };
    let _workers = listen_steered(&hub, "0.0.0.0:4433").unwrap();

    let alone = hub.run(|| LinkSocket::listen("0.0.0.0:4433".parse().unwrap()));
    let shared = listen_steered(&hub, "0.0.0.0:4433");

    assert!(matches!(alone, Err(Error::AddressInUse(_))), "{alone:?}");
    assert!(matches!(shared, Err(Error::AddressInUse(_))), "{shared:?}");
}

#[test]
fn a_link_local_address_needs_no_scope_from_the_caller() {
    let Some((edge, hub)) = edge_and_hub() else {
        return;
    };
    edge.sh("ip address add fe80::e/64 dev eth1 nodad");
    hub.sh("ip address add fe80::a/64 dev eth1 nodad");
    let mut link = bind(&edge, "eth1", "fe80::e").unwrap();
    let mut listener = listen(&hub, "[::]:4433");

    let eth1 = edge
        .run(|| Interface::lookup(&mut Netlink::open().unwrap(), "eth1"))
        .unwrap();
    let to = std::net::SocketAddrV6::new("fe80::a".parse().unwrap(), 4433, 0, eth1.index);
    link.send(&transmit(to.into(), b"near", None)).unwrap();

    assert_eq!(next_run(&mut listener).0, b"near");
}
