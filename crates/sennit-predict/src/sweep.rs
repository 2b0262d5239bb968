//! Round trips by packet size: what they should be, and what they say about a link.
//!
//! A packet is on a link for its bytes over the rate, there and back, and for the delay of the link
//! whatever its size. So the slope of round trips over sizes is the capacity, and what is left at
//! size zero is the fixed delay.
//!
//! Hops in a row that store each packet before they forward it add up their times, so over them the
//! slope is the sum of theirs. That does not hold for fragments, which are on several hops at the
//! same time: to a host, whose hops nobody has counted, the line goes through single packets only.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use sennit_netem::{Direction, LinkSpec};
use sennit_report::{Axis, Block, Curve, Lines, Report, Section, Table};

use crate::args::SweepArgs;
use crate::load::datagram;
use crate::medium::{Medium, Packet};
use crate::outcome::steady_rate;
use crate::{PredictError, text};

/// The header of ICMP echo.
const ICMP: usize = 8;

/// The form of the JSON.
const SCHEMA: &str = "sennit.rtt-sweep/1";

/// Round trips by size.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    schema: &'static str,
    /// The host or the link.
    pub to: String,
    /// In order of size.
    pub points: Vec<Point>,
    /// Of what was measured, or else of what is predicted.
    pub fit: Option<Fit>,
    /// Of the link, if it is known: what the fit should say.
    pub expected_bits_per_second: Option<f64>,
    /// The link's rates up and down, if it is known.
    pub link_bits_per_second: Option<[f64; 2]>,
}

/// One size.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Of the echo.
    pub payload_bytes: usize,
    /// With all headers of all fragments.
    pub wire_bytes: usize,
    /// Over an idle link, if it is known.
    pub predicted_seconds: Option<f64>,
    /// The fastest, if it was measured and any came back.
    pub measured_seconds: Option<f64>,
    /// Whether the line goes through it.
    pub fitted: bool,
}

impl Sweep {
    /// What was asked for, with what the link should give if it is known; the address of the far
    /// end is one of IPv6 or of IPv4.
    pub fn new(args: &SweepArgs, v6: bool) -> Result<Self, PredictError> {
        let medium = args.medium(v6);
        let mut sizes = args.sizes.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let point = |payload: &u16| {
            let payload_bytes = usize::from(*payload);
            let predicted = args.link.as_ref();
            let predicted = predicted.map(|link| round_trip(&medium, link, payload_bytes));
            let packets = echo(&medium, payload_bytes)?;
            Ok(Point {
                payload_bytes,
                wire_bytes: bytes(&packets),
                predicted_seconds: predicted.transpose()?,
                measured_seconds: None,
                fitted: args.link.is_some() || packets.len() == 1,
            })
        };
        let points = sizes.iter().map(point).collect::<Result<_, _>>()?;
        let to = args.address.clone();
        let mut sweep = Self {
            schema: SCHEMA,
            to: to
                .or(args.link.as_ref().map(LinkSpec::to_string))
                .unwrap_or_default(),
            points,
            fit: None,
            expected_bits_per_second: None,
            link_bits_per_second: args.link.as_ref().map(rates).transpose()?,
        };
        sweep.fit = sweep.line(|point| point.predicted_seconds);
        sweep.expected_bits_per_second = sweep.fit.map(|fit| fit.capacity_bits_per_second);
        Ok(sweep)
    }

    /// Measures each size by `fastest`, which is given a payload. Who does not answer the smallest
    /// is not asked for larger ones.
    pub fn measure<E>(
        &mut self,
        mut fastest: impl FnMut(usize) -> Result<Option<Duration>, E>,
    ) -> Result<(), E> {
        for (index, point) in self.points.iter_mut().enumerate() {
            let measured = fastest(point.payload_bytes)?;
            point.measured_seconds = measured.map(|time| time.as_secs_f64());
            if index == 0 && measured.is_none() {
                break;
            }
        }
        self.fit = self.line(|point| point.measured_seconds);
        Ok(())
    }

    /// Whether some echo has a frame on this medium that is so short that a port pads it.
    pub fn is_padded(&self, medium: &Medium) -> bool {
        let mut echoes = self.points.iter().map(|it| echo(medium, it.payload_bytes));
        echoes.any(|packets| packets.is_ok_and(|all| all.iter().any(Packet::is_padded)))
    }

