//! What the scheduler knows of paths, and which of them are looked at together.

use std::time::Duration;

#[cfg(doc)]
use super::Scheduler;
use crate::health::Copies;

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
    /// again (docs/decisions/0022).
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

/// Until a packet arrives, as far as the scheduler waits for it: half the round trip.
pub(super) fn one_way(path: &PathView) -> Duration {
    path.srtt / 2
}

/// Until a packet of a flow that fills the path can be used, behind those before it.
pub(super) fn in_order(path: &PathView) -> Duration {
    one_way(path) + path.late
}

pub(super) fn of_tier(paths: &[PathView], tier: u8) -> impl Iterator<Item = (usize, &PathView)> {
    paths
        .iter()
        .enumerate()
        .filter(move |(_, p)| p.usable && p.tier == tier)
}

pub(super) fn of_worth(
    paths: &[PathView],
    tier: u8,
    worth: Worth,
) -> impl Iterator<Item = (usize, &PathView)> {
    of_tier(paths, tier).filter(move |(_, p)| p.worth == worth)
}

pub(super) fn best_tier(paths: &[PathView]) -> Option<u8> {
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
