use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use sennit_linux::{
    Error,
    netlink::{Interface, Netlink},
    poller::{Events, Interest, Poller, Waker},
    tun::{Offload, OffloadTier, TUN_BUFFER, Tun, TunConfig},
    udp::{BATCH_SIZE, LinkSocket, RecvMeta, Transmit, UDP_BUFFER},
};
use sennit_packet::gso::VirtioNetHdr;

use crate::world::{Host, skipped};

const MTU: usize = 1400;

/// Nothing here takes seconds unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn config(offload: Offload) -> TunConfig {
    TunConfig {
        name: "tun0".parse().unwrap(),
        mtu: MTU as u32,
        queues: 1,
        offload,
    }
}

/// Opens `tun0` on a host and gives it an address.
fn open(host: &Host, offload: Offload, address: &str) -> Tun {
    host.run(|| {
        let tun = Tun::open(&config(offload)).unwrap().remove(0);
        let mut netlink = Netlink::open().unwrap();
        netlink
            .add_address(tun.index(), address.parse().unwrap())
            .unwrap();
        tun
    })
}

/// What passed between two TUN devices.
#[derive(Debug, Default)]
struct Traffic {
    packets: Vec<(VirtioNetHdr, usize)>,
}

impl Traffic {
    fn largest(&self) -> usize {
        self.packets
            .iter()
            .map(|(_, len)| *len)
            .max()
            .unwrap_or_default()
    }

    fn super_packets(&self, gso_type: u8) -> usize {
        let same = |header: &VirtioNetHdr| header.gso_type & !VirtioNetHdr::GSO_ECN == gso_type;
        self.packets
            .iter()
            .filter(|(header, _)| same(header))
            .count()
    }
}

/// Carries packets between two devices until `work`, run in a thread, is done.
fn carry_while(a: &mut Tun, b: &mut Tun, work: impl FnOnce() + Send) -> Traffic {
    let poller = Poller::new().unwrap();
    poller.add(&*a, 1, Interest::Read).unwrap();
    poller.add(&*b, 2, Interest::Read).unwrap();
    let done = Waker::new(&poller, 0).unwrap();
    let mut events = Events::with_capacity(4);
    let mut traffic = Traffic::default();
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _at_the_end = WakeOnDrop(done.clone());
            work();
        });
        loop {
            poller
                .wait(&mut events, Some(Duration::from_secs(1)))
                .unwrap();
            assert!(Instant::now() < deadline, "the connection hangs");
            carry(a, b, &mut traffic).unwrap();
            carry(b, a, &mut traffic).unwrap();
            if events.iter().any(|event| event.token == 0) {
                return;
            }
        }
    });
    traffic
}

struct WakeOnDrop(Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

fn carry(from: &mut Tun, to: &mut Tun, traffic: &mut Traffic) -> io::Result<()> {
    let mut buffer = vec![0; TUN_BUFFER];
    while let Some((header, len)) = from.recv(&mut buffer)? {
        traffic.packets.push((header, len));
        let (ip_header, rest) = buffer[..len].split_at(20);
        to.send(&header, &[IoSlice::new(ip_header), IoSlice::new(rest)])?;
    }
    Ok(())
}

/// One megabyte by TCP between two hosts whose devices use `offload`.
fn transfer(offload: Offload) -> Option<(Traffic, OffloadTier)> {
    let (client, server) = Host::pair()?;
    let mut near = open(&client, offload, "10.1.0.1/24");
    let mut far = open(&server, offload, "10.1.0.2/24");
    let listener = server.run(|| TcpListener::bind("10.1.0.2:5000").unwrap());
    let sent: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();

    let traffic = carry_while(&mut near, &mut far, || {
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = client.run(|| TcpStream::connect("10.1.0.2:5000").unwrap());
                stream.write_all(&sent).unwrap();
            });
            listener
                .accept()
                .unwrap()
                .0
                .read_to_end(&mut received)
                .unwrap();
        });
        assert!(received == sent, "the data arrived damaged");
    });
    Some((traffic, near.tier()))
}

