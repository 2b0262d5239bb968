//! What probes say about an emulated link, beside what was asked of it.
//!
//! UDP probes with send times go through one direction: a few on a quiet link for the delay, many
//! small ones for the loss, then more than fits for the rate. Both ends are on one machine, so one
//! clock tells the one-way delay. What is measured must be what was asked: the rate within 2 %, the
//! delay within 0.3 ms, the loss within its confidence interval. Jitter moves the first and the
//! last packet of a rate, which is offered for so long that this is at most another 2.5 %, but not
//! for more than three seconds.
//!
//! A link that follows a trace is measured against what the trace says of those moments: the delays
//! that the probes should have had, and the area under the rate while too many were offered.

use std::{
    fmt,
    time::{Duration, Instant},
};

use sennit_netem::{Config, Direction, Jitter, Link, Loss, Passage};
use serde::{Deserialize, Serialize};

use crate::quantile;

/// IPv4 and UDP headers.
pub const HEADERS: usize = 28;

/// Send time and number of a probe.
pub const PROBE: usize = 12;

const RATE_TOLERANCE: f64 = 0.02;
const DELAY_TOLERANCE: f64 = 0.3e-3;

/// Standard deviations that chance may take: one false alarm in 16 000 checks.
const CONFIDENCE: f64 = 4.0;

/// What is said where a link could lose nothing at all and pass.
const TOO_FEW: &str = "too few probes to tell";

/// Half a second of small packets.
pub const DELAY_BURST: Burst = Burst {
    count: 100,
    gap: Duration::from_millis(5),
    payload: PROBE,
};

/// How long the loss is measured.
const LOSS_TIME: Duration = Duration::from_secs(1);

/// Between two probes for the loss of a link that may be slow at times: 64 kbit/s.
const TRACE_GAP: Duration = Duration::from_millis(7);

/// How long a steady link is offered more than it carries.
const RATE_TIME: Duration = Duration::from_millis(500);

/// How long one is that moves, and at most one with jitter: a longer check would last longer than
/// many a step.
const RATE_TIME_MOST: Duration = Duration::from_secs(3);

/// Probes to send.
#[derive(Debug, Clone, Copy)]
pub struct Burst {
    /// How many.
    pub count: u32,
    /// Between two of them.
    pub gap: Duration,
    /// UDP payload of each, in bytes.
    pub payload: usize,
}

/// A probe that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Since it was sent.
    pub delay: Duration,
    /// When it arrived.
    pub at: Instant,
}

impl Arrival {
    /// When it was sent.
    #[must_use]
    pub fn sent(&self) -> Instant {
        self.at - self.delay
    }
}

/// One property of one direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The link's name.
    pub link: String,
    /// The direction.
    pub direction: Direction,
    /// The property.
    pub property: Property,
    /// In bytes per second, seconds, or as a ratio.
    pub asked: f64,
    /// In the same unit.
    pub measured: f64,
    /// The largest difference that passes.
    pub tolerance: f64,
}

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Property {
    /// Frame bytes per second.
    Rate,
    /// One way, in seconds.
    Delay,
    /// Lost share of packets.
    Loss,
}

impl Property {
    /// The factor from base units to those that humans use, and their name.
    #[must_use]
    pub fn scale(self) -> (f64, &'static str) {
        match self {
            Self::Rate => (8e-6, "Mbit/s"),
            Self::Delay => (1e3, "ms"),
            Self::Loss => (1e2, "%"),
        }
    }
}

impl Check {
    /// What was asked, what was measured and how far off it may be, with their unit.
    #[must_use]
    pub fn words(&self) -> [String; 3] {
        let (scale, unit) = self.property.scale();
        let [asked, measured, mut tolerance] = [self.asked, self.measured, self.tolerance]
            .map(|value| format!("{:.3} {unit}", value * scale));
        if !self.tells() {
            tolerance = format!("{tolerance}: {TOO_FEW}");
        }
        [asked, measured, tolerance]
    }

    /// Whether nothing is known that speaks against the link.
    #[must_use]
    pub fn passes(&self) -> bool {
        (self.measured - self.asked).abs() <= self.tolerance
    }

