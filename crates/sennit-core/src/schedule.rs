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

use std::time::{Duration, Instant};

use crate::{Policy, health::Copies, queue::Start};

/// What a path is good for, beside the others of its tier: see [`Scheduler::assess`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It takes its part.
    Full,
    /// It delivers so little that it takes only small packets by themselves.
    Slight,
    /// Hardly anything has arrived over it: what is not small and alone it takes as copies.
    Unknown,
}

/// What the scheduler needs to know of one path, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// Whether it is up and trusted.
    pub usable: bool,
    /// Whether it was heard since the tunnel was last idle. If not, it may have died meanwhile.
    pub alive: bool,
    /// Lower is preferred.
    pub tier: u8,
    /// Share of the flows under `balanced`.
    pub weight: u16,
    /// Smoothed round trip.
    pub srtt: Duration,
    /// The least round trip of late, without what stands on the path.
    pub least: Duration,
    /// How far apart its acknowledgements come because hosts, or the path, hold them up.
    pub held_up: Duration,
    /// More stood there of late than it soon delivers.
    pub crowded: bool,
    /// How much later than that says its packets are in order, because what it loses must be sent
    /// again.
    pub late: Duration,
    /// Bytes per second at which packets may leave on it.
    pub rate: u64,
    /// Bytes per second that it delivers, as far as is known. A path that starts may send a whole
    /// window at once, and is no faster for that.
    pub delivers: u64,
    /// It never was full, and may carry much more.
    pub unproven: bool,
    /// Bytes per second that it is expected to carry: what it delivers, or more while it is
    /// unproven and its first packets arrived faster. Zero if nothing tells.
    pub carries: u64,
    /// Bytes per second that it is expected to carry if it was not yet given transfers: startup
    /// over copies of little traffic may have found less than its first packets told.
    pub promises: u64,
    /// Transfers go here first; before [`Scheduler::find_leader`] whether they did so far.
    pub leads: bool,
    /// What it is good for; before [`Scheduler::assess`] only whether it is known.
    pub worth: Worth,
    /// Bytes it may send at once; zero if that is no full-size packet.
    pub budget: u64,
    /// Bytes of copies that it may send at once: these need not be paced.
    pub room: u64,
    /// What it gets copies of although it is not usable.
    pub copies: Copies,
}

/// Where a packet goes: indices into the slice of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nowhere yet.
    Wait,
    /// On one path.
    One(usize),
    /// A copy on each of these.
    Copies(PathSet),
}

/// Indices of paths, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSet(u64);

impl PathSet {
    /// With one path more; those beyond the 64th are not kept.
    pub fn with(self, index: usize) -> Self {
        Self(self.0 | 1_u64.checked_shl(index as u32).unwrap_or(0))
    }

    /// The lowest index.
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then_some(self.0.trailing_zeros() as usize)
    }

    /// Without the lowest index.
    pub fn without_first(self) -> Self {
        Self(self.0 & self.0.saturating_sub(1))
    }

    /// From the lowest index up.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(self), |set| Some(set.without_first())).map_while(Self::first)
    }
}

impl From<Choice> for PathSet {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Wait => Self::default(),
            Choice::One(path) => Self::default().with(path),
            Choice::Copies(paths) => paths,
        }
    }
}

/// What became of the queue in a round of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes that left.
    pub bytes: u64,
    /// Of these, on another path than the fastest: [`Scheduler::is_second_choice`].
    pub spilled: u64,
    /// Whether nothing waits now, although the fastest path may have room.
    pub empty: bool,
}

/// Whether striping pays, under `bond`: see [`Spill`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Striping {
    /// How long packets wait for faster paths before a slower one is used, at most.
    pub wait: Duration,
    /// Bytes that slower paths carried of late.
    pub gained: u64,
    /// Bytes that the fastest could have carried meanwhile, with the queue empty.
    pub missed: u64,
}

impl Striping {
    /// Whether striping pays; `None` if it is neither clearly so nor clearly not.
    pub fn pays(&self) -> Option<bool> {
        let (gained, missed) = (self.gained as f64, self.missed as f64);
        if missed > BAD * gained {
            Some(false)
        } else {
            (missed < GOOD * gained).then_some(true)
        }
    }
}

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

/// Until a packet arrives, as far as the scheduler waits for it: half the round trip.
fn one_way(path: &PathView) -> Duration {
    path.srtt / 2
}

/// Until a packet of a flow that fills the path can be used, behind those before it.
fn in_order(path: &PathView) -> Duration {
    one_way(path) + path.late
}

fn of_tier(paths: &[PathView], tier: u8) -> impl Iterator<Item = (usize, &PathView)> {
    paths
        .iter()
        .enumerate()
        .filter(move |(_, p)| p.usable && p.tier == tier)
}

