//! UDP sockets of tunnels: one per link on an edge, wildcard listeners on a hub.
//!
//! Everything is non-blocking and in batches. A send may carry up to 64 datagrams of one size (UDP
//! GSO); a receive fills many buffers with one system call, each with a run of datagrams of one
//! size (UDP GRO). Both carry the ECN field and our own address; and the kernel says when it got
//! each run, whenever the caller comes to read it ([`Run::arrived`]).
//!
//! The socket options are those of `noq-udp`. Receiving is our own, because `noq-udp` 1.4 has the
//! kernel's times switched off and no room for them beside the rest. Sending is our own, because
//! there one refused packet (`EINVAL` after an address went away) turns GSO and ECN off for the
//! whole socket. Here a refused batch is tried again datagram by datagram, and nothing is
//! remembered but "this device cannot segment", and that only for a while.

mod arrivals;
mod buffers;
mod control;
mod received;
mod steering;

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use noq_udp::UdpSocketState;
pub use noq_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit};
use socket2::{Domain, MsgHdr, Protocol, SockAddr, Socket, Type};

pub use self::buffers::{ReceiveBuffers, Run};
use self::control::Control;
use crate::{
    Error,
    error::Doing,
    helper::{self, Task},
    sys::{self, Envelope},
};

/// A receive buffer of this size takes any run of datagrams that GRO may form.
pub const UDP_BUFFER: usize = 65_536;

/// `UDP_MAX_SEGMENTS` of kernels before 6.9.
const MAX_SEGMENTS: usize = 64;

/// The longest UDP payload over IPv4; IPv6 would take 20 bytes more.
const MAX_PAYLOAD: usize = 65_507;

/// Socket receive buffer: 30 ms of 2 Gbit/s, which covers a worker's longest turn.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Socket send buffer: what the device has not taken yet. Small, as queues belong to the AQM.
const SEND_BUFFER: usize = 1 << 20;

/// Batches sent one by one after a device refused to segment, before it is asked again: routes
/// change, and asking costs one system call.
const GSO_HOLD_OFF: u32 = 4096;

/// Where an edge's socket for one link is bound.
#[derive(Clone, Copy, Debug)]
pub struct LinkBinding<'a> {
    /// The interface, which all packets leave and enter by.
    pub device: &'a str,
    /// Our address on it.
    pub address: IpAddr,
    /// The routing mark of the link, see [`crate::route`].
    pub mark: Option<u32>,
}

/// What became of a [`Transmit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes dealt with, from the front. Fewer than offered: the socket is full, offer the rest
    /// again when it is writable.
    pub bytes: usize,
    /// Datagrams among them that the kernel refused and that are therefore lost.
    pub refused: usize,
}

