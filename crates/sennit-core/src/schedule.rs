//! Which path takes the next packet.
//!
//! The scheduler is pulled: it is asked only when a packet waits and some path has congestion
//! window and pacing credit to spare, so it never has to guess what the congestion controllers will
//! allow. Paths of a lower tier are preferred; what happens within a tier is the policy:
//!
//! - `single`, `failover`: the first path, and another only if that one fails.
//! - `balanced`: a flow sticks to one path; flows are spread by weight.
//! - `bond`: earliest arrival. The path with the least delay takes what it can; a slower one helps
//!   once packets would wait long for the faster ones, at the latest when they would wait longer
//!   than the slower one is slower ([`Spill`]). It takes packets ahead of their turn, so that they
//!   arrive in their turn ([`Scheduler::start`]). Small packets by themselves avoid a crowded path.
//!   Paths that are not known yet, or bring next to nothing, take no part ([`Worth`]). Where a path
//!   that is far behind carries much more than all that are faster, it leads: transfers go there
//!   from their first packet, and the faster paths take what it has no room for
//!   ([`Scheduler::find_leader`]).
//! - `redundant`: the two paths with the least delay, or as many as the class says, each take a
//!   copy.

mod path;
mod spill;

use std::time::{Duration, Instant};

pub use self::{
    path::{Choice, PathSet, PathView, Worth, in_full_use, of_best_tier},
    spill::{Sent, Striping},
};
use self::{
    path::{best_tier, in_order, of_tier, of_worth, one_way},
    spill::{MOST_STANDING, Spill},
};
use crate::{Policy, health::Copies, queue::Start};

/// Chooses paths by one policy.
#[derive(Clone, Debug)]
pub struct Scheduler {
    policy: Policy,
    /// Of each packet, under `redundant`.
    copies: usize,
    spill: Spill,
}

impl Scheduler {
    /// A scheduler for a class; `redundant` sends so many copies.
    pub fn new(policy: Policy, copies: u8) -> Self {
        Self {
            policy,
            copies: copies.into(),
            spill: Spill::default(),
        }
    }

    /// The policy it follows.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Decides what the paths are good for.
    ///
    /// A path that delivers [`SLIGHT`] times less than another adds no more than that, and what it
    /// takes too early or too late holds up all the rest. Of a path that hardly anything has
    /// arrived on not even so much is known, and one that starts is about to overflow; so what
    /// these carry must not be missed. While none is known, the one that seems to deliver most is
    /// taken.
    pub fn assess(&self, paths: &mut [PathView]) {
        for index in 0..paths.len() {
            paths[index].worth = match self.policy {
                Policy::Bond => worth(paths, index),
                _ => Worth::Full,
            };
        }
    }

    /// Decides which path leads, if any: the farthest that is [`LEAD_BEHIND`] behind the nearest
    /// one and carries [`LEAD_RATE`] times as much as all that are faster, together.
    ///
    /// A sender that fills a narrow path of little delay stops doubling its window there, and then
    /// needs a quarter of a minute to grow into a wide path of much delay. So a transfer must see
    /// the wide path's delay from its start. All its packets are as late as those on the leader
    /// anyway, because their order is restored; what the faster paths add costs no more.
    pub fn find_leader(&self, paths: &mut [PathView]) {
        let found = match self.policy {
            Policy::Bond => leader(paths),
            Policy::Single | Policy::Failover | Policy::Balanced | Policy::Redundant => None,
        };
        for (index, path) in paths.iter_mut().enumerate() {
            path.leads = found == Some(index);
            if path.leads {
                path.worth = Worth::Full;
            }
        }
    }

