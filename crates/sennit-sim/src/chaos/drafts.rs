//! What sites are like at first, and what their configs say then and later.

use std::{collections::BTreeMap, ops::Range, time::Instant};

use sennit_core::{ClassId, Classifier, Congestion, Delivery, Policy, Rule};
use sennit_engine::{ClassConfig, EdgeConfig, Fec, Plan, Share, Sharing, Terms, Treatment};
use sennit_netem::Bitrate;

use super::{
    Mishaps,
    load::{self, Load},
};
use crate::{
    Dice, LinkSpec, World, class,
    setup::{edge_config, hub_address, label, other_address},
};

/// The class that takes what no other does.
const DEFAULT: ClassId = ClassId(0);
/// The class that a reload brings and another one takes away.
pub(super) const GUEST: &str = "guest";
/// Its number.
const GUEST_ID: ClassId = ClassId(2);
/// Port of the packets that it takes over while it is there.
pub(super) const ROAMING: u16 = 11;
/// Caps of a link that leave room for all classes but the load, and for whatever protects packets.
const WIDE: Bitrate = Bitrate::bytes_per_second(20_000);

/// What the config of a site says.
#[derive(Clone)]
pub(super) struct SiteConfig {
    /// Of the packets that are judged.
    pub(super) treatment: Treatment,
    pub(super) plan: Plan,
    /// It has the class of [`Load`].
    pub(super) has_load: bool,
    /// It has the class that comes and goes.
    pub(super) has_guest: bool,
    /// It has the hub at its other address.
    pub(super) elsewhere: bool,
    /// Since when it says so.
    pub(super) since: Instant,
}

impl SiteConfig {
    fn classes(&self) -> BTreeMap<ClassId, ClassConfig> {
        let judged = ClassConfig {
            treatment: self.treatment,
            ..class("default", Policy::Bond)
        };
        let load = self.has_load.then(|| (load::CLASS, Load::class()));
        let guest = class(GUEST, Policy::Redundant);
        let guest = self.has_guest.then_some((GUEST_ID, guest));
        [(DEFAULT, judged)]
            .into_iter()
            .chain(load)
            .chain(guest)
            .collect()
    }

    fn classifier(&self) -> Classifier {
        let of_port = |port: u16| Rule {
            port: Some(port..=port),
            ..Rule::default()
        };
        let load = (self.has_load, (of_port(load::PORT), load::CLASS));
        let guest = (self.has_guest, (of_port(ROAMING), GUEST_ID));
        let rules = [load, guest].into_iter().filter(|(is_there, _)| *is_there);
        Classifier::new(rules.map(|(_, rule)| rule).collect(), DEFAULT)
    }

    /// How its classes share the links.
    fn sharing(&self) -> Plan {
        let mut plan = self.plan.clone();
        if plan.is_empty() {
            return plan;
        }
        if !self.has_load {
            plan.classes.remove(&load::CLASS);
        }
        if self.has_guest {
            plan.classes.insert(GUEST_ID, Terms::default());
        }
        plan
    }

    /// Whether what a site has to send comes out as fast as over its best link.
    pub(super) fn bonds(&self) -> bool {
        let Treatment {
            policy,
            congestion,
            fec,
            ..
        } = self.treatment;
        let is_usual = congestion == Congestion::Auto && !matches!(fec, Fec::Fixed(_));
        policy == Policy::Bond && is_usual && self.plan.is_empty() && !self.has_load
    }

    /// Whether caps leave room for all packets but those of the load.
    pub(super) fn is_wide(&self) -> bool {
        let mut caps = self.plan.up.values().chain(self.plan.down.values());
        caps.all(|&cap| cap >= WIDE)
    }

    /// The site that the world looks at goes on with this in place of `before`, as after a reload.
    pub(super) fn apply(&self, before: &Self, world: &mut World) {
        world.sort_by(self.classifier());
        world.config.classes = self.classes();
        world.config.hubs = vec![if self.elsewhere {
            other_address()
        } else {
            hub_address()
        }];
        let plan = self.sharing();
        if plan == before.sharing() {
            world.reload(|_| ());
        } else {
            world.share(plan);
        }
    }
}

