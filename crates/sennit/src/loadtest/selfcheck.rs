//! Sends probes through the emulated link over loopback, by the code that a test runs through.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU64,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use sennit_engine::BareTransmit;
use sennit_linux::{
    poller::set_timer_slack,
    udp::{LinkSocket, ReceiveBuffers, Transmit},
};
use sennit_load::selfcheck::{Arrival, Burst, Check, DELAY_BURST, PROBE, Subject};
use sennit_netem::{Direction, LinkSpec};

use super::{emulation::Emulation, wire::Wire};

/// A machine that is busy for a moment makes everything late; one that is too slow stays so.
const ATTEMPTS: usize = 3;
/// Between two probes for the loss, of each direction.
const LOSS_GAP: Duration = Duration::from_micros(100);
/// What waits beyond the longest way for late probes.
const PATIENCE: Duration = Duration::from_millis(50);
/// The kernel may be late with a timer by so many nanoseconds.
const SLACK: NonZeroU64 = NonZeroU64::new(1_000).expect("it is not zero");

/// Measures whether this machine can emulate such a link: rate, delay and loss of both directions
/// at once.
///
/// # Errors
/// If the host refuses sockets on loopback, or somebody wants to stop
/// ([`io::ErrorKind::Interrupted`]).
pub(super) fn run(spec: &LinkSpec, stop: &AtomicBool) -> io::Result<Vec<Check>> {
    set_timer_slack(SLACK)?;
    let mut checks = Vec::new();
    for measure in [delays, losses, rates] {
        let mut found = measure(spec, stop)?;
        for _ in 1..ATTEMPTS {
            if found.iter().all(Check::passes) {
                break;
            }
            found = measure(spec, stop)?;
        }
        checks.append(&mut found);
    }
    Ok(checks)
}

fn subjects(spec: &LinkSpec, epoch: Instant) -> [Subject<'_>; 2] {
    Direction::BOTH.map(|direction| Subject {
        link: "profile",
        direction,
        config: spec.way(direction),
        epoch,
    })
}

fn delays(spec: &LinkSpec, stop: &AtomicBool) -> io::Result<Vec<Check>> {
    let lateness = lateness();
    let (epoch, arrivals) = Bench::new(spec)?.exchange(spec, [Some(DELAY_BURST); 2], stop)?;
    let subjects = subjects(spec, epoch);
    let pairs = subjects.iter().zip(&arrivals);
    Ok(pairs
        .filter(|(subject, _)| !subject.config.outage)
        .map(|(subject, arrivals)| subject.delay(arrivals, &lateness, false))
        .collect())
}

fn losses(spec: &LinkSpec, stop: &AtomicBool) -> io::Result<Vec<Check>> {
    let bursts = subjects(spec, Instant::now()).map(|subject| subject.loss_burst(LOSS_GAP));
    let (epoch, arrivals) = Bench::new(spec)?.exchange(spec, bursts, stop)?;
    let pairs = subjects(spec, epoch).into_iter().zip(bursts).zip(&arrivals);
    Ok(pairs
        .filter_map(|((subject, burst), arrivals)| subject.loss(burst?, arrivals.len()))
        .collect())
}

fn rates(spec: &LinkSpec, stop: &AtomicBool) -> io::Result<Vec<Check>> {
    let bursts = subjects(spec, Instant::now()).map(|one| one.rate_burst(Duration::ZERO));
    if bursts.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let (epoch, arrivals) = Bench::new(spec)?.exchange(spec, bursts, stop)?;
    let pairs = subjects(spec, epoch).into_iter().zip(bursts).zip(&arrivals);
    Ok(pairs
        .filter_map(|((subject, burst), arrivals)| Some(subject.rate(burst?, arrivals)))
        .collect())
}

/// By how many seconds this machine wakes up too late without a link.
fn lateness() -> Vec<f64> {
    const NAP: Duration = Duration::from_millis(1);
    let nap = |_| {
        let start = Instant::now();
        std::thread::sleep(NAP);
        start.elapsed().saturating_sub(NAP).as_secs_f64()
    };
    (0..30).map(nap).collect()
}

