//! Whether the links of a step did what they were asked to do. On a machine that is too busy
//! packets leave them late, or are lost before them, and what was measured is of that machine.

use sennit_load::FINE_BIN;
use serde::Deserialize;

use super::{Results, StepResult};
use crate::emulator::Strain;
use crate::selfcheck::{Check, Property};

/// A packet may be late by this part of the shortest delay of all links.
const PART: f64 = 0.5;

/// What a packet may be late on the shortest link, in seconds: the strain counts what is later.
const LEAST: f64 = 1e-3;

/// The part of a step in `results.json` that says how exact it was.
#[derive(Debug, Deserialize)]
pub(crate) struct Exactness {
    name: String,
    strain: Strain,
    overruns: u64,
}

/// How late a packet may leave links that were measured like this, in seconds: on the longest ones
/// by a bin of those in which gaps are looked for.
pub(crate) fn tolerable(checks: &[Check]) -> f64 {
    // A token bucket has no delay, and nothing of ours that could be late.
    let delays = checks
        .iter()
        .filter(|it| it.property == Property::Delay && it.asked > 0.0)
        .map(|it| it.asked);
    let shortest = delays.fold(f64::INFINITY, f64::min);
    (PART * shortest).clamp(LEAST, FINE_BIN.as_secs_f64())
}

/// Whether a step was exact in all runs; what nobody emulated was.
pub(crate) fn all_exact(steps: &[Exactness], name: &str, checks: &[Check]) -> bool {
    let tolerable = tolerable(checks);
    let mut runs = steps.iter().filter(|step| step.name == name);
    runs.all(|run| is_exact(&run.strain, run.overruns, tolerable))
}

fn is_exact(strain: &Strain, overruns: u64, tolerable: f64) -> bool {
    overruns == 0 && strain.late_max_seconds <= tolerable
}

impl Results {
    /// What makes figures of some steps worthless.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let tolerable = tolerable(&self.self_check);
        let steps = self.steps.iter();
        steps
            .filter_map(|step| step.inexactness(tolerable))
            .collect()
    }

    /// Whether a step was exact in all runs.
    pub(super) fn is_exact(&self, step: &str) -> bool {
        let tolerable = tolerable(&self.self_check);
        let mut runs = self.steps.iter().filter(|run| run.name == step);
        runs.all(|run| run.inexactness(tolerable).is_none())
    }
}

impl StepResult {
    /// What makes its figures worthless, if anything does.
    fn inexactness(&self, tolerable: f64) -> Option<String> {
        (!is_exact(&self.strain, self.overruns, tolerable)).then(|| {
            format!(
                "{}: NOT EXACT, this machine was too busy: packets left a link up to {:.1} ms \
                 late ({:.1} are tolerable with these links), {} were dropped before it",
                self.title(),
                self.strain.late_max_seconds * 1e3,
                tolerable * 1e3,
                self.overruns
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use sennit_netem::Direction;

    use super::*;

    /// Of links with these delays in seconds.
    fn checks(delays: &[f64]) -> Vec<Check> {
        let check = |asked: &f64| Check {
            link: "a".into(),
            direction: Direction::Up,
            property: Property::Delay,
            asked: *asked,
            measured: *asked,
            tolerance: 3e-4,
        };
        delays.iter().map(check).collect()
    }

    #[test]
    fn how_late_a_packet_may_be_depends_on_the_shortest_link() {
        for (delays, milliseconds) in [
            (&[0.010, 0.030][..], 5.0),
            (&[0.001][..], 1.0),
            (&[0.300][..], 10.0),
            (&[0.0, 0.015][..], 7.5),
            (&[][..], 10.0),
        ] {
            let found = tolerable(&checks(delays)) * 1e3;
            assert!((found - milliseconds).abs() < 1e-9, "{delays:?}: {found}");
        }
    }

    #[test]
    fn one_inexact_run_makes_a_step_inexact() {
        let step = |name: &str, late_max_seconds, overruns| Exactness {
            name: name.into(),
            strain: Strain {
                late_max_seconds,
                ..Strain::default()
            },
            overruns,
        };
        let steps = [
            step("good", 0.001, 0),
            step("late", 0.001, 0),
            step("lossy", 0.001, 0),
            step("good", 0.004, 0),
            step("late", 0.0069, 0),
            step("lossy", 0.001, 1),
        ];

        let exact = |name: &str| all_exact(&steps, name, &checks(&[0.01]));

        assert_eq!(["good", "late", "lossy"].map(exact), [true, false, false]);
        assert!(exact("never played"));
    }
}