    /// Where a packet of `flow` goes, with `backlog` bytes waiting that delay it; `fills` if it is
    /// one of a transfer, which goes where a path leads.
    pub fn choose(&self, paths: &[PathView], flow: u32, backlog: usize, fills: bool) -> Choice {
        let Some(tier) = best_tier(paths) else {
            return Choice::Wait;
        };
        match self.policy {
            Policy::Single | Policy::Failover => first(paths, tier),
            Policy::Balanced => pinned(paths, tier, flow),
            Policy::Bond => earliest(paths, tier, backlog, base(paths, fills), &self.spill),
            Policy::Redundant => fastest(paths, self.copies),
        }
    }

    /// The paths that carry a packet for which this was chosen: with copies, those that are not
    /// known yet. What is small and comes alone tells nothing of a path, and copies of
    /// acknowledgements crowd narrow ones. While the chosen one may have died in an idle time, all
    /// of its tier carry a copy. One that returns after it fell again and again gets [`Copies`].
    pub fn spread(&self, paths: &[PathView], choice: Choice, backlog: usize) -> PathSet {
        let chosen = PathSet::from(choice);
        let Choice::One(index) = choice else {
            return chosen;
        };
        if !paths[index].alive {
            return of_tier(paths, paths[index].tier)
                .filter(|(_, p)| p.room > 0)
                .fold(chosen, |set, (other, _)| set.with(other));
        }
        let chosen = proving(paths, paths[index].tier, backlog).fold(chosen, PathSet::with);
        if self.policy != Policy::Bond || backlog <= ALONE {
            return chosen;
        }
        of_worth(paths, paths[index].tier, Worth::Unknown)
            .filter(|(_, p)| p.room > 0)
            .fold(chosen, |set, (unknown, _)| set.with(unknown))
    }

    /// Which packet of a flow takes this choice. On a slower path it is one that arrives no earlier
    /// than those ahead of it do on the faster ones; it would otherwise hold up all that are sent
    /// after it.
    pub fn start(&self, paths: &[PathView], choice: Choice, fills: bool) -> Start {
        let faster = |index| Faster::than(paths, &paths[index], base(paths, fills));
        match choice {
            Choice::Wait => Start::Nowhere,
            Choice::One(index) if self.policy == Policy::Bond => faster(index)
                .map_or(Start::Head, |faster| {
                    Start::Behind(faster.sends_within(faster.lead.max(faster.caution)))
                }),
            Choice::One(_) | Choice::Copies(_) => Start::Head,
        }
    }

    /// How long after a packet that takes this path the last of `ahead` bytes leaves that it
    /// overtook, at the latest.
    pub fn turn_after(paths: &[PathView], index: usize, ahead: usize) -> Duration {
        let path = &paths[index];
        if ahead == 0 {
            return Duration::ZERO;
        }
        match Faster::than(paths, path, Duration::ZERO) {
            Some(faster) => time_for(ahead, faster.rate).max(faster.lead),
            None => time_for(ahead, path.delivers),
        }
    }

    /// Whether `backlog` bytes of some flow would go on this path if it had room and no other had.
    pub fn wants(&self, paths: &[PathView], index: usize, backlog: usize) -> bool {
        let path = &paths[index];
        if self.policy != Policy::Bond || !path.usable || Some(path.tier) != best_tier(paths) {
            return path.usable;
        }
        is_due(paths, path, backlog, base(paths, true), &self.spill)
    }

    /// How much longer than usual packets must be allowed to stand, because those that take a
    /// slower path leave ahead of them.
    pub fn standing(&self, paths: &[PathView]) -> Duration {
        if self.policy != Policy::Bond {
            return Duration::ZERO;
        }
        let base = base(paths, true);
        let delays = || in_full_use(paths).map(|path| in_order(path).max(base));
        let (Some(least), Some(most)) = (delays().min(), delays().max()) else {
            return Duration::ZERO;
        };
        // Acknowledgements of all paths come back by the same way, so paths differ by the whole
        // difference of their round trips; waiting for half of it is what pays
        // (docs/decisions/0006).
        (2 * (most - least)).min(MOST_STANDING)
    }

