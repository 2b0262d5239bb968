//! One question to a hub, without a daemon: whether it takes an invitation.
//!
//! `sennit join` exchanges the token at once where it reaches the hub, so that a token that is used
//! or revoked is refused then and there. It has no links yet: packets leave as the host sends them.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_core::{ClassId, Classifier};
use sennit_engine::{
    Edge, EdgeConfig as EngineConfig, EdgeEvent, Issuer, LinkLabel, LinkUpdate, Local, Purpose,
    Received, Rekey, Settings, SocketId, Transmit,
};

use super::far_side::class_config;
use crate::{
    config::Class,
    daemon::random_seed,
    exit::Failure,
    identity::{self, EdgeIdentity, IdentityError},
    remote::Remote,
};

/// A handshake and an answer take three round trips, and the first packet may be lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at the sockets.
const LOOK: Duration = Duration::from_millis(5);
/// With this, packets are as small as QUIC allows, and fit any path.
const INNER_MTU: u16 = 1000;
/// The largest datagram.
const DATAGRAM: usize = 65_536;
const SOCKET: SocketId = SocketId(0);

/// What the hub said.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// The identity has its certificate.
    Certified,
    /// It does not take the token, for this reason.
    Refused(String),
    /// Nothing, or nothing that decides.
    NoAnswer,
}

/// Exchanges the invitation of `identity` for a certificate, if the hub answers within some
/// seconds.
pub fn ask(identity: &mut EdgeIdentity) -> Result<Asked, Failure> {
    let hubs: Vec<SocketAddr> = identity.hubs.iter().flat_map(addresses).collect();
    let sockets = Sockets::open();
    let started = Instant::now();
    let mut edge = engine(identity, hubs, started)?;
    edge.handle_link(sockets.link(), started);
    loop {
        let now = Instant::now();
        if edge.poll_timeout().is_some_and(|at| at <= now) {
            edge.handle_timeout(now);
        }
        sockets.receive(&mut edge, now);
        while let Some(event) = edge.poll_event(now) {
            if let Some(asked) = judge(event, identity)? {
                edge.close(now);
                sockets.send(&mut edge, now);
                return Ok(asked);
            }
        }
        sockets.send(&mut edge, now);
        if now >= started + PATIENCE {
            return Ok(Asked::NoAnswer);
        }
        thread::sleep(LOOK);
    }
}

/// By the host's own resolver, as there is no link yet.
fn addresses(remote: &Remote) -> Vec<SocketAddr> {
    match remote {
        Remote::Address(address) => vec![*address],
        Remote::Name { host, port } => (host.as_str(), *port)
            .to_socket_addrs()
            .map_or_else(|_| Vec::new(), Iterator::collect),
    }
}

fn engine(identity: &EdgeIdentity, hubs: Vec<SocketAddr>, now: Instant) -> Result<Edge, Failure> {
    let tls = identity::client_config(identity)?;
    let settings = Settings {
        inner_mtu: INNER_MTU,
        issuer: Issuer::default(),
        seed: random_seed()?,
        reset_key: random_seed()?,
        rekey: Rekey::default(),
    };
    let config = EngineConfig {
        hubs,
        server_name: tls.server_name,
        classes: BTreeMap::from([(ClassId(0), class_config(&Class::default()))]),
        classifier: Classifier::default(),
        sharing: None,
        classic: Some(Arc::new(tls.classic)),
        lan: Vec::new(),
        bearer: None,
        steering: 0,
    };
    let purpose = Purpose::Enrol(identity.enrollment_request()?.into());
    Edge::new(settings, config, Arc::new(tls.config), purpose, now).map_err(Failure::runtime)
}

/// What an event means for the question, if anything.
fn judge(event: EdgeEvent, identity: &mut EdgeIdentity) -> Result<Option<Asked>, Failure> {
    match event {
        EdgeEvent::Enrolled(answer) => match identity.accept(&answer) {
            Ok(()) => Ok(Some(Asked::Certified)),
            Err(IdentityError::Refused { reason, .. }) => Ok(Some(Asked::Refused(reason))),
            Err(error) => Err(error.into()),
        },
        // A hub that cannot answer now (status 503) has not decided.
        EdgeEvent::Refused {
            reason,
            lasting: true,
            ..
        } => Ok(Some(Asked::Refused(reason))),
        _ => Ok(None),
    }
}

/// One of each family that the host has.
struct Sockets([Option<UdpSocket>; 2]);

impl Sockets {
    fn open() -> Self {
        let any: [IpAddr; 2] = [[0; 4].into(), [0_u16; 8].into()];
        Self(any.map(|any| {
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        }))
    }

    fn link(&self) -> LinkUpdate {
        LinkUpdate {
            socket: SOCKET,
            label: LinkLabel {
                name: "host".into(),
                tier: 1,
                weight: 1,
            },
            v4: self.0[0].is_some(),
            v6: self.0[1].is_some(),
            moves: 0,
            mtu: None,
            paused: false,
        }
    }

    fn send(&self, edge: &mut Edge, now: Instant) {
        let mut buffer = Vec::new();
        while let Some(transmit) = edge.poll_transmit(&mut buffer, now) {
            self.send_batch(&transmit, &buffer);
            buffer.clear();
        }
    }

    fn send_batch(&self, transmit: &Transmit, bytes: &[u8]) {
        let Some(socket) = &self.0[usize::from(transmit.remote.is_ipv6())] else {
            return;
        };
        for datagram in bytes.chunks(transmit.segment.unwrap_or(bytes.len()).max(1)) {
            // What is not sent is lost, as on any network.
            let _ = socket.send_to(datagram, transmit.remote);
        }
    }

    fn receive(&self, edge: &mut Edge, now: Instant) {
        let mut buffer = vec![0; DATAGRAM];
        for socket in self.0.iter().flatten() {
            while let Ok((length, remote)) = receive(socket, &mut buffer) {
                let from = Received {
                    local: Local {
                        socket: SOCKET,
                        ip: None,
                    },
                    remote,
                    ecn: 0,
                    segment: length,
                    arrived: now,
                };
                edge.handle_datagrams(from, BytesMut::from(&buffer[..length]), now);
            }
        }
    }
}

/// An ICMP error about an earlier packet is none of this one.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match socket.recv_from(buffer) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket.recv_from(buffer),
        received => received,
    }
}
