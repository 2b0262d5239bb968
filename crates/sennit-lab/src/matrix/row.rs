//! A line of the table: what a scenario was, and what came of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sennit_predict::{Ip, Load, Medium, Tunnel, predict};
use sennit_sim::Outcome;

use super::{Case, Matrix};

/// The columns.
pub(super) const HEAD: &str = "number,seed,profile,links,kind,direction,flows,policy,delivery,\
congestion,fec,goodput_mbit,predicted_mbit,of_predicted,longest_stall_ms,error";
const COLUMNS: usize = 16;

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
    text: String,
}

impl Row {
    /// Plays the scenario.
    pub(super) fn play(case: &Case) -> Self {
        let predicted = predicted(case);
        let number = |value: Option<f64>, digits: usize| {
            value.map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        let (goodput, stall, error) = match outcome(case) {
            Ok(outcome) => {
                let stall = outcome.longest_stall.as_secs_f64() * 1e3;
                (Some(outcome.goodput), Some(stall), String::new())
            }
            Err(error) => (None, None, error.replace([',', '\n', '"'], ";")),
        };
        let share = goodput.zip(predicted).map(|(goodput, most)| goodput / most);
        let (profile, links, flows) = (&case.profile, case.links.len(), case.trial.streams);
        let (seed, kind, direction) = (case.trial.seed, case.kind.name(), case.trial.direction);
        let treatment = &case.treatment;
        let (policy, delivery) = (treatment.policy, treatment.delivery);
        let (congestion, fec) = (treatment.congestion, treatment.fec);
        let text = format!(
            "{},{seed},{profile},{links},{kind},{direction},{flows},{policy},{delivery},\
             {congestion},{fec},{},{},{},{},{error}",
            case.number,
            number(goodput, 3),
            number(predicted, 3),
            number(share, 4),
            number(stall, 1),
        );
        Self::parse(&text).expect("it has the columns of a line")
    }

    /// Reads a line; `None` for one that was cut short.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.split(',').collect();
        (fields.len() == COLUMNS).then_some(())?;
        let goodput = fields[11].parse().ok();
        // What has neither a figure nor a reason was not written to its end.
        (goodput.is_some() || !fields[15].is_empty()).then_some(())?;
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
fn outcome(case: &Case) -> Result<Outcome, String> {
    let play = AssertUnwindSafe(|| case.trial.run_as(case.treatment, &case.links));
    match catch_unwind(play) {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err("it panicked".into()),
    }
}

/// What the links would carry in Mbit/s if headers and loss were all; `None` for those that move.
fn predicted(case: &Case) -> Option<f64> {
    let moves =
        |link: &sennit_netem::LinkSpec| link.up.trace.is_some() || link.down.trace.is_some();
    if case.links.iter().any(moves) {
        return None;
    }
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
