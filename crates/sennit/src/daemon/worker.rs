//! The loop: a thread that owns sockets, TUN devices and a state machine.
//!
//! Every turn reads what is ready (bounded, so that neither side starves the other), lets the
//! machine digest it, writes what came out, and sleeps until there is more or the machine wants to
//! be woken.
//!
//! # What time it is
//!
//! A turn may take long, and the thread may be held up at any point of it. A round trip is the time
//! of an arrival less the time of a departure, and the least one steers everything: one sample too
//! short does harm for long, one too long is one among many. So:
//!
//! | what happens | is told to the machine as | if the thread is held up |
//! | --- | --- | --- |
//! | datagrams arrive | when the kernel got them, at most 50 ms ago | nothing changes |
//! | datagrams leave | the clock before the machine made them | round trips seem too long |
//! | anything else | the clock just before | the queue is older than it seems |
//!
//! When the kernel got a run of datagrams is in [`Run::arrived`](sennit_linux::udp::Run).
//! Nothing ever lies in the future, and no departure is later than it says. Departures are made in
//! many batches, so the clock is read again when making them has taken long; but not for ever,
//! because each reading lets more leave. Arrivals are told in the order in which they are read,
//! which is that of each socket but not of several; and some are older than what the machine was
//! told last. It takes both, as QUIC does: what it compares are an arrival and a departure, or
//! arrivals of one path. As long as a socket has more than was read, timers do not run ahead of it:
//! what they wait for may be in there.

mod moderation;
mod stop;

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    num::NonZeroU64,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_udp::EcnCodepoint;
use sennit_engine::{Local, Packet, Received, SocketId, Transmit};
use sennit_linux::{
    memory,
    poller::{Events, Interest, Poller, Ready, set_timer_slack},
    tun::{MAX_SLICES, OffloadTier, TUN_BUFFER, Tun},
    udp::{LinkSocket, ReceiveBuffers, Run, SendError},
};
use sennit_packet::{
    coalesce::Coalescer,
    gso::{Tier, VirtioNetHdr},
};

use super::{
    confinement,
    supervisor::{self, Pulse},
};
use moderation::{Moderation, Moved};
pub(super) use stop::{Lifeline, Stop};

/// Packets (or super-packets) read from a TUN device per turn, and their bytes: all that came since
/// the last turn, or it waits in the device, where there is no AQM, and in order.
pub(super) const TUN_READS: usize = 512;
const TUN_BYTES: usize = 8 << 20;
/// Receive calls per socket and turn, and their bytes: what is received in a turn leaves for the
/// host at its end, all of it as late as the last, and out of the caches if it is not too much for
/// them (docs/decisions/0015).
const SOCKET_READS: usize = 16;
const SOCKET_BYTES: usize = 768 << 10;
/// Batches that take longer than this to make and send are not made by the clock of before: it is
/// what a pacer lets through at a time.
const LONG_STRETCH: Duration = Duration::from_millis(1);
/// The clock is read again at most this often in a turn: where the host is slower than the path,
/// each reading lets more leave.
const MOST_STRETCHES: u32 = 2;
/// Bytes kept for a socket whose kernel buffer is full; what the pacer lets through fits easily.
const UNSENT_LIMIT: usize = 1 << 20;
/// The kernel may delay our timers by this much; pacing works in steps of a millisecond.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(20_000).expect("20 µs is not zero");
/// Events taken per sleep.
const EVENTS: usize = 64;
/// Tokens below this are the machine's own; sockets and devices come after it.
const PULSE: u64 = (1 << 16) - 1;
const FIRST_SOCKET: u64 = 1 << 16;
const FIRST_TUN: u64 = 1 << 32;

/// The state machine with its events turned into deeds.
pub(super) trait Machine {
    /// Whether it writes files of the state directory.
    const WRITES: bool = false;