    /// Learns from what was sent since the last call.
    pub fn handle_sent(&mut self, paths: &[PathView], sent: Sent, now: Instant) {
        let slowest = in_full_use(paths).map(|p| p.srtt).max().unwrap_or_default();
        let fastest = in_full_use(paths)
            .min_by_key(|p| in_order(p))
            .map_or(0, |p| p.delivers);
        self.spill.handle_sent(sent, fastest, slowest, now);
    }

    /// What striping has brought and cost of late.
    pub fn striping(&self) -> Striping {
        Striping {
            wait: self.spill.threshold,
            gained: self.spill.gained as u64,
            missed: self.spill.missed as u64,
        }
    }

    /// Whether a path is slower than another that may be used.
    pub fn is_second_choice(paths: &[PathView], index: usize) -> bool {
        Faster::than(paths, &paths[index], Duration::ZERO).is_some()
    }

    /// The round trip of the path by which a transfer measures its own: the one that leads, or else
    /// the fastest.
    pub fn round_trip(paths: &[PathView]) -> Option<Duration> {
        let leader = in_full_use(paths).find(|path| path.leads);
        let fastest = || in_full_use(paths).map(|path| path.srtt).min();
        leader.map(|path| path.srtt).or_else(fastest)
    }

    /// Whether paths of the best tier differ so much in delay, whatever stands on them, that one
    /// may have to lead.
    pub fn may_have_leader(&self, paths: &[PathView]) -> bool {
        let delays = || of_best_tier(paths).map(|path| path.least / 2);
        let (Some(least), Some(most)) = (delays().min(), delays().max()) else {
            return false;
        };
        self.policy == Policy::Bond && most - least > LEAD_BEHIND
    }
}

/// The paths of a tier that are faster than one of it, together.
#[derive(Clone, Copy, Debug)]
struct Faster {
    /// How much sooner a packet can be used, at most.
    lead: Duration,
    /// How long packets wait for these at least.
    caution: Duration,
    /// Bytes per second that they deliver.
    rate: u64,
    /// One of them may carry much more.
    unproven: bool,
}

impl Faster {
    /// Nothing is needed before `base`: packets are as late as that on any path.
    fn than(paths: &[PathView], path: &PathView, base: Duration) -> Option<Self> {
        let limit = in_order(path);
        if paths.len() == 1 || limit <= base {
            return None;
        }
        let faster = of_worth(paths, path.tier, Worth::Full)
            .filter(|(_, p)| in_order(p) < limit)
            .map(|(_, p)| Self {
                lead: limit - in_order(p).max(base),
                caution: Duration::ZERO,
                rate: p.delivers,
                unproven: p.unproven,
            })
            .reduce(|a, b| Self {
                lead: a.lead.max(b.lead),
                rate: a.rate + b.rate,
                unproven: a.unproven || b.unproven,
                ..a
            })?;
        let gain = path.delivers as f64 / faster.rate.max(1) as f64;
        let risk = (1.0 - gain / GOOD_GAIN).max(0.0);
        Some(Self {
            // Acknowledgements of all paths come back by the same way, so packets lead by twice
            // that.
            caution: (2 * faster.lead).mul_f64(risk),
            ..faster
        })
    }

    fn sends_within(&self, time: Duration) -> usize {
        (self.rate as f64 * time.as_secs_f64()) as usize
    }
}

