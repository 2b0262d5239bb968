//! Pings: ICMP echo (RFC 792, RFC 4443 §4.1) by a raw socket, in several flows at once.

use std::{
    io::{self, Read as _},
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use sennit_packet::checksum::Sum;
use socket2::{Domain, Protocol, Socket, Type};

use crate::helper::{self, Task};

/// Type, code, checksum, identifier and number.
const HEADER: usize = 8;
/// As much as `ping` sends.
const PAYLOAD: usize = 56;
/// The longest answer is an IPv4 header with options and ours.
const ANSWER: usize = 60 + HEADER + PAYLOAD;

/// A socket that pings one address.
#[derive(Debug)]
pub struct Echo {
    socket: Socket,
    target: IpAddr,
}

/// What came back of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The identifier of the ping's flow.
    pub flow: u16,
    /// Its number in the flow.
    pub number: u16,
}

impl Echo {
    /// A socket for pings to `target`, which leave by the interface `device` if that is given.
    ///
    /// # Errors
    /// If this process may not open raw sockets, or there is no such interface.
    pub fn open(target: IpAddr, device: Option<&str>) -> io::Result<Self> {
        let (domain, protocol) = match target {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        socket.bind_device(device.map(str::as_bytes))?;
        socket.connect(&SocketAddr::new(target, 0).into())?;
        Ok(Self { socket, target })
    }

    /// A socket for pings to `target` through the tunnel of this daemon, by its helper, which has
    /// the rights to open one.
    ///
    /// # Errors
    /// If neither may open raw sockets.
    pub fn open_inside(target: IpAddr) -> io::Result<Self> {
        let Some(helper) = helper::engaged() else {
            return Self::open(target, None);
        };
        let socket = helper.fetch(&Task::OpenEcho(target))?;
        let socket = Socket::from(OwnedFd::from(socket));
        Ok(Self { socket, target })
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// If the host has no way to the target.
    pub fn send(&self, flow: u16, number: u16) -> io::Result<()> {
        let mut ping = [0; HEADER + PAYLOAD];
        ping[0] = if self.target.is_ipv4() { 8 } else { 128 };
        ping[4..6].copy_from_slice(&flow.to_be_bytes());
        ping[6..8].copy_from_slice(&number.to_be_bytes());
        if self.target.is_ipv4() {
            // That of ICMPv6 covers the source address, and is the kernel's to fill in.
            let checksum = !Sum::of(&ping).fold();
            ping[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        self.socket.send(&ping).map(|_| ())
    }

    /// Waits for an answer to any ping of this host to the target, until a moment.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn receive(&self, until: Instant) -> io::Result<Option<Answer>> {
        let mut bytes = [0; ANSWER];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // A timeout of zero would mean to wait for ever.
            let left = left.max(Duration::from_micros(100));
            self.socket.set_read_timeout(Some(left))?;
            match (&self.socket).read(&mut bytes) {
                Ok(length) => {
                    if let Some(answer) = self.parse(&bytes[..length]) {
                        return Ok(Some(answer));
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    // An ICMP error about an earlier ping is no answer.
                    io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// A raw socket of IPv4 hands out the IP header too, one of IPv6 does not.
    fn parse(&self, bytes: &[u8]) -> Option<Answer> {
        let (message, kind) = match self.target {
            IpAddr::V4(_) => {
                let header = usize::from(bytes.first()? & 0xf) * 4;
                (bytes.get(header..)?, 0)
            }
            IpAddr::V6(_) => (bytes, 129),
        };
        let header: &[u8; HEADER] = message.first_chunk()?;
        (header[0] == kind).then(|| Answer {
            flow: u16::from_be_bytes([header[4], header[5]]),
            number: u16::from_be_bytes([header[6], header[7]]),
        })
    }
}

impl From<Echo> for OwnedFd {
    fn from(echo: Echo) -> Self {
        echo.socket.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers_in_both_families() {
        for target in ["127.0.0.1", "::1"] {
            let target: IpAddr = target.parse().unwrap();
            // Needs root, and ::1 may be absent.
            let Ok(echo) = Echo::open(target, None) else {
                continue;
            };
            let flow = std::process::id() as u16;
            echo.send(flow, 7).unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            let expected = Answer { flow, number: 7 };
            while let Some(answer) = echo.receive(deadline).unwrap() {
                if answer == expected {
                    break;
                }
                assert!(Instant::now() < deadline, "nothing came back");
            }
        }
    }
}
