//! A hub, an edge and the links between them in virtual time.
//!
//! A [`World`] owns both state machines and, for each link, two one-directional emulators. Time
//! moves from one event to the next, so an hour costs as much as what happens in it, and the same
//! seed gives the same run: TLS draws its randomness elsewhere, but only values and never sizes
//! depend on it (see [`Authority`]). Inner packets are handed in and taken out by the test, or by
//! the hosts of a [`Transfer`], which send as much as the tunnel carries.

mod cable;
pub mod chaos;
mod dice;
mod ping;
mod plain;
mod quic;
mod strangers;
mod tcp;
mod tls;
mod traffic;
mod transfer;
mod trial;
mod turns;

use std::{
    collections::{BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use sennit_core::{ClassId, Classifier, Policy};
use sennit_engine::{
    ClassConfig, Credential, Edge, EdgeChange, EdgeConfig, EdgeEvent, Grant, Hub, HubClasses,
    HubConfig, HubEvent, Issuer, LinkLabel, LinkUpdate, Local, Plan, Purpose, Received, Settings,
    Sharing, SocketId, Treatment, facts::TunnelStatus,
};
use sennit_netem::{Config, Nat, NatConfig};
use sennit_packet::{Prefix, checksum::Progress, gso::VirtioNetHdr};

use cable::{Cable, Wire};
pub use dice::Dice;
pub use sennit_netem::{BadSpec, Direction, LinkSpec};
pub use strangers::{Persistent, first_packets};
pub use tls::{Authority, HUB_NAME};
pub use traffic::{EDGE, SERVER, Stream, number, udp};
pub use transfer::{Kind, Transfer};
pub use trial::{Outcome, Trial, TrialError};
pub use turns::Clock;
use turns::Turns;

/// Where the hub listens.
const HUB: &str = "203.0.113.1:443";
/// How long a tunnel may take to be up over all links.
const PATIENCE: Duration = Duration::from_secs(20);
/// Events at one instant; more is a machine that wakes without getting anywhere.
const STUCK: u32 = 10_000;

/// An inner packet and when it came out of the tunnel.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// The IP packet.
    pub packet: Bytes,
    /// How much of its checksum is done.
    pub checksum: Progress,
}

/// What an ICMP message about a packet that does not fit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// The link that it was sent on.
    pub link: usize,
    /// Who sent it: the edge (up) or the hub.
    pub direction: Direction,
    /// The largest IP packet that fits.
    pub mtu: usize,
}

/// What the hub knows the edge by.
pub const CREDENTIAL: Credential = [7; 32];

/// A hub, an edge, and their links.
pub struct World {
    /// The site side.
    pub edge: Edge,
    /// The far side.
    pub hub: Hub,
    config: EdgeConfig,
    authority: Authority,
    seed: u64,
    cables: Vec<Cable>,
    labels: Vec<LinkLabel>,
    now: Instant,
    start: Instant,
    /// Inner packets that reached the edge.
    pub at_edge: VecDeque<Arrival>,
    /// Inner packets that reached the hub.
    pub at_hub: VecDeque<Arrival>,
    /// Everything the edge said.
    pub edge_events: Vec<(Duration, EdgeEvent)>,
    /// Everything the hub said.
    pub hub_events: Vec<(Duration, HubEvent)>,
    /// What the links told senders whose packets were too big, oldest first.
    pub told_mtu: Vec<TooBig>,
    /// What reached the hub, while somebody listens there.
    pub tapped: Option<Vec<BytesMut>>,
    /// What the hub sent to addresses on no link, while somebody listens there.
    pub to_strangers: Option<Vec<BytesMut>>,
    buffer: Vec<u8>,
    /// Events without time passing.
    stuck: u32,
    /// The hub answers everybody who asks for a tunnel with this status and reason, if any.
    pub refuses: Option<(u16, &'static str)>,
    /// Whatever a link delivers it delivers a second time, so much later.
    pub repeats_after: Option<Duration>,
    edge_turns: Turns,
    hub_turns: Turns,
}

/// A class of the given policy with the usual rest.
pub fn class(name: &str, policy: Policy) -> ClassConfig {
    ClassConfig {
        name: name.into(),
        treatment: Treatment {
            policy,
            ..Treatment::default()
        },
        dscp: 0,
    }
}

impl World {
    /// A world of one class with `policy`.
    pub fn new(links: &[LinkSpec], policy: Policy, seed: u64, start: Instant) -> Self {
        Self::with_classes(
            links,
            vec![class("default", policy)],
            Classifier::default(),
            seed,
            start,
        )
    }