#[test]
fn tcp_super_packets_pass_both_ways() {
    let Some((traffic, tier)) = transfer(Offload::Auto) else {
        return;
    };

    assert!(tier >= OffloadTier::Tso);
    assert!(traffic.super_packets(VirtioNetHdr::GSO_TCPV4) > 10);
    assert!(traffic.largest() > 10 * MTU, "{}", traffic.largest());
}

#[test]
fn without_offload_every_packet_is_finished() {
    let Some((traffic, tier)) = transfer(Offload::None) else {
        return;
    };

    assert_eq!(tier, OffloadTier::None);
    assert!(traffic.largest() <= MTU, "{}", traffic.largest());
    let finished = |header: &VirtioNetHdr| header.flags & VirtioNetHdr::NEEDS_CSUM == 0;
    assert!(traffic.packets.iter().all(|(header, _)| finished(header)));
}

#[test]
fn a_lower_tier_can_be_asked_for() {
    let Some(host) = Host::new() else { return };

    let tun = open(&host, Offload::Tso, "10.1.0.1/24");

    assert_eq!(tun.tier(), OffloadTier::Tso);
}

#[test]
fn udp_super_packets_pass_where_the_kernel_has_them() {
    let Some((client, server)) = Host::pair() else {
        return;
    };
    let mut near = open(&client, Offload::Auto, "10.1.0.1/24");
    let mut far = open(&server, Offload::Auto, "10.1.0.2/24");
    if near.tier() < OffloadTier::TsoUso {
        skipped("this kernel has no UDP segmentation on TUN devices");
        return;
    }
    let mut sender = client
        .run(|| LinkSocket::listen("10.1.0.1:0".parse().unwrap()))
        .unwrap();
    let mut receiver = server
        .run(|| LinkSocket::listen("10.1.0.2:5000".parse().unwrap()))
        .unwrap();
    let payload: Vec<u8> = (0..10_500_u32).map(|i| (i % 251) as u8).collect();
    let transmit = Transmit {
        destination: receiver.local_addr(),
        ecn: None,
        contents: &payload,
        segment_size: Some(1000),
        src_ip: None,
    };

    let mut received = Vec::new();
    let traffic = carry_while(&mut near, &mut far, || {
        sender.send(&transmit).unwrap();
        while received.len() < payload.len() {
            received.extend(next_run(&mut receiver).0);
        }
    });

    assert_eq!(received, payload);
    assert_eq!(traffic.super_packets(VirtioNetHdr::GSO_UDP_L4), 1);
    assert_eq!(traffic.packets[0].0.gso_size, 1000);
}

/// Waits for the next buffer of datagrams.
pub(crate) fn next_run(socket: &mut LinkSocket) -> (Vec<u8>, RecvMeta) {
    let poller = Poller::new().unwrap();
    poller.add(&*socket, 0, Interest::Read).unwrap();
    let mut events = Events::with_capacity(1);
    let mut buffers = vec![vec![0; UDP_BUFFER]; BATCH_SIZE];
    let mut metas = [RecvMeta::default(); BATCH_SIZE];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut slices: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        if socket.recv(&mut slices[..1], &mut metas).unwrap() > 0 {
            return (buffers[0][..metas[0].len].to_vec(), metas[0]);
        }
        assert!(Instant::now() < deadline, "nothing arrives");
        poller
            .wait(&mut events, Some(Duration::from_secs(1)))
            .unwrap();
    }
}

#[test]
fn a_packet_that_the_kernel_sends_can_be_read() {
    let Some(host) = Host::new() else { return };
    let mut tun = open(&host, Offload::Auto, "10.1.0.1/24");

    let socket = host.run(|| UdpSocket::bind("10.1.0.1:0").unwrap());
    socket.send_to(b"hello", "10.1.0.2:9").unwrap();
    let mut buffer = vec![0; TUN_BUFFER];
    let (_, len) = tun.recv(&mut buffer).unwrap().unwrap();

    assert_eq!(len, 20 + 8 + 5);
    assert_eq!(&buffer[28..len], b"hello");
    assert!(
        tun.recv(&mut buffer).unwrap().is_none(),
        "nothing else was sent"
    );
}

