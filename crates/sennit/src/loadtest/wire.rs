//! What lies between the engine's machine and the network: the sockets of one end, and if wanted an
//! emulated link under them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_engine::{BareReceived, BareTransmit};
use sennit_linux::{
    poller::{Events, Interest, Poller},
    udp::{EcnCodepoint, LinkSocket, ReceiveBuffers, Run, SendError, Transmit},
};

use super::{PORT, emulation::Emulation, stack::Stack};

/// Runs of packets sent before what has come is looked at: an acknowledgement waits no longer.
const SENDS: usize = 64;
/// Packets that an emulated link hands on before they are read. A machine that is late has
/// thousands at once, and noq ends a connection when more than 2048 pieces of a stream wait to be
/// read.
const HANDED_ON: usize = 1024;
/// A signal that came between two looks is seen so soon.
const LOOK: Duration = Duration::from_millis(50);

/// A network, and the clock that goes with it.
pub(super) trait Network {
    /// What time it is.
    fn now(&self) -> Instant;

    /// Sends what is to be sent, waits for something to come, at most until `until`, and takes it.
    /// The machine has events after that.
    fn turn(&mut self, quic: &mut dyn Stack, until: Instant) -> io::Result<()>;

    /// Sends until there is nothing to send, or no room, or enough for one turn; whether there is
    /// more.
    fn flush(&mut self, quic: &mut dyn Stack) -> io::Result<bool>;

    /// Why packets do not leave, if they do not.
    fn refusal(&self) -> Option<&str> {
        None
    }

    /// An emulated link that moves begins its script with the load.
    fn begin(&mut self) {}

    /// The link that is emulated, if one is.
    fn emulation(&self) -> Option<&Emulation> {
        None
    }
}

/// One or two sockets of this host.
pub(super) struct Wire {
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
    emulation: Option<Emulation>,
}

struct Unsent {
    socket: usize,
    transmit: BareTransmit,
    bytes: Vec<u8>,
}