    /// Whether anything came back.
    pub fn is_answered(&self) -> bool {
        let mut points = self.points.iter();
        points.any(|point| point.measured_seconds.is_some())
    }

    fn line(&self, seconds: fn(&Point) -> Option<f64>) -> Option<Fit> {
        let points = self.points.iter().filter(|point| point.fitted);
        let points = points.filter_map(|point| Some((point.wire_bytes as f64, seconds(point)?)));
        fit(&points.collect::<Vec<_>>())
    }

    /// As `args` want it printed, with its last line ended.
    pub fn print(&self, args: &SweepArgs) -> String {
        if args.json {
            let json = serde_json::to_string_pretty(self);
            return json.expect("a sweep holds only numbers, texts and lists") + "\n";
        }
        let mut text = String::from("payload  on the link  predicted, ms  measured, ms\n");
        for point in &self.points {
            let _ = writeln!(
                text,
                "{:7} {:12} {:>14} {:>13}",
                point.payload_bytes,
                point.wire_bytes,
                millis(point.predicted_seconds),
                millis(point.measured_seconds),
            );
        }
        text.push_str(&self.verdict());
        text
    }

    /// The round trips that `args` asked for as a plot, with the line through them, and as a table.
    pub fn page(&self, args: &SweepArgs) -> Report {
        let times = |of: fn(&Point) -> Option<f64>| {
            let points = self.points.iter();
            let points = points.filter_map(|it| Some((it.wire_bytes as f64, of(it)? * 1e3)));
            points.collect::<Vec<_>>()
        };
        let curve = |name: &str, points, dots, like| Curve {
            name: name.into(),
            points,
            dots,
            like,
        };
        let measured = times(|point| point.measured_seconds);
        let mut curves = vec![curve("fastest measured", measured, true, None)];
        let predicted = times(|point| point.predicted_seconds);
        curves.push(curve("predicted", predicted, false, None));
        curves.retain(|curve| !curve.points.is_empty());
        let largest = self.points.iter().rfind(|point| point.fitted);
        let most = largest.map_or(0.0, |point| point.wire_bytes as f64);
        if let Some(fit) = self.fit {
            let slope = 2.0 * 8.0 / fit.capacity_bits_per_second;
            let at = |bytes: f64| (bytes, (fit.fixed_seconds + slope * bytes) * 1e3);
            curves.push(curve(
                "line through them",
                vec![at(0.0), at(most)],
                false,
                Some(0),
            ));
        }
        let plot = Lines::new(
            "Round trip by size",
            Axis::new("bytes on the link, one way"),
            Axis::new("round trip, ms"),
            curves,
        );
        let mut table = Table::new(
            "",
            ["payload", "on the link", "predicted, ms", "measured, ms"],
        );
        for point in &self.points {
            table.row([
                point.payload_bytes.to_string(),
                point.wire_bytes.to_string(),
                millis(point.predicted_seconds),
                millis(point.measured_seconds),
            ]);
        }
        let section = Section::new("Round trips")
            .with(Block::Lines(plot))
            .with(Block::Table(table));
        Report::new(format!("Round trips by size to {}", self.to))
            .lede(self.verdict())
            .fact("echoes of each size", args.count.to_string())
            .fact("largest packet", format!("{} bytes", args.mtu))
            .fact("bytes are those", args.counts.what())
            .with(section)
    }

    fn verdict(&self) -> String {
        let Some(fit) = self.fit else {
            return self.why_no_line().into();
        };
        let capacity = text::rate(fit.capacity_bits_per_second);
        let off = self.expected_bits_per_second.map_or(String::new(), |rate| {
            let percent = (fit.capacity_bits_per_second / rate - 1.0) * 100.0;
            format!(" ({percent:+.2} % of the link's {})", text::rate(rate))
        });
        let mean = self.mean();
        let beside = match self.points.iter().all(|point| point.fitted) {
            true => "",
            false => "sizes that leave in fragments do not count for the line\n",
        };
        format!(
            "capacity {capacity}{off}{mean}, fixed delay {:.3} ms there and back; the worst point is \
             {:.3} ms off the line\n{beside}",
            fit.fixed_seconds * 1e3,
            fit.worst_seconds * 1e3
        )
    }

