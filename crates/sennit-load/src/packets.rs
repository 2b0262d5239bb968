//! The most small UDP packets per second of which almost none is lost.
//!
//! One rate after the other is tried for a moment each: twice the last while nothing is lost, then
//! between the best that passed and the least that did not. A rate that fails is tried once more,
//! because a host that is busy elsewhere for a moment loses packets too.
//!
//! Every packet is handed to the kernel by itself, as those of many small senders are, in
//! `sendmmsg` calls; the receiver takes what the kernel has joined (UDP GRO).

mod stream;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use sennit_linux::poller::{Events, Interest, Poller, set_timer_slack};
use sennit_linux::udp::{BATCH_SIZE, LinkSocket, RecvMeta, Transmit, UDP_BUFFER};
use sennit_netem::Direction;

pub use stream::{PLACES, STAMP, Stream, Streamed, stream};

/// Packets per second that any machine can.
const FIRST_RATE: f64 = 20_000.0;

/// No machine of today offers more.
const LAST_RATE: f64 = 10e6;

/// How long one rate is tried.
const ATTEMPT: Duration = Duration::from_millis(500);

/// What is on its way when the sender stops has arrived once nothing came for so long.
const SILENCE: Duration = Duration::from_millis(100);

/// The result is as exact as this.
const PRECISION: f64 = 1.04;

/// A sender that offers less than this share of what it should has found its own limit.
const OFFERED: f64 = 0.95;

/// The sender sleeps between two bursts, so that it leaves the CPU to the tunnel; at the highest
/// rates of today this is far less than the queue of a TUN device (500 packets) takes.
const BETWEEN_BURSTS: Duration = Duration::from_micros(250);
const SLACK: NonZeroU64 = NonZeroU64::new(1_000).expect("1 µs is not zero");

/// Packets per system call.
const PER_CALL: usize = 64;

/// The near end says hello so often, until the far end has heard it.
const HELLO_EVERY: Duration = Duration::from_millis(50);
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// The number of hellos; attempts count from 1.
const HELLO: u64 = 0;

/// What came of one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Attempt {
    asked: f64,
    sent: u64,
    received: u64,
    /// From the first packet until no more were sent.
    seconds: f64,
    /// From then until the last one arrived: what waited in queues when the sender stopped was not
    /// carried in the sender's time.
    arriving: f64,
}

impl Attempt {
    /// Packets carried.
    fn per_second(&self) -> f64 {
        self.received as f64 / self.seconds.max(self.arriving)
    }

    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    fn passes(&self, loss: f64) -> bool {
        self.sent > 0 && self.lost() as f64 <= loss * self.sent as f64
    }

    fn is_what_was_asked(&self) -> bool {
        self.sent as f64 >= OFFERED * self.asked * self.seconds
    }
}

/// The most packets per second of which almost none was lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Most {
    /// Packets that arrived in each second until the last one did.
    pub per_second: f64,
    /// Packets sent at that rate.
    pub sent: u64,
    /// Packets of them that did not arrive.
    pub lost: u64,
    /// How many times a rate was tried.
    pub attempts: u32,
    /// More may pass: the sender could not offer more, or the time was up.
    pub at_least: bool,
}

/// Looks until `end` for the highest rate of which at most a share of `loss` is lost; `None` if
/// every rate loses more.
pub fn measure(
    sender: &mut Sender,
    receiver: &mut Receiver,
    loss: f64,
    end: Instant,
) -> io::Result<Option<Most>> {
    let mut number = HELLO;
    let found = search(loss, end, |rate| {
        number += 1;
        attempt(sender, receiver, rate, number)
    })?;
    Ok(found.best.map(|best| Most {
        per_second: best.per_second(),
        sent: best.sent,
        lost: best.lost(),
        attempts: found.attempts,
        at_least: !found.lost_above,
    }))
}

/// What a search came to.
#[derive(Debug, Default)]
struct Found {
    best: Option<Attempt>,
    attempts: u32,
    /// A little more was lost: not the sender was the limit, nor the time.
    lost_above: bool,
}

/// The best attempt. Ends in time, whatever was found until then.
fn search(
    loss: f64,
    end: Instant,
    mut attempt: impl FnMut(f64) -> io::Result<Attempt>,
) -> io::Result<Found> {
    let mut found = Found::default();
    let mut lost_at_high = false;
    let (mut low, mut high) = (FIRST_RATE / 2.0, LAST_RATE);
    while high / low > PRECISION && Instant::now() < end {
        let rate = match high < LAST_RATE {
            true => (low * high).sqrt(),
            false => (low * 2.0).min(LAST_RATE),
        };
        let mut outcome = attempt(rate)?;
        found.attempts += 1;
        if !outcome.passes(loss) {
            outcome = attempt(rate)?;
            found.attempts += 1;
        }
        let passes = outcome.passes(loss);
        if passes
            && found
                .best
                .is_none_or(|best| outcome.per_second() >= best.per_second())
        {
            found.best = Some(outcome);
        }
        match passes && outcome.is_what_was_asked() && rate < LAST_RATE {
            true => low = rate,
            false => (high, lost_at_high) = (rate, !passes),
        }
    }
    found.lost_above = lost_at_high && high / low <= PRECISION;
    Ok(found)
}

