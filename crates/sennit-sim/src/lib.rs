//! A hub, its sites and the links between them in virtual time.
//!
//! A [`World`] owns a hub and its sites: each has an edge and, for each of its links, two
//! one-directional emulators. All worlds but those of [`chaos`] have one site. Time moves from one
//! event to the next, so an hour costs as much as what happens in it, and the same seed gives the
//! same run: TLS draws its randomness elsewhere, but only values and never sizes depend on it (see
//! [`Authority`]). Inner packets are handed in and taken out by the test, or by the hosts of a
//! [`Transfer`], which send as much as the tunnel carries.

mod autorate;
mod cable;
pub mod chaos;
mod dice;
mod endpoint;
mod exchange;
mod happenings;
mod ping;
mod plain;
mod quic;
mod setup;
mod site;
mod strangers;
mod tcp;
mod tls;
mod traffic;
mod transfer;
mod trial;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use sennit_core::{ClassId, Classifier, Policy};
use sennit_engine::{
    ClassConfig, Credential, EdgeChange, EdgeConfig, Hub, HubEvent, Local, Plan, Rekey, Sharing,
    SocketId, Treatment, facts::TunnelStatus,
};
use sennit_packet::{Prefix, checksum::Progress};

pub use autorate::Autorate;
use cable::Wire;
pub use dice::Dice;
use exchange::received;
pub use sennit_netem::{BadSpec, Direction, LinkSpec};
use setup::{REKEY, edge_config, hub_address, new_hub};
pub use site::Site;
pub use strangers::{Persistent, first_packets};
pub use tls::{Authority, HUB_NAME};
pub use traffic::{EDGE, SERVER, Stream, number, udp};
pub use transfer::{Kind, Transfer};
pub use trial::{Outcome, Trial, TrialError, seconds};
pub use turns::Clock;
use turns::Turns;

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

/// What the hub knows the first edge by.
pub const CREDENTIAL: Credential = [7; 32];

