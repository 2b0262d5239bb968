//! Where the hub sees the packets of a link come from.
//!
//! One socket of the link shakes hands with each address of the hub, which tells everybody who asks
//! in his own connection where it sees that come from, and nobody else. What two of its addresses
//! say of the one socket shows how a NAT maps. Nothing is requested, and the connections end at
//! once.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_core::Congestion;
use sennit_engine::{Bare, BareConfig, BareEvent, BareReceived, ConnId};
use sennit_linux::{inquiry, udp::LinkBinding};

use crate::{
    daemon::{
        edge::{far_side::Proofs, probe::PATIENCE},
        random_seed,
    },
    exit::Failure,
    status::Sighting,
};

/// A hub tells with its first packets after a handshake; one that has not by then does not tell.
const TELLS_WITHIN: Duration = Duration::from_secs(1);
/// The largest datagram.
const DATAGRAM: usize = 65_536;
/// H3_NO_ERROR (RFC 9114 §8.1).
const NO_ERROR: u32 = 0x100;

/// Asks each of these addresses of the hub, which are of one family, by a socket of the link.
pub(super) fn look(
    binding: &LinkBinding<'_>,
    hubs: &[SocketAddr],
    proofs: &Proofs,
) -> Vec<Sighting> {
    let asked = Asking::begin(binding, hubs, proofs).and_then(Asking::finish);
    asked.unwrap_or_else(|error| {
        let (error, device) = (error.message(), binding.device);
        tracing::debug!(error, device, "cannot ask where the hub sees a link");
        Vec::new()
    })
}

/// An address of the hub that has not told yet, and how long it has time for that.
struct Asked {
    hub: SocketAddr,
    until: Instant,
}

/// Connections that are there for one answer.
struct Asking {
    bare: Bare,
    socket: UdpSocket,
    asked: BTreeMap<ConnId, Asked>,
    told: Vec<Sighting>,
    buffer: Vec<u8>,
}

impl Asking {
    fn begin(
        binding: &LinkBinding<'_>,
        hubs: &[SocketAddr],
        proofs: &Proofs,
    ) -> Result<Self, Failure> {
        let socket = inquiry::udp_to_any(binding)?;
        socket.set_nonblocking(false).map_err(Failure::runtime)?;
        let now = Instant::now();
        let mut bare = Bare::client(BareConfig {
            congestion: Congestion::Cubic,
            idle: PATIENCE,
            seed: random_seed()?,
            reset_key: random_seed()?,
            most: hubs.len(),
            most_per_address: hubs.len(),
        });
        let mut asked = BTreeMap::new();
        for &hub in hubs {
            let tls = Arc::clone(&proofs.tls);
            let id = bare.connect(tls, hub, &proofs.server_name, now);
            let until = now + PATIENCE;
            asked.insert(id.map_err(Failure::runtime)?, Asked { hub, until });
        }
        Ok(Self {
            bare,
            socket,
            asked,
            told: Vec::new(),
            buffer: vec![0; DATAGRAM],
        })
    }

    /// Waits until each has told, or has had its time.
    fn finish(mut self) -> Result<Vec<Sighting>, Failure> {
        loop {
            let now = Instant::now();
            self.take_answers(now)?;
            self.flush(now);
            if self.asked.is_empty() {
                return Ok(self.told);
            }
            self.receive(now).map_err(Failure::runtime)?;
        }
    }

    fn take_answers(&mut self, now: Instant) -> Result<(), Failure> {
        if self.bare.poll_timeout().is_some_and(|at| at <= now) {
            self.bare.handle_timeout(now);
        }
        while let Some(event) = self.bare.poll_event() {
            match event {
                BareEvent::Connected(id) => {
                    if let Some(asked) = self.asked.get_mut(&id) {
                        asked.until = asked.until.min(now + TELLS_WITHIN);
                    }
                }
                BareEvent::Lost(id, ended) => {
                    tracing::debug!(%ended, "the hub tells nothing");
                    self.asked.remove(&id);
                }
                BareEvent::Accepted(..)
                | BareEvent::Opened(..)
                | BareEvent::Readable(..)
                | BareEvent::Writable(..)
                | BareEvent::Delivered(..)
                | BareEvent::DatagramRoom(_)
                | BareEvent::Datagram(..) => {}
            }
        }
        let local = self.socket.local_addr().map_err(Failure::runtime)?;
        let (bare, told) = (&mut self.bare, &mut self.told);
        self.asked.retain(|&id, asked| {
            let seen = bare.observed(id);
            told.extend(seen.map(|seen| Sighting {
                local,
                hub: asked.hub,
                seen,
            }));
            let is_over = seen.is_some() || asked.until <= now;
            if is_over {
                bare.close(id, NO_ERROR, "", now);
            }
            !is_over
        });
        Ok(())
    }

    fn flush(&mut self, now: Instant) {
        let mut packets = Vec::new();
        while let Some(transmit) = self.bare.poll_transmit(&mut packets, now) {
            let size = transmit.segment.unwrap_or(transmit.size).max(1);
            for packet in packets[..transmit.size].chunks(size) {
                // One that is not sent is a lost one.
                let _ = self.socket.send_to(packet, transmit.remote);
            }
            packets.clear();
        }
    }

    /// Waits for a packet, at most until there is something else to do.
    fn receive(&mut self, now: Instant) -> io::Result<()> {
        let due = self.asked.values().map(|asked| asked.until);
        let due = due.chain(self.bare.poll_timeout()).min().unwrap_or(now);
        let wait = due.saturating_duration_since(now);
        // None at all would be for ever.
        self.socket
            .set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let (size, remote) = match self.socket.recv_from(&mut self.buffer) {
            Ok(received) => received,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => Ok(()),
                    _ => Err(error),
                };
            }
        };
        let arrived = Instant::now();
        let from = BareReceived {
            local: None,
            remote,
            ecn: 0,
            segment: size,
            arrived,
        };
        let packet = BytesMut::from(&self.buffer[..size]);
        self.bare.handle_datagrams(from, packet, arrived);
        Ok(())
    }
}
