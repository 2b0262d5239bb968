//! Round trips by ICMP echo, with times in microseconds whatever the distance.
//!
//! A ping socket is enough where the host allows it (`net.ipv4.ping_group_range`); otherwise it
//! takes a raw one, which takes root.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use sennit_linux::poller::{Events, Interest, Poller};

use crate::Schedule;

/// ICMP header: type, code, checksum, identity, sequence.
const HEADER: usize = 8;
/// The largest IP packet.
const LARGEST: usize = 65_535;
/// So many requests in a row without any answer are enough: even over a link that loses one packet
/// in ten each way, seven in a thousand hosts would be given up.
const UNANSWERED: u16 = 3;

/// A socket that sends echo requests to one host.
#[derive(Debug)]
pub struct Echo {
    socket: OwnedFd,
    /// A socket's own timeout is rounded up to the kernel's ticks of up to 10 ms.
    poller: Poller,
    remote: SocketAddr,
    /// The kernel hands over everything of ICMP, and checksums are ours with IPv4.
    raw: bool,
    identity: u16,
    buffer: Vec<u8>,
}

impl Echo {
    /// A socket for this host, in the network namespace of the calling thread.
    pub fn open(remote: IpAddr) -> io::Result<Self> {
        let (family, protocol) = match remote {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let open =
            |kind| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol));
        let (socket, raw) = match open(SocketType::DGRAM) {
            Ok(socket) => (socket, false),
            Err(_) => (open(SocketType::RAW)?, true),
        };
        let poller = Poller::new()?;
        poller.add(&socket, 0, Interest::Read)?;
        Ok(Self {
            socket,
            poller,
            remote: SocketAddr::new(remote, 0),
            raw,
            identity: std::process::id() as u16,
            buffer: vec![0; LARGEST],
        })
    }

    /// The fastest of `count` round trips with so much payload, one after the other; `None` if
    /// nothing came back in time, for which no more than [`UNANSWERED`] are tried.
    pub fn fastest(
        &mut self,
        payload: usize,
        count: u16,
        patience: Duration,
    ) -> io::Result<Option<Duration>> {
        fastest_of(count, |sequence| {
            let sent = Instant::now();
            self.send(sequence, payload)?;
            let answered = self.receive(sent + patience, |number| number == sequence)?;
            Ok(answered.map(|(_, at)| at - sent))
        })
    }

    /// Round trips of `count` requests that leave when the schedule says, whatever is answered;
    /// `None` for each that was not in time.
    pub fn series(
        &mut self,
        payload: usize,
        mut schedule: Schedule,
        count: u16,
        patience: Duration,
    ) -> io::Result<Vec<Option<Duration>>> {
        let mut sent: Vec<Instant> = Vec::new();
        let total = usize::from(count);
        let mut round_trips = vec![None; total];
        let mut open = total;
        while open > 0 {
            let now = Instant::now();
            while sent.len() < total && schedule.take(now).is_some() {
                sent.push(Instant::now());
                self.send(sent.len() as u16, payload)?;
            }
            let until = match (sent.len() < total, sent.last()) {
                (false, Some(last)) => *last + patience,
                (true, _) | (_, None) => schedule.next_at(),
            };
            let known = |number: u16| (1..=sent.len()).contains(&number.into());
            match self.receive(until, known)? {
                Some((number, at)) => {
                    let index = usize::from(number) - 1;
                    if round_trips[index].is_none() {
                        round_trips[index] = Some(at - sent[index]);
                        open -= 1;
                    }
                }
                None if sent.len() == total => break,
                None => {}
            }
        }
        Ok(round_trips)
    }

    fn send(&mut self, sequence: u16, payload: usize) -> io::Result<()> {
        let request = match self.remote {
            SocketAddr::V4(_) => 8,
            SocketAddr::V6(_) => 128,
        };
        let mut packet = vec![0; HEADER + payload];
        packet[0] = request;
        packet[4..6].copy_from_slice(&self.identity.to_be_bytes());
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        if self.raw && self.remote.is_ipv4() {
            let checksum = checksum(&packet);
            packet[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        rustix::net::sendto(&self.socket, &packet, SendFlags::empty(), &self.remote)?;
        Ok(())
    }

    /// The next answer that is `wanted`, and when it came.
    fn receive(
        &mut self,
        until: Instant,
        wanted: impl Fn(u16) -> bool,
    ) -> io::Result<Option<(u16, Instant)>> {
        loop {
            let buffer = &mut self.buffer[..];
            let received = rustix::net::recv(&self.socket, buffer, RecvFlags::DONTWAIT);
            let at = Instant::now();
            match received {
                Ok((len, _)) => {
                    let number = self.answer(&self.buffer[..len]);
                    if let Some(number) = number.filter(|number| wanted(*number)) {
                        return Ok(Some((number, at)));
                    }
                }
                Err(rustix::io::Errno::AGAIN) if at < until => {
                    self.poller
                        .wait(&mut Events::with_capacity(1), Some(until - at))?;
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if at >= until {
                return Ok(None);
            }
        }
    }

    /// The sequence number of an answer to one of ours.
    fn answer(&self, packet: &[u8]) -> Option<u16> {
        let is_v4 = self.remote.is_ipv4();
        let header = match packet.first() {
            Some(first) if self.raw && is_v4 => usize::from(first & 0xf) * 4,
            _ => 0,
        };
        let head: [u8; HEADER] = packet.get(header..header + HEADER)?.try_into().ok()?;
        let [kind, _, _, _, i0, i1, s0, s1] = head;
        let ours = !self.raw || u16::from_be_bytes([i0, i1]) == self.identity;
        let is_answer = kind == if is_v4 { 0 } else { 129 };
        (ours && is_answer).then(|| u16::from_be_bytes([s0, s1]))
    }
}

/// The fastest of `count` tries, which are numbered from one.
fn fastest_of(
    count: u16,
    mut round_trip: impl FnMut(u16) -> io::Result<Option<Duration>>,
) -> io::Result<Option<Duration>> {
    let mut fastest = None;
    for sequence in 1..=count {
        fastest = fastest.into_iter().chain(round_trip(sequence)?).min();
        if fastest.is_none() && sequence >= UNANSWERED {
            break;
        }
    }
    Ok(fastest)
}

/// That of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [last] => u32::from(last) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const HERE: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    const PATIENCE: Duration = Duration::from_secs(5);

    /// A socket to this host, where it may have one.
    fn here(host: IpAddr) -> Option<Echo> {
        let opened = Echo::open(host);
        if let Err(error) = &opened {
            eprintln!("skipped: {host}: {error}");
        }
        opened.ok()
    }

    #[test]
    fn a_host_answers_itself_with_small_and_large_packets() {
        for host in HERE {
            let Some(mut echo) = here(host) else { continue };
            for payload in [16, 1472, 8000] {
                match echo.fastest(payload, 2, PATIENCE) {
                    Ok(round_trip) => assert!(round_trip.is_some(), "{host} {payload}"),
                    Err(error) => eprintln!("skipped: {host}: {error}"),
                }
            }
        }
    }

    #[test]
    fn who_answers_nothing_is_not_asked_again_and_again() {
        let asked = |answers: fn(u16) -> Option<Duration>| {
            let mut asked = 0;
            let found = fastest_of(10, |sequence| {
                asked = sequence;
                Ok(answers(sequence))
            });
            (asked, found.expect("it can be reached"))
        };
        assert_eq!(asked(|_| None), (UNANSWERED, None));
        // One answer is enough to go on.
        let late = asked(|sequence| (sequence == 3).then_some(PATIENCE));
        assert_eq!(late, (10, Some(PATIENCE)));
    }

    #[test]
    fn each_request_of_a_series_has_its_round_trip() {
        let Some(mut echo) = here(HERE[0]) else {
            return;
        };
        let schedule = Schedule::per_second(2000.0, Instant::now());
        let round_trips = echo.series(56, schedule, 20, PATIENCE);
        let round_trips = round_trips.expect("this host can be reached");
        assert!(round_trips.iter().all(Option::is_some), "{round_trips:?}");
    }

    /// The kernel's own timeout of a socket ends with one of its ticks, up to 10 ms later.
    #[test]
    fn a_wait_for_an_answer_ends_when_it_should() {
        let Some(mut echo) = here(HERE[0]) else {
            return;
        };
        let wait = Duration::from_millis(1);
        let mut least = Duration::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            let answer = echo.receive(start + wait, |_| false);
            assert_eq!(answer.expect("the socket is sound"), None);
            least = least.min(start.elapsed());
        }
        assert!((wait..wait * 2).contains(&least), "{least:?}");
    }

    #[test]
    fn checksums_are_those_of_the_rfc() {
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
        assert_eq!(checksum(&[0xff]), 0x00ff);
    }
}
