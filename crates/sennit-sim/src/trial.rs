//! What links carry, measured.

use std::time::{Duration, Instant};

use sennit_core::{Classifier, PathState};
use sennit_engine::{ClassConfig, MOST_LINKS, Treatment, facts::TunnelStatus};
use sennit_netem::Bitrate;

use crate::{Direction, Kind, LinkSpec, PATIENCE, Transfer, World};

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

/// Why a trial gives no figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// A tunnel needs something to run over.
    #[error("there is no link to try: name at least one")]
    NoLinks,
    /// An edge has no more.
    #[error("{0} links are too many: a trial has at most {MOST_LINKS}")]
    TooManyLinks(usize),
    /// The ports of the flows are consecutive.
    #[error("{0} streams: a trial has 1 to {MAX_STREAMS}")]
    Streams(u16),
    /// Goodput is bytes over time.
    #[error("no time is measured: `span`, and how often to look, must be more than zero")]
    NoTime,
    /// A link is too bad for a tunnel, or none at all.
    #[error("no tunnel over all {links} links within {} s: {ready} are up", PATIENCE.as_secs())]
    NotConnected {
        /// How many there are.
        links: usize,
        /// How many of them the edge has a path on that is up.
        ready: usize,
    },
}

/// Each flow costs memory and time.
const MAX_STREAMS: u16 = 1024;

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
    pub fn run(&self, links: &[LinkSpec]) -> Result<Outcome, TrialError> {
        self.watch(links, self.span, |_, _| {})
    }

    /// Runs over all of `links` at once, in a class that treats its packets so.
    pub fn run_as(&self, treatment: Treatment, links: &[LinkSpec]) -> Result<Outcome, TrialError> {
        self.watch_as(treatment, links, self.span, |_, _| {})
    }

    /// Runs the trial and calls `see` with the goodput since the last call, in Mbit/s, and what
    /// both ends know.
    pub fn watch(
        &self,
        links: &[LinkSpec],
        every: Duration,
        see: impl FnMut(f64, &[TunnelStatus]),
    ) -> Result<Outcome, TrialError> {
        self.watch_as(Treatment::default(), links, every, see)
    }

    fn watch_as(
        &self,
        treatment: Treatment,
        links: &[LinkSpec],
        every: Duration,
        mut see: impl FnMut(f64, &[TunnelStatus]),
    ) -> Result<Outcome, TrialError> {
        self.check(links.len())?;
        if every.is_zero() {
            return Err(TrialError::NoTime);
        }
        let class = ClassConfig {
            name: "default".into(),
            treatment,
            dscp: 0,
            links: None,
        };
        let (classes, rules) = (vec![class], Classifier::default());
        let mut world = World::with_classes(links, classes, rules, self.seed, Instant::now());
        if !world.connect(links.len()) {
            let tunnels = world.edge.status();
            let paths = tunnels.iter().flat_map(|tunnel| &tunnel.paths);
            return Err(TrialError::NotConnected {
                links: links.len(),
                ready: paths.filter(|path| path.state == PathState::Up).count(),
            });
        }
        let mut transfer = Transfer::new(self.kind, self.direction, self.streams, world.now());
        transfer.run(&mut world, self.warm_up);
        let (end, before) = (world.now() + self.span, transfer.received());
        while world.now() < end {
            let span = every.min(end - world.now());
            let goodput = transfer.measure(&mut world, span);
            see(goodput, &self.status(&mut world));
        }
        let bytes = transfer.received() - before;
        Ok(Outcome {
            goodput: bytes as f64 * 8.0 / self.span.as_secs_f64() / 1e6,
            longest_stall: transfer.longest_stall,
            status: self.status(&mut world),
        })
    }

    /// Whether it can be run over so many links.
    pub(crate) fn check(&self, links: usize) -> Result<(), TrialError> {
        match links {
            0 => Err(TrialError::NoLinks),
            1..=MOST_LINKS if !(1..=MAX_STREAMS).contains(&self.streams) => {
                Err(TrialError::Streams(self.streams))
            }
            1..=MOST_LINKS if self.span.is_zero() => Err(TrialError::NoTime),
            1..=MOST_LINKS => Ok(()),
            _ => Err(TrialError::TooManyLinks(links)),
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
    pub fn best_alone(&self, links: &[LinkSpec]) -> Result<f64, TrialError> {
        self.best_alone_beyond(0.0, links)
    }

    /// The same if it is more than `floor`, and else `floor`: links that cannot carry more, if only
    /// by their rate, are not tried. It tells in a fraction of the time whether that is enough.
    pub fn best_alone_beyond(&self, floor: f64, links: &[LinkSpec]) -> Result<f64, TrialError> {
        let mut links: Vec<&LinkSpec> = links.iter().collect();
        links.sort_by(|a, b| self.rate(b).total_cmp(&self.rate(a)));
        links.into_iter().try_fold(floor, |best, link| {
            if self.rate(link) <= best {
                return Ok(best);
            }
            let alone = self.run(std::slice::from_ref(link))?;
            Ok(alone.goodput.max(best))
        })
    }

    /// Goodput over all of `links` as a part of what the best carries alone.
    pub fn gain(&self, links: &[LinkSpec]) -> Result<f64, TrialError> {
        Ok(self.run(links)?.goodput / self.best_alone(links)?)
    }

    /// What a link could carry at best, in Mbit/s.
    fn rate(&self, link: &LinkSpec) -> f64 {
        let config = link.way(self.direction);
        let steps = config.trace.iter().flat_map(|trace| trace.steps());
        let rates = steps.filter_map(|step| step.rate).chain(config.rate);
        let most = rates.map(Bitrate::as_bps).max();
        most.map_or(f64::INFINITY, |bits| bits as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial() -> Trial {
        Trial {
            kind: Kind::Quic,
            direction: Direction::Down,
            streams: 1,
            warm_up: Duration::ZERO,
            span: Duration::from_secs(1),
            seed: 1,
        }
    }

    fn link(text: &str) -> LinkSpec {
        text.parse().expect("a link")
    }

    #[test]
    fn what_cannot_be_tried_is_an_error_and_no_panic() {
        let good = [link("10/10")];
        let refused = |trial: Trial, links: &[LinkSpec]| trial.run(links).expect_err("no figure");

        assert_eq!(refused(trial(), &[]), TrialError::NoLinks);
        let many = vec![link("10/10"); 17];
        assert_eq!(refused(trial(), &many), TrialError::TooManyLinks(17));
        for streams in [0, u16::MAX] {
            let trial = Trial { streams, ..trial() };
            assert_eq!(refused(trial, &good), TrialError::Streams(streams));
            assert_eq!(trial.plain(&good[0], 0), Err(TrialError::Streams(streams)));
        }
        let span = Duration::ZERO;
        assert_eq!(
            refused(Trial { span, ..trial() }, &good),
            TrialError::NoTime
        );
        let never = trial().watch(&good, Duration::ZERO, |_, _| {});
        assert_eq!(never.err(), Some(TrialError::NoTime));
    }

    #[test]
    fn a_link_that_carries_nothing_is_named_by_number() {
        let mut dead = link("10/10");
        dead.down.outage = true;

        let error = trial()
            .run(&[link("10/10"), dead])
            .expect_err("one is dead");

        assert_eq!(error, TrialError::NotConnected { links: 2, ready: 1 });
        assert!(
            error.to_string().contains("within 20 s: 1 are up"),
            "{error}"
        );
    }
}
