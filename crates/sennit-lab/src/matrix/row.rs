//! A line of the table: what a scenario was, and what came of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sennit_load::quantile;
use sennit_predict::{Ip, Load, Medium, Tunnel, predict};

use super::{Case, Matrix};

/// The columns.
pub(super) const HEAD: &str = "number,seed,profile,links,kind,direction,flows,policy,delivery,\
congestion,fec,goodput_mbit,predicted_mbit,of_predicted,longest_stall_ms,ping_p50_ms,ping_p95_ms,\
ping_lost_percent,error";
const COLUMNS: usize = 19;

/// Between two pings beside the flows.
const PING_EVERY: Duration = Duration::from_millis(50);

/// What the tunnel of the simulator takes.
const INNER_MTU: usize = 1400;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) number: usize,
    pub(super) profile: String,
    pub(super) links: usize,
    pub(super) flows: u16,
    pub(super) delivery: String,
    pub(super) congestion: String,
    pub(super) fec: String,
    /// Mbit/s; `None` if the scenario has no outcome.
    pub(super) goodput: Option<f64>,
    /// Goodput as a share of what headers and loss leave.
    pub(super) share: Option<f64>,
    /// 95 % of the pings that were answered took no longer, in milliseconds.
    pub(super) p95: Option<f64>,
    /// Pings that were not answered, in percent.
    pub(super) lost: Option<f64>,
    text: String,
}

/// What came of a scenario.
struct Played {
    goodput: f64,
    stall: Duration,
    /// Round trips of pings; a lost one has none.
    pings: Vec<Option<Duration>>,
}

impl Played {
    /// A quantile of round trips, in milliseconds.
    fn ping(&self, share: f64) -> Option<f64> {
        let times = self.pings.iter().flatten();
        let times: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
        quantile(&times, share)
    }

    /// In percent.
    fn lost(&self) -> Option<f64> {
        let lost = self.pings.iter().filter(|time| time.is_none()).count();
        let all = self.pings.len();
        (all > 0).then(|| lost as f64 / all as f64 * 100.0)
    }
}

impl Row {
    /// Plays the scenario.
    pub(super) fn play(case: &Case) -> Self {
        let predicted = predicted(case);
        let number = |value: Option<f64>, digits: usize| {
            value.map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        let (played, error) = match played(case) {
            Ok(played) => (Some(played), String::new()),
            Err(error) => (None, error.replace([',', '\n', '"'], ";")),
        };
        let played = played.as_ref();
        let goodput = played.map(|it| it.goodput);
        let share = goodput.zip(predicted).map(|(goodput, most)| goodput / most);
        let (profile, links, flows) = (&case.profile, case.links.len(), case.trial.streams);
        let (seed, kind, direction) = (case.trial.seed, case.kind.name(), case.trial.direction);
        let treatment = &case.treatment;
        let (policy, delivery) = (treatment.policy, treatment.delivery);
        let (congestion, fec) = (treatment.congestion, treatment.fec);
        let text = format!(
            "{},{seed},{profile},{links},{kind},{direction},{flows},{policy},{delivery},\
             {congestion},{fec},{},{},{},{},{},{},{},{error}",
            case.number,
            number(goodput, 3),
            number(predicted, 3),
            number(share, 4),
            number(played.map(|it| it.stall.as_secs_f64() * 1e3), 1),
            number(played.and_then(|it| it.ping(0.5)), 1),
            number(played.and_then(|it| it.ping(0.95)), 1),
            number(played.and_then(Played::lost), 1),
        );
        Self::parse(&text).expect("it has the columns of a line")
    }

    /// Reads a line; `None` for one that was cut short.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.split(',').collect();
        (fields.len() == COLUMNS).then_some(())?;
        let goodput = fields[11].parse().ok();
        // What has neither a figure nor a reason was not written to its end.
        (goodput.is_some() || !fields[COLUMNS - 1].is_empty()).then_some(())?;
        Some(Self {
            number: fields[0].parse().ok()?,
            profile: fields[2].to_owned(),
            links: fields[3].parse().ok()?,
            flows: fields[6].parse().ok()?,
            delivery: fields[8].to_owned(),
            congestion: fields[9].to_owned(),
            fec: fields[10].to_owned(),
            goodput,
            share: fields[13].parse().ok(),
            p95: fields[16].parse().ok(),
            lost: fields[17].parse().ok(),
            text: text.to_owned(),
        })
    }

