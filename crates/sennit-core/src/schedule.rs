//! Which path takes the next packet.
//!
//! The scheduler is pulled: it is asked only when a packet waits and some path has congestion
//! window and pacing credit to spare, so it never has to guess what the congestion controllers will
//! allow. Paths of a lower tier are preferred; what happens within a tier is the policy:
//!
//! - `single`: the first path, and another only if that one fails.
//! - `failover`: the same over all tiers.
//! - `balanced`: a flow sticks to one path; flows are spread by weight.
//! - `bond`: earliest arrival. The path with the least delay takes what it can; a slower one helps
//!   only when the backlog would wait for the faster ones longer than the slower one is slower.
//! - `redundant`: the two paths with the least delay both take a copy.

use std::time::Duration;

use crate::Policy;

/// What the scheduler needs to know of one path, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// Whether it is up and trusted.
    pub usable: bool,
    /// Lower is preferred.
    pub tier: u8,
    /// Share of the flows under `balanced`.
    pub weight: u16,
    /// Smoothed round trip.
    pub srtt: Duration,
    /// Bytes per second at which packets may leave on it.
    pub rate: u64,
    /// Bytes it may send at once; zero if that is no full-size packet.
    pub budget: u64,
}

/// A slower path is used once packets would wait this long for the faster ones, or as long as it is
/// slower. The far end restores the order, so there is no need to wait for all of the difference.
const SPILL: Duration = Duration::from_millis(5);

/// Where a packet goes: indices into the slice of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nowhere yet.
    Wait,
    /// On one path.
    One(usize),
    /// On two.
    Both(usize, usize),
}

/// Chooses paths by one policy.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler {
    policy: Policy,
}

impl Scheduler {
    /// A scheduler for a class.
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }

    /// The policy it follows.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Where a packet of `flow` goes, with `backlog` bytes waiting that delay it.
    pub fn choose(&self, paths: &[PathView], flow: u32, backlog: usize) -> Choice {
        let Some(tier) = paths.iter().filter(|p| p.usable).map(|p| p.tier).min() else {
            return Choice::Wait;
        };
        match self.policy {
            Policy::Single | Policy::Failover => first(paths, tier),
            Policy::Balanced => pinned(paths, tier, flow),
            Policy::Bond => earliest(paths, tier, backlog),
            Policy::Redundant => two_fastest(paths),
        }
    }

    /// How much longer than usual packets must be allowed to stand, because the policy uses a
    /// slower path only once the backlog has grown.
    pub fn standing(&self, paths: &[PathView]) -> Duration {
        if self.policy != Policy::Bond {
            return Duration::ZERO;
        }
        let delays = || paths.iter().filter(|p| p.usable).map(one_way);
        let (Some(least), Some(most)) = (delays().min(), delays().max()) else {
            return Duration::ZERO;
        };
        (most - least).min(SPILL)
    }
}

/// Half the round trip, until one-way delays are measured.
fn one_way(path: &PathView) -> Duration {
    path.srtt / 2
}

