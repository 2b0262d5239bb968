//! What several edges did at the same time: together, and each beside the others.

use sennit_load::{Bins, TimeFigures, median, quantile};

use super::{Figure, TrafficResult};
use crate::traffic::{BulkFigures, FetchFigures, Figures, PingFigures, UdpFigures};

impl TrafficResult {
    /// One traffic at all edges; as it is if there is only one.
    ///
    /// All together have the sum of what adds up, and the worst of what does not.
    pub(crate) fn of_edges(mut edges: Vec<Self>) -> Self {
        if edges.len() == 1 {
            return edges.remove(0);
        }
        let all = |number: fn(&Self) -> Option<f64>| -> Option<Vec<f64>> {
            edges.iter().map(number).collect()
        };
        let mean = |numbers: Vec<f64>| numbers.iter().sum::<f64>() / numbers.len() as f64;
        let label = edges.first().map(|edge| edge.label.clone());
        Self {
            label: label.unwrap_or_default(),
            figures: together(&edges),
            failure: failure(&edges),
            // Their links are alike.
            line_share: all(|edge| edge.line_share).map(mean),
            gap_seconds: all(|edge| edge.gap_seconds).and_then(|gaps| quantile(&gaps, 1.0)),
            usual_goodput: all(|edge| edge.usual_goodput).map(|usual| usual.iter().sum()),
            edges,
        }
    }

    /// How several edges share; nothing for one, and nothing if one of several failed.
    pub(super) fn edge_figures(&self) -> Vec<(Figure, f64)> {
        let goodput = |edge: &Self| edge.figures.as_ref()?.goodput();
        let goodputs: Option<Vec<_>> = self.edges.iter().map(goodput).collect();
        let shares: Option<Vec<_>> = self.edges.iter().map(|edge| edge.line_share).collect();
        let at = |figure, values: &Option<Vec<f64>>, share| {
            Some((figure, quantile(values.as_ref()?, share)?))
        };
        let middle = goodputs.as_ref().and_then(|all| median(all));
        let figures = [
            at(Figure::LeastGoodput, &goodputs, 0.0),
            middle.map(|median| (Figure::MedianGoodput, median)),
            at(Figure::MostGoodput, &goodputs, 1.0),
            at(Figure::LeastLineShare, &shares, 0.0),
        ];
        figures.into_iter().flatten().collect()
    }
}

/// How many edges failed, and why the first of them did.
fn failure(edges: &[TrafficResult]) -> Option<String> {
    let numbered = (1..).zip(edges);
    let failed: Vec<(usize, &String)> = numbered
        .filter_map(|(number, edge)| Some((number, edge.failure.as_ref()?)))
        .collect();
    let (number, reason) = failed.first()?;
    let (count, all) = (failed.len(), edges.len());
    Some(format!(
        "{count} of {all} edges, first edge {number}: {reason}"
    ))
}

/// `None` if an edge failed, or if they did what does not add up.
fn together(edges: &[TrafficResult]) -> Option<Figures> {
    let figures: Vec<_> = edges
        .iter()
        .map(|edge| edge.figures.as_ref())
        .collect::<Option<_>>()?;
    let bulk: Vec<_> = edges.iter().filter_map(TrafficResult::bulk).collect();
    Some(match figures.first()? {
        Figures::Tcp(_) => Figures::Tcp(sum_of_bulk(&bulk)),
        Figures::Quic(_) => Figures::Quic(sum_of_bulk(&bulk)),
        Figures::Udp(_) => Figures::Udp(sum_of_udp(&figures)),
        Figures::Ping(_) => Figures::Ping(sum_of_pings(&figures)),
        Figures::Fetch(_) => Figures::Fetch(sum_of_fetches(&figures)),
        Figures::Idle => Figures::Idle,
        Figures::Packets(_) | Figures::Ask(_) | Figures::Program(_) | Figures::Flood(_) => {
            return None;
        }
    })
}

fn sum_of_bulk(edges: &[&BulkFigures]) -> BulkFigures {
    let longest = edges.iter().map(|edge| edge.seconds).fold(0.0, f64::max);
    let first = edges.iter().map(|edge| edge.start_seconds);
    BulkFigures {
        bytes: edges.iter().map(|edge| edge.bytes).sum(),
        seconds: longest,
        goodput: edges.iter().map(|edge| edge.goodput).sum(),
        retransmits: edges.iter().map(|edge| edge.retransmits).sum(),
        start_seconds: first.fold(f64::INFINITY, f64::min),
        bins: Bins::sum(edges.iter().map(|edge| &edge.bins)),
    }
}

fn sum_of_udp(edges: &[&Figures]) -> UdpFigures {
    let mut sum = UdpFigures::default();
    for figures in edges {
        if let Figures::Udp(udp) = figures {
            sum.goodput += udp.goodput;
            sum.packets += udp.packets;
            sum.lost += udp.lost;
            sum.unread += udp.unread;
            sum.jitter_seconds = sum.jitter_seconds.max(udp.jitter_seconds);
            sum.late = sum.late.into_iter().chain(udp.late).reduce(|a, b| a + b);
            let slow = |it: Option<TimeFigures>| it.and_then(|it| it.p99_seconds);
            if slow(udp.lateness) > slow(sum.lateness) {
                sum.lateness = udp.lateness;
            }
        }
    }
    sum
}

