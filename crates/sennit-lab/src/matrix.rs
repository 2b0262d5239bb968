//! `sennit sim matrix`: every combination of what a file lists, in virtual time.
//!
//! ```toml
//! name = "matrix"
//! seconds = 10                     # virtual time that counts
//! warm_up = 3                      # virtual time before it
//! seeds = [1]                      # each combination once with each
//! direction = ["up"]               # also "down"
//! kind = ["quic"]                  # how flows send; also "tcp", which has no SACK here
//! flows = [1, 4, 16]
//! links = [1, 2]                   # so many links of the profile
//! policy = ["bond"]
//! delivery = ["datagram", "repair", "reliable"]
//! congestion = ["auto", "cubic", "bbr", "bbr3", "follow"]
//! fec = ["off", "auto", "rlc:1/8"]
//!
//! [profile]                        # a link each, as `sennit_netem::LinkSpec` writes it
//! mobile = "50/mobile"
//! ```
//!
//! A line of the table is written when its scenario is done, so that who is stopped goes on where
//! he was, with the same build. A scenario has the same outcome whenever and wherever that runs it.

mod page;
mod play;
mod row;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sennit_core::{Congestion, Delivery, Policy};
use sennit_engine::{Fec, Treatment};
use sennit_netem::{Direction, LinkSpec};
use sennit_sim::{Kind, Trial};
use serde::{Deserialize, Deserializer};

use crate::error::Error;

pub(crate) use play::run;

/// More would take days.
const MOST: usize = 100_000;

#[derive(Debug, Args)]
pub(crate) struct MatrixArgs {
    /// The matrix (TOML)
    file: PathBuf,
    /// Where matrix.csv and report.html go [default: results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Scenarios at the same time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Run this scenario alone and print its line
    #[arg(long, value_name = "NUMBER")]
    only: Option<usize>,
    /// Run every N-th scenario only, to see how long all would take
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "only")]
    every: NonZeroUsize,
    /// Only print how many scenarios there are
    #[arg(long, conflicts_with = "only")]
    count: bool,
}

/// A matrix file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matrix {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default = "ten")]
    seconds: f64,
    #[serde(default = "three")]
    warm_up: f64,
    #[serde(default = "one_seed")]
    seeds: Vec<u64>,
    #[serde(default = "up")]
    direction: Vec<Direction>,
    #[serde(default = "quic")]
    kind: Vec<KindWord>,
    #[serde(default = "one_flow")]
    flows: Vec<u16>,
    #[serde(default = "one_link")]
    links: Vec<usize>,
    #[serde(default = "bond", deserialize_with = "words")]
    policy: Vec<Policy>,
    #[serde(default = "repair", deserialize_with = "words")]
    delivery: Vec<Delivery>,
    #[serde(default = "auto", deserialize_with = "words")]
    congestion: Vec<Congestion>,
    #[serde(default = "as_fits", deserialize_with = "words")]
    fec: Vec<Fec>,
    profile: BTreeMap<String, LinkSpec>,
}

/// How flows send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KindWord {
    Tcp,
    Quic,
}

fn ten() -> f64 {
    10.0
}

fn three() -> f64 {
    3.0
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

fn up() -> Vec<Direction> {
    vec![Direction::Up]
}

fn quic() -> Vec<KindWord> {
    vec![KindWord::Quic]
}

fn one_flow() -> Vec<u16> {
    vec![1]
}

fn one_link() -> Vec<usize> {
    vec![1]
}

fn bond() -> Vec<Policy> {
    vec![Policy::Bond]
}

fn repair() -> Vec<Delivery> {
    vec![Delivery::Repair]
}

fn auto() -> Vec<Congestion> {
    vec![Congestion::Auto]
}

fn as_fits() -> Vec<Fec> {
    vec![Fec::Auto]
}

/// Words of a class, as configs have them.
fn words<'de, D: Deserializer<'de>, W: std::str::FromStr>(d: D) -> Result<Vec<W>, D::Error> {
    let words: Vec<String> = Vec::deserialize(d)?;
    let word = |word: String| {
        let wrong = || serde::de::Error::custom(format!("`{word}` is no word for this"));
        word.parse().map_err(|_| wrong())
    };
    words.into_iter().map(word).collect()
}

/// One combination.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// From 1, in the order of the file.
    number: usize,
    profile: String,
    links: Vec<LinkSpec>,
    kind: KindWord,
    treatment: Treatment,
    trial: Trial,
}