fn of_tier(paths: &[PathView], tier: u8) -> impl Iterator<Item = (usize, &PathView)> {
    paths
        .iter()
        .enumerate()
        .filter(move |(_, p)| p.usable && p.tier == tier)
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

fn earliest(paths: &[PathView], tier: u8, backlog: usize) -> Choice {
    let Some((index, path)) = of_tier(paths, tier)
        .filter(|(_, p)| p.budget > 0)
        .min_by_key(|(index, p)| (p.srtt, *index))
    else {
        return Choice::Wait;
    };
    let faster = || of_tier(paths, tier).filter(|(_, p)| one_way(p) < one_way(path));
    let Some(least) = faster().map(|(_, p)| one_way(p)).min() else {
        return Choice::One(index);
    };
    let faster_rate: u64 = faster().map(|(_, p)| p.rate).sum();
    let wait = Duration::from_secs_f64(backlog as f64 / faster_rate.max(1) as f64);
    if wait >= (one_way(path) - least).min(SPILL) {
        Choice::One(index)
    } else {
        Choice::Wait
    }
}

fn two_fastest(paths: &[PathView]) -> Choice {
    let mut best: [Option<(u8, Duration, usize)>; 2] = [None; 2];
    for (index, path) in paths
        .iter()
        .enumerate()
        .filter(|(_, p)| p.usable && p.budget > 0)
    {
        let rank = Some((path.tier, path.srtt, index));
        if best[0].is_none() || rank < best[0] {
            best = [rank, best[0]];
        } else if best[1].is_none() || rank < best[1] {
            best[1] = rank;
        }
    }
    match best {
        [Some((.., a)), Some((.., b))] => Choice::Both(a, b),
        [Some((.., a)), None] => Choice::One(a),
        [None, _] => Choice::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(tier: u8, millis: u64, budget: u64) -> PathView {
        PathView {
            usable: true,
            tier,
            weight: 1,
            srtt: Duration::from_millis(millis),
            rate: 1_000_000,
            budget,
        }
    }

    fn down(path: PathView) -> PathView {
        PathView {
            usable: false,
            ..path
        }
    }

    #[test]
    fn failover_uses_the_lowest_tier_that_works() {
        let scheduler = Scheduler::new(Policy::Failover);
        let paths = [path(2, 5, 9), path(1, 50, 9)];
        assert_eq!(scheduler.choose(&paths, 0, 0), Choice::One(1));
        let paths = [path(2, 5, 9), down(path(1, 50, 9))];
        assert_eq!(scheduler.choose(&paths, 0, 0), Choice::One(0));
    }

    #[test]
    fn failover_waits_for_its_path_rather_than_spilling() {
        let scheduler = Scheduler::new(Policy::Failover);
        assert_eq!(
            scheduler.choose(&[path(1, 5, 0), path(2, 5, 9)], 0, 1 << 20),
            Choice::Wait
        );
    }

    #[test]
    fn balanced_spreads_flows_by_weight_and_keeps_each_on_its_path() {
        let scheduler = Scheduler::new(Policy::Balanced);
        let paths = [
            PathView {
                weight: 3,
                ..path(1, 5, 9)
            },
            path(1, 5, 9),
        ];
        let mut count = [0; 2];
        for step in 0..1000_u32 {
            let flow = step.wrapping_mul(0x9e37_79b9);
            let Choice::One(index) = scheduler.choose(&paths, flow, 0) else {
                panic!("no path")
            };
            assert_eq!(scheduler.choose(&paths, flow, 1 << 20), Choice::One(index));
            count[index] += 1;
        }
        assert!((730..=770).contains(&count[0]), "{count:?}");
    }

    #[test]
    fn bond_adds_the_slower_path_only_when_waiting_would_take_longer() {
        let scheduler = Scheduler::new(Policy::Bond);
        let paths = [path(1, 20, 0), path(1, 60, 9)];
        assert_eq!(scheduler.choose(&paths, 0, 4_900), Choice::Wait);
        assert_eq!(scheduler.choose(&paths, 0, 5_000), Choice::One(1));
        assert_eq!(scheduler.standing(&paths), SPILL);
        let close = [path(1, 20, 0), path(1, 24, 9)];
        assert_eq!(scheduler.choose(&close, 0, 2_000), Choice::One(1));
    }

    #[test]
    fn bond_prefers_the_least_delay() {
        let scheduler = Scheduler::new(Policy::Bond);
        assert_eq!(
            scheduler.choose(&[path(1, 60, 9), path(1, 20, 9)], 0, 0),
            Choice::One(1)
        );
    }

    #[test]
    fn redundant_takes_the_two_fastest_or_what_there_is() {
        let scheduler = Scheduler::new(Policy::Redundant);
        let paths = [path(1, 60, 9), path(1, 20, 9), path(1, 30, 9)];
        assert_eq!(scheduler.choose(&paths, 0, 0), Choice::Both(1, 2));
        let paths = [path(1, 60, 9), down(paths[1]), path(1, 30, 0)];
        assert_eq!(scheduler.choose(&paths, 0, 0), Choice::One(0));
    }

    #[test]
    fn nothing_is_chosen_when_no_path_is_usable() {
        for &policy in Policy::ALL {
            let scheduler = Scheduler::new(policy);
            assert_eq!(
                scheduler.choose(&[down(path(1, 1, 9))], 7, 1 << 20),
                Choice::Wait
            );
            assert_eq!(scheduler.choose(&[], 7, 0), Choice::Wait);
        }
    }
}