    /// Whether it is the line of this scenario and not of another matrix.
    pub(super) fn is_of(&self, case: &Case) -> bool {
        let treatment = &case.treatment;
        self.number == case.number
            && self.profile == case.profile
            && self.links == case.links.len()
            && self.flows == case.trial.streams
            && self.delivery == treatment.delivery.as_str()
            && self.congestion == treatment.congestion.as_str()
            && self.fec == treatment.fec.to_string()
    }

    /// As it is written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// A scenario that breaks an invariant is an outcome as well, and the others go on.
fn played(case: &Case) -> Result<Played, String> {
    let (trial, treatment) = (&case.trial, case.treatment);
    let play = AssertUnwindSafe(|| trial.run_beside_ping(treatment, &case.links, PING_EVERY));
    let played = catch_unwind(play).map_err(|_| "it panicked".to_owned())?;
    let (outcome, pings) = played.map_err(|error| error.to_string())?;
    Ok(Played {
        goodput: outcome.goodput,
        stall: outcome.longest_stall,
        pings,
    })
}

/// What the links would carry in Mbit/s if headers and loss were all; `None` for those that move.
fn predicted(case: &Case) -> Option<f64> {
    let (v6, mtu) = (false, INNER_MTU);
    let inner = match case.kind {
        super::KindWord::Tcp => Load::tcp(),
        // The simulator's QUIC sends UDP packets of 1252 bytes of payload.
        super::KindWord::Quic => Load::Udp {
            payload: Some(1252),
        },
    };
    let tunnel = Tunnel {
        inner,
        ip: Ip { v6, mtu },
        bare: false,
        thin: true,
        packet_number: 2,
        fec: sennit_engine::Fec::Off,
    };
    let medium = Medium {
        counts: sennit_predict::Counts::Frames,
        ..Medium::default()
    };
    let load = Load::Tunnel(Box::new(tunnel));
    let predicted = predict(&load, &medium, &case.links, case.trial.direction);
    Some(predicted.ok()?.goodput_bits_per_second / 1e6)
}

impl Matrix {
    /// Virtual seconds of one scenario.
    pub(super) fn span(&self) -> f64 {
        self.seconds + self.warm_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: &str = "
        name = \"m\"
        seconds = 1
        warm_up = 0.5
        seeds = [3]
        [profile]
        small = \"5/5\"
    ";

    #[test]
    fn a_scenario_gives_the_same_line_each_time() {
        let cases = Matrix::parse(MATRIX).expect("it is right").cases();
        let first = Row::play(&cases[0]);
        assert_eq!(first, Row::play(&cases[0]));
        assert!(first.is_of(&cases[0]) && first.goodput.is_some_and(|it| it > 2.0));
        assert!(first.share.is_some_and(|share| share < 1.02), "{first:?}");
        // Ten milliseconds by the link alone, and nothing is lost on it.
        assert!(first.p95.is_some_and(|p95| p95 >= 10.0), "{first:?}");
        assert!(first.lost.is_some(), "{first:?}");
    }

    #[test]
    fn a_code_is_played_and_stands_in_its_line() {
        let codes = "delivery = ['datagram']\nfec = ['off', 'rlc:1/4']\n[profile]";
        let lossy = MATRIX
            .replace("5/5", "5/25/10%")
            .replace("[profile]", codes);
        let cases = Matrix::parse(&lossy).expect("it is right").cases();
        let rows: Vec<_> = cases.iter().map(Row::play).collect();
        let codes: Vec<_> = rows.iter().map(|row| row.fec.as_str()).collect();
        assert_eq!(codes, ["off", "rlc:1/4"]);
        let [without, with] = [0, 1].map(|at| rows[at].goodput.expect("it has an outcome"));
        assert!(with > 1.5 * without, "{without} and {with}");
    }

    #[test]
    fn a_line_cut_short_is_none() {
        let cases = Matrix::parse(MATRIX).expect("it is right").cases();
        let row = Row::play(&cases[0]);
        assert_eq!(Row::parse(row.text()).as_ref(), Some(&row));
        for cut in 0..row.text().len() {
            let read = Row::parse(&row.text()[..cut]);
            assert!(read.is_none() || cut > row.text().rfind(',').unwrap_or(0));
        }
    }
}