/// More packets than a hub's connections send at once as they start.
#[test]
fn a_device_holds_a_burst_until_it_is_read() {
    const BURST: usize = 5000;
    for queues in [1, 2] {
        let Some(host) = Host::new() else { return };
        let config = TunConfig {
            queues,
            ..config(Offload::Auto)
        };
        let mut tuns = host.run(|| Tun::open(&config)).unwrap();
        host.sh("ip address add 10.1.0.1/24 dev tun0");

        let socket = host.run(|| UdpSocket::bind("10.1.0.1:0").unwrap());
        for _ in 0..BURST {
            socket.send_to(b"hello", "10.1.0.2:9").unwrap();
        }
        let mut buffer = vec![0; TUN_BUFFER];
        let mut read = 0;
        for tun in &mut tuns {
            while tun.recv(&mut buffer).unwrap().is_some() {
                read += 1;
            }
        }

        assert_eq!(read, BURST, "{queues} queues");
    }
}

#[test]
fn a_new_device_is_up_with_its_mtu_and_silent() {
    let Some(host) = Host::new() else { return };

    let (mut tun, interface) = host.run(|| {
        let tun = Tun::open(&config(Offload::Auto)).unwrap().remove(0);
        let interface = Interface::lookup(&mut Netlink::open().unwrap(), "tun0").unwrap();
        (tun, interface)
    });

    assert_eq!(interface.mtu as usize, MTU);
    assert_eq!(interface.state.to_string(), "up");
    assert_eq!(interface.addresses, []);
    assert!(tun.recv(&mut vec![0; TUN_BUFFER]).unwrap().is_none());
}

#[test]
fn a_device_that_another_daemon_holds_is_refused_by_name() {
    let Some(host) = Host::new() else { return };
    for queues in [1, 2] {
        let config = TunConfig {
            queues,
            ..config(Offload::Auto)
        };
        let first = host.run(|| Tun::open(&config)).unwrap();
        assert_eq!(first.len(), queues);

        let error = host.run(|| Tun::open(&config)).unwrap_err();

        assert!(matches!(error, Error::DeviceBusy(_)), "{error}");
        assert!(error.to_string().contains("tun0"), "{error}");
    }
}

#[test]
fn an_interface_of_another_kind_is_refused_by_name() {
    let Some((host, other)) = Host::pair() else {
        return;
    };
    host.cable("tun0", &other, "x");

    let error = host.run(|| Tun::open(&config(Offload::Auto))).unwrap_err();

    assert!(matches!(error, Error::NotOurKind(_)), "{error}");
}

#[test]
fn a_deleted_device_is_recognised() {
    let Some(host) = Host::new() else { return };
    let mut tun = open(&host, Offload::Auto, "10.1.0.1/24");

    host.sh("ip link delete tun0");

    let read = tun.recv(&mut vec![0; TUN_BUFFER]).unwrap_err();
    let write = tun
        .send(&VirtioNetHdr::default(), &[IoSlice::new(&[0; 20])])
        .unwrap_err();
    assert!(Tun::is_gone(&read), "{read}");
    assert!(Tun::is_gone(&write), "{write}");
}

#[test]
fn a_packet_that_is_none_costs_only_itself() {
    let Some(host) = Host::new() else { return };
    let mut tun = open(&host, Offload::Auto, "10.1.0.1/24");

    let error = tun
        .send(&VirtioNetHdr::default(), &[IoSlice::new(b"\0not IP")])
        .unwrap_err();
    let many = [IoSlice::new(b"x"); 100];
    let refused = tun.send(&VirtioNetHdr::default(), &many).unwrap_err();

    assert!(!Tun::is_gone(&error), "{error}");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert!(tun.recv(&mut vec![0; TUN_BUFFER]).unwrap().is_none());
}

#[test]
fn the_device_goes_with_its_last_queue() {
    let Some(host) = Host::new() else { return };

    drop(open(&host, Offload::Auto, "10.1.0.1/24"));

    let error = host
        .run(|| Interface::lookup(&mut Netlink::open().unwrap(), "tun0"))
        .unwrap_err();
    assert!(matches!(error, Error::NoInterface(_)), "{error}");
}
