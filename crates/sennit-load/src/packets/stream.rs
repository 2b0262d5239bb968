//! UDP at a constant rate, of which every packet is timed.
//!
//! Both ends are of one process, so that one clock says when a packet left and when the kernel had
//! it at the other end.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use sennit_linux::poller::{Events, set_timer_slack};
use sennit_linux::udp::{LinkSocket, ReceiveBuffers, Run, Transmit};
use sennit_netem::Direction;

use super::{Receiver, SLACK, Sender, connect};
use crate::{Arrivals, Received, Schedule};

/// So many packets of different sizes follow each other, where they grow.
pub const PLACES: u16 = 10;

/// Number and time of sending of a packet.
pub const STAMP: usize = 16;

/// A packet that comes so long after the last one was sent counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a receiver that waits asks whether there is something to wait for.
const LOOK_UP: Duration = Duration::from_millis(20);

/// Packets to send.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// From the near end, or to it.
    pub direction: Direction,
    /// Payload of each, at least [`STAMP`].
    pub bytes: usize,
    /// How much longer each is than the last, up to the tenth ([`PLACES`]), after which the first
    /// size follows: so a link can lose those that have a place.
    pub grow: u16,
    /// How many leave each second.
    pub per_second: f64,
    /// How long they are sent.
    pub span: Duration,
    /// DSCP of the packets.
    pub dscp: u8,
    /// How fine the receiver looks at their bytes.
    pub bin: Duration,
}

/// What came of them.
#[derive(Debug)]
pub struct Streamed {
    /// Packets that were to leave, whatever the host made of them.
    pub sent: u64,
    /// What arrived, packet by packet.
    pub arrivals: Arrivals,
    /// What arrived, by time.
    pub received: Received,
}

/// Sends a stream between two sockets, of which the far one is bound to `address`.
pub fn stream(
    near: LinkSocket,
    far: LinkSocket,
    address: SocketAddr,
    asked: &Stream,
) -> io::Result<Streamed> {
    let bytes = asked.bytes.max(STAMP);
    let (mut sender, mut receiver) = connect(near, far, address, bytes, asked.direction)?;
    let epoch = Instant::now();
    let ended = OnceLock::new();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let sent = sender.stream(asked, epoch);
            // Whoever fails has sent nothing more, and is not waited for.
            let _ = ended.set((*sent.as_ref().unwrap_or(&0), Instant::now()));
            sent
        });
        let mut streamed = Streamed {
            sent: 0,
            arrivals: Arrivals::default(),
            received: Received::new(epoch, asked.bin),
        };
        let taken = receiver.take_stream(&mut streamed, epoch, &ended);
        streamed.sent = sending.join().expect("a sender does not panic")?;
        taken.map(|()| streamed)
    })
}

impl Sender {
    /// How many packets were sent.
    fn stream(&mut self, asked: &Stream, epoch: Instant) -> io::Result<u64> {
        set_timer_slack(SLACK)?;
        let longer = |place: u16| self.bytes + usize::from(asked.grow) * usize::from(place);
        let mut packet = vec![0; longer(PLACES)];
        let mut schedule = Schedule::per_second(asked.per_second, epoch);
        let end = epoch + asked.span;
        while schedule.next_at() < end {
            thread::sleep(schedule.next_at().saturating_duration_since(Instant::now()));
            if schedule.take(Instant::now()).is_none() {
                continue;
            }
            // The number of hellos is 0.
            packet[..8].copy_from_slice(&schedule.taken().to_be_bytes());
            let now = epoch.elapsed().as_nanos() as u64;
            packet[8..STAMP].copy_from_slice(&now.to_be_bytes());
            let place = (schedule.taken() - 1) % u64::from(PLACES);
            let transmit = Transmit {
                destination: self.destination,
                ecn: None,
                contents: &packet[..longer(place as u16)],
                segment_size: None,
                src_ip: None,
            };
            // What the host refuses is lost, as it is for whoever sends it.
            let _ = self.socket.send_marked(&transmit, asked.dscp);
        }
        Ok(schedule.taken())
    }
}

impl Receiver {
    /// Takes what arrives until all is there, or nothing more can come.
    fn take_stream(
        &mut self,
        streamed: &mut Streamed,
        epoch: Instant,
        ended: &OnceLock<(u64, Instant)>,
    ) -> io::Result<()> {
        let mut buffers = ReceiveBuffers::default();
        loop {
            let runs = self.socket.recv_runs(&mut buffers)?;
            for index in 0..runs {
                note(&buffers.take(index), streamed, epoch);
            }
            if runs > 0 {
                continue;
            }
            let is_over = ended.get().is_some_and(|(sent, at)| {
                streamed.arrivals.received() >= *sent || at.elapsed() > PATIENCE
            });
            if is_over {
                return Ok(());
            }
            self.poller
                .wait(&mut Events::with_capacity(1), Some(LOOK_UP))?;
        }
    }
}

/// Takes datagrams that arrived together into account.
fn note(run: &Run, streamed: &mut Streamed, epoch: Instant) {
    let arrived = run.arrived.saturating_duration_since(epoch);
    for datagram in run.data.chunks(run.meta.stride.max(1)) {
        let Some((number, sent)) = stamp(datagram) else {
            continue;
        };
        streamed.received.note(run.arrived, datagram.len());
        streamed
            .arrivals
            .note(number, datagram.len(), sent, arrived);
    }
}

/// The number from 0, and the time of sending; `None` for a hello.
fn stamp(datagram: &[u8]) -> Option<(u64, Duration)> {
    let (number, rest) = datagram.split_first_chunk()?;
    let sent = u64::from_be_bytes(*rest.first_chunk()?);
    let number = u64::from_be_bytes(*number).checked_sub(1)?;
    Some((number, Duration::from_nanos(sent)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn every_packet_of_a_stream_is_counted_and_timed_in_either_direction() {
        for direction in Direction::BOTH {
            let open = || LinkSocket::listen((Ipv4Addr::LOCALHOST, 0).into());
            let (near, far) = (
                open().expect("a port is free"),
                open().expect("another too"),
            );
            let address = far.local_addr();
            let asked = Stream {
                direction,
                bytes: 160,
                grow: 2,
                per_second: 200.0,
                span: Duration::from_millis(250),
                dscp: 0,
                bin: Duration::from_millis(50),
            };

            let streamed = stream(near, far, address, &asked).expect("loopback carries it");

            let figures = streamed.arrivals.figures(Some(streamed.sent));
            assert_eq!((figures.sent, figures.received), (50, 50), "{direction}");
            assert_eq!(figures.delay_variation.count, 50);
            assert_eq!(figures.bytes, 5 * (10 * 160 + 2 * 45), "ten sizes");
        }
    }
}