/// Why nothing of a [`Transmit`] was sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing can leave by this link now: it has no route, address, carrier or device. On a
    /// hub's listener: there is no way to this destination.
    #[error("link is down")]
    LinkDown(#[source] io::Error),
    /// The datagrams are larger than the link takes.
    #[error("packet too large for the link")]
    TooBig,
    /// Only these datagrams were refused, as by a firewall.
    #[error("packet refused")]
    Refused(#[source] io::Error),
}

/// A UDP socket that sends and receives in batches.
#[derive(Debug)]
pub struct LinkSocket {
    socket: Socket,
    envelopes: Box<[Envelope; sys::MESSAGES]>,
    local: SocketAddr,
    /// Bound to one device, so that errors tell about the link.
    bound: bool,
    gso_available: bool,
    /// Batches left to send without GSO.
    gso_hold_off: u32,
}

impl LinkSocket {
    /// The socket of one link of an edge, on a port that the kernel chooses.
    pub fn bind(binding: &LinkBinding<'_>) -> Result<Self, Error> {
        let socket = new_socket(binding.address)?;
        bind_to_link(&socket, binding)?;
        Self::finish(socket, true)
    }

    /// A hub's listener.
    pub fn listen(address: SocketAddr) -> Result<Self, Error> {
        Self::listen_marked(address, None)
    }

    fn listen_marked(address: SocketAddr, mark: Option<u32>) -> Result<Self, Error> {
        let socket = new_socket(address.ip())?;
        set_mark(&socket, mark)?;
        bind(&socket, address)?;
        Self::finish(socket, false)
    }

    /// Several listeners on one address, at least one; which of them gets a packet is said by octet
    /// number `octet` of the QUIC connection ID that it is addressed to (RFC 8999 §5), modulo their
    /// number. A packet without that octet goes to any of them.
    ///
    /// Packets received in one run have one sender, but perhaps several connection IDs: only the
    /// first of them is sure to be where it belongs.
    ///
    /// What they send has the routing mark `mark`.
    pub fn listen_steered(
        address: SocketAddr,
        listeners: usize,
        octet: usize,
        mark: Option<u32>,
    ) -> Result<Vec<Self>, Error> {
        let first = Self::listen_marked(address, mark)?;
        let address = first.local;
        let mut sockets = vec![first];
        for number in 1..listeners {
            let socket = new_socket(address.ip())?;
            set_mark(&socket, mark)?;
            let sharing = sockets[0].socket.set_reuse_port(true);
            sharing
                .and_then(|()| socket.set_reuse_port(true))
                .doing(|| format!("share {address}"))?;
            bind(&socket, address)?;
            // There is a group from the second socket on. Nobody else can join it: whoever binds
            // alone at first, as we did, is refused.
            if number == 1 {
                steering::attach(socket.as_fd(), listeners, octet)
                    .doing(|| format!("spread the packets of {address} over workers"))?;
            }
            sockets.push(Self::finish(socket, false)?);
        }
        Ok(sockets)
    }

    fn finish(socket: Socket, bound: bool) -> Result<Self, Error> {
        grow_buffers(&socket);
        let state = UdpSocketState::new((&socket).into())
            .doing(|| "set the options of a UDP socket".into())?;
        if let Err(error) = sys::stamp_received(socket.as_fd()) {
            tracing::debug!(%error, "the kernel does not say when datagrams arrive");
        }
        let local = socket
            .local_addr()
            .doing(|| "read a socket's address".into())?
            .as_socket()
            .expect("the socket was bound to an IP address");
        Ok(Self {
            gso_available: state.max_gso_segments().get() > 1,
            socket,
            envelopes: Box::new([Envelope::EMPTY; sys::MESSAGES]),
            local,
            bound,
            gso_hold_off: 0,
        })
    }

    /// The address and port this socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// How many datagrams of one size are worth putting into one [`Transmit`].
    pub fn max_segments(&self) -> usize {
        if self.gso_available { MAX_SEGMENTS } else { 1 }
    }

    /// Sends the datagrams of `transmit`, in as few system calls as the device allows.
    pub fn send(&mut self, transmit: &Transmit<'_>) -> Result<Sent, SendError> {
        self.send_marked(transmit, 0)
    }

    /// Sends the datagrams of `transmit` with this code point (RFC 2474) in their IP headers.
    pub fn send_marked(&mut self, transmit: &Transmit<'_>, dscp: u8) -> Result<Sent, SendError> {
        let segment = transmit
            .segment_size
            .unwrap_or(transmit.contents.len())
            .max(1);
        let destination = SockAddr::from(transmit.destination);
        let mut sent = Sent::default();
        let mut passed = 0;
        let mut refusal = None;
        let mut batching = self.may_batch();
        while sent.bytes < transmit.contents.len() {
            let rest = &transmit.contents[sent.bytes..];
            let datagrams = if batching { batch_of(segment) } else { 1 };
            let batch = &rest[..rest.len().min(datagrams * segment)];
            match self.send_batch((transmit, dscp), &destination, batch, segment) {
                Ok(()) => passed += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if batch.len() > segment && !is_link_down(&error) => {
                    self.note_refused_batch(&error);
                    batching = false;
                    continue;
                }
                Err(error) => match self.classify(error) {
                    down @ SendError::LinkDown(_) => return Err(down),
                    other => {
                        sent.refused += 1;
                        refusal = Some(other);
                    }
                },
            }
            sent.bytes += batch.len();
        }
        match refusal {
            Some(refusal) if passed == 0 => Err(refusal),
            _ => Ok(sent),
        }
    }

    /// Receives up to `bufs.len()` (at most [`BATCH_SIZE`]) runs of datagrams; 0 when there are
    /// none.
    ///
    /// Buffer `i` holds `metas[i].len` bytes: datagrams of `metas[i].stride` bytes, of which the
    /// last may be shorter, all from one sender with one ECN field.
    pub fn recv(
        &mut self,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let room = bufs.len().min(metas.len());
        let bufs = &mut bufs[..room];
        let count = loop {
            match sys::receive_messages(self.socket.as_fd(), bufs, &mut self.envelopes[..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                // What an ICMP error said about some earlier packet; reading it cleared it.
                Err(error) if is_about_an_earlier_packet(&error) => return Ok(0),
                received => break received?,
            }
        };
        for (meta, envelope) in metas.iter_mut().zip(&self.envelopes[..count]) {
            *meta = received::meta(envelope)
                .ok_or_else(|| io::Error::other("a datagram from no IP address"))?;
        }
        Ok(count)
    }

    /// Receives as many runs of datagrams as there are, at most [`BATCH_SIZE`]; they are to be
    /// taken out of `buffers` before the next call.
    pub fn recv_runs(&mut self, buffers: &mut ReceiveBuffers) -> io::Result<usize> {
        buffers.fill(|slices, metas| self.recv(slices, metas))
    }

    /// Datagrams lost so far because this socket's receive buffer was full; wraps around.
    pub fn receive_drops(&self) -> io::Result<u32> {
        sys::receive_drops(self.socket.as_fd())
    }

    fn may_batch(&mut self) -> bool {
        self.gso_hold_off = self.gso_hold_off.saturating_sub(1);
        self.gso_available && self.gso_hold_off == 0
    }

    fn send_batch(
        &self,
        (transmit, dscp): (&Transmit<'_>, u8),
        destination: &SockAddr,
        batch: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let mut control = Control::default();
        control.push_tos(transmit.destination.ip(), dscp, transmit.ecn);
        if batch.len() > segment {
            control.push_segment_size(segment as u16);
        }
        if let Some(source) = transmit.src_ip {
            control.push_source(source);
        }
        let slices = [IoSlice::new(batch)];
        let message = MsgHdr::new()
            .with_addr(destination)
            .with_buffers(&slices)
            .with_control(control.as_bytes());
        let mut excused = false;
        loop {
            match self.socket.sendmsg(&message, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !excused && is_about_an_earlier_packet(&error) => excused = true,
                outcome => return outcome.map(drop),
            }
        }
    }

    /// `EIO` is how a device without checksum offload refuses to segment.
    fn note_refused_batch(&mut self, error: &io::Error) {
        if error.raw_os_error() == Some(libc::EIO) {
            tracing::debug!(local = %self.local, "device cannot segment UDP, sending one by one");
            self.gso_hold_off = GSO_HOLD_OFF;
        }
    }

    fn classify(&self, error: io::Error) -> SendError {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => SendError::TooBig,
            // The source address is not ours any more.
            Some(libc::EINVAL) if self.bound => SendError::LinkDown(error),
            _ if is_link_down(&error) => SendError::LinkDown(error),
            _ => SendError::Refused(error),
        }
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for LinkSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Datagrams of `segment` bytes that one system call may carry.
fn batch_of(segment: usize) -> usize {
    (MAX_PAYLOAD / segment).clamp(1, MAX_SEGMENTS)
}

fn is_link_down(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EADDRNOTAVAIL
                | libc::ENODEV
                | libc::ENXIO
        )
    )
}

/// Pending errors that the kernel reports on the next call, whatever that call is about.
fn is_about_an_earlier_packet(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECONNREFUSED | libc::EPROTO | libc::ENOPROTOOPT)
    )
}

