//! The figures of a report that have a name: gates and comparisons go by it.

use super::report::{Report, Way};

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bits a second.
    Rate,
    /// Seconds.
    Time,
    /// A share of one.
    Ratio,
    /// Bytes.
    Bytes,
    /// Nothing: it is a number.
    Plain,
}

/// A figure with a name.
#[derive(Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// More of it is better.
    pub more_is_better: bool,
    /// What it is.
    pub what: &'static str,
    value: fn(&Report) -> Option<f64>,
}

impl Metric {
    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// The figure, if it was measured.
    #[must_use]
    pub fn of(&self, report: &Report) -> Option<f64> {
        (self.value)(report)
    }
}

/// One that is better if it is more, or less.
const fn metric(
    name: &'static str,
    unit: Unit,
    more_is_better: bool,
    what: &'static str,
    value: fn(&Report) -> Option<f64>,
) -> Metric {
    Metric {
        name,
        unit,
        more_is_better,
        what,
        value,
    }
}

/// All of them.
pub const METRICS: &[Metric] = &[
    metric(
        "goodput",
        Unit::Rate,
        true,
        "payload at its receiver, both ways together",
        // Handshakes over and over carry no payload.
        |r| {
            let carries = ways(r).next().is_some() || r.requests.is_some();
            carries.then_some(r.goodput_bits_per_second)
        },
    ),
    metric(
        "goodput_up",
        Unit::Rate,
        true,
        "payload at the server",
        |r| r.up.as_ref().map(|way| way.goodput_bits_per_second),
    ),
    metric(
        "goodput_down",
        Unit::Rate,
        true,
        "payload at the client",
        |r| r.down.as_ref().map(|way| way.goodput_bits_per_second),
    ),
    metric(
        "min_rtt",
        Unit::Time,
        false,
        "least round trip under load",
        |r| r.rtt.loaded.min_seconds,
    ),
    metric(
        "mean_rtt",
        Unit::Time,
        false,
        "mean round trip under load",
        |r| r.rtt.loaded.mean_seconds,
    ),
    metric(
        "p50_rtt",
        Unit::Time,
        false,
        "median round trip under load",
        |r| r.rtt.loaded.p50_seconds,
    ),
    metric(
        "p95_rtt",
        Unit::Time,
        false,
        "95 % of round trips under load are shorter",
        |r| r.rtt.loaded.p95_seconds,
    ),
    metric(
        "p99_rtt",
        Unit::Time,
        false,
        "99 % of round trips under load are shorter",
        |r| r.rtt.loaded.p99_seconds,
    ),
    metric(
        "max_rtt",
        Unit::Time,
        false,
        "longest round trip under load",
        |r| r.rtt.loaded.max_seconds,
    ),
    metric(
        "idle_rtt",
        Unit::Time,
        false,
        "median round trip before the load",
        |r| r.rtt.idle.p50_seconds,
    ),
    metric(
        "added_delay",
        Unit::Time,
        false,
        "median round trip under load, less that before",
        |r| r.rtt.added_delay_seconds,
    ),
    metric(
        "bufferbloat",
        Unit::Plain,
        false,
        "mean round trip under load over the least, less one",
        |r| r.rtt.bufferbloat_factor,
    ),
    metric(
        "jitter",
        Unit::Time,
        false,
        "P95 less P50 of round trips under load",
        |r| r.rtt.jitter_seconds,
    ),
    metric(
        "probe_loss",
        Unit::Ratio,
        false,
        "probes that were never answered",
        |r| (r.rtt.probes > 0).then(|| r.rtt.lost as f64 / r.rtt.probes as f64),
    ),
    metric(
        "loss",
        Unit::Ratio,
        false,
        "messages that the network lost; of streams, packets sent again",
        |r| {
            worst(r, |way| match &way.messages {
                Some(messages) => Some(messages.loss_ratio),
                None => way.lost_ratio(),
            })
        },
    ),
    metric(
        "unsent",
        Unit::Ratio,
        false,
        "payload that was due by the rate and did not leave",
        |r| worst(r, |way| Some(way.unsent?.ratio)),
    ),
    metric(
        "residual_loss",
        Unit::Ratio,
        false,
        "messages that neither arrived nor came back by error correction",
        |r| {
            worst(r, |way| match (&way.fec, &way.messages) {
                (Some(fec), _) => Some(fec.residual_loss_ratio),
                (None, messages) => messages.as_ref().map(|messages| messages.loss_ratio),
            })
        },
    ),
    metric(
        "fec_overhead",
        Unit::Ratio,
        false,
        "repairs for each message",
        |r| worst(r, |way| Some(way.fec.as_ref()?.overhead_ratio)),
    ),
    metric(
        "fec_recovered",
        Unit::Plain,
        true,
        "messages that repairs brought back",
        |r| least(r, |way| Some(way.fec.as_ref()?.symbols.recovered as f64)),
    ),
    metric(
        "fec_failed",
        Unit::Plain,
        false,
        "repairs that could not be solved",
        |r| worst(r, |way| Some(way.fec.as_ref()?.symbols.failed as f64)),
    ),
    metric(
        "reordered",
        Unit::Ratio,
        false,
        "messages that arrived after a later one",
        |r| {
            worst(r, |way| {
                let messages = way.messages.as_ref().filter(|all| all.received > 0)?;
                Some(messages.reordered as f64 / messages.received as f64)
            })
        },
    ),
    metric(
        "ipdv_p95",
        Unit::Time,
        false,
        "95 % of delay differences of neighbours are smaller",
        |r| worst(r, |way| way.messages.as_ref()?.ipdv.p95_seconds),
    ),
    metric(
        "owdv_p95",
        Unit::Time,
        false,
        "95 % of one-way delays are so much above the least",
        |r| worst(r, |way| way.messages.as_ref()?.delay_variation.p95_seconds),
    ),
    metric(
        "fairness",
        Unit::Plain,
        true,
        "Jain's index over flows",
        |r| least(r, |way| way.fairness),
    ),
    metric(
        "handshake",
        Unit::Time,
        false,
        "handshake with X25519MLKEM768",
        |r| r.handshake.post_quantum_seconds,
    ),
    metric(
        "handshake_classic",
        Unit::Time,
        false,
        "handshake with X25519",
        |r| r.handshake.classic_seconds,
    ),
    metric(
        "handshake_resumed",
        Unit::Time,
        false,
        "handshake with a ticket",
        |r| r.handshake.resumed_seconds,
    ),
    metric(
        "zero_rtt",
        Unit::Time,
        false,
        "first packet to answer with 0-RTT",
        |r| r.handshake.zero_rtt_answer_seconds,
    ),
    metric(
        "requests_per_second",
        Unit::Plain,
        true,
        "answers that were complete, a second",
        |r| {
            r.requests
                .as_ref()
                .map(|requests| requests.answers_per_second)
        },
    ),
    metric(
        "p50_latency",
        Unit::Time,
        false,
        "median time from when a request was due to its answer",
        |r| r.requests.as_ref()?.latency.p50_seconds,
    ),
    metric(
        "p95_latency",
        Unit::Time,
        false,
        "95 % of these times are shorter",
        |r| r.requests.as_ref()?.latency.p95_seconds,
    ),
    metric(
        "p99_latency",
        Unit::Time,
        false,
        "99 % of these times are shorter",
        |r| r.requests.as_ref()?.latency.p99_seconds,
    ),
    metric(
        "unanswered",
        Unit::Plain,
        false,
        "requests that were due and had no answer at the end",
        |r| Some(r.requests.as_ref()?.unanswered as f64),
    ),
    metric(
        "handshakes_per_second",
        Unit::Plain,
        true,
        "handshakes that were complete, a second",
        |r| r.handshakes.as_ref().map(|visits| visits.per_second),
    ),
    metric(
        "p50_handshakes",
        Unit::Time,
        false,
        "median of handshakes over and over",
        |r| r.handshakes.as_ref()?.time.p50_seconds,
    ),
    metric(
        "p95_handshakes",
        Unit::Time,
        false,
        "95 % of handshakes over and over are shorter",
        |r| r.handshakes.as_ref()?.time.p95_seconds,
    ),
    metric(
        "failed",
        Unit::Plain,
        false,
        "requests and handshakes that failed",
        |r| {
            let requests = r.requests.as_ref().map(|it| it.failed);
            let handshakes = r.handshakes.as_ref().map(|it| it.failed);
            let kinds = [requests, handshakes];
            let measured = kinds.iter().any(Option::is_some);
            measured.then(|| kinds.into_iter().flatten().sum::<u64>() as f64)
        },
    ),
    metric(
        "rpm",
        Unit::Plain,
        true,
        "responsiveness in round trips a minute",
        |r| r.responsiveness.map(|found| found.rpm),
    ),
    metric(
        "rpm_worst",
        Unit::Plain,
        true,
        "responsiveness by the slowest 5 %",
        |r| r.responsiveness.map(|found| found.worst_rpm),
    ),
    metric(
        "client_cpu",
        Unit::Time,
        false,
        "processor time for a connection, here",
        |r| of_connection(r, r.cpu.client_seconds),
    ),
    metric(
        "server_cpu",
        Unit::Time,
        false,
        "processor time for a connection, there",
        |r| of_connection(r, r.cpu.server_seconds),
    ),
    metric(
        "client_wait",
        Unit::Time,
        false,
        "time for which the thread waited for a processor, here",
        |r| r.cpu.client_waited_seconds,
    ),
    metric(
        "server_wait",
        Unit::Time,
        false,
        "time for which the thread waited for a processor, there",
        |r| r.cpu.server_waited_seconds,
    ),
    metric(
        "client_memory",
        Unit::Bytes,
        false,
        "memory for a connection under load, here",
        |r| r.client_memory.loaded_bytes,
    ),
    metric(
        "server_memory",
        Unit::Bytes,
        false,
        "memory for a connection under load, there",
        |r| r.server_memory.loaded_bytes,
    ),
];

