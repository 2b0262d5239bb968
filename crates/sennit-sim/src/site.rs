//! A site of a world: its edge, its links, and what came out there.

use std::{
    collections::VecDeque,
    mem::replace,
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

use sennit_engine::{Edge, EdgeConfig, EdgeEvent, LinkLabel, Local, Rekey, SocketId};

use crate::{
    Arrival, Authority, LinkSpec, World,
    cable::Cable,
    exchange::received,
    setup::{edge_seed, label, new_edge},
    turns::Turns,
};

/// An edge and its links.
pub struct Site {
    /// The site side.
    pub edge: Edge,
    /// Inner packets that reached the edge.
    pub at_edge: VecDeque<Arrival>,
    /// Everything the edge said.
    pub edge_events: Vec<(Duration, EdgeEvent)>,
    pub(crate) config: EdgeConfig,
    pub(crate) cables: Vec<Cable>,
    pub(crate) labels: Vec<LinkLabel>,
    pub(crate) edge_turns: Turns,
    /// When the edge acts next, and when something may arrive at the hub's end of a link.
    pub(crate) next_turn: Option<Instant>,
    pub(crate) next_up: Option<Instant>,
    /// Nothing has happened here since that was found out.
    pub(crate) foreseen: bool,
    /// What the edge takes for the time in the turn that it has now.
    pub(crate) turn: Option<Instant>,
}

impl Site {
    /// One that comes after so many sites, which have so many links.
    pub(crate) fn new(
        [sites, others]: [usize; 2],
        links: &[LinkSpec],
        config: EdgeConfig,
        (authority, rekey): (&Authority, Rekey),
        seed: u64,
        start: Instant,
    ) -> Self {
        let cable = |(index, link)| Cable::new(others + index, link, seed, start);
        let own = edge_seed(seed, sites);
        Self {
            edge: new_edge(&config, authority, rekey, own, start),
            at_edge: VecDeque::new(),
            edge_events: Vec::new(),
            config,
            cables: links.iter().enumerate().map(cable).collect(),
            labels: (0..links.len())
                .map(|link| label(others + link, 1))
                .collect(),
            edge_turns: Turns::new(2 * own, start),
            next_turn: None,
            next_up: None,
            foreseen: false,
            turn: None,
        }
    }

    /// The link's port changes, as behind a NAT that forgot it.
    pub fn rebind(&mut self, link: usize) {
        let address = self.cables[link].address;
        self.cables[link].address.set_port(address.port() + 1);
    }

    /// Finds out when something happens here next, if that may have changed.
    pub(crate) fn look_ahead(&mut self) {
        if replace(&mut self.foreseen, true) {
            return;
        }
        let down = self.cables.iter().filter_map(|it| it.down.poll_timeout());
        let due = self.edge.poll_timeout();
        let timeout = due.map(|due| self.edge_turns.when(due.at));
        self.next_turn = self.edge_turns.at(down.chain(timeout).min());
        self.next_up = self
            .cables
            .iter()
            .filter_map(|it| it.up.poll_timeout())
            .min();
    }

    /// Begins a turn of the edge, if it may act and something happens here, or the hub's time has
    /// come.
    pub(crate) fn begin(&mut self, hub_is_due: bool, now: Instant) {
        let mut next = self.next_turn.into_iter().chain(self.next_up);
        let is_due = hub_is_due || next.any(|at| at <= now);
        let acts = is_due && self.edge_turns.is_due(now);
        self.turn = acts.then(|| self.edge_turns.begin(now));
    }

    /// Hands the edge what its links deliver now, if it has a turn.
    pub(crate) fn deliver(&mut self, repeats_after: Option<Duration>, now: Instant) {
        if self.turn.is_none() {
            return;
        }
        for (index, cable) in self.cables.iter_mut().enumerate() {
            while let Some((at, wire)) = cable.down.poll_output(repeats_after, now) {
                if cable.admits(&wire, now) {
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

    /// The edge's timers that have run out by what it takes for the time do so.
    pub(crate) fn time_out(&mut self, now: Instant) {
        if self.edge.poll_timeout().is_some_and(|due| due.at <= now) {
            self.edge.handle_timeout(now);
        }
    }
}

impl World {
    /// Has another site at the hub, at which the world looks from now on. It tells the hub its
    /// number, as others show a certificate.
    pub(crate) fn add_site(&mut self, links: &[LinkSpec], config: EdgeConfig) {
        let sites = self.sites.len();
        let others = self.sites.iter().map(|site| site.cables.len()).sum();
        let config = EdgeConfig {
            bearer: Some(sites.to_string()),
            ..config
        };
        let place = [sites, others];
        let how = (&self.authority, self.rekey);
        let site = Site::new(place, links, config, how, self.seed, self.now);
        self.sites.push(site);
        self.look_at(sites);
        for link in 0..links.len() {
            self.set_link(link, true);
        }
    }

    /// Looks at another site.
    pub(crate) fn look_at(&mut self, site: usize) {
        self.site = site;
    }
}

/// A world stands for the site that it looks at, which is its only one in all tests but chaos.
impl Deref for World {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.sites[self.site]
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Site {
        let site = &mut self.sites[self.site];
        site.foreseen = false;
        site
    }
}
