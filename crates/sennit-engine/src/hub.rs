//! The far side: terminates the tunnels of many sites.
//!
//! Whoever connects is nobody until its request is granted. A request for a tunnel becomes
//! [`HubEvent::Connect`] with the certificates of the peer, and the caller, who knows the sites,
//! answers by [`Hub::grant`] or [`Hub::refuse`]; so no lookup ever holds up another tunnel. A site
//! has one tunnel per class; a new one for the same class replaces the old. Packets for a site are
//! found by destination ([`sites`]) and leave in the class that their flow came in.

mod authority;
mod change;
mod config;
mod connections;
mod grant;
mod leaving;
mod pipes;
mod proxied;
mod requests;
mod sites;
mod status;
mod strangers;
mod terms;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use bytes::BytesMut;
use noq_proto::ServerConfig;
use sennit_core::{ClassId, Congestion};
use sennit_masque::{Code, StreamId};
use sennit_packet::{IpPacket, Prefix, gso::VirtioNetHdr, icmp};

pub use self::config::{
    Credential, Grant, HubClasses, HubConfig, HubEvent, NoSuchSite, RequestId, UdpRefusal,
};
pub use self::status::{AT_ONCE, Walk};
pub use self::strangers::StrangerCounts;
use self::{
    leaving::Leaving,
    pipes::{Owner, Pipes},
    proxied::Proxied,
    sites::Sites,
    strangers::{Strangers, Verdict},
    terms::Spoken,
};
use crate::{
    codec::Abilities,
    facts::LinkLabel,
    hello::{Hello, REPLACED},
    ids::{ConnId, PipeId, SiteId},
    inner::{self, Errors, Packet, Refused},
    node::{Conn, Node, Received, Transmit},
    numbers::{Numbers, Runs},
    remotes::plain,
    resumption,
    timer::{Due, Timer, Woken},
    transport::Settings,
    treatment::Treatment,
};

/// What a connection is to us.
#[derive(Debug)]
struct Role {
    since: Instant,
    /// Where it came from.
    address: IpAddr,
    /// Its handshake is complete.
    connected: bool,
    stage: Stage,
    /// How many requests it has made.
    requests: u32,
    /// Link descriptions that came before their path was validated.
    links: BTreeMap<u64, LinkLabel>,
    /// Paths of which the edge has not said yet which link they are.
    unnamed: BTreeSet<u32>,
}

#[derive(Debug)]
enum Stage {
    Stranger,
    /// Waits for the caller's answer, or has it and waits for the handshake to be complete.
    Asking {
        stream: StreamId,
        hello: Option<Hello>,
        granted: Option<(Grant, Option<Numbers>)>,
    },
    Posting {
        stream: StreamId,
        body: BytesMut,
    },
    Up {
        site: SiteId,
        class: ClassId,
        name: String,
        stream: StreamId,
        treatment: Treatment,
        credential: Credential,
        /// What else it takes if it is a Sennit, which understands our own capsules.
        abilities: Option<Abilities>,
    },
    /// Has UDP proxied, or asks for it.
    Proxied(Proxied),
    Closing,
}

impl Role {
    /// Somebody who has just come.
    fn new(address: IpAddr, now: Instant) -> Self {
        Self {
            since: now,
            address,
            connected: false,
            stage: Stage::Stranger,
            requests: 0,
            links: BTreeMap::new(),
            unnamed: BTreeSet::new(),
        }
    }

    /// What was granted to it before its handshake is complete.
    fn granted(&self) -> Option<&Grant> {
        match &self.stage {
            Stage::Asking { granted, .. } => granted.as_ref().map(|(grant, _)| grant),
            Stage::Stranger
            | Stage::Posting { .. }
            | Stage::Up { .. }
            | Stage::Proxied(_)
            | Stage::Closing => None,
        }
    }