    /// A world of several classes.
    pub fn with_classes(
        links: &[LinkSpec],
        classes: Vec<ClassConfig>,
        classifier: Classifier,
        seed: u64,
        start: Instant,
    ) -> Self {
        Self::with_edge(links, edge_config(classes, classifier), &[], seed, start)
    }

    /// A world of several classes with a tier for each link, of which a lower one is preferred.
    pub fn with_tiers(
        links: &[LinkSpec],
        tiers: &[u8],
        classes: Vec<ClassConfig>,
        classifier: Classifier,
        seed: u64,
        start: Instant,
    ) -> Self {
        let config = edge_config(classes, classifier);
        Self::with_edge(links, config, tiers, seed, start)
    }

    /// A world of several classes that share the links by a plan.
    pub fn with_plan(
        links: &[LinkSpec],
        classes: Vec<ClassConfig>,
        classifier: Classifier,
        plan: Plan,
        seed: u64,
        start: Instant,
    ) -> Self {
        let config = EdgeConfig {
            sharing: Sharing::upward(plan, start),
            ..edge_config(classes, classifier)
        };
        Self::with_edge(links, config, &[], seed, start)
    }

    /// The classes share the links by another plan from now on, as after a reload.
    pub fn share(&mut self, plan: Plan) {
        self.config.sharing = Sharing::upward(plan, self.now);
        let change = EdgeChange {
            classes: self.config.classes.clone(),
            classifier: self.config.classifier.clone(),
            lan: self.config.lan.clone(),
            sharing: self.config.sharing.clone(),
        };
        self.edge.handle_change(change, self.now);
    }

    /// A world of one class whose edge is told these addresses of the hub, where nobody is, before
    /// the right one.
    pub fn with_dead_hubs(
        links: &[LinkSpec],
        dead: &[SocketAddr],
        seed: u64,
        start: Instant,
    ) -> Self {
        let classes = vec![class("default", Policy::Bond)];
        let mut config = edge_config(classes, Classifier::default());
        config.hubs.splice(0..0, dead.iter().copied());
        Self::with_edge(links, config, &[], seed, start)
    }

    /// A world of one class whose edge says that `lan` is behind it. The hub routes none of it by
    /// itself.
    pub fn with_lan(links: &[LinkSpec], lan: &[Prefix], seed: u64, start: Instant) -> Self {
        let classes = vec![class("default", Policy::Bond)];
        let mut config = edge_config(classes, Classifier::default());
        config.lan = lan.to_vec();
        Self::with_edge(links, config, &[], seed, start)
    }

    /// A world of one class with a box on each of the links `boxed` that drops the second
    /// packet of a ClientHello; whether the edge may fall back to classic key exchange.
    pub fn with_hello_boxes(
        links: &[LinkSpec],
        boxed: &[usize],
        falls_back: bool,
        seed: u64,
        start: Instant,
    ) -> Self {
        let classes = vec![class("default", Policy::Bond)];
        let mut config = edge_config(classes, Classifier::default());
        let authority = Authority::new();
        config.classic = falls_back.then(|| authority.classic_client());
        let mut world = Self::unplugged(links, config, authority, seed, start);
        for &link in boxed {
            world.cables[link].up.hellos = Some(BTreeSet::new());
        }
        world.plug_in()
    }

    /// A world of one class with an authority that was told what its hubs are like.
    pub fn of(authority: Authority, links: &[LinkSpec], seed: u64, start: Instant) -> Self {
        let config = edge_config(vec![class("default", Policy::Bond)], Classifier::default());
        Self::unplugged(links, config, authority, seed, start).plug_in()
    }