impl KindWord {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Tcp => Kind::Tcp,
            Self::Quic => Kind::Quic,
        }
    }
}

impl Matrix {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Scenario(reason);
        let matrix: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let lists = [
            ("seeds", matrix.seeds.len()),
            ("direction", matrix.direction.len()),
            ("kind", matrix.kind.len()),
            ("flows", matrix.flows.len()),
            ("links", matrix.links.len()),
            ("policy", matrix.policy.len()),
            ("delivery", matrix.delivery.len()),
            ("congestion", matrix.congestion.len()),
            ("fec", matrix.fec.len()),
            ("profile", matrix.profile.len()),
        ];
        if let Some((name, _)) = lists.iter().find(|(_, len)| *len == 0) {
            return Err(wrong(format!("`{name}` is empty, so there is no scenario")));
        }
        let product = lists
            .iter()
            .try_fold(1_usize, |all, (_, len)| all.checked_mul(*len));
        if product.is_none_or(|all| all > MOST) {
            return Err(wrong(format!("there are more than {MOST} combinations")));
        }
        let times = [("seconds", matrix.seconds), ("warm_up", matrix.warm_up)];
        if let Some((name, _)) = times.iter().find(|(_, it)| !(0.0..=3600.0).contains(it)) {
            return Err(wrong(format!("`{name}` is 0 to 3600")));
        }
        Ok(matrix)
    }

    /// Every combination. Those of one profile are far apart, so that any part of them is a sample.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &seed in &self.seeds {
            for treatment in self.treatments() {
                for (&direction, &kind) in pairs(&self.direction, &self.kind) {
                    for (&streams, &links) in pairs(&self.flows, &self.links) {
                        for (profile, link) in &self.profile {
                            cases.push(Case {
                                number: cases.len() + 1,
                                profile: profile.clone(),
                                links: vec![link.clone(); links],
                                kind,
                                treatment,
                                trial: Trial {
                                    kind: kind.kind(),
                                    direction,
                                    streams,
                                    warm_up: Duration::from_secs_f64(self.warm_up),
                                    span: Duration::from_secs_f64(self.seconds),
                                    seed,
                                },
                            });
                        }
                    }
                }
            }
        }
        cases
    }

    fn treatments(&self) -> Vec<Treatment> {
        let mut treatments = Vec::new();
        for (&congestion, &fec) in pairs(&self.congestion, &self.fec) {
            for (&policy, &delivery) in pairs(&self.policy, &self.delivery) {
                treatments.push(Treatment {
                    policy,
                    delivery,
                    congestion,
                    fec,
                    ..Treatment::default()
                });
            }
        }
        treatments
    }
}

fn pairs<'a, A, B>(first: &'a [A], second: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    first
        .iter()
        .flat_map(move |a| second.iter().map(move |b| (a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of the project.
    const SHIPPED: &str = include_str!("../../../lab/matrix.toml");

    #[test]
    fn the_shipped_matrix_has_as_many_scenarios_as_it_should() {
        let matrix = Matrix::parse(SHIPPED).expect("it is right");
        let cases = matrix.cases();
        assert!(cases.len() >= 1260, "{}", cases.len());
        let mut codes: Vec<_> = cases.iter().map(|case| case.treatment.fec).collect();
        codes.dedup();
        assert!(codes.contains(&Fec::Off) && codes.contains(&Fec::Auto));
        let numbers: Vec<_> = cases.iter().map(|case| case.number).collect();
        assert!(numbers.iter().copied().eq(1..=cases.len()));
    }

    #[test]
    fn what_is_no_matrix_is_refused_with_a_reason() {
        let profile = "[profile]\na = \"10/5\"\n";
        for (text, part) in [
            ("name = \"m\"\n".to_owned(), "profile"),
            (
                format!("name = \"m\"\nflows = []\n{profile}"),
                "`flows` is empty",
            ),
            (
                format!("name = \"m\"\ncongestion = [\"reno\"]\n{profile}"),
                "`reno`",
            ),
            (
                format!("name = \"m\"\nfec = [\"rs:0+2\"]\n{profile}"),
                "`rs:0+2`",
            ),
            (
                format!("name = \"m\"\nseconds = -1\n{profile}"),
                "`seconds`",
            ),
            (format!("name = \"m\"\nspeed = 1\n{profile}"), "speed"),
            (
                "name = \"m\"\n[profile]\na = \"10\"\n".to_owned(),
                "no delay",
            ),
        ] {
            let error = Matrix::parse(&text).expect_err(&text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
