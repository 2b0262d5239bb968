//! Bulk data over TCP connections that exist: as much as they take, for a time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::Received;

/// As large as iperf3's.
const BLOCK: usize = 128 * 1024;

/// Sends from all senders to all receivers for `span`, which begins when `total` does.
pub fn transfer(
    senders: Vec<TcpStream>,
    receivers: Vec<TcpStream>,
    mut total: Received,
    span: Duration,
) -> io::Result<Received> {
    let end = total.start() + span;
    thread::scope(|scope| {
        let sending: Vec<_> = senders
            .into_iter()
            .map(|sender| scope.spawn(move || send(sender, end)))
            .collect();
        let receiving: Vec<_> = receivers
            .into_iter()
            .map(|receiver| {
                let received = total.clone();
                scope.spawn(move || receive(receiver, received))
            })
            .collect();
        for receiver in receiving {
            let received = receiver.join().expect("a receiver does not panic");
            total.add(&received?);
        }
        for sender in sending {
            let sent = sender.join().expect("a sender does not panic");
            sent?;
        }
        Ok(total)
    })
}

fn send(mut socket: TcpStream, end: Instant) -> io::Result<()> {
    let block = vec![0x5a; BLOCK];
    while Instant::now() < end {
        socket.write_all(&block)?;
    }
    socket.shutdown(Shutdown::Write)
}

fn receive(mut socket: TcpStream, mut received: Received) -> io::Result<Received> {
    let mut block = vec![0; BLOCK];
    loop {
        match socket.read(&mut block) {
            Ok(0) => return Ok(received),
            Ok(count) => received.note(Instant::now(), count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
