//! A run of chaos: its sites, and what happens there in each step.

use std::{collections::BTreeMap, net::Ipv4Addr, ops::Range, time::Instant};

use sennit_core::{ClassId, Classifier, Delivery, Policy};
use sennit_engine::{ClassConfig, EdgeConfig, Plan, Share, Sharing, Terms, facts::TunnelStatus};

use super::{
    Log, Mishaps, Pair, STEP, Summary,
    faults::Faults,
    load::{self, Load},
    machines::{Machine, Mishap},
    offer::{self, Offer},
    rules::{CONNECTIONS, Rules},
};
use crate::{
    Arrival, Dice, LinkSpec, SERVER, World, class,
    setup::{edge_config, inner_address, label},
    udp,
};

/// The number of ICMP: an end may say that there is no route yet.
const ICMP: u8 = 1;
/// Port of packets that a site sends from the address of another one.
const FORGED: u16 = 10;
/// Steps between two of them.
const FORGED_EACH: u64 = 10;
/// Bytes of one.
const FORGED_LEN: usize = 100;

/// The address at this place of a packet's header (RFC 791 §3.1).
fn address(head: &[u8; 24], place: usize) -> Ipv4Addr {
    Ipv4Addr::new(
        head[place],
        head[place + 1],
        head[place + 2],
        head[place + 3],
    )
}

/// What a site is like.
struct Draft {
    seed: u64,
    links: Vec<LinkSpec>,
    /// The numbers of its links among those of all sites.
    place: Range<usize>,
    class: ClassConfig,
    plan: Plan,
    /// What more is drawn for it.
    dice: Dice,
}

/// A site, what goes wrong there, and what must hold.
struct Party {
    faults: Faults,
    load: Option<Load>,
    rules: Rules,
    /// It carries what its best link does: its class bonds, and nobody shares the links.
    bonds: bool,
}

/// A world and all that happens there.
pub(super) struct Play {
    pub(super) world: World,
    pub(super) log: Log,
    hub: Machine,
    parties: Vec<Party>,
    mishap: Option<Mishap>,
    offer: Offer,
    steps: u64,
    summary: Summary,
}

impl Play {
    pub(super) fn new(seed: u64, mishaps: Mishaps) -> Self {
        let start = Instant::now();
        let drafts = drafts(seed, mishaps);
        let first = &drafts[0];
        let mut world = World::with_edge(&first.links, first.config(start), &[], seed, start);
        for draft in &drafts[1..] {
            world.add_site(&draft.links, draft.config(start));
        }
        let mut log = Log::default();
        for (site, draft) in drafts.iter().enumerate() {
            world.look_at(site);
            world.write_down();
            let Draft { class, plan, .. } = draft;
            log.begin(format!("site {site}: {:?}, {plan:?}", class.treatment));
        }
        let all = mishaps == Mishaps::All;
        let parties = drafts.into_iter().enumerate();
        Self {
            parties: parties
                .map(|(site, draft)| Party::new(site, draft, all, start))
                .collect(),
            world,
            log,
            hub: Machine::new(start),
            mishap: all.then(|| Mishap::new(seed, start)),
            offer: Offer::new(seed, start),
            steps: 0,
            summary: Summary::default(),
        }
    }

    /// What happened so far.
    pub(super) fn summary(mut self) -> Summary {
        self.summary.sites = self.parties.len();
        for Party { rules, .. } in self.parties {
            let (sent, arrived) = rules.counts();
            self.summary.sent += sent;
            self.summary.arrived += arrived;
            self.summary.back.extend(rules.back);
        }
        self.summary
    }

    /// Lets a step pass, and looks whether all rules hold.
    pub(super) fn step(&mut self) -> Result<(), String> {
        self.disturb();
        self.begin_offer();
        self.send();
        match self.offer.site() {
            Some(_) => self.offer.run(&mut self.world),
            None => self.world.run(STEP),
        }
        self.steps += 1;
        for site in 0..self.parties.len() {
            self.look_at(site);
            self.summary.tunnels += self.world.hear(&mut self.log);
        }
        self.sort_out()?;
        self.check()
    }

    /// Looks at a site, of which the log tells from now on.
    fn look_at(&mut self, site: usize) {
        self.world.look_at(site);
        self.log.site = (self.parties.len() > 1).then_some(site);
    }

