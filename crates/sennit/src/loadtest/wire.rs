//! The sockets of one end, and the engine's machine over them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use sennit_engine::{Bare, BareReceived, BareTransmit};
use sennit_linux::{
    poller::{Events, Interest, Poller},
    udp::{EcnCodepoint, LinkSocket, ReceiveBuffers, Run, SendError, Transmit},
};

/// Runs of packets sent before what has come is looked at: an acknowledgement waits no longer.
const SENDS: usize = 64;
/// A signal that came between two looks is seen so soon.
const LOOK: Duration = Duration::from_millis(50);

/// One or two sockets, and the connections over them.
pub(super) struct Wire {
    pub(super) bare: Bare,
    sockets: Vec<LinkSocket>,
    poller: Poller,
    events: Events,
    received: ReceiveBuffers,
    buffer: Vec<u8>,
    /// What a socket had no room for.
    unsent: Option<Unsent>,
    /// The socket of what is unsent is watched for room.
    watched: bool,
    /// What the kernel said when it last refused a packet.
    refusal: Option<String>,
}

struct Unsent {
    socket: usize,
    transmit: BareTransmit,
    bytes: Vec<u8>,
}

impl Wire {
    pub(super) fn new(bare: Bare, sockets: Vec<LinkSocket>) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (token, socket) in (0..).zip(&sockets) {
            poller.add(socket, token, Interest::Read)?;
        }
        Ok(Self {
            bare,
            events: Events::with_capacity(sockets.len()),
            sockets,
            poller,
            received: ReceiveBuffers::default(),
            buffer: Vec::new(),
            unsent: None,
            watched: false,
            refusal: None,
        })
    }

    /// Where the sockets are bound.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(LinkSocket::local_addr).collect()
    }

    /// Why packets do not leave, if they do not.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Sends what is to be sent, waits for something to come, at most until `until`, and takes it.
    /// The machine has events after that.
    pub(super) fn turn(&mut self, until: Instant) -> io::Result<()> {
        let more = self.flush()?;
        let now = Instant::now();
        let wake = self.bare.poll_timeout().map_or(until, |at| at.min(until));
        let patience = match more {
            true => Duration::ZERO,
            false => wake.saturating_duration_since(now).min(LOOK),
        };
        self.poller.wait(&mut self.events, Some(patience))?;
        self.receive()?;
        self.bare.handle_timeout(Instant::now());
        Ok(())
    }

    /// One call for each socket, 2 MB at most: what is read of a stream after it has fewer gaps
    /// than the 1024 for which noq ends a connection.
    fn receive(&mut self) -> io::Result<()> {
        for socket in &mut self.sockets {
            let many = socket.local_addr().ip().is_unspecified();
            let runs = socket.recv_runs(&mut self.received)?;
            for index in 0..runs {
                let Run {
                    meta,
                    data,
                    arrived,
                    read,
                } = self.received.take(index);
                let from = BareReceived {
                    // A socket of many addresses must answer from the one that was asked.
                    local: meta.dst_ip.filter(|_| many),
                    remote: meta.addr,
                    ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
                    segment: meta.stride,
                    arrived,
                };
                self.bare.handle_datagrams(from, data, read);
            }
        }
        Ok(())
    }

    /// Sends until there is nothing to send, or no room, or enough for one turn; whether there is
    /// more.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        if let Some(unsent) = self.unsent.take()
            && !self.offer(unsent.socket, unsent.transmit, unsent.bytes)?
        {
            return Ok(false);
        }
        for _ in 0..SENDS {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            let Some(transmit) = self.bare.poll_transmit(&mut buffer, Instant::now()) else {
                self.buffer = buffer;
                return Ok(false);
            };
            let of_family =
                |socket: &LinkSocket| socket.local_addr().is_ipv4() == transmit.remote.is_ipv4();
            let Some(socket) = self.sockets.iter().position(of_family) else {
                self.buffer = buffer;
                continue;
            };
            if !self.offer(socket, transmit, buffer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all of it left, or is lost; if not, it waits until the socket has room.
    fn offer(
        &mut self,
        index: usize,
        transmit: BareTransmit,
        mut bytes: Vec<u8>,
    ) -> io::Result<bool> {
        let socket = &mut self.sockets[index];
        let sent = send(socket, &transmit, &bytes, &mut self.refusal);
        let full = sent < bytes.len();
        if full {
            bytes.drain(..sent);
            self.unsent = Some(Unsent {
                socket: index,
                transmit,
                bytes,
            });
        } else {
            self.buffer = bytes;
        }
        if full != self.watched {
            let interest = if full {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            self.poller
                .modify(&self.sockets[index], index as u64, interest)?;
            self.watched = full;
        }
        Ok(!full)
    }
}

/// Bytes that are dealt with. What the kernel refuses is lost, as anywhere on the way.
fn send(
    socket: &mut LinkSocket,
    transmit: &BareTransmit,
    bytes: &[u8],
    refusal: &mut Option<String>,
) -> usize {
    let sent = socket.send(&Transmit {
        destination: transmit.remote,
        ecn: EcnCodepoint::from_bits(transmit.ecn),
        contents: bytes,
        segment_size: transmit.segment,
        src_ip: transmit.source,
    });
    match sent {
        Ok(sent) => {
            *refusal = None;
            sent.bytes
        }
        // A path's size is found by sending too much.
        Err(SendError::TooBig) => bytes.len(),
        Err(error @ (SendError::LinkDown(_) | SendError::Refused(_))) => {
            *refusal = Some(in_words(&error));
            bytes.len()
        }
    }
}

fn in_words(error: &SendError) -> String {
    use std::error::Error as _;
    let cause = error.source().map(ToString::to_string);
    cause.unwrap_or_else(|| error.to_string())
}

/// The address to bind to reach `remote`.
pub(super) fn any(remote: SocketAddr) -> SocketAddr {
    let any = match remote {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    SocketAddr::new(any, 0)
}
