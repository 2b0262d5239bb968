//! Inner TCP: one connection of smoltcp in virtual time.
//!
//! smoltcp 0.14 has CUBIC (RFC 9438) and fast retransmission, but its sender ignores SACK, and a
//! timeout takes a second at least (RFC 6298 §2.4). It fills a link without loss. At a random loss
//! of 0.1 to 2 % it carries 0.5 to 0.75 of what Reno would in theory (`plain`). When a queue drops
//! many packets of one window, as at the end of slow start, it may need seconds: alone over 20
//! Mbit/s at 40 ms it reached 4 Mbit/s in the first ten seconds, where QUIC-like flows reached 16.
//! So several connections are a better measure than one.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::tcp::{CongestionControl, Socket, SocketBuffer},
    time::Instant as Micros,
    wire::{HardwareAddress, IpCidr},
};

use crate::endpoint::Endpoint;

/// Twice what 120 Mbit/s need at a round trip of 150 ms.
const BUFFER: usize = 4 << 20;
/// smoltcp may want to act at once although it just has; it waits this long.
const LEAST_PAUSE: Duration = Duration::from_micros(100);

/// One end of a connection; both use the same port.
pub(crate) struct Tcp {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    wire: Wire,
    sends: bool,
    received: u64,
    start: Instant,
    next: Option<Instant>,
}

impl Tcp {
    /// The end that opens the connection.
    pub(crate) fn client(
        here: Ipv4Addr,
        there: Ipv4Addr,
        port: u16,
        mtu: usize,
        sends: bool,
        now: Instant,
    ) -> Self {
        let mut tcp = Self::new(here, mtu, sends, now);
        let socket = tcp.sockets.get_mut::<Socket<'_>>(tcp.socket);
        socket
            .connect(tcp.interface.context(), (there, port), port)
            .expect("the socket is new and the addresses are valid");
        tcp
    }

    /// The end that waits for it.
    pub(crate) fn server(here: Ipv4Addr, port: u16, mtu: usize, sends: bool, now: Instant) -> Self {
        let mut tcp = Self::new(here, mtu, sends, now);
        let socket = tcp.sockets.get_mut::<Socket<'_>>(tcp.socket);
        socket
            .listen(port)
            .expect("the socket is new and the port is valid");
        tcp
    }

    fn new(here: Ipv4Addr, mtu: usize, sends: bool, now: Instant) -> Self {
        let mut wire = Wire::new(mtu);
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, Micros::ZERO);
        interface.update_ip_addrs(|addresses| {
            // Prefix 0: every host is a neighbour, which takes no route.
            addresses
                .push(IpCidr::new(here.into(), 0))
                .expect("there is room for one address");
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Cubic);
        let mut sockets = SocketSet::new(Vec::new());
        Self {
            interface,
            socket: sockets.add(socket),
            sockets,
            wire,
            sends,
            received: 0,
            start: now,
            next: Some(now),
        }
    }

    /// Lets smoltcp act, and the application on top of it.
    fn act(&mut self, now: Instant) {
        let micros = Micros::from_micros_const((now - self.start).as_micros() as i64);
        self.interface
            .poll(micros, &mut self.wire, &mut self.sockets);
        if self.use_socket() {
            self.interface
                .poll(micros, &mut self.wire, &mut self.sockets);
        }
        let next = self.interface.poll_at(micros, &self.sockets);
        self.next = next.map(|at| {
            let at = self.start + Duration::from_micros(at.total_micros().unsigned_abs());
            at.max(now + LEAST_PAUSE)
        });
    }

    /// Reads everything and writes whatever fits; whether that may let packets leave.
    fn use_socket(&mut self) -> bool {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let mut used = false;
        while socket.can_recv() {
            let read = socket.recv(|bytes| (bytes.len(), bytes.len()));
            self.received += read.unwrap_or(0) as u64;
            used = true;
        }
        while self.sends && socket.can_send() {
            // What the buffer holds is as good as anything.
            let written = socket.send(|bytes| (bytes.len(), bytes.len()));
            used |= written.is_ok();
        }
        used
    }
}

impl Endpoint for Tcp {
    fn handle_packet(&mut self, packet: &[u8], now: Instant) {
        self.wire.arrived.push_back(packet.to_vec());
        self.next = Some(now);
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.wire.leaving.is_empty() && self.next.is_some_and(|at| at <= now) {
            self.act(now);
        }
        self.wire.leaving.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn received(&self) -> u64 {
        self.received
    }
}

/// Packets between smoltcp and the tunnel; what a window lets leave bounds them.
struct Wire {
    mtu: usize,
    arrived: VecDeque<Vec<u8>>,
    leaving: VecDeque<Vec<u8>>,
}

impl Wire {
    fn new(mtu: usize) -> Self {
        Self {
            mtu,
            arrived: VecDeque::new(),
            leaving: VecDeque::new(),
        }
    }
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _: Micros) -> Option<(Arrived, Leaving<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Leaving(&mut self.leaving)))
    }

    fn transmit(&mut self, _: Micros) -> Option<Leaving<'_>> {
        Some(Leaving(&mut self.leaving))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

struct Leaving<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}