    /// Breaks and mends what is due, but not where a site has to carry as much as its best link.
    fn disturb(&mut self) {
        self.log.site = None;
        self.world.recover(true, &mut self.hub, &mut self.log);
        let offered = self.offer.site();
        for site in 0..self.parties.len() {
            self.look_at(site);
            let faults = &mut self.parties[site].faults;
            let disturbs_it = Some(site) == offered || (offered.is_some() && faults.disturbs_hub());
            if !disturbs_it {
                let (log, summary) = (&mut self.log, &mut self.summary);
                faults.step(&mut self.world, &mut self.hub, log, summary);
            }
        }
        if offered.is_none()
            && let Some(mishap) = &mut self.mishap
        {
            self.log.site = None;
            let edges = self.parties.iter_mut().map(|it| &mut it.faults.edge);
            let (log, summary) = (&mut self.log, &mut self.summary);
            mishap.step(&mut self.world, &mut self.hub, edges, log, summary);
        }
    }

    /// A site that bonds has more to send than its best link carries, if it is time.
    fn begin_offer(&mut self) {
        let now = self.world.now();
        if !self.offer.is_due(now) {
            return;
        }
        let parties = self.parties.iter().enumerate();
        let best = parties.filter_map(|(site, party)| Some((site, party.best(&self.hub, now)?)));
        let best: Vec<_> = best.collect();
        if let Some(what) = self.offer.begin(&best) {
            self.log.site = self.offer.site();
            self.log.note(self.world.elapsed(), what);
        }
    }

    /// Hands over what is sent in this step.
    fn send(&mut self) {
        for site in 0..self.parties.len() {
            self.look_at(site);
            let party = &mut self.parties[site];
            if let Some(load) = &mut party.load {
                load.step(&mut self.world, &mut self.log);
            }
            let Pair { up, down } = party.rules.packets();
            self.world.send_from_edge(&up);
            self.world.send_from_hub(&down);
        }
        self.forge();
    }

    /// Now and then a site sends from the address of another one.
    fn forge(&mut self) {
        let count = self.parties.len();
        if count == 1 || !self.steps.is_multiple_of(FORGED_EACH) {
            return;
        }
        let liar = (self.steps / FORGED_EACH) as usize % count;
        let victim = inner_address((liar + 1) % count);
        let bytes = udp(victim, SERVER, FORGED, self.steps as u32, FORGED_LEN);
        self.look_at(liar);
        self.world.send_from_edge(&bytes);
        self.summary.forged += 1;
    }

    /// Gives each site's rules what came out.
    fn sort_out(&mut self) -> Result<(), String> {
        for arrival in std::mem::take(&mut self.world.at_hub) {
            self.note_arrival(&arrival, None)?;
        }
        for site in 0..self.parties.len() {
            self.look_at(site);
            for arrival in std::mem::take(&mut self.world.at_edge) {
                self.note_arrival(&arrival, Some(site))
                    .map_err(|what| format!("at the edge of site {site}: {what}"))?;
            }
        }
        Ok(())
    }

