//! Error correction of messages: what each end counts of it, and what both together come to.

use std::{collections::BTreeSet, fmt, iter::Sum, ops::Add};

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

/// What `auto` chose for a connection last, and what it saw then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FecChoice {
    /// The code, by its word; `None` if messages are not protected.
    pub code: Option<String>,
    /// Why.
    pub reason: String,
    /// Part of the packets that the path loses of late, as their sender knows from what is
    /// acknowledged.
    pub loss_ratio: f64,
    /// How many times as long as by chance are the bursts in which they are lost.
    pub burst: f64,
}

impl fmt::Display for FecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, loss) = (
            self.code.as_deref().unwrap_or("off"),
            self.loss_ratio * 100.0,
        );
        write!(f, "{code}, as {} (sees {loss:.2} % lost", self.reason)?;
        if self.loss_ratio > 0.0 {
            write!(
                f,
                ", in bursts {:.1} times as long as by chance",
                self.burst
            )?;
        }
        write!(f, ")")
    }
}

/// What error correction came to in a direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FecFigures {
    /// The code, by its word.
    pub code: String,
    /// What both ends counted.
    pub symbols: Symbols,
    /// What `auto` chose last, for each connection; empty where the code was asked for by name.
    #[serde(default)]
    pub choices: Vec<FecChoice>,
    /// Part of the messages that left protected: all of them where the code was asked for by name.
    #[serde(default)]
    pub protected_ratio: f64,
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
        let of_sent = |count: u64| count as f64 / messages.sent.max(1) as f64;
        Self {
            code: code.to_owned(),
            symbols,
            choices: Vec::new(),
            protected_ratio: of_sent(symbols.sources_sent),
            overhead_ratio: of_sent(symbols.repairs_sent),
            wire_loss_ratio: messages.loss_ratio,
            lost,
            residual_loss_ratio: of_sent(lost),
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

    /// The code, and of `auto` what it chose last.
    pub(super) fn in_short(&self) -> String {
        let chosen = self.choices.iter();
        let chosen: BTreeSet<_> = chosen
            .map(|it| it.code.as_deref().unwrap_or("off"))
            .collect();
        let chosen: Vec<_> = chosen.into_iter().collect();
        match chosen.is_empty() {
            true => self.code.clone(),
            false => format!("{}: {}", self.code, chosen.join(", ")),
        }
    }
}

impl fmt::Display for FecFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        )?;
        let choices: BTreeSet<_> = self.choices.iter().map(ToString::to_string).collect();
        for choice in choices {
            writeln!(f, "  chose    {choice}")?;
        }
        if !self.choices.is_empty() {
            let protected = self.protected_ratio * 100.0;
            writeln!(
                f,
                "           {protected:.1} % of the messages were protected"
            )?;
        }
        Ok(())
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
    fn what_auto_chose_is_told_with_its_reason_once() {
        let choice = FecChoice {
            code: Some("rlc:1/10".into()),
            reason: "what is lost is not sent again".into(),
            loss_ratio: 0.051,
            burst: 1.0,
        };
        let found = FecFigures {
            code: "auto".into(),
            choices: vec![choice.clone(), choice],
            ..figures(Symbols {
                sources_sent: 900,
                ..Symbols::default()
            })
        };

        let told = found.to_string();

        let choice =
            "chose    rlc:1/10, as what is lost is not sent again (sees 5.10 % lost, in bursts";
        assert_eq!(told.matches(choice).count(), 1, "{told}");
        assert!(
            told.contains(" 90.0 % of the messages were protected"),
            "{told}"
        );
        assert_eq!(found.in_short(), "auto: rlc:1/10");
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
            sources_sent: 1000,
            repairs_sent: 2000,
            ..Symbols::default()
        });

        let note = found.note("down").expect("it is ten times as much");
        assert!(
            note.contains("200.0 % of") && note.contains("not 20.0 %"),
            "{note}"
        );
    }
}
