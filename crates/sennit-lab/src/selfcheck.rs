//! Measures every link with a rate or a delay before anything is reported about what runs on it.
//!
//! What probes must find is said by [`sennit_load::selfcheck`]. A machine that is late for more
//! than the delay may be off, measured without any link at the same time, is not taken for a wrong
//! link: each step reports how late it was.

mod machine;
mod probe;

use std::thread;
use std::time::{Duration, Instant};

use sennit_load::selfcheck::{Arrival, DELAY_BURST, Subject};
pub use sennit_load::selfcheck::{Check, Property};
use sennit_netem::Direction;

use crate::error::{Doing, Error};
use crate::lab::{Lab, LinkHandle};
use crate::link::Kind;
use probe::Probe;

/// A host that is busy for a moment makes everything late; a link that is wrong stays so.
const ATTEMPTS: usize = 8;
const PAUSE: Duration = Duration::from_secs(1);

/// Directions probed at the same time: each has a sender and a receiver that the CPU must not
/// forget.
const TOGETHER: usize = 32;

/// Of links that are probed at the same time for more than they carry, in each direction.
const RATE_TOGETHER: f64 = 100e6;

/// Between two probes of all directions together: as fast as any machine can.
const LOSS_GAP: Duration = Duration::from_micros(25);

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
        // Both directions of a shared link are one wire, which one of them fills.
        let ways = if link.spec().shared { 1 } else { 2 };
        for direction in Direction::BOTH.into_iter().take(ways) {
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
    fn subject(&self) -> Subject<'_> {
        Subject {
            link: &self.link,
            direction: self.direction,
            config: &self.config,
            epoch: self.epoch,
        }
    }

    fn delays(&self) -> std::io::Result<Option<(&Self, Vec<Arrival>)>> {
        if self.config.outage {
            return Ok(None);
        }
        Ok(Some((self, self.exchange(DELAY_BURST)?)))
    }

    fn check_delay(&self, arrivals: &[Arrival], lateness: &[f64]) -> Check {
        let has_saved = self.kind == Kind::Tbf;
        self.subject().delay(arrivals, lateness, has_saved)
    }

    fn check_loss(&self, gap: Duration) -> std::io::Result<Option<Check>> {
        let Some(burst) = self.subject().loss_burst(gap) else {
            return Ok(None);
        };
        let arrived = self.exchange(burst)?.len();
        Ok(self.subject().loss(burst, arrived))
    }

    fn check_rate(&self) -> std::io::Result<Option<Check>> {
        // A quarter more than the rate empties the bucket within the first fifth.
        let Some(burst) = self.subject().rate_burst(20 * self.bucket) else {
            return Ok(None);
        };
        let arrivals = self.exchange(burst)?;
        Ok(Some(self.subject().rate(burst, &arrivals)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_property_is_an_error_with_both_figures() {
        let check = |property, asked, measured, tolerance| Check {
            link: "a".into(),
            direction: Direction::Up,
            property,
            asked,
            measured,
            tolerance,
        };
        let right = check(Property::Rate, 1e6, 1.01e6, 0.02e6);
        let wrong = check(Property::Delay, 0.010, 0.0108, 0.3e-3);

        assert!(verdict(std::slice::from_ref(&right)).is_ok());
        let error = verdict(&[right, wrong])
            .expect_err("the delay is off")
            .to_string();

        assert!(
            error.contains("asked 10.000 ms, measured 10.800 (± 0.300): WRONG"),
            "{error}"
        );
    }
}
