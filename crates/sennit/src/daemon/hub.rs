//! `sennit hub`.

use std::{
    collections::BTreeMap,
    error::Error,
    net::IpAddr,
    path::Path,
    sync::{Arc, mpsc::Sender},
    time::Instant,
};

use aws_lc_rs::hmac;
use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use sennit_engine::{
    Hub, HubConfig as EngineConfig, HubEvent, Issuer, Received, Settings, SocketId, Transmit,
};
use sennit_linux::{
    Footprint, Masquerade, TunnelRoute, forward_blockers,
    netlink::Family,
    poller::Poller,
    tun::{Offload, Tun, TunConfig},
    udp::LinkSocket,
};
use sennit_packet::{Prefix, gso::VirtioNetHdr};

use super::{
    DEFAULT_MTU, facts,
    mailbox::{self, Mailbox, Question},
    random_seed,
    registrar::{self, Query, Verdict},
    stop_on_signal,
    worker::{self, Io, Machine},
};
use crate::{
    cli::Failure,
    config::{HubConfig, RUN_DIRECTORY},
    control::{Request, Response, Server},
    identity::{self, HubIdentity},
    status::{Role, SCHEMA, State, Status},
    store::Lease,
};

const STOP: u64 = 0;
const QUESTIONS: u64 = 1;
const VERDICTS: u64 = 2;
/// Handshakes and undecided requests at once: a fleet that reconnects after a restart, with a few
/// classes each.
const MAX_STRANGERS: usize = 4096;

/// Runs a hub until it is told to stop.
pub fn run(config: HubConfig) -> Result<(), Failure> {
    let identity = HubIdentity::load(&config.state)?;
    let footprint = Footprint::begin(&config.device, Path::new(RUN_DIRECTORY))?;
    let poller = Arc::new(Poller::new().map_err(Failure::runtime)?);
    let stop = stop_on_signal(&poller, STOP)?;
    let (questions, question_slot) = mailbox::open(&poller, QUESTIONS).map_err(Failure::runtime)?;
    let (verdicts, verdict_slot) = mailbox::open(&poller, VERDICTS).map_err(Failure::runtime)?;
    let _control = Server::bind(&config.control, move |request| {
        mailbox::ask(&question_slot, request)
    })?;

    let mut io = Io::new(poller);
    for (index, &address) in config.listen.iter().enumerate() {
        let socket = LinkSocket::listen(address, false)?;
        io.set_socket(SocketId(index as u32), address.ip(), Some(socket))
            .map_err(Failure::runtime)?;
        tracing::info!(%address, "listening");
    }
    let tls = Arc::new(identity::server_config(&identity)?);
    let settings = settings(&config, &identity)?;
    let engine = Hub::new(settings, engine_config(&config)?, tls, Instant::now())
        .map_err(Failure::runtime)?;
    let queries = registrar::start(
        &config.state,
        identity.authority,
        config.pool,
        verdict_slot,
        stop.lifeline(),
    )?;
    let mut hub = HubMachine {
        hub: engine,
        footprint,
        queries,
        questions,
        verdicts,
        lans: BTreeMap::new(),
        recent: facts::Recent::default(),
        started: Instant::now(),
        config,
    };
    hub.set_up(&mut io)?;
    tracing::info!(device = %hub.config.device, "hub is ready");
    worker::run(&mut hub, &mut io, &stop).map_err(Failure::runtime)?;
    tracing::info!("hub stops");
    hub.footprint.remove()?;
    Ok(())
}

fn settings(config: &HubConfig, identity: &HubIdentity) -> Result<Settings, Failure> {
    // From the key, so that it survives a restart: edges then learn at once that they must
    // reconnect.
    let key = hmac::Key::new(hmac::HMAC_SHA256, identity.key.secret_der());
    let tag = hmac::sign(&key, b"sennit stateless reset");
    let reset_key = tag.as_ref().try_into().expect("SHA-256 has 32 bytes");
    Ok(Settings {
        inner_mtu: config.mtu.unwrap_or(DEFAULT_MTU),
        issuer: Issuer::default(),
        seed: random_seed()?,
        reset_key,
    })
}