/// Sends packets of one size to one address.
#[derive(Debug)]
pub struct Sender {
    socket: LinkSocket,
    destination: SocketAddr,
    bytes: usize,
}

/// Counts what arrives.
pub struct Receiver {
    socket: LinkSocket,
    poller: Poller,
    buffers: Vec<Box<[u8]>>,
    metas: Vec<RecvMeta>,
}

/// Sender and receiver of packets of `bytes`, after the near end was heard at the far one, which is
/// bound to `address`: only so the near one's address is known there.
pub fn connect(
    mut near: LinkSocket,
    far: LinkSocket,
    address: SocketAddr,
    bytes: usize,
    direction: Direction,
) -> io::Result<(Sender, Receiver)> {
    let mut far = Receiver::new(far)?;
    let seen_as = hello(&mut near, &mut far, address, bytes)?;
    let sender = |socket, destination| Sender {
        socket,
        destination,
        bytes,
    };
    Ok(match direction {
        Direction::Up => (sender(near, address), far),
        Direction::Down => (sender(far.socket, seen_as), Receiver::new(near)?),
    })
}

/// The address under which the far end sees the near one.
fn hello(
    near: &mut LinkSocket,
    far: &mut Receiver,
    address: SocketAddr,
    bytes: usize,
) -> io::Result<SocketAddr> {
    let contents = vec![HELLO as u8; bytes];
    let deadline = Instant::now() + HELLO_PATIENCE;
    while Instant::now() < deadline {
        let transmit = Transmit {
            destination: address,
            ecn: None,
            contents: &contents,
            segment_size: None,
            src_ip: None,
        };
        // What is not answered is said again.
        let _ = near.send(&transmit);
        if far.receive(HELLO_EVERY)? > 0 {
            return Ok(far.metas[0].addr);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Sends at a rate from a thread of its own, and counts what arrives.
fn attempt(
    sender: &mut Sender,
    receiver: &mut Receiver,
    rate: f64,
    number: u64,
) -> io::Result<Attempt> {
    // The sender's count, once it has ended.
    const RUNNING: u64 = u64::MAX;
    let sent = AtomicU64::new(RUNNING);
    let start = Instant::now();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let outcome = sender.send(rate, number, start);
            let count = outcome.as_ref().map_or(0, |(count, _)| *count);
            sent.store(count, Ordering::Release);
            outcome
        });
        let (mut received, mut last) = (0, start);
        loop {
            let runs = receiver.receive(SILENCE)?;
            let came = receiver.count(runs, number);
            if came > 0 {
                received += came;
                last = Instant::now();
            }
            let sent = sent.load(Ordering::Acquire);
            if sent != RUNNING && (runs == 0 || received >= sent) {
                break;
            }
        }
        let (sent, took) = sending.join().expect("a sender does not panic")?;
        Ok(Attempt {
            asked: rate,
            sent,
            received,
            seconds: took.as_secs_f64(),
            arriving: (last - start).as_secs_f64(),
        })
    })
}

impl Sender {
    /// How many packets the kernel took, and in what time.
    fn send(&mut self, rate: f64, number: u64, start: Instant) -> io::Result<(u64, Duration)> {
        set_timer_slack(SLACK)?;
        let mut packet = vec![0; self.bytes];
        packet[..8].copy_from_slice(&number.to_be_bytes());
        let mut sent = 0;
        loop {
            let elapsed = start.elapsed();
            let due = (rate * elapsed.min(ATTEMPT).as_secs_f64()) as u64;
            while sent < due {
                match self.burst(&packet, (due - sent).min(PER_CALL as u64) as usize)? {
                    0 => break,
                    count => sent += count as u64,
                }
                if start.elapsed() > ATTEMPT {
                    break;
                }
            }
            if elapsed >= ATTEMPT {
                return Ok((sent, start.elapsed()));
            }
            thread::sleep(BETWEEN_BURSTS);
        }
    }