    fn with_edge(
        links: &[LinkSpec],
        config: EdgeConfig,
        tiers: &[u8],
        seed: u64,
        start: Instant,
    ) -> Self {
        let mut world = Self::unplugged(links, config, Authority::new(), seed, start);
        for (label, &tier) in world.labels.iter_mut().zip(tiers) {
            label.tier = tier;
        }
        world.plug_in()
    }

    /// A world whose links are not up yet.
    fn unplugged(
        links: &[LinkSpec],
        config: EdgeConfig,
        authority: Authority,
        seed: u64,
        start: Instant,
    ) -> Self {
        Self {
            edge: new_edge(&config, &authority, seed, start),
            hub: new_hub(&authority, seed, start),
            config,
            authority,
            seed,
            cables: links
                .iter()
                .enumerate()
                .map(|(i, link)| Cable::new(i, link, seed, start))
                .collect(),
            labels: (0..links.len()).map(|index| label(index, 1)).collect(),
            now: start,
            start,
            at_edge: VecDeque::new(),
            at_hub: VecDeque::new(),
            edge_events: Vec::new(),
            hub_events: Vec::new(),
            told_mtu: Vec::new(),
            tapped: None,
            to_strangers: None,
            buffer: Vec::new(),
            stuck: 0,
            refuses: None,
            repeats_after: None,
            edge_turns: Turns::new(2 * seed, start),
            hub_turns: Turns::new(2 * seed + 1, start),
        }
    }

