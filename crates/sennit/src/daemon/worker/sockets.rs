//! Everything of a worker that has a file descriptor: sockets and TUN devices.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_udp::EcnCodepoint;
use sennit_engine::{Local, Packet, Received, SocketId, Transmit};
use sennit_linux::{
    poller::{Interest, Poller},
    tun::{MAX_SLICES, OffloadTier, TUN_BUFFER, Tun},
    udp::{LinkSocket, ReceiveBuffers, Run, SendError},
};
use sennit_packet::{coalesce::Coalescer, gso::Tier};

use super::{Machine, moderation::Moved};
use crate::daemon::supervisor::Pulse;

/// Packets (or super-packets) read from a TUN device per turn, and their bytes: all that came since
/// the last turn, or it waits in the device, where there is no AQM, and in order.
pub(in crate::daemon) const TUN_READS: usize = 512;
const TUN_BYTES: usize = 8 << 20;
/// Receive calls per socket and turn, and their bytes: what is received in a turn leaves for the
/// host at its end, all of it as late as the last, and out of the caches if it is not too much for
/// them (docs/decisions/0015).
const SOCKET_READS: usize = 16;
const SOCKET_BYTES: usize = 768 << 10;
/// Batches that take longer than this to make and send are not made by the clock of before: it is
/// what a pacer lets through at a time.
pub(super) const LONG_STRETCH: Duration = Duration::from_millis(1);
/// The clock is read again at most this often in a turn: where the host is slower than the path,
/// each reading lets more leave.
const MOST_STRETCHES: u32 = 2;
/// Bytes kept for a socket whose kernel buffer is full; what the pacer lets through fits easily.
const UNSENT_LIMIT: usize = 1 << 20;
/// Tokens below this are the machine's own; sockets and devices come after it.
pub(super) const PULSE: u64 = (1 << 16) - 1;
pub(super) const FIRST_SOCKET: u64 = 1 << 16;
pub(super) const FIRST_TUN: u64 = 1 << 32;

/// A socket and what its kernel buffer had no room for.
struct Outlet {
    socket: LinkSocket,
    unsent: VecDeque<(Transmit, Bytes)>,
    unsent_bytes: usize,
    /// Why this host refused to send something lately.
    refused: Option<io::Error>,
}

/// One TUN device and the packets on their way to it.
struct Device {
    tun: Tun,
    coalescer: Coalescer,
    batch: Vec<Packet>,
    /// In this turn.
    was_written: bool,
}

/// Everything with a file descriptor.
pub(in crate::daemon) struct Io {
    pub(in crate::daemon) poller: Arc<Poller>,
    /// By socket number, IPv4 first; a link may have one of each family.
    outlets: Vec<[Option<Outlet>; 2]>,
    /// Numbers of sockets that lose all they send and receive; hardly ever is there one.
    cut: Vec<usize>,
    devices: Vec<Device>,
    received: ReceiveBuffers,
    /// A socket may have more than was read in this turn: that arrived after this.
    pub(super) unread: Option<Instant>,
    pub(super) moved: Moved,
    /// Where somebody asks for it.
    pub(super) pulse: Option<Arc<Pulse>>,
    tun_buffer: Box<[u8; TUN_BUFFER]>,
}

impl Io {
    pub(in crate::daemon) fn new(poller: Arc<Poller>) -> Self {
        Self {
            poller,
            outlets: Vec::new(),
            cut: Vec::new(),
            devices: Vec::new(),
            received: ReceiveBuffers::default(),
            unread: None,
            moved: Moved::default(),
            pulse: None,
            tun_buffer: Box::new([0; TUN_BUFFER]),
        }
    }

    /// From now on the loop answers when it is asked for a sign of life.
    pub(super) fn open_pulse(&mut self) -> io::Result<Arc<Pulse>> {
        let pulse = Arc::new(Pulse::new(&self.poller, PULSE)?);
        self.pulse = Some(Arc::clone(&pulse));
        Ok(pulse)
    }

    /// Puts a socket in place of the one with the same number and family, if there is one.
    pub(in crate::daemon) fn set_socket(
        &mut self,
        id: SocketId,
        family_of: IpAddr,
        socket: Option<LinkSocket>,
    ) -> io::Result<()> {
        let (index, family) = (id.0 as usize, family(family_of));
        if self.outlets.len() <= index {
            self.outlets.resize_with(index + 1, || [None, None]);
        }
        let place = &mut self.outlets[index][family];
        if let Some(old) = place.take() {
            self.poller.remove(&old.socket)?;
        }
        if let Some(socket) = socket {
            self.poller
                .add(&socket, socket_token(index, family), Interest::Read)?;
            *place = Some(Outlet {
                socket,
                unsent: VecDeque::new(),
                unsent_bytes: 0,
                refused: None,
            });
        }
        Ok(())
    }

    /// Has a socket lose all that it sends and receives, or no more.
    pub(in crate::daemon) fn set_cut(&mut self, id: SocketId, cut: bool) {
        let index = id.0 as usize;
        self.cut.retain(|&other| other != index);
        if cut {
            self.cut.push(index);
        }
    }

