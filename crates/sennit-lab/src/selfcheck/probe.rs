//! UDP packets with their send time, from one end of a link to the other.

use std::io::ErrorKind;
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use sennit_load::selfcheck::{Arrival, Burst, PROBE};
use sennit_netem::{Config, Direction};
use socket2::{Domain, Protocol, Socket, Type};

use crate::emulator::take_priority;
use crate::error::{Doing, Error};
use crate::host::Host;
use crate::lab::LinkHandle;
use crate::link::Kind;

/// What waits beyond the queue's time and the delay for late probes.
const PATIENCE: Duration = Duration::from_millis(150);

/// How often a receiver that waits asks whether it should go on.
const LOOK_UP: Duration = Duration::from_millis(20);

/// A link may lose what opens its NAT box.
const KNOCKS: u32 = 20;

/// A socket at each end of one direction.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) link: String,
    pub(super) direction: Direction,
    pub(super) kind: Kind,
    pub(super) config: Config,
    pub(super) bucket: Duration,
    /// When the link's trace began.
    pub(super) epoch: Instant,
    /// Whether the receiver is behind a NAT box.
    behind_nat: bool,
    /// The number of the next packet: no two have the same.
    next: AtomicU32,
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Probe {
    pub(super) fn new(
        link: LinkHandle<'_>,
        direction: Direction,
        epoch: Option<Instant>,
    ) -> Result<Self, Error> {
        let (edge, hub) = (link.subnet().edge().v4, link.subnet().hub().v4);
        let open = |host: &Host, address| {
            let address = SocketAddr::from((address, 0));
            let opened = host.netns().run(|| open(&link.device(), address));
            opened
                .and_then(|socket| socket)
                .doing(|| format!("open a probe on {}", host.name()))
        };
        let [near, far] = link.ends();
        let (edge, hub) = (open(near, edge)?, open(far, hub)?);
        let (sender, receiver) = match direction {
            Direction::Up => (edge, hub),
            Direction::Down => (hub, edge),
        };
        Ok(Self {
            link: link.name().to_owned(),
            direction,
            kind: link.spec().kind,
            config: link.spec().config(direction).clone(),
            bucket: link.spec().bucket,
            epoch: epoch.unwrap_or_else(Instant::now),
            behind_nat: link.spec().nat.is_some() && direction == Direction::Down,
            next: AtomicU32::new(0),
            sender,
            receiver,
        })
    }

    /// Sends a burst and gives what arrives of it.
    pub(super) fn exchange(&self, burst: Burst) -> std::io::Result<Vec<Arrival>> {
        let to = match self.behind_nat {
            true => self.mapped()?,
            false => self.receiver.local_addr()?,
        };
        let first = self.next.fetch_add(burst.count, Ordering::Relaxed);
        let epoch = Instant::now();
        let ready = Barrier::new(2);
        let end = OnceLock::new();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                take_priority();
                ready.wait();
                self.receive(burst, Expected::new(first, burst.count), epoch, &end)
            });
            prefer_this_thread();
            ready.wait();
            let sent = self.send((burst, first), to, epoch);
            let _ = end.set(Instant::now() + self.longest_way());
            let arrivals = receiver.join().expect("a receiver does not panic");
            sent.and(arrivals)
        })
    }

    /// After this time nothing arrives any more.
    fn longest_way(&self) -> Duration {
        self.subject().longest_way() + PATIENCE
    }

    /// Where the receiver is reached through its NAT box, which it opens from inside.
    fn mapped(&self) -> std::io::Result<SocketAddr> {
        let inside_to = self.sender.local_addr()?;
        self.sender.set_read_timeout(Some(self.longest_way()))?;
        for knock in 0..KNOCKS {
            // What comes late of an earlier burst's may come from a mapping that is gone.
            let sent = [nanos(self.epoch.elapsed()), u64::from(knock)].map(u64::to_be_bytes);
            self.receiver.send_to(sent.as_flattened(), inside_to)?;
            let mut packet = [0; PROBE + 8];
            while let Some((len, from)) = heard(self.sender.recv_from(&mut packet))? {
                if packet[..len] == *sent.as_flattened() {
                    return Ok(from);
                }
            }
        }
        Err(std::io::Error::other(format!(
            "nothing leaves through the NAT box of link {}, so nothing can enter",
            self.link
        )))
    }

    /// Sends a burst whose packets are numbered from `first` on.
    fn send(
        &self,
        (burst, first): (Burst, u32),
        to: SocketAddr,
        epoch: Instant,
    ) -> std::io::Result<()> {
        let mut packet = vec![0; burst.payload];
        let start = Instant::now();
        for number in 0..burst.count {
            let due = start + burst.gap * number;
            let early = due.saturating_duration_since(Instant::now());
            if early > Duration::from_micros(100) {
                thread::sleep(early);
            }
            packet[..8].copy_from_slice(&nanos(epoch.elapsed()).to_be_bytes());
            packet[8..PROBE].copy_from_slice(&first.wrapping_add(number).to_be_bytes());
            self.sender.send_to(&packet, to)?;
        }
        Ok(())
    }

    /// Takes what arrives until all is there or `end` is known and over.
    fn receive(
        &self,
        burst: Burst,
        mut expected: Expected,
        epoch: Instant,
        end: &OnceLock<Instant>,
    ) -> std::io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::with_capacity(burst.count as usize);
        let mut packet = vec![0; burst.payload];
        self.receiver.set_read_timeout(Some(LOOK_UP))?;
        while arrivals.len() < burst.count as usize {
            match self.receiver.recv(&mut packet) {
                Ok(len) => arrivals.extend(expected.arrival(&packet[..len], epoch)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if end.get().is_some_and(|end| Instant::now() > *end) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(arrivals)
    }
}

/// What came, or `None` if nothing came in time.
fn heard<T>(received: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match received {
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {
            Ok(None)
        }
        received => received.map(Some),
    }
}

/// The packets of a burst that have not come yet.
struct Expected {
    first: u32,
    came: Vec<bool>,
}

impl Expected {
    /// So many, which are numbered from `first` on.
    fn new(first: u32, count: u32) -> Self {
        let came = vec![false; count as usize];
        Self { first, came }
    }

    /// Takes a packet that comes now; `None` if it is of an earlier burst, or comes a second time.
    fn arrival(&mut self, packet: &[u8], epoch: Instant) -> Option<Arrival> {
        let at = Instant::now();
        let (sent, rest) = packet.split_first_chunk()?;
        let number = u32::from_be_bytes(*rest.first_chunk()?);
        let place = number.wrapping_sub(self.first) as usize;
        if mem::replace(self.came.get_mut(place)?, true) {
            return None;
        }
        let sent = Duration::from_nanos(u64::from_be_bytes(*sent));
        let delay = (at - epoch).saturating_sub(sent);
        Some(Arrival { delay, at })
    }
}

/// Other work on this machine should not slow the probes down; without privilege it may.
fn prefer_this_thread() {
    const MOST_PREFERRED: i32 = -20;
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), MOST_PREFERRED) {
        tracing::debug!(%error, "probes are sent without preference");
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn open(device: &str, address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(device.as_bytes()))?;
    socket.bind(&address.into())?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u32) -> Vec<u8> {
        [&[0; 8][..], &number.to_be_bytes()].concat()
    }

    /// What a queue still held of an earlier burst counted, as if it had been under way since then.
    #[test]
    fn only_what_was_sent_in_this_burst_counts_and_only_once() {
        let now = Instant::now();
        let mut expected = Expected::new(u32::MAX, 3);
        let mut counts = |number| expected.arrival(&packet(number), now).is_some();

        assert!(!counts(u32::MAX - 1), "of the burst before");
        assert!(counts(1) && counts(u32::MAX) && counts(0));
        assert!(!counts(0), "a copy");
        assert!(!counts(2), "of nobody");
        assert!(expected.arrival(&[0; 11], now).is_none(), "too short");
    }
}
