//! A site and a hub, and the packets between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sennit_engine::{Issuer, Local, Packet, Received, Rekey, Settings, SocketId, Transmit};
use sennit_packet::IpPacket;
use sennit_packet::checksum::Progress;

/// Where the hub listens.
pub(super) const HUB: SocketAddr = address([203, 0, 113, 1], 443);
/// Where the site's links are.
pub(super) const LINKS: [SocketAddr; 2] = [
    address([198, 51, 100, 1], 5000),
    address([198, 51, 100, 2], 5000),
];
/// Whoever has no business here.
pub(super) const STRANGER: SocketAddr = address([192, 0, 2, 66], 6666);

const fn address(ip: [u8; 4], port: u16) -> SocketAddr {
    let [a, b, c, d] = ip;
    SocketAddr::new(
        std::net::IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d)),
        port,
    )
}

thread_local! {
    /// Virtual time starts here; all that matters is that it does not move on by itself.
    pub(super) static START: Instant = Instant::now();
}

/// How long a packet takes.
const LATENCY: Duration = Duration::from_millis(5);
/// A machine that is due this often at one point in time is never done.
const SPINS: usize = 50;
/// No machine has so much to say at once.
const MOST_AT_ONCE: usize = 5000;

/// A UDP packet on its way.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// What is at either end.
pub(super) trait Machine {
    fn handle(&mut self, wire: Wire, now: Instant);
    fn handle_timeout(&mut self, now: Instant);
    fn poll_timeout(&self) -> Option<Instant>;
    /// All that it wants to send; events and inner packets are checked on the way.
    fn drain(&mut self, now: Instant) -> Vec<Wire>;
}

pub(super) struct Scene<S, H> {
    pub(super) site: S,
    pub(super) hub: H,
    pub(super) now: Instant,
    flying: VecDeque<Wire>,
}

impl<S: Machine, H: Machine> Scene<S, H> {
    pub(super) fn new(site: S, hub: H) -> Self {
        let now = START.with(|start| *start);
        Self {
            site,
            hub,
            now,
            flying: VecDeque::new(),
        }
    }

    /// This scene with another hub in the place of its own.
    pub(super) fn with_hub<O: Machine>(self, hub: O) -> Scene<S, O> {
        Scene {
            site: self.site,
            hub,
            now: self.now,
            flying: VecDeque::new(),
        }
    }

    /// Delivers what `meddle` makes of each packet that is on its way, and collects the answers.
    pub(super) fn round(&mut self, mut meddle: impl FnMut(Wire) -> Vec<Wire>) {
        self.now += LATENCY;
        for wire in std::mem::take(&mut self.flying)
            .into_iter()
            .flat_map(&mut meddle)
        {
            self.deliver(wire);
        }
        self.settle();
    }

    pub(super) fn deliver(&mut self, wire: Wire) {
        if wire.to == HUB {
            self.hub.handle(wire, self.now);
        } else {
            self.site.handle(wire, self.now);
        }
    }

    fn settle(&mut self) {
        self.flying.extend(settle(&mut self.site, self.now));
        self.flying.extend(settle(&mut self.hub, self.now));
    }

    /// Lets both ends answer each other for a while.
    pub(super) fn exchange(&mut self) {
        self.settle();
        for _ in 0..8 {
            if self.flying.is_empty() {
                return;
            }
            self.round(|wire| vec![wire]);
        }
    }

    /// Lets time pass in peace until `done`, at most `limit`; false if that was reached.
    pub(super) fn rest(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end = self.now + limit;
        self.settle();
        while !done(self) {
            if self.flying.is_empty() {
                let timeouts = [self.site.poll_timeout(), self.hub.poll_timeout()];
                let next = timeouts.into_iter().flatten().min().unwrap_or(end);
                self.now = self.now.max(next);
            }
            if self.now >= end {
                return false;
            }
            self.round(|wire| vec![wire]);
        }
        true
    }
}

/// Lets a machine do all that is due now.
fn settle(machine: &mut impl Machine, now: Instant) -> Vec<Wire> {
    let mut sent = machine.drain(now);
    for _ in 0..SPINS {
        if machine.poll_timeout().is_none_or(|at| at > now) {
            return sent;
        }
        machine.handle_timeout(now);
        sent.extend(machine.drain(now));
    }
    panic!("it is due again and again");
}

pub(super) fn settings(salt: u8) -> Settings {
    Settings {
        inner_mtu: 1400,
        issuer: Issuer::default(),
        seed: [salt; 32],
        reset_key: [salt; 32],
        rekey: Rekey::default(),
    }
}

/// A packet as it arrives on a socket.
pub(super) fn arrival(socket: u32, wire: &Wire, now: Instant) -> (Received, BytesMut) {
    let local = Local {
        socket: SocketId(socket),
        ip: Some(wire.to.ip()),
    };
    let received = Received {
        local,
        remote: wire.from,
        ecn: 0,
        segment: wire.bytes.len(),
        arrived: now,
    };
    (received, BytesMut::from(&wire.bytes[..]))
}

/// All that `poll` sends.
pub(super) fn sent(
    mut poll: impl FnMut(&mut Vec<u8>) -> Option<Transmit>,
    from: impl Fn(&Transmit) -> SocketAddr,
) -> Vec<Wire> {
    let (mut wires, mut buffer) = (Vec::new(), Vec::new());
    while let Some(transmit) = poll(&mut buffer) {
        assert_eq!(transmit.size, buffer.len());
        for packet in buffer.chunks(transmit.segment.unwrap_or(buffer.len()).max(1)) {
            wires.push(Wire {
                from: from(&transmit),
                to: transmit.remote,
                bytes: packet.to_vec(),
            });
        }
        assert!(wires.len() < MOST_AT_ONCE, "it never stops sending");
        buffer.clear();
    }
    wires
}

/// What must hold of all that a machine has for a TUN device.
pub(super) fn check(packet: &Packet) {
    let parsed = IpPacket::parse(&packet.bytes).expect("only packets reach the TUN device");
    assert!(packet.checksum == Progress::Whole || parsed.checksum_field().is_some());
}