fn engine_config(config: &HubConfig) -> Result<EngineConfig, Failure> {
    Ok(EngineConfig {
        addresses: own_addresses(config).iter().map(IpNet::addr).collect(),
        pool: pool(config),
        max_strangers: MAX_STRANGERS,
    })
}

/// The hub's own addresses, with the length of their pool.
fn own_addresses(config: &HubConfig) -> Vec<IpNet> {
    let lease = Lease::of_hub(&config.pool);
    let net = |address: IpAddr, bits| IpNet::new(address, bits).expect("the pool's own length");
    let v4 = lease
        .v4
        .zip(config.pool.v4)
        .map(|(a, pool)| net(a.into(), pool.prefix_len()));
    let v6 = lease
        .v6
        .zip(config.pool.v6)
        .map(|(a, pool)| net(a.into(), pool.prefix_len()));
    v4.into_iter().chain(v6).collect()
}

fn pool(config: &HubConfig) -> Vec<Prefix> {
    let nets = config
        .pool
        .v4
        .map(IpNet::V4)
        .into_iter()
        .chain(config.pool.v6.map(IpNet::V6));
    nets.map(|net| Prefix::around(net.network(), net.prefix_len()))
        .collect()
}

struct HubMachine {
    hub: Hub,
    footprint: Footprint,
    queries: Sender<Query>,
    questions: Mailbox<Question>,
    verdicts: Mailbox<Verdict>,
    /// What each site announced.
    lans: BTreeMap<String, Vec<Prefix>>,
    recent: facts::Recent,
    started: Instant,
    config: HubConfig,
}

impl HubMachine {
    /// Opens the TUN device and makes the host route and translate.
    fn set_up(&mut self, io: &mut Io) -> Result<(), Failure> {
        let tun = TunConfig {
            name: self.config.device.clone(),
            mtu: self.config.mtu.unwrap_or(DEFAULT_MTU).into(),
            queues: 1,
            offload: Offload::Auto,
        };
        for tun in Tun::open(&tun)? {
            tracing::info!(device = %self.config.device, offload = ?tun.tier(), "TUN device is up");
            self.footprint
                .set_addresses(tun.index(), &own_addresses(&self.config))?;
            io.add_tun(tun).map_err(Failure::runtime)?;
        }
        let families = [
            self.config.pool.v4.map(|_| Family::V4),
            self.config.pool.v6.map(|_| Family::V6),
        ];
        for family in families.into_iter().flatten() {
            self.footprint.forward(family)?;
        }
        self.translate()?;
        for chain in forward_blockers().unwrap_or_default() {
            tracing::warn!(
                chain,
                "this chain drops forwarded packets; sites may not reach the internet"
            );
        }
        Ok(())
    }

    fn translate(&mut self) -> Result<(), Failure> {
        if !self.config.nat {
            return Ok(());
        }
        let mut sources = pool(&self.config);
        sources.extend(self.lans.values().flatten());
        self.footprint.masquerade(&Masquerade {
            sources,
            inside: Vec::new(),
        })?;
        Ok(())
    }

    fn handle_event(&mut self, event: HubEvent, io: &Io) {
        match event {
            HubEvent::Connect {
                request,
                certificates,
                bearer,
            } => {
                self.query(Query::Connect {
                    request,
                    certificates,
                    bearer,
                });
            }
            HubEvent::Enrol {
                request,
                certificates,
                body,
            } => {
                self.query(Query::Enrol {
                    request,
                    certificates,
                    body,
                });
            }
            HubEvent::TunnelUp { site, class } => tracing::info!(site, class, "tunnel is up"),
            HubEvent::TunnelDown {
                site,
                class,
                reason,
            } => {
                tracing::info!(site, class, reason, "tunnel is down");
            }
            HubEvent::Lan { site, prefixes } => self.handle_lan(site, prefixes, io),
            HubEvent::Path {
                site,
                class,
                link,
                state,
                reason,
            } => {
                tracing::info!(site, class, link, %state, %reason, "path changed");
            }
        }
    }

