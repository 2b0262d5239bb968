//! The thread that is the wires: it moves packets from TUN to TUN through link models.
//!
//! One thread owns all devices and all models. It reads what has arrived, hands it to the model of
//! its direction, writes what is due, and sleeps until the next packet is due or a device is
//! readable. While packets flow it sleeps for [`GRAIN`] at least, so that a busy link costs a bound
//! number of wake-ups and moves packets in batches; that adds at most so much to the delay of
//! each packet. It runs with real-time priority, because wires do not wait for the CPU.

mod ports;
mod strain;

use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sennit_linux::poller::{Events, Interest, Poller, Waker, set_timer_slack};
use sennit_linux::tun::Tun;
use sennit_netem::{Config, Counters, Link, Nat, NatConfig};
use sennit_packet::IpPacket;
use sennit_packet::gso::VirtioNetHdr;
use sennit_packet::icmp;

use crate::error::{Doing, Error};
use crate::host;

pub use strain::Strain;

/// The shortest sleep while packets flow.
const GRAIN: Duration = Duration::from_micros(50);

/// The longest ICMP error (RFC 4443 §2.4 (c)).
const ICMP_MAX: usize = 1280;

/// Packets taken from one device before the others have their turn.
const BATCH: usize = 64;

/// Unused packet buffers kept for reuse: as many as a fast link holds in queue and flight.
const POOL_MAX: usize = 16_384;

/// The token of the waker; devices have their index.
const WAKE: u64 = u64::MAX;

/// One direction of one link, between two devices.
#[derive(Debug, Clone)]
pub(crate) struct Pipe {
    /// Index of the device whose packets enter.
    pub(crate) from: usize,
    /// Index of the device where they leave.
    pub(crate) to: usize,
    pub(crate) config: Config,
    pub(crate) seed: u64,
    /// Of the devices: no packet is larger.
    pub(crate) mtu: usize,
    /// Whether packets pass a NAT box before the link, or after it.
    pub(crate) nat: Option<Side>,
    /// Index of the pipe whose queue and wire it shares, as both directions of a shared medium do.
    pub(crate) shares: Option<usize>,
}

/// A packet with the pipe that it takes.
#[derive(Debug)]
struct Frame {
    pipe: usize,
    bytes: Vec<u8>,
}

/// Where a pipe meets a NAT box, by the box's index.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    /// Its packets come from inside.
    Leaves(usize),
    /// They go there.
    Enters(usize),
}

/// What happens to a NAT box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatFault {
    /// It loses its mappings.
    Forget,
    /// They let nothing pass any more, while they are kept.
    Wedge,
}

/// A running emulator; dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Emulator {
    control: Control,
    thread: Option<JoinHandle<()>>,
}

/// Talks to a running emulator from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    requests: Sender<Request>,
    waker: Waker,
}

enum Request {
    Set {
        pipe: usize,
        config: Config,
    },
    /// Starts over as if no packet had ever been sent.
    Restart(Sender<()>),
    /// Starts all traces.
    Begin(Sender<Instant>),
    Nat {
        nat: usize,
        fault: NatFault,
    },
    Counters(Sender<Vec<Counters>>),
    Strain(Sender<Strain>),
    /// Counts packets and strain from zero.
    ResetCounters,
    Stop,
}