    /// A run of datagrams that is read now.
    fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant);
    fn handle_packet(&mut self, tun: usize, header: &VirtioNetHdr, packet: &[u8], now: Instant);
    fn handle_timeout(&mut self, now: Instant);
    /// A descriptor of the machine's own is ready.
    fn handle_ready(&mut self, token: u64, io: &mut Io, now: Instant);
    /// Lets the state machine digest its input and does what its events ask for.
    fn digest(&mut self, io: &mut Io, now: Instant);
    /// A packet for the TUN device with this number.
    fn poll_packet(&mut self, now: Instant) -> Option<(usize, Packet)>;
    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit>;
    fn poll_timeout(&self) -> Option<Instant>;
    /// How many tunnels it serves.
    fn tunnels(&self) -> usize;
    /// Says goodbye to the peers.
    fn close(&mut self, now: Instant);
}

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
pub(super) struct Io {
    pub(super) poller: Arc<Poller>,
    /// By socket number, IPv4 first; a link may have one of each family.
    outlets: Vec<[Option<Outlet>; 2]>,
    /// Numbers of sockets that lose all they send and receive; hardly ever is there one.
    cut: Vec<usize>,
    devices: Vec<Device>,
    received: ReceiveBuffers,
    /// A socket may have more than was read in this turn: that arrived after this.
    unread: Option<Instant>,
    moved: Moved,
    /// Where somebody asks for it.
    pulse: Option<Arc<Pulse>>,
    tun_buffer: Box<[u8; TUN_BUFFER]>,
}

