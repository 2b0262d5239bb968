//! A run of chaos: its sites, and what happens there in each step.

use std::{net::Ipv4Addr, ops::Range, time::Instant};

use sennit_core::Delivery;
use sennit_engine::facts::TunnelStatus;

use super::{
    Log, Mishaps, STEP, Summary,
    drafts::{Draft, SiteConfig, drafts},
    faults::Faults,
    load::{self, Load},
    machines::{Machine, Mishap},
    offer::{self, Offer},
    reloads::{BEFORE, Reloads},
    rules::{CONNECTIONS, Rules, THERE_AFTER},
};
use crate::{
    Arrival, Authority, Dice, SERVER, World,
    setup::{inner_address, other_address, site_name},
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
/// Packets after which keys are renewed, of which a seed has one: a few minutes, or some seconds.
const RENEWED_AFTER: [u64; 3] = [2000, 300, 40];

/// The address at this place of a packet's header (RFC 791 §3.1).
fn address(head: &[u8; 24], place: usize) -> Ipv4Addr {
    Ipv4Addr::new(
        head[place],
        head[place + 1],
        head[place + 2],
        head[place + 3],
    )
}

/// A site, what goes wrong there, and what must hold.
struct Party {
    config: SiteConfig,
    /// The numbers of its links among those of all sites.
    links: Range<usize>,
    faults: Faults,
    load: Option<Load>,
    rules: Rules,
}

/// A world and all that happens there.
pub(super) struct Play {
    pub(super) world: World,
    pub(super) log: Log,
    hub: Machine,
    parties: Vec<Party>,
    mishap: Option<Mishap>,
    reloads: Reloads,
    offer: Offer,
    steps: u64,
    summary: Summary,
}

impl Play {
    pub(super) fn new(seed: u64, mishaps: Mishaps) -> Self {
        let start = Instant::now();
        let drafts = drafts(seed, mishaps);
        let first = &drafts[0];
        let authority = Authority::new();
        let world = World::unplugged(&first.links, first.edge(start), authority, seed, start);
        let packets = RENEWED_AFTER[Dice::beside(seed, 6).roll(3) as usize];
        let mut world = world.renewing(packets).plug_in();
        world.more_hubs = vec![other_address()];
        for draft in &drafts[1..] {
            world.add_site(&draft.links, draft.edge(start));
        }
        let mut log = Log::default();
        log.begin(format!("keys are renewed after {packets} packets"));
        for (site, draft) in drafts.iter().enumerate() {
            world.look_at(site);
            world.write_down();
            let Draft {
                treatment, plan, ..
            } = draft;
            log.begin(format!("site {site}: {treatment:?}, {plan:?}"));
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
            reloads: Reloads::new(seed, start),
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
        self.invite();
        self.reload();
        self.begin_offer();
        self.send();
        match self.offer.site() {
            Some(_) => self.offer.run(&mut self.world),
            None => self.world.run(STEP),
        }
        self.steps += 1;
        self.log.site = None;
        self.world.hear_hub(&mut self.log);
        for site in 0..self.parties.len() {
            self.look_at(site);
            self.world.hear(&mut self.log, &mut self.summary)?;
        }
        self.sort_out()?;
        self.check()
    }

    /// Looks at a site, of which the log tells from now on.
    fn look_at(&mut self, site: usize) {
        self.world.look_at(site);
        self.log.site = (self.parties.len() > 1).then_some(site);
    }

    /// The site at which nothing is broken or mended: it has to carry as much as its best link, or
    /// may lose nothing.
    fn held(&self) -> Option<usize> {
        self.offer.site().or(self.reloads.held())
    }

    /// Breaks and mends what is due, but not where a site is held.
    fn disturb(&mut self) {
        self.log.site = None;
        self.world.recover(true, &mut self.hub, &mut self.log);
        let held = self.held();
        for site in 0..self.parties.len() {
            self.look_at(site);
            let faults = &mut self.parties[site].faults;
            let disturbs_it = Some(site) == held || (held.is_some() && faults.disturbs_hub());
            if !disturbs_it {
                let (log, summary) = (&mut self.log, &mut self.summary);
                faults.step(&mut self.world, &mut self.hub, log, summary);
            }
        }
        if held.is_none()
            && let Some(mishap) = &mut self.mishap
        {
            self.log.site = None;
            let edges = self.parties.iter_mut().map(|it| &mut it.faults.edge);
            let (log, summary) = (&mut self.log, &mut self.summary);
            mishap.step(&mut self.world, &mut self.hub, edges, log, summary);
        }
    }

    /// The site whose config is to be reloaded now, if one is.
    fn site_to_reload(&mut self) -> Option<usize> {
        let (now, hub, count) = (self.world.now(), &self.hub, self.parties.len());
        let is_busy = self.offer.site().is_some() || self.reloads.is_watching();
        if self.mishap.is_none() || is_busy {
            return None;
        }
        if let Some((site, until)) = self.reloads.waits() {
            let is_time = now >= until || self.parties[site].calm(hub, now).is_some();
            return is_time.then_some(site);
        }
        if !self.reloads.is_due(now) {
            return None;
        }
        let calm = (0..count).filter(|&site| self.parties[site].may_be_calm(hub, now));
        let calm: Vec<usize> = calm.collect();
        self.reloads.site(count, &calm, now)
    }

    /// The site that was revoked joins anew, once its time has come and both machines run.
    fn invite(&mut self) {
        let now = self.world.now();
        let Some(site) = self.reloads.to_invite(now) else {
            return;
        };
        self.look_at(site);
        let faults = &mut self.parties[site].faults;
        if faults.edge.run_since().max(self.hub.run_since()) > now {
            return;
        }
        faults.invite(&mut self.world);
        self.reloads.invited();
        self.summary.invited += 1;
        self.log.note(self.world.elapsed(), "joins anew".into());
    }

    /// Has a site or the hub go on with another config, if it is time.
    fn reload(&mut self) {
        let Some(site) = self.site_to_reload() else {
            return;
        };
        self.look_at(site);
        let (now, may_share) = (self.world.now(), site + 1 < self.parties.len());
        let party = &mut self.parties[site];
        if party.faults.edge.run_since() > now {
            return self.reloads.put_off(now);
        }
        let (calm, before) = (party.calm(&self.hub, now), party.config.clone());
        let place = (party.links.clone(), may_share, self.hub.run_since() <= now);
        let Party { config, faults, .. } = party;
        let reload = self
            .reloads
            .reload(site, place, config, faults, &mut self.world);
        let is_reliable = |it: &SiteConfig| it.treatment.delivery == Delivery::Reliable;
        let (was, is) = (is_reliable(&before), is_reliable(config));
        if was && !is {
            party.rules.let_age(now);
        }
        let is_owed = was && is && before.since + THERE_AFTER <= now;
        if let Some(lossless) = calm
            && (lossless || is_owed)
        {
            self.reloads.watch(site, &reload, lossless, now);
        }
        self.summary.reloads += 1;
        let what = format!("reload, {}: {}", reload.name, reload.what);
        self.log.note(self.world.elapsed(), what);
    }

    /// A site that bonds has more to send than its best link carries, if it is time.
    fn begin_offer(&mut self) {
        let now = self.world.now();
        let unbound = self.reloads.unbound_since();
        let is_unbound = unbound.is_some_and(|at| at + offer::STEADY <= now);
        if !self.offer.is_due(now) || self.held().is_some() || !is_unbound {
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
            if let Some(load) = &mut party.load
                && self.reloads.held() != Some(site)
            {
                load.step(&mut self.world, &mut self.log);
            }
            for pair in party.rules.packets(self.steps) {
                self.world.enter(true, &pair.up);
                self.world.enter(false, &pair.down);
            }
            self.world.settle();
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
        if at.is_none() && self.reloads.cut_off(arrival.at) == Some(site) {
            return Err(format!(
                "a packet of site {site} came out, which is revoked"
            ));
        }
        match (port, at) {
            (load::PORT, _) => self.summary.load += 1,
            (offer::PORT, _) => self.offer.note_arrival(site, at.is_none(), packet)?,
            (_, at) => {
                let of = (&party.config, &party.faults, &self.hub);
                party
                    .rules
                    .note_arrival(arrival, (at.is_none(), port), of)?;
            }
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let at_hub: Vec<TunnelStatus> = self.world.hub.status();
        let count = self.world.hub.tunnels();
        if count > CONNECTIONS * self.parties.len() {
            return Err(format!("hub: {count} connections"));
        }
        if let Some(site) = self.reloads.cut_off(self.world.now()) {
            let name = Some(site_name(site));
            if at_hub.iter().any(|tunnel| tunnel.site == name) {
                return Err(format!("site {site} has a tunnel, and is revoked"));
            }
        }
        let renewed = at_hub.iter().map(|tunnel| tunnel.key_updates).max();
        self.summary.renewed = self.summary.renewed.max(renewed.unwrap_or_default());
        for (site, party) in self.parties.iter_mut().enumerate() {
            self.world.look_at(site);
            let Party { rules, faults, .. } = party;
            rules
                .check(&mut self.world, &at_hub, faults, &self.hub)
                .map_err(|what| format!("site {site}: {what}"))?;
        }
        if let Some(watch) = self.reloads.take_watch(self.world.now()) {
            self.world.look_at(watch.site);
            let rules = &self.parties[watch.site].rules;
            rules
                .check_reload(&watch, &mut self.world, &at_hub)
                .map_err(|what| format!("site {}: reload, {}: {what}", watch.site, watch.what))?;
            self.summary.watched += 1;
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
        let config = draft.config(start);
        Self {
            load: config.has_load.then(|| Load::new(edge, draft.seed, start)),
            config,
            rules: Rules::new(site, edge, all, start),
            faults: Faults::new(&draft.links, draft.place.start, draft.dice, start),
            links: draft.place,
        }
    }

    /// Bytes that its best link carries in a step, if it bonds, nobody holds it up, and all that
    /// has been so for a time.
    fn best(&self, hub: &Machine, now: Instant) -> Option<f64> {
        let since = now.checked_sub(offer::STEADY)?;
        let bonds = self.config.bonds() && self.config.since <= since;
        if !(bonds && self.is_at_ease(since, hub)) {
            return None;
        }
        self.faults
            .steady(since)
            .map(offer::carried)
            .reduce(f64::max)
    }

    /// Whether nobody holds it up, and there has been a way since then.
    fn is_at_ease(&self, since: Instant, hub: &Machine) -> bool {
        let is_quick = self.faults.edge.is_quick() && hub.is_quick();
        is_quick && self.faults.usable_since(hub).is_some_and(|at| at <= since)
    }

    /// Whether its links lose nothing, if none has been disturbed for a time, and there is room on
    /// all of them: what is lost there now is lost by nobody else.
    fn calm(&self, hub: &Machine, now: Instant) -> Option<bool> {
        let since = now.checked_sub(THERE_AFTER)?;
        let is_there = self.rules.there_since().is_some_and(|at| at <= since);
        let is_steady = self.faults.are_all_steady(since, false);
        let is_calm = is_there && is_steady && self.is_free(now) && self.is_at_ease(since, hub);
        // What stands still already is no reload's fault.
        let flows = is_calm && self.rules.is_complete([since, now - BEFORE]);
        flows.then(|| self.faults.are_all_steady(since, true))
    }

    /// Whether a calm comes in which something can be told if nobody disturbs it from now on.
    fn may_be_calm(&self, hub: &Machine, now: Instant) -> bool {
        let is_reliable = self.config.treatment.delivery == Delivery::Reliable;
        let is_steady = self.faults.are_all_steady(now, !is_reliable);
        is_steady && self.is_free(now) && self.is_at_ease(now, hub)
    }

    /// Whether there is room on its links.
    fn is_free(&self, now: Instant) -> bool {
        let is_over = |load: &Load| load.is_over(now);
        self.config.is_wide() && self.load.as_ref().is_none_or(is_over)
    }
}

#[cfg(test)]
mod tests {
    use sennit_packet::checksum::Progress;

    use super::*;
    use crate::chaos::rules::Pair;

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
        let down = udp(SERVER, second, 7, 0, 300);
        let down = arrival(down, &play);
        let told = play.note_arrival(&down, Some(0)).unwrap_err();
        assert!(told.starts_with("a foreign packet came out"), "{told}");

        let forged = arrival(udp(first, SERVER, FORGED, 0, FORGED_LEN), &play);
        assert!(play.note_arrival(&forged, None).is_err());
    }

    #[test]
    fn what_was_sent_may_come_out_once_where_it_belongs() {
        let mut play = play();
        let Pair { up, .. } = play.parties[1].rules.packets(1).remove(0);
        let up = arrival(up, &play);
        assert_eq!(play.note_arrival(&up, None), Ok(()));
        assert!(play.note_arrival(&up, None).is_err());
    }

    #[test]
    fn what_comes_out_of_a_site_that_is_revoked_breaks_a_rule_after_a_second() {
        let mut play = play();
        play.world.look_at(1);
        let faults = &mut play.parties[1].faults;
        play.reloads.revoke(1, faults, &mut play.world);
        let [first, second] = [1, 2].map(|step| play.parties[1].rules.packets(step).remove(0).up);
        let first = arrival(first, &play);
        assert_eq!(play.note_arrival(&first, None), Ok(()));

        let mut second = arrival(second, &play);
        second.at += STEP * 10;
        let told = play.note_arrival(&second, None).unwrap_err();
        assert!(told.contains("which is revoked"), "{told}");
    }
}