    /// All its links come up.
    fn plug_in(mut self) -> Self {
        for index in 0..self.cables.len() {
            self.set_link(index, true);
        }
        self
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// The virtual clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Changes both directions of a link while it runs.
    pub fn change(&mut self, link: usize, change: impl Fn(&mut Config)) {
        let cable = &mut self.cables[link];
        for way in [&mut cable.up, &mut cable.down] {
            way.change(&change, self.now);
        }
    }

    /// Silently swallows everything on a link, or no longer.
    pub fn blackhole(&mut self, link: usize, on: bool) {
        self.change(link, |config| config.outage = on);
    }

    /// Swallows only what the edge sends (`up`) or receives on a link.
    pub fn blackhole_one_way(&mut self, link: usize, up: bool, on: bool) {
        let cable = &mut self.cables[link];
        let way = if up { &mut cable.up } else { &mut cable.down };
        way.change(|config| config.outage = on, self.now);
    }

    /// Busy machines: the edge and the hub act so far apart, half as much more or less, on all that
    /// has come by then.
    pub fn set_turns(&mut self, edge: Duration, hub: Duration) {
        (self.edge_turns.every, self.hub_turns.every) = (edge, hub);
    }

    /// The edge or the hub stands still for so long, and then finds all that has come meanwhile.
    pub fn stall(&mut self, hub: bool, span: Duration) {
        let turns = if hub {
            &mut self.hub_turns
        } else {
            &mut self.edge_turns
        };
        turns.hold(self.now + span);
    }

    /// What the calendar of the edge or the hub says from now on, compared with the true one. Only
    /// TLS looks at it.
    pub fn set_calendar(&mut self, hub: bool, ahead_seconds: i64) {
        self.authority.calendars[usize::from(hub)].set(ahead_seconds);
    }

    /// By which clock both machines go that act in turns.
    pub fn set_clock(&mut self, clock: Clock) {
        (self.edge_turns.clock, self.hub_turns.clock) = (clock, clock);
    }

    /// What arrives at the edge within `span` seems to it to have arrived too early by `early`.
    pub fn misstamp(&mut self, early: Duration, span: Duration) {
        self.edge_turns.misstamp(early, span, self.now);
    }

    /// What the kernel would say of a link.
    pub fn set_link(&mut self, link: usize, up: bool) {
        let update = LinkUpdate {
            socket: SocketId(link as u32),
            label: self.labels[link].clone(),
            v4: up,
            v6: false,
            mtu: None,
        };
        self.edge.handle_link(update, self.now);
        self.settle();
    }

    /// IP packets of more than `mtu` bytes get lost on a link from now on; whether their senders
    /// are told.
    pub fn set_path_mtu(&mut self, link: usize, mtu: usize, told: bool) {
        self.change(link, |config| (config.mtu, config.tells_mtu) = (mtu, told));
    }

    /// Puts a NAT box between the edge and a link, in place of any other: connections through it
    /// break.
    pub fn set_nat(&mut self, link: usize, config: NatConfig) {
        self.cables[link].nat = Some(Nat::new(config));
    }

    /// The NAT box of a link, if it has one.
    pub fn nat(&mut self, link: usize) -> Option<&mut Nat> {
        self.cables[link].nat.as_mut()
    }

    /// The edge's socket on a link has another port from now on, as after binding it anew. Behind a
    /// NAT box that means another mapping; without one the hub sees it.
    pub fn new_port(&mut self, link: usize) {
        self.rebind(link);
    }

    /// The link's port changes, as behind a NAT that forgot it.
    pub fn rebind(&mut self, link: usize) {
        let address = self.cables[link].address;
        self.cables[link].address.set_port(address.port() + 1);
    }

    /// The link's NAT has a mapping for the present port that leads nowhere, and keeps it as long
    /// as it is used.
    pub fn wedge(&mut self, link: usize) {
        let cable = &mut self.cables[link];
        cable.wedged = Some(cable.address.port());
    }

    /// Bytes of all IP packets that both ends put on a link so far.
    pub fn bytes_on(&self, link: usize) -> u64 {
        let cable = &self.cables[link];
        cable.up.offered + cable.down.offered
    }

    /// The link's address changes, as behind a provider's NAT that uses another of its own.
    pub fn move_to(&mut self, link: usize, address: IpAddr) {
        self.cables[link].address.set_ip(address);
    }

    /// The hub goes on with another config, by which a site gets so many bytes per second.
    pub fn bound_sites(&mut self, site_limit: Option<u64>) {
        let config = HubConfig {
            site_limit,
            ..hub_config()
        };
        self.hub.change(config, self.now);
    }

    /// Replaces the hub by a fresh one with the same identity, as a restart does.
    pub fn restart_hub(&mut self) {
        self.seed += 1;
        self.hub = new_hub(&self.authority, self.seed, self.now);
    }

    /// Replaces the edge by a fresh one with the same identity, as a restart does. The hub does not
    /// hear of it before the new one is there.
    pub fn restart_edge(&mut self) {
        self.seed += 1;
        self.edge = new_edge(&self.config, &self.authority, self.seed, self.now);
        for link in 0..self.cables.len() {
            self.rebind(link);
            self.set_link(link, true);
        }
    }

    /// Hands the edge an inner packet, as its TUN device would.
    pub fn send_from_edge(&mut self, packet: &[u8]) {
        self.offload_from_edge(&VirtioNetHdr::default(), packet);
    }

    /// Hands the edge an inner packet of which the kernel left something to do.
    pub fn offload_from_edge(&mut self, header: &VirtioNetHdr, packet: &[u8]) {
        self.edge
            .handle_packet(header, packet, None, self.now)
            .expect("the edge carries all classes");
        self.settle();
    }

    /// Hands the hub an inner packet.
    pub fn send_from_hub(&mut self, packet: &[u8]) {
        self.hub
            .handle_packet(&VirtioNetHdr::default(), packet, self.now);
        self.settle();
    }

    /// Lets `span` of virtual time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.step(end) {}
    }

    /// Goes on to the next event, or to `end` if there is none before; false if so.
    ///
    /// # Panics
    /// If time stands still.
    pub fn step(&mut self, end: Instant) -> bool {
        let Some(next) = self.next_event().filter(|&next| next <= end) else {
            self.now = end;
            return false;
        };
        let passes = next > self.now + Duration::from_nanos(100);
        self.stuck = if passes { 0 } else { self.stuck + 1 };
        assert!(
            self.stuck < STUCK,
            "time stands still: edge {:?}, hub {:?}, now {:?}",
            self.edge.poll_timeout(),
            self.hub.poll_timeout(),
            self.now
        );
        self.now = self.now.max(next);
        let (edge, hub) = (
            self.edge_turns.is_due(self.now),
            self.hub_turns.is_due(self.now),
        );
        let edge = edge.then(|| self.edge_turns.begin(self.now));
        let hub = hub.then(|| self.hub_turns.begin(self.now));
        if edge.is_some() {
            self.deliver_to_edge();
        }
        if hub.is_some() {
            self.deliver_to_hub();
        }
        if let Some(now) = edge {
            if self.edge.poll_timeout().is_some_and(|at| at <= now) {
                self.edge.handle_timeout(now);
            }
            self.settle_edge(now);
            self.edge_turns.end(self.now);
        }
        if let Some(now) = hub {
            if self.hub.poll_timeout().is_some_and(|at| at <= now) {
                self.hub.handle_timeout(now);
            }
            self.settle_hub(now);
            self.hub_turns.end(self.now);
        }
        true
    }