    /// Whether a link that is not as asked would have been found out. Where so few packets should
    /// be lost that chance may spare all of them, one that loses none passes as well.
    #[must_use]
    pub fn tells(&self) -> bool {
        let spares_all = self.asked > 0.0 && self.tolerance >= self.asked;
        !self.passes() || self.property != Property::Loss || !spares_all
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = self.property.scale();
        let [asked, measured, tolerance] =
            [self.asked, self.measured, self.tolerance].map(|value| value * scale);
        let verdict = match self.passes() {
            true if self.tells() => "ok",
            true => TOO_FEW,
            false => "WRONG",
        };
        let (link, direction, property) = (&self.link, self.direction, self.property);
        write!(
            f,
            "{link} {direction:?} {property:?}: asked {asked:.3} {unit}, measured {measured:.3} \
             (± {tolerance:.3}): {verdict}"
        )
    }
}

/// One direction of a link that is to be checked.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The link's name.
    pub link: &'a str,
    /// The direction.
    pub direction: Direction,
    /// What was asked.
    pub config: &'a Config,
    /// When its trace began.
    pub epoch: Instant,
}

impl Subject<'_> {
    fn check(&self, property: Property, asked: f64, measured: f64, tolerance: f64) -> Check {
        Check {
            link: self.link.to_owned(),
            direction: self.direction,
            property,
            asked,
            measured,
            tolerance,
        }
    }

    /// The delay by what arrived of [`DELAY_BURST`], on a machine that is late by `lateness`
    /// without any link. One that paces what it lets pass, a bucket with tokens, has no delay for
    /// who has not sent for a while.
    ///
    /// Where the delay stands still, the median and the shortest must both be right. The median
    /// does not mind that the CPU was elsewhere for some of the probes, the shortest not even that
    /// it was for most of them: by the median, such a machine could be as late as a wrong link is.
    #[must_use]
    pub fn delay(&self, arrivals: &[Arrival], lateness: &[f64], has_saved: bool) -> Check {
        let delays: Vec<f64> = arrivals
            .iter()
            .map(|arrival| arrival.delay.as_secs_f64())
            .collect();
        let asked = match &self.config.trace {
            _ if has_saved => vec![0.0],
            None => {
                let asked = self.config.delay + self.config.wire_time(PROBE + HEADERS);
                vec![asked.as_secs_f64()]
            }
            Some(_) => self.delays_by_trace(arrivals),
        };
        let check = |of: &dyn Fn(&[f64]) -> f64, chance: f64| {
            let machine = DELAY_TOLERANCE.max(2.0 * of(lateness));
            let (asked, measured) = (of(&asked), of(&delays));
            self.check(Property::Delay, asked, measured, machine + chance)
        };
        let jitter = self.config.jitter;
        if !jitter.spread.is_zero() {
            let spread = jitter.spread.as_secs_f64();
            let chance = match jitter.reorder {
                true => CONFIDENCE * spread / (delays.len() as f64).sqrt(),
                // Half a second shows but a piece of a slow walk.
                false => spread,
            };
            let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
            return check(&mean, chance);
        }
        let typical = check(&|times| quantile(times, 0.5).unwrap_or(f64::NAN), 0.0);
        if self.config.trace.is_some() {
            return typical;
        }
        let shortest = check(&|times| quantile(times, 0.0).unwrap_or(f64::NAN), 0.0);
        match shortest.passes() {
            true => typical,
            false => shortest,
        }
    }

    /// How long the model takes for the probes that arrived.
    fn delays_by_trace(&self, arrivals: &[Arrival]) -> Vec<f64> {
        let exact = Config {
            jitter: Jitter::NONE,
            loss: Loss::None,
            ..self.config.clone()
        };
        let mut link = Link::new(exact, 0);
        link.begin(self.epoch);
        let mut sent: Vec<_> = arrivals.iter().map(Arrival::sent).collect();
        sent.sort_unstable();
        for sent in sent {
            // Probes of one burst fit any queue.
            let _ = link.handle_packet(PROBE + HEADERS, sent, sent);
        }
        let mut delays = Vec::new();
        while let Some(at) = link.poll_timeout() {
            let arrived = std::iter::from_fn(|| link.poll_output(at));
            delays.extend(arrived.map(|sent| (at - sent).as_secs_f64()));
        }
        delays
    }

    /// What to send to measure the loss, with at least `gap` in between; `None` if it depends on
    /// the moment.
    #[must_use]
    pub fn loss_burst(&self, gap: Duration) -> Option<Burst> {
        self.asked_loss()?;
        // At most half of the rate, so that nothing is lost in the queue.
        let gap = gap.max(self.config.wire_time(PROBE + HEADERS) * 2);
        let gap = gap.max(self.config.trace.as_ref().map_or(gap, |_| TRACE_GAP));
        Some(Burst {
            count: (LOSS_TIME.as_nanos() / gap.as_nanos()) as u32,
            gap,
            payload: PROBE,
        })
    }

    fn asked_loss(&self) -> Option<f64> {
        let asked = match self.config.outage {
            true => Some(1.0),
            false => self.config.loss.ratio(),
        };
        asked.filter(|_| !self.loses_by_trace())
    }

    /// The loss, if so many of the burst arrived.
    #[must_use]
    pub fn loss(&self, burst: Burst, arrived: usize) -> Option<Check> {
        let asked = self.asked_loss()?;
        let measured = 1.0 - arrived as f64 / f64::from(burst.count);
        let tolerance = loss_tolerance(&self.config.loss, asked, burst.count);
        Some(self.check(Property::Loss, asked, measured, tolerance))
    }

    fn loses_by_trace(&self) -> bool {
        let steps = self.config.trace.iter().flat_map(|trace| trace.steps());
        steps.into_iter().any(|step| step.passage == Passage::Lost)
    }

    /// More than the link carries, for `least` at least; `None` if nothing says how much that is.
    #[must_use]
    pub fn rate_burst(&self, least: Duration) -> Option<Burst> {
        let payload = self.config.mtu.min(1500) - HEADERS;
        let (rate, span) = match &self.config.trace {
            _ if self.config.outage => return None,
            Some(_) if self.loses_by_trace() => return None,
            Some(_) => (self.most_by_trace()?, RATE_TIME_MOST),
            None => (self.config.rate?, self.rate_time()),
        };
        let wire_time = rate.time_for(payload + HEADERS + self.config.frame_overhead);
        let span = span.max(wire_time * 40).max(least);
        let gap = wire_time.mul_f64(0.8);
        Some(Burst {
            count: (span.as_nanos() / gap.as_nanos()) as u32,
            gap,
            payload,
        })
    }

    /// How long a steady rate is offered, for jitter to be as small as the tolerance.
    fn rate_time(&self) -> Duration {
        let needed = self.most_apart().div_f64(RATE_TOLERANCE);
        needed.clamp(RATE_TIME, RATE_TIME_MOST)
    }

    /// How much the delays of two packets differ by jitter at most.
    fn most_apart(&self) -> Duration {
        self.config.jitter.reach() * 2
    }

    fn most_by_trace(&self) -> Option<sennit_netem::Bitrate> {
        let steps = self.config.trace.iter().flat_map(|trace| trace.steps());
        let rates = steps.filter_map(|step| step.rate);
        rates.chain(self.config.rate).max()
    }

    /// The rate, by what arrived of [`Self::rate_burst`].
    #[must_use]
    pub fn rate(&self, burst: Burst, arrivals: &[Arrival]) -> Check {
        // The first fifth fills the queue; from then on the wire is never idle.
        let steady = arrivals.get(arrivals.len() / 5..).unwrap_or_default();
        let [first, .., last] = steady else {
            let most = self
                .most_by_trace()
                .map_or(0.0, |rate| rate.as_bps() as f64);
            return self.check(Property::Rate, most / 8.0, 0.0, 0.0);
        };
        // Loss thins the stream, but what is lost has used the rate too.
        let survive = 1.0 - self.config.loss.ratio().unwrap_or(0.0);
        let frame = (burst.payload + HEADERS + self.config.frame_overhead) as f64;
        let frames = (steady.len() - 1) as f64 / survive;
        let chance = loss_tolerance(&self.config.loss, 1.0 - survive, burst.count) / survive;
        let jitter = self.most_apart().as_secs_f64();
        let Some(trace) = &self.config.trace else {
            let asked = self.config.rate.map_or(0.0, |rate| rate.as_bps() as f64) / 8.0;
            let span = (last.at - first.at).as_secs_f64();
            let tolerance = asked * (RATE_TOLERANCE + chance + jitter / span);
            return self.check(Property::Rate, asked, frames * frame / span, tolerance);
        };
        let [from, to] = [first, last].map(|arrival| self.left_wire(arrival));
        let span = (to - from).as_secs_f64();
        let asked = trace.bytes_between(from, to, self.config.rate) as f64 / span;
        // A slow stretch may begin and end in the middle of a packet.
        let tolerance = asked * (RATE_TOLERANCE + chance + jitter / span) + 2.0 * frame / span;
        self.check(Property::Rate, asked, frames * frame / span, tolerance)
    }

    /// When after the beginning of the trace a packet's last bit left.
    fn left_wire(&self, arrival: &Arrival) -> Duration {
        let arrived = arrival.at.saturating_duration_since(self.epoch);
        let left = arrived.saturating_sub(self.config.delay);
        let trace = self.config.trace.as_ref();
        // The extra delay is that of the moment when it left, which is so much earlier.
        let extra = |at| trace.map_or(Duration::ZERO, |trace| trace.at(at).delay);
        left.saturating_sub(extra(left.saturating_sub(extra(left))))
    }

    /// After this time nothing arrives any more but what is late.
    #[must_use]
    pub fn longest_way(&self) -> Duration {
        let rate = self.config.rate;
        let queue = rate.map_or(Duration::ZERO, |rate| {
            rate.time_for(self.config.queue_limit())
        });
        let trace = self.config.trace.as_ref();
        let by_trace = trace.map_or(Duration::ZERO, |trace| {
            let [_, most] = trace.delays();
            trace.longest_silence() + most
        });
        queue + self.config.delay * 2 + by_trace + self.config.jitter.reach()
    }
}

