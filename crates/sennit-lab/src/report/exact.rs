//! Whether the links of a step did what they were asked to do. On a machine that is too busy
//! packets leave them late, or are lost before them, and what was measured is of that machine.

use sennit_load::FINE_BIN;
use serde::Deserialize;

use super::{Results, StepResult};
use crate::emulator::Strain;
use crate::selfcheck::{Check, Property};

/// A packet may be late by this part of the shortest delay of all links.
const PART: f64 = 0.5;

/// What a packet may be late on the shortest link, in milliseconds: what is later is counted.
const LEAST: usize = 1;

/// The part of a step's packets that may be later: a tenth of what a percentile of 99 leaves out.
const SHARE: f64 = 1e-3;

/// The part of a step in `results.json` that says how exact it was.
#[derive(Debug, Deserialize)]
pub(crate) struct Exactness {
    name: String,
    strain: Strain,
    overruns: u64,
}

/// How late a packet may leave links that were measured like this, in milliseconds: on the longest
/// ones by a bin of those in which gaps are looked for.
fn tolerable(checks: &[Check]) -> usize {
    // A token bucket has no delay, and nothing of ours that could be late.
    let delays = checks
        .iter()
        .filter(|it| it.property == Property::Delay && it.asked > 0.0)
        .map(|it| it.asked);
    let shortest = delays.fold(f64::INFINITY, f64::min);
    // What is half of a whole number of them may come out a little less.
    let milliseconds = (PART * shortest * 1e3 + 1e-6) as usize;
    milliseconds.clamp(LEAST, FINE_BIN.as_millis() as usize)
}

/// Whether a step was exact in all runs; what nobody emulated was.
pub(crate) fn all_exact(steps: &[Exactness], name: &str, checks: &[Check]) -> bool {
    let tolerable = tolerable(checks);
    let mut runs = steps.iter().filter(|step| step.name == name);
    runs.all(|run| is_exact(&run.strain, run.overruns, tolerable))
}

/// A moment in which the machine was busy spoils a short step, and not an hour.
fn is_exact(strain: &Strain, overruns: u64, tolerable: usize) -> bool {
    let none_is_late = strain.late_max_seconds * 1e3 <= tolerable as f64;
    overruns == 0 && (none_is_late || strain.late_ratio(tolerable) <= SHARE)
}

/// What makes figures worthless of links that were measured like this, if anything does.
pub(crate) fn inexactness(strain: &Strain, overruns: u64, checks: &[Check]) -> Option<String> {
    why_inexact(strain, overruns, tolerable(checks))
}

fn why_inexact(strain: &Strain, overruns: u64, tolerable: usize) -> Option<String> {
    (!is_exact(strain, overruns, tolerable)).then(|| {
        format!(
            "NOT EXACT, this machine was too busy: {:.2} % of the packets waited before a link or \
             left it over {tolerable} ms late ({:.1} % are tolerable), the latest by {:.1} ms, and \
             {overruns} were dropped before it",
            strain.late_ratio(tolerable) * 1e2,
            SHARE * 1e2,
            strain.late_max_seconds * 1e3,
        )
    })
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
    fn inexactness(&self, tolerable: usize) -> Option<String> {
        let why = why_inexact(&self.strain, self.overruns, tolerable)?;
        Some(format!("{}: {why}", self.title()))
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
            (&[0.010, 0.030][..], 5),
            (&[0.001][..], 1),
            (&[0.300][..], 10),
            (&[0.0, 0.015][..], 7),
            (&[][..], 10),
        ] {
            assert_eq!(tolerable(&checks(delays)), milliseconds, "{delays:?}");
        }
    }

    #[test]
    fn what_is_said_of_a_busy_machine_has_the_figures() {
        let strain = |late| Strain {
            packets: 1000,
            packets_over_ms: [late; 10],
            late_max_seconds: 0.0123,
            ..Strain::default()
        };

        assert_eq!(inexactness(&strain(1), 0, &checks(&[0.01])), None);
        let said = inexactness(&strain(20), 3, &checks(&[0.01])).expect("many were late");
        let figures = [
            "NOT EXACT",
            "2.00 %",
            "over 5 ms",
            "12.3 ms",
            "3 were dropped",
        ];
        for figure in figures {
            assert!(said.contains(figure), "{figure}: {said}");
        }
    }

    #[test]
    fn one_inexact_run_makes_a_step_inexact() {
        let step = |name: &str, late_max_seconds, overruns| Exactness {
            name: name.into(),
            strain: Strain {
                batches: 9,
                over_1ms: 1,
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

    #[test]
    fn a_late_batch_spoils_a_short_step_and_not_a_long_one() {
        let late = |packets, packets_over_ms| Strain {
            late_max_seconds: 0.033,
            packets,
            packets_over_ms,
            ..Strain::default()
        };
        // Of earlier builds.
        let batches = |batches| Strain {
            late_max_seconds: 0.033,
            batches,
            over_1ms: 27,
            ..Strain::default()
        };
        let stall = [900; 10];
        let mostly_little = [9_000, 9_000, 9_000, 9_000, 9, 9, 9, 9, 9, 9];
        for (strain, tolerable, expected) in [
            (late(15_000_000, stall), 5, true),
            (late(200_000, stall), 5, false),
            (late(200_000, mostly_little), 5, true),
            (late(200_000, mostly_little), 4, false),
            (batches(190_000), 5, true),
            (batches(9_000), 5, false),
        ] {
            assert_eq!(is_exact(&strain, 0, tolerable), expected, "{strain:?}");
            assert!(!is_exact(&strain, 1, tolerable), "lost before the link");
        }
    }
}
