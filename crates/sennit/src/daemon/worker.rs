//! The loop: a thread that owns sockets, TUN devices and a state machine.
//!
//! Every turn reads what is ready (bounded, so that neither side starves the other), lets the
//! machine digest it, writes what came out, and sleeps until there is more or the machine wants to
//! be woken. The clock is read once per turn.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_udp::EcnCodepoint;
use sennit_engine::{Local, Packet, Received, SocketId, Transmit};
use sennit_linux::{
    memory,
    poller::{Events, Interest, Poller, Ready, Waker, set_timer_slack},
    priority::Priority,
    tun::{MAX_SLICES, OffloadTier, TUN_BUFFER, Tun},
    udp::{LinkSocket, ReceiveBuffers, SendError},
    waits::{Spent, Waits},
};
use sennit_packet::{
    coalesce::Coalescer,
    gso::{Tier, VirtioNetHdr},
};

/// Packets (or super-packets) read from a TUN device per turn, and their bytes: all that came since the
/// last turn, or it waits in the device, where there is no AQM, and in order.
pub(super) const TUN_READS: usize = 512;
const TUN_BYTES: usize = 8 << 20;
/// Receive calls per socket and turn, and their bytes: what is received in a turn leaves for the host at its
/// end, all of it as late as the last, and out of the caches if it is not too much for them.
const SOCKET_READS: usize = 16;
const SOCKET_BYTES: usize = 768 << 10;
/// Bytes kept for a socket whose kernel buffer is full; what the pacer lets through fits easily.
const UNSENT_LIMIT: usize = 1 << 20;
/// The kernel may delay our timers by this much; pacing works in steps of a millisecond.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(20_000).expect("20 µs is not zero");
/// Events taken per sleep.
const EVENTS: usize = 64;
/// Turns that may follow each other at once, and how often another is allowed. Under load packets
/// would otherwise arrive one by one, each at the price of a whole turn; a ping does not notice.
const TURNS: u32 = 8;
const TURN_EVERY: Duration = Duration::from_millis(1);
/// Where the host is short of processors they become rarer, up to this, if little flows: a turn costs the same
/// whatever it moves.
const LONG_TURN: Duration = Duration::from_millis(8);
/// It is short of them if a thread waits for one for this part of the time, and so many times as long as it runs.
const WAITS: f64 = 0.05;
const WAITS_PER_RUN: f64 = 2.5;
/// It is not any more if the thread waits for less than this part of that.
const CALM: f64 = 0.4;
/// Bytes per second that are little.
const LITTLE: f64 = 8e6;
/// It is very short of them if the thread has waited so many times as long as it ran for a while; turns become as rare
/// as this then, which costs some of a link's rate, but less than what is spent on turns.
const LONG_WAITS_PER_RUN: f64 = 4.5;
const LONGEST_TURN: Duration = Duration::from_millis(16);
/// With each look, what was seen before counts as so much less: the last half second tells.
const FADES: f64 = 0.8;
/// Where a thread serves so many tunnels, runs much and still moves little at a time, they become rarer sooner:
const MANY: usize = 8;
/// if it waits so many times as long as it runs;
const WAITS_PER_MUCH: f64 = 1.25;
/// and these are the bytes that are little at a time, where turns are a millisecond apart.
const SLIVER: f64 = 4096.0;
/// A thread that runs for this part of the time, or waits for so long as to say that the host is short, goes
/// ahead of other programs. Otherwise it might as well wait: what they send then leaves in larger runs.
const RUNS: f64 = 0.25;
/// How often all of this is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tokens below this are the machine's own; sockets and devices come after it.
const FIRST_SOCKET: u64 = 1 << 16;
const FIRST_TUN: u64 = 1 << 32;

/// The state machine with its events turned into deeds.
pub(super) trait Machine {
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

/// A request to end all loops of a daemon, from a signal handler or another thread.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    requested: Arc<AtomicBool>,
    panicked: Arc<AtomicBool>,
    wakers: Arc<[Waker]>,
}

