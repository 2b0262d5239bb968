//! Measures every link with a rate or a delay before anything is reported about what runs on it.
//!
//! UDP probes with send times go through each direction: a few on a quiet link for the delay, many
//! small ones for the loss, then more than fits for the rate. Both ends are on one machine, so one
//! clock tells the one-way delay. What is measured must be what was asked: the rate within 2 %,
//! the delay within 0.3 ms, the loss within its confidence interval. A machine that is late for
//! more than that, measured without any link at the same time, is not taken for a wrong link: each
//! step reports how late it was.
//!
//! A link that follows a trace is measured against what the trace says of those moments: the delays
//! that the probes should have had, and the area under the rate while too many were offered.

mod machine;
mod probe;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use sennit_load::quantile;
use sennit_netem::{Config, Direction, Jitter, Link, Loss, Passage};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error};
use crate::lab::Lab;
use crate::link::{Kind, LinkHandle};
use probe::{Arrival, Burst, HEADERS, PROBE, Probe};

const RATE_TOLERANCE: f64 = 0.02;
const DELAY_TOLERANCE: f64 = 0.3e-3;

/// Standard deviations that chance may take: one false alarm in 16 000 checks.
const CONFIDENCE: f64 = 4.0;

/// A host that is busy for a moment makes everything late; a link that is wrong stays so.
const ATTEMPTS: usize = 8;
const PAUSE: Duration = Duration::from_secs(1);

/// Half a second of small packets.
const DELAY_BURST: Burst = Burst {
    count: 100,
    gap: Duration::from_millis(5),
    payload: PROBE,
};

/// Directions probed at the same time: each has a sender and a receiver that the CPU must not
/// forget.
const TOGETHER: usize = 32;

/// Of links that are probed at the same time for more than they carry, in each direction.
const RATE_TOGETHER: f64 = 100e6;

/// How long the loss is measured.
const LOSS_TIME: Duration = Duration::from_secs(1);

/// Between two probes for the loss of a link that may be slow at times: 64 kbit/s.
const TRACE_GAP: Duration = Duration::from_millis(7);

/// How long a link that moves is offered more than it carries.
const TRACE_TIME: Duration = Duration::from_secs(3);

/// Between two probes of all directions together: as fast as any machine can.
const LOSS_GAP: Duration = Duration::from_micros(25);

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
    pub(crate) fn scale(self) -> (f64, &'static str) {
        match self {
            Self::Rate => (8e-6, "Mbit/s"),
            Self::Delay => (1e3, "ms"),
            Self::Loss => (1e2, "%"),
        }
    }
}

impl Check {
    /// Whether the link is as asked.
    pub fn passes(&self) -> bool {
        (self.measured - self.asked).abs() <= self.tolerance
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = self.property.scale();
        let [asked, measured, tolerance] =
            [self.asked, self.measured, self.tolerance].map(|value| value * scale);
        let verdict = if self.passes() { "ok" } else { "WRONG" };
        let (link, direction, property) = (&self.link, self.direction, self.property);
        write!(
            f,
            "{link} {direction:?} {property:?}: asked {asked:.3} {unit}, measured {measured:.3} \
             (± {tolerance:.3}): {verdict}"
        )
    }
}

/// Measures all links but unshaped ones and sets them back to their start. What is not as asked is
/// measured again, a few times.
pub fn run(lab: &Lab) -> Result<Vec<Check>, Error> {
    let epoch = lab.begin_traces();
    let probes = probes(lab, epoch)?;
    let mut checks = Vec::new();
    for some in probes.chunks(TOGETHER) {
        checks.extend(patiently(|| check_delays(some))?);
        let gap = LOSS_GAP * some.len() as u32;
        checks.extend(patiently(|| together(some, |probe| probe.check_loss(gap)))?);
    }
    // Both directions of a link together, and no more links than are slow: the CPU is shared.
    let mut rest = &probes[..];
    while !rest.is_empty() {
        let (some, others) = rest.split_at(slow(rest));
        checks.extend(patiently(|| together(some, Probe::check_rate))?);
        rest = others;
    }
    lab.restart_links();
    Ok(checks)
}