/// What a site is like.
pub(super) struct Draft {
    pub(super) seed: u64,
    pub(super) links: Vec<LinkSpec>,
    /// The numbers of its links among those of all sites.
    pub(super) place: Range<usize>,
    pub(super) treatment: Treatment,
    pub(super) plan: Plan,
    /// What more is drawn for it.
    pub(super) dice: Dice,
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
            treatment: any_treatment(&mut dice),
            plan: Plan::default(),
            dice,
        }
    }

    /// What its config says at first.
    pub(super) fn config(&self, now: Instant) -> SiteConfig {
        SiteConfig {
            treatment: self.treatment,
            plan: self.plan.clone(),
            has_load: !self.plan.is_empty(),
            has_guest: false,
            elsewhere: false,
            since: now,
        }
    }

    /// An edge with that.
    pub(super) fn edge(&self, now: Instant) -> EdgeConfig {
        let config = self.config(now);
        EdgeConfig {
            classes: config.classes(),
            sharing: Sharing::upward(config.sharing(), None, now),
            ..edge_config(Vec::new(), config.classifier())
        }
    }
}

/// One site, or two to four; the last of several bonds and shares its links by no rule.
pub(super) fn drafts(seed: u64, mishaps: Mishaps) -> Vec<Draft> {
    let count = match mishaps {
        Mishaps::OfLinks => 1,
        Mishaps::All => 2 + Dice::beside(seed, 3).roll(3) as usize,
    };
    let mut drafts: Vec<Draft> = Vec::new();
    for site in 0..count {
        let first = drafts.last().map_or(0, |draft| draft.place.end);
        let mut draft = Draft::new(own_seed(seed, site), first);
        if site > 0 && site + 1 == count {
            draft.treatment.policy = Policy::Bond;
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

fn any_treatment(dice: &mut Dice) -> Treatment {
    Treatment {
        policy: Policy::ALL[dice.roll(5) as usize],
        delivery: Delivery::ALL[dice.roll(3) as usize],
        ..Treatment::default()
    }
}

/// In half of all cases nothing is said of how links are shared, in a quarter what they carry is
/// looked for, and in the last one each is given two to ten times what the packets take; where they
/// are shared, there is [`Load`] beside the packets. It has dice of its own, so that a seed gives
/// the same links without it.
fn any_plan(seed: u64, links: Range<usize>) -> Plan {
    let mut dice = Dice::beside(seed, 1);
    let third = Terms {
        share: Some(Share::Percent(30)),
        limit: None,
    };
    let classes = BTreeMap::from([(DEFAULT, third), (load::CLASS, Terms::default())]);
    match dice.roll(4) {
        0 => capped(classes, links, &mut dice),
        1 => looked_for(classes),
        _ => Plan::default(),
    }
}

/// Another plan than that of a draft: shares and limits of all sizes.
pub(super) fn other_plan(links: Range<usize>, dice: &mut Dice) -> Plan {
    let share = Share::Percent(20 + dice.roll(31) as u8);
    let limit = Bitrate::bytes_per_second(40_000 + dice.roll(200_000));
    let limit = (dice.roll(2) == 0).then_some(limit);
    let terms = |share, limit| Terms { share, limit };
    let classes = BTreeMap::from([
        (DEFAULT, terms(Some(share), None)),
        (load::CLASS, terms(None, limit)),
    ]);
    match dice.roll(2) {
        0 => capped(classes, links, dice),
        _ => looked_for(classes),
    }
}

fn capped(classes: BTreeMap<ClassId, Terms>, links: Range<usize>, dice: &mut Dice) -> Plan {
    let mut caps = || {
        let cap = |link| {
            let rate = Bitrate::bytes_per_second(8_000 + dice.roll(32_000));
            (label(link, 1).name, rate)
        };
        links.clone().map(cap).collect()
    };
    Plan {
        up: caps(),
        down: caps(),
        classes,
        ..Plan::default()
    }
}

fn looked_for(classes: BTreeMap<ClassId, Terms>) -> Plan {
    Plan {
        classes,
        asked: true,
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                (last.treatment.policy, last.place.end),
                (Policy::Bond, links)
            );
            assert!(last.plan.is_empty());
            assert_ne!(all[0].links, all[1].links, "seed {seed}");
        }
        assert!(counts[2..].iter().all(|&count| count > 15), "{counts:?}");
    }

    #[test]
    fn a_site_bonds_while_its_class_does_and_nobody_shares_its_links() {
        let mut config = drafts(1, Mishaps::OfLinks)[0].config(Instant::now());
        config.treatment.policy = Policy::Bond;
        assert!(config.bonds());
        config.treatment.congestion = Congestion::Cubic;
        assert!(!config.bonds());
        config.treatment.congestion = Congestion::Auto;
        config.plan = other_plan(0..2, &mut Dice::new(1));
        assert!(!config.bonds());
    }
}
