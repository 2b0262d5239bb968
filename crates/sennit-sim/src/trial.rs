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
/// A ping that is not answered this long after the measured time is lost.
const PING_PATIENCE: Duration = Duration::from_secs(1);

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
        if every.is_zero() {
            return Err(TrialError::NoTime);
        }
        let (mut world, mut transfer) = self.connect(treatment, links)?;
        transfer.run(&mut world, self.warm_up);
        let (end, before) = (world.now() + self.span, transfer.received());
        while world.now() < end {
            let span = every.min(end - world.now());
            let goodput = transfer.measure(&mut world, span);
            see(goodput, &self.status(&mut world));
        }
        Ok(self.outcome(&transfer, &mut world, before))
    }

    /// Runs over all of `links` at once, in a class that treats its packets so, beside a ping from
    /// the edge to the server each `every` in the same class. With what came of the flows come the
    /// round trips of the pings that left in the measured time; a lost one has none.
    pub fn run_beside_ping(
        &self,
        treatment: Treatment,
        links: &[LinkSpec],
        every: Duration,
    ) -> Result<(Outcome, Vec<Option<Duration>>), TrialError> {
        if every.is_zero() {
            return Err(TrialError::NoTime);
        }
        let (mut world, transfer) = self.connect(treatment, links)?;
        let mut transfer = transfer.with_ping(every, world.now());
        transfer.run(&mut world, self.warm_up);
        let (before, first) = (transfer.received(), transfer.pings().len());
        transfer.run(&mut world, self.span);
        let outcome = self.outcome(&transfer, &mut world, before);
        transfer.end_pings(&mut world, PING_PATIENCE);
        let answered = |time: Duration| (time < Duration::MAX).then_some(time);
        let pings = transfer.pings().into_iter().skip(first).map(answered);
        Ok((outcome, pings.collect()))
    }

    /// What came of flows that had received so much before the measured time.
    fn outcome(&self, transfer: &Transfer, world: &mut World, before: u64) -> Outcome {
        Outcome {
            goodput: self.mbit(transfer.received() - before),
            longest_stall: transfer.longest_stall,
            status: self.status(world),
        }
    }

    /// Goodput in Mbit/s over all of `links`, in the very time in which [`Self::plain`] has that
    /// over one: the time that is not measured begins with the world, whenever the tunnel comes up.
    pub fn beside_plain(&self, links: &[LinkSpec]) -> Result<f64, TrialError> {
        let (mut world, mut transfer) = self.connect(Treatment::default(), links)?;
        let left = self.warm_up.saturating_sub(world.elapsed());
        transfer.run(&mut world, left);
        let before = transfer.received();
        let left = (self.warm_up + self.span).saturating_sub(world.elapsed());
        transfer.run(&mut world, left);
        Ok(self.mbit(transfer.received() - before))
    }

    /// A world whose tunnel is up over all of `links`, and flows that begin.
    fn connect(
        &self,
        treatment: Treatment,
        links: &[LinkSpec],
    ) -> Result<(World, Transfer), TrialError> {
        self.check(links.len())?;
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
        let transfer = Transfer::new(self.kind, self.direction, self.streams, world.now());
        Ok((world, transfer))
    }

    /// Mbit/s, of bytes that arrived in the time that is measured.
    pub(crate) fn mbit(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.span.as_secs_f64() / 1e6
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

/// The longest virtual time that somebody asks for.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A virtual time that somebody wrote in seconds, up to a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| *time <= TIME_MAX);
    time.ok_or_else(|| format!("`{text}` is not 0 to {} s", TIME_MAX.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sennit_netem::{Step, Trace};

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
    fn a_time_is_not_negative_not_endless_and_a_number() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["-1", "NaN", "inf", "1e30", "86401", "", "x"] {
            let told = seconds(text).expect_err(text);
            assert!(told.ends_with("is not 0 to 86400 s"), "{told}");
        }
    }

    /// A tunnel that came up late was measured later than the flows without one, on links that had
    /// moved on.
    #[test]
    fn what_a_tunnel_carries_is_measured_when_what_a_link_does_is() {
        let second = Duration::from_secs(1);
        let steps = [
            Step::held(second * 2),
            Step::at(second * 2, Bitrate::mbit(10)),
            Step::held(second * 100),
        ];
        let trace = Trace::new("late", steps.into()).expect("a step sends");
        let mut moving = link("10/5");
        for direction in Direction::BOTH {
            let way = moving.way_mut(direction);
            *way = way.clone().moving(Arc::new(trace.clone()));
        }
        let trial = Trial {
            warm_up: second * 3,
            ..trial()
        };

        let plain = trial.plain(&moving, 0).expect("a flow over the link");
        let tunnel = trial.beside_plain(&[moving]).expect("the link comes up");

        assert!(plain > 5.0 && tunnel > 5.0, "{plain:.1} and {tunnel:.1}");
    }

    #[test]
    fn a_ping_beside_the_flows_has_its_round_trips_and_costs_them_little() {
        let (treatment, every) = (Treatment::default(), Duration::from_millis(50));
        let beside = |text: &str| {
            let run = trial().run_beside_ping(treatment, &[link(text)], every);
            run.expect("it is up")
        };
        let alone = trial().run(&[link("10/20")]).expect("it is up");

        let (outcome, pings) = beside("10/20");

        assert_eq!(pings.len(), 20, "those of the measured second");
        let least = Duration::from_millis(40);
        let right = |time: &Option<Duration>| time.is_some_and(|time| time >= least);
        assert!(pings.iter().all(right), "{pings:?}");
        assert!(outcome.goodput > 0.9 * alone.goodput, "{}", outcome.goodput);
        let never = trial().run_beside_ping(treatment, &[link("10/20")], Duration::ZERO);
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