impl Io {
    pub(super) fn new(poller: Arc<Poller>) -> Self {
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
    fn open_pulse(&mut self) -> io::Result<Arc<Pulse>> {
        let pulse = Arc::new(Pulse::new(&self.poller, PULSE)?);
        self.pulse = Some(Arc::clone(&pulse));
        Ok(pulse)
    }

    /// Puts a socket in place of the one with the same number and family, if there is one.
    pub(super) fn set_socket(
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
    pub(super) fn set_cut(&mut self, id: SocketId, cut: bool) {
        let index = id.0 as usize;
        self.cut.retain(|&other| other != index);
        if cut {
            self.cut.push(index);
        }
    }

    fn is_cut(&self, index: usize) -> bool {
        !self.cut.is_empty() && self.cut.contains(&index)
    }

    /// The address that the socket is bound to.
    pub(super) fn socket_address(&self, id: SocketId, family_of: IpAddr) -> Option<SocketAddr> {
        let outlet = self.outlets.get(id.0 as usize)?[family(family_of)].as_ref()?;
        Some(outlet.socket.local_addr())
    }

    /// Why this host refused to send packets of a socket since the last call, as by its firewall.
    pub(super) fn take_refusals(&mut self) -> impl Iterator<Item = (SocketId, io::Error)> + '_ {
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
    pub(super) fn add_tun(&mut self, tun: Tun) -> io::Result<()> {
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

    fn read_socket(&mut self, token: u64, machine: &mut impl Machine) {
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
    fn read_tun(&mut self, number: usize, machine: &mut impl Machine) -> io::Result<bool> {
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
    fn read_answers(&mut self, machine: &mut impl Machine) -> io::Result<bool> {
        let mut any = false;
        for number in 0..self.devices.len() {
            if self.devices[number].was_written {
                any |= self.read_tun(number, machine)?;
            }
        }
        Ok(any)
    }

    /// Writes all packets that the machine has for the host.
    fn write_tuns(&mut self, machine: &mut impl Machine, now: Instant) {
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
    pub(super) fn flush_transmits(
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
    fn flush(&mut self, machine: &mut impl Machine, buffer: &mut Vec<u8>) {
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
    fn resume(&mut self, token: u64) {
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

/// A machine and what it works with.
pub(super) struct Worker<M> {
    pub(super) machine: M,
    pub(super) io: Io,
}

/// Runs all workers of a daemon, each on a thread of its own that gives up all rights; when one
/// ends, so do the others.
///
/// # Errors
/// If one of them fails or panics.
pub(super) fn run_all<M: Machine + Send>(workers: &mut [Worker<M>], stop: &Stop) -> io::Result<()> {
    memory::keep_freed();
    let pulses = match supervisor::limit() {
        Some(_) => workers.iter_mut().map(|it| it.io.open_pulse()).collect(),
        None => Ok(Vec::new()),
    };
    let _attendance = supervisor::attend(pulses?)?;
    let work = |worker: &mut Worker<M>| {
        let _lifeline = stop.lifeline();
        confinement::confine_worker(M::WRITES);
        let outcome = run(&mut worker.machine, &mut worker.io, stop);
        stop.request();
        outcome
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut failure = None;
        for (number, worker) in (0..).zip(workers) {
            let thread = thread::Builder::new().name(format!("worker-{number}"));
            match thread.spawn_scoped(scope, move || work(worker)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.request();
                    failure = Some(Err(error));
                }
            }
        }
        let panicked = |_| Err(io::Error::other("a worker panicked"));
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked));
        failure.into_iter().chain(ended).fold(Ok(()), Result::and)
    })
}

/// Runs until it is told to stop.
///
/// # Errors
/// If the poller fails, a TUN device is taken away, or a thread with a [`Lifeline`] panics.
fn run(machine: &mut impl Machine, io: &mut Io, stop: &Stop) -> io::Result<()> {
    set_timer_slack(TIMER_SLACK)?;
    let mut events = Events::with_capacity(EVENTS);
    let mut buffer = Vec::with_capacity(1 << 16);
    let mut moderation = Moderation::of_this_thread(Instant::now());
    while !stop.is_requested() {
        let now = Instant::now();
        moderation.look(io.moved, machine.tunnels(), now);
        // What was left over goes on at once.
        let rest = io.unread.take().is_some() || machine.poll_timeout().is_some_and(|at| at <= now);
        if !rest && let Some(pause) = moderation.pause(now) {
            thread::sleep(pause);
        }
        let timeout = machine
            .poll_timeout()
            .map(|at| at.saturating_duration_since(Instant::now()));
        io.poller.clone().wait(&mut events, timeout)?;
        for ready in events.iter() {
            dispatch(ready, machine, io)?;
        }
        let heard_until = io.unread.unwrap_or_else(Instant::now);
        if machine.poll_timeout().is_some_and(|at| at <= heard_until) {
            machine.handle_timeout(heard_until);
        }
        settle(machine, io, moderation.is_rare())?;
        io.flush(machine, &mut buffer);
    }
    machine.close(Instant::now());
    settle(machine, io, false)?;
    io.flush(machine, &mut buffer);
    if stop.has_panicked() {
        return Err(io::Error::other("a thread of the daemon panicked"));
    }
    Ok(())
}

/// The earlier of two instants, of which one may not be known.
fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

fn socket_token(index: usize, family: usize) -> u64 {
    FIRST_SOCKET + 2 * index as u64 + family as u64
}

fn socket_place(token: u64) -> (usize, usize) {
    let place = (token - FIRST_SOCKET) as usize;
    (place / 2, place % 2)
}

fn family(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

fn dispatch(ready: Ready, machine: &mut impl Machine, io: &mut Io) -> io::Result<()> {
    match ready.token {
        FIRST_TUN.. => {
            io.read_tun((ready.token - FIRST_TUN) as usize, machine)?;
        }
        FIRST_SOCKET.. => {
            if ready.writable {
                io.resume(ready.token);
            }
            if ready.readable {
                io.read_socket(ready.token, machine);
            }
        }
        PULSE => io.pulse.iter().for_each(|pulse| pulse.answer()),
        own => machine.handle_ready(own, io, Instant::now()),
    }
    Ok(())
}

/// Lets the machine digest what came, and hands the host what came out for it. The host answers at
/// once to much of that; where turns are rare its answers are not left to the next, which otherwise
/// is larger for them.
fn settle(machine: &mut impl Machine, io: &mut Io, takes_answers: bool) -> io::Result<()> {
    let now = Instant::now();
    machine.digest(io, now);
    io.write_tuns(machine, now);
    if takes_answers && io.read_answers(machine)? {
        let now = Instant::now();
        machine.digest(io, now);
        io.write_tuns(machine, now);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