/// How many of the first probes may offer their rates at the same time: at least one link's.
fn slow(probes: &[Probe]) -> usize {
    let mut sum = 0.0;
    let fits = probes.chunks(2).take_while(|link| {
        let bps = |probe: &Probe| probe.config.rate.map_or(0.0, |rate| rate.as_bps() as f64);
        sum += link.iter().map(bps).fold(0.0, f64::max);
        sum <= RATE_TOGETHER
    });
    (2 * fits.count().max(1)).min(TOGETHER).min(probes.len())
}

/// Delays of the links, and at the same time how late the machine is by itself.
fn check_delays(probes: &[Probe]) -> Result<Vec<Check>, Error> {
    thread::scope(|scope| {
        let machine = scope.spawn(|| machine::lateness(DELAY_BURST));
        let delays = together(probes, Probe::delays)?;
        let lateness = machine.join().expect("taking the time does not panic");
        Ok(delays
            .iter()
            .map(|(probe, delays)| probe.check_delay(delays, &lateness))
            .collect())
    })
}

fn patiently(check: impl Fn() -> Result<Vec<Check>, Error>) -> Result<Vec<Check>, Error> {
    for _ in 1..ATTEMPTS {
        let checks = check()?;
        if checks.iter().all(Check::passes) {
            return Ok(checks);
        }
        thread::sleep(PAUSE);
    }
    check()
}

/// An error that lists every check if one of them does not pass.
pub fn verdict(checks: &[Check]) -> Result<(), Error> {
    if checks.iter().all(Check::passes) {
        return Ok(());
    }
    let lines: Vec<_> = checks.iter().map(Check::to_string).collect();
    Err(Error::SelfCheck(lines.join("\n")))
}

fn probes(lab: &Lab, epoch: Option<Instant>) -> Result<Vec<Probe>, Error> {
    let mut probes = Vec::new();
    for link in lab.links().filter(LinkHandle::is_shaped) {
        for direction in Direction::BOTH {
            probes.push(Probe::new(link, direction, epoch)?);
        }
    }
    Ok(probes)
}

fn together<'a, T: Send>(
    probes: &'a [Probe],
    check: impl Fn(&'a Probe) -> std::io::Result<Option<T>> + Sync,
) -> Result<Vec<T>, Error> {
    let outcomes: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = probes
            .iter()
            .map(|probe| scope.spawn(|| check(probe)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a probe does not panic"))
            .collect()
    });
    let checks = outcomes.into_iter().collect::<std::io::Result<Vec<_>>>();
    Ok(checks
        .doing(|| "probe the links".into())?
        .into_iter()
        .flatten()
        .collect())
}

impl Probe {
    fn check(&self, property: Property, asked: f64, measured: f64, tolerance: f64) -> Check {
        let (link, direction) = (self.link.clone(), self.direction);
        Check {
            link,
            direction,
            property,
            asked,
            measured,
            tolerance,
        }
    }

    fn delays(&self) -> std::io::Result<Option<(&Self, Vec<Arrival>)>> {
        if self.config.outage {
            return Ok(None);
        }
        Ok(Some((self, self.exchange(DELAY_BURST)?)))
    }