impl Emulator {
    pub(crate) fn start(
        devices: Vec<Tun>,
        pipes: &[Pipe],
        nats: &[NatConfig],
    ) -> Result<Self, Error> {
        let (requests, inbox) = mpsc::channel();
        let poller = Poller::new().doing(|| "make an epoll set".into())?;
        let waker = Waker::new(&poller, WAKE).doing(|| "make an eventfd".into())?;
        for (token, device) in (0..).zip(&devices) {
            poller
                .add(device, token, Interest::Read)
                .doing(|| "watch a TUN device".into())?;
        }
        let wires = Wires::new(devices, pipes, nats, poller, waker.clone(), inbox);
        let thread = thread::Builder::new()
            .name("lab-wires".into())
            .spawn(move || wires.run())
            .doing(|| "start the emulator thread".into())?;
        Ok(Self {
            control: Control { requests, waker },
            thread: Some(thread),
        })
    }

    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.control.tell(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Control {
    /// Changes one direction of a link from now on.
    pub(crate) fn set(&self, pipe: usize, config: Config) {
        self.tell(Request::Set { pipe, config });
    }

    /// Breaks a NAT box.
    pub(crate) fn break_nat(&self, nat: usize, fault: NatFault) {
        self.tell(Request::Nat { nat, fault });
    }

    /// Empties all links, with their counters, their chance and their traces at the start.
    pub(crate) fn restart(&self) {
        self.ask(Request::Restart);
    }

    /// Starts the traces of all links; gives when that was.
    pub(crate) fn begin(&self) -> Option<Instant> {
        self.ask(Request::Begin)
    }

    /// What happened in each direction so far.
    pub(crate) fn counters(&self) -> Vec<Counters> {
        self.ask(Request::Counters).unwrap_or_default()
    }

    pub(crate) fn strain(&self) -> Strain {
        self.ask(Request::Strain).unwrap_or_default()
    }

    pub(crate) fn reset_counters(&self) {
        self.tell(Request::ResetCounters);
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Option<T> {
        let (reply, answer) = mpsc::channel();
        self.tell(request(reply));
        answer.recv().ok()
    }

    /// An emulator that has stopped needs no change any more.
    fn tell(&self, request: Request) {
        let _ = self.requests.send(request);
        self.waker.wake();
    }
}

/// The thread's own state.
struct Wires {
    devices: Vec<Tun>,
    pipes: Vec<Pipe>,
    /// One for each pipe; that of a pipe which shares another's stays empty.
    links: Vec<Link<Frame>>,
    nats: Vec<Nat>,
    /// For each device the pipe that its packets enter.
    pipe_from: Vec<Option<usize>>,
    pool: Vec<Vec<u8>>,
    poller: Poller,
    waker: Waker,
    inbox: Receiver<Request>,
    strain: Strain,
    /// CPU time at the last reset.
    cpu_start: f64,
}

impl Wires {
    fn new(
        devices: Vec<Tun>,
        pipes: &[Pipe],
        nats: &[NatConfig],
        poller: Poller,
        waker: Waker,
        inbox: Receiver<Request>,
    ) -> Self {
        let entered = |device| pipes.iter().position(|pipe| pipe.from == device);
        Self {
            pipe_from: (0..devices.len()).map(entered).collect(),
            links: pipes.iter().map(new_link).collect(),
            pipes: pipes.to_vec(),
            nats: nats.iter().copied().map(Nat::new).collect(),
            devices,
            pool: Vec::new(),
            poller,
            waker,
            inbox,
            strain: Strain::default(),
            cpu_start: 0.0,
        }
    }

    fn run(mut self) {
        take_priority();
        let mut events = Events::with_capacity(self.devices.len() + 1);
        // When it was to look again, whatever came.
        let mut next = None;
        loop {
            let now = Instant::now();
            let read = self.receive();
            let late = next.map_or(Duration::ZERO, |next| now.saturating_duration_since(next));
            self.strain.note_read(late, read as u64);
            let moved = read + self.deliver();
            if !self.obey() {
                return;
            }
            if moved > 0 {
                thread::sleep(GRAIN);
                next = Some(now + GRAIN);
                continue;
            }
            next = match self.sleep(&mut events) {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!(%error, "the emulator cannot wait for packets");
                    return;
                }
            }
        }
    }

    /// Until a packet is due or a device is readable; gives the former, before which nobody knows
    /// when the latter was.
    fn sleep(&self, events: &mut Events) -> io::Result<Option<Instant>> {
        let due = self.links.iter().filter_map(Link::poll_timeout).min();
        let soonest = Instant::now() + GRAIN;
        let next = due.map(|due| due.max(soonest));
        let timeout = next.map(|next| next.saturating_duration_since(Instant::now()));
        self.poller.wait(events, timeout)?;
        if events.iter().any(|ready| ready.token == WAKE) {
            self.waker.acknowledge();
        }
        Ok(next)
    }

    /// Takes what the hosts have sent; gives the number of packets.
    fn receive(&mut self) -> usize {
        (0..self.devices.len())
            .map(|device| self.receive_from(device))
            .sum()
    }

    fn receive_from(&mut self, device: usize) -> usize {
        let Some(pipe) = self.pipe_from[device] else {
            return 0;
        };
        for count in 0..BATCH {
            let mut packet = self.pool.pop().unwrap_or_default();
            packet.resize(self.pipes[pipe].mtu, 0);
            match self.devices[device].recv(&mut packet) {
                Ok(Some((_, len))) => self.enter(pipe, packet, len),
                // A device that is down has nothing to read.
                Ok(None) | Err(_) => {
                    self.recycle(packet);
                    return count;
                }
            }
        }
        BATCH
    }

    fn enter(&mut self, pipe: usize, mut packet: Vec<u8>, len: usize) {
        packet.truncate(len);
        let now = Instant::now();
        let wire = self.wire(pipe);
        let Config { mtu, tells_mtu, .. } = *self.links[wire].config();
        if len > mtu && tells_mtu {
            self.tell_mtu(pipe, &packet);
        }
        if let Some(Side::Leaves(nat)) = self.pipes[pipe].nat
            && !ports::leave(&mut self.nats[nat], &mut packet, now)
        {
            self.recycle(packet);
            return;
        }
        let bytes = packet;
        if let Err(dropped) = self.links[wire].handle_packet(len, Frame { pipe, bytes }, now) {
            self.recycle(dropped.packet.bytes);
        }
    }

    /// The link that packets of a pipe take.
    fn wire(&self, pipe: usize) -> usize {
        self.pipes[pipe].shares.unwrap_or(pipe)
    }

    /// Sends back what a router before a narrow path would, in the name of the far end.
    fn tell_mtu(&mut self, pipe: usize, packet: &[u8]) {
        let Ok(parsed) = IpPacket::parse(packet) else {
            return;
        };
        let mtu = self.links[self.wire(pipe)].config().mtu as u32;
        let mut error = self.pool.pop().unwrap_or_default();
        error.resize(ICMP_MAX, 0);
        let reason = icmp::Reason::TooBig { mtu };
        if let Some(len) = icmp::error(packet, reason, parsed.dst(), &mut error) {
            let _ = self.devices[self.pipes[pipe].from]
                .send(&VirtioNetHdr::default(), &[IoSlice::new(&error[..len])]);
        }
        self.recycle(error);
    }

    /// Writes what is due; gives the number of packets.
    fn deliver(&mut self) -> usize {
        (0..self.links.len())
            .map(|wire| self.deliver_from(wire))
            .sum()
    }

    fn deliver_from(&mut self, wire: usize) -> usize {
        let now = Instant::now();
        let mut first = None;
        let mut count = 0;
        while let Some((due, frame)) = self.links[wire].poll_arrival(now) {
            let (pipe, mut packet) = (frame.pipe, frame.bytes);
            first.get_or_insert(due);
            count += 1;
            if let Some(Side::Enters(nat)) = self.pipes[pipe].nat
                && !ports::enter(&mut self.nats[nat], &mut packet, now)
            {
                self.recycle(packet);
                continue;
            }
            // A host whose device is down does not get it, as behind any dead port.
            let _ = self.devices[self.pipes[pipe].to]
                .send(&VirtioNetHdr::default(), &[IoSlice::new(&packet)]);
            self.recycle(packet);
        }
        if let Some(due) = first {
            let late = now.saturating_duration_since(due);
            self.strain.note(late, count as u64);
        }
        count
    }

    fn begin(&mut self) -> Instant {
        let now = Instant::now();
        self.links.iter_mut().for_each(|link| link.begin(now));
        now
    }

    fn reset_counters(&mut self) {
        self.links.iter_mut().for_each(Link::reset_counters);
        self.strain = Strain::default();
        self.cpu_start = thread_cpu_seconds();
    }

    fn recycle(&mut self, packet: Vec<u8>) {
        if self.pool.len() < POOL_MAX {
            self.pool.push(packet);
        }
    }

    /// Does what was asked; `false` to stop.
    fn obey(&mut self) -> bool {
        while let Ok(request) = self.inbox.try_recv() {
            match request {
                Request::Set { pipe, config } => {
                    let wire = self.wire(pipe);
                    self.links[wire].set_config(config, Instant::now());
                }
                Request::Nat { nat, fault } => match fault {
                    NatFault::Forget => self.nats[nat].forget(),
                    NatFault::Wedge => self.nats[nat].wedge(),
                },
                Request::Restart(done) => {
                    self.links = self.pipes.iter().map(new_link).collect();
                    self.reset_counters();
                    self.begin();
                    let _ = done.send(());
                }
                Request::Begin(done) => {
                    let _ = done.send(self.begin());
                }
                Request::Counters(reply) => {
                    let _ = reply.send(self.links.iter().map(Link::counters).collect());
                }
                Request::Strain(reply) => {
                    self.strain.cpu_seconds = thread_cpu_seconds() - self.cpu_start;
                    let _ = reply.send(self.strain);
                }
                Request::ResetCounters => self.reset_counters(),
                Request::Stop => return false,
            }
        }
        true
    }
}

fn thread_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn new_link(pipe: &Pipe) -> Link<Frame> {
    Link::new(pipe.config.clone(), pipe.seed)
}

/// Asks for precise timers and to run before everything else; without it only precision suffers.
pub(crate) fn take_priority() {
    if let Err(error) = set_timer_slack(NonZeroU64::MIN) {
        tracing::debug!(%error, "timers stay coarse");
    }
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let command = &mut std::process::Command::new("chrt");
    if let Err(error) = host::run(command.args(["--rr", "--pid", "1", &thread])) {
        tracing::warn!(%error, "the emulator runs without real-time priority");
    }
}
