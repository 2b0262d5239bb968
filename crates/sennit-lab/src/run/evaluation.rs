//! What a step came to: its figures, and what became of the traffic after each fault.

use std::time::Duration;

use super::{LinkBins, link_name, sites_of};
use crate::error::Error;
use crate::lab::{Lab, Site};
use crate::report::{Aftermath, FaultResult, LinkResult, StepResult, TrafficResult};
use crate::scenario::{Fault, Step, Traffic, Via};
use crate::traffic::Figures;

pub(super) fn evaluate(
    step: &Step,
    lab: &Lab,
    took: Duration,
    traffic: Vec<Vec<Result<Figures, Error>>>,
    links: LinkBins,
) -> StepResult {
    let traffic: Vec<_> = step
        .traffic
        .iter()
        .zip(traffic)
        .map(|(asked, outcomes)| {
            let at_site = |(site, outcome)| {
                TrafficResult::new(asked, outcome, line_rate(site, asked), first_fault(step))
            };
            let sites = sites_of(lab, asked).zip(outcomes);
            TrafficResult::of_edges(sites.map(at_site).collect())
        })
        .collect();
    let faults = step.fault.iter().map(|fault| {
        let name = fault.link.as_ref();
        let link = name.map(|name| link_name(lab, fault, name));
        evaluate_fault(step, fault, link, &traffic, &links)
    });
    let faults = faults.collect();
    let counters = lab.counters().into_iter().map(|(_, counters)| counters);
    let links = links
        .into_iter()
        .zip(counters)
        .map(|((name, bins), counters)| LinkResult::new(name, &counters, bins))
        .collect();
    StepResult::new(&step.name, took, traffic, faults, links)
}

fn first_fault(step: &Step) -> Option<Duration> {
    step.fault.first().map(|fault| fault.at_s.0)
}

/// Frame bytes per second of the links that a traffic of this site may use, in its direction.
fn line_rate(site: Site<'_>, traffic: &Traffic) -> Option<f64> {
    let direction = match traffic {
        Traffic::Tcp(tcp) => tcp.direction,
        Traffic::Quic(quic) => quic.direction,
        Traffic::Udp(udp) => udp.direction,
        Traffic::Packets(_)
        | Traffic::Ping(_)
        | Traffic::Ask(_)
        | Traffic::Program(_)
        | Traffic::Idle(_)
        | Traffic::Flood(_) => return None,
    };
    let used = site.links().filter(|link| match traffic.via() {
        Via::Link(name) => link.spec().name == *name,
        Via::Tunnel | Via::Mptcp => true,
    });
    used.map(|link| {
        link.spec()
            .config(direction)
            .rate
            .map(|rate| rate.as_bps() as f64 / 8.0)
    })
    .sum()
}

fn evaluate_fault(
    step: &Step,
    fault: &Fault,
    name: Option<String>,
    traffic: &[TrafficResult],
    links: &LinkBins,
) -> FaultResult {
    let (at, before) = (fault.at_s.0, first_fault(step));
    let next = step
        .fault
        .iter()
        .map(|fault| fault.at_s.0)
        .find(|next| *next > at);
    let link = links.iter().find(|(link, _)| Some(link) == name.as_ref());
    let used_again = link.and_then(|(_, bins)| {
        let busier = bins
            .iter()
            .max_by(|a, b| a.usual(before).total_cmp(&b.usual(before)))?;
        busier.reaches(at, 0.5 * busier.usual(before))
    });
    let aftermath = |result: &TrafficResult| {
        let bulk = result.bulk()?;
        let since = |time: Duration| time.saturating_sub(bulk.start());
        let usual = bulk.bins.usual(before.map(since));
        let recovery = bulk.bins.recovery(since(at), usual);
        Some(Aftermath {
            goodput: bulk.bins.between(since(at), next.map(since)),
            recovery_seconds: recovery.map(|time| time.as_secs_f64()),
        })
    };
    FaultResult {
        at_seconds: at.as_secs_f64(),
        link: name,
        action: fault.action,
        traffic: traffic.iter().map(aftermath).collect(),
        link_recovery_seconds: used_again.map(|time| time.as_secs_f64()),
    }
}