/// A socket with the link under it, and the far end, both in one thread.
struct Bench {
    near: Wire,
    far: LinkSocket,
    buffers: ReceiveBuffers,
    /// Where the near end is.
    address: SocketAddr,
    epoch: Instant,
    arrivals: [Vec<Arrival>; 2],
}

impl Bench {
    fn new(spec: &LinkSpec) -> io::Result<Self> {
        let open = || LinkSocket::listen((Ipv4Addr::LOCALHOST, 0).into()).map_err(io::Error::other);
        let epoch = Instant::now();
        let mut link = Emulation::new(spec, 0);
        link.begin(epoch);
        let near = open()?;
        Ok(Self {
            address: near.local_addr(),
            near: Wire::new(vec![near], Some(link))?,
            far: open()?,
            buffers: ReceiveBuffers::default(),
            epoch,
            arrivals: Default::default(),
        })
    }

    /// Sends a burst each way: when the link began, and what arrived, upward and downward.
    fn exchange(
        mut self,
        spec: &LinkSpec,
        bursts: [Option<Burst>; 2],
        stop: &AtomicBool,
    ) -> io::Result<(Instant, [Vec<Arrival>; 2])> {
        let start = Instant::now();
        let longest = subjects(spec, start).map(|subject| subject.longest_way());
        let mut sent = [0; 2];
        let mut end = start + PATIENCE;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let now = Instant::now();
            let mut wake = end;
            for (way, burst) in bursts.iter().enumerate() {
                let Some(burst) = burst else { continue };
                while sent[way] < burst.count && start + burst.gap * sent[way] <= now {
                    self.send(way, sent[way], burst.payload)?;
                    sent[way] += 1;
                    end = end.max(Instant::now() + longest[way] + PATIENCE);
                }
                if sent[way] < burst.count {
                    wake = wake.min(start + burst.gap * sent[way]);
                }
            }
            let pending = |way: usize| bursts[way].is_some_and(|burst| sent[way] < burst.count);
            if now >= end && !pending(0) && !pending(1) {
                return Ok((self.epoch, self.arrivals));
            }
            self.near.sleep(wake)?;
            self.receive()?;
        }
    }

    fn send(&mut self, way: usize, number: u32, payload: usize) -> io::Result<()> {
        let mut packet = vec![0; payload];
        let since = Instant::now().saturating_duration_since(self.epoch);
        packet[..8].copy_from_slice(&(since.as_nanos() as u64).to_be_bytes());
        packet[8..PROBE].copy_from_slice(&number.to_be_bytes());
        if way == 0 {
            let transmit = BareTransmit {
                source: None,
                remote: self.far.local_addr(),
                ecn: 0,
                size: payload,
                segment: None,
            };
            return self.near.send(transmit, packet).map(drop);
        }
        let sent = self.far.send(&Transmit {
            destination: self.address,
            ecn: None,
            contents: &packet,
            segment_size: None,
            src_ip: None,
        });
        sent.map(drop).map_err(io::Error::other)
    }

    fn receive(&mut self) -> io::Result<()> {
        let (epoch, [up, down]) = (self.epoch, &mut self.arrivals);
        // When it comes out, not when it should have: the difference is what is looked for.
        self.near
            .receive(|_, data, now| down.extend(arrival(&data, epoch, now)))?;
        let runs = self.far.recv_runs(&mut self.buffers)?;
        for index in 0..runs {
            let run = self.buffers.take(index);
            for packet in run.data.chunks(run.meta.stride.max(1)) {
                up.extend(arrival(packet, epoch, run.arrived));
            }
        }
        Ok(())
    }
}

fn arrival(packet: &[u8], epoch: Instant, at: Instant) -> Option<Arrival> {
    let sent = u64::from_be_bytes(*packet.first_chunk()?);
    let delay = at.saturating_duration_since(epoch + Duration::from_nanos(sent));
    Some(Arrival { delay, at })
}