    pub(in crate::daemon) fn is_cut(&self, index: usize) -> bool {
        !self.cut.is_empty() && self.cut.contains(&index)
    }

    /// The address that the socket is bound to.
    pub(in crate::daemon) fn socket_address(
        &self,
        id: SocketId,
        family_of: IpAddr,
    ) -> Option<SocketAddr> {
        let outlet = self.outlets.get(id.0 as usize)?[family(family_of)].as_ref()?;
        Some(outlet.socket.local_addr())
    }

    /// Why this host refused to send packets of a socket since the last call, as by its firewall.
    pub(in crate::daemon) fn take_refusals(
        &mut self,
    ) -> impl Iterator<Item = (SocketId, io::Error)> + '_ {
        self.outlets
            .iter_mut()
            .enumerate()
            .flat_map(|(index, families)| {
                let refused = families.iter_mut().flatten();
                let refused = refused.filter_map(|outlet| outlet.refused.take());
                refused.map(move |error| (SocketId(index as u32), error))
            })
    }

    /// Adds a TUN device; its number is how many there were.
    pub(in crate::daemon) fn add_tun(&mut self, tun: Tun) -> io::Result<()> {
        let token = FIRST_TUN + self.devices.len() as u64;
        self.poller.add(&tun, token, Interest::Read)?;
        let tier = match tun.tier() {
            OffloadTier::None => Tier::None,
            OffloadTier::Tso => Tier::Tso,
            OffloadTier::TsoUso => Tier::TsoUso,
        };
        let coalescer = Coalescer::new(tier);
        self.devices.push(Device {
            tun,
            coalescer,
            batch: Vec::with_capacity(256),
            was_written: false,
        });
        Ok(())
    }

    pub(super) fn read_socket(&mut self, token: u64, machine: &mut impl Machine) {
        let (index, family) = socket_place(token);
        let is_cut = self.is_cut(index);
        let mut taken = 0;
        let mut newest = None;
        for _ in 0..SOCKET_READS {
            let Some(outlet) = self.outlets.get_mut(index).and_then(|o| o[family].as_mut()) else {
                return;
            };
            let count = match outlet.socket.recv_runs(&mut self.received) {
                Ok(count) => count,
                Err(error) => {
                    tracing::debug!(socket = index, %error, "cannot receive");
                    return;
                }
            };
            // A socket of many addresses must answer from the one that was asked.
            let many = outlet.socket.local_addr().ip().is_unspecified();
            for run in 0..count {
                let Run {
                    meta,
                    data,
                    arrived,
                    read,
                } = self.received.take(run);
                taken += data.len();
                newest = Some(arrived);
                self.moved.count(data.len());
                if is_cut {
                    continue;
                }
                let ip = meta.dst_ip.filter(|_| many);
                let from = Received {
                    local: Local {
                        socket: SocketId(index as u32),
                        ip,
                    },
                    remote: meta.addr,
                    ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
                    segment: meta.stride,
                    arrived,
                };
                machine.handle_datagrams(from, data, read);
            }
            if !self.received.is_full() {
                return;
            }
            if taken >= SOCKET_BYTES {
                break;
            }
        }
        self.unread = earlier(self.unread, newest);
    }

    /// Reads what a device has, and says whether that is anything.
    pub(super) fn read_tun(
        &mut self,
        number: usize,
        machine: &mut impl Machine,
    ) -> io::Result<bool> {
        let Some(device) = self.devices.get_mut(number) else {
            return Ok(false);
        };
        let now = Instant::now();
        let mut taken = 0;
        for _ in 0..TUN_READS {
            if taken >= TUN_BYTES {
                break;
            }
            match device.tun.recv(&mut self.tun_buffer[..]) {
                Ok(Some((header, len))) => {
                    taken += len;
                    machine.handle_packet(number, &header, &self.tun_buffer[..len], now);
                }
                Ok(None) => break,
                Err(error) if Tun::is_gone(&error) => {
                    return Err(io::Error::other("its TUN device was deleted"));
                }
                Err(error) => {
                    tracing::debug!(device = number, %error, "cannot read a packet");
                    break;
                }
            }
        }
        Ok(taken > 0)
    }

    /// Reads again the devices that were written to, and says whether one had anything.
    pub(super) fn read_answers(&mut self, machine: &mut impl Machine) -> io::Result<bool> {
        let mut any = false;
        for number in 0..self.devices.len() {
            if self.devices[number].was_written {
                any |= self.read_tun(number, machine)?;
            }
        }
        Ok(any)
    }

    /// Writes all packets that the machine has for the host.
    pub(super) fn write_tuns(&mut self, machine: &mut impl Machine, now: Instant) {
        while let Some((number, packet)) = machine.poll_packet(now) {
            if let Some(device) = self.devices.get_mut(number) {
                device.batch.push(packet);
            }
        }
        for device in &mut self.devices {
            device.was_written = !device.batch.is_empty();
            if device.was_written {
                device.flush();
            }
        }
    }

    /// Sends every batch that `poll` puts into `buffer`.
    pub(in crate::daemon) fn flush_transmits(
        &mut self,
        mut poll: impl FnMut(&mut Vec<u8>) -> Option<Transmit>,
        buffer: &mut Vec<u8>,
    ) {
        while let Some(transmit) = poll(buffer) {
            self.moved.count(buffer.len());
            self.send(&transmit, buffer);
            buffer.clear();
        }
    }

    /// Sends all that the machine has to send now.
    pub(super) fn flush(&mut self, machine: &mut impl Machine, buffer: &mut Vec<u8>) {
        let mut now = Instant::now();
        let mut stretches = 0;
        self.flush_transmits(
            |buffer| {
                if stretches < MOST_STRETCHES && now.elapsed() >= LONG_STRETCH {
                    now = Instant::now();
                    stretches += 1;
                }
                machine.poll_transmit(buffer, now)
            },
            buffer,
        );
    }

    fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let (index, family) = (
            transmit.local.socket.0 as usize,
            family(transmit.remote.ip()),
        );
        if self.is_cut(index) {
            return;
        }
        let Some(outlet) = self.outlets.get_mut(index).and_then(|o| o[family].as_mut()) else {
            return;
        };
        let sent = if outlet.unsent.is_empty() {
            outlet.offer(transmit, bytes)
        } else {
            0
        };
        if sent < bytes.len() && outlet.unsent_bytes < UNSENT_LIMIT {
            let was_empty = outlet.unsent.is_empty();
            outlet.unsent_bytes += bytes.len() - sent;
            outlet
                .unsent
                .push_back((*transmit, Bytes::copy_from_slice(&bytes[sent..])));
            if was_empty {
                self.watch(index, family, Interest::ReadWrite);
            }
        }
    }

    /// A socket has room again.
    pub(super) fn resume(&mut self, token: u64) {
        let (index, family) = socket_place(token);
        let Some(outlet) = self.outlets.get_mut(index).and_then(|o| o[family].as_mut()) else {
            return;
        };
        while let Some((transmit, mut bytes)) = outlet.unsent.pop_front() {
            let sent = outlet.offer(&transmit, &bytes);
            outlet.unsent_bytes -= sent;
            let _ = bytes.split_to(sent);
            if !bytes.is_empty() {
                outlet.unsent.push_front((transmit, bytes));
                return;
            }
        }
        self.watch(index, family, Interest::Read);
    }

    fn watch(&self, index: usize, family: usize, interest: Interest) {
        let Some(Some(outlet)) = self.outlets.get(index).map(|o| o[family].as_ref()) else {
            return;
        };
        if let Err(error) =
            self.poller
                .modify(&outlet.socket, socket_token(index, family), interest)
        {
            tracing::warn!(socket = index, %error, "cannot watch a socket");
        }
    }
}