    /// Takes down what came out at the edge of a site, or at the hub if none is named.
    fn note_arrival(&mut self, arrival: &Arrival, at: Option<usize>) -> Result<(), String> {
        let packet = &arrival.packet;
        let Some(head) = packet.first_chunk::<24>() else {
            return Err("something came out that is no packet".into());
        };
        if head[9] == ICMP {
            return Ok(());
        }
        let [from, to] = [12, 16].map(|place| address(head, place));
        let port = u16::from_be_bytes([head[22], head[23]]);
        let own = if at.is_some() { to } else { from };
        let site = (0..self.parties.len()).find(|&site| inner_address(site) == own);
        let site = site.filter(|&site| at.is_none_or(|at| at == site) && port != FORGED);
        let Some((site, party)) = site.map(|site| (site, &mut self.parties[site])) else {
            return Err(format!(
                "a foreign packet came out: from {from} to {to}, port {port}"
            ));
        };
        match (port, at) {
            (load::PORT, _) => self.summary.load += 1,
            (offer::PORT, _) => self.offer.note_arrival(site, at.is_none(), packet)?,
            (_, None) => party.rules.note_at_hub(arrival, &party.faults, &self.hub)?,
            (_, Some(_)) => party
                .rules
                .note_at_edge(arrival, &party.faults, &self.hub)?,
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let at_hub: Vec<TunnelStatus> = self.world.hub.status();
        let count = self.world.hub.tunnels();
        if count > CONNECTIONS * self.parties.len() {
            return Err(format!("hub: {count} connections"));
        }
        for (site, party) in self.parties.iter_mut().enumerate() {
            self.world.look_at(site);
            let Party { rules, faults, .. } = party;
            rules
                .check(&mut self.world, &at_hub, faults, &self.hub)
                .map_err(|what| format!("site {site}: {what}"))?;
        }
        let offered = self.offer.site();
        let ended = self.offer.end_step(self.world.now());
        let ended = ended.map_err(|what| self.tell_of_paths(offered.unwrap_or_default(), &what))?;
        self.summary.best_link.extend(ended);
        Ok(())
    }

    /// What a site's rule has to say, with its links and what both ends make of them.
    fn tell_of_paths(&mut self, site: usize, what: &str) -> String {
        self.world.look_at(site);
        let mut told = format!("site {site}: {what}");
        let links = self.parties[site].faults.links();
        told += &format!(", over {links}; paths of the edge, then of the hub:");
        let tunnels = [self.world.edge.status(), self.world.hub.status()].concat();
        let own: Vec<_> = self.world.labels.iter().map(|label| &label.name).collect();
        let paths = tunnels.iter().flat_map(|tunnel| &tunnel.paths);
        for path in paths.filter(|path| own.contains(&&path.link.name)) {
            let health = (&path.link.name, path.state, path.reason, path.one_way);
            let (sent, lost) = (path.sent_packets, path.lost_packets);
            let window = (path.congestion, path.cwnd, path.rate, path.rtt);
            told += &format!(" {health:?} lost {lost} of {sent}, {window:?};");
        }
        told
    }
}

impl Party {
    fn new(site: usize, draft: Draft, all: bool, start: Instant) -> Self {
        let edge = inner_address(site);
        let shares = !draft.plan.is_empty();
        let treatment = draft.class.treatment;
        Self {
            load: shares.then(|| Load::new(edge, draft.seed, start)),
            bonds: all && !shares && treatment.policy == Policy::Bond,
            rules: Rules::new(edge, draft.place.clone(), treatment.delivery, start),
            faults: Faults::new(&draft.links, draft.place.start, draft.dice, start),
        }
    }

    /// Bytes that its best link carries in a step, if it bonds, nobody holds it up, and all that
    /// has been so for a time.
    fn best(&self, hub: &Machine, now: Instant) -> Option<f64> {
        let is_quick = self.faults.edge.is_quick() && hub.is_quick();
        let since = now.checked_sub(offer::STEADY)?;
        let is_usable = self.faults.usable_since(hub).is_some_and(|at| at <= since);
        if !(self.bonds && is_quick && is_usable) {
            return None;
        }
        self.faults
            .steady(since)
            .map(offer::carried)
            .reduce(f64::max)
    }
}

impl Draft {
    /// A site whose first link has this number.
    fn new(seed: u64, first: usize) -> Self {
        let mut dice = Dice::new(seed);
        let links: Vec<_> = (0..2 + dice.roll(2)).map(|_| dice.link(3..=40)).collect();
        Self {
            seed,
            place: first..first + links.len(),
            links,
            class: any_class(&mut dice),
            plan: Plan::default(),
            dice,
        }
    }

