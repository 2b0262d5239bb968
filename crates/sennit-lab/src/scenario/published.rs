//! `[[published]]` tables: what somebody else's document says about a step.

use clap::Parser;
use sennit_predict::What;
use serde::Deserialize;

use super::Step;
use crate::figure::Figure;

/// A `[[published]]` table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it is of, in a few words.
    pub what: String,
    /// The document.
    pub by: String,
    /// The step that plays the same.
    pub step: String,
    /// The number of the traffic whose figure it is; absent: the first that has it.
    pub traffic: Option<usize>,
    /// Which of its figures.
    pub figure: Figure,
    /// The published figure, in the unit of the tables.
    pub value: Option<f64>,
    /// Whether more is better, or less.
    #[serde(default)]
    pub better: Better,
    /// What `sennit predict` is asked for the same, like `tcp --rate 10Mbit`; of goodput only.
    pub predict: Option<String>,
    /// Why ours is not better: what was not physical in theirs, or is not the same. Where neither
    /// is so it begins with `not reached:`.
    #[serde(default)]
    pub why: String,
}

/// Begins the reason why ours falls short of a figure that is possible.
const OPEN: &str = "not reached:";

/// Which way is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A larger figure.
    #[default]
    More,
    /// A smaller one.
    Less,
    /// Neither: as near as half a percent is as good as equal.
    Near,
}

/// Two measurements of one thing differ by less.
const NEAR: f64 = 0.005;

#[derive(Parser)]
#[command(name = "predict")]
struct Line {
    #[command(subcommand)]
    what: What,
}

impl Published {
    /// Whether one of these steps has what it is about.
    pub(super) fn check(&self, steps: &[Step]) -> Result<(), String> {
        let step = steps.iter().find(|step| step.name == self.step);
        let step = step.ok_or_else(|| format!("there is no step {:?}", self.step))?;
        let all = step.traffic.len();
        match self.traffic.filter(|it| !(1..=all).contains(it)) {
            Some(number) => Err(format!(
                "its step has no traffic {number}, they are numbered 1 to {all}"
            )),
            None => self.predicted().map(|_| ()),
        }
    }

    /// The prediction in the unit of the tables, if there is one.
    pub(crate) fn predicted(&self) -> Result<Option<f64>, String> {
        let Some(line) = &self.predict else {
            return Ok(None);
        };
        let words = ["predict"].into_iter().chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let load = parsed.what.load().ok_or("a sweep has no goodput")?;
        let predicted = load.predict().map_err(|error| error.to_string())?;
        Ok(Some(predicted.goodput_bits_per_second / 1e6))
    }

    /// Whether nothing forbids the figure, by its own reason.
    pub(crate) fn is_open(&self) -> bool {
        self.why.starts_with(OPEN)
    }

    /// Whether a figure of ours, in the unit of the tables, is at least as good.
    pub(crate) fn is_reached(&self, ours: f64) -> Option<bool> {
        let theirs = self.value?;
        Some(match self.better {
            Better::More => ours >= theirs,
            Better::Less => ours <= theirs,
            Better::Near => (ours / theirs - 1.0).abs() <= NEAR,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(better: Better) -> Published {
        Published {
            what: "TCP".into(),
            by: "a report".into(),
            step: "tcp".into(),
            traffic: None,
            figure: Figure::Goodput,
            value: Some(9.39),
            better,
            predict: Some("tcp --rate 10Mbit".into()),
            why: String::new(),
        }
    }

    #[test]
    fn ours_is_judged_by_which_way_is_better() {
        let judged = |better, ours| published(better).is_reached(ours);
        assert_eq!(judged(Better::More, 9.40), Some(true));
        assert_eq!(judged(Better::Less, 9.40), Some(false));
        assert_eq!(judged(Better::Near, 9.40), Some(true));
        assert_eq!(judged(Better::Near, 9.50), Some(false));
    }

    #[test]
    fn a_line_of_predict_gives_its_goodput() {
        let predicted = published(Better::More).predicted().expect("it is right");
        assert!((predicted.expect("there is one") - 9.415).abs() < 1e-3);
        let wrong = Published {
            predict: Some("tcp --speed 3".into()),
            ..published(Better::More)
        };
        assert!(wrong.predicted().is_err());
    }
}