fn time_for(bytes: usize, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

/// The paths that are not trusted and get a copy of a packet before which `backlog` bytes wait.
fn proving(paths: &[PathView], tier: u8, backlog: usize) -> impl Iterator<Item = usize> {
    let gets = move |path: &PathView| match path.copies {
        Copies::None => false,
        Copies::Small => backlog <= ALONE,
        Copies::All => true,
    };
    let takes = move |path: &PathView| gets(path) && path.tier <= tier && path.budget > 0;
    let paths = paths.iter().enumerate();
    paths
        .filter(move |(_, path)| takes(path))
        .map(|(index, _)| index)
}

/// A path that delivers so many times less than another is not worth striping over.
const SLIGHT: u64 = 20;
/// One that starts is not known before it delivers this part of what another does.
const EARLY: u64 = 4;
/// One that adds less than this part is used as far as it costs no delay: the whole flow may run
/// short of window while it is found out that striping does not pay ([`Spill`]).
const GOOD_GAIN: f64 = 0.2;

fn worth(paths: &[PathView], index: usize) -> Worth {
    let path = &paths[index];
    let peers = || of_tier(paths, path.tier);
    let known = peers().filter(|(_, p)| p.worth != Worth::Unknown);
    let main = peers().max_by_key(|(_, p)| p.delivers);
    match known.map(|(_, p)| p.delivers).max() {
        None if main.is_some_and(|(main, _)| main == index) => Worth::Full,
        None => Worth::Unknown,
        Some(_) if path.worth == Worth::Unknown => Worth::Unknown,
        Some(most) if path.unproven && path.delivers < most / EARLY => Worth::Unknown,
        Some(most) if path.delivers < most / SLIGHT => Worth::Slight,
        Some(_) => Worth::Full,
    }
}

/// A leader's packets arrive this much later than the nearest path's, at least: less is made up for
/// by what stands ([`MOST_STANDING`]). Before acknowledgements come by the quickest way, paths seem
/// up to twice as far apart.
const LEAD_BEHIND: Duration = Duration::from_millis(45);
/// It carries so many times as much as all faster paths, or it would not be worth their delay.
const LEAD_RATE: f64 = 1.5;
/// A path goes on leading while it carries this many times as much, so that it is not taken and
/// left in turn.
const LEAD_RATE_LEFT: f64 = 1.0;

fn leader(paths: &[PathView]) -> Option<usize> {
    // Asked for each round.
    if paths.len() < 2 {
        return None;
    }
    let tier = best_tier(paths)?;
    let nearest = of_tier(paths, tier).map(|(_, p)| one_way(p)).min()?;
    let leads = |&(_, path): &(usize, &PathView)| {
        let mut faster = of_tier(paths, tier).filter(|(_, p)| in_order(p) < in_order(path));
        // Nothing leads while it is not known what the others carry.
        let carried = faster.try_fold((0, true), |(sum, proven), (_, p)| {
            (p.carries > 0).then_some((sum + p.carries, proven && !p.unproven))
        });
        let least = if path.leads {
            LEAD_RATE_LEFT
        } else {
            LEAD_RATE
        };
        let is_wide = |(carried, proven): (u64, bool)| {
            // What others are too full to take doubles the rate of one that starts.
            let grows = proven && path.unproven && path.carries > 0;
            let doubled = if grows { 2 * path.delivers } else { 0 };
            path.promises.max(doubled) as f64 > least * carried as f64
        };
        // What is behind because more stands on it than usual is no far path, and soon none at all.
        let is_far = path.leads || !path.crowded;
        is_far
            && one_way(path).saturating_sub(nearest) > LEAD_BEHIND
            && carried.is_some_and(is_wide)
    };
    of_tier(paths, tier)
        .filter(leads)
        .max_by_key(|(_, p)| in_order(p))
        .map(|(index, _)| index)
}

/// When a packet is needed at the earliest: what belongs to a transfer not before the leader's
/// packets.
fn base(paths: &[PathView], fills: bool) -> Duration {
    let leader = || in_full_use(paths).find(|path| path.leads);
    let leader = if fills && paths.len() > 1 {
        leader()
    } else {
        None
    };
    leader.map_or(Duration::ZERO, in_order)
}

fn with_room(index: usize, path: &PathView) -> Choice {
    if path.budget > 0 {
        Choice::One(index)
    } else {
        Choice::Wait
    }
}

fn first(paths: &[PathView], tier: u8) -> Choice {
    of_tier(paths, tier)
        .next()
        .map_or(Choice::Wait, |(index, path)| with_room(index, path))
}

/// Spreads flows over cumulative weights; a flow moves only when the set of paths changes.
fn pinned(paths: &[PathView], tier: u8, flow: u32) -> Choice {
    let total: u64 = of_tier(paths, tier)
        .map(|(_, p)| u64::from(p.weight.max(1)))
        .sum();
    let mut point = (u64::from(flow) * total) >> 32;
    for (index, path) in of_tier(paths, tier) {
        let weight = u64::from(path.weight.max(1));
        if point < weight {
            return with_room(index, path);
        }
        point -= weight;
    }
    Choice::Wait
}

/// Bytes of a packet that is not one of many.
const ALONE: usize = 200;

fn earliest(paths: &[PathView], tier: u8, backlog: usize, base: Duration, spill: &Spill) -> Choice {
    // Asked for each packet: at line rate the rest would be 2 % of a sender's time.
    if let [only] = paths {
        let goes = only.budget > 0 && (only.worth == Worth::Full || backlog <= ALONE);
        return if goes { Choice::One(0) } else { Choice::Wait };
    }
    // What is small and waits for nobody else has no order to keep: acknowledgements, echoes,
    // speech.
    let promptest = of_tier(paths, tier).min_by_key(|(_, p)| (p.crowded, p.srtt));
    if let Some((index, _)) = promptest.filter(|(_, p)| backlog <= ALONE && p.budget > 0) {
        return Choice::One(index);
    }
    let nearest = of_worth(paths, tier, Worth::Full)
        .filter(|(_, p)| p.budget > 0)
        .min_by_key(|(index, p)| (in_order(p) != base, in_order(p), *index));
    let Some((index, path)) = nearest else {
        return Choice::Wait;
    };
    if is_due(paths, path, backlog, base, spill) {
        Choice::One(index)
    } else {
        Choice::Wait
    }
}

/// Whether the backlog would wait so long for the faster paths of the tier that `path` is due.
fn is_due(
    paths: &[PathView],
    path: &PathView,
    backlog: usize,
    base: Duration,
    spill: &Spill,
) -> bool {
    let Some(faster) = Faster::than(paths, path, base) else {
        return true;
    };
    // A sender that starts would take the longer way for a full link, and stop doubling its window.
    let wait = if faster.unproven {
        faster.lead
    } else {
        spill.wait(faster.lead)
    };
    let wait = wait.max(faster.caution);
    time_for(backlog, faster.rate) >= wait
}

/// The fastest paths with room, of as few tiers as have so many. A higher tier stands in for paths
/// that are down, and not for those that are full for a moment: it may be a dear one.
fn fastest(paths: &[PathView], copies: usize) -> Choice {
    let tiers = || {
        paths
            .iter()
            .filter(|path| path.usable)
            .map(|path| path.tier)
    };
    let are_enough = |&highest: &u8| tiers().filter(|&tier| tier <= highest).count() >= copies;
    let highest = tiers().filter(are_enough).min().unwrap_or(u8::MAX);
    let rank = |&index: &usize| (paths[index].tier, paths[index].srtt, index);
    let next = |chosen: PathSet| {
        (0..paths.len())
            .filter(|&index| paths[index].usable && paths[index].budget > 0)
            .filter(|&index| paths[index].tier <= highest)
            .filter(|&index| chosen.with(index) != chosen)
            .min_by_key(rank)
    };
    let mut chosen = PathSet::default();
    for _ in 0..copies {
        chosen = next(chosen).map_or(chosen, |index| chosen.with(index));
    }
    match chosen.first() {
        None => Choice::Wait,
        Some(only) if chosen.without_first().first().is_none() => Choice::One(only),
        Some(_) => Choice::Copies(chosen),
    }
}

#[cfg(test)]
mod tests;