    fn query(&self, query: Query) {
        if self.queries.send(query).is_err() {
            tracing::error!("the registrar is gone; nobody can be let in");
        }
    }

    /// Routes and translates the prefixes behind a site.
    fn handle_lan(&mut self, site: String, prefixes: Vec<Prefix>, io: &Io) {
        if self
            .lans
            .get(&site)
            .map_or(prefixes.is_empty(), |known| *known == prefixes)
        {
            return;
        }
        let nets = prefixes.iter().map(Prefix::net).collect();
        self.query(Query::Lan {
            site: site.clone(),
            prefixes: nets,
        });
        tracing::info!(site, count = prefixes.len(), "LAN prefixes routed");
        self.lans.insert(site, prefixes);
        let Some(device) = io.tun_index(0) else {
            return;
        };
        let all = self.lans.values().flatten();
        let routes = all
            .map(|&prefix| TunnelRoute {
                prefix,
                device,
                source: None,
            })
            .collect();
        if let Err(error) = self.footprint.route_into_tunnel(routes) {
            tracing::error!(
                error = &error as &dyn Error,
                "cannot route the LAN prefixes"
            );
        }
        if let Err(error) = self.translate() {
            tracing::error!(%error, "cannot translate for the LAN prefixes");
        }
    }

    fn handle_verdict(&mut self, verdict: Verdict, now: Instant) {
        match verdict {
            Verdict::Grant(request, grant) => self.hub.grant(request, grant, now),
            Verdict::Refuse(request, status, reason) => {
                self.hub.refuse(request, status, &reason, now);
            }
            Verdict::Reply(request, body) => self.hub.reply(request, 200, body, now),
            Verdict::Expel(site) => self.hub.expel(site.as_str(), "the site is revoked", now),
        }
    }

    fn answer(&mut self, request: Request, now: Instant) -> Response {
        match request {
            Request::Status => Response::document(&self.status(now)),
            Request::Disconnect { site } => {
                self.hub.expel(site.as_str(), "the site is revoked", now);
                Response::done()
            }
        }
    }

    fn status(&mut self, now: Instant) -> Status {
        let tunnels = facts::tunnels(self.hub.status(), None, &mut self.recent, |_, _| None, now);
        Status {
            schema: SCHEMA.into(),
            role: Role::Hub,
            version: env!("CARGO_PKG_VERSION").into(),
            state: State::Up,
            reason: None,
            uptime_seconds: now.saturating_duration_since(self.started).as_secs_f64(),
            device: self.config.device.to_string(),
            addresses: own_addresses(&self.config)
                .iter()
                .map(IpNet::addr)
                .collect(),
            links: Vec::new(),
            tunnels,
        }
    }
}

impl Machine for HubMachine {
    fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        self.hub.handle_datagrams(from, data, now);
    }

    fn handle_packet(&mut self, _: usize, header: &VirtioNetHdr, packet: &[u8], now: Instant) {
        self.hub.handle_packet(header, packet, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.hub.handle_timeout(now);
    }

    fn handle_ready(&mut self, token: u64, _: &mut Io, now: Instant) {
        if token == QUESTIONS {
            self.questions.acknowledge();
            while let Some(question) = self.questions.next() {
                let response = self.answer(question.request.clone(), now);
                question.answer(response);
            }
        } else if token == VERDICTS {
            self.verdicts.acknowledge();
            while let Some(verdict) = self.verdicts.next() {
                self.handle_verdict(verdict, now);
            }
        }
    }

    fn digest(&mut self, io: &mut Io, now: Instant) {
        while let Some(event) = self.hub.poll_event(now) {
            self.handle_event(event, io);
        }
    }

    fn poll_packet(&mut self, now: Instant) -> Option<(usize, Bytes)> {
        Some((0, self.hub.poll_packet(now)?))
    }

    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.hub.poll_transmit(buffer, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.hub.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.hub.close(now);
    }
}
