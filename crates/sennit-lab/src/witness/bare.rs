//! How much goes over a pair of devices with nothing between them.

use super::line::{Alike, Found, Line};
use super::tool::{Tester, ours};
use super::{LINK, WARM_UP, figures, played, steady};
use crate::error::Error;
use crate::host::Role;
use crate::plan;
use crate::scenario::Scenario;
use crate::tunnel::Programs;

/// What is enough, whatever quinn carries, in Mbit/s.
const ENOUGH: f64 = 2500.0;

/// What `sennit test` carries, and what others carry the same way.
struct Filled {
    what: &'static str,
    arguments: [&'static str; 2],
    /// Their steps, and what they are called in tables.
    others: &'static [(&'static str, &'static str)],
}

const LOADS: [Filled; 3] = [
    Filled {
        what: "down",
        arguments: ["--direction", "down"],
        others: &[("tcp down", "iperf3, TCP"), ("quic down", "plain quinn")],
    },
    Filled {
        what: "up",
        arguments: ["--direction", "up"],
        others: &[("tcp up", "iperf3, TCP"), ("quic up", "plain quinn")],
    },
    Filled {
        what: "down, both CUBIC",
        arguments: ["--cc", "cubic"],
        others: &[],
    },
];

/// One round of all loads.
pub(super) fn measure(
    seconds: u32,
    programs: &Programs,
) -> Result<(Vec<Line>, Vec<String>), Error> {
    let text = scenario(seconds);
    let scenario = Scenario::parse(&text)?;
    let (lab, results) = played(&scenario, &text, programs)?;
    let tester = Tester {
        lab: &lab,
        programs,
        far: Role::Hub,
        address: plan::HUB,
    };
    let (seconds, warm_up) = (seconds.to_string(), WARM_UP.to_string());
    let span = ["--duration", &seconds, "--warmup", &warm_up];
    let mut lines = Vec::new();
    for load in &LOADS {
        let said = tester.both(&[&load.arguments[..], &span].concat())?;
        let mut found = ours(&said, |said| Some(said.goodput_bits_per_second / 1e6));
        // As much as quinn.
        found.reverse();
        let others = load.others.iter().filter_map(|(step, tool)| {
            let bytes = steady(figures(&results, step)?)?;
            Some(Found::new(tool, bytes * 8.0 / 1e6))
        });
        lines.push(Line {
            what: load.what,
            unit: "Mbit/s",
            asked: None,
            found: found.into_iter().chain(others).collect(),
            alike: Alike::AsMuch(ENOUGH),
        });
    }
    Ok((lines, results.remarks()))
}

/// The steps of the tools that are not ours. A plain quinn goes one device further, to the server.
fn scenario(seconds: u32) -> String {
    let seconds = seconds + WARM_UP;
    let mut text = format!("name = \"witness\"\n[[link]]\nname = \"{LINK}\"\nkind = \"veth\"\n");
    for direction in ["down", "up"] {
        for (kind, more) in [("tcp", "to = \"hub\"\n"), ("quic", "")] {
            text += &format!(
                "[[step]]\nname = \"{kind} {direction}\"\nseconds = {seconds}\n[[step.traffic]]\n\
                 via = \"link:{LINK}\"\nfrom = \"edge\"\nkind = \"{kind}\"\n\
                 direction = \"{direction}\"\n{more}"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_others_stands_in_a_line() {
        let scenario = Scenario::parse(&scenario(4)).expect("it can be played");
        let steps: Vec<_> = scenario
            .step
            .iter()
            .map(|step| step.name.as_str())
            .collect();
        let named = LOADS.iter().flat_map(|load| load.others);
        assert!(named.clone().all(|(step, _)| steps.contains(step)));
        assert_eq!(named.count(), steps.len());
    }
}