impl Wire {
    pub(super) fn new(sockets: Vec<LinkSocket>, emulation: Option<Emulation>) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (token, socket) in (0..).zip(&sockets) {
            poller.add(socket, token, Interest::Read)?;
        }
        Ok(Self {
            events: Events::with_capacity(sockets.len()),
            sockets,
            poller,
            received: ReceiveBuffers::default(),
            buffer: Vec::new(),
            unsent: None,
            watched: false,
            refusal: None,
            emulation,
        })
    }

    /// Where the sockets are bound.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(LinkSocket::local_addr).collect()
    }

    /// Sleeps until something comes or is due at the emulated link, at most until `until`.
    pub(super) fn sleep(&mut self, until: Instant) -> io::Result<()> {
        let due = self.emulation.as_ref().and_then(Emulation::poll_timeout);
        let wake = due.map_or(until, |due| due.min(until));
        let patience = wake.saturating_duration_since(Instant::now()).min(LOOK);
        self.poller.wait(&mut self.events, Some(patience))?;
        self.release()
    }

    /// Takes what has come: one call for each socket, 2 MB at most, or [`HANDED_ON`] packets of an
    /// emulated link. So few pieces of a stream wait to be read that noq lets it be.
    pub(super) fn receive(
        &mut self,
        mut take: impl FnMut(BareReceived, BytesMut, Instant),
    ) -> io::Result<()> {
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
                match &mut self.emulation {
                    Some(link) => link.enter_down(from, data),
                    None => take(from, data, read),
                }
            }
        }
        if let Some(link) = &mut self.emulation {
            let now = Instant::now();
            for _ in 0..HANDED_ON {
                let Some((from, data)) = link.leave_down(now) else {
                    break;
                };
                take(from, data, now);
            }
        }
        Ok(())
    }

    /// Hands a run of packets to the link, or to the socket; whether there is room for more.
    pub(super) fn send(&mut self, transmit: BareTransmit, bytes: Vec<u8>) -> io::Result<bool> {
        if let Some(link) = &mut self.emulation {
            link.enter_up(&transmit, &bytes, Instant::now());
            self.buffer = bytes;
            return Ok(true);
        }
        self.offer(transmit, bytes)
    }

    /// What has come to the end of the link goes on.
    pub(super) fn release(&mut self) -> io::Result<()> {
        let now = Instant::now();
        while self.unsent.is_none()
            && let Some(link) = &mut self.emulation
            && let Some((transmit, bytes)) = link.leave_up(now)
        {
            self.offer(transmit, bytes)?;
        }
        Ok(())
    }

    /// Whether all of it left, or is lost; if not, it waits until the socket has room.
    fn offer(&mut self, transmit: BareTransmit, bytes: Vec<u8>) -> io::Result<bool> {
        let of_family =
            |socket: &LinkSocket| socket.local_addr().is_ipv4() == transmit.remote.is_ipv4();
        match self.sockets.iter().position(of_family) {
            Some(index) => self.offer_to(index, transmit, bytes),
            None => Ok(true),
        }
    }

    fn offer_to(
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

impl Network for Wire {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn turn(&mut self, quic: &mut dyn Stack, until: Instant) -> io::Result<()> {
        let more = self.flush(quic)?;
        let now = Instant::now();
        let wake = quic.poll_timeout().map_or(until, |at| at.min(until));
        self.sleep(if more { now } else { wake })?;
        self.receive(|from, data, read| quic.handle_datagrams(from, data, read))?;
        quic.handle_timeout(Instant::now());
        Ok(())
    }

    fn flush(&mut self, quic: &mut dyn Stack) -> io::Result<bool> {
        if let Some(unsent) = self.unsent.take()
            && !self.offer_to(unsent.socket, unsent.transmit, unsent.bytes)?
        {
            return Ok(false);
        }
        for _ in 0..SENDS {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            let Some(transmit) = quic.poll_transmit(&mut buffer, Instant::now()) else {
                self.buffer = buffer;
                self.release()?;
                return Ok(false);
            };
            if !self.send(transmit, buffer)? {
                return Ok(false);
            }
        }
        self.release()?;
        Ok(true)
    }

    fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn begin(&mut self) {
        if let Some(link) = &mut self.emulation {
            link.begin(Instant::now());
        }
    }

    fn emulation(&self) -> Option<&Emulation> {
        self.emulation.as_ref()
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

/// What the host refused, and why.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// The address to bind to reach `remote`.
pub(super) fn any(remote: SocketAddr) -> SocketAddr {
    let any = match remote {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    SocketAddr::new(any, 0)
}

/// Sockets at one address, or at all of this host.
pub(super) fn listen(address: Option<SocketAddr>) -> Result<Vec<LinkSocket>, String> {
    if let Some(address) = address {
        let socket = LinkSocket::listen(address).map_err(|error| with_cause(&error))?;
        return Ok(vec![socket]);
    }
    let v4 = LinkSocket::listen((Ipv4Addr::UNSPECIFIED, PORT).into());
    let v6 = LinkSocket::listen((Ipv6Addr::UNSPECIFIED, PORT).into());
    match (v4, v6) {
        // A host may have one of them only.
        (Ok(v4), Ok(v6)) => Ok(vec![v4, v6]),
        (Ok(socket), Err(error)) | (Err(error), Ok(socket)) => {
            tracing::debug!(%error, "one address family only");
            Ok(vec![socket])
        }
        (Err(error), Err(_)) => Err(with_cause(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadtest::profile::Profile;

    /// Else noq ends the connection, with `too many gaps in stream buffer`.
    #[test]
    fn what_waits_at_an_emulated_link_is_handed_on_in_portions() {
        const WAITING: usize = 3 * HANDED_ON;
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = LinkSocket::listen(here).expect("loopback has room");
        let mut profile: Profile = "1/0".parse().expect("it is a link");
        profile.spec.down.rate = None;
        let mut link = Emulation::new(&profile.spec, 1);
        for _ in 0..WAITING {
            let from = BareReceived {
                local: None,
                remote: here,
                ecn: 0,
                segment: 1,
                arrived: Instant::now(),
            };
            link.enter_down(from, BytesMut::from(&[0_u8][..]));
        }
        let mut wire = Wire::new(vec![socket], Some(link)).expect("there is a poller");
        let mut portion = || {
            let mut count = 0;
            wire.receive(|_, _, _| count += 1).expect("nothing fails");
            count
        };

        let portions = [portion(), portion(), portion(), portion()];

        assert_eq!(portions, [HANDED_ON, HANDED_ON, HANDED_ON, 0]);
    }
}