    fn why_no_line(&self) -> &'static str {
        let fitted = self.points.iter().filter(|point| point.fitted);
        let known = |point: &&Point| point.measured_seconds.or(point.predicted_seconds).is_some();
        match fitted.filter(known).count() {
            0 | 1 => "no line fits: it takes an answer to two --sizes of one packet each\n",
            _ => "no line fits: larger packets are not slower\n",
        }
    }

    /// Of what the capacity is a mean: the same bytes take their time there and back.
    fn mean(&self) -> String {
        match self.link_bits_per_second {
            Some([up, down]) if up == down => String::new(),
            Some(rates) => {
                let [up, down] = rates.map(text::rate);
                format!(", the harmonic mean of {up} up and {down} down")
            }
            None => ", or the harmonic mean of both directions' if they differ".into(),
        }
    }
}

/// With three digits, or a dash.
fn millis(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), |seconds| format!("{:.3}", seconds * 1e3))
}

/// An echo of so much payload on a link, fragments and all.
fn echo(medium: &Medium, payload: usize) -> Result<Vec<Packet>, PredictError> {
    let packets = datagram(medium.ip, ("ICMP header", ICMP), payload)?;
    let framed = packets.into_iter().map(|packet| medium.framed(packet));
    Ok(framed.collect())
}

fn bytes(packets: &[Packet]) -> usize {
    packets.iter().map(Packet::bytes).sum()
}

/// The round trip of an echo with so much payload over an idle link, in seconds. A delay that
/// varies has no such time: the fastest of several is faster than its mean.
pub(crate) fn round_trip(
    medium: &Medium,
    link: &LinkSpec,
    payload: usize,
) -> Result<f64, PredictError> {
    let ways = Direction::BOTH.map(|direction| link.way(direction));
    if ways.iter().any(|way| !way.jitter.spread.is_zero()) {
        return Err(PredictError::Moves(link.to_string()));
    }
    let bits = bytes(&echo(medium, payload)?) as f64 * 8.0;
    let delays = ways.map(|way| way.delay.as_secs_f64());
    let there_and_back = rates(link)?.into_iter().zip(delays);
    Ok(there_and_back
        .map(|(rate, delay)| bits / rate + delay)
        .sum())
}

/// The rates of a link up and down.
fn rates(link: &LinkSpec) -> Result<[f64; 2], PredictError> {
    Ok([steady_rate(&link.up, link)?, steady_rate(&link.down, link)?])
}

/// What a line through round trips says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The rate of both directions, or the harmonic mean of two that differ.
    pub capacity_bits_per_second: f64,
    /// What a packet without bytes would take, there and back.
    pub fixed_seconds: f64,
    /// The largest distance of a point from the line.
    pub worst_seconds: f64,
}