fn ways(report: &Report) -> impl Iterator<Item = &Way> {
    [&report.up, &report.down].into_iter().flatten()
}

/// That of each direction. `None` if it is missing in one: a direction in which nothing arrived
/// must not be judged by the other.
fn each(report: &Report, value: impl Fn(&Way) -> Option<f64>) -> Option<Vec<f64>> {
    ways(report).map(value).collect()
}

/// The lesser of both directions.
fn least(report: &Report, value: impl Fn(&Way) -> Option<f64>) -> Option<f64> {
    each(report, value)?.into_iter().min_by(f64::total_cmp)
}

fn of_connection(report: &Report, seconds: Option<f64>) -> Option<f64> {
    Some(seconds? / f64::from(report.plan.connections.max(1)))
}

/// The greater of both directions.
fn worst(report: &Report, value: impl Fn(&Way) -> Option<f64>) -> Option<f64> {
    each(report, value)?.into_iter().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use sennit_load::{ArrivalFigures, TimeFigures};

    use super::*;
    use crate::loadtest::fec::{FecFigures, Symbols};
    use crate::loadtest::report::Unsent;
    use crate::loadtest::requests::RequestFigures;
    use crate::loadtest::visits::VisitFigures;

    /// A test that went both ways, and nothing arrived upward.
    fn half_dead() -> Report {
        let way = Way {
            goodput_bits_per_second: 5e6,
            bytes: 5_000_000,
            seconds: 8.0,
            bins: None,
            flows: 2,
            fairness: Some(0.99),
            messages: Some(ArrivalFigures {
                sent: 100,
                received: 99,
                reordered: 3,
                ipdv: TimeFigures {
                    p95_seconds: Some(0.001),
                    ..TimeFigures::default()
                },
                ..ArrivalFigures::default()
            }),
            fec: None,
            unsent: None,
            sent_packets: 100,
            lost_packets: 1,
            controllers: Vec::new(),
        };
        let dead = Way {
            goodput_bits_per_second: 0.0,
            bytes: 0,
            fairness: None,
            messages: Some(ArrivalFigures {
                sent: 100,
                lost: 100,
                loss_ratio: 1.0,
                ..ArrivalFigures::default()
            }),
            ..way.clone()
        };
        Report {
            up: Some(dead),
            down: Some(way),
            ..Report::example()
        }
    }

    fn of(name: &str, report: &Report) -> Option<f64> {
        Metric::named(name).expect(name).of(report)
    }

    #[test]
    fn a_direction_in_which_nothing_arrived_is_not_judged_by_the_other() {
        let mut report = half_dead();
        for name in ["reordered", "fairness", "ipdv_p95"] {
            assert_eq!(of(name, &report), None, "{name}");
        }
        assert_eq!(of("loss", &report), Some(1.0));
        assert_eq!(of("goodput_up", &report), Some(0.0));

        report.up = None;
        assert_eq!(of("reordered", &report), Some(3.0 / 99.0));
        assert_eq!(of("fairness", &report), Some(0.99));
    }

    #[test]
    fn what_came_back_is_lost_on_the_wire_and_not_in_the_end() {
        let mut report = half_dead();
        report.up = None;
        let down = report.down.as_mut().expect("it is alive");
        let messages = down.messages.insert(ArrivalFigures {
            sent: 100,
            lost: 5,
            loss_ratio: 0.05,
            ..ArrivalFigures::default()
        });
        let symbols = Symbols {
            sources_sent: 100,
            repairs_sent: 20,
            recovered: 4,
            ..Symbols::default()
        };
        let fec = FecFigures::new("rs:10+2", symbols, messages);
        let unprotected = report.clone();
        report.down = report.down.map(|way| Way {
            fec: Some(fec),
            ..way
        });

        let names = ["loss", "residual_loss", "fec_overhead", "fec_recovered"];
        let told = |report: &Report| names.map(|name| of(name, report));
        assert_eq!(told(&report), [0.05, 0.01, 0.2, 4.0].map(Some));
        let without = [Some(0.05), Some(0.05), None, None];
        assert_eq!(told(&unprotected), without);
    }

    #[test]
    fn goodput_is_not_measured_where_nothing_is_carried() {
        let mut report = half_dead();
        assert!(of("goodput", &report).is_some());
        (report.up, report.down) = (None, None);
        assert_eq!(of("goodput", &report), None);
        report.requests = Some(RequestFigures::default());
        assert!(of("goodput", &report).is_some());
    }

    #[test]
    fn what_failed_and_what_never_left_can_be_bounded() {
        let mut report = half_dead();
        assert_eq!(of("failed", &report), None);
        assert_eq!(of("unsent", &report), None);
        report.requests = Some(RequestFigures {
            failed: 2,
            ..RequestFigures::default()
        });
        report.handshakes = Some(VisitFigures {
            failed: 3,
            ..VisitFigures::default()
        });
        for (way, left) in [(&mut report.up, 100), (&mut report.down, 75)] {
            let way = way.as_mut().expect("both were asked for");
            way.unsent = Some(Unsent::new(100, left));
        }

        assert_eq!(of("failed", &report), Some(5.0));
        assert_eq!(of("unsent", &report), Some(0.25), "of the worse direction");
    }

    #[test]
    fn each_name_is_there_once() {
        for metric in METRICS {
            let same = METRICS.iter().filter(|other| other.name == metric.name);
            assert_eq!(same.count(), 1, "{}", metric.name);
        }
    }
}