    /// Whether the request on `stream` is the one that is not answered yet.
    fn awaits(&self, stream: StreamId) -> bool {
        match &self.stage {
            Stage::Asking {
                stream: asked,
                granted: None,
                ..
            }
            | Stage::Posting { stream: asked, .. } => *asked == stream,
            Stage::Asking { .. } => false,
            Stage::Stranger | Stage::Up { .. } | Stage::Proxied(_) | Stage::Closing => false,
        }
    }
}

/// Paths before a tunnel is granted. noq 1.4 panics when the PATH_ACKs of many paths with many gaps
/// do not fit a packet; whom nobody knows shall not be able to do that.
const STRANGERS_PATHS: u32 = 1;

/// The hub state machine.
pub struct Hub {
    node: Node<Role>,
    config: HubConfig,
    sites: Sites,
    pipes: Pipes,
    runs: Runs,
    errors: Errors,
    strangers: Strangers,
    spoken: Spoken,
    /// Connections whose classes go on over others, in the order of their time.
    leaving: VecDeque<Leaving>,
    to_tun: VecDeque<Packet>,
    events: VecDeque<HubEvent>,
    /// It shares links as edges ask for.
    shares: bool,
    woken: Woken,
}

impl Hub {
    /// A hub that accepts connections.
    ///
    /// # Errors
    /// If the TLS configuration lacks the cipher suite that QUIC begins with.
    pub fn new(
        settings: Settings,
        config: HubConfig,
        tls: Arc<rustls::ServerConfig>,
        now: Instant,
    ) -> Result<Self, noq_proto::crypto::rustls::NoInitialCipherSuite> {
        let mut server = ServerConfig::with_crypto(Arc::new(resumption::Server::new(tls)?));
        let mut transport = settings.transport(Congestion::Auto);
        // Whoever asks is told where its own packets come from, in its own connection.
        transport.send_observed_address_reports(true);
        transport.max_concurrent_multipath_paths(STRANGERS_PATHS);
        server.transport_config(Arc::new(transport));
        server.migration(true);
        server.max_incoming(config.max_strangers);
        let runs = Runs::new(&settings.seed);
        let sites = Sites::new(config.classes.clone(), settings.flow_seed());
        Ok(Self {
            runs,
            node: Node::new(settings, Some(Arc::new(server)), now),
            sites,
            pipes: Pipes::default(),
            strangers: Strangers::new(config.max_strangers),
            spoken: Spoken::default(),
            leaving: VecDeque::new(),
            config,
            errors: Errors::new(now),
            to_tun: VecDeque::new(),
            events: VecDeque::new(),
            shares: true,
            woken: Woken::default(),
        })
    }

    // ---- input ---------------------------------------------------------------------------------