fn of_worth(
    paths: &[PathView],
    tier: u8,
    worth: Worth,
) -> impl Iterator<Item = (usize, &PathView)> {
    of_tier(paths, tier).filter(move |(_, p)| p.worth == worth)
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

fn best_tier(paths: &[PathView]) -> Option<u8> {
    paths.iter().filter(|p| p.usable).map(|p| p.tier).min()
}

/// The paths that carry packets while they can: those of the lowest tier that has a usable one.
pub fn of_best_tier(paths: &[PathView]) -> impl Iterator<Item = &PathView> {
    let best = best_tier(paths);
    let best = move |path: &&PathView| path.usable && Some(path.tier) == best;
    paths.iter().filter(best)
}

/// Those of them that take their part.
pub fn in_full_use(paths: &[PathView]) -> impl Iterator<Item = &PathView> {
    of_best_tier(paths).filter(|path| path.worth == Worth::Full)
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

fn fastest(paths: &[PathView], copies: usize) -> Choice {
    let rank = |&index: &usize| (paths[index].tier, paths[index].srtt, index);
    let next = |chosen: PathSet| {
        (0..paths.len())
            .filter(|&index| paths[index].usable && paths[index].budget > 0)
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

/// How long packets wait for the faster paths before a slower one is used.
///
/// Using it as soon as the faster ones are full fills it soonest. But while less waits than the
/// faster ones send in the time by which it is slower, even the last packet arrives late by it, and
/// so does every other of the flow, because the far end restores the order. A sender with a full
/// window to spare does not mind. One whose window is used up is slowed down by it: the queue here
/// runs empty, with all paths half used. So both sides of the account are kept: bytes that slower
/// paths carried, and bytes that the fastest could have carried while the queue was empty. If
/// striping does not pay the wait is doubled, up to the whole difference in delay, at which a
/// packet is no later than it would be by waiting, and nobody can lose anything; and it shrinks
/// while striping pays well.
///
/// To find out that it does not pay costs more the slower a path is. One that is [`FAR`] behind, as
/// over a satellite, therefore begins with the longest wait, which shrinks fast while striping
/// pays.
#[derive(Clone, Debug)]
struct Spill {
    threshold: Duration,
    /// How long packets wait for a path that is far behind.
    far: Duration,
    round: Option<Round>,
    /// Bytes of the current and, ever less, of earlier rounds.
    gained: f64,
    missed: f64,
}

/// The current round trip of the slowest path.
#[derive(Clone, Copy, Debug)]
struct Round {
    since: Instant,
    /// From when on the empty queue costs something.
    idle_from: Option<Instant>,
    spilled: u64,
}

/// What a waking TCP sends at once takes about this long on a slow line (docs/decisions/0008).
const LEAST_SPILL: Duration = Duration::from_millis(5);
/// A path is far behind if packets over it can be used so much later.
const FAR: Duration = Duration::from_millis(100);
/// No packet waits longer for a faster path.
const MOST_SPILL: Duration = Duration::from_millis(150);
/// Packets stand no longer than this so that one can leave ahead of them (docs/decisions/0007).
const MOST_STANDING: Duration = Duration::from_millis(60);
/// Striping does not pay if this part of what it gains is missed elsewhere (docs/decisions/0008).
const BAD: f64 = 0.5;
/// Striping pays well if less than this part of what it gains is missed elsewhere.
const GOOD: f64 = 0.1;
const SHRINK: f64 = 0.95;
const SHRINK_FAR: f64 = 0.5;
/// What is kept of the account from one round to the next.
const MEMORY: f64 = 0.8;
/// The queue runs empty all the time between two packets; only what lasts longer is missed.
const GRACE: Duration = Duration::from_millis(5);
/// No round is shorter, lest it be all noise.
const LEAST_ROUND: Duration = Duration::from_millis(20);

impl Default for Spill {
    fn default() -> Self {
        Self {
            threshold: LEAST_SPILL,
            far: MOST_SPILL,
            round: None,
            gained: 0.0,
            missed: 0.0,
        }
    }
}

impl Spill {
    /// How long packets wait for paths that lead by so much.
    fn wait(&self, lead: Duration) -> Duration {
        let most = if lead > FAR { self.far } else { self.threshold };
        lead.min(most)
    }

    fn handle_sent(&mut self, sent: Sent, fastest: u64, rtt: Duration, now: Instant) {
        let round = self.round.get_or_insert(Round {
            since: now,
            idle_from: None,
            spilled: 0,
        });
        if let Some(from) = round.idle_from {
            let idle = now.saturating_duration_since(from);
            self.missed += idle.as_secs_f64() * fastest as f64;
            round.idle_from = Some(from.max(now));
        }
        if !sent.empty {
            round.idle_from = None;
        } else if sent.bytes > 0 || round.idle_from.is_none() {
            round.idle_from = Some(now + GRACE);
        }
        round.spilled += sent.spilled;
        if now.saturating_duration_since(round.since) < rtt.max(LEAST_ROUND) {
            return;
        }
        self.gained += round.spilled as f64;
        if self.gained < 1.0 {
            self.missed = 0.0;
        }
        if round.spilled > 0 && self.missed > BAD * self.gained {
            self.threshold = (2 * self.threshold).min(MOST_SPILL);
            self.far = MOST_SPILL;
        } else if round.spilled > 0 && self.missed < GOOD * self.gained {
            self.threshold = self.threshold.mul_f64(SHRINK).max(LEAST_SPILL);
            self.far = self.far.mul_f64(SHRINK_FAR).max(self.threshold);
        }
        self.gained *= MEMORY;
        self.missed *= MEMORY;
        *round = Round {
            since: now,
            spilled: 0,
            ..*round
        };
    }
}

#[cfg(test)]
mod tests;
