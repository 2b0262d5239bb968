//! One question to a hub, beside all tunnels: whether it gives a certificate.
//!
//! `sennit join` exchanges the token at once where it reaches the hub, so that a token that is used
//! or revoked is refused then and there; and an edge renews its certificate. Packets leave by each
//! link that an edge has here: one that runs may hold back what the host sends, or have it go into
//! a tunnel that is dead. They also leave as the host sends them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
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
use sennit_linux::inquiry;

use super::{far_side::class_config, names, way::Way};
use crate::{
    config::{Class, EdgeConfig},
    daemon::random_seed,
    exit::Failure,
    identity::{self, EdgeIdentity, IdentityError},
    remote::Remote,
};

/// For somebody who waits: a handshake and an answer take three round trips, and the first packet
/// may be lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at the sockets.
const LOOK: Duration = Duration::from_millis(5);
/// With this, packets are as small as QUIC allows, and fit any path.
const INNER_MTU: u16 = 1000;
/// The largest datagram.
const DATAGRAM: usize = 65_536;
/// Of both families.
const ANY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];
/// Of what leaves as the host sends it; links have the others.
const HOST: SocketId = SocketId(u32::MAX);

/// What the hub said.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// The identity has its certificate.
    Certified,
    /// It does not take the token, for this reason.
    Refused(String),
    /// Nothing, or only this, which does not decide.
    NoAnswer(Option<String>),
}

/// Exchanges the invitation of `identity` for a certificate, if the hub answers within some
/// seconds. `config` is that of the edge of this host.
pub fn ask(identity: &mut EdgeIdentity, config: &EdgeConfig) -> Result<Asked, Failure> {
    let (ways, passage) = Way::all_of_host(&config.device, &config.links);
    let line = Line::open(&identity.hubs, &ways).also_as_the_host_sends();
    let asked = line.also_by_its_names().ask(identity, PATIENCE);
    drop(passage);
    asked
}

/// Where a hub is, and by what it is asked.
pub(super) struct Line {
    hubs: Vec<SocketAddr>,
    /// Names that are known on no link.
    unknown: Vec<(String, u16)>,
    sockets: Sockets,
}

impl Line {
    /// By these links. What is opened here needs rights that whoever asks may have given up.
    pub(super) fn open(hubs: &[Remote], ways: &[Way]) -> Self {
        let (hubs, unknown) = addresses(hubs, ways);
        Self {
            hubs,
            unknown,
            sockets: Sockets::open(ways),
        }
    }

    /// Also as this host sends what belongs to no link.
    fn also_as_the_host_sends(mut self) -> Self {
        let any = ANY.map(|any| {
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        self.sockets.0.push((HOST, any));
        self
    }

    /// Also where this host's own resolver finds the names that no link knows.
    pub(super) fn also_by_its_names(mut self) -> Self {
        for (host, port) in self.unknown.drain(..) {
            let found = (host.as_str(), port).to_socket_addrs();
            self.hubs.extend(found.into_iter().flatten());
        }
        self
    }

    /// Has the hub give `identity` a certificate, the first or a fresh one.
    pub(super) fn ask(
        self,
        identity: &mut EdgeIdentity,
        patience: Duration,
    ) -> Result<Asked, Failure> {
        let Self { hubs, sockets, .. } = self;
        let started = Instant::now();
        let mut edge = engine(identity, hubs, started)?;
        for update in sockets.links() {
            edge.handle_link(update, started);
        }
        let mut said = None;
        loop {
            let now = Instant::now();
            if edge.poll_timeout().is_some_and(|due| due.at <= now) {
                edge.handle_timeout(now);
            }
            sockets.receive(&mut edge, now);
            while let Some(event) = edge.poll_event(now) {
                if let EdgeEvent::Refused { reason, .. } = &event {
                    said = Some(reason.clone());
                }
                if let Some(asked) = judge(event, identity)? {
                    edge.close(now);
                    sockets.send(&mut edge, now);
                    return Ok(asked);
                }
            }
            sockets.send(&mut edge, now);
            if now >= started + patience {
                return Ok(Asked::NoAnswer(said));
            }
            thread::sleep(LOOK);
        }
    }
}

/// What is known of hubs on the links, and the names of which nothing is.
fn addresses(hubs: &[Remote], ways: &[Way]) -> (Vec<SocketAddr>, Vec<(String, u16)>) {
    let mut found: Vec<SocketAddr> = hubs.iter().filter_map(Remote::address).collect();
    let mut unknown: Vec<(String, u16)> = hubs.iter().filter_map(named).collect();
    if unknown.is_empty() {
        return (found, unknown);
    }
    let names: Vec<String> = unknown.iter().map(|(host, _)| host.clone()).collect();
    let known = names::look_up(ways, &names);
    unknown.retain(|(host, port)| {
        let by_links = known.iter().filter(|(name, _)| name == host);
        let by_links: BTreeSet<IpAddr> = by_links.flat_map(|(_, it)| it).copied().collect();
        found.extend(by_links.iter().map(|&ip| SocketAddr::new(ip, *port)));
        by_links.is_empty()
    });
    (found, unknown)
}

fn named(remote: &Remote) -> Option<(String, u16)> {
    match remote {
        Remote::Name { host, port } => Some((host.clone(), *port)),
        Remote::Address(_) => None,
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
        hub_names: Vec::new(),
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

/// One of each family that there is, for each link.
struct Sockets(Vec<(SocketId, [Option<UdpSocket>; 2])>);

impl Sockets {
    fn open(ways: &[Way]) -> Self {
        let of_links = ways.iter().map(|way| {
            let open = |family: IpAddr| inquiry::udp_to_any(&way.binding(family)?).ok();
            (way.socket, ANY.map(open))
        });
        Self(of_links.collect())
    }

    fn links(&self) -> impl Iterator<Item = LinkUpdate> {
        let open = self
            .0
            .iter()
            .filter(|(_, all)| all.iter().any(Option::is_some));
        open.map(|(socket, [v4, v6])| LinkUpdate {
            socket: *socket,
            label: LinkLabel {
                name: "asking".into(),
                tier: 1,
                weight: 1,
            },
            v4: v4.is_some(),
            v6: v6.is_some(),
            moves: 0,
            mtu: None,
            paused: false,
        })
    }

    fn send(&self, edge: &mut Edge, now: Instant) {
        let mut buffer = Vec::new();
        while let Some(transmit) = edge.poll_transmit(&mut buffer, now) {
            self.send_batch(&transmit, &buffer);
            buffer.clear();
        }
    }

    fn send_batch(&self, transmit: &Transmit, bytes: &[u8]) {
        let mut all = self.0.iter();
        let of_link = all.find(|(socket, _)| *socket == transmit.local.socket);
        let family = usize::from(transmit.remote.is_ipv6());
        let Some(socket) = of_link.and_then(|(_, all)| all[family].as_ref()) else {
            return;
        };
        for datagram in bytes.chunks(transmit.segment.unwrap_or(bytes.len()).max(1)) {
            // What is not sent is lost, as on any network.
            let _ = socket.send_to(datagram, transmit.remote);
        }
    }

    fn receive(&self, edge: &mut Edge, now: Instant) {
        let mut buffer = vec![0; DATAGRAM];
        let all = self.0.iter();
        let open = all.flat_map(|(id, all)| all.iter().flatten().map(|socket| (*id, socket)));
        for (id, socket) in open {
            while let Ok((length, remote)) = receive(socket, &mut buffer) {
                let from = Received {
                    local: Local {
                        socket: id,
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
