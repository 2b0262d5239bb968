//! Error correction of messages: what each end counts of it, and what both together come to.

use std::{fmt, iter::Sum, ops::Add};

use sennit_fec::{Code, PATIENCE};
use sennit_load::ArrivalFigures;
use serde::{Deserialize, Serialize};

/// Overhead may be above what a code says by this much before a report tells why.
const MARGIN: f64 = 0.02;

/// Messages that are protected, and what repairs them, since the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbols {
    /// Protected messages that left.
    pub sources_sent: u64,
    /// Repairs that left.
    pub repairs_sent: u64,
    /// Protected messages that arrived.
    pub sources_received: u64,
    /// Repairs that arrived.
    pub repairs_received: u64,
    /// Messages that repairs brought back before they arrived, if they ever did.
    pub recovered: u64,
    /// Those of them that arrived later all the same: nobody needed their repair.
    pub arrived_later: u64,
    /// Repairs that came when everything they cover was there, or given up.
    pub unneeded: u64,
    /// Repairs that could not be solved.
    pub failed: u64,
    /// Datagrams that cannot be part of this load.
    pub malformed: u64,
}

impl Symbols {
    /// Those of a direction, of which each end counts its part.
    pub(super) fn of_way(sender: Self, receiver: Self) -> Self {
        Self {
            sources_sent: sender.sources_sent,
            repairs_sent: sender.repairs_sent,
            ..receiver
        }
    }
}

impl Add for Symbols {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sources_sent: self.sources_sent + other.sources_sent,
            repairs_sent: self.repairs_sent + other.repairs_sent,
            sources_received: self.sources_received + other.sources_received,
            repairs_received: self.repairs_received + other.repairs_received,
            recovered: self.recovered + other.recovered,
            arrived_later: self.arrived_later + other.arrived_later,
            unneeded: self.unneeded + other.unneeded,
            failed: self.failed + other.failed,
            malformed: self.malformed + other.malformed,
        }
    }
}

impl Sum for Symbols {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// What error correction came to in a direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FecFigures {
    /// The code, by its word.
    pub code: String,
    /// What both ends counted.
    pub symbols: Symbols,
    /// Repairs for each message that was sent.
    pub overhead_ratio: f64,
    /// Messages that the network lost, over those that were sent.
    pub wire_loss_ratio: f64,
    /// Messages that neither arrived nor came back.
    pub lost: u64,
    /// These over all that were sent.
    pub residual_loss_ratio: f64,
}

impl FecFigures {
    /// By what both ends counted, and how the messages arrived by themselves.
    pub(super) fn new(code: &str, symbols: Symbols, messages: &ArrivalFigures) -> Self {
        let back = symbols.recovered.saturating_sub(symbols.arrived_later);
        let lost = messages.lost.saturating_sub(back);
        Self {
            code: code.to_owned(),
            symbols,
            overhead_ratio: symbols.repairs_sent as f64 / symbols.sources_sent.max(1) as f64,
            wire_loss_ratio: messages.loss_ratio,
            lost,
            residual_loss_ratio: lost as f64 / messages.sent.max(1) as f64,
        }
    }

    /// Why more was sent in addition than the code says, if more was.
    pub(super) fn note(&self, way: &str) -> Option<String> {
        let asked = self.code.parse::<Code>().ok()?.overhead();
        let [sent, asked, most] = [self.overhead_ratio, asked, asked + MARGIN].map(|it| it * 100.0);
        let patience = PATIENCE.as_millis();
        (sent > most).then(|| {
            format!(
                "{way}: repairs for {sent:.1} % of the messages left, and not {asked:.1} %: what waits \
                 for {patience} ms gets its repairs then, however few messages that are"
            )
        })
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Symbols {
            repairs_sent,
            repairs_received,
            recovered,
            arrived_later,
            unneeded,
            failed,
            malformed,
            ..
        } = self.symbols;
        let [overhead, before, after] = [
            self.overhead_ratio,
            self.wire_loss_ratio,
            self.residual_loss_ratio,
        ]
        .map(|ratio| ratio * 100.0);
        let code = &self.code;
        write!(
            f,
            "  fec      {code}: {repairs_sent} repairs sent ({overhead:.1} %), {repairs_received} \
             arrived, {unneeded} not needed, {failed} failed"
        )?;
        if malformed > 0 {
            write!(f, ", {malformed} malformed")?;
        }
        writeln!(
            f,
            "\n  repaired {recovered} recovered, {arrived_later} of them arrived later; lost \
             {before:.2} % on the wire, {after:.2} % after repair"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(symbols: Symbols) -> FecFigures {
        let messages = ArrivalFigures {
            sent: 1000,
            received: 950,
            lost: 50,
            loss_ratio: 0.05,
            ..ArrivalFigures::default()
        };
        FecFigures::new("rs:10+2", symbols, &messages)
    }

    #[test]
    fn what_came_back_is_not_lost_and_what_arrived_later_was_not_lost_before() {
        let found = figures(Symbols {
            sources_sent: 1000,
            repairs_sent: 200,
            recovered: 45,
            arrived_later: 5,
            ..Symbols::default()
        });

        assert_eq!((found.lost, found.overhead_ratio), (10, 0.2));
        assert_eq!(
            (found.wire_loss_ratio, found.residual_loss_ratio),
            (0.05, 0.01)
        );
        assert_eq!(found.note("up"), None);
    }

    #[test]
    fn what_a_far_end_claims_makes_no_loss_negative() {
        let found = figures(Symbols {
            repairs_sent: 9,
            recovered: u64::MAX,
            ..Symbols::default()
        });

        assert_eq!((found.lost, found.residual_loss_ratio), (0, 0.0));
    }

    #[test]
    fn more_repairs_than_the_code_says_are_explained() {
        let found = figures(Symbols {
            sources_sent: 100,
            repairs_sent: 200,
            ..Symbols::default()
        });

        let note = found.note("down").expect("it is ten times as much");
        assert!(
            note.contains("200.0 % of") && note.contains("not 20.0 %"),
            "{note}"
        );
    }
}