    /// Lets time pass until `done`, at most `limit`; false if that was reached.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end {
            if done(self) {
                return true;
            }
            self.run(Duration::from_millis(1));
        }
        done(self)
    }

    /// Runs until the first class is up with `paths` paths on both sides.
    pub fn connect(&mut self, paths: usize) -> bool {
        self.run_until(PATIENCE, |world| {
            let ready = |status: &TunnelStatus| status.up && status.paths.len() == paths;
            let edge = world.edge.status();
            edge.iter().all(ready)
                && world.hub.status().iter().filter(|s| ready(s)).count() == edge.len()
        })
    }

    fn next_event(&self) -> Option<Instant> {
        let down = self
            .cables
            .iter()
            .filter_map(|cable| cable.down.poll_timeout());
        let up = self
            .cables
            .iter()
            .filter_map(|cable| cable.up.poll_timeout());
        let edge = down.chain(self.edge.poll_timeout()).min();
        let hub = up.chain(self.hub.poll_timeout()).min();
        let turns = [self.edge_turns.at(edge), self.hub_turns.at(hub)];
        turns.into_iter().flatten().min()
    }

    /// Hands out what the links deliver now.
    fn deliver_to_edge(&mut self) {
        for index in 0..self.cables.len() {
            while let Some((at, wire)) = self.cables[index]
                .down
                .poll_output(self.repeats_after, self.now)
            {
                if self.cables[index].admits(&wire, self.now) {
                    let local = Local {
                        socket: SocketId(index as u32),
                        ip: None,
                    };
                    let (at, now) = (self.edge_turns.stamp(at), self.edge_turns.now());
                    self.edge
                        .handle_datagrams(received(local, &wire, at), wire.bytes, now);
                }
            }
        }
    }

    fn deliver_to_hub(&mut self) {
        for index in 0..self.cables.len() {
            while let Some((at, wire)) = self.cables[index]
                .up
                .poll_output(self.repeats_after, self.now)
            {
                if wire.to == hub_address() {
                    if let Some(tapped) = &mut self.tapped {
                        tapped.push(wire.bytes.clone());
                    }
                    let local = Local {
                        socket: SocketId(0),
                        ip: Some(wire.to.ip()),
                    };
                    let (at, now) = (self.hub_turns.stamp(at), self.hub_turns.now());
                    self.hub
                        .handle_datagrams(received(local, &wire, at), wire.bytes, now);
                }
            }
        }
    }

    /// Sends the hub a packet that somebody has recorded.
    pub fn replay(&mut self, from: SocketAddr, bytes: &BytesMut) {
        let local = Local {
            socket: SocketId(0),
            ip: Some(hub_address().ip()),
        };
        let wire = Wire {
            from,
            to: hub_address(),
            ecn: 0,
            bytes: bytes.clone(),
        };
        self.hub
            .handle_datagrams(received(local, &wire, self.now), wire.bytes, self.now);
        self.settle();
    }

    /// Drains both machines, or has them drained at their next turn.
    fn settle(&mut self) {
        if self.edge_turns.ask() {
            self.settle_edge(self.now);
        }
        if self.hub_turns.ask() {
            self.settle_hub(self.now);
        }
    }

    /// Drains the edge, which takes it to be `now`.
    fn settle_edge(&mut self, now: Instant) {
        while let Some(event) = self.edge.poll_event(now) {
            if let EdgeEvent::NewPort { socket, .. } = event {
                self.rebind(socket.0 as usize);
            }
            self.edge_events.push((self.elapsed(), event));
        }
        while let Some((_, packet)) = self.edge.poll_packet() {
            self.at_edge.push_back(Arrival {
                at: self.now,
                packet: packet.bytes,
                checksum: packet.checksum,
            });
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.edge.poll_transmit(&mut buffer, now) {
            let link = transmit.local.socket.0 as usize;
            let cable = &mut self.cables[link];
            if let Some(from) = cable.source(transmit.remote, self.now) {
                let told = cable.up.offer(from, &transmit, &buffer, self.now);
                self.told_mtu.extend(told.map(|mtu| TooBig {
                    link,
                    direction: Direction::Up,
                    mtu,
                }));
            }
            buffer.clear();
        }
        self.buffer = buffer;
    }

    /// Drains the hub, which takes it to be `now`.
    fn settle_hub(&mut self, now: Instant) {
        while let Some(event) = self.hub.poll_event(now) {
            if let HubEvent::Connect { request, .. } = event {
                let grant = Grant {
                    site: "site".into(),
                    addresses: vec![EDGE.into()],
                    credential: CREDENTIAL,
                };
                match self.refuses {
                    Some((status, reason)) => self.hub.refuse(request, status, reason, now),
                    None => self.hub.grant(request, grant, now),
                }
            }
            self.hub_events.push((self.elapsed(), event));
        }
        while let Some(packet) = self.hub.poll_packet(now) {
            self.at_hub.push_back(Arrival {
                at: self.now,
                packet: packet.bytes,
                checksum: packet.checksum,
            });
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.hub.poll_transmit(&mut buffer, now) {
            let cables = self.cables.iter_mut().enumerate();
            let to = |cable: &Cable| cable.address.ip() == transmit.remote.ip();
            if let Some((link, cable)) = cables.into_iter().find(|(_, cable)| to(cable)) {
                let told = cable
                    .down
                    .offer(hub_address(), &transmit, &buffer, self.now);
                self.told_mtu.extend(told.map(|mtu| TooBig {
                    link,
                    direction: Direction::Down,
                    mtu,
                }));
            } else if let Some(heard) = &mut self.to_strangers {
                let size = transmit.segment.unwrap_or(buffer.len()).max(1);
                heard.extend(buffer.chunks(size).map(BytesMut::from));
            }
            buffer.clear();
        }
        self.buffer = buffer;
    }
}

fn edge_config(classes: Vec<ClassConfig>, classifier: Classifier) -> EdgeConfig {
    EdgeConfig {
        hubs: vec![hub_address()],
        server_name: tls::HUB_NAME.into(),
        classes: (0..).map(ClassId).zip(classes).collect(),
        classifier,
        sharing: None,
        classic: None,
        lan: Vec::new(),
        bearer: None,
        steering: 0,
    }
}

fn new_edge(config: &EdgeConfig, authority: &Authority, seed: u64, now: Instant) -> Edge {
    let tls = authority.client();
    Edge::new(
        settings(seed, 1),
        config.clone(),
        tls,
        Purpose::Tunnels,
        now,
    )
    .expect("the test configuration has QUIC's initial suite")
}

fn hub_config() -> HubConfig {
    HubConfig {
        addresses: vec![IpAddr::from([10, 200, 0, 1])],
        // As many as the program has.
        max_strangers: 4096,
        site_limit: None,
        classes: HubClasses::default(),
        udp_flows: 0,
    }
}

fn new_hub(authority: &Authority, seed: u64, now: Instant) -> Hub {
    Hub::new(settings(seed, 2), hub_config(), authority.server(), now)
        .expect("the test configuration has QUIC's initial suite")
}

fn settings(seed: u64, salt: u8) -> Settings {
    let mut bytes = [salt; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    Settings {
        inner_mtu: 1400,
        issuer: Issuer::default(),
        seed: bytes,
        reset_key: [salt; 32],
    }
}

fn hub_address() -> SocketAddr {
    HUB.parse().expect("a valid address")
}

fn label(index: usize, tier: u8) -> LinkLabel {
    let name = char::from(b'a' + index as u8).to_string();
    LinkLabel {
        name,
        tier,
        weight: 1,
    }
}

fn received(local: Local, wire: &Wire, arrived: Instant) -> Received {
    Received {
        local,
        remote: wire.from,
        ecn: wire.ecn,
        segment: wire.bytes.len(),
        arrived,
    }
}