impl Outlet {
    /// Sends a batch; returns how many bytes need not be sent again.
    fn offer(&mut self, transmit: &Transmit, bytes: &[u8]) -> usize {
        let message = noq_udp::Transmit {
            destination: transmit.remote,
            ecn: EcnCodepoint::from_bits(transmit.ecn),
            contents: bytes,
            segment_size: transmit.segment,
            src_ip: transmit.local.ip,
        };
        match self.socket.send_marked(&message, transmit.dscp) {
            Ok(sent) => sent.bytes,
            Err(SendError::Refused(error)) => {
                tracing::trace!(remote = %transmit.remote, %error, "refused");
                self.refused = Some(error);
                bytes.len()
            }
            Err(SendError::LinkDown(error)) => {
                tracing::trace!(remote = %transmit.remote, %error, "not sent");
                bytes.len()
            }
            Err(SendError::TooBig) => {
                tracing::trace!(remote = %transmit.remote, "too large for the link");
                bytes.len()
            }
        }
    }
}

impl Device {
    /// Writes the batch.
    fn flush(&mut self) {
        for write in self
            .coalescer
            .coalesce_by(&self.batch, |packet| packet.checksum)
        {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let pieces = std::iter::once(write.head()).chain(write.payloads());
            let mut count = 0;
            for (slice, piece) in slices
                .iter_mut()
                .zip(pieces.filter(|piece| !piece.is_empty()))
            {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            // A device that is full drops, as any interface does; a refused packet costs no other.
            if let Err(error) = self.tun.send(write.header(), &slices[..count]) {
                tracing::debug!(%error, "the host refused a packet");
            }
        }
        self.batch.clear();
    }
}

/// The earlier of two instants, of which one may not be known.
pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

pub(super) fn socket_token(index: usize, family: usize) -> u64 {
    FIRST_SOCKET + 2 * index as u64 + family as u64
}

fn socket_place(token: u64) -> (usize, usize) {
    let place = (token - FIRST_SOCKET) as usize;
    (place / 2, place % 2)
}

fn family(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}
