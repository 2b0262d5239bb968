//! `sennit edge`.

mod links;

use std::{
    error::Error,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use sennit_core::{ClassId, Classifier, Rule};
use sennit_engine::{
    ClassConfig, Edge, EdgeConfig as EngineConfig, EdgeEvent, Issuer, Purpose, Received, Settings,
    SocketId, Transmit, Treatment,
};
use sennit_linux::{
    Footprint, TunnelRoute,
    netlink::Family,
    poller::{Interest, Poller},
    tun::{Offload, Tun, TunConfig},
};
use sennit_packet::{Prefix, Protocol, gso::VirtioNetHdr};

use super::{
    DEFAULT_MTU, facts,
    mailbox::{self, Mailbox, Question},
    random_seed, stop_on_signal,
    worker::{self, Io, Machine},
};
use crate::{
    cli::Failure,
    config::{self, Class, EdgeConfig, Match, PortRange, RUN_DIRECTORY},
    control::{Request, Response, Server},
    identity::{self, ClientTls, EdgeIdentity},
    site::SiteName,
    status::{LinkState, Role, SCHEMA, State, Status},
};
use links::Links;

const STOP: u64 = 0;
const QUESTIONS: u64 = 1;
const MONITOR: u64 = 2;
/// A failed enrolment is repeated after this.
const ENROL_AGAIN: Duration = Duration::from_secs(5);

/// Runs an edge until it is told to stop.
pub fn run(config: EdgeConfig) -> Result<(), Failure> {
    let far_side = FarSide::load(&config)?;
    let footprint = Footprint::begin(&config.device, Path::new(RUN_DIRECTORY))?;
    let poller = Arc::new(Poller::new().map_err(Failure::runtime)?);
    let stop = stop_on_signal(std::slice::from_ref(&poller), STOP)?;
    let (questions, slot) = mailbox::open(&poller, QUESTIONS).map_err(Failure::runtime)?;
    let _control = Server::bind(&config.control, move |request| {
        mailbox::ask(&slot, &request)
    })?;

    let mut io = Io::new(poller);
    let links = Links::open(&config.links, settings(&config)?.outer_mtu())?;
    io.poller
        .add(links.monitor(), MONITOR, Interest::Read)
        .map_err(Failure::runtime)?;
    let engine = engine(&config, &far_side)?;
    let mut edge = EdgeMachine {
        edge: engine,
        footprint,
        links,
        far_side,
        questions,
        tun_classes: Vec::new(),
        class_tuns: vec![0; config.classes.len()],
        recent: facts::Recent::default(),
        started: Instant::now(),
        enrol_at: None,
        config,
    };
    edge.set_up(&mut io)?;
    tracing::info!(device = %edge.config.device, links = edge.config.links.len(), "edge is ready");
    worker::run(&mut edge, &mut io, &stop).map_err(Failure::runtime)?;
    tracing::info!("edge stops");
    edge.footprint.remove()?;
    Ok(())
}

/// Who is at the other end and how we prove who we are.
enum FarSide {
    Hub(Box<EdgeIdentity>),
    Proxy(config::Proxy),
}

impl FarSide {
    fn load(config: &EdgeConfig) -> Result<Self, Failure> {
        match &config.proxy {
            Some(proxy) => Ok(Self::Proxy(proxy.clone())),
            None => Ok(Self::Hub(Box::new(EdgeIdentity::load(&config.state)?))),
        }
    }

    fn tls(&self, config: &EdgeConfig) -> Result<ClientTls, Failure> {
        match self {
            Self::Hub(identity) => Ok(identity::client_config(identity)?),
            Self::Proxy(proxy) => {
                let address = config.hub.first().map(SocketAddr::ip);
                let address = address.ok_or_else(|| Failure::runtime("no proxy address"))?;
                Ok(identity::proxy_config(proxy, address)?)
            }
        }
    }

    /// A first certificate is needed, or a fresh one.
    fn purpose(&self) -> Result<Purpose, Failure> {
        match self {
            Self::Hub(identity)
                if !identity.is_enrolled() || identity.is_renewal_due(SystemTime::now()) =>
            {
                Ok(Purpose::Enrol(identity.enrollment_request()?.into()))
            }
            Self::Hub(_) | Self::Proxy(_) => Ok(Purpose::Tunnels),
        }
    }

    fn site(&self) -> SiteName {
        match self {
            Self::Hub(identity) => identity.site.clone(),
            Self::Proxy(_) => "proxy".parse().expect("a valid site name"),
        }
    }
}

fn engine(config: &EdgeConfig, far_side: &FarSide) -> Result<Edge, Failure> {
    let tls = far_side.tls(config)?;
    let engine_config = EngineConfig {
        hubs: config.hub.clone(),
        server_name: tls.server_name,
        classes: config.classes.iter().map(class_config).collect(),
        classifier: classifier(&config.classes),
        lan: config.lan.iter().copied().map(prefix).collect(),
        steering: steering(tls.bearer.as_deref().unwrap_or(far_side.site().as_str())),
        bearer: tls.bearer,
    };
    let purpose = far_side.purpose()?;
    Edge::new(
        settings(config)?,
        engine_config,
        Arc::new(tls.config),
        purpose,
        Instant::now(),
    )
    .map_err(Failure::runtime)
}

/// The sum of what the far side knows us by, so that sites with numbers in their names are spread
/// evenly over the workers of a hub.
fn steering(known_by: &str) -> u8 {
    known_by.bytes().fold(0, u8::wrapping_add)
}

fn settings(config: &EdgeConfig) -> Result<Settings, Failure> {
    Ok(Settings {
        inner_mtu: config.mtu.unwrap_or(DEFAULT_MTU),
        issuer: Issuer::default(),
        seed: random_seed()?,
        reset_key: random_seed()?,
    })
}

fn prefix(net: config::Prefix) -> Prefix {
    Prefix::around(net.network(), net.prefix_len())
}

fn class_config(class: &Class) -> ClassConfig {
    let policy = match class.policy {
        config::Policy::Single => sennit_core::Policy::Single,
        config::Policy::Failover => sennit_core::Policy::Failover,
        config::Policy::Balanced => sennit_core::Policy::Balanced,
        config::Policy::Bond => sennit_core::Policy::Bond,
        config::Policy::Redundant => sennit_core::Policy::Redundant,
    };
    let delivery = match class.delivery {
        config::Delivery::Datagram => sennit_core::Delivery::Datagram,
        config::Delivery::Repair => sennit_core::Delivery::Repair,
        config::Delivery::Reliable => sennit_core::Delivery::Reliable,
    };
    let congestion = match class.congestion {
        config::Congestion::Auto => sennit_core::Congestion::Auto,
        config::Congestion::Cubic => sennit_core::Congestion::Cubic,
        config::Congestion::Bbr => sennit_core::Congestion::Bbr,
        config::Congestion::Bbr3 => sennit_core::Congestion::Bbr3,
    };
    ClassConfig {
        name: class.name.clone(),
        treatment: Treatment {
            policy,
            delivery,
            copies: class.copies,
            congestion,
        },
    }
}

fn classifier(classes: &[Class]) -> Classifier {
    let id = |index: usize| ClassId(index as u8);
    let rules = classes
        .iter()
        .enumerate()
        .flat_map(|(index, class)| class.matches.iter().map(move |m| (rule(m), id(index))))
        .collect();
    let fallback = classes
        .iter()
        .position(Class::catches_all)
        .unwrap_or(classes.len() - 1);
    Classifier::new(rules, id(fallback))
}

fn rule(matching: &Match) -> Rule {
    let ports = |range: Option<PortRange>| range.map(|range| range.first..=range.last);
    Rule {
        protocol: matching.protocol.map(Protocol),
        dscp: matching.dscp,
        source: matching.source.map(prefix),
        destination: matching.destination.map(prefix),
        port: ports(matching.port),
        source_port: ports(matching.source_port),
        destination_port: ports(matching.destination_port),
    }
}

struct EdgeMachine {
    edge: Edge,
    footprint: Footprint,
    links: Links,
    far_side: FarSide,
    questions: Mailbox<Question<Response>>,
    /// For each TUN device the class it belongs to, if any.
    tun_classes: Vec<Option<ClassId>>,
    /// For each class the number of its TUN device.
    class_tuns: Vec<usize>,
    recent: facts::Recent,
    started: Instant,
    enrol_at: Option<Instant>,
    config: EdgeConfig,
}

impl EdgeMachine {
    fn set_up(&mut self, io: &mut Io) -> Result<(), Failure> {
        self.open_tun(&self.config.device.clone(), None, io)?;
        for (index, class) in self.config.classes.clone().into_iter().enumerate() {
            if let Some(device) = class.device {
                self.open_tun(&device, Some(ClassId(index as u8)), io)?;
                self.class_tuns[index] = self.tun_classes.len() - 1;
            }
        }
        for family in [Family::V4, Family::V6] {
            let ours = |net: &config::Prefix| Family::of(net.addr()) == family;
            if self.config.lan.iter().any(ours) {
                self.footprint.forward(family)?;
            }
        }
        self.links
            .refresh(&mut self.edge, &mut self.footprint, io, Instant::now());
        Ok(())
    }

    fn open_tun(
        &mut self,
        name: &sennit_linux::DeviceName,
        class: Option<ClassId>,
        io: &mut Io,
    ) -> Result<(), Failure> {
        let mtu = self.config.mtu.unwrap_or(DEFAULT_MTU).into();
        let config = TunConfig {
            name: name.clone(),
            mtu,
            queues: 1,
            offload: Offload::Auto,
        };
        for tun in Tun::open(&config)? {
            tracing::info!(device = %name, offload = ?tun.tier(), "TUN device is up");
            io.add_tun(tun).map_err(Failure::runtime)?;
            self.tun_classes.push(class);
        }
        Ok(())
    }

    fn handle_event(&mut self, event: EdgeEvent, io: &mut Io, now: Instant) {
        match event {
            EdgeEvent::Enrolled(answer) => self.handle_enrolled(&answer, io, now),
            EdgeEvent::Addresses(addresses) => self.handle_addresses(&addresses, io),
            EdgeEvent::TunnelUp {
                class,
                link,
                multipath,
            } => {
                tracing::info!(class, first_link = link, multipath, "tunnel is up");
                if !multipath {
                    tracing::warn!(
                        class,
                        "the hub does not speak multipath: one link at a time"
                    );
                }
            }
            EdgeEvent::TunnelDown { class, reason } => {
                tracing::warn!(class, reason, "tunnel is down");
            }
            EdgeEvent::Refused { class, reason } => tracing::warn!(class, reason, "not connected"),
            EdgeEvent::Path {
                class,
                link,
                state,
                reason,
            } => {
                tracing::info!(class, link, %state, %reason, "path changed");
            }
            EdgeEvent::PathClosed {
                class,
                link,
                reason,
            } => {
                tracing::info!(class, link, reason, "path closed");
            }
        }
    }

    /// The first connection has exchanged the token for a certificate: now for the tunnels.
    fn handle_enrolled(&mut self, answer: &[u8], io: &mut Io, now: Instant) {
        let FarSide::Hub(identity) = &mut self.far_side else {
            return;
        };
        match identity.accept(answer) {
            Ok(()) => {
                tracing::info!(site = %identity.site, "certificate received");
                self.start_over(io, now);
            }
            Err(error) => {
                tracing::error!(%error, "cannot keep the certificate; trying again");
                self.enrol_at = Some(now + ENROL_AGAIN);
            }
        }
    }

    /// Replaces the engine by a new one with the present identity.
    fn start_over(&mut self, io: &mut Io, now: Instant) {
        self.enrol_at = None;
        match engine(&self.config, &self.far_side) {
            Ok(engine) => {
                self.edge.close(now);
                let mut buffer = Vec::new();
                io.flush_transmits(|buffer| self.edge.poll_transmit(buffer, now), &mut buffer);
                self.edge = engine;
                self.links.announce(&mut self.edge, now);
            }
            Err(failure) => {
                tracing::error!(%failure, "cannot start the tunnels; trying again");
                self.enrol_at = Some(now + ENROL_AGAIN);
            }
        }
    }

    /// Gives the TUN devices their addresses and routes.
    fn handle_addresses(&mut self, addresses: &[Prefix], io: &Io) {
        let nets: Vec<IpNet> = addresses.iter().map(Prefix::net).collect();
        tracing::info!(addresses = ?nets, "addresses assigned");
        for number in 0..self.tun_classes.len() {
            let Some(index) = io.tun_index(number) else {
                continue;
            };
            if let Err(error) = self.footprint.set_addresses(index, &nets) {
                tracing::error!(error = &error as &dyn Error, "cannot set the addresses");
            }
        }
        let Some(device) = io.tun_index(0) else {
            return;
        };
        let source = |net: &config::Prefix| {
            nets.iter()
                .map(IpNet::addr)
                .find(|a| a.is_ipv4() == net.addr().is_ipv4())
        };
        let routes = self.config.routes.iter().filter_map(|net| {
            let source = Some(source(net)?);
            Some(TunnelRoute {
                prefix: prefix(*net),
                device,
                source,
            })
        });
        if let Err(error) = self.footprint.route_into_tunnel(routes.collect()) {
            tracing::error!(error = &error as &dyn Error, "cannot route into the tunnel");
        }
    }

    fn status(&mut self, request: &Request, io: &Io, now: Instant) -> Status {
        let wanted = facts::wanted_flows(request);
        let local = |socket: SocketId, remote: IpAddr| io.socket_address(socket, remote);
        let site = self.far_side.site();
        let tunnels = facts::tunnels(
            self.edge.status_with_flows(&wanted, now),
            Some(&site),
            &mut self.recent,
            local,
            now,
        );
        let links = self.links.status();
        let up = tunnels
            .iter()
            .filter(|tunnel| tunnel.state == State::Up)
            .count();
        let wanted = links
            .iter()
            .filter(|link| link.state == LinkState::Up)
            .count();
        let complete = |tunnel: &crate::status::TunnelStatus| {
            let up = |path: &&crate::status::PathStatus| path.state == crate::status::PathState::Up;
            tunnel.paths.iter().filter(up).count() >= wanted
        };
        let (state, reason) = if up == 0 && tunnels.iter().all(|t| t.state == State::Connecting) {
            (
                State::Connecting,
                tunnels.first().and_then(|t| t.reason.clone()),
            )
        } else if up == 0 {
            (State::Down, tunnels.iter().find_map(|t| t.reason.clone()))
        } else if up < tunnels.len() || links.len() > wanted {
            (
                State::Degraded,
                Some(format!(
                    "{wanted} of {} links, {up} of {} tunnels",
                    links.len(),
                    tunnels.len()
                )),
            )
        } else if !tunnels.iter().all(complete) {
            (State::Degraded, Some("not every link has its path".into()))
        } else {
            (State::Up, None)
        };
        Status {
            schema: SCHEMA.into(),
            role: Role::Edge,
            version: env!("CARGO_PKG_VERSION").into(),
            state,
            reason,
            uptime_seconds: now.saturating_duration_since(self.started).as_secs_f64(),
            device: self.config.device.to_string(),
            addresses: self.edge.addresses().iter().map(Prefix::first).collect(),
            links,
            tunnels,
            workers: Vec::new(),
        }
    }
}

impl Machine for EdgeMachine {
    fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        self.edge.handle_datagrams(from, data, now);
    }

    fn handle_packet(&mut self, tun: usize, header: &VirtioNetHdr, packet: &[u8], now: Instant) {
        let class = self.tun_classes.get(tun).copied().flatten();
        self.edge.handle_packet(header, packet, class, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.edge.handle_timeout(now);
    }

    fn handle_ready(&mut self, token: u64, io: &mut Io, now: Instant) {
        if token == QUESTIONS {
            self.questions.acknowledge();
            while let Some(question) = self.questions.next() {
                let response = match &question.request {
                    request @ (Request::Status | Request::Flow { .. }) => {
                        Response::document(&self.status(request, io, now))
                    }
                    Request::Disconnect { .. } => {
                        Response::refused("not_a_hub", "an edge has no sites to disconnect")
                    }
                };
                question.answer(response);
            }
        } else if token == MONITOR && self.links.changed() {
            self.links
                .refresh(&mut self.edge, &mut self.footprint, io, now);
        }
    }

    fn digest(&mut self, io: &mut Io, now: Instant) {
        while let Some(event) = self.edge.poll_event(now) {
            self.handle_event(event, io, now);
        }
        if self.enrol_at.is_some_and(|at| at <= now) {
            self.start_over(io, now);
        }
    }

    fn poll_packet(&mut self, _: Instant) -> Option<(usize, Bytes)> {
        let (class, packet) = self.edge.poll_packet()?;
        Some((
            self.class_tuns
                .get(usize::from(class.0))
                .copied()
                .unwrap_or(0),
            packet,
        ))
    }

    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.edge.poll_transmit(buffer, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.edge
            .poll_timeout()
            .into_iter()
            .chain(self.enrol_at)
            .min()
    }

    fn close(&mut self, now: Instant) {
        self.edge.close(now);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbered_sites_come_to_different_workers() {
        let workers: BTreeSet<u8> = (0..8)
            .map(|number| steering(&format!("van-{number}")) % 8)
            .collect();
        assert_eq!(workers.len(), 8);
    }
}