    fn check_delay(&self, arrivals: &[Arrival], lateness: &[f64]) -> Check {
        let delays: Vec<f64> = arrivals
            .iter()
            .map(|arrival| arrival.delay.as_secs_f64())
            .collect();
        let asked = match (self.kind, &self.config.trace) {
            (Kind::Emulated | Kind::Veth, None) => {
                let asked = self.config.delay + self.config.wire_time(PROBE + HEADERS);
                vec![asked.as_secs_f64()]
            }
            (Kind::Emulated | Kind::Veth, Some(_)) => self.delays_by_trace(arrivals),
            // Who has not sent for a while has saved up for a packet.
            (Kind::Tbf, _) => vec![0.0],
        };
        let spread = self.config.jitter.spread.as_secs_f64();
        let jitters = spread > 0.0;
        let typical = |times: &[f64]| match jitters {
            true => times.iter().sum::<f64>() / times.len() as f64,
            // The median does not mind that the CPU was elsewhere for some of the probes.
            false => quantile(times, 0.5).unwrap_or(f64::NAN),
        };
        let chance = match (jitters, self.config.jitter.reorder) {
            (false, _) => 0.0,
            (true, true) => CONFIDENCE * spread / (delays.len() as f64).sqrt(),
            // Half a second shows but a piece of a slow walk.
            (true, false) => spread,
        };
        let machine = DELAY_TOLERANCE.max(2.0 * typical(lateness));
        let (asked, measured) = (typical(&asked), typical(&delays));
        self.check(Property::Delay, asked, measured, machine + chance)
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

    fn check_loss(&self, gap: Duration) -> std::io::Result<Option<Check>> {
        let asked = if self.config.outage {
            Some(1.0)
        } else {
            self.config.loss.ratio()
        };
        let Some(asked) = asked.filter(|_| !self.loses_by_trace()) else {
            return Ok(None);
        };
        // At most half of the rate, so that nothing is lost in the queue.
        let gap = gap.max(self.config.wire_time(PROBE + HEADERS) * 2);
        let gap = gap.max(self.config.trace.as_ref().map_or(gap, |_| TRACE_GAP));
        let count = (LOSS_TIME.as_nanos() / gap.as_nanos()) as u32;
        let arrived = self
            .exchange(Burst {
                count,
                gap,
                payload: PROBE,
            })?
            .len();
        let measured = 1.0 - arrived as f64 / f64::from(count);
        let tolerance = loss_tolerance(&self.config.loss, asked, count);
        Ok(Some(self.check(Property::Loss, asked, measured, tolerance)))
    }

    fn loses_by_trace(&self) -> bool {
        let steps = self.config.trace.iter().flat_map(|trace| trace.steps());
        steps.into_iter().any(|step| step.passage == Passage::Lost)
    }

    /// What arrives of more than a moving link carries, beside the area under its rate meanwhile.
    fn check_trace(&self) -> std::io::Result<Option<Check>> {
        let Some(trace) = self.config.trace.as_ref() else {
            return Ok(None);
        };
        if self.config.outage || self.loses_by_trace() {
            return Ok(None);
        }
        let rates = trace.steps().iter().filter_map(|step| step.rate);
        let Some(most) = rates.chain(self.config.rate).max() else {
            return Ok(None);
        };
        let payload = self.config.mtu.min(1500) - HEADERS;
        let frame = payload + HEADERS + self.config.frame_overhead;
        let gap = most.time_for(frame).mul_f64(0.8);
        let count = (TRACE_TIME.as_nanos() / gap.as_nanos()) as u32;
        let arrivals = self.exchange(Burst {
            count,
            gap,
            payload,
        })?;
        let steady = arrivals.get(arrivals.len() / 5..).unwrap_or_default();
        let [first, .., last] = steady else {
            return Ok(Some(self.check(
                Property::Rate,
                most.as_bps() as f64 / 8.0,
                0.0,
                0.0,
            )));
        };
        let [from, to] = [first, last].map(|arrival| self.left_wire(arrival));
        let span = (to - from).as_secs_f64();
        let asked = trace.bytes_between(from, to, self.config.rate) as f64 / span;
        let survive = 1.0 - self.config.loss.ratio().unwrap_or(0.0);
        let measured = (steady.len() - 1) as f64 / survive * frame as f64 / span;
        let chance = loss_tolerance(&self.config.loss, 1.0 - survive, count) / survive;
        let stretch = CONFIDENCE * self.config.jitter.spread.as_secs_f64() / span;
        // A slow stretch may begin and end in the middle of a packet.
        let tolerance = asked * (RATE_TOLERANCE + chance + stretch) + 2.0 * frame as f64 / span;
        Ok(Some(self.check(Property::Rate, asked, measured, tolerance)))
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

    fn check_rate(&self) -> std::io::Result<Option<Check>> {
        if self.config.trace.is_some() {
            return self.check_trace();
        }
        let Some(rate) = self.config.rate.filter(|_| !self.config.outage) else {
            return Ok(None);
        };
        let payload = self.config.mtu.min(1500) - HEADERS;
        let wire_time = self.config.wire_time(payload + HEADERS);
        // Loss thins the stream, but what is lost has used the rate too.
        let survive = 1.0 - self.config.loss.ratio().unwrap_or(0.0);
        let span = Duration::from_millis(500).max(wire_time * 40);
        // A quarter more than the rate empties the bucket within the first fifth.
        let span = span.max(20 * self.bucket);
        let gap = wire_time.mul_f64(0.8);
        let count = (span.as_nanos() / gap.as_nanos()) as u32;
        let arrivals = self.exchange(Burst {
            count,
            gap,
            payload,
        })?;
        // The first fifth fills the queue; from then on the wire is never idle.
        let steady = arrivals.get(arrivals.len() / 5..).unwrap_or_default();
        let measured = match steady {
            [first, .., last] => {
                let frames = (steady.len() - 1) as f64 / survive;
                let frame = (payload + HEADERS + self.config.frame_overhead) as f64;
                frames * frame / (last.at - first.at).as_secs_f64()
            }
            _ => 0.0,
        };
        let asked = rate.as_bps() as f64 / 8.0;
        let chance = loss_tolerance(&self.config.loss, 1.0 - survive, count) / survive;
        // The delays of the first and the last packet differ by some spreads of the jitter.
        let stretch = CONFIDENCE * self.config.jitter.spread.as_secs_f64() / span.as_secs_f64();
        let tolerance = asked * (RATE_TOLERANCE + chance + stretch);
        Ok(Some(self.check(Property::Rate, asked, measured, tolerance)))
    }
}

/// How far the lost share of `count` packets may be from the asked one by chance.
fn loss_tolerance(loss: &Loss, ratio: f64, count: u32) -> f64 {
    let correlation = match *loss {
        Loss::GilbertElliott { p, r, .. } => 1.0 - p - r,
        Loss::None | Loss::Random(_) | Loss::Exact(_) => 0.0,
    };
    // The variance of a mean of terms whose correlation falls off geometrically.
    let inflation = (1.0 + correlation) / (1.0 - correlation).max(1e-6);
    CONFIDENCE * (ratio * (1.0 - ratio) * inflation / f64::from(count)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(property: Property, asked: f64, measured: f64, tolerance: f64) -> Check {
        let (link, direction) = ("a".to_owned(), Direction::Up);
        Check {
            link,
            direction,
            property,
            asked,
            measured,
            tolerance,
        }
    }

    #[test]
    fn one_wrong_property_is_an_error_with_both_figures() {
        let right = check(Property::Rate, 1e6, 1.01e6, 0.02e6);
        let wrong = check(Property::Delay, 0.010, 0.0108, DELAY_TOLERANCE);

        assert!(verdict(std::slice::from_ref(&right)).is_ok());
        let error = verdict(&[right, wrong])
            .expect_err("the delay is off")
            .to_string();

        assert!(
            error.contains("asked 10.000 ms, measured 10.800 (± 0.300): WRONG"),
            "{error}"
        );
    }

    #[test]
    fn a_measurement_that_is_no_number_does_not_pass() {
        assert!(!check(Property::Delay, 0.01, f64::NAN, 1.0).passes());
    }

    #[test]
    fn bursts_widen_the_interval_of_the_loss() {
        let random = loss_tolerance(&Loss::Random(0.01), 0.01, 10_000);
        let bursts = loss_tolerance(&Loss::bursts(0.01, 5.0), 0.01, 10_000);

        assert!((random - 4.0 * (0.01 * 0.99 / 1e4_f64).sqrt()).abs() < 1e-12);
        assert!(bursts > 2.9 * random && bursts < 3.1 * random);
    }
}