/// How far the lost share of `count` packets may be from the asked one by chance.
#[must_use]
pub fn loss_tolerance(loss: &Loss, ratio: f64, count: u32) -> f64 {
    let correlation = match *loss {
        Loss::GilbertElliott { p, r, .. } => 1.0 - p - r,
        Loss::None | Loss::Random(_) | Loss::Exact(_) | Loss::Sizes(_) => 0.0,
    };
    // The variance of a mean of terms whose correlation falls off geometrically.
    let inflation = (1.0 + correlation) / (1.0 - correlation).max(1e-6);
    CONFIDENCE * (ratio * (1.0 - ratio) * inflation / f64::from(count)).sqrt()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use sennit_netem::{Bitrate, Step, Trace};

    const MS: Duration = Duration::from_millis(1);

    fn subject(config: &Config) -> Subject<'_> {
        Subject {
            link: "a",
            direction: Direction::Up,
            config,
            epoch: Instant::now(),
        }
    }

    /// A burst by the model itself, each packet late by so much.
    fn through(config: &Config, burst: Burst, late: Duration) -> Vec<Arrival> {
        let mut link = Link::new(config.clone(), 7);
        let (start, mut arrivals) = (Instant::now(), Vec::new());
        for number in 0..burst.count {
            let sent = start + burst.gap * number;
            let _ = link.handle_packet(burst.payload + HEADERS, sent, sent);
        }
        while let Some(at) = link.poll_timeout() {
            while let Some(sent) = link.poll_output(at) {
                let delay = at + late - sent;
                arrivals.push(Arrival {
                    delay,
                    at: at + late,
                });
            }
        }
        arrivals
    }

    #[test]
    fn a_link_that_is_as_asked_passes_and_one_that_is_not_does_not() {
        let asked = Config {
            rate: Some(Bitrate::mbit(20)),
            delay: 15 * MS,
            loss: Loss::Random(0.02),
            ..Config::default()
        };
        let slower = Config {
            rate: Some(Bitrate::mbit(19)),
            loss: Loss::Random(0.05),
            ..asked.clone()
        };
        let subject = subject(&asked);
        let (loss, rate) = (subject.loss_burst(100 * MS / 1000), subject.rate_burst(MS));
        let (loss, rate) = (loss.expect("it is fixed"), rate.expect("there is one"));
        for (config, late, is_good) in [(&asked, MS / 10, true), (&slower, MS / 2, false)] {
            let delays = through(config, DELAY_BURST, late);
            let checks = [
                subject.delay(&delays, &[0.0], false),
                subject.rate(rate, &through(config, rate, late)),
                subject
                    .loss(loss, through(config, loss, late).len())
                    .expect("it is fixed"),
            ];
            for check in checks {
                assert_eq!(check.passes(), is_good, "{check}");
            }
        }
    }

    #[test]
    fn a_loss_that_chance_could_spare_is_not_called_good() {
        let verdict = |percent: f64, mbit| {
            let config = Config {
                rate: Some(Bitrate::mbit(mbit)),
                loss: Loss::Random(percent / 100.0),
                ..Config::default()
            };
            let subject = subject(&config);
            let burst = subject.loss_burst(100 * MS / 1000).expect("it is fixed");
            let lossless = Config {
                loss: Loss::None,
                ..config.clone()
            };
            let arrived = through(&lossless, burst, Duration::ZERO).len();
            let check = subject.loss(burst, arrived).expect("it is fixed");
            (check.passes(), check.tells(), check.to_string())
        };
        // At 100 Mbit/s ten thousand probes fit into the second of a check.
        let (passes, tells, text) = verdict(0.1, 100);
        assert!(passes && !tells && text.ends_with(TOO_FEW), "{text}");
        let (passes, tells, text) = verdict(1.0, 100);
        assert!(!passes && tells && text.ends_with("WRONG"), "{text}");
        let (passes, tells, text) = verdict(0.0, 100);
        assert!(passes && tells && text.ends_with("ok"), "{text}");
    }

    #[test]
    fn much_jitter_hides_no_wrong_rate() {
        let asked = Config {
            rate: Some(Bitrate::mbit(20)),
            delay: 150 * MS,
            jitter: Jitter {
                spread: 125 * MS,
                ..Jitter::NONE
            },
            ..Config::default()
        };
        let slower = Config {
            rate: Some(Bitrate::mbit(16)),
            ..asked.clone()
        };
        let subject = subject(&asked);
        let burst = subject.rate_burst(MS).expect("there is a rate");
        for (config, is_good) in [(&asked, true), (&slower, false)] {
            let check = subject.rate(burst, &through(config, burst, Duration::ZERO));
            assert_eq!(check.passes(), is_good, "{check}");
        }
    }

    /// What came after a silence, or with more than the usual delay, was not waited for, and a link
    /// that lost nothing seemed to.
    #[test]
    fn whatever_moves_a_link_nothing_comes_later_than_the_longest_way() {
        let slow = Step {
            delay: 400 * MS,
            ..Step::at(100 * MS, Bitrate::mbit(20))
        };
        let silent = [Step::held(700 * MS), Step::held(200 * MS)];
        let steps = [slow].into_iter().chain(silent).collect();
        let trace = Trace::new("moves", steps).expect("a step sends");
        let config = Config {
            delay: 5 * MS,
            jitter: Jitter {
                spread: 60 * MS,
                reorder: true,
                ..Jitter::NONE
            },
            ..Config::default()
        }
        .moving(Arc::new(trace));
        let subject = subject(&config);
        let arrivals = through(
            &config,
            subject.loss_burst(MS).expect("it is fixed"),
            Duration::ZERO,
        );
        let longest = arrivals.iter().map(|arrival| arrival.delay).max();
        let longest = longest.expect("some arrive");
        assert!(longest > 1250 * MS, "{longest:?}");
        assert!(longest <= subject.longest_way(), "{longest:?}");
    }

    #[test]
    fn a_measurement_that_is_no_number_does_not_pass() {
        let config = Config::default();
        assert!(!subject(&config).delay(&[], &[0.0], false).passes());
        assert!(
            !subject(&config)
                .check(Property::Delay, 0.01, f64::NAN, 1.0)
                .passes()
        );
    }

    #[test]
    fn a_machine_that_is_late_hides_no_wrong_delay() {
        let asked = Config {
            delay: 5 * MS,
            ..Config::default()
        };
        let longer = Config {
            delay: 25 * MS,
            ..asked.clone()
        };
        let subject = subject(&asked);
        let late = |number: usize| MS * (number as u32 * 7 % 51);
        for (config, is_good) in [(&asked, true), (&longer, false)] {
            let mut arrivals = through(config, DELAY_BURST, Duration::ZERO);
            for (number, arrival) in arrivals.iter_mut().enumerate() {
                arrival.delay += late(number);
                arrival.at += late(number);
            }
            let lateness: Vec<_> = (0..100).map(|number| late(number).as_secs_f64()).collect();

            let check = subject.delay(&arrivals, &lateness, false);

            assert_eq!(check.passes(), is_good, "{check}");
        }
    }

    #[test]
    fn bursts_widen_the_interval_of_the_loss() {
        let random = loss_tolerance(&Loss::Random(0.01), 0.01, 10_000);
        let bursts = loss_tolerance(&Loss::bursts(0.01, 5.0), 0.01, 10_000);

        assert!((random - 4.0 * (0.01 * 0.99 / 1e4_f64).sqrt()).abs() < 1e-12);
        assert!(bursts > 2.9 * random && bursts < 3.1 * random);
    }
}