    /// UDP packets arrived.
    pub fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        self.node.handle_datagrams(from, data, now);
        while let Some(newcomer) = self.node.poll_incoming() {
            let incoming = &newcomer.incoming;
            let address = plain(incoming.remote_address()).ip();
            let is_proven = incoming.remote_address_validated();
            match self.strangers.receive(address, is_proven) {
                Verdict::Refuse => self.node.refuse(newcomer.incoming, newcomer.local),
                Verdict::AskToRetry => self.node.ask_to_retry(newcomer.incoming, newcomer.local),
                Verdict::Accept => {
                    let role = Role::new(address, now);
                    if let Some(id) = self.node.accept(newcomer, role, now) {
                        self.strangers.add(id, address, now);
                    }
                }
            }
        }
    }

    /// A packet, or a super-packet, came from the TUN device.
    pub fn handle_packet(&mut self, header: &VirtioNetHdr, packet: &[u8], now: Instant) {
        if self.offer_packet(header, packet, now).is_err() {
            self.handle_unreachable(packet, now);
        }
    }

    /// Takes a packet of the TUN device like [`Self::handle_packet`], but leaves one to the caller
    /// whose destination is at no site.
    ///
    /// # Errors
    /// If another hub of the same host may have its site; if none has, it is one for
    /// [`Self::handle_unreachable`].
    pub fn offer_packet(
        &mut self,
        header: &VirtioNetHdr,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), NoSuchSite> {
        let Ok(parsed) = IpPacket::parse(packet) else {
            return Ok(());
        };
        if inner::stays_local(&parsed) {
            return Ok(());
        }
        let size = inner::size_on_wire(header, &parsed);
        let routed = self.sites.route(&parsed, size, now);
        let id = routed.ok_or(NoSuchSite(parsed.dst()))?;
        let seed = self.node.flow_seed();
        let Some((conn, pipe)) = self.node.get_with_pipe(id) else {
            return Ok(());
        };
        let (mtu, partial) = (conn.tunnel.max_packet(), conn.tunnel.takes_partial());
        let sink = |queued| conn.tunnel.handle_packet(pipe, queued, now);
        if inner::segment(header, (parsed, seed), mtu, partial, sink) == Err(Refused::TooBig) {
            let reason = icmp::Reason::TooBig { mtu: mtu as u32 };
            self.say(&parsed, reason, now);
        }
        Ok(())
    }

    /// A packet came from the TUN device for an address that nobody has.
    pub fn handle_unreachable(&mut self, packet: &[u8], now: Instant) {
        if let Ok(parsed) = IpPacket::parse(packet) {
            self.say(&parsed, icmp::Reason::HostUnreachable, now);
        }
    }

    fn say(&mut self, packet: &IpPacket<'_>, reason: icmp::Reason, now: Instant) {
        let Some(source) = inner::error_source(packet, self.config.addresses.iter().copied())
        else {
            return;
        };
        let error = self.errors.about(packet.bytes(), reason, source, now);
        self.to_tun.extend(error.map(Packet::from));
    }

    /// The time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.woken.note(self.poll_timeout(), now);
        self.node.handle_timeout(now);
        loop {
            let node = &self.node;
            let is_slow = |id| node.get(id).is_some_and(|conn| conn.tunnel.is_slow());
            let Some(id) = self.strangers.poll_overdue(is_slow, now) else {
                break;
            };
            let reason = "nothing was granted in time";
            self.node
                .close(id, Code::H3_REQUEST_REJECTED.0, reason, now);
            self.leave(id, reason.into(), now);
        }
        while let Some(pipe) = self.pipes.poll_forgotten(now) {
            self.node.remove_pipe(pipe);
        }
        self.end_leaving(now);
        self.follow_spoken(now);
    }

    /// Closes all tunnels; what [`Self::poll_transmit`] still yields should be sent.
    pub fn close(&mut self, now: Instant) {
        let ids: Vec<ConnId> = self.node.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.node.close(id, Code::H3_NO_ERROR.0, "hub stops", now);
        }
    }

    /// Closes the tunnel of a site's class, which has a newer one with another hub of this host.
    pub fn replace(&mut self, site: &SiteId, class: ClassId, now: Instant) {
        if let Some(id) = self.sites.tunnel(site, class) {
            self.node.close(id, Code::H3_NO_ERROR.0, REPLACED, now);
            self.leave(id, REPLACED.to_owned(), now);
        }
    }

    /// Gives a site exactly these prefixes, and tells it what of its announcement is refused, and
    /// why. The prefixes stay the site's while it has no tunnel.
    pub fn set_lan(&mut self, site: &SiteId, lan: &[Prefix], refused: &[(Prefix, String)]) {
        let refused = refused
            .iter()
            .filter_map(requests::refused_prefix)
            .collect();
        if self.sites.set_lan(site, lan, refused) {
            for id in self.sites.tunnels(site) {
                self.tell_refused(id);
            }
        }
    }

    /// Closes all tunnels of a site, which was revoked.
    pub fn expel(&mut self, site: &SiteId, reason: &str, now: Instant) {
        let early = self
            .node
            .iter()
            .filter(|(_, conn)| match conn.role.granted() {
                Some(grant) => grant.site == *site,
                None => false,
            });
        let mut tunnels: Vec<ConnId> = early.map(|(id, _)| id).collect();
        tunnels.extend(self.sites.tunnels(site));
        let rejected = (Code::H3_REQUEST_REJECTED, reason);
        self.end_left(|it| it.owner.site == *site, rejected, now);
        self.close_all(tunnels, reason, now);
    }

    /// Closes all tunnels that were granted to a credential, which is not good any more.
    pub fn expel_credential(&mut self, credential: &Credential, reason: &str, now: Instant) {
        let holds = |conn: &Conn<Role>| match &conn.role.stage {
            Stage::Up {
                credential: its, ..
            } => its == credential,
            Stage::Proxied(proxied) => proxied.hangs_on(credential),
            Stage::Asking { .. } => {
                let granted = conn.role.granted();
                granted.is_some_and(|grant| grant.credential == *credential)
            }
            Stage::Stranger | Stage::Posting { .. } | Stage::Closing => false,
        };
        let held = self.node.iter().filter(|(_, conn)| holds(conn));
        let held: Vec<ConnId> = held.map(|(id, _)| id).collect();
        let rejected = (Code::H3_REQUEST_REJECTED, reason);
        self.end_left(|it| it.credential == *credential, rejected, now);
        self.close_all(held, reason, now);
    }

    fn close_all(&mut self, tunnels: Vec<ConnId>, reason: &str, now: Instant) {
        for id in tunnels {
            self.node
                .close(id, Code::H3_REQUEST_REJECTED.0, reason, now);
            self.leave(id, reason.to_owned(), now);
        }
    }

    // ---- output --------------------------------------------------------------------------------

    /// The next event. Drain this after every input, before the packets.
    pub fn poll_event(&mut self, now: Instant) -> Option<HubEvent> {
        while self.events.is_empty() {
            let event = self.node.poll_event(now)?;
            self.handle_node(event, now);
        }
        self.events.pop_front()
    }

    /// The next packet for the TUN device.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        let waiting = self.to_tun.pop_front();
        waiting.or_else(|| self.next_admitted(now))
    }

    /// The next packet that arrived and may come from its site.
    fn next_admitted(&mut self, now: Instant) -> Option<Packet> {
        while let Some((pipe, packet)) = self.node.poll_packet() {
            if self.admit(pipe, &packet.bytes, now) {
                return Some(packet);
            }
        }
        None
    }

    /// Whether a packet of a site bears a source address of the site (RFC 9484 §4.7.1), and goes
    /// somewhere that a host may send to from afar.
    fn admit(&mut self, id: PipeId, packet: &[u8], now: Instant) -> bool {
        let Ok(parsed) = IpPacket::parse(packet) else {
            return false;
        };
        let (Some(Owner { site, class }), Some(pipe)) =
            (self.pipes.owner(id), self.node.pipe_mut(id))
        else {
            return false;
        };
        if !inner::is_deliverable(parsed.dst()) {
            pipe.stats.wrong_destination += 1;
            return false;
        }
        let admitted = self.sites.admit(site, *class, &parsed, now);
        pipe.stats.wrong_source += u64::from(!admitted);
        admitted
    }

    /// The next batch for a socket, its bytes appended to the empty `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.node.poll_transmit(buffer, now)
    }

    /// When [`Self::handle_timeout`] should be called next, and what for.
    pub fn poll_timeout(&self) -> Option<Due> {
        let own = Due::first([
            (Timer::Stranger, self.strangers.poll_timeout()),
            (Timer::Parked, self.pipes.poll_timeout()),
            (Timer::Terms, self.spoken.poll_timeout()),
            (Timer::Leaving, self.leaving.front().map(|it| it.until)),
        ]);
        own.into_iter().chain(self.node.poll_timeout()).min()
    }

    /// How often it was woken by each of its timers.
    pub fn woken(&self) -> &Woken {
        &self.woken
    }

    /// Packets of strangers that were dropped by their first bytes, as too many came.
    pub fn turned_away(&self) -> u64 {
        self.node.turned_away()
    }

    /// Those who have connected and are granted nothing.
    pub fn strangers(&self) -> StrangerCounts {
        self.strangers.counts()
    }

    /// How many tunnels there are.
    pub fn tunnels(&self) -> usize {
        self.node.len()
    }
}
