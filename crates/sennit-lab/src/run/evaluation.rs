//! What a step came to: its figures, and what became of the traffic after each fault.

use std::ops::Range;
use std::time::Duration;

use sennit_load::{Bins, fairness};
use sennit_netem::{Config, Direction};

use super::{LinkBins, link_name, sites_of};
use crate::error::Error;
use crate::lab::{Lab, LinkHandle, Site};
use crate::report::{Aftermath, FaultResult, LinkResult, StepResult, Together, TrafficResult};
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
    let together = Together {
        goodput: sum_of_goodput(step, &traffic),
        fairness: fairness_of(step, &traffic),
        line_use: line_use(step, lab, &links),
    };
    let counters = lab.counters().into_iter().map(|(_, counters)| counters);
    let links = links
        .into_iter()
        .zip(counters)
        .map(|((name, bins), counters)| LinkResult::new(name, &counters, bins))
        .collect();
    StepResult {
        together,
        ..StepResult::new(&step.name, took, traffic, faults, links)
    }
}

/// When a traffic begins and ends, after the start of the step.
fn span(step: &Step, traffic: &Traffic) -> Range<Duration> {
    let (start, seconds) = traffic.span(step);
    start..start + Duration::from_secs(seconds.into())
}

/// From the first start to the last end; `None` of nothing.
fn whole(spans: impl Iterator<Item = Range<Duration>>) -> Option<Range<Duration>> {
    spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
}

/// Payload per second of all that goes the ways of the bulk traffic, over the time in which any of
/// it ran; `None` without bulk traffic, or if some traffic failed.
fn sum_of_goodput(step: &Step, traffic: &[TrafficResult]) -> Option<f64> {
    if traffic.iter().any(|result| result.failure.is_some()) {
        return None;
    }
    let carried = step.traffic.iter().zip(traffic).filter_map(|(asked, it)| {
        let goodput = it.figures.as_ref()?.goodput()?;
        let goes = direction(asked)?;
        let along = |other: &Traffic| is_bulk(other) && direction(other) == Some(goes);
        let counts = step.traffic.iter().any(along);
        counts.then(|| (span(step, asked), goodput))
    });
    let carried: Vec<_> = carried.collect();
    let time = |span: &Range<Duration>| (span.end - span.start).as_secs_f64();
    let bytes = carried.iter().map(|(span, goodput)| goodput * time(span));
    let bytes: f64 = bytes.sum();
    let whole = whole(carried.iter().map(|(span, _)| span.clone()))?;
    Some(bytes / time(&whole))
}

/// Of the bulk traffics of a step in which they contend.
fn fairness_of(step: &Step, traffic: &[TrafficResult]) -> Option<f64> {
    let goodputs: Vec<f64> = traffic
        .iter()
        .filter_map(|it| Some(it.bulk()?.goodput))
        .collect();
    let contend = step.contend && goodputs.len() > 1;
    contend.then(|| fairness(&goodputs)).flatten()
}

/// See [`Together::line_use`]; `None` where something breaks meanwhile, or where a link is not
/// emulated or has no rate.
fn line_use(step: &Step, lab: &Lab, links: &LinkBins) -> Option<f64> {
    if !step.uses_tunnel() || !step.fault.is_empty() || !lab.links().all(|it| it.is_emulated()) {
        return None;
    }
    let of_way = |way: Direction| {
        let bulk = step.traffic.iter();
        let bulk = bulk.filter(|it| is_bulk(it) && direction(it) == Some(way));
        let span = whole(bulk.map(|it| span(step, it)))?;
        let carried: f64 = links
            .iter()
            .map(|(_, bins)| bytes_within(&bins[way as usize], &span))
            .sum();
        let room = |link: LinkHandle<'_>| room(link.spec().config(way), &span);
        let room: Option<f64> = lab.links().map(room).sum();
        room.map(|room| carried / room)
    };
    let ways = Direction::BOTH.into_iter().filter_map(of_way);
    ways.reduce(f64::min)
}

/// Which way it goes, if it carries data.
fn direction(traffic: &Traffic) -> Option<Direction> {
    match traffic {
        Traffic::Tcp(tcp) => Some(tcp.direction),
        Traffic::Quic(quic) => Some(quic.direction),
        Traffic::Udp(udp) => Some(udp.direction),
        Traffic::Fetch(_) => Some(Direction::Down),
        Traffic::Packets(_)
        | Traffic::Ping(_)
        | Traffic::Ask(_)
        | Traffic::Program(_)
        | Traffic::Test(_)
        | Traffic::Idle(_)
        | Traffic::Flood(_) => None,
    }
}

/// Whether it takes all the room that there is.
fn is_bulk(traffic: &Traffic) -> bool {
    matches!(traffic, Traffic::Tcp(_) | Traffic::Quic(_))
}

/// Of whole bins.
fn bytes_within(bins: &Bins, span: &Range<Duration>) -> f64 {
    let width = bins.width().as_secs_f64();
    let bin = |at: Duration| (at.as_secs_f64() / width).round() as usize;
    let (first, last) = (bin(span.start), bin(span.end));
    let rates = bins.rates().iter().take(last).skip(first);
    rates.sum::<f64>() * width
}

/// The bytes that a link can carry meanwhile; a trace begins with the step.
fn room(config: &Config, span: &Range<Duration>) -> Option<f64> {
    let rate = config.rate;
    if let Some(trace) = &config.trace {
        return Some(trace.bytes_between(span.start, span.end, rate) as f64);
    }
    let seconds = (span.end - span.start).as_secs_f64();
    rate.map(|rate| rate.as_bps() as f64 / 8.0 * seconds)
}

fn first_fault(step: &Step) -> Option<Duration> {
    step.fault.first().map(|fault| fault.at_s.0)
}

/// Frame bytes per second of the links that a traffic of this site may use, in its direction.
fn line_rate(site: Site<'_>, traffic: &Traffic) -> Option<f64> {
    let direction = direction(traffic)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use sennit_load::BIN;
    use sennit_netem::{Bitrate, Motion};

    #[test]
    fn what_a_moving_link_has_room_for_is_the_area_under_its_trace() {
        let steady = Config {
            rate: Some(Bitrate::mbit(8)),
            ..Config::default()
        };
        let span = Duration::from_secs(1)..Duration::from_secs(3);
        assert_eq!(room(&steady, &span), Some(2e6));
        assert_eq!(room(&Config::default(), &span), None);
        let trace = Motion::Steps.trace(0, 1.0);
        let moving = steady.moving(trace.clone().into());
        let area = trace.bytes_between(span.start, span.end, None) as f64;
        assert_eq!(room(&moving, &span), Some(area));
    }

    #[test]
    fn only_what_a_link_carried_meanwhile_counts() {
        let bins = Bins::new(BIN, vec![5.0, 10.0, 20.0, 40.0]);
        let span = Duration::from_millis(100)..Duration::from_millis(300);

        let bytes = bytes_within(&bins, &span);

        assert!((bytes - 3.0).abs() < 1e-9, "{bytes}");
    }
}