/// What all of them fetched, as if it were at one edge.
fn sum_of_fetches(edges: &[&Figures]) -> FetchFigures {
    let mut sum = FetchFigures::default();
    for figures in edges {
        if let Figures::Fetch(fetch) = figures {
            sum.tried += fetch.tried;
            sum.fetched += fetch.fetched;
            sum.goodput += fetch.goodput;
            sum.times_seconds.extend(&fetch.times_seconds);
            sum.waiting_seconds.extend(&fetch.waiting_seconds);
        }
    }
    sum.with_quantiles()
}

/// The median of the medians, and the worst edge's slow answers.
fn sum_of_pings(edges: &[&Figures]) -> PingFigures {
    let mut sum = PingFigures::default();
    let mut medians = Vec::new();
    let worse =
        |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
    for figures in edges {
        if let Figures::Ping(ping) = figures {
            sum.sent += ping.sent;
            sum.received += ping.received;
            sum.duplicates += ping.duplicates;
            sum.gap_seconds = sum.gap_seconds.max(ping.gap_seconds);
            sum.silence_seconds = sum.silence_seconds.max(ping.silence_seconds);
            medians.extend(ping.p50_seconds);
            sum.p95_seconds = worse(sum.p95_seconds, ping.p95_seconds);
            sum.p99_seconds = worse(sum.p99_seconds, ping.p99_seconds);
            sum.max_seconds = worse(sum.max_seconds, ping.max_seconds);
        }
    }
    sum.p50_seconds = median(&medians);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use sennit_load::BIN;

    fn tcp(goodput: f64, line_share: f64) -> TrafficResult {
        TrafficResult {
            label: "TCP".into(),
            figures: Some(Figures::Tcp(BulkFigures {
                bytes: goodput as u64 * 2,
                seconds: 2.0,
                goodput,
                retransmits: None,
                start_seconds: goodput / 1e3,
                bins: Bins::new(BIN, vec![goodput; 2]),
            })),
            failure: None,
            line_share: Some(line_share),
            gap_seconds: Some(1.0 - line_share),
            usual_goodput: Some(goodput),
            edges: Vec::new(),
        }
    }

    #[test]
    fn edges_add_up_and_are_compared() {
        let all = TrafficResult::of_edges(vec![tcp(90.0, 0.75), tcp(100.0, 1.0), tcp(50.0, 0.5)]);

        let sum = all.bulk().expect("it is TCP");
        assert_eq!((sum.bytes, sum.goodput, sum.seconds), (480, 240.0, 2.0));
        assert_eq!(sum.bins, Bins::new(BIN, vec![240.0; 2]));
        assert_eq!(sum.start_seconds, 0.05);
        assert_eq!(all.gap_seconds, Some(0.5), "that of the worst");
        assert_eq!(all.line_share, Some(0.75));
        let figures = all.edge_figures();
        assert_eq!(
            figures,
            [
                (Figure::LeastGoodput, 50.0),
                (Figure::MedianGoodput, 90.0),
                (Figure::MostGoodput, 100.0),
                (Figure::LeastLineShare, 0.5)
            ]
        );
    }

    #[test]
    fn one_edge_stays_as_it_is() {
        let one = TrafficResult::of_edges(vec![tcp(90.0, 0.9)]);

        assert!(one.edges.is_empty() && one.edge_figures().is_empty());
        assert_eq!(one.bulk().map(|bulk| bulk.goodput), Some(90.0));
    }

    #[test]
    fn an_edge_that_failed_is_named_and_leaves_no_sum() {
        let failed = TrafficResult {
            figures: None,
            failure: Some("refused".into()),
            line_share: None,
            ..tcp(0.0, 0.0)
        };

        let all = TrafficResult::of_edges(vec![tcp(90.0, 0.9), failed]);

        assert_eq!(
            all.failure.as_deref(),
            Some("1 of 2 edges, first edge 2: refused")
        );
        assert!(all.figures.is_none() && all.line_share.is_none());
        assert!(all.edge_figures().is_empty());
    }

    #[test]
    fn pings_have_the_worst_edge_for_their_tail() {
        let ping = |p50, p99, received| TrafficResult {
            figures: Some(Figures::Ping(PingFigures {
                sent: 10,
                received,
                p50_seconds: p50,
                p99_seconds: p99,
                ..PingFigures::default()
            })),
            ..tcp(0.0, 0.0)
        };

        let all = TrafficResult::of_edges(vec![
            ping(Some(0.2), Some(0.9), 10),
            ping(None, None, 0),
            ping(Some(0.1), Some(0.5), 9),
            ping(Some(0.3), Some(0.4), 10),
        ]);

        let Some(Figures::Ping(sum)) = all.figures else {
            panic!("no ping")
        };
        assert_eq!((sum.sent, sum.received), (40, 29));
        assert_eq!((sum.p50_seconds, sum.p99_seconds), (Some(0.2), Some(0.9)));
    }
}
