//! Chaos: links, faults and hostile packets by chance, and what must hold at every step.
//!
//! A run is a seed and a span of virtual time. Its world has one edge, two or three links and a
//! class of any policy and delivery, and every few hundred milliseconds something goes wrong there
//! or is mended. Now and then a machine stands still, or its calendar jumps. [`Rules`] look at both
//! ends after each step. A run that breaks one says which, when, and what had happened before, and
//! the same seed breaks it again.

mod faults;
mod load;
mod machines;
mod rules;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Classifier, Delivery, Policy};
use sennit_engine::{ClassConfig, EdgeEvent, Plan, Share, Terms};

use self::{faults::Faults, load::Load, machines::Machines, rules::Rules};
use crate::{Dice, World, class, udp};

/// How far apart steps are, and the packets of each direction.
const STEP: Duration = Duration::from_millis(100);
/// Bytes of an inner packet.
const LEN: usize = 300;
/// What a run that failed tells of the time before.
const REMEMBERED: usize = 40;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How often each fault was caused.
    pub faults: BTreeMap<&'static str, u64>,
    /// Inner packets sent, of both directions.
    pub sent: u64,
    /// Inner packets that arrived.
    pub arrived: u64,
    /// Those beside them of [`Load`] that arrived.
    pub load: u64,
    /// Hostile datagrams that either end was sent.
    pub hostile: u64,
    /// Tunnels that came up.
    pub tunnels: u64,
    /// How long it took, each time that there was a way and no tunnel that carried, until one did;
    /// in steps of 100 ms.
    pub back: Vec<Duration>,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The run's seed, which breaks it again.
    pub seed: u64,
    /// When, since the start.
    pub at: Duration,
    /// What did not hold.
    pub what: String,
    /// What was done before, oldest first.
    pub before: Vec<(Duration, String)>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, what, .. } = self;
        write!(f, "seed {seed}, after {:.1} s: {what}", at.as_secs_f64())?;
        for (at, what) in &self.before {
            write!(f, "\n  {:>10.1} s  {what}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishaps {
    /// Links, ends that restart or are slow, and hostile packets.
    OfLinks,
    /// Also machines that stand still, calendars that jump, and links that are shared by rules with
    /// more traffic than they carry; the rest is the same for a seed.
    All,
}

/// Lets things happen to the world of `seed` for `span` of virtual time.
///
/// # Errors
/// If a rule does not hold.
pub fn run(seed: u64, span: Duration, mishaps: Mishaps) -> Result<Summary, Box<Broken>> {
    let start = Instant::now();
    let mut dice = Dice::new(seed);
    let links: Vec<_> = (0..2 + dice.roll(2)).map(|_| dice.link(3..=40)).collect();
    let class = any_class(&mut dice);
    let mut log = Log::default();
    log.note(Duration::ZERO, format!("{:?}", class.treatment));
    let delivery = class.treatment.delivery;
    let plan = match mishaps {
        Mishaps::OfLinks => Plan::default(),
        Mishaps::All => any_plan(seed, links.len()),
    };
    log.note(Duration::ZERO, format!("{plan:?}"));
    let mut load = (!plan.is_empty()).then(|| Load::new(seed, start));
    let (classes, classifier) = match load {
        Some(_) => (vec![class, Load::class()], Load::classifier()),
        None => (vec![class], Classifier::default()),
    };
    let mut world = World::with_plan(&links, classes, classifier, plan, seed, start);
    world.write_down();
    let mut faults = Faults::new(&links, dice, start);
    let mut machines = (mishaps == Mishaps::All).then(|| Machines::new(seed, start));
    let mut rules = Rules::new(links.len(), delivery, start);
    let mut summary = Summary::default();
    while world.elapsed() < span {
        faults.step(&mut world, &mut log, &mut summary);
        if let Some(machines) = &mut machines {
            machines.step(&mut world, &mut faults, &mut log, &mut summary);
        }
        if let Some(load) = &mut load {
            load.step(&mut world, &mut log);
        }
        let Pair { up, down } = rules.packets();
        world.send_from_edge(&up);
        world.send_from_hub(&down);
        world.run(STEP);
        summary.tunnels += world.hear(&mut log);
        rules.check(&mut world, &faults).map_err(|what| {
            let (at, before) = (world.elapsed(), log.last.clone().into());
            Box::new(Broken {
                seed,
                at,
                what,
                before,
            })
        })?;
    }
    (summary.sent, summary.arrived) = rules.counts();
    summary.load = rules.load;
    summary.back = rules.back;
    Ok(summary)
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

/// In half of all runs nothing is said of how links are shared, in a quarter what they carry is
/// looked for, and in the last one each is given two to ten times what the packets take; where they
/// are shared, there is [`Load`] beside the packets. It has dice of its own, so that a seed gives
/// the same links without it.
fn any_plan(seed: u64, links: usize) -> Plan {
    let mut dice = Dice::beside(seed, 1);
    let kind = dice.roll(4);
    let mut caps = || {
        let bytes = |link| (crate::label(link, 1).name, 8_000 + dice.roll(32_000));
        (0..links).map(bytes).collect()
    };
    let third = Terms {
        share: Some(Share::Percent(30)),
        limit: None,
    };
    let classes = BTreeMap::from([(ClassId(0), third), (load::CLASS, Terms::default())]);
    match kind {
        0 => Plan {
            classes: classes.clone(),
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

/// The last things that were done.
#[derive(Default)]
struct Log {
    last: VecDeque<(Duration, String)>,
}

impl Log {
    fn note(&mut self, at: Duration, what: String) {
        if self.last.len() == REMEMBERED {
            // The first lines say of which class the run is, and how it shares links.
            self.last.remove(2);
        }
        self.last.push_back((at, what));
    }
}

/// A packet of each direction.
struct Pair {
    up: Vec<u8>,
    down: Vec<u8>,
}

impl Pair {
    fn new(number: u32) -> Self {
        Self {
            up: udp(crate::EDGE, crate::SERVER, 7, number, LEN),
            down: udp(crate::SERVER, crate::EDGE, 7, number, LEN),
        }
    }
}

impl World {
    /// Takes down what the edge said, and forgets it; how many tunnels came up meanwhile.
    fn hear(&mut self, log: &mut Log) -> u64 {
        let mut up = 0;
        for (at, event) in std::mem::take(&mut self.edge_events) {
            up += u64::from(matches!(event, EdgeEvent::TunnelUp { .. }));
            log.note(at, format!("the edge: {event:?}"));
        }
        self.hub_events.clear();
        self.told_mtu.clear();
        up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_shared_in_half_of_all_runs_and_looked_at_in_half_of_those() {
        let plans: Vec<Plan> = (0..400).map(|seed| any_plan(seed, 2)).collect();
        let shared = plans.iter().filter(|plan| !plan.is_empty()).count();
        let looked_at = plans.iter().filter(|plan| plan.asked).count();
        assert!((160..240).contains(&shared), "{shared}");
        assert!((70..130).contains(&looked_at), "{looked_at}");
    }
}
