//! What links carry, measured.

use std::time::{Duration, Instant};

use sennit_core::Policy;
use sennit_engine::facts::TunnelStatus;
use sennit_netem::Bitrate;

use crate::{Direction, Kind, LinkSpec, Transfer, World};

/// Flows over a bonding tunnel that is fresh each time.
///
/// The links of a world are compared with worlds that have only one of them: the same tunnel with
/// the same queue and the same repair, so that a difference is due to bonding alone.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// How the flows send.
    pub kind: Kind,
    /// Which way.
    pub direction: Direction,
    /// How many at once.
    pub streams: u16,
    /// Virtual time that is not measured.
    pub warm_up: Duration,
    /// Virtual time that is.
    pub span: Duration,
    /// Seed of links and machines.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Mbit/s without headers and without anything twice.
    pub goodput: f64,
    /// Longest time in which nothing arrived.
    pub longest_stall: Duration,
    /// Both ends when it was over, the sending one first.
    pub status: Vec<TunnelStatus>,
}

impl Trial {
    /// Runs over all of `links` at once.
    ///
    /// # Panics
    /// If there is no tunnel over all of them within some time.
    pub fn run(&self, links: &[LinkSpec]) -> Outcome {
        self.watch(links, self.span, |_, _| {})
    }

    /// Runs the trial and calls `see` with the goodput since the last call, in Mbit/s, and what
    /// both ends know.
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn watch(
        &self,
        links: &[LinkSpec],
        every: Duration,
        mut see: impl FnMut(f64, &[TunnelStatus]),
    ) -> Outcome {
        let mut world = World::new(links, Policy::Bond, self.seed, Instant::now());
        assert!(
            world.connect(links.len()),
            "not connected: {:?}",
            world.edge.status()
        );
        let mut transfer = Transfer::new(self.kind, self.direction, self.streams, world.now());
        transfer.run(&mut world, self.warm_up);
        let (end, before) = (world.now() + self.span, transfer.received());
        while world.now() < end {
            let span = every.min(end - world.now());
            let goodput = transfer.measure(&mut world, span);
            see(goodput, &self.status(&mut world));
        }
        let bytes = transfer.received() - before;
        Outcome {
            goodput: bytes as f64 * 8.0 / self.span.as_secs_f64() / 1e6,
            longest_stall: transfer.longest_stall,
            status: self.status(&mut world),
        }
    }

    /// The sending end first.
    fn status(&self, world: &mut World) -> Vec<TunnelStatus> {
        match self.direction {
            Direction::Up => [world.edge.status(), world.hub.status()].concat(),
            Direction::Down => [world.hub.status(), world.edge.status()].concat(),
        }
    }

    /// The goodput over each link alone, at best; links that cannot be the best are not tried.
    pub fn best_alone(&self, links: &[LinkSpec]) -> f64 {
        let mut links: Vec<&LinkSpec> = links.iter().collect();
        links.sort_by(|a, b| self.rate(b).total_cmp(&self.rate(a)));
        links.into_iter().fold(0.0, |best, link| {
            if self.rate(link) <= best {
                best
            } else {
                best.max(self.run(std::slice::from_ref(link)).goodput)
            }
        })
    }

    /// Goodput over all of `links` as a part of what the best carries alone.
    pub fn gain(&self, links: &[LinkSpec]) -> f64 {
        self.run(links).goodput / self.best_alone(links)
    }

    /// What a link could carry at best, in Mbit/s.
    fn rate(&self, link: &LinkSpec) -> f64 {
        let config = match self.direction {
            Direction::Up => &link.up,
            Direction::Down => &link.down,
        };
        let steps = config.trace.iter().flat_map(|trace| trace.steps());
        let rates = steps.filter_map(|step| step.rate).chain(config.rate);
        let most = rates.map(Bitrate::as_bps).max();
        most.map_or(f64::INFINITY, |bits| bits as f64 / 1e6)
    }
}