/// Ends the loops, as a failure, if the thread that holds this panics: no daemon goes on half-dead.
#[derive(Debug)]
pub(super) struct Lifeline(Stop);

impl Drop for Lifeline {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.panicked.store(true, Ordering::Release);
            self.0.request();
        }
    }
}

impl Stop {
    /// One waker for each loop.
    pub(super) fn new(wakers: Vec<Waker>) -> Self {
        Self {
            requested: Arc::default(),
            panicked: Arc::default(),
            wakers: wakers.into(),
        }
    }

    /// For a thread that the daemon cannot do without.
    pub(super) fn lifeline(&self) -> Lifeline {
        Lifeline(self.clone())
    }

    pub(super) fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

/// A socket and what its kernel buffer had no room for.
struct Outlet {
    socket: LinkSocket,
    unsent: VecDeque<(Transmit, Bytes)>,
    unsent_bytes: usize,
}

/// One TUN device and the packets on their way to it.
struct Device {
    tun: Tun,
    coalescer: Coalescer,
    batch: Vec<Packet>,
}

/// What went through sockets, ever.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: u64,
    /// Runs of packets that were received or sent at once, of or to one peer.
    runs: u64,
}

impl Moved {
    fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.runs += 1;
    }

    fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            runs: self.runs - before.runs,
        }
    }
}

/// Everything with a file descriptor.
pub(super) struct Io {
    pub(super) poller: Arc<Poller>,
    /// By socket number, IPv4 first; a link may have one of each family.
    outlets: Vec<[Option<Outlet>; 2]>,
    devices: Vec<Device>,
    received: ReceiveBuffers,
    /// A socket may have more than was read in this turn.
    unread: bool,
    moved: Moved,
    tun_buffer: Box<[u8; TUN_BUFFER]>,
}

