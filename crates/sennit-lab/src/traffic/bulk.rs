//! Bulk data over kernel MPTCP (RFC 8684): as much as the connection takes, for a time.
//!
//! The edge connects from its first link to the server; the path manager of its kernel adds a
//! subflow from each other link. Every subflow is as good as the first, none is a backup.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::{Context, TcpFigures};
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::lab::Lab;
use crate::link::Direction;
use crate::measure::{BIN, Bins};
use crate::plan;
use crate::scenario::Tcp;

/// As large as iperf3's.
const BLOCK: usize = 128 * 1024;

/// Longer than any cut that a scenario makes under load.
const STALLED: Duration = Duration::from_secs(30);

/// What a receiver has seen, bin by bin since the start of the traffic.
#[derive(Debug, Default)]
struct Received {
    bytes: Vec<u64>,
}

pub(super) fn mptcp(tcp: &Tcp, context: &Context<'_>) -> Result<TcpFigures, Error> {
    configure(context.lab)?;
    let address = SocketAddr::from((plan::SERVER.v4, tcp.port.unwrap_or(context.port)));
    let listener = listen(context.lab, address, tcp).doing(|| "listen for MPTCP".into())?;
    let span = Duration::from_secs(context.seconds.into());
    let (near, far): (Vec<_>, Vec<_>) = (0..tcp.streams)
        .map(|_| connect(context.lab, &listener, address, tcp))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let (senders, receivers) = match tcp.direction {
        Direction::Up => (near, far),
        Direction::Down => (far, near),
    };
    let start = Instant::now();
    let received = transfer(senders, receivers, start, span)?;
    Ok(figures(
        &received,
        start.duration_since(context.start),
        span,
    ))
}

/// Lets the edge's kernel use all links for one connection; doing it again changes nothing.
fn configure(lab: &Lab) -> Result<(), Error> {
    let mut edge =
        String::from("mptcp endpoint flush\nmptcp limits set subflow 8 add_addr_accepted 0\n");
    // The first link carries the first subflow by the default route.
    for link in lab.links().skip(1) {
        let (address, device) = (link.subnet().edge().v4, link.device());
        edge.push_str(&format!(
            "mptcp endpoint add {address} dev {device} subflow\n"
        ));
    }
    lab.host(Role::Edge).ip(&edge)?;
    lab.host(Role::Server)
        .ip("mptcp limits set subflow 8 add_addr_accepted 0\n")
}

fn socket(tcp: &Tcp) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
    socket.set_tcp_congestion(tcp.congestion.as_bytes())?;
    Ok(socket)
}

fn listen(lab: &Lab, address: SocketAddr, tcp: &Tcp) -> std::io::Result<Socket> {
    lab.host(Role::Server).netns().run(|| {
        let socket = socket(tcp)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(128)?;
        Ok(socket)
    })?
}

/// One connection: the edge's end and the server's.
fn connect(
    lab: &Lab,
    listener: &Socket,
    address: SocketAddr,
    tcp: &Tcp,
) -> Result<(TcpStream, TcpStream), Error> {
    let near = lab.host(Role::Edge).netns().run(|| {
        let socket = socket(tcp)?;
        socket.connect_timeout(&address.into(), Duration::from_secs(10))?;
        Ok(socket)
    });
    let near = near
        .and_then(|near| near)
        .doing(|| format!("connect by MPTCP to {address}"))?;
    let (far, _) = listener
        .accept()
        .doing(|| "accept an MPTCP connection".into())?;
    for end in [&near, &far] {
        end.set_read_timeout(Some(STALLED))
            .and_then(|()| end.set_write_timeout(Some(STALLED)))
            .doing(|| "limit the wait on a socket".into())?;
    }
    Ok((near.into(), far.into()))
}

fn transfer(
    senders: Vec<TcpStream>,
    receivers: Vec<TcpStream>,
    start: Instant,
    span: Duration,
) -> Result<Received, Error> {
    thread::scope(|scope| {
        let sending: Vec<_> = senders
            .into_iter()
            .map(|sender| scope.spawn(move || send(sender, start + span)))
            .collect();
        let receiving: Vec<_> = receivers
            .into_iter()
            .map(|end| scope.spawn(move || receive(end, start)))
            .collect();
        let mut total = Received::default();
        for receiver in receiving {
            let received = receiver.join().expect("a receiver does not panic");
            total.add(&received.doing(|| "receive by MPTCP".into())?);
        }
        for sender in sending {
            let sent = sender.join().expect("a sender does not panic");
            sent.doing(|| "send by MPTCP".into())?;
        }
        Ok(total)
    })
}

fn send(mut socket: TcpStream, end: Instant) -> std::io::Result<()> {
    let block = vec![0x5a; BLOCK];
    while Instant::now() < end {
        socket.write_all(&block)?;
    }
    socket.shutdown(std::net::Shutdown::Write)
}

fn receive(mut socket: TcpStream, start: Instant) -> std::io::Result<Received> {
    let mut block = vec![0; BLOCK];
    let mut received = Received::default();
    loop {
        match socket.read(&mut block) {
            Ok(0) => return Ok(received),
            Ok(count) => received.note(start.elapsed(), count as u64),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Received {
    fn note(&mut self, at: Duration, bytes: u64) {
        let index = (at.as_micros() / BIN.as_micros()) as usize;
        if self.bytes.len() <= index {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes;
    }

    fn add(&mut self, other: &Self) {
        let longer = self.bytes.len().max(other.bytes.len());
        self.bytes.resize(longer, 0);
        for (sum, bytes) in self.bytes.iter_mut().zip(&other.bytes) {
            *sum += bytes;
        }
    }
}

/// What arrived within the time of the test, as iperf3 counts it.
fn figures(received: &Received, start: Duration, span: Duration) -> TcpFigures {
    let bins = (span.as_micros() / BIN.as_micros()) as usize;
    let mut counts = received.bytes.clone();
    counts.resize(bins, 0);
    let bytes = counts.iter().sum();
    let rates = counts
        .iter()
        .map(|bytes| *bytes as f64 / BIN.as_secs_f64())
        .collect();
    TcpFigures {
        bytes,
        seconds: span.as_secs_f64(),
        goodput: bytes as f64 / span.as_secs_f64(),
        retransmits: None,
        start_seconds: start.as_secs_f64(),
        bins: Bins(rates),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_arrives_in_time_counts() {
        let mut received = Received::default();
        received.note(Duration::from_millis(50), 100);
        received.note(Duration::from_millis(150), 300);
        received.note(Duration::from_millis(250), 999);

        let figures = figures(&received, Duration::ZERO, Duration::from_millis(200));

        assert_eq!((figures.bytes, figures.goodput), (400, 2000.0));
        assert_eq!(figures.bins, Bins(vec![1000.0, 3000.0]));
    }
}