/// The line through points of bytes on the link and the least round trip seen, in seconds.
///
/// It goes through the points with the least sum of squares (each size has one, the least of
/// several probes, so that queues do not count). `None` with fewer than two sizes, or if larger
/// packets are not slower.
pub(crate) fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    let variance: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = covariance / variance;
    if !(slope.is_finite() && slope > 0.0) {
        return None;
    }
    let fixed_seconds = y - slope * x;
    let distance = |point: &(f64, f64)| (point.1 - fixed_seconds - slope * point.0).abs();
    Some(Fit {
        // The bytes go there and come back.
        capacity_bits_per_second: 2.0 * 8.0 / slope,
        fixed_seconds,
        worst_seconds: points.iter().map(distance).fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SweepArgs,
    }

    #[test]
    fn the_slope_of_what_is_predicted_is_the_link_that_was_asked_for() {
        let (medium, link) = (Medium::default(), "2/15".parse().expect("a link"));
        let points: Vec<_> = [64, 512, 1472, 3000, 8000]
            .iter()
            .map(|payload| {
                let packets = echo(&medium, *payload).expect("it fits");
                (
                    bytes(&packets) as f64,
                    round_trip(&medium, &link, *payload).expect("it has a rate"),
                )
            })
            .collect();
        let line = fit(&points).expect("larger ones are slower");
        assert!(
            (line.capacity_bits_per_second / 2e6 - 1.0).abs() < 1e-9,
            "{line:?}"
        );
        assert!((line.fixed_seconds - 0.030).abs() < 1e-9, "{line:?}");
        assert!(line.worst_seconds < 1e-9, "{line:?}");
    }

    #[test]
    fn a_page_has_the_curve_and_the_line_of_what_is_predicted() {
        let args = Line::parse_from(["sweep", "--link", "2/15"]).args;
        let page = Sweep::new(&args, false).expect("it fits").page(&args);
        let page = page.html();
        for part in [
            "<polyline",
            "line through them",
            "capacity 2.00 Mbit/s",
            "echoes of each",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_capacity_of_two_rates_says_of_what_it_is_the_mean() {
        let verdict = |words: &[&str]| {
            let words = [&["sweep"], words].concat();
            let args = Line::parse_from(words).args;
            Sweep::new(&args, false).expect("it fits").verdict()
        };

        let unequal = verdict(&["--link", "2:20/15"]);

        let mean = "capacity 3.64 Mbit/s (+0.00 % of the link's 3.64 Mbit/s), the harmonic mean of \
                    2.00 Mbit/s up and 20.00 Mbit/s down, fixed delay 30.000 ms";
        assert!(unequal.starts_with(mean), "{unequal}");
        assert!(!verdict(&["--link", "2/15"]).contains("mean"));
    }

    /// RFC 8200 §3, §4.5: a header of 40 bytes, and one of 8 for each fragment.
    #[test]
    fn an_echo_to_an_address_of_ipv6_has_its_headers() {
        let args = Line::parse_from(["sweep", "host", "--sizes", "56,1472"]).args;
        let bytes = |v6| {
            let sweep = Sweep::new(&args, v6).expect("it fits");
            sweep
                .points
                .iter()
                .map(|it| it.wire_bytes)
                .collect::<Vec<_>>()
        };
        let frame = 38;
        assert_eq!(bytes(false), [56 + 28 + frame, 1472 + 28 + frame]);
        assert_eq!(bytes(true), [56 + 48 + frame, 1472 + 8 + 2 * (48 + frame)]);
    }

    /// Two hops of 2 Mbit/s: each stores a whole packet, and fragments are on both at once.
    #[test]
    fn over_several_hops_fragments_are_beside_the_line() {
        let line = "sweep host --sizes 56,512,1472,2960,7400";
        let args = Line::parse_from(line.split(' ')).args;
        let mut sweep = Sweep::new(&args, false).expect("it fits");
        let medium = args.medium(false);
        let seconds = |bytes: usize| bytes as f64 * 8.0 / 2e6;
        let through = |payload| {
            let packets = echo(&medium, payload).expect("it fits");
            // The last fragment waits for those before it at the first hop alone.
            let last = packets.last().map_or(0, Packet::bytes);
            let one_way = seconds(bytes(&packets)) + seconds(last);
            Ok::<_, ()>(Some(Duration::from_secs_f64(2.0 * one_way + 0.030)))
        };

        sweep.measure(through).expect("it answers");

        let fit = sweep.fit.expect("larger ones are slower");
        assert!(
            (fit.capacity_bits_per_second / 1e6 - 1.0).abs() < 1e-6,
            "{fit:?}"
        );
        assert!((fit.fixed_seconds - 0.030).abs() < 1e-6, "{fit:?}");
        assert!(
            sweep.print(&args).contains("in fragments"),
            "{}",
            sweep.print(&args)
        );
    }

    #[test]
    fn who_does_not_answer_the_smallest_is_asked_no_more() {
        let args = Line::parse_from(["sweep", "host"]).args;
        let mut sweep = Sweep::new(&args, false).expect("it fits");
        let mut asked = Vec::new();

        let measured = sweep.measure(|payload| {
            asked.push(payload);
            Ok::<_, ()>(None)
        });

        assert_eq!((measured, asked), (Ok(()), vec![56]));
        assert!(!sweep.is_answered() && sweep.print(&args).contains("two --sizes"));
    }

    #[test]
    fn a_round_trip_over_what_moves_is_no_prediction() {
        for link in ["lte/20", "2:lte/20", "2/15±3"] {
            let args = Line::parse_from(["sweep", "--link", link]).args;
            let error = Sweep::new(&args, false).err();
            assert!(matches!(error, Some(PredictError::Moves(_))), "{error:?}");
        }
    }

    #[test]
    fn points_that_are_no_line_have_no_fit() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(100.0, 0.1)]), None);
        assert_eq!(fit(&[(100.0, 0.1), (1000.0, 0.05)]), None);
    }
}