/// Makes a socket use the link, and nothing but the link.
pub(crate) fn bind_to_link(socket: &Socket, binding: &LinkBinding<'_>) -> Result<(), Error> {
    let device = binding.device;
    if let Some(helper) = helper::engaged() {
        let task = Task::BindToLink {
            device: device.into(),
            address: binding.address,
            mark: binding.mark,
        };
        return helper.ask(&task, Some(socket.as_fd()));
    }
    socket
        .bind_device(Some(device.as_bytes()))
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => Error::NoInterface(device.to_owned()),
            Some(libc::EPERM) => Error::NotPrivileged,
            _ => os_error(format!("bind a socket to {device}"), error),
        })?;
    set_mark(socket, binding.mark)?;
    let address = scoped(binding.address, device)?;
    socket
        .bind(&address.into())
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => Error::AddressMissing {
                device: device.to_owned(),
                address: binding.address,
            },
            _ => os_error(format!("bind a socket to {address} on {device}"), error),
        })
}

fn new_socket(address: IpAddr) -> Result<Socket, Error> {
    let domain = if address.is_ipv4() {
        Domain::IPV4
    } else {
        Domain::IPV6
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
        .doing(|| "open a UDP socket".into())?;
    if address.is_ipv6() {
        socket
            .set_only_v6(true)
            .doing(|| "keep IPv4 off an IPv6 socket".into())?;
    }
    Ok(socket)
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<(), Error> {
    socket
        .bind(&address.into())
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => Error::AddressInUse(address),
            _ => os_error(format!("listen on {address}"), error),
        })
}