    /// Sends `count` packets, or as many as there is room for.
    fn burst(&self, packet: &[u8], count: usize) -> io::Result<usize> {
        let destination = SocketAddrAny::from(self.destination);
        let slices = [IoSlice::new(packet)];
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; PER_CALL] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let mut messages: Vec<MMsgHdr<'_>> = controls[..count]
            .iter_mut()
            .map(|control| MMsgHdr::new_with_addr(&destination, &slices, control))
            .collect();
        match sendmmsg(&self.socket, &mut messages, SendFlags::empty()) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl Receiver {
    fn new(socket: LinkSocket) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&socket, 0, Interest::Read)?;
        Ok(Self {
            socket,
            poller,
            buffers: vec![vec![0; UDP_BUFFER].into(); BATCH_SIZE],
            metas: vec![RecvMeta::default(); BATCH_SIZE],
        })
    }

    /// The number of runs of datagrams that are there, or come within `patience`.
    fn receive(&mut self, patience: Duration) -> io::Result<usize> {
        let buffers = self.buffers.iter_mut();
        let mut slices: Vec<_> = buffers.map(|buffer| IoSliceMut::new(buffer)).collect();
        let runs = self.socket.recv(&mut slices, &mut self.metas)?;
        if runs > 0 {
            return Ok(runs);
        }
        self.poller
            .wait(&mut Events::with_capacity(1), Some(patience))?;
        self.socket.recv(&mut slices, &mut self.metas)
    }

    /// The datagrams of this attempt among the first `runs`.
    fn count(&self, runs: usize, number: u64) -> u64 {
        let number = number.to_be_bytes();
        let runs = self.buffers.iter().zip(&self.metas).take(runs);
        let datagrams =
            runs.flat_map(|(buffer, meta)| buffer[..meta.len].chunks(meta.stride.max(1)));
        datagrams
            .filter(|datagram| datagram.starts_with(&number))
            .count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tunnel that carries so many packets per second, from a sender that offers at most
    /// `offers`.
    fn limited(limit: f64, offers: f64) -> impl FnMut(f64) -> io::Result<Attempt> {
        move |asked| {
            let sent = asked.min(offers);
            Ok(Attempt {
                asked,
                sent: sent as u64,
                received: sent.min(limit) as u64,
                seconds: 1.0,
                arriving: 1.0,
            })
        }
    }

    fn found(attempt: impl FnMut(f64) -> io::Result<Attempt>) -> (Attempt, bool) {
        let end = Instant::now() + Duration::from_secs(60);
        let found = search(0.005, end, attempt).expect("nothing fails");
        assert!(found.attempts < 30, "{} attempts", found.attempts);
        let best = found.best.expect("the first rate passes");
        (best, found.lost_above)
    }

    #[test]
    fn the_highest_rate_that_passes_is_found() {
        for limit in [30e3, 123_456.0, 1.9e6] {
            let (best, lost_above) = found(limited(limit, f64::MAX));

            let share = best.received as f64 / limit;
            assert!((0.95..=1.001).contains(&share), "{share} of {limit}");
            assert!(lost_above);
        }
    }

    #[test]
    fn what_leaves_a_queue_later_is_carried_in_the_time_that_it_takes() {
        let (limit, queue) = (100e3, 40e3);
        let (best, _) = found(|asked| {
            let received = asked.min(limit + queue);
            Ok(Attempt {
                asked,
                sent: asked as u64,
                received: received as u64,
                seconds: 1.0,
                arriving: received / limit,
            })
        });

        let share = best.per_second() / limit;
        assert!((0.95..=1.001).contains(&share), "{share} of {limit}");
    }

    #[test]
    fn a_sender_that_offers_no_more_is_the_limit() {
        let (best, lost_above) = found(limited(f64::MAX, 150e3));

        assert_eq!(best.received, 150_000);
        assert!(!lost_above);
    }

    #[test]
    fn a_search_that_runs_out_of_time_says_so() {
        let end = Instant::now() + Duration::from_millis(30);
        let mut carries = limited(1e6, f64::MAX);
        let found = search(0.005, end, |rate| {
            thread::sleep(Duration::from_millis(20));
            carries(rate)
        });

        let found = found.expect("nothing fails");
        assert!(found.best.is_some() && !found.lost_above, "{found:?}");
    }

    #[test]
    fn one_bad_moment_changes_nothing() {
        let (mut count, mut good) = (0, limited(100e3, f64::MAX));
        let (best, _) = found(|rate| {
            count += 1;
            let outcome = good(rate)?;
            let received = if count == 1 { 0 } else { outcome.received };
            Ok(Attempt {
                received,
                ..outcome
            })
        });

        assert!(best.received > 95_000, "{}", best.received);
    }

    #[test]
    fn where_nothing_passes_nothing_is_found() {
        let end = Instant::now() + Duration::from_secs(60);
        let mut tried = 0;
        let found = search(0.005, end, |asked| {
            tried += 1;
            Ok(Attempt {
                asked,
                sent: 100,
                received: 99,
                seconds: 1.0,
                arriving: 1.0,
            })
        });

        assert_eq!(found.expect("nothing fails").best, None);
        assert!(tried < 100);
    }
}