impl Io {
    pub(super) fn new(poller: Arc<Poller>) -> Self {
        Self {
            poller,
            outlets: Vec::new(),
            devices: Vec::new(),
            received: ReceiveBuffers::default(),
            unread: false,
            moved: Moved::default(),
            tun_buffer: Box::new([0; TUN_BUFFER]),
        }
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
            });
        }
        Ok(())
    }

    /// The address that the socket is bound to.
    pub(super) fn socket_address(&self, id: SocketId, family_of: IpAddr) -> Option<SocketAddr> {
        let outlet = self.outlets.get(id.0 as usize)?[family(family_of)].as_ref()?;
        Some(outlet.socket.local_addr())
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
        });
        Ok(())
    }

    fn read_socket(&mut self, token: u64, machine: &mut impl Machine, now: Instant) {
        let (index, family) = socket_place(token);
        let mut taken = 0;
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
                let (meta, data) = self.received.take(run);
                taken += data.len();
                self.moved.count(data.len());
                let ip = meta.dst_ip.filter(|_| many);
                let from = Received {
                    local: Local {
                        socket: SocketId(index as u32),
                        ip,
                    },
                    remote: meta.addr,
                    ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
                    segment: meta.stride,
                };
                machine.handle_datagrams(from, data, now);
            }
            if !self.received.is_full() {
                return;
            }
            if taken >= SOCKET_BYTES {
                break;
            }
        }
        self.unread = true;
    }

    fn read_tun(
        &mut self,
        number: usize,
        machine: &mut impl Machine,
        now: Instant,
    ) -> io::Result<()> {
        let Some(device) = self.devices.get_mut(number) else {
            return Ok(());
        };
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
        Ok(())
    }

    /// Writes all packets that the machine has for the host.
    fn write_tuns(&mut self, machine: &mut impl Machine, now: Instant) {
        while let Some((number, packet)) = machine.poll_packet(now) {
            if let Some(device) = self.devices.get_mut(number) {
                device.batch.push(packet);
            }
        }
        for device in self
            .devices
            .iter_mut()
            .filter(|device| !device.batch.is_empty())
        {
            device.flush();
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

    fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let (index, family) = (
            transmit.local.socket.0 as usize,
            family(transmit.remote.ip()),
        );
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
        match self.socket.send(&message) {
            Ok(sent) => sent.bytes,
            Err(SendError::LinkDown(error) | SendError::Refused(error)) => {
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

/// Runs all workers of a daemon, the first of them on this thread; when one ends, so do the others.
///
/// # Errors
/// If one of them fails or panics.
pub(super) fn run_all<M: Machine + Send>(workers: &mut [Worker<M>], stop: &Stop) -> io::Result<()> {
    memory::keep_freed();
    let work = |worker: &mut Worker<M>| {
        let _lifeline = stop.lifeline();
        let outcome = run(&mut worker.machine, &mut worker.io, stop);
        stop.request();
        outcome
    };
    let (first, others) = workers.split_first_mut().expect("a daemon has a worker");
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut failure = None;
        for (number, worker) in (1..).zip(others) {
            let thread = thread::Builder::new().name(format!("worker-{number}"));
            match thread.spawn_scoped(scope, move || work(worker)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.request();
                    failure = Some(Err(error));
                }
            }
        }
        let own = work(first);
        let panicked = |_| Err(io::Error::other("a worker panicked"));
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked));
        failure.into_iter().chain(ended).fold(own, Result::and)
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
    let mut now = Instant::now();
    let mut moderation = Moderation::of_this_thread(now);
    while !stop.is_requested() {
        moderation.look(io.moved, machine.tunnels(), now);
        // What was left over goes on at once.
        let rest =
            std::mem::take(&mut io.unread) || machine.poll_timeout().is_some_and(|at| at <= now);
        if !rest && let Some(pause) = moderation.pause(now) {
            thread::sleep(pause);
        }
        let timeout = machine
            .poll_timeout()
            .map(|at| at.saturating_duration_since(now));
        io.poller.clone().wait(&mut events, timeout)?;
        now = Instant::now();
        for ready in events.iter() {
            dispatch(ready, machine, io, now)?;
        }
        if machine.poll_timeout().is_some_and(|at| at <= now) {
            machine.handle_timeout(now);
        }
        settle(machine, io, &mut buffer, now);
    }
    machine.close(now);
    settle(machine, io, &mut buffer, now);
    if stop.panicked.load(Ordering::Acquire) {
        return Err(io::Error::other("a thread of the daemon panicked"));
    }
    Ok(())
}

/// Limits how often the loop turns, and says when it must not wait for other programs.
struct Moderation {
    every: Duration,
    /// When all turns that were taken are paid for.
    paid_at: Instant,
    waits: Option<Waits>,
    priority: Option<Priority>,
    /// When it was last seen whether the host is short of processors, and what was moved until then.
    looked: (Instant, Moved),
    /// What was spent lately ([`FADES`]).
    lately: Spent,
}

impl Moderation {
    fn of_this_thread(now: Instant) -> Self {
        let waits = Waits::of_this_thread().inspect_err(
            |error| tracing::debug!(%error, "not known whether the host is short of processors"),
        );
        Self {
            every: TURN_EVERY,
            paid_at: now,
            waits: waits.ok(),
            priority: Priority::of_this_thread().unwrap_or_default(),
            looked: (now, Moved::default()),
            lately: Spent::default(),
        }
    }

    /// Accounts for one turn, and says how long to wait before it.
    fn pause(&mut self, now: Instant) -> Option<Duration> {
        self.paid_at = self.paid_at.max(now) + self.every;
        let ahead = self.paid_at - now;
        ahead.checked_sub(self.every * TURNS)
    }

    /// Sees whether the host is short of processors, when it is time to; `moved` is all until now.
    fn look(&mut self, moved: Moved, tunnels: usize, now: Instant) {
        let (at, before) = self.looked;
        let passed = now.saturating_duration_since(at);
        if passed < LOOK_EVERY {
            return;
        }
        self.looked = (now, moved);
        let Some(Ok(spent)) = self.waits.as_mut().map(Waits::spent) else {
            return;
        };
        let moved = moved.since(before);
        self.lately.ran = self.lately.ran.mul_f64(FADES) + spent.ran;
        self.lately.waited = self.lately.waited.mul_f64(FADES) + spent.waited;
        let longest = longest_turn(self.lately);
        self.every = next_turn(self.every, longest, spent, moved, tunnels, passed);
        if let Some(priority) = &mut self.priority
            && let Err(error) = priority.put_ahead(is_pressed(spent, passed))
        {
            tracing::debug!(%error, "packets wait for other programs where processors are short");
            self.priority = None;
        }
    }
}

/// Whether a thread that spent this of the time that passed should not wait for other programs.
fn is_pressed(spent: Spent, passed: Duration) -> bool {
    spent.ran > passed.mul_f64(RUNS) || spent.waited > passed.mul_f64(WAITS)
}

/// How far apart turns are at most, where little flows.
fn longest_turn(lately: Spent) -> Duration {
    if lately.waited > lately.ran.mul_f64(LONG_WAITS_PER_RUN) {
        LONGEST_TURN
    } else {
        LONG_TURN
    }
}

/// How far apart turns are when they were `every`, and the thread spent this of the time that passed and moved so
/// much for its tunnels.
fn next_turn(
    every: Duration,
    longest: Duration,
    spent: Spent,
    moved: Moved,
    tunnels: usize,
    passed: Duration,
) -> Duration {
    let is_little = (moved.bytes as f64) < LITTLE * passed.as_secs_f64();
    let sliver = SLIVER * every.div_duration_f64(TURN_EVERY);
    let is_split = tunnels >= MANY
        && spent.ran > passed.mul_f64(RUNS)
        && (moved.bytes as f64) < sliver * moved.runs as f64;
    let (longest, waits) = if is_little {
        (longest, WAITS_PER_RUN)
    } else if is_split {
        (LONG_TURN, WAITS_PER_MUCH)
    } else {
        (TURN_EVERY, 0.0)
    };
    let short = spent.ran.mul_f64(waits);
    if spent.waited > short.max(passed.mul_f64(WAITS)) {
        (2 * every).min(longest)
    } else if spent.waited < short.mul_f64(CALM) {
        (every / 2).max(TURN_EVERY)
    } else {
        every.min(longest)
    }
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

fn dispatch(ready: Ready, machine: &mut impl Machine, io: &mut Io, now: Instant) -> io::Result<()> {
    match ready.token {
        FIRST_TUN.. => io.read_tun((ready.token - FIRST_TUN) as usize, machine, now)?,
        FIRST_SOCKET.. => {
            if ready.writable {
                io.resume(ready.token);
            }
            if ready.readable {
                io.read_socket(ready.token, machine, now);
            }
        }
        own => machine.handle_ready(own, io, now),
    }
    Ok(())
}

fn settle(machine: &mut impl Machine, io: &mut Io, buffer: &mut Vec<u8>, now: Instant) {
    machine.digest(io, now);
    io.write_tuns(machine, now);
    io.flush_transmits(|buffer| machine.poll_transmit(buffer, now), buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that never has anything to do.
    struct Idle;

    impl Machine for Idle {
        fn handle_datagrams(&mut self, _: Received, _: BytesMut, _: Instant) {}
        fn handle_packet(&mut self, _: usize, _: &VirtioNetHdr, _: &[u8], _: Instant) {}
        fn handle_timeout(&mut self, _: Instant) {}
        fn handle_ready(&mut self, _: u64, _: &mut Io, _: Instant) {}
        fn digest(&mut self, _: &mut Io, _: Instant) {}
        fn poll_packet(&mut self, _: Instant) -> Option<(usize, Packet)> {
            None
        }
        fn poll_transmit(&mut self, _: &mut Vec<u8>, _: Instant) -> Option<Transmit> {
            None
        }
        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
        fn tunnels(&self) -> usize {
            0
        }
        fn close(&mut self, _: Instant) {}
    }

    #[test]
    fn turns_become_rarer_only_where_the_host_is_short_of_processors_and_little_flows() {
        let ms = Duration::from_millis;
        // Of a hundred milliseconds, and always in two hundred runs.
        let with = |tunnels, start: u64, ran: u64, waited: u64, bytes| {
            let (ran, waited) = (ms(ran), ms(waited));
            let spent = Spent { ran, waited };
            let moved = Moved { bytes, runs: 200 };
            let end = (0..10).fold(ms(start), |every, _| {
                next_turn(every, longest_turn(spent), spent, moved, tunnels, ms(100))
            });
            end.as_millis()
        };
        let after = |start, ran, waited, bytes| with(1, start, ran, waited, bytes);
        assert_eq!(after(1, 10, 40, 300_000), 8);
        assert_eq!(after(1, 10, 50, 300_000), 16);
        assert_eq!(after(16, 10, 40, 300_000), 8);
        assert_eq!(after(4, 10, 15, 300_000), 4);
        assert_eq!(after(16, 10, 5, 300_000), 1);
        assert_eq!(after(16, 10, 40, 3_000_000), 1);
        // A thread that has hardly anything to do.
        assert_eq!(after(1, 1, 4, 3000), 1);
        // One that has much to do, for many tunnels of which each gets little at a time, or much.
        assert_eq!(with(60, 1, 40, 55, 810_000), 8);
        assert_eq!(with(60, 8, 40, 5, 810_000), 1);
        assert_eq!(with(60, 8, 40, 55, 3_000_000), 8);
        assert_eq!(with(60, 1, 40, 55, 3_000_000), 1);
        assert_eq!(with(3, 1, 40, 55, 810_000), 1);
    }

    #[test]
    fn a_thread_goes_ahead_where_it_runs_much_or_waits() {
        let pressed = |ran, waited| {
            let (ran, waited) = (Duration::from_millis(ran), Duration::from_millis(waited));
            is_pressed(Spent { ran, waited }, Duration::from_millis(100))
        };
        assert!(!pressed(20, 3));
        assert!(pressed(30, 0));
        assert!(pressed(2, 10));
    }

    /// How the loop ended, and how the thread that ended it.
    fn run_until(end: impl FnOnce(Stop) + Send) -> (io::Result<()>, thread::Result<()>) {
        let poller = Arc::new(Poller::new().unwrap());
        let stop = Stop::new(vec![Waker::new(&poller, 0).unwrap()]);
        thread::scope(|scope| {
            let other = stop.clone();
            let thread = scope.spawn(move || end(other));
            (run(&mut Idle, &mut Io::new(poller), &stop), thread.join())
        })
    }

    #[test]
    fn a_panic_of_a_thread_that_the_daemon_needs_ends_the_loop_as_a_failure() {
        let (outcome, _) = run_until(|stop| {
            let _lifeline = stop.lifeline();
            panic!("on purpose");
        });

        assert!(outcome.unwrap_err().to_string().contains("panicked"));
    }

    #[test]
    fn all_loops_end_when_one_thread_panics() {
        let pollers = [(); 3].map(|()| Arc::new(Poller::new().unwrap()));
        let waker = |poller: &Arc<Poller>| Waker::new(poller, 0).unwrap();
        let stop = Stop::new(pollers.iter().map(waker).collect());

        let outcomes: Vec<io::Result<()>> = thread::scope(|scope| {
            let loops = pollers.map(|poller| {
                let stop = &stop;
                scope.spawn(move || run(&mut Idle, &mut Io::new(poller), stop))
            });
            let doomed = stop.clone();
            let doomed = scope.spawn(move || {
                let _lifeline = doomed.lifeline();
                panic!("on purpose");
            });
            assert!(doomed.join().is_err());
            loops.into_iter().map(|it| it.join().unwrap()).collect()
        });

        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    }

    #[test]
    fn a_thread_that_only_ends_does_not_end_the_loop() {
        let (outcome, thread) = run_until(|stop| {
            drop(stop.lifeline());
            assert!(!stop.is_requested());
            stop.request();
        });

        assert!(outcome.is_ok() && thread.is_ok());
    }
}