/// A link-local address means something only together with its interface.
fn scoped(address: IpAddr, device: &str) -> Result<SocketAddr, Error> {
    match address {
        IpAddr::V6(address) if is_link_local(&address) => {
            let socket = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::DGRAM,
                None,
            )
            .doing(|| "open a UDP socket".into())?;
            let index = rustix::net::netdevice::name_to_index(&socket, device)
                .map_err(|_| Error::NoInterface(device.to_owned()))?;
            Ok(SocketAddrV6::new(address, 0, 0, index).into())
        }
        address => Ok(SocketAddr::new(address, 0)),
    }
}

pub(crate) fn is_link_local(address: &Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

pub(crate) fn set_mark(socket: &Socket, mark: Option<u32>) -> Result<(), Error> {
    if let (Some(helper), Some(mark)) = (helper::engaged(), mark) {
        return helper.ask(&Task::Mark(mark), Some(socket.as_fd()));
    }
    let marked = mark.map_or(Ok(()), |mark| socket.set_mark(mark));
    marked.doing(|| "mark the packets of a UDP socket".into())
}

/// Sets both buffers beyond the system's limit if we may, else up to it.
pub(crate) fn grow_buffers(socket: &Socket) {
    use rustix::net::sockopt;
    if let Some(helper) = helper::engaged() {
        if let Err(error) = helper.ask::<()>(&Task::GrowBuffers, Some(socket.as_fd())) {
            tracing::debug!(%error, "socket buffers stay at the system's default");
        }
        return;
    }
    let received = sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER)
        .map_err(io::Error::from)
        .or_else(|_| socket.set_recv_buffer_size(RECEIVE_BUFFER));
    let sent = sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER)
        .map_err(io::Error::from)
        .or_else(|_| socket.set_send_buffer_size(SEND_BUFFER));
    if let Err(error) = received.and(sent) {
        tracing::debug!(%error, "socket buffers stay at the system's default");
    }
}

fn os_error(doing: String, source: io::Error) -> Error {
    Error::Os { doing, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends three datagrams of 100 bytes to itself, and gives the length of the first run.
    fn first_run(socket: &mut LinkSocket) -> usize {
        let transmit = Transmit {
            destination: socket.local_addr(),
            ecn: None,
            contents: &[7; 300],
            segment_size: Some(100),
            src_ip: None,
        };
        socket.send(&transmit).unwrap();
        let mut buffers = [[0; 1000]; 4];
        let mut slices = buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        let mut metas = [RecvMeta::default(); 4];
        let runs = socket.recv(&mut slices, &mut metas).unwrap();
        assert_eq!(
            metas[..runs].iter().map(|meta| meta.len).sum::<usize>(),
            300
        );
        metas[0].len
    }

    #[test]
    fn a_device_that_refused_to_segment_is_asked_again_later() {
        let mut socket = LinkSocket::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(first_run(&mut socket), 300);

        socket.note_refused_batch(&io::Error::from_raw_os_error(libc::EIO));

        for _ in 1..GSO_HOLD_OFF {
            assert_eq!(first_run(&mut socket), 100);
        }
        assert_eq!(first_run(&mut socket), 300);
    }

    #[test]
    fn only_the_refusal_to_segment_is_remembered() {
        let mut socket = LinkSocket::listen("127.0.0.1:0".parse().unwrap()).unwrap();

        for code in [libc::EINVAL, libc::EMSGSIZE, libc::EPERM] {
            socket.note_refused_batch(&io::Error::from_raw_os_error(code));
        }

        assert_eq!(first_run(&mut socket), 300);
    }
}