    fn config(&self, now: Instant) -> EdgeConfig {
        let class = self.class.clone();
        let (classes, classifier) = match self.plan.is_empty() {
            true => (vec![class], Classifier::default()),
            false => (vec![class, Load::class()], Load::classifier()),
        };
        EdgeConfig {
            sharing: Sharing::upward(self.plan.clone(), None, now),
            ..edge_config(classes, classifier)
        }
    }
}

/// One site, or two to four; the last of several bonds and shares its links by no rule.
fn drafts(seed: u64, mishaps: Mishaps) -> Vec<Draft> {
    let count = match mishaps {
        Mishaps::OfLinks => 1,
        Mishaps::All => 2 + Dice::beside(seed, 3).roll(3) as usize,
    };
    let mut drafts: Vec<Draft> = Vec::new();
    for site in 0..count {
        let first = drafts.last().map_or(0, |draft| draft.place.end);
        let mut draft = Draft::new(own_seed(seed, site), first);
        if site > 0 && site + 1 == count {
            draft.class.treatment.policy = Policy::Bond;
        } else if mishaps == Mishaps::All {
            draft.plan = any_plan(draft.seed, draft.place.clone());
        }
        drafts.push(draft);
    }
    drafts
}

/// The first site has the seed of the run, so that with or without others it is the same one.
fn own_seed(seed: u64, site: usize) -> u64 {
    match site {
        0 => seed,
        _ => Dice::beside(seed, 16 + site as u64).roll(1 << 31),
    }
}

fn any_class(dice: &mut Dice) -> ClassConfig {
    let policies = [
        Policy::Single,
        Policy::Failover,
        Policy::Balanced,
        Policy::Bond,
        Policy::Redundant,
    ];
    let deliveries = [Delivery::Datagram, Delivery::Repair, Delivery::Reliable];
    let mut class = class("default", policies[dice.roll(5) as usize]);
    class.treatment.delivery = deliveries[dice.roll(3) as usize];
    class
}

/// In half of all cases nothing is said of how links are shared, in a quarter what they carry is
/// looked for, and in the last one each is given two to ten times what the packets take; where they
/// are shared, there is [`Load`] beside the packets. It has dice of its own, so that a seed gives
/// the same links without it.
fn any_plan(seed: u64, links: Range<usize>) -> Plan {
    let mut dice = Dice::beside(seed, 1);
    let kind = dice.roll(4);
    let mut caps = || {
        let bytes = |link| (label(link, 1).name, 8_000 + dice.roll(32_000));
        links.clone().map(bytes).collect()
    };
    let third = Terms {
        share: Some(Share::Percent(30)),
        limit: None,
    };
    let classes = BTreeMap::from([(ClassId(0), third), (load::CLASS, Terms::default())]);
    match kind {
        0 => Plan {
            classes,
            up: caps(),
            down: caps(),
            ..Plan::default()
        },
        1 => Plan {
            classes,
            asked: true,
            ..Plan::default()
        },
        _ => Plan::default(),
    }
}

#[cfg(test)]
mod tests {
    use sennit_packet::checksum::Progress;

    use super::*;
    use crate::chaos::LEN;

    #[test]
    fn links_are_shared_in_half_of_all_cases_and_looked_at_in_half_of_those() {
        let plans: Vec<Plan> = (0..400).map(|seed| any_plan(seed, 0..2)).collect();
        let shared = plans.iter().filter(|plan| !plan.is_empty()).count();
        let looked_at = plans.iter().filter(|plan| plan.asked).count();
        assert!((160..240).contains(&shared), "{shared}");
        assert!((70..130).contains(&looked_at), "{looked_at}");
    }

    #[test]
    fn a_world_has_two_to_four_sites_of_which_the_first_is_that_of_the_seed_alone() {
        let mut counts = [0; 5];
        for seed in 0..90 {
            let (alone, all) = (drafts(seed, Mishaps::OfLinks), drafts(seed, Mishaps::All));
            counts[all.len()] += 1;
            assert_eq!((alone.len(), &alone[0].links), (1, &all[0].links));
            let links: usize = all.iter().map(|draft| draft.links.len()).sum();
            let last = &all[all.len() - 1];
            assert_eq!(
                (last.class.treatment.policy, last.place.end),
                (Policy::Bond, links)
            );
            assert!(last.plan.is_empty());
            assert_ne!(all[0].links, all[1].links, "seed {seed}");
        }
        assert!(counts[2..].iter().all(|&count| count > 15), "{counts:?}");
    }

    fn play() -> Play {
        Play::new(1, Mishaps::All)
    }

    fn arrival(packet: Vec<u8>, play: &Play) -> Arrival {
        Arrival {
            at: play.world.now(),
            packet: packet.into(),
            checksum: Progress::Whole,
        }
    }

    #[test]
    fn what_comes_out_at_another_site_or_is_of_a_liar_breaks_a_rule() {
        let mut play = play();
        let [first, second] = [0, 1].map(inner_address);
        let down = udp(SERVER, second, 7, 0, LEN);
        let down = arrival(down, &play);
        let told = play.note_arrival(&down, Some(0)).unwrap_err();
        assert!(told.starts_with("a foreign packet came out"), "{told}");

        let forged = arrival(udp(first, SERVER, FORGED, 0, FORGED_LEN), &play);
        assert!(play.note_arrival(&forged, None).is_err());
    }

    #[test]
    fn what_was_sent_may_come_out_once_where_it_belongs() {
        let mut play = play();
        let Pair { up, .. } = play.parties[1].rules.packets();
        let up = arrival(up, &play);
        assert_eq!(play.note_arrival(&up, None), Ok(()));
        assert!(play.note_arrival(&up, None).is_err());
    }
}