/// A hub, its sites, and their links. Whatever is done to the edge or to a link is done at the
/// [`Site`] that the world looks at.
pub struct World {
    /// The far side.
    pub hub: Hub,
    sites: Vec<Site>,
    /// Which of them it looks at.
    site: usize,
    authority: Authority,
    rekey: Rekey,
    seed: u64,
    now: Instant,
    start: Instant,
    /// Inner packets that reached the hub.
    pub at_hub: VecDeque<Arrival>,
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
    /// Other addresses at which the hub is.
    pub more_hubs: Vec<SocketAddr>,
    /// What edges send to this address is lost.
    pub lost_to: Option<SocketAddr>,
    /// What the hub sends from this address is lost.
    pub lost_from: Option<SocketAddr>,
    /// Requests for tunnels go unanswered.
    pub is_slow_to_grant: bool,
    /// The number of the site that is revoked.
    revoked: Option<usize>,
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
        links: None,
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
            sharing: Sharing::upward(plan, None, start),
            ..edge_config(classes, classifier)
        };
        Self::with_edge(links, config, &[], seed, start)
    }

    /// The classes share the links by another plan from now on, as after a reload.
    pub fn share(&mut self, plan: Plan) {
        let now = self.edge_turns.clock_at(self.now);
        let sharing = Sharing::upward(plan, self.config.sharing.as_ref(), now);
        self.config.sharing = sharing;
        self.reload(|_| ());
    }

    /// From the next reload on packets are sorted into classes by these rules.
    pub fn sort_by(&mut self, classifier: Classifier) {
        self.config.classifier = classifier;
    }

    /// The classes are otherwise from now on, as after a reload.
    pub fn reload(&mut self, change: impl FnOnce(&mut BTreeMap<ClassId, ClassConfig>)) {
        change(&mut self.config.classes);
        let change = EdgeChange {
            classes: self.config.classes.clone(),
            classifier: self.config.classifier.clone(),
            lan: self.config.lan.clone(),
            hubs: self.config.hubs.clone(),
            hub_names: self.config.hub_names.clone(),
            sharing: self.config.sharing.clone(),
        };
        let now = self.edge_turns.clock_at(self.now);
        self.edge.handle_change(change, now);
    }

    /// The hub is at these addresses from now on, and has these names, as after a reload.
    pub fn set_hubs(&mut self, hubs: &[SocketAddr], names: &[&str]) {
        self.config.hubs = hubs.to_vec();
        self.config.hub_names = names.iter().map(|&name| name.into()).collect();
        self.reload(|_| ());
        self.settle();
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
        Self::with_classes_and_dead_hubs(links, classes, dead, seed, start)
    }

    /// A world of several classes, of which the first takes everything, with such addresses.
    pub fn with_classes_and_dead_hubs(
        links: &[LinkSpec],
        classes: Vec<ClassConfig>,
        dead: &[SocketAddr],
        seed: u64,
        start: Instant,
    ) -> Self {
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
            hub: new_hub(&authority, REKEY, seed, start),
            sites: vec![Site::new(
                [0; 2],
                links,
                config,
                (&authority, REKEY),
                seed,
                start,
            )],
            site: 0,
            rekey: REKEY,
            authority,
            seed,
            now: start,
            start,
            at_hub: VecDeque::new(),
            hub_events: Vec::new(),
            told_mtu: Vec::new(),
            tapped: None,
            to_strangers: None,
            buffer: Vec::new(),
            stuck: 0,
            refuses: None,
            repeats_after: None,
            more_hubs: Vec::new(),
            lost_to: None,
            lost_from: None,
            is_slow_to_grant: false,
            revoked: None,
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
            "time stands still: edges {:?}, hub {:?}, now {:?}",
            self.sites
                .iter()
                .map(|site| site.edge.poll_timeout())
                .collect::<Vec<_>>(),
            self.hub.poll_timeout(),
            self.now
        );
        self.now = self.now.max(next);
        self.act();
        true
    }

    /// Has the hub act, and the edges to which something happens now.
    fn act(&mut self) {
        let now = self.now;
        let hub_is_due = self.hub_timeout().is_some_and(|at| at <= now);
        let hub = self.hub_turns.is_due(now);
        let hub = hub.then(|| self.hub_turns.begin(now));
        for site in &mut self.sites {
            site.begin(hub_is_due, now);
            site.deliver(self.repeats_after, now);
        }
        if hub.is_some() {
            self.deliver_to_hub();
        }
        for site in 0..self.sites.len() {
            let Some(now) = self.sites[site].turn.take() else {
                continue;
            };
            self.sites[site].time_out(now);
            self.settle_edge(site, now);
            self.sites[site].edge_turns.end(self.now);
        }
        if let Some(now) = hub {
            if self.hub.poll_timeout().is_some_and(|due| due.at <= now) {
                self.hub.handle_timeout(now);
            }
            self.settle_hub(now);
            self.hub_turns.end(self.now);
        }
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

    fn next_event(&mut self) -> Option<Instant> {
        for site in &mut self.sites {
            site.look_ahead();
        }
        let edges = self.sites.iter().filter_map(|site| site.next_turn);
        let up = self.sites.iter().filter_map(|site| site.next_up);
        let up = up.min().and_then(|at| self.hub_turns.at(Some(at)));
        edges.chain(up).chain(self.hub_timeout()).min()
    }

    /// When the hub acts if no datagram comes before.
    fn hub_timeout(&self) -> Option<Instant> {
        let due = self.hub.poll_timeout();
        self.hub_turns
            .at(due.map(|due| self.hub_turns.when(due.at)))
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
        let now = self.hub_turns.clock_at(self.now);
        self.hub
            .handle_datagrams(received(local, &wire, now), wire.bytes, now);
        self.settle();
    }
}
